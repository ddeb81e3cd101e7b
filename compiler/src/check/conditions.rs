//! Values of inputs at which the model does something else.

use std::collections::BTreeMap;

use crate::graph::{Module, TensorData, ValueId};

/// Operators that leave a single element as it is.
const SAME: [&str; 6] = ["Cast", "Identity", "Flatten", "Reshape", "Squeeze", "Unsqueeze"];
/// Comparisons, and where the other side lies from the constant.
const COMPARED: [(&str, &[i64]); 5] = [
    ("Equal", &[0]),
    ("Greater", &[0, 1, -1]),
    ("GreaterOrEqual", &[0, 1, -1]),
    ("Less", &[0, 1, -1]),
    ("LessOrEqual", &[0, 1, -1]),
];

/// For each input of the model the integers that it is compared with, such as the sample rates that a model knows: random
/// numbers would hardly ever be one of them. In the order of the comparisons, each once.
pub(super) fn of(model: &Module) -> Vec<Vec<i64>> {
    let mut found = vec![vec![]; model.main.inputs.len()];
    // Which input a value is.
    let mut same: BTreeMap<ValueId, usize> = model.main.inputs.iter().enumerate().map(|(k, v)| (*v, k)).collect();
    let mut constants: BTreeMap<ValueId, i64> = BTreeMap::new();
    model.main.walk_regions(&mut |region| {
        constants.extend(region.constants.iter().filter_map(|(v, data)| Some((*v, single(data)?))));
    });
    model.main.walk(&mut |node| {
        if SAME.iter().any(|op| node.is(op)) {
            let input = node.input(0).and_then(|v| same.get(&v).copied());
            if let (Some(input), Some(output)) = (input, node.output(0)) {
                same.insert(output, input);
            }
        }
        let Some((_, around)) = COMPARED.iter().find(|(op, _)| node.is(op)) else { return };
        for (a, b) in [(0, 1), (1, 0)] {
            let input = node.input(a).and_then(|v| same.get(&v));
            let constant = node.input(b).and_then(|v| constants.get(&v));
            let (Some(input), Some(constant)) = (input, constant) else { continue };
            for value in around.iter().map(|d| constant.saturating_add(*d)) {
                if !found[*input].contains(&value) {
                    found[*input].push(value);
                }
            }
        }
    });
    found
}

/// The integer that a tensor of one element holds.
fn single(data: &TensorData) -> Option<i64> {
    if data.numel() != 1 {
        return None;
    }
    match data.to_f64s() {
        Some(values) => values.first().filter(|v| v.fract() == 0.0 && v.abs() < 1e15).map(|v| *v as i64),
        None => data.to_i64s()?.first().copied(),
    }
}
