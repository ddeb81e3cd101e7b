//! Contractions of many shapes, lowered and run in the interpreter against sums written out.

use super::*;
use crate::kernel::interp::{self, Memory};
use crate::kernel::verify::verify;
use crate::lower::Binding;
use crate::te::{Cx, expr};
use graphmend_targets::{Cpu, lookup};

/// Small integers, so that sums are exact in any order.
pub(super) fn values(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as f32 % 8.0 - 3.0
        })
        .collect()
}

fn bytes(v: &[f32]) -> Vec<u8> {
    encode(DType::F32, v)
}

fn encode(dtype: DType, v: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F16 => v.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
        DType::BF16 => v.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
        DType::F64 => v.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect(),
        DType::U8 => v.iter().map(|x| *x as u8).collect(),
        DType::I8 => v.iter().map(|x| *x as i8 as u8).collect(),
        DType::I32 => v.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        _ => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn decode(dtype: DType, b: &[u8]) -> Vec<f32> {
    let number = |c: &[u8]| match dtype {
        DType::F16 => half::f16::from_le_bytes([c[0], c[1]]).to_f32(),
        DType::BF16 => half::bf16::from_le_bytes([c[0], c[1]]).to_f32(),
        DType::I32 => i32::from_le_bytes([c[0], c[1], c[2], c[3]]) as f32,
        DType::F64 => f64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]) as f32,
        _ => f32::from_le_bytes([c[0], c[1], c[2], c[3]]),
    };
    b.chunks_exact(dtype.size()).map(number).collect()
}

/// Processors of every kind of schedule.
pub(super) fn cpus() -> Vec<Cpu> {
    ["x86-64-v3", "x86-64-v4", "icelake-server", "n100", "rpi4", "rv64gc"]
        .iter()
        .map(|n| lookup(n).unwrap_or_else(|| panic!("no preset {n}")))
        .collect()
}

/// Values of symbols that the run needs.
pub(super) type Dims = Vec<(VarId, i64)>;

fn value(i: Int, dims: &Dims) -> i64 {
    let put = |v| dims.iter().find(|(x, _)| *x == v).map(|(_, c)| Int::new(*c));
    crate::sym::subst(i, &put).as_const().unwrap_or_else(|| panic!("{i} is not known"))
}

/// Runs `kernel` in pieces and in one go; both must give the same.
pub(super) fn run(
    program: &Program,
    kernel: &LoweredKernel,
    tensors: &dyn Fn(TensorId) -> Vec<f32>,
    out: TensorId,
    len: usize,
    dims: &Dims,
) -> Vec<f32> {
    verify(&kernel.kernel).unwrap();
    let units = kernel.tiles.map_or(1, |t| value(t, dims));
    let scalars: Vec<i64> = kernel.scalars.iter().map(|s| value(*s, dims)).collect();
    let data: Vec<Vec<u8>> = kernel
        .bindings
        .iter()
        .map(|b| match b {
            Binding::Tensor(t) if *t == out => vec![0xff; program.tensor(out).dtype.size() * len],
            Binding::Tensor(t) => encode(program.tensor(*t).dtype, &tensors(*t)),
            Binding::Packed(_, bytes) => bytes.to_vec(),
            Binding::Scratch(dtype, n) => vec![0; dtype.size() * value(*n, dims) as usize],
        })
        .collect();
    let at = kernel.bindings.iter().position(|b| *b == Binding::Tensor(out)).unwrap();
    let go = |pieces: &[std::ops::Range<i64>]| {
        let mut data = data.clone();
        for range in pieces {
            let mut memory: Vec<Memory<'_>> = data
                .iter_mut()
                .zip(&kernel.kernel.bufs)
                .map(|(d, p)| if p.access == Access::Read { Memory::Read(d) } else { Memory::Write(d) })
                .collect();
            let status = interp::run(&kernel.kernel, &mut memory, &scalars, range.clone(), 1 << 40);
            assert_eq!(status, Ok(0), "{}", kernel.kernel);
        }
        decode(program.tensor(out).dtype, &data[at])
    };
    let whole = go(std::slice::from_ref(&(0..units)));
    let split = units / 3;
    assert_eq!(whole, go(&[split..units, 0..split]), "work units depend on each other");
    whole
}

