//! Estimated cycles of a schedule, for a core that does two vector multiplications and two loads a cycle. Only the order of
//! the estimates matters.

use super::form::{Form, coef, extent, varies};
use super::schedule::{CHAINS, Group, Schedule, groups, guess, guess_product, quads, ways};
use super::stage;
use super::target::Target;
use crate::sym::Int;

/// What the estimate needs to know of a contraction and an axis for the lanes, whatever the tile.
pub(super) struct Facts {
    /// Rows, columns, terms; tiles' worth of everything else.
    rows: i64,
    columns: i64,
    terms: i64,
    outside: f64,
    /// Rows of all lines.
    all_rows: i64,
    /// Rows run over several axes.
    rows_apart: bool,
    /// Loads of one vector of the vector operand, or what costs as much.
    v_loads: f64,
    /// The broadcast operand has its own elements for each column.
    own: bool,
    /// The broadcast operand is constant.
    b_packed: bool,
    /// See [`quads`].
    pub quads: bool,
    /// Bytes are converted.
    narrow: bool,
    /// Bytes are multiplied four at a time.
    fours: bool,
    /// See [`Fours::pairs`](super::form::Fours::pairs).
    pairs: bool,
    /// Columns are contiguous in the output.
    contiguous: bool,
    /// See [`stage::pays`].
    staged_from: Option<i64>,
}

impl Facts {
    pub(super) fn of(form: &Form, target: &Target, s: &Schedule) -> Facts {
        let (v, b) = (&form.ops[s.vec], &form.ops[1 - s.vec]);
        let narrow = form.exact.is_some();
        let step = s.n.and_then(|n| coef(v.flat, n)).and_then(|c| c.as_const());
        let v_loads = match step {
            // Words are made of bytes one by one, or vectors of them of four.
            _ if form.fours.is_some() && v.data.is_none() => {
                if step == Some(1) {
                    12.0
                } else {
                    2.0 * f64::from(s.lanes)
                }
            }
            _ if v.data.is_some() => 1.0,
            Some(1) => 1.0,
            Some(2) if s.lanes > 1 => 3.5,
            _ if s.lanes > 1 => 2.0 * f64::from(s.lanes),
            _ => 1.0,
        };
        Facts {
            rows: guess_product(&s.m),
            columns: s.n.map_or(1, |n| guess(extent(n))),
            terms: guess_product(&form.ks),
            outside: [&s.batch, &s.outer, &s.lines].iter().map(|v| guess_product(v) as f64).product(),
            all_rows: guess_product(&s.m).saturating_mul(guess_product(&s.lines)),
            rows_apart: s.m.len() > 1,
            // A byte takes about three instructions more.
            v_loads: v_loads + if narrow { 4.0 } else { 0.0 } + form.few.as_ref().map_or(0.0, |few| few.work()),
            own: s.n.is_some_and(|n| varies(b.flat, n)),
            b_packed: b.data.is_some(),
            quads: quads(form, target, s),
            narrow,
            fours: form.fours.is_some(),
            pairs: form.words() == 2,
            contiguous: s.n.is_none_or(|n| coef(form.out, n) == Some(Int::new(1))),
            staged_from: stage::tiles_of_rows(form, target, s),
        }
    }

    pub(super) fn cost(&self, target: &Target, s: &Schedule) -> f64 {
        let (mr, width) = (s.mr as i64, s.nv as i64 * i64::from(s.lanes));
        let tile = |rows: i64, columns: i64| match (rows, columns) {
            (0, _) | (_, 0) => 0.0,
            _ if s.dot => self.dot_tile(target, rows as usize, columns as usize),
            _ => self.tile(target, s, rows as usize, &groups(columns, self.columns, s.lanes)),
        };
        let row = |columns: i64| (self.rows / mr) as f64 * tile(mr, columns) + tile(self.rows % mr, columns);
        self.outside * ((self.columns / width) as f64 * row(width) + row(self.columns % width))
    }

    fn dot_tile(&self, target: &Target, rows: usize, columns: usize) -> f64 {
        let (accumulators, lanes) = ((rows * columns) as f64, target.lanes as usize);
        let per_step = (accumulators / 2.0).max((rows + columns) as f64 / 2.0).max(4.0 / CHAINS as f64) + 0.5;
        let vectors = if self.contiguous { columns / lanes } else { 0 };
        let finish = vectors * (6 * lanes + 4) + (columns - vectors * lanes) * 10;
        self.terms as f64 / lanes as f64 * per_step + (rows * finish) as f64 + 12.0
    }

    fn tile(&self, target: &Target, s: &Schedule, rows: usize, groups: &[Group]) -> f64 {
        let v_loads = match self.staged_from {
            Some(tiles) if self.all_rows >= tiles * s.mr as i64 => {
                1.0 + (self.v_loads + 2.0) * s.mr as f64 / self.all_rows as f64
            }
            _ => self.v_loads,
        };
        let b_loads = match self.b_packed || self.quads {
            true if target.by_element => rows.div_ceil(4),
            _ if self.own => rows * groups.len(),
            _ => rows,
        };
        let b_loads = b_loads * if self.narrow { 4 } else { 1 };
        let accumulators = rows * groups.len();
        let (mut multiplies, mut v_loads) = (accumulators as f64 / 2.0, v_loads);
        if self.pairs {
            // Two products and two additions, and three operations that take the other factor apart, three a cycle.
            multiplies = (4 * accumulators + 3 * rows) as f64 / 3.0;
            // Two words of each column, from the second-level cache if the first does not hold the panel.
            let panel = self.terms * 8 * groups.iter().map(|g| i64::from(g.lanes)).sum::<i64>();
            v_loads *= if panel > target.near { 4.0 } else { 2.0 };
        }
        let loads = (b_loads as f64 + v_loads * groups.len() as f64) / 2.0;
        let latency = 4.0 / ways(accumulators, self.terms) as f64;
        let mut per_term = multiplies.max(loads).max(latency);
        if target.overwrites {
            // One copy to all lanes a cycle, and six instructions of any kind.
            let copies = (rows - 1) * (groups.len() - 1);
            let all = (accumulators + copies + 2 * rows) as f64 + v_loads * groups.len() as f64;
            per_term = per_term.max(rows as f64).max(all / 6.0);
        }
        if self.rows_apart && target.wide && s.whole_lines().is_none() {
            // Each row has an address of its own: more of them than there are registers.
            per_term += 0.25 * rows as f64;
        }
        per_term += 0.25;
        if self.fours {
            // Products wait for what the first-level cache does not hold; and of equal tiles the one that reads less.
            let width: i64 = groups.iter().map(|g| i64::from(g.lanes)).sum();
            let far = self.terms * 4 * width > target.near * 2 / 3;
            per_term += groups.len() as f64 * if far { 0.4 } else { 0.02 } + 0.01 * rows as f64;
        }
        let store = if self.contiguous { 2.0 } else { 2.0 + 2.0 * f64::from(s.lanes) };
        let rows_apart = if self.rows_apart && s.whole_lines().is_none() { 6.0 * rows as f64 } else { 0.0 };
        self.terms as f64 * per_term + accumulators as f64 * store + rows_apart + 12.0
    }
}
