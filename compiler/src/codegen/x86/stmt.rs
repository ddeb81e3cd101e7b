//! Statements: blocks, loops, branches, variables.

use super::inst::{Base, Label};
use super::inst::{Class, Line, Mem, Opnd, Size, V};
use super::select::{Res, Sel, Stop, Val};
use crate::dtype::DType;
use crate::kernel::ir::{Cmp, Op, Reg, Stmt, Type, Var};
use graphmend_cache_format::abi::{offset64, status};
use iced_x86::{Code, Register};

/// Whether control can reach the end of what was translated.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Open,
    Returned,
}

impl Sel<'_> {
    /// Translates the kernel.
    pub(super) fn run(&mut self) -> Res {
        self.arguments();
        for ty in self.kernel.vars.clone() {
            let count = if ty.lanes == 1 { 1 } else { ty.lanes.div_ceil(self.per(ty.elem)) };
            let parts: Vec<V> = (0..count).map(|_| self.fresh(Self::class(ty))).collect();
            let zero = self.constant(ty, 0);
            let val = self.value(ty, parts);
            self.vars.push(val);
            self.assign(Var(self.vars.len() as u32 - 1), zero)?;
        }
        let kernel = self.kernel;
        if self.block(&kernel.body)? == Flow::Open {
            self.line(Line::Return(status::OK));
        }
        Ok(())
    }

    /// Loads what the kernel uses of its arguments.
    fn arguments(&mut self) {
        self.line(Line::Hold(&[Register::RDI]));
        let args = self.gpr(Code::Mov_r64_rm64, Size::Q, &[Opnd::Fixed(Register::RDI)]);
        self.line(Line::Release);
        let load = |s: &mut Self, base: V, disp: i32| {
            let mem = Mem { base: Base::Reg(base), index: None, disp, broadcast: false };
            s.gpr(Code::Mov_r64_rm64, Size::Q, &[Opnd::Mem(mem)])
        };
        if self.facts.bufs.contains(&true) {
            let table = load(self, args, offset64::BUFS);
            for i in 0..self.bufs.len() {
                self.bufs[i] = self.facts.bufs[i].then(|| load(self, table, 8 * i as i32));
            }
        }
        if self.facts.scalars.contains(&true) {
            let table = load(self, args, offset64::SCALARS);
            for i in 0..self.scalars.len() {
                self.scalars[i] = self.facts.scalars[i].then(|| load(self, table, 8 * i as i32));
            }
        }
        for (i, at) in [offset64::TILE_LO, offset64::TILE_HI].into_iter().enumerate() {
            self.tile[i] = self.facts.tile[i].then(|| load(self, args, at));
        }
    }

    fn assign(&mut self, var: Var, mut value: Val) -> Res {
        let place = self.vars[var.0 as usize].clone();
        self.complete(&mut value);
        if Self::class(place.ty) == Class::Mask {
            value = self.mask_per(&value, place.per);
        }
        if value.parts.len() != place.parts.len() {
            return Err(Stop::Internal(format!(
                "a variable of {} parts gets {}",
                place.parts.len(),
                value.parts.len()
            )));
        }
        for (to, from) in place.parts.iter().zip(&value.parts) {
            self.copy_to(*to, *from);
        }
        Ok(())
    }

    fn block(&mut self, stmts: &[Stmt]) -> Res<Flow> {
        for stmt in stmts {
            if self.stmt(stmt)? == Flow::Returned {
                return Ok(Flow::Returned);
            }
        }
        Ok(Flow::Open)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<Flow> {
        match stmt {
            Stmt::Let(reg, Op::Cmp(..)) if self.is_fused(*reg) => {}
            Stmt::Let(reg, op) => {
                let val = self.op(*reg, op)?;
                self.define(*reg, val)?;
            }
            Stmt::Set(var, reg) => {
                let val = self.val(*reg)?;
                self.assign(*var, val)?;
            }
            Stmt::Store { buf, index, disp, value } => {
                let val = self.val(*value)?;
                self.store(*buf, *index, *disp, &val)?;
            }
            Stmt::Prefetch { buf, index, disp } => {
                let mem = self.address(*buf, *index, *disp, 1)?;
                self.effect(Code::Prefetcht1_m8, &[Opnd::Mem(mem)]);
            }
            Stmt::For { ivar, lo, hi, step, body } => return self.for_loop(*ivar, (*lo, *hi), *step, body),
            Stmt::If { cond, then, other } => return self.branch(*cond, then, other),
            Stmt::While { head, cond, body } => return self.while_loop(head, *cond, body),
            Stmt::Return(status) => {
                self.line(Line::Return(*status));
                return Ok(Flow::Returned);
            }
        }
        Ok(Flow::Open)
    }

    fn define(&mut self, reg: Reg, val: Val) -> Res {
        self.regs[reg.0 as usize] = Some(val);
        self.make_pointers(reg)
    }

    /// Is this comparison made by the branch after it?
    fn is_fused(&self, reg: Reg) -> bool {
        let Some(Op::Cmp(_, a, _)) = self.facts.defs[reg.0 as usize] else { return false };
        let ty = self.kernel.regs[a.0 as usize];
        self.facts.fused[reg.0 as usize]
            && self.facts.uses[reg.0 as usize].count == 1
            && ty.lanes == 1
            && !ty.elem.is_float()
            && self.imm(*a).is_none()
    }

    /// Goes to `label` if `cond` is `when`.
    fn jump_if(&mut self, cond: Reg, when: bool, label: Label) -> Res {
        if self.is_fused(cond)
            && let Some(Op::Cmp(cmp, a, b)) = self.facts.defs[cond.0 as usize].cloned()
        {
            let signed = self.kernel.regs[a.0 as usize].elem.is_signed();
            self.compare_ints(a, b)?;
            let cmp = if when { cmp } else { opposite(cmp) };
            self.line(Line::JumpIf(jump_code(cmp, signed), label));
            return Ok(());
        }
        let v = self.int(cond)?;
        let d = Opnd::Reg(v, Size::D);
        self.effect(Code::Test_rm32_r32, &[d, d]);
        self.line(Line::JumpIf(if when { Code::Jne_rel32_64 } else { Code::Je_rel32_64 }, label));
        Ok(())
    }

    /// A counted loop, tested once before it and then at its end: one branch an iteration.
    ///
    /// The variable must be able to reach `hi + step - 1` without wrapping.
    fn for_loop(&mut self, ivar: Reg, (lo, hi): (Reg, Reg), step: i64, body: &[Stmt]) -> Res<Flow> {
        let known = |s: &Self, reg| s.imm(reg).map(|bits| bits as i64);
        let (lo_known, hi_known) = (known(self, lo), known(self, hi));
        let trips = lo_known.zip(hi_known).map(|(lo, hi)| (i128::from(hi) - i128::from(lo)).max(0));
        match trips {
            Some(0) => return Ok(Flow::Open),
            Some(distance) if distance <= i128::from(step) => {
                let first = self.constant(Type::scalar(DType::I64), lo_known.unwrap_or_default() as u64);
                self.define(ivar, first)?;
                return self.block(body);
            }
            _ => {}
        }
        let (start, after) = (self.label(), self.label());
        let first = self.int(lo)?;
        let i = self.copy(first);
        if trips.is_none() {
            self.compare_with(i, hi)?;
            self.line(Line::JumpIf(Code::Jge_rel32_64, after));
        }
        self.depth += 1;
        let innermost = !body.iter().any(|s| matches!(s, Stmt::For { .. } | Stmt::While { .. }));
        self.line(Line::Label(start, innermost));
        let val = self.scalar_value(DType::I64, i);
        self.define(ivar, val)?;
        if self.block(body)? == Flow::Open {
            match i32::try_from(step) {
                Ok(step) => self.update(iced_x86::Mnemonic::Add, i, Size::Q, &[Opnd::Imm(i64::from(step))]),
                Err(_) => {
                    let step = self.gpr_constant(step as u64);
                    self.update(Code::Add_r64_rm64, i, Size::Q, &[Opnd::Reg(step, Size::Q)]);
                }
            }
            self.compare_with(i, hi)?;
            self.line(Line::JumpIf(Code::Jl_rel32_64, start));
        }
        self.depth -= 1;
        self.line(Line::Label(after, false));
        Ok(Flow::Open)
    }

    /// Compares a counter with a bound.
    fn compare_with(&mut self, i: V, hi: Reg) -> Res {
        let at = Opnd::Reg(i, Size::Q);
        match self.imm(hi).map(|bits| bits as i64) {
            Some(bound) if i32::try_from(bound).is_ok() => {
                self.effect(iced_x86::Mnemonic::Cmp, &[at, Opnd::Imm(bound)]);
            }
            _ => {
                let bound = self.int(hi)?;
                self.effect(Code::Cmp_r64_rm64, &[at, Opnd::Reg(bound, Size::Q)]);
            }
        }
        Ok(())
    }

    fn while_loop(&mut self, head: &[Stmt], cond: Reg, body: &[Stmt]) -> Res<Flow> {
        let (start, after) = (self.label(), self.label());
        self.depth += 1;
        self.line(Line::Label(start, true));
        if self.block(head)? == Flow::Open {
            self.jump_if(cond, false, after)?;
            if self.block(body)? == Flow::Open {
                self.line(Line::Jump(start));
            }
        }
        self.depth -= 1;
        self.line(Line::Label(after, false));
        Ok(Flow::Open)
    }

    fn branch(&mut self, cond: Reg, then: &[Stmt], other: &[Stmt]) -> Res<Flow> {
        if !self.is_fused(cond)
            && let Some(bits) = self.imm(cond)
        {
            return self.block(if bits != 0 { then } else { other });
        }
        let (no, after) = (self.label(), self.label());
        self.jump_if(cond, false, no)?;
        let first = self.block(then)?;
        if first == Flow::Open && !other.is_empty() {
            self.line(Line::Jump(after));
        }
        self.line(Line::Label(no, false));
        let second = self.block(other)?;
        self.line(Line::Label(after, false));
        Ok(if first == Flow::Returned && second == Flow::Returned { Flow::Returned } else { Flow::Open })
    }
}

pub(super) fn opposite(cmp: Cmp) -> Cmp {
    match cmp {
        Cmp::Eq => Cmp::Ne,
        Cmp::Ne => Cmp::Eq,
        Cmp::Lt => Cmp::Ge,
        Cmp::Le => Cmp::Gt,
        Cmp::Gt => Cmp::Le,
        Cmp::Ge => Cmp::Lt,
    }
}

fn jump_code(cmp: Cmp, signed: bool) -> Code {
    match (cmp, signed) {
        (Cmp::Eq, _) => Code::Je_rel32_64,
        (Cmp::Ne, _) => Code::Jne_rel32_64,
        (Cmp::Lt, true) => Code::Jl_rel32_64,
        (Cmp::Le, true) => Code::Jle_rel32_64,
        (Cmp::Gt, true) => Code::Jg_rel32_64,
        (Cmp::Ge, true) => Code::Jge_rel32_64,
        (Cmp::Lt, false) => Code::Jb_rel32_64,
        (Cmp::Le, false) => Code::Jbe_rel32_64,
        (Cmp::Gt, false) => Code::Ja_rel32_64,
        (Cmp::Ge, false) => Code::Jae_rel32_64,
    }
}
