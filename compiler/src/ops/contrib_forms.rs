//! Operators of the domain `com.microsoft` that are those of the standard in another form, and small ones of their own.

use super::activation::gelu_erf;
use super::contrib::apply;
use super::operand::{Operand, need_float, same_type};
use super::sizes::{int_list, int_scalar, invalid, unsupported};
use super::{AttrValue, Call, Expand, expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, ReduceKind, TensorId, expr};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "Trilu", |cx, call| standard(cx, call, "Trilu", 14)),
    (MS, "GatherND", |cx, call| standard(cx, call, "GatherND", 11)),
    (MS, "GridSample", |cx, call| standard(cx, call, "GridSample", 16)),
    (MS, "ReduceSumInteger", reduce_sum_integer),
    (MS, "SampleOp", |_, call| Ok(vec![call.input(0)?])),
    (MS, "Range", range),
    (MS, "Pad", pad),
    (MS, "ExpandDims", expand_dims),
    (MS, "Rfft", rfft),
    (MS, "Irfft", irfft),
    (MS, "Unique", unique),
    (MS, "UnfoldTensor", unfold),
    (MS, "CDist", cdist),
    (MS, "CropAndResize", crop_and_resize),
    (MS, "BiasAdd", bias_add),
    (MS, "BiasSplitGelu", bias_split_gelu),
];

/// The operator of the standard on the operands and attributes of the call.
fn standard(cx: &mut Cx, call: &Call, op: &str, version: i64) -> OpResult {
    expand(cx, &Call { domain: String::new(), op: op.into(), version, ..call.clone() })
}

/// Sums of bytes in 32 bits.
fn reduce_sum_integer(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let (code, to) = match cx.dtype(x) {
        DType::I8 => (6, DType::I32),
        DType::U8 => (12, DType::U32),
        other => return invalid(format!("element type {other}, int8 or uint8 is needed")),
    };
    let wide = apply(cx, "Cast", &[Some(x)], &[("to", AttrValue::Int(code))])?;
    debug_assert_eq!(cx.dtype(wide), to);
    let inputs = vec![Some(wide)];
    standard(cx, &Call { inputs, ..call.clone() }, "ReduceSum", 11)
}

/// The step is 1 unless it is given.
fn range(cx: &mut Cx, call: &Call) -> OpResult {
    let (start, limit) = (call.input(0)?, call.input(1)?);
    let scalar = |cx: &mut Cx, t: TensorId| if cx.rank(t) == 1 { cx.view(t, vec![]) } else { t };
    let dtype = cx.dtype(start);
    let step = match call.opt(2) {
        Some(t) => t,
        None => cx.map(dtype, vec![], |_| expr::constant_f64(dtype, 1.0)),
    };
    for t in [start, limit, step] {
        super::operand::need_one(cx, t, "an operand")?;
    }
    let inputs = [start, limit, step].map(|t| Some(scalar(cx, t)));
    Ok(vec![apply(cx, "Range", &inputs, &[])?])
}

/// The pads may be one row of a matrix, the value a list of one.
fn pad(cx: &mut Cx, call: &Call) -> OpResult {
    let mut pads = call.input(1)?;
    if cx.rank(pads) == 2 {
        let all = cx.numel(pads);
        let rows = cx.shape(pads)[0];
        cx.require_equal(rows, Int::new(1), "rows of the pads")?;
        pads = cx.view(pads, vec![all]);
    }
    let inputs = vec![Some(call.input(0)?), Some(pads), call.opt(2)];
    standard(cx, &Call { inputs, ..call.clone() }, "Pad", 11)
}

fn expand_dims(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, axis) = (call.input(0)?, call.input(1)?);
    let axis = match int_scalar(cx, axis, "axis")?.as_const() {
        Some(axis) => cx.axis(axis, cx.rank(x) + 1)?,
        None => return unsupported("an axis that is not a constant"),
    };
    let mut shape = cx.shape(x);
    shape.insert(axis, Int::new(1));
    Ok(vec![cx.view(x, shape)])
}

/// Only transforms over the last axis, not scaled and one-sided.
fn check_transform(call: &Call) -> OpResult<()> {
    for (name, default, is) in [("normalized", 0, 0), ("onesided", 1, 1), ("signal_ndim", 1, 1)] {
        match call.int(name, default)? {
            v if v == is => {}
            v => return unsupported(format!("attribute '{name}' = {v}")),
        }
    }
    Ok(())
}

