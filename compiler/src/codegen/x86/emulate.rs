//! What takes several instructions where AVX-512, or one of its later parts, has one.

use super::float::of;
use super::inst::{Opnd, Size, V};
use super::mask::Logic;
use super::memory::half_size;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Type};
use iced_x86::Mnemonic;

impl Sel<'_> {
    /// Two operands of one size.
    fn pair(&mut self, mnemonic: Mnemonic, size: Size, x: V, y: V) -> V {
        self.vec(mnemonic, size, &[Opnd::Reg(x, size), Opnd::Reg(y, size)])
    }

    fn shifted(&mut self, mnemonic: Mnemonic, size: Size, x: V, by: i64) -> V {
        self.vec(mnemonic, size, &[Opnd::Reg(x, size), Opnd::Imm(by)])
    }

    // 64-bit integers.

    /// What 256-bit vectors of 64-bit integers lack.
    pub(super) fn quads(&mut self, bin: BinOp, elem: DType, size: Size, x: V, y: V) -> V {
        match bin {
            BinOp::Mul => {
                // The halves' products; that of the upper ones is beyond.
                let (x_high, y_high) =
                    (self.shifted(Mnemonic::Vpsrlq, size, x, 32), self.shifted(Mnemonic::Vpsrlq, size, y, 32));
                let first = self.pair(Mnemonic::Vpmuludq, size, x_high, y);
                let second = self.pair(Mnemonic::Vpmuludq, size, x, y_high);
                let cross = self.pair(Mnemonic::Vpaddq, size, first, second);
                let cross = self.shifted(Mnemonic::Vpsllq, size, cross, 32);
                let low = self.pair(Mnemonic::Vpmuludq, size, x, y);
                self.pair(Mnemonic::Vpaddq, size, low, cross)
            }
            BinOp::Shr => {
                // Of a negative number the complement is shifted.
                let sign = self.signs_of_quads(size, x);
                let positive = self.logic(Logic::Xor, size, x, sign);
                let shifted = self.pair(Mnemonic::Vpsrlvq, size, positive, y);
                self.logic(Logic::Xor, size, shifted, sign)
            }
            _ => {
                let greater = self.compare_ints_part(Cmp::Gt, elem, size, x, y);
                let (yes, no) = if bin == BinOp::Max { (x, y) } else { (y, x) };
                self.blend_part(DType::I64, size, greater, yes, no)
            }
        }
    }

    fn signs_of_quads(&mut self, size: Size, x: V) -> V {
        let zero = self.splat_constant(0, 8);
        self.pair(Mnemonic::Vpcmpgtq, size, zero, x)
    }

    pub(super) fn abs_of_quads(&mut self, size: Size, x: V) -> V {
        let sign = self.signs_of_quads(size, x);
        let turned = self.logic(Logic::Xor, size, x, sign);
        self.pair(Mnemonic::Vpsubq, size, turned, sign)
    }

    /// A vector from integers of 64 bits in general registers.
    fn quads_of_ints(&mut self, ints: &[V]) -> V {
        let mut whole = None;
        for (i, pair) in ints.chunks(2).enumerate() {
            let mut low = self.vec(Mnemonic::Vmovq, Size::X, &[Opnd::Reg(pair[0], Size::Q)]);
            if let Some(second) = pair.get(1) {
                let sources = [Opnd::Reg(low, Size::X), Opnd::Reg(*second, Size::Q), Opnd::Imm(1)];
                low = self.vec(Mnemonic::Vpinsrq, Size::X, &sources);
            }
            whole = Some(match whole {
                None => low,
                Some(before) => {
                    let (mnemonic, size) = match self.isa.evex {
                        true => (Mnemonic::Vinserti32x4, Size::Z),
                        false => (Mnemonic::Vinserti128, Size::Y),
                    };
                    let sources = [Opnd::Reg(before, size), Opnd::Reg(low, Size::X), Opnd::Imm(i as i64)];
                    self.vec(mnemonic, size, &sources)
                }
            });
        }
        whole.unwrap_or_else(|| self.splat_constant(0, 8))
    }

    // Numbers of one bits.

    pub(super) fn ones_by_table(&mut self, bytes: usize, size: Size, v: V) -> V {
        let table: Vec<u8> = (0..self.isa.bytes as u8).map(|i| (i % 16).count_ones() as u8).collect();
        let table = self.vector_constant(&table);
        let nibble = self.splat_constant(0x0f, 1);
        let high = self.shifted(Mnemonic::Vpsrlw, size, v, 4);
        let (low, high) = (self.logic(Logic::And, size, v, nibble), self.logic(Logic::And, size, high, nibble));
        let (low, high) =
            (self.pair(Mnemonic::Vpshufb, size, table, low), self.pair(Mnemonic::Vpshufb, size, table, high));
        let ones = self.pair(Mnemonic::Vpaddb, size, low, high);
        let words = |s: &mut Self| {
            let one = s.splat_constant(1, 1);
            s.pair(Mnemonic::Vpmaddubsw, size, ones, one)
        };
        match bytes {
            1 => ones,
            2 => words(self),
            4 => {
                let words = words(self);
                let one = self.splat_constant(1, 2);
                self.pair(Mnemonic::Vpmaddwd, size, words, one)
            }
            _ => {
                let zero = self.splat_constant(0, 8);
                self.pair(Mnemonic::Vpsadbw, size, ones, zero)
            }
        }
    }

    // Division.

    /// Quotients or remainders: of up to 32 bits by way of doubles, wider ones lane by lane.
    pub(super) fn divide_lanes(&mut self, bin: BinOp, a: &Val, b: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        if elem.size() < 4 {
            return self.by_wider(bin, a, b);
        }
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(a.ty.lanes, a.per).enumerate() {
            let (x, y) = (a.parts[p], b.parts[p]);
            parts.push(match elem.size() {
                4 => self.divide_dwords(bin, elem, (x, y), lanes),
                _ => {
                    let (x, y) = (self.ints_of_quads(elem, x, lanes), self.ints_of_quads(elem, y, lanes));
                    let pairs = x.into_iter().zip(y);
                    let out: Vec<V> = pairs.map(|(x, y)| self.divide_any(bin, elem, x, y)).collect();
                    self.quads_of_ints(&out)
                }
            });
        }
        Ok(self.value(a.ty, parts))
    }

    fn ints_of_quads(&mut self, elem: DType, v: V, lanes: u16) -> Vec<V> {
        let val = self.one_part(Type::vector(elem, lanes), v);
        let one = |s: &mut Self, lane| {
            let low = s.lowered(&val, lane);
            s.lane_to_int(elem, low)
        };
        (0..lanes).map(|lane| one(self, lane)).collect()
    }

    fn divide_dwords(&mut self, bin: BinOp, elem: DType, (x, y): (V, V), lanes: u16) -> V {
        let size = Self::size(lanes, 4);
        let most = self.isa.bytes / 8;
        let mut halves = vec![];
        for (half, count) in if lanes > most { vec![(0, most), (1, lanes - most)] } else { vec![(0, lanes)] } {
            let wide = Self::size(count, 8);
            let (x, y) = (self.half_of_register(x, half), self.half_of_register(y, half));
            let (x, y) =
                (self.part_to_floats(elem, DType::F64, x, count), self.part_to_floats(elem, DType::F64, y, count));
            let quotient = self.pair(Mnemonic::Vdivpd, wide, x, y);
            let quotient = self.rounded(DType::F64, wide, quotient, 11);
            // In the lowest bits of a number that large stands the integer, also where it is negative.
            let large = self.splat_constant(6755399441055744f64.to_bits(), 8);
            let bits = self.pair(Mnemonic::Vaddpd, wide, quotient, large);
            halves.push(self.narrow_part(8, 4, bits, count));
        }
        let quotient = match halves[..] {
            [low, high] => self.halves_together(low, high),
            _ => halves[0],
        };
        let out = match bin {
            BinOp::Div => quotient,
            _ => {
                let whole = self.pair(Mnemonic::Vpmulld, size, quotient, y);
                self.pair(Mnemonic::Vpsubd, size, x, whole)
            }
        };
        // By zero: zero.
        let divisor = self.one_part(Type::vector(elem, lanes), y);
        let zero = self.splat_constant(0, 4);
        let zeros = self.one_part(divisor.ty, zero);
        let nonzero = self.compare_parts(Cmp::Ne, &divisor, &zeros);
        self.keep_lanes(4, size, nonzero.parts[0], out)
    }

    // Conversions of 256-bit vectors.

    /// Saturating; NaN gives 0.
    pub(super) fn ints_of_floats(&mut self, from: DType, to: DType, v: V, lanes: u16) -> V {
        let wide = Self::size(lanes, 8);
        match (from, to) {
            (DType::F32, _) if to.size() == 8 => {
                let v = self.vec(Mnemonic::Vcvtps2pd, wide, &[Opnd::Reg(v, half_size(wide))]);
                self.ints_of_floats(DType::F64, to, v, lanes)
            }
            (DType::F64, DType::I32) => {
                let number = self.float_mask(from, wide, v, 7, v);
                let v = self.logic(Logic::And, wide, v, number);
                let most = self.splat_constant(2147483647f64.to_bits(), 8);
                let v = self.pair(Mnemonic::Vminpd, wide, v, most);
                self.vec(Mnemonic::Vcvttpd2dq, half_size(wide), &[Opnd::Reg(v, wide)])
            }
            (DType::F64, DType::U32) => {
                // NaN gives the second operand.
                let zero = self.splat_constant(0, 8);
                let v = self.pair(Mnemonic::Vmaxpd, wide, v, zero);
                let most = self.splat_constant(4294967295f64.to_bits(), 8);
                let v = self.pair(Mnemonic::Vminpd, wide, v, most);
                let v = self.rounded(from, wide, v, 11);
                let large = self.splat_constant(4503599627370496f64.to_bits(), 8);
                let bits = self.pair(Mnemonic::Vaddpd, wide, v, large);
                self.narrow_part(8, 4, bits, lanes)
            }
            _ => self.ints_of_same_width(from, to, v, lanes),
        }
    }

    fn float_mask(&mut self, elem: DType, size: Size, x: V, predicate: i64, y: V) -> V {
        let compare = of(elem, Mnemonic::Vcmpps, Mnemonic::Vcmppd);
        self.vec(compare, size, &[Opnd::Reg(x, size), Opnd::Reg(y, size), Opnd::Imm(predicate)])
    }

    fn ints_of_same_width(&mut self, from: DType, to: DType, v: V, lanes: u16) -> V {
        let bytes = from.size();
        let size = Self::size(lanes, bytes);
        let float = |value: f64| if bytes == 4 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
        let bits = 8 * bytes as i32;
        let limit = self.splat_constant(float(2f64.powi(bits - 1)), bytes);
        if to.is_signed() {
            // The conversion gives the minimum for whatever has no place: right for what is too small; for what is too
            // large all bits are turned over.
            let out = self.signed_of_floats(from, v, lanes);
            let number = self.float_mask(from, size, v, 7, v);
            let out = self.logic(Logic::And, size, out, number);
            let beyond = self.float_mask(from, size, v, 29, limit);
            return self.logic(Logic::Xor, size, out, beyond);
        }
        let zero = self.splat_constant(0, bytes);
        // NaN gives the second operand.
        let v = self.pair(of(from, Mnemonic::Vmaxps, Mnemonic::Vmaxpd), size, v, zero);
        let large = self.float_mask(from, size, v, 29, limit);
        let less = self.logic(Logic::And, size, large, limit);
        let low = self.pair(of(from, Mnemonic::Vsubps, Mnemonic::Vsubpd), size, v, less);
        let out = self.signed_of_floats(from, low, lanes);
        let left = if bytes == 4 { Mnemonic::Vpslld } else { Mnemonic::Vpsllq };
        let top = self.shifted(left, size, large, i64::from(bits - 1));
        let out = self.logic(Logic::Xor, size, out, top);
        let end = self.splat_constant(float(2f64.powi(bits)), bytes);
        let beyond = self.float_mask(from, size, v, 29, end);
        self.logic(Logic::Or, size, out, beyond)
    }

    fn signed_of_floats(&mut self, from: DType, v: V, lanes: u16) -> V {
        if from == DType::F32 {
            let size = Self::size(lanes, 4);
            return self.vec(Mnemonic::Vcvttps2dq, size, &[Opnd::Reg(v, size)]);
        }
        let val = self.one_part(Type::vector(from, lanes), v);
        let one = |s: &mut Self, lane| {
            let low = s.lowered(&val, lane);
            s.gpr(Mnemonic::Vcvttsd2si, Size::Q, &[Opnd::Reg(low, Size::X)])
        };
        let ints: Vec<V> = (0..lanes).map(|lane| one(self, lane)).collect();
        self.quads_of_ints(&ints)
    }

    /// Integers of 32 or 64 bits, rounded once.
    pub(super) fn floats_of_ints(&mut self, from: DType, to: DType, v: V, lanes: u16) -> V {
        let size = Self::size(lanes, from.size());
        let wide = Self::size(lanes, 8);
        match (from, to) {
            (DType::I32, DType::F32) => self.vec(Mnemonic::Vcvtdq2ps, size, &[Opnd::Reg(v, size)]),
            (DType::I32, _) => self.vec(Mnemonic::Vcvtdq2pd, wide, &[Opnd::Reg(v, half_size(wide))]),
            (DType::U32, DType::F32) => {
                // Both halves are exact, only their sum is rounded.
                let (low, high) = (self.splat_constant(0xffff, 4), self.shifted(Mnemonic::Vpsrld, size, v, 16));
                let low = self.logic(Logic::And, size, v, low);
                let low = self.vec(Mnemonic::Vcvtdq2ps, size, &[Opnd::Reg(low, size)]);
                let high = self.vec(Mnemonic::Vcvtdq2ps, size, &[Opnd::Reg(high, size)]);
                let scale = self.splat_constant(65536f32.to_bits().into(), 4);
                let high = self.pair(Mnemonic::Vmulps, size, high, scale);
                self.pair(Mnemonic::Vaddps, size, high, low)
            }
            (DType::U32, _) => {
                let top = self.splat_constant(1 << 31, 4);
                let v = self.logic(Logic::Xor, half_size(wide), v, top);
                let v = self.vec(Mnemonic::Vcvtdq2pd, wide, &[Opnd::Reg(v, half_size(wide))]);
                let back = self.splat_constant(2147483648f64.to_bits(), 8);
                self.pair(Mnemonic::Vaddpd, wide, v, back)
            }
            (_, DType::F64) => self.doubles_of_quads(from, size, v),
            _ => {
                let v = self.sticky_quads(from, size, v);
                let v = self.doubles_of_quads(from, size, v);
                self.vec(Mnemonic::Vcvtpd2ps, half_size(size), &[Opnd::Reg(v, size)])
            }
        }
    }

    /// 64-bit integers, whose halves are put into the lowest bits of large numbers.
    fn doubles_of_quads(&mut self, from: DType, size: Size, v: V) -> V {
        let (small, large) = (4503599627370496f64, 19342813113834066795298816f64);
        let small_bits = self.splat_constant(small.to_bits(), 8);
        let large_bits = self.splat_constant(large.to_bits(), 8);
        // The low half under 2^52, the high half under 2^84; a signed number as one that is larger by 2^63.
        let low =
            self.vec(Mnemonic::Vpblendd, size, &[Opnd::Reg(v, size), Opnd::Reg(small_bits, size), Opnd::Imm(0xaa)]);
        let (v, more) = match from.is_signed() {
            true => {
                let top = self.splat_constant(1 << 63, 8);
                (self.logic(Logic::Xor, size, v, top), 9223372036854775808f64)
            }
            false => (v, 0.0),
        };
        let high = self.shifted(Mnemonic::Vpsrlq, size, v, 32);
        let high = self.logic(Logic::Or, size, high, large_bits);
        let back = self.splat_constant((large + small + more).to_bits(), 8);
        let high = self.pair(Mnemonic::Vsubpd, size, high, back);
        self.pair(Mnemonic::Vaddpd, size, high, low)
    }

    /// 64-bit integers whose lowest bits, where a double does not hold them, are joined in one that says if any was set: so
    /// that rounding them to doubles changes nothing.
    fn sticky_quads(&mut self, from: DType, size: Size, v: V) -> V {
        let bits = self.splat_constant(0x7ff, 8);
        let low = self.logic(Logic::And, size, v, bits);
        let sum = self.pair(Mnemonic::Vpaddq, size, low, bits);
        let joined = self.logic(Logic::Or, size, v, sum);
        let joined = self.logic(Logic::AndNot, size, bits, joined);
        // Numbers of up to 53 bits stay.
        let (moved, by) = match from.is_signed() {
            true => {
                let middle = self.splat_constant(1 << 53, 8);
                (self.pair(Mnemonic::Vpaddq, size, v, middle), 54)
            }
            false => (v, 53),
        };
        let rest = self.shifted(Mnemonic::Vpsrlq, size, moved, by);
        let zero = self.splat_constant(0, 8);
        let short = self.pair(Mnemonic::Vpcmpeqq, size, rest, zero);
        self.blend_part(DType::I64, size, short, v, joined)
    }

    /// Integers of fewer bytes by cutting off the upper ones.
    pub(super) fn narrow_by_shuffle(&mut self, from: usize, to: usize, v: V, lanes: u16) -> V {
        if from == 8 && to == 4 {
            return match Self::size(lanes, from) {
                Size::X => self.shifted(Mnemonic::Vpshufd, Size::X, v, 0b1000),
                size => {
                    let order: Vec<u8> = [0u32, 2, 4, 6, 0, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
                    let order = self.vector_constant(&order);
                    self.pair(Mnemonic::Vpermd, size, order, v)
                }
            };
        }
        let half = 16 / from * to;
        // What is left of each half, side by side once they are laid over each other.
        let pick = |i: usize| {
            let at = (i % 16).checked_sub(i / 16 * half).filter(|at| *at < half);
            at.map_or(0x80, |at| (at / to * from + at % to) as u8)
        };
        let order: Vec<u8> = (0..32).map(pick).collect();
        let order = self.vector_constant(&order);
        let size = Self::size(lanes, from);
        let picked = self.pair(Mnemonic::Vpshufb, size, v, order);
        if size == Size::X {
            return picked;
        }
        let high = self.vec(Mnemonic::Vextracti128, Size::X, &[Opnd::Reg(picked, size), Opnd::Imm(1)]);
        self.logic(Logic::Or, Size::X, picked, high)
    }

    /// `F64` lanes as `F32` lanes that are exact, or odd and next to the exact value: so that they can be rounded again.
    pub(super) fn round_to_odd(&mut self, v: V, lanes: u16) -> V {
        let wide = Self::size(lanes, 8);
        let size = half_size(wide);
        let near = self.vec(Mnemonic::Vcvtpd2ps, size, &[Opnd::Reg(v, wide)]);
        let back = self.vec(Mnemonic::Vcvtps2pd, wide, &[Opnd::Reg(near, size)]);
        let rest = self.splat_constant(u64::MAX >> 1, 8);
        let (x, y) = (self.logic(Logic::And, wide, back, rest), self.logic(Logic::And, wide, v, rest));
        let (ones, zero) = (self.splat_constant(u64::MAX, 8), self.splat_constant(0, 8));
        // Ordered: what is not a number stays.
        let beyond = self.float_choice(DType::F64, wide, (x, 30, y), (ones, zero));
        let inexact = self.float_choice(DType::F64, wide, (x, 12, y), (ones, zero));
        let (beyond, inexact) = (self.narrow_part(8, 4, beyond, lanes), self.narrow_part(8, 4, inexact, lanes));
        let toward_zero = self.pair(Mnemonic::Vpaddd, size, near, beyond);
        let odd = self.shifted(Mnemonic::Vpsrld, size, inexact, 31);
        self.logic(Logic::Or, size, toward_zero, odd)
    }
}
