//! Small graphs through all stages, run by the runtime.

use graphmend_compiler::dtype::DType;
use graphmend_compiler::graph::{Attr, DimDecl, Module, Node, OutputDecl, TensorData, ValueId, ValueType};
use graphmend_compiler::pack::{Options, pack};
use graphmend_runtime::{Model, TensorRef, Trust};
use std::sync::Arc;

struct Net {
    module: Module,
}

impl Net {
    fn new() -> Net {
        Net { module: Module { name: "net".into(), ..Module::default() } }
    }

    fn input(&mut self, name: &str, dims: &[&str]) -> ValueId {
        let shape = dims
            .iter()
            .map(|d| match d.parse() {
                Ok(n) => DimDecl::Fixed(n),
                Err(_) => DimDecl::Named((*d).into()),
            })
            .collect();
        let ty = ValueType::Tensor { elem: DType::F32.into(), shape: Some(shape) };
        let id = self.module.add_value(name, ty);
        self.module.main.inputs.push(id);
        id
    }

    fn constant(&mut self, shape: &[usize], values: &[f32]) -> ValueId {
        let id = self.module.add_value("c", ValueType::Unknown);
        let mut data = TensorData::from_f32s(values);
        data.shape = shape.to_vec();
        self.module.main.constants.push((id, Arc::new(data)));
        id
    }

    fn node(&mut self, op: &str, inputs: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
        let out = self.module.add_value(format!("v{}", self.module.values.len()), ValueType::Unknown);
        self.module.main.nodes.push(Node {
            name: format!("{op}_{}", out.0),
            domain: "ai.onnx".into(),
            op_type: op.into(),
            version: 20,
            inputs: inputs.iter().map(|v| Some(*v)).collect(),
            outputs: vec![Some(out)],
            attrs: attrs.iter().map(|(n, a)| ((*n).into(), a.clone())).collect(),
        });
        out
    }

    fn output(&mut self, id: ValueId) {
        self.module.main.outputs.push(id);
        self.module.outputs.push(OutputDecl { name: format!("out{}", self.module.outputs.len()), ty: ValueType::Unknown });
    }

    fn pack(self) -> Model {
        let cpu = graphmend_targets::native().expect("a known processor");
        let packed = pack(self.module, [7; 32], &Options::new(cpu), &mut |_, _, _| {}).expect("packs");
        Model::from_bytes(&packed.bytes, Trust::Unsigned).expect("opens")
    }
}

fn run(model: &Model, inputs: &[(&[usize], &[f32])]) -> Vec<(Vec<usize>, Vec<f32>)> {
    let mut s = model.session().expect("session");
    let refs: Vec<TensorRef<'_>> = inputs.iter().map(|(shape, data)| TensorRef::new(data, shape)).collect();
    s.run(&refs).expect("runs");
    let n = model.view().outputs().count();
    (0..n)
        .map(|k| {
            let v = s.output(k).expect("output");
            (v.shape.iter().map(|d| *d as usize).collect(), v.as_f32().expect("f32").to_vec())
        })
        .collect()
}

#[test]
fn a_broadcast_sum_takes_any_batch() {
    let mut n = Net::new();
    let x = n.input("x", &["batch", "3"]);
    let c = n.constant(&[3], &[1.0, 2.0, 3.0]);
    let y = n.node("Add", &[x, c], &[]);
    n.output(y);
    let model = n.pack();
    assert_eq!(run(&model, &[(&[1, 3], &[0.0; 3])]), [(vec![1, 3], vec![1.0, 2.0, 3.0])]);
    assert_eq!(
        run(&model, &[(&[2, 3], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0])]),
        [(vec![2, 3], vec![1.0, 2.0, 3.0, 2.0, 3.0, 4.0])]
    );
}

#[test]
fn a_softmax_along_either_axis_sums_to_one() {
    for axis in [0, 1] {
        let mut n = Net::new();
        let x = n.input("x", &["5", "13"]);
        let y = n.node("Softmax", &[x], &[("axis", Attr::Int(axis))]);
        n.output(y);
        let model = n.pack();
        let data: Vec<f32> = (0..65).map(|i| (i * 37 % 11) as f32 / 3.0).collect();
        let out = run(&model, &[(&[5, 13], &data)]);
        let at = |i: usize, j: usize| out[0].1[i * 13 + j];
        let (n_outer, n_inner) = if axis == 1 { (5, 13) } else { (13, 5) };
        for i in 0..n_outer {
            let value = |k: usize| if axis == 1 { data[i * 13 + k] } else { data[k * 13 + i] };
            let total: f32 = (0..n_inner).map(|k| value(k).exp()).sum();
            for k in 0..n_inner {
                let got = if axis == 1 { at(i, k) } else { at(k, i) };
                assert!((got - value(k).exp() / total).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn padding_and_transposition_move_elements() {
    let mut n = Net::new();
    let x = n.input("x", &["2", "3"]);
    let pads = n.module.add_value("pads", ValueType::Unknown);
    n.module.main.constants.push((pads, Arc::new(TensorData::from_i64s(&[1, 0, 0, 2]))));
    let p = n.node("Pad", &[x, pads], &[]);
    let t = n.node("Transpose", &[p], &[("perm", Attr::Ints(vec![1, 0]))]);
    n.output(p);
    n.output(t);
    let model = n.pack();
    let out = run(&model, &[(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]);
    assert_eq!(out[0].1, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0]);
    assert_eq!(out[1].0, [5, 3]);
    assert_eq!(out[1].1, [0.0, 1.0, 4.0, 0.0, 2.0, 5.0, 0.0, 3.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
