//! One function per operation and element type, over lanes in slots.

use crate::dtype::DType;
use crate::ir::{BinOp, Cmp, Dot, Horizontal, UnOp};
use crate::scalar::{self, FloatLane, IntLane, Lane};

/// Slots of an instruction: destination, up to three sources, number of lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Args {
    pub(super) d: u32,
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) c: u32,
    pub(super) n: u32,
}

pub(super) type Exec = fn(&mut [u64], &Args);

#[inline(always)]
fn lanes1(s: &mut [u64], p: &Args, f: impl Fn(u64) -> u64) {
    let (d, a) = (p.d as usize, p.a as usize);
    if p.n == 1 {
        s[d] = f(s[a]);
        return;
    }
    for i in 0..p.n as usize {
        s[d + i] = f(s[a + i]);
    }
}

#[inline(always)]
fn lanes2(s: &mut [u64], p: &Args, f: impl Fn(u64, u64) -> u64) {
    let (d, a, b) = (p.d as usize, p.a as usize, p.b as usize);
    if p.n == 1 {
        s[d] = f(s[a], s[b]);
        return;
    }
    for i in 0..p.n as usize {
        s[d + i] = f(s[a + i], s[b + i]);
    }
}

#[inline(always)]
fn lanes3(s: &mut [u64], p: &Args, f: impl Fn(u64, u64, u64) -> u64) {
    let (d, a, b, c) = (p.d as usize, p.a as usize, p.b as usize, p.c as usize);
    if p.n == 1 {
        s[d] = f(s[a], s[b], s[c]);
        return;
    }
    for i in 0..p.n as usize {
        s[d + i] = f(s[a + i], s[b + i], s[c + i]);
    }
}

/// An [`Exec`] from an expression on lanes of type `$t`.
macro_rules! exec {
    ($t:ty, |$x:ident| $e:expr) => {{
        fn run(s: &mut [u64], p: &Args) {
            lanes1(s, p, |x| {
                let $x = <$t as Lane>::from_bits(x);
                Lane::bits($e)
            })
        }
        run as Exec
    }};
    ($t:ty, |$x:ident, $y:ident| $e:expr) => {{
        fn run(s: &mut [u64], p: &Args) {
            lanes2(s, p, |x, y| {
                let ($x, $y) = (<$t as Lane>::from_bits(x), <$t as Lane>::from_bits(y));
                Lane::bits($e)
            })
        }
        run as Exec
    }};
}

/// Runs `$body` with the type name `$t` standing for the Rust type of the element type, for ints or for floats.
macro_rules! by_type {
    ($elem:expr, int $t:ident => $int:expr, float $f:ident => $float:expr, bool => $bool:expr) => {
        match $elem {
            DType::Bool => $bool,
            DType::I8 => {
                type $t = i8;
                $int
            }
            DType::I16 => {
                type $t = i16;
                $int
            }
            DType::I32 => {
                type $t = i32;
                $int
            }
            DType::I64 => {
                type $t = i64;
                $int
            }
            DType::U8 => {
                type $t = u8;
                $int
            }
            DType::U16 => {
                type $t = u16;
                $int
            }
            DType::U32 => {
                type $t = u32;
                $int
            }
            DType::U64 => {
                type $t = u64;
                $int
            }
            DType::F32 => {
                type $f = f32;
                $float
            }
            DType::F64 => {
                type $f = f64;
                $float
            }
            DType::F16 | DType::BF16 => None,
        }
    };
}

macro_rules! num_un {
    ($t:ty, $op:expr) => {
        match $op {
            UnOp::Neg => exec!($t, |x| x.neg()),
            UnOp::Abs => exec!($t, |x| Lane::abs(x)),
            _ => return None,
        }
    };
}

