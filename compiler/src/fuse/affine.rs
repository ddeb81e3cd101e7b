//! What follows a contraction, with fewer operations: constants of one element are written out, and a chain of constant
//! factors and offsets becomes one multiplication and one addition.
//!
//! Exporters write what a layer learned (a scale and an offset, a normalization, a hard swish that ends in a division by six) as
//! operators of their own. A division takes as long as thirty multiply-adds. Sums round anyway, so what is computed from them
//! may round elsewhere: only `F32` numbers that depend on a contraction are changed, never one that does not.

use super::constants;
use super::uses::exprs;
use crate::dtype::DType;
use crate::lower::contract;
use crate::sym::{Int, VarId};
use crate::te::{Def, Expr, Func1, Func2, Node, Program, Step, Tensor, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Most elements of a constant that is made of others.
const MOST: i64 = 1 << 14;

/// Simplifies what the `stored` tensors of an inlined program compute; constants that are made join them.
pub(super) fn simplify(p: &mut Program, stored: &mut BTreeSet<TensorId>) {
    write_out(p, stored);
    let sums: BTreeMap<TensorId, bool> = stored
        .iter()
        .flat_map(|t| exprs(&p.tensor(*t).def))
        .flat_map(expr::loads)
        .map(|(t, _)| (t, is_sum(p, t)))
        .collect();
    let mut made = vec![];
    for t in stored.iter().copied().collect::<Vec<_>>() {
        let Def::Map { vars, body } = p.tensor(t).def.clone() else { continue };
        if body.dtype() != DType::F32 || !expr::loads(body).iter().any(|(s, _)| sums[s]) {
            continue;
        }
        let mut chains = Chains {
            users: users(body),
            depends: HashMap::new(),
            done: HashMap::new(),
            sums: &sums,
            p,
            made: &mut made,
        };
        let body = chains.simpler(body);
        p.tensors[t.0 as usize].def = Def::Map { vars, body };
    }
    stored.extend(&made);
    p.main.steps.splice(0..0, made.into_iter().map(Step::Define));
}

/// Writes floats that are constants of one element as numbers.
fn write_out(p: &mut Program, stored: &BTreeSet<TensorId>) {
    for t in stored {
        let mut def = p.tensor(*t).def.clone();
        let one = |t: TensorId| {
            let (tensor, bytes) = (p.tensor(t), constants::bytes_of(p, t)?);
            let single = tensor.dtype.is_float() && bytes.len() == tensor.dtype.size();
            single.then(|| bytes.iter().rev().fold(0u64, |bits, b| bits << 8 | u64::from(*b)))
        };
        let put = |e: Expr| expr::map_loads(e, &mut |t, _, _| Some(expr::imm(p.tensor(t).dtype, one(t)?)));
        super::rewrite(&mut def, &put);
        p.tensors[t.0 as usize].def = def;
    }
}

fn is_sum(p: &Program, t: TensorId) -> bool {
    match p.tensor(t).def {
        Def::View(base) => is_sum(p, base),
        _ => contract::recognise(p, t).is_some(),
    }
}

/// How many other sub-expressions use each.
fn users(e: Expr) -> HashMap<Expr, usize> {
    let mut out = HashMap::new();
    for user in expr::nodes(e) {
        for operand in expr::operands(&user.node()) {
            *out.entry(operand).or_default() += 1;
        }
    }
    out
}

/// `factor * inner + offset`, where what is missing is 1 or 0.
struct Chain {
    inner: Expr,
    factor: Option<Expr>,
    offset: Option<Expr>,
    /// Operations that it stands for, a division counted more than once.
    operations: usize,
}

/// Rewrites one expression.
struct Chains<'a> {
    users: HashMap<Expr, usize>,
    depends: HashMap<Expr, bool>,
    done: HashMap<Expr, Expr>,
    sums: &'a BTreeMap<TensorId, bool>,
    p: &'a mut Program,
    made: &'a mut Vec<TensorId>,
}

