//! `GroupQueryAttention` of com.microsoft: attention over a cache of keys and values, with a length of its own for each
//! batch entry.

use super::attention::{Attention, Bias, Sink, scale_of};
use super::contrib::apply;
use super::heads::Heads;
use super::operand::{Operand, need_float, same_type};
use super::rotary::Turn;
use super::sizes::{int_scalar, invalid, unsupported};
use super::{AttrValue, Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("com.microsoft", "GroupQueryAttention", group_query)];

/// The numbers of a batch: `[batch]` tensors of positions.
struct Lengths {
    /// How many keys each entry has, new ones included.
    total: Operand,
    /// How many of them are in the cache already.
    past: Operand,
}

fn heads(call: &Call, name: &str) -> OpResult<i64> {
    match call.opt_int(name)? {
        Some(n) if (1..1 << 32).contains(&n) => Ok(n),
        _ => invalid(format!("attribute '{name}' is missing or not positive")),
    }
}

/// Queries, keys and values, each `[batch, position, head * feature]`.
fn operands(cx: &mut Cx, call: &Call, queries: i64, shared: i64) -> OpResult<[TensorId; 3]> {
    let q = call.input(0)?;
    need_float(cx.dtype(q))?;
    if cx.rank(q) != 3 {
        return invalid(format!("the queries have rank {}, not 3", cx.rank(q)));
    }
    match (call.opt(1), call.opt(2)) {
        (Some(k), Some(v)) => {
            for t in [k, v] {
                same_type(cx, q, t)?;
                if cx.rank(t) != 3 {
                    return invalid(format!("keys or values have rank {}, not 3", cx.rank(t)));
                }
            }
            Ok([q, k, v])
        }
        (None, None) => {
            let x = Operand::of(cx, q);
            let all = queries + 2 * shared;
            cx.require_equal(x.shape[2].rem(all), Int::new(0), "features modulo the heads")?;
            let size = x.shape[2].div(all);
            let mut part = |from: i64, count: i64| {
                let shape = vec![x.shape[0], x.shape[1], size * count];
                cx.map(x.dtype, shape, |i| x.at(&[i[0], i[1], i[2] + size * from]))
            };
            Ok([part(0, queries), part(queries, shared), part(queries + shared, shared)])
        }
        _ => invalid("only one of keys and values is given"),
    }
}

/// `own`: rows of new keys; `rows`: of the cache with them; `before`: of the cache that is given.
fn lengths(cx: &mut Cx, call: &Call, batch: Int, own: Int, rows: Int, before: Int) -> OpResult<Lengths> {
    let last = Operand::of(cx, call.input(5)?);
    if !last.dtype.is_int() {
        return invalid(format!("seqlens_k has element type {}", last.dtype));
    }
    let all = Int::product(&last.shape);
    cx.require_equal(all, batch, "seqlens_k against the batch")?;
    let list = cx.view(last.id, vec![batch]);
    let last = Operand::of(cx, list);
    let one = expr::constant_i64(DType::I64, 1);
    let total = cx.map(DType::I64, vec![batch], |i| last.at(i).to(DType::I64) + one);
    let total = Operand::of(cx, total);
    // What reads with these numbers is kept inside of its buffers; others than can be are an error of the run all the same.
    let none = expr::int(Int::new(0));
    let wrong = cx.reduce(ReduceKind::Max, DType::I64, vec![], &[batch], |_, r| {
        let n = total.at(r);
        let most = rows.min(before + own);
        (n.lt_(one) | n.gt_(expr::int(most))).then(one, none)
    });
    let wrong = cx.read(wrong, 0, "wrong", None, None);
    cx.require_at_most(wrong, Int::new(0), "seqlens_k against the numbers of keys")?;
    // A prompt that is padded has fewer keys than rows; nothing is before it.
    let past = cx.map(DType::I64, vec![batch], |i| {
        let before = total.at(i) - expr::int(own);
        before.max_(before.num(0.0))
    });
    Ok(Lengths { past: Operand::of(cx, past), total })
}

/// Each head divided by its root mean square and multiplied by `weight`.
fn normalised(cx: &mut Cx, call: &Call, x: Heads, weight: Option<TensorId>, what: &str) -> OpResult<Heads> {
    let Some(weight) = weight else { return Ok(x) };
    let shape = vec![x.batch, x.length, x.heads, x.size];
    let id = x.id();
    let rows = cx.view(id, shape);
    let epsilon = call.float("qk_norm_epsilon", 1e-6)?;
    let attrs = [("axis", AttrValue::Int(-1)), ("epsilon", AttrValue::Float(epsilon))];
    let y = apply(cx, "SimplifiedLayerNormalization", &[Some(rows), Some(weight)], &attrs)?;
    let y = cx.view(y, vec![x.batch, x.length, x.heads * x.size]);
    Heads::of(cx, y, x.heads.as_const(), what)
}

