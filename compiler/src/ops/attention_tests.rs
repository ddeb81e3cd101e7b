//! Attention, rotation and linear attention against their definitions as plain loops in double precision.

use super::AttrValue;
use super::testing::{Value, run, value};
use crate::dtype::DType;

/// Reproducible numbers between -1 and 1.
fn numbers(shape: &[usize], seed: u32) -> Value {
    let mut s = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut next = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((f64::from(s >> 8) / f64::from(1 << 23) - 1.0) as f32)
    };
    let data: Vec<f64> = (0..shape.iter().product()).map(|_| next()).collect();
    value(DType::F32, shape, &data)
}

fn int(v: i64) -> AttrValue {
    AttrValue::Int(v)
}

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (k, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() < 3e-6, "element {k}: {a} instead of {b}");
    }
}

struct Sizes {
    batch: usize,
    heads: usize,
    shared: usize,
    queries: usize,
    keys: usize,
    size: usize,
    values: usize,
}

/// Attention over `[batch, head, position, feature]`; `bias` gives what is added, minus infinity where hidden.
fn attention(s: &Sizes, q: &Value, k: &Value, v: &Value, bias: &dyn Fn(usize, usize, usize, usize) -> f64) -> Vec<f64> {
    let scale = 1.0 / (s.size as f64).sqrt();
    let mut out = vec![];
    for b in 0..s.batch {
        for h in 0..s.heads {
            let g = b * s.shared + h / (s.heads / s.shared);
            for i in 0..s.queries {
                let row = (b * s.heads + h) * s.queries + i;
                let logits: Vec<f64> = (0..s.keys)
                    .map(|j| {
                        let dot = |d: usize| q.data[row * s.size + d] * k.data[(g * s.keys + j) * s.size + d];
                        (0..s.size).map(dot).sum::<f64>() * scale + bias(b, h, i, j)
                    })
                    .collect();
                let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let power: Vec<f64> =
                    logits.iter().map(|x| if most == f64::NEG_INFINITY { 0.0 } else { (x - most).exp() }).collect();
                let sum = power.iter().sum::<f64>().max(f64::MIN_POSITIVE);
                out.extend((0..s.values).map(|e| {
                    (0..s.keys).map(|j| power[j] / sum * v.data[(g * s.keys + j) * s.values + e]).sum::<f64>()
                }));
            }
        }
    }
    out
}

const SIZES: Sizes = Sizes { batch: 2, heads: 4, shared: 2, queries: 3, keys: 5, size: 4, values: 3 };

fn operands() -> [Value; 3] {
    let s = SIZES;
    [
        numbers(&[s.batch, s.heads, s.queries, s.size], 1),
        numbers(&[s.batch, s.shared, s.keys, s.size], 2),
        numbers(&[s.batch, s.shared, s.keys, s.values], 3),
    ]
}

#[test]
fn query_heads_share_key_heads_in_groups() {
    let [q, k, v] = operands();
    let want = attention(&SIZES, &q, &k, &v, &|_, _, _, _| 0.0);
    let got = run("Attention", 24, &[q, k, v].map(Some), &[], 1).expect("legal").remove(0);
    assert_eq!(got.shape, [2, 4, 3, 3]);
    close(&got.data, &want);
}

#[test]
fn a_short_mask_hides_the_keys_behind_it_and_a_row_without_keys_is_zero() {
    let [q, k, v] = operands();
    // Three of five keys are listed; query 1 sees none of them.
    let shown = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
    let bias = |_: usize, _: usize, i: usize, j: usize| {
        if j < 3 && shown[i * 3 + j] != 0.0 { 0.0 } else { f64::NEG_INFINITY }
    };
    let want = attention(&SIZES, &q, &k, &v, &bias);
    let mask = value(DType::Bool, &[3, 3], &shown);
    let got = run("Attention", 24, &[q, k, v, mask].map(Some), &[], 1).expect("legal").remove(0);
    close(&got.data, &want);
    assert!(got.data[9..18].iter().zip(&want[9..18]).all(|(a, b)| a == b || *b != 0.0));
    assert_eq!(got.data[3..6], [0.0; 3]);
}

