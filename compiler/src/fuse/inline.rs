//! Maps that disappear into their users.
//!
//! A map is inlined when every user may compute it in place: it is *movement* (at most a choice of one load, a constant
//! or a conversion of one), or it has one user that reads each of its elements once. A user that reads elements many
//! times (a reduction over a broadcast operand, a contraction) takes only plain movement.

use super::uses::{Uses, exprs};
use crate::dtype::DType;
use crate::lower::{contract, is_heavy};
use crate::sym::{Atom, Int, VarId};
use crate::te::cx::reindex;
use crate::te::{Block, Def, Expr, Func2, Node, Piece, Program, Step, TensorId, expr};
use std::collections::BTreeSet;

/// Largest expression that inlining may make.
const MOST_NODES: usize = 400;

/// Decides and rewrites. Gives the program with inlined definitions, the tensors that stay, and how many went.
pub fn inline(mut p: Program, uses: &Uses) -> (Program, BTreeSet<TensorId>, usize) {
    let mut stored = BTreeSet::new();
    let mut inlined = 0;
    for t in defined(&p).into_iter().filter(|t| uses.live.contains(t)) {
        let def = p.tensor(t).def.clone();
        let def = rewrite(&p, &stored, t, def);
        p.tensors[t.0 as usize].def = def;
        if goes(&p, uses, t) {
            inlined += 1;
        } else {
            stored.insert(t);
        }
    }
    (p, stored, inlined)
}

/// All tensors in order of definition: operands come first.
pub(super) fn defined(p: &Program) -> Vec<TensorId> {
    fn go(b: &Block, out: &mut Vec<TensorId>) {
        for step in &b.steps {
            match step {
                Step::Define(t) => out.push(*t),
                Step::Check(_) => {}
                Step::If { then, other, .. } => {
                    go(then, out);
                    go(other, out);
                }
                Step::Loop(l) => go(&l.body, out),
            }
        }
    }
    let mut out = vec![];
    go(&p.main, &mut out);
    out
}

/// Puts the bodies of inlined tensors into a definition.
fn rewrite(p: &Program, stored: &BTreeSet<TensorId>, t: TensorId, def: Def) -> Def {
    let put = |e: Expr| substitute(p, stored, e);
    if let Def::View(base) = def
        && !stored.contains(&base)
    {
        // The base was inlined: the view becomes a map of its own.
        let shape = p.tensor(t).shape.clone();
        let vars = crate::te::cx::index_vars("i", &shape);
        let index = crate::te::cx::index_of(&vars);
        let at = reindex(&shape, &p.tensor(base).shape, &index);
        let load = expr::load(base, p.tensor(base).dtype, at);
        return Def::Map { vars, body: put(load) };
    }
    let mut def = def;
    super::rewrite(&mut def, &put);
    def
}

fn substitute(p: &Program, stored: &BTreeSet<TensorId>, e: Expr) -> Expr {
    expr::map_loads(e, &mut |t, index, _| {
        if stored.contains(&t) {
            return None;
        }
        let Def::Map { vars, body } = &p.tensor(t).def else { return None };
        let at = |v: VarId| vars.iter().position(|x| *x == v).map(|k| index[k]);
        let e = expr::subst_vars(*body, &at);
        // A half-precision tensor rounds what it holds, in memory or not.
        Some(if p.tensor(t).dtype.is_float() { expr::cast(p.tensor(t).dtype, e) } else { e })
    })
}

