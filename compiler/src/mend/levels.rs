//! When each split of a model can be settled: from constants, from input shapes, or only from data.
//!
//! A *split* is a node at which an engine has to leave a plan laid out before the run: control flow (`If`, `Loop`, `Scan`,
//! `SequenceMap`), operators on sequences and optionals, and operators whose output shape depends on what a tensor holds.
//! The walk gives each value a level for its content, one for its shape and, for a sequence or an optional, one for the
//! shapes of what it holds; a node's level follows from those of its inputs. Loop bodies are walked to a fixed point.
//!
//! It looks at the graph as imported. Shapes that branches give are those declared or found by expanding their nodes.

use super::report::{Kind, Split};
use super::shapes::{self, Statics};
use crate::graph::{Module, Node, ONNX_DOMAIN, Region, ValueId, ValueType};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// What must be known to settle something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Constants, and the shapes of inputs whose sizes are all declared.
    Const,
    /// The shapes of inputs.
    Shape,
    /// The values of inputs.
    Data,
}

use Level::{Const, Data};

impl Level {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Const => "const",
            Level::Shape => "shape",
            Level::Data => "data",
        }
    }
}

/// The levels of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Of {
    content: Level,
    /// For a sequence, of its length; for an optional, of its presence.
    shape: Level,
    /// For a sequence or optional, of the shapes of what it holds.
    held: Option<Level>,
}

const CONSTANT: Of = Of::new(Const, Const);
/// Nothing is known.
const OPEN: Of = Of::new(Data, Data);

impl Of {
    const fn new(content: Level, shape: Level) -> Of {
        Of { content, shape, held: None }
    }

    fn holding(content: Level, shape: Level, held: Level) -> Of {
        Of { content, shape, held: Some(held) }
    }

    /// Of the shapes of what a sequence holds, or of a tensor's own.
    fn held(self) -> Level {
        self.held.unwrap_or(self.shape)
    }

    fn max(self, other: Of) -> Of {
        let held = self.held.zip(other.held).map(|(a, b)| a.max(b));
        Of { content: self.content.max(other.content), shape: self.shape.max(other.shape), held }
    }
}

/// Rounds until a loop's levels stand; there are three of them.
const ROUNDS: usize = 6;
/// Nodes that may be walked again to find fixed points; from then on loops are of level `data`, as all that they carry.
const MOST_AGAIN: usize = 1 << 20;

/// All splits of a module, outer ones before those within, with their levels.
pub(super) fn splits(module: &Module) -> Vec<Split> {
    let mut levels =
        Levels { statics: shapes::statics(module), ranks: HashMap::new(), found: vec![], quiet: 0, again: MOST_AGAIN };
    let mut env = Env::new();
    for id in &module.main.inputs {
        let ty = &module.value(*id).ty;
        let of = match ty {
            ValueType::Tensor { shape: Some(dims), .. } if shapes::fixed(dims).is_some() => Of::new(Data, Const),
            ValueType::Tensor { .. } => Of::new(Data, Level::Shape),
            _ => Of::holding(Data, Data, Level::Shape),
        };
        env.insert(*id, of);
    }
    levels.region(&module.main, &mut env);
    levels.found
}

