//! Fourier transforms.
//!
//! A transform is a sum of products with sines and cosines, taken in double precision: sums of cancelling terms then keep
//! the accuracy of single precision. For a fixed, moderate length the factors are one constant matrix.

use super::operand::{Operand, need_float, same_type};
use super::sizes::{input_count, int_scalar, invalid, norm_axes, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, OpResult, ReduceKind, TensorId, expr};
use std::f64::consts::TAU;

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "DFT", dft), ("", "STFT", stft)];

/// Most elements of a matrix of factors.
const MOST_FACTORS: i64 = 1 << 18;

/// `cos(2 pi k / n)` and `sin(2 pi k / n)`, exact at the quarter turns.
fn turn(k: i64, n: i64) -> (f64, f64) {
    let k = k.rem_euclid(n);
    // Within an eighth of a turn of the nearest quarter the arguments are small.
    let quarter = (8 * k + n).div_euclid(2 * n);
    let angle = TAU * (4 * k - quarter * n) as f64 / (4 * n) as f64;
    let (s, c) = angle.sin_cos();
    match quarter % 4 {
        0 => (c, s),
        1 => (-s, c),
        2 => (-c, -s),
        _ => (s, -c),
    }
}

/// The factors of one transform: what real and imaginary parts of the input are multiplied with, for either part of the
/// output.
struct Factors {
    /// `[positions, 2]` or `[bins, 2, terms]`: for the real part of the input.
    real: Operand,
    /// The same for the imaginary part.
    imag: Operand,
    n: Int,
    /// One entry for each bin and term, instead of one for each position on the circle.
    full: bool,
}

impl Factors {
    /// For a transform of length `n` with `bins` outputs and `terms` inputs.
    fn new(cx: &mut Cx, n: Int, bins: Int, terms: Int, inverse: bool) -> Factors {
        // e^(-i a) (re + i im) = (re cos + im sin) + i (im cos - re sin); the inverse has the other sign of a.
        let sign = if inverse { -1.0 } else { 1.0 };
        let parts = |c: f64, s: f64| [[c, -sign * s], [sign * s, c]];
        let known = (n.as_const().filter(|n| (1..=MOST_FACTORS).contains(n)), bins.as_const(), terms.as_const());
        if let (Some(n), Some(bins), Some(terms)) = known {
            let full = bins.saturating_mul(terms).saturating_mul(2) <= MOST_FACTORS;
            let (rows, columns) = if full { (bins, terms) } else { (n, 1) };
            let mut bytes = [vec![], vec![]];
            for k in 0..rows {
                for part in 0..2 {
                    for t in 0..columns {
                        let at = if full { k.wrapping_mul(t) % n } else { k };
                        let (c, s) = turn(at, n);
                        let v = parts(c, s);
                        bytes[0].extend_from_slice(&v[0][part].to_le_bytes());
                        bytes[1].extend_from_slice(&v[1][part].to_le_bytes());
                    }
                }
            }
            let shape = if full { vec![rows as usize, 2, columns as usize] } else { vec![rows as usize, 2] };
            let [real, imag] = bytes.map(|b| cx.constant(DType::F64, &shape, b));
            return Factors { real: Operand::of(cx, real), imag: Operand::of(cx, imag), n: Int::new(n), full };
        }
        let table = |cx: &mut Cx, of_real: bool| {
            let t = cx.map(DType::F64, vec![n, Int::new(2)], |i| {
                let number = |i| expr::cast(DType::F64, expr::int(i));
                let angle = expr::constant_f64(DType::F64, TAU) * (number(i[0]) / number(n));
                let (c, s) = (expr::un(Func1::Cos, angle), expr::un(Func1::Sin, angle));
                let s = s * expr::constant_f64(DType::F64, sign);
                let first = expr::int(i[1]).eq_(expr::int(Int::new(0)));
                if of_real { expr::select(first, c, -s) } else { expr::select(first, s, c) }
            });
            Operand::of(cx, t)
        };
        Factors { real: table(cx, true), imag: table(cx, false), n, full: false }
    }

    /// The term of the sum for output `bin`, its `part`, and input `t` with the value `(re, im)`.
    fn term(&self, bin: Int, part: Int, t: Int, (re, im): (Expr, Option<Expr>)) -> Expr {
        let at = if self.full { vec![bin, part, t] } else { vec![(bin * t).rem(self.n), part] };
        let term = re * self.real.at(&at);
        match im {
            Some(im) => term + im * self.imag.at(&at),
            None => term,
        }
    }
}

/// A part of a complex element as `F64`.
fn wide(x: &Operand, index: &[Int], part: i64) -> Expr {
    let mut index = index.to_vec();
    if let Some(last) = index.last_mut() {
        *last = Int::new(part);
    }
    expr::cast(DType::F64, x.at(&index))
}

/// Real (1) or complex (2) numbers along the last axis.
fn parts(x: &Operand) -> OpResult<bool> {
    match x.shape.last().and_then(|d| d.as_const()) {
        Some(1) => Ok(false),
        Some(2) => Ok(true),
        Some(_) => invalid("the last axis must hold 1 (real) or 2 (complex) numbers"),
        None => unsupported("a last axis of unknown size: real or complex numbers"),
    }
}

