//! Operators that rank: the largest elements, the best boxes.

use super::counted::counted;
use super::kernels::{less, open};
use super::operand::Operand;
use super::sizes::{input_count, int_scalar, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg};
use crate::sym::Int;
use crate::te::{Cx, KernelCx, OpResult};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "TopK", top_k), ("", "NonMaxSuppression", non_max_suppression)];

fn top_k(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let axis = cx.axis(call.int("axis", -1)?, x.rank())?;
    if x.dtype == DType::Bool {
        return invalid("TopK of bools");
    }
    let count = if call.version < 10 {
        let Some(k) = call.opt_int("k")? else { return invalid("attribute 'k' is missing") };
        Int::new(k)
    } else {
        input_count(call, 2, 2)?;
        int_scalar(cx, call.input(1)?, "K")?
    };
    let largest = call.version < 11 || call.int("largest", 1)? != 0;
    let n = x.shape[axis];
    cx.require_at_most(Int::new(0), count, "K is negative")?;
    cx.require_at_most(count, n, "K is more than there is along the axis")?;
    // What the checks promise, as bounds.
    let count = count.max(0).min(n);
    let mut shape = x.shape.clone();
    shape[axis] = count;
    let (outer, inner) = (Int::product(&x.shape[..axis]), Int::product(&x.shape[axis + 1..]));
    let outputs = vec![(x.dtype, shape.clone()), (DType::I64, shape)];
    Ok(cx.custom("top_k", &[x.id], outputs, vec![], move |k| {
        let (outer, n, inner, count) = (k.int(outer), k.int(n), k.int(inner), k.int(count));
        let heap = |first| Heap { values: k.outputs[0], places: k.outputs[1], first, stride: inner, largest };
        let from = k.inputs[0];
        let b = &mut *k.b;
        let (zero, one) = (b.i64(0), b.i64(1));
        let (o, i) = {
            let index = open(b, &[outer, inner]);
            (index[0], index[1])
        };
        let row = b.mul(o, count);
        let row = b.mul(row, inner);
        let heap = heap(b.add(row, i));
        let base = b.mul(o, n);
        b.for_(zero, n, 1, |b, j| {
            let at = b.add(base, j);
            let at = b.mul(at, inner);
            let at = b.add(at, i);
            let v = b.load(from, at, 0, 1);
            let filling = b.cmp(Cmp::Lt, j, count);
            b.if_(
                filling,
                |b| heap.push(b, j, v, j),
                |b| {
                    let some = b.cmp(Cmp::Gt, count, zero);
                    b.if_(
                        some,
                        |b| {
                            let root = heap.get(b, zero);
                            let better = heap.before(b, (v, j), root);
                            b.if_(better, |b| heap.sink(b, count, v, j), |_| {});
                        },
                        |_| {},
                    );
                },
            );
        });
        // The worst of those left goes to the end, again and again.
        b.for_(one, count, 1, |b, j| {
            let end = b.sub(count, j);
            let (last, root) = (heap.get(b, end), heap.get(b, zero));
            heap.put(b, end, root);
            heap.sink(b, end, last.0, last.1);
        });
        super::kernels::close(b, 2);
    }))
}

/// A heap of elements with their positions, the worst at the root, spread over the two outputs.
struct Heap {
    values: Buf,
    places: Buf,
    first: Reg,
    stride: Reg,
    largest: bool,
}

impl Heap {
    fn at(&self, b: &mut Builder, slot: Reg) -> Reg {
        let offset = b.mul(slot, self.stride);
        b.add(self.first, offset)
    }

    fn get(&self, b: &mut Builder, slot: Reg) -> (Reg, Reg) {
        let at = self.at(b, slot);
        (b.load(self.values, at, 0, 1), b.load(self.places, at, 0, 1))
    }

    fn put(&self, b: &mut Builder, slot: Reg, (v, place): (Reg, Reg)) {
        let at = self.at(b, slot);
        b.store(self.values, at, 0, v);
        b.store(self.places, at, 0, place);
    }

    /// Does `x` come before `y` in the result? Equal values are in order of position.
    fn before(&self, b: &mut Builder, x: (Reg, Reg), y: (Reg, Reg)) -> Reg {
        let (better, worse) = (less(b, y.0, x.0), less(b, x.0, y.0));
        let (better, worse) = if self.largest { (better, worse) } else { (worse, better) };
        let tie = b.not(worse);
        let earlier = b.cmp(Cmp::Lt, x.1, y.1);
        let tie = b.and(tie, earlier);
        b.or(better, tie)
    }

