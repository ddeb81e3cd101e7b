//! An operand as expansions use it, and what the families share.

use crate::dtype::DType;
use crate::sym::Int;
use crate::te::cx::broadcast_index;
use crate::te::{Cx, Expr, OpError, OpResult, TensorId, expr};

/// A tensor with its type and shape at hand, so that elements can be written while the context is borrowed.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) id: TensorId,
    pub(super) dtype: DType,
    pub(super) shape: Vec<Int>,
}

impl Operand {
    pub(super) fn of(cx: &Cx, id: TensorId) -> Operand {
        Operand { id, dtype: cx.dtype(id), shape: cx.shape(id) }
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The element at `index`.
    pub(super) fn at(&self, index: &[Int]) -> Expr {
        debug_assert_eq!(self.rank(), index.len(), "rank of load");
        expr::load(self.id, self.dtype, index.to_vec())
    }

    /// The element for the index of an output that this operand broadcasts to.
    pub(super) fn spread(&self, index: &[Int]) -> Expr {
        let inner = &index[index.len() - self.rank()..];
        let own = self.shape.iter().zip(inner).map(|(d, i)| broadcast_index(*d, *i)).collect();
        expr::load(self.id, self.dtype, own)
    }

    /// The only element of a tensor that must have exactly one.
    pub(super) fn only(&self) -> Expr {
        expr::load(self.id, self.dtype, vec![Int::new(0); self.rank()])
    }

    /// The type that its values are computed in.
    pub(super) fn compute(&self) -> DType {
        self.dtype.compute()
    }
}

/// Refuses operands of different types.
pub(super) fn same_type(cx: &Cx, a: TensorId, b: TensorId) -> OpResult<DType> {
    let (x, y) = (cx.dtype(a), cx.dtype(b));
    if x == y { Ok(x) } else { Err(OpError::Invalid(format!("operands have types {x} and {y}"))) }
}

/// Refuses a tensor that is not of floats.
pub(super) fn need_float(dtype: DType) -> OpResult<()> {
    if dtype.is_float() { Ok(()) } else { Err(OpError::Invalid(format!("element type {dtype}, floats are needed"))) }
}

/// Refuses a tensor of bools.
pub(super) fn need_number(dtype: DType) -> OpResult<()> {
    if dtype != DType::Bool { Ok(()) } else { Err(OpError::Invalid("element type bool, numbers are needed".into())) }
}

/// Refuses a tensor that is known to have another number of elements than one.
pub(super) fn need_one(cx: &mut Cx, t: TensorId, what: &str) -> OpResult<()> {
    let n = cx.numel(t);
    cx.require_equal(n, Int::new(1), &format!("elements of {what}"))
}

/// The element type that a `TensorProto.DataType` number names.
pub(super) fn onnx_type(code: i64) -> OpResult<DType> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        _ => {
            let name = match code {
                8 => "string",
                14 => "complex64",
                15 => "complex128",
                17 => "float8e4m3fn",
                18 => "float8e4m3fnuz",
                19 => "float8e5m2",
                20 => "float8e5m2fnuz",
                21 => "uint4",
                22 => "int4",
                23 => "float4e2m1",
                24 => "float8e8m0",
                25 => "uint2",
                26 => "int2",
                _ => return Err(OpError::Invalid(format!("{code} is not an element type"))),
            };
            return Err(OpError::Unsupported(format!("element type {name}")));
        }
    })
}

/// Conversion between element types as `Cast` does it; the result is in the compute type of `to`.
pub(super) fn convert(e: Expr, to: DType) -> Expr {
    if to == to.compute() {
        return e.to(to);
    }
    // Only floats round to half types. A 64-bit integer rounds twice, which the range of the half types hides except for
    // ties; every smaller one is exact in f64.
    let float = if e.dtype().is_float() { e } else { e.to(DType::F64) };
    expr::cast(to, float)
}
