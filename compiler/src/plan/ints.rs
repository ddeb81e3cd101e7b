//! Index expressions to plan registers.

use crate::sym::{Atom, Int, VarId};
use graphmend_cache_format::BinOp;
use graphmend_cache_format::spec::{Instr, PlanSpec, Val};
use std::collections::HashMap;

/// Registers and the expressions whose values they hold.
#[derive(Clone, Default)]
pub(super) struct Ints {
    known: HashMap<Int, Val>,
    next: u32,
}

impl Ints {
    /// A register that nothing uses yet.
    pub(super) fn fresh(&mut self, plan: &mut PlanSpec) -> u32 {
        self.next += 1;
        plan.regs = plan.regs.max(self.next);
        self.next - 1
    }

    /// Number of the next register.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Leaves registers below `next` alone.
    pub(super) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    /// The value of a symbol.
    pub(super) fn bind(&mut self, v: VarId, val: Val) {
        self.known.insert(Int::var(v), val);
    }

    /// Emits what computes `i`, unless it is known.
    pub(super) fn val(&mut self, plan: &mut PlanSpec, i: Int) -> Val {
        if let Some(c) = i.as_const() {
            return Val::Imm(c);
        }
        if let Some(v) = self.known.get(&i) {
            return *v;
        }
        let mut sum: Option<Val> = None;
        for (c, atoms) in i.terms() {
            let mut term: Option<Val> = (c != 1 || atoms.is_empty()).then_some(Val::Imm(c));
            for a in atoms {
                let a = self.atom(plan, a);
                term = Some(match term {
                    Some(t) => self.bin(plan, BinOp::Mul, t, a),
                    None => a,
                });
            }
            let term = term.unwrap_or(Val::Imm(1));
            sum = Some(match sum {
                Some(s) => self.bin(plan, BinOp::Add, s, term),
                None => term,
            });
        }
        let v = sum.unwrap_or(Val::Imm(0));
        self.known.insert(i, v);
        v
    }

    fn bin(&mut self, plan: &mut PlanSpec, op: BinOp, a: Val, b: Val) -> Val {
        let dst = self.fresh(plan);
        plan.instrs.push(Instr::Bin { op, dst, a, b });
        Val::Reg(dst)
    }

    fn two(&mut self, plan: &mut PlanSpec, op: BinOp, a: Int, b: Int) -> Val {
        let a = self.val(plan, a);
        let b = self.val(plan, b);
        self.bin(plan, op, a, b)
    }

    fn atom(&mut self, plan: &mut PlanSpec, a: Atom) -> Val {
        match a {
            Atom::Var(v) => match self.known.get(&Int::var(v)) {
                Some(val) => *val,
                None => panic!("plan: symbol {v} is used before it is known"),
            },
            Atom::Div(x, y) => self.two(plan, BinOp::FloorDiv, x, y),
            Atom::Rem(x, y) => self.two(plan, BinOp::Mod, x, y),
            Atom::Min(x, y) => self.two(plan, BinOp::Min, x, y),
            Atom::Max(x, y) => self.two(plan, BinOp::Max, x, y),
            Atom::IfLt(a, b, x, y) => self.choose(plan, BinOp::Lt, a, b, x, y),
            Atom::IfEq(a, b, x, y) => self.choose(plan, BinOp::Eq, a, b, x, y),
            Atom::Data(e) => panic!("plan: data {e} in a size"),
        }
    }

    fn choose(&mut self, plan: &mut PlanSpec, op: BinOp, a: Int, b: Int, x: Int, y: Int) -> Val {
        let cond = self.two(plan, op, a, b);
        let x = self.val(plan, x);
        let y = self.val(plan, y);
        let dst = self.fresh(plan);
        plan.instrs.push(Instr::Select { dst, cond, a: x, b: y });
        Val::Reg(dst)
    }
}
