//! Operations: which way each is done.

use super::inst::{Class, Opnd, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{Op, Reg, Type};
use iced_x86::Mnemonic;

impl Sel<'_> {
    /// An operation with this register as result.
    pub(super) fn op(&mut self, reg: Reg, op: &Op) -> Res<Val> {
        let ty = self.kernel.regs[reg.0 as usize];
        match op {
            Op::Const(imm, lanes) => Ok(self.constant(Type::vector(imm.elem, *lanes), imm.bits)),
            Op::Scalar(i) => {
                let table = self.scalars[*i as usize].ok_or_else(|| "a scalar was not loaded".to_string())?;
                Ok(self.scalar_value(DType::I64, table))
            }
            Op::TileLo | Op::TileHi => {
                let bound = self.tile[usize::from(*op == Op::TileHi)];
                let bound = bound.ok_or_else(|| "a bound of the tiles was not loaded".to_string())?;
                Ok(self.scalar_value(DType::I64, bound))
            }
            Op::Load { buf, index, disp, lanes } => self.load(reg, *buf, *index, *disp, *lanes),
            Op::Words { buf, index, disp, lanes } => self.words(reg, *buf, *index, *disp, *lanes),
            Op::Get(var) => {
                let val = self.vars[var.0 as usize].clone();
                if self.facts.alias[reg.0 as usize] {
                    return Ok(val);
                }
                let parts = val.parts.iter().map(|v| self.copy(*v)).collect();
                Ok(Val { parts, ..val })
            }
            Op::Splat(a, lanes) => self.splat(reg, *a, *lanes),
            Op::Un(un, a) => match Self::class(ty) {
                Class::Gpr => self.int_un(*un, *a),
                Class::Mask => self.mask_not(*a),
                Class::Vec if ty.elem.is_float() => self.float_un(*un, *a),
                Class::Vec => self.lanes_un(*un, *a),
            },
            Op::Bin(bin, a, b) => match Self::class(ty) {
                Class::Gpr => self.int_bin(reg, *bin, *a, *b),
                Class::Mask => self.mask_bin(*bin, *a, *b),
                Class::Vec if ty.elem.is_float() => self.float_bin(Some(reg), *bin, *a, *b),
                Class::Vec => self.lanes_bin(Some(reg), *bin, *a, *b),
            },
            Op::Fma(a, b, c) => self.fma(reg, *a, *b, *c),
            Op::Dot(dot, a, b, c) => self.dot(reg, *dot, *a, *b, *c),
            Op::Cmp(cmp, a, b) => self.compare(*cmp, *a, *b),
            Op::Select(mask, a, b) => match Self::class(ty) {
                Class::Gpr => self.int_select(*mask, *a, *b),
                Class::Mask => self.mask_select(*mask, *a, *b),
                Class::Vec => self.lanes_select(*mask, *a, *b),
            },
            Op::Cast(to, a) => {
                let val = self.val(*a)?;
                self.cast(*to, &val)
            }
            Op::Bitcast(to, a) => self.bitcast(*to, *a),
            Op::Extract(a, lane) => {
                let val = self.val(*a)?;
                self.extract(&val, *lane)
            }
            Op::Insert(a, lane, v) => self.insert(*a, *lane, *v),
            Op::Shuffle(a, b, picks) => {
                let (a, b) = (self.val(*a)?, self.val(*b)?);
                self.shuffle(&a, &b, picks)
            }
            Op::Iota(elem, lanes) => Ok(self.iota(*elem, *lanes)),
            Op::Horizontal(how, a) => {
                let val = self.val(*a)?;
                self.horizontal(*how, &val)
            }
        }
    }

    /// Where part `p` of a result goes: straight into the variable that it is for, if that is free.
    pub(super) fn target(&mut self, reg: Option<Reg>, p: usize) -> V {
        let into = reg.and_then(|reg| self.facts.into[reg.0 as usize]);
        if let Some(var) = into {
            return self.vars[var.0 as usize].parts[p];
        }
        let class = reg.map_or(Class::Vec, |reg| Self::class(self.kernel.regs[reg.0 as usize]));
        self.fresh(class)
    }

    fn bitcast(&mut self, to: DType, a: Reg) -> Res<Val> {
        let val = self.val(a)?;
        let from = val.ty.elem;
        let ty = val.ty.with_elem(to);
        if let Some(bits) = val.imm {
            return Ok(self.constant(ty, bits));
        }
        if ty.lanes > 1 || from.is_float() == to.is_float() && from.size() >= 4 || from == to {
            return Ok(self.value(ty, val.parts));
        }
        let part = val.parts[0];
        let gpr = Self::gpr_size(if from.is_float() { from } else { to });
        let mnemonic = if to.size() == 8 { Mnemonic::Vmovq } else { Mnemonic::Vmovd };
        let part = match (from.is_float(), to.is_float()) {
            (true, false) => self.gpr(mnemonic, gpr, &[Opnd::Reg(part, Size::X)]),
            (false, true) => self.vec(mnemonic, Size::X, &[Opnd::Reg(part, gpr)]),
            // Narrow integers are held extended as their sign says.
            _ => self.extend(to, part),
        };
        Ok(self.scalar_value(to, part))
    }
}
