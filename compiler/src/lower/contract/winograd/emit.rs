//! The code of a filtered convolution: transform of the inputs, products, transform of the products.

use super::super::ahead::Ahead;
use super::super::form::{Form, extent};
use super::{Plan, UNROLL};
use crate::dtype::DType;
use crate::kernel::ir::{Buf, Cmp, Reg, Type};
use crate::lower::emit::Emit;
use crate::sym::Int;
use crate::te::TensorId;

/// The kernel under construction.
pub(super) struct Gen<'a, 'p> {
    pub(super) e: Emit<'p>,
    pub(super) form: &'a Form,
    pub(super) plan: &'a Plan,
    pub(super) sum: TensorId,
    pub(super) image: Buf,
    pub(super) weights: Buf,
    pub(super) out: Buf,
    /// `[point][tile][input channel]`.
    pub(super) inputs: Buf,
    /// `[point][tile][output channel]`.
    pub(super) products: Buf,
    /// What follows the sums is a pass of its own.
    pub(super) later: bool,
}

/// A tile: its first row and column as the grid has them, and where it is moved to so that it ends with the image.
struct Tile {
    grid: [Reg; 2],
    at: [Reg; 2],
}

impl Gen<'_, '_> {
    /// Emits everything; gives the number of work units.
    pub(super) fn run(&mut self) -> Int {
        let plan = self.plan;
        let (lo, hi) = (self.e.b.tile_lo(), self.e.b.tile_hi());
        let unit = self.e.b.begin_for(lo, hi, 1);
        let (blocks, splits) = (self.e.b.i64(plan.blocks), self.e.b.i64(plan.splits));
        let (part, left) = (self.e.b.rem(unit, splits), self.e.b.div(unit, splits));
        let (mut left, block) = (self.e.b.div(left, blocks), self.e.b.rem(left, blocks));
        for (k, v) in plan.conv.batch.iter().enumerate().rev() {
            let n = self.e.int(extent(*v));
            let at = if k == 0 { left } else { self.e.b.rem(left, n) };
            left = self.e.b.div(left, n);
            self.e.vars.insert(*v, at);
        }
        let size = self.e.b.i64(plan.block);
        let first = self.e.b.mul(block, size);
        let size = self.e.b.i64(plan.padded() / plan.splits);
        let from = self.e.b.mul(part, size);
        let channels = (from, self.e.b.add(from, size));
        self.transform_inputs(first);
        self.multiply(channels);
        self.transform_products(first, channels);
        if self.later {
            self.after(first, channels);
        }
        self.e.b.end();
        let batches: Vec<Int> = plan.conv.batch.iter().map(|v| extent(*v)).collect();
        Int::product(&batches) * plan.blocks * plan.splits
    }

    /// The place of tile `t`.
    fn tile(&mut self, t: Reg) -> Tile {
        let m = self.plan.how.m as i64;
        let [_, across] = self.plan.conv.tiles(m);
        let b = &mut self.e.b;
        let across = b.i64(across);
        let (m_reg, t) = (b.i64(m), [b.div(t, across), b.rem(t, across)]);
        let grid = t.map(|t| b.mul(t, m_reg));
        let mut at = grid;
        for (at, n) in at.iter_mut().zip(self.plan.conv.size) {
            let last = b.i64(n - m);
            *at = b.min(*at, last);
        }
        Tile { grid, at }
    }

    /// `Σ factor * value`, left out where the factor is 0.
    fn combine(&mut self, lanes: u16, factors: &[f32], values: &[Option<Reg>]) -> Option<Reg> {
        let ty = Type::vector(DType::F32, lanes);
        let terms = factors.iter().zip(values).filter(|(f, _)| **f != 0.0);
        let mut terms: Vec<(f32, Reg)> = terms.filter_map(|(f, v)| Some((*f, (*v)?))).collect();
        // One that needs no product begins.
        terms.sort_by_key(|(f, _)| *f != 1.0);
        let mut sum: Option<Reg> = None;
        for (factor, value) in terms {
            let b = &mut self.e.b;
            sum = Some(match (sum, factor) {
                (None, 1.0) => value,
                (Some(sum), 1.0) => b.add(sum, value),
                (Some(sum), -1.0) => b.sub(sum, value),
                (before, _) => {
                    let factor = b.float(ty, f64::from(factor));
                    match before {
                        None => b.mul(value, factor),
                        Some(sum) => b.fma(value, factor, sum),
                    }
                }
            });
        }
        sum
    }

