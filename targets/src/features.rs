//! Features of each architecture as bits.
//!
//! A set means something only together with its [`Arch`]: bit 0 is `sse3` on x86-64 and `neon` on aarch64. What an
//! architecture always has (SSE2 on x86-64, the base integer set on RISC-V) has no bit. The bits are stored in cache
//! files and never change their meaning.

use core::fmt;

use crate::arch::Arch;

/// A set of features of one architecture.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Features(
    /// The bits, as stored in cache files.
    pub u64,
);

impl Features {
    /// No feature beyond the architecture's base.
    pub const NONE: Features = Features(0);

    /// Features of either set.
    #[must_use]
    pub const fn or(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// This set without those of `other`.
    #[must_use]
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// Whether no feature is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every feature of `needed` is here.
    pub const fn contains(self, needed: Features) -> bool {
        needed.0 & !self.0 == 0
    }

    /// What of `needed` is not here; empty when it can run.
    #[must_use]
    pub const fn missing(self, needed: Features) -> Features {
        needed.without(self)
    }

    /// The set with everything that its members imply: `avx2` brings `avx`, `sse4.2` and so on.
    #[must_use]
    pub fn with_implied(self, arch: Arch) -> Features {
        let mut set = self;
        loop {
            let before = set;
            for (has, brings) in implications(arch) {
                if set.contains(*has) {
                    set = set.or(*brings);
                }
            }
            if set == before {
                return set;
            }
        }
    }

    /// Reads names joined by `+` (blanks around them allowed); the empty text is the empty set, and so is `none`. Nothing
    /// is implied.
    pub fn parse(arch: Arch, text: &str) -> Result<Features, UnknownFeature<'_>> {
        let mut set = Features::NONE;
        if matches!(text.trim(), "" | "none") {
            return Ok(set);
        }
        for name in text.split('+') {
            let name = name.trim();
            match table(arch).iter().find(|(known, _)| *known == name) {
                Some((_, bit)) => set = set.or(*bit),
                None => return Err(UnknownFeature { arch, name }),
            }
        }
        Ok(set)
    }

    /// The names in the set in the order of their bits. Bits without a name (from a newer file) are left out: see
    /// [`Features::unnamed`].
    pub fn names(self, arch: Arch) -> impl Iterator<Item = &'static str> {
        table(arch).iter().filter(move |(_, bit)| self.contains(*bit)).map(|(name, _)| *name)
    }

    /// The bits that this version has no name for.
    #[must_use]
    pub fn unnamed(self, arch: Arch) -> Features {
        table(arch).iter().fold(self, |left, (_, bit)| left.without(*bit))
    }

    /// A text such as `avx2+fma`; bits without a name as `bit41`; `none` for the empty set.
    pub fn display(self, arch: Arch) -> FeatureDisplay {
        FeatureDisplay { arch, features: self }
    }
}

impl core::ops::BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        self.or(other)
    }
}

/// A feature name that its architecture does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownFeature<'a> {
    /// The architecture asked.
    pub arch: Arch,
    /// The name that was given.
    pub name: &'a str,
}

impl fmt::Display for UnknownFeature<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no feature '{}'; known:", self.arch, self.name)?;
        for (name, _) in table(self.arch) {
            write!(f, " {name}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownFeature<'_> {}

/// Shows a feature set; see [`Features::display`].
#[derive(Clone, Copy, Debug)]
pub struct FeatureDisplay {
    arch: Arch,
    features: Features,
}

impl fmt::Display for FeatureDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.features.is_empty() {
            return f.write_str("none");
        }
        let mut first = true;
        let mut gap = |f: &mut fmt::Formatter<'_>| {
            if core::mem::take(&mut first) { Ok(()) } else { f.write_str("+") }
        };
        for name in self.features.names(self.arch) {
            gap(f)?;
            f.write_str(name)?;
        }
        let unnamed = self.features.unnamed(self.arch).0;
        for bit in (0..64).filter(|bit| unnamed >> bit & 1 == 1) {
            gap(f)?;
            write!(f, "bit{bit}")?;
        }
        Ok(())
    }
}

