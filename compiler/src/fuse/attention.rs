//! Attention: weighted sums of values, the weights a softmax of products of queries and keys.
//!
//! Found among units: a contraction one factor of which is a quotient of powers and their sum, the powers of scores less the
//! greatest score of the row, and the scores made of the sums of another contraction by whatever is elementwise: a scale, a
//! cap, masks, conditions on indices. All of it becomes one unit, whose kernel never stores a whole row of scores.

use super::group::{Group, many};
use super::{Contract, Unit};
use crate::dtype::DType;
use crate::kernel::ir::Cmp;
use crate::lower::contract;
use crate::lower::emit::linearize;
use crate::sym::{Int, VarId, free_vars, linear_in, subst};
use crate::te::{Def, Expr, Func1, Func2, Node, ReduceKind, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// One attention.
#[derive(Clone)]
pub struct Attention {
    /// The weighted sums: a `Reduce` that is never stored, unless it is `out`.
    pub sum: TensorId,
    /// The tensor that is stored.
    pub out: TensorId,
    /// Its element in terms of the indices below, with a load of `sum` for the finished sum.
    pub epilogue: Expr,
    /// Row-major position of the element in the memory that holds `out`.
    pub position: Int,
    /// Indices of batches, heads and the like.
    pub batch: Vec<VarId>,
    /// Index of the queries of one batch.
    pub row: VarId,
    /// Index of the keys.
    pub key: VarId,
    /// Index that products of queries and keys are summed over.
    pub depth: VarId,
    /// Index of the features of values.
    pub feature: VarId,
    /// Queries, keys and values: tensor and row-major position of the element.
    pub query: (TensorId, Int),
    /// Linear in key and depth.
    pub keys: (TensorId, Int),
    /// Linear in key and feature.
    pub values: (TensorId, Int),
    /// Stands for the product of a query and a key in `score`.
    pub product: TensorId,
    /// The score, with loads at row-major positions.
    pub score: Expr,
    /// Type to which powers of scores are rounded.
    pub rounded: DType,
    /// A row of minus infinities has powers of 0, not of NaN.
    pub guarded: bool,
    /// Stands for the sum of powers in `divisor`.
    pub total: TensorId,
    /// What powers are divided by, with loads at row-major positions.
    pub divisor: Expr,
    /// A row whose weights are NaN has weights of 0.
    pub forgiven: bool,
}

/// Fewest keys, and fewest queries, for which a kernel of its own pays.
const FEW: i64 = 8;
/// Most features and most products summed: blocks of them are held in the cache.
const WIDE: i64 = 512;
/// Largest expression of a score.
const MOST_NODES: usize = 400;

/// Replaces contractions that are attentions, with all that they take in.
pub(super) fn find(g: &Group<'_>, units: &mut BTreeMap<TensorId, Unit>) {
    let sums: Vec<TensorId> = units.iter().filter(|(_, u)| matches!(u, Unit::Contract(_))).map(|(t, _)| *t).collect();
    for out in sums {
        let Some(Unit::Contract(Contract { sum, out, epilogue, position })) = units.get(&out).cloned() else {
            continue;
        };
        let Some((attention, taken)) = recognise(g, sum, out, epilogue, position) else { continue };
        for t in taken {
            units.remove(&t);
        }
        units.insert(out, Unit::Attention(Box::new(attention)));
    }
}

/// An index along an axis of one element is 0.
fn plain(i: Int) -> Int {
    subst(i, &|v| (v.extent() == Some(Int::new(1))).then(|| Int::new(0)))
}

/// What a search has found.
struct Search<'a> {
    g: &'a Group<'a>,
    product: TensorId,
    /// Tensors whose definition leads to the product.
    leads: BTreeMap<TensorId, bool>,
    /// Tensors that the unit takes in.
    taken: BTreeSet<TensorId>,
}

