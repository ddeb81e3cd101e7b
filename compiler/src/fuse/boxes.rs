//! An index space cut into boxes within which an expression makes no choice.

use crate::kernel::ir::Cmp;
use crate::sym::{Int, VarId, free_vars, linear_in, reads_data};
use crate::te::{Expr, Func2, Node, Piece, TensorId, expr};

/// Most boxes that a space is cut into.
const MOST: usize = 64;

/// First index and end along each axis.
pub(super) type Range = Vec<(Int, Int)>;

/// A box and the expression within it.
pub(super) struct Leaf {
    /// Where it is.
    pub(super) range: Range,
    /// The element in terms of the whole's variables.
    pub(super) body: Expr,
}

impl Leaf {
    /// The tensor that the box shows as it is, and where in the whole that tensor begins.
    pub(super) fn shows(&self, vars: &[VarId], shape: &[Int]) -> Option<(TensorId, Vec<Int>)> {
        let Node::Load(t, index) = self.body.node() else { return None };
        if index.len() != vars.len() {
            return None;
        }
        let offset = vars.iter().zip(&index).zip(shape).map(|((v, i), d)| {
            // Along an axis of one element the index may be written as 0.
            let at = if *d == Int::new(1) && i.as_const() == Some(0) { Int::new(0) } else { Int::var(*v) - *i };
            (!reads_data(at) && free_vars(at).iter().all(|x| !vars.contains(x))).then_some(at)
        });
        Some((t, offset.collect::<Option<Vec<Int>>>()?))
    }

    /// Number of elements.
    pub(super) fn volume(&self) -> Int {
        Int::product(&self.range.iter().map(|(lo, hi)| *hi - *lo).collect::<Vec<_>>())
    }

    /// The box as a piece of an assembled tensor.
    pub(super) fn piece(&self, vars: &[VarId]) -> Piece {
        let own: Vec<VarId> = self.range.iter().map(|(lo, hi)| VarId::index("p", *hi - *lo)).collect();
        let start: Vec<Int> = self.range.iter().map(|(lo, _)| *lo).collect();
        let mut piece = Piece { start, vars: own, body: self.body };
        let at = piece.index();
        piece.body = expr::subst_vars(self.body, &|v| vars.iter().position(|x| *x == v).map(|k| at[k]));
        piece
    }
}

/// Cuts the space of `vars` where `e` chooses by comparing an index with a bound; nothing if these are too many. Choices
/// of other kinds, or between bounds whose order is not known, are left within the boxes.
pub(super) fn leaves(vars: &[VarId], shape: &[Int], e: Expr) -> Option<Vec<Leaf>> {
    let all = shape.iter().map(|d| (Int::new(0), *d)).collect();
    let mut out = vec![];
    cut(vars, all, e, &mut out);
    (out.len() <= MOST).then_some(out)
}

fn cut(vars: &[VarId], range: Range, e: Expr, out: &mut Vec<Leaf>) {
    if out.len() > MOST {
        return;
    }
    let parts = match e.node() {
        Node::Select(c, a, b) => within(vars, &range, c).map(|inner| (inner, a, b)),
        _ => None,
    };
    match parts {
        Some((Some(inner), a, b)) => {
            for rest in around(&range, &inner) {
                cut(vars, rest, b, out);
            }
            cut(vars, inner, a, out);
        }
        Some((None, _, b)) => cut(vars, range, b, out),
        None => out.push(Leaf { range, body: e }),
    }
}

/// The part of a box in which `c` holds, `Some(None)` if that is empty; nothing if it is no box.
fn within(vars: &[VarId], range: &Range, c: Expr) -> Option<Option<Range>> {
    let mut inner = range.clone();
    let mut todo = vec![c];
    while let Some(c) = todo.pop() {
        match c.node() {
            Node::Bin(Func2::And, a, b) => todo.extend([a, b]),
            Node::Cmp(c, a, b) => {
                let (Node::Int(a), Node::Int(b)) = (a.node(), b.node()) else { return None };
                let (k, bound) = bound(vars, c, a - b)?;
                let (lo, hi) = inner[k];
                let (from, to) = match bound {
                    Bound::From(at) => (at, hi),
                    Bound::Below(at) => (lo, at),
                };
                let at_most = |a: Int, b: Int| a.le(b) == Some(true);
                if at_most(from, lo) && at_most(hi, to) {
                    continue;
                }
                if at_most(to, from) {
                    return Some(None);
                }
                // A box that may be empty is as good as another; one that may be less than that is none.
                if !(at_most(lo, from) && at_most(from, to) && at_most(to, hi)) {
                    return None;
                }
                inner[k] = (from, to);
            }
            _ => match c.as_bool()? {
                true => {}
                false => return Some(None),
            },
        }
    }
    Some(Some(inner))
}

enum Bound {
    /// The index is at least this.
    From(Int),
    /// The index is less than this.
    Below(Int),
}

/// The axis and the bound that comparing `d` with 0 sets.
fn bound(vars: &[VarId], c: Cmp, d: Int) -> Option<(usize, Bound)> {
    let found = free_vars(d);
    let mut axes = (0..vars.len()).filter(|k| found.contains(&vars[*k]));
    let (k, None) = (axes.next()?, axes.next()) else { return None };
    let (slope, rest) = linear_in(d, vars[k])?;
    if reads_data(rest) {
        return None;
    }
    let bound = match (slope.as_const()?, c) {
        (1, Cmp::Lt) => Bound::Below(-rest),
        (1, Cmp::Le) => Bound::Below(-rest + 1),
        (1, Cmp::Gt) => Bound::From(-rest + 1),
        (1, Cmp::Ge) => Bound::From(-rest),
        (-1, Cmp::Lt) => Bound::From(rest + 1),
        (-1, Cmp::Le) => Bound::From(rest),
        (-1, Cmp::Gt) => Bound::Below(rest),
        (-1, Cmp::Ge) => Bound::Below(rest + 1),
        _ => return None,
    };
    Some((k, bound))
}

/// Boxes that make up `range` without `inner`.
fn around(range: &Range, inner: &Range) -> Vec<Range> {
    let mut out = vec![];
    let mut left = range.clone();
    for k in 0..range.len() {
        let ((lo, hi), (from, to)) = (range[k], inner[k]);
        for side in [(lo, from), (to, hi)] {
            if side.0 != side.1 {
                let mut rest = left.clone();
                rest[k] = side;
                out.push(rest);
            }
        }
        left[k] = inner[k];
    }
    out
}
