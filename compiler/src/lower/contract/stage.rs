//! The vector operand's part for one tile of columns, laid out as the tile reads it in work space from where all tiles of
//! rows read it: packed bytes are converted only once, and elements far apart in memory are fetched only once.

use super::form::{Form, coef, extent};
use super::operand::Stream;
use super::schedule::{Group, Schedule, guess, guess_product};
use super::target::Target;
use super::tile::Gen;
use crate::kernel::ir::{Buf, Reg};
use crate::sym::Int;
use crate::te::cx::flatten;

/// Work space for one tile of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stage {
    /// The work space.
    pub buf: Buf,
}

/// Elements that one pass of the conversion takes.
const PASS: i64 = 16;

/// Whether laying the vector operand out pays.
pub(super) fn pays(form: &Form, target: &Target, s: &Schedule) -> bool {
    let rows = guess_product(&s.m).saturating_mul(guess_product(&s.lines));
    tiles_of_rows(form, target, s).is_some_and(|tiles| rows >= tiles * s.mr as i64)
}

/// The number of tiles of rows from which on laying the vector operand out pays: it is converted, gathered, or so spread
/// over cache lines that the first-level cache does not hold them.
pub(super) fn tiles_of_rows(form: &Form, target: &Target, s: &Schedule) -> Option<i64> {
    let v = &form.ops[s.vec];
    if s.dot || s.lanes == 1 {
        return None;
    }
    if v.data.is_some() {
        return (form.exact.is_some() && form.terms().is_some()).then_some(3);
    }
    let n = s.n?;
    match coef(v.flat, n).and_then(|c| c.as_const()) {
        Some(1) => {
            let [k] = form.ks.as_slice() else { return None };
            let apart = coef(v.flat, *k) != Some(Int::new(1));
            (apart && guess(extent(*k)) * 4 * LINE > target.near).then_some(8)
        }
        Some(2) => (guess(extent(n)) >= i64::from(s.lanes)).then_some(5),
        _ => None,
    }
}

/// Bytes of a cache line.
const LINE: i64 = 64;

impl Gen<'_> {
    /// Makes the work space, if converting ahead pays. Calls that run side by side each have their own.
    pub(super) fn make_stage(&mut self) {
        if !pays(self.form, &self.target, &self.s) {
            return;
        }
        let terms = Int::product(&self.form.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>());
        let size = terms * self.s.nv as i64 * i64::from(self.s.lanes);
        let buf = self.e.scratch_buf(self.elem(), size);
        self.stage = Some(Stage { buf });
    }

    /// Converts the tile of columns at `n0`.
    pub(super) fn fill_stage(&mut self, n0: Reg, groups: &[Group]) {
        let Some(Stage { buf: to }) = self.stage else { return };
        let Stream::Packed { buf, .. } = self.v.clone() else { return self.gather_stage(to, n0, groups) };
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
            let at = self.e.b.add(from, i);
            let bytes = self.e.b.load(buf, at, 0, step as u16);
            let wide = self.widened(bytes);
            self.e.b.store(to, i, 0, wide);
            self.e.b.end();
            first = end;
        }
    }

    /// Lays out an operand that is read as it lies.
    fn gather_stage(&mut self, to: Buf, n0: Reg, groups: &[Group]) {
        let ks = self.form.ks.clone();
        let zero = self.e.b.i64(0);
        for k in &ks {
            let end = self.e.int(extent(*k));
            let i = self.e.b.begin_for(zero, end, 1);
            self.e.vars.insert(*k, i);
        }
        let width: i64 = groups.iter().map(|g| i64::from(g.lanes)).sum();
        let at: Vec<Int> = ks.iter().map(|k| Int::var(*k)).collect();
        let term = flatten(&ks.iter().map(|k| extent(*k)).collect::<Vec<_>>(), &at) * width;
        let into = self.e.int(term);
        let mut before = 0;
        for (g, group) in groups.iter().enumerate() {
            self.places.known.clear();
            let v = self.direct_columns(n0, *group, g);
            self.e.b.store(to, into, before, v);
            before += i64::from(group.lanes);
        }
        self.places.known.clear();
        for k in ks.iter().rev() {
            self.e.vars.remove(k);
            self.e.b.end();
        }
    }
}
