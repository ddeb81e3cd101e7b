//! Sessions: inputs, runs, outputs.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, TryLockError};

use graphmend_runtime::{ARENA_ALIGN, DType, Error, Model, OwnedSession, TensorRef};

use crate::model::ModelHandle;
use crate::status::{Failure, Status, call, null};
use crate::types::{OutputTensor, SessionOptions};

/// Alignment that a lent arena must have.
pub const GM_ARENA_ALIGN: usize = 64;
const _: () = assert!(GM_ARENA_ALIGN == ARENA_ALIGN);

/// Greatest number of dimensions.
pub const GM_MAX_RANK: usize = 32;

/// A model with memory for its runs. One thread uses it at a time.
#[derive(Debug)]
pub struct SessionHandle(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    session: OwnedSession<'static>,
    model: Arc<Model>,
    inputs: Vec<Option<Input>>,
    /// Room for the list that a run wants, so that it allocates nothing. Empty between runs.
    list: Vec<TensorRef<'static>>,
    /// What the last run that found the arena too small asked for.
    needed: usize,
}

/// An input as it was set.
#[derive(Clone, Copy, Debug)]
struct Input {
    dtype: DType,
    shape: [usize; GM_MAX_RANK],
    rank: usize,
    data: *const u8,
    bytes: usize,
}

// SAFETY: the pointer is only followed in a run. That the memory behind it may be read then, from whichever thread runs, is
// what the header asks of the caller.
unsafe impl Send for Input {}

impl Input {
    fn bytes(&self) -> &'static [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: not null, and as long as it says (`gm_session_set_input`); it stays readable and unchanged until the
        // end of each run, as the caller promises, and is looked at in runs alone.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }
    }
}

/// Makes a session. `options` may be null: an arena of the session's own, one thread. `*session` is to be freed with
/// gm_session_free.
///
/// # Safety
/// `model` is open. `options` is null or readable; its arena, if there is one, has `arena_bytes` writable bytes that nobody else
/// uses until the session is freed. `session` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_new(
    model: *const ModelHandle,
    options: *const SessionOptions,
    session: *mut *mut SessionHandle,
) -> Status {
    call(|| {
        // SAFETY: open, as the caller promises, or null.
        let handle = unsafe { model.as_ref() }.ok_or_else(|| null("model"))?;
        if session.is_null() {
            return Err(null("session"));
        }
        // SAFETY: readable, as the caller promises, or null.
        let options = unsafe { options.as_ref() };
        let model = Arc::clone(&handle.model);
        let fail = |e| Failure::of(&handle.model, e);
        let mut made = match options {
            Some(options) if !options.arena.is_null() => {
                if isize::try_from(options.arena_bytes).is_err() {
                    return Err(Failure::new(Status::Argument, "no memory is that large"));
                }
                // SAFETY: not null; writable and the session's alone until it is freed, as the caller promises. What the
                // bytes are does not matter, but that they are set: nobody else is asked to, so it is done here.
                let arena = unsafe {
                    options.arena.cast::<u8>().write_bytes(0, options.arena_bytes);
                    std::slice::from_raw_parts_mut(options.arena.cast::<u8>(), options.arena_bytes)
                };
                OwnedSession::shared_in(model, arena).map_err(fail)?
            }
            _ => OwnedSession::shared(model).map_err(fail)?,
        };
        if let Some(options) = options {
            made = made.threads(options.threads as usize).map_err(fail)?;
        }
        let count = handle.model.view().inputs().count();
        let inner = Inner {
            session: made,
            model: Arc::clone(&handle.model),
            inputs: vec![None; count],
            list: Vec::with_capacity(count),
            needed: 0,
        };
        let made = Box::into_raw(Box::new(SessionHandle(Mutex::new(inner))));
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { session.write(made) };
        Ok(())
    })
}

/// Frees a session; its outputs are gone, lent memory is the caller's again. Null is allowed and does nothing.
///
/// # Safety
/// `session` is null or comes from gm_session_new, was not freed before, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_free(session: *mut SessionHandle) {
    call(|| {
        if !session.is_null() {
            // SAFETY: it was made by `Box::into_raw` and is not used any more, as the caller promises.
            drop(unsafe { Box::from_raw(session) });
        }
        Ok(())
    });
}

/// Works with a session, if no other thread does.
///
/// # Safety
/// `session` is null or was not freed.
unsafe fn with(session: *const SessionHandle, work: impl FnOnce(&mut Inner) -> Result<(), Failure>) -> Status {
    call(|| {
        // SAFETY: not freed, as the caller promises, or null.
        let session = unsafe { session.as_ref() }.ok_or_else(|| null("session"))?;
        match session.0.try_lock() {
            Ok(mut inner) => work(&mut inner),
            Err(TryLockError::WouldBlock) => Err(Failure::new(Status::Busy, "another thread uses the session")),
            Err(TryLockError::Poisoned(_)) => Err(Failure::new(Status::Internal, "an earlier call failed inside")),
        }
    })
}

