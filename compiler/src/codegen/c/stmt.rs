//! Statements: blocks, loops, branches, variables.

use super::helpers::Helpers;
use super::literal::scalar_type;
use super::narrow::{self, Hold};
use super::op::narrow_type;
use super::unused::{self, Line};
use super::value::{Val, chunks};
use super::{Bounds, Style, parameters, uses_tile};
use crate::dtype::DType;
use crate::kernel::ir::{Access, Kernel, Op, Reg, Stmt, Type, Var};
use std::fmt::Write as _;

/// Result inside the back end; the text becomes an internal error.
pub(super) type Res<T = ()> = Result<T, String>;

/// A function under construction.
pub(super) struct Fx<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) style: Style,
    pub(super) h: &'a mut Helpers,
    hold: Vec<Hold>,
    regs: Vec<Option<Val>>,
    out: Vec<Line>,
    depth: usize,
    temporaries: usize,
}

/// Writes a verified kernel.
pub(super) fn function(kernel: &Kernel, name: &str, style: Style, bounds: &Bounds, h: &mut Helpers) -> Res<String> {
    let hold = match style.narrow {
        true => narrow::holds(kernel, bounds),
        false => vec![Hold::Full; kernel.regs.len()],
    };
    let regs = vec![None; kernel.regs.len()];
    let mut fx = Fx { kernel, style, h, hold, regs, out: vec![], depth: 1, temporaries: 0 };
    fx.head();
    if fx.block(&kernel.body)? {
        fx.line("return 0;");
    }
    unused::drop(&mut fx.out);
    let mut out = String::new();
    let source = kernel.name.replace("*/", "* /").replace(['\n', '\r'], " ");
    if !source.is_empty() {
        let _ = writeln!(out, "/* {source} */");
    }
    let _ = writeln!(out, "static uint32_t {name}({})\n{{", parameters(kernel));
    for param in unused::missing(&fx.out, parameter_names(kernel)) {
        let _ = writeln!(out, "    (void){param};");
    }
    for line in &fx.out {
        let _ = writeln!(out, "{}", line.text);
    }
    out += "}\n";
    Ok(out)
}

/// Names of a function's parameters.
fn parameter_names(kernel: &Kernel) -> Vec<String> {
    let mut names: Vec<String> = (0..kernel.bufs.len()).map(|i| format!("p{i}")).collect();
    names.extend((0..kernel.scalars).map(|i| format!("s{i}")));
    if uses_tile(kernel) {
        names.extend(["lo".to_owned(), "hi".to_owned()]);
    }
    names
}

