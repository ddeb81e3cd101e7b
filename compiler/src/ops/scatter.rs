//! Operators that write updates into a copy of their input.

use super::kernels::{checked_index, close, copy, dims, flat, open};
use super::operand::{Operand, same_type};
use super::sizes::{guard_index, input_count, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg};
use crate::sym::Int;
use crate::te::{Cx, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Scatter", scatter_elements),
    ("", "ScatterElements", scatter_elements),
    ("", "ScatterND", scatter_nd),
    ("", "TensorScatter", tensor_scatter),
];

/// What happens to the element that an update meets.
#[derive(Clone, Copy)]
enum Reduction {
    Replace,
    Add,
    Mul,
    Min,
    Max,
}

impl Reduction {
    fn of(call: &Call) -> OpResult<Reduction> {
        Ok(match call.string("reduction", "none".into())?.as_str() {
            "none" => Reduction::Replace,
            "add" if call.version >= 16 => Reduction::Add,
            "mul" if call.version >= 16 => Reduction::Mul,
            "min" if call.version >= 18 => Reduction::Min,
            "max" if call.version >= 18 => Reduction::Max,
            other => return unsupported(format!("reduction '{other}' in opset {}", call.version)),
        })
    }

    fn apply(self, b: &mut Builder, out: Buf, at: Reg, update: Reg) {
        let truth = b.ty(update).elem == DType::Bool;
        let old = if matches!(self, Reduction::Replace) { update } else { b.load(out, at, 0, 1) };
        let new = match self {
            Reduction::Replace => update,
            Reduction::Add | Reduction::Max if truth => b.or(old, update),
            Reduction::Mul | Reduction::Min if truth => b.and(old, update),
            Reduction::Add => b.add(old, update),
            Reduction::Mul => b.mul(old, update),
            Reduction::Min => b.min(old, update),
            Reduction::Max => b.max(old, update),
        };
        b.store(out, at, 0, new);
    }
}

/// Data, indices and updates of a scatter.
fn operands(cx: &mut Cx, call: &Call) -> OpResult<[Operand; 3]> {
    input_count(call, 3, 3)?;
    let [data, indices, updates] = [call.input(0)?, call.input(1)?, call.input(2)?];
    same_type(cx, data, updates)?;
    if !cx.dtype(indices).is_int() {
        return invalid(format!("indices must be integers, not {}", cx.dtype(indices)));
    }
    Ok([Operand::of(cx, data), Operand::of(cx, indices), Operand::of(cx, updates)])
}

fn scatter_elements(cx: &mut Cx, call: &Call) -> OpResult {
    let [data, indices, updates] = operands(cx, call)?;
    let rank = data.rank();
    let axis = cx.axis(call.int("axis", 0)?, rank)?;
    let reduction = Reduction::of(call)?;
    if indices.rank() != rank || updates.rank() != rank {
        return invalid(format!(
            "data, indices and updates have {rank}, {} and {} axes",
            indices.rank(),
            updates.rank()
        ));
    }
    for k in 0..rank {
        cx.require_equal(indices.shape[k], updates.shape[k], "indices and updates differ in shape")?;
        if k != axis {
            cx.require_at_most(indices.shape[k], data.shape[k], "the indices reach beyond the data")?;
        }
    }
    let inputs = [data.id, indices.id, updates.id];
    let (shape, over) = (data.shape.clone(), indices.shape.clone());
    Ok(cx.custom("scatter_elements", &inputs, vec![(data.dtype, data.shape)], vec![], move |k| {
        let (from, at, new, out) = (k.inputs[0], k.inputs[1], k.inputs[2], k.outputs[0]);
        let n = k.int(Int::product(&shape));
        copy(k.b, from, out, n);
        let (sizes, over) = (dims(k, &shape), dims(k, &over));
        let mut index = open(k.b, &over);
        let source = flat(k.b, &over, &index);
        index[axis] = checked_index(k.b, at, source, sizes[axis]);
        let update = k.b.load(new, source, 0, 1);
        let target = flat(k.b, &sizes, &index);
        reduction.apply(k.b, out, target, update);
        close(k.b, over.len());
    }))
}

