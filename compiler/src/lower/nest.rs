//! Loop nests to kernel IR: which variable carries the lanes, where loops are cut, in which order they run.

mod reduce;

use super::emit::{Emit, guards, linearize};
use super::{LoweredKernel, split};
use crate::codegen::vector_bits;
use crate::dtype::DType;
use crate::fuse::{Fold, Nest, Stage};
use crate::kernel::ir::{Access, Reg, Type};
use crate::sym::{Int, VarId, linear_in};
use crate::te::{self, Expr, Node, Program, ReduceKind, TensorId, expr};
use graphmend_targets::Cpu;
use std::collections::{BTreeSet, HashMap};

/// Lowers a nest. Its work units are the values of its first outer variable, or parts of the second one's range for each
/// of these if they are few.
pub fn lower(p: &Program, cpu: &Cpu, name: &str, nest: &Nest) -> LoweredKernel {
    let locals: BTreeSet<TensorId> = nest
        .stages
        .iter()
        .filter_map(|s| match s {
            Stage::Reduce { id, .. } => Some(*id),
            Stage::Store { .. } => None,
        })
        .collect();
    // A pure map is cut where conditions on its indices change, so that inside of a piece no condition is left.
    let mut first = nest.vars.first().copied();
    let pieces = match nest.stages.as_slice() {
        [Stage::Store { id, inner, body, position }] => {
            let mut vars: Vec<VarId> = nest.vars.iter().chain(inner).copied().collect();
            let mut found = cut(*id, &vars, *body, *position, Int::new(0));
            let extents: Vec<Int> = vars.iter().map(|v| v.extent().unwrap_or(Int::new(1))).collect();
            let units = unit_axis(&extents);
            if found.len() > 1 && units > 0 {
                vars[..=units].rotate_right(1);
                first = vars.first().copied();
                found = cut(*id, &vars, *body, *position, Int::new(0));
            }
            found
        }
        _ => cut_stages(nest),
    };
    run_pieces(p, cpu, name, pieces, first.and_then(|v| v.extent()), &locals)
}

/// Lowers the pieces of an assembled tensor. Work units are the values of its first index.
pub fn lower_pieces(p: &Program, cpu: &Cpu, name: &str, t: TensorId, pieces: &[te::Piece]) -> LoweredKernel {
    let shape = &p.tensor(t).shape;
    let many: Vec<usize> = (0..shape.len()).filter(|k| shape[*k] != Int::new(1)).collect();
    let extents: Vec<Int> = many.iter().map(|k| shape[*k]).collect();
    let units = many.get(unit_axis(&extents)).copied();
    let all = pieces.iter().flat_map(|piece| {
        // The first variable is the work unit, however many values it has.
        let rest = many.iter().filter(|k| Some(**k) != units && piece.vars[**k].extent() != Some(Int::new(1)));
        let vars: Vec<VarId> = units.iter().chain(rest).map(|k| piece.vars[*k]).collect();
        let start = units.map_or(Int::new(0), |k| piece.start[k]);
        cut(t, &vars, piece.body, p.position(t, &piece.index()), start)
    });
    let units = units.map(|k| shape[k]);
    run_pieces(p, cpu, name, all.collect(), units, &BTreeSet::new())
}

/// The axis whose values are the work units of a map that is cut into pieces: the first one, or where that has few values the first
/// that has enough for several threads. Never the last, along which vectors lie.
fn unit_axis(extents: &[Int]) -> usize {
    let many = |n: &Int| n.as_const().is_some_and(|n| n >= UNITS / 4);
    let few = extents.first().and_then(|n| n.as_const()).is_some_and(|n| n < UNITS / 4);
    let inner = extents.len().saturating_sub(1);
    extents[..inner].iter().position(many).filter(|_| few).unwrap_or(0)
}

/// A map's space in parts, each with where it begins along the first variable, whose range begins at `start`.
fn cut(id: TensorId, vars: &[VarId], body: Expr, position: Int, start: Int) -> Vec<(Nest, Int)> {
    let nests = split::pieces(vars, &[body], MOST_PIECES).into_iter().map(|piece| {
        let position = piece.subst_int(position);
        let stage = Stage::Store { id, inner: vec![], body: piece.subst(body), position };
        (Nest { vars: piece.vars, stages: vec![stage] }, start + piece.start)
    });
    nests.collect()
}

