//! Which axis the lanes lie along, and how large the register tile is, by an estimate of cycles.

use super::cost::Facts;
use super::form::{Form, coef, extent, varies};
use super::target::Target;
use crate::sym::{Int, VarId};
use crate::te::{Expr, Node, expr};

/// How a contraction is computed.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    /// The operand whose elements fill vectors; the other one's are copied to all lanes.
    pub vec: usize,
    /// The axis along which lanes lie; nothing where there is a single column.
    pub n: Option<VarId>,
    /// Lanes of a vector.
    pub lanes: u16,
    /// Axes of the broadcast operand alone: the rows of the tile run over all of them together.
    pub m: Vec<VarId>,
    /// Further axes of the broadcast operand alone, around the rows: no tile has rows of two of their values.
    pub lines: Vec<VarId>,
    /// Axes of both operands, or of neither.
    pub batch: Vec<VarId>,
    /// Further axes of the vector operand.
    pub outer: Vec<VarId>,
    /// Rows of the register tile.
    pub mr: usize,
    /// Vectors in each of its rows.
    pub nv: usize,
    /// Vectors run along the innermost reduced axis instead, which is contiguous in both operands; columns are scalars.
    pub dot: bool,
}

impl Schedule {
    /// The length of the lines that a tile has whole numbers of: its rows then lie constants apart.
    pub(super) fn whole_lines(&self) -> Option<i64> {
        let [_, line] = self.m[..] else { return None };
        extent(line).as_const().filter(|n| self.mr as i64 % n == 0)
    }
}

/// A group of columns of a tile: one vector, or one scalar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    /// First column, from the first new column of the tile; negative where it reaches back into the tile before, which
    /// saves tails that are narrower than a vector.
    pub at: i64,
    /// Columns.
    pub lanes: u16,
    /// The first of them that the tile stores.
    pub first: u16,
}

/// Vectors of so many lanes have no shorter tails.
pub(super) const NARROW: i64 = 4;

/// The groups of `width` new columns that end at column `end` of all.
pub(super) fn groups(width: i64, end: i64, lanes: u16) -> Vec<Group> {
    let l = i64::from(lanes);
    let whole = width / l;
    let mut out: Vec<Group> = (0..whole).map(|g| Group { at: g * l, lanes, first: 0 }).collect();
    let rest = width - whole * l;
    if rest > 0 && l > NARROW {
        // Wide vectors have tails of any length.
        out.push(Group { at: whole * l, lanes: rest as u16, first: 0 });
    } else if rest > 0 && end >= l {
        out.push(Group { at: width - l, lanes, first: (l - rest) as u16 });
    } else {
        out.extend((0..rest).map(|k| Group { at: whole * l + k, lanes: 1, first: 0 }));
    }
    out
}

/// Number assumed for extents that are not known.
const SOME: i64 = 24;

pub(super) fn guess(i: Int) -> i64 {
    i.as_const().or(i.bounds().hi.map(|h| h.min(SOME))).unwrap_or(SOME).max(1)
}

pub(super) fn guess_product(vars: &[VarId]) -> i64 {
    vars.iter().fold(1, |p, v| p.saturating_mul(guess(extent(*v))))
}

/// Independent chains of additions that keep the multipliers busy.
pub(super) const CHAINS: usize = 8;

/// Partial sums of each element of a tile of `accumulators`, where it is too small to hide the latency of additions.
pub(super) fn ways(accumulators: usize, terms: i64) -> usize {
    let most = if terms >= 32 { 4 } else { 1 };
    (CHAINS / accumulators.max(1)).clamp(1, most)
}

/// All schedules, with their costs, the cheapest first.
pub(super) fn all(form: &Form, target: &Target) -> Vec<(f64, Schedule)> {
    let mut found: Vec<(f64, Schedule)> = vec![];
    for vec in 0..2 {
        for candidate in axes(form, target, vec) {
            let facts = Facts::of(form, target, &candidate);
            for (mr, nv) in tiles(form, target, &candidate, facts.quads) {
                let s = Schedule { mr, nv, ..candidate.clone() };
                found.push((facts.cost(target, &s), s));
            }
        }
    }
    // Of equal ones the first.
    found.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    found
}