/// Defines a module of constants and the table of their names.
macro_rules! feature_table {
    ($(#[$doc:meta])* $module:ident { $($bit:literal $constant:ident $name:literal $what:literal;)+ }) => {
        $(#[$doc])*
        pub mod $module {
            use super::Features;
            $(
                #[doc = $what]
                pub const $constant: Features = Features(1 << $bit);
            )+
            /// Names and bits, in the order of the bits.
            pub const TABLE: &[(&str, Features)] = &[$(($name, $constant),)+];
        }
    };
}

feature_table! {
    /// x86-64; SSE and SSE2 are always there.
    x86 {
        0 SSE3 "sse3" "Horizontal adds.";
        1 SSSE3 "ssse3" "Byte shuffles.";
        2 SSE41 "sse4.1" "Rounding, blends, widening moves.";
        3 SSE42 "sse4.2" "64-bit compares, CRC32C.";
        4 POPCNT "popcnt" "Population count.";
        5 AVX "avx" "256-bit floating point; the operating system saves the registers.";
        6 AVX2 "avx2" "256-bit integers, gathers.";
        7 FMA "fma" "Fused multiply-add.";
        8 BMI1 "bmi1" "Bit manipulation, trailing zero count.";
        9 BMI2 "bmi2" "Flagless shifts, bit deposit and extract.";
        10 LZCNT "lzcnt" "Leading zero count.";
        11 F16C "f16c" "Conversions between binary16 and binary32.";
        12 MOVBE "movbe" "Byte-swapping moves.";
        13 CMPXCHG16B "cmpxchg16b" "16-byte compare and exchange.";
        16 AVX512F "avx512f" "512-bit base set; the operating system saves the registers.";
        17 AVX512BW "avx512bw" "512-bit bytes and words.";
        18 AVX512CD "avx512cd" "Conflict detection.";
        19 AVX512DQ "avx512dq" "512-bit double and quad words.";
        20 AVX512VL "avx512vl" "The 512-bit encodings on 128 and 256 bits.";
        21 AVX512VNNI "avx512vnni" "Products of bytes and words added into 32 bits.";
        22 AVX512BF16 "avx512bf16" "bfloat16 products added into binary32.";
        23 AVX512FP16 "avx512fp16" "binary16 arithmetic.";
        24 AVX512VBMI "avx512vbmi" "Byte permutes over two registers.";
        25 AVX512VBMI2 "avx512vbmi2" "Byte compress and expand.";
        26 AVX512IFMA "avx512ifma" "52-bit integer multiply-add.";
        27 AVX512BITALG "avx512bitalg" "Population count of bytes and words.";
        28 AVX512VPOPCNTDQ "avx512vpopcntdq" "Population count of double and quad words.";
        29 AVXVNNI "avxvnni" "VNNI in the AVX encoding.";
        30 GFNI "gfni" "Galois field arithmetic, bit matrix transforms.";
    }
}

feature_table! {
    /// 64-bit Arm.
    aarch64 {
        0 NEON "neon" "Advanced SIMD and floating point.";
        1 CRC "crc" "CRC32 instructions.";
        2 AES "aes" "AES and 64-bit polynomial multiply.";
        3 SHA2 "sha2" "SHA-1 and SHA-256.";
        4 LSE "lse" "Atomic read-modify-write instructions.";
        5 RDM "rdm" "Rounding doubling multiply-accumulate.";
        6 FP16 "fp16" "binary16 arithmetic, scalar and vector.";
        7 DOTPROD "dotprod" "sdot and udot: four byte products added into 32 bits.";
        8 RCPC "rcpc" "Release-consistent loads.";
        9 FHM "fhm" "binary16 products added into binary32.";
        10 FCMA "fcma" "Complex arithmetic.";
        11 JSCONV "jsconv" "JavaScript conversion.";
        12 I8MM "i8mm" "Byte matrix products, mixed-sign dot products.";
        13 BF16 "bf16" "bfloat16 dot and matrix products.";
        14 SHA3 "sha3" "SHA-3 and SHA-512; three-way exclusive or.";
        15 FLAGM "flagm" "Flag manipulation.";
        16 LSE2 "lse2" "Atomic 16-byte aligned access.";
        17 FRINTTS "frintts" "Rounding to 32 and 64 bit integers.";
        18 SVE "sve" "Scalable vectors.";
        19 SVE2 "sve2" "Scalable vectors, second version.";
    }
}

feature_table! {
    /// RISC-V, 64 and 32 bits. The base is RV64I or RV32I.
    riscv {
        0 M "m" "Integer multiply and divide.";
        1 A "a" "Atomics.";
        2 F "f" "binary32 floating point.";
        3 D "d" "binary64 floating point.";
        4 C "c" "Compressed instructions.";
        5 V "v" "Vectors for applications, registers of at least 128 bits.";
        6 ZBA "zba" "Address generation.";
        7 ZBB "zbb" "Basic bit manipulation.";
        8 ZBC "zbc" "Carry-less multiply.";
        9 ZBS "zbs" "Single-bit instructions.";
        10 ZVL128B "zvl128b" "Vector registers of at least 128 bits.";
        11 ZVL256B "zvl256b" "Vector registers of at least 256 bits.";
        12 ZVL512B "zvl512b" "Vector registers of at least 512 bits.";
        13 ZFHMIN "zfhmin" "binary16 loads, stores and conversions.";
        14 ZFH "zfh" "binary16 arithmetic.";
        15 ZVFHMIN "zvfhmin" "Vector binary16 conversions.";
        16 ZVFH "zvfh" "Vector binary16 arithmetic.";
        17 ZICOND "zicond" "Conditional zeroing.";
        18 ZFA "zfa" "Further floating-point instructions.";
        19 ZICSR "zicsr" "Control and status registers.";
        20 ZIFENCEI "zifencei" "Instruction-fetch fence.";
        21 ZCB "zcb" "Further compressed instructions.";
        22 ZVBB "zvbb" "Vector bit manipulation.";
    }
}

feature_table! {
    /// 32-bit Arm.
    arm {
        0 THUMB2 "thumb2" "The whole Thumb-2 set.";
        1 DSP "dsp" "Saturating and packed halfword arithmetic.";
        2 IDIV "idiv" "Integer divide.";
        3 FP32 "fp32" "binary32 in hardware.";
        4 FP64 "fp64" "binary64 in hardware.";
        5 VFPV4 "vfpv4" "Fused multiply-add and binary16 conversions in hardware.";
        6 NEON "neon" "Advanced SIMD.";
        7 MVE "mve" "M-profile vectors, integers.";
        8 MVEFP "mve.fp" "M-profile vectors, binary16 and binary32.";
        9 FP16 "fp16" "binary16 arithmetic.";
    }
}

/// Names and bits of an architecture's features, in the order of the bits.
pub fn table(arch: Arch) -> &'static [(&'static str, Features)] {
    match arch {
        Arch::X86_64 => x86::TABLE,
        Arch::Aarch64 => aarch64::TABLE,
        Arch::Riscv64 | Arch::Riscv32 => riscv::TABLE,
        Arch::Arm => arm::TABLE,
        Arch::Portable => &[],
    }
}

