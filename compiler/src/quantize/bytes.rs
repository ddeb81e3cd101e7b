//! The bytes behind numbers.

use super::{Rewrite, is_byte};
use crate::dtype::DType;
use crate::sym::{Int, VarId};
use crate::te::cx::{index_of, index_vars, reindex};
use crate::te::{Def, Expr, Func2, Node, TensorId, expr};
use std::collections::BTreeSet;

/// The elements of a tensor are `(bytes - zero) * scale`.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    /// A tensor of bytes of the same shape.
    pub tensor: TensorId,
    /// Index variables of `zero` and `scale`.
    pub vars: Vec<VarId>,
    /// In 32 bits; nothing if it is zero.
    pub zero: Option<Expr>,
    /// As `F32`; nothing if it is 1 and the elements are integers.
    pub scale: Option<Expr>,
}

impl Bytes {
    /// The same for an element at `index`.
    pub(super) fn at(&self, index: &[Int]) -> Bytes {
        let put = |v: VarId| self.vars.iter().position(|x| *x == v).map(|k| index[k]);
        let moved = |e: &Expr| expr::subst_vars(*e, &put);
        Bytes { zero: self.zero.as_ref().map(moved), scale: self.scale.as_ref().map(moved), ..self.clone() }
    }

    /// All variables of zero point and scale.
    pub(super) fn variables(&self) -> BTreeSet<VarId> {
        let mut vars = BTreeSet::new();
        self.zero.iter().chain(&self.scale).for_each(|e| expr::collect_vars(*e, &mut vars));
        vars
    }
}

/// `(load - zero) * scale` with a load of bytes, or a part of it.
pub(super) struct Shifted {
    pub tensor: TensorId,
    pub index: Vec<Int>,
    pub zero: Option<Expr>,
}

