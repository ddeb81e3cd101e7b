//! The text form of kernels: [`Kernel`](super::ir::Kernel) implements `Display`, and [`parse`] reads it back.
//!
//! ```text
//! kernel "scale" tiled {
//!   b0: read f32
//!   b1: write f16
//!   scalars 1
//!   v0: f32
//!   %0: i64 = tile.lo
//!   %1: i64 = tile.hi
//!   %2: f32x8 = const 0.5
//!   for %3 in %0..%1 step 8 {
//!     %4: f32x8 = load b0[%3 + 16]
//!     %5: f32x8 = mul %4, %2
//!     store b1[%3] = %5
//!   }
//! }
//! ```
//!
//! A load, constant, splat or iota has as many lanes as its type says; a cast or bitcast goes to the element type of the
//! result, or to the half type that is named. Floats are written with as many digits as tell them apart; NaNs as
//! `nan:` and their bits. `//` starts a comment.

mod lex;
mod parse;
mod print;
#[cfg(test)]
mod tests;

pub use parse::parse;

use super::ir::{BinOp, Cmp, Dot, Horizontal, UnOp};

/// A syntax error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// What was expected or is wrong.
    pub reason: String,
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for SyntaxError {}

const UN_OPS: [(UnOp, &str); 9] = [
    (UnOp::Neg, "neg"),
    (UnOp::Abs, "abs"),
    (UnOp::Not, "not"),
    (UnOp::Sqrt, "sqrt"),
    (UnOp::Floor, "floor"),
    (UnOp::Ceil, "ceil"),
    (UnOp::Trunc, "trunc"),
    (UnOp::Round, "round"),
    (UnOp::Popcnt, "popcnt"),
];

const BIN_OPS: [(BinOp, &str); 12] = [
    (BinOp::Add, "add"),
    (BinOp::Sub, "sub"),
    (BinOp::Mul, "mul"),
    (BinOp::Div, "div"),
    (BinOp::Rem, "rem"),
    (BinOp::Min, "min"),
    (BinOp::Max, "max"),
    (BinOp::And, "and"),
    (BinOp::Or, "or"),
    (BinOp::Xor, "xor"),
    (BinOp::Shl, "shl"),
    (BinOp::Shr, "shr"),
];

const CMPS: [(Cmp, &str); 6] =
    [(Cmp::Eq, "eq"), (Cmp::Ne, "ne"), (Cmp::Lt, "lt"), (Cmp::Le, "le"), (Cmp::Gt, "gt"), (Cmp::Ge, "ge")];

const HORIZONTALS: [(Horizontal, &str); 4] =
    [(Horizontal::Add, "hadd"), (Horizontal::Mul, "hmul"), (Horizontal::Min, "hmin"), (Horizontal::Max, "hmax")];

const DOTS: [(Dot, &str); 2] = [(Dot::Bytes, "dot.bytes"), (Dot::Words, "dot.words")];

fn word_of<T: Copy + PartialEq>(table: &[(T, &'static str)], op: T) -> &'static str {
    table.iter().find(|(entry, _)| *entry == op).map_or("?", |(_, word)| word)
}

fn op_of<T: Copy>(table: &[(T, &'static str)], word: &str) -> Option<T> {
    table.iter().find(|(_, entry)| *entry == word).map(|(op, _)| *op)
}

/// Operations of one operand, with their words.
pub fn un_ops() -> [(UnOp, &'static str); 9] {
    UN_OPS
}

/// Operations of two operands, with their words.
pub fn bin_ops() -> [(BinOp, &'static str); 12] {
    BIN_OPS
}
