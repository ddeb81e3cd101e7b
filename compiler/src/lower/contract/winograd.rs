//! Winograd's minimal filtering: convolutions of 3×3 windows with step 1, by products of transformed tiles.
//!
//! `F(m, 3)` computes m × m outputs of a channel from (m + 2)² products instead of 9 m²: 4 times fewer for m = 4, 2.25 times for
//! m = 2. A block of tiles is transformed into work space, one matrix product for each of the (m + 2)² points runs over its
//! channels, and the results are transformed back and stored with all that follows the convolution. The weights are
//! transformed when the model is packed.
//!
//! Transforms by Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015), interpolation points 0, ±1, ±2.
//! With them rounding errors are larger than those of the sum itself: in `F32` below 1e-5 of the sum of the absolute products,
//! as a test asserts; half types and `F64` are not done this way.

use super::form::{Form, coef, extent, varies};
use super::target::Target;
use crate::dtype::DType;
use crate::kernel::ir::{Access, Buf, Cmp, Reg, Type};
use crate::lower::LoweredKernel;
use crate::lower::emit::Emit;
use crate::sym::{Int, VarId};
use crate::te::{Program, TensorId};
use std::sync::Arc;

/// The matrices of `F(m, 3)`, row by row.
struct Transform {
    /// Outputs of a tile along an axis.
    m: usize,
    /// Inputs of a tile along an axis: m + 2.
    points: usize,
    /// Of the inputs: points × points.
    input: &'static [f32],
    /// Of the weights: points × 3.
    weights: &'static [f32],
    /// Of the products: m × points.
    output: &'static [f32],
}

const F2: Transform = Transform {
    m: 2,
    points: 4,
    #[rustfmt::skip]
    input: &[
        1., 0., -1., 0.,
        0., 1., 1., 0.,
        0., -1., 1., 0.,
        0., 1., 0., -1.,
    ],
    weights: &[1., 0., 0., 0.5, 0.5, 0.5, 0.5, -0.5, 0.5, 0., 0., 1.],
    output: &[1., 1., 1., 0., 0., 1., -1., -1.],
};

const F4: Transform = Transform {
    m: 4,
    points: 6,
    #[rustfmt::skip]
    input: &[
        4., 0., -5., 0., 1., 0.,
        0., -4., -4., 1., 1., 0.,
        0., 4., -4., -1., 1., 0.,
        0., -2., -1., 2., 1., 0.,
        0., 2., -1., -2., 1., 0.,
        0., 4., 0., -5., 0., 1.,
    ],
    #[rustfmt::skip]
    weights: &[
        1. / 4., 0., 0.,
        -1. / 6., -1. / 6., -1. / 6.,
        -1. / 6., 1. / 6., -1. / 6.,
        1. / 24., 1. / 12., 1. / 6.,
        1. / 24., -1. / 12., 1. / 6.,
        0., 0., 1.,
    ],
    #[rustfmt::skip]
    output: &[
        1., 1., 1., 1., 1., 0.,
        0., 1., -1., 2., -2., 0.,
        0., 1., 1., 4., 4., 0.,
        0., 1., -1., 8., -8., 1.,
    ],
};

/// A convolution that can be done this way.
struct Conv {
    /// Which operand is the image.
    x: usize,
    /// Rows and columns of the output, its channels; everything else.
    space: [VarId; 2],
    channel: VarId,
    batch: Vec<VarId>,
    /// Rows and columns of the window, channels of the image.
    window: [VarId; 2],
    inner: VarId,
    /// Their extents.
    size: [i64; 2],
    outputs: i64,
    inputs: i64,
    /// Distance in the image between rows and between columns.
    steps: [i64; 2],
}

fn count(v: VarId) -> Option<i64> {
    extent(v).as_const()
}

fn step(flat: Int, v: VarId) -> Option<i64> {
    coef(flat, v)?.as_const()
}