/// Does `t` disappear?
fn goes(p: &Program, uses: &Uses, t: TensorId) -> bool {
    if uses.whole.contains(&t) {
        return false;
    }
    let Def::Map { vars, body } = &p.tensor(t).def else { return false };
    let Some(readers) = uses.readers.get(&t) else { return false };
    let movement = is_movement(*body) || decodes(p, *body);
    if stays_bytes(p, uses, t, *body) {
        return false;
    }
    let plain = is_plain(*body);
    let size = expr::nodes(*body).len();
    let cheap = size <= 6 && !is_heavy(*body);
    let has_sum = expr::loads(*body)
        .iter()
        .any(|(s, _)| matches!(p.tensor(*s).def, Def::Reduce { .. } | Def::Fold { .. }) || is_view_of_sum(p, *s));
    if size > MOST_NODES || (readers.len() > 1 && !movement && !ends_in_one(p, uses, t, has_sum)) {
        return false;
    }
    // What is computed before a loop is not computed again in each trip.
    if !movement && readers.iter().any(|r| uses.in_loop.get(r) != uses.in_loop.get(&t)) {
        return false;
    }
    readers.iter().all(|r| {
        let tensor = p.tensor(*r);
        match &tensor.def {
            // Through a view, only where the index needs no division.
            Def::View(_) => {
                let index = crate::te::cx::index_of(&crate::te::cx::index_vars("i", &tensor.shape));
                let at = reindex(&tensor.shape, &p.tensor(t).shape, &index);
                !uses.whole.contains(r)
                    && at.iter().all(|i| !divides(*i))
                    && uses.readers.get(r).is_some_and(|rs| rs.len() == 1 || movement)
                    && uses
                        .readers
                        .get(r)
                        .is_some_and(|rs| rs.iter().all(|x| matches!(p.tensor(*x).def, Def::Map { .. })))
                    && !has_sum
            }
            Def::Map { .. } => {
                let all: Vec<Expr> = exprs(&tensor.def);
                let reads = reads_of(&all, t);
                let grown: usize = all.iter().map(|e| expr::nodes(*e).len()).sum::<usize>() + size * reads.len();
                grown <= MOST_NODES
                    && if movement {
                        reads.len() <= 4
                    } else {
                        reads.len() == 1
                            && once(&reads[0], vars.len())
                            && (cheap || Int::product(&tensor.shape).le(Int::product(&p.tensor(t).shape)) == Some(true))
                            && (!has_sum || identity(&reads[0], &p.tensor(t).shape))
                    }
            }
            Def::Assembled { pieces, .. } => {
                let reads: Vec<(&Piece, Vec<Int>)> =
                    pieces.iter().flat_map(|c| reads_of(&[c.body], t).into_iter().map(move |r| (c, r))).collect();
                let fits = |c: &Piece| expr::nodes(c.body).len() + size <= MOST_NODES;
                reads.iter().all(|(c, _)| fits(c))
                    && match reads.as_slice() {
                        _ if movement => reads.len() <= 4,
                        [(c, read)] => {
                            let space: Vec<Int> = c.vars.iter().filter_map(|v| v.extent()).collect();
                            let small =
                                cheap || Int::product(&space).le(Int::product(&p.tensor(t).shape)) == Some(true);
                            once(read, vars.len()) && small && !has_sum
                        }
                        _ => false,
                    }
            }
            Def::Reduce { vars: v, rvars, .. } | Def::Fold { vars: v, rvars, .. } => {
                let all = exprs(&tensor.def);
                let reads = reads_of(&all, t);
                if contract::recognise(p, *r).is_some() {
                    return plain && reads.len() == 1;
                }
                let index_space = v.len() + rvars.len();
                (movement && reads.len() <= 2 && plain)
                    || (reads.len() == 1 && !has_sum && covers(&reads[0], v, rvars) && vars.len() <= index_space)
            }
            _ => false,
        }
    })
}

/// Is it one quantised number, made of a byte by a few operations with what is the same for all elements or along an axis?
fn decodes(p: &Program, e: Expr) -> bool {
    let Node::Bin(Func2::Mul, a, b) = e.node() else { return false };
    let scaled = |e: Expr| match e.node() {
        Node::Cast(_, whole) => match whole.node() {
            Node::Bin(Func2::Sub, byte, zero) => is_byte_load(p, byte) && is_movement(zero),
            _ => is_byte_load(p, whole),
        },
        _ => false,
    };
    scaled(a) && is_movement(b) || scaled(b) && is_movement(a)
}

fn is_byte_load(p: &Program, e: Expr) -> bool {
    let Node::Cast(DType::I32, load) = e.node() else { return false };
    matches!(load.node(), Node::Load(t, _) if p.tensor(t).dtype.size() == 1)
}

/// Should a tensor of bytes lie in memory? What is decoded from it for several readers, for one that goes through it more than
/// once, or for a sum over it takes a quarter of the memory if it is kept as bytes.
fn stays_bytes(p: &Program, uses: &Uses, t: TensorId, body: Expr) -> bool {
    if !matches!(p.tensor(t).dtype, DType::I8 | DType::U8) || is_movement(body) {
        return false;
    }
    let only = |t: TensorId| {
        let readers = uses.readers.get(&t)?;
        readers.first().copied().filter(|_| readers.len() == 1)
    };
    let decoded = |t: TensorId| match p.tensor(t).def {
        Def::Map { body, .. } => decodes(p, body),
        _ => false,
    };
    let Some(readers) = uses.readers.get(&t) else { return false };
    if !readers.iter().any(|r| decoded(*r)) {
        return false;
    }
    let Some(decoder) = only(t) else { return true };
    let Some(user) = only(decoder) else { return true };
    match &p.tensor(user).def {
        Def::Map { body, .. } => {
            let shape = &p.tensor(decoder).shape;
            let reads = reads_of(&[*body], decoder);
            is_heavy(*body) || reads.len() != 1 || !identity(&reads[0], shape)
        }
        Def::Reduce { .. } => contract::recognise(p, user).is_none(),
        _ => true,
    }
}

/// Do all who read `t` end in one map, by way of maps that it alone reads, element by element? In `x * sigmoid(x)` the
/// element of `x` is then computed once. Where `x` is a sum, the map that computes much must be kept as sums are: these wait
/// in its place.
fn ends_in_one(p: &Program, uses: &Uses, t: TensorId, sum: bool) -> bool {
    let Some(readers) = uses.readers.get(&t) else { return false };
    let dtype = p.tensor(t).dtype;
    let mut seen = 0;
    readers.iter().any(|last| {
        let light = sum && (p.tensor(*last).dtype != dtype || dtype != dtype.compute());
        let mut ways = Ways { p, uses, light, seen };
        let all = readers.iter().all(|r| ways.lead_to(t, *r, *last));
        seen = ways.seen;
        all
    })
}

