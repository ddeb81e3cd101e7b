//! Contractions: sums of products of two tensors (matrix products, convolutions), as register-tiled kernels.
//!
//! Both factors are read at affine positions. One of them, the *vector operand*, fills vectors along an axis of the output;
//! elements of the other, the *broadcast operand*, multiply whole vectors. A tile of several rows (axes of the broadcast
//! operand) by several vectors is summed in registers over all terms; then the epilogue, everything elementwise that
//! follows, is applied to the sums, and each result is stored once.
//!
//! Constant factors are packed: they lie in the order in which the tiles read them. Others are read as they lie.

mod after;
#[cfg(test)]
mod after_tests;
mod ahead;
pub(crate) mod chain;
mod cost;
mod dot;
mod few_bits;
#[cfg(test)]
mod few_bits_tests;
mod form;
mod nest;
mod operand;
mod pack;
mod range;
mod schedule;
mod source;
mod stage;
pub(super) mod target;
#[cfg(test)]
mod tests;
mod tile;
mod winograd;

use super::LoweredKernel;
use super::emit::Emit;
use crate::dtype::DType;
use crate::fuse::Contract;
use crate::kernel::ir::{Access, Buf, Dot};
use crate::sym::{Int, VarId};
use crate::te::cx::flatten;
use crate::te::{Def, Expr, Func2, Node, Program, ReduceKind, TensorId};
use after::Pass;
use form::{Form, Operand, extent, varies};
use operand::Stream;
use schedule::Schedule;
use std::sync::Arc;
use target::Target;
use tile::Gen;

/// A sum of products: `out[vars] = Σ over rvars of lhs * rhs`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contraction {
    /// Output axes, outermost first.
    pub vars: Vec<VarId>,
    /// Reduced axes, outermost first.
    pub rvars: Vec<VarId>,
    /// First factor: tensor and index, affine in `vars` and `rvars`.
    pub lhs: (TensorId, Vec<Int>),
    /// Second factor.
    pub rhs: (TensorId, Vec<Int>),
    /// Element type of the sum.
    pub dtype: DType,
}

/// The contraction that tensor `t` is, if it is one: a sum of products of two loads whose indices are affine.
pub fn recognise(program: &Program, t: TensorId) -> Option<Contraction> {
    let tensor = program.tensor(t);
    let Def::Reduce { vars, rvars, kind: ReduceKind::Sum, body } = &tensor.def else { return None };
    let Node::Bin(Func2::Mul, a, b) = body.node() else { return None };
    let (a, ia) = factor(program, a, tensor.dtype)?;
    let (b, ib) = factor(program, b, tensor.dtype)?;
    // In sums of squares no element serves twice: they are reductions.
    if (a, &ia) == (b, &ib) {
        return None;
    }
    let c = Contraction { vars: vars.clone(), rvars: rvars.clone(), lhs: (a, ia), rhs: (b, ib), dtype: tensor.dtype };
    form::operands(program, &c).map(|_| c)
}

/// Does the contraction that tensor `t` is read one of its factors as integers and scales?
pub fn reads_codes(program: &Program, t: TensorId) -> bool {
    let Some(c) = recognise(program, t) else { return false };
    let at: Vec<Int> = c.vars.iter().map(|v| Int::var(*v)).collect();
    let position = flatten(&extents(&c.vars), &at);
    let epilogue = crate::te::expr::load(t, c.dtype, at);
    let alone = Contract { sum: t, out: t, epilogue, position };
    Form::of(program, &c, &alone, None).is_some_and(|form| form.few.is_some())
}

/// A factor of a sum of type `sum`: an element of a float tensor, or a byte for sums in 32-bit integers.
fn factor(program: &Program, e: Expr, sum: DType) -> Option<(TensorId, Vec<Int>)> {
    let (load, bytes) = match e.node() {
        Node::Cast(DType::I32, inner) if sum == DType::I32 => (inner, true),
        _ => (e, false),
    };
    let Node::Load(t, index) = load.node() else { return None };
    let stored = program.tensor(t).dtype;
    let fits = match bytes {
        true => matches!(stored, DType::I8 | DType::U8),
        false => form::computes(sum) && form::computes(stored),
    };
    fits.then_some((t, index))
}

