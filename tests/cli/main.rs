//! `graphmend-run` as a program: results, messages, exit statuses.

mod bench;
mod check;
#[path = "../../runtime/tests/common/mod.rs"]
mod common;
mod link;
mod pack;
mod quickstart;
mod serve;
mod tune;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::*;
use graphmend::npy::{self, Array};
use serde_json::Value;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn model(&self, spec: &FileSpec) -> PathBuf {
        let path = self.path("model.gmc");
        std::fs::write(&path, bytes(spec)).unwrap();
        path
    }

    fn integers(&self, name: &str, x: &[i32]) -> PathBuf {
        let path = self.path(name);
        let bytes = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        npy::write(&path, &Array { dtype: graphmend::DType::I32, shape: vec![x.len()], bytes }).unwrap();
        path
    }
}

fn graphmend_run(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_graphmend-run")).args(args.iter().map(|a| a.as_ref())).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out.into_owned()
}

fn failure(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn doubled(path: &Path) -> Vec<f64> {
    npy::read(path).unwrap().numbers().collect()
}

#[test]
fn run_reads_and_writes_arrays() {
    let folder = Folder::new();
    let model = folder.model(&doubling_model());
    let x = folder.integers("x.npy", &[1, -2, 30]);
    let named = format!("x={}", x.display());
    let out = stdout(&graphmend_run(&[&"run", &model, &"-i", &named, &"-o", &folder.path("out")]));
    assert!(out.contains("y: i32 [3]"), "{out}");
    assert_eq!(doubled(&folder.path("out/y.npy")), [2.0, -4.0, 60.0]);

    let out = stdout(&graphmend_run(&[&"run", &model, &"-i", &x, &"-o", &folder.path("y.npy"), &"--json"]));
    assert_eq!(doubled(&folder.path("y.npy")), [2.0, -4.0, 60.0]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json[0]["name"], &json[0]["max"]), (&"y".into(), &60.0.into()));
}

#[test]
fn wrong_inputs_are_named() {
    let folder = Folder::new();
    let model = folder.model(&doubling_model());
    let (status, message) = failure(&graphmend_run(&[&"run", &model]));
    assert_eq!(status, 1);
    assert!(message.contains("missing inputs") && message.contains("x: i32 [n=0..1000]"), "{message}");
    let (status, message) = failure(&graphmend_run(&[&"run", &model, &"-i", &"q=x.npy"]));
    assert_eq!(status, 1);
    assert!(message.contains("no such input"), "{message}");
    let long = folder.integers("long.npy", &[0; 1001]);
    let (status, message) = failure(&graphmend_run(&[&"run", &model, &"-i", &long]));
    assert_eq!(status, 1);
    assert!(message.contains("size 1001 given, 0 to 1000 expected (input 0 is x: i32"), "{message}");
    let (status, _) = failure(&graphmend_run(&[&"run"]));
    assert_eq!(status, 2);
    let (status, message) = failure(&graphmend_run(&[&"run", &model, &"-i", &long, &"--variant", &"7"]));
    assert_eq!(status, 1);
    assert!(message.contains("no such variant"), "{message}");
}

