//! Stored tensors to kernels.

use super::{Contract, Fold, Nest, Stage, Step, Unit, uses::exprs};
use crate::lower::contract;
use crate::sym::{Atom, Int, VarId};
use crate::te::cx::{index_of, reindex};
use crate::te::{self, Block, Def, Expr, Program, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) struct Group<'a> {
    pub(super) p: &'a Program,
    stored: &'a BTreeSet<TensorId>,
    /// Readers among stored tensors, after inlining.
    readers: BTreeMap<TensorId, BTreeSet<TensorId>>,
    /// Tensors that must lie in memory.
    pub(super) whole: BTreeSet<TensorId>,
    /// Number of the block in which each tensor is defined.
    pub(super) block_of: BTreeMap<TensorId, usize>,
    /// Reductions that another unit computes.
    absorbed: BTreeSet<TensorId>,
    units: BTreeMap<TensorId, Unit>,
}

/// Groups all stored tensors; `p` is the inlined program.
pub fn group(p: &Program, stored: &BTreeSet<TensorId>) -> Vec<Step> {
    let uses = super::uses::find(p);
    let mut g = Group {
        p,
        stored,
        readers: uses.readers,
        whole: uses.whole,
        block_of: super::uses::blocks(p),
        absorbed: BTreeSet::new(),
        units: BTreeMap::new(),
    };
    let live: Vec<TensorId> = uses.live.iter().copied().filter(|t| stored.contains(t)).collect();
    // Maps first: they take the reductions that only they read. Then reductions take reductions.
    for t in &live {
        if matches!(p.tensor(*t).def, Def::Map { .. }) {
            let unit = g.contraction(*t).unwrap_or_else(|| Unit::Nest(g.nest(*t)));
            g.units.insert(*t, unit);
        } else if let Def::Assembled { pieces, .. } = &p.tensor(*t).def
            && !pieces.is_empty()
        {
            g.units.insert(*t, Unit::Pieces(*t, pieces.clone()));
        }
    }
    for t in live.iter().rev() {
        if matches!(p.tensor(*t).def, Def::Reduce { .. } | Def::Fold { .. }) && !g.absorbed.contains(t) {
            let unit = g.bare_contraction(*t).unwrap_or_else(|| Unit::Nest(g.nest(*t)));
            g.units.insert(*t, unit);
        }
    }
    let mut units = std::mem::take(&mut g.units);
    super::attention::find(&g, &mut units);
    super::merge::merge(&g, &mut units);
    g.units = units;
    let live: BTreeSet<TensorId> = live.into_iter().collect();
    g.steps(&p.main, &live)
}

