//! Kernels as text.

use super::{BIN_OPS, CMPS, DOTS, HORIZONTALS, UN_OPS, word_of};
use crate::dtype::DType;
use crate::ir::{Access, Buf, Imm, Kernel, Op, Reg, Stmt};
use std::fmt::{self, Display, Formatter};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("kernel \"")?;
        for c in self.name.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                _ => write!(f, "{c}")?,
            }
        }
        writeln!(f, "\"{} {{", if self.tiled { " tiled" } else { "" })?;
        for (i, buf) in self.bufs.iter().enumerate() {
            let access = match buf.access {
                Access::Read => "read",
                Access::Write => "write",
            };
            writeln!(f, "  b{i}: {access} {}", buf.dtype)?;
        }
        if self.scalars > 0 {
            writeln!(f, "  scalars {}", self.scalars)?;
        }
        for (i, ty) in self.vars.iter().enumerate() {
            writeln!(f, "  v{i}: {ty}")?;
        }
        block(f, self, &self.body, 1)?;
        writeln!(f, "}}")
    }
}

fn block(f: &mut Formatter<'_>, kernel: &Kernel, stmts: &[Stmt], depth: usize) -> fmt::Result {
    let indent = 2 * depth;
    for stmt in stmts {
        write!(f, "{:indent$}", "")?;
        match stmt {
            Stmt::Let(reg, op) => {
                match kernel.regs.get(reg.0 as usize) {
                    Some(ty) => write!(f, "%{}: {ty} = ", reg.0)?,
                    None => write!(f, "%{}: ? = ", reg.0)?,
                }
                operation(f, op)?;
                writeln!(f)?;
            }
            Stmt::Set(var, value) => writeln!(f, "v{} = %{}", var.0, value.0)?,
            Stmt::Store { buf, index, disp, value } => {
                f.write_str("store ")?;
                place(f, *buf, *index, *disp)?;
                writeln!(f, " = %{}", value.0)?;
            }
            Stmt::Prefetch { buf, index, disp } => {
                f.write_str("prefetch ")?;
                place(f, *buf, *index, *disp)?;
                writeln!(f)?;
            }
            Stmt::For { ivar, lo, hi, step, body } => {
                writeln!(f, "for %{} in %{}..%{} step {step} {{", ivar.0, lo.0, hi.0)?;
                block(f, kernel, body, depth + 1)?;
                writeln!(f, "{:indent$}}}", "")?;
            }
            Stmt::If { cond, then, other } => {
                writeln!(f, "if %{} {{", cond.0)?;
                block(f, kernel, then, depth + 1)?;
                if !other.is_empty() {
                    writeln!(f, "{:indent$}}} else {{", "")?;
                    block(f, kernel, other, depth + 1)?;
                }
                writeln!(f, "{:indent$}}}", "")?;
            }
            Stmt::While { head, cond, body } => {
                writeln!(f, "while {{")?;
                block(f, kernel, head, depth + 1)?;
                writeln!(f, "{:indent$}}} %{} {{", "", cond.0)?;
                block(f, kernel, body, depth + 1)?;
                writeln!(f, "{:indent$}}}", "")?;
            }
            Stmt::Return(code) => writeln!(f, "return {code}")?,
        }
    }
    Ok(())
}

fn place(f: &mut Formatter<'_>, buf: Buf, index: Reg, disp: i64) -> fmt::Result {
    write!(f, "b{}[%{}", buf.0, index.0)?;
    if disp != 0 {
        let sign = if disp < 0 { '-' } else { '+' };
        write!(f, " {sign} {}", disp.unsigned_abs())?;
    }
    f.write_str("]")
}

fn operation(f: &mut Formatter<'_>, op: &Op) -> fmt::Result {
    match op {
        Op::Const(imm, _) => constant(f, *imm),
        Op::Scalar(i) => write!(f, "scalar {i}"),
        Op::TileLo => f.write_str("tile.lo"),
        Op::TileHi => f.write_str("tile.hi"),
        Op::Un(un, a) => write!(f, "{} %{}", word_of(&UN_OPS, *un), a.0),
        Op::Bin(bin, a, b) => write!(f, "{} %{}, %{}", word_of(&BIN_OPS, *bin), a.0, b.0),
        Op::Fma(a, b, c) => write!(f, "fma %{}, %{}, %{}", a.0, b.0, c.0),
        Op::Dot(dot, a, b, c) => write!(f, "{} %{}, %{}, %{}", word_of(&DOTS, *dot), a.0, b.0, c.0),
        Op::Cmp(cmp, a, b) => write!(f, "{} %{}, %{}", word_of(&CMPS, *cmp), a.0, b.0),
        Op::Select(m, a, b) => write!(f, "select %{}, %{}, %{}", m.0, a.0, b.0),
        Op::Cast(to @ (DType::F16 | DType::BF16), a) => write!(f, "cast {to} %{}", a.0),
        Op::Cast(_, a) => write!(f, "cast %{}", a.0),
        Op::Bitcast(_, a) => write!(f, "bitcast %{}", a.0),
        Op::Splat(a, _) => write!(f, "splat %{}", a.0),
        Op::Extract(a, lane) => write!(f, "extract %{}[{lane}]", a.0),
        Op::Insert(a, lane, v) => write!(f, "insert %{}[{lane}], %{}", a.0, v.0),
        Op::Shuffle(a, b, picks) => write!(f, "shuffle %{}, %{} {picks:?}", a.0, b.0),
        Op::Iota(..) => f.write_str("iota"),
        Op::Horizontal(kind, a) => write!(f, "{} %{}", word_of(&HORIZONTALS, *kind), a.0),
        Op::Load { buf, index, disp, .. } => {
            f.write_str("load ")?;
            place(f, *buf, *index, *disp)
        }
        Op::Words { buf, index, disp, .. } => {
            f.write_str("words ")?;
            place(f, *buf, *index, *disp)
        }
        Op::Get(var) => write!(f, "get v{}", var.0),
    }
}

fn constant(f: &mut Formatter<'_>, imm: Imm) -> fmt::Result {
    f.write_str("const ")?;
    match imm.elem {
        DType::Bool if imm.bits <= 1 => write!(f, "{}", imm.bits == 1),
        DType::F32 if !f32::from_bits(imm.bits as u32).is_nan() => {
            write!(f, "{:?}", f32::from_bits(imm.bits as u32))
        }
        DType::F64 if !f64::from_bits(imm.bits).is_nan() => {
            write!(f, "{:?}", f64::from_bits(imm.bits))
        }
        DType::F32 | DType::F64 => write!(f, "nan:{:#x}", imm.bits),
        DType::F16 | DType::BF16 | DType::Bool => write!(f, "{}", imm.bits),
        DType::U64 => write!(f, "{}", imm.bits),
        elem => write!(f, "{}", crate::scalar::to_i64(elem, imm.bits)),
    }
}
