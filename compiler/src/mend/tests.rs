use super::*;
use crate::import::import;
use crate::onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, attribute_type};
use crate::onnx::testing::*;

fn ints(name: &str, values: &[i64], scalar: bool) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: if scalar { vec![] } else { vec![values.len() as i64] },
        data_type: Some(7),
        int64_data: values.to_vec(),
        ..Default::default()
    }
}

fn int_attr(name: &str, value: i64) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::INT), i: Some(value), ..attr(name) }
}

fn model_with(nodes: Vec<NodeProto>, initializers: Vec<TensorProto>) -> ModelProto {
    let mut m = model(nodes);
    m.graph.as_mut().unwrap().initializer = initializers;
    m
}

/// Mends; gives the operators that are left, in order, and the report.
fn mended(m: ModelProto) -> (Vec<String>, Report, Module) {
    crate::sym::reset();
    crate::te::expr::reset();
    let mut module = import(m).unwrap();
    let report = mend(&mut module, &Dims::new(), UNROLL).unwrap();
    module.verify(crate::error::Stage::Mend).unwrap();
    let mut ops = vec![];
    module.main.walk(&mut |n| ops.push(n.op_type.clone()));
    (ops, report, module)
}

#[test]
fn members_of_a_sequence_are_plain_values() {
    let nodes = vec![
        node("SplitToSequence", &["x", "sizes"], &["s"]),
        node("SequenceErase", &["s", "first"], &["t"]),
        node("SequenceInsert", &["t", "c", "first"], &["u"]),
        node("SequenceAt", &["u", "last"], &["y"]),
    ];
    let constants = vec![ints("sizes", &[1, 1], false), ints("first", &[0], true), ints("last", &[-1], true)];
    let (ops, report, module) = mended(model_with(nodes, constants));
    assert_eq!(ops, ["Slice"], "only the piece that is asked for is cut");
    assert_eq!((report.before(), report.count(Rule::Sequence)), (4, 4));
    let start = module.main.nodes[0].input(1).and_then(|v| module.main.constant(v)).unwrap();
    assert_eq!(start.to_i64s(), Some(vec![1]));
}

#[test]
fn a_place_outside_of_a_sequence_is_an_error() {
    let nodes = vec![node("SequenceConstruct", &["x", "c"], &["s"]), node("SequenceAt", &["s", "p"], &["y"])];
    let m = model_with(nodes, vec![ints("p", &[2], true)]);
    let mut module = import(m).unwrap();
    let message = mend(&mut module, &Dims::new(), UNROLL).unwrap_err().to_string();
    assert!(message.contains("position 2 is outside of the sequence of 2"), "{message}");
}

#[test]
fn an_empty_optional_decides_a_condition() {
    let branch_of = |op: &str| branch(vec![node(op, &["x"], &["t"])], "t");
    let choose = with(
        with(node("If", &["there"], &["y"]), graph_attr("then_branch", branch_of("Relu"))),
        graph_attr("else_branch", branch_of("Neg")),
    );
    let nodes = vec![node("Optional", &["x"], &["o"]), node("OptionalHasElement", &["o"], &["there"]), choose];
    let (ops, report, _) = mended(model(nodes));
    assert_eq!(ops, ["Relu"]);
    assert_eq!((report.count(Rule::Optional), report.count(Rule::Fold)), (2, 1));
}

/// A body that carries `a`, with `a + c` on and `a` scanned; its condition is `cond_out`.
fn body(cond_out: &str, mut nodes: Vec<NodeProto>) -> GraphProto {
    nodes.push(node("Add", &["a", "c"], &["b"]));
    nodes.push(node("Identity", &["a"], &["row"]));
    GraphProto {
        node: nodes,
        input: vec![untyped("i"), untyped("cond_in"), untyped("a")],
        output: vec![untyped(cond_out), untyped("b"), untyped("row")],
        ..Default::default()
    }
}

