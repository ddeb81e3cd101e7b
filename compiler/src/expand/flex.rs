//! `FlexAttention` with modifiers: graphs that are put between its steps.

use super::{Expander, at_node};
use crate::error::{Collector, Result};
use crate::graph::{Module, Node};
use crate::ops::Flex;
use crate::te::TensorId;

impl Expander<'_> {
    /// Expands the steps of the operator with its modifiers in between.
    pub(super) fn flex(&mut self, module: &Module, node: &Node, problems: &mut Collector) -> Result<()> {
        if node.given_inputs().any(|v| self.poisoned.contains(&v)) {
            self.poisoned.extend(node.wanted_outputs());
            return Ok(());
        }
        let call = self.call(module, node)?;
        self.cx.node.clone_from(&node.name);
        let flex = Flex::of(&mut self.cx, &call).map_err(|e| at_node(node, e))?;
        let scores = flex.scores(&mut self.cx).map_err(|e| at_node(node, e))?;
        let Some(scores) = self.modified(module, node, "score_mod", scores, problems)? else { return Ok(()) };
        let weights = flex.weights(&mut self.cx, scores).map_err(|e| at_node(node, e))?;
        let Some(weights) = self.modified(module, node, "prob_mod", weights, problems)? else { return Ok(()) };
        let y = flex.output(&mut self.cx, weights).map_err(|e| at_node(node, e))?;
        if let Some(Some(id)) = node.outputs.first() {
            self.values.insert(*id, y);
        }
        Ok(())
    }

    /// What the modifier `name` makes of a tensor; nothing if it holds something unsupported.
    fn modified(
        &mut self,
        module: &Module,
        node: &Node,
        name: &str,
        t: TensorId,
        problems: &mut Collector,
    ) -> Result<Option<TensorId>> {
        if !node.attrs.contains_key(name) {
            return Ok(Some(t));
        }
        let region = node.require_region(name)?;
        let (&[input], &[output]) = (region.inputs.as_slice(), region.outputs.as_slice()) else {
            return Err(node.invalid(format!("attribute '{name}' must be a graph with one input and one output")));
        };
        self.values.insert(input, t);
        self.region(module, region, problems)?;
        self.cx.node.clone_from(&node.name);
        if self.poisoned.contains(&output) {
            self.poisoned.extend(node.wanted_outputs());
            return Ok(None);
        }
        match self.values.get(&output) {
            Some(t) => Ok(Some(*t)),
            None => Err(node.unsupported(format!("attribute '{name}': the graph's output is no tensor"))),
        }
    }
}
