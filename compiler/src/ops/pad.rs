//! Padding.

use super::operand::Operand;
use super::sizes::{axes_operand, dim, int_list, invalid, norm_axes, unsupported, value_at_axis};
use super::{Call, Expand};
use crate::kernel::ir::Cmp;
use crate::sym::Int;
use crate::te::{Cx, Expr, Func2, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Pad", pad)];

/// Where the elements outside of the input come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

fn pad(cx: &mut Cx, call: &Call) -> OpResult {
    let src = Operand::of(cx, call.input(0)?);
    let rank = src.shape.len();
    let mode = match call.string("mode", "constant".into())?.as_str() {
        "constant" => Mode::Constant,
        "reflect" => Mode::Reflect,
        "edge" => Mode::Edge,
        "wrap" if call.version >= 19 => Mode::Wrap,
        other => return unsupported(format!("mode '{other}'")),
    };
    let by_attribute = call.version < 11;
    let pads = if by_attribute {
        let name = if call.version < 2 { "paddings" } else { "pads" };
        let Some(pads) = call.opt_ints(name)? else {
            return invalid(format!("attribute '{name}' is missing"));
        };
        pads.into_iter().map(Int::new).collect()
    } else {
        int_list(cx, call.input(1)?, "pads")?
    };
    let axes = if call.version >= 18 { axes_operand(cx, call, 3)? } else { None };
    let axes = axes.unwrap_or_else(|| (0..rank).map(Int::from).collect());
    let axes = norm_axes(cx, &axes, rank)?;
    if pads.len() != 2 * axes.len() {
        return invalid(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    let (before, after) = pads.split_at(axes.len());
    let of_axis = |values: &[Int], k: usize| value_at_axis(&axes, values, k, Int::new(0));
    let (before, after): (Vec<Int>, Vec<Int>) = (0..rank).map(|k| (of_axis(before, k), of_axis(after, k))).unzip();

    let fill = match call.opt(2).filter(|_| !by_attribute && mode == Mode::Constant) {
        Some(v) => {
            let v = Operand::of(cx, v);
            if v.dtype != src.dtype {
                return invalid(format!("the fill value is {} and the data {}", v.dtype, src.dtype));
            }
            cx.require_equal(Int::product(&v.shape), Int::new(1), "the fill value must be one number")?;
            v.only()
        }
        None => {
            let v = if by_attribute { call.float("value", 0.0)? } else { 0.0 };
            expr::constant_f64(src.dtype, v.into())
        }
    };
    let mut out = vec![];
    for k in 0..rank {
        let d = src.shape[k] + before[k] + after[k];
        if mode != Mode::Constant && d != src.shape[k] {
            let least = d.min(1);
            cx.require_at_most(least, src.shape[k], "an axis without elements can't be padded from itself")?;
        }
        out.push(dim(cx, d)?);
    }
    if out == src.shape && before.iter().all(|b| *b == Int::new(0)) {
        return Ok(vec![src.id]);
    }
    Ok(vec![cx.map(src.dtype, out, |i| {
        let mut inside = expr::boolean(true);
        let mut index = vec![];
        for k in 0..rank {
            let at = i[k] - before[k];
            if mode == Mode::Constant {
                inside = expr::bin(Func2::And, inside, range_condition(at, before[k], after[k], src.shape[k]));
                index.push(at);
            } else {
                index.push(folded(mode, at, before[k], after[k], src.shape[k]));
            }
        }
        expr::select(inside, src.at(&index), fill)
    })])
}

/// Whether position `at` is one of the input; a side without padding needs no test.
fn range_condition(at: Int, before: Int, after: Int, d: Int) -> Expr {
    let none = |p: Int| p.le(0) == Some(true);
    let low =
        if none(before) { expr::boolean(true) } else { expr::cmp(Cmp::Ge, expr::int(at), expr::int(Int::new(0))) };
    let high = if none(after) { expr::boolean(true) } else { expr::cmp(Cmp::Lt, expr::int(at), expr::int(d)) };
    expr::bin(Func2::And, low, high)
}

/// The input position that padding shows at position `at`, which may lie outside of `0..d`.
fn folded(mode: Mode, at: Int, before: Int, after: Int, d: Int) -> Int {
    let zero = Int::new(0);
    if before == zero && after == zero {
        return at;
    }
    match mode {
        Mode::Constant | Mode::Edge => at.max(0).min(d - 1),
        Mode::Wrap => at.rem(d),
        Mode::Reflect => {
            if before.lt(d) == Some(true) && after.lt(d) == Some(true) {
                let low = if before.le(0) == Some(true) { at } else { at.if_lt(0, -at, at) };
                return if after.le(0) == Some(true) { low } else { low.if_lt(d, low, (d - 1) * 2 - at) };
            }
            // Wider than the input: it is mirrored again and again, with period 2 (d - 1).
            let period = ((d - 1) * 2).max(1);
            let phase = at.rem(period);
            phase.min(period - phase).min(d - 1)
        }
    }
}
