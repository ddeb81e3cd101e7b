//! Numbers written as strings, and strings read as numbers.
//!
//! Floats of every precision are written with eight digits as by C's `%g`, which is what onnxruntime does; numpy writes as few as tell floats apart.
//! What is read is decimal, in plain or scientific form, or a name of infinity or NaN; anything else ends the run with an error.

use super::operand::{Operand, convert};
use super::strings::{Text, made, numbers};
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::{Cx, Expr, OpResult, ReduceKind, TensorId, expr};

fn int(v: i64) -> Expr {
    expr::constant_i64(DType::I64, v)
}

fn byte(c: u8) -> Expr {
    int(c.into())
}

/// Powers of ten from 0 to 308.
fn powers(cx: &mut Cx) -> Operand {
    let list: Vec<u8> = (0..=308).flat_map(|k| format!("1e{k}").parse::<f64>().unwrap_or(0.0).to_le_bytes()).collect();
    let t = cx.constant(DType::F64, &[309], list);
    Operand::of(cx, t)
}

/// `v` times ten to the power `e`, infinite or zero where that is out of range.
fn scaled(powers: &Operand, v: Expr, e: Expr) -> Expr {
    let at = |e: Expr| powers.at(&[expr::as_int(e).max(0).min(308)]);
    let small = e.lt_(int(-308)).then(v / at(int(308)) / at(int(-308) - e), v / at(int(0) - e));
    let large = e.gt_(int(308)).then(v * at(int(308)) * at(e - int(308)), v * at(e));
    let y = e.lt_(int(0)).then(small, large);
    v.eq_(v.num(0.0)).then(v, y)
}

/// What the numbers in [`powers`] lack of the powers of ten.
fn rests(cx: &mut Cx) -> Operand {
    let list: Vec<u8> = (0..=308usize).flat_map(|k| rest_of_power(k).to_le_bytes()).collect();
    let t = cx.constant(DType::F64, &[309], list);
    Operand::of(cx, t)
}

/// `10^k` less the nearest double precision number.
fn rest_of_power(k: usize) -> f64 {
    // Both in decimal digits, from the last one on.
    let near = format!("{:.0}", format!("1e{k}").parse::<f64>().unwrap_or(0.0));
    let digits =
        |s: &str| s.bytes().rev().map(|c| i32::from(c - b'0')).chain(std::iter::repeat(0)).take(k + 2).collect();
    let (near, whole): (Vec<i32>, Vec<i32>) = (digits(&near), digits(&format!("1{}", "0".repeat(k))));
    let negative = near.iter().rev().gt(whole.iter().rev());
    let (large, small) = if negative { (near, whole) } else { (whole, near) };
    let mut borrowed = 0;
    let mut text = vec![];
    for (a, b) in large.iter().zip(&small) {
        let d = a - b - borrowed;
        borrowed = i32::from(d < 0);
        text.push(char::from(b'0' + (d + 10 * borrowed) as u8));
    }
    let size = text.iter().rev().collect::<String>().parse::<f64>().unwrap_or(0.0);
    if negative { -size } else { size }
}

/// `v` times ten to the power `e`, rounded to a whole number of which a double precision number holds every digit. What seems to
/// lie halfway between two may not do so: then what rounding took decides.
fn scaled_and_rounded(powers: &Operand, rests: &Operand, v: Expr, e: Expr) -> Expr {
    let t = scaled(powers, v, e);
    let down = e.lt_(int(0));
    let at = expr::as_int(down.then(int(0) - e, e)).max(0).min(280);
    let (power, rest) = (powers.at(&[at]), rests.at(&[at]));
    // The product of the power with what was multiplied or is the quotient, and what rounding took from it (Dekker).
    let a = down.then(t, v);
    let halves = |x: Expr| {
        let c = x * x.num(134_217_729.0);
        let high = c - (c - x);
        (high, x - high)
    };
    let ((ah, al), (bh, bl)) = (halves(a), halves(power));
    let p = a * power;
    let lost = ah * bh - p + ah * bl + al * bh + al * bl + a * rest;
    let lost = down.then((v - p - lost) / power, lost);
    let near = t.floor();
    let beyond = t - near - t.num(0.5);
    let close = beyond.abs().lt_(t.num(1e-6)) & e.le_(int(280)) & e.ge_(int(-280));
    let beyond = beyond + lost;
    let up = near + t.num(1.0);
    let chosen = beyond.gt_(t.num(0.0)).then(up, beyond.lt_(t.num(0.0)).then(near, t.round()));
    close.then(chosen, t.round())
}

/// Tensors of numbers as strings.
pub(super) fn written(cx: &mut Cx, x: &Operand) -> OpResult<TensorId> {
    if x.dtype.is_float() { written_floats(cx, x) } else { Ok(written_integers(cx, x)) }
}

