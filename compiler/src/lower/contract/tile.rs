//! One register tile: the sum over all terms, the epilogue on the sums, the store.

use super::form::{Form, coef, extent, varies};
use super::schedule::{Group, Schedule, quads, ways};
use super::target::Target;
use crate::dtype::DType;
use crate::kernel::ir::{Buf, Reg, Type, Var};
use crate::lower::emit::Emit;
use crate::sym::{Int, VarId};
use crate::te::TensorId;
use crate::te::cx::flatten;

/// How an operand is read.
#[derive(Clone, Debug)]
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
}

/// The generator of one kernel.
pub(super) struct Gen<'a> {
    /// The kernel so far.
    pub e: Emit<'a>,
    /// What is computed.
    pub form: &'a Form,
    /// How.
    pub s: Schedule,
    /// For what.
    pub target: Target,
    /// The vector operand.
    pub v: Stream,
    /// The broadcast operand.
    pub b: Stream,
    /// Stands for the sum in the epilogue.
    pub sum: TensorId,
    /// Where the result goes.
    pub out: Buf,
}

/// A tile under construction.
struct Tile<'t> {
    rows: Vec<Vec<(VarId, Reg)>>,
    n0: Reg,
    groups: &'t [Group],
    /// First packed element of the tile.
    v_base: Option<Reg>,
    b_base: Option<Reg>,
    /// `[way][row][group]`.
    accs: Vec<Vec<Vec<Var>>>,
}

/// The terms that one pass of the innermost loop adds.
struct Terms {
    /// Loops around, over all of their range.
    loops: Vec<VarId>,
    /// The innermost loop and how many of its iterations one pass takes.
    part: Option<(VarId, i64)>,
    /// Indices that are written out.
    full: Vec<VarId>,
}

impl<'a> Gen<'a> {
    pub(super) fn elem(&self) -> DType {
        self.e.program.tensor(self.sum).dtype.compute()
    }

    /// All of one tile: `rows` rows from `m0` on, the columns of `groups` relative to `n0`.
    pub(super) fn tile(&mut self, m0: Reg, rows: usize, n0: Reg, groups: &[Group]) {
        let rows = self.rows(m0, rows);
        if self.s.dot {
            return self.dot_tile(rows, n0, groups);
        }
        let terms = Int::product(&self.form.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>());
        let (v, b) = (self.v.clone(), self.b.clone());
        let v_base = self.packed_base(&v, n0, terms);
        let b_base = self.packed_base(&b, m0, terms);
        let count = ways(rows.len() * groups.len(), terms.as_const().unwrap_or(1));
        let mut accs = vec![];
        for _ in 0..count {
            let mut way = vec![];
            for _ in &rows {
                way.push(groups.iter().map(|g| self.zero(g.lanes)).collect::<Vec<_>>());
            }
            accs.push(way);
        }
        let tile = Tile { rows, n0, groups, v_base, b_base, accs };
        let plan = self.plan(tile.rows.len() * groups.len());
        self.terms(&tile, &plan, 0);
        self.finish_tile(&tile);
    }

    fn zero(&mut self, lanes: u16) -> Var {
        let zero = self.e.b.float(Type::vector(self.elem(), lanes), 0.0);
        self.e.b.var_init(zero)
    }

    fn packed_base(&mut self, stream: &Stream, first: Reg, terms: Int) -> Option<Reg> {
        let Stream::Packed { batch, .. } = stream else { return None };
        let (batch, terms) = (self.e.int(*batch), self.e.int(terms));
        let tile = self.e.b.mul(first, terms);
        Some(self.e.b.add(batch, tile))
    }

