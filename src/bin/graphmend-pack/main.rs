//! `graphmend-pack`: compiles an ONNX model into a cache file.

mod link;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use graphmend::compiler::expand::Dim;
use graphmend::compiler::layout::Layout;
use graphmend::compiler::pack::{self, Emit, Options, Packed};
use graphmend::compiler::source::toolchain::Sizes;
use graphmend::{compiler, host, tune};
use indicatif::{ProgressBar, ProgressStyle};
use link::Link;

/// Exit statuses besides 0; clap itself exits with 2 for wrong usage.
const ERROR: u8 = 1;
const REFUSED: u8 = 3;
#[cfg(feature = "check")]
const DIFFERS: u8 = 4;
#[cfg(feature = "check")]
const NOT_COMPARED: u8 = 5;

#[derive(Parser)]
#[command(
    name = "graphmend-pack",
    version,
    about = "Compiles an ONNX model into one file of native kernels that graphmend-run maps and runs",
    after_help = "\
Exit status: 0 success, 1 error, 2 wrong usage, 3 the model needs something that is not supported (all of it is named);
with --check also 4 an output differs from tract's, 5 nothing could be compared. The packed model is written all the same.

Examples:
  graphmend-pack silero_vad.onnx                       writes silero_vad.gmc for this machine
  graphmend-pack mobilenet.onnx --target rpi4 -o mobilenet.gmc
  graphmend-pack bert.onnx --dim batch=1 --dim seq=1..512
  graphmend-pack detector.onnx --shape 1x3x640x640     one input, of this shape only
  graphmend-pack model.onnx --emit fused --emit kernels=kernels.txt
  graphmend-pack kws.onnx --target cortex-m4f --emit c -o firmware/kws     writes kws.c, kws.h and kws.rs there
  graphmend-pack kws.onnx --target cortex-m33 --emit staticlib             writes libkws.a, kws.h and kws.rs
  graphmend-pack --list-targets"
)]
struct Cli {
    /// The ONNX model
    #[arg(required_unless_present = "list_targets")]
    model: Option<PathBuf>,

    /// Where to write the packed model (default: the model's name with .gmc, in the current folder); with --emit c, object or
    /// staticlib a folder, or a path whose last part is what all names begin with
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The processor to pack for: native or a name that --list-targets prints
    #[arg(short, long, value_name = "NAME", default_value = "native")]
    target: String,

    /// Print the targets and what they are
    #[arg(long)]
    list_targets: bool,

    /// Bind a symbolic dimension to a size, or bound it: NAME=N or NAME=A..B (a dimension without a name is INPUT.AXIS)
    #[arg(short, long, value_name = "NAME=N|A..B", value_parser = parse_dim)]
    dim: Vec<(String, Dim)>,

    /// Give an input a shape, which binds its symbolic dimensions; the name may be left out where there is one input
    #[arg(short, long, value_name = "[NAME=]1x3x224x224", value_parser = parse_shape)]
    shape: Vec<(String, Vec<u64>)>,

    /// Most nodes that writing out loops may make; a loop that would make more stays a native loop
    #[arg(long, value_name = "NODES", default_value_t = graphmend::compiler::mend::UNROLL)]
    unroll: usize,

    /// In which order the axes of tensors lie in memory: as suits the target, as the model has them, or as convolutions ask
    #[arg(long, value_name = "auto|keep|channels-last", default_value = "auto")]
    layout: Layout,

    /// Print an intermediate form, or write it to a file; or make C source, an object or a static library instead of a
    /// packed model
    #[arg(long, value_name = "STAGE[=FILE]", value_parser = parse_emit)]
    emit: Vec<(Stage, Option<PathBuf>)>,

    /// The C compiler for --emit object and staticlib and for 32-bit Arm, with further flags if need be (default: where there is
    /// a code generator for the target, none; else $CC, else one for the target)
    #[arg(long, value_name = "PROGRAM")]
    cc: Option<String>,

    /// Measure the schedules of matrix products and convolutions on this machine and take the fastest; what was measured is kept
    /// in the cache folder ($GRAPHMEND_CACHE_DIR)
    #[arg(long)]
    tune: bool,

