//! Hand-written kernels.

use super::LoweredKernel;
use super::emit::Emit;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Access, Buf, Reg};
use crate::sym::Int;
use crate::te::{Custom, Expr, KernelCx, Program, TensorId};

/// Runs the kernel's generator.
pub fn lower(p: &Program, custom: &Custom, outputs: &[TensorId]) -> LoweredKernel {
    let mut e = Emit::new(p, &custom.name, false);
    let inputs: Vec<Buf> = custom.inputs.iter().map(|t| e.tensor_buf(*t, Access::Read)).collect();
    let outs: Vec<Buf> = outputs.iter().map(|t| e.tensor_buf(*t, Access::Write)).collect();
    let scratch: Vec<Buf> = custom.scratch.iter().map(|(t, n)| e.scratch_buf(*t, *n)).collect();
    let mut b = std::mem::replace(&mut e.b, Builder::new("", vec![], 0, false));
    {
        // The generator holds the builder; the emitter borrows it for a moment at each call.
        let cell = std::cell::RefCell::new(&mut e);
        let mut int = |b: &mut Builder, i: Int| -> Reg {
            let e = &mut *cell.borrow_mut();
            std::mem::swap(b, &mut e.b);
            let r = e.int(i);
            std::mem::swap(b, &mut e.b);
            r
        };
        let mut expr = |b: &mut Builder, x: Expr, accs: &[Reg]| -> Reg {
            let e = &mut *cell.borrow_mut();
            std::mem::swap(b, &mut e.b);
            e.accs = accs.to_vec();
            e.forget();
            let lanes = accs.first().map_or(1, |a| e.b.ty(*a).lanes);
            let r = e.expr_lanes(x, lanes);
            e.forget();
            e.accs.clear();
            std::mem::swap(b, &mut e.b);
            r
        };
        let mut cx = KernelCx { b: &mut b, inputs, outputs: outs, scratch, int: &mut int, expr: &mut expr };
        (custom.generate)(&mut cx);
    }
    e.b = b;
    e.finish(None)
}
