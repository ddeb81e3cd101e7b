//! Products and convolutions of the domain `com.microsoft`, fused or of quantised numbers, as compositions of standard ones.

use super::contract::product;
use super::integer::requantise;
use super::operand::{Operand, need_float, need_one};
use super::{AttrValue, Call, Expand, expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpError, OpResult, TensorId, expr};
use std::collections::BTreeMap;

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "FusedMatMul", fused_matmul),
    (MS, "TransposeMatMul", fused_matmul),
    (MS, "FusedGemm", fused_gemm),
    (MS, "FusedConv", fused_conv),
    (MS, "GemmFastGelu", gemm_fast_gelu),
    (MS, "MatMulInteger16", matmul_integer16),
    (MS, "MulInteger", mul_integer),
    (MS, "MatMulIntegerToFloat", |cx, call| {
        let (b_scale, a_zero, b_zero, bias) = (call.input(3)?, call.opt(4), call.opt(5), call.opt(6));
        let a_scale = call.input(2)?;
        integer_to_float(cx, (call.input(0)?, a_scale, a_zero), (call.input(1)?, b_scale, b_zero), bias)
    }),
    (MS, "DynamicQuantizeMatMul", dynamic_matmul),
    (MS, "QGemm", qgemm),
];

/// Applies a standard operator with one output.
pub(super) fn apply(
    cx: &mut Cx,
    op: &str,
    inputs: &[Option<TensorId>],
    attrs: &[(&str, AttrValue)],
) -> OpResult<TensorId> {
    let attrs = attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    apply_with(cx, op, inputs, attrs)
}

/// [`apply`] with all attributes at hand.
pub(super) fn apply_with(
    cx: &mut Cx,
    op: &str,
    inputs: &[Option<TensorId>],
    attrs: BTreeMap<String, AttrValue>,
) -> OpResult<TensorId> {
    let call =
        Call { domain: String::new(), op: op.into(), version: 13, inputs: inputs.to_vec(), outputs: vec![true], attrs };
    let made = expand(cx, &call)?;
    made.first().copied().ok_or_else(|| OpError::Unsupported(format!("operator {op} gives nothing")))
}

/// The operator `op` on its own operands, under its standard name, with those of the attributes that it has.
fn standard(cx: &mut Cx, call: &Call, op: &str, inputs: usize, own: &[&str]) -> OpResult<TensorId> {
    let attrs = call.attrs.iter().filter(|(k, _)| !own.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone()));
    let inputs: Vec<_> = (0..inputs).map(|k| call.opt(k)).collect();
    apply_with(cx, op, &inputs, attrs.collect())
}

/// A fused activation function with its parameters in the order of the operator's attributes.
fn activated(cx: &mut Cx, x: TensorId, name: &str, params: &[f32]) -> OpResult<TensorId> {
    let names: &[&str] = match name {
        "" => return Ok(x),
        "Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign" | "HardSwish" => &[],
        "LeakyRelu" | "Elu" | "ThresholdedRelu" => &["alpha"],
        "HardSigmoid" => &["alpha", "beta"],
        "Clip" => {
            let bound = |cx: &mut Cx, k: usize| {
                let v = params.get(k).copied()?;
                let dtype = cx.dtype(x);
                Some(cx.map(dtype, vec![], |_| expr::constant_f64(dtype, f64::from(v))))
            };
            let (low, high) = (bound(cx, 0), bound(cx, 1));
            return apply(cx, "Clip", &[Some(x), low, high], &[]);
        }
        other => return Err(OpError::Unsupported(format!("activation function '{other}'"))),
    };
    let attrs: Vec<_> = names.iter().zip(params).map(|(n, v)| (*n, AttrValue::Float(*v))).collect();
    apply(cx, name, &[Some(x)], &attrs)
}

