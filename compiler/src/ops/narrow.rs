//! Element types narrower than a byte's worth of arithmetic: 8-, 6- and 4-bit floats, 4- and 2-bit integers.
//!
//! In memory such an element takes a byte: the code of a float as `u8`, the value of an integer as `u8` or `i8`. The
//! context remembers which tensors hold them ([`Cx::narrow`]). Conversions and quantisation decode and encode, movements
//! carry the bytes along, and every other operator refuses them.

use super::operand::convert;
use super::{Call, Expand};
use crate::dtype::DType;
use crate::graph::ElemType;
use crate::te::{Cx, Expr, Func2, OpError, OpResult, TensorId, expr};

/// Operators that only move elements of their first operand.
const MOVES: &[&str] = &[
    "Identity",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Gather",
    "Expand",
    "Tile",
    "Split",
];

/// Expands an operator that has operands of narrow types.
pub(super) fn expand(cx: &mut Cx, call: &Call, f: Expand) -> OpResult {
    let (known, contrib) = (call.domain.is_empty(), call.domain == "com.microsoft");
    let elems: Vec<ElemType> = call.inputs.iter().flatten().map(|t| elem(cx, *t)).collect();
    match call.op.as_str() {
        "Cast" | "CastLike" | "QuantizeLinear" | "DequantizeLinear" | "Shape" | "Size" if known => return f(cx, call),
        "QuantizeLinear" | "DequantizeLinear" | "GatherBlockQuantized" if contrib => return f(cx, call),
        op if known && MOVES.contains(&op) => {}
        "Concat" if known && elems.windows(2).all(|w| w[0] == w[1]) => {}
        _ => {
            let name = elems.iter().find(|e| e.dtype().is_none()).map_or("", |e| e.name());
            return Err(OpError::Unsupported(format!("element type {name}")));
        }
    }
    let out = f(cx, call)?;
    for t in &out {
        mark(cx, *t, elems[0]);
    }
    Ok(out)
}

/// The element type that a tensor stands for.
pub(super) fn elem(cx: &Cx, t: TensorId) -> ElemType {
    cx.narrow.get(&t).copied().unwrap_or(ElemType::Plain(cx.dtype(t)))
}

/// Notes that a tensor stands for `elem`.
pub(super) fn mark(cx: &mut Cx, t: TensorId, elem: ElemType) {
    if elem.dtype().is_none() {
        cx.narrow.insert(t, elem);
    }
}

/// The type of a `TensorProto.DataType` number, if tensors can have it.
pub(super) fn elem_of_code(code: i64) -> OpResult<ElemType> {
    let elem = i32::try_from(code).ok().and_then(ElemType::from_code);
    let elem = elem.ok_or_else(|| OpError::Invalid(format!("{code} is not an element type")))?;
    match stored(elem) {
        Some(_) => Ok(elem),
        None => Err(OpError::Unsupported(format!("element type {elem}"))),
    }
}

/// The type of the elements in memory.
pub fn stored(elem: ElemType) -> Option<DType> {
    Some(match elem {
        ElemType::Plain(t) => t,
        ElemType::String | ElemType::Complex64 | ElemType::Complex128 => return None,
        ElemType::I4 | ElemType::I2 => DType::I8,
        _ => DType::U8,
    })
}

/// Packed elements of a narrow type, one a byte. `None` if there are too few bytes.
pub fn unpack(elem: ElemType, count: usize, bytes: &[u8]) -> Option<Vec<u8>> {
    let bits = elem.bits().filter(|b| *b <= 8)?;
    let (each, mask) = (8 / bits, (0xffu16 >> (8 - bits)) as u8);
    let signed = stored(elem) == Some(DType::I8);
    (0..count)
        .map(|k| {
            let v = bytes.get(k / each)? >> (k % each * bits) & mask;
            let shift = 8 - bits as u32;
            Some(if signed { (((v << shift) as i8) >> shift) as u8 } else { v })
        })
        .collect()
}

/// Range of an integer type that tensors are quantised to.
pub(super) fn integer_range(elem: ElemType) -> Option<(i64, i64)> {
    Some(match elem {
        ElemType::Plain(DType::U8) => (0, 255),
        ElemType::Plain(DType::I8) => (-128, 127),
        ElemType::Plain(DType::U16) => (0, 65535),
        ElemType::Plain(DType::I16) => (-32768, 32767),
        ElemType::U4 => (0, 15),
        ElemType::I4 => (-8, 7),
        ElemType::U2 => (0, 3),
        ElemType::I2 => (-2, 1),
        _ => return None,
    })
}

