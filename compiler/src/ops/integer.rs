//! Products of quantised tensors: `MatMulInteger`, `ConvInteger`, `QLinearMatMul`, `QLinearConv`.
//!
//! They are sums of `(a - za) * (b - zb)` in 32 bits, which [`quantize`](crate::quantize) takes apart.

use super::contract::Product;
use super::conv::{Core, check_bias, groups, kernel_of};
use super::operand::{Operand, need_one};
use super::quantize::saturated;
use super::window::{Window, spatial};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "MatMulInteger", matmul_integer),
    ("", "ConvInteger", conv_integer),
    ("", "QLinearMatMul", qlinear_matmul),
    ("", "QLinearConv", qlinear_conv),
];

fn need_bytes(cx: &Cx, t: TensorId, what: &str) -> OpResult<()> {
    match cx.dtype(t) {
        DType::I8 | DType::U8 => Ok(()),
        other => Err(OpError::Invalid(format!("{what} has element type {other}; int8 or uint8 is needed"))),
    }
}

/// A zero point that shifts anything: one that is known to be zero does not.
fn shifting(cx: &mut Cx, zero: Option<TensorId>, of: TensorId, what: &str) -> OpResult<Option<TensorId>> {
    let Some(z) = zero else { return Ok(None) };
    if cx.dtype(z) != cx.dtype(of) {
        return Err(OpError::Invalid(format!("the zero point of {what} has another element type than {what}")));
    }
    let none = cx.const_ints(z).is_some_and(|v| v.iter().all(|x| *x == 0));
    Ok(Some(z).filter(|_| !none))
}

/// How a scale or zero point of a matrix applies.
#[derive(Clone)]
enum Spread {
    /// One for all.
    One(Operand),
    /// One for each row of the first operand (column of the second), perhaps with batch axes; `axes` says which axes of the
    /// operand's index it has: the last or the one before.
    Lines(Operand, LineAxis),
}

#[derive(Clone, Copy, PartialEq)]
enum LineAxis {
    Row,
    Column,
}

impl Spread {
    /// `lines` is the number of rows (or columns) of a matrix operand of shape `of`.
    fn of(cx: &mut Cx, t: TensorId, of: &[Int], axis: LineAxis, what: &str) -> OpResult<Spread> {
        let o = Operand::of(cx, t);
        if o.rank() == 0 || o.shape.iter().all(|d| *d == Int::new(1)) {
            return Ok(Spread::One(o));
        }
        let at = match axis {
            LineAxis::Row => of.len().checked_sub(2),
            LineAxis::Column if of.len() >= 2 => Some(of.len() - 1),
            LineAxis::Column => None,
        };
        let Some(lines) = at.map(|a| of[a]) else {
            need_one(cx, t, what)?;
            return Ok(Spread::One(o));
        };
        if o.rank() == 1 {
            cx.require_equal(o.shape[0], lines, what)?;
        } else if o.rank() == of.len() {
            // Broadcasts with the operand, one element a line.
            cx.require_equal(
                o.shape[if axis == LineAxis::Row { o.rank() - 1 } else { o.rank() - 2 }],
                Int::new(1),
                what,
            )?;
            let both = cx.broadcast(&[o.shape.clone(), of.to_vec()])?;
            for (a, b) in both.iter().zip(of) {
                cx.require_equal(*a, *b, what)?;
            }
        } else {
            return Err(OpError::Invalid(format!("{what} has rank {}", o.rank())));
        }
        Ok(Spread::Lines(o, axis))
    }

    /// The element for an index of the matrix operand.
    fn at(&self, index: &[Int]) -> Expr {
        match self {
            Spread::One(o) => o.only(),
            Spread::Lines(o, axis) if o.rank() == 1 => {
                let back = if *axis == LineAxis::Row { 2 } else { 1 };
                o.at(&[index[index.len() - back]])
            }
            Spread::Lines(o, _) => o.spread(index),
        }
    }
}