impl Search<'_> {
    /// Does the definition of `t` lead to the product, through maps, views and reductions?
    fn leads(&mut self, t: TensorId) -> bool {
        if t == self.product {
            return true;
        }
        if let Some(known) = self.leads.get(&t) {
            return *known;
        }
        let leads = match &self.g.p.tensor(t).def {
            Def::View(base) => self.leads(*base),
            Def::Map { body, .. } | Def::Reduce { body, .. } if !self.g.whole.contains(&t) => {
                expr::loads(*body).iter().any(|(t, _)| self.leads(*t))
            }
            _ => false,
        };
        self.leads.insert(t, leads);
        leads
    }

    /// `e` with maps that lead to the product written out, and with plain indices.
    fn open(&mut self, e: Expr) -> Expr {
        expr::map_loads(e, &mut |t, index, dtype| {
            let (s, at) = self.g.through_views(t, index);
            let at: Vec<Int> = at.into_iter().map(plain).collect();
            if !self.leads(s) {
                let index = index.iter().map(|i| plain(*i)).collect();
                return Some(expr::load_as(t, dtype, index));
            }
            self.taken.insert(s);
            match &self.g.p.tensor(s).def {
                Def::Map { vars, body } => {
                    let body = expr::subst_vars(*body, &|v| vars.iter().position(|x| *x == v).map(|k| at[k]));
                    let body = self.open(body);
                    let stored = self.g.p.tensor(s).dtype;
                    Some(if stored.is_float() { expr::cast(stored, body) } else { body })
                }
                _ => Some(expr::load_as(s, dtype, at)),
            }
        })
    }

    /// What reduction `t` combines at `index`, its one reduced index being `key`.
    fn combined(&mut self, t: TensorId, index: &[Int], kind: ReduceKind, key: VarId) -> Option<Expr> {
        let Def::Reduce { vars, rvars, kind: own, body } = &self.g.p.tensor(t).def else { return None };
        let &[only] = many(rvars).as_slice() else { return None };
        if *own != kind || only.extent() != key.extent() {
            return None;
        }
        let put = |v: VarId| {
            let at = vars.iter().position(|x| *x == v).map(|k| index[k]);
            at.or_else(|| (v == only).then(|| Int::var(key)))
        };
        Some(self.open(expr::subst_vars(*body, &put)))
    }
}

/// Without conversions between types of numbers.
fn uncast(e: Expr) -> (Expr, DType) {
    match e.node() {
        Node::Cast(to, inner) if to.is_float() && inner.dtype() == e.dtype() => (uncast(inner).0, to),
        _ => (e, e.dtype()),
    }
}

fn is_number(e: Expr, v: f64) -> bool {
    e == e.num(v)
}

/// The quotient that a weight is, as powers and divisor, and whether NaN is taken for 0.
fn quotient(e: Expr) -> Option<(Expr, Expr, bool)> {
    match uncast(e).0.node() {
        Node::Bin(Func2::Div, power, divisor) => Some((power, divisor, false)),
        Node::Select(c, zero, x) if is_number(zero, 0.0) && c == x.is_nan() => {
            let (power, divisor, _) = quotient(x)?;
            Some((power, divisor, true))
        }
        _ => None,
    }
}

/// The score and the load of the greatest one in `exp(score - greatest)`, and whether minus infinity is replaced there.
fn power(e: Expr) -> Option<(Expr, (TensorId, Vec<Int>), bool)> {
    let Node::Un(Func1::Exp, less) = e.node() else { return None };
    let Node::Bin(Func2::Sub, score, most) = less.node() else { return None };
    match most.node() {
        Node::Load(t, index) => Some((score, (t, index), false)),
        Node::Select(c, zero, load) => {
            let Node::Load(t, index) = load.node() else { return None };
            let guard = c == expr::cmp(Cmp::Eq, load, load.num(f64::NEG_INFINITY)) && is_number(zero, 0.0);
            guard.then_some((score, (t, index), true))
        }
        _ => None,
    }
}

fn recognise(
    g: &Group<'_>,
    sum: TensorId,
    out: TensorId,
    epilogue: Expr,
    position: Int,
) -> Option<(Attention, BTreeSet<TensorId>)> {
    let p = g.p;
    let c = contract::recognise(p, sum)?;
    let &[key] = many(&c.rvars).as_slice() else { return None };
    [(&c.lhs, &c.rhs), (&c.rhs, &c.lhs)].into_iter().find_map(|(weight, value)| {
        let (weights, _) = g.through_views(weight.0, &weight.1);
        candidates(g, weights).into_iter().find_map(|product| {
            let mut s = Search { g, product, leads: BTreeMap::new(), taken: BTreeSet::new() };
            let weight = expr::load(weight.0, p.tensor(weight.0).dtype, weight.1.clone());
            let a = build(&mut s, sum, out, epilogue, position, &c.vars, key, weight, value)?;
            // Nobody else may need what is not stored.
            let by: BTreeSet<TensorId> = s.taken.iter().copied().chain([sum]).collect();
            let block = g.block_of.get(&sum);
            let private =
                s.taken.iter().all(|t| !g.whole.contains(t) && g.block_of.get(t) == block && g.only_read_by(*t, &by));
            private.then_some((a, s.taken))
        })
    })
}

/// Contractions from which the weights `t` may be made: those that maps and reductions lead to.
fn candidates(g: &Group<'_>, t: TensorId) -> Vec<TensorId> {
    let (mut out, mut seen, mut todo) = (vec![], BTreeSet::new(), vec![t]);
    while let Some(t) = todo.pop() {
        if !seen.insert(t) || seen.len() > 64 {
            continue;
        }
        match &g.p.tensor(t).def {
            Def::View(base) => todo.push(*base),
            Def::Reduce { .. } if contract::recognise(g.p, t).is_some() => out.push(t),
            Def::Map { body, .. } | Def::Reduce { body, .. } if !g.whole.contains(&t) => {
                todo.extend(expr::loads(*body).into_iter().map(|(t, _)| t));
            }
            _ => {}
        }
    }
    out
}

