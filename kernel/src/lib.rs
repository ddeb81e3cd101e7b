//! The kernel IR: what kernels are made of, the rules that they keep, what each operation means, an interpreter, and a form of
//! bytes for cache files.
//!
//! The compiler builds kernels of it and the runtime interprets those of files that are packed for no processor in particular,
//! so that there is one definition of what a kernel does. Without features it needs `core` and `alloc`.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bytes;
pub mod dtype;
pub mod interp;
pub mod ir;
pub mod scalar;
#[cfg(feature = "text")]
pub mod text;
pub mod types;
pub mod verify;
