//! Boards, cores and generic levels by name.
//!
//! Feature lists follow the vendors' manuals; for the Raspberry Pi, what Linux reports in `/proc/cpuinfo` on the board:
//! the Cortex-A53 and A72 of the Pi 3 and 4 come without the optional cryptography.

use crate::arch::Arch;
use crate::cpu::{Cpu, vectors};
use crate::features::{Features, aarch64, arm, riscv, x86};

const fn all(sets: &[Features]) -> Features {
    let mut union = Features::NONE;
    let mut index = 0;
    while index < sets.len() {
        union = union.or(sets[index]);
        index += 1;
    }
    union
}

const X86_V1: Features = Features::NONE;
const X86_V2: Features = {
    use x86::*;
    all(&[SSE3, SSSE3, SSE41, SSE42, POPCNT, CMPXCHG16B])
};
const X86_V3: Features = {
    use x86::*;
    all(&[X86_V2, AVX, AVX2, FMA, BMI1, BMI2, LZCNT, F16C, MOVBE])
};
const X86_V4: Features = {
    use x86::*;
    all(&[X86_V3, AVX512F, AVX512BW, AVX512CD, AVX512DQ, AVX512VL])
};
const ICE_LAKE: Features = {
    use x86::*;
    all(&[X86_V4, AVX512VNNI, AVX512VBMI, AVX512VBMI2, AVX512IFMA, AVX512BITALG, AVX512VPOPCNTDQ, GFNI])
};
const ZEN4: Features = ICE_LAKE.or(x86::AVX512BF16);
const ZEN5: Features = ZEN4.or(x86::AVXVNNI);
const SAPPHIRE: Features = ZEN4.or(x86::AVX512FP16).or(x86::AVXVNNI);
const GRACEMONT: Features = X86_V3.or(x86::AVXVNNI).or(x86::GFNI);

/// Armv8.0-A as the A53 to A73 have it, without cryptography.
const ARMV8: Features = aarch64::NEON.or(aarch64::CRC);
/// Armv8.2-A with the extensions that the A55, A76 and N1 share, without cryptography.
const ARMV82: Features = {
    use aarch64::*;
    all(&[ARMV8, LSE, RDM, FP16, DOTPROD, RCPC])
};
/// The A76 and N1 as they are sold: with cryptography.
const A76: Features = ARMV82.or(aarch64::AES).or(aarch64::SHA2);
const NEOVERSE_V1: Features = {
    use aarch64::*;
    all(&[A76, FHM, FCMA, JSCONV, FLAGM, LSE2, FRINTTS, I8MM, BF16, SHA3, SVE])
};
const NEOVERSE_N2: Features = NEOVERSE_V1.or(aarch64::SVE2);

const RV64GC: Features = {
    use riscv::*;
    all(&[M, A, F, D, C, ZICSR, ZIFENCEI])
};
const RV64GCV: Features = RV64GC.or(riscv::V).or(riscv::ZVL128B);
const U74: Features = RV64GC.or(riscv::ZBA).or(riscv::ZBB);
const RVA23: Features = {
    use riscv::*;
    all(&[RV64GCV, ZBA, ZBB, ZBS, ZFHMIN, ZVFHMIN, ZICOND, ZFA, ZCB, ZVBB])
};
const X60: Features = {
    use riscv::*;
    all(&[RV64GCV, ZVL256B, ZBA, ZBB, ZBC, ZBS, ZFHMIN, ZFH, ZVFHMIN, ZVFH, ZICOND])
};
const RV32IMC: Features = {
    use riscv::*;
    all(&[M, C, ZICSR, ZIFENCEI])
};
const RV32IMAC: Features = RV32IMC.or(riscv::A);
const RV32IMAFC: Features = RV32IMAC.or(riscv::F);

const V7EM: Features = {
    use arm::*;
    all(&[THUMB2, DSP, IDIV])
};
const V7EM_F32: Features = V7EM.or(arm::FP32).or(arm::VFPV4);

