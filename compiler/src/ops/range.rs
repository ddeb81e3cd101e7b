//! Sequences of numbers.

use super::operand::Operand;
use super::sizes::{input_count, int_scalar, invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::{Int, map_data};
use crate::te::{Cx, Expr, Func1, Func2, Node, OpResult, TensorId, expr, known};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Range", range)];

fn range(cx: &mut Cx, call: &Call) -> OpResult {
    input_count(call, 3, 3)?;
    let t = [call.input(0)?, call.input(1)?, call.input(2)?];
    let dtype = cx.dtype(t[0]);
    for t in t {
        if cx.dtype(t) != dtype {
            return invalid("start, limit and delta differ in type");
        }
        let n = cx.numel(t);
        cx.require_equal(n, Int::new(1), "start, limit and delta must be single numbers")?;
    }
    if dtype == DType::Bool {
        return invalid("a range of bools");
    }
    let ints = if dtype.is_int() {
        let mut v = vec![];
        for t in t {
            v.push(int_scalar(cx, t, "a bound")?);
        }
        Some(v)
    } else {
        t.iter().map(|t| whole(cx, *t)).collect::<Option<Vec<Int>>>()
    };
    if let Some(ints) = ints {
        let [start, limit, delta] = ints[..] else {
            return invalid("three numbers are needed");
        };
        match delta.as_const() {
            Some(0) => return invalid("delta is zero"),
            Some(_) => {}
            None => cx.require_at_most(Int::new(1), delta * delta, "delta is zero")?,
        }
        // (limit - start) / delta, rounded up.
        let n = (-((start - limit).div(delta))).max(0);
        return Ok(vec![cx.map(dtype, vec![n], |i| expr::cast(dtype, expr::int(start + i[0] * delta)))]);
    }
    if call.version >= 27 && matches!(dtype, DType::F16 | DType::BF16) {
        let stash = call.int("stash_type", 1)?;
        if stash != 1 && stash != 11 {
            return unsupported(format!("stash_type {stash}"));
        }
    }
    // Numbers are computed in double precision, which holds every float type, and rounded once.
    let wide: Vec<Expr> = t.iter().map(|t| expr::cast(DType::F64, Operand::of(cx, *t).only())).collect();
    let [start, limit, delta] = wide[..] else {
        return invalid("three numbers are needed");
    };
    let steps = expr::bin(Func2::Div, expr::bin(Func2::Sub, limit, start), delta);
    let steps = expr::un(Func1::Ceil, steps);
    let count = expr::bin(Func2::Max, steps, expr::constant_f64(DType::F64, 0.0));
    let counted = cx.map(DType::I64, vec![], |_| expr::cast(DType::I64, count));
    let n = match cx.ints(counted).as_deref() {
        Some([n]) => *n,
        _ => cx.read(counted, 0, "count", Some(0), None),
    };
    Ok(vec![cx.map(dtype, vec![n], |i| {
        let at = expr::cast(DType::F64, expr::int(i[0]));
        let v = expr::bin(Func2::Add, start, expr::bin(Func2::Mul, at, delta));
        expr::cast(dtype.compute(), v)
    })])
}

/// A float operand that is a whole number known by a formula: a constant, or a size that was converted.
fn whole(cx: &mut Cx, t: TensorId) -> Option<Int> {
    let index = vec![0; cx.rank(t)];
    let e = known::element(cx, t, &index);
    if let Some(c) = e.as_const() {
        let v = known::number(c);
        // Larger numbers would not be exact in every float type.
        return (v.fract() == 0.0 && v.abs() <= 2048.0).then(|| Int::new(v as i64));
    }
    let Node::Cast(_, inner) = e.node() else {
        return None;
    };
    if !inner.dtype().is_int() || matches!(cx.dtype(t), DType::F16 | DType::BF16) {
        return None;
    }
    let i = expr::as_int(inner);
    let mut data = false;
    map_data(i, &mut |_| {
        data = true;
        Int::new(0)
    });
    (!data).then_some(i)
}
