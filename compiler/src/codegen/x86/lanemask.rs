//! Masks without registers of their own: vectors whose lanes are all ones or all zeros.
//!
//! In one kernel all masks have lanes of the same width, that of most of its vectors ([`Sel::mask_bytes`]), so that most
//! comparisons and choices need no conversion.

use super::float::of;
use super::inst::{Opnd, Size, V};
use super::lanewise::by_size;
use super::mask::{Logic, float_predicate};
use super::select::{Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use iced_x86::Mnemonic;

/// The signed integers of some bytes.
pub(super) fn signed(bytes: usize) -> DType {
    match bytes {
        1 => DType::I8,
        2 => DType::I16,
        4 => DType::I32,
        _ => DType::I64,
    }
}

impl Sel<'_> {
    /// The instruction for bits of two vectors.
    pub(super) fn logic_of(&self, logic: Logic) -> Mnemonic {
        match (logic, self.isa.evex) {
            (Logic::And, true) => Mnemonic::Vpandd,
            (Logic::And, false) => Mnemonic::Vpand,
            (Logic::AndNot, true) => Mnemonic::Vpandnd,
            (Logic::AndNot, false) => Mnemonic::Vpandn,
            (Logic::Or, true) => Mnemonic::Vpord,
            (Logic::Or, false) => Mnemonic::Vpor,
            (Logic::Xor, true) => Mnemonic::Vpxord,
            (Logic::Xor, false) => Mnemonic::Vpxor,
        }
    }

    pub(super) fn logic(&mut self, logic: Logic, size: Size, x: V, y: V) -> V {
        self.vec(self.logic_of(logic), size, &[Opnd::Reg(x, size), Opnd::Reg(y, size)])
    }

    pub(super) fn complement(&mut self, size: Size, x: V) -> V {
        let ones = self.splat_constant(u64::MAX, 8);
        self.logic(Logic::Xor, size, x, ones)
    }

    /// A mask as integers 0 and -1.
    pub(super) fn ints_of_mask(&self, a: &Val) -> Val {
        self.value(a.ty.with_elem(signed(self.mask_bytes())), a.parts.clone())
    }

    /// Integers 0 and -1 of any width as a mask.
    pub(super) fn mask_of_ints(&mut self, a: &Val) -> Val {
        let own = self.resize(signed(self.mask_bytes()), a);
        Val { ty: a.ty.with_elem(DType::Bool), per: self.per(DType::Bool), ..own }
    }

    /// A mask with lanes of `bytes` bytes.
    pub(super) fn mask_lanes(&mut self, a: &Val, bytes: usize) -> Val {
        let ints = self.ints_of_mask(a);
        self.resize(signed(bytes), &ints)
    }

    /// Comparison as integers 0 and -1 of the operands' width.
    pub(super) fn compare_vectors(&mut self, cmp: Cmp, a: &Val, b: &Val) -> Val {
        let elem = a.ty.elem;
        let mut parts = vec![];
        for (p, (x, y)) in a.parts.iter().zip(&b.parts).enumerate() {
            let size = Self::part_size(a, p);
            parts.push(match elem.is_float() {
                true => {
                    let sources = [Opnd::Reg(*x, size), Opnd::Reg(*y, size), Opnd::Imm(float_predicate(cmp))];
                    self.vec(of(elem, Mnemonic::Vcmpps, Mnemonic::Vcmppd), size, &sources)
                }
                false => self.compare_ints_part(cmp, elem, size, *x, *y),
            });
        }
        self.value(a.ty.with_elem(signed(elem.size())), parts)
    }

    pub(super) fn compare_ints_part(&mut self, cmp: Cmp, elem: DType, size: Size, x: V, y: V) -> V {
        let bytes = elem.size();
        let equal = by_size(bytes, [Mnemonic::Vpcmpeqb, Mnemonic::Vpcmpeqw, Mnemonic::Vpcmpeqd, Mnemonic::Vpcmpeqq]);
        let greater = by_size(bytes, [Mnemonic::Vpcmpgtb, Mnemonic::Vpcmpgtw, Mnemonic::Vpcmpgtd, Mnemonic::Vpcmpgtq]);
        let two = |s: &mut Self, mnemonic, x: V, y: V| s.vec(mnemonic, size, &[Opnd::Reg(x, size), Opnd::Reg(y, size)]);
        // Signed comparisons order numbers whose top bits are turned over as unsigned ones would.
        let ordered = |s: &mut Self, v: V| match !elem.is_signed() && bytes == 8 {
            true => {
                let top = s.splat_constant(1 << 63, 8);
                s.logic(Logic::Xor, size, v, top)
            }
            false => v,
        };
        let by_extremum = !elem.is_signed() && bytes < 8;
        match cmp {
            Cmp::Eq => two(self, equal, x, y),
            Cmp::Ge | Cmp::Le if by_extremum => {
                let all = match cmp {
                    Cmp::Ge => [Mnemonic::Vpmaxub, Mnemonic::Vpmaxuw, Mnemonic::Vpmaxud, Mnemonic::INVALID],
                    _ => [Mnemonic::Vpminub, Mnemonic::Vpminuw, Mnemonic::Vpminud, Mnemonic::INVALID],
                };
                let extremum = two(self, by_size(bytes, all), x, y);
                two(self, equal, extremum, x)
            }
            Cmp::Gt | Cmp::Lt if !by_extremum => {
                let (x, y) = if cmp == Cmp::Gt { (x, y) } else { (y, x) };
                let (x, y) = (ordered(self, x), ordered(self, y));
                two(self, greater, x, y)
            }
            Cmp::Ne | Cmp::Ge | Cmp::Le | Cmp::Gt | Cmp::Lt => {
                let other = self.compare_ints_part(super::stmt::opposite(cmp), elem, size, x, y);
                self.complement(size, other)
            }
        }
    }

    /// `base` with one lane from `with`.
    pub(super) fn blend_lane(&mut self, bytes: usize, size: Size, lane: u16, base: V, with: V) -> V {
        let dwords = bytes / 4;
        if dwords > 0 {
            let bits = ((1i64 << dwords) - 1) << (usize::from(lane) * dwords);
            let sources = [Opnd::Reg(base, size), Opnd::Reg(with, size), Opnd::Imm(bits)];
            return self.vec(Mnemonic::Vpblendd, size, &sources);
        }
        let at = usize::from(lane) * bytes;
        let mask: Vec<u8> =
            (0..self.isa.bytes.into()).map(|i| if (at..at + bytes).contains(&i) { 0xff } else { 0 }).collect();
        let mask = self.vector_constant(&mask);
        self.vec(Mnemonic::Vpblendvb, size, &[Opnd::Reg(base, size), Opnd::Reg(with, size), Opnd::Reg(mask, size)])
    }
}