    /// The values of the row axes for each row.
    fn rows(&mut self, m0: Reg, count: usize) -> Vec<Vec<(VarId, Reg)>> {
        let m = self.s.m.clone();
        let b = &mut self.e.b;
        if let [only] = m.as_slice() {
            return (0..count)
                .map(|r| {
                    let r = b.i64(r as i64);
                    vec![(*only, b.add(m0, r))]
                })
                .collect();
        }
        if m.is_empty() {
            return vec![vec![]; count];
        }
        // The first row by division, the others by counting on.
        let mut at = vec![];
        let mut left = m0;
        for (k, v) in m.iter().enumerate().rev() {
            if k == 0 {
                at.push(left);
                break;
            }
            let n = self.e.int(extent(*v));
            at.push(self.e.b.rem(left, n));
            left = self.e.b.div(left, n);
        }
        at.reverse();
        let mut out = vec![];
        for r in 0..count {
            out.push(m.iter().copied().zip(at.iter().copied()).collect::<Vec<_>>());
            if r + 1 < count {
                self.count_on(&m, &mut at);
            }
        }
        out
    }

    fn count_on(&mut self, m: &[VarId], at: &mut [Reg]) {
        let (zero, one) = (self.e.b.i64(0), self.e.b.i64(1));
        let mut carry: Option<Reg> = None;
        for k in (0..m.len()).rev() {
            let n = self.e.int(extent(m[k]));
            let b = &mut self.e.b;
            let next = b.add(at[k], one);
            if k == 0 {
                // The outermost index has no end of its own: rows past the last are not asked for.
                at[k] = match carry {
                    Some(c) => b.select(c, next, at[k]),
                    None => next,
                };
                break;
            }
            let over = b.cmp(crate::kernel::ir::Cmp::Eq, next, n);
            let wrapped = b.select(over, zero, next);
            let (value, out) = match carry {
                Some(c) => (b.select(c, wrapped, at[k]), b.and(c, over)),
                None => (wrapped, over),
            };
            at[k] = value;
            carry = Some(out);
        }
    }

    /// Which terms are written out and which looped over.
    fn plan(&self, accumulators: usize) -> Terms {
        let most = (112 / accumulators.max(1)).clamp(4, 16) as i64;
        let mut loops = self.form.ks.clone();
        let (mut full, mut size) = (vec![], 1);
        while let Some(n) = loops.last().and_then(|k| extent(*k).as_const())
            && n * size <= most
        {
            size *= n;
            full.extend(loops.pop());
        }
        full.reverse();
        // A power of two where a loop has to be split, so that vectors along it stay aligned.
        let times = if size == 1 { 1 << (most.ilog2().min(3)) } else { (most / size).clamp(1, 4) };
        Terms { part: loops.pop().map(|k| (k, times)), loops, full }
    }

    fn terms(&mut self, tile: &Tile<'_>, plan: &Terms, level: usize) {
        if let Some(k) = plan.loops.get(level) {
            let (lo, hi) = (self.e.b.i64(0), self.e.int(extent(*k)));
            let i = self.e.b.begin_for(lo, hi, 1);
            self.e.vars.insert(*k, i);
            self.terms(tile, plan, level + 1);
            self.e.vars.remove(k);
            self.e.b.end();
            return;
        }
        let zero = self.e.b.i64(0);
        let Some((k, times)) = plan.part else {
            self.pass(tile, plan, zero, 1);
            return;
        };
        match extent(k).as_const() {
            Some(n) => {
                let main = n - n % times;
                let hi = self.e.b.i64(main);
                let i = self.e.b.begin_for(zero, hi, times);
                self.pass(tile, plan, i, times);
                self.e.b.end();
                if n > main {
                    self.pass(tile, plan, hi, n - main);
                }
            }
            None => {
                let n = extent(k);
                let (main, all) = (self.e.int(n.div(times) * times), self.e.int(n));
                let i = self.e.b.begin_for(zero, main, times);
                self.pass(tile, plan, i, times);
                self.e.b.end();
                if times > 1 {
                    let i = self.e.b.begin_for(main, all, 1);
                    self.pass(tile, plan, i, 1);
                    self.e.b.end();
                }
            }
        }
    }

