//! Products, convolutions and pools against their definitions written as plain loops, evaluated without running code.

use super::{AttrValue, Call, expand};
use crate::dtype::DType;
use crate::te::{Cx, OpError, TensorId, expr, known};
use std::collections::BTreeMap;

fn call(op: &str, inputs: &[TensorId], attrs: &[(&str, AttrValue)]) -> Call {
    Call {
        domain: String::new(),
        op: op.into(),
        version: 22,
        inputs: inputs.iter().map(|t| Some(*t)).collect(),
        outputs: vec![true, true],
        attrs: attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect::<BTreeMap<_, _>>(),
    }
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::Ints(v.to_vec())
}

/// Small whole numbers, so that sums are exact, without a pattern that a wrong index could hit.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (s >> 24) as f32 - 128.0
    };
    (0..n).map(|_| next()).collect()
}

fn constants(cx: &mut Cx, shape: &[usize], seed: u32) -> (TensorId, Vec<f32>) {
    let v = numbers(shape.iter().product(), seed);
    (cx.constant_f32(shape, &v), v)
}

fn values(cx: &mut Cx, t: TensorId) -> (Vec<usize>, Vec<f64>) {
    let shape: Vec<usize> = cx.shape(t).iter().map(|d| d.as_const().expect("constant shape") as usize).collect();
    let count: usize = shape.iter().product();
    let out = (0..count)
        .map(|mut flat| {
            let mut at: Vec<i64> = vec![];
            for d in shape.iter().rev() {
                at.insert(0, (flat % d) as i64);
                flat /= d;
            }
            let e: expr::Expr = known::element(cx, t, &at);
            known::number(e.as_const().unwrap_or_else(|| panic!("element {at:?} is not constant: {e}")))
        })
        .collect();
    (shape, out)
}

fn run(cx: &mut Cx, c: &Call, output: usize) -> (Vec<usize>, Vec<f64>) {
    let t = expand(cx, c).unwrap_or_else(|e| panic!("{}: {e:?}", c.op))[output];
    values(cx, t)
}

#[test]
fn matmul_broadcasts_batch_axes_and_drops_those_of_vectors() {
    let mut cx = Cx::new();
    let (a, va) = constants(&mut cx, &[3, 1, 2, 4], 1);
    let (b, vb) = constants(&mut cx, &[2, 4, 3], 2);
    let (shape, y) = run(&mut cx, &call("MatMul", &[a, b], &[]), 0);
    assert_eq!(shape, [3, 2, 2, 3]);
    let mut want = vec![];
    for p in 0..3 {
        for q in 0..2 {
            for m in 0..2 {
                for n in 0..3 {
                    want.push((0..4).map(|k| va[(p * 2 + m) * 4 + k] * vb[(q * 4 + k) * 3 + n]).sum::<f32>() as f64);
                }
            }
        }
    }
    assert_eq!(y, want);
    let (v, vv) = constants(&mut cx, &[4], 3);
    let (shape, y) = run(&mut cx, &call("MatMul", &[v, b], &[]), 0);
    assert_eq!(shape, [2, 3]);
    assert_eq!(y[4], (0..4).map(|k| vv[k] * vb[(4 + k) * 3 + 1]).sum::<f32>() as f64);
    let (shape, y) = run(&mut cx, &call("MatMul", &[v, v], &[]), 0);
    assert!(shape.is_empty());
    assert_eq!(y[0], vv.iter().map(|x| x * x).sum::<f32>() as f64);
}

#[test]
fn gemm_transposes_scales_and_broadcasts_the_bias() {
    let mut cx = Cx::new();
    let (a, va) = constants(&mut cx, &[4, 2], 1);
    let (b, vb) = constants(&mut cx, &[3, 4], 2);
    let (c, vc) = constants(&mut cx, &[2, 1], 3);
    let attrs = [
        ("transA", AttrValue::Int(1)),
        ("transB", AttrValue::Int(1)),
        ("alpha", AttrValue::Float(0.5)),
        ("beta", AttrValue::Float(2.0)),
    ];
    let (shape, y) = run(&mut cx, &call("Gemm", &[a, b, c], &attrs), 0);
    assert_eq!(shape, [2, 3]);
    for m in 0..2 {
        for n in 0..3 {
            let sum: f32 = (0..4).map(|k| va[k * 2 + m] * vb[n * 4 + k]).sum();
            assert_eq!(y[m * 3 + n], f64::from(0.5 * sum + 2.0 * vc[m]));
        }
    }
}

struct Shape2 {
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    pads: [usize; 4],
    group: usize,
}

impl Shape2 {
    fn attrs(&self) -> Vec<(&'static str, AttrValue)> {
        let v = |s: &[usize]| ints(&s.iter().map(|x| *x as i64).collect::<Vec<_>>());
        vec![
            ("strides", v(&self.stride)),
            ("dilations", v(&self.dilation)),
            ("pads", v(&self.pads)),
            ("group", AttrValue::Int(self.group as i64)),
        ]
    }
}

