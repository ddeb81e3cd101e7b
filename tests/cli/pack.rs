//! `graphmend-pack` as a program: what it writes and prints, and what it does not overwrite.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use graphmend::compiler::dtype::DType;
use graphmend::compiler::graph::{DimDecl, Module, Node, OutputDecl, ValueType};
use graphmend::compiler::onnx::write;

use crate::{Folder, failure, stdout};

fn command(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphmend-pack"));
    command.current_dir(folder.path("")).args(args);
    command
}

fn pack(folder: &Folder, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

/// A folder with `model.onnx`, a `Relu` of `x: [n, 4]`.
pub(crate) fn with_model() -> Folder {
    let mut module = Module { name: "relu".into(), ..Module::default() };
    let ty =
        ValueType::Tensor { elem: DType::F32.into(), shape: Some(vec![DimDecl::Named("n".into()), DimDecl::Fixed(4)]) };
    let (x, y) = (module.add_value("x", ty.clone()), module.add_value("y", ty.clone()));
    module.main.inputs.push(x);
    module.main.outputs.push(y);
    module.main.nodes.push(Node {
        name: "relu".into(),
        domain: "ai.onnx".into(),
        op_type: "Relu".into(),
        version: 17,
        inputs: vec![Some(x)],
        outputs: vec![Some(y)],
        attrs: BTreeMap::new(),
    });
    module.outputs.push(OutputDecl { name: "y".into(), ty });
    let folder = Folder::new();
    write::write_file(&module, folder.path("model.onnx")).unwrap();
    folder
}

fn files(folder: &Folder) -> Vec<String> {
    let names = fs::read_dir(folder.path("")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn outputs_overwrite_neither_the_model_nor_each_other() {
    let folder = with_model();
    let model = fs::read(folder.path("model.onnx")).unwrap();
    for args in [
        &["-o", "model.onnx"][..],
        &["--emit-onnx", "model.onnx"],
        &["--emit", "plan=./model.onnx"],
        &["-o", "a", "--emit-onnx", "a"],
        &["-o", "a", "--emit", "plan=b", "--emit", "asm=./b"],
    ] {
        let (status, message) = failure(&pack(&folder, &[&["model.onnx"][..], args].concat()));
        assert_eq!(status, 1, "{args:?}");
        assert!(message.contains("overwrite the model") || message.contains("two outputs go to one file"), "{message}");
        assert_eq!(files(&folder), ["model.onnx"], "{args:?}");
    }
    assert_eq!(fs::read(folder.path("model.onnx")).unwrap(), model);
}

#[test]
fn a_packed_file_does_not_go_to_standard_output_by_a_dash() {
    let folder = with_model();
    for args in [["-o", "-"], ["--emit-onnx", "-"], ["--emit", "plan=-"]] {
        let (status, message) = failure(&pack(&folder, &[&["model.onnx"][..], &args].concat()));
        assert_eq!(status, 1, "{args:?}");
        assert!(message.contains("name a file"), "{message}");
        assert_eq!(files(&folder), ["model.onnx"], "{args:?}");
    }
}

#[test]
fn nothing_else_is_left_beside_the_outputs() {
    let folder = with_model();
    fs::write(folder.path("a.gmc.part"), "mine").unwrap();
    stdout(&pack(&folder, &["model.onnx", "-o", "a.v1", "--emit", "plan=plan.txt", "--emit-onnx", "mended.onnx"]));
    stdout(&pack(&folder, &["model.onnx", "-q"]));
    assert_eq!(files(&folder), ["a.gmc.part", "a.v1", "mended.onnx", "model.gmc", "model.onnx", "plan.txt"]);
    assert_eq!(fs::read(folder.path("a.gmc.part")).unwrap(), b"mine");
}

#[cfg(unix)]
#[test]
fn links_are_written_through_and_pipes_into() {
    let folder = with_model();
    std::os::unix::fs::symlink("real.gmc", folder.path("link.gmc")).unwrap();
    fs::write(folder.path("real.gmc"), "old").unwrap();
    stdout(&pack(&folder, &["model.onnx", "-o", "link.gmc"]));
    assert!(fs::symlink_metadata(folder.path("link.gmc")).unwrap().is_symlink());
    let packed = fs::read(folder.path("real.gmc")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path("pipe")).status().unwrap().success());
    let pipe: PathBuf = folder.path("pipe");
    let reader = std::thread::spawn(move || fs::read(pipe).unwrap());
    stdout(&pack(&folder, &["model.onnx", "-o", "pipe"]));
    assert!(reader.join().unwrap() == packed);
}

#[test]
fn an_intermediate_form_that_is_printed_is_all_that_is_printed() {
    let folder = with_model();
    let out = stdout(&pack(&folder, &["model.onnx", "--emit", "graph"]));
    assert!(out.contains("Relu") && !out.contains("weights"), "{out}");
    let (status, message) = failure(&pack(&folder, &["model.onnx", "--emit", "graph", "--json"]));
    assert_eq!(status, 1);
    assert!(message.contains("--emit STAGE=FILE"), "{message}");
    stdout(&pack(&folder, &["model.onnx", "--emit", "graph=g.txt", "--json"]));
    assert_eq!(fs::read_to_string(folder.path("g.txt")).unwrap(), out);
    let (status, message) = failure(&pack(&folder, &["model.onnx", "--emit", "grpah"]));
    assert_eq!(status, 2);
    assert!(message.contains("onnx, graph, mended, fused, plan, kernels, asm"), "{message}");
}

#[test]
fn a_reader_that_goes_away_is_no_fault_and_a_full_disk_is_one() {
    let folder = with_model();
    for args in [&["--list-targets"][..], &["model.onnx"], &["model.onnx", "--json"], &["model.onnx", "--emit", "asm"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(&folder, args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        if let Ok(full) = File::options().write(true).open("/dev/full") {
            let output = command(&folder, args).stdout(full).stderr(Stdio::piped()).output().unwrap();
            let (status, message) = failure(&output);
            assert_eq!(status, 1, "{args:?}: {message}");
            assert!(message.contains("space"), "{message}");
        }
    }
}

#[test]
fn sizes_for_dimensions_that_are_not_there_are_errors() {
    let folder = with_model();
    for (dim, status, says) in [
        ("m=3", 1, "no input has a dimension 'm', but n"),
        ("n=18446744073709551615", 2, "too large"),
        ("n=1..9223372036854775808", 2, "too large"),
        ("n=9223372036854775807", 3, "more memory than can be addressed"),
    ] {
        let (got, message) = failure(&pack(&folder, &["model.onnx", "--dim", dim]));
        assert_eq!(got, status, "{message}");
        assert!(message.contains(says), "{message}");
    }
    stdout(&pack(&folder, &["model.onnx", "--dim", "n=1..9"]));
}

#[test]
fn the_shape_of_an_input_binds_its_dimensions() {
    let folder = with_model();
    for (args, status, says) in [
        (&["--shape", "z=2x4"][..], 1, "there is no input 'z', but 'x'"),
        (&["--shape", "2x5"], 1, "axis 1 cannot be 5"),
        (&["--shape", "2x4x1"], 1, "a shape of 3 axes does not fit"),
        (&["--shape", "2x4", "--dim", "n=3"], 1, "dimension 'n' is given two sizes"),
        (&["--shape", "2x4", "--shape", "3x4"], 1, "given twice"),
        (&["--shape", "2xn"], 2, "'n' is no size"),
    ] {
        let (got, message) = failure(&pack(&folder, &[&["model.onnx"], args].concat()));
        assert_eq!(got, status, "{message}");
        assert!(message.contains(says), "{message}");
    }
    let bytes = |args: &[&str]| {
        stdout(&pack(&folder, &[&["model.onnx", "-o", "out.gmc"], args].concat()));
        fs::read(folder.path("out.gmc")).unwrap()
    };
    let bound = bytes(&["--dim", "n=7"]);
    assert_eq!(bytes(&["--shape", "7x4"]), bound);
    assert_eq!(bytes(&["--shape", "x=7,4"]), bound);
    assert_ne!(bytes(&[]), bound);
}

#[test]
fn a_missing_model_is_told_once() {
    let (status, message) = failure(&pack(&Folder::new(), &["none.onnx"]));
    assert_eq!(status, 1);
    assert_eq!(message.matches("none.onnx").count(), 1, "{message}");
    assert_eq!(message.matches("os error").count(), 1, "{message}");
}

#[test]
fn only_targets_that_can_be_packed_for_are_suggested() {
    let folder = with_model();
    let (_, message) = failure(&pack(&folder, &["model.onnx", "--target", "rpi9"]));
    assert!(message.contains("rpi4"), "{message}");
    // Only as C.
    let (_, message) = failure(&pack(&folder, &["model.onnx", "--target", "rv32imx"]));
    assert!(message.contains("unknown target 'rv32imx'") && !message.contains("rv32imc"), "{message}");
}
