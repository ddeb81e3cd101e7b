//! Small graphs through all stages, run by the runtime.

mod net;

use graphmend_compiler::error::Error;
use graphmend_compiler::expand::Dim;
use graphmend_compiler::graph::Attr;
use graphmend_runtime::TensorRef;
use net::{Net, run};

#[test]
fn a_broadcast_sum_takes_any_batch() {
    let mut n = Net::new();
    let x = n.input("x", &["batch", "3"]);
    let c = n.constant(&[3], &[1.0, 2.0, 3.0]);
    let y = n.node("Add", &[x, c], &[]);
    n.output(y);
    let model = n.pack();
    assert_eq!(run(&model, &[(&[1, 3], &[0.0; 3])]), [(vec![1, 3], vec![1.0, 2.0, 3.0])]);
    assert_eq!(
        run(&model, &[(&[2, 3], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0])]),
        [(vec![2, 3], vec![1.0, 2.0, 3.0, 2.0, 3.0, 4.0])]
    );
}

#[test]
fn a_softmax_along_either_axis_sums_to_one() {
    for axis in [0, 1] {
        let mut n = Net::new();
        let x = n.input("x", &["5", "13"]);
        let y = n.node("Softmax", &[x], &[("axis", Attr::Int(axis))]);
        n.output(y);
        let model = n.pack();
        let data: Vec<f32> = (0..65).map(|i| (i * 37 % 11) as f32 / 3.0).collect();
        let out = run(&model, &[(&[5, 13], &data)]);
        let at = |i: usize, j: usize| out[0].1[i * 13 + j];
        let (n_outer, n_inner) = if axis == 1 { (5, 13) } else { (13, 5) };
        for i in 0..n_outer {
            let value = |k: usize| if axis == 1 { data[i * 13 + k] } else { data[k * 13 + i] };
            let total: f32 = (0..n_inner).map(|k| value(k).exp()).sum();
            for k in 0..n_inner {
                let got = if axis == 1 { at(i, k) } else { at(k, i) };
                assert!((got - value(k).exp() / total).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn padding_and_transposition_move_elements() {
    let mut n = Net::new();
    let x = n.input("x", &["2", "3"]);
    let pads = n.ints(&[1, 0, 0, 2]);
    let p = n.node("Pad", &[x, pads], &[]);
    let t = n.node("Transpose", &[p], &[("perm", Attr::Ints(vec![1, 0]))]);
    n.output(p);
    n.output(t);
    let model = n.pack();
    let out = run(&model, &[(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    assert_eq!(out[0].1, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
    assert_eq!(out[1].0, [5, 3]);
    assert_eq!(out[1].1, [0.0, 1.0, 4.0, 0.0, 2.0, 5.0, 0.0, 3.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn sums_that_are_joined_keep_their_places() {
    // Relu(x W1) beside Relu(x W2): the sums are smaller than the tensor that they end in.
    let mut n = Net::new();
    let x = n.input("x", &["2", "3"]);
    let w1 = n.constant(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    let w2 = n.constant(&[3, 2], &[0.0, 0.0, 0.0, 0.0, 1.0, -1.0]);
    let (a, b) = (n.node("MatMul", &[x, w1], &[]), n.node("MatMul", &[x, w2], &[]));
    let (a, b) = (n.node("Relu", &[a], &[]), n.node("Relu", &[b], &[]));
    let y = n.node("Concat", &[a, b], &[("axis", Attr::Int(1))]);
    n.output(y);
    let out = run(&n.pack(), &[(&[2, 3], &[1.0, 2.0, 3.0, -4.0, 5.0, -6.0])]);
    assert_eq!(out[0].1, [1.0, 2.0, 3.0, 0.0, 0.0, 5.0, 0.0, 6.0]);
}

#[test]
fn a_branch_on_data_takes_either_side_and_either_shape() {
    let mut n = Net::new();
    let x = n.input("x", &["4"]);
    let zero = n.constant(&[], &[0.0]);
    let axes = n.ints(&[0]);
    let sum = n.node("ReduceSum", &[x, axes], &[("keepdims", Attr::Int(0))]);
    let cond = n.node("Greater", &[sum, zero], &[]);
    let (start, end) = (n.ints(&[1]), n.ints(&[3]));
    let y = n.choice(cond, ("Slice", vec![x, start, end]), ("Neg", vec![x]));
    let z = n.node("Abs", &[y], &[]);
    n.output(y);
    n.output(z);
    let model = n.pack();
    let yes = run(&model, &[(&[4], &[1.0, 2.0, -1.0, 4.0])]);
    assert_eq!(yes, [(vec![2], vec![2.0, -1.0]), (vec![2], vec![2.0, 1.0])]);
    let no = run(&model, &[(&[4], &[1.0, 2.0, -1.0, -4.0])]);
    assert_eq!(no, [(vec![4], vec![-1.0, -2.0, 1.0, 4.0]), (vec![4], vec![1.0, 2.0, 1.0, 4.0])]);
    assert_eq!(run(&model, &[(&[4], &[1.0, 2.0, -1.0, 4.0])]), yes);
}

#[test]
fn a_guard_on_shapes_becomes_a_check() {
    // squeeze(x, 1) if that dimension is 1, else x; then a product that takes rank 2 alone.
    let mut n = Net::new();
    let x = n.input("x", &["2", "mid", "3"]);
    let shape = n.node("Shape", &[x], &[]);
    let one = n.ints(&[1]);
    let mid = n.node("Gather", &[shape, one], &[("axis", Attr::Int(0))]);
    let cond = n.node("Equal", &[mid, one], &[]);
    let y = n.choice(cond, ("Squeeze", vec![x, one]), ("Identity", vec![x]));
    let w = n.constant(&[3, 1], &[1.0, 10.0, 100.0]);
    let z = n.node("Gemm", &[y, w], &[]);
    n.output(z);
    let model = n.pack();
    let out = run(&model, &[(&[2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    assert_eq!(out, [(vec![2, 1], vec![321.0, 654.0])]);
    let mut s = model.session().expect("session");
    let error = s.run(&[TensorRef::new(&[0f32; 12], &[2, 2, 3])]).expect_err("the guard");
    assert!(model.explain(error).contains("takes no input of this shape"), "{}", model.explain(error));
}

/// `Relu` of an input with these dimensions.
fn relu(dims: &[&str]) -> Net {
    let mut n = Net::new();
    let x = n.input("x", dims);
    let y = n.node("Relu", &[x], &[]);
    n.output(y);
    n
}

#[test]
fn sizes_are_given_only_to_dimensions_that_inputs_have() {
    let message = |dims: &[&str], given: &[(&str, Dim)]| relu(dims).try_pack(given).unwrap_err().to_string();
    assert!(relu(&["batch", "?"]).try_pack(&[("batch", Dim::Fixed(2)), ("x.1", Dim::Range(1, 9))]).is_ok());
    let text = message(&["batch", "?"], &[("bacth", Dim::Fixed(2))]);
    assert_eq!(text, "no input has a dimension 'bacth', but batch, x.1");
    let text = message(&["3"], &[("x.0", Dim::Fixed(3))]);
    assert_eq!(text, "no input has a dimension 'x.0': the sizes of all inputs are fixed");
    for dim in [Dim::Fixed(0), Dim::Fixed(u64::MAX), Dim::Range(1, 1 << 63), Dim::Range(4, 3)] {
        let text = message(&["batch"], &[("batch", dim)]);
        assert_eq!(text, "dimension 'batch': sizes are from 1 to 9223372036854775807", "{dim:?}");
    }
}

#[test]
fn tensors_too_large_to_be_addressed_are_refused() {
    let error = relu(&["4611686018427387904"]).try_pack(&[]).unwrap_err();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert!(error.to_string().contains("more memory than can be addressed"), "{error}");
}

#[test]
fn the_summary_says_whether_the_arena_depends_on_the_inputs() {
    assert!(relu(&["batch", "4"]).try_pack(&[]).unwrap().summary.arena_grows);
    assert!(!relu(&["batch", "4"]).try_pack(&[("batch", Dim::Fixed(2))]).unwrap().summary.arena_grows);
}

#[test]
fn an_open_dimension_may_be_empty() {
    let mut n = Net::new();
    let x = n.input("x", &["batch", "3"]);
    let (w, axes) = (n.constant(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]), n.ints(&[0]));
    let y = n.node("MatMul", &[x, w], &[]);
    let y = n.node("Relu", &[y], &[]);
    let sum = n.node("ReduceSum", &[y, axes], &[("keepdims", Attr::Int(0))]);
    n.output(y);
    n.output(sum);
    let model = n.pack();
    assert_eq!(run(&model, &[(&[0, 3], &[])]), [(vec![0, 2], vec![]), (vec![2], vec![0.0, 0.0])]);
    let one = run(&model, &[(&[1, 3], &[1.0, 2.0, 3.0])]);
    assert_eq!(one, [(vec![1, 2], vec![4.0, 5.0]), (vec![2], vec![4.0, 5.0])]);
}

#[test]
fn branches_of_different_ranks_take_what_follows_along() {
    let mut n = Net::new();
    let (x, limit) = (n.input("x", &["1", "3"]), n.input("limit", &[]));
    let axes = n.ints(&[0, 1]);
    let sum = n.node("ReduceSum", &[x, axes], &[("keepdims", Attr::Int(0))]);
    let cond = n.node("Greater", &[sum, limit], &[]);
    let row = n.ints(&[0]);
    let y = n.choice(cond, ("Squeeze", vec![x, row]), ("Neg", vec![x]));
    let w = n.constant(&[3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let z = n.node("MatMul", &[y, w], &[]);
    let shape = n.ints(&[2]);
    let z = n.node("Reshape", &[z, shape], &[]);
    let twice = n.node("Add", &[z, z], &[]);
    n.output(twice);
    n.output(sum);
    n.output(z);
    let model = n.pack();
    let of = |limit: f32| run(&model, &[(&[1, 3], &[1.0, 2.0, 3.0]), (&[], &[limit])]);
    assert_eq!(of(0.0), [(vec![2], vec![8.0, 10.0]), (vec![], vec![6.0]), (vec![2], vec![4.0, 5.0])]);
    assert_eq!(of(9.0), [(vec![2], vec![-8.0, -10.0]), (vec![], vec![6.0]), (vec![2], vec![-4.0, -5.0])]);
}

#[test]
fn a_tail_holds_what_a_decided_branch_leaves() {
    // The outer choice is decided while packing; within it lies one of two ranks, of which the outer region reads more.
    let mut n = Net::new();
    let (x, limit) = (n.input("x", &["1"]), n.input("limit", &[]));
    let always = n.truth(true);
    let inner = |n: &mut Net| {
        let first = n.node("Greater", &[x, limit], &[]);
        let y = n.choice(first, ("Identity", vec![limit]), ("Neg", vec![x]));
        let z = n.node("Add", &[y, x], &[]);
        vec![y, z]
    };
    let then = n.region(0, |n, _| inner(n));
    let other = n.region(0, |n, _| vec![n.node("Neg", &[x], &[]), n.node("Abs", &[x], &[])]);
    let attrs = [("then_branch", then), ("else_branch", other)];
    let out = n.node_with("If", &[Some(always)], &attrs, 2);
    let both = n.node("Mul", &[out[0], out[1]], &[]);
    let both = n.node("Mul", &[both, x], &[]);
    n.output(both);
    n.output(out[1]);
    let model = n.pack();
    let of = |limit: f32| run(&model, &[(&[1], &[3.0]), (&[], &[limit])]);
    assert_eq!(of(2.0), [(vec![1], vec![30.0]), (vec![1], vec![5.0])]);
    assert_eq!(of(4.0), [(vec![1], vec![0.0]), (vec![1], vec![0.0])]);
}

#[test]
fn tensors_beyond_all_memory_are_refused() {
    let mut n = Net::new();
    let x = n.input("x", &["n", "64"]);
    let y = n.node("Relu", &[x], &[]);
    n.output(y);
    let error = n.try_pack(&[("n", Dim::Fixed((1 << 55) + 1))]).expect_err("more than there is").to_string();
    assert!(error.contains("takes more memory than can be addressed"), "{error}");
}
