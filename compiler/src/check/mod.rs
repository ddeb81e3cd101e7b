//! Comparison with another engine: the mended model, written as ONNX, runs in tract on random inputs, and the packed
//! model must give the same.
//!
//! tract reads no control flow to speak of; the mended model has none left. Every symbolic dimension is bound to a small
//! size within its bounds, all of them to the same one, the first at which the packed model runs.

mod data;

use std::panic::{AssertUnwindSafe, catch_unwind};

use graphmend_runtime::{Dim, Model, Trust};
use prost::Message;
use tract_onnx::prelude::{
    DatumType, Framework, InferenceFact, InferenceModelExt, IntoRunnable, TValue, TVec, Tensor, TractResult,
};

use crate::error::{Error, Result, Stage};
use crate::graph::TensorData;
use crate::onnx::write;
use crate::pack::Packed;
use data::{Input, Random};

/// Sizes that open dimensions are tried at: small first, then what strided and windowed models need at least.
const SIZES: [i64; 8] = [2, 1, 3, 5, 16, 64, 256, 1024];
/// Runs at the size that works, each with other inputs.
const RUNS: u64 = 3;
/// What an element may differ by, relative to itself.
const RELATIVE: f64 = 1e-3;
/// What an element may differ by, relative to the largest of its tensor or 1.
const ABSOLUTE: f64 = 1e-4;
/// [`RELATIVE`] for tensors of 16-bit floats, which hold three digits.
const RELATIVE_HALF: f64 = 1e-2;

/// An output's elements.
struct Output {
    shape: Vec<usize>,
    values: Vec<f64>,
    /// Tolerance relative to an element; 0 for integers.
    relative: f64,
}

/// Compares a packed model with what tract makes of its mended form. Gives the largest difference that was found, relative
/// to the largest element of its output or 1.
///
/// # Errors
/// [`Error::Refused`] when tract cannot take the model or no size was found at which it runs; an error of
/// [`Stage::Check`] that names the output and its worst element when they differ.
pub fn check(packed: &Packed) -> Result<f64> {
    let failed = |e: &dyn std::fmt::Display| Error::internal(Stage::Check, e.to_string());
    let model = Model::from_bytes(&packed.bytes, Trust::Unsigned).map_err(|e| failed(&e))?;
    let mended = write::to_model(&packed.mended)?.encode_to_vec();
    let (size, shapes) = shapes(&model)?;
    let first = inputs(&model, &shapes, 0);
    let mut theirs = guarded(|| Tract::load(&mended, &first))?;
    let mut session = model.session().map_err(|e| failed(&e))?;
    let names: Vec<String> = model.view().outputs().map(|o| o.name.to_owned()).collect();
    let mut worst = 0f64;
    for run in 0..RUNS {
        let inputs = inputs(&model, &shapes, run);
        let refs: Vec<_> = inputs.iter().map(Input::as_ref).collect();
        session.run(&refs).map_err(|e| failed(&model.explain(e)))?;
        let expected = guarded(|| theirs.run(&inputs))?;
        for (k, (name, expected)) in names.iter().zip(&expected).enumerate() {
            let found = session.output(k).map_err(|e| failed(&e))?;
            let shape = found.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
            let found = output(data::compiler_type(found.dtype), shape, found.bytes)?;
            worst = worst.max(compare(name, &found, expected, size)?);
        }
    }
    Ok(worst)
}

/// Binds the open dimensions: a size at which the packed model runs, and the shapes of the inputs then.
fn shapes(model: &Model) -> Result<(i64, Vec<Vec<usize>>)> {
    let mut message = String::new();
    let open = model.view().inputs().any(|i| i.dims().any(|d| d.lo != d.hi));
    for size in SIZES {
        let bind = |d: Dim<'_>| {
            // Zero is within the bounds of few models, and compares nothing.
            let lo = d.lo.max(d.hi.min(1));
            size.clamp(lo, d.hi.max(lo)) as usize
        };
        let shapes: Vec<Vec<usize>> = model.view().inputs().map(|i| i.dims().map(bind).collect()).collect();
        let inputs = inputs(model, &shapes, 0);
        let refs: Vec<_> = inputs.iter().map(Input::as_ref).collect();
        let mut session = model.session().map_err(|e| Error::internal(Stage::Check, e.to_string()))?;
        match session.run(&refs) {
            Ok(()) => return Ok((size, shapes)),
            Err(e) => message = model.explain(e).to_string(),
        }
        if !open {
            break;
        }
    }
    let advice = if open { " (bind its dimensions with --dim)" } else { "" };
    Err(Error::unsupported(
        "",
        "",
        format!("the packed model runs on no random inputs that were tried{advice}: {message}"),
    ))
}

