//! What each kernel call does, for profiles: operations and bytes as formulas over the sizes of the inputs.

use super::bytes;
use crate::fuse::attention::Attention;
use crate::fuse::{Contract, Fold, Nest, Stage, Unit};
use crate::kernel::ir::Access;
use crate::lower::contract::{Contraction, recognise};
use crate::lower::{Binding, LoweredKernel};
use crate::sym::{Atom, Int, VarId, free_vars};
use crate::te::{Expr, Node, Program, TensorId, expr};
use graphmend_cache_format::BinOp;
use graphmend_cache_format::meta::{Formula, Term, Work};
use std::collections::BTreeSet;

/// The work of a unit that runs as `k`, called by instruction `step`.
pub(super) fn of(p: &Program, u: &Unit, k: &LoweredKernel, step: u32) -> Work {
    let ops = match u {
        Unit::Contract(c) => contract_ops(p, c),
        Unit::Chain(c) => contract_ops(p, &c.first).zip(contract_ops(p, &c.second)).map(|(a, b)| a + b),
        Unit::Nest(n) => Some(nest_ops(n)),
        Unit::Attention(a) => Some(attention_ops(a)),
        Unit::Pieces(_, pieces) => {
            let ops = pieces.iter().map(|piece| extent(&piece.vars) * count(piece.body));
            Some(ops.fold(Int::new(0), |sum, n| sum + n))
        }
        // Only its writer knows.
        Unit::Custom(..) => None,
    };
    let moved = |access| {
        let mut seen = BTreeSet::new();
        let mut total = Int::new(0);
        for (b, buf) in k.bindings.iter().zip(&k.kernel.bufs) {
            match b {
                Binding::Tensor(t) if buf.access == access && seen.insert(*t) => total = total + bytes(p, *t),
                Binding::Packed(_, data) if buf.access == access => total = total + data.len(),
                _ => {}
            }
        }
        formula(p, total)
    };
    Work {
        step,
        class: class(p, u).into(),
        nodes: nodes(p, u),
        ops: ops.and_then(|i| formula(p, i)),
        read: moved(Access::Read),
        written: match u {
            // Pieces are what a tensor has besides what is written in its place.
            Unit::Pieces(t, pieces) => {
                let elements = pieces.iter().fold(Int::new(0), |sum, piece| sum + extent(&piece.vars));
                formula(p, elements * p.tensor(*t).dtype.size())
            }
            Unit::Contract(c) => formula(p, bytes(p, c.out)),
            Unit::Chain(c) => formula(p, bytes(p, c.second.out)),
            Unit::Attention(a) => formula(p, bytes(p, a.out)),
            Unit::Nest(n) => {
                let stored: BTreeSet<TensorId> = n.stages.iter().filter_map(Stage::stored).collect();
                formula(p, stored.iter().fold(Int::new(0), |sum, t| sum + bytes(p, *t)))
            }
            Unit::Custom(..) => moved(Access::Write),
        },
        units: k.tiles.and_then(|i| formula(p, i)),
    }
}

/// The model's nodes that the tensors of a unit come from.
fn nodes(p: &Program, u: &Unit) -> Vec<String> {
    let tensors: Vec<TensorId> = match u {
        Unit::Contract(c) => vec![c.sum, c.out],
        Unit::Chain(c) => [&c.first, &c.second].into_iter().flat_map(|c| [c.sum, c.out]).collect(),
        Unit::Nest(n) => n.stages.iter().map(|(Stage::Reduce { id, .. } | Stage::Store { id, .. })| *id).collect(),
        Unit::Attention(a) => vec![a.product, a.total, a.sum, a.out],
        Unit::Pieces(t, _) => vec![*t],
        Unit::Custom(_, outs) => outs.clone(),
    };
    let mut out: Vec<String> = vec![];
    for t in tensors {
        let node = &p.tensor(t).node;
        if !node.is_empty() && !out.contains(node) {
            out.push(node.clone());
        }
    }
    out
}

fn class(p: &Program, u: &Unit) -> &'static str {
    match u {
        Unit::Contract(c) => recognise(p, c.sum).map_or("reduction", |c| contraction_class(&c)),
        Unit::Chain(_) => "depthwise separable convolution",
        Unit::Nest(n) => {
            if n.stages.iter().any(|s| matches!(s, Stage::Reduce { .. })) {
                return "reduction";
            }
            if nest_ops(n) == Int::new(0) { "data movement" } else { "elementwise" }
        }
        Unit::Attention(_) => "attention",
        Unit::Pieces(..) => "data movement",
        Unit::Custom(..) => "hand-written",
    }
}