/// Row-major position of an element.
pub(super) fn position(c: &Contraction) -> Int {
    flatten(&extents(&c.vars), &c.vars.iter().map(|v| Int::var(*v)).collect::<Vec<_>>())
}

/// Lowers the reduction `sum` followed by `out` for every processor, runs and compares.
pub(super) fn check(
    cx: &Cx,
    sum: TensorId,
    out: TensorId,
    tensors: &dyn Fn(TensorId) -> Vec<f32>,
    dims: &Dims,
    expected: &[f32],
) {
    let c = recognise(&cx.program, sum).expect("a contraction");
    let epilogue = match &cx.program.tensor(out).def {
        Def::Map { vars, body } if out != sum => {
            let put = |v| vars.iter().position(|x| *x == v).map(|k| Int::var(c.vars[k]));
            expr::subst_vars(*body, &put)
        }
        _ => expr::load(sum, c.dtype, c.vars.iter().map(|v| Int::var(*v)).collect()),
    };
    let of = Contract { sum, out, epilogue, position: position(&c) };
    for cpu in &cpus() {
        let kernel = lower(&cx.program, cpu, &c, &of, 0).expect("a schedule");
        let got = run(&cx.program, &kernel, tensors, out, expected.len(), dims);
        for (k, (g, e)) in got.iter().zip(expected).enumerate() {
            assert_eq!(g, e, "element {k} on {}:\n{}", cpu.name, kernel.kernel);
        }
        // Other schedules, of which Winograd's rounds otherwise.
        let scale = expected.iter().fold(1f32, |m, e| m.max(e.abs()));
        for choice in 1..choices(&cx.program, cpu, &c, &of) {
            let kernel = lower(&cx.program, cpu, &c, &of, choice).expect("a schedule");
            let got = run(&cx.program, &kernel, tensors, out, expected.len(), dims);
            for (k, (g, e)) in got.iter().zip(expected).enumerate() {
                assert!(
                    (g - e).abs() <= 1e-4 * scale,
                    "element {k} is {g}, not {e}, by choice {choice} on {}",
                    cpu.name
                );
            }
        }
    }
}

fn ints(dims: &[usize]) -> Vec<Int> {
    dims.iter().map(|d| Int::from(*d)).collect()
}

