//! Ensembles of decision trees.

use super::operand::{Operand, need_float};
use super::{AttrTensor, Call, Expand};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg, Type};
use crate::sym::Int;
use crate::te::{Cx, KernelCx, OpError, OpResult, TensorId};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("ai.onnx.ml", "TreeEnsemble", ensemble)];

fn invalid<T>(message: String) -> OpResult<T> {
    Err(OpError::Invalid(message))
}

/// Comparison of a node with a set.
const MEMBER: i64 = 6;

/// The trees. A child is the number of a node or, for a leaf, `-1 - number`.
struct Trees {
    modes: Vec<i64>,
    features: Vec<i64>,
    yes: Vec<i64>,
    no: Vec<i64>,
    /// Is the true branch taken for NaN?
    nan: Vec<i64>,
    /// Each node's part of the members: first and one past the last.
    first: Vec<i64>,
    last: Vec<i64>,
    targets: Vec<i64>,
    roots: Vec<i64>,
}

fn needed<T>(v: Option<T>, name: &str) -> OpResult<T> {
    v.ok_or_else(|| OpError::Invalid(format!("attribute '{name}' is missing")))
}

/// Is the element a NaN? For the float types.
fn is_nan(t: &AttrTensor, k: usize) -> bool {
    let size = t.dtype.size();
    let mut le = [0; 8];
    if let Some(b) = t.bytes.get(k * size..(k + 1) * size) {
        le[..size].copy_from_slice(b);
    }
    let bits = u64::from_le_bytes(le);
    match t.dtype {
        DType::F64 => f64::from_bits(bits).is_nan(),
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        _ => half::f16::from_bits(bits as u16).is_nan(),
    }
}

fn trees(call: &Call, members: Option<&AttrTensor>, leaves: usize, width: i64) -> OpResult<Trees> {
    let ints = |name: &str| needed(call.opt_ints(name)?, name);
    let modes = needed(call.opt_tensor("nodes_modes")?, "nodes_modes")?;
    if modes.dtype != DType::U8 {
        return invalid(format!("nodes_modes of type {}", modes.dtype));
    }
    let modes: Vec<i64> = modes.bytes.iter().map(|m| i64::from(*m)).collect();
    let n = modes.len();
    let features = ints("nodes_featureids")?;
    let child = |ids: &str, leaf: &str| -> OpResult<Vec<i64>> {
        let (ids, leaf) = (ints(ids)?, ints(leaf)?);
        if ids.len() != n || leaf.len() != n {
            return invalid(format!("{} and {} branches of {n} nodes", ids.len(), leaf.len()));
        }
        let each = ids.iter().zip(&leaf).map(|(id, leaf)| {
            let most = if *leaf != 0 { leaves } else { n };
            if !(0..most as i64).contains(id) {
                return invalid(format!("branch to {id} of {most} nodes or leaves"));
            }
            Ok(if *leaf != 0 { -1 - id } else { *id })
        });
        each.collect()
    };
    let yes = child("nodes_truenodeids", "nodes_trueleafs")?;
    let no = child("nodes_falsenodeids", "nodes_falseleafs")?;
    let nan = call.ints("nodes_missing_value_tracks_true", vec![0; n])?;
    let (roots, targets) = (ints("tree_roots")?, ints("leaf_targetids")?);
    if features.len() != n || nan.len() != n || targets.len() != leaves {
        return invalid(format!(
            "{} features for {n} nodes, {} targets for {leaves} leaves",
            features.len(),
            targets.len()
        ));
    }
    if modes.iter().any(|m| *m > MEMBER) || features.iter().any(|f| *f < 0) {
        return invalid("a mode above 6 or a negative feature".into());
    }
    if roots.iter().any(|r| !(0..n as i64).contains(r)) || targets.iter().any(|t| !(0..width).contains(t)) {
        return invalid("a root or target out of range".into());
    }
    let (mut first, mut last, mut at) = (vec![0; n], vec![0; n], 0);
    let total = members.map_or(0, |m| m.bytes.len() / m.dtype.size());
    for k in (0..n).filter(|k| modes[*k] == MEMBER) {
        first[k] = at as i64;
        while at < total && members.is_some_and(|m| !is_nan(m, at)) {
            at += 1;
        }
        last[k] = at as i64;
        at += 1;
    }
    let t = Trees { modes, features, yes, no, nan, first, last, targets, roots };
    acyclic(&t)?;
    Ok(t)
}

