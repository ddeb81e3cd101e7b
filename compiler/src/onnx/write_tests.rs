use std::sync::Arc;

use super::*;
use crate::dtype::DType;
use crate::graph::OutputDecl;
use crate::import::import;
use crate::onnx::testing::*;
use crate::onnx::validate::validate;

/// Writes a module, reads it again and gives both forms.
fn round(module: &Module) -> (ModelProto, Module) {
    module.verify(Stage::Import).unwrap();
    let written = to_model(module).unwrap();
    validate(&written).unwrap();
    let read = ModelProto::decode(written.encode_to_vec().as_slice()).unwrap();
    assert_eq!(read, written);
    let module = import(read).unwrap();
    (written, module)
}

fn names(nodes: &[NodeProto]) -> Vec<(&str, Vec<&str>, Vec<&str>)> {
    nodes
        .iter()
        .map(|node| {
            (
                node.op_type.as_deref().unwrap_or(""),
                node.input.iter().map(String::as_str).collect(),
                node.output.iter().map(String::as_str).collect(),
            )
        })
        .collect()
}

#[test]
fn writing_and_reading_reaches_a_fixed_point() {
    let branch_of = |op: &str| branch(vec![node(op, &["x"], &["t"])], "t");
    let choose = with(
        with(node("If", &["c"], &["y"]), graph_attr("then_branch", branch_of("Relu"))),
        graph_attr("else_branch", branch_of("Neg")),
    );
    let (first, again) = round(&import(model(vec![choose])).unwrap());
    let (second, _) = round(&again);
    assert_eq!(first, second);
    // Names of sibling graphs have become different.
    let graphs: Vec<&GraphProto> =
        first.graph.as_ref().unwrap().node[0].attribute.iter().filter_map(|a| a.g.as_ref()).collect();
    assert_ne!(graphs[0].output[0].name, graphs[1].output[0].name);
}

#[test]
fn outputs_keep_their_names_whatever_stands_behind_them() {
    let mut module = import(model(vec![node("Relu", &["x"], &["y"])])).unwrap();
    let (x, y) = (module.main.inputs[0], module.main.outputs[0]);
    let constant = module.add_value("w", ValueType::Unknown);
    module.main.constants.push((constant, Arc::new(TensorData::from_f32s(&[1.0, 2.0]))));
    // The input itself, a constant, and one value twice.
    module.main.outputs = vec![x, constant, y, y];
    module.outputs = ["p", "q", "r", "s"]
        .map(|name| OutputDecl { name: name.into(), ty: ValueType::fixed(DType::F32, &[2]) })
        .to_vec();
    let (written, again) = round(&module);
    let graph = written.graph.as_ref().unwrap();
    let outputs: Vec<&str> = graph.output.iter().filter_map(|o| o.name.as_deref()).collect();
    assert_eq!(outputs, ["p", "q", "r", "s"]);
    assert_eq!(
        names(&graph.node),
        [
            ("Relu", vec!["x"], vec!["r"]),
            ("Identity", vec!["x"], vec!["p"]),
            ("Identity", vec!["w"], vec!["q"]),
            ("Identity", vec!["r"], vec!["s"]),
        ]
    );
    assert_eq!(again.main.inputs.len(), 2);
}

#[test]
fn an_input_that_is_an_output_under_its_own_name_needs_no_node() {
    let mut given = model(vec![]);
    given.graph.as_mut().unwrap().output = vec![value("x", &[2])];
    let (written, _) = round(&import(given).unwrap());
    assert!(written.graph.unwrap().node.is_empty());
}

#[test]
fn operators_of_another_version_go_into_functions() {
    let mut module = import(model(vec![
        node("Relu", &["x"], &["a"]),
        node("Neg", &["a"], &["b"]),
        node("Softmax", &["b"], &["d"]),
        with(node("Elu", &["d"], &["y"]), float_attr("alpha", 0.5)),
    ]))
    .unwrap();
    module.main.nodes[2].version = 11;
    module.main.nodes[3].version = 11;
    module.main.nodes[1].version = 21;
    module.main.nodes.push(Node { name: "extra".into(), version: 21, ..module.main.nodes[0].clone() });
    let fresh = module.add_value("a2", ValueType::Unknown);
    module.main.nodes[4].outputs = vec![Some(fresh)];
    let (written, again) = round(&module);
    assert_eq!(written.functions.len(), 2);
    assert!(written.functions.iter().all(|f| f.opset_import[0].version == Some(11)));
    let versions: Vec<(&str, i64)> = again.main.nodes.iter().map(|n| (n.op_type.as_str(), n.version)).collect();
    assert_eq!(versions, [("Relu", 21), ("Neg", 21), ("Softmax", 11), ("Elu", 11), ("Relu", 21)]);
    assert_eq!(again.main.nodes[3].attr_float("alpha", 1.0).unwrap(), 0.5);
}

#[test]
fn strings_and_odd_types_survive() {
    let mut module = import(model(vec![node("Relu", &["x"], &["y"])])).unwrap();
    let texts = TensorData::from_strings(vec![2], vec![b"a".to_vec(), vec![0xff]]);
    let nibbles = TensorData::new(ElemType::I4, vec![3], vec![0x21, 0x03]).unwrap();
    for data in [texts.clone(), nibbles.clone()] {
        let id = module.add_value("k", data.value_type());
        module.main.constants.push((id, Arc::new(data)));
    }
    let (_, again) = round(&module);
    let data: Vec<&TensorData> = again.main.constants.iter().map(|(_, data)| data.as_ref()).collect();
    assert_eq!(data, [&texts, &nibbles]);
}

#[test]
fn large_weights_can_go_to_a_file_of_their_own() {
    let mut given = model(vec![node("Add", &["x", "w"], &["y"])]);
    let weights: Vec<f32> = (0..600).map(|n| n as f32).collect();
    given.graph.as_mut().unwrap().initializer = vec![floats("w", &[300, 2], &weights), floats("s", &[], &[1.0])];
    let module = import(given).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    let mut written = to_model(&module).unwrap();
    externalise(written.graph.as_mut().unwrap(), &path).unwrap();
    std::fs::write(&path, written.encode_to_vec()).unwrap();
    assert!(path.metadata().unwrap().len() < 1000);
    let again = crate::import::import_file(&path).unwrap().module;
    assert_eq!(again.main.constants[0].1, module.main.constants[0].1);
    write_file(&module, &path).unwrap();
    assert!(path.metadata().unwrap().len() > 2400);
}

#[test]
fn checks_of_the_compiler_are_not_written() {
    let mut module = import(model(vec![node("Relu", &["x"], &["y"])])).unwrap();
    module.main.nodes.push(crate::graph::Node {
        name: "guard".into(),
        domain: crate::mend::trap::DOMAIN.into(),
        op_type: crate::mend::trap::CHECK.into(),
        version: 1,
        inputs: vec![Some(module.main.inputs[1])],
        ..Default::default()
    });
    let (written, _) = round(&module);
    assert_eq!(names(&written.graph.as_ref().unwrap().node), [("Relu", vec!["x"], vec!["y"])]);
    let domains: Vec<_> = written.opset_import.iter().map(|o| o.domain.as_deref()).collect();
    assert_eq!(domains, [Some("")]);
}
