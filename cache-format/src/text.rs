//! The text form of a plan, for people and for pinned tests.
//!
//! ```text
//! plan regs 2 slots 1 arena 4096
//!   b0: f32 input0[0..]             x
//!   b1: f32 arena[0..+r1]           hidden
//!   0    r0 = dim input0 axis 1
//!   1    r1 = mul r0 4
//!   2    k0(b0, b1*; r0) tiles r0   matmul
//!   3    return
//!   out0: b1 [1, r0]
//! ```
//!
//! A `*` marks buffers that a dispatch writes, `~` its work space.

use alloc::string::{String, ToString};
use core::fmt::{self, Write};

use crate::meta::Debug;
use crate::spec::{Access, BufferSpec, Instr, PlanSpec, Space, Val};

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Reg(r) => write!(f, "r{r}"),
            Val::Imm(x) => write!(f, "{x}"),
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Arena => f.write_str("arena"),
            Space::Weights => f.write_str("weights"),
            Space::Input(k) => write!(f, "input{k}"),
            Space::Slot(k) => write!(f, "slot{k}"),
        }
    }
}

impl fmt::Display for BufferSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            Some(n) => write!(f, "{} {}[{}..+{n}]", self.dtype, self.space, self.offset),
            None => write!(f, "{} {}[{}..]", self.dtype, self.space, self.offset),
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        one(f, item)?;
    }
    Ok(())
}

impl fmt::Display for Instr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Instr::Set { dst, value } => write!(f, "r{dst} = {value}"),
            Instr::InputDim { dst, input, axis } => {
                write!(f, "r{dst} = dim input{input} axis {axis}")
            }
            Instr::Bin { op, dst, a, b } => write!(f, "r{dst} = {} {a} {b}", op.name()),
            Instr::Select { dst, cond, a, b } => write!(f, "r{dst} = select {cond} {a} {b}"),
            Instr::LoadInt { dst, buf, index } => write!(f, "r{dst} = b{buf}[{index}]"),
            Instr::StoreInt { buf, index, value } => write!(f, "b{buf}[{index}] = {value}"),
            Instr::Dispatch { kernel, bufs, scalars, tiles, scratch } => {
                write!(f, "k{kernel}(")?;
                list(f, bufs, |f, b| {
                    let mark = match b.access {
                        Access::Read => "",
                        Access::Write => "*",
                        Access::Work => "~",
                    };
                    write!(f, "b{}{mark}", b.buf)
                })?;
                if !scalars.is_empty() {
                    f.write_str("; ")?;
                    list(f, scalars, |f, s| write!(f, "{s}"))?;
                }
                f.write_str(")")?;
                tiles.map_or(Ok(()), |t| write!(f, " tiles {t}"))?;
                scratch.map_or(Ok(()), |s| write!(f, " scratch b{s}"))
            }
            Instr::Copy { dst, dst_offset, src, src_offset, bytes } => {
                write!(f, "copy b{dst}[{dst_offset}..] = b{src}[{src_offset}..")?;
                bytes.map_or(Ok(()), |n| write!(f, "+{n}"))?;
                f.write_str("]")
            }
            Instr::Fill { buf, bits } => write!(f, "fill b{buf} = {bits:#x}"),
            Instr::SetSlot { slot, buf } => write!(f, "slot{slot} = b{buf}"),
            Instr::Jump { target } => write!(f, "jump {target}"),
            Instr::JumpIfZero { cond, target } => write!(f, "unless {cond} jump {target}"),
            Instr::Check { cond, message } => write!(f, "check {cond} else m{message}"),
            Instr::Reserve { bytes } => write!(f, "reserve {bytes}"),
            Instr::Return => f.write_str("return"),
        }
    }
}

/// The text form of a plan. Names come from `debug`; pass the default for none.
pub fn plan_text(plan: &PlanSpec, debug: &Debug) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_plan(&mut out, plan, debug);
    out
}

fn line(out: &mut String, text: &str, note: &str) -> fmt::Result {
    if note.is_empty() { writeln!(out, "  {text}") } else { writeln!(out, "  {text:<48} ; {note}") }
}

fn write_plan(out: &mut String, plan: &PlanSpec, debug: &Debug) -> fmt::Result {
    writeln!(out, "plan regs {} slots {} arena {}", plan.regs, plan.slots, plan.arena_bytes)?;
    for (i, b) in plan.buffers.iter().enumerate() {
        line(out, &alloc::format!("b{i}: {b}"), debug.buffers.get(i).map_or("", |s| s))?;
    }
    for (i, instr) in plan.instrs.iter().enumerate() {
        let step = debug.steps.iter().find(|(at, _)| *at as usize == i).map_or("", |(_, text)| text);
        let kernel = match instr {
            Instr::Dispatch { kernel, .. } => debug.kernels.get(*kernel as usize).map_or("", |s| s),
            _ => "",
        };
        let gap = if step.is_empty() || kernel.is_empty() { "" } else { " · " };
        line(out, &alloc::format!("{i:<4} {instr}"), &alloc::format!("{kernel}{gap}{step}"))?;
    }
    for (i, o) in plan.outputs.iter().enumerate() {
        let dims: alloc::vec::Vec<_> = o.dims.iter().map(ToString::to_string).collect();
        line(out, &alloc::format!("out{i}: b{} [{}]", o.buf, dims.join(", ")), "")?;
    }
    for (i, m) in plan.messages.iter().enumerate() {
        line(out, &alloc::format!("m{i}: {m:?}"), "")?;
    }
    Ok(())
}
