//! `Scan` as `Loop`: what is scanned is gathered by the number of the trip, scan outputs are turned and transposed after it.

use super::unroll::Directions;
use super::{Mender, emit};
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attr, Module, Node, ONNX_DOMAIN, Region, TensorData, ValueId, ValueType};
use std::sync::Arc;

impl Mender<'_> {
    /// Final states, then scan outputs, of a scan whose length is not known or too large to write it out; it may be `given`.
    /// Nothing if a shape that this needs is not known.
    #[allow(clippy::too_many_arguments, reason = "as `scan`")]
    pub(super) fn scan_as_loop(
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
        let mut length = None;
        for (v, axis) in scanned.iter().zip(&how.input_axes) {
            let shape = self.emit(module, node, "Shape", &[*v], &[], out);
            let own = self.pick(module, node, shape, 0, *axis, out);
            match length {
                None => length = Some(own),
                Some(first) => self.require_same(module, node, first, own, out),
            }
        }
        let Some(length) = given.or(length) else { return Err(node.invalid("a scan needs something to scan")) };
        let one = self.constant(module, TensorData::scalar_i64(1), out);
        let last = self.emit(module, node, "Sub", &[length, one], &[], out);

        let scalar = |module: &mut Module, t: DType| module.add_value("", ValueType::fixed(t, &[]));
        let mut inner = Region { name: body.name.clone(), ..Region::default() };
        let trip = scalar(module, DType::I64);
        inner.inputs.extend([trip, scalar(module, DType::Bool)]);
        let mut args = vec![];
        for (k, _) in states.iter().enumerate() {
            let ty = module.value(body.inputs[k]).ty.clone();
            args.push(module.add_value("", ty));
        }
        inner.inputs.extend(&args);
        for ((v, axis), direction) in scanned.iter().zip(&how.input_axes).zip(&how.input_directions) {
            let mut at = trip;
            if *direction != 0 {
                let (turned, id) = emit::node(module, node, "Sub", &[last, trip], &[]);
                inner.nodes.push(turned);
                at = id;
            }
            let (gather, part) = emit::node(module, node, "Gather", &[*v, at], &[("axis", Attr::Int(*axis))]);
            inner.nodes.push(gather);
            args.push(part);
        }
        let copy = module.instantiate(body, &args);
        let on = scalar(module, DType::Bool);
        inner.constants.push((on, Arc::new(TensorData::scalar_bool(true))));
        inner.constants.extend(copy.constants);
        inner.nodes.extend(copy.nodes);
        inner.outputs.push(on);
        inner.outputs.extend(&copy.outputs);

        let mut outputs = vec![];
        for id in &body.outputs {
            let ty = match outputs.len() < states.len() {
                true => module.value(*id).ty.clone(),
                false => ValueType::Unknown,
            };
            outputs.push(module.add_value("", ty));
        }
        let made = Node {
            name: node.name.clone(),
            domain: ONNX_DOMAIN.into(),
            op_type: "Loop".into(),
            version: node.version,
            inputs: [Some(length), None].into_iter().chain(states.iter().copied().map(Some)).collect(),
            outputs: outputs.iter().copied().map(Some).collect(),
            attrs: [("body".to_owned(), Attr::Region(inner))].into(),
        };
        self.native(module, made, out)?;
        for (k, value) in outputs.iter_mut().enumerate().skip(states.len()) {
            let k = k - states.len();
            if how.output_directions[k] != 0 {
                *value = self.turned(module, node, *value, out);
            }
            if how.output_axes[k] != 0 {
                let Some(rank) = self.dims(*value).map(|d| d.len()) else { return Ok(None) };
                *value = self.first_axis_to(module, node, *value, how.output_axes[k], rank, out)?;
            }
        }
        Ok(Some(outputs))
    }

    /// A check that two numbers are equal.
    fn require_same(&mut self, module: &mut Module, node: &Node, a: ValueId, b: ValueId, out: &mut Region) {
        let equal = self.emit(module, node, "Equal", &[a, b], &[], out);
        self.require(node, equal, "what is scanned has different lengths", out);
    }

    /// `value` from its end to its start along the first axis.
    fn turned(&mut self, module: &mut Module, node: &Node, value: ValueId, out: &mut Region) -> ValueId {
        let mut bound = |v: i64| self.constant(module, TensorData::from_i64s(&[v]), out);
        let (from, to, axis, step) = (bound(-1), bound(i64::MIN), bound(0), bound(-1));
        self.emit(module, node, "Slice", &[value, from, to, axis, step], &[], out)
    }

    /// `value`, of `rank` axes, with its first axis moved to `axis` of the result.
    pub(super) fn first_axis_to(
        &mut self,
        module: &mut Module,
        node: &Node,
        value: ValueId,
        axis: i64,
        rank: usize,
        out: &mut Region,
    ) -> Result<ValueId> {
        let at = if axis < 0 { axis + rank as i64 } else { axis };
        let Some(at) = usize::try_from(at).ok().filter(|a| *a < rank) else {
            return Err(node.invalid(format!("axis {axis} of a result of rank {rank}")));
        };
        let mut order: Vec<i64> = (1..rank as i64).collect();
        order.insert(at, 0);
        let (made, id) = emit::node(module, node, "Transpose", &[value], &[("perm", Attr::Ints(order))]);
        self.keep(module, made, out);
        Ok(id)
    }
}
