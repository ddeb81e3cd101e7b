//! What the rules share: facts about values, and the ordinary nodes that take the place of control flow.

use super::{Container, Mender};
use crate::error::Result;
use crate::graph::{Attr, Module, Node, Region, TensorData, ValueId, ValueType};
use crate::sym::Int;
use std::sync::Arc;

/// The operator set from which on `Squeeze` and `Unsqueeze` take their axes as an input.
const AXES_AS_INPUT: i64 = 13;

impl Mender<'_> {
    /// The elements of an integer or truth value tensor, if all are known while packing.
    pub(super) fn known_ints(&mut self, id: ValueId) -> Option<Vec<i64>> {
        let t = *self.facts.values.get(&id)?;
        self.facts.cx.const_ints(t)
    }

    /// The one element of such a tensor.
    pub(super) fn known_int(&mut self, id: ValueId) -> Option<i64> {
        self.known_ints(id).filter(|v| v.len() == 1).map(|v| v[0])
    }

    /// The dimensions of a tensor, if it is one and its operator is supported.
    pub(super) fn dims(&self, id: ValueId) -> Option<Vec<Int>> {
        self.facts.values.get(&id).map(|t| self.facts.shape_of(*t))
    }

    /// The members of a sequence, if they are known.
    pub(super) fn members(&self, id: ValueId) -> Option<Vec<ValueId>> {
        match self.containers.get(&id) {
            Some(Container::Sequence(members)) => Some(members.clone()),
            _ => None,
        }
    }

    /// Lets an output stand for a value that is there already.
    pub(super) fn alias(&mut self, node: &Node, place: usize, value: ValueId) {
        if let Some(output) = node.output(place) {
            self.replace.replace(output, value);
        }
    }

    /// Adds a constant.
    pub(super) fn constant(&mut self, module: &mut Module, data: TensorData, out: &mut Region) -> ValueId {
        let id = module.add_value("", data.value_type());
        let data = Arc::new(data);
        self.facts.constant(id, &data);
        out.constants.push((id, data));
        id
    }

    /// Adds a node with one output; see [`node`].
    pub(super) fn emit(
        &mut self,
        module: &mut Module,
        of: &Node,
        op: &str,
        inputs: &[ValueId],
        attrs: &[(&str, i64)],
        out: &mut Region,
    ) -> ValueId {
        let attrs: Vec<_> = attrs.iter().map(|(name, v)| (*name, Attr::Int(*v))).collect();
        let (made, id) = node(module, of, op, inputs, &attrs);
        self.keep(module, made, out);
        id
    }

    /// `value` with a new axis of size 1; a negative axis counts from the end of the result.
    pub(super) fn unsqueeze(
        &mut self,
        module: &mut Module,
        of: &Node,
        value: ValueId,
        axis: i64,
        out: &mut Region,
    ) -> ValueId {
        let mut part = Region::default();
        let id = unsqueezed(module, of, value, axis, &mut part);
        for (id, data) in &part.constants {
            self.facts.constant(*id, data);
        }
        out.constants.append(&mut part.constants);
        for made in part.nodes {
            self.keep(module, made, out);
        }
        id
    }

    /// The part `at` of `value` along an axis, which goes.
    pub(super) fn pick(
        &mut self,
        module: &mut Module,
        of: &Node,
        value: ValueId,
        axis: i64,
        at: i64,
        out: &mut Region,
    ) -> ValueId {
        let at = self.constant(module, TensorData::scalar_i64(at), out);
        self.emit(module, of, "Gather", &[value, at], &[("axis", axis)], out)
    }

    /// Values of one shape along a new axis.
    pub(super) fn stack(
        &mut self,
        module: &mut Module,
        of: &Node,
        values: &[ValueId],
        axis: i64,
        out: &mut Region,
    ) -> ValueId {
        let mut parts = vec![];
        for v in values {
            parts.push(self.unsqueeze(module, of, *v, axis, out));
        }
        match parts.as_slice() {
            [one] => *one,
            _ => self.emit(module, of, "Concat", &parts, &[("axis", axis)], out),
        }
    }

    /// Puts a body in place, its inputs replaced by `args`; gives its results.
    pub(super) fn inline(
        &mut self,
        module: &mut Module,
        body: &Region,
        args: &[ValueId],
        out: &mut Region,
    ) -> Result<Vec<ValueId>> {
        let copy = module.instantiate(body, args);
        self.nodes(module, copy.nodes, copy.constants, &copy.outputs, out)?;
        Ok(copy.outputs.iter().map(|v| self.replace.get(*v)).collect())
    }

    /// Nodes of a body, those of the regions within too.
    pub(super) fn size(body: &Region) -> usize {
        let mut count = 0;
        body.walk(&mut |_| count += 1);
        count
    }
}

/// A node with one output, of the default domain, in the name and the operator set of the node that it is for.
pub(super) fn node(
    module: &mut Module,
    of: &Node,
    op: &str,
    inputs: &[ValueId],
    attrs: &[(&str, Attr)],
) -> (Node, ValueId) {
    let id = module.add_value("", ValueType::Unknown);
    let node = Node {
        name: of.name.clone(),
        domain: crate::graph::ONNX_DOMAIN.into(),
        op_type: op.into(),
        version: of.version,
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(id)],
        attrs: attrs.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect(),
    };
    (node, id)
}

/// Appends to a region that nothing is known of yet: `value` with a new axis of size 1.
pub(super) fn unsqueezed(module: &mut Module, of: &Node, value: ValueId, axis: i64, out: &mut Region) -> ValueId {
    let (made, id) = if of.version >= AXES_AS_INPUT {
        let data = TensorData::from_i64s(&[axis]);
        let axes = module.add_value("", data.value_type());
        out.constants.push((axes, Arc::new(data)));
        node(module, of, "Unsqueeze", &[value, axes], &[])
    } else {
        node(module, of, "Unsqueeze", &[value], &[("axes", Attr::Ints(vec![axis]))])
    };
    out.nodes.push(made);
    id
}
