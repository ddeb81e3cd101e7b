//! Drops what nothing depends on, and numbers registers and variables anew.

use crate::kernel::ir::{Kernel, Op, Reg, Stmt, Var};
use crate::kernel::types::{map_operands, operands};
use std::collections::HashMap;

/// Removes operations whose result is not used (loads too), assignments of variables that are never read, and loops and
/// branches that are left empty; then numbers registers in order of definition and variables in order of appearance.
pub fn clean(kernel: &mut Kernel) {
    loop {
        let live = Live::of(kernel);
        let mut body = core::mem::take(&mut kernel.body);
        let dropped_blocks = live.prune(&mut body);
        kernel.body = body;
        // What only the bounds of a dropped loop needed is dead now.
        if !dropped_blocks {
            break;
        }
    }
    renumber(kernel);
}

#[derive(Default)]
struct Live {
    regs: Vec<bool>,
    vars: Vec<bool>,
}

#[derive(Default)]
struct Uses<'a> {
    ops: HashMap<Reg, &'a Op>,
    sets: HashMap<Var, Vec<Reg>>,
    roots: Vec<Reg>,
}

impl<'a> Uses<'a> {
    fn collect(&mut self, stmts: &'a [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(reg, op) => {
                    self.ops.insert(*reg, op);
                }
                Stmt::Set(var, reg) => self.sets.entry(*var).or_default().push(*reg),
                Stmt::Store { index, value, .. } => self.roots.extend([*index, *value]),
                Stmt::Prefetch { index, .. } => self.roots.push(*index),
                Stmt::For { lo, hi, body, .. } => {
                    self.roots.extend([*lo, *hi]);
                    self.collect(body);
                }
                Stmt::If { cond, then, other } => {
                    self.roots.push(*cond);
                    self.collect(then);
                    self.collect(other);
                }
                Stmt::While { head, cond, body } => {
                    self.roots.push(*cond);
                    self.collect(head);
                    self.collect(body);
                }
                Stmt::Return(_) => {}
            }
        }
    }
}

impl Live {
    fn of(kernel: &Kernel) -> Live {
        let mut uses = Uses::default();
        uses.collect(&kernel.body);
        let mut live = Live { regs: vec![false; kernel.regs.len()], vars: vec![false; kernel.vars.len()] };
        let mut work = core::mem::take(&mut uses.roots);
        while let Some(reg) = work.pop() {
            if core::mem::replace(&mut live.regs[reg.0 as usize], true) {
                continue;
            }
            let Some(op) = uses.ops.get(&reg) else {
                continue;
            };
            operands(op, |operand| work.push(operand));
            if let Op::Get(var) = op
                && !core::mem::replace(&mut live.vars[var.0 as usize], true)
            {
                work.extend(uses.sets.get(var).into_iter().flatten());
            }
        }
        live
    }

    /// Removes dead statements; tells whether a loop or branch was removed.
    fn prune(&self, stmts: &mut Vec<Stmt>) -> bool {
        let mut dropped = false;
        stmts.retain_mut(|stmt| match stmt {
            Stmt::Let(reg, _) => self.regs[reg.0 as usize],
            Stmt::Set(var, _) => self.vars[var.0 as usize],
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Return(_) => true,
            Stmt::For { body, .. } => {
                dropped |= self.prune(body);
                dropped |= body.is_empty();
                !body.is_empty()
            }
            Stmt::If { then, other, .. } => {
                dropped |= self.prune(then);
                dropped |= self.prune(other);
                let empty = then.is_empty() && other.is_empty();
                dropped |= empty;
                !empty
            }
            Stmt::While { head, body, .. } => {
                dropped |= self.prune(head);
                dropped |= self.prune(body);
                true
            }
        });
        dropped
    }
}

fn renumber(kernel: &mut Kernel) {
    let mut numbers = Numbers::default();
    let mut body = core::mem::take(&mut kernel.body);
    numbers.block(&mut body);
    kernel.body = body;
    kernel.regs = numbers.old_regs.iter().map(|old| kernel.regs[old.0 as usize]).collect();
    kernel.vars = numbers.old_vars.iter().map(|old| kernel.vars[old.0 as usize]).collect();
}

#[derive(Default)]
struct Numbers {
    regs: HashMap<Reg, Reg>,
    old_regs: Vec<Reg>,
    vars: HashMap<Var, Var>,
    old_vars: Vec<Var>,
}

impl Numbers {
    fn define(&mut self, reg: &mut Reg) {
        let new = Reg(self.old_regs.len() as u32);
        self.regs.insert(*reg, new);
        self.old_regs.push(*reg);
        *reg = new;
    }

    fn reg(&self, reg: &mut Reg) {
        if let Some(new) = self.regs.get(reg) {
            *reg = *new;
        }
    }

    fn var(&mut self, var: &mut Var) {
        let old_vars = &mut self.old_vars;
        *var = *self.vars.entry(*var).or_insert_with_key(|old| {
            old_vars.push(*old);
            Var(old_vars.len() as u32 - 1)
        });
    }

    fn block(&mut self, stmts: &mut [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(reg, op) => {
                    map_operands(op, |mut operand| {
                        self.reg(&mut operand);
                        operand
                    });
                    if let Op::Get(var) = op {
                        self.var(var);
                    }
                    self.define(reg);
                }
                Stmt::Set(var, reg) => {
                    self.var(var);
                    self.reg(reg);
                }
                Stmt::Store { index, value, .. } => {
                    self.reg(index);
                    self.reg(value);
                }
                Stmt::Prefetch { index, .. } => self.reg(index),
                Stmt::For { ivar, lo, hi, body, .. } => {
                    self.reg(lo);
                    self.reg(hi);
                    self.define(ivar);
                    self.block(body);
                }
                Stmt::If { cond, then, other } => {
                    self.reg(cond);
                    self.block(then);
                    self.block(other);
                }
                Stmt::While { head, cond, body } => {
                    self.block(head);
                    self.reg(cond);
                    self.block(body);
                }
                Stmt::Return(_) => {}
            }
        }
    }
}
