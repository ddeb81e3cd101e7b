//! The x86-64 back end for wide vectors: 512 bits with AVX-512 (F, BW, DQ, VL), 256 bits with AVX2, FMA and F16C.
//!
//! The kernel IR's order stands, as with the other back end; what is done here is instruction choice (operands in memory,
//! copied to all lanes; masked tails), addresses, and register allocation that knows loops. Selection gives instructions
//! over virtual registers ([`inst`]), [`alloc`] gives them real ones, [`encode`] writes bytes. Few rare operations are
//! left to Cranelift: a kernel that has one goes there whole.

mod address;
mod alloc;
mod cast;
mod dot;
mod emulate;
mod encode;
mod facts;
mod float;
mod half;
mod inst;
mod isa;
mod lanemask;
mod lanes;
mod lanewise;
mod live;
mod mask;
mod memory;
mod op;
mod scalar;
mod select;
mod stmt;
mod tail;

use super::{CodegenError, CompiledKernel, Target};
use crate::kernel::ir::Kernel;
use crate::kernel::verify::verify;
use iced_x86::{Decoder, DecoderOptions, Formatter, NasmFormatter};
use inst::{Base, Body, Line, Opnd};
use isa::Isa;
use select::{Sel, Stop};
use std::fmt::Write as _;

/// Does this back end serve a target?
pub fn serves(target: Target) -> bool {
    Isa::of(target).is_some()
}

/// Bits of the vectors that code for a target is made with; 0 if it is not served.
pub fn vector_bits(target: Target) -> u32 {
    Isa::of(target).map_or(0, |isa| 8 * u32::from(isa.bytes))
}

/// Whether a target that is served has instructions that add four products of bytes.
pub fn adds_products_of_bytes(target: Target) -> bool {
    Isa::of(target).is_some_and(|isa| target.features.contains(isa.dot_feature()))
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
    let Some(isa) = Isa::of(target) else { return Ok(None) };
    let mut sel = Sel::new(kernel, isa, target.features);
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
    let regs = alloc::allocate(&mut body, isa).map_err(fail)?;
    let encoded = encode::encode(&body, &regs, isa).map_err(fail)?;
    Ok(Some((body, encoded)))
}
