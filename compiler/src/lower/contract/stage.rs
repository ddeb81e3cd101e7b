//! Packed bytes are converted once for each tile of columns, not once for each tile of rows as well: into work space, from
//! where all tiles of rows read them.

use super::operand::Stream;
use super::schedule::{Group, guess_product};
use super::tile::Gen;
use crate::kernel::ir::{Buf, Reg};
use crate::sym::Int;

/// Work space for one tile of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    /// The work space.
    pub buf: Buf,
    /// Where this call's part begins.
    pub base: Reg,
}

/// Parts of the work space. A call takes the part that its first unit names, so that as many calls may run side by side
/// as long as each has at least its share of the units.
const PARTS: i64 = 8;

/// Elements that one pass of the conversion takes.
const PASS: i64 = 16;

impl Gen<'_> {
    /// Makes the work space, if converting ahead pays. `units` is the number of work units.
    pub(super) fn make_stage(&mut self, units: Int) {
        let rows = guess_product(&self.s.m);
        let (Some(_), Stream::Packed { .. }, Some(terms)) = (self.form.exact, &self.v, self.form.terms()) else { return };
        if self.s.dot || rows < 3 * self.s.mr as i64 {
            return;
        }
        let size = terms * self.s.nv as i64 * i64::from(self.s.lanes);
        let parts = units.min(PARTS);
        let buf = self.e.scratch_buf(self.elem(), parts * size);
        let (lo, parts, units) = (self.e.b.tile_lo(), self.e.int(parts), self.e.int(units));
        let part = self.e.b.mul(lo, parts);
        let part = self.e.b.div(part, units);
        let size = self.e.b.i64(size);
        let base = self.e.b.mul(part, size);
        self.stage = Some(Stage { buf, base });
    }

    /// Converts the tile of columns at `n0`.
    pub(super) fn fill_stage(&mut self, n0: Reg, groups: &[Group]) {
        let (Some(Stage { buf: to, base }), Stream::Packed { buf, .. }) = (self.stage, self.v.clone()) else { return };
        let Some(terms) = self.form.terms() else { return };
        let all = terms * groups.iter().map(|g| i64::from(g.lanes)).sum::<i64>();
        let v = self.v.clone();
        let from = self.packed_base(&v, n0, Int::new(terms));
        let Some(from) = from else { return };
        let mut first = 0;
        for step in [PASS, 1] {
            let end = all - (all - first) % step;
            let (lo, hi) = (self.e.b.i64(first), self.e.b.i64(end));
            let i = self.e.b.begin_for(lo, hi, step);
            let (at, into) = (self.e.b.add(from, i), self.e.b.add(base, i));
            let bytes = self.e.b.load(buf, at, 0, step as u16);
            let wide = self.widened(bytes);
            self.e.b.store(to, into, 0, wide);
            self.e.b.end();
            first = end;
        }
    }
}
