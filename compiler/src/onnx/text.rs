//! Text form of a model file's graph (`--emit onnx`): a node a line, as it lies in the file.

use super::proto::{GraphProto, ModelProto, NodeProto};
use std::fmt::Write;

/// The graph, its nested graphs and the model-local functions. Weights are named, not printed.
pub fn text(model: &ModelProto) -> String {
    let mut out = String::new();
    for o in &model.opset_import {
        let domain = o.domain.as_deref().unwrap_or("");
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        let _ = writeln!(out, "opset {domain} {}", o.version.unwrap_or(0));
    }
    if let Some(g) = &model.graph {
        graph(g, 0, &mut out);
    }
    for f in &model.functions {
        let (domain, name) = (f.domain.as_deref().unwrap_or(""), f.name.as_deref().unwrap_or(""));
        let _ = writeln!(out, "function {domain}:{name}({}) -> {} {{", f.input.join(", "), f.output.join(", "));
        f.node.iter().for_each(|n| node(n, 1, &mut out));
        out.push_str("}\n");
    }
    out
}

fn graph(g: &GraphProto, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    let names = |of: &[super::proto::ValueInfoProto]| {
        of.iter().map(|v| v.name.clone().unwrap_or_default()).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(out, "{pad}graph {}({}) {{", g.name.as_deref().unwrap_or(""), names(&g.input));
    for t in &g.initializer {
        let dims: Vec<String> = t.dims.iter().map(i64::to_string).collect();
        let _ = writeln!(out, "{pad}  initializer {} [{}]", t.name.as_deref().unwrap_or(""), dims.join(", "));
    }
    g.node.iter().for_each(|n| node(n, depth + 1, out));
    let _ = writeln!(out, "{pad}}} -> {}", names(&g.output));
}

fn node(n: &NodeProto, depth: usize, out: &mut String) {
    let pad = "  ".repeat(depth);
    let domain = n.domain.as_deref().filter(|d| !d.is_empty()).map(|d| format!("{d}:")).unwrap_or_default();
    let (op, name) = (n.op_type.as_deref().unwrap_or("?"), n.name.as_deref().unwrap_or(""));
    let _ = writeln!(out, "{pad}{} = {domain}{op}({})  # {name}", n.output.join(", "), n.input.join(", "));
    for a in &n.attribute {
        for g in a.g.iter().chain(&a.graphs) {
            let _ = writeln!(out, "{pad}  {}:", a.name.as_deref().unwrap_or(""));
            graph(g, depth + 2, out);
        }
    }
}