    /// Write the mended model as ONNX, for any other engine
    #[arg(long, value_name = "FILE")]
    emit_onnx: Option<PathBuf>,

    /// Print what became of each control-flow split
    #[arg(long)]
    report: bool,

    /// Run the mended model in tract on random inputs and compare with the packed one (needs feature `check`)
    #[arg(long)]
    check: bool,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,

    /// Print nothing but errors
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    quiet: bool,

    /// Print more (repeat for debug messages)
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Debug)]
enum Stage {
    /// The model's nodes and constants as read
    Onnx,
    /// The graph as imported
    Graph,
    /// The graph without control flow
    Mended,
    /// Tensor expressions after fusion
    Fused,
    /// The plan
    Plan,
    /// Kernels in kernel IR
    Kernels,
    /// Kernels as machine code
    Asm,
    /// Instead of a packed model: C source with a header and a Rust module
    C,
    /// Instead of a packed model: an object, likewise
    Object,
    /// Instead of a packed model: a static library, likewise
    Staticlib,
}

impl Stage {
    /// The intermediate form that it is, if it is one.
    fn emit(self) -> Option<Emit> {
        Some(match self {
            Stage::Onnx => Emit::Onnx,
            Stage::Graph => Emit::Graph,
            Stage::Mended => Emit::Mended,
            Stage::Fused => Emit::Fused,
            Stage::Plan => Emit::Plan,
            Stage::Kernels => Emit::Kernels,
            Stage::Asm => Emit::Asm,
            Stage::C | Stage::Object | Stage::Staticlib => return None,
        })
    }
}

fn parse_dim(text: &str) -> Result<(String, Dim), String> {
    let (name, size) = text.rsplit_once('=').ok_or("NAME=N or NAME=A..B is needed")?;
    let number = |t: &str| t.parse::<u64>().map_err(|_| format!("'{t}' is no size"));
    let dim = match size.split_once("..") {
        None => Dim::Fixed(number(size)?),
        Some((a, b)) => {
            let (a, b) = (number(a)?, number(b.trim_start_matches('='))?);
            if a > b {
                return Err(format!("{a} is greater than {b}"));
            }
            Dim::Range(a, b)
        }
    };
    match dim {
        Dim::Fixed(n) | Dim::Range(_, n) if i64::try_from(n).is_err() => Err(format!("{n} is too large")),
        _ => Ok((name.to_owned(), dim)),
    }
}

fn parse_shape(text: &str) -> Result<(String, Vec<u64>), String> {
    let (name, shape) = text.rsplit_once('=').unwrap_or(("", text));
    let size = |t: &str| match t.trim().parse::<u64>() {
        Ok(n) if i64::try_from(n).is_ok() => Ok(n),
        _ => Err(format!("'{t}' is no size: a shape is sizes with an x or a comma between them, as 1x3x224x224")),
    };
    Ok((name.to_owned(), shape.split(['x', ',']).map(size).collect::<Result<_, _>>()?))
}

