//! Packs the model as an object, and links it with the memory map of the board.
//!
//! `KWS_MODEL` is the folder of the model, `GRAPHMEND_PACK` the program that packs. The processor follows from the target of
//! Cargo.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        std::env::var(name).ok()
    };
    let model = PathBuf::from(variable("KWS_MODEL").expect("KWS_MODEL names the folder of kws.onnx and kws_case.rs"));
    let pack = variable("GRAPHMEND_PACK").unwrap_or_else(|| "graphmend-pack".into());
    let of_cargo = |name: &str| std::env::var(name).unwrap_or_else(|e| panic!("Cargo sets {name}: {e}"));
    let target = match of_cargo("CARGO_CFG_TARGET_ARCH").as_str() {
        "riscv32" => "rv32imac",
        "riscv64" => "riscv64",
        other => panic!("this example is for RISC-V, not for {other}"),
    };
    let out = PathBuf::from(of_cargo("OUT_DIR"));
    let onnx = model.join("kws.onnx");
    println!("cargo::rerun-if-changed={}", onnx.display());
    println!("cargo::rerun-if-changed={pack}");
    let status = Command::new(&pack)
        .arg(&onnx)
        .args(["--target", target, "--emit", "object", "--quiet", "-o"])
        .arg(out.join("kws"))
        .status()
        .unwrap_or_else(|e| panic!("{pack}: {e}"));
    assert!(status.success(), "{pack} failed");
    println!("cargo::rustc-env=KWS_CASE={}", model.join("kws_case.rs").display());
    println!("cargo::rustc-link-arg={}", out.join("kws.o").display());
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rustc-link-arg=-T{}", Path::new(&of_cargo("CARGO_MANIFEST_DIR")).join("link.ld").display());
}
