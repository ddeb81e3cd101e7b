use super::*;
use crate::import::import;
use crate::onnx::testing::{model, node};
use crate::pack::{Options, pack};

fn packed(op: &str) -> Packed {
    let module = import(model(vec![node(op, &["x", "c"], &["y"])])).unwrap();
    let cpu = graphmend_targets::native().unwrap();
    pack(module, [0; 32], &Options::new(cpu), &mut |_, _, _| {}).unwrap()
}

#[test]
fn a_model_agrees_with_itself() {
    assert!(check(&packed("Add")).unwrap() < 1e-6);
}

#[test]
fn a_model_that_was_packed_wrongly_is_found_out() {
    let mut wrong = packed("Add");
    wrong.mended = packed("Sub").mended;
    let message = check(&wrong).unwrap_err().to_string();
    assert!(message.starts_with("internal error in check: output 'y' at ["), "{message}");
}

#[test]
fn the_tolerance_is_relative_to_element_and_tensor() {
    let of = |values: &[f64], relative| Output { shape: vec![values.len()], values: values.to_vec(), relative };
    assert!(compare("y", &of(&[100.05, 0.005], RELATIVE), &of(&[100.0, 0.0], RELATIVE), 1).is_ok());
    assert!(compare("y", &of(&[100.2, 0.0], RELATIVE), &of(&[100.0, 0.0], RELATIVE), 1).is_err());
    assert!(compare("y", &of(&[3.0], 0.0), &of(&[4.0], 0.0), 1).is_err(), "integers are exact");
    assert!(compare("y", &of(&[f64::NAN], RELATIVE), &of(&[1.0], RELATIVE), 1).is_err());
    assert!(
        compare("y", &of(&[f64::NAN, f64::INFINITY], RELATIVE), &of(&[f64::NAN, f64::INFINITY], RELATIVE), 1).is_ok()
    );
}
