//! Programs put together in place, run kernel by kernel in the interpreter against the program as it was.

use super::{Fused, Step, Unit, fuse};
use crate::dtype::DType;
use crate::kernel::interp::{self, Memory};
use crate::kernel::ir::{Access, Cmp};
use crate::kernel::verify::verify;
use crate::lower::Binding;
use crate::pack::lower_unit;
use crate::plan::base;
use crate::sym::{Int, VarId};
use crate::te::eval::{self, Array};
use crate::te::{Cx, Def, Expr, Func2, Program, ReduceKind, TensorId, expr};
use std::collections::BTreeMap;

const F: DType = DType::F32;

fn ints(dims: &[i64]) -> Vec<Int> {
    dims.iter().map(|d| Int::new(*d)).collect()
}

/// Small integers, so that sums are exact in any order.
fn number(k: usize, seed: usize) -> f32 {
    ((k * 7 + seed * 5 + k * k % 11) % 9) as f32 - 4.0
}

fn constant(cx: &mut Cx, shape: &[usize], seed: usize) -> TensorId {
    let values: Vec<f32> = (0..shape.iter().product()).map(|k| number(k, seed)).collect();
    cx.constant_f32(shape, &values)
}

/// `max(x w, 0)` for `x` of two axes.
fn layer(cx: &mut Cx, x: TensorId, width: i64, seed: usize) -> TensorId {
    let (rows, depth) = (cx.shape(x)[0], cx.shape(x)[1]);
    let w = constant(cx, &[depth.as_const().expect("a size") as usize, width as usize], seed);
    let sum = cx.reduce(ReduceKind::Sum, F, vec![rows, Int::new(width)], &[depth], |i, r| {
        let (x, w) = (expr::load(x, F, vec![i[0], r[0]]), expr::load(w, F, vec![r[0], i[1]]));
        expr::bin(Func2::Mul, x, w)
    });
    map(cx, sum, |_, e| expr::bin(Func2::Max, e, expr::constant_f64(F, 0.0)))
}

/// Sums of three neighbours in each row, with weights.
fn window(cx: &mut Cx, x: TensorId, seed: usize) -> TensorId {
    let w = constant(cx, &[3], seed);
    let shape = cx.shape(x);
    cx.reduce(ReduceKind::Sum, F, vec![shape[0], shape[1] - 2], &ints(&[3]), |i, r| {
        let (x, w) = (expr::load(x, F, vec![i[0], i[1] + r[0]]), expr::load(w, F, r.to_vec()));
        expr::bin(Func2::Mul, x, w)
    })
}

fn map(cx: &mut Cx, x: TensorId, f: impl Fn(&[Int], Expr) -> Expr) -> TensorId {
    let shape = cx.shape(x);
    cx.map(F, shape, |i| f(i, expr::load(x, F, i.to_vec())))
}

fn add(cx: &mut Cx, a: TensorId, b: TensorId) -> TensorId {
    let shape = cx.shape(a);
    cx.map(F, shape, |i| expr::bin(Func2::Add, expr::load(a, F, i.to_vec()), expr::load(b, F, i.to_vec())))
}

fn compare(c: Cmp, a: Int, b: Int) -> Expr {
    expr::cmp(c, expr::int(a), expr::int(b))
}

/// `x` with one element of `fill` at either end of its last axis.
fn pad(cx: &mut Cx, x: TensorId, fill: f64) -> TensorId {
    let shape = cx.shape(x);
    let n = shape[1];
    cx.map(F, vec![shape[0], n + 2], |i| {
        let at = i[1] - 1;
        let inside = expr::bin(Func2::And, compare(Cmp::Le, Int::new(0), at), compare(Cmp::Lt, at, n));
        expr::select(inside, expr::load(x, F, vec![i[0], at]), expr::constant_f64(F, fill))
    })
}

/// All of `parts`, one behind the other along an axis.
fn join(cx: &mut Cx, parts: &[TensorId], axis: usize) -> TensorId {
    let mut shape = cx.shape(parts[0]);
    shape[axis] = parts.iter().fold(Int::new(0), |n, t| n + cx.shape(*t)[axis]);
    let mut end = shape[axis];
    let sizes: Vec<Int> = parts.iter().map(|t| cx.shape(*t)[axis]).collect();
    cx.map(F, shape, |i| {
        let mut value = None;
        for (t, size) in parts.iter().zip(sizes).rev() {
            let mut at = i.to_vec();
            at[axis] = i[axis] - (end - size);
            let here = expr::load(*t, F, at);
            value = Some(match value {
                None => here,
                Some(after) => expr::select(compare(Cmp::Lt, i[axis], end), here, after),
            });
            end = end - size;
        }
        value.expect("a part")
    })
}

