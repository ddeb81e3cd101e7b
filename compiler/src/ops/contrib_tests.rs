//! Fused and quantised operators of the domain `com.microsoft`.

use super::testing::Value;
use super::testing::{call, constant, value};
use super::{AttrValue, expand};
use crate::dtype::DType;
use crate::te::{Cx, OpError, eval};

fn run(op: &str, inputs: &[Option<Value>], attrs: &[(&str, AttrValue)]) -> Result<(Vec<usize>, Vec<f64>), OpError> {
    let mut cx = Cx::new();
    let ids: Vec<_> = inputs.iter().map(|v| v.as_ref().map(|v| constant(&mut cx, v))).collect();
    let mut call = call(op, 1, &ids, attrs, 1);
    call.domain = "com.microsoft".into();
    let out = expand(&mut cx, &call)?;
    let made = eval::run(&cx.program, &[], &out[..1]).expect("evaluates").remove(0);
    Ok((made.shape.clone(), made.bits.iter().map(|b| eval::number(made.dtype, *b)).collect()))
}

fn floats(shape: &[usize], data: &[f64]) -> Option<Value> {
    Some(value(DType::F32, shape, data))
}

fn bytes(shape: &[usize], data: &[f64]) -> Option<Value> {
    Some(value(DType::U8, shape, data))
}

#[test]
fn a_fused_product_turns_its_operands_and_scales() {
    let a = floats(&[2, 1], &[1.0, 2.0]);
    let b = floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let attrs = [("transA", AttrValue::Int(1)), ("transB", AttrValue::Int(1)), ("alpha", AttrValue::Float(0.5))];
    assert_eq!(run("FusedMatMul", &[a, b], &attrs), Ok((vec![1, 3], vec![2.5, 5.5, 8.5])));
}

#[test]
fn packed_weights_are_read_from_the_low_bits_on_with_a_zero_point_a_block() {
    // Two blocks of 16 numbers of four bits: the first holds 0 to 15, the second fifteens.
    let first = (0..8).map(|k| f64::from(2 * k + 16 * (2 * k + 1)));
    let packed: Vec<f64> = first.chain((0..8).map(|_| 255.0)).collect();
    let attrs = |k: i64| {
        vec![
            ("K", AttrValue::Int(k)),
            ("N", AttrValue::Int(1)),
            ("bits", AttrValue::Int(4)),
            ("block_size", AttrValue::Int(16)),
        ]
    };
    let mut x = vec![0.0; 32];
    (x[1], x[31]) = (10.0, 1.0);
    let inputs = |zeros| vec![floats(&[1, 32], &x), bytes(&[1, 2, 8], &packed), floats(&[2], &[1.0, 0.5]), zeros];
    // Zero points 3 and 12 in one byte.
    let y = run("MatMulNBits", &inputs(bytes(&[1], &[3.0 + 16.0 * 12.0])), &attrs(32));
    assert_eq!(y, Ok((vec![1, 1], vec![10.0 * (1.0 - 3.0) + 0.5 * (15.0 - 12.0)])));
    let y = run("MatMulNBits", &inputs(None), &attrs(32));
    assert_eq!(y, Ok((vec![1, 1], vec![10.0 * (1.0 - 8.0) + 0.5 * (15.0 - 8.0)])));
    assert!(matches!(run("MatMulNBits", &inputs(None), &attrs(33)), Err(OpError::Invalid(_))));
}

#[test]
fn a_quantised_product_is_scaled_once() {
    let scale = |v: f64| floats(&[], &[v]);
    let zero = |v: f64| bytes(&[], &[v]);
    let inputs = [
        bytes(&[3], &[10.0, 200.0, 0.0]),
        scale(0.5),
        zero(8.0),
        bytes(&[1], &[3.0]),
        scale(0.25),
        zero(0.0),
        scale(0.5),
        zero(1.0),
    ];
    // (2, 192, -8) * 3 * 0.25, ties to even, plus 1, within 0 to 255.
    assert_eq!(run("QLinearMul", &inputs, &[]), Ok((vec![3], vec![3.0, 145.0, 0.0])));
}

#[test]
fn a_fused_convolution_adds_before_it_activates() {
    let x = floats(&[1, 1, 3], &[1.0, -2.0, 3.0]);
    let w = floats(&[1, 1, 1], &[2.0]);
    let z = floats(&[1, 1, 3], &[-3.0, 5.0, 0.0]);
    let attrs =
        [("activation", AttrValue::Str("LeakyRelu".into())), ("activation_params", AttrValue::Floats(vec![0.5]))];
    assert_eq!(run("FusedConv", &[x.clone(), w.clone(), None, z], &attrs), Ok((vec![1, 1, 3], vec![-0.5, 1.0, 6.0])));
    let unknown = [("activation", AttrValue::Str("Swizzle".into()))];
    assert!(matches!(run("FusedConv", &[x, w], &unknown), Err(OpError::Unsupported(_))));
}

