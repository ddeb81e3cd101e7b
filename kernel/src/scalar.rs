//! What each operation means for one lane: the definition that the interpreter runs and that the builder folds with.
//!
//! Lanes are held as bits, zero-extended to 64 ([`Imm::bits`](super::ir::Imm)). The functions are total: division by zero
//! gives 0, shift counts may be anything, conversions saturate.

use super::ir::{BinOp, Cmp, Dot, UnOp};
use crate::dtype::DType;
use half::{bf16, f16};

/// A Rust type that holds one lane.
pub(crate) trait Lane: Copy + PartialOrd {
    fn from_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn div(self, o: Self) -> Self;
    fn rem(self, o: Self) -> Self;
    fn min(self, o: Self) -> Self;
    fn max(self, o: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
}

/// Integer lanes.
pub(crate) trait IntLane: Lane {
    fn shl(self, o: Self) -> Self;
    fn shr(self, o: Self) -> Self;
    fn popcnt(self) -> Self;
}

/// Float lanes.
pub(crate) trait FloatLane: Lane {
    fn sqrt(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn round(self) -> Self;
    fn fma(self, b: Self, c: Self) -> Self;
}

macro_rules! int_lane {
    ($t:ty, $u:ty, $abs:expr, $fill:expr) => {
        impl Lane for $t {
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                self as $u as u64
            }
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self.wrapping_add(o)
            }
            #[inline(always)]
            fn sub(self, o: Self) -> Self {
                self.wrapping_sub(o)
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                self.wrapping_mul(o)
            }
            #[inline(always)]
            fn div(self, o: Self) -> Self {
                if o == 0 { 0 } else { self.wrapping_div(o) }
            }
            #[inline(always)]
            fn rem(self, o: Self) -> Self {
                if o == 0 { 0 } else { self.wrapping_rem(o) }
            }
            #[inline(always)]
            fn min(self, o: Self) -> Self {
                Ord::min(self, o)
            }
            #[inline(always)]
            fn max(self, o: Self) -> Self {
                Ord::max(self, o)
            }
            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> Self {
                let abs: fn($t) -> $t = $abs;
                abs(self)
            }
        }
        impl IntLane for $t {
            #[inline(always)]
            fn shl(self, o: Self) -> Self {
                let count = o.bits();
                if count < <$t>::BITS as u64 { self << count } else { 0 }
            }
            #[inline(always)]
            fn shr(self, o: Self) -> Self {
                let count = o.bits();
                let fill: fn($t) -> $t = $fill;
                if count < <$t>::BITS as u64 { self >> count } else { fill(self) }
            }
            #[inline(always)]
            fn popcnt(self) -> Self {
                self.count_ones() as $t
            }
        }
    };
}

int_lane!(i8, u8, |x| x.wrapping_abs(), |x| x >> 7);
int_lane!(i16, u16, |x| x.wrapping_abs(), |x| x >> 15);
int_lane!(i32, u32, |x| x.wrapping_abs(), |x| x >> 31);
int_lane!(i64, u64, |x| x.wrapping_abs(), |x| x >> 63);
int_lane!(u8, u8, |x| x, |_| 0);
int_lane!(u16, u16, |x| x, |_| 0);
int_lane!(u32, u32, |x| x, |_| 0);
int_lane!(u64, u64, |x| x, |_| 0);

macro_rules! float_lane {
    ($t:ty, $u:ty, $math:ident) => {
        impl Lane for $t {
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                <$t>::from_bits(bits as $u)
            }
            #[inline(always)]
            fn bits(self) -> u64 {
                self.to_bits() as u64
            }
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                self + o
            }
            #[inline(always)]
            fn sub(self, o: Self) -> Self {
                self - o
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                self * o
            }
            #[inline(always)]
            fn div(self, o: Self) -> Self {
                self / o
            }
            #[inline(always)]
            fn rem(self, o: Self) -> Self {
                self % o
            }
            #[inline(always)]
            fn min(self, o: Self) -> Self {
                if self.is_nan() || o.is_nan() {
                    return self + o;
                }
                if self < o || (self == o && self.is_sign_negative()) { self } else { o }
            }
            #[inline(always)]
            fn max(self, o: Self) -> Self {
                if self.is_nan() || o.is_nan() {
                    return self + o;
                }
                if self > o || (self == o && self.is_sign_positive()) { self } else { o }
            }
            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
        }
        impl FloatLane for $t {
            #[inline(always)]
            fn sqrt(self) -> Self {
                $math::sqrt(self)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $math::floor(self)
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                $math::ceil(self)
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                $math::trunc(self)
            }
            #[inline(always)]
            fn round(self) -> Self {
                $math::round(self)
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                $math::fma(self, b, c)
            }
        }
    };
}

