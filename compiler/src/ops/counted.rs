//! Operators whose output size is found while they run: the kernel fills a buffer of the largest size and counts.

use super::kernels::{close, dims, less, open};
use super::narrow::mark;
use super::operand::Operand;
use super::sizes::{input_count, invalid};
use super::strings::is_text;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::kernel::ir::{Cmp, Type};
use crate::sym::Int;
use crate::te::{Cx, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "NonZero", non_zero), ("", "Compress", compress), ("", "Unique", unique)];

/// The number in the one-element tensor `count`, which lies within `0..=most`.
pub(super) fn counted(cx: &mut Cx, count: TensorId, most: Int) -> Int {
    match cx.ints(count).as_deref() {
        Some([known]) => *known,
        _ => cx.read(count, 0, "count", Some(0), most.bounds().hi),
    }
}

/// The first `n` entries along the last axis of `t`.
fn first(cx: &mut Cx, t: TensorId, n: Int) -> TensorId {
    let x = Operand::of(cx, t);
    let mut out = x.shape.clone();
    if let Some(last) = out.last_mut() {
        *last = n;
    }
    cx.map(x.dtype, out, |i| x.at(i))
}

fn non_zero(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let rank = x.rank();
    let n = Int::product(&x.shape);
    let sizes: Option<Vec<i64>> = x.shape.iter().map(|d| d.as_const()).collect();
    // Exporters apply this to constants to write down a list of positions.
    if let (Some(sizes), Some(values)) = (sizes, cx.const_floats(x.id)) {
        let hits: Vec<usize> = (0..values.len()).filter(|k| values[*k] != 0.0).collect();
        let mut rows = vec![];
        for axis in 0..rank {
            let inner: i64 = sizes[axis + 1..].iter().product();
            rows.extend(hits.iter().map(|h| *h as i64 / inner % sizes[axis]));
        }
        return Ok(vec![cx.constant_i64(&[rank, hits.len()], &rows)]);
    }
    let shape = x.shape.clone();
    let outputs = vec![(DType::I64, vec![Int::from(rank), n]), (DType::I64, vec![Int::new(1)])];
    let out = cx.custom("non_zero", &[x.id], outputs, vec![], move |k| {
        let (from, rows, count) = (k.inputs[0], k.outputs[0], k.outputs[1]);
        let (sizes, stride) = (dims(k, &shape), k.int(Int::product(&shape)));
        let zero = k.b.i64(0);
        let found = k.b.var_init(zero);
        let at = k.b.var_init(zero);
        let index = open(k.b, &sizes);
        let here = k.b.get(at);
        let v = k.b.load(from, here, 0, 1);
        let ty = k.b.ty(v);
        let nothing = k.b.int(ty, 0);
        let hit = k.b.cmp(Cmp::Ne, v, nothing);
        k.b.if_(
            hit,
            |b| {
                let place = b.get(found);
                for (axis, i) in index.iter().enumerate() {
                    let row = b.i64(axis as i64);
                    let row = b.mul(row, stride);
                    let to = b.add(row, place);
                    b.store(rows, to, 0, *i);
                }
                let one = b.i64(1);
                let next = b.add(place, one);
                b.set(found, next);
            },
            |_| {},
        );
        let one = k.b.i64(1);
        let next = k.b.add(here, one);
        k.b.set(at, next);
        close(k.b, sizes.len());
        let total = k.b.get(found);
        k.b.store(count, zero, 0, total);
    });
    let count = counted(cx, out[1], n);
    Ok(vec![first(cx, out[0], count)])
}

