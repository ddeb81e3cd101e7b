//! `Attention`: scaled dot products, masks, softmax, weighted sums, as plain maps and reductions that fusion joins.

use super::heads::Heads;
use super::operand::{Operand, need_float, onnx_type, same_type};
use super::scalar::lt;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::broadcast_index;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "Attention", attention), ("ai.onnx.preview", "FlexAttention", flex_attention)];

/// Which keys a query may see, and what is added to scores.
#[derive(Clone, Default)]
pub(super) struct Bias {
    /// Bool: may see. Numbers: added. Right-aligned against `[batch, head, query, key]`; keys beyond its last axis are hidden.
    pub(super) mask: Option<Operand>,
    /// Keys after the query are hidden.
    pub(super) causal: bool,
    /// How many keys before the query's own position may be seen.
    pub(super) left: Option<i64>,
    /// How many keys after it.
    pub(super) right: Option<i64>,
    /// Number of keys of each batch entry that exist.
    pub(super) valid: Option<Operand>,
    /// Position of the first query among the keys, unless `valid` gives it.
    pub(super) offset: Option<Int>,
    /// The same for each batch entry, whatever `valid` and `offset` say.
    pub(super) starts: Option<Operand>,
}

/// A score that is part of every softmax, without a key.
#[derive(Clone)]
pub(super) enum Sink {
    /// Zero.
    Zero,
    /// One for each query head.
    Heads(Operand),
}

/// An attention to be built.
pub(super) struct Attention {
    pub(super) q: Heads,
    pub(super) k: Heads,
    pub(super) v: Heads,
    pub(super) scale: f64,
    /// Bound of scores, by `cap * tanh(score / cap)`.
    pub(super) softcap: Option<f64>,
    pub(super) bias: Bias,
    pub(super) sink: Option<Sink>,
    /// Type of inputs and output.
    pub(super) dtype: DType,
    /// Type in which the softmax is stored.
    pub(super) precision: DType,
}

/// Tensors of an attention, `[batch, key head, query head within the group, query, …]`.
pub(super) struct Stages {
    raw: TensorId,
    logits: TensorId,
    /// The softmax.
    pub(super) weights: TensorId,
}

impl Attention {
    /// Query heads that share a key head.
    fn group(&self) -> Int {
        if self.q.heads == self.k.heads { Int::new(1) } else { self.q.heads.div(self.k.heads) }
    }

    /// Checks that operands fit.
    fn check(&self, cx: &mut Cx) -> OpResult<()> {
        cx.require_equal(self.q.size, self.k.size, "features of queries and keys")?;
        cx.require_equal(self.k.length, self.v.length, "numbers of keys and values")?;
        cx.require_equal(self.k.heads, self.v.heads, "heads of keys and values")?;
        cx.require_equal(self.q.batch, self.k.batch, "batch of queries and keys")?;
        cx.require_equal(self.q.batch, self.v.batch, "batch of queries and values")?;
        cx.require_equal(self.q.heads, self.k.heads * self.group(), "query heads against a multiple of key heads")
    }

    /// `[batch, key head, group, query, key]`.
    fn score_shape(&self) -> Vec<Int> {
        vec![self.q.batch, self.k.heads, self.group(), self.q.length, self.k.length]
    }

    fn head(&self, i: &[Int]) -> Int {
        i[1] * self.group() + i[2]
    }

    /// A score, scaled.
    fn scaled(&self, raw: TensorId, i: &[Int]) -> Expr {
        let e = expr::load(raw, self.dtype.compute(), i.to_vec());
        if self.scale == 1.0 { e } else { e * e.num(self.scale) }
    }

    /// Then capped.
    fn capped(&self, e: Expr) -> Expr {
        match self.softcap {
            Some(cap) => (e / e.num(cap)).tanh() * e.num(cap),
            None => e,
        }
    }