#[test]
fn a_loop_of_known_trips_is_written_out() {
    let repeat = with(node("Loop", &["trips", "", "x"], &["last", "y"]), graph_attr("body", body("cond_in", vec![])));
    let (ops, report, _) = mended(model_with(vec![repeat], vec![ints("trips", &[3], true)]));
    let adds = ops.iter().filter(|o| *o == "Add").count();
    assert_eq!(adds, 2, "the third sum is asked for by nobody: {ops:?}");
    assert_eq!(ops.last().map(String::as_str), Some("Concat"));
    assert_eq!((report.before(), report.count(Rule::Unroll)), (1, 1));
}

#[test]
fn a_loop_whose_condition_data_decides_stays() {
    let test = vec![
        node("ReduceSum", &["a"], &["sum"]),
        with(node("Cast", &["sum"], &["keeps"]), int_attr("to", 9)),
        node("Squeeze", &["keeps"], &["going"]),
    ];
    let repeat = with(node("Loop", &["trips", "", "x"], &["last", "y"]), graph_attr("body", body("going", test)));
    let (ops, report, _) = mended(model_with(vec![repeat], vec![ints("trips", &[3], true)]));
    assert_eq!((ops[0].as_str(), report.count(Rule::Loop)), ("Loop", 1), "{ops:?}");
}

#[test]
fn a_loop_whose_trips_nobody_knows_stays() {
    let cast = with(node("Cast", &["n"], &["trips"]), int_attr("to", 7));
    let nodes = vec![
        node("ReduceSum", &["x"], &["m"]),
        node("Squeeze", &["m"], &["n"]),
        cast,
        with(node("Loop", &["trips", "", "x"], &["last", "y"]), graph_attr("body", body("cond_in", vec![]))),
    ];
    let (ops, _, _) = mended(model(nodes));
    assert!(ops.iter().any(|o| o == "Loop"), "{ops:?}");
}

fn choice_of(then: NodeProto, other: NodeProto) -> ModelProto {
    let choose = with(
        with(node("If", &["going"], &["y"]), graph_attr("then_branch", branch(vec![then], "t"))),
        graph_attr("else_branch", branch(vec![other], "t")),
    );
    let nodes = vec![
        node("ReduceSum", &["x"], &["sum"]),
        with(node("Cast", &["sum"], &["keeps"]), int_attr("to", 9)),
        node("Squeeze", &["keeps"], &["going"]),
        choose,
    ];
    model(nodes)
}

#[test]
fn cheap_branches_of_one_shape_are_both_computed() {
    let (ops, report, _) = mended(choice_of(node("Relu", &["x"], &["t"]), node("Add", &["x", "c"], &["t"])));
    assert_eq!(ops[3..], ["Relu", "Add", "Where"]);
    assert_eq!(report.count(Rule::Where), 1);
}

#[test]
fn truth_values_are_selected_by_logic() {
    let (ops, _, _) = mended(choice_of(node("IsNaN", &["x"], &["t"]), node("IsInf", &["x"], &["t"])));
    assert_eq!(ops[3..], ["IsNaN", "IsInf", "Not", "And", "And", "Or"]);
}

#[test]
fn a_branch_of_another_shape_or_that_may_fail_stays_a_choice() {
    for then in [node("Concat", &["x", "c"], &["t"]), node("Gather", &["x", "one"], &["t"])] {
        let then = with(then, int_attr("axis", 0));
        let mut m = choice_of(then, node("Relu", &["x"], &["t"]));
        m.graph.as_mut().unwrap().initializer = vec![ints("one", &[1, 1], false)];
        let (ops, report, _) = mended(m);
        assert!(ops.iter().any(|o| o == "If"), "{ops:?}");
        assert_eq!(report.count(Rule::Branch), 1);
    }
}