/// Lowers `c`, which is the sum of `of`, with what follows it.
/// `None` if no register tile suits it, as where there is nothing to sum up.
///
/// `choice` is the number of one of the [`choices`] of schedules: 0 is the one that the estimates take for the fastest.
pub fn lower(
    program: &Program,
    cpu: &graphmend_targets::Cpu,
    c: &Contraction,
    of: &Contract,
    choice: usize,
) -> Option<LoweredKernel> {
    let (form, target) = form_of(program, cpu, c, of, None)?;
    let (sum, out) = (of.sum, of.out);
    let found = schedules(&form, &target, program, sum);
    match found.into_iter().nth(choice)? {
        How::Filtered(plan) => winograd::generate(program, &form, &plan, sum, out),
        How::Tiles(other, s) => generate(program, other.as_deref().unwrap_or(&form), target, s, sum, out),
    }
}

/// How many schedules there are to choose from.
pub fn choices(program: &Program, cpu: &graphmend_targets::Cpu, c: &Contraction, of: &Contract) -> usize {
    form_of(program, cpu, c, of, None).map_or(0, |(form, target)| schedules(&form, &target, program, of.sum).len())
}

/// A way to compute a contraction.
enum How {
    /// By Winograd's filtering.
    Filtered(winograd::Plan),
    /// By register tiles, of another form of the sum if one is named.
    Tiles(Option<Box<Form>>, Schedule),
}

/// Schedules to choose from, each contraction's at most.
const CHOICES: usize = 6;

/// How much slower than the first one others may be estimated.
const WORTH_TRYING: f64 = 1.5;