impl Group<'_> {
    fn steps(&mut self, b: &Block, live: &BTreeSet<TensorId>) -> Vec<Step> {
        let mut out = vec![];
        let mut done: Vec<*const te::Custom> = vec![];
        for step in &b.steps {
            match step {
                te::Step::Define(t) if live.contains(t) => {
                    if let Some(unit) = self.units.remove(t) {
                        out.push(Step::Run(unit));
                    } else if let Def::Custom(c, _) = &self.p.tensor(*t).def
                        && !done.contains(&Arc::as_ptr(c))
                    {
                        done.push(Arc::as_ptr(c));
                        out.push(Step::Run(Unit::Custom(c.clone(), self.outputs_of(c))));
                    }
                }
                te::Step::Define(_) => {}
                te::Step::Check(c) => out.push(Step::Check(c.clone())),
                te::Step::If { cond, then, then_results, other, other_results, results, dims } => {
                    out.push(Step::If {
                        cond: *cond,
                        then: self.steps(then, live),
                        then_results: then_results.clone(),
                        other: self.steps(other, live),
                        other_results: other_results.clone(),
                        results: results.clone(),
                        dims: dims.clone(),
                    });
                }
                te::Step::Loop(l) => {
                    let body = self.steps(&l.body, live);
                    out.push(Step::Loop(Box::new(te::Loop { body: Block::default(), ..(**l).clone() }), body));
                }
            }
        }
        out
    }

    /// All outputs of a hand-written kernel, used or not, in order.
    fn outputs_of(&self, c: &Arc<te::Custom>) -> Vec<TensorId> {
        let mut out = vec![TensorId(0); c.outputs.len()];
        for (k, t) in self.p.tensors.iter().enumerate() {
            if let Def::Custom(d, n) = &t.def
                && Arc::ptr_eq(c, d)
            {
                out[*n] = TensorId(k as u32);
            }
        }
        out
    }

    /// The tensor and index that a load really reads: views are seen through.
    pub(super) fn through_views(&self, t: TensorId, index: &[Int]) -> (TensorId, Vec<Int>) {
        match self.p.tensor(t).def {
            Def::View(base) => {
                let at = reindex(&self.p.tensor(t).shape, &self.p.tensor(base).shape, index);
                self.through_views(base, &at)
            }
            _ => (t, index.to_vec()),
        }
    }

    /// Do only `by` (and views read by them) read `t`?
    pub(super) fn only_read_by(&self, t: TensorId, by: &BTreeSet<TensorId>) -> bool {
        self.readers.get(&t).is_some_and(|rs| {
            rs.iter().all(|r| {
                by.contains(r)
                    || (matches!(self.p.tensor(*r).def, Def::View(_))
                        && !self.whole.contains(r)
                        && self.only_read_by(*r, by))
            })
        })
    }

    fn count(&self, t: TensorId) -> Int {
        Int::product(&self.p.tensor(t).shape)
    }

    fn bare_contraction(&self, sum: TensorId) -> Option<Unit> {
        contract::recognise(self.p, sum)?;
        let Def::Reduce { vars, .. } = &self.p.tensor(sum).def else { return None };
        let at = index_of(vars);
        let tensor = self.p.tensor(sum);
        Some(Unit::Contract(Contract {
            sum,
            out: sum,
            epilogue: expr::load(sum, tensor.dtype, at.clone()),
            position: self.p.position(sum, &at),
        }))
    }

    /// A map over a contraction's sums, element by element.
    fn contraction(&mut self, m: TensorId) -> Option<Unit> {
        let tensor = self.p.tensor(m);
        let Def::Map { vars, body } = &tensor.def else { return None };
        let by = BTreeSet::from([m]);
        for (t, index) in expr::loads(*body) {
            let sum = match self.p.tensor(t).def {
                Def::View(base) => base,
                _ => t,
            };
            let Def::Reduce { vars: svars, .. } = &self.p.tensor(sum).def else { continue };
            if self.absorbed.contains(&sum)
                || self.whole.contains(&sum)
                || self.block_of.get(&sum) != self.block_of.get(&m)
                || !self.only_read_by(sum, &by)
                || contract::recognise(self.p, sum).is_none()
                || self.count(sum).eq_proof(self.count(m)) != Some(true)
            {
                continue;
            }
            // A map that reads the sums in a part of its space only (a concatenation) has other elements, too.
            let Some(axes) = permuted(&index, vars, &self.p.tensor(t).shape) else { continue };
            // The map's index in terms of the sum's.
            let at = index_of(svars);
            let read = reindex(&self.p.tensor(sum).shape, &self.p.tensor(t).shape, &at);
            let moved: Vec<Int> = axes.iter().map(|k| k.map_or(Int::new(0), |k| read[k])).collect();
            if moved.iter().any(|i| divides(*i)) {
                continue;
            }
            let e = expr::subst_vars(*body, &|v| vars.iter().position(|x| *x == v).map(|k| moved[k]));
            let load = expr::load(sum, self.p.tensor(sum).dtype, at.clone());
            // Every other load of the sum would need another element.
            let mut other = false;
            let e = expr::map_loads(e, &mut |t, index, _| {
                let (s, i) = self.through_views(t, index);
                if s != sum {
                    return None;
                }
                other |= i != at;
                Some(load)
            });
            if other {
                continue;
            }
            self.absorbed.insert(sum);
            let position = self.p.position(m, &moved);
            return Some(Unit::Contract(Contract { sum, out: m, epilogue: e, position }));
        }
        None
    }

    /// A nest for a map or a reduction, with the reductions that it alone reads once for each outer index.
    fn nest(&mut self, root: TensorId) -> Nest {
        let tensor = self.p.tensor(root);
        let (vars, root_is_map) = match &tensor.def {
            Def::Map { vars, .. } => (vars.clone(), true),
            Def::Reduce { vars, .. } | Def::Fold { vars, .. } => (vars.clone(), false),
            _ => unreachable!("only maps, reductions and folds are nests"),
        };
        let mut found: BTreeMap<TensorId, Vec<Int>> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for e in exprs(&tensor.def) {
            self.candidates(root, e, &vars, &mut found, &mut refused);
        }
        found.retain(|t, _| !refused.contains(t));
        // One set of outer variables for all: the largest that occurs; a reduction root fixes its own.
        let used = |index: &Vec<Int>| index.iter().filter_map(|i| i.as_var()).collect::<BTreeSet<VarId>>();
        let many: BTreeSet<VarId> = vars.iter().copied().filter(|v| v.extent() != Some(Int::new(1))).collect();
        let outer: BTreeSet<VarId> = if root_is_map {
            found.values().map(used).max_by_key(BTreeSet::len).unwrap_or_else(|| many.clone())
        } else {
            many
        };
        found.retain(|_, index| used(index) == outer);
        loop {
            let mut inside: BTreeSet<TensorId> = found.keys().copied().collect();
            inside.insert(root);
            let drop: Vec<TensorId> = found.keys().copied().filter(|t| !self.only_read_by(*t, &inside)).collect();
            if drop.is_empty() {
                break;
            }
            for t in drop {
                found.remove(&t);
            }
        }
        let outer = if root_is_map && found.is_empty() { vars.iter().copied().collect() } else { outer };
        let mut stages = vec![];
        for (t, index) in &found {
            self.absorbed.insert(*t);
            stages.push(self.reduction(*t, index, &found));
        }
        let outer_vars: Vec<VarId> = vars.iter().copied().filter(|v| outer.contains(v)).collect();
        let at = index_of(&vars);
        let position = self.p.position(root, &at);
        match &tensor.def {
            Def::Map { body, .. } => {
                let inner =
                    vars.iter().copied().filter(|v| !outer.contains(v) && v.extent() != Some(Int::new(1))).collect();
                let body = self.localize(*body, &found);
                stages.push(Stage::Store { id: root, inner, body, position });
            }
            _ => {
                stages.push(self.reduction(root, &at, &found));
                let body = expr::load(root, tensor.dtype, at.clone());
                stages.push(Stage::Store { id: root, inner: vec![], body, position });
            }
        }
        let outer_vars = outer_vars.into_iter().filter(|v| v.extent() != Some(Int::new(1))).collect();
        Nest { vars: outer_vars, stages }
    }

    /// Reductions that `e` loads at an index made of the root's variables alone, and those that these load.
    fn candidates(
        &self,
        root: TensorId,
        e: Expr,
        vars: &[VarId],
        found: &mut BTreeMap<TensorId, Vec<Int>>,
        refused: &mut BTreeSet<TensorId>,
    ) {
        for (t, index) in expr::loads(e) {
            let (t, index) = self.through_views(t, &index);
            let def = &self.p.tensor(t).def;
            let (Def::Reduce { vars: own, .. } | Def::Fold { vars: own, .. }) = def else { continue };
            if self.absorbed.contains(&t)
                || self.whole.contains(&t)
                || !self.stored.contains(&t)
                || contract::recognise(self.p, t).is_some()
                || self.block_of.get(&t) != self.block_of.get(&root)
            {
                refused.insert(t);
                continue;
            }
            let mut seen = BTreeSet::new();
            let fits = index.iter().zip(own).all(|(i, o)| match i.as_var() {
                Some(v) => vars.contains(&v) && v.extent() == o.extent() && seen.insert(v),
                None => i.as_const() == Some(0) && o.extent() == Some(Int::new(1)),
            });
            match found.get(&t) {
                _ if !fits => {
                    refused.insert(t);
                }
                Some(known) if *known != index => {
                    refused.insert(t);
                }
                Some(_) => {}
                None => {
                    found.insert(t, index.clone());
                    for e in exprs(def) {
                        let e = expr::subst_vars(e, &|v| own.iter().position(|x| *x == v).map(|k| index[k]));
                        self.candidates(root, e, vars, found, refused);
                    }
                }
            }
        }
    }

    /// Loads of absorbed reductions by their own number, whatever view they go through.
    fn localize(&self, e: Expr, found: &BTreeMap<TensorId, Vec<Int>>) -> Expr {
        expr::map_loads(e, &mut |t, index, _| {
            let (s, i) = self.through_views(t, index);
            found.contains_key(&s).then(|| expr::load(s, self.p.tensor(s).dtype, i))
        })
    }

    fn reduction(&self, t: TensorId, index: &[Int], found: &BTreeMap<TensorId, Vec<Int>>) -> Stage {
        let put = |e: Expr, own: &[VarId]| {
            let e = expr::subst_vars(e, &|v| own.iter().position(|x| *x == v).map(|k| index[k]));
            self.localize(e, found)
        };
        match &self.p.tensor(t).def {
            Def::Reduce { vars, rvars, kind, body } => {
                Stage::Reduce { id: t, rvars: many(rvars), fold: Fold::Reduce(*kind, put(*body, vars)) }
            }
            Def::Fold { vars, rvars, init, step, result } => {
                let all = |es: &[Expr]| es.iter().map(|e| put(*e, vars)).collect();
                Stage::Reduce {
                    id: t,
                    rvars: many(rvars),
                    fold: Fold::Ordered(all(init), all(step), put(*result, vars)),
                }
            }
            _ => unreachable!("only reductions and folds are absorbed"),
        }
    }
}

