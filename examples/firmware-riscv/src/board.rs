//! What is of the board: the start, the serial port, and the device that ends QEMU.

use core::arch::global_asm;
use core::fmt;
use core::ptr::with_exposed_provenance_mut;

// One processor runs; the floating-point unit, if there is one, is switched on (mstatus.FS).
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
    la t0, bss_start
    la t1, bss_end
1:  bgeu t0, t1, 2f
    sw zero, 0(t0)
    addi t0, t0, 4
    j 1b
2:  call main
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

/// Ends the emulator with a status.
#[unsafe(no_mangle)]
pub extern "C" fn leave(status: u32) -> ! {
    let word = if status == 0 { PASS } else { status << 16 | FAIL };
    // SAFETY: the register of a device.
    unsafe { with_exposed_provenance_mut::<u32>(TEST_DEVICE).write_volatile(word) };
    loop {}
}

/// Text to the serial port.
pub struct Out;

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the register of a device.
            unsafe { with_exposed_provenance_mut::<u8>(SERIAL_PORT).write_volatile(byte) };
        }
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::board::Out, $($arg)*);
    }};
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("{info}");
    leave(3)
}
