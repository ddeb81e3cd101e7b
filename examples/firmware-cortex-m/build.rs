//! Packs the model as a static library, and links it with the memory map of the boards.
//!
//! `KWS_MODEL` is the model, `KWS_TARGET` the processor (cortex-m4f unless set), `GRAPHMEND_PACK` the program that packs.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok()
    };
    let model = PathBuf::from(variable("KWS_MODEL").expect("KWS_MODEL names the folder of kws.onnx and kws_case.rs"));
    let target = variable("KWS_TARGET").unwrap_or_else(|| "cortex-m4f".into());
    let pack = variable("GRAPHMEND_PACK").unwrap_or_else(|| "graphmend-pack".into());
    let out = std::env::var("OUT_DIR").expect("Cargo sets OUT_DIR");
    let onnx = model.join("kws.onnx");
    println!("cargo::rerun-if-changed={}", onnx.display());
    println!("cargo::rerun-if-changed={pack}");
    let status = Command::new(&pack)
        .arg(&onnx)
        .args(["--target", &target, "--emit", "staticlib", "--quiet", "-o"])
        .arg(Path::new(&out).join("kws"))
        .status()
        .unwrap_or_else(|e| panic!("{pack}: {e}"));
    assert!(status.success(), "{pack} failed");
    println!("cargo::rustc-env=KWS_CASE={}", model.join("kws_case.rs").display());
    println!("cargo::rustc-link-search=native={out}");
    println!("cargo::rustc-link-lib=static=kws");
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("Cargo sets CARGO_MANIFEST_DIR");
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rustc-link-arg=-T{folder}/link.ld");
}
