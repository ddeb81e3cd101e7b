//! Machine code for cache files by way of C: for 32-bit Arm, which no code generator here serves.
//!
//! A kernel is compiled as position-independent code and linked by itself to address 0, its entry first, constants and what it
//! needs of the compiler's library behind. The linker keeps the relocations that it applied; one that depends on the
//! address is refused, as is anything that would be written to.

use super::toolchain::{Folder, Toolchain, read, run, write};
use crate::codegen::Target;
use crate::codegen::c::{self, Bounds, Helpers, Style};
use crate::error::{Error, Result, Stage};
use crate::kernel::ir::Kernel;
use graphmend_targets::features::arm;

/// Everything in one section; what only debuggers and unwinders read is left out. Kernels are entered as Thumb code. Where they
/// are not Thumb themselves, `ENTRY` stands for two instructions of it, `bx pc` and `nop`, which go on to the other instruction
/// set, whose code follows.
const SCRIPT: &str = "\
SECTIONS {
    . = 0;
    .text : { ENTRY *(.text.entry) *(.text .text.* .rodata .rodata.* .glue_7 .glue_7t .vfp11_veneer .v4_bx) }
    /DISCARD/ : { *(.ARM.exidx* .ARM.extab* .comment .note*) }
}
";

const ENTRY: &str = "gm_entry";

/// What libraries of compilers call where something is divided by zero, which kernels do not do.
const DIVISIONS: &str = "
int __aeabi_idiv0(int value);
long long __aeabi_ldiv0(long long value);
int __aeabi_idiv0(int value)
{
    return value;
}
long long __aeabi_ldiv0(long long value)
{
    return value;
}
void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *t = (uint8_t *)to;
    const uint8_t *f = (const uint8_t *)from;
    while (bytes--)
        *t++ = *f++;
    return to;
}
void *memset(void *to, int byte, size_t bytes);
void *memset(void *to, int byte, size_t bytes)
{
    uint8_t *t = (uint8_t *)to;
    while (bytes--)
        *t++ = (uint8_t)byte;
    return to;
}
";

/// Machine code of a kernel, its entry at the first byte.
///
/// # Errors
/// What the compiler says; code that depends on its address or keeps something in memory.
pub fn compile(kernel: &Kernel, bounds: &Bounds, target: Target, toolchain: &Toolchain) -> Result<Vec<u8>> {
    let style = Style::of(target);
    let mut helpers = Helpers::default();
    let function = c::function(kernel, "kernel", style, bounds, &mut helpers)?;
    let entry = c::entry(kernel, ENTRY, "kernel");
    let text = format!(
        "{}\n{}{function}\n__attribute__((section(\".text.entry\")))\n{entry}{DIVISIONS}",
        helpers.preamble(),
        c::ARGS
    );
    let folder = Folder::new()?;
    write(&folder.0.join("kernel.c"), text.as_bytes())?;
    let thumb = toolchain.has_flag("-mthumb");
    let script = SCRIPT.replace("ENTRY", if thumb { "" } else { "LONG(0x46c04778)" });
    write(&folder.0.join("kernel.ld"), script.as_bytes())?;
    let mut command = toolchain.command();
    command.current_dir(&folder.0).args([
        "-fPIC",
        "-ffreestanding",
        "-fvisibility=hidden",
        "-fno-asynchronous-unwind-tables",
    ]);
    // A loop that copies is not to become a call of itself.
    command.args(["-fno-unwind-tables", "-fno-tree-loop-distribute-patterns", "-fno-stack-protector"]);
    command.args(["-c", "kernel.c", "-o", "kernel.o"]);
    run(&mut command)?;
    let mut link = toolchain.command();
    link.current_dir(&folder.0).args(["-nostdlib", "-static", "-no-pie", "-Wl,-T,kernel.ld", "-Wl,--emit-relocs"]);
    // What kernels call of the compiler's library passes numbers in the same registers under both conventions for floats, so
    // that a library for the other one does, too.
    link.args([
        "-Wl,--no-warn-mismatch",
        "-Wl,--build-id=none",
        "-Wl,--gc-sections",
        &format!("-Wl,-e,{ENTRY}"),
        "kernel.o",
        "-lgcc",
        "-o",
        "kernel.elf",
    ]);
    run(&mut link)?;
    let elf = read(&folder.0.join("kernel.elf"))?;
    if !thumb
        && !target.features.contains(arm::THUMB2)
        && made_for(&elf).is_some_and(|version| !BEFORE_V7.contains(&version))
    {
        let program = &toolchain.program;
        return Err(Error::Options(format!(
            "the library that {program} links is for Armv7: --cc names a compiler for Armv6 (Raspberry Pi OS has one)"
        )));
    }
    code(&elf).map_err(|what| Error::internal(Stage::Codegen, format!("kernel {}: {what}", kernel.name)))
}