/// A nest's space in parts, all stages in each: reductions over what is chosen by an outer index, as joined tensors are.
fn cut_stages(nest: &Nest) -> Vec<(Nest, Int)> {
    let whole = || vec![(nest.clone(), Int::new(0))];
    // With several parts work units are the values of the first variable: these should be many.
    let first = nest.vars.first().and_then(|v| v.extent());
    if first.and_then(|n| n.as_const()).is_none_or(|n| n < UNITS / 4) {
        return whole();
    }
    let bodies: Vec<Expr> = nest.stages.iter().flat_map(|s| parts(s).0).collect();
    let found = split::pieces(&nest.vars, &bodies, MOST_PARTS);
    if found.len() == 1 {
        return whole();
    }
    let nests = found.into_iter().map(|piece| {
        let each = |list: &[Expr]| list.iter().map(|e| piece.subst(*e)).collect();
        let stages = nest.stages.iter().map(|stage| match stage.clone() {
            Stage::Reduce { id, rvars, fold: Fold::Reduce(kind, body) } => {
                Stage::Reduce { id, rvars, fold: Fold::Reduce(kind, piece.subst(body)) }
            }
            Stage::Reduce { id, rvars, fold: Fold::Ordered(init, step, result) } => {
                Stage::Reduce { id, rvars, fold: Fold::Ordered(each(&init), each(&step), piece.subst(result)) }
            }
            Stage::Store { id, inner, body, position } => {
                Stage::Store { id, inner, body: piece.subst(body), position: piece.subst_int(position) }
            }
        });
        let start = piece.start;
        (Nest { stages: stages.collect(), vars: piece.vars.clone() }, start)
    });
    nests.collect()
}

/// Most pieces that a map is cut into.
const MOST_PIECES: usize = 48;
/// Most pieces that a nest with reductions is cut into: each has code for all stages.
const MOST_PARTS: usize = 12;

/// Lowers nests that are parts of one space with `units` values of its first variable, each with where it begins.
fn run_pieces(
    p: &Program,
    cpu: &Cpu,
    name: &str,
    pieces: Vec<(Nest, Int)>,
    units: Option<Int>,
    locals: &BTreeSet<TensorId>,
) -> LoweredKernel {
    let tiled = units.is_some() && pieces.iter().all(|(n, _)| !n.vars.is_empty());
    let mut e = Emit::new(p, name, tiled);
    let mut tiles = units.filter(|_| tiled);
    let whole = pieces.len() == 1 && pieces[0].0.vars.first().and_then(|v| v.extent()) == units;
    for (mut piece, start) in pieces {
        linearize_nest(p, &mut piece, locals);
        // Work units are values of the first variable: with several pieces it stays.
        super::collapse::collapse(&mut piece, usize::from(!whole));
        let parts = if tiled && whole { parts_of_second(&piece) } else { None };
        if tiled && whole {
            tiles = piece.vars.first().and_then(|v| v.extent()).map(|t| t * parts.unwrap_or(1));
        }
        let mut run = Run { e: &mut e, cpu, tiled, whole, start, parts, part: None, block: 1 };
        run.nest(&piece);
        let block = run.block;
        tiles = tiles.map(|n| n.ceil_div(block));
    }
    e.finish(tiles)
}

/// Work units that there should be: enough for many threads.
const UNITS: i64 = 64;
/// Elements that must be read or written for more units to pay.
const MANY: i64 = 1 << 14;
/// Assumed where an extent is not known before the run.
const SOME: i64 = 24;

/// Into how many parts the range of the second variable is cut, where the first one's values are too few work units.
fn parts_of_second(nest: &Nest) -> Option<i64> {
    let [first, second, ..] = nest.vars.as_slice() else { return None };
    let known = |v: &VarId| v.extent().and_then(|n| n.as_const());
    let count = |vars: &[VarId]| vars.iter().fold(1, |n: i64, v| n.saturating_mul(known(v).unwrap_or(SOME)));
    let inner = nest.stages.iter().map(|s| match s {
        Stage::Reduce { rvars: v, .. } | Stage::Store { inner: v, .. } => count(v),
    });
    if count(&nest.vars).saturating_mul(inner.max().unwrap_or(1)) < MANY {
        return None;
    }
    // An open first extent is mostly a batch, often of one.
    let wanted = UNITS / known(first).unwrap_or(1).max(1);
    let parts = known(second).unwrap_or(UNITS).min(wanted);
    (parts > 1).then_some(parts)
}