/// Columns `from..to` of `x`.
fn columns(cx: &mut Cx, x: TensorId, from: i64, to: i64) -> TensorId {
    let rows = cx.shape(x)[0];
    cx.map(F, vec![rows, Int::new(to - from)], |i| expr::load(x, F, vec![i[0], i[1] + from]))
}

pub(super) fn value(i: Int, dims: &BTreeMap<VarId, i64>) -> i64 {
    let known = crate::sym::subst(i, &|v| dims.get(&v).map(|n| Int::new(*n)));
    known.as_const().unwrap_or_else(|| panic!("{i} is not known"))
}

/// Runs the kernels of a program without control flow; each in two calls, the later units first.
pub(super) fn run_kernels(fused: &Fused, cpu: &str, inputs: &[Array], dims: &BTreeMap<VarId, i64>) -> Vec<Vec<u8>> {
    let p = &fused.program;
    let cpu = graphmend_targets::lookup(cpu).expect("a preset");
    let mut memory: BTreeMap<TensorId, Vec<u8>> = BTreeMap::new();
    let size = |t: TensorId| value(Int::product(&p.tensor(t).shape), dims) as usize * p.tensor(t).dtype.size();
    for step in &fused.steps {
        let Step::Run(unit) = step else { continue };
        let k = lower_unit(p, &cpu, unit);
        verify(&k.kernel).expect("a kernel");
        let (units, scalars) = (k.tiles.map_or(1, |n| value(n, dims)), k.scalars.iter().map(|s| value(*s, dims)));
        let scalars: Vec<i64> = scalars.collect();
        let mut data: Vec<Vec<u8>> = vec![];
        for (n, b) in k.bindings.iter().enumerate() {
            let alone =
                |m: &Binding| matches!((b, m), (Binding::Tensor(a), Binding::Tensor(b)) if base(p, *a) == base(p, *b));
            assert!(
                k.kernel.bufs[n].access == Access::Read || k.bindings.iter().filter(|m| alone(m)).count() <= 1,
                "memory that is written has one name"
            );
            data.push(match b {
                Binding::Tensor(t) => match &p.tensor(base(p, *t)).def {
                    Def::Input(k) => inputs[*k].bytes(),
                    Def::Const(bytes) => bytes.to_vec(),
                    _ => memory.get(&base(p, *t)).cloned().unwrap_or_else(|| vec![0xff; size(base(p, *t))]),
                },
                Binding::Packed(_, bytes) => bytes.to_vec(),
                Binding::Scratch(dtype, n) => vec![0; dtype.size() * value(*n, dims) as usize],
            });
        }
        // The second half first; of one unit the first half is nothing.
        for range in [units / 2..units, 0..units / 2] {
            let mut bound: Vec<Memory<'_>> = vec![];
            for (d, param) in data.iter_mut().zip(&k.kernel.bufs) {
                bound.push(if param.access == Access::Read { Memory::Read(d) } else { Memory::Write(d) });
            }
            assert_eq!(interp::run(&k.kernel, &mut bound, &scalars, range, 1 << 32), Ok(0), "{}", k.kernel);
        }
        for ((b, d), param) in k.bindings.iter().zip(data).zip(&k.kernel.bufs) {
            if let (Binding::Tensor(t), Access::Write) = (b, param.access) {
                memory.insert(base(p, *t), d);
            }
        }
    }
    p.outputs.iter().map(|t| memory[&base(p, *t)].clone()).collect()
}

/// The inputs of a program with its open dimensions at `open`.
fn inputs(p: &Program, open: i64) -> (Vec<Array>, BTreeMap<VarId, i64>) {
    let dims: BTreeMap<VarId, i64> = p.dim_vars.keys().map(|v| (*v, open)).collect();
    let arrays = p.inputs.iter().enumerate().map(|(seed, t)| {
        let shape: Vec<usize> = p.tensor(*t).shape.iter().map(|d| value(*d, &dims) as usize).collect();
        let bits = (0..shape.iter().product()).map(|k| u64::from(number(k, seed).to_bits()));
        Array { dtype: F, bits: bits.collect(), shape }
    });
    (arrays.collect(), dims)
}