/// Every axis along which operand `vec` can fill vectors.
fn axes(form: &Form, target: &Target, vec: usize) -> Vec<Schedule> {
    let (v, b) = (&form.ops[vec], &form.ops[1 - vec]);
    if form.fours.as_ref().is_some_and(|f| f.b == vec) || form.few.as_ref().is_some_and(|f| f.op != vec) {
        return vec![];
    }
    let in_v: Vec<VarId> = form.vars.iter().filter(|x| varies(v.flat, **x)).copied().collect();
    let mut out = vec![];
    let mut add = |n: Option<VarId>, lanes: u16, dot: bool| {
        let rest = form.vars.iter().copied().filter(|x| Some(*x) != n);
        let mut s =
            Schedule { vec, n, lanes, m: vec![], lines: vec![], batch: vec![], outer: vec![], mr: 1, nv: 1, dot };
        for x in rest {
            match (varies(v.flat, x), varies(b.flat, x)) {
                (false, true) => s.m.push(x),
                (true, false) => s.outer.push(x),
                _ => s.batch.push(x),
            }
        }
        // Rows along one axis lie a constant apart in an operand that is read as it lies.
        if s.m.len() > 1 && b.data.is_none() && !dot {
            let (lines, m) = s.m.split_at(s.m.len() - 1);
            out.push(Schedule { lines: lines.to_vec(), m: m.to_vec(), ..s.clone() });
        }
        out.push(s);
    };
    // What is laid out by groups of four is laid out for the vectors, too.
    let laid = form.fours.as_ref().is_some_and(|f| f.steps[vec] == Int::new(1));
    let mut found = false;
    for n in &in_v {
        let step = coef(v.flat, *n).and_then(|c| c.as_const());
        // A constant operand lies as the kernel wants it; another one should be contiguous.
        let lies = v.data.is_some() || matches!(step, Some(1..=4)) || laid;
        // Lanes that differ in both operands: the second one is loaded as vector too.
        let other = coef(b.flat, *n).and_then(|c| c.as_const());
        if form.fours.is_some() && other != Some(0) {
            continue;
        }
        if lies && (other == Some(0) || (other == Some(1) && b.data.is_none())) {
            add(Some(*n), target.lanes, false);
            found = true;
        }
    }
    if !found && form.fours.is_none() {
        let contiguous = |k: &VarId| [v, b].iter().all(|op| coef(op.flat, *k) == Some(Int::new(1)));
        // Only as many terms as one sum may hold.
        let whole = form.exact.is_none_or(|most| form.terms().is_some_and(|n| n <= most));
        let dot = whole && target.lanes > 1 && form.ks.last().is_some_and(contiguous);
        // The rows of a dot product are the same for all columns.
        let own = |x: &&VarId| !dot || !varies(b.flat, **x);
        add(in_v.iter().rfind(own).copied(), 1, dot);
    }
    out
}

/// Elements that the epilogue reads for all columns alike.
fn uniform_loads(form: &Form, s: &Schedule) -> usize {
    let steady = |i: &Int| s.n.is_none_or(|n| !varies(*i, n));
    let load = |e: &Expr| matches!(e.node(), Node::Load(_, index) if index.iter().all(steady));
    expr::nodes(form.epilogue).iter().filter(|e| load(e)).count()
}

/// Register tiles that fit: accumulators, the vectors of one step, and one broadcast element.
fn tiles(form: &Form, target: &Target, s: &Schedule, quads: bool) -> Vec<(usize, usize)> {
    // A few registers stay free for copies and for what the epilogue holds.
    let free = match (target.overwrites, target.wide) {
        (_, true) => 1,
        (true, _) => 3,
        _ if target.regs > 16 => 3,
        _ => 1,
    };
    let room = target.regs.saturating_sub(free) as usize;
    // Sums of the terms that fill no vector are held beside the others.
    let sums = if s.dot && target.wide && super::dot::tail(form, target).is_some() { 2 } else { 1 };
    // What the epilogue does with all sums alike, and what it computes.
    let after = if target.wide { uniform_loads(form, s) + 3 } else { 0 };
    let scalar_limit = if s.lanes == 1 && !s.dot { 4 } else { usize::MAX };
    let own_bytes = form.exact.is_some() && s.n.is_some_and(|n| varies(form.ops[1 - s.vec].flat, n));
    let elements = target.by_element && s.lanes > 1 && form.fours.is_none();
    let mut out = vec![];
    for mr in 1..=14.min(scalar_limit) {
        for nv in 1..=8.min(scalar_limit) {
            let held = match elements {
                true if form.ops[1 - s.vec].data.is_some() => nv + mr.div_ceil(4),
                true if quads => nv + mr,
                _ => mr.min(nv) + 1,
            };
            let held = held + form.few.as_ref().map_or(0, |few| few.held() * nv);
            // Words of even and odd bytes of both, a product, and what takes them apart.
            let held = held + if form.words() == 2 { 4 } else { 0 };
            // Elements of a window of bytes are converted once for all terms that share them.
            let held = if own_bytes { mr * nv + 3 * nv + 1 } else { held };
            if mr * nv * sums + held.max(after.min(7)) <= room {
                out.push((mr, nv));
            }
        }
    }
    out
}

/// Whether vectors of consecutive terms of the broadcast operand serve multiplications by single elements.
pub(super) fn quads(form: &Form, target: &Target, s: &Schedule) -> bool {
    let op = &form.ops[1 - s.vec];
    target.by_element
        && form.fours.is_none()
        && s.lanes > 1
        && s.n.is_none_or(|n| !varies(op.flat, n))
        && form.ks.last().is_some_and(|k| coef(op.flat, *k) == Some(Int::new(1)))
}
