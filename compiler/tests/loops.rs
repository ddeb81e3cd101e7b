//! Native loops: what a loop carries, gives and leaves behind. Every model is packed with its loops kept and with them
//! written out as far as the usual budget goes; both give the same.

mod net;

use graphmend_compiler::dtype::DType;
use graphmend_compiler::graph::{Attr, ValueId, ValueType};
use graphmend_runtime::TensorRef;
use net::{Net, run};

type Arrays = Vec<(Vec<usize>, Vec<f32>)>;

/// Runs a model on each set of inputs, then on the first again, which must give the same as before.
fn both(build: impl Fn(&mut Net), sets: &[&[(&[usize], &[f32])]]) -> Vec<Arrays> {
    let mut all = vec![];
    for nodes in [0, graphmend_compiler::mend::UNROLL] {
        let mut n = Net::new();
        build(&mut n);
        let model = n.pack_unrolling(nodes);
        let mut results: Vec<Arrays> = sets.iter().map(|set| run(&model, set)).collect();
        let mut session = model.session().expect("session");
        for set in sets.iter().chain(&sets[..1]) {
            let refs: Vec<TensorRef<'_>> = set.iter().map(|(shape, data)| TensorRef::new(data, shape)).collect();
            session.run(&refs).expect("runs in a session that has run before");
        }
        for (k, (shape, data)) in results[0].iter().enumerate() {
            let again = session.output(k).expect("output");
            let size: Vec<usize> = again.shape.iter().map(|d| *d as usize).collect();
            assert_eq!((&size, again.as_f32().expect("f32")), (shape, data.as_slice()), "the first set again");
        }
        all.push(std::mem::take(&mut results));
    }
    assert_eq!(all[0], all[1], "kept and written out");
    all.swap_remove(0)
}

/// A loop over `trips` with a condition; `body` gets the trip, and what is carried.
fn looped(
    n: &mut Net,
    trips: Option<ValueId>,
    cond: Option<ValueId>,
    carried: &[ValueId],
    outputs: usize,
    body: impl FnOnce(&mut Net, &[ValueId]) -> Vec<ValueId>,
) -> Vec<ValueId> {
    let region = n.region(2 + carried.len(), body);
    let inputs: Vec<Option<ValueId>> = [trips, cond].into_iter().chain(carried.iter().copied().map(Some)).collect();
    n.node_with("Loop", &inputs, &[("body", region)], outputs)
}

/// The first dimension of a tensor, a scalar.
fn length(n: &mut Net, x: ValueId) -> ValueId {
    let (shape, zero) = (n.node("Shape", &[x], &[]), n.int(0));
    n.node("Gather", &[shape, zero], &[])
}

#[test]
fn values_that_change_places_are_both_there() {
    let build = |n: &mut Net| {
        let (a, b) = (n.input("a", &["2"]), n.input("b", &["2"]));
        let trips = n.int(3);
        let out = looped(n, Some(trips), None, &[a, b], 2, |n, v| vec![n.truth(true), v[3], v[2]]);
        out.into_iter().for_each(|v| n.output(v));
    };
    let out = both(build, &[&[(&[2], &[1.0, 2.0]), (&[2], &[3.0, 4.0])]]);
    assert_eq!(out[0], [(vec![2], vec![3.0, 4.0]), (vec![2], vec![1.0, 2.0])]);
}