/// The kind of split that a node is, if it is one whatever its level.
pub(super) fn kind_of(node: &Node) -> Option<Kind> {
    if node.domain != ONNX_DOMAIN {
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

/// Is the shape of what the node gives a matter of what a tensor holds?
pub(super) fn shaped_by_content(node: &Node) -> bool {
    node.domain == ONNX_DOMAIN && (always(&node.op_type) || !shape_inputs(&node.op_type).is_empty())
}

/// Operators whose output shape always depends on content.
fn always(op: &str) -> bool {
    matches!(op, "NonZero" | "Compress" | "Unique" | "NonMaxSuppression" | "StringSplit")
}

/// The inputs that carry a shape, or axes.
fn shape_inputs(op: &str) -> &'static [usize] {
    match op {
        "Range" => &[0, 1, 2],
        "ConstantOfShape" | "HannWindow" | "HammingWindow" | "BlackmanWindow" => &[0],
        "Reshape" | "Expand" | "Tile" | "Upsample" | "TopK" | "OneHot" | "Split" | "Squeeze" | "Unsqueeze"
        | "CenterCropPad" | "AffineGrid" | "DFT" | "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp"
        | "ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => &[1],
        "Slice" => &[1, 2, 3, 4],
        "Pad" | "STFT" => &[1, 3],
        "Resize" => &[2, 3],
        "Col2Im" => &[1, 2],
        "MaxUnpool" => &[2],
        "MelWeightMatrix" => &[0, 1],
        _ => &[],
    }
}

fn is_random(op: &str) -> bool {
    matches!(
        op,
        "RandomNormal" | "RandomUniform" | "RandomNormalLike" | "RandomUniformLike" | "Multinomial" | "Bernoulli"
    )
}

/// Levels of the values so far. Values are unique over all regions, so that regions share it.
type Env = HashMap<ValueId, Of>;

struct Levels {
    statics: Statics,
    /// Ranks of constants.
    ranks: HashMap<ValueId, usize>,
    found: Vec<Split>,
    /// More than 0 while a body is walked to find its fixed point.
    quiet: usize,
    again: usize,
}

impl Levels {
    fn split(&mut self, node: &Node, kind: Kind, level: Level) {
        if self.quiet == 0 {
            self.found.push(Split::new(node, kind, level));
        }
    }

    fn region(&mut self, region: &Region, env: &mut Env) {
        for (id, data) in &region.constants {
            self.ranks.insert(*id, data.shape.len());
            env.insert(*id, CONSTANT);
        }
        for node in &region.nodes {
            if self.quiet > 0 {
                self.again = self.again.saturating_sub(1);
            }
            let made = self.node(node, env);
            for (k, id) in node.outputs.iter().enumerate() {
                if let Some(id) = id {
                    env.insert(*id, made.get(k).copied().unwrap_or(OPEN));
                }
            }
        }
    }

    /// Walks a region whose inputs have given levels; gives those of its results.
    fn body(&mut self, region: &Region, args: &[Of], env: &mut Env) -> Vec<Of> {
        for (k, id) in region.inputs.iter().enumerate() {
            env.insert(*id, args.get(k).copied().unwrap_or(OPEN));
        }
        self.region(region, env);
        region.outputs.iter().map(|id| env.get(id).copied().unwrap_or(OPEN)).collect()
    }

    fn node(&mut self, node: &Node, env: &mut Env) -> Vec<Of> {
        let of = |id: &Option<ValueId>| id.map_or(CONSTANT, |id| env.get(&id).copied().unwrap_or(OPEN));
        let ins: Vec<Of> = node.inputs.iter().map(of).collect();
        let get = |k: usize| ins.get(k).copied().unwrap_or(CONSTANT);
        let mut content = ins.iter().map(|v| v.content).max().unwrap_or(Const);
        let mut shape = ins.iter().map(|v| v.shape).max().unwrap_or(Const);
        let op = node.op_type.as_str();
        let n = node.outputs.len();
        if node.domain != ONNX_DOMAIN {
            return vec![Of::new(content, shape); n];
        }
        match (kind_of(node), op) {
            (Some(Kind::Control), "If") => return self.choice(node, get(0).content, env),
            (Some(Kind::Control), "Loop") => return self.repeat(node, &ins, env),
            (Some(Kind::Control), "Scan") => return self.scan(node, &ins, env),
            (Some(Kind::Control), _) => return self.map(node, &ins, env),
            (Some(_), _) => return vec![self.container(node, &ins)],
            (None, "Shape" | "Size") => return vec![Of::new(get(0).shape, Const)],
            (None, "Identity") => return vec![get(0)],
            _ => {}
        }
        if always(op) {
            self.split(node, Kind::Shape, content);
            return vec![Of::new(content, content.max(shape)); n];
        }
        let carriers = shape_inputs(op);
        if !carriers.is_empty() {
            let level = carriers.iter().map(|k| get(*k).content).max().unwrap_or(Const);
            if level == Data {
                self.split(node, Kind::Shape, level);
            }
            if matches!(op, "Range" | "ConstantOfShape") {
                shape = Const;
            }
            return vec![Of::new(content, shape.max(level)); n];
        }
        if is_random(op) {
            content = Data;
        }
        vec![Of::new(content, shape); n]
    }

    fn choice(&mut self, node: &Node, level: Level, env: &mut Env) -> Vec<Of> {
        self.split(node, Kind::Control, level);
        let mut arms = vec![];
        for name in ["then_branch", "else_branch"] {
            let Ok(region) = node.require_region(name) else { return vec![OPEN; node.outputs.len()] };
            let made = self.body(region, &[], env);
            let sizes: Vec<_> = region.outputs.iter().map(|id| self.statics.get(id).cloned()).collect();
            arms.push((made, sizes));
        }
        let (a, b) = (&arms[0], &arms[1]);
        let each = a.0.iter().zip(&b.0).zip(a.1.iter().zip(&b.1));
        each.map(|((a, b), (x, y))| {
            let content = level.max(a.content).max(b.content);
            let shape = level.max(a.shape).max(b.shape);
            if a.held.is_some() || b.held.is_some() {
                return Of::holding(content, shape, a.held().max(b.held()));
            }
            Of::new(content, if x.is_some() && x == y { Const } else { shape })
        })
        .collect()
    }

    fn repeat(&mut self, node: &Node, ins: &[Of], env: &mut Env) -> Vec<Of> {
        let content = |k: usize| ins.get(k).map_or(Const, |v| v.content);
        let mut cond = content(1);
        let mut level = content(0).max(cond);
        let Ok(body) = node.require_region("body") else { return vec![OPEN; node.outputs.len()] };
        let mut carried: Vec<Of> = ins.iter().skip(2).copied().collect();
        let args = |level: Level, cond: Level, carried: &[Of]| {
            [&[Of::new(level, Const), Of::new(cond, Const)], carried].concat()
        };
        for _ in 0..ROUNDS {
            if self.again == 0 {
                (level, cond) = (Data, Data);
                carried.iter_mut().for_each(|v| *v = v.max(Of { held: v.held, ..OPEN }));
                break;
            }
            self.quiet += 1;
            let made = self.body(body, &args(level, cond, &carried), env);
            self.quiet -= 1;
            let go_on = made.first().map_or(Data, |v| v.content);
            let next: Vec<Of> = carried.iter().zip(made.iter().skip(1)).map(|(a, b)| a.max(*b)).collect();
            let now = (next, level.max(go_on), cond.max(go_on));
            let before = (std::mem::take(&mut carried), level, cond);
            let stands = now == before;
            (carried, level, cond) = now;
            if stands {
                break;
            }
        }
        self.split(node, Kind::Control, level);
        let made = self.body(body, &args(level, cond, &carried), env);
        let states = body.inputs.len().saturating_sub(2);
        let mut out = vec![];
        for (k, (before, after)) in carried.iter().zip(made.iter().skip(1)).enumerate().take(states) {
            let (Some(start), Some(end)) = (body.inputs.get(k + 2), body.outputs.get(k + 1)) else { break };
            let (size, same) = (self.statics.get(start), self.statics.get(end));
            let grows = (size.is_none() || size != same) && may_grow(body, *start, *end);
            let mut v = before.max(*after);
            v.content = v.content.max(level);
            if grows || before.held.is_some() {
                v.shape = v.shape.max(level);
            }
            out.push(v);
        }
        let scans = made.iter().skip(1 + states);
        out.extend(scans.map(|v| Of::new(level.max(v.content), level.max(v.shape))));
        out
    }

    fn scan(&mut self, node: &Node, ins: &[Of], env: &mut Env) -> Vec<Of> {
        let scanned = node.attr_int("num_scan_inputs", 0).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let first = ins.len().saturating_sub(scanned);
        self.split(node, Kind::Control, ins[first..].iter().map(|v| v.shape).max().unwrap_or(Data));
        let Ok(body) = node.require_region("body") else { return vec![OPEN; node.outputs.len()] };
        // Before operator set 9 the lengths come first.
        let made = self.body(body, &ins[usize::from(node.version < 9).min(ins.len())..], env);
        let of = |f: fn(&Of) -> Level| ins.iter().map(f).max().unwrap_or(Const);
        let (content, shape) = (of(|v| v.content), of(|v| v.shape));
        made.iter().map(|v| Of::new(content.max(v.content), shape.max(v.shape))).collect()
    }

    /// `SequenceMap`.
    fn map(&mut self, node: &Node, ins: &[Of], env: &mut Env) -> Vec<Of> {
        let lengths = ins.iter().filter(|v| v.held.is_some()).map(|v| v.shape);
        let level = lengths.max().unwrap_or(Level::Shape);
        self.split(node, Kind::Control, level);
        let Ok(body) = node.require_region("body") else { return vec![OPEN; node.outputs.len()] };
        let args: Vec<Of> = ins.iter().map(|v| Of::new(v.content, v.held())).collect();
        let content = ins.iter().map(|v| v.content).max().unwrap_or(Const);
        let made = self.body(body, &args, env);
        made.iter().map(|v| Of::holding(content.max(v.content), level, v.shape)).collect()
    }

    /// A sequence's or optional's operator: the level is that of the length, or presence, and of the place given.
    fn container(&mut self, node: &Node, ins: &[Of]) -> Of {
        let get = |k: usize| ins.get(k).copied().unwrap_or(CONSTANT);
        let first = get(0);
        let content = ins.iter().map(|v| v.content).max().unwrap_or(Const);
        let all_held = ins.iter().map(|v| v.held()).max().unwrap_or(Const);
        let (level, made) = match node.op_type.as_str() {
            "Optional" if first.held.is_some() => (Const, Of::holding(content, first.shape, all_held)),
            "Optional" | "SequenceEmpty" | "SequenceConstruct" => (Const, Of::holding(content, Const, all_held)),
            "SplitToSequence" => {
                // A list of sizes says how many there are.
                let listed = node.input(1).and_then(|id| self.ranks.get(&id)) == Some(&1);
                let level = get(1).content.max(if listed { Const } else { first.shape });
                (level, Of::holding(first.content, level, first.shape.max(get(1).content)))
            }
            "SequenceInsert" => {
                let level = first.shape.max(get(2).content);
                (level, Of::holding(content, level, first.held().max(get(1).shape)))
            }
            "SequenceErase" => {
                let level = first.shape.max(get(1).content);
                (level, Of::holding(content, level, first.held()))
            }
            "SequenceAt" => {
                let level = first.shape.max(get(1).content);
                (level, Of::new(content, first.held().max(level)))
            }
            "ConcatFromSequence" => (first.shape, Of::new(content, first.held().max(first.shape))),
            "OptionalGetElement" => (first.shape, Of::new(content, first.held())),
            // Their length or presence.
            _ => (first.shape, Of::new(first.shape, Const)),
        };
        self.split(node, Kind::Container, level);
        made
    }
}

/// Operators that give the shape of their first input.
fn keeps_shape(op: &str) -> bool {
    matches!(
        op,
        "Identity"
            | "Relu"
            | "Neg"
            | "Tanh"
            | "Sigmoid"
            | "Exp"
            | "Log"
            | "Sqrt"
            | "Abs"
            | "Not"
            | "Cast"
            | "Clip"
            | "Floor"
            | "Softmax"
            | "ScatterElements"
            | "ScatterND"
            | "ScatterUpdate"
            | "LeakyRelu"
            | "Erf"
    )
}

/// Can a carried value change its shape from trip to trip? Asked roughly: by the operators between a body's input and its
/// result.
fn may_grow(body: &Region, start: ValueId, end: ValueId) -> bool {
    let makers: HashMap<ValueId, &Node> =
        body.nodes.iter().flat_map(|n| n.wanted_outputs().map(move |id| (id, n))).collect();
    let mut at = end;
    for _ in 0..50 {
        if at == start {
            return false;
        }
        let Some(node) = makers.get(&at) else { return true };
        let next = match node.op_type.as_str() {
            op if keeps_shape(op) => node.input(0),
            "Add" | "Mul" | "Sub" | "Div" | "Where" | "Max" | "Min" | "And" | "Or" => {
                node.given_inputs().find(|id| reaches(&makers, *id, start))
            }
            op => {
                return matches!(
                    op,
                    "Concat"
                        | "Slice"
                        | "Pad"
                        | "SequenceInsert"
                        | "SequenceErase"
                        | "Expand"
                        | "Tile"
                        | "Reshape"
                        | "Gather"
                        | "Compress"
                );
            }
        };
        match next {
            Some(id) => at = id,
            None => return true,
        }
    }
    true
}

/// Is `from` computed from `start`, through at most thirty nodes?
fn reaches(makers: &HashMap<ValueId, &Node>, from: ValueId, start: ValueId) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = VecDeque::from([(from, 30)]);
    while let Some((id, left)) = open.pop_front() {
        if id == start {
            return true;
        }
        if let Some(node) = makers.get(&id).filter(|_| left > 0) {
            open.extend(node.given_inputs().filter(|id| seen.insert(*id)).map(|id| (id, left - 1)));
        }
    }
    false
}

#[cfg(test)]
mod tests;
