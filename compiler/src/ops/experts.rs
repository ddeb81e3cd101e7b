//! Mixtures of experts: `MoE`, and `QMoE`, whose weights are integers of few bits.
//!
//! Each token goes through `k` experts, which its row of router scores chooses: their weights are loaded by the number of the
//! expert, so that no other expert is computed, and weights of few bits are unpacked where they are multiplied.

use super::contrib::apply;
use super::contrib_weights::unpacked;
use super::operand::{Operand, need_float};
use super::sizes::{guard_index, invalid, unsupported};
use super::{AttrValue, Call, Expand, expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, ReduceKind, TensorId, expr};
use std::collections::BTreeMap;

const MS: &str = "com.microsoft";

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[(MS, "MoE", |cx, call| mixture(cx, call, false)), (MS, "QMoE", |cx, call| mixture(cx, call, true))];

/// Which operands hold a layer of all experts: weights, scales, biases, zero points.
const LAYERS: [[usize; 3]; 2] = [[2, 4, 6], [2, 5, 8]];

/// A layer of all experts.
struct Layer {
    weights: Operand,
    /// Bits, scales and zero points of weights that are integers.
    code: Option<Code>,
    bias: Option<Operand>,
    rows: Int,
    columns: Int,
}

struct Code {
    bits: i64,
    /// Weights that share a scale, along a row; all of a row if there is none.
    block: Option<i64>,
    scales: Operand,
    zeros: Option<Operand>,
}

impl Layer {
    /// Layer number `k`, whose experts map `columns` numbers to `rows`. Shapes that tell the two in the other order hold the same.
    fn of(
        cx: &mut Cx,
        call: &Call,
        k: usize,
        quantised: bool,
        (experts, rows, columns): (Int, Int, Int),
    ) -> OpResult<Layer> {
        let at = LAYERS[usize::from(quantised)][k];
        let weights = Operand::of(cx, call.input(at)?);
        let bias = call.opt(if quantised { at + 2 } else { at + 1 });
        let name = format!("the weights of layer {}", k + 1);
        let mut width = columns;
        let code = if quantised {
            let bits = call.int(&format!("fc{}_expert_weight_bits", k + 1), call.int("expert_weight_bits", 4)?)?;
            if ![2, 4, 8].contains(&bits) {
                return unsupported(format!("weights of {bits} bits"));
            }
            if weights.dtype != DType::U8 {
                return invalid(format!("{name} have element type {}, not uint8", weights.dtype));
            }
            width = (columns * bits).div(8);
            cx.require_equal(width * 8, columns * bits, &format!("whole bytes of {name}"))?;
            let block = Some(call.int("block_size", 0)?).filter(|b| *b > 0);
            let scales = Operand::of(cx, call.input(at + 1)?);
            need_float(scales.dtype)?;
            let blocks = block.map(|b| columns.ceil_div(b));
            let shape = [&[experts, rows][..], blocks.as_slice()].concat();
            let scales = viewed(cx, &scales, shape, &format!("scales of layer {}", k + 1))?;
            let zeros = match call.opt(11 + k) {
                None => None,
                Some(t) => {
                    let z = Operand::of(cx, t);
                    if z.dtype != DType::U8 {
                        return invalid(format!("zero points have element type {}, not uint8", z.dtype));
                    }
                    let bytes = |n: Int| (n * bits).ceil_div(8);
                    let shape = match blocks {
                        Some(blocks) => vec![experts, rows, bytes(blocks)],
                        None => vec![experts, bytes(rows)],
                    };
                    Some(viewed(cx, &z, shape, &format!("zero points of layer {}", k + 1))?)
                }
            };
            Some(Code { bits, block, scales, zeros })
        } else {
            None
        };
        let weights = viewed(cx, &weights, vec![experts, rows, width], &name)?;
        let bias = match bias {
            Some(b) => {
                let b = Operand::of(cx, b);
                Some(viewed(cx, &b, vec![experts, rows], &format!("biases of layer {}", k + 1))?)
            }
            None => None,
        };
        Ok(Layer { weights, code, bias, rows, columns })
    }

