//! Attention as one kernel that never holds a whole row of scores (Milakov and Gimelshein 2018, Dao et al. 2022).
//!
//! A work unit takes a block of queries of one head. For one block of keys after the other it computes scores, moves the
//! greatest score so far up, takes powers, and adds their sum and the values weighted with them to what it has, which is
//! first scaled to the new greatest score. All vectors lie along the queries: greatest scores and sums are vectors of one
//! element a query, nothing is combined across lanes, and keys and values are read as they lie, element by element for all
//! lanes. Only the queries are turned once.
//!
//! A single query takes a path of its own, with vectors along the features: [`single`].

mod laid;
mod limits;
mod single;
mod sums;

use super::LoweredKernel;
use super::contract::target::Target;
use super::emit::Emit;
use crate::dtype::DType;
use crate::fuse::attention::Attention;
use crate::kernel::ir::{Access, BinOp, Buf, Cmp, Reg, Type, Var};
use crate::lower::math;
use crate::sym::{Int, VarId};
use crate::te::{Func1, Program};
use graphmend_targets::Cpu;
use laid::Laid;
use limits::Limits;
use sums::{Many, Side};

/// Vectors of queries: first query, from that of the tile, and number.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: i64,
    lanes: u16,
}

/// Sizes of blocks and tiles.
#[derive(Clone, Debug)]
struct Sizes {
    /// Queries of a work unit.
    rows: i64,
    /// Keys of a block: a multiple of `keys`.
    block: i64,
    /// Keys, and features, of a register tile.
    keys: i64,
    features: i64,
    lanes: u16,
    /// A multiplication takes one element of a vector for all lanes.
    by_element: bool,
}

struct Gen<'a> {
    e: Emit<'a>,
    a: &'a Attention,
    s: Sizes,
    query: Buf,
    keys: Buf,
    values: Buf,
    out: Buf,
    /// Queries of the tile, `[depth, query]`.
    turned: Buf,
    /// Scores, then powers: `[key, query]`.
    scores: Buf,
    /// Weighted values so far, `[feature, query]`.
    sums: Buf,
    limits: Limits,
    laid: Vec<Laid>,
}

/// Lowers an attention.
pub fn lower(p: &Program, cpu: &Cpu, name: &str, a: &Attention) -> LoweredKernel {
    let target = Target::of(cpu, DType::F32, crate::codegen::vector_bits(cpu.into()));
    let s = sizes(a, &target);
    let mut e = Emit::new(p, name, true);
    let out = e.tensor_buf(a.out, Access::Write);
    let (query, keys, values) = (
        e.tensor_buf(a.query.0, Access::Read),
        e.tensor_buf(a.keys.0, Access::Read),
        e.tensor_buf(a.values.0, Access::Read),
    );
    let (depth, features) = (extent(a.depth), extent(a.feature));
    // A single query needs room for a block of scores and for its sums in vectors.
    let rows = s.rows.max(1);
    let turned = e.scratch_buf(DType::F32, depth * rows);
    let scores = e.scratch_buf(DType::F32, Int::new(s.block * rows));
    let sums = e.scratch_buf(DType::F32, features * rows);
    let limits = Limits::of(a);
    let laid = Laid::of(&mut e, a, s.block * rows);
    let mut g = Gen { e, a, s, query, keys, values, out, turned, scores, sums, limits, laid };
    let units = g.run();
    g.e.finish(Some(units))
}

fn extent(v: VarId) -> Int {
    v.extent().unwrap_or(Int::new(1))
}

fn constant(v: VarId) -> i64 {
    extent(v).as_const().unwrap_or(1)
}

/// `n` in parts of nearly equal size, at most `most` each: the size of all but the last.
fn even(n: i64, most: i64) -> i64 {
    let parts = (n + most - 1) / most.max(1);
    (n + parts - 1) / parts.max(1)
}

fn sizes(a: &Attention, target: &Target) -> Sizes {
    let lanes = target.lanes;
    let by_element = target.by_element;
    // Vectors of queries, and the most keys or features beside them whose sums stay in registers.
    let (vectors, beside) = match (target.regs, target.overwrites, lanes) {
        (_, _, 1) => (4, 4),
        (32.., false, _) if target.wide => (2, 14),
        (32.., false, _) => (4, 5),
        (_, true, _) => (2, 5),
        _ => (2, 6),
    };
    let full = i64::from(lanes) * vectors;
    let rows = match extent(a.row).as_const() {
        Some(n) if n < full => n.max(1),
        _ => full,
    };
    let keys = match extent(a.key).as_const() {
        Some(n) if n < beside => n.max(1),
        _ => beside,
    };
    // Half of the first-level cache for the block of scores.
    let fit = (target.near / 8 / rows).clamp(2 * beside, 256);
    let block = match extent(a.key).as_const() {
        Some(n) => even(n, fit),
        None => fit,
    };
    let block = (block + keys - 1) / keys * keys;
    Sizes { rows, block, keys, features: even(constant(a.feature), beside), lanes, by_element }
}

