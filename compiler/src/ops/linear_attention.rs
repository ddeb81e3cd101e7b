//! `LinearAttention`: a recurrence over a matrix of keys by values; `CausalConvWithState`: a convolution over the past.

use super::operand::{Operand, need_float};
use super::recurrent_kernel::{block_lanes, blocks};
use super::scalar::lt;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Reg, Type};
use crate::sym::Int;
use crate::te::{Cx, KernelCx, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "LinearAttention", linear_attention), ("", "CausalConvWithState", causal_conv)];

/// Checks the shape of an operand.
fn expect(cx: &mut Cx, o: &Operand, shape: &[Int], what: &str) -> OpResult<()> {
    if o.rank() != shape.len() {
        return Err(OpError::Invalid(format!("{what}: rank {} instead of {}", o.rank(), shape.len())));
    }
    for (a, b) in o.shape.iter().zip(shape) {
        cx.require_equal(*a, *b, what)?;
    }
    Ok(())
}

/// All that the kernel of the recurrence needs to know.
#[derive(Clone, Copy)]
struct Recurrence {
    batch: Int,
    steps: Int,
    heads: Int,
    /// Query heads for each key head.
    group: Int,
    keys: Int,
    values: Int,
    scale: f64,
    dtype: DType,
    past: Option<usize>,
    decay: Option<usize>,
    /// One decay for each key, not one for each head.
    decay_by_key: bool,
    beta: Option<usize>,
    /// One update rate for each head.
    beta_by_head: bool,
    /// The update is the difference to what the state holds already.
    delta: bool,
}

fn linear_attention(cx: &mut Cx, call: &Call) -> OpResult {
    let [q, k, v] = [call.input(0)?, call.input(1)?, call.input(2)?].map(|t| Operand::of(cx, t));
    need_float(q.dtype)?;
    let (gated, delta) = match call.string("update_rule", "gated_delta".into())?.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(OpError::Invalid(format!("attribute 'update_rule' is '{other}'"))),
    };
    let (Some(queries), Some(heads)) = (call.opt_int("q_num_heads")?, call.opt_int("kv_num_heads")?) else {
        return Err(OpError::Invalid("attributes 'q_num_heads' and 'kv_num_heads' are needed".into()));
    };
    if heads < 1 || queries < 1 || queries % heads != 0 {
        return Err(OpError::Invalid(format!("{queries} query heads are not a multiple of {heads} key heads")));
    }
    let (&[batch, steps, wide], &[_, _, all_values]) = (q.shape.as_slice(), v.shape.as_slice()) else {
        return Err(OpError::Invalid("queries and values must have three axes".into()));
    };
    cx.require_equal(wide.rem(queries), Int::new(0), "features of the queries modulo the heads")?;
    cx.require_equal(all_values.rem(heads), Int::new(0), "features of the values modulo the heads")?;
    let (keys, values, n) = (wide.div(queries), all_values.div(heads), Int::new(heads));
    expect(cx, &k, &[batch, steps, n * keys], "keys")?;
    expect(cx, &v, &[batch, steps, n * values], "values")?;
    let scale = match call.float("scale", 0.0)? {
        0.0 => match keys.as_const() {
            Some(d) if d > 0 => 1.0 / (d as f64).sqrt(),
            _ => return Err(OpError::Unsupported("number of features of the keys that is not a constant".into())),
        },
        s => f64::from(s),
    };
    let state = vec![batch, n, keys, values];
    let mut inputs = vec![q.id, k.id, v.id];
    let mut r = Recurrence {
        batch,
        steps,
        heads: n,
        group: Int::new(queries / heads),
        keys,
        values,
        scale,
        dtype: q.dtype.compute(),
        past: None,
        decay: None,
        decay_by_key: false,
        beta: None,
        beta_by_head: false,
        delta,
    };
    let mut kept = q.dtype;
    if let Some(past) = call.opt(3) {
        let past = Operand::of(cx, past);
        expect(cx, &past, &state, "past state")?;
        kept = past.dtype;
        r.past = Some(inputs.len());
        inputs.push(past.id);
    }
    let missing = |what: &str| OpError::Invalid(format!("this update rule needs the input '{what}'"));
    if gated {
        let g = Operand::of(cx, call.opt(4).ok_or_else(|| missing("decay"))?);
        let per_head = g.shape.last().and_then(|d| d.eq_proof(n)) == Some(true);
        r.decay_by_key = !per_head;
        expect(cx, &g, &[batch, steps, if per_head { n } else { n * keys }], "decay")?;
        let factor = cx.map(r.dtype, g.shape.clone(), |i| g.at(i).to(r.dtype).exp());
        r.decay = Some(inputs.len());
        inputs.push(factor);
    }
    if delta {
        let b = Operand::of(cx, call.opt(5).ok_or_else(|| missing("beta"))?);
        r.beta_by_head = b.shape.last() != Some(&Int::new(1));
        expect(cx, &b, &[batch, steps, if r.beta_by_head { n } else { Int::new(1) }], "beta")?;
        r.beta = Some(inputs.len());
        inputs.push(b.id);
    }
    if [k.dtype, v.dtype].iter().any(|t| *t != q.dtype) {
        return Err(OpError::Invalid("queries, keys and values differ in type".into()));
    }
    let outputs = vec![(q.dtype, vec![batch, steps, values * queries]), (kept, state)];
    Ok(cx.custom("linear_attention", &inputs, outputs, vec![(r.dtype, keys * values)], move |k| generate(k, r)))
}