    fn transform_inputs(&mut self, first: Reg) {
        let (plan, how) = (self.plan, self.plan.how);
        let c = &plan.conv;
        let all = c.tiles(how.m as i64).iter().product::<i64>();
        let (zero, end, last) = (self.e.b.i64(0), self.e.b.i64(plan.block), self.e.b.i64(all - 1));
        let tt = self.e.b.begin_for(zero, end, 1);
        // The last block repeats the last tile: all of the work space is written.
        let t = self.e.b.add(first, tt);
        let t = self.e.b.min(t, last);
        let tile = self.tile(t);
        for (v, at) in c.space.iter().zip(tile.at) {
            self.e.vars.insert(*v, at);
        }
        c.window.iter().for_each(|k| {
            self.e.vars.insert(*k, zero);
        });
        self.e.vars.insert(c.inner, zero);
        let base = self.e.int(self.form.ops[c.x].flat);
        let channels = self.e.b.i64(c.inputs);
        let row = self.e.b.mul(tt, channels);
        let (whole, rest) = (c.inputs - c.inputs % plan.lanes, c.inputs % plan.lanes);
        let end = self.e.b.i64(whole);
        let i = self.e.b.begin_for(zero, end, plan.lanes);
        self.transform_channels(i, plan.lanes as u16, base, row);
        self.e.b.end();
        if rest > 0 {
            self.transform_channels(end, rest as u16, base, row);
        }
        self.e.b.end();
        for v in c.space.iter().chain(&c.window).chain([&c.inner]) {
            self.e.vars.remove(v);
        }
    }

    /// The transform of `lanes` channels of a tile from `i` on.
    fn transform_channels(&mut self, i: Reg, lanes: u16, base: Reg, row: Reg) {
        let (plan, how) = (self.plan, self.plan.how);
        let (c, n) = (&plan.conv, how.points);
        let (from, to) = (self.e.b.add(base, i), self.e.b.add(row, i));
        for p in 0..n {
            let mut sums = vec![];
            for b in 0..n {
                let mut values = vec![];
                for a in 0..n {
                    let used = how.input[p * n + a] != 0.0;
                    let disp = a as i64 * c.steps[0] + b as i64 * c.steps[1];
                    values.push(used.then(|| self.e.b.load(self.image, from, disp, lanes)));
                }
                sums.push(self.combine(lanes, &how.input[p * n..][..n], &values));
            }
            for q in 0..n {
                let Some(value) = self.combine(lanes, &how.input[q * n..][..n], &sums) else { continue };
                let disp = (p * n + q) as i64 * plan.block * c.inputs;
                self.e.b.store(self.inputs, to, disp, value);
            }
        }
    }

    /// The matrix products, one a point, for a range of output channels.
    fn multiply(&mut self, (first, last): (Reg, Reg)) {
        let plan = self.plan;
        let c = &plan.conv;
        let points = (plan.how.points * plan.how.points) as i64;
        let width = plan.nv * plan.lanes;
        let b = &mut self.e.b;
        let (zero, points) = (b.i64(0), b.i64(points));
        let p = b.begin_for(zero, points, 1);
        let (columns, each) = (b.i64(plan.padded() / width), b.i64(width));
        let (first, last) = (b.div(first, each), b.div(last, each));
        let j = b.begin_for(first, last, 1);
        let which = b.mul(p, columns);
        let which = b.add(which, j);
        let size = b.i64(c.inputs * width);
        let from = b.mul(which, size);
        let (ins, outs) = (b.i64(plan.block * c.inputs), b.i64(plan.block * plan.padded()));
        let (left, right) = (b.mul(p, ins), b.mul(p, outs));
        let column = b.mul(j, each);
        let right = b.add(right, column);
        let whole = plan.block - plan.block % plan.mr;
        let end = b.i64(whole);
        let r = b.begin_for(zero, end, plan.mr);
        self.product(r, plan.mr, left, from, right);
        self.e.b.end();
        if whole < plan.block {
            self.product(end, plan.block - whole, left, from, right);
        }
        self.e.b.end();
        self.e.b.end();
    }