/// Most maps looked at between a tensor and the map in which all its readers end.
const WAYS: usize = 32;

struct Ways<'a> {
    p: &'a Program,
    uses: &'a Uses,
    light: bool,
    seen: usize,
}

impl Ways<'_> {
    /// Does what `reader` makes of `t` end in `last` alone?
    fn lead_to(&mut self, t: TensorId, reader: TensorId, last: TensorId) -> bool {
        self.seen += 1;
        let tensor = self.p.tensor(reader);
        let Def::Map { vars, body } = &tensor.def else { return false };
        let own: Vec<Int> = vars.iter().map(|v| Int::var(*v)).collect();
        let plain = |i: &Int| crate::sym::subst(*i, &|v| (v.extent() == Some(Int::new(1))).then(|| Int::new(0)));
        let same = |index: &[Int]| index.iter().map(plain).eq(own.iter().map(plain));
        let here = self.seen <= WAYS
            && tensor.shape == self.p.tensor(t).shape
            && !(self.light && is_heavy(*body))
            && reads_of(&[*body], t).iter().all(|index| same(index));
        if !here || reader == last {
            return here;
        }
        let next = self.uses.readers.get(&reader);
        !self.uses.whole.contains(&reader) && next.is_some_and(|rs| rs.iter().all(|r| self.lead_to(reader, *r, last)))
    }
}

fn is_view_of_sum(p: &Program, t: TensorId) -> bool {
    matches!(p.tensor(t).def, Def::View(b) if matches!(p.tensor(b).def, Def::Reduce { .. } | Def::Fold { .. }))
}

fn reads_of(all: &[Expr], t: TensorId) -> Vec<Vec<Int>> {
    let mut out: Vec<Vec<Int>> = vec![];
    for e in all {
        for (s, index) in expr::loads(*e) {
            if s == t && !out.contains(&index) {
                out.push(index);
            }
        }
    }
    out
}

/// A load, a constant, a conversion of one, or choices among such.
pub(super) fn is_movement(e: Expr) -> bool {
    match e.node() {
        Node::Load(..) | Node::Const(_) | Node::Int(_) => true,
        Node::Cast(_, a) => is_movement(a),
        Node::Select(c, a, b) => !has_load(c) && is_movement(a) && is_movement(b),
        _ => false,
    }
}

/// One load without choices, divisions or data in its index, or a constant.
fn is_plain(e: Expr) -> bool {
    match e.node() {
        Node::Load(_, index) => index.iter().all(|i| !divides(*i)),
        Node::Const(_) => true,
        _ => false,
    }
}

fn has_load(e: Expr) -> bool {
    !expr::loads(e).is_empty()
}

/// Does the index hold anything but sums and products of variables?
fn divides(i: Int) -> bool {
    i.terms().iter().any(|(_, atoms)| atoms.iter().any(|a| !matches!(a, Atom::Var(_))))
}

/// Is each element read at most once, or nearly: every index part depends on another variable or is a constant?
fn once(index: &[Int], rank: usize) -> bool {
    debug_assert_eq!(index.len(), rank, "rank of a load");
    // A broadcast read (fewer variables than the reader has) computes again; cheap maps were handled before.
    let mut seen = BTreeSet::new();
    index.iter().all(|i| {
        let vars = crate::sym::free_vars(*i);
        let loops: Vec<VarId> = vars.into_iter().filter(|v| v.extent().is_some()).collect();
        !divides_by_data(*i) && loops.iter().all(|v| seen.insert(*v))
    })
}

fn divides_by_data(i: Int) -> bool {
    let mut data = false;
    crate::sym::map_data(i, &mut |_| {
        data = true;
        Int::new(0)
    });
    data
}

/// Does the index, made of the reader's variables, run through a tensor of this shape element by element?
fn identity(index: &[Int], shape: &[Int]) -> bool {
    index.len() == shape.len()
        && index.iter().zip(shape).all(|(i, d)| match i.as_var() {
            Some(v) => v.extent() == Some(*d),
            None => *d == Int::new(1) && i.as_const() == Some(0),
        })
}

/// Does the index run through distinct variables such that no output or reduced index with more than one value is
/// missing?
fn covers(index: &[Int], vars: &[VarId], rvars: &[VarId]) -> bool {
    let mut found = BTreeSet::new();
    for i in index {
        match i.as_var() {
            Some(v) => {
                found.insert(v);
            }
            None if i.as_const().is_some() => {}
            None => return false,
        }
    }
    vars.iter().chain(rvars).all(|v| v.extent() == Some(Int::new(1)) || found.contains(v))
}
