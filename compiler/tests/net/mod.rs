//! Graphs built by hand, packed for this machine and run.
#![allow(dead_code, reason = "each test program uses a part")]

use graphmend_compiler::dtype::DType;
use graphmend_compiler::error::Result;
use graphmend_compiler::expand::Dim;
use graphmend_compiler::graph::{Attr, DimDecl, Module, Node, OutputDecl, Region, TensorData, ValueId, ValueType};
use graphmend_compiler::pack::{Options, Packed, pack};
use graphmend_runtime::{Model, TensorRef, Trust};
use std::sync::Arc;

pub(crate) struct Net {
    pub(crate) module: Module,
}

impl Net {
    pub(crate) fn new() -> Net {
        Net { module: Module { name: "net".into(), ..Module::default() } }
    }

    pub(crate) fn input(&mut self, name: &str, dims: &[&str]) -> ValueId {
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

    /// An input of any type.
    pub(crate) fn input_of(&mut self, name: &str, ty: ValueType) -> ValueId {
        let id = self.module.add_value(name, ty);
        self.module.main.inputs.push(id);
        id
    }

    /// An output that is declared to be of this type.
    pub(crate) fn output_of(&mut self, id: ValueId, ty: ValueType) {
        self.output(id);
        if let Some(decl) = self.module.outputs.last_mut() {
            decl.ty = ty;
        }
    }

    pub(crate) fn constant(&mut self, shape: &[usize], values: &[f32]) -> ValueId {
        let id = self.module.add_value("c", ValueType::Unknown);
        let mut data = TensorData::from_f32s(values);
        data.shape = shape.to_vec();
        self.module.main.constants.push((id, Arc::new(data)));
        id
    }

    pub(crate) fn node(&mut self, op: &str, inputs: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
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

    pub(crate) fn output(&mut self, id: ValueId) {
        self.module.main.outputs.push(id);
        self.module
            .outputs
            .push(OutputDecl { name: format!("out{}", self.module.outputs.len()), ty: ValueType::Unknown });
    }

    /// An `If` whose branches are one node each on outer values.
    pub(crate) fn choice(&mut self, cond: ValueId, then: (&str, Vec<ValueId>), other: (&str, Vec<ValueId>)) -> ValueId {
        let mut branch = |(op, inputs): (&str, Vec<ValueId>)| {
            let mut inner = Net { module: std::mem::take(&mut self.module) };
            let before = inner.module.main.nodes.len();
            let out = inner.node(op, &inputs, &[]);
            let nodes = inner.module.main.nodes.split_off(before);
            self.module = inner.module;
            Attr::Region(graphmend_compiler::graph::Region { outputs: vec![out], nodes, ..Default::default() })
        };
        let (then, other) = (branch(then), branch(other));
        self.node("If", &[cond], &[("then_branch", then), ("else_branch", other)])
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> ValueId {
        let id = self.module.add_value("ints", ValueType::Unknown);
        self.module.main.constants.push((id, Arc::new(TensorData::from_i64s(values))));
        id
    }

    /// A region: `build` gets its inputs and gives its results; it may read outer values.
    pub(crate) fn region(&mut self, inputs: usize, build: impl FnOnce(&mut Net, &[ValueId]) -> Vec<ValueId>) -> Attr {
        let mut inner = Net { module: std::mem::take(&mut self.module) };
        let outer = std::mem::take(&mut inner.module.main);
        let inputs: Vec<ValueId> = (0..inputs).map(|_| inner.module.add_value("", ValueType::Unknown)).collect();
        let outputs = build(&mut inner, &inputs);
        let made = std::mem::replace(&mut inner.module.main, outer);
        self.module = inner.module;
        Attr::Region(Region { inputs, outputs, ..made })
    }

    /// A node with several outputs and inputs that may be left out.
    pub(crate) fn node_with(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        attrs: &[(&str, Attr)],
        outputs: usize,
    ) -> Vec<ValueId> {
        let first = self.node(op, &[], attrs);
        let mut all = vec![first];
        all.extend((1..outputs).map(|_| self.module.add_value("", ValueType::Unknown)));
        if let Some(node) = self.module.main.nodes.last_mut() {
            node.inputs = inputs.to_vec();
            node.outputs = all.iter().copied().map(Some).collect();
        }
        all
    }

    /// A constant truth value.
    pub(crate) fn truth(&mut self, value: bool) -> ValueId {
        let id = self.module.add_value("truth", ValueType::Unknown);
        self.module.main.constants.push((id, Arc::new(TensorData::scalar_bool(value))));
        id
    }

    /// A scalar integer.
    pub(crate) fn int(&mut self, value: i64) -> ValueId {
        let id = self.module.add_value("int", ValueType::Unknown);
        self.module.main.constants.push((id, Arc::new(TensorData::scalar_i64(value))));
        id
    }

    pub(crate) fn pack(self) -> Model {
        self.pack_unrolling(graphmend_compiler::mend::UNROLL)
    }

    /// With sizes for some dimensions.
    pub(crate) fn try_pack(self, dims: &[(&str, Dim)]) -> Result<Packed> {
        let mut options = Options::new(graphmend_targets::native().expect("a known processor"));
        options.dims = dims.iter().map(|(name, dim)| ((*name).into(), *dim)).collect();
        pack(self.module, [7; 32], &options, &mut |_, _, _| {})
    }

    /// An intermediate form, with loops kept.
    pub(crate) fn emit(self, what: graphmend_compiler::pack::Emit) -> String {
        let cpu = graphmend_targets::native().expect("a known processor");
        let options = Options { unroll: 0, emit: vec![what], ..Options::new(cpu) };
        let mut packed = pack(self.module, [7; 32], &options, &mut |_, _, _| {}).expect("packs");
        packed.emitted.remove(&what).expect("asked for")
    }

    /// Writing out loops may make so many nodes.
    pub(crate) fn pack_unrolling(self, nodes: usize) -> Model {
        let cpu = graphmend_targets::native().expect("a known processor");
        let options = Options { unroll: nodes, ..Options::new(cpu) };
        let packed = pack(self.module, [7; 32], &options, &mut |_, _, _| {}).expect("packs");
        Model::from_bytes(&packed.bytes, Trust::Unsigned).expect("opens")
    }
}

pub(crate) fn run(model: &Model, inputs: &[(&[usize], &[f32])]) -> Vec<(Vec<usize>, Vec<f32>)> {
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
