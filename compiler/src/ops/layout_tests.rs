use super::AttrValue::{Int as I, Ints, Str};
use super::expand;
use super::testing::*;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Def, OpError};

fn data(v: &Value) -> Vec<i64> {
    v.data.iter().map(|x| *x as i64).collect()
}

#[test]
fn slices_go_backwards_and_stop_at_the_ends() {
    let x = counting(&[2, 5]);
    let out = run1("Slice", 13, &[x.clone(), list(&[-1]), list(&[i64::MIN]), list(&[-1]), list(&[-2])], &[]);
    assert_eq!((out.shape.clone(), data(&out)), (vec![2, 3], vec![4, 2, 0, 9, 7, 5]));
    let out = run1("Slice", 13, &[x.clone(), list(&[1, 100]), list(&[i64::MAX, 200]), list(&[0, 1])], &[]);
    assert_eq!(out.shape, [1, 0]);
    let old = run1("Slice", 1, &[x], &[("starts", Ints(vec![-3])), ("ends", Ints(vec![-1])), ("axes", Ints(vec![1]))]);
    assert_eq!(data(&old), [2, 3, 7, 8]);
}

#[test]
fn slices_of_symbolic_axes_keep_simple_shapes() {
    let mut cx = Cx::new();
    let n = Int::symbol("n", Some(1), None);
    let x = cx.input("x", DType::F32, vec![n, Int::new(4)]);
    let args: Vec<_> = [[1], [i64::MAX], [0]].iter().map(|v| Some(cx.constant_i64(&[1], v))).collect();
    let inputs = [&[Some(x)], args.as_slice()].concat();
    let out = expand(&mut cx, &call("Slice", 13, &inputs, &[], 1)).unwrap();
    assert_eq!(cx.shape(out[0]), [n - 1, Int::new(4)]);
}

#[test]
fn split_covers_every_opset() {
    let x = counting(&[7]);
    let shapes = |out: Vec<Value>| out.iter().map(|v| v.shape[0]).collect::<Vec<_>>();
    let uneven = run("Split", 18, &[Some(x.clone())], &[("num_outputs", I(3))], 3).unwrap();
    assert_eq!(data(&uneven[2]), [6]);
    assert_eq!(shapes(uneven), [3, 3, 1]);
    assert_eq!(shapes(run("Split", 13, &[Some(x.clone()), Some(list(&[2, 5]))], &[], 2).unwrap()), [2, 5]);
    assert_eq!(shapes(run("Split", 2, &[Some(x.clone())], &[("split", Ints(vec![1, 6]))], 2).unwrap()), [1, 6]);
    assert!(matches!(run("Split", 13, &[Some(x)], &[], 2), Err(OpError::Invalid(_))));
}

#[test]
fn reshape_infers_copies_and_cancels_symbols() {
    let x = counting(&[2, 3, 4]);
    let out = run1("Reshape", 14, &[x.clone(), list(&[0, -1, 2])], &[]);
    assert_eq!(out.shape, [2, 6, 2]);
    assert!(run("Reshape", 14, &[Some(x.clone()), Some(list(&[5, -1]))], &[], 1).is_err());
    let empty = value(DType::F32, &[0, 3], &[]);
    assert_eq!(run1("Reshape", 14, &[empty, list(&[3, 0])], &[("allowzero", I(1))]).shape, [3, 0]);

    let mut cx = Cx::new();
    let (b, s) = (Int::symbol("b", Some(0), None), Int::symbol("s", Some(1), None));
    let x = cx.input("x", DType::F32, vec![b, s, Int::new(12)]);
    let shape = cx.constant_i64(&[4], &[0, -1, 3, 4]);
    let out = expand(&mut cx, &call("Reshape", 14, &[Some(x), Some(shape)], &[], 1)).unwrap();
    assert_eq!(cx.shape(out[0]), [b, s, Int::new(3), Int::new(4)]);
    assert!(matches!(cx.program.tensor(out[0]).def, Def::View(_)));
}

