//! What is known of values without running the model: folding of constant expressions, elements of small tensors.

use super::cx::{Cx, OpError, OpResult, unflatten};
use super::expr::{self, Expr, Func1, Func2, Node};
use super::program::{Def, ReduceKind, TensorId};
use crate::dtype::DType;
use crate::kernel::ir::{Cmp, Imm};
use crate::sym::{Int, subst};

/// Most elements of a tensor whose elements are looked at one by one.
const FEW: i64 = 4096;
/// Most terms of a reduction that is written out.
const FEW_TERMS: i64 = 4096;

fn f64_of(c: Imm) -> Option<f64> {
    match c.elem {
        DType::F32 => Some(f64::from(f32::from_bits(c.bits as u32))),
        DType::F64 => Some(f64::from_bits(c.bits)),
        _ => None,
    }
}

fn i128_of(c: Imm) -> Option<i128> {
    if c.elem.is_float() {
        return None;
    }
    let shift = 64 - 8 * c.elem.size() as u32;
    Some(if c.elem.is_signed() { i128::from(((c.bits << shift) as i64) >> shift) } else { i128::from(c.bits) })
}

fn float(elem: DType, v: f64) -> Expr {
    expr::constant_f64(elem, v)
}

fn wrap(elem: DType, v: i128) -> Expr {
    expr::constant_i64(elem, v as i64)
}

/// The value of a constant of any type as a number.
pub fn number(c: Imm) -> f64 {
    f64_of(c).or_else(|| i128_of(c).map(|v| v as f64)).unwrap_or(0.0)
}

pub(super) fn fold_un(f: Func1, a: Expr) -> Option<Expr> {
    let c = a.as_const()?;
    if let Some(v) = i128_of(c) {
        return Some(match f {
            Func1::Neg => wrap(c.elem, -v),
            Func1::Abs => wrap(c.elem, v.abs()),
            Func1::Not if c.elem != DType::Bool => wrap(c.elem, !v),
            _ => return None,
        });
    }
    let x = f64_of(c)?;
    // Exact or correctly rounded in both precisions; transcendental functions are left to the kernels, so that a folded
    // value is bit-equal to a computed one.
    Some(float(
        c.elem,
        match f {
            Func1::Neg => -x,
            Func1::Abs => x.abs(),
            Func1::Sqrt => x.sqrt(),
            Func1::Floor => x.floor(),
            Func1::Ceil => x.ceil(),
            Func1::Trunc => x.trunc(),
            Func1::Round => x.round_ties_even(),
            _ => return None,
        },
    ))
}

pub(super) fn fold_bin(f: Func2, a: Expr, b: Expr) -> Option<Expr> {
    let (x, y) = (a.as_const()?, b.as_const()?);
    if let (Some(p), Some(q)) = (i128_of(x), i128_of(y)) {
        let bits = 8 * x.elem.size() as i128;
        let v = match f {
            Func2::Add => p + q,
            Func2::Sub => p - q,
            Func2::Mul => p.wrapping_mul(q),
            Func2::Div => p.checked_div(q).unwrap_or(0),
            Func2::Rem => p.checked_rem(q).unwrap_or(0),
            Func2::Min => p.min(q),
            Func2::Max => p.max(q),
            Func2::And => p & q,
            Func2::Or => p | q,
            Func2::Xor => p ^ q,
            Func2::Shl if (0..bits).contains(&q) => p << q,
            Func2::Shr if (0..bits).contains(&q) => p >> q,
            Func2::Shl => 0,
            Func2::Shr if p < 0 => -1,
            Func2::Shr => 0,
            Func2::Pow | Func2::Atan2 => return None,
        };
        return Some(wrap(x.elem, v));
    }
    let (p, q) = (f64_of(x)?, f64_of(y)?);
    let v = match f {
        Func2::Add => p + q,
        Func2::Sub => p - q,
        // The f64 product of two f32 is exact, and one rounding remains; quotients round twice but innocuously.
        Func2::Mul => p * q,
        Func2::Div => p / q,
        Func2::Min if p.is_nan() || q.is_nan() => f64::NAN,
        Func2::Max if p.is_nan() || q.is_nan() => f64::NAN,
        Func2::Min => p.min(q),
        Func2::Max => p.max(q),
        _ => return None,
    };
    Some(float(x.elem, v))
}

pub(super) fn fold_cmp(c: Cmp, a: Expr, b: Expr) -> Option<Expr> {
    let (x, y) = (a.as_const()?, b.as_const()?);
    fn decide<T: PartialOrd>(c: Cmp, p: T, q: T) -> bool {
        match c {
            Cmp::Eq => p == q,
            Cmp::Ne => p != q,
            Cmp::Lt => p < q,
            Cmp::Le => p <= q,
            Cmp::Gt => p > q,
            Cmp::Ge => p >= q,
        }
    }
    if let (Some(p), Some(q)) = (i128_of(x), i128_of(y)) {
        return Some(expr::boolean(decide(c, p, q)));
    }
    Some(expr::boolean(decide(c, f64_of(x)?, f64_of(y)?)))
}

