//! `graphmend-pack --emit c|object|staticlib`.

use super::*;
use crate::quickstart::{EXAMPLE, graphmend_pack};

fn onnx() -> String {
    format!("{EXAMPLE}/silero_vad.onnx")
}

#[test]
fn c_is_written_into_a_folder_or_under_a_name() {
    let folder = Folder::new();
    let out = stdout(&graphmend_pack(&[&onnx(), &"-t", &"cortex-m4f", &"--emit", &"c", &"-o", &folder.path("")]));
    assert!(out.contains("silero_vad.c") && out.contains("for cortex-m4f"), "{out}");
    for end in ["c", "h", "rs"] {
        assert!(folder.path(&format!("silero_vad.{end}")).is_file(), "{end}");
    }
    assert!(!folder.path("silero_vad.gmc").exists());
    stdout(&graphmend_pack(&[&onnx(), &"-t", &"rv32imac", &"--emit", &"c", &"-o", &folder.path("deep/My-VAD.c")]));
    let header = std::fs::read_to_string(folder.path("deep/my_vad.h")).unwrap();
    assert!(header.contains("int my_vad_run(") && header.contains("MY_VAD_ARENA_BYTES"), "{header}");
    // The same again gives the same.
    let first = std::fs::read(folder.path("silero_vad.c")).unwrap();
    stdout(&graphmend_pack(&[&onnx(), &"-t", &"cortex-m4f", &"--emit", &"c", &"-o", &folder.path("")]));
    assert!(first == std::fs::read(folder.path("silero_vad.c")).unwrap());
}

#[test]
fn a_library_comes_with_what_it_takes() {
    let folder = Folder::new();
    let args: [&dyn AsRef<std::ffi::OsStr>; 9] =
        [&onnx(), &"-t", &"x86-64", &"--emit", &"staticlib", &"--cc", &"cc -O0", &"-o", &folder.path("libvad.a")];
    let out = stdout(&graphmend_pack(&args));
    assert!(out.contains("flash") && out.contains("arena") && out.contains("stack"), "{out}");
    assert!(folder.path("libvad.a").is_file() && folder.path("vad.h").is_file() && folder.path("vad.rs").is_file());
    let args: [&dyn AsRef<std::ffi::OsStr>; 10] =
        [&onnx(), &"-t", &"x86-64", &"--emit", &"object", &"--cc", &"cc -O0", &"-o", &folder.path("vad"), &"--json"];
    let json: Value = serde_json::from_str(&stdout(&graphmend_pack(&args))).unwrap();
    assert!(json["file"].as_str().unwrap().ends_with("vad.o"), "{json}");
    assert!(json["sizes"]["code"].as_u64().unwrap() > 10_000 && json["sizes"]["data"] == 0, "{json}");
    assert_eq!(json["sizes"]["weights"], json["summary"]["weight_bytes"]);
}

#[test]
fn objects_and_libraries_need_no_c_compiler_where_there_is_a_code_generator() {
    let folder = Folder::new();
    for (kind, target, file) in [("object", "rpi4", "vad.o"), ("staticlib", "riscv64", "libvad.a")] {
        let args: [&dyn AsRef<std::ffi::OsStr>; 8] =
            [&onnx(), &"-t", &target, &"--emit", &kind, &"-o", &folder.path(file), &"--json"];
        let json: Value = serde_json::from_str(&stdout(&graphmend_pack(&args))).unwrap();
        assert_eq!((&json["sizes"]["compiler"], &json["sizes"]["data"]), (&"graphmend".into(), &0.into()), "{json}");
        assert!(json["sizes"]["stack"].as_u64().unwrap() > 50, "{json}");
        assert!(folder.path(file).is_file() && folder.path("vad.h").is_file() && folder.path("vad.rs").is_file());
        // No path of this machine, no time: the same again.
        let first = std::fs::read(folder.path(file)).unwrap();
        stdout(&graphmend_pack(&args));
        assert!(first == std::fs::read(folder.path(file)).unwrap());
    }
}

#[test]
fn what_cannot_be_linked_is_said_before_packing() {
    let folder = Folder::new();
    let at = folder.path("x");
    for (args, says) in [
        (&["--emit", "c=file"][..], "name the place by -o"),
        (&["--emit", "c", "--emit", "object"], "at a time"),
        (&["--emit", "object", "--cc", "no-such-compiler"], "'no-such-compiler' cannot be started"),
    ] {
        let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![];
        let onnx = onnx();
        all.push(&onnx);
        args.iter().for_each(|a| all.push(a));
        all.extend([&"-o" as &dyn AsRef<std::ffi::OsStr>, &at]);
        let (status, message) = failure(&graphmend_pack(&all));
        assert!(status == 1 && message.contains(says), "{message}");
    }
}
