//! Pooling over regions of interest.

use super::kernels::{checked_index, close, dims, open};
use super::operand::{Operand, need_float, same_type};
use super::sizes::{input_count, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg, Type, UnOp};
use crate::sym::Int;
use crate::te::{Cx, OpResult};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "RoiAlign", roi_align), ("", "MaxRoiPool", max_roi_pool)];

/// A positive size given as attribute.
fn size(call: &Call, name: &str, default: i64) -> OpResult<i64> {
    match call.int(name, default)? {
        n if (1..1 << 20).contains(&n) => Ok(n),
        n => invalid(format!("attribute '{name}' is {n}")),
    }
}

#[derive(Clone, Copy)]
struct Align {
    height: i64,
    width: i64,
    sampling: i64,
    scale: f64,
    half_pixel: bool,
    max: bool,
}

fn roi_align(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 3, 3)?;
    let (x, rois) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    let batch = Operand::of(cx, call.input(2)?);
    need_float(x.dtype)?;
    same_type(cx, x.id, rois.id)?;
    if x.rank() != 4 || rois.rank() != 2 || batch.rank() != 1 || !batch.dtype.is_int() {
        return invalid("X must have 4 axes, rois 2 and batch_indices 1");
    }
    cx.require_equal(rois.shape[1], Int::new(4), "numbers of a region")?;
    cx.require_equal(rois.shape[0], batch.shape[0], "regions and batch_indices")?;
    let mode = call.string("mode", "avg".into())?;
    // The pixel shift came with opset 16.
    let default = if call.version < 16 { "output_half_pixel" } else { "half_pixel" };
    let shift = call.string("coordinate_transformation_mode", default.into())?;
    let how = Align {
        height: size(call, "output_height", 1)?,
        width: size(call, "output_width", 1)?,
        sampling: call.int("sampling_ratio", 0)?,
        scale: call.float("spatial_scale", 1.0)?.into(),
        half_pixel: match shift.as_str() {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => return unsupported(format!("coordinate_transformation_mode '{other}'")),
        },
        max: match mode.as_str() {
            "avg" => false,
            "max" => true,
            other => return unsupported(format!("mode '{other}'")),
        },
    };
    if how.sampling < 0 {
        return invalid(format!("sampling_ratio {}", how.sampling));
    }
    let out = vec![rois.shape[0], x.shape[1], Int::new(how.height), Int::new(how.width)];
    let inputs = [x.id, rois.id, batch.id];
    let (shape, count) = (x.shape.clone(), rois.shape[0]);
    Ok(cx.custom("roi_align", &inputs, vec![(x.dtype, out)], vec![], move |k| {
        let (sizes, count) = (dims(k, &shape), k.int(count));
        align(k.b, [k.inputs[0], k.inputs[1], k.inputs[2], k.outputs[0]], &sizes, count, how);
    }))
}

/// Float arithmetic at one precision.
struct Floats {
    ty: Type,
}

impl Floats {
    fn c(&self, b: &mut Builder, v: f64) -> Reg {
        b.float(self.ty, v)
    }

    fn of(&self, b: &mut Builder, i: Reg) -> Reg {
        b.cast(self.ty.elem, i)
    }
}

