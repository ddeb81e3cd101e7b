//! Detection of the machine that the program runs on.
//!
//! Features come from the standard library, which asks the CPU on x86-64 and the operating system elsewhere (under an
//! emulator: the emulated CPU). Cache sizes come from Linux's sysfs where it is there; they only choose tiles.

use std::fs;
use std::path::Path;

use crate::arch::Arch;
use crate::cpu::{Cpu, vectors};
use crate::features::Features;
use crate::presets::lookup;

/// Adds a feature to a set when the macro of the standard library sees it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
macro_rules! detect {
    ($detected:ident, $module:ident: $($name:tt => $constant:ident,)+) => {{
        let mut set = Features::NONE;
        $(
            if std::arch::$detected!($name) {
                set = set.or(crate::features::$module::$constant);
            }
        )+
        set
    }};
}

#[cfg(target_arch = "x86_64")]
fn features() -> Features {
    detect!(is_x86_feature_detected, x86:
        "sse3" => SSE3, "ssse3" => SSSE3, "sse4.1" => SSE41, "sse4.2" => SSE42, "popcnt" => POPCNT,
        "avx" => AVX, "avx2" => AVX2, "fma" => FMA, "bmi1" => BMI1, "bmi2" => BMI2, "lzcnt" => LZCNT,
        "f16c" => F16C, "movbe" => MOVBE, "cmpxchg16b" => CMPXCHG16B,
        "avx512f" => AVX512F, "avx512bw" => AVX512BW, "avx512cd" => AVX512CD, "avx512dq" => AVX512DQ,
        "avx512vl" => AVX512VL, "avx512vnni" => AVX512VNNI, "avx512bf16" => AVX512BF16,
        "avx512fp16" => AVX512FP16, "avx512vbmi" => AVX512VBMI, "avx512vbmi2" => AVX512VBMI2,
        "avx512ifma" => AVX512IFMA, "avx512bitalg" => AVX512BITALG, "avx512vpopcntdq" => AVX512VPOPCNTDQ,
        "avxvnni" => AVXVNNI, "gfni" => GFNI,
    )
}

#[cfg(target_arch = "aarch64")]
fn features() -> Features {
    detect!(is_aarch64_feature_detected, aarch64:
        "neon" => NEON, "crc" => CRC, "aes" => AES, "sha2" => SHA2, "lse" => LSE, "rdm" => RDM,
        "fp16" => FP16, "dotprod" => DOTPROD, "rcpc" => RCPC, "fhm" => FHM, "fcma" => FCMA,
        "jsconv" => JSCONV, "i8mm" => I8MM, "bf16" => BF16, "sha3" => SHA3, "flagm" => FLAGM,
        "lse2" => LSE2, "frintts" => FRINTTS, "sve" => SVE, "sve2" => SVE2,
    )
}

#[cfg(target_arch = "riscv64")]
fn features() -> Features {
    // The library detects V and the later extensions too, but not yet in its stable part.
    let mut seen = detect!(is_riscv_feature_detected, riscv:
        "m" => M, "a" => A, "c" => C, "zba" => ZBA, "zbb" => ZBB, "zbc" => ZBC, "zbs" => ZBS,
        "zicond" => ZICOND, "zcb" => ZCB, "zicsr" => ZICSR, "zifencei" => ZIFENCEI,
    );
    // A Linux system of this architecture is RV64GC: older kernels do not report the parts one by one.
    seen = seen.or(lookup("riscv64").map_or(Features::NONE, |cpu| cpu.features));
    if let Ok(auxv) = fs::read("/proc/self/auxv") {
        seen = seen.or(riscv_letters(&auxv));
    }
    if let Ok(cpuinfo) = fs::read_to_string("/proc/cpuinfo") {
        seen = seen.or(riscv_isa(&cpuinfo, seen));
    }
    seen.with_implied(Arch::Riscv64)
}

