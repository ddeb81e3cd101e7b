//! Features of classical models: n-gram counts, scaling, thresholds, missing values, linear regression.

use super::axes::{Axes, Space};
use super::operand::{Operand, need_number};
use super::reduce::reduce_over;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::ir::{Cmp, Reg, Type};
use crate::sym::Int;
use crate::te::{Cx, Expr, KernelCx, OpError, OpResult, ReduceKind, expr};

const ML: &str = "ai.onnx.ml";

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "TfIdfVectorizer", tf_idf),
    (ML, "Binarizer", binarizer),
    (ML, "Scaler", scaler),
    (ML, "Normalizer", normalizer),
    (ML, "Imputer", imputer),
    (ML, "LinearRegressor", linear_regressor),
];

fn invalid<T>(message: String) -> OpResult<T> {
    Err(OpError::Invalid(message))
}

/// The n-grams that are counted, one entry each in every list but the pool.
struct Grams {
    pool: Vec<i64>,
    start: Vec<i64>,
    length: Vec<i64>,
    index: Vec<i64>,
    weight: Vec<f32>,
    /// Columns of the result.
    width: i64,
}

fn grams(call: &Call) -> OpResult<Grams> {
    let needed = |name: &str| OpError::Invalid(format!("attribute '{name}' is missing"));
    let pool = call.opt_ints("pool_int64s")?.ok_or_else(|| needed("pool_int64s"))?;
    let counts = call.opt_ints("ngram_counts")?.ok_or_else(|| needed("ngram_counts"))?;
    let indexes = call.opt_ints("ngram_indexes")?.ok_or_else(|| needed("ngram_indexes"))?;
    let weights = call.floats("weights", vec![1.0; indexes.len()])?;
    let (least, most) = (call.int("min_gram_length", 1)?, call.int("max_gram_length", 1)?);
    if weights.len() != indexes.len() {
        return invalid(format!("{} weights for {} n-grams", weights.len(), indexes.len()));
    }
    if indexes.iter().any(|i| !(0..1 << 31).contains(i)) {
        return invalid("ngram_indexes must not be negative (nor above 2^31)".into());
    }
    let width = indexes.iter().max().map_or(0, |m| m + 1);
    let mut g = Grams { pool, start: vec![], length: vec![], index: vec![], weight: vec![], width };
    let end = g.pool.len() as i64;
    let mut gram = 0;
    for (k, from) in counts.iter().enumerate() {
        let (n, to) = (k as i64 + 1, counts.get(k + 1).copied().unwrap_or(end));
        if *from < 0 || to < *from || to > end || (to - from) % n != 0 {
            return invalid(format!("ngram_counts: {n}-grams from {from} to {to} of {end} elements"));
        }
        for start in (*from..to).step_by(k + 1) {
            let (Some(index), Some(weight)) = (indexes.get(gram), weights.get(gram)) else {
                return invalid(format!("more n-grams than ngram_indexes ({})", indexes.len()));
            };
            gram += 1;
            if (least..=most).contains(&n) {
                g.start.push(start);
                g.length.push(n);
                g.index.push(*index);
                g.weight.push(*weight);
            }
        }
    }
    Ok(g)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Count,
    Weight,
    Product,
}

