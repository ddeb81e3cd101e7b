//! The x86-64 back end for wide vectors: AVX-512 (F, BW, DQ, VL).
//!
//! The kernel IR's order stands, as with the other back end; what is done here is instruction choice (operands in memory,
//! copied to all lanes; masked tails), addresses, and register allocation that knows loops. Selection gives instructions
//! over virtual registers ([`inst`]), [`alloc`] gives them real ones, [`encode`] writes bytes. Few rare operations are
//! left to Cranelift: a kernel that has one goes there whole.

mod address;
mod alloc;
mod cast;
mod encode;
mod facts;
mod float;
mod half;
mod inst;
mod lanes;
mod lanewise;
mod live;
mod mask;
mod memory;
mod op;
mod scalar;
mod select;
mod stmt;

use super::{CodegenError, CompiledKernel, Target};
use crate::kernel::ir::Kernel;
use crate::kernel::verify::verify;
use graphmend_targets::Arch;
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use inst::{Base, Body, Line, Opnd};
use select::{Sel, Stop};
use std::fmt::Write as _;

/// Vector registers of AVX-512.
const VECTORS: usize = 32;

/// Does this back end serve a target?
pub fn serves(target: Target) -> bool {
    target.arch == Arch::X86_64 && target.features.contains(select::required())
}

/// Compiles a kernel; nothing if it has an operation that this back end leaves to the other one.
pub fn compile(kernel: &Kernel, target: Target) -> Result<Option<CompiledKernel>, CodegenError> {
    let Some((_, encoded)) = run(kernel, target)? else { return Ok(None) };
    Ok(Some(CompiledKernel { code: encoded.code, align: encode::ALIGN as u32, stack_bytes: encoded.stack_bytes }))
}

/// The machine code as text, one line an instruction.
pub fn asm_text(kernel: &Kernel, target: Target) -> Result<Option<String>, CodegenError> {
    let Some((_, encoded)) = run(kernel, target)? else { return Ok(None) };
    let mut decoder = Decoder::new(64, &encoded.code[..encoded.end], DecoderOptions::NONE);
    let mut formatter = NasmFormatter::new();
    let mut out = String::new();
    for instruction in &mut decoder {
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        let _ = writeln!(out, "{:6x}  {line}", instruction.ip());
    }
    Ok(Some(out))
}

/// Number of accesses to the stack in innermost loops.
pub fn loop_spills(kernel: &Kernel, target: Target) -> Result<Option<usize>, CodegenError> {
    let Some((body, _)) = run(kernel, target)? else { return Ok(None) };
    let (mut inside, mut head, mut spills) = (0, None, 0);
    for line in &body.lines {
        match line {
            Line::Label(label, true) => (inside, head) = (0, Some(*label)),
            Line::Inst(inst) => {
                let frame = |op: &Opnd| matches!(op, Opnd::Mem(mem) if matches!(mem.base, Base::Frame(_)));
                inside += usize::from(inst.ops.iter().any(frame));
            }
            Line::Jump(to) | Line::JumpIf(_, to) if Some(*to) == head => {
                spills += inside;
                head = None;
            }
            _ => {}
        }
    }
    Ok(Some(spills))
}

fn run(kernel: &Kernel, target: Target) -> Result<Option<(Body, encode::Encoded)>, CodegenError> {
    verify(kernel)?;
    let fail = |message: String| CodegenError::Internal { kernel: kernel.name.clone(), message };
    let mut sel = Sel::new(kernel, target.features);
    match sel.run() {
        Ok(()) => {}
        Err(Stop::Lacks(what)) => {
            log::debug!("kernel {}: left to the other back end: {what}", kernel.name);
            return Ok(None);
        }
        Err(Stop::Internal(message)) => return Err(fail(message)),
    }
    let mut body = sel.finish();
    body.drop_unused();
    let regs = alloc::allocate(&mut body, VECTORS).map_err(fail)?;
    let encoded = encode::encode(&body, &regs).map_err(fail)?;
    Ok(Some((body, encoded)))
}