    /// `rows` rows from `r` on of the product of one point with one block of columns.
    fn product(&mut self, r: Reg, rows: i64, left: Reg, from: Reg, right: Reg) {
        let plan = self.plan;
        let c = &plan.conv;
        let (lanes, nv) = (plan.lanes as u16, plan.nv);
        let b = &mut self.e.b;
        let zero = b.float(Type::vector(DType::F32, lanes), 0.0);
        let sums: Vec<_> = (0..rows * nv).map(|_| b.var_init(zero)).collect();
        let (inputs, outputs) = (b.i64(c.inputs), b.i64(plan.padded()));
        let (row, to) = (b.mul(r, inputs), b.mul(r, outputs));
        let (row, to) = (b.add(left, row), b.add(right, to));
        let (none, terms) = (b.i64(0), b.i64(c.inputs));
        let panel = b.i64(c.inputs * nv * plan.lanes);
        let (next, tiles) = (b.add(from, panel), (plan.block + plan.mr - 1) / plan.mr);
        let ahead = Ahead::new(b, self.weights, next, (nv * plan.lanes, c.inputs), (r, plan.mr), tiles);
        let k = b.begin_for(none, terms, UNROLL);
        let at = b.add(row, k);
        let ahead = ahead.map(|ahead| (ahead, ahead.at(b, k)));
        let width = b.i64(nv * plan.lanes);
        let k = b.mul(k, width);
        let weight = b.add(from, k);
        let mut values: Vec<Reg> = sums.iter().map(|s| b.get(*s)).collect();
        for u in 0..UNROLL {
            let vectors: Vec<Reg> =
                (0..nv).map(|v| b.load(self.weights, weight, (u * nv + v) * plan.lanes, lanes)).collect();
            for r in 0..rows {
                let x = b.load(self.inputs, at, r * c.inputs + u, 1);
                let x = b.splat(x, lanes);
                for (v, vector) in vectors.iter().enumerate() {
                    let sum = &mut values[(r * nv) as usize + v];
                    *sum = b.fma(*vector, x, *sum);
                }
            }
            if let Some((ahead, at)) = ahead {
                ahead.fetch(b, at, u);
            }
        }
        sums.iter().zip(&values).for_each(|(s, v)| b.set(*s, *v));
        b.end();
        for (n, s) in sums.iter().enumerate() {
            let (r, v) = (n as i64 / nv, n as i64 % nv);
            let value = b.get(*s);
            b.store(self.products, to, r * plan.padded() + v * plan.lanes, value);
        }
    }

    fn transform_products(&mut self, first: Reg, (from_channel, to_channel): (Reg, Reg)) {
        let (plan, how) = (self.plan, self.plan.how);
        let c = &plan.conv;
        let all = c.tiles(how.m as i64).iter().product::<i64>();
        let (zero, block, all) = (self.e.b.i64(0), self.e.b.i64(plan.block), self.e.b.i64(all));
        let left = self.e.b.sub(all, first);
        let end = self.e.b.min(block, left);
        let tt = self.e.b.begin_for(zero, end, 1);
        let t = self.e.b.add(first, tt);
        let tile = self.tile(t);
        let channels = self.e.b.i64(plan.padded());
        let row = self.e.b.mul(tt, channels);
        let (whole, rest) = (c.outputs - c.outputs % plan.lanes, c.outputs % plan.lanes);
        let last = self.e.b.i64(whole);
        let end = self.e.b.min(to_channel, last);
        let o = self.e.b.begin_for(from_channel, end, plan.lanes);
        self.outputs(&tile, row, o, plan.lanes as u16);
        self.e.b.end();
        if rest > 0 {
            let ours = self.e.b.cmp(Cmp::Eq, to_channel, channels);
            self.e.b.begin_if(ours);
            self.outputs(&tile, row, last, rest as u16);
            self.e.b.end();
        }
        self.e.b.end();
        for v in c.space.iter().chain([&c.channel]) {
            self.e.vars.remove(v);
        }
    }