fn linearize_nest(p: &Program, nest: &mut Nest, locals: &BTreeSet<TensorId>) {
    let keep = |t: TensorId| locals.contains(&t);
    for stage in &mut nest.stages {
        match stage {
            Stage::Reduce { fold: Fold::Reduce(_, body), .. } | Stage::Store { body, .. } => {
                *body = linearize(p, *body, &keep);
            }
            Stage::Reduce { fold: Fold::Ordered(init, step, result), .. } => {
                for e in init.iter_mut().chain(step.iter_mut()).chain([result]) {
                    *e = linearize(p, *e, &keep);
                }
            }
        }
    }
}

/// Expressions and store positions of a stage.
pub(super) fn parts(stage: &Stage) -> (Vec<Expr>, Vec<Int>) {
    match stage {
        Stage::Reduce { fold: Fold::Reduce(_, body), .. } => (vec![*body], vec![]),
        Stage::Reduce { fold: Fold::Ordered(init, step, result), .. } => {
            (init.iter().chain(step).chain([result]).copied().collect(), vec![])
        }
        Stage::Store { body, position, .. } => (vec![*body], vec![*position]),
    }
}

/// Does an element take a function of many instructions?
fn is_heavy(stage: &Stage) -> bool {
    parts(stage).0.into_iter().any(super::is_heavy)
}

struct Run<'e, 'a> {
    e: &'e mut Emit<'a>,
    cpu: &'e Cpu,
    tiled: bool,
    /// There are no other pieces.
    whole: bool,
    /// Work unit at which the first variable of this piece starts.
    start: Int,
    /// See [`parts_of_second`]; then a work unit is a value of the first variable and a part of the second one's range.
    parts: Option<i64>,
    /// Number of this unit's part.
    part: Option<Reg>,
    /// Values of the first variable in a work unit.
    block: i64,
}

/// Accumulators of a sum on processors without vectors.
const SCALAR_SUMS: u16 = 8;
/// What is done with the iterations that are too few for all lanes.
#[derive(Clone, Copy)]
enum Tails {
    /// Fewer lanes take them.
    Lanes,
    /// One by one, into an accumulator without lanes.
    Single,
}

/// How well lanes along a variable fit.
enum Fit {
    Good,
    Possible,
    Bad,
}

impl Run<'_, '_> {
    fn nest(&mut self, nest: &Nest) {
        self.e.vars.clear();
        self.e.locals.clear();
        // Lanes along the last outer variable serve all stages; lanes along a stage's own last variable serve it alone.
        let own: Vec<Option<VarId>> = nest.stages.iter().map(own_variable).collect();
        let all_outer = nest.vars.last().copied().filter(|v| {
            let fits: Vec<Fit> = nest.stages.iter().map(|s| self.fit(s, *v)).collect();
            let inner_better = nest.stages.iter().zip(&own).any(|(s, o)| {
                o.is_some_and(|o| matches!(self.fit(s, o), Fit::Good)) && !matches!(self.fit(s, *v), Fit::Good)
            });
            // Where each element takes long to compute, lanes pay even if all are loaded one by one.
            let pays = fits.iter().any(|f| matches!(f, Fit::Good)) || nest.stages.iter().any(is_heavy);
            fits.iter().all(|f| !matches!(f, Fit::Bad)) && pays && !inner_better
        });
        let lanes = self.lanes(&nest.stages, nest.vars.last().copied());
        self.outer(nest, 0, all_outer.filter(|_| lanes > 1).map(|v| (v, self.fitting(lanes, v))));
    }