/// Sets an input: elements of type `dtype` (a gm_dtype), row-major, little-endian, `bytes` in all, aligned to their type. The
/// data is not copied: it must stay until the end of the last run that shall use it. `shape` is copied. Whether they are what
/// the model declares is found by the run. `shape` may be null if `rank` is 0, `data` if `bytes` is 0. Elements of type
/// GM_DTYPE_BOOL must be 0 or 1.
///
/// # Safety
/// `session` was not freed. `rank` sizes at `shape` are readable. `bytes` bytes at `data` are readable and do not change in any
/// run until the input is set anew.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_set_input(
    session: *mut SessionHandle,
    index: usize,
    dtype: u32,
    shape: *const i64,
    rank: usize,
    data: *const c_void,
    bytes: usize,
) -> Status {
    let set = |inner: &mut Inner| {
        let wrong = |text: String| Failure::new(Status::Argument, text);
        let code = u8::try_from(dtype).ok();
        let dtype = code.and_then(DType::from_code).ok_or_else(|| wrong(format!("{dtype} is not a gm_dtype")))?;
        if rank > GM_MAX_RANK {
            return Err(wrong(format!("{rank} dimensions; {GM_MAX_RANK} are possible")));
        }
        if (shape.is_null() && rank > 0) || (data.is_null() && bytes > 0) {
            return Err(null(if shape.is_null() && rank > 0 { "shape" } else { "data" }));
        }
        if isize::try_from(bytes).is_err() {
            return Err(wrong("no memory is that large".into()));
        }
        let mut input = Input { dtype, shape: [0; GM_MAX_RANK], rank, data: data.cast(), bytes };
        for (axis, size) in input.shape.iter_mut().take(rank).enumerate() {
            // SAFETY: `rank` sizes are readable, as the caller promises.
            let given = unsafe { shape.add(axis).read() };
            *size = usize::try_from(given).map_err(|_| wrong(format!("size {given} on axis {axis}")))?;
        }
        let count = inner.inputs.len();
        let no = || Failure::new(Status::NoSuchTensor, format!("input {index} of {count} (from 0)"));
        *inner.inputs.get_mut(index).ok_or_else(no)? = Some(input);
        Ok(())
    };
    // SAFETY: passed on.
    unsafe { with(session, set) }
}

/// Runs the model on the inputs that are set. Inputs stay set for the next run. Outputs of an earlier run are gone, even if this
/// one fails.
///
/// # Safety
/// `session` was not freed; the data of all inputs is still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_run(session: *mut SessionHandle) -> Status {
    // SAFETY: passed on.
    unsafe { with(session, run) }
}

fn run(inner: &mut Inner) -> Result<(), Failure> {
    let Inner { session, model, inputs, list, needed } = inner;
    list.clear();
    let arena = session.arena_range();
    for (index, input) in inputs.iter().enumerate() {
        let named = || model.view().inputs().nth(index).map_or(String::new(), |t| t.name.to_owned());
        let Some(input) = input else {
            return Err(Failure::new(Status::InputMissing, format!("input {index} ({}) is not set", named())));
        };
        let end = input.data.wrapping_add(input.bytes);
        if input.bytes > 0 && input.data < arena.end && arena.start < end {
            let text = format!("input {index} ({}) lies in the session's arena: copy it", named());
            return Err(Failure::new(Status::InputOverlap, text));
        }
        let shape = input.shape.get(..input.rank).unwrap_or_default();
        // SAFETY: `list` is empty again before this function ends, and `inputs` does not change in it.
        let shape: &'static [usize] = unsafe { std::slice::from_raw_parts(shape.as_ptr(), shape.len()) };
        list.push(TensorRef::from_bytes(input.dtype, shape, input.bytes()));
    }
    let result = session.run(list);
    list.clear();
    if let Err(Error::ArenaTooSmall { needed: bytes }) = result {
        *needed = bytes;
    }
    result.map_err(|e| Failure::of(model, e))
}

/// Bytes of arena that the last run asked for which failed with GM_STATUS_ARENA_TOO_SMALL; 0 if none did.
///
/// # Safety
/// `session` was not freed; `bytes` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_arena_needed(session: *const SessionHandle, bytes: *mut usize) -> Status {
    let ask = |inner: &mut Inner| {
        if bytes.is_null() {
            return Err(null("bytes"));
        }
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { bytes.write(inner.needed) };
        Ok(())
    };
    // SAFETY: passed on.
    unsafe { with(session, ask) }
}

/// An output of the last run. What `*output` points to is valid until the session's next run or its end.
///
/// # Safety
/// `session` was not freed; `output` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_session_output(
    session: *const SessionHandle,
    index: usize,
    output: *mut OutputTensor,
) -> Status {
    let ask = |inner: &mut Inner| {
        if output.is_null() {
            return Err(null("output"));
        }
        let count = inner.model.view().outputs().count();
        if index >= count {
            return Err(Failure::new(Status::NoSuchTensor, format!("output {index} of {count} (from 0)")));
        }
        let view = inner.session.output(index).map_err(|e| Failure::of(&inner.model, e))?;
        let tensor = OutputTensor {
            dtype: view.dtype.into(),
            rank: view.shape.len(),
            shape: view.shape.as_ptr(),
            data: view.bytes.as_ptr().cast(),
            bytes: view.bytes.len(),
        };
        // SAFETY: not null, and writable, as the caller promises.
        unsafe { output.write(tensor) };
        Ok(())
    };
    // SAFETY: passed on.
    unsafe { with(session, ask) }
}
