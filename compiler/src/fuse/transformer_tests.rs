//! Layers of transformers as exporters write them: which kernels they become, and what these give.

use super::attention_tests::{F, agree, call, fused, number, open, units};
use crate::dtype::DType;
use crate::ops::AttrValue::{Float, Int as I, Ints};
use crate::sym::Int;
use crate::te::{Cx, TensorId};

fn weights(cx: &mut Cx, shape: &[usize], seed: usize) -> TensorId {
    let scale = 1.0 / (shape[0] as f32).sqrt();
    let values: Vec<f32> = (0..shape.iter().product()).map(|k| number(k, seed) * scale).collect();
    cx.constant_f32(shape, &values)
}

fn scalar(cx: &mut Cx, v: f32) -> TensorId {
    cx.constant_f32(&[], &[v])
}

fn op(cx: &mut Cx, name: &str, version: i64, inputs: &[TensorId]) -> TensorId {
    let inputs: Vec<Option<TensorId>> = inputs.iter().copied().map(Some).collect();
    call(cx, name, version, &inputs, &[])
}

fn linear(cx: &mut Cx, x: TensorId, from: usize, to: usize, seed: usize) -> TensorId {
    let (w, b) = (weights(cx, &[from, to], seed), weights(cx, &[to], seed + 1));
    let y = op(cx, "MatMul", 13, &[x, w]);
    op(cx, "Add", 14, &[b, y])
}

fn reshape(cx: &mut Cx, x: TensorId, shape: &[i64]) -> TensorId {
    let shape = cx.constant_i64(&[shape.len()], shape);
    op(cx, "Reshape", 13, &[x, shape])
}

fn transpose(cx: &mut Cx, x: TensorId, perm: &[i64]) -> TensorId {
    call(cx, "Transpose", 13, &[Some(x)], &[("perm", Ints(perm.to_vec()))])
}

/// Of exporters before operator set 17.
fn layer_norm(cx: &mut Cx, x: TensorId, width: usize, seed: usize) -> TensorId {
    let axes = [("axes", Ints(vec![-1]))];
    let mean = call(cx, "ReduceMean", 13, &[Some(x)], &axes);
    let away = op(cx, "Sub", 14, &[x, mean]);
    let two = scalar(cx, 2.0);
    let square = op(cx, "Pow", 13, &[away, two]);
    let variance = call(cx, "ReduceMean", 13, &[Some(square)], &axes);
    let eps = scalar(cx, 1e-5);
    let variance = op(cx, "Add", 14, &[variance, eps]);
    let deviation = op(cx, "Sqrt", 13, &[variance]);
    let y = op(cx, "Div", 14, &[away, deviation]);
    let (w, b) = (weights(cx, &[width], seed), weights(cx, &[width], seed + 1));
    let y = op(cx, "Mul", 14, &[y, w]);
    op(cx, "Add", 14, &[y, b])
}

/// `x * rsqrt(mean(x²) + eps) * w`.
fn rms_norm(cx: &mut Cx, x: TensorId, width: usize, seed: usize) -> TensorId {
    let two = scalar(cx, 2.0);
    let square = op(cx, "Pow", 13, &[x, two]);
    let mean = call(cx, "ReduceMean", 13, &[Some(square)], &[("axes", Ints(vec![-1]))]);
    let eps = scalar(cx, 1e-6);
    let mean = op(cx, "Add", 14, &[mean, eps]);
    let root = op(cx, "Sqrt", 13, &[mean]);
    let one = scalar(cx, 1.0);
    let inverse = op(cx, "Div", 14, &[one, root]);
    let y = op(cx, "Mul", 14, &[x, inverse]);
    let w = weights(cx, &[width], seed);
    op(cx, "Mul", 14, &[w, y])
}

/// `x * (1 + erf(x / √2)) / 2`.
fn gelu(cx: &mut Cx, x: TensorId) -> TensorId {
    let root = scalar(cx, std::f32::consts::SQRT_2);
    let y = op(cx, "Div", 14, &[x, root]);
    let y = op(cx, "Erf", 13, &[y]);
    let one = scalar(cx, 1.0);
    let y = op(cx, "Add", 14, &[y, one]);
    let y = op(cx, "Mul", 14, &[x, y]);
    let half = scalar(cx, 0.5);
    op(cx, "Mul", 14, &[y, half])
}

/// GPT-2's: `x * (1 + tanh(√(2/π) * (x + 0.044715 x³))) / 2`.
fn gelu_by_tanh(cx: &mut Cx, x: TensorId) -> TensorId {
    let (half, three, a) = (scalar(cx, 0.5), scalar(cx, 3.0), scalar(cx, 0.044_715));
    let scaled = op(cx, "Mul", 14, &[x, half]);
    let cube = op(cx, "Pow", 13, &[x, three]);
    let cube = op(cx, "Mul", 14, &[cube, a]);
    let sum = op(cx, "Add", 14, &[x, cube]);
    let root = scalar(cx, (2.0 / std::f32::consts::PI).sqrt());
    let sum = op(cx, "Mul", 14, &[sum, root]);
    let t = op(cx, "Tanh", 13, &[sum]);
    let one = scalar(cx, 1.0);
    let t = op(cx, "Add", 14, &[t, one]);
    op(cx, "Mul", 14, &[scaled, t])
}

