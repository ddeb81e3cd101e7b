//! QEMU's board "virt" with RISC-V processors.

use core::arch::global_asm;
use core::ptr::with_exposed_provenance_mut;

/// The first flash device, behind the program, which the processor starts from there.
pub const FLASH: usize = 0x2010_0000;
/// What files are packed for, but for those that are interpreted.
#[cfg(not(feature = "interp"))]
pub const CPU: &str = if cfg!(target_arch = "riscv64") { "riscv64" } else { "rv32imac" };

// One processor runs; its floating-point unit, if there is one, is switched on (mstatus.FS).
global_asm!(
    r#"
    .section .text.start, "ax"
    .global start
start:
    csrr t0, mhartid
    bnez t0, park
    la t0, fault
    csrw mtvec, t0
    li t0, 1 << 13
    csrs mstatus, t0
    la sp, stack_top
    la t0, data_start
    la t1, data_end
    la t2, data_source
0:  bgeu t0, t1, 1f
    lw t3, 0(t2)
    sw t3, 0(t0)
    addi t0, t0, 4
    addi t2, t2, 4
    j 0b
1:  la t0, bss_start
    la t1, bss_end
2:  bgeu t0, t1, 3f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 2b
3:  call main
park:
    wfi
    j park
    .balign 4
fault:
    li a0, 2
    call leave
"#
);

/// Sends a byte, when written to.
const SERIAL_PORT: usize = 0x1000_0000;
/// Ends QEMU, when written to.
const TEST_DEVICE: usize = 0x10_0000;
const PASS: u32 = 0x5555;
const FAIL: u32 = 0x3333;

/// What is left to do after the start.
pub fn prepare() {}

/// A byte to the serial port.
pub fn send(byte: u8) {
    // SAFETY: the register of a device.
    unsafe { with_exposed_provenance_mut::<u8>(SERIAL_PORT).write_volatile(byte) };
}

/// Ends the emulator with a status.
#[unsafe(no_mangle)]
pub extern "C" fn leave(status: u32) -> ! {
    let word = if status == 0 { PASS } else { status << 16 | FAIL };
    // SAFETY: the register of a device.
    unsafe { with_exposed_provenance_mut::<u32>(TEST_DEVICE).write_volatile(word) };
    loop {}
}
