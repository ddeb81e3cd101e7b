//! Intervals and proofs of order.

use super::table::{Atom, with};
use super::{Int, subst, var_info};

/// The least and greatest value, where known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// No value is below this.
    pub lo: Option<i64>,
    /// No value is above this.
    pub hi: Option<i64>,
}

impl Bounds {
    const ANY: Bounds = Bounds { lo: None, hi: None };

    fn add(self, o: Bounds) -> Bounds {
        let sum = |a: Option<i64>, b: Option<i64>| a?.checked_add(b?);
        Bounds { lo: sum(self.lo, o.lo), hi: sum(self.hi, o.hi) }
    }

    fn scale(self, c: i64) -> Bounds {
        let times = |a: Option<i64>| a?.checked_mul(c);
        if c >= 0 {
            Bounds { lo: times(self.lo), hi: times(self.hi) }
        } else {
            Bounds { lo: times(self.hi), hi: times(self.lo) }
        }
    }

    fn mul(self, o: Bounds) -> Bounds {
        if let (Some(a), Some(b), Some(c), Some(d)) = (self.lo, self.hi, o.lo, o.hi) {
            let all = [a.checked_mul(c), a.checked_mul(d), b.checked_mul(c), b.checked_mul(d)];
            if all.iter().all(Option::is_some) {
                return Bounds { lo: all.iter().flatten().min().copied(), hi: all.iter().flatten().max().copied() };
            }
        }
        // Both at least zero: the product of the lower ends is a lower end.
        match (self.lo, o.lo) {
            (Some(a), Some(c)) if a >= 0 && c >= 0 => {
                let hi = match (self.hi, o.hi) {
                    (Some(b), Some(d)) => b.checked_mul(d),
                    _ => None,
                };
                Bounds { lo: a.checked_mul(c), hi }
            }
            _ => Bounds::ANY,
        }
    }

    fn hull(self, o: Bounds) -> Bounds {
        let both = |a: Option<i64>, b: Option<i64>, f: fn(i64, i64) -> i64| Some(f(a?, b?));
        Bounds { lo: both(self.lo, o.lo, i64::min), hi: both(self.hi, o.hi, i64::max) }
    }
}

pub(super) fn bounds(i: Int) -> Bounds {
    if let Some(known) = with(|t| t.bounds.get(&i).copied()) {
        return known;
    }
    let found = find_bounds(i);
    with(|t| t.bounds.insert(i, found));
    found
}

fn find_bounds(i: Int) -> Bounds {
    let mut sum = Bounds { lo: Some(0), hi: Some(0) };
    for (c, atoms) in i.terms() {
        let mut product = Bounds { lo: Some(1), hi: Some(1) };
        for a in atoms {
            product = product.mul(of_atom(a));
        }
        sum = sum.add(product.scale(c));
    }
    sum
}

fn of_atom(a: Atom) -> Bounds {
    match a {
        Atom::Var(v) => {
            let info = var_info(v);
            Bounds { lo: info.lo, hi: info.hi }
        }
        Atom::Div(x, d) => {
            let (x, d) = (bounds(x), bounds(d));
            match (d.lo, d.hi) {
                (Some(l), Some(h)) if l == h && l > 0 => {
                    Bounds { lo: x.lo.map(|v| v.div_euclid(l)), hi: x.hi.map(|v| v.div_euclid(l)) }
                }
                (Some(l), _) if l >= 1 => Bounds {
                    lo: x.lo.map(|v| if v >= 0 { 0 } else { v }),
                    hi: x.hi.map(|v| if v >= 0 { v.div_euclid(l) } else { -1 }),
                },
                _ => Bounds::ANY,
            }
        }
        Atom::Rem(_, d) => match bounds(d) {
            Bounds { lo: Some(l), hi } if l >= 1 => Bounds { lo: Some(0), hi: hi.map(|h| h - 1) },
            _ => Bounds::ANY,
        },
        Atom::Min(x, y) => {
            let (x, y) = (bounds(x), bounds(y));
            let hi = match (x.hi, y.hi) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            Bounds { lo: x.hull(y).lo, hi }
        }
        Atom::Max(x, y) => {
            let (x, y) = (bounds(x), bounds(y));
            let lo = match (x.lo, y.lo) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
            Bounds { lo, hi: x.hull(y).hi }
        }
        Atom::IfLt(_, _, x, y) | Atom::IfEq(_, _, x, y) => bounds(x).hull(bounds(y)),
        Atom::Data(_) => Bounds::ANY,
    }
}

/// Three-valued `a <= b`.
pub(super) fn le(a: Int, b: Int) -> Option<bool> {
    if a == b {
        return Some(true);
    }
    let d = b - a;
    if let Some(known) = with(|t| t.signs.get(&d).copied()) {
        return known;
    }
    let found = sign(d);
    with(|t| t.signs.insert(d, found));
    found
}

/// Is `d` at least 0, always or never?
fn sign(d: Int) -> Option<bool> {
    if let Some(v) = decide(d) {
        return Some(v);
    }
    // Replace loop indices by the end that makes the difference smallest (then largest): i < n becomes n - 1 < n.
    if decide(at_extreme(d, false)) == Some(true) {
        return Some(true);
    }
    if decide(at_extreme(d, true)) == Some(false) {
        return Some(false);
    }
    None
}

/// Is `d >= 0` by its interval?
fn decide(d: Int) -> Option<bool> {
    let b = bounds(d);
    match (b.lo, b.hi) {
        (Some(lo), _) if lo >= 0 => Some(true),
        (_, Some(hi)) if hi < 0 => Some(false),
        _ => None,
    }
}

/// `d` with each loop index that occurs linearly, alone or times a factor of known sign, put at the end of its range
/// where `d` is largest (`upper`) or smallest. Indices inside of other atoms are left.
fn at_extreme(mut d: Int, upper: bool) -> Int {
    for _ in 0..8 {
        let Some((var, extent, positive)) = next_index(d) else { return d };
        let end = if positive == upper { extent - Int::new(1) } else { Int::new(0) };
        d = subst(d, &|v| (v == var).then_some(end));
    }
    d
}

fn next_index(d: Int) -> Option<(super::VarId, Int, bool)> {
    let terms = d.terms();
    for (c, atoms) in &terms {
        for (k, a) in atoms.iter().enumerate() {
            let Atom::Var(v) = a else { continue };
            let Some(extent) = var_info(*v).extent else { continue };
            // The sign of the whole coefficient of v must be known, and v must not hide in another atom.
            let mut factor = Bounds { lo: Some(1), hi: Some(1) };
            for (j, b) in atoms.iter().enumerate() {
                if j != k {
                    factor = factor.mul(of_atom(*b));
                }
            }
            if factor.lo.is_none_or(|l| l < 0) || hides(&terms, *v, *c > 0) {
                continue;
            }
            return Some((*v, extent, *c > 0));
        }
    }
    None
}

fn hides(terms: &[(i64, Vec<Atom>)], v: super::VarId, positive: bool) -> bool {
    terms.iter().any(|(c, atoms)| {
        let direct = atoms.iter().filter(|a| **a == Atom::Var(v)).count();
        let within = atoms.iter().any(|a| !matches!(a, Atom::Var(_)) && with_var(*a, v));
        within || direct > 1 || (direct == 1 && (*c > 0) != positive)
    })
}

fn with_var(a: Atom, v: super::VarId) -> bool {
    let id = with(|t| {
        let a = t.atom(a);
        t.intern(super::table::Poly::atom(a))
    });
    super::free_vars(id).contains(&v)
}
