//! Depthwise convolutions and the 1×1 convolutions after them, run kernel by kernel in the interpreter against the program as it was.

use super::home_tests::run_kernels;
use super::{Fused, Step, Unit, chain, fuse};
use crate::dtype::DType;
use crate::lower::contract::chain::pays;
use crate::sym::Int;
use crate::te::eval::{self, Array};
use crate::te::{Cx, Expr, Func2, ReduceKind, TensorId, expr};
use std::collections::BTreeMap;

const F: DType = DType::F32;

fn ints(dims: &[i64]) -> Vec<Int> {
    dims.iter().map(|d| Int::new(*d)).collect()
}

/// Small integers, so that sums are exact in any order.
fn number(k: usize, seed: usize) -> f32 {
    ((k * 7 + seed * 5 + k * k % 11) % 5) as f32 - 2.0
}

fn constant(cx: &mut Cx, shape: &[i64], seed: usize) -> TensorId {
    let shape: Vec<usize> = shape.iter().map(|n| *n as usize).collect();
    let values: Vec<f32> = (0..shape.iter().product()).map(|k| number(k, seed)).collect();
    cx.constant_f32(&shape, &values)
}

fn load(t: TensorId, index: &[Int]) -> Expr {
    expr::load(t, F, index.to_vec())
}

/// What is computed: lines, pixels and channels of the image between, channels of the result, size and step of the window.
#[derive(Clone, Copy)]
struct Net {
    lines: i64,
    pixels: i64,
    channels: i64,
    results: i64,
    size: i64,
    step: i64,
}

/// The input's sizes.
fn image(n: Net) -> [i64; 3] {
    [(n.lines - 1) * n.step + n.size, (n.pixels - 1) * n.step + n.size, n.channels]
}

/// A depthwise convolution, limited to 0 to 6, and a 1×1 convolution with a bias: the image between and the result.
fn net(cx: &mut Cx, n: Net) -> (TensorId, TensorId) {
    let x = cx.input("x", F, ints(&image(n)));
    let w = constant(cx, &[n.size, n.size, n.channels], 1);
    let between = ints(&[n.lines, n.pixels, n.channels]);
    let sum = cx.reduce(ReduceKind::Sum, F, between.clone(), &ints(&[n.size; 2]), |i, r| {
        load(x, &[i[0] * n.step + r[0], i[1] * n.step + r[1], i[2]]) * load(w, &[r[0], r[1], i[2]])
    });
    let limited = cx.map(F, between, |i| {
        let [zero, six] = [0.0, 6.0].map(|v| expr::constant_f64(F, v));
        expr::bin(Func2::Min, expr::bin(Func2::Max, load(sum, i), zero), six)
    });
    let (w, bias) = (constant(cx, &[n.channels, n.results], 2), constant(cx, &[n.results], 3));
    let shape = ints(&[n.lines, n.pixels, n.results]);
    let sum = cx.reduce(ReduceKind::Sum, F, shape.clone(), &ints(&[n.channels]), |i, r| {
        load(limited, &[i[0], i[1], r[0]]) * load(w, &[r[0], i[2]])
    });
    let out = cx.map(F, shape, |i| load(sum, i) + load(bias, &[i[2]]));
    (limited, out)
}

fn chains(fused: &Fused) -> usize {
    fused.steps.iter().filter(|s| matches!(s, Step::Run(Unit::Chain(_)))).count()
}

/// Processors with vectors of every length.
const CPUS: [&str; 4] = ["x86-64-v3", "x86-64-v4", "rpi4", "rv64gcv"];

/// Checks the outputs on each of [`CPUS`]; gives the chains on each.
fn check(mut cx: Cx, outputs: &[TensorId]) -> Vec<usize> {
    cx.program.outputs = outputs.to_vec();
    let inputs = cx.program.inputs.iter().enumerate().map(|(seed, t)| {
        let shape: Vec<usize> =
            cx.program.tensor(*t).shape.iter().map(|d| d.as_const().expect("a size") as usize).collect();
        let bits = (0..shape.iter().product()).map(|k| u64::from(number(k, seed + 4).to_bits())).collect();
        Array { dtype: F, bits, shape }
    });
    let inputs: Vec<Array> = inputs.collect();
    let wanted = eval::run(&cx.program, &inputs, outputs).expect("a result");
    let each = CPUS.iter().map(|name| {
        let cpu = graphmend_targets::lookup(name).expect("a preset");
        let mut fused = fuse(cx.program.clone());
        chain::find(&mut fused, &|p, c| pays(p, &cpu, c));
        let got = run_kernels(&fused, name, &inputs, &BTreeMap::new());
        for (got, wanted) in got.into_iter().zip(&wanted) {
            assert_eq!(Array::from_bytes(F, wanted.shape.clone(), &got), *wanted, "on {name}");
        }
        chains(&fused)
    });
    each.collect()
}