    /// The weight of an expert from column `k` to row `n`.
    fn weight(&self, wide: DType, e: Int, n: Int, k: Int) -> Expr {
        let Some(code) = &self.code else { return self.weights.at(&[e, n, k]).to(wide) };
        let q = unpacked(code.bits, k, &|byte| self.weights.at(&[e, n, byte])).to(wide);
        let group = code.block.map(|b| k.div(b));
        let scale = code.scales.at(&[&[e, n][..], group.as_slice()].concat()).to(wide);
        let zero = match (&code.zeros, group) {
            (None, _) => expr::constant_f64(wide, f64::from(1 << (code.bits - 1))),
            (Some(z), Some(g)) => unpacked(code.bits, g, &|byte| z.at(&[e, n, byte])).to(wide),
            (Some(z), None) => unpacked(code.bits, n, &|byte| z.at(&[e, byte])).to(wide),
        };
        (q - zero) * scale
    }

    /// `input(token, choice, column)` through the layer of the expert that `expert(token, choice)` gives:
    /// `[token, choice, row]`.
    fn apply(
        &self,
        cx: &mut Cx,
        wide: DType,
        (tokens, choices): (Int, Int),
        expert: &dyn Fn(&[Int]) -> Int,
        input: &dyn Fn(&[Int], Int) -> Expr,
    ) -> TensorId {
        let shape = vec![tokens, choices, self.rows];
        let sums = cx.reduce(ReduceKind::Sum, wide, shape.clone(), &[self.columns], |i, r| {
            input(i, r[0]) * self.weight(wide, expert(i), i[2], r[0])
        });
        let Some(bias) = &self.bias else { return sums };
        cx.map(wide, shape, |i| expr::load(sums, wide, i.to_vec()) + bias.at(&[expert(i), i[2]]).to(wide))
    }
}

/// The same elements under a shape that has as many.
fn viewed(cx: &mut Cx, o: &Operand, shape: Vec<Int>, what: &str) -> OpResult<Operand> {
    let count = Int::product(&o.shape);
    cx.require_equal(count, Int::product(&shape), &format!("elements of {what}"))?;
    let t = cx.view(o.id, shape);
    Ok(Operand::of(cx, t))
}

/// How the numbers of the first layer become those of the second.
enum Gate {
    Plain(String),
    /// `g * sigmoid(alpha * g) * (l + beta)`, both at most `limit` (and `l` at least its negative).
    Swiglu {
        alpha: f64,
        beta: f64,
        limit: Option<f64>,
    },
}

impl Gate {
    fn of(call: &Call) -> OpResult<Gate> {
        Ok(match call.string("activation_type", "relu".into())?.as_str() {
            name @ ("relu" | "gelu" | "silu" | "identity") => Gate::Plain(name.into()),
            "swiglu" => Gate::Swiglu {
                alpha: call.float("activation_alpha", 1.0)?.into(),
                beta: call.float("activation_beta", 0.0)?.into(),
                limit: call.opt_float("swiglu_limit")?.map(f64::from),
            },
            other => return unsupported(format!("activation_type = '{other}'")),
        })
    }

    fn plain(name: &str, x: Expr) -> Expr {
        let one = x.num(1.0);
        match name {
            "relu" => x.max_(x.num(0.0)),
            "silu" => x / (one + (-x).exp()),
            "gelu" => {
                let inner = x.num((2.0 / std::f64::consts::PI).sqrt()) * (x + x.num(0.044715) * x * x * x);
                x.num(0.5) * x * (one + inner.tanh())
            }
            _ => x,
        }
    }