/// Bytes at which the fields of the ELF header and of section headers are, in 32 bits.
mod at {
    pub(super) const SECTIONS: usize = 32;
    pub(super) const SECTION_BYTES: usize = 46;
    pub(super) const SECTION_COUNT: usize = 48;
    pub(super) const KIND: usize = 4;
    pub(super) const FLAGS: usize = 8;
    pub(super) const ADDRESS: usize = 12;
    pub(super) const OFFSET: usize = 16;
    pub(super) const SIZE: usize = 20;
    pub(super) const INFO: usize = 28;
}

const NOBITS: u32 = 8;
const REL: u32 = 9;
const RELA: u32 = 4;
const ALLOC: u32 = 2;

/// Relocations of 32-bit Arm that do not depend on the address: none, `REL32`, `THM_CALL`, `CALL`, `JUMP24`, `THM_JUMP24`,
/// `V4BX`, `PREL31`, `MOVW_PREL_NC`, `MOVT_PREL`, `THM_JUMP19`, `THM_JUMP11`, `THM_JUMP8`.
const RELATIVE: &[u32] = &[0, 3, 10, 28, 29, 30, 40, 42, 45, 46, 51, 102, 103];

/// Numbers of Arm's versions before Armv7-A that Armv6 processors with an operating system run: up to v6KZ, and v6K.
const BEFORE_V7: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 9];

/// The version of the instruction set that the linked objects together are made for, out of the build attributes.
fn made_for(elf: &[u8]) -> Option<u8> {
    const ATTRIBUTES: u32 = 0x7000_0003;
    let word = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?));
    let (first, size) = (word(at::SECTIONS)? as usize, usize::from(half(at::SECTION_BYTES)?));
    let count = usize::from(half(at::SECTION_COUNT)?);
    let section = (0..count).map(|k| first + k * size).find(|at| word(at + at::KIND) == Some(ATTRIBUTES))?;
    let from = word(section + at::OFFSET)? as usize;
    let bytes = elf.get(from..from + word(section + at::SIZE)? as usize)?;
    // A version, a length and a vendor, then those of the whole file: a tag, a length.
    let mut rest = bytes.get(1 + 4 + b"aeabi\0".len() + 1 + 4..)?;
    loop {
        let (tag, after) = rest.split_first()?;
        rest = after;
        match tag {
            6 => return rest.first().copied(),
            // Names of processors end with a zero.
            4 | 5 => rest = rest.get(rest.iter().position(|b| *b == 0)? + 1..)?,
            _ => rest = rest.get(1..)?,
        }
    }
}

