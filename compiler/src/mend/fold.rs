//! Rule `fold`: an `If` whose condition is a constant, or decided by shapes that are known, is replaced by the branch that
//! is taken.
//!
//! Side condition: the condition's one element is a constant once every known shape and constant is put in. An unknown
//! comparison of symbolic dimensions is never decided.

use super::Mender;
use super::report::Rule;
use crate::error::Result;
use crate::graph::{Module, Node, Region};

/// What becomes of an `If`.
pub(super) enum Decision {
    /// It is done with.
    Done,
    /// This branch stands in its place, its nodes still to be mended.
    Taken(Region),
    /// It is as it was: its branches give different ranks.
    Ranks(Node),
}

impl Mender<'_> {
    /// Decides which branch is taken, or keeps the node if that is not known. `rest` is what follows it.
    pub(super) fn fold(
        &mut self,
        module: &mut Module,
        mut node: Node,
        rest: &[Node],
        out: &mut Region,
    ) -> Result<Decision> {
        let cond = node.require_input(0, "the condition")?;
        let known = match self.facts.values.get(&cond) {
            Some(t) => self.facts.cx.ints(*t).and_then(|v| v.first().and_then(|i| i.as_const())),
            None => None,
        };
        if let Some(truth) = known {
            self.report.settle(&node, Rule::Fold);
            return Ok(Decision::Taken(self.taken(&mut node, truth != 0)?));
        }
        if let Some(truth) = self.guard(module, &node, rest)? {
            self.report.settle(&node, Rule::Trap);
            self.push_guard(&node, truth, out);
            return Ok(Decision::Taken(self.taken(&mut node, truth)?));
        }
        if self.choose(module, &node, out)? {
            return Ok(Decision::Done);
        }
        Ok(self.keep_branch(module, node, out)?.map_or(Decision::Done, Decision::Ranks))
    }

    /// A branch, whose results stand for the node's from here on.
    pub(super) fn taken(&mut self, node: &mut Node, truth: bool) -> Result<Region> {
        let taken = node.take_region(if truth { "then_branch" } else { "else_branch" })?;
        if taken.outputs.len() < node.outputs.len() {
            return Err(node.invalid("a branch gives fewer values than the node has outputs"));
        }
        for (old, new) in node.outputs.iter().zip(&taken.outputs) {
            if let Some(old) = old {
                self.replace.replace(*old, *new);
            }
        }
        Ok(taken)
    }
}
