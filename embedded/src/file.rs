//! A packed file in a flash chip: its sections, read and compared with their digests.

use embedded_hal::spi::SpiDevice;
use graphmend_cache_format::digest::{Hasher, digest};
use graphmend_cache_format::file::{ALL_VARIANTS, HEADER, Index, Section, SectionKind};
use graphmend_cache_format::{Digest, FormatError, LEAF};
use graphmend_runtime::{Error as RunError, Host, Sections, Trust, select};

use crate::{Error, NorFlash};

/// Sees a piece of the file, at an offset.
type See<'f> = &'f mut dyn FnMut(u64, &[u8]);
/// The same, and may find it wrong.
pub(crate) type Judge<'f> = &'f mut dyn FnMut(u64, &[u8]) -> Result<(), FormatError>;

/// What was read into lent memory, and the rest of that.
type Part<'m> = (&'m [u8], &'m mut [u8]);

/// A packed file in a flash chip.
#[derive(Debug)]
pub struct FlashFile<S> {
    flash: NorFlash<S>,
    base: u32,
}

/// What a run needs of a file beside weights and kernels, in lent memory, verified.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'m> {
    /// For [`ModelRef::from_sections`](graphmend_runtime::ModelRef::from_sections).
    pub sections: Sections<'m>,
    /// A digest for each block of [`LEAF`] bytes of weights.
    pub leaves: &'m [u8],
    /// Where the weights begin in the file.
    pub weights_at: u64,
    /// The variant's code, if it is in the file. It can be run where memory is executable: [`FlashFile::section`] reads it there,
    /// to a multiple of [`CODE_ALIGN`](graphmend_cache_format::CODE_ALIGN).
    pub code: Option<Section>,
}

impl<S: SpiDevice> FlashFile<S> {
    /// A file whose first byte is at an address.
    pub fn new(flash: NorFlash<S>, address: u32) -> FlashFile<S> {
        FlashFile { flash, base: address }
    }

    /// Gives the chip back.
    pub fn release(self) -> NorFlash<S> {
        self.flash
    }

    /// Reads bytes of the file.
    ///
    /// # Errors
    /// Those of [`NorFlash::read`].
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error<S::Error>> {
        let address = u64::from(self.base).saturating_add(offset);
        let address = u32::try_from(address).map_err(|_| Error::OutOfRange {
            address: u32::MAX,
            bytes: into.len() as u64,
            capacity: self.flash.capacity(),
        })?;
        self.flash.read(address, into)
    }

