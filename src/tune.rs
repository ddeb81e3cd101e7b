//! Schedules chosen by measurement (feature `host`).
//!
//! Packing chooses the schedule of each contraction by estimates. On the machine that a model is packed for, measurement is
//! better: the model is packed with each schedule that is worth trying and run, every kernel is timed where it stands in the
//! model, and the fastest ones are taken. What was measured is kept, by what a kernel computes: other models profit from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::compiler::pack::choices::{Choices, Tunable};
use crate::compiler::pack::{self, Options, Packed, Progress};
use crate::host::{self, HostError};
use crate::npy::Array;
use crate::{DType, Model, Observe, OpenOptions, Trust, WeightCheck};

/// The file in the cache directory that measured schedules are kept in.
const FILE: &str = "schedules.json";

/// Time for the runs with one choice of schedules.
const SECONDS: Duration = Duration::from_millis(400);

/// How much faster than the recommended schedule another one must be.
const FASTER: f64 = 0.97;

/// What was measured by one version of this program.
#[derive(Default, Serialize, Deserialize)]
struct Known {
    version: String,
    choices: Choices,
}

impl Known {
    /// What is kept in a directory; nothing if it is another version's, or cannot be read.
    fn read(dir: &Path) -> Known {
        let text = fs::read_to_string(dir.join(FILE)).unwrap_or_default();
        let own = Known { version: env!("CARGO_PKG_VERSION").into(), ..Known::default() };
        serde_json::from_str(&text).ok().filter(|k: &Known| k.version == own.version).unwrap_or(own)
    }

    /// Adds them to what another process may have written since.
    fn write(&self, dir: &Path) -> Result<(), HostError> {
        let mut all = Known::read(dir);
        all.choices.extend(self.choices.iter().map(|(key, n)| (key.clone(), *n)));
        let text = serde_json::to_string_pretty(&all).expect("strings and numbers");
        host::store(dir, &dir.join(FILE), text.as_bytes()).map_err(|e| HostError::Io(dir.join(FILE), e))
    }
}

/// What tuning did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Tuned {
    /// Kernels whose schedule could be chosen.
    pub kernels: usize,
    /// Those of them that were measured, not known from before.
    pub measured: usize,
    /// Those that have another schedule than the estimates recommend.
    pub changed: usize,
}

/// Packs a model with the schedules that are the fastest on this machine; `dir` keeps what was measured.
///
/// # Errors
/// [`HostError::Untunable`] if the target is not this machine's processor, an input has an open dimension or a run with inputs
/// of halves (integers: zeros) fails; else see [`HostError`].
pub fn pack(model: &Path, options: &Options, dir: &Path, progress: Progress<'_>) -> Result<(Packed, Tuned), HostError> {
    let here = crate::targets::native().ok_or(HostError::UnknownMachine)?;
    if here.arch != options.target.arch || options.target.features.0 & !here.features.0 != 0 {
        return Err(HostError::Untunable(format!("target '{}' is not this machine's processor", options.target.name)));
    }
    let loaded = crate::compiler::onnx::load::load(model).map_err(HostError::Pack)?;
    let module = crate::compiler::import::import(loaded.model).map_err(HostError::Pack)?;
    let mut known = Known::read(dir);
    let make = |choices: &Choices, progress: Progress<'_>| {
        let options = Options { choices: Some(choices.clone()), ..options.clone() };
        pack::pack(module.clone(), loaded.content_digest, &options, progress).map_err(HostError::Pack)
    };
    let first = make(&known.choices, progress)?;
    let open: BTreeMap<&str, &Tunable> = first
        .tunables
        .iter()
        .filter(|t| known.choices.get(&t.key).is_none_or(|n| *n >= t.choices))
        .map(|t| (t.key.as_str(), t))
        .collect();
    let most = open.values().map(|t| t.choices).max().unwrap_or(0);
    // By key, the time with each choice.
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for n in 0..most {
        progress("measuring schedules", n, most);
        let mut choices = known.choices.clone();
        choices.extend(open.values().map(|t| (t.key.clone(), n.min(t.choices - 1))));
        let packed = make(&choices, &mut |_, _, _| {})?;
        let by_kernel = measure(&packed.bytes)?;
        // The number of a kernel changes with the choices, its key does not. One that has fewer is not measured again.
        for t in packed.tunables.iter().filter(|t| open.contains_key(t.key.as_str()) && n < t.choices) {
            times.entry(t.key.clone()).or_default().push(by_kernel.get(&t.kernel).copied().unwrap_or(f64::INFINITY));
        }
    }
    for (key, times) in &times {
        let best = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        let choice = if times[best] < FASTER * times[0] { best } else { 0 };
        known.choices.insert(key.clone(), choice);
    }
    let keys: BTreeSet<&String> = first.tunables.iter().map(|t| &t.key).collect();
    let changed = keys.iter().filter(|k| known.choices.get(**k).is_some_and(|n| *n > 0)).count();
    let tuned = Tuned { kernels: keys.len(), measured: times.len(), changed };
    if times.is_empty() {
        return Ok((first, tuned));
    }
    if let Err(e) = known.write(dir) {
        log::warn!("measured schedules are not kept: {e}");
    }
    Ok((make(&known.choices, progress)?, tuned))
}

