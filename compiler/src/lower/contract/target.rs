//! What the schedule knows of the processor.

use crate::dtype::DType;
use crate::kernel::ir::Dot;
use graphmend_targets::{Arch, Cpu};

/// Sizes that tiles are chosen by.
#[derive(Clone, Copy, Debug)]
pub(in crate::lower) struct Target {
    /// Elements in a vector register; 1 without vectors.
    pub lanes: u16,
    /// Registers for such vectors.
    pub regs: u32,
    /// A multiplication can take one element of a vector for all lanes.
    pub by_element: bool,
    /// A multiply-add overwrites a factor rather than the sum, which costs copies and a register; copying an element to
    /// all lanes takes an instruction after its load.
    pub overwrites: bool,
    /// The code generator keeps the accumulators of a tile where they are, whatever surrounds it.
    pub wide: bool,
    /// Products of bytes are summed four at a time: whether there is an instruction for that, or only one for two products of
    /// words.
    pub dot: Option<Dot>,
    /// Bytes of the first-level cache.
    pub near: i64,
    /// Bytes of the second-level cache, or of the first if that is all.
    pub cache: u32,
}

impl Target {
    /// The target for elements of `dtype` with vectors of at most `bits`.
    pub(in crate::lower) fn of(cpu: &Cpu, dtype: DType, bits: u32) -> Target {
        let width = cpu.vector_bits.min(bits) / 8;
        let lanes = (width / dtype.compute().size() as u32).max(1) as u16;
        // Scalar floating-point registers: 32 on RISC-V and Armv8, 16 on most others.
        let scalar_regs = if matches!(cpu.arch, Arch::Riscv64 | Arch::Riscv32 | Arch::Aarch64) { 32 } else { 16 };
        let x86 = cpu.arch == Arch::X86_64;
        let regs = match (lanes, x86 && width < 64) {
            (1, _) => scalar_regs,
            // The upper 16 are for 512-bit code.
            (_, true) => 16,
            _ => cpu.vector_regs.max(8),
        };
        Target {
            lanes,
            regs,
            by_element: cpu.arch == Arch::Aarch64 && lanes > 1,
            // The other back end's, for 128 bits.
            overwrites: x86 && width <= 16 && lanes > 1,
            wide: width > 16,
            dot: crate::codegen::best_dot(cpu.into()),
            near: i64::from(cpu.l1d_bytes.max(8 << 10)),
            cache: cpu.l2_bytes.max(cpu.l1d_bytes).max(16 << 10),
        }
    }
}
