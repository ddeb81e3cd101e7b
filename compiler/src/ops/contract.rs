//! Matrix products: `MatMul`, `Gemm`.
//!
//! All give one reduction whose body is a product of two loads with affine indices. Lowering knows this form and gives it
//! packed operands and a register-tiled microkernel; scaling and bias are maps of their own, which fuse into its epilogue.

use super::scalar::{add, constant, mul};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::broadcast_index;
use crate::te::{Cx, Expr, OpError, OpResult, ReduceKind, TensorId, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "MatMul", matmul), ("", "Gemm", gemm)];

/// How the operands of a product `[…, m, k] x [k, n]` relate to the output.
pub(super) struct Product {
    /// Broadcast batch dimensions.
    pub(super) batch: Vec<Int>,
    /// Rows, unless the first operand is a vector.
    pub(super) m: Option<Int>,
    /// Columns, unless the second operand is a vector.
    pub(super) n: Option<Int>,
    /// Terms.
    pub(super) k: Int,
}

impl Product {
    /// Checks shapes by the rules of numpy's `matmul`.
    pub(super) fn of(cx: &mut Cx, a: TensorId, b: TensorId) -> OpResult<Product> {
        let (sa, sb) = (cx.shape(a), cx.shape(b));
        let (Some(ka), Some(_)) = (sa.last().copied(), sb.last()) else {
            return Err(OpError::Invalid("an operand of a matrix product is a scalar".into()));
        };
        let kb = sb[sb.len().saturating_sub(2)];
        cx.require_equal(ka, kb, "inner dimensions of the matrix product")?;
        let k = if ka.as_const().is_some() { ka } else { kb };
        let outer = |s: &[Int]| s[..s.len().saturating_sub(2)].to_vec();
        let batch = cx.broadcast(&[outer(&sa), outer(&sb)])?;
        let m = (sa.len() >= 2).then(|| sa[sa.len() - 2]);
        let n = (sb.len() >= 2).then(|| sb[sb.len() - 1]);
        Ok(Product { batch, m, n, k })
    }

    /// Shape of the output.
    pub(super) fn shape(&self) -> Vec<Int> {
        self.batch.iter().copied().chain(self.m).chain(self.n).collect()
    }

    /// Index within the first operand, of shape `shape`, for an output index and a term.
    pub(super) fn lhs(&self, shape: &[Int], index: &[Int], k: Int) -> Vec<Int> {
        let mut at = self.batch_index(shape, index);
        at.extend(self.m.map(|_| index[self.batch.len()]));
        at.push(k);
        at
    }

    /// Index within the second operand.
    pub(super) fn rhs(&self, shape: &[Int], index: &[Int], k: Int) -> Vec<Int> {
        let mut at = self.batch_index(shape, index);
        at.push(k);
        at.extend(self.n.map(|_| index[index.len() - 1]));
        at
    }

    fn batch_index(&self, shape: &[Int], index: &[Int]) -> Vec<Int> {
        let own = shape.len().saturating_sub(2);
        let skip = self.batch.len() - own;
        (0..own).map(|d| broadcast_index(shape[d], index[skip + d])).collect()
    }
}

/// The matrix product of two tensors of one type, by numpy's rules, as a tensor of type `out`; elements are cast to `term`
/// before they are multiplied.
pub(super) fn product(cx: &mut Cx, a: TensorId, b: TensorId, term: DType, out: DType) -> OpResult<TensorId> {
    let p = Product::of(cx, a, b)?;
    let (sa, sb) = (cx.shape(a), cx.shape(b));
    let (ta, tb) = (cx.dtype(a), cx.dtype(b));
    Ok(cx.reduce(ReduceKind::Sum, out, p.shape(), &[p.k], |i, r| {
        let x = expr::load(a, ta, p.lhs(&sa, i, r[0]));
        let y = expr::load(b, tb, p.rhs(&sb, i, r[0]));
        mul(expr::cast(term.compute(), x), expr::cast(term.compute(), y))
    }))
}

