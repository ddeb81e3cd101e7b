//! Checks that a kernel is well formed: types, scopes, single assignment, parameters in range.
//!
//! Back ends and the interpreter take verified kernels only. What is not checked is what only a run can show: indices
//! outside a buffer.

use super::ir::{Access, Buf, Kernel, Op, Reg, Stmt, Type, Var};
use super::types::{Env, cond_type, index_type, result_type, var_type};
use crate::dtype::DType;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt::{self, Write as _};

/// Deepest nesting of blocks that is accepted, so that recursion over statements is bounded.
pub const MAX_DEPTH: usize = 128;

/// What is wrong with a kernel, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The kernel's name.
    pub kernel: String,
    /// The statement, from the outside in: `body[4].for[0].then[2]`.
    pub path: String,
    /// The rule that is broken.
    pub reason: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: at {}: {}", self.kernel, self.path, self.reason)
    }
}

impl core::error::Error for Invalid {}

/// Checks a whole kernel.
pub fn verify(kernel: &Kernel) -> Result<(), Invalid> {
    let env = Env { bufs: &kernel.bufs, scalars: kernel.scalars, vars: &kernel.vars };
    let mut check = Check { kernel, env, state: vec![State::Undefined; kernel.regs.len()], path: Vec::new() };
    let outcome = check.declarations().and_then(|()| check.block("body", &kernel.body)).map(drop);
    outcome.map_err(|reason| Invalid { kernel: kernel.name.clone(), path: check.path_text(), reason })
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Undefined,
    Visible,
    /// Defined in a block that has ended.
    Gone,
}

struct Check<'a> {
    kernel: &'a Kernel,
    env: Env<'a>,
    state: Vec<State>,
    /// Block names with the statement's number in them. Left as it is where an error occurs.
    path: Vec<(&'static str, usize)>,
}

type Checked<T = ()> = Result<T, String>;

