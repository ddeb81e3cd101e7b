//! Reading a node's attributes and operands, with errors that name the node.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result, Stage, Unsupported};
use crate::graph::{Attr, Node, Region, TensorData, ValueId, ValueType};

impl Node {
    /// The operator as messages spell it: `ai.onnx:Resize-19`.
    pub fn label(&self) -> String {
        format!("{}:{}-{}", self.domain, self.op_type, self.version)
    }

    /// Whether this is an operator of the default domain.
    pub fn is(&self, op_type: &str) -> bool {
        self.domain == crate::graph::ONNX_DOMAIN && self.op_type == op_type
    }

    /// The model is wrong at this node.
    pub fn invalid(&self, message: impl Into<String>) -> Error {
        Error::invalid_node(Stage::Import, &self.name, self.label(), message)
    }

    /// As [`Node::invalid`], noticed by a given stage.
    pub fn invalid_in(&self, stage: Stage, message: impl Into<String>) -> Error {
        Error::invalid_node(stage, &self.name, self.label(), message)
    }

    /// The compiler lacks something at this node.
    pub fn unsupported(&self, what: impl Into<String>) -> Error {
        Error::Refused(vec![self.lack(what)])
    }

    /// As [`Node::unsupported`], as an entry of a list.
    pub fn lack(&self, what: impl Into<String>) -> Unsupported {
        Unsupported::new(&self.name, self.label(), what)
    }

    /// The input at a place; `None` if it is left out.
    pub fn input(&self, place: usize) -> Option<ValueId> {
        self.inputs.get(place).copied().flatten()
    }

    /// The input at a place that must be there; `what` names it in the error.
    pub fn require_input(&self, place: usize, what: &str) -> Result<ValueId> {
        self.input(place).ok_or_else(|| self.invalid(format!("input {place} ({what}) is missing")))
    }

    /// The output at a place; `None` if nobody wants it.
    pub fn output(&self, place: usize) -> Option<ValueId> {
        self.outputs.get(place).copied().flatten()
    }

    /// Inputs that are there, in order.
    pub fn given_inputs(&self) -> impl Iterator<Item = ValueId> {
        self.inputs.iter().copied().flatten()
    }

    /// Outputs that are wanted, in order.
    pub fn wanted_outputs(&self) -> impl Iterator<Item = ValueId> {
        self.outputs.iter().copied().flatten()
    }