impl Conv {
    fn of(form: &Form, lanes: i64) -> Option<Conv> {
        let x = form.ops.iter().position(|op| op.data.is_none())?;
        let (image, weights) = (form.ops[x].flat, form.ops[1 - x].data.as_ref()?.flat);
        let inner = *form.ks.iter().find(|k| step(image, **k) == Some(1) && count(**k) != Some(3))?;
        let mut pairs = vec![];
        for k in form.ks.iter().copied().filter(|k| *k != inner) {
            let along = step(image, k)?;
            let v = form.vars.iter().copied().find(|v| step(image, *v) == Some(along) && !varies(weights, *v))?;
            (count(k) == Some(3)).then(|| pairs.push((along, v, k)))?;
        }
        pairs.sort_by_key(|(along, ..)| core::cmp::Reverse(*along));
        let [(row, h, kh), (column, w, kw)] = pairs[..] else { return None };
        let channel = *form.vars.iter().find(|v| varies(weights, **v))?;
        let batch: Vec<VarId> = form.vars.iter().copied().filter(|v| ![h, w, channel].contains(v)).collect();
        let plain = batch.iter().all(|v| !varies(weights, *v)) && !varies(image, channel);
        let conv = Conv {
            x,
            space: [h, w],
            channel,
            batch,
            window: [kh, kw],
            inner,
            size: [count(h)?, count(w)?],
            outputs: count(channel)?,
            inputs: count(inner)?,
            steps: [row, column],
        };
        let whole = conv.outputs % lanes == 0 && conv.inputs % lanes == 0;
        (plain && whole && step(form.out, channel) == Some(1)).then_some(conv)
    }

    /// Tiles along rows and columns.
    fn tiles(&self, m: i64) -> [i64; 2] {
        self.size.map(|n| (n + m - 1) / m)
    }
}

/// How the tiles are done.
struct Plan {
    how: &'static Transform,
    conv: Conv,
    lanes: i64,
    /// Tiles of a block, of which there are `blocks`.
    block: i64,
    blocks: i64,
    /// Parts of the output channels, each of which transforms the inputs for itself: for several threads where there are few
    /// blocks.
    splits: i64,
    /// Rows and vectors of a register tile of the matrix products.
    mr: i64,
    nv: i64,
    cycles: f64,
}

/// Bytes a cycle that come from beyond the second-level cache.
const FAR: f64 = 8.0;

impl Plan {
    fn of(how: &'static Transform, conv: Conv, target: &Target) -> Option<Plan> {
        let (m, lanes) = (how.m as i64, i64::from(target.lanes));
        if conv.size.iter().any(|n| *n < m) {
            return None;
        }
        let all = conv.tiles(m).iter().product::<i64>();
        let points = (how.points * how.points) as i64;
        // Transformed inputs and products of a block stay in half of the cache; several blocks for several threads.
        let each = points * (conv.inputs + conv.outputs) * 4;
        let fit = (i64::from(target.cache) / 2 / each).clamp(1, 56);
        let blocks = (all + fit - 1) / fit;
        let block = (all + blocks - 1) / blocks;
        let blocks = (all + block - 1) / block;
        let columns = conv.outputs / lanes;
        let per_term = |rows: i64, nv: i64| ((rows * nv) as f64 / 2.0).max((rows + nv) as f64 / 2.0).max(4.0) + 0.25;
        let mut best: Option<(f64, i64, i64)> = None;
        for nv in (1..=4).filter(|nv| columns % nv == 0) {
            for mr in (1..=14).filter(|mr| mr * nv + nv + 1 < i64::from(target.regs)) {
                let mut cost = (block / mr) as f64 * per_term(mr, nv);
                if block % mr > 0 {
                    cost += per_term(block % mr, nv);
                }
                let cost = cost * (columns / nv) as f64;
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, mr, nv));
                }
            }
        }
        let (per_point, mr, nv) = best?;
        let splits = [4, 2].into_iter().find(|n| blocks < 4 && columns / nv % n == 0).unwrap_or(1);
        let products = per_point * (points * conv.inputs * blocks) as f64;
        let weights = (points * conv.inputs * conv.outputs * 4) as f64;
        let far = if weights > f64::from(target.cache) / 2.0 { weights * blocks as f64 / FAR } else { 0.0 };
        // Instructions of both transforms for one vector of channels, at two and a half a cycle.
        let moves = (points * 6) as f64 / 2.5;
        let transforms = (all * (conv.inputs * splits + conv.outputs) / lanes) as f64 * moves;
        // What comes from afar is partly hidden behind the products.
        let cycles = products.max(far) + 0.5 * products.min(far) + transforms;
        Some(Plan { how, conv, lanes, block, blocks, splits, mr, nv, cycles })
    }
}

