//! ONNX messages to graph IR.
//!
//! Names become ids, so captures of outer values and equal names in sibling graphs need no further care. `Constant`
//! nodes and initializers become constants of their region; an input that has an initializer is a constant, not an
//! input. Model-local functions are inlined: a call becomes the function's nodes, which keep the operator-set versions
//! that the function imports.

mod attrs;
mod scope;
mod types;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result, Stage, Unsupported};
use crate::graph::{Attr, Module, Node, OutputDecl, Region, TensorData, ValueId, ValueType};
use crate::onnx::load;
use crate::onnx::order;
use crate::onnx::proto::{FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::onnx::tensor::{self, Reason};
use crate::onnx::validate::{self, callee_key, function_key};
use crate::onnx::{domain_name, validate::validate};

use attrs::Attrs;
use scope::Scopes;

/// Inlining may make a model at most this large: a short chain of functions that call each other twice must not fill
/// the memory.
const MOST_NODES: usize = 1_000_000;
/// As [`MOST_NODES`], for the bytes of constants that inlined functions hold.
const MOST_INLINED_BYTES: usize = 1 << 31;

/// An imported model and what identifies its content.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    /// The model.
    pub module: Module,
    /// BLAKE3 over the model file and all external data it uses; see [`load::Loaded::content_digest`].
    pub content_digest: [u8; 32],
}

/// Reads, validates and imports a model file.
pub fn import_file(path: impl AsRef<Path>) -> Result<Imported> {
    let loaded = load::load(path)?;
    Ok(Imported { module: import(loaded.model)?, content_digest: loaded.content_digest })
}

/// Validates and imports a model whose external data is loaded.
pub fn import(model: ModelProto) -> Result<Module> {
    import_within(model, MOST_NODES)
}

/// As [`import`], with at most a given number of nodes.
fn import_within(model: ModelProto, most_nodes: usize) -> Result<Module> {
    validate(&model)?;
    let ModelProto {
        ir_version, opset_import, producer_name, producer_version, graph, metadata_props, functions, ..
    } = model;
    let graph = graph.ok_or_else(|| Error::invalid(Stage::Import, "the model has no graph"))?;
    let ir_version = ir_version.unwrap_or(0);
    let opsets = validate::opsets(&opset_import, ir_version);
    let opsets: HashMap<String, i64> =
        opsets.into_iter().map(|(domain, version)| (domain.to_owned(), version)).collect();
    let mut importer = Importer {
        module: Module {
            name: graph.name.clone().unwrap_or_default(),
            ir_version,
            producer: [producer_name, producer_version]
                .into_iter()
                .flatten()
                .filter(|s| !s.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
            opsets: opsets.iter().map(|(domain, version)| (domain.clone(), *version)).collect(),
            metadata: metadata_props
                .into_iter()
                .map(|entry| (entry.key.unwrap_or_default(), entry.value.unwrap_or_default()))
                .collect(),
            ..Module::default()
        },
        functions: functions.iter().map(|function| (function_key(function), function)).collect(),
        nodes: 0,
        most_nodes,
        inlined_bytes: 0,
    };
    let outputs = graph
        .output
        .iter()
        .map(|output| OutputDecl {
            name: output.name.clone().unwrap_or_default(),
            ty: types::declared(output.r#type.as_ref()),
        })
        .collect();
    let mut frame = Frame { scopes: Scopes::new(), attrs: None, opsets: &opsets, prefix: String::new(), depth: 0 };
    let main = importer.graph(graph, &mut frame)?;
    importer.module.main = main;
    importer.module.outputs = outputs;
    importer.module.verify(Stage::Import)?;
    Ok(importer.module)
}

/// Nodes of one text: the model's own graph or one call of a function, with the graphs within.
struct Frame<'o> {
    scopes: Scopes,
    /// In a function: what the call gives for the attributes that nodes refer to.
    attrs: Option<Attrs>,
    opsets: &'o HashMap<String, i64>,
    /// Put before the names of nodes and values.
    prefix: String,
    /// Calls around this one.
    depth: usize,
}

struct Importer<'m> {
    module: Module,
    functions: HashMap<validate::FunctionKey<'m>, &'m FunctionProto>,
    /// Nodes made so far, and how many there may be.
    nodes: usize,
    most_nodes: usize,
    /// Bytes of constants in inlined functions so far.
    inlined_bytes: usize,
}

