//! Reductions within a nest: sums in parts, lanes of accumulators, small windows written out, ordered folds.

use super::{Run, Tails};
use crate::dtype::DType;
use crate::kernel::ir::{self, BinOp, Horizontal, Reg, Var};
use crate::sym::{Int, VarId};
use crate::te::{Expr, ReduceKind, expr};

/// Most additions to one accumulator before its sum goes into the whole.
const SUM_PART: i64 = 32;

impl Run<'_, '_> {
    pub(super) fn reduce(&mut self, kind: ReduceKind, body: Expr, rvars: &[VarId], lane: Option<(VarId, u16)>) -> Reg {
        let op = match kind {
            ReduceKind::Sum => BinOp::Add,
            ReduceKind::Prod => BinOp::Mul,
            ReduceKind::Max => BinOp::Max,
            ReduceKind::Min => BinOp::Min,
        };
        let neutral = neutral(kind, body.dtype());
        let width = self.e.lanes();
        let start = self.e.b.const_of(neutral, width);
        let one = self.e.b.var_init(start);
        let many: Option<Var> = lane.map(|(_, n)| {
            let start = self.e.b.const_of(neutral, n);
            self.e.b.var_init(start)
        });
        let add = |this: &mut Self, to: Var, value: Reg| {
            let so_far = this.e.b.get(to);
            let next = this.e.b.bin(op, so_far, value);
            this.e.b.set(to, next);
        };
        let leaf = |this: &mut Self, one: Var, many: Option<Var>| {
            // In the main loop values have lanes of their own; in its tail, and without lanes, the outer ones'.
            let value = this.e.expr(body);
            let target = many.filter(|_| this.e.lanes() > width).unwrap_or(one);
            add(this, target, value);
        };
        match rvars.split_last() {
            // A float that has grown large loses what is added to it one by one: parts are summed first.
            Some((last, before))
                if kind == ReduceKind::Sum && body.dtype().is_float() && is_long(*last, before, part_of(lane)) =>
            {
                let (length, step) = (last.extent().unwrap_or(Int::new(1)), part_of(lane));
                self.inner(before, None, Tails::Single, &mut |this: &mut Self| {
                    let (zero, end) = (this.e.b.i64(0), this.e.int(length));
                    let from = this.e.b.begin_for(zero, end, step);
                    let part = this.e.b.var_init(start);
                    let part_many = lane.map(|(_, n)| {
                        let start = this.e.b.const_of(neutral, n);
                        this.e.b.var_init(start)
                    });
                    let size = this.e.b.i64(step);
                    let to = this.e.b.add(from, size);
                    let to = this.e.b.min(to, end);
                    this.span(&[*last], (from, to), lane, Tails::Single, &mut |this: &mut Self| {
                        leaf(this, part, part_many)
                    });
                    for (to, from) in [(Some(one), Some(part)), (many, part_many)] {
                        if let (Some(to), Some(from)) = (to, from) {
                            let value = this.e.b.get(from);
                            add(this, to, value);
                        }
                    }
                    this.e.b.end();
                });
            }
            _ if lane.is_none() && is_small(rvars, body) => {
                self.written_out(rvars, &mut |this: &mut Self| leaf(this, one, None));
            }
            _ => self.inner(rvars, lane, Tails::Single, &mut |this: &mut Self| leaf(this, one, many)),
        }
        let mut result = self.e.b.get(one);
        if let Some(v) = many {
            let v = self.e.b.get(v);
            let h = match kind {
                ReduceKind::Sum => Horizontal::Add,
                ReduceKind::Prod => Horizontal::Mul,
                ReduceKind::Max => Horizontal::Max,
                ReduceKind::Min => Horizontal::Min,
            };
            let h = self.e.b.horizontal(h, v);
            result = self.e.b.bin(op, result, h);
        }
        result
    }

    /// Runs `leaf` for all values of `vars`, which are few, without a loop.
    fn written_out(&mut self, vars: &[VarId], leaf: &mut dyn FnMut(&mut Self)) {
        let Some((v, rest)) = vars.split_first() else {
            self.e.forget();
            return leaf(self);
        };
        for k in 0..v.extent().and_then(|n| n.as_const()).unwrap_or(0) {
            let at = self.e.b.i64(k);
            self.e.vars.insert(*v, at);
            self.written_out(rest, leaf);
        }
        self.e.vars.remove(v);
        self.e.forget();
    }

    pub(super) fn ordered(&mut self, init: &[Expr], step: &[Expr], result: Expr, rvars: &[VarId]) -> Reg {
        let mut vars = vec![];
        for e in init {
            let r = self.e.expr(*e);
            vars.push(self.e.b.var_init(r));
        }
        self.inner(rvars, None, Tails::Single, &mut |this: &mut Self| {
            this.e.accs = vars.iter().map(|v| this.e.b.get(*v)).collect();
            let next: Vec<Reg> = step.iter().map(|e| this.e.expr(*e)).collect();
            for (v, r) in vars.iter().zip(next) {
                this.e.b.set(*v, r);
            }
        });
        self.e.forget();
        self.e.accs = vars.iter().map(|v| self.e.b.get(*v)).collect();
        let r = self.e.expr(result);
        self.e.accs.clear();
        r
    }
}

/// Most operations that a reduction over a window is written out as.
const WINDOW: i64 = 64;

/// Is a reduction of `body` over `vars` a window's, small enough to be written out?
fn is_small(vars: &[VarId], body: Expr) -> bool {
    let size = vars.iter().try_fold(expr::nodes(body).len() as i64, |n, v| n.checked_mul(v.extent()?.as_const()?));
    size.is_some_and(|n| n <= WINDOW)
}

/// Elements that a part of a sum has.
fn part_of(lane: Option<(VarId, u16)>) -> i64 {
    SUM_PART * lane.map_or(1, |(_, n)| i64::from(n))
}

/// Is a sum over `last`, within loops over `before`, worth adding up in parts?
fn is_long(last: VarId, before: &[VarId], part: i64) -> bool {
    let least = if before.is_empty() { 2 * part } else { part };
    last.extent().and_then(|n| n.as_const()).is_none_or(|n| n >= least)
}

fn neutral(kind: ReduceKind, t: DType) -> ir::Imm {
    let least = |t: DType| match t {
        DType::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
        DType::F64 => f64::NEG_INFINITY.to_bits(),
        t if t.is_signed() => 1u64 << (8 * t.size() - 1),
        _ => 0,
    };
    let greatest = |t: DType| match t {
        DType::F32 => u64::from(f32::INFINITY.to_bits()),
        DType::F64 => f64::INFINITY.to_bits(),
        DType::Bool => 1,
        t if t.is_signed() => (1u64 << (8 * t.size() - 1)) - 1,
        t => u64::MAX >> (64 - 8 * t.size()),
    };
    let bits = match kind {
        ReduceKind::Sum => 0,
        ReduceKind::Prod => match t {
            DType::F32 => u64::from(1f32.to_bits()),
            DType::F64 => 1f64.to_bits(),
            _ => 1,
        },
        ReduceKind::Max => least(t),
        ReduceKind::Min => greatest(t),
    };
    ir::Imm { elem: t, bits }
}
