//! `SplitToSequence` into pieces, and `ConcatFromSequence` of members, whose number or sizes are known only while running.

use super::carry::sequence_node;
use super::report::Rule;
use super::{Container, Mender, emit};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, ElemType, Module, Node, ONNX_DOMAIN, Region, TensorData, ValueId, ValueType};
use std::sync::Arc;

/// What is wrong with sizes that are not those of pieces.
const UNFIT: &str = "the sizes do not make up the dimension";

impl Mender<'_> {
    /// `SplitToSequence` into pieces of size 1 along an axis of open size.
    pub(super) fn split_evenly(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let value = node.require_input(0, "the tensor")?;
        let Some(rank) = self.dims(value).map(|d| d.len()) else { return Ok(false) };
        let pieces = match node.input(1) {
            None => true,
            Some(split) => self.dims(split).is_some_and(|d| d.is_empty()) && self.known_int(split) == Some(1),
        };
        if !pieces {
            return Ok(false);
        }
        let keep = node.input(1).is_some() || node.attr_bool("keepdims", true)?;
        let axis = node.attr_int("axis", 0)?;
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        if at < 0 || at >= rank as i64 {
            return Err(node.invalid(format!("axis {axis} of a tensor of rank {rank}")));
        }
        let mut order: Vec<i64> = (0..rank as i64).filter(|k| *k != at).collect();
        order.insert(0, at);
        let (made, mut whole) = emit::node(module, node, "Transpose", &[value], &[("perm", Attr::Ints(order))]);
        self.keep(module, made, out);
        if keep {
            whole = self.unsqueeze(module, node, whole, at + 1, out);
        }
        self.is(node, Container::Stack(whole));
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }

    /// Any other split: a loop that cuts off piece after piece.
    pub(super) fn split_in_loop(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let value = node.require_input(0, "the tensor")?;
        let Some(split) = node.input(1) else { return Ok(false) };
        let (Some(rank), Some(sizes)) = (self.dims(value).map(|d| d.len()), self.dims(split)) else { return Ok(false) };
        let axis = node.attr_int("axis", 0)?;
        if axis < -(rank as i64) || axis >= rank as i64 || sizes.len() > 1 {
            return Err(node.invalid(format!("axis {axis} of a tensor of rank {rank}, sizes of rank {}", sizes.len())));
        }
        let number = i64::from(ElemType::from(DType::I64).code());
        let split = self.emit(module, node, "Cast", &[split], &[("to", number)], out);
        let shape = self.emit(module, node, "Shape", &[value], &[], out);
        let whole = self.pick(module, node, shape, 0, axis, out);
        let count = if sizes.is_empty() {
            // Pieces of one size, the last one may be smaller.
            let one = self.constant(module, TensorData::scalar_i64(1), out);
            let positive = self.emit(module, node, "Less", &[one, split], &[], out);
            let least = self.emit(module, node, "Equal", &[one, split], &[], out);
            let sound = self.emit(module, node, "Or", &[positive, least], &[], out);
            self.require(node, sound, UNFIT, out);
            let more = self.emit(module, node, "Sub", &[split, one], &[], out);
            let padded = self.emit(module, node, "Add", &[whole, more], &[], out);
            self.emit(module, node, "Div", &[padded, split], &[], out)
        } else {
            let (made, sum) = emit::node(module, node, "ReduceSum", &[split], &[("keepdims", Attr::Int(0))]);
            self.keep(module, made, out);
            let (made, least) = emit::node(module, node, "ReduceMin", &[split], &[("keepdims", Attr::Int(0))]);
            self.keep(module, made, out);
            let below = self.constant(module, TensorData::scalar_i64(-1), out);
            let positive = self.emit(module, node, "Less", &[below, least], &[], out);
            self.require(node, positive, UNFIT, out);
            let sound = self.emit(module, node, "Equal", &[sum, whole], &[], out);
            self.require(node, sound, UNFIT, out);
            self.length(module, node, split, out)
        };
        let start = self.constant(module, TensorData::from_i64s(&[0]), out);
        let scalar = |module: &mut Module, t: DType| module.add_value("", ValueType::fixed(t, &[]));
        let mut body = Region { name: "pieces".into(), ..Region::default() };
        let trip = scalar(module, DType::I64);
        body.inputs.extend([trip, scalar(module, DType::Bool)]);
        let [empty, before, after, from] = [(); 4].map(|()| module.add_value("", ValueType::Unknown));
        self.containers.insert(empty, Container::Sequence(vec![]));
        body.inputs.extend([from, before]);
        let on = scalar(module, DType::Bool);
        body.constants.push((on, Arc::new(TensorData::scalar_bool(true))));
        let axes = module.add_value("", ValueType::Unknown);
        body.constants.push((axes, Arc::new(TensorData::from_i64s(&[axis]))));
        let mut add = |module: &mut Module, op: &str, inputs: &[ValueId]| {
            let (made, id) = emit::node(module, node, op, inputs, &[]);
            body.nodes.push(made);
            id
        };
        let size = if sizes.is_empty() { split } else { add(module, "Gather", &[split, trip]) };
        let to = add(module, "Add", &[from, size]);
        let piece = add(module, "Slice", &[value, from, to, axes]);
        body.nodes.push(sequence_node(node, "SequenceInsert", &[before, piece], after));
        body.outputs.extend([on, to, after]);
        let made = Node {
            name: node.name.clone(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Loop".into(),
            version: node.version,
            inputs: vec![Some(count), None, Some(start), Some(empty)],
            outputs: vec![None, node.output(0)],
            attrs: [("body".to_owned(), Attr::Region(body))].into(),
        };
        self.native(module, made, out)?;
        self.report.settle(node, Rule::Sequence);
        Ok(true)
    }

    /// `ConcatFromSequence` of members of any shapes along any axis: a loop that adds member after member.
    pub(super) fn concat_in_loop(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let sequence = node.require_input(0, "the sequence")?;
        let (axis, apart) = (node.require_int("axis")?, node.attr_bool("new_axis", false)?);
        let [length, first] = [(); 2].map(|()| module.add_value("", ValueType::Unknown));
        let (zero, one) = (
            self.constant(module, TensorData::scalar_i64(0), out),
            self.constant(module, TensorData::scalar_i64(1), out),
        );
        let nodes = vec![
            sequence_node(node, "SequenceLength", &[sequence], length),
            sequence_node(node, "SequenceAt", &[sequence, zero], first),
        ];
        self.nodes(module, nodes, vec![], &[length, first], out)?;
        let (length, mut first) = (self.replace.get(length), self.replace.get(first));
        if apart {
            first = self.unsqueeze(module, node, first, axis, out);
        }
        let more = self.emit(module, node, "Sub", &[length, one], &[], out);
        let mut body = Region { name: "members".into(), ..Region::default() };
        let scalar = |module: &mut Module, t: DType| module.add_value("", ValueType::fixed(t, &[]));
        let (trip, so_far) = (scalar(module, DType::I64), module.add_value("", ValueType::Unknown));
        body.inputs.extend([trip, scalar(module, DType::Bool), so_far]);
        let on = scalar(module, DType::Bool);
        body.constants.push((on, Arc::new(TensorData::scalar_bool(true))));
        let (made, next) = emit::node(module, node, "Add", &[trip, one], &[]);
        body.nodes.push(made);
        let mut member = module.add_value("", ValueType::Unknown);
        body.nodes.push(sequence_node(node, "SequenceAt", &[sequence, next], member));
        if apart {
            member = emit::unsqueezed(module, node, member, axis, &mut body);
        }
        let (made, all) = emit::node(module, node, "Concat", &[so_far, member], &[("axis", Attr::Int(axis))]);
        body.nodes.push(made);
        body.outputs.extend([on, all]);
        let made = Node {
            name: node.name.clone(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Loop".into(),
            version: node.version,
            inputs: vec![Some(more), None, Some(first)],
            outputs: vec![node.output(0)],
            attrs: [("body".to_owned(), Attr::Region(body))].into(),
        };
        self.native(module, made, out)?;
        Ok(true)
    }
}