fn scatter_nd(cx: &mut Cx, call: &Call) -> OpResult {
    let [data, indices, updates] = operands(cx, call)?;
    let reduction = Reduction::of(call)?;
    let Some((last, head)) = indices.shape.split_last() else { return invalid("the indices have no axes") };
    let Some(depth) = last.as_const() else {
        return unsupported("indices whose last dimension is not known: the rank of the updates depends on it");
    };
    let Some(depth) = usize::try_from(depth).ok().filter(|d| *d <= data.rank()) else {
        return invalid(format!("index tuples of {depth} numbers for data with {} axes", data.rank()));
    };
    let want = [head, &data.shape[depth..]].concat();
    if updates.rank() != want.len() {
        return invalid(format!("updates have {} axes, expected {}", updates.rank(), want.len()));
    }
    for (a, b) in want.iter().zip(&updates.shape) {
        cx.require_equal(*a, *b, "shape of the updates")?;
    }
    let inputs = [data.id, indices.id, updates.id];
    let (shape, tuples) = (data.shape.clone(), Int::product(head));
    Ok(cx.custom("scatter_nd", &inputs, vec![(data.dtype, data.shape)], vec![], move |k| {
        let (from, at, new, out) = (k.inputs[0], k.inputs[1], k.inputs[2], k.outputs[0]);
        let n = k.int(Int::product(&shape));
        copy(k.b, from, out, n);
        let sizes = dims(k, &shape[..depth]);
        let (tuples, slice) = (k.int(tuples), k.int(Int::product(&shape[depth..])));
        let (zero, width) = (k.b.i64(0), k.b.i64(depth as i64));
        k.b.for_(zero, tuples, 1, |b, tuple| {
            let first = b.mul(tuple, width);
            let mut index = vec![];
            for (j, size) in sizes.iter().enumerate() {
                let place = b.i64(j as i64);
                let place = b.add(first, place);
                index.push(checked_index(b, at, place, *size));
            }
            let target = flat(b, &sizes, &index);
            let (source, target) = (b.mul(tuple, slice), b.mul(target, slice));
            b.for_(zero, slice, 1, |b, i| {
                let (source, target) = (b.add(source, i), b.add(target, i));
                let update = b.load(new, source, 0, 1);
                reduction.apply(b, out, target, update);
            });
        });
    }))
}

/// Writes a run of positions along one axis, from a start that each batch entry gives.
fn tensor_scatter(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 3)?;
    let (cache, update) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    same_type(cx, cache.id, update.id)?;
    let rank = cache.rank();
    let axis = cx.axis(call.int("axis", -2)?, rank)?;
    let circular = match call.string("mode", "linear".into())?.as_str() {
        "linear" => false,
        "circular" => true,
        other => return unsupported(format!("mode '{other}'")),
    };
    if update.rank() != rank || axis == 0 {
        return invalid("the update must have the axes of the cache, and the first one is the batch");
    }
    for k in (0..rank).filter(|k| *k != axis) {
        cx.require_equal(cache.shape[k], update.shape[k], "shapes of cache and update")?;
    }
    let (room, run) = (cache.shape[axis], update.shape[axis]);
    cx.require_at_most(run, room, "the update is longer than the cache")?;
    let starts = call.opt(2).map(|t| Operand::of(cx, t));
    if let Some(s) = &starts {
        if s.rank() != 1 || !s.dtype.is_int() {
            return invalid("write_indices must be a list of integers");
        }
        cx.require_equal(s.shape[0], cache.shape[0], "write_indices and batch")?;
    }
    Ok(vec![cx.map(cache.dtype, cache.shape.clone(), |i| {
        let start = match &starts {
            Some(s) => expr::as_int(s.at(&[i[0]])),
            None => Int::new(0),
        };
        // The place of this position in the update; it is outside unless within 0..run.
        let offset = if circular { (i[axis] - start).rem(room) } else { i[axis] - start };
        let mut index = i.to_vec();
        index[axis] = guard_index(offset, run);
        let (zero, at) = (Int::new(0), expr::int(offset));
        let low = expr::cmp(Cmp::Ge, at, expr::int(zero));
        let high = expr::cmp(Cmp::Lt, at, expr::int(run));
        let hit = expr::bin(crate::te::Func2::And, low, high);
        expr::select(hit, update.at(&index), cache.at(i))
    })])
}
