//! Operators on shapes: reading them, changing them without touching the elements, and filling them.

use super::operand::Operand;
use super::sizes::{axes_operand, dim, dims, input_count, int_list, invalid, is_listed, norm_axes};
use super::{AttrTensor, Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Shape", shape),
    ("", "Size", size),
    ("", "Reshape", reshape),
    ("", "Flatten", flatten),
    ("", "Squeeze", squeeze),
    ("", "Unsqueeze", unsqueeze),
    ("", "Identity", identity),
    ("", "Expand", expand),
    ("", "ConstantOfShape", constant_of_shape),
];

fn shape(cx: &mut Cx, call: &Call) -> OpResult {
    let dims = cx.shape(call.input(0)?);
    let rank = dims.len() as i64;
    let position = |p: i64| (if p < 0 { p.saturating_add(rank) } else { p }).clamp(0, rank) as usize;
    let (start, end) = if call.version >= 15 {
        (position(call.int("start", 0)?), position(call.int("end", rank)?))
    } else {
        (0, rank as usize)
    };
    let taken = if start < end { &dims[start..end] } else { &[] };
    Ok(vec![cx.from_ints(DType::I64, &[taken.len()], taken)])
}

fn size(cx: &mut Cx, call: &Call) -> OpResult {
    let n = cx.numel(call.input(0)?);
    Ok(vec![cx.from_ints(DType::I64, &[], &[n])])
}

fn identity(_: &mut Cx, call: &Call) -> OpResult {
    Ok(vec![call.input(0)?])
}

fn reshape(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let wanted: Vec<Int> = if call.version < 5 {
        let Some(s) = call.opt_ints("shape")? else {
            return invalid("attribute 'shape' is missing");
        };
        s.into_iter().map(Int::new).collect()
    } else {
        int_list(cx, call.input(1)?, "shape")?
    };
    let allow_zero = call.version >= 14 && call.int("allowzero", 0)? != 0;
    let out = reshaped(cx, x, &wanted, allow_zero)?;
    Ok(vec![cx.view(x, out)])
}

/// The dimensions of `x` reshaped to `wanted`, where 0 copies a dimension (unless `allow_zero`) and -1 is inferred.
pub(super) fn reshaped(cx: &mut Cx, x: TensorId, wanted: &[Int], allow_zero: bool) -> OpResult<Vec<Int>> {
    let dims = cx.shape(x);
    let total = cx.numel(x);
    let (zero, minus) = (Int::new(0), Int::new(-1));
    let mut out: Vec<Int> = vec![];
    let mut inferred = None;
    for (k, w) in wanted.iter().copied().enumerate() {
        match w.as_const() {
            Some(-1) if inferred.is_some() => return invalid("more than one dimension is -1"),
            Some(-1) => inferred = Some(k),
            Some(c) if c < 0 => return invalid(format!("dimension {c}")),
            _ => {}
        }
        out.push(match (w.as_const(), dims.get(k)) {
            (Some(0), Some(d)) if !allow_zero => *d,
            (Some(0), None) if !allow_zero => {
                return invalid(format!("dimension {k} is to be copied, but the input has {} axes", dims.len()));
            }
            (Some(_), _) => w,
            (None, d) if !allow_zero && w.le(zero) != Some(false) => w.if_eq(zero, d.copied().unwrap_or(zero), w),
            (None, _) => w,
        });
    }
    // Equal factors cancel before the division, which then needs no proof that they are not zero.
    let infer = |others: &[Int]| {
        let mut rest: Vec<Int> = dims.clone();
        let mut divisor = Int::new(1);
        for d in others {
            match rest.iter().position(|r| r == d) {
                Some(at) => {
                    rest.remove(at);
                }
                None => divisor = divisor * *d,
            }
        }
        Int::product(&rest).div(divisor)
    };
    if let Some(k) = inferred {
        let others: Vec<Int> = out.iter().enumerate().filter(|(j, _)| *j != k).map(|(_, d)| *d).collect();
        out[k] = infer(&others);
    } else if out.iter().any(|d| may_be_negative(*d)) {
        // One of the run-time dimensions may turn out to be -1: it is what the others leave over.
        let others: Vec<Int> =
            out.iter().map(|d| if may_be_negative(*d) { d.if_lt(zero, 1, *d) } else { *d }).collect();
        let rest = total.div(Int::product(&others));
        let mut count = Int::new(0);
        for d in &mut out {
            if may_be_negative(*d) {
                count = count + d.if_eq(minus, 1, 0);
                *d = dim(cx, d.if_eq(minus, rest, *d))?;
            }
        }
        cx.require_at_most(count, Int::new(1), "more than one dimension is -1")?;
    }
    let product = Int::product(&out);
    cx.require_equal(product, total, "the element counts before and after differ")?;
    Ok(out)
}