    /// Adds `times` iterations of the innermost loop from `i` on.
    fn pass(&mut self, tile: &Tile<'_>, plan: &Terms, i: Reg, times: i64) {
        let mut accs: Vec<Vec<Vec<Reg>>> = vec![];
        for way in &tile.accs {
            accs.push(way.iter().map(|row| row.iter().map(|v| self.e.b.get(*v)).collect()).collect());
        }
        let mut points: Vec<Vec<i64>> = vec![vec![]];
        for k in &plan.full {
            let n = extent(*k).as_const().unwrap_or(1);
            points = points.iter().flat_map(|p| (0..n).map(move |x| [p.as_slice(), &[x]].concat())).collect();
        }
        let mut step = 0;
        for u in 0..times {
            let mut quads = vec![];
            if let Some((k, _)) = plan.part {
                let lane = u % i64::from(self.s.lanes);
                let first = self.e.b.i64(u - lane);
                let first = self.e.b.add(i, first);
                self.e.vars.insert(k, first);
                if times - (u - lane) >= i64::from(self.s.lanes) && plan.full.is_empty() {
                    quads = self.quads(tile, k, lane as u16);
                }
                let u = self.e.b.i64(u);
                let at = self.e.b.add(i, u);
                self.e.vars.insert(k, at);
            }
            for p in &points {
                for (k, x) in plan.full.iter().zip(p) {
                    let x = self.e.b.i64(*x);
                    self.e.vars.insert(*k, x);
                }
                let way = step % accs.len();
                self.term(tile, &mut accs[way], &quads);
                step += 1;
            }
        }
        for (way, regs) in tile.accs.iter().zip(&accs) {
            for (vars, regs) in way.iter().zip(regs) {
                vars.iter().zip(regs).for_each(|(v, r)| self.e.b.set(*v, *r));
            }
        }
        plan.full.iter().chain(plan.part.iter().map(|(k, _)| k)).for_each(|k| {
            self.e.vars.remove(k);
        });
    }

    /// The broadcast operand of consecutive terms, where one vector load a row fetches it and multiplications take single
    /// elements.
    fn quads(&mut self, tile: &Tile<'_>, k: VarId, lane: u16) -> Vec<Reg> {
        let op = &self.form.ops[1 - self.s.vec];
        let Stream::Direct(buf) = self.b else { return vec![] };
        if self.form.ks.last() != Some(&k) || !quads(self.form, &self.target, &self.s) {
            return vec![];
        }
        let (flat, lanes) = (op.flat, self.s.lanes);
        let mut out = vec![];
        for row in &tile.rows {
            self.at_row(row);
            let index = self.e.int(flat);
            let four = self.e.b.load(buf, index, 0, lanes);
            out.push(self.e.b.shuffle(four, four, vec![lane; lanes as usize]));
        }
        out
    }

    pub(super) fn at_row(&mut self, row: &[(VarId, Reg)]) {
        for (m, r) in row {
            self.e.vars.insert(*m, *r);
        }
    }

    /// Puts the column axis at the first column of a group.
    pub(super) fn at_group(&mut self, n0: Reg, group: Group) {
        if let Some(n) = self.s.n {
            let at = self.e.b.i64(group.at);
            let at = self.e.b.add(n0, at);
            self.e.vars.insert(n, at);
        }
    }