/// `[m, k] x [k, n]` with the operands constant or not, and a bias and a residual as epilogue.
fn product(m: usize, k: usize, n: usize, constant: [bool; 2], transposed: bool, symbolic: bool) {
    let mut cx = Cx::new();
    let (a, b) = (values(m * k, 1), values(k * n, 2));
    let rows = if symbolic { Int::symbol("m", Some(0), None) } else { Int::from(m) };
    let operand = |cx: &mut Cx, name: &str, shape: Vec<Int>, v: &[f32], constant: bool| {
        if constant {
            cx.constant(DType::F32, &shape.iter().map(|d| d.as_const().unwrap() as usize).collect::<Vec<_>>(), bytes(v))
        } else {
            cx.input(name, DType::F32, shape)
        }
    };
    let ta = operand(&mut cx, "a", vec![rows, Int::from(k)], &a, constant[0]);
    let stored: Vec<f32> = if transposed { (0..n * k).map(|i| b[i % k * n + i / k]).collect() } else { b.clone() };
    let shape = if transposed { ints(&[n, k]) } else { ints(&[k, n]) };
    let tb = operand(&mut cx, "b", shape, &stored, constant[1]);
    let bias = cx.input("bias", DType::F32, ints(&[n]));
    let residual = cx.input("residual", DType::F32, vec![rows, Int::from(n)]);
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, vec![rows, Int::from(n)], &ints(&[k]), |i, r| {
        let x = expr::load(ta, DType::F32, vec![i[0], r[0]]);
        let y = expr::load(tb, DType::F32, if transposed { vec![i[1], r[0]] } else { vec![r[0], i[1]] });
        expr::bin(Func2::Mul, x, y)
    });
    let out = cx.map(DType::F32, vec![rows, Int::from(n)], |i| {
        let s =
            expr::bin(Func2::Add, expr::load(sum, DType::F32, i.to_vec()), expr::load(bias, DType::F32, vec![i[1]]));
        expr::bin(Func2::Add, s, expr::load(residual, DType::F32, i.to_vec()))
    });
    let (vb, vr) = (values(n, 3), values(m * n, 4));
    let mut expected = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            expected[i * n + j] = (0..k).map(|x| a[i * k + x] * b[x * n + j]).sum::<f32>() + vb[j] + vr[i * n + j];
        }
    }
    let dims = rows.as_var().map(|v| (v, m as i64)).into_iter().collect();
    let tensors = |t: TensorId| match t {
        t if t == ta => a.clone(),
        t if t == tb => stored.clone(),
        t if t == bias => vb.clone(),
        _ => vr.clone(),
    };
    check(&cx, sum, out, &tensors, &dims, &expected);
}

#[test]
fn products_by_constant_weights_at_tile_edges() {
    for (m, k, n) in [(1, 1, 1), (1, 40, 33), (2, 3, 3), (5, 17, 8), (6, 32, 9), (13, 5, 27), (7, 33, 64)] {
        product(m, k, n, [false, true], false, false);
        product(m, k, n, [false, true], true, false);
    }
}

#[test]
fn products_with_a_row_count_known_at_run_time() {
    for m in [0, 1, 3, 6, 11] {
        product(m, 19, 13, [false, true], false, true);
        product(m, 19, 13, [false, true], true, true);
        product(m, 16, 13, [false, false], false, true);
    }
}

#[test]
fn products_of_run_time_operands() {
    for (m, k, n) in [(1, 7, 4), (4, 16, 16), (9, 20, 21), (12, 9, 3)] {
        product(m, k, n, [false, false], false, false);
        product(m, k, n, [false, false], true, false);
        product(m, k, n, [true, false], false, false);
        product(m, k, n, [true, false], true, false);
    }
}

#[test]
fn sums_of_nothing_have_no_tiles() {
    for (m, k, n) in [(2, 0, 3), (0, 2, 3), (2, 3, 0)] {
        let mut cx = Cx::new();
        let (a, b) = (cx.input("a", DType::F32, ints(&[m, k])), cx.input("b", DType::F32, ints(&[k, n])));
        let sum = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[m, n]), &ints(&[k]), |i, r| {
            let (x, y) = (vec![i[0], r[0]], vec![r[0], i[1]]);
            expr::bin(Func2::Mul, expr::load(a, DType::F32, x), expr::load(b, DType::F32, y))
        });
        let Some(c) = recognise(&cx.program, sum) else { continue };
        for cpu in cpus() {
            let own: Vec<Int> = c.vars.iter().map(|v| Int::var(*v)).collect();
            let itself = expr::load(sum, DType::F32, own);
            assert!(
                lower(&cx.program, &cpu, &c, &Contract { sum, out: sum, epilogue: itself, position: position(&c) }, 0)
                    .is_none(),
                "{m} {k} {n}"
            );
        }
    }
}

