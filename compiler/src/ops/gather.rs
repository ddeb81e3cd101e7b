//! Operators that pick elements by an index given as data.

use super::operand::Operand;
use super::sizes::{guard_index, input_count, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::expr::Func2;
use crate::te::{Cx, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Gather", gather),
    ("", "GatherElements", gather_elements),
    ("", "GatherND", gather_nd),
    ("ai.onnx.ml", "ArrayFeatureExtractor", array_feature_extractor),
];

/// Constant indices are checked at once; more than this many are left to the guard in the kernel.
const MOST_CHECKED: i64 = 1 << 16;

/// A tensor of indices into axes of the sizes `dims`: the last axis of `indices` tells which (or there is only one).
struct Indices {
    src: Operand,
    dims: Vec<Int>,
    /// All known to lie in `0..d`.
    safe: bool,
}

impl Indices {
    fn of(cx: &mut Cx, t: TensorId, dims: &[Int]) -> OpResult<Indices> {
        let src = Operand::of(cx, t);
        if !src.dtype.is_int() {
            return invalid(format!("indices must be integers, not {}", src.dtype));
        }
        let few = Int::product(&src.shape).as_const().is_some_and(|n| n <= MOST_CHECKED);
        let limits: Option<Vec<i64>> = dims.iter().map(|d| d.as_const()).collect();
        let constant = matches!(cx.program.tensor(t).def, crate::te::Def::Const(_));
        let values = if few && constant { cx.const_floats(t) } else { None };
        let (Some(values), Some(limits)) = (values, limits) else {
            check(cx, t, &src, dims)?;
            return Ok(Indices { src, dims: dims.to_vec(), safe: false });
        };
        let mut fixed = vec![];
        for (k, v) in values.iter().enumerate() {
            let (v, d) = (*v as i64, limits[k % limits.len().max(1)]);
            if v < -d || v >= d {
                return invalid(format!("index {v} is outside of {}..{d}", -d));
            }
            fixed.push(if v < 0 { v + d } else { v });
        }
        let shape: Option<Vec<usize>> =
            src.shape.iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect();
        let Some(shape) = shape else {
            return unsupported("indices of unknown shape");
        };
        let changed = values.iter().zip(&fixed).any(|(a, b)| *a as i64 != *b);
        let src = if changed {
            {
                let t = cx.constant_i64(&shape, &fixed);
                Operand::of(cx, t)
            }
        } else {
            src
        };
        Ok(Indices { src, dims: dims.to_vec(), safe: true })
    }

    /// The position along axis `which` that the element at `index` of the indices gives.
    fn at(&self, index: &[Int], which: usize) -> Int {
        let i = expr::as_int(self.src.at(index));
        if self.safe { i } else { guard_index(i, self.dims[which]) }
    }
}

/// Has the run end with an error if an index is outside of its axis. What reads with it is clamped all the same, so that
/// nothing outside of a buffer is read before.
fn check(cx: &mut Cx, t: TensorId, src: &Operand, dims: &[Int]) -> OpResult<()> {
    let over = if dims.len() == 1 { &src.shape[..] } else { &src.shape[..src.shape.len() - 1] };
    if dims.is_empty() || !cx.is_first_check(t, dims) {
        return Ok(());
    }
    let outside = cx.reduce(ReduceKind::Max, DType::I64, vec![], over, |_, r| {
        let one = |k: usize| {
            let at = if dims.len() == 1 { r.to_vec() } else { [r, &[Int::from(k)]].concat() };
            let i = expr::cast(DType::I64, src.at(&at));
            let (low, high) = (expr::int(-dims[k]), expr::int(dims[k]));
            let wrong = expr::bin(Func2::Or, expr::cmp(Cmp::Lt, i, low), expr::cmp(Cmp::Ge, i, high));
            expr::select(wrong, expr::int(Int::new(1)), expr::int(Int::new(0)))
        };
        (1..dims.len()).fold(one(0), |all, k| expr::bin(Func2::Max, all, one(k)))
    });
    let outside = cx.read(outside, 0, "outside", None, None);
    cx.require_at_most(outside, Int::new(0), "an index is outside of its axis")
}

fn gather(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let src = Operand::of(cx, call.input(0)?);
    let axis = cx.axis(call.int("axis", 0)?, src.shape.len())?;
    let t = call.input(1)?;
    let picked = cx.shape(t);
    let out = [&src.shape[..axis], &picked, &src.shape[axis + 1..]].concat();
    // One index that is known (or known by a formula) makes a plain slice.
    let known = if Int::product(&picked) == Int::new(1) { cx.ints(t) } else { None };
    if let Some([i]) = known.as_deref() {
        let d = src.shape[axis];
        if let (Some(c), Some(n)) = (i.as_const(), d.as_const())
            && (c < -n || c >= n)
        {
            return invalid(format!("index {c} is outside of {}..{n}", -n));
        }
        let i = *i;
        cx.require_at_most(-d, i, "the index is outside of its axis")?;
        cx.require_at_most(i, d - 1, "the index is outside of its axis")?;
        let at = guard_index(i, d);
        return Ok(vec![cx.map(src.dtype, out, |i| src.at(&[&i[..axis], &[at], &i[axis + picked.len()..]].concat()))]);
    }
    let indices = Indices::of(cx, t, &[src.shape[axis]])?;
    Ok(vec![cx.map(src.dtype, out, |i| {
        let (mid, tail) = (&i[axis..axis + picked.len()], &i[axis + picked.len()..]);
        src.at(&[&i[..axis], &[indices.at(mid, 0)], tail].concat())
    })])
}

fn gather_elements(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let src = Operand::of(cx, call.input(0)?);
    let rank = src.shape.len();
    let axis = cx.axis(call.int("axis", 0)?, rank)?;
    let indices = Indices::of(cx, call.input(1)?, &[src.shape[axis]])?;
    let out = indices.src.shape.clone();
    if out.len() != rank {
        return invalid(format!("the indices have {} axes and the data {rank}", out.len()));
    }
    for k in (0..rank).filter(|k| *k != axis) {
        cx.require_at_most(out[k], src.shape[k], "the indices reach beyond the data")?;
    }
    Ok(vec![cx.map(src.dtype, out, |i| {
        let mut index = i.to_vec();
        index[axis] = indices.at(i, 0);
        src.at(&index)
    })])
}

fn gather_nd(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let src = Operand::of(cx, call.input(0)?);
    let t = call.input(1)?;
    let shape = cx.shape(t);
    let batch = if call.version >= 12 { call.int("batch_dims", 0)? } else { 0 };
    let (Ok(batch), Some((last, head))) = (usize::try_from(batch), shape.split_last()) else {
        return invalid(format!("batch_dims {batch} with indices of {} axes", shape.len()));
    };
    if batch > head.len() || batch >= src.shape.len() {
        return invalid(format!("batch_dims {batch} is not below the rank of data and indices"));
    }
    let Some(depth) = last.as_const() else {
        return unsupported("indices whose last dimension is not known: the rank would depend on it");
    };
    let Some(depth) = usize::try_from(depth).ok().filter(|n| batch + n <= src.shape.len()) else {
        return invalid(format!(
            "index tuples of {depth} numbers for {} axes after the batch",
            src.shape.len() - batch
        ));
    };
    for (of_data, of_indices) in src.shape.iter().zip(head).take(batch) {
        cx.require_equal(*of_data, *of_indices, "batch dimensions of data and indices differ")?;
    }
    let out = [head, &src.shape[batch + depth..]].concat();
    let indices = Indices::of(cx, t, &src.shape[batch..batch + depth])?;
    Ok(vec![cx.map(src.dtype, out, |i| {
        let (place, tail) = i.split_at(head.len());
        let mut index = place[..batch].to_vec();
        for k in 0..depth {
            index.push(indices.at(&[place, &[Int::from(k)]].concat(), k));
        }
        index.extend_from_slice(tail);
        src.at(&index)
    })])
}

/// Picks along the last axis; a vector counts as one row.
fn array_feature_extractor(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let src = Operand::of(cx, call.input(0)?);
    let t = call.input(1)?;
    let Some((last, head)) = src.shape.split_last() else {
        return invalid("the input has no axes");
    };
    if cx.dtype(t) != DType::I64 {
        return invalid(format!("indices must be int64, not {}", cx.dtype(t)));
    }
    let picked = cx.numel(t);
    let list = cx.view(t, vec![picked]);
    let indices = Indices::of(cx, list, &[*last])?;
    let out = if head.is_empty() { vec![Int::new(1), picked] } else { [head, &[picked]].concat() };
    Ok(vec![cx.map(src.dtype, out, |i| {
        let (at, rest) = (i[i.len() - 1], &i[..i.len() - 1]);
        let place = indices.at(&[at], 0);
        if head.is_empty() { src.at(&[place]) } else { src.at(&[rest, &[place]].concat()) }
    })])
}