pub(super) fn un(op: UnOp, elem: DType) -> Option<Exec> {
    by_type!(elem,
        int T => Some(match op {
            UnOp::Not => exec!(T, |x| !x),
            UnOp::Popcnt => exec!(T, |x| x.popcnt()),
            _ => num_un!(T, op),
        }),
        float T => Some(match op {
            UnOp::Sqrt => exec!(T, |x| FloatLane::sqrt(x)),
            UnOp::Floor => exec!(T, |x| FloatLane::floor(x)),
            UnOp::Ceil => exec!(T, |x| FloatLane::ceil(x)),
            UnOp::Trunc => exec!(T, |x| FloatLane::trunc(x)),
            UnOp::Round => exec!(T, |x| FloatLane::round(x)),
            _ => num_un!(T, op),
        }),
        bool => (op == UnOp::Not).then_some(exec!(u8, |x| x ^ 1))
    )
}

macro_rules! num_bin {
    ($t:ty, $op:expr) => {
        match $op {
            BinOp::Add => exec!($t, |x, y| Lane::add(x, y)),
            BinOp::Sub => exec!($t, |x, y| Lane::sub(x, y)),
            BinOp::Mul => exec!($t, |x, y| Lane::mul(x, y)),
            BinOp::Div => exec!($t, |x, y| Lane::div(x, y)),
            BinOp::Rem => exec!($t, |x, y| Lane::rem(x, y)),
            BinOp::Min => exec!($t, |x, y| Lane::min(x, y)),
            BinOp::Max => exec!($t, |x, y| Lane::max(x, y)),
            _ => return None,
        }
    };
}

macro_rules! bits_bin {
    ($t:ty, $op:expr, $other:expr) => {
        match $op {
            BinOp::And => exec!($t, |x, y| x & y),
            BinOp::Or => exec!($t, |x, y| x | y),
            BinOp::Xor => exec!($t, |x, y| x ^ y),
            _ => $other,
        }
    };
}

pub(super) fn bin(op: BinOp, elem: DType) -> Option<Exec> {
    by_type!(elem,
        int T => Some(bits_bin!(T, op, match op {
            BinOp::Shl => exec!(T, |x, y| IntLane::shl(x, y)),
            BinOp::Shr => exec!(T, |x, y| IntLane::shr(x, y)),
            _ => num_bin!(T, op),
        })),
        float T => Some(num_bin!(T, op)),
        bool => Some(bits_bin!(u8, op, return None))
    )
}

macro_rules! cmps {
    ($t:ty, $op:expr) => {
        Some(match $op {
            Cmp::Eq => exec!($t, |x, y| (x == y) as u8),
            Cmp::Ne => exec!($t, |x, y| (x != y) as u8),
            Cmp::Lt => exec!($t, |x, y| (x < y) as u8),
            Cmp::Le => exec!($t, |x, y| (x <= y) as u8),
            Cmp::Gt => exec!($t, |x, y| (x > y) as u8),
            Cmp::Ge => exec!($t, |x, y| (x >= y) as u8),
        })
    };
}

pub(super) fn cmp(op: Cmp, elem: DType) -> Option<Exec> {
    by_type!(elem, int T => cmps!(T, op), float T => cmps!(T, op), bool => cmps!(u8, op))
}

pub(super) fn fma(elem: DType, fused: bool) -> Option<Exec> {
    macro_rules! of {
        ($t:ty, |$x:ident, $y:ident, $z:ident| $e:expr) => {{
            fn run(s: &mut [u64], p: &Args) {
                lanes3(s, p, |x, y, z| {
                    let ($x, $y, $z): ($t, $t, $t) = (Lane::from_bits(x), Lane::from_bits(y), Lane::from_bits(z));
                    Lane::bits($e)
                })
            }
            run as Exec
        }};
    }
    match (elem, fused) {
        (DType::F32, true) => Some(of!(f32, |x, y, z| x.fma(y, z))),
        (DType::F32, false) => Some(of!(f32, |x, y, z| x * y + z)),
        (DType::F64, true) => Some(of!(f64, |x, y, z| x.fma(y, z))),
        (DType::F64, false) => Some(of!(f64, |x, y, z| x * y + z)),
        _ => None,
    }
}

