//! Messages written by hand, for tests.

use crate::dtype::DType;
use crate::graph::ElemType;
use crate::onnx::proto::*;

pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        ..Default::default()
    }
}

pub(crate) fn named(name: &str, node: NodeProto) -> NodeProto {
    NodeProto { name: Some(name.into()), ..node }
}

pub(crate) fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

pub(crate) fn attr(name: &str) -> AttributeProto {
    AttributeProto { name: Some(name.into()), ..Default::default() }
}

pub(crate) fn graph_attr(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::GRAPH), g: Some(graph), ..attr(name) }
}

pub(crate) fn float_attr(name: &str, value: f32) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::FLOAT), f: Some(value), ..attr(name) }
}

pub(crate) fn ref_attr(name: &str, refers: &str) -> AttributeProto {
    AttributeProto { r#type: Some(attribute_type::FLOAT), ref_attr_name: Some(refers.into()), ..attr(name) }
}

/// A float tensor type; negative sizes are unknown ones.
pub(crate) fn value(name: &str, dims: &[i64]) -> ValueInfoProto {
    let dim = |size: &i64| Dimension { value: Some(DimensionValue::DimValue(*size)), denotation: None };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = TensorType { elem_type: Some(ElemType::Plain(DType::F32).code()), shape: Some(shape) };
    let ty = TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..Default::default() }
}

pub(crate) fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

pub(crate) fn floats(name: &str, dims: &[i64], values: &[f32]) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: dims.to_vec(),
        data_type: Some(1),
        float_data: values.to_vec(),
        ..Default::default()
    }
}

pub(crate) fn import_of(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

/// A branch without inputs.
pub(crate) fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    GraphProto { node: nodes, output: vec![untyped(output)], ..Default::default() }
}

/// A model with inputs `x` and `c`, both of shape [2], and the output `y`.
pub(crate) fn model(nodes: Vec<NodeProto>) -> ModelProto {
    let graph = GraphProto {
        name: Some("g".into()),
        node: nodes,
        input: vec![value("x", &[2]), value("c", &[2])],
        output: vec![value("y", &[2])],
        ..Default::default()
    };
    ModelProto { ir_version: Some(10), opset_import: vec![import_of("", 21)], graph: Some(graph), ..Default::default() }
}

/// A function in the domain `f` over operator set 21.
pub(crate) fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("f".into()),
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: outputs.iter().map(|s| s.to_string()).collect(),
        node: nodes,
        opset_import: vec![import_of("", 21)],
        ..Default::default()
    }
}

pub(crate) fn call(name: &str, function: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto { domain: Some("f".into()), ..named(name, node(function, inputs, outputs)) }
}
