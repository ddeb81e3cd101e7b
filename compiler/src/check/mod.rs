//! Comparison with another engine: the mended model, written as ONNX, runs in tract on random inputs, and the packed
//! model must give the same.
//!
//! tract reads little control flow; the mended model has little left. Every symbolic dimension is bound to a small size
//! within its bounds, all of them to the same one, the first at which the packed model takes all inputs that are tried.

mod conditions;
mod data;
mod guard;
mod tract;

use std::ops::Range;
use std::time::{Duration, Instant};

use graphmend_runtime::{Dim, Model, Trust};
use prost::Message;

use crate::error::{Error, Result, Stage};
use crate::graph::TensorData;
use crate::onnx::write;
use crate::pack::Packed;
use data::{Input, Random};

/// Sizes that open dimensions are tried at: small first, then what strided and windowed models need at least.
const SIZES: [i64; 8] = [2, 1, 3, 5, 16, 64, 256, 1024];
/// Runs at the size that works, each with other inputs; more where the model asks for more values of an input.
const RUNS: usize = 3;
/// What integers are drawn from, in the order of trial until both engines run: they may be indices, which are to lie within a
/// small axis, or divisors, or both.
const INTEGERS: [Range<i64>; 5] = [0..4, 1..3, 0..2, 1..2, 0..1];
/// What an element may differ by, relative to itself. The engines add up in different orders; this is what rounding
/// leaves of single precision where a model takes differences of large sums, such as a variance as the mean of squares
/// less the square of the mean.
const RELATIVE: f64 = 1e-3;
/// What an element may differ by, relative to the largest of its tensor, for elements that nearly cancel.
const ABSOLUTE: f64 = 1e-4;
/// Both for tensors of 16-bit floats, which hold three digits at most.
const HALF: f64 = 1e-2;
/// Tensors with no larger element are compared as if they had one: nothing is relative to zero.
const SMALLEST: f64 = 1e-6;

/// How long tract may take for all of it.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a comparison found.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// All outputs of all runs are equal within the tolerance.
    Agrees {
        /// The largest difference, relative to the largest element of its output.
        largest: f64,
        /// Runs that were compared.
        runs: usize,
        /// Runs that were not, since the packed model did not take their inputs.
        left_out: usize,
        /// The inputs' names and sizes.
        inputs: String,
    },
    /// An output differs: its name, its worst element and both values. tract may be the one that is wrong: it is for
    /// `Celu`, `SpaceToDepth` in mode CRD, reverse recurrent layers, windowed attention, softmax over nothing but -inf.
    Differs(String),
    /// Nothing was compared: what tract said, or why the packed model took none of the inputs.
    NotCompared(String),
}

/// How far an element may be off.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
struct Tolerance {
    /// Relative to the element.
    relative: f64,
    /// Relative to the largest of its tensor.
    absolute: f64,
}

impl Tolerance {
    const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };
    const SINGLE: Tolerance = Tolerance { relative: RELATIVE, absolute: ABSOLUTE };
    const HALF: Tolerance = Tolerance { relative: HALF, absolute: HALF };
}

/// An output's elements.
struct Output {
    shape: Vec<usize>,
    values: Vec<f64>,
    tolerance: Tolerance,
}

