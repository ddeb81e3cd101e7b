//! Operators that move whole slabs: transposing, joining, cutting, repeating.

use super::operand::Operand;
use super::sizes::{
    axes_operand, clamp_position, dims, input_count, int_list, invalid, norm_axes, or_else, unsupported, value_at_axis,
};
use super::{Call, Expand};
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Transpose", transpose),
    ("", "Concat", concat),
    ("", "Slice", slice),
    ("", "Split", split),
    ("", "Tile", tile),
    ("", "DepthToSpace", depth_to_space),
    ("", "SpaceToDepth", space_to_depth),
    ("", "CenterCropPad", center_crop_pad),
];

fn transpose(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let rank = cx.rank(x);
    let perm = call.ints("perm", (0..rank as i64).rev().collect())?;
    Ok(vec![transposed(cx, x, &perm)?])
}

/// `x` with its axes in the order `perm`.
pub(super) fn transposed(cx: &mut Cx, x: TensorId, perm: &[i64]) -> OpResult<TensorId> {
    let src = Operand::of(cx, x);
    let mut at = vec![];
    for p in perm {
        at.push(cx.axis(*p, src.shape.len())?);
    }
    let mut sorted = at.clone();
    sorted.sort_unstable();
    if sorted != (0..src.shape.len()).collect::<Vec<_>>() {
        return invalid(format!("perm {perm:?} is not a permutation of {} axes", src.shape.len()));
    }
    let out: Vec<Int> = at.iter().map(|p| src.shape[*p]).collect();
    // Moving axes of size 1 alone leaves the elements where they are.
    let moved: Vec<usize> = at.iter().copied().filter(|p| src.shape[*p] != Int::new(1)).collect();
    if moved.is_sorted() {
        return Ok(cx.view(x, out));
    }
    Ok(cx.map(src.dtype, out, |i| {
        let mut index = vec![Int::new(0); i.len()];
        for (k, p) in at.iter().enumerate() {
            index[*p] = i[k];
        }
        src.at(&index)
    }))
}

fn concat(cx: &mut Cx, call: &Call) -> OpResult {
    let mut sources = vec![];
    for k in 0..call.inputs.len() {
        sources.push(Operand::of(cx, call.input(k)?));
    }
    let Some(first) = sources.first().cloned() else {
        return invalid("no inputs");
    };
    let rank = first.shape.len();
    let Some(axis) = call.opt_int("axis")?.or((call.version < 4).then_some(1)) else {
        return invalid("attribute 'axis' is missing");
    };
    let axis = cx.axis(axis, rank)?;
    let mut out = first.shape.clone();
    for s in &sources[1..] {
        if s.shape.len() != rank || s.dtype != first.dtype {
            return invalid("inputs differ in rank or type");
        }
        for k in (0..rank).filter(|k| *k != axis) {
            cx.require_equal(out[k], s.shape[k], "dimensions beside the axis differ")?;
            if s.shape[k].as_const().is_some() {
                out[k] = s.shape[k];
            }
        }
    }
    sources.retain(|s| s.shape[axis] != Int::new(0));
    match sources.as_slice() {
        [] => return Ok(vec![first.id]),
        [one] => return Ok(vec![one.id]),
        _ => {}
    }
    out[axis] = sources.iter().fold(Int::new(0), |sum, s| sum + s.shape[axis]);
    let total = out[axis];
    Ok(vec![cx.map(first.dtype, out, |i| {
        // From the last to the first: each is taken where the index lies before its end.
        let mut end = total;
        let mut value = None;
        for s in sources.iter().rev() {
            let start = end - s.shape[axis];
            let mut index = i.to_vec();
            index[axis] = i[axis] - start;
            let here = s.at(&index);
            value = Some(match value {
                None => here,
                Some(after) => expr::select(expr::cmp(Cmp::Lt, expr::int(i[axis]), expr::int(end)), here, after),
            });
            end = start;
        }
        value.unwrap_or_else(|| first.at(i))
    })])
}

fn slice(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let (starts, ends, axes, steps) = if call.version < 10 {
        let ints = |name: &str| -> OpResult<Option<Vec<Int>>> {
            Ok(call.opt_ints(name)?.map(|v| v.into_iter().map(Int::new).collect()))
        };
        let (Some(starts), Some(ends)) = (ints("starts")?, ints("ends")?) else {
            return invalid("attributes 'starts' and 'ends' are needed");
        };
        (starts, ends, ints("axes")?, None)
    } else {
        let steps = match call.opt(4) {
            Some(t) => Some(int_list(cx, t, "steps")?),
            None => None,
        };
        let (starts, ends) = (int_list(cx, call.input(1)?, "starts")?, int_list(cx, call.input(2)?, "ends")?);
        (starts, ends, axes_operand(cx, call, 3)?, steps)
    };
    let n = starts.len();
    let axes = axes.unwrap_or_else(|| (0..n).map(Int::from).collect());
    let steps = steps.unwrap_or_else(|| vec![Int::new(1); n]);
    if ends.len() != n || axes.len() != n || steps.len() != n {
        return invalid("starts, ends, axes and steps differ in length");
    }
    Ok(vec![sliced(cx, x, &starts, &ends, &axes, &steps)?])
}

