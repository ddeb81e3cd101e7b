//! onnxruntime as a native program: its shared library through its C interface.

use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use graphmend_peers::{Input, Values, job, measure};
use ort::session::{Session, SessionInputValue};
use ort::value::Tensor;

fn value(input: &Input) -> Result<SessionInputValue<'static>> {
    let shape: Vec<i64> = input.shape.iter().map(|n| *n as i64).collect();
    Ok(match input.read()? {
        Values::F32(v) => Tensor::from_array((shape, v))?.into(),
        Values::I32(v) => Tensor::from_array((shape, v))?.into(),
        Values::I64(v) => Tensor::from_array((shape, v))?.into(),
        Values::U8(v) => Tensor::from_array((shape, v))?.into(),
        Values::Bool(v) => Tensor::from_array((shape, v))?.into(),
    })
}

fn main() -> Result<()> {
    let job = job()?;
    let start = Instant::now();
    let environment = ort::init_from(&job.library).map_err(|e| anyhow!("{e}"))?.build()?;
    let builder = Session::builder(&environment)?;
    let mut builder = builder.with_intra_threads(job.threads).map_err(|e| anyhow!("{e}"))?;
    let mut session = builder.commit_from_file(&job.model)?;
    let load = start.elapsed();
    let values: Vec<_> = job.inputs.iter().map(value).collect::<Result<_>>()?;
    let names = || job.inputs.iter().map(|i| i.name.as_str());
    let version = job.library.rsplit(".so.").next().context("no version")?;
    measure(&job, load, version, || {
        let given: Vec<(&str, SessionInputValue<'_>)> = names().zip(values.iter().map(|v| (&**v).into())).collect();
        session.run(given)?;
        Ok(())
    })
}
