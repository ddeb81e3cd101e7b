//! Kernel IR: data types, builder, verifier, text form, interpreter, math functions.

pub mod builder;
pub mod interp;
pub mod ir;
pub mod math;
pub mod scalar;
pub mod text;
pub mod types;
pub mod verify;
pub mod work;
