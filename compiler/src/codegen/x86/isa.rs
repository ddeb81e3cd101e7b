//! The two kinds of vector registers that code is made for.

use super::super::Target;
use super::inst::Size;
use graphmend_targets::Arch;
use graphmend_targets::features::{Features, x86};

/// What selection, allocation and encoding need to know of a target's vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Isa {
    /// Bytes of a register.
    pub(super) bytes: u16,
    /// Number of registers.
    pub(super) registers: usize,
    /// There are instructions of AVX-512: masks have registers of their own, any move may be masked, and operands in memory
    /// may be copied to all lanes. Otherwise masks are vectors whose lanes are all ones or all zeros.
    pub(super) evex: bool,
}

const AVX512: Isa = Isa { bytes: 64, registers: 32, evex: true };
const AVX2: Isa = Isa { bytes: 32, registers: 16, evex: false };

impl Isa {
    /// The widest vectors that a target has; nothing if this back end has no use for them.
    pub(super) fn of(target: Target) -> Option<Isa> {
        let has = |features: Features| target.arch == Arch::X86_64 && target.features.contains(features);
        let always = x86::AVX2.or(x86::FMA).or(x86::F16C).or(x86::BMI2).or(x86::POPCNT);
        let wide = x86::AVX512F.or(x86::AVX512BW).or(x86::AVX512DQ).or(x86::AVX512VL);
        match (has(always), has(wide)) {
            (true, true) => Some(AVX512),
            (true, false) => Some(AVX2),
            _ => None,
        }
    }

    /// What brings the instructions that add products of bytes and words.
    pub(super) fn dot_feature(self) -> Features {
        if self.evex { x86::AVX512VNNI } else { x86::AVXVNNI }
    }

    /// All of a register.
    pub(super) fn full(self) -> Size {
        if self.evex { Size::Z } else { Size::Y }
    }
}
