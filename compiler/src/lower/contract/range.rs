//! Proofs that an index lies within its axis, a little stronger than those of the algebra.

use crate::lower::emit::atom_int;
use crate::sym::{Atom, Int, VarId, linear_in};

/// Is `0 <= i < d`, provably?
pub(super) fn within(i: Int, d: Int) -> bool {
    let zero = Int::new(0);
    zero.le(i) == Some(true) && (i.lt(d) == Some(true) || not_negative(d - 1 - i))
}

/// Is the smallest value of `e` over all loop indices at least zero?
fn not_negative(e: Int) -> bool {
    let mut e = e;
    // Loop indices at the end of their range that makes `e` smallest.
    for _ in 0..8 {
        let index = crate::sym::free_vars(e).into_iter().find_map(|v| at_end(e, v));
        match index {
            Some(moved) => e = moved,
            None => break,
        }
    }
    bounded_below(e, 4)
}

/// Is a lower bound of `e` at least zero? `floor(x/s)*s` is at most `x`, a minimum at most each of its operands, a maximum
/// at least.
fn bounded_below(e: Int, depth: u32) -> bool {
    if Int::new(0).le(e) == Some(true) {
        return true;
    }
    depth > 0 && bounds(e).into_iter().any(|lower| bounded_below(lower, depth - 1))
}

/// Expressions that are at most `e`, each with one term of it replaced.
fn bounds(e: Int) -> Vec<Int> {
    let mut out = vec![];
    for (c, atoms) in e.terms() {
        let [a] = atoms.as_slice() else { continue };
        let rest = e - atom_int(*a) * c;
        match *a {
            Atom::Div(x, s) if c < 0 => {
                if let Some(s) = s.as_const()
                    && s > 0
                    && c % s == 0
                {
                    out.push(rest + x * (c / s));
                }
            }
            Atom::Min(x, y) if c < 0 => out.extend([rest + x * c, rest + y * c]),
            Atom::Max(x, y) if c > 0 => out.extend([rest + x * c, rest + y * c]),
            _ => {}
        }
    }
    out
}

fn at_end(e: Int, v: VarId) -> Option<Int> {
    let extent = v.extent()?;
    let (slope, rest) = linear_in(e, v)?;
    let zero = Int::new(0);
    if zero.le(slope) == Some(true) {
        Some(rest)
    } else if slope.le(zero) == Some(true) {
        Some(rest + slope * (extent - 1))
    } else {
        None
    }
}