fn parse_emit(text: &str) -> Result<(Stage, Option<PathBuf>), String> {
    let (stage, file) = match text.split_once('=') {
        Some((s, f)) => (s, Some(PathBuf::from(f))),
        None => (text, None),
    };
    let names = || Stage::value_variants().iter().filter_map(Stage::to_possible_value);
    let stage = Stage::from_str(stage, true).map_err(|_| {
        let names: Vec<String> = names().map(|v| v.get_name().to_owned()).collect();
        format!("there is no stage '{stage}', but {}", names.join(", "))
    })?;
    match file {
        Some(file) if file.as_os_str().is_empty() => Err("the file has no name".into()),
        file => Ok((stage, file)),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = match cli.verbose {
        // tract warns of every model with a newer operator set.
        0 => "warn,tract=error",
        1 => "info",
        _ => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    match run(&cli) {
        Ok(status) => status,
        Err(error) => {
            let refused =
                error.downcast_ref::<compiler::error::Error>().is_some_and(compiler::error::Error::is_refusal);
            if is_broken_pipe(&error) {
                // The reader of a pipe has gone (`graphmend-pack --list-targets | head`): nobody to tell.
                return ExitCode::SUCCESS;
            }
            if cli.json {
                let message = format!("{error:#}");
                let status = if refused { "refused" } else { "error" };
                // Standard output may be what failed.
                let _ = writeln!(io::stdout(), "{}", serde_json::json!({ "status": status, "message": message }));
            }
            eprintln!("graphmend-pack: {error:#}");
            ExitCode::from(if refused { REFUSED } else { ERROR })
        }
    }
}

/// Whether standard output has lost its reader. Errors of files have a context, their path.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().len() == 1 && error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn run(cli: &Cli) -> Result<ExitCode> {
    if cli.list_targets {
        list_targets(cli.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    #[cfg(not(feature = "check"))]
    if cli.check {
        // Before the work of packing, not after it.
        bail!(NO_CHECK);
    }
    if cli.tune && cli.emit.iter().any(|(stage, _)| stage.emit().is_none()) {
        bail!("--tune measures on this machine, source is for another one");
    }
    let Some(model) = &cli.model else { bail!("no model is given") };
    let dims: BTreeMap<String, Dim> = cli.dim.iter().cloned().collect();
    if dims.len() < cli.dim.len() {
        bail!("a dimension is given twice");
    }
    let links = cli.emit.iter().any(|(stage, _)| stage.emit().is_none());
    let cpu = if links { host::source_target(Some(&cli.target))? } else { host::target(Some(&cli.target))? };
    let mut options = Options::new(cpu);
    options.dims = dims;
    options.shapes = cli.shape.iter().cloned().collect();
    if options.shapes.len() < cli.shape.len() {
        bail!("the shape of an input is given twice");
    }
    options.unroll = cli.unroll;
    options.layout = cli.layout;
    options.cc = link::asked_compiler(cli);
    options.emit = cli.emit.iter().filter_map(|(s, _)| s.emit()).collect();
    let link = Link::of(cli, model, &cpu)?;
    if let Some(link) = &link {
        options.product = link.product();
    }
    let outputs = match (&link, &cli.output) {
        (Some(link), _) => link.files(),
        (None, Some(path)) => vec![path.clone()],
        (None, None) => {
            vec![PathBuf::from(model.file_name().context("the model's path names no file")?).with_extension("gmc")]
        }
    };
    check_outputs(cli, model, &outputs)?;
    let (packed, tuned) = {
        let bar = (!cli.quiet && !cli.json && io::stderr().is_terminal()).then(progress_bar);
        let mut tell = |what: &str, done: usize, of: usize| {
            if let Some(bar) = &bar {
                bar.set_message(what.to_owned());
                bar.set_length(of as u64);
                bar.set_position(done as u64);
            }
        };
        let packed = match cli.tune {
            false => compiler::pack_file(model, &options, &mut tell).map(|packed| (packed, None)).map_err(Into::into),
            true => match tune::pack(model, &options, &host::cache_dir(), &mut tell) {
                Ok((packed, tuned)) => Ok((packed, Some(tuned))),
                // A model that is refused has an exit status of its own.
                Err(host::HostError::Pack(e)) => Err(anyhow::Error::from(e)),
                Err(e) => Err(e.into()),
            },
        };
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        packed?
    };
    let sizes = match (&link, &packed.source) {
        (Some(link), Some(source)) => link.write(source)?,
        _ => {
            write_whole(&outputs[0], &packed.bytes)?;
            None
        }
    };
    for (stage, file) in &cli.emit {
        let Some(emit) = stage.emit() else { continue };
        let text = packed.emitted.get(&emit).map_or("", String::as_str);
        match file {
            Some(path) => write_whole(path, text.as_bytes())?,
            None => say(text)?,
        }
    }
    if let Some(path) = &cli.emit_onnx {
        compiler::onnx::write::write_file(&packed.mended, path)?;
    }
    let checked = if cli.check { Some(check(&packed)?) } else { None };
    if cli.json {
        let answer = Answer {
            status: checked.as_ref().map_or("ok", |c| c.status),
            message: checked.as_ref().map(|c| c.message.as_str()),
            file: outputs[0].display().to_string(),
            sizes: sizes.as_ref(),
            tuned: tuned.as_ref(),
            summary: &packed.summary,
            report: &packed.report,
        };
        say(&format!("{}\n", serde_json::to_string(&answer)?))?;
    } else if !cli.quiet {
        let mut text = summary(&outputs, &packed);
        if let Some(t) = tuned {
            text += &format!(
                "schedules {} of {} kernels measured, {} differ from what was estimated\n",
                t.measured, t.kernels, t.changed
            );
        }
        text += &sizes.as_ref().map_or(String::new(), |s| link::report(s, packed.summary.arena_grows));
        if cli.report {
            text += &format!("\n{}", packed.report);
        }
        if let Some(checked) = checked.as_ref().filter(|c| c.exit == 0) {
            text += &format!("check     {}\n", checked.message);
        }
        // What is redirected into a file is the form that was asked for.
        match emits_to_stdout(cli) {
            true => eprint!("{text}"),
            false => say(&text)?,
        }
    }
    let Some(checked) = checked else { return Ok(ExitCode::SUCCESS) };
    if checked.exit != 0 {
        eprintln!("graphmend-pack: --check: {}", checked.message);
    }
    Ok(ExitCode::from(checked.exit))
}

/// Prints. Where the reader has gone (`graphmend-pack … | head`), there is nobody to tell, and the work goes on.
fn say(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Is an intermediate form printed?
fn emits_to_stdout(cli: &Cli) -> bool {
    cli.emit.iter().any(|(stage, file)| file.is_none() && stage.emit().is_some())
}

/// Checks, before the work of packing, that no output would overwrite the model or another output.
fn check_outputs(cli: &Cli, model: &Path, outputs: &[PathBuf]) -> Result<()> {
    if cli.json && emits_to_stdout(cli) {
        bail!("--json and --emit would both print: name a file, --emit STAGE=FILE");
    }
    let emitted = cli.emit.iter().filter_map(|(_, file)| file.as_deref());
    let mut taken = vec![real(model)];
    for path in outputs.iter().map(PathBuf::as_path).chain(emitted).chain(cli.emit_onnx.as_deref()) {
        if path == Path::new("-") {
            bail!("-: standard output has the summary: name a file (with --quiet, /dev/stdout is one)");
        }
        let at = real(path);
        if at == taken[0] {
            bail!("{} would overwrite the model", path.display());
        }
        // Devices and pipes take more than one.
        if taken.contains(&at) && (path.is_file() || !path.exists()) {
            bail!("{}: two outputs go to one file", path.display());
        }
        taken.push(at);
    }
    Ok(())
}

/// What came of `--check`.
struct Checked {
    status: &'static str,
    exit: u8,
    message: String,
}

#[cfg(feature = "check")]
fn check(packed: &Packed) -> Result<Checked> {
    Ok(Checked::of(compiler::check::check(packed)?))
}

#[cfg(feature = "check")]
impl Checked {
    fn of(outcome: compiler::check::Outcome) -> Checked {
        use compiler::check::Outcome;
        match outcome {
            Outcome::Agrees { largest, runs, left_out, inputs } => {
                let left_out = match left_out {
                    0 => String::new(),
                    n => format!(" (the packed model did not take the inputs of {n} more)"),
                };
                let message = format!(
                    "agrees with tract in {runs} runs{left_out} with inputs {inputs}; largest difference {largest:.1e} of \
                     the largest element"
                );
                Checked { status: "ok", exit: 0, message }
            }
            Outcome::Differs(what) => {
                Checked { status: "differs", exit: DIFFERS, message: format!("differs from tract: {what}") }
            }
            Outcome::NotCompared(why) => {
                Checked { status: "not compared", exit: NOT_COMPARED, message: format!("nothing was compared: {why}") }
            }
        }
    }
}

#[cfg(not(feature = "check"))]
fn check(_: &Packed) -> Result<Checked> {
    bail!(NO_CHECK)
}

#[cfg(not(feature = "check"))]
const NO_CHECK: &str = "--check: built without the check feature: cargo install --path . --features check";

#[derive(serde::Serialize)]
struct Answer<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    /// A name that is not Unicode is shown as well as can be.
    file: String,
    /// What an object takes of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<&'a Sizes>,
    /// What measuring schedules did.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuned: Option<&'a tune::Tuned>,
    summary: &'a pack::Summary,
    report: &'a compiler::mend::Report,
}

/// The file that a path leads to, through links; of one that is not there yet, where it will be.
fn real(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// Writes beside the file and renames: a failed run leaves the old file or none. What is not a file (a device, a pipe) is
/// written to as it is.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let at = real(path);
    if at.exists() && !at.is_file() {
        return fs::write(&at, bytes).with_context(|| path.display().to_string());
    }
    let mut name = at.file_name().unwrap_or_default().to_owned();
    // Another process may write the same file.
    name.push(format!(".{}.part", std::process::id()));
    let part = at.with_file_name(name);
    let done = fs::write(&part, bytes).and_then(|()| fs::rename(&part, &at));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done.with_context(|| path.display().to_string())
}

fn progress_bar() -> ProgressBar {
    let style =
        ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

fn summary(outputs: &[PathBuf], packed: &Packed) -> String {
    let s = &packed.summary;
    let names: Vec<String> = outputs.iter().map(|path| path.display().to_string()).collect();
    // Of source, the compiler that is to come tells the size.
    let (size, code) = match packed.source {
        Some(_) => (String::new(), String::new()),
        None => (format!(" {}", bytes(s.file_bytes as u64)), format!("code      {}\n", bytes(s.code_bytes as u64))),
    };
    format!(
        "{} {size} for {}\n\
         splits    {} found, {} leave the plan{}\n\
         kernels   {} for {} calls a run; fused away: {} (of {} nodes); layout changes: {}\n\
         {code}\
         weights   {}\n\
         arena     {}{} (no plan needs less than {})\n",
        names.join(" "),
        s.target,
        s.splits_before,
        s.splits_after,
        match s.splits.within.all.total {
            0 => String::new(),
            1 => "; 1 stays within it as a native choice or loop".to_owned(),
            n => format!("; {n} stay within it as native choices or loops"),
        },
        s.kernels,
        s.dispatches,
        s.fused_away,
        s.nodes,
        s.layout_changes,
        bytes(s.weight_bytes as u64),
        bytes(s.arena_bytes),
        if s.arena_grows { ", and what sizes known only in a run take" } else { "" },
        bytes(s.arena_floor),
    )
}

fn bytes(n: u64) -> String {
    indicatif::BinaryBytes(n).to_string()
}

fn list_targets(json: bool) -> Result<()> {
    #[derive(serde::Serialize)]
    struct Line {
        name: &'static str,
        arch: &'static str,
        features: String,
        description: &'static str,
    }
    let lines: Vec<Line> = host::targets()
        .map(|cpu| Line {
            name: cpu.name,
            arch: cpu.arch.name(),
            features: cpu.features.display(cpu.arch).to_string(),
            description: cpu.description,
        })
        .collect();
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&lines)?)?;
        return Ok(());
    }
    for l in lines {
        writeln!(out, "{:<14} {:<8} {}", l.name, l.arch, l.description)?;
    }
    Ok(())
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;
    use graphmend::compiler::check::Outcome;

    #[test]
    fn each_outcome_of_a_check_has_its_status() {
        let agrees = Outcome::Agrees { largest: 2e-7, runs: 3, left_out: 1, inputs: "x [2, 4]".into() };
        let cases = [
            (
                agrees,
                0,
                "ok",
                "agrees with tract in 3 runs (the packed model did not take the inputs of 1 more) with inputs x [2, 4]; \
                 largest difference 2.0e-7 of the largest element",
            ),
            (Outcome::Differs("output 'y' …".into()), 4, "differs", "differs from tract: output 'y' …"),
            (Outcome::NotCompared("tract …".into()), 5, "not compared", "nothing was compared: tract …"),
        ];
        for (outcome, exit, status, message) in cases {
            let checked = Checked::of(outcome);
            assert_eq!((checked.exit, checked.status, checked.message.as_str()), (exit, status, message));
        }
    }
}
