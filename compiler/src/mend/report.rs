//! What was split, what became of it, what stays and why.

use crate::graph::{Node, Region};
use serde::Serialize;
use std::fmt;

/// What kind of split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `If`, `Loop`, `Scan`, `SequenceMap`.
    Control,
    /// Sequences and optionals.
    Container,
}

/// The rule that mended a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Decided while packing: only what is taken is left.
    Fold,
    /// An exporter's guard: a check of the condition took its place.
    Trap,
    /// A native branch within the plan.
    Branch,
}

impl Rule {
    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Fold => "fold",
            Rule::Trap => "trap",
            Rule::Branch => "branch",
        }
    }
}

/// A node at which another engine would leave its plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Split {
    /// The node.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// What kind it is.
    pub kind: Kind,
    /// What mended it; nothing for one that lay in a branch that is gone.
    pub rule: Option<Rule>,
}

/// All splits of a model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// Every split of the model as given, nested ones included.
    pub splits: Vec<Split>,
}

impl Report {
    /// Splits of the model as given.
    pub fn before(&self) -> usize {
        self.splits.len()
    }

    /// Splits that leave the plan: none, or packing would have failed.
    pub fn after(&self) -> usize {
        0
    }

    /// Splits mended by a rule.
    pub fn count(&self, rule: Rule) -> usize {
        self.splits.iter().filter(|s| s.rule == Some(rule)).count()
    }

    pub(super) fn note_all(&mut self, region: &Region) {
        region.walk(&mut |node| {
            if let Some(kind) = kind_of(node) {
                let (node, op) = (node.name.clone(), node.op_type.clone());
                self.splits.push(Split { node, op, kind, rule: None });
            }
        });
    }

    pub(super) fn settle(&mut self, node: &Node, rule: Rule) {
        let open = self.splits.iter_mut().find(|s| s.node == node.name && s.op == node.op_type && s.rule.is_none());
        if let Some(split) = open {
            split.rule = Some(rule);
        }
    }

    pub(super) fn note_rest(&mut self, region: &Region) {
        let mut rest = vec![];
        region.walk(&mut |node| {
            if kind_of(node).is_some() {
                rest.push(node.clone());
            }
        });
        for node in rest {
            self.settle(&node, Rule::Branch);
        }
    }
}

fn kind_of(node: &Node) -> Option<Kind> {
    if node.domain != "ai.onnx" {
        return None;
    }
    Some(match node.op_type.as_str() {
        "If" | "Loop" | "Scan" | "SequenceMap" => Kind::Control,
        "SequenceConstruct" | "SequenceEmpty" | "SequenceInsert" | "SequenceErase" | "SequenceAt" | "SequenceLength"
        | "SplitToSequence" | "ConcatFromSequence" | "Optional" | "OptionalGetElement" | "OptionalHasElement" => {
            Kind::Container
        }
        _ => return None,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} splits", self.before())?;
        for s in &self.splits {
            let how = match s.rule {
                Some(Rule::Fold) => "decided while packing (fold)",
                Some(Rule::Trap) => "a guard, now a check (trap)",
                Some(Rule::Branch) => "a native branch in the plan (branch)",
                None => "gone with the branch that held it",
            };
            writeln!(f, "  {} '{}': {how}", s.op, s.node)?;
        }
        Ok(())
    }
}
