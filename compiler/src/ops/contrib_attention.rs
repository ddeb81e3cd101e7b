//! `MultiHeadAttention`, `Attention` and `QAttention` of the domain `com.microsoft`.

use super::attention::{Attention, Bias, scale_of};
use super::contract::product;
use super::contrib::integer_to_float;
use super::heads::Heads;
use super::operand::{Operand, need_float, same_type};
use super::scalar::le;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::broadcast_index;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("com.microsoft", "MultiHeadAttention", multi_head),
    ("com.microsoft", "Attention", projected),
    ("com.microsoft", "QAttention", quantised),
];

fn heads_of(call: &Call) -> OpResult<i64> {
    match call.opt_int("num_heads")? {
        Some(n) if n > 0 => Ok(n),
        _ => Err(OpError::Invalid("attribute 'num_heads' is missing or not positive".into())),
    }
}

/// `x` plus the part of a bias vector that starts at `from`.
fn with_bias(cx: &mut Cx, x: TensorId, bias: Option<TensorId>, from: Int) -> OpResult<TensorId> {
    let Some(bias) = bias else { return Ok(x) };
    same_type(cx, x, bias)?;
    let (x, bias) = (Operand::of(cx, x), Operand::of(cx, bias));
    if x.rank() != 3 || bias.rank() != 1 {
        return Err(OpError::Invalid("a bias must be a vector that is added to a tensor with three axes".into()));
    }
    cx.require_at_most(from + x.shape[2], bias.shape[0], "the bias is too short")?;
    Ok(cx.map(x.dtype, x.shape.clone(), |i| x.at(i) + bias.at(&[from + i[2]])))
}

/// What is added to scores: the padding mask and the bias, both as numbers, `[batch, head, query, key]` with axes of size 1
/// where they do not differ.
fn added(
    cx: &mut Cx,
    call: &Call,
    dtype: DType,
    mask: Option<TensorId>,
    bias: Option<TensorId>,
    sizes: [Int; 4],
) -> OpResult<Option<Operand>> {
    let [batch, heads, queries, keys] = sizes;
    let one = Int::new(1);
    let hidden = f64::from(call.float("mask_filter_value", -10000.0)?);
    let mask = match mask {
        None => None,
        Some(t) => {
            let m = Operand::of(cx, t);
            if !m.dtype.is_int() {
                return Err(OpError::Invalid(format!("the mask has element type {}", m.dtype)));
            }
            match m.shape.as_slice() {
                // Lengths, or ends and then starts.
                &[n] if n.eq_proof(batch) == Some(true) || n.eq_proof(batch * 2) == Some(true) => {}
                &[_] => return Err(OpError::Unsupported("a mask that is a vector of other than lengths".into())),
                &[b, k] => {
                    cx.require_equal(b, batch, "the mask against the batch")?;
                    cx.require_equal(k, keys, "the mask against the keys")?;
                }
                &[b, q, k] => {
                    cx.require_equal(b, batch, "the mask against the batch")?;
                    cx.require_equal(q, queries, "the mask against the queries")?;
                    cx.require_equal(k, keys, "the mask against the keys")?;
                }
                s => return Err(OpError::Unsupported(format!("a mask of rank {}", s.len()))),
            }
            Some(m)
        }
    };
    let bias = match bias {
        None => None,
        Some(t) => {
            let b = Operand::of(cx, t);
            if b.rank() != 4 || b.dtype != dtype {
                return Err(OpError::Invalid(
                    "the attention bias must have four axes and the type of the queries".into(),
                ));
            }
            for (own, full) in b.shape.iter().zip(sizes) {
                let spread = own.if_eq(1, full, *own);
                cx.require_equal(spread, full, "the attention bias against the scores")?;
            }
            Some(b)
        }
    };
    let shape = match (&mask, &bias) {
        (None, None) => return Ok(None),
        (None, Some(b)) => return Ok(Some(b.clone())),
        (Some(m), None) => vec![batch, one, if m.rank() == 3 { queries } else { one }, keys],
        (Some(_), Some(_)) => vec![batch, heads, queries, keys],
    };
    let wide = dtype.compute();
    let t = cx.map(wide, shape, |i| {
        let zero = expr::constant_f64(wide, 0.0);
        let masked = mask.as_ref().map_or(zero, |m| {
            let number = |e: Expr| e.to(DType::I64);
            let key = expr::int(i[3]);
            let shown = match m.rank() {
                1 => {
                    let inside = key.lt_(number(m.at(&[i[0]])));
                    if m.shape[0] == batch { inside } else { inside & key.ge_(number(m.at(&[batch + i[0]]))) }
                }
                2 => number(m.at(&[i[0], i[3]])).gt_(expr::int(Int::new(0))),
                _ => number(m.at(&[i[0], i[2], i[3]])).gt_(expr::int(Int::new(0))),
            };
            shown.then(zero, zero.num(hidden))
        });
        match &bias {
            Some(b) => {
                let at: Vec<Int> = b.shape.iter().zip(i).map(|(d, i)| broadcast_index(*d, *i)).collect();
                masked + b.at(&at)
            }
            None => masked,
        }
    });
    Ok(Some(Operand::of(cx, t)))
}