    /// Loads and stores go along `v` with steps of 0 or 1, and there is no integer division.
    fn fit(&self, stage: &Stage, v: VarId) -> Fit {
        let (exprs, positions) = parts(stage);
        let mut unit = false;
        let mut odd = false;
        let mut stride = |i: Int, odd: &mut bool| match linear_in(i, v).and_then(|(s, _)| s.as_const()) {
            Some(0) => {}
            Some(1) => unit = true,
            Some(_) => *odd = true,
            None => *odd = true,
        };
        for e in &exprs {
            for (_, index) in expr::loads(*e) {
                index.iter().for_each(|i| stride(*i, &mut odd));
            }
            for n in expr::nodes(*e) {
                match n.node() {
                    Node::Int(i) if linear_in(i, v).is_none() => return Fit::Bad,
                    // Conditions that guard loads must be branches.
                    Node::Select(c, ..) if depends(c, v) && guards(n) => return Fit::Bad,
                    _ => {}
                }
            }
        }
        let before = odd;
        for i in positions {
            stride(i, &mut odd);
            if odd && !before {
                return Fit::Bad;
            }
        }
        match (unit, odd) {
            (true, false) => Fit::Good,
            (true, true) => Fit::Possible,
            _ => Fit::Bad,
        }
    }

    /// Lanes along `v` for these stages: whole vectors of the widest type, several where little is live at a time.
    fn lanes(&self, stages: &[Stage], v: Option<VarId>) -> u16 {
        if self.cpu.vector_bits == 0 {
            // Sums keep several accumulators even so: one alone rounds once an element, and waits for each addition.
            let sums = stages.iter().any(|s| matches!(s, Stage::Reduce { fold: Fold::Reduce(ReduceKind::Sum, _), .. }));
            return if sums { SCALAR_SUMS } else { 1 };
        }
        let mut size = 0;
        let mut nodes = 0;
        for s in stages {
            let (exprs, _) = parts(s);
            for e in exprs {
                for n in expr::nodes(e) {
                    nodes += 1;
                    // What all lanes have in common stays a scalar, such as a position that chooses what is read.
                    if n.dtype() == DType::I64 && v.is_some_and(|v| !depends(n, v)) {
                        continue;
                    }
                    size = size.max(if n.dtype() == DType::Bool { 1 } else { n.dtype().size() });
                }
            }
        }
        let base = (self.vector_bytes() / size.max(1)) as u16;
        match stages.iter().any(is_heavy) {
            // Two vectors at a time: one waits for itself.
            true if self.vector_bytes() >= 64 => base * 2,
            false if nodes <= 12 && size > 2 => base * 4,
            _ => base,
        }
    }

    /// Bytes of the vectors that code is generated with.
    fn vector_bytes(&self) -> usize {
        vector_bits(self.cpu.into()).min(self.cpu.vector_bits) as usize / 8
    }

    /// At most as many lanes as an extent has, so that not all of it is a tail.
    fn fitting(&self, lanes: u16, v: VarId) -> u16 {
        let mut lanes = lanes;
        if let Some(n) = v.extent().and_then(|n| n.as_const()) {
            while lanes > 4 && i64::from(lanes) > n {
                lanes /= 2;
            }
        }
        lanes
    }

    /// The lane counts that take `count` iterations: the full one, then ever fewer. Where the count is known and vectors may
    /// have any number of lanes, what is left is taken at once.
    fn steps(&self, lanes: u16, count: Option<i64>) -> Vec<u16> {
        if self.vector_bytes() <= 16 {
            return vec![lanes, 1];
        }
        match count.map(|n| (n % i64::from(lanes)) as u16) {
            Some(0) => vec![lanes],
            Some(rest) => vec![lanes, rest],
            None => {
                let mut steps = vec![lanes];
                while let Some(last) = steps.last().filter(|n| **n > 1) {
                    steps.push((last / 4).max(1));
                }
                steps
            }
        }
    }

    /// The lane counts that take any number of whole blocks and the end of `count` iterations.
    fn steps_of_blocks(&self, lanes: u16, count: Option<i64>) -> Vec<u16> {
        let block = self.block as u16;
        let mut steps = vec![lanes];
        let next = |last: u16, least: u16| (last > least).then(|| (last / 4).max(least));
        while let Some(n) = steps.last().and_then(|last| next(*last, block)) {
            steps.push(n);
        }
        match count.map(|n| (n % i64::from(block)) as u16) {
            Some(0) => {}
            Some(rest) if self.vector_bytes() > 16 => steps.push(rest),
            _ => {
                while let Some(n) = steps.last().and_then(|last| next(*last, 1)) {
                    steps.push(if self.vector_bytes() > 16 { n } else { 1 });
                }
            }
        }
        steps
    }

