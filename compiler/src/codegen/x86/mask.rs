//! Comparisons, choices and logic of masks.

use super::float::of;
use super::inst::{Class, Opnd, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Reg, Type};
use iced_x86::{Code, Mnemonic};

fn k(v: V) -> Opnd {
    Opnd::Reg(v, Size::K)
}

impl Sel<'_> {
    pub(super) fn compare(&mut self, cmp: Cmp, a: Reg, b: Reg) -> Res<Val> {
        let ty = self.kernel.regs[a.0 as usize];
        match Self::class(ty) {
            Class::Gpr => self.int_compare(cmp, a, b),
            Class::Mask => {
                let (a, b) = (self.val(a)?, self.val(b)?);
                let b = self.mask_per(&b, a.per);
                let mnemonic = if cmp == Cmp::Eq { Mnemonic::Kxnorq } else { Mnemonic::Kxorq };
                Ok(self.mask_zip(mnemonic, &a, &b))
            }
            Class::Vec => {
                let (a, b) = (self.val(a)?, self.val(b)?);
                let masks = self.compare_lanes(cmp, &a, &b);
                if ty.lanes > 1 {
                    return Ok(masks);
                }
                // Of a scalar only the first bit means anything.
                let out = self.gpr(Mnemonic::Kmovd, Size::D, &[k(masks.parts[0])]);
                self.update(Mnemonic::And, out, Size::D, &[Opnd::Imm(1)]);
                Ok(self.scalar_value(DType::Bool, out))
            }
        }
    }

    /// One mask a part.
    pub(super) fn compare_lanes(&mut self, cmp: Cmp, a: &Val, b: &Val) -> Val {
        let elem = a.ty.elem;
        let (mnemonic, how) = if elem.is_float() {
            // Ordered and quiet, but "not equal", which is true of NaN.
            let how = match cmp {
                Cmp::Eq => 0,
                Cmp::Lt => 17,
                Cmp::Le => 18,
                Cmp::Ne => 4,
                Cmp::Ge => 29,
                Cmp::Gt => 30,
            };
            (of(elem, Mnemonic::Vcmpps, Mnemonic::Vcmppd), how)
        } else {
            let how = match cmp {
                Cmp::Eq => 0,
                Cmp::Lt => 1,
                Cmp::Le => 2,
                Cmp::Ne => 4,
                Cmp::Ge => 5,
                Cmp::Gt => 6,
            };
            let mnemonic = match (elem.size(), elem.is_signed()) {
                (1, true) => Mnemonic::Vpcmpb,
                (1, false) => Mnemonic::Vpcmpub,
                (2, true) => Mnemonic::Vpcmpw,
                (2, false) => Mnemonic::Vpcmpuw,
                (4, true) => Mnemonic::Vpcmpd,
                (4, false) => Mnemonic::Vpcmpud,
                (_, true) => Mnemonic::Vpcmpq,
                (_, false) => Mnemonic::Vpcmpuq,
            };
            (mnemonic, how)
        };
        let mut parts = vec![];
        for (p, (x, y)) in a.parts.iter().zip(&b.parts).enumerate() {
            let size = Self::part_size(a, p);
            parts.push(self.mask(mnemonic, &[Opnd::Reg(*x, size), Opnd::Reg(*y, size), Opnd::Imm(how)]));
        }
        Val { ty: a.ty.with_elem(DType::Bool), per: self.per(elem), parts, imm: None, mem: None }
    }

    fn mask_zip(&mut self, mnemonic: Mnemonic, a: &Val, b: &Val) -> Val {
        let parts = a.parts.iter().zip(&b.parts).map(|(x, y)| self.mask(mnemonic, &[k(*x), k(*y)])).collect();
        Val { ty: a.ty, per: a.per, parts, imm: None, mem: None }
    }

    pub(super) fn mask_not(&mut self, a: Reg) -> Res<Val> {
        let a = self.val(a)?;
        let parts = a.parts.iter().map(|x| self.mask(Mnemonic::Knotq, &[k(*x)])).collect();
        Ok(Val { parts, imm: None, ..a })
    }

    pub(super) fn mask_bin(&mut self, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (a, b) = (self.val(a)?, self.val(b)?);
        let b = self.mask_per(&b, a.per);
        let mnemonic = match bin {
            BinOp::And => Mnemonic::Kandq,
            BinOp::Or => Mnemonic::Korq,
            BinOp::Xor => Mnemonic::Kxorq,
            _ => return self.lacks(format!("{bin:?} of masks")),
        };
        Ok(self.mask_zip(mnemonic, &a, &b))
    }

    pub(super) fn mask_select(&mut self, mask: Reg, a: Reg, b: Reg) -> Res<Val> {
        let (mask, a, b) = (self.val(mask)?, self.val(a)?, self.val(b)?);
        let (a, b) = (self.mask_per(&a, mask.per), self.mask_per(&b, mask.per));
        let yes = self.mask_zip(Mnemonic::Kandq, &mask, &a);
        let no = self.mask_zip(Mnemonic::Kandnq, &mask, &b);
        Ok(self.mask_zip(Mnemonic::Korq, &yes, &no))
    }

    /// The same mask in parts of `per` lanes.
    pub(super) fn mask_per(&mut self, val: &Val, per: u16) -> Val {
        if val.per == per || val.ty.lanes == 1 || Self::class(val.ty) != Class::Mask {
            return val.clone();
        }
        let mut parts = vec![];
        for p in 0..val.ty.lanes.div_ceil(per) {
            let mut whole: Option<V> = None;
            // Parts of it, or the part that it is in.
            let (first, lanes) = (p * per, per.min(val.ty.lanes - p * per));
            for from in first / val.per..(first + lanes).div_ceil(val.per) {
                let part = val.parts[from as usize];
                let at = i32::from(from * val.per) - i32::from(first);
                let moved = match at {
                    0 => part,
                    1.. => {
                        // What lies beyond a part's lanes is anything.
                        let own = self.first_lanes(val.per);
                        let part = self.mask(Mnemonic::Kandq, &[k(part), k(own)]);
                        self.mask(Mnemonic::Kshiftlq, &[k(part), Opnd::Imm(i64::from(at))])
                    }
                    _ => self.mask(Mnemonic::Kshiftrq, &[k(part), Opnd::Imm(i64::from(-at))]),
                };
                whole = Some(match whole {
                    None => moved,
                    Some(before) => {
                        let own = self.first_lanes(from * val.per - first);
                        let before = self.mask(Mnemonic::Kandq, &[k(before), k(own)]);
                        self.mask(Mnemonic::Korq, &[k(before), k(moved)])
                    }
                });
            }
            parts.extend(whole);
        }
        Val { ty: val.ty, per, parts, imm: None, mem: None }
    }

    /// Lane-wise choice of vectors, and of scalar floats.
    pub(super) fn lanes_select(&mut self, mask: Reg, a: Reg, b: Reg) -> Res<Val> {
        let (mask, a, b) = (self.val(mask)?, self.val(a)?, self.val(b)?);
        let mask = match a.ty.lanes {
            1 => {
                let bit = self.mask_of_bool(mask.parts[0]);
                Val { parts: vec![bit], ..mask }
            }
            _ => self.mask_per(&mask, a.per),
        };
        Ok(self.blend(&mask, &a, &b))
    }

    /// `a` where the mask is set, else `b`.
    pub(super) fn blend(&mut self, mask: &Val, a: &Val, b: &Val) -> Val {
        let mnemonic = match (a.ty.elem, a.ty.elem.size()) {
            (DType::F32, _) => Mnemonic::Vblendmps,
            (DType::F64, _) => Mnemonic::Vblendmpd,
            (_, 1) => Mnemonic::Vpblendmb,
            (_, 2) => Mnemonic::Vpblendmw,
            (_, 4) => Mnemonic::Vpblendmd,
            _ => Mnemonic::Vpblendmq,
        };
        let mut parts = vec![];
        for (p, m) in mask.parts.iter().enumerate() {
            let size = Self::part_size(a, p);
            let to = self.fresh(Class::Vec);
            // Both sources are read: lanes outside of the mask come from the first.
            let ops = [Opnd::Reg(to, size), Opnd::Reg(b.parts[p], size), Opnd::Reg(a.parts[p], size)];
            let mut inst = super::inst::Inst::new(mnemonic, super::inst::Role::Def, &ops);
            inst.mask = Some((*m, false));
            self.push(inst);
            parts.push(to);
        }
        self.value(a.ty, parts)
    }

    /// A mask as numbers 0 and 1.
    pub(super) fn mask_to_numbers(&mut self, to: DType, a: &Val) -> Val {
        let bytes = to.size();
        let one = match to {
            DType::F32 => u64::from(1f32.to_bits()),
            DType::F64 => 1f64.to_bits(),
            _ => 1,
        };
        let one = self.splat_constant(one, bytes);
        let mnemonic = match bytes {
            1 => Mnemonic::Vmovdqu8,
            2 => Mnemonic::Vmovdqu16,
            4 => Mnemonic::Vmovaps,
            _ => Mnemonic::Vmovapd,
        };
        let ty = a.ty.with_elem(to);
        let masks = self.mask_per(a, self.per(to));
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(ty.lanes, masks.per).enumerate() {
            let size = Self::size(lanes, bytes);
            parts.push(self.vec_zeroed(mnemonic, size, masks.parts[p], &[Opnd::Reg(one, size)]));
        }
        self.value(ty, parts)
    }

    /// One lane of a mask as a scalar `Bool`.
    pub(super) fn mask_lane(&mut self, a: &Val, lane: u16) -> V {
        let (p, lane) = ((lane / a.per) as usize, lane % a.per);
        let out = self.gpr(Mnemonic::Kmovq, Size::Q, &[k(a.parts[p])]);
        if lane > 0 {
            self.update(Mnemonic::Shr, out, Size::Q, &[Opnd::Imm(i64::from(lane))]);
        }
        self.update(Mnemonic::And, out, Size::D, &[Opnd::Imm(1)]);
        out
    }

    /// A mask with one lane replaced by a scalar `Bool`.
    pub(super) fn mask_insert(&mut self, a: &Val, lane: u16, v: V) -> Val {
        let (p, lane) = ((lane / a.per) as usize, lane % a.per);
        let bits = self.gpr(Mnemonic::Kmovq, Size::Q, &[k(a.parts[p])]);
        let clear = self.gpr_constant(!(1u64 << lane));
        self.update(Mnemonic::And, bits, Size::Q, &[Opnd::Reg(clear, Size::Q)]);
        let bit = self.copy(v);
        self.update(Mnemonic::Shl, bit, Size::Q, &[Opnd::Imm(i64::from(lane))]);
        self.update(Code::Or_r64_rm64, bits, Size::Q, &[Opnd::Reg(bit, Size::Q)]);
        let part = self.mask(Mnemonic::Kmovq, &[Opnd::Reg(bits, Size::Q)]);
        let mut out = Val { imm: None, ..a.clone() };
        out.parts[p] = part;
        out
    }

    /// A vector of `Bool`s as `I32` lanes 0 and -1.
    pub(super) fn mask_to_lanes(&mut self, a: &Val) -> Val {
        let ty = Type::vector(DType::I32, a.ty.lanes);
        let masks = self.mask_per(a, self.per(DType::I32));
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(ty.lanes, masks.per).enumerate() {
            parts.push(self.vec(Mnemonic::Vpmovm2d, Self::size(lanes, 4), &[k(masks.parts[p])]));
        }
        self.value(ty, parts)
    }

    /// The other way round.
    pub(super) fn lanes_to_mask(&mut self, a: &Val) -> Val {
        let parts = a.parts.iter().enumerate().map(|(p, v)| {
            let size = Self::part_size(a, p);
            (*v, size)
        });
        let parts: Vec<(V, Size)> = parts.collect();
        let parts = parts.into_iter().map(|(v, size)| self.mask(Mnemonic::Vpmovd2m, &[Opnd::Reg(v, size)])).collect();
        Val { ty: a.ty.with_elem(DType::Bool), per: a.per, parts, imm: None, mem: None }
    }
}
