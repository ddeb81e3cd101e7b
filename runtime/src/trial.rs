//! Whether threads make the runs of a session faster, which its own first runs find out.
//!
//! A run of many short kernels can take longer with threads than without: what one of them wrote lies in the cache of its core,
//! from where another one's reads and writes fetch it line by line. How much that costs depends on the machine, and where its
//! threads are at the time. Results are the same either way, so that runs may take turns, with threads and without, until it is
//! known what is faster; after [`AGAIN`] further runs, once more.

use core::time::Duration;

use crate::TensorRef;

/// Runs that take longer have enough work for several threads: they take no turns.
const LONG: Duration = Duration::from_millis(2);
/// Runs of each kind that are measured.
const EACH: u32 = 5;
/// Runs until it is tried again.
const AGAIN: u32 = 2048;

/// What is known so far of runs on inputs of the same sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// A digest of the sizes.
    sizes: Option<u64>,
    /// Runs of these sizes. The first is not measured: it makes memory ready.
    runs: u32,
    /// The shortest runs with threads.
    shared: Duration,
    /// The shortest runs without.
    alone: Duration,
}

impl Trial {
    pub(crate) const NEW: Trial = Trial { sizes: None, runs: 0, shared: Duration::MAX, alone: Duration::MAX };

    /// Should the next run, on inputs of these sizes, use threads?
    pub(crate) fn threads(&mut self, inputs: &[TensorRef<'_>]) -> bool {
        let sizes = Some(digest(inputs));
        if sizes != self.sizes || self.runs > AGAIN {
            *self = Trial { sizes, ..Trial::NEW };
        }
        match self.runs {
            0 => true,
            n if n <= 2 * EACH => n % 2 == 1 || self.shared > LONG,
            _ => self.shared < self.alone,
        }
    }

    /// The run that was asked about took this long, with threads or without.
    pub(crate) fn took(&mut self, threads: bool, time: Duration) {
        if self.runs > 0 {
            let best = if threads { &mut self.shared } else { &mut self.alone };
            *best = time.min(*best);
        }
        self.runs += 1;
    }
}

/// A digest of the sizes of inputs (FNV-1a).
fn digest(inputs: &[TensorRef<'_>]) -> u64 {
    let sizes = inputs.iter().flat_map(|x| x.shape.iter().chain(core::iter::once(&usize::MAX)));
    sizes.fold(0xcbf2_9ce4_8422_2325, |h, n| (h ^ *n as u64).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    /// Which of the next runs use threads, if these take `with` microseconds with them and `without`.
    fn runs(trial: &mut Trial, count: usize, shape: &[usize], [with, without]: [u64; 2]) -> Vec<bool> {
        let x = vec![0f32; shape.iter().product()];
        let mut out = vec![];
        for _ in 0..count {
            let threads = trial.threads(&[TensorRef::new(&x, shape)]);
            trial.took(threads, Duration::from_micros(if threads { with } else { without }));
            out.push(threads);
        }
        out
    }

    #[test]
    fn the_faster_way_is_taken_after_turns_have_shown_it() {
        for (times, threads) in [([300, 400], true), ([400, 300], false)] {
            let mut trial = Trial::NEW;
            let turns = runs(&mut trial, 11, &[2, 3], times);
            assert_eq!(turns.iter().filter(|t| !**t).count(), 5, "{turns:?}");
            assert_eq!(runs(&mut trial, 100, &[2, 3], times), [threads; 100]);
        }
    }

    #[test]
    fn what_has_changed_is_found_out_later() {
        let mut trial = Trial::NEW;
        runs(&mut trial, 100, &[4], [400, 300]);
        assert!(!trial.threads(&[TensorRef::new(&[0f32; 4], &[4])]));
        runs(&mut trial, AGAIN as usize, &[4], [200, 300]);
        assert_eq!(runs(&mut trial, 100, &[4], [200, 300]), [true; 100]);
    }

    #[test]
    fn long_runs_and_runs_of_changing_sizes_use_threads() {
        let mut trial = Trial::NEW;
        assert_eq!(runs(&mut trial, 100, &[7], [5000, 1]), [true; 100]);
        for n in 1..50 {
            assert_eq!(runs(&mut trial, 2, &[n], [400, 300]), [true; 2]);
        }
    }
}