    /// Regions of all attributes, in order of the attributes' names.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.attrs.values().flat_map(Attr::regions)
    }

    /// As [`Node::regions`], to change them.
    pub fn regions_mut(&mut self) -> impl Iterator<Item = &mut Region> {
        self.attrs.values_mut().flat_map(Attr::regions_mut)
    }

    fn wrong_kind(&self, name: &str, wanted: &str, found: &Attr) -> Error {
        self.invalid(format!("attribute '{name}' must be {wanted}, but it is {}", found.kind()))
    }

    fn required<T>(&self, name: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| self.invalid(format!("attribute '{name}' is missing")))
    }

    /// An integer attribute, if given.
    pub fn attr_int_opt(&self, name: &str) -> Result<Option<i64>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Int(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_kind(name, "an integer", other)),
        }
    }

    /// An integer attribute, or `default`.
    pub fn attr_int(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.attr_int_opt(name)?.unwrap_or(default))
    }

    /// An integer attribute that must be given.
    pub fn require_int(&self, name: &str) -> Result<i64> {
        self.required(name, self.attr_int_opt(name)?)
    }

    /// An integer attribute that stands for a truth value, or `default`.
    pub fn attr_bool(&self, name: &str, default: bool) -> Result<bool> {
        Ok(self.attr_int(name, i64::from(default))? != 0)
    }

    /// A number attribute, if given.
    pub fn attr_float_opt(&self, name: &str) -> Result<Option<f32>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Float(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_kind(name, "a number", other)),
        }
    }

    /// A number attribute, or `default`.
    pub fn attr_float(&self, name: &str, default: f32) -> Result<f32> {
        Ok(self.attr_float_opt(name)?.unwrap_or(default))
    }

    /// A string attribute, if given; it must be UTF-8.
    pub fn attr_str_opt(&self, name: &str) -> Result<Option<&str>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Str(bytes)) => std::str::from_utf8(bytes)
                .map(Some)
                .map_err(|_| self.invalid(format!("attribute '{name}' is not UTF-8"))),
            Some(other) => Err(self.wrong_kind(name, "a string", other)),
        }
    }

    /// A string attribute, or `default`.
    pub fn attr_str<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        Ok(self.attr_str_opt(name)?.unwrap_or(default))
    }

    /// A string attribute that must be given.
    pub fn require_str(&self, name: &str) -> Result<&str> {
        self.required(name, self.attr_str_opt(name)?)
    }

    /// A list of integers, if given.
    pub fn attr_ints(&self, name: &str) -> Result<Option<&[i64]>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Ints(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong_kind(name, "a list of integers", other)),
        }
    }

    /// A list of integers that must be given.
    pub fn require_ints(&self, name: &str) -> Result<&[i64]> {
        self.required(name, self.attr_ints(name)?)
    }

    /// A list of numbers, if given.
    pub fn attr_floats(&self, name: &str) -> Result<Option<&[f32]>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Floats(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong_kind(name, "a list of numbers", other)),
        }
    }

    /// A list of strings, if given; each must be UTF-8.
    pub fn attr_strs(&self, name: &str) -> Result<Option<Vec<&str>>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Strs(values)) => values
                .iter()
                .map(|bytes| std::str::from_utf8(bytes))
                .collect::<Result<_, _>>()
                .map(Some)
                .map_err(|_| self.invalid(format!("attribute '{name}' is not UTF-8"))),
            Some(other) => Err(self.wrong_kind(name, "a list of strings", other)),
        }
    }

    /// A tensor, if given.
    pub fn attr_tensor(&self, name: &str) -> Result<Option<&Arc<TensorData>>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Tensor(data)) => Ok(Some(data)),
            Some(other) => Err(self.wrong_kind(name, "a tensor", other)),
        }
    }

    /// A type, if given.
    pub fn attr_type(&self, name: &str) -> Result<Option<&ValueType>> {
        match self.attrs.get(name) {
            None => Ok(None),
            Some(Attr::Type(ty)) => Ok(Some(ty)),
            Some(other) => Err(self.wrong_kind(name, "a type", other)),
        }
    }

    /// A region that must be given: `then_branch`, `body`.
    pub fn require_region(&self, name: &str) -> Result<&Region> {
        match self.attrs.get(name) {
            Some(Attr::Region(region)) => Ok(region),
            Some(other) => Err(self.wrong_kind(name, "a graph", other)),
            None => self.required(name, None),
        }
    }

    /// Takes a region that must be given out of the node.
    pub fn take_region(&mut self, name: &str) -> Result<Region> {
        self.require_region(name)?;
        match self.attrs.remove(name) {
            Some(Attr::Region(region)) => Ok(region),
            _ => self.required(name, None),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node '{}' ({})", self.name, self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node {
            name: "n".into(),
            domain: "ai.onnx".into(),
            op_type: "Pad".into(),
            version: 18,
            inputs: vec![Some(ValueId(0)), None],
            outputs: vec![None],
            attrs: [
                ("mode".to_owned(), Attr::Str(b"edge".to_vec())),
                ("axis".to_owned(), Attr::Int(-1)),
                ("odd".to_owned(), Attr::Str(vec![0xff])),
            ]
            .into(),
        }
    }

    #[test]
    fn attributes_fall_back_to_their_default() {
        let node = node();
        assert_eq!(node.attr_str("mode", "constant").unwrap(), "edge");
        assert_eq!(node.attr_str("other", "constant").unwrap(), "constant");
        assert_eq!(node.attr_int("axis", 0).unwrap(), -1);
        assert_eq!(node.attr_int("axes", 7).unwrap(), 7);
        assert_eq!(node.input(0), Some(ValueId(0)));
        assert_eq!((node.input(1), node.input(2), node.output(0)), (None, None, None));
    }

    #[test]
    fn errors_name_the_node_and_the_attribute() {
        let node = node();
        let text = |e: Error| e.to_string();
        assert_eq!(
            text(node.attr_int("mode", 0).unwrap_err()),
            "invalid model: node 'n' (ai.onnx:Pad-18): attribute 'mode' must be an integer, but it is a string"
        );
        assert_eq!(
            text(node.require_ints("pads").unwrap_err()),
            "invalid model: node 'n' (ai.onnx:Pad-18): attribute 'pads' is missing"
        );
        assert!(text(node.attr_str("odd", "").unwrap_err()).contains("'odd' is not UTF-8"));
        assert!(text(node.require_input(1, "pads").unwrap_err()).contains("input 1 (pads) is missing"));
        assert!(text(node.require_region("body").unwrap_err()).contains("attribute 'body' is missing"));
        assert!(node.unsupported("mode edge is not supported").is_refusal());
    }
}
