//! Constants and type names as C text.

use crate::dtype::DType;

/// The C type of a scalar register.
pub(super) fn scalar_type(elem: DType) -> &'static str {
    match elem {
        DType::Bool | DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// The unsigned type in which integers of a type are computed: arithmetic wraps in it, and it is not promoted to `int`.
pub(super) fn modular_type(elem: DType) -> &'static str {
    if elem.size() == 8 { "uint64_t" } else { "uint32_t" }
}

/// A constant as an expression of its register's type.
pub(super) fn literal(elem: DType, bits: u64) -> String {
    match elem {
        DType::Bool => bits.to_string(),
        DType::I8 => signed((bits as i8).into()),
        DType::I16 => signed((bits as i16).into()),
        DType::I32 => signed((bits as i32).into()),
        DType::I64 => signed(bits as i64),
        DType::U8 | DType::U16 | DType::U32 => format!("{bits}u"),
        DType::U64 => format!("UINT64_C({bits})"),
        DType::F32 | DType::F16 | DType::BF16 => {
            let value = f32::from_bits(bits as u32);
            if value.is_finite() { negated(format!("{:?}f", value)) } else { format!("gm_f32_of_bits({bits:#x}u)") }
        }
        DType::F64 => {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                negated(format!("{value:?}"))
            } else {
                format!("gm_f64_of_bits(UINT64_C({bits:#x}))")
            }
        }
    }
}

/// A signed integer of the least type that holds it.
pub(super) fn signed(value: i64) -> String {
    match value {
        i64::MIN => "(-INT64_C(9223372036854775807) - 1)".to_owned(),
        // The number without its sign is no `int`.
        -2147483648 => "(-2147483647 - 1)".to_owned(),
        -2147483647..=2147483647 => negated(value.to_string()),
        value if value < 0 => format!("(-INT64_C({}))", value.unsigned_abs()),
        value => format!("INT64_C({value})"),
    }
}

/// The magnitude of an integer.
pub(super) fn unsigned(value: i64) -> String {
    let value = value.unsigned_abs();
    if value <= 0x7fff_ffff { value.to_string() } else { format!("INT64_C({value})") }
}

/// Parentheses around what begins with a sign.
fn negated(text: String) -> String {
    if text.starts_with('-') { format!("({text})") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_expressions_of_their_type() {
        let cases = [
            (DType::I8, 0x80, "(-128)"),
            (DType::U8, 255, "255u"),
            (DType::I32, 0x8000_0000, "(-2147483647 - 1)"),
            (DType::I64, 5, "5"),
            (DType::I64, 1 << 40, "INT64_C(1099511627776)"),
            (DType::I64, -3_000_000_000i64 as u64, "(-INT64_C(3000000000))"),
            (DType::I64, 1 << 63, "(-INT64_C(9223372036854775807) - 1)"),
            (DType::U64, u64::MAX, "UINT64_C(18446744073709551615)"),
            (DType::F32, 0x3f80_0000, "1.0f"),
            (DType::F32, 0x8000_0000, "(-0.0f)"),
            (DType::F32, 1, "1e-45f"),
            (DType::F32, 0x7f80_0000, "gm_f32_of_bits(0x7f800000u)"),
            (DType::F64, 0x3fb9_9999_9999_999a, "0.1"),
        ];
        for (elem, bits, text) in cases {
            assert_eq!(literal(elem, bits), text);
        }
    }
}