#[test]
fn both_are_one_kernel_for_windows_and_images_of_all_kinds() {
    let nets = [
        // Blocks of several lines, the last one shorter.
        Net { lines: 7, pixels: 14, channels: 176, results: 40, size: 3, step: 1 },
        // A line at a time, whose tiles do not divide it.
        Net { lines: 5, pixels: 61, channels: 48, results: 24, size: 3, step: 2 },
        // Channels that fill no whole vector.
        Net { lines: 6, pixels: 23, channels: 99, results: 17, size: 5, step: 1 },
    ];
    for n in nets {
        let mut cx = Cx::new();
        let (_, out) = net(&mut cx, n);
        assert_eq!(check(cx, &[out]), [1; 4], "{} lines", n.lines);
    }
}

const LARGE: Net = Net { lines: 6, pixels: 28, channels: 80, results: 24, size: 3, step: 1 };

#[test]
fn a_residual_is_added_and_heavy_functions_follow_both() {
    let mut cx = Cx::new();
    let (_, out) = net(&mut cx, LARGE);
    let residual = cx.input("residual", F, ints(&[LARGE.lines, LARGE.pixels, LARGE.results]));
    let shape = cx.shape(out);
    let sum = cx.map(F, shape.clone(), |i| load(out, i) + load(residual, i));
    // Of large numbers a sigmoid is 0 or 1, exactly.
    let out = cx.map(F, shape, |i| {
        let e = load(sum, i) * expr::constant_f64(F, 1000.0) + expr::constant_f64(F, 500.0);
        let one = e.num(1.0);
        one / (one + (-e).exp())
    });
    assert_eq!(check(cx, &[out]), [1; 4]);
}

#[test]
fn an_image_that_others_read_too_is_stored() {
    let mut cx = Cx::new();
    let (between, out) = net(&mut cx, LARGE);
    assert_eq!(check(cx, &[out, between]), [0; 4]);
    let mut cx = Cx::new();
    let (between, out) = net(&mut cx, LARGE);
    let shape = cx.shape(between);
    let total = cx.reduce(ReduceKind::Max, F, vec![], &shape, |_, r| load(between, r));
    assert_eq!(check(cx, &[out, total]), [0; 4]);
}

#[test]
fn small_images_and_few_lines_are_two_kernels() {
    for n in [Net { pixels: 7, channels: 32, ..LARGE }, Net { lines: 3, pixels: 80, ..LARGE }] {
        let mut cx = Cx::new();
        let (_, out) = net(&mut cx, n);
        assert_eq!(check(cx, &[out]), [0; 4]);
    }
}

#[test]
fn what_reads_the_image_by_windows_is_a_kernel_of_its_own() {
    let mut cx = Cx::new();
    let n = LARGE;
    let (between, _) = net(&mut cx, n);
    let w = constant(&mut cx, &[3, n.channels, n.results], 5);
    let shape = ints(&[n.lines - 2, n.pixels, n.results]);
    let out = cx.reduce(ReduceKind::Sum, F, shape, &ints(&[3, n.channels]), |i, r| {
        load(between, &[i[0] + r[0], i[1], r[1]]) * load(w, &[r[0], r[1], i[2]])
    });
    assert_eq!(check(cx, &[out]), [0; 4]);
    // Pixels and lines exchanged: what it needs of the image is not there yet.
    let mut cx = Cx::new();
    let n = Net { pixels: LARGE.lines, channels: 512, ..LARGE };
    let (between, _) = net(&mut cx, n);
    let w = constant(&mut cx, &[n.channels, n.results], 5);
    let out = cx.reduce(ReduceKind::Sum, F, ints(&[n.pixels, n.lines, n.results]), &ints(&[n.channels]), |i, r| {
        load(between, &[i[1], i[0], r[0]]) * load(w, &[r[0], i[2]])
    });
    assert_eq!(check(cx, &[out]), [0; 4]);
}
