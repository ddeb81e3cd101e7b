//! The vector operand's part for one tile of columns, laid out as the tile reads it in work space from where all tiles of
//! rows read it: packed bytes are converted only once, and elements far apart in memory are fetched only once.

use super::form::{Form, coef, extent};
use super::operand::Stream;
use super::schedule::{Group, Schedule, guess, guess_product};
use super::target::Target;
use super::tile::Gen;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Buf, Reg};
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
    if must(form, s) {
        return true;
    }
    let rows = guess_product(&s.m).saturating_mul(guess_product(&s.lines));
    tiles_of_rows(form, target, s).is_some_and(|tiles| rows >= tiles * s.mr as i64)
}

/// Whether the vector operand cannot be read otherwise: groups of four terms must lie together.
fn must(form: &Form, s: &Schedule) -> bool {
    form.fours.is_some() && form.ops[s.vec].data.is_none()
}

/// The number of tiles of rows from which on laying the vector operand out pays: it is converted, gathered, or so spread
/// over cache lines that the first-level cache does not hold them.
pub(super) fn tiles_of_rows(form: &Form, target: &Target, s: &Schedule) -> Option<i64> {
    let v = &form.ops[s.vec];
    if must(form, s) {
        return Some(0);
    }
    if s.dot || s.lanes == 1 {
        return None;
    }
    if form.few.is_some() {
        // Of one row or a few, as there may be where their number is open, nothing is read again.
        return s.m.iter().chain(&s.lines).all(|v| extent(*v).as_const().is_some()).then_some(3);
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
        let size = terms * self.form.words() * self.s.nv as i64 * i64::from(self.s.lanes);
        let elem = if self.form.fours.is_some() { DType::U32 } else { self.elem() };
        let buf = self.e.scratch_buf(elem, size);
        self.stage = Some(Stage { buf });
    }

    /// Converts the tile of columns at `n0`.
    pub(super) fn fill_stage(&mut self, n0: Reg, groups: &[Group]) {
        let Some(Stage { buf: to }) = self.stage else { return };
        let buf = match self.v.clone() {
            Stream::Direct(_) => return self.gather_stage(to, n0, groups),
            Stream::Coded(few, from) => return self.fill_from_codes(to, &few, &from, n0, groups),
            Stream::Packed { buf, .. } => buf,
        };
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
        let mut ks = self.form.ks.clone();
        let zero = self.e.b.i64(0);
        // The last group of four terms may not be whole.
        let fours = self.form.fours.clone();
        let split = fours.as_ref().filter(|f| f.last < 4).map(|f| f.k);
        if split.is_some() {
            ks.pop();
        }
        for k in &ks {
            let end = self.e.int(extent(*k));
            let i = self.e.b.begin_for(zero, end, 1);
            self.e.vars.insert(*k, i);
        }
        match (split, fours) {
            (Some(k), Some(f)) => {
                let end = self.e.int(extent(k) - 1);
                let i = self.e.b.begin_for(zero, end, 1);
                self.e.vars.insert(k, i);
                self.lay_out(to, n0, groups, 4);
                self.e.b.end();
                self.e.vars.insert(k, end);
                self.lay_out(to, n0, groups, f.last);
                self.e.vars.remove(&k);
            }
            _ => self.lay_out(to, n0, groups, 4),
        }
        for k in ks.iter().rev() {
            self.e.vars.remove(k);
            self.e.b.end();
        }
    }

    /// Lays out the columns of one term, or of one group of `count` terms.
    fn lay_out(&mut self, to: Buf, n0: Reg, groups: &[Group], count: i64) {
        let ks = &self.form.ks;
        let columns: i64 = groups.iter().map(|g| i64::from(g.lanes)).sum();
        let width = columns * self.form.words();
        let at: Vec<Int> = ks.iter().map(|k| Int::var(*k)).collect();
        let term = flatten(&ks.iter().map(|k| extent(*k)).collect::<Vec<_>>(), &at) * width;
        let into = self.e.int(term);
        let mut before = 0;
        for (g, group) in groups.iter().enumerate() {
            self.places.known.clear();
            match self.form.fours.clone() {
                Some(fours) => {
                    let places = [before, before + columns];
                    self.lay_out_fours(to, into, places, n0, *group, (fours.steps[self.s.vec], count));
                }
                None => {
                    let v = self.direct_columns(n0, *group, g);
                    self.e.b.store(to, into, before, v);
                }
            }
            before += i64::from(group.lanes);
        }
        self.places.known.clear();
    }

    /// Lays out `count` terms, `apart` from each other, of each column of a group.
    fn lay_out_fours(
        &mut self,
        to: Buf,
        into: Reg,
        places: [i64; 2],
        n0: Reg,
        group: Group,
        (apart, count): (Int, i64),
    ) {
        let Stream::Direct(buf) = self.v else { return };
        let (Some(n), flat) = (self.s.n, self.form.ops[self.s.vec].flat) else { return };
        let step = coef(flat, n).unwrap_or(Int::new(0));
        self.at_group(n0, group);
        if step == Int::new(1) {
            let mut parts = vec![];
            for j in 0..count {
                let index = self.e.int(flat + apart * j);
                parts.push(self.e.b.load(buf, index, 0, group.lanes));
            }
            for (word, place) in self.together(&parts).into_iter().zip(places) {
                self.e.b.store(to, into, place, word);
            }
            return;
        }
        let first = self.e.int(flat);
        let step = self.e.int(step);
        for l in 0..i64::from(group.lanes) {
            let l_reg = self.e.b.i64(l);
            let away = self.e.b.mul(step, l_reg);
            let at = self.e.b.add(first, away);
            if self.form.words() == 1 && apart == Int::new(1) {
                let word = self.word(buf, at, 0, count);
                self.e.b.store(to, into, places[0] + l, word);
                continue;
            }
            let mut parts = vec![];
            for j in 0..count {
                let index = self.e.int(flat + apart * j);
                let index = self.e.b.add(index, away);
                parts.push(self.e.b.load(buf, index, 0, 1));
            }
            for (word, place) in self.together(&parts).into_iter().zip(places) {
                self.e.b.store(to, into, place + l, word);
            }
        }
    }

    /// Four bytes that lie together, or `count` of them and zeros.
    pub(super) fn word(&mut self, buf: Buf, index: Reg, disp: i64, count: i64) -> Reg {
        if count == 4 {
            return self.e.b.words(buf, index, disp, 1);
        }
        let parts: Vec<Reg> = (0..count).map(|j| self.e.b.load(buf, index, disp + j, 1)).collect();
        let all: Vec<(i64, Reg)> = (0..).step_by(8).zip(parts).collect();
        self.joined(&all, 0xff)
    }

    /// The words of a group of at most four terms.
    fn together(&mut self, parts: &[Reg]) -> Vec<Reg> {
        if self.form.words() == 1 {
            let all: Vec<(i64, Reg)> = (0..).step_by(8).zip(parts.iter().copied()).collect();
            return vec![self.joined(&all, 0xff)];
        }
        let half = |odd: usize| parts.iter().skip(odd).step_by(2).copied();
        let words = [0, 1].map(|odd| (0..).step_by(16).zip(half(odd)).collect::<Vec<(i64, Reg)>>());
        let ty = self.e.b.ty(parts[0]).with_elem(DType::U32);
        words.iter().map(|w| if w.is_empty() { self.e.b.int(ty, 0) } else { self.joined(w, 0xffff) }).collect()
    }

    /// Bytes, each extended by its sign and as far as `mask` says, at their bits of words.
    fn joined(&mut self, parts: &[(i64, Reg)], mask: i64) -> Reg {
        let mut sum = None;
        for (bit, bytes) in parts {
            let words = self.e.b.cast(DType::U32, *bytes);
            let ty = self.e.b.ty(words);
            let mask = self.e.b.int(ty, mask);
            let words = self.e.b.and(words, mask);
            let by = self.e.b.int(ty, *bit);
            let words = self.e.b.bin(BinOp::Shl, words, by);
            sum = Some(sum.map_or(words, |sum| self.e.b.or(sum, words)));
        }
        sum.unwrap_or_else(|| unreachable!("a group has a term"))
    }
}
