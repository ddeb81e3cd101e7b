//! What the peers share: the job (see scripts/benchmark/engine.py), its inputs, measuring.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// What to measure.
#[derive(Deserialize)]
pub struct Job {
    /// An ONNX file.
    pub model: String,
    /// In the order of the model's inputs.
    pub inputs: Vec<Input>,
    pub threads: usize,
    /// Time for steady runs.
    pub seconds: f64,
    /// Exactly so many runs instead.
    pub runs: Option<usize>,
    /// onnxruntime's shared library.
    #[serde(default)]
    pub library: String,
}

/// An array in a .npy file.
#[derive(Deserialize)]
pub struct Input {
    pub name: String,
    pub file: String,
    pub shape: Vec<usize>,
    pub dtype: String,
}

/// The elements of an input.
pub enum Values {
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U8(Vec<u8>),
    Bool(Vec<bool>),
}

impl Input {
    /// Reads the elements: they are the last bytes of the file.
    pub fn read(&self) -> Result<Values> {
        let bytes = std::fs::read(&self.file).with_context(|| self.file.clone())?;
        let count: usize = self.shape.iter().product();
        let tail = |size: usize| {
            let from = bytes.len().checked_sub(count * size);
            from.and_then(|from| bytes.get(from..)).with_context(|| format!("{} is too short", self.file))
        };
        macro_rules! numbers {
            ($t:ty) => {
                tail(size_of::<$t>())?.as_chunks().0.iter().map(|b| <$t>::from_le_bytes(*b)).collect()
            };
        }
        Ok(match self.dtype.as_str() {
            "float32" => Values::F32(numbers!(f32)),
            "int32" => Values::I32(numbers!(i32)),
            "int64" => Values::I64(numbers!(i64)),
            "uint8" => Values::U8(tail(1)?.to_vec()),
            "bool" => Values::Bool(tail(1)?.iter().map(|b| *b != 0).collect()),
            other => bail!("inputs of type {other} are not supported here"),
        })
    }
}

/// Seconds and bytes.
#[derive(Serialize)]
pub struct Figures {
    pub load: f64,
    pub first: f64,
    pub steady: Vec<f64>,
    pub rss: u64,
    pub version: String,
}

/// The job named on the command line.
pub fn job() -> Result<Job> {
    let path = std::env::args().nth(1).context("a job file is expected")?;
    Ok(serde_json::from_slice(&std::fs::read(&path).with_context(|| path.clone())?)?)
}

/// Runs as the job says and prints the figures. The first line is written right after the first run, for whoever waits
/// for a first output.
pub fn measure(job: &Job, load: Duration, version: &str, mut run: impl FnMut() -> Result<()>) -> Result<()> {
    let mut timed = || {
        let start = Instant::now();
        run().map(|()| start.elapsed().as_secs_f64())
    };
    let first = timed()?;
    println!("first output");
    let (mut steady, begin) = (Vec::new(), Instant::now());
    let enough =
        |n: usize| job.runs.map_or(n >= 3 && begin.elapsed().as_secs_f64() >= job.seconds, |runs| n + 1 >= runs);
    while !enough(steady.len()) {
        steady.push(timed()?);
    }
    steady.sort_by(f64::total_cmp);
    let figures = Figures { load: load.as_secs_f64(), first, steady, rss: peak_resident()?, version: version.into() };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// The greatest resident set so far, in bytes.
fn peak_resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
