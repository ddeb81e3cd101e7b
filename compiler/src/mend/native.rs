//! Rule `loop`: a `Loop` that is not worth writing out, or that cannot be, stays one native loop of the plan.
//!
//! No side condition. The body is mended with what is known of the values that it carries: their shapes before the first
//! trip, as far as the body gives them back (see `expand::looped`).

use super::carry::Carriers;
use super::report::Rule;
use super::{Container, Mender};
use crate::error::{Collector, Result};
use crate::graph::{Module, Node, Region};

impl Mender<'_> {
    /// Keeps a loop, its body mended.
    pub(super) fn native(&mut self, module: &mut Module, node: Node, out: &mut Region) -> Result<()> {
        let Some(Carriers { node, stacks, results }) = self.without_sequences(module, node.clone(), out)? else {
            return self.keep_with_regions(module, node, out);
        };
        let mut varying = vec![];
        loop {
            // The body is mended anew when what it carries has other shapes than were assumed.
            let (mut trial, mut copy, mut node) = (self.clone(), module.clone(), node.clone());
            let body = node.take_region("body")?;
            let Some(entered) = trial.facts.enter(&node, &body, &mut varying)? else { break };
            for (whole, sequence) in &stacks {
                trial.containers.insert(*sequence, Container::Stack(*whole));
            }
            let mut mended = trial.region(&mut copy, body)?;
            for k in 1..mended.outputs.len() {
                let given = mended.outputs[k];
                if trial.containers.contains_key(&given)
                    && let Some(whole) = trial.stack_of(&mut copy, &node, given, &mut mended)
                {
                    mended.outputs[k] = whole;
                }
            }
            let tensors = trial.facts.results(&mended);
            trial.facts.cx.end_block();
            if let Some(tensors) = tensors
                && trial.facts.widen(&node, &entered, &tensors, &mut varying)?
            {
                continue;
            }
            node.attrs.insert("body".into(), crate::graph::Attr::Region(mended));
            *self = trial;
            *module = copy;
            self.report.settle(&node, Rule::Loop);
            let mut problems = Collector::new();
            let known = self.facts.looped(module, &node, &mut problems).is_ok() && problems.is_empty();
            if !known {
                self.facts.poisoned.extend(node.wanted_outputs());
            }
            out.nodes.push(node.clone());
            self.carried_out(module, &node, results, out);
            return Ok(());
        }
        self.keep_with_regions(module, node, out)
    }
}
