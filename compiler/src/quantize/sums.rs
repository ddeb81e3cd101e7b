//! Sums of products.

use super::Rewrite;
use super::bytes::Bytes;
use crate::dtype::DType;
use crate::sym::{Int, VarId};
use crate::te::cx::{index_of, index_vars, reindex};
use crate::te::{Def, Expr, Func2, Node, ReduceKind, TensorId, expr};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One factor of the products.
#[derive(Clone)]
struct Factor {
    /// Its bytes, zero point and scale for the term at hand.
    bytes: Bytes,
    /// Where it is read.
    index: Vec<Int>,
}

/// What a sum is made of: the sum of products of bytes, and what corrects and scales it.
#[derive(Clone)]
pub(super) struct Sum {
    /// The sum of products of bytes.
    raw: TensorId,
    /// Index variables.
    vars: Vec<VarId>,
    /// What is subtracted from it.
    less: Option<Expr>,
    /// What it is multiplied by as a float.
    scale: Option<Expr>,
}

/// Most terms whose sum certainly lies within 32 bits: products are at most `255 * 255`.
const MOST_TERMS: i64 = (1 << 31) / (255 * 255);

impl Rewrite<'_> {
    /// Rewrites the reduction `t` if it is a sum of products of quantised numbers.
    pub(super) fn sum(&mut self, t: TensorId) {
        let tensor = self.p.tensor(t).clone();
        let Def::Reduce { vars, rvars, kind: ReduceKind::Sum, body } = tensor.def else { return };
        let Node::Bin(Func2::Mul, a, b) = body.node() else { return };
        let terms = Int::product(&rvars.iter().map(|v| v.extent().unwrap_or(Int::new(1))).collect::<Vec<_>>());
        let small = terms.bounds().hi.is_some_and(|n| n <= MOST_TERMS);
        if tensor.dtype != DType::I32 && !(tensor.dtype == DType::F32 && small) {
            return;
        }
        let (Some(mut a), Some(mut b)) = (self.factor(a, tensor.dtype), self.factor(b, tensor.dtype)) else { return };
        let steady = |f: &Factor| f.bytes.variables().iter().all(|v| !rvars.contains(v));
        if !steady(&a) || !steady(&b) {
            return;
        }
        let plain = |f: &Factor| f.bytes.zero.is_none() && f.bytes.scale.is_none();
        let mixed = self.dtype_of(&a) != self.dtype_of(&b);
        if mixed && plain(&a) && plain(&b) {
            return;
        }
        if !mixed {
            // Constants change for nothing; those of two signed operands stay for the sake of their zero point.
            let signed = self.dtype_of(&a) == DType::I8;
            if self.is_constant(&b) == signed && self.is_constant(&a) != signed {
                a = self.with_other_sign(a);
            } else {
                b = self.with_other_sign(b);
            }
        }
        let raw_body = self.element(&a) * self.element(&b);
        let less = self.correction(&vars, &rvars, terms, &a, &b);
        let scale = match (a.bytes.scale, b.bytes.scale) {
            (Some(x), Some(y)) => Some(self.table(&vars, x * y)),
            (one, None) | (None, one) => one,
        };
        let raw_def = Def::Reduce { vars: vars.clone(), rvars, kind: ReduceKind::Sum, body: raw_body };
        let view = self.only_view(t);
        if let Some(view) = view {
            // The sum itself is of bytes, and what is done with it is done where it has its final shape.
            self.p.tensors[t.0 as usize].dtype = DType::I32;
            self.p.tensors[t.0 as usize].def = raw_def;
            self.views.insert(view, Sum { raw: t, vars, less, scale });
            return;
        }
        let raw = self.define(DType::I32, tensor.shape.clone(), raw_def);
        let sum = Sum { raw, vars, less, scale };
        let own = index_vars("i", &tensor.shape);
        let body = finished(&sum, raw, &index_of(&own), &index_of(&own));
        self.p.tensors[t.0 as usize].def = Def::Map { vars: own, body };
    }

    /// Finishes a sum that only this view reads.
    pub(super) fn view_of_sum(&mut self, t: TensorId) {
        let Some(sum) = self.views.remove(&t) else { return };
        let shape = self.p.tensor(t).shape.clone();
        let view = self.define(DType::I32, shape.clone(), Def::View(sum.raw));
        let own = index_vars("i", &shape);
        let at = index_of(&own);
        let inner = reindex(&shape, &self.p.tensor(sum.raw).shape, &at);
        let body = finished(&sum, view, &at, &inner);
        self.p.tensors[t.0 as usize].def = Def::Map { vars: own, body };
    }

    /// The view that alone reads `t`.
    fn only_view(&self, t: TensorId) -> Option<TensorId> {
        let readers = self.uses.readers.get(&t)?;
        let only = readers.iter().next().filter(|_| readers.len() == 1 && !self.uses.whole.contains(&t))?;
        matches!(self.p.tensor(*only).def, Def::View(_)).then_some(*only)
    }

    fn factor(&mut self, e: Expr, dtype: DType) -> Option<Factor> {
        if dtype == DType::I32 {
            let shifted = self.shifted(e)?;
            let bytes = Bytes { tensor: shifted.tensor, vars: vec![], zero: shifted.zero, scale: None };
            return Some(Factor { bytes, index: shifted.index });
        }
        let Node::Load(t, index) = e.node() else { return None };
        let bytes = self.behind(t)?.at(&index);
        Some(Factor { bytes, index })
    }

    fn dtype_of(&self, f: &Factor) -> DType {
        self.p.tensor(f.bytes.tensor).dtype
    }

    fn is_constant(&self, f: &Factor) -> bool {
        matches!(self.p.tensor(f.bytes.tensor).def, Def::Const(_))
    }

    /// A byte in 32 bits.
    fn element(&self, f: &Factor) -> Expr {
        expr::cast(DType::I32, expr::load(f.bytes.tensor, self.dtype_of(f), f.index.clone()))
    }

    /// The factor with bytes of the other sign: all numbers and the zero point are 128 more or less.
    fn with_other_sign(&mut self, f: Factor) -> Factor {
        let from = self.dtype_of(&f);
        let (to, away) = if from == DType::U8 { (DType::I8, -128) } else { (DType::U8, 128) };
        let away = expr::constant_i64(DType::I32, away);
        let zero = Some(f.bytes.zero.map_or(away, |z| z + away)).filter(|z| !self.vanishes(*z));
        let tensor = self.flipped(f.bytes.tensor, to);
        Factor { bytes: Bytes { tensor, zero, ..f.bytes }, ..f }
    }

    /// Is `z - 128` or `z + 128` zero for all of a constant zero point?
    fn vanishes(&self, e: Expr) -> bool {
        let Node::Bin(Func2::Add, zero, away) = e.node() else { return self.is_zero(e) };
        let Node::Cast(DType::I32, load) = zero.node() else { return false };
        let Node::Load(t, _) = load.node() else { return false };
        let Def::Const(bytes) = &self.p.tensor(t).def else { return false };
        away.as_const().is_some() && bytes.iter().all(|b| *b == 0x80)
    }

    fn flipped(&mut self, t: TensorId, to: DType) -> TensorId {
        let tensor = self.p.tensor(t).clone();
        if let Def::Const(bytes) = &tensor.def {
            let bytes: Vec<u8> = bytes.iter().map(|b| b ^ 0x80).collect();
            return self.define(to, tensor.shape, Def::Const(Arc::new(bytes)));
        }
        let vars = index_vars("i", &tensor.shape);
        let byte = expr::load(t, tensor.dtype, index_of(&vars));
        let top = expr::imm(tensor.dtype, 0x80);
        let body = expr::bitcast(to, expr::bin(Func2::Xor, byte, top));
        self.define(to, tensor.shape, Def::Map { vars, body })
    }

    /// `za·Σb + zb·Σa - n·za·zb`.
    fn correction(&mut self, vars: &[VarId], rvars: &[VarId], terms: Int, a: &Factor, b: &Factor) -> Option<Expr> {
        let part = |r: &mut Self, zero: Option<Expr>, of: &Factor| {
            let zero = zero?;
            let element = r.element(of);
            Some(zero * r.sum_of_terms(vars, rvars, element))
        };
        let of_b = part(self, a.bytes.zero, b);
        let of_a = part(self, b.bytes.zero, a);
        let both = a.bytes.zero.zip(b.bytes.zero).map(|(x, y)| x * y * expr::int(terms).to(DType::I32));
        // What is constant is one table.
        let steady = match (of_b, both) {
            (Some(x), Some(y)) => Some(x - y),
            (one, None) => one,
            (None, Some(y)) => Some(expr::constant_i64(DType::I32, 0) - y),
        };
        let steady = steady.map(|e| self.table(vars, e));
        match (steady, of_a) {
            (Some(x), Some(y)) => Some(x + y),
            (one, None) | (None, one) => one,
        }
    }

    /// The sum of `element` over all terms, for the index at `vars`.
    fn sum_of_terms(&mut self, vars: &[VarId], rvars: &[VarId], element: Expr) -> Expr {
        let (own, shape) = self.axes(vars, element);
        let inner: Vec<VarId> = own.iter().map(|v| VarId::index("i", extent(*v))).collect();
        let over: Vec<VarId> = rvars.iter().map(|v| VarId::index("r", extent(*v))).collect();
        let put = |v: VarId| {
            let place = |list: &[VarId], to: &[VarId]| list.iter().position(|x| *x == v).map(|k| Int::var(to[k]));
            place(&own, &inner).or_else(|| place(rvars, &over))
        };
        let body = expr::subst_vars(element, &put);
        let def = Def::Reduce { vars: inner, rvars: over, kind: ReduceKind::Sum, body };
        let sums = self.define(DType::I32, shape, def);
        expr::load(sums, DType::I32, index_of(&own))
    }

    /// A tensor of the values of `e` for all indices that it depends on, if these are constants; else `e` itself.
    pub(super) fn table(&mut self, vars: &[VarId], e: Expr) -> Expr {
        if let Some(load) = self.tables.get(&e) {
            return *load;
        }
        let constant = |t: TensorId| matches!(self.p.tensor(t).def, Def::Const(_));
        let loads = expr::loads(e);
        if loads.is_empty() || !loads.iter().all(|(t, _)| constant(*t)) {
            return e;
        }
        let (own, shape) = self.axes(vars, e);
        let inner: Vec<VarId> = own.iter().map(|v| VarId::index("i", extent(*v))).collect();
        let put = |v: VarId| own.iter().position(|x| *x == v).map(|k| Int::var(inner[k]));
        let body = expr::subst_vars(e, &put);
        let dtype = e.dtype();
        let table = self.define(dtype, shape, Def::Map { vars: inner, body });
        let load = expr::load(table, dtype, index_of(&own));
        self.tables.insert(e, load);
        load
    }

    /// Those of `vars` that `e` depends on, and their extents.
    fn axes(&self, vars: &[VarId], e: Expr) -> (Vec<VarId>, Vec<Int>) {
        let mut used = BTreeSet::new();
        expr::collect_vars(e, &mut used);
        let own: Vec<VarId> = vars.iter().copied().filter(|v| used.contains(v)).collect();
        let shape = own.iter().map(|v| extent(*v)).collect();
        (own, shape)
    }
}

fn extent(v: VarId) -> Int {
    v.extent().unwrap_or(Int::new(1))
}

/// The finished element, read from `raw` at `at`; `index` is the index of the sum.
fn finished(sum: &Sum, raw: TensorId, at: &[Int], index: &[Int]) -> Expr {
    let put = |v: VarId| sum.vars.iter().position(|x| *x == v).map(|k| index[k]);
    let moved = |e: &Expr| expr::subst_vars(*e, &put);
    let whole = expr::load(raw, DType::I32, at.to_vec());
    let whole = sum.less.as_ref().map_or(whole, |less| whole - moved(less));
    sum.scale.as_ref().map_or(whole, |scale| expr::cast(DType::F32, whole) * moved(scale))
}
