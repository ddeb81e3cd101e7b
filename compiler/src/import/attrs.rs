//! Attributes, and constants that are written as nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::graph::{Attr, Node, TensorData};
use crate::import::{Frame, Importer, tensor_error, types};
use crate::onnx::proto::{AttributeProto, attribute_type as kind};
use crate::onnx::tensor;
use crate::onnx::validate::attribute_kind;

/// The attributes of one call of a function.
pub(super) struct Attrs {
    given: BTreeMap<String, Attr>,
}

impl Attrs {
    pub(super) fn new(given: BTreeMap<String, Attr>) -> Self {
        Attrs { given }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    pub(super) fn insert(&mut self, name: String, value: Attr) {
        self.given.insert(name, value);
    }
}

impl Importer<'_> {
    /// The value of a node's attribute. `None` when it refers to an attribute that the call leaves out: then the node
    /// does not have it either.
    pub(super) fn attribute(
        &mut self,
        proto: AttributeProto,
        node: &Node,
        frame: &mut Frame<'_>,
    ) -> Result<Option<Attr>> {
        if let Some(refers) = proto.ref_attr_name.as_deref().filter(|refers| !refers.is_empty()) {
            let given = frame.attrs.as_ref().and_then(|attrs| attrs.given.get(refers)).cloned();
            return Ok(given.map(|attr| self.fresh(&attr)));
        }
        let name = proto.name.clone().unwrap_or_default();
        let what = format!("attribute '{name}'");
        let failed = |reason| tensor_error(&node.name, &node.label(), &what, reason);
        let kind = attribute_kind(&proto);
        // A writer may leave out a number or string that has the value zero or empty.
        let attr = match kind {
            kind::FLOAT => Attr::Float(proto.f.unwrap_or(0.0)),
            kind::INT => Attr::Int(proto.i.unwrap_or(0)),
            kind::STRING => Attr::Str(proto.s.unwrap_or_default()),
            kind::FLOATS => Attr::Floats(proto.floats),
            kind::INTS => Attr::Ints(proto.ints),
            kind::STRINGS => Attr::Strs(proto.strings),
            kind::TENSOR => match proto.t {
                Some(tensor) => Attr::Tensor(Arc::new(tensor::convert(tensor).map_err(failed)?)),
                None => return Err(node.invalid(format!("{what} has no tensor"))),
            },
            kind::TENSORS => {
                let all = proto.tensors.into_iter().map(|tensor| tensor::convert(tensor).map(Arc::new));
                Attr::Tensors(all.collect::<Result<_, _>>().map_err(failed)?)
            }
            kind::SPARSE_TENSOR => match proto.sparse_tensor {
                Some(sparse) => Attr::Tensor(Arc::new(tensor::convert_sparse(sparse).map_err(failed)?)),
                None => return Err(node.invalid(format!("{what} has no tensor"))),
            },
            kind::SPARSE_TENSORS => {
                let all = proto.sparse_tensors.into_iter().map(|sparse| tensor::convert_sparse(sparse).map(Arc::new));
                Attr::Tensors(all.collect::<Result<_, _>>().map_err(failed)?)
            }
            kind::GRAPH => match proto.g {
                Some(graph) => Attr::Region(self.graph(graph, frame)?),
                None => return Err(node.invalid(format!("{what} has no graph"))),
            },
            kind::GRAPHS => {
                let mut regions = Vec::with_capacity(proto.graphs.len());
                for graph in proto.graphs {
                    regions.push(self.graph(graph, frame)?);
                }
                Attr::Regions(regions)
            }
            kind::TYPE_PROTO => Attr::Type(types::declared(proto.tp.as_ref())),
            kind::TYPE_PROTOS => Attr::Types(proto.type_protos.iter().map(|ty| types::declared(Some(ty))).collect()),
            other => return Err(node.invalid(format!("{what} is of the unknown kind {other}"))),
        };
        Ok(Some(attr))
    }
}

/// The tensor of a `Constant` node, in whichever attribute it is written.
pub(super) fn constant_value(node: &Node) -> Result<Arc<TensorData>> {
    let mut attrs = node.attrs.iter();
    let (Some((name, attr)), None) = (attrs.next(), attrs.next()) else {
        return Err(node.invalid(format!("Constant takes exactly one attribute, but has {}", node.attrs.len())));
    };
    let data = match (name.as_str(), attr) {
        ("value" | "sparse_value", Attr::Tensor(data)) => return Ok(data.clone()),
        ("value_int", Attr::Int(value)) => TensorData::scalar_i64(*value),
        ("value_ints", Attr::Ints(values)) => TensorData::from_i64s(values),
        ("value_float", Attr::Float(value)) => TensorData::scalar_f32(*value),
        ("value_floats", Attr::Floats(values)) => TensorData::from_f32s(values),
        ("value_string", Attr::Str(value)) => TensorData::from_strings(Vec::new(), vec![value.clone()]),
        ("value_strings", Attr::Strs(values)) => TensorData::from_strings(vec![values.len()], values.clone()),
        _ => return Err(node.invalid(format!("Constant cannot take {} as attribute '{name}'", attr.kind()))),
    };
    Ok(Arc::new(data))
}
