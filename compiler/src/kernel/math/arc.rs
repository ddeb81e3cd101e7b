//! Inverse trigonometric functions.

use super::coeffs::{ASIN_F32, ASIN_F64, ATAN_F32, ATAN_F64, HALF_PI_HI_F32, HALF_PI_LO_F32, HALF_PI_LO_F64};
use super::parts::Float;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg};
use core::f64::consts::FRAC_PI_2;

/// Arc sine, NaN outside -1..=1.
pub fn asin(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let inner = Inner::of(f, a);
    let near = f.add(inner.s, inner.rest);
    // π/2 - 2 asin √((1 - a) / 2), small parts first.
    let (hi, lo) = half_pi(f);
    let rest = f.fmac(inner.rest, -2.0, lo);
    let far = f.fmac(inner.s, -2.0, hi);
    let far = f.add(far, rest);
    let y = f.select(inner.far, far, near);
    f.flip_sign(y, sign)
}

/// Arc cosine, NaN outside -1..=1.
pub fn acos(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let inner = Inner::of(f, a);
    let (hi, lo) = half_pi(f);
    // Middle: π/2 - asin x.
    let (s, rest) = (f.flip_sign(inner.s, sign), f.flip_sign(inner.rest, sign));
    let small = f.sub(lo, rest);
    let small = f.sub(small, s);
    let middle = f.add(hi, small);
    // Ends: 2 asin √((1 - a) / 2), or π minus that.
    let asin = f.add(inner.s, inner.rest);
    let right = f.add(asin, asin);
    let (pi_hi, pi_lo) = (f.add(hi, hi), f.add(lo, lo));
    let rest = f.fmac(inner.rest, -2.0, pi_lo);
    let left = f.fmac(inner.s, -2.0, pi_hi);
    let left = f.add(left, rest);
    let negative = f.cmpc(Cmp::Lt, x, 0.0);
    let ends = f.select(negative, left, right);
    f.select(inner.far, ends, middle)
}

/// Arc tangent.
pub fn atan(b: &mut Builder, x: Reg) -> Reg {
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let one = f.c(1.0);
    let (above, far) = (f.cmpc(Cmp::Gt, a, TAN_PI_8), f.cmpc(Cmp::Gt, a, TAN_3_PI_8));
    // atan a = π/4 + atan((a - 1) / (a + 1)) = π/2 + atan(-1 / a).
    let (minus, plus, minus_one) = (f.addc(a, -1.0), f.addc(a, 1.0), f.c(-1.0));
    let (num, den) = (f.select(above, minus, a), f.select(above, plus, one));
    let (num, den) = (f.select(far, minus_one, num), f.select(far, a, den));
    let t = f.div(num, den);
    let rest = atan_rest(f, t);
    let (hi, lo) = half_pi(f);
    let (half_hi, half_lo, zero) = (f.mulc(hi, 0.5), f.mulc(lo, 0.5), f.c(0.0));
    let (base, base_lo) = (f.select(above, half_hi, zero), f.select(above, half_lo, zero));
    let (base, base_lo) = (f.select(far, hi, base), f.select(far, lo, base_lo));
    let small = f.add(rest, base_lo);
    let y = joined(f, base, t, small);
    f.flip_sign(y, sign)
}