#[test]
fn damaged_foreign_and_other_files_are_refused() {
    let folder = Folder::new();
    let mut file = bytes(&doubling_model());
    let path = folder.path("model.gmc");
    let root = stdout(&graphmend_run(&[&"inspect", &folder.model(&doubling_model()), &"--json"]));
    let root: Value = serde_json::from_str(&root).unwrap();
    let root = root["root"].as_str().unwrap();

    assert!(stdout(&graphmend_run(&[&"verify", &path, &"--pin", &root])).contains(root));
    let zeros = "0".repeat(64);
    let x = folder.integers("x.npy", &[1]);
    for args in [
        &[&"verify" as &dyn AsRef<std::ffi::OsStr>, &path, &"--pin", &zeros][..],
        &[&"run", &path, &"--pin", &zeros, &"-i", &x],
    ] {
        let (status, message) = failure(&graphmend_run(args));
        assert_eq!(status, 3, "{message}");
        assert!(message.contains("not the pinned one"), "{message}");
    }

    *file.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &file).unwrap();
    for command in ["verify", "run", "inspect"] {
        let (status, message) = failure(&graphmend_run(&[&command, &path]));
        assert_eq!(status, 3, "{command}: {message}");
        assert!(message.contains("model.gmc: ") && message.contains("section CODE does not match its digest"));
    }

    let mut spec = doubling_model();
    spec.variants[0].features = 1 << 50;
    let path = folder.model(&spec);
    let (status, message) = failure(&graphmend_run(&[&"run", &path, &"-i", &x]));
    assert_eq!(status, 3);
    assert!(message.contains("built for bit50, this CPU lacks it"), "{message}");
    assert!(stdout(&graphmend_run(&[&"inspect", &path])).contains("none for this machine"));
    stdout(&graphmend_run(&[&"verify", &path]));

    let (status, _) = failure(&graphmend_run(&[&"run", &folder.path("none.gmc")]));
    assert_eq!(status, 1);
}

#[test]
fn inspect_shows_interface_plan_and_kernels() {
    let folder = Folder::new();
    let model = folder.model(&doubling_model());
    let out = stdout(&graphmend_run(&[&"inspect", &model]));
    for expected in ["x: i32 [n]", "n = 0..1000", "<- this machine's", "TENSORS", "CODE"] {
        assert!(out.contains(expected), "{expected} in {out}");
    }
    let out = stdout(&graphmend_run(&[&"inspect", &model, &"--plan", &"--kernels"]));
    assert!(out.contains("k0(b0, b1*) tiles r0") && out.contains("k0: "), "{out}");
    assert_eq!(failure(&graphmend_run(&[&"inspect", &model, &"--plan", &"--variant", &"7"])).0, 1);
}

#[test]
fn bench_measures_with_random_inputs() {
    let folder = Folder::new();
    let model = folder.model(&doubling_model());
    let args: &[&dyn AsRef<std::ffi::OsStr>] =
        &[&"bench", &model, &"--dim", &"n=100", &"--runs", &"10", &"--loads", &"2", &"--profile"];
    let out = stdout(&graphmend_run(args));
    assert!(out.contains("steady") && out.contains("of 10") && out.contains("k0"), "{out}");
    let json: Value = serde_json::from_str(&stdout(&graphmend_run(&[args, &[&"--json"]].concat()))).unwrap();
    assert_eq!(json["steady"]["count"], 10);
    assert!(json["load"]["median_us"].as_f64().unwrap() > 0.0);
    stdout(&graphmend_run(&[&"bench", &model, &"--fill", &"x=7", &"--runs", &"1", &"--loads", &"1"]));
    let (status, message) = failure(&graphmend_run(&[&"bench", &model, &"--fill", &"q=7"]));
    assert_eq!(status, 1);
    assert!(message.contains("no input named q"), "{message}");
    for twice in [["--dim", "n=1", "--dim", "n=2"], ["--fill", "x=1", "--fill", "x=2"]] {
        let (status, message) =
            failure(&graphmend_run(&[&"bench", &model, &twice[0], &twice[1], &twice[2], &twice[3]]));
        assert_eq!(status, 1);
        assert!(message.contains("given twice"), "{message}");
    }
    let (status, message) = failure(&graphmend_run(&[&"bench", &model, &"--dim", &"m=1"]));
    assert_eq!(status, 1);
    assert!(message.contains("no input has a dimension named m"), "{message}");
}

#[cfg(unix)]
#[test]
fn inputs_that_memory_cannot_hold_are_an_error() {
    let folder = Folder::new();
    let model = folder.model(&doubling_model());
    let script = "ulimit -v 4000000; exec \"$0\" bench \"$1\" --dim n=100000000000";
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", script, env!("CARGO_BIN_EXE_graphmend-run")]).arg(&model).output().unwrap();
    let (status, message) = failure(&output);
    assert_eq!(status, 1, "{message}");
    assert!(message.contains("input x of shape [100000000000] is more than memory can hold"), "{message}");
}