    /// Adds an element to a heap of `size`.
    fn push(&self, b: &mut Builder, size: Reg, v: Reg, place: Reg) {
        let (zero, one) = (b.i64(0), b.i64(1));
        let slot = b.var_init(size);
        let yes = b.bool(true);
        let going = b.var_init(yes);
        b.begin_while();
        let (at, on) = (b.get(slot), b.get(going));
        let inside = b.cmp(Cmp::Gt, at, zero);
        let cond = b.and(on, inside);
        b.begin_body(cond);
        let parent = b.sub(at, one);
        let parent = b.shr(parent, one);
        let above = self.get(b, parent);
        let rises = self.before(b, above, (v, place));
        b.if_(
            rises,
            |b| {
                self.put(b, at, above);
                b.set(slot, parent);
            },
            |b| {
                let no = b.bool(false);
                b.set(going, no);
            },
        );
        b.end();
        let at = b.get(slot);
        self.put(b, at, (v, place));
    }

    /// Replaces the root of a heap of `size`.
    fn sink(&self, b: &mut Builder, size: Reg, v: Reg, place: Reg) {
        let (zero, one) = (b.i64(0), b.i64(1));
        let slot = b.var_init(zero);
        let yes = b.bool(true);
        let going = b.var_init(yes);
        b.begin_while();
        let (at, on) = (b.get(slot), b.get(going));
        let left = b.add(at, at);
        let left = b.add(left, one);
        let inside = b.cmp(Cmp::Lt, left, size);
        let cond = b.and(on, inside);
        b.begin_body(cond);
        let child = b.var_init(left);
        let right = b.add(left, one);
        let has_right = b.cmp(Cmp::Lt, right, size);
        b.if_(
            has_right,
            |b| {
                let (x, y) = (self.get(b, left), self.get(b, right));
                let right_is_worse = self.before(b, x, y);
                let worst = b.select(right_is_worse, right, left);
                b.set(child, worst);
            },
            |_| {},
        );
        let child = b.get(child);
        let below = self.get(b, child);
        let sinks = self.before(b, (v, place), below);
        b.if_(
            sinks,
            |b| {
                self.put(b, at, below);
                b.set(slot, child);
            },
            |b| {
                let no = b.bool(false);
                b.set(going, no);
            },
        );
        b.end();
        let at = b.get(slot);
        self.put(b, at, (v, place));
    }
}

fn non_max_suppression(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 5)?;
    let (boxes, scores) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    if boxes.rank() != 3 || scores.rank() != 3 || boxes.dtype != DType::F32 || scores.dtype != DType::F32 {
        return invalid("boxes and scores must be float tensors with 3 axes");
    }
    let center = match call.int("center_point_box", 0)? {
        0 => false,
        1 => true,
        other => return unsupported(format!("center_point_box {other}")),
    };
    let (batches, n, classes) = (boxes.shape[0], boxes.shape[1], scores.shape[1]);
    cx.require_equal(boxes.shape[2], Int::new(4), "numbers of a box")?;
    cx.require_equal(scores.shape[0], batches, "batches of boxes and scores")?;
    cx.require_equal(scores.shape[2], n, "boxes and scores")?;
    let each = match call.opt(2) {
        Some(t) => int_scalar(cx, t, "max_output_boxes_per_class")?.max(0).min(n),
        None => Int::new(0),
    };
    let mut inputs = vec![boxes.id, scores.id];
    let mut threshold = |cx: &mut Cx, k: usize, what: &str| -> OpResult<Option<usize>> {
        let Some(t) = call.opt(k) else { return Ok(None) };
        if cx.dtype(t) != DType::F32 {
            return invalid(format!("{what} must be a float"));
        }
        let count = cx.numel(t);
        cx.require_equal(count, Int::new(1), what)?;
        inputs.push(t);
        Ok(Some(inputs.len() - 1))
    };
    let iou = threshold(cx, 3, "iou_threshold")?;
    let least = threshold(cx, 4, "score_threshold")?;
    let most = batches * classes * each;
    let outputs = vec![(DType::I64, vec![most, Int::new(3)]), (DType::I64, vec![Int::new(1)])];
    let out = cx.custom("non_max_suppression", &inputs, outputs, vec![(DType::I64, n)], move |k| {
        let sizes = super::kernels::dims(k, &[batches, classes, n, each]);
        suppress(k, &sizes, center, iou, least);
    });
    let count = counted(cx, out[1], most);
    let rows = Operand::of(cx, out[0]);
    Ok(vec![cx.map(DType::I64, vec![count, Int::new(3)], |i| rows.at(i))])
}

