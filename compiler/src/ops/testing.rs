//! Helpers for tests of expansions: operators on constants, evaluated without a back end.

use super::{AttrValue, Call, expand};
use crate::dtype::DType;
use crate::te::{Cx, OpResult, TensorId, expr, known};

/// A tensor of numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

pub(super) fn value(dtype: DType, shape: &[usize], data: &[f64]) -> Value {
    Value { dtype, shape: shape.to_vec(), data: data.to_vec() }
}

/// `0, 1, 2, …` as `f32`.
pub(super) fn counting(shape: &[usize]) -> Value {
    let n = shape.iter().product::<usize>();
    value(DType::F32, shape, &(0..n).map(|k| k as f64).collect::<Vec<_>>())
}

/// A vector of `i64`.
pub(super) fn list(data: &[i64]) -> Value {
    value(DType::I64, &[data.len()], &data.iter().map(|v| *v as f64).collect::<Vec<_>>())
}

pub(super) fn constant(cx: &mut Cx, v: &Value) -> TensorId {
    let mut bytes = vec![];
    for x in &v.data {
        let c = expr::constant_f64(v.dtype, *x).as_const().unwrap();
        bytes.extend_from_slice(&c.bits.to_le_bytes()[..v.dtype.size()]);
    }
    cx.constant(v.dtype, &v.shape, bytes)
}

/// The attribute list of a call.
pub(super) fn call(
    op: &str,
    version: i64,
    inputs: &[Option<TensorId>],
    attrs: &[(&str, AttrValue)],
    outputs: usize,
) -> Call {
    Call {
        domain: String::new(),
        op: op.into(),
        version,
        inputs: inputs.to_vec(),
        outputs: vec![true; outputs],
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
    }
}

/// The elements of a tensor that depends on constants alone.
pub(super) fn evaluate(cx: &mut Cx, t: TensorId) -> Value {
    let shape: Vec<usize> = cx.shape(t).iter().map(|d| d.as_const().unwrap() as usize).collect();
    let n = shape.iter().product::<usize>();
    let data = (0..n)
        .map(|flat| {
            let mut rest = flat;
            let mut index = vec![0; shape.len()];
            for k in (0..shape.len()).rev() {
                index[k] = (rest % shape[k]) as i64;
                rest /= shape[k];
            }
            known::number(known::element(cx, t, &index).as_const().unwrap())
        })
        .collect();
    Value { dtype: cx.dtype(t), shape, data }
}

/// Expands one operator on constants (`None`: left out) and evaluates its outputs.
pub(super) fn run(
    op: &str,
    version: i64,
    inputs: &[Option<Value>],
    attrs: &[(&str, AttrValue)],
    outputs: usize,
) -> OpResult<Vec<Value>> {
    let mut cx = Cx::new();
    let ids: Vec<Option<TensorId>> = inputs.iter().map(|v| v.as_ref().map(|v| constant(&mut cx, v))).collect();
    let out = expand(&mut cx, &call(op, version, &ids, attrs, outputs))?;
    Ok(out.into_iter().map(|t| evaluate(&mut cx, t)).collect())
}

/// [`run`] for one output, which must be given.
pub(super) fn run1(op: &str, version: i64, inputs: &[Value], attrs: &[(&str, AttrValue)]) -> Value {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    run(op, version, &inputs, attrs, 1).unwrap().remove(0)
}