/// Compares a packed model with what tract makes of its mended form.
///
/// tract runs on a thread of its own, on which panics are caught and not printed (a panic hook is installed for this,
/// which leaves other threads to the hook before it), and which is given up when it takes longer than ten minutes.
///
/// # Errors
/// When the packed model cannot be opened or its outputs cannot be read.
pub fn check(packed: &Packed) -> Result<Outcome> {
    let failed = |e: &dyn std::fmt::Display| Error::internal(Stage::Check, e.to_string());
    let model = Model::from_bytes(&packed.bytes, Trust::Unsigned).map_err(|e| failed(&e))?;
    let mended = write::to_model(&packed.mended)?.encode_to_vec();
    let conditions = conditions::of(&packed.mended);
    let integers = model.view().inputs().any(|i| is_integer(i.dtype));
    let began = Instant::now();
    // What tract says is worth more than that one range does not suit the model.
    let (mut ours, mut theirs) = (None, None);
    for range in &INTEGERS[..if integers { INTEGERS.len() } else { 1 }] {
        match runs(&model, &conditions, range)? {
            Err(reason) => {
                ours.get_or_insert(reason);
            }
            Ok(Runs { inputs, outputs, left_out }) => {
                let (mended, given) = (mended.clone(), inputs.clone());
                match guard::within(PATIENCE.saturating_sub(began.elapsed()), move || tract::run(&mended, &given)) {
                    Ok(theirs) => return Ok(outcome(&model, &inputs, left_out, &outputs, &theirs)),
                    Err(reason) => {
                        theirs.get_or_insert(format!("tract refused the model: {reason}"));
                    }
                }
            }
        }
        if began.elapsed() >= PATIENCE {
            break;
        }
    }
    Ok(Outcome::NotCompared(theirs.or(ours).unwrap_or_default()))
}

fn is_integer(dtype: graphmend_runtime::DType) -> bool {
    let dtype = data::compiler_type(dtype);
    !dtype.is_float() && dtype != crate::dtype::DType::Bool
}

/// Compares all outputs of all runs.
fn outcome(model: &Model, inputs: &[Vec<Input>], left_out: usize, ours: &[Output], theirs: &[Output]) -> Outcome {
    let given = model.view().inputs().zip(inputs.first().into_iter().flatten());
    let sizes = given.map(|(i, given)| format!("{} {:?}", i.name, given.shape())).collect::<Vec<_>>().join(", ");
    let runs = inputs.len();
    if theirs.len() != ours.len() {
        return Outcome::Differs(format!("{} outputs, in tract {}", ours.len(), theirs.len()));
    }
    let mut largest = 0f64;
    for (k, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        match compare(ours, theirs) {
            Ok(off) => largest = largest.max(off),
            Err(what) => {
                let name = model.view().outputs().nth(k % model.view().outputs().count()).map_or("", |o| o.name);
                return Outcome::Differs(format!("output '{name}' {what} (inputs {sizes})"));
            }
        }
    }
    Outcome::Agrees { largest, runs, left_out, inputs: sizes }
}

/// Inputs that the packed model takes, and all that it gives for them, one run's outputs after the other's.
#[derive(Default)]
struct Runs {
    inputs: Vec<Vec<Input>>,
    outputs: Vec<Output>,
    /// How many inputs it did not take.
    left_out: usize,
}

/// Runs the packed model at the first size at which it takes all inputs, or the most of them, or says why it takes none.
fn runs(model: &Model, conditions: &[Vec<i64>], integers: &Range<i64>) -> Result<Result<Runs, String>> {
    let open = model.view().inputs().any(|i| i.dims().any(|d| d.lo != d.hi));
    let most = conditions.iter().map(|c| c.len() + 1).fold(RUNS, usize::max);
    let (mut best, mut message) = (Runs::default(), String::new());
    for size in &SIZES[..if open { SIZES.len() } else { 1 }] {
        let bind = |d: Dim<'_>| {
            // Zero is within the bounds of few models, and compares nothing.
            let lo = d.lo.max(d.hi.min(1));
            (*size).clamp(lo, d.hi.max(lo)) as usize
        };
        let shapes: Vec<Vec<usize>> = model.view().inputs().map(|i| i.dims().map(bind).collect()).collect();
        let mut session = model.session().map_err(|e| Error::internal(Stage::Check, e.to_string()))?;
        let mut runs = Runs::default();
        for run in 0..most {
            let inputs = inputs(model, &shapes, conditions, integers, run);
            let refs: Vec<_> = inputs.iter().map(Input::as_ref).collect();
            if let Err(e) = session.run(&refs) {
                message = model.explain(e);
                runs.left_out += 1;
                continue;
            }
            for k in 0..model.view().outputs().count() {
                let found = session.output(k).map_err(|e| Error::internal(Stage::Check, e.to_string()))?;
                let shape = found.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
                runs.outputs.push(output(data::compiler_type(found.dtype), shape, found.bytes)?);
            }
            runs.inputs.push(inputs);
        }
        if runs.inputs.len() > best.inputs.len() {
            best = runs;
        }
        if best.inputs.len() == most {
            break;
        }
    }
    let advice = if open { " (bind its dimensions with --dim)" } else { "" };
    Ok(match best.inputs.len() {
        0 => Err(format!("the packed model takes none of the random inputs that were tried{advice}: {message}")),
        _ => Ok(best),
    })
}

