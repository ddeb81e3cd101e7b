use super::AttrValue::{Float, Floats, Int as I, Ints, Str};
use super::testing::*;
use super::{AttrValue, expand};
use crate::dtype::DType;
use crate::te::eval;
use crate::te::{Cx, OpError};

fn numbers(domain: &str, op: &str, x: &Value, attrs: &[(&str, AttrValue)]) -> Result<Vec<f64>, OpError> {
    let mut cx = Cx::new();
    let x = constant(&mut cx, x);
    let mut call = call(op, 9, &[Some(x)], attrs, 1);
    call.domain = domain.into();
    let y = expand(&mut cx, &call)?[0];
    let out = eval::run(&cx.program, &[], &[y]).unwrap().remove(0);
    Ok(out.bits.iter().map(|b| eval::number(out.dtype, *b)).collect())
}

/// Unigrams 2, 3, 5, 4 and bigrams (5, 6), (7, 8), (6, 7).
fn pool(skips: i64, lengths: (i64, i64), mode: &str) -> Vec<(&'static str, AttrValue)> {
    vec![
        ("pool_int64s", Ints(vec![2, 3, 5, 4, 5, 6, 7, 8, 6, 7])),
        ("ngram_counts", Ints(vec![0, 4])),
        ("ngram_indexes", Ints(vec![0, 1, 2, 3, 4, 5, 6])),
        ("weights", Floats(vec![1.0, 2.0, 3.0, 4.0, 0.5, 6.0, 7.0])),
        ("max_skip_count", I(skips)),
        ("min_gram_length", I(lengths.0)),
        ("max_gram_length", I(lengths.1)),
        ("mode", Str(mode.into())),
    ]
}

#[test]
fn n_grams_are_counted_over_all_skips() {
    let x = value(DType::I32, &[2, 6], &[1.0, 1.0, 3.0, 3.0, 3.0, 7.0, 8.0, 6.0, 7.0, 5.0, 6.0, 8.0]);
    let y = |skips, lengths, mode| numbers("", "TfIdfVectorizer", &x, &pool(skips, lengths, mode)).unwrap();
    assert_eq!(y(0, (2, 2), "TF"), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
    assert_eq!(y(5, (1, 2), "TF"), [0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(y(5, (1, 2), "IDF")[..7], [0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(y(0, (1, 1), "TFIDF")[..7], [0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn n_gram_tables_that_do_not_fit_are_refused() {
    let x = value(DType::I32, &[6], &[0.0; 6]);
    let mut attrs = pool(0, (1, 2), "TF");
    attrs[1].1 = Ints(vec![0, 3]);
    assert!(matches!(numbers("", "TfIdfVectorizer", &x, &attrs), Err(OpError::Invalid(_))));
    attrs[1].1 = Ints(vec![0, 99]);
    assert!(matches!(numbers("", "TfIdfVectorizer", &x, &attrs), Err(OpError::Invalid(_))));
}

#[test]
fn classical_features_are_rescaled_and_replaced() {
    let ml = |op, x: &Value, attrs: &[_]| numbers("ai.onnx.ml", op, x, attrs).unwrap();
    let x = value(DType::F32, &[2, 2], &[3.0, 4.0, 0.0, 0.0]);
    assert_eq!(ml("Binarizer", &x, &[("threshold", Float(3.0))]), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(ml("Normalizer", &x, &[("norm", Str("L2".into()))]), [0.6f32.into(), 0.8f32.into(), 0.0, 0.0]);
    let attrs = [("offset", Floats(vec![1.0, 2.0])), ("scale", Floats(vec![2.0]))];
    assert_eq!(ml("Scaler", &x, &attrs), [4.0, 4.0, -2.0, -4.0]);
    let attrs = [("imputed_value_floats", Floats(vec![8.0, 9.0]))];
    assert_eq!(ml("Imputer", &x, &attrs), [3.0, 4.0, 8.0, 9.0]);
    let attrs = [
        ("coefficients", Floats(vec![1.0, 1.0, 2.0, -1.0])),
        ("targets", I(2)),
        ("intercepts", Floats(vec![0.5, 1.0])),
    ];
    assert_eq!(ml("LinearRegressor", &x, &attrs), [7.5, 3.0, 0.5, 1.0]);
}
