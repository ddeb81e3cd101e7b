//! Elementwise functions of any number of operands, choice and clipping.

use super::operand::{Operand, need_float, need_number, need_one, same_type};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Sum", |cx, c| float_chain(cx, c, |a, b| a + b, |e, _| e)),
    ("", "Mean", |cx, c| float_chain(cx, c, |a, b| a + b, |e, n| e / e.num(n as f64))),
    ("", "Max", |cx, c| chain(cx, c, Expr::max_, |e, _| e)),
    ("", "Min", |cx, c| chain(cx, c, Expr::min_, |e, _| e)),
    ("", "Where", choose),
    ("", "Clip", clip),
];

fn float_chain(cx: &mut Cx, c: &Call, f: fn(Expr, Expr) -> Expr, end: fn(Expr, usize) -> Expr) -> OpResult {
    need_float(cx.dtype(c.input(0)?))?;
    chain(cx, c, f, end)
}

/// Combines all operands from left to right; `end` gets the result and the number of operands.
fn chain(cx: &mut Cx, call: &Call, f: fn(Expr, Expr) -> Expr, end: fn(Expr, usize) -> Expr) -> OpResult {
    let ids: Vec<TensorId> = (0..call.inputs.len()).map(|k| call.input(k)).collect::<OpResult<_>>()?;
    let first = call.input(0)?;
    need_number(cx.dtype(first))?;
    for id in &ids {
        same_type(cx, first, *id)?;
    }
    let shapes: Vec<_> = ids.iter().map(|id| cx.shape(*id)).collect();
    let shape = cx.broadcast(&shapes)?;
    let all: Vec<Operand> = ids.iter().map(|id| Operand::of(cx, *id)).collect();
    let whole = |i: &[_]| {
        let mut terms = all.iter().map(|x| x.spread(i));
        let start = terms.next();
        start.map(|s| end(terms.fold(s, f), all.len())).unwrap_or_else(|| expr::boolean(false))
    };
    Ok(vec![cx.map(cx.dtype(first), shape, whole)])
}

fn choose(cx: &mut Cx, call: &Call) -> OpResult {
    let (c, a, b) = (call.input(0)?, call.input(1)?, call.input(2)?);
    if cx.dtype(c) != DType::Bool {
        return Err(OpError::Invalid(format!("condition of type {}, bools are needed", cx.dtype(c))));
    }
    let dtype = same_type(cx, a, b)?;
    let shape = cx.broadcast(&[cx.shape(c), cx.shape(a), cx.shape(b)])?;
    let (c, a, b) = (Operand::of(cx, c), Operand::of(cx, a), Operand::of(cx, b));
    Ok(vec![cx.map(dtype, shape, |i| c.spread(i).then(a.spread(i), b.spread(i)))])
}

/// `min(max(x, low), high)`; a bound that is not given is not applied.
fn clip(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    if call.version < 11 {
        let (low, high) = (call.opt_float("min")?, call.opt_float("max")?);
        return Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
            let v = x.at(i);
            let num = |b: f32| v.num(f64::from(b));
            between(v, low.map(num), high.map(num))
        })]);
    }
    let mut bound = |k: usize, what: &str| -> OpResult<Option<Expr>> {
        let Some(t) = call.opt(k) else { return Ok(None) };
        same_type(cx, x.id, t)?;
        need_one(cx, t, what)?;
        Ok(Some(Operand::of(cx, t).only()))
    };
    let (low, high) = (bound(1, "min")?, bound(2, "max")?);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| between(x.at(i), low, high))])
}

fn between(x: Expr, low: Option<Expr>, high: Option<Expr>) -> Expr {
    let x = low.map_or(x, |l| x.max_(l));
    high.map_or(x, |h| x.min_(h))
}
