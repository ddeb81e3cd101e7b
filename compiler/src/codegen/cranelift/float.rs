//! Floating-point arithmetic that is more than one instruction somewhere.

use super::fx::{Fx, Res, Val, clif_int_vector};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Reg, UnOp};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Type as Clif, Value, types};

/// The bit layout of a float type.
#[derive(Clone, Copy)]
struct Layout {
    /// Bytes.
    width: u8,
    /// Stored bits of the significand.
    fraction: u32,
    /// Bits of the exponent.
    exponent: u32,
}

impl Layout {
    fn of(elem: DType) -> Layout {
        match elem {
            DType::F64 => Layout { width: 8, fraction: 52, exponent: 11 },
            _ => Layout { width: 4, fraction: 23, exponent: 8 },
        }
    }

    fn sign(self) -> u64 {
        1 << (8 * self.width as u32 - 1)
    }

    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// Bits of `1 << fraction`: numbers from here on have no fraction.
    fn integral(self) -> u64 {
        (((1u64 << (self.exponent - 1)) - 1) + self.fraction as u64) << self.fraction
    }

    fn one(self) -> u64 {
        ((1u64 << (self.exponent - 1)) - 1) << self.fraction
    }
}

impl Fx<'_, '_> {
    pub(super) fn float_bin(&mut self, op: BinOp, ra: Reg, rb: Reg) -> Res<Val> {
        let (imm_a, imm_b) = (self.imm(ra), self.imm(rb));
        let (a, b) = (self.val(ra)?, self.val(rb)?);
        let elem = a.ty.elem;
        if op == BinOp::Rem {
            return self.each_lane(elem, &[&a, &b], |fx, v| Ok(fx.fmod(elem, v[0], v[1])));
        }
        let number = |imm: Option<u64>| imm.is_some_and(|bits| !is_nan(elem, bits));
        // The constant operand first: what may be NaN then comes second.
        let (a, b, known) = match (number(imm_a), number(imm_b)) {
            (false, true) if matches!(op, BinOp::Min | BinOp::Max) => (b, a, true),
            (known, _) => (a, b, known),
        };
        self.float_values(op, &a, &b, known)
    }

    /// An operation on values; `known` says that `a` is not NaN in any lane.
    pub(super) fn float_values(&mut self, op: BinOp, a: &Val, b: &Val, known: bool) -> Res<Val> {
        let elem = a.ty.elem;
        self.map(elem, &[a, b], |fx, v, chunk| {
            let (x, y) = (v[0], v[1]);
            Ok(match op {
                BinOp::Add => fx.b.ins().fadd(x, y),
                BinOp::Sub => fx.b.ins().fsub(x, y),
                BinOp::Mul => fx.b.ins().fmul(x, y),
                BinOp::Div => fx.b.ins().fdiv(x, y),
                BinOp::Min | BinOp::Max if chunk.vector && !fx.caps.nan_min_max() => fx.pick(op, elem, x, y, known),
                BinOp::Min => fx.b.ins().fmin(x, y),
                BinOp::Max => fx.b.ins().fmax(x, y),
                other => return Err(format!("no {other:?} of {elem}")),
            })
        })
    }

    /// Minimum or maximum of vectors by a choice that gives `y` if either operand is NaN, as the x86 instructions do.
    fn pick(&mut self, op: BinOp, elem: DType, x: Value, y: Value, x_is_number: bool) -> Value {
        let ty = if elem == DType::F64 { types::F64X2 } else { types::F32X4 };
        let before = match op {
            BinOp::Min => self.b.ins().fcmp(FloatCC::LessThan, x, y),
            _ => self.b.ins().fcmp(FloatCC::LessThan, y, x),
        };
        // Exactly this form becomes the one instruction of x86.
        let before = self.as_type(before, ty);
        let picked = self.b.ins().bitselect(before, x, y);
        if x_is_number {
            return picked;
        }
        let nan = self.b.ins().fcmp(FloatCC::Unordered, x, x);
        self.blend(nan, x, picked)
    }

    /// Rounding to an integral value.
    pub(super) fn round(&mut self, op: UnOp, elem: DType, x: Value, vector: bool) -> Value {
        if !self.caps.native_round() {
            return self.round_by_adding(op, elem, x, vector);
        }
        match op {
            UnOp::Floor => self.b.ins().floor(x),
            UnOp::Ceil => self.b.ins().ceil(x),
            UnOp::Trunc => self.b.ins().trunc(x),
            _ => self.b.ins().nearest(x),
        }
    }