#[test]
fn no_trip_leaves_what_there_was_and_an_empty_scan_output() {
    let build = |n: &mut Net| {
        let (x, limit) = (n.input("x", &["2"]), n.input("limit", &[]));
        let start = n.node("Greater", &[limit, x], &[]);
        let (first, axis) = (n.int(0), Attr::Int(0));
        let start = n.node("Gather", &[start, first], &[("axis", axis)]);
        let most = n.int(4);
        let out = looped(n, Some(most), Some(start), &[x], 2, |n, v| {
            let next = n.node("Add", &[v[2], v[2]], &[]);
            let first = n.int(0);
            let one = n.node("Gather", &[next, first], &[]);
            vec![n.node("Greater", &[limit, one], &[]), next, v[2]]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let x: (&[usize], &[f32]) = (&[2], &[1.0, 10.0]);
    let out = both(build, &[&[x, (&[], &[5.0])], &[x, (&[], &[0.5])], &[x, (&[], &[1e9])]]);
    assert_eq!(out[0], [(vec![2], vec![8.0, 80.0]), (vec![3, 2], vec![1.0, 10.0, 2.0, 20.0, 4.0, 40.0])]);
    assert_eq!(out[1], [(vec![2], vec![1.0, 10.0]), (vec![0, 2], vec![])]);
    assert_eq!(out[2][0], (vec![2], vec![16.0, 160.0]), "the greatest number of trips");
}

#[test]
fn a_tensor_grows_with_each_row_of_another() {
    let build = |n: &mut Net| {
        let (x, start) = (n.input("x", &["rows", "2"]), n.input("start", &["1", "2"]));
        let rows = length(n, x);
        let out = looped(n, Some(rows), None, &[start], 2, |n, v| {
            let zero = n.ints(&[0]);
            let row = n.node("Gather", &[x, v[0]], &[]);
            let row = n.node("Unsqueeze", &[row, zero], &[]);
            let grown = n.node("Concat", &[v[2], row], &[("axis", Attr::Int(0))]);
            let sum = n.node("ReduceSum", &[grown, zero], &[("keepdims", Attr::Int(0))]);
            vec![n.truth(true), grown, sum]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let start: (&[usize], &[f32]) = (&[1, 2], &[100.0, 200.0]);
    let out = both(build, &[&[(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), start], &[(&[1, 2], &[5.0, 6.0]), start]]);
    assert_eq!(out[0][0], (vec![3, 2], vec![100.0, 200.0, 1.0, 2.0, 3.0, 4.0]));
    assert_eq!(out[0][1], (vec![2, 2], vec![101.0, 202.0, 104.0, 206.0]));
    assert_eq!(out[1][0], (vec![2, 2], vec![100.0, 200.0, 5.0, 6.0]));
}

#[test]
fn what_grows_beside_what_shrinks_keeps_its_elements() {
    let build = |n: &mut Net| {
        let x = n.input("x", &["n"]);
        let (none, len) = (n.constant(&[0], &[]), length(n, x));
        let out = looped(n, Some(len), None, &[x, none], 2, |n, v| {
            let (zero, one, end) = (n.ints(&[0]), n.ints(&[1]), n.ints(&[i64::MAX]));
            let head = n.node("Slice", &[v[2], zero, one], &[]);
            let tail = n.node("Slice", &[v[2], one, end], &[]);
            let twice = n.node("Concat", &[head, v[3], head], &[("axis", Attr::Int(0))]);
            vec![n.truth(true), tail, twice]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let out = both(build, &[&[(&[3], &[1.0, 2.0, 3.0])], &[(&[1], &[7.0])]]);
    assert_eq!(out[0], [(vec![0], vec![]), (vec![6], vec![3.0, 2.0, 1.0, 1.0, 2.0, 3.0])]);
    assert_eq!(out[1], [(vec![0], vec![]), (vec![2], vec![7.0, 7.0])]);
}

#[test]
fn loops_within_loops_start_anew_in_each_trip() {
    // Row by row: the sum of the squares of the row's first elements, as many as the number of the row.
    let build = |n: &mut Net| {
        let x = n.input("x", &["rows", "3"]);
        let (rows, zero) = (length(n, x), n.constant(&[], &[0.0]));
        let out = looped(n, Some(rows), None, &[zero], 2, |n, outer| {
            let row = n.node("Gather", &[x, outer[0]], &[]);
            let inner = looped(n, Some(outer[0]), None, &[zero], 1, |n, v| {
                let one = n.node("Gather", &[row, v[0]], &[]);
                let square = n.node("Mul", &[one, one], &[]);
                vec![n.truth(true), n.node("Add", &[v[2], square], &[])]
            });
            vec![n.truth(true), n.node("Add", &[outer[2], inner[0]], &[]), inner[0]]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let x: &[f32] = &[9.0, 9.0, 9.0, 2.0, 9.0, 9.0, 3.0, 4.0, 9.0];
    let out = both(build, &[&[(&[3, 3], x)], &[(&[1, 3], &x[..3])]]);
    assert_eq!(out[0], [(vec![], vec![29.0]), (vec![3], vec![0.0, 4.0, 25.0])]);
    assert_eq!(out[1], [(vec![], vec![0.0]), (vec![1], vec![0.0])]);
}

#[test]
fn a_branch_within_a_loop_gives_either_shape() {
    let build = |n: &mut Net| {
        let x = n.input("x", &["n"]);
        let (len, zero) = (length(n, x), n.constant(&[], &[0.0]));
        let none = n.constant(&[0], &[]);
        let out = looped(n, Some(len), None, &[none], 1, |n, v| {
            let axis = n.ints(&[0]);
            let one = n.node("Gather", &[x, v[0]], &[]);
            let keep = n.node("Greater", &[one, zero], &[]);
            let one = n.node("Unsqueeze", &[one, axis], &[]);
            let then = n.region(0, |n, _| vec![n.node("Concat", &[v[2], one], &[("axis", Attr::Int(0))])]);
            let other = n.region(0, |n, _| vec![n.node("Identity", &[v[2]], &[])]);
            let kept = n.node("If", &[keep], &[("then_branch", then), ("else_branch", other)]);
            vec![n.truth(true), kept]
        });
        n.output(out[0]);
    };
    let out = both(build, &[&[(&[4], &[1.0, -2.0, 3.0, -4.0])], &[(&[2], &[-1.0, -1.0])]]);
    assert_eq!(out[0], [(vec![2], vec![1.0, 3.0])]);
    assert_eq!(out[1], [(vec![0], vec![])]);
}

#[test]
fn a_recurrence_over_an_open_length_multiplies_all_its_inputs_at_once() {
    let build = |n: &mut Net| {
        let (x, h) = (n.input("x", &["steps", "2"]), n.input("h", &["2"]));
        let (w, u) = (n.constant(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), n.constant(&[2, 2], &[0.0, 1.0, 1.0, 0.0]));
        let steps = length(n, x);
        let out = looped(n, Some(steps), None, &[h], 2, |n, v| {
            let xt = n.node("Gather", &[x, v[0]], &[]);
            let (a, b) = (n.node("MatMul", &[xt, w], &[]), n.node("MatMul", &[v[2], u], &[]));
            let next = n.node("Add", &[a, b], &[]);
            vec![n.truth(true), next, next]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let h: (&[usize], &[f32]) = (&[2], &[0.5, 0.25]);
    let out = both(build, &[&[(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), h], &[(&[1, 2], &[1.0, 1.0]), h]]);
    assert_eq!(out[0], [(vec![2], vec![5.5, 5.25]), (vec![2, 2], vec![1.25, 2.5, 5.5, 5.25])]);
    assert_eq!(out[1], [(vec![2], vec![4.25, 6.5]), (vec![1, 2], vec![4.25, 6.5])]);
    // One contraction of all steps before the loop, one within it.
    let mut n = Net::new();
    build(&mut n);
    let fused = n.emit(graphmend_compiler::pack::Emit::Fused);
    let (before, within) = fused.split_once("\nloop ").expect("a loop");
    assert_eq!((before.matches("= sum").count(), within.matches("= sum").count()), (1, 1), "{fused}");
}

#[test]
fn an_output_layer_is_deferred_until_after_the_loop() {
    // h = h + x[t], y[t] = (h * 2) @ w, while the first element of h stays below the limit.
    let build = |n: &mut Net| {
        let (x, h, limit) = (n.input("x", &["steps", "2"]), n.input("h", &["2"]), n.input("limit", &[]));
        let (w, two) = (n.constant(&[2, 2], &[1.0, 1.0, 0.0, 1.0]), n.constant(&[], &[2.0]));
        let steps = length(n, x);
        let out = looped(n, Some(steps), None, &[h], 2, |n, v| {
            let xt = n.node("Gather", &[x, v[0]], &[]);
            let next = n.node("Add", &[v[2], xt], &[]);
            let doubled = n.node("Mul", &[next, two], &[]);
            let (y, first) = (n.node("MatMul", &[doubled, w], &[]), n.int(0));
            let one = n.node("Gather", &[next, first], &[]);
            vec![n.node("Less", &[one, limit], &[]), next, y]
        });
        out.into_iter().for_each(|v| n.output(v));
    };
    let x: (&[usize], &[f32]) = (&[3, 2], &[1.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
    let h: (&[usize], &[f32]) = (&[2], &[0.0, 1.0]);
    let out = both(build, &[&[x, h, (&[], &[9.0])], &[x, h, (&[], &[1.5])]]);
    assert_eq!(out[0], [(vec![2], vec![3.0, 4.0]), (vec![3, 2], vec![2.0, 4.0, 4.0, 8.0, 6.0, 14.0])]);
    assert_eq!(out[1], [(vec![2], vec![2.0, 2.0]), (vec![2, 2], vec![2.0, 4.0, 4.0, 8.0])]);
    let mut n = Net::new();
    build(&mut n);
    let fused = n.emit(graphmend_compiler::pack::Emit::Fused);
    let (within, after) = fused.split_once("\n} while").expect("a loop");
    assert_eq!((within.matches("= sum").count(), after.matches("= sum").count()), (0, 1), "{fused}");
}

#[test]
fn counters_that_a_loop_carries_are_what_they_are_after_it() {
    // Two counters: one grows by 2, one is the product of all trips' numbers so far plus the first; both cut x.
    let build = |n: &mut Net| {
        let (x, limit) = (n.input("x", &["9"]), n.input("limit", &[]));
        let (a, b, most) = (n.ints(&[1]), n.int(3), n.int(4));
        let zero = n.constant(&[], &[0.0]);
        let start = n.node("Less", &[zero, limit], &[]);
        let out = looped(n, Some(most), Some(start), &[a, b, zero], 3, |n, v| {
            let (two, three, axis) = (n.ints(&[2]), n.int(3), n.ints(&[0]));
            let next_a = n.node("Add", &[v[2], two], &[]);
            let next_b = n.node("Mul", &[v[3], v[0]], &[]);
            let next_b = n.node("Add", &[next_b, three], &[]);
            let piece = n.node("Slice", &[x, axis, next_a], &[]);
            let sum = n.node("ReduceSum", &[piece, axis], &[("keepdims", Attr::Int(0))]);
            let sum = n.node("Add", &[v[4], sum], &[]);
            vec![n.node("Less", &[sum, limit], &[]), next_a, next_b, sum]
        });
        let float = Attr::Int(1);
        for (k, v) in out.into_iter().enumerate() {
            let v = if k < 2 { n.node("Cast", &[v], &[("to", float.clone())]) } else { v };
            n.output(v);
        }
    };
    let x: (&[usize], &[f32]) = (&[9], &[1.0; 9]);
    let out = both(build, &[&[x, (&[], &[100.0])], &[x, (&[], &[4.0])], &[x, (&[], &[-1.0])]]);
    // b: 3, then 3*0+3, 3*1+3, 6*2+3, 15*3+3.
    assert_eq!(out[0], [(vec![1], vec![9.0]), (vec![], vec![48.0]), (vec![], vec![24.0])]);
    assert_eq!(out[1], [(vec![1], vec![5.0]), (vec![], vec![6.0]), (vec![], vec![8.0])]);
    assert_eq!(out[2], [(vec![1], vec![1.0]), (vec![], vec![3.0]), (vec![], vec![0.0])]);
}

#[test]
fn a_loop_that_never_ends_meets_the_limit_of_its_session() {
    let mut n = Net::new();
    let x = n.input("x", &["1"]);
    let out = looped(&mut n, None, None, &[x], 1, |n, v| vec![n.truth(true), n.node("Neg", &[v[2]], &[])]);
    n.output(out[0]);
    let model = n.pack();
    let mut session = model.session().expect("session");
    session.set_step_limit(1000);
    let error = session.run(&[TensorRef::new(&[1f32], &[1])]).expect_err("never ends");
    assert_eq!(error, graphmend_runtime::Error::StepLimit);
}

#[test]
fn a_part_that_nobody_asks_for_may_have_another_shape_in_each_trip() {
    let build = |n: &mut Net| {
        let x = n.input("x", &["rows", "2"]);
        let trips = n.int(3);
        let out = looped(n, Some(trips), None, &[x], 2, |n, v| {
            let turned = n.node("Transpose", &[v[2]], &[]);
            vec![n.truth(true), turned, turned]
        });
        n.output(out[0]);
    };
    let out = both(build, &[&[(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])], &[(&[1, 2], &[7.0, 8.0])]]);
    assert_eq!(out[0], [(vec![2, 3], vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0])]);
    assert_eq!(out[1], [(vec![2, 1], vec![7.0, 8.0])]);
}

#[test]
fn integers_that_leave_their_range_in_a_loop_wrap_around() {
    const FACTOR: i64 = 6_364_136_223_846_793_005;
    const STEP: i64 = i64::MAX - 5;
    let build = |n: &mut Net| {
        let (x, trips) = (n.input("x", &[]), n.int(30));
        let start = n.node("Cast", &[x], &[("to", Attr::Int(7))]);
        let one = n.int(1);
        // What is multiplied, what grows by a lot, a factorial, and two that add up each other.
        let out = looped(n, Some(trips), None, &[start, start, one, start, one], 5, |n, v| {
            let (factor, step, one) = (n.int(FACTOR), n.int(STEP), n.int(1));
            let (a, b) = (n.node("Mul", &[v[2], factor], &[]), n.node("Add", &[v[3], step], &[]));
            let k = n.node("Add", &[v[0], one], &[]);
            let c = n.node("Mul", &[v[4], k], &[]);
            let sum = n.node("Add", &[v[5], v[6]], &[]);
            let sum = n.node("Add", &[sum, v[5]], &[]);
            vec![n.truth(true), a, b, c, sum, v[5]]
        });
        for v in out {
            let modulus = n.int(1 << 20);
            let low = n.node("Mod", &[v, modulus], &[]);
            let low = n.node("Cast", &[low], &[("to", Attr::Int(1))]);
            n.output(low);
        }
    };
    let expected = |x: i64| {
        let (mut a, mut b, mut c, mut d, mut e) = (x, x, 1i64, x, 1i64);
        for k in 1..=30 {
            (a, b, c) = (a.wrapping_mul(FACTOR), b.wrapping_add(STEP), c.wrapping_mul(k));
            (d, e) = (d.wrapping_add(e).wrapping_add(d), d);
        }
        [a, b, c, d, e].map(|v| (vec![], vec![v.rem_euclid(1 << 20) as f32]))
    };
    let out = both(build, &[&[(&[], &[9.0])], &[(&[], &[-1e15])]]);
    assert_eq!(out[0], expected(9));
    assert_eq!(out[1], expected(-999_999_986_991_104));
}

#[test]
fn without_a_trip_parts_are_as_large_as_they_are_declared() {
    let build = |n: &mut Net| {
        let (x, trips) = (n.input("x", &["10"]), n.input("trips", &[]));
        let (trips, start) = (n.node("Cast", &[trips], &[("to", Attr::Int(7))]), n.ints(&[0]));
        let out = looped(n, Some(trips), None, &[start], 2, |n, v| {
            let two = n.ints(&[2]);
            let end = n.node("Add", &[v[2], two], &[]);
            let two = n.ints(&[2]);
            let end = n.node("Mul", &[end, two], &[]);
            let end = n.node("Div", &[end, two], &[]);
            let part = n.node("Slice", &[x, v[2], end], &[]);
            n.module.values[part.0 as usize].ty = ValueType::fixed(DType::F32, &[2]);
            vec![n.truth(true), end, part]
        });
        n.output(out[1]);
    };
    let x: Vec<f32> = (0..10u8).map(f32::from).collect();
    let out = both(build, &[&[(&[10], &x), (&[], &[0.0])], &[(&[10], &x), (&[], &[2.0])]]);
    assert_eq!(out[0], [(vec![0, 2], vec![])]);
    assert_eq!(out[1], [(vec![2, 2], vec![0.0, 1.0, 2.0, 3.0])]);
}

#[test]
fn a_scan_of_nothing_gives_nothing_along_any_axis() {
    let build = |n: &mut Net| {
        let (start, x) = (n.input("start", &["2"]), n.input("x", &["2", "0"]));
        let body = n.region(2, |n, v| {
            let sum = n.node("Add", &[v[0], v[1]], &[]);
            vec![sum, n.node("Neg", &[sum], &[]), v[1]]
        });
        let attrs = [
            ("body", body),
            ("num_scan_inputs", Attr::Int(1)),
            ("scan_input_axes", Attr::Ints(vec![1])),
            ("scan_output_axes", Attr::Ints(vec![-1, 0])),
            ("scan_output_directions", Attr::Ints(vec![0, 1])),
        ];
        let out = n.node_with("Scan", &[Some(start), Some(x)], &attrs, 3);
        out.into_iter().for_each(|v| n.output(v));
    };
    let out = both(build, &[&[(&[2], &[1.0, 2.0]), (&[2, 0], &[])]]);
    assert_eq!(out[0], [(vec![2], vec![1.0, 2.0]), (vec![2, 0], vec![]), (vec![0, 2], vec![])]);
}

#[test]
fn bounds_of_a_slice_from_data_may_be_as_far_out_as_integers_go() {
    let mut n = Net::new();
    let x = n.input("x", &["n"]);
    let of = |n: &mut Net, name: &str| n.input_of(name, ValueType::fixed(DType::I64, &[1]));
    let (start, end, step, axis) = (of(&mut n, "start"), of(&mut n, "end"), of(&mut n, "step"), n.ints(&[0]));
    let y = n.node("Slice", &[x, start, end, axis, step], &[]);
    n.output(y);
    let model = n.pack();
    let mut session = model.session().expect("session");
    for (start, end, step, expected) in [
        (1, i64::MAX, 1, &[1.0f32, 2.0, 3.0][..]),
        (i64::MIN, 3, 2, &[0.0, 2.0]),
        (i64::MAX, i64::MIN, -1, &[3.0, 2.0, 1.0, 0.0]),
        (i64::MIN, i64::MAX, i64::MAX, &[0.0]),
        (-2, i64::MIN, -2, &[2.0, 0.0]),
    ] {
        let (start, end, step) = ([start], [end], [step]);
        let bounds = [&start, &end, &step].map(|b| TensorRef::new(b, &[1]));
        let x = TensorRef::new(&[0f32, 1.0, 2.0, 3.0], &[4]);
        session.run(&[&[x][..], &bounds].concat()).expect("runs");
        let y = session.output(0).expect("output");
        assert_eq!(y.as_f32().expect("f32"), expected, "{start:?} {end:?} {step:?}");
    }
}

#[test]
fn a_condition_that_is_no_truth_value_is_an_error() {
    let mut n = Net::new();
    let x = n.input("x", &["1"]);
    let trips = n.int(3);
    let out = looped(&mut n, Some(trips), None, &[x], 1, |n, v| {
        let next = n.node("Neg", &[v[2]], &[]);
        vec![next, next]
    });
    n.output(out[0]);
    let error = n.try_pack(&[]).expect_err("a float for a condition").to_string();
    assert!(error.contains("the body's condition has element type f32, not bool"), "{error}");
}
