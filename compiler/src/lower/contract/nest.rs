//! The loops around the tiles: work units, blocks, tails.

use super::after::Pass;
use super::form::{coef, extent, varies};
use super::schedule::{Group, NARROW, Schedule, groups, guess, guess_product};
use super::target::Target;
use super::tile::Gen;
use crate::kernel::ir::{Cmp, Reg};
use crate::sym::{Int, VarId};

/// A loop around the tiles, outermost first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    /// One axis.
    Axis(VarId),
    /// Rows, in blocks of this many.
    Rows(i64),
    /// Columns, in blocks of this many; nothing: all together.
    Columns(Option<i64>),
}

/// Multiply-adds that a work unit should have at least.
const UNIT: i64 = 1 << 15;
/// More work units than this are of no use.
const UNITS: i64 = 256;
/// Into how many calls threads divide the rows of a kernel: the tiles of each of them fetch all of the next panel.
const PARTS: i64 = 4;

/// The loops around the tiles.
pub(super) struct Nest {
    /// Outermost first.
    pub levels: Vec<Level>,
    /// How many of them from the outside are spread over work units.
    pub spread: usize,
    /// Instead, the rows of a call are a block inside of all loops, counted in this many: each call goes through all panels.
    pub rows: Option<i64>,
}

impl Gen<'_> {
    /// Rows of a line.
    fn rows_in_line(&self) -> Int {
        Int::product(&self.s.m.iter().map(|v| extent(*v)).collect::<Vec<_>>())
    }

    /// What blocks of rows are counted in: rows, or lines.
    fn all_rows(&self) -> Int {
        match self.s.lines.as_slice() {
            [] => self.rows_in_line(),
            lines => Int::product(&lines.iter().map(|v| extent(*v)).collect::<Vec<_>>()),
        }
    }

    fn all_columns(&self) -> Int {
        self.s.n.map_or(Int::new(1), extent)
    }

    fn nest(&mut self) -> Nest {
        let (s, form) = (&self.s.clone(), self.form);
        let (m, n, k) = (guess(self.all_rows()), guess(self.all_columns()), guess_product(&form.ks));
        let outside = guess_product(&s.batch).saturating_mul(guess_product(&s.outer));
        let (per_line, mr) = match s.lines.is_empty() {
            true => (1, s.mr as i64),
            false => (guess(self.rows_in_line()), 1),
        };
        let work = m.saturating_mul(per_line).saturating_mul(n).saturating_mul(k).saturating_mul(outside);
        let wanted = (work / UNIT).clamp(1, UNITS);
        let width = s.nv as i64 * i64::from(s.lanes);
        let mut levels: Vec<Level> = s.batch.iter().map(|v| Level::Axis(*v)).collect();
        // Rows whose part of the broadcast operand stays in the cache while all columns go by.
        let fit = (rows_that_fit(s, self.form, &self.target) / per_line / mr).max(1) * mr;
        let mut block = fit.min(up(m, mr));
        let columns_units = guess_product(&s.outer).saturating_mul(parts(n, width));
        let so_far = guess_product(&s.batch).saturating_mul(columns_units);
        // What is laid out ahead is laid out anew in each unit, windows that reach over its end are read anew: no more units than
        // many threads need.
        let few = super::stage::pays(form, &self.target, s) || self.lines_share();
        let enough = wanted.min(if few { 16 } else { 64 });
        if so_far < enough {
            // Too few units from the columns alone: more of the rows.
            let pieces = parts(enough, so_far);
            block = block.min(up(parts(m, pieces), mr));
        }
        if self.panels_first() {
            // What several threads read, each of them fetches: the panels if the rows are divided, the rows if the panels are.
            let rows = (guess_product(&s.batch) == 1 && m.saturating_mul(per_line) >= n).then_some(mr);
            if s.lines.is_empty() && m > 1 {
                let tiles = parts(m, mr);
                self.tiles = if rows.is_some() { parts(tiles, PARTS) } else { tiles };
            }
            levels.push(Level::Columns(Some(width)));
            if rows.is_some() {
                return Nest { spread: 0, levels, rows };
            }
            levels.push(Level::Rows(block));
            let units = guess_product(&s.batch).saturating_mul(columns_units);
            return Nest { spread: if units >= wanted { levels.len() - 1 } else { levels.len() }, levels, rows };
        }
        levels.push(Level::Rows(block));
        levels.extend(s.outer.iter().map(|v| Level::Axis(*v)));
        let (mut spread, mut units) = (0, 1);
        for level in &levels {
            if units >= wanted {
                break;
            }
            units *= match level {
                Level::Axis(v) => guess(extent(*v)),
                _ => parts(m, block),
            };
            spread += 1;
        }
        let columns = (units < wanted && spread == levels.len()).then(|| up(parts(n, parts(wanted, units)), width));
        levels.push(Level::Columns(columns));
        Nest { spread: spread + usize::from(columns.is_some()), levels, rows: None }
    }

    /// Are the columns gone through outside of the rows? So that each panel of a packed operand is fetched once only: one that the
    /// second-level cache does not hold, or the first does not where everything else stays in the second.
    fn panels_first(&self) -> bool {
        let (s, form) = (&self.s, self.form);
        let known = s.n.is_some_and(|n| extent(n).as_const().is_some());
        let packed = !matches!(self.v, super::operand::Stream::Direct(_));
        let (n, k) = (guess(self.all_columns()), guess_product(&form.ks));
        let m = guess(self.all_rows()).saturating_mul(if s.lines.is_empty() { 1 } else { guess(self.rows_in_line()) });
        let (fit, half) = (rows_that_fit(s, form, &self.target).saturating_mul(4), i64::from(self.target.cache) / 2);
        let near = m.saturating_mul(k + n).saturating_mul(4) <= half && n * k * 4 > self.target.near;
        let far = (m <= fit && n * k * 4 > half) || (m <= fit / 4 && n * k * 8 > half);
        self.target.wide && s.outer.is_empty() && known && packed && (near || far)
    }

    fn count(&self, level: Level) -> Int {
        match level {
            Level::Axis(v) => extent(v),
            Level::Rows(block) => self.all_rows().ceil_div(block),
            Level::Columns(Some(block)) => self.all_columns().ceil_div(block),
            Level::Columns(None) => Int::new(1),
        }
    }

    /// Emits everything; gives the number of work units.
    pub(super) fn run(&mut self, passes: &[Pass]) -> Int {
        let nest = self.nest();
        let counts: Vec<Int> = nest.levels[..nest.spread].iter().map(|l| self.count(*l)).collect();
        self.make_stage();
        let (lo, hi) = (self.e.b.tile_lo(), self.e.b.tile_hi());
        if let Some(size) = nest.rows {
            let all = self.e.int(self.all_rows());
            let size_reg = self.e.b.i64(size);
            let (first, end) = (self.e.b.mul(lo, size_reg), self.e.b.mul(hi, size_reg));
            let end = self.e.b.min(end, all);
            for pass in passes {
                self.pass = *pass;
                self.level(&nest, 0, &[], Some((first, end)), None);
            }
            return self.all_rows().ceil_div(size);
        }
        let unit = self.e.b.begin_for(lo, hi, 1);
        let mut left = unit;
        let mut at = vec![left; nest.spread];
        let spread_first = counts.iter().position(|c| *c != Int::new(1)).unwrap_or(0);
        for k in (0..nest.spread).rev() {
            if k <= spread_first {
                at[k] = if k == spread_first { left } else { self.e.b.i64(0) };
                continue;
            }
            let n = self.e.int(counts[k]);
            at[k] = self.e.b.rem(left, n);
            left = self.e.b.div(left, n);
        }
        for pass in passes {
            self.pass = *pass;
            self.level(&nest, 0, &at, None, None);
        }
        self.e.b.end();
        Int::product(&counts)
    }

    /// Opens level `k`; `rows` and `columns` are their blocks once they are chosen.
    pub(super) fn level(
        &mut self,
        nest: &Nest,
        k: usize,
        at: &[Reg],
        rows: Option<(Reg, Reg)>,
        columns: Option<(Reg, Reg)>,
    ) {
        let Some(level) = nest.levels.get(k).copied() else {
            let (Some(rows), Some((first, end))) = (rows, columns) else { unreachable!("each nest has both") };
            return self.columns(first, end, rows);
        };
        if let Level::Columns(None) = level {
            let all = self.block(None, None, self.all_columns());
            return self.level(nest, k + 1, at, rows, Some(all));
        }
        let (i, looped) = match at.get(k) {
            Some(i) => (*i, false),
            None => {
                let n = self.count(level);
                let (lo, hi) = (self.e.b.i64(0), self.e.int(n));
                (self.e.b.begin_for(lo, hi, 1), true)
            }
        };
        match level {
            Level::Axis(v) => {
                self.e.vars.insert(v, i);
                self.level(nest, k + 1, at, rows, columns);
                self.e.vars.remove(&v);
            }
            Level::Rows(block) => {
                let rows = self.block(Some(i), Some(block), self.all_rows());
                self.level(nest, k + 1, at, Some(rows), columns);
            }
            Level::Columns(block) => {
                let columns = self.block(Some(i), block, self.all_columns());
                self.level(nest, k + 1, at, rows, Some(columns));
            }
        }
        if looped {
            self.e.b.end();
        }
    }

    /// First element and end of block `i` of `size`.
    fn block(&mut self, i: Option<Reg>, size: Option<i64>, all: Int) -> (Reg, Reg) {
        let end = self.e.int(all);
        let (Some(i), Some(size)) = (i, size) else { return (self.e.b.i64(0), end) };
        if all.as_const().is_some_and(|n| n <= size) {
            return (self.e.b.i64(0), end);
        }
        let size = self.e.b.i64(size);
        let first = self.e.b.mul(i, size);
        let next = self.e.b.add(first, size);
        (first, self.e.b.min(next, end))
    }

    fn columns(&mut self, first: Reg, end: Reg, rows: (Reg, Reg)) {
        let lanes = self.s.lanes;
        let width = self.s.nv as i64 * i64::from(lanes);
        let Some(n) = self.s.n else {
            let one = [Group { at: 0, lanes: 1, first: 0 }];
            self.rows_of(rows, first, &one);
            return;
        };
        let full = groups(width, width, lanes);
        if let Some(all) = extent(n).as_const() {
            let rest = all % width;
            let whole = self.e.b.i64(all - rest);
            let last = self.e.b.min(end, whole);
            let i = self.e.b.begin_for(first, last, width);
            self.rows_of(rows, i, &full);
            self.e.b.end();
            if rest > 0 {
                let all_reg = self.e.b.i64(all);
                let at_end = self.e.b.cmp(Cmp::Eq, end, all_reg);
                self.e.b.begin_if(at_end);
                self.rows_of(rows, whole, &groups(rest, all, lanes));
                self.e.b.end();
            }
            return;
        }
        // A width not known before the run: whole tiles, whole vectors, single columns.
        let mut from = first;
        let mut steps = vec![width, i64::from(lanes)];
        while let Some(last) = steps.last().copied().filter(|n| *n > 1) {
            steps.push(if last > NARROW { last / 4 } else { 1 });
        }
        steps.dedup();
        for step in steps {
            let last = self.whole(from, end, step);
            let i = self.e.b.begin_for(from, last, step);
            self.rows_of(rows, i, &groups(step, step, lanes.min(step as u16)));
            self.e.b.end();
            from = last;
        }
    }

    /// Where the whole steps from `first` on end.
    fn whole(&mut self, first: Reg, end: Reg, step: i64) -> Reg {
        if step == 1 {
            return end;
        }
        let b = &mut self.e.b;
        let count = b.sub(end, first);
        let size = b.i64(step);
        let rest = b.rem(count, size);
        b.sub(end, rest)
    }

    fn rows_of(&mut self, (first, end): (Reg, Reg), n0: Reg, groups: &[Group]) {
        if self.pass != Pass::After {
            self.fill_stage(n0, groups);
        }
        if self.s.lines.is_empty() {
            return self.line((first, end), None, n0, groups);
        }
        let rows = (self.e.b.i64(0), self.e.int(self.rows_in_line()));
        if self.lines_share() {
            return self.line(rows, Some((first, end)), n0, groups);
        }
        self.each_line((first, end), &mut |g: &mut Self| g.line(rows, None, n0, groups));
    }

    /// Do neighbouring lines read the same elements, each column its own? Where windows slide over channels, the elements of a
    /// tile's windows stay in the first-level cache from line to line, those of a whole line need not.
    fn lines_share(&self) -> bool {
        let op = &self.form.ops[1 - self.s.vec];
        let own = self.s.n.is_some_and(|n| varies(op.flat, n));
        let step = |v: VarId| coef(op.flat, v).and_then(|c| c.as_const());
        let Some(apart) = self.s.lines.last().and_then(|line| step(*line)).filter(|_| own) else { return false };
        // Does a reduced index move along the same axis, and further than the next line is?
        let reaches = |k: &VarId| match (step(*k), extent(*k).as_const()) {
            (Some(c), Some(n)) => c > 0 && apart % c == 0 && n * c > apart,
            _ => false,
        };
        self.form.ks.iter().any(reaches)
    }

    /// Runs `f` with the axes around the rows at each of the lines.
    fn each_line(&mut self, (first, end): (Reg, Reg), f: &mut dyn FnMut(&mut Self)) {
        let lines = self.s.lines.clone();
        let mut left = self.e.b.begin_for(first, end, 1);
        for (k, v) in lines.iter().enumerate().rev() {
            let n = self.e.int(extent(*v));
            let at = if k == 0 { left } else { self.e.b.rem(left, n) };
            left = if k == 0 { left } else { self.e.b.div(left, n) };
            self.e.vars.insert(*v, at);
        }
        f(self);
        lines.iter().for_each(|v| {
            self.e.vars.remove(v);
        });
        self.e.b.end();
    }

    /// One tile, of one line or of each of `lines`.
    fn tile_of_lines(&mut self, lines: Option<(Reg, Reg)>, m0: Reg, rows: usize, n0: Reg, groups: &[Group]) {
        match lines {
            None => self.tile(m0, rows, n0, groups),
            Some(lines) => self.each_line(lines, &mut |g: &mut Self| g.tile(m0, rows, n0, groups)),
        }
    }

    /// The tiles of the rows from `first` on, each of all `lines` if they are given.
    fn line(&mut self, (first, end): (Reg, Reg), lines: Option<(Reg, Reg)>, n0: Reg, groups: &[Group]) {
        let mr = self.s.mr as i64;
        if let Some(all) = self.rows_in_line().as_const() {
            let rest = all % mr;
            let whole = self.e.b.i64(all - rest);
            let last = self.e.b.min(end, whole);
            let i = self.e.b.begin_for(first, last, mr);
            self.tile_of_lines(lines, i, self.s.mr, n0, groups);
            self.e.b.end();
            if rest > 0 {
                let all = self.e.b.i64(all);
                let at_end = self.e.b.cmp(Cmp::Eq, end, all);
                self.e.b.begin_if(at_end);
                self.tile_of_lines(lines, whole, rest as usize, n0, groups);
                self.e.b.end();
            }
            return;
        }
        let mut from = first;
        let mut size = mr;
        loop {
            let last = self.whole(from, end, size);
            let i = self.e.b.begin_for(from, last, size);
            self.tile_of_lines(lines, i, size as usize, n0, groups);
            self.e.b.end();
            // Tiles of whole lines leave whole lines.
            let least = self.s.whole_lines().unwrap_or(1);
            if size == least {
                break;
            }
            from = last;
            size = if least > 1 {
                least
            } else if size.count_ones() == 1 {
                size / 2
            } else {
                1 << size.ilog2()
            };
        }
    }
}

/// Number of parts of at most `size` that make up `n`.
fn parts(n: i64, size: i64) -> i64 {
    n.saturating_add(size - 1) / size.max(1)
}

/// `n` rounded up to a multiple of `step`.
fn up(n: i64, step: i64) -> i64 {
    parts(n, step).saturating_mul(step)
}

/// How many rows of the broadcast operand half of the cache holds.
fn rows_that_fit(s: &Schedule, form: &super::form::Form, target: &Target) -> i64 {
    let op = &form.ops[1 - s.vec];
    let mut row = guess_product(&form.ks);
    if op.data.is_none() {
        // Rows of an operand that is read as it lies may overlap (the windows of a convolution).
        let reached = form.vars.iter().filter(|v| super::form::varies(op.flat, **v)).chain(&form.ks);
        let distinct: i64 = reached
            .filter_map(|v| {
                let step = super::form::coef(op.flat, *v)?.as_const()?.abs();
                Some(step.saturating_mul(guess(extent(*v))))
            })
            .max()
            .unwrap_or(i64::MAX);
        row = row.min((distinct / guess_product(&s.m).saturating_mul(guess_product(&s.lines))).max(1));
    }
    (i64::from(target.cache) / 8 / row.max(1)).max(1)
}
