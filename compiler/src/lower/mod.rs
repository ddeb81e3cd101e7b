//! Fused groups to kernel IR.

pub mod attention;
mod collapse;
pub mod contract;
pub mod custom;
pub mod emit;
mod math;
pub mod nest;
mod split;

use crate::dtype::DType;
use crate::kernel::ir::Kernel;
use crate::sym::Int;
use crate::te::TensorId;
use std::sync::Arc;

/// What a buffer parameter of a kernel is bound to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Binding {
    /// A tensor of the program.
    Tensor(TensorId),
    /// Constant data in an order of the kernel's own.
    Packed(DType, Arc<Vec<u8>>),
    /// Work space: type and number of elements.
    Scratch(DType, Int),
}

/// A kernel with what its parameters stand for.
#[derive(Clone, Debug)]
pub struct LoweredKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// One for each buffer parameter.
    pub bindings: Vec<Binding>,
    /// Value of each scalar parameter.
    pub scalars: Vec<Int>,
    /// Number of work units of a tiled kernel.
    pub tiles: Option<Int>,
}

/// Does it compute a function of many instructions?
pub(crate) fn is_heavy(e: crate::te::Expr) -> bool {
    use crate::te::{Func2, Node, expr};
    expr::nodes(e).into_iter().any(|n| match n.node() {
        Node::Un(f, _) => !is_basic(f),
        Node::Bin(f, ..) => matches!(f, Func2::Pow | Func2::Atan2),
        _ => false,
    })
}

/// Is it one operation of the kernel IR?
pub(crate) fn is_basic(f: crate::te::Func1) -> bool {
    use crate::te::Func1::{Abs, Ceil, Floor, Neg, Not, Popcnt, Round, Sqrt, Trunc};
    matches!(f, Neg | Abs | Not | Sqrt | Floor | Ceil | Trunc | Round | Popcnt)
}
