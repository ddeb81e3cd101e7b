use std::path::PathBuf;

use super::*;
use crate::graph::DimDecl;
use crate::onnx::proto::*;
use crate::onnx::testing::*;

/// Operators in the order of the main graph.
fn operators(module: &Module) -> Vec<&str> {
    module.main.nodes.iter().map(|node| node.op_type.as_str()).collect()
}

fn name_of(module: &Module, id: Option<ValueId>) -> &str {
    id.map_or("", |id| &module.value(id).name)
}

#[test]
fn initializers_are_constants_even_when_they_are_inputs() {
    let mut given = model(vec![node("Add", &["x", "c"], &["y"])]);
    given.graph.as_mut().unwrap().initializer = vec![floats("c", &[2], &[1.0, 2.0])];
    let module = import(given).unwrap();
    assert_eq!(module.main.inputs.len(), 1);
    assert_eq!(name_of(&module, module.main.nodes[0].input(0)), "x");
    let (id, data) = &module.main.constants[0];
    assert_eq!(module.main.nodes[0].input(1), Some(*id));
    assert_eq!(data.to_f64s(), Some(vec![1.0, 2.0]));
    assert_eq!(module.outputs[0].name, "y");
}

#[test]
fn constant_nodes_of_every_form_become_constants() {
    let constant = |attribute: AttributeProto, name: &str| with(node("Constant", &[], &[name]), attribute);
    let typed = |name: &str, ty: i32| AttributeProto { r#type: Some(ty), ..attr(name) };
    use attribute_type as kind;
    let sparse = SparseTensorProto {
        values: Some(floats("", &[1], &[3.0])),
        indices: Some(TensorProto { dims: vec![1], data_type: Some(7), int64_data: vec![1], ..Default::default() }),
        dims: vec![2],
    };
    let module = import(model(vec![
        constant(AttributeProto { t: Some(floats("", &[1], &[1.5])), ..typed("value", kind::TENSOR) }, "k0"),
        constant(AttributeProto { i: Some(7), ..typed("value_int", kind::INT) }, "k1"),
        constant(AttributeProto { ints: vec![7, 8], ..typed("value_ints", kind::INTS) }, "k2"),
        constant(float_attr("value_float", 0.5), "k3"),
        constant(AttributeProto { floats: vec![], ..typed("value_floats", kind::FLOATS) }, "k4"),
        constant(AttributeProto { s: Some(b"s".to_vec()), ..typed("value_string", kind::STRING) }, "k5"),
        constant(AttributeProto { strings: vec![b"t".to_vec()], ..typed("value_strings", kind::STRINGS) }, "k6"),
        constant(AttributeProto { sparse_tensor: Some(sparse), ..typed("sparse_value", kind::SPARSE_TENSOR) }, "k7"),
        node("Relu", &["x"], &["y"]),
    ]))
    .unwrap();
    assert_eq!(operators(&module), ["Relu"]);
    let types: Vec<String> = module.main.constants.iter().map(|(_, data)| data.value_type().to_string()).collect();
    assert_eq!(types, ["f32[1]", "i64[]", "i64[2]", "f32[]", "f32[0]", "string[]", "string[1]", "f32[2]"]);
    assert_eq!(module.main.constants[7].1.to_f64s(), Some(vec![0.0, 3.0]));
    assert_eq!(module.main.constants[5].1.strings, [b"s".to_vec()]);

    let none = import(model(vec![node("Constant", &[], &["y"])])).unwrap_err();
    assert!(none.to_string().contains("Constant takes exactly one attribute, but has 0"), "{none}");
}

#[test]
fn branches_capture_outer_values_and_may_reuse_names() {
    let then = branch(vec![node("Add", &["x", "a"], &["x2"]), node("Relu", &["x2"], &["r"])], "r");
    // Shadows `a` after reading it.
    let other = branch(vec![node("Neg", &["a"], &["a"]), node("Relu", &["a"], &["r"])], "r");
    let choose = with(
        with(named("pick", node("If", &["c"], &["y"])), graph_attr("then_branch", then)),
        graph_attr("else_branch", other),
    );
    let module = import(model(vec![node("Relu", &["x"], &["a"]), choose])).unwrap();
    let a = module.main.nodes[0].output(0);
    let then = module.main.nodes[1].require_region("then_branch").unwrap();
    let other = module.main.nodes[1].require_region("else_branch").unwrap();
    assert_eq!(then.nodes[0].inputs, [Some(module.main.inputs[0]), a]);
    assert_eq!(other.nodes[0].input(0), a);
    assert_ne!(other.nodes[0].output(0), a);
    assert_eq!(other.nodes[1].input(0), other.nodes[0].output(0));
    assert_ne!(then.outputs, other.outputs);
}

#[test]
fn left_out_operands_are_none_and_declared_types_are_kept() {
    let mut given = model(vec![node("Clip", &["x", "", "c"], &["t"]), node("Dropout", &["t"], &["y", ""])]);
    given.graph.as_mut().unwrap().value_info = vec![value("t", &[-1, 4])];
    let module = import(given).unwrap();
    assert_eq!(module.main.nodes[0].input(1), None);
    assert!(module.main.nodes[0].input(2).is_some());
    assert_eq!(module.main.nodes[1].outputs.len(), 2);
    assert_eq!(module.main.nodes[1].output(1), None);
    let t = module.main.nodes[0].output(0).unwrap();
    assert_eq!(module.value(t).ty.shape(), Some(&[DimDecl::Unknown, DimDecl::Fixed(4)][..]));
    assert_eq!(module.main.nodes[0].name, "Clip_0");
    assert_eq!(module.main.nodes[0].label(), "ai.onnx:Clip-21");
}

#[test]
fn nodes_out_of_order_are_put_right() {
    let module = import(model(vec![node("Neg", &["q"], &["y"]), node("Relu", &["x"], &["q"])])).unwrap();
    assert_eq!(operators(&module), ["Relu", "Neg"]);
}

#[test]
fn functions_are_inlined_with_their_attributes_and_versions() {
    let mut scale = function(
        "Scale",
        &["a", "extra"],
        &["b", "same"],
        vec![
            with(named("e", node("Elu", &["a"], &["t"])), ref_attr("alpha", "slope")),
            with(node("LeakyRelu", &["t"], &["u"]), ref_attr("alpha", "leak")),
            with(node("Selu", &["u"], &["v"]), ref_attr("gamma", "given")),
            node("Clip", &["v", "extra"], &["b"]),
            node("Identity", &["a"], &["same"]),
        ],
    );
    scale.opset_import = vec![import_of("", 18)];
    scale.attribute = vec!["slope".into(), "given".into()];
    scale.attribute_proto = vec![float_attr("leak", 0.25)];
    let outer =
        function("Outer", &["p"], &["q"], vec![with(call("s", "Scale", &["p"], &["q"]), float_attr("slope", 2.0))]);
    let given = ModelProto {
        functions: vec![scale, outer],
        ..model(vec![call("first", "Outer", &["x"], &["m"]), call("second", "Outer", &["m"], &["y"])])
    };
    let module = import(given).unwrap();
    assert_eq!(module.inlined_calls, 4);
    assert_eq!(
        operators(&module),
        ["Elu", "LeakyRelu", "Selu", "Clip", "Identity", "Elu", "LeakyRelu", "Selu", "Clip", "Identity"]
    );
    let nodes = &module.main.nodes;
    assert!(nodes.iter().all(|node| node.version == 18));
    assert_eq!(nodes[0].name, "first/s/e");
    assert_eq!(nodes[0].attr_float("alpha", 9.0).unwrap(), 2.0);
    assert_eq!(nodes[1].attr_float("alpha", 9.0).unwrap(), 0.25, "the default");
    assert_eq!(nodes[2].attr_float("gamma", 9.0).unwrap(), 9.0, "not given by the call");
    assert_eq!(nodes[3].input(1), None, "the call leaves this input out");
    assert_eq!(nodes[5].input(0), nodes[3].output(0));
    assert_eq!(module.main.outputs, [nodes[8].output(0).unwrap()]);
}

#[test]
fn overloads_are_told_apart_and_regions_in_functions_are_made_anew() {
    let choose = |then: &str| {
        let then = branch(vec![node(then, &["a"], &["t"])], "t");
        let other = branch(vec![node("Neg", &["a"], &["t"])], "t");
        with(with(node("If", &["cond"], &["b"]), graph_attr("then_branch", then)), graph_attr("else_branch", other))
    };
    let one = function("F", &["a", "cond"], &["b"], vec![choose("Relu")]);
    let two =
        FunctionProto { overload: Some("two".into()), ..function("F", &["a", "cond"], &["b"], vec![choose("Abs")]) };
    let second = NodeProto { overload: Some("two".into()), ..call("k2", "F", &["m", "c"], &["n"]) };
    let given = ModelProto {
        functions: vec![one, two],
        ..model(vec![call("k1", "F", &["x", "c"], &["m"]), second, call("k3", "F", &["n", "c"], &["y"])])
    };
    let module = import(given).unwrap();
    let then: Vec<&str> = module
        .main
        .nodes
        .iter()
        .map(|node| node.require_region("then_branch").unwrap().nodes[0].op_type.as_str())
        .collect();
    assert_eq!(then, ["Relu", "Abs", "Relu"]);
    assert_eq!(module.node_count(), 9);
}

#[test]
fn a_function_may_pass_its_input_through() {
    let pass = function("Pass", &["a"], &["a"], vec![]);
    let given = ModelProto {
        functions: vec![pass],
        ..model(vec![call("k", "Pass", &["x"], &["m"]), node("Relu", &["m"], &["y"])])
    };
    let module = import(given).unwrap();
    assert_eq!(module.main.nodes[0].input(0), Some(module.main.inputs[0]));
}

#[test]
fn graphs_given_to_functions_as_attributes_are_copied_for_each_use() {
    let body = |graph_of: &str| AttributeProto {
        r#type: Some(attribute_type::GRAPH),
        ref_attr_name: Some("work".into()),
        ..attr(graph_of)
    };
    let mut choose = function(
        "Choose",
        &["cond"],
        &["b"],
        vec![with(with(node("If", &["cond"], &["b"]), body("then_branch")), body("else_branch"))],
    );
    choose.attribute = vec!["work".into()];
    let work = branch(vec![node("Relu", &["x"], &["t"])], "t");
    let given = ModelProto {
        functions: vec![choose],
        ..model(vec![with(call("k", "Choose", &["c"], &["y"]), graph_attr("work", work))])
    };
    let module = import(given).unwrap();
    let regions: Vec<&Region> = module.main.nodes[0].regions().collect();
    assert_eq!(regions.len(), 2);
    assert_ne!(regions[0].outputs, regions[1].outputs);
    assert_eq!(regions[0].nodes[0].input(0), Some(module.main.inputs[0]));
}

#[test]
fn functions_that_explode_are_refused() {
    let mut functions = vec![function("F0", &["a"], &["b"], vec![node("Relu", &["a"], &["b"])])];
    for n in 1..40 {
        let below = format!("F{}", n - 1);
        let nodes = vec![call("p", &below, &["a"], &["t"]), call("q", &below, &["t"], &["b"])];
        functions.push(function(&format!("F{n}"), &["a"], &["b"], nodes));
    }
    let given = ModelProto { functions, ..model(vec![call("k", "F39", &["x"], &["y"])]) };
    let error = import_within(given, 1000).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("inlining of functions gives more than"), "{error}");
}

