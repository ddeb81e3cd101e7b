//! Index of the largest or smallest element along an axis.

use super::axes::{Axes, Space};
use super::operand::{Operand, need_number};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::cx::flatten;
use crate::te::{Cx, Expr, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "ArgMax", |cx, c| arg(cx, c, true)), ("", "ArgMin", |cx, c| arg(cx, c, false))];

fn arg(cx: &mut Cx, call: &Call, largest: bool) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    let axes = Axes::known(cx, &[call.int("axis", 0)?], x.rank())?;
    let space = Space::new(&x.shape, &axes, call.int("keepdims", 1)? != 0);
    let last = call.int("select_last_index", 0)? != 0;
    Ok(vec![arg_over(cx, &x, &space, largest, last)])
}

/// Row-major position within the reduced space of the largest or smallest element; of equal ones the first or last.
/// A NaN counts as the most extreme value.
pub(super) fn arg_over(cx: &mut Cx, x: &Operand, space: &Space, largest: bool, last: bool) -> TensorId {
    let t = x.compute();
    cx.fold(DType::I64, space.shape.clone(), &space.over, |i, r| {
        let (best, at) = (expr::acc(0, t), expr::acc(1, DType::I64));
        let v = x.at(&space.index(i, r));
        let mut better = match (largest, last) {
            (true, false) => v.gt_(best),
            (true, true) => v.ge_(best),
            (false, false) => v.lt_(best),
            (false, true) => v.le_(best),
        };
        if t.is_float() {
            better = better | if last { v.is_nan() } else { v.is_nan() & best.eq_(best) };
            // Once a NaN is found, no number is better: comparisons with it are false.
        }
        let here = expr::int(flatten(&space.over, r));
        (vec![start(t, largest), expr::int(0.into())], vec![better.then(v, best), better.then(here, at)], at)
    })
}

/// A value that no element is worse than: if all are equal to it, the first index stays.
fn start(t: DType, largest: bool) -> Expr {
    // Ints saturate.
    expr::constant_f64(t, if largest { f64::NEG_INFINITY } else { f64::INFINITY })
}
