//! A depthwise convolution and the 1×1 convolution that reads it, as one kernel.
//!
//! Work units are the lines of the image between them. Of a block of lines the first one's results go to work space, from where
//! the second reads them: as if the tensor lay there, less the position at which the block begins.

use super::after::{self, Pass};
use super::form::{Form, extent, varies};
use super::nest::{Level, Nest};
use super::schedule::{self, Schedule};
use super::target::Target;
use super::tile::Gen;
use super::{form_of, generator, recognise};
use crate::fuse::{Chain, Contract};
use crate::kernel::ir::{Access, Reg};
use crate::lower::LoweredKernel;
use crate::lower::emit::Emit;
use crate::sym::{Int, VarId, linear_in};
use crate::te::Program;
use crate::te::cx::flatten;
use graphmend_targets::Cpu;

/// Fewest lines: threads share them.
const LINES: i64 = 4;
/// Rows that a block should have: for fewer of them the second one's weights would be fetched too often.
const ROWS: i64 = 56;
/// How much slower, by the estimates, schedules by lines may be than others.
const SLOWER: f64 = 1.1;

/// How both are computed.
struct Plan {
    first: (Form, Schedule),
    second: (Form, Schedule),
    target: Target,
    /// Number of the second one's operand that the first one makes.
    operand: usize,
    /// Lines, elements of a line, and lines of a block.
    lines: i64,
    line: i64,
    block: i64,
}

/// Is one kernel faster than two?
pub(crate) fn pays(program: &Program, cpu: &Cpu, chain: &Chain) -> bool {
    plan(program, cpu, chain).is_some()
}

/// The index of lines in a position that no other moves by a line or more, its coefficient, and whether indices of `vars` go
/// through all of a line.
fn line_of(position: Int, vars: &[VarId]) -> Option<(VarId, i64)> {
    let mut rest = position;
    let mut steps = vec![];
    for v in vars.iter().filter(|v| varies(position, **v)) {
        let (step, left) = linear_in(rest, *v)?;
        steps.push((step.as_const()?, *v, extent(*v).as_const()?));
        rest = left;
    }
    steps.sort_by_key(|(step, ..)| core::cmp::Reverse(*step));
    let (&(line, v, _), inner) = steps.split_first()?;
    let reach = inner.iter().map(|(step, _, n)| step * (n - 1)).sum::<i64>();
    let whole = rest.as_const() == Some(0) && steps.iter().all(|(step, ..)| *step > 0) && reach + 1 == line;
    whole.then_some((v, line))
}

/// The form of one of both with its index of lines apart, and the best schedule that goes line by line.
fn side(program: &Program, cpu: &Cpu, of: &Contract, line: VarId) -> Option<(Form, Target, Schedule)> {
    let c = recognise(program, of.sum)?;
    let (form, target) = form_of(program, cpu, &c, of, Some(line))?;
    if form.exact.is_some()
        || form.few.is_some()
        || program.tensor(of.sum).dtype.compute() != program.tensor(of.sum).dtype
    {
        return None;
    }
    let all = schedule::all(&form, &target);
    let limit = all.first()?.0 * SLOWER;
    let by_lines =
        |s: &Schedule| s.lines == [line] && s.batch.is_empty() && s.outer.is_empty() && !s.dot && s.n.is_some();
    let (_, s) = all.into_iter().find(|(cost, s)| *cost <= limit && by_lines(s))?;
    Some((form, target, s))
}

