//! The weights of a run, out of a flash chip.

use embedded_hal::spi::SpiDevice;
use graphmend_cache_format::digest::Hasher;
use graphmend_cache_format::{FormatError, LEAF};
use graphmend_runtime::{Error as RunError, WeightSource};

use crate::{Error, FlashFile, Loaded};

/// Gives a run the weights of a file in flash. Each block of 64 KiB is compared with its digest before anything of it is used
/// for the first time; later only what a step wants of it is read.
#[derive(Debug)]
pub struct FlashWeights<'f, S: SpiDevice> {
    file: &'f mut FlashFile<S>,
    at: u64,
    bytes: usize,
    leaves: &'f [u8],
    /// A bit for each block that was compared.
    marks: &'f mut [u8],
    failure: Option<Error<S::Error>>,
}

/// Bytes that are read at a time of what is only looked at for its block's digest.
const PIECE: usize = 256;

impl<'f, S: SpiDevice> FlashWeights<'f, S> {
    /// Takes the weights of a loaded file. `marks` has a bit for each block: at least [`FlashWeights::mark_bytes`].
    ///
    /// # Errors
    /// [`Error::MemoryTooSmall`] for `marks`.
    pub fn new(
        file: &'f mut FlashFile<S>,
        loaded: &Loaded<'f>,
        marks: &'f mut [u8],
    ) -> Result<FlashWeights<'f, S>, Error<S::Error>> {
        let needed = FlashWeights::<S>::mark_bytes(loaded);
        if marks.len() < needed {
            return Err(Error::MemoryTooSmall { needed });
        }
        marks.fill(0);
        let bytes = loaded.sections.weights_bytes;
        Ok(FlashWeights { file, at: loaded.weights_at, bytes, leaves: loaded.leaves, marks, failure: None })
    }

    /// Bytes of marks that a file needs: one for each 512 KiB of weights.
    pub fn mark_bytes(loaded: &Loaded<'_>) -> usize {
        loaded.sections.weights_bytes.div_ceil(LEAF).div_ceil(8)
    }

    /// Why a run ended with [`graphmend_runtime::Error::WeightsUnreadable`].
    pub fn failure(&mut self) -> Option<Error<S::Error>> {
        self.failure.take()
    }

    fn is_marked(&self, block: usize) -> bool {
        self.marks.get(block / 8).is_some_and(|byte| byte >> (block % 8) & 1 == 1)
    }

    /// Reads a block, gives `into` (which begins at `offset` of the weights) its part of it, and compares.
    fn read_and_compare(&mut self, block: usize, offset: usize, into: &mut [u8]) -> Result<(), Error<S::Error>> {
        let (from, to) = (block * LEAF, self.bytes.min((block + 1) * LEAF));
        let (first, last) = (offset.clamp(from, to), (offset + into.len()).clamp(from, to));
        let mut hasher = Hasher::new();
        let mut piece = [0; PIECE];
        let (start, at) = (self.at, |n: usize| n as u64);
        self.file.pieces(start + at(from), at(first - from), &mut piece, &mut |_, bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        let wanted = into.get_mut(first - offset..last - offset).unwrap_or_default();
        self.file.read(start + at(first), wanted)?;
        hasher.update(wanted);
        self.file.pieces(start + at(last), at(to - last), &mut piece, &mut |_, bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        if self.leaves.get(block * 32..(block + 1) * 32) != Some(&hasher.finish()[..]) {
            return Err(FormatError::Leaf(u32::try_from(block).unwrap_or(u32::MAX)).into());
        }
        if let Some(byte) = self.marks.get_mut(block / 8) {
            *byte |= 1 << (block % 8);
        }
        Ok(())
    }

    fn bring(&mut self, offset: usize, into: &mut [u8]) -> Result<(), Error<S::Error>> {
        let end = offset.checked_add(into.len()).filter(|&end| end <= self.bytes).ok_or(RunError::TooLarge)?;
        let mut at = offset;
        while at < end {
            let block = at / LEAF;
            let next = end.min((block + 1) * LEAF);
            let part = into.get_mut(at - offset..next - offset).unwrap_or_default();
            if self.is_marked(block) {
                self.file.read(self.at + at as u64, part)?;
            } else {
                self.read_and_compare(block, at, part)?;
            }
            at = next;
        }
        Ok(())
    }
}

impl<S: SpiDevice> WeightSource for FlashWeights<'_, S> {
    fn read(&mut self, offset: usize, into: &mut [u8]) -> Result<(), RunError> {
        self.bring(offset, into).map_err(|error| match error {
            Error::Model(error) => error,
            other => {
                self.failure = Some(other);
                RunError::WeightsUnreadable
            }
        })
    }
}
