//! Sequences of tensors of any shapes, as two tensors: the elements of all members one after another, and a row for each member
//! with its rank and its sizes.
//!
//! Rows have [`ROW`] numbers, sizes beyond the rank are 1: the product of the sizes is the number of elements.

use super::forms::SIZES;
use super::{Container, Mender, emit};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, ElemType, Module, Node, Region, TensorData, ValueId};

/// Greatest rank of a member.
const MOST_RANK: usize = 8;
/// Numbers in a row.
pub(super) const ROW: usize = 1 + MOST_RANK;

/// Such a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ragged {
    /// All elements, one axis.
    pub(super) data: ValueId,
    /// `[members, ROW]` of `i64`.
    pub(super) rows: ValueId,
    /// The rank of all members, if it is known.
    pub(super) rank: Option<usize>,
}

impl Mender<'_> {
    /// One without members.
    pub(super) fn empty_ragged(&mut self, module: &mut Module, elem: ElemType, out: &mut Region) -> Option<Ragged> {
        let data = self.constant(module, TensorData::blank(elem, vec![0])?, out);
        let rows = self.constant(module, TensorData::new(SIZES, vec![0, ROW], vec![])?, out);
        Some(Ragged { data, rows, rank: None })
    }

    /// A sequence of any kind in this form.
    pub(super) fn ragged_of(
        &mut self,
        module: &mut Module,
        node: &Node,
        id: ValueId,
        elem: ElemType,
        out: &mut Region,
    ) -> Option<Ragged> {
        match self.containers.get(&id)?.clone() {
            Container::Ragged(r) => Some(r),
            Container::Sequence(members) => {
                let mut all = self.empty_ragged(module, elem, out)?;
                let mut ranks = vec![];
                let (mut data, mut rows) = (vec![], vec![]);
                for m in &members {
                    ranks.push(self.member(*m)?.dims.len());
                    let (flat, row) = self.flat_and_row(module, node, *m, out)?;
                    data.push(flat);
                    rows.push(row);
                }
                all.rank = ranks.first().copied().filter(|r| ranks.iter().all(|x| x == r));
                if !members.is_empty() {
                    all.data = self.emit(module, node, "Concat", &data, &[("axis", 0)], out);
                    all.rows = self.emit(module, node, "Concat", &rows, &[("axis", 0)], out);
                }
                Some(all)
            }
            Container::Stack(whole) => {
                let rank = self.dims(whole)?.len() - 1;
                let data = self.flat(module, node, whole, out);
                let shape = self.emit(module, node, "Shape", &[whole], &[], out);
                let (count, sizes) = (
                    self.slice(module, node, shape, 0, 1, out),
                    self.slice(module, node, shape, 1, rank as i64 + 1, out),
                );
                let row = self.row(module, node, sizes, rank, out)?;
                let width = self.constant(module, TensorData::from_i64s(&[ROW as i64]), out);
                let target = self.emit(module, node, "Concat", &[count, width], &[("axis", 0)], out);
                let rows = self.emit(module, node, "Expand", &[row, target], &[], out);
                Some(Ragged { data, rows, rank: Some(rank) })
            }
            Container::Optional(_) | Container::Maybe { .. } => None,
        }
    }

    /// The elements of a tensor along one axis.
    pub(super) fn flat(&mut self, module: &mut Module, node: &Node, value: ValueId, out: &mut Region) -> ValueId {
        let all = self.constant(module, TensorData::from_i64s(&[-1]), out);
        self.emit(module, node, "Reshape", &[value, all], &[], out)
    }

    /// A tensor's elements and its row, `[1, ROW]`.
    pub(super) fn flat_and_row(
        &mut self,
        module: &mut Module,
        node: &Node,
        value: ValueId,
        out: &mut Region,
    ) -> Option<(ValueId, ValueId)> {
        let rank = self.dims(value)?.len();
        let flat = self.flat(module, node, value, out);
        let sizes = self.emit(module, node, "Shape", &[value], &[], out);
        Some((flat, self.row(module, node, sizes, rank, out)?))
    }

    fn row(
        &mut self,
        module: &mut Module,
        node: &Node,
        sizes: ValueId,
        rank: usize,
        out: &mut Region,
    ) -> Option<ValueId> {
        let rest = vec![1; MOST_RANK.checked_sub(rank)?];
        let (head, tail) = (
            self.constant(module, TensorData::from_i64s(&[rank as i64]), out),
            self.constant(module, TensorData::from_i64s(&rest), out),
        );
        let row = self.emit(module, node, "Concat", &[head, sizes, tail], &[("axis", 0)], out);
        Some(self.unsqueeze(module, node, row, 0, out))
    }

    /// Mends a node about such a sequence; `false` if it needs something that is not known.
    pub(super) fn ragged(&mut self, module: &mut Module, node: &Node, r: Ragged, out: &mut Region) -> Result<bool> {
        match node.op_type.as_str() {
            "SequenceLength" => {
                let length = self.length(module, node, r.rows, out);
                self.alias(node, 0, length);
            }
            "SequenceAt" => {
                let Some(rank) = r.rank else { return Ok(false) };
                let at = node.require_input(1, "the position")?;
                let at = self.counted_from_start(module, node, r.rows, at, -1, out);
                let (start, end, row) = self.extent(module, node, r, at, out);
                let data = self.part(module, node, r.data, Some(start), Some(end), out);
                let sizes = self.slice(module, node, row, 1, 1 + rank as i64, out);
                let member = self.reshape(module, node, data, sizes, out);
                self.alias(node, 0, member);
            }
            "SequenceInsert" => {
                let value = node.require_input(1, "the tensor")?;
                let Some((flat, row)) = self.flat_and_row(module, node, value, out) else { return Ok(false) };
                let rank = self.dims(value).map(|d| d.len());
                let (mut data, mut rows) = (vec![r.data, flat], vec![r.rows, row]);
                if let Some(at) = node.input(2) {
                    let at = self.counted_from_start(module, node, r.rows, at, 0, out);
                    let (before, after) = self.cut(module, node, r, at, at, out);
                    data = vec![before.data, flat, after.data];
                    rows = vec![before.rows, row, after.rows];
                }
                let data = self.emit(module, node, "Concat", &data, &[("axis", 0)], out);
                let rows = self.emit(module, node, "Concat", &rows, &[("axis", 0)], out);
                let empty = self.dims(r.rows).is_some_and(|d| d[0].as_const() == Some(0));
                let rank = rank.filter(|rank| empty || r.rank == Some(*rank));
                self.is(node, Container::Ragged(Ragged { data, rows, rank }));
            }
            "SequenceErase" => {
                let last = self.constant(module, TensorData::from_i64s(&[-1]), out);
                let at = node.input(1).unwrap_or(last);
                let at = self.counted_from_start(module, node, r.rows, at, -1, out);
                let one = self.constant(module, TensorData::from_i64s(&[1]), out);
                let next = self.emit(module, node, "Add", &[at, one], &[], out);
                let (before, after) = self.cut(module, node, r, at, next, out);
                let data = self.emit(module, node, "Concat", &[before.data, after.data], &[("axis", 0)], out);
                let rows = self.emit(module, node, "Concat", &[before.rows, after.rows], &[("axis", 0)], out);
                self.is(node, Container::Ragged(Ragged { data, rows, rank: r.rank }));
            }
            "ConcatFromSequence" => {
                let Some(rank) = r.rank.filter(|rank| *rank > 0) else { return Ok(false) };
                let axis = node.require_int("axis")?;
                let is_first = axis == 0 || axis == -(rank as i64);
                if node.attr_bool("new_axis", false)? || !is_first {
                    return self.concat_in_loop(module, node, out);
                }
                // Members lie one after another already. All but the first size must be the same.
                let zero = self.constant(module, TensorData::from_i64s(&[0]), out);
                let (_, _, row) = self.extent(module, node, r, zero, out);
                let sizes = self.slice(module, node, row, 2, 1 + rank as i64, out);
                if rank > 1 {
                    let others = self.columns(module, node, r.rows, 2, 1 + rank as i64, out);
                    self.require_rows(module, node, others, sizes, out);
                }
                let first = self.columns(module, node, r.rows, 1, 2, out);
                let (made, sum) = emit::node(module, node, "ReduceSum", &[first], &[("keepdims", Attr::Int(0))]);
                self.keep(module, made, out);
                let sum = self.flat(module, node, sum, out);
                let shape = self.emit(module, node, "Concat", &[sum, sizes], &[("axis", 0)], out);
                let all = self.reshape(module, node, r.data, shape, out);
                self.alias(node, 0, all);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Where the member at a position begins and ends in the data, one element each, and its row.
    fn extent(
        &mut self,
        module: &mut Module,
        node: &Node,
        r: Ragged,
        at: ValueId,
        out: &mut Region,
    ) -> (ValueId, ValueId, ValueId) {
        let rows = self.emit(module, node, "Gather", &[r.rows, at], &[("axis", 0)], out);
        let row = self.flat(module, node, rows, out);
        let start = self.start(module, node, r, at, out);
        let sizes = self.slice(module, node, row, 1, ROW as i64, out);
        let (made, count) = emit::node(module, node, "ReduceProd", &[sizes], &[("keepdims", Attr::Int(1))]);
        self.keep(module, made, out);
        let end = self.emit(module, node, "Add", &[start, count], &[], out);
        (start, end, row)
    }

    /// Elements of all members before a position.
    fn start(&mut self, module: &mut Module, node: &Node, r: Ragged, at: ValueId, out: &mut Region) -> ValueId {
        let before = self.part(module, node, r.rows, None, Some(at), out);
        let sizes = self.columns(module, node, before, 1, ROW as i64, out);
        let attrs = [("axes", Attr::Ints(vec![1])), ("keepdims", Attr::Int(0))];
        let counts = self.reduce(module, node, "ReduceProd", sizes, &attrs, out);
        let attrs = [("axes", Attr::Ints(vec![0])), ("keepdims", Attr::Int(1))];
        self.reduce(module, node, "ReduceSum", counts, &attrs, out)
    }

    /// What lies before `to`, and what lies from `from` on.
    fn cut(
        &mut self,
        module: &mut Module,
        node: &Node,
        r: Ragged,
        to: ValueId,
        from: ValueId,
        out: &mut Region,
    ) -> (Ragged, Ragged) {
        let (head_end, tail_start) = (self.start(module, node, r, to, out), self.start(module, node, r, from, out));
        let before = Ragged {
            data: self.part(module, node, r.data, None, Some(head_end), out),
            rows: self.part(module, node, r.rows, None, Some(to), out),
            rank: r.rank,
        };
        let after = Ragged {
            data: self.part(module, node, r.data, Some(tail_start), None, out),
            rows: self.part(module, node, r.rows, Some(from), None, out),
            rank: r.rank,
        };
        (before, after)
    }

    fn columns(
        &mut self,
        module: &mut Module,
        node: &Node,
        rows: ValueId,
        from: i64,
        to: i64,
        out: &mut Region,
    ) -> ValueId {
        let mut bound = |v: i64| self.constant(module, TensorData::from_i64s(&[v]), out);
        let (from, to, axis) = (bound(from), bound(to), bound(1));
        self.emit(module, node, "Slice", &[rows, from, to, axis], &[], out)
    }

    /// A reduction; from operator set 18 (`ReduceSum`: 13) on its axes are an input.
    fn reduce(
        &mut self,
        module: &mut Module,
        node: &Node,
        op: &str,
        value: ValueId,
        attrs: &[(&str, Attr)],
        out: &mut Region,
    ) -> ValueId {
        let as_input = if op == "ReduceSum" { 13 } else { 18 };
        let (mut inputs, mut attrs) = (vec![value], attrs.to_vec());
        if node.version >= as_input
            && let Some(k) = attrs.iter().position(|(name, _)| *name == "axes")
            && let (_, Attr::Ints(axes)) = attrs.remove(k)
        {
            inputs.push(self.constant(module, TensorData::from_i64s(&axes), out));
        }
        let (made, id) = emit::node(module, node, op, &inputs, &attrs);
        self.keep(module, made, out);
        id
    }

    /// A check that all rows of a matrix are `row`.
    fn require_rows(&mut self, module: &mut Module, node: &Node, rows: ValueId, row: ValueId, out: &mut Region) {
        let equal = self.emit(module, node, "Equal", &[rows, row], &[], out);
        let number = i64::from(ElemType::from(DType::I32).code());
        let number = self.emit(module, node, "Cast", &[equal], &[("to", number)], out);
        let (made, all) = emit::node(module, node, "ReduceMin", &[number], &[("keepdims", Attr::Int(0))]);
        self.keep(module, made, out);
        self.require(node, all, "the members do not fit each other", out);
    }
}
