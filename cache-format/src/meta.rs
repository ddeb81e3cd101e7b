//! The cold sections: META and DEBUG, in postcard. Read by tools and for messages, never by a run.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How a declared input or output of the model is held in the file's tensors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Border {
    /// A tensor is itself.
    Tensor,
    /// A sequence of this length: a tensor for each member.
    List(u32),
    /// A sequence: one tensor, the members along its first axis.
    Stack,
    /// A sequence: the elements of all members one after another; then a row of 9 `i64` for each member, its rank and its
    /// sizes, with 1 for sizes beyond the rank.
    Ragged,
    /// An optional without value: no tensor.
    Absent,
    /// An optional: a scalar truth value, then the value, which is zeros where it is not there. Nothing more for a
    /// value of a type that is not supported.
    Maybe(Option<Box<Border>>),
}

impl Border {
    /// How many tensors hold it.
    pub fn tensors(&self) -> usize {
        match self {
            Border::Tensor | Border::Stack => 1,
            Border::List(members) => *members as usize,
            Border::Ragged => 2,
            Border::Absent => 0,
            Border::Maybe(of) => 1 + of.as_ref().map_or(0, |of| of.tensors()),
        }
    }
}

/// Description of the file for people and tools (section META). Names and shapes of inputs and outputs are in TENSORS.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Meta {
    /// Program and version that wrote the file.
    pub producer: String,
    /// Target that was asked for (`rpi4`, `x86-64-v3`, …).
    pub target: String,
    /// Name of the model.
    pub model: String,
    /// Options that the file was packed with, as name and value.
    pub options: Vec<(String, String)>,
    /// Properties of the model (ONNX metadata, licence, …), as name and value.
    pub properties: Vec<(String, String)>,
    /// The mending report, for people.
    pub report: String,
    /// The mending report as JSON.
    pub report_json: String,
    /// Inputs as the model declares them: name, and how each is held. Empty if all are tensors.
    pub inputs: Vec<(String, Border)>,
    /// Outputs, likewise.
    pub outputs: Vec<(String, Border)>,
}

/// Names for people (section DEBUG, one per variant). Each list may be shorter than what it names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Debug {
    /// Kernels, by number.
    pub kernels: Vec<String>,
    /// Buffers, by number.
    pub buffers: Vec<String>,
    /// Where instructions come from, as instruction number and text.
    pub steps: Vec<(u32, String)>,
}
