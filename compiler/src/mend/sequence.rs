//! Rule `sequence`: a sequence becomes the plain values that it holds.
//!
//! Side conditions, else see `stack` and `ragged`: the length is known while packing, and so is every place at which
//! something is inserted or removed. `SequenceAt` may ask for a place known only from data if all members have provably one
//! shape and type: they are stacked, and the member is gathered. Pieces of a split must have known sizes.

use super::report::Rule;
use super::{Container, Mender};
use crate::error::Result;
use crate::graph::{Module, Node, Region, TensorData, ValueId};

/// What is wrong with a position that no member has.
pub(super) const OUTSIDE: &str = "the position is outside of the sequence";
/// What is wrong with a sequence of which a member is needed.
pub(super) const EMPTY: &str = "the sequence is empty";
/// Most members that a split makes.
const MOST_MEMBERS: i64 = 4096;

impl Mender<'_> {
    /// Mends a node about sequences; `false` if its side conditions do not hold and it stays.
    pub(super) fn sequence(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let made = match node.op_type.as_str() {
            "SequenceEmpty" => Some(vec![]),
            "SequenceConstruct" => Some(node.given_inputs().collect()),
            "SequenceInsert" => self.insert(module, node, out)?,
            "SequenceErase" => self.erase(node)?,
            "SplitToSequence" => self.split(module, node, out)?,
            "SequenceAt" => return self.at(module, node, out),
            "SequenceLength" => {
                let Some(members) = node.input(0).and_then(|v| self.members(v)) else { return Ok(false) };
                let length = self.constant(module, TensorData::scalar_i64(members.len() as i64), out);
                self.alias(node, 0, length);
                self.report.settle(node, Rule::Sequence);
                return Ok(true);
            }
            "ConcatFromSequence" => return self.concat(module, node, out),
            _ => None,
        };
        let Some(members) = made else { return Ok(false) };
        if let Some(output) = node.output(0) {
            self.containers.insert(output, Container::Sequence(members));
        }
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }

    /// The place that an optional operand gives, counted from the start; `last` without operand. `None` if not known.
    fn place(&mut self, node: &Node, operand: usize, last: i64, most: i64, length: i64) -> Result<Option<usize>> {
        let Some(id) = node.input(operand) else {
            if last < 0 {
                return Err(node.invalid(EMPTY));
            }
            return Ok(Some(last as usize));
        };
        let Some(p) = self.known_int(id) else { return Ok(None) };
        if p < -length || p > most {
            return Err(node.invalid(format!("position {p} is outside of the sequence of {length}")));
        }
        Ok(Some(if p < 0 { p + length } else { p } as usize))
    }

    fn insert(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<Vec<ValueId>>> {
        let Some(mut members) = self.members(node.require_input(0, "the sequence")?) else { return Ok(None) };
        let value = node.require_input(1, "the tensor")?;
        let n = members.len() as i64;
        if let (0, Some(at)) = (n, node.input(2))
            && self.known_int(at).is_none()
        {
            // There is one place only.
            let at = self.wide(module, node, at, out);
            let zero = self.constant(module, TensorData::scalar_i64(0), out);
            let first = self.emit(module, node, "Equal", &[at, zero], &[], out);
            self.require(node, first, OUTSIDE, out);
            return Ok(Some(vec![value]));
        }
        let Some(place) = self.place(node, 2, n, n, n)? else { return Ok(None) };
        members.insert(place, value);
        Ok(Some(members))
    }

    fn erase(&mut self, node: &Node) -> Result<Option<Vec<ValueId>>> {
        let Some(mut members) = self.members(node.require_input(0, "the sequence")?) else { return Ok(None) };
        let n = members.len() as i64;
        let Some(place) = self.place(node, 1, n - 1, n - 1, n)? else { return Ok(None) };
        members.remove(place);
        Ok(Some(members))
    }

    fn at(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let Some(members) = self.members(node.require_input(0, "the sequence")?) else { return Ok(false) };
        let position = node.require_input(1, "the position")?;
        let n = members.len() as i64;
        if let Some(place) = self.place(node, 1, n - 1, n - 1, n)? {
            self.alias(node, 0, members[place]);
            self.report.settle(node, Rule::Sequence);
            return Ok(true);
        }
        if self.dims(position).is_none_or(|d| !d.is_empty()) {
            return Ok(false);
        }
        if !self.alike(&members) {
            return self.at_ragged(module, node, &members, out);
        }
        let all = self.stack(module, node, &members, 0, out);
        let picked = self.emit(module, node, "Gather", &[all, position], &[("axis", 0)], out);
        self.alias(node, 0, picked);
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }

    /// A member whose place only data decides, where their shapes differ.
    fn at_ragged(&mut self, module: &mut Module, node: &Node, members: &[ValueId], out: &mut Region) -> Result<bool> {
        let Some(elem) = members.first().and_then(|m| self.member(*m)).map(|m| m.elem) else { return Ok(false) };
        if members.iter().any(|m| self.member(*m).is_none_or(|m| m.elem != elem)) {
            return Ok(false);
        }
        let given = node.require_input(0, "the sequence")?;
        let Some(all) = self.ragged_of(module, node, given, elem, out) else { return Ok(false) };
        let mended = self.ragged(module, node, all, out)?;
        if mended {
            self.report.settle(node, Rule::Sequence);
        }
        Ok(mended)
    }

    /// Whether values have provably one shape and one type.
    pub(super) fn alike(&self, values: &[ValueId]) -> bool {
        let of = |v: &ValueId| {
            let t = self.facts.values.get(v)?;
            Some((self.facts.cx.dtype(*t), self.facts.cx.narrow.get(t).copied(), self.facts.shape_of(*t)))
        };
        let Some(first) = values.first().and_then(of) else { return false };
        values.iter().all(|v| of(v).as_ref() == Some(&first))
    }

    fn split(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<Vec<ValueId>>> {
        let value = node.require_input(0, "the tensor")?;
        let Some(dims) = self.dims(value) else { return Ok(None) };
        let given = node.attr_int("axis", 0)?;
        let rank = dims.len() as i64;
        if given < -rank || given >= rank {
            return Err(node.invalid(format!("axis {given} is outside of {}..{rank}", -rank)));
        }
        let axis = if given < 0 { given + rank } else { given };
        let size = dims[axis as usize].as_const();
        let (mut sizes, mut keep) = (vec![], true);
        match node.input(1) {
            None => {
                let Some(n) = size.filter(|n| *n <= MOST_MEMBERS) else { return Ok(None) };
                sizes.resize(n as usize, 1);
                keep = node.attr_bool("keepdims", true)?;
            }
            Some(split) => {
                let scalar = self.dims(split).is_some_and(|d| d.is_empty());
                let Some(known) = self.known_ints(split) else { return Ok(None) };
                if !scalar {
                    let sum: i64 = known.iter().sum();
                    if known.iter().any(|s| *s < 0) || size.is_some_and(|n| n != sum) {
                        return Err(node
                            .invalid(format!("sizes {known:?} do not make up the dimension {}", dims[axis as usize])));
                    }
                    // An open dimension might be longer than the pieces; that is not decided here.
                    if size.is_none() {
                        return Ok(None);
                    }
                    sizes = known;
                } else {
                    let (Some(n), Some(step)) = (size, known.first().copied()) else { return Ok(None) };
                    if step <= 0 {
                        return Err(node.invalid(format!("pieces of size {step}")));
                    }
                    if n / step > MOST_MEMBERS {
                        return Ok(None);
                    }
                    let mut rest = n;
                    while rest > 0 {
                        sizes.push(rest.min(step));
                        rest -= step;
                    }
                }
            }
        }
        let mut members = vec![];
        let mut start = 0;
        for size in sizes {
            if !keep {
                members.push(self.pick(module, node, value, axis, start, out));
            } else {
                let mut bound = |v: i64| self.constant(module, TensorData::from_i64s(&[v]), out);
                let (from, to, along) = (bound(start), bound(start + size), bound(axis));
                members.push(self.emit(module, node, "Slice", &[value, from, to, along], &[], out));
            }
            start += size;
        }
        Ok(Some(members))
    }

    fn concat(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let Some(members) = self.members(node.require_input(0, "the sequence")?) else { return Ok(false) };
        let axis = node.require_int("axis")?;
        if members.is_empty() {
            return Err(node.invalid(EMPTY));
        }
        let all = if node.attr_bool("new_axis", false)? {
            self.stack(module, node, &members, axis, out)
        } else {
            self.emit(module, node, "Concat", &members, &[("axis", axis)], out)
        };
        self.alias(node, 0, all);
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }
}
