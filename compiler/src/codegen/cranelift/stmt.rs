//! Statements: blocks, loops, branches, variables.

use super::address::Uses;
use super::fx::{Fx, MASK_WIDTH, Res, Val, access_flags, chunks, clif_scalar, clif_vector};
use super::isa::Isa;
use crate::dtype::DType;
use crate::kernel::ir::{Kernel, Reg, Stmt, Type, Var};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, SourceLoc, Value, types};
use cranelift_frontend::FunctionBuilder;
use graphmend_cache_format::abi::{offset64, status};
use std::collections::HashMap;

/// Whether control can reach the end of what was translated.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Open,
    Returned,
}

/// Translates a verified kernel.
pub(super) fn kernel(kernel: &Kernel, isa: &Isa, b: FunctionBuilder<'_>) -> Res {
    let uses = Uses::of(kernel, isa.caps());
    let mut fx = Fx {
        kernel,
        caps: isa.caps(),
        isa,
        b,
        regs: vec![None; kernel.regs.len()],
        defs: uses.defs,
        vars: Vec::new(),
        bufs: vec![None; kernel.bufs.len()],
        scalars: vec![None; kernel.scalars as usize],
        tile_lo: None,
        tile_hi: None,
        pointer_plan: uses.pointers,
        pointers: HashMap::new(),
        constants: HashMap::new(),
        quotients: HashMap::new(),
    };
    let entry = fx.b.create_block();
    fx.b.append_block_params_for_function_params(entry);
    fx.b.switch_to_block(entry);
    fx.b.seal_block(entry);
    let args = fx.b.block_params(entry)[0];
    fx.arguments(args, &uses.bufs, &uses.scalars, uses.tile);
    for var in 0..kernel.vars.len() {
        fx.constants.clear();
        fx.declare(Var(var as u32))?;
    }
    if fx.block(&kernel.body)? == Flow::Open {
        fx.leave(status::OK);
    }
    let config = fx.isa.target().frontend_config();
    fx.b.finalize(config);
    Ok(())
}

impl Fx<'_, '_> {
    /// Loads what the kernel uses of its arguments.
    fn arguments(&mut self, args: Value, bufs: &[bool], scalars: &[bool], tile: [bool; 2]) {
        let load = |fx: &mut Self, base, at| fx.b.ins().load(types::I64, access_flags(), base, at);
        if bufs.contains(&true) {
            let table = load(self, args, offset64::BUFS);
            for (i, _) in bufs.iter().enumerate().filter(|(_, used)| **used) {
                self.bufs[i] = Some(load(self, table, 8 * i as i32));
            }
        }
        if scalars.contains(&true) {
            let table = load(self, args, offset64::SCALARS);
            for (i, _) in scalars.iter().enumerate().filter(|(_, used)| **used) {
                self.scalars[i] = Some(load(self, table, 8 * i as i32));
            }
        }
        self.tile_lo = tile[0].then(|| load(self, args, offset64::TILE_LO));
        self.tile_hi = tile[1].then(|| load(self, args, offset64::TILE_HI));
    }

    fn var_width(ty: Type) -> u8 {
        if ty.elem == DType::Bool { MASK_WIDTH } else { ty.elem.size() as u8 }
    }

    /// Declares a variable and sets it to zero.
    fn declare(&mut self, var: Var) -> Res {
        let ty = self.kernel.vars[var.0 as usize];
        let width = Self::var_width(ty);
        let mut vars = Vec::new();
        for chunk in chunks(self.caps, ty.lanes, width) {
            let clif = if chunk.vector { clif_vector(ty.elem, width) } else { clif_scalar(ty.elem) };
            vars.push(self.b.declare_var(clif));
        }
        self.vars.push(vars);
        let mut zero = self.constant_of_width(ty, 0, width);
        if zero.pieces.is_empty() {
            zero.pieces.push(self.scalar_const(ty.elem, 0));
        }
        self.assign(var, &zero)
    }

    fn assign(&mut self, var: Var, value: &Val) -> Res {
        let value = if value.ty.elem == DType::Bool { self.mask_to(value, MASK_WIDTH)? } else { value.clone() };
        for (i, piece) in value.pieces.iter().enumerate() {
            let place = *self.vars[var.0 as usize].get(i).ok_or("a variable is cut differently")?;
            self.b.def_var(place, *piece);
        }
        Ok(())
    }

    pub(super) fn get(&mut self, var: Var) -> Val {
        let ty = self.kernel.vars[var.0 as usize];
        let places = self.vars[var.0 as usize].clone();
        let pieces = places.into_iter().map(|place| self.b.use_var(place)).collect();
        Val { ty, width: Self::var_width(ty), pieces, imm: None }
    }

    fn leave(&mut self, status: u32) {
        let status = self.iconst(4, status as u64);
        self.b.ins().return_(&[status]);
    }

    fn define(&mut self, reg: Reg, val: Val) -> Res {
        self.regs[reg.0 as usize] = Some(val);
        self.make_pointers(reg)
    }