#[test]
fn axes_given_at_run_time_make_shapes_by_formula() {
    let mut cx = Cx::new();
    let x = cx.input("x", DType::F32, vec![Int::new(1), Int::new(3), Int::new(1)]);
    let axes = cx.input("axes", DType::I64, vec![Int::new(1)]);
    let out = expand(&mut cx, &call("Squeeze", 13, &[Some(x), Some(axes)], &[], 1)).unwrap();
    let dims = cx.shape(out[0]);
    assert_eq!(dims.len(), 2);
    let axis = *cx.program.data_vars.keys().next().unwrap();
    let at =
        |v: i64| dims.iter().map(|d| crate::te::known::at(*d, &[(axis, v)]).as_const().unwrap()).collect::<Vec<_>>();
    assert_eq!((at(0), at(2), at(-1)), (vec![3, 1], vec![1, 3], vec![1, 3]));
    let out = expand(&mut cx, &call("Unsqueeze", 13, &[Some(x), Some(axes)], &[], 1)).unwrap();
    let dims = cx.shape(out[0]);
    let at =
        |v: i64| dims.iter().map(|d| crate::te::known::at(*d, &[(axis, v)]).as_const().unwrap()).collect::<Vec<_>>();
    assert_eq!((at(1), at(-1)), (vec![1, 1, 3, 1], vec![1, 3, 1, 1]));
}

#[test]
fn pads_take_elements_from_where_the_mode_says() {
    let x = value(DType::I32, &[4], &[1.0, 2.0, 3.0, 4.0]);
    let pad = |mode: &str, p: &[i64]| data(&run1("Pad", 19, &[x.clone(), list(p)], &[("mode", Str(mode.into()))]));
    assert_eq!(pad("constant", &[1, 2]), [0, 1, 2, 3, 4, 0, 0]);
    assert_eq!(pad("constant", &[-1, 1]), [2, 3, 4, 0]);
    assert_eq!(pad("reflect", &[2, 3]), [3, 2, 1, 2, 3, 4, 3, 2, 1]);
    assert_eq!(pad("reflect", &[0, 8]), [1, 2, 3, 4, 3, 2, 1, 2, 3, 4, 3, 2]);
    assert_eq!(pad("edge", &[1, 2]), [1, 1, 2, 3, 4, 4, 4]);
    assert_eq!(pad("wrap", &[1, 5]), [4, 1, 2, 3, 4, 1, 2, 3, 4, 1]);
    let some = [Some(counting(&[1, 2])), Some(list(&[1, 0])), Some(value(DType::F32, &[], &[9.0])), Some(list(&[-1]))];
    assert_eq!(data(&run("Pad", 18, &some, &[], 1).unwrap()[0]), [9, 0, 1]);
}

#[test]
fn gathers_count_negative_indices_from_the_end_and_refuse_wrong_ones() {
    let x = counting(&[3, 2]);
    let ids = value(DType::I32, &[2, 1], &[-1.0, 0.0]);
    let out = run1("Gather", 13, &[x.clone(), ids.clone()], &[]);
    assert_eq!((out.shape.clone(), data(&out)), (vec![2, 1, 2], vec![4, 5, 0, 1]));
    let out = run1("Gather", 13, &[x.clone(), value(DType::I64, &[], &[-1.0])], &[("axis", I(1))]);
    assert_eq!((out.shape.clone(), data(&out)), (vec![3], vec![1, 3, 5]));
    assert!(run("Gather", 13, &[Some(x.clone()), Some(list(&[3]))], &[], 1).is_err());
    let out = run1("GatherElements", 13, &[x.clone(), ids], &[]);
    assert_eq!(data(&out), [4, 0]);
    let pairs = value(DType::I64, &[2, 2], &[0.0, 1.0, 2.0, -2.0]);
    assert_eq!(data(&run1("GatherND", 13, &[x.clone(), pairs.clone()], &[])), [1, 4]);
    let three = value(DType::I64, &[3, 1], &[0.0, 1.0, 0.0]);
    assert_eq!(data(&run1("GatherND", 13, &[x.clone(), three], &[("batch_dims", I(1))])), [0, 3, 4]);
    assert!(run("GatherND", 13, &[Some(x), Some(pairs)], &[("batch_dims", I(1))], 1).is_err());
}

#[test]
fn ranges_of_floats_and_ints() {
    let scalar = |t, v| value(t, &[], &[v]);
    let range = |t, a, b, c| run1("Range", 11, &[scalar(t, a), scalar(t, b), scalar(t, c)], &[]).data;
    assert_eq!(range(DType::I32, 10.0, 4.0, -2.0), [10.0, 8.0, 6.0]);
    assert_eq!(range(DType::F32, 0.5, 2.0, 0.5), [0.5, 1.0, 1.5]);
    assert_eq!(range(DType::F32, 1.0, 5.0, 2.0), [1.0, 3.0]);
    assert!(range(DType::I64, 5.0, 1.0, 2.0).is_empty());
}

