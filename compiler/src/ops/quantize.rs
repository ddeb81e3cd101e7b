//! Linear quantisation of tensors to integers and floats of at most 16 bits and back.

use super::axes::{Axes, Space};
use super::narrow::{Rounding, decode, elem, elem_of_code, encode, integer_range, mark, stored};
use super::operand::{Operand, convert, need_float, onnx_type};
use super::reduce::reduce_over;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "QuantizeLinear", quantize),
    ("", "DequantizeLinear", dequantize),
    ("", "DynamicQuantizeLinear", dynamic),
    ("com.microsoft", "QuantizeLinear", quantize),
    ("com.microsoft", "DequantizeLinear", dequantize),
];

/// How the elements of a scale or zero point belong to those of the tensor.
#[derive(Clone, Copy)]
enum Grain {
    /// One for the tensor.
    Tensor,
    /// One for each index along an axis.
    Axis(usize),
    /// One for each block of indices along an axis.
    Block(usize, i64),
}

impl Grain {
    fn of(cx: &mut Cx, call: &Call, x: &Operand, scale: &Operand) -> OpResult<Grain> {
        let one = Int::new(1);
        let block = call.int("block_size", 0)?;
        if block < 0 {
            return Err(OpError::Invalid(format!("block_size = {block}")));
        }
        if block == 0 && (scale.rank() == 0 || scale.shape.iter().all(|d| *d == one)) {
            return Ok(Grain::Tensor);
        }
        let axis = cx.axis(call.int("axis", 1)?, x.rank())?;
        if block == 0 {
            let [n] = scale.shape[..] else {
                return Err(OpError::Invalid(format!("scale of rank {} without block_size", scale.rank())));
            };
            cx.require_equal(n, x.shape[axis], "length of scale")?;
            return Ok(Grain::Axis(axis));
        }
        if scale.rank() != x.rank() {
            return Err(OpError::Invalid(format!("blocks with scale of rank {} for rank {}", scale.rank(), x.rank())));
        }
        for (k, (s, d)) in scale.shape.iter().zip(&x.shape).enumerate() {
            let want = if k == axis { d.ceil_div(block) } else { *d };
            cx.require_equal(*s, want, "shape of scale")?;
        }
        Ok(Grain::Block(axis, block))
    }

    fn at(self, p: &Operand, i: &[Int]) -> Expr {
        match self {
            Grain::Tensor => p.only(),
            Grain::Axis(a) => p.at(&[i[a]]),
            Grain::Block(a, n) => {
                let mut i = i.to_vec();
                i[a] = i[a].div(n);
                p.at(&i)
            }
        }
    }
}

/// The zero point, of the scale's shape.
fn zero_point(cx: &mut Cx, t: Option<TensorId>, scale: &Operand) -> OpResult<Option<Operand>> {
    let Some(t) = t else { return Ok(None) };
    let z = Operand::of(cx, t);
    let one = Int::new(1);
    let single = |o: &Operand| o.shape.iter().all(|d| *d == one);
    if single(&z) && single(scale) {
        return Ok(Some(z));
    }
    if z.rank() != scale.rank() {
        return Err(OpError::Invalid(format!("zero point of rank {}, scale of rank {}", z.rank(), scale.rank())));
    }
    for (a, b) in z.shape.iter().zip(&scale.shape) {
        cx.require_equal(*a, *b, "shapes of scale and zero point")?;
    }
    Ok(Some(z))
}

fn float_attr(call: &Call, name: &str) -> OpResult<Option<DType>> {
    match call.int(name, 0)? {
        0 => Ok(None),
        code => {
            let t = onnx_type(code)?;
            need_float(t)?;
            Ok(Some(t))
        }
    }
}

/// `saturate(round(q) + zero)`, where `q` is a float and `zero` an `i32`; the least value for NaN.
///
/// Rounding and whole bounds may change places. What is bounded is rounded to even by adding a number whose last bit counts
/// ones, and is then the lower bits of the sum.
pub(super) fn saturated(q: Expr, zero: Option<Expr>, to: DType, (lo, hi): (i64, i64)) -> Expr {
    let int = |v| expr::constant_i64(DType::I32, v);
    let bound = |v| {
        let v = zero.map_or(int(v), |z| int(v) - z);
        v.to(q.dtype())
    };
    let (least, most) = (bound(lo), bound(hi));
    let q = q.gt_(least).then(q, least);
    let q = q.lt_(most).then(q, most);
    let whole = match q.dtype() {
        DType::F32 => {
            let ones = 1.5 * f64::from(1 << 23);
            let zero = zero.unwrap_or(int(0)) - int(i64::from((ones as f32).to_bits()));
            expr::bitcast(DType::I32, q + q.num(ones)) + zero
        }
        _ => {
            let whole = q.round().to(DType::I32);
            zero.map_or(whole, |z| whole + z)
        }
    };
    whole.to(to)
}

