//! What each target's vectors can do in Cranelift 0.135.
//!
//! Found by compiling every instruction for every type; what is missing here ends in an error, a panic or a call to a
//! library function. Everything that no function of [`Caps`] asks about exists for every 128-bit type on every target with
//! vectors.

use super::super::Target;
use graphmend_targets::Arch;
use graphmend_targets::features::{riscv, x86};

/// A target's abilities as instruction choice needs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    /// The instruction set.
    pub(super) arch: Arch,
    /// There are 128-bit vectors at all.
    pub(super) vectors: bool,
    ssse3: bool,
    sse41: bool,
    fma: bool,
}

impl Caps {
    pub(super) fn new(target: Target) -> Caps {
        let has = |feature| target.features.contains(feature);
        let x86 = target.arch == Arch::X86_64;
        Caps {
            arch: target.arch,
            vectors: target.arch != Arch::Riscv64 || has(riscv::V),
            ssse3: x86 && has(x86::SSSE3),
            sse41: x86 && has(x86::SSE41),
            // The VEX encodings are used only when AVX is there too.
            fma: !x86 || (has(x86::FMA) && has(x86::AVX)),
        }
    }

    pub(super) fn x86(&self) -> bool {
        self.arch == Arch::X86_64
    }

    pub(super) fn aarch64(&self) -> bool {
        self.arch == Arch::Aarch64
    }

    pub(super) fn riscv(&self) -> bool {
        self.arch == Arch::Riscv64
    }

    /// Fused multiply-add without a library call.
    pub(super) fn native_fma(&self) -> bool {
        self.fma
    }

    /// Rounding to integral values without a library call.
    pub(super) fn native_round(&self) -> bool {
        !self.x86() || self.sse41
    }

    /// One instruction that picks between two vectors by a mask of whole lanes, whatever made the mask.
    pub(super) fn blend(&self) -> bool {
        self.sse41
    }

    /// Lane-wise minimum and maximum of floats that give NaN for NaN in a few instructions.
    pub(super) fn nan_min_max(&self) -> bool {
        self.aarch64()
    }

    /// Product of integer lanes of `width` bytes.
    pub(super) fn int_mul(&self, width: u8) -> bool {
        !(self.x86() && width == 1)
    }

    /// Number of one bits of lanes of `width` bytes.
    pub(super) fn popcnt(&self, width: u8) -> bool {
        width == 1 || self.riscv()
    }

    /// Conversions of `F64` lanes to 64-bit integers, and saturating halving of 64-bit lanes.
    pub(super) fn wide_to_int(&self) -> bool {
        !self.x86()
    }

    /// Signed 32-bit lanes saturated to unsigned 16 bits in a few instructions.
    pub(super) fn pack_unsigned(&self) -> bool {
        !self.x86() || self.sse41
    }

    /// Constants with one value in all lanes are best made from the scalar: an immediate on aarch64, the vector-scalar forms
    /// of arithmetic on RISC-V. x86 reads them from memory.
    pub(super) fn splat_constants(&self) -> bool {
        !self.x86()
    }

    /// A copy of one lane to all is one shuffle; on RISC-V a scalar in between leads to the vector-scalar forms.
    pub(super) fn splat_by_shuffle(&self) -> bool {
        !self.riscv()
    }

    /// A byte shuffle of two vectors (`mask` picks from their concatenation) without a library call.
    pub(super) fn shuffle(&self, mask: &[u8; 16]) -> bool {
        if !self.x86() || self.ssse3 {
            return true;
        }
        zip(mask) || words(mask).is_some_and(|picks| permute(picks) || pairs(picks))
    }
}

/// The mask as picks of 32-bit lanes, if it moves whole ones.
fn words(mask: &[u8; 16]) -> Option<[u8; 4]> {
    let mut picks = [0; 4];
    for (pick, bytes) in picks.iter_mut().zip(mask.chunks_exact(4)) {
        if bytes[0] % 4 != 0 || bytes.windows(2).any(|two| two[1] != two[0] + 1) {
            return None;
        }
        *pick = bytes[0] / 4;
    }
    Some(picks)
}

/// `pshufd`: all lanes from one vector.
fn permute(picks: [u8; 4]) -> bool {
    picks.iter().all(|pick| *pick < 4) || picks.iter().all(|pick| *pick >= 4)
}

/// `shufps`: two lanes from one vector, then two from the other.
fn pairs([a, b, c, d]: [u8; 4]) -> bool {
    let low = |pick| pick < 4;
    low(a) == low(b) && low(c) == low(d) && low(a) != low(c)
}

/// `punpckl*` and `punpckh*`: the halves of two vectors interleaved, in lanes of 1, 2, 4 or 8 bytes.
fn zip(mask: &[u8; 16]) -> bool {
    [1u8, 2, 4, 8].iter().any(|&size| {
        [0u8, 8].iter().any(|&half| {
            (0u8..16).all(|i| {
                let (lane, byte) = (i / size, i % size);
                mask[i as usize] == half + lane / 2 * size + byte + if lane % 2 == 1 { 16 } else { 0 }
            })
        })
    })
}