/// Random inputs of given shapes, the same for the same `run`. In all but the first run, inputs that decide conditions
/// have the values at which these change.
fn inputs(
    model: &Model,
    shapes: &[Vec<usize>],
    conditions: &[Vec<i64>],
    integers: &Range<i64>,
    run: usize,
) -> Vec<Input> {
    let mut random = Random::new(run as u64);
    let range = |k: usize| {
        let values = conditions.get(k).filter(|values| !values.is_empty());
        let value = values.and_then(|values| Some(values[run.checked_sub(1)? % values.len()]));
        value.map_or(integers.clone(), |v| v..v.saturating_add(1))
    };
    let inputs = model.view().inputs().zip(shapes).enumerate();
    inputs.map(|(k, (i, shape))| Input::random(i.dtype, shape, range(k), &mut random)).collect()
}

fn output(dtype: crate::dtype::DType, shape: Vec<usize>, bytes: &[u8]) -> Result<Output> {
    let tolerance = match dtype {
        d if !d.is_float() => Tolerance::EXACT,
        d if d.size() == 2 => Tolerance::HALF,
        _ => Tolerance::SINGLE,
    };
    let data = TensorData::new(dtype, shape.clone(), bytes.to_vec()).ok_or_else(|| {
        Error::internal(Stage::Check, format!("{} bytes for an output of shape {shape:?}", bytes.len()))
    })?;
    let values = match data.to_f64s() {
        Some(values) => values,
        None => data.to_i64s().unwrap_or_default().into_iter().map(|v| v as f64).collect(),
    };
    Ok(Output { shape, values, tolerance })
}

/// The largest difference, or what differs too much.
fn compare(found: &Output, expected: &Output) -> Result<f64, String> {
    if found.shape != expected.shape {
        return Err(format!("has shape {:?}, in tract {:?}", found.shape, expected.shape));
    }
    if found.values.len() != expected.values.len() {
        return Err(format!("has {} elements, in tract {}", found.values.len(), expected.values.len()));
    }
    let finite = expected.values.iter().map(|v| v.abs()).filter(|v| v.is_finite());
    let scale = finite.fold(SMALLEST, f64::max);
    // An engine that computes in half precision is no more exact than that, whatever it gives out.
    let relative = found.tolerance.relative.max(expected.tolerance.relative);
    let absolute = found.tolerance.absolute.max(expected.tolerance.absolute);
    // How far each element is off, as a multiple of what it may be, and relative to the tensor.
    let (mut worst, mut at, mut largest) = (0f64, 0usize, 0f64);
    for (k, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let off = (a - b).abs();
        let may = relative * b.abs() + absolute * scale;
        let excess = if off.is_finite() { off / may } else { f64::INFINITY };
        if excess > worst {
            (worst, at) = (excess, k);
        }
        largest = largest.max(off / scale);
    }
    if worst > 1.0 {
        let mut index = vec![0; found.shape.len()];
        let mut rest = at;
        for (i, d) in index.iter_mut().zip(&found.shape).rev() {
            *i = rest % d;
            rest /= d;
        }
        return Err(format!("at {index:?} is {}, in tract {}", found.values[at], expected.values[at]));
    }
    Ok(largest)
}

#[cfg(test)]
mod tests;