#[test]
fn past_keys_come_first_and_shift_the_causal_frontier() {
    let s = Sizes { keys: 5, ..SIZES };
    let [q, k, v] = operands();
    // The first two positions of the keys are the past.
    let part = |v: &Value, from: usize, n: usize| {
        let size = v.shape[3];
        let data: Vec<f64> = (0..s.batch * s.shared)
            .flat_map(|row| v.data[(row * s.keys + from) * size..(row * s.keys + from + n) * size].to_vec())
            .collect();
        value(DType::F32, &[s.batch, s.shared, n, size], &data)
    };
    let inputs =
        [Some(q.clone()), Some(part(&k, 2, 3)), Some(part(&v, 2, 3)), None, Some(part(&k, 0, 2)), Some(part(&v, 0, 2))];
    let got = run("Attention", 24, &inputs, &[("is_causal", int(1))], 3).expect("legal");
    let bias = |_: usize, _: usize, i: usize, j: usize| if j <= i + 2 { 0.0 } else { f64::NEG_INFINITY };
    close(&got[0].data, &attention(&s, &q, &k, &v, &bias));
    assert_eq!((&got[1], &got[2]), (&k, &v));
}

#[test]
fn features_of_packed_heads_are_found() {
    let s = Sizes { shared: 4, ..SIZES };
    let packed = |v: &Value| {
        let [b, h, n, d] = [v.shape[0], v.shape[1], v.shape[2], v.shape[3]];
        let mut data = vec![];
        for row in 0..b * n {
            for head in 0..h {
                let from = ((row / n * h + head) * n + row % n) * d;
                data.extend(&v.data[from..from + d]);
            }
        }
        value(DType::F32, &[b, n, h * d], &data)
    };
    let q = numbers(&[s.batch, s.heads, s.queries, s.size], 4);
    let k = numbers(&[s.batch, s.heads, s.keys, s.size], 5);
    let v = numbers(&[s.batch, s.heads, s.keys, s.values], 6);
    let want = attention(&s, &q, &k, &v, &|_, _, _, _| 0.0);
    let want = packed(&value(DType::F32, &[s.batch, s.heads, s.queries, s.values], &want));
    let attrs = [("q_num_heads", int(4)), ("kv_num_heads", int(4))];
    let got = run("Attention", 24, &[packed(&q), packed(&k), packed(&v)].map(Some), &attrs, 1).expect("legal");
    assert_eq!(got[0].shape, want.shape);
    close(&got[0].data, &want.data);
}

#[test]
fn misfitting_operands_of_attention_are_refused() {
    let [q, k, v] = operands();
    let three = numbers(&[2, 3, 3, 4], 1);
    assert!(run("Attention", 24, &[Some(three), Some(k.clone()), Some(v.clone())], &[], 1).is_err());
    let narrow = numbers(&[2, 2, 5, 3], 1);
    assert!(run("Attention", 24, &[Some(q.clone()), Some(narrow), Some(v.clone())], &[], 1).is_err());
    let mask = numbers(&[2, 5], 1);
    assert!(run("Attention", 24, &[Some(q.clone()), Some(k.clone()), Some(v.clone()), Some(mask)], &[], 1).is_err());
    let past = Some(numbers(&[2, 2, 1, 4], 1));
    assert!(run("Attention", 24, &[Some(q), Some(k), Some(v), None, past], &[], 1).is_err());
}

#[test]
fn rotation_turns_pairs_of_neighbours_or_of_halves() {
    let x = numbers(&[1, 2, 3, 6], 7);
    let (cos, sin) = (numbers(&[4, 2], 8), numbers(&[4, 2], 9));
    let positions = [2.0, 0.0, 3.0];
    let ids = value(DType::I64, &[1, 3], &positions);
    for interleaved in [false, true] {
        let attrs = [("interleaved", int(interleaved.into())), ("rotary_embedding_dim", int(4))];
        let inputs = [x.clone(), cos.clone(), sin.clone(), ids.clone()].map(Some);
        let got = run("RotaryEmbedding", 23, &inputs, &attrs, 1).expect("legal").remove(0);
        let mut want = x.data.clone();
        for head in 0..2 {
            for (s, position) in positions.iter().enumerate() {
                for pair in 0..2 {
                    let at = (head * 3 + s) * 6;
                    let (a, b) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + 2) };
                    let (x1, x2) = (x.data[at + a], x.data[at + b]);
                    let angle = *position as usize * 2 + pair;
                    want[at + a] = cos.data[angle] * x1 - sin.data[angle] * x2;
                    want[at + b] = sin.data[angle] * x1 + cos.data[angle] * x2;
                }
            }
        }
        close(&got.data, &want);
    }
}

