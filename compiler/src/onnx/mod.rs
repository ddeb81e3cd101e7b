//! The file format: protobuf messages, loading with external data, validation, tensors, writing.
//!
//! Nothing outside this folder and `import/` sees these messages: importing turns them into the graph IR.

mod arity;
pub mod load;
pub mod order;
pub mod proto;
pub mod tensor;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
pub mod validate;
pub mod write;

use crate::graph::ONNX_DOMAIN;

/// A domain as the graph IR spells it: the default domain, empty in files, becomes `ai.onnx`.
pub(crate) fn domain_name(domain: Option<&str>) -> &str {
    match domain {
        None | Some("") => ONNX_DOMAIN,
        Some(name) => name,
    }
}
