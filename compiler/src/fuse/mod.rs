//! Which tensors are stored, which are computed inside of their users, and which loops share a kernel.
//!
//! 1. [`uses`]: what is needed at all, and by whom.
//! 2. [`home`]: tensors that are only parts of another one, padded or joined, are computed in their place there.
//! 3. [`inline`]: a map that costs little, or that is read once, disappears into its users.
//! 4. [`group`]: what is left becomes *units*, one kernel each: a contraction with what follows it (bias, activation,
//!    residual, …), a nest of loops in which reductions and the maps over their results share the outer loops (a softmax
//!    or a norm is one nest), an attention, or a hand-written kernel.
//! 5. [`chain`]: a depthwise convolution and the 1×1 convolution that reads it become one unit, where the processor gains by it.

mod affine;
#[cfg(test)]
mod affine_tests;
pub mod attention;
#[cfg(test)]
mod attention_tests;
mod boxes;
pub mod chain;
#[cfg(test)]
mod chain_tests;
mod codes;
pub(crate) mod constants;
pub mod group;
pub mod home;
#[cfg(test)]
mod home_tests;
pub mod inline;
#[cfg(test)]
mod inline_tests;
mod merge;
mod same;
mod subnormal;
#[cfg(test)]
mod transformer_tests;
pub mod uses;

use crate::sym::{Int, VarId};
use crate::te::{self, Check, Custom, Expr, Piece, Program, TensorId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What one kernel computes.
#[derive(Clone)]
pub enum Unit {
    /// A nest of loops.
    Nest(Nest),
    /// A sum of products and what is done with each sum before it is stored.
    Contract(Contract),
    /// Two of them, of which the second reads what the first makes line by line.
    Chain(Box<Chain>),
    /// A softmax of products of queries and keys, and what is summed with it.
    Attention(Box<attention::Attention>),
    /// What an assembled tensor's lodgers do not hold.
    Pieces(TensorId, Vec<Piece>),
    /// A hand-written kernel with the tensors that it writes.
    Custom(Arc<Custom>, Vec<TensorId>),
}

/// A sum of products and what is done with each sum before it is stored.
#[derive(Clone)]
pub struct Contract {
    /// The sum: a `Reduce` that is never stored, unless it is `out`.
    pub sum: TensorId,
    /// The tensor that is stored.
    pub out: TensorId,
    /// Its element in terms of the sum's index variables, with a load of `sum` at them for the finished sum.
    pub epilogue: Expr,
    /// Row-major position of the element in the memory that holds `out`.
    pub position: Int,
}

/// Two contractions, of which the second reads what the first makes line by line: no more than some lines of that are ever
/// in memory.
#[derive(Clone)]
pub struct Chain {
    /// Its `out` is not stored.
    pub first: Contract,
    /// One factor of each of its products is an element of the first one's `out`.
    pub second: Contract,
}

/// Loops over `vars`; within each iteration the stages run in order.
#[derive(Clone)]
pub struct Nest {
    /// Outer loop indices.
    pub vars: Vec<VarId>,
    /// What is done for each of their values.
    pub stages: Vec<Stage>,
}

/// A part of a nest.
#[derive(Clone)]
pub enum Stage {
    /// The value of a reduction or fold, kept in a register; later stages load it as tensor `id`.
    Reduce {
        /// Which tensor it is.
        id: TensorId,
        /// Reduced indices, outermost first.
        rvars: Vec<VarId>,
        /// What is folded.
        fold: Fold,
    },
    /// Elements of a tensor for all values of `inner`.
    Store {
        /// The tensor.
        id: TensorId,
        /// Inner loop indices.
        inner: Vec<VarId>,
        /// The element.
        body: Expr,
        /// Its row-major position in the memory that holds the tensor.
        position: Int,
    },
}

impl Stage {
    /// The tensor that it stores.
    pub fn stored(&self) -> Option<TensorId> {
        match self {
            Stage::Store { id, .. } => Some(*id),
            Stage::Reduce { .. } => None,
        }
    }
}

/// What a reduction stage computes.
#[derive(Clone)]
pub enum Fold {
    /// One value combined in any order.
    Reduce(crate::te::ReduceKind, Expr),
    /// Several accumulators in order: start values, steps, result.
    Ordered(Vec<Expr>, Vec<Expr>, Expr),
}

/// A step of the fused program.
#[derive(Clone)]
pub enum Step {
    /// Runs a kernel.
    Run(Unit),
    /// Checks a condition.
    Check(Check),
    /// One of two blocks; see `te::Step::If`.
    If {
        /// Not zero: `then`.
        cond: Int,
        /// First block.
        then: Vec<Step>,
        /// Its results.
        then_results: Vec<TensorId>,
        /// Second block.
        other: Vec<Step>,
        /// Its results.
        other_results: Vec<TensorId>,
        /// Where the results of the block that ran go.
        results: Vec<TensorId>,
        /// Symbols of the results' shapes with their values in each block.
        dims: Vec<(VarId, Int, Int)>,
    },
    /// A loop, whose own body is empty, and the steps of a trip.
    Loop(Box<te::Loop>, Vec<Step>),
}

/// A program grouped into kernels.
pub struct Fused {
    /// Tensors, inputs, outputs, symbols. Definitions of stored tensors hold what was inlined.
    pub program: Program,
    /// The steps.
    pub steps: Vec<Step>,
    /// Tensors that are needed and have not disappeared into their users.
    pub stored: BTreeSet<TensorId>,
    /// How many maps disappeared into their users.
    pub inlined: usize,
}

/// Fuses a program.
pub fn fuse(program: Program) -> Fused {
    let program = home::find(program);
    let uses = uses::find(&program);
    let (mut program, mut stored, inlined) = inline::inline(program, &uses);
    codes::find(&mut program, &stored, &uses);
    constants::fold(&mut program, &stored);
    subnormal::flush(&mut program, &stored, &uses.whole);
    affine::simplify(&mut program, &mut stored);
    let steps = group::group(&program, &stored);
    Fused { program, steps, stored, inlined }
}

/// Puts every expression of a definition through `f`.
fn rewrite(def: &mut te::Def, f: &dyn Fn(Expr) -> Expr) {
    match def {
        te::Def::Map { body, .. } | te::Def::Reduce { body, .. } => *body = f(*body),
        te::Def::Fold { init, step, result, .. } => {
            init.iter_mut().chain(step).chain([result]).for_each(|e| *e = f(*e));
        }
        te::Def::Assembled { pieces, .. } => pieces.iter_mut().for_each(|piece| piece.body = f(piece.body)),
        _ => {}
    }
}
