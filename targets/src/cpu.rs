//! What the schedules need to know of a processor.

use crate::arch::Arch;
use crate::features::{Features, x86};

/// A processor: what it can execute, and the sizes that schedules choose tiles by.
///
/// Only `arch` and `features` decide whether code runs; the rest decides how fast. A cache that is keyed by its target
/// must be keyed by all fields: two machines may both be called `native`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    /// The name given to `--target`.
    pub name: &'static str,
    /// The instruction set.
    pub arch: Arch,
    /// The features that code for it may use.
    pub features: Features,
    /// One line for people.
    pub description: &'static str,
    /// Bits of the widest vector register that code for it should use; 0 without vectors. For RISC-V the least VLEN.
    pub vector_bits: u32,
    /// Architectural vector registers of that width; without vectors, the scalar floating-point registers are what
    /// matters and this is 0.
    pub vector_regs: u32,
    /// Bytes of one core's first-level data cache; 0 when the core has none.
    pub l1d_bytes: u32,
    /// Bytes of the second-level cache that one core may count on (its own, or the cluster's shared one); 0 for none.
    pub l2_bytes: u32,
    /// Bytes of a cache line; 0 without caches.
    pub cache_line: u32,
    /// The Rust target triple to build the runtime with.
    pub rust_triple: &'static str,
}

impl Cpu {
    /// Lanes of `element_bytes` in one vector register; 1 without vectors.
    pub fn lanes(&self, element_bytes: usize) -> usize {
        (self.vector_bits as usize / 8).checked_div(element_bytes).unwrap_or(1).max(1)
    }

    /// Whether code made for `other` may run here: same instruction set, every feature present.
    pub fn runs_code_for(&self, other: &Cpu) -> bool {
        self.arch == other.arch && self.features.contains(other.features)
    }
}

/// Vector width and register count that follow from a feature set.
pub(crate) const fn vectors(arch: Arch, features: Features) -> (u32, u32) {
    match arch {
        Arch::X86_64 => {
            // Below AVX2 the wide registers have no integer instructions, so 128 bits are the useful width.
            if features.contains(x86::AVX512F.or(x86::AVX512BW).or(x86::AVX512DQ).or(x86::AVX512VL)) {
                (512, 32)
            } else if features.contains(x86::AVX2.or(x86::FMA)) {
                (256, 16)
            } else {
                (128, 16)
            }
        }
        Arch::Aarch64 => {
            if features.contains(crate::features::aarch64::NEON) {
                (128, 32)
            } else {
                (0, 0)
            }
        }
        Arch::Riscv64 | Arch::Riscv32 => {
            use crate::features::riscv;
            if features.contains(riscv::ZVL512B) {
                (512, 32)
            } else if features.contains(riscv::ZVL256B) {
                (256, 32)
            } else if features.contains(riscv::V) {
                (128, 32)
            } else {
                (0, 0)
            }
        }
        // Lanes share the work of finding out what an instruction is.
        Arch::Portable => (256, 16),
        Arch::Arm => {
            use crate::features::arm;
            if features.contains(arm::NEON) {
                (128, 16)
            } else if features.contains(arm::MVE) {
                (128, 8)
            } else {
                (0, 0)
            }
        }
    }
}
