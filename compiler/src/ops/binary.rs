//! Elementwise functions of two operands, with numpy's broadcasting or that of the first operator versions.

use super::operand::{Operand, need_number, same_type};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func2, OpError, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Add", |cx, c| arith(cx, c, |a, b| a + b)),
    ("", "Sub", |cx, c| arith(cx, c, |a, b| a - b)),
    ("", "Mul", |cx, c| arith(cx, c, |a, b| a * b)),
    ("", "Div", |cx, c| arith(cx, c, |a, b| a / b)),
    ("", "Mod", modulo),
    ("", "PRelu", prelu),
    ("", "BitShift", bit_shift),
    ("", "BitwiseAnd", |cx, c| bits(cx, c, |a, b| a & b)),
    ("", "BitwiseOr", |cx, c| bits(cx, c, |a, b| a | b)),
    ("", "BitwiseXor", |cx, c| bits(cx, c, |a, b| a ^ b)),
    ("", "And", |cx, c| logic(cx, c, |a, b| a & b)),
    ("", "Or", |cx, c| logic(cx, c, |a, b| a | b)),
    ("", "Xor", |cx, c| logic(cx, c, |a, b| a ^ b)),
    ("", "Equal", equal),
    ("", "Less", |cx, c| compare(cx, c, Expr::lt_)),
    ("", "LessOrEqual", |cx, c| compare(cx, c, Expr::le_)),
    ("", "Greater", |cx, c| compare(cx, c, Expr::gt_)),
    ("", "GreaterOrEqual", |cx, c| compare(cx, c, Expr::ge_)),
];

/// The two operands with shapes that broadcast by numpy's rules, and the result's shape.
///
/// Before version 7 operands had equal shapes, or with `broadcast = 1` the second one's shape matched a run of the first
/// one's axes from `axis` on (by default the last ones).
pub(super) fn operands(cx: &mut Cx, call: &Call) -> OpResult<(Operand, Operand, Vec<Int>)> {
    let (a, mut b) = (call.input(0)?, call.input(1)?);
    let legacy = call.version < 7;
    if legacy {
        b = legacy_operand(cx, call, a, b)?;
    }
    let shape = cx.broadcast(&[cx.shape(a), cx.shape(b)])?;
    if legacy {
        same_shape(cx, &shape, a)?;
    }
    Ok((Operand::of(cx, a), Operand::of(cx, b), shape))
}

fn legacy_operand(cx: &mut Cx, call: &Call, a: TensorId, b: TensorId) -> OpResult<TensorId> {
    let (ra, rb) = (cx.rank(a), cx.rank(b));
    if call.int("broadcast", 0)? == 0 {
        if ra != rb {
            return Err(OpError::Invalid(format!("ranks {ra} and {rb} without broadcast = 1")));
        }
        let shape = cx.shape(a);
        same_shape(cx, &shape, b)?;
        return Ok(b);
    }
    match call.opt_int("axis")? {
        None => Ok(b),
        Some(axis) => {
            let axis = cx.axis(axis, ra)?;
            align(cx, b, axis, ra)
        }
    }
}

/// A view of `b` whose first axis lies at axis `at` of `rank`.
fn align(cx: &mut Cx, b: TensorId, at: usize, rank: usize) -> OpResult<TensorId> {
    let mut shape = cx.shape(b);
    if at + shape.len() > rank {
        return Err(OpError::Invalid(format!("an operand of rank {} at axis {at} of rank {rank}", shape.len())));
    }
    shape.resize(rank - at, Int::new(1));
    Ok(cx.view(b, shape))
}

fn same_shape(cx: &mut Cx, shape: &[Int], t: TensorId) -> OpResult<()> {
    let own = cx.shape(t);
    if own.len() != shape.len() {
        return Err(OpError::Invalid(format!("ranks {} and {} must be equal", shape.len(), own.len())));
    }
    for (x, y) in shape.iter().zip(own) {
        cx.require_equal(*x, y, "shapes must be equal")?;
    }
    Ok(())
}

