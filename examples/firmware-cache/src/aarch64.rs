//! QEMU's board "virt" with Arm processors.

use core::arch::{asm, global_asm};
use core::ptr::with_exposed_provenance_mut;

/// The second flash device; the first is what the processor starts from, if there is something in it.
pub const FLASH: usize = 0x0400_0000;
/// What files are packed for.
pub const CPU: &str = "cortex-a72";

// The floating-point unit is switched on (CPACR_EL1.FPEN), exceptions end the program.
global_asm!(
    r#"
    .section .text.start, "ax"
    .global start
start:
    mov x0, #(3 << 20)
    msr cpacr_el1, x0
    adrp x0, vectors
    add x0, x0, :lo12:vectors
    msr vbar_el1, x0
    isb
    adrp x0, stack_top
    add x0, x0, :lo12:stack_top
    mov sp, x0
    adrp x0, bss_start
    add x0, x0, :lo12:bss_start
    adrp x1, bss_end
    add x1, x1, :lo12:bss_end
1:  cmp x0, x1
    b.hs 2f
    stp xzr, xzr, [x0], #16
    b 1b
2:  bl main

    .balign 2048
vectors:
    .rept 16
    mov w0, #2
    bl leave
    .balign 128
    .endr
"#
);

const SERIAL_PORT: usize = 0x0900_0000;

/// A byte to the serial port.
pub fn send(byte: u8) {
    // SAFETY: the register of a device.
    unsafe { with_exposed_provenance_mut::<u32>(SERIAL_PORT).write_volatile(u32::from(byte)) };
}

/// Ends the emulator with a status, through semihosting.
#[unsafe(no_mangle)]
pub extern "C" fn leave(status: u32) -> ! {
    const SYS_EXIT: usize = 0x18;
    const APPLICATION_EXIT: u64 = 0x20026;
    let block = [APPLICATION_EXIT, u64::from(status)];
    // SAFETY: a call of the debugger, which reads the block.
    unsafe { asm!("hlt #0xf000", in("x0") SYS_EXIT, in("x1") block.as_ptr()) };
    loop {}
}

/// Translation tables for the first 4 GB at their own addresses: 2 MB blocks for the first GB, one block for the next.
#[repr(C, align(4096))]
struct Tables {
    /// Its first entries are the first level; a table has at least a page.
    gigabytes: [u64; 512],
    first: [u64; 512],
}

static mut TABLES: Tables = Tables { gigabytes: [0; _], first: [0; _] };

/// Flash is at the start of the address space, devices behind it.
const FLASH_END: u64 = 0x0800_0000;

/// Switches translation and caches on. Without, all memory is device memory, in which kernels may not load vectors that are not
/// aligned to their size.
pub fn prepare() {
    const TABLE: u64 = 0b11;
    const BLOCK: u64 = 0b01;
    const ACCESSED: u64 = 1 << 10;
    const SHARED: u64 = 3 << 8;
    const READ_ONLY: u64 = 2 << 6;
    const NEVER_EXECUTED: u64 = 3 << 53;
    // Kinds of memory, as numbered in MAIR_EL1 below.
    const NORMAL: u64 = BLOCK | ACCESSED | SHARED;
    const DEVICE: u64 = BLOCK | ACCESSED | NEVER_EXECUTED | 1 << 2;
    // SAFETY: the only reference; the tables stay as they are from here on.
    let tables = unsafe { &mut *(&raw mut TABLES) };
    for (address, entry) in (0u64..).step_by(2 << 20).zip(&mut tables.first) {
        *entry = address | if address < FLASH_END { NORMAL | READ_ONLY } else { DEVICE };
    }
    tables.gigabytes[0] = (&raw const tables.first).addr() as u64 | TABLE;
    tables.gigabytes[1] = 0x4000_0000 | NORMAL;
    let normal_cached_then_device = 0x00ffu64;
    // 32-bit addresses, pages of 4 KiB, tables in cached and shared memory, no second range.
    let control = 32u64 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23;
    // SAFETY: the tables map all that this program uses at the address where it is.
    unsafe {
        asm!(
            "msr mair_el1, {memory}",
            "msr tcr_el1, {control}",
            "msr ttbr0_el1, {table}",
            "dsb sy",
            "isb",
            "mrs {control}, sctlr_el1",
            "orr {control}, {control}, #(1 << 0)", // translation
            "orr {control}, {control}, #(1 << 2)", // data cache
            "orr {control}, {control}, #(1 << 12)", // instruction cache
            "msr sctlr_el1, {control}",
            "isb",
            memory = in(reg) normal_cached_then_device,
            control = inout(reg) control => _,
            table = in(reg) (&raw const tables.gigabytes).addr() as u64,
        );
    }
}
