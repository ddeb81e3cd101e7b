//! Sequences and optionals whose content only the data tells.

mod net;

use graphmend_compiler::dtype::DType;
use graphmend_compiler::graph::{Attr, DimDecl, ValueId, ValueType};
use graphmend_runtime::{Model, TensorRef};
use net::Net;

fn floats(dims: &[&str]) -> ValueType {
    let dim = |d: &&str| d.parse().map_or_else(|_| DimDecl::Named((*d).into()), DimDecl::Fixed);
    ValueType::Tensor { elem: DType::F32.into(), shape: Some(dims.iter().map(dim).collect()) }
}

fn sequence(of: ValueType) -> ValueType {
    ValueType::Sequence(Box::new(of))
}

/// A row of the table of a sequence: rank, then sizes.
fn row(sizes: &[i64]) -> Vec<i64> {
    let mut row = vec![1; 9];
    row[0] = sizes.len() as i64;
    row[1..=sizes.len()].copy_from_slice(sizes);
    row
}

/// The outputs of a run, as names, shapes and elements (numbers of any type as `f64`).
fn run(model: &Model, inputs: &[TensorRef<'_>]) -> Vec<(String, Vec<i64>, Vec<f64>)> {
    let mut s = model.session().expect("session");
    s.run(inputs).unwrap_or_else(|e| panic!("{}", model.explain(e)));
    let names: Vec<String> = model.view().outputs().map(|t| t.name.to_owned()).collect();
    let mut all = vec![];
    for (k, name) in names.into_iter().enumerate() {
        let v = s.output(k).expect("output");
        let wide = |c: &[u8]| i64::from_le_bytes(c.try_into().expect("eight bytes")) as f64;
        let data = match v.as_f32() {
            Ok(x) => x.iter().map(|x| f64::from(*x)).collect(),
            Err(_) if v.bytes.len().is_multiple_of(8) => v.bytes.chunks_exact(8).map(wide).collect(),
            Err(_) => v.bytes.iter().map(|b| f64::from(*b)).collect(),
        };
        all.push((name, v.shape.to_vec(), data));
    }
    all
}

fn gather(n: &mut Net, x: ValueId, at: ValueId) -> ValueId {
    n.node("Gather", &[x, at], &[("axis", Attr::Int(0))])
}

#[test]
fn members_of_any_length_are_mapped_one_by_one() {
    let mut n = Net::new();
    let x = n.input_of("x", sequence(floats(&["N"])));
    let body = n.region(1, |n, v| {
        let twice = n.node("Add", &[v[0], v[0]], &[]);
        vec![n.node("Concat", &[twice, v[0]], &[("axis", Attr::Int(0))])]
    });
    let y = n.node("SequenceMap", &[x], &[("body", body)]);
    n.output_of(y, sequence(floats(&["M"])));
    let model = n.pack();
    let rows = [row(&[2]), row(&[0]), row(&[1])].concat();
    let out = run(&model, &[TensorRef::new(&[1f32, 2.0, 5.0], &[3]), TensorRef::new(&rows, &[3, 9])]);
    assert_eq!(out[0], ("out0.data".into(), vec![6], vec![2.0, 4.0, 1.0, 2.0, 10.0, 5.0]));
    let sizes: Vec<f64> = out[1].2.chunks_exact(9).map(|r| r[1]).collect();
    assert_eq!((out[1].0.as_str(), sizes), ("out0.rows", vec![4.0, 0.0, 2.0]));
    let none: [f32; 0] = [];
    let out = run(&model, &[TensorRef::new(&none, &[0]), TensorRef::new(&[0i64; 0], &[0, 9])]);
    assert_eq!((out[0].1.as_slice(), out[1].1.as_slice()), (&[0][..], &[0, 9][..]), "no members");
}

#[test]
fn branches_may_give_sequences_of_different_lengths() {
    let mut n = Net::new();
    let (x, limit) = (n.input("x", &["2"]), n.input("limit", &[]));
    let zero = n.int(0);
    let first = gather(&mut n, x, zero);
    let cond = n.node("Greater", &[first, limit], &[]);
    let then = n.region(0, |n, _| vec![n.node("SequenceConstruct", &[x], &[])]);
    let other = n.region(0, |n, _| {
        let y = n.node("Neg", &[x], &[]);
        vec![n.node("SequenceConstruct", &[y, x, y], &[])]
    });
    let s = n.node("If", &[cond], &[("then_branch", then), ("else_branch", other)]);
    let (length, all) =
        (n.node("SequenceLength", &[s], &[]), n.node("ConcatFromSequence", &[s], &[("axis", Attr::Int(0))]));
    let (at, last) = (n.int(-1), n.node("Identity", &[s], &[]));
    let last = n.node("SequenceAt", &[last, at], &[]);
    [length, all, last].into_iter().for_each(|v| n.output(v));
    let model = n.pack();
    let of = |limit: f32| run(&model, &[TensorRef::new(&[1f32, 2.0], &[2]), TensorRef::new(&[limit], &[])]);
    let numbers = |limit: f32| of(limit).into_iter().map(|o| o.2).collect::<Vec<_>>();
    assert_eq!(numbers(0.0), [vec![1.0], vec![1.0, 2.0], vec![1.0, 2.0]]);
    assert_eq!(numbers(5.0), [vec![3.0], vec![-1.0, -2.0, 1.0, 2.0, -1.0, -2.0], vec![-1.0, -2.0]]);
}

#[test]
fn a_queue_that_a_loop_carries_takes_at_one_end_and_gives_at_the_other() {
    // Members of sizes 1, 2, 3, … come in at the front; from the third trip on the last one goes.
    let mut n = Net::new();
    let x = n.input("x", &["n"]);
    let (shape, zero) = (n.node("Shape", &[x], &[]), n.int(0));
    let trips = gather(&mut n, shape, zero);
    let empty = n.node("SequenceEmpty", &[], &[]);
    let body = n.region(3, |n, v| {
        let (start, one, two) = (n.ints(&[0]), n.int(1), n.int(2));
        let end = n.node("Add", &[v[0], one], &[]);
        let end = n.node("Unsqueeze", &[end, start], &[]);
        let piece = n.node("Slice", &[x, start, end], &[]);
        let front = n.int(0);
        let longer = n.node("SequenceInsert", &[v[2], piece, front], &[]);
        let length = n.node("SequenceLength", &[longer], &[]);
        let full = n.node("Greater", &[length, two], &[]);
        let then = n.region(0, |n, _| vec![n.node("SequenceErase", &[longer], &[])]);
        let other = n.region(0, |n, _| vec![n.node("Identity", &[longer], &[])]);
        let kept = n.node("If", &[full], &[("then_branch", then), ("else_branch", other)]);
        vec![n.truth(true), kept]
    });
    let s = n.node_with("Loop", &[Some(trips), None, Some(empty)], &[("body", body)], 1)[0];
    n.output_of(s, sequence(floats(&["k"])));
    let all = n.node("ConcatFromSequence", &[s], &[("axis", Attr::Int(0))]);
    n.output(all);
    let model = n.pack();
    let out = run(&model, &[TensorRef::new(&[1f32, 2.0, 3.0, 4.0], &[4])]);
    let sizes: Vec<f64> = out[1].2.chunks_exact(9).map(|r| r[1]).collect();
    assert_eq!((out[0].2.clone(), sizes), (vec![1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0], vec![4.0, 3.0]));
    assert_eq!(out[2].2, out[0].2);
    let out = run(&model, &[TensorRef::new(&[9f32], &[1])]);
    assert_eq!((out[0].2.clone(), out[1].1.clone()), (vec![9.0], vec![1, 9]));
}

#[test]
fn an_optional_input_is_there_or_not() {
    let mut n = Net::new();
    let x = n.input_of("x", ValueType::Optional(Box::new(floats(&["2"]))));
    let there = n.node("OptionalHasElement", &[x], &[]);
    let then = n.region(0, |n, _| {
        let v = n.node("OptionalGetElement", &[x], &[]);
        vec![n.node("Neg", &[v], &[])]
    });
    let other = n.region(0, |n, _| vec![n.constant(&[2], &[7.0, 8.0])]);
    let y = n.node("If", &[there], &[("then_branch", then), ("else_branch", other)]);
    n.output(y);
    n.output_of(x, ValueType::Optional(Box::new(floats(&["2"]))));
    let model = n.pack();
    let of = |present: bool| {
        let flag = [u8::from(present)];
        run(
            &model,
            &[TensorRef::from_bytes(graphmend_runtime::DType::Bool, &[], &flag), TensorRef::new(&[1f32, 2.0], &[2])],
        )
    };
    assert_eq!(of(true)[0].2, [-1.0, -2.0]);
    assert_eq!(of(false)[0].2, [7.0, 8.0]);
    let names: Vec<String> = of(true).into_iter().map(|o| o.0).collect();
    assert_eq!(names, ["out0", "out1.present", "out1"]);
    assert_eq!((of(true)[1].2[0], of(false)[1].2[0]), (1.0, 0.0));
}

#[test]
fn a_value_that_is_not_there_cannot_be_taken() {
    let mut n = Net::new();
    let x = n.input_of("x", ValueType::Optional(Box::new(floats(&["1"]))));
    let y = n.node("OptionalGetElement", &[x], &[]);
    n.output(y);
    let model = n.pack();
    let mut s = model.session().expect("session");
    let absent = TensorRef::from_bytes(graphmend_runtime::DType::Bool, &[], &[0]);
    let error = s.run(&[absent, TensorRef::new(&[0f32], &[1])]).expect_err("nothing is there");
    assert!(model.explain(error).contains("the optional is empty"), "{}", model.explain(error));
}

#[test]
fn a_split_by_sizes_from_data_makes_pieces_of_these_sizes() {
    let mut n = Net::new();
    let (x, sizes) = (n.input("x", &["2", "5"]), n.input_of("sizes", ValueType::fixed(DType::I64, &[3])));
    let s = n.node("SplitToSequence", &[x, sizes], &[("axis", Attr::Int(1))]);
    let at = n.int(1);
    let middle = n.node("SequenceAt", &[s, at], &[]);
    n.output(middle);
    let model = n.pack();
    let x: Vec<f32> = (0..10u8).map(f32::from).collect();
    let out = run(&model, &[TensorRef::new(&x, &[2, 5]), TensorRef::new(&[1i64, 3, 1], &[3])]);
    assert_eq!((&out[0].1[..], &out[0].2[..]), (&[2, 3][..], &[1.0, 2.0, 3.0, 6.0, 7.0, 8.0][..]));
    let mut s = model.session().expect("session");
    let wrong = s.run(&[TensorRef::new(&x, &[2, 5]), TensorRef::new(&[1i64, 3, 2], &[3])]);
    assert!(wrong.is_err(), "the sizes do not make up the dimension");
    let wrong = s.run(&[TensorRef::new(&x, &[2, 5]), TensorRef::new(&[6i64, -2, 1], &[3])]);
    assert!(wrong.is_err(), "a size below nothing");
}

#[test]
fn a_position_outside_of_a_sequence_is_an_error() {
    let fixed = [2.0f32, 3.0, 4.0];
    let rows = [row(&[2]), row(&[0]), row(&[1])].concat();
    for dim in ["1", "n"] {
        for op in ["SequenceInsert", "SequenceErase", "SequenceAt"] {
            let mut n = Net::new();
            let s = n.input_of("s", sequence(floats(&[dim])));
            let at = n.input_of("at", ValueType::fixed(DType::I64, &[]));
            let x = n.constant(&[1], &[9.0]);
            let inputs = if op == "SequenceInsert" { vec![s, x, at] } else { vec![s, at] };
            let y = n.node(op, &inputs, &[]);
            n.output_of(y, if op == "SequenceAt" { floats(&["k"]) } else { sequence(floats(&["k"])) });
            let model = n.pack();
            let mut session = model.session().expect("session");
            for at in -5..=4i64 {
                let (given, place) = (TensorRef::new(&rows, &[3, 9]), [at]);
                let place = TensorRef::new(&place, &[]);
                let done = match dim {
                    "n" => session.run(&[TensorRef::new(&fixed, &[3]), given, place]),
                    _ => session.run(&[TensorRef::new(&fixed, &[3, 1]), place]),
                };
                let most = if op == "SequenceInsert" { 3 } else { 2 };
                assert_eq!(done.is_ok(), (-3..=most).contains(&at), "{op} at {at}, members of size {dim}: {done:?}");
            }
        }
    }
}

#[test]
fn a_sequence_without_members_has_none_to_join_or_to_remove() {
    for (op, attrs) in [
        ("SequenceErase", vec![]),
        ("ConcatFromSequence", vec![("axis", Attr::Int(0))]),
        ("ConcatFromSequence", vec![("axis", Attr::Int(1)), ("new_axis", Attr::Int(1))]),
    ] {
        let mut n = Net::new();
        let s = n.input_of("s", sequence(floats(&["2"])));
        let y = n.node(op, &[s], &attrs);
        let kind = if op == "SequenceErase" { sequence(floats(&["2"])) } else { ValueType::Unknown };
        n.output_of(y, kind);
        let model = n.pack();
        let mut session = model.session().expect("session");
        session.run(&[TensorRef::new(&[1f32, 2.0], &[1, 2])]).expect("there is one");
        let error = session.run(&[TensorRef::new(&[0f32; 0], &[0, 2])]).expect_err("there is none");
        assert!(model.explain(error).contains("the sequence is empty"), "{op}: {}", model.explain(error));
    }
}

#[test]
fn members_of_any_width_are_joined_along_any_axis() {
    let mut n = Net::new();
    let x = n.input_of("x", sequence(floats(&["2", "N"])));
    let wide = n.node("ConcatFromSequence", &[x], &[("axis", Attr::Int(-1))]);
    n.output(wide);
    let mut apart = Net::new();
    let y = apart.input_of("y", sequence(floats(&["N"])));
    let attrs = [("axis", Attr::Int(1)), ("new_axis", Attr::Int(1))];
    let y = apart.node("ConcatFromSequence", &[y], &attrs);
    apart.output(y);
    let (model, apart) = (n.pack(), apart.pack());
    let rows = [row(&[2, 1]), row(&[2, 2])].concat();
    let data = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let out = run(&model, &[TensorRef::new(&data, &[6]), TensorRef::new(&rows, &[2, 9])]);
    assert_eq!((&out[0].1[..], &out[0].2[..]), (&[2, 3][..], &[1.0, 3.0, 4.0, 2.0, 5.0, 6.0][..]));
    let out = run(&model, &[TensorRef::new(&data[..2], &[2]), TensorRef::new(&rows[..9], &[1, 9])]);
    assert_eq!((&out[0].1[..], &out[0].2[..]), (&[2, 1][..], &[1.0, 2.0][..]));
    let rows = [row(&[2]), row(&[2]), row(&[2])].concat();
    let out = run(&apart, &[TensorRef::new(&data, &[6]), TensorRef::new(&rows, &[3, 9])]);
    assert_eq!((&out[0].1[..], &out[0].2[..]), (&[2, 3][..], &[1.0, 3.0, 5.0, 2.0, 4.0, 6.0][..]));
    let mut s = model.session().expect("session");
    let none = s.run(&[TensorRef::new(&[0f32; 0], &[0]), TensorRef::new(&[0i64; 0], &[0, 9])]);
    assert!(none.is_err(), "nothing to join");
}
