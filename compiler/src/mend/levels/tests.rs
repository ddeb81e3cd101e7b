//! One test for each rule of the definition.

use super::*;
use crate::import::import;
use crate::onnx::proto::{
    AttributeProto, ContainerType, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, TypeValue,
    ValueInfoProto, attribute_type,
};
use crate::onnx::testing::*;

fn ints(name: &str, values: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![values.len() as i64],
        data_type: Some(7),
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

fn scalar(name: &str, value: i64) -> TensorProto {
    TensorProto { dims: vec![], ..ints(name, &[value]) }
}

fn int_attr(name: &str, value: i64) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::INT), i: Some(value), ..attr(name) }
}

/// A model over `x` of an open size, `c` of size 2, `s`, a sequence, and the constants `two` and `list`.
fn module(nodes: Vec<NodeProto>) -> ModelProto {
    let last = nodes.last().and_then(|n| n.output.first().cloned()).unwrap();
    let mut m = model(nodes);
    let g = m.graph.as_mut().unwrap();
    let of = value("s", &[2]).r#type.map(Box::new);
    let ty = TypeProto { value: Some(TypeValue::Sequence(ContainerType { elem_type: of }.into())), denotation: None };
    let sequence = ValueInfoProto { name: Some("s".into()), r#type: Some(ty), ..Default::default() };
    g.input = vec![value("x", &[-1]), value("c", &[2]), sequence];
    g.output = vec![untyped(&last)];
    g.initializer = vec![scalar("two", 2), ints("list", &[1, 1])];
    m
}

/// The splits found: operators, kinds and levels.
fn found(m: ModelProto) -> Vec<(String, Kind, Level)> {
    crate::sym::reset();
    crate::te::expr::reset();
    splits(&import(m).unwrap()).into_iter().map(|s| (s.op, s.kind, s.level)).collect()
}

/// The levels of the splits found.
fn levels(nodes: Vec<NodeProto>) -> Vec<Level> {
    found(module(nodes)).into_iter().map(|(_, _, level)| level).collect()
}

/// `v` from data, as an integer.
fn as_int(from: &str, to: &str) -> NodeProto {
    with(node("Cast", &[from], &[to]), int_attr("to", 7))
}

fn choose(cond: &str, then: GraphProto, other: GraphProto) -> NodeProto {
    let choice = with(node("If", &[cond], &["y"]), graph_attr("then_branch", then));
    with(choice, graph_attr("else_branch", other))
}

fn relu() -> GraphProto {
    branch(vec![node("Relu", &["c"], &["t"])], "t")
}

/// A loop over `a`, which `nodes` turn into `b`; `cond` is the body's condition.
fn repeat(inputs: &[&str], nodes: Vec<NodeProto>, cond: &str) -> NodeProto {
    let body = GraphProto {
        node: nodes,
        input: vec![untyped("i"), untyped("on"), untyped("a")],
        output: vec![untyped(cond), untyped("b")],
        ..Default::default()
    };
    with(node("Loop", inputs, &["y"]), graph_attr("body", body))
}

/// `NonZero` of what a value is tells the level of its content.
fn asks(value: &str) -> NodeProto {
    node("NonZero", &[value], &["z"])
}

/// A sequence made from parts of a value: its level tells that of the value's shape.
fn asks_shape(value: &str) -> NodeProto {
    node("SplitToSequence", &[value], &["z"])
}

#[test]
fn shapes_of_constants_and_declared_inputs_are_constant() {
    assert_eq!(levels(vec![asks("two")]), [Const]);
    assert_eq!(levels(vec![asks("c")]), [Data]);
    for op in ["Shape", "Size"] {
        assert_eq!(levels(vec![node(op, &["c"], &["n"]), asks("n")]), [Const], "{op}");
        assert_eq!(levels(vec![node(op, &["x"], &["n"]), asks("n")]), [Level::Shape], "{op}");
    }
}

#[test]
fn an_operator_passes_on_the_most_that_its_inputs_need() {
    assert_eq!(
        levels(vec![node("Shape", &["x"], &["n"]), node("Mul", &["n", "two"], &["m"]), asks("m")]),
        [Level::Shape]
    );
    assert_eq!(levels(vec![node("Add", &["x", "c"], &["n"]), asks_shape("n")]), [Level::Shape]);
    let random = with(node("RandomNormal", &[], &["n"]), ints_attr("shape", &[2]));
    assert_eq!(levels(vec![random, asks("n")]), [Data]);
}

fn ints_attr(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::INTS), ints: values.to_vec(), ..attr(name) }
}