pub(super) fn fold_cast(to: DType, a: Expr) -> Option<Expr> {
    let c = a.as_const()?;
    if let Some(v) = i128_of(c) {
        return Some(if to == DType::F32 {
            expr::imm(DType::F32, u64::from((v as f32).to_bits()))
        } else if to.is_float() {
            float(to, v as f64)
        } else if to == DType::Bool {
            expr::boolean(v != 0)
        } else {
            wrap(to, v)
        });
    }
    let x = f64_of(c)?;
    Some(match to {
        DType::I64 => expr::int(Int::new(x as i64)),
        DType::U64 => expr::imm(DType::U64, x as u64),
        DType::BF16 if c.elem == DType::F32 => expr::imm(DType::BF16, half::bf16::from_f32(x as f32).to_bits().into()),
        _ => float(to, x),
    })
}

/// The element of a constant tensor at a row-major position.
fn const_element(bytes: &[u8], dtype: DType, at: usize) -> Option<Expr> {
    let size = dtype.size();
    let mut le = [0; 8];
    le[..size].copy_from_slice(bytes.get(at * size..(at + 1) * size)?);
    Some(expr::imm(dtype, u64::from_le_bytes(le)))
}

/// The element of `t` at a constant index, as an expression with everything that is known put in.
pub fn element(cx: &mut Cx, t: TensorId, index: &[i64]) -> Expr {
    let key = (t, index.to_vec());
    if let Some(e) = cx.elements.get(&key) {
        return *e;
    }
    let e = compute(cx, t, index);
    cx.elements.insert(key, e);
    e
}

fn compute(cx: &mut Cx, t: TensorId, index: &[i64]) -> Expr {
    let tensor = cx.program.tensor(t);
    let (dtype, def) = (tensor.dtype, tensor.def.clone());
    let ints: Vec<Int> = index.iter().map(|i| Int::new(*i)).collect();
    let itself = expr::load(t, dtype, ints.clone());
    match def {
        Def::Const(bytes) => {
            let dims: Option<Vec<i64>> = tensor.shape.iter().map(|d| d.as_const()).collect();
            let at = dims.map(|d| d.iter().zip(index).fold(0, |f, (d, i)| f * d + i));
            at.and_then(|at| const_element(&bytes, dtype, usize::try_from(at).ok()?)).unwrap_or(itself)
        }
        Def::View(base) => {
            let flat = super::cx::flatten(&tensor.shape, &ints);
            let at: Option<Vec<i64>> =
                unflatten(&cx.program.tensor(base).shape, flat).iter().map(|i| i.as_const()).collect();
            match at {
                Some(at) => element(cx, base, &at),
                None => itself,
            }
        }
        Def::Map { vars, body } => {
            let at = |v| vars.iter().position(|x| *x == v).map(|k| ints[k]);
            let e = resolve(cx, expr::subst_vars(body, &at));
            round_stored(dtype, e)
        }
        Def::Reduce { vars, rvars, kind, body } => {
            let Some(space) = constant_space(&rvars) else { return itself };
            let mut total: Option<Expr> = None;
            for r in space {
                let at = |v| {
                    let outer = vars.iter().position(|x| *x == v).map(|k| ints[k]);
                    outer.or_else(|| rvars.iter().position(|x| *x == v).map(|k| Int::new(r[k])))
                };
                let term = resolve(cx, expr::subst_vars(body, &at));
                let f = match kind {
                    ReduceKind::Sum => Func2::Add,
                    ReduceKind::Prod => Func2::Mul,
                    ReduceKind::Max => Func2::Max,
                    ReduceKind::Min => Func2::Min,
                };
                total = Some(total.map_or(term, |sum| expr::bin(f, sum, term)));
            }
            // The neutral element of an empty reduction is left to the kernel, which knows infinities.
            total.map_or(itself, |e| round_stored(dtype, e))
        }
        Def::Fold { vars, rvars, init, step, result } => {
            let Some(space) = constant_space(&rvars) else { return itself };
            let outer = |v| vars.iter().position(|x| *x == v).map(|k| ints[k]);
            let mut accs: Vec<Expr> = vec![];
            for e in init {
                accs.push(resolve(cx, expr::subst_vars(e, &outer)));
            }
            let put = |e: Expr, accs: &[Expr]| {
                expr::rewrite(e, &mut |_, n| match n {
                    Node::Acc(k) => accs.get(*k as usize).copied(),
                    _ => None,
                })
            };
            for r in space {
                let at = |v| outer(v).or_else(|| rvars.iter().position(|x| *x == v).map(|k| Int::new(r[k])));
                let mut next = vec![];
                for e in &step {
                    next.push(put(resolve(cx, expr::subst_vars(*e, &at)), &accs));
                }
                accs = next;
            }
            let e = resolve(cx, expr::subst_vars(result, &outer));
            round_stored(dtype, put(e, &accs))
        }
        Def::Input(_) | Def::Custom(..) | Def::Slot | Def::Parts(_) | Def::Assembled { .. } => itself,
    }
}

