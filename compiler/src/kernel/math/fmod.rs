//! The float remainder, exactly, for vectors too.

use super::parts::Float;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Horizontal, Reg, UnOp};

/// The remainder of `x / y` with the sign of `x`, exact, as C's `fmod`: NaN for y = 0 or infinite x, `x` for infinite y.
///
/// This builds a loop. It runs once where |x / y| is below 2^23 in all lanes, and once more for every further 22 bits of
/// the largest quotient.
pub fn fmod(b: &mut Builder, x: Reg, y: Reg) -> Reg {
    if Float::of(b, x).single() {
        let (wide_x, wide_y) = (b.cast(DType::F64, x), b.cast(DType::F64, y));
        let f = &mut Float::of(b, wide_x);
        let case = Case::of(f, wide_x, wide_y);
        // As F64 these are neither tiny nor huge.
        let rest = reduced(f, case.a, case.m);
        let r = case.result(f, rest);
        return b.cast(DType::F32, r);
    }
    let f = &mut Float::of(b, x);
    let case = Case::of(f, x, y);
    // Huge divisors are scaled down, lest half of one overflow when it is rounded up; tiny ones, whose mantissa is short,
    // are taken 2^200 times at first, and the rest is scaled up.
    let (huge, tiny) = (f.cmpc(Cmp::Gt, case.m, 2f64.powi(900)), f.cmpc(Cmp::Lt, case.m, 2f64.powi(-900)));
    let one = f.c(1.0);
    let mut scale = |up: i32, mask: Reg| {
        let factor = f.c(2f64.powi(up));
        f.select(mask, factor, one)
    };
    let (down, down_back, up, up_back) = (scale(-100, huge), scale(100, huge), scale(200, tiny), scale(-200, tiny));
    let (a, m) = (f.mul(case.a, down), f.mul(case.m, down));
    let m = f.mul(m, up);
    let rest = reduced(f, a, m);
    let rest = f.mul(rest, up);
    let rest = reduced(f, rest, m);
    let rest = f.mul(rest, up_back);
    let rest = f.mul(rest, down_back);
    case.result(f, rest)
}

/// The magnitudes of both operands, with harmless ones where there is no remainder to find.
struct Case {
    x: Reg,
    a: Reg,
    m: Reg,
    sign: Reg,
    defined: Reg,
    smaller: Reg,
}

impl Case {
    fn of(f: &mut Float<'_>, x: Reg, y: Reg) -> Case {
        let ((a, sign), m) = (f.split_sign(x), f.b.abs(y));
        // Both are false for NaN.
        let (divides, finite) = (f.cmpc(Cmp::Gt, m, 0.0), f.cmpc(Cmp::Lt, a, f64::INFINITY));
        let defined = f.b.and(divides, finite);
        let smaller = f.b.cmp(Cmp::Lt, a, m);
        let not_smaller = f.b.not(smaller);
        let runs = f.b.and(defined, not_smaller);
        let (zero, one) = (f.c(0.0), f.c(1.0));
        Case { x, a: f.select(runs, a, zero), m: f.select(runs, m, one), sign, defined, smaller }
    }

    fn result(&self, f: &mut Float<'_>, rest: Reg) -> Reg {
        let r = f.flip_sign(rest, self.sign);
        let r = f.select(self.smaller, self.x, r);
        let nan = f.c(f64::NAN);
        f.select(self.defined, r, nan)
    }
}

/// `rest` modulo `m`: subtracts multiples of `m · 2^j` until less than `m` is left in every lane.
fn reduced(f: &mut Float<'_>, rest: Reg, m: Reg) -> Reg {
    let var = f.b.var_init(rest);
    f.b.begin_while();
    let rest = f.b.get(var);
    let more = f.b.cmp(Cmp::Ge, rest, m);
    let any = any_lane(f.b, more);
    f.b.begin_body(any);
    let next = step(f, rest, m);
    let next = f.select(more, next, rest);
    f.b.set(var, next);
    f.b.end();
    f.b.get(var)
}

/// A number from 0 to less than `m · 2^j` that is congruent to `rest` modulo `m`, where the quotient of `rest` and
/// `m · 2^j` has at most 24 bits.
fn step(f: &mut Float<'_>, rest: Reg, m: Reg) -> Reg {
    let limit = f.mulc(m, 2f64.powi(23));
    let far = f.b.cmp(Cmp::Ge, rest, limit);
    let (shift, least, zero) = (f.bits_c(52), f.bits_c(23), f.bits_c(0));
    let (rest_bits, m_bits) = (f.bits(rest), f.bits(m));
    let (rest_exponent, m_exponent) = (f.b.shr(rest_bits, shift), f.b.shr(m_bits, shift));
    let j = f.b.sub(rest_exponent, m_exponent);
    let j = f.b.sub(j, least);
    let j = f.b.select(far, j, zero);
    let j = f.b.shl(j, shift);
    let m_bits = f.b.add(m_bits, j);
    let m = f.float(m_bits);
    let q = f.div(rest, m);
    let q = f.b.un(UnOp::Trunc, q);
    // m = head + tail, where the head is rounded up: 24 and 26 bits multiply exactly, and no difference is larger than m.
    let (round, mask) = (f.bits_c((1 << 27) - 1), f.bits_c(!((1 << 27) - 1)));
    let head = f.b.add(m_bits, round);
    let head = f.b.and(head, mask);
    let head = f.float(head);
    let tail = f.sub(m, head);
    let minus = f.b.neg(q);
    let left = f.fma(minus, head, rest);
    let left = f.fma(minus, tail, left);
    // The quotient was rounded up to the next integer.
    let back = f.add(left, m);
    let negative = f.cmpc(Cmp::Lt, left, 0.0);
    f.select(negative, back, left)
}

/// Whether the mask holds in any lane, as scalar.
fn any_lane(b: &mut Builder, mask: Reg) -> Reg {
    if b.ty(mask).lanes == 1 {
        return mask;
    }
    let ints = b.cast(DType::I32, mask);
    let most = b.horizontal(Horizontal::Max, ints);
    let zero = b.imm(DType::I32, 0);
    b.cmp(Cmp::Ne, most, zero)
}
