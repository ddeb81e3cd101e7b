//! One step of an optimiser for any number of tensors.

use super::operand::{Operand, need_float, need_one, same_type};
use super::{Call, Expand};
use crate::te::{Cx, Expr, OpError, OpResult, TensorId};

const TRAINING: &str = "ai.onnx.preview.training";

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[(TRAINING, "Adagrad", adagrad), (TRAINING, "Adam", adam), (TRAINING, "Momentum", momentum)];

/// Operands `R`, `T`, then `N` tensors of each of `kinds` kinds (values, gradients, state). `step` gives, for one tensor's
/// elements and `R` and `T` in its type, the new elements; output `k` of tensor `n` is output number `k * N + n`.
fn each(
    cx: &mut Cx,
    call: &Call,
    kinds: usize,
    outputs: usize,
    step: impl Fn(Expr, Expr, &[Expr]) -> Vec<Expr>,
) -> OpResult {
    let n = call.inputs.len().saturating_sub(2) / kinds;
    if n == 0 || call.inputs.len() != 2 + n * kinds {
        return Err(OpError::Invalid(format!("{} operands, 2 + N * {kinds} are needed", call.inputs.len())));
    }
    let (r, t) = (call.input(0)?, call.input(1)?);
    need_one(cx, r, "R")?;
    need_one(cx, t, "T")?;
    let (r, t) = (Operand::of(cx, r), Operand::of(cx, t));
    need_float(r.dtype)?;
    let mut out: Vec<Vec<TensorId>> = vec![vec![]; outputs];
    for k in 0..n {
        let ids: Vec<TensorId> = (0..kinds).map(|j| call.input(2 + j * n + k)).collect::<OpResult<_>>()?;
        let dtype = cx.dtype(ids[0]);
        need_float(dtype)?;
        let shape = cx.shape(ids[0]);
        for id in &ids {
            same_type(cx, ids[0], *id)?;
            let own = cx.shape(*id);
            if own.len() != shape.len() {
                return Err(OpError::Invalid(format!("ranks {} and {} of tensor and state", shape.len(), own.len())));
            }
            for (a, b) in shape.iter().zip(own) {
                cx.require_equal(*a, b, "shapes of tensor and state")?;
            }
        }
        let all: Vec<Operand> = ids.iter().map(|id| Operand::of(cx, *id)).collect();
        for (j, list) in out.iter_mut().enumerate() {
            list.push(cx.map(dtype, shape.clone(), |i| {
                let values: Vec<Expr> = all.iter().map(|x| x.at(i)).collect();
                let c = dtype.compute();
                step(r.only().to(c), t.only().to(c), &values)[j]
            }));
        }
    }
    Ok(out.concat())
}

fn param(call: &Call, name: &str, default: f32) -> OpResult<f64> {
    Ok(f64::from(call.float(name, default)?))
}

fn needed(call: &Call, name: &str) -> OpResult<f64> {
    let v = call.opt_float(name)?.ok_or_else(|| OpError::Invalid(format!("attribute '{name}' is missing")))?;
    Ok(f64::from(v))
}

fn adagrad(cx: &mut Cx, call: &Call) -> OpResult {
    let norm = param(call, "norm_coefficient", 0.0)?;
    let (decay, epsilon) = (param(call, "decay_factor", 0.0)?, param(call, "epsilon", 1e-6)?);
    each(cx, call, 3, 2, |r, t, values| {
        let (x, g, h) = (values[0], values[1], values[2]);
        let rate = r / (x.num(1.0) + t * x.num(decay));
        let g = x.num(norm) * x + g;
        let h = h + g * g;
        vec![x - rate * g / (h.sqrt() + x.num(epsilon)), h]
    })
}

fn adam(cx: &mut Cx, call: &Call) -> OpResult {
    let (alpha, beta) = (param(call, "alpha", 0.9)?, param(call, "beta", 0.999)?);
    let epsilon = param(call, "epsilon", 1e-6)?;
    let (norm, post) = (param(call, "norm_coefficient", 0.0)?, param(call, "norm_coefficient_post", 0.0)?);
    each(cx, call, 4, 3, |r, t, values| {
        let (x, g, v, h) = (values[0], values[1], values[2], values[3]);
        let one = x.num(1.0);
        let g = x.num(norm) * x + g;
        let v = x.num(alpha) * v + x.num(1.0 - alpha) * g;
        let h = x.num(beta) * h + x.num(1.0 - beta) * (g * g);
        let corrected = r * (one - x.num(beta).pow(t)).sqrt() / (one - x.num(alpha).pow(t));
        let rate = t.gt_(x.num(0.0)).then(corrected, r);
        let stepped = x - rate * v / (h.sqrt() + x.num(epsilon));
        vec![x.num(1.0 - post) * stepped, v, h]
    })
}

fn momentum(cx: &mut Cx, call: &Call) -> OpResult {
    let (alpha, beta) = (needed(call, "alpha")?, needed(call, "beta")?);
    let norm = needed(call, "norm_coefficient")?;
    let nesterov = match call.string("mode", String::new())?.as_str() {
        "standard" => false,
        "nesterov" => true,
        other => return Err(OpError::Invalid(format!("mode = '{other}', 'standard' or 'nesterov' is needed"))),
    };
    each(cx, call, 3, 2, |r, t, values| {
        let (x, g, v) = (values[0], values[1], values[2]);
        let g = x.num(norm) * x + g;
        let scale = t.gt_(x.num(0.0)).then(x.num(beta), x.num(1.0));
        let v = x.num(alpha) * v + scale * g;
        let step = if nesterov { g + x.num(alpha) * v } else { v };
        vec![x - r * step, v]
    })
}
