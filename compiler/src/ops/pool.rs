//! Pooling: `MaxPool`, `AveragePool`, `LpPool` and the global pools.

use super::scalar::{and, constant, div, lowest, mul, number, or, within};
use super::window::{Window, per_axis, spatial};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func1, Func2, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "GlobalAveragePool", global_average),
    ("", "GlobalMaxPool", global_max),
    ("", "GlobalLpPool", global_lp),
    ("", "MaxPool", max_pool),
    ("", "AveragePool", average_pool),
    ("", "LpPool", lp_pool),
];

fn float_input(cx: &Cx, call: &Call) -> OpResult<(TensorId, DType)> {
    let x = call.input(0)?;
    let dtype = cx.dtype(x);
    if !dtype.is_float() {
        return Err(OpError::Invalid(format!("the input must be floats, not {dtype}")));
    }
    Ok((x, dtype))
}

fn pooled(cx: &Cx, x: TensorId, output: &[Int]) -> Vec<Int> {
    cx.shape(x)[..2].iter().chain(output).copied().collect()
}

/// Reduces the whole of the spatial axes to size 1 each.
fn global(cx: &mut Cx, x: TensorId, kind: ReduceKind, out: DType, f: impl Fn(Expr) -> Expr) -> OpResult<TensorId> {
    let over = spatial(cx, x)?;
    let shape = cx.shape(x);
    let dtype = cx.dtype(x);
    let flat = cx.reduce(kind, out, shape[..2].to_vec(), &over, |i, r| f(expr::load(x, dtype, [i, r].concat())));
    let ones = pooled(cx, x, &vec![Int::new(1); over.len()]);
    Ok(cx.view(flat, ones))
}

fn global_average(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, dtype) = float_input(cx, call)?;
    let sum = global(cx, x, ReduceKind::Sum, dtype.compute(), |e| e)?;
    let count = Int::product(&spatial(cx, x)?);
    let shape = cx.shape(sum);
    Ok(vec![cx.map(dtype, shape, |i| div(expr::load(sum, dtype.compute(), i.to_vec()), number(dtype, count)))])
}

fn global_max(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, dtype) = float_input(cx, call)?;
    Ok(vec![global(cx, x, ReduceKind::Max, dtype, |e| e)?])
}

/// Exponent of the Lp pools: a float in version 1, an integer later.
fn exponent(call: &Call) -> OpResult<f64> {
    let p = if call.version < 2 { f64::from(call.float("p", 2.0)?) } else { call.int("p", 2)? as f64 };
    if p > 0.0 { Ok(p) } else { Err(OpError::Invalid(format!("attribute 'p' is {p}; it must be positive"))) }
}

/// `|e|` to the power `p`.
fn powered(e: Expr, p: f64) -> Expr {
    let a = expr::un(Func1::Abs, e);
    match p {
        1.0 => a,
        2.0 => mul(e, e),
        3.0 => mul(mul(e, e), a),
        _ => expr::bin(Func2::Pow, a, constant(e.dtype(), p)),
    }
}

/// The `p`-th root.
fn root(e: Expr, p: f64) -> Expr {
    match p {
        1.0 => e,
        2.0 => expr::un(Func1::Sqrt, e),
        _ => expr::bin(Func2::Pow, e, constant(e.dtype(), 1.0 / p)),
    }
}

fn global_lp(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, dtype) = float_input(cx, call)?;
    let p = exponent(call)?;
    let sum = global(cx, x, ReduceKind::Sum, dtype.compute(), |e| powered(e, p))?;
    let shape = cx.shape(sum);
    Ok(vec![cx.map(dtype, shape, |i| root(expr::load(sum, dtype.compute(), i.to_vec()), p))])
}

fn window(cx: &mut Cx, call: &Call, x: TensorId) -> OpResult<Window> {
    let input = spatial(cx, x)?;
    if call.opt_ints("kernel_shape")?.is_none() {
        return Err(OpError::Invalid("attribute 'kernel_shape' is missing".into()));
    }
    let kernel = per_axis(call, "kernel_shape", input.len(), 1, 1)?;
    let ceil = call.int("ceil_mode", 0)? != 0;
    Window::of(cx, call, input, kernel.into_iter().map(Int::new).collect(), ceil)
}

/// Index of a window's cell within the padded input.
fn cell(w: &Window, i: &[Int], r: &[Int]) -> Vec<Int> {
    let at = (0..w.axes()).map(|d| w.at(d, i[2 + d], r[d]));
    i[..2].iter().copied().chain(at).collect()
}