#[test]
fn products_of_other_float_types() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        for (m, k, n, constant, transposed) in
            [(7, 9, 11, true, false), (5, 16, 9, false, false), (3, 13, 6, false, true), (1, 40, 21, true, true)]
        {
            let mut cx = Cx::new();
            let (a, b) = (values(m * k, 1), values(k * n, 2));
            let ta = cx.input("a", dtype, ints(&[m, k]));
            let (d0, d1) = if transposed { (n, k) } else { (k, n) };
            let tb = if constant {
                cx.constant(dtype, &[d0, d1], encode(dtype, &b))
            } else {
                cx.input("b", dtype, ints(&[d0, d1]))
            };
            let sum = cx.reduce(ReduceKind::Sum, dtype, ints(&[m, n]), &ints(&[k]), |i, r| {
                let at = if transposed { vec![i[1], r[0]] } else { vec![r[0], i[1]] };
                let x = expr::load(ta, dtype, vec![i[0], r[0]]);
                expr::bin(Func2::Mul, x, expr::load(tb, dtype, at))
            });
            let at = |x: usize, j: usize| if transposed { b[j * k + x] } else { b[x * n + j] };
            let all = (0..m * n).map(|e| (0..k).map(|x| a[e / n * k + x] * at(x, e % n)).sum::<f32>());
            let expected = decode(dtype, &encode(dtype, &all.collect::<Vec<_>>()));
            let tensors = |t: TensorId| if t == ta { a.clone() } else { b.clone() };
            check(&cx, sum, sum, &tensors, &vec![], &expected);
        }
    }
}

#[test]
fn products_of_bytes_are_exact() {
    // Extreme values, so that a float sum over all terms would round.
    for (ta, tb) in [(DType::U8, DType::I8), (DType::I8, DType::U8), (DType::I8, DType::I8), (DType::U8, DType::U8)] {
        // The last is the distance between columns.
        for (m, k, n, constant, transposed, apart) in [
            (7, 9, 11, true, false, 1),
            (40, 530, 10, true, true, 1),
            (3, 1100, 9, false, false, 1),
            (5, 1037, 6, true, false, 1),
            (4, 40, 6, false, true, 1),
            (2, 600, 3, false, true, 1),
            (3, 7, 20, false, false, 2),
            (5, 40, 35, false, false, 3),
            (4, 9, 6, false, true, 2),
        ] {
            let mut cx = Cx::new();
            let extreme = |dtype: DType, count: usize, seed: u64| -> Vec<f32> {
                let v = values(count, seed).into_iter();
                let top = if dtype == DType::U8 { 255.0 } else { -128.0 };
                v.map(|x| if x > -2.0 { top } else { x.abs() }).collect()
            };
            let (a, b) = (extreme(ta, m * k, 1), extreme(tb, k * n * apart, 2));
            let ia = cx.input("a", ta, ints(&[m, k]));
            let (d0, d1) = if transposed { (n * apart, k) } else { (k, n * apart) };
            let ib =
                if constant { cx.constant(tb, &[d0, d1], encode(tb, &b)) } else { cx.input("b", tb, ints(&[d0, d1])) };
            let sum = cx.reduce(ReduceKind::Sum, DType::I32, ints(&[m, n]), &ints(&[k]), |i, r| {
                let column = i[1] * (apart as i64) + (apart as i64 - 1);
                let at = if transposed { vec![column, r[0]] } else { vec![r[0], column] };
                let x = expr::cast(DType::I32, expr::load(ia, ta, vec![i[0], r[0]]));
                expr::bin(Func2::Mul, x, expr::cast(DType::I32, expr::load(ib, tb, at)))
            });
            // The remainder fits the tests' floats and shows an error of one.
            let out = cx.map(DType::I32, ints(&[m, n]), |i| {
                let sum = expr::load(sum, DType::I32, i.to_vec());
                expr::bin(Func2::Rem, sum, expr::constant_i64(DType::I32, 65521))
            });
            let column = |j: usize| j * apart + apart - 1;
            let at = |x: usize, j: usize| b[if transposed { column(j) * k + x } else { x * n * apart + column(j) }];
            let all = (0..m * n).map(|e| (0..k).map(|x| a[e / n * k + x] as i32 * at(x, e % n) as i32).sum::<i32>());
            let expected: Vec<f32> = all.map(|v| (v % 65521) as f32).collect();
            let tensors = |t: TensorId| if t == ia { a.clone() } else { b.clone() };
            check(&cx, sum, out, &tensors, &vec![], &expected);
        }
    }
}

