//! Elements of the operands as vectors.

use super::few_bits::{Columns, FewBits, Streams};
use super::form::{coef, extent, varies};
use super::schedule::{Group, quads};
use super::tile::{Gen, Tile};
use crate::kernel::ir::{Buf, Reg};
use crate::sym::{Int, VarId};
use crate::te::cx::flatten;
use std::collections::HashMap;

/// How an operand is read.
#[derive(Clone)]
pub(super) enum Stream {
    /// As it lies in its tensor.
    Direct(Buf),
    /// From data that lies as the tiles read it.
    Packed {
        /// The data.
        buf: Buf,
        /// First element of the current batch.
        batch: Int,
    },
    /// Packed as integers and scales.
    Coded(FewBits, Streams),
}

/// What is known of positions while a tile is generated.
#[derive(Default)]
pub(super) struct Places {
    /// The current term, relative to the values that the reduced indices have as variables.
    pub(super) offsets: Vec<(VarId, i64)>,
    /// Coefficients of reduced indices.
    steps: HashMap<(Int, VarId), Option<i64>>,
    /// Coefficients of the column axis.
    lanes: HashMap<Int, Option<i64>>,
    /// Indices of the first term of the pass, by row and column.
    pub(super) known: HashMap<(Int, (usize, usize)), Reg>,
}

