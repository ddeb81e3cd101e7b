//! Rule `optional`: an optional becomes its value, or nothing.
//!
//! Side condition: whether there is a value is known while packing, which it is for every optional made within the model and
//! not chosen by data. Any other is its value with a truth value beside it. Since operator set 18 a plain tensor or sequence may stand where an optional is asked for; it is
//! there.

use super::report::Rule;
use super::{Container, Mender};
use crate::error::Result;
use crate::graph::{Module, Node, Region, TensorData, ValueId};

impl Mender<'_> {
    /// Mends a node about optionals; `false` if presence is not known and it stays.
    pub(super) fn optional(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        if let Some(Container::Maybe { present, content }) =
            node.input(0).and_then(|v| self.containers.get(&v)).cloned()
        {
            match (node.op_type.as_str(), content) {
                ("OptionalHasElement", _) => self.alias(node, 0, present),
                ("OptionalGetElement", Some(content)) => {
                    let check = Node { inputs: vec![Some(present)], ..node.clone() };
                    self.push_check(&check, true, "the optional is empty", out);
                    self.alias(node, 0, content);
                }
                _ => return Ok(false),
            }
            self.report.settle(node, Rule::Optional);
            return Ok(true);
        }
        match node.op_type.as_str() {
            "Optional" => {
                if let Some(output) = node.output(0) {
                    self.containers.insert(output, Container::Optional(node.input(0)));
                }
            }
            "OptionalHasElement" => {
                let there = match node.input(0).map(|v| self.content(v)) {
                    None => false,
                    Some(Some(content)) => content.is_some(),
                    Some(None) => return Ok(false),
                };
                let truth = self.constant(module, TensorData::scalar_bool(there), out);
                self.alias(node, 0, truth);
            }
            "OptionalGetElement" => match self.content(node.require_input(0, "the optional")?) {
                None => return Ok(false),
                Some(Some(value)) => self.alias(node, 0, value),
                Some(None) => return Err(node.invalid("the optional is empty")),
            },
            _ => return Ok(false),
        }
        self.report.settle(node, Rule::Optional);
        Ok(true)
    }

    /// What an optional holds; `None` if that is not known.
    fn content(&self, id: ValueId) -> Option<Option<ValueId>> {
        match self.containers.get(&id) {
            Some(Container::Optional(content)) => Some(*content),
            Some(Container::Sequence(_) | Container::Stack(_) | Container::Ragged(_)) => Some(Some(id)),
            Some(Container::Maybe { .. }) => None,
            None => self.facts.values.contains_key(&id).then_some(Some(id)),
        }
    }
}
