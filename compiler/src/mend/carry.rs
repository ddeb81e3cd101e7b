//! Sequences and optionals that a native loop carries, and `SequenceMap` as a loop.
//!
//! Each is held in tensors (see [`super::forms`]). A sequence to whose end the body only adds is a scan output in disguise.

use super::forms::Form;
use super::report::Rule;
use super::{Container, Mender};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, ElemType, Module, Node, ONNX_DOMAIN, Region, TensorData, ValueId, ValueType};
use std::sync::Arc;

/// What became of a carried value.
pub(super) enum Carry {
    /// A tensor; the loop gives it out as before.
    Tensor,
    /// The body passes it on: it is what it was before the loop.
    Same(ValueId),
    /// The body adds a value to its end.
    Append {
        /// The sequence before the loop.
        given: ValueId,
        /// What is added.
        value: ValueId,
    },
    /// It is held in tensors.
    Held {
        /// How.
        form: Form,
        /// What the body gives back.
        result: ValueId,
    },
}

/// A loop that carries tensors only.
pub(super) struct Carriers {
    /// The loop; its body is apart, its outputs are still the old ones.
    pub(super) node: Node,
    pub(super) body: Region,
    /// For each value that it carried.
    pub(super) ways: Vec<Carry>,
}

impl Mender<'_> {
    /// The loop with tensors in the place of other carried values, which are held in `forms`. Nothing if one cannot be.
    pub(super) fn carriers(
        &mut self,
        module: &mut Module,
        mut node: Node,
        forms: &[Option<Form>],
        append_apart: bool,
        out: &mut Region,
    ) -> Result<Option<Carriers>> {
        let mut body = node.take_region("body")?;
        let states = node.inputs.len().saturating_sub(2);
        if body.inputs.len() != states + 2 || body.outputs.len() <= states {
            return Err(node.invalid("the body does not fit the values that are carried"));
        }
        let (mut inputs, mut inner) = (node.inputs[..2].to_vec(), body.inputs[..2].to_vec());
        let (mut results, mut ways) = (vec![body.outputs[0]], vec![]);
        let mut appended = vec![];
        for (k, form) in forms.iter().enumerate() {
            let (inside, result) = (body.inputs[k + 2], body.outputs[k + 1]);
            let Some(given) = node.input(k + 2) else {
                return Err(node.invalid(format!("carried value {k} is missing")));
            };
            let Some(form) = form else {
                inputs.push(Some(given));
                inner.push(inside);
                results.push(result);
                ways.push(Carry::Tensor);
                continue;
            };
            if inside == result {
                self.replace.replace(inside, given);
                ways.push(Carry::Same(given));
            } else if append_apart && let Some((insert, value)) = append(&mut body, inside, result) {
                self.report.settle(&insert, Rule::Sequence);
                appended.push(value);
                ways.push(Carry::Append { given, value });
            } else {
                let Some(parts) = self.parts(module, &node, given, form, out) else { return Ok(None) };
                let held = self.fresh(module, form);
                let whole = self.whole(module, form, &held);
                self.replace.replace(inside, whole);
                inputs.extend(parts.into_iter().map(Some));
                inner.extend(held);
                // As many as there are tensors, until the body is mended and these are known.
                results.extend(vec![result; form.len()]);
                ways.push(Carry::Held { form: form.clone(), result });
            }
        }
        results.extend(&body.outputs[1 + states..]);
        results.extend(appended);
        (node.inputs, body.inputs, body.outputs) = (inputs, inner, results);
        Ok(Some(Carriers { node, body, ways }))
    }

    /// What a sequence is after `added` has been added to its end.
    pub(super) fn appended(
        &mut self,
        module: &mut Module,
        node: &Node,
        given: ValueId,
        added: ValueId,
        out: &mut Region,
    ) -> Option<ValueId> {
        if self.members(given).is_some_and(|m| m.is_empty()) {
            return Some(added);
        }
        let before = self.stack_of(module, node, given, out)?;
        Some(self.emit(module, node, "Concat", &[before, added], &[("axis", 0)], out))
    }

    /// Can the tensors that `added` will hold follow the members of a sequence in one tensor?
    pub(super) fn can_append(&self, given: ValueId, value: ValueId) -> bool {
        let Some(value) = self.member(value) else { return false };
        // Strings may be longer in the next trip than there is room for in the part that each trip writes.
        if value.elem == ElemType::String {
            return false;
        }
        match self.form(given) {
            Some(Form::List(members)) => members.iter().all(|m| *m == value),
            Some(Form::Stack(member)) => member == value,
            _ => false,
        }
    }

    /// `SequenceMap` over a sequence of unknown length: a loop that adds to sequences.
    pub(super) fn map_as_loop(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let body = node.require_region("body")?;
        let Some(first) = node.input(0).filter(|v| self.containers.contains_key(v)) else { return Ok(None) };
        let length = module.add_value("", ValueType::Unknown);
        let made = sequence_node(node, "SequenceLength", &[first], length);
        self.nodes(module, vec![made], vec![], &[length], out)?;
        let length = self.replace.get(length);
        if !self.facts.values.contains_key(&length) {
            return Ok(None);
        }
        let scalar = |module: &mut Module, t: DType| module.add_value("", ValueType::fixed(t, &[]));
        let mut inner = Region { name: body.name.clone(), ..Region::default() };
        let trip = scalar(module, DType::I64);
        inner.inputs.extend([trip, scalar(module, DType::Bool)]);
        let mut args = vec![];
        for v in node.given_inputs() {
            if !self.containers.contains_key(&v) {
                args.push(v);
                continue;
            }
            let member = module.add_value("", ValueType::Unknown);
            inner.nodes.push(sequence_node(node, "SequenceAt", &[v, trip], member));
            args.push(member);
        }
        if args.len() != body.inputs.len() {
            return Err(node.invalid("the body does not fit the inputs"));
        }
        let copy = module.instantiate(body, &args);
        let on = scalar(module, DType::Bool);
        inner.constants.push((on, Arc::new(TensorData::scalar_bool(true))));
        inner.constants.extend(copy.constants);
        inner.nodes.extend(copy.nodes);
        inner.outputs.push(on);
        let mut inputs = vec![Some(length), None];
        for result in &copy.outputs {
            let [empty, before, after] = [(); 3].map(|()| module.add_value("", ValueType::Unknown));
            self.containers.insert(empty, Container::Sequence(vec![]));
            inputs.push(Some(empty));
            inner.inputs.push(before);
            inner.nodes.push(sequence_node(node, "SequenceInsert", &[before, *result], after));
            inner.outputs.push(after);
        }
        let made = Node {
            name: node.name.clone(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Loop".into(),
            version: node.version,
            inputs,
            outputs: node.outputs.clone(),
            attrs: [("body".to_owned(), Attr::Region(inner))].into(),
        };
        self.native(module, made, out)?;
        Ok(Some(()))
    }
}

