//! Sums of products of quantised numbers become sums of products of bytes.
//!
//! Where a number is `(q - zero) * scale` for a byte `q`, and scales and zero points are the same for all terms of a sum,
//!
//! `Σ (a - za)·sa · (b - zb)·sb  =  sa·sb · (Σ a·b - za·Σb - zb·Σa + n·za·zb)`,
//!
//! and the sum of products of bytes is a contraction of integers. The bytes are found behind movement, views and padding
//! with zero, which becomes padding with the zero point ([`bytes`]); of two signed or two unsigned operands one changes its
//! sign ([`sums`]), so that there is one kind of product. A number that is quantised again right after the sum takes the new
//! scale into that of the sum ([`scales`]), and where it comes from a function that is approximated it is multiplied by the
//! reciprocal of the scale.
//!
//! Side conditions: the sum in brackets lies within 32 bits (it wraps where the operator says so); scales and zero points
//! vary with no reduced index. Then it is exact, and the result is rounded once by the product of the scales and once by the
//! product with it, where the sum of products of floats rounds each term.

mod bytes;
mod scales;
mod sums;
#[cfg(test)]
mod tests;

use crate::dtype::DType;
use crate::fuse::{constants, uses};
use crate::te::{Block, Def, Expr, Program, Step, Tensor, TensorId};
use std::collections::{BTreeMap, HashMap};

use crate::sym::Int;
use bytes::Bytes;

/// Rewrites all sums of products of quantised numbers.
pub fn rewrite(p: &mut Program) {
    let uses = uses::find(p);
    let main = core::mem::take(&mut p.main);
    let mut r = Rewrite {
        p,
        uses,
        known: HashMap::new(),
        fresh: vec![],
        tables: HashMap::new(),
        views: BTreeMap::new(),
        node: String::new(),
    };
    let main = r.block(main);
    r.p.main = main;
}

/// State of the rewriting.
struct Rewrite<'p> {
    p: &'p mut Program,
    /// Who read what before anything was rewritten.
    uses: uses::Uses,
    /// The bytes behind tensors.
    known: HashMap<TensorId, Option<Bytes>>,
    /// Steps to come before the one at hand.
    fresh: Vec<Step>,
    /// Loads of the tables that stand for expressions of constants.
    tables: HashMap<Expr, Expr>,
    /// Views of sums that are finished where the view is defined.
    views: BTreeMap<TensorId, sums::Sum>,
    /// The node that new tensors are of.
    node: String,
}

impl Rewrite<'_> {
    fn block(&mut self, block: Block) -> Block {
        let mut steps = vec![];
        for mut step in block.steps {
            match &mut step {
                Step::Define(t) => self.tensor(*t),
                Step::Check(_) => {}
                Step::If { then, other, .. } => {
                    for block in [then, other] {
                        *block = self.inner(core::mem::take(block));
                    }
                }
                Step::Loop(l) => l.body = self.inner(core::mem::take(&mut l.body)),
            }
            steps.append(&mut self.fresh);
            steps.push(step);
        }
        Block { steps }
    }

    /// A block that may not run, or run several times: what is made for it is its own.
    fn inner(&mut self, block: Block) -> Block {
        let before = (self.known.clone(), self.tables.clone());
        let block = self.block(block);
        (self.known, self.tables) = before;
        block
    }

    fn tensor(&mut self, t: TensorId) {
        self.node.clone_from(&self.p.tensor(t).node);
        match self.p.tensor(t).def {
            Def::Reduce { .. } => self.sum(t),
            Def::View(_) => self.view_of_sum(t),
            Def::Map { .. } if is_byte(self.p.tensor(t).dtype) => self.rescale(t),
            Def::Map { .. } if self.p.tensor(t).dtype == DType::F32 => self.arguments(t),
            _ => {}
        }
    }

    /// A new tensor; a constant if it can be computed now.
    fn define(&mut self, dtype: DType, shape: Vec<Int>, def: Def) -> TensorId {
        let id = TensorId(self.p.tensors.len() as u32);
        let node = self.node.clone();
        self.p.tensors.push(Tensor { name: node.clone(), node, dtype, shape, def });
        if let Some(bytes) = constants::compute(self.p, id) {
            self.p.tensors[id.0 as usize].def = Def::Const(bytes.into());
        }
        self.fresh.push(Step::Define(id));
        id
    }
}

fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}
