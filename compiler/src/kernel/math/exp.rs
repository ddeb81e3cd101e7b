//! Exponentials: `e^x = 2^n · e^r` with `n` the integer nearest to `x / ln 2` and |r| ≤ ln 2 / 2.

use super::coeffs::{EXP_F32, EXP_F64, LN2_HI_F32, LN2_HI_F64, LN2_LO_F32, LN2_LO_F64};
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::{LN_2, LOG2_E};

/// `e^x`. Results below 2^-125 (`F64`: 2^-1021) are 0.
pub fn exp(b: &mut Builder, x: Reg) -> Reg {
    scaled(&mut Float::of(b, x), x, 0)
}

/// `2^x`. Results below 2^-125 (`F64`: 2^-1021) are 0.
pub fn exp2(b: &mut Builder, x: Reg) -> Reg {
    let mut f = Float::of(b, x);
    let x = clamp(&mut f, x, 1.0, 0);
    let (n, scale) = nearest(&mut f, x, 1.0, 0);
    let r = f.sub(x, n);
    let r = f.mulc(r, LN_2);
    times_exp(&mut f, r, scale)
}

/// `e^x - 1`, exact to the last places near 0 too.
pub fn expm1(b: &mut Builder, x: Reg) -> Reg {
    let mut f = Float::of(b, x);
    let clamped = clamp(&mut f, x, LN_2, 0);
    let (n, scale) = nearest(&mut f, clamped, LOG2_E, 0);
    let r = reduced(&mut f, clamped, n);
    let q = f.poly(r, f.pick(&EXP_F32[..], &EXP_F64));
    let rr = f.mul(r, r);
    let v = f.fma(rr, q, r);
    // 2 (s v + (s - 1/2)) with s = 2^(n-1), so that 2^n does not overflow before the result does.
    let shifted = f.addc(scale, -0.5);
    let half = f.fma(scale, v, shifted);
    let y = f.add(half, half);
    // Keeps the sign of zero.
    let zero = f.cmpc(Cmp::Eq, x, 0.0);
    f.select(zero, x, y)
}

/// `e^x · 2^e` for `e` 0 or -1, which overflows only where the result does.
pub(super) fn scaled(f: &mut Float<'_>, x: Reg, e: i32) -> Reg {
    let x = clamp(f, x, LN_2, e);
    let (n, scale) = nearest(f, x, LOG2_E, e);
    let r = reduced(f, x, n);
    times_exp(f, r, scale)
}

/// `2^(x + tail)` for a small `tail` and x from -1022.4 to 1024.2.
pub(super) fn exp2_sum(f: &mut Float<'_>, x: Reg, tail: Reg) -> Reg {
    let (n, scale) = nearest(f, x, 1.0, 0);
    let r = f.sub(x, n);
    let r = f.add(r, tail);
    let r = f.mulc(r, LN_2);
    times_exp(f, r, scale)
}

/// `x` limited to where the scale's exponent field neither wraps nor is negative. `unit` is what one power of two is worth.
fn clamp(f: &mut Float<'_>, x: Reg, unit: f64, e: i32) -> Reg {
    // Below the lower limit the scale is 0; the upper one overflows for any remainder.
    let lowest = f.pick(-126.4, -1022.4) - e as f64;
    let highest = f.pick(128.4, 1024.2) - e as f64;
    let x = f.at_most(x, highest * unit);
    f.at_least(x, lowest * unit)
}

/// `n`, the integer nearest to `x · factor`, and the float 2^(n - 1 + e).
fn nearest(f: &mut Float<'_>, x: Reg, factor: f64, e: i32) -> (Reg, Reg) {
    // The rounder holds the exponent's bias as well, so that the sum's low bits are the scale's exponent field.
    let rounder = f.rounder() + f.bias() as f64 - 1.0 + e as f64;
    let c = f.c(rounder);
    let sum = f.fmac(x, factor, c);
    let n = f.sub(sum, c);
    let bits = f.bits(sum);
    let shift = f.bits_c(f.mantissa() as u64);
    let field = f.b.shl(bits, shift);
    (n, f.float(field))
}

/// `x - n ln 2`.
fn reduced(f: &mut Float<'_>, x: Reg, n: Reg) -> Reg {
    let r = f.fmac(n, -f.pick(LN2_HI_F32, LN2_HI_F64), x);
    f.fmac(n, -f.pick(LN2_LO_F32, LN2_LO_F64), r)
}

/// `2 e^r · scale`.
fn times_exp(f: &mut Float<'_>, r: Reg, scale: Reg) -> Reg {
    let coeffs = f.pick(&EXP_F32[..], &EXP_F64);
    let doubled: Vec<f64> = [1.0, 1.0].iter().chain(coeffs).map(|c| 2.0 * c).collect();
    let p = f.poly(r, &doubled);
    f.mul(p, scale)
}
