//! Errors as codes, a message for each, and the details of the last one.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use graphmend_runtime::{Error, FormatError, Model, OpenError};

/// What a call came to. Values never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A pointer is null that must not be.
    NullPointer = 1,
    /// An argument has a value that makes no sense: an unknown element type, a negative size, too many dimensions.
    Argument = 2,
    /// The operating system refused to open, read or map the file.
    Io = 3,
    /// The file is not a packed model.
    NotACache = 4,
    /// The file is shorter or longer than it says.
    Length = 5,
    /// The file has a format that this library does not read.
    Version = 6,
    /// The file is damaged: some bytes do not have their digest, or a record is wrong.
    Damaged = 7,
    /// The file is not the one whose root digest was given.
    NotPinned = 8,
    /// The file was made for another kind of processor or operating system.
    WrongTarget = 9,
    /// The file needs processor features that this processor lacks.
    MissingFeatures = 10,
    /// There is not enough memory.
    OutOfMemory = 11,
    /// As many threads cannot be had.
    Threads = 12,
    /// The lent arena is too small.
    ArenaTooSmall = 13,
    /// Lent memory is not aligned as it must be.
    Misaligned = 14,
    /// There is no input or output of this number or name.
    NoSuchTensor = 15,
    /// An input was not set before the run.
    InputMissing = 16,
    /// An input has another element type than the model declares.
    InputType = 17,
    /// An input has another number of dimensions or another size than the model declares.
    InputShape = 18,
    /// An input's data is not as long as its shape and type say.
    InputBytes = 19,
    /// An input's data is not aligned to its element type.
    InputMisaligned = 20,
    /// An input's data lies in the session's arena, like the outputs of a run.
    InputOverlap = 21,
    /// An index in the data is out of range.
    DataIndex = 22,
    /// A condition that the model demands of its data does not hold.
    Check = 23,
    /// There are no outputs: no run has succeeded.
    NoOutput = 24,
    /// The run failed in another way: a size that follows from the data is too large, say.
    Run = 25,
    /// The session is in use by another thread.
    Busy = 26,
    /// An error in this library. The session that it happened in is of no more use.
    Internal = 27,
}

/// All statuses, in the order of their codes.
const ALL: [(Status, &str); 28] = [
    (Status::Ok, "success\0"),
    (Status::NullPointer, "a pointer is null that must not be\0"),
    (Status::Argument, "an argument has a value that makes no sense\0"),
    (Status::Io, "the file cannot be read\0"),
    (Status::NotACache, "the file is not a packed model\0"),
    (Status::Length, "the file is shorter or longer than it says\0"),
    (Status::Version, "the file has a format that this library does not read\0"),
    (Status::Damaged, "the file is damaged\0"),
    (Status::NotPinned, "the file is not the one that was asked for: its root digest differs\0"),
    (Status::WrongTarget, "the file was made for another kind of processor or operating system\0"),
    (Status::MissingFeatures, "the file needs processor features that this processor lacks\0"),
    (Status::OutOfMemory, "there is not enough memory\0"),
    (Status::Threads, "as many threads cannot be had\0"),
    (Status::ArenaTooSmall, "the lent arena is too small\0"),
    (Status::Misaligned, "lent memory is not aligned as it must be\0"),
    (Status::NoSuchTensor, "there is no input or output of this number or name\0"),
    (Status::InputMissing, "an input was not set before the run\0"),
    (Status::InputType, "an input has another element type than the model declares\0"),
    (Status::InputShape, "an input has another shape than the model declares\0"),
    (Status::InputBytes, "an input's data is not as long as its shape and type say\0"),
    (Status::InputMisaligned, "an input's data is not aligned to its element type\0"),
    (Status::InputOverlap, "an input's data lies in the session's arena\0"),
    (Status::DataIndex, "an index in the data is out of range\0"),
    (Status::Check, "a condition that the model demands of its data does not hold\0"),
    (Status::NoOutput, "there are no outputs: no run has succeeded\0"),
    (Status::Run, "the run failed\0"),
    (Status::Busy, "the session is in use by another thread\0"),
    (Status::Internal, "an error in the library\0"),
];

/// The sentence for a code, NUL at its end.
fn message(code: i32) -> &'static str {
    usize::try_from(code).ok().and_then(|i| ALL.get(i)).map_or("there is no such status\0", |(_, text)| text)
}

