//! Opens a model, runs it, and looks at its output, as firmware does. Only linked, to be measured: `scripts/footprint.sh`.
#![no_std]
#![no_main]

use core::hint::black_box;
use core::panic::PanicInfo;

use graphmend_runtime::{Error, Host, KernelFn, ModelRef, Session, TensorRef};
#[cfg(feature = "verify")]
use graphmend_runtime::{Trust, WeightCheck};
use graphmend_targets::Features;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}

fn run(file: &[u8], functions: &[KernelFn], arena: &mut [u8], state: &mut [i64], x: &[u8]) -> Result<usize, Error> {
    let host = Host::with_features(Features::NONE);
    #[cfg(feature = "verify")]
    // SAFETY: never run.
    let model = unsafe { ModelRef::from_bytes(file, Trust::Unsigned, host, WeightCheck::OnUse, Some(functions)) }?;
    #[cfg(not(feature = "verify"))]
    // SAFETY: never run.
    let model = unsafe { ModelRef::from_trusted_bytes(file, host, Some(functions)) }?;
    let mut session = Session::new(model, arena, state)?;
    session.run(&[TensorRef::from_bytes(graphmend_runtime::DType::I8, &[1, 32], x)])?;
    Ok(session.output(0)?.bytes.len())
}

/// # Safety
/// Never run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _start() -> ! {
    // What is given is not known to the optimizer.
    let (file, functions): (&[u8], &[KernelFn]) = black_box((&[], &[]));
    let (arena, state): (&mut [u8], &mut [i64]) = black_box((&mut [], &mut []));
    let _ = black_box(run(file, functions, arena, state, black_box(&[])));
    loop {}
}
