//! What can go wrong between a flash chip and a model.

use core::fmt;

use graphmend_cache_format::FormatError;
use graphmend_runtime::Error as RunError;

use crate::flash::Id;

/// Why a model in flash cannot be used. `E` is the bus's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error<E> {
    /// The bus reports an error.
    Bus(E),
    /// Nobody answers: all bits of the identification are equal. Wiring, chip select, a chip that sleeps.
    NoChip,
    /// The chip's identification does not say how large it is: [`NorFlash::with_capacity`](crate::NorFlash::with_capacity).
    UnknownSize(Id),
    /// Bytes behind the end of the chip are asked for; it would give those at its start instead.
    OutOfRange {
        /// First byte.
        address: u32,
        /// Number of bytes.
        bytes: u64,
        /// Bytes of the chip.
        capacity: u64,
    },
    /// Lent memory is too small.
    MemoryTooSmall {
        /// Bytes needed, as far as is known.
        needed: usize,
    },
    /// The model, or a run of it.
    Model(RunError),
}

impl<E> From<RunError> for Error<E> {
    fn from(error: RunError) -> Error<E> {
        Error::Model(error)
    }
}

impl<E> From<FormatError> for Error<E> {
    fn from(error: FormatError) -> Error<E> {
        Error::Model(RunError::Format(error))
    }
}

impl<E: fmt::Debug> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Bus(error) => write!(f, "the bus of the flash chip reports {error:?}"),
            Error::NoChip => f.write_str("no flash chip answers"),
            Error::UnknownSize(id) => write!(f, "the flash chip {id} does not say how large it is"),
            Error::OutOfRange { address, bytes, capacity } => {
                write!(f, "{bytes} bytes from {address:#x} on are asked for, the flash chip has {capacity}")
            }
            Error::MemoryTooSmall { needed } => write!(f, "the lent memory is too small: {needed} bytes are needed"),
            Error::Model(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for Error<E> {}
