//! Mending: control flow to data flow, graph to graph.
//!
//! The walk goes through the nodes in order, expanding each into a scratch program for what that tells of its outputs:
//! shapes, and the values of shape computations. With these facts each rule (one file each) decides about the nodes that
//! split a model: `If`, `Loop`, sequences, optionals. Whatever is left keeps its meaning and is compiled as it is.

mod border;
mod branch;
mod carry;
mod choose;
mod emit;
mod fold;
mod forms;
mod levels;
mod native;
mod optional;
mod ragged;
mod report;
mod scan;
mod sequence;
mod shapes;
mod split;
mod stack;
mod sweep;
mod tail;
pub mod trap;
mod unroll;

use crate::error::Result;
use crate::expand::{Dims, Expander};
use crate::graph::{Module, Node, Region, Substitution, TensorData, ValueId};
use crate::sym::VarId;
use std::collections::HashMap;
use std::sync::Arc;

use fold::Decision;
pub use levels::Level;
use ragged::Ragged;
pub use report::{Counts, Kind, Levels, Report, Rule, Split, Totals};

/// Most nodes that writing out the loops of one module may make, if nobody says otherwise.
pub const UNROLL: usize = 1_000;

/// Mends a module in place; `unroll` is the most nodes that writing out its loops may make.
///
/// # Errors
/// Only what makes the module invalid; nodes that are not supported stay and are named by later stages.
pub fn mend(module: &mut Module, dims: &Dims, unroll: usize) -> Result<Report> {
    let mut m = Mender {
        facts: Expander::new(dims),
        replace: Substitution::new(),
        containers: HashMap::new(),
        report: Report::of(module),
        invalid: 0,
        trials: MOST_TRIALS,
        budget: unroll,
        looped: false,
        why: None,
    };
    m.take_in(module);
    // Inputs of types that are not supported are named by the expansion.
    let _ = m.facts.inputs(module);
    let region = std::mem::take(&mut module.main);
    let mut region = m.region(module, region)?;
    m.give_out(module, &mut region)?;
    module.main = region;
    sweep::sweep(&mut module.main);
    m.report.note_rest(&module.main);
    Ok(m.report)
}

/// Most continuations that are tried to find guards: each may hold further ones.
const MOST_TRIALS: usize = 200;

/// Ranks of a node's outputs, where known.
type Kept = Vec<Option<usize>>;

/// What is known of a value that is no tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Container {
    /// Its members, in order.
    Sequence(Vec<ValueId>),
    /// Its members are the parts of a tensor along its first axis; their number may be known only from data.
    Stack(ValueId),
    /// Its members have any shapes.
    Ragged(Ragged),
    /// A tensor or a sequence, or nothing.
    Optional(Option<ValueId>),
    /// A tensor or a sequence, if `present`, a truth value known only from data. Nothing for one of a type that is not
    /// supported.
    Maybe {
        /// Is it there?
        present: ValueId,
        /// What it is.
        content: Option<ValueId>,
    },
}

/// The walk's state.
#[derive(Clone)]
struct Mender<'d> {
    /// The scratch program: tensors of values, known integers.
    facts: Expander<'d>,
    /// Values that stand for others from here on.
    replace: Substitution,
    /// Sequences and optionals.
    containers: HashMap<ValueId, Container>,
    report: Report,
    /// Nodes met that break their operator's specification.
    invalid: usize,
    /// Continuations that may still be tried.
    trials: usize,
    /// Nodes that may still be made by writing out loops.
    budget: usize,
    /// A scan that was to be written out became a loop.
    looped: bool,
    /// Why a loop is not written out.
    why: Option<String>,
}

impl Mender<'_> {
    fn region(&mut self, module: &mut Module, region: Region) -> Result<Region> {
        let mut out = Region { name: region.name, inputs: region.inputs, ..Region::default() };
        self.nodes(module, region.nodes, region.constants, &region.outputs, &mut out)?;
        out.outputs = region.outputs.iter().map(|v| self.replace.get(*v)).collect();
        Ok(out)
    }

    /// Appends the mended form of `nodes` to `out`. Of the values that they define, `wanted` are asked for afterwards.
    fn nodes(
        &mut self,
        module: &mut Module,
        nodes: Vec<Node>,
        constants: Vec<(ValueId, Arc<TensorData>)>,
        wanted: &[ValueId],
        out: &mut Region,
    ) -> Result<()> {
        self.constants(constants, out);
        let mut nodes = std::collections::VecDeque::from(nodes);
        while let Some(mut node) = nodes.pop_front() {
            self.replace.apply_to_node(&mut node);
            if node.is("If") {
                match self.fold(module, node, nodes.make_contiguous(), out)? {
                    Decision::Done => {}
                    Decision::Taken(branch) => {
                        self.constants(branch.constants, out);
                        branch.nodes.into_iter().rev().for_each(|n| nodes.push_front(n));
                    }
                    Decision::Ranks(node) if self.can_take_tail(nodes.make_contiguous(), wanted) => {
                        return self.with_tail(module, node, nodes.into(), wanted, out);
                    }
                    Decision::Ranks(node) => self.keep_with_regions(module, node, out)?,
                }
                continue;
            }
            let mended = match levels::kind_of(&node) {
                Some(Kind::Control) => {
                    let mended = self.unroll(module, &node, out)?;
                    if !mended && node.is("Loop") {
                        self.native(module, node, out)?;
                        continue;
                    }
                    mended
                }
                Some(Kind::Container) => {
                    self.sequence(module, &node, out)?
                        || self.stacked(module, &node, out)?
                        || self.optional(module, &node, out)?
                }
                Some(Kind::Shape) | None => self.pass(&node),
            };
            if mended {
                continue;
            }
            if node.regions().next().is_some() {
                self.keep_with_regions(module, node, out)?;
            } else {
                self.keep(module, node, out);
            }
        }
        Ok(())
    }

    fn constants(&mut self, constants: Vec<(ValueId, Arc<TensorData>)>, out: &mut Region) {
        for (id, data) in constants {
            self.facts.constant(id, &data);
            out.constants.push((id, data));
        }
    }

    /// An `Identity` of a sequence or optional is what it is given.
    fn pass(&mut self, node: &Node) -> bool {
        let given = node.input(0).filter(|v| node.is("Identity") && self.containers.contains_key(v));
        if let Some(v) = given {
            self.alias(node, 0, v);
        }
        given.is_some()
    }

    /// Keeps a node as it is, noting what is known of its outputs.
    fn keep(&mut self, module: &Module, node: Node, out: &mut Region) {
        if let Err(e) = self.facts.node(module, &node) {
            self.invalid += usize::from(matches!(e, crate::error::Error::Invalid(_)));
            self.facts.poisoned.extend(node.wanted_outputs());
        } else if levels::shaped_by_content(&node)
            && let Some(rule) = self.sizes(&node)
        {
            self.report.settle_shape(&node, rule);
        }
        out.nodes.push(node);
    }

    /// What the sizes of a node's outputs are.
    fn sizes(&self, node: &Node) -> Option<Rule> {
        let mut rule = Rule::Fold;
        for d in node.wanted_outputs().map(|v| self.dims(v)).collect::<Option<Vec<_>>>()?.into_iter().flatten() {
            if d.as_const().is_some() {
                continue;
            }
            let given = |v: &VarId| self.facts.cx.program.dim_vars.contains_key(v);
            if crate::sym::reads_data(d) || !crate::sym::free_vars(d).iter().all(given) {
                return Some(Rule::Read);
            }
            rule = Rule::Formula;
        }
        Some(rule)
    }
}

#[cfg(test)]
mod tests;
