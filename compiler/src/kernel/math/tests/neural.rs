//! The error function and activations.

use super::*;

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
