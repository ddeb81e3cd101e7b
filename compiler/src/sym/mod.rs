//! Integer algebra over symbols: dimensions, indices and offsets.
//!
//! An [`Int`] is a polynomial in normal form over *atoms*: variables (a model's symbolic dimension, a loop index, a number
//! read from data at run time) and the operations that do not distribute (floor division, remainder, minimum, maximum,
//! choice). Equal normal forms are one handle, so equality is cheap and `a*b + c == c + b*a` holds by construction.
//!
//! Proofs are three-valued: `Some(true)`, `Some(false)`, or `None` for *unknown*, and unknown is never decided.
//!
//! Terms live in a table of the current thread; [`reset`] empties it between compilations.

mod arith;
mod bounds;
mod subst;
mod table;

pub(crate) use arith::data;
pub use bounds::Bounds;
pub(crate) use subst::{any_atom, collect, map_data};
pub use subst::{free_vars, linear_in, reads_data, subst};
pub use table::{Atom, VarId, VarInfo, reset, var_info};

use table::{Poly, with};

/// A symbolic integer: a handle to a polynomial in normal form.  It has no `Ord`: `min`, `lt` and the like mean the value
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Int(pub(crate) u32);

impl Int {
    /// A constant.
    pub fn new(value: i64) -> Int {
        with(|t| t.intern(Poly::constant(value)))
    }

    /// The value of a variable.
    pub fn var(var: VarId) -> Int {
        with(|t| {
            let atom = t.atom(Atom::Var(var));
            t.intern(Poly::atom(atom))
        })
    }

    /// A fresh symbol: a number not known before run time, at least `lo` and at most `hi` where given.
    pub fn symbol(name: &str, lo: Option<i64>, hi: Option<i64>) -> Int {
        Int::var(VarId::new(VarInfo { name: name.into(), lo, hi, extent: None }))
    }

    /// A fresh loop index running over `0..extent`.
    pub fn index(name: &str, extent: Int) -> Int {
        Int::var(VarId::index(name, extent))
    }

    /// The value, if it is a constant.
    pub fn as_const(self) -> Option<i64> {
        with(|t| t.poly(self).as_const())
    }

    /// The variable, if it is exactly one.
    pub fn as_var(self) -> Option<VarId> {
        with(|t| match t.poly(self).as_atom() {
            Some(a) => match *t.atom_at(a) {
                Atom::Var(v) => Some(v),
                _ => None,
            },
            None => None,
        })
    }

    /// The polynomial as `(coefficient, atoms)` terms; the constant term has no atoms.
    pub fn terms(self) -> Vec<(i64, Vec<Atom>)> {
        with(|t| {
            let poly = t.poly(self).clone();
            poly.terms.iter().map(|(m, c)| (*c, m.iter().map(|a| *t.atom_at(*a)).collect())).collect()
        })
    }

    #[allow(clippy::should_implement_trait, reason = "not the truncating division of `/`")]
    /// Floor division (toward minus infinity). Division by a constant zero gives zero.
    pub fn div(self, other: impl Into<Int>) -> Int {
        arith::div(self, other.into())
    }

    /// Division rounded up; the divisor must be positive.
    pub fn ceil_div(self, other: impl Into<Int>) -> Int {
        let other = other.into();
        (self + other - Int::new(1)).div(other)
    }

    #[allow(clippy::should_implement_trait, reason = "not the remainder of `%`")]
    /// Remainder of the floor division (sign of the divisor).
    pub fn rem(self, other: impl Into<Int>) -> Int {
        arith::rem(self, other.into())
    }

    /// The smaller one.
    pub fn min(self, other: impl Into<Int>) -> Int {
        arith::min(self, other.into())
    }

    /// The larger one.
    pub fn max(self, other: impl Into<Int>) -> Int {
        arith::max(self, other.into())
    }

    /// `if self < other { yes } else { no }`.
    pub fn if_lt(self, other: impl Into<Int>, yes: impl Into<Int>, no: impl Into<Int>) -> Int {
        arith::if_lt(self, other.into(), yes.into(), no.into())
    }

    /// `if self == other { yes } else { no }`.
    pub fn if_eq(self, other: impl Into<Int>, yes: impl Into<Int>, no: impl Into<Int>) -> Int {
        arith::if_eq(self, other.into(), yes.into(), no.into())
    }

    /// Interval that holds the value.
    pub fn bounds(self) -> Bounds {
        bounds::bounds(self)
    }

    /// Is `self <= other`, always (`Some(true)`), never (`Some(false)`), or not known?
    pub fn le(self, other: impl Into<Int>) -> Option<bool> {
        bounds::le(self, other.into())
    }

    /// Is `self < other`?
    pub fn lt(self, other: impl Into<Int>) -> Option<bool> {
        bounds::le(self + Int::new(1), other.into())
    }

    /// Is `self == other`?
    pub fn eq_proof(self, other: impl Into<Int>) -> Option<bool> {
        let other = other.into();
        if self == other {
            return Some(true);
        }
        match (self.le(other), other.le(self)) {
            (Some(true), Some(true)) => Some(true),
            (Some(false), _) | (_, Some(false)) => Some(false),
            _ => None,
        }
    }

    /// The product of all, 1 for none.
    pub fn product(of: &[Int]) -> Int {
        of.iter().fold(Int::new(1), |p, d| p * *d)
    }
}

impl From<i64> for Int {
    fn from(v: i64) -> Int {
        Int::new(v)
    }
}

impl From<usize> for Int {
    fn from(v: usize) -> Int {
        Int::new(v as i64)
    }
}

impl From<i32> for Int {
    fn from(v: i32) -> Int {
        Int::new(v.into())
    }
}

macro_rules! binary {
    ($trait:ident, $method:ident, $f:path) => {
        impl<T: Into<Int>> core::ops::$trait<T> for Int {
            type Output = Int;
            fn $method(self, other: T) -> Int {
                $f(self, other.into())
            }
        }
    };
}
binary!(Add, add, arith::add);
binary!(Sub, sub, arith::sub);
binary!(Mul, mul, arith::mul);

impl core::ops::Neg for Int {
    type Output = Int;
    fn neg(self) -> Int {
        arith::mul(self, Int::new(-1))
    }
}

impl core::fmt::Display for Int {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let terms = self.terms();
        if terms.is_empty() {
            return f.write_str("0");
        }
        for (k, (c, atoms)) in terms.iter().enumerate() {
            let sign = match (k, *c < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            f.write_str(sign)?;
            let c = c.unsigned_abs();
            if atoms.is_empty() || c != 1 {
                write!(f, "{c}")?;
            }
            for (j, a) in atoms.iter().enumerate() {
                if j > 0 || c != 1 {
                    f.write_str("*")?;
                }
                match a {
                    Atom::Var(v) => write!(f, "{v}")?,
                    Atom::Div(a, b) => write!(f, "floor(({a})/({b}))")?,
                    Atom::Rem(a, b) => write!(f, "mod({a}, {b})")?,
                    Atom::Min(a, b) => write!(f, "min({a}, {b})")?,
                    Atom::Max(a, b) => write!(f, "max({a}, {b})")?,
                    Atom::IfLt(a, b, x, y) => write!(f, "if({a} < {b}, {x}, {y})")?,
                    Atom::IfEq(a, b, x, y) => write!(f, "if({a} = {b}, {x}, {y})")?,
                    Atom::Data(e) => write!(f, "[{e}]")?,
                }
            }
        }
        Ok(())
    }
}

impl core::fmt::Debug for Int {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests;
