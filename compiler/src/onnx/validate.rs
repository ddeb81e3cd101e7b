//! The rules of the format, checked over the whole model before anything is made of it.
//!
//! All faults are listed, up to a limit. What operators mean is not judged here, only that what every operator relies on
//! holds: values exist, are defined once and in an order that can be followed, tensors have the data that they claim.

use std::collections::{HashMap, HashSet};

use crate::error::{Collector, Fault, Result, Stage, Unsupported};
use crate::graph::ONNX_DOMAIN;
use crate::onnx::proto::{
    AttributeProto, DimensionValue, FunctionProto, GraphProto, IR_VERSION, ModelProto, NodeProto, ONNX_OPSET,
    OperatorSetIdProto, TypeProto, TypeValue, ValueInfoProto, attribute_type,
};
use crate::onnx::tensor::{self, Reason};
use crate::onnx::{arity, domain_name, order};

/// Faults listed at most.
const MOST_FAULTS: usize = 40;

/// The identity of a model-local function: domain as the graph IR spells it, name, overload.
pub type FunctionKey<'a> = (&'a str, &'a str, &'a str);

/// The identity of a function.
pub fn function_key(function: &FunctionProto) -> FunctionKey<'_> {
    (
        domain_name(function.domain.as_deref()),
        function.name.as_deref().unwrap_or(""),
        function.overload.as_deref().unwrap_or(""),
    )
}

/// The identity of the function that a node calls, if there is one.
pub fn callee_key(node: &NodeProto) -> FunctionKey<'_> {
    (domain_name(node.domain.as_deref()), node.op_type.as_deref().unwrap_or(""), node.overload.as_deref().unwrap_or(""))
}

/// The imported operator sets: domain to version. Before IR version 3 a model may import none and means version 1.
pub fn opsets(imports: &[OperatorSetIdProto], ir_version: i64) -> HashMap<&str, i64> {
    let mut sets: HashMap<&str, i64> =
        imports.iter().map(|set| (domain_name(set.domain.as_deref()), set.version.unwrap_or(0))).collect();
    if imports.is_empty() && ir_version < 3 {
        sets.insert(ONNX_DOMAIN, 1);
    }
    sets
}

/// Checks a whole model.
///
/// # Errors
/// [`crate::error::Error::Invalid`] with every fault found, or [`crate::error::Error::Refused`] for valid models in a
/// form that is not supported, such as a newer version of the format.
pub fn validate(model: &ModelProto) -> Result<()> {
    let mut check = Check { found: Collector::new(), functions: HashMap::new(), model_opsets: HashMap::new() };
    check.model(model);
    check.found.finish()
}

struct Check<'m> {
    found: Collector,
    functions: HashMap<FunctionKey<'m>, &'m FunctionProto>,
    model_opsets: HashMap<&'m str, i64>,
}

/// Where a graph's nodes stand.
#[derive(Clone, Copy)]
struct Context<'c, 'm> {
    /// Operator sets that the nodes are written for.
    opsets: &'c HashMap<&'m str, i64>,
    /// The function they belong to, for messages and for the attributes that may be referred to.
    function: Option<&'m FunctionProto>,
}

impl<'m> Check<'m> {
    fn full(&self) -> bool {
        self.found.len() >= MOST_FAULTS
    }

    fn fault(&mut self, message: impl Into<String>) {
        self.fault_at("", "", message);
    }

    fn fault_at(&mut self, node: &str, op: &str, message: impl Into<String>) {
        if !self.full() {
            self.found.fault(Fault {
                stage: Stage::Validate,
                node: node.to_owned(),
                op: op.to_owned(),
                message: message.into(),
            });
        }
    }

    fn reason(&mut self, node: &str, op: &str, what: &str, reason: Reason) {
        match reason {
            Reason::Invalid(why) => self.fault_at(node, op, format!("{what}: {why}")),
            Reason::Unsupported(why) if !self.full() => {
                self.found.lack(Unsupported::new(node, op, format!("{what}: {why}")));
            }
            Reason::Unsupported(_) => {}
        }
    }

