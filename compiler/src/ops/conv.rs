//! Convolutions: `Conv`, `ConvTranspose`.
//!
//! A convolution is one reduction over input channels and kernel cells of `weight * input`, both affine in the indices, so
//! that it is lowered as a contraction; padding is a map before it and bias a map after it.

use super::contract::same_type;
use super::scalar::{add, and, constant, mul, within};
use super::window::{AutoPad, Window, auto_pad, per_axis, spatial};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Conv", conv), ("", "ConvTranspose", conv_transpose)];

/// A sum of products of an input that is large enough for all windows and weights of shape
/// `[group * outputs, inputs, kernel…]`.
pub(super) struct Core {
    /// Padded input, `[batch, group * inputs, spatial…]`.
    pub(super) x: TensorId,
    /// Weights.
    pub(super) w: TensorId,
    /// Number of groups.
    pub(super) group: i64,
    /// Numbers of windows.
    pub(super) output: Vec<Int>,
    /// Steps between windows.
    pub(super) strides: Vec<i64>,
    /// Steps between cells.
    pub(super) dilations: Vec<i64>,
}

impl Core {
    /// The sum as `[batch, group * outputs, output…]` of type `out`; `term` makes the product of output channel, weight and
    /// element of the input.
    pub(super) fn build(&self, cx: &mut Cx, out: DType, term: impl Fn(Int, Expr, Expr) -> Expr) -> TensorId {
        let (sx, sw) = (cx.shape(self.x), cx.shape(self.w));
        let (tx, tw) = (cx.dtype(self.x), cx.dtype(self.w));
        let (x, axes) = (self.x, self.output.len());
        let grouped = self.group != 1;
        let outputs = sw[0].div(self.group);
        let inputs = sw[1];
        // Axes of size 1 are left out of the reduction: a pointwise convolution is a plain matrix product.
        let over: Vec<(usize, Int)> = sw[1..].iter().copied().enumerate().filter(|(_, d)| *d != Int::new(1)).collect();
        let sizes: Vec<Int> = over.iter().map(|(_, d)| *d).collect();
        let w = if grouped {
            let shape = [&[Int::new(self.group), outputs], &sw[1..]].concat();
            cx.view(self.w, shape)
        } else {
            self.w
        };
        let mut shape = vec![sx[0]];
        if grouped {
            shape.push(Int::new(self.group));
        }
        shape.push(outputs);
        shape.extend(&self.output);
        let y = cx.reduce(ReduceKind::Sum, out, shape, &sizes, |i, r| {
            let mut cell = vec![Int::new(0); 1 + axes];
            for ((d, _), r) in over.iter().zip(r) {
                cell[*d] = *r;
            }
            let head = if grouped { 3 } else { 2 };
            let channel = if grouped { i[1] * inputs + cell[0] } else { cell[0] };
            let mut at = vec![i[0], channel];
            at.extend((0..axes).map(|d| i[head + d] * self.strides[d] + cell[1 + d] * self.dilations[d]));
            let weight = expr::load(w, tw, [&i[1..head], &cell].concat());
            let input = expr::load(x, tx, at);
            term(if grouped { i[1] * outputs + i[2] } else { i[1] }, weight, input)
        });
        let flat = [&[sx[0], sw[0]], self.output.as_slice()].concat();
        cx.view(y, flat)
    }
}

/// Of a weight and an element of the input.
pub(super) fn product(_: Int, weight: Expr, input: Expr) -> Expr {
    mul(weight, input)
}

/// Number of groups and checks of channels: the input's must be `group` times the weight's, and `outputs` a multiple.
pub(super) fn groups(cx: &mut Cx, call: &Call, channels: Int, per_group: Int, outputs: Int) -> OpResult<i64> {
    let group = call.int("group", 1)?;
    if group < 1 {
        return Err(OpError::Invalid(format!("attribute 'group' is {group}")));
    }
    cx.require_equal(channels, per_group * group, "input channels (first) against those of the weights times groups")?;
    cx.require_equal(outputs.rem(group), Int::new(0), "output channels modulo the number of groups")?;
    Ok(group)
}

