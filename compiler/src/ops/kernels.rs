//! Pieces that hand-written kernels share.

use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg, Type};
use crate::sym::Int;
use crate::te::KernelCx;

/// The run-time values of dimensions.
pub(super) fn dims(k: &mut KernelCx<'_>, shape: &[Int]) -> Vec<Reg> {
    shape.iter().map(|d| k.int(*d)).collect()
}

/// Opens loops over `dims`, outermost first, and gives their indices; [`close`] ends them.
pub(super) fn open(b: &mut Builder, dims: &[Reg]) -> Vec<Reg> {
    let zero = b.i64(0);
    dims.iter().map(|d| b.begin_for(zero, *d, 1)).collect()
}

/// Ends `count` loops or branches.
pub(super) fn close(b: &mut Builder, count: usize) {
    for _ in 0..count {
        b.end();
    }
}

/// The row-major position of `index` within `dims`.
pub(super) fn flat(b: &mut Builder, dims: &[Reg], index: &[Reg]) -> Reg {
    let mut at = b.i64(0);
    for (d, i) in dims.iter().zip(index) {
        let row = b.mul(at, *d);
        at = b.add(row, *i);
    }
    at
}

/// Copies `n` elements.
pub(super) fn copy(b: &mut Builder, from: Buf, to: Buf, n: Reg) {
    let zero = b.i64(0);
    b.for_(zero, n, 1, |b, i| {
        let v = b.load(from, i, 0, 1);
        b.store(to, i, 0, v);
    });
}

/// Stores `v` in the first `n` elements.
pub(super) fn fill(b: &mut Builder, to: Buf, n: Reg, v: Reg) {
    let zero = b.i64(0);
    b.for_(zero, n, 1, |b, i| b.store(to, i, 0, v));
}

/// An index of any integer type at `at` in `buf`, counted from the end if negative. An index outside of `0..d` ends the
/// kernel with status 1.
pub(super) fn checked_index(b: &mut Builder, buf: Buf, at: Reg, d: Reg) -> Reg {
    let raw = b.load(buf, at, 0, 1);
    let raw = b.cast(DType::I64, raw);
    let zero = b.i64(0);
    let negative = b.cmp(Cmp::Lt, raw, zero);
    let from_end = b.add(raw, d);
    let i = b.select(negative, from_end, raw);
    require_index(b, i, d);
    i
}

/// Ends the kernel with status 1 unless `0 <= i < d`.
pub(super) fn require_index(b: &mut Builder, i: Reg, d: Reg) {
    let zero = b.i64(0);
    let low = b.cmp(Cmp::Lt, i, zero);
    let high = b.cmp(Cmp::Ge, i, d);
    let wrong = b.or(low, high);
    b.if_(wrong, |b| b.ret(1), |_| {});
}

/// `x < y` in a total order: false before true, NaN after every number and equal to itself.
pub(super) fn less(b: &mut Builder, x: Reg, y: Reg) -> Reg {
    let elem = b.ty(x).elem;
    if elem == DType::Bool {
        let not_x = b.not(x);
        return b.and(not_x, y);
    }
    let below = b.cmp(Cmp::Lt, x, y);
    if !elem.is_float() {
        return below;
    }
    let (x_nan, y_nan) = (b.cmp(Cmp::Ne, x, x), b.cmp(Cmp::Ne, y, y));
    let x_number = b.not(x_nan);
    let last = b.and(y_nan, x_number);
    b.or(below, last)
}

/// The scalar type of a buffer's elements once loaded.
pub(super) fn element_type(b: &Builder, buf: Buf) -> Type {
    Type::scalar(b.buf_param(buf).dtype.compute())
}

/// Sorts the positions in the first `n` elements of `order` (`I64`), keeping equal ones in their order. `in_order(p, q)`
/// tells whether position `p` may stand before `q`. `spare` is work space of the same size.
pub(super) fn merge_sort(
    b: &mut Builder,
    order: Buf,
    spare: Buf,
    n: Reg,
    in_order: impl Fn(&mut Builder, Reg, Reg) -> Reg,
) {
    let (zero, one) = (b.i64(0), b.i64(1));
    let width = b.var_init(one);
    b.begin_while();
    let run = b.get(width);
    let more = b.cmp(Cmp::Lt, run, n);
    b.begin_body(more);
    let start = b.var_init(zero);
    b.begin_while();
    let lo = b.get(start);
    let left = b.cmp(Cmp::Lt, lo, n);
    b.begin_body(left);
    let mid = b.add(lo, run);
    let hi = b.add(mid, run);
    let (mid, hi) = (b.min(mid, n), b.min(hi, n));
    let (i, j) = (b.var_init(lo), b.var_init(mid));
    b.for_(lo, hi, 1, |b, to| {
        let (p, q) = (b.get(i), b.get(j));
        let (has_left, has_right) = (b.cmp(Cmp::Lt, p, mid), b.cmp(Cmp::Lt, q, hi));
        let take_left = b.var_init(has_left);
        let both = b.and(has_left, has_right);
        b.if_(
            both,
            |b| {
                let (x, y) = (b.load(order, p, 0, 1), b.load(order, q, 0, 1));
                let keep = in_order(b, x, y);
                b.set(take_left, keep);
            },
            |_| {},
        );
        let take = b.get(take_left);
        let step = |b: &mut Builder, from: Reg, var| {
            let x = b.load(order, from, 0, 1);
            b.store(spare, to, 0, x);
            let next = b.add(from, one);
            b.set(var, next);
        };
        b.if_(take, |b| step(b, p, i), |b| step(b, q, j));
    });
    b.set(start, hi);
    b.end();
    copy(b, spare, order, n);
    let twice = b.add(run, run);
    b.set(width, twice);
    b.end();
}