    /// With `linear` if there is a part that is not activated.
    fn apply(&self, gate: Expr, linear: Option<Expr>) -> Expr {
        match (self, linear) {
            (Gate::Plain(name), None) => Gate::plain(name, gate),
            (Gate::Plain(name), Some(l)) => Gate::plain(name, gate) * l,
            (Gate::Swiglu { alpha, beta, limit }, l) => {
                let bound = |v: Expr| limit.map_or(v, |m| v.min_(v.num(m)));
                let g = bound(gate);
                let l = l.unwrap_or(g.num(1.0));
                let l = limit.map_or(l, |m| bound(l).max_(l.num(-m)));
                g / (g.num(1.0) + (-(g * g.num(*alpha))).exp()) * (l + l.num(*beta))
            }
        }
    }
}

fn mixture(cx: &mut Cx, call: &Call, quantised: bool) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let wide = x.dtype.compute();
    let router = Operand::of(cx, call.input(1)?);
    let (Some((&hidden, before)), &[tokens, experts]) = (x.shape.split_last(), router.shape.as_slice()) else {
        return invalid("tokens need an axis of features, router scores two axes");
    };
    cx.require_equal(Int::product(before), tokens, "tokens of the input and of the router scores")?;
    for (name, neutral) in [("use_sparse_mixer", 0), ("swiglu_limit_after_activation", 0)] {
        if call.int(name, neutral)? != neutral {
            return unsupported(format!("attribute '{name}'"));
        }
    }
    if quantised && call.string("quant_type", "int".into())? != "int" {
        return unsupported("weights that are floats of few bits");
    }
    let gate = Gate::of(call)?;
    let fusion = call.int("swiglu_fusion", 0)?;
    if !(0..=2).contains(&fusion) {
        return invalid(format!("swiglu_fusion = {fusion}"));
    }
    let third = call.opt(LAYERS[usize::from(quantised)][2]).is_some();
    let fused = matches!(gate, Gate::Swiglu { .. }) && fusion > 0;
    if matches!(gate, Gate::Swiglu { .. }) && third == fused {
        return invalid("'swiglu' takes either a third layer or one with twice as many rows");
    }
    let at = LAYERS[usize::from(quantised)][1];
    let second = Operand::of(cx, call.input(at)?);
    let bits = if quantised { call.int("fc2_expert_weight_bits", call.int("expert_weight_bits", 4)?)? } else { 8 };
    if ![2, 4, 8].contains(&bits) {
        return unsupported(format!("weights of {bits} bits"));
    }
    let inner = (Int::product(&second.shape) * (8 / bits)).div(experts * hidden);
    let rows = if fused { inner * 2 } else { inner };
    let layers = [
        Some(Layer::of(cx, call, 0, quantised, (experts, rows, hidden))?),
        Some(Layer::of(cx, call, 1, quantised, (experts, hidden, inner))?),
        if third { Some(Layer::of(cx, call, 2, quantised, (experts, inner, hidden))?) } else { None },
    ];
    let [Some(first), Some(last), third] = layers else { return invalid("a layer is missing") };

    let choices = call.int("k", 1)?;
    if choices < 1 {
        return invalid(format!("k = {choices}"));
    }
    cx.require_at_most(Int::new(choices), experts, "chosen experts against all")?;
    let (chosen, shares) = chosen(cx, call, &router, experts, choices)?;
    let expert = |i: &[Int]| guard_index(expr::as_int(chosen.at(&[i[0], i[1]])), experts);
    let pairs = (tokens, Int::new(choices));
    let flat = cx.view(x.id, vec![tokens, hidden]);
    let flat = Operand::of(cx, flat);
    let input = |i: &[Int], k: Int| flat.at(&[i[0], k]).to(wide);
    let up = first.apply(cx, wide, pairs, &expert, &input);
    let other = third.map(|layer| layer.apply(cx, wide, pairs, &expert, &input));
    let shape = vec![tokens, Int::new(choices), inner];
    let middle = cx.map(wide, shape, |i| {
        let of = |t: TensorId, k: Int| expr::load(t, wide, vec![i[0], i[1], k]);
        match (fused, other) {
            (true, _) if fusion == 1 => gate.apply(of(up, i[2] * 2), Some(of(up, i[2] * 2 + 1))),
            (true, _) => gate.apply(of(up, i[2]), Some(of(up, inner + i[2]))),
            (false, other) => gate.apply(of(up, i[2]), other.map(|t| of(t, i[2]))),
        }
    });
    let down = last.apply(cx, wide, pairs, &expert, &|i, k| expr::load(middle, wide, vec![i[0], i[1], k]));
    let y = cx.reduce(ReduceKind::Sum, wide, vec![tokens, hidden], &[Int::new(choices)], |i, r| {
        shares.at(&[i[0], r[0]]).to(wide) * expr::load(down, wide, vec![i[0], r[0], i[1]])
    });
    let y = cx.map(x.dtype, vec![tokens, hidden], |i| expr::load(y, wide, i.to_vec()));
    Ok(vec![cx.view(y, x.shape.clone())])
}

