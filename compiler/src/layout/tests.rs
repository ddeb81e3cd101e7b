//! Orders chosen for small networks, and what is left of layout changes.

use super::*;
use crate::dtype::DType;
use crate::fuse::{Fused, Step, Unit, fuse};
use crate::sym::Int;
use crate::te::{Cx, Def, Expr, ReduceKind, TensorId, expr};

fn ints(v: &[i64]) -> Vec<Int> {
    v.iter().map(|d| Int::new(*d)).collect()
}

/// A convolution of `x`, whose spatial axes shrink by `size - 1`.
fn conv(cx: &mut Cx, x: TensorId, outputs: i64, size: i64) -> TensorId {
    let s = cx.shape(x);
    let inputs = s[1].as_const().expect("known");
    let count = (outputs * inputs * size * size) as usize;
    let w = cx.constant_f32(
        &[outputs as usize, inputs as usize, size as usize, size as usize],
        &(0..count).map(|k| (k % 5) as f32 - 2.0).collect::<Vec<_>>(),
    );
    let shape = vec![s[0], Int::new(outputs), s[2] - (size - 1), s[3] - (size - 1)];
    cx.reduce(ReduceKind::Sum, DType::F32, shape, &ints(&[inputs, size, size]), |i, r| {
        expr::load(w, DType::F32, vec![i[1], r[0], r[1], r[2]])
            * expr::load(x, DType::F32, vec![i[0], r[0], i[2] + r[1], i[3] + r[2]])
    })
}

/// `x * scale[channel]`, cut off at zero.
fn relu(cx: &mut Cx, x: TensorId) -> TensorId {
    let shape = cx.shape(x);
    let n = shape[1].as_const().expect("known") as usize;
    let scale = cx.constant_f32(&[n], &vec![0.5; n]);
    let zero = expr::constant_f64(DType::F32, 0.0);
    cx.map(DType::F32, shape, |i| {
        let y = expr::load(x, DType::F32, i.to_vec()) * expr::load(scale, DType::F32, vec![i[1]]);
        expr::bin(expr::Func2::Max, y, zero)
    })
}

fn both(cx: &mut Cx, a: TensorId, b: TensorId) -> TensorId {
    let shape = cx.shape(a);
    cx.map(DType::F32, shape, |i| expr::load(a, DType::F32, i.to_vec()) + expr::load(b, DType::F32, i.to_vec()))
}

fn max_pool(cx: &mut Cx, x: TensorId) -> TensorId {
    let s = cx.shape(x);
    let shape = vec![s[0], s[1], s[2].div(2), s[3].div(2)];
    cx.reduce(ReduceKind::Max, DType::F32, shape, &ints(&[2, 2]), |i, r| {
        expr::load(x, DType::F32, vec![i[0], i[1], i[2] * 2 + r[0], i[3] * 2 + r[1]])
    })
}

fn concat(cx: &mut Cx, a: TensorId, b: TensorId) -> TensorId {
    let (s, t) = (cx.shape(a), cx.shape(b));
    let first = s[1];
    cx.map(DType::F32, vec![s[0], first + t[1], s[2], s[3]], |i| {
        let within = expr::cmp(crate::kernel::ir::Cmp::Lt, expr::int(i[1]), expr::int(first));
        let other = expr::load(b, DType::F32, vec![i[0], i[1] - first, i[2], i[3]]);
        expr::select(within, expr::load(a, DType::F32, i.to_vec()), other)
    })
}

fn mean(cx: &mut Cx, x: TensorId) -> TensorId {
    let s = cx.shape(x);
    let over = [s[2], s[3]];
    cx.reduce(ReduceKind::Sum, DType::F32, vec![s[0], s[1], Int::new(1), Int::new(1)], &over, |i, r| {
        expr::load(x, DType::F32, vec![i[0], i[1], r[0], r[1]])
    })
}

fn arranged(mut cx: Cx, outputs: &[TensorId]) -> Fused {
    cx.program.outputs = outputs.to_vec();
    let cpu = graphmend_targets::lookup("x86-64-v3").expect("a preset");
    arrange(&mut cx.program, Layout::ChannelsLast, &cpu);
    fuse(cx.program)
}

fn shape(f: &Fused, t: TensorId) -> Vec<i64> {
    f.program.tensor(t).shape.iter().map(|d| d.as_const().expect("known")).collect()
}

/// Kernels of each kind: contractions, others.
fn kernels(f: &Fused) -> (usize, usize) {
    let units = f.steps.iter().filter_map(|s| match s {
        Step::Run(u) => Some(matches!(u, Unit::Contract(_))),
        _ => None,
    });
    let (contractions, others): (Vec<bool>, Vec<bool>) = units.partition(|c| *c);
    (contractions.len(), others.len())
}

