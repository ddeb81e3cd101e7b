//! Arithmetic operators on expressions, and short names for the functions that formulas use.

use super::expr::{self, Expr, Func1, Func2};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;

macro_rules! operator {
    ($trait:ident, $method:ident, $f:ident) => {
        /// Both operands must have one type.
        impl core::ops::$trait for Expr {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                expr::bin(Func2::$f, self, other)
            }
        }
    };
}
operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
operator!(Div, div, Div);
operator!(Rem, rem, Rem);
operator!(BitAnd, bitand, And);
operator!(BitOr, bitor, Or);
operator!(BitXor, bitxor, Xor);

impl core::ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        expr::un(Func1::Neg, self)
    }
}

/// Logical or bitwise.
impl core::ops::Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        expr::un(Func1::Not, self)
    }
}

macro_rules! functions {
    ($($name:ident $f:ident),*) => {
        $(#[doc = concat!("[`Func1::", stringify!($f), "`].")]
        pub fn $name(self) -> Expr {
            expr::un(Func1::$f, self)
        })*
    };
}

macro_rules! comparisons {
    ($($name:ident $c:ident),*) => {
        $(#[doc = concat!("[`Cmp::", stringify!($c), "`].")]
        pub fn $name(self, other: Expr) -> Expr {
            expr::cmp(Cmp::$c, self, other)
        })*
    };
}

impl Expr {
    functions!(
        abs Abs, sqrt Sqrt, floor Floor, ceil Ceil, round Round, exp Exp, exp_m1 Expm1, ln Log, ln_1p Log1p, tanh Tanh, erf Erf
    );
    comparisons!(eq_ Eq, ne_ Ne, lt_ Lt, le_ Le, gt_ Gt, ge_ Ge);

    /// Smaller one; NaN if either is.
    pub fn min_(self, other: Expr) -> Expr {
        expr::bin(Func2::Min, self, other)
    }

    /// Larger one; NaN if either is.
    pub fn max_(self, other: Expr) -> Expr {
        expr::bin(Func2::Max, self, other)
    }

    /// C `pow`.
    pub fn pow(self, other: Expr) -> Expr {
        expr::bin(Func2::Pow, self, other)
    }

    /// `self ? a : b`.
    pub fn then(self, a: Expr, b: Expr) -> Expr {
        expr::select(self, a, b)
    }

    /// Conversion; see [`expr::cast`].
    pub fn to(self, dtype: DType) -> Expr {
        expr::cast(dtype, self)
    }

    /// The number `v` as a constant of this expression's type.
    pub fn num(self, v: f64) -> Expr {
        expr::constant_f64(self.dtype(), v)
    }

    /// Is it NaN (floats)?
    pub fn is_nan(self) -> Expr {
        self.ne_(self)
    }
}
