//! Window functions and the weights of mel spectrograms.

use super::operand::{Operand, need_float, onnx_type};
use super::sizes::{dim, input_count, int_scalar, invalid};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, OpResult, expr};
use std::f64::consts::{LN_10, TAU};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "HannWindow", |cx, call| window(cx, call, [0.5, -0.5, 0.0])),
    ("", "HammingWindow", |cx, call| window(cx, call, [25.0 / 46.0, -21.0 / 46.0, 0.0])),
    ("", "BlackmanWindow", |cx, call| window(cx, call, [0.42, -0.5, 0.08])),
    ("", "MelWeightMatrix", mel_weight_matrix),
];

/// Longest window that is written down as a constant.
const MOST_CONSTANT: i64 = 1 << 16;

fn c(v: f64) -> Expr {
    expr::constant_f64(DType::F64, v)
}

fn number(i: Int) -> Expr {
    expr::cast(DType::F64, expr::int(i))
}

/// A sum of cosines of one and two turns over the window's length.
fn window(cx: &mut Cx, call: &Call, [a, b, d]: [f64; 3]) -> OpResult {
    input_count(call, 1, 1)?;
    let size = int_scalar(cx, call.input(0)?, "size")?;
    let size = dim(cx, size)?;
    let dtype = onnx_type(call.int("output_datatype", 1)?)?;
    let periodic = call.int("periodic", 1)? != 0;
    // A window of one element has no turn at all.
    let turn = if periodic { size } else { (size - 1).max(1) };
    if let (Some(n), Some(turn)) = (size.as_const(), turn.as_const())
        && n <= MOST_CONSTANT
    {
        let mut bytes = vec![];
        for k in 0..n {
            let angle = TAU * k as f64 / turn as f64;
            let v = expr::constant_f64(DType::F64, a + b * angle.cos() + d * (2.0 * angle).cos());
            let v = expr::cast(dtype, v);
            let Some(v) = v.as_const() else { return invalid(format!("a window of {dtype}")) };
            let bits = match dtype {
                DType::F16 => half::f16::from_f32(f32::from_bits(v.bits as u32)).to_bits().into(),
                DType::BF16 => half::bf16::from_f32(f32::from_bits(v.bits as u32)).to_bits().into(),
                _ => v.bits,
            };
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
        return Ok(vec![cx.constant(dtype, &[n as usize], bytes)]);
    }
    Ok(vec![cx.map(dtype, vec![size], |i| {
        let angle = c(TAU) * number(i[0]) / number(turn);
        let cos = |angle: Expr| expr::un(Func1::Cos, angle);
        let mut v = c(a) + c(b) * cos(angle);
        if d != 0.0 {
            v = v + c(d) * cos(c(2.0) * angle);
        }
        expr::cast(dtype, v)
    })])
}

fn mel_weight_matrix(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 5, 5)?;
    let bins = int_scalar(cx, call.input(0)?, "num_mel_bins")?;
    let length = int_scalar(cx, call.input(1)?, "dft_length")?;
    let rate = int_scalar(cx, call.input(2)?, "sample_rate")?;
    cx.require_at_most(Int::new(0), bins, "num_mel_bins")?;
    cx.require_at_most(Int::new(0), length, "dft_length")?;
    cx.require_at_most(Int::new(1), rate, "sample_rate")?;
    let (bins, length) = (bins.max(0), length.max(0));
    let mut edges = vec![];
    for k in 3..5 {
        let t = Operand::of(cx, call.input(k)?);
        need_float(t.dtype)?;
        cx.require_equal(Int::product(&t.shape), Int::new(1), "an edge must be one number")?;
        edges.push(expr::cast(DType::F64, t.only()));
    }
    let dtype = onnx_type(call.int("output_datatype", 1)?)?;
    // The corners of the triangles, as bins of the spectrum: evenly spaced in mel.
    let mel = |hertz: Expr| c(2595.0 / LN_10) * expr::un(Func1::Log1p, hertz / c(700.0));
    let (low, high) = (mel(edges[0]), mel(edges[1]));
    let step = (high - low) / number(bins + 2);
    let corners = cx.map(DType::I64, vec![bins + 2], |i| {
        let mel = low + number(i[0]) * step;
        let hertz = c(700.0) * expr::un(Func1::Expm1, mel * c(LN_10 / 2595.0));
        expr::cast(DType::I64, (number(length + 1) * hertz / number(rate)).floor())
    });
    let corners = Operand::of(cx, corners);
    Ok(vec![cx.map(dtype, vec![length.div(2) + 1, bins], |i| {
        let at = expr::int(i[0]);
        let corner = |k: i64| corners.at(&[i[1] + k]);
        let (left, centre, right) = (corner(0), corner(1), corner(2));
        let ratio = |a: Expr, b: Expr| expr::cast(DType::F64, a) / expr::cast(DType::F64, b);
        let rising = at.ge_(left) & at.le_(centre);
        let up = expr::select(left.eq_(centre), c(1.0), ratio(at - left, centre - left));
        let falling = at.ge_(centre) & at.lt_(right);
        let down = ratio(right - at, right - centre);
        let v = expr::select(falling, down, expr::select(rising, up, c(0.0)));
        expr::cast(dtype, v)
    })])
}