/// The angle of the point (x, y), from -π to π, as C's `atan2`.
pub fn atan2(b: &mut Builder, y: Reg, x: Reg) -> Reg {
    let f = &mut Float::of(b, y);
    let ((ax, x_sign), (ay, y_sign)) = (f.split_sign(x), f.split_sign(y));
    let steep = f.b.cmp(Cmp::Gt, ay, ax);
    let (near, far) = (f.select(steep, ax, ay), f.select(steep, ay, ax));
    // Sums shall not overflow, nor quotients of two infinities or two zeros be NaN.
    let (limit, scale) = f.pick((1e38, 0.25), (1e307, 0.25));
    let large = f.cmpc(Cmp::Gt, far, limit);
    let (scale, one) = (f.c(scale), f.c(1.0));
    let scale = f.select(large, scale, one);
    let (near, far) = (f.mul(near, scale), f.mul(far, scale));
    let infinite = f.cmpc(Cmp::Eq, near, f64::INFINITY);
    let (near, far) = (f.select(infinite, one, near), f.select(infinite, one, far));
    let zero_far = f.cmpc(Cmp::Eq, far, 0.0);
    let far = f.select(zero_far, one, far);
    // From the diagonal, or from the axis.
    let edge = f.mulc(far, TAN_PI_8);
    let diagonal = f.b.cmp(Cmp::Gt, near, edge);
    let (minus, plus) = (f.sub(near, far), f.add(near, far));
    let (num, den) = (f.select(diagonal, minus, near), f.select(diagonal, plus, far));
    let t = f.div(num, den);
    let rest = atan_rest(f, t);
    // The angle is base + flip · (t + rest), with base a multiple of π/4.
    let (hi, lo) = half_pi(f);
    let left = f.bits_c(0);
    let left = f.b.cmp(Cmp::Ne, x_sign, left);
    let zero = f.c(0.0);
    let (quarter, quarter_lo) = (f.mulc(hi, 0.5), f.mulc(lo, 0.5));
    let base = f.select(diagonal, quarter, zero);
    let base_lo = f.select(diagonal, quarter_lo, zero);
    let mut angle = Angle { base, base_lo, t, rest };
    angle = angle.reflected(f, hi, lo, steep);
    let (pi_hi, pi_lo) = (f.add(hi, hi), f.add(lo, lo));
    angle = angle.reflected(f, pi_hi, pi_lo, left);
    let small = f.add(angle.rest, angle.base_lo);
    let r = joined(f, angle.base, angle.t, small);
    let r = f.flip_sign(r, y_sign);
    // A NaN may have been lost in a comparison.
    let ordered = f.b.cmp(Cmp::Eq, x, x);
    let r = f.select(ordered, r, x);
    let ordered = f.b.cmp(Cmp::Eq, y, y);
    f.select(ordered, r, y)
}

const TAN_PI_8: f64 = core::f64::consts::SQRT_2 - 1.0;
const TAN_3_PI_8: f64 = core::f64::consts::SQRT_2 + 1.0;

#[derive(Clone, Copy)]
struct Angle {
    base: Reg,
    base_lo: Reg,
    t: Reg,
    rest: Reg,
}

impl Angle {
    /// `hi + lo` minus the angle where `mask` holds.
    fn reflected(self, f: &mut Float<'_>, hi: Reg, lo: Reg, mask: Reg) -> Angle {
        let base = f.sub(hi, self.base);
        let lost = f.sub(hi, base);
        let lost = f.sub(lost, self.base);
        let base_lo = f.sub(lo, self.base_lo);
        let base_lo = f.add(base_lo, lost);
        let (t, rest) = (f.b.neg(self.t), f.b.neg(self.rest));
        Angle {
            base: f.select(mask, base, self.base),
            base_lo: f.select(mask, base_lo, self.base_lo),
            t: f.select(mask, t, self.t),
            rest: f.select(mask, rest, self.rest),
        }
    }
}

/// `base + t + small`, where `base` is 0 or larger than the others: one rounding that counts.
fn joined(f: &mut Float<'_>, base: Reg, t: Reg, small: Reg) -> Reg {
    let (sum, lost) = f.fast_two_sum(base, t);
    let small = f.add(small, lost);
    f.add(sum, small)
}

fn half_pi(f: &mut Float<'_>) -> (Reg, Reg) {
    let (hi, lo) = f.pick((HALF_PI_HI_F32, HALF_PI_LO_F32), (FRAC_PI_2, HALF_PI_LO_F64));
    (f.c(hi), f.c(lo))
}

/// `atan t - t` for |t| ≤ √2 - 1.
fn atan_rest(f: &mut Float<'_>, t: Reg) -> Reg {
    let z = f.mul(t, t);
    let p = f.poly(z, f.pick(&ATAN_F32[..], &ATAN_F64));
    let zt = f.mul(z, t);
    f.mul(zt, p)
}

/// `s + rest` is the arc sine of `a`, or of √((1 - a) / 2) where `a` is far from 0.
struct Inner {
    far: Reg,
    s: Reg,
    rest: Reg,
}

impl Inner {
    fn of(f: &mut Float<'_>, a: Reg) -> Inner {
        let far = f.cmpc(Cmp::Gt, a, 0.5);
        let (square, other) = (f.mul(a, a), f.csub(1.0, a));
        let other = f.mulc(other, 0.5);
        let root = f.b.sqrt(other);
        let (z, s) = (f.select(far, other, square), f.select(far, root, a));
        let p = f.poly(z, f.pick(&ASIN_F32[..], &ASIN_F64));
        let zp = f.mul(z, p);
        Inner { far, s, rest: f.mul(s, zp) }
    }
}
