//! `GroupNorm` and `SkipGroupNorm` of com.microsoft: normalisation over groups of channels, then perhaps `x * sigmoid(x)`.

use super::activation::sigmoid;
use super::operand::{Operand, convert, need_float, same_type};
use super::sizes::{invalid, unsupported};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpResult, ReduceKind};

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    (MS, "GroupNorm", |cx, call| group_norm(cx, call, false)),
    (MS, "SkipGroupNorm", |cx, call| group_norm(cx, call, true)),
];

/// Outputs: the result, and for the form with `skip` the sum that was normalised.
fn group_norm(cx: &mut Cx, call: &Call, skip: bool) -> OpResult {
    let mut x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let last = call.int("channels_last", 1)? != 0;
    let rank = x.rank();
    if rank < 3 {
        return invalid(format!("the input has rank {rank}; batch, channels and spatial axes are needed"));
    }
    let channel = if last { rank - 1 } else { 1 };
    let silu = match call.opt_int("activation")? {
        Some(0) => false,
        Some(1) => true,
        Some(other) => return unsupported(format!("attribute 'activation' = {other}")),
        None => return invalid("attribute 'activation' is missing"),
    };
    let Some(groups) = call.opt_int("groups")?.filter(|g| (1..1 << 32).contains(g)) else {
        return invalid("attribute 'groups' is missing or not positive");
    };
    let epsilon = f64::from(call.float("epsilon", 1e-5)?);
    let channels = x.shape[channel];
    cx.require_equal(channels.rem(groups), Int::new(0), "channels modulo groups")?;
    let size = channels.div(groups);
    let params = [call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    for p in &params {
        need_float(p.dtype)?;
        let [n] = p.shape[..] else { return invalid(format!("gamma or beta of rank {}", p.rank())) };
        cx.require_equal(n, channels, "length of gamma and beta")?;
    }
    if skip {
        x = added(cx, call, &x, channel)?;
    }
    // Statistics are taken in single precision at least.
    let t = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let spatial: Vec<usize> = (1..rank).filter(|d| *d != channel).collect();
    let over: Vec<Int> = spatial.iter().map(|d| x.shape[*d]).chain([size]).collect();
    let rows = vec![x.shape[0], Int::new(groups)];
    let element = |i: &[Int], r: &[Int]| {
        let mut at = vec![i[0]; rank];
        for (d, r) in spatial.iter().zip(r) {
            at[*d] = *r;
        }
        at[channel] = i[1] * size + r[r.len() - 1];
        x.at(&at).to(t)
    };
    let count = super::scalar::number(t, Int::product(&over));
    let sum = cx.reduce(ReduceKind::Sum, t, rows.clone(), &over, element);
    let sum = Operand::of(cx, sum);
    let mean = cx.map(t, rows.clone(), |i| sum.at(i) / count);
    let mean = Operand::of(cx, mean);
    let squares = cx.reduce(ReduceKind::Sum, t, rows.clone(), &over, |i, r| {
        let d = element(i, r) - mean.at(i);
        d * d
    });
    let squares = Operand::of(cx, squares);
    let inverse = cx.map(t, rows, |i| {
        let v = squares.at(i) / count;
        v.num(1.0) / (v + v.num(epsilon)).sqrt()
    });
    let inverse = Operand::of(cx, inverse);
    let [gamma, beta] = params;
    let y = cx.map(x.dtype, x.shape.clone(), |i| {
        let c = [i[channel]];
        let row = [i[0], i[channel].div(size)];
        let unit = (x.at(i).to(t) - mean.at(&row)) * inverse.at(&row);
        let v = unit * gamma.at(&c).to(t) + beta.at(&c).to(t);
        convert(if silu { v * sigmoid(v) } else { v }, x.dtype)
    });
    Ok(if skip { vec![y, x.id] } else { vec![y] })
}

/// `x + skip + bias`: the skip has the shape of `x`, or one row of channels for each of the batch.
fn added(cx: &mut Cx, call: &Call, x: &Operand, channel: usize) -> OpResult<Operand> {
    let skip = Operand::of(cx, call.input(3)?);
    same_type(cx, x.id, skip.id)?;
    let rank = x.rank();
    let full: Vec<Int> = match skip.rank() {
        r if r == rank => skip.shape.clone(),
        2 => (0..rank)
            .map(|d| {
                if d == 0 {
                    skip.shape[0]
                } else if d == channel {
                    skip.shape[1]
                } else {
                    Int::new(1)
                }
            })
            .collect(),
        r => return invalid(format!("skip has rank {r}")),
    };
    let skip = cx.view(skip.id, full);
    let skip = Operand::of(cx, skip);
    super::binary::require_spreads(cx, &skip, x, "skip")?;
    let bias = match call.opt(4) {
        None => None,
        Some(b) => {
            same_type(cx, x.id, b)?;
            let b = Operand::of(cx, b);
            let [n] = b.shape[..] else { return invalid(format!("bias of rank {}", b.rank())) };
            cx.require_equal(n, x.shape[channel], "length of the bias")?;
            Some(b)
        }
    };
    let sum = cx.map(x.dtype, x.shape.clone(), |i| {
        let s = x.at(i) + skip.spread(i);
        bias.as_ref().map_or(s, |b| s + b.at(&[i[channel]]))
    });
    Ok(Operand::of(cx, sum))
}
