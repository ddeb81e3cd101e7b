//! Attention in one kernel, run in the interpreter against the program by its definitions.

use super::home_tests::{run_kernels, value};
use super::{Fused, Step, Unit, fuse};
use crate::dtype::DType;
use crate::ops::{AttrValue, Call, expand};
use crate::sym::{Int, VarId};
use crate::te::eval::{self, Array};
use crate::te::{Cx, Program, TensorId, expr};
use std::collections::BTreeMap;

pub(super) const F: DType = DType::F32;

/// Reproducible numbers between -1 and 1.
pub(super) fn number(k: usize, seed: usize) -> f32 {
    let mut s = (k as u32).wrapping_mul(747_796_405).wrapping_add((seed as u32 + 1).wrapping_mul(2_891_336_453));
    s ^= s >> 16;
    s = s.wrapping_mul(0x45d9_f3b5);
    s ^= s >> 15;
    s as f32 / (1u64 << 31) as f32 - 1.0
}

fn dim(n: i64) -> Int {
    Int::new(n)
}

/// A size that is open, and its symbol.
pub(super) fn open(cx: &mut Cx, input: usize, axis: usize) -> Int {
    let n = Int::symbol("n", Some(0), None);
    cx.program.dim_vars.insert(n.as_var().expect("a symbol"), (input, axis));
    n
}

pub(super) fn call(
    cx: &mut Cx,
    op: &str,
    version: i64,
    inputs: &[Option<TensorId>],
    attrs: &[(&str, AttrValue)],
) -> TensorId {
    let call = Call {
        domain: String::new(),
        op: op.into(),
        version,
        inputs: inputs.to_vec(),
        outputs: vec![true],
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect(),
    };
    expand(cx, &call).expect("legal")[0]
}

pub(super) fn fused(cx: &Cx, out: TensorId) -> Fused {
    let mut p = cx.program.clone();
    p.outputs = vec![out];
    fuse(p)
}

fn inputs(p: &Program, open: &BTreeMap<VarId, i64>) -> Vec<Array> {
    let each = p.inputs.iter().enumerate().map(|(seed, t)| {
        let dtype = p.tensor(*t).dtype;
        let shape: Vec<usize> = p.tensor(*t).shape.iter().map(|d| value(*d, open) as usize).collect();
        let bits = (0..shape.iter().product()).map(|k| match dtype {
            DType::Bool => u64::from(number(k, seed) > -0.5),
            DType::F16 => half::f16::from_f32(number(k, seed)).to_bits().into(),
            DType::I64 => (k as u64 * 3 + 2) % 7,
            _ => number(k, seed).to_bits().into(),
        });
        Array { dtype, bits: bits.collect(), shape }
    });
    each.collect()
}

pub(super) fn units(f: &Fused) -> Vec<&'static str> {
    let each = f.steps.iter().filter_map(|s| match s {
        Step::Run(Unit::Attention(_)) => Some("attention"),
        Step::Run(Unit::Contract(_)) => Some("contraction"),
        Step::Run(Unit::Nest(_)) => Some("nest"),
        Step::Run(_) => Some("other"),
        _ => None,
    });
    each.collect()
}

/// The whole is one kernel, which gives what the program means for each number that stands for the open sizes.
fn check(cx: &Cx, out: TensorId, sizes: &[i64], tolerance: f64) {
    check_units(cx, out, sizes, tolerance, &["attention"]);
}

/// The same with more kernels.
fn check_units(cx: &Cx, out: TensorId, sizes: &[i64], tolerance: f64, kernels: &[&str]) {
    let f = fused(cx, out);
    let text = crate::te::text::program(&f.program, &|t| f.stored.contains(&t));
    assert_eq!(units(&f), kernels, "{text}");
    agree(cx, &f, out, sizes, tolerance);
}

pub(super) fn agree(cx: &Cx, f: &Fused, out: TensorId, sizes: &[i64], tolerance: f64) {
    for size in sizes {
        let dims: BTreeMap<VarId, i64> = cx.program.dim_vars.keys().map(|v| (*v, *size)).collect();
        let arrays = inputs(&cx.program, &dims);
        let want = eval::run(&cx.program, &arrays, &[out]).expect("a result").remove(0);
        for cpu in ["x86-64-v4", "x86-64-v3", "rpi4", "rv64gc"] {
            let got = run_kernels(f, cpu, &arrays, &dims).remove(0);
            let got = Array::from_bytes(want.dtype, want.shape.clone(), &got);
            for (k, (a, b)) in got.bits.iter().zip(&want.bits).enumerate() {
                let (a, b) = (eval::number(want.dtype, *a), eval::number(want.dtype, *b));
                let near = (a - b).abs() <= tolerance || (a.is_nan() && b.is_nan());
                assert!(near, "element {k} on {cpu}, open sizes {size}: {a} instead of {b}");
            }
        }
    }
}

