//! Sums of products of small integers.

use super::fx::{Fx, Res, Val};
use crate::dtype::DType;
use crate::kernel::ir::{Dot, Reg};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    pub(super) fn dot(&mut self, dot: Dot, a: Reg, b: Reg, c: Reg) -> Res<Val> {
        let (a, b, c) = (self.val(a)?, self.val(b)?, self.val(c)?);
        self.map(DType::I32, &[&a, &b, &c], |fx, v, chunk| {
            let products = match (dot, chunk.vector) {
                (Dot::Bytes, true) => fx.products_of_bytes(v[0], v[1]),
                (Dot::Words, true) => {
                    let (x, y) = (fx.as_type(v[0], types::I16X8), fx.as_type(v[1], types::I16X8));
                    fx.products_of_words(x, y)
                }
                (_, false) => fx.products_of_scalars(dot, v[0], v[1]),
            };
            Ok(fx.b.ins().iadd(v[2], products))
        })
    }

    /// Sums of two products of neighbouring lanes: one instruction on x86.
    fn products_of_words(&mut self, x: Value, y: Value) -> Value {
        let mut half = |low: bool| {
            let ins = |fx: &mut Self, v| if low { fx.b.ins().swiden_low(v) } else { fx.b.ins().swiden_high(v) };
            let (x, y) = (ins(self, x), ins(self, y));
            self.b.ins().imul(x, y)
        };
        let (low, high) = (half(true), half(false));
        self.b.ins().iadd_pairwise(low, high)
    }

    /// Sums of four products in each lane of 32 bits: bytes with even and with odd numbers as words.
    fn products_of_bytes(&mut self, a: Value, b: Value) -> Value {
        let (a, b) = (self.as_type(a, types::I16X8), self.as_type(b, types::I16X8));
        let low = self.splat_const(types::I16X8, 2, 0xff);
        let even = self.b.ins().band(a, low);
        let odd = self.b.ins().ushr_imm_u(a, 8);
        let left = self.b.ins().ishl_imm_u(b, 8);
        let even_b = self.b.ins().sshr_imm_u(left, 8);
        let odd_b = self.b.ins().sshr_imm_u(b, 8);
        let (even, odd) = (self.products_of_words(even, even_b), self.products_of_words(odd, odd_b));
        self.b.ins().iadd(even, odd)
    }

    fn products_of_scalars(&mut self, dot: Dot, a: Value, b: Value) -> Value {
        let (count, bits) = if dot == Dot::Bytes { (4, 8) } else { (2, 16) };
        let mut sum = None;
        for k in 0..count {
            let mut part = |v: Value, signed: bool| {
                let left = self.b.ins().ishl_imm_u(v, 32 - bits * (k + 1));
                if signed { self.b.ins().sshr_imm_u(left, 32 - bits) } else { self.b.ins().ushr_imm_u(left, 32 - bits) }
            };
            let (x, y) = (part(a, dot == Dot::Words), part(b, true));
            let product = self.b.ins().imul(x, y);
            sum = Some(sum.map_or(product, |sum| self.b.ins().iadd(sum, product)));
        }
        sum.unwrap_or(a)
    }
}
