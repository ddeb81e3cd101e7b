//! Constant weights that are integers of few bits times scales: packed as such, and multiplied while they are loaded.
//!
//! Words (of 32 bits; bytes where vectors are wide, which are converted fast there) hold the codes of consecutive terms of a column,
//! the first one in the lowest bits. A *block* of terms of a column has one
//! scale and one offset: an element is `(code + offset) * scale`, the same number as the float that it stands for.

use super::form::{Form, coef, extent, varies};
use super::pack::listed;
use super::schedule::{Group, groups};
use super::source::Reader;
use super::tile::Gen;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Buf, Reg};
use crate::lower::emit::Emit;
use crate::sym::VarId;
use crate::te::{Codes, Program};
use std::sync::Arc;

/// Fewest terms worth it.
const TERMS: i64 = 32;
/// Fewest terms of a block.
const BLOCK: i64 = 16;
/// Terms of a pass of the innermost loop, which stays within a block, and within a word or on whole ones.
pub(super) const PASS: i64 = 8;

/// How the weights of a contraction are packed.
#[derive(Clone)]
pub(super) struct FewBits {
    /// Which operand they are.
    pub op: usize,
    /// The axis of columns, the only one that they have beside the terms.
    pub n: VarId,
    /// Bits of a code: 2, 4 or 8.
    bits: i64,
    /// Terms of a block, a power of two.
    block: i64,
    /// Some block has an offset.
    shifted: bool,
    codes: Arc<Codes>,
}

/// Where a kernel reads them.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    codes: Buf,
    scales: Buf,
    offsets: Option<Buf>,
}

/// First elements of a tile's columns among codes, and among scales and offsets.
#[derive(Clone, Copy)]
pub(super) struct Bases {
    codes: Reg,
    scales: Reg,
}

/// Where a vector of columns lies within the panel of a tile.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// Columns of the panel.
    width: i64,
    /// Columns before these.
    before: i64,
    lanes: u16,
}

impl Columns {
    /// Group `g` of a tile.
    pub(super) fn of(tile: &[Group], g: usize) -> Columns {
        let sum = |groups: &[Group]| groups.iter().map(|g| i64::from(g.lanes)).sum();
        Columns { width: sum(tile), before: sum(&tile[..g]), lanes: tile[g].lanes }
    }
}

/// Positions of elements by column and term.
struct Places<'a> {
    reader: Reader<'a>,
    column: i64,
    term: i64,
}

impl Places<'_> {
    fn at(&self, column: i64, term: i64) -> usize {
        (self.reader.base() + column * self.column + term * self.term) as usize
    }
}

/// The code that a block's codes begin at.
fn least(bits: i64) -> i64 {
    -(1 << (bits - 1))
}

/// Bits of a word, by the lanes of vectors.
fn word(lanes: u16) -> i64 {
    if lanes > 4 { 8 } else { 32 }
}

/// What is added to the codes of a block of values between two.
fn offset(bits: i64, (low, high): (i64, i64)) -> i64 {
    let least = least(bits);
    if least <= low && high < -least { 0 } else { low - least }
}

fn range(values: impl Iterator<Item = i64>) -> (i64, i64) {
    values.fold((i64::MAX, i64::MIN), |(low, high), v| (low.min(v), high.max(v)))
}

impl FewBits {
    /// Finds such weights in a contraction over one axis.
    pub(super) fn of(form: &Form, program: &Program) -> Option<FewBits> {
        let (op, codes) = (0..2).find_map(|op| {
            let data = form.ops[op].data.as_ref()?;
            Some((op, program.codes.get(&data.tensor)?.clone()))
        })?;
        let data = form.ops[op].data.as_ref()?;
        let own: Vec<VarId> = form.vars.iter().filter(|v| varies(data.flat, **v)).copied().collect();
        let ([k], [n]) = (form.ks.as_slice(), own.as_slice()) else { return None };
        if varies(form.ops[1 - op].flat, *n) || coef(form.ops[1 - op].flat, *k).is_none() {
            return None;
        }
        let mut few = FewBits { op, n: *n, bits: 8, block: 1, shifted: false, codes };
        let places = few.places(form)?;
        let (terms, columns) = (extent(*k).as_const()?, extent(*n).as_const()?);
        if terms < TERMS {
            return None;
        }
        // Scales change at multiples of the block alone.
        let scale = |c, t| few.codes.scales[places.at(c, t)].to_bits();
        let changes = (0..columns).flat_map(|c| (1..terms).filter(move |t| scale(c, *t) != scale(c, t - 1)));
        let steps = changes.map(i64::trailing_zeros).min();
        let block = steps.map_or(u64::try_from(terms).ok()?.next_power_of_two() as i64, |s| 1 << s);
        if block < BLOCK {
            return None;
        }
        few.block = block;
        let blocks: Vec<(i64, i64)> = (0..columns)
            .flat_map(|c| few.blocks(terms).map(move |b| (c, b)))
            .map(|(c, b)| few.range(&places, c, b, terms))
            .collect();
        let spread = blocks.iter().map(|(low, high)| high - low).max()?;
        few.bits = [2, 4, 8].into_iter().find(|bits| spread < 1 << bits)?;
        few.shifted = blocks.iter().any(|b| offset(few.bits, *b) != 0);
        Some(few)
    }

