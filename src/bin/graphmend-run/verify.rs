//! `graphmend-run verify`: every byte of a file against its digests.

use std::io::Write;

use anyhow::{Context, Result};
use graphmend::cache_format::file::File;
use graphmend::cache_format::read::read;
use graphmend::{Digest, Error, FormatError};
use serde_json::json;

use crate::model::{hex, parse_digest};

/// Verify every byte of a packed model (any CPU's)
#[derive(clap::Args)]
#[command(after_help = "\
Digests show damage. That a file is the one you packed is only sure with --pin.

Examples:
  graphmend-run verify model.gmc
  graphmend-run verify model.gmc --pin $(cat model.root)")]
pub(crate) struct Args {
    /// Packed model (.gmc)
    #[arg(value_name = "MODEL")]
    path: std::path::PathBuf,

    /// The root digest that the file must have (64 hex digits)
    #[arg(long, value_name = "DIGEST", value_parser = parse_digest)]
    pin: Option<Digest>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let bytes = std::fs::read(&args.path).with_context(|| args.path.display().to_string())?;
    let file = File::parse(&bytes).with_context(|| args.path.display().to_string())?;
    let root = file.index().header().root;
    if args.pin.is_some_and(|pin| pin != root) {
        let error = format!("{}: its root digest is {}", args.path.display(), hex(&root));
        return Err(anyhow::Error::from(Error::NotPinned).context(error));
    }
    let root = hex(&root);
    let mut out = std::io::stdout().lock();
    let mut list = Vec::new();
    let mut first_bad: Option<FormatError> = file.index().verify_gaps(&bytes).err();
    for s in file.index().sections() {
        let result = file.verify_section(&s);
        let state = result.map_or_else(|e| e.to_string(), |()| "ok".into());
        if args.json {
            list.push(json!({"kind": s.kind.to_string(), "offset": s.offset, "bytes": s.bytes, "state": state}));
        } else {
            writeln!(out, "{:<8} {:>12} bytes  {state}", s.kind.to_string(), s.bytes)?;
        }
        first_bad = first_bad.or(result.err());
    }
    // Digests that fit do not make a plan valid.
    let result = first_bad.map_or_else(|| read(&bytes).map(drop), Err);
    if args.json {
        let error = result.as_ref().err().map(ToString::to_string);
        let value = json!({"ok": result.is_ok(), "root": root, "sections": list, "error": error});
        writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
    } else if result.is_ok() {
        writeln!(out, "root     {root}")?;
    }
    result.with_context(|| args.path.display().to_string())
}