/// For each batch and class: takes the best box that is left, drops all that overlap it too much, and so on.
fn suppress(k: &mut KernelCx<'_>, sizes: &[Reg], center: bool, iou: Option<usize>, least: Option<usize>) {
    let [batches, classes, n, each] = *sizes else { return };
    let (boxes, scores, rows, count, left) = (k.inputs[0], k.inputs[1], k.outputs[0], k.outputs[1], k.scratch[0]);
    let (iou, least) = (iou.map(|i| k.inputs[i]), least.map(|i| k.inputs[i]));
    let b = &mut *k.b;
    let (zero, one) = (b.i64(0), b.i64(1));
    let limit = match iou {
        Some(buf) => b.load(buf, zero, 0, 1),
        None => b.f32(0.0),
    };
    let found = b.var_init(zero);
    let index = open(b, &[batches, classes]);
    let (batch, class) = (index[0], index[1]);
    let row = b.mul(batch, classes);
    let row = b.add(row, class);
    let first_score = b.mul(row, n);
    let first_box = b.mul(batch, n);
    // Candidates above the threshold.
    let size = b.var_init(zero);
    b.for_(zero, n, 1, |b, i| {
        let at = b.add(first_score, i);
        let score = b.load(scores, at, 0, 1);
        let good = match least {
            Some(buf) => {
                let least = b.load(buf, zero, 0, 1);
                b.cmp(Cmp::Gt, score, least)
            }
            None => b.bool(true),
        };
        b.if_(
            good,
            |b| {
                let at = b.get(size);
                b.store(left, at, 0, i);
                let next = b.add(at, one);
                b.set(size, next);
            },
            |_| {},
        );
    });
    let taken = b.var_init(zero);
    b.begin_while();
    let (have, done) = (b.get(size), b.get(taken));
    let (some, room) = (b.cmp(Cmp::Gt, have, zero), b.cmp(Cmp::Lt, done, each));
    let cond = b.and(some, room);
    b.begin_body(cond);
    // The best of them; the first of equals.
    let score_of = |b: &mut Builder, i: Reg| {
        let at = b.add(first_score, i);
        b.load(scores, at, 0, 1)
    };
    let first = b.load(left, zero, 0, 1);
    let best = b.var_init(first);
    let score = score_of(b, first);
    let top = b.var_init(score);
    b.for_(one, have, 1, |b, j| {
        let i = b.load(left, j, 0, 1);
        let score = score_of(b, i);
        let so_far = b.get(top);
        let better = less(b, so_far, score);
        b.if_(
            better,
            |b| {
                b.set(best, i);
                b.set(top, score);
            },
            |_| {},
        );
    });
    let best = b.get(best);
    let place = b.get(found);
    let three = b.i64(3);
    let at = b.mul(place, three);
    for (column, v) in [batch, class, best].into_iter().enumerate() {
        b.store(rows, at, column as i64, v);
    }
    let next = b.add(place, one);
    b.set(found, next);
    let next = b.add(done, one);
    b.set(taken, next);
    let chosen = area(b, boxes, first_box, best, center);
    let kept = b.var_init(zero);
    b.for_(zero, have, 1, |b, j| {
        let i = b.load(left, j, 0, 1);
        let other = area(b, boxes, first_box, i, center);
        let overlap = overlaps(b, &other, &chosen, limit);
        let itself = b.cmp(Cmp::Eq, i, best);
        let gone = b.or(overlap, itself);
        b.if_(
            gone,
            |_| {},
            |b| {
                let at = b.get(kept);
                b.store(left, at, 0, i);
                let next = b.add(at, one);
                b.set(kept, next);
            },
        );
    });
    let kept = b.get(kept);
    b.set(size, kept);
    b.end();
    super::kernels::close(b, 2);
    let total = b.get(found);
    b.store(count, zero, 0, total);
}

/// The lower and upper ends of a box along both axes.
fn area(b: &mut Builder, boxes: Buf, first: Reg, i: Reg, center: bool) -> [(Reg, Reg); 2] {
    let four = b.i64(4);
    let at = b.add(first, i);
    let at = b.mul(at, four);
    let v: Vec<Reg> = (0..4).map(|d| b.load(boxes, at, d, 1)).collect();
    let mut ends = |low: Reg, high: Reg| {
        if center {
            let two = b.f32(2.0);
            let half = b.div(high, two);
            (b.sub(low, half), b.add(low, half))
        } else {
            (b.min(low, high), b.max(low, high))
        }
    };
    [ends(v[0], v[2]), ends(v[1], v[3])]
}

/// Is the intersection over the union of two boxes above `limit`? Boxes without area overlap nothing.
fn overlaps(b: &mut Builder, x: &[(Reg, Reg); 2], y: &[(Reg, Reg); 2], limit: Reg) -> Reg {
    let mut sides = vec![];
    for axis in 0..2 {
        let (low, high) = (b.max(x[axis].0, y[axis].0), b.min(x[axis].1, y[axis].1));
        sides.push(b.sub(high, low));
    }
    let mut size = |a: &[(Reg, Reg); 2]| {
        let (h, w) = (b.sub(a[0].1, a[0].0), b.sub(a[1].1, a[1].0));
        b.mul(w, h)
    };
    let (first, second) = (size(x), size(y));
    let common = b.mul(sides[1], sides[0]);
    let both = b.add(first, second);
    let union = b.sub(both, common);
    let ratio = b.div(common, union);
    let mut over = b.cmp(Cmp::Gt, ratio, limit);
    let nothing = b.f32(0.0);
    for v in [sides[0], sides[1], first, second, union] {
        let positive = b.cmp(Cmp::Gt, v, nothing);
        over = b.and(over, positive);
    }
    over
}
