//! Rule `unroll`: a `Loop`, `Scan` or `SequenceMap` is written out, one copy of its body for each trip.
//!
//! Side conditions: the trips that it makes are known while packing, the condition of a `Loop` too, and trips times nodes
//! stay within a budget. What is written out is fused across trips, and conditions on the trip's number fold.

use super::report::Rule;
use super::{Container, Mender, emit};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, DimDecl, ElemType, Module, Node, Region, TensorData, ValueId, ValueType};

/// A loop while it is written out.
struct Trips {
    carried: Vec<ValueId>,
    /// Results of each plain trip, for each scan output.
    scans: Vec<Vec<ValueId>>,
}

impl Mender<'_> {
    /// Writes the node out, or leaves everything as it was and says `false`.
    pub(super) fn unroll(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<bool> {
        // What turns out not to be possible half-way must leave no trace.
        let (mut trial, mut copy, mut made) = (self.clone(), module.clone(), Region::default());
        let done = match node.op_type.as_str() {
            "Loop" => trial.unroll_loop(&mut copy, node, &mut made)?,
            "Scan" if node.version >= 9 => trial.unroll_scan(&mut copy, node, &mut made)?,
            "Scan" => trial.unroll_batches(&mut copy, node, &mut made)?,
            "SequenceMap" => trial.unroll_map(&mut copy, node, &mut made)?,
            _ => None,
        };
        if let Some(why) = trial.why.take() {
            self.report.because(node, why.clone());
            trial.report.because(node, why);
        }
        if done.is_none() {
            // What was spent on guards stays spent.
            self.trials = trial.trials;
            return Ok(false);
        }
        *self = trial;
        *module = copy;
        out.nodes.append(&mut made.nodes);
        out.constants.append(&mut made.constants);
        self.report.settle(node, if std::mem::take(&mut self.looped) { Rule::Loop } else { Rule::Unroll });
        Ok(true)
    }

    /// Takes the nodes of all trips off the budget, or says why not.
    fn spend(&mut self, trips: i64, cost: usize) -> Option<()> {
        let total = usize::try_from(trips).ok().and_then(|n| n.checked_mul(cost));
        match total.and_then(|n| self.budget.checked_sub(n)) {
            Some(left) => {
                self.budget = left;
                Some(())
            }
            None => {
                self.too_long(total, self.budget);
                None
            }
        }
    }

    /// Notes why a loop is not written out.
    fn too_long(&mut self, nodes: Option<usize>, allowed: usize) {
        let nodes = nodes.map_or_else(|| "countless".to_owned(), |n| n.to_string());
        self.why = Some(format!("writing it out would take {nodes} nodes, {allowed} are allowed"));
    }

    fn unroll_loop(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let body = node.require_region("body")?;
        let most = match node.input(0) {
            None => i64::MAX,
            Some(m) => match self.known_int(m) {
                Some(m) => m.max(0),
                None => return Ok(None),
            },
        };
        let mut cond = match node.input(1) {
            None => Some(true),
            Some(c) => self.known_int(c).map(|v| v != 0),
        };
        let given: Option<Vec<ValueId>> = node.inputs.iter().skip(2).copied().collect();
        let Some(carried) = given else { return Err(node.invalid("a carried value is missing")) };
        let states = carried.len();
        if body.inputs.len() != states + 2 || body.outputs.len() <= states {
            return Err(node.invalid("the body does not fit the values that are carried"));
        }
        let mut trips = Trips { carried, scans: vec![vec![]; body.outputs.len() - 1 - states] };
        let cost = Self::size(body) + trips.scans.len();
        let mut trip = 0;
        let allowed = self.budget;
        while trip < most && cond == Some(true) {
            if self.spend(1, cost).is_none() {
                let total = usize::try_from(most).ok().filter(|_| most < i64::MAX).and_then(|n| n.checked_mul(cost));
                self.too_long(total, allowed);
                return Ok(None);
            }
            let mut args = vec![
                self.constant(module, TensorData::scalar_i64(trip), out),
                self.constant(module, TensorData::scalar_bool(true), out),
            ];
            args.extend(&trips.carried);
            let results = self.inline(module, body, &args, out)?;
            cond = self.known_int(results[0]).map(|v| v != 0);
            trips.carried = results[1..=states].to_vec();
            for (all, one) in trips.scans.iter_mut().zip(&results[states + 1..]) {
                all.push(*one);
            }
            trip += 1;
        }
        if trip < most && cond.is_none() {
            return Ok(None);
        }
        let mut scans = vec![];
        for (all, result) in trips.scans.iter().zip(&body.outputs[states + 1..]) {
            let value = if all.is_empty() {
                self.empty(module, *result, out)
            } else if self.alike(all) {
                Some(self.stack(module, node, all, 0, out))
            } else {
                None
            };
            match value {
                Some(v) => scans.push(v),
                // Nobody asks for it, or its shape is not known.
                None => {
                    self.why = Some("a scan output's trips have several shapes, or an unknown one".into());
                    return Ok(None);
                }
            }
        }
        for (k, value) in trips.carried.iter().chain(&scans).enumerate() {
            self.alias(node, k, *value);
        }
        Ok(Some(()))
    }

    /// A scan output of no trips, as far as the model declares its shape.
    fn empty(&mut self, module: &mut Module, result: ValueId, out: &mut Region) -> Option<ValueId> {
        let ValueType::Tensor { elem, shape: Some(shape) } = &module.value(result).ty else { return None };
        let mut dims = vec![0];
        for d in shape {
            match d {
                DimDecl::Fixed(n) => dims.push(*n as usize),
                DimDecl::Named(_) | DimDecl::Unknown => return None,
            }
        }
        let data = TensorData::new(*elem, dims, vec![])?;
        Some(self.constant(module, data, out))
    }

    fn unroll_scan(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let given: Option<Vec<ValueId>> = node.inputs.iter().copied().collect();
        let Some(given) = given else { return Err(node.invalid("an input is missing")) };
        let scanned = usize::try_from(node.require_int("num_scan_inputs")?).unwrap_or(usize::MAX);
        let Some(states) = given.len().checked_sub(scanned) else {
            return Err(node.invalid(format!("{scanned} scan inputs of {} inputs", given.len())));
        };
        let results = node.require_region("body")?.outputs.len().saturating_sub(states);
        let list = |name: &str, n: usize| -> Result<Vec<i64>> {
            let values = node.attr_ints(name)?.unwrap_or_default().to_vec();
            match values.len() {
                0 => Ok(vec![0; n]),
                k if k == n => Ok(values),
                k => Err(node.invalid(format!("attribute '{name}' has {k} entries, {n} are needed"))),
            }
        };
        let how = Directions {
            input_axes: list("scan_input_axes", scanned)?,
            input_directions: list("scan_input_directions", scanned)?,
            output_axes: list("scan_output_axes", results)?,
            output_directions: list("scan_output_directions", results)?,
        };
        let Some(values) = self.scan(module, node, &given[..states], &given[states..], &how, None, out)? else {
            return Ok(None);
        };
        for (k, value) in values.iter().enumerate() {
            self.alias(node, k, *value);
        }
        Ok(Some(()))
    }

    /// `Scan` of operator set 8, whose operands have a batch in front: each row of it by itself, as far as its length goes.
    fn unroll_batches(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let lengths = node.input(0);
        let given: Option<Vec<ValueId>> = node.inputs.iter().skip(1).copied().collect();
        let Some(given) = given else { return Err(node.invalid("an input is missing")) };
        let scanned = usize::try_from(node.require_int("num_scan_inputs")?).unwrap_or(usize::MAX);
        let Some(states) = given.len().checked_sub(scanned) else {
            return Err(node.invalid(format!("{scanned} scan inputs of {} inputs", given.len())));
        };
        let results = node.require_region("body")?.outputs.len().saturating_sub(states);
        let batch = given.first().and_then(|v| self.dims(*v)).and_then(|d| d.first()?.as_const());
        let Some(batch) = batch.filter(|n| *n > 0) else { return Ok(None) };
        let how = Directions {
            input_axes: vec![0; scanned],
            input_directions: match node.attr_ints("directions")?.unwrap_or_default() {
                [] => vec![0; scanned],
                d if d.len() == scanned => d.to_vec(),
                d => return Err(node.invalid(format!("{} directions for {scanned} scan inputs", d.len()))),
            },
            output_axes: vec![0; results],
            output_directions: vec![0; results],
        };
        let mut rows = vec![];
        for row in 0..batch {
            let mut own = vec![];
            for v in &given {
                own.push(self.pick(module, node, *v, 0, row, out));
            }
            let length = lengths.map(|l| self.pick(module, node, l, 0, row, out));
            let missing = match (length, own.get(states)) {
                (Some(length), Some(first)) => Some(self.missing(module, node, *first, length, out)),
                _ => None,
            };
            let Some(mut values) = self.scan(module, node, &own[..states], &own[states..], &how, length, out)? else {
                return Ok(None);
            };
            if let Some(missing) = missing {
                for v in &mut values[states..] {
                    match self.lengthen(module, node, *v, missing, out) {
                        Some(long) => *v = long,
                        None => return Ok(None),
                    }
                }
            }
            rows.push(values);
        }
        for k in 0..rows[0].len() {
            let parts: Vec<ValueId> = rows.iter().map(|r| r[k]).collect();
            let all = self.stack(module, node, &parts, 0, out);
            self.alias(node, k, all);
        }
        Ok(Some(()))
    }

    /// What the length of a row lacks of that of `scanned`, a list of one number. Operators are those of operator set 8.
    fn missing(
        &mut self,
        module: &mut Module,
        node: &Node,
        scanned: ValueId,
        length: ValueId,
        out: &mut Region,
    ) -> ValueId {
        let shape = self.emit(module, node, "Shape", &[scanned], &[], out);
        let most = self.pick(module, node, shape, 0, 0, out);
        let none = self.constant(module, TensorData::scalar_i64(0), out);
        let missing = self.emit(module, node, "Sub", &[most, length], &[], out);
        // Whole numbers had no order then.
        let double = i64::from(ElemType::from(DType::F64).code());
        let [zero, long, least] =
            [none, missing, length].map(|v| self.emit(module, node, "Cast", &[v], &[("to", double)], out));
        let some = self.emit(module, node, "Less", &[zero, least], &[], out);
        let beyond = self.emit(module, node, "Less", &[long, zero], &[], out);
        let within = self.emit(module, node, "Not", &[beyond], &[], out);
        let good = self.emit(module, node, "And", &[some, within], &[], out);
        self.require(node, good, "the length of a row is none, or more than there is", out);
        self.unsqueeze(module, node, missing, 0, out)
    }

    /// Zeros behind the parts of a scan output. Nothing if its rank is not known.
    fn lengthen(
        &mut self,
        module: &mut Module,
        node: &Node,
        value: ValueId,
        missing: ValueId,
        out: &mut Region,
    ) -> Option<ValueId> {
        let member = self.member(value)?;
        let shape = self.emit(module, node, "Shape", &[value], &[], out);
        let sizes = [("starts", 1), ("ends", member.dims.len() as i64)].map(|(name, v)| (name, Attr::Ints(vec![v])));
        let (slice, rest) = emit::node(module, node, "Slice", &[shape], &sizes);
        self.keep(module, slice, out);
        let shape = self.emit(module, node, "Concat", &[missing, rest], &[("axis", 0)], out);
        let zero = self.constant(module, TensorData::blank(member.elem, vec![])?, out);
        let tail = self.emit(module, node, "Expand", &[zero, shape], &[], out);
        Some(self.emit(module, node, "Concat", &[value, tail], &[("axis", 0)], out))
    }

    /// Final states, then scan outputs. The length may be `given` as a value that is at most that of what is scanned.
    #[allow(clippy::too_many_arguments, reason = "a scan's operands and where its nodes go")]
    fn scan(
        &mut self,
        module: &mut Module,
        node: &Node,
        states: &[ValueId],
        scanned: &[ValueId],
        how: &Directions,
        given: Option<ValueId>,
        out: &mut Region,
    ) -> Result<Option<Vec<ValueId>>> {
        let body = node.require_region("body")?;
        if body.inputs.len() != states.len() + scanned.len() || body.outputs.len() < states.len() {
            return Err(node.invalid("the body does not fit the inputs"));
        }
        let mut length = None;
        for (v, axis) in scanned.iter().zip(&how.input_axes) {
            let Some(dims) = self.dims(*v) else { return Ok(None) };
            let at = if *axis < 0 { axis + dims.len() as i64 } else { *axis };
            let Some(d) = usize::try_from(at).ok().and_then(|a| dims.get(a)) else {
                return Err(node.invalid(format!("scan axis {axis} of a tensor of rank {}", dims.len())));
            };
            match (d.as_const(), length) {
                (Some(n), None) => length = Some(n),
                (Some(n), Some(m)) if n != m => {
                    return Err(node.invalid(format!("scan inputs of lengths {m} and {n}")));
                }
                (Some(_), Some(_)) => {}
                // An open length is never decided by another one.
                (None, _) => {
                    length = None;
                    break;
                }
            }
        }
        if let Some(given) = given {
            length = self.known_int(given).filter(|n| length.is_some_and(|most| *n <= most));
        }
        let cost = Self::size(body) + scanned.len() + body.outputs.len();
        // Of what shape the parts of no trip are only a loop tells.
        let some = |n: &i64| *n > 0 || body.outputs.len() == states.len();
        let Some(length) = length.filter(|n| some(n) && self.spend(*n, cost).is_some()) else {
            let why = self.why.take();
            let made = self.scan_as_loop(module, node, states, scanned, how, given, out);
            (self.looped, self.why) = (true, why);
            return made;
        };
        let mut carried = states.to_vec();
        let mut results = vec![vec![]; body.outputs.len() - states.len()];
        for step in 0..length {
            let mut args = carried.clone();
            for ((v, axis), direction) in scanned.iter().zip(&how.input_axes).zip(&how.input_directions) {
                let at = if *direction == 0 { step } else { length - 1 - step };
                args.push(self.pick(module, node, *v, *axis, at, out));
            }
            let values = self.inline(module, body, &args, out)?;
            carried = values[..states.len()].to_vec();
            for (all, one) in results.iter_mut().zip(&values[states.len()..]) {
                all.push(*one);
            }
        }
        for (k, mut all) in results.into_iter().enumerate() {
            if how.output_directions[k] != 0 {
                all.reverse();
            }
            carried.push(self.stack(module, node, &all, how.output_axes[k], out));
        }
        Ok(Some(carried))
    }

    fn unroll_map(&mut self, module: &mut Module, node: &Node, out: &mut Region) -> Result<Option<()>> {
        let body = node.require_region("body")?;
        let length = node.input(0).and_then(|v| self.members(v)).map(|m| m.len());
        let cost = Self::size(body) + 1;
        let Some(length) = length.filter(|n| self.spend(*n as i64, cost).is_some()) else {
            let why = self.why.take();
            let made = self.map_as_loop(module, node, out);
            (self.looped, self.why) = (true, why);
            return made;
        };
        let mut results = vec![vec![]; body.outputs.len()];
        for k in 0..length {
            let mut args = vec![];
            for v in node.given_inputs() {
                match self.members(v) {
                    Some(members) if members.len() == length => args.push(members[k]),
                    Some(members) => {
                        return Err(node.invalid(format!("sequences of {length} and {} members", members.len())));
                    }
                    None => args.push(v),
                }
            }
            if args.len() != body.inputs.len() {
                return Err(node.invalid("the body does not fit the inputs"));
            }
            let values = self.inline(module, body, &args, out)?;
            for (all, one) in results.iter_mut().zip(values) {
                all.push(one);
            }
        }
        for (output, members) in node.outputs.iter().zip(results) {
            if let Some(output) = output {
                self.containers.insert(*output, Container::Sequence(members));
            }
        }
        Ok(Some(()))
    }
}

/// Along which axes a scan goes, and where from: 0 from the start, else from the end.
pub(super) struct Directions {
    pub(super) input_axes: Vec<i64>,
    pub(super) input_directions: Vec<i64>,
    pub(super) output_axes: Vec<i64>,
    pub(super) output_directions: Vec<i64>,
}