fn compress(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 2, 2)?;
    let (mut x, condition) = (Operand::of(cx, call.input(0)?), Operand::of(cx, call.input(1)?));
    if condition.rank() != 1 || condition.dtype != DType::Bool {
        return invalid("the condition must be a list of bools");
    }
    let axis = match call.opt_int("axis")? {
        Some(axis) => cx.axis(axis, x.rank())?,
        None => {
            let all = cx.numel(x.id);
            let list = cx.view(x.id, vec![all]);
            x = Operand::of(cx, list);
            0
        }
    };
    // A condition may be shorter than the axis, and what it has beyond the axis is not looked at.
    let most = condition.shape[0].min(x.shape[axis]);
    let outputs = vec![(DType::I64, vec![most]), (DType::I64, vec![Int::new(1)])];
    let out = cx.custom("compress", &[condition.id], outputs, vec![], move |k| {
        let (from, list, count) = (k.inputs[0], k.outputs[0], k.outputs[1]);
        let (zero, most) = (k.b.i64(0), k.int(most));
        let found = k.b.var_init(zero);
        k.b.for_(zero, most, 1, |b, i| {
            let hit = b.load(from, i, 0, 1);
            b.if_(
                hit,
                |b| {
                    let place = b.get(found);
                    b.store(list, place, 0, i);
                    let one = b.i64(1);
                    let next = b.add(place, one);
                    b.set(found, next);
                },
                |_| {},
            );
        });
        let total = k.b.get(found);
        k.b.store(count, zero, 0, total);
    });
    let count = counted(cx, out[1], most);
    Ok(vec![pick(cx, &x, axis, out[0], count)])
}

/// The `count` slices of `x` along `axis` whose positions `list` holds.
fn pick(cx: &mut Cx, x: &Operand, axis: usize, list: TensorId, count: Int) -> TensorId {
    let list = Operand::of(cx, list);
    let mut shape = x.shape.clone();
    shape[axis] = count;
    cx.map(x.dtype, shape, |i| {
        let mut index = i.to_vec();
        index[axis] = expr::as_int(list.at(&[i[axis]]));
        x.at(&index)
    })
}

