//! Layout changes that are left after fusion.

use crate::fuse::uses::exprs;
use crate::fuse::{Fused, Step, Unit};
use crate::sym::{Int, VarId, free_vars};
use crate::te::{Def, TensorId, expr};

/// The number of stored maps that read a stored tensor of any size in another order than they are written in. Contractions
/// do not count: they multiply single elements of an operand, or pack it.
pub fn left(fused: &Fused) -> usize {
    count(fused, &fused.steps)
}

fn count(fused: &Fused, steps: &[Step]) -> usize {
    let each = steps.iter().map(|step| match step {
        Step::Run(Unit::Nest(n)) => n.stages.iter().filter(|s| turns(fused, s)).count(),
        Step::If { then, other, .. } => count(fused, then) + count(fused, other),
        Step::Loop(_, body) => count(fused, body),
        Step::Run(_) | Step::Check(_) => 0,
    });
    each.sum()
}

fn turns(fused: &Fused, stage: &crate::fuse::Stage) -> bool {
    let crate::fuse::Stage::Store { id, .. } = stage else { return false };
    let tensor = fused.program.tensor(*id);
    let Def::Map { vars, .. } = &tensor.def else { return false };
    exprs(&tensor.def).into_iter().flat_map(expr::loads).any(|(t, index)| reversed(fused, t, &index, vars))
}

/// Does the index name two of the variables in another order than they lie in?
fn reversed(fused: &Fused, t: TensorId, index: &[Int], vars: &[VarId]) -> bool {
    if matches!(fused.program.tensor(t).def, Def::Const(_)) {
        return false;
    }
    let at = index.iter().filter_map(|i| {
        let used = free_vars(*i);
        let mut own = (0..vars.len()).filter(|k| used.contains(&vars[*k]) && vars[*k].extent() != Some(Int::new(1)));
        own.next().filter(|_| own.next().is_none())
    });
    !at.is_sorted()
}
