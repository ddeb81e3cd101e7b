//! `F16` and `BF16`: conversions in integer arithmetic, exact, rounding to nearest even.
//!
//! All of it works on 32-bit lanes, scalar or in vectors: `F32` bits on one side, 16 bits in the low half on the other.

use super::fx::{Fx, Res, Val, clif_int, clif_int_vector};
use crate::dtype::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    /// `F32` lanes from 16-bit lanes.
    pub(super) fn half_to_f32(&mut self, dtype: DType, bits: &Val) -> Res<Val> {
        let wide = self.resize(bits, 4)?;
        self.map(DType::F32, &[&wide], |fx, v, chunk| Ok(fx.expand(dtype, v[0], chunk.vector)))
    }

    /// 16-bit lanes from `F32` lanes.
    pub(super) fn f32_to_half(&mut self, dtype: DType, value: &Val) -> Res<Val> {
        let wide = self.map(DType::U32, &[value], |fx, v, chunk| Ok(fx.shorten(dtype, v[0], chunk.vector)))?;
        self.resize(&wide, 2)
    }

    /// `F32` or `F64` lanes rounded to a half type and back to `F32`.
    pub(super) fn round_to_half(&mut self, dtype: DType, value: &Val) -> Res<Val> {
        let single = match value.ty.elem {
            DType::F64 => self.each_lane(DType::F32, &[value], |fx, v| Ok(fx.demote_to_odd(v[0])))?,
            _ => value.clone(),
        };
        self.map(DType::F32, &[&single], |fx, v, chunk| {
            let bits = fx.shorten(dtype, v[0], chunk.vector);
            Ok(fx.expand(dtype, bits, chunk.vector))
        })
    }

    fn shl(&mut self, x: Value, count: u64) -> Value {
        let count = self.iconst(4, count);
        self.b.ins().ishl(x, count)
    }

    fn shr(&mut self, x: Value, count: u64) -> Value {
        let count = self.iconst(4, count);
        self.b.ins().ushr(x, count)
    }

    fn bits_of(&mut self, x: Value, vector: bool) -> Value {
        let ints = if vector { clif_int_vector(4) } else { clif_int(4) };
        self.as_type(x, ints)
    }

    fn float_of(&mut self, x: Value, vector: bool) -> Value {
        self.as_type(x, if vector { types::F32X4 } else { types::F32 })
    }

    fn and_const(&mut self, x: Value, vector: bool, bits: u64) -> Value {
        let mask = self.bits_const(4, vector, bits);
        self.b.ins().band(x, mask)
    }

    fn or_const(&mut self, x: Value, vector: bool, bits: u64) -> Value {
        let mask = self.bits_const(4, vector, bits);
        self.b.ins().bor(x, mask)
    }

    fn add_const(&mut self, x: Value, vector: bool, bits: u64) -> Value {
        let other = self.bits_const(4, vector, bits);
        self.b.ins().iadd(x, other)
    }

    /// 16 bits (zero-extended) to `F32`.
    fn expand(&mut self, dtype: DType, bits: Value, vector: bool) -> Value {
        if dtype == DType::BF16 {
            let up = self.shl(bits, 16);
            return self.float_of(up, vector);
        }
        let sign = self.and_const(bits, vector, 0x8000);
        let sign = self.shl(sign, 16);
        let size = self.and_const(bits, vector, 0x7fff);
        // Exponent and fraction in their places; a product with 2^112 corrects the bias and normalises subnormals.
        let placed = self.shl(size, 13);
        let number = self.float_of(placed, vector);
        let scale = self.lane_const(DType::F32, vector, ((127 + 112) << 23) as u64);
        let scaled = self.b.ins().fmul(number, scale);
        let finite = self.bits_of(scaled, vector);
        let special = self.or_const(finite, vector, 0x7f80_0000);
        let most = self.bits_const(4, vector, 0x7bff);
        let beyond = self.b.ins().icmp(IntCC::SignedGreaterThan, size, most);
        let size = self.choose(vector, beyond, special, finite);
        let out = self.b.ins().bor(size, sign);
        self.float_of(out, vector)
    }

    /// `F32` to 16 bits in the low half; the high half is zero.
    fn shorten(&mut self, dtype: DType, x: Value, vector: bool) -> Value {
        let bits = self.bits_of(x, vector);
        if dtype == DType::BF16 {
            let last = self.shr(bits, 16);
            let odd = self.and_const(last, vector, 1);
            let rounded = self.add_const(bits, vector, 0x7fff);
            let rounded = self.b.ins().iadd(rounded, odd);
            // Adding could carry a NaN over: it keeps its top bits and becomes quiet.
            let quiet = self.or_const(bits, vector, 0x0040_0000);
            let number = self.b.ins().fcmp(FloatCC::Equal, x, x);
            let out = self.choose(vector, number, rounded, quiet);
            return self.shr(out, 16);
        }
        let size = self.and_const(bits, vector, 0x7fff_ffff);
        let sign = self.shr(bits, 16);
        let sign = self.and_const(sign, vector, 0x8000);

        // Normal results: change the bias, round at bit 13, carry into the exponent as it comes.
        let last = self.shr(size, 13);
        let odd = self.and_const(last, vector, 1);
        let rebias = (15u32.wrapping_sub(127) << 23).wrapping_add(0xfff);
        let rounded = self.add_const(size, vector, rebias as u64);
        let rounded = self.b.ins().iadd(rounded, odd);
        let normal = self.shr(rounded, 13);

        // Subnormal results: adding 0.5 leaves the rounded fraction in the lowest bits.
        let number = self.float_of(size, vector);
        let half = 0.5f32.to_bits() as u64;
        let place = self.lane_const(DType::F32, vector, half);
        let sum = self.b.ins().fadd(number, place);
        let sum = self.bits_of(sum, vector);
        let place = self.bits_const(4, vector, half);
        let subnormal = self.b.ins().isub(sum, place);
        let least = self.bits_const(4, vector, 113 << 23);
        let small = self.b.ins().icmp(IntCC::SignedLessThan, size, least);
        let finite = self.choose(vector, small, subnormal, normal);

        // From 65536 on: infinity. NaN: quiet, with the top of its payload.
        let infinity = self.bits_const(4, vector, 0x7c00);
        let limit = self.bits_const(4, vector, (143 << 23) - 1);
        let large = self.b.ins().icmp(IntCC::SignedGreaterThan, size, limit);
        let out = self.choose(vector, large, infinity, finite);
        let payload = self.and_const(last, vector, 0x3ff);
        let quiet = self.or_const(payload, vector, 0x7e00);
        let number = self.b.ins().fcmp(FloatCC::Equal, x, x);
        let out = self.choose(vector, number, out, quiet);
        self.b.ins().bor(out, sign)
    }

    /// An `F64` scalar as `F32`, rounded to odd: a second rounding to at most 22 bits then gives the nearest of the first.
    fn demote_to_odd(&mut self, x: Value) -> Value {
        let near = self.b.ins().fdemote(types::F32, x);
        let back = self.b.ins().fpromote(types::F64, near);
        let bits = self.as_type(near, types::I32);
        let (size_back, size_x) = (self.b.ins().fabs(back), self.b.ins().fabs(x));
        let over = self.b.ins().fcmp(FloatCC::GreaterThan, size_back, size_x);
        let over = self.b.ins().uextend(types::I32, over);
        // One below in size where rounding went up; infinity becomes the largest number.
        let toward_zero = self.b.ins().isub(bits, over);
        let one = self.iconst(4, 1);
        let odd = self.b.ins().bor(toward_zero, one);
        let inexact = self.b.ins().fcmp(FloatCC::OrderedNotEqual, size_back, size_x);
        let out = self.b.ins().select(inexact, odd, bits);
        self.as_type(out, types::F32)
    }
}