/// Functions of a float type that `core` does not have, all exact or rounded once.
macro_rules! math {
    ($name:ident, $t:ty, $sqrt:ident, $floor:ident, $ceil:ident, $trunc:ident, $round:ident, $fma:ident) => {
        #[cfg(feature = "std")]
        mod $name {
            pub(super) fn sqrt(x: $t) -> $t {
                x.sqrt()
            }
            pub(super) fn floor(x: $t) -> $t {
                x.floor()
            }
            pub(super) fn ceil(x: $t) -> $t {
                x.ceil()
            }
            pub(super) fn trunc(x: $t) -> $t {
                x.trunc()
            }
            pub(super) fn round(x: $t) -> $t {
                x.round_ties_even()
            }
            pub(super) fn fma(a: $t, b: $t, c: $t) -> $t {
                a.mul_add(b, c)
            }
        }
        #[cfg(not(feature = "std"))]
        mod $name {
            pub(super) use libm::{
                $ceil as ceil, $floor as floor, $fma as fma, $round as round, $sqrt as sqrt, $trunc as trunc,
            };
        }
    };
}

math!(single, f32, sqrtf, floorf, ceilf, truncf, roundevenf, fmaf);
math!(double, f64, sqrt, floor, ceil, trunc, roundeven, fma);

float_lane!(f32, u32, single);
float_lane!(f64, u64, double);

fn un_num<T: Lane>(op: UnOp, a: T) -> Option<T> {
    match op {
        UnOp::Neg => Some(a.neg()),
        UnOp::Abs => Some(a.abs()),
        _ => None,
    }
}

fn un_int<T: IntLane>(op: UnOp, a: u64) -> Option<u64> {
    let x = T::from_bits(a);
    match op {
        UnOp::Not => Some(T::from_bits(!a).bits()),
        UnOp::Popcnt => Some(x.popcnt().bits()),
        _ => un_num(op, x).map(T::bits),
    }
}

fn un_float<T: FloatLane>(op: UnOp, a: u64) -> Option<u64> {
    let x = T::from_bits(a);
    let y = match op {
        UnOp::Sqrt => x.sqrt(),
        UnOp::Floor => x.floor(),
        UnOp::Ceil => x.ceil(),
        UnOp::Trunc => x.trunc(),
        UnOp::Round => x.round(),
        _ => un_num(op, x)?,
    };
    Some(y.bits())
}

/// One lane of a one-operand operation; `None` where the operation does not exist for the type.
pub fn un(op: UnOp, elem: DType, a: u64) -> Option<u64> {
    match elem {
        DType::Bool => (op == UnOp::Not).then_some((a == 0) as u64),
        DType::I8 => un_int::<i8>(op, a),
        DType::I16 => un_int::<i16>(op, a),
        DType::I32 => un_int::<i32>(op, a),
        DType::I64 => un_int::<i64>(op, a),
        DType::U8 => un_int::<u8>(op, a),
        DType::U16 => un_int::<u16>(op, a),
        DType::U32 => un_int::<u32>(op, a),
        DType::U64 => un_int::<u64>(op, a),
        DType::F32 => un_float::<f32>(op, a),
        DType::F64 => un_float::<f64>(op, a),
        DType::F16 | DType::BF16 => None,
    }
}

fn bin_num<T: Lane>(op: BinOp, a: T, b: T) -> Option<T> {
    Some(match op {
        BinOp::Add => a.add(b),
        BinOp::Sub => a.sub(b),
        BinOp::Mul => a.mul(b),
        BinOp::Div => a.div(b),
        BinOp::Rem => a.rem(b),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        _ => return None,
    })
}

fn bin_int<T: IntLane>(op: BinOp, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (T::from_bits(a), T::from_bits(b));
    Some(match op {
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl => x.shl(y).bits(),
        BinOp::Shr => x.shr(y).bits(),
        _ => bin_num(op, x, y)?.bits(),
    })
}