    /// Rounding by adding and subtracting the power of two from which on numbers have no fraction.
    fn round_by_adding(&mut self, op: UnOp, elem: DType, x: Value, vector: bool) -> Value {
        let layout = Layout::of(elem);
        let number = |fx: &mut Self, bits| fx.lane_const(elem, vector, bits);
        let limit = number(self, layout.integral());
        let size = self.b.ins().fabs(x);
        let sum = self.b.ins().fadd(size, limit);
        let nearest = self.b.ins().fsub(sum, limit);
        let result = match op {
            UnOp::Round => nearest,
            _ => {
                // Truncation of the size, and for the directed modes one more if the fraction was cut away from them.
                let above = self.b.ins().fcmp(FloatCC::GreaterThan, nearest, size);
                let one = number(self, layout.one());
                let less = self.b.ins().fsub(nearest, one);
                let cut = self.choose(vector, above, less, nearest);
                if op == UnOp::Trunc {
                    cut
                } else {
                    let zero = number(self, 0);
                    let toward = if op == UnOp::Floor { FloatCC::LessThan } else { FloatCC::GreaterThan };
                    let away = self.b.ins().fcmp(toward, x, zero);
                    let inexact = self.b.ins().fcmp(FloatCC::NotEqual, cut, size);
                    let grow = self.b.ins().band(away, inexact);
                    let more = self.b.ins().fadd(cut, one);
                    self.choose(vector, grow, more, cut)
                }
            }
        };
        let signed = self.copy_sign(elem, result, x, vector);
        // Large numbers, infinities and NaN are their own result.
        let small = self.b.ins().fcmp(FloatCC::LessThan, size, limit);
        self.choose(vector, small, signed, x)
    }

    /// `size` (not negative) with the sign of `from`.
    fn copy_sign(&mut self, elem: DType, size: Value, from: Value, vector: bool) -> Value {
        let layout = Layout::of(elem);
        let ty = self.b.func.dfg.value_type(size);
        let ints = if vector { clif_int_vector(layout.width) } else { super::fx::clif_int(layout.width) };
        let mask = self.bits_const(layout.width, vector, layout.sign());
        let (size, from) = (self.as_type(size, ints), self.as_type(from, ints));
        let sign = self.b.ins().band(from, mask);
        let out = self.b.ins().bor(size, sign);
        self.as_type(out, ty)
    }

    /// A float constant as scalar or in all lanes of a vector.
    pub(super) fn lane_const(&mut self, elem: DType, vector: bool, bits: u64) -> Value {
        if !vector {
            return self.scalar_const(elem, bits);
        }
        let ty = if elem == DType::F64 { types::F64X2 } else { types::F32X4 };
        self.splat_const(ty, elem.size() as u8, bits)
    }

    /// An integer constant as scalar or in all lanes of a vector.
    pub(super) fn bits_const(&mut self, width: u8, vector: bool, bits: u64) -> Value {
        if vector { self.splat_const(clif_int_vector(width), width, bits) } else { self.iconst(width, bits) }
    }

    /// Choice by the result of a comparison, scalar or lane by lane.
    pub(super) fn choose(&mut self, vector: bool, mask: Value, yes: Value, no: Value) -> Value {
        if vector { self.blend(mask, yes, no) } else { self.b.ins().select(mask, yes, no) }
    }

