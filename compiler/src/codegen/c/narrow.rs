//! Which scalar 64-bit integers need only 32 bits, for processors whose registers have no more.
//!
//! Indices are `i64` in the kernel IR. Where addresses have 32 bits, the low half of an index decides; and with sizes known
//! when packing, most are small anyway. Both are found here: the range of each register forward, what its users need of it
//! backward.

use super::Bounds;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Kernel, Op, Reg, Stmt, Type, UnOp};

/// How a scalar `i64` register is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// In 64 bits, as any other register is held as its type says.
    Full,
    /// Its values fit into `int32_t`.
    Small,
    /// In a `uint32_t`, of which the users need no more than the low bits.
    Low,
}

type Range = Option<(i64, i64)>;

const SMALL: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);

/// How each register is held.
pub(super) fn holds(kernel: &Kernel, bounds: &Bounds) -> Vec<Hold> {
    let count = kernel.regs.len();
    let mut finder = Finder { kernel, bounds, ranges: vec![None; count], full: vec![false; count] };
    finder.forward(&kernel.body);
    finder.backward(&kernel.body);
    let hold = |reg: usize| match finder.ranges[reg] {
        _ if kernel.regs[reg] != INDEX => Hold::Full,
        Some(_) => Hold::Small,
        None if finder.full[reg] => Hold::Full,
        None => Hold::Low,
    };
    (0..count).map(hold).collect()
}

const INDEX: Type = Type { elem: DType::I64, lanes: 1 };

struct Finder<'a> {
    kernel: &'a Kernel,
    bounds: &'a Bounds,
    /// Ranges of scalar `i64` registers, where they are within [`SMALL`].
    ranges: Vec<Range>,
    /// Registers of which some user needs all bits.
    full: Vec<bool>,
}

/// A range that fits.
fn small(lo: i128, hi: i128) -> Range {
    let fits = i128::from(SMALL.0) <= lo && hi <= i128::from(SMALL.1);
    fits.then_some((lo as i64, hi as i64))
}

