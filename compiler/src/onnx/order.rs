//! The order of a graph's nodes.
//!
//! Files should list nodes so that each value is produced before it is used. Those that merely break the order are put
//! right; cycles and values that nobody produces are faults.

use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::onnx::proto::{GraphProto, NodeProto};

/// What is wrong with the order, by places in the list of nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderFault {
    /// A node reads a value that nothing produces.
    Undefined {
        /// The reader.
        node: usize,
        /// The value's name.
        value: String,
    },
    /// Nodes that wait for each other: each reads a value of the next, the last one of the first.
    Cycle {
        /// The nodes.
        nodes: Vec<usize>,
        /// The value that each reads of the next.
        values: Vec<String>,
    },
}

/// A node's name, or one made of its operator and its place in the graph.
pub fn node_name(node: &NodeProto, place: usize) -> String {
    match node.name.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let op = node.op_type.as_deref().filter(|op| !op.is_empty()).unwrap_or("node");
            format!("{op}_{place}")
        }
    }
}

/// Names that a graph defines: inputs, initializers, outputs of nodes.
pub fn defined_names(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let inputs = graph.input.iter().map(|input| input.name.as_deref());
    let dense = graph.initializer.iter().map(|tensor| tensor.name.as_deref());
    let sparse = graph.sparse_initializer.iter().map(|s| s.values.as_ref().and_then(|v| v.name.as_deref()));
    let outputs = graph.node.iter().flat_map(|node| node.output.iter().map(|name| Some(name.as_str())));
    inputs.chain(dense).chain(sparse).chain(outputs).flatten().filter(|name| !name.is_empty())
}

/// Names that the graphs in a node's attributes may read from around the node.
fn outer_reads<'a>(node: &'a NodeProto, into: &mut HashSet<&'a str>) {
    for attribute in &node.attribute {
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            let mut inner = HashSet::new();
            // A name that the graph defines only later may still mean an outer value where it is read.
            let mut before: HashSet<&str> = graph.input.iter().filter_map(|input| input.name.as_deref()).collect();
            before.extend(graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()));
            for node in &graph.node {
                let mut reads: HashSet<&str> = node.input.iter().map(String::as_str).collect();
                outer_reads(node, &mut reads);
                inner.extend(reads.into_iter().filter(|name| !before.contains(name)));
                before.extend(node.output.iter().map(String::as_str));
            }
            let outputs = graph.output.iter().filter_map(|output| output.name.as_deref());
            inner.extend(outputs.filter(|name| !before.contains(name)));
            into.extend(inner);
        }
    }
}

/// Orders nodes by their needs, keeping the given order wherever it already holds.
///
/// `known` tells which names can be read before any of the nodes runs. A name that is both known and produced by a later
/// node means the known value, as in a reader that goes from top to bottom.
pub fn sort(nodes: &[NodeProto], known: impl Fn(&str) -> bool) -> Result<Vec<usize>, Vec<OrderFault>> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    for (place, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            producer.entry(name).or_insert(place);
        }
    }
    // For each node, the later nodes that it needs, with the value. In a sorted graph all lists are empty.
    let mut later: Vec<Vec<(usize, &str)>> = vec![Vec::new(); nodes.len()];
    let mut faults = Vec::new();
    let mut sorted = true;
    for (place, node) in nodes.iter().enumerate() {
        let direct = node.input.iter().map(String::as_str).filter(|name| !name.is_empty());
        for name in direct {
            match producer.get(name) {
                Some(&by) if by < place => {}
                _ if known(name) => {}
                Some(&by) => later[place].push((by, name)),
                None => faults.push(OrderFault::Undefined { node: place, value: name.to_owned() }),
            }
        }
        let mut inner = HashSet::new();
        outer_reads(node, &mut inner);
        let mut inner: Vec<&str> = inner.into_iter().collect();
        inner.sort_unstable();
        for name in inner {
            // A name that nothing produces is reported where the inner graph is looked at, and a node's own output
            // cannot be meant inside of it.
            if let Some(&by) = producer.get(name)
                && by > place
                && !known(name)
            {
                later[place].push((by, name));
            }
        }
        sorted &= later[place].is_empty();
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if sorted {
        return Ok((0..nodes.len()).collect());
    }
    reorder(nodes, &producer, &later)
}

/// Sorts a graph that is out of order: of the nodes that are ready, always the first as given.
fn reorder(
    nodes: &[NodeProto],
    producer: &HashMap<&str, usize>,
    later: &[Vec<(usize, &str)>],
) -> Result<Vec<usize>, Vec<OrderFault>> {
    let mut needs: Vec<Vec<(usize, String)>> = Vec::with_capacity(nodes.len());
    for (place, node) in nodes.iter().enumerate() {
        let mut reads: HashSet<&str> = node.input.iter().map(String::as_str).collect();
        outer_reads(node, &mut reads);
        let earlier = reads.into_iter().filter_map(|name| {
            let by = *producer.get(name)?;
            (by < place).then_some((by, name))
        });
        let mut all: Vec<(usize, String)> =
            earlier.chain(later[place].iter().copied()).map(|(by, name)| (by, name.to_owned())).collect();
        all.sort_unstable();
        all.dedup_by_key(|(by, _)| *by);
        needs.push(all);
    }
    let mut waiting: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (place, needed) in needs.iter().enumerate() {
        for (by, _) in needed {
            users[*by].push(place);
        }
    }
    let first = |place: usize| std::cmp::Reverse(place);
    let mut ready: BinaryHeap<_> = (0..nodes.len()).filter(|place| waiting[*place] == 0).map(first).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(std::cmp::Reverse(place)) = ready.pop() {
        order.push(place);
        for user in &users[place] {
            waiting[*user] -= 1;
            if waiting[*user] == 0 {
                ready.push(first(*user));
            }
        }
    }
    if order.len() == nodes.len() { Ok(order) } else { Err(vec![cycle(&needs, &waiting)]) }
}

