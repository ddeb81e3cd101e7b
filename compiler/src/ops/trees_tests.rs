use super::AttrValue::{Int as I, Ints, Tensor};
use super::testing::*;
use super::{AttrTensor, AttrValue, expand};
use crate::dtype::DType;
use crate::te::eval;
use crate::te::{Cx, OpError};
use std::sync::Arc;

fn tensor(dtype: DType, bytes: Vec<u8>) -> AttrValue {
    Tensor(AttrTensor { dtype, shape: vec![bytes.len() / dtype.size()], bytes: Arc::new(bytes) })
}

fn floats(v: &[f32]) -> AttrValue {
    tensor(DType::F32, v.iter().flat_map(|v| v.to_le_bytes()).collect())
}

/// Node 0: `x0 <= 1` ? node 1 : leaf 2; node 1: `x1` in {5, 7} ? leaf 0 : leaf 1.
fn attrs() -> Vec<(&'static str, AttrValue)> {
    vec![
        ("nodes_modes", tensor(DType::U8, vec![0, 6])),
        ("nodes_splits", floats(&[1.0, 0.0])),
        ("membership_values", floats(&[5.0, 7.0, f32::NAN])),
        ("nodes_featureids", Ints(vec![0, 1])),
        ("nodes_truenodeids", Ints(vec![1, 0])),
        ("nodes_trueleafs", Ints(vec![0, 1])),
        ("nodes_falsenodeids", Ints(vec![2, 1])),
        ("nodes_falseleafs", Ints(vec![1, 1])),
        ("nodes_missing_value_tracks_true", Ints(vec![1, 0])),
        ("leaf_targetids", Ints(vec![0, 1, 1])),
        ("leaf_weights", floats(&[10.0, 20.0, 30.0])),
        ("tree_roots", Ints(vec![0, 1])),
        ("n_targets", I(2)),
    ]
}

fn run(attrs: &[(&str, AttrValue)]) -> Result<Vec<f64>, OpError> {
    let mut cx = Cx::new();
    let x = constant(&mut cx, &value(DType::F32, &[3, 2], &[1.0, 7.0, 2.0, 6.0, f64::NAN, 5.0]));
    let mut call = call("TreeEnsemble", 5, &[Some(x)], attrs, 1);
    call.domain = "ai.onnx.ml".into();
    let y = expand(&mut cx, &call)?[0];
    let out = eval::run(&cx.program, &[], &[y]).unwrap().remove(0);
    Ok(out.bits.iter().map(|b| eval::number(out.dtype, *b)).collect())
}

#[test]
fn leaves_of_all_trees_add_up_by_target() {
    assert_eq!(run(&attrs()).unwrap(), [20.0, 0.0, 0.0, 50.0, 20.0, 0.0]);
    let mean = [attrs(), vec![("aggregate_function", I(0))]].concat();
    assert_eq!(run(&mean).unwrap(), [10.0, 0.0, 0.0, 25.0, 10.0, 0.0]);
}

#[test]
fn trees_that_never_end_or_point_nowhere_are_refused() {
    for (name, ids) in [("nodes_trueleafs", vec![0, 0]), ("tree_roots", vec![2]), ("nodes_featureids", vec![0, 9])] {
        let mut attrs = attrs();
        attrs.retain(|(n, _)| *n != name);
        attrs.push((name, Ints(ids)));
        assert!(matches!(run(&attrs), Err(OpError::Invalid(_))), "{name}");
    }
}