/// The kernel of a convolution for which this pays; nothing otherwise.
pub(super) fn lower(
    program: &Program,
    form: &Form,
    target: &Target,
    sum: TensorId,
    out: TensorId,
) -> Option<LoweredKernel> {
    let single = |t: TensorId| program.tensor(t).dtype == DType::F32;
    let floats = single(sum) && form.ops.iter().all(|op| single(op.tensor));
    if !floats || form.exact.is_some() || target.lanes < 8 {
        return None;
    }
    let mut best: Option<Plan> = None;
    for how in [&F4, &F2] {
        let Some(plan) = Conv::of(form, i64::from(target.lanes)).and_then(|c| Plan::of(how, c, target)) else {
            continue;
        };
        if best.as_ref().is_none_or(|b| plan.cycles < b.cycles) {
            best = Some(plan);
        }
    }
    let plan = best?;
    let c = &plan.conv;
    let terms = (c.size[0] * c.size[1] * c.outputs * c.inputs * 9) as f64;
    let direct = terms / (2.0 * f64::from(target.lanes)) / 0.85;
    if plan.cycles > 0.85 * direct {
        return None;
    }
    let weights = transformed_weights(form, &plan)?;
    let mut e = Emit::new(program, &program.tensor(sum).node, true);
    let points = (plan.how.points * plan.how.points) as i64;
    let image = e.tensor_buf(form.ops[c.x].tensor, Access::Read);
    let weights = e.packed_buf(DType::F32, Arc::new(weights));
    let out = e.tensor_buf(out, Access::Write);
    let inputs = e.scratch_buf(DType::F32, Int::new(points * plan.block * c.inputs));
    let products = e.scratch_buf(DType::F32, Int::new(points * plan.block * c.outputs));
    let mut g = Gen { e, form, plan: &plan, sum, image, weights, out, inputs, products };
    let units = g.run();
    Some(g.e.finish(Some(units)))
}

/// The transformed weights as the products read them: `[point][block of columns][input channel][column]`.
fn transformed_weights(form: &Form, plan: &Plan) -> Option<Vec<u8>> {
    let (c, how) = (&plan.conv, plan.how);
    let source = form.ops[1 - c.x].data.as_ref()?;
    let reader = source.reader()?;
    let mut raw = Vec::with_capacity((c.outputs * c.inputs * 9 * 4) as usize);
    for o in 0..c.outputs {
        for i in 0..c.inputs {
            for (a, b) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
                let at = reader.base() + o * reader.step(c.channel) + i * reader.step(c.inner);
                reader.append(at + a * reader.step(c.window[0]) + b * reader.step(c.window[1]), &mut raw);
            }
        }
    }
    let raw: Vec<f64> = raw.chunks_exact(4).map(|w| f64::from(f32::from_le_bytes([w[0], w[1], w[2], w[3]]))).collect();
    let n = how.points;
    let width = (plan.nv * plan.lanes) as usize;
    let (inputs, outputs) = (c.inputs as usize, c.outputs as usize);
    let mut all = vec![0f32; n * n * inputs * outputs];
    let factor = |p: usize, a: usize| f64::from(how.weights[p * 3 + a]);
    for o in 0..outputs {
        for i in 0..inputs {
            let w = &raw[(o * inputs + i) * 9..][..9];
            for p in 0..n {
                // One row of the left product, for three columns.
                let row: [f64; 3] = core::array::from_fn(|b| (0..3).map(|a| factor(p, a) * w[a * 3 + b]).sum());
                for q in 0..n {
                    let value: f64 = (0..3).map(|b| factor(q, b) * row[b]).sum();
                    let block = (p * n + q) * (outputs / width) + o / width;
                    all[(block * inputs + i) * width + o % width] = value as f32;
                }
            }
        }
    }
    Some(all.iter().flat_map(|w| w.to_le_bytes()).collect())
}

struct Gen<'a, 'p> {
    e: Emit<'p>,
    form: &'a Form,
    plan: &'a Plan,
    sum: TensorId,
    image: Buf,
    weights: Buf,
    out: Buf,
    /// `[point][tile][input channel]`.
    inputs: Buf,
    /// `[point][tile][output channel]`.
    products: Buf,
}

/// A tile: its first row and column as the grid has them, and where it is moved to so that it ends with the image.
struct Tile {
    grid: [Reg; 2],
    at: [Reg; 2],
}

