use super::*;
use crate::onnx::proto::*;
use crate::onnx::testing::*;

/// The faults of a model, one a line.
fn faults(model: &ModelProto) -> Vec<String> {
    match validate(model) {
        Err(crate::error::Error::Invalid(faults)) => faults.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

fn only(model: &ModelProto) -> String {
    let faults = faults(model);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].clone()
}

fn with_graph(change: impl FnOnce(&mut GraphProto)) -> ModelProto {
    let mut model = model(vec![node("Relu", &["x"], &["y"])]);
    change(model.graph.as_mut().unwrap());
    model
}

#[test]
fn a_sound_model_passes() {
    validate(&with_graph(|_| ())).unwrap();
}

#[test]
fn the_frame_of_a_model_is_checked() {
    let base = with_graph(|_| ());
    assert_eq!(only(&ModelProto { ir_version: None, ..base.clone() }), "the model has no IR version");
    let no_graph = ModelProto { graph: None, ..base.clone() };
    assert_eq!(only(&no_graph), "the model file is damaged or incomplete: it has no graph");
    let no_import = ModelProto { opset_import: vec![], ..base.clone() };
    assert_eq!(only(&no_import), "node 'Relu_0' (ai.onnx:Relu): the operator's set 'ai.onnx' is not imported");
    // The first versions of the format had no imports.
    validate(&ModelProto { ir_version: Some(2), ..no_import }).unwrap();
    let twice = ModelProto { opset_import: vec![import_of("", 21), import_of("ai.onnx", 20)], ..base.clone() };
    assert!(faults(&twice)[0].contains("imports operator set 'ai.onnx' twice, as 21 and as 20"));
    let zero = ModelProto { opset_import: vec![import_of("", 0)], ..base.clone() };
    assert!(faults(&zero)[0].contains("imports version 0"));
    let later = ModelProto { opset_import: vec![import_of("", 29)], ..base.clone() };
    let later = validate(&later).unwrap_err();
    assert!(later.is_refusal() && later.to_string().contains("version 29 of operator set 'ai.onnx', newer than 28"));
    let newer = validate(&ModelProto { ir_version: Some(99), ..base }).unwrap_err();
    assert!(newer.is_refusal() && newer.to_string().contains("IR version 99 is newer than 14"), "{newer}");
}

#[test]
fn values_are_defined_once_and_before_use() {
    let text = only(&model(vec![named("n", node("Add", &["x", "q"], &["y"]))]));
    assert_eq!(text, "node 'n' (ai.onnx:Add-21): input 'q' is defined nowhere in the graph");
    let text = only(&model(vec![node("Relu", &["x"], &["y"]), node("Relu", &["c"], &["y"])]));
    assert_eq!(text, "node 'Relu_1': value 'y' is produced here and by node 'Relu_0'");
    let text = only(&model(vec![node("Relu", &["x"], &["y"]), node("Relu", &["c"], &["x"])]));
    assert_eq!(text, "node 'Relu_1': value 'x' is produced here, but the graph defines it already");
    assert_eq!(only(&model(vec![])), "output 'y' of the graph is computed by no node");
    let text = only(&model(vec![
        named("a", node("Add", &["x", "r"], &["q"])),
        named("b", node("Relu", &["q"], &["r"])),
        node("Relu", &["x"], &["y"]),
    ]));
    assert_eq!(text, "the graph has a cycle: nodes 'a' and 'b' depend on each other (values 'r', 'q')");
    let text = only(&model(vec![named("a", node("Add", &["x", "y"], &["y"]))]));
    assert_eq!(text, "the graph has a cycle: node 'a' reads its own output 'y'");
    // Out of order, but without a cycle: can be put right.
    validate(&model(vec![node("Relu", &["q"], &["y"]), node("Relu", &["x"], &["q"])])).unwrap();
}

#[test]
fn inner_graphs_see_outward_only() {
    let cond = |then: GraphProto, other: GraphProto| {
        with(
            with(named("if", node("If", &["c"], &["y"])), graph_attr("then_branch", then)),
            graph_attr("else_branch", other),
        )
    };
    let relu = |from: &str, to: &str| branch(vec![node("Relu", &[from], &[to])], to);
    // Siblings may use the same names, and even shadow outer ones.
    validate(&model(vec![cond(relu("x", "t"), relu("x", "t"))])).unwrap();
    validate(&model(vec![cond(relu("x", "x"), branch(vec![], "x"))])).unwrap();
    let text = only(&model(vec![cond(relu("x", "t"), relu("t", "u"))]));
    assert!(text.ends_with("input 't' is defined nowhere in graph 'else_branch' of node 'if'"), "{text}");
    let text = faults(&model(vec![cond(relu("x", "t"), relu("y", "u"))]));
    assert!(text[0].contains("input 'y' is defined nowhere"), "{text:?}");
    let text = only(&model(vec![cond(relu("x", "t"), branch(vec![], "nothing"))]));
    assert!(text.contains("output 'nothing' of graph 'else_branch' of node 'if' is computed by no node"), "{text}");
}

#[test]
fn nodes_need_an_operator_and_its_inputs() {
    let mut nameless = node("", &["x"], &["y"]);
    nameless.op_type = None;
    assert_eq!(only(&model(vec![nameless])), "node 'node_0': the node has no operator");
    let text = only(&model(vec![named("cat", node("Concat", &[], &["y"]))]));
    assert_eq!(text, "node 'cat' (ai.onnx:Concat-21): Concat needs at least 1 input, but has 0");
    let text = only(&model(vec![node("Add", &["x", ""], &["y"])]));
    assert!(text.contains("input 1 of Add cannot be left out"), "{text}");
    let double = with(with(node("Elu", &["x"], &["y"]), float_attr("alpha", 1.0)), float_attr("alpha", 2.0));
    assert!(only(&model(vec![double])).contains("attribute 'alpha' is given twice"));
    let empty = with(node("Elu", &["x"], &["y"]), attr("alpha"));
    assert!(only(&model(vec![empty])).contains("attribute 'alpha' has no value of a known kind"));
    let loose = with(node("Elu", &["x"], &["y"]), ref_attr("alpha", "a"));
    assert!(only(&model(vec![loose])).contains("refers to 'a', but the node is in no function"));
}

#[test]
fn tensors_and_declared_shapes_are_checked() {
    let text = only(&with_graph(|g| g.initializer = vec![floats("w", &[1 << 32, 1 << 32], &[])]));
    assert!(text.starts_with("initializer 'w': shape [4294967296, 4294967296] is too large"), "{text}");
    let text = only(&with_graph(|g| g.initializer = vec![floats("w", &[3], &[1.0])]));
    assert!(text.starts_with("initializer 'w': its data has 1 entries"), "{text}");
    let text = only(&with_graph(|g| g.initializer = vec![floats("w", &[1], &[1.0]), floats("w", &[1], &[1.0])]));
    assert_eq!(text, "the graph has two initializers 'w'");
    let text = only(&with_graph(|g| g.input.push(value("big", &[1 << 40, 1 << 40]))));
    assert!(text.contains("declared type of 'big': shape") && text.contains("too large"), "{text}");
    validate(&with_graph(|g| g.input.push(value("dynamic", &[-1, 3])))).unwrap();
    assert_eq!(only(&with_graph(|g| g.input.push(value("x", &[2])))), "the graph has two inputs 'x'");
    assert_eq!(only(&with_graph(|g| g.input.push(untyped("q")))), "input 'q' of the model has no type");
    let mut odd = value("odd", &[]);
    if let Some(TypeValue::Tensor(t)) = odd.r#type.as_mut().and_then(|ty| ty.value.as_mut()) {
        t.elem_type = Some(77);
    }
    let text = only(&with_graph(|g| g.input.push(odd)));
    assert_eq!(text, "declared type of 'odd': element type 77 is unknown");
}