#[test]
fn padded_keys_get_almost_no_weight() {
    let q = floats(&[1, 1, 2], &[1.0, 1.0]);
    let k = floats(&[1, 3, 2], &[0.0; 6]);
    let v = floats(&[1, 3, 2], &[1.0, 2.0, 3.0, 6.0, 100.0, 100.0]);
    let attrs = [("num_heads", AttrValue::Int(1))];
    let length = Some(value(DType::I32, &[1], &[2.0]));
    let y = run("MultiHeadAttention", &[q.clone(), k.clone(), v.clone(), None, length], &attrs);
    assert_eq!(y, Ok((vec![1, 1, 2], vec![2.0, 4.0])));
    let shown = Some(value(DType::I32, &[1, 3], &[0.0, 1.0, 0.0]));
    let y = run("MultiHeadAttention", &[q, k, v, None, shown], &attrs);
    assert_eq!(y, Ok((vec![1, 1, 2], vec![3.0, 6.0])));
}

#[test]
fn numbers_of_keys_that_do_not_fit_the_operands_end_the_run() {
    let attend = |last: i32, total: i32, cached: usize| {
        let mut cx = Cx::new();
        let zeros = |shape: &[usize]| value(DType::F32, shape, &vec![0.0; shape.iter().product()]);
        let of = |v: &Value| Some(v.clone());
        let past = (cached > 0).then(|| zeros(&[1, 1, cached, 4]));
        let new = zeros(&[1, 2, 4]);
        let number = |n: i32, shape: &[usize]| Some(value(DType::I32, shape, &[f64::from(n)]));
        let inputs = [of(&new), of(&new), of(&new), past.clone(), past, number(last, &[1]), number(total, &[])];
        let ids: Vec<_> = inputs.iter().map(|v| v.as_ref().map(|v| constant(&mut cx, v))).collect();
        let heads = [("num_heads", AttrValue::Int(1)), ("kv_num_heads", AttrValue::Int(1))];
        let mut call = call("GroupQueryAttention", 1, &ids, &heads, 3);
        call.domain = "com.microsoft".into();
        let out = expand(&mut cx, &call).map_err(|e| format!("{e:?}"))?;
        eval::run(&cx.program, &[], &out).map(|v| v[1].shape.clone())
    };
    assert_eq!(attend(1, 2, 0), Ok(vec![1, 1, 2, 4]));
    assert_eq!(attend(4, 5, 3), Ok(vec![1, 1, 5, 4]));
    assert_eq!(attend(2, 3, 6), Ok(vec![1, 1, 6, 4]));
    for (last, total, cached) in [(2, 2, 0), (-1, 2, 0), (5, 5, 3), (4, 6, 3), (1, 0, 0), (1, 9, 3)] {
        assert!(attend(last, total, cached).is_err(), "{last} {total} {cached}");
    }
}

#[test]
fn tokens_go_through_the_experts_that_their_scores_choose() {
    let x = floats(&[2, 2], &[1.0, 2.0, 3.0, -1.0]);
    let scores = floats(&[2, 3], &[0.0, 9.0, -9.0, 9.0, 0.0, -9.0]);
    let up = floats(&[3, 2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, -1.0, 2.0, 9.0, 9.0, 9.0, 9.0]);
    let down = floats(&[3, 2, 2], &[1.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 10.0, 9.0, 9.0, 9.0, 9.0]);
    let attrs = [
        ("k", AttrValue::Int(1)),
        ("activation_type", AttrValue::Str("relu".into())),
        ("normalize_routing_weights", AttrValue::Int(1)),
    ];
    // The second expert gives [1 + 2, -1 + 4], the first one leaves out what is below zero.
    let want = vec![6.0, 30.0, 3.0, 0.0];
    assert_eq!(run("MoE", &[x.clone(), scores.clone(), up, None, down], &attrs), Ok((vec![2, 2], want.clone())));
    // The same weights in four bits, eight more each, scales of rows: 1, but 2 and 10 behind the second expert.
    let up = bytes(&[3, 2, 1], &[f64::from(0x89), f64::from(0x98), f64::from(0x99), f64::from(0xa7), 255.0, 255.0]);
    let down = bytes(&[3, 2, 1], &[f64::from(0x89), f64::from(0x98), f64::from(0x89), f64::from(0x98), 255.0, 255.0]);
    let ones = floats(&[3, 2], &[1.0; 6]);
    let scales = floats(&[3, 2], &[1.0, 1.0, 2.0, 10.0, 1.0, 1.0]);
    let inputs = [x, scores, up, ones, None, down, scales];
    assert_eq!(run("QMoE", &inputs, &attrs[..2]), Ok((vec![2, 2], want)));
    let odd = [attrs[0].clone(), ("activation_type", AttrValue::Str("swoosh".into()))];
    assert!(matches!(run("QMoE", &inputs, &odd), Err(OpError::Unsupported(m)) if m.contains("swoosh")));
}