fn align(b: &mut Builder, [x, rois, batch, out]: [Buf; 4], sizes: &[Reg], count: Reg, how: Align) {
    let [batches, channels, height, width] = *sizes else { return };
    let f = Floats { ty: super::kernels::element_type(b, x) };
    let (rows, columns) = (b.i64(how.height), b.i64(how.width));
    let one = b.i64(1);
    let scale = f.c(b, how.scale);
    let offset = f.c(b, if how.half_pixel { 0.5 } else { 0.0 });
    let roi = open(b, &[count])[0];
    let four = b.i64(4);
    let corner = b.mul(roi, four);
    let mut ends = vec![];
    for k in 0..4 {
        let v = b.load(rois, corner, k, 1);
        let v = b.mul(v, scale);
        ends.push(b.sub(v, offset));
    }
    let image = checked_index(b, batch, roi, batches);
    // Start, size of a bin, and number of samples in it, along both axes.
    let mut side = |start: Reg, end: Reg, bins: Reg| {
        let mut length = b.sub(end, start);
        if !how.half_pixel {
            let least = f.c(b, 1.0);
            length = b.max(length, least);
        }
        let bins = f.of(b, bins);
        let bin = b.div(length, bins);
        let samples = if how.sampling > 0 {
            b.i64(how.sampling)
        } else {
            let n = b.un(UnOp::Ceil, bin);
            b.cast(DType::I64, n)
        };
        (start, bin, samples)
    };
    let down = side(ends[1], ends[3], rows);
    let along = side(ends[0], ends[2], columns);
    let samples = b.mul(down.2, along.2);
    let samples = b.max(samples, one);
    let samples = f.of(b, samples);
    let index = open(b, &[channels, rows, columns]);
    let plane = b.mul(image, channels);
    let plane = b.add(plane, index[0]);
    let total = b.var(f.ty);
    let seen = b.var(Type::scalar(DType::Bool));
    let (nothing, no, yes) = (f.c(b, 0.0), b.bool(false), b.bool(true));
    b.set(total, nothing);
    b.set(seen, no);
    let sample = open(b, &[down.2, along.2]);
    let mut place = |(start, bin, n): (Reg, Reg, Reg), cell: Reg, sample: Reg| {
        let (cell, sample, n) = (f.of(b, cell), f.of(b, sample), f.of(b, n));
        let half = f.c(b, 0.5);
        let before = b.mul(cell, bin);
        let before = b.add(start, before);
        let inner = b.add(sample, half);
        let inner = b.mul(inner, bin);
        let inner = b.div(inner, n);
        b.add(before, inner)
    };
    let (y, x_at) = (place(down, index[1], sample[0]), place(along, index[2], sample[1]));
    let (v0, v1) = (neighbours(b, &f, y, height), neighbours(b, &f, x_at, width));
    let hit = b.and(v0.inside, v1.inside);
    let mut value: Option<Reg> = None;
    for (row, wy) in v0.taps {
        for (column, wx) in v1.taps {
            let at = b.mul(plane, height);
            let at = b.add(at, row);
            let at = b.mul(at, width);
            let at = b.add(at, column);
            let v = b.load(x, at, 0, 1);
            let w = b.mul(wy, wx);
            let term = b.mul(w, v);
            value = Some(match value {
                None => term,
                Some(sum) if how.max => b.max(sum, term),
                Some(sum) => b.add(sum, term),
            });
        }
    }
    let Some(value) = value else { return };
    let value = b.select(hit, value, nothing);
    let so_far = b.get(total);
    let next = if how.max {
        let larger = b.max(so_far, value);
        let any = b.get(seen);
        b.select(any, larger, value)
    } else {
        b.add(so_far, value)
    };
    b.set(total, next);
    b.set(seen, yes);
    close(b, 2);
    let result = b.get(total);
    let result = if how.max { result } else { b.div(result, samples) };
    let at = b.mul(roi, channels);
    let at = b.add(at, index[0]);
    let at = b.mul(at, rows);
    let at = b.add(at, index[1]);
    let at = b.mul(at, columns);
    let at = b.add(at, index[2]);
    b.store(out, at, 0, result);
    close(b, 4);
}

/// Two elements beside a position with their weights.
struct Neighbours {
    /// The position is at most one element outside.
    inside: Reg,
    taps: [(Reg, Reg); 2],
}

fn neighbours(b: &mut Builder, f: &Floats, p: Reg, size: Reg) -> Neighbours {
    let (zero, one) = (b.i64(0), b.i64(1));
    let length = f.of(b, size);
    let minus = f.c(b, -1.0);
    let (low, high) = (b.cmp(Cmp::Ge, p, minus), b.cmp(Cmp::Le, p, length));
    let inside = b.and(low, high);
    let nothing = f.c(b, 0.0);
    // NaN would be no index: it is outside, and the place is then any.
    let place = b.select(inside, p, nothing);
    let place = b.max(place, nothing);
    let last = b.sub(size, one);
    let last = b.max(last, zero);
    let first = b.cast(DType::I64, place);
    let at_end = b.cmp(Cmp::Ge, first, last);
    let first = b.min(first, last);
    let second = b.add(first, one);
    let second = b.min(second, last);
    let base = f.of(b, first);
    let part = b.sub(place, base);
    let part = b.select(at_end, nothing, part);
    let whole = f.c(b, 1.0);
    let rest = b.sub(whole, part);
    Neighbours { inside, taps: [(first, rest), (second, part)] }
}

