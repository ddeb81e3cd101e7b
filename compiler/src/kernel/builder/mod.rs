//! Builds kernels: folds constants, shares common subexpressions, and moves what does not change out of loops.
//!
//! A *pure* operation (anything but loads and [`Op::Get`]) is simplified first, then looked up among the operations of
//! all open blocks, and if new, appended to the outermost open block in which its operands are defined. Since a loop is
//! appended to its parent only when it is closed, what is hoisted comes to stand just before it. Loads stay where they are
//! asked for, since a loop or branch that does not run must not load; a load from a read-only buffer is shared with an equal
//! one in an open block.
//!
//! Wrong types, registers out of scope and blocks closed out of order are mistakes of the calling code, not of its input:
//! the builder panics with the reason.

mod clean;
mod control;
mod data;
mod simplify;
#[cfg(test)]
mod tests;

use super::ir::{Access, Buf, BufParam, Imm, Kernel, Op, Reg, Stmt, Type, Var};
use super::types::{Env, operands, result_type};
use crate::dtype::DType;
pub use clean::clean;
use std::collections::HashMap;

/// Builds one [`Kernel`].
#[derive(Debug)]
pub struct Builder {
    name: String,
    bufs: Vec<BufParam>,
    scalars: u32,
    tiled: bool,
    defs: Vec<Def>,
    vars: Vec<Type>,
    scopes: Vec<Scope>,
    next_scope: u32,
    pinned: bool,
}

/// What is known of a register.
#[derive(Debug)]
struct Def {
    ty: Type,
    /// What computes it; nothing for loop variables.
    op: Option<Op>,
    /// Depth of the scope that defines it.
    depth: u32,
    /// Identity of that scope: depths are used again by later scopes.
    scope: u32,
}

/// An open block.
#[derive(Debug)]
struct Scope {
    id: u32,
    kind: Kind,
    stmts: Vec<Stmt>,
    values: HashMap<Op, Reg>,
    /// What was loaded from buffers that the kernel writes, since they were last written: known in this block alone, for one inside
    /// may run again after it has written.
    loaded: HashMap<Op, Reg>,
}

/// Which statement an open block belongs to.
#[derive(Debug)]
enum Kind {
    /// The kernel's body.
    Root,
    /// A loop that runs exactly once: its statements go to the parent.
    Once,
    /// A loop that never runs.
    Never,
    For {
        ivar: Reg,
        lo: Reg,
        hi: Reg,
        step: i64,
    },
    Then {
        cond: Reg,
    },
    Else {
        cond: Reg,
        then: Vec<Stmt>,
    },
    /// The head of a while loop; while the body is open, it is the scope below the body's.
    Head,
    Body {
        cond: Reg,
    },
}

impl Builder {
    /// Starts a kernel with these parameters; see [`Kernel`] for what `tiled` means.
    pub fn new(name: impl Into<String>, bufs: Vec<BufParam>, scalars: u32, tiled: bool) -> Builder {
        let mut builder = Builder {
            name: name.into(),
            bufs,
            scalars,
            tiled,
            defs: Vec::new(),
            vars: Vec::new(),
            scopes: Vec::new(),
            next_scope: 0,
            pinned: false,
        };
        builder.open(Kind::Root);
        builder
    }

    /// The type of a register.
    pub fn ty(&self, reg: Reg) -> Type {
        self.def(reg).ty
    }

    /// The type of a variable.
    pub fn var_ty(&self, var: Var) -> Type {
        match self.vars.get(var.0 as usize) {
            Some(ty) => *ty,
            None => panic!("kernel {}: no variable v{}", self.name, var.0),
        }
    }

    /// The operation that computes a register; nothing for loop variables.
    pub fn op_of(&self, reg: Reg) -> Option<&Op> {
        self.def(reg).op.as_ref()
    }

    /// The constant that a register holds in every lane, if it is one.
    pub fn const_of_reg(&self, reg: Reg) -> Option<Imm> {
        match self.op_of(reg) {
            Some(Op::Const(imm, _)) => Some(*imm),
            _ => None,
        }
    }

