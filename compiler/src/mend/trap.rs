//! Rule `trap`: an `If` on shapes whose one branch can only end in an invalid model is an exporter's guard. The other branch is
//! taken, and a check of the condition takes the guard's place.
//!
//! Exporters write `squeeze` of a dimension that may be 1 as such an `If`: its branches give tensors of different ranks,
//! and what follows takes only one of them.
//!
//! Side conditions: the condition depends on shapes alone; the branches give different ranks; with one branch in its
//! place the rest of the region breaks an operator's specification, with the other it does not. A guard that neither or
//! both branches satisfy stays.

use super::{Kept, Mender};
use crate::error::Result;
use crate::graph::{Attr, Module, Node, Region, ValueId};

/// The node that stands for a check in a mended graph: one input, the condition; attributes `truth`, what it must be,
/// and `what`, the message if it is not.
pub const CHECK: &str = "Check";
/// The domain of nodes that only this compiler knows.
pub const DOMAIN: &str = "graphmend";

impl Mender<'_> {
    /// Which branch must be taken, if the other one cannot be. `rest` is what follows in the region.
    pub(super) fn guard(&mut self, module: &Module, node: &Node, rest: &[Node]) -> Result<Option<bool>> {
        let cond = node.require_input(0, "the condition")?;
        let by_shape = self.facts.values.get(&cond).copied().and_then(|t| self.facts.cx.ints(t));
        if by_shape.is_none() || self.trials == 0 {
            return Ok(None);
        }
        let then = self.trial(module, node, true, rest)?;
        let other = self.trial(module, node, false, rest)?;
        Ok(match (then, other) {
            (Some(a), Some(b)) if a.ranks != b.ranks && a.sound != b.sound => Some(a.sound),
            _ => None,
        })
    }

    /// Continues with one branch in the node's place, on a copy of everything.
    fn trial(&mut self, module: &Module, node: &Node, truth: bool, rest: &[Node]) -> Result<Option<Outcome>> {
        self.trials = self.trials.saturating_sub(1);
        let mut module = module.clone();
        let mut trial = self.clone();
        trial.invalid = 0;
        let mut out = Region::default();
        let Ok(branch) = trial.taken(&mut node.clone(), truth) else { return Ok(None) };
        if trial.nodes(&mut module, branch.nodes, branch.constants, &branch.outputs, &mut out).is_err() {
            return Ok(None);
        }
        let ranks = node
            .wanted_outputs()
            .map(|v| trial.facts.values.get(&trial.replace.get(v)).map(|t| trial.facts.shape_of(*t).len()))
            .collect();
        let ended = trial.nodes(&mut module, rest.to_vec(), vec![], &[], &mut out);
        self.trials = self.trials.min(trial.trials);
        Ok(Some(Outcome { ranks, sound: ended.is_ok() && trial.invalid == 0 }))
    }

    /// Puts a check in the place of a guard.
    pub(super) fn push_guard(&mut self, node: &Node, truth: bool, out: &mut Region) {
        self.push_check(node, truth, "the model takes no input of this shape", out);
    }

    /// A check that the node's first input is `truth`; `what` tells what is wrong otherwise.
    pub(super) fn push_check(&mut self, node: &Node, truth: bool, what: &str, out: &mut Region) {
        let check = Node {
            name: node.name.clone(),
            domain: DOMAIN.into(),
            op_type: CHECK.into(),
            version: 1,
            inputs: vec![node.inputs.first().copied().flatten()],
            outputs: vec![],
            attrs: [
                ("truth".to_owned(), Attr::Int(truth.into())),
                ("what".to_owned(), Attr::Str(what.as_bytes().to_vec())),
            ]
            .into(),
        };
        out.nodes.push(check);
    }

    /// A check that `sound` is true, unless that is known; `what` tells what is wrong otherwise.
    pub(super) fn require(&mut self, node: &Node, sound: ValueId, what: &str, out: &mut Region) {
        if self.known_int(sound) != Some(1) {
            self.push_check(&Node { inputs: vec![Some(sound)], ..node.clone() }, true, what, out);
        }
    }
}

struct Outcome {
    ranks: Kept,
    sound: bool,
}
