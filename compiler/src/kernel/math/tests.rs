use super::reference;
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
fn apply2(elem: DType, fused: bool, function: &dyn Fn(&mut Builder, Reg, Reg) -> Reg, x: &[f64], y: &[f64]) -> Vec<f64> {
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
    let exact = |v: f64| if elem == DType::F32 { v as f32 as f64 } else { v };
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
fn check(name: &str, function: Function, want: fn(f64) -> f64, points: &dyn Fn(DType) -> Vec<f64>, bound: Bound, flush: bool) {
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

#[test]
fn exponentials() {
    let points = |elem| {
        let (lo, hi) = if elem == DType::F32 { (-104.5, 89.5) } else { (-750.0, 711.0) };
        [sweep(elem, lo, hi, 6000), sweep(elem, -1.0, 1.0, 3000), magnitudes(elem, -40, 0, true)].concat()
    };
    check("exp", exp, f64::exp, &points, Bound { f32: 1.1, f64: 1.0 }, true);
    exactly("exp", exp, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e30, INF), (-1e30, 0.0)]);
    let points = |elem| {
        let (lo, hi) = if elem == DType::F32 { (-150.5, 128.5) } else { (-1080.0, 1025.0) };
        [sweep(elem, lo, hi, 6000), sweep(elem, -1.0, 1.0, 3000)].concat()
    };
    check("exp2", exp2, f64::exp2, &points, Bound { f32: 1.1, f64: 1.0 }, true);
    exactly("exp2", exp2, &[(3.0, 8.0), (-10.0, 2f64.powi(-10)), (127.0, 2f64.powi(127)), (INF, INF), (-INF, 0.0), (NAN, NAN)]);
    let points = |elem| {
        let (lo, hi) = if elem == DType::F32 { (-104.5, 89.5) } else { (-750.0, 711.0) };
        [sweep(elem, lo, hi, 3000), sweep(elem, -2.0, 2.0, 6000), magnitudes(elem, -100, 6, true)].concat()
    };
    check("expm1", expm1, f64::exp_m1, &points, Bound { f32: 1.5, f64: 2.0 }, false);
    exactly("expm1", expm1, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (-300.0, -1.0), (1e30, INF)]);
}

#[test]
fn logarithms() {
    let points = |elem| {
        let span = if elem == DType::F32 { (-149, 128) } else { (-1070, 1023) };
        [magnitudes(elem, span.0, span.1, false), sweep(elem, 0.4, 2.5, 8000), sweep(elem, 0.99, 1.01, 2000)].concat()
    };
    check("log", log, f64::ln, &points, Bound { f32: 0.8, f64: 1.0 }, false);
    exactly("log", log, &[(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)]);
    let points = |elem| {
        let high = if elem == DType::F32 { 128 } else { 1023 };
        [magnitudes(elem, -100, high, false), magnitudes(elem, -60, -1, true), sweep(elem, -0.9999, 2.0, 8000)].concat()
    };
    check("log1p", log1p, f64::ln_1p, &points, Bound { f32: 1.4, f64: 1.0 }, false);
    exactly("log1p", log1p, &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-1.5, NAN), (-INF, NAN), (NAN, NAN)]);
}

#[test]
fn trigonometric() {
    let points = |elem| {
        // Multiples of π/2 are where the reduction loses most.
        let turns = (-4000..4000).map(|n| n as f64 * core::f64::consts::FRAC_PI_2);
        let far = (0..1000).map(|n| (n * n * 97) as f64 * core::f64::consts::FRAC_PI_2);
        let exact = |v: f64| if elem == DType::F32 { v as f32 as f64 } else { v };
        let near = [sweep(elem, -10.0, 10.0, 6000), sweep(elem, -1e5, 1e5, 4000), magnitudes(elem, -30, 29, true)];
        let mut out = near.concat();
        out.extend(turns.chain(far).map(exact));
        out
    };
    check("sin", sin, f64::sin, &points, Bound { f32: 0.51, f64: 1.0 }, false);
    check("cos", cos, f64::cos, &points, Bound { f32: 0.51, f64: 1.0 }, false);
    check("tan", tan, f64::tan, &points, Bound { f32: 0.51, f64: 2.0 }, false);
    let odd = [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)];
    exactly("sin", sin, &odd);
    exactly("tan", tan, &odd);
    exactly("cos", cos, &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]);
    for elem in [DType::F32, DType::F64] {
        let huge = magnitudes(elem, 29, 127, true);
        for function in [sin, cos] {
            let y = apply(elem, true, function, &huge);
            assert!(y.iter().all(|y| y.abs() <= 1.0), "{elem} {y:?}");
        }
    }
}