#[test]
fn channels_are_last_from_the_first_convolution_to_the_classifier() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[2, 3, 18, 18]));
    let a = conv(&mut cx, x, 16, 3);
    let a = relu(&mut cx, a);
    let b = conv(&mut cx, a, 16, 1);
    let b = both(&mut cx, a, b);
    let c = max_pool(&mut cx, b);
    let d = conv(&mut cx, c, 24, 1);
    let e = concat(&mut cx, c, d);
    let f = conv(&mut cx, e, 32, 3);
    let g = mean(&mut cx, f);
    let flat = cx.view(g, ints(&[2, 32]));
    let w = cx.constant_f32(&[32, 10], &[0.25; 320]);
    let y = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[2, 10]), &ints(&[32]), |i, r| {
        expr::load(flat, DType::F32, vec![i[0], r[0]]) * expr::load(w, DType::F32, vec![r[0], i[1]])
    });
    let fused = arranged(cx, &[y]);
    for (t, want) in [
        (x, &[2, 3, 18, 18][..]),
        (b, &[2, 16, 16, 16]),
        (c, &[2, 8, 8, 16]),
        (d, &[2, 8, 8, 24]),
        (e, &[2, 8, 8, 40]),
        (f, &[2, 6, 6, 32]),
        (flat, &[2, 32]),
        (y, &[2, 10]),
    ] {
        assert_eq!(shape(&fused, t), want, "t{}", t.0);
    }
    assert_eq!(left(&fused), 0);
    // Five sums of products; the pool and the mean. What is joined lies where it belongs.
    assert_eq!(kernels(&fused), (5, 2));
}

#[test]
fn the_last_convolution_stores_in_the_order_of_the_output() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[1, 3, 8, 8]));
    let a = conv(&mut cx, x, 16, 3);
    let a = relu(&mut cx, a);
    let b = conv(&mut cx, a, 16, 1);
    let y = relu(&mut cx, b);
    let fused = arranged(cx, &[y]);
    assert_eq!((shape(&fused, a), shape(&fused, y)), (vec![1, 6, 6, 16], vec![1, 16, 6, 6]));
    assert_eq!(kernels(&fused), (2, 0));
}

#[test]
fn a_convolution_whose_image_is_flattened_stores_it_in_the_order_of_its_axes() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[1, 3, 8, 8]));
    let a = conv(&mut cx, x, 16, 3);
    let a = relu(&mut cx, a);
    let flat = cx.view(a, ints(&[1, 16 * 36]));
    let y = cx.map(DType::F32, ints(&[1, 16 * 36]), |i| expr::load(flat, DType::F32, i.to_vec()) + one());
    let fused = arranged(cx, &[y]);
    assert_eq!(shape(&fused, a), [1, 6, 6, 16]);
    assert_eq!(shape(&fused, flat), [1, 576]);
    assert_eq!((left(&fused), kernels(&fused)), (0, (1, 1)));
}

fn one() -> Expr {
    expr::constant_f64(DType::F32, 1.0)
}

#[test]
fn a_channel_shuffle_moves_nothing_but_channels() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[1, 3, 8, 8]));
    let a = conv(&mut cx, x, 16, 3);
    let a = relu(&mut cx, a);
    let split = cx.view(a, ints(&[1, 2, 8, 6, 6]));
    let turned = cx
        .map(DType::F32, ints(&[1, 8, 2, 6, 6]), |i| expr::load(split, DType::F32, vec![i[0], i[2], i[1], i[3], i[4]]));
    let joined = cx.view(turned, ints(&[1, 16, 6, 6]));
    let b = conv(&mut cx, joined, 16, 1);
    let y = mean(&mut cx, b);
    let fused = arranged(cx, &[y]);
    assert_eq!(shape(&fused, split), [1, 6, 6, 2, 8]);
    assert_eq!(shape(&fused, turned), [1, 6, 6, 8, 2]);
    assert_eq!(shape(&fused, joined), [1, 6, 6, 16]);
    assert!(
        fused.program.tensors.iter().all(|t| t.shape.len() != 4 || !matches!(t.def, Def::Map { .. }) || {
            t.shape.last() == Some(&Int::new(16))
        })
    );
}

#[test]
fn matrix_products_over_the_last_axis_change_nothing() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[2, 7, 32]));
    let w = cx.constant_f32(&[32, 48], &[0.5; 32 * 48]);
    let h = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[2, 7, 48]), &ints(&[32]), |i, r| {
        expr::load(x, DType::F32, vec![i[0], i[1], r[0]]) * expr::load(w, DType::F32, vec![r[0], i[2]])
    });
    let heads = cx.view(h, ints(&[2, 7, 3, 16]));
    let q = cx
        .map(DType::F32, ints(&[2, 3, 7, 16]), |i| expr::load(heads, DType::F32, vec![i[0], i[2], i[1], i[3]]) + one());
    let s = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[2, 3, 7, 7]), &ints(&[16]), |i, r| {
        expr::load(q, DType::F32, vec![i[0], i[1], i[2], r[0]])
            * expr::load(q, DType::F32, vec![i[0], i[1], i[3], r[0]])
    });
    cx.program.outputs = vec![s];
    let mut program = cx.program.clone();
    let cpu = graphmend_targets::lookup("x86-64-v3").expect("a preset");
    arrange(&mut program, Layout::ChannelsLast, &cpu);
    for (a, b) in program.tensors.iter().zip(&cx.program.tensors) {
        assert_eq!(a.shape, b.shape);
    }
    assert_eq!(program.tensors.len(), cx.program.tensors.len());
}
