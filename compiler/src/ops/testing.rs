//! Helpers for tests of expansions: operators on constants, evaluated without a back end.

use super::{AttrValue, Call, expand};
use crate::dtype::DType;
use crate::te::eval::{self, Array};
use crate::te::{Cx, OpResult, TensorId};

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
    cx.constant(v.dtype, &v.shape, array(v).bytes())
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

/// Expands one operator on run-time inputs (`None`: left out) of the values' shapes, and runs it.
pub(super) fn run_at_run_time(
    op: &str,
    version: i64,
    inputs: &[Option<Value>],
    attrs: &[(&str, AttrValue)],
    outputs: usize,
) -> Result<Vec<Value>, String> {
    let mut cx = Cx::new();
    let (mut ids, mut arrays) = (vec![], vec![]);
    for v in inputs {
        ids.push(v.as_ref().map(|v| {
            arrays.push(array(v));
            cx.input("x", v.dtype, v.shape.iter().map(|d| crate::sym::Int::from(*d)).collect())
        }));
    }
    let out = expand(&mut cx, &call(op, version, &ids, attrs, outputs)).map_err(|e| format!("{e:?}"))?;
    Ok(eval::run(&cx.program, &arrays, &out)?.iter().map(from_array).collect())
}

fn array(v: &Value) -> Array {
    let bits = v.data.iter().map(|x| match v.dtype {
        DType::F16 => half::f16::from_f64(*x).to_bits().into(),
        DType::BF16 => half::bf16::from_f64(*x).to_bits().into(),
        t => crate::kernel::scalar::from_f64(t, *x),
    });
    Array { dtype: v.dtype, shape: v.shape.clone(), bits: bits.collect() }
}

fn from_array(a: &Array) -> Value {
    let data = a.bits.iter().map(|b| eval::number(a.dtype, *b)).collect();
    Value { dtype: a.dtype, shape: a.shape.clone(), data }
}

/// Expands one operator on constants (`None`: left out) and runs it; then again on run-time inputs, which must give the
/// same unless that is refused.
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
    let out: Vec<Value> = eval::run(&cx.program, &[], &out).unwrap().iter().map(from_array).collect();
    match run_at_run_time(op, version, inputs, attrs, outputs) {
        Ok(same) => assert!(agree(&out, &same), "{op}: {out:?}, and at run time {same:?}"),
        Err(e) => assert!(e.starts_with("Unsupported"), "{op} at run time: {e}"),
    }
    Ok(out)
}

/// Equal up to the rounding of tables that are made by different means.
fn agree(a: &[Value], b: &[Value]) -> bool {
    let near = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= 1e-6 * y.abs().max(1e-3);
    let alike = |a: &Value, b: &Value| {
        (a.dtype, &a.shape) == (b.dtype, &b.shape) && a.data.iter().zip(&b.data).all(|(x, y)| near(*x, *y))
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
}

/// [`run`] for one output, which must be given.
pub(super) fn run1(op: &str, version: i64, inputs: &[Value], attrs: &[(&str, AttrValue)]) -> Value {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    run(op, version, &inputs, attrs, 1).unwrap().remove(0)
}
