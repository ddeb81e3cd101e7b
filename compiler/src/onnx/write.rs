//! Graph IR to legal ONNX.
//!
//! Names become unique over the whole model, so that no reader has to know about shadowing. Inputs and outputs keep the
//! names that callers know. Where the graph IR is freer than the format (a region that gives out an outer value, an
//! input or a constant; one value as two outputs) an `Identity` stands between. Types of values within are left to the
//! reader's inference: what the model declared of them may have been made more special. The compiler's own checks, which
//! stand where guards stood, are left out: a model that passes them computes the same without.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use prost::Message;

use crate::error::{Error, Result, Stage};
use crate::graph::{Attr, DimDecl, ElemType, Module, Node, ONNX_DOMAIN, Region, TensorData, ValueId, ValueType};
use crate::onnx::proto::{
    AttributeProto, ContainerType, Dimension, DimensionValue, FunctionProto, GraphProto, IR_VERSION, MapType,
    ModelProto, NodeProto, OpaqueType, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TensorType, TypeProto, TypeValue, ValueInfoProto, attribute_type, data_location,
};

/// The domain of functions that hold operators of another version of their set than the model imports.
const COMPAT_DOMAIN: &str = "graphmend.compat";
/// Weights beyond this go to a file beside the model: protobuf messages end at 2 GiB.
const MOST_INLINE_BYTES: usize = 1 << 30;
/// Where tensors start in that file.
const EXTERNAL_ALIGN: usize = 4096;

/// The module as ONNX messages, weights included.
///
/// # Errors
/// [`Error::Refused`] when operators of one domain are needed in several versions and one of the rarer versions holds a
/// graph, which no function can wrap.
pub fn to_model(module: &Module) -> Result<ModelProto> {
    let versions = choose_versions(module);
    let mut writer = Writer {
        module,
        versions,
        names: HashMap::new(),
        values: Names::default(),
        nodes: Names::default(),
        compat: BTreeMap::new(),
    };
    // Names that callers know go first.
    for id in &module.main.inputs {
        let name = writer.unique(&module.value(*id).name, *id);
        writer.names.insert(*id, name);
    }
    for output in &module.outputs {
        writer.values.reserve(&output.name);
    }
    let mut graph = writer.region(&module.main, true)?;
    if graph.name.as_deref().is_none_or(str::is_empty) {
        graph.name = Some("main".into());
    }
    let mut imports = std::mem::take(&mut writer.versions);
    if imports.is_empty() {
        imports.insert(ONNX_DOMAIN.into(), DEFAULT_OPSET);
    }
    // Before version 4, initializers had to be inputs; functions came with version 8.
    let mut ir_version = module.ir_version.clamp(4, IR_VERSION);
    let functions: Vec<FunctionProto> = writer.compat.into_values().collect();
    if !functions.is_empty() {
        ir_version = ir_version.max(8);
        imports.insert(COMPAT_DOMAIN.into(), 1);
    }
    Ok(ModelProto {
        ir_version: Some(ir_version),
        opset_import: imports.into_iter().map(|(domain, version)| opset(&domain, version)).collect(),
        producer_name: Some("graphmend".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(graph),
        metadata_props: module
            .metadata
            .iter()
            .map(|(key, value)| StringStringEntryProto { key: Some(key.clone()), value: Some(value.clone()) })
            .collect(),
        functions,
        ..Default::default()
    })
}

/// Writes the module to a file. Weights that a protobuf message cannot hold go to `<file name>.data` beside it.
pub fn write_file(module: &Module, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let mut model = to_model(module)?;
    if let Some(graph) = &mut model.graph {
        let bytes: usize = graph.initializer.iter().map(|tensor| tensor.raw_data.as_ref().map_or(0, Vec::len)).sum();
        if bytes > MOST_INLINE_BYTES {
            externalise(graph, path)?;
        }
    }
    std::fs::write(path, model.encode_to_vec()).map_err(|e| Error::io(path, e))
}

/// Moves the main graph's larger weights to a file beside `path`.
fn externalise(graph: &mut GraphProto, path: &Path) -> Result<()> {
    let mut location = path.file_name().unwrap_or_default().to_os_string();
    location.push(".data");
    let file = path.with_file_name(&location);
    let location = location.to_string_lossy().into_owned();
    let io = |e| Error::io(&file, e);
    let mut out = BufWriter::new(File::create(&file).map_err(io)?);
    let mut offset = 0usize;
    for tensor in &mut graph.initializer {
        let Some(bytes) = tensor.raw_data.take_if(|bytes| bytes.len() >= 1024) else { continue };
        let start = offset.next_multiple_of(EXTERNAL_ALIGN);
        out.write_all(&vec![0; start - offset]).and_then(|()| out.write_all(&bytes)).map_err(io)?;
        offset = start + bytes.len();
        let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
        tensor.data_location = Some(data_location::EXTERNAL);
        tensor.external_data = vec![
            entry("location", location.clone()),
            entry("offset", start.to_string()),
            entry("length", bytes.len().to_string()),
        ];
    }
    out.flush().map_err(io)
}

/// The operator set for models that hold no node of the default domain but need an `Identity`.
const DEFAULT_OPSET: i64 = 21;

fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(file_domain(domain).into()), version: Some(version) }
}

