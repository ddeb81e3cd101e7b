//! `graphmend-run bench`: how long loading, the first run and further runs take.

mod profile;
mod trace;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use graphmend::npy::{self, Array};
use graphmend::{DType, Model, Tensor};
use profile::Profile;
use serde::Serialize;

use crate::model::{ModelArgs, RunError, ThreadArgs, Threads, read_inputs, run_once};

/// Greatest number of runs in a trace.
const TRACED: usize = 5;

/// Measure load, first run and steady runs
#[derive(clap::Args)]
#[command(after_help = "\
Inputs that are not given are random: floats from -1 to 1, integers 0 or 1 (see --int-max). Symbolic sizes are their least
(at least 1) unless --dim says otherwise. The file has been read before, so its pages are in memory.

  load    opening: mapping, verifying tables and code, making code executable
  first   the first run after it, with verification of the weights that it uses
  steady  further runs of one session

Examples:
  graphmend-run bench mobilenet.gmc --dim batch=1
  graphmend-run bench silero_vad.gmc --dim batch=1 --fill sr=16000
  graphmend-run bench bert.gmc --dim seq=128 --int-max 30000 --seconds 5 --profile
  graphmend-run bench mobilenet.gmc --trace mobilenet.json

The profile has a line for each kernel call of the plan: the median over the runs. GFLOP/s counts a multiply-add as two
operations; GB/s counts each tensor and weight that the kernel reads or writes once. Both follow from the shapes, and are
not shown where data decides.")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// An input: its name and a .npy file
    #[arg(short, long = "input", value_name = "[NAME=]FILE")]
    inputs: Vec<String>,

    /// Size of a named dimension
    #[arg(long = "dim", value_name = "NAME=N", value_parser = parse_dim)]
    dims: Vec<(String, usize)>,

    /// One value for all elements of an input, such as a sample rate
    #[arg(long = "fill", value_name = "NAME=VALUE", value_parser = parse_fill)]
    fills: Vec<(String, f64)>,

    /// Greatest random integer
    #[arg(long, value_name = "N", default_value_t = 1)]
    int_max: u64,

    #[command(flatten)]
    threads: ThreadArgs,

    /// Time for steady runs
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,

    /// Steady runs, instead of --seconds
    #[arg(long, value_name = "N")]
    runs: Option<usize>,

    /// Times that the model is opened and first run
    #[arg(long, value_name = "N", default_value_t = 15)]
    loads: usize,

    /// Also show which kernels the time goes to
    #[arg(long)]
    profile: bool,

    /// Write a few runs as a trace that Perfetto and Chrome show (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_dim(text: &str) -> Result<(String, usize), String> {
    let (name, n) = text.rsplit_once('=').ok_or("NAME=N is expected")?;
    Ok((name.into(), n.parse().map_err(|_| format!("{n} is no size"))?))
}

fn parse_fill(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.rsplit_once('=').ok_or("NAME=VALUE is expected")?;
    Ok((name.into(), value.parse().map_err(|_| format!("{value} is no number"))?))
}

/// Microseconds of several measurements.
#[derive(Serialize)]
struct Times {
    count: usize,
    min_us: f64,
    median_us: f64,
    p90_us: f64,
}

impl Times {
    /// `times` is not empty.
    fn new(mut times: Vec<Duration>) -> Times {
        times.sort();
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize].as_secs_f64() * 1e6;
        Times { count: times.len(), min_us: at(0.0), median_us: at(0.5), p90_us: at(0.9) }
    }
}

#[derive(Serialize)]
struct Report {
    file_bytes: u64,
    arena_bytes: usize,
    threads: usize,
    load: Times,
    first: Times,
    steady: Times,
    /// Of this process, where the system tells it.
    peak_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<Profile>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.loads == 0 || args.runs == Some(0) || !args.seconds.is_finite() || args.seconds < 0.0 {
        bail!("there must be at least one load and one run");
    }
    let model = args.model.open()?;
    let inputs = make_inputs(&model, args)?;
    let threads = args.threads.start()?;
    let (load, first) = measure_loads(args, &inputs, &threads)?;

    let mut session = threads.session(&model)?;
    run_once(&model, &mut session, &inputs)?;
    let views: Vec<_> = inputs.iter().map(Array::view).collect();
    let (mut steady, begin) = (Vec::new(), Instant::now());
    // A few runs in any case: the first after the warm-up is often not yet typical.
    let enough = |n: usize| args.runs.map_or(n >= 5 && begin.elapsed().as_secs_f64() >= args.seconds, |runs| n >= runs);
    while !enough(steady.len()) {
        let start = Instant::now();
        session.run(black_box(&views)).map_err(|e| RunError::new(&model, e))?;
        steady.push(start.elapsed());
    }
    // Before more than asked for is measured.
    let peak_resident_bytes = peak_resident();
    let profile =
        if args.profile { Some(Profile::of(&model, &inputs, &threads, steady.len().min(1000))?) } else { None };
    if let Some(path) = &args.trace {
        trace::write(path, &model, &inputs, &threads, steady.len().min(TRACED))?;
    }
    let report = Report {
        file_bytes: std::fs::metadata(&args.model.path)?.len(),
        arena_bytes: session.arena_bytes(),
        threads: threads.count(),
        load: Times::new(load),
        first: Times::new(first),
        steady: Times::new(steady),
        peak_resident_bytes,
        profile,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    print(&mut out, &report)
}

/// The greatest resident set of this process so far.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Opens and runs once, again and again.
fn measure_loads(args: &Args, inputs: &[Array], threads: &Threads) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let (mut load, mut first) = (Vec::new(), Vec::new());
    for _ in 0..args.loads {
        let start = Instant::now();
        let model = args.model.open()?;
        load.push(start.elapsed());
        let start = Instant::now();
        let mut session = threads.session(&model)?;
        run_once(&model, &mut session, inputs)?;
        first.push(start.elapsed());
    }
    Ok((load, first))
}

