//! What a loop's body need not do in every trip.
//!
//! Tensors that are the same in all trips are computed before the loop. A contraction that differs from trip to trip only
//! by the number of the trip (the input part of a recurrent cell) becomes one contraction over all trips, if it is known
//! that all of them are made. One that only a scan output needs (an output layer) is deferred: the loop gives out what it
//! is computed from, and one contraction over all trips follows the loop.

use crate::sym::{Int, VarId, subst};
use crate::te::cx::{index_of, index_vars};
use crate::te::program::{Def, Step};
use crate::te::{Block, Cx, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// The tensors of a body.
pub(super) struct Inside {
    /// Those that may differ from trip to trip.
    pub(super) varying: BTreeSet<TensorId>,
    /// Those of them that the body itself computes, not a block within.
    pub(super) own: BTreeSet<TensorId>,
}

/// Parts a body into what is done before the loop and what stays. Symbols above `mark` are the loop's own; `exact` is the
/// number of trips, if all of them are made.
pub(super) fn hoist(
    cx: &mut Cx,
    block: Block,
    mark: VarId,
    trip: VarId,
    exact: Option<Int>,
) -> (Vec<Step>, Block, Inside) {
    let mut h = Hoist { cx, mark, trip, varying: BTreeSet::new(), by_trip: BTreeSet::new(), lifted: BTreeMap::new() };
    let (mut before, mut rest) = (vec![], Block::default());
    let mut own = BTreeSet::new();
    for step in block.steps {
        let Step::Define(t) = step else {
            if let Step::If { .. } | Step::Loop(_) = &step {
                h.note_nested(&step);
            }
            rest.steps.push(step);
            continue;
        };
        match h.kind(t) {
            Kind::Fixed => {
                before.push(step);
                continue;
            }
            Kind::ByTrip => {
                h.by_trip.insert(t);
            }
            Kind::Varying => {}
        }
        h.varying.insert(t);
        if matches!(
            h.cx.program.tensor(t).def,
            Def::Map { .. } | Def::Reduce { .. } | Def::Fold { .. } | Def::Custom(..)
        ) {
            own.insert(t);
        }
        rest.steps.push(step);
    }
    if let Some(exact) = exact {
        let sums: Vec<TensorId> = h.by_trip.iter().copied().filter(|t| h.is_contraction(*t)).collect();
        h.cx.begin_block();
        for t in sums {
            h.lift_contraction(t, exact);
        }
        before.extend(h.cx.end_block().steps);
    }
    (before, rest, Inside { varying: h.varying, own })
}

/// A scan output that is computed after the loop.
pub(super) struct Deferred {
    /// What need not be computed in the loop.
    tensors: BTreeSet<TensorId>,
    /// What the loop gives out in its place.
    pub(super) sources: Vec<TensorId>,
}

/// How much more than the scan output itself its sources may be.
const MOST_SOURCES: i64 = 4;

/// Can a scan output be computed after the loop, and is it worth it: does that take a contraction out of the loop?
/// `needed` are the tensors that the loop needs besides.
pub(super) fn defer(
    cx: &Cx,
    body: &Block,
    inside: &Inside,
    needed: &BTreeSet<TensorId>,
    element: TensorId,
    is_inner: &dyn Fn(VarId) -> bool,
    trip: VarId,
) -> Option<Deferred> {
    let mut readers: BTreeMap<TensorId, BTreeSet<TensorId>> = BTreeMap::new();
    let mut kept = needed.clone();
    note_readers(cx, body, true, &mut readers, &mut kept);
    kept.extend(cx.program.data_vars.values().map(|(t, _)| *t));
    let mut d = Deferred { tensors: BTreeSet::new(), sources: vec![] };
    let mut todo = vec![element];
    while let Some(t) = todo.pop() {
        if d.tensors.contains(&t) || d.sources.contains(&t) || !inside.varying.contains(&t) {
            continue;
        }
        let tensor = cx.program.tensor(t);
        let only_here = readers.get(&t).is_none_or(|rs| rs.iter().all(|r| d.tensors.contains(r)));
        let mut vars = BTreeSet::new();
        let mut own: Vec<VarId> = vec![];
        let mut sources = vec![];
        let mut plain = true;
        match &tensor.def {
            Def::View(base) => sources.push(*base),
            Def::Map { vars: v, .. } => own.extend(v),
            Def::Reduce { vars: v, rvars, .. } => own.extend(v.iter().chain(rvars)),
            _ => plain = false,
        }
        for e in crate::fuse::uses::exprs(&tensor.def) {
            expr::collect_vars(e, &mut vars);
            for (source, index) in expr::loads(e) {
                sources.push(source);
                plain &= !index.iter().any(|i| has_data(*i));
            }
        }
        let changes = |v: &VarId| *v != trip && !own.contains(v) && is_inner(*v);
        if plain && only_here && !kept.contains(&t) && !vars.iter().any(changes) {
            d.tensors.insert(t);
            todo.extend(sources);
        } else if t != element && inside.own.contains(&t) {
            d.sources.push(t);
        } else {
            return None;
        }
    }
    let size = |t: &TensorId| cx.numel(*t).as_const();
    let sources = d.sources.iter().map(size).sum::<Option<i64>>()?;
    let contraction = |t: &TensorId| crate::lower::contract::recognise(&cx.program, *t).is_some();
    let worth = sources > 0 && sources <= size(&element)?.checked_mul(MOST_SOURCES)?;
    (worth && d.tensors.iter().any(contraction)).then_some(d)
}

fn note_readers(
    cx: &Cx,
    block: &Block,
    top: bool,
    readers: &mut BTreeMap<TensorId, BTreeSet<TensorId>>,
    kept: &mut BTreeSet<TensorId>,
) {
    for step in &block.steps {
        match step {
            Step::Define(t) => {
                let def = &cx.program.tensor(*t).def;
                let mut sources: Vec<TensorId> =
                    crate::fuse::uses::exprs(def).iter().flat_map(|e| expr::loads(*e)).map(|(s, _)| s).collect();
                match def {
                    Def::View(base) => sources.push(*base),
                    Def::Custom(c, _) => sources.extend(&c.inputs),
                    _ => {}
                }
                for s in sources {
                    readers.entry(s).or_default().insert(*t);
                    if !top {
                        kept.insert(s);
                    }
                }
            }
            Step::Check(_) => {}
            Step::If { then, then_results, other, other_results, .. } => {
                kept.extend(then_results.iter().chain(other_results));
                note_readers(cx, then, false, readers, kept);
                note_readers(cx, other, false, readers, kept);
            }
            Step::Loop(l) => {
                kept.extend(l.carried.iter().flat_map(|c| [c.init, c.next]).chain(l.scans.iter().map(|s| s.element)));
                note_readers(cx, &l.body, false, readers, kept);
            }
        }
    }
}

/// A deferred scan output, of which `given` holds the sources' values in all `trips`.
pub(super) fn compute_deferred(
    cx: &mut Cx,
    d: &Deferred,
    element: TensorId,
    given: BTreeMap<TensorId, TensorId>,
    (mark, trip): (VarId, VarId),
    trips: Int,
) -> TensorId {
    let by_trip = d.tensors.iter().chain(&d.sources).copied().collect();
    let mut h = Hoist { cx, mark, trip, varying: BTreeSet::new(), by_trip, lifted: given };
    h.lift(element, trips)
}

/// How a tensor differs between trips.
enum Kind {
    Fixed,
    /// By the number of the trip alone.
    ByTrip,
    Varying,
}

struct Hoist<'c> {
    cx: &'c mut Cx,
    mark: VarId,
    trip: VarId,
    varying: BTreeSet<TensorId>,
    /// Those of `varying` that are a function of the trip's number.
    by_trip: BTreeSet<TensorId>,
    /// All trips' values of a tensor.
    lifted: BTreeMap<TensorId, TensorId>,
}

