//! How long programs take from their start to their first output: `cold COUNT COMMAND ... [-- COMMAND ...]...`
//!
//! The commands take turns. Prints JSON: for each, the seconds from just before the process is made to the first byte on
//! its standard output.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

fn once(words: &[String]) -> Result<f64> {
    let (program, args) = words.split_first().context("an empty command")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| program.clone())?;
    let mut out = child.stdout.take().context("no output")?;
    let mut byte = [0];
    let count = out.read(&mut byte)?;
    let time = start.elapsed();
    out.read_to_end(&mut Vec::new())?;
    let status = child.wait()?;
    if count == 0 || !status.success() {
        bail!("{program}: {status}, {count} bytes of output");
    }
    Ok(time.as_secs_f64())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (count, words) = words.split_first().context("a count is expected")?;
    let count: usize = count.parse()?;
    let commands: Vec<&[String]> = words.split(|w| w == "--").collect();
    let mut times = vec![Vec::new(); commands.len()];
    // The first round brings files into memory.
    for round in 0..=count {
        for (command, times) in commands.iter().zip(&mut times) {
            let time = once(command)?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}