    fn blocks(&self, terms: i64) -> std::ops::Range<i64> {
        0..(terms + self.block - 1) / self.block
    }

    fn range(&self, places: &Places<'_>, column: i64, block: i64, terms: i64) -> (i64, i64) {
        let own = block * self.block..terms.min((block + 1) * self.block);
        range(own.map(|t| i64::from(self.codes.values[places.at(column, t)])))
    }

    fn places<'a>(&self, form: &'a Form) -> Option<Places<'a>> {
        let reader = form.ops[self.op].data.as_ref()?.reader()?;
        let (column, term) = (reader.step(self.n), reader.step(*form.ks.first()?));
        Some(Places { reader, column, term })
    }

    /// Codes of a word.
    fn per(&self, lanes: u16) -> i64 {
        word(lanes) / self.bits
    }

    /// Instructions that a vector of elements takes beside its load, about.
    pub(super) fn work(&self) -> f64 {
        if self.shifted { 5.0 } else { 4.0 }
    }

    /// Registers that hold codes, scales and offsets of a vector.
    pub(super) fn held(&self) -> usize {
        if self.shifted { 3 } else { 2 }
    }

    /// Packs the weights in tiles of `width` columns as buffers of the kernel.
    pub(super) fn pack(&self, e: &mut Emit<'_>, form: &Form, width: i64, lanes: u16) -> Option<Streams> {
        let places = self.places(form)?;
        let (terms, columns) = (form.terms()?, extent(self.n).as_const()?);
        let (per, step) = (self.per(lanes), usize::try_from(width).ok()?);
        let mask = (1i64 << self.bits) - 1;
        let (mut codes, mut scales, mut offsets) = (vec![], vec![], vec![]);
        for first in (0..columns).step_by(step) {
            let own: Vec<i64> =
                listed(&groups(width.min(columns - first), columns, lanes)).iter().map(|c| first + c).collect();
            let mut shifts: Vec<Vec<i64>> = vec![];
            for b in self.blocks(terms) {
                let row = own.iter().map(|c| offset(self.bits, self.range(&places, *c, b, terms)));
                shifts.push(row.collect());
                scales.extend(own.iter().map(|c| self.codes.scales[places.at(*c, b * self.block)]));
            }
            for from in (0..terms).step_by(per as usize) {
                for (k, c) in own.iter().enumerate() {
                    let code = |t: i64| {
                        let shift = shifts[(t / self.block) as usize][k];
                        (i64::from(self.codes.values[places.at(*c, t)]) - shift) & mask
                    };
                    let all = (from..terms.min(from + per)).map(|t| code(t) << ((t - from) * self.bits));
                    let all = all.fold(0, |word, code| word | code);
                    codes.extend(&all.to_le_bytes()[..word(lanes) as usize / 8]);
                }
            }
            offsets.extend(shifts.into_iter().flatten());
        }
        // Narrow vectors are converted lane by lane.
        let half = lanes > 4 && scales.iter().all(|s| half::f16::from_f32(*s).to_f32().to_bits() == s.to_bits());
        let (kind, scales) = match half {
            true => (DType::F16, scales.iter().flat_map(|s| half::f16::from_f32(*s).to_le_bytes()).collect()),
            false => (DType::F32, scales.iter().flat_map(|s| s.to_le_bytes()).collect::<Vec<u8>>()),
        };
        let small = offsets.iter().all(|o| i8::try_from(*o).is_ok());
        let (size, offsets) = match small {
            true => (DType::I8, offsets.iter().map(|o| *o as u8).collect()),
            false => (DType::I16, offsets.iter().flat_map(|o| (*o as i16).to_le_bytes()).collect::<Vec<u8>>()),
        };
        Some(Streams {
            codes: e.packed_buf(if word(lanes) == 8 { DType::I8 } else { DType::I32 }, Arc::new(codes)),
            scales: e.packed_buf(kind, Arc::new(scales)),
            offsets: self.shifted.then(|| e.packed_buf(size, Arc::new(offsets))),
        })
    }
}

