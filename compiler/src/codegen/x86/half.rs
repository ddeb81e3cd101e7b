//! `F16` and `BF16`: conversions that round to nearest even.

use super::inst::{Opnd, Size, V};
use super::mask::Logic;
use super::memory::half_size;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use iced_x86::Mnemonic;

impl Sel<'_> {
    /// Lanes of 16 bits to `F32`; `size` is that of the result.
    pub(super) fn widen_bf16(&mut self, bits: V, size: Size) -> V {
        let wide = self.vec(Mnemonic::Vpmovzxwd, size, &[Opnd::Reg(bits, half_size(size))]);
        self.vec(Mnemonic::Vpslld, size, &[Opnd::Reg(wide, size), Opnd::Imm(16)])
    }

    /// `F32` lanes in a register of `size` as 16-bit lanes in one of half that.
    pub(super) fn f16_lanes(&mut self, v: V, size: Size) -> V {
        self.vec(Mnemonic::Vcvtps2ph, half_size(size), &[Opnd::Reg(v, size), Opnd::Imm(0)])
    }

    pub(super) fn bf16_lanes(&mut self, v: V, size: Size) -> V {
        let rounded = self.bf16_bits(v, size);
        let lanes = match size {
            Size::Z => 16,
            Size::Y => 8,
            _ => 4,
        };
        self.narrow_part(4, 2, rounded, lanes)
    }

    /// The rounded bits in the low halves of 32-bit lanes.
    fn bf16_bits(&mut self, v: V, size: Size) -> V {
        let x = Opnd::Reg(v, size);
        let last = self.vec(Mnemonic::Vpsrld, size, &[x, Opnd::Imm(16)]);
        let one = self.i32_constant(1);
        let odd = self.logic(Logic::And, size, last, one);
        let half = self.i32_constant(0x7fff);
        let sum = self.vec(Mnemonic::Vpaddd, size, &[x, Opnd::Reg(half, size)]);
        let sum = self.vec(Mnemonic::Vpaddd, size, &[Opnd::Reg(sum, size), Opnd::Reg(odd, size)]);
        // Adding could carry a NaN over: it keeps its top bits and becomes quiet.
        let quiet = self.i32_constant(0x0040_0000);
        let quiet = self.logic(Logic::Or, size, v, quiet);
        let sum = self.float_choice(DType::F32, size, (v, 3, v), (quiet, sum));
        self.vec(Mnemonic::Vpsrld, size, &[Opnd::Reg(sum, size), Opnd::Imm(16)])
    }

    /// `F32` lanes rounded to a half type and back.
    pub(super) fn round_to_half(&mut self, dtype: DType, a: &Val) -> Res<Val> {
        // Doubles are rounded once only.
        let single;
        let a = match a.ty.elem {
            DType::F64 => {
                single = self.convert(DType::F32, a, Self::round_to_odd);
                &single
            }
            _ => a,
        };
        let mut parts = vec![];
        for (p, v) in a.parts.iter().enumerate() {
            let size = Self::part_size(a, p);
            parts.push(match dtype {
                DType::F16 => {
                    let bits = self.f16_lanes(*v, size);
                    self.vec(Mnemonic::Vcvtph2ps, size, &[Opnd::Reg(bits, half_size(size))])
                }
                _ => {
                    let bits = self.bf16_bits(*v, size);
                    self.vec(Mnemonic::Vpslld, size, &[Opnd::Reg(bits, size), Opnd::Imm(16)])
                }
            });
        }
        Ok(self.value(a.ty, parts))
    }
}
