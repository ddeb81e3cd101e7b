//! Subnormal constants beside large ones, as zeros.
//!
//! Trained models have thousands of numbers below 2^-126, left over from weight decay. Processors take a hundred cycles and
//! more for an operation with one, and beside a number of 2^-40 or more in the same tensor none of them can be seen in a sum
//! or a product's sum. Only `F32` constants that nothing but additions, subtractions and multiplications read are changed:
//! what is moved, compared, converted or given out stays as it is.

use super::uses::exprs;
use crate::dtype::DType;
use crate::te::{Def, Expr, Func2, Node, Program, TensorId, expr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The size beside which a subnormal number does not count.
const OUTWEIGHS: f32 = 1.0 / (1u64 << 40) as f32;

/// Changes the constants that the `stored` tensors of an inlined program read; those in `whole` are needed as they are.
pub(super) fn flush(p: &mut Program, stored: &BTreeSet<TensorId>, whole: &BTreeSet<TensorId>) {
    let mut read = BTreeSet::new();
    let mut kept: BTreeSet<TensorId> = whole.iter().map(|t| viewed(p, *t)).collect();
    for t in stored {
        for e in exprs(&p.tensor(*t).def) {
            let other = |e: Expr, kept: &mut BTreeSet<TensorId>| {
                if let Node::Load(t, _) = e.node() {
                    kept.insert(viewed(p, t));
                }
            };
            other(e, &mut kept);
            for n in expr::nodes(e) {
                let node = n.node();
                if let Node::Load(t, _) = node {
                    read.insert(viewed(p, t));
                }
                if !matches!(node, Node::Bin(Func2::Add | Func2::Sub | Func2::Mul, ..)) {
                    expr::operands(&node).into_iter().for_each(|o| other(o, &mut kept));
                }
            }
        }
    }
    for t in read.difference(&kept) {
        let tensor = &mut p.tensors[t.0 as usize];
        if let Def::Const(bytes) = &tensor.def
            && tensor.dtype == DType::F32
            && let Some(flushed) = flushed(bytes)
        {
            tensor.def = Def::Const(Arc::new(flushed));
        }
    }
}

/// What a view shows, through further views.
fn viewed(p: &Program, mut t: TensorId) -> TensorId {
    while let Def::View(base) = p.tensor(t).def {
        t = base;
    }
    t
}

/// The numbers with zeros for subnormal ones; nothing if that changes none, or if none outweighs them.
fn flushed(bytes: &[u8]) -> Option<Vec<u8>> {
    let numbers = || bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    if !numbers().any(f32::is_subnormal) || !numbers().any(|w| w.abs() >= OUTWEIGHS) {
        return None;
    }
    Some(numbers().flat_map(|w| if w.is_subnormal() { 0f32 } else { w }.to_le_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ir::Cmp;
    use crate::sym::Int;
    use crate::te::Cx;

    const LEAST: f32 = f32::MIN_POSITIVE;

    /// The constant of a program after flushing, where `body` says what is done with an element of it and one of the input.
    fn constant(numbers: &[f32], body: impl Fn(Expr, Expr) -> Expr) -> Vec<f32> {
        let n = numbers.len();
        let mut cx = Cx::new();
        let x = cx.input("x", DType::F32, vec![Int::from(n)]);
        let c = cx.constant_f32(&[n], numbers);
        let load = |t, i: &[Int]| expr::load(t, DType::F32, i.to_vec());
        let y = cx.map(DType::F32, vec![Int::from(n)], |i| body(load(c, i), load(x, i)));
        cx.program.outputs = vec![y];
        flush(&mut cx.program, &BTreeSet::from([y]), &BTreeSet::from([y]));
        let Def::Const(bytes) = &cx.program.tensor(c).def else { panic!("a constant") };
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    #[test]
    fn subnormal_constants_are_zero_only_beside_large_ones() {
        let tiny = f32::from_bits(1 << 10);
        let product = |c, x| expr::bin(Func2::Mul, c, x);
        assert_eq!(constant(&[1.0, tiny, -tiny, LEAST, 0.0], product), [1.0, 0.0, 0.0, LEAST, 0.0]);
        let small = [LEAST, tiny, -tiny, 1e-13];
        assert_eq!(constant(&small, product), small);
    }

    #[test]
    fn constants_that_are_not_only_summed_up_and_multiplied_stay() {
        let numbers = [1.0, f32::from_bits(1)];
        let zero = || expr::constant_f64(DType::F32, 0.0);
        assert_eq!(constant(&numbers, |c, _| c), numbers);
        assert_eq!(constant(&numbers, |c, x| expr::bin(Func2::Div, x, c)), numbers);
        let chosen = |c, x| expr::select(expr::cmp(Cmp::Gt, c, zero()), expr::bin(Func2::Add, x, c), x);
        assert_eq!(constant(&numbers, chosen), numbers);
    }
}
