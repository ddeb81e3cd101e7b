//! `graphmend-pack --tune`.

use std::collections::BTreeMap;

use graphmend::compiler::dtype::DType;
use graphmend::compiler::graph::{DimDecl, Module, Node, OutputDecl, ValueType};
use graphmend::compiler::onnx::write;

use super::*;

/// A folder with `model.onnx`, the matrix product of `x: [n, 32]` and `w: [32, 48]`.
fn with_model() -> Folder {
    let mut module = Module { name: "product".into(), ..Module::default() };
    let ty = |columns| ValueType::Tensor {
        elem: DType::F32.into(),
        shape: Some(vec![DimDecl::Named("n".into()), DimDecl::Fixed(columns)]),
    };
    let (x, y) = (module.add_value("x", ty(32)), module.add_value("y", ty(48)));
    let w = module.add_value("w", ValueType::fixed(DType::F32, &[32, 48]));
    module.main.inputs = vec![x, w];
    module.main.outputs = vec![y];
    module.main.nodes.push(Node {
        name: "product".into(),
        domain: "ai.onnx".into(),
        op_type: "MatMul".into(),
        version: 13,
        inputs: vec![Some(x), Some(w)],
        outputs: vec![Some(y)],
        attrs: BTreeMap::new(),
    });
    module.outputs.push(OutputDecl { name: "y".into(), ty: ty(48) });
    let folder = Folder::new();
    write::write_file(&module, folder.path("model.onnx")).unwrap();
    folder
}

/// Packs it; measurements are kept in the folder.
fn pack(folder: &Folder, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphmend-pack"));
    command.current_dir(folder.path("")).arg("model.onnx").args(args);
    command.env("GRAPHMEND_CACHE_DIR", folder.path("cache")).output().unwrap()
}

/// The product by the packed model, of matrices of small integers.
fn product(folder: &Folder) -> Vec<f64> {
    let matrix = |name: &str, shape: [usize; 2]| {
        let numbers = (0..shape[0] * shape[1]).flat_map(|k| ((k % 7) as f32 - 3.0).to_le_bytes());
        let array = Array { dtype: graphmend::DType::F32, shape: shape.to_vec(), bytes: numbers.collect() };
        npy::write(folder.path(name), &array).unwrap();
        format!("{}={}", &name[..1], folder.path(name).display())
    };
    let (x, w, y) = (matrix("x.npy", [20, 32]), matrix("w.npy", [32, 48]), folder.path("y.npy"));
    stdout(&graphmend_run(&[&"run", &folder.path("model.gmc"), &"-i", &x, &"-i", &w, &"-o", &y]));
    doubled(&y)
}

#[test]
fn schedules_are_measured_once_and_results_stay_the_same() {
    let folder = with_model();
    stdout(&pack(&folder, &["--dim", "n=20"]));
    let expected = product(&folder);

    let tuned = |more: &[&str]| stdout(&pack(&folder, &[&["--dim", "n=20", "--tune"], more].concat()));
    let first: Value = serde_json::from_str(&tuned(&["--json"])).unwrap();
    assert_eq!((&first["tuned"]["kernels"], &first["tuned"]["measured"]), (&1.into(), &1.into()), "{first}");
    assert_eq!(product(&folder), expected);

    let kept = folder.path("cache/schedules.json");
    assert!(kept.is_file());
    let bytes = std::fs::read(folder.path("model.gmc")).unwrap();
    let again = tuned(&[]);
    assert!(again.contains("0 of 1 kernels measured"), "{again}");
    assert!(bytes == std::fs::read(folder.path("model.gmc")).unwrap());

    // What another version measured counts for nothing, and a file that is damaged for as much.
    for text in ["{\"version\": \"0\", \"choices\": {}}", "{"] {
        std::fs::write(&kept, text).unwrap();
        assert!(tuned(&[]).contains("1 of 1 kernels measured"));
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    let folder = with_model();
    for (args, says) in [
        (&["--tune"][..], "input 'x' has the open dimension 'n'"),
        (&["--tune", "--target", "rv64gcv"], "target 'rv64gcv' is not this machine's processor"),
        (&["--tune", "--emit", "c"], "source is for another one"),
    ] {
        let (status, message) = failure(&pack(&folder, args));
        assert!(status == 1 && message.contains(says), "{message}");
    }
    assert!(!folder.path("model.gmc").exists());
}
