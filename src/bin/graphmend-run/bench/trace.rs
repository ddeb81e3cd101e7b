//! `bench --trace`: a few runs as trace events, the JSON that Perfetto and Chrome show.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use graphmend::npy::Array;
use graphmend::{Model, Observe};
use serde_json::{Value, json};

use super::profile::What;
use crate::model::{RunError, Threads, run_once};

/// The calls of one run: instruction, kernel, when it began and ended.
#[derive(Default)]
struct Calls {
    start: Option<Instant>,
    seen: Vec<(u32, u32, Instant, Instant)>,
}

impl Observe for Calls {
    fn before(&mut self, _step: u32, _kernel: u32) {
        self.start = Some(Instant::now());
    }

    fn after(&mut self, step: u32, kernel: u32) {
        let end = Instant::now();
        self.seen.push((step, kernel, self.start.take().unwrap_or(end), end));
    }
}

/// Runs `runs` times and writes what happened when.
pub(super) fn write(path: &Path, model: &Model, inputs: &[Array], threads: &Threads, runs: usize) -> Result<()> {
    let mut session = threads.session(model)?;
    run_once(model, &mut session, inputs)?;
    let views: Vec<_> = inputs.iter().map(Array::view).collect();
    let mut seen = vec![];
    let zero = Instant::now();
    for _ in 0..runs {
        let mut calls = Calls::default();
        let start = Instant::now();
        session.run_observed(&views, &mut calls).map_err(|e| RunError::new(model, e))?;
        seen.push((start, Instant::now(), calls.seen));
    }

    let debug = model.debug()?;
    // Whole nanoseconds, so that what lies within another slice does so in the file too.
    let us = |at: Instant| at.duration_since(zero).as_nanos() as f64 / 1e3;
    let slice = |name: &str, category: &str, start: Instant, end: Instant, args: Value| {
        let (ts, dur) = (us(start), end.duration_since(start).as_nanos() as f64 / 1e3);
        json!({ "ph": "X", "pid": 1, "tid": 1, "name": name, "cat": category, "ts": ts, "dur": dur, "args": args })
    };
    let mut events = vec![
        json!({ "ph": "M", "pid": 1, "name": "process_name", "args": { "name": "graphmend-run" } }),
        json!({ "ph": "M", "pid": 1, "tid": 1, "name": "thread_name", "args": { "name": "kernel calls" } }),
    ];
    for (k, (start, end, calls)) in seen.into_iter().enumerate() {
        events.push(slice(&format!("run {}", k + 1), "run", start, end, json!({})));
        for (step, kernel, start, end) in calls {
            let what = What::of(&debug, step, kernel, inputs);
            let rates = what.rates(1.0, end.duration_since(start).as_secs_f64() * 1e6);
            let mut args = json!({ "step": step, "kernel": format!("k{kernel} {}", what.name) });
            let known = [
                ("nodes", (!what.nodes.is_empty()).then(|| what.nodes.join(" ").into())),
                ("operations", what.ops.map(Value::from)),
                ("bytes read", what.read_bytes.map(Value::from)),
                ("bytes written", what.written_bytes.map(Value::from)),
                ("units", what.units.map(Value::from)),
                ("GFLOP/s", rates.gflops.map(Value::from)),
                ("GB/s", rates.gb_per_s.map(Value::from)),
            ];
            known.into_iter().for_each(|(name, value)| value.into_iter().for_each(|v| args[name] = v));
            events.push(slice(&what.title(), &what.class, start, end, args));
        }
    }
    let trace = json!({ "displayTimeUnit": "ns", "traceEvents": events });
    let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, &trace)?;
    out.flush().with_context(|| path.display().to_string())
}