impl Gen<'_> {
    /// An element of an operand in the type of accumulators.
    pub(super) fn widened(&mut self, x: Reg) -> Reg {
        if self.form.fours.is_some() {
            return x;
        }
        let elem = self.elem();
        self.e.b.cast(elem, x)
    }

    /// The broadcast operand of consecutive terms, where one vector load a row fetches it and multiplications take single
    /// elements.
    pub(super) fn quads(&mut self, tile: &Tile<'_>, k: VarId, lane: u16) -> Vec<Reg> {
        let op = &self.form.ops[1 - self.s.vec];
        let Stream::Direct(buf) = self.b else { return vec![] };
        if self.form.ks.last() != Some(&k) || !quads(self.form, &self.target, &self.s) {
            return vec![];
        }
        let (flat, lanes) = (op.flat, self.s.lanes);
        let mut out = vec![];
        for r in 0..tile.rows.len() {
            let (r, away) = self.at_place(tile, r, 1, flat);
            let (index, disp) = self.place(flat, (r, 0));
            let four = self.e.b.load(buf, index, disp + away, lanes);
            let four = self.widened(four);
            out.push(self.e.b.shuffle(four, four, vec![lane; lanes as usize]));
        }
        out
    }

    /// Is the broadcast operand the same for all columns?
    pub(super) fn b_is_steady(&self) -> bool {
        self.s.n.is_none_or(|n| !varies(self.form.ops[1 - self.s.vec].flat, n))
    }

    /// Position of the current term.
    pub(super) fn term_index(&self) -> Int {
        let ks: Vec<Int> = self.form.ks.iter().map(|k| Int::var(*k)).collect();
        flatten(&self.form.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>(), &ks)
    }

    /// Where the element at `flat` lies for the current term: an index and a constant to be added. Row and column are set;
    /// `tile` names them.
    fn place(&mut self, flat: Int, tile: (usize, usize)) -> (Reg, i64) {
        let mut disp = 0;
        for (k, x) in self.places.offsets.clone() {
            match self.step(flat, k) {
                Some(step) => disp += step * x,
                None => return (self.at_term(|g| g.e.int(flat)), 0),
            }
        }
        let key = (flat, tile);
        if let Some(index) = self.places.known.get(&key) {
            return (*index, disp);
        }
        let index = self.e.int(flat);
        self.places.known.insert(key, index);
        (index, disp)
    }

    /// Runs `f` with the reduced indices at the current term, not at the first one of the pass.
    fn at_term<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let mut first = vec![];
        for (k, x) in self.places.offsets.clone() {
            let Some(base) = self.e.vars.get(&k).copied() else { continue };
            let x = self.e.b.i64(x);
            let at = self.e.b.add(base, x);
            first.push((k, base));
            self.e.vars.insert(k, at);
        }
        let out = f(self);
        self.e.vars.extend(first);
        out
    }

    /// What the vector operand's elements of the current term are held as: one vector, or two of words.
    pub(super) fn v_values(&mut self, tile: &Tile<'_>, g: usize) -> Vec<Reg> {
        let group = tile.groups[g];
        let packed = match (&self.v, self.stage) {
            (_, Some(stage)) => Some(stage.buf),
            (Stream::Packed { buf, .. }, None) => Some(*buf),
            (Stream::Direct(_) | Stream::Coded(..), None) => None,
        };
        if let (Stream::Coded(few, from), None, Some(bases)) = (self.v.clone(), self.stage, tile.few)
            && let [k] = self.form.ks[..]
            && let Some(first) = self.e.vars.get(&k).copied()
        {
            let u = self.places.offsets.iter().find(|(x, _)| *x == k).map_or(0, |(_, u)| *u);
            return vec![self.few_value(&few, &from, bases, Columns::of(tile.groups, g), (first, u))];
        }
        if let (Some(buf), Some(base)) = (packed, tile.v_base) {
            let width: i64 = tile.groups.iter().map(|g| i64::from(g.lanes)).sum();
            let before: i64 = tile.groups[..g].iter().map(|g| i64::from(g.lanes)).sum();
            let words = self.form.words();
            let (term, disp) = self.place(self.term_index() * (width * words), (0, 0));
            let index = self.e.b.add(base, term);
            let mut out = vec![];
            for w in 0..words {
                let v = self.e.b.load(buf, index, disp + before + w * width, group.lanes);
                out.push(self.widened(v));
            }
            return out;
        }
        vec![self.direct_columns(tile.n0, group, g)]
    }

    /// Columns of the vector operand, number `g` of the tile, as they lie in their tensor.
    pub(super) fn direct_columns(&mut self, n0: Reg, group: Group, g: usize) -> Reg {
        let Stream::Direct(buf) = self.v else { unreachable!("packed operands have a base") };
        let flat = self.form.ops[self.s.vec].flat;
        let (g, ahead) = self.at_column(n0, group, g, flat);
        let v = self.load(buf, flat, group.lanes, (0, g), ahead);
        self.widened(v)
    }

    pub(super) fn b_value(&mut self, tile: &Tile<'_>, r: usize, g: usize, quads: &[Reg]) -> Reg {
        let lanes = tile.groups[g].lanes;
        if let (Stream::Packed { buf, .. }, Some(base)) = (self.b.clone(), tile.b_base) {
            let width = tile.rows.len() as i64;
            let full = self.s.lanes as usize;
            let fours = self.target.by_element && lanes == self.s.lanes && r - r % full + full <= tile.rows.len();
            let first = if fours { r - r % full } else { r };
            let (term, disp) = self.place(self.term_index() * width, (0, 0));
            let (index, disp) = (self.e.b.add(base, term), disp + first as i64);
            if fours {
                let v = self.e.b.load(buf, index, disp, lanes);
                let v = self.widened(v);
                return self.e.b.shuffle(v, v, vec![(r % full) as u16; full]);
            }
            let x = self.e.b.load(buf, index, disp, 1);
            let x = self.widened(x);
            return self.e.b.splat(x, lanes);
        }
        if let Some(q) = quads.get(r)
            && self.e.b.ty(*q).lanes == lanes
        {
            return *q;
        }
        let Stream::Direct(buf) = self.b else { unreachable!("packed operands have a base") };
        let flat = self.form.ops[1 - self.s.vec].flat;
        let (r, down) = self.at_place(tile, r, lanes, flat);
        let (g, ahead) = self.at_column(tile.n0, tile.groups[g], g, flat);
        let b = self.load(buf, flat, lanes, (r, g), down + ahead);
        self.widened(b)
    }

    /// Puts the row axes where the element at `flat` of row `r` is, or of the first row from which it lies a constant away.
    /// Gives the row that they are put at, and how far the element is from there.
    fn at_place(&mut self, tile: &Tile<'_>, r: usize, lanes: u16, flat: Int) -> (usize, i64) {
        let steady = self.runs(flat, lanes).is_some();
        let away = match (&self.s.m[..], self.s.whole_lines()) {
            (&[only], _) if steady => self.step(flat, only).map(|step| step * r as i64),
            (&[line, only], Some(n)) if steady => {
                let (down, along) = (self.step(flat, line), self.step(flat, only));
                down.zip(along).map(|(down, along)| down * (r as i64 / n) + along * (r as i64 % n))
            }
            _ => None,
        };
        let (row, away) = away.map_or((r, 0), |away| (0, away));
        self.at_row(&tile.rows[row]);
        (row, away)
    }

    /// The same for the columns of group `g`.
    fn at_column(&mut self, n0: Reg, group: Group, g: usize, flat: Int) -> (usize, i64) {
        match self.runs(flat, group.lanes) {
            Some(step) => {
                self.at_group(n0, Group { at: 0, ..group });
                (0, step * group.at)
            }
            None => {
                self.at_group(n0, group);
                (g, 0)
            }
        }
    }

    /// Terms of the current group of four.
    fn terms_of_four(&self) -> i64 {
        let Some(fours) = &self.form.fours else { return 1 };
        let offset = self.places.offsets.iter().find(|(x, _)| *x == fours.k).map_or(0, |(_, x)| *x);
        let at = self.e.vars.get(&fours.k).and_then(|r| self.e.b.const_i64(*r)).map(|base| Int::new(base + offset));
        if at == Some(extent(fours.k) - 1) { fours.last } else { 4 }
    }

    /// How far apart the columns of a group lie, where vectors are loaded; elements that lie further apart are fetched one by
    /// one from where the group is.
    fn runs(&mut self, flat: Int, lanes: u16) -> Option<i64> {
        let step = self.s.n.map_or(Some(0), |n| self.step(flat, n));
        step.filter(|step| lanes == 1 || matches!(step, 0..=2))
    }

    /// How far apart elements are whose index `v` differs by one.
    fn step(&mut self, flat: Int, v: VarId) -> Option<i64> {
        *self.places.steps.entry((flat, v)).or_insert_with(|| coef(flat, v).and_then(|c| c.as_const()))
    }

    /// Loads at a position, `away` from that of the row and column that are set and that `tile` names, which moves with the
    /// lanes by its coefficient.
    fn load(&mut self, buf: Buf, flat: Int, lanes: u16, tile: (usize, usize), away: i64) -> Reg {
        let n = self.s.n;
        let step = *self.places.lanes.entry(flat).or_insert_with(|| match n {
            Some(n) => coef(flat, n).and_then(|c| c.as_const()),
            None => Some(0),
        });
        if lanes > 1 && !matches!(step, Some(0..=2)) {
            return self.at_term(|g| {
                g.e.lane = n.map(|n| (n, lanes));
                let v = g.e.load_flat(buf, flat);
                g.e.lane = None;
                v
            });
        }
        let (index, disp) = self.place(flat, tile);
        let disp = disp + away;
        if self.form.fours.is_some() {
            let count = self.terms_of_four();
            let x = self.word(buf, index, disp, count);
            return self.e.b.splat(x, lanes);
        }
        let near = if step == Some(2) { self.neighbours(flat) } else { [None, None] };
        let b = &mut self.e.b;
        match step {
            _ if lanes == 1 => b.load(buf, index, disp, 1),
            Some(1) => b.load(buf, index, disp, lanes),
            Some(2) => {
                let l = i64::from(lanes);
                // Every second element of two vectors. Neighbouring terms read the elements between, and share loads;
                // where there are none, the second vector ends with the last element needed.
                let (from, second, odd) = match near {
                    [_, Some(true)] => (-1, l - 1, 1),
                    [Some(true), _] => (0, l, 0),
                    _ => (0, l - 1, 0),
                };
                let low = b.load(buf, index, disp + from, lanes);
                let high = b.load(buf, index, disp + second, lanes);
                let overlap = (l - (second - from)) as u16;
                let each = (0..lanes).map(|i| 2 * i + odd);
                b.shuffle(low, high, each.map(|i| if i < lanes { i } else { i + overlap }).collect())
            }
            _ => {
                let x = b.load(buf, index, disp, 1);
                let x = self.widened(x);
                self.e.b.splat(x, lanes)
            }
        }
    }

    /// Whether the elements after and before the current one certainly exist: those of neighbouring terms. The one before
    /// is named only where the one after is not better: so that pairs of terms read the same vectors.
    fn neighbours(&self, flat: Int) -> [Option<bool>; 2] {
        let next = self.form.ks.iter().find(|k| coef(flat, **k) == Some(Int::new(1)));
        let Some(k) = next else { return [None, None] };
        let offset = self.places.offsets.iter().find(|(x, _)| x == k).map_or(0, |(_, x)| *x);
        let at = self.e.vars.get(k).and_then(|r| self.e.b.const_i64(*r)).map(|base| base + offset);
        let (Some(at), Some(n)) = (at, extent(*k).as_const()) else { return [None, None] };
        let before = at >= 1 && (at % 2 == 1 || at + 1 == n);
        [Some(at + 1 < n), Some(before)]
    }
}
