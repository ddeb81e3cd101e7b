//! Fast Fourier transforms: a transform of length `r * m` is `m` transforms of length `r`, a turn of each result, and `r`
//! transforms of length `m`.

use super::fourier::turn;
use super::operand::Operand;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, ReduceKind, TensorId, expr};

/// Largest length that is taken apart, and largest factor.
const LONGEST: i64 = 1 << 16;
const WIDEST: i64 = 61;

/// The lengths of the transforms that one of length `n` is made of; nothing if one of them is long.
///
/// Single-precision results then have the error of numpy's, which the official test cases hold: it takes out eights, fours,
/// a two that comes first, and then odd factors.
pub(super) fn radices(n: i64) -> Option<Vec<i64>> {
    if !(1..=LONGEST).contains(&n) {
        return None;
    }
    let (mut rest, mut out) = (n, vec![]);
    for r in [8, 4] {
        while rest % r == 0 {
            rest /= r;
            out.push(r);
        }
    }
    if rest % 2 == 0 {
        rest /= 2;
        out.insert(0, 2);
    }
    let mut r = 3;
    while r * r <= rest {
        while rest % r == 0 {
            rest /= r;
            out.push(r);
        }
        r += 2;
    }
    if rest > 1 || out.is_empty() {
        out.push(rest);
    }
    (rest <= WIDEST).then_some(out)
}

/// A constant of `numbers`.
fn table(cx: &mut Cx, dtype: DType, shape: &[i64], numbers: impl Iterator<Item = f64>) -> Operand {
    let bytes = numbers.flat_map(|v| match dtype {
        DType::F64 => v.to_le_bytes().to_vec(),
        _ => (v as f32).to_le_bytes().to_vec(),
    });
    let shape: Vec<usize> = shape.iter().map(|d| *d as usize).collect();
    let t = cx.constant(dtype, &shape, bytes.collect());
    Operand::of(cx, t)
}

/// Cosines and sines of `j * k` of `n` parts of a turn, for all `j` below `rows` and `k` below `columns`.
fn turns(cx: &mut Cx, dtype: DType, n: i64, (rows, columns): (i64, i64), sign: f64) -> [Operand; 2] {
    let each = || (0..rows).flat_map(|j| (0..columns).map(move |k| turn(j * k, n)));
    [
        table(cx, dtype, &[rows, columns], each().map(|(c, _)| c)),
        table(cx, dtype, &[rows, columns], each().map(|(_, s)| sign * s)),
    ]
}

/// Gives an element of the signal of a batch: its real and, of complex signals, its imaginary part.
pub(super) type Signal<'a> = &'a dyn Fn(&[Int], Int) -> (Expr, Option<Expr>);

/// The transforms of `batch` signals of the length that `radices` make up, as `[batch, bin, part]` of the type `dtype`.
pub(super) fn transform(
    cx: &mut Cx,
    dtype: DType,
    batch: &[Int],
    radices: &[i64],
    inverse: bool,
    signal: Signal<'_>,
) -> TensorId {
    let n: i64 = radices.iter().product();
    // e^(-i a), for the inverse e^(i a).
    let sign = if inverse { 1.0 } else { -1.0 };
    let rank = batch.len();
    // After each step `[batch, done, part, left]`: `left` elements are still to be transformed for each of `done` results.
    let (mut done, mut left) = (1, n);
    let mut state: Option<Operand> = None;
    for &r in radices {
        let m = left / r;
        let [cos, sin] = turns(cx, dtype, r, (r, r), sign);
        let [turn_cos, turn_sin] = turns(cx, dtype, left, (r, m), sign);
        let sum = |cx: &mut Cx, part: i64| {
            let shape = [batch, &[r, done, m].map(Int::new)].concat();
            let t = cx.reduce(ReduceKind::Sum, dtype, shape, &[Int::new(r)], |i, q| {
                let (before, own, at) = (&i[..rank], [i[rank], q[0]], q[0] * m + i[rank + 2]);
                let (re, im) = match &state {
                    None => signal(before, at),
                    Some(x) => {
                        let part = |part: i64| x.at(&[before, &[i[rank + 1], Int::new(part), at]].concat());
                        (part(0), Some(part(1)))
                    }
                };
                let (c, s) = (cos.at(&own), sin.at(&own));
                match (part, im) {
                    (0, None) => re * c,
                    (0, Some(im)) => re * c - im * s,
                    (_, None) => re * s,
                    (_, Some(im)) => re * s + im * c,
                }
            });
            Operand::of(cx, t)
        };
        let (re, im) = (sum(cx, 0), sum(cx, 1));
        let shape = [batch, &[r, done, 2, m].map(Int::new)].concat();
        let next = cx.map(dtype, shape, |i| {
            let (p, k) = (i[rank], i[rank + 3]);
            let at = [&i[..rank + 2], &[k]].concat();
            let (re, im) = (re.at(&at), im.at(&at));
            let first = expr::int(i[rank + 2]).eq_(expr::int(Int::new(0)));
            if m == 1 {
                return first.then(re, im);
            }
            let (c, s) = (turn_cos.at(&[p, k]), turn_sin.at(&[p, k]));
            first.then(re * c - im * s, re * s + im * c)
        });
        done *= r;
        left = m;
        let next = cx.view(next, [batch, &[done, 2, left].map(Int::new)].concat());
        state = Some(Operand::of(cx, next));
    }
    let last = state.map_or_else(|| unreachable!("a transform has steps"), |x| x.id);
    cx.view(last, [batch, &[n, 2].map(Int::new)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_with_small_factors_are_taken_apart() {
        assert_eq!(radices(10), Some(vec![2, 5]));
        assert_eq!(radices(16), Some(vec![2, 8]));
        assert_eq!(radices(512), Some(vec![8, 8, 8]));
        assert_eq!(radices(360), Some(vec![8, 3, 3, 5]));
        assert_eq!(radices(31), Some(vec![31]));
        assert_eq!(radices(1), Some(vec![1]));
        for n in [0, 134, 1 << 20] {
            assert_eq!(radices(n), None, "{n}");
        }
    }
}
