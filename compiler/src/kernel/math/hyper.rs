//! Hyperbolic functions and their inverses.

use super::coeffs::{SINH_F32, SINH_F64, TANH_F32_DEN, TANH_F32_NUM};
use super::exp::{expm1, scaled};
use super::log::log1p;
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::LN_2;

/// Hyperbolic sine.
pub fn sinh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let z = f.mul(a, a);
    let p = f.poly(z, f.pick(&SINH_F32[..], &SINH_F64));
    let cube = f.mul(z, a);
    let near = f.fma(cube, p, a);
    let (half, tail) = half_exp(f, a);
    let far = f.sub(half, tail);
    let small = f.cmpc(Cmp::Lt, a, 1.0);
    let y = f.select(small, near, far);
    f.flip_sign(y, sign)
}

/// Hyperbolic cosine.
pub fn cosh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let a = f.b.abs(x);
    let (half, tail) = half_exp(f, a);
    f.add(half, tail)
}

/// Hyperbolic tangent.
pub fn tanh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    if f.single() {
        // The largest `f32` below 1 is taken before this bound, and nothing beyond it.
        let x1 = f.at_most(x, 9.02);
        let x1 = f.at_least(x1, -9.02);
        let z = f.mul(x1, x1);
        let (num, den) = (f.poly(z, &TANH_F32_NUM), f.poly(z, &TANH_F32_DEN));
        let num = f.mul(x1, num);
        let y = f.div(num, den);
        let y = f.at_most(y, 1.0);
        return f.at_least(y, -1.0);
    }
    let (a, sign) = f.split_sign(x);
    let minus = f.mulc(a, -2.0);
    let e = expm1(f.b, minus);
    let den = f.addc(e, 2.0);
    let y = f.div(e, den);
    let y = f.b.abs(y);
    f.flip_sign(y, sign)
}

/// Inverse hyperbolic sine.
pub fn asinh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    // asinh a = log1p(a + a² / (1 + √(a² + 1))); for large a it is ln 2a.
    let z = f.mul(a, a);
    let root = f.addc(z, 1.0);
    let root = f.b.sqrt(root);
    let den = f.addc(root, 1.0);
    let quotient = f.div(z, den);
    let near = f.add(a, quotient);
    let y = log1p_or_doubled(f, a, near);
    f.flip_sign(y, sign)
}

/// Inverse hyperbolic cosine, NaN below 1.
pub fn acosh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let t = f.addc(x, -1.0);
    let square = f.addc(t, 2.0);
    let square = f.mul(t, square);
    let root = f.b.sqrt(square);
    let near = f.add(t, root);
    let y = log1p_or_doubled(f, x, near);
    let (outside, nan) = (f.cmpc(Cmp::Lt, x, 1.0), f.c(f64::NAN));
    f.select(outside, nan, y)
}

/// Inverse hyperbolic tangent, ±∞ at ±1 and NaN beyond.
pub fn atanh(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let (num, den) = (f.add(a, a), f.csub(1.0, a));
    let ratio = f.div(num, den);
    let y = log1p(f.b, ratio);
    let y = f.mulc(y, 0.5);
    f.flip_sign(y, sign)
}

/// `e^a / 2` and `e^-a / 2`, which overflow only where hyperbolic sine and cosine do.
fn half_exp(f: &mut Float<'_>, a: Reg) -> (Reg, Reg) {
    let half = scaled(f, a, -1);
    let quarter = f.c(0.25);
    (half, f.div(quarter, half))
}

/// `log1p(near)`, or for large `a` the logarithm of `2 a`.
fn log1p_or_doubled(f: &mut Float<'_>, a: Reg, near: Reg) -> Reg {
    let large = f.cmpc(Cmp::Gt, a, f.pick(1e10, 1e17));
    let argument = f.select(large, a, near);
    let y = log1p(f.b, argument);
    let doubled = f.addc(y, LN_2);
    f.select(large, doubled, y)
}
