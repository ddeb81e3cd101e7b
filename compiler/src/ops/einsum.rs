//! `Einsum`: sums of products over named axes.
//!
//! Operands are taken in pairs from the left, as one contraction each; a name that neither the output nor a later operand has
//! is summed at once.

use super::contract::same_type;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::broadcast_index;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};
use std::collections::BTreeMap;

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Einsum", einsum)];

/// An axis name: a letter, or an axis of the ellipsis counted from the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Axis {
    Letter(char),
    Ellipsis(usize),
}

/// A parsed term; `None` stands for the ellipsis.
type Term = Vec<Option<char>>;

fn parse_term(text: &str) -> OpResult<Term> {
    let mut out = vec![];
    let mut rest = text.trim();
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if out.contains(&None) {
                return Err(OpError::Invalid(format!("equation term '{text}' has two ellipses")));
            }
            out.push(None);
            rest = after;
        } else if c.is_ascii_alphabetic() {
            out.push(Some(c));
            rest = &rest[1..];
        } else if c == ' ' {
            rest = &rest[1..];
        } else {
            return Err(OpError::Invalid(format!("equation term '{text}' holds '{c}'")));
        }
    }
    Ok(out)
}

/// Names of an operand's axes.
fn names(term: &Term, rank: usize) -> OpResult<Vec<Axis>> {
    let letters = term.iter().flatten().count();
    let wild = term.contains(&None);
    if letters > rank || (!wild && letters != rank) {
        return Err(OpError::Invalid(format!(
            "an operand of rank {rank} does not fit {letters} names in the equation"
        )));
    }
    let hidden = rank - letters;
    let mut out = vec![];
    for t in term {
        match t {
            Some(c) => out.push(Axis::Letter(*c)),
            None => out.extend((0..hidden).rev().map(Axis::Ellipsis)),
        }
    }
    Ok(out)
}

/// A tensor with named axes.
#[derive(Clone)]
struct Named {
    id: TensorId,
    axes: Vec<Axis>,
}

fn einsum(cx: &mut Cx, call: &Call) -> OpResult {
    let Some(equation) = call.opt_string("equation")? else {
        return Err(OpError::Invalid("attribute 'equation' is missing".into()));
    };
    let operands = (0..call.inputs.len()).map(|k| call.input(k)).collect::<OpResult<Vec<_>>>()?;
    let dtype = same_type(cx, &operands)?;
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation.as_str(), None),
    };
    let terms = left.split(',').map(parse_term).collect::<OpResult<Vec<_>>>()?;
    if operands.is_empty() || terms.len() != operands.len() {
        let (t, o) = (terms.len(), operands.len());
        return Err(OpError::Invalid(format!("the equation has {t} terms for {o} operands")));
    }
    let mut all = vec![];
    for (id, term) in operands.iter().zip(&terms) {
        all.push(Named { id: *id, axes: names(term, cx.rank(*id))? });
    }
    let wild = all.iter().flat_map(|n| &n.axes).filter(|a| matches!(a, Axis::Ellipsis(_))).max().copied();
    let ellipsis: Vec<Axis> = match wild {
        Some(Axis::Ellipsis(most)) => (0..=most).rev().map(Axis::Ellipsis).collect(),
        _ => vec![],
    };
    let output: Vec<Axis> = match right {
        Some(r) => {
            let mut out = vec![];
            for t in parse_term(r)? {
                match t {
                    Some(c) => out.push(Axis::Letter(c)),
                    None => out.extend(&ellipsis),
                }
            }
            out
        }
        None => {
            // The ellipsis, then every letter that occurs once, in alphabetical order.
            let mut count = BTreeMap::new();
            for c in terms.iter().flatten().flatten() {
                *count.entry(*c).or_insert(0) += 1;
            }
            let once = count.into_iter().filter(|(_, n)| *n == 1).map(|(c, _)| Axis::Letter(c));
            ellipsis.into_iter().chain(once).collect()
        }
    };
    for (k, a) in output.iter().enumerate() {
        if output[..k].contains(a) {
            return Err(OpError::Invalid(format!("the output of '{equation}' names an axis twice")));
        }
        if !all.iter().any(|n| n.axes.contains(a)) {
            return Err(OpError::Invalid(format!("the output of '{equation}' names an axis that no operand has")));
        }
    }

    let mut rest = all.into_iter();
    let mut acc: Vec<Named> = rest.next().into_iter().collect();
    let mut rest: Vec<Named> = rest.collect();
    loop {
        if !rest.is_empty() {
            acc.push(rest.remove(0));
        }
        let mut keep = vec![];
        if rest.is_empty() {
            keep.clone_from(&output);
        } else {
            for a in acc.iter().flat_map(|n| n.axes.clone()) {
                let later = output.contains(&a) || rest.iter().any(|n| n.axes.contains(&a));
                if later && !keep.contains(&a) {
                    keep.push(a);
                }
            }
        }
        let stored = if rest.is_empty() { dtype } else { dtype.compute() };
        let id = combine(cx, &acc, &keep, stored)?;
        acc = vec![Named { id, axes: keep }];
        if rest.is_empty() {
            return Ok(vec![id]);
        }
    }
}