/// A domain as files spell it.
fn file_domain(domain: &str) -> &str {
    if domain == ONNX_DOMAIN { "" } else { domain }
}

/// For each domain the version that most of its nodes want; the newest of several. Domains without nodes are left out.
fn choose_versions(module: &Module) -> BTreeMap<String, i64> {
    let mut counts: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    let mut fixed: BTreeMap<&str, i64> = BTreeMap::new();
    module.main.walk(&mut |node| {
        if is_private(node) {
            return;
        }
        *counts.entry((&node.domain, node.version)).or_default() += 1;
        // A node with graphs cannot be wrapped, so its version must be the model's.
        if node.regions().next().is_some() {
            let version = fixed.entry(&node.domain).or_insert(node.version);
            *version = node.version.max(*version);
        }
    });
    let mut best: BTreeMap<String, (usize, i64)> = BTreeMap::new();
    for ((domain, version), count) in counts {
        let entry = best.entry(domain.to_owned()).or_insert((0, 0));
        *entry = (*entry).max((count, version));
    }
    best.into_iter()
        .map(|(domain, (_, version))| {
            let version = fixed.get(domain.as_str()).copied().unwrap_or(version);
            (domain, version)
        })
        .collect()
}

/// A node that only this compiler knows.
fn is_private(node: &Node) -> bool {
    node.domain == crate::mend::trap::DOMAIN
}

/// Names given so far.
#[derive(Default)]
struct Names {
    used: HashSet<String>,
    /// Where to go on counting for a name that is wanted often.
    next: HashMap<String, usize>,
}

impl Names {
    fn reserve(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    fn unique(&mut self, wanted: &str) -> String {
        if self.used.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        let next = self.next.entry(wanted.to_owned()).or_insert(1);
        loop {
            let name = format!("{wanted}_{next}");
            *next += 1;
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }
}

struct Writer<'a> {
    module: &'a Module,
    versions: BTreeMap<String, i64>,
    names: HashMap<ValueId, String>,
    values: Names,
    nodes: Names,
    /// Functions that hold one operator, by a text that tells apart operators, versions, numbers of operands and attributes.
    compat: BTreeMap<String, FunctionProto>,
}

impl Writer<'_> {
    /// A name that no other value has.
    fn unique(&mut self, wanted: &str, id: ValueId) -> String {
        if wanted.is_empty() { self.values.unique(&format!("v{}", id.0)) } else { self.values.unique(wanted) }
    }

    fn define(&mut self, id: ValueId) -> String {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let name = self.unique(&self.module.value(id).name, id);
        self.names.insert(id, name.clone());
        name
    }

    fn read(&self, id: ValueId) -> Result<String> {
        self.names.get(&id).cloned().ok_or_else(|| {
            Error::internal(Stage::Mend, format!("value {} is read before it is defined", self.module.value_name(id)))
        })
    }