fn bin_float<T: FloatLane>(op: BinOp, a: u64, b: u64) -> Option<u64> {
    bin_num(op, T::from_bits(a), T::from_bits(b)).map(T::bits)
}

/// One lane of a two-operand operation; `None` where the operation does not exist for the type.
pub fn bin(op: BinOp, elem: DType, a: u64, b: u64) -> Option<u64> {
    match elem {
        DType::Bool => match op {
            BinOp::And => Some(a & b),
            BinOp::Or => Some(a | b),
            BinOp::Xor => Some(a ^ b),
            _ => None,
        },
        DType::I8 => bin_int::<i8>(op, a, b),
        DType::I16 => bin_int::<i16>(op, a, b),
        DType::I32 => bin_int::<i32>(op, a, b),
        DType::I64 => bin_int::<i64>(op, a, b),
        DType::U8 => bin_int::<u8>(op, a, b),
        DType::U16 => bin_int::<u16>(op, a, b),
        DType::U32 => bin_int::<u32>(op, a, b),
        DType::U64 => bin_int::<u64>(op, a, b),
        DType::F32 => bin_float::<f32>(op, a, b),
        DType::F64 => bin_float::<f64>(op, a, b),
        DType::F16 | DType::BF16 => None,
    }
}

/// `a * b + c` with one rounding; `None` for types other than `F32` and `F64`.
pub fn fma(elem: DType, a: u64, b: u64, c: u64) -> Option<u64> {
    match elem {
        DType::F32 => Some(f32::fma(Lane::from_bits(a), Lane::from_bits(b), Lane::from_bits(c)).bits()),
        DType::F64 => Some(f64::fma(Lane::from_bits(a), Lane::from_bits(b), Lane::from_bits(c)).bits()),
        _ => None,
    }
}

/// `c` plus the products of what two lanes hold, in 32 bits.
pub fn dot(dot: Dot, a: u64, b: u64, c: u64) -> u64 {
    let (a, b) = ((a as u32).to_le_bytes(), (b as u32).to_le_bytes());
    let word = |bytes: [u8; 4], k: usize| i32::from(i16::from_le_bytes([bytes[2 * k], bytes[2 * k + 1]]));
    let sum = match dot {
        Dot::Bytes => (0..4).map(|k| i32::from(a[k]) * i32::from(b[k] as i8)).sum(),
        Dot::Words => (word(a, 0) * word(b, 0)).wrapping_add(word(a, 1) * word(b, 1)),
    };
    u64::from((c as i32).wrapping_add(sum) as u32)
}

#[inline(always)]
pub(crate) fn compare<T: PartialOrd>(op: Cmp, a: T, b: T) -> bool {
    match op {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
    }
}

/// One lane of a comparison; `None` for half types, which no register has.
pub fn cmp(op: Cmp, elem: DType, a: u64, b: u64) -> Option<bool> {
    fn of<T: Lane>(op: Cmp, a: u64, b: u64) -> Option<bool> {
        Some(compare(op, T::from_bits(a), T::from_bits(b)))
    }
    match elem {
        DType::Bool | DType::U8 => of::<u8>(op, a, b),
        DType::I8 => of::<i8>(op, a, b),
        DType::I16 => of::<i16>(op, a, b),
        DType::I32 => of::<i32>(op, a, b),
        DType::I64 => of::<i64>(op, a, b),
        DType::U16 => of::<u16>(op, a, b),
        DType::U32 => of::<u32>(op, a, b),
        DType::U64 => of::<u64>(op, a, b),
        DType::F32 => of::<f32>(op, a, b),
        DType::F64 => of::<f64>(op, a, b),
        DType::F16 | DType::BF16 => None,
    }
}

/// A lane's value widened to the type that holds every value of its class.
enum Wide {
    Signed(i64),
    Unsigned(u64),
    Single(f32),
    Double(f64),
}

fn widen(elem: DType, bits: u64) -> Wide {
    match elem {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => Wide::Unsigned(bits),
        DType::I8 => Wide::Signed(bits as i8 as i64),
        DType::I16 => Wide::Signed(bits as i16 as i64),
        DType::I32 => Wide::Signed(bits as i32 as i64),
        DType::I64 => Wide::Signed(bits as i64),
        DType::F16 => Wide::Single(f16::from_bits(bits as u16).to_f32()),
        DType::BF16 => Wide::Single(bf16::from_bits(bits as u16).to_f32()),
        DType::F32 => Wide::Single(f32::from_bits(bits as u32)),
        DType::F64 => Wide::Double(f64::from_bits(bits)),
    }
}

