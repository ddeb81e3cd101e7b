//! Logarithms: `ln x = k ln 2 + ln m` with m from √½ to √2.

use super::coeffs::{LN2_HI_F32, LN2_HI_F64, LN2_LO_F32, LN2_LO_F64, LOG_F32, LOG_F64};
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};

/// Natural logarithm: -∞ at 0, NaN below.
pub fn log(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (k, m) = split_positive(f, x);
    let m1 = f.addc(m, -1.0);
    let y = of_parts(f, k, m1);
    let y = limits(f, y, x);
    domain(f, y, x)
}

/// `ln(1 + x)`, exact to the last places near 0 too.
pub fn log1p(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let one = f.c(1.0);
    let (u, lost) = f.two_sum(one, x);
    let parts = split(f, u);
    // 2^-k times what 1 + x lost. Where x is huge, it lost nothing that counts, and 2^-k has no exponent field.
    let (twice_bias, mantissa) = (2 * f.bias(), f.mantissa() as u64);
    let (c, shift) = (f.bits_c(twice_bias), f.bits_c(mantissa));
    let field = f.b.sub(c, parts.field);
    let inverse = f.b.shl(field, shift);
    let inverse = f.float(inverse);
    let m1 = f.addc(parts.m, -1.0);
    let exact = f.fma(lost, inverse, m1);
    let moderate = f.cmpc(Cmp::Lt, x, f.pick(1e15, 1e30));
    let m1 = f.select(moderate, exact, m1);
    let y = of_parts(f, parts.k, m1);
    let y = limits(f, y, u);
    let y = domain(f, y, u);
    let zero = f.cmpc(Cmp::Eq, x, 0.0);
    f.select(zero, x, y)
}

/// `k` and `m` with `x = 2^k m` and m from √½ to √2, for positive finite `x`.
pub(super) fn split_positive(f: &mut Float<'_>, x: Reg) -> (Reg, Reg) {
    let (scaled, shift) = normal(f, x);
    let parts = split(f, scaled);
    (f.add(parts.k, shift), parts.m)
}

/// A positive number without denormals in it, and what that adds to its logarithm to base 2.
fn normal(f: &mut Float<'_>, x: Reg) -> (Reg, Reg) {
    let small = f.cmpc(Cmp::Lt, x, f.pick(f32::MIN_POSITIVE as f64, f64::MIN_POSITIVE));
    let bits = f.mantissa() as i32 + 1;
    let grown = f.mulc(x, 2f64.powi(bits));
    let (shift, zero) = (f.c(-bits as f64), f.c(0.0));
    (f.select(small, grown, x), f.select(small, shift, zero))
}

struct Parts {
    /// The exponent.
    k: Reg,
    /// `k` and the exponent's bias, as integer.
    field: Reg,
    /// From √½ to √2.
    m: Reg,
}

/// Splits a positive normal number.
fn split(f: &mut Float<'_>, x: Reg) -> Parts {
    let (mantissa, bias) = (f.mantissa(), f.bias());
    let one = bias << mantissa;
    // The mantissa of √½ is subtracted and that of 1 added: the exponent field then steps at √½ 2^k.
    let root_half = f.pick(0x3f35_04f3, 0x3fe6_a09e_667f_3bcd);
    let bits = f.bits(x);
    let (offset, shift, one_bits) = (f.bits_c(one - root_half), f.bits_c(mantissa as u64), f.bits_c(one));
    let moved = f.b.add(bits, offset);
    let field = f.b.shr(moved, shift);
    let exponent = f.b.shl(field, shift);
    let m = f.b.sub(bits, exponent);
    let m = f.b.add(m, one_bits);
    // An integer in the low bits of 2^mantissa is that much added to it.
    let big = f.pick(8388608.0, 4503599627370496.0);
    let big_bits = f.pick((8388608f32).to_bits() as u64, 4503599627370496f64.to_bits());
    let big_bits = f.bits_c(big_bits);
    let k = f.b.or(field, big_bits);
    let k = f.float(k);
    let k = f.addc(k, -(big + bias as f64));
    Parts { k, field, m: f.float(m) }
}

/// `k ln 2 + ln(1 + m1)`.
fn of_parts(f: &mut Float<'_>, k: Reg, m1: Reg) -> Reg {
    let half = f.mulc(m1, 0.5);
    let square = f.mul(half, m1);
    // ln(1 + m1) = m1 - (square - rest).
    let rest = if f.single() {
        let p = f.poly(m1, &LOG_F32);
        let cube = f.mul(m1, m1);
        let cube = f.mul(cube, m1);
        f.mul(cube, p)
    } else {
        let den = f.addc(m1, 2.0);
        let s = f.div(m1, den);
        let z = f.mul(s, s);
        let p = f.poly(z, &LOG_F64);
        let p = f.fma(z, p, square);
        f.mul(s, p)
    };
    let rest = f.fmac(k, f.pick(LN2_LO_F32, LN2_LO_F64), rest);
    let minus = f.sub(square, rest);
    let y = f.sub(m1, minus);
    f.fmac(k, f.pick(LN2_HI_F32, LN2_HI_F64), y)
}

/// ∞ and NaN are their own logarithms.
fn limits(f: &mut Float<'_>, y: Reg, x: Reg) -> Reg {
    let finite = f.cmpc(Cmp::Lt, x, f64::INFINITY);
    f.select(finite, y, x)
}

fn domain(f: &mut Float<'_>, y: Reg, x: Reg) -> Reg {
    let (zero, negative) = (f.cmpc(Cmp::Eq, x, 0.0), f.cmpc(Cmp::Lt, x, 0.0));
    let (minus_inf, nan) = (f.c(f64::NEG_INFINITY), f.c(f64::NAN));
    let y = f.select(zero, minus_inf, y);
    f.select(negative, nan, y)
}