/// A convolution of unsigned bytes with channels last; gives what each processor multiplies at a time.
fn conv_of_bytes([h, w, inputs, outputs, size, step]: [usize; 6]) -> Vec<&'static str> {
    let mut cx = Cx::new();
    let (oh, ow) = ((h - size) / step + 1, (w - size) / step + 1);
    let image: Vec<f32> = values(h * w * inputs, 3).iter().map(|x| (x + 3.0) * 36.0).collect();
    let weights: Vec<f32> = values(outputs * inputs * size * size, 5).iter().map(|x| x * 31.0).collect();
    let x = cx.input("x", DType::U8, ints(&[h, w, inputs]));
    let kernel = cx.constant(DType::I8, &[outputs, inputs, size, size], encode(DType::I8, &weights));
    let sizes = ints(&[inputs, size, size]);
    let y = cx.reduce(ReduceKind::Sum, DType::I32, ints(&[oh, ow, outputs]), &sizes, |i, r| {
        let step = step as i64;
        let pixel = expr::load(x, DType::U8, vec![i[0] * step + r[1], i[1] * step + r[2], r[0]]);
        let weight = expr::load(kernel, DType::I8, vec![i[2], r[0], r[1], r[2]]);
        expr::bin(Func2::Mul, expr::cast(DType::I32, weight), expr::cast(DType::I32, pixel))
    });
    let mut expected = vec![0.0; oh * ow * outputs];
    for (k, e) in expected.iter_mut().enumerate() {
        let (row, column, o) = (k / outputs / ow, k / outputs % ow, k % outputs);
        for (a, b, i) in (0..size).flat_map(|a| (0..size).flat_map(move |b| (0..inputs).map(move |i| (a, b, i)))) {
            let pixel = image[((row * step + a) * w + column * step + b) * inputs + i];
            *e += pixel * weights[((o * inputs + i) * size + a) * size + b];
        }
    }
    let tensors = |t: TensorId| if t == x { image.clone() } else { weights.clone() };
    check(&cx, y, y, &tensors, &vec![], &expected);
    let c = recognise(&cx.program, y).expect("a contraction");
    let itself = expr::load(y, DType::I32, c.vars.iter().map(|v| Int::var(*v)).collect());
    let dots = |cpu: &Cpu| {
        let kernel =
            lower(&cx.program, cpu, &c, &Contract { sum: y, out: y, epilogue: itself, position: position(&c) }, 0)
                .expect("a schedule");
        let text = kernel.kernel.to_string();
        ["dot.bytes", "dot.words"].into_iter().find(|dot| text.contains(dot)).unwrap_or("floats")
    };
    cpus().iter().map(dots).collect()
}

#[test]
fn convolutions_of_bytes_multiply_four_at_a_time_where_there_is_an_instruction() {
    // Whole groups of four; windows whose rows are not; a single row; more than one tile of columns.
    for shape in
        [[9, 9, 8, 24, 1, 1], [7, 9, 3, 17, 3, 1], [9, 11, 5, 20, 3, 2], [6, 13, 12, 70, 3, 1], [5, 5, 1, 16, 5, 1]]
    {
        let (bytes, words) = ("dot.bytes", "dot.words");
        assert_eq!(conv_of_bytes(shape), [words, words, bytes, bytes, "floats", "floats"], "{shape:?}");
    }
}

