//! The header is what the source says.

use std::path::Path;

#[test]
fn the_header_is_generated_from_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let builder = cbindgen::Builder::new().with_config(config).with_src(here.join("src/lib.rs"));
    let mut generated = Vec::new();
    builder.generate().unwrap().write(&mut generated);
    // In Rust the contract of a function stands under this heading.
    let generated = String::from_utf8(generated).unwrap().replace(" # Safety\n", " The caller promises:\n");
    let path = here.join("graphmend.h");
    if std::env::var_os("GRAPHMEND_BLESS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == generated, "graphmend.h is not up to date: GRAPHMEND_BLESS=1 cargo test -p graphmend-capi");
}
