//! The frame of a file: header, section table, variant table.
//!
//! ```text
//! header       HEADER bytes     magic, versions, feature bits, ids, root digest, counts, sizes
//! sections     SECTION bytes each, in the order of their offsets
//! variants     VARIANT bytes each
//! ...          sections, each at a multiple of its alignment; every byte between them is 0
//! ```
//!
//! What covers what: the root digest covers header (with the root digest's own bytes as zeros) and both tables; the
//! section table holds a digest of every section; the digest of WEIGHTS is that of LEAVES, which holds one digest per
//! [`LEAF`] bytes of weights; bytes between sections must be zero; and the length is stated. So every byte
//! is covered, and [`File::verify`] sees any change. The parts can be verified one by one, and a run that uses few
//! weights reads few.

use core::fmt;

use crate::bytes::{array, u16_at, u32_at, u64_at};
use crate::digest::{Hasher, digest};
use crate::{Digest, FormatError, LEAF};

/// First bytes of a file.
pub const MAGIC: [u8; 8] = *b"GMCACHE\0";
/// Files of another major version are not read.
pub const VERSION_MAJOR: u16 = 2;
/// Grows with additions that older readers can ignore.
pub const VERSION_MINOR: u16 = 0;
/// Bytes of the header.
pub const HEADER: usize = 192;
/// Bytes of a section table entry.
pub const SECTION: usize = 64;
/// Bytes of a variant table entry.
pub const VARIANT: usize = 32;
/// Greatest number of sections.
pub const MAX_SECTIONS: u32 = 1024;
/// Greatest number of variants.
pub const MAX_VARIANTS: u32 = 64;
/// Greatest section alignment.
pub const MAX_ALIGN: u32 = 1 << 30;
/// In a section entry: the section belongs to all variants.
pub const ALL_VARIANTS: u16 = u16::MAX;

/// Offset of the root digest in the header.
pub(crate) const ROOT_AT: usize = 96;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u16)]
#[non_exhaustive]
pub enum SectionKind {
    /// Inputs and outputs (hot).
    Tensors = 1,
    /// Instructions and tables of a plan (hot, one per variant).
    Plan = 2,
    /// Kernel records (hot, one per variant).
    Kernels = 3,
    /// Machine code (one per variant, absent if its kernels are linked in).
    Code = 4,
    /// Constant data.
    Weights = 5,
    /// Digests of the weights.
    Leaves = 6,
    /// Description for tools.
    Meta = 7,
    /// Names for people (one per variant).
    Debug = 8,
}

impl SectionKind {
    /// All kinds, in the order of their codes.
    pub const ALL: [SectionKind; 8] = [
        SectionKind::Tensors,
        SectionKind::Plan,
        SectionKind::Kernels,
        SectionKind::Code,
        SectionKind::Weights,
        SectionKind::Leaves,
        SectionKind::Meta,
        SectionKind::Debug,
    ];

    /// The kind with this code.
    pub fn from_code(code: u16) -> Option<SectionKind> {
        SectionKind::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SectionKind::Tensors => "TENSORS",
            SectionKind::Plan => "PLAN",
            SectionKind::Kernels => "KERNELS",
            SectionKind::Code => "CODE",
            SectionKind::Weights => "WEIGHTS",
            SectionKind::Leaves => "LEAVES",
            SectionKind::Meta => "META",
            SectionKind::Debug => "DEBUG",
        })
    }
}

/// The header's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Bits for parts of the format that a reader must know. None are defined.
    pub required: u64,
    /// Bits for parts of the format that a reader may ignore. None are defined.
    pub optional: u64,
    /// Names what was packed.
    pub model_id: Digest,
    /// Names options, target and compiler.
    pub build_id: Digest,
    /// Digest of header and tables.
    pub root: Digest,
    /// Number of sections.
    pub sections: u32,
    /// Number of variants.
    pub variants: u32,
    /// Length of the file.
    pub file_bytes: u64,
    /// Greatest `arena_bytes` of all variants' plans.
    pub arena_bytes: u64,
}

/// An entry of the section table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// What it holds.
    pub kind: SectionKind,
    /// Whose it is, or [`ALL_VARIANTS`].
    pub variant: u16,
    /// Offset in the file.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// Alignment of the offset.
    pub align: u32,
    /// Digest (of the section's bytes; for WEIGHTS, of LEAVES).
    pub digest: Digest,
}

/// An entry of the variant table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// Instruction set.
    pub arch: u16,
    /// Calling convention: one of [`abi::id`](crate::abi::id).
    pub abi: u16,
    /// The highest of those that fit is taken.
    pub rank: u32,
    /// CPU features that the code needs.
    pub features: u64,
}