/// How often each n-gram of the pool occurs in each row, with up to `max_skip_count` elements left out between its own.
fn tf_idf(cx: &mut Cx, call: &Call) -> OpResult {
    if super::strings::is_text(cx, call.input(0)?) {
        return super::text::numbered(cx, call);
    }
    let x = Operand::of(cx, call.input(0)?);
    if !matches!(x.dtype, DType::I32 | DType::I64) {
        return invalid(format!("element type {}, i32 or i64 is needed", x.dtype));
    }
    let (rows, columns) = match x.shape[..] {
        [c] => (Int::new(1), c),
        [n, c] => (n, c),
        _ => return invalid(format!("input of rank {}, 1 or 2 is needed", x.rank())),
    };
    let mode = match call.string("mode", String::new())?.as_str() {
        "TF" => Mode::Count,
        "IDF" => Mode::Weight,
        "TFIDF" => Mode::Product,
        other => return invalid(format!("mode = '{other}', 'TF', 'IDF' or 'TFIDF' is needed")),
    };
    let skips = call.int("max_skip_count", 0)?;
    if !(0..1 << 31).contains(&skips) {
        return invalid(format!("max_skip_count = {skips}"));
    }
    let g = grams(call)?;
    let (count, width) = (g.start.len(), g.width);
    let mut shape = x.shape.clone();
    shape[x.rank() - 1] = Int::new(width);
    let wide = cx.map(DType::I64, x.shape.clone(), |i| x.at(i).to(DType::I64));
    let mut inputs = vec![wide, cx.constant_i64(&[g.pool.len()], &g.pool)];
    for list in [&g.start, &g.length, &g.index] {
        inputs.push(cx.constant_i64(&[count], list));
    }
    inputs.push(cx.constant_f32(&[count], &g.weight));
    let generate = move |k: &mut KernelCx<'_>| {
        let (rows, columns) = (k.int(rows), k.int(columns));
        let [text, pool, starts, lengths, indexes, weights] = k.inputs[..] else { return };
        let out = k.outputs[0];
        let b = &mut *k.b;
        let (zero, one) = (b.i64(0), b.i64(1));
        let (nothing, unit) = (b.f32(0.0), b.f32(1.0));
        let (grams, width, steps) = (b.i64(count as i64), b.i64(width), b.i64(skips + 1));
        let found = b.var(Type::scalar(DType::F32));
        let missed = b.var(Type::scalar(DType::I64));
        b.for_(zero, rows, 1, |b, row| {
            let (first, base) = (b.mul(row, columns), b.mul(row, width));
            b.for_(zero, width, 1, |b, j| {
                let at = b.add(base, j);
                b.store(out, at, 0, nothing);
            });
            b.for_(zero, grams, 1, |b, gram| {
                let length = b.load(lengths, gram, 0, 1);
                let start = b.load(starts, gram, 0, 1);
                b.set(found, nothing);
                // A single element has nothing between.
                let single = b.cmp(Cmp::Eq, length, one);
                let steps = b.select(single, one, steps);
                b.for_(zero, steps, 1, |b, skip| {
                    let step = b.add(skip, one);
                    let others = b.sub(length, one);
                    let span = b.mul(others, step);
                    let places = b.sub(columns, span);
                    b.for_(zero, places, 1, |b, place| {
                        b.set(missed, zero);
                        b.for_(zero, length, 1, |b, n| {
                            let offset = b.mul(n, step);
                            let at = b.add(place, offset);
                            let at = b.add(first, at);
                            let seen = b.load(text, at, 0, 1);
                            let at = b.add(start, n);
                            let wanted = b.load(pool, at, 0, 1);
                            let differs = b.cmp(Cmp::Ne, seen, wanted);
                            let more = b.select(differs, one, zero);
                            let before = b.get(missed);
                            let sum = b.add(before, more);
                            b.set(missed, sum);
                        });
                        let missed = b.get(missed);
                        let hit = b.cmp(Cmp::Eq, missed, zero);
                        let more = b.select(hit, unit, nothing);
                        let before = b.get(found);
                        let sum = b.add(before, more);
                        b.set(found, sum);
                    });
                });
                let found = b.get(found);
                let weight: Reg = b.load(weights, gram, 0, 1);
                let value = match mode {
                    Mode::Count => found,
                    Mode::Product => b.mul(found, weight),
                    Mode::Weight => {
                        let any = b.cmp(Cmp::Gt, found, nothing);
                        b.select(any, weight, nothing)
                    }
                };
                let index = b.load(indexes, gram, 0, 1);
                let at = b.add(base, index);
                let before = b.load(out, at, 0, 1);
                let sum = b.add(before, value);
                b.store(out, at, 0, sum);
            });
        });
    };
    Ok(cx.custom("tfidf", &inputs, vec![(DType::F32, shape)], vec![], generate))
}

fn number_input(cx: &Cx, call: &Call) -> OpResult<Operand> {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    Ok(x)
}

fn binarizer(cx: &mut Cx, call: &Call) -> OpResult {
    let x = number_input(cx, call)?;
    let threshold = f64::from(call.float("threshold", 0.0)?);
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let v = x.at(i);
        let wide = if v.dtype().is_float() { v } else { v.to(DType::F64) };
        wide.gt_(wide.num(threshold)).then(v.num(1.0), v.num(0.0))
    })])
}

/// One number for all features, or one for each index of the last axis.
fn feature_list(cx: &mut Cx, x: &Operand, list: &[f32], what: &str) -> OpResult<Operand> {
    if list.is_empty() {
        return invalid(format!("attribute '{what}' is missing or empty"));
    }
    if list.len() != 1 {
        let features = x.shape.last().copied().unwrap_or(Int::new(1));
        cx.require_equal(Int::from(list.len()), features, &format!("length of '{what}'"))?;
    }
    let t = cx.constant_f32(&[list.len()], list);
    Ok(Operand::of(cx, t))
}

fn feature(list: &Operand, i: &[Int]) -> Expr {
    match (list.shape[0] == Int::new(1), i.last()) {
        (false, Some(last)) => list.at(&[*last]),
        _ => list.only(),
    }
}

/// `(x - offset) * scale`, as `f32`.
fn scaler(cx: &mut Cx, call: &Call) -> OpResult {
    let x = number_input(cx, call)?;
    let offset = feature_list(cx, &x, &call.floats("offset", vec![0.0])?, "offset")?;
    let scale = feature_list(cx, &x, &call.floats("scale", vec![1.0])?, "scale")?;
    Ok(vec![
        cx.map(DType::F32, x.shape.clone(), |i| (x.at(i).to(DType::F32) - feature(&offset, i)) * feature(&scale, i)),
    ])
}

