//! Rule `loop`: a `Loop` that is not worth writing out, or that cannot be, stays one native loop of the plan.
//!
//! No side condition. The body is mended with what is known of the values that it carries: their shapes before the first
//! trip, as far as the body gives them back (see `expand::looped`).

use super::Mender;
use super::report::Rule;
use crate::error::{Collector, Result};
use crate::graph::{Module, Node, Region};

impl Mender<'_> {
    /// Keeps a loop, its body mended.
    pub(super) fn native(&mut self, module: &mut Module, node: Node, out: &mut Region) -> Result<()> {
        let mut varying = vec![];
        loop {
            // The body is mended anew when what it carries has other shapes than were assumed.
            let (mut trial, mut copy, mut node) = (self.clone(), module.clone(), node.clone());
            let body = node.take_region("body")?;
            let Some(entered) = trial.facts.enter(&node, &body, &mut varying)? else { break };
            let mended = trial.region(&mut copy, body)?;
            let results = trial.facts.results(&mended);
            trial.facts.cx.end_block();
            if let Some(results) = results
                && trial.facts.widen(&node, &entered, &results, &mut varying)?
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
            out.nodes.push(node);
            return Ok(());
        }
        self.keep_with_regions(module, node, out)
    }
}