#[test]
fn inverse_trigonometric() {
    let points = |elem| [sweep(elem, -1.0, 1.0, 9000), magnitudes(elem, -30, 0, true), vec![1.0, -1.0, 0.5, -0.5]].concat();
    check("asin", asin, f64::asin, &points, Bound { f32: 1.5, f64: 1.0 }, false);
    check("acos", acos, f64::acos, &points, Bound { f32: 1.2, f64: 1.0 }, false);
    exactly("asin", asin, &[(0.0, 0.0), (-0.0, -0.0), (1.1, NAN), (-2.0, NAN), (INF, NAN), (NAN, NAN)]);
    exactly("acos", acos, &[(1.0, 0.0), (1.1, NAN), (-2.0, NAN), (-INF, NAN), (NAN, NAN)]);
    let points = |elem| [sweep(elem, -6.0, 6.0, 9000), magnitudes(elem, -60, 100, true)].concat();
    check("atan", atan, f64::atan, &points, Bound { f32: 1.7, f64: 1.0 }, false);
    let half = core::f64::consts::FRAC_PI_2;
    exactly("atan", atan, &[(0.0, 0.0), (-0.0, -0.0), (INF, half), (-INF, -half), (NAN, NAN)]);
}

#[test]
fn angles_of_points() {
    let special = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-40, -1e-40, 3e38, -3e38, 2.5, 1e-300, 1e308];
    let mut points: Vec<(f64, f64)> = special.iter().flat_map(|y| special.map(|x| (*y, x))).collect();
    points.extend((0..20000).map(|i| {
        let (angle, size) = (i as f64 * 0.001234, (i % 23) as f64 - 11.0);
        (angle.sin() * size.exp2(), angle.cos() * size.exp2())
    }));
    for elem in [DType::F32, DType::F64] {
        let exact = |v: f64| if elem == DType::F32 { v as f32 as f64 } else { v };
        let y: Vec<f64> = points.iter().map(|p| exact(p.0)).collect();
        let x: Vec<f64> = points.iter().map(|p| exact(p.1)).collect();
        for fused in [true, false] {
            let got = apply2(elem, fused, &(atan2 as Function2), &y, &x);
            let mut worst = 0.0f64;
            for ((y, x), got) in y.iter().zip(&x).zip(got) {
                let want = y.atan2(*x);
                let d = distance(elem, got, want);
                assert!(d <= if elem == DType::F32 { 1.8 } else { 2.0 }, "atan2 {elem} of {y:e}, {x:e}: {got:e}, not {want:e}: {d}");
                assert!(got.is_nan() || got.is_sign_negative() == want.is_sign_negative(), "{y:e} {x:e}: {got:e}");
                worst = worst.max(d);
            }
            if std::env::var_os("SHOW_ULPS").is_some() {
                println!("atan2 {elem} {fused}: {worst:.3}");
            }
        }
    }
}

#[test]
fn hyperbolic() {
    let points = |elem| {
        let end = if elem == DType::F32 { 90.0 } else { 711.0 };
        [sweep(elem, -end, end, 5000), sweep(elem, -2.0, 2.0, 5000), magnitudes(elem, -60, 6, true)].concat()
    };
    check("sinh", sinh, f64::sinh, &points, Bound { f32: 1.5, f64: 2.0 }, false);
    check("cosh", cosh, f64::cosh, &points, Bound { f32: 1.4, f64: 2.0 }, false);
    let points = |elem| [sweep(elem, -25.0, 25.0, 5000), sweep(elem, -1.0, 1.0, 5000), magnitudes(elem, -60, 100, true)].concat();
    check("tanh", tanh, f64::tanh, &points, Bound { f32: 5.1, f64: 3.0 }, false);
    exactly("sinh", sinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e9, INF)]);
    exactly("cosh", cosh, &[(0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)]);
    exactly("tanh", tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (40.0, 1.0)]);
}