/// One cycle among nodes of which each waits for another.
fn cycle(needs: &[Vec<(usize, String)>], waiting: &[usize]) -> OrderFault {
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut seen: HashMap<usize, usize> = HashMap::new();
    let mut at = waiting.iter().position(|count| *count > 0).unwrap_or(0);
    loop {
        if let Some(start) = seen.get(&at) {
            let (nodes, values) = path.split_off(*start).into_iter().unzip();
            return OrderFault::Cycle { nodes, values };
        }
        seen.insert(at, path.len());
        // A node that still waits needs a node that still waits.
        let Some((by, name)) = needs[at].iter().find(|(by, _)| waiting[*by] > 0) else {
            return OrderFault::Cycle { nodes: vec![at], values: Vec::new() };
        };
        path.push((at, name.clone()));
        at = *by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, ValueInfoProto};

    fn node(inputs: &[&str], outputs: &[&str]) -> NodeProto {
        NodeProto {
            op_type: Some("Op".into()),
            input: inputs.iter().map(|s| s.to_string()).collect(),
            output: outputs.iter().map(|s| s.to_string()).collect(),
            ..Default::default()
        }
    }

    fn holding(nodes: Vec<NodeProto>, output: &str, outputs: &[&str]) -> NodeProto {
        let output = ValueInfoProto { name: Some(output.into()), ..Default::default() };
        let graph = GraphProto { node: nodes, output: vec![output], ..Default::default() };
        let attribute = AttributeProto { name: Some("body".into()), g: Some(graph), ..Default::default() };
        NodeProto { attribute: vec![attribute], ..node(&[], outputs) }
    }

    #[test]
    fn a_sorted_graph_keeps_its_order() {
        let nodes = [node(&["x"], &["a"]), node(&[""], &["b"]), node(&["b", "a"], &["c"])];
        assert_eq!(sort(&nodes, |n| n == "x"), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn an_unsorted_graph_is_put_right() {
        let nodes = [node(&["b"], &["c"]), node(&["x"], &["a"]), node(&["a"], &["b"]), node(&[], &["z"])];
        assert_eq!(sort(&nodes, |n| n == "x"), Ok(vec![1, 2, 0, 3]));
        let inner = [holding(vec![node(&["a"], &["i"])], "i", &["y"]), node(&["x"], &["a"])];
        assert_eq!(sort(&inner, |n| n == "x"), Ok(vec![1, 0]));
        let output_only = [holding(vec![], "a", &["y"]), node(&["x"], &["a"])];
        assert_eq!(sort(&output_only, |n| n == "x"), Ok(vec![1, 0]));
    }

    #[test]
    fn faults_say_which_nodes_and_values() {
        let nodes = [node(&["b"], &["a"]), node(&["a", "x"], &["b"])];
        let fault = OrderFault::Cycle { nodes: vec![0, 1], values: vec!["b".into(), "a".into()] };
        assert_eq!(sort(&nodes, |n| n == "x"), Err(vec![fault]));
        let own = [node(&["x"], &["y"]), node(&["a"], &["a"])];
        let fault = OrderFault::Cycle { nodes: vec![1], values: vec!["a".into()] };
        assert_eq!(sort(&own, |n| n == "x"), Err(vec![fault]));
        let undefined = [node(&["q"], &["a"]), node(&["r"], &["b"])];
        let fault = |node, value: &str| OrderFault::Undefined { node, value: value.into() };
        assert_eq!(sort(&undefined, |_| false), Err(vec![fault(0, "q"), fault(1, "r")]));
    }

    #[test]
    fn a_known_name_is_not_waited_for() {
        // Reads the outer `a`, then defines its own.
        let nodes = [node(&["a"], &["b"]), node(&["b"], &["a"])];
        assert_eq!(sort(&nodes, |n| n == "a"), Ok(vec![0, 1]));
        let shadow = [holding(vec![node(&["a"], &["a"])], "a", &["y"]), node(&["y"], &["a"])];
        assert_eq!(sort(&shadow, |n| n == "a"), Ok(vec![0, 1]));
    }

    #[test]
    fn unnamed_nodes_are_named_by_operator_and_place() {
        assert_eq!(node_name(&node(&[], &[]), 7), "Op_7");
        let named = NodeProto { name: Some("n".into()), ..Default::default() };
        assert_eq!(node_name(&named, 7), "n");
        assert_eq!(node_name(&NodeProto::default(), 0), "node_0");
    }
}
