//! Are two arrays equal, as far as another order of additions leaves them equal?

use graphmend::DType;
use graphmend::npy::Array;

/// How far a number may be from the expected one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// Times the expected number.
    pub relative: f64,
    /// Times the largest expected number of the array, if that is below 1.
    pub absolute: f64,
}

/// Compares element type, shape and all elements; gives the largest share of the tolerance that was used.
///
/// Integers and truth values must be equal. NaN equals NaN only, an infinity only itself.
///
/// # Errors
/// What differs, as a sentence.
pub fn compare(got: &Array, want: &Array, tolerance: Tolerance) -> Result<f64, String> {
    if got.dtype != want.dtype {
        return Err(format!("elements are {}, expected {}", got.dtype.name(), want.dtype.name()));
    }
    if got.shape != want.shape {
        return Err(format!("shape is {:?}, expected {:?}", got.shape, want.shape));
    }
    let is_float = matches!(got.dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    if !is_float {
        return if got.bytes == want.bytes { Ok(0.0) } else { Err("integers differ".into()) };
    }
    let largest = want.numbers().filter(|x| x.is_finite()).fold(0.0, |a: f64, x| a.max(x.abs()));
    let floor = tolerance.absolute * largest.min(1.0);
    let mut worst = 0.0f64;
    for (i, (g, w)) in got.numbers().zip(want.numbers()).enumerate() {
        if g == w || g.is_nan() && w.is_nan() {
            continue;
        }
        let share = (g - w).abs() / (floor + tolerance.relative * w.abs());
        // False, too, when only one of them is NaN.
        let near = share <= 1.0 && w.is_finite();
        if !near {
            return Err(format!("element {i} is {g}, expected {w} (largest {largest})"));
        }
        worst = worst.max(share);
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };

    fn floats(x: &[f32]) -> Array {
        Array { dtype: DType::F32, shape: vec![x.len()], bytes: x.iter().flat_map(|v| v.to_le_bytes()).collect() }
    }

    fn ok(got: &[f32], want: &[f32]) -> bool {
        compare(&floats(got), &floats(want), T).is_ok()
    }

    #[test]
    fn differences_within_the_tolerance_are_equal() {
        assert!(ok(&[1.0, 0.000_09], &[1.0005, 0.0]));
        assert!(!ok(&[1.0, 0.000_11], &[1.0, 0.0]));
        assert!(!ok(&[1.0], &[1.002]));
    }

    #[test]
    fn tiny_outputs_are_compared_by_their_own_scale() {
        assert!(!ok(&[1e-9, 0.0], &[1.1e-9, 0.0]));
        assert!(!ok(&[0.0, 0.0], &[1e-15, 1e-15]));
    }

    #[test]
    fn what_is_no_number_equals_only_itself() {
        assert!(ok(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY]));
        assert!(!ok(&[f32::NAN], &[1.0]));
        assert!(!ok(&[1.0], &[f32::NAN]));
        assert!(!ok(&[1.0], &[f32::INFINITY]));
        assert!(!ok(&[f32::NEG_INFINITY], &[f32::INFINITY]));
    }

    #[test]
    fn types_and_shapes_must_be_equal() {
        let x = floats(&[1.0, 2.0]);
        let other = Array { shape: vec![1, 2], ..x.clone() };
        assert!(compare(&other, &x, T).is_err());
        let other = Array { dtype: DType::I32, ..x.clone() };
        assert!(compare(&other, &x, T).is_err());
    }
}