    fn outer(&mut self, nest: &Nest, depth: usize, lane: Option<(VarId, u16)>) {
        let Some(v) = nest.vars.get(depth).copied() else {
            self.stages(nest, lane.is_none());
            return;
        };
        let extent = v.extent().unwrap_or(Int::new(1));
        let (mut lo, mut hi) = (self.e.b.i64(0), self.e.int(extent));
        if depth == 0 && self.tiled {
            // This call's share, relative to where the piece starts.
            let (from, to, start) = (self.e.b.tile_lo(), self.e.b.tile_hi(), self.e.int(self.start));
            let (from, to) = (self.e.b.sub(from, start), self.e.b.sub(to, start));
            if let Some(parts) = self.parts {
                return self.outer_parts(nest, v, (from, to), parts, lane);
            }
            if let Some((_, lanes)) = lane.filter(|(lv, _)| *lv == v && self.whole) {
                // Vectors lie along the units: these are whole vectors, whatever the share.
                self.block = i64::from(lanes.min((self.vector_bytes() / 4).max(4) as u16));
                let block = self.e.b.i64(self.block);
                lo = self.e.b.mul(from, block);
                let to = self.e.b.mul(to, block);
                hi = self.e.b.min(hi, to);
                for n in self.steps_of_blocks(lanes, extent.as_const()) {
                    let whole = self.whole(lo, hi, n);
                    self.body(nest, depth, v, (lo, whole), Some((v, n)));
                    lo = whole;
                }
                return;
            }
            lo = self.e.b.max(lo, from);
            hi = self.e.b.min(hi, to);
        }
        if let (1, Some(parts), Some(part)) = (depth, self.parts, self.part) {
            let step = lane.filter(|(lv, _)| *lv == v).map_or(1, |(_, n)| i64::from(n));
            let size = self.e.int(extent.ceil_div(parts).ceil_div(step) * step);
            lo = self.e.b.mul(part, size);
            let next = self.e.b.add(lo, size);
            hi = self.e.b.min(next, hi);
        }
        match lane {
            Some((lv, n)) if lv == v => {
                let cut = if self.parts.is_some() { depth <= 1 } else { depth == 0 && self.tiled };
                let known = extent.as_const().filter(|_| !cut);
                for n in self.steps(n, known) {
                    let whole = self.whole(lo, hi, n);
                    self.body(nest, depth, v, (lo, whole), Some((v, n)));
                    lo = whole;
                }
            }
            _ => self.body(nest, depth, v, (lo, hi), lane),
        }
    }

    /// Where the last whole step of `n` from `lo` on ends.
    fn whole(&mut self, lo: Reg, hi: Reg, n: u16) -> Reg {
        if n == 1 {
            return hi;
        }
        let (zero, n) = (self.e.b.i64(0), self.e.b.i64(n.into()));
        let count = self.e.b.sub(hi, lo);
        let count = self.e.b.max(count, zero);
        let tail = self.e.b.rem(count, n);
        self.e.b.sub(hi, tail)
    }

    /// The loop over work units that are a value of the first variable `v` and a part of the second one's range.
    fn outer_parts(&mut self, nest: &Nest, v: VarId, (from, to): (Reg, Reg), parts: i64, lane: Option<(VarId, u16)>) {
        let unit = self.e.b.begin_for(from, to, 1);
        let parts = self.e.b.i64(parts);
        let (i, part) = (self.e.b.div(unit, parts), self.e.b.rem(unit, parts));
        self.e.vars.insert(v, i);
        self.part = Some(part);
        self.e.forget();
        self.outer(nest, 1, lane);
        self.e.forget();
        self.part = None;
        self.e.vars.remove(&v);
        self.e.b.end();
    }

    fn body(&mut self, nest: &Nest, depth: usize, v: VarId, range: (Reg, Reg), lane: Option<(VarId, u16)>) {
        let step = lane.filter(|(lv, _)| *lv == v).map_or(1, |(_, n)| n);
        let i = self.e.b.begin_for(range.0, range.1, step.into());
        self.e.vars.insert(v, i);
        if step > 1 {
            self.e.lane = Some((v, step));
        }
        self.e.forget();
        self.outer(nest, depth + 1, lane);
        self.e.forget();
        self.e.lane = None;
        self.e.vars.remove(&v);
        self.e.b.end();
    }

