//! Convolution whose sampling positions are moved by data.

use super::grid::{Padding, Side, sample};
use super::interpolate::{Kernel, working_type};
use super::operand::{Operand, need_float, same_type};
use super::sizes::{input_count, invalid, unsupported};
use super::{Call, Expand};
use crate::sym::Int;
use crate::te::cx::flatten;
use crate::te::{Cx, OpResult, ReduceKind, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "DeformConv", deform_conv)];

fn deform_conv(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 3, 5)?;
    let (x, w) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    let offset = Operand::of(cx, call.input(2)?);
    need_float(x.dtype)?;
    same_type(cx, x.id, w.id)?;
    same_type(cx, x.id, offset.id)?;
    let n = x.rank().saturating_sub(2);
    if n == 0 || w.rank() != n + 2 || offset.rank() != n + 2 {
        return invalid(format!("X, W and offset have {}, {} and {} axes", x.rank(), w.rank(), offset.rank()));
    }
    if n > 3 {
        return unsupported(format!("{n} spatial axes"));
    }
    let attr = |name: &str, n: usize, default: i64| -> OpResult<Vec<i64>> {
        let v = call.ints(name, vec![default; n])?;
        if v.len() == n { Ok(v) } else { invalid(format!("attribute '{name}' has {} numbers", v.len())) }
    };
    let (strides, dilations) = (attr("strides", n, 1)?, attr("dilations", n, 1)?);
    let pads = attr("pads", 2 * n, 0)?;
    if strides.iter().chain(&dilations).any(|v| *v < 1) {
        return invalid("strides and dilations must be positive");
    }
    let (groups, offset_groups) = (call.int("group", 1)?, call.int("offset_group", 1)?);
    if groups < 1 || offset_groups < 1 {
        return invalid("group and offset_group must be positive");
    }
    let kernel = w.shape[2..].to_vec();
    if let Some(given) = call.opt_ints("kernel_shape")? {
        if given.len() != n {
            return invalid("kernel_shape and W differ in rank");
        }
        for (a, b) in given.iter().zip(&kernel) {
            cx.require_equal(Int::new(*a), *b, "kernel_shape")?;
        }
    }
    let (channels, per_group) = (x.shape[1], w.shape[1]);
    let (out_per_group, per_offset_group) = (w.shape[0].div(groups), channels.div(offset_groups));
    cx.require_equal(per_group * groups, channels, "channels of X and W")?;
    cx.require_equal(out_per_group * groups, w.shape[0], "output channels and groups")?;
    cx.require_equal(per_offset_group * offset_groups, channels, "channels and offset groups")?;
    let cells = Int::product(&kernel);
    cx.require_equal(offset.shape[1], cells * (offset_groups * n as i64), "channels of offset")?;
    cx.require_equal(offset.shape[0], x.shape[0], "batch of offset")?;
    let mut places = vec![];
    for k in 0..n {
        let reach = (kernel[k] - 1) * dilations[k] + 1;
        let size = (x.shape[2 + k] + pads[k] + pads[n + k] - reach).div(strides[k]) + 1;
        cx.require_equal(offset.shape[2 + k], size, "size of offset")?;
        places.push(size);
    }
    let mask = call.opt(4).map(|t| Operand::of(cx, t));
    if let Some(m) = &mask {
        same_type(cx, x.id, m.id)?;
        if m.rank() != n + 2 {
            return invalid(format!("the mask has {} axes", m.rank()));
        }
        let want = [&[x.shape[0], cells * offset_groups], places.as_slice()].concat();
        for (a, b) in m.shape.iter().zip(&want) {
            cx.require_equal(*a, *b, "shape of the mask")?;
        }
    }
    let bias = call.opt(3).map(|t| Operand::of(cx, t));
    if let Some(b) = &bias {
        same_type(cx, x.id, b.id)?;
        if b.rank() != 1 {
            return invalid("B must be a list");
        }
        cx.require_equal(b.shape[0], w.shape[0], "bias and output channels")?;
    }

    // First the sampled input, `[batch, channel, kernel cell.., output place..]`, then an ordinary contraction.
    let to = working_type(x.dtype);
    let sides: Vec<Side> =
        x.shape[2..].iter().map(|d| Side { d: *d, padding: Padding::Zeros, align_corners: true }).collect();
    let shape = [&[x.shape[0], channels], kernel.as_slice(), places.as_slice()].concat();
    let sampled = cx.map(to, shape, |i| {
        let (cell, place) = (&i[2..2 + n], &i[2 + n..]);
        let group = i[1].div(per_offset_group);
        let cell_number = group * cells + flatten(&kernel, cell);
        let at: Vec<_> = (0..n)
            .map(|k| {
                let start = place[k] * strides[k] - pads[k] + cell[k] * dilations[k];
                let moved = offset.at(&[&[i[0], cell_number * n as i64 + k as i64], place].concat());
                expr::cast(to, expr::int(start)) + expr::cast(to, moved)
            })
            .collect();
        let element = |index: &[Int]| x.at(&[&i[..2], index].concat());
        let v = sample(to, &sides, &at, Kernel::Linear, &element);
        match &mask {
            Some(m) => v * expr::cast(to, m.at(&[&[i[0], cell_number], place].concat())),
            None => v,
        }
    });
    let sampled = Operand::of(cx, sampled);
    let out = [&[x.shape[0], w.shape[0]], places.as_slice()].concat();
    let over = [&[per_group], kernel.as_slice()].concat();
    let sum = cx.reduce(ReduceKind::Sum, to, out.clone(), &over, |i, r| {
        let channel = i[1].div(out_per_group) * per_group + r[0];
        let weight = expr::cast(to, w.at(&[&[i[1]], r].concat()));
        weight * sampled.at(&[&[i[0], channel], &r[1..], &i[2..]].concat())
    });
    let sum = Operand::of(cx, sum);
    Ok(vec![cx.map(x.dtype, out, |i| {
        let v = match &bias {
            Some(b) => sum.at(i) + expr::cast(to, b.at(&[i[1]])),
            None => sum.at(i),
        };
        expr::cast(x.dtype.compute(), v)
    })])
}