/// How conversion to a narrow float treats what does not fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    /// What is too large becomes the largest number; otherwise infinity or NaN.
    pub(super) saturate: bool,
    /// Direction for powers of two.
    pub(super) mode: PowerMode,
}

/// Direction of rounding to a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PowerMode {
    Up,
    Down,
    /// Ties go up.
    Nearest,
}

impl Rounding {
    pub(super) fn of(call: &Call) -> OpResult<Rounding> {
        let mode = match call.string("round_mode", "up".into())?.as_str() {
            "up" => PowerMode::Up,
            "down" => PowerMode::Down,
            "nearest" => PowerMode::Nearest,
            other => return Err(OpError::Invalid(format!("round_mode = '{other}', up, down or nearest is needed"))),
        };
        Ok(Rounding { saturate: call.int("saturate", 1)? != 0, mode })
    }
}

/// A float with a sign, exponent and mantissa in a byte's low bits.
struct Format {
    /// The sign's bit number.
    sign: u32,
    /// Bits of the mantissa.
    mantissa: u32,
    /// What is added to exponents.
    bias: u32,
    /// Code of the largest number.
    max: u32,
    /// Code of infinity.
    inf: Option<u32>,
    /// Code of a positive NaN; that of negative zero where zero has no sign.
    nan: Option<u32>,
}

impl Format {
    fn of(elem: ElemType) -> Option<Format> {
        let f = |sign, mantissa, bias, max, inf, nan| Some(Format { sign, mantissa, bias, max, inf, nan });
        match elem {
            ElemType::F8E4M3FN => f(7, 3, 7, 0x7e, None, Some(0x7f)),
            ElemType::F8E4M3FNUZ => f(7, 3, 8, 0x7f, None, Some(0x80)),
            ElemType::F8E5M2 => f(7, 2, 15, 0x7b, Some(0x7c), Some(0x7f)),
            ElemType::F8E5M2FNUZ => f(7, 2, 16, 0x7f, None, Some(0x80)),
            ElemType::F6E2M3 => f(5, 3, 1, 0x1f, None, None),
            ElemType::F6E3M2 => f(5, 2, 3, 0x1f, None, None),
            ElemType::F4E2M1 => f(3, 1, 1, 0x07, None, None),
            _ => None,
        }
    }

    fn unsigned_zero(&self) -> bool {
        self.nan == Some(1 << self.sign)
    }
}

fn word(v: u32) -> Expr {
    expr::imm(DType::U32, u64::from(v))
}

fn shl(e: Expr, by: u32) -> Expr {
    expr::bin(Func2::Shl, e, word(by))
}

fn shr(e: Expr, by: u32) -> Expr {
    expr::bin(Func2::Shr, e, word(by))
}

fn float(v: f64) -> Expr {
    expr::constant_f64(DType::F32, v)
}

/// The value of an element that is stored as `e`: `f32` for floats, the stored integer for integers.
pub(super) fn decode(elem: ElemType, e: Expr) -> Expr {
    if elem == ElemType::F8E8M0 {
        let c = e.to(DType::U32);
        // The least power of two is subnormal.
        let bits = c.eq_(word(0)).then(word(1 << 22), shl(c, 23));
        return c.eq_(word(255)).then(float(f64::NAN), expr::bitcast(DType::F32, bits));
    }
    let Some(f) = Format::of(elem) else { return e };
    let c = e.to(DType::U32);
    let magnitude = c & word((1 << f.sign) - 1);
    let sign = shl(c & word(1 << f.sign), 31 - f.sign);
    let normal = shl(magnitude, 23 - f.mantissa) + word((127 - f.bias) << 23);
    let unit = 2f64.powi(1 - f.bias as i32 - f.mantissa as i32);
    let subnormal = expr::bitcast(DType::U32, magnitude.to(DType::I32).to(DType::F32) * float(unit));
    let bits = magnitude.lt_(word(1 << f.mantissa)).then(subnormal, normal) | sign;
    let mut v = expr::bitcast(DType::F32, bits);
    if let Some(inf) = f.inf {
        let infinite = expr::bitcast(DType::F32, word(0x7f80_0000) | sign);
        v = magnitude.gt_(word(inf)).then(float(f64::NAN), magnitude.eq_(word(inf)).then(infinite, v));
    } else if let Some(nan) = f.nan {
        let code = if f.unsigned_zero() { c } else { magnitude };
        v = code.eq_(word(nan)).then(float(f64::NAN), v);
    }
    v
}