    /// Adds the products of one term to all accumulators.
    #[allow(clippy::needless_range_loop, reason = "rows and groups number registers, streams and accumulators alike")]
    fn term(&mut self, tile: &Tile<'_>, accs: &mut [Vec<Reg>], quads: &[Reg]) {
        let (rows, groups) = (tile.rows.len(), tile.groups.len());
        // What there is less of is held in registers, the other streams by.
        if groups <= rows {
            let vs: Vec<Reg> = (0..groups).map(|g| self.v_value(tile, g)).collect();
            for r in 0..rows {
                for g in 0..groups {
                    let b = self.b_value(tile, r, g, quads);
                    // The factor named first may be overwritten: one that is not used again.
                    let (x, y) = if g + 1 == groups && r + 1 < rows { (b, vs[g]) } else { (vs[g], b) };
                    accs[r][g] = self.e.b.fma(x, y, accs[r][g]);
                }
            }
        } else {
            let mut held: Vec<Vec<(u16, Reg)>> = vec![vec![]; rows];
            for g in 0..groups {
                let v = self.v_value(tile, g);
                for r in 0..rows {
                    let lanes = tile.groups[g].lanes;
                    let known = held[r].iter().find(|(l, _)| *l == lanes).map(|(_, b)| *b);
                    let steady = self.b_is_steady();
                    let b = match known {
                        Some(b) if steady => b,
                        _ => self.b_value(tile, r, g, quads),
                    };
                    held[r].push((lanes, b));
                    let (x, y) = if g + 1 == groups && r + 1 < rows { (b, v) } else { (v, b) };
                    accs[r][g] = self.e.b.fma(x, y, accs[r][g]);
                }
            }
        }
    }

    /// Is the broadcast operand the same for all columns?
    fn b_is_steady(&self) -> bool {
        self.s.n.is_none_or(|n| !varies(self.form.ops[1 - self.s.vec].flat, n))
    }

    /// Position of the current term.
    fn term_index(&mut self) -> Int {
        let ks: Vec<Int> = self.form.ks.iter().map(|k| Int::var(*k)).collect();
        flatten(&self.form.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>(), &ks)
    }

    fn v_value(&mut self, tile: &Tile<'_>, g: usize) -> Reg {
        let group = tile.groups[g];
        if let (Stream::Packed { buf, .. }, Some(base)) = (self.v.clone(), tile.v_base) {
            let width: i64 = tile.groups.iter().map(|g| i64::from(g.lanes)).sum();
            let before: i64 = tile.groups[..g].iter().map(|g| i64::from(g.lanes)).sum();
            let term = self.term_index() * width + before;
            let term = self.e.int(term);
            let index = self.e.b.add(base, term);
            return self.e.b.load(buf, index, 0, group.lanes);
        }
        let Stream::Direct(buf) = self.v else { unreachable!("packed operands have a base") };
        self.at_group(tile.n0, tile.groups[g]);
        self.load(buf, self.form.ops[self.s.vec].flat, group.lanes)
    }

    fn b_value(&mut self, tile: &Tile<'_>, r: usize, g: usize, quads: &[Reg]) -> Reg {
        let lanes = tile.groups[g].lanes;
        if let (Stream::Packed { buf, .. }, Some(base)) = (self.b.clone(), tile.b_base) {
            let width = tile.rows.len() as i64;
            let full = self.s.lanes as usize;
            let fours = self.target.by_element && lanes == self.s.lanes && r - r % full + full <= tile.rows.len();
            let first = if fours { r - r % full } else { r };
            let term = self.term_index() * width + first as i64;
            let term = self.e.int(term);
            let index = self.e.b.add(base, term);
            if fours {
                let v = self.e.b.load(buf, index, 0, lanes);
                return self.e.b.shuffle(v, v, vec![(r % full) as u16; full]);
            }
            let x = self.e.b.load(buf, index, 0, 1);
            return self.e.b.splat(x, lanes);
        }
        if let Some(q) = quads.get(r)
            && self.e.b.ty(*q).lanes == lanes
        {
            return *q;
        }
        let Stream::Direct(buf) = self.b else { unreachable!("packed operands have a base") };
        self.at_row(&tile.rows[r]);
        self.at_group(tile.n0, tile.groups[g]);
        self.load(buf, self.form.ops[1 - self.s.vec].flat, lanes)
    }