    fn region(&mut self, region: &Region, main: bool) -> Result<GraphProto> {
        let mut graph = GraphProto { name: Some(region.name.clone()), ..Default::default() };
        if region.name.is_empty() {
            graph.name = Some("region".into());
        }
        for id in &region.inputs {
            let name = self.define(*id);
            graph.input.push(value_info(name, &self.module.value(*id).ty));
        }
        for (id, data) in &region.constants {
            let name = self.define(*id);
            graph.initializer.push(tensor(Some(name), data));
        }
        // Values of nodes of this region can be outputs by themselves, once each; all others go through an Identity.
        let mut own: HashSet<ValueId> = region.nodes.iter().flat_map(Node::wanted_outputs).collect();
        let mut copies: Vec<(ValueId, String)> = Vec::new();
        let mut outputs: Vec<String> = Vec::new();
        for (place, id) in region.outputs.iter().enumerate() {
            let known = main.then(|| self.module.outputs.get(place)).flatten().map(|output| output.name.clone());
            if known.is_some() && known.as_ref() == self.names.get(id) {
                // An input of the model that is an output under the same name.
                outputs.extend(known);
                continue;
            }
            let direct = own.remove(id);
            let name = match known {
                Some(name) => name,
                None if direct => self.unique(&self.module.value(*id).name, *id),
                None => self.unique(&format!("{}_out", self.module.value(*id).name), *id),
            };
            if direct {
                self.names.insert(*id, name.clone());
            } else {
                copies.push((*id, name.clone()));
            }
            outputs.push(name);
        }
        for node in region.nodes.iter().filter(|n| !is_private(n)) {
            let node = self.node(node)?;
            graph.node.push(node);
        }
        for (id, name) in copies {
            let from = self.read(id)?;
            let node_name = self.nodes.unique(&format!("give_{name}"));
            graph.node.push(NodeProto {
                input: vec![from],
                output: vec![name],
                name: Some(node_name),
                op_type: Some("Identity".into()),
                domain: Some(String::new()),
                ..Default::default()
            });
            self.versions.entry(ONNX_DOMAIN.into()).or_insert(DEFAULT_OPSET);
        }
        for (place, name) in outputs.into_iter().enumerate() {
            let own = &self.module.value(region.outputs[place]).ty;
            let declared = if main { self.module.outputs.get(place).map(|output| &output.ty) } else { None };
            let ty = declared.filter(|ty| **ty != ValueType::Unknown).unwrap_or(own);
            graph.output.push(value_info(name, ty));
        }
        Ok(graph)
    }

    fn node(&mut self, node: &Node) -> Result<NodeProto> {
        let mut input = Vec::with_capacity(node.inputs.len());
        for id in &node.inputs {
            input.push(match id {
                Some(id) => self.read(*id)?,
                None => String::new(),
            });
        }
        let mut attribute = Vec::with_capacity(node.attrs.len());
        for (name, attr) in &node.attrs {
            attribute.push(self.attribute(name, attr)?);
        }
        let output = node.outputs.iter().map(|id| id.map_or_else(String::new, |id| self.define(id))).collect();
        let name = self.nodes.unique(&node.name);
        let mut written = NodeProto {
            input,
            output,
            name: Some(name),
            op_type: Some(node.op_type.clone()),
            domain: Some(file_domain(&node.domain).into()),
            attribute,
            ..Default::default()
        };
        if self.versions.get(&node.domain) != Some(&node.version) {
            self.wrap(node, &mut written)?;
        }
        Ok(written)
    }

    /// Moves a node of another version of its operator set into a function that imports that version.
    fn wrap(&mut self, node: &Node, written: &mut NodeProto) -> Result<()> {
        if node.regions().next().is_some() {
            return Err(node.unsupported(format!(
                "version {} of operator set '{}' is needed beside version {} in one file",
                node.version,
                node.domain,
                self.versions.get(&node.domain).copied().unwrap_or(0)
            )));
        }
        let mask =
            |names: &[String]| -> String { names.iter().map(|n| if n.is_empty() { '_' } else { 'x' }).collect() };
        let inner = NodeProto {
            input: formal(&written.input, "i"),
            output: formal(&written.output, "o"),
            name: Some(node.op_type.clone()),
            ..written.clone()
        };
        let (inputs, outputs) = (mask(&inner.input), mask(&inner.output));
        let key = format!("{}/{inputs}/{outputs}/{:?}", node.label(), inner.attribute);
        let count = self.compat.len();
        let function = self.compat.entry(key).or_insert_with(|| FunctionProto {
            name: Some(format!("{}_{}_{count}", node.op_type, node.version)),
            domain: Some(COMPAT_DOMAIN.into()),
            input: inner.input.iter().filter(|name| !name.is_empty()).cloned().collect(),
            output: inner.output.iter().filter(|name| !name.is_empty()).cloned().collect(),
            opset_import: vec![opset(&node.domain, node.version)],
            node: vec![inner],
            ..Default::default()
        });
        written.op_type.clone_from(&function.name);
        written.domain = Some(COMPAT_DOMAIN.into());
        written.attribute.clear();
        written.input.retain(|name| !name.is_empty());
        written.output.retain(|name| !name.is_empty());
        Ok(())
    }

