//! Runs an ONNX model that is packed for this machine when it is used for the first time.
//!
//! ```text
//! cargo run --example load_or_pack -- model.onnx x.npy y.npy
//! ```
//!
//! Packed models are kept in `$GRAPHMEND_CACHE_DIR`, or where `graphmend::host::cache_dir` says.

use anyhow::{Result, bail};
use graphmend::npy::{self, Array};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, input, output] = &arguments[..] else {
        bail!("give a model, a file for its input, one for its output")
    };
    let model = graphmend::host::load_or_pack(model)?;
    let mut session = model.session()?;
    let x = npy::read(input)?;
    session.run(&[x.view()])?;
    npy::write(output, &Array::from_view(&session.output(0)?))?;
    Ok(())
}
