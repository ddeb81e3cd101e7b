//! Which keys a query can't see whatever the data are: blocks of them are left out.

use crate::dtype::DType;
use crate::fuse::attention::Attention;
use crate::kernel::ir::{Cmp, Reg};
use crate::lower::emit::Emit;
use crate::sym::{Int, VarId, free_vars, linear_in};
use crate::te::{Expr, Func1, Func2, Node, expr};
use std::collections::BTreeSet;

/// A bound of keys: whole numbers, linear in the query, and further terms that are the same for all queries of a head.
#[derive(Clone)]
pub(super) struct Limit {
    linear: Int,
    others: Vec<(bool, Expr)>,
    /// Grows, or stays, with the query.
    grows: bool,
    upper: bool,
}

/// Bounds of the keys that are seen.
#[derive(Clone, Default)]
pub(super) struct Limits {
    /// The last key seen is at most each of these.
    pub(super) upper: Vec<Limit>,
    /// The first key seen is at least each of these.
    pub(super) lower: Vec<Limit>,
}

impl Limit {
    /// Its value for the queries from `first` to `last`.
    pub(super) fn at(&self, e: &mut Emit<'_>, row: VarId, first: Reg, last: Reg) -> Reg {
        e.vars.insert(row, if self.grows == self.upper { last } else { first });
        e.forget();
        let mut sum = e.int(self.linear);
        for (plus, other) in &self.others {
            let other = e.expr(*other);
            sum = if *plus { e.b.add(sum, other) } else { e.b.sub(sum, other) };
        }
        e.forget();
        e.vars.remove(&row);
        sum
    }
}

impl Limits {
    /// Those of an attention's scores.
    pub(super) fn of(a: &Attention) -> Limits {
        let mut out = Limits::default();
        let mut conditions = vec![];
        shown(a.score, &mut conditions);
        for (op, x, y) in conditions {
            out.add(a, op, x, y);
        }
        out
    }

    fn add(&mut self, a: &Attention, op: Cmp, x: Expr, y: Expr) {
        let mut sum = Sum { linear: Int::new(0), others: vec![] };
        sum.add(x, true);
        sum.add(y, false);
        // `sum` is to be at most, or at least, 0.
        let (least, strict) = match op {
            Cmp::Le => (false, 0),
            Cmp::Lt => (false, 1),
            Cmp::Ge => (true, 0),
            Cmp::Gt => (true, 1),
            Cmp::Eq | Cmp::Ne => return,
        };
        let Some((slope, rest)) = linear_in(sum.linear, a.key) else { return };
        let Some((along, _)) = linear_in(rest, a.row) else { return };
        let own = |v: &VarId| *v == a.key || *v == a.row;
        let steady = |e: &Expr| {
            let mut vars = BTreeSet::new();
            expr::collect_vars(*e, &mut vars);
            !vars.iter().any(own)
        };
        let (Some(slope @ (-1 | 1)), Some(along)) = (slope.as_const(), along.as_const()) else { return };
        if free_vars(rest).contains(&a.key) || !sum.others.iter().all(|(_, e)| steady(e)) {
            return;
        }
        // key + rest <= 0: key <= -rest; and so on for the other three.
        let upper = least != (slope == 1);
        let inward = if upper { -strict } else { strict };
        let turn = slope == 1;
        let limit = Limit {
            linear: (if turn { -rest } else { rest }) + inward,
            others: sum.others.into_iter().map(|(plus, e)| (plus != turn, e)).collect(),
            grows: (along >= 0) != turn || along == 0,
            upper,
        };
        if upper { self.upper.push(limit) } else { self.lower.push(limit) }
    }
}

/// A sum of whole numbers.
struct Sum {
    linear: Int,
    others: Vec<(bool, Expr)>,
}

impl Sum {
    fn add(&mut self, e: Expr, plus: bool) {
        match e.node() {
            Node::Int(i) => self.linear = if plus { self.linear + i } else { self.linear - i },
            Node::Bin(Func2::Add, x, y) => {
                self.add(x, plus);
                self.add(y, plus);
            }
            Node::Bin(Func2::Sub, x, y) => {
                self.add(x, plus);
                self.add(y, !plus);
            }
            _ => self.others.push((plus, e)),
        }
    }
}

/// Comparisons of whole numbers all of which hold wherever a score is not minus infinity.
fn shown(score: Expr, out: &mut Vec<(Cmp, Expr, Expr)>) {
    let hidden = |e: Expr| e.dtype() == DType::F32 && e == e.num(f64::NEG_INFINITY);
    match score.node() {
        Node::Select(c, x, y) if hidden(y) => {
            all_of(c, true, out);
            shown(x, out);
        }
        Node::Select(c, x, y) if hidden(x) => {
            all_of(c, false, out);
            shown(y, out);
        }
        Node::Bin(Func2::Add, x, y) => {
            shown(x, out);
            shown(y, out);
        }
        Node::Cast(to, x) if to.is_float() => shown(x, out),
        _ => {}
    }
}

/// Comparisons that hold where `condition` is `value`.
fn all_of(condition: Expr, value: bool, out: &mut Vec<(Cmp, Expr, Expr)>) {
    match condition.node() {
        Node::Bin(Func2::And, x, y) if value => {
            all_of(x, true, out);
            all_of(y, true, out);
        }
        Node::Bin(Func2::Or, x, y) if !value => {
            all_of(x, false, out);
            all_of(y, false, out);
        }
        Node::Un(Func1::Not, x) => all_of(x, !value, out),
        Node::Cmp(op, x, y) if x.dtype() == DType::I64 => {
            let op = match (op, value) {
                (op, true) => op,
                (Cmp::Le, _) => Cmp::Gt,
                (Cmp::Lt, _) => Cmp::Ge,
                (Cmp::Ge, _) => Cmp::Lt,
                (Cmp::Gt, _) => Cmp::Le,
                (Cmp::Eq, _) => Cmp::Ne,
                (Cmp::Ne, _) => Cmp::Eq,
            };
            out.push((op, x, y));
        }
        _ => {}
    }
}
