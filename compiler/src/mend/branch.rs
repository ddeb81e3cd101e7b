//! Rule `branch`: an `If` that only data decides stays one native branch of the plan.
//!
//! No side condition. Sequences and optionals among its results are held in tensors, in a form that fits both branches.

use super::Mender;
use super::forms::Form;
use crate::error::{Collector, Result};
use crate::graph::{Module, Node, Region, ValueId};

impl Mender<'_> {
    /// Keeps a node with regions: they are mended on their own.
    pub(super) fn keep_with_regions(&mut self, module: &mut Module, mut node: Node, out: &mut Region) -> Result<()> {
        for region in node.regions_mut() {
            let taken = std::mem::take(region);
            // What a region's own inputs are is not known here.
            self.facts.poisoned.extend(taken.inputs.iter().copied());
            self.facts.cx.begin_block();
            let mended = self.region(module, taken);
            self.facts.cx.end_block();
            *region = mended?;
        }
        let mut after = vec![];
        if node.is("If") {
            if self.gives_other_shapes(&node) {
                self.report.because(&node, "the branches give different shapes".into());
            }
            after = self.results_in_tensors(module, &mut node)?;
        }
        // A branch may be expanded as it is, and then its results have shapes.
        let mut problems = Collector::new();
        let known = node.is("If") && self.facts.branch(module, &node, &mut problems).is_ok() && problems.is_empty();
        if !known {
            self.facts.poisoned.extend(node.wanted_outputs());
        }
        out.nodes.push(node);
        for (old, whole) in after {
            self.replace.replace(old, whole);
        }
        Ok(())
    }

    /// Are results of the two branches known to differ in shape?
    fn gives_other_shapes(&self, node: &Node) -> bool {
        let (Ok(then), Ok(other)) = (node.require_region("then_branch"), node.require_region("else_branch")) else {
            return false;
        };
        let mut pairs = then.outputs.iter().zip(&other.outputs);
        pairs.any(|(a, b)| {
            let Some((a, b)) = self.dims(*a).zip(self.dims(*b)) else { return false };
            a.len() != b.len() || a.iter().zip(&b).any(|(a, b)| a.eq_proof(*b) == Some(false))
        })
    }

    /// Gives the branches' results and the node's outputs as tensors; says which values the outputs then stand for.
    fn results_in_tensors(&mut self, module: &mut Module, node: &mut Node) -> Result<Vec<(ValueId, ValueId)>> {
        let of = |name: &str| -> Result<Vec<ValueId>> { Ok(node.require_region(name)?.outputs.clone()) };
        let (then, other) = (of("then_branch")?, of("else_branch")?);
        let is_tensor = |m: &Self, v: &ValueId| !m.containers.contains_key(v);
        if then.iter().chain(&other).all(|v| is_tensor(self, v)) || then.len() != other.len() {
            return Ok(vec![]);
        }
        let mut forms: Vec<Option<Form>> = vec![];
        for (a, b) in then.iter().zip(&other) {
            if is_tensor(self, a) && is_tensor(self, b) {
                forms.push(None);
                continue;
            }
            match (self.form(*a), self.form(*b)) {
                (Some(a), Some(b)) => match a.join(&b) {
                    Some(joined) => forms.push(Some(joined)),
                    None => return Ok(vec![]),
                },
                _ => return Ok(vec![]),
            }
        }
        let of = node.clone();
        let mut made = vec![];
        for region in node.regions_mut() {
            self.facts.cx.begin_block();
            let mut results = vec![];
            for (form, id) in forms.iter().zip(region.outputs.clone()) {
                match form {
                    None => results.push(id),
                    Some(form) => match self.parts(module, &of, id, form, region) {
                        Some(parts) => results.extend(parts),
                        None => {
                            self.facts.cx.end_block();
                            return Ok(vec![]);
                        }
                    },
                }
            }
            self.facts.cx.end_block();
            made.push(results);
        }
        for (region, results) in node.regions_mut().zip(made) {
            region.outputs = results;
        }
        let (mut outputs, mut after) = (vec![], vec![]);
        for (form, old) in forms.iter().zip(std::mem::take(&mut node.outputs)) {
            match form {
                None => outputs.push(old),
                Some(form) => {
                    let parts = self.fresh(module, form);
                    let whole = self.whole(module, form, &parts);
                    outputs.extend(parts.into_iter().map(Some));
                    after.extend(old.map(|old| (old, whole)));
                }
            }
        }
        node.outputs = outputs;
        Ok(after)
    }
}
