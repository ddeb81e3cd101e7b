//! Activation functions that are more than one library function.

use super::erf::erf;
use super::exp::exp;
use super::hyper::tanh;
use super::log::log1p;
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// `1 / (1 + e^-x)`, exact to the last places where it is small, too.
pub fn sigmoid(b: &mut Builder, x: Reg) -> Reg {
    let den = sigmoid_den(b, x);
    let f = &mut Float::of(b, x);
    let one = f.c(1.0);
    f.div(one, den)
}

/// `x · sigmoid(x)`, also called swish.
pub fn silu(b: &mut Builder, x: Reg) -> Reg {
    let den = sigmoid_den(b, x);
    b.div(x, den)
}

/// `ln(1 + e^x)` without overflow.
pub fn softplus(b: &mut Builder, x: Reg) -> Reg {
    let a = b.abs(x);
    let minus = b.neg(a);
    let e = exp(b, minus);
    let l = log1p(b, e);
    let f = &mut Float::of(b, x);
    let positive = f.at_least(x, 0.0);
    f.add(positive, l)
}

/// `x · tanh(softplus(x))`.
pub fn mish(b: &mut Builder, x: Reg) -> Reg {
    let s = softplus(b, x);
    let t = tanh(b, s);
    b.mul(x, t)
}

/// `x/2 · (1 + erf(x / √2))`.
pub fn gelu(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let scaled = f.mulc(x, FRAC_1_SQRT_2);
    let e = erf(f.b, scaled);
    halved_times_one_plus(f, x, e)
}

/// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
pub fn gelu_tanh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let root = FRAC_2_PI.sqrt();
    let z = f.mul(x, x);
    let factor = f.c(root);
    let factor = f.fmac(z, 0.044715 * root, factor);
    let argument = f.mul(x, factor);
    let t = tanh(f.b, argument);
    halved_times_one_plus(f, x, t)
}

/// `x/2 · (1 + t)`; 0 for x = -∞, where t is -1.
fn halved_times_one_plus(f: &mut Float<'_>, x: Reg, t: Reg) -> Reg {
    let half = f.mulc(x, 0.5);
    let y = f.fma(half, t, half);
    let below = f.cmpc(Cmp::Eq, x, f64::NEG_INFINITY);
    let zero = f.c(0.0);
    f.select(below, zero, y)
}

fn sigmoid_den(b: &mut Builder, x: Reg) -> Reg {
    let minus = b.neg(x);
    let e = exp(b, minus);
    let f = &mut Float::of(b, x);
    f.addc(e, 1.0)
}
