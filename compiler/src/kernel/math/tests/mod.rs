//! Every function against `std` or tables, over dense sweeps and at the corners.

mod angles;
mod elementary;
mod neural;
mod reference;

use super::*;
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::interp::{Memory, Program};
use crate::kernel::ir::{Access, Buf, BufParam, Kernel, Reg};

type Function = fn(&mut Builder, Reg) -> Reg;
type Function2 = fn(&mut Builder, Reg, Reg) -> Reg;

/// A kernel that maps `n` elements of `b0` and `b1` into `b2`, `lanes` at a time.
fn kernel(elem: DType, lanes: u16, n: usize, function: &dyn Fn(&mut Builder, Reg, Reg) -> Reg) -> Kernel {
    let param = |access| BufParam { dtype: elem, access };
    let bufs = vec![param(Access::Read), param(Access::Read), param(Access::Write)];
    let mut b = Builder::new("math", bufs, 0, false);
    let (zero, end) = (b.i64(0), b.i64(n as i64));
    b.for_(zero, end, lanes as i64, |b, i| {
        let (x, y) = (b.load(Buf(0), i, 0, lanes), b.load(Buf(1), i, 0, lanes));
        let r = function(b, x, y);
        b.store(Buf(2), i, 0, r);
    });
    b.finish()
}

fn pack(elem: DType, values: &[f64]) -> Vec<u8> {
    match elem {
        DType::F32 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

/// Applies the function with vectors and with scalars, which must give the same bits.
fn apply2(
    elem: DType,
    fused: bool,
    function: &dyn Fn(&mut Builder, Reg, Reg) -> Reg,
    x: &[f64],
    y: &[f64],
) -> Vec<f64> {
    let pad = |values: &[f64]| {
        let mut values = values.to_vec();
        values.resize(values.len().next_multiple_of(4), 1.0);
        pack(elem, &values)
    };
    let (bx, by) = (pad(x), pad(y));
    let n = bx.len() / elem.size();
    let run = |lanes| {
        let kernel = kernel(elem, lanes, n, function);
        let program = if fused { Program::new(&kernel) } else { Program::without_fused_fma(&kernel) };
        let mut out = vec![0; bx.len()];
        let mut bufs = [Memory::Read(&bx), Memory::Read(&by), Memory::Write(&mut out)];
        program.unwrap().run(&mut bufs, &[], 0..0, u64::MAX).unwrap();
        out
    };
    let out = run(4);
    let scalars = run(1);
    let unpack = |out: Vec<u8>| -> Vec<f64> {
        match elem {
            DType::F32 => out.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c) as f64).collect(),
            _ => out.as_chunks::<8>().0.iter().map(|c| f64::from_le_bytes(*c)).collect(),
        }
    };
    let (mut out, scalars) = (unpack(out), unpack(scalars));
    for (v, s) in out.iter().zip(&scalars) {
        assert!(v.to_bits() == s.to_bits() || (v.is_nan() && s.is_nan()), "lanes differ from scalars: {v:e} {s:e}");
    }
    out.truncate(x.len());
    out
}

fn apply(elem: DType, fused: bool, function: Function, x: &[f64]) -> Vec<f64> {
    apply2(elem, fused, &|b, x, _| function(b, x), x, x)
}

/// The distance of representable numbers around `v`.
fn ulp(elem: DType, v: f64) -> f64 {
    let (mantissa, lowest) = if elem == DType::F32 { (23, -149) } else { (52, -1074) };
    let exponent = ((v.abs().to_bits() >> 52) as i32 - 1023).max(-1022);
    let power = (exponent - mantissa).max(lowest);
    // In two steps, since powi takes the reciprocal of what may overflow.
    2f64.powi(power / 2) * 2f64.powi(power - power / 2)
}

/// How far `got` is from `want`, in units in the last place. Both infinite or both NaN is no distance.
fn distance(elem: DType, got: f64, want: f64) -> f64 {
    let rounded = if elem == DType::F32 { want as f32 as f64 } else { want };
    if got == rounded || (got.is_nan() && want.is_nan()) {
        return if got.is_nan() || got.is_infinite() { 0.0 } else { (got - want).abs() / ulp(elem, want) };
    }
    // The last place before infinity counts as the largest number's.
    let (largest, bound) = if elem == DType::F32 { (f32::MAX as f64, 1.0) } else { (f64::MAX, 1.0) };
    if got.is_infinite() && want.abs() >= largest * (1.0 - 4.0 * f32::EPSILON as f64) && got.signum() == want.signum() {
        return bound;
    }
    if !got.is_finite() || !rounded.is_finite() {
        return f64::INFINITY;
    }
    (got - want).abs() / ulp(elem, want)
}

