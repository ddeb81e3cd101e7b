//! Normalisation by local response, by a norm, and to zero mean and unit variance.

use super::axes::{Axes, Space};
use super::moments::moments;
use super::operand::{Operand, need_float};
use super::reduce::reduce_over;
use super::{Call, Expand};
use crate::sym::Int;
use crate::te::{Cx, OpError, OpResult, ReduceKind, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "LRN", lrn), ("", "LpNormalization", lp), ("", "MeanVarianceNormalization", mean_variance)];

/// `x / (bias + alpha / size * s)^beta`, `s` the sum of squares over a window of `size` channels around the element's.
fn lrn(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() < 2 {
        return Err(OpError::Invalid(format!("input of rank {} has no channels", x.rank())));
    }
    let size =
        call.opt_int("size")?.filter(|s| *s > 0).ok_or_else(|| OpError::Invalid("size must be positive".into()))?;
    let alpha = f64::from(call.float("alpha", 1e-4)?);
    let beta = f64::from(call.float("beta", 0.75)?);
    let bias = f64::from(call.float("bias", 1.0)?);
    let channels = x.shape[1];
    let sum = cx.reduce(ReduceKind::Sum, x.compute(), x.shape.clone(), &[Int::new(size)], |i, r| {
        let c = i[1] + r[0] - (size - 1) / 2;
        let mut at = i.to_vec();
        at[1] = c;
        let v = x.at(&at);
        let zero = v.num(0.0);
        let below = expr::int(c).lt_(expr::int(Int::new(0)));
        below.then(zero, expr::int(c).lt_(expr::int(channels)).then(v * v, zero))
    });
    let sum = Operand::of(cx, sum);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let s = sum.at(i);
        x.at(i) / (s.num(bias) + s.num(alpha / size as f64) * s).pow(s.num(beta))
    })])
}

/// A zero vector stays zero.
fn lp(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let p = call.int("p", 2)?;
    if p != 1 && p != 2 {
        return Err(OpError::Invalid(format!("p = {p}, 1 or 2 is needed")));
    }
    let axes = Axes::known(cx, &[call.int("axis", -1)?], x.rank())?;
    let space = Space::new(&x.shape, &axes, true);
    let sum = reduce_over(cx, &space, ReduceKind::Sum, x.compute(), |i, r| {
        let v = x.at(&space.index(i, r));
        if p == 1 { v.abs() } else { v * v }
    });
    let sum = Operand::of(cx, sum);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let s = sum.at(&space.result_index(i));
        let norm = if p == 1 { s } else { s.sqrt() };
        norm.eq_(norm.num(0.0)).then(norm.num(0.0), x.at(i) / norm)
    })])
}

/// `(x - mean) / (deviation + 1e-9)`, as the operator's definition has it.
fn mean_variance(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let axes = Axes::known(cx, &call.ints("axes", vec![0, 2, 3])?, x.rank())?;
    let space = Space::new(&x.shape, &axes, true);
    let (mean, var) = moments(cx, &x, &space, x.compute());
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let s = space.result_index(i);
        let deviation = var.at(&s).sqrt();
        (x.at(i) - mean.at(&s)) / (deviation + deviation.num(1e-9))
    })])
}