/// Sorts the positions of the slices by their elements, walks over the runs of equal ones and numbers them.
///
/// Strings are bytes along a last axis that no slice is taken of, with zeros behind the end of each: sorted by these, they are
/// in their own order.
fn unique(cx: &mut Cx, call: &Call) -> OpResult {
    let mut x = Operand::of(cx, call.input(0)?);
    let text = is_text(cx, x.id);
    let bytes = if text { 1 } else { 0 };
    let rank = x.rank() - bytes;
    let axis = match call.opt_int("axis")? {
        Some(axis) => cx.axis(axis, rank)?,
        None => {
            let all = Int::product(&x.shape[..rank]);
            let list = cx.view(x.id, [&[all], &x.shape[rank..]].concat());
            x = Operand::of(cx, list);
            0
        }
    };
    let sorted = call.int("sorted", 1)? != 0;
    let n = x.shape[axis];
    let (outer, inner) = (Int::product(&x.shape[..axis]), Int::product(&x.shape[axis + 1..]));
    let list = |d: Int| (DType::I64, vec![d]);
    // First positions, numbers of the runs, sizes of the runs, and how many there are.
    let outputs = vec![list(n), list(n), list(n), list(Int::new(1))];
    let scratch = vec![(DType::I64, n), (DType::I64, n)];
    let out = cx.custom("unique", &[x.id], outputs, scratch, move |k| {
        let from = k.inputs[0];
        let [firsts, numbers, counts, count] = k.outputs[..] else { return };
        let [order, spare] = k.scratch[..] else { return };
        let (n, outer, inner) = (k.int(n), k.int(outer), k.int(inner));
        let b = &mut *k.b;
        let (zero, one) = (b.i64(0), b.i64(1));
        // Slices p and q compared by their first difference: -1, 0, 1.
        let order_of = |b: &mut crate::kernel::builder::Builder, p, q| {
            let sign = b.var_init(zero);
            b.for_(zero, outer, 1, |b, o| {
                let base = b.mul(o, n);
                b.for_(zero, inner, 1, |b, i| {
                    let so_far = b.get(sign);
                    let open = b.cmp(Cmp::Eq, so_far, zero);
                    b.if_(
                        open,
                        |b| {
                            let mut element = |p| {
                                let row = b.add(base, p);
                                let row = b.mul(row, inner);
                                let at = b.add(row, i);
                                b.load(from, at, 0, 1)
                            };
                            let (x, y) = (element(p), element(q));
                            let (below, above) = (less(b, x, y), less(b, y, x));
                            let minus = b.i64(-1);
                            let up = b.select(above, one, zero);
                            let new = b.select(below, minus, up);
                            b.set(sign, new);
                        },
                        |_| {},
                    );
                });
            });
            b.get(sign)
        };
        b.for_(zero, n, 1, |b, i| b.store(order, i, 0, i));
        super::kernels::merge_sort(b, order, spare, n, |b, p, q| {
            let sign = order_of(b, p, q);
            b.cmp(Cmp::Le, sign, zero)
        });
        // Runs of equal slices. The sort is stable, so the first of a run has the lowest position.
        let runs = b.var_init(zero);
        b.for_(zero, n, 1, |b, s| {
            let p = b.load(order, s, 0, 1);
            let fresh = b.var(Type::scalar(DType::Bool));
            let yes = b.bool(true);
            b.set(fresh, yes);
            let later = b.cmp(Cmp::Gt, s, zero);
            b.if_(
                later,
                |b| {
                    let before = b.load(order, s, -1, 1);
                    let sign = order_of(b, before, p);
                    let differs = b.cmp(Cmp::Ne, sign, zero);
                    b.set(fresh, differs);
                },
                |_| {},
            );
            let new = b.get(fresh);
            b.if_(
                new,
                |b| {
                    let at = b.get(runs);
                    b.store(firsts, at, 0, p);
                    b.store(counts, at, 0, zero);
                    let next = b.add(at, one);
                    b.set(runs, next);
                },
                |_| {},
            );
            let runs = b.get(runs);
            let run = b.sub(runs, one);
            b.store(numbers, p, 0, run);
            let seen = b.load(counts, run, 0, 1);
            let seen = b.add(seen, one);
            b.store(counts, run, 0, seen);
        });
        let total = b.get(runs);
        b.store(count, zero, 0, total);
        if sorted {
            return;
        }
        // In order of appearance: new numbers in `spare` by old number, then everything is put at its new place.
        let seen = b.var_init(zero);
        b.for_(zero, n, 1, |b, p| {
            let run = b.load(numbers, p, 0, 1);
            let head = b.load(firsts, run, 0, 1);
            let is_head = b.cmp(Cmp::Eq, head, p);
            b.if_(
                is_head,
                |b| {
                    let new = b.get(seen);
                    b.store(spare, run, 0, new);
                    let size = b.load(counts, run, 0, 1);
                    b.store(order, new, 0, size);
                    let next = b.add(new, one);
                    b.set(seen, next);
                },
                |_| {},
            );
            let new = b.load(spare, run, 0, 1);
            b.store(numbers, p, 0, new);
            // `firsts` is still read by old numbers; it is rebuilt below.
        });
        super::kernels::copy(b, order, counts, total);
        let seen = b.var_init(zero);
        b.for_(zero, n, 1, |b, p| {
            let run = b.load(numbers, p, 0, 1);
            let next = b.get(seen);
            let is_head = b.cmp(Cmp::Eq, run, next);
            b.if_(
                is_head,
                |b| {
                    b.store(firsts, run, 0, p);
                    let more = b.add(next, one);
                    b.set(seen, more);
                },
                |_| {},
            );
        });
    });
    let count = counted(cx, out[3], n);
    let firsts = first(cx, out[0], count);
    let y = pick(cx, &x, axis, firsts, count);
    if text {
        mark(cx, y, ElemType::String);
    }
    let counts = if call.wants(3) { first(cx, out[2], count) } else { out[2] };
    Ok(vec![y, firsts, out[1], counts])
}
