//! Scalar integers and `Bool`s, in general registers.

use super::inst::{Class, Line, Opnd, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Reg, Type, UnOp};
use iced_x86::{Code, Mnemonic, Register};

impl Sel<'_> {
    /// A register as an operand, or the constant that it is.
    fn int_source(&mut self, reg: Reg, size: Size) -> Res<Opnd> {
        let elem = self.kernel.regs[reg.0 as usize].elem;
        if let Some(bits) = self.imm(reg) {
            let bits = self.extended(elem, bits);
            let value = if size == Size::Q { bits as i64 } else { i64::from(bits as u32 as i32) };
            if i32::try_from(value).is_ok() {
                return Ok(Opnd::Imm(value));
            }
        }
        Ok(Opnd::Reg(self.int(reg)?, size))
    }

    /// The low bits of a register, extended as integers of `elem` are held.
    pub(super) fn extend(&mut self, elem: DType, v: V) -> V {
        match elem {
            DType::I8 => self.gpr(Code::Movsx_r32_rm8, Size::D, &[Opnd::Reg(v, Size::B)]),
            DType::U8 => self.gpr(Code::Movzx_r32_rm8, Size::D, &[Opnd::Reg(v, Size::B)]),
            DType::I16 => self.gpr(Code::Movsx_r32_rm16, Size::D, &[Opnd::Reg(v, Size::W)]),
            DType::U16 => self.gpr(Code::Movzx_r32_rm16, Size::D, &[Opnd::Reg(v, Size::W)]),
            _ => v,
        }
    }

    /// `to = to op source`, for the operations that have an instruction of two operands.
    fn two(&mut self, mnemonic: Mnemonic, to: V, size: Size, source: Opnd) {
        match (mnemonic, source) {
            (Mnemonic::Imul, Opnd::Imm(_)) => self.def(mnemonic, to, size, &[Opnd::Reg(to, size), source]),
            _ => self.update(mnemonic, to, size, &[source]),
        }
    }

    pub(super) fn int_un(&mut self, un: UnOp, a: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let v = self.int(a)?;
        let size = Self::gpr_size(elem);
        let part = match un {
            UnOp::Not if elem == DType::Bool => {
                let out = self.copy(v);
                self.two(Mnemonic::Xor, out, Size::D, Opnd::Imm(1));
                out
            }
            UnOp::Neg | UnOp::Not => {
                let out = self.copy(v);
                self.update(if un == UnOp::Neg { Mnemonic::Neg } else { Mnemonic::Not }, out, size, &[]);
                self.extend(elem, out)
            }
            UnOp::Abs if !elem.is_signed() => v,
            UnOp::Abs => {
                let out = self.copy(v);
                self.update(Mnemonic::Neg, out, size, &[]);
                // Of the minimum the negative is itself; the flags say so, too.
                self.update(Mnemonic::Cmovs, out, size, &[Opnd::Reg(v, size)]);
                self.extend(elem, out)
            }
            UnOp::Popcnt => {
                let bits = match elem {
                    DType::I8 => self.extend(DType::U8, v),
                    DType::I16 => self.extend(DType::U16, v),
                    _ => v,
                };
                self.gpr(Mnemonic::Popcnt, size, &[Opnd::Reg(bits, size)])
            }
            _ => return self.lacks(format!("{un:?} of {elem}")),
        };
        Ok(self.scalar_value(elem, part))
    }

    pub(super) fn int_bin(&mut self, reg: Reg, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let size = Self::gpr_size(elem);
        let part = match bin {
            BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::And | BinOp::Or | BinOp::Xor => {
                let mnemonic = match bin {
                    BinOp::Add => Mnemonic::Add,
                    BinOp::Sub => Mnemonic::Sub,
                    BinOp::Mul => Mnemonic::Imul,
                    BinOp::And => Mnemonic::And,
                    BinOp::Or => Mnemonic::Or,
                    _ => Mnemonic::Xor,
                };
                let commutes = bin != BinOp::Sub;
                let (a, b) = if commutes && self.imm(a).is_some() { (b, a) } else { (a, b) };
                self.int_two(reg, mnemonic, a, b, size)?
            }
            BinOp::Min | BinOp::Max => {
                let (x, y) = (self.int(a)?, self.int(b)?);
                let out = self.copy(x);
                self.effect(compare_code(size), &[Opnd::Reg(x, size), Opnd::Reg(y, size)]);
                let mnemonic = match (bin, elem.is_signed()) {
                    (BinOp::Min, true) => Mnemonic::Cmovg,
                    (BinOp::Min, false) => Mnemonic::Cmova,
                    (_, true) => Mnemonic::Cmovl,
                    (_, false) => Mnemonic::Cmovb,
                };
                self.update(mnemonic, out, size, &[Opnd::Reg(y, size)]);
                return Ok(self.scalar_value(elem, out));
            }
            BinOp::Shl | BinOp::Shr => return self.int_shift(bin, a, b),
            BinOp::Div | BinOp::Rem => return self.int_divide(bin, a, b),
        };
        let part = if elem == DType::Bool { part } else { self.extend(elem, part) };
        Ok(self.scalar_value(elem, part))
    }

    fn int_two(&mut self, reg: Reg, mnemonic: Mnemonic, a: Reg, b: Reg, size: Size) -> Res<V> {
        let x = self.int(a)?;
        let y = self.int_source(b, size)?;
        if let (Mnemonic::Imul, Opnd::Imm(by)) = (mnemonic, y) {
            if let Some(shift) = (by > 0 && by.count_ones() == 1).then(|| by.trailing_zeros()) {
                let out = self.copy(x);
                self.update(Mnemonic::Shl, out, size, &[Opnd::Imm(i64::from(shift))]);
                return Ok(out);
            }
            return Ok(self.gpr(Mnemonic::Imul, size, &[Opnd::Reg(x, size), y]));
        }
        let to = self.target(Some(reg), 0);
        if y == Opnd::Reg(to, size) && to != x {
            // The second operand is overwritten: by way of a copy.
            let out = self.copy(x);
            self.two(mnemonic, out, size, y);
            self.copy_to(to, out);
        } else {
            self.copy_to(to, x);
            self.two(mnemonic, to, size, y);
        }
        Ok(to)
    }

    fn int_shift(&mut self, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let bits = 8 * elem.size() as u64;
        let size = Self::gpr_size(elem);
        let x = self.int(a)?;
        let right = bin == BinOp::Shr;
        if let Some(count) = self.imm(b) {
            let count = match (count >= bits, right && elem.is_signed()) {
                (true, true) => bits - 1,
                (true, false) => {
                    let zero = self.gpr_constant(0);
                    return Ok(self.scalar_value(elem, zero));
                }
                _ => count,
            };
            let mnemonic = match (right, elem.is_signed()) {
                (false, _) => Mnemonic::Shl,
                (true, true) => Mnemonic::Sar,
                (true, false) => Mnemonic::Shr,
            };
            let out = self.copy(x);
            self.update(mnemonic, out, size, &[Opnd::Imm(count as i64)]);
            let out = self.extend(elem, out);
            return Ok(self.scalar_value(elem, out));
        }
        // Counts as unsigned numbers of the type; beyond the type's bits the result is 0, or the sign.
        let count = self.int(b)?;
        let count = match elem {
            DType::I8 => self.extend(DType::U8, count),
            DType::I16 => self.extend(DType::U16, count),
            _ => count,
        };
        let most = self.gpr_constant(bits - 1);
        let within = self.copy(count);
        self.effect(compare_code(size), &[Opnd::Reg(count, size), Opnd::Reg(most, size)]);
        self.update(Mnemonic::Cmova, within, size, &[Opnd::Reg(most, size)]);
        let mnemonic = match (right, elem.is_signed()) {
            (false, _) => Mnemonic::Shlx,
            (true, true) => Mnemonic::Sarx,
            (true, false) => Mnemonic::Shrx,
        };
        let out = self.gpr(mnemonic, size, &[Opnd::Reg(x, size), Opnd::Reg(within, size)]);
        if !(right && elem.is_signed()) {
            let zero = self.gpr_constant(0);
            self.effect(compare_code(size), &[Opnd::Reg(count, size), Opnd::Reg(most, size)]);
            self.update(Mnemonic::Cmova, out, size, &[Opnd::Reg(zero, size)]);
        }
        let out = self.extend(elem, out);
        Ok(self.scalar_value(elem, out))
    }

    fn int_divide(&mut self, bin: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let size = Self::gpr_size(elem);
        let x = self.int(a)?;
        let part = match self.imm(b).map(|bits| self.extended(elem, bits)) {
            Some(0) => self.gpr_constant(0),
            Some(by) if by.is_power_of_two() && !(elem.is_signed() && by >> (8 * elem.size() - 1) != 0) => {
                self.divide_by_power(bin, elem, x, by.trailing_zeros())
            }
            // The division of the minimum by -1 would trap.
            Some(by) if elem.is_signed() && by == self.extended(elem, u64::MAX >> (64 - 8 * elem.size())) => {
                match bin {
                    BinOp::Div => {
                        let out = self.copy(x);
                        self.update(Mnemonic::Neg, out, size, &[]);
                        self.extend(elem, out)
                    }
                    _ => self.gpr_constant(0),
                }
            }
            Some(by) => {
                let by = self.gpr_constant(by);
                self.divide(bin, elem, x, by)
            }
            None => {
                let y = self.int(b)?;
                self.divide_any(bin, elem, x, y)
            }
        };
        Ok(self.scalar_value(elem, part))
    }

    /// By any number.
    pub(super) fn divide_any(&mut self, bin: BinOp, elem: DType, x: V, y: V) -> V {
        let size = Self::gpr_size(elem);
        // 0 gives 0, and -1 negates, for the minimum overflows: both by dividing by 1 instead.
        let (zero, one) = (self.gpr_constant(0), self.gpr_constant(1));
        let by = self.copy(y);
        self.effect(test_code(size), &[Opnd::Reg(y, size), Opnd::Reg(y, size)]);
        self.update(Mnemonic::Cmove, by, size, &[Opnd::Reg(one, size)]);
        let minus = |s: &mut Self| s.effect(Mnemonic::Cmp, &[Opnd::Reg(y, size), Opnd::Imm(-1)]);
        if elem.is_signed() {
            minus(self);
            self.update(Mnemonic::Cmove, by, size, &[Opnd::Reg(one, size)]);
        }
        let out = self.divide(bin, elem, x, by);
        let out = self.copy(out);
        if elem.is_signed() && bin == BinOp::Div {
            let negative = self.copy(x);
            self.update(Mnemonic::Neg, negative, size, &[]);
            minus(self);
            self.update(Mnemonic::Cmove, out, size, &[Opnd::Reg(negative, size)]);
        }
        self.effect(test_code(size), &[Opnd::Reg(y, size), Opnd::Reg(y, size)]);
        self.update(Mnemonic::Cmove, out, size, &[Opnd::Reg(zero, size)]);
        self.extend(elem, out)
    }

    /// By a power of two: rounding toward zero takes a correction of negative numbers.
    fn divide_by_power(&mut self, bin: BinOp, elem: DType, x: V, shift: u32) -> V {
        let size = Self::gpr_size(elem);
        let full = if size == Size::Q { 64 } else { 32 };
        let by = i64::from(shift);
        if shift == 0 {
            return if bin == BinOp::Div { x } else { self.gpr_constant(0) };
        }
        if !elem.is_signed() {
            let out = self.copy(x);
            match bin {
                BinOp::Div => self.update(Mnemonic::Shr, out, size, &[Opnd::Imm(by)]),
                _ => {
                    let mask = self.gpr_constant((1u64 << shift) - 1);
                    self.update(Mnemonic::And, out, size, &[Opnd::Reg(mask, size)]);
                }
            }
            return out;
        }
        let bias = self.copy(x);
        self.update(Mnemonic::Sar, bias, size, &[Opnd::Imm(full - 1)]);
        self.update(Mnemonic::Shr, bias, size, &[Opnd::Imm(full - by)]);
        self.update(Mnemonic::Add, bias, size, &[Opnd::Reg(x, size)]);
        if bin == BinOp::Div {
            self.update(Mnemonic::Sar, bias, size, &[Opnd::Imm(by)]);
            return bias;
        }
        self.update(Mnemonic::Shr, bias, size, &[Opnd::Imm(by)]);
        self.update(Mnemonic::Shl, bias, size, &[Opnd::Imm(by)]);
        let out = self.copy(x);
        self.update(Mnemonic::Sub, out, size, &[Opnd::Reg(bias, size)]);
        out
    }

    /// By a number that is neither 0 nor, for signed types, -1 with the minimum.
    fn divide(&mut self, bin: BinOp, elem: DType, x: V, by: V) -> V {
        let size = Self::gpr_size(elem);
        let (quotient, rest, to) = match size {
            Size::Q => (Register::RAX, Register::RDX, Code::Mov_r64_rm64),
            _ => (Register::EAX, Register::EDX, Code::Mov_r32_rm32),
        };
        self.line(Line::Hold(&[Register::RAX, Register::RDX]));
        self.effect(to, &[Opnd::Fixed(quotient), Opnd::Reg(x, size)]);
        match (elem.is_signed(), size) {
            (true, Size::Q) => self.effect(Mnemonic::Cqo, &[]),
            (true, _) => self.effect(Mnemonic::Cdq, &[]),
            _ => self.effect(Code::Xor_r32_rm32, &[Opnd::Fixed(Register::EDX), Opnd::Fixed(Register::EDX)]),
        }
        let mnemonic = if elem.is_signed() { Mnemonic::Idiv } else { Mnemonic::Div };
        self.effect(mnemonic, &[Opnd::Reg(by, size)]);
        let from = if bin == BinOp::Div { quotient } else { rest };
        let out = self.gpr(to, size, &[Opnd::Fixed(from)]);
        self.line(Line::Release);
        out
    }

    /// Sets the flags by comparing two scalar integers.
    pub(super) fn compare_ints(&mut self, a: Reg, b: Reg) -> Res {
        let size = Self::gpr_size(self.kernel.regs[a.0 as usize].elem);
        let x = self.int(a)?;
        match self.int_source(b, size)? {
            Opnd::Imm(value) => self.effect(Mnemonic::Cmp, &[Opnd::Reg(x, size), Opnd::Imm(value)]),
            y => self.effect(compare_code(size), &[Opnd::Reg(x, size), y]),
        }
        Ok(())
    }

    /// Comparison of scalar integers as 0 or 1.
    pub(super) fn int_compare(&mut self, cmp: Cmp, a: Reg, b: Reg) -> Res<Val> {
        let signed = self.kernel.regs[a.0 as usize].elem.is_signed();
        self.compare_ints(a, b)?;
        let mnemonic = match (cmp, signed) {
            (Cmp::Eq, _) => Mnemonic::Sete,
            (Cmp::Ne, _) => Mnemonic::Setne,
            (Cmp::Lt, true) => Mnemonic::Setl,
            (Cmp::Le, true) => Mnemonic::Setle,
            (Cmp::Gt, true) => Mnemonic::Setg,
            (Cmp::Ge, true) => Mnemonic::Setge,
            (Cmp::Lt, false) => Mnemonic::Setb,
            (Cmp::Le, false) => Mnemonic::Setbe,
            (Cmp::Gt, false) => Mnemonic::Seta,
            (Cmp::Ge, false) => Mnemonic::Setae,
        };
        let low = self.gpr(mnemonic, Size::B, &[]);
        let part = self.gpr(Code::Movzx_r32_rm8, Size::D, &[Opnd::Reg(low, Size::B)]);
        Ok(self.scalar_value(DType::Bool, part))
    }

    pub(super) fn int_select(&mut self, cond: Reg, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let (cond, x, y) = (self.int(cond)?, self.int(a)?, self.int(b)?);
        let out = self.copy(y);
        let d = Opnd::Reg(cond, Size::D);
        self.effect(Code::Test_rm32_r32, &[d, d]);
        self.update(Mnemonic::Cmovne, out, Size::Q, &[Opnd::Reg(x, Size::Q)]);
        Ok(self.value(Type::scalar(elem), vec![out]))
    }

    /// The low lane of a vector register as an integer of `elem`.
    pub(super) fn lane_to_int(&mut self, elem: DType, v: V) -> V {
        let out = match elem.size() {
            8 => self.gpr(Mnemonic::Vmovq, Size::Q, &[Opnd::Reg(v, Size::X)]),
            _ => self.gpr(Mnemonic::Vmovd, Size::D, &[Opnd::Reg(v, Size::X)]),
        };
        self.extend(elem, out)
    }

    /// An integer in the low lane of a vector register; the others become zero.
    pub(super) fn int_to_lane(&mut self, elem: DType, v: V) -> V {
        let to = self.fresh(Class::Vec);
        match elem.size() {
            8 => self.def(Mnemonic::Vmovq, to, Size::X, &[Opnd::Reg(v, Size::Q)]),
            _ => self.def(Mnemonic::Vmovd, to, Size::X, &[Opnd::Reg(v, Size::D)]),
        }
        to
    }
}

fn compare_code(size: Size) -> Code {
    if size == Size::Q { Code::Cmp_r64_rm64 } else { Code::Cmp_r32_rm32 }
}

fn test_code(size: Size) -> Code {
    if size == Size::Q { Code::Test_rm64_r64 } else { Code::Test_rm32_r32 }
}
