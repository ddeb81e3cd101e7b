//! The text form of a module, for people and golden files.

use std::fmt::{self, Write};

use crate::graph::{Attr, Module, Node, Region, TensorData, ValueId};

/// Tensors of at most this many elements are written out.
const SHOWN: usize = 8;

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "module {:?} ir {}", self.name, self.ir_version)?;
        for (domain, version) in &self.opsets {
            write!(f, " {domain}:{version}")?;
        }
        f.write_char('\n')?;
        let mut out = Writer { module: self, f, depth: 0 };
        out.region("main", &self.main)?;
        for (output, decl) in self.main.outputs.iter().zip(&self.outputs) {
            writeln!(f, "output {:?}: {} = {output}", decl.name, decl.ty)?;
        }
        Ok(())
    }
}

struct Writer<'a, 'f, 'b> {
    module: &'a Module,
    f: &'f mut fmt::Formatter<'b>,
    depth: usize,
}

impl Writer<'_, '_, '_> {
    fn indent(&mut self) -> fmt::Result {
        (0..self.depth).try_for_each(|_| self.f.write_str("  "))
    }

    fn definition(&mut self, id: ValueId) -> fmt::Result {
        write!(self.f, "{id}")?;
        if let Some(value) = self.module.values.get(id.0 as usize) {
            if !value.name.is_empty() {
                write!(self.f, " {:?}", value.name)?;
            }
            write!(self.f, ": {}", value.ty)?;
        }
        Ok(())
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T) -> fmt::Result) -> fmt::Result {
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.f.write_str(", ")?;
            }
            each(self, item)?;
        }
        Ok(())
    }

    fn region(&mut self, label: &str, region: &Region) -> fmt::Result {
        self.indent()?;
        write!(self.f, "{label}(")?;
        self.list(&region.inputs, |out, id| out.definition(*id))?;
        self.f.write_str(") {\n")?;
        self.depth += 1;
        for (id, data) in &region.constants {
            self.indent()?;
            self.f.write_str("const ")?;
            self.definition(*id)?;
            self.f.write_str(" = ")?;
            self.tensor(data)?;
            self.f.write_char('\n')?;
        }
        for node in &region.nodes {
            self.node(node)?;
        }
        self.indent()?;
        self.f.write_str("give ")?;
        self.list(&region.outputs, |out, id| write!(out.f, "{id}"))?;
        self.f.write_char('\n')?;
        self.depth -= 1;
        self.indent()?;
        self.f.write_str("}\n")
    }

    fn node(&mut self, node: &Node) -> fmt::Result {
        self.indent()?;
        self.list(&node.outputs, |out, output| match output {
            Some(id) => out.definition(*id),
            None => out.f.write_char('_'),
        })?;
        write!(self.f, " = {}(", node.label())?;
        self.list(&node.inputs, |out, input| match input {
            Some(id) => write!(out.f, "{id}"),
            None => out.f.write_char('_'),
        })?;
        self.f.write_char(')')?;
        for (name, attr) in &node.attrs {
            if attr.regions().is_empty() {
                write!(self.f, " {name}=")?;
                self.attr(attr)?;
            }
        }
        writeln!(self.f, " @ {:?}", node.name)?;
        self.depth += 1;
        for (name, attr) in &node.attrs {
            for region in attr.regions() {
                self.region(name, region)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn attr(&mut self, attr: &Attr) -> fmt::Result {
        match attr {
            Attr::Int(value) => write!(self.f, "{value}"),
            Attr::Float(value) => write!(self.f, "{value:?}"),
            Attr::Str(bytes) => self.string(bytes),
            Attr::Ints(values) => write!(self.f, "{values:?}"),
            Attr::Floats(values) => write!(self.f, "{values:?}"),
            Attr::Strs(values) => {
                self.f.write_char('[')?;
                self.list(values, |out, bytes| out.string(bytes))?;
                self.f.write_char(']')
            }
            Attr::Tensor(data) => self.typed(data),
            Attr::Tensors(all) => {
                self.f.write_char('[')?;
                self.list(all, |out, data| out.typed(data))?;
                self.f.write_char(']')
            }
            // A list without regions; others are written below the node.
            Attr::Region(_) | Attr::Regions(_) => self.f.write_str("{}"),
            Attr::Type(ty) => write!(self.f, "{ty}"),
            Attr::Types(types) => {
                self.f.write_char('[')?;
                self.list(types, |out, ty| write!(out.f, "{ty}"))?;
                self.f.write_char(']')
            }
        }
    }

    fn string(&mut self, bytes: &[u8]) -> fmt::Result {
        write!(self.f, "{:?}", String::from_utf8_lossy(bytes))
    }

    fn typed(&mut self, data: &TensorData) -> fmt::Result {
        write!(self.f, "{} ", data.value_type())?;
        self.tensor(data)
    }

    fn tensor(&mut self, data: &TensorData) -> fmt::Result {
        let count = data.numel();
        if count > SHOWN {
            return write!(self.f, "<{count} elements>");
        }
        if !data.strings.is_empty() || count == 0 {
            self.f.write_char('{')?;
            self.list(&data.strings, |out, bytes| out.string(bytes))?;
            return self.f.write_char('}');
        }
        self.f.write_char('{')?;
        if let Some(values) = data.to_i64s() {
            self.list(&values, |out, value| write!(out.f, "{value}"))?;
        } else if let Some(values) = data.to_f64s() {
            self.list(&values, |out, value| write!(out.f, "{value:?}"))?;
        } else {
            self.f.write_str("0x")?;
            for byte in data.bytes.iter() {
                write!(self.f, "{byte:02x}")?;
            }
        }
        self.f.write_char('}')
    }
}