impl Finder<'_> {
    fn range(&self, reg: Reg) -> Range {
        self.ranges[reg.0 as usize]
    }

    fn forward(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(reg, op) if self.kernel.regs[reg.0 as usize] == INDEX => {
                    self.ranges[reg.0 as usize] = self.result(op);
                }
                Stmt::For { ivar, lo, hi, step, body } => {
                    if let (Some(lo), Some(hi)) = (self.range(*lo), self.range(*hi)) {
                        // The last value that is compared and not taken must fit, too.
                        let end = i128::from(hi.1) + i128::from(*step) - 1;
                        let range = small(i128::from(lo.0), end.max(i128::from(lo.1)));
                        self.ranges[ivar.0 as usize] = range.map(|_| (lo.0, (hi.1 - 1).max(lo.0)));
                    }
                    self.forward(body);
                }
                Stmt::If { then, other, .. } => {
                    self.forward(then);
                    self.forward(other);
                }
                Stmt::While { head, body, .. } => {
                    self.forward(head);
                    self.forward(body);
                }
                Stmt::Let(..) | Stmt::Set(..) | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Return(_) => {}
            }
        }
    }

    fn result(&self, op: &Op) -> Range {
        let given = |range: Option<&(i64, i64)>| range.and_then(|(lo, hi)| small((*lo).into(), (*hi).into()));
        match op {
            Op::Const(imm, _) => small(i128::from(imm.bits as i64), i128::from(imm.bits as i64)),
            Op::Scalar(i) => given(self.bounds.scalars.get(*i as usize)),
            Op::TileLo | Op::TileHi => given(self.bounds.units.as_ref()),
            Op::Un(UnOp::Neg, a) => self.range(*a).and_then(|(lo, hi)| small(-i128::from(hi), -i128::from(lo))),
            Op::Bin(op, a, b) => binary(*op, self.range(*a), self.range(*b)),
            Op::Select(_, a, b) => {
                let (a, b) = (self.range(*a)?, self.range(*b)?);
                Some((a.0.min(b.0), a.1.max(b.1)))
            }
            Op::Cast(_, a) => match self.kernel.regs[a.0 as usize].elem {
                DType::Bool => Some((0, 1)),
                DType::I8 => Some((-128, 127)),
                DType::U8 => Some((0, 255)),
                DType::I16 => Some((-32768, 32767)),
                DType::U16 => Some((0, 65535)),
                DType::I32 => Some(SMALL),
                DType::I64 => self.range(*a),
                _ => None,
            },
            _ => None,
        }
    }

    /// Marks operands of which all bits are needed, users before what they use.
    fn backward(&mut self, stmts: &[Stmt]) {
        for stmt in stmts.iter().rev() {
            match stmt {
                Stmt::Let(reg, op) => self.needs(*reg, op),
                Stmt::Set(_, reg) => self.all(*reg),
                // The index is for an address.
                Stmt::Store { value, .. } => self.all(*value),
                Stmt::Prefetch { .. } => {}
                Stmt::For { lo, hi, body, .. } => {
                    self.backward(body);
                    self.all(*lo);
                    self.all(*hi);
                }
                Stmt::If { then, other, .. } => {
                    self.backward(other);
                    self.backward(then);
                }
                Stmt::While { head, body, .. } => {
                    self.backward(body);
                    self.backward(head);
                }
                Stmt::Return(_) => {}
            }
        }
    }

    fn all(&mut self, reg: Reg) {
        self.full[reg.0 as usize] = true;
    }

    fn needs(&mut self, reg: Reg, op: &Op) {
        // The low bits of the result follow from the low bits of the operands.
        let low = self.range(reg).is_some() || !self.full[reg.0 as usize];
        match op {
            Op::Load { .. } => {}
            Op::Bin(BinOp::Add | BinOp::Sub | BinOp::Mul, ..) | Op::Un(UnOp::Neg, _)
                if low && self.kernel.regs[reg.0 as usize] == INDEX => {}
            Op::Select(..) if low && self.kernel.regs[reg.0 as usize] == INDEX => {}
            Op::Cast(to, _) if to.is_int() && to.size() <= 4 => {}
            _ => crate::kernel::types::operands(op, |operand| self.full[operand.0 as usize] = true),
        }
    }
}

/// The range of the result of an operation on ranges.
fn binary(op: BinOp, a: Range, b: Range) -> Range {
    // A remainder by, or a bitwise and with, something small is small whatever the other operand is.
    let point = |range: Range| range.filter(|(lo, hi)| lo == hi).map(|(lo, _)| lo);
    match (op, point(b)) {
        (BinOp::Rem, Some(n)) if n != 0 => {
            let most = n.checked_abs()? - 1;
            return match a {
                Some((lo, hi)) => Some((lo.clamp(-most, 0), hi.clamp(0, most))),
                None => small((-most).into(), most.into()),
            };
        }
        (BinOp::And, Some(n)) if n >= 0 => return Some((0, n)),
        _ => {}
    }
    let ((a0, a1), (b0, b1)) = (a?, b?);
    let wide = |x: i64| i128::from(x);
    match op {
        BinOp::Add => small(wide(a0) + wide(b0), wide(a1) + wide(b1)),
        BinOp::Sub => small(wide(a0) - wide(b1), wide(a1) - wide(b0)),
        BinOp::Mul => {
            let products = [a0 * b0, a0 * b1, a1 * b0, a1 * b1];
            let (lo, hi) = (products.iter().min()?, products.iter().max()?);
            small(wide(*lo), wide(*hi))
        }
        BinOp::Div if b0 == b1 && b0 > 0 => Some((a0 / b0, a1 / b0)),
        BinOp::Min => Some((a0.min(b0), a1.min(b1))),
        BinOp::Max => Some((a0.max(b0), a1.max(b1))),
        BinOp::Shl if b0 == b1 && (0..32).contains(&b0) => small(wide(a0) << b0, wide(a1) << b0),
        BinOp::Shr if b0 == b1 && (0..64).contains(&b0) => Some((a0 >> b0, a1 >> b0)),
        _ => None,
    }
}
