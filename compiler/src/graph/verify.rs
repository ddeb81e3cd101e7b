//! The promises of the graph IR, checked.

use std::collections::HashSet;

use crate::error::{Error, Result, Stage};
use crate::graph::{Module, Node, Region, ValueId};

impl Module {
    /// Checks that every id is in range, defined exactly once in the whole module and before it is read, in a region
    /// that the reader lies in; that names and domains are not empty; that outputs and their declarations match.
    ///
    /// A breach is an internal error of the `stage` that has just run.
    pub fn verify(&self, stage: Stage) -> Result<()> {
        let mut check = Check { module: self, stage, visible: HashSet::new(), defined: HashSet::new() };
        check.region(&self.main, "the main graph")?;
        if self.outputs.len() != self.main.outputs.len() {
            return Err(check.breach(format!(
                "{} outputs are declared, but the main graph has {}",
                self.outputs.len(),
                self.main.outputs.len()
            )));
        }
        Ok(())
    }
}

struct Check<'a> {
    module: &'a Module,
    stage: Stage,
    /// Values that may be read here.
    visible: HashSet<ValueId>,
    /// Values that were defined anywhere.
    defined: HashSet<ValueId>,
}

impl Check<'_> {
    fn breach(&self, message: String) -> Error {
        Error::internal(self.stage, format!("graph IR: {message}"))
    }

    fn define(&mut self, id: ValueId, by: &str, here: &mut Vec<ValueId>) -> Result<()> {
        if id.0 as usize >= self.module.values.len() {
            return Err(self.breach(format!("{id} defined by {by} is not in the table of values")));
        }
        if !self.defined.insert(id) {
            return Err(self.breach(format!("{} is defined a second time by {by}", self.module.value_name(id))));
        }
        self.visible.insert(id);
        here.push(id);
        Ok(())
    }

    fn read(&self, id: ValueId, by: &str) -> Result<()> {
        if self.visible.contains(&id) {
            return Ok(());
        }
        let name = self.module.value_name(id);
        Err(self.breach(if self.defined.contains(&id) {
            format!("{by} reads {name} ({id}), which is defined in a region it does not lie in")
        } else {
            format!("{by} reads {name} ({id}), which is not defined before")
        }))
    }

    fn region(&mut self, region: &Region, what: &str) -> Result<()> {
        let mut here = Vec::new();
        for id in &region.inputs {
            self.define(*id, what, &mut here)?;
        }
        for (id, _) in &region.constants {
            self.define(*id, what, &mut here)?;
        }
        for node in &region.nodes {
            self.node(node, &mut here)?;
        }
        for id in &region.outputs {
            self.read(*id, what)?;
        }
        for id in here {
            self.visible.remove(&id);
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, here: &mut Vec<ValueId>) -> Result<()> {
        let label = node.to_string();
        if node.name.is_empty() || node.domain.is_empty() || node.op_type.is_empty() {
            return Err(self.breach(format!("{label} lacks a name, a domain or an operator")));
        }
        for id in node.given_inputs() {
            self.read(id, &label)?;
        }
        for (name, attr) in &node.attrs {
            for region in attr.regions() {
                self.region(region, &format!("{label}, {name}"))?;
            }
        }
        for id in node.wanted_outputs() {
            self.define(id, &label, here)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Attr, OutputDecl, ValueType};

    fn node(inputs: &[u32], outputs: &[u32]) -> Node {
        Node {
            name: "n".into(),
            domain: "ai.onnx".into(),
            op_type: "Op".into(),
            version: 21,
            inputs: inputs.iter().map(|i| Some(ValueId(*i))).collect(),
            outputs: outputs.iter().map(|i| Some(ValueId(*i))).collect(),
            attrs: Default::default(),
        }
    }

    fn module(nodes: Vec<Node>, output: u32) -> Module {
        let mut module = Module::default();
        for i in 0..4 {
            module.add_value(format!("v{i}"), ValueType::Unknown);
        }
        module.main = Region { inputs: vec![ValueId(0)], outputs: vec![ValueId(output)], nodes, ..Region::default() };
        module.outputs = vec![OutputDecl { name: "out".into(), ty: ValueType::Unknown }];
        module
    }

    fn complaint(module: &Module) -> String {
        module.verify(Stage::Mend).unwrap_err().to_string()
    }

    #[test]
    fn order_and_uniqueness_are_checked() {
        module(vec![node(&[0], &[1]), node(&[1], &[2])], 2).verify(Stage::Mend).unwrap();
        let unsorted = module(vec![node(&[1], &[2]), node(&[0], &[1])], 2);
        assert!(complaint(&unsorted).contains("reads 'v1' (%1), which is not defined before"));
        let twice = module(vec![node(&[0], &[1]), node(&[0], &[1])], 1);
        assert!(complaint(&twice).contains("'v1' is defined a second time"));
        let outside = module(vec![node(&[0], &[9])], 0);
        assert!(complaint(&outside).contains("%9 defined by node 'n' (ai.onnx:Op-21) is not in the table"));
        let undefined = module(vec![], 3);
        assert!(complaint(&undefined).contains("the main graph reads 'v3'"));
        let mut extra = module(vec![], 0);
        extra.outputs.clear();
        assert!(complaint(&extra).contains("0 outputs are declared, but the main graph has 1"));
    }

    #[test]
    fn a_region_sees_outward_but_not_inward() {
        let mut holder = node(&[0], &[2]);
        let inner = Region { nodes: vec![node(&[0], &[1])], outputs: vec![ValueId(1)], ..Region::default() };
        holder.attrs.insert("body".into(), Attr::Region(inner));
        module(vec![holder.clone()], 2).verify(Stage::Mend).unwrap();
        let leaking = module(vec![holder, node(&[1], &[3])], 3);
        assert!(complaint(&leaking).contains("reads 'v1' (%1), which is defined in a region it does not lie in"));
    }
}
