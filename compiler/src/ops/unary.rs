//! Elementwise functions of one operand.

use super::operand::{Operand, need_float, need_number};
use super::{Call, Expand};
use crate::dtype::DType;
use crate::te::{Cx, Expr, Func1, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[
    ("", "Abs", |cx, c| number(cx, c, |x| if is_unsigned(x.dtype()) { x } else { x.abs() })),
    ("", "Neg", |cx, c| number(cx, c, |x| -x)),
    ("", "Sign", |cx, c| number(cx, c, sign)),
    ("", "Not", not),
    ("", "BitwiseNot", not),
    ("", "Sqrt", |cx, c| float(cx, c, Expr::sqrt)),
    ("", "Reciprocal", |cx, c| float(cx, c, |x| x.num(1.0) / x)),
    ("", "Floor", |cx, c| float(cx, c, Expr::floor)),
    ("", "Ceil", |cx, c| float(cx, c, Expr::ceil)),
    ("", "Round", |cx, c| float(cx, c, Expr::round)),
    ("", "Exp", |cx, c| float(cx, c, Expr::exp)),
    ("", "Log", |cx, c| float(cx, c, Expr::ln)),
    ("", "Sin", |cx, c| float(cx, c, |x| expr::un(Func1::Sin, x))),
    ("", "Cos", |cx, c| float(cx, c, |x| expr::un(Func1::Cos, x))),
    ("", "Tan", |cx, c| float(cx, c, |x| expr::un(Func1::Tan, x))),
    ("", "Asin", |cx, c| float(cx, c, |x| expr::un(Func1::Asin, x))),
    ("", "Acos", |cx, c| float(cx, c, |x| expr::un(Func1::Acos, x))),
    ("", "Atan", |cx, c| float(cx, c, |x| expr::un(Func1::Atan, x))),
    ("", "Sinh", |cx, c| float(cx, c, |x| expr::un(Func1::Sinh, x))),
    ("", "Cosh", |cx, c| float(cx, c, |x| expr::un(Func1::Cosh, x))),
    ("", "Tanh", |cx, c| float(cx, c, Expr::tanh)),
    ("", "Asinh", |cx, c| float(cx, c, |x| expr::un(Func1::Asinh, x))),
    ("", "Acosh", |cx, c| float(cx, c, |x| expr::un(Func1::Acosh, x))),
    ("", "Atanh", |cx, c| float(cx, c, |x| expr::un(Func1::Atanh, x))),
    ("", "Erf", |cx, c| number(cx, c, |x| through_float(x, Expr::erf))),
    ("", "IsNaN", |cx, c| test(cx, c, Expr::is_nan)),
    ("", "IsInf", is_inf),
];

fn is_unsigned(t: DType) -> bool {
    t.is_int() && !t.is_signed()
}

/// The elementwise function `f` of the first operand, of the same type.
pub(super) fn same(cx: &mut Cx, x: &Operand, f: impl FnOnce(Expr) -> Expr) -> OpResult {
    Ok(vec![cx.map(x.dtype, x.shape.clone(), |i| f(x.at(i)))])
}

/// An elementwise function on floats.
pub(super) fn float(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr) -> Expr) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    same(cx, &x, f)
}

/// An elementwise function on numbers.
pub(super) fn number(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr) -> Expr) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_number(x.dtype)?;
    same(cx, &x, f)
}

/// Applies a function on floats to a number of any type; ints go through `f64` and truncate.
pub(super) fn through_float(x: Expr, f: impl FnOnce(Expr) -> Expr) -> Expr {
    let t = x.dtype();
    if t.is_float() { f(x) } else { f(x.to(DType::F64)).to(t) }
}

fn test(cx: &mut Cx, call: &Call, f: impl FnOnce(Expr) -> Expr) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    need_float(x.dtype)?;
    Ok(vec![cx.map(DType::Bool, x.shape.clone(), |i| f(x.at(i)))])
}

/// NaN and zeros stay what they are.
fn sign(x: Expr) -> Expr {
    let (zero, one) = (x.num(0.0), x.num(1.0));
    let rest = if is_unsigned(x.dtype()) { x } else { x.lt_(zero).then(x.num(-1.0), x) };
    x.gt_(zero).then(one, rest)
}

fn not(cx: &mut Cx, call: &Call) -> OpResult {
    let x = Operand::of(cx, call.input(0)?);
    if x.dtype.is_float() {
        return Err(crate::te::OpError::Invalid(format!("element type {}, bools or integers are needed", x.dtype)));
    }
    same(cx, &x, |x| !x)
}

fn is_inf(cx: &mut Cx, call: &Call) -> OpResult {
    let negative = call.int("detect_negative", 1)? != 0;
    let positive = call.int("detect_positive", 1)? != 0;
    test(cx, call, |x| {
        let pos = if positive { x.eq_(x.num(f64::INFINITY)) } else { expr::boolean(false) };
        let neg = if negative { x.eq_(x.num(f64::NEG_INFINITY)) } else { expr::boolean(false) };
        pos | neg
    })
}
