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

mod emit;

use super::after;
use super::form::{Form, coef, extent, varies};
use super::target::Target;
use crate::dtype::DType;
use crate::kernel::ir::Access;
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

/// Terms that a step of the products adds up.
const UNROLL: i64 = 4;

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

/// `n` rounded up to a multiple of `step`.
fn up(n: i64, step: i64) -> i64 {
    (n + step - 1) / step * step
}

fn count(v: VarId) -> Option<i64> {
    extent(v).as_const()
}

fn step(flat: Int, v: VarId) -> Option<i64> {
    coef(flat, v)?.as_const()
}

impl Conv {
    fn of(form: &Form) -> Option<Conv> {
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
        let terms = [conv.size[0], conv.size[1], conv.outputs, conv.inputs].into_iter();
        let counted = terms.map(|n| n.saturating_add(64)).try_fold(1i64, i64::checked_mul).is_some_and(|n| n < 1 << 50);
        let fits = counted && conv.inputs % UNROLL == 0 && step(form.out, channel) == Some(1);
        (plain && fits).then_some(conv)
    }

    /// Tiles along rows and columns.
    fn tiles(&self, m: i64) -> [i64; 2] {
        self.size.map(|n| (n + m - 1) / m)
    }
}

/// How the tiles are done.
pub(super) struct Plan {
    how: &'static Transform,
    conv: Conv,
    lanes: i64,
    /// Vectors of output channels, the last one filled up.
    columns: i64,
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
const FAR: f64 = 4.0;

impl Plan {
    fn of(how: &'static Transform, conv: Conv, target: &Target) -> Option<Plan> {
        let (m, lanes) = (how.m as i64, i64::from(target.lanes));
        if conv.size.iter().any(|n| *n < m) {
            return None;
        }
        let all = conv.tiles(m).iter().product::<i64>();
        let points = (how.points * how.points) as i64;
        // Transformed inputs and products of a block stay in half of the cache; several blocks for several threads.
        let columns = up(conv.outputs, lanes) / lanes;
        let each = points * (conv.inputs + columns * lanes) * 4;
        let fit = (i64::from(target.cache) / 2 / each).clamp(1, 56);
        let blocks = (all + fit - 1) / fit;
        let block = (all + blocks - 1) / blocks;
        let blocks = (all + block - 1) / block;
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
        let weights = (points * conv.inputs * columns * lanes * 4) as f64;
        let far = if weights > f64::from(target.cache) / 2.0 { weights * blocks as f64 / FAR } else { 0.0 };
        // Instructions of both transforms for one vector of channels, at two and a half a cycle.
        let moves = (points * 6) as f64 / 2.5;
        let vectors = up(conv.inputs, lanes) / lanes * splits + columns;
        let transforms = (all * vectors) as f64 * moves;
        // What comes from afar is partly hidden behind the products.
        let cycles = products.max(far) + 0.5 * products.min(far) + transforms;
        Some(Plan { how, conv, lanes, columns, block, blocks, splits, mr, nv, cycles })
    }

    /// Output channels with those that fill up the last vector.
    fn padded(&self) -> i64 {
        self.columns * self.lanes
    }
}

/// The ways to do a convolution like this, the fastest by the estimates first, and whether that is faster than the plain sum.
pub(super) fn plans(program: &Program, form: &Form, target: &Target, sum: TensorId) -> (bool, Vec<Plan>) {
    let single = |t: TensorId| program.tensor(t).dtype == DType::F32;
    let floats = single(sum) && form.ops.iter().all(|op| single(op.tensor));
    if !floats || form.exact.is_some() || target.lanes < 8 {
        return (false, vec![]);
    }
    let found = [&F4, &F2].into_iter().filter_map(|how| Plan::of(how, Conv::of(form)?, target));
    let readable = |plan: &Plan| form.ops[1 - plan.conv.x].data.as_ref().is_some_and(|w| w.reader().is_some());
    let mut plans: Vec<Plan> = found.filter(readable).collect();
    plans.sort_by(|a, b| a.cycles.total_cmp(&b.cycles));
    let pays = plans.first().is_some_and(|plan| {
        let c = &plan.conv;
        let terms = (c.size[0] * c.size[1] * c.outputs * c.inputs * 9) as f64;
        let direct = terms / (2.0 * f64::from(target.lanes)) / 0.85;
        plan.cycles <= 0.85 * direct
    });
    (pays, plans)
}

/// The kernel of a convolution done by a plan for it.
pub(super) fn generate(
    program: &Program,
    form: &Form,
    plan: &Plan,
    sum: TensorId,
    out: TensorId,
) -> Option<LoweredKernel> {
    let c = &plan.conv;
    let weights = transformed_weights(form, plan)?;
    let mut e = Emit::new(program, &program.tensor(sum).node, true);
    let points = (plan.how.points * plan.how.points) as i64;
    let image = e.tensor_buf(form.ops[c.x].tensor, Access::Read);
    let weights = e.packed_buf(DType::F32, Arc::new(weights));
    let (target, out) = (out, e.tensor_buf(out, Access::Write));
    let inputs = e.scratch_buf(DType::F32, Int::new(points * plan.block * c.inputs));
    let products = e.scratch_buf(DType::F32, Int::new(points * plan.block * plan.padded()));
    let later = after::passes(program, form, sum, target).contains(&after::Pass::After);
    let mut g = emit::Gen { e, form, plan, sum, image, weights, out, inputs, products, later };
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
    let (inputs, outputs, padded) = (c.inputs as usize, c.outputs as usize, plan.padded() as usize);
    let mut all = vec![0f32; n * n * inputs * padded];
    let factor = |p: usize, a: usize| f64::from(how.weights[p * 3 + a]);
    for o in 0..outputs {
        for i in 0..inputs {
            let w = &raw[(o * inputs + i) * 9..][..9];
            for p in 0..n {
                // One row of the left product, for three columns.
                let row: [f64; 3] = core::array::from_fn(|b| (0..3).map(|a| factor(p, a) * w[a * 3 + b]).sum());
                for q in 0..n {
                    let value: f64 = (0..3).map(|b| factor(q, b) * row[b]).sum();
                    let block = (p * n + q) * (padded / width) + o / width;
                    all[(block * inputs + i) * width + o % width] = value as f32;
                }
            }
        }
    }
    Some(all.iter().flat_map(|w| w.to_le_bytes()).collect())
}