/// Columns of the state do not depend on each other: the loop over blocks of them is outside that over steps.
fn generate(k: &mut KernelCx<'_>, r: Recurrence) {
    let (batch, steps, heads, group) = (k.int(r.batch), k.int(r.steps), k.int(r.heads), k.int(r.group));
    let (keys, values) = (k.int(r.keys), k.int(r.values));
    let input = |at: Option<usize>| at.and_then(|at| k.inputs.get(at).copied());
    let (past, decay, beta) = (input(r.past), input(r.decay), input(r.beta));
    let (query, key, value) = (k.inputs[0], k.inputs[1], k.inputs[2]);
    let (output, present, state) = (k.outputs[0], k.outputs[1], k.scratch[0]);
    let lanes = block_lanes(r.values, if r.dtype == DType::F64 { 8 } else { 16 });
    let b = &mut *k.b;
    let zero = b.i64(0);
    b.for_(zero, batch, 1, |b, entry| {
        b.for_(zero, heads, 1, |b, head| {
            blocks(b, values, lanes, |b, column, lanes, _| {
                let ty = Type::vector(r.dtype, lanes);
                let row = b.mul(entry, heads);
                let row = b.add(row, head);
                let row = b.mul(row, keys);
                copy(b, past.map(|p| (p, row)), (state, zero), keys, values, column, ty);
                b.for_(zero, steps, 1, |b, step| {
                    let time = b.mul(entry, steps);
                    let time = b.add(time, step);
                    // Row of this head in a tensor with `heads` heads a step.
                    let line = b.mul(time, heads);
                    let line = b.add(line, head);
                    let from = b.mul(line, keys);
                    let spread = |b: &mut Builder, buf: Buf, at: Reg| {
                        let v = b.load(buf, at, 0, 1);
                        b.splat(v, lanes)
                    };
                    let nothing = b.float(ty, 0.0);
                    let held = b.var_init(nothing);
                    if decay.is_some() || r.delta {
                        b.for_(zero, keys, 1, |b, i| {
                            let at = b.mul(i, values);
                            let at = b.add(at, column);
                            let mut s = b.load(state, at, 0, lanes);
                            if let Some(decay) = decay {
                                let g = if r.decay_by_key { b.add(from, i) } else { line };
                                let g = spread(b, decay, g);
                                s = b.mul(s, g);
                                b.store(state, at, 0, s);
                            }
                            let at = b.add(from, i);
                            let x = spread(b, key, at);
                            let sum = b.get(held);
                            let sum = b.fma(s, x, sum);
                            b.set(held, sum);
                        });
                    }
                    let at = b.mul(line, values);
                    let at = b.add(at, column);
                    let mut fresh = b.load(value, at, 0, lanes);
                    if r.delta {
                        let sum = b.get(held);
                        fresh = b.sub(fresh, sum);
                    }
                    if let Some(beta) = beta {
                        let at = if r.beta_by_head { line } else { time };
                        let rate = spread(b, beta, at);
                        fresh = b.mul(fresh, rate);
                    }
                    b.for_(zero, keys, 1, |b, i| {
                        let at = b.mul(i, values);
                        let at = b.add(at, column);
                        let s = b.load(state, at, 0, lanes);
                        let from = b.add(from, i);
                        let x = spread(b, key, from);
                        let s = b.fma(x, fresh, s);
                        b.store(state, at, 0, s);
                    });
                    b.for_(zero, group, 1, |b, member| {
                        let line = b.mul(line, group);
                        let line = b.add(line, member);
                        let from = b.mul(line, keys);
                        b.set(held, nothing);
                        b.for_(zero, keys, 1, |b, i| {
                            let at = b.mul(i, values);
                            let at = b.add(at, column);
                            let s = b.load(state, at, 0, lanes);
                            let from = b.add(from, i);
                            let x = spread(b, query, from);
                            let sum = b.get(held);
                            let sum = b.fma(s, x, sum);
                            b.set(held, sum);
                        });
                        let sum = b.get(held);
                        let scale = b.float(ty, r.scale);
                        let sum = b.mul(sum, scale);
                        let at = b.mul(line, values);
                        let at = b.add(at, column);
                        b.store(output, at, 0, sum);
                    });
                });
                copy(b, Some((state, zero)), (present, row), keys, values, column, ty);
            });
        });
    });
}

