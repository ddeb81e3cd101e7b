//! What was split, what became of it, what stays and why.

use super::levels::{self, Level};
use crate::graph::{Module, Node, Region};
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
    /// Operators whose output shape depends on what a tensor holds.
    Shape,
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
    /// Sizes are formulas of the input sizes, evaluated at the start of a run.
    Formula,
    /// Sizes are read from data; what has them takes memory from the end of the arena.
    Read,
}

impl Rule {
    /// All rules, in the order in which reports list them.
    pub const ALL: [Rule; 10] = [
        Rule::Fold,
        Rule::Formula,
        Rule::Trap,
        Rule::Where,
        Rule::Unroll,
        Rule::Sequence,
        Rule::Optional,
        Rule::Read,
        Rule::Loop,
        Rule::Branch,
    ];

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
            Rule::Formula => "formula",
            Rule::Read => "read",
        }
    }

    /// What became of the node, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Rule::Fold => "decided while packing; only what is taken is left",
            Rule::Trap => "a guard; a check at the start of a run took its place",
            Rule::Where => "both sides are computed, one is selected",
            Rule::Unroll => "written out, a copy of the body for each trip",
            Rule::Loop => "a native loop within the plan",
            Rule::Sequence => "no sequence any more, its members are plain values",
            Rule::Optional => "no optional any more, its value is plain or gone",
            Rule::Branch => "a native choice within the plan",
            Rule::Formula => "sized by a formula of the input sizes when a run starts",
            Rule::Read => "sized while running, at the end of the arena",
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
    /// What must be known to settle it.
    pub level: Level,
    /// What mended it; nothing for one that lay in a branch that is gone.
    pub rule: Option<Rule>,
    /// Is a native choice or loop within the plan left of it?
    pub stays: bool,
    /// Why, if something is left of it.
    pub why: Option<String>,
}

impl Split {
    pub(super) fn new(node: &Node, kind: Kind, level: Level) -> Split {
        let (node, op) = (node.name.clone(), node.op_type.clone());
        Split { node, op, kind, level, rule: None, stays: false, why: None }
    }

    fn is(&self, node: &Node) -> bool {
        self.node == node.name && self.op == node.op_type
    }

    /// What became of it, for people.
    fn fate(&self) -> String {
        let meaning = match (self.rule, self.kind) {
            (None, _) => "gone with the branch that held it",
            (Some(Rule::Fold), Kind::Shape) => "sized while packing",
            (Some(rule), _) => rule.meaning(),
        };
        match &self.why {
            Some(why) => format!("{meaning}: {why}"),
            None => meaning.to_owned(),
        }
    }

    /// Why something is left of it; `own` is what stood in the way of a rule.
    fn reason(&self, own: Option<String>) -> Option<String> {
        let what = match self.op.as_str() {
            "If" => "the condition",
            "Loop" | "Scan" | "SequenceMap" => "the number of trips",
            _ if self.kind == Kind::Shape => "its shape",
            _ => "the number or size of its parts",
        };
        let level = match self.level {
            Level::Const => None,
            Level::Shape => Some(format!("{what} depends on input sizes that are open")),
            Level::Data => Some(format!("{what} is known only from data")),
        };
        match (level, own) {
            (Some(level), Some(own)) => Some(format!("{level} and {own}")),
            (level, own) => level.or(own),
        }
    }
}

/// Numbers of splits by level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Levels {
    /// Settled by constants.
    pub r#const: usize,
    /// Settled by input shapes.
    pub shape: usize,
    /// Settled by data.
    pub data: usize,
    /// All of them.
    pub total: usize,
}

/// Numbers of splits by kind and level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// `If`, `Loop`, `Scan`, `SequenceMap`.
    pub control: Levels,
    /// Sequences and optionals.
    pub container: Levels,
    /// Shapes that content decides.
    pub shape: Levels,
    /// All of them.
    pub all: Levels,
}

