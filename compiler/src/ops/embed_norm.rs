//! `EmbedLayerNormalization` of com.microsoft: the sum of word, position and segment embeddings, normalised.

use super::axes::{Axes, Space};
use super::contrib::apply;
use super::moments::{inverse_root, moments};
use super::operand::{Operand, convert, need_float, same_type};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("com.microsoft", "EmbedLayerNormalization", embed), ("com.microsoft", "QEmbedLayerNormalization", quantised)];

/// Tables and parameters as bytes, each with a scale and a zero point.
fn quantised(cx: &mut Cx, call: &Call) -> OpResult {
    let mut inputs = vec![call.opt(0), call.opt(1)];
    for k in 2..7 {
        let operands = [call.opt(k), call.opt(k + 6), call.opt(k + 11)];
        inputs.push(if operands[0].is_some() { Some(apply(cx, "DequantizeLinear", &operands, &[])?) } else { None });
    }
    inputs.push(call.opt(7));
    let made = embed(cx, &Call { inputs, outputs: call.outputs.iter().copied().take(2).collect(), ..call.clone() })?;
    Ok(made.into_iter().take(2).collect())
}

fn invalid<T>(message: String) -> OpResult<T> {
    Err(OpError::Invalid(message))
}

/// A matrix of embeddings with `hidden` columns (any number where it is not known yet).
fn table(cx: &mut Cx, t: TensorId, hidden: Option<Int>) -> OpResult<Operand> {
    let table = Operand::of(cx, t);
    need_float(table.dtype)?;
    let [_, columns] = table.shape[..] else { return invalid(format!("embeddings of rank {}", table.rank())) };
    if let Some(h) = hidden {
        cx.require_equal(columns, h, "columns of the embeddings")?;
    }
    Ok(table)
}

/// Numbers of rows, of shape `[batch, sequence]`.
fn ids(cx: &mut Cx, t: TensorId, shape: Option<&[Int]>) -> OpResult<Operand> {
    let ids = Operand::of(cx, t);
    if !matches!(ids.dtype, DType::I32 | DType::I64) || ids.rank() != 2 {
        return invalid(format!(
            "numbers of type {} and rank {}, integers of rank 2 are needed",
            ids.dtype,
            ids.rank()
        ));
    }
    for (a, b) in ids.shape.iter().zip(shape.unwrap_or_default()) {
        // Positions may be one row for the whole batch.
        cx.require_equal(a.if_eq(1, *b, *a), *b, "shapes of the numbers")?;
    }
    Ok(ids)
}

/// Outputs: the result, for each sample the number of positions that the mask lets through, the sum before normalisation.
fn embed(cx: &mut Cx, call: &Call) -> OpResult {
    let words = ids(cx, call.input(0)?, None)?;
    let shape = words.shape.clone();
    let word_table = table(cx, call.input(2)?, None)?;
    let hidden = word_table.shape[1];
    let position_table = table(cx, call.input(3)?, Some(hidden))?;
    let position_ids = call.opt(8).map(|t| ids(cx, t, Some(&shape))).transpose()?;
    if position_ids.is_none() {
        cx.require_at_most(shape[1], position_table.shape[0], "more positions than embeddings")?;
    }
    let segments = match (call.opt(1), call.opt(4)) {
        (Some(i), Some(t)) => Some((ids(cx, i, Some(&shape))?, table(cx, t, Some(hidden))?)),
        _ => None,
    };
    for t in [Some(position_table.id), segments.as_ref().map(|(_, t)| t.id)].into_iter().flatten() {
        same_type(cx, word_table.id, t)?;
    }
    let (gamma, beta) = (Operand::of(cx, call.input(5)?), Operand::of(cx, call.input(6)?));
    for p in [&gamma, &beta] {
        need_float(p.dtype)?;
        let [n] = p.shape[..] else { return invalid(format!("gamma or beta of rank {}", p.rank())) };
        cx.require_equal(n, hidden, "length of gamma and beta")?;
    }
    let dtype = word_table.dtype;
    let full = vec![shape[0], shape[1], hidden];
    let row = |table: &Operand, id: Expr, column: Int| {
        let rows = table.shape[0];
        table.at(&[expr::as_int(id).max(0).min(rows - 1), column])
    };
    let sum_at = |i: &[Int]| {
        let position = match &position_ids {
            Some(p) => p.spread(&i[..2]),
            None => expr::int(i[1]),
        };
        let sum = row(&word_table, words.at(&i[..2]), i[2]) + row(&position_table, position, i[2]);
        segments.as_ref().map_or(sum, |(ids, table)| sum + row(table, ids.spread(&i[..2]), i[2]))
    };
    let sum = cx.map(dtype.compute(), full.clone(), sum_at);
    let sum = Operand::of(cx, sum);
    let space = Space::new(&full, &Axes::from(2, 3), true);
    let (mean, var) = moments(cx, &sum, &space, sum.dtype);
    let inv = inverse_root(cx, &var, call.float("epsilon", 1e-12)?);
    let t = sum.dtype;
    let y = cx.map(dtype, full.clone(), |i| {
        let s = space.result_index(i);
        let unit = (sum.at(i) - mean.at(&s)) * inv.at(&s);
        convert(unit * gamma.at(&[i[2]]).to(t) + beta.at(&[i[2]]).to(t), dtype)
    });
    let mask = match call.opt(7) {
        Some(m) => {
            let m = ids(cx, m, Some(&shape))?;
            let batch = vec![shape[0]];
            cx.reduce(ReduceKind::Sum, DType::I32, batch, &shape[1..], |i, r| m.spread(&[i[0], r[0]]).to(DType::I32))
        }
        None => cx.map(DType::I32, vec![shape[0]], |_| expr::constant_i64(DType::I32, 0)),
    };
    let mut out = vec![y, mask];
    if call.wants(2) {
        out.push(if sum.dtype == dtype { sum.id } else { cx.map(dtype, full, |i| sum.at(i)) });
    }
    Ok(out)
}
