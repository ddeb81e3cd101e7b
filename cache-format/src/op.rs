//! The operations of the plan machine: their numbers in the file and what they compute.

/// Register arithmetic with two operands. All operands and results are `i64`.
///
/// Every operation is total except for overflow, which ends the run with an error: a size that does not fit is never
/// silently wrong. Division and remainder by zero give 0. Comparisons give 1 or 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u16)]
pub enum BinOp {
    /// Sum.
    Add = 0,
    /// Difference.
    Sub = 1,
    /// Product.
    Mul = 2,
    /// Quotient rounded down.
    FloorDiv = 3,
    /// Quotient rounded up.
    CeilDiv = 4,
    /// Quotient rounded toward zero.
    TruncDiv = 5,
    /// Remainder of `FloorDiv`: has the sign of the divisor.
    Mod = 6,
    /// Remainder of `TruncDiv`: has the sign of the dividend.
    Rem = 7,
    /// Smaller.
    Min = 8,
    /// Larger.
    Max = 9,
    /// Bitwise and; logical and of 0/1 values.
    And = 10,
    /// Bitwise or; logical or of 0/1 values.
    Or = 11,
    /// Bitwise exclusive or.
    Xor = 12,
    /// Equal.
    Eq = 13,
    /// Not equal.
    Ne = 14,
    /// Less.
    Lt = 15,
    /// Less or equal.
    Le = 16,
}

impl BinOp {
    /// All operations, in the order of their numbers.
    pub const ALL: [BinOp; 17] = [
        BinOp::Add,
        BinOp::Sub,
        BinOp::Mul,
        BinOp::FloorDiv,
        BinOp::CeilDiv,
        BinOp::TruncDiv,
        BinOp::Mod,
        BinOp::Rem,
        BinOp::Min,
        BinOp::Max,
        BinOp::And,
        BinOp::Or,
        BinOp::Xor,
        BinOp::Eq,
        BinOp::Ne,
        BinOp::Lt,
        BinOp::Le,
    ];

    /// The operation with this number.
    pub fn from_code(code: u16) -> Option<BinOp> {
        BinOp::ALL.get(usize::from(code)).copied()
    }

    /// The name in the plan's text form.
    pub const fn name(self) -> &'static str {
        match self {
            BinOp::Add => "add",
            BinOp::Sub => "sub",
            BinOp::Mul => "mul",
            BinOp::FloorDiv => "floordiv",
            BinOp::CeilDiv => "ceildiv",
            BinOp::TruncDiv => "truncdiv",
            BinOp::Mod => "mod",
            BinOp::Rem => "rem",
            BinOp::Min => "min",
            BinOp::Max => "max",
            BinOp::And => "and",
            BinOp::Or => "or",
            BinOp::Xor => "xor",
            BinOp::Eq => "eq",
            BinOp::Ne => "ne",
            BinOp::Lt => "lt",
            BinOp::Le => "le",
        }
    }

    /// The result, or nothing on overflow.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        Some(match self {
            BinOp::Add => a.checked_add(b)?,
            BinOp::Sub => a.checked_sub(b)?,
            BinOp::Mul => a.checked_mul(b)?,
            BinOp::FloorDiv | BinOp::CeilDiv | BinOp::TruncDiv | BinOp::Mod | BinOp::Rem => {
                if b == 0 {
                    return Some(0);
                }
                // Of MIN by -1 the quotient does not fit; the remainder is 0 even so.
                let q = a.wrapping_div(b);
                let r = a.wrapping_sub(q.wrapping_mul(b));
                let inexact = r != 0;
                let negative = (a < 0) != (b < 0);
                match self {
                    BinOp::Rem => r,
                    BinOp::Mod if inexact && negative => r + b,
                    BinOp::Mod => r,
                    _ if q < 0 && !negative => return None,
                    BinOp::FloorDiv if inexact && negative => q - 1,
                    BinOp::CeilDiv if inexact && !negative => q + 1,
                    _ => q,
                }
            }
            BinOp::Min => a.min(b),
            BinOp::Max => a.max(b),
            BinOp::And => a & b,
            BinOp::Or => a | b,
            BinOp::Xor => a ^ b,
            BinOp::Eq => i64::from(a == b),
            BinOp::Ne => i64::from(a != b),
            BinOp::Lt => i64::from(a < b),
            BinOp::Le => i64::from(a <= b),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_the_operation() {
        for (i, op) in BinOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, i);
            assert_eq!(BinOp::from_code(op as u16), Some(op));
        }
        assert_eq!(BinOp::from_code(BinOp::ALL.len() as u16), None);
    }

    #[test]
    fn divisions_round_as_named() {
        let table =
            [(7, 2, 3, 4, 3, 1, 1), (-7, 2, -4, -3, -3, 1, -1), (7, -2, -4, -3, -3, -1, 1), (-7, -2, 3, 4, 3, -1, -1)];
        for (a, b, floor, ceil, trunc, modulo, rem) in table {
            assert_eq!(BinOp::FloorDiv.apply(a, b), Some(floor));
            assert_eq!(BinOp::CeilDiv.apply(a, b), Some(ceil));
            assert_eq!(BinOp::TruncDiv.apply(a, b), Some(trunc));
            assert_eq!(BinOp::Mod.apply(a, b), Some(modulo));
            assert_eq!(BinOp::Rem.apply(a, b), Some(rem));
        }
        for op in [BinOp::FloorDiv, BinOp::CeilDiv, BinOp::TruncDiv, BinOp::Mod, BinOp::Rem] {
            assert_eq!(op.apply(5, 0), Some(0));
            assert_eq!(op.apply(6, 3), Some(if matches!(op, BinOp::Mod | BinOp::Rem) { 0 } else { 2 }));
        }
    }

    #[test]
    fn overflow_is_seen_and_extremes_do_not_panic() {
        assert_eq!(BinOp::Add.apply(i64::MAX, 1), None);
        assert_eq!(BinOp::Sub.apply(i64::MIN, 1), None);
        assert_eq!(BinOp::Mul.apply(i64::MAX, 2), None);
        assert_eq!(BinOp::FloorDiv.apply(i64::MIN, -1), None);
        assert_eq!(BinOp::Mod.apply(i64::MIN, -1), Some(0));
        let edges = [i64::MIN, i64::MIN + 1, -2, -1, 0, 1, 2, i64::MAX - 1, i64::MAX];
        for op in BinOp::ALL {
            for a in edges {
                for b in edges {
                    let _ = op.apply(a, b);
                }
            }
        }
    }
}