/// Copies columns of a state of which the first row has the given number; zeros if there is no source.
fn copy(b: &mut Builder, from: Option<(Buf, Reg)>, to: (Buf, Reg), keys: Reg, values: Reg, column: Reg, ty: Type) {
    let zero = b.i64(0);
    b.for_(zero, keys, 1, |b, i| {
        let place = |b: &mut Builder, row: Reg| {
            let at = b.add(row, i);
            let at = b.mul(at, values);
            b.add(at, column)
        };
        let v = match from {
            Some((buf, row)) => {
                let at = place(b, row);
                b.load(buf, at, 0, ty.lanes)
            }
            None => b.float(ty, 0.0),
        };
        let at = place(b, to.1);
        b.store(to.0, at, 0, v);
    });
}

fn causal_conv(cx: &mut Cx, call: &Call) -> OpResult {
    let [x, w] = [call.input(0)?, call.input(1)?].map(|t| Operand::of(cx, t));
    need_float(x.dtype)?;
    let [bias, past] = [call.opt(2), call.opt(3)].map(|t| t.map(|t| Operand::of(cx, t)));
    let silu = match call.string("activation", "none".into())?.as_str() {
        "none" | "" => false,
        "silu" | "swish" => true,
        other => return Err(OpError::Invalid(format!("attribute 'activation' is '{other}'"))),
    };
    let (&[batch, channels, length], &[_, _, taps]) = (x.shape.as_slice(), w.shape.as_slice()) else {
        return Err(OpError::Invalid("input and weights must have three axes".into()));
    };
    expect(cx, &w, &[channels, Int::new(1), taps], "weights")?;
    let before = taps - 1;
    cx.require_at_most(Int::new(0), before, "the kernel is empty")?;
    if let Some(b) = &bias {
        expect(cx, b, &[channels], "bias")?;
    }
    if let Some(p) = &past {
        expect(cx, p, &[batch, channels, before], "past state")?;
    }
    if [Some(&w), bias.as_ref(), past.as_ref()].into_iter().flatten().any(|o| o.dtype != x.dtype) {
        return Err(OpError::Invalid("operands differ in type".into()));
    }
    let dtype = x.dtype;
    let joined = cx.map(dtype, vec![batch, channels, before + length], |i| {
        let old = match &past {
            Some(p) => p.at(i),
            None => expr::constant_f64(dtype, 0.0),
        };
        lt(i[2], before).then(old, x.at(&[i[0], i[1], i[2] - before]))
    });
    let wide = dtype.compute();
    let sum = cx.reduce(ReduceKind::Sum, wide, vec![batch, channels, length], &[taps], |i, r| {
        w.at(&[i[1], Int::new(0), r[0]]) * expr::load(joined, dtype, vec![i[0], i[1], i[2] + r[0]])
    });
    let y = cx.map(dtype, vec![batch, channels, length], |i| {
        let mut e = expr::load(sum, wide, i.to_vec());
        if let Some(b) = &bias {
            e = e + b.at(&[i[1]]);
        }
        if silu { e * super::scalar::sigmoid(e) } else { e }
    });
    let mut out: Vec<TensorId> = vec![y];
    if call.wants(1) {
        out.push(
            cx.map(dtype, vec![batch, channels, before], |i| {
                expr::load(joined, dtype, vec![i[0], i[1], i[2] + length])
            }),
        );
    }
    Ok(out)
}
