//! Shapes that are known whatever the input: those declared, and those that expanding the nodes of a graph as imported
//! gives. Asked only about results of branches and what loops carry.

use crate::expand::{Dims, Expander};
use crate::graph::{DimDecl, Module, Node, Region, ValueId};
use crate::ops;
use crate::sym::Int;
use crate::te::program::Def;
use std::collections::HashMap;

/// Shapes without open dimensions.
pub(super) type Statics = HashMap<ValueId, Vec<u64>>;

/// The sizes, if all are fixed.
pub(super) fn fixed(dims: &[DimDecl]) -> Option<Vec<u64>> {
    let size = |d: &DimDecl| match d {
        DimDecl::Fixed(n) => Some(*n),
        _ => None,
    };
    dims.iter().map(size).collect()
}

/// What is known of a module's values. Nothing for one without branches and loops.
pub(super) fn statics(module: &Module) -> Statics {
    let mut asks = false;
    module.main.walk(&mut |n| asks |= n.is("If") || n.is("Loop"));
    if !asks {
        return Statics::new();
    }
    let dims = Dims::new();
    let mut shapes = Shapes { module, facts: Expander::new(&dims) };
    // Inputs of types that are not supported have no shapes here.
    let _ = shapes.facts.inputs(module);
    shapes.region(&module.main);
    let ids = (0..module.values.len()).map(|k| ValueId(k as u32));
    ids.filter_map(|id| Some((id, shapes.sizes(id)?))).collect()
}

struct Shapes<'m> {
    module: &'m Module,
    facts: Expander<'m>,
}

impl Shapes<'_> {
    fn sizes(&self, id: ValueId) -> Option<Vec<u64>> {
        if let Some(known) = self.module.value(id).ty.shape().and_then(fixed) {
            return Some(known);
        }
        let t = self.facts.values.get(&id).filter(|_| !self.facts.poisoned.contains(&id))?;
        let size = |d: &Int| d.as_const().and_then(|n| u64::try_from(n).ok());
        self.facts.shape_of(*t).iter().map(size).collect()
    }

    fn region(&mut self, region: &Region) {
        for (id, data) in &region.constants {
            self.facts.constant(*id, data);
        }
        for id in &region.inputs {
            if !self.facts.values.contains_key(id) {
                self.declare(*id);
            }
        }
        for node in &region.nodes {
            for inner in node.regions() {
                self.facts.cx.begin_block();
                self.region(inner);
                self.facts.cx.end_block();
            }
            self.node(node);
        }
    }

    fn node(&mut self, node: &Node) {
        let plain = node.regions().next().is_none();
        let made = plain && self.facts.node(self.module, node).is_ok();
        for id in node.wanted_outputs() {
            if !made || self.facts.poisoned.contains(&id) {
                self.declare(id);
            }
        }
    }

    /// A value of which only the declared type is known.
    fn declare(&mut self, id: ValueId) {
        let ty = &self.module.value(id).ty;
        let (Some(dtype), Some(dims)) = (ty.elem().and_then(ops::stored), ty.shape()) else {
            self.facts.poisoned.insert(id);
            return;
        };
        let size = |d: &DimDecl| match d {
            DimDecl::Fixed(n) => i64::try_from(*n).map_or_else(|_| Int::symbol("size", Some(0), None), Int::new),
            _ => Int::symbol("size", Some(0), None),
        };
        let shape = dims.iter().map(size).collect();
        let t = self.facts.cx.define(dtype, shape, Def::Slot);
        self.facts.poisoned.remove(&id);
        self.facts.values.insert(id, t);
    }
}