/// Builds the attention; gives output, keys and values as used.
#[allow(clippy::too_many_arguments, reason = "the operands of two operators")]
fn attend(
    cx: &mut Cx,
    call: &Call,
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Option<TensorId>,
    bias: Option<TensorId>,
    past: Option<Int>,
    dtype: DType,
) -> OpResult<(TensorId, Attention)> {
    let sizes = [q.batch, q.heads, q.length, k.length];
    let mask = added(cx, call, dtype, mask, bias, sizes)?;
    let causal = call.int("unidirectional", 0)? != 0;
    let bias = Bias { mask, causal, offset: past, ..Bias::default() };
    let scale = scale_of(call, &q)?;
    let a = Attention { q, k, v, scale, softcap: None, bias, sink: None, dtype, precision: dtype.compute() };
    let stages = a.weigh(cx)?;
    let y = a.sum(cx, stages.weights);
    Ok((y, a))
}

/// The `N` tensors in one of shape `[batch, position, head, N, feature]`, each as `[batch, position, head * feature]`.
fn unpacked<const N: usize>(cx: &mut Cx, t: TensorId) -> OpResult<[TensorId; N]> {
    let x = Operand::of(cx, t);
    let &[batch, length, heads, parts, size] = x.shape.as_slice() else {
        return Err(OpError::Invalid(format!("several tensors in one of rank {}, not 5", x.rank())));
    };
    cx.require_equal(parts, Int::from(N), "tensors in one")?;
    Ok(std::array::from_fn(|k| {
        let part = cx.map(x.dtype, vec![batch, length, heads, size], |i| x.at(&[i[0], i[1], i[2], Int::from(k), i[3]]));
        cx.view(part, vec![batch, length, heads * size])
    }))
}

fn multi_head(cx: &mut Cx, call: &Call) -> OpResult {
    let n = heads_of(call)?;
    let tq = call.input(0)?;
    let dtype = cx.dtype(tq);
    need_float(dtype)?;
    let (tq, tk, tv) = match (call.opt(1), call.opt(2)) {
        (Some(k), Some(v)) => (tq, k, v),
        (Some(both), None) => {
            let [k, v] = unpacked(cx, both)?;
            (tq, k, v)
        }
        (None, None) => {
            let [q, k, v] = unpacked(cx, tq)?;
            (q, k, v)
        }
        (None, Some(_)) => return Err(OpError::Invalid("values without keys".into())),
    };
    for t in [tk, tv] {
        same_type(cx, tq, t)?;
    }
    if call.opt(8).is_some() || call.opt(9).is_some() {
        return Err(OpError::Unsupported("inputs 'past_sequence_length' and 'cache_indirection'".into()));
    }
    let bias = call.opt(3);
    let width = cx.shape(tq).get(2).copied().unwrap_or(Int::new(0));
    let tq = with_bias(cx, tq, bias, Int::new(0))?;
    let (tk, tv) = if cx.rank(tk) == 3 {
        (with_bias(cx, tk, bias, width)?, with_bias(cx, tv, bias, width * 2)?)
    } else {
        (tk, tv)
    };
    let q = Heads::of(cx, tq, Some(n), "the queries")?;
    let mut k = Heads::of(cx, tk, Some(n), "the keys")?;
    let mut v = Heads::of(cx, tv, Some(n), "the values")?;
    let mut past = None;
    if let (Some(past_k), Some(past_v)) = (call.opt(6), call.opt(7)) {
        let own = k.length;
        k = k.after(cx, past_k, "the past keys")?;
        v = v.after(cx, past_v, "the past values")?;
        past = Some(k.length - own);
    }
    let (y, a) = attend(cx, call, q, k, v, call.opt(4), call.opt(5), past, dtype)?;
    let mut out = vec![y];
    if call.wants(1) || call.wants(2) {
        out.push(a.k.unpacked(cx));
        out.push(a.v.unpacked(cx));
    }
    Ok(out)
}

