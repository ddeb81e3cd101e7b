//! Softmax and its relatives.

use super::arg::arg_over;
use super::axes::{Axes, Space};
use super::operand::{Operand, convert, need_float};
use super::reduce::reduce_over;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::cx::flatten;
use crate::te::{Cx, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Softmax", |cx, c| {
        let (x, axes) = operand(cx, c)?;
        Ok(vec![softmax(cx, &x, &axes)])
    }),
    ("", "LogSoftmax", |cx, c| {
        let (x, axes) = operand(cx, c)?;
        Ok(vec![log_softmax(cx, &x, &axes, x.dtype)])
    }),
    ("", "Hardmax", hardmax),
];

/// The operand and the axes that are normalised together: one since version 13, before that the operand was coerced to
/// a matrix, so all axes from `axis` on.
fn operand(cx: &mut Cx, call: &Call) -> OpResult<(Operand, Axes)> {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let rank = x.rank();
    let axes = if call.version >= 13 {
        if rank == 0 { Axes::Known(vec![]) } else { Axes::known(cx, &[call.int("axis", -1)?], rank)? }
    } else {
        let axis = call.int("axis", 1)?;
        // The axis may be one past the last: rows of one element.
        let first = if axis == rank as i64 { rank } else { cx.axis(axis, rank)? };
        Axes::from(first, rank)
    };
    Ok((x, axes))
}

/// `exp(x - max)`, rounded to a type, and its sum in the compute type.
struct Parts {
    space: Space,
    top: Operand,
    exps: Operand,
    sums: Operand,
}

fn parts(cx: &mut Cx, x: &Operand, axes: &Axes, rounded: DType) -> Parts {
    let t = x.compute();
    let space = Space::new(&x.shape, axes, true);
    let top = reduce_over(cx, &space, ReduceKind::Max, t, |i, r| x.at(&space.index(i, r)));
    let top = Operand::of(cx, top);
    let exps = cx.map(t, x.shape.clone(), |i| expr::cast(rounded, (x.at(i) - top.at(&space.result_index(i))).exp()));
    let exps = Operand::of(cx, exps);
    let sums = reduce_over(cx, &space, ReduceKind::Sum, t, |i, r| exps.at(&space.index(i, r)));
    let sums = Operand::of(cx, sums);
    Parts { space, top, exps, sums }
}

/// Softmax over some axes, in the operand's type. Half types round where the function does by which ONNX defines it.
pub(super) fn softmax(cx: &mut Cx, x: &Operand, axes: &Axes) -> TensorId {
    let p = parts(cx, x, axes, x.dtype);
    cx.map(x.dtype, x.shape.clone(), |i| {
        let sum = p.sums.at(&p.space.result_index(i));
        let rounded = expr::cast(x.dtype, sum);
        // A sum of many ones is beyond the range of halves.
        p.exps.at(i) / rounded.eq_(rounded.num(f64::INFINITY)).then(sum, rounded)
    })
}

/// Logarithm of softmax over some axes, stored as `dtype`.
pub(super) fn log_softmax(cx: &mut Cx, x: &Operand, axes: &Axes, dtype: DType) -> TensorId {
    let p = parts(cx, x, axes, x.compute());
    cx.map(dtype, x.shape.clone(), |i| {
        let at = p.space.result_index(i);
        x.at(i) - p.top.at(&at) - p.sums.at(&at).ln()
    })
}

/// 1 for the first largest element, else 0.
fn hardmax(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, axes) = operand(cx, call)?;
    let space = Space::new(&x.shape, &axes, true);
    if space.over.is_empty() {
        let dtype = x.dtype;
        return Ok(vec![cx.map(dtype, x.shape.clone(), |_| convert(expr::boolean(true), dtype))]);
    }
    let best = arg_over(cx, &x, &space, true, false);
    let best = Operand::of(cx, best);
    let y = cx.map(x.dtype, x.shape.clone(), |i| {
        let own = match &axes {
            Axes::Known(reduced) => i.iter().zip(reduced).filter(|(_, r)| **r).map(|(i, _)| *i).collect::<Vec<_>>(),
            Axes::Read(..) => i.to_vec(),
        };
        let hit = best.at(&space.result_index(i)).eq_(expr::int(flatten(&space.over, &own)));
        let one = expr::constant_f64(x.dtype, 1.0);
        hit.then(one, one.num(0.0))
    });
    Ok(vec![y])
}
