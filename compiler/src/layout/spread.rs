//! Orders spread from the tensors that contractions ask for to those that are read with them.

use super::order::{self, Order};
use super::votes;
use crate::fuse::uses::{self, exprs};
use crate::sym::{Int, VarId, map_data};
use crate::te::{Block, Check, Def, Program, Step, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Loads of a tensor: who, and at which index.
type Readers = BTreeMap<TensorId, Vec<(TensorId, Vec<Int>)>>;

struct Spread<'a> {
    p: &'a Program,
    /// Tensors that lie in the order of their axes whatever is asked for.
    fixed: Vec<bool>,
    orders: BTreeMap<TensorId, Order>,
    readers: Readers,
    views: BTreeMap<TensorId, Vec<TensorId>>,
    todo: VecDeque<TensorId>,
}

/// The axes of a definition that has an index.
fn vars_of(def: &Def) -> Option<&[VarId]> {
    match def {
        Def::Map { vars, .. } | Def::Reduce { vars, .. } | Def::Fold { vars, .. } => Some(vars),
        _ => None,
    }
}

/// Chooses an order for every tensor that is to lie otherwise than its axes say. Views are not named: they follow from
/// what they are views of.
pub(super) fn choose(p: &Program) -> BTreeMap<TensorId, Order> {
    let uses = uses::find(p);
    let live: Vec<TensorId> = uses.live.iter().copied().collect();
    let constant = constants(p);
    let mut fixed: Vec<bool> = p.tensors.iter().map(|t| vars_of(&t.def).is_none()).collect();
    (0..fixed.len()).for_each(|k| fixed[k] |= constant[k]);
    uses.whole.iter().chain(&in_indices(p)).for_each(|t| fixed[base(p, *t).0 as usize] |= !is_view(p, *t));
    let mut readers = Readers::new();
    let mut views: BTreeMap<TensorId, Vec<TensorId>> = BTreeMap::new();
    for t in &live {
        let def = &p.tensor(*t).def;
        if let Def::View(_) = def {
            views.entry(base(p, *t)).or_default().push(*t);
        }
        for (source, index) in exprs(def).into_iter().flat_map(expr::loads) {
            readers.entry(source).or_default().push((*t, index));
        }
    }
    let mut s = Spread { p, fixed, orders: BTreeMap::new(), readers, views, todo: VecDeque::new() };
    for vote in votes::all(p, &constant, &live) {
        s.assign(vote.tensor, &vote.order);
    }
    while let Some(t) = s.todo.pop_front() {
        s.around(t);
    }
    s.orders.retain(|t, order| order::moves(order, &p.tensor(*t).shape));
    s.orders
}

/// The tensor that holds the elements of `t`.
pub(super) fn base(p: &Program, t: TensorId) -> TensorId {
    match p.tensor(t).def {
        Def::View(of) => base(p, of),
        _ => t,
    }
}

fn is_view(p: &Program, t: TensorId) -> bool {
    matches!(p.tensor(t).def, Def::View(_))
}