/// Gives pairs of real and imaginary parts along a new last axis.
fn rfft(cx: &mut Cx, call: &Call) -> OpResult {
    check_transform(call)?;
    let x = call.input(0)?;
    let mut shape = cx.shape(x);
    shape.push(Int::new(1));
    let column = cx.view(x, shape);
    let attrs = [("axis", AttrValue::Int(cx.rank(x) as i64 - 1)), ("onesided", AttrValue::Int(1))];
    Ok(vec![apply(cx, "DFT", &[Some(column)], &attrs)?])
}

/// `(bins - 1) * 2` real numbers from as many bins.
fn irfft(cx: &mut Cx, call: &Call) -> OpResult {
    check_transform(call)?;
    let x = Operand::of(cx, call.input(0)?);
    let rank = x.rank();
    if rank < 2 {
        return invalid(format!("the input has rank {rank}; bins and their two parts are needed"));
    }
    cx.require_equal(x.shape[rank - 1], Int::new(2), "parts of a complex number")?;
    let half = x.shape[rank - 2];
    let n = (half - 1) * 2;
    // The other half is the mirror image, conjugated.
    let mut shape = x.shape.clone();
    shape[rank - 2] = n;
    let full = cx.map(x.dtype, shape, |i| {
        let mut at = i.to_vec();
        let bin = i[rank - 2];
        at[rank - 2] = bin.if_lt(half, bin, n - bin);
        let v = x.at(&at);
        let mirrored = super::scalar::le(half, bin) & super::scalar::eq(i[rank - 1], 1);
        mirrored.then(-v, v)
    });
    let attrs = [("axis", AttrValue::Int(rank as i64 - 2)), ("inverse", AttrValue::Int(1))];
    let y = apply(cx, "DFT", &[Some(full)], &attrs)?;
    let y = Operand::of(cx, y);
    Ok(vec![cx.map(x.dtype, y.shape[..rank - 1].to_vec(), |i| y.at(&[i, &[Int::new(0)]].concat()))])
}

/// In order of first occurrence: the values, for each element which of them it is, and how often each occurs.
fn unique(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    if cx.rank(x) != 1 {
        return invalid(format!("the input has rank {}, not 1", cx.rank(x)));
    }
    let inner = Call {
        domain: String::new(),
        op: "Unique".into(),
        version: 11,
        inputs: vec![Some(x)],
        outputs: vec![true; 4],
        attrs: [("sorted".to_string(), AttrValue::Int(0))].into(),
    };
    let made = expand(cx, &inner)?;
    match made[..] {
        [values, _, which, counts] => Ok(vec![values, which, counts]),
        _ => unsupported("unique values without their numbers"),
    }
}

/// Windows of `size` elements along axis `dim`, one every `step`; their elements are the last axis.
fn unfold(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let axis = cx.axis(call.int("dim", -1)?, x.rank())?;
    let (Some(size), step) = (call.opt_int("size")?, call.int("step", 1)?) else {
        return invalid("attribute 'size' is missing");
    };
    if size < 1 || step < 1 || size.max(step) > i64::from(i32::MAX) {
        return invalid(format!("windows of {size} every {step}"));
    }
    cx.require_at_most(Int::new(size), x.shape[axis], "elements of a window")?;
    let mut out = x.shape.clone();
    out[axis] = (x.shape[axis] - size).div(step) + 1;
    out.push(Int::new(size));
    let rank = x.rank();
    Ok(vec![cx.map(x.dtype, out, |i| {
        let mut at = i[..rank].to_vec();
        at[axis] = i[axis] * step + i[rank];
        x.at(&at)
    })])
}

/// Distances between the rows of two matrices.
fn cdist(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    need_float(same_type(cx, a.id, b.id)?)?;
    let squared = match call.string("metric", "sqeuclidean".into())?.as_str() {
        "sqeuclidean" => true,
        "euclidean" => false,
        other => return unsupported(format!("metric '{other}'")),
    };
    let (&[m, ka], &[n, kb]) = (a.shape.as_slice(), b.shape.as_slice()) else {
        return invalid("the operands must be matrices");
    };
    cx.require_equal(ka, kb, "columns of the operands")?;
    let wide = a.compute();
    let sum = cx.reduce(ReduceKind::Sum, wide, vec![m, n], &[ka], |i, r| {
        let d = a.at(&[i[0], r[0]]) - b.at(&[i[1], r[0]]);
        d * d
    });
    let sum = Operand::of(cx, sum);
    Ok(vec![cx.map(a.dtype, vec![m, n], |i| if squared { sum.at(i) } else { sum.at(i).sqrt() })])
}