/// The schedules worth trying, by the estimates; the first one is what they recommend.
fn schedules(form: &Form, target: &Target, program: &Program, sum: TensorId) -> Vec<How> {
    if let Some(dot) = target.dot {
        let mut found: Vec<(f64, Form, Schedule)> = vec![];
        for four in (0..2).filter_map(|b| form.by_fours(b, dot == Dot::Words, sum)) {
            found.extend(distinct(schedule::all(&four, target)).into_iter().map(|(cost, s)| (cost, four.clone(), s)));
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !found.is_empty() {
            return found.into_iter().take(CHOICES).map(|(_, form, s)| How::Tiles(Some(Box::new(form)), s)).collect();
        }
    }
    if form.block().is_err() {
        return vec![];
    }
    let (recommended, plans) = winograd::plans(program, form, target, sum);
    let along = form.along_terms(sum).filter(|_| target.wide);
    let mut tiles = schedule::all(form, target);
    if let Some(along) = &along {
        // Its dot products take the place of those of `form`, whose indices may be others.
        tiles.retain(|(_, s)| !s.dot);
        tiles.extend(schedule::all(along, target).into_iter().filter(|(_, s)| s.dot));
        tiles.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    let tiles = distinct(tiles).into_iter();
    let tiles: Vec<How> = tiles.map(|(_, s)| How::Tiles(along.clone().filter(|_| s.dot).map(Box::new), s)).collect();
    let plans = plans.into_iter().map(How::Filtered);
    let mut all: Vec<How> = if recommended {
        plans.chain(tiles).collect()
    } else {
        let mut tiles = tiles.into_iter();
        let first: Vec<How> = tiles.next().into_iter().collect();
        first.into_iter().chain(plans).chain(tiles).collect()
    };
    all.truncate(CHOICES);
    all
}

/// Of schedules that differ in the number of rows alone the first, and none far slower than the first of all.
fn distinct(mut all: Vec<(f64, Schedule)>) -> Vec<(f64, Schedule)> {
    let limit = all.first().map_or(0.0, |(cost, _)| cost * WORTH_TRYING);
    let mut seen = vec![];
    all.retain(|(cost, s)| {
        let kind = (s.vec, s.n, s.m.clone(), s.nv, s.dot);
        let new = *cost <= limit && !seen.contains(&kind);
        seen.push(kind);
        new
    });
    all
}

/// What is computed, for which processor, with index `apart` joined to no other; nothing where there are no tiles for it.
fn form_of(
    program: &Program,
    cpu: &graphmend_targets::Cpu,
    c: &Contraction,
    of: &Contract,
    apart: Option<VarId>,
) -> Option<(Form, Target)> {
    // Of nothing there are no tiles.
    if extents(&c.vars).iter().chain(&extents(&c.rvars)).any(|n| n.as_const() == Some(0)) {
        return None;
    }
    let form = Form::of(program, c, of, apart)?;
    Some((form, Target::of(cpu, c.dtype, crate::codegen::vector_bits(cpu.into()))))
}

fn extents(vars: &[VarId]) -> Vec<Int> {
    vars.iter().map(|v| extent(*v)).collect()
}

fn generate(
    program: &Program,
    form: &Form,
    target: Target,
    s: Schedule,
    sum: TensorId,
    out: TensorId,
) -> Option<LoweredKernel> {
    let node = &program.tensor(sum).node;
    let mut e = Emit::new(program, node, true);
    let passes = after::passes(program, form, sum, out);
    let out = e.tensor_buf(out, Access::Write);
    let mut generator = generator(e, form, target, s, sum, out, None);
    let units = generator.run(passes);
    Some(generator.e.finish(Some(units)))
}

/// What generates the tiles of a schedule, whose results go to `out`. A tensor that lies in work space is `held` there.
fn generator<'a>(
    mut e: Emit<'a>,
    form: &'a Form,
    target: Target,
    s: Schedule,
    sum: TensorId,
    out: Buf,
    held: Option<(TensorId, Buf)>,
) -> Gen<'a> {
    let (v, b) = (&form.ops[s.vec], &form.ops[1 - s.vec]);
    let outside: Vec<VarId> = s.batch.iter().chain(&s.outer).copied().collect();
    let (lanes, width) = (s.lanes, s.nv as i64 * i64::from(s.lanes));
    let fours = form.fours.is_some();
    let coded =
        form.few.as_ref().and_then(|few| Some(Stream::Coded(few.clone(), few.pack(&mut e, form, width, lanes)?)));
    let v = coded.unwrap_or_else(|| {
        stream(&mut e, v, form.laid == Some(s.vec), fours, held, &outside, &|source, batch| {
            let terms = pack::Terms { ks: &form.ks, fours: form.fours.as_ref().map(|f| (f, s.vec)) };
            if s.dot { None } else { pack::columns(source, batch, s.n, &terms, width, lanes) }
        })
    });
    // An operand with its own value for each column is loaded as it lies.
    let own = s.dot || s.n.is_some_and(|n| varies(b.flat, n));
    let b = stream(&mut e, b, form.laid == Some(1 - s.vec), fours, held, &outside, &|source, batch| {
        let terms = pack::Terms { ks: &form.ks, fours: form.fours.as_ref().map(|f| (f, 1 - s.vec)) };
        if own { None } else { pack::rows(source, batch, &s.m, &terms, s.mr as i64) }
    });
    let places = Default::default();
    Gen { e, form, s, target, v, b, sum, out, places, stage: None, tiles: 0, pass: Pass::Whole }
}

/// How the kernel reads an operand: packed where it is constant; as it is `laid` out.
fn stream(
    e: &mut Emit<'_>,
    op: &Operand,
    laid: bool,
    fours: bool,
    held: Option<(TensorId, Buf)>,
    outside: &[VarId],
    pack: &dyn Fn(&source::Source, &[VarId]) -> Option<pack::Packed>,
) -> Stream {
    let batch: Vec<VarId> = outside.iter().copied().filter(|v| varies(op.flat, *v)).collect();
    if let (true, Some(source)) = (laid, &op.data) {
        return Stream::Direct(e.packed_buf(op.dtype.compute(), source.bytes.clone()));
    }
    if let Some(packed) = op.data.as_ref().and_then(|source| pack(source, &batch)) {
        let index: Vec<Int> = batch.iter().map(|v| Int::var(*v)).collect();
        let batch = flatten(&extents(&batch), &index) * packed.per_batch;
        let dtype = if fours { DType::U32 } else { op.dtype.compute() };
        return Stream::Packed { buf: e.packed_buf(dtype, Arc::new(packed.bytes)), batch };
    }
    match held {
        Some((t, buf)) if t == op.tensor => Stream::Direct(buf),
        _ => Stream::Direct(e.tensor_buf(op.tensor, Access::Read)),
    }
}
