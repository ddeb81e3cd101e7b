//! Runs a packed model that lies in flash, where it lies: its code is executed and its weights are read there, and all else
//! is memory that this program lends. There is no heap, but with the feature `interp`: then the file is one for no processor
//! in particular, whose kernels are made ready in memory and interpreted.

#![no_std]
#![no_main]

#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(any(target_arch = "riscv32", target_arch = "riscv64"), path = "riscv.rs")]
mod board;
#[cfg(feature = "interp")]
mod heap;

use core::fmt;
use core::ptr::with_exposed_provenance;

#[cfg(not(feature = "interp"))]
use graphmend_runtime::Host;
#[cfg(feature = "interp")]
use graphmend_runtime::Programs;
use graphmend_runtime::{Error, HEAD, ModelRef, Session, TensorRef, Trust, WeightCheck, file_bytes};
#[cfg(not(feature = "interp"))]
use graphmend_targets::Features;

/// An input, and what onnxruntime computes for it.
mod case {
    include!(env!("KWS_CASE"));
}

/// Scores are about 1; onnxruntime adds up in another order.
const TOLERANCE: f32 = 1e-5;

/// Memory for runs.
#[repr(C, align(64))]
struct Memory {
    arena: [u8; 256 << 10],
    state: [i64; 8192],
}

static mut MEMORY: Memory = Memory { arena: [0; _], state: [0; _] };

fn flash(bytes: usize) -> &'static [u8] {
    // SAFETY: the board has at least as much flash there, and nobody writes to it.
    unsafe { core::slice::from_raw_parts(with_exposed_provenance(board::FLASH), bytes) }
}

/// Prints the scores. Whether they equal onnxruntime's.
fn run(memory: &mut Memory) -> Result<bool, Error> {
    let file = flash(file_bytes(flash(HEAD))?);
    #[cfg(feature = "interp")]
    let programs = Programs::from_bytes(file)?;
    #[cfg(feature = "interp")]
    say!("kernels to interpret: {} bytes of heap", heap::used());
    #[cfg(feature = "interp")]
    let model = ModelRef::interpreted(file, Trust::Unsigned, WeightCheck::OnUse, &programs)?;
    // What the board's processor is; firmware that knows its file's digest gives it as `Trust::Pinned`.
    #[cfg(not(feature = "interp"))]
    let host = Host::with_features(graphmend_targets::lookup(board::CPU).map_or(Features::NONE, |cpu| cpu.features));
    #[cfg(not(feature = "interp"))]
    // SAFETY: flash does not change, and is executable; the file there was made by `graphmend-pack`.
    let model = unsafe { ModelRef::from_bytes(file, Trust::Unsigned, host, WeightCheck::OnUse, None)? };
    say!(
        "{} bytes in flash, arena {}, state {}",
        file.len(),
        model.arena_bytes(),
        model.state_words() * size_of::<i64>()
    );
    let mut session = Session::new(model, &mut memory.arena, &mut memory.state)?;
    let mut equal = true;
    // The second run finds weights that are verified already.
    for _ in 0..2 {
        session.run(&[TensorRef::new(&case::CASE_FEATURES, &[1, 1, 49, 10])])?;
        for (score, expected) in session.output(0)?.as_f32()?.iter().zip(&case::CASE_SCORES) {
            equal &= (score - expected).abs() <= TOLERANCE;
        }
    }
    for (score, expected) in session.output(0)?.as_f32()?.iter().zip(&case::CASE_SCORES) {
        say!("{score:.6} (onnxruntime {expected:.6})");
    }
    Ok(equal)
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    board::prepare();
    // SAFETY: the only reference; `main` runs once.
    match run(unsafe { &mut *(&raw mut MEMORY) }) {
        Ok(equal) => {
            say!("the scores {} onnxruntime's", if equal { "equal" } else { "differ from" });
            board::leave(u32::from(!equal))
        }
        Err(error) => {
            say!("{error}");
            board::leave(1)
        }
    }
}

/// Text to the serial port.
struct Out;

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(board::send);
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => {{
        use core::fmt::Write as _;
        let _ = writeln!($crate::Out, $($arg)*);
    }};
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("{info}");
    board::leave(3)
}
