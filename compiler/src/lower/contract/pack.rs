//! Constant operands in the order in which the kernel reads them: `[batch][tile][term][element of the tile]`.

use super::form::{Fours, extent};
use super::schedule::{Group, groups};
use super::source::Source;
use crate::dtype::DType;
use crate::sym::VarId;

/// Where a packed operand's elements lie.
pub(super) struct Packed {
    /// The data, in the compute type.
    pub bytes: Vec<u8>,
    /// Elements of one batch.
    pub per_batch: i64,
}

/// Most bytes of one packed operand.
const LARGEST: i64 = 1 << 31;

fn constant(v: VarId) -> Option<i64> {
    extent(v).as_const()
}

/// Positions of all index tuples of `vars` in row-major order, relative to the position of the first.
pub(super) fn offsets(vars: &[VarId], step: &dyn Fn(VarId) -> i64) -> Option<Vec<i64>> {
    let mut out = vec![0];
    for v in vars {
        let (n, step) = (constant(*v)?, step(*v));
        if n.checked_mul(out.len() as i64)? > LARGEST {
            return None;
        }
        out = out.iter().flat_map(|at| (0..n).map(move |k| at + k * step)).collect();
    }
    Some(out)
}

/// The terms that are packed.
pub(super) struct Terms<'a> {
    /// Their indices.
    pub ks: &'a [VarId],
    /// Groups of four, with the number of the operand that they are of.
    pub fours: Option<(&'a Fours, usize)>,
}

impl Terms<'_> {
    /// The parts of each term.
    fn of(&self, step: &dyn Fn(VarId) -> i64) -> Option<Vec<Vec<Part>>> {
        let all = offsets(self.ks, step)?;
        let Some((fours, op)) = self.fours else { return Some(all.into_iter().map(|at| vec![Part::At(at)]).collect()) };
        let (apart, groups) = (fours.steps[op].as_const()?, constant(fours.k)? as usize);
        let mut out = vec![];
        for (n, at) in all.into_iter().enumerate() {
            let count = if n % groups == groups - 1 { fours.last } else { 4 };
            let part = |j: i64| if j < count { Part::At(at + j * apart) } else { Part::Zero };
            match fours.pairs {
                false => out.push((0..4).map(part).collect()),
                true => {
                    let wide = |j: [i64; 2]| j.into_iter().flat_map(|j| [part(j), Part::Sign]).collect();
                    out.extend([wide([0, 2]), wide([1, 3])]);
                }
            }
        }
        Some(out)
    }
}

/// A part of what is packed for one element.
#[derive(Clone, Copy)]
enum Part {
    /// An element, at a distance from the first term's.
    At(i64),
    /// A byte of zeros that fills up a group.
    Zero,
    /// The sign of the byte before.
    Sign,
}

/// Packs tiles of the axes `along`, taken together, that hold the elements that `parts` names: for each tile its first
/// element and the elements it reads, relative to that.
fn pack(
    source: &Source,
    batch: &[VarId],
    along: &[VarId],
    terms: &Terms,
    parts: &dyn Fn(i64) -> Vec<(i64, Vec<i64>)>,
) -> Option<Packed> {
    let reader = source.reader()?;
    let step = |v| reader.step(v);
    let (batches, elements) = (offsets(batch, &step)?, offsets(along, &step)?);
    let terms = terms.of(&step)?;
    let tiles = parts(elements.len() as i64);
    let width: i64 = tiles.iter().map(|(_, columns)| columns.len() as i64).sum();
    let per_batch = width.checked_mul(terms.len() as i64)?;
    if per_batch.checked_mul(batches.len() as i64)? > LARGEST {
        return None;
    }
    let mut bytes = Vec::new();
    for at in &batches {
        for (first, columns) in &tiles {
            for term in &terms {
                for c in columns {
                    let element = elements.get(usize::try_from(first + c).ok()?)?;
                    for part in term {
                        match part {
                            Part::At(term) => reader.append(reader.base() + at + term + element, &mut bytes),
                            Part::Zero => bytes.push(0),
                            Part::Sign => {
                                let negative = source.dtype == DType::I8 && bytes.last().is_some_and(|b| *b >= 0x80);
                                bytes.push(if negative { 0xff } else { 0 });
                            }
                        }
                    }
                }
            }
        }
    }
    Some(Packed { bytes, per_batch })
}

/// The broadcast operand: tiles of `mr` rows, the last one of what is left.
pub(super) fn rows(source: &Source, batch: &[VarId], m: &[VarId], terms: &Terms, mr: i64) -> Option<Packed> {
    pack(source, batch, m, terms, &|all| {
        let firsts = (0..all).step_by(mr as usize);
        firsts.map(|first| (first, (0..mr.min(all - first)).collect())).collect()
    })
}

/// The vector operand: tiles of `width` columns, the last one with the groups of what is left.
pub(super) fn columns(
    source: &Source,
    batch: &[VarId],
    n: Option<VarId>,
    terms: &Terms,
    width: i64,
    lanes: u16,
) -> Option<Packed> {
    let along: Vec<VarId> = n.into_iter().collect();
    pack(source, batch, &along, terms, &|all| {
        let firsts = (0..all).step_by(width as usize);
        firsts.map(|first| (first, listed(&groups(width.min(all - first), all, lanes)))).collect()
    })
}

/// The columns of groups, in order.
pub(super) fn listed(groups: &[Group]) -> Vec<i64> {
    groups.iter().flat_map(|g| (0..i64::from(g.lanes)).map(move |l| g.at + l)).collect()
}