    /// The value of an integer or bool register that holds a constant (in every lane).
    pub fn const_i64(&self, reg: Reg) -> Option<i64> {
        let imm = self.const_of_reg(reg)?;
        (!imm.elem.is_float()).then(|| super::scalar::to_i64(imm.elem, imm.bits))
    }

    /// Adds a buffer parameter.
    pub fn add_buf(&mut self, param: BufParam) -> Buf {
        self.bufs.push(param);
        Buf(self.bufs.len() as u32 - 1)
    }

    /// Lets the kernel write a buffer that it has asked for reading. What it has read so far it does not write.
    pub fn let_write(&mut self, buf: Buf) {
        if let Some(param) = self.bufs.get_mut(buf.0 as usize) {
            param.access = Access::Write;
        }
    }

    /// Adds an `i64` scalar parameter; gives its index.
    pub fn add_scalar(&mut self) -> u32 {
        self.scalars += 1;
        self.scalars - 1
    }

    /// The parameters of a buffer.
    pub fn buf_param(&self, buf: Buf) -> &BufParam {
        match self.bufs.get(buf.0 as usize) {
            Some(param) => param,
            None => panic!("kernel {}: no buffer b{}", self.name, buf.0),
        }
    }

    /// Switches hoisting off (`true`) or on, for a region whose order was chosen by hand; gives the previous setting.
    /// Common subexpressions are shared all the same.
    pub fn pinned(&mut self, on: bool) -> bool {
        core::mem::replace(&mut self.pinned, on)
    }

    /// A new variable. It is zero when the kernel starts, and not set again where it is declared.
    pub fn var(&mut self, ty: Type) -> Var {
        if !ty.is_register_type() {
            panic!("kernel {}: no variable can have type {ty}", self.name);
        }
        self.vars.push(ty);
        Var(self.vars.len() as u32 - 1)
    }

    /// A new variable that is set to `value` here.
    pub fn var_init(&mut self, value: Reg) -> Var {
        let var = self.var(self.ty(value));
        self.set(var, value);
        var
    }

    /// The kernel without the statements that nothing depends on, its registers numbered in order of definition.
    pub fn finish(mut self) -> Kernel {
        let root = match (self.scopes.pop(), self.scopes.len()) {
            (Some(root), 0) => root,
            (_, open) => panic!("kernel {}: {open} blocks are still open", self.name),
        };
        let mut kernel = Kernel {
            name: self.name,
            bufs: self.bufs,
            scalars: self.scalars,
            tiled: self.tiled,
            regs: self.defs.iter().map(|def| def.ty).collect(),
            vars: self.vars,
            body: closed(root.stmts),
        };
        clean(&mut kernel);
        kernel
    }

    /// An operation given as data, treated as the method of its kind treats it.
    pub fn op(&mut self, op: Op) -> Reg {
        match op {
            Op::Const(imm, lanes) => self.const_of(imm, lanes),
            Op::Scalar(_) | Op::TileLo | Op::TileHi | Op::Iota(..) => self.pure(op),
            Op::Un(un, a) => self.un(un, a),
            Op::Bin(bin, a, b) => self.bin(bin, a, b),
            Op::Fma(a, b, c) => self.fma(a, b, c),
            Op::Dot(dot, a, b, c) => self.dot(dot, a, b, c),
            Op::Cmp(cmp, a, b) => self.cmp(cmp, a, b),
            Op::Select(mask, a, b) => self.select(mask, a, b),
            Op::Cast(to, a) => self.cast(to, a),
            Op::Bitcast(to, a) => self.bitcast(to, a),
            Op::Splat(a, lanes) => self.splat(a, lanes),
            Op::Extract(a, lane) => self.extract(a, lane),
            Op::Insert(a, lane, v) => self.insert(a, lane, v),
            Op::Shuffle(a, b, picks) => self.shuffle(a, b, picks),
            Op::Horizontal(kind, a) => self.horizontal(kind, a),
            Op::Load { buf, index, disp, lanes } => self.load(buf, index, disp, lanes),
            Op::Words { buf, index, disp, lanes } => self.words(buf, index, disp, lanes),
            Op::Get(var) => self.get(var),
        }
    }