#[test]
fn damaged_models_never_panic() {
    use prost::Message;
    let then = branch(vec![with(call("s", "Scale", &["w"], &["t"]), float_attr("slope", 2.0))], "t");
    let other = branch(vec![node("Neg", &["x"], &["t"])], "t");
    let choose =
        with(with(node("If", &["c"], &["y"]), graph_attr("then_branch", then)), graph_attr("else_branch", other));
    let mut scale =
        function("Scale", &["a"], &["b"], vec![with(node("Elu", &["a"], &["b"]), ref_attr("alpha", "slope"))]);
    scale.attribute = vec!["slope".into()];
    let mut given = ModelProto { functions: vec![scale], ..model(vec![choose]) };
    let graph = given.graph.as_mut().unwrap();
    graph.initializer = vec![floats("w", &[2], &[1.0, 2.0])];
    graph.sparse_initializer = vec![SparseTensorProto {
        values: Some(floats("s", &[1], &[3.0])),
        indices: Some(TensorProto { dims: vec![1], data_type: Some(7), int64_data: vec![1], ..Default::default() }),
        dims: vec![2],
    }];
    import(given.clone()).unwrap();
    let good = given.encode_to_vec();
    let mut accepted = 0;
    for place in 0..good.len() {
        for change in [0x01, 0x08, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[place] ^= change;
            let imported = load::load_bytes(bytes, None).and_then(|loaded| import(loaded.model));
            match imported {
                Ok(module) => {
                    accepted += 1;
                    assert!(!module.to_string().is_empty());
                    crate::onnx::write::to_model(&module).unwrap();
                }
                Err(error) => assert!(!matches!(error, Error::Internal { .. }), "byte {place}: {error}"),
            }
        }
    }
    assert!(accepted > 0);
}

