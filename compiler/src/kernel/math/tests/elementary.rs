//! Exponentials, logarithms, powers and remainders.

use super::*;

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
    exactly(
        "exp2",
        exp2,
        &[(3.0, 8.0), (-10.0, 2f64.powi(-10)), (127.0, 2f64.powi(127)), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    );
    let points = |elem| {
        let (lo, hi) = if elem == DType::F32 { (-104.5, 89.5) } else { (-750.0, 711.0) };
        [sweep(elem, lo, hi, 3000), sweep(elem, -2.0, 2.0, 6000), magnitudes(elem, -100, 6, true)].concat()
    };
    check("expm1", expm1, f64::exp_m1, &points, Bound { f32: 1.5, f64: 2.0 }, false);
    exactly(
        "expm1",
        expm1,
        &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (-300.0, -1.0), (1e30, INF)],
    );
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
    exactly(
        "log1p",
        log1p,
        &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-1.5, NAN), (-INF, NAN), (NAN, NAN)],
    );
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
        let exact = |v: f64| {
            if elem == DType::F32 { v as f32 as f64 } else { v }
        };
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
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        5.5,
        -7.25,
        0.1,
        3e38,
        -1e-40,
        1e20,
        1e-20,
        INF,
        -INF,
        NAN,
        7.0,
        1e300,
        5e-324,
        f64::MAX,
        f64::MIN_POSITIVE,
    ];
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
        let exact = |v: f64| {
            if elem == DType::F32 { v as f32 as f64 } else { v }
        };
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
