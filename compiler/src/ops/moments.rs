//! Means and variances, which the normalisations share.

use super::axes::Space;
use super::operand::Operand;
use super::reduce::reduce_over;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, ReduceKind, expr};

/// Mean of `f` over a space, of type `t`.
pub(super) fn mean_over(cx: &mut Cx, space: &Space, t: DType, f: impl FnOnce(&[Int], &[Int]) -> Expr) -> Operand {
    let sum = reduce_over(cx, space, ReduceKind::Sum, t, f);
    let (sum, count) = (Operand::of(cx, sum), expr::int(space.count()).to(t));
    let mean = cx.map(t, sum.shape.clone(), |i| sum.at(i) / count);
    Operand::of(cx, mean)
}

/// Mean and variance (of the population) over a space. The variance is taken around the mean in a second pass: the
/// difference of mean square and squared mean would lose all digits for a large mean.
pub(super) fn moments(cx: &mut Cx, x: &Operand, space: &Space, t: DType) -> (Operand, Operand) {
    let mean = mean_over(cx, space, t, |i, r| x.at(&space.index(i, r)).to(t));
    let variance = mean_over(cx, space, t, |i, r| {
        let d = x.at(&space.index(i, r)).to(t) - mean.at(i);
        d * d
    });
    (mean, variance)
}

/// `1 / sqrt(x + epsilon)`, elementwise.
pub(super) fn inverse_root(cx: &mut Cx, x: &Operand, epsilon: f32) -> Operand {
    let y = cx.map(x.dtype, x.shape.clone(), |i| {
        let v = x.at(i);
        v.num(1.0) / (v + v.num(f64::from(epsilon))).sqrt()
    });
    Operand::of(cx, y)
}
