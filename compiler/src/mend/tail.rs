//! Rule `branch`, where the branches give different ranks: what follows the `If` goes into both of them, each with the rank
//! that it gives.
//!
//! Side condition: something follows, and what it gives has the same ranks again. How often this is done is limited, since
//! it doubles what follows.

use super::Mender;
use crate::error::Result;
use crate::graph::{Attr, Module, Node, Region, ValueId};
use std::collections::BTreeSet;

/// How many of the continuations that may be tried one tail costs.
const TRIALS: usize = 10;

impl Mender<'_> {
    /// Keeps a branch, or gives it back as it was if its branches give different ranks.
    pub(super) fn keep_branch(&mut self, module: &mut Module, node: Node, out: &mut Region) -> Result<Option<Node>> {
        let (mut trial, mut copy, mut made) = (self.clone(), module.clone(), Region::default());
        trial.keep_with_regions(&mut copy, node.clone(), &mut made)?;
        if let Some(kept) = made.nodes.last()
            && trial.gives_other_ranks(kept)
        {
            self.trials = self.trials.min(trial.trials);
            return Ok(Some(node));
        }
        *self = trial;
        *module = copy;
        out.nodes.append(&mut made.nodes);
        out.constants.append(&mut made.constants);
        Ok(None)
    }

    fn gives_other_ranks(&self, node: &Node) -> bool {
        let results = |name: &str| node.require_region(name).map(|r| r.outputs.clone()).unwrap_or_default();
        let rank = |id: &ValueId| self.member(*id).map(|m| m.dims.len());
        results("then_branch").iter().zip(&results("else_branch")).any(|(a, b)| match (rank(a), rank(b)) {
            (Some(a), Some(b)) => a != b,
            _ => false,
        })
    }

    /// May what follows go into the branches?
    pub(super) fn can_take_tail(&self, rest: &[Node], wanted: &[ValueId]) -> bool {
        !rest.is_empty() && !wanted.is_empty() && self.trials >= TRIALS
    }

    /// Puts what follows into both branches and mends the whole.
    pub(super) fn with_tail(
        &mut self,
        module: &mut Module,
        mut node: Node,
        mut rest: Vec<Node>,
        wanted: &[ValueId],
        out: &mut Region,
    ) -> Result<()> {
        self.trials -= TRIALS;
        // A copy of what follows reads what is copied with it under its own name.
        rest.iter_mut().for_each(|n| self.replace.apply_to_node(n));
        let defined: BTreeSet<ValueId> =
            node.wanted_outputs().chain(rest.iter().flat_map(Node::wanted_outputs)).collect();
        let mut given: Vec<ValueId> = vec![];
        for v in wanted.iter().map(|v| self.replace.get(*v)) {
            if defined.contains(&v) && !given.contains(&v) {
                given.push(v);
            }
        }
        let tail = Region {
            inputs: node.wanted_outputs().collect(),
            nodes: rest,
            outputs: given.clone(),
            ..Region::default()
        };
        for name in ["then_branch", "else_branch"] {
            let mut branch = node.take_region(name)?;
            let mut results = vec![];
            for (k, output) in node.outputs.iter().enumerate() {
                match (output, branch.outputs.get(k)) {
                    (None, _) => {}
                    (Some(_), Some(result)) => results.push(*result),
                    (Some(_), None) => {
                        return Err(node.invalid("a branch gives fewer values than the node has outputs"));
                    }
                }
            }
            let mut copy = module.instantiate(&tail, &results);
            branch.nodes.append(&mut copy.nodes);
            branch.constants.append(&mut copy.constants);
            branch.outputs = copy.outputs;
            node.attrs.insert(name.into(), Attr::Region(branch));
        }
        let mut outputs = vec![];
        for v in &given {
            let value = module.value(*v).clone();
            outputs.push(module.add_value(value.name, value.ty));
        }
        node.outputs = outputs.iter().copied().map(Some).collect();
        self.nodes(module, vec![node], vec![], &outputs, out)?;
        for (old, new) in given.into_iter().zip(outputs) {
            let new = self.replace.get(new);
            self.replace.replace(old, new);
        }
        Ok(())
    }
}