/// Single-letter extensions out of the auxiliary vector of a 64-bit RISC-V process: `AT_HWCAP` has bit 0 for A to bit
/// 25 for Z.
#[cfg(any(target_arch = "riscv64", test))]
fn riscv_letters(auxv: &[u8]) -> Features {
    const AT_HWCAP: u64 = 16;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut set = Features::NONE;
    for entry in auxv.chunks_exact(16) {
        if word(&entry[..8]) == AT_HWCAP {
            let letters = word(&entry[8..]);
            for (name, bit) in crate::features::riscv::TABLE {
                if let &[letter] = name.as_bytes()
                    && letters >> (letter - b'a') & 1 == 1
                {
                    set = set.or(*bit);
                }
            }
        }
    }
    set
}

/// Extensions with long names out of the first `isa` line of `/proc/cpuinfo`. Vector extensions count only when the
/// system has reported `v` by itself in `known`: the line may speak of what the kernel has switched off.
#[cfg(any(target_arch = "riscv64", test))]
fn riscv_isa(cpuinfo: &str, known: Features) -> Features {
    let isa = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "isa").then_some(value.trim())
    });
    let mut set = Features::NONE;
    for name in isa.unwrap_or("").split('_').skip(1) {
        if let Some((_, bit)) = crate::features::riscv::TABLE.iter().find(|(long, _)| *long == name)
            && (!name.starts_with("zv") || known.contains(crate::features::riscv::V))
        {
            set = set.or(*bit);
        }
    }
    set
}

/// The library detects these too, but not yet in its stable part.
#[cfg(target_arch = "arm")]
fn features() -> Features {
    fs::read("/proc/self/auxv").map_or(Features::NONE, |auxv| arm_hwcap(&auxv)).with_implied(Arch::Arm)
}

