//! Hints that fetch the next panel of packed weights while the current one is multiplied.
//!
//! The tiles of one panel read it from the cache, all but the first: that one waits for memory, and the memory for the others. So
//! each tile asks for its share of the panel that follows, spread evenly over its terms.

use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Reg};

/// Bytes that one hint fetches.
const LINE: i64 = 64;

/// What a tile asks for.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The panels.
    buf: Buf,
    /// First element of the tile's share.
    base: Reg,
    /// Elements for each term.
    rate: i64,
}

impl Ahead {
    /// The share of the tile with number `m0 / mr`, where `tiles` consecutive ones together fetch a panel; `next` is the first element of the panel that
    /// follows, which has `width` elements for each of `terms` terms. Nothing where no other tile waits.
    pub(super) fn new(
        b: &mut Builder,
        buf: Buf,
        next: Reg,
        (width, terms): (i64, i64),
        (m0, mr): (Reg, i64),
        tiles: i64,
    ) -> Option<Ahead> {
        if tiles < 1 {
            return None;
        }
        let rate = (width + tiles - 1) / tiles;
        let (mr, share) = (b.i64(mr), b.i64(rate * terms));
        let (tile, tiles) = (b.div(m0, mr), b.i64(tiles));
        let tile = b.rem(tile, tiles);
        let from = b.mul(tile, share);
        Some(Ahead { buf, base: b.add(next, from), rate })
    }

    /// Where a pass asks whose first term is number `term`.
    pub(super) fn at(&self, b: &mut Builder, term: Reg) -> Reg {
        let rate = b.i64(self.rate);
        let term = b.mul(term, rate);
        b.add(self.base, term)
    }

    /// The hints for term number `step` of the pass that asks from `at` on.
    pub(super) fn fetch(&self, b: &mut Builder, at: Reg, step: i64) {
        let line = LINE / b.buf_param(self.buf).dtype.size() as i64;
        let (from, to) = (step * self.rate, (step + 1) * self.rate);
        let first = (from + line - 1) / line;
        for disp in (first..).map(|n| n * line).take_while(|disp| *disp < to) {
            b.prefetch(self.buf, at, disp);
        }
    }
}
