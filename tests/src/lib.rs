//! What GraphMend's suites share: reference folders, comparison, voice activity windows, programs under QEMU.
#![forbid(unsafe_code)]

pub mod compare;
pub mod emulate;
pub mod linked;
pub mod model;
pub mod reference;
pub mod vad;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the quick start example.
pub fn quickstart(file: &str) -> PathBuf {
    root().join("examples/quickstart").join(file)
}
