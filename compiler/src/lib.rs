//! The GraphMend compiler: ONNX model in, cache file out.
#![forbid(unsafe_code)]

pub mod codegen;
pub mod dtype;
pub mod error;
pub mod expand;
pub mod fuse;
pub mod graph;
pub mod import;
pub mod kernel;
pub mod lower;
pub mod mend;
pub mod ops;
pub mod pack;
pub mod plan;
pub mod onnx;
pub mod sym;
pub mod te;