/// Numpy's basic slicing along the listed axes.
fn sliced(cx: &mut Cx, x: TensorId, starts: &[Int], ends: &[Int], axes: &[Int], steps: &[Int]) -> OpResult<TensorId> {
    let src = Operand::of(cx, x);
    let axes = norm_axes(cx, axes, src.shape.len())?;
    let (zero, one) = (Int::new(0), Int::new(1));
    for s in steps {
        match s.as_const() {
            Some(0) => return invalid("a step is zero"),
            Some(_) => {}
            None => cx.require_at_most(one, s.if_eq(0, 0, 1), "a step is zero")?,
        }
    }
    let mut out = vec![];
    let mut from = vec![];
    for (k, d) in src.shape.iter().enumerate() {
        // For a run-time axis the numbers of the entry that names it, else the whole axis.
        let mut len = *d;
        let mut at = (zero, one);
        for (j, axis) in axes.iter().enumerate() {
            let (start, step, n) = range(starts[j], ends[j], steps[j], *d);
            let here = |yes: Int, no: Int| axis.if_eq(k, yes, no);
            len = here(n, len);
            at = (here(start, at.0), here(step, at.1));
        }
        out.push(len);
        from.push(at);
    }
    if out == src.shape && from.iter().all(|f| *f == (zero, one)) {
        return Ok(x);
    }
    Ok(cx.map(src.dtype, out, |i| {
        let index: Vec<Int> = i.iter().zip(&from).map(|(i, (start, step))| *start + *i * *step).collect();
        src.at(&index)
    }))
}

/// First position, step and number of positions of `start:end:step` along an axis of size `d`.
fn range(start: Int, end: Int, step: Int, d: Int) -> (Int, Int, Int) {
    let zero = Int::new(0);
    // Up: positions within 0..d. Down: within -1..d-1, where -1 is "before the first".
    let up = (clamp_position(start, d, zero, d), clamp_position(end, d, zero, d));
    let down = (clamp_position(start, d, zero, d - 1), clamp_position(end, d, Int::new(-1), d - 1));
    let start = step.if_lt(0, down.0, up.0);
    let end = step.if_lt(0, down.1, up.1);
    // (end - start) / step, rounded up.
    let n = -((start - end).div(step));
    (start, step, n.max(0))
}

fn split(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let src = Operand::of(cx, x);
    let axis = cx.axis(call.int("axis", 0)?, src.shape.len())?;
    let d = src.shape[axis];
    let outputs = call.outputs.len();
    let sizes: Vec<Int> = match (call.opt(1), call.opt_ints("split")?) {
        (Some(t), _) if call.version >= 13 || call.version < 2 => {
            let sizes = int_list(cx, t, "split")?;
            dims(cx, &sizes)?
        }
        (_, Some(s)) if call.version < 13 => s.into_iter().map(Int::new).collect(),
        _ => {
            let parts = outputs as i64;
            if let Some(n) = call.opt_int("num_outputs")?
                && call.version >= 18
                && n != parts
            {
                return invalid(format!("num_outputs is {n}, and there are {parts} outputs"));
            }
            if parts < 1 {
                return invalid("no outputs");
            }
            if call.version >= 18 {
                // Equal parts, the last one smaller.
                let part = d.ceil_div(parts);
                (0..parts).map(|k| part.min(d - part * k).max(0)).collect()
            } else {
                let part = d.div(parts);
                cx.require_equal(part * parts, d, "the axis does not divide into equal parts")?;
                vec![part; parts as usize]
            }
        }
    };
    if sizes.len() < outputs {
        return invalid(format!("{} parts for {outputs} outputs", sizes.len()));
    }
    if sizes.iter().any(|s| s.as_const().is_some_and(|c| c < 0)) {
        return invalid("a part has a negative size");
    }
    let total = sizes.iter().fold(Int::new(0), |sum, s| sum + *s);
    cx.require_equal(total, d, "the parts do not add up to the axis")?;
    let mut start = Int::new(0);
    let mut parts = vec![];
    for size in sizes.iter().take(outputs) {
        let mut out = src.shape.clone();
        out[axis] = *size;
        parts.push(if out == src.shape {
            x
        } else {
            cx.map(src.dtype, out, |i| {
                let mut index = i.to_vec();
                index[axis] = i[axis] + start;
                src.at(&index)
            })
        });
        start = start + *size;
    }
    Ok(parts)
}

