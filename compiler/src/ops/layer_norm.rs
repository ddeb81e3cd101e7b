//! Normalisation over the last axes: layer and root-mean-square normalisation, and their fused forms.

use super::axes::{Axes, Space};
use super::batch_norm::stash;
use super::binary::require_spreads;
use super::moments::{inverse_root, mean_over, moments};
use super::operand::{Operand, convert, need_float, onnx_type, same_type};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "LayerNormalization", layer),
    ("", "RMSNormalization", |cx, c| rms(cx, c, false)),
    // onnxruntime writes this one into either domain.
    ("", "SimplifiedLayerNormalization", |cx, c| rms(cx, c, true)),
    (MS, "SimplifiedLayerNormalization", |cx, c| rms(cx, c, true)),
    (MS, "SkipLayerNormalization", |cx, c| skip(cx, c, true)),
    (MS, "SkipSimplifiedLayerNormalization", |cx, c| skip(cx, c, false)),
];

/// What is normalised and how.
struct Norm {
    x: Operand,
    space: Space,
    /// Type of the statistics.
    t: DType,
    epsilon: f32,
    scale: Option<Operand>,
    bias: Option<Operand>,
}

fn norm(cx: &mut Cx, call: &Call) -> OpResult<Norm> {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let first = cx.axis(call.int("axis", -1)?, x.rank())?;
    let space = Space::new(&x.shape, &Axes::from(first, x.rank()), true);
    Ok(Norm { t: stash(call, x.dtype)?, space, epsilon: call.float("epsilon", 1e-5)?, scale: None, bias: None, x })
}

/// A parameter that broadcasts to `x`.
fn param(cx: &mut Cx, t: Option<TensorId>, x: &Operand, what: &str) -> OpResult<Option<Operand>> {
    let Some(t) = t else { return Ok(None) };
    let p = Operand::of(cx, t);
    need_float(p.dtype)?;
    require_spreads(cx, &p, x, what)?;
    Ok(Some(p))
}

/// The normalised tensor, and the statistics: mean (unless it is taken as zero) and inverse deviation.
fn normalise(cx: &mut Cx, n: &Norm, center: bool) -> (TensorId, Option<Operand>, Operand) {
    let (x, t) = (&n.x, n.t);
    let (mean, var) = if center {
        let (mean, var) = moments(cx, x, &n.space, t);
        (Some(mean), var)
    } else {
        let square = mean_over(cx, &n.space, t, |i, r| {
            let v = x.at(&n.space.index(i, r)).to(t);
            v * v
        });
        (None, square)
    };
    let inv = inverse_root(cx, &var, n.epsilon);
    let y = cx.map(x.dtype, x.shape.clone(), |i| {
        let s = n.space.result_index(i);
        let v = x.at(i).to(t);
        let mut v = mean.as_ref().map_or(v, |m| v - m.at(&s)) * inv.at(&s);
        v = n.scale.as_ref().map_or(v, |p| v * p.spread(i).to(t));
        v = n.bias.as_ref().map_or(v, |p| v + p.spread(i).to(t));
        convert(v, x.dtype)
    });
    (y, mean, inv)
}

/// A statistic as an output of type `to`.
fn stored(cx: &mut Cx, s: &Operand, to: DType) -> TensorId {
    if s.dtype == to { s.id } else { cx.map(to, s.shape.clone(), |i| convert(s.at(i), to)) }
}

fn layer(cx: &mut Cx, call: &Call) -> OpResult {
    let mut n = norm(cx, call)?;
    n.scale = param(cx, Some(call.input(1)?), &n.x, "scale")?;
    n.bias = param(cx, call.opt(2), &n.x, "bias")?;
    let (y, mean, inv) = normalise(cx, &n, true);
    let to = onnx_type(call.int("stash_type", 1)?)?;
    let mut out = vec![y];
    for s in mean.iter().chain([&inv]) {
        out.push(stored(cx, s, to));
    }
    Ok(out)
}

/// onnxruntime's form gives the inverse deviation as second output.
fn rms(cx: &mut Cx, call: &Call, second: bool) -> OpResult {
    let mut n = norm(cx, call)?;
    n.scale = param(cx, Some(call.input(1)?), &n.x, "scale")?;
    let (y, _, inv) = normalise(cx, &n, false);
    let mut out = vec![y];
    if second && call.wants(1) {
        let to = onnx_type(call.int("stash_type", 1)?)?;
        out.push(stored(cx, &inv, to));
    }
    Ok(out)
}

/// `input + skip + bias`, then normalisation over the last axis. Outputs: result, mean, inverse deviation, sum.
fn skip(cx: &mut Cx, call: &Call, center: bool) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() == 0 {
        return Err(OpError::Invalid("a scalar can't be normalised".into()));
    }
    let mut terms = vec![];
    for (k, what) in [(Some(1), "skip"), (Some(if center { 4 } else { 3 }), "bias")] {
        let t = k.and_then(|k| call.opt(k));
        if k == Some(1) && t.is_none() {
            return Err(OpError::Invalid("skip is missing".into()));
        }
        if let Some(p) = param(cx, t, &x, what)? {
            same_type(cx, x.id, p.id)?;
            terms.push(p);
        }
    }
    let sum_at = |i: &[_]| -> Expr { terms.iter().fold(x.at(i), |s, p| s + p.spread(i)) };
    let sum = cx.map(x.compute(), x.shape.clone(), sum_at);
    let sum_out = if call.wants(3) && x.dtype != x.compute() { cx.map(x.dtype, x.shape.clone(), sum_at) } else { sum };
    // The statistics come from the sum before it is rounded to a half type.
    let wide = Operand::of(cx, sum);
    let space = Space::new(&x.shape, &Axes::from(x.rank() - 1, x.rank()), true);
    let scale = param(cx, Some(call.input(2)?), &x, "gamma")?;
    let bias = if center { param(cx, call.opt(3), &x, "beta")? } else { None };
    let n = Norm { t: wide.dtype, x: wide, space, epsilon: call.float("epsilon", 1e-12)?, scale, bias };
    let (y, mean, inv) = normalise(cx, &n, center);
    let y = if x.dtype == n.t {
        y
    } else {
        let y = Operand::of(cx, y);
        cx.map(x.dtype, x.shape.clone(), |i| y.at(i))
    };
    let mean = mean.map_or(inv.id, |m| m.id);
    if !center && call.wants(1) {
        return Err(OpError::Unsupported("output 'mean' of a normalisation without mean".into()));
    }
    Ok(vec![y, mean, inv.id, sum_out])
}