/// Kernel size: the weight's, with which attribute `kernel_shape` must agree.
pub(super) fn kernel_of(cx: &mut Cx, call: &Call, weight: &[Int], axes: usize) -> OpResult<Vec<Int>> {
    if weight.len() != axes + 2 {
        let ranks = format!("the weights have rank {}, the input has rank {}", weight.len(), axes + 2);
        return Err(OpError::Invalid(ranks));
    }
    let kernel = weight[2..].to_vec();
    if call.opt_ints("kernel_shape")?.is_some() {
        for (given, d) in per_axis(call, "kernel_shape", axes, 1, 1)?.into_iter().zip(&kernel) {
            cx.require_equal(Int::new(given), *d, "attribute 'kernel_shape' against the weights")?;
        }
    }
    Ok(kernel)
}

/// Checks a bias: one number an output channel.
pub(super) fn check_bias(cx: &mut Cx, bias: TensorId, channels: Int) -> OpResult<()> {
    match cx.shape(bias).as_slice() {
        &[n] => cx.require_equal(n, channels, "length of the bias"),
        s => Err(OpError::Invalid(format!("the bias has rank {}, not 1", s.len()))),
    }
}

fn conv(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w, bias) = (call.input(0)?, call.input(1)?, call.opt(2));
    let dtype = same_type(cx, &[Some(x), Some(w), bias].into_iter().flatten().collect::<Vec<_>>())?;
    let input = spatial(cx, x)?;
    let sw = cx.shape(w);
    let kernel = kernel_of(cx, call, &sw, input.len())?;
    let channels = cx.shape(x)[1];
    let group = groups(cx, call, channels, sw[1], sw[0])?;
    let window = Window::of(cx, call, input, kernel, false)?;
    let padded = window.pad(cx, x, expr::constant_i64(dtype, 0));
    let Window { output, strides, dilations, .. } = window;
    let core = Core { x: padded, w, group, output, strides, dilations };
    let Some(bias) = bias else { return Ok(vec![core.build(cx, dtype, product)]) };
    check_bias(cx, bias, sw[0])?;
    // Half types round once, at the end.
    let wide = dtype.compute();
    let y = core.build(cx, wide, product);
    let shape = cx.shape(y);
    Ok(vec![cx.map(dtype, shape, |i| add(expr::load(y, wide, i.to_vec()), expr::load(bias, dtype, vec![i[1]])))])
}

/// Sizes of a transposed convolution along one axis.
struct Axis {
    /// Padding cut off at the start.
    begin: Int,
    /// Output size.
    output: Int,
}

fn transposed_axes(cx: &mut Cx, call: &Call, input: &[Int], kernel: &[Int]) -> OpResult<Vec<Axis>> {
    let axes = input.len();
    let strides = per_axis(call, "strides", axes, 1, 1)?;
    let dilations = per_axis(call, "dilations", axes, 1, 1)?;
    let extra = per_axis(call, "output_padding", axes, 0, 0)?;
    let pads = per_axis(call, "pads", 2 * axes, 0, 0)?;
    let mode = auto_pad(call)?;
    let wanted = match call.opt_ints("output_shape")? {
        // Some models give batch and channels too.
        Some(s) if s.len() == axes + 2 => Some(s[2..].to_vec()),
        Some(s) if !s.is_empty() => Some(per_axis(call, "output_shape", axes, 0, 0).map(|_| s)?),
        _ => None,
    };
    let mut out = vec![];
    for d in 0..axes {
        let full = (input[d] - 1) * strides[d] + extra[d] + (kernel[d] - 1) * dilations[d] + 1;
        let target = match (&wanted, mode) {
            (Some(s), _) => Some(Int::new(s[d])),
            (None, AutoPad::SameUpper | AutoPad::SameLower) => Some(input[d] * strides[d]),
            _ => None,
        };
        let axis = match target {
            Some(output) => {
                let total = (full - output).max(0);
                let less = total.div(2);
                Axis { begin: if mode == AutoPad::SameUpper { less } else { total - less }, output }
            }
            None if mode == AutoPad::Valid => Axis { begin: Int::new(0), output: full },
            None => Axis { begin: Int::new(pads[d]), output: full - pads[d] - pads[axes + d] },
        };
        cx.require_at_most(Int::new(0), axis.output, "the output would have a negative size")?;
        out.push(axis);
    }
    Ok(out)
}

