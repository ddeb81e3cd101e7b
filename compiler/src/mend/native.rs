//! Rule `loop`: a `Loop` that is not worth writing out, or that cannot be, stays one native loop of the plan.
//!
//! No side condition. The body is mended with what is known of the values that it carries: the shapes of tensors before the
//! first trip, as far as the body gives them back (see `expand::looped`), and how sequences are held. When it turns out
//! that the body gives back something else, the assumption is widened and the body is mended anew.

use super::carry::{Carriers, Carry};
use super::forms::Form;
use super::report::Rule;
use super::{Container, Mender};
use crate::error::{Collector, Result};
use crate::graph::{Attr, Module, Node, Region, ValueId};

/// What is assumed of carried values.
struct Assumed {
    forms: Vec<Option<Form>>,
    varying: Vec<crate::expand::CarriedAs>,
    /// Sequences to which the body only adds are scan outputs.
    append_apart: bool,
}

/// How an attempt ended.
enum Attempt {
    Done,
    /// The assumptions are widened now.
    Again,
    /// Something carried cannot be held in tensors.
    Stuck,
}

impl Mender<'_> {
    /// Keeps a loop, its body mended.
    pub(super) fn native(&mut self, module: &mut Module, node: Node, out: &mut Region) -> Result<()> {
        let form = |v: &Option<ValueId>| v.filter(|v| self.containers.contains_key(v)).map(|v| self.form(v));
        let forms: Option<Vec<Option<Form>>> = node
            .inputs
            .iter()
            .skip(2)
            .map(|v| match form(v) {
                None => Some(None),
                Some(found) => found.map(Some),
            })
            .collect();
        if let Some(forms) = forms {
            let mut assumed = Assumed { forms, varying: vec![], append_apart: true };
            loop {
                // What turns out not to be possible half-way must leave no trace.
                let (mut trial, mut copy, mut made) = (self.clone(), module.clone(), Region::default());
                match trial.attempt(&mut copy, &node, &mut assumed, &mut made)? {
                    Attempt::Again => continue,
                    Attempt::Stuck => break,
                    Attempt::Done => {}
                }
                *self = trial;
                *module = copy;
                out.nodes.append(&mut made.nodes);
                out.constants.append(&mut made.constants);
                self.report.settle(&node, Rule::Loop);
                return Ok(());
            }
        }
        self.keep_with_regions(module, node, out)
    }

    fn attempt(
        &mut self,
        module: &mut Module,
        node: &Node,
        assumed: &mut Assumed,
        out: &mut Region,
    ) -> Result<Attempt> {
        let carriers = self.carriers(module, node.clone(), &assumed.forms, assumed.append_apart, out)?;
        let Some(Carriers { node: mut made, body, ways }) = carriers else { return Ok(Attempt::Stuck) };
        let Some(entered) = self.facts.enter(&made, &body, &mut assumed.varying)? else { return Ok(Attempt::Stuck) };
        let mut body = self.region(module, body)?;

        let mut results = body.outputs.clone().into_iter();
        let mut tensors: Vec<ValueId> = results.by_ref().take(1).collect();
        for (k, way) in ways.iter().enumerate() {
            match way {
                Carry::Tensor => tensors.extend(results.next()),
                Carry::Same(_) => {}
                Carry::Append { given, value } => {
                    let value = self.replace.get(*value);
                    let changes = |d: &crate::sym::Int| entered.is_inner(*d);
                    if !self.can_append(*given, value) || self.dims(value).is_some_and(|d| d.iter().any(changes)) {
                        assumed.append_apart = false;
                        assumed.varying.clear();
                        return Ok(Attempt::Again);
                    }
                }
                Carry::Held { form, result } => {
                    results.by_ref().take(form.len()).for_each(drop);
                    let result = self.replace.get(*result);
                    let Some(joined) = self.form(result).and_then(|f| form.join(&f)) else { return Ok(Attempt::Stuck) };
                    if !joined.is_like(form) {
                        assumed.forms[k] = Some(joined);
                        assumed.varying.clear();
                        return Ok(Attempt::Again);
                    }
                    match self.parts(module, node, result, form, &mut body) {
                        Some(parts) => tensors.extend(parts),
                        None => return Ok(Attempt::Stuck),
                    }
                }
            }
        }
        tensors.extend(results);
        body.outputs = tensors;
        let tensors = self.facts.results(&body);
        self.facts.cx.end_block();
        if let Some(tensors) = tensors
            && self.facts.widen(&made, &entered, &tensors, &mut assumed.varying)?
        {
            return Ok(Attempt::Again);
        }

        // Outputs: carried ones as they are held, scan outputs, sequences that were added to.
        let states = ways.len();
        let mut given = node.outputs.clone();
        given.resize(given.len().max(states), None);
        let mut outputs = vec![];
        let mut after = vec![];
        for (way, old) in ways.iter().zip(&given) {
            match way {
                Carry::Tensor => outputs.push(*old),
                Carry::Same(same) => after.push((*old, *same)),
                Carry::Append { .. } => {}
                Carry::Held { form, .. } => {
                    let parts = self.fresh(module, form);
                    let whole = self.whole(module, form, &parts);
                    outputs.extend(parts.into_iter().map(Some));
                    after.push((*old, whole));
                }
            }
        }
        let appended = ways.iter().filter(|w| matches!(w, Carry::Append { .. })).count();
        let scans = body.outputs.len() - 1 - outputs.len() - appended;
        outputs.extend((0..scans).map(|k| given.get(states + k).copied().flatten()));
        let mut stacks = vec![];
        for (way, old) in ways.iter().zip(&given) {
            if let Carry::Append { given, .. } = way {
                let added = module.add_value("", crate::graph::ValueType::Unknown);
                outputs.push(Some(added));
                stacks.push((*old, *given, added));
            }
        }
        made.outputs = outputs;
        made.attrs.insert("body".into(), Attr::Region(body));
        let mut problems = Collector::new();
        let known = self.facts.looped(module, &made, &mut problems).is_ok() && problems.is_empty();
        if !known {
            self.facts.poisoned.extend(made.wanted_outputs());
        }
        out.nodes.push(made);
        for (old, before, added) in stacks {
            let Some(whole) = self.appended(module, node, before, added, out) else { return Ok(Attempt::Stuck) };
            if let Some(old) = old {
                self.containers.insert(old, Container::Stack(whole));
            }
        }
        for (old, whole) in after {
            if let Some(old) = old {
                self.replace.replace(old, whole);
            }
        }
        Ok(Attempt::Done)
    }
}
