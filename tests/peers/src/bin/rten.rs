//! rten.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use graphmend_peers::{Input, Values, job, measure};
use rten::{ModelOptions, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::Tensor;

fn value(input: &Input) -> Result<Value> {
    let shape = input.shape.as_slice();
    Ok(match input.read()? {
        Values::F32(v) => Tensor::from_data(shape, v).into(),
        Values::I32(v) => Tensor::from_data(shape, v).into(),
        // It has no 64-bit integers and no truth values.
        Values::I64(v) => {
            let v: Result<Vec<i32>, _> = v.into_iter().map(i32::try_from).collect();
            Tensor::from_data(shape, v?).into()
        }
        Values::Bool(v) => Tensor::from_data(shape, v.into_iter().map(i32::from).collect::<Vec<_>>()).into(),
        Values::U8(v) => Tensor::from_data(shape, v).into(),
    })
}

fn main() -> Result<()> {
    let job = job()?;
    let values: Vec<Value> = job.inputs.iter().map(value).collect::<Result<_>>()?;
    let start = Instant::now();
    let mut options = ModelOptions::with_all_ops();
    let model = options.prepack_weights(true).load_file(&job.model)?;
    let pool = Arc::new(ThreadPool::with_num_threads(job.threads));
    let load = start.elapsed();
    let ids = job.inputs.iter().map(|i| model.find_node(&i.name).with_context(|| format!("no input {}", i.name)));
    let ids: Vec<_> = ids.collect::<Result<_>>()?;
    if ids.len() != model.input_ids().len() {
        bail!("the model has {} inputs for it", model.input_ids().len());
    }
    measure(&job, load, "0.27.0", || {
        let given: Vec<(_, ValueOrView<'_>)> = ids.iter().copied().zip(values.iter().map(ValueOrView::from)).collect();
        model.run(given, model.output_ids(), Some(RunOptions::default().with_thread_pool(Some(pool.clone()))))?;
        Ok(())
    })
}
