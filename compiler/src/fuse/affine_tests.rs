//! What is left of chains after a sum, and that it means the same.

use super::fuse;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::eval::{self, Array};
use crate::te::{Cx, Def, Expr, Func1, Func2, Node, ReduceKind, TensorId, expr};

const F: DType = DType::F32;

fn number(v: f64) -> Expr {
    expr::constant_f64(F, v)
}

/// What the functions under test are given: an element of a sum over `x` (or of `x` itself), of constants with one element for
/// each column, and of one with a single element.
struct Elements {
    x: Expr,
    scale: Expr,
    bias: Expr,
    single: Expr,
}

/// Operations of the element of the result after fusion, whose values are those that they were before.
fn operations(of_sum: bool, f: impl Fn(&Elements) -> Expr) -> Vec<Func2> {
    let mut cx = Cx::new();
    let x = cx.input("x", F, vec![Int::new(4), Int::new(6)]);
    let weights: Vec<f32> = (0..36).map(|k| (k % 7) as f32 - 3.0).collect();
    let w = cx.constant_f32(&[6, 6], &weights);
    let sum = cx.reduce(ReduceKind::Sum, F, vec![Int::new(4), Int::new(6)], &[Int::new(6)], |i, r| {
        expr::load(x, F, vec![i[0], r[0]]) * expr::load(w, F, vec![r[0], i[1]])
    });
    let scale = cx.constant_f32(&[6], &[0.5, -1.0, 2.0, 0.25, 3.0, 1.5]);
    let bias = cx.constant_f32(&[6], &[1.0, 0.0, -2.0, 0.125, 7.0, -0.5]);
    let single = cx.constant_f32(&[1], &[2.5]);
    let y = cx.map(F, vec![Int::new(4), Int::new(6)], |i| {
        let load = |t: TensorId, i: &[Int]| expr::load(t, F, i.to_vec());
        let x = load(if of_sum { sum } else { x }, i);
        let single = load(single, &[Int::new(0)]);
        f(&Elements { x, scale: load(scale, &i[1..]), bias: load(bias, &i[1..]), single })
    });
    cx.program.outputs = vec![y];
    let bytes: Vec<u8> = (0..24).flat_map(|k| (k as f32 * 0.37 - 4.0).to_le_bytes()).collect();
    let inputs = [Array::from_bytes(F, vec![4, 6], &bytes)];
    let before = eval::run(&cx.program, &inputs, &[y]).unwrap();
    let fused = fuse(cx.program).program;
    let after = eval::run(&fused, &inputs, &[y]).unwrap();
    let floats = |a: &[Array]| -> Vec<f32> {
        a[0].bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    for (a, b) in floats(&after).iter().zip(floats(&before)) {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        assert!(same || (a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} for {b}");
    }
    let Def::Map { body, .. } = fused.tensor(y).def.clone() else { panic!("a map") };
    let functions =
        expr::nodes(body).into_iter().filter_map(|e| if let Node::Bin(f, ..) = e.node() { Some(f) } else { None });
    functions.collect()
}

#[test]
fn factors_and_offsets_after_a_sum_are_one_of_each() {
    use Func2::{Add, Max, Min, Mul};
    let normalized = |e: &Elements| (e.x + e.bias) * e.single * e.scale + e.bias;
    assert_eq!(operations(true, normalized), [Mul, Add]);
    let negative = |e: &Elements| expr::un(Func1::Neg, expr::bin(Func2::Sub, e.single, e.x + e.bias)) * e.scale;
    assert_eq!(operations(true, negative), [Mul, Add]);
    // A hard swish: what it reads twice is computed once, and there is no division.
    let swish = |e: &Elements| {
        let x = (e.x + e.bias) * e.single + number(0.5);
        let clipped = expr::bin(Min, expr::bin(Max, x + number(3.0), number(0.0)), number(6.0));
        expr::bin(Func2::Div, x * clipped, number(6.0)) * e.single + e.bias
    };
    assert_eq!(operations(true, swish), [Mul, Add, Add, Max, Min, Mul, Mul, Add]);
}

#[test]
fn what_does_not_follow_a_sum_stays_exact() {
    let third = |e: &Elements| expr::bin(Func2::Div, e.x + e.bias, number(3.0)) + e.bias;
    assert_eq!(operations(false, third), [Func2::Add, Func2::Div, Func2::Add]);
}

#[test]
fn a_divisor_without_a_normal_inverse_stays() {
    for divisor in [0.0, 1e-40, f64::INFINITY, 3e38] {
        let by = |e: &Elements| expr::bin(Func2::Div, e.x * e.x, number(divisor));
        assert_eq!(operations(true, by).last(), Some(&Func2::Div), "{divisor}");
    }
}