/// The stored form of a number of any type.
pub(super) fn encode(elem: ElemType, e: Expr, rounding: Rounding) -> Expr {
    if let ElemType::Plain(t) = elem {
        return convert(e, t);
    }
    if let Some(bits) = elem.bits().filter(|_| integer_range(elem).is_some()) {
        // As between wider integers: the low bits stay.
        let v = e.to(DType::I32);
        let by = expr::constant_i64(DType::I32, 32 - bits as i64);
        let t = if integer_range(elem).is_some_and(|(lo, _)| lo < 0) { DType::I32 } else { DType::U32 };
        let high = expr::bin(Func2::Shl, v, by).to(t);
        let low = expr::bin(Func2::Shr, high, by.to(t));
        return low.to(if t == DType::I32 { DType::I8 } else { DType::U8 });
    }
    let x = e.to(DType::F32);
    let bits = expr::bitcast(DType::U32, x);
    let magnitude = bits & word(0x7fff_ffff);
    let nan = magnitude.gt_(word(0x7f80_0000));
    let code = match Format::of(elem) {
        Some(f) => encode_float(&f, x, bits, magnitude, nan, rounding.saturate),
        None => encode_power(magnitude, nan, rounding),
    };
    code.to(DType::U8)
}

fn encode_float(f: &Format, x: Expr, bits: Expr, magnitude: Expr, nan: Expr, saturate: bool) -> Expr {
    let sign = shl(shr(bits, 31), f.sign);
    let cut = 23 - f.mantissa;
    // To nearest, ties to even: just below half of the last place, and one more where the last place is odd.
    let odd = shr(magnitude, cut) & word(1);
    let normal = shr(magnitude + word((1 << (cut - 1)) - 1) + odd, cut) - word((127 - f.bias) << f.mantissa);
    let places = 2f64.powi(f.bias as i32 - 1 + f.mantissa as i32);
    let subnormal = (x.abs() * float(places)).round().to(DType::I32).to(DType::U32);
    let code = magnitude.lt_(word((128 - f.bias) << 23)).then(subnormal, normal);
    let beyond = match (saturate, f.inf, f.nan) {
        (false, Some(inf), _) => inf,
        (false, None, Some(nan)) => nan,
        _ => f.max,
    };
    let code = code.gt_(word(f.max)).then(word(beyond), code);
    let signed = code | sign;
    let signed =
        if f.unsigned_zero() { (code.eq_(word(0)) | code.eq_(word(1 << f.sign))).then(code, signed) } else { signed };
    // Formats without NaN: negative zero, which no other number but it becomes.
    let invalid = match f.nan {
        Some(n) if f.unsigned_zero() => word(n),
        Some(n) => word(n) | sign,
        None => word(1 << f.sign),
    };
    nan.then(invalid, signed)
}

/// To a power of two; the sign is dropped.
fn encode_power(magnitude: Expr, nan: Expr, rounding: Rounding) -> Expr {
    let exponent = shr(magnitude, 23);
    let fraction = magnitude & word(0x007f_ffff);
    // Below the least normal number the power is half of it, whose fraction is the upper bit.
    let tiny = exponent.eq_(word(0));
    let up = match rounding.mode {
        PowerMode::Down => expr::boolean(false),
        PowerMode::Up => tiny.then(fraction.gt_(word(1 << 22)), fraction.gt_(word(0))),
        PowerMode::Nearest => tiny.then(fraction.ge_(word(3 << 21)), fraction.ge_(word(1 << 22))),
    };
    let code = exponent + up.then(word(1), word(0));
    let code = if rounding.saturate {
        code.min_(word(254))
    } else {
        magnitude.lt_(word(1 << 22)).then(word(255), code.min_(word(255)))
    };
    nan.then(word(255), code)
}
