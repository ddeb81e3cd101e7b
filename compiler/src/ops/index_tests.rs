use super::AttrValue::{Int as I, Str};
use super::testing::*;
use crate::dtype::DType;

fn data(v: &Value) -> Vec<i64> {
    v.data.iter().map(|x| *x as i64).collect()
}

fn matrix(dtype: DType, shape: &[usize], values: &[i64]) -> Value {
    value(dtype, shape, &values.iter().map(|v| *v as f64).collect::<Vec<_>>())
}

#[test]
fn scatters_combine_duplicates_in_order() {
    let x = matrix(DType::I32, &[5], &[1, 2, 3, 4, 5]);
    let (at, new) = (list(&[1, -1, 1]), matrix(DType::I32, &[3], &[10, 20, 7]));
    let scatter = |how: &str| {
        data(&run1("ScatterElements", 18, &[x.clone(), at.clone(), new.clone()], &[("reduction", Str(how.into()))]))
    };
    assert_eq!(scatter("none"), [1, 7, 3, 4, 20]);
    assert_eq!(scatter("add"), [1, 19, 3, 4, 25]);
    assert_eq!(scatter("mul"), [1, 140, 3, 4, 100]);
    assert_eq!(scatter("min"), [1, 2, 3, 4, 5]);
    assert_eq!(scatter("max"), [1, 10, 3, 4, 20]);
}

#[test]
fn a_scatter_out_of_range_fails_when_it_runs() {
    let inputs = [Some(counting(&[3])), Some(list(&[3])), Some(counting(&[1]))];
    let error = run_at_run_time("ScatterElements", 18, &inputs, &[], 1).unwrap_err();
    assert!(error.contains("status 1"), "{error}");
}

#[test]
fn scatter_nd_tells_tuple_length_from_rank() {
    // Tuples of one number that pick rows, in indices with three axes.
    let x = counting(&[3, 2]);
    let at = matrix(DType::I64, &[2, 1, 1], &[2, 0]);
    let new = matrix(DType::F32, &[2, 1, 2], &[10, 11, 20, 21]);
    assert_eq!(data(&run1("ScatterND", 18, &[x, at, new], &[])), [20, 21, 2, 3, 10, 11]);
}

#[test]
fn positions_that_are_not_zero_are_counted() {
    let x = matrix(DType::I8, &[2, 3], &[0, 4, 0, -1, 0, 9]);
    let out = run1("NonZero", 13, &[x], &[]);
    assert_eq!((out.shape.clone(), data(&out)), (vec![2, 3], vec![0, 1, 1, 1, 0, 2]));
    let keep = matrix(DType::Bool, &[2], &[0, 1]);
    let out = run1("Compress", 11, &[counting(&[2, 3]), keep], &[("axis", I(1))]);
    assert_eq!((out.shape.clone(), data(&out)), (vec![2, 1], vec![1, 4]));
}

#[test]
fn unique_slices_with_all_outputs_sorted_or_in_order_of_appearance() {
    let x = [Some(matrix(DType::F32, &[6], &[2, 1, 1, 3, 4, 3]))];
    let all = |attrs: &[(&str, super::AttrValue)]| {
        run("Unique", 11, &x, attrs, 4).unwrap().iter().map(data).collect::<Vec<_>>()
    };
    assert_eq!(all(&[]), [vec![1, 2, 3, 4], vec![1, 0, 3, 4], vec![1, 0, 0, 2, 3, 2], vec![2, 1, 2, 1]]);
    let unsorted = all(&[("sorted", I(0))]);
    assert_eq!(unsorted, [vec![2, 1, 3, 4], vec![0, 1, 3, 4], vec![0, 1, 1, 2, 3, 2], vec![1, 2, 2, 1]]);
    let rows = matrix(DType::I64, &[3, 2], &[1, 0, 0, 5, 1, 0]);
    let out = run("Unique", 11, &[Some(rows)], &[("axis", I(0))], 4).unwrap();
    assert_eq!((data(&out[0]), data(&out[2])), (vec![0, 5, 1, 0], vec![1, 0, 1]));
}

#[test]
fn top_k_keeps_equal_values_in_order_and_takes_nan_for_the_largest() {
    assert!(tops(&[3.0, 9.0], 0, 1)[1].data.is_empty());
    assert_eq!(data(&tops(&[3.0, 9.0, 1.0, 9.0, 4.0, 3.0], 6, 1)[1]), [1, 3, 4, 0, 5, 2]);
    assert_eq!(data(&tops(&[3.0, 9.0, 1.0, 9.0, 4.0, 3.0], 4, 0)[1]), [2, 0, 5, 4]);
    let nan = tops(&[3.0, f64::NAN, 9.0], 2, 1);
    assert_eq!(data(&nan[1]), [1, 2]);
    assert!(nan[0].data[0].is_nan());
}

