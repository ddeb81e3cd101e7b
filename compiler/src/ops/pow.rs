//! Powers. The base gives the result's type; the exponent may have another one.

use super::operand::{Operand, convert, need_number};
use super::{Call, Expand, binary};
use crate::dtype::DType;
use crate::te::{Cx, Expr, Func2, OpResult, expr};

pub(super) const TABLE: &[(&str, &str, Expand)] = &[("", "Pow", pow)];

fn pow(cx: &mut Cx, call: &Call) -> OpResult {
    let (a, b, shape) = binary::operands(cx, call)?;
    need_number(a.dtype)?;
    need_number(b.dtype)?;
    let fixed = constant_exponent(cx, &b);
    Ok(vec![cx.map(a.dtype, shape, |i| power(a.spread(i), b.spread(i), fixed))])
}

/// The exponent, if it is one small number for all elements.
fn constant_exponent(cx: &mut Cx, b: &Operand) -> Option<f64> {
    if cx.numel(b.id).as_const() != Some(1) {
        return None;
    }
    cx.const_floats(b.id)?.first().copied()
}

fn power(x: Expr, e: Expr, fixed: Option<f64>) -> Expr {
    let t = x.dtype();
    if let Some(p) = fixed
        && let Some(done) = simple(x, p)
    {
        return done;
    }
    match (t.is_float(), e.dtype().is_float()) {
        (false, false) => integer_power(x, e),
        (false, true) => convert(x.to(DType::F64).pow(e.to(DType::F64)), t),
        // A wide exponent is not narrowed to the base's precision.
        (true, true) if e.dtype() == DType::F64 => x.to(DType::F64).pow(e).to(t),
        (true, _) => x.pow(e.to(t)),
    }
}

/// Exponents that need no logarithm.
fn simple(x: Expr, p: f64) -> Option<Expr> {
    let float = x.dtype().is_float();
    Some(match p {
        0.0 => x.num(1.0),
        1.0 => x,
        2.0 => x * x,
        3.0 => x * x * x,
        -1.0 if float => x.num(1.0) / x,
        // Unlike the square root, the power of minus infinity is plus infinity, and that of -0 is +0.
        0.5 if float => x.eq_(x.num(f64::NEG_INFINITY)).then(x.num(f64::INFINITY), (x + x.num(0.0)).sqrt()),
        _ => return None,
    })
}

/// Repeated squaring, wrapping. Exponents of 64 and more give 0, 1 or -1 right where the base is even, 1 or -1; any other
/// base has long overflowed. A negative exponent gives the reciprocal's integer part.
fn integer_power(x: Expr, e: Expr) -> Expr {
    let (t, et) = (x.dtype(), e.dtype());
    let n = |v: i64| expr::constant_i64(et, v);
    let one = expr::constant_i64(t, 1);
    let last = e & n(1);
    let negative = if et.is_signed() { e.lt_(n(0)) } else { expr::boolean(false) };
    let short = e.ge_(n(64)).then(n(64) + last, e);
    let count = negative.then(last, short);
    let (mut result, mut square) = (one, x);
    for bit in 0..7 {
        let set = expr::bin(Func2::Shr, count, n(bit)) & n(1);
        result = set.ne_(n(0)).then(result * square, result);
        square = square * square;
    }
    let reciprocal = if t.is_signed() {
        let unit = x.eq_(one) | x.eq_(expr::constant_i64(t, -1));
        unit.then(result, expr::constant_i64(t, 0))
    } else {
        x.eq_(one).then(one, expr::constant_i64(t, 0))
    };
    negative.then(reciprocal, result)
}
