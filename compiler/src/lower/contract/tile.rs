//! One register tile: the sum over all terms, the epilogue on the sums, the store.

use super::after::Pass;
use super::ahead::Ahead;
use super::few_bits::{self, Bases};
use super::form::{self, Form, coef, extent};
use super::operand::{Places, Stream};
use super::schedule::{Group, Schedule, ways};
use super::stage::Stage;
use super::target::Target;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Dot, Reg, Type, Var};
use crate::lower::emit::Emit;
use crate::sym::{Int, VarId};
use crate::te::{Expr, Func2, Node, TensorId, expr};

/// Terms of bytes whose sums with all their corrections are below 2^24: three times 255 * 255 each.
const FEW: i64 = (1 << 24) / (3 * 255 * 255);

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
    /// What is known of positions.
    pub places: Places,
    /// Where the vector operand is read from instead.
    pub stage: Option<Stage>,
    /// Tiles that read each panel of a packed vector operand one after the other, where they fetch the next one together; else 0.
    pub tiles: i64,
    /// What the tiles do at present.
    pub pass: Pass,
}

/// A tile under construction.
pub(super) struct Tile<'t> {
    /// Values of the row axes, by row.
    pub rows: Vec<Vec<(VarId, Reg)>>,
    /// The first new column.
    pub n0: Reg,
    /// The columns.
    pub groups: &'t [Group],
    /// First packed element of the tile, of the vector operand.
    pub v_base: Option<Reg>,
    /// The same of the broadcast operand.
    pub b_base: Option<Reg>,
    /// The same of a vector operand of few bits.
    pub few: Option<Bases>,
    /// `[way][row][group]`.
    accs: Vec<Vec<Vec<Var>>>,
    /// The part of the outermost reduced index that is summed.
    range: Option<(VarId, Reg, Reg)>,
    /// What it fetches for the tiles of the next panel.
    ahead: Option<Ahead>,
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
    /// The type of accumulators.
    pub(super) fn elem(&self) -> DType {
        if self.form.fours.is_some() {
            return DType::I32;
        }
        form::inner(self.e.program.tensor(self.sum).dtype)
    }

    /// All of one tile: `rows` rows from `m0` on, the columns of `groups` relative to `n0`.
    pub(super) fn tile(&mut self, m0: Reg, rows: usize, n0: Reg, groups: &[Group]) {
        if self.pass == Pass::After {
            return self.after(m0, rows, n0, groups);
        }
        let first = m0;
        let rows = self.rows(m0, rows);
        if self.s.dot {
            return self.dot_tile(rows, n0, groups);
        }
        let terms = Int::product(&self.form.ks.iter().map(|k| extent(*k)).collect::<Vec<_>>());
        let (v, b) = (self.v.clone(), self.b.clone());
        let v_base = match self.stage {
            Some(_) => Some(self.e.b.i64(0)),
            None => self.packed_base(&v, n0, terms * self.form.words()),
        };
        let b_base = self.packed_base(&b, m0, terms);
        let few = self.few_bases(n0);
        let ahead = self.ahead(first, v_base, groups, terms);
        let count = ways(rows.len() * groups.len(), terms.as_const().unwrap_or(1));
        let plan = self.plan(rows.len() * groups.len());
        let block = self.form.block().ok().flatten().zip(self.form.ks.first().copied());
        let Some((block, k)) = block else {
            let accs = (0..count).map(|_| self.zeros(rows.len(), groups)).collect();
            let tile = Tile { rows, n0, groups, v_base, b_base, few, accs, range: None, ahead };
            self.terms(&tile, &plan, 0);
            self.finish_tile(&tile, None);
            return;
        };
        // Sums of as many products of bytes as floats hold exactly, put away as integers.
        let ints: Vec<Vec<Var>> = rows
            .iter()
            .map(|_| groups.iter().map(|g| self.e.b.var(Type::vector(DType::I32, g.lanes))).collect())
            .collect();
        for (v, g) in ints.iter().flat_map(|row| row.iter().zip(groups)) {
            let zero = self.e.b.int(Type::vector(DType::I32, g.lanes), 0);
            self.e.b.set(*v, zero);
        }
        let (zero, end) = (self.e.b.i64(0), self.e.int(extent(k)));
        let first = self.e.b.begin_for(zero, end, block);
        let size = self.e.b.i64(block);
        let next = self.e.b.add(first, size);
        let last = self.e.b.min(next, end);
        let accs = (0..count).map(|_| self.zeros(rows.len(), groups)).collect();
        let tile = Tile { rows, n0, groups, v_base, b_base, few, accs, range: Some((k, first, last)), ahead };
        self.terms(&tile, &plan, 0);
        for (r, row) in ints.iter().enumerate() {
            for (g, v) in row.iter().enumerate() {
                let part = self.total(&tile, r, g);
                let part = self.e.b.cast(DType::I32, part);
                let before = self.e.b.get(*v);
                let sum = self.e.b.add(before, part);
                self.e.b.set(*v, sum);
            }
        }
        self.e.b.end();
        self.finish_tile(&tile, Some(&ints));
    }

    /// What a tile of rows from `m0` on fetches ahead, whose panel begins at `base`.
    fn ahead(&mut self, m0: Reg, base: Option<Reg>, groups: &[Group], terms: Int) -> Option<Ahead> {
        let Stream::Packed { buf, .. } = self.v else { return None };
        let (base, terms) = (base.filter(|_| self.stage.is_none())?, terms.as_const()?);
        let width = groups.iter().map(|g| i64::from(g.lanes)).sum::<i64>() * self.form.words();
        let size = self.e.b.i64(width * terms);
        let next = self.e.b.add(base, size);
        Ahead::new(&mut self.e.b, buf, next, (width, terms), (m0, self.s.mr as i64), self.tiles)
    }

    fn zeros(&mut self, rows: usize, groups: &[Group]) -> Vec<Vec<Var>> {
        (0..rows).map(|_| groups.iter().map(|g| self.zero(g.lanes)).collect()).collect()
    }

    fn zero(&mut self, lanes: u16) -> Var {
        let zero = self.e.b.float(Type::vector(self.elem(), lanes), 0.0);
        self.e.b.var_init(zero)
    }

    pub(super) fn packed_base(&mut self, stream: &Stream, first: Reg, terms: Int) -> Option<Reg> {
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
        if let Some(n) = self.s.whole_lines() {
            let line = b.i64(n);
            let first = b.div(m0, line);
            let row = |b: &mut Builder, r: i64| {
                let (down, along) = (b.i64(r / n), b.i64(r % n));
                vec![(m[0], b.add(first, down)), (m[1], along)]
            };
            return (0..count as i64).map(|r| row(b, r)).collect();
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
        let times = match size {
            _ if self.form.few.is_some() => few_bits::PASS,
            1 => 1 << (most.ilog2().min(3)),
            _ => (most / size).clamp(1, 4),
        };
        Terms { part: loops.pop().map(|k| (k, times)), loops, full }
    }

    fn terms(&mut self, tile: &Tile<'_>, plan: &Terms, level: usize) {
        if let Some(k) = plan.loops.get(level) {
            let (lo, hi) = match tile.range {
                Some((x, lo, hi)) if x == *k => (lo, hi),
                _ => (self.e.b.i64(0), self.e.int(extent(*k))),
            };
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
        let range = tile.range.filter(|(x, ..)| *x == k);
        // A group of fewer than four terms is the last of the pass after the loop.
        let rest = i64::from(self.form.fours.as_ref().is_some_and(|f| f.k == k && f.last < 4));
        match extent(k).as_const().filter(|_| range.is_none()) {
            Some(n) => {
                let main = n - rest - (n - rest) % times;
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
                let (lo, main, all) = match range {
                    Some((_, lo, hi)) => {
                        let (count, size) = (self.e.b.sub(hi, lo), self.e.b.i64(times));
                        let rest = self.e.b.rem(count, size);
                        (lo, self.e.b.sub(hi, rest), hi)
                    }
                    None => (zero, self.e.int(n.div(times) * times), self.e.int(n)),
                };
                let i = self.e.b.begin_for(lo, main, times);
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
        let zero = self.e.b.i64(0);
        self.e.vars.extend(plan.full.iter().map(|k| (*k, zero)));
        self.e.vars.extend(plan.part.map(|(k, _)| (k, i)));
        self.places.known.clear();
        let ahead = tile.ahead.map(|ahead| {
            let term = self.term_index();
            let term = self.e.int(term);
            (ahead, ahead.at(&mut self.e.b, term))
        });
        let mut step = 0;
        for u in 0..times {
            let mut quads = vec![];
            if let Some((k, _)) = plan.part {
                let lane = u % i64::from(self.s.lanes);
                self.places.offsets = vec![(k, u - lane)];
                if times - (u - lane) >= i64::from(self.s.lanes) && plan.full.is_empty() {
                    quads = self.quads(tile, k, lane as u16);
                }
            }
            for p in &points {
                self.places.offsets = plan.full.iter().copied().zip(p.iter().copied()).collect();
                self.places.offsets.extend(plan.part.map(|(k, _)| (k, u)));
                let way = step % accs.len();
                self.term(tile, &mut accs[way], &quads);
                if let Some((ahead, at)) = ahead {
                    ahead.fetch(&mut self.e.b, at, step as i64);
                }
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
        self.places.offsets.clear();
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
            let vs: Vec<Vec<Reg>> = (0..groups).map(|g| self.v_values(tile, g)).collect();
            for r in 0..rows {
                for g in 0..groups {
                    let b = self.b_values(tile, r, g, quads);
                    accs[r][g] = self.add_products(&vs[g], &b, accs[r][g], g + 1 == groups && r + 1 < rows);
                }
            }
        } else {
            let mut held: Vec<Vec<(u16, Vec<Reg>)>> = vec![vec![]; rows];
            for g in 0..groups {
                let v = self.v_values(tile, g);
                for r in 0..rows {
                    let lanes = tile.groups[g].lanes;
                    let known = held[r].iter().find(|(l, _)| *l == lanes).map(|(_, b)| b.clone());
                    let steady = self.b_is_steady();
                    let b = match known {
                        Some(b) if steady => b,
                        _ => self.b_values(tile, r, g, quads),
                    };
                    accs[r][g] = self.add_products(&v, &b, accs[r][g], g + 1 == groups && r + 1 < rows);
                    held[r].push((lanes, b));
                }
            }
        }
    }

    /// What the broadcast operand's elements are multiplied as: words of even and of odd bytes, or themselves.
    fn b_values(&mut self, tile: &Tile<'_>, r: usize, g: usize, quads: &[Reg]) -> Vec<Reg> {
        let b = self.b_value(tile, r, g, quads);
        if self.form.words() == 1 {
            return vec![b];
        }
        let ty = self.e.b.ty(b);
        let (low, eight) = (self.e.b.int(ty, 0x00ff_00ff), self.e.b.int(ty, 8));
        let upper = self.e.b.shr(b, eight);
        vec![self.e.b.and(b, low), self.e.b.and(upper, low)]
    }

    /// `sum` plus the products of elements of the vector operand and the broadcast operand; `last`: the latter is not used
    /// again.
    fn add_products(&mut self, v: &[Reg], b: &[Reg], sum: Reg, last: bool) -> Reg {
        match &self.form.fours {
            Some(fours) if fours.pairs => {
                v.iter().zip(b).fold(sum, |sum, (v, b)| self.e.b.dot(Dot::Words, *b, *v, sum))
            }
            Some(_) => {
                let (x, y) = if self.form.ops[self.s.vec].dtype == DType::U8 { (v[0], b[0]) } else { (b[0], v[0]) };
                self.e.b.dot(Dot::Bytes, x, y, sum)
            }
            None => {
                // The factor named first may be overwritten: one that is not used again.
                let (x, y) = if last { (b[0], v[0]) } else { (v[0], b[0]) };
                self.e.b.fma(x, y, sum)
            }
        }
    }

    /// The sum of all partial sums of an element.
    fn total(&mut self, tile: &Tile<'_>, r: usize, g: usize) -> Reg {
        let mut sums: Vec<Reg> = tile.accs.iter().map(|way| way[r][g]).map(|v| self.e.b.get(v)).collect();
        while sums.len() > 1 {
            sums = sums.chunks(2).map(|p| if let [x, y] = *p { self.e.b.add(x, y) } else { p[0] }).collect();
        }
        sums[0]
    }

    fn finish_tile(&mut self, tile: &Tile<'_>, ints: Option<&[Vec<Var>]>) {
        for r in 0..tile.rows.len() {
            for g in 0..tile.groups.len() {
                let sum = match ints {
                    Some(ints) => self.e.b.get(ints[r][g]),
                    None => self.total(tile, r, g),
                };
                self.at_row(&tile.rows[r]);
                self.at_group(tile.n0, tile.groups[g]);
                self.store(sum, tile.groups[g]);
            }
        }
    }

    /// Where the epilogue makes a float of an integer that was summed as one, that is it; where it subtracts another integer
    /// first, floats hold both and the difference if there are few terms.
    fn keep_float(&mut self, float: Reg) {
        let sum = self.sum;
        let is_sum = |e: Expr| matches!(e.node(), Node::Load(t, _) if t == sum);
        let few = self.form.terms().is_some_and(|n| n <= FEW);
        for e in expr::nodes(self.form.epilogue) {
            let Node::Cast(DType::F32, whole) = e.node() else { continue };
            match whole.node() {
                _ if whole.dtype() != DType::I32 => {}
                Node::Load(..) if is_sum(whole) => self.e.know(e, float),
                Node::Bin(Func2::Sub, a, less) if few && is_sum(a) && !expr::nodes(less).iter().any(|e| is_sum(*e)) => {
                    let less = self.e.expr(less);
                    let less = self.e.b.cast(DType::F32, less);
                    let difference = self.e.b.sub(float, less);
                    self.e.know(e, difference);
                }
                _ => {}
            }
        }
    }

    /// The epilogue on finished sums of one group, if it is its turn, and their store.
    pub(super) fn store(&mut self, sum: Reg, group: Group) {
        // Half types round here, bytes were summed as floats; otherwise this changes nothing.
        let float = (self.e.b.ty(sum).elem == DType::F32).then_some(sum);
        let sum = self.e.b.cast(self.e.program.tensor(self.sum).dtype, sum);
        self.e.forget();
        self.e.locals.insert(self.sum, sum);
        self.e.lane = self.s.n.filter(|_| group.lanes > 1).map(|n| (n, group.lanes));
        if let Some(float) = float {
            self.keep_float(float);
        }
        let value = if self.pass == Pass::Sums { sum } else { self.e.expr(self.form.epilogue) };
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
