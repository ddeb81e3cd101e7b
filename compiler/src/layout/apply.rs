//! Rewriting a program so that tensors lie in the orders chosen for them.

use super::order::{self, Order};
use super::spread::base;
use crate::sym::Int;
use crate::te::cx::{index_of, index_vars};
use crate::te::{Block, Def, Expr, Program, Step, Tensor, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

fn put<T: Copy>(order: &[usize], list: &[T]) -> Vec<T> {
    order.iter().map(|k| list[*k]).collect()
}

/// Reorders axes, indices and loads. `orders` names tensors that have an index; `whole` those that are read as they lie by
/// others than loads. Gives the number of copies in the axes' own order that views made necessary.
pub(super) fn apply(p: &mut Program, mut orders: BTreeMap<TensorId, Order>, whole: &BTreeSet<TensorId>) -> usize {
    // Views first: they lie as what they are views of does, or are views of a copy.
    let mut copies: BTreeMap<TensorId, TensorId> = BTreeMap::new();
    for k in 0..p.tensors.len() {
        let view = TensorId(k as u32);
        let of = base(p, view);
        let (false, Some(order)) = (of == view, orders.get(&of)) else { continue };
        let (from, to) = (p.tensor(of).shape.clone(), p.tensor(view).shape.clone());
        match order::through(order, &from, &to) {
            Some(order) if !order::moves(&order, &to) => {}
            Some(order) if !whole.contains(&view) => {
                orders.insert(view, order);
            }
            _ => {
                let copy = *copies.entry(of).or_insert_with(|| copy(p, of));
                p.tensors[k].def = Def::View(copy);
            }
        }
    }
    insert(&mut p.main, &copies);
    let body = |e: Expr| {
        expr::map_loads(e, &mut |t, index, dtype| {
            orders.get(&t).map(|order| expr::load_as(t, dtype, put(order, index)))
        })
    };
    let all = |es: Vec<Expr>| es.into_iter().map(body).collect();
    for k in 0..p.tensors.len() {
        let rank = p.tensors[k].shape.len();
        let order = orders.get(&TensorId(k as u32)).cloned().unwrap_or_else(|| order::plain(rank));
        let tensor = &mut p.tensors[k];
        tensor.shape = put(&order, &tensor.shape);
        tensor.def = match core::mem::replace(&mut tensor.def, Def::Slot) {
            Def::Map { vars, body: e } => Def::Map { vars: put(&order, &vars), body: body(e) },
            Def::Reduce { vars, rvars, kind, body: e } => {
                Def::Reduce { vars: put(&order, &vars), rvars, kind, body: body(e) }
            }
            Def::Fold { vars, rvars, init, step, result } => {
                Def::Fold { vars: put(&order, &vars), rvars, init: all(init), step: all(step), result: body(result) }
            }
            other => other,
        };
    }
    copies.len()
}

/// A copy of `t` that lies in the order of its axes.
fn copy(p: &mut Program, t: TensorId) -> TensorId {
    let Tensor { name, node, dtype, shape, .. } = p.tensor(t).clone();
    let vars = index_vars("i", &shape);
    let index: Vec<Int> = index_of(&vars);
    let def = Def::Map { vars, body: expr::load(t, dtype, index) };
    p.tensors.push(Tensor { name, node, dtype, shape, def });
    TensorId(p.tensors.len() as u32 - 1)
}

/// Defines the copies where their originals are defined.
fn insert(b: &mut Block, copies: &BTreeMap<TensorId, TensorId>) {
    let mut steps = vec![];
    for mut step in core::mem::take(&mut b.steps) {
        let mut after = None;
        match &mut step {
            Step::Define(t) => after = copies.get(t).map(|c| Step::Define(*c)),
            Step::Check(_) => {}
            Step::If { then, other, .. } => {
                insert(then, copies);
                insert(other, copies);
            }
            Step::Loop(l) => insert(&mut l.body, copies),
        }
        steps.push(step);
        steps.extend(after);
    }
    b.steps = steps;
}