pub(super) fn dot(dot: Dot) -> Exec {
    match dot {
        Dot::Bytes => |s, p| lanes3(s, p, |x, y, z| scalar::dot(Dot::Bytes, x, y, z)),
        Dot::Words => |s, p| lanes3(s, p, |x, y, z| scalar::dot(Dot::Words, x, y, z)),
    }
}

pub(super) fn select(s: &mut [u64], p: &Args) {
    lanes3(s, p, |mask, x, y| if mask != 0 { x } else { y })
}

/// Conversion of lanes. Integers that only change sign or width, and conversions to and from floats of ints that are
/// common in models, have functions of their own; the others go through [`scalar::cast`].
pub(super) fn cast(to: DType, from: DType) -> Option<Exec> {
    macro_rules! to {
        ($from:ty) => {
            match to {
                DType::Bool => Some(exec!($from, |x| (x != (0 as $from)) as u8)),
                DType::I8 => Some(exec!($from, |x| x as i8)),
                DType::I16 => Some(exec!($from, |x| x as i16)),
                DType::I32 => Some(exec!($from, |x| x as i32)),
                DType::I64 => Some(exec!($from, |x| x as i64)),
                DType::U8 => Some(exec!($from, |x| x as u8)),
                DType::U16 => Some(exec!($from, |x| x as u16)),
                DType::U32 => Some(exec!($from, |x| x as u32)),
                DType::U64 => Some(exec!($from, |x| x as u64)),
                DType::F32 => Some(exec!($from, |x| x as f32)),
                DType::F64 => Some(exec!($from, |x| x as f64)),
                DType::F16 | DType::BF16 => None,
            }
        };
    }
    fn half<const TO: u8, const FROM: u8>(s: &mut [u64], p: &Args) {
        let to = if TO == 0 { DType::F16 } else { DType::BF16 };
        let from = if FROM == 0 { DType::F32 } else { DType::F64 };
        lanes1(s, p, |x| scalar::cast(to, from, x))
    }
    match (to, from) {
        (DType::F16, DType::F32) => Some(half::<0, 0>),
        (DType::F16, DType::F64) => Some(half::<0, 1>),
        (DType::BF16, DType::F32) => Some(half::<1, 0>),
        (DType::BF16, DType::F64) => Some(half::<1, 1>),
        _ => by_type!(from, int T => to!(T), float T => to!(T), bool => to!(u8)),
    }
}

/// Horizontal reduction of `n` lanes at `a` to `d`, with scratch for `n` lanes at `b`.
pub(super) fn horizontal(op: Horizontal, elem: DType) -> Option<Exec> {
    fn reduce(x: &mut [u64], f: impl Fn(u64, u64) -> u64 + Copy) -> u64 {
        let half = x.len() / 2;
        if half == 0 {
            return x.first().copied().unwrap_or(0);
        }
        for i in 0..half {
            x[i] = f(x[i], x[half + i]);
        }
        let last = (x.len() % 2 == 1).then(|| x[2 * half]);
        let most = reduce(&mut x[..half], f);
        last.map_or(most, |last| f(most, last))
    }
    macro_rules! of {
        ($t:ty, $f:ident) => {{
            fn run(s: &mut [u64], p: &Args) {
                let (a, b, n) = (p.a as usize, p.b as usize, p.n as usize);
                s.copy_within(a..a + n, b);
                let f = |x, y| Lane::bits(<$t as Lane>::$f(Lane::from_bits(x), Lane::from_bits(y)));
                s[p.d as usize] = reduce(&mut s[b..b + n], f);
            }
            run as Exec
        }};
    }
    macro_rules! all {
        ($t:ty) => {
            Some(match op {
                Horizontal::Add => of!($t, add),
                Horizontal::Mul => of!($t, mul),
                Horizontal::Min => of!($t, min),
                Horizontal::Max => of!($t, max),
            })
        };
    }
    by_type!(elem, int T => all!(T), float T => all!(T), bool => None)
}