fn plan(program: &Program, cpu: &Cpu, chain: &Chain) -> Option<Plan> {
    let between = chain.first.out;
    let own = recognise(program, chain.first.sum)?;
    let (first_line, line) = line_of(chain.first.position, &own.vars)?;
    let (form, target, s) = side(program, cpu, &chain.first, first_line)?;
    // Each channel has its own sum: what a block reads of the image is not far more than itself.
    let depthwise = s.n.is_some_and(|n| form.ops.iter().all(|op| varies(op.flat, n)));
    let first = (form, s);
    let c = recognise(program, chain.second.sum)?;
    let factors = [&c.lhs, &c.rhs];
    let operand = factors.iter().position(|(t, _)| *t == between)?;
    let vars: Vec<VarId> = c.vars.iter().chain(&c.rvars).copied().collect();
    let position = flatten(&program.tensor(between).shape, &factors[operand].1);
    let (second_line, same) = line_of(position, &vars)?;
    let (form, _, s) = side(program, cpu, &chain.second, second_line)?;
    let weights = &form.ops[1 - operand].data;
    let lines = extent(first_line).as_const()?;
    let pointwise = form.ks.len() == 1 && c.vars.contains(&second_line) && same == line;
    let (weights, size) = (weights.as_ref()?.bytes.len() as i64, program.tensor(between).dtype.size() as i64);
    let cache = i64::from(target.cache);
    let most = cache / 4 / (line * size);
    let rows = s.m.iter().map(|v| extent(*v).as_const()).try_fold(1, |n, m| m.map(|m| n * m))?;
    let block = (ROWS + rows - 1) / rows;
    let fits = most >= 1 && weights <= cache / 8 && lines * line * size > target.near;
    let fits = depthwise
        && pointwise
        && target.lanes > 1
        && fits
        && lines >= LINES
        && extent(second_line).as_const() == Some(lines);
    let block = block.min(most).min(lines);
    fits.then_some(Plan { first, second: (form, s), target, operand, lines, line, block })
}

/// Lowers a chain that [`pays`].
pub(crate) fn lower(program: &Program, cpu: &Cpu, name: &str, chain: &Chain) -> LoweredKernel {
    let Some(mut plan) = plan(program, cpu, chain) else { unreachable!("chains are made only where they pay") };
    let between = chain.first.out;
    let mut e = Emit::new(program, name, true);
    let held = e.scratch_buf(program.tensor(between).dtype, Int::new(plan.block * plan.line));
    let out = e.tensor_buf(chain.second.out, Access::Write);
    let start = VarId::index("start", Int::new(plan.lines * plan.line));
    plan.first.0.out = plan.first.0.out - Int::var(start);
    let operand = &mut plan.second.0.ops[plan.operand];
    operand.flat = operand.flat - Int::var(start);
    let passes = |form: &Form, of: &Contract| after::passes(program, form, of.sum, of.out);
    let [first_passes, second_passes] = [passes(&plan.first.0, &chain.first), passes(&plan.second.0, &chain.second)];
    let (form, s) = &plan.first;
    let mut first = generator(e, form, plan.target, s.clone(), chain.first.sum, held, None);
    first.make_stage();
    let e = std::mem::replace(&mut first.e, Emit::new(program, name, true));
    let (form, s) = &plan.second;
    let mut second = generator(e, form, plan.target, s.clone(), chain.second.sum, out, Some((between, held)));
    second.make_stage();

    let b = &mut second.e.b;
    let (lo, hi) = (b.tile_lo(), b.tile_hi());
    let line = b.begin_for(lo, hi, plan.block);
    let (count, size) = (b.i64(plan.block), b.i64(plan.line));
    let next = b.add(line, count);
    let end = b.min(next, hi);
    let at = b.mul(line, size);
    second.e.vars.insert(start, at);
    std::mem::swap(&mut first.e, &mut second.e);
    all_columns(&mut first, first_passes, (line, end));
    std::mem::swap(&mut first.e, &mut second.e);
    all_columns(&mut second, second_passes, (line, end));
    second.e.vars.remove(&start);
    second.e.b.end();
    second.e.finish(Some(Int::new(plan.lines)))
}

/// The tiles of all columns of a block of lines.
fn all_columns(g: &mut Gen<'_>, passes: &[Pass], lines: (Reg, Reg)) {
    let width = g.s.nv as i64 * i64::from(g.s.lanes);
    let nest = Nest { levels: vec![Level::Columns(Some(width))], spread: 0, rows: None };
    for pass in passes {
        g.pass = *pass;
        g.level(&nest, 0, &[], Some(lines), None);
    }
}
