//! Models in files: map, verify, make code executable.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use graphmend_cache_format::file::{ALL_VARIANTS, Index, Section, SectionKind, Variant, verify_bytes, verify_leaf};
use graphmend_cache_format::meta::{Debug, Meta};
use graphmend_cache_format::read;
use graphmend_cache_format::{Digest, FormatError, LEAF};
use memmap2::{Mmap, MmapMut};
#[cfg(feature = "interp")]
use std::boxed::Box;

use crate::code::{copy, executable};
use crate::model::{Parts, check_trust};
use crate::{Code, Error, Host, ModelRef, OwnedSession, Trust, WeightCheck, select};

/// Where a model's weights are while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Storage {
    /// In the mapped file: only pages that are used are read, and processes share them. The file must not be changed in
    /// place while the model is open: results become wrong, and a shortened file ends the program (SIGBUS). Replace files
    /// by renaming. What decides which code runs is copied before it is verified, and does not depend on this.
    #[default]
    Map,
    /// In private memory: the file is read as a whole.
    Read,
}

/// How a model is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Why the file is believed.
    pub trust: Trust,
    /// When weights are verified.
    pub weights: WeightCheck,
    /// Where weights are.
    pub storage: Storage,
    /// The machine that variants are chosen for, or nothing for this one.
    pub host: Option<Host>,
    /// The variant to take (if it runs on the host), or nothing for the best.
    pub variant: Option<u16>,
}

impl OpenOptions {
    /// The defaults with this trust.
    pub fn new(trust: Trust) -> OpenOptions {
        OpenOptions { trust, weights: WeightCheck::default(), storage: Storage::default(), host: None, variant: None }
    }

    /// Opens a file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Model, OpenError> {
        let path = path.as_ref();
        let at_path = |why| OpenError { path: Some(path.to_path_buf()), why };
        let bytes = map(path, self.storage).map_err(|e| at_path(Why::Io(e)))?;
        Model::make(bytes, self).map_err(at_path)
    }

    /// Opens a file that lies in memory; it is copied.
    pub fn from_bytes(&self, bytes: &[u8]) -> Result<Model, OpenError> {
        let make = || {
            let (memory, _) = copy(&[bytes]).map_err(Why::Io)?;
            let memory = memory.make_read_only().map_err(Why::Io)?;
            Model::make(Bytes::Mapped { memory, len: bytes.len() }, self)
        };
        make().map_err(|why| OpenError { path: None, why })
    }

    /// Opens a file that lies in memory for good, at a multiple of 8. Its weights are used where they lie; what decides
    /// which code runs is copied. `storage` does not matter.
    pub fn from_static(&self, bytes: &'static [u8]) -> Result<Model, OpenError> {
        let why = |why| OpenError { path: None, why };
        if !bytes.as_ptr().addr().is_multiple_of(8) {
            return Err(why(Why::Model(Error::FileMisaligned)));
        }
        Model::make(Bytes::Lent(bytes), self).map_err(why)
    }
}

/// The bytes of a file.
#[derive(Debug)]
enum Bytes {
    /// The mapping may be longer, since none may be empty.
    Mapped {
        memory: Mmap,
        len: usize,
    },
    Lent(&'static [u8]),
}

impl Bytes {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mapped { memory, len } => memory.get(..*len).unwrap_or_default(),
            Bytes::Lent(bytes) => bytes,
        }
    }
}

fn map(path: &Path, storage: Storage) -> io::Result<Bytes> {
    // Before it is opened: a named pipe would wait for somebody to write to it.
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut file = File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let memory = if storage == Storage::Map && len > 0 {
        // SAFETY: nobody in this process writes through the mapping. Another process can change the file; the module
        // documentation of `code` says what that does and does not do, and `Storage::Map` what is asked of the caller.
        unsafe { Mmap::map(&file)? }
    } else {
        let mut memory = MmapMut::map_anon(len.max(1))?;
        io::Read::read_exact(&mut file, memory.get_mut(..len).unwrap_or_default())?;
        memory.make_read_only()?
    };
    Ok(Bytes::Mapped { memory, len })
}

/// Why a model could not be opened.
#[derive(Debug)]
pub struct OpenError {
    path: Option<PathBuf>,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Model(Error),
}

