//! Tensors that depend on constants alone are computed now, by the interpreter, so that the device does not: reordered
//! weights, scales folded into weights, tables.
//!
//! A tensor that is much larger than what it is made of stays as it is: computing it costs less than storing it.

use super::group::reduction_nest;
use super::uses::exprs;
use super::{Nest, Stage};
use crate::kernel::interp::{self, Memory};
use crate::lower::{self, Binding};
use crate::sym::{Int, VarId, free_vars};
use crate::te::cx::{flatten, index_of};
use crate::te::{Def, Program, TensorId, expr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes up to which a tensor may be larger than its operands.
const SMALL: usize = 1 << 16;
/// Most values computed for one tensor.
const MOST_VALUES: i64 = 1 << 28;
/// Most instructions, of one lane each, for one tensor.
const MOST_STEPS: u64 = 1 << 33;

/// Makes constants of all `stored` tensors that can be computed now; gives their number.
pub(super) fn fold(p: &mut Program, stored: &BTreeSet<TensorId>) -> usize {
    let mut count = 0;
    // Operands are defined and folded before.
    for t in super::inline::defined(p).iter().filter(|t| stored.contains(t)) {
        if let Some(bytes) = compute(p, *t) {
            p.tensors[t.0 as usize].def = Def::Const(Arc::new(bytes));
            count += 1;
        }
    }
    count
}

/// The bytes of a constant, also behind views.
pub(super) fn bytes_of(p: &Program, t: TensorId) -> Option<Arc<Vec<u8>>> {
    match &p.tensor(t).def {
        Def::Const(bytes) => Some(bytes.clone()),
        Def::View(base) => bytes_of(p, *base),
        _ => None,
    }
}

fn extents(vars: &[VarId]) -> Option<i64> {
    vars.iter().try_fold(1i64, |n, v| n.checked_mul(v.extent()?.as_const()?))
}

/// The bytes of a tensor that is defined by constants alone; nothing if it is much larger than they are.
pub(crate) fn compute(p: &Program, t: TensorId) -> Option<Vec<u8>> {
    let (size, given) = known(p, t)?;
    if size > SMALL && size / 2 > given {
        return None;
    }
    run(p, t, size)
}

/// The same, however large it is.
pub(super) fn every(p: &Program, t: TensorId) -> Option<Vec<u8>> {
    let (size, _) = known(p, t)?;
    run(p, t, size)
}

/// The size in bytes of a tensor that is defined by constants alone, and theirs.
fn known(p: &Program, t: TensorId) -> Option<(usize, usize)> {
    let tensor = p.tensor(t);
    if p.homes.contains_key(&t) {
        return None;
    }
    let (vars, rvars) = match &tensor.def {
        Def::Map { vars, .. } => (vars.as_slice(), &[][..]),
        Def::Reduce { vars, rvars, .. } | Def::Fold { vars, rvars, .. } => (vars.as_slice(), rvars.as_slice()),
        _ => return None,
    };
    let elements = extents(vars)?;
    if elements.checked_mul(extents(rvars)?)? > MOST_VALUES || elements < 1 {
        return None;
    }
    let own = |i: Int| free_vars(i).iter().all(|v| vars.contains(v) || rvars.contains(v));
    let mut given = 0;
    for e in exprs(&tensor.def) {
        let mut used = BTreeSet::new();
        expr::collect_vars(e, &mut used);
        if !used.iter().all(|v| own(Int::var(*v))) {
            return None;
        }
        for (operand, _) in expr::loads(e) {
            given += bytes_of(p, operand)?.len();
        }
    }
    let size = usize::try_from(elements).ok()?.checked_mul(tensor.dtype.size())?;
    Some((size, given))
}

/// Lowers the tensor's definition for a plain processor and interprets it.
fn run(p: &Program, t: TensorId, size: usize) -> Option<Vec<u8>> {
    let tensor = p.tensor(t);
    let nest = match &tensor.def {
        Def::Map { vars, body } => {
            let position = flatten(&tensor.shape, &index_of(vars));
            let many = vars.iter().copied().filter(|v| v.extent() != Some(Int::new(1))).collect();
            Nest { vars: many, stages: vec![Stage::Store { id: t, inner: vec![], body: *body, position }] }
        }
        _ => reduction_nest(p, t)?,
    };
    // The same processor whatever the target and the host are: the same model gives the same bytes.
    let cpu = graphmend_targets::presets().first()?;
    let lowered = lower::nest::lower(p, cpu, &tensor.name, &nest);
    if !lowered.scalars.iter().all(|s| s.as_const().is_some()) {
        return None;
    }
    let scalars: Vec<i64> = lowered.scalars.iter().filter_map(|s| s.as_const()).collect();
    let tiles = lowered.tiles.map_or(Some(1), |n| n.as_const())?;
    let mut out = vec![0; size];
    let mut operands = vec![];
    let mut work = vec![];
    for binding in &lowered.bindings {
        match binding {
            Binding::Tensor(own) if *own == t => {}
            Binding::Tensor(other) => operands.push(bytes_of(p, *other)?),
            Binding::Packed(_, bytes) => operands.push(bytes.clone()),
            Binding::Scratch(dtype, n) => {
                work.push(vec![0u8; usize::try_from(n.as_const()?).ok()?.checked_mul(dtype.size())?]);
            }
        }
    }
    let (mut operands_left, mut work_left, mut own) = (operands.iter(), work.iter_mut(), Some(&mut out));
    let mut memory = vec![];
    for binding in &lowered.bindings {
        memory.push(match binding {
            Binding::Tensor(id) if *id == t => Memory::Write(own.take()?),
            Binding::Tensor(_) | Binding::Packed(..) => Memory::Read(operands_left.next()?),
            Binding::Scratch(..) => Memory::Write(work_left.next()?),
        });
    }
    let status = interp::run(&lowered.kernel, &mut memory, &scalars, 0..tiles, MOST_STEPS);
    drop(memory);
    match status {
        Ok(0) => Some(out),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fuse;
    use crate::dtype::DType;
    use crate::sym::Int;
    use crate::te::{Cx, Def, ReduceKind, expr};

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    }

    #[test]
    fn a_reordered_constant_is_computed_at_pack_time() {
        let mut cx = Cx::new();
        let x = cx.input("x", DType::F32, vec![Int::new(2)]);
        let w = cx.constant_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let turned = cx.map(DType::F32, vec![Int::new(3), Int::new(2)], |i| {
            expr::load(w, DType::F32, vec![i[1], i[0]]) + expr::constant_f64(DType::F32, 0.5)
        });
        let sums = cx.reduce(ReduceKind::Sum, DType::F32, vec![Int::new(3)], &[Int::new(2)], |i, r| {
            expr::load(turned, DType::F32, vec![i[0], r[0]])
        });
        let y = cx.map(DType::F32, vec![Int::new(3), Int::new(2)], |i| {
            expr::load(turned, DType::F32, i.to_vec()) * expr::load(x, DType::F32, vec![i[1]])
        });
        cx.program.outputs = vec![turned, sums, y];
        let fused = fuse(cx.program);
        let Def::Const(bytes) = &fused.program.tensor(turned).def else { panic!("not folded") };
        assert_eq!(floats(bytes), [1.5, 4.5, 2.5, 5.5, 3.5, 6.5]);
        let Def::Const(bytes) = &fused.program.tensor(sums).def else { panic!("not folded") };
        assert_eq!(floats(bytes), [6.0, 8.0, 10.0]);
        assert!(matches!(fused.program.tensor(y).def, Def::Map { .. }));
    }

    #[test]
    fn a_large_tensor_made_of_little_is_not_stored() {
        let mut cx = Cx::new();
        let w = cx.constant_f32(&[1], &[2.0]);
        let n = Int::new(1 << 20);
        let big = cx.map(DType::F32, vec![n], |_| expr::load(w, DType::F32, vec![Int::new(0)]));
        cx.program.outputs = vec![big];
        assert!(matches!(fuse(cx.program).program.tensor(big).def, Def::Map { .. }));
    }
}
