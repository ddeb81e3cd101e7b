//! Arithmetic of integer vectors.

use super::inst::{Opnd, Size, V};
use super::mask::Logic;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Op, Reg, Type, UnOp};
use graphmend_targets::features::x86;
use iced_x86::Mnemonic;

/// One of four by the bytes of a lane.
pub(super) fn by_size(bytes: usize, all: [Mnemonic; 4]) -> Mnemonic {
    all[bytes.trailing_zeros() as usize]
}

impl Sel<'_> {
    pub(super) fn lanes_un(&mut self, un: UnOp, a: Reg) -> Res<Val> {
        let a = self.val(a)?;
        let elem = a.ty.elem;
        let bytes = elem.size();
        if un == UnOp::Abs && !elem.is_signed() {
            return Ok(a);
        }
        let mut parts = vec![];
        for (p, v) in a.parts.iter().copied().enumerate() {
            let size = Self::part_size(&a, p);
            let x = Opnd::Reg(v, size);
            parts.push(match un {
                UnOp::Neg => {
                    let zero = self.splat_constant(0, bytes);
                    let all = [Mnemonic::Vpsubb, Mnemonic::Vpsubw, Mnemonic::Vpsubd, Mnemonic::Vpsubq];
                    self.vec(by_size(bytes, all), size, &[Opnd::Reg(zero, size), x])
                }
                UnOp::Abs if bytes == 8 && !self.isa.evex => self.abs_of_quads(size, v),
                UnOp::Abs => {
                    let all = [Mnemonic::Vpabsb, Mnemonic::Vpabsw, Mnemonic::Vpabsd, Mnemonic::Vpabsq];
                    self.vec(by_size(bytes, all), size, &[x])
                }
                UnOp::Not => self.complement(size, v),
                UnOp::Popcnt => self.ones_of_lanes(bytes, size, v),
                _ => return self.lacks(format!("{un:?} of {elem}")),
            });
        }
        Ok(self.value(a.ty, parts))
    }

    /// Numbers of one bits.
    fn ones_of_lanes(&mut self, bytes: usize, size: Size, v: V) -> V {
        let feature = if bytes <= 2 { x86::AVX512BITALG } else { x86::AVX512VPOPCNTDQ };
        if self.isa.evex && self.has(feature) {
            let all = [Mnemonic::Vpopcntb, Mnemonic::Vpopcntw, Mnemonic::Vpopcntd, Mnemonic::Vpopcntq];
            return self.vec(by_size(bytes, all), size, &[Opnd::Reg(v, size)]);
        }
        self.ones_by_table(bytes, size, v)
    }

    pub(super) fn lanes_bin(&mut self, reg: Option<Reg>, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (narrow_a, narrow_b) = (self.sixteen_bits(a), self.sixteen_bits(b));
        let (x, y) = (self.val(a)?, self.val(b)?);
        if bin == BinOp::Mul && x.ty.elem.size() == 4 && narrow_a.is_some() && narrow_b.is_some() {
            return Ok(self.multiply_words(reg, (&x, narrow_a == Some(true)), (&y, narrow_b == Some(true))));
        }
        self.lanes_values(reg, bin, &x, &y)
    }

    /// Whether a register is made from integers that 16 signed bits hold, and if so, whether none is negative.
    fn sixteen_bits(&self, reg: Reg) -> Option<bool> {
        let Some(Op::Cast(_, from)) = self.facts.defs[reg.0 as usize] else { return None };
        match self.kernel.regs[from.0 as usize].elem {
            DType::U8 => Some(true),
            DType::I8 | DType::I16 => Some(false),
            _ => None,
        }
    }

    /// Products of 32-bit lanes whose values fit 16 bits: that of the lower halves, the upper half of one being zero.
    fn multiply_words(
        &mut self,
        reg: Option<Reg>,
        (a, a_positive): (&Val, bool),
        (b, b_positive): (&Val, bool),
    ) -> Val {
        let mut parts = vec![];
        for (p, (x, y)) in a.parts.iter().zip(&b.parts).enumerate() {
            let size = Self::part_size(a, p);
            let x = match a_positive || b_positive {
                true => *x,
                false => {
                    let low = self.splat_constant(0xffff, 4);
                    self.logic(Logic::And, size, *x, low)
                }
            };
            let to = self.target(reg, p);
            self.def(Mnemonic::Vpmaddwd, to, size, &[Opnd::Reg(x, size), Opnd::Reg(*y, size)]);
            parts.push(to);
        }
        self.value(a.ty, parts)
    }

    pub(super) fn lanes_values(&mut self, reg: Option<Reg>, bin: BinOp, a: &Val, b: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        let bytes = elem.size();
        let signed = elem.is_signed();
        let all = match bin {
            BinOp::Add => [Mnemonic::Vpaddb, Mnemonic::Vpaddw, Mnemonic::Vpaddd, Mnemonic::Vpaddq],
            BinOp::Sub => [Mnemonic::Vpsubb, Mnemonic::Vpsubw, Mnemonic::Vpsubd, Mnemonic::Vpsubq],
            BinOp::Mul => [Mnemonic::INVALID, Mnemonic::Vpmullw, Mnemonic::Vpmulld, Mnemonic::Vpmullq],
            BinOp::Min if signed => [Mnemonic::Vpminsb, Mnemonic::Vpminsw, Mnemonic::Vpminsd, Mnemonic::Vpminsq],
            BinOp::Min => [Mnemonic::Vpminub, Mnemonic::Vpminuw, Mnemonic::Vpminud, Mnemonic::Vpminuq],
            BinOp::Max if signed => [Mnemonic::Vpmaxsb, Mnemonic::Vpmaxsw, Mnemonic::Vpmaxsd, Mnemonic::Vpmaxsq],
            BinOp::Max => [Mnemonic::Vpmaxub, Mnemonic::Vpmaxuw, Mnemonic::Vpmaxud, Mnemonic::Vpmaxuq],
            BinOp::And => [self.logic_of(Logic::And); 4],
            BinOp::Or => [self.logic_of(Logic::Or); 4],
            BinOp::Xor => [self.logic_of(Logic::Xor); 4],
            BinOp::Shl => [Mnemonic::INVALID, Mnemonic::Vpsllvw, Mnemonic::Vpsllvd, Mnemonic::Vpsllvq],
            BinOp::Shr if signed => [Mnemonic::INVALID, Mnemonic::Vpsravw, Mnemonic::Vpsravd, Mnemonic::Vpsravq],
            BinOp::Shr => [Mnemonic::INVALID, Mnemonic::Vpsrlvw, Mnemonic::Vpsrlvd, Mnemonic::Vpsrlvq],
            BinOp::Div | BinOp::Rem => return self.divide_lanes(bin, a, b),
        };
        if let Some(counts) = b.imm
            && matches!(bin, BinOp::Shl | BinOp::Shr)
            && let Some(mnemonic) = self.shift_of_all(bin, elem)
        {
            // Counts beyond a lane's bits do here what they do anywhere.
            let count = Opnd::Imm(counts.min(255) as i64);
            let mut parts = vec![];
            for (p, v) in a.parts.iter().enumerate() {
                let size = Self::part_size(a, p);
                parts.push(self.vec(mnemonic, size, &[Opnd::Reg(*v, size), count]));
            }
            return Ok(self.value(a.ty, parts));
        }
        let mnemonic = by_size(bytes, all);
        let shift = matches!(bin, BinOp::Shl | BinOp::Shr);
        if mnemonic == Mnemonic::INVALID || bytes == 2 && shift && !self.isa.evex {
            return self.by_wider(bin, a, b);
        }
        let lacking = bytes == 8
            && !self.isa.evex
            && (matches!(bin, BinOp::Mul | BinOp::Min | BinOp::Max) || bin == BinOp::Shr && signed);
        let mut parts = vec![];
        for p in 0..a.parts.len() {
            let size = Self::part_size(a, p);
            if lacking {
                parts.push(self.quads(bin, elem, size, a.parts[p], b.parts[p]));
                continue;
            }
            let to = self.target(reg, p);
            self.def(mnemonic, to, size, &[Opnd::Reg(a.parts[p], size), Opnd::Reg(b.parts[p], size)]);
            parts.push(to);
        }
        Ok(self.value(a.ty, parts))
    }

    /// The shift of all lanes by one count, if there is one.
    fn shift_of_all(&self, bin: BinOp, elem: DType) -> Option<Mnemonic> {
        let left = [Mnemonic::INVALID, Mnemonic::Vpsllw, Mnemonic::Vpslld, Mnemonic::Vpsllq];
        let right = [Mnemonic::INVALID, Mnemonic::Vpsrlw, Mnemonic::Vpsrld, Mnemonic::Vpsrlq];
        let signed = [Mnemonic::INVALID, Mnemonic::Vpsraw, Mnemonic::Vpsrad, Mnemonic::Vpsraq];
        let bytes = elem.size();
        let mnemonic = match bin {
            BinOp::Shl => by_size(bytes, left),
            _ if elem.is_signed() => by_size(bytes, signed),
            _ => by_size(bytes, right),
        };
        let none = mnemonic == Mnemonic::INVALID || mnemonic == Mnemonic::Vpsraq && !self.isa.evex;
        (!none).then_some(mnemonic)
    }

    /// By way of lanes twice as wide.
    pub(super) fn by_wider(&mut self, bin: BinOp, a: &Val, b: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        let bytes = elem.size();
        let wide = match (bytes, elem.is_signed()) {
            (1, true) => DType::I16,
            (1, false) => DType::U16,
            (_, true) => DType::I32,
            (_, false) => DType::U32,
        };
        // A count is an unsigned number.
        let counts = matches!(bin, BinOp::Shl | BinOp::Shr);
        let most = self.isa.bytes / (2 * bytes as u16);
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(a.ty.lanes, a.per).enumerate() {
            // Two registers where one does not hold the wider lanes.
            let mut halves = vec![];
            for (from, count) in if lanes > most { vec![(0, most), (1, lanes - most)] } else { vec![(0, lanes)] } {
                let x = self.half_of_register(a.parts[p], from);
                let y = self.half_of_register(b.parts[p], from);
                let x = self.widen_part(elem.is_signed(), bytes, 2 * bytes, x, count);
                let y = self.widen_part(elem.is_signed() && !counts, bytes, 2 * bytes, y, count);
                let ty = Type::vector(wide, count);
                // The same count is known still.
                let known = b.imm.filter(|_| counts);
                let (x, y) = (self.one_part(ty, x), Val { imm: known, ..self.one_part(ty, y) });
                let out = self.lanes_values(None, bin, &x, &y)?;
                halves.push(self.narrow_part(2 * bytes, bytes, out.parts[0], count));
            }
            parts.push(match halves[..] {
                [low, high] => self.halves_together(low, high),
                _ => halves[0],
            });
        }
        Ok(self.value(a.ty, parts))
    }

    pub(super) fn half_of_register(&mut self, v: V, half: i64) -> V {
        match (half, self.isa.evex) {
            (0, _) => v,
            (_, true) => self.vec(Mnemonic::Vextracti64x4, Size::Y, &[Opnd::Reg(v, Size::Z), Opnd::Imm(1)]),
            (_, false) => self.vec(Mnemonic::Vextracti128, Size::X, &[Opnd::Reg(v, Size::Y), Opnd::Imm(1)]),
        }
    }

    /// One register from two that hold half as much.
    pub(super) fn halves_together(&mut self, low: V, high: V) -> V {
        let (mnemonic, size, half) = match self.isa.evex {
            true => (Mnemonic::Vinserti64x4, Size::Z, Size::Y),
            false => (Mnemonic::Vinserti128, Size::Y, Size::X),
        };
        self.vec(mnemonic, size, &[Opnd::Reg(low, size), Opnd::Reg(high, half), Opnd::Imm(1)])
    }

    /// A value of one part, however many lanes that has.
    pub(super) fn one_part(&self, ty: Type, part: V) -> Val {
        Val { ty, per: ty.lanes, parts: vec![part], imm: None, mem: None }
    }
}
