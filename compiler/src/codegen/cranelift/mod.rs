//! The Cranelift back end: x86-64, aarch64 and riscv64, scalars and 128-bit vectors.
//!
//! Cranelift's own optimiser is off (`opt_level=none`): kernels come with their order, sharing and unrolling decided, and
//! the optimiser would move loads away from their uses. What is done here is instruction choice: vectors of any lane count
//! become pieces of 128 bits, a partial piece of 8 or 4 bytes, and single lanes ([`fx`]); what a target's vectors lack is
//! done lane by lane, by the table in [`legal`].

mod address;
mod cast;
mod divide;
mod dot;
mod float;
mod fx;
mod half;
mod int;
mod isa;
mod lanes;
mod legal;
mod memory;
mod narrow;
mod op;
mod spills;
mod stmt;

pub use isa::Isa;

use super::{CodegenError, CompiledKernel, Target};
use crate::kernel::ir::{Kernel, Op, Stmt};
use crate::kernel::verify::verify;
use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Function, Signature, UserFuncName, types};
use cranelift_codegen::isa::CallConv;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Compiles a kernel for a target.
///
/// The instruction-set description of each target is built once in the process and shared.
pub fn compile(kernel: &Kernel, target: Target) -> Result<CompiledKernel, CodegenError> {
    Isa::cached(target)?.compile(kernel)
}

/// The machine code of a kernel as text, with virtual registers replaced by real ones; one line an instruction.
pub fn asm_text(kernel: &Kernel, target: Target) -> Result<String, CodegenError> {
    let isa = Isa::cached(target)?;
    let context = run(&isa, kernel, true)?;
    let text = context.compiled_code().and_then(|code| code.vcode.clone());
    text.ok_or_else(|| internal(kernel, "the code generator gave no text"))
}

/// Number of accesses to spilled values in the innermost loops of a kernel's code. 0 is what a schedule aims for.
pub fn loop_spills(kernel: &Kernel, target: Target) -> Result<usize, CodegenError> {
    Ok(spills::in_innermost_loops(&asm_text(kernel, target)?))
}

impl Isa {
    /// Compiles a kernel.
    pub fn compile(&self, kernel: &Kernel) -> Result<CompiledKernel, CodegenError> {
        let context = run(self, kernel, false)?;
        let code = context.compiled_code().ok_or_else(|| internal(kernel, "no code came out"))?;
        if let Some(reloc) = code.buffer.relocs().first() {
            let symbol = reloc.target.display(Some(&context.func.params));
            let before = code.buffer.get_srclocs_sorted().iter().rev().find(|range| range.start <= reloc.offset);
            let op = before.map_or_else(|| "an operation".to_string(), |range| describe(kernel, range.loc.bits()));
            return Err(CodegenError::Relocation { kernel: kernel.name.clone(), op, symbol });
        }
        Ok(CompiledKernel {
            code: code.code_buffer().to_vec(),
            align: code.buffer.alignment.max(self.align()),
            stack_bytes: code.buffer.frame_layout().map_or(0, |frame| frame.frame_to_fp_offset),
        })
    }
}

/// Builds and compiles one function.
fn run(isa: &Isa, kernel: &Kernel, text: bool) -> Result<Context, CodegenError> {
    verify(kernel)?;
    // What the code generator lacks it answers with panics in places; the legality table keeps kernels away from them, and
    // this keeps a gap in the table an error.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.push(AbiParam::new(types::I64));
        signature.returns.push(AbiParam::new(types::I32));
        let mut func = Function::with_name_signature(UserFuncName::user(0, 0), signature);
        let mut frontend = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut func, &mut frontend);
        stmt::kernel(kernel, isa, builder)?;
        let mut context = Context::for_function(func);
        context.set_disasm(text);
        let compiled = context.compile(isa.target(), &mut ControlPlane::default()).map(drop);
        compiled.map_err(|error| format!("{:?}", error.inner))?;
        Ok::<_, String>(context)
    }));
    match outcome {
        Ok(result) => result.map_err(|message| internal(kernel, message)),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("unknown");
            Err(internal(kernel, format!("the code generator panicked: {text}")))
        }
    }
}

fn internal(kernel: &Kernel, message: impl Into<String>) -> CodegenError {
    CodegenError::Internal { kernel: kernel.name.clone(), message: message.into() }
}

/// The statement that defines a register, for messages.
fn describe(kernel: &Kernel, reg: u32) -> String {
    fn find(stmts: &[Stmt], reg: u32) -> Option<&Op> {
        stmts.iter().find_map(|stmt| match stmt {
            Stmt::Let(r, op) => (r.0 == reg).then_some(op),
            Stmt::For { body, .. } => find(body, reg),
            Stmt::If { then, other, .. } => find(then, reg).or_else(|| find(other, reg)),
            Stmt::While { head, body, .. } => find(head, reg).or_else(|| find(body, reg)),
            Stmt::Set(..) | Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Return(_) => None,
        })
    }
    match find(&kernel.body, reg) {
        Some(op) => format!("%{reg} = {op:?}"),
        None => "a statement".to_string(),
    }
}