/// The one section that is loaded, if the code is what it must be.
fn code(elf: &[u8]) -> Result<Vec<u8>, String> {
    let word = |at: usize| elf.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let half = |at: usize| elf.get(at..at + 2).and_then(|b| b.try_into().ok()).map(u16::from_le_bytes);
    let short = || "the linker's output is not understood".to_owned();
    if elf.get(..6) != Some(b"\x7fELF\x01\x01") {
        return Err(short());
    }
    let first = word(at::SECTIONS).ok_or_else(short)? as usize;
    let size = usize::from(half(at::SECTION_BYTES).ok_or_else(short)?);
    let count = usize::from(half(at::SECTION_COUNT).ok_or_else(short)?);
    let section = |k: usize, field: usize| word(first + k * size + field).ok_or_else(short);
    let mut found = None;
    for k in 0..count {
        if section(k, at::FLAGS)? & ALLOC != 0 && section(k, at::SIZE)? > 0 {
            if found.is_some() || section(k, at::KIND)? == NOBITS || section(k, at::ADDRESS)? != 0 {
                return Err("the code keeps something in memory of its own".to_owned());
            }
            found = Some(k);
        }
    }
    let text = found.ok_or("there is no code")?;
    for k in 0..count {
        let kind = section(k, at::KIND)?;
        if (kind != REL && kind != RELA) || section(k, at::INFO)? as usize != text {
            continue;
        }
        let (from, bytes) = (section(k, at::OFFSET)? as usize, section(k, at::SIZE)? as usize);
        for entry in (from..from + bytes).step_by(if kind == REL { 8 } else { 12 }) {
            let relocation = word(entry + 4).ok_or_else(short)? & 0xff;
            if !RELATIVE.contains(&relocation) {
                return Err(format!("the code depends on its address (relocation {relocation})"));
            }
        }
    }
    let (from, bytes) = (section(text, at::OFFSET)? as usize, section(text, at::SIZE)? as usize);
    elf.get(from..from + bytes).map(<[u8]>::to_vec).ok_or_else(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of sections: kind, flags, contents, info.
    fn elf(sections: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let mut out = b"\x7fELF\x01\x01".to_vec();
        out.resize(52, 0);
        let mut headers = vec![];
        for (kind, flags, contents, info) in sections {
            let fields = [0, *kind, *flags, 0, out.len() as u32, contents.len() as u32, 0, *info, 4, 0];
            headers.extend(fields.iter().flat_map(|f| f.to_le_bytes()));
            out.extend(*contents);
        }
        let start = out.len() as u32;
        out[at::SECTIONS..at::SECTIONS + 4].copy_from_slice(&start.to_le_bytes());
        out[at::SECTION_BYTES..at::SECTION_BYTES + 2].copy_from_slice(&40u16.to_le_bytes());
        out[at::SECTION_COUNT..at::SECTION_COUNT + 2].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        out.extend(headers);
        out
    }

    #[test]
    fn the_version_is_found_behind_the_processors_name() {
        let attributes = b"A\x20\0\0\0aeabi\0\x01\x16\0\0\0\x05ARM1176\0\x06\x09\x08\x01";
        assert_eq!(made_for(&elf(&[(1, ALLOC, &[0; 4], 0), (0x7000_0003, 0, attributes, 0)])), Some(9));
        assert_eq!(made_for(&elf(&[(1, ALLOC, &[0; 4], 0)])), None);
        assert_eq!(made_for(&elf(&[(0x7000_0003, 0, &attributes[..18], 0)])), None);
    }

    #[test]
    fn code_that_is_bound_to_a_place_is_refused() {
        let relocation = |kind: u32| [[0u8; 4], kind.to_le_bytes()].concat();
        let text = (1, ALLOC | 4, &[1u8, 2, 3, 4][..], 0);
        assert_eq!(code(&elf(&[text, (REL, 0, &relocation(3), 0)])), Ok(vec![1, 2, 3, 4]));
        let error = code(&elf(&[text, (REL, 0, &relocation(2), 0)])).unwrap_err();
        assert_eq!(error, "the code depends on its address (relocation 2)");
        // Of a section that is not loaded.
        assert!(code(&elf(&[text, (REL, 0, &relocation(2), 5)])).is_ok());
        let error = code(&elf(&[text, (1, ALLOC | 3, &[0; 4], 0)])).unwrap_err();
        assert_eq!(error, "the code keeps something in memory of its own");
        for end in 0..60 {
            assert!(code(&elf(&[text])[..end]).is_err());
        }
    }
}
