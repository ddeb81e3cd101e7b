//! `bench --profile`: the time of each kernel call, and what it does in that time.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use graphmend::cache_format::meta::{Debug, Formula, Work};
use graphmend::npy::Array;
use graphmend::{Model, Observe};
use serde::Serialize;

use super::{Times, time};
use crate::model::{RunError, Threads, run_once};

/// Where the time of a run goes.
#[derive(Serialize)]
pub(super) struct Profile {
    /// Kernel calls of the plan, the most expensive first.
    steps: Vec<Line>,
    /// The same by kind of kernel.
    classes: Vec<Class>,
}

/// One kernel call of the plan.
#[derive(Serialize)]
struct Line {
    step: u32,
    kernel: u32,
    #[serde(flatten)]
    what: What,
    calls_per_run: f64,
    us_per_run: f64,
    share: f64,
    #[serde(flatten)]
    rates: Rates,
}

/// What a kernel call is and does. Numbers are those of one call; they are not known where data decides.
#[derive(Clone, Default, Serialize)]
pub(super) struct What {
    /// Name of the kernel.
    pub(super) name: String,
    /// Kind of kernel.
    pub(super) class: String,
    /// The model's nodes that it computes.
    pub(super) nodes: Vec<String>,
    pub(super) ops: Option<i64>,
    pub(super) read_bytes: Option<i64>,
    pub(super) written_bytes: Option<i64>,
    pub(super) units: Option<i64>,
}

/// What was done in a time.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub(super) struct Rates {
    pub(super) gflops: Option<f64>,
    pub(super) gb_per_s: Option<f64>,
}

/// All kernel calls of one kind. Rates are those of the calls whose work is known.
#[derive(Serialize)]
struct Class {
    class: String,
    steps: usize,
    us_per_run: f64,
    share: f64,
    #[serde(flatten)]
    rates: Rates,
}

impl What {
    /// What the call that instruction `step` makes of `kernel` is.
    pub(super) fn of(debug: &Debug, step: u32, kernel: u32, inputs: &[Array]) -> What {
        let dim = |input: u32, axis: u32| {
            let size = inputs.get(input as usize)?.shape.get(axis as usize)?;
            i64::try_from(*size).ok()
        };
        let value = |f: &Option<Formula>| f.as_ref().and_then(|f| f.eval(dim));
        let none = Work::default();
        let work = debug.work.iter().find(|w| w.step == step).unwrap_or(&none);
        What {
            name: debug.kernels.get(kernel as usize).cloned().unwrap_or_default(),
            class: work.class.clone(),
            nodes: work.nodes.clone(),
            ops: value(&work.ops),
            read_bytes: value(&work.read),
            written_bytes: value(&work.written),
            units: value(&work.units),
        }
    }

    fn bytes(&self) -> Option<i64> {
        self.read_bytes?.checked_add(self.written_bytes?)
    }

    /// The rates of `calls` such calls in `us` microseconds.
    pub(super) fn rates(&self, calls: f64, us: f64) -> Rates {
        let rate = |n: Option<i64>| n.filter(|_| us > 0.0).map(|n| n as f64 * calls / us / 1e3);
        Rates { gflops: rate(self.ops).filter(|r| *r > 0.0), gb_per_s: rate(self.bytes()) }
    }

    /// The nodes, or the kernel's name where none are known.
    pub(super) fn title(&self) -> String {
        if self.nodes.is_empty() { self.name.clone() } else { self.nodes.join(" ") }
    }
}

/// Adds up the time of each call, run by run.
#[derive(Default)]
struct Clock {
    start: Option<Instant>,
    by_step: BTreeMap<u32, Seen>,
}

#[derive(Default)]
struct Seen {
    kernel: u32,
    calls: usize,
    /// In the run that goes on.
    now: Duration,
    /// In each finished run.
    runs: Vec<Duration>,
}

impl Observe for Clock {
    fn before(&mut self, _step: u32, _kernel: u32) {
        self.start = Some(Instant::now());
    }

    fn after(&mut self, step: u32, kernel: u32) {
        let time = self.start.take().map_or(Duration::ZERO, |s| s.elapsed());
        let seen = self.by_step.entry(step).or_default();
        seen.kernel = kernel;
        seen.calls += 1;
        seen.now += time;
    }
}

impl Clock {
    fn end_run(&mut self) {
        for seen in self.by_step.values_mut() {
            seen.runs.push(std::mem::take(&mut seen.now));
        }
    }
}

impl Profile {
    /// Of each call the median over `runs` runs.
    pub(super) fn of(model: &Model, inputs: &[Array], threads: &Threads, runs: usize) -> Result<Profile> {
        let mut session = threads.session(model)?;
        run_once(model, &mut session, inputs)?;
        let views: Vec<_> = inputs.iter().map(Array::view).collect();
        let mut clock = Clock::default();
        for _ in 0..runs {
            session.run_observed(&views, &mut clock).map_err(|e| RunError::new(model, e))?;
            clock.end_run();
        }
        let debug = model.debug()?;
        let line = |(step, seen): (u32, Seen)| {
            let what = What::of(&debug, step, seen.kernel, inputs);
            let calls_per_run = seen.calls as f64 / runs as f64;
            let us_per_run = Times::new(seen.runs).median_us;
            let rates = what.rates(calls_per_run, us_per_run);
            Line { step, kernel: seen.kernel, what, calls_per_run, us_per_run, share: 0.0, rates }
        };
        let mut steps: Vec<Line> = clock.by_step.into_iter().map(line).collect();
        let total: f64 = steps.iter().map(|l| l.us_per_run).sum();
        steps.iter_mut().for_each(|l| l.share = l.us_per_run / total.max(1e-9));
        steps.sort_by(|a, b| b.us_per_run.total_cmp(&a.us_per_run));
        let classes = by_class(&steps);
        Ok(Profile { steps, classes })
    }