/// Random inputs of given shapes, the same for the same `run`.
fn inputs(model: &Model, shapes: &[Vec<usize>], run: u64) -> Vec<Input> {
    let mut random = Random::new(run);
    model.view().inputs().zip(shapes).map(|(i, shape)| Input::random(i.dtype, shape, &mut random)).collect()
}

/// Runs tract, which may panic; what it says becomes a refusal.
fn guarded<T>(f: impl FnOnce() -> TractResult<T>) -> Result<T> {
    let text = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(e)) => format!("{e:#}"),
        Err(_) => "it panicked".to_owned(),
    };
    Err(Error::unsupported("", "", format!("tract cannot take the model, so nothing was compared: {text}")))
}

/// The model in tract.
struct Tract {
    run: std::sync::Arc<tract_onnx::prelude::TypedRunnableModel>,
}

impl Tract {
    fn load(mended: &[u8], inputs: &[Input]) -> TractResult<Tract> {
        let onnx = tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_output_types(true);
        let mut model = onnx.model_for_read(&mut &*mended)?;
        for (k, input) in inputs.iter().enumerate() {
            let tensor = input.tensor()?;
            let shape: TVec<usize> = tensor.shape().into();
            model.set_input_fact(k, InferenceFact::dt_shape(tensor.datum_type(), shape))?;
        }
        Ok(Tract { run: model.into_optimized()?.into_runnable()? })
    }

    fn run(&mut self, inputs: &[Input]) -> TractResult<Vec<Output>> {
        let mut given: TVec<TValue> = TVec::new();
        for input in inputs {
            given.push(input.tensor()?.into());
        }
        self.run.run(given)?.iter().map(|t| output_of_tract(t)).collect()
    }
}

fn output_of_tract(t: &Tensor) -> TractResult<Output> {
    let relative = match t.datum_type() {
        DatumType::F16 => RELATIVE_HALF,
        DatumType::F32 | DatumType::F64 => RELATIVE,
        _ => 0.0,
    };
    let values = if t.datum_type() == DatumType::Bool {
        t.to_plain_array_view::<bool>()?.iter().map(|b| f64::from(u8::from(*b))).collect()
    } else {
        t.cast_to::<f64>()?.to_plain_array_view::<f64>()?.iter().copied().collect()
    };
    Ok(Output { shape: t.shape().to_vec(), values, relative })
}

fn output(dtype: crate::dtype::DType, shape: Vec<usize>, bytes: &[u8]) -> Result<Output> {
    let relative = match dtype {
        d if !d.is_float() => 0.0,
        d if d.size() == 2 => RELATIVE_HALF,
        _ => RELATIVE,
    };
    let data = TensorData::new(dtype, shape.clone(), bytes.to_vec()).ok_or_else(|| {
        Error::internal(Stage::Check, format!("{} bytes for an output of shape {shape:?}", bytes.len()))
    })?;
    let values = match data.to_f64s() {
        Some(values) => values,
        None => data.to_i64s().unwrap_or_default().into_iter().map(|v| v as f64).collect(),
    };
    Ok(Output { shape, values, relative })
}

/// The largest difference, or what differs too much.
fn compare(name: &str, found: &Output, expected: &Output, size: i64) -> Result<f64> {
    let differs = |what: String| {
        Err(Error::internal(Stage::Check, format!("output '{name}' {what} (open dimensions at {size})")))
    };
    if found.shape != expected.shape {
        return differs(format!("has shape {:?}, in tract {:?}", found.shape, expected.shape));
    }
    if found.values.len() != expected.values.len() {
        return differs(format!("has {} elements, in tract {}", found.values.len(), expected.values.len()));
    }
    let finite = expected.values.iter().map(|v| v.abs()).filter(|v| v.is_finite());
    let scale = finite.fold(1.0, f64::max);
    let relative = found.relative.max(expected.relative);
    // How far each element is off, as a multiple of what it may be, and relative to the tensor.
    let (mut worst, mut at, mut largest) = (0f64, 0usize, 0f64);
    for (k, (a, b)) in found.values.iter().zip(&expected.values).enumerate() {
        if a == b || (a.is_nan() && b.is_nan()) {
            continue;
        }
        let off = (a - b).abs();
        let may = if relative == 0.0 { 0.0 } else { relative * b.abs() + ABSOLUTE * scale };
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
        return differs(format!("at {index:?} is {}, in tract {}", found.values[at], expected.values[at]));
    }
    Ok(largest)
}

#[cfg(test)]
mod tests;