/// Requires that `small` broadcasts to the shape of `big` without changing it.
pub(super) fn require_spreads(cx: &mut Cx, small: &Operand, big: &Operand, what: &str) -> OpResult<()> {
    if small.rank() > big.rank() {
        return Err(OpError::Invalid(format!("{what} of rank {} for rank {}", small.rank(), big.rank())));
    }
    for (s, b) in small.shape.iter().zip(&big.shape[big.rank() - small.rank()..]) {
        cx.require_equal(s.if_eq(1, *b, *s), *b, &format!("{what} does not broadcast"))?;
    }
    Ok(())
}

/// The result's element is `f` of the operands', which have one type.
fn zip(cx: &mut Cx, call: &Call, to: Option<DType>, f: impl FnOnce(Expr, Expr) -> Expr) -> OpResult {
    let (a, b, shape) = operands(cx, call)?;
    let dtype = same_type(cx, a.id, b.id)?;
    Ok(vec![cx.map(to.unwrap_or(dtype), shape, |i| f(a.spread(i), b.spread(i)))])
}

fn first_type(cx: &Cx, call: &Call) -> OpResult<DType> {
    Ok(cx.dtype(call.input(0)?))
}

fn arith(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr, Expr) -> Expr) -> OpResult {
    need_number(first_type(cx, call)?)?;
    zip(cx, call, None, f)
}

fn bits(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr, Expr) -> Expr) -> OpResult {
    match first_type(cx, call)? {
        t if t.is_int() => zip(cx, call, None, f),
        t => Err(OpError::Invalid(format!("element type {t}, integers are needed"))),
    }
}

fn logic(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr, Expr) -> Expr) -> OpResult {
    match first_type(cx, call)? {
        DType::Bool => zip(cx, call, None, f),
        t => Err(OpError::Invalid(format!("element type {t}, bools are needed"))),
    }
}

fn compare(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr, Expr) -> Expr) -> OpResult {
    need_number(first_type(cx, call)?)?;
    zip(cx, call, Some(DType::Bool), f)
}

fn equal(cx: &mut Cx, call: &Call) -> OpResult {
    zip(cx, call, Some(DType::Bool), Expr::eq_)
}

fn bit_shift(cx: &mut Cx, call: &Call) -> OpResult {
    let f = match call.string("direction", String::new())?.as_str() {
        "LEFT" => Func2::Shl,
        "RIGHT" => Func2::Shr,
        other => return Err(OpError::Invalid(format!("direction = '{other}', 'LEFT' or 'RIGHT' is needed"))),
    };
    bits(cx, call, |a, b| expr::bin(f, a, b))
}

/// With `fmod` the result has the sign of the dividend (C), without it that of the divisor (Python).
fn modulo(cx: &mut Cx, call: &Call) -> OpResult {
    let fmod = call.int("fmod", 0)? != 0;
    arith(cx, call, |a, b| if fmod { a % b } else { floor_mod(a, b) })
}

fn floor_mod(a: Expr, b: Expr) -> Expr {
    let (t, rem) = (a.dtype(), a % b);
    if !t.is_float() && !t.is_signed() {
        return rem;
    }
    let zero = rem.num(0.0);
    let other_sign = rem.lt_(zero).ne_(b.lt_(zero));
    if !t.is_float() {
        return (rem.ne_(zero) & other_sign).then(rem + b, rem);
    }
    // A zero gets the sign of the divisor: zero times the divisor would, but for an infinite one.
    let signed_zero = b.lt_(zero).then(rem.num(-0.0), zero);
    rem.eq_(zero).then(signed_zero, other_sign.then(rem + b, rem))
}

/// The slope broadcasts to the operand; before version 7 it was one number or one for each channel.
fn prelu(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, mut slope) = (call.input(0)?, call.input(1)?);
    need_number(same_type(cx, x, slope)?)?;
    let x = Operand::of(cx, x);
    if call.version < 7 && cx.rank(slope) == 1 && cx.shape(slope)[0] != Int::new(1) && x.rank() > 1 {
        slope = align(cx, slope, 1, x.rank())?;
    }
    let slope = Operand::of(cx, slope);
    require_spreads(cx, &slope, &x, "slope")?;
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let v = x.at(i);
        v.lt_(v.num(0.0)).then(slope.spread(i) * v, v)
    })])
}