/// Division of each row by its largest element, its sum of magnitudes or its length; rows where that is zero stay.
fn normalizer(cx: &mut Cx, call: &Call) -> OpResult {
    let x = number_input(cx, call)?;
    if !matches!(x.rank(), 1 | 2) {
        return invalid(format!("input of rank {}, 1 or 2 is needed", x.rank()));
    }
    let (kind, f): (ReduceKind, fn(Expr) -> Expr) = match call.string("norm", "MAX".into())?.as_str() {
        "MAX" => (ReduceKind::Max, |v| v),
        "L1" => (ReduceKind::Sum, Expr::abs),
        "L2" => (ReduceKind::Sum, |v| v * v),
        other => return invalid(format!("norm = '{other}', 'MAX', 'L1' or 'L2' is needed")),
    };
    let root = call.string("norm", "MAX".into())? == "L2";
    let space = Space::new(&x.shape, &Axes::from(x.rank() - 1, x.rank()), true);
    let by = reduce_over(cx, &space, kind, DType::F32, |i, r| f(x.at(&space.index(i, r)).to(DType::F32)));
    let by = Operand::of(cx, by);
    Ok(vec![cx.map(DType::F32, x.shape.clone(), |i| {
        let (v, d) = (x.at(i).to(DType::F32), by.at(&space.result_index(i)));
        let d = if root { d.sqrt() } else { d };
        d.eq_(d.num(0.0)).then(v, v / d)
    })])
}

/// Elements equal to one value (NaN is equal to NaN) become another.
fn imputer(cx: &mut Cx, call: &Call) -> OpResult {
    let x = number_input(cx, call)?;
    let float = x.dtype.is_float();
    if !float {
        let list = call.ints("imputed_value_int64s", vec![])?;
        let old = call.int("replaced_value_int64", 0)?;
        if list.is_empty() {
            return invalid("attribute 'imputed_value_int64s' is missing or empty".into());
        }
        if list.len() != 1 {
            let features = x.shape.last().copied().unwrap_or(Int::new(1));
            cx.require_equal(Int::from(list.len()), features, "length of 'imputed_value_int64s'")?;
        }
        let new = cx.constant_i64(&[list.len()], &list);
        let new = Operand::of(cx, new);
        return Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
            let v = x.at(i);
            v.eq_(expr::constant_i64(x.dtype, old)).then(feature(&new, i).to(v.dtype()), v)
        })]);
    }
    let new = feature_list(cx, &x, &call.floats("imputed_value_floats", vec![])?, "imputed_value_floats")?;
    let old = call.float("replaced_value_float", 0.0)?;
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| {
        let v = x.at(i);
        let hit = if old.is_nan() { v.is_nan() } else { v.eq_(v.num(f64::from(old))) };
        hit.then(feature(&new, i).to(v.dtype()), v)
    })])
}

/// `x` times the coefficients of each target, plus its intercept.
fn linear_regressor(cx: &mut Cx, call: &Call) -> OpResult {
    let x = number_input(cx, call)?;
    let [rows, features] = x.shape[..] else {
        return invalid(format!("input of rank {}, a matrix is needed", x.rank()));
    };
    let post = call.string("post_transform", "NONE".into())?;
    if post != "NONE" {
        return Err(OpError::Unsupported(format!("post_transform = '{post}'")));
    }
    let targets = call.int("targets", 1)?;
    let coefficients = call.floats("coefficients", vec![])?;
    let intercepts = call.floats("intercepts", vec![])?;
    if targets < 1 || (!intercepts.is_empty() && intercepts.len() as i64 != targets) {
        return invalid(format!("{} intercepts for {targets} targets", intercepts.len()));
    }
    cx.require_equal(features * targets, Int::from(coefficients.len()), "number of coefficients")?;
    let each = coefficients.len() / targets as usize;
    let table = cx.constant_f32(&[targets as usize, each], &coefficients[..each * targets as usize]);
    let table = Operand::of(cx, table);
    let shape = vec![rows, Int::new(targets)];
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, shape.clone(), &[Int::from(each)], |i, r| {
        x.at(&[i[0], r[0]]).to(DType::F32) * table.at(&[i[1], r[0]])
    });
    if intercepts.is_empty() {
        return Ok(vec![sum]);
    }
    let (sum, offset) = (Operand::of(cx, sum), cx.constant_f32(&[intercepts.len()], &intercepts));
    let offset = Operand::of(cx, offset);
    Ok(vec![cx.map(DType::F32, shape, |i| sum.at(i) + offset.at(&[i[1]]))])
}
