//! Comparisons, choices and logic of masks, whichever form masks have: registers of their own, as here, or vectors
//! ([`super::lanemask`]).

use super::float::of;
use super::inst::{Class, Inst, Opnd, Role, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Op, Reg, Type};
use iced_x86::{Code, Mnemonic};

fn k(v: V) -> Opnd {
    Opnd::Reg(v, Size::K)
}

/// What is done with two masks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Logic {
    And,
    /// Not the first, and the second.
    AndNot,
    Or,
    Xor,
}

/// The predicate of a float comparison: ordered and quiet, but "not equal", which is true of NaN.
pub(super) fn float_predicate(cmp: Cmp) -> i64 {
    match cmp {
        Cmp::Eq => 0,
        Cmp::Lt => 17,
        Cmp::Le => 18,
        Cmp::Ne => 4,
        Cmp::Ge => 29,
        Cmp::Gt => 30,
    }
}

impl Sel<'_> {
    pub(super) fn compare(&mut self, cmp: Cmp, a: Reg, b: Reg) -> Res<Val> {
        match Self::class(self.kernel.regs[a.0 as usize]) {
            Class::Gpr => self.int_compare(cmp, a, b),
            Class::Mask => {
                let (a, b) = (self.val(a)?, self.val(b)?);
                let b = self.mask_per(&b, a.per);
                let unequal = self.mask_zip(Logic::Xor, &a, &b);
                Ok(if cmp == Cmp::Eq { self.inverse(&unequal) } else { unequal })
            }
            Class::Vec => {
                let (a, b) = (self.val(a)?, self.val(b)?);
                Ok(self.compare_values(cmp, &a, &b))
            }
        }
    }

    /// Comparison of vectors, or of scalar floats.
    pub(super) fn compare_values(&mut self, cmp: Cmp, a: &Val, b: &Val) -> Val {
        let masks = self.compare_parts(cmp, a, b);
        if a.ty.lanes > 1 {
            return if self.isa.evex { masks } else { self.mask_of_ints(&masks) };
        }
        // Of a scalar only the first bit means anything.
        let out = match self.isa.evex {
            true => self.gpr(Mnemonic::Kmovd, Size::D, &[k(masks.parts[0])]),
            false => self.gpr(Mnemonic::Vmovd, Size::D, &[Opnd::Reg(masks.parts[0], Size::X)]),
        };
        self.update(Mnemonic::And, out, Size::D, &[Opnd::Imm(1)]);
        self.scalar_value(DType::Bool, out)
    }

    /// One mask a part, in the form for their type.
    pub(super) fn compare_parts(&mut self, cmp: Cmp, a: &Val, b: &Val) -> Val {
        if self.isa.evex { self.compare_lanes(cmp, a, b) } else { self.compare_vectors(cmp, a, b) }
    }

    fn compare_lanes(&mut self, cmp: Cmp, a: &Val, b: &Val) -> Val {
        let elem = a.ty.elem;
        let (mnemonic, how) = if elem.is_float() {
            (of(elem, Mnemonic::Vcmpps, Mnemonic::Vcmppd), float_predicate(cmp))
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

    fn mask_zip(&mut self, logic: Logic, a: &Val, b: &Val) -> Val {
        let one = |s: &mut Self, x: V, y: V| {
            let full = s.isa.full();
            match (logic, s.isa.evex) {
                (Logic::And, true) => s.mask(Mnemonic::Kandq, &[k(x), k(y)]),
                (Logic::AndNot, true) => s.mask(Mnemonic::Kandnq, &[k(x), k(y)]),
                (Logic::Or, true) => s.mask(Mnemonic::Korq, &[k(x), k(y)]),
                (Logic::Xor, true) => s.mask(Mnemonic::Kxorq, &[k(x), k(y)]),
                (_, false) => s.logic(logic, full, x, y),
            }
        };
        let parts = a.parts.iter().zip(&b.parts).map(|(x, y)| one(self, *x, *y)).collect();
        Val { ty: a.ty, per: a.per, parts, imm: None, mem: None }
    }

    fn inverse(&mut self, a: &Val) -> Val {
        let one = |s: &mut Self, x: V| {
            let full = s.isa.full();
            if s.isa.evex { s.mask(Mnemonic::Knotq, &[k(x)]) } else { s.complement(full, x) }
        };
        let parts = a.parts.iter().map(|x| one(self, *x)).collect();
        Val { parts, imm: None, ..a.clone() }
    }

    pub(super) fn mask_not(&mut self, a: Reg) -> Res<Val> {
        let a = self.val(a)?;
        Ok(self.inverse(&a))
    }

    pub(super) fn mask_bin(&mut self, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (a, b) = (self.val(a)?, self.val(b)?);
        let b = self.mask_per(&b, a.per);
        let logic = match bin {
            BinOp::And => Logic::And,
            BinOp::Or => Logic::Or,
            BinOp::Xor => Logic::Xor,
            _ => return self.lacks(format!("{bin:?} of masks")),
        };
        Ok(self.mask_zip(logic, &a, &b))
    }

    pub(super) fn mask_select(&mut self, mask: Reg, a: Reg, b: Reg) -> Res<Val> {
        let (mask, a, b) = (self.val(mask)?, self.val(a)?, self.val(b)?);
        let (a, b) = (self.mask_per(&a, mask.per), self.mask_per(&b, mask.per));
        let yes = self.mask_zip(Logic::And, &mask, &a);
        let no = self.mask_zip(Logic::AndNot, &mask, &b);
        Ok(self.mask_zip(Logic::Or, &yes, &no))
    }

    /// The same mask in parts of `per` lanes. Masks that are vectors all have one form.
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

    /// A mask in the form in which it acts on vectors of `elem`.
    pub(super) fn mask_for(&mut self, val: &Val, elem: DType) -> Val {
        match self.isa.evex {
            true => self.mask_per(val, self.per(elem)),
            false => self.mask_lanes(val, elem.size()),
        }
    }

    /// The mask that has all lanes, or none.
    pub(super) fn mask_of_all(&mut self, set: bool) -> V {
        let bits = if set { u64::MAX } else { 0 };
        if self.isa.evex { self.mask_constant(bits) } else { self.splat_constant(bits, 8) }
    }

    /// A scalar `Bool` in every lane of a mask.
    pub(super) fn mask_of_bool(&mut self, v: V) -> V {
        // 0 or all ones.
        let bits = self.gpr_constant(0);
        self.update(Code::Sub_r64_rm64, bits, Size::Q, &[Opnd::Reg(v, Size::Q)]);
        let bits = Opnd::Reg(bits, Size::Q);
        if self.isa.evex {
            return self.mask(Mnemonic::Kmovq, &[bits]);
        }
        let low = self.vec(Mnemonic::Vmovq, Size::X, &[bits]);
        self.vec(Mnemonic::Vpbroadcastq, self.isa.full(), &[Opnd::Reg(low, Size::X)])
    }

    /// Lane-wise choice of vectors, and of scalar floats.
    pub(super) fn lanes_select(&mut self, mask: Reg, a: Reg, b: Reg) -> Res<Val> {
        if let Some(mnemonic) = self.greater_or_less(mask, a, b) {
            return self.chosen(mnemonic, a, b);
        }
        let (mask, a, b) = (self.val(mask)?, self.val(a)?, self.val(b)?);
        let mask = match a.ty.lanes {
            1 => {
                let bits = self.mask_of_bool(mask.parts[0]);
                Val { parts: vec![bits], ..mask }
            }
            _ => self.mask_for(&mask, a.ty.elem),
        };
        Ok(self.blend(&mask, &a, &b))
    }

    /// The instruction that gives `a` where the mask says that it is less than `b`, or greater, else `b`.
    fn greater_or_less(&self, mask: Reg, a: Reg, b: Reg) -> Option<Mnemonic> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let Some(Op::Cmp(cmp, x, y)) = self.facts.defs[mask.0 as usize] else { return None };
        let less = match cmp {
            Cmp::Lt => true,
            Cmp::Gt => false,
            _ => return None,
        };
        let less = match (*x, *y) {
            two if two == (a, b) => less,
            two if two == (b, a) => !less,
            _ => return None,
        };
        match (elem, less) {
            (DType::F32, true) => Some(Mnemonic::Vminps),
            (DType::F32, false) => Some(Mnemonic::Vmaxps),
            (DType::F64, true) => Some(Mnemonic::Vminpd),
            (DType::F64, false) => Some(Mnemonic::Vmaxpd),
            _ => None,
        }
    }

    /// The instructions give the second operand where either is NaN, as a choice does.
    fn chosen(&mut self, mnemonic: Mnemonic, a: Reg, b: Reg) -> Res<Val> {
        let (a, mut b) = (self.val(a)?, self.used(b)?);
        if a.ty.lanes == 1 {
            self.complete(&mut b);
        }
        let mut parts = vec![];
        for (p, x) in a.parts.iter().enumerate() {
            let size = Self::part_size(&a, p);
            let y = self.source(&mut b, p, size);
            parts.push(self.vec(mnemonic, size, &[Opnd::Reg(*x, size), y]));
        }
        Ok(self.value(a.ty, parts))
    }

    /// `a` where the mask is set, else `b`; the mask has the form for their type.
    pub(super) fn blend(&mut self, mask: &Val, a: &Val, b: &Val) -> Val {
        let mut parts = vec![];
        for (p, m) in mask.parts.iter().enumerate() {
            let size = Self::part_size(a, p);
            parts.push(self.blend_part(a.ty.elem, size, *m, a.parts[p], b.parts[p]));
        }
        self.value(a.ty, parts)
    }

    pub(super) fn blend_part(&mut self, elem: DType, size: Size, mask: V, yes: V, no: V) -> V {
        if !self.isa.evex {
            let mnemonic = match elem {
                DType::F32 => Mnemonic::Vblendvps,
                DType::F64 => Mnemonic::Vblendvpd,
                _ => Mnemonic::Vpblendvb,
            };
            return self.vec(mnemonic, size, &[Opnd::Reg(no, size), Opnd::Reg(yes, size), Opnd::Reg(mask, size)]);
        }
        let mnemonic = match (elem, elem.size()) {
            (DType::F32, _) => Mnemonic::Vblendmps,
            (DType::F64, _) => Mnemonic::Vblendmpd,
            (_, 1) => Mnemonic::Vpblendmb,
            (_, 2) => Mnemonic::Vpblendmw,
            (_, 4) => Mnemonic::Vpblendmd,
            _ => Mnemonic::Vpblendmq,
        };
        let to = self.fresh(Class::Vec);
        // Both sources are read: lanes outside of the mask come from the first.
        let ops = [Opnd::Reg(to, size), Opnd::Reg(no, size), Opnd::Reg(yes, size)];
        self.push(Inst { mask: Some((mask, false)), ..Inst::new(mnemonic, Role::Def, &ops) });
        to
    }

    /// `yes` in the lanes of floats where a comparison holds, else `no`; all have lanes of one width.
    pub(super) fn float_choice(
        &mut self,
        elem: DType,
        size: Size,
        (x, predicate, y): (V, i64, V),
        (yes, no): (V, V),
    ) -> V {
        let compare = of(elem, Mnemonic::Vcmpps, Mnemonic::Vcmppd);
        let sources = [Opnd::Reg(x, size), Opnd::Reg(y, size), Opnd::Imm(predicate)];
        let mask = if self.isa.evex { self.mask(compare, &sources) } else { self.vec(compare, size, &sources) };
        self.blend_part(elem, size, mask, yes, no)
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
        let ty = a.ty.with_elem(to);
        let masks = self.mask_for(a, to);
        let mut parts = vec![];
        for (p, lanes) in Self::lanes_of(ty.lanes, masks.per).enumerate() {
            parts.push(self.keep_lanes(bytes, Self::size(lanes, bytes), masks.parts[p], one));
        }
        self.value(ty, parts)
    }

    /// The lanes of a mask from a vector with lanes of some bytes; the others are zero.
    pub(super) fn keep_lanes(&mut self, bytes: usize, size: Size, mask: V, v: V) -> V {
        if !self.isa.evex {
            return self.logic(Logic::And, size, mask, v);
        }
        let mnemonic = match bytes {
            1 => Mnemonic::Vmovdqu8,
            2 => Mnemonic::Vmovdqu16,
            4 => Mnemonic::Vmovaps,
            _ => Mnemonic::Vmovapd,
        };
        self.vec_zeroed(mnemonic, size, mask, &[Opnd::Reg(v, size)])
    }

    /// `count` bytes as a mask: whatever is not zero.
    pub(super) fn mask_of_bytes(&mut self, v: V, count: u16) -> V {
        let size = Self::size(count, 1);
        let bytes = Opnd::Reg(v, size);
        if self.isa.evex {
            return self.mask(Mnemonic::Vptestmb, &[bytes, bytes]);
        }
        let zero = self.splat_constant(0, 8);
        let unset = self.vec(Mnemonic::Vpcmpeqb, size, &[bytes, Opnd::Reg(zero, size)]);
        let set = self.vec(Mnemonic::Vpcmpeqb, size, &[Opnd::Reg(unset, size), Opnd::Reg(zero, size)]);
        match self.mask_bytes() {
            1 => set,
            wide => self.widen_part(true, 1, wide, set, count),
        }
    }

    /// The first `count` lanes of a mask as bytes 0 and 1.
    pub(super) fn bytes_of_mask(&mut self, mask: V, count: u16) -> V {
        let bytes = match self.isa.evex || self.mask_bytes() == 1 {
            true => mask,
            false => self.narrow_part(self.mask_bytes(), 1, mask, count),
        };
        let one = self.splat_constant(1, 1);
        self.keep_lanes(1, Self::size(count, 1), bytes, one)
    }

    /// One lane of a mask as a scalar `Bool`.
    pub(super) fn mask_lane(&mut self, a: &Val, lane: u16) -> V {
        if !self.isa.evex {
            let ints = self.ints_of_mask(a);
            let low = self.lowered(&ints, lane);
            let out = self.gpr(Mnemonic::Vmovd, Size::D, &[Opnd::Reg(low, Size::X)]);
            self.update(Mnemonic::And, out, Size::D, &[Opnd::Imm(1)]);
            return out;
        }
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
        let (p, at) = ((lane / a.per) as usize, lane % a.per);
        let mut out = Val { imm: None, ..a.clone() };
        if !self.isa.evex {
            let all = self.mask_of_bool(v);
            let size = self.isa.full();
            out.parts[p] = self.blend_lane(self.mask_bytes(), size, at, a.parts[p], all);
            return out;
        }
        let bits = self.gpr(Mnemonic::Kmovq, Size::Q, &[k(a.parts[p])]);
        let clear = self.gpr_constant(!(1u64 << at));
        self.update(Mnemonic::And, bits, Size::Q, &[Opnd::Reg(clear, Size::Q)]);
        let bit = self.copy(v);
        self.update(Mnemonic::Shl, bit, Size::Q, &[Opnd::Imm(i64::from(at))]);
        self.update(Code::Or_r64_rm64, bits, Size::Q, &[Opnd::Reg(bit, Size::Q)]);
        out.parts[p] = self.mask(Mnemonic::Kmovq, &[Opnd::Reg(bits, Size::Q)]);
        out
    }

    /// A vector of `Bool`s as integer lanes 0 and -1.
    pub(super) fn mask_to_lanes(&mut self, a: &Val) -> Val {
        if !self.isa.evex {
            return self.ints_of_mask(a);
        }
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
        if !self.isa.evex {
            return self.mask_of_ints(a);
        }
        let mut parts = vec![];
        for (p, v) in a.parts.iter().enumerate() {
            parts.push(self.mask(Mnemonic::Vpmovd2m, &[Opnd::Reg(*v, Self::part_size(a, p))]));
        }
        Val { ty: a.ty.with_elem(DType::Bool), per: a.per, parts, imm: None, mem: None }
    }
}