/// Turns queries or keys by their positions. Rows of padding are at position 1, as in onnxruntime. Of positions that are
/// given, a prompt uses the first alone; `most` is the largest number of keys of the batch.
fn turned(cx: &mut Cx, call: &Call, x: Heads, n: &Lengths, most: Int, what: &str) -> OpResult<Heads> {
    let (cos, sin) = (Operand::of(cx, call.input(7)?), Operand::of(cx, call.input(8)?));
    for t in [&cos, &sin] {
        same_type(cx, x.id(), t.id)?;
        if t.rank() != 2 {
            return invalid(format!("a table of angles has rank {}, not 2", t.rank()));
        }
    }
    for (a, b) in cos.shape.iter().zip(&sin.shape) {
        cx.require_equal(*a, *b, "tables of sines and cosines")?;
    }
    let turn = Turn { turned: cos.shape[1] * 2, interleaved: call.int("rotary_interleaved", 0)? != 0 };
    cx.require_at_most(turn.turned, x.size, "angles against the features of a head")?;
    let given = match call.opt(9) {
        None => None,
        Some(t) => {
            let p = Operand::of(cx, t);
            if p.rank() != 2 || !p.dtype.is_int() {
                return invalid("position_ids must be a matrix of integers");
            }
            cx.require_equal(p.shape[0], x.batch, "positions against the batch")?;
            cx.require_equal(p.shape[1], x.length, "positions against the sequence")?;
            Some(p)
        }
    };
    let position = |b: Int, s: Int| {
        let at = match &given {
            Some(p) => {
                let prompt = expr::int(x.length).eq_(expr::int(most));
                let first = p.at(&[Int::new(0), Int::new(0)]).to(DType::I64) + expr::int(s);
                prompt.then(first, p.at(&[b, s]).to(DType::I64))
            }
            None => {
                let own = n.past.at(&[b]) + expr::int(s);
                own.lt_(n.total.at(&[b])).then(own, own.num(1.0))
            }
        };
        // Never outside of the table.
        expr::as_int(at).max(0).min(cos.shape[0] - 1)
    };
    let shape = vec![x.batch, x.length, x.heads, x.size];
    let y = cx.map(cos.dtype, shape, |i| {
        turn.element(&x, [i[0], i[2], i[1], i[3]], |pair| {
            let row = position(i[0], i[1]);
            (cos.at(&[row, pair]), sin.at(&[row, pair]))
        })
    });
    let y = cx.view(y, vec![x.batch, x.length, x.heads * x.size]);
    Heads::of(cx, y, x.heads.as_const(), what)
}

/// The cache with the new rows where each entry's past ends, zeros behind them.
fn appended(cx: &mut Cx, new: &Heads, past: Option<TensorId>, rows: Int, n: &Lengths, what: &str) -> OpResult<Heads> {
    let past = match past {
        None => None,
        Some(t) => {
            same_type(cx, new.id(), t)?;
            let p = Heads::of(cx, t, None, what)?;
            for (a, b) in [(p.batch, new.batch), (p.heads, new.heads), (p.size, new.size)] {
                cx.require_equal(a, b, what)?;
            }
            Some(p)
        }
    };
    let dtype = cx.dtype(new.id());
    let y = cx.map(dtype, vec![new.batch, new.heads, rows, new.size], |i| {
        let before = n.past.at(&[i[0]]);
        let own = expr::int(i[2]) - before;
        let at = expr::as_int(own).max(0).min(new.length - 1);
        let fresh = new.at(i[0], i[1], at, i[3]);
        let inside = own.lt_(expr::int(new.length));
        let fresh = inside.then(fresh, fresh.num(0.0));
        match &past {
            None => fresh,
            Some(p) => {
                let old = p.at(i[0], i[1], i[2].min((p.length - 1).max(0)), i[3]);
                expr::int(i[2]).lt_(before).then(old, fresh)
            }
        }
    });
    Heads::of(cx, y, None, what)
}

