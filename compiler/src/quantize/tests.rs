//! Programs before and after, evaluated by their definitions.

use super::rewrite;
use crate::dtype::DType;
use crate::ops::{AttrValue, Call, expand};
use crate::sym::Int;
use crate::te::eval::{self, Array};
use crate::te::{Cx, Def, Program, ReduceKind, TensorId};

fn node(cx: &mut Cx, op: &str, inputs: &[TensorId], attrs: &[(&str, AttrValue)]) -> TensorId {
    let call = Call {
        domain: String::new(),
        op: op.into(),
        version: 21,
        inputs: inputs.iter().map(|t| Some(*t)).collect(),
        outputs: vec![true],
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
    };
    expand(cx, &call).unwrap()[0]
}

fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(step).collect()
}

fn ints(shape: &[usize]) -> Vec<Int> {
    shape.iter().map(|d| Int::from(*d)).collect()
}

/// An input of bytes with its scale and zero point, as floats.
fn input(cx: &mut Cx, dtype: DType, shape: &[usize], scale: f32, zero: u8) -> TensorId {
    let x = cx.input("x", dtype, ints(shape));
    let scale = cx.constant_f32(&[], &[scale]);
    let zero = cx.constant(dtype, &[], vec![zero]);
    node(cx, "DequantizeLinear", &[x, scale, zero], &[])
}

/// Weights with scales and zero points along an axis, as floats.
fn weights(cx: &mut Cx, dtype: DType, shape: &[usize], axis: usize, zero: Option<u8>) -> TensorId {
    let w = cx.constant(dtype, shape, bytes(shape.iter().product(), 7));
    // Powers of two, so that no product rounds.
    let scales: Vec<f32> = (0..shape[axis]).map(|k| 0.25 / (1 << (k % 3)) as f32).collect();
    let scales = cx.constant_f32(&[shape[axis]], &scales);
    let zeros: Vec<u8> = (0..shape[axis]).map(|k| zero.map_or(0, |z| z.wrapping_add(k as u8))).collect();
    let zeros = cx.constant(dtype, &[shape[axis]], zeros);
    node(cx, "DequantizeLinear", &[w, scales, zeros], &[("axis", AttrValue::Int(axis as i64))])
}

fn requantised(cx: &mut Cx, y: TensorId, scale: f32, zero: u8) -> TensorId {
    let scale = cx.constant_f32(&[], &[scale]);
    let zero = cx.constant(DType::U8, &[], vec![zero]);
    node(cx, "QuantizeLinear", &[y, scale, zero], &[])
}

/// Types of the sums of products in a program.
fn sums(p: &Program, wanted: TensorId) -> Vec<DType> {
    let live = crate::fuse::uses::find(&Program { outputs: vec![wanted], ..p.clone() }).live;
    let types = live.iter().filter(|t| {
        let sum = matches!(p.tensor(**t).def, Def::Reduce { kind: ReduceKind::Sum, .. });
        sum && crate::lower::contract::recognise(p, **t).is_some()
    });
    types.map(|t| p.tensor(*t).dtype).collect()
}

/// Rewrites; the result must be the same. Gives the types of the sums of products.
fn check(mut cx: Cx, out: TensorId, inputs: &[Array]) -> Vec<DType> {
    cx.program.outputs = vec![out];
    let before = eval::run(&cx.program, inputs, &[out]).unwrap();
    rewrite(&mut cx.program);
    let after = eval::run(&cx.program, inputs, &[out]).unwrap();
    assert_eq!(before, after);
    sums(&cx.program, out)
}

fn array(dtype: DType, shape: &[usize], seed: u32) -> Array {
    Array::from_bytes(dtype, shape.to_vec(), &bytes(shape.iter().product(), seed))
}

#[test]
fn a_quantised_convolution_sums_bytes_whatever_its_groups_and_padding_are() {
    for (group, dtype, zero) in
        [(1, DType::I8, None), (2, DType::I8, Some(3)), (1, DType::U8, Some(128)), (4, DType::U8, Some(100))]
    {
        let mut cx = Cx::new();
        let shape = [1, 4, 6, 5];
        let x = input(&mut cx, DType::U8, &shape, 0.5, 77);
        let w = weights(&mut cx, dtype, &[8, 4 / group, 3, 3], 0, zero);
        let bias = cx.constant_f32(&[8], &[1.0, -2.5, 3.0, 0.0, 0.5, 9.0, -30.0, 7.25]);
        let pads = AttrValue::Ints(vec![1, 0, 1, 2]);
        let y = node(&mut cx, "Conv", &[x, w, bias], &[("group", AttrValue::Int(group as i64)), ("pads", pads)]);
        let y = node(&mut cx, "Relu", &[y], &[]);
        let y = requantised(&mut cx, y, 16.0, 5);
        assert_eq!(check(cx, y, &[array(DType::U8, &shape, 1)]), [DType::I32], "{group} {dtype}");
    }
}

#[test]
fn products_of_two_activations_sum_bytes_of_both_signs() {
    for types in [[DType::U8, DType::U8], [DType::I8, DType::I8], [DType::U8, DType::I8], [DType::I8, DType::U8]] {
        let mut cx = Cx::new();
        let a = input(&mut cx, types[0], &[2, 3, 20], 0.25, 13);
        let b = input(&mut cx, types[1], &[2, 7, 20], 0.5, 200);
        let b = node(&mut cx, "Transpose", &[b], &[("perm", AttrValue::Ints(vec![0, 2, 1]))]);
        let y = node(&mut cx, "MatMul", &[a, b], &[]);
        let y = requantised(&mut cx, y, 64.0, 120);
        let inputs = [array(types[0], &[2, 3, 20], 3), array(types[1], &[2, 7, 20], 4)];
        assert_eq!(check(cx, y, &inputs), [DType::I32], "{types:?}");
    }
}

#[test]
fn products_of_integers_keep_their_wrapped_sums() {
    for types in [[DType::U8, DType::U8], [DType::I8, DType::I8], [DType::U8, DType::I8]] {
        let mut cx = Cx::new();
        let a = cx.input("a", types[0], ints(&[3, 9]));
        let b = cx.constant(types[1], &[9, 5], bytes(45, 9));
        let za = cx.constant(types[0], &[3], vec![200, 0, 7]);
        let zb = cx.constant(types[1], &[5], vec![0, 128, 128, 255, 1]);
        let y = node(&mut cx, "MatMulInteger", &[a, b, za, zb], &[]);
        assert_eq!(check(cx, y, &[array(types[0], &[3, 9], 3)]), [DType::I32], "{types:?}");
    }
}

#[test]
fn scales_along_the_terms_and_sums_beyond_32_bits_stay_floats() {
    let mut cx = Cx::new();
    let a = input(&mut cx, DType::U8, &[2, 6], 0.5, 3);
    let b = weights(&mut cx, DType::I8, &[6, 4], 0, None);
    let y = node(&mut cx, "MatMul", &[a, b], &[]);
    assert_eq!(check(cx, y, &[array(DType::U8, &[2, 6], 3)]), [DType::F32]);

    let mut cx = Cx::new();
    let a = input(&mut cx, DType::U8, &[1, 33_026], 0.5, 3);
    let b = weights(&mut cx, DType::I8, &[33_026, 1], 1, None);
    let y = node(&mut cx, "MatMul", &[a, b], &[]);
    cx.program.outputs = vec![y];
    rewrite(&mut cx.program);
    assert_eq!(sums(&cx.program, y), [DType::F32]);
}