impl Rewrite<'_> {
    /// Taken apart: a byte in 32 bits, perhaps less a zero point.
    pub(super) fn shifted(&self, e: Expr) -> Option<Shifted> {
        let (byte, zero) = match e.node() {
            Node::Bin(Func2::Sub, byte, zero) => (byte, Some(zero)),
            _ => (e, None),
        };
        let Node::Cast(DType::I32, load) = byte.node() else { return None };
        let Node::Load(tensor, index) = load.node() else { return None };
        let zero = zero.filter(|z| !self.is_zero(*z));
        is_byte(self.p.tensor(tensor).dtype).then_some(Shifted { tensor, index, zero })
    }

    /// Is it zero, whatever its index is?
    pub(super) fn is_zero(&self, e: Expr) -> bool {
        match e.node() {
            Node::Const(c) => c.bits == 0,
            Node::Cast(_, a) => self.is_zero(a),
            Node::Load(t, _) => match &self.p.tensor(t).def {
                Def::Const(bytes) => bytes.iter().all(|b| *b == 0),
                _ => false,
            },
            _ => false,
        }
    }

    /// The bytes behind tensor `t`, if its elements are quantised numbers.
    pub(super) fn behind(&mut self, t: TensorId) -> Option<Bytes> {
        if let Some(known) = self.known.get(&t) {
            return known.clone();
        }
        let found = if self.p.tensor(t).dtype == DType::F32 { self.find(t) } else { None };
        self.known.insert(t, found.clone());
        found
    }

    fn find(&mut self, t: TensorId) -> Option<Bytes> {
        let tensor = self.p.tensor(t).clone();
        match tensor.def {
            Def::View(base) => {
                let inner = self.behind(base)?;
                let vars = index_vars("i", &tensor.shape);
                let at = reindex(&tensor.shape, &self.p.tensor(base).shape.clone(), &index_of(&vars));
                let moved = inner.at(&at);
                let dtype = self.p.tensor(inner.tensor).dtype;
                let view = self.define(dtype, tensor.shape, Def::View(inner.tensor));
                Some(Bytes { tensor: view, vars, ..moved })
            }
            Def::Map { vars, body } => self.find_in_map(&tensor.shape, &vars, body),
            _ => None,
        }
    }

    fn find_in_map(&mut self, shape: &[Int], vars: &[VarId], body: Expr) -> Option<Bytes> {
        if let Some((shifted, scale)) = self.dequantised(body) {
            let whole = shifted.index == index_of(vars) && self.p.tensor(shifted.tensor).shape == shape;
            let tensor = match whole {
                true => shifted.tensor,
                false => {
                    let dtype = self.p.tensor(shifted.tensor).dtype;
                    self.moved(shape, vars, expr::load(shifted.tensor, dtype, shifted.index))
                }
            };
            return Some(Bytes { tensor, vars: vars.to_vec(), zero: shifted.zero, scale: Some(scale) });
        }
        match body.node() {
            Node::Load(from, index) => {
                let inner = self.behind(from)?.at(&index);
                let load = expr::load(inner.tensor, self.p.tensor(inner.tensor).dtype, index);
                let tensor = self.moved(shape, vars, load);
                Some(Bytes { tensor, vars: vars.to_vec(), ..inner })
            }
            Node::Select(cond, yes, no) => {
                // Zero around what is moved.
                let (load, outside) = if self.is_zero(no) { (yes, false) } else { (no, true) };
                let Node::Load(from, index) = load.node() else { return None };
                if !self.is_zero(if outside { yes } else { no }) || !expr::loads(cond).is_empty() {
                    return None;
                }
                let inner = self.behind(from)?.at(&index);
                let mut own = BTreeSet::new();
                expr::collect_vars(cond, &mut own);
                // Where there is no element, there is no index of it.
                if !own.is_disjoint(&inner.variables()) {
                    return None;
                }
                let dtype = self.p.tensor(inner.tensor).dtype;
                let fill = match inner.zero {
                    Some(zero) => self.as_byte(zero, dtype),
                    None => expr::constant_i64(dtype, 0),
                };
                let load = expr::load(inner.tensor, dtype, index);
                let (yes, no) = if outside { (fill, load) } else { (load, fill) };
                let tensor = self.moved(shape, vars, expr::select(cond, yes, no));
                Some(Bytes { tensor, vars: vars.to_vec(), ..inner })
            }
            _ => None,
        }
    }

    /// A zero point as a byte, which it was made from.
    fn as_byte(&self, zero: Expr, dtype: DType) -> Expr {
        let byte = match zero.node() {
            Node::Cast(DType::I32, byte) if byte.dtype() == dtype => byte,
            _ => expr::cast(dtype, zero),
        };
        // One known value makes a border that needs no memory.
        match byte.node() {
            Node::Load(t, _) => match &self.p.tensor(t).def {
                Def::Const(bytes) if bytes.iter().all(|b| *b == bytes[0]) => expr::imm(dtype, u64::from(bytes[0])),
                _ => byte,
            },
            _ => byte,
        }
    }

    fn moved(&mut self, shape: &[Int], vars: &[VarId], body: Expr) -> TensorId {
        let own = index_vars("i", shape);
        let put = |v: VarId| vars.iter().position(|x| *x == v).map(|k| Int::var(own[k]));
        let body = expr::subst_vars(body, &put);
        self.define(body.dtype(), shape.to_vec(), Def::Map { vars: own, body })
    }

    /// A number taken apart: what is scaled and the scale.
    fn dequantised(&self, e: Expr) -> Option<(Shifted, Expr)> {
        let Node::Bin(Func2::Mul, a, b) = e.node() else { return None };
        let scaled = |x: Expr| match x.node() {
            Node::Cast(DType::F32, whole) => self.shifted(whole),
            _ => None,
        };
        match (scaled(a), scaled(b)) {
            (Some(shifted), _) => Some((shifted, b)),
            (None, Some(shifted)) => Some((shifted, a)),
            _ => None,
        }
    }
}
