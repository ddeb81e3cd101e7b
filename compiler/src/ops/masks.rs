//! Operators that choose by position: triangles, diagonals, one-hot rows, reversed sequences.

use super::operand::{Operand, onnx_type};
use super::sizes::{dim, guard_index, input_count, int_scalar, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Trilu", trilu),
    ("", "EyeLike", eye_like),
    ("", "OneHot", one_hot),
    ("", "ReverseSequence", reverse_sequence),
];

/// How far a diagonal is from the main one, at most to where it has left a matrix of this size: any further number means
/// the same, and cannot wrap when a position is added. Small constants stay as they are.
fn diagonal(shift: Int, rows: Int, columns: Int) -> Int {
    match shift.as_const() {
        Some(k) if i32::try_from(k).is_ok() => shift,
        _ => shift.max(-rows).min(columns),
    }
}

fn trilu(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 1, 2)?;
    let x = Operand::of(cx, call.input(0)?);
    let rank = x.rank();
    if rank < 2 {
        return invalid(format!("the input must have at least 2 axes, not {rank}"));
    }
    let upper = call.int("upper", 1)? != 0;
    let shift = match call.opt(1) {
        Some(t) => int_scalar(cx, t, "k")?,
        None => Int::new(0),
    };
    let shift = diagonal(shift, x.shape[rank - 2], x.shape[rank - 1]);
    let zero = expr::constant_f64(x.dtype, 0.0);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let (diagonal, column) = (expr::int(i[rank - 2] + shift), expr::int(i[rank - 1]));
        let keep = expr::cmp(if upper { Cmp::Ge } else { Cmp::Le }, column, diagonal);
        expr::select(keep, x.at(i), zero)
    })])
}

fn eye_like(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    if x.rank() != 2 {
        return invalid(format!("the input must have 2 axes, not {}", x.rank()));
    }
    let dtype = match call.opt_int("dtype")? {
        Some(code) => onnx_type(code)?,
        None => x.dtype,
    };
    let shift = diagonal(Int::new(call.int("k", 0)?), x.shape[0], x.shape[1]);
    Ok(vec![cx.map(dtype, x.shape, |i| {
        let hit = expr::cmp(Cmp::Eq, expr::int(i[1]), expr::int(i[0] + shift));
        expr::select(hit, expr::constant_f64(dtype, 1.0), expr::constant_f64(dtype, 0.0))
    })])
}

fn one_hot(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 3, 3)?;
    let (indices, depth) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    let values = Operand::of(cx, call.input(2)?);
    if values.rank() != 1 {
        return invalid("values must be a list of two");
    }
    cx.require_equal(values.shape[0], Int::new(2), "values must be a list of two")?;
    // The depth may be a float too.
    let depth = if depth.dtype.is_int() {
        depth.id
    } else {
        cx.map(DType::I64, depth.shape.clone(), |i| expr::cast(DType::I64, depth.at(i)))
    };
    let depth = int_scalar(cx, depth, "depth")?;
    let depth = dim(cx, depth)?;
    let rank = indices.rank();
    let axis = cx.axis(call.int("axis", -1)?, rank + 1)?;
    let mut out = indices.shape.clone();
    out.insert(axis, depth);
    Ok(vec![cx.map(values.dtype, out, |i| {
        let mut index = i.to_vec();
        let place = expr::int(index.remove(axis));
        let raw = expr::cast(DType::I64, indices.at(&index));
        let negative = expr::cmp(Cmp::Lt, raw, expr::int(Int::new(0)));
        let from_end = expr::bin(crate::te::Func2::Add, raw, expr::int(depth));
        let hot = expr::cmp(Cmp::Eq, expr::select(negative, from_end, raw), place);
        expr::select(hot, values.at(&[Int::new(1)]), values.at(&[Int::new(0)]))
    })])
}

fn reverse_sequence(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let (x, lens) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    if x.rank() < 2 || lens.rank() != 1 || !lens.dtype.is_int() {
        return invalid("the input must have at least 2 axes and sequence_lens must be a list of integers");
    }
    let (batch, time) = (call.int("batch_axis", 1)?, call.int("time_axis", 0)?);
    if batch + time != 1 || batch * time != 0 {
        return unsupported(format!("batch_axis {batch} with time_axis {time}: one must be 0 and the other 1"));
    }
    let (batch, time) = (batch as usize, time as usize);
    cx.require_equal(lens.shape[0], x.shape[batch], "sequence_lens and batch")?;
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let len = expr::as_int(lens.at(&[i[batch]]));
        let mut index = i.to_vec();
        index[time] = guard_index(i[time].if_lt(len, len - 1 - i[time], i[time]), x.shape[time]);
        x.at(&index)
    })])
}
