//! Operators of the domain `com.microsoft` that are products or quantised forms of others, as compositions of these.

use super::contract::product;
use super::integer::requantise;
use super::operand::{Operand, need_float, need_one};
use super::{AttrValue, Call, Expand, expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};
use std::collections::BTreeMap;

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "FusedMatMul", fused_matmul),
    (MS, "TransposeMatMul", fused_matmul),
    (MS, "FusedGemm", fused_gemm),
    (MS, "FusedConv", fused_conv),
    (MS, "MatMulNBits", matmul_nbits),
    (MS, "MatMulIntegerToFloat", |cx, call| {
        let (b_scale, a_zero, b_zero, bias) = (call.input(3)?, call.opt(4), call.opt(5), call.opt(6));
        let a_scale = call.input(2)?;
        integer_to_float(cx, (call.input(0)?, a_scale, a_zero), (call.input(1)?, b_scale, b_zero), bias)
    }),
    (MS, "DynamicQuantizeMatMul", dynamic_matmul),
    (MS, "QGemm", qgemm),
    (MS, "QLinearConv", |cx, call| {
        not_channels_last(call)?;
        expand(cx, &Call { domain: String::new(), version: 10, ..call.clone() })
    }),
    (MS, "QLinearAdd", qlinear_add),
    (MS, "QLinearMul", qlinear_mul),
    (MS, "QLinearSigmoid", |cx, call| qlinear_unary(cx, call, "Sigmoid")),
    (MS, "QLinearLeakyRelu", |cx, call| qlinear_unary(cx, call, "LeakyRelu")),
    (MS, "QLinearSoftmax", |cx, call| qlinear_unary(cx, call, "Softmax")),
    (MS, "QLinearGlobalAveragePool", |cx, call| {
        not_channels_last(call)?;
        qlinear_unary(cx, call, "GlobalAveragePool")
    }),
    (MS, "QLinearAveragePool", |cx, call| {
        not_channels_last(call)?;
        qlinear_unary(cx, call, "AveragePool")
    }),
    (MS, "QLinearConcat", qlinear_concat),
];

fn not_channels_last(call: &Call) -> OpResult<()> {
    match call.int("channels_last", 0)? {
        0 => Ok(()),
        _ => Err(OpError::Unsupported("attribute 'channels_last'".into())),
    }
}

/// Applies a standard operator with one output.
fn apply(cx: &mut Cx, op: &str, inputs: &[Option<TensorId>], attrs: &[(&str, AttrValue)]) -> OpResult<TensorId> {
    let attrs = attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
    apply_with(cx, op, inputs, attrs)
}

