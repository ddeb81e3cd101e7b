//! Functions that kernels call: what C has no operator for, or one that is undefined for some operands.
//!
//! A helper is written once, when it is first asked for, after the helpers that it calls itself. All are static: several
//! models can be linked into one program.

use super::literal::{literal, modular_type, scalar_type, signed};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, UnOp};
use std::collections::BTreeSet;

/// What every file begins with.
const BASE: &str = r#"#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "results are defined to the bit: compile without -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

#if defined(__GNUC__)
#define GM_INLINE static inline __attribute__((always_inline))
#define GM_ALIAS __attribute__((may_alias))
#define GM_VECTORS 1
#define gm_copy __builtin_memcpy
#else
#define GM_INLINE static inline
#define GM_ALIAS
#define GM_VECTORS 0
#define gm_copy memcpy
#endif

#if defined(__GNUC__) && (defined(__FP_FAST_FMAF) || (defined(__ARM_FEATURE_FMA) && (__ARM_FP & 4)))
#define GM_FMA 1
#else
#define GM_FMA 0
#endif

#if defined(__GNUC__) && defined(__ARM_NEON) && !defined(__aarch64__)
#define GM_NEON 1
#else
#define GM_NEON 0
#endif

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);

typedef uint8_t gm_bool;
typedef int8_t gm_i8;
typedef int16_t gm_i16 GM_ALIAS;
typedef int32_t gm_i32 GM_ALIAS;
typedef int64_t gm_i64 GM_ALIAS;
typedef uint8_t gm_u8;
typedef uint16_t gm_u16 GM_ALIAS;
typedef uint32_t gm_u32 GM_ALIAS;
typedef uint64_t gm_u64 GM_ALIAS;
typedef uint16_t gm_f16 GM_ALIAS;
typedef uint16_t gm_bf16 GM_ALIAS;
typedef float gm_f32 GM_ALIAS;
typedef double gm_f64 GM_ALIAS;
"#;

/// The helpers of a file.
#[derive(Default, Debug)]
pub struct Helpers {
    known: BTreeSet<String>,
    text: String,
}

impl Helpers {
    /// The beginning of a file: types and helpers.
    pub fn preamble(&self) -> String {
        format!("{BASE}{}", self.text)
    }

    /// Asks for a helper; `make` gives its text.
    pub(super) fn ask(&mut self, name: &str, make: impl FnOnce(&mut Helpers) -> String) {
        if self.known.insert(name.to_owned()) {
            let text = make(self);
            self.text.push('\n');
            self.text += &text;
        }
    }

    /// A helper of one operand, and its name.
    fn unary(&mut self, name: String, to: DType, from: DType, body: impl FnOnce(&mut Helpers) -> String) -> String {
        self.ask(&name, |h| {
            let body = body(h);
            format!("GM_INLINE {} {name}({} x)\n{{\n{body}}}\n", scalar_type(to), scalar_type(from))
        });
        name
    }

    /// A helper of two operands of one type, and its name.
    fn binary(&mut self, name: String, to: DType, elem: DType, body: &str) -> String {
        let (to, from) = (scalar_type(to), scalar_type(elem));
        self.ask(&name, |_| format!("GM_INLINE {to} {name}({from} x, {from} y)\n{{\n{body}}}\n"));
        name
    }

    /// A constant; asks for what not every constant needs.
    pub(super) fn literal(&mut self, elem: DType, bits: u64) -> String {
        let text = literal(elem, bits);
        if text.starts_with("gm_") {
            self.of_bits(elem.compute());
        }
        text
    }

    /// Bits as a float.
    pub(super) fn of_bits(&mut self, elem: DType) -> String {
        let (ty, bits) = (scalar_type(elem), modular_type(elem));
        let name = format!("gm_{elem}_of_bits");
        self.ask(&name, |_| {
            format!(
                "GM_INLINE {ty} {name}({bits} b)\n{{\n    {ty} x;\n    gm_copy(&x, &b, sizeof x);\n    return x;\n}}\n"
            )
        });
        name
    }

    /// A float's bits.
    pub(super) fn bits_of(&mut self, elem: DType) -> String {
        let (ty, bits) = (scalar_type(elem), modular_type(elem));
        let name = format!("gm_bits_of_{elem}");
        self.ask(&name, |_| {
            format!("GM_INLINE {bits} {name}({ty} x)\n{{\n    {bits} b;\n    gm_copy(&b, &x, sizeof b);\n    return b;\n}}\n")
        });
        name
    }

    /// A one-operand operation that takes more than an operator.
    pub(super) fn un(&mut self, op: UnOp, elem: DType) -> String {
        let name = format!("gm_{}_{elem}", word(op));
        match op {
            UnOp::Abs if elem.is_float() => self.float_abs(elem),
            UnOp::Sqrt => self.sqrt(elem),
            UnOp::Floor | UnOp::Ceil | UnOp::Trunc | UnOp::Round => self.rounding(op, elem),
            UnOp::Popcnt => self.unary(name, elem, elem, |_| popcnt(elem)),
            _ => {
                let (ty, u) = (scalar_type(elem), modular_type(elem));
                self.unary(name, elem, elem, |_| format!("    return x < 0 ? ({ty})(0u - ({u})x) : x;\n"))
            }
        }
    }