fn written_integers(cx: &mut Cx, x: &Operand) -> TensorId {
    let width = match x.dtype {
        DType::Bool => 1,
        DType::U8 => 3,
        DType::I8 => 4,
        DType::U16 => 5,
        DType::I16 => 6,
        DType::U32 => 10,
        DType::I32 => 11,
        _ => 20,
    };
    let tens: Vec<u8> = (0..20).flat_map(|k| 10u64.pow(k).to_le_bytes()).collect();
    let tens = cx.constant(DType::U64, &[20], tens);
    let tens = Operand::of(cx, tens);
    let whole = |i: &[Int]| x.at(i).to(DType::I64);
    let signed = x.dtype.is_signed();
    let negative = |i: &[Int]| if signed { whole(i).lt_(int(0)) } else { expr::boolean(false) };
    let size = |i: &[Int]| {
        let v = whole(i);
        if x.dtype == DType::U64 { x.at(i) } else { negative(i).then(int(0) - v, v).to(DType::U64) }
    };
    let count = cx.reduce(ReduceKind::Sum, DType::I64, x.shape.clone(), &[Int::new(19)], |i, r| {
        size(i).ge_(tens.at(&[r[0] + 1])).to(DType::I64)
    });
    let count = Operand::of(cx, count);
    made(cx, &x.shape, Int::new(width), |i, k| {
        let minus = negative(i);
        let place = expr::int(k) - minus.to(DType::I64);
        let left = count.at(i) - place;
        let ten = expr::imm(DType::U64, 10);
        let digit = size(i) / tens.at(&[expr::as_int(left).max(0).min(19)]);
        let digit = (digit - digit / ten * ten).to(DType::I64) + byte(b'0');
        let c = left.lt_(int(0)).then(int(0), digit);
        place.lt_(int(0)).then(byte(b'-'), c).to(DType::U8)
    })
}

/// Digits of floats.
const DIGITS: i64 = 8;

fn written_floats(cx: &mut Cx, x: &Operand) -> OpResult<TensorId> {
    let shape = x.shape.clone();
    let (powers, rests) = (powers(cx), rests(cx));
    let size = |i: &[Int]| x.at(i).to(DType::F64).abs();
    // The power of ten of the first digit: how many are at most as large, from the least number that there is.
    let double = x.dtype == DType::F64;
    let (least, most) = if double { (-324, 308) } else { (-46, 38) };
    let count = cx.reduce(ReduceKind::Sum, DType::I64, shape.clone(), &[Int::new(most - least + 1)], |i, r| {
        let power = scaled(&powers, expr::constant_f64(DType::F64, 1.0), expr::int(r[0] + least));
        size(i).ge_(power).to(DType::I64)
    });
    let count = Operand::of(cx, count);
    let first = |i: &[Int]| count.at(i) + int(least - 1);
    let limit = 10i64.pow(DIGITS as u32);
    let rounded = cx.map(DType::I64, shape.clone(), |i| {
        scaled_and_rounded(&powers, &rests, size(i), int(DIGITS - 1) - first(i)).to(DType::I64)
    });
    let rounded = Operand::of(cx, rounded);
    // Nines that were rounded up are a one further left.
    let over = |i: &[Int]| rounded.at(i).ge_(int(limit));
    let digits = cx.map(DType::I64, shape.clone(), |i| over(i).then(int(limit / 10), rounded.at(i)));
    let power = cx.map(DType::I64, shape.clone(), |i| {
        let p = first(i) + over(i).to(DType::I64);
        size(i).eq_(size(i).num(0.0)).then(int(0), p)
    });
    let (digits, power) = (Operand::of(cx, digits), Operand::of(cx, power));
    // Digits without zeros at the end, but for the first.
    let last = cx.reduce(ReduceKind::Max, DType::I64, shape.clone(), &[Int::new(DIGITS)], |i, r| {
        let ten = decimal(digits.at(i), expr::int(r[0]));
        ten.ne_(int(0)).then(expr::int(r[0] + 1), int(1))
    });
    let last = Operand::of(cx, last);
    let letter = |word: &[u8], k: Expr| {
        word.iter().enumerate().fold(int(0), |rest, (n, c)| k.eq_(int(n as i64)).then(byte(*c), rest))
    };
    Ok(made(cx, &shape, Int::new(if double { 15 } else { 14 }), |i, k| {
        let v = x.at(i);
        let bits = expr::bitcast(DType::I32, v.to(DType::F32));
        let minus = bits.lt_(bits.num(0.0));
        let k = expr::int(k) - minus.to(DType::I64);
        let (p, n) = (power.at(i), last.at(i));
        let digit = |at: Expr| {
            let there = at.ge_(int(0)) & at.lt_(int(DIGITS));
            there.then(decimal(digits.at(i), at), int(0)) + byte(b'0')
        };
        let dot = byte(b'.');
        // 120, 1.2: digits up to the power, then what is left of them.
        let whole = k.le_(p).then(digit(k), k.eq_(p + int(1)).then(dot, digit(k - int(1))));
        let end = (p + int(1)).max_(n.gt_(p + int(1)).then(n + int(1), int(0)));
        let whole = k.lt_(end).then(whole, int(0));
        // 0.012.
        let small = k.eq_(int(1)).then(dot, digit(k - int(1) + p));
        let small = k.lt_(n - p + int(1)).then(small, int(0));
        // 1.2e+10: what is behind the digits is `e`, a sign and two or three digits.
        let behind = k - n - n.gt_(int(1)).to(DType::I64);
        let size = p.lt_(int(0)).then(int(0) - p, p);
        let places = size.ge_(int(100)).then(int(3), int(2));
        let sign = p.lt_(int(0)).then(byte(b'-'), byte(b'+'));
        let tail = behind.eq_(int(0)).then(byte(b'e'), behind.eq_(int(1)).then(sign, int(0)));
        let tail = [1, 10, 100].iter().enumerate().fold(tail, |tail, (back, ten)| {
            let left = size / int(*ten);
            let digit = left - left / int(10) * int(10) + byte(b'0');
            let here = behind.eq_(places + int(1 - back as i64)) & behind.ge_(int(2));
            here.then(digit, tail)
        });
        let head = k.eq_(int(0)).then(digit(k), k.eq_(int(1)).then(dot, digit(k - int(1))));
        let scientific = behind.lt_(int(0)).then(head, tail);
        let plain = p.lt_(int(0)).then(small, whole);
        let c = (p.lt_(int(-4)) | p.ge_(int(DIGITS))).then(scientific, plain);
        let c = size_of(v).gt_(expr::constant_f64(DType::F64, f64::MAX)).then(letter(b"INF", k), c);
        let c = k.lt_(int(0)).then(byte(b'-'), c);
        let nan = letter(b"NaN", k + minus.to(DType::I64));
        v.is_nan().then(nan, c).to(DType::U8)
    }))
}

