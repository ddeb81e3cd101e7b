//! `RotaryEmbedding`: pairs of features turned by an angle that depends on the position.

use super::heads::Heads;
use super::operand::{Operand, need_float, same_type};
use super::scalar::{eq, lt};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "RotaryEmbedding", rotary), ("com.microsoft", "RotaryEmbedding", rotary_contrib)];

/// Which features are turned, and how they pair.
pub(super) struct Turn {
    /// The first so many of a head.
    pub(super) turned: Int,
    /// Neighbours are pairs, rather than features half of the turned ones apart.
    pub(super) interleaved: bool,
}

impl Turn {
    /// The turned element `[batch, head, position, feature]`; `angle` gives cosine and sine for a pair.
    pub(super) fn element(&self, x: &Heads, at: [Int; 4], angle: impl Fn(Int) -> (Expr, Expr)) -> Expr {
        let [b, h, s, f] = at;
        let half = self.turned.div(2);
        let (pair, first) =
            if self.interleaved { (f.div(2), eq(f.rem(2), 0)) } else { (f.if_lt(half, f, f - half), lt(f, half)) };
        let (one, two) = if self.interleaved { (pair * 2, pair * 2 + 1) } else { (pair, pair + half) };
        let (x1, x2) = (x.at(b, h, s, one), x.at(b, h, s, two));
        let (cos, sin) = angle(pair);
        let moved = first.then(cos * x1 - sin * x2, sin * x1 + cos * x2);
        if self.turned == x.size { moved } else { lt(f, self.turned).then(moved, x.at(b, h, s, f)) }
    }
}

struct Rotation {
    x: TensorId,
    cos: Operand,
    sin: Operand,
    positions: Option<Operand>,
}

fn rotary(cx: &mut Cx, call: &Call) -> OpResult {
    let (cos, sin) = (call.input(1)?, call.input(2)?);
    let positions = call.opt(3).map(|t| Operand::of(cx, t));
    let r = Rotation { x: call.input(0)?, cos: Operand::of(cx, cos), sin: Operand::of(cx, sin), positions };
    build(cx, call, r)
}

fn rotary_contrib(cx: &mut Cx, call: &Call) -> OpResult {
    let (positions, cos, sin) = (call.input(1)?, call.input(2)?, call.input(3)?);
    let positions = Some(Operand::of(cx, positions));
    let r = Rotation { x: call.input(0)?, cos: Operand::of(cx, cos), sin: Operand::of(cx, sin), positions };
    build(cx, call, r)
}

/// How the angles' tables are indexed.
fn check(cx: &mut Cx, r: &Rotation, batch: Int, length: Int, half: Int) -> OpResult<()> {
    for table in [&r.cos, &r.sin] {
        let needed = if r.positions.is_some() { 2 } else { 3 };
        if table.rank() != needed {
            return Err(OpError::Invalid(format!("a table of angles has rank {}; {needed} is needed", table.rank())));
        }
        cx.require_equal(table.shape[needed - 1], half, "angles against half of the turned features")?;
        if needed == 3 {
            cx.require_equal(table.shape[0], batch, "angles against the batch")?;
            cx.require_equal(table.shape[1], length, "angles against the sequence")?;
        }
    }
    for (a, b) in r.cos.shape.iter().zip(&r.sin.shape) {
        cx.require_equal(*a, *b, "tables of sines and cosines")?;
    }
    if let Some(p) = &r.positions {
        if !p.dtype.is_int() {
            return Err(OpError::Invalid(format!("positions have element type {}", p.dtype)));
        }
        match p.shape.as_slice() {
            &[b, s] => {
                cx.require_equal(b, batch, "positions against the batch")?;
                cx.require_equal(s, length, "positions against the sequence")?;
            }
            // One number: the position of the first element of every sequence.
            &[n] => cx.require_equal(n, Int::new(1), "number of first positions")?,
            s => return Err(OpError::Invalid(format!("positions have rank {}", s.len()))),
        }
    }
    Ok(())
}

fn build(cx: &mut Cx, call: &Call, r: Rotation) -> OpResult {
    let dtype = cx.dtype(r.x);
    need_float(dtype)?;
    same_type(cx, r.x, r.cos.id)?;
    same_type(cx, r.x, r.sin.id)?;
    let turned = call.int("rotary_embedding_dim", 0)?;
    let mut heads = call.opt_int("num_heads")?.filter(|h| *h > 0);
    if heads.is_none() && call.domain == "com.microsoft" && cx.rank(r.x) == 3 {
        // The number of heads follows from the width of the tables.
        let width = r.cos.shape.last().copied().unwrap_or(Int::new(0)) * 2;
        let all = cx.shape(r.x)[2];
        heads = if turned == 0 { all.div(width).as_const() } else { None };
    }
    let x = Heads::of(cx, r.x, heads, "the input")?;
    let turned = if turned == 0 { x.size } else { Int::new(turned) };
    cx.require_at_most(turned, x.size, "attribute 'rotary_embedding_dim' against the features of a head")?;
    cx.require_equal(turned.rem(2), Int::new(0), "turned features modulo two")?;
    let half = turned.div(2);
    check(cx, &r, x.batch, x.length, half)?;
    let turn = Turn { turned, interleaved: call.int("interleaved", 0)? != 0 };
    let angle = |table: &Operand, batch: Int, position: Int, pair: Int| -> Expr {
        let Some(p) = &r.positions else { return table.at(&[batch, position, pair]) };
        let at = if p.rank() == 2 {
            expr::as_int(p.at(&[batch, position]).to(DType::I64))
        } else {
            expr::as_int(p.at(&[Int::new(0)]).to(DType::I64)) + position
        };
        // Never outside of the table, whatever the positions are.
        table.at(&[at.max(0).min(table.shape[0] - 1), pair])
    };
    let element = |b: Int, h: Int, s: Int, f: Int| -> Expr {
        turn.element(&x, [b, h, s, f], |pair| (angle(&r.cos, b, s, pair), angle(&r.sin, b, s, pair)))
    };
    let shape = cx.shape(r.x);
    Ok(vec![if x.is_packed() {
        let t = cx.map(dtype, vec![x.batch, x.length, x.heads, x.size], |i| element(i[0], i[2], i[1], i[3]));
        cx.view(t, shape)
    } else {
        cx.map(dtype, shape, |i| element(i[0], i[1], i[2], i[3]))
    }])
}