    /// The outputs of a tile for `lanes` channels from `o` on.
    fn outputs(&mut self, tile: &Tile, row: Reg, o: Reg, lanes: u16) {
        let (plan, how) = (self.plan, self.plan.how);
        let (n, m) = (how.points, how.m as i64);
        self.e.vars.insert(plan.conv.channel, o);
        let from = self.e.b.add(row, o);
        for i in 0..m {
            let mut sums = vec![];
            for b in 0..n {
                let mut values = vec![];
                for a in 0..n {
                    let used = how.output[i as usize * n + a] != 0.0;
                    let disp = (a * n + b) as i64 * plan.block * plan.padded();
                    values.push(used.then(|| self.e.b.load(self.products, from, disp, lanes)));
                }
                sums.push(self.combine(lanes, &how.output[i as usize * n..][..n], &values));
            }
            let guarded = self.begin_new(tile, 0, i);
            for j in 0..m {
                let Some(value) = self.combine(lanes, &how.output[j as usize * n..][..n], &sums) else { continue };
                let inner = self.begin_new(tile, 1, j);
                if self.later {
                    self.e.lane = Some((plan.conv.channel, lanes));
                    self.e.store_flat(self.out, self.form.out, value);
                    self.e.lane = None;
                } else {
                    self.store(lanes, value);
                }
                if inner {
                    self.e.b.end();
                }
            }
            if guarded {
                self.e.b.end();
            }
        }
    }

    /// Puts an axis at output `k` of a tile. Where tiles overlap, what follows is done for outputs that the tile before does not
    /// have; true: a branch was opened.
    fn begin_new(&mut self, tile: &Tile, axis: usize, k: i64) -> bool {
        let b = &mut self.e.b;
        let offset = b.i64(k);
        let at = b.add(tile.at[axis], offset);
        self.e.vars.insert(self.plan.conv.space[axis], at);
        let m = self.plan.how.m as i64;
        let missing = (m - self.plan.conv.size[axis] % m) % m;
        // Of a tile that was moved back, the first outputs are those of the tile before.
        if k >= missing {
            return false;
        }
        let new = self.e.b.cmp(Cmp::Ge, at, tile.grid[axis]);
        self.e.b.begin_if(new);
        true
    }

    /// What follows the stored sums of a block, for a range of output channels.
    fn after(&mut self, first: Reg, (from_channel, to_channel): (Reg, Reg)) {
        let plan = self.plan;
        let c = &plan.conv;
        let m = plan.how.m as i64;
        let all = c.tiles(m).iter().product::<i64>();
        let b = &mut self.e.b;
        let (zero, block, all, m) = (b.i64(0), b.i64(plan.block), b.i64(all), b.i64(m));
        let left = b.sub(all, first);
        let end = b.min(block, left);
        let tt = b.begin_for(zero, end, 1);
        let t = b.add(first, tt);
        let tile = self.tile(t);
        for axis in [0, 1] {
            // Outputs before these are those of the tile before.
            let new = self.e.b.sub(tile.grid[axis], tile.at[axis]);
            let k = self.e.b.begin_for(new, m, 1);
            let at = self.e.b.add(tile.at[axis], k);
            self.e.vars.insert(c.space[axis], at);
        }
        let outputs = self.e.b.i64(c.outputs);
        let last = self.e.b.min(to_channel, outputs);
        let mut from = from_channel;
        // Two vectors at a time: one waits for itself.
        for lanes in [2 * plan.lanes, plan.lanes] {
            let (count, size) = (self.e.b.sub(last, from), self.e.b.i64(lanes));
            let rest = self.e.b.rem(count, size);
            let end = self.e.b.sub(last, rest);
            let o = self.e.b.begin_for(from, end, lanes);
            self.follow(o, lanes as u16);
            self.e.b.end();
            from = end;
        }
        let rest = c.outputs % plan.lanes;
        if rest > 0 {
            let some = self.e.b.cmp(Cmp::Lt, from, last);
            self.e.b.begin_if(some);
            self.follow(from, rest as u16);
            self.e.b.end();
        }
        for v in c.space {
            self.e.b.end();
            self.e.vars.remove(&v);
        }
        self.e.b.end();
        self.e.vars.remove(&c.channel);
    }

    /// What follows the stored sums of `lanes` channels from `o` on.
    fn follow(&mut self, o: Reg, lanes: u16) {
        self.e.vars.insert(self.plan.conv.channel, o);
        self.e.lane = Some((self.plan.conv.channel, lanes));
        let sum = self.e.load_flat(self.out, self.form.out);
        self.store(lanes, sum);
    }

    /// What follows the sum, and its store.
    fn store(&mut self, lanes: u16, value: Reg) {
        self.e.forget();
        self.e.locals.insert(self.sum, value);
        self.e.lane = Some((self.plan.conv.channel, lanes));
        let value = self.e.expr(self.form.epilogue);
        self.e.store_flat(self.out, self.form.out, value);
        self.e.lane = None;
        self.e.locals.remove(&self.sum);
        self.e.forget();
    }
}