fn max_roi_pool(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let (x, rois) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    need_float(x.dtype)?;
    same_type(cx, x.id, rois.id)?;
    if x.rank() != 4 || rois.rank() != 2 {
        return invalid("X must have 4 axes and rois 2");
    }
    cx.require_equal(rois.shape[1], Int::new(5), "numbers of a region")?;
    let pooled = match call.opt_ints("pooled_shape")?.as_deref() {
        Some([h, w]) if (1..1 << 20).contains(h) && (1..1 << 20).contains(w) => [*h, *w],
        _ => return invalid("attribute 'pooled_shape' must be two positive numbers"),
    };
    let scale = f64::from(call.float("spatial_scale", 1.0)?);
    let out = vec![rois.shape[0], x.shape[1], Int::new(pooled[0]), Int::new(pooled[1])];
    let (shape, count) = (x.shape.clone(), rois.shape[0]);
    Ok(cx.custom("max_roi_pool", &[x.id, rois.id], vec![(x.dtype, out)], vec![], move |k| {
        let (sizes, count) = (dims(k, &shape), k.int(count));
        pool(k.b, [k.inputs[0], k.inputs[1], k.outputs[0]], &sizes, count, pooled, scale);
    }))
}

fn pool(b: &mut Builder, [x, rois, out]: [Buf; 3], sizes: &[Reg], count: Reg, pooled: [i64; 2], scale: f64) {
    let [batches, channels, height, width] = *sizes else { return };
    let f = Floats { ty: super::kernels::element_type(b, x) };
    let (rows, columns) = (b.i64(pooled[0]), b.i64(pooled[1]));
    let (zero, one, five) = (b.i64(0), b.i64(1), b.i64(5));
    let roi = open(b, &[count])[0];
    let first = b.mul(roi, five);
    let image = b.load(rois, first, 0, 1);
    let image = b.cast(DType::I64, image);
    super::kernels::require_index(b, image, batches);
    let scale = f.c(b, scale);
    let mut ends = vec![];
    for k in 1..5 {
        let v = b.load(rois, first, k, 1);
        let v = b.mul(v, scale);
        // Halves away from zero.
        let half = f.c(b, 0.5);
        let size = b.abs(v);
        let size = b.add(size, half);
        let size = b.un(UnOp::Floor, size);
        let nothing = f.c(b, 0.0);
        let negative = b.cmp(Cmp::Lt, v, nothing);
        let flipped = b.neg(size);
        let v = b.select(negative, flipped, size);
        ends.push(b.cast(DType::I64, v));
    }
    let index = open(b, &[channels, rows, columns]);
    // First and last-but-one element of a bin.
    let mut bin = |start: Reg, end: Reg, cell: Reg, bins: Reg, size: Reg| {
        let length = b.sub(end, start);
        let length = b.add(length, one);
        let length = b.max(length, one);
        let (length, bins) = (f.of(b, length), f.of(b, bins));
        let step = b.div(length, bins);
        let next = b.add(cell, one);
        let (cell, next) = (f.of(b, cell), f.of(b, next));
        let (lo, hi) = (b.mul(cell, step), b.mul(next, step));
        let (lo, hi) = (b.un(UnOp::Floor, lo), b.un(UnOp::Ceil, hi));
        let (lo, hi) = (b.cast(DType::I64, lo), b.cast(DType::I64, hi));
        let mut within = |v: Reg| {
            let v = b.add(v, start);
            let v = b.max(v, zero);
            b.min(v, size)
        };
        (within(lo), within(hi))
    };
    let (top, bottom) = bin(ends[1], ends[3], index[1], rows, height);
    let (left, right) = bin(ends[0], ends[2], index[2], columns, width);
    let best = b.var(f.ty);
    let lowest = f.c(b, f64::NEG_INFINITY);
    b.set(best, lowest);
    let plane = b.mul(image, channels);
    let plane = b.add(plane, index[0]);
    let y = b.begin_for(top, bottom, 1);
    let x_at = b.begin_for(left, right, 1);
    let at = b.mul(plane, height);
    let at = b.add(at, y);
    let at = b.mul(at, width);
    let at = b.add(at, x_at);
    let v = b.load(x, at, 0, 1);
    let so_far = b.get(best);
    let larger = b.max(so_far, v);
    b.set(best, larger);
    close(b, 2);
    let (flat_rows, flat_columns) = (b.cmp(Cmp::Le, bottom, top), b.cmp(Cmp::Le, right, left));
    let empty = b.or(flat_rows, flat_columns);
    let nothing = f.c(b, 0.0);
    let best = b.get(best);
    let result = b.select(empty, nothing, best);
    let at = b.mul(roi, channels);
    let at = b.add(at, index[0]);
    let at = b.mul(at, rows);
    let at = b.add(at, index[1]);
    let at = b.mul(at, columns);
    let at = b.add(at, index[2]);
    b.store(out, at, 0, result);
    close(b, 4);
}
