//! Which kernel IR function computes which expression function.

use crate::kernel::builder::Builder;
use crate::kernel::ir::Reg;
use crate::kernel::math;
use crate::te::{Func1, Func2};

/// Transcendental functions of one operand.
pub(super) fn un(b: &mut Builder, f: Func1, a: Reg) -> Reg {
    match f {
        Func1::Exp => math::exp(b, a),
        Func1::Expm1 => math::expm1(b, a),
        Func1::Log => math::log(b, a),
        Func1::Log1p => math::log1p(b, a),
        Func1::Sin => math::sin(b, a),
        Func1::Cos => math::cos(b, a),
        Func1::Tan => math::tan(b, a),
        Func1::Asin => math::asin(b, a),
        Func1::Acos => math::acos(b, a),
        Func1::Atan => math::atan(b, a),
        Func1::Sinh => math::sinh(b, a),
        Func1::Cosh => math::cosh(b, a),
        Func1::Tanh => math::tanh(b, a),
        Func1::Asinh => math::asinh(b, a),
        Func1::Acosh => math::acosh(b, a),
        Func1::Atanh => math::atanh(b, a),
        Func1::Erf => math::erf(b, a),
        Func1::Neg
        | Func1::Abs
        | Func1::Not
        | Func1::Sqrt
        | Func1::Floor
        | Func1::Ceil
        | Func1::Trunc
        | Func1::Round
        | Func1::Popcnt => unreachable!("a basic operation"),
    }
}

/// Functions of two operands.
pub(super) fn bin(b: &mut Builder, f: Func2, x: Reg, y: Reg) -> Reg {
    match f {
        Func2::Pow => math::pow(b, x, y),
        Func2::Atan2 => math::atan2(b, x, y),
        Func2::Rem => math::fmod(b, x, y),
        _ => unreachable!("a basic operation"),
    }
}