pub(super) fn sequence_node(of: &Node, op: &str, inputs: &[ValueId], output: ValueId) -> Node {
    Node {
        name: of.name.clone(),
        domain: ONNX_DOMAIN.into(),
        op_type: op.into(),
        version: of.version,
        inputs: inputs.iter().copied().map(Some).collect(),
        outputs: vec![Some(output)],
        attrs: [].into(),
    }
}

/// What a body adds to the end of a sequence, if that is all that it does with it; the node that does is removed.
fn append(body: &mut Region, inside: ValueId, result: ValueId) -> Option<(Node, ValueId)> {
    let at = body.nodes.iter().position(|n| {
        n.is("SequenceInsert") && n.input(0) == Some(inside) && n.input(2).is_none() && n.output(0) == Some(result)
    })?;
    let mut uses = 0;
    body.walk(&mut |n| {
        uses += n.given_inputs().filter(|v| *v == inside || *v == result).count();
        n.regions().for_each(|r| uses += r.outputs.iter().filter(|v| **v == inside || **v == result).count());
    });
    uses += body.outputs.iter().filter(|v| **v == inside || **v == result).count();
    // Once by the node, once as the body's result.
    if uses != 2 {
        return None;
    }
    let value = body.nodes[at].input(1)?;
    Some((body.nodes.remove(at), value))
}
