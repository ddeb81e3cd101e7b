//! Errors with the names that a file has for what they number.

use std::format;
use std::string::{String, ToString};

use crate::{Dim, Error, Model, Tensor};

impl Model {
    /// An error of this model's sessions for people: names inputs and outputs, quotes the model's own messages, and says
    /// which kernel a step calls. Reads DEBUG.
    pub fn explain(&self, error: Error) -> String {
        match error {
            Error::InputType { input, .. }
            | Error::InputRank { input, .. }
            | Error::InputDim { input, .. }
            | Error::InputSymbol { input, .. }
            | Error::InputBytes { input, .. }
            | Error::InputMisaligned { input } => match self.view().inputs().nth(input as usize) {
                Some(t) => format!("{error} (input {input} is {})", declaration(&t)),
                None => error.to_string(),
            },
            Error::InputCount { .. } => {
                let names: std::vec::Vec<String> = self.view().inputs().map(|t| declaration(&t)).collect();
                format!("{error}: {}", names.join(", "))
            }
            Error::Output { output } => match self.view().outputs().nth(output as usize) {
                Some(t) => format!("{error} (output {output} is {})", declaration(&t)),
                None => error.to_string(),
            },
            Error::Check { message, .. } => match self.view().message(message) {
                Some(text) => text.to_string(),
                None => error.to_string(),
            },
            Error::DataIndex { step, kernel } | Error::Kernel { step, kernel, .. } => {
                let Ok(debug) = self.debug() else {
                    return error.to_string();
                };
                let kernel = debug.kernels.get(kernel as usize).map_or("", |s| s);
                let step = debug.steps.iter().find(|(at, _)| *at == step).map_or("", |(_, s)| s);
                match (kernel, step) {
                    ("", "") => error.to_string(),
                    (name, "") | ("", name) => format!("{error} ({name})"),
                    (kernel, step) => format!("{error} ({kernel}, from {step})"),
                }
            }
            other => other.to_string(),
        }
    }
}

/// An input or output as text: `x: f32 [batch=1..8, 3]`.
pub fn declaration(tensor: &Tensor<'_>) -> String {
    let dims: std::vec::Vec<String> = tensor.dims().map(|d| dimension(&d)).collect();
    format!("{}: {} [{}]", tensor.name, tensor.dtype, dims.join(", "))
}

fn dimension(dim: &Dim<'_>) -> String {
    match *dim {
        Dim { symbol: "", lo: 0, hi: i64::MAX, .. } => "?".to_string(),
        Dim { symbol: "", lo, hi, .. } if lo == hi => lo.to_string(),
        Dim { symbol: "", lo, hi, .. } => format!("{lo}..{hi}"),
        Dim { symbol, lo: 0 | 1, hi: i64::MAX, .. } => symbol.to_string(),
        Dim { symbol, lo, hi: i64::MAX, .. } => format!("{symbol}={lo}.."),
        Dim { symbol, lo, hi, .. } if lo == hi => format!("{symbol}={lo}"),
        Dim { symbol, lo, hi, .. } => format!("{symbol}={lo}..{hi}"),
    }
}
