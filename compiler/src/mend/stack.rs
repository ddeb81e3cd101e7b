//! Rule `sequence`, where the number of members is known only while running: the sequence becomes one tensor, its members
//! along a new first axis.
//!
//! Side condition: all members have one shape and type. Where that is not proven, the joined tensor checks it.

use super::report::Rule;
use super::sequence::{EMPTY, OUTSIDE};
use super::{Container, Mender, emit};
use crate::error::Result;
use crate::graph::{Attr, ElemType, Module, Node, Region, TensorData, ValueId};

/// The operator set from which on `Reshape` takes a size of 0 as it stands, if told to.
const ALLOW_ZERO: i64 = 14;

impl Mender<'_> {
    /// Mends a node about such a sequence; `false` if it is about something else.
    pub(super) fn stacked(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        if node.op_type == "SplitToSequence" {
            return Ok(self.split_evenly(module, node, out)? || self.split_in_loop(module, node, out)?);
        }
        let Some(given) = node.input(0) else { return Ok(false) };
        let whole = match self.containers.get(&given) {
            Some(Container::Stack(whole)) => *whole,
            Some(Container::Ragged(r)) => {
                let mended = self.ragged(module, node, *r, out)?;
                if mended {
                    self.report.settle(node, Rule::Sequence);
                }
                return Ok(mended);
            }
            // A place that only data decides.
            Some(Container::Sequence(_)) if matches!(node.op_type.as_str(), "SequenceInsert" | "SequenceErase") => {
                match self.stack_of(module, node, given, out) {
                    Some(whole) => whole,
                    None => return Ok(false),
                }
            }
            _ => return Ok(false),
        };
        match node.op_type.as_str() {
            "SequenceLength" => {
                let length = self.length(module, node, whole, out);
                self.alias(node, 0, length);
            }
            "SequenceAt" => {
                let at = node.require_input(1, "the position")?;
                let member = self.emit(module, node, "Gather", &[whole, at], &[("axis", 0)], out);
                self.alias(node, 0, member);
            }
            "ConcatFromSequence" => {
                let Some(joined) = self.join(module, node, whole, out)? else { return Ok(false) };
                self.alias(node, 0, joined);
            }
            "SequenceInsert" => {
                let value = node.require_input(1, "the tensor")?;
                let one = self.unsqueeze(module, node, value, 0, out);
                let parts = match node.input(2) {
                    None => vec![whole, one],
                    Some(at) => {
                        let at = self.counted_from_start(module, node, whole, at, 0, out);
                        let (head, tail) = (
                            self.part(module, node, whole, None, Some(at), out),
                            self.part(module, node, whole, Some(at), None, out),
                        );
                        vec![head, one, tail]
                    }
                };
                let grown = self.emit(module, node, "Concat", &parts, &[("axis", 0)], out);
                self.is(node, Container::Stack(grown));
            }
            "SequenceErase" => {
                let shrunk = match node.input(1) {
                    None => {
                        self.require_members(module, node, whole, out);
                        let end = self.constant(module, TensorData::from_i64s(&[-1]), out);
                        self.part(module, node, whole, None, Some(end), out)
                    }
                    Some(at) => {
                        let at = self.counted_from_start(module, node, whole, at, -1, out);
                        let one = self.constant(module, TensorData::from_i64s(&[1]), out);
                        let after = self.emit(module, node, "Add", &[at, one], &[], out);
                        let (head, tail) = (
                            self.part(module, node, whole, None, Some(at), out),
                            self.part(module, node, whole, Some(after), None, out),
                        );
                        self.emit(module, node, "Concat", &[head, tail], &[("axis", 0)], out)
                    }
                };
                self.is(node, Container::Stack(shrunk));
            }
            _ => return Ok(false),
        }
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }

    /// The node's result is a sequence.
    pub(super) fn is(&mut self, node: &Node, sequence: Container) {
        if let Some(output) = node.output(0) {
            self.containers.insert(output, sequence);
        }
    }

    /// One tensor that holds the members of a sequence along its first axis. Nothing for one without members or whose
    /// members have several shapes.
    pub(super) fn stack_of(
        &mut self,
        module: &mut Module,
        node: &Node,
        id: ValueId,
        out: &mut Region,
    ) -> Option<ValueId> {
        match self.containers.get(&id)?.clone() {
            Container::Stack(whole) => Some(whole),
            Container::Sequence(members) if !members.is_empty() && self.alike(&members) => {
                Some(self.stack(module, node, &members, 0, out))
            }
            _ => None,
        }
    }

    /// The number of members, a scalar.
    pub(super) fn length(&mut self, module: &mut Module, node: &Node, whole: ValueId, out: &mut Region) -> ValueId {
        let shape = self.emit(module, node, "Shape", &[whole], &[], out);
        self.pick(module, node, shape, 0, 0, out)
    }

    /// An integer of 64 bits.
    pub(super) fn wide(&mut self, module: &mut Module, node: &Node, value: ValueId, out: &mut Region) -> ValueId {
        let to = i64::from(ElemType::from(crate::dtype::DType::I64).code());
        self.emit(module, node, "Cast", &[value], &[("to", to)], out)
    }

    /// A position, which may count from the end, as one element that counts from the start. A check that it is at most the
    /// number of members and `beyond`.
    pub(super) fn counted_from_start(
        &mut self,
        module: &mut Module,
        node: &Node,
        whole: ValueId,
        at: ValueId,
        beyond: i64,
        out: &mut Region,
    ) -> ValueId {
        let at = self.wide(module, node, at, out);
        let (length, zero) =
            (self.length(module, node, whole, out), self.constant(module, TensorData::scalar_i64(0), out));
        let turned = self.emit(module, node, "Add", &[at, length], &[], out);
        let below = self.emit(module, node, "Less", &[at, zero], &[], out);
        let at = self.emit(module, node, "Where", &[below, turned, at], &[], out);
        let (before, end) = (
            self.constant(module, TensorData::scalar_i64(-1), out),
            self.constant(module, TensorData::scalar_i64(beyond + 1), out),
        );
        let end = self.emit(module, node, "Add", &[length, end], &[], out);
        for (less, more) in [(before, at), (at, end)] {
            let within = self.emit(module, node, "Less", &[less, more], &[], out);
            self.require(node, within, OUTSIDE, out);
        }
        let flat = self.constant(module, TensorData::from_i64s(&[1]), out);
        self.emit(module, node, "Reshape", &[at, flat], &[], out)
    }

    /// A check that there are members.
    fn require_members(&mut self, module: &mut Module, node: &Node, whole: ValueId, out: &mut Region) {
        let (length, zero) =
            (self.length(module, node, whole, out), self.constant(module, TensorData::scalar_i64(0), out));
        let some = self.emit(module, node, "Less", &[zero, length], &[], out);
        self.require(node, some, EMPTY, out);
    }

    /// Members from one position to before another.
    pub(super) fn part(
        &mut self,
        module: &mut Module,
        node: &Node,
        whole: ValueId,
        from: Option<ValueId>,
        to: Option<ValueId>,
        out: &mut Region,
    ) -> ValueId {
        let mut bound = |v: Option<ValueId>, default: i64| match v {
            Some(v) => v,
            None => self.constant(module, TensorData::from_i64s(&[default]), out),
        };
        let (from, to, axis) = (bound(from, 0), bound(to, i64::MAX), bound(None, 0));
        self.emit(module, node, "Slice", &[whole, from, to, axis], &[], out)
    }

    /// `ConcatFromSequence`: the members' axis is moved, and joined with the one that follows it.
    fn join(&mut self, module: &mut Module, node: &Node, whole: ValueId, out: &mut Region) -> Result<Option<ValueId>> {
        let Some(rank) = self.dims(whole).map(|d| d.len()) else { return Ok(None) };
        let axis = node.require_int("axis")?;
        self.require_members(module, node, whole, out);
        if node.attr_bool("new_axis", false)? {
            return Ok(Some(self.first_axis_to(module, node, whole, axis, rank, out)?));
        }
        let inner = rank as i64 - 1;
        if axis < -inner || axis >= inner {
            return Err(node.invalid(format!("axis {axis} is outside of {}..{inner}", -inner)));
        }
        let axis = if axis < 0 { axis + inner } else { axis };
        let moved = if axis == 0 { whole } else { self.first_axis_to(module, node, whole, axis, rank, out)? };
        let shape = self.emit(module, node, "Shape", &[moved], &[], out);
        let (before, after) = (
            self.slice(module, node, shape, 0, axis, out),
            self.slice(module, node, shape, axis + 2, rank as i64, out),
        );
        let both = self.slice(module, node, shape, axis, axis + 2, out);
        let (made, joined) = emit::node(module, node, "ReduceProd", &[both], &[("keepdims", Attr::Int(1))]);
        self.keep(module, made, out);
        let shape = self.emit(module, node, "Concat", &[before, joined, after], &[("axis", 0)], out);
        Ok(Some(self.reshape(module, node, moved, shape, out)))
    }

    /// `value` with a shape in which a size of 0 is meant as it stands.
    pub(super) fn reshape(
        &mut self,
        module: &mut Module,
        node: &Node,
        value: ValueId,
        shape: ValueId,
        out: &mut Region,
    ) -> ValueId {
        let attrs: &[(&str, i64)] = if node.version >= ALLOW_ZERO { &[("allowzero", 1)] } else { &[] };
        self.emit(module, node, "Reshape", &[value, shape], attrs, out)
    }

    pub(super) fn slice(
        &mut self,
        module: &mut Module,
        node: &Node,
        of: ValueId,
        from: i64,
        to: i64,
        out: &mut Region,
    ) -> ValueId {
        let mut bound = |v: i64| self.constant(module, TensorData::from_i64s(&[v]), out);
        let (from, to) = (bound(from), bound(to));
        self.emit(module, node, "Slice", &[of, from, to], &[], out)
    }
}
