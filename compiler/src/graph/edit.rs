//! Building blocks of rewrites: substitution of values, copies of regions, what a region reads from outside.

use std::collections::{BTreeSet, HashMap};

use crate::graph::{Attr, Module, Node, Region, Value, ValueId};

/// Values that take the place of others wherever they are read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Substitution {
    map: HashMap<ValueId, ValueId>,
}

impl Substitution {
    /// One that replaces nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `new` be read instead of `old`. What was to be replaced by `old` so far follows.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.get(new);
        if old != new {
            self.map.insert(old, new);
        }
    }

    /// What is read instead of a value, the value itself if it is not replaced.
    pub fn get(&self, id: ValueId) -> ValueId {
        let mut id = id;
        // A chain has no cycle: `replace` looks the new value up first and never maps a value to itself.
        while let Some(next) = self.map.get(&id) {
            id = *next;
        }
        id
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Rewrites what a node reads, its regions included; what it defines stays.
    pub fn apply_to_node(&self, node: &mut Node) {
        for input in node.inputs.iter_mut().flatten() {
            *input = self.get(*input);
        }
        for region in node.regions_mut() {
            self.apply(region);
        }
    }

    /// Rewrites what a region and the regions within read, the region's results included; what they define stays.
    pub fn apply(&self, region: &mut Region) {
        if self.is_empty() {
            return;
        }
        for node in &mut region.nodes {
            self.apply_to_node(node);
        }
        for output in &mut region.outputs {
            *output = self.get(*output);
        }
    }
}

/// The values that a region reads, or gives out, without defining them, in increasing order.
pub fn captures(region: &Region) -> BTreeSet<ValueId> {
    let mut defined = BTreeSet::new();
    let mut read = BTreeSet::new();
    collect(region, &mut defined, &mut read);
    read.difference(&defined).copied().collect()
}

fn collect(region: &Region, defined: &mut BTreeSet<ValueId>, read: &mut BTreeSet<ValueId>) {
    defined.extend(region.inputs.iter().copied());
    defined.extend(region.constants.iter().map(|(id, _)| *id));
    read.extend(region.outputs.iter().copied());
    for node in &region.nodes {
        read.extend(node.given_inputs());
        defined.extend(node.wanted_outputs());
        for inner in node.regions() {
            collect(inner, defined, read);
        }
    }
}

impl Module {
    /// A copy of a region with fresh values for all that it defines, its inputs replaced by `args`; an input beyond
    /// `args` stays an input of the copy, under a fresh value. Outer values are read as before.
    ///
    /// This is how a body is put in the place of the node that holds it, once or for each trip.
    pub fn instantiate(&mut self, region: &Region, args: &[ValueId]) -> Region {
        let mut fresh = HashMap::new();
        for (input, arg) in region.inputs.iter().zip(args) {
            fresh.insert(*input, *arg);
        }
        let kept = args.len().min(region.inputs.len());
        Copier { values: &mut self.values, fresh }.region(region, kept)
    }

    /// A copy of a node and its regions with fresh values for all that it defines.
    pub fn instantiate_node(&mut self, node: &Node) -> Node {
        Copier { values: &mut self.values, fresh: HashMap::new() }.node(node)
    }
}

struct Copier<'a> {
    values: &'a mut Vec<Value>,
    fresh: HashMap<ValueId, ValueId>,
}