    /// Then biased; minus infinity where the query may not see the key, whatever the score is.
    fn biased(&self, e: Expr, i: &[Int]) -> Expr {
        let (batch, query, key) = (i[0], i[3], i[4]);
        let hidden = e.num(f64::NEG_INFINITY);
        let mut seen = expr::boolean(true);
        let offset = match (&self.bias.starts, &self.bias.valid, self.bias.offset) {
            (Some(starts), _, _) => starts.at(&[batch]).to(DType::I64),
            (None, _, Some(offset)) => expr::int(offset),
            (None, Some(valid), None) => valid.at(&[batch]).to(DType::I64) - expr::int(self.q.length),
            (None, None, None) => expr::int(Int::new(0)),
        };
        let position = expr::int(query) + offset;
        let reach = |far: i64| position + expr::int(Int::new(far));
        if self.bias.causal {
            seen = seen & expr::int(key).le_(position);
        }
        if let Some(left) = self.bias.left {
            seen = seen & reach(-left).le_(expr::int(key));
        }
        if let Some(right) = self.bias.right {
            seen = seen & expr::int(key).le_(reach(right));
        }
        if let Some(valid) = &self.bias.valid {
            seen = seen & expr::int(key).lt_(valid.at(&[batch]).to(DType::I64));
        }
        let Some(mask) = &self.bias.mask else { return seen.then(e, hidden) };
        let place = [batch, self.head(i), query, key];
        let skip = 4 - mask.rank();
        let last = mask.rank() - 1;
        let at: Vec<Int> = (0..mask.rank())
            .map(|d| if d == last { key } else { broadcast_index(mask.shape[d], place[skip + d]) })
            .collect();
        let listed = lt(key, mask.shape[last]);
        if mask.dtype == DType::Bool {
            let shown = listed.then(mask.at(&at), expr::boolean(false));
            return (seen & shown).then(e, hidden);
        }
        let add = listed.then(mask.at(&at).to(e.dtype()), hidden);
        (seen & add.ne_(hidden)).then(e + add, hidden)
    }

    /// Products of queries and keys, not yet scaled.
    fn products(&self, cx: &mut Cx) -> OpResult<TensorId> {
        self.check(cx)?;
        let wide = self.dtype.compute();
        Ok(cx.reduce(ReduceKind::Sum, wide, self.score_shape(), &[self.q.size], |i, r| {
            self.q.at(i[0], self.head(i), i[3], r[0]) * self.k.at(i[0], i[1], i[4], r[0])
        }))
    }

    /// Scores after scale, cap and bias, in the type of the softmax.
    fn logits(&self, cx: &mut Cx, raw: TensorId) -> TensorId {
        let soft = self.precision.compute();
        cx.map(self.precision, self.score_shape(), |i| {
            let e = self.biased(self.capped(self.scaled(raw, i)), i);
            e.to(soft)
        })
    }

    /// The softmax of scores. A row without any key has only minus infinities; its weights are zeros.
    fn softmax(&self, cx: &mut Cx, logits: TensorId) -> TensorId {
        let stored = self.precision;
        let soft = stored.compute();
        let shape = self.score_shape();
        let (rows, keys) = (shape[..4].to_vec(), self.k.length);
        let most =
            cx.reduce(ReduceKind::Max, soft, rows.clone(), &[keys], |i, r| expr::load(logits, stored, [i, r].concat()));
        let sink = |i: &[Int]| {
            self.sink.as_ref().map(|s| match s {
                Sink::Zero => expr::constant_f64(soft, 0.0),
                Sink::Heads(each) => each.at(&[self.head(i)]).to(soft),
            })
        };
        // What is subtracted from scores, so that no power overflows.
        let base = |i: &[Int]| {
            let most = expr::load(most, soft, i[..4].to_vec());
            let most = sink(i).map_or(most, |s| most.max_(s));
            most.eq_(most.num(f64::NEG_INFINITY)).then(most.num(0.0), most)
        };
        let power = cx.map(soft, shape.clone(), |i| (expr::load(logits, stored, i.to_vec()) - base(i)).exp());
        let sum = cx.reduce(ReduceKind::Sum, soft, rows, &[keys], |i, r| expr::load(power, soft, [i, r].concat()));
        cx.map(stored, shape, |i| {
            let sum = expr::load(sum, soft, i[..4].to_vec());
            let sum = sink(i).map_or(sum, |s| sum + (s - base(i)).exp());
            let below = sum.eq_(sum.num(0.0)).then(sum.num(1.0), sum);
            expr::load(power, soft, i.to_vec()) / below
        })
    }

    /// Scores and softmax.
    pub(super) fn weigh(&self, cx: &mut Cx) -> OpResult<Stages> {
        let raw = self.products(cx)?;
        let logits = self.logits(cx, raw);
        let weights = self.softmax(cx, logits);
        Ok(Stages { raw, logits, weights })
    }

