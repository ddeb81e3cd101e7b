//! Quantised operators of the domain `com.microsoft`: the operator on the numbers that the integers stand for, quantised again.

use super::contrib::apply;
use super::integer::requantise;
use super::layout::transposed;
use super::operand::{Operand, need_one};
use super::{AttrValue, Call, Expand, expand, pool};
use crate::dtype::DType;
use crate::te::{Cx, OpError, OpResult, TensorId, expr};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "QLinearConv", |cx, call| channels_first(cx, call, |cx, call| standard(cx, call, "QLinearConv", 10))),
    (MS, "QLinearAdd", qlinear_add),
    (MS, "QLinearMul", qlinear_mul),
    (MS, "QLinearSigmoid", |cx, call| qlinear_unary(cx, call, "Sigmoid")),
    (MS, "QLinearLeakyRelu", |cx, call| qlinear_unary(cx, call, "LeakyRelu")),
    (MS, "QLinearSoftmax", |cx, call| qlinear_unary(cx, call, "Softmax")),
    (MS, "QLinearReduceMean", |cx, call| qlinear_unary(cx, call, "ReduceMean")),
    (MS, "QLinearGlobalAveragePool", |cx, call| {
        channels_first(cx, call, |cx, call| qlinear_unary(cx, call, "GlobalAveragePool"))
    }),
    (MS, "QLinearAveragePool", |cx, call| channels_first(cx, call, qlinear_average)),
    (MS, "QLinearConcat", qlinear_concat),
    (MS, "QLinearWhere", qlinear_where),
    (MS, "NhwcMaxPool", |cx, call| channels_last(cx, call, |cx, call| standard(cx, call, "MaxPool", 12))),
    (MS, "NhwcConv", |cx, call| channels_last(cx, call, |cx, call| standard(cx, call, "Conv", 11))),
    (MS, "NhwcFusedConv", |cx, call| {
        channels_last(cx, call, |cx, call| expand(cx, &Call { op: "FusedConv".into(), ..call.clone() }))
    }),
];

/// The operator `op` of the standard on the operands and attributes of the call.
fn standard(cx: &mut Cx, call: &Call, op: &str, version: i64) -> OpResult {
    let mut call = Call { domain: String::new(), op: op.into(), version, ..call.clone() };
    call.attrs.remove("channels_last");
    expand(cx, &call)
}

/// Channels behind the batch instead of last, or the other way round.
fn moved_channels(cx: &mut Cx, t: TensorId, to_last: bool) -> OpResult<TensorId> {
    let rank = cx.rank(t);
    if rank < 3 {
        return Err(OpError::Invalid(format!("a tensor of rank {rank} has no spatial axes")));
    }
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    if to_last {
        perm[1..].rotate_left(1)
    } else {
        perm[1..].rotate_right(1)
    }
    transposed(cx, t, &perm)
}

/// Operator `f`, which takes channels first, on operands whose channels are last. The first operand and, in a fused
/// convolution, the fourth are images; so is the first output.
fn channels_last(cx: &mut Cx, call: &Call, f: impl FnOnce(&mut Cx, &Call) -> OpResult) -> OpResult {
    let mut call = call.clone();
    let images: &[usize] = if call.op == "NhwcFusedConv" { &[0, 3] } else { &[0] };
    for k in images {
        if let Some(Some(t)) = call.inputs.get_mut(*k) {
            *t = moved_channels(cx, *t, false)?;
        }
    }
    let mut made = f(cx, &call)?;
    if let Some(y) = made.first_mut() {
        *y = moved_channels(cx, *y, true)?;
    }
    Ok(made)
}

/// Operator `f` in the order of axes that attribute `channels_last` says.
fn channels_first(cx: &mut Cx, call: &Call, f: impl FnOnce(&mut Cx, &Call) -> OpResult) -> OpResult {
    if call.int("channels_last", 0)? == 0 { f(cx, call) } else { channels_last(cx, call, f) }
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
    let made = if op == "AveragePool" { pool::averaged(cx, &inner, true)? } else { expand(cx, &inner)? };
    let [y, ..] = made[..] else { return Err(OpError::Unsupported(format!("operator {op} gives nothing"))) };
    Ok(vec![quantised(cx, y, call.input(3)?, call.opt(4), call.input(0)?)?])
}

/// Windows beyond the padding are divided by all of their cells where padding counts, as in onnxruntime.
fn qlinear_average(cx: &mut Cx, call: &Call) -> OpResult {
    qlinear_unary(cx, call, "AveragePool")
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

fn qlinear_where(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (dequantised(cx, call, 1)?, dequantised(cx, call, 4)?);
    let y = apply(cx, "Where", &[Some(call.input(0)?), Some(a), Some(b)], &[])?;
    Ok(vec![quantised(cx, y, call.input(7)?, call.opt(8), call.input(1)?)?])
}
