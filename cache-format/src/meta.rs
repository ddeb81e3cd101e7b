//! The cold sections: META and DEBUG, in postcard. Read by tools and for messages, never by a run.

use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

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