/// Header and tables of a file, read in place and checked: see [`Index::parse`].
#[derive(Clone, Copy, Debug)]
pub struct Index<'a> {
    header: Header,
    head: &'a [u8],
    sections: &'a [u8],
    variants: &'a [u8],
}

impl<'a> Index<'a> {
    /// Bytes that header and tables take, from the first [`HEADER`] bytes of a file.
    pub fn bytes_needed(head: &[u8]) -> Result<usize, FormatError> {
        let h = parse_header(head)?;
        Ok(HEADER + h.sections as usize * SECTION + h.variants as usize * VARIANT)
    }

    /// Length of a file, from its first [`HEADER`] bytes, for a file of which only the place is known. Nothing is
    /// verified.
    pub fn file_bytes(head: &[u8]) -> Result<u64, FormatError> {
        parse_header(head).map(|header| header.file_bytes)
    }

    /// Checks header, tables and their digest. `head` begins with header and tables; `file_bytes` is the length of the
    /// whole file.
    ///
    /// Afterwards every section lies inside the file, at its alignment, behind the one before it, and is the only one
    /// of its kind for its variant.
    pub fn parse(head: &'a [u8], file_bytes: u64) -> Result<Index<'a>, FormatError> {
        let index = Index::parse_trusted(head, file_bytes)?;
        let Index { header, head, sections, variants } = index;
        let tables_end = HEADER + sections.len() + variants.len();
        if root_digest(head, sections, variants) != header.root {
            return Err(FormatError::RootDigest);
        }
        index.check_sections(tables_end as u64)?;
        for raw in variants.chunks(VARIANT) {
            if array::<16>(raw, 16) != Some([0; 16]) {
                return Err(FormatError::Header("a reserved field of a variant is not zero"));
            }
        }
        Ok(index)
    }

    /// The same of a file that is known to be as it was written: checks the header alone, and that the file is as long as it
    /// says.
    pub fn parse_trusted(head: &'a [u8], file_bytes: u64) -> Result<Index<'a>, FormatError> {
        let header = parse_header(head)?;
        let sections_end = HEADER + header.sections as usize * SECTION;
        let tables_end = sections_end + header.variants as usize * VARIANT;
        let truncated = FormatError::Truncated { have: file_bytes, need: header.file_bytes.max(tables_end as u64) };
        if file_bytes < header.file_bytes {
            return Err(truncated);
        }
        if file_bytes > header.file_bytes {
            return Err(FormatError::Trailing { have: file_bytes, need: header.file_bytes });
        }
        let sections = head.get(HEADER..sections_end).ok_or(truncated)?;
        let variants = head.get(sections_end..tables_end).ok_or(truncated)?;
        let head = head.get(..HEADER).ok_or(truncated)?;
        Ok(Index { header, head, sections, variants })
    }

    fn check_sections(&self, tables_end: u64) -> Result<(), FormatError> {
        let mut end = tables_end;
        for index in 0..self.header.sections {
            let wrong = |what| FormatError::Section { index, what };
            let s = self.section_at(index)?;
            if s.variant != ALL_VARIANTS && u32::from(s.variant) >= self.header.variants {
                return Err(wrong("there is no such variant"));
            }
            let of_variant =
                matches!(s.kind, SectionKind::Plan | SectionKind::Kernels | SectionKind::Code | SectionKind::Debug);
            if of_variant == (s.variant == ALL_VARIANTS) {
                return Err(wrong("wrong variant for this kind of section"));
            }
            if !s.align.is_power_of_two() || s.align > MAX_ALIGN {
                return Err(wrong("the alignment is not a power of two up to 2^30"));
            }
            if !s.offset.is_multiple_of(u64::from(s.align)) {
                return Err(wrong("the offset is not aligned"));
            }
            if s.offset < end {
                return Err(wrong("overlaps what is before it"));
            }
            end = s.offset.checked_add(s.bytes).ok_or(wrong("too large"))?;
            if end > self.header.file_bytes {
                return Err(wrong("ends behind the end of the file"));
            }
            for earlier in 0..index {
                let e = self.section_at(earlier)?;
                if (e.kind, e.variant) == (s.kind, s.variant) {
                    return Err(wrong("a second section of the same kind"));
                }
            }
        }
        if end != self.header.file_bytes {
            return Err(FormatError::Header("the file does not end with its last section"));
        }
        let weights = self.section(SectionKind::Weights, ALL_VARIANTS);
        let leaves = self.section(SectionKind::Leaves, ALL_VARIANTS);
        match (weights, leaves) {
            (None, None) => Ok(()),
            (Some(w), Some(l))
                if w.bytes.div_ceil(LEAF as u64).checked_mul(32) == Some(l.bytes) && w.digest == l.digest =>
            {
                Ok(())
            }
            _ => Err(FormatError::Header("WEIGHTS and LEAVES do not fit together")),
        }
    }

    /// The bytes that were parsed, which a file begins with: header, section table, variant table.
    pub fn tables(&self) -> [&'a [u8]; 3] {
        [self.head, self.sections, self.variants]
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn section_at(&self, index: u32) -> Result<Section, FormatError> {
        let wrong = |what| FormatError::Section { index, what };
        let raw = (index < self.header.sections)
            .then(|| array::<SECTION>(self.sections, index as usize * SECTION))
            .flatten()
            .ok_or(wrong("there is no such section"))?;
        let read = || {
            Some((
                u16_at(&raw, 0)?,
                u16_at(&raw, 2)?,
                u32_at(&raw, 4)?,
                u64_at(&raw, 8)?,
                u64_at(&raw, 16)?,
                array(&raw, 32)?,
            ))
        };
        let (kind, variant, align, offset, bytes, digest) = read().ok_or(wrong("short entry"))?;
        if u64_at(&raw, 24) != Some(0) {
            return Err(wrong("a reserved field is not zero"));
        }
        let kind = SectionKind::from_code(kind).ok_or(wrong("unknown kind"))?;
        Ok(Section { kind, variant, offset, bytes, align, digest })
    }

    /// The sections, in the order of their offsets.
    pub fn sections(&self) -> impl Iterator<Item = Section> + use<'a> {
        let this = *self;
        (0..this.header.sections).filter_map(move |i| this.section_at(i).ok())
    }

    /// The section of this kind for this variant (or for all: [`ALL_VARIANTS`]).
    pub fn section(&self, kind: SectionKind, variant: u16) -> Option<Section> {
        self.sections().find(|s| (s.kind, s.variant) == (kind, variant))
    }

    /// Where the section of this kind for this variant lies, of a file that is known to be as it was written.
    pub fn trusted_range(&self, kind: SectionKind, variant: u16) -> Option<core::ops::Range<usize>> {
        let entries = self.sections.chunks_exact(SECTION);
        let is_it = |raw: &&[u8]| u16_at(raw, 0) == Some(kind as u16) && u16_at(raw, 2) == Some(variant);
        let raw = entries.into_iter().find(is_it)?;
        let from = usize::try_from(u64_at(raw, 8)?).ok()?;
        Some(from..from.checked_add(usize::try_from(u64_at(raw, 16)?).ok()?)?)
    }

    /// A variant.
    pub fn variant(&self, index: u16) -> Option<Variant> {
        let raw: [u8; VARIANT] = array(self.variants, usize::from(index) * VARIANT)?;
        Some(Variant {
            arch: u16_at(&raw, 0)?,
            abi: u16_at(&raw, 2)?,
            rank: u32_at(&raw, 4)?,
            features: u64_at(&raw, 8)?,
        })
    }

    /// The variants.
    pub fn variants(&self) -> impl Iterator<Item = Variant> + use<'a> {
        let this = *self;
        (0..=u16::MAX).map_while(move |i| this.variant(i))
    }

    /// Checks that all bytes between sections are zero. `file` is the whole file.
    pub fn verify_gaps(&self, file: &[u8]) -> Result<(), FormatError> {
        let mut end = HEADER + self.sections.len() + self.variants.len();
        for section in self.sections() {
            let range = Index::range(&section).unwrap_or_default();
            let gap = file.get(end..range.start).unwrap_or_default();
            if let Some(at) = first_nonzero(gap) {
                return Err(FormatError::Gap { offset: (end + at) as u64 });
            }
            end = range.end;
        }
        Ok(())
    }

    /// Where a section lies, as a range for indexing.
    pub fn range(section: &Section) -> Option<core::ops::Range<usize>> {
        let from = usize::try_from(section.offset).ok()?;
        Some(from..from.checked_add(usize::try_from(section.bytes).ok()?)?)
    }
}

/// Where the first byte is that is not zero. Gaps are up to a page each, at every start: this looks at many bytes at once.
fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    let clean = bytes.chunks(256).take_while(|c| c.iter().fold(0, |all, b| all | b) == 0).count() * 256;
    let rest = bytes.get(clean..)?;
    rest.iter().position(|&b| b != 0).map(|at| clean + at)
}

