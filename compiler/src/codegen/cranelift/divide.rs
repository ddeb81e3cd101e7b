//! Integer division: by constants without dividing, else guarded against the two cases that trap.
//!
//! Constants follow "Division by Invariant Integers using Multiplication" (Granlund and Montgomery, 1994): a quotient is
//! the high half of a product with a scaled reciprocal, corrected. All of it is done in 64 bits; narrower types extend.

use super::fx::{Fx, Res, Val, clif_int};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Reg};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    pub(super) fn divide(&mut self, op: BinOp, ra: Reg, rb: Reg) -> Res<Val> {
        let (a, b) = (self.val(ra)?, self.val(rb)?);
        let elem = a.ty.elem;
        let rem = op == BinOp::Rem;
        match self.imm(rb) {
            Some(bits) => {
                let key = (ra.0, bits);
                let mut quotient = self.quotients.get(&key).copied().filter(|_| a.ty.lanes == 1);
                self.each_lane(elem, &[&a], |fx, v| {
                    let q = quotient.take().unwrap_or_else(|| fx.quotient(elem, v[0], bits));
                    if a.ty.lanes == 1 {
                        fx.quotients.insert(key, q);
                    }
                    Ok(if rem { fx.remainder(elem, v[0], bits, q) } else { q })
                })
            }
            None => self.each_lane(elem, &[&a, &b], |fx, v| Ok(fx.divide_any(rem, elem, v[0], v[1]))),
        }
    }

    /// A scalar quotient or remainder with any divisor.
    fn divide_any(&mut self, rem: bool, elem: DType, x: Value, d: Value) -> Value {
        let width = elem.size() as u8;
        let (zero, one) = (self.iconst(width, 0), self.iconst(width, 1));
        let is_zero = self.b.ins().icmp(IntCC::Equal, d, zero);
        let safe = self.b.ins().select(is_zero, one, d);
        if !elem.is_signed() {
            let out = if rem { self.b.ins().urem(x, safe) } else { self.b.ins().udiv(x, safe) };
            return self.b.ins().select(is_zero, zero, out);
        }
        let minus_one = self.iconst(width, u64::MAX);
        let is_minus = self.b.ins().icmp(IntCC::Equal, d, minus_one);
        let safe = self.b.ins().select(is_minus, one, safe);
        if rem {
            // By 1 the remainder is 0: right for divisors 0 and -1 alike.
            return self.b.ins().srem(x, safe);
        }
        let quotient = self.b.ins().sdiv(x, safe);
        let negated = self.b.ins().ineg(x);
        let quotient = self.b.ins().select(is_minus, negated, quotient);
        self.b.ins().select(is_zero, zero, quotient)
    }

    /// A scalar quotient by the constant with these bits.
    fn quotient(&mut self, elem: DType, x: Value, bits: u64) -> Value {
        let width = elem.size() as u8;
        let signed = elem.is_signed();
        match value_of(elem, bits) {
            0 => self.iconst(width, 0),
            1 => x,
            -1 => self.b.ins().ineg(x),
            d if d > 0 && (d as u128).is_power_of_two() => self.by_power(signed, width, x, d.trailing_zeros()),
            d => {
                let (narrow, wide) = (clif_int(width), types::I64);
                let n = match width {
                    8 => x,
                    _ if signed => self.b.ins().sextend(wide, x),
                    _ => self.b.ins().uextend(wide, x),
                };
                // Narrow unsigned values are non-negative in 64 bits, where the signed rule is shorter.
                let q = if width == 8 && !signed { self.by_unsigned(n, d as u64) } else { self.by_signed(n, d as i64) };
                if width == 8 { q } else { self.b.ins().ireduce(narrow, q) }
            }
        }
    }

    /// The scalar remainder of `x` by the constant, given its quotient.
    fn remainder(&mut self, elem: DType, x: Value, bits: u64, quotient: Value) -> Value {
        let width = elem.size() as u8;
        let divisor = value_of(elem, bits);
        if matches!(divisor, -1..=1) {
            return self.iconst(width, 0);
        }
        if !elem.is_signed() && (divisor as u128).is_power_of_two() {
            let mask = self.iconst(width, divisor as u64 - 1);
            return self.b.ins().band(x, mask);
        }
        let divisor = self.iconst(width, bits);
        let product = self.b.ins().imul(quotient, divisor);
        self.b.ins().isub(x, product)
    }

    /// Quotient by `1 << power`, with `power` at least 1.
    fn by_power(&mut self, signed: bool, width: u8, x: Value, power: u32) -> Value {
        let count = self.iconst(4, power as u64);
        if !signed {
            return self.b.ins().ushr(x, count);
        }
        // Negative numbers round toward zero after adding the divisor less one.
        let (top, rest) = (self.iconst(4, 8 * width as u64 - 1), self.iconst(4, 8 * width as u64 - power as u64));
        let sign = self.b.ins().sshr(x, top);
        let bias = self.b.ins().ushr(sign, rest);
        let biased = self.b.ins().iadd(x, bias);
        self.b.ins().sshr(biased, count)
    }

    fn by_signed(&mut self, n: Value, d: i64) -> Value {
        let (factor, shift) = signed_reciprocal(d);
        let multiplier = self.iconst(8, factor as u64);
        let mut q = self.b.ins().smulhi(n, multiplier);
        if d > 0 && factor < 0 {
            q = self.b.ins().iadd(q, n);
        } else if d < 0 && factor > 0 {
            q = self.b.ins().isub(q, n);
        }
        if shift > 0 {
            let shift = self.iconst(4, shift as u64);
            q = self.b.ins().sshr(q, shift);
        }
        let top = self.iconst(4, 63);
        let sign = self.b.ins().ushr(q, top);
        self.b.ins().iadd(q, sign)
    }

    fn by_unsigned(&mut self, n: Value, d: u64) -> Value {
        let (factor, shift) = unsigned_reciprocal(d);
        let multiplier = self.iconst(8, factor as u64);
        let high = self.b.ins().umulhi(n, multiplier);
        if factor >> 64 == 0 {
            let shift = self.iconst(4, shift as u64);
            return self.b.ins().ushr(high, shift);
        }
        // The reciprocal has 65 bits: (n + high) >> shift without losing the carry.
        let (one, shift) = (self.iconst(4, 1), self.iconst(4, shift as u64 - 1));
        let rest = self.b.ins().isub(n, high);
        let half = self.b.ins().ushr(rest, one);
        let sum = self.b.ins().iadd(half, high);
        self.b.ins().ushr(sum, shift)
    }
}