/// The region being filled, and what its graph says about its values' types.
struct Filling {
    region: Region,
    types: HashMap<String, ValueType>,
}

fn tensor_error(node: &str, op: &str, what: &str, reason: Reason) -> Error {
    match reason {
        Reason::Invalid(why) => Error::invalid_node(Stage::Import, node, op, format!("{what}: {why}")),
        Reason::Unsupported(why) => Error::Refused(vec![Unsupported::new(node, op, format!("{what}: {why}"))]),
    }
}

impl Importer<'_> {
    fn graph(&mut self, graph: GraphProto, frame: &mut Frame<'_>) -> Result<Region> {
        let GraphProto { node, name, initializer, sparse_initializer, input, output, value_info, .. } = graph;
        let mut filling = Filling {
            region: Region { name: name.unwrap_or_default(), ..Region::default() },
            types: value_info
                .iter()
                .chain(&output)
                .filter_map(|info| Some((info.name.clone()?, types::declared(info.r#type.as_ref()))))
                .collect(),
        };
        frame.scopes.open();
        for tensor in initializer {
            let name = tensor.name.clone().unwrap_or_default();
            let data = tensor::convert(tensor)
                .map_err(|reason| tensor_error("", "", &format!("initializer '{name}'"), reason))?;
            self.constant(&name, Arc::new(data), &mut filling, frame);
        }
        for sparse in sparse_initializer {
            let name = sparse.values.as_ref().and_then(|values| values.name.clone()).unwrap_or_default();
            let data = tensor::convert_sparse(sparse)
                .map_err(|reason| tensor_error("", "", &format!("initializer '{name}'"), reason))?;
            self.constant(&name, Arc::new(data), &mut filling, frame);
        }
        for info in input {
            let name = info.name.unwrap_or_default();
            if !frame.scopes.defined_here(&name) {
                let id = self.module.add_value(frame.prefixed(&name), types::declared(info.r#type.as_ref()));
                filling.region.inputs.push(id);
                frame.scopes.define(name, Some(id));
            }
        }
        self.nodes(node, &mut filling, frame)?;
        let what = filling.region.name.clone();
        for info in output {
            let name = info.name.unwrap_or_default();
            let id = frame.scopes.get(&name).flatten().ok_or_else(|| {
                Error::invalid(Stage::Import, format!("output '{name}' of graph '{what}' is computed by no node"))
            })?;
            filling.region.outputs.push(id);
        }
        frame.scopes.close();
        Ok(filling.region)
    }

    fn constant(&mut self, name: &str, data: Arc<TensorData>, filling: &mut Filling, frame: &mut Frame<'_>) {
        if frame.depth > 0 {
            self.inlined_bytes = self.inlined_bytes.saturating_add(data.bytes.len());
        }
        let id = self.module.add_value(frame.prefixed(name), data.value_type());
        filling.region.constants.push((id, data));
        frame.scopes.define(name.to_owned(), Some(id));
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, filling: &mut Filling, frame: &mut Frame<'_>) -> Result<()> {
        let order = order::sort(&nodes, |name| frame.scopes.get(name).is_some())
            .map_err(|_| Error::internal(Stage::Import, "a graph without an order passed validation"))?;
        let mut nodes: Vec<Option<NodeProto>> = nodes.into_iter().map(Some).collect();
        for place in order {
            if let Some(node) = nodes[place].take() {
                self.node(node, place, filling, frame)?;
            }
        }
        Ok(())
    }

    fn node(&mut self, proto: NodeProto, place: usize, filling: &mut Filling, frame: &mut Frame<'_>) -> Result<()> {
        self.nodes += 1;
        if self.nodes > self.most_nodes || self.inlined_bytes > MOST_INLINED_BYTES {
            let what = format!(
                "inlining of functions gives more than {} nodes or {MOST_INLINED_BYTES} bytes of constants",
                self.most_nodes
            );
            return Err(Error::unsupported("", "", what));
        }
        let function = self.functions.get(&callee_key(&proto)).copied();
        let domain = domain_name(proto.domain.as_deref()).to_owned();
        let mut node = Node {
            name: frame.prefixed(&order::node_name(&proto, place)),
            version: frame.opsets.get(&domain).copied().unwrap_or(0),
            domain,
            op_type: proto.op_type.unwrap_or_default(),
            ..Node::default()
        };
        for name in &proto.input {
            let id = match name.as_str() {
                "" => None,
                name => frame
                    .scopes
                    .get(name)
                    .ok_or_else(|| node.invalid(format!("input '{name}' is defined nowhere before")))?,
            };
            node.inputs.push(id);
        }
        for attribute in proto.attribute {
            let name = attribute.name.clone().unwrap_or_default();
            if let Some(value) = self.attribute(attribute, &node, frame)? {
                node.attrs.insert(name, value);
            }
        }
        if let Some(function) = function {
            return self.call(node, function, proto.output, filling, frame);
        }
        if node.is("Constant") {
            let data = attrs::constant_value(&node)?;
            if let Some(name) = proto.output.first().filter(|name| !name.is_empty()) {
                self.constant(name, data, filling, frame);
            }
            return Ok(());
        }
        for name in proto.output {
            let id = if name.is_empty() {
                None
            } else {
                let ty = filling.types.get(&name).cloned().unwrap_or_default();
                let id = self.module.add_value(frame.prefixed(&name), ty);
                frame.scopes.define(name, Some(id));
                Some(id)
            };
            node.outputs.push(id);
        }
        filling.region.nodes.push(node);
        Ok(())
    }

    /// Puts a function's nodes in the place of a call. The call's region gets them, under names that begin with the
    /// call's name.
    fn call(
        &mut self,
        call: Node,
        function: &FunctionProto,
        outputs: Vec<String>,
        filling: &mut Filling,
        frame: &mut Frame<'_>,
    ) -> Result<()> {
        // Validation has refused recursion, so the depth is bounded by the number of functions; each level takes stack.
        if frame.depth >= 64 {
            return Err(
                call.unsupported("functions that call each other through more than 64 levels are not supported")
            );
        }
        self.module.inlined_calls += 1;
        let own = validate::opsets(&function.opset_import, i64::MAX);
        let mut opsets: HashMap<String, i64> =
            own.into_iter().map(|(domain, version)| (domain.to_owned(), version)).collect();
        for (domain, version) in frame.opsets {
            opsets.entry(domain.clone()).or_insert(*version);
        }
        let mut attrs = Attrs::new(call.attrs);
        for default in &function.attribute_proto {
            let name = default.name.clone().unwrap_or_default();
            if !attrs.contains(&name) {
                let holder = Node { name: call.name.clone(), domain: call.domain.clone(), ..Node::default() };
                if let Some(value) = self.attribute(default.clone(), &holder, frame)? {
                    attrs.insert(name, value);
                }
            }
        }
        let mut inner = Frame {
            scopes: Scopes::new(),
            attrs: Some(attrs),
            opsets: &opsets,
            prefix: format!("{}/", call.name),
            depth: frame.depth + 1,
        };
        inner.scopes.open();
        for (place, name) in function.input.iter().enumerate() {
            inner.scopes.define(name.clone(), call.inputs.get(place).copied().flatten());
        }
        let outer_types = std::mem::take(&mut filling.types);
        filling.types = function
            .value_info
            .iter()
            .filter_map(|info| Some((info.name.clone()?, types::declared(info.r#type.as_ref()))))
            .collect();
        self.nodes(function.node.clone(), filling, &mut inner)?;
        filling.types = outer_types;
        for (formal, actual) in function.output.iter().zip(outputs) {
            if actual.is_empty() {
                continue;
            }
            let id = inner.scopes.get(formal).flatten();
            if let Some(id) = id {
                self.refine(id, filling.types.get(&actual));
            }
            frame.scopes.define(actual, id);
        }
        Ok(())
    }

    /// Gives a value without a declared type the one that the caller declares for it.
    fn refine(&mut self, id: ValueId, declared: Option<&ValueType>) {
        let value = self.module.value_mut(id);
        if value.ty == ValueType::Unknown
            && let Some(ty) = declared
        {
            value.ty = ty.clone();
        }
    }

    /// A fresh copy of an attribute, so that a region that a function uses twice defines different values each time.
    fn fresh(&mut self, attr: &Attr) -> Attr {
        match attr {
            Attr::Region(region) => Attr::Region(self.module.instantiate(region, &[])),
            Attr::Regions(all) => Attr::Regions(all.iter().map(|r| self.module.instantiate(r, &[])).collect()),
            plain => plain.clone(),
        }
    }
}

impl Frame<'_> {
    fn prefixed(&self, name: &str) -> String {
        if self.prefix.is_empty() || name.is_empty() { name.to_owned() } else { format!("{}{name}", self.prefix) }
    }
}

#[cfg(test)]
mod tests;
