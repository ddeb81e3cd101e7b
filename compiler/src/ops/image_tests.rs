use super::AttrValue::{Float as F, Int as I, Ints, Str};
use super::testing::*;
use crate::dtype::DType;
use crate::sym::Int;
use crate::te::Cx;

fn data(v: &Value) -> Vec<i64> {
    v.data.iter().map(|x| *x as i64).collect()
}

fn s(v: &str) -> super::AttrValue {
    Str(v.into())
}

fn floats(v: &[f64]) -> Value {
    value(DType::F32, &[v.len()], v)
}

fn close(a: &Value, want: &[f64]) {
    assert_eq!(a.data.len(), want.len());
    for (x, y) in a.data.iter().zip(want) {
        assert!((x - y).abs() < 1e-6, "{:?} instead of {want:?}", a.data);
    }
}

/// Resize with sizes (opset 19).
fn to_sizes(x: Value, sizes: &[i64], attrs: &[(&str, super::AttrValue)]) -> Value {
    run("Resize", 19, &[Some(x), None, None, Some(list(sizes))], attrs, 1).unwrap().remove(0)
}

/// Resize with scales (opset 19).
fn by_scales(x: Value, scales: &[f64], attrs: &[(&str, super::AttrValue)]) -> Value {
    run("Resize", 19, &[Some(x), None, Some(floats(scales))], attrs, 1).unwrap().remove(0)
}

#[test]
fn exact_ties_between_pixels_go_where_the_mode_says() {
    let at = |mode: &str| data(&to_sizes(counting(&[28]), &[6], &[("nearest_mode", s(mode))]));
    assert_eq!(at("round_prefer_ceil"), [2, 7, 11, 16, 21, 25]);
    assert_eq!(at("round_prefer_floor"), [2, 6, 11, 16, 20, 25]);
}

#[test]
fn doubling_by_nearest_is_plain_index_arithmetic() {
    let mut cx = Cx::new();
    let h = Int::symbol("h", Some(1), None);
    let x = cx.input("x", DType::F32, vec![Int::new(1), Int::new(1), h, Int::new(4)]);
    let scales = cx.constant_f32(&[4], &[1.0, 1.0, 2.0, 2.0]);
    let attrs = [("coordinate_transformation_mode", s("asymmetric")), ("nearest_mode", s("floor"))];
    let out = super::expand(&mut cx, &call("Resize", 13, &[Some(x), None, Some(scales)], &attrs, 1)).unwrap();
    assert_eq!(cx.shape(out[0]), [Int::new(1), Int::new(1), h * 2, Int::new(8)]);
    assert_eq!(cx.program.tensors.len(), 3, "no tables");
}