fn silu(cx: &mut Cx, x: TensorId) -> TensorId {
    let s = op(cx, "Sigmoid", 13, &[x]);
    op(cx, "Mul", 14, &[x, s])
}

fn softmax(cx: &mut Cx, x: TensorId) -> TensorId {
    call(cx, "Softmax", 13, &[Some(x)], &[("axis", I(-1))])
}

/// Norm, queries with keys and values, attention, projection with residual; norm, layer, activation, layer with residual.
const LAYER: [&str; 8] =
    ["nest", "contraction", "attention", "contraction", "nest", "contraction", "nest", "contraction"];

/// Fuses and, for each of the sizes, compares; gives what the kernels are.
fn kernels(cx: &Cx, y: TensorId, sizes: &[i64]) -> Vec<&'static str> {
    let f = fused(cx, y);
    agree(cx, &f, y, sizes, 2e-5);
    units(&f)
}

#[test]
fn a_layer_of_a_vision_transformer_is_seven_kernels() {
    let mut cx = Cx::new();
    let (n, width, heads) = (19, 16, 2);
    let x = cx.input("x", F, vec![Int::new(1), Int::new(n), Int::new(width)]);
    let w = width as usize;
    let h = layer_norm(&mut cx, x, w, 1);
    let qkv = linear(&mut cx, h, w, 3 * w, 3);
    let qkv = reshape(&mut cx, qkv, &[1, n, 3, heads, width / heads]);
    let qkv = transpose(&mut cx, qkv, &[2, 0, 3, 1, 4]);
    let part = |cx: &mut Cx, k: i64| {
        let k = cx.constant_i64(&[], &[k]);
        call(cx, "Gather", 13, &[Some(qkv), Some(k)], &[("axis", I(0))])
    };
    let (q, k, v) = (part(&mut cx, 0), part(&mut cx, 1), part(&mut cx, 2));
    let k = transpose(&mut cx, k, &[0, 1, 3, 2]);
    let scores = op(&mut cx, "MatMul", 13, &[q, k]);
    let scale = scalar(&mut cx, 0.353_553);
    let scores = op(&mut cx, "Mul", 14, &[scores, scale]);
    let scores = softmax(&mut cx, scores);
    let y = op(&mut cx, "MatMul", 13, &[scores, v]);
    let y = transpose(&mut cx, y, &[0, 2, 1, 3]);
    let y = reshape(&mut cx, y, &[1, n, width]);
    let y = linear(&mut cx, y, w, w, 5);
    let x = op(&mut cx, "Add", 14, &[x, y]);
    let h = layer_norm(&mut cx, x, w, 7);
    let h = linear(&mut cx, h, w, 2 * w, 9);
    let h = gelu(&mut cx, h);
    let h = linear(&mut cx, h, 2 * w, w, 11);
    let y = op(&mut cx, "Add", 14, &[x, h]);
    // The oracle has no error function.
    let found = kernels(&cx, y, &[]);
    let (first, last) = (&LAYER[..6], &LAYER[7..]);
    assert_eq!(found, [first, last].concat(), "GELU follows the sums");
}

#[test]
fn a_layer_of_a_language_model_is_eight_kernels_and_its_mask_is_conditions() {
    let mut cx = Cx::new();
    let (width, heads) = (16, 2);
    let n = open(&mut cx, 0, 1);
    let x = cx.input("x", F, vec![Int::new(1), n, Int::new(width)]);
    let w = width as usize;
    let h = layer_norm(&mut cx, x, w, 1);
    let qkv = linear(&mut cx, h, w, 3 * w, 3);
    let part = |cx: &mut Cx, k: i64| {
        let ends = [k * width, (k + 1) * width].map(|end| cx.constant_i64(&[1], &[end]));
        let axis = cx.constant_i64(&[1], &[2]);
        let x = op(cx, "Slice", 13, &[qkv, ends[0], ends[1], axis]);
        let x = reshape(cx, x, &[0, 0, heads, width / heads]);
        transpose(cx, x, &[0, 2, 1, 3])
    };
    let (q, k, v) = (part(&mut cx, 0), part(&mut cx, 1), part(&mut cx, 2));
    let k = transpose(&mut cx, k, &[0, 1, 3, 2]);
    let scores = op(&mut cx, "MatMul", 13, &[q, k]);
    let root = scalar(&mut cx, 2.828_427);
    let scores = op(&mut cx, "Div", 14, &[scores, root]);
    // The positions, as a row and as a column.
    let shape = op(&mut cx, "Shape", 13, &[scores]);
    let (last, zero, one) = (cx.constant_i64(&[], &[3]), cx.constant_i64(&[], &[0]), cx.constant_i64(&[], &[1]));
    let size = call(&mut cx, "Gather", 13, &[Some(shape), Some(last)], &[("axis", I(0))]);
    let positions = op(&mut cx, "Range", 11, &[zero, size, one]);
    let column = reshape(&mut cx, positions, &[-1, 1]);
    let row = reshape(&mut cx, positions, &[1, -1]);
    let seen = op(&mut cx, "LessOrEqual", 16, &[row, column]);
    let hidden = scalar(&mut cx, f32::NEG_INFINITY);
    let scores = op(&mut cx, "Where", 16, &[seen, scores, hidden]);
    let scores = softmax(&mut cx, scores);
    let y = op(&mut cx, "MatMul", 13, &[scores, v]);
    let y = transpose(&mut cx, y, &[0, 2, 1, 3]);
    let y = reshape(&mut cx, y, &[0, 0, width]);
    let y = linear(&mut cx, y, w, w, 5);
    let x = op(&mut cx, "Add", 14, &[x, y]);
    let h = layer_norm(&mut cx, x, w, 7);
    let h = linear(&mut cx, h, w, 2 * w, 9);
    let h = gelu_by_tanh(&mut cx, h);
    let h = linear(&mut cx, h, 2 * w, w, 11);
    let y = op(&mut cx, "Add", 14, &[x, h]);
    let found = kernels(&cx, y, &[1, 13]);
    assert_eq!(found, LAYER);
}