/// Every walk ends: no node is its own descendant.
fn acyclic(t: &Trees) -> OpResult<()> {
    // 0: not seen, 1: on the path, 2: done.
    let mut state = vec![0u8; t.modes.len()];
    let mut stack: Vec<(i64, bool)> = t.roots.iter().map(|r| (*r, false)).collect();
    while let Some((node, leave)) = stack.pop() {
        let Some(k) = usize::try_from(node).ok() else { continue };
        if leave {
            state[k] = 2;
            continue;
        }
        match state[k] {
            1 => return invalid(format!("node {k} is its own descendant")),
            2 => continue,
            _ => state[k] = 1,
        }
        stack.extend([(node, true), (t.yes[k], false), (t.no[k], false)]);
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Average,
    Sum,
    Min,
    Max,
}

fn ensemble(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    let [rows, columns] = x.shape[..] else {
        return invalid(format!("input of rank {}, a matrix is needed", x.rank()));
    };
    if call.int("post_transform", 0)? != 0 {
        return Err(OpError::Unsupported("post_transform other than NONE".into()));
    }
    let aggregate = match call.int("aggregate_function", 1)? {
        0 => Aggregate::Average,
        1 => Aggregate::Sum,
        2 => Aggregate::Min,
        3 => Aggregate::Max,
        other => return invalid(format!("aggregate_function = {other}")),
    };
    let width = call.int("n_targets", 0)?;
    if !(1..1 << 31).contains(&width) {
        return invalid(format!("n_targets = {width}"));
    }
    let splits = needed(call.opt_tensor("nodes_splits")?, "nodes_splits")?;
    let weights = needed(call.opt_tensor("leaf_weights")?, "leaf_weights")?;
    let members = call.opt_tensor("membership_values")?;
    for t in [Some(&splits), Some(&weights), members.as_ref()].into_iter().flatten() {
        if t.dtype != x.dtype {
            return invalid(format!("splits, weights or members of type {} for input of type {}", t.dtype, x.dtype));
        }
    }
    let leaves = weights.bytes.len() / weights.dtype.size();
    let t = trees(call, members.as_ref(), leaves, width)?;
    if splits.bytes.len() / splits.dtype.size() != t.modes.len() {
        return invalid(format!("splits for {} nodes", t.modes.len()));
    }
    let most = t.features.iter().max().copied().unwrap_or(0);
    cx.require_at_most(Int::new(most + 1), columns, "a feature beyond the input's columns")?;
    let mut data = |d: &AttrTensor| cx.constant(d.dtype, &[d.bytes.len() / d.dtype.size()], d.bytes.to_vec());
    let mut inputs: Vec<TensorId> = vec![x.id, data(&splits), data(&weights)];
    inputs.push(match &members {
        Some(m) => data(m),
        None => inputs[1],
    });
    for list in [&t.modes, &t.features, &t.yes, &t.no, &t.nan, &t.first, &t.last, &t.targets, &t.roots] {
        inputs.push(cx.constant_i64(&[list.len()], list));
    }
    let (count, sets) = (t.roots.len() as i64, t.modes.contains(&MEMBER));
    let ty = Type::scalar(x.compute());
    let generate = move |k: &mut KernelCx<'_>| {
        let (rows, columns) = (k.int(rows), k.int(columns));
        let [x, splits, weights, members, modes, features, yes, no, nan, first, last, targets, roots] = k.inputs[..]
        else {
            return;
        };
        let out = k.outputs[0];
        let b = &mut *k.b;
        let nodes = Nodes { splits, members: sets.then_some((members, first, last)), modes, nan };
        let (zero, width, count_reg) = (b.i64(0), b.i64(width), b.i64(count));
        let start = match aggregate {
            Aggregate::Min => b.float(ty, f64::INFINITY),
            Aggregate::Max => b.float(ty, f64::NEG_INFINITY),
            _ => b.float(ty, 0.0),
        };
        let node = b.var(Type::scalar(DType::I64));
        b.for_(zero, rows, 1, |b, row| {
            let (source, base) = (b.mul(row, columns), b.mul(row, width));
            b.for_(zero, width, 1, |b, j| {
                let at = b.add(base, j);
                b.store(out, at, 0, start);
            });
            b.for_(zero, count_reg, 1, |b, tree| {
                let root = b.load(roots, tree, 0, 1);
                b.set(node, root);
                b.while_(
                    |b| {
                        let at = b.get(node);
                        b.cmp(Cmp::Ge, at, zero)
                    },
                    |b| {
                        let at = b.get(node);
                        let feature = b.load(features, at, 0, 1);
                        let place = b.add(source, feature);
                        let v = b.load(x, place, 0, 1);
                        let taken = nodes.compare(b, at, v);
                        let (yes, no) = (b.load(yes, at, 0, 1), b.load(no, at, 0, 1));
                        let next = b.select(taken, yes, no);
                        b.set(node, next);
                    },
                );
                let leaf = b.get(node);
                let minus = b.i64(-1);
                let leaf = b.sub(minus, leaf);
                let (target, weight) = (b.load(targets, leaf, 0, 1), b.load(weights, leaf, 0, 1));
                let at = b.add(base, target);
                let before = b.load(out, at, 0, 1);
                let after = match aggregate {
                    Aggregate::Sum => b.add(before, weight),
                    Aggregate::Average => {
                        let n = b.float(ty, count as f64);
                        let part = b.div(weight, n);
                        b.add(before, part)
                    }
                    Aggregate::Min => b.min(before, weight),
                    Aggregate::Max => b.max(before, weight),
                };
                b.store(out, at, 0, after);
            });
        });
    };
    Ok(cx.custom("trees", &inputs, vec![(x.dtype, vec![rows, Int::new(width)])], vec![], generate))
}

