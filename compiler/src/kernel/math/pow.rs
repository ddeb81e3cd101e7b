//! Powers.

use super::coeffs::{LOG_F64_TAIL, TWO_THIRDS_LOG2E, TWO_THIRDS_LOG2E_HI, TWO_THIRDS_LOG2E_LO};
use super::exp::exp2_sum;
use super::log::split_positive;
use super::parts::Float;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg, UnOp};

/// `x^y` as C's `pow`: 1 for y = 0 and for x = 1 whatever the other is, NaN for a negative finite x and a y that is no
/// integer. `F32` computes in `F64`.
pub fn pow(b: &mut Builder, x: Reg, y: Reg) -> Reg {
    if Float::of(b, x).single() {
        let (wide_x, wide_y) = (b.cast(DType::F64, x), b.cast(DType::F64, y));
        let r = pow(b, wide_x, wide_y);
        return b.cast(DType::F32, r);
    }
    let f = &mut Float::of(b, x);
    let (a, sign) = f.split_sign(x);
    let (l, l_tail) = log2_sum(f, a);
    // y · log2 a in two parts; the plain product decides where they are meaningful.
    let y_head = f.head(y);
    let y_rest = f.sub(y, y_head);
    let first = f.mul(y_head, l);
    let second = f.mul(y, l_tail);
    let second = f.fma(y_rest, l, second);
    let plain = log2_limits(f, a, l);
    let plain = f.mul(y, plain);
    let size = f.b.abs(plain);
    let usual = f.cmpc(Cmp::Lt, size, 1100.0);
    let (e, tail) = f.fast_two_sum(first, second);
    let zero = f.c(0.0);
    let (e, tail) = (f.select(usual, e, plain), f.select(usual, tail, zero));
    let e = f.at_most(e, 1024.2);
    let e = f.at_least(e, -1022.4);
    let r = exp2_sum(f, e, tail);

    // Signs, and what C says of the corners.
    let one = f.c(1.0);
    let unit = f.cmpc(Cmp::Eq, a, 1.0);
    let y_ordered = f.b.cmp(Cmp::Eq, y, y);
    let unit = f.b.and(unit, y_ordered);
    let r = f.select(unit, one, r);
    let whole = f.b.un(UnOp::Trunc, y);
    let whole = f.b.cmp(Cmp::Eq, whole, y);
    let half = f.mulc(y, 0.5);
    let half_whole = f.b.un(UnOp::Trunc, half);
    let even = f.b.cmp(Cmp::Eq, half_whole, half);
    let not_even = f.b.not(even);
    let odd = f.b.and(whole, not_even);
    let no_sign = f.bits_c(0);
    let sign = f.b.select(odd, sign, no_sign);
    let r = f.flip_sign(r, sign);
    let (below, above) = (f.cmpc(Cmp::Lt, x, 0.0), f.cmpc(Cmp::Gt, x, f64::NEG_INFINITY));
    let negative = f.b.and(below, above);
    let not_whole = f.b.not(whole);
    let undefined = f.b.and(negative, not_whole);
    let nan = f.c(f64::NAN);
    let r = f.select(undefined, nan, r);
    let x_one = f.cmpc(Cmp::Eq, x, 1.0);
    let y_zero = f.cmpc(Cmp::Eq, y, 0.0);
    let trivial = f.b.or(x_one, y_zero);
    f.select(trivial, one, r)
}

/// `log2 a` as a head of half the mantissa and a tail, to about 2^-68 of it; for positive finite `a`.
fn log2_sum(f: &mut Float<'_>, a: Reg) -> (Reg, Reg) {
    let (k, m) = split_positive(f, a);
    // ln m = 2/3 s (3 + z + z² P(z)), s = (m - 1) / (m + 1), z = s². `s` and the bracket are kept in two parts each.
    let (num, den) = (f.addc(m, -1.0), f.addc(m, 1.0));
    let s = f.div(num, den);
    let s_head = f.head(s);
    let den_head = f.head(den);
    // m + 1 was rounded: its tail is what it lacks to the head, computed from m.
    let den_tail = f.addc(den_head, -1.0);
    let den_tail = f.sub(m, den_tail);
    let minus = f.b.neg(s_head);
    let left = f.fma(minus, den_head, num);
    let left = f.fma(minus, den_tail, left);
    let s_tail = f.div(left, den);
    let z = f.mul(s, s);
    let z_head = f.mul(s_head, s_head);
    let both = f.add(s, s_head);
    let z_tail = f.mul(s_tail, both);
    let p = f.poly(z, &LOG_F64_TAIL);
    let zz = f.mul(z, z);
    let small = f.fma(zz, p, z_tail);
    let three_z = f.addc(z_head, 3.0);
    let w = f.add(three_z, small);
    let w_head = f.head(w);
    // small - ((w_head - 3) - z_head)
    let w_tail = f.addc(w_head, -3.0);
    let w_tail = f.sub(w_tail, z_head);
    let w_tail = f.sub(small, w_tail);
    // s · w
    let head = f.mul(s_head, w_head);
    let tail = f.mul(s_tail, w_head);
    let tail = f.fma(w_tail, s, tail);
    let p_all = f.add(head, tail);
    let p_head = f.head(p_all);
    let p_tail = f.sub(p_head, head);
    let p_tail = f.sub(tail, p_tail);
    // · 2/3 log2(e), + k
    let c_head = f.mulc(p_head, TWO_THIRDS_LOG2E_HI);
    let c_tail = f.mulc(p_head, TWO_THIRDS_LOG2E_LO);
    let c_tail = f.fmac(p_tail, TWO_THIRDS_LOG2E, c_tail);
    let sum = f.add(c_head, c_tail);
    let sum = f.add(sum, k);
    let l = f.head(sum);
    let tail = f.sub(l, k);
    let tail = f.sub(tail, c_head);
    (l, f.sub(c_tail, tail))
}

/// `l`, the logarithm of `a`, but with the limits at 0, ∞ and NaN.
fn log2_limits(f: &mut Float<'_>, a: Reg, l: Reg) -> Reg {
    let (zero, minus_inf) = (f.cmpc(Cmp::Eq, a, 0.0), f.c(f64::NEG_INFINITY));
    let finite = f.cmpc(Cmp::Lt, a, f64::INFINITY);
    let l = f.select(zero, minus_inf, l);
    f.select(finite, l, a)
}