    fn def(&self, reg: Reg) -> &Def {
        let Some(def) = self.defs.get(reg.0 as usize) else {
            panic!("kernel {}: no register %{}", self.name, reg.0);
        };
        let visible = self.scopes.get(def.depth as usize).is_some_and(|scope| scope.id == def.scope);
        if !visible {
            panic!("kernel {}: register %{} is used outside the block that defines it", self.name, reg.0);
        }
        def
    }

    fn top(&mut self) -> &mut Scope {
        match self.scopes.last_mut() {
            Some(scope) => scope,
            None => unreachable!("the root scope is open until finish"),
        }
    }

    fn push(&mut self, stmt: Stmt) {
        self.top().stmts.push(stmt);
    }

    /// The type of an operation's result; panics if it has none.
    fn check(&self, op: &Op) -> Type {
        let env = Env { bufs: &self.bufs, scalars: self.scalars, vars: &self.vars };
        match result_type(&env, op, &|reg| Ok(self.def(reg).ty)) {
            Ok(ty) => ty,
            Err(error) => panic!("kernel {}: {op:?}: {error}", self.name),
        }
    }

    fn depth(&self, reg: Reg) -> u32 {
        self.def(reg).depth
    }

    /// Places a simplified pure operation: shared if it is known, else hoisted as far as its operands allow.
    fn pure(&mut self, op: Op) -> Reg {
        let depth = self.outermost(&op);
        if let Some(reg) = self.known(&op, depth) {
            return reg;
        }
        let at = if self.pinned { self.scopes.len() - 1 } else { depth };
        self.define(op, at, true)
    }

    /// Places an operation in the innermost block.
    fn here(&mut self, op: Op, shared: bool) -> Reg {
        if shared && let Some(reg) = self.known(&op, self.outermost(&op)) {
            return reg;
        }
        self.define(op, self.scopes.len() - 1, shared)
    }

    /// Depth of the outermost open block in which all operands are defined.
    fn outermost(&self, op: &Op) -> usize {
        let mut depth = 0;
        operands(op, |reg| depth = depth.max(self.depth(reg)));
        depth as usize
    }

    fn known(&self, op: &Op, depth: usize) -> Option<Reg> {
        self.scopes[depth..].iter().find_map(|scope| scope.values.get(op).copied())
    }

    fn define(&mut self, op: Op, at: usize, shared: bool) -> Reg {
        let ty = self.check(&op);
        let reg = self.new_reg(ty, Some(op.clone()), at);
        let scope = &mut self.scopes[at];
        scope.stmts.push(Stmt::Let(reg, op.clone()));
        if shared {
            scope.values.insert(op, reg);
        }
        reg
    }

    fn new_reg(&mut self, ty: Type, op: Option<Op>, at: usize) -> Reg {
        self.defs.push(Def { ty, op, depth: at as u32, scope: self.scopes[at].id });
        Reg(self.defs.len() as u32 - 1)
    }

    fn open(&mut self, kind: Kind) {
        let id = self.next_scope;
        self.next_scope += 1;
        self.scopes.push(Scope { id, kind, stmts: Vec::new(), values: HashMap::new(), loaded: HashMap::new() });
    }

    fn is_read_only(&self, buf: Buf) -> bool {
        self.buf_param(buf).access == Access::Read
    }

    fn elem(&self, reg: Reg) -> DType {
        self.ty(reg).elem
    }
}

/// A finished block: nothing after the first `Return` runs.
fn closed(mut stmts: Vec<Stmt>) -> Vec<Stmt> {
    if let Some(end) = stmts.iter().position(|stmt| matches!(stmt, Stmt::Return(_))) {
        stmts.truncate(end + 1);
    }
    stmts
}