impl Spread<'_> {
    /// Gives `t`, or what it is a view of, an order if it has none.
    fn assign(&mut self, t: TensorId, order: &[usize]) {
        let (p, of) = (self.p, base(self.p, t));
        let shape = &p.tensor(of).shape;
        let moves = order::moves(order, &p.tensor(t).shape);
        // That a view is to lie as its axes say is no reason to keep what it is a view of from lying better.
        if self.fixed[of.0 as usize] || self.orders.contains_key(&of) || (of != t && !moves) {
            return;
        }
        let Some(mut order) = order::through(order, &p.tensor(t).shape, shape) else { return };
        for view in self.views.get(&of).into_iter().flatten().filter(|_| moves) {
            let to = &p.tensor(*view).shape;
            if order::through(&order, shape, to).is_none() {
                let other = order::regroup(&order, shape, to);
                if order::moves(&other, shape) {
                    order = other;
                }
            }
        }
        if order::moves(&order, shape) {
            self.todo.push_back(of);
        }
        self.orders.insert(of, order);
    }

    /// Passes the order of `t` on to those that read it and those that it reads.
    fn around(&mut self, t: TensorId) {
        let p = self.p;
        let (tensor, order) = (p.tensor(t), self.orders[&t].clone());
        let mut found = vec![];
        for seen in self.views.get(&t).into_iter().flatten().chain([&t]) {
            let Some(order) = order::through(&order, &tensor.shape, &p.tensor(*seen).shape) else { continue };
            for (reader, index) in self.readers.get(seen).into_iter().flatten() {
                let Some(vars) = vars_of(&p.tensor(*reader).def) else { continue };
                if let Some(order) = order::of_reader(&order, index, vars, &p.tensor(*reader).shape) {
                    found.push((*reader, order));
                }
            }
        }
        if let Some(vars) = vars_of(&tensor.def)
            && crate::lower::contract::recognise(p, t).is_none()
        {
            for (source, index) in exprs(&tensor.def).into_iter().flat_map(expr::loads) {
                found.push((source, order::of_operand(&order, &index, vars, &p.tensor(source).shape)));
            }
        }
        for (t, order) in found {
            if order::moves(&order, &p.tensor(t).shape) {
                self.assign(t, &order);
            }
        }
    }
}

/// Which tensors depend on constants alone.
fn constants(p: &Program) -> Vec<bool> {
    let mut out = vec![false; p.tensors.len()];
    for (k, t) in p.tensors.iter().enumerate() {
        out[k] = match &t.def {
            Def::Const(_) => true,
            Def::View(of) => out[of.0 as usize],
            // Operands have smaller numbers.
            Def::Map { .. } | Def::Reduce { .. } | Def::Fold { .. } => {
                exprs(&t.def).into_iter().flat_map(expr::loads).all(|(s, _)| out.get(s.0 as usize) == Some(&true))
            }
            _ => false,
        };
    }
    out
}

/// Tensors whose elements are part of an index, a size or a condition.
fn in_indices(p: &Program) -> BTreeSet<TensorId> {
    let mut out = BTreeSet::new();
    let mut note = |i: Int| {
        map_data(i, &mut |e| {
            out.extend(expr::loads(e).into_iter().map(|(t, _)| t));
            Int::new(0)
        });
    };
    for t in &p.tensors {
        t.shape.iter().for_each(|d| note(*d));
        vars_of(&t.def).into_iter().flatten().filter_map(|v| v.extent()).for_each(&mut note);
        if let Def::Reduce { rvars, .. } | Def::Fold { rvars, .. } = &t.def {
            rvars.iter().filter_map(|v| v.extent()).for_each(&mut note);
        }
        for e in exprs(&t.def).into_iter().flat_map(expr::nodes) {
            match e.node() {
                expr::Node::Int(i) => note(i),
                expr::Node::Load(_, index) => index.into_iter().for_each(&mut note),
                _ => {}
            }
        }
    }
    in_steps(&p.main, &mut note);
    out
}

fn in_steps(b: &Block, note: &mut dyn FnMut(Int)) {
    for step in &b.steps {
        match step {
            Step::Define(_) => {}
            Step::Check(Check::Equal(a, b, _) | Check::AtMost(a, b, _)) => [*a, *b].into_iter().for_each(&mut *note),
            Step::If { cond, then, other, dims, .. } => {
                note(*cond);
                dims.iter().flat_map(|(_, a, b)| [*a, *b]).for_each(&mut *note);
                in_steps(then, note);
                in_steps(other, note);
            }
            Step::Loop(l) => {
                l.most.iter().chain(&l.start).chain(&l.go_on).for_each(|i| note(*i));
                l.dims.iter().flat_map(|d| [d.init, d.next]).for_each(&mut *note);
                in_steps(&l.body, note);
            }
        }
    }
}
