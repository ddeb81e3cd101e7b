//! Substitution of variables, free variables, linear forms.

use super::table::Atom;
use super::{Int, VarId, arith};
use std::collections::BTreeSet;

/// `i` with every variable that `f` maps replaced, also inside of data atoms.
pub fn subst(i: Int, f: &dyn Fn(VarId) -> Option<Int>) -> Int {
    if i.as_const().is_some() {
        return i;
    }
    let mut sum = Int::new(0);
    for (c, atoms) in i.terms() {
        let mut product = Int::new(c);
        for a in atoms {
            product = product * subst_atom(a, f);
        }
        sum = sum + product;
    }
    sum
}

fn subst_atom(a: Atom, f: &dyn Fn(VarId) -> Option<Int>) -> Int {
    match a {
        Atom::Var(v) => f(v).unwrap_or_else(|| Int::var(v)),
        Atom::Data(e) => crate::te::expr::as_int(crate::te::expr::subst_vars(e, f)),
        other => arith::rebuild(other, |i| subst(i, f)),
    }
}

/// `i` with every data atom replaced by what `f` gives for its expression.
pub(crate) fn map_data(i: Int, f: &mut dyn FnMut(crate::te::Expr) -> Int) -> Int {
    let mut sum = Int::new(0);
    for (c, atoms) in i.terms() {
        let mut product = Int::new(c);
        for a in atoms {
            let a = match a {
                Atom::Data(e) => f(e),
                Atom::Var(v) => Int::var(v),
                other => arith::rebuild(other, |i| map_data(i, f)),
            };
            product = product * a;
        }
        sum = sum + product;
    }
    sum
}

/// Does `i` depend on elements of tensors?
pub fn reads_data(i: Int) -> bool {
    any_atom(i, &mut |a| matches!(a, Atom::Data(_)))
}

/// Does `f` hold for any part of `i`, at whatever depth? What data depends on is not looked into.
pub(crate) fn any_atom(i: Int, f: &mut dyn FnMut(Atom) -> bool) -> bool {
    i.terms().iter().any(|(_, atoms)| {
        atoms.iter().any(|a| {
            f(*a)
                || match *a {
                    Atom::Var(_) | Atom::Data(_) => false,
                    Atom::Div(x, y) | Atom::Rem(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                        any_atom(x, f) || any_atom(y, f)
                    }
                    Atom::IfLt(a, b, x, y) | Atom::IfEq(a, b, x, y) => [a, b, x, y].into_iter().any(|i| any_atom(i, f)),
                }
        })
    })
}

/// All variables in `i`, in order of their numbers.
pub fn free_vars(i: Int) -> BTreeSet<VarId> {
    let mut out = BTreeSet::new();
    collect(i, &mut out);
    out
}

pub(crate) fn collect(i: Int, out: &mut BTreeSet<VarId>) {
    for (_, atoms) in i.terms() {
        for a in atoms {
            match a {
                Atom::Var(v) => {
                    out.insert(v);
                }
                Atom::Data(e) => crate::te::expr::collect_vars(e, out),
                Atom::Div(x, y) | Atom::Rem(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                    collect(x, out);
                    collect(y, out);
                }
                Atom::IfLt(a, b, x, y) | Atom::IfEq(a, b, x, y) => {
                    for i in [a, b, x, y] {
                        collect(i, out);
                    }
                }
            }
        }
    }
}

/// `i` as `coefficient * var + rest` with neither part holding `var`; `None` if it is not linear in `var`.
pub fn linear_in(i: Int, var: VarId) -> Option<(Int, Int)> {
    // Data may depend on it, too.
    if !any_atom(i, &mut |a| matches!(a, Atom::Data(_)) || a == Atom::Var(var)) {
        return Some((Int::new(0), i));
    }
    let zero = subst(i, &|v| (v == var).then(|| Int::new(0)));
    let one = subst(i, &|v| (v == var).then(|| Int::new(1)));
    let slope = one - zero;
    (zero + slope * Int::var(var) == i).then_some((slope, zero))
}
