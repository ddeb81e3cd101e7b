//! `DynamicQuantizeLSTM` against its equations, written as plain loops.

use super::testing::{Value, call, constant, value};
use super::{AttrValue, expand};
use crate::dtype::DType;
use crate::te::{Cx, OpResult, TensorId, eval};

const STEPS: usize = 3;
const BATCH: usize = 2;
const INPUTS: usize = 6;

/// Reproducible integers from `low` to `low + 255`.
fn bytes(dtype: DType, shape: &[usize], seed: u32) -> Value {
    let low = if dtype == DType::I8 { -128 } else { 0 };
    let mut s = seed;
    let data = (0..shape.iter().product::<usize>()).map(|_| {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from((s >> 24) as i32 + low)
    });
    value(dtype, shape, &data.collect::<Vec<_>>())
}

/// Reproducible numbers between -`size` and `size`.
fn floats(shape: &[usize], size: f64, seed: u32) -> Value {
    let mut v = bytes(DType::I8, shape, seed);
    v.dtype = DType::F32;
    v.data.iter_mut().for_each(|x| *x = f64::from((*x * size / 128.0) as f32));
    v
}

/// Bytes less their zero point, and their scale.
fn quantised(x: &[f64]) -> (Vec<f64>, f64) {
    let low = x.iter().fold(0f32, |a, b| a.min(*b as f32));
    let high = x.iter().fold(0f32, |a, b| a.max(*b as f32));
    let scale = if low == high { 1.0 } else { (high - low) / 255.0 };
    let zero = (0.0 - low / scale).clamp(0.0, 255.0).round_ties_even();
    let code = |x: &f64| ((*x as f32 / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero;
    (x.iter().map(|x| f64::from(code(x))).collect(), f64::from(scale))
}

fn expand_on(cx: &mut Cx, operands: &[Option<Value>], hidden: usize) -> OpResult<Vec<TensorId>> {
    let ids: Vec<_> = operands.iter().map(|v| v.as_ref().map(|v| constant(cx, v))).collect();
    let mut call = call("DynamicQuantizeLSTM", 1, &ids, &[("hidden_size", AttrValue::Int(hidden as i64))], 3);
    call.domain = "com.microsoft".into();
    expand(cx, &call)
}

fn operands(dtype: DType, zero: f64, hidden: usize, columns: bool) -> Vec<Option<Value>> {
    let shape = if columns { vec![1, 4 * hidden] } else { vec![1] };
    let scales = |seed| {
        let mut v = floats(&shape, 0.01, seed);
        v.data.iter_mut().for_each(|x| *x = f64::from((x.abs() + 0.004) as f32));
        Some(v)
    };
    let zeros = Some(value(dtype, &shape, &vec![zero; shape.iter().product()]));
    vec![
        Some(floats(&[STEPS, BATCH, INPUTS], 2.0, 1)),
        Some(bytes(dtype, &[1, INPUTS, 4 * hidden], 2)),
        Some(bytes(dtype, &[1, hidden, 4 * hidden], 3)),
        Some(floats(&[1, 8 * hidden], 0.5, 4)),
        None,
        Some(floats(&[1, BATCH, hidden], 1.0, 5)),
        Some(floats(&[1, BATCH, hidden], 1.0, 6)),
        None,
        scales(7),
        zeros.clone(),
        scales(8),
        zeros,
    ]
}

/// The sequence of hidden states.
fn expected(o: &[Option<Value>], hidden: usize) -> Vec<f64> {
    let data = |k: usize| o[k].as_ref().expect("given").data.as_slice();
    let one_of = |k: usize, column: usize| data(k)[if data(k).len() == 1 { 0 } else { column }];
    let width = 4 * hidden;
    let (x, x_scale) = quantised(data(0));
    let (mut h, mut c) = (data(5).to_vec(), data(6).to_vec());
    let mut y = vec![];
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for t in 0..STEPS {
        let (q, h_scale) = quantised(&h);
        for b in 0..BATCH {
            let gate = |gate: usize, u: usize| {
                let column = gate * hidden + u;
                let input: f64 = (0..INPUTS)
                    .map(|k| x[(t * BATCH + b) * INPUTS + k] * (data(1)[k * width + column] - one_of(9, column)))
                    .sum();
                let state: f64 =
                    (0..hidden).map(|k| q[b * hidden + k] * (data(2)[k * width + column] - one_of(11, column))).sum();
                input * x_scale * one_of(8, column)
                    + state * h_scale * one_of(10, column)
                    + data(3)[column]
                    + data(3)[width + column]
            };
            for u in 0..hidden {
                let at = b * hidden + u;
                c[at] = sigmoid(gate(2, u)) * c[at] + sigmoid(gate(0, u)) * gate(3, u).tanh();
                h[at] = sigmoid(gate(1, u)) * c[at].tanh();
            }
        }
        y.extend_from_slice(&h);
    }
    y
}

#[test]
fn weights_that_are_bytes_are_multiplied_with_states_made_bytes_in_each_step() {
    // Units: a whole block of eight lanes and then four and one, and states that are no multiple of four.
    for (dtype, zero, hidden, columns) in [
        (DType::I8, 0.0, 13, true),
        (DType::I8, -5.0, 8, false),
        (DType::U8, 128.0, 13, false),
        (DType::U8, 3.0, 5, true),
    ] {
        let o = operands(dtype, zero, hidden, columns);
        let mut cx = Cx::new();
        let made = expand_on(&mut cx, &o, hidden).expect("legal");
        let y = eval::run(&cx.program, &[], &made[..1]).expect("evaluates").remove(0);
        let want = expected(&o, hidden);
        assert_eq!(y.bits.len(), want.len());
        for (k, (bits, want)) in y.bits.iter().zip(&want).enumerate() {
            let got = eval::number(y.dtype, *bits);
            assert!((got - want).abs() < 1e-5, "{dtype}, {hidden} units, element {k}: {got} instead of {want}");
        }
    }
}

#[test]
fn scales_and_zero_points_belong_to_directions_or_columns() {
    let good = operands(DType::I8, 0.0, 4, false);
    for (place, wrong) in [
        (8, floats(&[2], 1.0, 1)),
        (9, bytes(DType::U8, &[1], 1)),
        (10, floats(&[1, 4], 1.0, 1)),
        (1, bytes(DType::I8, &[1, 16, INPUTS], 1)),
        (2, floats(&[1, 4, 16], 1.0, 1)),
    ] {
        let mut o = good.clone();
        o[place] = Some(wrong);
        assert!(expand_on(&mut Cx::new(), &o, 4).is_err(), "operand {place}");
    }
}
