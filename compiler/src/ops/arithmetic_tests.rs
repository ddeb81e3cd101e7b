use super::AttrValue::{Float, Int as I, Ints, Str};
use super::testing::*;
use super::{Call, expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, OpError, known};

fn f(data: &[f64]) -> Value {
    value(DType::F32, &[data.len()], data)
}

fn ints(t: DType, data: &[f64]) -> Value {
    value(t, &[data.len()], data)
}

fn str(s: &str) -> super::AttrValue {
    Str(s.into())
}

#[test]
fn remainders_take_the_sign_that_fmod_asks_for() {
    let (a, b) = ([-7.0, 7.0, -6.0, 5.0, 5.0], [3.0, -3.0, 3.0, 5.0, 0.0]);
    let run = |t, v| run1("Mod", 13, &[ints(t, &a), ints(t, &b)], &[("fmod", I(v))]).data;
    assert_eq!(run(DType::I32, 0), [2.0, -2.0, 0.0, 0.0, 0.0]);
    assert_eq!(run(DType::I32, 1), [-1.0, 1.0, 0.0, 0.0, 0.0]);
    let wide = run1("Mod", 13, &[ints(DType::U8, &[250.0]), ints(DType::U8, &[240.0])], &[]);
    assert_eq!(wide.data, [10.0]);
}

#[test]
fn integer_powers_are_exact_and_wrap() {
    let x = ints(DType::I64, &[3.0, -2.0, -1.0, 2.0, 2.0, 7.0, 0.0]);
    let e = ints(DType::I64, &[33.0, 31.0, 101.0, -1.0, 70.0, 0.0, 5.0]);
    let y = run1("Pow", 15, &[x, e], &[]);
    assert_eq!(y.data, [5_559_060_566_555_523.0, -2_147_483_648.0, -1.0, 0.0, 0.0, 1.0, 0.0]);
    let squares = run1("Pow", 15, &[f(&[3.0, -1.5]), value(DType::I32, &[], &[2.0])], &[]);
    assert_eq!((squares.dtype, squares.data), (DType::F32, vec![9.0, 2.25]));
}

#[test]
fn integer_division_truncates_and_shifts_reach_past_the_width() {
    let y = run1("Div", 14, &[ints(DType::I8, &[-7.0, 7.0, 1.0]), ints(DType::I8, &[2.0, -2.0, 0.0])], &[]);
    assert_eq!(y.data, [-3.0, -3.0, 0.0]);
    let shift = |t, x: f64, by: f64, d| {
        run1("BitShift", 28, &[ints(t, &[x]), ints(t, &[by])], &[("direction", str(d))]).data[0]
    };
    assert_eq!(shift(DType::U8, 3.0, 7.0, "LEFT"), 128.0);
    assert_eq!(shift(DType::U8, 255.0, 8.0, "RIGHT"), 0.0);
    assert_eq!(shift(DType::I8, -3.0, 9.0, "RIGHT"), -1.0);
}

#[test]
fn first_versions_align_the_second_operand_at_an_axis() {
    let (x, b) = (counting(&[2, 3, 2]), f(&[0.0, 10.0, 20.0]));
    let y = run1("Add", 6, &[x.clone(), b.clone()], &[("broadcast", I(1)), ("axis", I(1))]);
    assert_eq!(y.data, [0.0, 1.0, 12.0, 13.0, 24.0, 25.0, 6.0, 7.0, 18.0, 19.0, 30.0, 31.0]);
    let refused = |attrs: &[_]| run("Add", 6, &[Some(x.clone()), Some(b.clone())], attrs, 1).unwrap_err();
    assert!(matches!(refused(&[]), OpError::Invalid(_)));
    assert!(matches!(refused(&[("broadcast", I(1)), ("axis", I(3))]), OpError::Invalid(_)));
    let slope = run1("PRelu", 6, &[value(DType::F32, &[1, 2, 2], &[-1.0, 1.0, -1.0, 2.0]), f(&[2.0, 3.0])], &[]);
    assert_eq!(slope.data, [-2.0, 1.0, -3.0, 2.0]);
}

