//! The graph IR: ONNX operators with their identity kept, names resolved to ids.
//!
//! A [`Module`] owns one table of values for the whole model; a [`ValueId`] is unique over all regions, so a branch or a
//! loop body reads an outer value by its id and nothing can be shadowed. A [`Region`] is a list of nodes in an order in
//! which every value is defined before it is read; control-flow operators hold regions as attributes.
//!
//! Domain names are normalised: the default domain is always spelt `ai.onnx`.

mod edit;
mod elem;
mod ir;
mod node;
mod text;
mod types;
mod verify;

pub use edit::{Substitution, captures};
pub use elem::ElemType;
pub use ir::{Attr, Module, Node, OutputDecl, Region, ValueId};
pub use types::{DimDecl, TensorData, Value, ValueType};

/// The name of ONNX's default operator domain.
pub const ONNX_DOMAIN: &str = "ai.onnx";
