//! Modules, regions, nodes and attributes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::graph::{TensorData, Value, ValueType};
use graphmend_cache_format::meta::Border;

/// A value of a module, unique over all its regions: an index into [`Module::values`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub u32);

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// A whole model. Model-local functions are inlined already.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Module {
    /// The graph's name.
    pub name: String,
    /// Version of the file format that the model was written in.
    pub ir_version: i64,
    /// Program that wrote the model, for people.
    pub producer: String,
    /// Imported operator sets: domain to version.
    pub opsets: BTreeMap<String, i64>,
    /// The model's own key-value pairs.
    pub metadata: BTreeMap<String, String>,
    /// Every value of every region.
    pub values: Vec<Value>,
    /// The graph. Its inputs are those that a caller gives, in the model's order, without those that have an
    /// initializer.
    pub main: Region,
    /// What the model declares of its outputs, one for each of `main.outputs`: a rewrite may put another value in an
    /// output's place, its name and type for the caller stay.
    pub outputs: Vec<OutputDecl>,
    /// Calls of model-local functions that importing has inlined.
    pub inlined_calls: usize,
    /// What tensors at the border stand for, once mending has put them in the place of sequences and optionals.
    pub borders: Borders,
}

/// The declared inputs and outputs of a model: name, and how it is held in tensors.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Borders {
    /// Inputs, in order.
    pub inputs: Vec<(String, Border)>,
    /// Outputs, in order.
    pub outputs: Vec<(String, Border)>,
}

/// Name and declared type of an output of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutputDecl {
    /// The name that a caller knows.
    pub name: String,
    /// The declared type.
    pub ty: ValueType,
}

/// Nodes in an order in which each value is defined before it is read.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Region {
    /// Name for people.
    pub name: String,
    /// Values that the region's user defines: the caller's inputs, a loop's carried values.
    pub inputs: Vec<ValueId>,
    /// Results. A region may give out an outer value, an input or a constant, and one value several times.
    pub outputs: Vec<ValueId>,
    /// The work.
    pub nodes: Vec<Node>,
    /// Constants, visible in all of the region and the regions within.
    pub constants: Vec<(ValueId, Arc<TensorData>)>,
}

/// One application of an operator.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Node {
    /// Name for people and messages; never empty, not always unique.
    pub name: String,
    /// Domain of the operator, `ai.onnx` for the default one.
    pub domain: String,
    /// The operator.
    pub op_type: String,
    /// Version of the domain's operator set that the node was written for; which version of the operator that is, the
    /// operator's own file knows.
    pub version: i64,
    /// Inputs by place; `None` for one that is left out.
    pub inputs: Vec<Option<ValueId>>,
    /// Outputs by place; `None` for one that nobody wants.
    pub outputs: Vec<Option<ValueId>>,
    /// Attributes by name.
    pub attrs: BTreeMap<String, Attr>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// Bytes, UTF-8 by convention.
    Str(Vec<u8>),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
    /// Byte strings.
    Strs(Vec<Vec<u8>>),
    /// A tensor; sparse ones are made dense.
    Tensor(Arc<TensorData>),
    /// Tensors.
    Tensors(Vec<Arc<TensorData>>),
    /// A region that may read outer values.
    Region(Region),
    /// Regions that may read outer values.
    Regions(Vec<Region>),
    /// A type.
    Type(ValueType),
    /// Types.
    Types(Vec<ValueType>),
}

impl Attr {
    /// The kind in words, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attr::Int(_) => "an integer",
            Attr::Float(_) => "a number",
            Attr::Str(_) => "a string",
            Attr::Ints(_) => "a list of integers",
            Attr::Floats(_) => "a list of numbers",
            Attr::Strs(_) => "a list of strings",
            Attr::Tensor(_) => "a tensor",
            Attr::Tensors(_) => "a list of tensors",
            Attr::Region(_) => "a graph",
            Attr::Regions(_) => "a list of graphs",
            Attr::Type(_) => "a type",
            Attr::Types(_) => "a list of types",
        }
    }

    /// The regions held, in order.
    pub fn regions(&self) -> &[Region] {
        match self {
            Attr::Region(region) => std::slice::from_ref(region),
            Attr::Regions(regions) => regions,
            _ => &[],
        }
    }

    /// The regions held, in order, to change them.
    pub fn regions_mut(&mut self) -> &mut [Region] {
        match self {
            Attr::Region(region) => std::slice::from_mut(region),
            Attr::Regions(regions) => regions,
            _ => &mut [],
        }
    }
}

impl Module {
    /// A new value that nothing defines yet.
    pub fn add_value(&mut self, name: impl Into<String>, ty: ValueType) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { name: name.into(), ty });
        id
    }

    /// What is known of a value; panics on an id of another module, which [`Module::verify`] excludes.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    /// As [`Module::value`], to change it.
    pub fn value_mut(&mut self, id: ValueId) -> &mut Value {
        &mut self.values[id.0 as usize]
    }

    /// The name for messages: `'x'`, or the id for a value without a name.
    pub fn value_name(&self, id: ValueId) -> String {
        match self.values.get(id.0 as usize) {
            Some(value) if !value.name.is_empty() => format!("'{}'", value.name),
            _ => id.to_string(),
        }
    }

    /// Nodes in all regions.
    pub fn node_count(&self) -> usize {
        let mut count = 0;
        self.main.walk(&mut |_| count += 1);
        count
    }
}

impl Region {
    /// The tensor of a constant defined in this very region.
    pub fn constant(&self, id: ValueId) -> Option<&Arc<TensorData>> {
        self.constants.iter().find(|(known, _)| *known == id).map(|(_, data)| data)
    }

    /// Calls `visit` on every node of this region and the regions within, outer nodes before inner ones.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Node)) {
        for node in &self.nodes {
            visit(node);
            for region in node.regions() {
                region.walk(visit);
            }
        }
    }

    /// As [`Region::walk`], over the regions themselves, this one first.
    pub fn walk_regions<'a>(&'a self, visit: &mut impl FnMut(&'a Region)) {
        visit(self);
        for node in &self.nodes {
            for region in node.regions() {
                region.walk_regions(visit);
            }
        }
    }
}