/// What the comparison of a node needs.
#[derive(Clone, Copy)]
struct Nodes {
    splits: Buf,
    members: Option<(Buf, Buf, Buf)>,
    modes: Buf,
    nan: Buf,
}

impl Nodes {
    /// Is the true branch of the node `at` taken for `v`?
    fn compare(self, b: &mut Builder, at: Reg, v: Reg) -> Reg {
        let (mode, split) = (b.load(self.modes, at, 0, 1), b.load(self.splits, at, 0, 1));
        let mut taken = match self.members {
            Some((members, first, last)) => {
                let hits = b.var(Type::scalar(DType::I64));
                let (zero, one) = (b.i64(0), b.i64(1));
                b.set(hits, zero);
                let (lo, hi) = (b.load(first, at, 0, 1), b.load(last, at, 0, 1));
                b.for_(lo, hi, 1, |b, k| {
                    let member = b.load(members, k, 0, 1);
                    let same = b.cmp(Cmp::Eq, member, v);
                    let before = b.get(hits);
                    let found = b.select(same, one, before);
                    b.set(hits, found);
                });
                let hits = b.get(hits);
                b.cmp(Cmp::Ne, hits, zero)
            }
            None => b.bool(false),
        };
        for (code, cmp) in [Cmp::Le, Cmp::Lt, Cmp::Ge, Cmp::Gt, Cmp::Eq, Cmp::Ne].into_iter().enumerate() {
            let code = b.i64(code as i64);
            let this = b.cmp(Cmp::Eq, mode, code);
            let holds = b.cmp(cmp, v, split);
            taken = b.select(this, holds, taken);
        }
        let nan = b.cmp(Cmp::Ne, v, v);
        let tracks = b.load(self.nan, at, 0, 1);
        let zero = b.i64(0);
        let tracks = b.cmp(Cmp::Ne, tracks, zero);
        let missing = b.and(nan, tracks);
        b.or(taken, missing)
    }
}