impl Counts {
    fn of<'s>(splits: impl Iterator<Item = &'s Split>) -> Counts {
        let mut counts = Counts::default();
        for s in splits {
            let kind = match s.kind {
                Kind::Control => &mut counts.control,
                Kind::Container => &mut counts.container,
                Kind::Shape => &mut counts.shape,
            };
            for levels in [kind, &mut counts.all] {
                levels.total += 1;
                match s.level {
                    Level::Const => levels.r#const += 1,
                    Level::Shape => levels.shape += 1,
                    Level::Data => levels.data += 1,
                }
            }
        }
        counts
    }
}

/// Splits before and after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Totals {
    /// Of the model as given.
    pub before: Counts,
    /// Those that leave the plan: none, or packing would have failed.
    pub after: Counts,
    /// Those of which a native choice or loop within the plan is left.
    pub within: Counts,
}

/// All splits of a model.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(into = "Told")]
pub struct Report {
    /// Every split of the model as given, nested ones included.
    pub splits: Vec<Split>,
}

/// A report as programs read it.
#[derive(Serialize)]
struct Told {
    totals: Totals,
    splits: Vec<Split>,
}

impl From<Report> for Told {
    fn from(report: Report) -> Told {
        Told { totals: report.totals(), splits: report.splits }
    }
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

    /// Numbers before and after, by kind and level.
    pub fn totals(&self) -> Totals {
        Totals {
            before: Counts::of(self.splits.iter()),
            after: Counts::default(),
            within: Counts::of(self.splits.iter().filter(|s| s.stays)),
        }
    }

    /// The splits of a module as imported.
    pub(super) fn of(module: &Module) -> Report {
        Report { splits: levels::splits(module) }
    }

    pub(super) fn settle(&mut self, node: &Node, rule: Rule) {
        if let Some(split) = self.splits.iter_mut().find(|s| s.is(node) && s.rule.is_none()) {
            split.rule = Some(rule);
        }
    }

    /// What became of a shape that content decides. Of several copies of a node, the one that is known last counts.
    pub(super) fn settle_shape(&mut self, node: &Node, rule: Rule) {
        let order = |rule: Option<Rule>| Rule::ALL.iter().position(|r| Some(*r) == rule);
        if let Some(split) = self.splits.iter_mut().find(|s| s.is(node) && s.kind == Kind::Shape)
            && order(split.rule) < order(Some(rule))
        {
            split.rule = Some(rule);
        }
    }

    /// Notes what stood in the way of a rule.
    pub(super) fn because(&mut self, node: &Node, why: String) {
        let open = self.splits.iter().position(|s| s.is(node) && s.rule.is_none());
        let split = open.or_else(|| self.splits.iter().position(|s| s.is(node)));
        if let Some(split) = split.and_then(|k| self.splits.get_mut(k)) {
            split.why = Some(why);
        }
    }

    /// A node is left. If it is a copy of one that was mended elsewhere, what is left counts.
    fn keep(&mut self, node: &Node) {
        let open = self.splits.iter().position(|s| s.is(node) && s.rule.is_none());
        let same = || self.splits.iter().position(|s| s.is(node));
        if let Some(split) = open.or_else(same).and_then(|k| self.splits.get_mut(k)) {
            split.rule = Some(if node.op_type == "If" { Rule::Branch } else { Rule::Loop });
            split.stays = true;
        } else {
            // What a rule made of another operator has that one's name.
            self.splits.iter_mut().filter(|s| s.node == node.name).for_each(|s| s.stays = true);
        }
    }

    /// Notes what is left in the mended graph, and why.
    pub(super) fn note_rest(&mut self, region: &Region) {
        let mut rest = vec![];
        region.walk(&mut |node| {
            if node.is("If") || node.is("Loop") {
                rest.push(node);
            }
        });
        for node in rest {
            self.keep(node);
        }
        for split in &mut self.splits {
            let own = split.why.take();
            if split.stays || split.rule == Some(Rule::Read) {
                split.why = split.reason(own);
            }
        }
    }
}

