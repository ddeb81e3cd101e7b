//! Packing on this machine (feature `host`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compiler::pack::Options;
use crate::targets::{self, Cpu};
use crate::{Model, OpenError, Trust};

/// The processor to pack for: a preset by name, or this machine's for `None` and `native`.
///
/// # Errors
/// An unknown name, with the names that are like it; a processor that no code generator is for.
pub fn target(name: Option<&str>) -> Result<Cpu, HostError> {
    let name = match name {
        None | Some("native") => return targets::native().ok_or(HostError::UnknownMachine),
        Some(name) => name,
    };
    let cpu = targets::lookup(name).ok_or_else(|| {
        let known = targets::suggestions(name);
        let like = known.as_slice().iter().filter(|s| targets::lookup(s).is_some_and(|cpu| has_generator(&cpu)));
        let like: Vec<String> = like.map(|s| (*s).to_owned()).collect();
        HostError::UnknownTarget { name: name.into(), like }
    })?;
    if has_generator(&cpu) { Ok(cpu) } else { Err(HostError::NoGenerator(cpu)) }
}

/// The processor to write source text for: any preset by name, or this machine's.
///
/// # Errors
/// An unknown name, with the names that are like it.
pub fn source_target(name: Option<&str>) -> Result<Cpu, HostError> {
    match target(name) {
        Err(HostError::NoGenerator(cpu)) => Ok(cpu),
        Err(HostError::UnknownTarget { name, .. }) => {
            let like = targets::suggestions(&name).as_slice().iter().map(|s| (*s).to_owned()).collect();
            Err(HostError::UnknownTarget { name, like })
        }
        other => other,
    }
}

/// Everything that [`target`] takes: this machine if it can be packed for, and all presets that code is generated for.
pub fn targets() -> impl Iterator<Item = Cpu> {
    let presets = targets::presets().iter().filter(|cpu| has_generator(cpu)).copied();
    targets::native().into_iter().chain(presets)
}

fn has_generator(cpu: &Cpu) -> bool {
    // Code that a C compiler made, for 32-bit Arm alone.
    let by_c = crate::compiler::codegen::c::serves(cpu.into()) && cpu.arch == targets::Arch::Arm;
    let interpreted = crate::compiler::codegen::interpreted(cpu.into());
    by_c || interpreted || crate::compiler::codegen::Isa::cached(cpu.into()).is_ok()
}

/// Why a model could not be packed or opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// No target has this name.
    UnknownTarget {
        /// The name.
        name: String,
        /// Names that are like it.
        like: Vec<String>,
    },
    /// No code generator is for this preset.
    NoGenerator(Cpu),
    /// This machine's processor is of a kind that nothing is packed for.
    UnknownMachine,
    /// Schedules cannot be measured, for a reason.
    Untunable(String),
    /// Packing failed.
    Pack(crate::compiler::error::Error),
    /// The cache directory could not be used.
    Io(PathBuf, io::Error),
    /// The packed file could not be opened.
    Open(OpenError),
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HostError::UnknownTarget { name, like } if like.is_empty() => {
                write!(f, "unknown target '{name}' (--list-targets lists them)")
            }
            HostError::UnknownTarget { name, like } => {
                write!(f, "unknown target '{name}': did you mean {}?", like.join(", "))
            }
            HostError::NoGenerator(cpu) => {
                write!(
                    f,
                    "no cache file can be made for target '{}' ({}): models for it are C to link in (--emit c)",
                    cpu.name,
                    cpu.arch.name()
                )
            }
            HostError::UnknownMachine => f.write_str("nothing can be packed for this machine's processor"),
            HostError::Untunable(reason) => write!(f, "nothing to measure schedules with: {reason}"),
            HostError::Pack(e) => e.fmt(f),
            HostError::Io(path, e) => write!(f, "{}: {e}", path.display()),
            HostError::Open(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message has the others already.
        match self {
            HostError::Pack(e) => e.source(),
            HostError::Open(e) => e.source(),
            _ => None,
        }
    }
}

/// Opens the packed form of an ONNX model, packing it for this machine when it is used for the first time.
///
/// Packed files are kept in [`cache_dir`], named by a digest of what they were made from: the model's bytes, the bytes
/// of its external data, the options, the target with its features, the version of this program. Neither paths nor
/// times play a part: a changed model is packed anew, a moved or touched one is not. Several processes may do this
/// at once: a file appears whole or not at all.
///
/// # Errors
/// See [`HostError`].
pub fn load_or_pack(model: impl AsRef<Path>) -> Result<Model, HostError> {
    load_or_pack_with(model, &Options::new(target(None)?), &cache_dir())
}

/// [`load_or_pack`] with options and a directory of the caller's.
///
/// # Errors
/// See [`HostError`].
pub fn load_or_pack_with(model: impl AsRef<Path>, options: &Options, dir: &Path) -> Result<Model, HostError> {
    let loaded = crate::compiler::onnx::load::load(model).map_err(HostError::Pack)?;
    let path = dir.join(format!("{}.gmc", key(&loaded.content_digest, options)));
    match Model::open(&path, Trust::Unsigned) {
        Ok(model) => return Ok(model),
        Err(e) if e.io_error().is_some_and(|e| e.kind() == io::ErrorKind::NotFound) => {}
        // A damaged file is replaced.
        Err(e) => log::warn!("{}: {e}; packing anew", path.display()),
    }
    let digest = loaded.content_digest;
    let module = crate::compiler::import::import(loaded.model).map_err(HostError::Pack)?;
    let packed = crate::compiler::pack::pack(module, digest, options, &mut |_, _, _| {}).map_err(HostError::Pack)?;
    store(dir, &path, &packed.bytes).map_err(|e| HostError::Io(path.clone(), e))?;
    Model::open(&path, Trust::Unsigned).map_err(HostError::Open)
}

/// Where packed models are kept: `$GRAPHMEND_CACHE_DIR`, else `graphmend` in `$XDG_CACHE_HOME` or `~/.cache`, else in the
/// directory for temporary files.
pub fn cache_dir() -> PathBuf {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(dir) = var("GRAPHMEND_CACHE_DIR") {
        return dir;
    }
    let base = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|h| h.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("graphmend")
}

fn key(content: &[u8; 32], options: &Options) -> String {
    let mut h = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        h.update(&(bytes.len() as u64).to_le_bytes());
        h.update(bytes);
    };
    put(content);
    put(env!("CARGO_PKG_VERSION").as_bytes());
    put(options.target.name.as_bytes());
    put(options.target.arch.name().as_bytes());
    put(&options.target.features.0.to_le_bytes());
    put(format!("{:?}", options.target).as_bytes());
    put(&(options.unroll as u64).to_le_bytes());
    put(&[options.layout as u8]);
    put(format!("{:?} {:?}", options.cc, options.choices).as_bytes());
    for (name, dim) in &options.dims {
        put(name.as_bytes());
        put(format!("{dim:?}").as_bytes());
    }
    for (name, shape) in &options.shapes {
        put(name.as_bytes());
        put(format!("{shape:?}").as_bytes());
    }
    h.finalize().to_hex().to_string()
}

/// Writes beside the file and renames, so that no reader sees half of it.
pub(crate) fn store(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    static STORED: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(dir)?;
    // Neither another process nor another thread writes to the same file.
    let count = STORED.fetch_add(1, Ordering::Relaxed);
    let part = path.with_extension(format!("{}-{count}.part", std::process::id()));
    let written = fs::File::create(&part).and_then(|mut f| {
        f.write_all(bytes)?;
        f.sync_all()
    });
    let renamed = written.and_then(|()| fs::rename(&part, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&part);
    }
    renamed
}