#[test]
fn linear_attention_follows_each_update_rule() {
    let (batch, steps, queries, heads, keys, values) = (2, 3, 4, 2, 3, 5);
    let q = numbers(&[batch, steps, queries * keys], 1);
    let k = numbers(&[batch, steps, heads * keys], 2);
    let v = numbers(&[batch, steps, heads * values], 3);
    let past = numbers(&[batch, heads, keys, values], 4);
    let decay = numbers(&[batch, steps, heads * keys], 5);
    let beta = numbers(&[batch, steps, heads], 6);
    for (rule, gated, delta) in
        [("linear", false, false), ("gated", true, false), ("delta", false, true), ("gated_delta", true, true)]
    {
        let attrs = [
            ("update_rule", AttrValue::Str(rule.into())),
            ("q_num_heads", int(queries as i64)),
            ("kv_num_heads", int(heads as i64)),
            ("scale", AttrValue::Float(0.5)),
        ];
        let inputs = [q.clone(), k.clone(), v.clone(), past.clone()].map(Some).into_iter();
        let optional = [Some(decay.clone()).filter(|_| gated), Some(beta.clone()).filter(|_| delta)];
        let inputs: Vec<_> = inputs.chain(optional).collect();
        let got = run("LinearAttention", 27, &inputs, &attrs, 2).expect("legal");
        let mut state = past.data.clone();
        let mut want = vec![0.0; batch * steps * queries * values];
        for b in 0..batch {
            for t in 0..steps {
                for h in 0..heads {
                    let line = (b * steps + t) * heads + h;
                    let s = &mut state[(b * heads + h) * keys * values..][..keys * values];
                    let key = &k.data[line * keys..][..keys];
                    for e in 0..values {
                        for i in 0..keys {
                            let factor = if gated { decay.data[line * keys + i].exp() } else { 1.0 };
                            s[i * values + e] *= factor;
                        }
                        let held: f64 = (0..keys).map(|i| key[i] * s[i * values + e]).sum();
                        let new = v.data[line * values + e];
                        let change = if delta { beta.data[line] * (new - held) } else { new };
                        for i in 0..keys {
                            s[i * values + e] += key[i] * change;
                        }
                        for member in 0..queries / heads {
                            let row = (b * steps + t) * queries + h * (queries / heads) + member;
                            let dot = |i: usize| q.data[row * keys + i] * s[i * values + e];
                            want[row * values + e] = 0.5 * (0..keys).map(dot).sum::<f64>();
                        }
                    }
                }
            }
        }
        close(&got[0].data, &want);
        close(&got[1].data, &state);
    }
}

#[test]
fn a_causal_convolution_goes_on_where_the_last_one_ended() {
    let x = numbers(&[1, 2, 5], 1);
    let (w, bias) = (numbers(&[2, 1, 3], 2), numbers(&[2], 3));
    let all = run("CausalConvWithState", 27, &[x.clone(), w.clone(), bias.clone()].map(Some), &[], 2).expect("legal");
    for c in 0..2 {
        for t in 0..5 {
            let tap = |k: usize| (t + k).checked_sub(2).map_or(0.0, |at| x.data[c * 5 + at]) * w.data[c * 3 + k];
            let want = (0..3).map(tap).sum::<f64>() + bias.data[c];
            assert!((all[0].data[c * 5 + t] - want).abs() < 1e-6);
        }
    }
    let part = |from: usize, n: usize| {
        let data: Vec<f64> = (0..2).flat_map(|c| x.data[c * 5 + from..c * 5 + from + n].to_vec()).collect();
        value(DType::F32, &[1, 2, n], &data)
    };
    let first =
        run("CausalConvWithState", 27, &[part(0, 3), w.clone(), bias.clone()].map(Some), &[], 2).expect("legal");
    let inputs = [part(3, 2), w, bias, first[1].clone()].map(Some);
    let second = run("CausalConvWithState", 27, &inputs, &[], 2).expect("legal");
    assert_eq!(second[1], all[1]);
    for c in 0..2 {
        assert_eq!(second[0].data[c * 2..c * 2 + 2], all[0].data[c * 5 + 3..c * 5 + 5]);
    }
}