#[test]
fn norms_are_one_kernel_each() {
    for norm in [layer_norm as fn(&mut Cx, TensorId, usize, usize) -> TensorId, rms_norm] {
        let mut cx = Cx::new();
        let n = open(&mut cx, 0, 1);
        let x = cx.input("x", F, vec![Int::new(2), n, Int::new(24)]);
        let y = norm(&mut cx, x, 24, 1);
        assert_eq!(kernels(&cx, y, &[1, 5]), ["nest"]);
    }
}

#[test]
fn activations_are_one_kernel_each_alone_and_part_of_a_gated_layer() {
    for (activation, sizes) in
        [(gelu as fn(&mut Cx, TensorId) -> TensorId, &[][..]), (gelu_by_tanh, &[0]), (silu, &[0])]
    {
        let mut cx = Cx::new();
        let x = cx.input("x", F, vec![Int::new(3), Int::new(20)]);
        let y = activation(&mut cx, x);
        assert_eq!(kernels(&cx, y, sizes), ["nest"]);
        // As in Llama: two layers, one of them a gate.
        let mut cx = Cx::new();
        let x = cx.input("x", F, vec![Int::new(3), Int::new(20)]);
        let (gate, up) = (linear(&mut cx, x, 20, 8, 1), linear(&mut cx, x, 20, 8, 3));
        let gate = activation(&mut cx, gate);
        let y = op(&mut cx, "Mul", 14, &[gate, up]);
        assert!(kernels(&cx, y, sizes).len() <= 3);
    }
}

#[test]
fn a_rotation_of_halves_is_one_kernel() {
    let mut cx = Cx::new();
    let n = open(&mut cx, 0, 2);
    let x = cx.input("x", F, vec![Int::new(1), Int::new(2), n, Int::new(8)]);
    let cos = cx.input("cos", DType::F32, vec![Int::new(1), Int::new(1), n, Int::new(8)]);
    let sin = cx.input("sin", DType::F32, vec![Int::new(1), Int::new(1), n, Int::new(8)]);
    let straight = op(&mut cx, "Mul", 14, &[x, cos]);
    let half = |cx: &mut Cx, from: i64, to: i64| {
        let [from, to, axis] = [from, to, 3].map(|v| cx.constant_i64(&[1], &[v]));
        op(cx, "Slice", 13, &[x, from, to, axis])
    };
    let (low, high) = (half(&mut cx, 0, 4), half(&mut cx, 4, i64::MAX));
    let high = op(&mut cx, "Neg", 13, &[high]);
    let turned = call(&mut cx, "Concat", 13, &[Some(high), Some(low)], &[("axis", I(-1))]);
    let turned = op(&mut cx, "Mul", 14, &[turned, sin]);
    let y = op(&mut cx, "Add", 14, &[straight, turned]);
    assert_eq!(kernels(&cx, y, &[1, 6]), ["nest"]);
}

#[test]
fn the_operators_of_norms_and_activations_are_one_kernel_each() {
    for (name, version, attrs) in [
        ("LayerNormalization", 17, vec![("epsilon", Float(1e-5))]),
        ("RMSNormalization", 23, vec![]),
        ("Gelu", 20, vec![]),
        ("Swish", 24, vec![]),
    ] {
        let mut cx = Cx::new();
        let x = cx.input("x", F, vec![Int::new(2), Int::new(5), Int::new(24)]);
        let mut inputs = vec![Some(x)];
        if name.ends_with("Normalization") {
            inputs.push(Some(weights(&mut cx, &[24], 1)));
        }
        let y = call(&mut cx, name, version, &inputs, &attrs);
        let sizes: &[i64] = if name == "Gelu" { &[] } else { &[0] };
        assert_eq!(kernels(&cx, y, sizes), ["nest"], "{name}");
    }
}