    /// Loads at a position that moves with the lanes by its coefficient.
    fn load(&mut self, buf: Buf, flat: Int, lanes: u16) -> Reg {
        let step = self.s.n.and_then(|n| coef(flat, n)).unwrap_or(Int::new(0));
        let index = self.e.int(flat);
        let b = &mut self.e.b;
        match step.as_const() {
            _ if lanes == 1 => b.load(buf, index, 0, 1),
            Some(0) => {
                let x = b.load(buf, index, 0, 1);
                b.splat(x, lanes)
            }
            Some(1) => b.load(buf, index, 0, lanes),
            Some(2) => {
                let (l, near) = (i64::from(lanes), self.neighbours(flat));
                let b = &mut self.e.b;
                // Every second element of two vectors. Neighbouring terms read the elements between, and share loads;
                // where there are none, the second vector ends with the last element needed.
                let (from, second, odd) = match near {
                    [_, Some(true)] => (-1, l - 1, 1),
                    [Some(true), _] => (0, l, 0),
                    _ => (0, l - 1, 0),
                };
                let (low, high) = (b.load(buf, index, from, lanes), b.load(buf, index, second, lanes));
                let overlap = (l - (second - from)) as u16;
                let picks = (0..lanes)
                    .map(|i| 2 * i + odd)
                    .map(|i| if i < lanes { i } else { i + overlap })
                    .collect();
                b.shuffle(low, high, picks)
            }
            _ => {
                self.e.lane = self.s.n.map(|n| (n, lanes));
                let v = self.e.load_flat(buf, flat);
                self.e.lane = None;
                v
            }
        }
    }

    /// Whether the elements after and before the current one certainly exist: those of neighbouring terms. The one before
    /// is named only where the one after is not better: so that pairs of terms read the same vectors.
    fn neighbours(&self, flat: Int) -> [Option<bool>; 2] {
        let next = self.form.ks.iter().find(|k| coef(flat, **k) == Some(Int::new(1)));
        let Some(k) = next else { return [None, None] };
        let at = self.e.vars.get(k).and_then(|r| self.e.b.const_i64(*r));
        let (Some(at), Some(n)) = (at, extent(*k).as_const()) else { return [None, None] };
        let before = at >= 1 && (at % 2 == 1 || at + 1 == n);
        [Some(at + 1 < n), Some(before)]
    }

    fn finish_tile(&mut self, tile: &Tile<'_>) {
        for r in 0..tile.rows.len() {
            for g in 0..tile.groups.len() {
                let mut sums: Vec<Reg> = tile.accs.iter().map(|way| way[r][g]).map(|v| self.e.b.get(v)).collect();
                while sums.len() > 1 {
                    sums = sums.chunks(2).map(|p| if let [x, y] = *p { self.e.b.add(x, y) } else { p[0] }).collect();
                }
                self.at_row(&tile.rows[r]);
                self.at_group(tile.n0, tile.groups[g]);
                self.store(sums[0], tile.groups[g]);
            }
        }
    }

    /// The epilogue on finished sums of one group, and its store.
    pub(super) fn store(&mut self, sum: Reg, group: Group) {
        let half = self.e.program.tensor(self.sum).dtype;
        let sum = if half == half.compute() { sum } else { self.e.b.cast(half, sum) };
        self.e.forget();
        self.e.locals.insert(self.sum, sum);
        self.e.lane = self.s.n.filter(|_| group.lanes > 1).map(|n| (n, group.lanes));
        let value = self.e.expr(self.form.epilogue);
        // A value that is the same for all columns comes as a vector all the same.
        let flat = self.form.out;
        if group.first == 0 {
            self.e.store_flat(self.out, flat, value);
        } else {
            let step = self.s.n.and_then(|n| coef(flat, n)).unwrap_or(Int::new(0));
            for l in group.first..group.lanes {
                let x = self.e.b.extract(value, l);
                let index = self.e.int(flat + step * i64::from(l));
                self.e.b.store(self.out, index, 0, x);
            }
        }
        self.e.lane = None;
        self.e.locals.remove(&self.sum);
        self.e.forget();
    }
}