    /// A table of the kinds of kernels, and one of the calls.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        let number = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.1}"));
        writeln!(out, "\n share         time  GFLOP/s     GB/s  steps  class")?;
        for c in &self.classes {
            let (share, us) = (c.share * 100.0, time(c.us_per_run));
            let (flops, bytes) = (number(c.rates.gflops), number(c.rates.gb_per_s));
            writeln!(out, "{share:5.1}% {us:>12} {flops:>8} {bytes:>8} {:>6}  {}", c.steps, c.class)?;
        }
        writeln!(out, "\n share         time  GFLOP/s     GB/s  calls  units  step  kernel, class, nodes")?;
        for l in &self.steps {
            let (share, us) = (l.share * 100.0, time(l.us_per_run));
            let (flops, bytes) = (number(l.rates.gflops), number(l.rates.gb_per_s));
            let units = l.what.units.map_or("-".into(), |n| n.to_string());
            // A kernel that serves one call has the name of its first node.
            let name = if l.what.nodes.contains(&l.what.name) { "" } else { &l.what.name };
            let (kernel, nodes) = (format!("k{}", l.kernel), l.what.nodes.join(" "));
            let text: Vec<&str> =
                [&*kernel, name, &l.what.class, &nodes].into_iter().filter(|t| !t.is_empty()).collect();
            let (calls, step, text) = (l.calls_per_run, l.step, text.join("  "));
            writeln!(out, "{share:5.1}% {us:>12} {flops:>8} {bytes:>8} {calls:>6.1} {units:>6} {step:>5}  {text}")?;
        }
        Ok(())
    }
}

/// The lines by kind of kernel, the most expensive first.
fn by_class(lines: &[Line]) -> Vec<Class> {
    let mut found: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for l in lines {
        found.entry(&l.what.class).or_default().push(l);
    }
    let class = |(name, lines): (&str, Vec<&Line>)| {
        let rate = |n: fn(&What) -> Option<i64>| {
            let (mut sum, mut us) = (0.0, 0.0);
            for l in &lines {
                if let Some(n) = n(&l.what).filter(|n| *n > 0) {
                    sum += n as f64 * l.calls_per_run;
                    us += l.us_per_run;
                }
            }
            (sum > 0.0 && us > 0.0).then(|| sum / us / 1e3)
        };
        Class {
            class: if name.is_empty() { "other".into() } else { name.into() },
            steps: lines.len(),
            us_per_run: lines.iter().map(|l| l.us_per_run).sum(),
            share: lines.iter().map(|l| l.share).sum(),
            rates: Rates { gflops: rate(|w| w.ops), gb_per_s: rate(What::bytes) },
        }
    };
    let mut classes: Vec<Class> = found.into_iter().map(class).collect();
    classes.sort_by(|a, b| b.us_per_run.total_cmp(&a.us_per_run));
    classes
}

#[cfg(test)]
mod tests {
    use graphmend::DType;
    use graphmend::cache_format::BinOp;
    use graphmend::cache_format::meta::Term;

    use super::*;

    #[test]
    fn work_follows_from_the_shapes_given() {
        let square = Formula(vec![Term::Dim(0, 0), Term::Dim(0, 0), Term::Bin(BinOp::Mul as u16)]);
        let work = Work { step: 3, ops: Some(square), read: Some(Formula(vec![Term::Const(8)])), ..Work::default() };
        let debug = Debug { work: vec![work], ..Debug::default() };
        let input = Array { dtype: DType::U8, shape: vec![30], bytes: vec![0; 30] };
        let what = What::of(&debug, 3, 0, std::slice::from_ref(&input));
        assert_eq!((what.ops, what.read_bytes, what.written_bytes), (Some(900), Some(8), None));
        // 900 operations, twice, in 2 µs; bytes are not known as a whole.
        assert_eq!(what.rates(2.0, 2.0), Rates { gflops: Some(0.9), gb_per_s: None });
        assert_eq!(What::of(&debug, 4, 0, &[input]).ops, None);
    }

    #[test]
    fn classes_add_up_their_lines() {
        let line = |class: &str, ops, us_per_run| Line {
            step: 0,
            kernel: 0,
            what: What { class: class.into(), ops, ..What::default() },
            calls_per_run: 1.0,
            us_per_run,
            share: us_per_run / 10.0,
            rates: Rates::default(),
        };
        let classes = by_class(&[
            line("a", Some(4000), 2.0),
            line("b", None, 5.0),
            line("a", Some(8000), 1.0),
            line("a", None, 2.0),
        ]);
        let seen: Vec<_> = classes.iter().map(|c| (c.class.as_str(), c.steps, c.us_per_run, c.rates.gflops)).collect();
        assert_eq!(seen, [("a", 3, 5.0, Some(4.0)), ("b", 1, 5.0, None)]);
    }
}
