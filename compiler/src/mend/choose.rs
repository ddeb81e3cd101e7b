//! Rule `where`: both branches of an `If` are computed, and `Where` selects.
//!
//! Side conditions: every node of both branches is elementwise and total, it has a value for all operands whatever (no
//! integer division, no index); operands broadcast by what is proven, so that no check at run time is needed; the
//! branches' results have provably one shape and type; the cost of both together, in simple operations an element, is
//! below what a branch would save.

use super::Mender;
use super::report::Rule;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Module, Node, Region, ValueId};

/// Most simple operations an element.
const MOST_COST: usize = 48;
/// The operator set that brought `Where`.
const WHERE: i64 = 9;

/// What a total elementwise operator costs, in simple operations an element; `None` for all others.
fn cost(op: &str) -> Option<usize> {
    Some(match op {
        "Identity" => 0,
        "Add" | "Sub" | "Mul" | "Neg" | "Abs" | "Relu" | "LeakyRelu" | "PRelu" | "ThresholdedRelu" | "HardSigmoid"
        | "HardSwish" | "Min" | "Max" | "Clip" | "Where" | "And" | "Or" | "Xor" | "Not" | "Equal" | "Greater"
        | "Less" | "GreaterOrEqual" | "LessOrEqual" | "Floor" | "Ceil" | "Round" | "Sign" | "IsNaN" | "IsInf" => 1,
        "Div" | "Sqrt" | "Reciprocal" | "Softsign" => 4,
        "Exp" | "Log" | "Sigmoid" | "Tanh" | "Erf" | "Elu" | "Selu" | "Celu" | "Softplus" | "Mish" | "Gelu" | "Sin"
        | "Cos" => 12,
        _ => return None,
    })
}

impl Mender<'_> {
    /// Computes both branches, or leaves everything as it was and says `false`.
    pub(super) fn choose(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        let cond = node.require_input(0, "the condition")?;
        let scalar = self.dims(cond).filter(|d| d.iter().all(|n| n.as_const() == Some(1)));
        let Some(cond_rank) = scalar.map(|d| d.len()) else {
            return Ok(self.refuse(node, "the condition is not known to be one element"));
        };
        let (then, other) = (node.require_region("then_branch")?, node.require_region("else_branch")?);
        let wanted = node.outputs.len();
        if node.version < WHERE {
            return Ok(self.refuse(node, &format!("operator set {} has no Where", node.version)));
        }
        if then.outputs.len() < wanted || other.outputs.len() < wanted {
            return Ok(false);
        }
        let mut total = 0;
        for n in then.nodes.iter().chain(&other.nodes) {
            match cost(&n.op_type).filter(|_| n.domain == crate::graph::ONNX_DOMAIN && n.outputs.len() == 1) {
                Some(c) => total += c,
                None => {
                    return Ok(
                        self.refuse(node, &format!("the branches do more than elementwise work ('{}')", n.op_type))
                    );
                }
            }
        }
        if total > MOST_COST {
            let why =
                format!("both branches together cost {total} operations an element, at most {MOST_COST} are computed");
            return Ok(self.refuse(node, &why));
        }
        let (mut trial, mut copy, mut made) = (self.clone(), module.clone(), Region::default());
        let a = trial.inline(&mut copy, then, &[], &mut made)?;
        let b = trial.inline(&mut copy, other, &[], &mut made)?;
        if !made.nodes.iter().all(|n| trial.is_total(n)) {
            return Ok(self.refuse(node, "a branch has no value for some operands"));
        }
        for (k, (a, b)) in a.iter().zip(&b).enumerate().take(wanted) {
            if a == b {
                trial.alias(node, k, *a);
                continue;
            }
            let fits = trial.alike(&[*a, *b]) && trial.dims(*a).is_some_and(|d| d.len() >= cond_rank);
            if !fits {
                return Ok(self.refuse(node, "the branches may give different shapes"));
            }
            let chosen = trial.select(&mut copy, node, cond, *a, *b, &mut made);
            trial.alias(node, k, chosen);
        }
        *self = trial;
        *module = copy;
        out.nodes.append(&mut made.nodes);
        out.constants.append(&mut made.constants);
        self.report.settle(node, Rule::Where);
        Ok(true)
    }

    /// `a` where `cond`, else `b`. Of truth values without `Where`, which onnxruntime does not have for them.
    fn select(
        &mut self,
        module: &mut Module,
        node: &Node,
        cond: ValueId,
        a: ValueId,
        b: ValueId,
        out: &mut Region,
    ) -> ValueId {
        if self.facts.values.get(&a).is_none_or(|t| self.facts.cx.dtype(*t) != DType::Bool) {
            return self.emit(module, node, "Where", &[cond, a, b], &[], out);
        }
        let not = self.emit(module, node, "Not", &[cond], &[], out);
        let (a, b) =
            (self.emit(module, node, "And", &[cond, a], &[], out), self.emit(module, node, "And", &[not, b], &[], out));
        self.emit(module, node, "Or", &[a, b], &[], out)
    }

    /// Notes why it is not done.
    fn refuse(&mut self, node: &Node, why: &str) -> bool {
        self.report.because(node, why.to_owned());
        false
    }

    /// Whether a node of a branch has a value for all operands, without a check.
    fn is_total(&self, node: &Node) -> bool {
        let dims_of = |id: ValueId| self.dims(id);
        let Some(result) = node.output(0).and_then(dims_of) else { return false };
        let float = |id: ValueId| self.facts.values.get(&id).is_some_and(|t| self.facts.cx.dtype(*t).is_float());
        if matches!(node.op_type.as_str(), "Div" | "Reciprocal") && !node.given_inputs().all(float) {
            return false;
        }
        node.given_inputs().all(|id| {
            dims_of(id).is_some_and(|dims| {
                let skip = result.len().checked_sub(dims.len());
                skip.is_some_and(|skip| {
                    dims.iter().zip(&result[skip..]).all(|(d, r)| d == r || d.as_const() == Some(1))
                })
            })
        })
    }
}
