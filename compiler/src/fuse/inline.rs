//! Maps that disappear into their users.
//!
//! A map is inlined when every user may compute it in place: it is *movement* (at most a choice of one load, a constant
//! or a conversion of one), or it has one user that reads each of its elements once. A user that reads elements many
//! times (a reduction over a broadcast operand, a contraction) takes only plain movement.

use super::uses::{Uses, exprs};
use crate::lower::contract;
use crate::sym::{Atom, Int, VarId};
use crate::te::cx::reindex;
use crate::te::{Block, Def, Expr, Node, Piece, Program, Step, TensorId, expr};
use std::collections::BTreeSet;

/// Largest expression that inlining may make.
const MOST_NODES: usize = 400;

/// Decides and rewrites. Gives the program with inlined definitions, the tensors that stay, and how many went.
pub fn inline(mut p: Program, uses: &Uses) -> (Program, BTreeSet<TensorId>, usize) {
    let mut stored = BTreeSet::new();
    let mut inlined = 0;
    let mut ids = vec![];
    defined(&p.main, &mut ids);
    for t in ids.into_iter().filter(|t| uses.live.contains(t)) {
        let def = p.tensor(t).def.clone();
        let def = rewrite(&p, &stored, t, def);
        p.tensors[t.0 as usize].def = def;
        if goes(&p, uses, t) {
            inlined += 1;
        } else {
            stored.insert(t);
        }
    }
    (p, stored, inlined)
}

/// All tensors in order of definition: operands come first.
fn defined(b: &Block, out: &mut Vec<TensorId>) {
    for step in &b.steps {
        match step {
            Step::Define(t) => out.push(*t),
            Step::Check(_) => {}
            Step::If { then, other, .. } => {
                defined(then, out);
                defined(other, out);
            }
            Step::Loop(l) => defined(&l.body, out),
        }
    }
}

/// Puts the bodies of inlined tensors into a definition.
fn rewrite(p: &Program, stored: &BTreeSet<TensorId>, t: TensorId, def: Def) -> Def {
    let put = |e: Expr| substitute(p, stored, e);
    match def {
        Def::Map { vars, body } => Def::Map { vars, body: put(body) },
        Def::Reduce { vars, rvars, kind, body } => Def::Reduce { vars, rvars, kind, body: put(body) },
        Def::Fold { vars, rvars, init, step, result } => Def::Fold {
            vars,
            rvars,
            init: init.into_iter().map(put).collect(),
            step: step.into_iter().map(put).collect(),
            result: put(result),
        },
        Def::Assembled { lodgers, pieces } => {
            let pieces = pieces.into_iter().map(|piece| Piece { body: put(piece.body), ..piece }).collect();
            Def::Assembled { lodgers, pieces }
        }
        Def::View(base) if !stored.contains(&base) => {
            // The base was inlined: the view becomes a map of its own.
            let shape = p.tensor(t).shape.clone();
            let vars = crate::te::cx::index_vars("i", &shape);
            let index = crate::te::cx::index_of(&vars);
            let at = reindex(&shape, &p.tensor(base).shape, &index);
            let load = expr::load(base, p.tensor(base).dtype, at);
            Def::Map { vars, body: put(load) }
        }
        other => other,
    }
}

fn substitute(p: &Program, stored: &BTreeSet<TensorId>, e: Expr) -> Expr {
    expr::map_loads(e, &mut |t, index, _| {
        if stored.contains(&t) {
            return None;
        }
        let Def::Map { vars, body } = &p.tensor(t).def else { return None };
        let at = |v: VarId| vars.iter().position(|x| *x == v).map(|k| index[k]);
        let e = expr::subst_vars(*body, &at);
        // A half-precision tensor rounds what it holds, in memory or not.
        Some(if p.tensor(t).dtype.is_float() { expr::cast(p.tensor(t).dtype, e) } else { e })
    })
}