    fn model(&mut self, model: &'m ModelProto) {
        let ir_version = model.ir_version.unwrap_or(0);
        if ir_version < 1 {
            self.fault("the model has no IR version");
        } else if ir_version > IR_VERSION {
            let what = format!("IR version {ir_version} is newer than {IR_VERSION}, the newest that is supported");
            self.found.lack(Unsupported::new("", "", what));
        }
        self.imports(&model.opset_import, "the model");
        self.model_opsets = opsets(&model.opset_import, ir_version);
        for function in &model.functions {
            let key = function_key(function);
            if key.1.is_empty() {
                self.fault("a model-local function has no name");
            } else if self.functions.insert(key, function).is_some() {
                self.fault(format!("function '{}' is defined twice", call_name(key)));
            }
        }
        self.recursion(model);
        for function in &model.functions {
            self.function(function);
        }
        let Some(graph) = &model.graph else {
            return self.fault("the model file is damaged or incomplete: it has no graph");
        };
        for input in &graph.input {
            // A value whose type the model does not give can be anything; only the caller's inputs must say.
            if input.r#type.as_ref().and_then(|ty| ty.value.as_ref()).is_none() {
                self.fault(format!("input '{}' of the model has no type", input.name.as_deref().unwrap_or("")));
            }
        }
        let opsets = std::mem::take(&mut self.model_opsets);
        let context = Context { opsets: &opsets, function: None };
        self.graph(graph, &mut Vec::new(), context, "the graph");
    }

    fn imports(&mut self, imports: &[OperatorSetIdProto], whose: &str) {
        let mut seen: HashMap<&str, i64> = HashMap::new();
        for set in imports {
            let domain = domain_name(set.domain.as_deref());
            let version = set.version.unwrap_or(0);
            if version < 1 {
                self.fault(format!("{whose} imports version {version} of operator set '{domain}'"));
            }
            if domain == ONNX_DOMAIN && version > ONNX_OPSET {
                let what = format!(
                    "{whose} imports version {version} of operator set '{domain}', newer than {ONNX_OPSET}, \
                     the newest that is supported"
                );
                self.found.lack(Unsupported::new("", "", what));
            }
            if let Some(other) = seen.insert(domain, version).filter(|other| *other != version) {
                self.fault(format!("{whose} imports operator set '{domain}' twice, as {other} and as {version}"));
            }
        }
    }

    /// Functions that call themselves, directly or through others.
    fn recursion(&mut self, model: &'m ModelProto) {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            Open,
            Done,
        }
        fn callees<'m>(nodes: &'m [NodeProto], into: &mut Vec<FunctionKey<'m>>) {
            for node in nodes {
                into.push(callee_key(node));
                for attribute in &node.attribute {
                    for graph in attribute.g.iter().chain(&attribute.graphs) {
                        callees(&graph.node, into);
                    }
                }
            }
        }
        let mut marks: HashMap<FunctionKey<'m>, Mark> = HashMap::new();
        for function in &model.functions {
            // Depth first with an own stack: a chain of calls may be as long as the file has functions.
            let mut stack = vec![(function_key(function), None::<Vec<FunctionKey<'m>>>)];
            while let Some((key, pending)) = stack.pop() {
                let mut pending = match pending {
                    Some(pending) => pending,
                    None if marks.contains_key(&key) => continue,
                    None => {
                        marks.insert(key, Mark::Open);
                        let mut called = Vec::new();
                        if let Some(function) = self.functions.get(&key) {
                            callees(&function.node, &mut called);
                        }
                        called.retain(|callee| self.functions.contains_key(callee));
                        called
                    }
                };
                match pending.pop() {
                    None => {
                        marks.insert(key, Mark::Done);
                    }
                    Some(callee) => {
                        if marks.get(&callee) == Some(&Mark::Open) {
                            self.fault(format!(
                                "function '{}' calls itself, directly or through others",
                                call_name(callee)
                            ));
                        }
                        stack.push((key, Some(pending)));
                        stack.push((callee, None));
                    }
                }
            }
        }
    }

    fn function(&mut self, function: &'m FunctionProto) {
        let name = format!("function '{}'", call_name(function_key(function)));
        self.imports(&function.opset_import, &name);
        let mut opsets = opsets(&function.opset_import, IR_VERSION);
        for (domain, version) in &self.model_opsets {
            opsets.entry(domain).or_insert(*version);
        }
        let mut names: HashSet<&'m str> = HashSet::new();
        for input in &function.input {
            if !names.insert(input) {
                self.fault(format!("{name} has two inputs '{input}'"));
            }
        }
        for attribute in &function.attribute_proto {
            self.attribute(attribute, &name, "", &mut Vec::new(), Context { opsets: &opsets, function: None });
        }
        let context = Context { opsets: &opsets, function: Some(function) };
        let defined = self.nodes(&function.node, names, &mut Vec::new(), context, &name);
        for output in &function.output {
            if !defined.contains(output.as_str()) {
                self.fault(format!("output '{output}' of {name} is computed by no node"));
            }
        }
    }

    fn graph(
        &mut self,
        graph: &'m GraphProto,
        outer: &mut Vec<HashSet<&'m str>>,
        context: Context<'_, 'm>,
        what: &str,
    ) {
        let mut names: HashSet<&'m str> = HashSet::new();
        for input in &graph.input {
            let name = input.name.as_deref().unwrap_or("");
            if name.is_empty() {
                self.fault(format!("an input of {what} has no name"));
            } else if !names.insert(name) {
                self.fault(format!("{what} has two inputs '{name}'"));
            }
            self.value_info(input, true);
        }
        for info in graph.output.iter().chain(&graph.value_info) {
            self.value_info(info, false);
        }
        self.initializers(graph, &mut names, what);
        let defined = self.nodes(&graph.node, names, outer, context, what);
        for output in &graph.output {
            let name = output.name.as_deref().unwrap_or("");
            if name.is_empty() {
                self.fault(format!("an output of {what} has no name"));
            } else if !defined.contains(name) && !outer.iter().any(|scope| scope.contains(name)) {
                self.fault(format!("output '{name}' of {what} is computed by no node"));
            }
        }
    }

    fn initializers(&mut self, graph: &'m GraphProto, names: &mut HashSet<&'m str>, what: &str) {
        // Dense and sparse ones share their names; an input of the same name only gets its default here.
        let mut seen: HashSet<&str> = HashSet::new();
        let dense = graph.initializer.iter().map(|tensor| (tensor.name.as_deref(), tensor::check(tensor)));
        let sparse = graph.sparse_initializer.iter().map(|sparse| {
            let name = sparse.values.as_ref().and_then(|values| values.name.as_deref());
            (name, tensor::check_sparse(sparse))
        });
        for (name, result) in dense.chain(sparse) {
            let name = name.unwrap_or("");
            if name.is_empty() {
                self.fault(format!("an initializer of {what} has no name"));
            } else if !seen.insert(name) {
                self.fault(format!("{what} has two initializers '{name}'"));
            }
            names.insert(name);
            if let Err(reason) = result {
                self.reason("", "", &format!("initializer '{name}'"), reason);
            }
        }
    }

    /// Checks nodes that can read `names` and the outer scopes; gives all names defined at the end.
    fn nodes(
        &mut self,
        nodes: &'m [NodeProto],
        names: HashSet<&'m str>,
        outer: &mut Vec<HashSet<&'m str>>,
        context: Context<'_, 'm>,
        what: &str,
    ) -> HashSet<&'m str> {
        self.duplicates(nodes, &names, what);
        let sorted = order::sort(nodes, |name| names.contains(name) || outer.iter().any(|scope| scope.contains(name)));
        let order = match sorted {
            Ok(order) => order,
            Err(faults) => {
                for fault in faults {
                    self.order_fault(nodes, fault, context, what);
                }
                (0..nodes.len()).collect()
            }
        };
        outer.push(names);
        for place in order {
            if self.full() {
                break;
            }
            let node = &nodes[place];
            self.node(node, place, outer, context);
            if let Some(scope) = outer.last_mut() {
                scope.extend(node.output.iter().map(String::as_str).filter(|name| !name.is_empty()));
            }
        }
        let mut defined = outer.pop().unwrap_or_default();
        defined.extend(nodes.iter().flat_map(|node| node.output.iter().map(String::as_str)));
        defined.remove("");
        defined
    }

    fn duplicates(&mut self, nodes: &'m [NodeProto], names: &HashSet<&'m str>, what: &str) {
        let mut producer: HashMap<&str, usize> = HashMap::new();
        for (place, node) in nodes.iter().enumerate() {
            for name in node.output.iter().map(String::as_str).filter(|name| !name.is_empty()) {
                let this = order::node_name(node, place);
                if names.contains(name) {
                    self.fault_at(&this, "", format!("value '{name}' is produced here, but {what} defines it already"));
                } else if let Some(other) = producer.insert(name, place) {
                    let other = order::node_name(&nodes[other], other);
                    self.fault_at(&this, "", format!("value '{name}' is produced here and by node '{other}'"));
                }
            }
        }
    }

    fn order_fault(&mut self, nodes: &[NodeProto], fault: order::OrderFault, context: Context<'_, 'm>, what: &str) {
        match fault {
            order::OrderFault::Undefined { node, value } => {
                let op = label(&nodes[node], context);
                let name = order::node_name(&nodes[node], node);
                self.fault_at(&name, &op, format!("input '{value}' is defined nowhere in {what}"));
            }
            order::OrderFault::Cycle { nodes: members, values } => {
                let name = |place: &usize| format!("'{}'", order::node_name(&nodes[*place], *place));
                let values: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
                let text = match members.as_slice() {
                    [only] => format!("node {} reads its own output {}", name(only), values.join("")),
                    many => {
                        let names: Vec<String> = many.iter().take(8).map(name).collect();
                        let more = if many.len() > 8 { format!(" and {} more", many.len() - 8) } else { String::new() };
                        let values = values[..values.len().min(8)].join(", ");
                        let names = match names.split_last() {
                            Some((last, first)) if more.is_empty() => format!("{} and {last}", first.join(", ")),
                            _ => format!("{}{more}", names.join(", ")),
                        };
                        format!("nodes {names} depend on each other (values {values})")
                    }
                };
                self.fault(format!("{what} has a cycle: {text}"));
            }
        }
    }

    fn node(&mut self, node: &'m NodeProto, place: usize, outer: &mut Vec<HashSet<&'m str>>, context: Context<'_, 'm>) {
        let name = order::node_name(node, place);
        let op_type = node.op_type.as_deref().unwrap_or("");
        if op_type.is_empty() {
            return self.fault_at(&name, "", "the node has no operator");
        }
        let op = label(node, context);
        let domain = domain_name(node.domain.as_deref());
        if let Some(function) = self.functions.get(&callee_key(node)) {
            let (inputs, outputs) = (function.input.len(), function.output.len());
            if node.input.len() > inputs || node.output.len() > outputs {
                self.fault_at(
                    &name,
                    &op,
                    format!(
                        "the function takes {inputs} inputs and gives {outputs} outputs, the call has {} and {}",
                        node.input.len(),
                        node.output.len()
                    ),
                );
            }
        } else {
            match context.opsets.get(domain) {
                None => self.fault_at(&name, &op, format!("the operator's set '{domain}' is not imported")),
                Some(version) => {
                    let given: Vec<bool> = node.input.iter().map(|name| !name.is_empty()).collect();
                    if let Some(complaint) = arity::complaint(domain, op_type, *version, &given, node.output.len()) {
                        self.fault_at(&name, &op, complaint);
                    }
                }
            }
        }
        let mut seen: HashSet<&str> = HashSet::new();
        for attribute in &node.attribute {
            let attribute_name = attribute.name.as_deref().unwrap_or("");
            if attribute_name.is_empty() {
                self.fault_at(&name, &op, "an attribute has no name");
            } else if !seen.insert(attribute_name) {
                self.fault_at(&name, &op, format!("attribute '{attribute_name}' is given twice"));
            }
            self.attribute(attribute, &name, &op, outer, context);
        }
    }

    fn attribute(
        &mut self,
        attribute: &'m AttributeProto,
        node: &str,
        op: &str,
        outer: &mut Vec<HashSet<&'m str>>,
        context: Context<'_, 'm>,
    ) {
        let name = attribute.name.as_deref().unwrap_or("");
        if let Some(refers) = attribute.ref_attr_name.as_deref().filter(|refers| !refers.is_empty()) {
            let declared = context.function.map(|function| {
                let with_default = function.attribute_proto.iter().any(|a| a.name.as_deref() == Some(refers));
                with_default || function.attribute.iter().any(|a| a == refers)
            });
            match declared {
                Some(true) => {}
                Some(false) => self.fault_at(
                    node,
                    op,
                    format!("attribute '{name}' refers to '{refers}', which the function does not declare"),
                ),
                None => self.fault_at(
                    node,
                    op,
                    format!("attribute '{name}' refers to '{refers}', but the node is in no function"),
                ),
            }
            return;
        }
        let missing = match attribute_kind(attribute) {
            attribute_type::TENSOR => attribute.t.is_none(),
            attribute_type::GRAPH => attribute.g.is_none(),
            attribute_type::SPARSE_TENSOR => attribute.sparse_tensor.is_none(),
            attribute_type::TYPE_PROTO => attribute.tp.is_none(),
            attribute_type::UNDEFINED => true,
            kind => !(attribute_type::FLOAT..=attribute_type::TYPE_PROTOS).contains(&kind),
        };
        if missing {
            self.fault_at(node, op, format!("attribute '{name}' has no value of a known kind"));
        }
        for tensor in attribute.t.iter().chain(&attribute.tensors) {
            if let Err(reason) = tensor::check(tensor) {
                self.reason(node, op, &format!("attribute '{name}'"), reason);
            }
        }
        for sparse in attribute.sparse_tensor.iter().chain(&attribute.sparse_tensors) {
            if let Err(reason) = tensor::check_sparse(sparse) {
                self.reason(node, op, &format!("attribute '{name}'"), reason);
            }
        }
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            self.graph(graph, outer, context, &format!("graph '{name}' of node '{node}'"));
        }
    }

    fn value_info(&mut self, info: &ValueInfoProto, input: bool) {
        let Some(ty) = &info.r#type else { return };
        let name = info.name.as_deref().unwrap_or("");
        if let Err(reason) = check_type(ty, input) {
            self.reason("", "", &format!("declared type of '{name}'"), reason);
        }
    }
}

