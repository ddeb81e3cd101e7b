//! Element types of the format, those included that the compiler cannot compute with.

use std::fmt;

use crate::dtype::DType;

/// An element type as ONNX knows it. What [`DType`] covers is [`ElemType::Plain`]; the others are carried through, so
/// that a model loads and the stage that cannot do without them refuses by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ElemType {
    /// A type that the compiler computes with.
    Plain(DType),
    /// Byte strings, UTF-8 by convention.
    String,
    /// Two binary32 numbers, real then imaginary.
    Complex64,
    /// Two binary64 numbers, real then imaginary.
    Complex128,
    /// 8-bit float, 4 exponent bits, finite and NaN.
    F8E4M3FN,
    /// 8-bit float, 4 exponent bits, finite and NaN, no negative zero.
    F8E4M3FNUZ,
    /// 8-bit float, 5 exponent bits, IEEE rules.
    F8E5M2,
    /// 8-bit float, 5 exponent bits, finite and NaN, no negative zero.
    F8E5M2FNUZ,
    /// 8-bit power of two.
    F8E8M0,
    /// 6-bit float, 2 exponent bits.
    F6E2M3,
    /// 6-bit float, 3 exponent bits.
    F6E3M2,
    /// 4-bit float; two in a byte, the first in the low bits.
    F4E2M1,
    /// Unsigned 4-bit integer; two in a byte, the first in the low bits.
    U4,
    /// Signed 4-bit integer; two in a byte, the first in the low bits.
    I4,
    /// Unsigned 2-bit integer; four in a byte, the first in the low bits.
    U2,
    /// Signed 2-bit integer; four in a byte, the first in the low bits.
    I2,
}

/// Every type with its number in `TensorProto.DataType` and its name there in lower case.
const TABLE: &[(ElemType, i32, &str)] = &[
    (ElemType::Plain(DType::F32), 1, "float"),
    (ElemType::Plain(DType::U8), 2, "uint8"),
    (ElemType::Plain(DType::I8), 3, "int8"),
    (ElemType::Plain(DType::U16), 4, "uint16"),
    (ElemType::Plain(DType::I16), 5, "int16"),
    (ElemType::Plain(DType::I32), 6, "int32"),
    (ElemType::Plain(DType::I64), 7, "int64"),
    (ElemType::String, 8, "string"),
    (ElemType::Plain(DType::Bool), 9, "bool"),
    (ElemType::Plain(DType::F16), 10, "float16"),
    (ElemType::Plain(DType::F64), 11, "double"),
    (ElemType::Plain(DType::U32), 12, "uint32"),
    (ElemType::Plain(DType::U64), 13, "uint64"),
    (ElemType::Complex64, 14, "complex64"),
    (ElemType::Complex128, 15, "complex128"),
    (ElemType::Plain(DType::BF16), 16, "bfloat16"),
    (ElemType::F8E4M3FN, 17, "float8e4m3fn"),
    (ElemType::F8E4M3FNUZ, 18, "float8e4m3fnuz"),
    (ElemType::F8E5M2, 19, "float8e5m2"),
    (ElemType::F8E5M2FNUZ, 20, "float8e5m2fnuz"),
    (ElemType::U4, 21, "uint4"),
    (ElemType::I4, 22, "int4"),
    (ElemType::F4E2M1, 23, "float4e2m1"),
    (ElemType::F8E8M0, 24, "float8e8m0"),
    (ElemType::U2, 25, "uint2"),
    (ElemType::I2, 26, "int2"),
    (ElemType::F6E2M3, 27, "float6e2m3"),
    (ElemType::F6E3M2, 28, "float6e3m2"),
];

impl ElemType {
    /// The type of a number in `TensorProto.DataType`; `None` for 0 (undefined) and for numbers the format lacks.
    pub fn from_code(code: i32) -> Option<ElemType> {
        TABLE.iter().find(|(_, c, _)| *c == code).map(|(elem, _, _)| *elem)
    }

    fn row(self) -> &'static (ElemType, i32, &'static str) {
        // The table has a row for every variant, which a test proves.
        TABLE.iter().find(|(elem, _, _)| *elem == self).unwrap_or(&TABLE[0])
    }

    /// The number in `TensorProto.DataType`.
    pub fn code(self) -> i32 {
        self.row().1
    }

    /// The name that ONNX gives the type, in lower case: `float`, `int64`, `float8e4m3fn`.
    pub fn onnx_name(self) -> &'static str {
        self.row().2
    }

    /// The short name of text forms: `f32`, `i64`; ONNX's name for types the compiler cannot compute with.
    pub fn name(self) -> &'static str {
        match self {
            ElemType::Plain(dtype) => dtype.name(),
            other => other.onnx_name(),
        }
    }

    /// The type to compute with, if the compiler has it.
    pub fn dtype(self) -> Option<DType> {
        match self {
            ElemType::Plain(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// Bits of one element as `raw_data` stores it; `None` for strings. Six-bit floats take a whole byte there.
    pub fn bits(self) -> Option<usize> {
        Some(match self {
            ElemType::Plain(dtype) => dtype.size() * 8,
            ElemType::String => return None,
            ElemType::Complex64 => 64,
            ElemType::Complex128 => 128,
            ElemType::F8E4M3FN
            | ElemType::F8E4M3FNUZ
            | ElemType::F8E5M2
            | ElemType::F8E5M2FNUZ
            | ElemType::F8E8M0
            | ElemType::F6E2M3
            | ElemType::F6E3M2 => 8,
            ElemType::F4E2M1 | ElemType::U4 | ElemType::I4 => 4,
            ElemType::U2 | ElemType::I2 => 2,
        })
    }

    /// Bytes of `count` packed elements, the last byte filled up; `None` for strings or if the number does not fit.
    pub fn bytes_of(self, count: usize) -> Option<usize> {
        let bits = self.bits()?;
        if bits >= 8 { count.checked_mul(bits / 8) } else { Some(count.div_ceil(8 / bits)) }
    }
}

impl From<DType> for ElemType {
    fn from(dtype: DType) -> Self {
        ElemType::Plain(dtype)
    }
}

impl fmt::Display for ElemType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_cover_the_format_without_gaps() {
        for code in 1..=28 {
            let elem = ElemType::from_code(code).unwrap();
            assert_eq!(elem.code(), code);
        }
        for code in [-1, 0, 29, i32::MAX] {
            assert_eq!(ElemType::from_code(code), None);
        }
        for dtype in DType::ALL {
            assert_eq!(ElemType::from_code(ElemType::Plain(dtype).code()).unwrap().dtype(), Some(dtype));
        }
    }

    #[test]
    fn packed_sizes_round_up() {
        assert_eq!(ElemType::I4.bytes_of(5), Some(3));
        assert_eq!(ElemType::U2.bytes_of(5), Some(2));
        assert_eq!(ElemType::Plain(DType::F64).bytes_of(3), Some(24));
        assert_eq!(ElemType::Plain(DType::F64).bytes_of(usize::MAX / 2), None);
        assert_eq!(ElemType::String.bytes_of(3), None);
    }
}
