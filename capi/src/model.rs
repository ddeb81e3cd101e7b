//! Models: open, describe, close.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use graphmend_runtime::{Model, Storage, Tensor, Trust, WeightCheck};

use crate::status::{Failure, Status, call, null};
use crate::types::{Dimension, OpenOptions, TensorInfo};

/// An open model. Any number of threads may use it at once.
#[derive(Debug)]
pub struct ModelHandle {
    pub(crate) model: Arc<Model>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// An input or output, described with C's strings.
#[derive(Debug)]
struct Port {
    name: CString,
    info: TensorInfo,
    /// What `info` points to.
    _dims: Vec<Dimension>,
    _symbols: Vec<Option<CString>>,
}

// SAFETY: the pointers in `info` and `_dims` lead to texts and dimensions that the same `Port` owns and nobody changes.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

impl Port {
    fn new(tensor: &Tensor<'_>) -> Port {
        let symbol = |s: &str| (!s.is_empty()).then(|| c_string(s));
        let symbols: Vec<Option<CString>> = tensor.dims().map(|d| symbol(d.symbol)).collect();
        let dims: Vec<Dimension> = tensor
            .dims()
            .zip(&symbols)
            .map(|(d, s)| Dimension { min: d.lo, max: d.hi, symbol: s.as_ref().map_or(ptr::null(), |s| s.as_ptr()) })
            .collect();
        let name = c_string(tensor.name);
        let info =
            TensorInfo { name: name.as_ptr(), dtype: tensor.dtype.into(), rank: dims.len(), dims: dims.as_ptr() };
        Port { name, info, _dims: dims, _symbols: symbols }
    }
}

impl ModelHandle {
    fn new(model: Model) -> *mut ModelHandle {
        let inputs = model.view().inputs().map(|t| Port::new(&t)).collect();
        let outputs = model.view().outputs().map(|t| Port::new(&t)).collect();
        Box::into_raw(Box::new(ModelHandle { model: Arc::new(model), inputs, outputs }))
    }
}

/// The runtime's options from C's.
///
/// # Safety
/// As the header says of `gm_open_options`: readable, and 32 bytes behind `root`.
unsafe fn options_of(given: *const OpenOptions) -> Result<graphmend_runtime::OpenOptions, Failure> {
    // SAFETY: readable, as the caller promises, or null.
    let Some(given) = (unsafe { given.as_ref() }) else {
        return Ok(graphmend_runtime::OpenOptions::new(Trust::Unsigned));
    };
    // SAFETY: 32 readable bytes, as the caller promises, or null; bytes have no alignment.
    let trust = unsafe { given.root.cast::<[u8; 32]>().as_ref() }.map_or(Trust::Unsigned, |root| Trust::Pinned(*root));
    let mut options = graphmend_runtime::OpenOptions::new(trust);
    options.weights = match given.weights {
        0 => WeightCheck::OnUse,
        1 => WeightCheck::Eager,
        2 => WeightCheck::Skip,
        n => return Err(Failure::new(Status::Argument, format!("weights is {n}, which is not a gm_weights"))),
    };
    options.storage = match given.storage {
        0 => Storage::Map,
        1 => Storage::Read,
        n => return Err(Failure::new(Status::Argument, format!("storage is {n}, which is not a gm_storage"))),
    };
    Ok(options)
}

#[cfg(unix)]
fn path_of(path: &CStr) -> Result<PathBuf, Failure> {
    use std::os::unix::ffi::OsStrExt;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

#[cfg(not(unix))]
fn path_of(path: &CStr) -> Result<PathBuf, Failure> {
    path.to_str().map(PathBuf::from).map_err(|_| Failure::new(Status::Argument, "the path is not UTF-8"))
}

/// Opens a packed file, verifies it and checks that it runs on this processor. `options` may be null. `*model` is to be closed
/// with gm_model_close.
///
/// # Safety
/// `path` ends with NUL. `options` is null or points to options whose `root` is null or has 32 bytes. `model` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_open(
    path: *const c_char,
    options: *const OpenOptions,
    model: *mut *mut ModelHandle,
) -> Status {
    call(|| {
        if path.is_null() || model.is_null() {
            return Err(null(if path.is_null() { "path" } else { "model" }));
        }
        // SAFETY: not null, and ends with NUL, as the caller promises.
        let path = path_of(unsafe { CStr::from_ptr(path) })?;
        // SAFETY: passed on.
        let options = unsafe { options_of(options) }?;
        let opened = ModelHandle::new(options.open(path)?);
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { model.write(opened) };
        Ok(())
    })
}

/// Opens a packed file that lies in memory, without copying its weights. `data` is at a multiple of 8 and stays as it is
/// until the model and all its sessions are gone. `options` may be null.
///
/// # Safety
/// `bytes` bytes from `data` are readable and do not change while the model or a session of it exists. `options` as for
/// gm_model_open. `model` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_open_memory(
    data: *const c_void,
    bytes: usize,
    options: *const OpenOptions,
    model: *mut *mut ModelHandle,
) -> Status {
    call(|| {
        if data.is_null() || model.is_null() {
            return Err(null(if data.is_null() { "data" } else { "model" }));
        }
        if isize::try_from(bytes).is_err() {
            return Err(Failure::new(Status::Argument, "no memory is that large"));
        }
        // SAFETY: not null; readable and unchanged for as long as anything of the model exists, as the caller promises,
        // which is as long as it is looked at.
        let file: &'static [u8] = unsafe { std::slice::from_raw_parts(data.cast(), bytes) };
        // SAFETY: passed on.
        let options = unsafe { options_of(options) }?;
        let opened = ModelHandle::new(options.from_static(file)?);
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { model.write(opened) };
        Ok(())
    })
}