impl Copier<'_> {
    fn define(&mut self, old: ValueId) -> ValueId {
        let new = ValueId(self.values.len() as u32);
        let value = self.values[old.0 as usize].clone();
        self.values.push(value);
        self.fresh.insert(old, new);
        new
    }

    fn read(&self, old: ValueId) -> ValueId {
        self.fresh.get(&old).copied().unwrap_or(old)
    }

    /// Copies a region of which the first `bound` inputs are replaced already.
    fn region(&mut self, region: &Region, bound: usize) -> Region {
        Region {
            name: region.name.clone(),
            inputs: region.inputs.iter().skip(bound).map(|id| self.define(*id)).collect(),
            constants: region.constants.iter().map(|(id, data)| (self.define(*id), data.clone())).collect(),
            nodes: region.nodes.iter().map(|node| self.node(node)).collect(),
            outputs: region.outputs.iter().map(|id| self.read(*id)).collect(),
        }
    }

    fn node(&mut self, node: &Node) -> Node {
        // The regions are copied before the outputs are defined: they cannot read them.
        let inputs = node.inputs.iter().map(|id| id.map(|id| self.read(id))).collect();
        let attrs = node.attrs.iter().map(|(name, attr)| (name.clone(), self.attr(attr))).collect();
        let outputs = node.outputs.iter().map(|id| id.map(|id| self.define(id))).collect();
        Node {
            name: node.name.clone(),
            domain: node.domain.clone(),
            op_type: node.op_type.clone(),
            version: node.version,
            inputs,
            outputs,
            attrs,
        }
    }

    fn attr(&mut self, attr: &Attr) -> Attr {
        match attr {
            Attr::Region(region) => Attr::Region(self.region(region, 0)),
            Attr::Regions(regions) => Attr::Regions(regions.iter().map(|r| self.region(r, 0)).collect()),
            plain => plain.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{TensorData, ValueType};
    use std::sync::Arc;

    /// A region over outer `%0`: input `%1`, constant `%2`, `%3 = Add(%1, %2)`, `%4 = If(%0) { give %3 }`.
    fn sample() -> (Module, Region) {
        let mut module = Module::default();
        let ids: Vec<ValueId> = (0..5).map(|i| module.add_value(format!("v{i}"), ValueType::Unknown)).collect();
        let branch = Region { outputs: vec![ids[3]], ..Region::default() };
        let add = Node { inputs: vec![Some(ids[1]), Some(ids[2])], outputs: vec![Some(ids[3])], ..Node::default() };
        let choose = Node {
            inputs: vec![Some(ids[0])],
            outputs: vec![Some(ids[4])],
            attrs: [("then_branch".to_owned(), Attr::Region(branch))].into(),
            ..Node::default()
        };
        let region = Region {
            inputs: vec![ids[1]],
            constants: vec![(ids[2], Arc::new(TensorData::scalar_f32(1.0)))],
            nodes: vec![add, choose],
            outputs: vec![ids[4]],
            ..Region::default()
        };
        (module, region)
    }

    #[test]
    fn captures_are_what_is_read_but_not_defined() {
        let (_, region) = sample();
        assert_eq!(captures(&region), [ValueId(0)].into());
        assert_eq!(captures(&region.nodes[1].require_region("then_branch").unwrap().clone()), [ValueId(3)].into());
    }

    #[test]
    fn an_instance_defines_fresh_values_and_reads_its_arguments() {
        let (mut module, region) = sample();
        let arg = module.add_value("arg", ValueType::Unknown);
        let copy = module.instantiate(&region, &[arg]);
        assert!(copy.inputs.is_empty());
        assert_eq!(copy.nodes[0].inputs, [Some(arg), Some(copy.constants[0].0)]);
        let sum = copy.nodes[0].output(0).unwrap();
        assert!(sum.0 > arg.0);
        assert_eq!(copy.nodes[1].inputs, [Some(ValueId(0))]);
        assert_eq!(copy.nodes[1].require_region("then_branch").unwrap().outputs, [sum]);
        assert_eq!(copy.outputs, [copy.nodes[1].output(0).unwrap()]);
        assert_eq!(module.value(sum).name, "v3");
        assert_eq!(captures(&copy), [ValueId(0), arg].into());

        let open = module.instantiate(&region, &[]);
        assert_eq!(open.inputs.len(), 1);
        assert_ne!(open.inputs, region.inputs);
    }

    #[test]
    fn a_substitution_follows_chains_and_reaches_inner_regions() {
        let (_, mut region) = sample();
        let mut map = Substitution::new();
        map.replace(ValueId(3), ValueId(8));
        map.replace(ValueId(8), ValueId(9));
        map.replace(ValueId(9), ValueId(3));
        assert_eq!(map.get(ValueId(3)), ValueId(9), "a cycle is not made");
        map.apply(&mut region);
        assert_eq!(region.nodes[1].require_region("then_branch").unwrap().outputs, [ValueId(9)]);
        assert_eq!(region.nodes[0].outputs, [Some(ValueId(3))]);
    }
}