#[test]
fn clip_with_crossed_bounds_gives_the_upper_one() {
    let scalar = |v| Some(value(DType::F32, &[], &[v]));
    let x = Some(f(&[-2.0, 0.0, 9.0]));
    let y = run("Clip", 13, &[x.clone(), scalar(4.0), scalar(1.0)], &[], 1).unwrap();
    assert_eq!(y[0].data, [1.0, 1.0, 1.0]);
    let y = run("Clip", 13, &[x.clone(), None, scalar(1.0)], &[], 1).unwrap();
    assert_eq!(y[0].data, [-2.0, 0.0, 1.0]);
    let y = run("Clip", 6, std::slice::from_ref(&x), &[("min", Float(-1.0))], 1).unwrap();
    assert_eq!(y[0].data, [-1.0, 0.0, 9.0]);
    assert!(run("Clip", 13, &[x, Some(f(&[1.0, 2.0]))], &[], 1).is_err());
}

#[test]
fn operands_of_different_types_are_refused() {
    let bad = |op, a, b| matches!(run(op, 14, &[Some(a), Some(b)], &[], 1), Err(OpError::Invalid(_)));
    assert!(bad("Add", f(&[1.0]), ints(DType::I32, &[1.0])));
    assert!(bad("And", f(&[1.0]), f(&[1.0])));
    assert!(bad("Add", ints(DType::Bool, &[1.0]), ints(DType::Bool, &[1.0])));
    assert!(bad("Add", f(&[1.0, 2.0]), f(&[1.0, 2.0, 3.0])));
}

#[test]
fn casts_truncate_wrap_and_round_to_half() {
    let cast = |x: Value, to| run1("Cast", 13, &[x], &[("to", I(to))]).data;
    assert_eq!(cast(f(&[-1.9, 300.0, 2.5]), 6), [-1.0, 300.0, 2.0]);
    assert_eq!(cast(ints(DType::I16, &[200.0, -1.0]), 3), [-56.0, -1.0]);
    assert_eq!(cast(ints(DType::I32, &[2049.0]), 10), [2048.0]);
    assert_eq!(cast(ints(DType::I64, &[0.0, 7.0]), 9), [0.0, 1.0]);
    let x = [Some(f(&[1.0]))];
    assert!(
        matches!(run("Cast", 13, &x, &[("to", I(14))], 1), Err(OpError::Unsupported(m)) if m.contains("complex64"))
    );
    assert!(matches!(run("Cast", 13, &x, &[("to", I(99))], 1), Err(OpError::Invalid(_))));
    assert_eq!(run("Cast", 1, &x, &[("to", str("INT64"))], 1).unwrap()[0].dtype, DType::I64);
}

#[test]
fn reductions_take_axes_from_either_place() {
    let x = counting(&[2, 3]);
    let sum = |version, inputs: &[Value], attrs: &[_]| {
        let y = run1("ReduceSum", version, &[std::slice::from_ref(&x), inputs].concat(), attrs);
        (y.shape, y.data)
    };
    assert_eq!(sum(11, &[], &[("axes", Ints(vec![-1]))]), (vec![2, 1], vec![3.0, 12.0]));
    assert_eq!(sum(13, &[list(&[0])], &[("keepdims", I(0))]), (vec![3], vec![3.0, 5.0, 7.0]));
    assert_eq!(sum(13, &[], &[("keepdims", I(0))]), (vec![], vec![15.0]));
    assert_eq!(sum(13, &[list(&[])], &[("noop_with_empty_axes", I(1))]), (vec![2, 3], x.data.clone()));
    assert!(run("ReduceSum", 13, &[Some(x), Some(list(&[2]))], &[], 1).is_err());
}

#[test]
fn composite_reductions_over_no_axes_keep_their_other_steps() {
    let x = f(&[-2.0, 3.0]);
    let y = |op| run1(op, 18, &[x.clone(), list(&[])], &[("noop_with_empty_axes", I(1))]).data;
    assert_eq!(y("ReduceSumSquare"), [4.0, 9.0]);
    assert_eq!(y("ReduceL1"), [2.0, 3.0]);
    assert_eq!(y("ReduceL2"), [2.0, 3.0]);
}