/// Pairs of a set and what it brings with it.
type Implications = &'static [(Features, Features)];

const X86_IMPLIES: Implications = {
    use x86::*;
    &[
        (SSSE3, SSE3),
        (SSE41, SSSE3),
        (SSE42, SSE41),
        (AVX, SSE42),
        (AVX2, AVX),
        (FMA, AVX),
        (F16C, AVX),
        (AVXVNNI, AVX2),
        (AVX512F, AVX2.or(FMA).or(F16C)),
        (AVX512BW, AVX512F),
        (AVX512CD, AVX512F),
        (AVX512DQ, AVX512F),
        (AVX512VL, AVX512F),
        (AVX512VNNI, AVX512F),
        (AVX512BF16, AVX512BW),
        (AVX512FP16, AVX512BW.or(AVX512VL).or(AVX512DQ)),
        (AVX512VBMI, AVX512BW),
        (AVX512VBMI2, AVX512BW),
        (AVX512IFMA, AVX512F),
        (AVX512BITALG, AVX512BW),
        (AVX512VPOPCNTDQ, AVX512F),
    ]
};

const AARCH64_IMPLIES: Implications = {
    use aarch64::*;
    &[
        (AES, NEON),
        (SHA2, NEON),
        (RDM, NEON),
        (FP16, NEON),
        (DOTPROD, NEON),
        (FHM, FP16),
        (FCMA, NEON),
        (JSCONV, NEON),
        (I8MM, NEON),
        (BF16, NEON),
        (SHA3, SHA2),
        (FRINTTS, NEON),
        (SVE, FP16),
        (SVE2, SVE),
    ]
};

const RISCV_IMPLIES: Implications = {
    use riscv::*;
    &[
        (F, ZICSR),
        (D, F),
        (V, D.or(ZVL128B)),
        (ZVL256B, ZVL128B),
        (ZVL512B, ZVL256B),
        (ZFHMIN, F),
        (ZFH, ZFHMIN),
        (ZVFHMIN, V),
        (ZVFH, ZVFHMIN.or(ZFHMIN)),
        (ZFA, F),
        (ZCB, C),
        (ZVBB, V),
    ]
};

