//! Which maps disappear.

use super::fuse;
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, Func2, ReduceKind, TensorId, expr};

const F: DType = DType::F32;

fn map(cx: &mut Cx, x: &[TensorId], f: impl Fn(&[Expr]) -> Expr) -> TensorId {
    let shape = cx.shape(x[0]);
    cx.map(F, shape, |i| f(&x.iter().map(|t| expr::load(*t, F, i.to_vec())).collect::<Vec<_>>()))
}

fn one() -> Expr {
    expr::constant_f64(F, 1.0)
}

/// `x w` with a bias.
fn layer(cx: &mut Cx, x: TensorId) -> TensorId {
    let (w, b) = (cx.constant_f32(&[6, 8], &[0.5; 48]), cx.constant_f32(&[8], &[1.0; 8]));
    let sum = cx.reduce(ReduceKind::Sum, F, vec![Int::new(4), Int::new(8)], &[Int::new(6)], |i, r| {
        expr::bin(Func2::Mul, expr::load(x, F, vec![i[0], r[0]]), expr::load(w, F, vec![r[0], i[1]]))
    });
    let shape = cx.shape(sum);
    cx.map(F, shape, |i| expr::bin(Func2::Add, expr::load(sum, F, i.to_vec()), expr::load(b, F, vec![i[1]])))
}

fn start() -> (Cx, TensorId) {
    let mut cx = Cx::new();
    let x = cx.input("x", F, vec![Int::new(4), Int::new(6)]);
    (cx, x)
}

fn kernels(mut cx: Cx, outputs: &[TensorId]) -> usize {
    cx.program.outputs = outputs.to_vec();
    fuse(cx.program).steps.len()
}

/// `x * max(x + 1, 0)`, an operator a map.
fn light(cx: &mut Cx, x: TensorId) -> TensorId {
    let more = map(cx, &[x], |x| expr::bin(Func2::Add, x[0], one()));
    let clipped = map(cx, &[more], |x| expr::bin(Func2::Max, x[0], expr::constant_f64(F, 0.0)));
    map(cx, &[x, clipped], |x| expr::bin(Func2::Mul, x[0], x[1]))
}

/// `x / (1 + exp(-x))`.
fn heavy(cx: &mut Cx, x: TensorId) -> TensorId {
    let e = map(cx, &[x], |x| expr::un(Func1::Exp, expr::un(Func1::Neg, x[0])));
    let below = map(cx, &[e], |x| expr::bin(Func2::Add, x[0], one()));
    map(cx, &[x, below], |x| expr::bin(Func2::Div, x[0], x[1]))
}

#[test]
fn an_activation_that_reads_its_operand_on_several_ways_follows_the_sum() {
    let (mut cx, x) = start();
    let y = layer(&mut cx, x);
    let mut other = cx.clone();
    let z = light(&mut cx, y);
    assert_eq!(kernels(cx, &[z]), 1);
    let z = heavy(&mut other, y);
    assert_eq!(kernels(other, &[z]), 1);
}

#[test]
fn activations_of_several_operators_are_one_loop() {
    let (mut cx, x) = start();
    let y = map(&mut cx, &[x], |x| expr::bin(Func2::Add, x[0], one()));
    let z = heavy(&mut cx, y);
    let z = light(&mut cx, z);
    assert_eq!(kernels(cx, &[z]), 1);
}

#[test]
fn an_operand_that_is_read_elsewhere_is_stored() {
    let (mut cx, x) = start();
    let y = layer(&mut cx, x);
    let a = map(&mut cx, &[y], |x| expr::un(Func1::Tanh, x[0]));
    let b = map(&mut cx, &[y], |x| expr::un(Func1::Exp, x[0]));
    assert_eq!(kernels(cx.clone(), &[a, b]), 3);
    // Turned round, the two ways do not meet at the same element.
    let shape = cx.shape(a);
    let last = cx.map(F, shape, |i| {
        let turned = vec![i[0], Int::new(7) - i[1]];
        let chosen = expr::cmp(Cmp::Gt, expr::load(a, F, turned), one());
        expr::select(chosen, expr::load(y, F, i.to_vec()), one())
    });
    assert!(kernels(cx, &[last]) > 1);
}