impl Chains<'_> {
    fn simpler(&mut self, e: Expr) -> Expr {
        if let Some(known) = self.done.get(&e) {
            return *known;
        }
        let new = match self.chain(e, true) {
            Some(chain)
                if chain.operations > usize::from(chain.factor.is_some()) + usize::from(chain.offset.is_some()) =>
            {
                self.written(&chain)
            }
            _ => None,
        };
        let new = new.unwrap_or_else(|| expr::rebuild(e, &mut |x, _| (x != e).then(|| self.simpler(x))));
        self.done.insert(e, new);
        new
    }

    fn written(&mut self, chain: &Chain) -> Option<Expr> {
        let mut e = self.simpler(chain.inner);
        if let Some(factor) = chain.factor {
            e = expr::bin(Func2::Mul, e, self.constant(factor)?);
        }
        if let Some(offset) = chain.offset {
            e = expr::bin(Func2::Add, e, self.constant(offset)?);
        }
        Some(e)
    }

    /// The chain that ends with `e`, if it depends on a sum. One that others use, too, is not taken apart.
    fn chain(&mut self, e: Expr, last: bool) -> Option<Chain> {
        let plain = Chain { inner: e, factor: None, offset: None, operations: 0 };
        if e.dtype() != DType::F32 || !self.depends(e) {
            return None;
        }
        if !last && self.users.get(&e).is_some_and(|n| *n > 1) {
            return Some(plain);
        }
        let step = |f: Func2, a: Option<Expr>, b: Expr| a.map(|a| expr::bin(f, a, b));
        Some(match e.node() {
            Node::Un(Func1::Neg, a) => {
                let c = self.chain(a, false)?;
                let minus = expr::constant_f64(DType::F32, -1.0);
                Chain { operations: c.operations + 1, ..scaled(c, minus) }
            }
            Node::Bin(f @ (Func2::Add | Func2::Sub), a, b) if self.fixed(b) => {
                let c = self.chain(a, false)?;
                let b = if f == Func2::Sub { expr::un(Func1::Neg, b) } else { b };
                Chain { offset: step(Func2::Add, c.offset, b).or(Some(b)), operations: c.operations + 1, ..c }
            }
            Node::Bin(f @ (Func2::Add | Func2::Sub), a, b) if self.fixed(a) => {
                let c = self.chain(b, false)?;
                let c = if f == Func2::Sub { scaled(c, expr::constant_f64(DType::F32, -1.0)) } else { c };
                Chain { offset: step(Func2::Add, c.offset, a).or(Some(a)), operations: c.operations + 1, ..c }
            }
            Node::Bin(Func2::Mul, a, b) if self.fixed(b) => {
                let c = self.chain(a, false)?;
                Chain { operations: c.operations + 1, ..scaled(c, b) }
            }
            Node::Bin(Func2::Mul, a, b) if self.fixed(a) => {
                let c = self.chain(b, false)?;
                Chain { operations: c.operations + 1, ..scaled(c, a) }
            }
            Node::Bin(Func2::Div, a, b) => match reciprocal(b) {
                Some(b) => {
                    let c = self.chain(a, false)?;
                    Chain { operations: c.operations + 4, ..scaled(c, b) }
                }
                None => plain,
            },
            _ => plain,
        })
    }

    fn depends(&mut self, e: Expr) -> bool {
        if let Some(known) = self.depends.get(&e) {
            return *known;
        }
        let node = e.node();
        let own = matches!(node, Node::Load(t, _) if self.sums.get(&t) == Some(&true));
        let found = own || expr::operands(&node).into_iter().any(|o| self.depends(o));
        self.depends.insert(e, found);
        found
    }

    /// Whether an expression is a number, or made of constants by arithmetic.
    fn fixed(&self, e: Expr) -> bool {
        e.dtype() == DType::F32
            && match e.node() {
                Node::Const(_) => true,
                Node::Load(t, _) => self.p.tensor(t).dtype == DType::F32 && constants::bytes_of(self.p, t).is_some(),
                Node::Un(Func1::Neg | Func1::Sqrt, a) => self.fixed(a),
                Node::Bin(Func2::Add | Func2::Sub | Func2::Mul | Func2::Div, a, b) => self.fixed(a) && self.fixed(b),
                _ => false,
            }
    }

    /// A constant for an expression that [is fixed](Self::fixed); nothing if it is large or not finite everywhere.
    fn constant(&mut self, e: Expr) -> Option<Expr> {
        match e.node() {
            Node::Const(c) => return f32::from_bits(c.bits as u32).is_finite().then_some(e),
            Node::Load(..) => return Some(e),
            _ => {}
        }
        let mut used = BTreeSet::new();
        expr::collect_vars(e, &mut used);
        let used: Vec<VarId> = used.into_iter().collect();
        let shape = used.iter().map(|v| v.extent()).collect::<Option<Vec<Int>>>()?;
        let elements = shape.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_const()?))?;
        if elements > MOST {
            return None;
        }
        let vars: Vec<VarId> = shape.iter().map(|n| VarId::index("i", *n)).collect();
        let at = |v: VarId| used.iter().position(|u| *u == v).map(|k| Int::var(vars[k]));
        let def = Def::Map { body: expr::subst_vars(e, &at), vars: vars.clone() };
        let node = expr::loads(e).first().map(|(t, _)| self.p.tensor(*t).node.clone()).unwrap_or_default();
        let t = TensorId(self.p.tensors.len() as u32);
        self.p.tensors.push(Tensor { name: node.clone(), node, dtype: DType::F32, shape, def });
        let bytes = constants::compute(self.p, t)
            .filter(|bytes| bytes.chunks_exact(4).all(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite()));
        let Some(bytes) = bytes else {
            self.p.tensors.pop();
            return None;
        };
        self.p.tensors[t.0 as usize].def = Def::Const(Arc::new(bytes));
        self.made.push(t);
        Some(expr::load(t, DType::F32, used.iter().map(|v| Int::var(*v)).collect()))
    }
}

/// The chain times `by`.
fn scaled(c: Chain, by: Expr) -> Chain {
    let times = |e: Expr| expr::bin(Func2::Mul, e, by);
    Chain { factor: Some(c.factor.map_or(by, times)), offset: c.offset.map(times), ..c }
}

/// One over a number, where neither is too small or large for that.
fn reciprocal(e: Expr) -> Option<Expr> {
    let Node::Const(c) = e.node() else { return None };
    let (x, inverse) = (f32::from_bits(c.bits as u32), 1.0 / f32::from_bits(c.bits as u32));
    let sound = c.elem == DType::F32 && x.is_normal() && inverse.is_normal();
    sound.then(|| expr::constant_f64(DType::F32, f64::from(inverse)))
}