impl From<Error> for Why {
    fn from(error: Error) -> Why {
        Why::Model(error)
    }
}

impl From<FormatError> for Why {
    fn from(error: FormatError) -> Why {
        Why::Model(Error::Format(error))
    }
}

impl OpenError {
    /// What is wrong with the model; nothing if the operating system refused.
    pub fn model_error(&self) -> Option<Error> {
        match &self.why {
            Why::Model(error) => Some(*error),
            Why::Io(_) => None,
        }
    }

    /// What the operating system refused.
    pub fn io_error(&self) -> Option<&io::Error> {
        match &self.why {
            Why::Io(error) => Some(error),
            Why::Model(_) => None,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        match &self.why {
            Why::Io(error) => error.fmt(f),
            Why::Model(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

/// A model in a file, verified and ready for sessions. Can be shared by threads.
#[derive(Debug)]
pub struct Model {
    /// Borrows from the memories below, which live as long and never move their bytes.
    inner: ModelRef<'static>,
    header_and_tables: std::vec::Vec<u8>,
    file: Bytes,
    _tables: Mmap,
    _code: Option<Mmap>,
    #[cfg(feature = "interp")]
    _programs: std::boxed::Box<[graphmend_kernel::interp::Program]>,
}

impl Model {
    /// Maps and verifies a file; see [`OpenOptions`] for more choices.
    pub fn open(path: impl AsRef<Path>, trust: Trust) -> Result<Model, OpenError> {
        OpenOptions::new(trust).open(path)
    }

    /// Opens a file that lies in memory; it is copied.
    pub fn from_bytes(bytes: &[u8], trust: Trust) -> Result<Model, OpenError> {
        OpenOptions::new(trust).from_bytes(bytes)
    }

    fn make(file: Bytes, options: &OpenOptions) -> Result<Model, Why> {
        let bytes = file.get();
        let needed = Index::bytes_needed(bytes)?;
        let have = bytes.len() as u64;
        let truncated = FormatError::Truncated { have, need: needed as u64 };
        // Copied before they are looked at, like all that decides what is run: see the module `code`.
        let header_and_tables = bytes.get(..needed).ok_or(truncated)?.to_vec();
        let index = Index::parse(&header_and_tables, have)?;
        check_trust(&index.header().root, options.trust)?;
        let host = options.host.unwrap_or_else(Host::detect);
        let variant = match options.variant {
            None => select(&index, host)?,
            Some(v) => check_variant(&index, v, host)?,
        };
        index.verify_gaps(bytes)?;

        let section = |kind, variant| index.section(kind, variant);
        let data = |s: Section| Index::range(&s).and_then(|r| bytes.get(r)).unwrap_or_default();
        let demand = |kind, variant| section(kind, variant).ok_or(FormatError::Missing(kind));
        let tables = [
            Some(demand(SectionKind::Tensors, ALL_VARIANTS)?),
            Some(demand(SectionKind::Plan, variant)?),
            Some(demand(SectionKind::Kernels, variant)?),
            section(SectionKind::Leaves, ALL_VARIANTS),
        ];
        let (memory, starts) = copy(&tables.map(|s| s.map_or(&[][..], data))).map_err(Why::Io)?;
        let memory = memory.make_read_only().map_err(Why::Io)?;
        let mut parts: [&'static [u8]; 4] = [&[]; 4];
        for ((part, table), start) in parts.iter_mut().zip(&tables).zip(starts) {
            let Some(table) = table else { continue };
            let copied = memory.get(start..start + data(*table).len()).unwrap_or_default();
            verify_bytes(table, copied)?;
            // SAFETY: `memory` is kept in the model.
            *part = unsafe { forever(copied) };
        }
        let [tensors, plan, kernels, leaves] = parts;

        let portable = index.variant(variant).is_none_or(crate::select::is_interpreted);
        let code = match section(SectionKind::Code, variant) {
            None => None,
            // Not to be executed.
            Some(_) if portable => None,
            Some(s) => {
                let (memory, _) = copy(&[data(s)]).map_err(Why::Io)?;
                verify_bytes(&s, memory.get(..data(s).len()).unwrap_or_default())?;
                Some((executable(memory).map_err(Why::Io)?, data(s).len()))
            }
        };
        // SAFETY: the executable memory is kept in the model.
        let code_bytes =
            code.as_ref().map_or(&[][..], |(m, len)| unsafe { forever(m.get(..*len).unwrap_or_default()) });
        let kernel_code = Code::Memory(code_bytes);
        #[cfg(feature = "interp")]
        let programs =
            if portable { interpreted(kernels, section(SectionKind::Code, variant), data)? } else { Box::new([]) };
        #[cfg(feature = "interp")]
        let kernel_code = if portable {
            // SAFETY: the programs are kept in the model, and do not move with their box.
            Code::Interpreted(unsafe { core::slice::from_raw_parts(programs.as_ptr(), programs.len()) })
        } else {
            kernel_code
        };
        // SAFETY: the file's memory is kept in the model, or lent for good.
        let weights = section(SectionKind::Weights, ALL_VARIANTS).map_or(&[][..], |s| unsafe { forever(data(s)) });
        if options.weights == WeightCheck::Eager {
            (0..weights.len().div_ceil(LEAF)).try_for_each(|i| verify_leaf(weights, leaves, i))?;
        }
        let inner = ModelRef::from_parts(Parts {
            tensors,
            plan,
            kernels,
            weights,
            absent: 0,
            leaves: (options.weights == WeightCheck::OnUse).then_some(leaves),
            code: kernel_code,
            variant,
        })?;
        Ok(Model {
            inner,
            header_and_tables,
            file,
            _tables: memory,
            _code: code.map(|(m, _)| m),
            #[cfg(feature = "interp")]
            _programs: programs,
        })
    }

    /// The model as a session wants it.
    pub fn view(&self) -> ModelRef<'_> {
        self.inner
    }

    /// A session with memory of its own.
    pub fn session(&self) -> Result<OwnedSession<'_>, Error> {
        OwnedSession::new(self.view())
    }

    fn index(&self) -> Result<Index<'_>, FormatError> {
        Index::parse(&self.header_and_tables, self.file.get().len() as u64)
    }

    /// The root digest: what [`Trust::Pinned`] takes.
    pub fn root(&self) -> Result<Digest, FormatError> {
        Ok(self.index()?.header().root)
    }

    /// The variant that was taken.
    pub fn variant(&self) -> Result<Variant, Error> {
        self.index()?.variant(self.inner.variant()).ok_or(Error::NoSuchVariant)
    }

    /// The file's description. Read and verified now.
    pub fn meta(&self) -> Result<Meta, FormatError> {
        read::meta(&graphmend_cache_format::file::File::parse(self.file.get())?)
    }

    /// The variant's names for people. Read and verified now.
    pub fn debug(&self) -> Result<Debug, FormatError> {
        read::debug(&graphmend_cache_format::file::File::parse(self.file.get())?, self.inner.variant())
    }
}

/// The kernels of a variant that is interpreted, read from a verified copy of CODE.
#[cfg(feature = "interp")]
fn interpreted<'f>(
    kernels: &[u8],
    code: Option<Section>,
    data: impl Fn(Section) -> &'f [u8],
) -> Result<Box<[graphmend_kernel::interp::Program]>, Why> {
    let kernels = graphmend_cache_format::plan::Kernels::parse(kernels)?;
    let code = match code {
        None => std::vec::Vec::new(),
        Some(section) => {
            let copy = data(section).to_vec();
            verify_bytes(&section, &copy)?;
            copy
        }
    };
    Ok(crate::interp::programs(&kernels, &code)?.into())
}

/// A lifetime that the caller vouches for.
///
/// # Safety
///
/// The bytes must stay where they are and unchanged for as long as the result is used.
unsafe fn forever(bytes: &[u8]) -> &'static [u8] {
    // SAFETY: promised by the caller.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
}

/// A variant that was asked for by number, if the host can run it.
fn check_variant(index: &Index<'_>, variant: u16, host: Host) -> Result<u16, Error> {
    let v = index.variant(variant).ok_or(Error::NoSuchVariant)?;
    crate::select::fits(v, host)?;
    Ok(variant)
}