#[allow(clippy::too_many_arguments, reason = "the parts of one contraction")]
fn build(
    s: &mut Search<'_>,
    sum: TensorId,
    out: TensorId,
    epilogue: Expr,
    position: Int,
    vars: &[VarId],
    key: VarId,
    weight: Expr,
    value: &(TensorId, Vec<Int>),
) -> Option<Attention> {
    let p = s.g.p;
    let weight = s.open(weight);
    let (powers, divisor, forgiven) = quotient(weight)?;
    let (exp, rounded) = uncast(powers);
    let (score, (most, at), guarded) = power(exp)?;
    if expr::nodes(score).len() > MOST_NODES || s.combined(most, &at, ReduceKind::Max, key)? != score {
        return None;
    }
    // All that the divisor loads is one sum of these powers.
    let loaded = expr::loads(divisor);
    let [(total, at)] = loaded.as_slice() else { return None };
    if s.combined(*total, at, ReduceKind::Sum, key)? != powers {
        return None;
    }
    let made: Vec<(TensorId, Vec<Int>)> = expr::loads(score).into_iter().filter(|(t, _)| s.leads(*t)).collect();
    let [(product, at)] = made.as_slice() else { return None };
    if *product != s.product {
        return None;
    }
    let inner = contract::recognise(p, *product)?;
    let &[depth] = many(&inner.rvars).as_slice() else { return None };
    let element = |(t, index): &(TensorId, Vec<Int>), put: &dyn Fn(VarId) -> Option<Int>| {
        let index = index.iter().map(|i| plain(subst(*i, put))).collect();
        let load = linearize(p, expr::load(*t, p.tensor(*t).dtype, index), &|_| false);
        match load.node() {
            Node::Load(t, index) => Some((t, *index.first()?)),
            _ => None,
        }
    };
    let put = |v: VarId| inner.vars.iter().position(|x| *x == v).map(|k| at[k]);
    let (l, r) = (element(&inner.lhs, &put)?, element(&inner.rhs, &put)?);
    let values = element(value, &|_| None)?;
    let varies = |i: Int, v: VarId| free_vars(i).contains(&v);
    let (query, keys) = match (varies(l.1, key), varies(r.1, key)) {
        (false, true) => (l, r),
        (true, false) => (r, l),
        _ => return None,
    };
    let mut in_score = BTreeSet::new();
    expr::collect_vars(score, &mut in_score);
    let size = |v: VarId| v.extent().unwrap_or(Int::new(1));
    let vars = many(vars);
    let rows = vars.iter().copied().filter(|v| varies(query.1, *v) && !varies(keys.1, *v) && !varies(values.1, *v));
    let guess = |v: VarId| size(v).as_const().unwrap_or(i64::MAX);
    let row = rows.max_by_key(|v| guess(*v))?;
    let features: Vec<VarId> = vars
        .iter()
        .copied()
        .filter(|v| varies(values.1, *v) && !varies(query.1, *v) && !varies(keys.1, *v) && !in_score.contains(v))
        .collect();
    let &[feature] = features.as_slice() else { return None };
    let batch: Vec<VarId> = vars.iter().copied().filter(|v| ![row, feature].contains(v)).collect();
    // Steps that no index of the kernel changes.
    let steady = |i: Int, along: [VarId; 2]| {
        along.iter().all(|v| linear_in(i, *v).is_some_and(|(c, _)| along.iter().all(|v| !varies(c, *v))))
    };
    let known = |v: VarId| size(v).as_const().is_some_and(|n| (1..=WIDE).contains(&n));
    let enough = |v: VarId| size(v).as_const().is_none_or(|n| n >= FEW);
    let single = |t: DType| t.compute() == DType::F32;
    let types = [*product, sum, query.0, keys.0, values.0].map(|t| p.tensor(t).dtype);
    let fits = steady(keys.1, [key, depth])
        && steady(values.1, [key, feature])
        && known(depth)
        && known(feature)
        && enough(row)
        && enough(key)
        && types.into_iter().all(single)
        && score.dtype() == DType::F32;
    if !fits {
        return None;
    }
    let at_sum = expr::load(sum, p.tensor(sum).dtype, vec![Int::new(0)]);
    let epilogue = expr::map_loads(epilogue, &mut |t, _, _| (t == sum).then_some(at_sum));
    let epilogue = expr::subst_vars(epilogue, &|v| (plain(Int::var(v)) != Int::var(v)).then(|| Int::new(0)));
    let local = [sum, *product, *total];
    let flat = |e: Expr| linearize(p, e, &|t| local.contains(&t));
    Some(Attention {
        sum,
        out,
        epilogue: flat(epilogue),
        position: plain(position),
        batch,
        row,
        key,
        depth,
        feature,
        query,
        keys,
        values,
        product: *product,
        score: flat(score),
        rounded,
        guarded,
        total: *total,
        divisor: flat(divisor),
        forgiven,
    })
}