/// A sentence for a status, without details. Never null, valid for ever, for unknown numbers too.
#[unsafe(no_mangle)]
pub extern "C" fn gm_error_message(status: i32) -> *const c_char {
    message(status).as_ptr().cast()
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The details of the last failure on the calling thread, or an empty text. Never null; valid until the thread's next call
/// that fails, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn gm_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.try_borrow().map(|text| text.as_ptr()));
    match text {
        Ok(Ok(pointer)) => pointer,
        _ => c"".as_ptr(),
    }
}

/// Why a call failed.
pub(crate) struct Failure {
    status: Status,
    details: String,
}

impl Failure {
    pub(crate) fn new(status: Status, details: impl Into<String>) -> Failure {
        Failure { status, details: details.into() }
    }

    /// A failure of a model's session, with the names that the model has.
    pub(crate) fn of(model: &Model, error: Error) -> Failure {
        Failure::new(status_of(&error), model.explain(error))
    }
}

/// A null pointer that has a name.
pub(crate) fn null(what: &str) -> Failure {
    Failure::new(Status::NullPointer, format!("{what} is null"))
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let status = error.model_error().map_or(Status::Io, |e| status_of(&e));
        Failure::new(status, error.to_string())
    }
}

/// The code for an error of the runtime.
fn status_of(error: &Error) -> Status {
    match error {
        Error::Format(format) => match format {
            FormatError::NotACache => Status::NotACache,
            FormatError::Truncated { .. } | FormatError::Trailing { .. } => Status::Length,
            FormatError::Version { .. } | FormatError::RequiredFeatures(_) => Status::Version,
            _ => Status::Damaged,
        },
        Error::NotPinned => Status::NotPinned,
        Error::WrongArch { .. } | Error::WrongAbi | Error::NoSuchVariant => Status::WrongTarget,
        Error::MissingFeatures { .. } => Status::MissingFeatures,
        Error::NoCode { .. } => Status::Damaged,
        Error::TooLarge | Error::OutOfMemory { .. } => Status::OutOfMemory,
        Error::Threads { .. } => Status::Threads,
        Error::ArenaTooSmall { .. } => Status::ArenaTooSmall,
        Error::ArenaMisaligned | Error::CodeMisaligned | Error::FileMisaligned => Status::Misaligned,
        Error::InputCount { .. } => Status::InputMissing,
        Error::InputType { .. } => Status::InputType,
        Error::InputRank { .. } | Error::InputDim { .. } | Error::InputSymbol { .. } => Status::InputShape,
        Error::InputBytes { .. } => Status::InputBytes,
        Error::InputMisaligned { .. } => Status::InputMisaligned,
        Error::DataIndex { .. } => Status::DataIndex,
        Error::Check { .. } => Status::Check,
        Error::NoOutput => Status::NoOutput,
        _ => Status::Run,
    }
}

/// What every function that can fail does: nothing unwinds into the caller, and the details of a failure are kept.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> Status {
    // What a panic may leave half done is a session, whose lock it poisons.
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(Status::Internal, panic_text(panic)),
    };
    let text = CString::new(failure.details.replace('\0', " ")).unwrap_or_default();
    // On a thread that is ending there is nowhere to keep it.
    let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
    failure.status
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
    // Its destructor could panic in turn.
    std::mem::forget(panic);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: never null, ends with NUL, and no call fails in between.
        unsafe { CStr::from_ptr(gm_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn every_code_has_a_message_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for (code, (status, text)) in (0..).zip(ALL) {
            assert_eq!(status as i32, code);
            let c = CStr::from_bytes_with_nul(text.as_bytes()).unwrap();
            // SAFETY: never null, ends with NUL.
            assert_eq!(unsafe { CStr::from_ptr(gm_error_message(code)) }, c);
            assert!(seen.insert(text), "{text}");
        }
        for unknown in [-1, ALL.len() as i32, i32::MAX, i32::MIN] {
            assert_eq!(message(unknown), "there is no such status\0");
        }
    }

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(call(|| panic!("for {}", "a test")), Status::Internal);
        assert_eq!(last(), "for a test");
        assert_eq!(call(|| Ok(())), Status::Ok);
        assert_eq!(last(), "for a test", "success does not change it");
        assert_eq!(call(|| Err(Failure::new(Status::Argument, "a\0b"))), Status::Argument);
        assert_eq!(last(), "a b");
    }
}