macro_rules! to_int {
    ($t:ty, $v:expr) => {
        match $v {
            Wide::Signed(x) => (x as $t).bits(),
            Wide::Unsigned(x) => (x as $t).bits(),
            Wide::Single(x) => (x as $t).bits(),
            Wide::Double(x) => (x as $t).bits(),
        }
    };
}

fn to_f32(v: Wide) -> f32 {
    match v {
        Wide::Signed(x) => x as f32,
        Wide::Unsigned(x) => x as f32,
        Wide::Single(x) => x,
        Wide::Double(x) => x as f32,
    }
}

/// The `f32` next to `x` whose last bit is set, if `x` is none itself. Rounding that to a half type gives the same as rounding
/// `x`; the nearest `f32` would not, nor do the `half` crate's own conversions, which drop the low 32 bits.
fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = near as f64;
    if back == x || x.is_nan() {
        return near;
    }
    let toward_zero = near.to_bits() - (back.abs() > x.abs()) as u32;
    f32::from_bits(toward_zero | 1)
}

/// One lane converted from type `from` to type `to`. For a half type as target the result is the rounded value as `F32`
/// bits, as [`Op::Cast`](super::ir::Op::Cast) defines it.
pub fn cast(to: DType, from: DType, bits: u64) -> u64 {
    let v = widen(from, bits);
    match to {
        DType::Bool => match v {
            Wide::Signed(x) => (x != 0) as u64,
            Wide::Unsigned(x) => (x != 0) as u64,
            Wide::Single(x) => (x != 0.0) as u64,
            Wide::Double(x) => (x != 0.0) as u64,
        },
        DType::I8 => to_int!(i8, v),
        DType::I16 => to_int!(i16, v),
        DType::I32 => to_int!(i32, v),
        DType::I64 => to_int!(i64, v),
        DType::U8 => to_int!(u8, v),
        DType::U16 => to_int!(u16, v),
        DType::U32 => to_int!(u32, v),
        DType::U64 => to_int!(u64, v),
        DType::F32 => to_f32(v).bits(),
        DType::F64 => match v {
            Wide::Signed(x) => x as f64,
            Wide::Unsigned(x) => x as f64,
            Wide::Single(x) => x as f64,
            Wide::Double(x) => x,
        }
        .to_bits(),
        DType::F16 => match v {
            Wide::Double(x) => f16::from_f32(round_to_odd(x)),
            other => f16::from_f32(to_f32(other)),
        }
        .to_f32()
        .bits(),
        DType::BF16 => match v {
            Wide::Double(x) => bf16::from_f32(round_to_odd(x)),
            other => bf16::from_f32(to_f32(other)),
        }
        .to_f32()
        .bits(),
    }
}

/// The bits of the integer `v` as a lane of type `elem` (ints wrap, floats round, `Bool` is "not zero").
pub fn from_i64(elem: DType, v: i64) -> u64 {
    cast(elem.compute(), DType::I64, v as u64)
}

/// The bits of the number `v` as a lane of type `elem`.
pub fn from_f64(elem: DType, v: f64) -> u64 {
    cast(elem.compute(), DType::F64, v.to_bits())
}

/// The value of an integer or `Bool` lane as `i64` (`U64` wraps).
pub fn to_i64(elem: DType, bits: u64) -> i64 {
    cast(DType::I64, elem, bits) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_round_to_half_types_once() {
        // Just above the middle between 1 and the next number, by less than binary32 can tell.
        for (to, fraction) in [(DType::F16, 10), (DType::BF16, 7)] {
            let step = 1.0 / (1u64 << fraction) as f64;
            let little = 1.0 / (1u64 << 45) as f64;
            let rounded = |x: f64| f32::from_bits(cast(to, DType::F64, x.to_bits()) as u32) as f64;
            assert_eq!(rounded(1.0 + step / 2.0 + little), 1.0 + step);
            assert_eq!(rounded(1.0 + step / 2.0), 1.0);
            assert_eq!(rounded(-1.0 - 1.5 * step + little), -1.0 - step);
            assert_eq!(rounded(-1.0 - 1.5 * step), -1.0 - 2.0 * step);
            assert!(rounded(f64::NAN).is_nan());
        }
    }
}
