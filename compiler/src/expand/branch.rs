//! `If` whose condition is known only from data: a native branch within the plan.

use super::Expander;
use crate::dtype::DType;
use crate::error::{Collector, Result};
use crate::graph::{Module, Node, Region};
use crate::sym::{Int, VarId, free_vars};
use crate::te::program::{Def, Step};
use crate::te::{Block, TensorId};

/// A branch's block, its results and the symbols that only it knows.
struct Arm {
    block: Block,
    results: Vec<TensorId>,
}

impl Expander<'_> {
    /// Expands both branches into blocks of their own; results become slots with the dimensions of whichever ran.
    pub(crate) fn branch(&mut self, module: &Module, node: &Node, problems: &mut Collector) -> Result<()> {
        let cond = node.require_input(0, "the condition")?;
        let Some(cond) = self.values.get(&cond).copied() else {
            self.poisoned.extend(node.wanted_outputs());
            return Ok(());
        };
        self.cx.node = node.name.clone();
        if self.cx.numel(cond).as_const() != Some(1) {
            return Err(node.invalid("the condition must have one element"));
        }
        let is = self.cx.dtype(cond);
        if is != DType::Bool {
            return Err(node.invalid(format!("the condition has element type {is}, not bool")));
        }
        let truth = match self.cx.ints(cond) {
            Some(known) => known[0],
            None => self.cx.read(cond, 0, "cond", Some(0), Some(1)),
        };
        let first_var = VarId::new(crate::sym::VarInfo { name: "mark".into(), lo: None, hi: None, extent: None });
        let (Some(then), Some(other)) = (
            self.arm(module, node, node.require_region("then_branch")?, problems)?,
            self.arm(module, node, node.require_region("else_branch")?, problems)?,
        ) else {
            self.poisoned.extend(node.wanted_outputs());
            return Ok(());
        };
        self.cx.node = node.name.clone();
        let (mut results, mut dims, mut then_results, mut other_results) = (vec![], vec![], vec![], vec![]);
        for (k, id) in node.outputs.iter().enumerate() {
            let Some(id) = id else { continue };
            let (a, b) = (then.results[k], other.results[k]);
            if self.cx.dtype(a) != self.cx.dtype(b) {
                return Err(node.invalid(format!(
                    "output {k} is {} in one branch and {} in the other",
                    self.cx.dtype(a),
                    self.cx.dtype(b)
                )));
            }
            let narrow = self.cx.narrow.get(&a).copied();
            if narrow != self.cx.narrow.get(&b).copied() {
                return Err(node.invalid(format!("output {k} has different types in the branches")));
            }
            let (sa, sb) = (self.cx.shape(a), self.cx.shape(b));
            if sa.len() != sb.len() {
                return Err(node.unsupported(format!(
                    "branches that give output {k} with ranks {} and {} are not supported",
                    sa.len(),
                    sb.len()
                )));
            }
            let mut shape = vec![];
            for (x, y) in sa.into_iter().zip(sb) {
                let inner = |i: Int| free_vars(i).iter().any(|v| *v > first_var);
                if x == y && !inner(x) {
                    shape.push(x);
                    continue;
                }
                let (bx, by) = (x.bounds(), y.bounds());
                let end = |p: Option<i64>, q: Option<i64>, f: fn(i64, i64) -> i64| Some(f(p?, q?));
                let d = Int::symbol("either", end(bx.lo, by.lo, i64::min), end(bx.hi, by.hi, i64::max));
                if let Some(v) = d.as_var() {
                    dims.push((v, x, y));
                }
                shape.push(d);
            }
            let slot = self.cx.define(self.cx.dtype(a), shape, Def::Slot);
            if let Some(elem) = narrow {
                self.cx.narrow.insert(slot, elem);
            }
            results.push(slot);
            then_results.push(a);
            other_results.push(b);
            self.values.insert(*id, slot);
        }
        self.cx.push_control(Step::If {
            cond: truth,
            then: then.block,
            then_results,
            other: other.block,
            other_results,
            results,
            dims,
        });
        Ok(())
    }

    fn arm(&mut self, module: &Module, node: &Node, region: &Region, problems: &mut Collector) -> Result<Option<Arm>> {
        self.cx.begin_block();
        let walked = self.region(module, region, problems);
        let block = self.cx.end_block();
        walked?;
        let mut results = vec![];
        for (k, id) in region.outputs.iter().enumerate() {
            if self.poisoned.contains(id) {
                return Ok(None);
            }
            match self.values.get(id) {
                Some(t) => results.push(*t),
                None => return Err(node.unsupported(format!("output {k} of a branch is no tensor"))),
            }
        }
        if results.len() < node.outputs.len() {
            return Err(node.invalid("a branch gives fewer values than the node has outputs"));
        }
        Ok(Some(Arm { block, results }))
    }
}
