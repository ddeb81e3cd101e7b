//! Instruction set architectures.

use core::fmt;

/// An instruction set that a cache variant can hold code for. Always little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum Arch {
    /// x86 in 64-bit mode, System V or Windows.
    X86_64 = 1,
    /// 64-bit Arm (A64).
    Aarch64 = 2,
    /// 64-bit RISC-V.
    Riscv64 = 3,
    /// 32-bit Arm: A32 and every Thumb.
    Arm = 4,
    /// 32-bit RISC-V.
    Riscv32 = 5,
    /// No processor in particular: kernels that are interpreted.
    Portable = 6,
}

impl Arch {
    /// All, in the order of their ids.
    pub const ALL: [Arch; 6] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64, Arch::Arm, Arch::Riscv32, Arch::Portable];

    /// The number stored in cache files.
    pub const fn id(self) -> u16 {
        self as u16
    }

    /// The architecture of a stored number.
    pub const fn from_id(id: u16) -> Option<Arch> {
        match id {
            1 => Some(Arch::X86_64),
            2 => Some(Arch::Aarch64),
            3 => Some(Arch::Riscv64),
            4 => Some(Arch::Arm),
            5 => Some(Arch::Riscv32),
            6 => Some(Arch::Portable),
            _ => None,
        }
    }

    /// The name, as Rust's `target_arch` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::Arm => "arm",
            Arch::Riscv32 => "riscv32",
            Arch::Portable => "portable",
        }
    }

    /// The architecture of a name.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Bytes of a pointer.
    pub const fn pointer_bytes(self) -> usize {
        match self {
            Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64 | Arch::Portable => 8,
            Arch::Arm | Arch::Riscv32 => 4,
        }
    }

    /// The architecture that this program was compiled for, if it is one of ours.
    pub const fn of_this_program() -> Option<Arch> {
        if cfg!(target_arch = "x86_64") {
            Some(Arch::X86_64)
        } else if cfg!(target_arch = "aarch64") {
            Some(Arch::Aarch64)
        } else if cfg!(target_arch = "riscv64") {
            Some(Arch::Riscv64)
        } else if cfg!(target_arch = "arm") {
            Some(Arch::Arm)
        } else if cfg!(target_arch = "riscv32") {
            Some(Arch::Riscv32)
        } else {
            None
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_pinned() {
        let pinned = [(1, "x86_64"), (2, "aarch64"), (3, "riscv64"), (4, "arm"), (5, "riscv32"), (6, "portable")];
        assert_eq!(pinned.len(), Arch::ALL.len());
        for (arch, (id, name)) in Arch::ALL.into_iter().zip(pinned) {
            assert_eq!((arch.id(), arch.name()), (id, name));
            assert_eq!(Arch::from_id(id), Some(arch));
            assert_eq!(Arch::from_name(name), Some(arch));
        }
        assert_eq!(Arch::from_id(0), None);
        assert_eq!(Arch::from_id(7), None);
        assert_eq!(Arch::from_name("mips"), None);
    }
}