/// The given inputs, and random ones for the others.
fn make_inputs(model: &Model, args: &Args) -> Result<Vec<Array>> {
    let declared: Vec<_> = model.view().inputs().collect();
    let mut sizes: BTreeMap<&str, usize> = args.dims.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let fills: BTreeMap<&str, f64> = args.fills.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    if sizes.len() < args.dims.len() || fills.len() < args.fills.len() {
        bail!("a dimension or an input is given twice");
    }
    for name in sizes.keys() {
        if !declared.iter().any(|t| t.dims().any(|d| d.symbol == *name)) {
            bail!("no input has a dimension named {name}");
        }
    }
    let given = read_inputs(model, &args.inputs)?;
    for (t, array) in declared.iter().zip(&given) {
        let Some(array) = array else { continue };
        for (dim, &n) in t.dims().zip(&array.shape).filter(|(d, _)| !d.symbol.is_empty()) {
            sizes.entry(dim.symbol).or_insert(n);
        }
    }
    for name in fills.keys() {
        if !declared.iter().any(|t| t.name == *name) {
            bail!("the model has no input named {name}");
        }
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let make = |(array, t): (Option<Array>, &Tensor<'_>)| match array {
        Some(array) => Ok(array),
        None => fill(t, &sizes, args.int_max, fills.get(t.name).copied(), &mut random),
    };
    given.into_iter().zip(&declared).map(make).collect()
}

/// An array of one value, or of random ones.
fn fill(
    tensor: &Tensor<'_>,
    sizes: &BTreeMap<&str, usize>,
    int_max: u64,
    value: Option<f64>,
    random: &mut Random,
) -> Result<Array> {
    let least = |lo: i64, hi: i64| usize::try_from(lo.max(1).min(hi)).unwrap_or(1);
    let shape: Vec<usize> =
        tensor.dims().map(|d| sizes.get(d.symbol).copied().unwrap_or_else(|| least(d.lo, d.hi))).collect();
    let count = shape.iter().try_fold(1usize, |a, &n| a.checked_mul(n)).filter(|&n| (n as u64) < 1 << 40);
    let count = count.with_context(|| format!("input {} would have too many elements: {shape:?}", tensor.name))?;
    let mut bytes = Vec::new();
    // A size of the caller's: an error, not the end of the program.
    bytes
        .try_reserve_exact(count * tensor.dtype.size())
        .with_context(|| format!("input {} of shape {shape:?} is more than memory can hold", tensor.name))?;
    for _ in 0..count {
        let float = value.unwrap_or_else(|| random.unit() * 2.0 - 1.0);
        let int = value.map_or_else(|| random.next() % int_max.saturating_add(1).max(1), |v| v as i64 as u64);
        match tensor.dtype {
            DType::F32 => bytes.extend((float as f32).to_le_bytes()),
            DType::F64 => bytes.extend(float.to_le_bytes()),
            DType::BF16 => bytes.extend(&(float as f32).to_le_bytes()[2..]),
            // 0.5 to 1, with either sign.
            DType::F16 if value.is_none() => bytes.extend(((random.next() as u16 & 0x83ff) | 0x3800).to_le_bytes()),
            DType::F16 => bytes.extend(npy::f16_bits(float).to_le_bytes()),
            DType::Bool if value.is_none() => bytes.push((random.next() & 1) as u8),
            DType::Bool => bytes.push(u8::from(float != 0.0)),
            other => bytes.extend(&int.to_le_bytes()[..other.size()]),
        }
    }
    Ok(Array { dtype: tensor.dtype, shape, bytes })
}

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 3) as f64 / (1u64 << 53) as f64
    }
}

/// A time for people.
fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.1} µs"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

fn print(out: &mut impl Write, report: &Report) -> Result<()> {
    let threads = if report.threads == 1 { String::new() } else { format!(", {} threads", report.threads) };
    writeln!(out, "file {} bytes, arena {} bytes{threads}", report.file_bytes, report.arena_bytes)?;
    for (name, t) in [("load", &report.load), ("first", &report.first), ("steady", &report.steady)] {
        let (median, min, p90) = (time(t.median_us), time(t.min_us), time(t.p90_us));
        writeln!(out, "{name:<7} median {median:>10}   min {min:>10}   p90 {p90:>10}   of {}", t.count)?;
    }
    match &report.profile {
        Some(profile) => profile.print(out),
        None => Ok(()),
    }
}