const LINUX_X86: &str = "x86_64-unknown-linux-gnu";
const LINUX_ARM64: &str = "aarch64-unknown-linux-gnu";
const LINUX_RISCV: &str = "riscv64gc-unknown-linux-gnu";

const KIB: u32 = 1024;

/// Caches as first-level data bytes, second-level bytes, line bytes.
type Caches = (u32, u32, u32);

const fn cpu(
    name: &'static str,
    arch: Arch,
    features: Features,
    (l1d_bytes, l2_bytes, cache_line): Caches,
    rust_triple: &'static str,
    description: &'static str,
) -> Cpu {
    let (vector_bits, vector_regs) = vectors(arch, features);
    Cpu { name, arch, features, description, vector_bits, vector_regs, l1d_bytes, l2_bytes, cache_line, rust_triple }
}

const fn x86(name: &'static str, features: Features, l1d: u32, l2: u32, description: &'static str) -> Cpu {
    cpu(name, Arch::X86_64, features, (l1d * KIB, l2 * KIB, 64), LINUX_X86, description)
}

const fn a64(name: &'static str, features: Features, l1d: u32, l2: u32, description: &'static str) -> Cpu {
    cpu(name, Arch::Aarch64, features, (l1d * KIB, l2 * KIB, 64), LINUX_ARM64, description)
}

const fn rv64(name: &'static str, features: Features, l1d: u32, l2: u32, description: &'static str) -> Cpu {
    cpu(name, Arch::Riscv64, features, (l1d * KIB, l2 * KIB, 64), LINUX_RISCV, description)
}

