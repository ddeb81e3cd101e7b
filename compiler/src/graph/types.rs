//! Values, their declared types, and constant tensors.

use std::fmt;
use std::sync::Arc;

use crate::dtype::DType;
use crate::graph::ElemType;

/// A value: what a node produces, a region's input, or a constant.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The name for people; not unique. May be empty for values the compiler has made.
    pub name: String,
    /// What the model declares; a hint where the model is the only witness, see [`ValueType::Unknown`].
    pub ty: ValueType,
}

/// The type of a value as far as the model declares it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ValueType {
    /// A dense tensor. `shape` is `None` when not even the rank is declared.
    Tensor {
        /// Element type.
        elem: ElemType,
        /// Dimensions, outermost first.
        shape: Option<Vec<DimDecl>>,
    },
    /// A sparse tensor.
    SparseTensor {
        /// Element type.
        elem: ElemType,
        /// Dimensions, outermost first.
        shape: Option<Vec<DimDecl>>,
    },
    /// A list of values of one type.
    Sequence(Box<ValueType>),
    /// A value or nothing.
    Optional(Box<ValueType>),
    /// A map.
    Map {
        /// Type of the keys: an integer type or string.
        key: ElemType,
        /// Type of the values.
        value: Box<ValueType>,
    },
    /// A type that only its domain knows, as `domain` and `name`.
    Opaque(String, String),
    /// Not declared.
    #[default]
    Unknown,
}

impl ValueType {
    /// A tensor type with all dimensions known.
    pub fn fixed(elem: impl Into<ElemType>, shape: &[usize]) -> ValueType {
        let shape = shape.iter().map(|d| DimDecl::Fixed(*d as u64)).collect();
        ValueType::Tensor { elem: elem.into(), shape: Some(shape) }
    }

    /// The element type of a dense tensor.
    pub fn elem(&self) -> Option<ElemType> {
        match self {
            ValueType::Tensor { elem, .. } => Some(*elem),
            _ => None,
        }
    }

    /// The declared dimensions of a dense tensor.
    pub fn shape(&self) -> Option<&[DimDecl]> {
        match self {
            ValueType::Tensor { shape, .. } => shape.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = |f: &mut fmt::Formatter<'_>, shape: &Option<Vec<DimDecl>>| match shape {
            None => f.write_str("[..]"),
            Some(dims) => {
                f.write_str("[")?;
                for (index, dim) in dims.iter().enumerate() {
                    write!(f, "{}{dim}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        };
        match self {
            ValueType::Tensor { elem, shape } => {
                write!(f, "{elem}")?;
                dims(f, shape)
            }
            ValueType::SparseTensor { elem, shape } => {
                write!(f, "sparse {elem}")?;
                dims(f, shape)
            }
            ValueType::Sequence(of) => write!(f, "seq({of})"),
            ValueType::Optional(of) => write!(f, "optional({of})"),
            ValueType::Map { key, value } => write!(f, "map({key}, {value})"),
            ValueType::Opaque(domain, name) => write!(f, "opaque({domain}:{name})"),
            ValueType::Unknown => f.write_str("?"),
        }
    }
}

/// One declared dimension.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DimDecl {
    /// A number.
    Fixed(u64),
    /// A symbol: dimensions of one name are equal.
    Named(String),
    /// Anything.
    Unknown,
}

impl fmt::Display for DimDecl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimDecl::Fixed(size) => write!(f, "{size}"),
            DimDecl::Named(name) => f.write_str(name),
            DimDecl::Unknown => f.write_str("?"),
        }
    }
}

/// A constant tensor.
///
/// Elements are dense, row-major, little-endian and packed as [`ElemType::bits`] says: `bytes.len()` is
/// `elem.bytes_of(product of shape)`. Strings are in `strings` and `bytes` is empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorData {
    /// Element type.
    pub elem: ElemType,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements; shared, since weights are large and go through many stages.
    pub bytes: Arc<Vec<u8>>,
    /// The elements of a tensor of strings, else empty.
    pub strings: Vec<Vec<u8>>,
}

impl TensorData {
    /// A tensor of bytes in memory order. `None` if their number does not match the shape, or for strings.
    pub fn new(elem: impl Into<ElemType>, shape: Vec<usize>, bytes: Vec<u8>) -> Option<TensorData> {
        let elem = elem.into();
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        (elem.bytes_of(count)? == bytes.len()).then(|| TensorData {
            elem,
            shape,
            bytes: Arc::new(bytes),
            strings: Vec::new(),
        })
    }

    /// Zeros, or empty strings. `None` if there are too many.
    pub fn blank(elem: ElemType, shape: Vec<usize>) -> Option<TensorData> {
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        if elem == ElemType::String {
            return Some(TensorData::from_strings(shape, vec![Vec::new(); count]));
        }
        let bytes = elem.bytes_of(count)?;
        TensorData::new(elem, shape, vec![0; bytes])
    }