/// Regions of images, given by corners in parts of the image's size, resized to one size; corners are aligned.
fn crop_and_resize(cx: &mut Cx, call: &Call) -> OpResult {
    let [x, rois, batch] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    need_float(same_type(cx, x.id, rois.id)?)?;
    let nearest = match call.string("mode", "bilinear".into())?.as_str() {
        "bilinear" => false,
        "nearest" => true,
        other => return unsupported(format!("mode '{other}'")),
    };
    let outside = f64::from(call.float("extrapolation_value", 0.0)?);
    if x.rank() != 4 || rois.rank() != 2 || batch.rank() != 1 || !batch.dtype.is_int() {
        return invalid("X must have 4 axes, rois 2 and batch_indices 1");
    }
    cx.require_equal(rois.shape[1], Int::new(4), "numbers of a region")?;
    cx.require_equal(rois.shape[0], batch.shape[0], "regions and batch_indices")?;
    let &[height, width] = int_list(cx, call.input(3)?, "crop_size")?.as_slice() else {
        return invalid("crop_size must be two numbers");
    };
    for n in [height, width] {
        cx.require_at_most(Int::new(1), n, "crop_size is not positive")?;
    }
    let sizes = [(height.max(1), x.shape[2]), (width.max(1), x.shape[3])];
    let t = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let number = |i: Int| expr::int(i).to(t);
    // Where an output falls along an axis of the image.
    let place = |region: Int, at: Int, axis: usize| -> Expr {
        let corner = |k: usize| rois.at(&[region, Int::from(axis + 2 * k)]).to(t);
        let (crop, size) = sizes[axis];
        let last = number(size - 1);
        let (low, high) = (corner(0), corner(1));
        let alone = super::scalar::eq(crop, 1);
        let middle = (low + high) * low.num(0.5) * last;
        let steps = number((crop - 1).max(1));
        alone.then(middle, low * last + number(at) * ((high - low) * last / steps))
    };
    let shape = vec![rois.shape[0], x.shape[1], sizes[0].0, sizes[1].0];
    Ok(vec![cx.map(x.dtype, shape, |i| {
        let image = expr::as_int(batch.at(&[i[0]]).to(DType::I64)).max(0).min(x.shape[0] - 1);
        let (y, column) = (place(i[0], i[2], 0), place(i[0], i[3], 1));
        let inside = |v: Expr, size: Int| v.ge_(v.num(0.0)) & v.le_(number(size - 1));
        let within = inside(y, x.shape[2]) & inside(column, x.shape[3]);
        let cell = |v: Expr, size: Int| expr::as_int(v.to(DType::I64)).max(0).min(size - 1);
        let at = |y: Expr, column: Expr| x.at(&[image, i[1], cell(y, x.shape[2]), cell(column, x.shape[3])]).to(t);
        let value = if nearest {
            // Halves go up.
            let up = |v: Expr| (v + v.num(0.5)).floor();
            at(up(y), up(column))
        } else {
            let (top, left) = (y.floor(), column.floor());
            let (bottom, right) = (y.ceil(), column.ceil());
            let (down, across) = (y - top, column - left);
            let upper = at(top, left) + (at(top, right) - at(top, left)) * across;
            let lower = at(bottom, left) + (at(bottom, right) - at(bottom, left)) * across;
            upper + (lower - upper) * down
        };
        within.then(value, value.num(outside)).to(x.compute())
    })])
}

/// `x + bias + skip`.
fn bias_add(cx: &mut Cx, call: &Call) -> OpResult {
    let x = apply(cx, "Add", &[Some(call.input(0)?), Some(call.input(1)?)], &[])?;
    Ok(vec![apply(cx, "Add", &[Some(x), Some(call.input(2)?)], &[])?])
}

/// `left * gelu(right)` of the halves of `x + bias` along the last axis.
fn bias_split_gelu(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let bias = Operand::of(cx, call.input(1)?);
    need_float(same_type(cx, x.id, bias.id)?)?;
    super::binary::require_spreads(cx, &bias, &x, "bias")?;
    let Some((last, head)) = x.shape.split_last() else { return invalid("the input has no axes") };
    cx.require_equal(last.rem(2), Int::new(0), "last axis modulo two")?;
    let half = last.div(2);
    let shape = [head, &[half]].concat();
    Ok(vec![cx.map(x.dtype, shape, |i| {
        let (at, rest) = (i[i.len() - 1], &i[..i.len() - 1]);
        let sum = |at: Int| {
            let index = [rest, &[at]].concat();
            x.at(&index) + bias.spread(&index)
        };
        sum(at) * gelu_erf(sum(at + half))
    })])
}