/// Points from `lo` to `hi`, dense and uneven, as numbers of the type.
fn sweep(elem: DType, lo: f64, hi: f64, n: usize) -> Vec<f64> {
    let exact = |v: f64| {
        if elem == DType::F32 { v as f32 as f64 } else { v }
    };
    (0..n).map(|i| exact(lo + (hi - lo) * ((i as f64 + 0.37 * (i % 7) as f64 / 7.0) / n as f64))).collect()
}

/// Points of all magnitudes from 2^`lo` to 2^`hi`, of both signs if asked.
fn magnitudes(elem: DType, lo: i32, hi: i32, signs: bool) -> Vec<f64> {
    let mut out = Vec::new();
    for e in lo * 4..hi * 4 {
        let v = (e as f64 / 4.0 + 0.01 * (e % 5) as f64).exp2();
        let v = if elem == DType::F32 { v as f32 as f64 } else { v };
        out.push(v);
        if signs {
            out.push(-v);
        }
    }
    out
}

struct Bound {
    f32: f64,
    f64: f64,
}

/// Asserts that the function keeps to its bounds for both types, with and without fused multiply-add. `flush`: results
/// below the second smallest power of two may be 0.
fn check(
    name: &str,
    function: Function,
    want: fn(f64) -> f64,
    points: &dyn Fn(DType) -> Vec<f64>,
    bound: Bound,
    flush: bool,
) {
    for (elem, bound) in [(DType::F32, bound.f32), (DType::F64, bound.f64)] {
        let least = if elem == DType::F32 { 2f64.powi(-125) } else { 2f64.powi(-1021) };
        let x = points(elem);
        for fused in [true, false] {
            let mut worst = (0.0, 0.0, 0.0, 0.0);
            for (x, got) in x.iter().zip(apply(elem, fused, function, &x)) {
                let want = want(*x);
                if flush && want.abs() < least && (got - want).abs() <= least {
                    continue;
                }
                let d = distance(elem, got, want);
                if d > worst.0 || d.is_nan() {
                    worst = (d, *x, got, want);
                }
            }
            let (d, x, got, want) = worst;
            if std::env::var_os("SHOW_ULPS").is_some() {
                println!("{name} {elem} {}: {d:.3} at {x:e}", if fused { "fused" } else { "plain" });
            }
            assert!(d <= bound, "{name} {elem} fused {fused}: {d} units at {x:e}: {got:e}, not {want:e}");
        }
    }
}

/// Values that must come out exactly, NaN for NaN and the sign of zero included.
fn exactly(name: &str, function: Function, cases: &[(f64, f64)]) {
    for elem in [DType::F32, DType::F64] {
        let x: Vec<f64> = cases.iter().map(|c| c.0).collect();
        for ((x, want), got) in cases.iter().zip(apply(elem, true, function, &x)) {
            let want = if elem == DType::F32 { *want as f32 as f64 } else { *want };
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{name} {elem} of {x:e}: {got:e}, not {want:e}");
        }
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn against_table(name: &str, function: Function, table: &[(f64, f64)], bound: f64) {
    let x: Vec<f64> = table.iter().map(|row| row.0).collect();
    for fused in [true, false] {
        let mut worst = 0.0f64;
        for ((x, want), got) in table.iter().zip(apply(DType::F64, fused, function, &x)) {
            let d = distance(DType::F64, got, *want);
            assert!(d <= bound, "{name} f64 fused {fused} of {x:e}: {got:e}, not {want:e}: {d}");
            worst = worst.max(d);
        }
        if std::env::var_os("SHOW_ULPS").is_some() {
            println!("{name} f64 table {fused}: {worst:.3}");
        }
    }
}

#[test]
#[should_panic(expected = "a math function of i64")]
fn integers_are_refused() {
    let mut b = Builder::new("int", Vec::new(), 1, false);
    let x = b.scalar(0);
    exp(&mut b, x);
}

#[test]
fn math_kernels_read_back_from_their_text() {
    for elem in [DType::F32, DType::F64] {
        for function in [exp, expm1, log, log1p, sin, tan, acos, atan, sinh, tanh, acosh, erf, gelu, mish] {
            let kernel = kernel(elem, 4, 64, &|b, x, _| function(b, x));
            assert_eq!(crate::kernel::verify::verify(&kernel), Ok(()));
            assert_eq!(crate::kernel::text::parse(&kernel.to_string()), Ok(kernel));
        }
        for function in [pow, atan2, fmod] {
            let kernel = kernel(elem, 4, 64, &function);
            assert_eq!(crate::kernel::text::parse(&kernel.to_string()), Ok(kernel));
        }
    }
}
