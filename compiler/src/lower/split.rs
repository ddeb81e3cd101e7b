//! Cutting the index space of a loop nest where conditions on its indices change.
//!
//! Padding and concatenation choose by comparing an index with a constant. Within a piece all such comparisons are
//! decided, so that a piece's loop has neither conditions nor guarded loads and can use vectors.

use super::nest::Moves;
use crate::kernel::ir::Cmp;
use crate::sym::{Int, VarId, free_vars, linear_in, subst};
use crate::te::{Expr, Node, expr};
use std::collections::{BTreeMap, BTreeSet};

/// A box of the index space.
pub(super) struct Piece {
    /// The piece's own loop variables.
    pub(super) vars: Vec<VarId>,
    /// Where the piece starts along the first variable.
    pub(super) start: Int,
    moves: Moves,
}

impl Piece {
    /// Rewrites an element of the whole in terms of the piece.
    pub(super) fn subst(&self, body: Expr) -> Expr {
        expr::subst_vars(body, &|v| self.moves.get(&v).copied())
    }

    /// Rewrites an index expression of the whole in terms of the piece.
    pub(super) fn subst_int(&self, i: Int) -> Int {
        subst(i, &|v| self.moves.get(&v).copied())
    }
}

/// Cuts the space of `vars` where conditions in `bodies` change, into `most` pieces at most; gives one piece with everything
/// where there is nothing to cut.
pub(super) fn pieces(vars: &[VarId], bodies: &[Expr], most: usize) -> Vec<Piece> {
    let mut cuts: BTreeMap<VarId, BTreeSet<i64>> = BTreeMap::new();
    for n in bodies.iter().flat_map(|body| expr::nodes(*body)) {
        if let Node::Cmp(c, a, b) = n.node()
            && let (Node::Int(a), Node::Int(b)) = (a.node(), b.node())
        {
            note(vars, c, a - b, &mut cuts);
        }
    }
    let mut boxes: Vec<Vec<(i64, i64)>> = vec![vec![]];
    for v in vars {
        let extent = v.extent().and_then(|e| e.as_const());
        let ranges = match (cuts.get(v), extent) {
            (Some(at), Some(n)) if !at.is_empty() => {
                let mut edges: Vec<i64> = at.iter().copied().filter(|c| *c > 0 && *c < n).collect();
                edges.insert(0, 0);
                edges.push(n);
                edges.windows(2).map(|w| (w[0], w[1])).collect()
            }
            // (0, -1): the whole extent, which need not be known.
            _ => vec![(0, -1)],
        };
        if ranges.len() * boxes.len() > most {
            boxes = boxes.iter().map(|b| [b.as_slice(), &[(0, -1)]].concat()).collect();
        } else {
            boxes = boxes.iter().flat_map(|b| ranges.iter().map(move |r| [b.as_slice(), &[*r]].concat())).collect();
        }
    }
    boxes.iter().map(|b| piece(vars, b)).collect()
}

fn piece(vars: &[VarId], ranges: &[(i64, i64)]) -> Piece {
    let mut moves = Moves::new();
    let mut own = vec![];
    for (v, (lo, hi)) in vars.iter().zip(ranges) {
        if *hi < 0 {
            own.push(*v);
            continue;
        }
        let part = VarId::index("p", Int::new(hi - lo));
        own.push(part);
        let at = if hi - lo == 1 { Int::new(*lo) } else { Int::var(part) + *lo };
        moves.insert(*v, at);
    }
    let start = Int::new(ranges.first().map_or(0, |(lo, _)| *lo));
    Piece { vars: own, start, moves }
}

/// Where does the comparison of `d` with 0 change along a variable?
fn note(vars: &[VarId], c: Cmp, d: Int, cuts: &mut BTreeMap<VarId, BTreeSet<i64>>) {
    let loops: Vec<VarId> = free_vars(d).into_iter().filter(|v| vars.contains(v)).collect();
    let [v] = loops.as_slice() else { return };
    let Some((slope, rest)) = linear_in(d, *v) else { return };
    let (Some(s), Some(r)) = (slope.as_const(), rest.as_const()) else { return };
    if s == 0 {
        return;
    }
    // d < 0 and d <= 0 change between neighbouring values; equality at both sides of its place.
    let first_at_least = |bound: i64| {
        // Least v with s*v + r >= bound (s > 0), or least v with s*v + r < bound (s < 0; Euclidean division by a negative
        // number rounds up).
        if s > 0 { (bound - r + s - 1).div_euclid(s) } else { (bound - 1 - r).div_euclid(s) }
    };
    let at = cuts.entry(*v).or_default();
    match c {
        Cmp::Lt | Cmp::Ge => {
            at.insert(first_at_least(0));
        }
        Cmp::Le | Cmp::Gt => {
            at.insert(first_at_least(1));
        }
        Cmp::Eq | Cmp::Ne => {
            at.insert(first_at_least(0));
            at.insert(first_at_least(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_comparison_is_decided_within_each_piece() {
        for slope in [1, 2, 3, -1, -2, -3] {
            for rest in -7..=7 {
                for c in [Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge, Cmp::Eq, Cmp::Ne] {
                    let v = VarId::index("i", Int::new(9));
                    let d = Int::var(v) * slope + rest;
                    let mut cuts = BTreeMap::new();
                    note(&[v], c, d, &mut cuts);
                    let holds = |x: i64| {
                        let y = x * slope + rest;
                        match c {
                            Cmp::Lt => y < 0,
                            Cmp::Le => y <= 0,
                            Cmp::Gt => y > 0,
                            Cmp::Ge => y >= 0,
                            Cmp::Eq => y == 0,
                            Cmp::Ne => y != 0,
                        }
                    };
                    for x in 1..9 {
                        if holds(x) != holds(x - 1) {
                            assert!(cuts[&v].contains(&x), "{c:?} {slope}*i + {rest}: no cut at {x} in {cuts:?}");
                        }
                    }
                }
            }
        }
    }
}