impl Check<'_> {
    fn path_text(&self) -> String {
        let mut text = String::new();
        for (i, (block, number)) in self.path.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            let _ = write!(text, "{dot}{block}[{number}]");
        }
        if text.is_empty() { "declarations".to_string() } else { text }
    }

    fn declarations(&self) -> Checked {
        let regs = self.kernel.regs.iter().enumerate().map(|(i, ty)| ('%', i, ty));
        let vars = self.kernel.vars.iter().enumerate().map(|(i, ty)| ('v', i, ty));
        match regs.chain(vars).find(|(_, _, ty)| !ty.is_register_type()) {
            Some((sigil, i, ty)) => Err(format!("{sigil}{i} has type {ty}, which no register has")),
            None => Ok(()),
        }
    }

    fn ty(&self, reg: Reg) -> Checked<Type> {
        match self.state.get(reg.0 as usize) {
            None => Err(format!("%{} does not exist", reg.0)),
            Some(State::Undefined) => Err(format!("%{} is used before it is defined", reg.0)),
            Some(State::Gone) => Err(format!("%{} is used outside the block that defines it", reg.0)),
            Some(State::Visible) => Ok(self.kernel.regs[reg.0 as usize]),
        }
    }

    fn define(&mut self, reg: Reg, ty: Type, defined: &mut Vec<Reg>) -> Checked {
        match self.state.get(reg.0 as usize) {
            None => return Err(format!("%{} does not exist", reg.0)),
            Some(State::Undefined) => {}
            Some(_) => return Err(format!("%{} is assigned twice", reg.0)),
        }
        let declared = self.kernel.regs[reg.0 as usize];
        if declared != ty {
            return Err(format!("%{} is declared as {declared} and defined as {ty}", reg.0));
        }
        self.state[reg.0 as usize] = State::Visible;
        defined.push(reg);
        Ok(())
    }

    /// Checks a block and leaves its scope.
    fn block(&mut self, name: &'static str, stmts: &[Stmt]) -> Checked {
        let defined = self.open_block(name, stmts, Vec::new())?;
        self.leave(defined);
        Ok(())
    }

    fn leave(&mut self, defined: Vec<Reg>) {
        for reg in defined {
            self.state[reg.0 as usize] = State::Gone;
        }
    }

    /// Checks a block and gives the registers it defines, which stay visible.
    fn open_block(&mut self, name: &'static str, stmts: &[Stmt], mut defined: Vec<Reg>) -> Checked<Vec<Reg>> {
        if self.path.len() >= MAX_DEPTH {
            return Err(format!("blocks are nested deeper than {MAX_DEPTH}"));
        }
        self.path.push((name, 0));
        for (number, stmt) in stmts.iter().enumerate() {
            if let Some(last) = self.path.last_mut() {
                last.1 = number;
            }
            self.stmt(stmt, &mut defined)?;
        }
        self.path.pop();
        Ok(defined)
    }

    fn stmt(&mut self, stmt: &Stmt, defined: &mut Vec<Reg>) -> Checked {
        match stmt {
            Stmt::Let(reg, op) => {
                let ty = self.op(op)?;
                self.define(*reg, ty, defined)
            }
            Stmt::Set(var, value) => self.set(*var, *value),
            Stmt::Store { buf, index, value, .. } => self.store(*buf, *index, *value),
            Stmt::Prefetch { buf, index, .. } => {
                self.kernel.bufs.get(buf.0 as usize).ok_or_else(|| format!("no buffer b{}", buf.0))?;
                index_type(self.ty(*index)?)
            }
            Stmt::For { ivar, lo, hi, step, body } => {
                index_type(self.ty(*lo)?)?;
                index_type(self.ty(*hi)?)?;
                if *step < 1 {
                    return Err(format!("a loop with step {step}"));
                }
                let mut inner = Vec::new();
                self.define(*ivar, Type::scalar(DType::I64), &mut inner)?;
                let inner = self.open_block("for", body, inner)?;
                self.leave(inner);
                Ok(())
            }
            Stmt::If { cond, then, other } => {
                cond_type(self.ty(*cond)?)?;
                self.block("then", then)?;
                self.block("else", other)
            }
            Stmt::While { head, cond, body } => {
                let inner = self.open_block("head", head, Vec::new())?;
                cond_type(self.ty(*cond)?)?;
                self.block("while", body)?;
                self.leave(inner);
                Ok(())
            }
            Stmt::Return(_) => Ok(()),
        }
    }

    fn op(&self, op: &Op) -> Checked<Type> {
        result_type(&self.env, op, &|reg| self.ty(reg))
    }

    fn set(&self, var: Var, value: Reg) -> Checked {
        let (to, from) = (var_type(&self.env, var)?, self.ty(value)?);
        if to == from { Ok(()) } else { Err(format!("v{} of type {to} is set to {from}", var.0)) }
    }

    fn store(&self, buf: Buf, index: Reg, value: Reg) -> Checked {
        let param = self.kernel.bufs.get(buf.0 as usize).ok_or_else(|| format!("no buffer b{}", buf.0))?;
        index_type(self.ty(index)?)?;
        let ty = self.ty(value)?;
        if param.access != Access::Write {
            return Err(format!("store into b{}, which is only read", buf.0));
        }
        if ty.elem != param.dtype.compute() {
            return Err(format!("store of {ty} into b{} of {}", buf.0, param.dtype));
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::*;
    use crate::text::parse;

    fn reject(body: &str, path: &str, reason: &str) {
        let text = format!("kernel \"k\" {{ b0: read f32 b1: write f16 scalars 1 v0: f32 {body} }}");
        let kernel = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let invalid = verify(&kernel).expect_err(body);
        assert_eq!(invalid.path, path, "{invalid}");
        assert!(invalid.reason.contains(reason), "{invalid}");
    }

    #[test]
    fn broken_rules_are_named_with_their_statement() {
        let zero = "%0: i64 = const 0 %1: f32 = const 1.0 %2: bool = const true";
        let at = |rest: &str| format!("{zero} {rest}");
        reject(&at("%3: f32 = add %0, %1"), "body[3]", "operands of types i64 and f32");
        reject(&at("%3: i64 = add %1, %1"), "body[3]", "declared as i64 and defined as f32");
        reject(&at("%3: bool = add %2, %2"), "body[3]", "no Add of bool");
        reject(&at("%3: f32 = popcnt %1"), "body[3]", "no Popcnt");
        reject(&at("%3: f32 = load b2[%0]"), "body[3]", "no buffer b2");
        reject(&at("%3: f32 = load b0[%1]"), "body[3]", "must be i64");
        reject(&at("store b0[%0] = %1"), "body[3]", "only read");
        reject(&at("store b1[%0] = %0"), "body[3]", "store of i64 into b1 of f16");
        reject(&at("v0 = %0"), "body[3]", "v0 of type f32 is set to i64");
        reject(&at("v1 = %0"), "body[3]", "no variable v1");
        reject(&at("%3: i64 = scalar 1"), "body[3]", "scalar parameter 1 of 1");
        reject(&at("%3: f16 = const 1"), "declarations", "which no register has");
        reject(&at("%3: f32x0 = splat %1"), "declarations", "which no register has");
        reject(&at("%3: f32x4 = splat %1 %4: f32 = extract %3[4]"), "body[4]", "lane 4 of f32x4");
        reject(&at("%3: f32x4 = splat %1 %4: f32x2 = shuffle %3, %3 [0, 8]"), "body[4]", "picks lane 8");
        reject(&at("%3: f32x4 = splat %1 %4: f32x4 = rem %3, %3"), "body[4]", "no Rem");
        reject(&at("if %0 { }"), "body[3]", "condition must be bool");
        reject(&at("%3: i64 = add %4, %0 %4: i64 = add %0, %0"), "body[3]", "before it is defined");
        reject(&at("%1: f32 = const 2.0"), "body[3]", "assigned twice");
        reject(&at("for %3 in %0..%0 step 0 { }"), "body[3]", "step 0");
        reject(
            &at("for %3 in %0..%0 step 1 { if %2 { %4: i64 = add %3, %0 } else { %5: i64 = add %4, %0 } }"),
            "body[3].for[0].else[0]",
            "outside the block",
        );
        reject(&at("for %3 in %3..%0 step 1 { }"), "body[3]", "before it is defined");
        reject(&at("for %3 in %0..%0 step 1 { } store b1[%3] = %1"), "body[4]", "outside the block");
    }

    #[test]
    fn the_head_of_a_while_loop_is_visible_in_its_body_only() {
        let text = |rest: &str| {
            let text = format!(
                "kernel \"k\" {{ scalars 1 v0: i64 while {{ %0: i64 = get v0 %1: i64 = scalar 0 %2: bool = lt %0, %1 }} \
                 %2 {{ v0 = %1 }} {rest} }}"
            );
            parse(&text).unwrap()
        };
        assert_eq!(verify(&text("")), Ok(()));
        assert!(verify(&text("v0 = %1")).unwrap_err().reason.contains("outside the block"));
    }

    #[test]
    fn nesting_is_bounded() {
        let mut kernel = parse("kernel \"k\" { %0: bool = const true }").unwrap();
        for _ in 0..MAX_DEPTH {
            let inner = core::mem::take(&mut kernel.body);
            let (define, nested) = inner.split_at(1);
            let then = nested.to_vec();
            kernel.body = define.to_vec();
            kernel.body.push(Stmt::If { cond: Reg(0), then, other: Vec::new() });
        }
        assert!(verify(&kernel).unwrap_err().reason.contains("nested deeper"));
    }
}
