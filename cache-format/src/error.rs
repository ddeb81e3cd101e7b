//! What can be wrong with a file.

use core::fmt;

use crate::file::SectionKind;

/// Why bytes are not a cache file that this version can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// The magic number is missing: some other kind of file.
    NotACache,
    /// Fewer bytes than the header says, or than a header has.
    Truncated {
        /// Bytes there are.
        have: u64,
        /// Bytes there should be.
        need: u64,
    },
    /// More bytes than the header says.
    Trailing {
        /// Bytes there are.
        have: u64,
        /// Bytes there should be.
        need: u64,
    },
    /// Written for another major version of the format.
    Version {
        /// The file's major version.
        major: u16,
        /// The file's minor version.
        minor: u16,
    },
    /// Uses parts of the format that this version does not know.
    RequiredFeatures(u64),
    /// A field of the header has a value that is never written.
    Header(&'static str),
    /// Header and tables do not have the digest that the header states.
    RootDigest,
    /// An entry of the section table is wrong.
    Section {
        /// Its number.
        index: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A section's bytes do not have the digest that the table states.
    Digest(SectionKind),
    /// A block of weights does not have the digest that LEAVES states.
    Leaf(u32),
    /// A byte between sections is not zero.
    Gap {
        /// Its offset in the file.
        offset: u64,
    },
    /// There is no such section.
    Missing(SectionKind),
    /// A record of a hot section is wrong.
    Record {
        /// The section.
        section: SectionKind,
        /// Which table.
        table: &'static str,
        /// Number of the record.
        index: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// A cold section cannot be decoded.
    Cold(SectionKind),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FormatError::NotACache => f.write_str("not a GraphMend cache file"),
            FormatError::Truncated { have, need } => {
                write!(f, "file is truncated: {have} bytes of {need}")
            }
            FormatError::Trailing { have, need } => {
                write!(f, "file has {have} bytes, but should have {need}")
            }
            FormatError::Version { major, minor } => write!(
                f,
                "file has format version {major}.{minor}, this program reads {}.x",
                crate::file::VERSION_MAJOR
            ),
            FormatError::RequiredFeatures(bits) => {
                write!(f, "file needs format features that this program does not know (bits {bits:#x})")
            }
            FormatError::Header(what) => write!(f, "file is damaged: header: {what}"),
            FormatError::RootDigest => f.write_str("file is damaged: header and tables do not match their digest"),
            FormatError::Section { index, what } => {
                write!(f, "file is damaged: section {index}: {what}")
            }
            FormatError::Digest(kind) => write!(f, "file is damaged: section {kind} does not match its digest"),
            FormatError::Leaf(index) => {
                write!(f, "file is damaged: block {index} of the weights does not match its digest")
            }
            FormatError::Gap { offset } => write!(f, "file is damaged: byte {offset} between sections is not zero"),
            FormatError::Missing(kind) => write!(f, "file has no section {kind}"),
            FormatError::Record { section, table, index, what } => {
                write!(f, "file is invalid: {section}, {table} {index}: {what}")
            }
            FormatError::Cold(kind) => {
                write!(f, "file is invalid: section {kind} cannot be decoded")
            }
        }
    }
}

impl core::error::Error for FormatError {}