#[test]
fn linear_resizing_maps_coordinates() {
    let x = counting(&[1, 1, 1, 4]);
    let half = by_scales(x.clone(), &[1.0, 1.0, 1.0, 2.0], &[("mode", s("linear"))]);
    close(&half, &[0.0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3.0]);
    let corners = [("mode", s("linear")), ("coordinate_transformation_mode", s("align_corners"))];
    close(&to_sizes(x.clone(), &[1, 1, 1, 7], &corners), &[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
    // Shrinking with antialias averages over more than two neighbours.
    let shrunk = to_sizes(x, &[1, 1, 1, 2], &[("mode", s("linear")), ("antialias", I(1))]);
    close(&shrunk, &[0.625, 2.375]);
}

#[test]
fn integers_are_rounded_and_kept_within_their_type() {
    let x = value(DType::U8, &[2], &[0.0, 255.0]);
    let attrs = [("mode", s("cubic")), ("cubic_coeff_a", F(-0.75))];
    let out = by_scales(x, &[2.0], &attrs);
    assert_eq!(data(&out), [0, 58, 197, 255]);
}

#[test]
fn aspect_ratio_is_kept_by_one_scale() {
    let shape = |policy: &str| to_sizes(counting(&[4, 10]), &[8, 8], &[("keep_aspect_ratio_policy", s(policy))]).shape;
    assert_eq!(shape("stretch"), [8, 8]);
    assert_eq!(shape("not_larger"), [3, 8]);
    assert_eq!(shape("not_smaller"), [8, 20]);
}

#[test]
fn old_upsampling_repeats_elements() {
    let x = counting(&[1, 1, 1, 2]);
    let out = run1(
        "Upsample",
        7,
        std::slice::from_ref(&x),
        &[("scales", super::AttrValue::Floats(vec![1.0, 1.0, 2.0, 2.0]))],
    );
    assert_eq!((out.shape.clone(), data(&out)), (vec![1, 1, 2, 4], vec![0, 0, 1, 1, 0, 0, 1, 1]));
    let out = run1("Resize", 10, &[x, floats(&[1.0, 1.0, 1.0, 1.5])], &[]);
    assert_eq!(data(&out), [0, 0, 1]);
}

#[test]
fn grids_sample_beyond_the_borders() {
    let x = counting(&[1, 1, 1, 3]);
    let at = |mode: &str, padding: &str, p: f64| {
        let grid = value(DType::F32, &[1, 1, 1, 2], &[p, 0.0]);
        let attrs = [("mode", s(mode)), ("padding_mode", s(padding)), ("align_corners", I(1))];
        run1("GridSample", 20, &[x.clone(), grid], &attrs).data[0]
    };
    assert_eq!(at("linear", "zeros", 0.5), 1.5);
    assert_eq!(at("linear", "zeros", 1.5), 1.0);
    assert_eq!(at("linear", "border", 7.0), 2.0);
    assert_eq!(at("linear", "reflection", 1.5), 1.5);
    assert_eq!(at("nearest", "zeros", 1.2), 2.0);
    assert_eq!(at("nearest", "zeros", f64::NAN), 0.0);
}

#[test]
fn affine_identity_gives_the_normalized_positions() {
    let theta = value(DType::F32, &[1, 2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    let out = run1("AffineGrid", 20, &[theta, list(&[1, 1, 1, 2])], &[("align_corners", I(0))]);
    close(&out, &[-0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn overlapping_columns_are_summed() {
    // Two windows of two cells over three: the middle cell is in both.
    let x = value(DType::F32, &[1, 2, 2], &[1.0, 2.0, 10.0, 20.0]);
    assert_eq!(data(&run1("Col2Im", 18, &[x, list(&[3]), list(&[2])], &[])), [1, 12, 20]);
}

#[test]
fn columns_of_bool_are_not_summed() {
    let x = Some(value(DType::Bool, &[1, 2, 2], &[1.0, 0.0, 1.0, 0.0]));
    let sizes = |n| Some(list(&[n]));
    let refused = run_at_run_time("Col2Im", 18, &[x, sizes(3), sizes(2)], &[], 1).unwrap_err();
    assert!(refused.contains("bool"), "{refused}");
}

#[test]
fn unpooled_elements_return_to_their_places() {
    let x = value(DType::F32, &[1, 1, 2], &[5.0, 7.0]);
    let at = value(DType::I64, &[1, 1, 2], &[1.0, 2.0]);
    let attrs = [("kernel_shape", Ints(vec![2])), ("strides", Ints(vec![2]))];
    assert_eq!(data(&run1("MaxUnpool", 11, &[x, at], &attrs)), [0, 5, 7, 0]);
}

#[test]
fn regions_are_pooled() {
    let x = counting(&[1, 1, 4, 4]);
    let roi = value(DType::F32, &[1, 4], &[0.0, 0.0, 2.0, 2.0]);
    let attrs = [("sampling_ratio", I(1)), ("output_height", I(2)), ("output_width", I(2))];
    let out = run1("RoiAlign", 16, &[x.clone(), roi.clone(), list(&[0])], &attrs);
    assert_eq!(data(&out), [0, 1, 4, 5]);
    let shifted = run1("RoiAlign", 10, &[x.clone(), roi, list(&[0])], &attrs);
    assert_eq!(shifted.data, [2.5, 3.5, 6.5, 7.5]);
    let roi = value(DType::F32, &[1, 5], &[0.0, 0.0, 0.0, 2.0, 2.0]);
    let out = run1("MaxRoiPool", 22, &[x, roi], &[("pooled_shape", Ints(vec![1, 1]))]);
    assert_eq!(data(&out), [10]);
}

#[test]
fn deformed_convolution_without_offsets_is_a_convolution() {
    let x = counting(&[1, 1, 3, 3]);
    let w = value(DType::F32, &[1, 1, 2, 2], &[1.0, 1.0, 1.0, 1.0]);
    let zeros = value(DType::F32, &[1, 8, 2, 2], &[0.0; 32]);
    assert_eq!(data(&run1("DeformConv", 19, &[x.clone(), w.clone(), zeros], &[])), [8, 12, 20, 24]);
    let half = value(DType::F32, &[1, 8, 2, 2], &[0.5; 32]);
    assert_eq!(run1("DeformConv", 19, &[x, w, half], &[]).data[0], 16.0);
}

#[test]
fn transforms_are_inverted() {
    let x = value(DType::F32, &[1, 5, 1], &[1.0, -2.0, 3.0, 0.5, 4.0]);
    let axis = value(DType::I64, &[], &[1.0]);
    let with = |x: Value, attrs: &[(&str, super::AttrValue)], n: Option<Value>| {
        run("DFT", 20, &[Some(x), n, Some(axis.clone())], attrs, 1).unwrap().remove(0)
    };
    let spectrum = with(x.clone(), &[], None);
    close(&value(DType::F32, &[2], &spectrum.data[..2]), &[6.5, 0.0]);
    let back = with(spectrum, &[("inverse", I(1))], None);
    close(&back, &[1.0, 0.0, -2.0, 0.0, 3.0, 0.0, 0.5, 0.0, 4.0, 0.0]);
    let half = with(x.clone(), &[("onesided", I(1))], None);
    assert_eq!(half.shape, [1, 3, 2]);
    let n = Some(value(DType::I64, &[], &[5.0]));
    let back = with(half, &[("onesided", I(1)), ("inverse", I(1))], n);
    close(&back, &x.data);
}

#[test]
fn fast_transforms_are_sums_of_turned_elements() {
    for (n, inverse, complex) in [(10, true, true), (12, false, false), (16, false, true), (30, true, false)] {
        let parts = 1 + usize::from(complex);
        let data: Vec<f64> = (0..2 * n * parts).map(|k| f64::from(((k * k * 7 + 3 * k) % 19) as f32 - 9.0)).collect();
        let x = value(DType::F32, &[2, n, parts], &data);
        let got = run1("DFT", 19, &[x], &[("axis", I(1)), ("inverse", I(inverse.into()))]);
        let (sign, scale) = if inverse { (1.0, n as f64) } else { (-1.0, 1.0) };
        let mut want = vec![];
        for (signal, bin) in (0..2).flat_map(|signal| (0..n).map(move |bin| (signal, bin))) {
            let (mut re, mut im) = (0.0, 0.0);
            for t in 0..n {
                let at = |part: usize| if part < parts { data[(signal * n + t) * parts + part] } else { 0.0 };
                let (s, c) = (sign * std::f64::consts::TAU * (bin * t) as f64 / n as f64).sin_cos();
                re += at(0) * c - at(1) * s;
                im += at(0) * s + at(1) * c;
            }
            want.extend([re / scale, im / scale]);
        }
        assert_eq!(got.shape, [2, n, 2]);
        for (k, (a, b)) in got.data.iter().zip(&want).enumerate() {
            assert!((a - b).abs() <= 2e-5, "length {n}, element {k}: {a} instead of {b}");
        }
    }
}

#[test]
fn windows_and_frames() {
    let hann = run1("HannWindow", 17, &[value(DType::I32, &[], &[4.0])], &[]);
    close(&hann, &[0.0, 0.5, 1.0, 0.5]);
    let step = value(DType::I64, &[], &[2.0]);
    let x = value(DType::F32, &[1, 6, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let out = run("STFT", 17, &[Some(x), Some(step), Some(hann)], &[], 1).unwrap().remove(0);
    assert_eq!(out.shape, [1, 2, 3, 2]);
    // The first frame is 0, 1, 3, 2.
    close(&value(DType::F32, &[6], &out.data[..6]), &[6.0, 0.0, -3.0, 1.0, 0.0, 0.0]);
}
