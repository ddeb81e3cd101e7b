//! The GraphMend compiler: ONNX model in, cache file out.
#![forbid(unsafe_code)]

#[cfg(feature = "check")]
pub mod check;
pub mod codegen;
pub mod error;
pub mod expand;
pub mod fuse;
pub mod graph;
pub mod import;
pub mod kernel;
pub mod layout;
pub mod lower;
pub mod mend;
pub mod onnx;
pub mod ops;
pub mod pack;
pub mod plan;
pub mod quantize;
pub mod source;
pub mod sym;
pub mod te;

pub use graphmend_kernel::dtype;

/// Reads a model file and packs it.
///
/// # Errors
/// Whatever stops a stage; see [`error::Error`].
pub fn pack_file(
    path: impl AsRef<std::path::Path>,
    options: &pack::Options,
    progress: pack::Progress<'_>,
) -> error::Result<pack::Packed> {
    progress("reading", 0, 1);
    let loaded = onnx::load::load(path)?;
    let text = options.emit.contains(&pack::Emit::Onnx).then(|| onnx::text::text(&loaded.model));
    let module = import::import(loaded.model)?;
    let mut packed = pack::pack(module, loaded.content_digest, options, progress)?;
    packed.emitted.extend(text.map(|t| (pack::Emit::Onnx, t)));
    Ok(packed)
}