fn size_of(v: Expr) -> Expr {
    v.to(DType::F64).abs()
}

/// Digit `at` of a number of eight digits, the first one with number 0.
fn decimal(digits: Expr, at: Expr) -> Expr {
    let part =
        (0..DIGITS).fold(int(0), |rest, n| at.eq_(int(n)).then(digits / int(10i64.pow((DIGITS - 1 - n) as u32)), rest));
    part - part / int(10) * int(10)
}

/// What a string is read as so far: the type of each number.
const PARTS: [DType; 6] = [DType::U64, DType::I64, DType::I64, DType::I64, DType::I64, DType::I64];

/// The digits, the power of ten that they are to be multiplied with, the exponent behind `e`, 1 if the number is negative, 1 if
/// the exponent is, and where in a number the reading is.
type Parts = [Expr; 6];

// Where the reading is.
const START: i64 = 0;
const SIGN: i64 = 1;
const WHOLE: i64 = 2;
const DOT: i64 = 3;
const FRACTION: i64 = 4;
const E: i64 = 5;
const E_SIGN: i64 = 6;
const EXPONENT: i64 = 7;
const END: i64 = 8;
const WRONG: i64 = 9;

fn among(e: Expr, list: &[i64]) -> Expr {
    list.iter().fold(expr::boolean(false), |any, v| any | e.eq_(int(*v)))
}