#[test]
fn a_shape_is_a_split_where_data_carries_it() {
    let sizes = node("Shape", &["x"], &["n"]);
    assert_eq!(levels(vec![node("Reshape", &["x", "list"], &["y"])]), []);
    assert_eq!(levels(vec![sizes.clone(), node("Expand", &["c", "n"], &["y"])]), []);
    assert_eq!(
        found(module(vec![as_int("c", "n"), node("Expand", &["c", "n"], &["y"])])),
        [("Expand".to_owned(), Kind::Shape, Data)]
    );
    // Only the inputs that carry the shape count, and what is made has only their level.
    assert_eq!(levels(vec![node("Tile", &["x", "list"], &["y"])]), []);
    assert_eq!(levels(vec![sizes, node("ConstantOfShape", &["n"], &["y"]), asks_shape("y")]), [Level::Shape]);
    assert_eq!(levels(vec![as_int("c", "n"), node("ConstantOfShape", &["n"], &["y"]), asks_shape("y")]), [Data, Data]);
    assert_eq!(levels(vec![node("Compress", &["c", "x"], &["y"]), asks_shape("y")]), [Data, Data]);
}

#[test]
fn a_choice_has_the_level_of_its_condition() {
    let cond = |from: &str| with(node("Cast", &[from], &["cond"]), int_attr("to", 9));
    assert_eq!(levels(vec![cond("two"), choose("cond", relu(), relu())]), [Const]);
    assert_eq!(levels(vec![node("Size", &["x"], &["n"]), cond("n"), choose("cond", relu(), relu())]), [Level::Shape]);
    assert_eq!(levels(vec![cond("c"), choose("cond", relu(), relu())]), [Data]);
}

#[test]
fn what_a_choice_gives_is_as_open_as_its_condition_unless_the_branches_have_one_shape() {
    let twice = || branch(vec![with(node("Concat", &["c", "c"], &["t"]), int_attr("axis", 0))], "t");
    let cond = with(node("Cast", &["c"], &["cond"]), int_attr("to", 9));
    assert_eq!(levels(vec![cond.clone(), choose("cond", relu(), relu()), asks_shape("y")]), [Data, Const]);
    assert_eq!(levels(vec![cond.clone(), choose("cond", relu(), twice()), asks_shape("y")]), [Data, Data]);
    assert_eq!(levels(vec![cond, choose("cond", relu(), relu()), asks("y")]), [Data, Data]);
}

#[test]
fn a_loop_has_the_level_of_its_trips_and_conditions() {
    let step = || vec![node("Add", &["a", "c"], &["b"])];
    assert_eq!(levels(vec![repeat(&["two", "", "c"], step(), "on")]), [Const]);
    assert_eq!(levels(vec![node("Size", &["x"], &["n"]), repeat(&["n", "", "c"], step(), "on")]), [Level::Shape]);
    assert_eq!(levels(vec![as_int("c", "n"), repeat(&["n", "", "c"], step(), "on")]), [Data]);
    let mut ends = step();
    ends.push(with(node("Cast", &["b"], &["go"]), int_attr("to", 9)));
    assert_eq!(levels(vec![repeat(&["two", "", "c"], ends, "go")]), [Data]);
}

#[test]
fn a_body_is_walked_until_its_levels_stand() {
    // The condition comes to depend on data in the second trip only.
    let nodes = vec![
        node("Add", &["a", "c"], &["b"]),
        with(node("Cast", &["a"], &["go"]), int_attr("to", 9)),
        asks("i"),
        with(node("If", &["go"], &["t"]), graph_attr("then_branch", relu())),
    ];
    let mut nodes = nodes;
    nodes[3].attribute.push(graph_attr("else_branch", relu()));
    assert_eq!(levels(vec![repeat(&["two", "", "two"], nodes, "on")]), [Const, Const, Data]);
}

#[test]
fn what_a_loop_carries_is_as_open_as_the_trips_where_it_grows() {
    let grow = || vec![with(node("Concat", &["a", "c"], &["b"]), int_attr("axis", 0))];
    let keep = || vec![node("Add", &["c", "a"], &["sum"]), node("Relu", &["sum"], &["b"])];
    assert_eq!(levels(vec![as_int("c", "n"), repeat(&["n", "", "c"], grow(), "on"), asks_shape("y")]), [Data, Data]);
    assert_eq!(levels(vec![as_int("c", "n"), repeat(&["n", "", "c"], keep(), "on"), asks_shape("y")]), [Data, Const]);
}

