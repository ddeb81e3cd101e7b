//! Maps a GraphMend cache file and runs it: no parsing, no compilation, no allocation in a run.
//!
//! The runtime knows no operator. A file holds a plan for a small register machine and the machine code of kernels;
//! the runtime verifies both, binds memory that the caller lends, and follows the plan.
//!
//! | features | what there is |
//! |---|---|
//! | none | [`ModelRef`] over bytes in memory, [`Session`] over lent memory; `core` only |
//! | `alloc` | `OwnedSession`, which owns its memory and lets it grow |
//! | `interp` | `Programs`: files that are packed for no processor in particular, whose kernels are interpreted |
//! | `std` | `Model`, which maps a file; CPU detection; `Pool`, threads that share the work of a run |
#![no_std]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[cfg(target_endian = "big")]
compile_error!("tensors and kernels of cache files are little-endian");

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(feature = "std")]
mod code;
mod error;
#[cfg(feature = "std")]
mod explain;
#[cfg(feature = "interp")]
mod interp;
mod machine;
mod model;
#[cfg(feature = "std")]
mod open;
#[cfg(feature = "alloc")]
mod owned;
#[cfg(feature = "std")]
mod pool;
mod select;
mod session;
mod spread;
mod state;
mod tensor;
#[cfg(feature = "std")]
mod trial;
mod window;

pub use error::Error;
#[cfg(feature = "std")]
pub use explain::declaration;
pub use graphmend_cache_format::abi::{KernelArgs, KernelFn};
pub use graphmend_cache_format::tensors::{Dim, Tensor};
pub use graphmend_cache_format::{ARENA_ALIGN, DType, Digest, FormatError};
#[cfg(feature = "interp")]
pub use interp::Programs;
pub use model::{Code, HEAD, ModelRef, Sections, Trust, WeightCheck, file_bytes};
#[cfg(feature = "std")]
pub use open::{Model, OpenError, OpenOptions, Storage};
#[cfg(feature = "alloc")]
pub use owned::OwnedSession;
#[cfg(feature = "std")]
pub use pool::Pool;
pub use select::{Host, arch_of, select};
pub use session::{Observe, Session};
pub use spread::{Job, Lane, Spread};
pub use tensor::{Element, TensorRef, TensorView};
pub use window::WeightSource;
