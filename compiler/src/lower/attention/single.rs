//! The attention of one query: vectors along the features of keys and values, and along keys for the softmax between.

use super::sums::Side;
use super::{Gen, Group, constant};
use crate::dtype::DType;
use crate::kernel::ir::{Horizontal, Reg, Type, Var};
use crate::lower::math;
use crate::sym::{Int, VarId, linear_in};
use crate::te::Func1;

/// Vectors of sums held in registers.
const HELD: usize = 8;

impl Gen<'_> {
    /// The query at `first` alone.
    pub(super) fn single(&mut self, first: Reg) {
        let a = self.a;
        let next_to = |flat: Int, v: VarId| linear_in(flat, v).and_then(|(c, _)| c.as_const()) == Some(1);
        if !next_to(a.keys.1, a.depth) || !next_to(a.values.1, a.feature) {
            return self.tile(first, 1);
        }
        self.turn(first, 1);
        let start = |g: &mut Self, v: f64| {
            let x = g.e.b.f32(v as f32);
            g.e.b.var_init(x)
        };
        let (most, total) = (start(self, f64::NEG_INFINITY), start(self, 0.0));
        self.clear(1);
        let (from, to) = self.key_range(first, 1);
        let block = self.s.block;
        let at = self.e.b.begin_for(from, to, block);
        let size = self.e.b.i64(block);
        let next = self.e.b.add(at, size);
        let end = self.e.b.min(next, to);
        let keys = self.e.b.sub(end, at);
        self.dots(at, keys);
        let factor = self.row_of_powers(first, at, keys, most, total);
        self.weigh_row(at, keys, factor);
        self.e.b.end();
        self.finish_row(first, most, total);
    }

    /// Products of the query with so many keys from `at` on.
    fn dots(&mut self, at: Reg, keys: Reg) {
        let groups = self.groups(constant(self.a.depth));
        // Several keys at a time keep the multipliers busy.
        let together = match groups.len() {
            0..=8 => 4,
            9..=16 => 2,
            _ => 1,
        };
        let mut from = self.e.b.i64(0);
        for count in [together, 1] {
            let to = self.whole(from, keys, count);
            let i = self.e.b.begin_for(from, to, count);
            for k in 0..count {
                let more = self.e.b.i64(k);
                let (key, into) = (self.e.b.add(at, i), self.e.b.add(i, more));
                let key = self.e.b.add(key, more);
                let dot = self.dot(key, &groups);
                self.e.b.store(self.scores, into, 0, dot);
            }
            self.e.b.end();
            if count == 1 {
                break;
            }
            from = to;
        }
    }

    fn dot(&mut self, key: Reg, groups: &[Group]) -> Reg {
        let zero = self.e.b.i64(0);
        self.e.vars.insert(self.a.key, key);
        self.e.vars.insert(self.a.depth, zero);
        let base = self.e.int(self.a.keys.1);
        self.e.vars.remove(&self.a.key);
        self.e.vars.remove(&self.a.depth);
        // One sum for each width of vectors.
        let mut sums: Vec<(u16, Reg)> = vec![];
        for g in groups {
            let x = self.e.b.load(self.keys, base, g.at, g.lanes);
            let x = self.e.b.cast(DType::F32, x);
            let y = self.e.b.load(self.turned, zero, g.at, g.lanes);
            match sums.iter_mut().find(|(lanes, _)| *lanes == g.lanes) {
                Some((_, sum)) => *sum = self.e.b.fma(x, y, *sum),
                None => sums.push((g.lanes, self.e.b.mul(x, y))),
            }
        }
        let parts: Vec<Reg> = sums
            .into_iter()
            .map(|(lanes, sum)| if lanes == 1 { sum } else { self.e.b.horizontal(Horizontal::Add, sum) })
            .collect();
        parts.into_iter().reduce(|x, y| self.e.b.add(x, y)).unwrap_or_else(|| self.e.b.f32(0.0))
    }

    /// Runs `f` for so many elements, first for vectors of them, then one by one.
    fn along(&mut self, count: Reg, f: &mut dyn FnMut(&mut Self, Reg, u16)) {
        let mut from = self.e.b.i64(0);
        for lanes in [self.s.lanes, 1] {
            let to = self.whole(from, count, i64::from(lanes));
            let i = self.e.b.begin_for(from, to, i64::from(lanes));
            f(self, i, lanes);
            self.e.b.end();
            from = to;
        }
    }

    /// [`Gen::powers`] for one query, with lanes along keys.
    fn row_of_powers(&mut self, first: Reg, at: Reg, keys: Reg, most: Var, total: Var) -> Reg {
        let a = self.a;
        let lanes = self.s.lanes;
        let before = self.e.b.get(most);
        let wide = self.e.b.splat(before, lanes);
        let wide = self.e.b.var_init(wide);
        self.along(keys, &mut |g, i, lanes| {
            let x = g.e.b.load(g.scores, i, 0, lanes);
            let x = g.e.b.cast(g.e.program.tensor(a.product).dtype, x);
            let key = g.e.b.add(at, i);
            g.e.forget();
            g.e.vars.insert(a.row, first);
            g.e.vars.insert(a.key, key);
            g.e.lane = (lanes > 1).then_some((a.key, lanes));
            g.e.locals.insert(a.product, x);
            let score = g.e.expr(a.score);
            g.e.locals.remove(&a.product);
            g.e.lane = None;
            g.e.vars.remove(&a.key);
            g.e.vars.remove(&a.row);
            g.e.forget();
            g.e.b.store(g.scores, i, 0, score);
            let to = if lanes > 1 { wide } else { most };
            let so_far = g.e.b.get(to);
            let so_far = g.e.b.max(so_far, score);
            g.e.b.set(to, so_far);
        });
        let (x, y) = (self.e.b.get(most), self.e.b.get(wide));
        let y = self.e.b.horizontal(Horizontal::Max, y);
        let greatest = self.e.b.max(x, y);
        self.e.b.set(most, greatest);
        let base = self.base(greatest);
        let down = self.e.b.sub(before, base);
        let factor = math::un(&mut self.e.b, Func1::Exp, down);
        let zero = self.e.b.float(Type::vector(DType::F32, lanes), 0.0);
        let (wide, one) = (self.e.b.var_init(zero), self.e.b.f32(0.0));
        let part = self.e.b.var_init(one);
        self.along(keys, &mut |g, i, lanes| {
            let x = g.e.b.load(g.scores, i, 0, lanes);
            let base = g.e.b.splat(base, lanes);
            let power = g.power(x, base);
            g.e.b.store(g.scores, i, 0, power);
            let to = if lanes > 1 { wide } else { part };
            let so_far = g.e.b.get(to);
            let so_far = g.e.b.add(so_far, power);
            g.e.b.set(to, so_far);
        });
        let (x, y) = (self.e.b.get(part), self.e.b.get(wide));
        let y = self.e.b.horizontal(Horizontal::Add, y);
        let part = self.e.b.add(x, y);
        let so_far = self.e.b.get(total);
        let sum = self.e.b.fma(so_far, factor, part);
        self.e.b.set(total, sum);
        factor
    }

    /// Adds weighted values.
    fn weigh_row(&mut self, at: Reg, keys: Reg, factor: Reg) {
        let a = self.a;
        let groups = self.groups(constant(a.feature));
        let zero = self.e.b.i64(0);
        for part in groups.chunks(HELD) {
            let mut sums = vec![];
            for g in part {
                let so_far = self.e.b.load(self.sums, zero, g.at, g.lanes);
                let factor = self.e.b.splat(factor, g.lanes);
                let so_far = self.e.b.mul(so_far, factor);
                sums.push(self.e.b.var_init(so_far));
            }
            self.e.vars.insert(a.feature, zero);
            self.e.vars.insert(a.key, at);
            let side = Side::of(self, self.values, a.values.1, (a.feature, 1), a.key);
            self.e.vars.remove(&a.feature);
            self.e.vars.remove(&a.key);
            let i = self.e.b.begin_for(zero, keys, 1);
            let from = side.start(self, i);
            let power = self.e.b.load(self.scores, i, 0, 1);
            for (g, v) in part.iter().zip(&sums) {
                let x = self.e.b.load(self.values, from, g.at, g.lanes);
                let x = self.e.b.cast(DType::F32, x);
                let power = self.e.b.splat(power, g.lanes);
                let so_far = self.e.b.get(*v);
                let sum = self.e.b.fma(x, power, so_far);
                self.e.b.set(*v, sum);
            }
            self.e.b.end();
            for (g, v) in part.iter().zip(&sums) {
                let x = self.e.b.get(*v);
                self.e.b.store(self.sums, zero, g.at, x);
            }
        }
    }

    fn finish_row(&mut self, first: Reg, most: Var, total: Var) {
        let a = self.a;
        let (most, total) = (self.e.b.get(most), self.e.b.get(total));
        self.e.vars.insert(a.row, first);
        let divisor = self.divisor(most, total);
        let count = self.e.b.i64(constant(a.feature));
        self.along(count, &mut |g, i, lanes| {
            let sum = g.e.b.load(g.sums, i, 0, lanes);
            let divisor = g.e.b.splat(divisor, lanes);
            let mean = g.mean(sum, divisor);
            g.e.vars.insert(a.feature, i);
            g.e.lane = (lanes > 1).then_some((a.feature, lanes));
            g.put(mean);
            g.e.lane = None;
            g.e.vars.remove(&a.feature);
        });
        self.e.vars.remove(&a.row);
    }
}