/// The least time of each step that a kernel runs in, added up by kernel.
#[derive(Default)]
struct Clock {
    start: Option<Instant>,
    steps: BTreeMap<u32, (u32, Duration, Duration)>,
}

impl Observe for Clock {
    fn before(&mut self, _step: u32, _kernel: u32) {
        self.start = Some(Instant::now());
    }

    fn after(&mut self, step: u32, kernel: u32) {
        let time = self.start.take().map_or(Duration::ZERO, |s| s.elapsed());
        self.steps.entry(step).or_insert((kernel, Duration::ZERO, Duration::MAX)).1 += time;
    }
}

impl Clock {
    fn end_run(&mut self) {
        for (_, now, least) in self.steps.values_mut() {
            *least = (*least).min(std::mem::take(now));
        }
    }
}

/// Seconds that each kernel of a packed model takes in a run.
fn measure(bytes: &[u8]) -> Result<BTreeMap<u32, f64>, HostError> {
    let options = OpenOptions { weights: WeightCheck::Skip, ..OpenOptions::new(Trust::Unsigned) };
    let model = options.from_bytes(bytes).map_err(HostError::Open)?;
    let inputs = inputs(&model)?;
    let views: Vec<_> = inputs.iter().map(Array::view).collect();
    let failed =
        |e| HostError::Untunable(format!("a run with inputs of halves and zeros failed: {}", model.explain(e)));
    let mut session = model.session().map_err(failed)?;
    session.run(&views).map_err(failed)?;
    let (mut clock, begin, mut runs) = (Clock::default(), Instant::now(), 0);
    while runs < 5 || begin.elapsed() < SECONDS {
        session.run_observed(&views, &mut clock).map_err(failed)?;
        clock.end_run();
        runs += 1;
    }
    let mut out = BTreeMap::new();
    for (kernel, _, least) in clock.steps.values() {
        *out.entry(*kernel).or_default() += least.as_secs_f64();
    }
    Ok(out)
}

/// Inputs of the declared shapes: halves, and zeros for what is not `F32`.
fn inputs(model: &Model) -> Result<Vec<Array>, HostError> {
    let make = |t: crate::Tensor<'_>| {
        if let Some(dim) = t.dims().find(|d| d.lo != d.hi) {
            let text = format!(
                "input '{}' has the open dimension '{}': its size is to be given (--shape, --dim)",
                t.name, dim.symbol
            );
            return Err(HostError::Untunable(text));
        }
        let mut array = Array::zeros(t.dtype, &t.dims().map(|d| d.lo as usize).collect::<Vec<_>>());
        if array.dtype == DType::F32 {
            array.bytes.chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&0.5f32.to_le_bytes()));
        }
        Ok(array)
    };
    model.view().inputs().map(make).collect()
}