/// `[batch, heads, queries, depth]`, and so on. The batch is as large as there are heads of keys.
fn operands(
    cx: &mut Cx,
    dtype: DType,
    heads: [i64; 2],
    queries: Int,
    keys: Int,
    [depth, size]: [i64; 2],
) -> [TensorId; 3] {
    let batch = dim(heads[1].min(2));
    [
        cx.input("q", dtype, vec![batch, dim(heads[0]), queries, dim(depth)]),
        cx.input("k", dtype, vec![batch, dim(heads[1]), keys, dim(depth)]),
        cx.input("v", dtype, vec![batch, dim(heads[1]), keys, dim(size)]),
    ]
}

#[test]
fn attention_is_one_kernel_for_sizes_around_those_of_tiles() {
    for (queries, keys, depth, size) in
        [(8, 8, 4, 4), (33, 30, 16, 12), (32, 28, 5, 17), (35, 213, 8, 9), (9, 500, 3, 5), (17, 14, 64, 64)]
    {
        let mut cx = Cx::new();
        let t = operands(&mut cx, F, [1, 1], dim(queries), dim(keys), [depth, size]);
        let y = call(&mut cx, "Attention", 23, &t.map(Some), &[]);
        check(&cx, y, &[0], 2e-6);
    }
}

#[test]
fn query_heads_that_share_keys_are_one_kernel() {
    let mut cx = Cx::new();
    let t = operands(&mut cx, F, [6, 2], dim(20), dim(25), [8, 8]);
    let y = call(&mut cx, "Attention", 23, &t.map(Some), &[("softcap", AttrValue::Float(2.0))]);
    check(&cx, y, &[0], 2e-6);
}

#[test]
fn open_sizes_take_the_same_kernel_from_a_single_query_on() {
    for causal in [0, 1] {
        let mut cx = Cx::new();
        let n = open(&mut cx, 0, 2);
        let t = operands(&mut cx, F, [1, 1], n, n, [8, 20]);
        let y = call(&mut cx, "Attention", 23, &t.map(Some), &[("is_causal", AttrValue::Int(causal))]);
        check(&cx, y, &[1, 2, 3, 17, 70, 205], 2e-6);
    }
}

#[test]
fn of_no_keys_the_sum_is_zero() {
    let mut cx = Cx::new();
    let n = open(&mut cx, 1, 2);
    let q = cx.input("q", F, vec![dim(2), dim(20), dim(8)]);
    let k = cx.input("k", F, vec![dim(2), dim(8), n]);
    let v = cx.input("v", F, vec![dim(2), n, dim(12)]);
    let scores = call(&mut cx, "MatMul", 13, &[Some(q), Some(k)], &[]);
    let weights = call(&mut cx, "Softmax", 13, &[Some(scores)], &[("axis", AttrValue::Int(-1))]);
    let y = call(&mut cx, "MatMul", 13, &[Some(weights), Some(v)], &[]);
    check(&cx, y, &[0, 1, 9, 40], 2e-6);
}

#[test]
fn masks_of_any_kind_are_part_of_the_kernel() {
    // Numbers and bools, for all heads or for each, for all queries or for each.
    for (dtype, shape) in [
        (F, vec![20, 30]),
        (F, vec![2, 3, 20, 30]),
        (DType::Bool, vec![20, 30]),
        (DType::Bool, vec![2, 1, 1, 30]),
        (DType::Bool, vec![20, 11]),
    ] {
        let mut cx = Cx::new();
        let [q, k, v] = operands(&mut cx, F, [3, 3], dim(20), dim(30), [8, 8]);
        let mask = cx.input("mask", dtype, shape.iter().map(|d| dim(*d)).collect());
        let y = call(&mut cx, "Attention", 24, &[q, k, v, mask].map(Some), &[]);
        check(&cx, y, &[0], 2e-6);
    }
}

#[test]
fn keys_that_no_query_of_a_block_may_see_are_left_out() {
    for (attrs, queries, keys) in [
        (vec![("is_causal", 1)], 80, 80),
        (vec![("is_causal", 1)], 80, 50),
        (vec![("is_causal", 1)], 30, 90),
        (vec![("left_window_size", 9), ("right_window_size", 3)], 90, 90),
        (vec![("left_window_size", 0), ("is_causal", 1)], 40, 45),
    ] {
        let mut cx = Cx::new();
        let t = operands(&mut cx, F, [1, 1], dim(queries), dim(keys), [4, 4]);
        let attrs: Vec<_> = attrs.iter().map(|(k, v)| (*k, AttrValue::Int(*v))).collect();
        let y = call(&mut cx, "Attention", 28, &t.map(Some), &attrs);
        check(&cx, y, &[0], 2e-6);
    }
}

