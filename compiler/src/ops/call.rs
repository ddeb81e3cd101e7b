//! One use of an operator: what its expansion is given.

use crate::dtype::DType;
use crate::te::{OpError, OpResult, TensorId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A constant tensor given as attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct AttrTensor {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Row-major little-endian elements.
    pub bytes: Arc<Vec<u8>>,
}

/// An attribute's value (regions are mended away before).
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the attribute kinds of ONNX")]
pub enum AttrValue {
    Int(i64),
    Float(f32),
    Str(String),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strs(Vec<String>),
    Tensor(AttrTensor),
}

/// An operator with its version, attributes and operands.
#[derive(Clone, Debug)]
pub struct Call {
    /// `""` for ai.onnx.
    pub domain: String,
    /// Operator name.
    pub op: String,
    /// Opset version that the model imports for the domain.
    pub version: i64,
    /// Operands; `None` where an optional one is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// Which outputs are used.
    pub outputs: Vec<bool>,
    /// Attributes.
    pub attrs: BTreeMap<String, AttrValue>,
}

macro_rules! accessor {
    ($get:ident, $opt:ident, $kind:ident, $t:ty, $what:literal) => {
        #[doc = concat!("The attribute as ", $what, ", if it is given.")]
        pub fn $opt(&self, name: &str) -> OpResult<Option<$t>> {
            match self.attrs.get(name) {
                None => Ok(None),
                Some(AttrValue::$kind(v)) => Ok(Some(v.clone())),
                Some(_) => Err(OpError::Invalid(format!(concat!("attribute '{}' must be ", $what), name))),
            }
        }

        #[doc = concat!("The attribute as ", $what, ", or the default.")]
        pub fn $get(&self, name: &str, default: $t) -> OpResult<$t> {
            Ok(self.$opt(name)?.unwrap_or(default))
        }
    };
}

impl Call {
    accessor!(int, opt_int, Int, i64, "an integer");
    accessor!(float, opt_float, Float, f32, "a float");
    accessor!(string, opt_string, Str, String, "a string");
    accessor!(ints, opt_ints, Ints, Vec<i64>, "integers");
    accessor!(floats, opt_floats, Floats, Vec<f32>, "floats");
    accessor!(strings, opt_strings, Strs, Vec<String>, "strings");
    accessor!(tensor, opt_tensor, Tensor, AttrTensor, "a tensor");

    /// Operand `k`, which must be there.
    pub fn input(&self, k: usize) -> OpResult<TensorId> {
        self.opt(k).ok_or_else(|| OpError::Invalid(format!("input {k} is missing")))
    }

    /// Operand `k`, if it is there.
    pub fn opt(&self, k: usize) -> Option<TensorId> {
        self.inputs.get(k).copied().flatten()
    }

    /// Is output `k` used?
    pub fn wants(&self, k: usize) -> bool {
        self.outputs.get(k).copied().unwrap_or(false)
    }
}
