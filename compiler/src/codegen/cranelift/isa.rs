//! Cranelift's description of a target, built once and shared.

use super::super::{CodegenError, Target};
use super::legal::Caps;
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa, lookup_by_name};
use cranelift_codegen::settings::{self, Configurable};
use graphmend_targets::Arch;
use graphmend_targets::features::{Features, aarch64, riscv, x86};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A target ready to compile for.
pub struct Isa {
    isa: OwnedTargetIsa,
    caps: Caps,
}

impl Isa {
    /// Builds the description of a target. Takes long enough to share it between kernels: see [`Isa::cached`].
    pub fn new(target: Target) -> Result<Isa, CodegenError> {
        let fail = |reason: String| CodegenError::Target { arch: target.arch, reason };
        let triple = match target.arch {
            Arch::X86_64 => "x86_64-unknown-linux-gnu",
            Arch::Aarch64 => "aarch64-unknown-linux-gnu",
            Arch::Riscv64 => "riscv64gc-unknown-linux-gnu",
            Arch::Arm | Arch::Riscv32 => return Err(fail("32-bit instruction sets have none".to_string())),
            Arch::Portable => return Err(fail("kernels are interpreted".to_string())),
        };
        let missing = target.features.missing(required(target.arch));
        if !missing.is_empty() {
            return Err(fail(format!("it always uses {}", missing.display(target.arch))));
        }
        let mut shared = settings::builder();
        let verifier = if cfg!(debug_assertions) { "true" } else { "false" };
        for (name, value) in [
            ("opt_level", "none"),
            ("is_pic", "true"),
            ("enable_probestack", "false"),
            ("unwind_info", "false"),
            ("enable_verifier", verifier),
        ] {
            shared.set(name, value).map_err(|error| fail(format!("setting {name}: {error}")))?;
        }
        let mut builder = lookup_by_name(triple).map_err(|error| fail(error.to_string()))?;
        for (feature, names) in flags(target.arch) {
            if target.features.contains(*feature) {
                for name in *names {
                    builder.enable(name).map_err(|error| fail(format!("setting {name}: {error}")))?;
                }
            }
        }
        let isa = builder.finish(settings::Flags::new(shared)).map_err(|error| fail(format!("{error:?}")))?;
        Ok(Isa { isa, caps: Caps::new(target) })
    }

    /// The shared description of a target, built when first asked for.
    pub fn cached(target: Target) -> Result<Arc<Isa>, CodegenError> {
        static CACHE: OnceLock<Mutex<HashMap<Target, Arc<Isa>>>> = OnceLock::new();
        let mut cache = CACHE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(isa) = cache.get(&target) {
            return Ok(isa.clone());
        }
        let isa = Arc::new(Isa::new(target)?);
        cache.insert(target, isa.clone());
        Ok(isa)
    }

    pub(super) fn target(&self) -> &dyn TargetIsa {
        &*self.isa
    }

    /// The description itself, for modules of several functions.
    pub(crate) fn shared(&self) -> OwnedTargetIsa {
        self.isa.clone()
    }

    pub(super) fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Alignment that every function of this target needs.
    pub(super) fn align(&self) -> u32 {
        self.isa.function_alignment().minimum
    }
}

/// Features that generated code uses without asking.
fn required(arch: Arch) -> Features {
    match arch {
        Arch::Aarch64 => aarch64::NEON,
        Arch::Riscv64 => riscv::M.or(riscv::A).or(riscv::F).or(riscv::D),
        _ => Features::NONE,
    }
}

/// Cranelift's names for features. What is not listed changes nothing in its code.
fn flags(arch: Arch) -> &'static [(Features, &'static [&'static str])] {
    match arch {
        Arch::X86_64 => &[
            (x86::SSE3, &["has_sse3"]),
            (x86::SSSE3, &["has_ssse3"]),
            (x86::SSE41, &["has_sse41"]),
            (x86::SSE42, &["has_sse42"]),
            (x86::POPCNT, &["has_popcnt"]),
            (x86::AVX, &["has_avx"]),
            (x86::AVX2, &["has_avx2"]),
            (x86::FMA, &["has_fma"]),
            (x86::BMI1, &["has_bmi1"]),
            (x86::BMI2, &["has_bmi2"]),
            (x86::LZCNT, &["has_lzcnt"]),
            (x86::AVX512F, &["has_avx512f"]),
            (x86::AVX512DQ, &["has_avx512dq"]),
            (x86::AVX512VL, &["has_avx512vl"]),
            (x86::AVX512VBMI, &["has_avx512vbmi"]),
            (x86::AVX512BITALG, &["has_avx512bitalg"]),
        ],
        Arch::Aarch64 => &[(aarch64::LSE, &["has_lse"])],
        Arch::Riscv64 => &[
            // Compressed forms halve the code; one flag each here.
            (riscv::C, &["has_zca", "has_zcd"]),
            (riscv::ZCB, &["has_zcb"]),
            (riscv::V, &["has_v", "has_zvl128b"]),
            (riscv::ZVL256B, &["has_zvl256b"]),
            (riscv::ZVL512B, &["has_zvl512b"]),
            (riscv::ZBA, &["has_zba"]),
            (riscv::ZBB, &["has_zbb"]),
            (riscv::ZBC, &["has_zbc"]),
            (riscv::ZBS, &["has_zbs"]),
            (riscv::ZICOND, &["has_zicond"]),
            (riscv::ZFA, &["has_zfa"]),
            (riscv::ZVBB, &["has_zvbb"]),
        ],
        Arch::Arm | Arch::Riscv32 | Arch::Portable => &[],
    }
}