fn label(node: &NodeProto, context: Context<'_, '_>) -> String {
    let domain = domain_name(node.domain.as_deref());
    let op_type = node.op_type.as_deref().unwrap_or("");
    match context.opsets.get(domain) {
        Some(version) => format!("{domain}:{op_type}-{version}"),
        None => format!("{domain}:{op_type}"),
    }
}

fn call_name((domain, name, overload): FunctionKey<'_>) -> String {
    if overload.is_empty() { format!("{domain}:{name}") } else { format!("{domain}:{name}:{overload}") }
}

/// The kind of an attribute. Files of the first IR version do not say; then it is what the attribute holds.
pub fn attribute_kind(attribute: &AttributeProto) -> i32 {
    use attribute_type as kind;
    match attribute.r#type {
        Some(kind) if kind != kind::UNDEFINED => kind,
        _ if attribute.f.is_some() => kind::FLOAT,
        _ if attribute.i.is_some() => kind::INT,
        _ if attribute.s.is_some() => kind::STRING,
        _ if attribute.t.is_some() => kind::TENSOR,
        _ if attribute.g.is_some() => kind::GRAPH,
        _ if attribute.sparse_tensor.is_some() => kind::SPARSE_TENSOR,
        _ if attribute.tp.is_some() => kind::TYPE_PROTO,
        _ if !attribute.floats.is_empty() => kind::FLOATS,
        _ if !attribute.ints.is_empty() => kind::INTS,
        _ if !attribute.strings.is_empty() => kind::STRINGS,
        _ if !attribute.tensors.is_empty() => kind::TENSORS,
        _ if !attribute.graphs.is_empty() => kind::GRAPHS,
        _ if !attribute.sparse_tensors.is_empty() => kind::SPARSE_TENSORS,
        _ if !attribute.type_protos.is_empty() => kind::TYPE_PROTOS,
        _ => kind::UNDEFINED,
    }
}

