//! Proofs that an index lies within its axis, a little stronger than those of the algebra: `floor(x/s)*s <= x`.

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
    Int::new(0).le(without_floors(e)) == Some(true)
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

/// A lower bound of `e`, with `-c*floor(x/s)` replaced by `-(c/s)*x` where that divides.
fn without_floors(e: Int) -> Int {
    let mut sum = Int::new(0);
    for (c, atoms) in e.terms() {
        if let [Atom::Div(x, s)] = atoms.as_slice()
            && let Some(s) = s.as_const()
            && s > 0
            && c < 0
            && c % s == 0
        {
            sum = sum + *x * (c / s);
            continue;
        }
        sum = atoms.iter().fold(Int::new(c), |p, a| p * atom_int(*a)) + sum;
    }
    sum
}