    /// The remainder of truncating division, exact, by long division of the significands: one bit of the quotient in each
    /// pass of a loop. NaN for an infinite dividend or a zero divisor.
    fn fmod(&mut self, elem: DType, x: Value, y: Value) -> Value {
        let layout = Layout::of(elem);
        let float: Clif = if elem == DType::F64 { types::F64 } else { types::F32 };
        let (slow, done) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(done, float);
        let (size_x, size_y) = (self.b.ins().fabs(x), self.b.ins().fabs(y));
        // |x| < |y| covers infinite y; it is false for NaN.
        let small = self.b.ins().fcmp(FloatCC::LessThan, size_x, size_y);
        let general = self.b.create_block();
        self.b.ins().brif(small, done, &[x.into()], general, &[]);
        self.b.seal_block(general);
        self.b.switch_to_block(general);
        let zero = self.scalar_const(elem, 0);
        let infinity = self.scalar_const(elem, layout.infinity());
        let finite = self.b.ins().fcmp(FloatCC::LessThan, size_x, infinity);
        let nonzero = self.b.ins().fcmp(FloatCC::GreaterThan, size_y, zero);
        let defined = self.b.ins().band(finite, nonzero);
        let nan = self.scalar_const(elem, layout.infinity() | 1 << (layout.fraction - 1));
        self.b.ins().brif(defined, slow, &[], done, &[nan.into()]);
        self.b.seal_block(slow);
        self.b.switch_to_block(slow);

        let (mx, ex) = self.significand(layout, size_x);
        let (my, ey) = self.significand(layout, size_y);
        let (head, after) = (self.b.create_block(), self.b.create_block());
        let (m, e) = (self.b.append_block_param(head, types::I64), self.b.append_block_param(head, types::I64));
        self.b.ins().jump(head, &[mx.into(), ex.into()]);
        self.b.switch_to_block(head);
        // m is below 2 * my whenever the loop comes here.
        let less = self.b.ins().isub(m, my);
        let fits = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, m, my);
        let rest = self.b.ins().select(fits, less, m);
        let one = self.iconst(8, 1);
        let doubled = self.b.ins().ishl(rest, one);
        let lower = self.b.ins().isub(e, one);
        let again = self.b.ins().icmp(IntCC::SignedGreaterThan, e, ey);
        self.b.ins().brif(again, head, &[doubled.into(), lower.into()], after, &[]);
        self.b.seal_block(head);
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        let size = self.compose(layout, float, rest, ey);
        let signed = self.copy_sign(elem, size, x, false);
        self.b.ins().jump(done, &[signed.into()]);
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        result
    }

    /// The significand of a positive finite number as an integer with its top bit at `fraction`, and its exponent field;
    /// subnormal numbers are normalised, with exponents below 1.
    fn significand(&mut self, layout: Layout, x: Value) -> (Value, Value) {
        let bits = self.as_type(x, super::fx::clif_int(layout.width));
        let bits = if layout.width == 8 { bits } else { self.b.ins().uextend(types::I64, bits) };
        let place = self.iconst(8, layout.fraction as u64);
        let field = self.b.ins().ushr(bits, place);
        let mask = self.iconst(8, (1 << layout.fraction) - 1);
        let fraction = self.b.ins().band(bits, mask);
        let hidden = self.iconst(8, 1 << layout.fraction);
        let normal = self.b.ins().bor(fraction, hidden);
        let leading = self.b.ins().clz(fraction);
        let top = self.iconst(8, 63 - layout.fraction as u64);
        let shift = self.b.ins().isub(leading, top);
        let shifted = self.b.ins().ishl(fraction, shift);
        let one = self.iconst(8, 1);
        let exponent = self.b.ins().isub(one, shift);
        let zero = self.iconst(8, 0);
        let subnormal = self.b.ins().icmp(IntCC::Equal, field, zero);
        let m = self.b.ins().select(subnormal, shifted, normal);
        let e = self.b.ins().select(subnormal, exponent, field);
        (m, e)
    }

    /// The number `m * 2^(e - bias - fraction)`, with `m` below `2 << fraction`; exact by construction.
    fn compose(&mut self, layout: Layout, float: Clif, m: Value, e: Value) -> Value {
        let (zero, one) = (self.iconst(8, 0), self.iconst(8, 1));
        // Shift up as far as the exponent allows, at most to the normal place.
        let leading = self.b.ins().clz(m);
        let top = self.iconst(8, 63 - layout.fraction as u64);
        let wanted = self.b.ins().isub(leading, top);
        let room = self.b.ins().isub(e, one);
        let up = self.b.ins().smin(wanted, room);
        let down = self.b.ins().ineg(up);
        let up = self.b.ins().smax(up, zero);
        let down = self.b.ins().smax(down, zero);
        let raised = self.b.ins().ishl(m, up);
        let m = self.b.ins().ushr(raised, down);
        let e = self.b.ins().isub(e, up);
        let e = self.b.ins().iadd(e, down);
        // Subnormal results have e = 1 and no hidden bit: adding the fields then gives the exponent field 0.
        let place = self.iconst(8, layout.fraction as u64);
        let field = self.b.ins().isub(e, one);
        let field = self.b.ins().ishl(field, place);
        let bits = self.b.ins().iadd(field, m);
        let nothing = self.b.ins().icmp(IntCC::Equal, m, zero);
        let bits = self.b.ins().select(nothing, zero, bits);
        let bits = if layout.width == 8 { bits } else { self.b.ins().ireduce(types::I32, bits) };
        self.as_type(bits, float)
    }
}

fn is_nan(elem: DType, bits: u64) -> bool {
    match elem {
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => f32::from_bits(bits as u32).is_nan(),
    }
}