/// `sum over k of (a - za) * (b - zb)` in 32 bits.
fn shifted_product(
    cx: &mut Cx,
    a: TensorId,
    b: TensorId,
    za: Option<TensorId>,
    zb: Option<TensorId>,
) -> OpResult<(TensorId, Product)> {
    let p = Product::of(cx, a, b)?;
    let (a, b) = (Operand::of(cx, a), Operand::of(cx, b));
    let za =
        za.map(|z| Spread::of(cx, z, &a.shape, LineAxis::Row, "the zero point of the first operand")).transpose()?;
    let zb = zb
        .map(|z| Spread::of(cx, z, &b.shape, LineAxis::Column, "the zero point of the second operand"))
        .transpose()?;
    let less = |e: Expr, zero: Option<Expr>| zero.map_or(e, |z| e - z.to(DType::I32));
    let sum = cx.reduce(ReduceKind::Sum, DType::I32, p.shape(), &[p.k], |i, r| {
        let (ia, ib) = (p.lhs(&a.shape, i, r[0]), p.rhs(&b.shape, i, r[0]));
        let x = less(a.at(&ia).to(DType::I32), za.as_ref().map(|z| z.at(&ia)));
        let y = less(b.at(&ib).to(DType::I32), zb.as_ref().map(|z| z.at(&ib)));
        x * y
    });
    Ok((sum, p))
}

fn matmul_integer(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    need_bytes(cx, a, "the first operand")?;
    need_bytes(cx, b, "the second operand")?;
    let za = shifting(cx, call.opt(2), a, "the first operand")?;
    let zb = shifting(cx, call.opt(3), b, "the second operand")?;
    Ok(vec![shifted_product(cx, a, b, za, zb)?.0])
}

/// `acc * scale` rounded to the nearest integer, ties to even, plus the zero point, within the range of `to`.
pub(super) fn requantise(acc: Expr, scale: Expr, zero: Expr, to: DType) -> Expr {
    let low = if to.is_signed() { -(1 << (8 * to.size() - 1)) } else { 0 };
    let range = (low, low + (1 << (8 * to.size())) - 1);
    saturated(acc.to(DType::F32) * scale, Some(zero.to(DType::I32)), to, range)
}

fn one(cx: &mut Cx, t: TensorId, what: &str) -> OpResult<Operand> {
    need_one(cx, t, what)?;
    Ok(Operand::of(cx, t))
}

fn need_scale(cx: &Cx, t: TensorId) -> OpResult<()> {
    match cx.dtype(t) {
        DType::F32 | DType::F16 | DType::BF16 => Ok(()),
        other => Err(OpError::Invalid(format!("a scale has element type {other}"))),
    }
}

fn qlinear_matmul(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (call.input(0)?, call.input(3)?);
    let (sa, sb, sy, zy) = (call.input(1)?, call.input(4)?, call.input(6)?, call.input(7)?);
    need_bytes(cx, a, "the first operand")?;
    need_bytes(cx, b, "the second operand")?;
    need_bytes(cx, zy, "the zero point of the output")?;
    for s in [sa, sb, sy] {
        need_scale(cx, s)?;
    }
    let za = shifting(cx, Some(call.input(2)?), a, "the first operand")?;
    let zb = shifting(cx, Some(call.input(5)?), b, "the second operand")?;
    let (shape_a, shape_b) = (cx.shape(a), cx.shape(b));
    let sa = Spread::of(cx, sa, &shape_a, LineAxis::Row, "the scale of the first operand")?;
    let sb = Spread::of(cx, sb, &shape_b, LineAxis::Column, "the scale of the second operand")?;
    let (acc, p) = shifted_product(cx, a, b, za, zb)?;
    let shape = p.shape();
    let per_line = |cx: &mut Cx, t: TensorId, what: &str| -> OpResult<Spread> {
        if p.m.is_some() && p.n.is_some() {
            Spread::of(cx, t, &shape, LineAxis::Row, what)
        } else {
            Ok(Spread::One(one(cx, t, what)?))
        }
    };
    let sy = per_line(cx, sy, "the scale of the output")?;
    let zero = per_line(cx, zy, "the zero point of the output")?;
    let to = cx.dtype(zy);
    Ok(vec![cx.map(to, shape.clone(), |i| {
        let none = Int::new(0);
        let (ia, ib) = (p.lhs(&shape_a, i, none), p.rhs(&shape_b, i, none));
        let scale = sa.at(&ia) * sb.at(&ib) / sy.at(i);
        requantise(expr::load(acc, DType::I32, i.to_vec()), scale, zero.at(i), to)
    })])
}

