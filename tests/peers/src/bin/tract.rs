//! tract.

use std::time::Instant;

use anyhow::{Result, bail};
use graphmend_peers::{Input, Values, job, measure};
use tract_onnx::prelude::*;

fn tensor(input: &Input) -> Result<Tensor> {
    let shape = &input.shape;
    match input.read()? {
        Values::F32(v) => Tensor::from_shape(shape, &v),
        Values::I32(v) => Tensor::from_shape(shape, &v),
        Values::I64(v) => Tensor::from_shape(shape, &v),
        Values::U8(v) => Tensor::from_shape(shape, &v),
        Values::Bool(v) => Tensor::from_shape(shape, &v),
    }
}

fn main() -> Result<()> {
    let job = job()?;
    if job.threads != 1 {
        bail!("runs on one thread as it is released");
    }
    let tensors: Vec<Tensor> = job.inputs.iter().map(tensor).collect::<Result<_>>()?;
    let start = Instant::now();
    let mut model =
        tract_onnx::onnx().with_ignore_output_shapes(true).with_ignore_output_types(true).model_for_path(&job.model)?;
    // It is given the sizes that it will meet: what it knows before, it uses.
    for (i, t) in tensors.iter().enumerate() {
        let shape: TVec<usize> = t.shape().into();
        model.set_input_fact(i, InferenceFact::dt_shape(t.datum_type(), shape))?;
    }
    let plan = model.into_optimized()?.into_runnable()?;
    let load = start.elapsed();
    let values: TVec<TValue> = tensors.into_iter().map(TValue::from).collect();
    measure(&job, load, "0.23.9", || {
        plan.run(values.clone())?;
        Ok(())
    })
}
