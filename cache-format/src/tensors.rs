//! The section TENSORS: inputs and outputs, read in place.
//!
//! ```text
//! header     16 bytes   inputs u32, outputs u32, dims u32, text bytes u32
//! tensors    16 each    dtype u8, rank u8, 0 u16, first dim u32, name offset u32, name bytes u32; inputs, then outputs
//! dims       32 each    lo i64, hi i64, same u32, name offset u32, name bytes u32, 0 u32
//! text                  UTF-8
//! ```
//!
//! A dimension `n` must satisfy `lo <= n <= hi`. `same` says where the same symbol stands first among the inputs
//! (`input << 8 | axis`, always before), so that a reader can compare without remembering symbols; or [`NONE`].

use crate::bytes::{Cutter, array, record, text, u32_at};
use crate::file::SectionKind;
use crate::{DType, FormatError, MAX_RANK};

/// No value, for `u32` fields.
pub const NONE: u32 = u32::MAX;

pub(crate) const HEAD: usize = 16;
pub(crate) const TENSOR: usize = 16;
pub(crate) const DIM: usize = 32;
/// Greatest number of inputs or outputs.
pub const MAX_TENSORS: u32 = 1 << 16;

/// The section TENSORS.
#[derive(Clone, Copy, Debug)]
pub struct Tensors<'a> {
    inputs: u32,
    outputs: u32,
    tensors: &'a [u8],
    dims: &'a [u8],
    text: &'a [u8],
}

/// An input or output.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Name in the model.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Number of dimensions.
    pub rank: usize,
    first_dim: u32,
    section: Tensors<'a>,
}

/// What a run wants to know of an input or output: no names.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Element type.
    pub dtype: DType,
    /// Number of dimensions.
    pub rank: usize,
    first_dim: u32,
    section: Tensors<'a>,
}

/// What a run wants to know of a dimension; see [`Dim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Least size.
    pub lo: i64,
    /// Greatest size.
    pub hi: i64,
    /// Input and axis that have the same symbol, before this one.
    pub same: Option<(u32, u32)>,
}

/// A dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dim<'a> {
    /// Least size.
    pub lo: i64,
    /// Greatest size.
    pub hi: i64,
    /// Input and axis that have the same symbol, before this one.
    pub same: Option<(u32, u32)>,
    /// The symbol; empty if there is none.
    pub symbol: &'a str,
}

impl Dim<'_> {
    /// The size, if it is fixed and has no name.
    pub fn fixed(&self) -> Option<i64> {
        (self.lo == self.hi && self.symbol.is_empty()).then_some(self.lo)
    }
}