/// A convolution of shifted bytes in 32 bits. Padding counts as zero *after* the shift, so the input's zero point fills it.
fn shifted_conv(
    cx: &mut Cx,
    call: &Call,
    x: TensorId,
    w: TensorId,
    zx: Option<TensorId>,
    zw: Option<TensorId>,
) -> OpResult<TensorId> {
    let input = spatial(cx, x)?;
    let sw = cx.shape(w);
    let kernel = kernel_of(cx, call, &sw, input.len())?;
    let channels = cx.shape(x)[1];
    let group = groups(cx, call, channels, sw[1], sw[0])?;
    let window = Window::of(cx, call, input, kernel, false)?;
    let zx = match zx {
        Some(z) => Some(one(cx, z, "the zero point of the input")?),
        None => None,
    };
    let zw = match zw {
        Some(z) => {
            let o = Operand::of(cx, z);
            if o.rank() == 1 && o.shape[0] != Int::new(1) {
                cx.require_equal(o.shape[0], sw[0], "zero points of the weights")?;
            } else {
                need_one(cx, z, "the zero point of the weights")?;
            }
            Some(o)
        }
        None => None,
    };
    let fill = zx.as_ref().map_or(expr::constant_i64(cx.dtype(x), 0), Operand::only);
    let padded = window.pad(cx, x, fill);
    let padded = Operand::of(cx, padded);
    let core = Core {
        x: padded.id,
        w,
        group,
        output: window.output.clone(),
        strides: window.strides.clone(),
        dilations: window.dilations.clone(),
    };
    let zero_x = zx.map(|z| z.only());
    let zero_w = |channel: Int| zw.as_ref().map(|z| if z.rank() == 1 { z.spread(&[channel]) } else { z.only() });
    Ok(core.build(cx, DType::I32, |channel, weight, input| {
        let less = |e: Expr, zero: Option<Expr>| zero.map_or(e, |z| e - z.to(DType::I32));
        less(weight.to(DType::I32), zero_w(channel)) * less(input.to(DType::I32), zero_x)
    }))
}

fn conv_integer(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w) = (call.input(0)?, call.input(1)?);
    need_bytes(cx, x, "the input")?;
    need_bytes(cx, w, "the weights")?;
    let zx = shifting(cx, call.opt(2), x, "the input")?;
    let zw = shifting(cx, call.opt(3), w, "the weights")?;
    Ok(vec![shifted_conv(cx, call, x, w, zx, zw)?])
}