fn quantize(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let scale = Operand::of(cx, call.input(1)?);
    if !x.dtype.is_float() && x.dtype != DType::I32 {
        return Err(OpError::Invalid(format!("quantisation of {}", x.dtype)));
    }
    need_float(scale.dtype)?;
    let zero = zero_point(cx, call.opt(2), &scale)?;
    let asked = match call.int("output_dtype", 0)? {
        0 => None,
        code => Some(elem_of_code(code)?),
    };
    let to = match (zero.as_ref().map(|z| elem(cx, z.id)), asked) {
        (Some(z), Some(t)) if z != t => {
            return Err(OpError::Invalid(format!("output_dtype {t} with a zero point of type {z}")));
        }
        (Some(z), _) => z,
        (None, t) => t.unwrap_or(ElemType::Plain(DType::U8)),
    };
    let range = integer_range(to);
    let dtype = match stored(to) {
        Some(t) if range.is_some() || to.dtype().is_none() => t,
        _ => return Err(OpError::Invalid(format!("quantisation to {to}"))),
    };
    let rounding = Rounding::of(call)?;
    let grain = Grain::of(cx, call, &x, &scale)?;
    let precision = float_attr(call, "precision")?.unwrap_or(scale.dtype);
    // The zero point of an 8-bit float is always zero.
    let shifted = matches!(to, ElemType::F4E2M1 | ElemType::F6E2M3 | ElemType::F6E3M2);
    let y = cx.map(dtype, x.shape.clone(), |i| {
        let (v, s) = (convert(x.at(i), precision), convert(grain.at(&scale, i), precision));
        let q = convert(v / s, precision);
        let zero = zero.as_ref().map(|z| grain.at(z, i));
        match (range, zero) {
            (Some(range), _) => saturated(q, zero.map(|z| z.to(DType::I32)), dtype, range),
            (None, Some(z)) if shifted => encode(to, q + decode(to, z).to(q.dtype()), rounding),
            (None, _) => encode(to, q, rounding),
        }
    });
    mark(cx, y, to);
    Ok(vec![y])
}

/// `(x - zero) * scale`.
fn dequantize(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let scale = Operand::of(cx, call.input(1)?);
    need_float(scale.dtype)?;
    let from = elem(cx, x.id);
    let integer = integer_range(from).is_some() || x.dtype == DType::I32;
    if !integer && from.dtype().is_some() {
        return Err(OpError::Invalid(format!("quantised tensor of type {from}")));
    }
    let zero = zero_point(cx, call.opt(2), &scale)?;
    if let Some(z) = zero.as_ref().map(|z| elem(cx, z.id)).filter(|z| *z != from) {
        return Err(OpError::Invalid(format!("zero point of type {z} for {from}")));
    }
    let to = float_attr(call, "output_dtype")?.unwrap_or(scale.dtype);
    let grain = Grain::of(cx, call, &x, &scale)?;
    let t = if to == DType::F64 { to } else { DType::F32 };
    let y = cx.map(to, x.shape.clone(), |i| {
        let v = if integer {
            let v = x.at(i).to(DType::I32);
            zero.as_ref().map_or(v, |z| v - grain.at(z, i).to(DType::I32))
        } else {
            decode(from, x.at(i))
        };
        convert(v.to(t) * grain.at(&scale, i).to(t), to)
    });
    Ok(vec![y])
}

/// To `u8` with scale and zero point from the range of the values, which is widened to hold zero.
fn dynamic(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    if x.dtype != DType::F32 {
        return Err(OpError::Invalid(format!("element type {}, f32 is needed", x.dtype)));
    }
    let space = Space::new(&x.shape, &Axes::Known(vec![true; x.rank()]), false);
    let mut bound = |kind| {
        let t = reduce_over(cx, &space, kind, DType::F32, |i, r| x.at(&space.index(i, r)));
        Operand::of(cx, t).at(&[])
    };
    let (top, bottom) = (bound(ReduceKind::Max), bound(ReduceKind::Min));
    let (top, bottom) = (top.max_(top.num(0.0)), bottom.min_(top.num(0.0)));
    let scale = cx.map(DType::F32, vec![], |_| {
        let width = top - bottom;
        width.eq_(width.num(0.0)).then(width.num(1.0), width / width.num(255.0))
    });
    let s = Operand::of(cx, scale).at(&[]);
    let zero = cx.map(DType::U8, vec![], |_| {
        let z = s.num(0.0) - bottom / s;
        z.max_(z.num(0.0)).min_(z.num(255.0)).round().to(DType::U8)
    });
    let z = Operand::of(cx, zero).at(&[]).to(DType::I32);
    let y = cx.map(DType::U8, x.shape.clone(), |i| saturated(x.at(i) / s, Some(z), DType::U8, (0, 255)));
    Ok(vec![y, scale, zero])
}