#[test]
fn tensors_of_more_dimensions_than_are_supported_are_refused() {
    validate(&with_graph(|g| g.input.push(value("many", &[-1; 32])))).unwrap();
    let error = validate(&with_graph(|g| g.input.push(value("many", &[-1; 33])))).unwrap_err();
    let text = "not supported: declared type of 'many': rank 33 is more than 32, the most that is supported";
    assert_eq!(error.to_string(), text);
    let error = validate(&with_graph(|g| g.initializer = vec![floats("w", &[1; 33], &[1.0])])).unwrap_err();
    assert!(error.is_refusal(), "{error}");
}

#[test]
fn functions_are_checked() {
    let relu = |name: &str| function(name, &["a"], &["b"], vec![node("Relu", &["a"], &["b"])]);
    let with = |functions: Vec<FunctionProto>, nodes: Vec<NodeProto>| ModelProto { functions, ..model(nodes) };
    validate(&with(vec![relu("R")], vec![call("k", "R", &["x"], &["y"])])).unwrap();
    let text = only(&with(vec![relu("R"), relu("R")], vec![call("k", "R", &["x"], &["y"])]));
    assert_eq!(text, "function 'f:R' is defined twice");
    let text = only(&with(vec![relu("R")], vec![call("k", "R", &["x", "c"], &["y"])]));
    assert!(text.contains("takes 1 inputs and gives 1 outputs, the call has 2 and 1"), "{text}");
    let calling = |name: &str, other: &str| function(name, &["a"], &["b"], vec![call("k", other, &["a"], &["b"])]);
    let text = only(&with(vec![calling("P", "Q"), calling("Q", "P")], vec![call("k", "P", &["x"], &["y"])]));
    assert_eq!(text, "function 'f:P' calls itself, directly or through others");
    let text = only(&with(vec![calling("P", "P")], vec![node("Relu", &["x"], &["y"])]));
    assert_eq!(text, "function 'f:P' calls itself, directly or through others");
    let text = only(&with(vec![function("E", &["a"], &["b"], vec![])], vec![node("Relu", &["x"], &["y"])]));
    assert_eq!(text, "output 'b' of function 'f:E' is computed by no node");
    let text = only(&with(vec![], vec![call("k", "Unknown", &["x"], &["y"])]));
    assert_eq!(text, "node 'k' (f:Unknown): the operator's set 'f' is not imported");
    let undeclared = function("U", &["a"], &["b"], vec![with_ref(node("Elu", &["a"], &["b"]))]);
    let text = only(&with(vec![undeclared], vec![node("Relu", &["x"], &["y"])]));
    assert!(text.contains("attribute 'alpha' refers to 'missing', which the function does not declare"), "{text}");
}

fn with_ref(node: NodeProto) -> NodeProto {
    with(node, ref_attr("alpha", "missing"))
}

#[test]
fn the_list_of_faults_has_an_end() {
    let nodes = (0..1000).map(|n| node("Add", &["x", "q"], &[&format!("o{n}")])).collect();
    assert_eq!(faults(&model(nodes)).len(), MOST_FAULTS);
}