static PRESETS: &[Cpu] = &[
    x86("x86-64", X86_V1, 32, 256, "any 64-bit x86 (SSE2)"),
    x86("x86-64-v2", X86_V2, 32, 256, "x86 since about 2009 (SSE4.2)"),
    x86("x86-64-v3", X86_V3, 32, 256, "x86 since about 2013 (AVX2, FMA)"),
    x86("x86-64-v4", X86_V4, 32, 1024, "x86 with the common AVX-512 subset"),
    x86("haswell", X86_V3, 32, 256, "Intel Core, 4th generation"),
    x86("skylake-avx512", X86_V4, 32, 1024, "Intel Xeon Scalable, 1st generation"),
    x86("cascadelake", X86_V4.or(x86::AVX512VNNI), 32, 1024, "Intel Xeon Scalable, 2nd generation (VNNI)"),
    x86("icelake-server", ICE_LAKE, 48, 1280, "Intel Xeon Scalable, 3rd generation (VNNI)"),
    x86("sapphirerapids", SAPPHIRE, 48, 2048, "Intel Xeon Scalable, 4th generation (VNNI, BF16, FP16)"),
    x86("n100", GRACEMONT, 32, 2048, "Intel N100 and other Gracemont boards (AVX2, AVX-VNNI)"),
    x86("znver2", X86_V3, 32, 512, "AMD Zen 2"),
    x86("znver3", X86_V3, 32, 512, "AMD Zen 3"),
    x86("znver4", ZEN4, 32, 1024, "AMD Zen 4 (AVX-512, VNNI, BF16)"),
    x86("znver5", ZEN5, 48, 1024, "AMD Zen 5 (AVX-512, VNNI, BF16)"),
    a64("aarch64", aarch64::NEON, 32, 256, "any 64-bit Arm with Advanced SIMD (Armv8.0-A)"),
    a64("rpi3", ARMV8, 32, 512, "Raspberry Pi 3 (BCM2837, Cortex-A53), 64-bit system"),
    a64("rpi-zero2", ARMV8, 32, 512, "Raspberry Pi Zero 2 W (RP3A0, Cortex-A53), 64-bit system"),
    a64("rpi4", ARMV8, 32, 1024, "Raspberry Pi 4, 400, Compute Module 4 (BCM2711, Cortex-A72), 64-bit system"),
    a64("rpi5", A76, 64, 512, "Raspberry Pi 5, 500, Compute Module 5 (BCM2712, Cortex-A76)"),
    a64("cortex-a53", ARMV8, 32, 512, "Arm Cortex-A53, without cryptography"),
    a64("cortex-a55", ARMV82, 32, 128, "Arm Cortex-A55, without cryptography"),
    a64("cortex-a57", ARMV8, 32, 1024, "Arm Cortex-A57, without cryptography"),
    a64("cortex-a72", ARMV8, 32, 1024, "Arm Cortex-A72, without cryptography"),
    a64("cortex-a73", ARMV8, 32, 1024, "Arm Cortex-A73, without cryptography"),
    a64("cortex-a76", A76, 64, 256, "Arm Cortex-A76"),
    a64("cortex-a78", A76, 32, 256, "Arm Cortex-A78"),
    a64("neoverse-n1", A76, 64, 1024, "Arm Neoverse N1 (Graviton 2, Ampere Altra)"),
    a64("neoverse-v1", NEOVERSE_V1, 64, 1024, "Arm Neoverse V1 (Graviton 3)"),
    a64("neoverse-n2", NEOVERSE_N2, 64, 1024, "Arm Neoverse N2"),
    rv64("riscv64", RV64GC, 32, 256, "any 64-bit RISC-V that runs Linux (RV64GC)"),
    rv64("rv64gcv", RV64GCV, 32, 256, "64-bit RISC-V with the vector extension, registers of 128 bits or more"),
    rv64("rva23", RVA23, 32, 256, "64-bit RISC-V, application profile RVA23"),
    rv64("sifive-u74", U74, 32, 2048, "SiFive U74 (VisionFive 2, HiFive Unmatched)"),
    rv64("spacemit-x60", X60, 32, 512, "SpacemiT X60 (Banana Pi F3), 256-bit vectors"),
    cpu(
        "rpi1",
        Arch::Arm,
        arm::FP32.or(arm::FP64).or(arm::DSP),
        (16 * KIB, 0, 32),
        "arm-unknown-linux-gnueabihf",
        "Raspberry Pi 1 and Zero (BCM2835, ARM1176), 32-bit system",
    ),
    cpu(
        "rpi2",
        Arch::Arm,
        V7EM_F32.or(arm::FP64).or(arm::NEON),
        (32 * KIB, 512 * KIB, 64),
        "armv7-unknown-linux-gnueabihf",
        "Raspberry Pi 2 (BCM2836, Cortex-A7), 32-bit system",
    ),
    cpu(
        "armv6",
        Arch::Arm,
        arm::FP32.or(arm::FP64).or(arm::DSP),
        (16 * KIB, 0, 32),
        "arm-unknown-linux-gnueabihf",
        "any 32-bit Arm with a floating-point unit that runs Linux (Armv6)",
    ),
    cpu(
        "armv7",
        Arch::Arm,
        arm::THUMB2.or(arm::DSP).or(arm::FP32).or(arm::FP64).or(arm::NEON),
        (32 * KIB, 256 * KIB, 64),
        "armv7-unknown-linux-gnueabihf",
        "any 32-bit Arm with Advanced SIMD that runs Linux (Armv7-A)",
    ),
    cpu(
        "portable",
        Arch::Portable,
        Features::NONE,
        (32 * KIB, 256 * KIB, 64),
        LINUX_X86,
        "any processor: kernels are interpreted, which is slow",
    ),
    cpu("cortex-m0plus", Arch::Arm, Features::NONE, (0, 0, 0), "thumbv6m-none-eabi", "Arm Cortex-M0+ (RP2040)"),
    cpu("cortex-m3", Arch::Arm, arm::THUMB2.or(arm::IDIV), (0, 0, 0), "thumbv7m-none-eabi", "Arm Cortex-M3"),
    cpu("cortex-m4", Arch::Arm, V7EM, (0, 0, 0), "thumbv7em-none-eabi", "Arm Cortex-M4 without a floating-point unit"),
    cpu("cortex-m4f", Arch::Arm, V7EM_F32, (0, 0, 0), "thumbv7em-none-eabihf", "Arm Cortex-M4F (binary32 unit)"),
    cpu(
        "cortex-m7",
        Arch::Arm,
        V7EM_F32.or(arm::FP64),
        (16 * KIB, 0, 32),
        "thumbv7em-none-eabihf",
        "Arm Cortex-M7 (binary32 and binary64 unit)",
    ),
    cpu(
        "cortex-m33",
        Arch::Arm,
        V7EM_F32,
        (0, 0, 0),
        "thumbv8m.main-none-eabihf",
        "Arm Cortex-M33 with DSP and binary32 unit (RP2350)",
    ),
    cpu(
        "cortex-m55",
        Arch::Arm,
        V7EM_F32.or(arm::FP64).or(arm::MVE).or(arm::MVEFP).or(arm::FP16),
        (32 * KIB, 0, 32),
        "thumbv8m.main-none-eabihf",
        "Arm Cortex-M55 with vectors and floating-point unit",
    ),
    cpu(
        "rv32imc",
        Arch::Riscv32,
        RV32IMC,
        (0, 0, 0),
        "riscv32imc-unknown-none-elf",
        "32-bit RISC-V without atomics (ESP32-C3)",
    ),
    cpu(
        "rv32imac",
        Arch::Riscv32,
        RV32IMAC,
        (0, 0, 0),
        "riscv32imac-unknown-none-elf",
        "32-bit RISC-V (ESP32-C6, RP2350)",
    ),
    cpu(
        "rv32imafc",
        Arch::Riscv32,
        RV32IMAFC,
        (0, 0, 0),
        "riscv32imafc-unknown-none-elf",
        "32-bit RISC-V with a binary32 unit (ESP32-P4)",
    ),
];