#[test]
fn blocks_move_between_depth_and_space() {
    let x = counting(&[1, 8, 1, 1]);
    let out = run1("DepthToSpace", 13, std::slice::from_ref(&x), &[("blocksize", I(2))]);
    assert_eq!(data(&out), [0, 2, 4, 6, 1, 3, 5, 7]);
    let back = run1("SpaceToDepth", 13, &[out], &[("blocksize", I(2))]);
    assert_eq!(back, x);
    let out = run1("DepthToSpace", 13, &[x], &[("blocksize", I(2)), ("mode", Str("CRD".into()))]);
    assert_eq!(data(&out), [0, 1, 2, 3, 4, 5, 6, 7]);
    let x = counting(&[3, 4]);
    let out = run1("CenterCropPad", 18, &[x, list(&[2, 5])], &[]);
    assert_eq!(data(&out), [0, 1, 2, 3, 0, 4, 5, 6, 7, 0]);
}

#[test]
fn tiles_and_concatenations() {
    let out = run1("Tile", 13, &[counting(&[2, 1]), list(&[2, 2])], &[]);
    assert_eq!(data(&out), [0, 0, 1, 1, 0, 0, 1, 1]);
    let out = run1("Concat", 13, &[counting(&[1, 2]), counting(&[1, 0]), counting(&[1, 3])], &[("axis", I(-1))]);
    assert_eq!(data(&out), [0, 1, 0, 1, 2]);
    let out = run1("Transpose", 13, &[counting(&[2, 3])], &[]);
    assert_eq!(data(&out), [0, 3, 1, 4, 2, 5]);
}

#[test]
fn squeezing_without_axes_keeps_the_rank_or_fails_when_it_runs() {
    use crate::te::eval::{self, Array};
    let squeeze = |n: usize| {
        let mut cx = Cx::new();
        let d = Int::symbol("n", Some(0), None);
        let x = cx.input("x", DType::F32, vec![d, Int::new(1)]);
        cx.program.dim_vars.insert(d.as_var().unwrap(), (0, 0));
        let out = expand(&mut cx, &call("Squeeze", 13, &[Some(x)], &[], 1)).unwrap();
        let array = Array { dtype: DType::F32, shape: vec![n, 1], bits: vec![0; n] };
        eval::run(&cx.program, &[array], &out).map(|v| v[0].shape.clone())
    };
    assert_eq!(squeeze(3), Ok(vec![3]));
    assert!(squeeze(1).is_err());
}

#[test]
fn results_of_more_dimensions_than_are_supported_are_refused() {
    let shaped = |rank: usize| {
        let mut cx = Cx::new();
        let sizes = cx.input("sizes", DType::I64, vec![Int::from(rank)]);
        expand(&mut cx, &call("ConstantOfShape", 20, &[Some(sizes)], &[], 1))
    };
    assert!(shaped(32).is_ok());
    let refused = shaped(1000).unwrap_err();
    assert!(matches!(&refused, OpError::Unsupported(what) if what.contains("rank 1000")), "{refused:?}");
}

#[test]
fn a_negative_size_from_data_ends_the_run() {
    let one = |op: &str, version: i64, inputs: &[Value]| {
        let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
        run_at_run_time(op, version, &inputs, &[], 1)
    };
    assert_eq!(one("ConstantOfShape", 20, &[list(&[2, 0])]).map(|v| v[0].shape.clone()), Ok(vec![2, 0]));
    assert!(one("ConstantOfShape", 20, &[list(&[2, -1])]).is_err());
    assert!(one("Expand", 13, &[counting(&[1, 3]), list(&[-2, 3])]).is_err());
    assert!(one("Tile", 13, &[counting(&[2]), list(&[-1])]).is_err());
    assert!(one("Reshape", 14, &[counting(&[2, 3]), list(&[-2, -3])]).is_err());
    assert_eq!(one("Reshape", 14, &[counting(&[2, 3]), list(&[-1, 2])]).map(|v| v[0].shape.clone()), Ok(vec![3, 2]));
}