#[test]
fn inverse_hyperbolic() {
    // `std` computes these itself, less exactly: good enough for `F32`, and tables for `F64`.
    let f32_only = |points: Vec<f64>| move |elem| if elem == DType::F32 { points.clone() } else { Vec::new() };
    let single = DType::F32;
    let points = [sweep(single, -20.0, 20.0, 6000), sweep(single, -1.0, 1.0, 6000), magnitudes(single, 4, 127, true)].concat();
    check("asinh", asinh, f64::asinh, &f32_only(points), Bound { f32: 1.6, f64: 0.0 }, false);
    let points = [sweep(single, 1.0, 1.5, 6000), sweep(single, 1.0, 40.0, 6000), magnitudes(single, 4, 127, false)].concat();
    let acosh_reference = |x: f64| {
        let t = x - 1.0;
        if x > 1e8 { x.acosh() } else { (t + (t * (t + 2.0)).sqrt()).ln_1p() }
    };
    check("acosh", acosh, acosh_reference, &f32_only(points), Bound { f32: 2.1, f64: 0.0 }, false);
    let points = [sweep(single, -0.9999, 0.9999, 9000), magnitudes(single, -20, 0, true)].concat();
    let atanh_reference = |x: f64| 0.5 * (2.0 * x / (1.0 - x)).ln_1p();
    check("atanh", atanh, atanh_reference, &f32_only(points), Bound { f32: 1.8, f64: 0.0 }, false);
    for (name, function, table) in [
        ("asinh", asinh as Function, &reference::ASINH[..]),
        ("acosh", acosh, &reference::ACOSH),
        ("atanh", atanh, &reference::ATANH),
    ] {
        against_table(name, function, table, 1.0);
    }
    exactly("asinh", asinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)]);
    exactly("acosh", acosh, &[(1.0, 0.0), (INF, INF), (0.5, NAN), (-3.0, NAN), (-INF, NAN), (NAN, NAN)]);
    exactly("atanh", atanh, &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-2.0, NAN), (NAN, NAN)]);
}

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
fn error_function() {
    against_table("erf", erf, &reference::ERF, 1.0);
    // With that, the `F64` function is the reference for `F32`.
    let x = [sweep(DType::F32, -5.0, 5.0, 9000), magnitudes(DType::F32, -40, 10, true)].concat();
    let want = apply(DType::F64, true, erf, &x);
    for fused in [true, false] {
        let worst = x
            .iter()
            .zip(apply(DType::F32, fused, erf, &x))
            .zip(&want)
            .map(|((x, got), want)| (distance(DType::F32, got, *want), *x))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        if std::env::var_os("SHOW_ULPS").is_some() {
            println!("erf f32 {fused}: {worst:?}");
        }
        assert!(worst.0 <= 5.1, "{worst:?}");
    }
    exactly("erf", erf, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (7.0, 1.0), (-30.0, -1.0)]);
}