#[test]
fn a_scan_has_the_level_of_what_it_scans() {
    let body = GraphProto {
        node: vec![node("Relu", &["a"], &["b"])],
        input: vec![untyped("a")],
        output: vec![untyped("b")],
        ..Default::default()
    };
    let scan = |of: &str| {
        let scan = with(node("Scan", &[of], &["y"]), graph_attr("body", body.clone()));
        with(scan, int_attr("num_scan_inputs", 1))
    };
    assert_eq!(levels(vec![scan("c")]), [Const]);
    assert_eq!(levels(vec![scan("x")]), [Level::Shape]);
}

#[test]
fn a_sequence_has_the_level_of_its_length_and_of_places_in_it() {
    assert_eq!(levels(vec![asks_shape("c")]), [Const]);
    assert_eq!(levels(vec![asks_shape("x")]), [Level::Shape]);
    // A list says how many pieces there are; the pieces are as open as the whole.
    assert_eq!(
        levels(vec![node("SplitToSequence", &["x", "list"], &["p"]), node("SequenceLength", &["p"], &["n"])]),
        [Const, Const]
    );
    assert_eq!(levels(vec![node("SplitToSequence", &["x", "two"], &["p"])]), [Level::Shape]);
    assert_eq!(levels(vec![node("SequenceLength", &["s"], &["n"])]), [Data]);
    let parts = node("SequenceConstruct", &["x", "c"], &["p"]);
    assert_eq!(
        levels(vec![parts.clone(), node("SequenceAt", &["p", "two"], &["y"]), asks_shape("y")]),
        [Const, Const, Level::Shape]
    );
    assert_eq!(levels(vec![as_int("c", "n"), parts, node("SequenceAt", &["p", "n"], &["y"])]), [Const, Data]);
}

#[test]
fn a_map_over_a_sequence_has_the_level_of_its_length() {
    let body = GraphProto {
        node: vec![node("Relu", &["a"], &["b"])],
        input: vec![untyped("a")],
        output: vec![untyped("b")],
        ..Default::default()
    };
    let map = |of: &str| with(node("SequenceMap", &[of], &["y"]), graph_attr("body", body.clone()));
    assert_eq!(levels(vec![map("s")]), [Data]);
    assert_eq!(levels(vec![node("SequenceConstruct", &["x", "c"], &["p"]), map("p")]), [Const, Const]);
}

#[test]
fn an_optional_has_the_level_of_its_presence() {
    let made = node("Optional", &["x"], &["o"]);
    assert_eq!(
        found(module(vec![made, node("OptionalHasElement", &["o"], &["y"])])),
        [("Optional".to_owned(), Kind::Container, Const), ("OptionalHasElement".to_owned(), Kind::Container, Const)]
    );
    assert_eq!(levels(vec![node("OptionalGetElement", &["s"], &["y"])]), [Data]);
}

#[test]
fn each_call_of_a_function_counts() {
    let cond = with(node("Cast", &["two"], &["cond"]), int_attr("to", 9));
    let other = with(node("Cast", &["c"], &["open"]), int_attr("to", 9));
    let inner = choose("flag", branch(vec![node("Relu", &["v"], &["t"])], "t"), relu_of("v"));
    let mut m = module(vec![
        cond,
        other,
        call("first", "f", &["cond", "c"], &["a"]),
        call("second", "f", &["open", "a"], &["b"]),
        node("Relu", &["b"], &["y"]),
    ]);
    m.opset_import.push(import_of("f", 1));
    m.functions.push(function("f", &["flag", "v"], &["y"], vec![inner]));
    let levels: Vec<Level> = found(m).into_iter().map(|(_, _, level)| level).collect();
    assert_eq!(levels, [Const, Data]);
}

fn relu_of(of: &str) -> GraphProto {
    branch(vec![node("Relu", &[of], &["t"])], "t")
}

#[test]
fn loops_within_loops_do_not_take_forever() {
    let mut body = vec![node("Add", &["a", "c"], &["b"])];
    for _ in 0..14 {
        let mut inner = repeat(&["two", "", "a"], body, "on");
        inner.output = vec!["b".into()];
        body = vec![inner];
    }
    assert_eq!(levels(vec![repeat(&["two", "", "c"], body, "on")]).len(), 15);
}