/// Checks a declared type. Negative sizes stand for unknown ones in many files and are let through; sizes so large that
/// an element count wraps are not. Only a caller's input must have an element type.
fn check_type(ty: &TypeProto, input: bool) -> Result<(), Reason> {
    match &ty.value {
        None => Ok(()),
        Some(TypeValue::Tensor(tensor) | TypeValue::SparseTensor(tensor)) => {
            if input || tensor.elem_type.unwrap_or(0) != 0 {
                tensor::elem_type(tensor.elem_type)?;
            }
            let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
            tensor::check_rank(dims.clone().count())?;
            let known: Vec<i64> = dims
                .filter_map(|dim| match dim.value {
                    Some(DimensionValue::DimValue(size)) if size >= 0 => Some(size),
                    _ => None,
                })
                .collect();
            tensor::dimensions(&known).map(|_| ())
        }
        Some(TypeValue::Sequence(of) | TypeValue::Optional(of)) => {
            of.elem_type.as_ref().map_or(Ok(()), |of| check_type(of, input))
        }
        Some(TypeValue::Map(map)) => {
            tensor::elem_type(map.key_type)?;
            map.value_type.as_ref().map_or(Ok(()), |of| check_type(of, input))
        }
        Some(TypeValue::Opaque(_)) => Ok(()),
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