/// Shape of a convolution without padding.
#[derive(Clone, Copy)]
struct Conv {
    batch: usize,
    group: usize,
    inputs: usize,
    outputs: usize,
    input: [usize; 2],
    kernel: [usize; 2],
    stride: usize,
    dilation: usize,
    symbolic: bool,
    channels_last: bool,
}

const CONV: Conv = Conv {
    batch: 1,
    group: 1,
    inputs: 1,
    outputs: 1,
    input: [1, 1],
    kernel: [1, 1],
    stride: 1,
    dilation: 1,
    symbolic: false,
    channels_last: false,
};

/// The expected result, too.
fn conv(s: Conv) {
    let mut cx = Cx::new();
    let size = |d: usize| (s.input[d] - (s.kernel[d] - 1) * s.dilation - 1) / s.stride + 1;
    let (oh, ow) = (size(0), size(1));
    let (channels, all) = (s.group * s.inputs, s.group * s.outputs);
    let x = values(s.batch * channels * s.input[0] * s.input[1], 5);
    let w = values(all * s.inputs * s.kernel[0] * s.kernel[1], 6);
    let batch = if s.symbolic { Int::symbol("n", Some(0), None) } else { Int::from(s.batch) };
    let [h, w_in] = s.input;
    // Elements of an image with channels last lie otherwise; the axes are the same.
    let lying = |n: usize, c: usize, y: usize, z: usize| match s.channels_last {
        true => ((n * h + y) * w_in + z) * channels + c,
        false => ((n * channels + c) * h + y) * w_in + z,
    };
    let channel_axis = if s.channels_last { 3 } else { 1 };
    let mut x_shape = [&[batch][..], &ints(&s.input)].concat();
    x_shape.insert(channel_axis, Int::from(channels));
    let tx = cx.input("x", DType::F32, x_shape);
    let tw = cx.constant(DType::F32, &[s.group, s.outputs, s.inputs, s.kernel[0], s.kernel[1]], bytes(&w));
    let bias = cx.input("bias", DType::F32, ints(&[all]));
    let shape = [&[batch][..], &ints(&[s.group, s.outputs, oh, ow])].concat();
    let over = ints(&[s.inputs, s.kernel[0], s.kernel[1]]);
    let (st, di) = (s.stride as i64, s.dilation as i64);
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, shape.clone(), &over, |i, r| {
        let mut at = vec![i[0], i[3] * st + r[1] * di, i[4] * st + r[2] * di];
        at.insert(channel_axis, i[1] * s.inputs + r[0]);
        let wt = expr::load(tw, DType::F32, vec![i[1], i[2], r[0], r[1], r[2]]);
        expr::bin(Func2::Mul, wt, expr::load(tx, DType::F32, at))
    });
    let out = cx.map(DType::F32, shape, |i| {
        let b = expr::load(bias, DType::F32, vec![i[1] * s.outputs + i[2]]);
        let y = expr::bin(Func2::Add, expr::load(sum, DType::F32, i.to_vec()), b);
        expr::bin(Func2::Max, y, expr::constant_f64(DType::F32, 0.0))
    });
    let vb = values(all, 7);
    let mut expected = vec![];
    for n in 0..s.batch {
        for c in 0..all {
            for p in 0..oh * ow {
                let (y, z) = (p / ow, p % ow);
                let mut v = vb[c];
                for i in 0..s.inputs {
                    for h in 0..s.kernel[0] {
                        for j in 0..s.kernel[1] {
                            let channel = c / s.outputs * s.inputs + i;
                            let row = y * s.stride + h * s.dilation;
                            let at = lying(n, channel, row, z * s.stride + j * s.dilation);
                            v += x[at] * w[((c * s.inputs + i) * s.kernel[0] + h) * s.kernel[1] + j];
                        }
                    }
                }
                expected.push(v.max(0.0));
            }
        }
    }
    let dims = batch.as_var().map(|v| (v, s.batch as i64)).into_iter().collect();
    let tensors = |t: TensorId| match t {
        t if t == tx => x.clone(),
        t if t == tw => w.clone(),
        _ => vb.clone(),
    };
    check(&cx, sum, out, &tensors, &dims, &expected);
}

