//! How a session's lent words are divided.
//!
//! ```text
//! 1 word           1 when the outputs are those of a finished run
//! regs             registers
//! slots × 3        place (0 unset, 1 arena, 2 weights, 3 + k input k), offset, bytes
//! max bufs × 2     pointers given to a kernel, then the lengths behind them
//! max scalars      scalars given to a kernel
//! outputs × 3      place (1 or 2), offset, bytes
//! dims             sizes of all outputs
//! leaves / 64      a bit per block of weights that has been verified
//! lanes            values of interpreted kernels, as many as the one with most has
//! buffers × 2      of buffers with constant bounds that have been looked up: 2 × offset, + 1 in the arena or + 2 in the
//!                  weights; bytes. They hold from run to run: offsets do not depend on where the arena lies
//! ```

use core::ops::Range;

use graphmend_cache_format::plan::Plan;
use graphmend_cache_format::tensors::Tensors;

use crate::Error;

/// Where the parts begin, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) regs: usize,
    pub(crate) slots: usize,
    pub(crate) bufs: usize,
    pub(crate) scalars: usize,
    pub(crate) outputs: usize,
    pub(crate) dims: usize,
    pub(crate) leaves: usize,
    pub(crate) lanes: usize,
    pub(crate) known: usize,
    /// All words.
    pub(crate) total: usize,
}

impl Layout {
    pub(crate) fn new(plan: &Plan<'_>, tensors: &Tensors<'_>, leaves: usize, lanes: usize) -> Result<Layout, Error> {
        let mut at = 1usize;
        let mut part = |count: u32, words: usize| {
            let start = at;
            let size = usize::try_from(count).ok()?.checked_mul(words)?;
            at = at.checked_add(size)?;
            Some(start)
        };
        let dims = (0..tensors.outputs()).filter_map(|i| tensors.declared_output(i)).map(|t| t.rank as u32).sum();
        let lane_words = u32::try_from(lanes).map_err(|_| Error::TooLarge)?;
        let leaf_words = u32::try_from(leaves.div_ceil(64)).map_err(|_| Error::TooLarge)?;
        let mut all = || {
            Some(Layout {
                regs: part(plan.regs, 1)?,
                slots: part(plan.slots, 3)?,
                bufs: part(plan.max_bufs, 2)?,
                scalars: part(plan.max_scalars, 1)?,
                outputs: part(plan.outputs, 3)?,
                dims: part(dims, 1)?,
                leaves: part(leaf_words, 1)?,
                lanes: part(lane_words, 1)?,
                known: part(plan.buffers, 2)?,
                total: part(0, 0)?,
            })
        };
        all().ok_or(Error::TooLarge)
    }

    /// Words that must be zero before the first run.
    pub(crate) fn marks(&self) -> Range<usize> {
        self.leaves..self.total
    }

    /// Divides the words; nothing if there are too few.
    pub(crate) fn split<'s>(&self, state: &'s mut [i64]) -> Option<Words<'s>> {
        let mut rest = state.get_mut(..self.total)?;
        let lens = self.bufs + (self.scalars - self.bufs) / 2;
        let ends = [
            self.regs,
            self.slots,
            self.bufs,
            lens,
            self.scalars,
            self.outputs,
            self.dims,
            self.leaves,
            self.lanes,
            self.known,
            self.total,
        ];
        let mut parts: [&mut [i64]; 11] = Default::default();
        let mut at = 0;
        for (part, end) in parts.iter_mut().zip(ends) {
            (*part, rest) = core::mem::take(&mut rest).split_at_mut_checked(end.checked_sub(at)?)?;
            at = end;
        }
        let [done, regs, slots, bufs, lens, scalars, outputs, dims, leaves, lanes, known] = parts;
        Some(Words { done: done.first_mut()?, regs, slots, bufs, lens, scalars, outputs, dims, leaves, lanes, known })
    }
}

/// The words, divided.
pub(crate) struct Words<'s> {
    pub(crate) done: &'s mut i64,
    pub(crate) regs: &'s mut [i64],
    pub(crate) slots: &'s mut [i64],
    /// Each has room for a pointer; the pointers lie densely from the start.
    pub(crate) bufs: &'s mut [i64],
    pub(crate) lens: &'s mut [i64],
    pub(crate) scalars: &'s mut [i64],
    pub(crate) outputs: &'s mut [i64],
    pub(crate) dims: &'s mut [i64],
    pub(crate) leaves: &'s mut [i64],
    #[cfg_attr(not(feature = "interp"), allow(dead_code, reason = "nothing is interpreted then"))]
    pub(crate) lanes: &'s mut [i64],
    pub(crate) known: &'s mut [i64],
}

/// What a slot or an output is a view of: a number, as it is in the words, where 0 is "unset".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

impl Place {
    pub(crate) const ARENA: Place = Place(1);
    pub(crate) const WEIGHTS: Place = Place(2);

    pub(crate) fn input(number: u32) -> Place {
        Place(number.saturating_add(3))
    }

    /// The number of an input, if it is one.
    pub(crate) fn as_input(self) -> Option<u32> {
        self.0.checked_sub(3)
    }

    pub(crate) fn word(self) -> i64 {
        i64::from(self.0)
    }

    /// The place of a word that is not 0.
    pub(crate) fn from_word(word: i64) -> Place {
        Place(word as u32)
    }
}

/// Whether a bit is set.
pub(crate) fn test(bits: &[i64], index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

/// Sets a bit.
pub(crate) fn set(bits: &mut [i64], index: usize) {
    if let Some(word) = bits.get_mut(index / 64) {
        *word |= 1 << (index % 64);
    }
}
