//! Shape-like operands (axes, starts, sizes) as index expressions: known ones folded, others read at run time.

use super::Call;
use super::operand::Operand;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func2, OpError, OpResult, TensorId, expr};

/// Constants of at least this magnitude mean "as far as possible" (exporters write `INT32_MAX`, `INT64_MAX`, …).
const FAR: i64 = i32::MAX as i64 - 1;

/// An error about the model.
pub(super) fn invalid<T>(what: impl Into<String>) -> OpResult<T> {
    Err(OpError::Invalid(what.into()))
}

/// An error about what is not supported.
pub(super) fn unsupported<T>(what: impl Into<String>) -> OpResult<T> {
    Err(OpError::Unsupported(what.into()))
}

/// Requires between `least` and `most` inputs.
pub(super) fn input_count(call: &Call, least: usize, most: usize) -> OpResult<()> {
    let n = call.inputs.len();
    if n < least || n > most {
        return invalid(format!("{n} inputs, expected {least} to {most}"));
    }
    Ok(())
}

/// The elements of an operand that is a list (rank 1) or a single number (rank 0).
pub(super) fn int_list(cx: &mut Cx, t: TensorId, what: &str) -> OpResult<Vec<Int>> {
    if cx.rank(t) > 1 {
        return invalid(format!("{what} must have one axis, not {}", cx.rank(t)));
    }
    cx.ints_or_read(t)
}

/// The single number in an operand of one element.
pub(super) fn int_scalar(cx: &mut Cx, t: TensorId, what: &str) -> OpResult<Int> {
    if cx.dtype(t).is_float() {
        return invalid(format!("{what} must be an integer, not {}", cx.dtype(t)));
    }
    let n = cx.numel(t);
    cx.require_equal(n, Int::new(1), &format!("{what} must be one number"))?;
    if n.as_const() != Some(1) {
        return Ok(cx.read(t, 0, "n", None, None));
    }
    match cx.ints_or_read(t)?.first() {
        Some(v) => Ok(*v),
        None => invalid(format!("{what} is empty")),
    }
}

/// The axes given by an optional operand or by the attribute `axes` (the form before they became an operand).
pub(super) fn axes_operand(cx: &mut Cx, call: &Call, k: usize) -> OpResult<Option<Vec<Int>>> {
    if let Some(t) = call.opt(k) {
        return Ok(Some(int_list(cx, t, "axes")?));
    }
    Ok(call.opt_ints("axes")?.map(|a| a.into_iter().map(Int::new).collect()))
}

/// A list of distinct axes of a tensor with `rank` axes. Constants become checked numbers; run-time ones are checked when
/// the model runs.
pub(super) fn norm_axes(cx: &mut Cx, axes: &[Int], rank: usize) -> OpResult<Vec<Int>> {
    let r = Int::from(rank);
    let mut out: Vec<Int> = vec![];
    for a in axes {
        let n = match a.as_const() {
            Some(c) => Int::from(cx.axis(c, rank)?),
            None => {
                cx.require_at_most(-r, *a, "axis out of range")?;
                cx.require_at_most(*a + 1, r, "axis out of range")?;
                a.if_lt(0, *a + r, *a)
            }
        };
        if out.contains(&n) {
            return invalid(format!("axis {a} is given twice"));
        }
        out.push(n);
    }
    Ok(out)
}

/// `values[k]` for the axis that is `axes[k]`, `default` for an axis that is not listed. `axes` are normalized.
pub(super) fn value_at_axis(axes: &[Int], values: &[Int], axis: usize, default: Int) -> Int {
    let at = Int::from(axis);
    axes.iter().zip(values).fold(default, |rest, (a, v)| a.if_eq(at, *v, rest))
}

/// Whether `axis` is among `axes` (normalized), as 1 or 0.
pub(super) fn is_listed(axes: &[Int], axis: usize) -> Int {
    let ones = vec![Int::new(1); axes.len()];
    value_at_axis(axes, &ones, axis, Int::new(0))
}

/// A position along an axis of size `d`: negative counts from the end; clamped to `lo..=hi`.
pub(super) fn clamp_position(p: Int, d: Int, lo: Int, hi: Int) -> Int {
    match p.as_const() {
        Some(c) if c >= FAR => hi,
        Some(c) if c <= -FAR => lo,
        _ => {
            // Both sides are computed: what data gives may be so large that the size is not to be added to it.
            let open = p.bounds().lo.is_none() && p.bounds().hi.is_none();
            let below = if open { p.min(0) } else { p };
            p.if_lt(0, below + d, p).max(lo).min(hi)
        }
    }
}

/// A dimension given by data: where it is below zero the run ends with an error.
pub(super) fn dim(cx: &mut Cx, d: Int) -> OpResult<Int> {
    cx.require_at_most(Int::new(0), d, "a size is negative")?;
    Ok(d.max(0))
}

/// Dimensions given by data; see [`dim`].
pub(super) fn dims(cx: &mut Cx, sizes: &[Int]) -> OpResult<Vec<Int>> {
    sizes.iter().map(|d| dim(cx, *d)).collect()
}

/// An index into an axis of size `d`: negative counts from the end, and what is out of range is clamped so that no kernel
/// reads outside of its buffers.
pub(super) fn guard_index(i: Int, d: Int) -> Int {
    if Int::new(0).le(i) == Some(true) && i.lt(d) == Some(true) {
        return i;
    }
    if let (Some(c), Some(n)) = (i.as_const(), d.as_const())
        && (-n..0).contains(&c)
    {
        return Int::new(c + n);
    }
    i.if_lt(0, i + d, i).min(d - 1).max(0)
}

/// The element at `index` if that lies inside of the tensor, else `outside`.
pub(super) fn or_else(x: &Operand, index: &[Int], outside: Expr) -> Expr {
    let inside = index
        .iter()
        .zip(&x.shape)
        .fold(expr::boolean(true), |all, (i, d)| expr::bin(Func2::And, all, in_range(*i, *d)));
    expr::select(inside, x.at(index), outside)
}

/// `0 <= i < d` as a condition, as far as it is not proved.
pub(super) fn in_range(i: Int, d: Int) -> Expr {
    let low = expr::cmp(Cmp::Ge, expr::int(i), expr::int(Int::new(0)));
    let high = expr::cmp(Cmp::Lt, expr::int(i), expr::int(d));
    expr::bin(Func2::And, low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn a_number_of_another_type_than_integer_is_an_error_whatever_its_shape() {
        for n in [Int::new(1), Int::symbol("n", Some(1), None)] {
            let mut cx = Cx::new();
            let t = cx.input("k", DType::F32, vec![n]);
            assert!(matches!(int_scalar(&mut cx, t, "k"), Err(crate::te::OpError::Invalid(_))));
        }
    }
}
