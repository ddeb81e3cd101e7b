//! Trigonometric and hyperbolic functions and their inverses.

use super::*;

#[test]
fn trigonometric() {
    let points = |elem| {
        // Multiples of π/2 are where the reduction loses most.
        let turns = (-4000..4000).map(|n| n as f64 * core::f64::consts::FRAC_PI_2);
        let far = (0..1000).map(|n| (n * n * 97) as f64 * core::f64::consts::FRAC_PI_2);
        let exact = |v: f64| {
            if elem == DType::F32 { v as f32 as f64 } else { v }
        };
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
    let points =
        |elem| [sweep(elem, -1.0, 1.0, 9000), magnitudes(elem, -30, 0, true), vec![1.0, -1.0, 0.5, -0.5]].concat();
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
        let exact = |v: f64| {
            if elem == DType::F32 { v as f32 as f64 } else { v }
        };
        let y: Vec<f64> = points.iter().map(|p| exact(p.0)).collect();
        let x: Vec<f64> = points.iter().map(|p| exact(p.1)).collect();
        for fused in [true, false] {
            let got = apply2(elem, fused, &(atan2 as Function2), &y, &x);
            let mut worst = 0.0f64;
            for ((y, x), got) in y.iter().zip(&x).zip(got) {
                let want = y.atan2(*x);
                let d = distance(elem, got, want);
                assert!(
                    d <= if elem == DType::F32 { 1.8 } else { 2.0 },
                    "atan2 {elem} of {y:e}, {x:e}: {got:e}, not {want:e}: {d}"
                );
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
    let points = |elem| {
        [sweep(elem, -25.0, 25.0, 5000), sweep(elem, -1.0, 1.0, 5000), magnitudes(elem, -60, 100, true)].concat()
    };
    check("tanh", tanh, f64::tanh, &points, Bound { f32: 5.1, f64: 3.0 }, false);
    exactly("sinh", sinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e9, INF)]);
    exactly("cosh", cosh, &[(0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)]);
    exactly("tanh", tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (40.0, 1.0)]);
}

#[test]
fn inverse_hyperbolic() {
    // `std` computes these itself, less exactly: good enough for `F32`, and tables for `F64`.
    let f32_only = |points: Vec<f64>| {
        move |elem| {
            if elem == DType::F32 { points.clone() } else { Vec::new() }
        }
    };
    let single = DType::F32;
    let points =
        [sweep(single, -20.0, 20.0, 6000), sweep(single, -1.0, 1.0, 6000), magnitudes(single, 4, 127, true)].concat();
    check("asinh", asinh, f64::asinh, &f32_only(points), Bound { f32: 1.6, f64: 0.0 }, false);
    let points =
        [sweep(single, 1.0, 1.5, 6000), sweep(single, 1.0, 40.0, 6000), magnitudes(single, 4, 127, false)].concat();
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
