//! The GraphMend compiler: ONNX model in, cache file out.
#![forbid(unsafe_code)]

pub mod codegen;
pub mod dtype;
pub mod error;
pub mod graph;
pub mod kernel;
pub mod sym;
pub mod te;
pub mod ops;
pub mod lower;
pub mod fuse;
pub mod plan;
pub mod expand;
pub mod mend;
pub mod codegen;
pub mod pack;