#[test]
fn integer_means_truncate_without_overflow() {
    let y = run1("ReduceMean", 13, &[ints(DType::I8, &[127.0, 127.0, 126.0])], &[]);
    assert_eq!(y.data, [126.0]);
}

#[test]
fn axes_read_at_run_time_give_shapes_that_depend_on_them() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, vec![Int::new(2), Int::new(3), Int::new(5)]);
    let axes = cx.input("axes", DType::I64, vec![Int::new(1)]);
    let mut shape = |keep, axis: i64| -> Vec<Option<i64>> {
        let c: Call = call("ReduceSum", 13, &[Some(x), Some(axes)], &[("keepdims", I(keep))], 1);
        let y = expand(&mut cx, &c).unwrap()[0];
        let read = *cx.program.data_vars.keys().next().unwrap();
        cx.shape(y).iter().map(|d| known::at(*d, &[(read, axis)]).as_const()).collect()
    };
    assert_eq!(shape(1, 1), [Some(2), Some(1), Some(5)]);
    assert_eq!(shape(0, -1), [Some(2), Some(3)]);
    assert_eq!(shape(0, 0), [Some(3), Some(5)]);
}

#[test]
fn arg_max_takes_the_first_or_last_of_equal_ones() {
    let x = value(DType::F32, &[2, 3], &[1.0, 5.0, 5.0, 4.0, f64::NAN, 9.0]);
    let y = |op, last| {
        run1(op, 13, std::slice::from_ref(&x), &[("axis", I(1)), ("keepdims", I(0)), ("select_last_index", I(last))])
            .data
    };
    assert_eq!(y("ArgMax", 0), [1.0, 1.0]);
    assert_eq!(y("ArgMax", 1), [2.0, 1.0]);
    assert_eq!(y("ArgMin", 0), [0.0, 1.0]);
    let low = ints(DType::I8, &[-128.0, -128.0]);
    assert_eq!(run1("ArgMax", 13, &[low], &[]).data, [0.0]);
}