fn projected(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w) = (call.input(0)?, call.input(1)?);
    let dtype = same_type(cx, x, w)?;
    need_float(dtype)?;
    let (&[_, _, _], &[_, all]) = (cx.shape(x).as_slice(), cx.shape(w).as_slice()) else {
        return Err(OpError::Invalid("the input must have three axes and the weights two".into()));
    };
    if call.opt(6).is_some() {
        return Err(OpError::Unsupported("input 'past_sequence_length'".into()));
    }
    let sizes = match call.opt_ints("qkv_hidden_sizes")? {
        Some(s) if s.len() == 3 => [s[0], s[1], s[2]].map(Int::new),
        Some(s) if !s.is_empty() => {
            return Err(OpError::Invalid(format!("attribute 'qkv_hidden_sizes' has {} numbers, not 3", s.len())));
        }
        _ => thirds(cx, all)?,
    };
    cx.require_equal(sizes[0] + sizes[1] + sizes[2], all, "hidden sizes against the weights")?;
    let y = product(cx, x, w, dtype, dtype)?;
    let y = with_bias(cx, y, call.opt(2), Int::new(0))?;
    self_attention(cx, call, y, sizes, [call.opt(3), call.opt(4), call.opt(5)])
}

fn thirds(cx: &mut Cx, all: Int) -> OpResult<[Int; 3]> {
    cx.require_equal(all.rem(3), Int::new(0), "columns of the weights modulo 3")?;
    Ok([all.div(3); 3])
}

/// Quantised inputs and weights; the products are scaled to floats.
fn quantised(cx: &mut Cx, call: &Call) -> OpResult {
    let (x, w, bias) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (&[_, _, _], &[_, all]) = (cx.shape(x).as_slice(), cx.shape(w).as_slice()) else {
        return Err(OpError::Invalid("the input must have three axes and the weights two".into()));
    };
    let sizes = thirds(cx, all)?;
    let (a, b) = ((x, call.input(3)?, call.opt(6)), (w, call.input(4)?, call.opt(7)));
    let made = integer_to_float(cx, a, b, None)?;
    let y = with_bias(cx, made[0], Some(bias), Int::new(0))?;
    self_attention(cx, call, y, sizes, [call.opt(5), call.opt(8), None])
}

/// Attention of the queries, keys and values that lie one after the other, `sizes` features each, along the last axis of `y`.
fn self_attention(
    cx: &mut Cx,
    call: &Call,
    y: TensorId,
    sizes: [Int; 3],
    [mask, past, bias]: [Option<TensorId>; 3],
) -> OpResult {
    let n = heads_of(call)?;
    let y = Operand::of(cx, y);
    let (dtype, batch, length) = (y.dtype, y.shape[0], y.shape[1]);
    let mut from = Int::new(0);
    let mut parts = vec![];
    for size in sizes {
        let start = from;
        parts.push(cx.map(dtype, vec![batch, length, size], |i| y.at(&[i[0], i[1], start + i[2]])));
        from = from + size;
    }
    let q = Heads::of(cx, parts[0], Some(n), "the queries")?;
    let mut k = Heads::of(cx, parts[1], Some(n), "the keys")?;
    let mut v = Heads::of(cx, parts[2], Some(n), "the values")?;
    let mut offset = None;
    if let Some(t) = past {
        let p = Operand::of(cx, t);
        let &[two, b, h, old, size] = p.shape.as_slice() else {
            return Err(OpError::Invalid(format!("the past has rank {}, not 5", p.rank())));
        };
        cx.require_equal(two, Int::new(2), "parts of the past")?;
        let mut half = |part: i64| cx.map(p.dtype, vec![b, h, old, size], |i| p.at(&[&[Int::new(part)], i].concat()));
        let (past_k, past_v) = (half(0), half(1));
        k = k.after(cx, past_k, "the past keys")?;
        v = v.after(cx, past_v, "the past values")?;
        offset = Some(old);
    }
    let (y, a) = attend(cx, call, q, k, v, mask, bias, offset, dtype)?;
    let mut out = vec![y];
    if call.wants(1) {
        let shape = vec![Int::new(2), a.k.batch, a.k.heads, a.k.length, a.k.size];
        out.push(cx.map(dtype, shape, |i| {
            let first = le(i[0], 0);
            first.then(a.k.at(i[1], i[2], i[3], i[4]), a.v.at(i[1], i[2], i[3], i[4]))
        }));
    }
    Ok(out)
}