/// For each of `vars` the axis of a tensor of `shape`, read at `index`, that it runs along, where the index goes through all
/// elements once; variables of one value run along none.
fn permuted(index: &[Int], vars: &[VarId], shape: &[Int]) -> Option<Vec<Option<usize>>> {
    let axes = vars.iter().map(|v| index.iter().position(|i| i.as_var() == Some(*v)));
    let axes: Vec<Option<usize>> = axes.collect();
    let whole = vars.iter().zip(&axes).all(|(v, k)| match k {
        Some(k) => v.extent() == Some(shape[*k]),
        None => v.extent() == Some(Int::new(1)),
    });
    let used = axes.iter().flatten().count();
    let rest = (0..index.len()).filter(|k| !axes.contains(&Some(*k)));
    let fixed = rest.clone().all(|k| shape[k] == Int::new(1) && index[k] == Int::new(0));
    (whole && fixed && used + rest.count() == index.len()).then_some(axes)
}

/// Variables with more than one value.
pub(super) fn many(vars: &[VarId]) -> Vec<VarId> {
    vars.iter().copied().filter(|v| v.extent() != Some(Int::new(1))).collect()
}

fn divides(i: Int) -> bool {
    i.terms().iter().any(|(_, atoms)| atoms.iter().any(|a| !matches!(a, Atom::Var(_))))
}