fn may_be_negative(d: Int) -> bool {
    Int::new(0).le(d) != Some(true)
}

fn flatten(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let dims = cx.shape(x);
    let (axis, rank) = (call.int("axis", 1)?, dims.len() as i64);
    if axis < -rank || axis > rank {
        return invalid(format!("axis {axis} is outside of {}..={rank}", -rank));
    }
    let at = (if axis < 0 { axis + rank } else { axis }) as usize;
    let out = vec![Int::product(&dims[..at]), Int::product(&dims[at..])];
    Ok(vec![cx.view(x, out)])
}

fn squeeze(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let dims = cx.shape(x);
    let one = Int::new(1);
    let Some(axes) = axes_operand(cx, call, 1)? else {
        let mut out = vec![];
        for d in dims {
            match d.eq_proof(one) {
                Some(true) => {}
                Some(false) => out.push(d),
                // The rank must not depend on data: a dimension that may be 1 stays, and must not be 1 when the model runs.
                None => {
                    let gone = d.if_eq(1, 1, 0);
                    let what =
                        format!("Squeeze without axes would remove the dimension {d}, and that changes the rank");
                    cx.require_at_most(gone, Int::new(0), &what)?;
                    out.push(d);
                }
            }
        }
        return Ok(vec![cx.view(x, out)]);
    };
    let axes = norm_axes(cx, &axes, dims.len())?;
    if axes.len() > dims.len() {
        return invalid("more axes than dimensions");
    }
    let gone: Vec<Int> = (0..dims.len()).map(|k| is_listed(&axes, k)).collect();
    for (d, gone) in dims.iter().zip(&gone) {
        cx.require_equal(gone.if_eq(1, *d, 1), one, "only dimensions of size 1 can be removed")?;
    }
    // The place of each remaining axis is the number of those that remain before it.
    let mut out = vec![Int::new(0); dims.len() - axes.len()];
    let mut before = Int::new(0);
    for (d, gone) in dims.iter().zip(&gone) {
        for (place, o) in out.iter_mut().enumerate() {
            *o = before.if_eq(place, gone.if_eq(0, *d, *o), *o);
        }
        before = before + 1 - *gone;
    }
    cx.require_equal(before, Int::from(out.len()), "an axis is given twice")?;
    Ok(vec![cx.view(x, out)])
}

fn unsqueeze(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let dims = cx.shape(x);
    let Some(axes) = axes_operand(cx, call, 1)? else {
        return invalid("axes are missing");
    };
    let rank = dims.len() + axes.len();
    let axes = norm_axes(cx, &axes, rank)?;
    let mut before = Int::new(0);
    let mut out = vec![];
    for k in 0..rank {
        let new = is_listed(&axes, k);
        let old = dims.iter().enumerate().fold(Int::new(1), |rest, (j, d)| before.if_eq(j, *d, rest));
        out.push(new.if_eq(1, 1, old));
        before = before + 1 - new;
    }
    cx.require_equal(before, Int::from(dims.len()), "an axis is given twice")?;
    Ok(vec![cx.view(x, out)])
}

fn expand(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let x = call.input(0)?;
    let wanted = int_list(cx, call.input(1)?, "shape")?;
    let wanted = dims(cx, &wanted)?;
    let out = cx.broadcast(&[cx.shape(x), wanted])?;
    if out == cx.shape(x) {
        return Ok(vec![x]);
    }
    let dtype = cx.dtype(x);
    let src = Operand::of(cx, x);
    Ok(vec![cx.map(dtype, out, |i| src.spread(i))])
}

/// The value of a one-element attribute tensor as a constant, `f32` zero if there is none.
fn fill_value(value: Option<&AttrTensor>) -> OpResult<(DType, Expr)> {
    let Some(v) = value else {
        return Ok((DType::F32, expr::constant_f64(DType::F32, 0.0)));
    };
    if v.shape.iter().product::<usize>() != 1 || v.bytes.len() != v.dtype.size() {
        return invalid("attribute 'value' must hold one element");
    }
    let mut le = [0; 8];
    le[..v.bytes.len()].copy_from_slice(&v.bytes);
    Ok((v.dtype, expr::imm(v.dtype, u64::from_le_bytes(le))))
}

fn constant_of_shape(cx: &mut Cx, call: &Call) -> OpResult {
    let sizes = int_list(cx, call.input(0)?, "shape")?;
    let out = dims(cx, &sizes)?;
    let (dtype, v) = fill_value(call.opt_tensor("value")?.as_ref())?;
    Ok(vec![cx.map(dtype, out, |_| v)])
}
