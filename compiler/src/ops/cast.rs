//! Conversions between element types.

use super::narrow::{Rounding, decode, elem, elem_of_code, encode, mark, stored};
use super::operand::{Operand, onnx_type};
use super::strings::Text;
use super::text_numbers;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::te::{Cx, Expr, Func2, OpError, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] =
    &[("", "Cast", cast), ("", "CastLike", cast_like), ("", "BitCast", bit_cast)];

fn cast(cx: &mut Cx, call: &Call) -> OpResult {
    // Until version 6 the type was given by name.
    let to = if call.version < 6 {
        match call.string("to", String::new())?.as_str() {
            "STRING" => ElemType::String,
            name => ElemType::Plain(named_type(name)?),
        }
    } else {
        match call.opt_int("to")? {
            None => return Err(OpError::Invalid("attribute 'to' is missing".into())),
            Some(code) if code == i64::from(ElemType::String.code()) => ElemType::String,
            Some(code) => elem_of_code(code)?,
        }
    };
    to_type(cx, call, to)
}

fn cast_like(cx: &mut Cx, call: &Call) -> OpResult {
    let to = elem(cx, call.input(1)?);
    to_type(cx, call, to)
}

/// Float to integer truncates and saturates, NaN gives 0; integer to narrower integer wraps.
fn to_type(cx: &mut Cx, call: &Call, to: ElemType) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let from = elem(cx, x.id);
    if from == to {
        return Ok(vec![x.id]);
    }
    match (from, to) {
        (ElemType::String, ElemType::Plain(to)) => {
            let text = Text::of(cx, x.id)?;
            return Ok(vec![text_numbers::parsed(cx, &text, to)?]);
        }
        (ElemType::Plain(_), ElemType::String) => return Ok(vec![text_numbers::written(cx, &x)?]),
        _ => {}
    }
    let rounding = Rounding::of(call)?;
    let dtype = stored(to).ok_or_else(|| OpError::Unsupported(format!("element type {to}")))?;
    let y = cx.map(dtype, x.shape.clone(), |i| encode(to, decode(from, x.at(i)), rounding));
    mark(cx, y, to);
    Ok(vec![y])
}

fn named_type(name: &str) -> OpResult<DType> {
    Ok(match name {
        "FLOAT" => DType::F32,
        "UINT8" => DType::U8,
        "INT8" => DType::I8,
        "UINT16" => DType::U16,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "BOOL" => DType::Bool,
        "FLOAT16" => DType::F16,
        "DOUBLE" => DType::F64,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        other => return Err(OpError::Invalid(format!("to = '{other}' is not an element type"))),
    })
}

fn bit_cast(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    let to = onnx_type(call.opt_int("to")?.ok_or_else(|| OpError::Invalid("attribute 'to' is missing".into()))?)?;
    if to.size() != x.dtype.size() {
        return Err(OpError::Invalid(format!("{} and {to} differ in size", x.dtype)));
    }
    if x.dtype == to {
        return Ok(vec![x.id]);
    }
    Ok(vec![cx.map(to, x.shape.clone(), |i| from_bits(to, to_bits(x.dtype, x.at(i))))])
}

/// The bits of a value of stored type `from` as an unsigned integer of that size.
fn to_bits(from: DType, e: Expr) -> Expr {
    match from {
        DType::F16 => half_bits(e).to(DType::U16),
        DType::BF16 => shift(expr::bitcast(DType::U32, e), Func2::Shr, 16).to(DType::U16),
        DType::Bool => e.to(DType::U8),
        _ => expr::bitcast(unsigned(from), e),
    }
}

/// The value of stored type `to` with these bits.
fn from_bits(to: DType, bits: Expr) -> Expr {
    match to {
        DType::F16 => half_value(bits.to(DType::U32)),
        DType::BF16 => expr::bitcast(DType::F32, shift(bits.to(DType::U32), Func2::Shl, 16)),
        DType::Bool => bits.to(DType::Bool),
        _ => expr::bitcast(to, bits),
    }
}

fn unsigned(t: DType) -> DType {
    match t.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

fn word(v: u32) -> Expr {
    expr::imm(DType::U32, u64::from(v))
}

fn shift(e: Expr, f: Func2, by: u32) -> Expr {
    expr::bin(f, e, word(by))
}

/// Bits of the binary16 number that `v` (`f32`) holds exactly, as `u32`.
fn half_bits(v: Expr) -> Expr {
    let bits = expr::bitcast(DType::U32, v);
    let sign = shift(bits, Func2::Shr, 16) & word(0x8000);
    let rest = bits & word(0x7fff_ffff);
    // The exponent's bias falls from 127 to 15; of infinities and NaN all exponent bits stay set.
    let normal = shift(rest - word(112 << 23), Func2::Shr, 13);
    let special = shift(rest, Func2::Shr, 13) & word(0x3ff) | word(0x7c00);
    let subnormal = (v.abs() * v.num(f64::from(1 << 24))).to(DType::U32);
    let large = rest.ge_(word(0x7f80_0000)).then(special, normal);
    sign | rest.lt_(word(113 << 23)).then(subnormal, large)
}

/// The binary16 number with these bits (`u32`), as `f32`.
fn half_value(bits: Expr) -> Expr {
    let sign = shift(bits & word(0x8000), Func2::Shl, 16);
    let rest = bits & word(0x7fff);
    let scaled = shift(rest, Func2::Shl, 13);
    let bias = rest.ge_(word(0x7c00)).then(word(224 << 23), word(112 << 23));
    let small = rest.to(DType::F32) * expr::constant_f64(DType::F32, 1.0 / f64::from(1 << 24));
    let magnitude = rest.lt_(word(0x400)).then(expr::bitcast(DType::U32, small), scaled + bias);
    expr::bitcast(DType::F32, magnitude | sign)
}