    /// All stages of one iteration; with `alone` each has lanes of its own, as many as suit it.
    fn stages(&mut self, nest: &Nest, alone: bool) {
        for stage in &nest.stages {
            let own_lanes = alone.then(|| self.lanes(std::slice::from_ref(stage), own_variable(stage)));
            match stage {
                Stage::Reduce { id, rvars, fold } => {
                    let lane = own_lanes.filter(|n| *n > 1).and_then(|n| {
                        let v = *rvars.last()?;
                        let ordered = matches!(fold, Fold::Ordered(..));
                        (!ordered && matches!(self.fit(stage, v), Fit::Good)).then(|| (v, self.fitting(n, v)))
                    });
                    let r = match fold {
                        Fold::Reduce(kind, body) => self.reduce(*kind, *body, rvars, lane),
                        Fold::Ordered(init, step, result) => self.ordered(init, step, *result, rvars),
                    };
                    self.e.forget();
                    self.e.locals.insert(*id, r);
                }
                Stage::Store { id, inner, body, position } => {
                    let lane = own_lanes.filter(|n| *n > 1).and_then(|n| {
                        let v = *inner.last()?;
                        matches!(self.fit(stage, v), Fit::Good).then(|| (v, self.fitting(n, v)))
                    });
                    self.store(*id, *body, *position, inner, lane);
                    self.e.forget();
                }
            }
        }
    }

    /// Runs `leaf` for all values of `vars`; the last one in steps of the lanes, then of fewer, or (`tails`) one by one.
    fn inner(&mut self, vars: &[VarId], lane: Option<(VarId, u16)>, tails: Tails, leaf: &mut dyn FnMut(&mut Self)) {
        let Some(v) = vars.first() else {
            self.e.forget();
            leaf(self);
            return;
        };
        let (lo, hi) = (self.e.b.i64(0), self.e.int(v.extent().unwrap_or(Int::new(1))));
        self.span(vars, (lo, hi), lane, tails, leaf);
    }

    /// [`Self::inner`] with the first variable in a part of its range.
    fn span(
        &mut self,
        vars: &[VarId],
        (lo, hi): (Reg, Reg),
        lane: Option<(VarId, u16)>,
        tails: Tails,
        leaf: &mut dyn FnMut(&mut Self),
    ) {
        let Some((v, rest)) = vars.split_first() else { return };
        let mut go = |this: &mut Self, lo: Reg, hi: Reg, lane: Option<(VarId, u16)>, step: i64| {
            let i = this.e.b.begin_for(lo, hi, step);
            this.e.vars.insert(*v, i);
            this.e.forget();
            if step > 1 {
                this.e.lane = lane;
            }
            this.inner(rest, lane, tails, leaf);
            if step > 1 {
                this.e.lane = None;
            }
            this.e.forget();
            this.e.vars.remove(v);
            this.e.b.end();
        };
        match lane {
            Some((lv, n)) if lv == *v => {
                let steps = match tails {
                    Tails::Lanes => self.steps(n, v.extent().and_then(|n| n.as_const())),
                    Tails::Single => vec![n, 1],
                };
                let mut lo = lo;
                for n in steps {
                    let whole = self.whole(lo, hi, n);
                    go(self, lo, whole, (n > 1).then_some((*v, n)), n.into());
                    lo = whole;
                }
            }
            _ => go(self, lo, hi, lane, 1),
        }
    }

    fn store(&mut self, id: TensorId, body: Expr, position: Int, inner: &[VarId], lane: Option<(VarId, u16)>) {
        let buf = self.e.tensor_buf(id, Access::Write);
        self.inner(inner, lane, Tails::Lanes, &mut |this: &mut Self| {
            let value = this.e.expr(body);
            this.e.store_flat(buf, position, value);
        });
    }
}

/// The innermost variable that a stage has for itself.
fn own_variable(stage: &Stage) -> Option<VarId> {
    match stage {
        Stage::Reduce { rvars, .. } => rvars.last().copied(),
        Stage::Store { inner, .. } => inner.last().copied(),
    }
}

fn depends(e: Expr, v: VarId) -> bool {
    let mut vars = BTreeSet::new();
    expr::collect_vars(e, &mut vars);
    vars.contains(&v)
}

/// The type of a scalar of `elem`.
pub fn scalar(elem: DType) -> Type {
    Type { elem, lanes: 1 }
}

/// Substitutions of loop variables, for pieces and collapsed loops.
pub(super) type Moves = HashMap<VarId, Int>;

#[cfg(test)]
mod tests;
