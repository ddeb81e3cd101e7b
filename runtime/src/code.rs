//! Memory for verified copies: read-only tables and executable code.
//!
//! # Why copies
//!
//! What must not change between its verification and its use is copied first and verified in the copy: interface, plan,
//! kernel table, leaf digests (together some KiB) and code (some hundred KiB). A mapping of the file would not do: whoever
//! can write to the file can change a mapped page after it was hashed, and a changed plan or code is no longer what was
//! trusted. Verification reads all of these bytes anyway; the copy adds a small part of the hash's cost.
//! It is also what works where executable file mappings do not (`noexec` mounts, some security policies).
//!
//! No page is ever writable and executable at once: the copy is made in fresh private memory, verified, and only then
//! made read-only or executable.
//!
//! Weights, which may be large, are used where they are mapped and verified block by block. A file that is changed in
//! place while mapped can thus make results wrong, and one that is shortened ends the program (SIGBUS). Replace files by
//! renaming; or open with `Storage::Read`, which copies all.

use std::io;

use memmap2::{Mmap, MmapMut, MmapOptions};

/// Private memory with a copy of `parts`, each at a multiple of 64 bytes, still writable, and where each part begins.
pub(crate) fn copy(parts: &[&[u8]]) -> io::Result<(MmapMut, std::vec::Vec<usize>)> {
    let mut starts = std::vec::Vec::with_capacity(parts.len());
    let mut end = 0usize;
    for part in parts {
        starts.push(end);
        end = (end + part.len()).next_multiple_of(64);
    }
    // An empty mapping is an error.
    // All of it is written at once: one call instead of a fault per page.
    let mut memory = MmapOptions::new().len(end.max(1)).populate().map_anon()?;
    for (part, &start) in parts.iter().zip(&starts) {
        if let Some(to) = memory.get_mut(start..start + part.len()) {
            to.copy_from_slice(part);
        }
    }
    Ok((memory, starts))
}

/// Makes verified code executable.
pub(crate) fn executable(memory: MmapMut) -> io::Result<Mmap> {
    let code = memory.make_exec()?;
    flush_instructions(&code);
    Ok(code)
}

/// Makes instruction fetches see what was written. x86 keeps its caches coherent.
#[cfg(not(any(target_arch = "aarch64", all(any(target_arch = "riscv64", target_arch = "arm"), target_os = "linux"))))]
fn flush_instructions(_code: &[u8]) {}

/// Cleans the data cache and invalidates the instruction cache, line by line, as the Arm ARM (B2.4.4) prescribes.
#[cfg(target_arch = "aarch64")]
fn flush_instructions(code: &[u8]) {
    use core::arch::asm;

    let ctr: usize;
    // SAFETY: reads the cache type register, which Linux lets programs do.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) ctr, options(nomem, nostack, preserves_flags)) };
    let lines = |log2_words: usize| {
        let size = 4usize << (log2_words & 15);
        let start = code.as_ptr().addr() & !(size - 1);
        (start..code.as_ptr().addr() + code.len()).step_by(size)
    };
    for at in lines(ctr >> 16) {
        // SAFETY: cleaning a line of readable memory changes no contents.
        unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", options(nostack, preserves_flags)) };
    for at in lines(ctr) {
        // SAFETY: invalidating instructions of mapped memory changes no contents.
        unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    // SAFETY: barriers.
    unsafe { asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Asks the kernel, which reaches the harts that the program may move to.
#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
fn flush_instructions(code: &[u8]) {
    /// `riscv_flush_icache(start, end, flags)`; flags 0: all harts of the process.
    const SYS_RISCV_FLUSH_ICACHE: libc::c_long = 259;
    let range = code.as_ptr_range();
    // SAFETY: the call only looks at the numbers.
    unsafe { libc::syscall(SYS_RISCV_FLUSH_ICACHE, range.start, range.end, 0usize) };
}

/// Asks the kernel: programs may not clean caches themselves on 32-bit Arm.
#[cfg(all(target_arch = "arm", target_os = "linux"))]
fn flush_instructions(code: &[u8]) {
    /// `cacheflush(start, end, flags)`, in Arm's own range of system calls; flags are 0.
    const ARM_CACHEFLUSH: libc::c_long = 0x0f_0002;
    let range = code.as_ptr_range();
    // SAFETY: the call only looks at the numbers.
    unsafe { libc::syscall(ARM_CACHEFLUSH, range.start, range.end, 0usize) };
}
