//! Runs the keyword model once on a Cortex-M, prints its scores and compares them with those of onnxruntime.

#![no_std]
#![no_main]

mod board;

/// The model, as `graphmend-pack` wrote it; `build.rs` links its code.
mod kws {
    include!(concat!(env!("OUT_DIR"), "/kws.rs"));
}

/// An input, and what onnxruntime computes for it.
mod case {
    include!(env!("KWS_CASE"));
}

/// Scores are about 1; onnxruntime adds up in another order.
const TOLERANCE: f32 = 1e-5;

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    /// Memory for a run: 16 bytes aligned, without a heap. `main` runs once.
    static mut ARENA: kws::Arena = kws::Arena::new();
    // SAFETY: the only reference, made once.
    let arena = unsafe { &mut *(&raw mut ARENA) };
    let outputs = match kws::run(arena, &case::CASE_FEATURES) {
        Ok(outputs) => outputs,
        Err(error) => {
            say!("the run failed: {error:?}");
            board::leave(1)
        }
    };
    let mut equal = true;
    for (score, expected) in outputs.scores.iter().zip(&case::CASE_SCORES) {
        say!("{score:.6} (onnxruntime {expected:.6})");
        equal &= (score - expected).abs() <= TOLERANCE;
    }
    say!("the scores {} onnxruntime's", if equal { "equal" } else { "differ from" });
    board::leave(u32::from(!equal))
}
