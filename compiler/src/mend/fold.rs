//! Rule `fold`: an `If` whose condition is a constant, or decided by shapes that are known, is replaced by the branch that
//! is taken.
//!
//! Side condition: the condition's one element is a constant once every known shape and constant is put in. An unknown
//! comparison of symbolic dimensions is never decided.

use super::Mender;
use super::report::Rule;
use crate::error::Result;
use crate::graph::{Module, Node, Region};

impl Mender<'_> {
    /// Splices in the branch that is taken; keeps the node if that is not known, or gives it back as it was if its branches
    /// give different ranks. `rest` is what follows it.
    pub(super) fn fold(
        &mut self,
        module: &mut Module,
        node: Node,
        rest: &[Node],
        out: &mut Region,
    ) -> Result<Option<Node>> {
        let cond = node.require_input(0, "the condition")?;
        let known = match self.facts.values.get(&cond) {
            Some(t) => self.facts.cx.ints(*t).and_then(|v| v.first().and_then(|i| i.as_const())),
            None => None,
        };
        let Some(truth) = known else {
            if let Some(truth) = self.guard(module, &node, rest)? {
                self.report.settle(&node, Rule::Trap);
                self.push_guard(&node, truth, out);
                self.take(module, node, truth, out)?;
                return Ok(None);
            }
            if self.choose(module, &node, out)? {
                return Ok(None);
            }
            return self.keep_branch(module, node, out);
        };
        self.report.settle(&node, Rule::Fold);
        self.take(module, node, truth != 0, out)?;
        Ok(None)
    }

    /// Puts a branch in the place of the node.
    pub(super) fn take(&mut self, module: &mut Module, mut node: Node, truth: bool, out: &mut Region) -> Result<()> {
        let taken = node.take_region(if truth { "then_branch" } else { "else_branch" })?;
        if taken.outputs.len() < node.outputs.len() {
            return Err(node.invalid("a branch gives fewer values than the node has outputs"));
        }
        let (results, outputs) = (taken.outputs.clone(), node.outputs.clone());
        self.nodes(module, taken.nodes, taken.constants, &taken.outputs, out)?;
        for (old, new) in outputs.iter().zip(results) {
            if let Some(old) = old {
                let new = self.replace.get(new);
                self.replace.replace(*old, new);
            }
        }
        Ok(())
    }
}
