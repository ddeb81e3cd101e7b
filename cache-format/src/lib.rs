//! The bytes of a GraphMend cache file: header, sections, plan records, kernel ABI.
//!
//! Without features this is `core` only: views that read the records in place. `alloc` adds the plain-data form of a
//! file ([`spec`]), its writer and reader, and the cold sections ([`meta`]).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod abi;
mod bytes;
pub mod check;
pub mod digest;
mod dtype;
mod error;
pub mod file;
#[cfg(feature = "alloc")]
pub mod meta;
mod op;
pub mod plan;
#[cfg(feature = "alloc")]
pub mod read;
#[cfg(feature = "alloc")]
pub mod spec;
pub mod tensors;
#[cfg(feature = "alloc")]
pub mod text;
#[cfg(feature = "alloc")]
pub mod write;

pub use dtype::DType;
pub use error::FormatError;
pub use op::BinOp;

/// A BLAKE3 digest.
pub type Digest = [u8; 32];

/// Alignment of CODE and WEIGHTS in files that are mapped: a multiple of every page size in use.
pub const PAGE: u32 = 65536;
/// Bytes of WEIGHTS that one digest in LEAVES covers.
pub const LEAF: usize = 65536;
/// Alignment of each kernel within CODE.
pub const CODE_ALIGN: usize = 64;
/// Alignment that the start of the arena must have.
pub const ARENA_ALIGN: usize = 64;
/// Greatest rank of inputs and outputs.
pub const MAX_RANK: usize = 32;
