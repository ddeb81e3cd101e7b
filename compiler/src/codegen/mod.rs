//! Kernel IR to machine code.
//!
//! [`x86`] serves x86-64 with AVX2 or AVX-512; [`cranelift`] serves x86-64, aarch64 and riscv64, scalar and with 128-bit vectors,
//! and the kernels that the former leaves to it. The code that comes out is one position-independent block without
//! relocations and without imports: it can be mapped anywhere and called as a
//! [`KernelFn`](graphmend_cache_format::abi::KernelFn). [`c`] writes C, for any processor.

pub mod c;
pub mod cranelift;
pub mod x86;

pub use cranelift::Isa;

use crate::kernel::ir::{Dot, Kernel};
use graphmend_targets::{Arch, Cpu, Features};

/// What code is generated for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The instruction set.
    pub arch: Arch,
    /// The features that the code may use beyond the base of `arch`.
    pub features: Features,
}

impl From<&Cpu> for Target {
    fn from(cpu: &Cpu) -> Self {
        Target { arch: cpu.arch, features: cpu.features }
    }
}

/// Compiles a kernel for a target.
pub fn compile(kernel: &Kernel, target: Target) -> Result<CompiledKernel, CodegenError> {
    if x86::serves(target)
        && let Some(compiled) = x86::compile(kernel, target)?
    {
        return Ok(compiled);
    }
    cranelift::compile(kernel, target)
}

/// The machine code of a kernel as text, one line an instruction.
pub fn asm_text(kernel: &Kernel, target: Target) -> Result<String, CodegenError> {
    if x86::serves(target)
        && let Some(text) = x86::asm_text(kernel, target)?
    {
        return Ok(text);
    }
    cranelift::asm_text(kernel, target)
}

/// Number of accesses to spilled values in the innermost loops of a kernel's code. 0 is what a schedule aims for.
pub fn loop_spills(kernel: &Kernel, target: Target) -> Result<usize, CodegenError> {
    if x86::serves(target)
        && let Some(spills) = x86::loop_spills(kernel, target)?
    {
        return Ok(spills);
    }
    cranelift::loop_spills(kernel, target)
}

/// Widest vectors, in bits, that the code generator for a target has registers for; lanes beyond take several.
pub fn vector_bits(target: Target) -> u32 {
    if interpreted(target) {
        return 256;
    }
    if x86::serves(target) {
        x86::vector_bits(target)
    } else if c::serves(target) {
        c::vector_bits(target)
    } else {
        128
    }
}

/// Whether kernels for a target are interpreted where they run.
pub fn interpreted(target: Target) -> bool {
    target.arch == Arch::Portable
}

/// The widest sum of products of small integers that a target has an instruction for.
pub fn best_dot(target: Target) -> Option<Dot> {
    x86::serves(target).then(|| if x86::adds_products_of_bytes(target) { Dot::Bytes } else { Dot::Words })
}

/// Machine code of one kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledKernel {
    /// The code; its entry is the first byte. Constants that it reads relative to the program counter are part of it.
    pub code: Vec<u8>,
    /// Alignment in bytes that the first byte needs, a power of two.
    pub align: u32,
    /// Bytes of stack below the frame pointer: saved registers and spilled values.
    pub stack_bytes: u32,
}

/// Why a kernel has no machine code.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodegenError {
    /// The kernel breaks a rule of the kernel IR.
    #[error(transparent)]
    Invalid(#[from] crate::kernel::verify::Invalid),
    /// No back end for this target.
    #[error("no code generator for {arch}: {reason}")]
    Target {
        /// The instruction set asked for.
        arch: Arch,
        /// What is missing.
        reason: String,
    },
    /// The code would call or refer to something outside the kernel.
    #[error("kernel {kernel}: {op} refers to {symbol} outside the kernel")]
    Relocation {
        /// The kernel's name.
        kernel: String,
        /// The operation, as `%12 = Un(Floor, ..)`.
        op: String,
        /// What it refers to.
        symbol: String,
    },
    /// The code generator failed: a bug of this compiler.
    #[error("kernel {kernel}: {message}")]
    Internal {
        /// The kernel's name.
        kernel: String,
        /// What happened.
        message: String,
    },
}

impl From<CodegenError> for crate::error::Error {
    fn from(error: CodegenError) -> Self {
        crate::error::Error::internal(crate::error::Stage::Codegen, error.to_string())
    }
}
