//! The interface between the runtime and kernels.

/// What a kernel gets. All fields are one pointer or eight bytes; nothing is owned.
///
/// On 64-bit targets the offsets are 0, 8, 16, 24, 32 and the size is 40 ([`offset64`]). On 32-bit targets the pointers
/// take four bytes each and the tile range starts at the next multiple of 8: 0, 4, 8, 16, 24, size 32 ([`offset32`]).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelArgs {
    /// The buffers, in the order of the kernel's parameters.
    pub bufs: *const *mut u8,
    /// The scalars.
    pub scalars: *const i64,
    /// Scratch memory, aligned to [`ARENA_ALIGN`](crate::ARENA_ALIGN); unspecified contents; null if the kernel needs none.
    pub scratch: *mut u8,
    /// First work unit to compute.
    pub tile_lo: i64,
    /// One past the last work unit to compute.
    pub tile_hi: i64,
}

/// A kernel's entry. Returns one of [`status`].
pub type KernelFn = unsafe extern "C" fn(*const KernelArgs) -> u32;

/// What kernels return.
pub mod status {
    /// Success.
    pub const OK: u32 = 0;
    /// An index read from data was out of range.
    pub const INDEX: u32 = 1;
}

/// Byte offsets of the fields of [`KernelArgs`] on 64-bit targets.
pub mod offset64 {
    /// `bufs`.
    pub const BUFS: i32 = 0;
    /// `scalars`.
    pub const SCALARS: i32 = 8;
    /// `scratch`.
    pub const SCRATCH: i32 = 16;
    /// `tile_lo`.
    pub const TILE_LO: i32 = 24;
    /// `tile_hi`.
    pub const TILE_HI: i32 = 32;
}

/// Byte offsets of the fields of [`KernelArgs`] on 32-bit targets.
pub mod offset32 {
    /// `bufs`.
    pub const BUFS: i32 = 0;
    /// `scalars`.
    pub const SCALARS: i32 = 4;
    /// `scratch`.
    pub const SCRATCH: i32 = 8;
    /// `tile_lo`.
    pub const TILE_LO: i32 = 16;
    /// `tile_hi`.
    pub const TILE_HI: i32 = 24;
}

#[cfg(target_pointer_width = "64")]
use offset64 as native;

#[cfg(target_pointer_width = "32")]
use offset32 as native;

// What the offsets above say is what the compiler does, on every target that this is built for.
const _: () = {
    assert!(core::mem::offset_of!(KernelArgs, bufs) == native::BUFS as usize);
    assert!(core::mem::offset_of!(KernelArgs, scalars) == native::SCALARS as usize);
    assert!(core::mem::offset_of!(KernelArgs, scratch) == native::SCRATCH as usize);
    assert!(core::mem::offset_of!(KernelArgs, tile_lo) == native::TILE_LO as usize);
    assert!(core::mem::offset_of!(KernelArgs, tile_hi) == native::TILE_HI as usize);
};

/// Calling conventions, as variants name them (`abi`). Pointer size and registers follow from the instruction set.
pub mod id {
    /// The C convention of everything but Windows: System V on x86-64, AAPCS on Arm, the psABI on RISC-V.
    pub const SYSTEM: u16 = 1;
    /// Windows on x86-64.
    pub const WINDOWS_X64: u16 = 2;
    /// The convention of `extern "C"` in this program.
    pub const OF_THIS_PROGRAM: u16 = if cfg!(all(windows, target_arch = "x86_64")) { WINDOWS_X64 } else { SYSTEM };
}