/// Fuses, checks that `homes` tensors live in another and that this changes no output, and gives the number of kernels.
fn check(mut cx: Cx, outputs: &[TensorId], homes: usize) -> usize {
    cx.program.outputs = outputs.to_vec();
    let fused = fuse(cx.program.clone());
    let text = crate::te::text::program(&fused.program, &|t| fused.stored.contains(&t));
    assert_eq!(fused.program.homes.len(), homes, "{text}");
    for open in [5, 1, 16] {
        let (arrays, dims) = inputs(&cx.program, open);
        let wanted = eval::run(&cx.program, &arrays, outputs).expect("a result");
        let defined = eval::run(&fused.program, &arrays, outputs).expect("a result");
        assert_eq!(defined, wanted, "{text}");
        for cpu in ["x86-64-v3", "rpi4", "rv64gc"] {
            let got = run_kernels(&fused, cpu, &arrays, &dims);
            for (got, wanted) in got.into_iter().zip(&wanted) {
                assert_eq!(Array::from_bytes(F, wanted.shape.clone(), &got), *wanted, "on {cpu}:\n{text}");
            }
        }
    }
    fused.steps.iter().filter(|s| matches!(s, Step::Run(_))).count()
}

fn start() -> (Cx, TensorId) {
    let mut cx = Cx::new();
    let x = cx.input("x", F, ints(&[4, 6]));
    (cx, x)
}

fn open() -> (Cx, TensorId) {
    let mut cx = Cx::new();
    let n = Int::symbol("n", Some(0), None);
    let x = cx.input("x", F, vec![n, Int::new(6)]);
    cx.program.dim_vars.insert(n.as_var().expect("a symbol"), (0, 0));
    (cx, x)
}

#[test]
fn a_layer_writes_into_the_padded_tensor() {
    for (mut cx, x) in [start(), open()] {
        let a = layer(&mut cx, x, 7, 1);
        let padded = pad(&mut cx, a, 0.0);
        let y = window(&mut cx, padded, 2);
        // The layer, the border, the windows.
        assert_eq!(check(cx, &[y], 1), 3);
    }
}

#[test]
fn other_readers_of_a_padded_tensor_read_it_in_its_home() {
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 7, 1);
    let padded = pad(&mut cx, a, 0.0);
    let y = window(&mut cx, padded, 2);
    let sum = add(&mut cx, y, a);
    let last = layer(&mut cx, a, 5, 3);
    assert_eq!(check(cx, &[sum, last], 1), 4);
}

#[test]
fn of_two_pads_of_a_tensor_one_is_its_home() {
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 7, 1);
    let (p, q) = (pad(&mut cx, a, 0.0), pad(&mut cx, a, -9.0));
    let (y, z) = (window(&mut cx, p, 2), window(&mut cx, q, 3));
    assert_eq!(check(cx, &[y, z], 1), 5);
}

#[test]
fn a_tensor_is_padded_once_for_all_who_read_it_so() {
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 7, 1);
    let pads = [pad(&mut cx, a, 0.0), pad(&mut cx, a, 0.0), pad(&mut cx, a, 0.0)];
    let ends: Vec<TensorId> = pads.iter().enumerate().map(|(seed, p)| window(&mut cx, *p, seed)).collect();
    assert_eq!(check(cx, &ends, 1), 5);
}

#[test]
fn joined_layers_are_written_in_place() {
    for (mut cx, x) in [start(), open()] {
        for axis in [0, 1] {
            let mut cx = cx.clone();
            let (a, b) = (layer(&mut cx, x, 7, 1), layer(&mut cx, x, 7, 2));
            let c = join(&mut cx, &[a, b], axis);
            let y = layer(&mut cx, c, 3, 4);
            assert_eq!(check(cx, &[c, y], 2), 3);
        }
        // The model's input is copied.
        let a = layer(&mut cx, x, 7, 1);
        let c = join(&mut cx, &[x, a], 1);
        assert_eq!(check(cx, &[c], 1), 2);
    }
}

#[test]
fn a_tensor_joined_twice_is_written_once_and_copied_once() {
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 7, 1);
    let c = join(&mut cx, &[a, x, a], 1);
    assert_eq!(check(cx, &[c], 1), 2);
}

#[test]
fn a_joined_tensor_lives_in_a_padded_one() {
    for (mut cx, x) in [start(), open()] {
        let (a, b) = (layer(&mut cx, x, 7, 1), layer(&mut cx, x, 4, 2));
        let c = join(&mut cx, &[a, b], 1);
        let p = pad(&mut cx, c, 0.5);
        let y = window(&mut cx, p, 2);
        // The joined tensor itself is nowhere.
        assert_eq!(check(cx.clone(), &[y], 2), 4);
        // Here it is read by itself, too.
        let z = layer(&mut cx, c, 3, 4);
        assert_eq!(check(cx, &[y, z], 3), 5);
    }
}

