//! What is of the board: the start, output and exit through semihosting.

use core::arch::{asm, global_asm};
use core::fmt;

// Vectors, and what must be before any Rust: the floating-point unit, initial values of statics.
global_asm!(
    r#"
    .section .vectors, "a"
    .word stack_top
    .word reset
    .rept 14
    .word fault
    .endr

    .section .text.reset, "ax"
    .thumb_func
    .global reset
reset:
    ldr r0, =0xe000ed88     // coprocessor access control: full access to those of the floating-point unit
    ldr r1, [r0]
    orr r1, r1, #(0xf << 20)
    str r1, [r0]
    dsb
    isb
    ldr r0, =data_start
    ldr r1, =data_end
    ldr r2, =data_source
1:  cmp r0, r1
    beq 2f
    ldr r3, [r2], #4
    str r3, [r0], #4
    b 1b
2:  ldr r0, =bss_start
    ldr r1, =bss_end
    movs r3, #0
3:  cmp r0, r1
    beq 4f
    str r3, [r0], #4
    b 3b
4:  bl main
    .thumb_func
fault:
    movs r0, #2
    bl leave
"#
);

const SYS_WRITEC: usize = 0x03;
const SYS_EXIT_EXTENDED: usize = 0x20;
const APPLICATION_EXIT: usize = 0x20026;

fn semihost(operation: usize, argument: *const u32) {
    // SAFETY: a call of the debugger, which reads what the argument points to.
    unsafe { asm!("bkpt 0xab", inout("r0") operation => _, in("r1") argument) };
}

/// Ends the program, or the emulator, with a status.
#[unsafe(no_mangle)]
pub extern "C" fn leave(status: u32) -> ! {
    semihost(SYS_EXIT_EXTENDED, [APPLICATION_EXIT as u32, status].as_ptr());
    loop {}
}

/// Text to the debugger.
pub struct Out;

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| semihost(SYS_WRITEC, &u32::from(byte)));
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