/// A nest that computes a reduction or a fold alone.
pub(crate) fn reduction_nest(p: &Program, t: TensorId) -> Option<Nest> {
    let tensor = p.tensor(t);
    let (vars, rvars, fold) = match &tensor.def {
        Def::Reduce { vars, rvars, kind, body } => (vars, rvars, Fold::Reduce(*kind, *body)),
        Def::Fold { vars, rvars, init, step, result } => {
            (vars, rvars, Fold::Ordered(init.clone(), step.clone(), *result))
        }
        _ => return None,
    };
    let at = index_of(vars);
    let body = expr::load(t, tensor.dtype, at.clone());
    let position = p.position(t, &at);
    Some(Nest {
        vars: many(vars),
        stages: vec![
            Stage::Reduce { id: t, rvars: many(rvars), fold },
            Stage::Store { id: t, inner: vec![], body, position },
        ],
    })
}

/// A nest that does what a contraction does, for shapes that no contraction schedule takes.
pub fn as_nest(p: &Program, c: &Contract) -> Option<Nest> {
    let Contract { sum, out, epilogue, position } = *c;
    let Def::Reduce { vars, rvars, kind, body } = &p.tensor(sum).def else { return None };
    Some(Nest {
        vars: many(vars),
        stages: vec![
            Stage::Reduce { id: sum, rvars: many(rvars), fold: Fold::Reduce(*kind, *body) },
            Stage::Store { id: out, inner: vec![], body: epilogue, position },
        ],
    })
}