    /// A two-operand operation that takes more than an operator.
    pub(super) fn bin(&mut self, op: BinOp, elem: DType) -> String {
        if op == BinOp::Rem && elem.is_float() {
            return self.float_rem(elem);
        }
        let name = format!("gm_{}_{elem}", bin_word(op));
        let (ty, u) = (scalar_type(elem), modular_type(elem));
        let bits = 8 * elem.size();
        let body = match op {
            // NaN if one is.
            BinOp::Min if elem.is_float() => "    return x < y || x != x ? x : y;\n".to_owned(),
            BinOp::Max if elem.is_float() => "    return x > y || x != x ? x : y;\n".to_owned(),
            BinOp::Min => "    return x < y ? x : y;\n".to_owned(),
            BinOp::Max => "    return x > y ? x : y;\n".to_owned(),
            BinOp::Div if elem.is_signed() => {
                format!("    return y == 0 ? 0 : y == -1 ? ({ty})(0u - ({u})x) : ({ty})(x / y);\n")
            }
            BinOp::Div => format!("    return y == 0 ? 0 : ({ty})(x / y);\n"),
            BinOp::Rem if elem.is_signed() => format!("    return y == 0 || y == -1 ? 0 : ({ty})(x % y);\n"),
            BinOp::Rem => format!("    return y == 0 ? 0 : ({ty})(x % y);\n"),
            BinOp::Shl => format!("    return ({u})y < {bits}u ? ({ty})(({u})x << y) : 0;\n"),
            BinOp::Shr if elem.is_signed() => {
                format!("    return ({ty})(x >> (({u})y < {bits}u ? y : {}));\n", bits - 1)
            }
            BinOp::Shr => format!("    return y < {bits}u ? ({ty})(x >> y) : 0;\n"),
            _ => "    return x;\n".to_owned(),
        };
        self.binary(name, elem, elem, &body)
    }

    /// A comparison of a type that constants may be out of the range of, of which compilers warn.
    pub(super) fn cmp(&mut self, op: Cmp, elem: DType) -> String {
        let name = format!("gm_{}_{elem}", cmp_word(op));
        let body = format!("    return x {} y;\n", cmp_sign(op));
        self.binary(name, DType::Bool, elem, &body)
    }

    /// A float as an integer: truncated, within the type's range, 0 for NaN.
    pub(super) fn saturate(&mut self, to: DType, from: DType) -> String {
        let ty = scalar_type(to);
        let bits = 8 * to.size() as u32;
        let (least, below, above) = match to.is_signed() {
            true => {
                let least = i64::MIN >> (64 - bits);
                (signed(least), least as f64, (least as f64).abs())
            }
            false => ("0".to_owned(), 0.0, (bits as f64).exp2()),
        };
        let most = literal(to, u64::MAX >> (64 - bits + u32::from(to.is_signed())));
        let number = |x: f64| match from {
            DType::F64 => format!("{x:?}"),
            _ => format!("{:?}f", x as f32),
        };
        let body = format!(
            "    return x >= {} ? {most} : x <= {} ? {least} : x != x ? 0 : ({ty})x;\n",
            number(above),
            number(below)
        );
        self.unary(format!("gm_{to}_of_{from}"), to, from, |_| body)
    }
}

fn popcnt(elem: DType) -> String {
    let ty = scalar_type(elem);
    if elem.size() == 8 {
        return format!(
            "    uint64_t n = (uint64_t)x;\n    n -= n >> 1 & UINT64_C(0x5555555555555555);\n    n = (n & \
             UINT64_C(0x3333333333333333)) + (n >> 2 & UINT64_C(0x3333333333333333));\n    n = (n + (n >> 4)) & \
             UINT64_C(0x0f0f0f0f0f0f0f0f);\n    return ({ty})(n * UINT64_C(0x0101010101010101) >> 56);\n"
        );
    }
    let mask = u32::MAX >> (32 - 8 * elem.size());
    format!(
        "    uint32_t n = (uint32_t)x & {mask:#x}u;\n    n -= n >> 1 & 0x55555555u;\n    n = (n & 0x33333333u) + (n >> 2 & \
         0x33333333u);\n    n = (n + (n >> 4)) & 0x0f0f0f0fu;\n    return ({ty})(n * 0x01010101u >> 24);\n"
    )
}

pub(super) fn word(op: UnOp) -> &'static str {
    match op {
        UnOp::Neg => "neg",
        UnOp::Abs => "abs",
        UnOp::Not => "not",
        UnOp::Sqrt => "sqrt",
        UnOp::Floor => "floor",
        UnOp::Ceil => "ceil",
        UnOp::Trunc => "trunc",
        UnOp::Round => "round",
        UnOp::Popcnt => "popcnt",
    }
}

pub(super) fn bin_word(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "add",
        BinOp::Sub => "sub",
        BinOp::Mul => "mul",
        BinOp::Div => "div",
        BinOp::Rem => "rem",
        BinOp::Min => "min",
        BinOp::Max => "max",
        BinOp::And => "and",
        BinOp::Or => "or",
        BinOp::Xor => "xor",
        BinOp::Shl => "shl",
        BinOp::Shr => "shr",
    }
}

pub(super) fn cmp_word(op: Cmp) -> &'static str {
    match op {
        Cmp::Eq => "eq",
        Cmp::Ne => "ne",
        Cmp::Lt => "lt",
        Cmp::Le => "le",
        Cmp::Gt => "gt",
        Cmp::Ge => "ge",
    }
}

pub(super) fn cmp_sign(op: Cmp) -> &'static str {
    match op {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Lt => "<",
        Cmp::Le => "<=",
        Cmp::Gt => ">",
        Cmp::Ge => ">=",
    }
}
