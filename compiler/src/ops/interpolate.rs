//! Weighted sums of neighbours along axes.

use super::operand::Operand;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, ReduceKind, TensorId, expr};

/// Most neighbours that are written out as one sum.
const MOST_TAPS: i64 = 16;

/// An interpolation kernel.
#[derive(Clone, Copy)]
pub(super) enum Kernel {
    /// A triangle: the two neighbours.
    Linear,
    /// The cubic convolution of four neighbours, with its coefficient.
    Cubic(f64),
}

impl Kernel {
    /// How many elements it reaches on each side.
    pub(super) fn reach(self) -> i64 {
        match self {
            Kernel::Linear => 1,
            Kernel::Cubic(_) => 2,
        }
    }

    /// Its value at distance `d`, in the type of `d`.
    pub(super) fn weight(self, d: Expr) -> Expr {
        let c = |v: f64| expr::constant_f64(d.dtype(), v);
        let d = d.abs();
        match self {
            Kernel::Linear => (c(1.0) - d).max_(c(0.0)),
            Kernel::Cubic(a) => {
                let near = ((c(a + 2.0) * d - c(a + 3.0)) * d) * d + c(1.0);
                let far = ((c(a) * d - c(5.0 * a)) * d + c(8.0 * a)) * d - c(4.0 * a);
                let far = expr::select(d.lt_(c(2.0)), far, c(0.0));
                expr::select(d.le_(c(1.0)), near, far)
            }
        }
    }
}

/// The neighbours of each output position along one axis.
pub(super) struct Taps {
    axis: usize,
    output: Int,
    count: Int,
    /// `[output, count]`: positions within the input.
    at: Operand,
    /// `[output, count]`: weights in the type of computation.
    weights: Operand,
}

/// An integer as `F64`.
pub(super) fn number(i: Int) -> Expr {
    expr::cast(DType::F64, expr::int(i))
}

/// The type that elements of `dtype` are combined in.
pub(super) fn working_type(dtype: DType) -> DType {
    match dtype {
        DType::F64 | DType::I32 | DType::U32 | DType::I64 | DType::U64 => DType::F64,
        _ => DType::F32,
    }
}

/// A combined value as an element of `dtype`: integers are rounded, and all saturate.
pub(super) fn rounded(dtype: DType, v: Expr) -> Expr {
    if dtype.is_float() {
        return expr::cast(dtype.compute(), v);
    }
    expr::cast(dtype, expr::un(Func1::Round, v))
}

/// `t` as a constant, if its elements are known and not too many.
pub(super) fn freeze(cx: &mut Cx, t: TensorId) -> TensorId {
    let dtype = cx.dtype(t);
    let shape: Option<Vec<usize>> =
        cx.shape(t).iter().map(|d| d.as_const().and_then(|c| usize::try_from(c).ok())).collect();
    let (Some(shape), Some(values)) = (shape, cx.const_floats(t)) else { return t };
    let mut bytes = vec![];
    for v in values {
        let Some(c) = expr::constant_f64(dtype, v).as_const() else { return t };
        bytes.extend_from_slice(&c.bits.to_le_bytes()[..dtype.size()]);
    }
    cx.constant(dtype, &shape, bytes)
}

