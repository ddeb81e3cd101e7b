//! Activation functions.

use super::operand::{Operand, need_float, same_type};
use super::unary::{float, number, same};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::{Cx, Expr, OpError, OpResult, expr};
use core::f64::consts::{FRAC_1_SQRT_2, PI};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Relu", |cx, c| number(cx, c, |x| x.max_(x.num(0.0)))),
    ("", "LeakyRelu", |cx, c| {
        let alpha = param(c, "alpha", 0.01)?;
        float(cx, c, |x| x.lt_(x.num(0.0)).then(x * x.num(alpha), x))
    }),
    ("", "ThresholdedRelu", |cx, c| {
        let alpha = param(c, "alpha", 1.0)?;
        float(cx, c, |x| x.gt_(x.num(alpha)).then(x, x.num(0.0)))
    }),
    ("", "Elu", |cx, c| {
        let alpha = param(c, "alpha", 1.0)?;
        float(cx, c, |x| x.lt_(x.num(0.0)).then(x.num(alpha) * x.exp_m1(), x))
    }),
    ("", "Selu", selu),
    ("", "Celu", |cx, c| {
        let alpha = param(c, "alpha", 1.0)?;
        float(cx, c, |x| x.lt_(x.num(0.0)).then(x.num(alpha) * (x / x.num(alpha)).exp_m1(), x))
    }),
    ("", "Sigmoid", |cx, c| float(cx, c, sigmoid)),
    ("", "HardSigmoid", |cx, c| {
        let (alpha, beta) = (param(c, "alpha", 0.2)?, param(c, "beta", 0.5)?);
        float(cx, c, |x| hard_sigmoid(x, alpha, beta))
    }),
    ("", "HardSwish", |cx, c| float(cx, c, |x| x * hard_sigmoid(x, 1.0 / 6.0, 0.5))),
    ("", "Softplus", |cx, c| float(cx, c, softplus)),
    ("", "Softsign", |cx, c| float(cx, c, |x| x / (x.num(1.0) + x.abs()))),
    ("", "Mish", |cx, c| float(cx, c, |x| x * softplus(x).tanh())),
    ("", "Swish", |cx, c| {
        let alpha = param(c, "alpha", 1.0)?;
        float(cx, c, |x| swish(x, alpha))
    }),
    ("", "SwiGLU", swiglu),
    ("", "Shrink", shrink),
    ("", "Gelu", gelu),
    (MS, "Gelu", |cx, c| float(cx, c, gelu_erf)),
    (MS, "QuickGelu", |cx, c| {
        let alpha = param(c, "alpha", 1.702)?;
        float(cx, c, |x| swish(x, alpha))
    }),
    (MS, "BiasGelu", |cx, c| biased(cx, c, true, gelu_erf)),
    (MS, "FastGelu", |cx, c| biased(cx, c, false, gelu_tanh)),
];

fn param(call: &Call, name: &str, default: f32) -> OpResult<f64> {
    Ok(f64::from(call.float(name, default)?))
}

/// `1 / (1 + exp(-x))`.
pub(super) fn sigmoid(x: Expr) -> Expr {
    x.num(1.0) / (x.num(1.0) + (-x).exp())
}

/// `log(1 + exp(x))` without overflow.
pub(super) fn softplus(x: Expr) -> Expr {
    x.max_(x.num(0.0)) + (-x.abs()).exp().ln_1p()
}

fn hard_sigmoid(x: Expr, alpha: f64, beta: f64) -> Expr {
    (x * x.num(alpha) + x.num(beta)).min_(x.num(1.0)).max_(x.num(0.0))
}

fn swish(x: Expr, alpha: f64) -> Expr {
    x * sigmoid(if alpha == 1.0 { x } else { x * x.num(alpha) })
}

pub(super) fn gelu_erf(x: Expr) -> Expr {
    x.num(0.5) * x * (x.num(1.0) + (x * x.num(FRAC_1_SQRT_2)).erf())
}

pub(super) fn gelu_tanh(x: Expr) -> Expr {
    let inner = x.num((2.0 / PI).sqrt()) * (x + x.num(0.044_715) * (x * x * x));
    x.num(0.5) * x * (x.num(1.0) + inner.tanh())
}

fn gelu(cx: &mut Cx, call: &Call) -> OpResult {
    match call.string("approximate", "none".into())?.as_str() {
        "none" => float(cx, call, gelu_erf),
        "tanh" => float(cx, call, gelu_tanh),
        other => Err(OpError::Invalid(format!("approximate = '{other}', 'none' or 'tanh' is needed"))),
    }
}

/// The first version's defaults have fewer digits.
fn selu(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, g) = if call.version < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    let (alpha, gamma) = (param(call, "alpha", a)?, param(call, "gamma", g)?);
    float(cx, call, |x| x.num(gamma) * x.lt_(x.num(0.0)).then(x.num(alpha) * x.exp_m1(), x))
}

/// For ints the threshold and the bias act on the value as a float, which is then truncated.
fn shrink(cx: &mut Cx, call: &Call) -> OpResult {
    let (lambd, bias) = (param(call, "lambd", 0.5)?, param(call, "bias", 0.0)?);
    number(cx, call, |x| {
        super::unary::through_float(x, |x| {
            let low = x.lt_(x.num(-lambd)).then(x + x.num(bias), x.num(0.0));
            x.gt_(x.num(lambd)).then(x - x.num(bias), low)
        })
    })
}

fn swiglu(cx: &mut Cx, call: &Call) -> OpResult {
    let alpha = param(call, "alpha", 1.0)?;
    let (a, b) = (call.input(0)?, call.input(1)?);
    need_float(same_type(cx, a, b)?)?;
    let (a, b) = (Operand::of(cx, a), Operand::of(cx, b));
    if a.rank() != b.rank() {
        return Err(OpError::Invalid(format!("gate of rank {} and value of rank {}", a.rank(), b.rank())));
    }
    for (x, y) in a.shape.iter().zip(&b.shape) {
        cx.require_equal(*x, *y, "shapes of gate and value")?;
    }
    // The gate is a tensor of its own in the definition, hence rounded to a half type.
    let dtype = a.dtype;
    Ok(vec![cx.map(dtype, a.shape.clone(), |i| rounded(dtype, swish(a.at(i), alpha)) * b.at(i))])
}

/// Rounds to the precision of a half type.
fn rounded(dtype: DType, e: Expr) -> Expr {
    if dtype == dtype.compute() { e } else { expr::cast(dtype, e) }
}

/// `f(x + bias)`, the bias broadcasting to `x`.
fn biased(cx: &mut Cx, call: &Call, needed: bool, f: impl FnOnce(Expr) -> Expr) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let bias = if needed { Some(call.input(1)?) } else { call.opt(1) };
    let Some(bias) = bias else { return same(cx, &x, f) };
    same_type(cx, x.id, bias)?;
    let bias = Operand::of(cx, bias);
    super::binary::require_spreads(cx, &bias, &x, "bias")?;
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| f(x.at(i) + bias.spread(i)))])
}
