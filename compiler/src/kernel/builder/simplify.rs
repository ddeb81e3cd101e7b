//! Algebra on single operations. Each method gives the register that the operation is equal to, or nothing.
//!
//! Integer rules hold modulo 2^bits. Float rules are only those that never change a result (`x * 1`, but not `x + 0`, which
//! turns -0 into 0).

use super::Builder;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Imm, Op, Reg, Type, UnOp};
use crate::kernel::scalar;

impl Builder {
    fn folded(&mut self, ty: Type, bits: u64) -> Reg {
        self.const_of(Imm { elem: ty.elem, bits }, ty.lanes)
    }

    /// Constants to the right, and integer operands in register order.
    pub(super) fn ordered(&self, op: BinOp, a: Reg, b: Reg) -> (Reg, Reg) {
        let commutes =
            matches!(op, BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max | BinOp::And | BinOp::Or | BinOp::Xor);
        if !commutes {
            return (a, b);
        }
        let swap = match (self.const_of_reg(a), self.const_of_reg(b)) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            // The order of float operands is left to whoever arranged the kernel for its target.
            _ => b < a && !self.elem(a).is_float(),
        };
        if swap { (b, a) } else { (a, b) }
    }

    pub(super) fn ordered_cmp(&self, op: Cmp, a: Reg, b: Reg) -> (Cmp, Reg, Reg) {
        let swap = match (self.const_of_reg(a), self.const_of_reg(b)) {
            (Some(_), None) => true,
            (None, Some(_)) => false,
            _ => b < a,
        };
        if !swap {
            return (op, a, b);
        }
        let op = match op {
            Cmp::Eq | Cmp::Ne => op,
            Cmp::Lt => Cmp::Gt,
            Cmp::Le => Cmp::Ge,
            Cmp::Gt => Cmp::Lt,
            Cmp::Ge => Cmp::Le,
        };
        (op, b, a)
    }

    pub(super) fn simplify_un(&mut self, op: UnOp, a: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        if let Some(imm) = self.const_of_reg(a) {
            let bits = scalar::un(op, ty.elem, imm.bits)?;
            return Some(self.folded(ty, bits));
        }
        let rounds = |op| matches!(op, UnOp::Floor | UnOp::Ceil | UnOp::Trunc | UnOp::Round);
        match (op, self.op_of(a)?) {
            (UnOp::Neg, &Op::Un(UnOp::Neg, x)) | (UnOp::Not, &Op::Un(UnOp::Not, x)) => Some(x),
            (UnOp::Abs, Op::Un(UnOp::Abs, _)) => Some(a),
            (UnOp::Abs, &Op::Un(UnOp::Neg, x)) => Some(self.un(UnOp::Abs, x)),
            (_, Op::Un(inner, _)) if rounds(op) && rounds(*inner) => Some(a),
            (UnOp::Not, &Op::Cmp(cmp, x, y)) => {
                let inverse = match cmp {
                    Cmp::Eq => Cmp::Ne,
                    Cmp::Ne => Cmp::Eq,
                    _ if self.elem(x).is_float() => return None,
                    Cmp::Lt => Cmp::Ge,
                    Cmp::Le => Cmp::Gt,
                    Cmp::Gt => Cmp::Le,
                    Cmp::Ge => Cmp::Lt,
                };
                Some(self.cmp(inverse, x, y))
            }
            _ => None,
        }
    }

    pub(super) fn simplify_bin(&mut self, op: BinOp, a: Reg, b: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        if let (Some(x), Some(y)) = (self.const_of_reg(a), self.const_of_reg(b)) {
            let bits = scalar::bin(op, ty.elem, x.bits, y.bits)?;
            return Some(self.folded(ty, bits));
        }
        if ty.elem.is_float() {
            let c = self.const_of_reg(b)?;
            let is = |v: f64| c.bits == scalar::from_f64(ty.elem, v);
            let same = match op {
                BinOp::Add => is(-0.0),
                BinOp::Sub => is(0.0),
                BinOp::Mul | BinOp::Div => is(1.0),
                _ => false,
            };
            return same.then_some(a);
        }
        if ty.elem == DType::Bool {
            return self.simplify_logic(op, a, b, ty);
        }
        match op {
            BinOp::Add => self.simplify_add(a, b),
            BinOp::Sub => self.simplify_sub(a, b, ty),
            BinOp::Mul => self.simplify_mul(a, b, ty),
            BinOp::Div => (self.const_i64(b)? == 1).then_some(a),
            BinOp::Rem => match self.const_i64(b)? {
                1 => Some(self.int(ty, 0)),
                _ => None,
            },
            BinOp::Min | BinOp::Max => (a == b).then_some(a),
            BinOp::And | BinOp::Or | BinOp::Xor => self.simplify_logic(op, a, b, ty),
            BinOp::Shl | BinOp::Shr => self.simplify_shift(op, a, b, ty),
        }
    }

    /// The operands of the integer operation `op` that computes `reg`.
    fn parts(&self, op: BinOp, reg: Reg) -> Option<(Reg, Reg)> {
        match self.op_of(reg) {
            Some(&Op::Bin(found, x, y)) if found == op => Some((x, y)),
            _ => None,
        }
    }

    /// `x` and `c` where `reg` is `x + c` with a constant `c`.
    fn plus_const(&self, reg: Reg) -> Option<(Reg, Reg)> {
        self.parts(BinOp::Add, reg).filter(|(_, c)| self.const_of_reg(*c).is_some())
    }

    fn simplify_add(&mut self, a: Reg, b: Reg) -> Option<Reg> {
        if let Some(c) = self.const_i64(b) {
            if c == 0 {
                return Some(a);
            }
            let (x, c1) = self.plus_const(a)?;
            let sum = self.add(c1, b);
            return Some(self.add(x, sum));
        }
        // Constants go outermost, where an address takes them in.
        for (p, q) in [(a, b), (b, a)] {
            if let Some((x, c)) = self.plus_const(p) {
                let sum = self.add(x, q);
                return Some(self.add(sum, c));
            }
        }
        // Of a sum of three, the two that change least often are added first, so that their sum leaves the loop.
        if self.pinned {
            return None;
        }
        for (p, q) in [(a, b), (b, a)] {
            let Some((x, y)) = self.parts(BinOp::Add, p) else {
                continue;
            };
            let (deep, shallow) = if self.depth(x) >= self.depth(y) { (x, y) } else { (y, x) };
            if self.depth(shallow) < self.depth(deep) && self.depth(q) < self.depth(deep) {
                let sum = self.add(shallow, q);
                return Some(self.add(deep, sum));
            }
        }
        None
    }

    fn simplify_sub(&mut self, a: Reg, b: Reg, ty: Type) -> Option<Reg> {
        if a == b {
            return Some(self.int(ty, 0));
        }
        if self.const_of_reg(b).is_some() {
            let minus = self.neg(b);
            return Some(self.add(a, minus));
        }
        if self.const_i64(a) == Some(0) {
            return Some(self.neg(b));
        }
        if let Some((x, y)) = self.parts(BinOp::Add, a) {
            if x == b {
                return Some(y);
            }
            if y == b {
                return Some(x);
            }
        }
        if let Some((x, c)) = self.plus_const(a) {
            let difference = self.sub(x, b);
            return Some(self.add(difference, c));
        }
        if let Some((y, c)) = self.plus_const(b) {
            let difference = self.sub(a, y);
            return Some(self.sub(difference, c));
        }
        None
    }

    fn simplify_mul(&mut self, a: Reg, b: Reg, ty: Type) -> Option<Reg> {
        match self.const_i64(b)? {
            0 => return Some(self.int(ty, 0)),
            1 => return Some(a),
            _ => {}
        }
        if let Some((x, c)) = self.parts(BinOp::Mul, a)
            && self.const_of_reg(c).is_some()
        {
            let product = self.mul(c, b);
            return Some(self.mul(x, product));
        }
        // Index arithmetic: the constant goes outermost, where an address takes it in.
        if ty == Type::scalar(DType::I64)
            && let Some((x, c)) = self.plus_const(a)
        {
            let (product, offset) = (self.mul(x, b), self.mul(c, b));
            return Some(self.add(product, offset));
        }
        None
    }

    fn simplify_logic(&mut self, op: BinOp, a: Reg, b: Reg, ty: Type) -> Option<Reg> {
        if a == b {
            return match op {
                BinOp::And | BinOp::Or => Some(a),
                _ => Some(self.int(ty, 0)),
            };
        }
        let ones = scalar::un(UnOp::Not, ty.elem, 0)?;
        match (op, self.const_of_reg(b)?.bits) {
            (BinOp::And, 0) => Some(b),
            (BinOp::Or | BinOp::Xor, 0) => Some(a),
            (BinOp::And, c) if c == ones => Some(a),
            (BinOp::Or, c) if c == ones => Some(b),
            (BinOp::Xor, c) if c == ones => Some(self.not(a)),
            _ => None,
        }
    }

    fn simplify_shift(&mut self, op: BinOp, a: Reg, b: Reg, ty: Type) -> Option<Reg> {
        // The count as the shift sees it: unsigned, of the type's width.
        let count = self.const_of_reg(b)?.bits;
        let width = 8 * ty.elem.size() as u64;
        if count == 0 {
            return Some(a);
        }
        if count >= width && (op == BinOp::Shl || !ty.elem.is_signed()) {
            return Some(self.int(ty, 0));
        }
        let (x, c) = self.parts(op, a)?;
        let sum = self.const_of_reg(c)?.bits.checked_add(count)?;
        if sum >= width {
            return None;
        }
        let sum = self.folded(ty, sum);
        Some(self.bin(op, x, sum))
    }

    pub(super) fn simplify_fma(&mut self, a: Reg, b: Reg, c: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        let one = scalar::from_f64(ty.elem, 1.0);
        match (self.const_of_reg(a), self.const_of_reg(b), self.const_of_reg(c)) {
            (Some(x), Some(y), Some(z)) => {
                let bits = scalar::fma(ty.elem, x.bits, y.bits, z.bits)?;
                Some(self.folded(ty, bits))
            }
            (_, Some(y), _) if y.bits == one => Some(self.add(a, c)),
            (Some(x), _, _) if x.bits == one => Some(self.add(b, c)),
            _ => None,
        }
    }

    pub(super) fn simplify_cmp(&mut self, op: Cmp, a: Reg, b: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        let mask = ty.with_elem(DType::Bool);
        if let (Some(x), Some(y)) = (self.const_of_reg(a), self.const_of_reg(b)) {
            let holds = scalar::cmp(op, ty.elem, x.bits, y.bits)?;
            return Some(self.folded(mask, holds as u64));
        }
        if a == b && !ty.elem.is_float() {
            return Some(self.folded(mask, matches!(op, Cmp::Eq | Cmp::Le | Cmp::Ge) as u64));
        }
        if ty.elem == DType::Bool {
            let same = (self.const_i64(b)? != 0) == (op == Cmp::Eq);
            return Some(if same { a } else { self.not(a) });
        }
        None
    }

    pub(super) fn simplify_select(&mut self, mask: Reg, a: Reg, b: Reg) -> Option<Reg> {
        if a == b {
            return Some(a);
        }
        if let Some(c) = self.const_i64(mask) {
            return Some(if c != 0 { a } else { b });
        }
        match self.op_of(mask) {
            Some(&Op::Un(UnOp::Not, inner)) => Some(self.select(inner, b, a)),
            _ => None,
        }
    }

    pub(super) fn simplify_cast(&mut self, to: DType, a: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        if to == ty.elem {
            return Some(a);
        }
        if let Some(imm) = self.const_of_reg(a) {
            let bits = scalar::cast(to, ty.elem, imm.bits);
            return Some(self.folded(ty.with_elem(to.compute()), bits));
        }
        match self.op_of(a) {
            // Rounding to a half type twice is rounding once.
            Some(&Op::Cast(inner, _)) if inner == to && to != to.compute() => Some(a),
            // There and back through a wider integer.
            Some(&Op::Cast(wide, x)) if wide.is_int() && self.elem(x) == to => {
                let exact = to == DType::Bool || (to.is_int() && wide.size() >= to.size());
                exact.then_some(x)
            }
            _ => None,
        }
    }

    pub(super) fn simplify_bitcast(&mut self, to: DType, a: Reg) -> Option<Reg> {
        let ty = self.ty(a);
        if to == ty.elem {
            return Some(a);
        }
        if let Some(imm) = self.const_of_reg(a) {
            return Some(self.folded(ty.with_elem(to), imm.bits));
        }
        match self.op_of(a) {
            Some(&Op::Bitcast(_, x)) => Some(self.bitcast(to, x)),
            _ => None,
        }
    }

    pub(super) fn simplify_extract(&mut self, a: Reg, lane: u16) -> Option<Reg> {
        if self.ty(a).lanes == 1 {
            return Some(a);
        }
        match self.op_of(a)?.clone() {
            Op::Const(imm, _) => Some(self.const_of(imm, 1)),
            Op::Splat(x, _) => Some(x),
            Op::Iota(elem, _) => Some(self.imm(elem, lane as u64)),
            Op::Insert(_, at, x) if at == lane => Some(x),
            Op::Insert(v, _, _) => Some(self.extract(v, lane)),
            Op::Shuffle(x, y, picks) => {
                let (pick, lanes) = (*picks.get(lane as usize)?, self.ty(x).lanes);
                Some(if pick < lanes { self.extract(x, pick) } else { self.extract(y, pick - lanes) })
            }
            _ => None,
        }
    }

    pub(super) fn simplify_shuffle(&mut self, op: &Op) -> Option<Reg> {
        let Op::Shuffle(a, b, picks) = op else {
            return None;
        };
        let (a, b, ty) = (*a, *b, self.ty(*a));
        let from = |first: u16| picks.len() == ty.lanes as usize && picks.iter().zip(first..).all(|(p, l)| *p == l);
        if from(0) {
            return Some(a);
        }
        if from(ty.lanes) {
            return Some(b);
        }
        let source = |pick: u16| if pick < ty.lanes { a } else { b };
        let only = source(*picks.first()?);
        if picks.iter().any(|pick| source(*pick) != only) {
            return None;
        }
        match *self.op_of(only)? {
            Op::Const(imm, _) => Some(self.const_of(imm, picks.len() as u16)),
            Op::Splat(x, _) => Some(self.splat(x, picks.len() as u16)),
            _ => None,
        }
    }
}