    /// Weighted sums of values, laid out as the queries are.
    pub(super) fn sum(&self, cx: &mut Cx, weights: TensorId) -> TensorId {
        let (wide, stored) = (self.dtype.compute(), cx.dtype(weights));
        let packed = self.q.is_packed();
        let (batch, heads, group, rows, size) = (self.q.batch, self.k.heads, self.group(), self.q.length, self.v.size);
        let shape = if packed { vec![batch, rows, heads, group, size] } else { vec![batch, heads, group, rows, size] };
        let y = cx.reduce(ReduceKind::Sum, self.dtype, shape, &[self.k.length], |i, r| {
            let at = if packed { [i[0], i[2], i[3], i[1]] } else { [i[0], i[1], i[2], i[3]] };
            let weight = expr::load(weights, stored, [&at[..], r].concat()).to(wide);
            weight * self.v.at(at[0], at[1], r[0], i[4]).to(wide)
        });
        let shape = if packed { vec![batch, rows, self.q.heads * size] } else { vec![batch, self.q.heads, rows, size] };
        cx.view(y, shape)
    }

    /// An intermediate result as `[batch, head, query, key]` of the model's type.
    fn show(&self, cx: &mut Cx, f: impl Fn(&[Int]) -> Expr) -> TensorId {
        let wide = self.dtype.compute();
        let t = cx.map(self.dtype, self.score_shape(), |i| f(i).to(wide));
        cx.view(t, vec![self.q.batch, self.q.heads, self.q.length, self.k.length])
    }
}

/// The default scale: one over the root of the number of features.
pub(super) fn scale_of(call: &Call, q: &Heads) -> OpResult<f64> {
    if let Some(s) = call.opt_float("scale")?
        && (s != 0.0 || call.domain.is_empty())
    {
        return Ok(f64::from(s));
    }
    match q.size.as_const() {
        Some(n) if n > 0 => Ok(1.0 / (n as f64).sqrt()),
        _ => Err(OpError::Unsupported("number of features of the queries that is not a constant".into())),
    }
}

fn attention(cx: &mut Cx, call: &Call) -> OpResult {
    let (tq, tk, tv) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let dtype = cx.dtype(tq);
    need_float(dtype)?;
    need_float(cx.dtype(tv))?;
    same_type(cx, tq, tk)?;
    if cx.rank(tq) != cx.rank(tk) || cx.rank(tq) != cx.rank(tv) {
        return Err(OpError::Invalid("queries, keys and values differ in rank".into()));
    }
    let (heads, shared) = (call.opt_int("q_num_heads")?, call.opt_int("kv_num_heads")?);
    let q = Heads::of(cx, tq, heads, "the queries")?;
    let mut k = Heads::of(cx, tk, shared, "the keys")?;
    let mut v = Heads::of(cx, tv, shared, "the values")?;
    let valid = call.opt(6);
    let mut offset = None;
    match (call.opt(4), call.opt(5)) {
        (Some(past_k), Some(past_v)) => {
            if valid.is_some() {
                return Err(OpError::Invalid("both a past and a number of valid keys are given".into()));
            }
            let own = k.length;
            k = k.after(cx, past_k, "the past keys")?;
            v = v.after(cx, past_v, "the past values")?;
            offset = Some(k.length - own);
        }
        (None, None) => {}
        _ => return Err(OpError::Invalid("only one of past keys and past values is given".into())),
    }
    let valid = match valid {
        Some(t) => {
            let o = Operand::of(cx, t);
            if o.rank() != 1 || !o.dtype.is_int() {
                return Err(OpError::Invalid("the numbers of valid keys must be a vector of integers".into()));
            }
            cx.require_equal(o.shape[0], q.batch, "numbers of valid keys against the batch")?;
            Some(o)
        }
        None => None,
    };
    let window = |name: &str| -> OpResult<Option<i64>> {
        match call.int(name, -1)? {
            -1 => Ok(None),
            n if n >= 0 => Ok(Some(n)),
            n => Err(OpError::Invalid(format!("attribute '{name}' is {n}"))),
        }
    };
    let bias = Bias {
        mask: mask_of(cx, call.opt(3), &q, &k)?,
        causal: call.int("is_causal", 0)? != 0,
        left: window("left_window_size")?,
        right: window("right_window_size")?,
        valid,
        offset,
        starts: None,
    };
    let precision = match call.int("softmax_precision", 0)? {
        0 => dtype.compute(),
        code => onnx_type(code)?,
    };
    need_float(precision)?;
    let scale = scale_of(call, &q)?;
    let softcap = Some(f64::from(call.float("softcap", 0.0)?)).filter(|c| *c > 0.0);
    let a = Attention { q, k, v, scale, softcap, bias, sink: None, dtype, precision };
    let stages = a.weigh(cx)?;
    let y = a.sum(cx, stages.weights);
    let mut out = vec![y];
    if call.wants(1) || call.wants(2) || call.wants(3) {
        out.push(a.k.unpacked(cx));
        out.push(a.v.unpacked(cx));
    }
    if call.wants(3) {
        let precision = a.precision;
        out.push(match call.int("qk_matmul_output_mode", 0)? {
            0 => a.show(cx, |i| a.scaled(stages.raw, i)),
            1 => a.show(cx, |i| a.capped(a.scaled(stages.raw, i))),
            2 => a.show(cx, |i| expr::load(stages.logits, precision, i.to_vec())),
            3 => a.show(cx, |i| expr::load(stages.weights, precision, i.to_vec())),
            other => return Err(OpError::Invalid(format!("attribute 'qk_matmul_output_mode' is {other}"))),
        });
    }
    Ok(out)
}

