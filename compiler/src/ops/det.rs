//! `Det`: determinants of square matrices.

use super::operand::need_float;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg};
use crate::sym::Int;
use crate::te::{Cx, KernelCx, OpError, OpResult};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Det", det)];

fn det(cx: &mut Cx, call: &Call) -> OpResult {
    let x = call.input(0)?;
    need_float(cx.dtype(x))?;
    let shape = cx.shape(x);
    let [outer @ .., rows, n] = shape.as_slice() else {
        return Err(OpError::Invalid(format!("the input has rank {}; matrices are needed", shape.len())));
    };
    let (rows, n) = (*rows, *n);
    cx.require_equal(rows, n, "rows and columns of the matrices")?;
    let count = Int::product(outer);
    let output = (cx.dtype(x), outer.to_vec());
    Ok(cx.custom("det", &[x], vec![output], vec![(DType::F64, n * n)], move |k| generate(k, count, n)))
}

/// Element `row * n + col` of a matrix.
fn at(b: &mut Builder, row: Reg, n: Reg, col: Reg) -> Reg {
    let row = b.mul(row, n);
    b.add(row, col)
}

fn load(b: &mut Builder, buf: Buf, row: Reg, n: Reg, col: Reg) -> Reg {
    let i = at(b, row, n, col);
    b.load(buf, i, 0, 1)
}

/// Gaussian elimination with the largest pivot of each column, in double precision; the determinant is the product of
/// the pivots, negated for each exchange of rows.
fn generate(k: &mut KernelCx<'_>, count: Int, n: Int) {
    let (count, n, size) = (k.int(count), k.int(n), k.int(n * n));
    let (src, dst, m) = (k.inputs[0], k.outputs[0], k.scratch[0]);
    let b = &mut *k.b;
    let (zero, one) = (b.i64(0), b.i64(1));
    let unit = b.f64(1.0);
    let target = b.buf_param(dst).dtype.compute();
    let product = b.var_init(unit);
    let best = b.var_init(unit);
    let pivot = b.var_init(zero);
    b.for_(zero, count, 1, |b, matrix| {
        let base = b.mul(matrix, size);
        b.for_(zero, size, 1, |b, i| {
            let from = b.add(base, i);
            let v = b.load(src, from, 0, 1);
            let v = b.cast(DType::F64, v);
            b.store(m, i, 0, v);
        });
        b.set(product, unit);
        b.for_(zero, n, 1, |b, c| {
            let v = load(b, m, c, n, c);
            let v = b.abs(v);
            b.set(best, v);
            b.set(pivot, c);
            let below = b.add(c, one);
            b.for_(below, n, 1, |b, r| {
                let v = load(b, m, r, n, c);
                let v = b.abs(v);
                let so_far = b.get(best);
                let larger = b.cmp(Cmp::Gt, v, so_far);
                b.if_(
                    larger,
                    |b| {
                        b.set(best, v);
                        b.set(pivot, r);
                    },
                    |_| {},
                );
            });
            let chosen = b.get(pivot);
            let other = b.cmp(Cmp::Ne, chosen, c);
            b.if_(
                other,
                |b| {
                    let p = b.get(product);
                    let p = b.neg(p);
                    b.set(product, p);
                    b.for_(c, n, 1, |b, j| {
                        let (i, q) = (at(b, c, n, j), at(b, chosen, n, j));
                        let (x, y) = (b.load(m, i, 0, 1), b.load(m, q, 0, 1));
                        b.store(m, i, 0, y);
                        b.store(m, q, 0, x);
                    });
                },
                |_| {},
            );
            let head = load(b, m, c, n, c);
            let p = b.get(product);
            let p = b.mul(p, head);
            b.set(product, p);
            let none = b.f64(0.0);
            let regular = b.cmp(Cmp::Ne, head, none);
            b.begin_if(regular);
            b.for_(below, n, 1, |b, r| {
                let v = load(b, m, r, n, c);
                let factor = b.div(v, head);
                let factor = b.neg(factor);
                b.for_(below, n, 1, |b, j| {
                    let i = at(b, r, n, j);
                    let (x, y) = (b.load(m, i, 0, 1), load(b, m, c, n, j));
                    let v = b.fma(factor, y, x);
                    b.store(m, i, 0, v);
                });
            });
            b.end();
        });
        let p = b.get(product);
        let p = b.cast(target, p);
        b.store(dst, matrix, 0, p);
    });
}
