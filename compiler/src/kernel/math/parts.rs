//! What the functions are made of: constants of a register's type, polynomials, signs, sums with their rounding errors.

use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Cmp, Reg, Type};

/// A builder that speaks of one float type.
pub(super) struct Float<'b> {
    pub(super) b: &'b mut Builder,
    pub(super) ty: Type,
}

impl<'b> Float<'b> {
    /// For the type of `x`.
    pub(super) fn of(b: &'b mut Builder, x: Reg) -> Float<'b> {
        let ty = b.ty(x);
        if !ty.elem.is_float() {
            panic!("a math function of {ty}");
        }
        Float { b, ty }
    }

    pub(super) fn single(&self) -> bool {
        self.ty.elem == DType::F32
    }

    /// The first for `F32`, the second for `F64`.
    pub(super) fn pick<T>(&self, single: T, double: T) -> T {
        if self.single() { single } else { double }
    }

    pub(super) fn c(&mut self, v: f64) -> Reg {
        self.b.float(self.ty, v)
    }

    pub(super) fn add(&mut self, x: Reg, y: Reg) -> Reg {
        self.b.add(x, y)
    }

    pub(super) fn sub(&mut self, x: Reg, y: Reg) -> Reg {
        self.b.sub(x, y)
    }

    pub(super) fn mul(&mut self, x: Reg, y: Reg) -> Reg {
        self.b.mul(x, y)
    }

    pub(super) fn div(&mut self, x: Reg, y: Reg) -> Reg {
        self.b.div(x, y)
    }

    pub(super) fn fma(&mut self, x: Reg, y: Reg, z: Reg) -> Reg {
        self.b.fma(x, y, z)
    }

    /// `x + c`.
    pub(super) fn addc(&mut self, x: Reg, c: f64) -> Reg {
        let c = self.c(c);
        self.b.add(x, c)
    }

    /// `c - x`.
    pub(super) fn csub(&mut self, c: f64, x: Reg) -> Reg {
        let c = self.c(c);
        self.b.sub(c, x)
    }

    /// `x * c`.
    pub(super) fn mulc(&mut self, x: Reg, c: f64) -> Reg {
        let c = self.c(c);
        self.b.mul(x, c)
    }

    /// `x * c + y`.
    pub(super) fn fmac(&mut self, x: Reg, c: f64, y: Reg) -> Reg {
        let c = self.c(c);
        self.b.fma(x, c, y)
    }

    pub(super) fn cmpc(&mut self, cmp: Cmp, x: Reg, c: f64) -> Reg {
        let c = self.c(c);
        self.b.cmp(cmp, x, c)
    }

    pub(super) fn select(&mut self, mask: Reg, x: Reg, y: Reg) -> Reg {
        self.b.select(mask, x, y)
    }

    /// `x`, but at least `lo`; NaN stays.
    pub(super) fn at_least(&mut self, x: Reg, lo: f64) -> Reg {
        let lo = self.c(lo);
        let below = self.b.cmp(Cmp::Lt, x, lo);
        self.b.select(below, lo, x)
    }

    /// `x`, but at most `hi`; NaN stays.
    pub(super) fn at_most(&mut self, x: Reg, hi: f64) -> Reg {
        let hi = self.c(hi);
        let above = self.b.cmp(Cmp::Gt, x, hi);
        self.b.select(above, hi, x)
    }

    /// The polynomial with these coefficients, lowest power first.
    pub(super) fn poly(&mut self, x: Reg, coeffs: &[f64]) -> Reg {
        let (last, rest) = match coeffs.split_last() {
            Some((last, rest)) => (*last, rest),
            None => (0.0, coeffs),
        };
        let mut sum = self.c(last);
        for c in rest.iter().rev() {
            let c = self.c(*c);
            sum = self.b.fma(sum, x, c);
        }
        sum
    }

    /// Unsigned integers of the float's size.
    pub(super) fn bits_ty(&self) -> Type {
        self.ty.with_elem(self.pick(DType::U32, DType::U64))
    }

    /// The bits of a float.
    pub(super) fn bits(&mut self, x: Reg) -> Reg {
        let elem = self.bits_ty().elem;
        self.b.bitcast(elem, x)
    }

    /// The float with these bits.
    pub(super) fn float(&mut self, x: Reg) -> Reg {
        self.b.bitcast(self.ty.elem, x)
    }

    pub(super) fn bits_c(&mut self, v: u64) -> Reg {
        let ty = self.bits_ty();
        self.b.int(ty, v as i64)
    }

    /// Bits of the mantissa without the leading one.
    pub(super) fn mantissa(&self) -> u32 {
        self.pick(23, 52)
    }

    /// The exponent's bias.
    pub(super) fn bias(&self) -> u64 {
        self.pick(127, 1023)
    }

    fn sign_mask(&mut self) -> Reg {
        self.bits_c(self.pick(1 << 31, 1 << 63))
    }

    /// The magnitude, and the sign bit alone as integer.
    pub(super) fn split_sign(&mut self, x: Reg) -> (Reg, Reg) {
        let (bits, mask) = (self.bits(x), self.sign_mask());
        let sign = self.b.and(bits, mask);
        (self.b.abs(x), sign)
    }

    /// `x` with its sign flipped where the sign bit is set.
    pub(super) fn flip_sign(&mut self, x: Reg, sign: Reg) -> Reg {
        let bits = self.bits(x);
        let bits = self.b.xor(bits, sign);
        self.float(bits)
    }

    /// `x` without the lower half of its mantissa: products of two such numbers are exact.
    pub(super) fn head(&mut self, x: Reg) -> Reg {
        let (bits, mask) = (self.bits(x), self.bits_c(self.pick(0xffff_f000, 0xffff_ffff_f800_0000)));
        let bits = self.b.and(bits, mask);
        self.float(bits)
    }

    /// The rounded sum and its rounding error.
    pub(super) fn two_sum(&mut self, x: Reg, y: Reg) -> (Reg, Reg) {
        let sum = self.add(x, y);
        let y_part = self.sub(sum, x);
        let x_part = self.sub(sum, y_part);
        let (x_err, y_err) = (self.sub(x, x_part), self.sub(y, y_part));
        (sum, self.add(x_err, y_err))
    }

    /// The rounded sum and its rounding error, where |x| ≥ |y|.
    pub(super) fn fast_two_sum(&mut self, x: Reg, y: Reg) -> (Reg, Reg) {
        let sum = self.add(x, y);
        let y_part = self.sub(sum, x);
        (sum, self.sub(y, y_part))
    }

    /// 1.5 · 2^mantissa: a smaller number added to it is rounded to an integer, which then stands in the lowest bits.
    pub(super) fn rounder(&self) -> f64 {
        self.pick(12582912.0, 6755399441055744.0)
    }
}