/// Other names and the preset that each stands for.
static ALIASES: &[(&str, &str)] = &[
    ("x86_64", "x86-64"),
    ("arm64", "aarch64"),
    ("armv8-a", "aarch64"),
    ("rpi02", "rpi-zero2"),
    ("rpi400", "rpi4"),
    ("rpi-cm4", "rpi4"),
    ("rpi500", "rpi5"),
    ("rpi-cm5", "rpi5"),
    ("rpi-zero", "rpi1"),
    ("rp2040", "cortex-m0plus"),
    ("rp2350", "cortex-m33"),
    ("rv64gc", "riscv64"),
    ("riscv32", "rv32imac"),
    ("visionfive2", "sifive-u74"),
    ("bpi-f3", "spacemit-x60"),
    ("esp32c3", "rv32imc"),
    ("esp32c6", "rv32imac"),
    ("esp32p4", "rv32imafc"),
];

/// Every preset, grouped by architecture, generic levels first.
pub fn presets() -> &'static [Cpu] {
    PRESETS
}

/// Other names for presets, as pairs of alias and preset name.
pub fn aliases() -> &'static [(&'static str, &'static str)] {
    ALIASES
}

/// The preset of a name or an alias. `native` is no preset: see `native()` (feature `std`). For a name that is not
/// known, [`suggestions`](crate::suggestions) has what may have been meant.
pub fn lookup(name: &str) -> Option<Cpu> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, canonical)| canonical);
    PRESETS.iter().find(|cpu| cpu.name == name).copied()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    fn features_of(name: &str) -> std::string::String {
        let cpu = lookup(name).unwrap();
        cpu.features.display(cpu.arch).to_string()
    }

    #[test]
    fn each_raspberry_pi_has_exactly_its_features() {
        assert_eq!(features_of("rpi3"), "neon+crc");
        assert_eq!(features_of("rpi-zero2"), "neon+crc");
        assert_eq!(features_of("rpi4"), "neon+crc");
        assert_eq!(features_of("rpi5"), "neon+crc+aes+sha2+lse+rdm+fp16+dotprod+rcpc");
        assert_eq!(features_of("rpi1"), "dsp+fp32+fp64");
        assert_eq!(features_of("rpi2"), "thumb2+dsp+idiv+fp32+fp64+vfpv4+neon");
        for newer in ["rpi5", "rpi4", "rpi3"] {
            let cpu = lookup(newer).unwrap();
            assert_eq!((cpu.arch, cpu.vector_bits, cpu.vector_regs, cpu.cache_line), (Arch::Aarch64, 128, 32, 64));
        }
        assert_eq!(lookup("rpi3").map(|c| (c.l1d_bytes, c.l2_bytes)), Some((32 * KIB, 512 * KIB)));
        assert_eq!(lookup("rpi4").map(|c| (c.l1d_bytes, c.l2_bytes)), Some((32 * KIB, 1024 * KIB)));
        assert_eq!(lookup("rpi5").map(|c| (c.l1d_bytes, c.l2_bytes)), Some((64 * KIB, 512 * KIB)));
    }

    #[test]
    fn x86_levels_are_the_psabi_levels() {
        assert_eq!(features_of("x86-64"), "none");
        assert_eq!(features_of("x86-64-v2"), "sse3+ssse3+sse4.1+sse4.2+popcnt+cmpxchg16b");
        assert_eq!(
            features_of("x86-64-v3"),
            "sse3+ssse3+sse4.1+sse4.2+popcnt+avx+avx2+fma+bmi1+bmi2+lzcnt+f16c+movbe+cmpxchg16b"
        );
        let v3 = lookup("x86-64-v3").unwrap();
        let v4 = lookup("x86-64-v4").unwrap();
        assert_eq!(
            v3.features.missing(v4.features).display(Arch::X86_64).to_string(),
            "avx512f+avx512bw+avx512cd+avx512dq+avx512vl"
        );
        assert_eq!([v3.vector_bits, v4.vector_bits], [256, 512]);
        assert_eq!([v3.lanes(4), v4.lanes(4), lookup("cortex-m4").unwrap().lanes(4)], [8, 16, 1]);
        assert!(v4.runs_code_for(&v3) && !v3.runs_code_for(&v4));
        assert!(!lookup("rpi5").unwrap().runs_code_for(&lookup("x86-64").unwrap()));
    }

    #[test]
    fn risc_v_presets() {
        assert_eq!(features_of("riscv64"), "m+a+f+d+c+zicsr+zifencei");
        assert_eq!(features_of("rv64gcv"), "m+a+f+d+c+v+zvl128b+zicsr+zifencei");
        assert_eq!(lookup("riscv64").unwrap().vector_bits, 0);
        assert_eq!(lookup("rv64gcv").unwrap().vector_bits, 128);
        assert_eq!(lookup("spacemit-x60").unwrap().vector_bits, 256);
    }

    #[test]
    fn names_are_unique_and_aliases_lead_to_presets() {
        for (index, cpu) in presets().iter().enumerate() {
            assert!(presets()[..index].iter().all(|other| other.name != cpu.name), "{}", cpu.name);
            assert_eq!(lookup(cpu.name), Some(*cpu));
        }
        for (alias, canonical) in aliases() {
            assert!(presets().iter().all(|cpu| cpu.name != *alias), "{alias}");
            assert_eq!(lookup(alias), lookup(canonical));
            assert!(lookup(alias).is_some(), "{alias}");
        }
        assert_eq!(lookup("native"), None);
        assert_eq!(lookup("RPI4"), None);
    }

    #[test]
    fn every_preset_has_what_its_features_imply() {
        for cpu in presets() {
            let closed = cpu.features.with_implied(cpu.arch);
            assert_eq!(closed, cpu.features, "{} lacks {}", cpu.name, cpu.features.missing(closed).display(cpu.arch));
        }
    }
}
