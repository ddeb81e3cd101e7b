//! Nests that go through the same rows one after the other become one.
//!
//! A norm by operators is a nest for the mean and the differences from it, and one for their squares and the quotient; the
//! second reads only what the first made of the same row. One nest does both, row by row, while the row is at hand.

use super::group::Group;
use super::{Fold, Nest, Stage, Unit};
use crate::sym::{Int, VarId};
use crate::te::{Def, Expr, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// Fewest rows of a known number: fewer are too few units of work.
const FEW: i64 = 8;

/// Merges what can be merged.
pub(super) fn merge(g: &Group<'_>, units: &mut BTreeMap<TensorId, Unit>) {
    let roots: Vec<TensorId> = units.keys().copied().collect();
    for root in roots {
        while let Some(first) = step(g, units, root) {
            units.remove(&first);
        }
    }
}

/// Merges one nest into that of `root`; gives what it stores.
fn step(g: &Group<'_>, units: &mut BTreeMap<TensorId, Unit>, root: TensorId) -> Option<TensorId> {
    let Some(Unit::Nest(second)) = units.get(&root) else { return None };
    let by: BTreeSet<TensorId> = second.stages.iter().map(id).collect();
    let read: BTreeSet<TensorId> =
        loads(g, second).into_iter().map(|(t, _)| t).filter(|t| *t < root && !by.contains(t)).collect();
    let (first, merged) = read.into_iter().find_map(|t| {
        let Some(Unit::Nest(first)) = units.get(&t) else { return None };
        let private = !g.whole.contains(&t) && g.block_of.get(&t) == g.block_of.get(&root) && g.only_read_by(t, &by);
        (private && first.stages.len() > 1).then(|| joined(g, t, first, second)).flatten().map(|n| (t, n))
    })?;
    units.insert(root, Unit::Nest(merged));
    Some(first)
}

fn id(s: &Stage) -> TensorId {
    match s {
        Stage::Reduce { id, .. } | Stage::Store { id, .. } => *id,
    }
}

/// What a nest loads, views seen through.
fn loads(g: &Group<'_>, n: &Nest) -> Vec<(TensorId, Vec<Int>)> {
    let all = n.stages.iter().flat_map(|s| match s {
        Stage::Reduce { fold: Fold::Reduce(_, e), .. } | Stage::Store { body: e, .. } => expr::loads(*e),
        Stage::Reduce { fold: Fold::Ordered(init, step, result), .. } => {
            init.iter().chain(step).chain([result]).flat_map(|e| expr::loads(*e)).collect()
        }
    });
    all.map(|(t, index)| g.through_views(t, &index)).collect()
}

/// Both nests in one: `second` reads `t`, which `first` stores, in the row that it is at.
fn joined(g: &Group<'_>, t: TensorId, first: &Nest, second: &Nest) -> Option<Nest> {
    let Def::Map { vars: own, .. } = &g.p.tensor(t).def else { return None };
    // For each index of the rows of the first nest, that of the second one.
    let mut rows: Vec<(VarId, VarId)> = vec![];
    for (_, index) in loads(g, second).into_iter().filter(|(s, _)| *s == t) {
        let mut here = vec![];
        for v in &first.vars {
            let k = own.iter().position(|x| x == v)?;
            let w = index[k].as_var().filter(|w| second.vars.contains(w) && w.extent() == v.extent())?;
            here.push((*v, w));
        }
        if !rows.is_empty() && rows != here {
            return None;
        }
        rows = here;
    }
    let outer: Vec<VarId> = rows.iter().map(|(_, w)| *w).collect();
    let count = Int::product(&outer.iter().filter_map(|v| v.extent()).collect::<Vec<_>>());
    // Rows in the order in which they lie, outside of everything else.
    if outer.is_empty() || !second.vars.starts_with(&outer) || count.as_const().is_some_and(|n| n < FEW) {
        return None;
    }
    let put = |v: VarId| rows.iter().find(|(x, _)| *x == v).map(|(_, w)| Int::var(*w));
    let mut stages: Vec<Stage> = first.stages.iter().map(|s| moved(s, &|e| expr::subst_vars(e, &put), &put)).collect();
    let rest = &second.vars[outer.len()..];
    for s in &second.stages {
        let direct = |e: Expr| {
            expr::map_loads(e, &mut |s, index, dtype| {
                let (s, at) = g.through_views(s, index);
                (s == t).then(|| expr::load_as(t, dtype, at))
            })
        };
        let mut s = moved(s, &direct, &|_| None);
        if !rest.is_empty() {
            // What was a map of its own has the other indices within a row.
            let (Stage::Store { inner, .. }, 1) = (&mut s, second.stages.len()) else { return None };
            inner.splice(0..0, rest.iter().copied());
        }
        stages.push(s);
    }
    Some(Nest { vars: outer, stages })
}

/// A stage with other expressions, and other indices in its position.
fn moved(s: &Stage, f: &dyn Fn(Expr) -> Expr, put: &dyn Fn(VarId) -> Option<Int>) -> Stage {
    match s {
        Stage::Reduce { id, rvars, fold } => {
            let all = |es: &[Expr]| es.iter().map(|e| f(*e)).collect();
            let fold = match fold {
                Fold::Reduce(kind, e) => Fold::Reduce(*kind, f(*e)),
                Fold::Ordered(init, step, result) => Fold::Ordered(all(init), all(step), f(*result)),
            };
            Stage::Reduce { id: *id, rvars: rvars.clone(), fold }
        }
        Stage::Store { id, inner, body, position } => {
            Stage::Store { id: *id, inner: inner.clone(), body: f(*body), position: crate::sym::subst(*position, put) }
        }
    }
}