fn qlinear_conv(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w) = (call.input(0)?, call.input(3)?);
    let (sx, sw, sy, zy) = (call.input(1)?, call.input(4)?, call.input(6)?, call.input(7)?);
    need_bytes(cx, x, "the input")?;
    need_bytes(cx, w, "the weights")?;
    need_bytes(cx, zy, "the zero point of the output")?;
    for s in [sx, sw, sy] {
        need_scale(cx, s)?;
    }
    let zx = shifting(cx, Some(call.input(2)?), x, "the input")?;
    let zw = shifting(cx, Some(call.input(5)?), w, "the weights")?;
    let channels = cx.shape(w).first().copied().unwrap_or(Int::new(0));
    let bias = call.opt(8);
    if let Some(bias) = bias {
        check_bias(cx, bias, channels)?;
        if cx.dtype(bias) != DType::I32 {
            return Err(OpError::Invalid(format!("the bias has element type {}; int32 is needed", cx.dtype(bias))));
        }
    }
    let acc = shifted_conv(cx, call, x, w, zx, zw)?;
    let (sx, sy) = (one(cx, sx, "the scale of the input")?, one(cx, sy, "the scale of the output")?);
    let zy = one(cx, zy, "the zero point of the output")?;
    let sw = Operand::of(cx, sw);
    if sw.rank() == 1 && sw.shape[0] != Int::new(1) {
        cx.require_equal(sw.shape[0], channels, "scales of the weights")?;
    } else {
        need_one(cx, sw.id, "the scale of the weights")?;
    }
    let shape = cx.shape(acc);
    Ok(vec![cx.map(zy.dtype, shape, |i| {
        let mut e = expr::load(acc, DType::I32, i.to_vec());
        if let Some(bias) = bias {
            e = e + expr::load(bias, DType::I32, vec![i[1]]);
        }
        let weight = if sw.rank() == 1 { sw.spread(&[i[1]]) } else { sw.only() };
        requantise(e, sx.only() * weight / sy.only(), zy.only(), zy.dtype)
    })])
}

#[cfg(test)]
mod tests {
    use super::super::AttrValue;
    use super::super::testing::{run, run1, value};
    use crate::dtype::DType;

    #[test]
    fn zero_points_are_subtracted_before_the_product() {
        let a = value(DType::U8, &[2, 3], &[11.0, 7.0, 3.0, 255.0, 0.0, 200.0]);
        let b = value(DType::I8, &[3, 2], &[1.0, -128.0, 2.0, 5.0, 127.0, 0.0]);
        let za = value(DType::U8, &[2], &[12.0, 3.0]);
        let zb = value(DType::I8, &[2], &[0.0, -4.0]);
        let y = run1("MatMulInteger", 10, &[a.clone(), b.clone(), za.clone(), zb.clone()], &[]);
        let mut want = vec![];
        for m in 0..2 {
            for n in 0..2 {
                let term = |k: usize| (a.data[m * 3 + k] - za.data[m]) * (b.data[k * 2 + n] - zb.data[n]);
                want.push((0..3).map(term).sum::<f64>());
            }
        }
        assert_eq!((y.dtype, y.data), (DType::I32, want));
    }

    #[test]
    fn padding_of_a_quantised_convolution_is_the_zero_point() {
        let x = value(DType::U8, &[1, 2, 3], &[5.0, 6.0, 7.0, 1.0, 2.0, 3.0]);
        let w = value(DType::U8, &[2, 1, 2], &[3.0, 4.0, 1.0, 0.0]);
        let zx = value(DType::U8, &[], &[2.0]);
        let zw = value(DType::U8, &[2], &[1.0, 2.0]);
        let attrs = [("pads", AttrValue::Ints(vec![1, 0])), ("group", AttrValue::Int(2))];
        let y = run1("ConvInteger", 10, &[x, w, zx, zw], &attrs);
        // Shifted input 0 3 4 5 and 0 -1 0 1, shifted weights 2 3 and -1 -2.
        assert_eq!(y.data, [9.0, 18.0, 23.0, 2.0, 1.0, -2.0]);
    }

    #[test]
    fn results_round_half_to_even_and_saturate() {
        let a = value(DType::I8, &[1, 1], &[1.0]);
        let b = value(DType::I8, &[1, 6], &[1.0, 3.0, 5.0, -3.0, 127.0, -128.0]);
        let (half, unit) = (value(DType::F32, &[], &[0.5]), value(DType::F32, &[], &[1.0]));
        let zero = value(DType::I8, &[], &[0.0]);
        let shift = value(DType::I8, &[], &[100.0]);
        let inputs = [a, half, zero.clone(), b, unit.clone(), zero, unit, shift].map(Some);
        let y = run("QLinearMatMul", 10, &inputs, &[], 1).expect("legal").remove(0);
        assert_eq!(y.data, [100.0, 102.0, 102.0, 98.0, 127.0, 36.0]);
    }
}