const ARM_IMPLIES: Implications = {
    use arm::*;
    &[(FP64, FP32), (VFPV4, FP32), (NEON, FP32), (MVE, DSP), (MVEFP, MVE.or(FP16)), (FP16, VFPV4)]
};

fn implications(arch: Arch) -> Implications {
    match arch {
        Arch::X86_64 => X86_IMPLIES,
        Arch::Aarch64 => AARCH64_IMPLIES,
        Arch::Riscv64 | Arch::Riscv32 => RISCV_IMPLIES,
        Arch::Arm => ARM_IMPLIES,
        Arch::Portable => &[],
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn bits_are_pinned() {
        assert_eq!(x86::AVX2.0, 1 << 6);
        assert_eq!(x86::FMA.0, 1 << 7);
        assert_eq!(x86::AVX512F.0, 1 << 16);
        assert_eq!(x86::AVX512VNNI.0, 1 << 21);
        assert_eq!(aarch64::NEON.0, 1);
        assert_eq!(aarch64::DOTPROD.0, 1 << 7);
        assert_eq!(aarch64::I8MM.0, 1 << 12);
        assert_eq!(riscv::V.0, 1 << 5);
        assert_eq!(riscv::ZVL128B.0, 1 << 10);
        assert_eq!(arm::MVEFP.0, 1 << 8);
    }

    #[test]
    fn names_and_bits_are_unique() {
        for arch in Arch::ALL {
            let mut seen = Features::NONE;
            for (index, (name, bit)) in table(arch).iter().enumerate() {
                assert_eq!(bit.0.count_ones(), 1, "{arch} {name}");
                assert!(!seen.contains(*bit), "{arch} {name}");
                seen = seen.or(*bit);
                assert!(table(arch)[..index].iter().all(|(other, _)| other != name), "{arch} {name}");
            }
        }
    }

    #[test]
    fn every_set_survives_text() {
        for arch in Arch::ALL {
            let all = table(arch).iter().fold(Features::NONE, |all, (_, bit)| all.or(*bit));
            assert_eq!(Features::parse(arch, &all.display(arch).to_string()), Ok(all));
            for (_, bit) in table(arch) {
                let most = all.without(*bit);
                assert_eq!(Features::parse(arch, &most.display(arch).to_string()), Ok(most));
            }
        }
        assert_eq!(Features::parse(Arch::X86_64, " avx2 + fma "), Ok(x86::AVX2 | x86::FMA));
        assert_eq!(Features::parse(Arch::X86_64, ""), Ok(Features::NONE));
        assert_eq!(Features::NONE.display(Arch::X86_64).to_string(), "none");
        assert_eq!((x86::AVX2 | Features(1 << 63)).display(Arch::X86_64).to_string(), "avx2+bit63");
    }

    #[test]
    fn an_unknown_feature_is_named() {
        let error = Features::parse(Arch::Aarch64, "neon+avx2").unwrap_err();
        assert_eq!(error.name, "avx2");
        assert!(error.to_string().starts_with("aarch64 has no feature 'avx2'; known: neon crc"));
        assert!(Features::parse(Arch::X86_64, "avx2+").is_err());
    }

    #[test]
    fn missing_lists_exactly_the_difference() {
        let have = x86::AVX2 | x86::FMA;
        let need = x86::FMA | x86::AVX512F | x86::AVX512BW;
        assert_eq!(have.missing(need), x86::AVX512F | x86::AVX512BW);
        assert!(!have.contains(need));
        assert!(have.contains(Features::NONE));
        assert_eq!(have.missing(x86::FMA), Features::NONE);
    }

    #[test]
    fn implied_features_are_closed_over() {
        let avx2 = x86::AVX2.with_implied(Arch::X86_64);
        assert_eq!(avx2.display(Arch::X86_64).to_string(), "sse3+ssse3+sse4.1+sse4.2+avx+avx2");
        let sve2 = aarch64::SVE2.with_implied(Arch::Aarch64);
        assert_eq!(sve2.display(Arch::Aarch64).to_string(), "neon+fp16+sve+sve2");
        let v = riscv::V.with_implied(Arch::Riscv64);
        assert_eq!(v.display(Arch::Riscv64).to_string(), "f+d+v+zvl128b+zicsr");
    }
}
