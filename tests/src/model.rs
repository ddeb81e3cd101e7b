//! A model small enough to be written by the tests themselves.

use std::fs;
use std::path::Path;

use anyhow::Result;
use graphmend::compiler::onnx::proto::{
    Dimension, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TensorType, TypeProto, TypeValue, ValueInfoProto, data_location,
};
use prost::Message;

/// `DataType` of 32-bit floats.
const FLOAT: i32 = 1;

/// The name of the file beside the model that holds the weights of [`write_scale`].
pub const WEIGHTS: &str = "weights.data";

/// Writes a model `y = x * w` of four elements; `w` lies in [`WEIGHTS`] beside it.
///
/// # Errors
/// Files that cannot be written.
pub fn write_scale(path: &Path, weights: [f32; 4]) -> Result<()> {
    let entry = |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    let w = TensorProto {
        name: Some("w".into()),
        dims: vec![4],
        data_type: Some(FLOAT),
        data_location: Some(data_location::EXTERNAL),
        external_data: vec![entry("location", WEIGHTS), entry("offset", "0"), entry("length", "16")],
        ..Default::default()
    };
    let node = NodeProto {
        name: Some("scale".into()),
        op_type: Some("Mul".into()),
        input: vec!["x".into(), "w".into()],
        output: vec!["y".into()],
        ..Default::default()
    };
    let graph = GraphProto {
        name: Some("scale".into()),
        node: vec![node],
        initializer: vec![w],
        input: vec![vector("x")],
        output: vec![vector("y")],
        ..Default::default()
    };
    let model = ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: Some(String::new()), version: Some(17) }],
        graph: Some(graph),
        ..Default::default()
    };
    fs::write(path, model.encode_to_vec())?;
    write_weights(&path.with_file_name(WEIGHTS), weights)
}

/// Writes other weights into the file beside the model.
///
/// # Errors
/// A file that cannot be written.
pub fn write_weights(path: &Path, weights: [f32; 4]) -> Result<()> {
    let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(fs::write(path, bytes)?)
}

fn vector(name: &str) -> ValueInfoProto {
    let dim = Dimension { value: Some(DimensionValue::DimValue(4)), denotation: None };
    let tensor = TensorType { elem_type: Some(FLOAT), shape: Some(TensorShapeProto { dim: vec![dim] }) };
    let ty = TypeProto { value: Some(TypeValue::Tensor(tensor)), denotation: None };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..Default::default() }
}
