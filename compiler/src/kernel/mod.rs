//! Kernel IR: what the crate `graphmend-kernel` has (data types, verifier, text form, interpreter), a builder, math functions.

pub mod builder;
#[cfg(test)]
mod interp_tests;
pub mod math;
pub mod work;

pub use graphmend_kernel::{bytes, interp, ir, scalar, text, types, verify};
