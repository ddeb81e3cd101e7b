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
    /// Both branches are computed, the result is selected.
    Where,
    /// A loop, written out.
    Unroll,
    /// A native loop within the plan.
    Loop,
    /// A sequence, now its members.
    Sequence,
    /// An optional, now its value.
    Optional,
    /// A native branch within the plan.
    Branch,
}

impl Rule {
    /// All rules, in the order in which reports list them.
    pub const ALL: [Rule; 8] =
        [Rule::Fold, Rule::Trap, Rule::Where, Rule::Unroll, Rule::Sequence, Rule::Optional, Rule::Loop, Rule::Branch];

    /// The rule's name.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Fold => "fold",
            Rule::Trap => "trap",
            Rule::Where => "where",
            Rule::Unroll => "unroll",
            Rule::Loop => "loop",
            Rule::Sequence => "sequence",
            Rule::Optional => "optional",
            Rule::Branch => "branch",
        }
    }

    /// What became of the node, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Rule::Fold => "decided while packing; only what is taken is left",
            Rule::Trap => "a guard; a check at the start of a run took its place",
            Rule::Where => "both sides are computed, one is selected",
            Rule::Unroll => "written out, a copy of the body for each trip",
            Rule::Loop => "stays a loop: one native loop within the plan",
            Rule::Sequence => "no sequence any more, its members are plain values",
            Rule::Optional => "no optional any more, its value is plain or gone",
            Rule::Branch => "stays a choice: a native branch within the plan",
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

    /// A node is left. If it is a copy of one that was mended elsewhere, what is left counts.
    fn keep(&mut self, node: &Node) {
        let is = |s: &&mut Split| s.node == node.name && s.op == node.op_type;
        let open = self.splits.iter().position(|s| s.node == node.name && s.op == node.op_type && s.rule.is_none());
        let split = match open {
            Some(k) => self.splits.get_mut(k),
            None => self.splits.iter_mut().find(is),
        };
        if let Some(split) = split {
            split.rule = Some(if node.op_type == "If" { Rule::Branch } else { Rule::Loop });
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
            self.keep(&node);
        }
    }
}

pub(super) fn kind_of(node: &Node) -> Option<Kind> {
    if node.domain != "ai.onnx" {
        return None;
    }
    Some(match node.op_type.as_str() {
        "If" | "Loop" | "Scan" | "SequenceMap" => Kind::Control,
        "SequenceConstruct" | "SequenceEmpty" | "SequenceInsert" | "SequenceErase" | "SequenceAt"
        | "SequenceLength" | "SplitToSequence" | "ConcatFromSequence" | "Optional" | "OptionalGetElement"
        | "OptionalHasElement" => Kind::Container,
        _ => return None,
    })
}

impl fmt::Display for Report {
    /// A line a split, those that stay last, then a line of totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.splits.is_empty() {
            return writeln!(f, "The model had no splits: no control flow, no sequences, no optionals.");
        }
        let width = |text: &dyn Fn(&Split) -> usize| self.splits.iter().map(text).max().unwrap_or(0);
        let (ops, names) = (width(&|s| s.op.len()), width(&|s| s.node.chars().count()).min(MOST_NAME));
        let mut order: Vec<&Split> = self.splits.iter().collect();
        order.sort_by_key(|s| matches!(s.rule, Some(Rule::Branch | Rule::Loop)));
        for s in order {
            let (rule, meaning) = match s.rule {
                Some(rule) => (rule.name(), rule.meaning()),
                None => ("-", "gone with the branch that held it"),
            };
            let (op, name) = (&s.op, short(&s.node));
            writeln!(f, "  {op:ops$}  {name:names$}  {rule:<8}  {meaning}")?;
        }
        let mut rules: Vec<Rule> = self.splits.iter().filter_map(|s| s.rule).collect();
        rules.sort_by_key(|r| Rule::ALL.iter().position(|x| x == r));
        rules.dedup();
        let counts: Vec<String> = rules.iter().map(|r| format!("{} {}", self.count(*r), r.name())).collect();
        let lost = self.splits.iter().filter(|s| s.rule.is_none()).count();
        let lost = (lost > 0).then(|| format!("{lost} gone with a branch"));
        let counts = counts.into_iter().chain(lost).collect::<Vec<_>>().join(", ");
        let noun = if self.before() == 1 { "split" } else { "splits" };
        writeln!(f, "{} {noun} found ({counts}); {} leave the plan.", self.before(), self.after())
    }
}

/// Longest name that a line holds.
const MOST_NAME: usize = 40;

/// The end of a long name: exporters write paths, and their ends differ.
fn short(name: &str) -> String {
    let n = name.chars().count();
    if n <= MOST_NAME {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(n - MOST_NAME + 1).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(op: &str, node: &str, rule: Option<Rule>) -> Split {
        Split { node: node.into(), op: op.into(), kind: Kind::Control, rule }
    }

    #[test]
    fn what_stays_is_told_last_and_all_is_counted() {
        let report = Report {
            splits: vec![
                split("If", "early", Some(Rule::Branch)),
                split("Loop", "steps", Some(Rule::Unroll)),
                split("If", "inner", None),
            ],
        };
        assert_eq!(
            report.to_string(),
            "  Loop  steps  unroll    written out, a copy of the body for each trip\n  \
             If    inner  -         gone with the branch that held it\n  \
             If    early  branch    stays a choice: a native branch within the plan\n\
             3 splits found (1 unroll, 1 branch, 1 gone with a branch); 0 leave the plan.\n"
        );
        assert!(Report::default().to_string().starts_with("The model had no splits"));
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = format!("{}/last", "a".repeat(60));
        assert_eq!(short(&name).chars().count(), MOST_NAME);
        assert!(short(&name).ends_with("/last"));
    }
}