fn round_stored(dtype: DType, e: Expr) -> Expr {
    if matches!(dtype, DType::F16 | DType::BF16) { expr::cast(dtype, e) } else { e }
}

/// All index tuples of constant, small extents in row-major order.
fn constant_space(vars: &[crate::sym::VarId]) -> Option<Vec<Vec<i64>>> {
    let mut out = vec![vec![]];
    for v in vars {
        let n = v.extent()?.as_const()?;
        if n.checked_mul(out.len() as i64)? > FEW_TERMS {
            return None;
        }
        out = out.iter().flat_map(|p| (0..n).map(move |i| [p.as_slice(), &[i]].concat())).collect();
    }
    Some(out)
}

/// Replaces loads at constant indices by what is known of the elements.
fn resolve(cx: &mut Cx, e: Expr) -> Expr {
    // Indices may themselves become constant only after an inner load is resolved; `map_loads` goes innermost first.
    let mut found = |t: TensorId, index: &[Int], _: DType| {
        let at: Option<Vec<i64>> = index.iter().map(|i| i.as_const()).collect();
        at.map(|at| element(cx, t, &at))
    };
    expr::map_loads(e, &mut found)
}

fn few_indices(cx: &Cx, t: TensorId, most: i64) -> Option<Vec<Vec<i64>>> {
    let mut out = vec![vec![]];
    for d in &cx.program.tensor(t).shape {
        let n = d.as_const()?;
        if n.checked_mul(out.len() as i64)? > most {
            return None;
        }
        out = out.iter().flat_map(|p: &Vec<i64>| (0..n).map(move |i| [p.as_slice(), &[i]].concat())).collect();
    }
    Some(out)
}

/// See [`Cx::ints`].
pub(super) fn ints(cx: &mut Cx, t: TensorId) -> Option<Vec<Int>> {
    if cx.dtype(t).is_float() {
        return None;
    }
    let indices = few_indices(cx, t, FEW)?;
    let mut out = vec![];
    for i in indices {
        let v = expr::as_int(element(cx, t, &i));
        if has_data(v) {
            return None;
        }
        out.push(v);
    }
    Some(out)
}

/// See [`Cx::ints_or_read`].
pub(super) fn ints_or_read(cx: &mut Cx, t: TensorId) -> OpResult<Vec<Int>> {
    let dtype = cx.dtype(t);
    if dtype.is_float() {
        return Err(OpError::Invalid(format!("an integer tensor is needed, this one is {dtype}")));
    }
    let Some(indices) = few_indices(cx, t, FEW) else {
        return Err(OpError::Unsupported(
            "an integer tensor of a size that is not known (or above 4096) used as shape, axes or the like".into(),
        ));
    };
    let mut out = vec![];
    for (k, i) in indices.into_iter().enumerate() {
        let v = expr::as_int(element(cx, t, &i));
        out.push(if has_data(v) { cx.read(t, k as i64, "n", None, None) } else { v });
    }
    Ok(out)
}

/// See [`Cx::const_floats`].
pub(super) fn floats(cx: &mut Cx, t: TensorId) -> Option<Vec<f64>> {
    let indices = few_indices(cx, t, 1 << 16)?;
    let mut out = vec![];
    for i in indices {
        out.push(number(element(cx, t, &i).as_const()?));
    }
    Some(out)
}

/// The bytes of a tensor as it is stored, if all elements are constants and there are at most 2^16.
pub(super) fn bytes(cx: &mut Cx, t: TensorId) -> Option<Vec<u8>> {
    if let Def::Const(bytes) = &cx.program.tensor(t).def {
        return Some(bytes.to_vec());
    }
    let dtype = cx.dtype(t);
    // The first one tells of most tensors that they are no constants.
    if cx.numel(t).as_const()? > 0 {
        element(cx, t, &vec![0; cx.rank(t)]).as_const()?;
    }
    let indices = few_indices(cx, t, 1 << 16)?;
    let mut out = vec![];
    for i in indices {
        let c = element(cx, t, &i).as_const().filter(|c| c.elem == dtype)?;
        out.extend_from_slice(&c.bits.to_le_bytes()[..dtype.size()]);
    }
    Some(out)
}

/// Does `i` need tensor data?
fn has_data(i: Int) -> bool {
    let mut any = false;
    crate::sym::map_data(i, &mut |_| {
        any = true;
        Int::new(0)
    });
    any
}

/// `i` with constants put in for variables.
pub fn at(i: Int, values: &[(crate::sym::VarId, i64)]) -> Int {
    subst(i, &|v| values.iter().find(|(x, _)| *x == v).map(|(_, c)| Int::new(*c)))
}