/// Does `t` disappear?
fn goes(p: &Program, uses: &Uses, t: TensorId) -> bool {
    if uses.whole.contains(&t) {
        return false;
    }
    let Def::Map { vars, body } = &p.tensor(t).def else { return false };
    let Some(readers) = uses.readers.get(&t) else { return false };
    let movement = is_movement(*body);
    let plain = is_plain(*body);
    let size = expr::nodes(*body).len();
    if size > MOST_NODES || (readers.len() > 1 && !movement) {
        return false;
    }
    // What is computed before a loop is not computed again in each trip.
    if !movement && readers.iter().any(|r| uses.in_loop.get(r) != uses.in_loop.get(&t)) {
        return false;
    }
    let has_sum = expr::loads(*body)
        .iter()
        .any(|(s, _)| matches!(p.tensor(*s).def, Def::Reduce { .. } | Def::Fold { .. }) || is_view_of_sum(p, *s));
    readers.iter().all(|r| {
        let tensor = p.tensor(*r);
        match &tensor.def {
            // Through a view, only where the index needs no division.
            Def::View(_) => {
                let index = crate::te::cx::index_of(&crate::te::cx::index_vars("i", &tensor.shape));
                let at = reindex(&tensor.shape, &p.tensor(t).shape, &index);
                !uses.whole.contains(r)
                    && at.iter().all(|i| !divides(*i))
                    && uses.readers.get(r).is_some_and(|rs| rs.len() == 1 || movement)
                    && uses
                        .readers
                        .get(r)
                        .is_some_and(|rs| rs.iter().all(|x| matches!(p.tensor(*x).def, Def::Map { .. })))
                    && !has_sum
            }
            Def::Map { .. } => {
                let all: Vec<Expr> = exprs(&tensor.def);
                let reads = reads_of(&all, t);
                let grown: usize = all.iter().map(|e| expr::nodes(*e).len()).sum::<usize>() + size * reads.len();
                grown <= MOST_NODES
                    && if movement {
                        reads.len() <= 4
                    } else {
                        reads.len() == 1
                            && once(&reads[0], vars.len())
                            && (size <= 6
                                || Int::product(&tensor.shape).le(Int::product(&p.tensor(t).shape)) == Some(true))
                            && (!has_sum || identity(&reads[0], &p.tensor(t).shape))
                    }
            }
            Def::Assembled { pieces, .. } => {
                let reads: Vec<(&Piece, Vec<Int>)> =
                    pieces.iter().flat_map(|c| reads_of(&[c.body], t).into_iter().map(move |r| (c, r))).collect();
                let fits = |c: &Piece| expr::nodes(c.body).len() + size <= MOST_NODES;
                reads.iter().all(|(c, _)| fits(c))
                    && match reads.as_slice() {
                        _ if movement => reads.len() <= 4,
                        [(c, read)] => {
                            let space: Vec<Int> = c.vars.iter().filter_map(|v| v.extent()).collect();
                            let small =
                                size <= 6 || Int::product(&space).le(Int::product(&p.tensor(t).shape)) == Some(true);
                            once(read, vars.len()) && small && !has_sum
                        }
                        _ => false,
                    }
            }
            Def::Reduce { vars: v, rvars, .. } | Def::Fold { vars: v, rvars, .. } => {
                let all = exprs(&tensor.def);
                let reads = reads_of(&all, t);
                if contract::recognise(p, *r).is_some() {
                    return plain && reads.len() == 1;
                }
                let index_space = v.len() + rvars.len();
                (movement && reads.len() <= 2 && plain)
                    || (reads.len() == 1 && !has_sum && covers(&reads[0], v, rvars) && vars.len() <= index_space)
            }
            _ => false,
        }
    })
}

fn is_view_of_sum(p: &Program, t: TensorId) -> bool {
    matches!(p.tensor(t).def, Def::View(b) if matches!(p.tensor(b).def, Def::Reduce { .. } | Def::Fold { .. }))
}

fn reads_of(all: &[Expr], t: TensorId) -> Vec<Vec<Int>> {
    let mut out: Vec<Vec<Int>> = vec![];
    for e in all {
        for (s, index) in expr::loads(*e) {
            if s == t && !out.contains(&index) {
                out.push(index);
            }
        }
    }
    out
}

/// A load, a constant, a conversion of one, or choices among such.
pub(super) fn is_movement(e: Expr) -> bool {
    match e.node() {
        Node::Load(..) | Node::Const(_) | Node::Int(_) => true,
        Node::Cast(_, a) => is_movement(a),
        Node::Select(c, a, b) => !has_load(c) && is_movement(a) && is_movement(b),
        _ => false,
    }
}

/// One load without choices, divisions or data in its index, or a constant.
fn is_plain(e: Expr) -> bool {
    match e.node() {
        Node::Load(_, index) => index.iter().all(|i| !divides(*i)),
        Node::Const(_) => true,
        _ => false,
    }
}

fn has_load(e: Expr) -> bool {
    !expr::loads(e).is_empty()
}

/// Does the index hold anything but sums and products of variables?
fn divides(i: Int) -> bool {
    i.terms().iter().any(|(_, atoms)| atoms.iter().any(|a| !matches!(a, Atom::Var(_))))
}

/// Is each element read at most once, or nearly: every index part depends on another variable or is a constant?
fn once(index: &[Int], rank: usize) -> bool {
    debug_assert_eq!(index.len(), rank, "rank of a load");
    // A broadcast read (fewer variables than the reader has) computes again; cheap maps were handled before.
    let mut seen = BTreeSet::new();
    index.iter().all(|i| {
        let vars = crate::sym::free_vars(*i);
        let loops: Vec<VarId> = vars.into_iter().filter(|v| v.extent().is_some()).collect();
        !divides_by_data(*i) && loops.iter().all(|v| seen.insert(*v))
    })
}

fn divides_by_data(i: Int) -> bool {
    let mut data = false;
    crate::sym::map_data(i, &mut |_| {
        data = true;
        Int::new(0)
    });
    data
}

/// Does the index, made of the reader's variables, run through a tensor of this shape element by element?
fn identity(index: &[Int], shape: &[Int]) -> bool {
    index.len() == shape.len()
        && index.iter().zip(shape).all(|(i, d)| match i.as_var() {
            Some(v) => v.extent() == Some(*d),
            None => *d == Int::new(1) && i.as_const() == Some(0),
        })
}

/// Does the index run through distinct variables such that no output or reduced index with more than one value is
/// missing?
fn covers(index: &[Int], vars: &[VarId], rvars: &[VarId]) -> bool {
    let mut found = BTreeSet::new();
    for i in index {
        match i.as_var() {
            Some(v) => {
                found.insert(v);
            }
            None if i.as_const().is_some() => {}
            None => return false,
        }
    }
    vars.iter().chain(rvars).all(|v| v.extent() == Some(Int::new(1)) || found.contains(v))
}
