//! Weights that are integers of few bits times scales stay so: what reads them multiplies while it loads them.
//!
//! Such a tensor becomes a constant, as if it were computed while packing, and the program remembers its factors
//! ([`Codes`]). Only contractions read it, each of which packs codes and scales (`lower::contract`); the floats are in no file.

use super::constants;
use super::uses::{Uses, exprs};
use crate::dtype::DType;
use crate::lower::contract;
use crate::te::{Codes, Def, Expr, Func2, Node, Program, TensorId, expr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Elements of the smallest tensor worth it: smaller ones stay in the first caches as floats.
const LEAST: usize = 1 << 14;

/// Finds such weights among the stored tensors.
pub(super) fn find(p: &mut Program, stored: &BTreeSet<TensorId>, uses: &Uses) {
    for t in super::inline::defined(p).into_iter().filter(|t| stored.contains(t)) {
        let Some(readers) = products(p, stored, uses, t) else { continue };
        let Some(codes) = codes(p, t) else { continue };
        let floats = codes.values.iter().zip(&codes.scales).flat_map(|(v, s)| (f32::from(*v) * s).to_le_bytes());
        let def = Def::Const(Arc::new(floats.collect()));
        let before = std::mem::replace(&mut p.tensors[t.0 as usize].def, def);
        p.codes.insert(t, Arc::new(codes));
        if !readers.iter().all(|r| contract::reads_codes(p, *r)) {
            p.tensors[t.0 as usize].def = before;
            p.codes.remove(&t);
        }
    }
}

/// The sums of products that read `t`, as it is or in another shape, if nothing else does.
fn products(p: &Program, stored: &BTreeSet<TensorId>, uses: &Uses, t: TensorId) -> Option<Vec<TensorId>> {
    factors(p, t)?;
    let views = stored.iter().filter(|v| matches!(p.tensor(**v).def, Def::View(base) if base == t));
    let shown: BTreeSet<TensorId> = views.copied().chain([t]).collect();
    if shown.iter().any(|v| uses.whole.contains(v)) {
        return None;
    }
    let mut out = vec![];
    for r in stored {
        let def = &p.tensor(*r).def;
        if matches!(def, Def::View(base) if *base != t && shown.contains(base)) {
            return None;
        }
        if exprs(def).iter().any(|e| expr::loads(*e).iter().any(|(x, _)| shown.contains(x))) {
            contract::recognise(p, *r)?;
            out.push(*r);
        }
    }
    (!out.is_empty()).then_some(out)
}

/// An integer and a scale whose product is the element.
fn factors(p: &Program, t: TensorId) -> Option<[Expr; 2]> {
    let tensor = p.tensor(t);
    let Def::Map { body, .. } = &tensor.def else { return None };
    let count = tensor.shape.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?))?;
    if tensor.dtype != DType::F32 || usize::try_from(count).ok()? < LEAST {
        return None;
    }
    let Node::Bin(Func2::Mul, a, b) = body.node() else { return None };
    let only = |e: Expr, fits: &dyn Fn(DType) -> bool| {
        let loads = expr::loads(e);
        let constant = |t: TensorId| constants::bytes_of(p, t).is_some() && fits(p.tensor(t).dtype);
        !loads.is_empty() && loads.iter().all(|(t, _)| constant(*t))
    };
    let (byte, float) = (|t| matches!(t, DType::U8 | DType::I8), |t: DType| t.is_float());
    [[a, b], [b, a]].into_iter().find(|[a, b]| only(*a, &byte) && only(*b, &float))
}

fn codes(p: &mut Program, t: TensorId) -> Option<Codes> {
    let [integer, scale] = factors(p, t)?;
    let [integers, scales] = [integer, scale].map(|e| numbers(p, t, e));
    let mut values = vec![];
    for v in integers? {
        // What the largest bytes differ by at most.
        if v.fract() != 0.0 || v.abs() > 255.0 {
            return None;
        }
        values.push(v as i16);
    }
    let scales = scales?;
    scales.iter().all(|s| s.is_finite()).then_some(Codes { values, scales })
}

/// The values of an expression for each element of `t`.
fn numbers(p: &mut Program, t: TensorId, body: Expr) -> Option<Vec<f32>> {
    let at = t.0 as usize;
    let Def::Map { vars, .. } = p.tensors[at].def.clone() else { return None };
    let before = std::mem::replace(&mut p.tensors[at].def, Def::Map { vars, body });
    let bytes = constants::every(p, t);
    p.tensors[at].def = before;
    Some(bytes?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fuse;
    use crate::dtype::DType;
    use crate::sym::Int;
    use crate::te::{Cx, Def, ReduceKind, TensorId, expr};

    /// A product by `(q - 8) * s[k / 32]`, transposed where `turned` says so: the program, the weights and the product.
    fn product(turned: bool) -> (Cx, TensorId, TensorId) {
        let (k, n) = (64, 512);
        let mut cx = Cx::new();
        let x = cx.input("x", DType::F32, vec![Int::symbol("m", Some(0), None), Int::new(k)]);
        let q = cx.constant(DType::U8, &[k as usize, n as usize], (0..k * n).map(|v| (v % 16) as u8).collect());
        let s = cx.constant_f32(&[2, n as usize], &vec![0.5; 2 * n as usize]);
        let w = cx.map(DType::F32, vec![Int::new(k), Int::new(n)], |i| {
            let whole = expr::load(q, DType::U8, i.to_vec()).to(DType::F32);
            (whole - whole.num(8.0)) * expr::load(s, DType::F32, vec![i[0].div(32), i[1]])
        });
        let shown = match turned {
            true => cx.map(DType::F32, vec![Int::new(n), Int::new(k)], |i| expr::load(w, DType::F32, vec![i[1], i[0]])),
            false => w,
        };
        let shape = vec![cx.shape(x)[0], Int::new(n)];
        let y = cx.reduce(ReduceKind::Sum, DType::F32, shape, &[Int::new(k)], |i, r| {
            let at = if turned { vec![i[1], r[0]] } else { vec![r[0], i[1]] };
            expr::load(x, DType::F32, vec![i[0], r[0]]) * expr::load(shown, DType::F32, at)
        });
        (cx, w, y)
    }

    #[test]
    fn weights_of_few_bits_are_read_as_integers_and_scales_by_products_alone() {
        for turned in [false, true] {
            let (mut cx, _, y) = product(turned);
            cx.program.outputs = vec![y];
            let fused = fuse(cx.program);
            // Of the weights, or of what shows them turned.
            assert_eq!(fused.program.codes.len(), 1);
            let codes = fused.program.codes.values().next().expect("codes");
            assert_eq!((codes.values.len(), codes.scales.len()), (64 * 512, 64 * 512));
            assert!(codes.values.iter().all(|v| (-8..8).contains(v)) && codes.scales.iter().all(|s| *s == 0.5));
        }
    }

    #[test]
    fn weights_that_the_model_gives_out_stay_as_they_are() {
        let (mut cx, w, y) = product(false);
        cx.program.outputs = vec![y, w];
        let fused = fuse(cx.program);
        assert!(fused.program.codes.is_empty());
        assert!(matches!(fused.program.tensor(w).def, Def::Map { .. }));
    }
}