#[test]
fn pointwise_convolutions() {
    conv(Conv { inputs: 5, outputs: 7, input: [3, 3], ..CONV });
    conv(Conv { batch: 2, inputs: 16, outputs: 24, input: [7, 7], ..CONV });
    conv(Conv { batch: 2, inputs: 9, outputs: 13, input: [4, 9], symbolic: true, ..CONV });
    conv(Conv { inputs: 8, outputs: 8, input: [9, 9], stride: 2, ..CONV });
}

#[test]
fn convolutions_with_a_kernel() {
    conv(Conv { inputs: 3, outputs: 8, input: [9, 12], kernel: [3, 3], ..CONV });
    conv(Conv { batch: 2, inputs: 3, outputs: 13, input: [11, 11], kernel: [3, 3], stride: 2, ..CONV });
    conv(Conv { inputs: 4, outputs: 6, input: [9, 9], kernel: [3, 3], ..CONV });
    conv(Conv { inputs: 2, outputs: 5, input: [9, 20], kernel: [2, 3], dilation: 2, ..CONV });
    conv(Conv { inputs: 3, outputs: 16, input: [15, 15], kernel: [7, 7], stride: 2, symbolic: true, ..CONV });
    conv(Conv { inputs: 2, outputs: 3, input: [20, 1], kernel: [5, 1], ..CONV });
}

#[test]
fn operands_laid_out_ahead_of_the_tiles() {
    conv(Conv { batch: 2, inputs: 130, outputs: 67, input: [3, 7], ..CONV });
    conv(Conv { inputs: 3, outputs: 67, input: [9, 19], kernel: [3, 3], stride: 2, ..CONV });
    product(67, 131, 9, [true, false], false, false);
}

#[test]
fn grouped_and_depthwise_convolutions() {
    conv(Conv { group: 2, inputs: 3, outputs: 5, input: [6, 10], kernel: [3, 3], ..CONV });
    conv(Conv { batch: 2, group: 5, input: [9, 9], kernel: [3, 3], ..CONV });
    conv(Conv { group: 5, input: [11, 19], kernel: [3, 3], stride: 2, ..CONV });
    conv(Conv { batch: 2, group: 3, input: [9, 27], kernel: [5, 5], symbolic: true, ..CONV });
    conv(Conv { group: 3, outputs: 2, input: [9, 5], kernel: [3, 2], stride: 3, ..CONV });
}

/// Vectors along the terms: where there are few output channels, with terms that fill vectors and such that do not.
#[test]
fn convolutions_with_few_outputs_and_channels_last() {
    let last = Conv { channels_last: true, ..CONV };
    conv(Conv { inputs: 8, input: [9, 19], kernel: [5, 5], ..last });
    conv(Conv { inputs: 33, input: [5, 21], kernel: [3, 3], ..last });
    conv(Conv { inputs: 16, outputs: 2, input: [3, 9], ..last });
    conv(Conv { inputs: 8, outputs: 8, input: [4, 30], kernel: [3, 9], ..last });
    conv(Conv { batch: 2, inputs: 17, outputs: 3, input: [7, 9], kernel: [3, 3], stride: 2, symbolic: true, ..last });
    conv(Conv { group: 2, inputs: 20, outputs: 1, input: [5, 8], kernel: [3, 3], dilation: 2, ..last });
}