fn matmul(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let dtype = same_type(cx, &[a, b])?;
    Ok(vec![product(cx, a, b, dtype, dtype)?])
}

/// The one number type of all operands.
pub(super) fn same_type(cx: &Cx, operands: &[TensorId]) -> OpResult<DType> {
    let first = operands.first().map_or(DType::F32, |t| cx.dtype(*t));
    match operands.iter().map(|t| cx.dtype(*t)).find(|d| *d != first) {
        Some(other) => Err(OpError::Invalid(format!("operands differ in type: {first} and {other}"))),
        None if first == DType::Bool => Err(OpError::Invalid("operands must be numbers, not bool".into())),
        None => Ok(first),
    }
}

/// `e * by`, for any number type; `by == 1` leaves `e` alone. Integers are scaled as `f64` and cut off.
fn scaled(e: Expr, by: f32) -> Expr {
    let dtype = e.dtype();
    if by == 1.0 {
        e
    } else if dtype.is_float() {
        mul(e, constant(dtype, f64::from(by)))
    } else {
        let wide = mul(expr::cast(DType::F64, e), constant(DType::F64, f64::from(by)));
        expr::cast(dtype, wide)
    }
}

fn gemm(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b, c) = (call.input(0)?, call.input(1)?, call.opt(2));
    if call.version < 11 && c.is_none() {
        return Err(OpError::Invalid("input 2 is missing (it is optional from version 11 on)".into()));
    }
    let dtype = same_type(cx, &[Some(a), Some(b), c].into_iter().flatten().collect::<Vec<_>>())?;
    let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    let (ta, tb) = (call.int("transA", 0)? != 0, call.int("transB", 0)? != 0);
    let (sa, sb) = (cx.shape(a), cx.shape(b));
    let (&[a0, a1], &[b0, b1]) = (sa.as_slice(), sb.as_slice()) else {
        return Err(OpError::Invalid(format!(
            "operands must be matrices; their ranks are {} and {}",
            sa.len(),
            sb.len()
        )));
    };
    let (m, ka) = if ta { (a1, a0) } else { (a0, a1) };
    let (kb, n) = if tb { (b1, b0) } else { (b0, b1) };
    cx.require_equal(ka, kb, "inner dimensions of the matrix product")?;
    let k = if ka.as_const().is_some() { ka } else { kb };
    let shape = vec![m, n];
    let c = c.filter(|_| beta != 0.0);
    let plain = alpha == 1.0 && c.is_none();
    // Half types round once, at the end.
    let inner = if plain { dtype } else { dtype.compute() };
    let y = cx.reduce(ReduceKind::Sum, inner, shape.clone(), &[k], |i, r| {
        let x = expr::load(a, dtype, if ta { vec![r[0], i[0]] } else { vec![i[0], r[0]] });
        let y = expr::load(b, dtype, if tb { vec![i[1], r[0]] } else { vec![r[0], i[1]] });
        mul(x, y)
    });
    if let Some(c) = c {
        let sc = cx.shape(c);
        if call.version < 7 && call.int("broadcast", 0)? == 0 && sc.len() != 2 {
            return Err(OpError::Invalid("the bias must be a matrix unless attribute 'broadcast' is 1".into()));
        }
        let all = cx.broadcast(&[shape.clone(), sc])?;
        if all.len() != 2 {
            return Err(OpError::Invalid("the bias has more than two axes".into()));
        }
        cx.require_equal(all[0], m, "rows of the bias")?;
        cx.require_equal(all[1], n, "columns of the bias")?;
    }
    if plain {
        return Ok(vec![y]);
    }
    let bias_shape = c.map(|c| cx.shape(c));
    let out = cx.map(dtype, shape, |i| {
        let main = scaled(expr::load(y, inner, i.to_vec()), alpha);
        let (Some(c), Some(s)) = (c, &bias_shape) else { return main };
        let at = s.iter().zip(&i[2 - s.len()..]).map(|(d, i)| broadcast_index(*d, *i)).collect();
        add(main, scaled(expr::load(c, dtype, at), beta))
    });
    Ok(vec![out])
}
