//! Tensors of attention heads, whichever way the model lays them out.

use super::operand::Operand;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId};

/// A tensor with axes batch, head, position and feature.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    operand: Operand,
    /// Stored as `[batch, position, head * feature]` rather than `[batch, head, position, feature]`.
    packed: bool,
    pub(super) batch: Int,
    pub(super) heads: Int,
    pub(super) length: Int,
    pub(super) size: Int,
}

impl Heads {
    /// Takes a tensor of rank 4, or of rank 3 with a known number of heads.
    pub(super) fn of(cx: &mut Cx, t: TensorId, heads: Option<i64>, what: &str) -> OpResult<Heads> {
        let operand = Operand::of(cx, t);
        match operand.shape.as_slice() {
            &[batch, heads, length, size] => Ok(Heads { operand, packed: false, batch, heads, length, size }),
            &[batch, length, all] => {
                let Some(heads) = heads.filter(|h| *h > 0) else {
                    return Err(OpError::Invalid(format!("{what} has rank 3, but its number of heads is not given")));
                };
                cx.require_equal(all.rem(heads), Int::new(0), &format!("features of {what} modulo the heads"))?;
                let size = all.div(heads);
                Ok(Heads { operand, packed: true, batch, heads: Int::new(heads), length, size })
            }
            s => Err(OpError::Invalid(format!("{what} has rank {}; 3 or 4 is needed", s.len()))),
        }
    }

    /// An element.
    pub(super) fn at(&self, batch: Int, head: Int, position: Int, feature: Int) -> Expr {
        if self.packed {
            self.operand.at(&[batch, position, head * self.size + feature])
        } else {
            self.operand.at(&[batch, head, position, feature])
        }
    }

    /// The tensor as it is stored.
    pub(super) fn id(&self) -> TensorId {
        self.operand.id
    }

    /// Is it stored with packed heads?
    pub(super) fn is_packed(&self) -> bool {
        self.packed
    }

    /// The tensor as `[batch, head, position, feature]`.
    pub(super) fn unpacked(&self, cx: &mut Cx) -> TensorId {
        if !self.packed {
            return self.operand.id;
        }
        let shape = vec![self.batch, self.heads, self.length, self.size];
        cx.map(self.operand.dtype, shape, |i| self.at(i[0], i[1], i[2], i[3]))
    }

    /// This one's positions after those of `past`, as `[batch, head, position, feature]`.
    pub(super) fn after(&self, cx: &mut Cx, past: TensorId, what: &str) -> OpResult<Heads> {
        let past = Heads::of(cx, past, None, what)?;
        if past.operand.dtype != self.operand.dtype {
            return Err(OpError::Invalid(format!("{what} has another element type than what follows it")));
        }
        for (a, b) in [(past.batch, self.batch), (past.heads, self.heads), (past.size, self.size)] {
            cx.require_equal(a, b, what)?;
        }
        let shape = vec![self.batch, self.heads, past.length + self.length, self.size];
        let t = cx.map(self.operand.dtype, shape, |i| {
            let early = super::scalar::lt(i[2], past.length);
            early.then(past.at(i[0], i[1], i[2], i[3]), self.at(i[0], i[1], i[2] - past.length, i[3]))
        });
        Heads::of(cx, t, None, what)
    }
}