fn fused_matmul(cx: &mut Cx, call: &Call) -> OpResult {
    let turned = |cx: &mut Cx, t: TensorId, inner: &str, batch: &str| -> OpResult<TensorId> {
        let rank = cx.rank(t);
        let mut order: Vec<usize> = (0..rank).collect();
        if rank >= 2 && call.int(batch, 0)? != 0 {
            // The first axis goes behind the batch axes.
            order[..rank - 1].rotate_left(1);
        }
        if rank >= 2 && call.int(inner, 0)? != 0 {
            order.swap(rank - 2, rank - 1);
        }
        if order.iter().enumerate().all(|(a, b)| a == *b) {
            return Ok(t);
        }
        let o = Operand::of(cx, t);
        let shape = order.iter().map(|d| o.shape[*d]).collect();
        Ok(cx.map(o.dtype, shape, |i| {
            let mut at = vec![Int::new(0); rank];
            for (k, d) in order.iter().enumerate() {
                at[*d] = i[k];
            }
            o.at(&at)
        }))
    };
    let a = turned(cx, call.input(0)?, "transA", "transBatchA")?;
    let b = turned(cx, call.input(1)?, "transB", "transBatchB")?;
    let dtype = super::operand::same_type(cx, a, b)?;
    need_float(dtype)?;
    let alpha = call.float("alpha", 1.0)?;
    if alpha == 1.0 {
        return Ok(vec![product(cx, a, b, dtype, dtype)?]);
    }
    let wide = dtype.compute();
    let y = product(cx, a, b, dtype, wide)?;
    let shape = cx.shape(y);
    Ok(vec![cx.map(dtype, shape, |i| {
        let e = expr::load(y, wide, i.to_vec());
        e * e.num(f64::from(alpha))
    })])
}

fn fused_gemm(cx: &mut Cx, call: &Call) -> OpResult {
    let own = ["activation", "activation_alpha", "activation_beta", "activation_gamma"];
    let y = standard(cx, call, "Gemm", 3, &own)?;
    let params: Vec<f32> = own[1..].iter().map_while(|n| call.opt_float(n).ok().flatten()).collect();
    let name = call.string("activation", String::new())?;
    Ok(vec![activated(cx, y, &name, &params)?])
}

fn fused_conv(cx: &mut Cx, call: &Call) -> OpResult {
    let mut y = standard(cx, call, "Conv", 3, &["activation", "activation_params"])?;
    if let Some(z) = call.opt(3) {
        y = apply(cx, "Add", &[Some(y), Some(z)], &[])?;
    }
    let name = call.string("activation", String::new())?;
    let params = call.floats("activation_params", vec![])?;
    Ok(vec![activated(cx, y, &name, &params)?])
}

/// A quantised tensor: data, scale, zero point.
pub(super) type Quantised = (TensorId, TensorId, Option<TensorId>);

/// The product of two quantised matrices as floats, plus a bias.
pub(super) fn integer_to_float(
    cx: &mut Cx,
    (a, a_scale, a_zero): Quantised,
    (b, b_scale, b_zero): Quantised,
    bias: Option<TensorId>,
) -> OpResult {
    let acc = apply(cx, "MatMulInteger", &[Some(a), Some(b), a_zero, b_zero], &[])?;
    let dtype = cx.dtype(a_scale);
    need_float(dtype)?;
    let real = apply(cx, "Cast", &[Some(acc)], &[("to", AttrValue::Int(if dtype == DType::F16 { 10 } else { 1 }))])?;
    let scale = apply(cx, "Mul", &[Some(a_scale), Some(b_scale)], &[])?;
    let y = apply(cx, "Mul", &[Some(real), Some(scale)], &[])?;
    match bias {
        Some(bias) => Ok(vec![apply(cx, "Add", &[Some(y), Some(bias)], &[])?]),
        None => Ok(vec![y]),
    }
}

/// `DynamicQuantizeLinear`: bytes, scale, zero point.
pub(super) fn dynamic(cx: &mut Cx, x: TensorId) -> OpResult<[TensorId; 3]> {
    let quantise = Call {
        domain: String::new(),
        op: "DynamicQuantizeLinear".into(),
        version: 11,
        inputs: vec![Some(x)],
        outputs: vec![true; 3],
        attrs: BTreeMap::new(),
    };
    let made = expand(cx, &quantise)?;
    made.try_into().map_err(|_| OpError::Unsupported("dynamic quantisation gives other than three outputs".into()))
}

fn dynamic_matmul(cx: &mut Cx, call: &Call) -> OpResult {
    let [a, scale, zero] = dynamic(cx, call.input(0)?)?;
    let b = (call.input(1)?, call.input(2)?, call.opt(3));
    integer_to_float(cx, (a, scale, Some(zero)), b, call.opt(4))
}

