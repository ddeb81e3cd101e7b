//! Mended graph to tensor expressions: walks the nodes, keeps the tensor of each value, calls the operators' expansions.

mod branch;
mod carried;
mod flex;
mod hoist;
mod looped;

pub(crate) use carried::CarriedAs;

use crate::dtype::DType;
use crate::error::{Collector, Error, Result, Stage};
use crate::graph::{Attr, DimDecl, ElemType, Module, Node, Region, TensorData, ValueId};
use crate::mend::trap;
use crate::ops::{self, AttrTensor, AttrValue, Call};
use crate::sym::Int;
use crate::te::{Cx, OpError, Program, TensorId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// What the user says of a symbolic dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dim {
    /// Always this size.
    Fixed(u64),
    /// Between two sizes, both included.
    Range(u64, u64),
}

/// The name under which a dimension that is not fixed is known.
pub fn dim_key(d: &DimDecl, input: &str, axis: usize) -> String {
    match d {
        // A name that is no name ("?", "-1") says nothing: two such dimensions need not be equal.
        DimDecl::Named(n) if n.chars().any(|c| c.is_alphabetic()) => n.clone(),
        _ => format!("{input}.{axis}"),
    }
}

/// Sizes of named dimensions.
pub type Dims = BTreeMap<String, Dim>;

/// Expands a whole module.
///
/// # Errors
/// All nodes that cannot be expanded, in one error: those whose operator is not supported and those whose attributes,
/// types or shapes are not, or break the operator's specification.
pub fn expand(module: &Module, dims: &Dims) -> Result<Program> {
    let mut e = Expander::new(dims);
    e.inputs(module)?;
    let mut problems = Collector::new();
    e.region(module, &module.main, &mut problems)?;
    problems.finish()?;
    sizes(&e.cx.program)?;
    for (id, decl) in module.main.outputs.iter().zip(&module.outputs) {
        let Some(t) = e.values.get(id).copied() else {
            return Err(Error::invalid(
                Stage::Expand,
                format!("output '{}' is not a tensor that is computed", decl.name),
            ));
        };
        let made = e.cx.narrow.get(&t).copied().unwrap_or_else(|| e.cx.dtype(t).into());
        if let Some(declared) = decl.ty.elem().filter(|elem| *elem != made) {
            let name = &decl.name;
            return Err(Error::invalid(
                Stage::Expand,
                format!("output '{name}' is declared as {declared}, but is {made}"),
            ));
        }
        e.cx.program.outputs.push(t);
        e.cx.program.output_names.push(decl.name.clone());
    }
    Ok(e.cx.program)
}

/// Most bytes of a tensor: what follows adds sizes up in 64 bits.
const MOST_BYTES: i64 = 1 << 46;

/// Refuses tensors that no machine holds.
fn sizes(program: &Program) -> Result<()> {
    for t in &program.tensors {
        let size = |d: &Int| d.as_const().unwrap_or(1).max(0);
        // Tensors without elements are none too large.
        let empty = t.shape.iter().any(|d| size(d) == 0);
        let bytes = t.shape.iter().try_fold(t.dtype.size() as i64, |all, d| all.checked_mul(size(d)));
        if !empty && bytes.is_none_or(|b| b > MOST_BYTES) {
            let shape: Vec<String> = t.shape.iter().map(Int::to_string).collect();
            let what =
                format!("tensor '{}' of shape [{}] takes more memory than can be addressed", t.name, shape.join(", "));
            return Err(Error::unsupported(&t.node, "", what));
        }
    }
    Ok(())
}

/// A walk over nodes with the tensor of each value.
#[derive(Clone)]
pub struct Expander<'d> {
    /// The program being built.
    pub cx: Cx,
    /// Tensors of values. A value that could not be computed has none.
    pub values: HashMap<ValueId, TensorId>,
    /// Values that need something unsupported: what depends on them is left out without another message.
    pub poisoned: HashSet<ValueId>,
    symbols: HashMap<String, Int>,
    dims: &'d Dims,
}