/// The numbers of the experts of each token, `[token, choice]`, and the share that each has in its result.
///
/// As in onnxruntime's kernels for CPUs, of equal scores the later one is taken, shares of `QMoE` that follow from the scores add
/// up to one whatever the attribute says, and a given share below zero leaves its expert out.
fn chosen(cx: &mut Cx, call: &Call, router: &Operand, experts: Int, choices: i64) -> OpResult<(Operand, Operand)> {
    let wide = DType::F32;
    let shape = router.shape.clone();
    let scores = cx.map(wide, shape.clone(), |i| router.at(i).to(wide));
    let all = apply(cx, "Softmax", &[Some(scores)], &[("axis", AttrValue::Int(-1))])?;
    let turned = cx.map(wide, shape, |i| expr::load(all, wide, vec![i[0], experts - 1 - i[1]]));
    let count = cx.constant_i64(&[1], &[choices]);
    let sort = Call {
        domain: String::new(),
        op: "TopK".into(),
        version: 11,
        inputs: vec![Some(turned), Some(count)],
        outputs: vec![true; 2],
        attrs: BTreeMap::new(),
    };
    let made = expand(cx, &sort)?;
    let &[values, places] = made.as_slice() else { return unsupported("the best scores") };
    let (places, shape) = (Operand::of(cx, places), cx.shape(values));
    let numbers = cx.map(DType::I64, shape.clone(), |i| expr::int(experts - 1) - places.at(i));
    let numbers = Operand::of(cx, numbers);
    let mut shares = Operand::of(cx, values);
    let quantised = call.op == "QMoE";
    let mut normalised = quantised || call.int("normalize_routing_weights", 0)? != 0;
    if let Some(given) = call.opt(14).filter(|_| quantised) {
        normalised = call.int("normalize_routing_weights", 0)? != 0;
        let given = Operand::of(cx, given);
        for (a, b) in given.shape.iter().zip(&router.shape) {
            cx.require_equal(*a, *b, "router weights and scores")?;
        }
        let t = cx.map(wide, shape.clone(), |i| {
            given.at(&[i[0], guard_index(expr::as_int(numbers.at(i)), experts)]).to(wide)
        });
        shares = Operand::of(cx, t);
    }
    if normalised {
        let sum = cx.reduce(ReduceKind::Sum, wide, vec![shape[0]], &[shape[1]], |i, r| shares.at(&[i[0], r[0]]));
        let t = cx.map(wide, shape, |i| shares.at(i) / expr::load(sum, wide, vec![i[0]]));
        shares = Operand::of(cx, t);
    }
    let shape = shares.shape.clone();
    let t = cx.map(wide, shape, |i| {
        let share = shares.at(i);
        share.max_(share.num(0.0))
    });
    Ok((numbers, Operand::of(cx, t)))
}