/// Has the interface of a voice activity model. Says 1.0 (the bits of its first weight) or 0.0 by whether the count of windows
/// that is carried in the state is between 20 and 39, so that the carrying can be seen.
fn counting_vad() -> FileSpec {
    let fixed =
        |name: &str, dtype, dims: &[u64]| tensor(name, dtype, dims.iter().map(|&n| DimSpec::Fixed(n)).collect());
    let state_bytes = 2 * 128 * 4;
    let plan = PlanSpec {
        regs: 3,
        slots: 0,
        arena_bytes: 2048,
        buffers: vec![
            input(1, DType::I32),
            arena(DType::I32, 0, state_bytes),
            arena(DType::F32, state_bytes, 4),
            arena(DType::I32, state_bytes, 4),
            arena(DType::F32, 0, state_bytes),
        ],
        instrs: vec![
            Instr::LoadInt { dst: 0, buf: 0, index: imm(7) },
            bin(BinOp::Le, 1, imm(20), reg(0)),
            bin(BinOp::Lt, 2, reg(0), imm(40)),
            bin(BinOp::And, 1, reg(1), reg(2)),
            bin(BinOp::Mul, 1, reg(1), imm(i64::from(1f32.to_bits()))),
            Instr::StoreInt { buf: 3, index: imm(0), value: reg(1) },
            Instr::Copy { dst: 1, dst_offset: imm(0), src: 0, src_offset: imm(0), bytes: None },
            bin(BinOp::Add, 0, reg(0), imm(1)),
            Instr::StoreInt { buf: 1, index: imm(7), value: reg(0) },
            Instr::Return,
        ],
        outputs: vec![
            OutputSpec { buf: 2, dims: vec![imm(1), imm(1)] },
            OutputSpec { buf: 4, dims: vec![imm(2), imm(1), imm(128)] },
        ],
        messages: vec![],
    };
    let inputs = vec![
        fixed("input", DType::F32, &[1, 576]),
        fixed("state", DType::F32, &[2, 1, 128]),
        fixed("sr", DType::I64, &[]),
    ];
    let outputs = vec![fixed("output", DType::F32, &[1, 1]), fixed("stateN", DType::F32, &[2, 1, 128])];
    file(inputs, outputs, plan, vec![])
}

#[test]
fn vad_carries_the_state_and_prints_segments() {
    let folder = Folder::new();
    let model = folder.model(&counting_vad());
    let wav = folder.path("x.wav");
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&wav, spec).unwrap();
    (0..512 * 60 + 100).for_each(|i| writer.write_sample((i % 100) as i16).unwrap());
    writer.finalize().unwrap();

    let probabilities = folder.path("p.npy");
    let out = stdout(&graphmend_run(&[&"vad", &model, &wav, &"--probabilities", &probabilities]));
    assert_eq!(out, "speech    0.61 s to    1.31 s\n");
    let found = doubled(&probabilities);
    assert_eq!(found.len(), 60);
    assert_eq!(found.iter().position(|&p| p == 1.0), Some(20));
    assert_eq!(found.iter().filter(|&&p| p == 1.0).count(), 20);
    let json: Value = serde_json::from_str(&stdout(&graphmend_run(&[&"vad", &model, &wav, &"--json"]))).unwrap();
    assert_eq!(json[0]["start"].as_f64(), Some((20.0 * 512.0 - 480.0) / 16000.0));

    assert_eq!(failure(&graphmend_run(&[&"vad", &model, &wav, &"--threshold", &"nan"])).0, 2);

    let other = folder.model(&doubling_model());
    let (status, message) = failure(&graphmend_run(&[&"vad", &other, &wav]));
    assert_eq!(status, 1);
    assert!(message.contains("not a voice activity model"), "{message}");
}