impl<'d> Expander<'d> {
    /// A walk that has seen nothing.
    pub fn new(dims: &'d Dims) -> Expander<'d> {
        Expander { cx: Cx::new(), values: HashMap::new(), poisoned: HashSet::new(), symbols: HashMap::new(), dims }
    }

    /// The shape that the model knows of: without the axis of the bytes of strings.
    pub fn shape_of(&self, t: TensorId) -> Vec<Int> {
        let mut shape = self.cx.shape(t);
        if self.cx.narrow.get(&t) == Some(&ElemType::String) {
            shape.pop();
        }
        shape
    }

    /// Defines the model's inputs; their unknown dimensions become symbols, equal ones for equal names.
    pub fn inputs(&mut self, module: &Module) -> Result<()> {
        let mut problems = Collector::new();
        for id in &module.main.inputs {
            let value = module.value(*id);
            let name = module.value_name(*id);
            let Some(elem) = value.ty.elem() else {
                problems.lack(crate::error::Unsupported::new(
                    "",
                    "",
                    format!("input {name} of type {} is not supported: only tensors are", value.ty),
                ));
                self.poisoned.insert(*id);
                continue;
            };
            // Strings are bytes along one axis more.
            let text = elem == ElemType::String;
            let stored = if text { Some(DType::U8) } else { ops::stored(elem) };
            let (Some(dtype), Some(shape)) = (stored, value.ty.shape()) else {
                let what = match stored {
                    None => format!("input {name}: tensors of type {elem} are not supported"),
                    Some(_) => format!("input {name}: a tensor whose rank is not declared is not supported"),
                };
                problems.lack(crate::error::Unsupported::new("", "", what));
                self.poisoned.insert(*id);
                continue;
            };
            let k = self.cx.program.inputs.len();
            let mut dims = vec![];
            for (axis, d) in shape.iter().enumerate() {
                dims.push(self.dim(d, k, axis, &value.name)?);
            }
            if text {
                dims.push(self.dim(&DimDecl::Named(format!("{}.bytes", value.name)), k, shape.len(), &value.name)?);
            }
            let t = self.cx.input(&value.name, dtype, dims);
            self.narrow(t, elem);
            self.values.insert(*id, t);
        }
        problems.finish()
    }

    fn dim(&mut self, d: &DimDecl, input: usize, axis: usize, name: &str) -> Result<Int> {
        if let DimDecl::Fixed(n) = d {
            return Ok(Int::new(*n as i64));
        }
        let key = dim_key(d, name, axis);
        if let Some(known) = self.symbols.get(&key) {
            return Ok(*known);
        }
        let size = match self.dims.get(&key) {
            Some(Dim::Fixed(n)) => Int::new(*n as i64),
            Some(Dim::Range(lo, hi)) => Int::symbol(&key, Some(*lo as i64), Some(*hi as i64)),
            None => Int::symbol(&key, Some(0), None),
        };
        if let Some(v) = size.as_var() {
            self.cx.program.dim_vars.insert(v, (input, axis));
        }
        self.symbols.insert(key, size);
        Ok(size)
    }

    /// Names of the symbolic dimensions that inputs have.
    pub fn symbol_names(&self) -> impl Iterator<Item = &str> {
        self.symbols.keys().map(String::as_str)
    }

    /// Defines a constant. One of a type that tensors cannot have poisons its users.
    pub fn constant(&mut self, id: ValueId, data: &Arc<TensorData>) {
        match data.dtype() {
            Some(dtype) => {
                let shape = data.shape.iter().map(|d| Int::from(*d)).collect();
                let t = self.cx.constant_shared(dtype, shape, data.bytes.clone());
                self.values.insert(id, t);
            }
            None => {
                self.values.remove(&id);
                if data.elem == ElemType::String {
                    let (width, bytes) = ops::stored_strings(&data.strings);
                    let shape = [&data.shape[..], &[width]].concat();
                    let t = self.cx.constant(DType::U8, &shape, bytes);
                    self.narrow(t, data.elem);
                    self.values.insert(id, t);
                    return;
                }
                let count = data.shape.iter().product();
                let bytes = ops::unpack(data.elem, count, &data.bytes);
                if let (Some(dtype), Some(bytes)) = (ops::stored(data.elem), bytes) {
                    let t = self.cx.constant(dtype, &data.shape, bytes);
                    self.narrow(t, data.elem);
                    self.values.insert(id, t);
                }
            }
        }
    }

    /// Notes a type that tensors hold in bytes.
    fn narrow(&mut self, t: TensorId, elem: ElemType) {
        if elem.dtype().is_none() {
            self.cx.narrow.insert(t, elem);
        }
    }

    /// Expands all nodes of a region, collecting problems.
    fn region(&mut self, module: &Module, region: &Region, problems: &mut Collector) -> Result<()> {
        for (id, data) in &region.constants {
            self.constant(*id, data);
        }
        for node in &region.nodes {
            let result = match node.op_type.as_str() {
                "If" if node.is("If") => self.branch(module, node, problems),
                "Loop" if node.is("Loop") => self.looped(module, node, problems),
                trap::CHECK if node.domain == trap::DOMAIN => self.check(node),
                "FlexAttention" if node.regions().next().is_some() => self.flex(module, node, problems),
                _ => self.node(module, node),
            };
            if let Err(e) = result {
                problems.add(e)?;
                self.poisoned.extend(node.wanted_outputs());
            }
        }
        Ok(())
    }

    /// A guard's check: the condition must be what the branch that was kept asks for.
    fn check(&mut self, node: &Node) -> Result<()> {
        let cond = node.require_input(0, "the condition")?;
        let Some(cond) = self.values.get(&cond).copied() else { return Ok(()) };
        self.cx.node = node.name.clone();
        let is = self.cx.ints_or_read(cond).map_err(|e| at_node(node, e))?;
        let must = Int::new(node.attr_int("truth", 1)?);
        let first = is.first().copied().unwrap_or(must);
        let what = node.attr_str("what", "a condition that must hold does not")?;
        self.cx.require_equal(first, must, what).map_err(|e| at_node(node, e))
    }

    /// Expands one node without regions. A node whose operands are poisoned is left out.
    ///
    /// # Errors
    /// What is missing or wrong, naming the node.
    pub fn node(&mut self, module: &Module, node: &Node) -> Result<()> {
        if node.given_inputs().any(|v| self.poisoned.contains(&v)) {
            // Unknown operators are named all at once, whatever they depend on.
            if !ops::is_known(&node.domain, &node.op_type) && kept_container(node).is_none() {
                return Err(node.unsupported("the operator is not supported"));
            }
            self.poisoned.extend(node.wanted_outputs());
            return Ok(());
        }
        if !ops::is_known(&node.domain, &node.op_type) {
            return Err(node.unsupported(kept_container(node).unwrap_or("the operator is not supported")));
        }
        let call = self.call(module, node)?;
        self.cx.node = node.name.clone();
        let made = ops::expand(&mut self.cx, &call).map_err(|e| at_node(node, e))?;
        for (k, id) in node.outputs.iter().enumerate() {
            let Some(id) = id else { continue };
            let Some(t) = made.get(k) else {
                return Err(node.unsupported(format!("output {k} is not supported")));
            };
            let name = module.value(*id).name.clone();
            if !name.is_empty() {
                self.cx.program.tensors[t.0 as usize].name = name;
            }
            self.values.insert(*id, *t);
        }
        Ok(())
    }

    fn call(&self, module: &Module, node: &Node) -> Result<Call> {
        let mut inputs = vec![];
        for id in &node.inputs {
            inputs.push(match id {
                None => None,
                Some(id) => match self.values.get(id) {
                    Some(t) => Some(*t),
                    None => {
                        let name = module.value_name(*id);
                        return Err(
                            node.unsupported(format!("input {name} of type {} is not supported", module.value(*id).ty))
                        );
                    }
                },
            });
        }
        let mut attrs = BTreeMap::new();
        for (name, value) in &node.attrs {
            let text = |s: &[u8]| String::from_utf8_lossy(s).into_owned();
            let value = match value {
                Attr::Int(v) => AttrValue::Int(*v),
                Attr::Float(v) => AttrValue::Float(*v),
                Attr::Str(s) => AttrValue::Str(text(s)),
                Attr::Ints(v) => AttrValue::Ints(v.clone()),
                Attr::Floats(v) => AttrValue::Floats(v.clone()),
                Attr::Strs(v) => AttrValue::Strs(v.iter().map(|s| text(s)).collect()),
                Attr::Tensor(t) => match t.dtype() {
                    Some(dtype) => {
                        AttrValue::Tensor(AttrTensor { dtype, shape: t.shape.clone(), bytes: t.bytes.clone() })
                    }
                    None if t.elem == ElemType::String => AttrValue::Strs(t.strings.iter().map(|s| text(s)).collect()),
                    None => {
                        return Err(node.unsupported(format!("attribute '{name}' of type {} is not supported", t.elem)));
                    }
                },
                // Modifiers of attention are graphs that are expanded in their place.
                Attr::Region(_) if node.op_type == "FlexAttention" => continue,
                other => {
                    return Err(node.unsupported(format!("attribute '{name}' as {} is not supported", other.kind())));
                }
            };
            attrs.insert(name.clone(), value);
        }
        Ok(Call {
            domain: if node.domain == "ai.onnx" { String::new() } else { node.domain.clone() },
            op: node.op_type.clone(),
            version: node.version,
            inputs,
            outputs: node.outputs.iter().map(Option::is_some).collect(),
            attrs,
        })
    }
}

/// Why a node about sequences, optionals or a scan may be left by mending.
fn kept_container(node: &Node) -> Option<&'static str> {
    if node.domain != crate::graph::ONNX_DOMAIN {
        return None;
    }
    Some(match node.op_type.as_str() {
        "SequenceAt" => "a member of a sequence whose members' rank is not known is not supported",
        "SequenceInsert" => "a tensor of unknown rank in a sequence is not supported",
        "ConcatFromSequence" => "joining the members of a sequence whose members' rank is not known is not supported",
        "SequenceMap" | "SequenceLength" | "SequenceErase" => "a sequence of a type that is not supported",
        "SplitToSequence" => "splitting a tensor of unknown rank is not supported",
        "Optional" | "OptionalGetElement" | "OptionalHasElement" => {
            "an optional whose content is of a type that is not supported"
        }
        "Scan" if node.version < 9 => {
            "a scan over an open number of rows, or whose scan outputs are of unknown rank, is not supported"
        }
        "Scan" => "scanning tensors of unknown rank is not supported",
        _ => return None,
    })
}

fn at_node(node: &Node, e: OpError) -> Error {
    match e {
        OpError::Unsupported(what) => node.unsupported(what),
        OpError::Invalid(message) => node.invalid_in(Stage::Expand, message),
    }
}