    /// A vector of `i64`.
    pub fn from_i64s(values: &[i64]) -> TensorData {
        Self::of(DType::I64, vec![values.len()], values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A scalar `i64`.
    pub fn scalar_i64(value: i64) -> TensorData {
        Self::of(DType::I64, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// A scalar `bool`.
    pub fn scalar_bool(value: bool) -> TensorData {
        Self::of(DType::Bool, Vec::new(), vec![u8::from(value)])
    }

    /// A vector of `f32`.
    pub fn from_f32s(values: &[f32]) -> TensorData {
        Self::of(DType::F32, vec![values.len()], values.iter().flat_map(|v| v.to_le_bytes()).collect())
    }

    /// A scalar `f32`.
    pub fn scalar_f32(value: f32) -> TensorData {
        Self::of(DType::F32, Vec::new(), value.to_le_bytes().to_vec())
    }

    /// A tensor of strings. The caller vouches for the shape.
    pub fn from_strings(shape: Vec<usize>, strings: Vec<Vec<u8>>) -> TensorData {
        TensorData { elem: ElemType::String, shape, bytes: Arc::new(Vec::new()), strings }
    }

    fn of(dtype: DType, shape: Vec<usize>, bytes: Vec<u8>) -> TensorData {
        TensorData { elem: dtype.into(), shape, bytes: Arc::new(bytes), strings: Vec::new() }
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    /// The type to compute with, if the compiler has it.
    pub fn dtype(&self) -> Option<DType> {
        self.elem.dtype()
    }

    /// The declared type that fits it exactly.
    pub fn value_type(&self) -> ValueType {
        ValueType::fixed(self.elem, &self.shape)
    }

    /// All elements as `i64`, for integer and boolean types; `None` for others and for `u64` beyond `i64`.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        let dtype = self.dtype()?;
        if dtype.is_float() {
            return None;
        }
        self.bytes
            .chunks_exact(dtype.size())
            .map(|raw| {
                let mut wide = [0u8; 8];
                wide[..raw.len()].copy_from_slice(raw);
                let value = u64::from_le_bytes(wide);
                match dtype {
                    DType::I8 => Some(i64::from(value as u8 as i8)),
                    DType::I16 => Some(i64::from(value as u16 as i16)),
                    DType::I32 => Some(i64::from(value as u32 as i32)),
                    DType::I64 => Some(value as i64),
                    _ => i64::try_from(value).ok(),
                }
            })
            .collect()
    }

    /// All elements as `f64`, for floating-point types; `None` for others.
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        let dtype = self.dtype().filter(|d| d.is_float())?;
        let values = self.bytes.chunks_exact(dtype.size()).map(|raw| match (dtype, raw) {
            (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).to_f64(),
            (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).to_f64(),
            (DType::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
            (_, raw) => raw.try_into().map_or(f64::NAN, f64::from_le_bytes),
        });
        Some(values.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_bytes() {
        assert_eq!(TensorData::from_i64s(&[-3, 5]).to_i64s(), Some(vec![-3, 5]));
        let i8s = TensorData::new(DType::I8, vec![3], vec![255, 0, 127]).unwrap();
        assert_eq!(i8s.to_i64s(), Some(vec![-1, 0, 127]));
        let u64s = TensorData::new(DType::U64, vec![1], vec![255; 8]).unwrap();
        assert_eq!(u64s.to_i64s(), None);
        assert_eq!(TensorData::from_f32s(&[0.5, -2.0]).to_f64s(), Some(vec![0.5, -2.0]));
        assert_eq!(TensorData::scalar_f32(1.0).to_i64s(), None);
        let halves = TensorData::new(DType::F16, vec![], half::f16::from_f32(1.5).to_le_bytes().to_vec()).unwrap();
        assert_eq!(halves.to_f64s(), Some(vec![1.5]));
    }

    #[test]
    fn the_number_of_bytes_must_fit_the_shape() {
        assert!(TensorData::new(DType::F32, vec![2], vec![0; 7]).is_none());
        assert!(TensorData::new(DType::F32, vec![usize::MAX, 2], vec![]).is_none());
        assert!(TensorData::new(ElemType::I4, vec![3], vec![0; 2]).is_some());
        assert!(TensorData::new(DType::F32, vec![0, 5], vec![]).is_some());
    }

    #[test]
    fn types_have_a_text_form() {
        let inner = ValueType::Tensor {
            elem: DType::F32.into(),
            shape: Some(vec![DimDecl::Named("batch".into()), DimDecl::Fixed(3), DimDecl::Unknown]),
        };
        let text = ValueType::Optional(Box::new(ValueType::Sequence(Box::new(inner)))).to_string();
        assert_eq!(text, "optional(seq(f32[batch, 3, ?]))");
    }
}