impl Gen<'_> {
    /// Where the columns from `n0` on lie, the first ones of a tile.
    pub(super) fn few_bases(&mut self, n0: Reg) -> Option<Bases> {
        let (few, terms) = (self.form.few.clone()?, self.form.terms()?);
        let per = few.per(self.s.lanes);
        let words = self.e.b.i64((terms + per - 1) / per);
        let blocks = self.e.b.i64(few.blocks(terms).end);
        Some(Bases { codes: self.e.b.mul(n0, words), scales: self.e.b.mul(n0, blocks) })
    }

    /// Elements of the term `u` behind `first`, at which a pass of at most [`PASS`] terms begins.
    pub(super) fn few_value(
        &mut self,
        few: &FewBits,
        from: &Streams,
        bases: Bases,
        columns: Columns,
        (first, u): (Reg, i64),
    ) -> Reg {
        let (per, word) = (few.per(self.s.lanes), word(self.s.lanes));
        let Columns { width, before, lanes } = columns;
        let b = &mut self.e.b;
        let all = b.i64(width);
        let mut row = |base: Reg, size: i64| {
            let by = b.i64(i64::from(size.trailing_zeros()));
            let row = b.shr(first, by);
            let row = b.mul(row, all);
            b.add(base, row)
        };
        let (codes, block) = (row(bases.codes, per), row(bases.scales, few.block));
        let code = b.load(from.codes, codes, u / per * width + before, lanes);
        let scale = b.load(from.scales, block, before, lanes);
        let scale = b.cast(DType::F32, scale);
        let mut whole = b.cast(DType::I32, code);
        let ty = b.ty(whole);
        if per > PASS {
            // Which part of a word the pass is.
            let (bits, last) = (b.i64(few.bits), b.i64(per - PASS));
            let part = b.and(first, last);
            let by = b.mul(part, bits);
            let by = b.cast(DType::I32, by);
            let by = b.splat(by, lanes);
            whole = b.shr(whole, by);
        }
        // The sign of the word is that of its last code.
        let above = word - few.bits * (u % per + 1);
        let mut below = word - few.bits;
        if above > 0 {
            let by = b.int(ty, 32 - word + above);
            whole = b.bin(BinOp::Shl, whole, by);
            below = 32 - few.bits;
        }
        if below > 0 {
            let by = b.int(ty, below);
            whole = b.shr(whole, by);
        }
        let mut value = b.cast(DType::F32, whole);
        if let Some(offsets) = from.offsets {
            let offset = b.load(offsets, block, before, lanes);
            let offset = b.cast(DType::F32, offset);
            value = b.add(value, offset);
        }
        b.mul(value, scale)
    }

    /// Lays out the tile of columns at `n0` as floats.
    pub(super) fn fill_from_codes(&mut self, to: Buf, few: &FewBits, from: &Streams, n0: Reg, groups: &[Group]) {
        let (Some(bases), Some(terms)) = (self.few_bases(n0), self.form.terms()) else { return };
        let rest = terms % PASS;
        for (first, end, step) in [(0, terms - rest, PASS), (terms - rest, terms, rest)] {
            if first == end {
                continue;
            }
            let (lo, hi) = (self.e.b.i64(first), self.e.b.i64(end));
            let i = self.e.b.begin_for(lo, hi, step);
            for u in 0..step {
                for g in 0..groups.len() {
                    let columns = Columns::of(groups, g);
                    let v = self.few_value(few, from, bases, columns, (i, u));
                    let width = self.e.b.i64(columns.width);
                    let row = self.e.b.mul(i, width);
                    self.e.b.store(to, row, u * columns.width + columns.before, v);
                }
            }
            self.e.b.end();
        }
    }
}