/// The number that a lane's bits stand for.
fn value_of(elem: DType, bits: u64) -> i128 {
    let shift = 64 - 8 * elem.size() as u32;
    if elem.is_signed() { ((bits << shift) as i64 >> shift) as i128 } else { bits as i128 }
}

/// `(m, s)` such that `n / d` is the high half of `n * m` (plus or minus `n` where the sign of `m` is not `d`'s), shifted
/// right by `s`, plus one if negative; for `|d|` at least 2.
fn signed_reciprocal(d: i64) -> (i64, u32) {
    let magnitude = d.unsigned_abs() as u128;
    // The largest |n| whose remainder by d is |d| - 1, for n of d's sign.
    let limit = (1u128 << 63) + (d < 0) as u128;
    let worst = limit - 1 - limit % magnitude;
    // A multiple of d counts as missing a whole d: the product must not be exact, or negative quotients would come out one
    // too high.
    let error = |power: u32| magnitude - (1u128 << power) % magnitude;
    let power = (64u32..127).find(|power| error(*power) * worst < 1u128 << power).unwrap_or(127);
    let factor = ((1u128 << power) + error(power)) / magnitude;
    let factor = factor as u64 as i64;
    (if d < 0 { factor.wrapping_neg() } else { factor }, power - 64)
}

/// `(m, s)` such that `n / d` is `n * m >> (64 + s)`; `m` has up to 65 bits. For `d` that is no power of two.
fn unsigned_reciprocal(d: u64) -> (u128, u32) {
    let d = d as u128;
    let ceil_log = 128 - (d - 1).leading_zeros();
    // Fewer bits often do: the error times 2^64 must stay below 2^power.
    let exact = |power: u32| ceil_error(power, d) <= 1u128 << (power - 64);
    let power = (64..64 + ceil_log).find(|power| exact(*power)).unwrap_or(64 + ceil_log);
    // 2^power / d rounded up; power may be 128, which needs the quotient in two steps.
    let factor = if power < 128 { ((1u128 << power) - 1) / d + 1 } else { (u128::MAX / d) + 1 };
    (factor, power - 64)
}

/// What is missing from `2^power` to the next multiple of `d`.
fn ceil_error(power: u32, d: u128) -> u128 {
    let rest = if power < 128 { (1u128 << power) % d } else { (u128::MAX % d + 1) % d };
    if rest == 0 { 0 } else { d - rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed_quotient(n: i64, d: i64) -> i64 {
        let (factor, shift) = signed_reciprocal(d);
        let mut q = ((n as i128 * factor as i128) >> 64) as i64;
        if d > 0 && factor < 0 {
            q = q.wrapping_add(n);
        } else if d < 0 && factor > 0 {
            q = q.wrapping_sub(n);
        }
        q >>= shift;
        q + ((q as u64) >> 63) as i64
    }

    fn unsigned_quotient(n: u64, d: u64) -> u64 {
        let (factor, shift) = unsigned_reciprocal(d);
        let high = ((n as u128 * (factor as u64) as u128) >> 64) as u64;
        if factor >> 64 == 0 { high >> shift } else { (((n - high) >> 1) + high) >> (shift - 1) }
    }

    fn values() -> Vec<u64> {
        let mut out = vec![0, 1, 2, 3, 5, 6, 7, 9, 10, 12, 25, 100, 125, 625, 641, 1000, 12345, 65537, 6700417];
        for bit in [7, 8, 15, 16, 31, 32, 33, 52, 62, 63] {
            out.extend([(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        }
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for i in 0..200 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            out.push(state >> (i % 60));
        }
        let negated: Vec<u64> = out.iter().map(|v| v.wrapping_neg()).collect();
        out.extend(negated);
        out
    }

    #[test]
    fn reciprocals_give_the_quotients_of_division() {
        let values = values();
        for &d in &values {
            for &n in &values {
                let (sn, sd) = (n as i64, d as i64);
                if !matches!(sd, -1..=1) {
                    assert_eq!(signed_quotient(sn, sd), sn / sd, "{sn} / {sd}");
                }
                if d > 1 && !d.is_power_of_two() {
                    assert_eq!(unsigned_quotient(n, d), n / d, "{n} / {d}");
                }
            }
        }
    }
}