fn qgemm(cx: &mut Cx, call: &Call) -> OpResult {
    let turn = |cx: &mut Cx, t: TensorId, name: &str| -> OpResult<TensorId> {
        if call.int(name, 0)? == 0 { Ok(t) } else { apply(cx, "Transpose", &[Some(t)], &[]) }
    };
    let a = turn(cx, call.input(0)?, "transA")?;
    let b = turn(cx, call.input(3)?, "transB")?;
    if cx.rank(a) != 2 || cx.rank(b) != 2 {
        return Err(OpError::Invalid("operands must be matrices".into()));
    }
    let mut acc = apply(cx, "MatMulInteger", &[Some(a), Some(b), call.opt(2), call.opt(5)], &[])?;
    if let Some(c) = call.opt(6) {
        acc = apply(cx, "Add", &[Some(acc), Some(c)], &[])?;
    }
    let (a_scale, b_scale) = (call.input(1)?, call.input(4)?);
    need_one(cx, a_scale, "the scale of the first operand")?;
    let (sa, sb) = (Operand::of(cx, a_scale), Operand::of(cx, b_scale));
    let shape = cx.shape(acc);
    if sb.rank() == 1 && sb.shape[0] != Int::new(1) {
        cx.require_equal(sb.shape[0], shape[1], "scales of the second operand")?;
    } else {
        need_one(cx, b_scale, "the scale of the second operand")?;
    }
    let alpha = f64::from(call.float("alpha", 1.0)?);
    let quantised = match (call.opt(7), call.opt(8)) {
        (Some(scale), Some(zero)) => {
            need_one(cx, scale, "the scale of the output")?;
            need_one(cx, zero, "the zero point of the output")?;
            Some((Operand::of(cx, scale), Operand::of(cx, zero)))
        }
        (None, None) => None,
        _ => return Err(OpError::Invalid("the output has a scale or a zero point, but not both".into())),
    };
    let to = quantised.as_ref().map_or(DType::F32, |(_, zero)| zero.dtype);
    Ok(vec![cx.map(to, shape, |i| {
        let e = expr::load(acc, DType::I32, i.to_vec());
        let column = if sb.rank() == 1 { sb.spread(&[i[1]]) } else { sb.only() };
        let scale = sa.only() * column;
        let scale = scale * scale.num(alpha);
        match &quantised {
            Some((s, zero)) => requantise(e, scale / s.only(), zero.only(), to),
            None => e.to(DType::F32) * scale,
        }
    })])
}

/// The product, then the bias and the approximation of the Gaussian error unit by a hyperbolic tangent.
fn gemm_fast_gelu(cx: &mut Cx, call: &Call) -> OpResult {
    let product = apply(cx, "MatMul", &[Some(call.input(0)?), Some(call.input(1)?)], &[])?;
    let inputs = vec![Some(product), call.opt(2)];
    expand(cx, &Call { op: "FastGelu".into(), inputs, ..call.clone() })
}

/// Sums wrap around at 32 bits, unsigned if both operands are.
fn matmul_integer16(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let types = [cx.dtype(a), cx.dtype(b)];
    if let Some(t) = types.iter().find(|t| !matches!(t, DType::I16 | DType::U16)) {
        return Err(OpError::Invalid(format!("an operand has element type {t}; int16 or uint16 is needed")));
    }
    let to = if types == [DType::U16; 2] { DType::U32 } else { DType::I32 };
    Ok(vec![product(cx, a, b, to, to)?])
}

/// `(a - zero of a) * (b - zero of b)` in 32 bits.
fn mul_integer(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(2)?));
    let mut zero = |k: usize, of: DType| -> OpResult<Option<Operand>> {
        if !matches!(of, DType::I8 | DType::U8) {
            return Err(OpError::Invalid(format!("an operand has element type {of}; int8 or uint8 is needed")));
        }
        let Some(t) = call.opt(k) else { return Ok(None) };
        need_one(cx, t, "a zero point")?;
        Ok(Some(Operand::of(cx, t)))
    };
    let (za, zb) = (zero(1, a.dtype)?, zero(3, b.dtype)?);
    let shape = cx.broadcast(&[a.shape.clone(), b.shape.clone()])?;
    let shifted = |x: &Operand, zero: &Option<Operand>, i: &[Int]| {
        let v = x.spread(i).to(DType::I32);
        zero.as_ref().map_or(v, |z| v - z.only().to(DType::I32))
    };
    Ok(vec![cx.map(DType::I32, shape, |i| shifted(&a, &za, i) * shifted(&b, &zb, i))])
}