/// The folder of shared models beside the repository, where it exists.
fn shared(name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(name);
    folder.is_dir().then_some(folder)
}

fn folders(name: &str) -> Vec<PathBuf> {
    let Some(folder) = shared(name) else { return Vec::new() };
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("model.onnx").is_file())
        .collect();
    all.sort();
    all
}

#[test]
fn shared_models_import_and_can_be_written_again() {
    for folder in folders("mending").into_iter().chain(folders("reports")).chain(folders("models")) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        if FAULTY.iter().any(|(faulty, _)| *faulty == name) {
            continue;
        }
        let module = import_file(folder.join("model.onnx")).unwrap_or_else(|e| panic!("{name}: {e}")).module;
        let written = crate::onnx::write::to_model(&module).unwrap_or_else(|e| panic!("{name}: {e}"));
        let again = import(written.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(again.node_count(), module.node_count(), "{name}");
        assert_eq!(crate::onnx::write::to_model(&again).unwrap(), written, "{name}");
    }
}

/// Shared models that the format itself forbids, with what the error must say.
const FAULTY: [(&str, &[&str]); 5] = [
    ("R063", &["Concat needs at least 1 input", "node 'Concat_0'"]),
    ("R067", &["'w'", "leaves the model folder"]),
    ("R069", &["depend on each other", "'Add_0'", "'Relu_1'"]),
    ("R073", &["'w'", "too large", "element count overflows"]),
    ("R075", &["damaged or incomplete"]),
];

#[test]
fn shared_faulty_models_end_in_clear_errors() {
    for folder in folders("reports") {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let Some((_, wanted)) = FAULTY.iter().find(|(faulty, _)| *faulty == name) else { continue };
        let error = import_file(folder.join("model.onnx")).unwrap_err().to_string();
        for text in *wanted {
            assert!(error.contains(text), "{name}: {error}");
        }
    }
}

#[test]
fn the_digest_covers_external_weights() {
    let Some(folder) = shared("reports").map(|reports| reports.join("R018")).filter(|folder| folder.is_dir()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(folder.join("model.onnx"), dir.path().join("model.onnx")).unwrap();
    let digest = |weights: &str| {
        let bytes = std::fs::read(folder.join(weights)).unwrap();
        std::fs::write(dir.path().join("weights.data"), bytes).unwrap();
        import_file(dir.path().join("model.onnx")).unwrap().content_digest
    };
    let first = digest("weights.data");
    assert_ne!(digest("weights_changed.data"), first);
    assert_eq!(digest("weights.data"), first);
}
