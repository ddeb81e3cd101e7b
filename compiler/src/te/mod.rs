//! Tensor expressions: what every ONNX operator expands into.
//!
//! A [`Program`] defines tensors. Most are given by one scalar [`Expr`]ession over index variables: a *map* gives the
//! element at each index, a *reduction* folds an expression over further indices. Movement (transpose, slice, pad, gather,
//! broadcast, …) is index arithmetic inside of loads, so it costs nothing once it is fused. A *view* is the same elements
//! in the same order under another shape. What does not fit (sorting, scattering, recurrences) is a *custom* kernel.
//!
//! Shape inference, the values of shape computations and constant folding fall out of the expressions: no operator
//! has separate rules for them.

mod constant;
pub mod cx;
#[cfg(test)]
pub(crate) mod eval;
pub mod expr;
pub mod known;
mod operators;
pub mod program;
pub mod text;

pub use cx::{Cx, OpError, OpResult};
pub use expr::{Expr, Func1, Func2, Node};
pub use program::{
    Block, Carried, CarriedDim, Check, Codes, Custom, Def, Home, KernelCx, Loop, Piece, Program, ReduceKind, Scan,
    Step, Tensor, TensorId,
};
