//! Merging neighbouring loops that run through memory as one.

use super::nest::parts;
use crate::fuse::{Fold, Nest, Stage};
use crate::sym::{Int, VarId, linear_in, subst};
use crate::te::{Expr, Node, expr};
use std::collections::BTreeSet;

/// Merges neighbouring outer loops, and neighbouring inner or reduced loops of a stage, wherever every position is
/// linear in both and the outer one's step is the inner one's step times its extent. The first `kept` outer loops stay.
pub(super) fn collapse(nest: &mut Nest, kept: usize) {
    let mut k = kept;
    while k + 1 < nest.vars.len() {
        let (a, b) = (nest.vars[k], nest.vars[k + 1]);
        if let Some(c) = merged(&nest.stages, a, b) {
            for s in &mut nest.stages {
                rewrite(s, a, b, c);
            }
            nest.vars.splice(k..=k + 1, [c]);
        } else {
            k += 1;
        }
    }
    for i in 0..nest.stages.len() {
        let mut k = 0;
        while let Some((a, b)) = pair(&nest.stages[i], k) {
            if let Some(c) = merged(&nest.stages[i..=i], a, b) {
                rewrite(&mut nest.stages[i], a, b, c);
                match &mut nest.stages[i] {
                    Stage::Reduce { rvars: v, .. } | Stage::Store { inner: v, .. } => {
                        v.splice(k..=k + 1, [c]);
                    }
                }
            } else {
                k += 1;
            }
        }
    }
}

fn pair(stage: &Stage, k: usize) -> Option<(VarId, VarId)> {
    match stage {
        // Ordered folds go through their indices in order: merging keeps it.
        Stage::Reduce { rvars: v, .. } | Stage::Store { inner: v, .. } => Some((*v.get(k)?, *v.get(k + 1)?)),
    }
}

/// A variable over both, if they can be merged.
fn merged(stages: &[Stage], a: VarId, b: VarId) -> Option<VarId> {
    let (na, nb) = (a.extent()?, b.extent()?);
    for s in stages {
        let (exprs, positions) = parts(s);
        for e in exprs {
            for n in expr::nodes(e) {
                match n.node() {
                    Node::Int(i) if !fits(i, a, b, nb) => return None,
                    Node::Load(_, index) if !index.iter().all(|i| fits(*i, a, b, nb)) => return None,
                    _ => {}
                }
            }
        }
        if !positions.iter().all(|i| fits(*i, a, b, nb)) {
            return None;
        }
    }
    Some(VarId::index("c", na * nb))
}

fn fits(i: Int, a: VarId, b: VarId, nb: Int) -> bool {
    let vars: BTreeSet<VarId> = crate::sym::free_vars(i);
    if !vars.contains(&a) && !vars.contains(&b) {
        return true;
    }
    match (linear_in(i, a), linear_in(i, b)) {
        (Some((sa, _)), Some((sb, _))) => {
            let clean = |s: Int| {
                let v = crate::sym::free_vars(s);
                !v.contains(&a) && !v.contains(&b)
            };
            clean(sa) && clean(sb) && sa == sb * nb
        }
        _ => false,
    }
}

fn moved(i: Int, a: VarId, b: VarId, c: VarId) -> Int {
    match linear_in(i, b) {
        Some((s, rest)) if s != Int::new(0) => subst(rest, &|v| (v == a).then(|| Int::new(0))) + s * Int::var(c),
        _ => i,
    }
}

fn rewrite(stage: &mut Stage, a: VarId, b: VarId, c: VarId) {
    let put = |e: Expr| {
        expr::rewrite(e, &mut |e, n| match n {
            Node::Int(i) => Some(expr::int(moved(*i, a, b, c))),
            Node::Load(t, index) => {
                Some(expr::load_as(*t, e.dtype(), index.iter().map(|i| moved(*i, a, b, c)).collect()))
            }
            _ => None,
        })
    };
    match stage {
        Stage::Reduce { fold: Fold::Reduce(_, body), .. } => *body = put(*body),
        Stage::Reduce { fold: Fold::Ordered(init, step, result), .. } => {
            for e in init.iter_mut().chain(step.iter_mut()).chain([result]) {
                *e = put(*e);
            }
        }
        Stage::Store { body, position, .. } => {
            *body = put(*body);
            *position = moved(*position, a, b, c);
        }
    }
}
