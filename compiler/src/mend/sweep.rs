//! Removes what nothing needs: nodes, constants, results of branches, and what loops carry or collect for nobody.

use super::trap;
use crate::graph::{Attr, Node, Region, ValueId, captures};
use std::collections::BTreeSet;

/// Removes from a region, and from the regions within, what nothing needs.
pub(super) fn sweep(region: &mut Region) {
    let mut needed: BTreeSet<ValueId> = region.outputs.iter().copied().collect();
    for k in (0..region.nodes.len()).rev() {
        let node = &mut region.nodes[k];
        if !is_needed(node, &needed) {
            region.nodes.remove(k);
            continue;
        }
        if node.is("If") {
            trim_branches(node, &needed);
        } else if node.is("Loop") {
            trim_loop(node, &needed);
        }
        node.regions_mut().for_each(sweep);
        read(node, &mut needed);
    }
    region.constants.retain(|(id, _)| needed.contains(id));
}

fn is_needed(node: &Node, needed: &BTreeSet<ValueId>) -> bool {
    node.domain == trap::DOMAIN || node.wanted_outputs().any(|v| needed.contains(&v))
}

fn read(node: &Node, needed: &mut BTreeSet<ValueId>) {
    needed.extend(node.given_inputs());
    node.regions().for_each(|r| needed.extend(captures(r)));
}

/// Removes the results of an `If` that nothing needs.
fn trim_branches(node: &mut Node, needed: &BTreeSet<ValueId>) {
    for k in (0..node.outputs.len()).rev() {
        if node.outputs[k].is_some_and(|v| needed.contains(&v)) {
            continue;
        }
        node.outputs.remove(k);
        for branch in node.regions_mut().filter(|r| k < r.outputs.len()) {
            branch.outputs.remove(k);
        }
    }
}

/// Removes scan outputs of a `Loop` that nothing needs, and carried values on which nothing depends that is needed.
fn trim_loop(node: &mut Node, needed: &BTreeSet<ValueId>) {
    let Some(states) = node.inputs.len().checked_sub(2) else { return };
    let Ok(mut body) = node.take_region("body") else { return };
    if body.inputs.len() == states + 2 && body.outputs.len() > states {
        node.outputs.resize(body.outputs.len() - 1, None);
        let mut live: Vec<bool> = node.outputs.iter().map(|v| v.is_some_and(|v| needed.contains(&v))).collect();
        loop {
            let results = body.outputs.iter().enumerate().filter(|(k, _)| *k == 0 || live[k - 1]);
            let mut read_inside: BTreeSet<ValueId> = results.map(|(_, v)| *v).collect();
            for n in body.nodes.iter().rev() {
                if is_needed(n, &read_inside) {
                    read(n, &mut read_inside);
                }
            }
            let more: Vec<usize> =
                (0..states).filter(|k| !live[*k] && read_inside.contains(&body.inputs[k + 2])).collect();
            if more.is_empty() {
                break;
            }
            more.into_iter().for_each(|k| live[k] = true);
        }
        for k in (0..live.len()).rev().filter(|k| !live[*k]) {
            node.outputs.remove(k);
            body.outputs.remove(k + 1);
            if k < states {
                node.inputs.remove(k + 2);
                body.inputs.remove(k + 2);
            }
        }
    }
    node.attrs.insert("body".into(), Attr::Region(body));
}