/// Features out of the auxiliary vector of a 32-bit Arm process, whose `AT_HWCAP` has the bits of Linux' `HWCAP_`.
#[cfg(any(target_arch = "arm", test))]
fn arm_hwcap(auxv: &[u8]) -> Features {
    use crate::features::arm::*;
    const AT_HWCAP: u32 = 16;
    const VFPV3: u32 = 1 << 13;
    // Processors with these have Thumb-2, which has no bit; and every unit of Linux' machines computes in binary64.
    let bits: [(u32, Features); 6] =
        [(1 << 6, FP32.or(FP64)), (1 << 7, DSP), (1 << 12, NEON), (VFPV3, THUMB2), (1 << 16, VFPV4), (1 << 17, IDIV)];
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    let mut set = Features::NONE;
    for entry in auxv.chunks_exact(8).filter(|entry| word(&entry[..4]) == AT_HWCAP) {
        let hwcap = word(&entry[4..]);
        for (bit, feature) in bits {
            if hwcap & bit != 0 {
                set = set.or(feature);
            }
        }
    }
    set
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64", target_arch = "arm")))]
fn features() -> Features {
    Features::NONE
}

/// What this machine's CPU can do; empty on an architecture that GraphMend has no code for. Unlike [`native`], this reads
/// no files: it is part of every start of a program.
pub fn native_features() -> Features {
    features()
}

/// This machine, named `native`. `None` on an architecture that GraphMend has no code for.
pub fn native() -> Option<Cpu> {
    let arch = Arch::of_this_program()?;
    let like = match arch {
        Arch::X86_64 => lookup("x86-64"),
        Arch::Aarch64 => lookup("aarch64"),
        Arch::Riscv64 => lookup("riscv64"),
        Arch::Arm | Arch::Riscv32 | Arch::Portable => None,
    }?;
    let features = features();
    let (vector_bits, vector_regs) = vectors(arch, features);
    let caches = caches(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    Some(Cpu {
        name: "native",
        features,
        description: "the machine that packs",
        vector_bits,
        vector_regs,
        l1d_bytes: caches.l1d.unwrap_or(like.l1d_bytes),
        l2_bytes: caches.l2.unwrap_or(like.l2_bytes),
        cache_line: caches.line.unwrap_or(like.cache_line),
        ..like
    })
}

#[derive(Default, PartialEq, Debug)]
struct Caches {
    l1d: Option<u32>,
    l2: Option<u32>,
    line: Option<u32>,
}

/// Reads the sizes from a sysfs folder; what is not there or not sensible stays unknown.
fn caches(folder: &Path) -> Caches {
    let mut found = Caches::default();
    for index in 0..8 {
        let folder = folder.join(format!("index{index}"));
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
        let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
            continue;
        };
        let size = bytes(&size);
        match (level.as_str(), kind.as_str()) {
            ("1", "Data" | "Unified") => {
                found.l1d = size;
                found.line = read("coherency_line_size")
                    .and_then(|line| line.parse().ok())
                    .filter(|line: &u32| (16..=1024).contains(line) && line.is_power_of_two());
            }
            ("2", "Data" | "Unified") => found.l2 = size,
            _ => {}
        }
    }
    found
}

/// `48K`, `2M` or plain bytes.
fn bytes(text: &str) -> Option<u32> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u32>().ok()?.checked_mul(unit).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_is_consistent() {
        let Some(cpu) = native() else {
            assert!(!matches!(Arch::of_this_program(), Some(Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64)));
            return;
        };
        assert_eq!(cpu.name, "native");
        assert_eq!(Some(cpu.arch), Arch::of_this_program());
        assert_eq!(vectors(cpu.arch, cpu.features), (cpu.vector_bits, cpu.vector_regs));
        let base = match cpu.arch {
            Arch::X86_64 => "x86-64",
            Arch::Aarch64 => "aarch64",
            _ => "riscv64",
        };
        assert!(cpu.runs_code_for(&lookup(base).unwrap()));
        assert!(cpu.l1d_bytes >= 4096 && cpu.cache_line >= 16);
    }

    #[test]
    fn arm_features_come_from_the_auxiliary_vector() {
        // A Cortex-A7 and an ARM1176, as Linux reports them.
        let auxv =
            |hwcap: u32| -> Vec<u8> { [6, 4096, 16, hwcap, 0, 0].iter().flat_map(|w: &u32| w.to_le_bytes()).collect() };
        let has = |hwcap, name| {
            let preset = lookup(name).unwrap();
            arm_hwcap(&auxv(hwcap)).contains(preset.features)
        };
        assert!(has(0x003f_b0d6, "rpi2") && has(0x003f_b0d6, "armv7") && has(0x003f_b0d6, "armv6"));
        assert!(has(0x0000_80d7, "rpi1") && !has(0x0000_80d7, "armv7"));
        assert_eq!(arm_hwcap(&auxv(0)), Features::NONE);
    }

    #[test]
    fn risc_v_letters_come_from_the_auxiliary_vector() {
        use crate::features::riscv::*;
        let hwcap: u64 = [b'i', b'm', b'v'].iter().map(|letter| 1 << (letter - b'a')).sum();
        let auxv: Vec<u8> = [6, 4096, 16, hwcap, 0, 0].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        assert_eq!(riscv_letters(&auxv), M | V);
        assert_eq!(riscv_letters(&auxv[..20]), Features::NONE);
    }

    #[test]
    fn long_risc_v_names_come_from_the_isa_line() {
        use crate::features::riscv::*;
        let text =
            "processor\t: 0\nhart isa\t: rv64_zfa\nisa\t\t: rv64imafdcv_zicbom_zfh_zvfh_zvl256b\nisa : rv64_zcb\n";
        assert_eq!(riscv_isa(text, V), ZFH | ZVFH | ZVL256B);
        assert_eq!(riscv_isa(text, Features::NONE), ZFH);
        assert_eq!(riscv_isa("flags : sse2_zfh", V), Features::NONE);
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        assert_eq!(bytes("48K"), Some(48 << 10));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("512"), Some(512));
        for bad in ["", "K", "0K", "9999999M", "-1K", "é"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }

    #[test]
    fn without_sysfs_nothing_is_known() {
        assert_eq!(caches(Path::new("/nonexistent")), Caches::default());
    }
}