impl Hoist<'_> {
    fn note_nested(&mut self, step: &Step) {
        let results: Vec<TensorId> = match step {
            Step::If { results, .. } => results.clone(),
            Step::Loop(l) => l.carried.iter().map(|c| c.result).chain(l.scans.iter().map(|s| s.result)).collect(),
            Step::Define(_) | Step::Check(_) => vec![],
        };
        for t in results {
            self.varying.insert(t);
            self.by_trip.remove(&t);
        }
    }

    fn kind(&self, t: TensorId) -> Kind {
        let tensor = self.cx.program.tensor(t);
        let mut vars = BTreeSet::new();
        let mut own: Vec<VarId> = vec![];
        let mut sources = vec![];
        match &tensor.def {
            Def::Const(_) => return Kind::Fixed,
            Def::View(base) => sources.push(*base),
            Def::Map { vars: v, .. } => own.extend(v),
            Def::Reduce { vars: v, rvars, .. } | Def::Fold { vars: v, rvars, .. } => own.extend(v.iter().chain(rvars)),
            Def::Input(_) | Def::Custom(..) | Def::Slot | Def::Parts(_) | Def::Assembled { .. } => {
                return Kind::Varying;
            }
        }
        tensor.shape.iter().for_each(|d| vars.extend(crate::sym::free_vars(*d)));
        own.iter().filter_map(|v| v.extent()).for_each(|e| vars.extend(crate::sym::free_vars(e)));
        let in_shape = vars.clone();
        for e in crate::fuse::uses::exprs(&tensor.def) {
            expr::collect_vars(e, &mut vars);
            for (source, index) in expr::loads(e) {
                sources.push(source);
                // An index from data may be wrong, and then the trip must fail, not what comes before the loop.
                if index.iter().any(|i| has_data(*i)) {
                    return Kind::Varying;
                }
            }
        }
        let mut kind = Kind::Fixed;
        for v in vars.iter().filter(|v| **v > self.mark && !own.contains(v)) {
            match self.cx.program.data_vars.get(v) {
                Some((source, _)) if !self.varying.contains(source) => {}
                None if *v == self.trip && !in_shape.contains(v) => kind = Kind::ByTrip,
                _ => return Kind::Varying,
            }
        }
        for s in sources {
            if self.by_trip.contains(&s) {
                kind = Kind::ByTrip;
            } else if self.varying.contains(&s) {
                return Kind::Varying;
            }
        }
        kind
    }

    fn is_contraction(&self, t: TensorId) -> bool {
        crate::lower::contract::recognise(&self.cx.program, t).is_some()
    }

    /// Computes a contraction for all trips at once; in the loop it is read.
    fn lift_contraction(&mut self, t: TensorId, trips: Int) {
        let all = self.lift(t, trips);
        let (dtype, shape) = (self.cx.dtype(t), self.cx.shape(t));
        let vars = index_vars("i", &shape);
        let at = [&[Int::var(self.trip)][..], &index_of(&vars)].concat();
        self.cx.program.tensors[t.0 as usize].def = Def::Map { vars, body: expr::load(all, dtype, at) };
    }

    /// The values of `t` in all trips, along a new first axis.
    fn lift(&mut self, t: TensorId, trips: Int) -> TensorId {
        if !self.by_trip.contains(&t) {
            return t;
        }
        if let Some(all) = self.lifted.get(&t) {
            return *all;
        }
        let tensor = self.cx.program.tensor(t).clone();
        let shape = [&[trips][..], &tensor.shape].concat();
        let lead = index_vars("trip", &[trips])[0];
        let number = index_of(&[lead])[0];
        let def = match tensor.def {
            Def::View(base) => Def::View(self.lift(base, trips)),
            Def::Map { vars, body } => {
                let body = self.lift_expr(body, number, trips);
                Def::Map { vars: [&[lead][..], &vars].concat(), body }
            }
            Def::Reduce { vars, rvars, kind, body } => {
                let body = self.lift_expr(body, number, trips);
                Def::Reduce { vars: [&[lead][..], &vars].concat(), rvars, kind, body }
            }
            Def::Fold { vars, rvars, init, step, result } => {
                let mut all = |es: Vec<expr::Expr>| -> Vec<expr::Expr> {
                    es.into_iter().map(|e| self.lift_expr(e, number, trips)).collect()
                };
                let (init, step) = (all(init), all(step));
                let result = self.lift_expr(result, number, trips);
                Def::Fold { vars: [&[lead][..], &vars].concat(), rvars, init, step, result }
            }
            _ => return t,
        };
        self.cx.node.clone_from(&tensor.node);
        let all = self.cx.define(tensor.dtype, shape, def);
        self.lifted.insert(t, all);
        all
    }

    fn lift_expr(&mut self, e: expr::Expr, number: Int, trips: Int) -> expr::Expr {
        let mut moved = BTreeMap::new();
        for (source, _) in expr::loads(e) {
            if self.by_trip.contains(&source) {
                let all = self.lift(source, trips);
                moved.insert(source, all);
            }
        }
        let trip = self.trip;
        let put = |v: VarId| (v == trip).then_some(number);
        expr::map_loads(expr::subst_vars(e, &put), &mut |source, index, dtype| {
            let all = moved.get(&source)?;
            let at = [&[number][..], &index.iter().map(|i| subst(*i, &put)).collect::<Vec<Int>>()].concat();
            Some(expr::load(*all, dtype, at))
        })
    }
}

/// Does `i` need tensor data?
fn has_data(i: Int) -> bool {
    let mut any = false;
    crate::sym::map_data(i, &mut |_| {
        any = true;
        Int::new(0)
    });
    any
}