#[test]
fn hardmax_of_old_versions_looks_at_all_trailing_axes() {
    let x = value(DType::F32, &[1, 2, 2], &[1.0, 4.0, 4.0, 2.0]);
    assert_eq!(run1("Hardmax", 11, std::slice::from_ref(&x), &[]).data, [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(run1("Hardmax", 13, &[x], &[]).data, [0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn likelihood_loss_weighs_and_ignores() {
    let x = value(DType::F32, &[3, 2], &[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0]);
    let inputs = [x, ints(DType::I64, &[0.0, 1.0, -9.0]), f(&[1.0, 3.0])];
    let y = |reduction: &str| {
        run1("NegativeLogLikelihoodLoss", 22, &inputs, &[("reduction", str(reduction)), ("ignore_index", I(-9))]).data
    };
    assert_eq!(y("none"), [1.0, 12.0, 0.0]);
    assert_eq!(y("sum"), [13.0]);
    assert_eq!(y("mean"), [3.25]);
}

#[test]
fn normalisations_center_and_scale() {
    // Deviations are 2 and 4; epsilon 0 makes the results exact.
    let x = value(DType::F32, &[1, 2, 1, 2], &[1.0, 5.0, -4.0, 4.0]);
    let (scale, bias) = (f(&[2.0, 3.0]), f(&[0.0, 10.0]));
    let y = run1("InstanceNormalization", 6, &[x.clone(), scale.clone(), bias.clone()], &[("epsilon", Float(0.0))]);
    assert_eq!(y.data, [-2.0, 2.0, 7.0, 13.0]);
    let attrs = [("epsilon", Float(0.0)), ("num_groups", I(2))];
    assert_eq!(run1("GroupNormalization", 21, &[x.clone(), scale.clone(), bias.clone()], &attrs).data, y.data);
    let out = run("LayerNormalization", 17, &[Some(x.clone()), Some(scale), Some(bias)], &[("epsilon", Float(0.0))], 3)
        .unwrap();
    assert_eq!(out[0].data, [-2.0, 13.0, -2.0, 13.0]);
    assert_eq!((out[1].shape.clone(), out[1].data.clone()), (vec![1, 2, 1, 1], vec![3.0, 0.0]));
    assert_eq!(out[2].data, [0.5, 0.25]);
    let var = f(&[4.0, 16.0]);
    let stats = [x, f(&[2.0, 4.0]), f(&[1.0, 1.0]), f(&[3.0, 0.0]), var];
    assert_eq!(run1("BatchNormalization", 15, &stats, &[("epsilon", Float(0.0))]).data, [-1.0, 3.0, -3.0, 5.0]);
}

#[test]
fn quantisation_rounds_to_even_saturates_and_blocks() {
    let x = Some(f(&[0.5, 1.5, -3.0, 1e30, f64::NEG_INFINITY, 300.0]));
    let one = |t, v| Some(value(t, &[], &[v]));
    let y = run("QuantizeLinear", 13, &[x.clone(), one(DType::F32, 1.0), one(DType::I8, 3.0)], &[], 1).unwrap();
    assert_eq!(y[0].data, [3.0, 5.0, 0.0, 127.0, -128.0, 127.0]);
    let y = run("QuantizeLinear", 21, &[x, one(DType::F32, 2.0)], &[("output_dtype", I(4))], 1).unwrap();
    assert_eq!((y[0].dtype, y[0].data.clone()), (DType::U16, vec![0.0, 1.0, 0.0, 65535.0, 0.0, 150.0]));
    let q = value(DType::U8, &[1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let blocks = [q.clone(), value(DType::F32, &[1, 3], &[1.0, 10.0, 100.0])];
    let y = run1("DequantizeLinear", 21, &blocks, &[("axis", I(1)), ("block_size", I(2))]);
    assert_eq!(y.data, [1.0, 2.0, 30.0, 40.0, 500.0]);
    let wrong = [Some(q), Some(f(&[1.0, 2.0]))];
    assert!(matches!(run("DequantizeLinear", 21, &wrong, &[("axis", I(1))], 1), Err(OpError::Invalid(_))));
}

#[test]
fn dynamic_quantisation_covers_zero() {
    let out = run("DynamicQuantizeLinear", 11, &[Some(f(&[51.0, 102.0, 255.0]))], &[], 3).unwrap();
    assert_eq!(
        out.iter().map(|v| v.data.clone()).collect::<Vec<_>>(),
        [vec![51.0, 102.0, 255.0], vec![1.0], vec![0.0]]
    );
}

#[test]
fn dropout_drops_only_in_training() {
    let x = f(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let flag = |v| Some(value(DType::Bool, &[], &[v]));
    let half = Some(value(DType::F32, &[], &[0.5]));
    let out = run("Dropout", 13, &[Some(x.clone()), half.clone(), flag(0.0)], &[], 2).unwrap();
    assert_eq!((out[0].data.clone(), out[1].data.clone()), (x.data.clone(), vec![1.0; 8]));
    let out = run("Dropout", 13, &[Some(x.clone()), half, flag(1.0)], &[("seed", I(1))], 2).unwrap();
    let dropped = out[1].data.iter().filter(|m| **m == 0.0).count();
    assert!((1..8).contains(&dropped), "{dropped} of 8 dropped");
    for (k, (y, m)) in out[0].data.iter().zip(&out[1].data).enumerate() {
        assert_eq!(*y, x.data[k] * 2.0 * m);
    }
}

#[test]
fn random_numbers_fill_their_range_and_differ_by_seed() {
    let draw = |seed| {
        let attrs = [("shape", Ints(vec![512])), ("low", Float(-1.0)), ("high", Float(3.0)), ("seed", Float(seed))];
        run("RandomUniform", 22, &[], &attrs, 1).unwrap().remove(0).data
    };
    let a = draw(1.0);
    let mean = a.iter().sum::<f64>() / 512.0;
    assert!(a.iter().all(|v| (-1.0..3.0).contains(v)) && (mean - 1.0).abs() < 0.2, "mean {mean}");
    assert_eq!(a, draw(1.0));
    assert_ne!(a, draw(2.0));
}
