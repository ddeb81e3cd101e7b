//! What C compilers are told of a processor, in GCC's spelling, which Clang understands.

use crate::arch::Arch;
use crate::cpu::Cpu;
use crate::features::{self, aarch64, riscv, x86};

/// Flags that choose the instruction set and the calling convention.
pub fn c_flags(cpu: &Cpu) -> &'static [&'static str] {
    match cpu.arch {
        Arch::Arm => arm(cpu.name),
        Arch::Riscv32 if cpu.features.contains(riscv::F) => &["-march=rv32imafc", "-mabi=ilp32f", "-mcmodel=medany"],
        Arch::Riscv32 if cpu.features.contains(riscv::A) => &["-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany"],
        Arch::Riscv32 => &["-march=rv32imc", "-mabi=ilp32", "-mcmodel=medany"],
        Arch::Portable => &[],
        Arch::Riscv64 => &["-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"],
        Arch::Aarch64 if cpu.features.contains(aarch64::FP16.or(aarch64::DOTPROD)) => {
            &["-march=armv8.2-a+fp16+dotprod"]
        }
        Arch::Aarch64 => &["-march=armv8-a"],
        Arch::X86_64 => {
            let v2 = x86::SSE42.or(x86::POPCNT);
            let v3 = v2.or(x86::AVX2).or(x86::FMA).or(x86::F16C).or(x86::BMI2).or(x86::LZCNT).or(x86::MOVBE);
            match cpu.features {
                // Vectors of 128 bits are what the text is written with; the wider sets add nothing.
                f if f.contains(v3) => &["-march=x86-64-v3"],
                f if f.contains(v2) => &["-march=x86-64-v2"],
                _ => &["-march=x86-64"],
            }
        }
    }
}

/// 32-bit Arm, where each core has its own floating-point unit and convention.
fn arm(name: &str) -> &'static [&'static str] {
    match name {
        "cortex-m3" => &["-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft"],
        "cortex-m4" => &["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft"],
        "cortex-m4f" => &["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
        "cortex-m7" => &["-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"],
        "cortex-m33" => &["-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"],
        "cortex-m55" => &["-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"],
        "rpi1" | "armv6" => &["-march=armv6+fp", "-marm", "-mfloat-abi=hard"],
        "rpi2" => &["-mcpu=cortex-a7", "-marm", "-mfloat-abi=hard", "-mfpu=neon-vfpv4"],
        "armv7" => &["-march=armv7-a", "-marm", "-mfloat-abi=hard", "-mfpu=neon"],
        // What runs on every Cortex-M.
        _ => &["-mcpu=cortex-m0plus", "-mthumb", "-mfloat-abi=soft"],
    }
}

/// Programs that may compile C for a processor, the likeliest first. `cc` is this machine's own.
pub fn c_compilers(cpu: &Cpu) -> &'static [&'static str] {
    let here = Arch::of_this_program() == Some(cpu.arch);
    match cpu.arch {
        Arch::Arm if !cpu.rust_triple.contains("linux") => &["arm-none-eabi-gcc"],
        Arch::Arm if here => &["cc", "gcc", "clang"],
        // Debian's library with hardware floats is for Armv7.
        Arch::Arm if !cpu.features.contains(features::arm::THUMB2) => {
            &["arm-linux-gnueabi-gcc", "arm-linux-gnueabihf-gcc"]
        }
        Arch::Arm => &["arm-linux-gnueabihf-gcc"],
        Arch::Riscv32 => &["riscv32-unknown-elf-gcc", "riscv64-unknown-elf-gcc", "riscv-none-elf-gcc"],
        Arch::Portable => &["cc", "gcc", "clang"],
        Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64 if here => &["cc", "gcc", "clang"],
        Arch::X86_64 => &["x86_64-linux-gnu-gcc"],
        Arch::Aarch64 => &["aarch64-linux-gnu-gcc"],
        Arch::Riscv64 => &["riscv64-linux-gnu-gcc"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::{lookup, presets};

    #[test]
    fn every_preset_has_flags_and_a_compiler() {
        for cpu in presets() {
            assert!(!c_flags(cpu).is_empty() || cpu.arch == Arch::Portable, "{}", cpu.name);
            assert!(!c_compilers(cpu).is_empty(), "{}", cpu.name);
            // The last arm of the table is for one processor alone.
            let m0 = cpu.arch == Arch::Arm && c_flags(cpu).contains(&"-mcpu=cortex-m0plus");
            assert_eq!(m0, cpu.name == "cortex-m0plus", "{}", cpu.name);
        }
        assert!(c_flags(&lookup("rpi2").unwrap()).contains(&"-mfpu=neon-vfpv4"));
        assert!(c_flags(&lookup("x86-64-v4").unwrap()).contains(&"-march=x86-64-v3"));
    }
}