    fn attribute(&mut self, name: &str, attr: &Attr) -> Result<AttributeProto> {
        use attribute_type as kind;
        let empty = AttributeProto { name: Some(name.to_owned()), ..Default::default() };
        Ok(match attr {
            Attr::Int(value) => AttributeProto { r#type: Some(kind::INT), i: Some(*value), ..empty },
            Attr::Float(value) => AttributeProto { r#type: Some(kind::FLOAT), f: Some(*value), ..empty },
            Attr::Str(value) => AttributeProto { r#type: Some(kind::STRING), s: Some(value.clone()), ..empty },
            Attr::Ints(values) => AttributeProto { r#type: Some(kind::INTS), ints: values.clone(), ..empty },
            Attr::Floats(values) => AttributeProto { r#type: Some(kind::FLOATS), floats: values.clone(), ..empty },
            Attr::Strs(values) => AttributeProto { r#type: Some(kind::STRINGS), strings: values.clone(), ..empty },
            Attr::Tensor(data) => AttributeProto { r#type: Some(kind::TENSOR), t: Some(tensor(None, data)), ..empty },
            Attr::Tensors(all) => {
                let tensors = all.iter().map(|data| tensor(None, data)).collect();
                AttributeProto { r#type: Some(kind::TENSORS), tensors, ..empty }
            }
            Attr::Region(region) => {
                AttributeProto { r#type: Some(kind::GRAPH), g: Some(self.region(region, false)?), ..empty }
            }
            Attr::Regions(regions) => {
                let graphs = regions.iter().map(|region| self.region(region, false)).collect::<Result<_>>()?;
                AttributeProto { r#type: Some(kind::GRAPHS), graphs, ..empty }
            }
            Attr::Type(ty) => AttributeProto { r#type: Some(kind::TYPE_PROTO), tp: type_proto(ty), ..empty },
            Attr::Types(types) => {
                let type_protos = types.iter().map(|ty| type_proto(ty).unwrap_or_default()).collect();
                AttributeProto { r#type: Some(kind::TYPE_PROTOS), type_protos, ..empty }
            }
        })
    }
}

fn formal(names: &[String], letter: &str) -> Vec<String> {
    let numbered = names.iter().enumerate();
    numbered.map(|(n, name)| if name.is_empty() { String::new() } else { format!("{letter}{n}") }).collect()
}

fn tensor(name: Option<String>, data: &TensorData) -> TensorProto {
    let strings = data.elem == ElemType::String;
    TensorProto {
        dims: data.shape.iter().map(|dim| *dim as i64).collect(),
        data_type: Some(data.elem.code()),
        name,
        raw_data: (!strings).then(|| data.bytes.as_ref().clone()),
        string_data: data.strings.clone(),
        ..Default::default()
    }
}

fn value_info(name: String, ty: &ValueType) -> ValueInfoProto {
    ValueInfoProto { name: Some(name), r#type: type_proto(ty), ..Default::default() }
}

fn type_proto(ty: &ValueType) -> Option<TypeProto> {
    let contained = |of: &ValueType| Box::new(ContainerType { elem_type: type_proto(of).map(Box::new) });
    let value = match ty {
        ValueType::Tensor { elem, shape } => TypeValue::Tensor(tensor_type(*elem, shape)),
        ValueType::SparseTensor { elem, shape } => TypeValue::SparseTensor(tensor_type(*elem, shape)),
        ValueType::Sequence(of) => TypeValue::Sequence(contained(of)),
        ValueType::Optional(of) => TypeValue::Optional(contained(of)),
        ValueType::Map { key, value } => TypeValue::Map(Box::new(MapType {
            key_type: Some(key.code()),
            value_type: type_proto(value).map(Box::new),
        })),
        ValueType::Opaque(domain, name) => {
            TypeValue::Opaque(OpaqueType { domain: Some(domain.clone()), name: Some(name.clone()) })
        }
        ValueType::Unknown => return None,
    };
    Some(TypeProto { value: Some(value), denotation: None })
}

fn tensor_type(elem: ElemType, shape: &Option<Vec<DimDecl>>) -> TensorType {
    let dim = |decl: &DimDecl| Dimension {
        value: match decl {
            DimDecl::Fixed(size) => Some(DimensionValue::DimValue(*size as i64)),
            DimDecl::Named(name) => Some(DimensionValue::DimParam(name.clone())),
            DimDecl::Unknown => None,
        },
        denotation: None,
    };
    let shape = shape.as_ref().map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
    TensorType { elem_type: Some(elem.code()), shape }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
