//! tract's side.

use tract_onnx::prelude::{
    DatumType, Framework, InferenceFact, InferenceModelExt, IntoRunnable, TValue, TVec, Tensor, TractResult,
};

use super::data::Input;
use super::{Output, Tolerance};

/// Loads a model for the shapes of the first run and gives the outputs of all runs, one run's after the other's.
pub(super) fn run(model: &[u8], runs: &[Vec<Input>]) -> Result<Vec<Output>, String> {
    // The alternate form holds the causes; a cause that is a copy of the line before says nothing.
    load_and_run(model, runs).map_err(|e| {
        let mut lines: Vec<String> = e.chain().map(ToString::to_string).collect();
        lines.dedup();
        lines.join(": ")
    })
}

fn load_and_run(model: &[u8], runs: &[Vec<Input>]) -> TractResult<Vec<Output>> {
    let onnx = tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_output_types(true);
    let mut model = onnx.model_for_read(&mut &*model)?;
    for (k, input) in runs.iter().take(1).flatten().enumerate() {
        let tensor = input.tensor()?;
        let shape: TVec<usize> = tensor.shape().into();
        model.set_input_fact(k, InferenceFact::dt_shape(tensor.datum_type(), shape))?;
    }
    let model = model.into_optimized()?.into_runnable()?;
    let mut outputs = vec![];
    for inputs in runs {
        let mut given: TVec<TValue> = TVec::new();
        for input in inputs {
            given.push(input.tensor()?.into());
        }
        for tensor in model.run(given)? {
            outputs.push(output(&tensor)?);
        }
    }
    Ok(outputs)
}

fn output(t: &Tensor) -> TractResult<Output> {
    let tolerance = match t.datum_type() {
        DatumType::F16 => Tolerance::HALF,
        DatumType::F32 | DatumType::F64 => Tolerance::SINGLE,
        _ => Tolerance::EXACT,
    };
    let values = if t.datum_type() == DatumType::Bool {
        t.to_plain_array_view::<bool>()?.iter().map(|b| f64::from(u8::from(*b))).collect()
    } else {
        t.cast_to::<f64>()?.to_plain_array_view::<f64>()?.iter().copied().collect()
    };
    Ok(Output { shape: t.shape().to_vec(), values, tolerance })
}