impl Gen<'_, '_> {
    /// Emits everything; gives the number of work units.
    fn run(&mut self) -> Int {
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
        let size = self.e.b.i64(plan.conv.outputs / plan.splits);
        let from = self.e.b.mul(part, size);
        let channels = (from, self.e.b.add(from, size));
        self.transform_inputs(first);
        self.multiply(channels);
        self.transform_products(first, channels);
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
    fn combine(&mut self, factors: &[f32], values: &[Option<Reg>]) -> Option<Reg> {
        let ty = Type::vector(DType::F32, self.plan.lanes as u16);
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
        let (c, n) = (&plan.conv, how.points);
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
        let i = self.e.b.begin_for(zero, channels, plan.lanes);
        let (from, to) = (self.e.b.add(base, i), self.e.b.add(row, i));
        for p in 0..n {
            let mut sums = vec![];
            for b in 0..n {
                let mut values = vec![];
                for a in 0..n {
                    let used = how.input[p * n + a] != 0.0;
                    let disp = a as i64 * c.steps[0] + b as i64 * c.steps[1];
                    values.push(used.then(|| self.e.b.load(self.image, from, disp, plan.lanes as u16)));
                }
                sums.push(self.combine(&how.input[p * n..][..n], &values));
            }
            for q in 0..n {
                let Some(value) = self.combine(&how.input[q * n..][..n], &sums) else { continue };
                let disp = (p * n + q) as i64 * plan.block * c.inputs;
                self.e.b.store(self.inputs, to, disp, value);
            }
        }
        self.e.b.end();
        self.e.b.end();
        for v in c.space.iter().chain(&c.window).chain([&c.inner]) {
            self.e.vars.remove(v);
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
        let (columns, each) = (b.i64(c.outputs / width), b.i64(width));
        let (first, last) = (b.div(first, each), b.div(last, each));
        let j = b.begin_for(first, last, 1);
        let which = b.mul(p, columns);
        let which = b.add(which, j);
        let size = b.i64(c.inputs * width);
        let from = b.mul(which, size);
        let (ins, outs) = (b.i64(plan.block * c.inputs), b.i64(plan.block * c.outputs));
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
        let (inputs, outputs) = (b.i64(c.inputs), b.i64(c.outputs));
        let (row, to) = (b.mul(r, inputs), b.mul(r, outputs));
        let (row, to) = (b.add(left, row), b.add(right, to));
        let (none, terms) = (b.i64(0), b.i64(c.inputs));
        let unroll = 4;
        let k = b.begin_for(none, terms, unroll);
        let at = b.add(row, k);
        let width = b.i64(nv * plan.lanes);
        let k = b.mul(k, width);
        let weight = b.add(from, k);
        let mut values: Vec<Reg> = sums.iter().map(|s| b.get(*s)).collect();
        for u in 0..unroll {
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
        }
        sums.iter().zip(&values).for_each(|(s, v)| b.set(*s, *v));
        b.end();
        for (n, s) in sums.iter().enumerate() {
            let (r, v) = (n as i64 / nv, n as i64 % nv);
            let value = b.get(*s);
            b.store(self.products, to, r * c.outputs + v * plan.lanes, value);
        }
    }

    fn transform_products(&mut self, first: Reg, (from_channel, to_channel): (Reg, Reg)) {
        let (plan, how) = (self.plan, self.plan.how);
        let (c, n, m) = (&plan.conv, how.points, how.m as i64);
        let all = c.tiles(m).iter().product::<i64>();
        let (zero, block, all) = (self.e.b.i64(0), self.e.b.i64(plan.block), self.e.b.i64(all));
        let left = self.e.b.sub(all, first);
        let end = self.e.b.min(block, left);
        let tt = self.e.b.begin_for(zero, end, 1);
        let t = self.e.b.add(first, tt);
        let tile = self.tile(t);
        let channels = self.e.b.i64(c.outputs);
        let row = self.e.b.mul(tt, channels);
        let o = self.e.b.begin_for(from_channel, to_channel, plan.lanes);
        self.e.vars.insert(c.channel, o);
        let from = self.e.b.add(row, o);
        for i in 0..m {
            let mut sums = vec![];
            for b in 0..n {
                let mut values = vec![];
                for a in 0..n {
                    let used = how.output[i as usize * n + a] != 0.0;
                    let disp = (a * n + b) as i64 * plan.block * c.outputs;
                    values.push(used.then(|| self.e.b.load(self.products, from, disp, plan.lanes as u16)));
                }
                sums.push(self.combine(&how.output[i as usize * n..][..n], &values));
            }
            let guarded = self.begin_new(&tile, 0, i);
            for j in 0..m {
                let Some(value) = self.combine(&how.output[j as usize * n..][..n], &sums) else { continue };
                let inner = self.begin_new(&tile, 1, j);
                self.store(value);
                if inner {
                    self.e.b.end();
                }
            }
            if guarded {
                self.e.b.end();
            }
        }
        self.e.b.end();
        self.e.b.end();
        for v in c.space.iter().chain([&c.channel]) {
            self.e.vars.remove(v);
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

    /// What follows the sum, and its store.
    fn store(&mut self, value: Reg) {
        self.e.forget();
        self.e.locals.insert(self.sum, value);
        self.e.lane = Some((self.plan.conv.channel, self.plan.lanes as u16));
        let value = self.e.expr(self.form.epilogue);
        self.e.store_flat(self.out, self.form.out, value);
        self.e.lane = None;
        self.e.locals.remove(&self.sum);
        self.e.forget();
    }
}
