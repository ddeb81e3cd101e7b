//! The cold sections: META and DEBUG, in postcard. Read by tools and for messages, never by a run.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::BinOp;

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
    /// A tensor of strings: bytes along a last axis more, zeros behind the end of each string.
    Text,
}

impl Border {
    /// How many tensors hold it.
    pub fn tensors(&self) -> usize {
        match self {
            Border::Tensor | Border::Stack | Border::Text => 1,
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
    /// What the kernel calls do, in the order of their instructions.
    pub work: Vec<Work>,
}

/// What a kernel call does, for profiles.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Number of the instruction.
    pub step: u32,
    /// What kind of kernel it is: `convolution`, `matrix product`, …
    pub class: String,
    /// The model's nodes whose results it computes.
    pub nodes: Vec<String>,
    /// Arithmetic operations on elements, a multiply-add counted as two; nothing where that is not known.
    pub ops: Option<Formula>,
    /// Bytes of the tensors and weights that it reads, each once.
    pub read: Option<Formula>,
    /// Bytes of the tensors that it writes.
    pub written: Option<Formula>,
    /// Work units that threads can share; nothing if it is one, or if it is not known.
    pub units: Option<Formula>,
}

/// A number that follows from the sizes of the inputs, in postfix order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Formula(pub Vec<Term>);

/// A part of a [`Formula`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Term {
    /// A number.
    Const(i64),
    /// Size of an input along an axis: input, axis.
    Dim(u32, u32),
    /// The operation with this number ([`BinOp`]) on the two values before it.
    Bin(u16),
    /// Of the three values before it the second if the first is not 0, else the third.
    Select,
}

impl Formula {
    /// The value, where `dim` gives the size of an input along an axis. Nothing if it does not fit, or is no formula.
    pub fn eval(&self, dim: impl Fn(u32, u32) -> Option<i64>) -> Option<i64> {
        let mut stack = Vec::new();
        for term in &self.0 {
            let value = match *term {
                Term::Const(value) => value,
                Term::Dim(input, axis) => dim(input, axis)?,
                Term::Bin(code) => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    BinOp::from_code(code)?.apply(a, b)?
                }
                Term::Select => {
                    let (b, a, cond) = (stack.pop()?, stack.pop()?, stack.pop()?);
                    if cond != 0 { a } else { b }
                }
            };
            stack.push(value);
        }
        let value = stack.pop()?;
        stack.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn formulas_compute_from_input_sizes() {
        let (mul, lt) = (Term::Bin(BinOp::Mul as u16), Term::Bin(BinOp::Lt as u16));
        let area = [Term::Dim(0, 2), Term::Dim(0, 3), mul];
        let dim = |input, axis| (input == 0 && axis < 4).then_some([1, 3, 20, 30][axis as usize]);
        assert_eq!(Formula(area.to_vec()).eval(dim), Some(600));
        let choice = [Term::Dim(0, 2), Term::Dim(0, 3), lt, Term::Const(5), Term::Const(7), Term::Select];
        assert_eq!(Formula(choice.to_vec()).eval(dim), Some(5));
    }

    #[test]
    fn what_is_no_formula_has_no_value() {
        let mul = Term::Bin(BinOp::Mul as u16);
        for terms in [
            vec![],
            vec![mul],
            vec![Term::Const(1), Term::Const(2)],
            vec![Term::Const(1), Term::Const(2), Term::Select],
            vec![Term::Const(1), Term::Const(2), Term::Bin(999)],
            vec![Term::Dim(1, 0)],
            vec![Term::Const(i64::MAX), Term::Const(2), mul],
        ] {
            assert_eq!(Formula(terms).eval(|_, _| None), None);
        }
    }
}
