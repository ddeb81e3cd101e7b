//! Sequences that a native loop carries, and `SequenceMap` over one of unknown length.
//!
//! A sequence to whose end the body only adds is a scan output in disguise. Any other is carried as one tensor; side
//! condition: its members have one shape, and it has one before the loop, or the first trip tells of what shape they are.

use super::{Container, Mender, emit};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, Module, Node, ONNX_DOMAIN, Region, TensorData, ValueId, ValueType};
use std::sync::Arc;

/// A loop that carries tensors, and what its sequences were.
pub(super) struct Carriers {
    /// The loop.
    pub(super) node: Node,
    /// Inputs of the body that stand for sequences: the tensor that holds the members, and the sequence.
    pub(super) stacks: Vec<(ValueId, ValueId)>,
    /// Outputs of the loop that stand for sequences: the output that it had, members that are there before, the tensor.
    pub(super) results: Vec<(Option<ValueId>, Option<ValueId>, ValueId)>,
}

impl Mender<'_> {
    /// The loop with tensors in the place of sequences. Nothing if one cannot be held in a tensor.
    pub(super) fn without_sequences(
        &mut self,
        module: &mut Module,
        mut node: Node,
        out: &mut Region,
    ) -> Result<Option<Carriers>> {
        let mut body = node.take_region("body")?;
        let (mut stacks, mut results, mut appended) = (vec![], vec![], vec![]);
        let mut k = 0;
        while k + 2 < node.inputs.len() {
            let given = node.input(k + 2).filter(|v| self.containers.contains_key(v));
            let (Some(given), true) = (given, body.inputs.len() > k + 2 && body.outputs.len() > k + 1) else {
                k += 1;
                continue;
            };
            let (inside, result) = (body.inputs[k + 2], body.outputs[k + 1]);
            let drop = |node: &mut Node, body: &mut Region| {
                node.inputs.remove(k + 2);
                body.inputs.remove(k + 2);
                body.outputs.remove(k + 1);
                if k < node.outputs.len() { node.outputs.remove(k) } else { None }
            };
            if inside == result {
                // Passed on as it is.
                let output = drop(&mut node, &mut body);
                self.replace.replace(inside, given);
                body.nodes.iter_mut().for_each(|n| self.replace.apply_to_node(n));
                if let Some(output) = output {
                    self.replace.replace(output, given);
                }
            } else if let Some(value) = append(&mut body, inside, result) {
                let output = drop(&mut node, &mut body);
                appended.push((output, given, value));
            } else {
                let Some(whole) = self.whole(module, &node, &body, given, inside, result, out)? else {
                    return Ok(None);
                };
                let held = module.add_value("", ValueType::Unknown);
                let after = module.add_value("", ValueType::Unknown);
                node.inputs[k + 2] = Some(whole);
                body.inputs[k + 2] = held;
                stacks.push((held, inside));
                while node.outputs.len() <= k {
                    node.outputs.push(None);
                }
                results.push((node.outputs[k], None, after));
                node.outputs[k] = Some(after);
                k += 1;
            }
        }
        for (output, given, value) in appended {
            let members = match self.containers.get(&given) {
                Some(Container::Sequence(members)) if members.is_empty() => None,
                _ => match self.stack_of(module, &node, given, out) {
                    Some(members) => Some(members),
                    None => return Ok(None),
                },
            };
            while node.outputs.len() + 1 < body.outputs.len() {
                node.outputs.push(None);
            }
            let after = module.add_value("", ValueType::Unknown);
            body.outputs.push(value);
            node.outputs.push(Some(after));
            results.push((output, members, after));
        }
        node.attrs.insert("body".into(), Attr::Region(body));
        Ok(Some(Carriers { node, stacks, results }))
    }

    /// The tensor that holds a sequence before the loop.
    #[expect(clippy::too_many_arguments, reason = "one loop's parts, used once")]
    fn whole(
        &mut self,
        module: &mut Module,
        node: &Node,
        body: &Region,
        given: ValueId,
        inside: ValueId,
        result: ValueId,
        out: &mut Region,
    ) -> Result<Option<ValueId>> {
        if let Some(whole) = self.stack_of(module, node, given, out) {
            return Ok(Some(whole));
        }
        if !self.members(given).is_some_and(|m| m.is_empty()) {
            return Ok(None);
        }
        // Without members: a first trip, as far as it can be told, says what there will be.
        let (mut trial, mut copy) = (self.clone(), module.clone());
        let mut args = vec![
            trial.constant(&mut copy, TensorData::scalar_i64(0), &mut Region::default()),
            trial.constant(&mut copy, TensorData::scalar_bool(true), &mut Region::default()),
        ];
        args.extend(node.inputs.iter().skip(2).flatten());
        let Some(place) = body.outputs.iter().position(|v| *v == result) else { return Ok(None) };
        debug_assert!(body.inputs.contains(&inside), "the sequence is an input of the body");
        if args.len() != body.inputs.len() {
            return Ok(None);
        }
        let values = trial.inline(&mut copy, body, &args, &mut Region::default())?;
        let member = values.get(place).and_then(|v| trial.members(*v)).and_then(|m| m.first().copied());
        let data = member.and_then(|m| trial.no_members(m));
        Ok(data.map(|data| self.constant(module, data, out)))
    }

    /// Notes what a loop's sequences are after it.
    pub(super) fn carried_out(
        &mut self,
        module: &mut Module,
        node: &Node,
        results: Vec<(Option<ValueId>, Option<ValueId>, ValueId)>,
        out: &mut Region,
    ) {
        for (output, before, after) in results {
            let whole = match before {
                None => after,
                Some(before) => self.emit(module, node, "Concat", &[before, after], &[("axis", 0)], out),
            };
            if let Some(output) = output {
                self.containers.insert(output, Container::Stack(whole));
            }
        }
    }

    /// `SequenceMap` over a sequence of unknown length: a loop with scan outputs.
    pub(super) fn map_as_loop(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let body = node.require_region("body")?;
        let Some(first) = node.input(0) else { return Ok(None) };
        let Some(whole) = self.stack_of(module, node, first, out) else { return Ok(None) };
        let length = self.length(module, node, whole, out);
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
            let Some(whole) = self.stack_of(module, node, v, out) else { return Ok(None) };
            let (gather, member) = emit::node(module, node, "Gather", &[whole, trip], &[("axis", Attr::Int(0))]);
            inner.nodes.push(gather);
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
        inner.outputs.extend(&copy.outputs);
        let outputs: Vec<ValueId> = body.outputs.iter().map(|_| module.add_value("", ValueType::Unknown)).collect();
        let made = Node {
            name: node.name.clone(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Loop".into(),
            version: node.version,
            inputs: vec![Some(length), None],
            outputs: outputs.iter().copied().map(Some).collect(),
            attrs: [("body".to_owned(), Attr::Region(inner))].into(),
        };
        self.native(module, made, out)?;
        for (output, whole) in node.outputs.iter().zip(outputs) {
            if let Some(output) = output {
                self.containers.insert(*output, Container::Stack(whole));
            }
        }
        Ok(Some(()))
    }
}

/// What a body adds to the end of a sequence, if that is all that it does with it; the node that does is removed.
fn append(body: &mut Region, inside: ValueId, result: ValueId) -> Option<ValueId> {
    let at = body.nodes.iter().position(|n| {
        n.is("SequenceInsert") && n.input(0) == Some(inside) && n.input(2).is_none() && n.output(0) == Some(result)
    })?;
    let mut uses = 0;
    body.walk(&mut |n| uses += n.given_inputs().filter(|v| *v == inside || *v == result).count());
    let mut given = body.outputs.iter().filter(|v| **v == inside || **v == result).count();
    for n in &body.nodes {
        n.regions().for_each(|r| given += r.outputs.iter().filter(|v| **v == inside || **v == result).count());
    }
    if uses != 1 || given != 1 {
        return None;
    }
    let value = body.nodes[at].input(1)?;
    body.nodes.remove(at);
    Some(value)
}
