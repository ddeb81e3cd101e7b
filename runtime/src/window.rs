//! Weights that are not in memory: a run brings what a step reads into a window.

use graphmend_cache_format::ARENA_ALIGN;

use crate::Error;

/// Storage that weights are read from: a flash chip behind a bus, a file.
pub trait WeightSource {
    /// Reads the bytes of WEIGHTS from `offset` on. They have been compared with their digests, or the storage is trusted.
    ///
    /// # Errors
    /// [`Error::WeightsUnreadable`] for what the storage itself reports, [`Error::Format`] for a block that is damaged.
    fn read(&mut self, offset: usize, into: &mut [u8]) -> Result<(), Error>;
}

/// Where a run finds weights that are not in memory. Behind a table of functions, so that no code for it is linked where no run is
/// given any.
pub(crate) trait Bring {
    /// Forgets what the last step has read.
    fn clear(&mut self);

    /// Reads a range behind what the step has read already, and says where it lies until [`Bring::clear`].
    fn bring(&mut self, offset: usize, len: usize) -> Result<*mut u8, Error>;
}

/// Lent memory for the weights of one step.
pub(crate) struct Window<'r> {
    source: &'r mut dyn WeightSource,
    memory: *mut u8,
    len: usize,
    used: usize,
}

impl<'r> Window<'r> {
    pub(crate) fn new(source: &'r mut dyn WeightSource, memory: &'r mut [u8]) -> Result<Window<'r>, Error> {
        if !memory.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
            return Err(Error::ArenaMisaligned);
        }
        Ok(Window { source, memory: memory.as_mut_ptr(), len: memory.len(), used: 0 })
    }
}

impl Bring for Window<'_> {
    fn clear(&mut self) {
        self.used = 0;
    }

    fn bring(&mut self, offset: usize, len: usize) -> Result<*mut u8, Error> {
        let needed = self.used.checked_add(len).ok_or(Error::TooLarge)?;
        if needed > self.len {
            return Err(Error::WindowTooSmall { needed });
        }
        let to = self.memory.wrapping_add(self.used);
        // SAFETY: `len` bytes behind the first `used` of lent memory, which nobody else refers to: pointers that were given
        // out since it was cleared lie before them.
        let bytes = unsafe { core::slice::from_raw_parts_mut(to, len) };
        self.source.read(offset, bytes)?;
        self.used = needed.checked_next_multiple_of(ARENA_ALIGN).map_or(self.len, |used| used.min(self.len));
        Ok(to)
    }
}
