//! Conversions between element types.

use super::float::of;
use super::inst::{Class, Opnd, Size, V};
use super::memory::half_size;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Type};
use iced_x86::{Code, Mnemonic};

impl Sel<'_> {
    pub(super) fn cast(&mut self, to: DType, a: &Val) -> Res<Val> {
        let from = a.ty.elem;
        if to == from {
            return Ok(a.clone());
        }
        if matches!(to, DType::F16 | DType::BF16) {
            return self.round_to_half(to, a);
        }
        match (Self::class(a.ty), to) {
            (Class::Gpr, _) => self.cast_int(to, a),
            (Class::Mask, _) => Ok(self.mask_to_numbers(to, a)),
            (Class::Vec, DType::Bool) => {
                let mut zero = self.constant(a.ty, 0);
                self.complete(&mut zero);
                Ok(self.compare_values(Cmp::Ne, a, &zero))
            }
            _ if from.is_float() && a.ty.lanes == 1 && !to.is_float() => self.scalar_to_int(to, a),
            _ if from.is_float() && to.is_float() => Ok(self.float_to_float(to, a)),
            _ if from.is_float() => self.float_to_ints(to, a),
            _ if to.is_float() => Ok(self.ints_to_float(to, a)),
            _ => Ok(self.resize(to, a)),
        }
    }

    /// A scalar integer or `Bool` to another type.
    fn cast_int(&mut self, to: DType, a: &Val) -> Res<Val> {
        let from = a.ty.elem;
        let v = a.parts[0];
        let size = Self::gpr_size(from);
        let part = match to {
            DType::Bool => {
                self.effect(
                    if size == Size::Q { Code::Test_rm64_r64 } else { Code::Test_rm32_r32 },
                    &[Opnd::Reg(v, size), Opnd::Reg(v, size)],
                );
                let low = self.gpr(Mnemonic::Setne, Size::B, &[]);
                self.gpr(Code::Movzx_r32_rm8, Size::D, &[Opnd::Reg(low, Size::B)])
            }
            DType::F32 | DType::F64 => {
                let zero = self.splat_constant(0, 4);
                let zero = Opnd::Reg(zero, Size::X);
                // Below 32 bits all values are numbers of 32 signed ones.
                let unsigned = !from.is_signed() && from.size() >= 4;
                if unsigned && !self.isa.evex {
                    let part = self.unsigned_to_float(from, to, v);
                    return Ok(self.scalar_value(to, part));
                }
                let mnemonic = match (to, unsigned) {
                    (DType::F32, false) => Mnemonic::Vcvtsi2ss,
                    (DType::F32, true) => Mnemonic::Vcvtusi2ss,
                    (_, false) => Mnemonic::Vcvtsi2sd,
                    (_, true) => Mnemonic::Vcvtusi2sd,
                };
                self.vec(mnemonic, Size::X, &[zero, Opnd::Reg(v, size)])
            }
            _ if to.size() == 8 && from.size() < 8 => match from.is_signed() {
                true => self.gpr(Code::Movsxd_r64_rm32, Size::Q, &[Opnd::Reg(v, Size::D)]),
                false => self.gpr(Code::Mov_r32_rm32, Size::D, &[Opnd::Reg(v, Size::D)]),
            },
            _ if to.size() == 4 && from.size() == 8 => self.gpr(Code::Mov_r32_rm32, Size::D, &[Opnd::Reg(v, Size::D)]),
            _ if to.size() < 4 => self.extend(to, v),
            _ => v,
        };
        Ok(self.scalar_value(to, part))
    }

    /// A scalar float to an integer, by the vector conversion.
    fn scalar_to_int(&mut self, to: DType, a: &Val) -> Res<Val> {
        // Two lanes of which one is asked for.
        let two = Val { ty: a.ty.with_lanes(2), ..a.clone() };
        let out = self.float_to_ints(to, &two)?;
        let part = self.lane_to_int(to, out.parts[0]);
        Ok(self.scalar_value(to, part))
    }

    /// Parts of another lane count: `per` lanes of the same element type.
    ///
    /// Gives for each new part the register and its number of lanes.
    fn in_parts_of(&mut self, a: &Val, per: u16) -> Vec<(V, u16)> {
        let (elem, lanes) = (a.ty.elem, a.ty.lanes);
        let bytes = elem.size();
        if a.per == per || lanes <= per.min(a.per) {
            let counts: Vec<u16> = Self::lanes_of(lanes, a.per).collect();
            return a.parts.iter().copied().zip(counts).collect();
        }
        let mut out = vec![];
        for (p, count) in Self::lanes_of(lanes, per).enumerate() {
            let first = p as u16 * per;
            if per < a.per {
                let v = a.parts[(first / a.per) as usize];
                let at = first % a.per;
                out.push((self.upper(v, at as usize * bytes, per as usize * bytes), count));
                continue;
            }
            // Two halves together.
            let low = a.parts[(first / a.per) as usize];
            let whole = match a.parts.get((first / a.per) as usize + 1) {
                Some(high) if count > a.per => {
                    let (mnemonic, size, from) = match a.per as usize * bytes {
                        32 => (Mnemonic::Vinserti64x4, Size::Z, Size::Y),
                        16 if self.isa.evex => (Mnemonic::Vinserti32x4, Size::Y, Size::X),
                        16 => (Mnemonic::Vinserti128, Size::Y, Size::X),
                        8 => (Mnemonic::Vpunpcklqdq, Size::X, Size::X),
                        _ => (Mnemonic::Vpunpckldq, Size::X, Size::X),
                    };
                    let sources = [Opnd::Reg(low, size), Opnd::Reg(*high, from), Opnd::Imm(1)];
                    let sources = if size == Size::X { &sources[..2] } else { &sources[..] };
                    self.vec(mnemonic, size, sources)
                }
                _ => low,
            };
            out.push((whole, count));
        }
        out
    }

    /// `bytes` bytes of a register from byte `at` on, in the lowest place.
    fn upper(&mut self, v: V, at: usize, bytes: usize) -> V {
        match (at, bytes) {
            (0, _) => v,
            (_, 32) => self.vec(Mnemonic::Vextracti64x4, Size::Y, &[Opnd::Reg(v, Size::Z), Opnd::Imm(1)]),
            (_, 16) => self.quarter(v, at as u16 / 16),
            _ => {
                let to = self.quarter(v, at as u16 / 16);
                if at.is_multiple_of(16) {
                    return to;
                }
                self.vec(Mnemonic::Vpsrldq, Size::X, &[Opnd::Reg(to, Size::X), Opnd::Imm(at as i64 % 16)])
            }
        }
    }

    /// Applies a conversion to each part, both sides cut as the wider of the two types is.
    pub(super) fn convert(&mut self, to: DType, a: &Val, mut f: impl FnMut(&mut Self, V, u16) -> V) -> Val {
        let ty = a.ty.with_elem(to);
        let per = self.per(to).min(a.per);
        let mut parts = vec![];
        for (v, lanes) in self.in_parts_of(a, per) {
            parts.push(f(self, v, lanes));
        }
        if ty.lanes == 1 {
            return self.value(ty, parts);
        }
        let narrow = Val { ty, per, parts, imm: None, mem: None };
        let per = self.per(to);
        let parts = self.in_parts_of(&narrow, per).into_iter().map(|(v, _)| v).collect();
        self.value(ty, parts)
    }

    fn float_to_float(&mut self, to: DType, a: &Val) -> Val {
        self.convert(to, a, |s, v, lanes| {
            let wide = Self::size(lanes, 8);
            match to {
                DType::F64 => s.vec(Mnemonic::Vcvtps2pd, wide, &[Opnd::Reg(v, half_size(wide))]),
                _ => s.vec(Mnemonic::Vcvtpd2ps, half_size(wide), &[Opnd::Reg(v, wide)]),
            }
        })
    }

    /// Saturating; NaN gives 0.
    fn float_to_ints(&mut self, to: DType, a: &Val) -> Res<Val> {
        let from = a.ty.elem;
        // Types below 32 bits by way of 32 signed ones.
        let step = if to.size() < 4 { DType::I32 } else { to };
        let wide = self.convert(step, a, |s, v, lanes| s.part_to_ints(from, step, v, lanes));
        if to.size() >= 4 {
            return Ok(wide);
        }
        let (least, most) = match (to.is_signed(), to.size()) {
            (true, 1) => (-128, 127),
            (true, _) => (-32768, 32767),
            (false, 1) => (0, 255),
            (false, _) => (0, 65535),
        };
        let bits = |v: i32| u64::from(v as u32);
        let (mut least, mut most) = (self.constant(wide.ty, bits(least)), self.constant(wide.ty, bits(most)));
        self.complete(&mut least);
        self.complete(&mut most);
        let wide = self.lanes_values(None, BinOp::Max, &wide, &least)?;
        let wide = self.lanes_values(None, BinOp::Min, &wide, &most)?;
        Ok(self.resize(to, &wide))
    }

    fn part_to_ints(&mut self, from: DType, to: DType, v: V, lanes: u16) -> V {
        if !self.isa.evex {
            return self.ints_of_floats(from, to, v, lanes);
        }
        let (bytes, out_bytes) = (from.size(), to.size());
        let (size, out) = (Self::size(lanes, bytes), Self::size(lanes, out_bytes));
        // Registers of the conversion: half of the wider one on the narrower side.
        let (size, out) = match (bytes, out_bytes) {
            (4, 8) => (half_size(out), out),
            (8, 4) => (size, half_size(size)),
            _ => (size, out),
        };
        let mnemonic = match (from, to) {
            (DType::F32, DType::I32) => Mnemonic::Vcvttps2dq,
            (DType::F32, DType::U32) => Mnemonic::Vcvttps2udq,
            (DType::F32, DType::I64) => Mnemonic::Vcvttps2qq,
            (DType::F32, _) => Mnemonic::Vcvttps2uqq,
            (_, DType::I32) => Mnemonic::Vcvttpd2dq,
            (_, DType::U32) => Mnemonic::Vcvttpd2udq,
            (_, DType::I64) => Mnemonic::Vcvttpd2qq,
            _ => Mnemonic::Vcvttpd2uqq,
        };
        let float = |value: f64| if bytes == 4 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
        let x = Opnd::Reg(v, size);
        let compare = of(from, Mnemonic::Vcmpps, Mnemonic::Vcmppd);
        let extend = if out_bytes == 4 { Mnemonic::Vmovdqa32 } else { Mnemonic::Vmovdqa64 };
        if !to.is_signed() {
            // The instruction gives all ones for whatever has no place: right for what is too large.
            let zero = self.splat_constant(0, bytes);
            let largest = of(from, Mnemonic::Vmaxps, Mnemonic::Vmaxpd);
            // NaN gives the second operand.
            let positive = self.vec(largest, size, &[x, Opnd::Reg(zero, size)]);
            return self.vec(mnemonic, out, &[Opnd::Reg(positive, size)]);
        }
        // It gives the minimum for whatever has no place: right for what is too small.
        let number = self.mask(compare, &[x, x, Opnd::Imm(7)]);
        let converted = self.vec_zeroed(mnemonic, out, number, &[x]);
        let limit =
            self.splat_constant(float(if out_bytes == 4 { 2147483648.0 } else { 9223372036854775808.0 }), bytes);
        let beyond = self.mask(compare, &[x, Opnd::Reg(limit, size), Opnd::Imm(29)]);
        let most = if out_bytes == 4 { i32::MAX as u64 } else { i64::MAX as u64 };
        let most = self.splat_constant(most, out_bytes);
        self.vec_merged(extend, out, converted, beyond, &[Opnd::Reg(most, out)])
    }

    fn ints_to_float(&mut self, to: DType, a: &Val) -> Val {
        let from = a.ty.elem;
        let (a, from) = match (from.size() < 4, from.is_signed()) {
            (true, _) => (self.resize(DType::I32, a), DType::I32),
            _ => (a.clone(), from),
        };
        self.convert(to, &a, |s, v, lanes| s.part_to_floats(from, to, v, lanes))
    }

    /// Integers of 32 or 64 bits to floats.
    pub(super) fn part_to_floats(&mut self, from: DType, to: DType, v: V, lanes: u16) -> V {
        if !self.isa.evex {
            return self.floats_of_ints(from, to, v, lanes);
        }
        let (size, out) = (Self::size(lanes, from.size()), Self::size(lanes, to.size()));
        let (size, out) = match (from.size(), to.size()) {
            (4, 8) => (half_size(out), out),
            (8, 4) => (size, half_size(size)),
            _ => (size, out),
        };
        let mnemonic = match (from, to) {
            (DType::I32, DType::F32) => Mnemonic::Vcvtdq2ps,
            (DType::U32, DType::F32) => Mnemonic::Vcvtudq2ps,
            (DType::I64, DType::F32) => Mnemonic::Vcvtqq2ps,
            (_, DType::F32) => Mnemonic::Vcvtuqq2ps,
            (DType::I32, _) => Mnemonic::Vcvtdq2pd,
            (DType::U32, _) => Mnemonic::Vcvtudq2pd,
            (DType::I64, _) => Mnemonic::Vcvtqq2pd,
            _ => Mnemonic::Vcvtuqq2pd,
        };
        self.vec(mnemonic, out, &[Opnd::Reg(v, size)])
    }

    /// A scalar of 32 or 64 unsigned bits by way of a signed conversion.
    fn unsigned_to_float(&mut self, from: DType, to: DType, v: V) -> V {
        let zero = self.splat_constant(0, 4);
        let zero = Opnd::Reg(zero, Size::X);
        let mnemonic = if to == DType::F32 { Mnemonic::Vcvtsi2ss } else { Mnemonic::Vcvtsi2sd };
        if from == DType::U32 {
            let wide = self.gpr(Code::Mov_r32_rm32, Size::D, &[Opnd::Reg(v, Size::D)]);
            return self.vec(mnemonic, Size::X, &[zero, Opnd::Reg(wide, Size::Q)]);
        }
        // Where the top bit is set, half of it, whose last bit says whether any bit was lost, is converted and doubled.
        let half = self.copy(v);
        self.update(Mnemonic::Shr, half, Size::Q, &[Opnd::Imm(1)]);
        let last = self.copy(v);
        self.update(Mnemonic::And, last, Size::D, &[Opnd::Imm(1)]);
        self.update(Code::Or_r64_rm64, half, Size::Q, &[Opnd::Reg(last, Size::Q)]);
        let half = self.vec(mnemonic, Size::X, &[zero, Opnd::Reg(half, Size::Q)]);
        let half = Opnd::Reg(half, Size::X);
        let double = self.vec(of(to, Mnemonic::Vaddps, Mnemonic::Vaddpd), Size::X, &[half, half]);
        let small = self.vec(mnemonic, Size::X, &[zero, Opnd::Reg(v, Size::Q)]);
        let top = self.copy(v);
        self.update(Mnemonic::Shr, top, Size::Q, &[Opnd::Imm(63)]);
        let mask = self.mask_of_bool(top);
        self.blend_part(to, Size::X, mask, double, small)
    }

    /// Integers of another size; narrower ones wrap.
    pub(super) fn resize(&mut self, to: DType, a: &Val) -> Val {
        let from = a.ty.elem;
        let ty = Type { elem: to, ..a.ty };
        if from.size() == to.size() {
            return self.value(ty, a.parts.clone());
        }
        self.convert(to, a, |s, v, lanes| match from.size() < to.size() {
            true => s.widen_part(from.is_signed(), from.size(), to.size(), v, lanes),
            false => s.narrow_part(from.size(), to.size(), v, lanes),
        })
    }

    /// Integers of `from` bytes extended to `to` bytes.
    pub(super) fn widen_part(&mut self, signed: bool, from: usize, to: usize, v: V, lanes: u16) -> V {
        let mnemonic = match (from, to) {
            (1, 2) if signed => Mnemonic::Vpmovsxbw,
            (1, 2) => Mnemonic::Vpmovzxbw,
            (1, 4) if signed => Mnemonic::Vpmovsxbd,
            (1, 4) => Mnemonic::Vpmovzxbd,
            (1, _) if signed => Mnemonic::Vpmovsxbq,
            (1, _) => Mnemonic::Vpmovzxbq,
            (2, 4) if signed => Mnemonic::Vpmovsxwd,
            (2, 4) => Mnemonic::Vpmovzxwd,
            (2, _) if signed => Mnemonic::Vpmovsxwq,
            (2, _) => Mnemonic::Vpmovzxwq,
            _ if signed => Mnemonic::Vpmovsxdq,
            _ => Mnemonic::Vpmovzxdq,
        };
        let wide = Self::size(lanes, to);
        self.vec(mnemonic, wide, &[Opnd::Reg(v, parted(wide, to / from))])
    }

    /// Integers of `from` bytes cut down to `to` bytes.
    pub(super) fn narrow_part(&mut self, from: usize, to: usize, v: V, lanes: u16) -> V {
        if !self.isa.evex {
            return self.narrow_by_shuffle(from, to, v, lanes);
        }
        let mnemonic = match (from, to) {
            (2, _) => Mnemonic::Vpmovwb,
            (4, 1) => Mnemonic::Vpmovdb,
            (4, _) => Mnemonic::Vpmovdw,
            (_, 1) => Mnemonic::Vpmovqb,
            (_, 2) => Mnemonic::Vpmovqw,
            _ => Mnemonic::Vpmovqd,
        };
        let wide = Self::size(lanes, from);
        self.vec(mnemonic, parted(wide, from / to), &[Opnd::Reg(v, wide)])
    }
}

/// The register of the narrow side of a conversion.
fn parted(wide: Size, by: usize) -> Size {
    (0..by.trailing_zeros()).fold(wide, |size, _| half_size(size))
}
