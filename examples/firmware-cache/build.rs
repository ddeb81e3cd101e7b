//! Links with the memory map of the board; `KWS_MODEL` is the folder of kws_case.rs.

fn main() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    println!("cargo::rerun-if-env-changed=KWS_MODEL");
    println!("cargo::rustc-env=KWS_CASE={}/kws_case.rs", variable("KWS_MODEL"));
    let (folder, arch) = (variable("CARGO_MANIFEST_DIR"), variable("CARGO_CFG_TARGET_ARCH"));
    let map = if arch.starts_with("riscv") { "riscv" } else { &arch };
    println!("cargo::rerun-if-changed={map}.ld");
    println!("cargo::rustc-link-arg=-T{folder}/{map}.ld");
}
