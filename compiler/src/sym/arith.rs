//! Construction of normal forms.

use super::Int;
use super::table::{Atom, AtomId, Poly, with};

fn atom(a: Atom) -> Int {
    with(|t| {
        let id = t.atom(a);
        t.intern(Poly::atom(id))
    })
}

fn poly(i: Int) -> Poly {
    with(|t| t.poly(i).clone())
}

fn intern(p: Poly) -> Int {
    with(|t| t.intern(p))
}

/// An integer computed from data.
pub(crate) fn data(e: crate::te::Expr) -> Int {
    atom(Atom::Data(e))
}

pub(super) fn add(a: Int, b: Int) -> Int {
    let (a, b) = (poly(a), poly(b));
    intern(Poly::from_terms(a.terms.into_iter().chain(b.terms).collect()))
}

pub(super) fn sub(a: Int, b: Int) -> Int {
    let (a, b) = (poly(a), poly(b));
    let minus = b.terms.into_iter().map(|(m, c)| (m, c.saturating_neg()));
    intern(Poly::from_terms(a.terms.into_iter().chain(minus).collect()))
}

pub(super) fn mul(a: Int, b: Int) -> Int {
    let (a, b) = (poly(a), poly(b));
    let mut terms = Vec::with_capacity(a.terms.len() * b.terms.len());
    for (m, c) in &a.terms {
        for (n, d) in &b.terms {
            let mut both: Vec<AtomId> = m.iter().chain(n).copied().collect();
            both.sort_unstable();
            terms.push((both, c.saturating_mul(*d)));
        }
    }
    intern(Poly::from_terms(terms))
}

/// Splits `a` into `(quotient, rest)` with `a = quotient * d + rest`, taking out every term that `d` divides.
/// Only single-term divisors are tried.
fn split(a: Int, d: Int) -> (Int, Int) {
    let dp = poly(d);
    let [(dm, dc)] = dp.terms.as_slice() else {
        return (Int::new(0), a);
    };
    let (mut quotient, mut rest) = (vec![], vec![]);
    for (m, c) in poly(a).terms {
        match without(&m, dm) {
            Some(left) if c % dc == 0 => quotient.push((left, c / dc)),
            // A constant part larger than a constant divisor: 7 = 2*3 + 1.
            Some(left) if dm.is_empty() && left.is_empty() => {
                quotient.push((vec![], c.div_euclid(*dc)));
                rest.push((vec![], c.rem_euclid(*dc)));
            }
            _ => rest.push((m, c)),
        }
    }
    (intern(Poly::from_terms(quotient)), intern(Poly::from_terms(rest)))
}

/// The multiset difference `m - part`, if `part` is contained in `m`.
fn without(m: &[AtomId], part: &[AtomId]) -> Option<Vec<AtomId>> {
    let mut left = m.to_vec();
    for p in part {
        let at = left.iter().position(|x| x == p)?;
        left.remove(at);
    }
    Some(left)
}

/// Is `d >= 1` wherever `a` is evaluated? Also true if a loop index in `a` runs over a multiple of `d`: no iteration
/// happens unless that is positive.
fn positive(d: Int, a: Int) -> bool {
    if d.bounds().lo.is_some_and(|l| l >= 1) {
        return true;
    }
    d.bounds().lo == Some(0)
        && super::free_vars(a).iter().filter_map(|v| v.extent()).any(|e| split(e, d).1 == Int::new(0))
}

/// Is `0 <= r < d`, provably?
fn is_remainder(r: Int, d: Int) -> bool {
    Int::new(0).le(r) == Some(true) && r.lt(d) == Some(true)
}

