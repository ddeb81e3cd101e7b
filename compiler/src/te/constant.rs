//! Hand-written kernels on constants: run while packing, so that nothing of them is left, least of all sizes that are read
//! while the model runs.

use super::cx::Cx;
use super::known;
use super::program::{Custom, Def, TensorId};
use crate::kernel::interp::{self, Memory};
use crate::lower::{self, Binding};
use crate::sym::Int;
use std::sync::Arc;

/// Most elements of one operand, result or work space.
const MOST: i64 = 1 << 16;
/// Most steps of the interpreter; a kernel that takes more runs with the model.
const STEPS: u64 = 1 << 26;

/// Makes constants of a kernel's results if all that it reads are constants.
pub(super) fn fold(cx: &mut Cx, custom: &Custom, outputs: &[TensorId]) {
    if let Some(results) = results(cx, custom, outputs) {
        for (t, bytes) in outputs.iter().zip(results) {
            cx.program.tensors[t.0 as usize].def = Def::Const(Arc::new(bytes));
        }
    }
}

fn results(cx: &mut Cx, custom: &Custom, outputs: &[TensorId]) -> Option<Vec<Vec<u8>>> {
    if custom.inputs.is_empty() {
        return None;
    }
    let room = |n: Int| n.as_const().filter(|n| (0..=MOST).contains(n)).and_then(|n| usize::try_from(n).ok());
    let mut made = vec![];
    for t in outputs {
        made.push(vec![0; room(cx.numel(*t))? * cx.dtype(*t).size()]);
    }
    if custom.inputs.iter().any(|t| room(cx.numel(*t)).is_none()) {
        return None;
    }
    let given: Vec<Vec<u8>> = custom.inputs.iter().map(|t| known::bytes(cx, *t)).collect::<Option<_>>()?;
    let lowered = lower::custom::lower(&cx.program, custom, outputs);
    let scalars: Vec<i64> = lowered.scalars.iter().map(|s| s.as_const()).collect::<Option<_>>()?;
    let units = lowered.tiles.map_or(Some(1), |n| n.as_const())?;
    let mut work = vec![];
    for binding in &lowered.bindings {
        if let Binding::Scratch(dtype, n) = binding {
            work.push(vec![0; room(*n)? * dtype.size()]);
        }
    }
    let mut work = work.iter_mut();
    let mut results: Vec<Option<&mut Vec<u8>>> = made.iter_mut().map(Some).collect();
    let mut memory = vec![];
    for binding in &lowered.bindings {
        memory.push(match binding {
            Binding::Scratch(..) => Memory::Write(work.next()?),
            Binding::Packed(_, bytes) => Memory::Read(bytes),
            Binding::Tensor(t) => match outputs.iter().position(|o| o == t) {
                Some(k) => Memory::Write(results[k].take()?),
                None => Memory::Read(&given[custom.inputs.iter().position(|i| i == t)?]),
            },
        });
    }
    // A status is an error of the run, which the run tells.
    let status = interp::run(&lowered.kernel, &mut memory, &scalars, 0..units, STEPS).ok()?;
    (status == 0).then_some(made)
}