    fn block(&mut self, stmts: &[Stmt]) -> Res<Flow> {
        let outside = self.quotients.clone();
        let mut flow = Flow::Open;
        for stmt in stmts {
            flow = self.stmt(stmt)?;
            if flow == Flow::Returned {
                break;
            }
        }
        self.quotients = outside;
        Ok(flow)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<Flow> {
        self.constants.clear();
        match stmt {
            Stmt::Let(reg, op) => {
                self.b.set_srcloc(SourceLoc::new(reg.0));
                let val = self.op(*reg, op)?;
                self.define(*reg, val)?;
            }
            Stmt::Set(var, reg) => {
                let val = self.val(*reg)?;
                self.assign(*var, &val)?;
            }
            Stmt::Store { buf, index, disp, value } => {
                let val = self.val(*value)?;
                self.store(*buf, *index, *disp, &val)?;
            }
            Stmt::Prefetch { .. } => {}
            Stmt::For { ivar, lo, hi, step, body } => return self.for_loop(*ivar, (*lo, *hi), *step, body),
            Stmt::If { cond, then, other } => return self.branch(*cond, then, other),
            Stmt::While { head, cond, body } => return self.while_loop(head, *cond, body),
            Stmt::Return(status) => {
                self.leave(*status);
                return Ok(Flow::Returned);
            }
        }
        Ok(Flow::Open)
    }

    /// A counted loop, tested once before it and then at its end: one branch an iteration.
    ///
    /// The variable must be able to reach `hi + step - 1` without wrapping.
    fn for_loop(&mut self, ivar: Reg, (lo, hi): (Reg, Reg), step: i64, body: &[Stmt]) -> Res<Flow> {
        let known = |fx: &Self, reg| fx.imm(reg).map(|bits| bits as i64);
        let index = Type { elem: DType::I64, lanes: 1 };
        let (lo_known, hi_known) = (known(self, lo), known(self, hi));
        let trips = lo_known.zip(hi_known).map(|(lo, hi)| (hi as i128 - lo as i128).max(0));
        match trips {
            Some(0) => return Ok(Flow::Open),
            Some(distance) if distance <= step as i128 => {
                let first = self.constant(index, lo_known.unwrap_or_default() as u64);
                self.define(ivar, first)?;
                return self.block(body);
            }
            _ => {}
        }
        let first = self.scalar(lo)?;
        let (inside, after) = (self.b.create_block(), self.b.create_block());
        let variable = self.b.append_block_param(inside, types::I64);
        if trips.is_some() {
            self.b.ins().jump(inside, &[first.into()]);
        } else {
            let bound = self.scalar(hi)?;
            let enter = self.b.ins().icmp(IntCC::SignedLessThan, first, bound);
            self.b.ins().brif(enter, inside, &[first.into()], after, &[]);
        }
        self.b.switch_to_block(inside);
        let val = self.one(DType::I64, variable);
        self.define(ivar, val)?;
        if self.block(body)? == Flow::Open {
            let bound = self.scalar(hi)?;
            let step = self.iconst(8, step as u64);
            let next = self.b.ins().iadd(variable, step);
            let again = self.b.ins().icmp(IntCC::SignedLessThan, next, bound);
            self.b.ins().brif(again, inside, &[next.into()], after, &[]);
        } else if trips.is_some() {
            // The loop is entered for certain and its body always returns.
            self.b.seal_block(inside);
            return Ok(self.abandon(after));
        }
        self.b.seal_block(inside);
        Ok(self.join(after))
    }

    fn while_loop(&mut self, head: &[Stmt], cond: Reg, body: &[Stmt]) -> Res<Flow> {
        let (start, inside, after) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.ins().jump(start, &[]);
        self.b.switch_to_block(start);
        if self.block(head)? == Flow::Returned {
            self.b.seal_block(start);
            self.abandon(inside);
            return Ok(self.abandon(after));
        }
        let go = self.scalar(cond)?;
        self.b.ins().brif(go, inside, &[], after, &[]);
        self.b.seal_block(inside);
        self.b.switch_to_block(inside);
        if self.block(body)? == Flow::Open {
            self.b.ins().jump(start, &[]);
        }
        self.b.seal_block(start);
        Ok(self.join(after))
    }

    fn branch(&mut self, cond: Reg, then: &[Stmt], other: &[Stmt]) -> Res<Flow> {
        if let Some(bits) = self.imm(cond) {
            return self.block(if bits != 0 { then } else { other });
        }
        let cond = self.scalar(cond)?;
        let (yes, after) = (self.b.create_block(), self.b.create_block());
        let no = if other.is_empty() { after } else { self.b.create_block() };
        self.b.ins().brif(cond, yes, &[], no, &[]);
        self.b.seal_block(yes);
        self.b.switch_to_block(yes);
        let mut flow = self.block(then)?;
        if flow == Flow::Open {
            self.b.ins().jump(after, &[]);
        }
        if no == after {
            flow = Flow::Open;
        } else {
            self.b.seal_block(no);
            self.b.switch_to_block(no);
            if self.block(other)? == Flow::Open {
                self.b.ins().jump(after, &[]);
                flow = Flow::Open;
            }
        }
        Ok(if flow == Flow::Open { self.join(after) } else { self.abandon(after) })
    }

    fn join(&mut self, after: Block) -> Flow {
        self.b.seal_block(after);
        self.b.switch_to_block(after);
        Flow::Open
    }

    /// Closes a block that nothing jumps to. It was never inserted, so nothing is emitted for it.
    fn abandon(&mut self, block: Block) -> Flow {
        self.b.seal_block(block);
        Flow::Returned
    }
}