pub(super) fn div(a: Int, d: Int) -> Int {
    match (a.as_const(), d.as_const()) {
        (_, Some(0)) => return Int::new(0),
        (Some(x), Some(y)) => {
            return Int::new(x.wrapping_div_euclid(y) - i64::from(y < 0 && x.wrapping_rem_euclid(y) != 0));
        }
        (_, Some(1)) => return a,
        (_, Some(y)) if y < 0 => return div(-a, -d),
        _ => {}
    }
    // Terms may be taken out only if the divisor is never zero (0/0 is defined as 0).
    if !positive(d, a) {
        return atom(Atom::Div(a, d));
    }
    let (q, r) = split(a, d);
    if is_remainder(r, d) {
        return q;
    }
    // floor(floor(x/b)/c) = floor(x/(b*c)) for positive divisors.
    if let Some(Atom::Div(x, b)) = as_atom(r)
        && Int::new(1).le(b) == Some(true)
    {
        return q + div(x, b * d);
    }
    q + atom(Atom::Div(r, d))
}

fn as_atom(i: Int) -> Option<Atom> {
    with(|t| t.poly(i).as_atom().map(|a| *t.atom_at(a)))
}

pub(super) fn rem(a: Int, d: Int) -> Int {
    match (a.as_const(), d.as_const()) {
        (_, Some(0 | 1)) => return Int::new(0),
        (Some(x), Some(y)) => return Int::new(x - y * Int::new(x).div(y).as_const().unwrap_or(0)),
        _ => {}
    }
    if !positive(d, a) {
        return atom(Atom::Rem(a, d));
    }
    let (_, r) = split(a, d);
    if is_remainder(r, d) {
        return r;
    }
    atom(Atom::Rem(r, d))
}

pub(super) fn min(a: Int, b: Int) -> Int {
    match a.le(b) {
        Some(true) => a,
        Some(false) => b,
        None if b.le(a) == Some(true) => b,
        None => atom(Atom::Min(a.min_key(b), b.max_key(a))),
    }
}

pub(super) fn max(a: Int, b: Int) -> Int {
    match a.le(b) {
        Some(true) => b,
        Some(false) => a,
        None if b.le(a) == Some(true) => a,
        None => atom(Atom::Max(a.min_key(b), b.max_key(a))),
    }
}

impl Int {
    // Commutative atoms keep their operands in handle order.
    fn min_key(self, o: Int) -> Int {
        if self.0 <= o.0 { self } else { o }
    }
    fn max_key(self, o: Int) -> Int {
        if self.0 > o.0 { self } else { o }
    }
}

pub(super) fn if_lt(a: Int, b: Int, x: Int, y: Int) -> Int {
    if x == y {
        return x;
    }
    match a.lt(b) {
        Some(true) => x,
        Some(false) => y,
        None => atom(Atom::IfLt(a, b, x, y)),
    }
}

pub(super) fn if_eq(a: Int, b: Int, x: Int, y: Int) -> Int {
    if x == y {
        return x;
    }
    match a.eq_proof(b) {
        Some(true) => x,
        Some(false) => y,
        None if agree(a, b, x, y) => y,
        None => atom(Atom::IfEq(a, b, x, y)),
    }
}

/// Are `x` and `y` one number where the variable `a` has the constant value `b`?
fn agree(a: Int, b: Int, x: Int, y: Int) -> bool {
    let (a, b) = if a.as_var().is_some() { (a, b) } else { (b, a) };
    let (Some(v), true) = (a.as_var(), b.as_const().is_some()) else { return false };
    let there = |i: Int| super::subst(i, &|x| (x == v).then_some(b));
    there(x) == there(y)
}

/// Rebuilds an atom from changed operands.
pub(super) fn rebuild(a: Atom, mut f: impl FnMut(Int) -> Int) -> Int {
    match a {
        Atom::Var(_) | Atom::Data(_) => atom(a),
        Atom::Div(x, y) => div(f(x), f(y)),
        Atom::Rem(x, y) => rem(f(x), f(y)),
        Atom::Min(x, y) => min(f(x), f(y)),
        Atom::Max(x, y) => max(f(x), f(y)),
        Atom::IfLt(a, b, x, y) => if_lt(f(a), f(b), f(x), f(y)),
        Atom::IfEq(a, b, x, y) => if_eq(f(a), f(b), f(x), f(y)),
    }
}
