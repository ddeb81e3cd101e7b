//! Activation functions of recurrent operators.

use super::Call;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use crate::kernel::math;
use crate::te::{OpError, OpResult};

/// An activation function with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Activation {
    Relu,
    Tanh,
    Sigmoid,
    /// `alpha * x + beta`.
    Affine(f64, f64),
    /// `x`, or `alpha * x` below 0.
    LeakyRelu(f64),
    /// `x` from `alpha` on, else 0.
    ThresholdedRelu(f64),
    /// `alpha * tanh(beta * x)`.
    ScaledTanh(f64, f64),
    /// `alpha * x + beta` within 0 to 1.
    HardSigmoid(f64, f64),
    /// `x`, or `alpha * (exp(x) - 1)` below 0.
    Elu(f64),
    /// `x / (1 + |x|)`.
    Softsign,
    /// `log(1 + exp(x))`.
    Softplus,
}

/// The activation functions of each direction: attributes `activations`, `activation_alpha`, `activation_beta`.
pub(super) fn activations(call: &Call, directions: usize, defaults: &[Activation]) -> OpResult<Vec<Vec<Activation>>> {
    let names = match call.opt_strings("activations")? {
        None => return Ok(vec![defaults.to_vec(); directions]),
        Some(names) if names.is_empty() => return Ok(vec![defaults.to_vec(); directions]),
        Some(names) => names,
    };
    if names.len() != defaults.len() * directions {
        let needed = defaults.len() * directions;
        return Err(OpError::Invalid(format!(
            "attribute 'activations' has {} names, {needed} are needed",
            names.len()
        )));
    }
    // Parameters are listed for those functions only that have them.
    let mut alphas = call.floats("activation_alpha", vec![])?.into_iter().map(f64::from);
    let mut betas = call.floats("activation_beta", vec![])?.into_iter().map(f64::from);
    let mut all = vec![];
    for name in names {
        let mut alpha = |default: f64| alphas.next().unwrap_or(default);
        let mut beta = |default: f64| betas.next().unwrap_or(default);
        all.push(match name.to_ascii_lowercase().as_str() {
            "relu" => Activation::Relu,
            "tanh" => Activation::Tanh,
            "sigmoid" => Activation::Sigmoid,
            "affine" => Activation::Affine(alpha(1.0), beta(0.0)),
            "leakyrelu" => Activation::LeakyRelu(alpha(f64::from(0.01f32))),
            "thresholdedrelu" => Activation::ThresholdedRelu(alpha(1.0)),
            "scaledtanh" => Activation::ScaledTanh(alpha(1.0), beta(1.0)),
            "hardsigmoid" => Activation::HardSigmoid(alpha(f64::from(0.2f32)), beta(0.5)),
            "elu" => Activation::Elu(alpha(1.0)),
            "softsign" => Activation::Softsign,
            "softplus" => Activation::Softplus,
            _ => return Err(OpError::Unsupported(format!("activation function '{name}'"))),
        });
    }
    Ok(all.chunks(defaults.len()).map(<[Activation]>::to_vec).collect())
}

impl Activation {
    /// Emits the function of the lanes of `x`.
    pub(super) fn emit(self, b: &mut Builder, x: Reg) -> Reg {
        let ty = b.ty(x);
        let zero = b.float(ty, 0.0);
        let one = b.float(ty, 1.0);
        match self {
            Activation::Relu => b.max(x, zero),
            Activation::Tanh => math::tanh(b, x),
            Activation::Sigmoid => math::sigmoid(b, x),
            Activation::Affine(alpha, beta) => affine(b, x, alpha, beta),
            Activation::LeakyRelu(alpha) => {
                let scaled = scale(b, x, alpha);
                let negative = b.cmp(Cmp::Lt, x, zero);
                b.select(negative, scaled, x)
            }
            Activation::ThresholdedRelu(alpha) => {
                let alpha = b.float(ty, alpha);
                let on = b.cmp(Cmp::Ge, x, alpha);
                b.select(on, x, zero)
            }
            Activation::ScaledTanh(alpha, beta) => {
                let inner = scale(b, x, beta);
                let t = math::tanh(b, inner);
                scale(b, t, alpha)
            }
            Activation::HardSigmoid(alpha, beta) => {
                let line = affine(b, x, alpha, beta);
                let above = b.max(line, zero);
                b.min(above, one)
            }
            Activation::Elu(alpha) => {
                let low = b.min(x, zero);
                let e = math::expm1(b, low);
                let e = scale(b, e, alpha);
                let negative = b.cmp(Cmp::Lt, x, zero);
                b.select(negative, e, x)
            }
            Activation::Softsign => {
                let size = b.abs(x);
                let below = b.add(one, size);
                b.div(x, below)
            }
            Activation::Softplus => math::softplus(b, x),
        }
    }
}

fn scale(b: &mut Builder, x: Reg, by: f64) -> Reg {
    let by = b.float(b.ty(x), by);
    b.mul(x, by)
}

fn affine(b: &mut Builder, x: Reg, alpha: f64, beta: f64) -> Reg {
    let scaled = scale(b, x, alpha);
    let beta = b.float(b.ty(x), beta);
    b.add(scaled, beta)
}
