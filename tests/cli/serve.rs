//! `graphmend-run serve`: a line in, a line out, whatever the line is.

use std::io::Write;
use std::process::{Command, Stdio};

use graphmend::DType;
use graphmend::npy::{self, Array};
use serde_json::{Value, json};

use crate::pack::with_model;

#[test]
fn every_line_has_an_answer() {
    let folder = with_model();
    let x = folder.path("x.npy");
    npy::write(&x, &Array { dtype: DType::F32, shape: vec![1, 4], bytes: vec![0; 16] }).unwrap();
    let request = |out: &str| {
        let run = json!({"inputs": [x], "out": folder.path(out)});
        // The folder for its work is made if there is none.
        let work = folder.path("work/new");
        json!({"id": out, "model": folder.path("model.onnx"), "work": work, "runs": [run]}).to_string()
    };
    let lines: Vec<Vec<u8>> = vec![
        b"hello".to_vec(),
        b"\xff\xfe".to_vec(),
        b"{\"id\": \"half\"}".to_vec(),
        b"[[[".to_vec(),
        b" ".to_vec(),
        request("none/such").into_bytes(),
        request("").into_bytes(),
    ];
    let mut server = Command::new(env!("CARGO_BIN_EXE_graphmend-run"))
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    server.stdin.take().unwrap().write_all(&lines.join(&b'\n')).unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let seen: Vec<_> = answers.iter().map(|a| (a["id"].as_str().unwrap(), a["status"].as_str().unwrap())).collect();
    let bad = ("", "error");
    assert_eq!(seen, [bad, bad, ("half", "error"), bad, ("none/such", "error"), ("", "ok")]);
    let message = answers[4]["message"].as_str().unwrap();
    assert!(message.contains("output_0"), "{message}");
}
