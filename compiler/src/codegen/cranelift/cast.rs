//! Conversions between element types.

use super::fx::{Fx, Res, Val, chunks, clif_int, clif_scalar, clif_vector, int_of};
use super::narrow::Halve;
use crate::dtype::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    pub(super) fn cast(&mut self, to: DType, a: &Val) -> Res<Val> {
        let from = a.ty.elem;
        match to {
            _ if to == from => Ok(a.clone()),
            DType::F16 | DType::BF16 => self.round_to_half(to, a),
            DType::Bool => self.not_zero(a),
            _ if a.ty.lanes == 1 => self.each_lane(to, &[a], |fx, v| fx.cast_scalar(from, to, v[0])),
            _ if from == DType::Bool => self.mask_to_number(to, a),
            _ if from.is_float() && to.is_float() => self.float_to_float(to, a),
            _ if from.is_float() => self.float_to_int(to, a),
            _ if to.is_float() => self.int_to_float(to, a),
            _ => {
                let resized = self.resize(a, to.size() as u8)?;
                Ok(Val { ty: a.ty.with_elem(to), ..resized })
            }
        }
    }

    /// One lane.
    pub(super) fn cast_scalar(&mut self, from: DType, to: DType, x: Value) -> Res<Value> {
        let clif = clif_scalar(to);
        let signed = from.is_signed();
        Ok(match (from.is_float(), to.is_float()) {
            (true, true) if from == to => x,
            (true, true) if to == DType::F64 => self.b.ins().fpromote(types::F64, x),
            (true, true) => self.b.ins().fdemote(types::F32, x),
            (true, false) => {
                // Below 32 bits: saturate to 32, then to the type. An unsigned 32-bit detour is not needed: negative
                // numbers and NaN give 0 either way.
                let wide = if to.size() < 4 { types::I32 } else { clif };
                let signed = to.is_signed() || to.size() < 4;
                let mut out = if signed {
                    self.b.ins().fcvt_to_sint_sat(wide, x)
                } else {
                    self.b.ins().fcvt_to_uint_sat(wide, x)
                };
                if to.size() < 4 {
                    let bits = 8 * to.size() as u32;
                    let (least, most) = match to.is_signed() {
                        true => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
                        false => (0, (1i64 << bits) - 1),
                    };
                    let (least, most) = (self.iconst(4, least as u64), self.iconst(4, most as u64));
                    out = self.b.ins().smax(out, least);
                    out = self.b.ins().smin(out, most);
                    out = self.b.ins().ireduce(clif, out);
                }
                out
            }
            (false, true) => {
                let x = match (from.size() < 4, signed) {
                    (true, true) => self.b.ins().sextend(types::I32, x),
                    (true, false) => self.b.ins().uextend(types::I32, x),
                    _ => x,
                };
                // Zero-extended values are not negative: the signed conversion is the shorter one.
                if signed || from.size() < 4 {
                    self.b.ins().fcvt_from_sint(clif, x)
                } else {
                    self.b.ins().fcvt_from_uint(clif, x)
                }
            }
            (false, false) if to.size() == from.size() => x,
            (false, false) if to.size() < from.size() => self.b.ins().ireduce(clif, x),
            (false, false) if signed => self.b.ins().sextend(clif, x),
            (false, false) => self.b.ins().uextend(clif, x),
        })
    }

    fn not_zero(&mut self, a: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        let width = elem.size() as u8;
        self.map(DType::Bool, &[a], |fx, v, chunk| {
            if elem.is_float() {
                let zero = fx.lane_const(elem, chunk.vector, 0);
                let x = fx.loaded(v[0], chunk.vector);
                return Ok(fx.b.ins().fcmp(FloatCC::NotEqual, x, zero));
            }
            let zero = fx.bits_const(width, chunk.vector, 0);
            Ok(fx.b.ins().icmp(IntCC::NotEqual, v[0], zero))
        })
    }

    /// A mask vector as numbers 0 and 1: the bits of 1 where it is set.
    fn mask_to_number(&mut self, to: DType, a: &Val) -> Res<Val> {
        let width = to.size() as u8;
        let mask = self.mask_to(a, width)?;
        let one = match to {
            DType::F32 => 1f32.to_bits() as u64,
            DType::F64 => 1f64.to_bits(),
            _ => 1,
        };
        self.map(to, &[&mask], |fx, v, chunk| {
            if !chunk.vector {
                return fx.cast_scalar(DType::U8, to, v[0]);
            }
            let one = fx.bits_const(width, true, one);
            let out = fx.b.ins().band(v[0], one);
            Ok(fx.as_type(out, clif_vector(to, width)))
        })
    }

    fn float_to_float(&mut self, to: DType, a: &Val) -> Res<Val> {
        let width = to.size() as u8;
        let from = self.chunks_of(a);
        let mut out = Val { ty: a.ty.with_elem(to), width, pieces: Vec::new(), imm: None };
        for chunk in chunks(self.caps, a.ty.lanes, width) {
            let lanes = chunk.first..chunk.first + chunk.lanes;
            let at = from.iter().position(|c| (c.first..c.first + c.lanes).contains(&chunk.first)).unwrap_or(0);
            let piece = if !chunk.vector {
                let lane = self.lane(a, chunk.first)?;
                self.cast_scalar(a.ty.elem, to, lane)?
            } else if to == DType::F64 {
                let low = if chunk.first == from[at].first { a.pieces[at] } else { self.high_half(a.pieces[at]) };
                self.b.ins().fvpromote_low(low)
            } else {
                let low = self.b.ins().fvdemote(a.pieces[at]);
                if lanes.len() == 2 {
                    low
                } else {
                    let high = self.b.ins().fvdemote(a.pieces[at + 1]);
                    self.low_halves(low, high)
                }
            };
            out.pieces.push(piece);
        }
        Ok(out)
    }

    /// The high 8 bytes of a vector in the low place.
    fn high_half(&mut self, value: Value) -> Value {
        let ty = self.b.func.dfg.value_type(value);
        let bytes = self.as_type(value, types::I8X16);
        let mask: [u8; 16] = core::array::from_fn(|i| 8 + i as u8 % 8);
        let out = self.byte_shuffle(bytes, bytes, &mask);
        self.as_type(out, ty)
    }

    /// The low 8 bytes of two vectors.
    fn low_halves(&mut self, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let (a, b) = (self.as_type(a, types::I8X16), self.as_type(b, types::I8X16));
        let mask: [u8; 16] = core::array::from_fn(|i| if i < 8 { i as u8 } else { 8 + i as u8 });
        let out = self.byte_shuffle(a, b, &mask);
        self.as_type(out, ty)
    }

    fn float_to_int(&mut self, to: DType, a: &Val) -> Res<Val> {
        let (from, size) = (a.ty.elem, to.size());
        let by_lanes = match (from, size) {
            (DType::F32, 8) => !self.caps.wide_to_int(),
            (DType::F32, 2) => to == DType::U16 && !self.caps.pack_unsigned(),
            (DType::F32, _) => false,
            (_, 8) => !self.caps.wide_to_int(),
            _ => true,
        };
        if by_lanes {
            return self.each_lane(to, &[a], |fx, v| fx.cast_scalar(from, to, v[0]));
        }
        let wide;
        let a = if from == DType::F32 && size == 8 {
            wide = self.float_to_float(DType::F64, a)?;
            &wide
        } else {
            a
        };
        let width = a.width;
        // Narrow types by way of signed 32 bits: every step saturates.
        let step = if size < 4 { DType::I32 } else { to };
        let source = a.ty.elem;
        let mut val = self.map(step, &[a], |fx, v, chunk| {
            if !chunk.vector {
                return fx.cast_scalar(source, step, v[0]);
            }
            let clif = super::fx::clif_int_vector(width);
            Ok(if step.is_signed() {
                fx.b.ins().fcvt_to_sint_sat(clif, v[0])
            } else {
                fx.b.ins().fcvt_to_uint_sat(clif, v[0])
            })
        })?;
        while val.width > size as u8 {
            let last = val.width / 2 == size as u8;
            let how = if last && !to.is_signed() { Halve::Unsigned } else { Halve::Signed };
            val = self.halve(&val, how)?;
        }
        Ok(Val { ty: a.ty.with_elem(to), ..val })
    }

    fn int_to_float(&mut self, to: DType, a: &Val) -> Res<Val> {
        let from = a.ty.elem;
        if to == DType::F32 && from.size() == 8 {
            return self.each_lane(to, &[a], |fx, v| fx.cast_scalar(from, to, v[0]));
        }
        if to == DType::F64 && from.size() < 8 {
            return self.int_to_double(a);
        }
        let width = to.size() as u8;
        let ints = self.resize(a, width)?;
        // Extended from less, an unsigned lane is not negative.
        let signed = from.is_signed() || from.size() < to.size();
        self.map(to, &[&ints], |fx, v, chunk| {
            let clif = if chunk.vector { clif_vector(to, width) } else { clif_scalar(to) };
            Ok(if signed { fx.b.ins().fcvt_from_sint(clif, v[0]) } else { fx.b.ins().fcvt_from_uint(clif, v[0]) })
        })
    }

    /// Integers of up to 32 bits to `F64`, in the form that x86 has an instruction for: the low two of four lanes.
    fn int_to_double(&mut self, a: &Val) -> Res<Val> {
        let signed = a.ty.elem.is_signed();
        let ints = self.resize(a, 4)?;
        let from = self.chunks_of(&ints);
        let mut out = Val { ty: a.ty.with_elem(DType::F64), width: 8, pieces: Vec::new(), imm: None };
        for chunk in chunks(self.caps, a.ty.lanes, 8) {
            let at = from.iter().position(|c| (c.first..c.first + c.lanes).contains(&chunk.first)).unwrap_or(0);
            let piece = if chunk.vector {
                let low = if chunk.first == from[at].first { ints.pieces[at] } else { self.high_half(ints.pieces[at]) };
                if signed {
                    let wide = self.b.ins().swiden_low(low);
                    self.b.ins().fcvt_from_sint(types::F64X2, wide)
                } else {
                    let wide = self.b.ins().uwiden_low(low);
                    self.b.ins().fcvt_from_uint(types::F64X2, wide)
                }
            } else {
                let lane = self.lane(&ints, chunk.first)?;
                self.cast_scalar(int_of(4, signed), DType::F64, lane)?
            };
            out.pieces.push(piece);
        }
        Ok(out)
    }

    /// A single `Bool` or a lane of a mask as a lane of a mask vector.
    pub(super) fn vector_lane(&mut self, value: Value, elem: DType, width: u8) -> Value {
        if elem != DType::Bool {
            return value;
        }
        let wide = if width == 1 { value } else { self.b.ins().uextend(clif_int(width), value) };
        self.b.ins().ineg(wide)
    }
}
