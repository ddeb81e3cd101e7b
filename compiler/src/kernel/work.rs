//! How much a kernel does: an estimate from its loops, by which the runtime decides whether threads pay.

use super::ir::{BinOp, Cmp, Kernel, Op, Reg, Stmt, Type};
use crate::dtype::DType;

/// Values assumed for what is not known: sizes, trips.
const SOME: i64 = 24;
/// Bytes that an operation computes at once.
const PIECE: usize = 16;

/// Operations of a call for `units` work units, counted in pieces of 16 bytes. `scalars` as far as they are known.
pub fn operations(kernel: &Kernel, scalars: &[Option<i64>], units: i64) -> u64 {
    let mut count = Count { kernel, scalars, units, known: vec![None; kernel.regs.len()] };
    count.all(&kernel.body)
}

struct Count<'k> {
    kernel: &'k Kernel,
    scalars: &'k [Option<i64>],
    units: i64,
    /// Integers that are known, in the first trip of each loop.
    known: Vec<Option<i64>>,
}

impl Count<'_> {
    fn all(&mut self, body: &[Stmt]) -> u64 {
        body.iter().fold(0, |sum: u64, s| sum.saturating_add(self.one(s)))
    }

    fn one(&mut self, s: &Stmt) -> u64 {
        match s {
            Stmt::Let(reg, op) => {
                self.known[reg.0 as usize] = self.value(op);
                self.cost(*reg, op)
            }
            Stmt::Set(..) | Stmt::Prefetch { .. } | Stmt::Return(_) => 0,
            Stmt::Store { value, .. } => pieces(self.ty(*value)),
            Stmt::For { ivar, lo, hi, step, body } => {
                let (lo, hi) = (self.get(*lo), self.get(*hi));
                let span = match (lo, hi) {
                    (Some(lo), Some(hi)) => hi.saturating_sub(lo).max(0),
                    _ => SOME,
                };
                let trips = span.unsigned_abs().div_ceil(step.unsigned_abs().max(1));
                if trips == 0 {
                    return 0;
                }
                self.known[ivar.0 as usize] = lo;
                // The loop itself: a comparison and an addition.
                self.all(body).saturating_add(2).saturating_mul(trips)
            }
            Stmt::If { cond, then, other } => match self.get(*cond) {
                Some(c) => self.all(if c != 0 { then } else { other }),
                None => self.all(then).max(self.all(other)),
            },
            Stmt::While { head, body, .. } => {
                self.all(head).saturating_add(self.all(body)).saturating_mul(SOME.unsigned_abs())
            }
        }
    }

    fn ty(&self, r: Reg) -> Type {
        self.kernel.regs[r.0 as usize]
    }

    fn get(&self, r: Reg) -> Option<i64> {
        self.known[r.0 as usize]
    }

    fn cost(&self, reg: Reg, op: &Op) -> u64 {
        let ty = self.ty(reg);
        match op {
            Op::Const(..) | Op::Scalar(_) | Op::TileLo | Op::TileHi | Op::Get(_) => 0,
            // One by one, and slow.
            Op::Bin(BinOp::Div | BinOp::Rem, ..) if ty.elem.is_int() => 8 * u64::from(ty.lanes),
            Op::Un(super::ir::UnOp::Sqrt, _) | Op::Bin(BinOp::Div | BinOp::Rem, ..) => 4 * pieces(ty),
            _ => pieces(ty),
        }
    }

    /// The value of an `i64` or a condition.
    fn value(&self, op: &Op) -> Option<i64> {
        match op {
            Op::Const(imm, 1) if imm.elem == DType::I64 => Some(imm.bits as i64),
            Op::Scalar(k) => self.scalars.get(*k as usize).copied().flatten(),
            Op::TileLo => Some(0),
            Op::TileHi => Some(self.units),
            Op::Bin(op, a, b) if self.ty(*a) == (Type { elem: DType::I64, lanes: 1 }) => {
                let (a, b) = (self.get(*a)?, self.get(*b)?);
                match op {
                    BinOp::Add => a.checked_add(b),
                    BinOp::Sub => a.checked_sub(b),
                    BinOp::Mul => a.checked_mul(b),
                    BinOp::Div => a.checked_div(b),
                    BinOp::Rem => a.checked_rem(b),
                    BinOp::Min => Some(a.min(b)),
                    BinOp::Max => Some(a.max(b)),
                    _ => None,
                }
            }
            Op::Cmp(cmp, a, b) => {
                let (a, b) = (self.get(*a)?, self.get(*b)?);
                Some(i64::from(match cmp {
                    Cmp::Eq => a == b,
                    Cmp::Ne => a != b,
                    Cmp::Lt => a < b,
                    Cmp::Le => a <= b,
                    Cmp::Gt => a > b,
                    Cmp::Ge => a >= b,
                }))
            }
            Op::Select(c, a, b) => self.get(if self.get(*c)? != 0 { *a } else { *b }),
            _ => None,
        }
    }
}

fn pieces(ty: Type) -> u64 {
    (usize::from(ty.lanes) * ty.elem.size()).div_ceil(PIECE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trips_of_known_and_unknown_loops_are_counted() {
        let text = "kernel \"copy\" tiled { b0: read f32 b1: write f32 scalars 1
            %0: i64 = tile.lo %1: i64 = tile.hi %2: i64 = scalar 0 %3: i64 = const 0
            for %4 in %0..%1 step 4 {
                for %5 in %3..%2 step 1 {
                    %6: f32x4 = load b0[%4]
                    store b1[%4] = %6
                }
            }
        }";
        let kernel = crate::kernel::text::parse(text).expect("parses");
        // A load, a store and 2 for the inner loop in each of its trips, 2 for the outer one's.
        assert_eq!(operations(&kernel, &[Some(3)], 4), 4 * 3 + 2);
        assert_eq!(operations(&kernel, &[Some(3)], 400), 100 * (4 * 3 + 2));
        assert_eq!(operations(&kernel, &[Some(0)], 4), 2);
        assert_eq!(operations(&kernel, &[None], 4), 4 * SOME.unsigned_abs() + 2);
    }
}
