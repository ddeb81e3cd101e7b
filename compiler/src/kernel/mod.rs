//! Kernel IR: data types, builder, verifier, text form, interpreter, math functions.

pub mod ir;
