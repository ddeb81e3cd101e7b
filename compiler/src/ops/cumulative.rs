//! Running sums and products along an axis.

use super::operand::{Operand, need_number};
use super::{Call, Expand};
use crate::kernel::ir::Type;
use crate::sym::Int;
use crate::te::{Cx, KernelCx, OpError, OpResult};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "CumSum", |cx, c| scan(cx, c, false)), ("", "CumProd", |cx, c| scan(cx, c, true))];

fn scan(cx: &mut Cx, call: &Call, product: bool) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    let (exclusive, reverse) = (call.int("exclusive", 0)? != 0, call.int("reverse", 0)? != 0);
    let rank = x.rank();
    let [axis] = cx.ints_or_read(call.input(1)?)?[..] else {
        return Err(OpError::Invalid("axis must be one number".into()));
    };
    cx.require_at_most(axis, Int::from(rank) - 1, "axis out of range")?;
    cx.require_at_most(-Int::from(rank), axis, "axis out of range")?;
    let axis = axis.if_lt(0, axis + Int::from(rank), axis);
    let (mut outer, mut n, mut inner) = (Int::new(1), Int::new(1), Int::new(1));
    for (k, d) in x.shape.iter().enumerate() {
        let k = Int::from(k);
        outer = outer * k.if_lt(axis, *d, 1);
        n = n * k.if_eq(axis, *d, 1);
        inner = inner * axis.if_lt(k, *d, 1);
    }
    let ty = Type::scalar(x.compute());
    let generate = move |k: &mut KernelCx<'_>| {
        let (outer, n, inner) = (k.int(outer), k.int(n), k.int(inner));
        let (src, dst) = (k.inputs[0], k.outputs[0]);
        let zero = k.b.i64(0);
        let total = k.b.var(ty);
        k.b.for_(zero, outer, 1, |b, o| {
            b.for_(zero, inner, 1, |b, i| {
                let neutral = b.int(ty, i64::from(product));
                b.set(total, neutral);
                b.for_(zero, n, 1, |b, t| {
                    let t = if reverse {
                        let one = b.i64(1);
                        let last = b.sub(n, one);
                        b.sub(last, t)
                    } else {
                        t
                    };
                    let row = b.mul(o, n);
                    let row = b.add(row, t);
                    let row = b.mul(row, inner);
                    let at = b.add(row, i);
                    let v = b.load(src, at, 0, 1);
                    let before = b.get(total);
                    let after = if product { b.mul(before, v) } else { b.add(before, v) };
                    b.store(dst, at, 0, if exclusive { before } else { after });
                    b.set(total, after);
                });
            });
        });
    };
    let name = if product { "cumprod" } else { "cumsum" };
    Ok(cx.custom(name, &[x.id], vec![(x.dtype, x.shape.clone())], vec![], generate))
}