fn apply_with(
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

/// Element `k` of numbers of `bits` bits packed into bytes from the lowest bit on, where `byte` gives a byte of the row.
fn unpacked(bits: i64, k: Int, byte: &dyn Fn(Int) -> Expr) -> Expr {
    let per = 8 / bits;
    let b = byte(k.div(per)).to(DType::I32);
    let shift = expr::int(k.rem(per) * bits).to(DType::I32);
    expr::bin(crate::te::Func2::Shr, b, shift) & expr::constant_i64(DType::I32, (1 << bits) - 1)
}

fn matmul_nbits(cx: &mut Cx, call: &Call) -> OpResult {
    let [a, b, scales] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    need_float(a.dtype)?;
    let needed = |name: &str| -> OpResult<i64> {
        match call.opt_int(name)? {
            Some(v) if v > 0 => Ok(v),
            _ => Err(OpError::Invalid(format!("attribute '{name}' is missing or not positive"))),
        }
    };
    let (n, k, block, bits) = (needed("N")?, needed("K")?, needed("block_size")?, call.int("bits", 4)?);
    if ![2, 4, 8].contains(&bits) || block % (8 / bits) != 0 {
        return Err(OpError::Unsupported(format!("{bits} bits in blocks of {block}")));
    }
    if call.int("weight_prepacked", 0)? != 0 {
        return Err(OpError::Unsupported("attribute 'weight_prepacked'".into()));
    }
    if call.opt(4).is_some() {
        return Err(OpError::Unsupported("input 'g_idx'".into()));
    }
    let blocks = (k + block - 1) / block;
    let bytes = block * bits / 8;
    let count = |cx: &mut Cx, o: &Operand, n: i64, what: &str| {
        let all = Int::product(&o.shape);
        cx.require_equal(all, Int::new(n), &format!("elements of {what}"))
    };
    if b.dtype != DType::U8 {
        return Err(OpError::Invalid(format!("the weights have element type {}, not uint8", b.dtype)));
    }
    count(cx, &b, n * blocks * bytes, "the weights")?;
    count(cx, &scales, n * blocks, "the scales")?;
    let flat = |cx: &mut Cx, o: &Operand, shape: &[i64]| {
        let t = cx.view(o.id, shape.iter().map(|d| Int::new(*d)).collect());
        Operand::of(cx, t)
    };
    let b = flat(cx, &b, &[n, blocks * bytes]);
    let scales = flat(cx, &scales, &[n, blocks]);
    let row = (blocks * bits + 7) / 8;
    let zeros = match call.opt(3) {
        None => None,
        Some(t) => {
            let o = Operand::of(cx, t);
            let each = if o.dtype == DType::U8 { row } else { blocks };
            count(cx, &o, n * each, "the zero points")?;
            Some(flat(cx, &o, &[n, each]))
        }
    };
    // A block's numbers are packed by themselves, but blocks fill whole bytes.
    let wide = a.dtype.compute();
    let weights = cx.map(a.dtype, vec![Int::new(k), Int::new(n)], |i| {
        let (group, column) = (i[0].div(block), i[1]);
        let q = unpacked(bits, i[0].rem(block), &|byte| b.at(&[column, group * bytes + byte]));
        let zero = match &zeros {
            None => expr::constant_f64(wide, f64::from(1 << (bits - 1))),
            Some(z) if z.dtype == DType::U8 => unpacked(bits, group, &|byte| z.at(&[column, byte])).to(wide),
            Some(z) => z.at(&[column, group]).to(wide),
        };
        (q.to(wide) - zero) * scales.at(&[column, group]).to(wide)
    });
    let y = product(cx, a.id, weights, a.dtype, a.dtype)?;
    match call.opt(5) {
        Some(bias) => Ok(vec![apply(cx, "Add", &[Some(y), Some(bias)], &[])?]),
        None => Ok(vec![y]),
    }
}

/// A quantised tensor: data, scale, zero point.
type Quantised = (TensorId, TensorId, Option<TensorId>);

fn integer_to_float(
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

fn dynamic_matmul(cx: &mut Cx, call: &Call) -> OpResult {
    let quantise = Call {
        domain: String::new(),
        op: "DynamicQuantizeLinear".into(),
        version: 11,
        inputs: vec![Some(call.input(0)?)],
        outputs: vec![true; 3],
        attrs: BTreeMap::new(),
    };
    let made = expand(cx, &quantise)?;
    let &[a, scale, zero] = made.as_slice() else {
        return Err(OpError::Unsupported("dynamic quantisation gives other than three outputs".into()));
    };
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

fn dequantised(cx: &mut Cx, call: &Call, at: usize) -> OpResult<TensorId> {
    apply(cx, "DequantizeLinear", &[Some(call.input(at)?), Some(call.input(at + 1)?), call.opt(at + 2)], &[])
}

fn quantised(cx: &mut Cx, y: TensorId, scale: TensorId, zero: Option<TensorId>, like: TensorId) -> OpResult<TensorId> {
    let dtype = cx.dtype(like);
    let zero = match zero {
        Some(z) => z,
        None => cx.map(dtype, vec![], |_| expr::constant_i64(dtype, 0)),
    };
    apply(cx, "QuantizeLinear", &[Some(y), Some(scale), Some(zero)], &[])
}

fn qlinear_add(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (dequantised(cx, call, 0)?, dequantised(cx, call, 3)?);
    let y = apply(cx, "Add", &[Some(a), Some(b)], &[])?;
    Ok(vec![quantised(cx, y, call.input(6)?, call.opt(7), call.input(0)?)?])
}

/// The product of the integers is exact; it is scaled once.
fn qlinear_mul(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(3)?));
    let to = a.dtype;
    if !matches!(to, DType::I8 | DType::U8) || b.dtype != to {
        return Err(OpError::Invalid(format!("operands have types {to} and {}", b.dtype)));
    }
    let mut only = |k: usize| -> OpResult<Option<Operand>> {
        let Some(t) = call.opt(k) else { return Ok(None) };
        need_one(cx, t, &format!("input {k}"))?;
        Ok(Some(Operand::of(cx, t)))
    };
    let (za, zb, zero) = (only(2)?, only(5)?, only(7)?);
    let (Some(sa), Some(sb), Some(scale)) = (only(1)?, only(4)?, only(6)?) else {
        return Err(OpError::Invalid("a scale is missing".into()));
    };
    let shape = cx.broadcast(&[a.shape.clone(), b.shape.clone()])?;
    let none = expr::constant_i64(to, 0);
    let at = |z: &Option<Operand>| z.as_ref().map_or(none, Operand::only).to(DType::I32);
    Ok(vec![cx.map(to, shape, |i| {
        let x = a.spread(i).to(DType::I32) - at(&za);
        let y = b.spread(i).to(DType::I32) - at(&zb);
        let zero = zero.as_ref().map_or(none, Operand::only);
        requantise(x * y, sa.only() * sb.only() / scale.only(), zero, to)
    })])
}

fn qlinear_unary(cx: &mut Cx, call: &Call, op: &str) -> OpResult {
    let x = dequantised(cx, call, 0)?;
    let own = ["channels_last", "opset"];
    let attrs = call.attrs.iter().filter(|(k, _)| !own.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone()));
    let version = call.int("opset", 13)?;
    let inner = Call {
        domain: String::new(),
        op: op.into(),
        version,
        inputs: vec![Some(x)],
        outputs: vec![true],
        attrs: attrs.collect(),
    };
    let y = expand(cx, &inner)?
        .first()
        .copied()
        .ok_or_else(|| OpError::Unsupported(format!("operator {op} gives nothing")))?;
    Ok(vec![quantised(cx, y, call.input(3)?, call.opt(4), call.input(0)?)?])
}

fn qlinear_concat(cx: &mut Cx, call: &Call) -> OpResult {
    let Some(axis) = call.opt_int("axis")? else {
        return Err(OpError::Invalid("attribute 'axis' is missing".into()));
    };
    let count = call.inputs.len().saturating_sub(2) / 3;
    if count == 0 || call.inputs.len() != 2 + 3 * count {
        return Err(OpError::Invalid("operands must come in threes after scale and zero point".into()));
    }
    let parts = (0..count).map(|k| Ok(Some(dequantised(cx, call, 2 + 3 * k)?))).collect::<OpResult<Vec<_>>>()?;
    let y = apply(cx, "Concat", &parts, &[("axis", AttrValue::Int(axis))])?;
    Ok(vec![quantised(cx, y, call.input(0)?, call.opt(1), call.input(2)?)?])
}