fn read_byte([m, power, exponent, negative, down, at]: Parts, c: Expr) -> Parts {
    let c = c.to(DType::I64);
    let is_digit = c.ge_(byte(b'0')) & c.le_(byte(b'9'));
    let d = c - byte(b'0');
    let (sign, minus) = (c.eq_(byte(b'+')) | c.eq_(byte(b'-')), c.eq_(byte(b'-')).to(DType::I64));
    let go = |from: &[i64], to: i64, rest: Expr| among(at, from).then(int(to), rest);
    let wrong = int(WRONG);
    let digits =
        go(&[START, SIGN, WHOLE], WHOLE, go(&[DOT, FRACTION], FRACTION, go(&[E, E_SIGN, EXPONENT], EXPONENT, wrong)));
    let ends = go(&[WHOLE, FRACTION, EXPONENT, END], END, wrong);
    let next = c.eq_(int(0)).then(ends, wrong);
    let next = c.eq_(byte(b' ')).then(go(&[START], START, ends), next);
    let next = sign.then(go(&[START], SIGN, go(&[E], E_SIGN, wrong)), next);
    let next = (c.eq_(byte(b'e')) | c.eq_(byte(b'E'))).then(go(&[WHOLE, FRACTION], E, wrong), next);
    let next = c.eq_(byte(b'.')).then(go(&[START, SIGN], DOT, go(&[WHOLE], FRACTION, wrong)), next);
    let next = is_digit.then(digits, next);
    let (whole, fraction) = (next.eq_(int(WHOLE)), next.eq_(int(FRACTION)));
    // Digits for which there is no room count as zeros.
    let word = |v| expr::imm(DType::U64, v);
    let room = m.lt_(word(u64::MAX / 10)) | (m.eq_(word(u64::MAX / 10)) & d.le_(int(5)));
    let takes = is_digit & room & (whole | fraction);
    let m_next = takes.then(m * word(10) + d.to(DType::U64), m);
    let one = (is_digit & fraction & room).then(int(-1), (is_digit & whole).then(room.then(int(0), int(1)), int(0)));
    let more = (exponent * int(10) + d).min_(int(99_999));
    [
        m_next,
        power + one,
        (is_digit & next.eq_(int(EXPONENT))).then(more, exponent),
        (sign & next.eq_(int(SIGN))).then(minus, negative),
        (sign & next.eq_(int(E_SIGN))).then(minus, down),
        next,
    ]
}

/// One of the parts, or what follows from them, of each string.
fn read(cx: &mut Cx, x: &Text, dtype: DType, pick: impl Fn(Parts) -> Expr) -> Operand {
    let t = cx.fold(dtype, x.shape().to_vec(), &[x.width()], |i, r| {
        let init = PARTS.iter().map(|t| expr::constant_i64(*t, 0)).collect();
        let parts: Parts = std::array::from_fn(|k| expr::acc(k as u32, PARTS[k]));
        (init, read_byte(parts, x.at(i, r[0])).to_vec(), pick(parts))
    });
    Operand::of(cx, t)
}

/// Strings as numbers of type `to`.
pub(super) fn parsed(cx: &mut Cx, x: &Text, to: DType) -> OpResult<TensorId> {
    let shape = x.shape().to_vec();
    let digits = read(cx, x, DType::U64, |p| p[0]);
    let power = read(cx, x, DType::I64, |[_, power, e, _, down, _]| power + down.gt_(int(0)).then(int(0) - e, e));
    let negative = read(cx, x, DType::I64, |p| p[3]);
    let good = read(cx, x, DType::I64, |p| among(p[5], &[WHOLE, FRACTION, EXPONENT, END]).to(DType::I64));
    let lower = made(cx, &shape, x.width(), |i, k| {
        let b = x.at(i, k);
        (b.ge_(b.num(65.0)) & b.le_(b.num(90.0))).then(b ^ b.num(32.0), b)
    });
    let lower = Text::of(cx, lower)?;
    let names = ["inf", "+inf", "infinity", "+infinity", "-inf", "-infinity", "nan", "+nan", "-nan"];
    let named = if to.is_float() { &names[..] } else { &[] };
    let named = numbers(cx, &lower, &named.iter().map(|s| s.to_string()).collect::<Vec<_>>())?;
    let wrong = cx.reduce(ReduceKind::Max, DType::I64, vec![], &shape, |_, r| {
        (good.at(r).eq_(int(0)) & named.at(r).lt_(int(0))).to(DType::I64)
    });
    let wrong = cx.read(wrong, 0, "wrong", None, None);
    cx.require_at_most(wrong, Int::new(0), "a string is not a number")?;
    let powers = powers(cx);
    Ok(cx.map(to, shape, |i| {
        let minus = negative.at(i).gt_(int(0));
        let v = scaled(&powers, digits.at(i).to(DType::F64), power.at(i));
        let v = minus.then(v.num(0.0) - v, v);
        // Zero has a sign, too.
        let zero = minus.then(v.num(-0.0), v.num(0.0));
        let v = v.eq_(v.num(0.0)).then(zero, v);
        if to == DType::Bool {
            return v.ne_(v.num(0.0));
        }
        if !to.is_float() {
            let whole = digits.at(i);
            let whole = minus.then(expr::imm(DType::U64, 0) - whole, whole).to(to);
            return power.at(i).eq_(int(0)).then(whole, v.to(to));
        }
        let name = named.at(i);
        let infinite = name.lt_(int(4)).then(v.num(f64::INFINITY), v.num(f64::NEG_INFINITY));
        let special = name.lt_(int(6)).then(infinite, v.num(f64::NAN));
        convert(name.lt_(int(0)).then(v, special), to)
    }))
}