impl Taps {
    /// Tables for an axis `(axis, input size, output size)`. `position` gives the input position of an output position;
    /// the kernel's argument is the distance times `stretch`, and elements up to `half` away count.
    #[expect(clippy::too_many_arguments, reason = "each is one property of the axis")]
    pub(super) fn new(
        cx: &mut Cx,
        dtype: DType,
        (axis, input, output): (usize, Int, Int),
        kernel: Kernel,
        position: impl Fn(Int) -> Expr,
        stretch: Option<Expr>,
        half: Int,
        exclude_outside: bool,
        normalize: bool,
    ) -> Taps {
        let count = half * 2;
        let low = |y: Int| expr::cast(DType::I64, position(y).floor());
        let place = |i: &[Int]| low(i[0]) + expr::int(i[1] - half + 1);
        let (zero, last) = (expr::int(Int::new(0)), expr::int(input - 1));
        let at = cx.map(DType::I64, vec![output, count], |i| place(i).min_(last).max_(zero));
        let raw = |i: &[Int]| {
            let x = position(i[0]);
            let d = x.floor() - x + number(i[1] - half + 1);
            let w = kernel.weight(stretch.map_or(d, |s| d * s));
            if !exclude_outside {
                return w;
            }
            let p = place(i);
            let inside = p.ge_(zero) & p.le_(last);
            expr::select(inside, w, expr::constant_f64(DType::F64, 0.0))
        };
        let to = working_type(dtype);
        let weights = if normalize {
            let w = cx.map(DType::F64, vec![output, count], raw);
            let w = Operand::of(cx, w);
            let sum = cx.reduce(ReduceKind::Sum, DType::F64, vec![output], &[count], |i, r| w.at(&[i[0], r[0]]));
            let sum = Operand::of(cx, sum);
            cx.map(to, vec![output, count], |i| {
                let (nothing, one) = (expr::constant_f64(DType::F64, 0.0), expr::constant_f64(DType::F64, 1.0));
                let sum = sum.at(&i[..1]);
                expr::cast(to, w.at(i) / expr::select(sum.eq_(nothing), one, sum))
            })
        } else {
            cx.map(to, vec![output, count], |i| expr::cast(to, raw(i)))
        };
        let (at, weights) = (freeze(cx, at), freeze(cx, weights));
        Taps { axis, output, count, at: Operand::of(cx, at), weights: Operand::of(cx, weights) }
    }
}

/// `x` interpolated along all axes in `taps`. The result has `x`'s type if `finish`, else the type of computation.
pub(super) fn combine(cx: &mut Cx, x: &Operand, taps: &[Taps], finish: bool) -> TensorId {
    let to = working_type(x.dtype);
    let counts: Option<Vec<i64>> = taps.iter().map(|t| t.count.as_const()).collect();
    let few = counts.is_some_and(|c| c.iter().try_fold(1i64, |p, n| p.checked_mul(*n)).is_some_and(|p| p <= MOST_TAPS));
    // All axes at once while that is a short sum, else one after the other.
    let groups: Vec<&[Taps]> = if few { vec![taps] } else { taps.iter().map(std::slice::from_ref).collect() };
    let mut current = x.clone();
    for (k, group) in groups.iter().enumerate() {
        let last = k + 1 == groups.len();
        let dtype = if last && finish { x.dtype } else { to };
        let done = |v: Expr| if last && finish { rounded(x.dtype, v) } else { v };
        let mut shape = current.shape.clone();
        for t in *group {
            shape[t.axis] = t.output;
        }
        let one = match group {
            [one] if one.count.as_const().is_none_or(|n| n > MOST_TAPS) => Some(one),
            _ => None,
        };
        let next = if let Some(t) = one {
            let term = |i: &[Int], r: Int| {
                let at = [i[t.axis], r];
                let mut index = i.to_vec();
                index[t.axis] = expr::as_int(t.at.at(&at));
                t.weights.at(&at) * expr::cast(to, current.at(&index))
            };
            let sum = cx.reduce(ReduceKind::Sum, to, shape.clone(), &[t.count], |i, r| term(i, r[0]));
            if dtype == to && dtype.is_float() {
                sum
            } else {
                let sum = Operand::of(cx, sum);
                cx.map(dtype, shape, |i| done(sum.at(i)))
            }
        } else {
            cx.map(dtype, shape, |i| done(sum_of(&current, group, to, i.to_vec(), i)))
        };
        current = Operand::of(cx, next);
    }
    current.id
}

/// The weighted sum over the axes in `taps` at output index `i`; `index` has the input positions of the axes before.
fn sum_of(x: &Operand, taps: &[Taps], to: DType, index: Vec<Int>, i: &[Int]) -> Expr {
    let Some((t, rest)) = taps.split_first() else { return expr::cast(to, x.at(&index)) };
    let mut sum: Option<Expr> = None;
    for k in 0..t.count.as_const().unwrap_or(0) {
        let at = [i[t.axis], Int::new(k)];
        let mut index = index.clone();
        index[t.axis] = expr::as_int(t.at.at(&at));
        let term = t.weights.at(&at) * sum_of(x, rest, to, index, i);
        sum = Some(sum.map_or(term, |s| s + term));
    }
    sum.unwrap_or_else(|| expr::constant_f64(to, 0.0))
}