const CASES: [Shape2; 5] = [
    Shape2 { size: [5, 4], kernel: [3, 2], stride: [1, 1], dilation: [1, 1], pads: [1, 0, 1, 1], group: 1 },
    Shape2 { size: [6, 5], kernel: [3, 3], stride: [2, 3], dilation: [1, 1], pads: [1, 1, 0, 2], group: 2 },
    Shape2 { size: [6, 7], kernel: [2, 3], stride: [1, 2], dilation: [3, 2], pads: [0, 2, 1, 2], group: 4 },
    Shape2 { size: [3, 3], kernel: [1, 1], stride: [1, 1], dilation: [1, 1], pads: [0, 0, 0, 0], group: 1 },
    Shape2 { size: [4, 4], kernel: [2, 4], stride: [3, 2], dilation: [2, 1], pads: [0, 1, 0, 0], group: 2 },
];

#[test]
fn convolution_agrees_with_its_definition() {
    for s in &CASES {
        let mut cx = Cx::new();
        let (channels, outputs) = (4, 8);
        let per = channels / s.group;
        let (x, vx) = constants(&mut cx, &[2, channels, s.size[0], s.size[1]], 5);
        let (w, vw) = constants(&mut cx, &[outputs, per, s.kernel[0], s.kernel[1]], 6);
        let (b, vb) = constants(&mut cx, &[outputs], 7);
        let (shape, y) = run(&mut cx, &call("Conv", &[x, w, b], &s.attrs()), 0);
        let dim = |d: usize| {
            (s.size[d] + s.pads[d] + s.pads[2 + d] - (s.kernel[d] - 1) * s.dilation[d] - 1) / s.stride[d] + 1
        };
        assert_eq!(shape, [2, outputs, dim(0), dim(1)]);
        let mut at = 0;
        for n in 0..2 {
            for o in 0..outputs {
                let first = o / (outputs / s.group) * per;
                for p in 0..dim(0) {
                    for q in 0..dim(1) {
                        let mut sum = vb[o];
                        for c in 0..per {
                            for k in 0..s.kernel[0] {
                                for l in 0..s.kernel[1] {
                                    let row = (p * s.stride[0] + k * s.dilation[0]).wrapping_sub(s.pads[0]);
                                    let col = (q * s.stride[1] + l * s.dilation[1]).wrapping_sub(s.pads[1]);
                                    if row < s.size[0] && col < s.size[1] {
                                        let xi = ((n * channels + first + c) * s.size[0] + row) * s.size[1] + col;
                                        sum += vx[xi] * vw[((o * per + c) * s.kernel[0] + k) * s.kernel[1] + l];
                                    }
                                }
                            }
                        }
                        assert_eq!(y[at], f64::from(sum), "element {at}");
                        at += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn transposed_convolution_scatters_what_convolution_gathers() {
    for (s, extra) in CASES.iter().zip([[0, 0], [1, 2], [2, 1], [0, 0], [2, 1]]) {
        let mut cx = Cx::new();
        let (channels, per) = (4, 3);
        let (x, vx) = constants(&mut cx, &[2, channels, s.size[0], s.size[1]], 8);
        let (w, vw) = constants(&mut cx, &[channels, per, s.kernel[0], s.kernel[1]], 9);
        let mut attrs = s.attrs();
        attrs.push(("output_padding", ints(&extra)));
        let (shape, y) = run(&mut cx, &call("ConvTranspose", &[x, w], &attrs), 0);
        let full = |d: usize| (s.size[d] - 1) * s.stride[d] + extra[d] as usize + (s.kernel[d] - 1) * s.dilation[d] + 1;
        let dim = |d: usize| full(d) - s.pads[d] - s.pads[2 + d];
        let outputs = per * s.group;
        assert_eq!(shape, [2, outputs, dim(0), dim(1)]);
        let mut want = vec![0.0f32; 2 * outputs * dim(0) * dim(1)];
        for n in 0..2 {
            for c in 0..channels {
                for h in 0..s.size[0] {
                    for v in 0..s.size[1] {
                        for o in 0..per {
                            for k in 0..s.kernel[0] {
                                for l in 0..s.kernel[1] {
                                    let row = (h * s.stride[0] + k * s.dilation[0]).wrapping_sub(s.pads[0]);
                                    let col = (v * s.stride[1] + l * s.dilation[1]).wrapping_sub(s.pads[1]);
                                    if row < dim(0) && col < dim(1) {
                                        let oc = c / (channels / s.group) * per + o;
                                        want[((n * outputs + oc) * dim(0) + row) * dim(1) + col] += vx
                                            [((n * channels + c) * s.size[0] + h) * s.size[1] + v]
                                            * vw[((c * per + o) * s.kernel[0] + k) * s.kernel[1] + l];
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        assert_eq!(y, want.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
    }
}

#[test]
fn same_padding_puts_the_odd_cell_at_the_end_or_at_the_start() {
    let mut cx = Cx::new();
    let x = cx.constant_f32(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let w = cx.constant_f32(&[1, 1, 2], &[1.0, 10.0]);
    let upper = [("auto_pad", AttrValue::Str("SAME_UPPER".into()))];
    assert_eq!(run(&mut cx, &call("Conv", &[x, w], &upper), 0).1, [21.0, 32.0, 43.0, 4.0]);
    let lower = [("auto_pad", AttrValue::Str("SAME_LOWER".into()))];
    assert_eq!(run(&mut cx, &call("Conv", &[x, w], &lower), 0).1, [10.0, 21.0, 32.0, 43.0]);
}

#[test]
fn a_window_that_hangs_over_the_padding_counts_only_cells_that_exist() {
    let mut cx = Cx::new();
    let x = cx.constant_f32(&[1, 1, 4], &[10.0, 20.0, 30.0, 40.0]);
    let attrs = |include: i64| {
        vec![
            ("kernel_shape", ints(&[3])),
            ("strides", ints(&[2])),
            ("pads", ints(&[1, 1])),
            ("ceil_mode", AttrValue::Int(1)),
            ("count_include_pad", AttrValue::Int(include)),
        ]
    };
    // Windows start at -1, 1 and 3; the last holds one cell of input, one of padding and one that does not exist.
    let (shape, y) = run(&mut cx, &call("AveragePool", &[x], &attrs(1)), 0);
    assert_eq!((shape, y), (vec![1, 1, 3], vec![10.0, 30.0, 20.0]));
    let (_, y) = run(&mut cx, &call("AveragePool", &[x], &attrs(0)), 0);
    assert_eq!(y, [15.0, 30.0, 40.0]);
}

#[test]
fn a_window_that_would_start_behind_the_input_is_dropped() {
    let mut cx = Cx::new();
    let x = cx.constant_f32(&[1, 1, 3], &[3.0, 1.0, 2.0]);
    let attrs = [
        ("kernel_shape", ints(&[2])),
        ("strides", ints(&[3])),
        ("pads", ints(&[0, 1])),
        ("ceil_mode", AttrValue::Int(1)),
    ];
    let (shape, y) = run(&mut cx, &call("MaxPool", &[x], &attrs), 0);
    assert_eq!((shape, y), (vec![1, 1, 1], vec![3.0]));
}

#[test]
fn max_pool_indices_name_the_first_maximum_in_either_storage_order() {
    let mut cx = Cx::new();
    let x = cx.constant_f32(&[1, 2, 2, 3], &[1.0, 5.0, 5.0, 0.0, 5.0, 2.0, -9.0, -9.0, -8.0, -7.0, -9.0, -9.0]);
    let mut attrs = vec![("kernel_shape", ints(&[2, 2])), ("pads", ints(&[0, 0, 1, 0]))];
    let (shape, y) = run(&mut cx, &call("MaxPool", &[x], &attrs), 1);
    assert_eq!((shape, y), (vec![1, 2, 2, 2], vec![1.0, 1.0, 4.0, 4.0, 9.0, 8.0, 9.0, 10.0]));
    attrs.push(("storage_order", AttrValue::Int(1)));
    let (_, y) = run(&mut cx, &call("MaxPool", &[x], &attrs), 1);
    assert_eq!(y, [2.0, 2.0, 3.0, 3.0, 7.0, 10.0, 7.0, 9.0]);
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let mut cx = Cx::new();
    let (x, _) = constants(&mut cx, &[1, 4, 5], 1);
    let (w4, _) = constants(&mut cx, &[2, 4, 3, 3], 2);
    let (narrow, _) = constants(&mut cx, &[2, 3, 3], 3);
    let (long, _) = constants(&mut cx, &[2, 4, 6], 3);
    let (m, _) = constants(&mut cx, &[3, 2], 4);
    let scalar = cx.constant(DType::F32, &[], vec![0; 4]);
    for bad in [call("Conv", &[x, w4], &[]), call("Conv", &[x, narrow], &[]), call("Conv", &[x, long], &[])] {
        assert!(matches!(expand(&mut cx, &bad), Err(OpError::Invalid(_))));
    }
    let bad = [call("MatMul", &[m, m], &[]), call("MatMul", &[m, scalar], &[]), call("MaxPool", &[x], &[])];
    for bad in bad {
        assert!(matches!(expand(&mut cx, &bad), Err(OpError::Invalid(_))), "{bad:?}");
    }
    let zero = call("Conv", &[x, narrow], &[("strides", ints(&[0]))]);
    assert!(matches!(expand(&mut cx, &zero), Err(OpError::Invalid(_))));
}
