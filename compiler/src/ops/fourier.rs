//! Fourier transforms.
//!
//! Transforms of a fixed composite length are fast ones, [`fft`]. Any other is a sum of products with sines and cosines,
//! taken in double precision: sums of cancelling terms then keep the accuracy of single precision. For a fixed, moderate
//! length the factors are one constant matrix.

use super::fft::{self, radices};
use super::operand::{Operand, need_float, same_type};
use super::scalar::{eq, lt};
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
pub(super) fn turn(k: i64, n: i64) -> (f64, f64) {
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
    let mut out: Vec<Int> = (0..rank - 1).map(|k| axis.if_eq(k, bins, x.shape[k])).collect();
    out.push(Int::new(if to_real { 1 } else { 2 }));
    if !to_real && let Some(ways) = fast_ways(&x, axis, call.opt(1).map(|_| n)) {
        let signal = Signal { x: &x, complex, inverse, onesided };
        let made: Vec<(usize, TensorId)> = ways.into_iter().map(|(k, r)| (k, fast(cx, &signal, k, &r))).collect();
        if let [(_, y)] = made.as_slice() {
            return Ok(vec![*y]);
        }
        // The axis is known only at run time: along each, and one is chosen.
        let made: Vec<(usize, Operand)> = made.into_iter().map(|(k, y)| (k, Operand::of(cx, y))).collect();
        return Ok(vec![cx.map(x.dtype, out, |i| {
            let none = expr::constant_f64(x.dtype.compute(), 0.0);
            made.iter().fold(none, |rest, (k, y)| eq(axis, *k).then(y.at(i), rest))
        })]);
    }
    // A longer transform sees zeros beyond the input, which add nothing.
    let terms = if to_real { half } else { n }.min(len);
    let factors = Factors::new(cx, n, bins, terms, inverse);
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
    let shape = cx.shape(sum);
    Ok(vec![finished(cx, sum, shape, x.dtype, inverse.then_some(n), None, <[Int]>::to_vec)])
}

/// The axes along which there may be a transform, each with the radices of a fast one; nothing unless all have one.
fn fast_ways(x: &Operand, axis: Int, n: Option<Int>) -> Option<Vec<(usize, Vec<i64>)>> {
    let known = axis.as_const().map(|k| k as usize);
    let axes = (0..x.rank() - 1).filter(|k| known.is_none_or(|known| known == *k));
    let ways: Option<Vec<_>> = axes.map(|k| Some((k, radices(n.unwrap_or(x.shape[k]).as_const()?)?))).collect();
    // Transforms of lengths that are not taken apart are sums, which are more exact in double precision.
    ways.filter(|ways| ways.iter().any(|(_, r)| r.len() > 1))
}

/// What is transformed, and how.
struct Signal<'a> {
    x: &'a Operand,
    complex: bool,
    inverse: bool,
    onesided: bool,
}

/// The fast transform along one axis.
fn fast(cx: &mut Cx, s: &Signal<'_>, axis: usize, radices: &[i64]) -> TensorId {
    let (x, last) = (s.x, s.x.rank() - 1);
    let n = Int::new(radices.iter().product());
    let batch: Vec<Int> = (0..last).filter(|k| *k != axis).map(|k| x.shape[k]).collect();
    let signal = |b: &[Int], t: Int| {
        // A longer transform sees zeros beyond the input.
        let part = |part: i64| {
            let v = x.at(&[&b[..axis], &[t], &b[axis..], &[Int::new(part)]].concat());
            lt(t, x.shape[axis]).then(v, v.num(0.0))
        };
        (part(0), s.complex.then(|| part(1)))
    };
    let y = fft::transform(cx, x.dtype.compute(), &batch, radices, s.inverse, &signal);
    let mut out = x.shape.clone();
    (out[axis], out[last]) = (if s.onesided { n.div(2) + 1 } else { n }, Int::new(2));
    let at = |i: &[Int]| [&i[..axis], &i[axis + 1..last], &[i[axis], i[last]]].concat();
    finished(cx, y, out, x.dtype, s.inverse.then_some(n), (!s.complex).then_some(n), at)
}

/// A transform in the output's shape and type, `at` giving where its element lies in `y`. It is divided by `scale`. A
/// `real` signal of that length has no imaginary part in the first bin and in the middle.
fn finished(
    cx: &mut Cx,
    y: TensorId,
    shape: Vec<Int>,
    dtype: DType,
    scale: Option<Int>,
    real: Option<Int>,
    at: impl Fn(&[Int]) -> Vec<Int>,
) -> TensorId {
    let y = Operand::of(cx, y);
    cx.map(dtype, shape, |i| {
        let at = at(i);
        let v = y.at(&at);
        let v = scale.map_or(v, |n| v / expr::cast(v.dtype(), expr::int(n)));
        let v = expr::cast(dtype.compute(), v);
        let (Some(n), [.., bin, part]) = (real, at.as_slice()) else { return v };
        let middle = eq(*bin, 0) | eq(*bin * 2, n);
        (middle & eq(*part, 1)).then(v.num(0.0), v)
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
    let out = vec![x.shape[0], frames, bins, Int::new(2)];
    if let Some(radices) = n.as_const().and_then(radices).filter(|r| r.len() > 1) {
        let signal = |b: &[Int], t: Int| {
            let weight = window.as_ref().map(|w| w.at(&[t]));
            let part = |part: i64| {
                let v = x.at(&[b[0], b[1] * step + t, Int::new(part)]);
                weight.map_or(v, |w| v * w)
            };
            (part(0), complex.then(|| part(1)))
        };
        let y = fft::transform(cx, x.dtype.compute(), &[x.shape[0], frames], &radices, false, &signal);
        return Ok(vec![finished(cx, y, out, x.dtype, None, (!complex).then_some(n), <[Int]>::to_vec)]);
    }
    let factors = Factors::new(cx, n, bins, n, false);
    let sum = cx.reduce(ReduceKind::Sum, DType::F64, out.clone(), &[n], |i, r| {
        let index = [i[0], i[1] * step + r[0], Int::new(0)];
        let weight = window.as_ref().map(|w| expr::cast(DType::F64, w.at(&[r[0]])));
        let weighted = |v: Expr| weight.map_or(v, |w| v * w);
        let re = weighted(wide(&x, &index, 0));
        let im = complex.then(|| weighted(wide(&x, &index, 1)));
        factors.term(i[2], i[3], r[0], (re, im))
    });
    Ok(vec![finished(cx, sum, out, x.dtype, None, None, <[Int]>::to_vec)])
}
