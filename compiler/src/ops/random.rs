//! Random tensors and dropout.
//!
//! The numbers come from a counter-based generator, SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
//! Generators, OOPSLA 2014): element `i` of a stream with key `k` is the mix of `k + (i + 1) * gamma`. So every element is
//! computed on its own, on any target with the same result. The key comes from the attribute `seed`; without it, from the
//! node's name, since a plan keeps no state between runs: each run then gives the same numbers.

use super::operand::{Operand, convert, need_float, need_one, onnx_type};
use super::{AttrValue, Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::flatten;
use crate::te::{Cx, Expr, Func1, Func2, OpError, OpResult, expr};
use core::f64::consts::PI;

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "RandomUniform", |cx, c| fixed(cx, c, uniform)),
    ("", "RandomUniformLike", |cx, c| like(cx, c, uniform)),
    ("", "RandomNormal", |cx, c| fixed(cx, c, normal)),
    ("", "RandomNormalLike", |cx, c| like(cx, c, normal)),
    ("", "Bernoulli", bernoulli),
    ("", "Multinomial", multinomial),
    ("", "Dropout", dropout),
];

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers.
#[derive(Clone, Copy)]
struct Stream(u64);

impl Stream {
    /// The stream of a node; `part` tells several streams of one node apart.
    fn of(cx: &Cx, call: &Call, part: u64) -> OpResult<Stream> {
        // Dropout has an integer seed, the others a float.
        let start = match call.attrs.get("seed") {
            Some(AttrValue::Int(s)) => *s as u64,
            Some(_) => u64::from(call.float("seed", 0.0)?.to_bits()),
            // FNV-1a.
            None => {
                cx.node.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
            }
        };
        Ok(Stream(mix(start ^ part.wrapping_mul(GAMMA))))
    }

    /// 64 random bits for a position.
    fn bits(self, position: Int) -> Expr {
        let word = |v: u64| expr::imm(DType::U64, v);
        let shifted = |e: Expr, by| e ^ expr::bin(Func2::Shr, e, word(by));
        let z = (expr::int(position + 1).to(DType::U64) * word(GAMMA)) + word(self.0);
        let z = shifted(z, 30) * word(0xbf58_476d_1ce4_e5b9);
        let z = shifted(z, 27) * word(0x94d0_49bb_1331_11eb);
        shifted(z, 31)
    }

