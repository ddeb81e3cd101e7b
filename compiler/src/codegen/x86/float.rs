//! Floating-point arithmetic.

use super::inst::{Opnd, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Reg, UnOp};
use iced_x86::Mnemonic;

/// The form of an instruction for `F32` or for `F64`.
pub(super) fn of(elem: DType, single: Mnemonic, double: Mnemonic) -> Mnemonic {
    if elem == DType::F64 { double } else { single }
}

impl Sel<'_> {
    pub(super) fn float_un(&mut self, un: UnOp, a: Reg) -> Res<Val> {
        let a = self.val(a)?;
        let (elem, bytes) = (a.ty.elem, a.ty.elem.size());
        let sign = 1u64 << (8 * bytes - 1);
        let mut parts = vec![];
        for (p, part) in a.parts.iter().enumerate() {
            let size = Self::part_size(&a, p);
            let x = Opnd::Reg(*part, size);
            parts.push(match un {
                UnOp::Neg => {
                    let sign = self.splat_constant(sign, bytes);
                    self.vec(of(elem, Mnemonic::Vxorps, Mnemonic::Vxorpd), size, &[x, Opnd::Reg(sign, size)])
                }
                UnOp::Abs => {
                    let rest = self.splat_constant(sign - 1, bytes);
                    self.vec(of(elem, Mnemonic::Vandps, Mnemonic::Vandpd), size, &[x, Opnd::Reg(rest, size)])
                }
                UnOp::Sqrt => self.vec(of(elem, Mnemonic::Vsqrtps, Mnemonic::Vsqrtpd), size, &[x]),
                UnOp::Round => self.rounded(elem, size, *part, 8),
                UnOp::Floor => self.rounded(elem, size, *part, 9),
                UnOp::Ceil => self.rounded(elem, size, *part, 10),
                UnOp::Trunc => self.rounded(elem, size, *part, 11),
                UnOp::Not | UnOp::Popcnt => return self.lacks(format!("{un:?} of {elem}")),
            });
        }
        Ok(self.value(a.ty, parts))
    }

    /// Rounded to integral values: 8 (exceptions are suppressed) and the direction.
    pub(super) fn rounded(&mut self, elem: DType, size: Size, v: V, how: i64) -> V {
        let mnemonic = match self.isa.evex {
            // The scale is 1.
            true => of(elem, Mnemonic::Vrndscaleps, Mnemonic::Vrndscalepd),
            false => of(elem, Mnemonic::Vroundps, Mnemonic::Vroundpd),
        };
        self.vec(mnemonic, size, &[Opnd::Reg(v, size), Opnd::Imm(how)])
    }

    pub(super) fn float_bin(&mut self, reg: Option<Reg>, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (a, b) = (self.used(a)?, self.used(b)?);
        self.float_values(reg, bin, a, b)
    }

    /// An operation on values; `reg` is the register that is defined, if it is one.
    pub(super) fn float_values(&mut self, reg: Option<Reg>, bin: BinOp, mut a: Val, mut b: Val) -> Res<Val> {
        let elem = a.ty.elem;
        let mnemonic = match bin {
            BinOp::Add => of(elem, Mnemonic::Vaddps, Mnemonic::Vaddpd),
            BinOp::Sub => of(elem, Mnemonic::Vsubps, Mnemonic::Vsubpd),
            BinOp::Mul => of(elem, Mnemonic::Vmulps, Mnemonic::Vmulpd),
            BinOp::Div => of(elem, Mnemonic::Vdivps, Mnemonic::Vdivpd),
            BinOp::Min => of(elem, Mnemonic::Vminps, Mnemonic::Vminpd),
            BinOp::Max => of(elem, Mnemonic::Vmaxps, Mnemonic::Vmaxpd),
            _ => return self.lacks(format!("{bin:?} of {elem}")),
        };
        let number = |val: &Val| val.imm.is_some_and(|bits| !is_nan(elem, bits));
        let extremum = matches!(bin, BinOp::Min | BinOp::Max);
        // The instructions give the second operand where either is NaN: a constant comes first.
        let known = match extremum && !number(&a) && number(&b) {
            true => {
                std::mem::swap(&mut a, &mut b);
                true
            }
            false => number(&a),
        };
        if matches!(bin, BinOp::Add | BinOp::Mul) && a.mem.is_some() && b.mem.is_none() {
            std::mem::swap(&mut a, &mut b);
        }
        self.complete(&mut a);
        if extremum && !known {
            self.complete(&mut b);
        }
        let mut parts = vec![];
        for p in 0..a.parts.len() {
            let size = Self::part_size(&a, p);
            let x = Opnd::Reg(a.parts[p], size);
            let y = self.scalar_source(&mut b, p, size);
            if extremum && !known {
                let out = self.vec(mnemonic, size, &[x, y]);
                let x = a.parts[p];
                parts.push(self.float_choice(elem, size, (x, 3, x), (x, out)));
                continue;
            }
            let to = self.target(reg, p);
            self.def(mnemonic, to, size, &[x, y]);
            parts.push(to);
        }
        Ok(self.value(a.ty, parts))
    }

    /// A last source: scalars in memory are brought into a register, since whole vectors are read.
    fn scalar_source(&mut self, val: &mut Val, p: usize, size: Size) -> Opnd {
        if val.ty.lanes == 1 {
            self.complete(val);
        }
        self.source(val, p, size)
    }

    pub(super) fn fma(&mut self, reg: Reg, a: Reg, b: Reg, c: Reg) -> Res<Val> {
        let (mut a, mut b, c) = (self.used(a)?, self.used(b)?, self.val(c)?);
        let elem = c.ty.elem;
        if a.mem.is_some() {
            std::mem::swap(&mut a, &mut b);
        }
        self.complete(&mut a);
        let add = of(elem, Mnemonic::Vfmadd231ps, Mnemonic::Vfmadd231pd);
        let multiply = of(elem, Mnemonic::Vfmadd213ps, Mnemonic::Vfmadd213pd);
        let mut parts = vec![];
        for p in 0..c.parts.len() {
            let size = self.product_size(&c, p);
            let y = self.scalar_source(&mut b, p, size);
            let (x, z) = (a.parts[p], c.parts[p]);
            let to = self.target(Some(reg), p);
            let at = Opnd::Reg(to, size);
            if to != z && to == x {
                // to = y * to + z
                self.update(multiply, to, size, &[y, Opnd::Reg(z, size)]);
            } else if to != z && at == y {
                self.update(multiply, to, size, &[Opnd::Reg(x, size), Opnd::Reg(z, size)]);
            } else {
                self.copy_to(to, z);
                self.update(add, to, size, &[Opnd::Reg(x, size), y]);
            }
            parts.push(to);
        }
        Ok(self.value(c.ty, parts))
    }
}

pub(super) fn is_nan(elem: DType, bits: u64) -> bool {
    match elem {
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => f32::from_bits(bits as u32).is_nan(),
    }
}
