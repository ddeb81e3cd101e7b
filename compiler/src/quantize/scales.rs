//! Scales of numbers that are quantised again.

use super::Rewrite;
use crate::dtype::DType;
use crate::sym::VarId;
use crate::te::cx::reindex;
use crate::te::{Def, Expr, Func1, Func2, Node, TensorId, expr};

/// Most maps between a sum and the quantisation of its results.
const DEEP: u32 = 8;

impl Rewrite<'_> {
    /// In the map `t` to bytes: divides by the new scale where the sum is scaled, and makes tables of what is constant.
    pub(super) fn rescale(&mut self, t: TensorId) {
        let Def::Map { vars, body } = self.p.tensor(t).def.clone() else { return };
        let mut new = body;
        for e in expr::nodes(body) {
            let Node::Bin(Func2::Div, x, scale) = e.node() else { continue };
            if e.dtype() != DType::F32 || !self.is_positive(scale) {
                continue;
            }
            if let Some(scaled) =
                self.divided(&vars, x, scale, (false, DEEP)).or_else(|| self.approximately(&vars, x, scale))
            {
                new = expr::replace(new, e, scaled);
                break;
            }
        }
        let new = self.with_tables(&vars, new);
        self.p.tensors[t.0 as usize].def = Def::Map { vars, body: new };
    }

    /// Is it an element of a constant with positive elements only?
    fn is_positive(&self, e: Expr) -> bool {
        let Node::Load(t, _) = e.node() else { return false };
        let tensor = self.p.tensor(t);
        let Def::Const(bytes) = &tensor.def else { return false };
        let positive = |b: &[u8]| {
            let v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            v > 0.0 && v.is_finite()
        };
        tensor.dtype == DType::F32 && bytes.chunks_exact(4).all(positive)
    }

    /// `e / scale`, where `e` is made of a scaled sum of integers, constants added to it and bounds; else nothing. In `term`s of
    /// a sum, which is rounded several times, so is the product of a single byte and its scale.
    fn divided(&mut self, vars: &[VarId], e: Expr, scale: Expr, (term, deep): (bool, u32)) -> Option<Expr> {
        let deep = deep.checked_sub(1)?;
        let whole = |r: &Self, e: Expr| if term { r.is_integer(e) } else { r.is_sum(e) };
        match e.node() {
            Node::Bin(Func2::Mul, a, b) if whole(self, a) => self.divided_constant(vars, b, scale).map(|b| a * b),
            Node::Bin(Func2::Mul, a, b) if whole(self, b) => self.divided_constant(vars, a, scale).map(|a| a * b),
            Node::Bin(f @ (Func2::Add | Func2::Max | Func2::Min), a, b) => {
                if f == Func2::Add {
                    let mut part = |e: Expr| self.divided(vars, e, scale, (true, deep));
                    if let (Some(x), Some(y)) = (part(a), part(b)) {
                        return Some(x + y);
                    }
                }
                let (x, y) = match self.divided(vars, a, scale, (term, deep)) {
                    Some(x) => (x, self.divided_constant(vars, b, scale)?),
                    None => (self.divided(vars, b, scale, (term, deep))?, self.divided_constant(vars, a, scale)?),
                };
                Some(expr::bin(f, x, y))
            }
            Node::Load(t, index) => {
                let tensor = self.p.tensor(t);
                if tensor.dtype != DType::F32 {
                    return None;
                }
                if let Def::View(base) = tensor.def {
                    let index = reindex(&tensor.shape, &self.p.tensor(base).shape, &index);
                    let load = expr::load(base, DType::F32, index);
                    return if self.is_read_once(t) { self.divided(vars, load, scale, (term, deep)) } else { None };
                }
                let Def::Map { vars: own, body } = tensor.def.clone() else { return None };
                // What a byte stands for is soon computed again.
                let single = matches!(body.node(), Node::Bin(Func2::Mul, a, b)
                    if !self.is_sum(a) && !self.is_sum(b) && (self.is_integer(a) || self.is_integer(b)));
                if !single && !self.is_read_once(t) {
                    return None;
                }
                let put = |v: VarId| own.iter().position(|x| *x == v).map(|k| index[k]);
                self.divided(vars, expr::subst_vars(body, &put), scale, (term, deep))
            }
            _ => None,
        }
    }

    /// `e / scale`, where `e` comes from functions that are approximated: the last bit of the quotient says nothing, and a
    /// product with the reciprocal takes a tenth of the time. Of a quotient the divisor is scaled.
    fn approximately(&mut self, vars: &[VarId], e: Expr, scale: Expr) -> Option<Expr> {
        if !self.is_approximate(e, DEEP) {
            return None;
        }
        if let Node::Load(t, index) = e.node()
            && self.is_read_once(t)
            && let Def::Map { vars: own, body } = self.p.tensor(t).def.clone()
            && let Node::Bin(Func2::Div, a, b) = body.node()
        {
            let put = |v: VarId| own.iter().position(|x| *x == v).map(|k| index[k]);
            let (a, b) = (expr::subst_vars(a, &put), expr::subst_vars(b, &put));
            return Some(a * (b.num(1.0) / (b * scale)));
        }
        Some(e * self.table(vars, scale.num(1.0) / scale))
    }

    /// Is an approximated function of a float somewhere in what it is made of?
    fn is_approximate(&self, e: Expr, deep: u32) -> bool {
        let Some(deep) = deep.checked_sub(1) else { return false };
        let approximated = |e: &Expr| {
            let heavy = matches!(e.node(), Node::Un(f, _) if !crate::lower::is_basic(f) || f == Func1::Sqrt);
            heavy && e.dtype() == DType::F32
        };
        // Bytes are exact again.
        let float = |t: TensorId| self.p.tensor(t).dtype == DType::F32;
        let of_map = |t: TensorId| match self.p.tensor(t).def {
            Def::Map { body, .. } => float(t) && self.is_approximate(body, deep),
            _ => false,
        };
        let of_tensor = |t: TensorId| match self.p.tensor(t).def {
            Def::View(base) => of_map(base),
            _ => of_map(t),
        };
        expr::nodes(e).iter().any(approximated) || expr::loads(e).iter().any(|(t, _)| of_tensor(*t))
    }

    /// In the map `t` to floats: an approximated function of a quotient by a constant is one of a product.
    pub(super) fn arguments(&mut self, t: TensorId) {
        let Def::Map { vars, body } = self.p.tensor(t).def.clone() else { return };
        let mut new = body;
        for e in expr::nodes(body) {
            let Node::Un(f, argument) = e.node() else { continue };
            let Node::Load(from, index) = argument.node() else { continue };
            if crate::lower::is_basic(f) || e.dtype() != DType::F32 || !self.is_read_once(from) {
                continue;
            }
            let Def::Map { vars: own, body } = self.p.tensor(from).def.clone() else { continue };
            let Node::Bin(Func2::Div, x, by) = body.node() else { continue };
            let put = |v: VarId| own.iter().position(|x| *x == v).map(|k| index[k]);
            let (x, by) = (expr::subst_vars(x, &put), expr::subst_vars(by, &put));
            if self.is_positive(by) {
                let product = x * self.table(&vars, by.num(1.0) / by);
                new = expr::replace(new, argument, product);
            }
        }
        self.p.tensors[t.0 as usize].def = Def::Map { vars, body: new };
    }

    /// A sum of products of bytes as a float.
    fn is_sum(&self, e: Expr) -> bool {
        let Node::Cast(DType::F32, a) = e.node() else { return false };
        let sum = |t: TensorId| {
            let tensor = self.p.tensor(t);
            tensor.dtype == DType::I32 && !matches!(tensor.def, Def::Const(_))
        };
        a.dtype() == DType::I32 && expr::loads(a).iter().any(|(t, _)| sum(*t))
    }

    /// An integer that is no constant, as a float.
    fn is_integer(&self, e: Expr) -> bool {
        matches!(e.node(), Node::Cast(DType::F32, a) if a.dtype() == DType::I32 && self.settled(a, DEEP).is_none())
    }

    fn is_read_once(&self, t: TensorId) -> bool {
        self.uses.readers.get(&t).is_some_and(|r| r.len() == 1) && !self.uses.whole.contains(&t)
    }

    fn divided_constant(&mut self, vars: &[VarId], e: Expr, scale: Expr) -> Option<Expr> {
        let e = self.settled(e, DEEP)?;
        Some(self.table(vars, e / scale))
    }

    /// What is made of constants alone, by way of maps, as an expression of constant tensors.
    fn settled(&self, e: Expr, deep: u32) -> Option<Expr> {
        let deep = deep.checked_sub(1)?;
        let mut known = true;
        let e = expr::map_loads(e, &mut |t, index, dtype| {
            let tensor = self.p.tensor(t);
            let found = match &tensor.def {
                Def::Const(_) => return None,
                Def::View(base) => {
                    let index = reindex(&tensor.shape, &self.p.tensor(*base).shape, index);
                    self.settled(expr::load_as(*base, dtype, index), deep)
                }
                Def::Map { vars, body } if tensor.dtype == dtype => {
                    let put = |v: VarId| vars.iter().position(|x| *x == v).map(|k| index[k]);
                    self.settled(expr::subst_vars(*body, &put), deep)
                }
                _ => None,
            };
            known &= found.is_some();
            found
        });
        known.then_some(e)
    }

    fn is_constant_expr(&self, e: Expr) -> bool {
        expr::loads(e).iter().all(|(t, _)| matches!(self.p.tensor(*t).def, Def::Const(_)))
    }

    /// With tables instead of what is computed from constants alone.
    fn with_tables(&mut self, vars: &[VarId], e: Expr) -> Expr {
        let worth = !matches!(e.node(), Node::Const(_) | Node::Int(_) | Node::Load(..));
        let wide = matches!(e.dtype(), DType::F32 | DType::I32);
        if worth && wide && self.is_constant_expr(e) && !expr::loads(e).is_empty() {
            return self.table(vars, e);
        }
        let mut new = e;
        for part in expr::operands(&e.node()) {
            let made = self.with_tables(vars, part);
            if made != part {
                new = expr::replace(new, part, made);
            }
        }
        new
    }
}