#[test]
fn activations() {
    let wide = |elem| [sweep(elem, -80.0, 80.0, 5000), sweep(elem, -4.0, 4.0, 5000)].concat();
    check("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), &wide, Bound { f32: 1.9, f64: 2.0 }, true);
    check("silu", silu, |x| x / (1.0 + (-x).exp()), &wide, Bound { f32: 1.9, f64: 2.0 }, true);
    let softplus_reference = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    check("softplus", softplus, softplus_reference, &wide, Bound { f32: 1.5, f64: 2.0 }, true);
    let mish_reference = |x: f64| x * (x.max(0.0) + (-x.abs()).exp().ln_1p()).tanh();
    check("mish", mish, mish_reference, &wide, Bound { f32: 5.1, f64: 4.0 }, true);
    exactly("sigmoid", sigmoid, &[(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (-1000.0, 0.0), (1000.0, 1.0)]);
    exactly("softplus", softplus, &[(INF, INF), (-INF, 0.0), (NAN, NAN), (1000.0, 1000.0)]);
    // Where 1 + erf cancels, the error is one of the whole: a few units of the last place of x.
    for (function, reference) in [
        (gelu as Function, (|x: f64, e: f64| 0.5 * x * (1.0 + e)) as fn(f64, f64) -> f64),
        (gelu_tanh, |x, _| 0.5 * x * (1.0 + (0.7978845608028654 * (x + 0.044715 * x * x * x)).tanh())),
    ] {
        for elem in [DType::F32, DType::F64] {
            let x = sweep(elem, -9.0, 9.0, 4000);
            let scaled: Vec<f64> = x.iter().map(|x| x * core::f64::consts::FRAC_1_SQRT_2).collect();
            let e = apply(DType::F64, true, erf, &scaled);
            for ((x, e), got) in x.iter().zip(e).zip(apply(elem, true, function, &x)) {
                let want = reference(*x, e);
                assert!((got - want).abs() <= 3.0 * ulp(elem, *x), "{elem} {x}: {got:e}, not {want:e}");
            }
        }
        exactly("gelu", function, &[(0.0, 0.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e20, 1e20), (-1e20, 0.0)]);
    }
}

#[test]
fn powers() {
    let special = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1e15, -1e15, 2.5, INF, -INF, NAN];
    let mut points: Vec<(f64, f64)> = special.iter().flat_map(|x| special.map(|y| (*x, y))).collect();
    for i in 0..15000 {
        let x = ((i % 1009) as f64 * 0.05 - 25.0).exp2() * if i % 5 == 0 { -1.0 } else { 1.0 };
        let y = if i % 3 == 0 { (i % 41) as f64 - 20.0 } else { (i % 613) as f64 * 0.021 - 6.4 };
        points.push((x, y));
        points.push((1.0 + (i as f64 - 7500.0) * 1e-4, (i % 211) as f64 * 4.7 - 490.0));
    }
    for elem in [DType::F32, DType::F64] {
        let exact = |v: f64| if elem == DType::F32 { v as f32 as f64 } else { v };
        let x: Vec<f64> = points.iter().map(|p| exact(p.0)).collect();
        let y: Vec<f64> = points.iter().map(|p| exact(p.1)).collect();
        let bound = if elem == DType::F32 { 0.51 } else { 1.0 };
        for fused in [true, false] {
            let mut worst = (0.0, 0.0, 0.0);
            for ((x, y), got) in x.iter().zip(&y).zip(apply2(elem, fused, &(pow as Function2), &x, &y)) {
                let want = x.powf(*y);
                if want.abs() < 2f64.powi(-1021) && got.abs() <= 2f64.powi(-1021) {
                    assert!(got.is_sign_negative() == want.is_sign_negative(), "pow({x:e}, {y:e}) = {got:e}");
                    continue;
                }
                let d = distance(elem, got, want);
                assert!(d <= bound, "pow({x:e}, {y:e}) {elem} fused {fused}: {got:e}, not {want:e}: {d}");
                if d > worst.0 {
                    worst = (d, *x, *y);
                }
            }
            if std::env::var_os("SHOW_ULPS").is_some() {
                println!("pow {elem} {fused}: {worst:?}");
            }
        }
    }
    let (x, y): (Vec<f64>, Vec<f64>) = reference::POW.iter().map(|row| (row.0, row.1)).unzip();
    for (row, got) in reference::POW.iter().zip(apply2(DType::F64, true, &(pow as Function2), &x, &y)) {
        assert!(distance(DType::F64, got, row.2) <= 2.0, "pow({:e}, {:e}) = {got:e}, not {:e}", row.0, row.1, row.2);
    }
}

#[test]
fn remainders_are_exact() {
    let special = [0.0, -0.0, 1.0, -1.0, 5.5, -7.25, 0.1, 3e38, -1e-40, 1e20, 1e-20, INF, -INF, NAN, 7.0, 1e300, 5e-324, f64::MAX, f64::MIN_POSITIVE];
    let mut points: Vec<(f64, f64)> = special.iter().flat_map(|x| special.map(|y| (*x, y))).collect();
    for i in 0..4000 {
        let x = ((i % 257) as f64 - 128.0).exp2() * (1.0 + i as f64 * 1e-3);
        let y = ((i % 101) as f64 * 2.3 - 115.0).exp2() * (1.0 + i as f64 * 0.00127);
        points.push((if i % 2 == 0 { x } else { -x }, y));
        points.push(((i * 37 % 1000) as f64, (i % 13) as f64));
        // Quotients a rounding away from an integer.
        let divisor = 1.0 + i as f64 * 0.3;
        points.push(((divisor * (i % 977) as f64).next_down(), divisor));
    }
    for elem in [DType::F32, DType::F64] {
        let exact = |v: f64| if elem == DType::F32 { v as f32 as f64 } else { v };
        let x: Vec<f64> = points.iter().map(|p| exact(p.0)).collect();
        let y: Vec<f64> = points.iter().map(|p| exact(p.1)).collect();
        for fused in [true, false] {
            for ((x, y), got) in x.iter().zip(&y).zip(apply2(elem, fused, &(fmod as Function2), &x, &y)) {
                let want = x % y;
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(same, "fmod({x:e}, {y:e}) {elem}: {got:e}, not {want:e}");
            }
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