fn attention_bias(cx: &mut Cx, t: TensorId, sizes: [Int; 4], dtype: DType) -> OpResult<Operand> {
    let b = Operand::of(cx, t);
    if b.rank() != 4 || b.dtype != dtype {
        return invalid("the attention bias must have four axes and the type of the queries");
    }
    for (k, (own, full)) in b.shape.iter().zip(sizes).enumerate() {
        if k == 3 {
            // It ends where the keys end, which may be before the end of the cache.
            cx.require_at_most(*own, full, "the attention bias against the keys")?;
        } else {
            cx.require_equal(own.if_eq(1, full, *own), full, "the attention bias against the scores")?;
        }
    }
    Ok(b)
}

fn group_query(cx: &mut Cx, call: &Call) -> OpResult {
    let (queries, shared) = (heads(call, "num_heads")?, heads(call, "kv_num_heads")?);
    for (k, name) in [(12, "k_scale"), (13, "v_scale"), (16, "query_seqlens")] {
        if call.opt(k).is_some() {
            return unsupported(format!("input '{name}'"));
        }
    }
    let [tq, tk, tv] = operands(cx, call, queries, shared)?;
    let dtype = cx.dtype(tq);
    let mut q = Heads::of(cx, tq, Some(queries), "the queries")?;
    let mut k = Heads::of(cx, tk, Some(shared), "the keys")?;
    let v = Heads::of(cx, tv, Some(shared), "the values")?;
    cx.require_equal(k.length, q.length, "numbers of new keys and queries")?;
    let most = int_scalar(cx, call.input(6)?, "total_sequence_length")?;
    let before = match call.opt(3) {
        Some(t) if cx.rank(t) == 4 => cx.shape(t)[2],
        _ => Int::new(0),
    };
    cx.require_at_most(Int::new(1), most, "total_sequence_length")?;
    cx.require_at_most(most, before + q.length, "total_sequence_length against the numbers of keys")?;
    let rows = most.max(if call.opt(3).is_some() { before } else { q.length });
    let n = lengths(cx, call, q.batch, q.length, rows, before)?;
    if call.opt(14).is_some() != call.opt(15).is_some() {
        return invalid("only one of q_norm_weight and k_norm_weight is given");
    }
    q = normalised(cx, call, q, call.opt(14), "the queries")?;
    k = normalised(cx, call, k, call.opt(15), "the keys")?;
    if call.int("do_rotary", 0)? != 0 {
        q = turned(cx, call, q, &n, most, "the queries")?;
        k = turned(cx, call, k, &n, most, "the keys")?;
    }
    match (call.opt(3), call.opt(4)) {
        (Some(a), Some(b)) if cx.rank(a) == 4 && cx.rank(b) == 4 => {
            let length = cx.shape(a)[2];
            let other = cx.shape(b)[2];
            cx.require_equal(length, other, "numbers of past keys and values")?;
        }
        (None, None) => {}
        (Some(_), Some(_)) => return invalid("past keys and values must have four axes"),
        _ => return invalid("only one of past keys and past values is given"),
    }
    let k = appended(cx, &k, call.opt(3), rows, &n, "the past keys")?;
    let v = appended(cx, &v, call.opt(4), rows, &n, "the past values")?;
    let causal = call.int("causal", 1)? != 0;
    let window = match call.int("local_window_size", -1)? {
        -1 => None,
        w if w > 0 && causal => Some(w - 1),
        w => return invalid(format!("attribute 'local_window_size' is {w}")),
    };
    let mask = match call.opt(10) {
        None => None,
        Some(t) => Some(attention_bias(cx, t, [q.batch, q.heads, q.length, rows], dtype)?),
    };
    let sink = match call.opt(11) {
        Some(t) => {
            same_type(cx, tq, t)?;
            let s = Operand::of(cx, t);
            let [count] = s.shape[..] else { return invalid(format!("head_sink of rank {}", s.rank())) };
            cx.require_equal(count, q.heads, "head_sink against the heads")?;
            Some(Sink::Heads(s))
        }
        None => Some(Sink::Zero).filter(|_| call.int("smooth_softmax", 0).is_ok_and(|v| v > 0)),
    };
    let bias = Bias { mask, causal, left: window, valid: Some(n.total), starts: Some(n.past), ..Bias::default() };
    let scale = scale_of(call, &q)?;
    let softcap = Some(f64::from(call.float("softcap", 0.0)?)).filter(|c| *c > 0.0);
    let a = Attention { q, k, v, scale, softcap, bias, sink, dtype, precision: dtype.compute() };
    let stages = a.weigh(cx)?;
    let y = a.sum(cx, stages.weights);
    Ok(vec![y, a.k.id(), a.v.id()])
}
