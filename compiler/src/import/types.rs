//! Declared types.

use crate::graph::{DimDecl, ElemType, ValueType};
use crate::onnx::proto::{ContainerType, DimensionValue, TensorShapeProto, TypeProto, TypeValue};

/// The declared type of a value. What cannot be read as a type is [`ValueType::Unknown`]; validation has complained
/// where that matters.
pub(super) fn declared(ty: Option<&TypeProto>) -> ValueType {
    let Some(value) = ty.and_then(|ty| ty.value.as_ref()) else { return ValueType::Unknown };
    let elem = |code: Option<i32>| ElemType::from_code(code.unwrap_or(0));
    let contained = |of: &ContainerType| Box::new(declared(of.elem_type.as_deref()));
    match value {
        TypeValue::Tensor(tensor) => match elem(tensor.elem_type) {
            Some(elem) => ValueType::Tensor { elem, shape: shape(tensor.shape.as_ref()) },
            None => ValueType::Unknown,
        },
        TypeValue::SparseTensor(tensor) => match elem(tensor.elem_type) {
            Some(elem) => ValueType::SparseTensor { elem, shape: shape(tensor.shape.as_ref()) },
            None => ValueType::Unknown,
        },
        TypeValue::Sequence(of) => ValueType::Sequence(contained(of)),
        TypeValue::Optional(of) => ValueType::Optional(contained(of)),
        TypeValue::Map(map) => match elem(map.key_type) {
            Some(key) => ValueType::Map { key, value: Box::new(declared(map.value_type.as_deref())) },
            None => ValueType::Unknown,
        },
        TypeValue::Opaque(opaque) => {
            ValueType::Opaque(opaque.domain.clone().unwrap_or_default(), opaque.name.clone().unwrap_or_default())
        }
    }
}

fn shape(shape: Option<&TensorShapeProto>) -> Option<Vec<DimDecl>> {
    let dims = &shape?.dim;
    let declare = |value: &Option<DimensionValue>| match value {
        // Many files say "unknown" with a negative size.
        Some(DimensionValue::DimValue(size)) => u64::try_from(*size).map_or(DimDecl::Unknown, DimDecl::Fixed),
        Some(DimensionValue::DimParam(name)) if !name.is_empty() => DimDecl::Named(name.clone()),
        _ => DimDecl::Unknown,
    };
    Some(dims.iter().map(|dim| declare(&dim.value)).collect())
}