impl<'a> Tensors<'a> {
    /// Finds the tables in a verified section and checks every record.
    pub fn parse(bytes: &'a [u8]) -> Result<Tensors<'a>, FormatError> {
        let this = Tensors::parse_trusted(bytes)?;
        this.check()?;
        Ok(this)
    }

    /// Finds the tables in a section that is known to be as it was written.
    pub fn parse_trusted(bytes: &'a [u8]) -> Result<Tensors<'a>, FormatError> {
        let wrong = |table, index, what| FormatError::Record { section: SectionKind::Tensors, table, index, what };
        let short = wrong("header", 0, "the section's length does not fit its counts");
        let head: [u8; HEAD] = array(bytes, 0).ok_or(short)?;
        let at = |i| u32_at(&head, i).ok_or(short);
        let (inputs, outputs, dims, text_bytes) = (at(0)?, at(4)?, at(8)?, at(12)?);
        if inputs > MAX_TENSORS || outputs > MAX_TENSORS {
            return Err(wrong("header", 0, "too many inputs or outputs"));
        }
        let mut cutter = Cutter::new(bytes.get(HEAD..).ok_or(short)?);
        let this = Tensors {
            inputs,
            outputs,
            tensors: cutter.table(inputs + outputs, TENSOR).ok_or(short)?,
            dims: cutter.table(dims, DIM).ok_or(short)?,
            text: cutter.table(text_bytes, 1).ok_or(short)?,
        };
        if cutter.done() { Ok(this) } else { Err(short) }
    }

    fn check(&self) -> Result<(), FormatError> {
        let wrong = |table, index, what| FormatError::Record { section: SectionKind::Tensors, table, index, what };
        let this = self;
        let mut next = 0;
        for i in 0..this.inputs + this.outputs {
            let t = this.tensor(i).ok_or(wrong("tensor", i, "bad element type, rank or name"))?;
            if t.first_dim != next {
                return Err(wrong("tensor", i, "its dimensions do not follow those before"));
            }
            next += t.rank as u32;
            for axis in 0..t.rank {
                let flat = t.first_dim + axis as u32;
                let d = t.dim(axis).ok_or(wrong("dimension", flat, "out of range or bad name"))?;
                if d.lo < 0 || d.hi < d.lo {
                    return Err(wrong("dimension", flat, "bad bounds"));
                }
                if let Some((input, other)) = d.same {
                    let earlier = this.input(input).filter(|e| (other as usize) < e.rank).map(|e| e.first_dim + other);
                    if earlier.is_none_or(|e| e >= flat) || i >= this.inputs {
                        return Err(wrong("dimension", flat, "refers to one that is not before it"));
                    }
                }
            }
        }
        if next as usize * DIM != this.dims.len() {
            return Err(wrong("header", 0, "there are dimensions that belong to no tensor"));
        }
        Ok(())
    }

    /// Number of inputs.
    pub fn inputs(&self) -> u32 {
        self.inputs
    }

    /// Number of outputs.
    pub fn outputs(&self) -> u32 {
        self.outputs
    }

    fn tensor(&self, index: u32) -> Option<Tensor<'a>> {
        let Declared { dtype, rank, first_dim, section } = self.declared(index)?;
        let raw: [u8; TENSOR] = record(self.tensors, index)?;
        Some(Tensor { name: text(self.text, u32_at(&raw, 8)?, u32_at(&raw, 12)?)?, dtype, rank, first_dim, section })
    }

    fn declared(&self, index: u32) -> Option<Declared<'a>> {
        let raw: [u8; TENSOR] = record(self.tensors, index)?;
        let [dtype, rank, 0, 0, ..] = raw else {
            return None;
        };
        if usize::from(rank) > MAX_RANK {
            return None;
        }
        let (dtype, rank) = (DType::from_code(dtype)?, usize::from(rank));
        Some(Declared { dtype, rank, first_dim: u32_at(&raw, 4)?, section: *self })
    }

    /// An input without its names.
    pub fn declared_input(&self, index: u32) -> Option<Declared<'a>> {
        if index < self.inputs { self.declared(index) } else { None }
    }

    /// An output without its names.
    pub fn declared_output(&self, index: u32) -> Option<Declared<'a>> {
        if index < self.outputs { self.declared(self.inputs.checked_add(index)?) } else { None }
    }

    /// An input.
    pub fn input(&self, index: u32) -> Option<Tensor<'a>> {
        if index < self.inputs { self.tensor(index) } else { None }
    }

    /// An output.
    pub fn output(&self, index: u32) -> Option<Tensor<'a>> {
        if index < self.outputs { self.tensor(self.inputs.checked_add(index)?) } else { None }
    }
}

impl Declared<'_> {
    /// The bounds of a dimension; nothing if `axis` is not less than the rank.
    pub fn bounds(&self, axis: usize) -> Option<Bounds> {
        let raw = dim_record(&self.section, self.rank, self.first_dim, axis)?;
        let same = u32_at(&raw, 16)?;
        Some(Bounds {
            lo: array(&raw, 0).map(i64::from_le_bytes)?,
            hi: array(&raw, 8).map(i64::from_le_bytes)?,
            same: (same != NONE).then_some((same >> 8, same & 0xff)),
        })
    }
}

fn dim_record(section: &Tensors<'_>, rank: usize, first_dim: u32, axis: usize) -> Option<[u8; DIM]> {
    if axis >= rank {
        return None;
    }
    record(section.dims, first_dim.checked_add(axis as u32)?)
}

impl<'a> Tensor<'a> {
    /// A dimension; nothing if `axis` is not less than the rank.
    pub fn dim(&self, axis: usize) -> Option<Dim<'a>> {
        let Tensor { dtype, rank, first_dim, section, .. } = *self;
        let Bounds { lo, hi, same } = Declared { dtype, rank, first_dim, section }.bounds(axis)?;
        let raw = dim_record(&section, rank, first_dim, axis)?;
        if u32_at(&raw, 28)? != 0 {
            return None;
        }
        Some(Dim { lo, hi, same, symbol: text(section.text, u32_at(&raw, 20)?, u32_at(&raw, 24)?)? })
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> impl Iterator<Item = Dim<'a>> + use<'a> {
        let this = *self;
        (0..this.rank).filter_map(move |axis| this.dim(axis))
    }
}