impl Gen<'_> {
    /// Emits everything; gives the number of work units.
    fn run(&mut self) -> Int {
        let (rows, size) = (extent(self.a.row), self.s.rows);
        let blocks = rows.ceil_div(size);
        let (lo, hi) = (self.e.b.tile_lo(), self.e.b.tile_hi());
        let unit = self.e.b.begin_for(lo, hi, 1);
        let (mut left, n) = (unit, self.e.int(blocks));
        let block = self.e.b.rem(left, n);
        left = self.e.b.div(left, n);
        for (k, v) in self.a.batch.iter().enumerate().rev() {
            let n = self.e.int(extent(*v));
            let at = if k == 0 { left } else { self.e.b.rem(left, n) };
            left = if k == 0 { left } else { self.e.b.div(left, n) };
            self.e.vars.insert(*v, at);
        }
        let (size_reg, all) = (self.e.b.i64(size), self.e.int(rows));
        let first = self.e.b.mul(block, size_reg);
        let next = self.e.b.add(first, size_reg);
        let end = self.e.b.min(next, all);
        self.rows(first, end);
        self.e.b.end();
        Int::product(&self.a.batch.iter().map(|v| extent(*v)).collect::<Vec<_>>()) * blocks
    }

    /// The queries of a unit: all together, or the last few.
    fn rows(&mut self, first: Reg, end: Reg) {
        let size = self.s.rows;
        if let Some(all) = extent(self.a.row).as_const() {
            let rest = all % size;
            let whole = self.e.b.i64(all - rest);
            let last = self.e.b.min(end, whole);
            let i = self.e.b.begin_for(first, last, size);
            self.queries(i, size);
            self.e.b.end();
            if rest > 0 {
                let all = self.e.b.i64(all);
                let at_end = self.e.b.cmp(Cmp::Eq, end, all);
                self.e.b.begin_if(at_end);
                self.queries(whole, rest);
                self.e.b.end();
            }
            return;
        }
        let mut from = first;
        let mut steps = vec![size, i64::from(self.s.lanes)];
        while let Some(last) = steps.last().copied().filter(|n| *n > 1) {
            steps.push((last / 4).max(1));
        }
        steps.dedup();
        for step in steps {
            let last = self.whole(from, end, step);
            let i = self.e.b.begin_for(from, last, step);
            self.queries(i, step);
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

    fn queries(&mut self, first: Reg, count: i64) {
        if count == 1 && self.s.lanes > 1 {
            return self.single(first);
        }
        self.tile(first, count);
    }

    /// Vectors of `count` queries.
    fn groups(&self, count: i64) -> Vec<Group> {
        let l = i64::from(self.s.lanes);
        let whole = count / l;
        let mut out: Vec<Group> = (0..whole).map(|g| Group { at: g * l, lanes: self.s.lanes }).collect();
        let rest = count - whole * l;
        if rest > 0 && l > 4 {
            out.push(Group { at: whole * l, lanes: rest as u16 });
        } else {
            out.extend((0..rest).map(|k| Group { at: whole * l + k, lanes: 1 }));
        }
        out
    }

    /// `count` queries from `first` on.
    fn tile(&mut self, first: Reg, count: i64) {
        let groups = self.groups(count);
        self.turn(first, count);
        let start = |g: &mut Self, v: f64| -> Vec<Var> {
            let vars = groups.iter().map(|group| {
                let x = g.e.b.float(Type::vector(DType::F32, group.lanes), v);
                g.e.b.var_init(x)
            });
            vars.collect()
        };
        let (most, total) = (start(self, f64::NEG_INFINITY), start(self, 0.0));
        self.clear(count);
        let (from, to) = self.key_range(first, count);
        let block = self.s.block;
        let at = self.e.b.begin_for(from, to, block);
        let size = self.e.b.i64(block);
        let next = self.e.b.add(at, size);
        let end = self.e.b.min(next, to);
        let keys = self.e.b.sub(end, at);
        self.products(at, end, count, &groups);
        self.lay(first, at, keys, count);
        let factors = self.powers((first, at, keys), count, &groups, &most, &total);
        self.weigh(at, keys, count, &groups, &factors);
        self.e.b.end();
        self.finish(first, count, &groups, &most, &total);
    }

    /// The first key that any of the queries may see, and the end of them, in whole tiles of keys.
    fn key_range(&mut self, first: Reg, count: i64) -> (Reg, Reg) {
        let last = self.e.b.i64(count - 1);
        let last = self.e.b.add(first, last);
        let all = self.e.int(extent(self.a.key));
        let zero = self.e.b.i64(0);
        let step = self.e.b.i64(self.s.keys);
        let (mut from, mut to) = (zero, all);
        for limit in self.limits.upper.clone() {
            let seen = limit.at(&mut self.e, self.a.row, first, last);
            let one = self.e.b.i64(self.s.keys);
            // Past the last key, rounded up to whole tiles.
            let end = self.e.b.add(seen, one);
            let end = self.e.b.max(end, zero);
            let tiles = self.e.b.div(end, step);
            let end = self.e.b.mul(tiles, step);
            to = self.e.b.min(to, end);
        }
        for limit in self.limits.lower.clone() {
            let seen = limit.at(&mut self.e, self.a.row, first, last);
            let seen = self.e.b.max(seen, zero);
            let tiles = self.e.b.div(seen, step);
            let start = self.e.b.mul(tiles, step);
            from = self.e.b.max(from, start);
        }
        (from, to)
    }

    /// Sets the sums to 0.
    fn clear(&mut self, count: i64) {
        let all = count * constant(self.a.feature);
        for (from, to, step) in spans(all, i64::from(self.s.lanes)) {
            let (from, to) = (self.e.b.i64(from), self.e.b.i64(to));
            let i = self.e.b.begin_for(from, to, step);
            let zero = self.e.b.float(Type::vector(DType::F32, step as u16), 0.0);
            self.e.b.store(self.sums, i, 0, zero);
            self.e.b.end();
        }
    }

    /// Products of the queries with the keys from `at` to `end`.
    fn products(&mut self, at: Reg, end: Reg, count: i64, groups: &[Group]) {
        let step = self.s.keys;
        let mut from = at;
        let tile = |g: &mut Self, from: Reg, to: Reg, size: i64| {
            let key = g.e.b.begin_for(from, to, size);
            g.e.vars.insert(g.a.key, key);
            g.e.vars.insert(g.a.depth, g.e.b.i64(0));
            let side = Side::of(g, g.keys, g.a.keys.1, (g.a.key, size), g.a.depth);
            g.e.vars.remove(&g.a.key);
            g.e.vars.remove(&g.a.depth);
            let accs = g.zeros(size, groups);
            g.add_up(&side, g.turned, count, groups, Many::Known(constant(g.a.depth)), &accs);
            let into = g.e.b.sub(key, at);
            let width = g.e.b.i64(count);
            let into = g.e.b.mul(into, width);
            for (k, row) in accs.iter().enumerate() {
                for (v, group) in row.iter().zip(groups) {
                    let x = g.e.b.get(*v);
                    g.e.b.store(g.scores, into, k as i64 * count + group.at, x);
                }
            }
            g.e.b.end();
        };
        if let Some(all) = extent(self.a.key).as_const() {
            // Blocks begin and, but for the last one, end with whole tiles.
            let rest = all % step;
            let whole = self.e.b.i64(all - rest);
            let last = self.e.b.min(end, whole);
            tile(self, at, last, step);
            if rest > 0 {
                let all = self.e.b.i64(all);
                let at_end = self.e.b.cmp(Cmp::Eq, end, all);
                self.e.b.begin_if(at_end);
                tile(self, whole, all, rest);
                self.e.b.end();
            }
            return;
        }
        let mut size = step;
        loop {
            let to = self.whole(from, end, size);
            tile(self, from, to, size);
            if size == 1 {
                break;
            }
            from = to;
            size = if size.count_ones() == 1 { size / 2 } else { 1 << size.ilog2() };
        }
    }

    /// Scores become powers; greatest scores and sums of powers are brought up to date. Gives what sums so far are to be
    /// multiplied with.
    fn powers(
        &mut self,
        (first, at, keys): (Reg, Reg, Reg),
        count: i64,
        groups: &[Group],
        most: &[Var],
        total: &[Var],
    ) -> Vec<Reg> {
        let a = self.a;
        let zero = self.e.b.i64(0);
        let before: Vec<Reg> = most.iter().map(|v| self.e.b.get(*v)).collect();
        let i = self.e.b.begin_for(zero, keys, 1);
        let (key, width) = (self.e.b.add(at, i), self.e.b.i64(count));
        let from = self.e.b.mul(i, width);
        self.e.vars.insert(a.key, key);
        for (group, most) in groups.iter().zip(most) {
            let x = self.e.b.load(self.scores, from, group.at, group.lanes);
            let x = self.e.b.cast(self.e.program.tensor(a.product).dtype, x);
            self.bind_laid(from, *group);
            let score = self.score(x, first, *group);
            self.free_laid();
            self.e.b.store(self.scores, from, group.at, score);
            let so_far = self.e.b.get(*most);
            let so_far = self.e.b.max(so_far, score);
            self.e.b.set(*most, so_far);
        }
        self.e.vars.remove(&a.key);
        self.e.b.end();
        let mut bases = vec![];
        let mut factors = vec![];
        for (v, before) in most.iter().zip(before) {
            let most = self.e.b.get(*v);
            let base = self.base(most);
            let down = self.e.b.sub(before, base);
            bases.push(base);
            factors.push(math::un(&mut self.e.b, Func1::Exp, down));
        }
        let parts: Vec<Var> = groups
            .iter()
            .map(|g| {
                let zero = self.e.b.float(Type::vector(DType::F32, g.lanes), 0.0);
                self.e.b.var_init(zero)
            })
            .collect();
        let i = self.e.b.begin_for(zero, keys, 1);
        let width = self.e.b.i64(count);
        let from = self.e.b.mul(i, width);
        for ((group, base), part) in groups.iter().zip(&bases).zip(&parts) {
            let x = self.e.b.load(self.scores, from, group.at, group.lanes);
            let power = self.power(x, *base);
            self.e.b.store(self.scores, from, group.at, power);
            let so_far = self.e.b.get(*part);
            let so_far = self.e.b.add(so_far, power);
            self.e.b.set(*part, so_far);
        }
        self.e.b.end();
        for ((total, part), factor) in total.iter().zip(parts).zip(&factors) {
            let (so_far, part) = (self.e.b.get(*total), self.e.b.get(part));
            let sum = self.e.b.fma(so_far, *factor, part);
            self.e.b.set(*total, sum);
        }
        factors
    }

    /// The score made of product `x`, of the key that is set and the queries of `group`.
    fn score(&mut self, x: Reg, first: Reg, group: Group) -> Reg {
        self.at_group(first, group);
        self.e.locals.insert(self.a.product, x);
        let score = self.e.expr(self.a.score);
        self.e.locals.remove(&self.a.product);
        self.leave_group();
        score
    }

    fn at_group(&mut self, first: Reg, group: Group) {
        let at = self.e.b.i64(group.at);
        let at = self.e.b.add(first, at);
        self.e.forget();
        self.e.vars.insert(self.a.row, at);
        self.e.lane = (group.lanes > 1).then_some((self.a.row, group.lanes));
    }

    fn leave_group(&mut self) {
        self.e.lane = None;
        self.e.vars.remove(&self.a.row);
        self.e.forget();
    }

    /// What is taken off scores: the greatest, or 0 where all are minus infinity.
    fn base(&mut self, most: Reg) -> Reg {
        let ty = self.e.b.ty(most);
        let (lowest, zero) = (self.e.b.float(ty, f64::NEG_INFINITY), self.e.b.float(ty, 0.0));
        let none = self.e.b.cmp(Cmp::Eq, most, lowest);
        self.e.b.select(none, zero, most)
    }

    fn power(&mut self, score: Reg, base: Reg) -> Reg {
        let down = self.e.b.sub(score, base);
        let power = math::un(&mut self.e.b, Func1::Exp, down);
        self.e.b.cast(self.a.rounded, power)
    }

    /// Adds the values of the keys from `at` on, weighted with their powers.
    fn weigh(&mut self, at: Reg, keys: Reg, count: i64, groups: &[Group], factors: &[Reg]) {
        let (a, size) = (self.a, constant(self.a.feature));
        for (from, to, step) in spans(size, self.s.features) {
            let (from, to) = (self.e.b.i64(from), self.e.b.i64(to));
            let feature = self.e.b.begin_for(from, to, step);
            self.e.vars.insert(a.feature, feature);
            self.e.vars.insert(a.key, at);
            let side = Side::of(self, self.values, a.values.1, (a.feature, step), a.key);
            self.e.vars.remove(&a.feature);
            self.e.vars.remove(&a.key);
            let width = self.e.b.i64(count);
            let into = self.e.b.mul(feature, width);
            let mut accs: Vec<Vec<Var>> = vec![];
            for k in 0..step {
                let mut row = vec![];
                for (group, factor) in groups.iter().zip(factors) {
                    let so_far = self.e.b.load(self.sums, into, k * count + group.at, group.lanes);
                    let so_far = self.e.b.mul(so_far, *factor);
                    row.push(self.e.b.var_init(so_far));
                }
                accs.push(row);
            }
            self.add_up(&side, self.scores, count, groups, Many::Open(keys), &accs);
            for (k, row) in accs.iter().enumerate() {
                for (v, group) in row.iter().zip(groups) {
                    let x = self.e.b.get(*v);
                    self.e.b.store(self.sums, into, k as i64 * count + group.at, x);
                }
            }
            self.e.b.end();
        }
    }

    /// Divides, and stores what follows.
    fn finish(&mut self, first: Reg, count: i64, groups: &[Group], most: &[Var], total: &[Var]) {
        let size = constant(self.a.feature);
        for ((group, most), total) in groups.iter().zip(most).zip(total) {
            let (most, total) = (self.e.b.get(*most), self.e.b.get(*total));
            self.at_group(first, *group);
            let divisor = self.divisor(most, total);
            self.leave_group();
            let done = self.put_turned(first, count, *group, divisor);
            if done == size {
                continue;
            }
            self.at_group(first, *group);
            let (from, end, width) = (self.e.b.i64(done), self.e.b.i64(size), self.e.b.i64(count));
            let feature = self.e.b.begin_for(from, end, 1);
            let from = self.e.b.mul(feature, width);
            let sum = self.e.b.load(self.sums, from, group.at, group.lanes);
            let mean = self.mean(sum, divisor);
            self.e.vars.insert(self.a.feature, feature);
            self.put(mean);
            self.e.vars.remove(&self.a.feature);
            self.e.b.end();
            self.leave_group();
        }
    }

    /// What sums are divided by, given the greatest score and the sum of powers.
    fn divisor(&mut self, most: Reg, total: Reg) -> Reg {
        let mut total = total;
        if !self.a.guarded {
            // Powers of minus infinity less itself are NaN.
            let ty = self.e.b.ty(most);
            let (lowest, none) = (self.e.b.float(ty, f64::NEG_INFINITY), self.e.b.float(ty, f64::NAN));
            let empty = self.e.b.cmp(Cmp::Eq, most, lowest);
            total = self.e.b.select(empty, none, total);
        }
        let keys = extent(self.a.key);
        if Int::new(0).lt(keys) != Some(true) {
            // Of no keys the sum is 0, whatever it is divided by.
            let ty = self.e.b.ty(total);
            let (keys, zero, one) = (self.e.int(keys), self.e.b.i64(0), self.e.b.float(ty, 1.0));
            let none = self.e.b.cmp(Cmp::Eq, keys, zero);
            let none = self.e.b.splat(none, ty.lanes);
            total = self.e.b.select(none, one, total);
        }
        self.e.forget();
        self.e.locals.insert(self.a.total, total);
        let divisor = self.e.expr(self.a.divisor);
        self.e.locals.remove(&self.a.total);
        self.e.forget();
        divisor
    }

    fn mean(&mut self, sum: Reg, divisor: Reg) -> Reg {
        let mean = self.e.b.bin(BinOp::Div, sum, divisor);
        if !self.a.forgiven {
            return mean;
        }
        let zero = self.e.b.float(self.e.b.ty(divisor), 0.0);
        let missing = self.e.b.cmp(Cmp::Ne, divisor, divisor);
        self.e.b.select(missing, zero, mean)
    }

    /// The epilogue on finished sums, and the store.
    fn put(&mut self, sum: Reg) {
        let sum = self.e.b.cast(self.e.program.tensor(self.a.sum).dtype, sum);
        self.e.forget();
        self.e.locals.insert(self.a.sum, sum);
        let value = self.e.expr(self.a.epilogue);
        self.e.store_flat(self.out, self.a.position, value);
        self.e.locals.remove(&self.a.sum);
        self.e.forget();
    }
}

/// `0..n` as a part in whole steps and, where there is one, a rest of one smaller step: first, end, step.
fn spans(n: i64, step: i64) -> Vec<(i64, i64, i64)> {
    let rest = n % step;
    let parts = [(0, n - rest, step), (n - rest, n, rest)];
    parts.into_iter().filter(|(from, to, _)| from < to).collect()
}