fn parse_header(head: &[u8]) -> Result<Header, FormatError> {
    let have = head.len() as u64;
    // Whatever starts otherwise is another kind of file, however short it is.
    let start = head.get(..MAGIC.len().min(head.len())).unwrap_or_default();
    if start.is_empty() || !MAGIC.starts_with(start) {
        return Err(FormatError::NotACache);
    }
    let h: [u8; HEADER] = array(head, 0).ok_or(FormatError::Truncated { have, need: HEADER as u64 })?;
    let read = || {
        Some(Header {
            major: u16_at(&h, 8)?,
            minor: u16_at(&h, 10)?,
            required: u64_at(&h, 16)?,
            optional: u64_at(&h, 24)?,
            model_id: array(&h, 32)?,
            build_id: array(&h, 64)?,
            root: array(&h, ROOT_AT)?,
            sections: u32_at(&h, 128)?,
            variants: u32_at(&h, 132)?,
            file_bytes: u64_at(&h, 136)?,
            arena_bytes: u64_at(&h, 144)?,
        })
    };
    let header = read().ok_or(FormatError::Header("short"))?;
    if header.major != VERSION_MAJOR {
        return Err(FormatError::Version { major: header.major, minor: header.minor });
    }
    if header.required != 0 {
        return Err(FormatError::RequiredFeatures(header.required));
    }
    if u32_at(&h, 12) != Some(HEADER as u32) {
        return Err(FormatError::Header("wrong header size"));
    }
    if h.get(152..).is_none_or(|rest| rest.iter().any(|&b| b != 0)) {
        return Err(FormatError::Header("a reserved field is not zero"));
    }
    if header.sections > MAX_SECTIONS || header.variants > MAX_VARIANTS || header.variants == 0 {
        return Err(FormatError::Header("wrong number of sections or variants"));
    }
    Ok(header)
}

