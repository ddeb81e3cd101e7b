//! Arithmetic of integer vectors.

use super::inst::{Opnd, Size, V};
use super::memory::half_size;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Reg, Type, UnOp};
use graphmend_targets::features::x86;
use iced_x86::Mnemonic;

/// One of four by the bytes of a lane.
fn by_size(bytes: usize, all: [Mnemonic; 4]) -> Mnemonic {
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
        for (p, v) in a.parts.clone().into_iter().enumerate() {
            let size = Self::part_size(&a, p);
            let x = Opnd::Reg(v, size);
            parts.push(match un {
                UnOp::Neg => {
                    let zero = self.splat_constant(0, bytes);
                    let all = [Mnemonic::Vpsubb, Mnemonic::Vpsubw, Mnemonic::Vpsubd, Mnemonic::Vpsubq];
                    self.vec(by_size(bytes, all), size, &[Opnd::Reg(zero, size), x])
                }
                UnOp::Abs => {
                    let all = [Mnemonic::Vpabsb, Mnemonic::Vpabsw, Mnemonic::Vpabsd, Mnemonic::Vpabsq];
                    self.vec(by_size(bytes, all), size, &[x])
                }
                UnOp::Not => {
                    let ones = self.splat_constant(u64::MAX, 8);
                    self.vec(Mnemonic::Vpxord, size, &[x, Opnd::Reg(ones, size)])
                }
                UnOp::Popcnt => {
                    let (feature, all) = match bytes {
                        1 | 2 => (
                            x86::AVX512BITALG,
                            [Mnemonic::Vpopcntb, Mnemonic::Vpopcntw, Mnemonic::INVALID, Mnemonic::INVALID],
                        ),
                        _ => (
                            x86::AVX512VPOPCNTDQ,
                            [Mnemonic::INVALID, Mnemonic::INVALID, Mnemonic::Vpopcntd, Mnemonic::Vpopcntq],
                        ),
                    };
                    if !self.has(feature) {
                        return self.lacks("numbers of one bits");
                    }
                    self.vec(by_size(bytes, all), size, &[x])
                }
                _ => return self.lacks(format!("{un:?} of {elem}")),
            });
        }
        Ok(self.value(a.ty, parts))
    }

    pub(super) fn lanes_bin(&mut self, reg: Option<Reg>, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (a, b) = (self.val(a)?, self.val(b)?);
        self.lanes_values(reg, bin, &a, &b)
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
            BinOp::And => [Mnemonic::Vpandd; 4],
            BinOp::Or => [Mnemonic::Vpord; 4],
            BinOp::Xor => [Mnemonic::Vpxord; 4],
            BinOp::Shl => [Mnemonic::INVALID, Mnemonic::Vpsllvw, Mnemonic::Vpsllvd, Mnemonic::Vpsllvq],
            BinOp::Shr if signed => [Mnemonic::INVALID, Mnemonic::Vpsravw, Mnemonic::Vpsravd, Mnemonic::Vpsravq],
            BinOp::Shr => [Mnemonic::INVALID, Mnemonic::Vpsrlvw, Mnemonic::Vpsrlvd, Mnemonic::Vpsrlvq],
            BinOp::Div | BinOp::Rem => return self.lacks(format!("{bin:?} of vectors of {elem}")),
        };
        let mnemonic = by_size(bytes, all);
        if mnemonic == Mnemonic::INVALID {
            return self.by_words(bin, a, b);
        }
        let mut parts = vec![];
        for p in 0..a.parts.len() {
            let size = Self::part_size(a, p);
            let to = self.target(reg, p);
            self.def(mnemonic, to, size, &[Opnd::Reg(a.parts[p], size), Opnd::Reg(b.parts[p], size)]);
            parts.push(to);
        }
        Ok(self.value(a.ty, parts))
    }

    /// Bytes by way of 16-bit lanes.
    fn by_words(&mut self, bin: BinOp, a: &Val, b: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        let wide = if elem.is_signed() { DType::I16 } else { DType::U16 };
        // A count is an unsigned number.
        let counts = matches!(bin, BinOp::Shl | BinOp::Shr);
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(a.ty.lanes, a.per).enumerate() {
            // Two registers where one does not hold the words.
            let mut halves = vec![];
            for (from, count) in if lanes > 32 { vec![(0, 32), (32, lanes - 32)] } else { vec![(0, lanes)] } {
                let size = Self::size(count, 2);
                let x = self.byte_half(a.parts[p], from);
                let y = self.byte_half(b.parts[p], from);
                let extend = |s: &mut Self, v: V, signed: bool| {
                    let mnemonic = if signed { Mnemonic::Vpmovsxbw } else { Mnemonic::Vpmovzxbw };
                    s.vec(mnemonic, size, &[Opnd::Reg(v, half_size(size))])
                };
                let x = extend(self, x, elem.is_signed());
                let y = extend(self, y, elem.is_signed() && !counts);
                let ty = Type::vector(wide, count);
                let (x, y) = (self.one_part(ty, x), self.one_part(ty, y));
                let out = self.lanes_values(None, bin, &x, &y)?.parts[0];
                halves.push(self.vec(Mnemonic::Vpmovwb, half_size(size), &[Opnd::Reg(out, size)]));
            }
            parts.push(match halves[..] {
                [low, high] => self.vec(
                    Mnemonic::Vinserti64x4,
                    Size::Z,
                    &[Opnd::Reg(low, Size::Z), Opnd::Reg(high, Size::Y), Opnd::Imm(1)],
                ),
                _ => halves[0],
            });
        }
        Ok(self.value(a.ty, parts))
    }

    fn byte_half(&mut self, v: V, from: u16) -> V {
        match from {
            0 => v,
            _ => self.vec(Mnemonic::Vextracti64x4, Size::Y, &[Opnd::Reg(v, Size::Z), Opnd::Imm(1)]),
        }
    }

    /// A value of one part, however many lanes that has.
    fn one_part(&self, ty: Type, part: V) -> Val {
        Val { ty, per: ty.lanes, parts: vec![part], imm: None, mem: None }
    }
}