fn dft(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let rank = x.rank();
    if rank < 2 {
        return invalid(format!("the input must have at least 2 axes, not {rank}"));
    }
    let complex = parts(&x)?;
    let axis = match call.opt(2) {
        Some(t) if call.version >= 20 => int_scalar(cx, t, "axis")?,
        _ if call.version >= 20 => Int::new(-2),
        _ => Int::new(call.int("axis", 1)?),
    };
    let axis = norm_axes(cx, &[axis], rank)?[0];
    cx.require_at_most(axis, Int::from(rank - 2), "the last axis can't be transformed")?;
    let (inverse, onesided) = (call.int("inverse", 0)? != 0, call.int("onesided", 0)? != 0);
    // The entry of a list for the transformed axis, which may be known only at run time.
    let along = |v: &[Int]| (0..rank - 1).fold(Int::new(0), |rest, k| axis.if_eq(k, v[k], rest));
    let len = along(&x.shape);
    let to_real = inverse && onesided;
    if to_real && !complex {
        return invalid("a one-sided inverse transform needs complex input");
    }
    if onesided && !inverse && complex {
        return invalid("a one-sided transform needs real input");
    }
    let n = match call.opt(1) {
        Some(t) => int_scalar(cx, t, "dft_length")?.max(1),
        None if to_real => ((len - 1) * 2).max(1),
        None => len,
    };
    let half = n.div(2) + 1;
    let bins = if onesided && !inverse { half } else { n };
    // A longer transform sees zeros beyond the input, which add nothing.
    let terms = if to_real { half } else { n }.min(len);
    let factors = Factors::new(cx, n, bins, terms, inverse);
    let mut out: Vec<Int> = (0..rank - 1).map(|k| axis.if_eq(k, bins, x.shape[k])).collect();
    out.push(Int::new(if to_real { 1 } else { 2 }));
    let sum = cx.reduce(ReduceKind::Sum, DType::F64, out.clone(), &[terms], |i, r| {
        let t = r[0];
        let mut index: Vec<Int> = (0..rank - 1).map(|k| axis.if_eq(k, t, i[k])).collect();
        index.push(Int::new(0));
        let re = wide(&x, &index, 0);
        let im = complex.then(|| wide(&x, &index, 1));
        let term = factors.term(along(i), i[rank - 1], t, (re, im));
        if !to_real {
            return term;
        }
        // The half that is not given is the mirror image; the first and the middle have none.
        let double = t.if_eq(0, 1, (t * 2).if_eq(n, 1, 2));
        term * expr::cast(DType::F64, expr::int(double))
    });
    Ok(vec![finished(cx, sum, x.dtype, inverse.then_some(n))])
}

/// The sum in the output's type, divided by `n` for an inverse transform.
fn finished(cx: &mut Cx, sum: TensorId, dtype: DType, n: Option<Int>) -> TensorId {
    let sum = Operand::of(cx, sum);
    cx.map(dtype, sum.shape.clone(), |i| {
        let v = sum.at(i);
        let v = n.map_or(v, |n| v / expr::cast(DType::F64, expr::int(n)));
        expr::cast(dtype.compute(), v)
    })
}

fn stft(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 4)?;
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    if x.rank() != 3 {
        return invalid(format!("the signal must have 3 axes, not {}", x.rank()));
    }
    let complex = parts(&x)?;
    let step = int_scalar(cx, call.input(1)?, "frame_step")?;
    cx.require_at_most(Int::new(1), step, "frame_step")?;
    let step = step.max(1);
    let window = call.opt(2).map(|t| Operand::of(cx, t));
    if let Some(w) = &window {
        same_type(cx, x.id, w.id)?;
        if w.rank() != 1 {
            return invalid("the window must be a list");
        }
    }
    let n = match (call.opt(3), &window) {
        (Some(t), _) => int_scalar(cx, t, "frame_length")?.max(1),
        (None, Some(w)) => w.shape[0],
        (None, None) => x.shape[1],
    };
    if let Some(w) = &window {
        cx.require_equal(w.shape[0], n, "window and frame_length")?;
    }
    let onesided = call.int("onesided", 1)? != 0;
    if onesided && complex {
        return invalid("a one-sided transform needs real input");
    }
    let bins = if onesided { n.div(2) + 1 } else { n };
    let frames = ((x.shape[1] - n).div(step) + 1).max(0);
    let factors = Factors::new(cx, n, bins, n, false);
    let out = vec![x.shape[0], frames, bins, Int::new(2)];
    let sum = cx.reduce(ReduceKind::Sum, DType::F64, out, &[n], |i, r| {
        let index = [i[0], i[1] * step + r[0], Int::new(0)];
        let weight = window.as_ref().map(|w| expr::cast(DType::F64, w.at(&[r[0]])));
        let weighted = |v: Expr| weight.map_or(v, |w| v * w);
        let re = weighted(wide(&x, &index, 0));
        let im = complex.then(|| weighted(wide(&x, &index, 1)));
        factors.term(i[2], i[3], r[0], (re, im))
    });
    Ok(vec![finished(cx, sum, x.dtype, None)])
}