    /// A number above 0 and below 1, of type `t` (`f32` or `f64`).
    fn unit(self, position: Int, t: DType) -> Expr {
        let digits = if t == DType::F64 { 52 } else { 23 };
        let top = expr::bin(Func2::Shr, self.bits(position), expr::imm(DType::U64, 64 - digits));
        let n = top.to(DType::I64).to(t);
        (n + n.num(0.5)) * n.num(0.5f64.powi(digits as i32))
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Makes the element at a position, of the given compute type.
type Draw = fn(&Cx, &Call) -> OpResult<Box<dyn Fn(Int, DType) -> Expr>>;

fn uniform(cx: &Cx, call: &Call) -> OpResult<Box<dyn Fn(Int, DType) -> Expr>> {
    let stream = Stream::of(cx, call, 0)?;
    let (low, high) = (f64::from(call.float("low", 0.0)?), f64::from(call.float("high", 1.0)?));
    Ok(Box::new(move |at, t| {
        let u = stream.unit(at, t);
        u * u.num(high - low) + u.num(low)
    }))
}

/// By Box and Muller, from two numbers each.
fn normal(cx: &Cx, call: &Call) -> OpResult<Box<dyn Fn(Int, DType) -> Expr>> {
    let (radius, angle) = (Stream::of(cx, call, 0)?, Stream::of(cx, call, 1)?);
    let (mean, scale) = (f64::from(call.float("mean", 0.0)?), f64::from(call.float("scale", 1.0)?));
    Ok(Box::new(move |at, t| {
        let (u, v) = (radius.unit(at, t), angle.unit(at, t));
        let z = (u.num(-2.0) * u.ln()).sqrt() * expr::un(Func1::Cos, v * v.num(2.0 * PI));
        z * z.num(scale) + z.num(mean)
    }))
}

fn filled(cx: &mut Cx, call: &Call, dtype: DType, shape: Vec<Int>, draw: Draw) -> OpResult {
    need_float(dtype)?;
    let draw = draw(cx, call)?;
    Ok(vec![cx.map(dtype, shape.clone(), |i| convert(draw(flatten(&shape, i), dtype.compute()), dtype))])
}

fn fixed(cx: &mut Cx, call: &Call, draw: Draw) -> OpResult {
    let shape = call.opt_ints("shape")?.ok_or_else(|| OpError::Invalid("attribute 'shape' is missing".into()))?;
    if let Some(d) = shape.iter().find(|d| **d < 0) {
        return Err(OpError::Invalid(format!("dimension {d} in 'shape'")));
    }
    let dtype = onnx_type(call.int("dtype", 1)?)?;
    filled(cx, call, dtype, shape.into_iter().map(Int::new).collect(), draw)
}

fn like(cx: &mut Cx, call: &Call, draw: Draw) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let dtype = call.opt_int("dtype")?.map_or(Ok(x.dtype), onnx_type)?;
    filled(cx, call, dtype, x.shape, draw)
}

/// 1 with the probability that the operand gives.
fn bernoulli(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let dtype = call.opt_int("dtype")?.map_or(Ok(x.dtype), onnx_type)?;
    let stream = Stream::of(cx, call, 0)?;
    Ok(vec![cx.map(dtype, x.shape.clone(), |i| {
        let hit = stream.unit(flatten(&x.shape, i), x.compute()).lt_(x.at(i));
        convert(hit, dtype)
    })])
}

/// Samples of the class whose logarithm of probability, plus noise of the Gumbel distribution, is largest.
fn multinomial(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let [batch, classes] = x.shape[..] else {
        return Err(OpError::Invalid(format!("input of rank {}, a matrix is needed", x.rank())));
    };
    let samples = call.int("sample_size", 1)?;
    if samples < 0 {
        return Err(OpError::Invalid(format!("sample_size = {samples}")));
    }
    let dtype = onnx_type(call.int("dtype", 6)?)?;
    if !matches!(dtype, DType::I32 | DType::I64) {
        return Err(OpError::Invalid(format!("dtype {dtype}, i32 or i64 is needed")));
    }
    let stream = Stream::of(cx, call, 0)?;
    let t = x.compute();
    let shape = vec![batch, Int::new(samples)];
    Ok(vec![cx.fold(dtype, shape, &[classes], |i, r| {
        let (best, class) = (expr::acc(0, t), expr::acc(1, dtype));
        let u = stream.unit(flatten(&[batch, Int::new(samples), classes], &[i[0], i[1], r[0]]), t);
        let v = x.at(&[i[0], r[0]]) - (-u.ln()).ln();
        let better = v.gt_(best);
        let here = expr::int(r[0]).to(dtype);
        let init = vec![expr::constant_f64(t, f64::NEG_INFINITY), expr::constant_i64(dtype, 0)];
        (init, vec![better.then(v, best), better.then(here, class)], class)
    })])
}

/// In training each element is dropped with the probability `ratio`, and the others grow by `1 / (1 - ratio)`. Whether it
/// is training: before version 7 unless `is_test`, then never, and since version 12 as the third operand says.
fn dropout(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let t = x.compute();
    let mask_type = if call.version < 10 { x.dtype } else { DType::Bool };
    let mut ratio = expr::constant_f64(t, f64::from(call.float("ratio", 0.5)?));
    let mut training = expr::boolean(call.version < 7 && call.int("is_test", 0)? == 0);
    if call.version >= 12 {
        if let Some(r) = call.opt(1) {
            need_one(cx, r, "ratio")?;
            let r = Operand::of(cx, r);
            need_float(r.dtype)?;
            ratio = r.only().to(t);
        }
        if let Some(m) = call.opt(2) {
            need_one(cx, m, "training_mode")?;
            if cx.dtype(m) != DType::Bool {
                return Err(OpError::Invalid(format!("training_mode of type {}", cx.dtype(m))));
            }
            training = match cx.const_ints(m).as_deref() {
                Some([v]) => expr::boolean(*v != 0),
                _ => Operand::of(cx, m).only(),
            };
        }
    }
    if training.as_bool() == Some(false) {
        let mask = cx.map(mask_type, x.shape.clone(), |_| convert(expr::boolean(true), mask_type));
        return Ok(vec![x.id, mask]);
    }
    let stream = Stream::of(cx, call, 0)?;
    let keep = |i: &[Int]| !training | stream.unit(flatten(&x.shape, i), t).ge_(ratio);
    let grow = training.then(ratio.num(1.0) / (ratio.num(1.0) - ratio), ratio.num(1.0));
    let y = cx.map(x.dtype, x.shape.clone(), |i| keep(i).then(x.at(i) * grow, ratio.num(0.0)));
    let mask = cx.map(mask_type, x.shape.clone(), |i| convert(keep(i), mask_type));
    Ok(vec![y, mask])
}
