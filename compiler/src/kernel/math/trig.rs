//! Sine, cosine, tangent. The argument is reduced by multiples of π/2 in `F64`; `F32` functions stay in it until the last
//! rounding.

use super::coeffs::{COS_F64, COS_SHORT, HALF_PI_PARTS, SIN_F64, SIN_SHORT};
use super::parts::Float;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::FRAC_2_PI;

/// Sine.
pub fn sin(b: &mut Builder, x: Reg) -> Reg {
    rounded(b, x, |f, q| {
        let (odd, s, c) = (q.odd(f), q.sin(f), q.cos(f));
        let y = f.select(odd, c, s);
        let sign = q.bit_as_sign(f, 1);
        let y = f.flip_sign(y, sign);
        q.or_zero(f, y)
    })
}

/// Cosine.
pub fn cos(b: &mut Builder, x: Reg) -> Reg {
    rounded(b, x, |f, q| {
        let (odd, s, c) = (q.odd(f), q.sin(f), q.cos(f));
        let y = f.select(odd, s, c);
        // Negative in the second and third quadrant: bit 1 of the number plus one.
        let one = f.bits_c(1);
        let next = f.b.add(q.number, one);
        let sign = Quadrant { number: next, ..q }.bit_as_sign(f, 1);
        f.flip_sign(y, sign)
    })
}

/// Sine and cosine of one argument; what they share is computed once, as the builder sees to.
pub fn sin_cos(b: &mut Builder, x: Reg) -> (Reg, Reg) {
    (sin(b, x), cos(b, x))
}

/// Tangent.
pub fn tan(b: &mut Builder, x: Reg) -> Reg {
    rounded(b, x, |f, q| {
        let (odd, s, c) = (q.odd(f), q.sin(f), q.cos(f));
        let (num, den) = (f.select(odd, c, s), f.select(odd, s, c));
        let y = f.div(num, den);
        let sign = q.bit_as_sign(f, 0);
        let y = f.flip_sign(y, sign);
        q.or_zero(f, y)
    })
}

/// The result of `function` for the reduced argument, in the type of `x`.
fn rounded(b: &mut Builder, x: Reg, function: impl Fn(&mut Float<'_>, Quadrant) -> Reg) -> Reg {
    let short = Float::of(b, x).single();
    let wide = b.cast(DType::F64, x);
    let f = &mut Float::of(b, wide);
    let quadrant = Quadrant::of(f, wide, short);
    let y = function(f, quadrant);
    if short { b.cast(DType::F32, y) } else { y }
}

/// `x = number · π/2 + (r + tail)`.
#[derive(Clone, Copy)]
struct Quadrant {
    x: Reg,
    number: Reg,
    r: Reg,
    tail: Option<Reg>,
    short: bool,
}

impl Quadrant {
    fn of(f: &mut Float<'_>, x: Reg, short: bool) -> Quadrant {
        let rounder = f.c(f.rounder());
        let sum = f.fmac(x, FRAC_2_PI, rounder);
        let n = f.sub(sum, rounder);
        let number = f.bits(sum);
        let [first, second, third, fourth] = HALF_PI_PARTS;
        let r = f.fmac(n, -first, x);
        let (r, tail) = if short {
            let r = f.fmac(n, -second, r);
            (f.fmac(n, -third, r), None)
        } else {
            let (second, third) = (f.mulc(n, -second), f.mulc(n, -third));
            let (r, lost) = f.two_sum(r, second);
            let (r, more) = f.two_sum(r, third);
            let tail = f.fmac(n, -fourth, lost);
            let tail = f.add(tail, more);
            let (r, tail) = f.fast_two_sum(r, tail);
            let size = f.b.abs(tail);
            let (usual, zero) = (f.cmpc(Cmp::Lt, size, 1e-15), f.c(0.0));
            (r, Some(f.select(usual, tail, zero)))
        };
        // Only arguments that are too large for the reduction exceed these bounds; their result shall be bounded too.
        let r = f.at_most(r, 0.8);
        let r = f.at_least(r, -0.8);
        Quadrant { x, number, r, tail, short }
    }

    /// Keeps the sign of a zero argument.
    fn or_zero(&self, f: &mut Float<'_>, y: Reg) -> Reg {
        let zero = f.cmpc(Cmp::Eq, self.x, 0.0);
        f.select(zero, self.x, y)
    }

    fn odd(&self, f: &mut Float<'_>) -> Reg {
        let (one, zero) = (f.bits_c(1), f.bits_c(0));
        let bit = f.b.and(self.number, one);
        f.b.cmp(Cmp::Ne, bit, zero)
    }

    /// A bit of the quadrant's number, moved to the place of the sign.
    fn bit_as_sign(&self, f: &mut Float<'_>, bit: u64) -> Reg {
        let (mask, shift) = (f.bits_c(1 << bit), f.bits_c(63 - bit));
        let bit = f.b.and(self.number, mask);
        f.b.shl(bit, shift)
    }

    fn sin(&self, f: &mut Float<'_>) -> Reg {
        let z = f.mul(self.r, self.r);
        let p = f.poly(z, if self.short { &SIN_SHORT[..] } else { &SIN_F64 });
        let cube = f.mul(z, self.r);
        let Some(tail) = self.tail else {
            return f.fma(cube, p, self.r);
        };
        // sin(r + tail) = sin r + tail cos r, where cos r is near enough to 1 - z/2.
        let one = f.c(1.0);
        let slope = f.fmac(z, -0.5, one);
        let small = f.mul(tail, slope);
        let small = f.fma(cube, p, small);
        f.add(self.r, small)
    }

    fn cos(&self, f: &mut Float<'_>) -> Reg {
        let z = f.mul(self.r, self.r);
        let p = f.poly(z, if self.short { &COS_SHORT[..] } else { &COS_F64 });
        let one = f.c(1.0);
        let zz = f.mul(z, z);
        let half = f.mulc(z, 0.5);
        let head = f.sub(one, half);
        let Some(tail) = self.tail else {
            return f.fma(zz, p, head);
        };
        // What 1 - z/2 lost, and cos(r + tail) = cos r - tail sin r.
        let lost = f.sub(one, head);
        let lost = f.sub(lost, half);
        let slope = f.mul(tail, self.r);
        let small = f.sub(lost, slope);
        let small = f.fma(zz, p, small);
        f.add(head, small)
    }
}
