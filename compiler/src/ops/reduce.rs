//! Reductions over axes.

use super::axes::{Axes, Space};
use super::operand::{Operand, convert, need_number};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "ReduceSum", |cx, c| plain(cx, c, ReduceKind::Sum, |x| x)),
    ("", "ReduceProd", |cx, c| plain(cx, c, ReduceKind::Prod, |x| x)),
    ("", "ReduceMax", |cx, c| extremum(cx, c, ReduceKind::Max)),
    ("", "ReduceMin", |cx, c| extremum(cx, c, ReduceKind::Min)),
    ("", "ReduceL1", |cx, c| plain(cx, c, ReduceKind::Sum, |x| if signed(x.dtype()) { x.abs() } else { x })),
    ("", "ReduceSumSquare", |cx, c| plain(cx, c, ReduceKind::Sum, |x| x * x)),
    ("", "ReduceL2", |cx, c| float_sum(cx, c, |x| x * x, Expr::sqrt)),
    ("", "ReduceLogSum", |cx, c| float_sum(cx, c, |x| x, Expr::ln)),
    ("", "ReduceLogSumExp", log_sum_exp),
    ("", "ReduceMean", mean),
];

fn signed(t: DType) -> bool {
    t.is_float() || t.is_signed()
}

struct Reduction {
    x: Operand,
    space: Space,
}

fn reduction(cx: &mut Cx, call: &Call) -> OpResult<Reduction> {
    let x = Operand::of(cx, call.input(0)?);
    let axes = Axes::of_call(cx, call, x.rank())?;
    let space = Space::new(&x.shape, &axes, call.int("keepdims", 1)? != 0);
    Ok(Reduction { x, space })
}

/// Reduction over a space; a map where nothing is reduced.
pub(super) fn reduce_over(
    cx: &mut Cx,
    space: &Space,
    kind: ReduceKind,
    dtype: DType,
    f: impl FnOnce(&[Int], &[Int]) -> Expr,
) -> TensorId {
    if space.over.is_empty() {
        return cx.map(dtype, space.shape.clone(), |i| f(i, &[]));
    }
    cx.reduce(kind, dtype, space.shape.clone(), &space.over, f)
}

/// `kind` over `f` of the elements, in their own type.
fn plain(cx: &mut Cx, call: &Call, kind: ReduceKind, f: fn(Expr) -> Expr) -> OpResult {
    let Reduction { x, space } = reduction(cx, call)?;
    need_number(x.dtype)?;
    let y = reduce_over(cx, &space, kind, x.dtype, |i, r| f(x.at(&space.index(i, r))));
    Ok(vec![space.finish(cx, y)])
}

/// Of bools, the maximum is "any" and the minimum "all".
fn extremum(cx: &mut Cx, call: &Call, kind: ReduceKind) -> OpResult {
    if cx.dtype(call.input(0)?) != DType::Bool {
        return plain(cx, call, kind, |x| x);
    }
    let Reduction { x, space } = reduction(cx, call)?;
    let y = reduce_over(cx, &space, kind, DType::U8, |i, r| x.at(&space.index(i, r)).to(DType::U8));
    let y = Operand::of(cx, y);
    let y = cx.map(DType::Bool, y.shape.clone(), |i| y.at(i).to(DType::Bool));
    Ok(vec![space.finish(cx, y)])
}

/// Type in which the square roots and logarithms of sums are computed.
fn float_type(t: DType) -> DType {
    if t.is_float() { t.compute() } else { DType::F64 }
}

/// `end` of the sum of `f` of the elements; ints are computed in `f64` and truncated at the end.
fn float_sum(cx: &mut Cx, call: &Call, f: fn(Expr) -> Expr, end: fn(Expr) -> Expr) -> OpResult {
    let Reduction { x, space } = reduction(cx, call)?;
    need_number(x.dtype)?;
    let acc = float_type(x.dtype);
    let sum = reduce_over(cx, &space, ReduceKind::Sum, acc, |i, r| f(x.at(&space.index(i, r)).to(acc)));
    let sum = Operand::of(cx, sum);
    let y = cx.map(x.dtype, sum.shape.clone(), |i| convert(end(sum.at(i)), x.dtype));
    Ok(vec![space.finish(cx, y)])
}

/// The largest element is taken out of the sum, so that no exponential overflows.
fn log_sum_exp(cx: &mut Cx, call: &Call) -> OpResult {
    let Reduction { x, space } = reduction(cx, call)?;
    need_number(x.dtype)?;
    let acc = float_type(x.dtype);
    let top = reduce_over(cx, &space, ReduceKind::Max, acc, |i, r| x.at(&space.index(i, r)).to(acc));
    let top = Operand::of(cx, top);
    // Infinite where the set is empty or holds an infinity: the difference would be NaN.
    let shift = |i: &[Int]| {
        let m = top.at(i);
        m.abs().eq_(m.num(f64::INFINITY)).then(m.num(0.0), m)
    };
    let sum = reduce_over(cx, &space, ReduceKind::Sum, acc, |i, r| (x.at(&space.index(i, r)).to(acc) - shift(i)).exp());
    let sum = Operand::of(cx, sum);
    let y = cx.map(x.dtype, sum.shape.clone(), |i| convert(sum.at(i).ln() + shift(i), x.dtype));
    Ok(vec![space.finish(cx, y)])
}

/// Sum by count; ints sum in 64 bits and the quotient truncates.
fn mean(cx: &mut Cx, call: &Call) -> OpResult {
    let Reduction { x, space } = reduction(cx, call)?;
    need_number(x.dtype)?;
    let acc = match x.dtype {
        t if t.is_float() => t.compute(),
        t if t.is_signed() => DType::I64,
        _ => DType::U64,
    };
    let sum = reduce_over(cx, &space, ReduceKind::Sum, acc, |i, r| x.at(&space.index(i, r)).to(acc));
    let (sum, count) = (Operand::of(cx, sum), expr::int(space.count()).to(acc));
    let y = cx.map(x.dtype, sum.shape.clone(), |i| convert(sum.at(i) / count, x.dtype));
    Ok(vec![space.finish(cx, y)])
}