/// The root digest: of the header with its digest zeroed, and both tables.
pub(crate) fn root_digest(header: &[u8], sections: &[u8], variants: &[u8]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(header.get(..ROOT_AT).unwrap_or_default());
    hasher.update(&[0; 32]);
    hasher.update(header.get(ROOT_AT + 32..).unwrap_or_default());
    hasher.update(sections);
    hasher.update(variants);
    hasher.finish()
}

/// Checks one block of weights against its digest. `index` counts blocks of [`LEAF`] bytes.
pub fn verify_leaf(weights: &[u8], leaves: &[u8], index: usize) -> Result<(), FormatError> {
    let wrong = FormatError::Leaf(u32::try_from(index).unwrap_or(u32::MAX));
    let from = index.checked_mul(LEAF).ok_or(wrong)?;
    let data = weights.get(from..weights.len().min(from.saturating_add(LEAF))).ok_or(wrong)?;
    let stated: Digest = array(leaves, index.checked_mul(32).ok_or(wrong)?).ok_or(wrong)?;
    if digest(data) == stated { Ok(()) } else { Err(wrong) }
}

/// A whole file in memory.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    index: Index<'a>,
    bytes: &'a [u8],
}

impl<'a> File<'a> {
    /// Checks header and tables (see [`Index::parse`]). Sections are not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<File<'a>, FormatError> {
        Ok(File { index: Index::parse(bytes, bytes.len() as u64)?, bytes })
    }

    /// Header and tables.
    pub fn index(&self) -> &Index<'a> {
        &self.index
    }

    /// A section's bytes, unverified.
    pub fn data(&self, section: &Section) -> &'a [u8] {
        Index::range(section).and_then(|r| self.bytes.get(r)).unwrap_or_default()
    }

    /// A section's bytes, after a look at their digest. WEIGHTS are verified block by block.
    pub fn verified(&self, kind: SectionKind, variant: u16) -> Result<&'a [u8], FormatError> {
        let section = self.index.section(kind, variant).ok_or(FormatError::Missing(kind))?;
        self.verify_section(&section)?;
        Ok(self.data(&section))
    }

    /// Compares a section with its digest.
    pub fn verify_section(&self, section: &Section) -> Result<(), FormatError> {
        let data = self.data(section);
        if section.kind == SectionKind::Weights {
            let leaves = self.verified(SectionKind::Leaves, ALL_VARIANTS)?;
            return (0..data.len().div_ceil(LEAF)).try_for_each(|i| verify_leaf(data, leaves, i));
        }
        verify_bytes(section, data)
    }

    /// Verifies every byte of the file: header and tables have been, all sections and gaps are.
    pub fn verify(&self) -> Result<(), FormatError> {
        self.index.verify_gaps(self.bytes)?;
        self.index.sections().try_for_each(|s| self.verify_section(&s))
    }
}

/// Compares bytes with a section's digest (not for WEIGHTS, see [`verify_leaf`]).
pub fn verify_bytes(section: &Section, data: &[u8]) -> Result<(), FormatError> {
    if data.len() as u64 == section.bytes && digest(data) == section.digest {
        Ok(())
    } else {
        Err(FormatError::Digest(section.kind))
    }
}