#[test]
fn numbers_of_valid_keys_are_read_and_rows_without_keys_are_zero() {
    let mut cx = Cx::new();
    let [q, k, v] = operands(&mut cx, F, [2, 2], dim(10), dim(40), [4, 4]);
    let valid = cx.input("valid", DType::I64, vec![dim(2)]);
    let y = call(
        &mut cx,
        "Attention",
        24,
        &[Some(q), Some(k), Some(v), None, None, None, Some(valid)],
        &[("is_causal", AttrValue::Int(1))],
    );
    check(&cx, y, &[0], 2e-6);
}

/// `softmax(q k' / 2 + mask) v` operator by operator, as exporters write it.
fn decomposed(cx: &mut Cx, q: TensorId, k: TensorId, v: TensorId, mask: Option<TensorId>) -> TensorId {
    let turned = call(cx, "Transpose", 21, &[Some(k)], &[("perm", AttrValue::Ints(vec![0, 1, 3, 2]))]);
    let mut scores = call(cx, "MatMul", 13, &[Some(q), Some(turned)], &[]);
    let half = cx.constant_f32(&[], &[0.5]);
    scores = call(cx, "Mul", 14, &[Some(scores), Some(half)], &[]);
    if let Some(mask) = mask {
        scores = call(cx, "Add", 14, &[Some(scores), Some(mask)], &[]);
    }
    let weights = call(cx, "Softmax", 13, &[Some(scores)], &[]);
    call(cx, "MatMul", 13, &[Some(weights), Some(v)], &[])
}

#[test]
fn the_pattern_of_exporters_is_one_kernel_and_rows_without_keys_are_not_numbers() {
    for sizes in [vec![0], vec![1, 9]] {
        let mut cx = Cx::new();
        let n = if sizes == [0] { dim(20) } else { open(&mut cx, 0, 2) };
        let [q, k, v] = operands(&mut cx, F, [3, 3], n, n, [8, 8]);
        let seen = cx.input("seen", DType::Bool, vec![dim(2), dim(1), n, n]);
        // Query 5 sees nothing.
        let mask = cx.map(F, vec![dim(2), dim(1), n, n], |i| {
            let zero = expr::constant_f64(F, 0.0);
            let one = expr::cmp(crate::kernel::ir::Cmp::Ne, expr::int(i[2]), expr::int(dim(5)));
            let seen = expr::load(seen, DType::Bool, i.to_vec());
            (seen & one).then(zero, zero.num(f64::NEG_INFINITY))
        });
        let y = decomposed(&mut cx, q, k, v, Some(mask));
        // The mask is computed once for all heads.
        check_units(&cx, y, &sizes, 2e-6, &["nest", "attention"]);
    }
}

#[test]
fn half_types_are_taken_as_they_are() {
    let mut cx = Cx::new();
    let [q, k, v] = operands(&mut cx, DType::F16, [2, 2], dim(20), dim(24), [8, 8]);
    let y = call(&mut cx, "Attention", 23, &[q, k, v].map(Some), &[]);
    check(&cx, y, &[0], 2e-3);
}

#[test]
fn what_follows_is_applied_before_the_store() {
    let mut cx = Cx::new();
    let [q, k, v] = operands(&mut cx, F, [2, 2], dim(20), dim(24), [8, 8]);
    let more = cx.input("more", F, vec![dim(2), dim(20), dim(2), dim(8)]);
    let y = decomposed(&mut cx, q, k, v, None);
    let y = call(&mut cx, "Transpose", 21, &[Some(y)], &[("perm", AttrValue::Ints(vec![0, 2, 1, 3]))]);
    let y = call(&mut cx, "Add", 14, &[Some(y), Some(more)], &[]);
    let shape = cx.constant_i64(&[3], &[2, 20, 16]);
    let y = call(&mut cx, "Reshape", 21, &[Some(y), Some(shape)], &[]);
    check(&cx, y, &[0], 2e-6);
}

#[test]
fn scores_that_others_need_stay_in_memory() {
    let mut cx = Cx::new();
    let [q, k, v] = operands(&mut cx, F, [2, 2], dim(20), dim(24), [8, 8]);
    let scores = {
        let turned = call(&mut cx, "Transpose", 21, &[Some(k)], &[("perm", AttrValue::Ints(vec![0, 1, 3, 2]))]);
        call(&mut cx, "MatMul", 13, &[Some(q), Some(turned)], &[])
    };
    let weights = call(&mut cx, "Softmax", 13, &[Some(scores)], &[]);
    let y = call(&mut cx, "MatMul", 13, &[Some(weights), Some(v)], &[]);
    let mut p = cx.program.clone();
    p.outputs = vec![y, scores];
    let f = fuse(p);
    assert!(!units(&f).contains(&"attention"));
}