/// A 1×1 convolution is a matrix product; what slides a window over one factor is a convolution.
fn contraction_class(c: &Contraction) -> &'static str {
    let in_any = |index: &[Int], v: &VarId| index.iter().any(|i| free_vars(*i).contains(v));
    let counts = |v: &&VarId| v.extent() != Some(Int::new(1));
    let slides = |index: &[Int]| {
        let has = |i: &Int, vars: &[VarId]| vars.iter().filter(counts).any(|v| free_vars(*i).contains(v));
        index.iter().any(|i| has(i, &c.vars) && has(i, &c.rvars))
    };
    let own = |a: &[Int], b: &[Int]| c.vars.iter().filter(counts).any(|v| in_any(a, v) && !in_any(b, v));
    let (rows, columns) = (own(&c.lhs.1, &c.rhs.1), own(&c.rhs.1, &c.lhs.1));
    match (slides(&c.lhs.1) || slides(&c.rhs.1), rows && columns, rows || columns) {
        (true, true, _) => "convolution",
        (true, false, _) => "depthwise convolution",
        (false, true, _) => "matrix product",
        (false, false, true) => "matrix times vector",
        (false, false, false) => "dot product",
    }
}

fn extent(vars: &[VarId]) -> Int {
    vars.iter().fold(Int::new(1), |n, v| n * v.extent().unwrap_or(Int::new(1)))
}

/// Arithmetic on elements; loads, conversions, comparisons and choices are not counted.
fn count(e: Expr) -> i64 {
    expr::nodes(e).into_iter().filter(|e| matches!(e.node(), Node::Un(..) | Node::Bin(..))).count() as i64
}

/// Two for each product, whatever is done with the factors, and the operations on each sum.
fn contract_ops(p: &Program, of: &Contract) -> Option<Int> {
    let c = recognise(p, of.sum)?;
    Some(extent(&c.vars) * (extent(&c.rvars) * 2 + count(of.epilogue)))
}

/// Both products, the score, and of the softmax a subtraction, an exponential and the sum; all of them, also where keys are
/// hidden.
fn attention_ops(a: &Attention) -> Int {
    let pairs = extent(&a.batch) * extent(&[a.row, a.key]);
    pairs * ((extent(&[a.depth]) + extent(&[a.feature])) * 2 + count(a.score) + 3)
}

fn nest_ops(n: &Nest) -> Int {
    let mut total = Int::new(0);
    for stage in &n.stages {
        let each = match stage {
            Stage::Reduce { rvars, fold: Fold::Reduce(_, body), .. } => extent(rvars) * (count(*body) + 1),
            Stage::Reduce { rvars, fold: Fold::Ordered(init, step, result), .. } => {
                let sum = |of: &[Expr]| of.iter().map(|e| count(*e)).sum::<i64>();
                extent(rvars) * sum(step) + sum(init) + count(*result)
            }
            Stage::Store { inner, body, .. } => extent(inner) * count(*body),
        };
        total = total + each;
    }
    extent(&n.vars) * total
}

/// `i` over the sizes of the inputs; nothing if it depends on anything else.
fn formula(p: &Program, i: Int) -> Option<Formula> {
    let mut out = vec![];
    push(p, i, &mut out)?;
    Some(Formula(out))
}

fn push(p: &Program, i: Int, out: &mut Vec<Term>) -> Option<()> {
    let bin = |op: BinOp| Term::Bin(op as u16);
    let terms = i.terms();
    if terms.is_empty() {
        out.push(Term::Const(0));
    }
    for (k, (c, atoms)) in terms.into_iter().enumerate() {
        out.push(Term::Const(c));
        for a in atoms {
            push_atom(p, a, out)?;
            out.push(bin(BinOp::Mul));
        }
        if k > 0 {
            out.push(bin(BinOp::Add));
        }
    }
    Some(())
}

fn push_atom(p: &Program, a: Atom, out: &mut Vec<Term>) -> Option<()> {
    let (op, operands, choice) = match a {
        Atom::Var(v) => {
            let (input, axis) = p.dim_vars.get(&v)?;
            out.push(Term::Dim(*input as u32, *axis as u32));
            return Some(());
        }
        Atom::Data(_) => return None,
        Atom::Div(x, y) => (BinOp::FloorDiv, [x, y], None),
        Atom::Rem(x, y) => (BinOp::Mod, [x, y], None),
        Atom::Min(x, y) => (BinOp::Min, [x, y], None),
        Atom::Max(x, y) => (BinOp::Max, [x, y], None),
        Atom::IfLt(a, b, x, y) => (BinOp::Lt, [a, b], Some([x, y])),
        Atom::IfEq(a, b, x, y) => (BinOp::Eq, [a, b], Some([x, y])),
    };
    for i in operands {
        push(p, i, out)?;
    }
    out.push(Term::Bin(op as u16));
    if let Some(sides) = choice {
        for i in sides {
            push(p, i, out)?;
        }
        out.push(Term::Select);
    }
    Some(())
}
