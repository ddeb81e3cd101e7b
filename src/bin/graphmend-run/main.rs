//! `graphmend-run`: runs packed models and looks into them.

mod bench;
mod inspect;
mod model;
mod run;
#[cfg(feature = "host")]
mod serve;
mod vad;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit statuses besides 0; clap itself exits with 2 for wrong usage.
const ERROR: u8 = 1;
const REFUSED: u8 = 3;

#[derive(Parser)]
#[command(
    name = "graphmend-run",
    version,
    about = "Runs models packed by graphmend-pack",
    after_help = "\
Exit status: 0 success, 1 error, 2 wrong usage, 3 the file is refused (damaged, not the pinned one, or built for another CPU).

Examples:
  graphmend-run inspect model.gmc
  graphmend-run run model.gmc -i x=x.npy -o results/
  graphmend-run vad silero_vad.gmc speech.wav
  graphmend-run bench model.gmc --dim batch=1"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Bench(bench::Args),
    Vad(vad::Args),
    #[cfg(feature = "host")]
    Serve(serve::Args),
}

fn main() -> ExitCode {
    #[cfg(feature = "host")]
    env_logger::init();
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Vad(args) => vad::run(&args),
        #[cfg(feature = "host")]
        Command::Serve(args) => serve::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has gone (`graphmend-run inspect … | head`): nobody to tell.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("graphmend-run: {error:#}");
            ExitCode::from(if model::is_refusal(&error) { REFUSED } else { ERROR })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