/// Weights whose terms lie together already, but whose other axes are in another order than the result's.
#[test]
fn dot_products_with_axes_in_another_order() {
    let (b, c, d) = (4, 3, 17);
    let mut cx = Cx::new();
    let (x, w) = (values(d, 8), values(b * c * d, 9));
    let tx = cx.input("x", DType::F32, ints(&[d]));
    let tw = cx.constant(DType::F32, &[b, c, d], bytes(&w));
    let sum = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[c, b]), &ints(&[d]), |i, r| {
        let weight = expr::load(tw, DType::F32, vec![i[1], i[0], r[0]]);
        expr::bin(Func2::Mul, expr::load(tx, DType::F32, vec![r[0]]), weight)
    });
    let dot = |k: usize| (0..d).map(|j| x[j] * w[((k % b) * c + k / b) * d + j]).sum::<f32>();
    let expected: Vec<f32> = (0..b * c).map(dot).collect();
    let tensors = |t: TensorId| if t == tx { x.clone() } else { w.clone() };
    check(&cx, sum, sum, &tensors, &Dims::new(), &expected);
}

/// A 3×3 convolution with step 1 over an image with channels last; gives the greatest error relative to the sum of the
/// absolute products, and whether Winograd's filtering was used.
fn windows_of_three([h, w, inputs, outputs]: [usize; 4], target: &str) -> (f64, bool) {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, ints(&[h + 2, w + 2, inputs]));
    let (image, weights) = (values((h + 2) * (w + 2) * inputs, 3), values(outputs * inputs * 9, 5));
    let kernel = cx.constant_f32(&[outputs, inputs, 3, 3], &weights);
    let sizes = ints(&[3, 3, inputs]);
    let y = cx.reduce(ReduceKind::Sum, DType::F32, ints(&[h, w, outputs]), &sizes, |i, r| {
        let pixel = expr::load(x, DType::F32, vec![i[0] + r[0], i[1] + r[1], r[2]]);
        expr::load(kernel, DType::F32, vec![i[2], r[2], r[0], r[1]]) * pixel
    });
    let c = recognise(&cx.program, y).expect("a contraction");
    let itself = expr::load(y, DType::F32, c.vars.iter().map(|v| Int::var(*v)).collect());
    let cpu = lookup(target).expect("a preset");
    let lowered =
        lower(&cx.program, &cpu, &c, &Contract { sum: y, out: y, epilogue: itself, position: position(&c) }, 0)
            .expect("a schedule");
    // Its two work spaces: transformed inputs and products.
    let filtered = lowered.bindings.iter().filter(|b| matches!(b, Binding::Scratch(..))).count() == 2;
    let got = run(&cx.program, &lowered, &|_| image.clone(), y, h * w * outputs, &vec![]);
    let mut worst = 0f64;
    for (k, got) in got.iter().enumerate() {
        let (row, column, o) = (k / outputs / w, k / outputs % w, k % outputs);
        let (mut sum, mut size) = (0f64, 0f64);
        for (a, b, i) in (0..3).flat_map(|a| (0..3).flat_map(move |b| (0..inputs).map(move |i| (a, b, i)))) {
            let pixel = image[((row + a) * (w + 2) + column + b) * inputs + i];
            let term = f64::from(pixel) * f64::from(weights[((o * inputs + i) * 3 + a) * 3 + b]);
            sum += term;
            size += term.abs();
        }
        worst = worst.max((f64::from(*got) - sum).abs() / size);
    }
    (worst, filtered)
}

#[test]
fn filtered_convolutions_stay_within_their_error_bound() {
    for target in ["x86-64-v3", "x86-64-v4"] {
        // Whole tiles, tiles that overlap along one axis and along both, and more tiles than a block has.
        for shape in [[8, 8, 64, 64], [13, 8, 64, 32], [14, 15, 32, 64], [30, 29, 32, 32]]
            // Channels that fill no whole vectors.
            .into_iter()
            .chain([[16, 16, 96, 24], [13, 14, 20, 40], [17, 16, 36, 72]])
        {
            let (worst, filtered) = windows_of_three(shape, target);
            assert!(filtered, "{shape:?} on {target} is summed directly");
            assert!(worst < 1e-5, "{shape:?} on {target}: {worst}");
        }
    }
}