/// Closes a model. Its sessions go on; what gm_model_input and gm_model_output gave is gone. Null is allowed and does nothing.
///
/// # Safety
/// `model` is null or comes from gm_model_open or gm_model_open_memory, was not closed before, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_close(model: *mut ModelHandle) {
    call(|| {
        if !model.is_null() {
            // SAFETY: it was made by `Box::into_raw` and is not used any more, as the caller promises.
            drop(unsafe { Box::from_raw(model) });
        }
        Ok(())
    });
}

/// Looks at a model and writes one result.
///
/// # Safety
/// `model` is null or open, `out` null or writable.
unsafe fn ask<T>(
    model: *const ModelHandle,
    out: *mut T,
    answer: impl FnOnce(&ModelHandle) -> Result<T, Failure>,
) -> Status {
    call(|| {
        // SAFETY: open, as the caller promises, and so only read; or null.
        let model = unsafe { model.as_ref() }.ok_or_else(|| null("model"))?;
        if out.is_null() {
            return Err(null("the result"));
        }
        let answer = answer(model)?;
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { out.write(answer) };
        Ok(())
    })
}

/// Number of inputs.
///
/// # Safety
/// `model` is open; `count` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_inputs(model: *const ModelHandle, count: *mut usize) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, count, |m| Ok(m.inputs.len())) }
}

/// Number of outputs.
///
/// # Safety
/// `model` is open; `count` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_outputs(model: *const ModelHandle, count: *mut usize) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, count, |m| Ok(m.outputs.len())) }
}

/// Describes an input. What `*info` points to is valid until the model is closed.
///
/// # Safety
/// `model` is open; `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_input(model: *const ModelHandle, index: usize, info: *mut TensorInfo) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, info, |m| describe(&m.inputs, index, "input")) }
}

/// Describes an output. What `*info` points to is valid until the model is closed.
///
/// # Safety
/// `model` is open; `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_output(model: *const ModelHandle, index: usize, info: *mut TensorInfo) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, info, |m| describe(&m.outputs, index, "output")) }
}

/// The number of the input with this name.
///
/// # Safety
/// `model` is open; `name` ends with NUL; `index` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_find_input(
    model: *const ModelHandle,
    name: *const c_char,
    index: *mut usize,
) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, index, |m| find(&m.inputs, name, "input")) }
}

/// The number of the output with this name.
///
/// # Safety
/// `model` is open; `name` ends with NUL; `index` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_find_output(
    model: *const ModelHandle,
    name: *const c_char,
    index: *mut usize,
) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, index, |m| find(&m.outputs, name, "output")) }
}

/// Bytes of arena that a session needs. Models with open dimensions may need more in a run, which then says how much.
///
/// # Safety
/// `model` is open; `bytes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_arena_bytes(model: *const ModelHandle, bytes: *mut usize) -> Status {
    // SAFETY: passed on.
    unsafe { ask(model, bytes, |m| Ok(m.model.view().arena_bytes())) }
}

/// The root digest, which covers every byte of the file: 32 bytes to `root`.
///
/// # Safety
/// `model` is open; 32 bytes at `root` are writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_model_root(model: *const ModelHandle, root: *mut u8) -> Status {
    let digest = |m: &ModelHandle| m.model.root().map_err(|e| Failure::of(&m.model, e.into()));
    // SAFETY: passed on; bytes have no alignment.
    unsafe { ask(model, root.cast::<[u8; 32]>(), digest) }
}

fn describe(ports: &[Port], index: usize, what: &str) -> Result<TensorInfo, Failure> {
    let no = || Failure::new(Status::NoSuchTensor, format!("{what} {index} of {} (from 0)", ports.len()));
    Ok(ports.get(index).ok_or_else(no)?.info)
}

/// # Safety
/// `name` is null or ends with NUL.
unsafe fn find(ports: &[Port], name: *const c_char, what: &str) -> Result<usize, Failure> {
    if name.is_null() {
        return Err(null("name"));
    }
    // SAFETY: not null, and ends with NUL, as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    ports.iter().position(|p| p.name.as_c_str() == name).ok_or_else(|| {
        let names: Vec<_> = ports.iter().map(|p| p.name.to_string_lossy()).collect();
        let text = format!("no {what} is named {}: {}", name.to_string_lossy(), names.join(", "));
        Failure::new(Status::NoSuchTensor, text)
    })
}