#[test]
fn a_loop_carries_and_collects_only_what_is_needed() {
    let mut inner = body("cond_in", vec![node("Neg", &["u"], &["v"])]);
    inner.input.push(untyped("u"));
    inner.output.insert(2, untyped("v"));
    let repeat = with(node("Loop", &["trips", "", "x", "x"], &["y", "w", "rows"]), graph_attr("body", inner));
    crate::sym::reset();
    crate::te::expr::reset();
    let mut module = import(model_with(vec![repeat], vec![ints("trips", &[3], true)])).unwrap();
    mend(&mut module, &Dims::new(), 0).unwrap();
    module.verify(crate::error::Stage::Mend).unwrap();
    let kept = module.main.nodes.iter().find(|n| n.is("Loop")).unwrap();
    let inside: Vec<&str> = kept.regions().flat_map(|r| &r.nodes).map(|n| n.op_type.as_str()).collect();
    assert_eq!((kept.inputs.len(), kept.outputs.len(), inside), (3, 1, vec!["Add"]));
}

#[test]
fn a_branch_gives_only_what_is_needed() {
    let arm = |op: &str| {
        let mut b = branch(vec![with(node(op, &["x"], &["t"]), int_attr("axis", 0)), node("Exp", &["x"], &["e"])], "t");
        b.output.push(untyped("e"));
        b
    };
    let mut m = choice_of(node("Relu", &["x"], &["t"]), node("Relu", &["x"], &["t"]));
    let nodes = &mut m.graph.as_mut().unwrap().node;
    let choose = with(node("If", &["going"], &["y", "unused"]), graph_attr("then_branch", arm("Softmax")));
    nodes[3] = with(choose, graph_attr("else_branch", arm("LogSoftmax")));
    let (_, _, module) = mended(m);
    let kept = module.main.nodes.iter().find(|n| n.is("If")).unwrap();
    assert_eq!(kept.outputs.len(), 1);
    assert!(
        kept.regions().all(|r| r.outputs.len() == 1 && r.nodes.len() == 1),
        "{:?}",
        kept.regions().collect::<Vec<_>>()
    );
}

#[test]
fn a_sequence_without_members_has_one_place_to_insert_at() {
    let nodes = vec![
        node("ReduceSum", &["x"], &["sum"]),
        with(node("Cast", &["sum"], &["wide"]), int_attr("to", 7)),
        node("Squeeze", &["wide"], &["place"]),
        node("SequenceEmpty", &[], &["s"]),
        node("SequenceInsert", &["s", "x", "place"], &["t"]),
        node("SequenceAt", &["t", "last"], &["y"]),
    ];
    let (ops, report, _) = mended(model_with(nodes, vec![ints("last", &[-1], true)]));
    assert_eq!(ops.last().map(String::as_str), Some(trap::CHECK), "another place is an error: {ops:?}");
    assert_eq!(report.count(Rule::Sequence), 3);
}

#[test]
fn a_shape_that_constants_decide_is_known_while_packing() {
    let nodes = vec![
        with(node("Cast", &["list"], &["some"]), int_attr("to", 9)),
        node("Compress", &["list", "some"], &["kept"]),
        node("Unique", &["kept"], &["apart"]),
        with(node("Cast", &["apart"], &["y"]), int_attr("to", 1)),
    ];
    let (_, report, _) = mended(model_with(nodes, vec![ints("list", &[3, 0, 3, 5], false)]));
    let found: Vec<_> = report.splits.iter().map(|s| (s.level, s.rule)).collect();
    assert_eq!(found, [(Level::Const, Some(Rule::Fold)); 2]);
}

#[test]
fn a_long_loop_says_what_writing_it_out_would_take() {
    let repeat = with(node("Loop", &["trips", "", "x"], &["last", "y"]), graph_attr("body", body("cond_in", vec![])));
    let (_, report, _) = mended(model_with(vec![repeat], vec![ints("trips", &[10_000], true)]));
    let split = &report.splits[0];
    assert_eq!((split.rule, split.stays), (Some(Rule::Loop), true));
    let why = split.why.clone().unwrap();
    assert!(why.starts_with("writing it out would take ") && why.ends_with(" nodes, 1000 are allowed"), "{why}");
}