fn tops(x: &[f64], k: i64, largest: i64) -> Vec<Value> {
    let x = value(DType::F32, &[x.len()], x);
    run_at_run_time("TopK", 11, &[Some(x), Some(list(&[k]))], &[("largest", I(largest))], 2).unwrap()
}

#[test]
fn top_k_beyond_the_axis_is_an_error() {
    let inputs = [Some(counting(&[2, 3])), Some(list(&[4]))];
    assert!(run_at_run_time("TopK", 11, &inputs, &[], 2).is_err());
    let along = run("TopK", 11, &[Some(counting(&[3, 2])), Some(list(&[2]))], &[("axis", I(0))], 2).unwrap();
    assert_eq!((data(&along[0]), data(&along[1])), (vec![4, 5, 2, 3], vec![2, 2, 1, 1]));
}

#[test]
fn overlapping_boxes_are_dropped_and_flipped_ones_understood() {
    let boxes = matrix(DType::F32, &[1, 4, 4], &[0, 0, 10, 10, 10, 11, 0, 1, 0, 20, 10, 30, 0, 0, 0, 0]);
    let scores = value(DType::F32, &[1, 1, 4], &[0.5, 0.9, 0.7, 0.8]);
    let scalar = |v: f64| Some(value(DType::F32, &[], &[v]));
    let most = |n: i64| Some(list(&[n]));
    let nms = |n: i64, iou: f64, least: f64| {
        let inputs = [Some(boxes.clone()), Some(scores.clone()), most(n), scalar(iou), scalar(least)];
        data(&run("NonMaxSuppression", 11, &inputs, &[], 1).unwrap()[0])
    };
    assert_eq!(nms(9, 0.5, 0.0), [0, 0, 1, 0, 0, 3, 0, 0, 2]);
    assert_eq!(nms(9, 0.9, 0.75), [0, 0, 1, 0, 0, 3]);
    assert_eq!(nms(1, 0.5, 0.0), [0, 0, 1]);
    assert!(nms(0, 0.5, 0.0).is_empty());
}

#[test]
fn one_hot_rows_and_reversed_sequences() {
    let hot = run1("OneHot", 11, &[list(&[1, -1, 5]), list(&[3]), list(&[2, 7])], &[]);
    assert_eq!((hot.shape.clone(), data(&hot)), (vec![3, 3], vec![2, 7, 2, 2, 2, 7, 2, 2, 2]));
    let lens = list(&[2, 3]);
    let attrs = [("time_axis", I(1)), ("batch_axis", I(0))];
    assert_eq!(data(&run1("ReverseSequence", 10, &[counting(&[2, 3]), lens], &attrs)), [1, 0, 2, 5, 4, 3]);
    let low = run1("Trilu", 14, &[counting(&[3, 3]), value(DType::I64, &[], &[-1.0])], &[("upper", I(0))]);
    assert_eq!(data(&low), [0, 0, 0, 3, 0, 0, 6, 7, 0]);
}

#[test]
fn an_index_outside_of_its_axis_ends_the_run() {
    let x = counting(&[3, 2]);
    let wrong = |op: &str, indices: Value| {
        let e = run_at_run_time(op, 13, &[Some(x.clone()), Some(indices)], &[], 1).unwrap_err();
        assert!(e.contains("an index is outside of its axis"), "{op}: {e}");
    };
    for k in [3, -4, 1 << 40] {
        wrong("Gather", list(&[0, k]));
        wrong("GatherElements", value(DType::I64, &[1, 2], &[0.0, k as f64]));
        wrong("GatherND", value(DType::I64, &[2, 1], &[k as f64, 0.0]));
    }
    wrong("GatherND", value(DType::I64, &[1, 2], &[2.0, 2.0]));
    let last = run_at_run_time("Gather", 13, &[Some(x), Some(list(&[-3, 2]))], &[], 1).unwrap();
    assert_eq!(last[0].data, [0.0, 1.0, 4.0, 5.0]);
}

#[test]
fn diagonals_far_outside_of_the_matrix_leave_all_or_nothing() {
    let (x, all, nothing) = (counting(&[2, 3]), vec![0, 1, 2, 3, 4, 5], vec![0; 6]);
    for (k, upper, expected) in
        [(i64::MAX, 1, &nothing), (i64::MIN, 1, &all), (i64::MAX, 0, &all), (i64::MIN, 0, &nothing), (3, 1, &nothing)]
    {
        let inputs = [Some(x.clone()), Some(value(DType::I64, &[], &[k as f64]))];
        for out in [
            run("Trilu", 14, &inputs, &[("upper", I(upper))], 1).unwrap(),
            run_at_run_time("Trilu", 14, &inputs, &[("upper", I(upper))], 1).unwrap(),
        ] {
            assert_eq!(data(&out[0]), *expected, "k {k}, upper {upper}");
        }
    }
    for k in [i64::MAX, i64::MIN] {
        assert_eq!(data(&run1("EyeLike", 9, std::slice::from_ref(&x), &[("k", I(k))])), nothing);
    }
}
