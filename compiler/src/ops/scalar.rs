//! Short names for scalar expressions, as the expansions of operators write them.

use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Expr, Func1, Func2, expr};

/// `a + b`.
pub(super) fn add(a: Expr, b: Expr) -> Expr {
    expr::bin(Func2::Add, a, b)
}

/// `a * b`.
pub(super) fn mul(a: Expr, b: Expr) -> Expr {
    expr::bin(Func2::Mul, a, b)
}

/// `a / b`.
pub(super) fn div(a: Expr, b: Expr) -> Expr {
    expr::bin(Func2::Div, a, b)
}

/// `a && b`.
pub(super) fn and(a: Expr, b: Expr) -> Expr {
    expr::bin(Func2::And, a, b)
}

/// `a || b`.
pub(super) fn or(a: Expr, b: Expr) -> Expr {
    expr::bin(Func2::Or, a, b)
}

/// `-a`.
pub(super) fn neg(a: Expr) -> Expr {
    expr::un(Func1::Neg, a)
}

/// `a < b` for index expressions.
pub(super) fn lt(a: impl Into<Int>, b: impl Into<Int>) -> Expr {
    expr::cmp(Cmp::Lt, expr::int(a.into()), expr::int(b.into()))
}

/// `a <= b` for index expressions.
pub(super) fn le(a: impl Into<Int>, b: impl Into<Int>) -> Expr {
    expr::cmp(Cmp::Le, expr::int(a.into()), expr::int(b.into()))
}

/// `a == b` for index expressions.
pub(super) fn eq(a: impl Into<Int>, b: impl Into<Int>) -> Expr {
    expr::cmp(Cmp::Eq, expr::int(a.into()), expr::int(b.into()))
}

/// `lo <= i && i < hi` for index expressions.
pub(super) fn within(i: Int, lo: impl Into<Int>, hi: impl Into<Int>) -> Expr {
    and(le(lo.into(), i), lt(i, hi.into()))
}

/// An index expression converted to `dtype`'s compute type.
pub(super) fn number(dtype: DType, i: Int) -> Expr {
    expr::cast(dtype.compute(), expr::int(i))
}

/// The constant `v` in `dtype`'s compute type.
pub(super) fn constant(dtype: DType, v: f64) -> Expr {
    expr::constant_f64(dtype.compute(), v)
}

/// The smallest value of `dtype`: minus infinity for floats.
pub(super) fn lowest(dtype: DType) -> Expr {
    let bits = 8 * dtype.size() as u32;
    if dtype.is_float() {
        expr::constant_f64(dtype.compute(), f64::NEG_INFINITY)
    } else if dtype.is_signed() {
        expr::constant_i64(dtype, i64::MIN >> (64 - bits))
    } else {
        expr::constant_i64(dtype, 0)
    }
}

/// `1 / (1 + exp(-a))`, without overflow to NaN for any finite `a`.
pub(super) fn sigmoid(a: Expr) -> Expr {
    let one = constant(a.dtype(), 1.0);
    div(one, add(one, expr::un(Func1::Exp, neg(a))))
}