#[test]
fn parts_of_a_tensor_that_are_joined_again_are_no_copies() {
    // A layer split in two, its second half taken further, and all of it joined.
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 8, 1);
    let (low, high) = (columns(&mut cx, a, 0, 4), columns(&mut cx, a, 4, 8));
    let next = layer(&mut cx, high, 4, 2);
    let b = add(&mut cx, next, high);
    let c = join(&mut cx, &[low, high, b], 1);
    let y = layer(&mut cx, c, 3, 3);
    assert_eq!(check(cx, &[y], 2), 3);
}

#[test]
fn axes_of_one_element_are_no_hindrance() {
    // The middle of three rows of a plane, in which the first axis and the row have one element each.
    let (mut cx, x) = start();
    let a = layer(&mut cx, x, 7, 1);
    let row = cx.reduce(ReduceKind::Sum, F, ints(&[1, 1, 7]), &ints(&[4]), |i, r| expr::load(a, F, vec![r[0], i[2]]));
    let p = cx.map(F, ints(&[1, 3, 9]), |i| {
        let at = [i[0], i[1] - 1, i[2] - 1];
        let inside = |k: usize, n: i64| {
            expr::bin(Func2::And, compare(Cmp::Ge, at[k], Int::new(0)), compare(Cmp::Lt, at[k], Int::new(n)))
        };
        let inside = expr::bin(Func2::And, inside(1, 1), inside(2, 7));
        expr::select(inside, expr::load(row, F, at.to_vec()), expr::constant_f64(F, 2.0))
    });
    let y = cx.reduce(ReduceKind::Max, F, ints(&[1, 2, 8]), &ints(&[2, 2]), |i, r| {
        expr::load(p, F, vec![i[0], i[1] + r[0], i[2] + r[1]])
    });
    assert_eq!(check(cx, &[y], 1), 4);
}

#[test]
fn tensors_in_use_elsewhere_keep_their_memory() {
    let (mut cx, x) = start();
    let (a, b) = (layer(&mut cx, x, 6, 1), layer(&mut cx, x, 6, 2));
    // An output, and the elements under another shape.
    let view = cx.view(b, ints(&[8, 3]));
    let c = join(&mut cx, &[a, b], 1);
    let y = layer(&mut cx, view, 2, 3);
    check(cx, &[a, c, y], 0);
}

#[test]
fn sums_and_norms_move_in_as_well() {
    let (mut cx, x) = start();
    let shape = cx.shape(x);
    let most = cx.reduce(ReduceKind::Max, F, vec![shape[0]], &[shape[1]], |i, r| expr::load(x, F, [i, r].concat()));
    let less =
        cx.map(F, shape, |i| expr::bin(Func2::Sub, expr::load(x, F, i.to_vec()), expr::load(most, F, vec![i[0]])));
    let sum = window(&mut cx, x, 1);
    let c = join(&mut cx, &[less, sum], 1);
    assert_eq!(check(cx, &[c], 2), 2);
}

#[test]
fn constants_that_are_joined_are_computed_while_packing() {
    let (mut cx, x) = start();
    let w = constant(&mut cx, &[4, 6], 3);
    let a = map(&mut cx, w, |_, e| expr::bin(Func2::Mul, e, e));
    let c = join(&mut cx, &[a, a], 1);
    let d = layer(&mut cx, c, 3, 1);
    let e = join(&mut cx, &[d, x], 1);
    let units = check(cx, &[e], 0);
    assert_eq!(units, 1);
}

#[test]
fn kernels_are_named_after_what_they_compute() {
    let (mut cx, x) = start();
    cx.node = "first".into();
    let a = layer(&mut cx, x, 7, 1);
    cx.node = "second".into();
    let p = pad(&mut cx, a, 0.0);
    let y = window(&mut cx, p, 2);
    cx.program.outputs = vec![y];
    let fused = fuse(cx.program);
    let cpu = graphmend_targets::lookup("rpi4").expect("a preset");
    let names = fused.steps.iter().filter_map(|s| match s {
        Step::Run(u @ (Unit::Contract(_) | Unit::Pieces(..))) => Some(lower_unit(&fused.program, &cpu, u).kernel.name),
        _ => None,
    });
    assert_eq!(names.collect::<Vec<_>>(), ["first", "second", "second"]);
}
