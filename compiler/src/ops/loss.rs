//! Classification losses.

use super::axes::Axes;
use super::operand::{Operand, convert, need_float, same_type};
use super::softmax::log_softmax;
use super::{Call, Expand};
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "NegativeLogLikelihoodLoss", nll), ("", "SoftmaxCrossEntropyLoss", cross_entropy)];

fn nll(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    Ok(vec![loss(cx, call, &x)?])
}

fn cross_entropy(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() < 2 {
        return Err(OpError::Invalid(format!("scores of rank {}, at least 2 is needed", x.rank())));
    }
    let axes = Axes::known(cx, &[1], x.rank())?;
    let log_prob = log_softmax(cx, &x, &axes, x.compute());
    let log_prob = Operand::of(cx, log_prob);
    let y = loss_of(cx, call, &log_prob, x.dtype)?;
    let mut out = vec![y];
    if call.wants(1) {
        out.push(if x.dtype == log_prob.dtype {
            log_prob.id
        } else {
            cx.map(x.dtype, x.shape.clone(), |i| log_prob.at(i))
        });
    }
    Ok(out)
}

fn loss(cx: &mut Cx, call: &Call, x: &Operand) -> OpResult<TensorId> {
    loss_of(cx, call, x, x.dtype)
}

/// `-x[n, target[n, d…], d…]` times the target class's weight, reduced as the attribute `reduction` says; `x` has shape
/// `[N, C, d…]`. The mean is over the weights. A target outside of the classes (other than `ignore_index`) is not valid
/// and takes the nearest class.
fn loss_of(cx: &mut Cx, call: &Call, x: &Operand, to: crate::dtype::DType) -> OpResult<TensorId> {
    let target = Operand::of(cx, call.input(1)?);
    if x.rank() < 2 || target.rank() + 1 != x.rank() {
        return Err(OpError::Invalid(format!("input of rank {} with target of rank {}", x.rank(), target.rank())));
    }
    if !target.dtype.is_int() {
        return Err(OpError::Invalid(format!("target of type {}, integers are needed", target.dtype)));
    }
    let classes = x.shape[1];
    let without: Vec<Int> = [&x.shape[..1], &x.shape[2..]].concat();
    for (a, b) in without.iter().zip(&target.shape) {
        cx.require_equal(*a, *b, "shapes of input and target")?;
    }
    let weight = match call.opt(2) {
        Some(w) => {
            same_type(cx, call.input(0)?, w)?;
            let w = Operand::of(cx, w);
            let [n] = w.shape[..] else {
                return Err(OpError::Invalid(format!("weights of rank {}, a vector is needed", w.rank())));
            };
            cx.require_equal(n, classes, "number of weights and of classes")?;
            Some(w)
        }
        None => None,
    };
    let ignore = call.opt_int("ignore_index")?;
    let t = x.compute();
    let class = |i: &[Int]| expr::as_int(target.at(i)).max(0).min(classes - 1);
    let ignored = |i: &[Int]| ignore.map(|k| target.at(i).eq_(expr::constant_i64(target.dtype, k)));
    let unless_ignored = |i: &[Int], e: Expr| match ignored(i) {
        Some(c) => c.then(e.num(0.0), e),
        None => e,
    };
    let weight_at = |i: &[Int]| {
        let w = weight.as_ref().map_or(expr::constant_f64(t, 1.0), |w| w.at(&[class(i)]));
        unless_ignored(i, w)
    };
    let loss_at = |i: &[Int]| {
        let at: Vec<Int> = [&i[..1], &[class(i)], &i[1..]].concat();
        let v = -x.at(&at);
        let v = weight.as_ref().map_or(v, |w| v * w.at(&[class(i)]));
        unless_ignored(i, v)
    };
    match call.string("reduction", "mean".into())?.as_str() {
        "none" => Ok(cx.map(to, without, loss_at)),
        "sum" => Ok(cx.reduce(ReduceKind::Sum, to, vec![], &without, |_, r| loss_at(r))),
        "mean" => {
            let sum = cx.reduce(ReduceKind::Sum, t, vec![], &without, |_, r| loss_at(r));
            let sum = Operand::of(cx, sum);
            let by = if weight.is_none() && ignore.is_none() {
                expr::int(Int::product(&without)).to(t)
            } else {
                let total = cx.reduce(ReduceKind::Sum, t, vec![], &without, |_, r| weight_at(r));
                Operand::of(cx, total).at(&[])
            };
            Ok(cx.map(to, vec![], |_| convert(sum.at(&[]) / by, to)))
        }
        other => Err(OpError::Invalid(format!("reduction = '{other}', 'none', 'sum' or 'mean' is needed"))),
    }
}
