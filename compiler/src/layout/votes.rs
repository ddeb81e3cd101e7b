//! What the contractions of a program ask for.

use super::order::{self, Order};
use crate::dtype::DType;
use crate::lower::contract::{self, Contraction};
use crate::sym::{Int, VarId, free_vars, linear_in, subst};
use crate::te::cx::{index_of, reindex};
use crate::te::{Def, Program, TensorId, expr};

/// A wish for the order of a tensor.
pub(super) struct Vote {
    /// The tensor.
    pub(super) tensor: TensorId,
    /// How its axes should lie.
    pub(super) order: Order,
    /// Products that are summed.
    weight: i64,
}

/// Fewer channels than this fill no vectors: their order does not matter.
const FEW: i64 = 8;

/// Number assumed for sizes that are not known.
const SOME: i64 = 24;

fn guess(of: impl Iterator<Item = Int>) -> i64 {
    of.fold(1, |n, d| n.saturating_mul(d.as_const().unwrap_or(SOME).max(1)))
}

fn extents(vars: &[VarId]) -> impl Iterator<Item = Int> {
    vars.iter().map(|v| v.extent().unwrap_or(Int::new(1)))
}

/// The wishes of all contractions with a constant factor, and of those of bytes, the heaviest first. Vectors of the constant run along the axes
/// of the output that it has, so these should be the innermost; and the axes of the other factor that the sum goes over,
/// or that both factors have, should be its innermost, unless windows slide along them.
pub(super) fn all(p: &Program, constant: &[bool], live: &[TensorId]) -> Vec<Vote> {
    let mut out = vec![];
    for t in live {
        let Some(c) = contract::recognise(p, *t) else { continue };
        let (weights, input) = match (constant[c.lhs.0.0 as usize], constant[c.rhs.0.0 as usize]) {
            (true, false) => (&c.lhs, &c.rhs),
            (false, true) => (&c.rhs, &c.lhs),
            (false, false) if c.dtype == DType::I32 => {
                let weight = guess(extents(&c.vars)).saturating_mul(guess(extents(&c.rvars)));
                out.extend([&c.lhs, &c.rhs].iter().filter_map(|(t, _)| as_read(p, *t, weight)));
                continue;
            }
            _ => continue,
        };
        of_one(p, *t, &c, &weights.1, input, &mut out);
    }
    out.sort_by_key(|v| core::cmp::Reverse(v.weight));
    out
}

/// That an operand lies in the order of what it is computed from, by way of maps and views: contractions of bytes lay out
/// either operand as they need it, in less time than a map takes that moves single bytes.
fn as_read(p: &Program, t: TensorId, weight: i64) -> Option<Vote> {
    let tensor = p.tensor(t);
    let Def::Map { vars, .. } = &tensor.def else { return None };
    let many: Vec<usize> = (0..vars.len()).filter(|k| tensor.shape[*k] != Int::new(1)).collect();
    let (mut of, mut index) = (t, index_of(vars));
    let mut order = order::plain(vars.len());
    for _ in 0..MOVES {
        (of, index) = match &p.tensor(of).def {
            Def::View(base) => (*base, reindex(&p.tensor(of).shape, &p.tensor(*base).shape, &index)),
            Def::Map { vars, body } => {
                let Some((from, at)) = expr::loads(*body).into_iter().max_by_key(|(_, at)| at.len()) else { break };
                let put = |v: VarId| vars.iter().position(|x| *x == v).map(|k| index[k]);
                (from, at.iter().map(|i| subst(*i, &put)).collect())
            }
            _ => break,
        };
        // Where each axis is in the index, and how far apart its elements lie there.
        let place = |v: VarId| {
            let at = index.iter().position(|i| free_vars(*i).contains(&v))?;
            let step = linear_in(index[at], v)?.0.as_const()?;
            Some((at, core::cmp::Reverse(step)))
        };
        let Some(mut places) = many.iter().map(|k| Some((place(vars[*k])?, *k))).collect::<Option<Vec<_>>>() else {
            break;
        };
        places.sort();
        let units = (0..vars.len()).filter(|k| !many.contains(k));
        order = units.chain(places.iter().map(|(_, k)| *k)).collect();
    }
    let order = if order::moves(&order, &tensor.shape) { order } else { order::plain(vars.len()) };
    Some(Vote { tensor: t, order, weight })
}

/// Most maps and views looked through.
const MOVES: usize = 16;

fn of_one(
    p: &Program,
    t: TensorId,
    c: &Contraction,
    weights: &[Int],
    (input, index): &(TensorId, Vec<Int>),
    out: &mut Vec<Vote>,
) {
    let in_weights = |v: VarId| weights.iter().any(|i| free_vars(*i).contains(&v));
    let channels: Vec<VarId> = c.vars.iter().copied().filter(|v| in_weights(*v)).collect();
    let weight = guess(extents(&c.vars)).saturating_mul(guess(extents(&c.rvars)));
    let mut vote = |tensor: TensorId, last: &dyn Fn(usize) -> bool, many: i64| {
        let shape = &p.tensor(tensor).shape;
        let order = order::with_last(shape, last);
        // Bytes of an element are multiplied four at a time, however many there are.
        if many >= FEW || c.dtype == DType::I32 || !order::moves(&order, shape) {
            out.push(Vote { tensor, order, weight });
        }
    };
    vote(t, &|k| channels.contains(&c.vars[k]), guess(extents(&channels)));
    // An axis belongs to the windows if an index of the output that the constant does not have moves along it.
    let slides = |i: Int| free_vars(i).iter().any(|v| c.vars.contains(v) && !channels.contains(v));
    let sums = |i: Int| !slides(i) && !free_vars(i).is_empty();
    let shape = &p.tensor(*input).shape;
    let many = guess((0..shape.len()).filter(|k| sums(index[*k])).map(|k| shape[k]));
    vote(*input, &|k| sums(index[k]), many);
}