/// The product of one or two tensors, summed over all axes but `keep`.
fn combine(cx: &mut Cx, operands: &[Named], keep: &[Axis], dtype: DType) -> OpResult<TensorId> {
    let mut sizes: BTreeMap<Axis, Int> = BTreeMap::new();
    for n in operands {
        for (a, d) in n.axes.iter().zip(cx.shape(n.id)) {
            let size = match sizes.get(a) {
                Some(before) => cx.broadcast(&[vec![*before], vec![d]])?[0],
                None => d,
            };
            sizes.insert(*a, size);
        }
    }
    let summed: Vec<Axis> = sizes.keys().filter(|a| !keep.contains(a)).copied().collect();
    let size = |a: &Axis| sizes.get(a).copied().unwrap_or(Int::new(1));
    let shape: Vec<Int> = keep.iter().map(size).collect();
    let over: Vec<Int> = summed.iter().map(size).collect();
    let loads: Vec<(TensorId, DType, Vec<Int>, Vec<Axis>)> =
        operands.iter().map(|n| (n.id, cx.dtype(n.id), cx.shape(n.id), n.axes.clone())).collect();
    let body = |i: &[Int], r: &[Int]| -> Expr {
        let value = |a: &Axis| match keep.iter().position(|k| k == a) {
            Some(k) => i[k],
            None => summed.iter().position(|s| s == a).map_or(Int::new(0), |s| r[s]),
        };
        let element = |(id, dtype, shape, axes): &(TensorId, DType, Vec<Int>, Vec<Axis>)| {
            let at = axes.iter().zip(shape).map(|(a, d)| broadcast_index(*d, value(a))).collect();
            expr::load(*id, *dtype, at)
        };
        loads.iter().map(element).reduce(|a, b| a * b).unwrap_or_else(|| expr::constant_i64(dtype, 1))
    };
    Ok(if summed.is_empty() {
        cx.map(dtype, shape, |i| body(i, &[]))
    } else {
        cx.reduce(ReduceKind::Sum, dtype, shape, &over, body)
    })
}

#[cfg(test)]
mod tests {
    use super::super::AttrValue;
    use super::super::testing::{self, counting};
    use super::*;

    fn run(equation: &str, shapes: &[&[usize]]) -> Result<(Vec<usize>, Vec<f64>), OpError> {
        let inputs: Vec<_> = shapes.iter().map(|s| Some(counting(s))).collect();
        let attrs = [("equation", AttrValue::Str(equation.into()))];
        let v = testing::run("Einsum", 12, &inputs, &attrs, 1)?.remove(0);
        Ok((v.shape, v.data))
    }

    #[test]
    fn three_operands_with_a_change_of_order() {
        // a = [[0, 1], [2, 3]], b the same, c = [0, 1]: y[l, i] = sum over j, k of a[i, j] * b[j, k] * c[k] for l = k.
        let (shape, y) = run("ij,jk,k->ki", &[&[2, 2], &[2, 2], &[2]]).expect("legal");
        assert_eq!(shape, [2, 2]);
        // a @ b = [[2, 3], [6, 11]]; column k times c[k], transposed.
        assert_eq!(y, [0.0, 0.0, 3.0, 11.0]);
    }

    #[test]
    fn diagonals_ellipses_and_implicit_outputs() {
        assert_eq!(run("...ii->...i", &[&[2, 2, 2]]), Ok((vec![2, 2], vec![0.0, 3.0, 4.0, 7.0])));
        assert_eq!(run("ba", &[&[2, 3]]), Ok((vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0])));
        assert_eq!(run("ij,jk", &[&[1, 2], &[2, 1]]), Ok((vec![1, 1], vec![1.0])));
        assert_eq!(run("i,i->", &[&[3], &[3]]), Ok((vec![], vec![5.0])));
        let (shape, y) = run("...j,...j->...", &[&[2, 2], &[3, 1, 2]]).expect("legal");
        assert_eq!((shape, y[5]), (vec![3, 2], 2.0 * 4.0 + 3.0 * 5.0));
    }

    #[test]
    fn wrong_equations_are_refused() {
        for (equation, shapes) in [
            ("ij->ii", vec![&[2usize, 2] as &[usize]]),
            ("ij->k", vec![&[2, 2]]),
            ("ij,jk->ik", vec![&[2, 2]]),
            ("i->i", vec![&[2, 2]]),
            ("i1->i", vec![&[2, 2]]),
            ("ij,jk->ik", vec![&[2, 3], &[2, 2]]),
        ] {
            assert!(matches!(run(equation, &shapes), Err(OpError::Invalid(_))), "{equation}");
        }
    }
}