impl fmt::Display for Report {
    /// A line a split, those that stay last; then numbers by kind and level, and a line of totals.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.splits.is_empty() {
            return writeln!(
                f,
                "The model had no splits: no control flow, no sequences, no optionals, no shape that data decides."
            );
        }
        let width = |text: &dyn Fn(&Split) -> usize| self.splits.iter().map(text).max().unwrap_or(0);
        let (ops, names) = (width(&|s| s.op.len()), width(&|s| s.node.chars().count()).min(MOST_NAME));
        let mut order: Vec<&Split> = self.splits.iter().collect();
        order.sort_by_key(|s| (s.stays, s.rule == Some(Rule::Read)));
        for s in order {
            let (rule, level) = (s.rule.map_or("-", Rule::name), s.level.name());
            let (op, name, fate) = (&s.op, short(&s.node), s.fate());
            writeln!(f, "  {op:ops$}  {name:names$}  {level:<5}  {rule:<8}  {fate}")?;
        }
        let totals = self.totals();
        let Counts { control, container, shape, all } = totals.before;
        let mut rows = vec![("control", control), ("container", container), ("shape", shape)];
        rows.retain(|(_, levels)| levels.total > 0);
        if rows.len() > 1 {
            rows.push(("all", all));
        }
        rows.push(("within", totals.within.all));
        writeln!(f, "\n  {:<11}{:>5}{:>7}{:>6}{:>7}", "", "const", "shape", "data", "total")?;
        for (name, n) in rows {
            let note = if name == "within" { "   left as native choices and loops of the plan" } else { "" };
            writeln!(f, "  {name:<11}{:>5}{:>7}{:>6}{:>7}{note}", n.r#const, n.shape, n.data, n.total)?;
        }
        let mut rules: Vec<Rule> = self.splits.iter().filter_map(|s| s.rule).collect();
        rules.sort_by_key(|r| Rule::ALL.iter().position(|x| x == r));
        rules.dedup();
        let counts: Vec<String> = rules.iter().map(|r| format!("{} {}", self.count(*r), r.name())).collect();
        let lost = self.splits.iter().filter(|s| s.rule.is_none()).count();
        let lost = (lost > 0).then(|| format!("{lost} gone with a branch"));
        let counts = counts.into_iter().chain(lost).collect::<Vec<_>>().join(", ");
        let noun = if self.before() == 1 { "split" } else { "splits" };
        writeln!(f, "\n{} {noun} found ({counts}); {} leave the plan.", self.before(), self.after())
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

    fn split(op: &str, node: &str, level: Level, rule: Option<Rule>) -> Split {
        let (node, op, stays) = (node.into(), op.into(), matches!(rule, Some(Rule::Branch | Rule::Loop)));
        let kind = if rule == Some(Rule::Read) { Kind::Shape } else { Kind::Control };
        Split { node, op, kind, level, rule, stays, why: None }
    }

    #[test]
    fn what_stays_is_told_last_and_all_is_counted() {
        let mut report = Report {
            splits: vec![
                split("If", "early", Level::Data, Some(Rule::Branch)),
                split("NonZero", "kept", Level::Data, Some(Rule::Read)),
                split("Loop", "steps", Level::Const, Some(Rule::Unroll)),
                split("If", "inner", Level::Shape, None),
            ],
        };
        report.splits[0].why = Some("the branches give different shapes".into());
        report.note_rest(&Region::default());
        let expected = "  \
  Loop     steps  const  unroll    written out, a copy of the body for each trip
  If       inner  shape  -         gone with the branch that held it
  NonZero  kept   data   read      sized while running, at the end of the arena: its shape is known only from data
  If       early  data   branch    a native choice within the plan: the condition is known only from data and the \
branches give different shapes

             const  shape  data  total
  control        1      1     1      3
  shape          0      0     1      1
  all            1      1     2      4
  within         0      0     1      1   left as native choices and loops of the plan

4 splits found (1 unroll, 1 read, 1 branch, 1 gone with a branch); 0 leave the plan.
";
        assert_eq!(report.to_string(), expected);
        assert!(Report::default().to_string().starts_with("The model had no splits"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["totals"]["before"]["control"]["const"], 1);
        assert_eq!(json["totals"]["after"]["all"]["total"], 0);
        assert_eq!(json["totals"]["within"]["all"]["data"], 1);
        assert_eq!(json["splits"][1]["level"], "data");
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = format!("{}/last", "a".repeat(60));
        assert_eq!(short(&name).chars().count(), MOST_NAME);
        assert!(short(&name).ends_with("/last"));
    }
}
