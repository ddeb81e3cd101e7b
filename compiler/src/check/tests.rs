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
    let outcome = check(&packed("Add")).unwrap();
    let Outcome::Agrees { largest, runs: 3, left_out: 0, inputs } = &outcome else { panic!("{outcome:?}") };
    assert!(*largest < 1e-6 && inputs.starts_with("x ["), "{outcome:?}");
}

#[test]
fn a_model_that_was_packed_wrongly_is_found_out() {
    let mut wrong = packed("Add");
    wrong.mended = packed("Sub").mended;
    let outcome = check(&wrong).unwrap();
    assert!(matches!(&outcome, Outcome::Differs(what) if what.starts_with("output 'y' at [")), "{outcome:?}");
}

#[test]
fn what_tract_refuses_is_not_compared() {
    let mut unknown = packed("Add");
    unknown.mended.main.nodes[0].op_type = "NoSuchOperator".into();
    let outcome = check(&unknown).unwrap();
    let Outcome::NotCompared(why) = &outcome else { panic!("{outcome:?}") };
    assert!(why.starts_with("tract refused the model: ") && why.contains("NoSuchOperator"), "{why}");
}

fn of(values: &[f64], tolerance: Tolerance) -> Output {
    Output { shape: vec![values.len()], values: values.to_vec(), tolerance }
}

#[test]
fn the_tolerance_is_relative_to_element_and_tensor() {
    let single = |found: &[f64], expected: &[f64]| {
        compare(&of(found, Tolerance::SINGLE), &of(expected, Tolerance::SINGLE)).is_ok()
    };
    assert!(single(&[100.05, 0.005], &[100.0, 0.0]));
    assert!(!single(&[100.2, 0.0], &[100.0, 0.0]));
    assert!(!single(&[1.002e-3], &[1e-3]), "small outputs are compared by their own scale");
    assert!(single(&[1e-12], &[0.0]));
    assert!(!single(&[1e-9], &[0.0]));
    assert!(!single(&[f64::NAN], &[1.0]));
    assert!(!single(&[1.0], &[f64::INFINITY]));
    assert!(single(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY]));
    let exact = |x: f64| of(&[x], Tolerance::EXACT);
    assert!(compare(&exact(3.0), &exact(4.0)).is_err(), "integers are exact");
    assert!(compare(&exact(3.0), &exact(3.0)).is_ok());
}

#[test]
fn inputs_have_the_values_that_the_model_compares_them_with() {
    use crate::graph::{Module, Node, TensorData, ValueType};
    let mut module = Module::default();
    let value = |module: &mut Module| module.add_value("", ValueType::Unknown);
    let [x, rate, squeezed, known, limit, a, b] = std::array::from_fn(|_| value(&mut module));
    let node = |op: &str, inputs: &[crate::graph::ValueId], output| Node {
        domain: crate::graph::ONNX_DOMAIN.into(),
        op_type: op.into(),
        inputs: inputs.iter().map(|v| Some(*v)).collect(),
        outputs: vec![Some(output)],
        ..Node::default()
    };
    module.main.inputs = vec![x, rate];
    module.main.constants =
        vec![(known, TensorData::scalar_i64(16000).into()), (limit, TensorData::scalar_f32(7.0).into())];
    module.main.nodes = vec![
        node("Squeeze", &[rate], squeezed),
        node("Equal", &[known, squeezed], a),
        node("Less", &[squeezed, limit], b),
    ];
    assert_eq!(conditions::of(&module), [vec![], vec![16000, 7, 8, 6]]);
}
