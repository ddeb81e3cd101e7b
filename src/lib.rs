//! GraphMend runs ONNX models that were packed into one hashed file of native kernels.
//!
//! ```no_run
//! use graphmend::{Model, TensorRef, Trust};
//!
//! let model = Model::open("model.gmc", Trust::Unsigned)?;
//! let mut session = model.session()?; // model.session()?.threads(4)? for four
//! let x = vec![0.5f32; 3 * 224 * 224];
//! session.run(&[TensorRef::new(&x, &[1, 3, 224, 224])])?;
//! let scores = session.output(0)?;
//! println!("{:?} {:?}", scores.shape, scores.as_f32()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate is the runtime with the standard library (`graphmend_runtime`), and `.npy` files. Feature `host`, on by
//! default, adds the compiler. Firmware uses `graphmend_runtime` without features.
#![forbid(unsafe_code)]

pub mod border;
#[cfg(feature = "host")]
pub mod host;
pub mod npy;
#[cfg(feature = "host")]
pub mod tune;

pub use graphmend_cache_format as cache_format;
#[cfg(feature = "host")]
pub use graphmend_compiler as compiler;
pub use graphmend_runtime::{
    DType, Digest, Dim, Element, Error, FormatError, Host, Model, ModelRef, Observe, OpenError, OpenOptions,
    OwnedSession, Pool, Programs, Session, Storage, Tensor, TensorRef, TensorView, Trust, WeightCheck, declaration,
    select,
};
pub use graphmend_targets as targets;
