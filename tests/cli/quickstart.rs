//! The quick start through the programs: pack, then find speech.

use std::process::Command;

use crate::{Folder, graphmend_run, stdout};

pub(crate) const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart");

pub(crate) fn graphmend_pack(args: &[&dyn AsRef<std::ffi::OsStr>]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_graphmend-pack")).args(args.iter().map(|a| a.as_ref())).output().unwrap()
}

#[test]
fn speech_is_found_where_the_reference_has_it() {
    let folder = Folder::new();
    let model = folder.path("silero_vad.gmc");
    let out = stdout(&graphmend_pack(&[&format!("{EXAMPLE}/silero_vad.onnx"), &"-o", &model]));
    assert!(out.contains("splits") && out.contains(", 0 leave the plan"), "{out}");

    let probabilities = folder.path("p.json");
    let wav = format!("{EXAMPLE}/speech.wav");
    let json = stdout(&graphmend_run(&[&"vad", &model, &wav, &"--probabilities", &probabilities, &"--json"]));
    let got: Vec<f64> = serde_json::from_str(&std::fs::read_to_string(probabilities).unwrap()).unwrap();
    let reference: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{EXAMPLE}/reference.json")).unwrap()).unwrap();
    let expected: Vec<f64> =
        reference["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect();
    assert_eq!(got.len(), expected.len());
    for (k, (g, e)) in got.iter().zip(&expected).enumerate() {
        assert!((g - e).abs() <= 1e-4, "window {k}: {g}, expected {e}");
    }

    // Well inside of speech there is a segment, well inside of a pause there is none.
    let segments: serde_json::Value = serde_json::from_str(&json).unwrap();
    let at = |segment: &serde_json::Value, key: &str| segment[key].as_f64().unwrap();
    let (mut inside, mut outside) = (0, 0);
    for (k, around) in expected.windows(9).enumerate() {
        let time = (k as f64 + 4.5) * 512.0 / 16000.0;
        let found = segments.as_array().unwrap().iter().any(|s| at(s, "start") <= time && time <= at(s, "end"));
        if around.iter().all(|p| *p > 0.5) {
            assert!(found, "speech at {time} s is not in {json}");
            inside += 1;
        } else if around.iter().all(|p| *p < 0.3) {
            assert!(!found, "the pause at {time} s is in {json}");
            outside += 1;
        }
    }
    assert!(inside > 50 && outside > 50, "{inside} windows of speech, {outside} of pauses");
}

#[test]
fn the_offered_targets_are_listed_and_others_refused() {
    let out = stdout(&graphmend_pack(&[&"--list-targets"]));
    for name in ["native", "x86-64-v2", "x86-64-v3", "rpi3", "rpi4", "rpi5", "aarch64", "riscv64", "rv64gcv"] {
        assert!(out.lines().any(|l| l.split_whitespace().next() == Some(name)), "{name} in {out}");
    }
    let folder = Folder::new();
    let model = folder.path("x.gmc");
    let onnx = format!("{EXAMPLE}/silero_vad.onnx");
    for (target, says) in [("rpi_4", "did you mean rpi4"), ("rv32imc", "--emit c"), ("abacus", "--list-targets")] {
        let output = graphmend_pack(&[&onnx, &"--target", &target, &"-o", &model]);
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(says), "{message}");
        assert!(!model.exists());
    }
}