/// The transposed convolution with stride s is s convolutions with stride 1, one for each remainder of the output
/// position, whose kernels hold every s-th cell; together they are one convolution with s times as many output channels.
/// Positions in the output before padding is cut off: `q * s + r`; input cell `q - j` meets kernel cell `r + s * j`.
fn conv_transpose(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w, bias) = (call.input(0)?, call.input(1)?, call.opt(2));
    let dtype = same_type(cx, &[Some(x), Some(w), bias].into_iter().flatten().collect::<Vec<_>>())?;
    let input = spatial(cx, x)?;
    let axes = input.len();
    let (sx, sw) = (cx.shape(x), cx.shape(w));
    let kernel = kernel_of(cx, call, &sw, axes)?;
    let group = call.int("group", 1)?;
    if group < 1 {
        return Err(OpError::Invalid(format!("attribute 'group' is {group}")));
    }
    cx.require_equal(sx[1], sw[0], "input channels against those of the weights")?;
    cx.require_equal(sw[0].rem(group), Int::new(0), "input channels modulo the number of groups")?;
    let channels = sw[1] * group;
    if let Some(b) = bias {
        check_bias(cx, b, channels)?;
    }
    let frame = transposed_axes(cx, call, &input, &kernel)?;
    let strides = per_axis(call, "strides", axes, 1, 1)?;
    let dilations = per_axis(call, "dilations", axes, 1, 1)?;
    // With stride 1 cells stay as far apart as they are; else a dilated kernel is filled up with zeros.
    let filled: Vec<Int> =
        (0..axes).map(|d| if strides[d] == 1 { kernel[d] } else { (kernel[d] - 1) * dilations[d] + 1 }).collect();
    let spread: Vec<i64> = (0..axes).map(|d| if strides[d] == 1 { dilations[d] } else { 1 }).collect();
    let taps: Vec<Int> = (0..axes).map(|d| filled[d].ceil_div(strides[d])).collect();
    let margin: Vec<Int> = (0..axes).map(|d| (taps[d] - 1) * spread[d]).collect();
    let (inputs, outputs) = (sw[0].div(group), sw[1]);

    // Weights as [group, remainders…, outputs, inputs, taps…], the taps in reverse: channels of one remainder lie together.
    let phases: Vec<Int> = strides.iter().map(|s| Int::new(*s)).collect();
    let shape = [&[Int::new(group)], phases.as_slice(), &[outputs, inputs], &taps].concat();
    let zero = expr::constant_i64(dtype, 0);
    let w = cx.map(dtype, shape, |i| {
        let mut at = vec![i[0] * inputs + i[2 + axes], i[1 + axes]];
        let mut held = expr::boolean(true);
        for d in 0..axes {
            let cell = i[1 + d] + (taps[d] - 1 - i[3 + axes + d]) * strides[d];
            let apart = if strides[d] == 1 { 1 } else { dilations[d] };
            held = and(held, within(cell, 0, filled[d]));
            held = and(held, super::scalar::eq(cell.rem(apart), 0));
            at.push(cell.div(apart));
        }
        expr::select(held, expr::load(w, dtype, at), zero)
    });
    let all_phases = Int::product(&phases);
    let w = cx.view(w, [&[channels * all_phases, inputs], taps.as_slice()].concat());

    let window = Window {
        kernel: taps.clone(),
        strides: vec![1; axes],
        dilations: spread.clone(),
        begin: margin.clone(),
        end: margin.clone(),
        output: (0..axes).map(|d| input[d] + margin[d]).collect(),
        input,
        overhang: false,
    };
    let padded = window.pad(cx, x, zero);
    let wide = dtype.compute();
    let core = Core { x: padded, w, group, output: window.output.clone(), strides: vec![1; axes], dilations: spread };
    let y = core.build(cx, wide, product);
    let parts = [&[sx[0], Int::new(group)], phases.as_slice(), &[outputs], &window.output].concat();
    let y = cx.view(y, parts);

    let shape = [&[sx[0], channels], frame.iter().map(|a| a.output).collect::<Vec<_>>().as_slice()].concat();
    Ok(vec![cx.map(dtype, shape, |i| {
        let (mut remainders, mut quotients) = (vec![], vec![]);
        let mut covered = expr::boolean(true);
        for d in 0..axes {
            let at = i[2 + d] + frame[d].begin;
            covered = and(covered, within(at, 0, window.output[d] * strides[d]));
            remainders.push(at.rem(strides[d]));
            quotients.push(at.div(strides[d]));
        }
        let (own, channel) = if group == 1 { (Int::new(0), i[1]) } else { (i[1].div(outputs), i[1].rem(outputs)) };
        let sum = expr::load(y, wide, [&[i[0], own], remainders.as_slice(), &[channel], &quotients].concat());
        let sum = expr::select(covered, sum, constant(dtype, 0.0));
        match bias {
            Some(b) => add(sum, expr::load(b, dtype, vec![i[1]])),
            None => sum,
        }
    })])
}