fn reduced(
    cx: &mut Cx,
    x: TensorId,
    w: &Window,
    kind: ReduceKind,
    fill: Expr,
    out: DType,
    f: impl Fn(Expr) -> Expr,
) -> TensorId {
    let padded = w.pad(cx, x, fill);
    let dtype = cx.dtype(x);
    let shape = pooled(cx, x, &w.output);
    cx.reduce(kind, out, shape, &w.kernel, |i, r| f(expr::load(padded, dtype, cell(w, i, r))))
}

fn max_pool(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    let dtype = cx.dtype(x);
    if dtype == DType::Bool {
        return Err(OpError::Invalid("the input must be numbers, not bool".into()));
    }
    let w = window(cx, call, x)?;
    let mut out = vec![reduced(cx, x, &w, ReduceKind::Max, lowest(dtype), dtype, |e| e)];
    if call.wants(1) {
        let column_major = match call.int("storage_order", 0)? {
            0 => false,
            1 => true,
            other => return Err(OpError::Invalid(format!("attribute 'storage_order' is {other}, neither 0 nor 1"))),
        };
        out.push(argmax(cx, x, &w, column_major));
    }
    Ok(out)
}

/// Where the first maximum of each window lies, as flat index into the input; `column_major` orders the spatial axes the
/// other way round.
fn argmax(cx: &mut Cx, x: TensorId, w: &Window, column_major: bool) -> TensorId {
    let shape = cx.shape(x);
    let dtype = cx.dtype(x);
    let out = pooled(cx, x, &w.output);
    cx.fold(DType::I64, out, &w.kernel, |i, r| {
        let mut at = cell(w, i, r);
        let mut inside = expr::boolean(true);
        for d in 0..w.axes() {
            at[2 + d] = at[2 + d] - w.begin[d];
            inside = and(inside, within(at[2 + d], 0, w.input[d]));
        }
        let mut place = at[0] * shape[1] + at[1];
        let axes: Vec<usize> = if column_major { (2..at.len()).rev().collect() } else { (2..at.len()).collect() };
        let mut plane = Int::new(0);
        for d in axes {
            plane = plane * shape[d] + at[d];
        }
        place = place * Int::product(&w.input) + plane;
        let v = expr::select(inside, expr::load(x, dtype, at), lowest(dtype));
        let (best, found) = (expr::acc(0, dtype), expr::acc(1, DType::I64));
        let none = expr::constant_i64(DType::I64, -1);
        let first = expr::cmp(Cmp::Lt, found, expr::constant_i64(DType::I64, 0));
        // A NaN wins, as in the maximum itself, and is not replaced.
        let fresh_nan = and(expr::cmp(Cmp::Ne, v, v), expr::cmp(Cmp::Eq, best, best));
        let better = or(or(first, expr::cmp(Cmp::Gt, v, best)), fresh_nan);
        let take = and(inside, better);
        let step = vec![expr::select(take, v, best), expr::select(take, expr::int(place), found)];
        (vec![lowest(dtype), none], step, found)
    })
}

fn average_pool(cx: &mut Cx, call: &Call) -> OpResult {
    averaged(cx, call, false)
}

/// `AveragePool`. `overhang_counts`: with `count_include_pad`, what of a window lies behind the padding counts, too.
pub(super) fn averaged(cx: &mut Cx, call: &Call, overhang_counts: bool) -> OpResult {
    let (x, dtype) = float_input(cx, call)?;
    let w = window(cx, call, x)?;
    let padding_counts = call.int("count_include_pad", 0)? != 0;
    let wide = dtype.compute();
    let sum = reduced(cx, x, &w, ReduceKind::Sum, constant(dtype, 0.0), wide, |e| e);
    let shape = cx.shape(sum);
    let whole = w.is_inside() || (padding_counts && (overhang_counts || !w.overhang));
    Ok(vec![cx.map(dtype, shape, |i| {
        let count = if whole {
            Int::product(&w.kernel)
        } else {
            (0..w.axes()).fold(Int::new(1), |c, d| c * w.cells(d, i[2 + d], padding_counts))
        };
        div(expr::load(sum, wide, i.to_vec()), number(dtype, count))
    })])
}

fn lp_pool(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, dtype) = float_input(cx, call)?;
    let w = window(cx, call, x)?;
    let p = exponent(call)?;
    let wide = dtype.compute();
    let sum = reduced(cx, x, &w, ReduceKind::Sum, constant(dtype, 0.0), wide, |e| powered(e, p));
    let shape = cx.shape(sum);
    Ok(vec![cx.map(dtype, shape, |i| root(expr::load(sum, wide, i.to_vec()), p))])
}
