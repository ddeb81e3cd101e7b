//! Putting windows back together: overlapping columns summed, pooled elements returned to their places.

use super::kernels::{close, dims, fill, flat, open, require_index};
use super::operand::Operand;
use super::sizes::{self, input_count, int_list, invalid, or_else, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::flatten;
use crate::te::{Cx, OpResult, ReduceKind, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Col2Im", col2im), ("", "MaxUnpool", max_unpool)];

fn ints(call: &Call, name: &str, n: usize, default: i64) -> OpResult<Vec<i64>> {
    let v = call.ints(name, vec![default; n])?;
    if v.len() != n {
        return invalid(format!("attribute '{name}' has {} numbers, expected {n}", v.len()));
    }
    Ok(v)
}

fn positive(v: &[i64], what: &str) -> OpResult<()> {
    if v.iter().any(|s| *s < 1) {
        return invalid(format!("{what} must be positive"));
    }
    Ok(())
}

fn col2im(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 3, 3)?;
    let x = Operand::of(cx, call.input(0)?);
    if x.dtype == DType::Bool {
        return unsupported("sums of bool");
    }
    let image = int_list(cx, call.input(1)?, "image_shape")?;
    let image = sizes::dims(cx, &image)?;
    let block: Vec<Int> = int_list(cx, call.input(2)?, "block_shape")?.iter().map(|d| d.max(1)).collect();
    let n = image.len();
    if x.rank() != 3 || block.len() != n || n == 0 {
        return invalid(format!("input of {} axes, image of {n} and blocks of {}", x.rank(), block.len()));
    }
    let (strides, dilations) = (ints(call, "strides", n, 1)?, ints(call, "dilations", n, 1)?);
    let pads = ints(call, "pads", 2 * n, 0)?;
    positive(&strides, "strides")?;
    positive(&dilations, "dilations")?;
    let cells = Int::product(&block);
    let channels = x.shape[1].div(cells);
    cx.require_equal(channels * cells, x.shape[1], "the channels do not divide by the block size")?;
    // How many blocks fit along each axis.
    let blocks: Vec<Int> = (0..n)
        .map(|k| {
            let room = image[k] + pads[k] + pads[n + k] - (block[k] - 1) * dilations[k] - 1;
            (room.div(strides[k]) + 1).max(0)
        })
        .collect();
    cx.require_equal(Int::product(&blocks), x.shape[2], "number of blocks")?;
    let out = [&[x.shape[0], channels], image.as_slice()].concat();
    let zero = expr::constant_f64(x.dtype, 0.0);
    // Each image cell sums what the blocks that cover it hold for it.
    Ok(vec![cx.reduce(ReduceKind::Sum, x.dtype, out, &block, |i, cell| {
        let mut hit = expr::boolean(true);
        let mut place = vec![];
        for k in 0..n {
            let from = i[2 + k] + pads[k] - cell[k] * dilations[k];
            let at = from.div(strides[k]);
            let aligned = expr::int(at * strides[k]).eq_(expr::int(from));
            hit = hit & aligned & super::sizes::in_range(at, blocks[k]);
            place.push(at);
        }
        let row = i[1] * cells + flatten(&block, cell);
        expr::select(hit, x.at(&[i[0], row, flatten(&blocks, &place)]), zero)
    })])
}

fn max_unpool(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 3)?;
    let (x, places) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    let n = x.rank().saturating_sub(2);
    if n == 0 || places.rank() != x.rank() || places.dtype != DType::I64 {
        return invalid("X and I must have the same axes, at least 3, and I must be int64");
    }
    for k in 0..x.rank() {
        cx.require_equal(x.shape[k], places.shape[k], "shapes of X and I")?;
    }
    let Some(kernel) = call.opt_ints("kernel_shape")?.filter(|k| k.len() == n) else {
        return invalid(format!("attribute 'kernel_shape' must have {n} numbers"));
    };
    let (strides, pads) = (ints(call, "strides", n, 1)?, ints(call, "pads", 2 * n, 0)?);
    let mut inferred = x.shape[..2].to_vec();
    for k in 0..n {
        inferred.push(((x.shape[2 + k] - 1) * strides[k] - pads[k] - pads[n + k] + kernel[k]).max(0));
    }
    let shape = inferred.clone();
    let zeros = move |k: &mut crate::te::KernelCx<'_>| {
        let (values, at, out) = (k.inputs[0], k.inputs[1], k.outputs[0]);
        let total = k.int(Int::product(&shape));
        let ty = super::kernels::element_type(k.b, out);
        let zero = k.b.int(ty, 0);
        fill(k.b, out, total, zero);
        let sizes = dims(k, &x.shape);
        let index = open(k.b, &sizes);
        let from = flat(k.b, &sizes, &index);
        let to = k.b.load(at, from, 0, 1);
        require_index(k.b, to, total);
        let v = k.b.load(values, from, 0, 1);
        k.b.store(out, to, 0, v);
        close(k.b, sizes.len());
    };
    let inputs = [call.input(0)?, places.id];
    let dtype = cx.dtype(inputs[0]);
    let y = cx.custom("max_unpool", &inputs, vec![(dtype, inferred)], vec![], zeros)[0];
    let Some(t) = call.opt(2) else { return Ok(vec![y]) };
    // A larger shape that is asked for gets zeros beside what is inferred.
    let wanted = int_list(cx, t, "output_shape")?;
    let wanted = sizes::dims(cx, &wanted)?;
    let y = Operand::of(cx, y);
    if wanted.len() != y.rank() {
        return invalid(format!("output_shape has {} numbers", wanted.len()));
    }
    let zero = expr::constant_f64(dtype, 0.0);
    Ok(vec![cx.map(dtype, wanted, |i| or_else(&y, i, zero))])
}