impl Fx<'_> {
    pub(super) fn line(&mut self, text: &str) {
        self.out.push(Line { text: format!("{:1$}{text}", "", 4 * self.depth), sets: None });
    }

    /// A line that gives `name` a value.
    fn set(&mut self, name: &str, declare: &str, value: &str) {
        let text = format!("{:1$}{declare}{name} = {value};", "", 4 * self.depth);
        self.out.push(Line { text, sets: Some(name.to_owned()) });
    }

    pub(super) fn ty(&self, reg: Reg) -> Type {
        self.kernel.regs[reg.0 as usize]
    }

    /// How a register is held that is not held as its type says.
    pub(super) fn narrow(&self, reg: Reg) -> Option<Hold> {
        Some(self.hold[reg.0 as usize]).filter(|hold| *hold != Hold::Full)
    }

    pub(super) fn is_small(&self, reg: Reg) -> bool {
        self.hold[reg.0 as usize] == Hold::Small
    }

    /// Parameters as the kernel uses them, and variables.
    fn head(&mut self) {
        let kernel = self.kernel;
        for (i, buf) in kernel.bufs.iter().enumerate() {
            let constant = if buf.access == Access::Read { "const " } else { "" };
            let ty = buf.dtype;
            let declare = format!("{constant}gm_{ty} *restrict const ");
            self.set(&format!("b{i}"), &declare, &format!("({constant}gm_{ty} *)p{i}"));
        }
        for var in 0..kernel.vars.len() {
            let ty = kernel.vars[var];
            for (name, n) in self.var_names(Var(var as u32)).into_iter().zip(chunks(self.style, ty.lanes)) {
                let c = self.piece_type(ty.elem, n);
                let zero = if n == 1 { "0" } else { "{0}" };
                self.set(&name, &format!("{c} "), zero);
            }
        }
    }

    fn piece_type(&mut self, elem: DType, lanes: u16) -> String {
        if lanes == 1 { scalar_type(elem).to_owned() } else { self.h.vector(elem, lanes) }
    }

    /// The names of a variable's pieces.
    pub(super) fn var_names(&self, var: Var) -> Vec<String> {
        let pieces = chunks(self.style, self.kernel.vars[var.0 as usize].lanes).len();
        match pieces {
            1 => vec![format!("v{}", var.0)],
            _ => (0..pieces).map(|i| format!("v{}_{i}", var.0)).collect(),
        }
    }

    /// The value of a register.
    pub(super) fn val(&self, reg: Reg) -> Res<Val> {
        let found = self.regs.get(reg.0 as usize).and_then(Option::as_ref).cloned();
        found.ok_or_else(|| format!("%{} has no value", reg.0))
    }

    /// The value of a scalar register.
    pub(super) fn scalar(&self, reg: Reg) -> Res<String> {
        let mut val = self.val(reg)?;
        match (val.ty.lanes, val.pieces.pop()) {
            (1, Some(piece)) => Ok(piece),
            _ => Err(format!("%{} is not a scalar", reg.0)),
        }
    }

    /// Names a value that is used more than once.
    pub(super) fn temporary(&mut self, elem: DType, lanes: u16, value: &str) -> String {
        let ty = self.piece_type(elem, lanes);
        let name = format!("t{}", self.temporaries);
        self.temporaries += 1;
        self.set(&name, &format!("const {ty} "), value);
        name
    }

    /// The place in a buffer of an index and a constant. Addresses wrap around, and what they address is at no negative index,
    /// so that where they have 32 bits the low half of the index will do.
    pub(super) fn place(&self, index: Reg, disp: i64) -> Res<String> {
        let x = self.scalar(index)?;
        if let Some(bits) = self.val(index)?.imm {
            return Ok(super::literal::signed((bits as i64).wrapping_add(disp)));
        }
        Ok(match (self.style.narrow, self.hold[index.0 as usize]) {
            (false, _) if disp == 0 => x,
            (false, _) => format!("{x} {} {}", if disp < 0 { '-' } else { '+' }, super::literal::unsigned(disp)),
            (true, Hold::Small | Hold::Low) if disp == 0 => x,
            (true, Hold::Low) => format!("{x} + {}u", disp as u32),
            (true, _) if disp == 0 => format!("(uint32_t){x}"),
            (true, _) => format!("(uint32_t){x} + {}u", disp as u32),
        })
    }

    /// Whether the end of the block is reached.
    fn block(&mut self, stmts: &[Stmt]) -> Res<bool> {
        for stmt in stmts {
            if !self.stmt(stmt)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn nested(&mut self, stmts: &[Stmt]) -> Res<bool> {
        self.depth += 1;
        let open = self.block(stmts)?;
        self.depth -= 1;
        Ok(open)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Res<bool> {
        match stmt {
            Stmt::Let(reg, op) => {
                let val = self.op(*reg, op)?;
                self.define(*reg, op, val);
            }
            Stmt::Set(var, reg) => {
                let val = self.val(*reg)?;
                for (name, piece) in self.var_names(*var).into_iter().zip(&val.pieces) {
                    self.set(&name, "", piece);
                }
            }
            Stmt::Store { buf, index, disp, value } => {
                let stored = self.kernel.bufs[buf.0 as usize].dtype;
                let val = self.val(*value)?;
                let mut at = *disp;
                for (n, piece) in chunks(self.style, val.ty.lanes).into_iter().zip(&val.pieces) {
                    let place = self.place(*index, at)?;
                    let text = match n {
                        1 => format!("b{}[{place}] = {};", buf.0, self.h.stored(stored, piece)),
                        _ => format!("{}(b{} + ({place}), {piece});", self.h.store(stored, n), buf.0),
                    };
                    self.line(&text);
                    at = at.wrapping_add(i64::from(n));
                }
            }
            Stmt::Prefetch { .. } => {}
            Stmt::For { ivar, lo, hi, step, body } => {
                let ty = self.narrow(*ivar).map_or("int64_t", narrow_type);
                // A counter that counts bits of an address is compared in full.
                let ty = if ty == "uint32_t" { "int64_t" } else { ty };
                if ty == "int64_t" {
                    self.hold[ivar.0 as usize] = Hold::Full;
                }
                let (lo, hi, i) = (self.scalar(*lo)?, self.scalar(*hi)?, format!("r{}", ivar.0));
                self.regs[ivar.0 as usize] = Some(Val { ty: self.ty(*ivar), pieces: vec![i.clone()], imm: None });
                let next =
                    if *step == 1 { format!("{i}++") } else { format!("{i} += {}", super::literal::signed(*step)) };
                self.line(&format!("for ({ty} {i} = {lo}; {i} < {hi}; {next}) {{"));
                self.nested(body)?;
                self.line("}");
            }
            Stmt::If { cond, then, other } => {
                let cond = self.scalar(*cond)?;
                self.line(&format!("if ({cond}) {{"));
                let mut open = self.nested(then)?;
                if other.is_empty() {
                    open = true;
                } else {
                    self.line("} else {");
                    open |= self.nested(other)?;
                }
                self.line("}");
                return Ok(open);
            }
            Stmt::While { head, cond, body } => {
                self.line("for (;;) {");
                self.depth += 1;
                let open = self.block(head)?;
                if open {
                    let cond = self.scalar(*cond)?;
                    self.line(&format!("if (!{cond})"));
                    self.line("    break;");
                    self.block(body)?;
                }
                self.depth -= 1;
                self.line("}");
                return Ok(open);
            }
            Stmt::Return(status) => {
                self.line(&format!("return {status}u;"));
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives what a register is made of names, but for constants.
    fn define(&mut self, reg: Reg, op: &Op, mut val: Val) {
        let several = val.pieces.len() > 1;
        let mut named: Vec<(String, String)> = vec![];
        for (i, n) in chunks(self.style, val.ty.lanes).into_iter().enumerate() {
            if n == 1 && matches!(op, Op::Const(..)) {
                continue;
            }
            // Copies of one vector are one.
            if let Some((_, name)) = named.iter().find(|(text, _)| *text == val.pieces[i]) {
                val.pieces[i].clone_from(name);
                continue;
            }
            let ty = match self.narrow(reg) {
                Some(hold) => narrow_type(hold).to_owned(),
                None => self.piece_type(val.ty.elem, n),
            };
            let name = if several { format!("r{}_{i}", reg.0) } else { format!("r{}", reg.0) };
            self.set(&name, &format!("const {ty} "), &val.pieces[i].clone());
            let text = std::mem::replace(&mut val.pieces[i], name.clone());
            named.push((text, name));
        }
        self.regs[reg.0 as usize] = Some(val);
    }
}
