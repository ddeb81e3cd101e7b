//! `graphmend-run bench --profile` and `--trace`: what they say about the kernel calls of a packed model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use graphmend::compiler::dtype::DType;
use graphmend::compiler::graph::{DimDecl, Module, Node, OutputDecl, ValueType};
use graphmend::compiler::onnx::write;
use serde_json::Value;

use crate::quickstart::graphmend_pack;
use crate::{Folder, graphmend_run, stdout};

/// A packed model: `relu(a: [m, 64] x b: [64, 32])`.
fn product(folder: &Folder) -> PathBuf {
    let mut module = Module { name: "product".into(), ..Module::default() };
    let ty = |dims: Vec<DimDecl>| ValueType::Tensor { elem: DType::F32.into(), shape: Some(dims) };
    let m = || DimDecl::Named("m".into());
    let a = module.add_value("a", ty(vec![m(), DimDecl::Fixed(64)]));
    let b = module.add_value("b", ty(vec![DimDecl::Fixed(64), DimDecl::Fixed(32)]));
    let wide = || ty(vec![m(), DimDecl::Fixed(32)]);
    let (product, y) = (module.add_value("product", wide()), module.add_value("y", wide()));
    module.main.inputs.extend([a, b]);
    module.main.outputs.push(y);
    for (name, op, inputs, output) in
        [("times", "MatMul", vec![Some(a), Some(b)], product), ("cut", "Relu", vec![Some(product)], y)]
    {
        module.main.nodes.push(Node {
            name: name.into(),
            domain: "ai.onnx".into(),
            op_type: op.into(),
            version: 17,
            inputs,
            outputs: vec![Some(output)],
            attrs: BTreeMap::new(),
        });
    }
    module.outputs.push(OutputDecl { name: "y".into(), ty: wide() });
    let (onnx, packed) = (folder.path("model.onnx"), folder.path("model.gmc"));
    write::write_file(&module, &onnx).unwrap();
    stdout(&graphmend_pack(&[&onnx, &"-o", &packed]));
    packed
}

#[test]
fn profile_tells_work_and_source_of_each_kernel_call() {
    let folder = Folder::new();
    let model = product(&folder);
    let args: &[&dyn AsRef<std::ffi::OsStr>] =
        &[&"bench", &model, &"--dim", &"m=100", &"--runs", &"5", &"--loads", &"1", &"--profile"];
    let out = stdout(&graphmend_run(args));
    for expected in ["GFLOP/s", "GB/s", "matrix product", "times", "cut"] {
        assert!(out.contains(expected), "{expected} in {out}");
    }
    let json: Value = serde_json::from_str(&stdout(&graphmend_run(&[args, &[&"--json"]].concat()))).unwrap();
    let (steps, classes) = (&json["profile"]["steps"], &json["profile"]["classes"]);
    assert_eq!((steps.as_array().unwrap().len(), classes.as_array().unwrap().len()), (1, 1));
    let step = &steps[0];
    // 64 multiply-adds and a maximum for each element.
    assert_eq!(step["ops"], 100 * 32 * (2 * 64 + 1));
    assert_eq!(step["read_bytes"], (100 * 64 + 64 * 32) * 4);
    assert_eq!(step["written_bytes"], 100 * 32 * 4);
    assert_eq!(step["nodes"], serde_json::json!(["times", "cut"]));
    assert!(step["gflops"].as_f64().unwrap() > 0.0 && step["gb_per_s"].as_f64().unwrap() > 0.0);
    assert_eq!(classes[0]["class"], "matrix product");
    assert!((classes[0]["share"].as_f64().unwrap() - 1.0).abs() < 1e-9);
}

#[test]
fn trace_has_a_slice_for_each_kernel_call_within_its_run() {
    let folder = Folder::new();
    let (model, path) = (product(&folder), folder.path("trace.json"));
    stdout(&graphmend_run(&[&"bench", &model, &"--runs", &"3", &"--loads", &"1", &"--trace", &path]));
    let trace: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().any(|e| e["ph"] == "M" && e["name"] == name);
    assert!(named("process_name") && named("thread_name"));

    let slices: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(slices.len(), 2 * 3);
    // In nanoseconds, which are whole.
    let span = |e: &Value| {
        let ns = |key: &str| (e[key].as_f64().unwrap() * 1e3).round() as i64;
        (ns("ts"), ns("ts") + ns("dur"))
    };
    let mut free = 0;
    for pair in slices.chunks(2) {
        let (run, call) = (span(pair[0]), span(pair[1]));
        assert!(free <= run.0 && run.0 <= call.0 && call.0 <= call.1 && call.1 <= run.1, "{free} {run:?} {call:?}");
        free = run.1;
        assert_eq!((&pair[0]["cat"], &pair[1]["cat"]), (&"run".into(), &"matrix product".into()));
        assert_eq!((&pair[1]["name"], &pair[1]["args"]["nodes"]), (&"times cut".into(), &"times cut".into()));
        assert_eq!(pair[1]["args"]["operations"], 32 * (2 * 64 + 1));
    }
}