    /// Reads and checks header and tables. They stay at the front of `memory`; the rest of it is given back.
    ///
    /// # Errors
    /// What is wrong with the file; [`Error::MemoryTooSmall`].
    pub fn index<'m>(&mut self, memory: &'m mut [u8]) -> Result<(Index<'m>, &'m mut [u8]), Error<S::Error>> {
        let small = |needed| Error::MemoryTooSmall { needed };
        let head = memory.get_mut(..HEADER).ok_or(small(HEADER))?;
        self.read(0, head)?;
        let needed = Index::bytes_needed(head)?;
        let file_bytes = Index::file_bytes(head)?;
        self.flash.check(self.base, file_bytes)?;
        let (tables, rest) = memory.split_at_mut_checked(needed).ok_or(small(needed))?;
        self.read(HEADER as u64, tables.get_mut(HEADER..).unwrap_or_default())?;
        Ok((Index::parse(tables, file_bytes)?, rest))
    }

    /// Reads a section to the front of `memory` and compares it with its digest. The rest of `memory` is given back.
    ///
    /// # Errors
    /// [`FormatError::Digest`] (as [`Error::Model`]) if it is damaged; [`Error::MemoryTooSmall`]. WEIGHTS are not read in this
    /// way, but through [`FlashWeights`](crate::FlashWeights) or [`FlashFile::copy`].
    pub fn section<'m>(&mut self, section: &Section, memory: &'m mut [u8]) -> Result<Part<'m>, Error<S::Error>> {
        let needed = usize::try_from(section.bytes).map_err(|_| RunError::TooLarge)?;
        let (bytes, rest) = memory.split_at_mut_checked(needed).ok_or(Error::MemoryTooSmall { needed })?;
        self.read(section.offset, bytes)?;
        if digest(bytes) != section.digest {
            return Err(FormatError::Digest(section.kind).into());
        }
        Ok((bytes, rest))
    }

    /// Reads what a run of the file's best variant for `host` needs, but for weights and kernels, into lent memory.
    ///
    /// # Errors
    /// A file that is damaged, not the pinned one or for another machine; [`Error::MemoryTooSmall`].
    pub fn load<'m>(&mut self, memory: &'m mut [u8], trust: Trust, host: Host) -> Result<Loaded<'m>, Error<S::Error>> {
        let (index, rest) = self.index(memory)?;
        if let Trust::Pinned(root) = trust
            && root != index.header().root
        {
            return Err(RunError::NotPinned.into());
        }
        let variant = select(&index, host)?;
        let find = |kind, variant| index.section(kind, variant).ok_or(FormatError::Missing(kind));
        let (tensors, rest) = self.section(&find(SectionKind::Tensors, ALL_VARIANTS)?, rest)?;
        let (plan, rest) = self.section(&find(SectionKind::Plan, variant)?, rest)?;
        let (kernels, rest) = self.section(&find(SectionKind::Kernels, variant)?, rest)?;
        let (mut leaves, mut weights_at, mut weights_bytes) = (&[][..], 0, 0);
        if let Some(weights) = index.section(SectionKind::Weights, ALL_VARIANTS) {
            weights_at = weights.offset;
            weights_bytes = usize::try_from(weights.bytes).map_err(|_| RunError::TooLarge)?;
            (leaves, _) = self.section(&find(SectionKind::Leaves, ALL_VARIANTS)?, rest)?;
        }
        let code = index.section(SectionKind::Code, variant);
        Ok(Loaded { sections: Sections { tensors, plan, kernels, weights_bytes, variant }, leaves, weights_at, code })
    }

    /// Verifies every byte of the file, which goes through `buffer` piece by piece.
    ///
    /// # Errors
    /// What is damaged: a section, a block of weights, a byte between sections.
    pub fn verify(&mut self, index: &Index<'_>, buffer: &mut [u8]) -> Result<(), Error<S::Error>> {
        self.walk(index, buffer, &mut |_, _| {})
    }

    /// Copies the whole file to memory (another chip that is mapped, say), and verifies every byte of it on the way, through
    /// `buffer`. Nothing of the copy is to be used if this fails. A copy that succeeded can be opened with
    /// `ModelRef::from_trusted_bytes` or, to be compared once more, `ModelRef::from_bytes`.
    ///
    /// # Errors
    /// As [`FlashFile::verify`]; [`Error::MemoryTooSmall`] for `to`.
    pub fn copy(&mut self, index: &Index<'_>, to: &mut [u8], buffer: &mut [u8]) -> Result<(), Error<S::Error>> {
        let needed = usize::try_from(index.header().file_bytes).map_err(|_| RunError::TooLarge)?;
        if to.len() < needed {
            return Err(Error::MemoryTooSmall { needed });
        }
        // Header and tables, as they were checked.
        let mut tables = 0;
        let head = index.tables().into_iter().flatten().copied();
        for (to, byte) in to.iter_mut().zip(head) {
            *to = byte;
            tables += 1;
        }
        self.walk(index, buffer, &mut |offset, bytes| {
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            if from >= tables
                && let Some(to) = to.get_mut(from..from.saturating_add(bytes.len()))
            {
                to.copy_from_slice(bytes);
            }
        })
    }

    /// Reads all behind the tables and compares it; `see` gets each piece and its offset.
    fn walk(&mut self, index: &Index<'_>, buffer: &mut [u8], see: See<'_>) -> Result<(), Error<S::Error>> {
        if buffer.is_empty() {
            return Err(Error::MemoryTooSmall { needed: 1 });
        }
        let mut end = index.tables().iter().map(|t| t.len() as u64).sum();
        let leaves = index.section(SectionKind::Leaves, ALL_VARIANTS);
        for section in index.sections() {
            self.pieces(end, section.offset - end, buffer, &mut |at, bytes| {
                let wrong = bytes.iter().position(|&b| b != 0);
                see(at, bytes);
                wrong.map_or(Ok(()), |i| Err(FormatError::Gap { offset: at + i as u64 }))
            })?;
            end = section.offset + section.bytes;
            if let (SectionKind::Weights, Some(leaves)) = (section.kind, leaves) {
                self.walk_weights(&section, &leaves, buffer, see)?;
            } else if self.digest(section.offset, section.bytes, buffer, see)? != section.digest {
                return Err(FormatError::Digest(section.kind).into());
            }
        }
        Ok(())
    }

    /// Weights have a digest for each block, and the digest of all of these is the section's.
    fn walk_weights(
        &mut self,
        weights: &Section,
        leaves: &Section,
        buffer: &mut [u8],
        see: See<'_>,
    ) -> Result<(), Error<S::Error>> {
        let mut all = Hasher::new();
        for block in 0..weights.bytes.div_ceil(LEAF as u64) {
            let from = block * LEAF as u64;
            let bytes = (LEAF as u64).min(weights.bytes - from);
            let got = self.digest(weights.offset + from, bytes, buffer, see)?;
            let mut stated: Digest = [0; 32];
            self.read(leaves.offset + block * 32, &mut stated)?;
            if got != stated {
                return Err(FormatError::Leaf(u32::try_from(block).unwrap_or(u32::MAX)).into());
            }
            all.update(&got);
        }
        if all.finish() == weights.digest { Ok(()) } else { Err(FormatError::Digest(SectionKind::Leaves).into()) }
    }

    /// The digest of a range.
    fn digest(&mut self, from: u64, bytes: u64, buffer: &mut [u8], see: See<'_>) -> Result<Digest, Error<S::Error>> {
        let mut hasher = Hasher::new();
        self.pieces(from, bytes, buffer, &mut |at, piece| {
            hasher.update(piece);
            see(at, piece);
            Ok(())
        })?;
        Ok(hasher.finish())
    }

    /// Reads a range through a buffer.
    pub(crate) fn pieces(
        &mut self,
        from: u64,
        bytes: u64,
        buffer: &mut [u8],
        see: Judge<'_>,
    ) -> Result<(), Error<S::Error>> {
        let mut done = 0;
        while done < bytes {
            let take = usize::try_from(bytes - done).unwrap_or(usize::MAX).min(buffer.len());
            let piece = buffer.get_mut(..take).unwrap_or_default();
            self.read(from + done, piece)?;
            see(from + done, piece)?;
            done += take as u64;
        }
        Ok(())
    }
}