/// The mask operand, checked against `[batch, head, query, key]`.
pub(super) fn mask_of(cx: &mut Cx, mask: Option<TensorId>, q: &Heads, k: &Heads) -> OpResult<Option<Operand>> {
    let Some(mask) = mask else { return Ok(None) };
    let o = Operand::of(cx, mask);
    if o.rank() == 0 || o.rank() > 4 {
        return Err(OpError::Invalid(format!("the mask has rank {}", o.rank())));
    }
    let full = [q.batch, q.heads, q.length, k.length];
    let skip = 4 - o.rank();
    for (d, size) in o.shape[..o.rank() - 1].iter().enumerate() {
        let own = size.if_eq(1, full[skip + d], *size);
        cx.require_equal(own, full[skip + d], "the mask against the scores")?;
    }
    cx.require_at_most(o.shape[o.rank() - 1], k.length, "the mask against the keys")?;
    Ok(Some(o))
}

/// `FlexAttention` in the steps between which its modifiers, which are graphs, are put.
pub(crate) struct Flex(Attention);

impl Flex {
    /// Takes the operands.
    pub(crate) fn of(cx: &mut Cx, call: &Call) -> OpResult<Flex> {
        let (tq, tk, tv) = (call.input(0)?, call.input(1)?, call.input(2)?);
        let dtype = cx.dtype(tq);
        need_float(dtype)?;
        same_type(cx, tq, tk)?;
        same_type(cx, tq, tv)?;
        let q = Heads::of(cx, tq, None, "the queries")?;
        let k = Heads::of(cx, tk, None, "the keys")?;
        let v = Heads::of(cx, tv, None, "the values")?;
        let precision = match call.int("softmax_precision", 0)? {
            0 => dtype.compute(),
            code => onnx_type(code)?,
        };
        need_float(precision)?;
        let scale = scale_of(call, &q)?;
        Ok(Flex(Attention { q, k, v, scale, softcap: None, bias: Bias::default(), sink: None, dtype, precision }))
    }

    /// Scores, `[batch, head, query, key]`.
    pub(crate) fn scores(&self, cx: &mut Cx) -> OpResult<TensorId> {
        let raw = self.0.products(cx)?;
        let logits = self.0.logits(cx, raw);
        Ok(cx.view(logits, self.outer_shape()))
    }

    /// Their softmax, of the same shape.
    pub(crate) fn weights(&self, cx: &mut Cx, scores: TensorId) -> OpResult<TensorId> {
        let scores = self.inner(cx, scores)?;
        let weights = self.0.softmax(cx, scores);
        Ok(cx.view(weights, self.outer_shape()))
    }

    /// The output.
    pub(crate) fn output(&self, cx: &mut Cx, weights: TensorId) -> OpResult<TensorId> {
        let weights = self.inner(cx, weights)?;
        Ok(self.0.sum(cx, weights))
    }

    fn outer_shape(&self) -> Vec<Int> {
        vec![self.0.q.batch, self.0.q.heads, self.0.q.length, self.0.k.length]
    }

    /// What a modifier gave, in the shape used within.
    fn inner(&self, cx: &mut Cx, t: TensorId) -> OpResult<TensorId> {
        let shape = cx.shape(t);
        if shape.len() != 4 || cx.dtype(t) != self.0.precision {
            let (rank, own) = (shape.len(), cx.dtype(t));
            return Err(OpError::Invalid(format!("a modifier gives a tensor of rank {rank} and type {own}")));
        }
        for (a, b) in shape.iter().zip(self.outer_shape()) {
            cx.require_equal(*a, b, "shape of what a modifier gives")?;
        }
        Ok(cx.view(t, self.0.score_shape()))
    }
}

/// Without modifiers.
fn flex_attention(cx: &mut Cx, call: &Call) -> OpResult {
    let flex = Flex::of(cx, call)?;
    let scores = flex.scores(cx)?;
    let weights = flex.weights(cx, scores)?;
    Ok(vec![flex.output(cx, weights)?])
}
