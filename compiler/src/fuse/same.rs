//! Stored tensors with the same definition are one: convolutions that read the same tensor pad it each for itself.

use super::inline::defined;
use super::uses::{blocks, exprs};
use crate::dtype::DType;
use crate::sym::{Int, VarId};
use crate::te::{Def, Expr, Program, TensorId, expr};
use std::collections::{BTreeSet, HashMap};

/// What equal maps have in common.
type Key = (Option<usize>, DType, Vec<Int>, Vec<TensorId>);

/// Lets the readers of a map among the `stored` read an equal one that is defined before; those in `whole` stay. False if
/// there is none.
pub(super) fn merge(p: &mut Program, stored: &BTreeSet<TensorId>, whole: &BTreeSet<TensorId>) -> bool {
    let blocks = blocks(p);
    let mut known: HashMap<Key, Vec<TensorId>> = HashMap::new();
    let mut same: HashMap<TensorId, TensorId> = HashMap::new();
    for t in defined(p) {
        redirect(&mut p.tensors[t.0 as usize].def, &same);
        let tensor = p.tensor(t);
        let Def::Map { vars, body } = &tensor.def else { continue };
        if !stored.contains(&t) {
            continue;
        }
        let read: BTreeSet<TensorId> = expr::loads(*body).into_iter().map(|(s, _)| s).collect();
        let key = (blocks.get(&t).copied(), tensor.dtype, tensor.shape.clone(), read.into_iter().collect());
        let alike = known.entry(key).or_default();
        match alike.iter().find(|first| !whole.contains(&t) && renamed(*body, vars, p, **first)) {
            Some(first) => {
                same.insert(t, *first);
            }
            None => alike.push(t),
        }
    }
    !same.is_empty()
}

/// Is `body`, in terms of `vars`, the body of `first`, too?
fn renamed(body: Expr, vars: &[VarId], p: &Program, first: TensorId) -> bool {
    let Def::Map { vars: own, body: other } = &p.tensor(first).def else { return false };
    expr::subst_vars(body, &|v| vars.iter().position(|x| *x == v).map(|k| Int::var(own[k]))) == *other
}

fn redirect(def: &mut Def, same: &HashMap<TensorId, TensorId>) {
    if let Def::View(base) = def
        && let Some(first) = same.get(base)
    {
        *base = *first;
    }
    if !exprs(def).into_iter().flat_map(expr::loads).any(|(t, _)| same.contains_key(&t)) {
        return;
    }
    let put = |e: Expr| {
        expr::map_loads(e, &mut |t, index, dtype| same.get(&t).map(|s| expr::load_as(*s, dtype, index.to_vec())))
    };
    super::rewrite(def, &put);
}