fn tile(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let src = Operand::of(cx, x);
    let rank = src.shape.len();
    let repeats: Vec<Int> = if call.version < 6 {
        // The first form repeats one axis; its numbers have the type of the data.
        let number = |cx: &mut Cx, k: usize| -> OpResult<i64> {
            let t = call.input(k)?;
            match cx.const_floats(t).as_deref() {
                Some([v]) => Ok(*v as i64),
                _ => unsupported("tiles or axis that is not a constant (opset 1)"),
            }
        };
        let (tiles, axis) = (number(cx, 1)?, number(cx, 2)?);
        let axis = cx.axis(axis, rank)?;
        (0..rank).map(|k| Int::new(if k == axis { tiles } else { 1 })).collect()
    } else {
        input_count(call, 2, 2)?;
        int_list(cx, call.input(1)?, "repeats")?
    };
    if repeats.len() != rank {
        return invalid(format!("{} repeats for {rank} axes", repeats.len()));
    }
    let repeats = dims(cx, &repeats)?;
    let out: Vec<Int> = src.shape.iter().zip(&repeats).map(|(d, r)| *d * *r).collect();
    if out == src.shape {
        return Ok(vec![x]);
    }
    Ok(vec![cx.map(src.dtype, out.clone(), |i| {
        let index: Vec<Int> = (0..rank)
            .map(|k| match src.shape[k] {
                d if d == out[k] => i[k],
                d if d == Int::new(1) => Int::new(0),
                d => i[k].rem(d),
            })
            .collect();
        src.at(&index)
    })])
}

fn block_operand(cx: &mut Cx, call: &Call) -> OpResult<(Operand, i64)> {
    let src = Operand::of(cx, call.input(0)?);
    if src.shape.len() != 4 {
        return invalid(format!("the input must have 4 axes, not {}", src.shape.len()));
    }
    match call.opt_int("blocksize")? {
        Some(b) if (1..1 << 20).contains(&b) => Ok((src, b)),
        Some(b) => invalid(format!("blocksize {b}")),
        None => invalid("attribute 'blocksize' is missing"),
    }
}

/// Is the block's place the outer part of the channel number (`DCR`), or the inner one (`CRD`)?
fn block_outermost(call: &Call, since: i64) -> OpResult<bool> {
    let mode = if call.version >= since { call.string("mode", "DCR".into())? } else { "DCR".into() };
    match mode.as_str() {
        "DCR" => Ok(true),
        "CRD" => Ok(false),
        other => unsupported(format!("mode '{other}'")),
    }
}

fn depth_to_space(cx: &mut Cx, call: &Call) -> OpResult {
    let (src, b) = block_operand(cx, call)?;
    let outer = block_outermost(call, 11)?;
    let [n, c, h, w] = src.shape[..] else {
        return invalid("4 axes");
    };
    let depth = c.div(b * b);
    cx.require_equal(depth * (b * b), c, "the channels do not divide by the square of blocksize")?;
    Ok(vec![cx.map(src.dtype, vec![n, depth, h * b, w * b], |i| {
        let place = i[2].rem(b) * b + i[3].rem(b);
        let channel = if outer { place * depth + i[1] } else { i[1] * (b * b) + place };
        src.at(&[i[0], channel, i[2].div(b), i[3].div(b)])
    })])
}

fn space_to_depth(cx: &mut Cx, call: &Call) -> OpResult {
    let (src, b) = block_operand(cx, call)?;
    let outer = block_outermost(call, 28)?;
    let [n, c, h, w] = src.shape[..] else {
        return invalid("4 axes");
    };
    let (rows, columns) = (h.div(b), w.div(b));
    cx.require_equal(rows * b, h, "the height does not divide by blocksize")?;
    cx.require_equal(columns * b, w, "the width does not divide by blocksize")?;
    Ok(vec![cx.map(src.dtype, vec![n, c * (b * b), rows, columns], |i| {
        let (place, channel) = if outer { (i[1].div(c), i[1].rem(c)) } else { (i[1].rem(b * b), i[1].div(b * b)) };
        src.at(&[i[0], channel, i[2] * b + place.div(b), i[3] * b + place.rem(b)])
    })])
}

fn center_crop_pad(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let src = Operand::of(cx, x);
    let rank = src.shape.len();
    let sizes = int_list(cx, call.input(1)?, "shape")?;
    let axes: Vec<Int> = call.ints("axes", (0..rank as i64).collect())?.into_iter().map(Int::new).collect();
    let axes = norm_axes(cx, &axes, rank)?;
    if axes.len() != sizes.len() {
        return invalid(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let sizes = dims(cx, &sizes)?;
    let out: Vec<Int> = (0..rank).map(|k| value_at_axis(&axes, &sizes, k, src.shape[k])).collect();
    if out == src.shape {
        return Ok(vec![x]);
    }
    // An odd difference leaves the extra element at the end, for cropping and for padding.
    let shifts: Vec<Int> =
        src.shape.iter().zip(&out).map(|(d, o)| d.if_lt(*o, -((*o - *d).div(2)), (*d - *o).div(2))).collect();
    let zero = expr::constant_f64(src.dtype, 0.0);
    Ok(vec![cx.map(src.dtype, out, |i| {
        let index: Vec<Int> = i.iter().zip(&shifts).map(|(i, s)| *i + *s).collect();
        or_else(&src, &index, zero)
    })])
}
