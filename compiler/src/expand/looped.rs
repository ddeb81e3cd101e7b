//! `Loop`: one native loop within the plan.
//!
//! The body is expanded once, with an assumption of what it carries ([`super::carried`]). If it does not give that back, the
//! assumption is changed and the body is expanded anew.

use super::carried::{CarriedAs, Entry};
use super::{Expander, at_node, hoist};
use crate::dtype::DType;
use crate::error::{Collector, Result};
use crate::graph::{DimDecl, Module, Node, Region, ValueId, ValueType};
use crate::sym::{Int, VarId, VarInfo, free_vars};
use crate::te::program::{Carried, CarriedDim, Def, Loop, Scan, Step};
use crate::te::{Block, TensorId, expr};
use std::collections::{BTreeMap, BTreeSet};

/// A trip count from which on there is no limit that matters.
const NO_LIMIT: i64 = 1 << 48;
/// Most bytes of room for a scan output of a loop that may end early; a longer one grows with each trip.
const MOST_ROOM: i64 = 1 << 24;

/// A loop whose body is being expanded.
pub(crate) struct Entered {
    most: Option<Int>,
    start: Option<Int>,
    trip: VarId,
    /// Symbols made from here on belong to the loop.
    mark: VarId,
    carried: Vec<Entry>,
}

impl Entered {
    /// May it change from trip to trip?
    pub(crate) fn is_inner(&self, i: Int) -> bool {
        free_vars(i).iter().any(|v| *v > self.mark)
    }
}

impl Expander<'_> {
    /// Expands a loop.
    pub(crate) fn looped(&mut self, module: &Module, node: &Node, problems: &mut Collector) -> Result<()> {
        let body = node.require_region("body")?;
        let given = |v: &ValueId| self.values.contains_key(v) || self.poisoned.contains(v);
        if !node.given_inputs().all(|v| given(&v)) {
            return Err(node.unsupported("carrying something of which no tensor can be made is not supported"));
        }
        let before = self.clone();
        let mut varying = vec![];
        loop {
            let Some(entered) = self.enter(node, body, &mut varying)? else {
                self.poisoned.extend(node.wanted_outputs());
                return Ok(());
            };
            let mut found = Collector::new();
            let walked = self.region(module, body, &mut found);
            let results = self.results(body);
            if !found.is_empty() || walked.is_err() {
                self.cx.end_block();
                walked?;
                self.poisoned.extend(node.wanted_outputs());
                return found.finish().or_else(|e| problems.add(e));
            }
            let Some(results) = results else {
                self.cx.end_block();
                return Err(node.unsupported("a loop that carries something other than tensors is not supported"));
            };
            if self.widen(node, &entered, &results, &mut varying)? {
                *self = before.clone();
                continue;
            }
            return self.leave(module, node, &entered, &results);
        }
    }

    /// The tensors of a body's results, if all are there.
    pub(crate) fn results(&self, body: &Region) -> Option<Vec<TensorId>> {
        body.outputs.iter().map(|v| self.values.get(v).copied().filter(|_| !self.poisoned.contains(v))).collect()
    }

    /// Opens the body's block and defines the body's inputs. `varying` is filled for values that it does not hold yet.
    /// Nothing if an operand is not supported.
    pub(crate) fn enter(
        &mut self,
        node: &Node,
        body: &Region,
        varying: &mut Vec<CarriedAs>,
    ) -> Result<Option<Entered>> {
        self.cx.node.clone_from(&node.name);
        if node.given_inputs().any(|v| !self.values.contains_key(&v)) {
            return Ok(None);
        }
        let operand = |e: &Self, k: usize| node.input(k).and_then(|v| e.values.get(&v).copied());
        let scalar = |e: &mut Self, k: usize, lo: i64, hi: Option<i64>| -> Result<Option<Int>> {
            let Some(t) = operand(e, k) else { return Ok(None) };
            if e.cx.numel(t).as_const() != Some(1) {
                return Err(node.invalid(format!("input {k} must have one element")));
            }
            let (is, needed) = (e.cx.dtype(t), [DType::I64, DType::Bool][k]);
            if is != needed {
                return Err(node.invalid(format!("input {k} has element type {is}, not {needed}")));
            }
            Ok(Some(match e.cx.ints(t) {
                Some(known) => known[0],
                None if k == 0 => e.cx.read(t, 0, "trips", None, None).max(lo),
                None => e.cx.read(t, 0, "cond", Some(lo), hi),
            }))
        };
        let most = scalar(self, 0, 0, None)?.map(|m| m.max(0)).filter(|m| m.as_const().is_none_or(|n| n < NO_LIMIT));
        let start = scalar(self, 1, 0, Some(1))?.filter(|c| c.as_const().is_none_or(|v| v == 0));
        let mut carried = vec![];
        for (k, id) in node.inputs.iter().enumerate().skip(2) {
            let Some(t) = id.and_then(|id| self.values.get(&id).copied()) else {
                return Err(node.invalid(format!("carried value {} is missing", k - 2)));
            };
            carried.push(t);
        }
        let states = carried.len();
        if body.inputs.len() != states + 2 || body.outputs.len() <= states {
            return Err(node.invalid("the body does not fit the values that are carried"));
        }
        let mark = VarId::new(VarInfo { name: "mark".into(), lo: None, hi: None, extent: None });
        self.cx.begin_block();
        let trip = match most {
            Some(most) => VarId::index("trip", most),
            None => VarId::new(VarInfo { name: "trip".into(), lo: Some(0), hi: None, extent: None }),
        };
        let scalar_shape: &[usize] = match operand(self, 0) {
            Some(m) if self.cx.rank(m) == 1 => &[1],
            _ => &[],
        };
        let iteration = self.cx.from_ints(DType::I64, scalar_shape, &[Int::var(trip)]);
        let truth = self.cx.constant(DType::Bool, scalar_shape, vec![1]);
        self.give(body.inputs[0], iteration);
        self.give(body.inputs[1], truth);
        let mut entries = vec![];
        for (k, init) in carried.into_iter().enumerate() {
            let passed = body.outputs[k + 1] == body.inputs[k + 2];
            if varying.len() <= k {
                varying.push(CarriedAs::first(&mut self.cx, init));
            }
            let entry = match passed {
                true => Entry::passed(init),
                false => Entry::new(&mut self.cx, init, &varying[k], Int::var(trip)),
            };
            self.give(body.inputs[k + 2], entry.current);
            entries.push(entry);
        }
        Ok(Some(Entered { most, start, trip, mark, carried: entries }))
    }

    fn give(&mut self, id: ValueId, t: TensorId) {
        self.poisoned.remove(&id);
        self.values.insert(id, t);
    }

    /// Does the body give back another shape than was assumed? Then `varying` says so now.
    ///
    /// # Errors
    /// Types or ranks that change.
    pub(crate) fn widen(
        &mut self,
        node: &Node,
        entered: &Entered,
        results: &[TensorId],
        varying: &mut [CarriedAs],
    ) -> Result<bool> {
        let mut wider = false;
        let numbers: BTreeSet<VarId> = entered.carried.iter().flat_map(Entry::numbers).collect();
        for (k, (entry, next)) in entered.carried.iter().zip(&results[1..]).enumerate() {
            let (was, is) = (self.cx.dtype(entry.init), self.cx.dtype(*next));
            if was != is || self.cx.narrow.get(&entry.init) != self.cx.narrow.get(next) {
                return Err(node.invalid(format!("carried value {k} is {was} before the loop and {is} after a trip")));
            }
            let (from, to) = (self.cx.rank(entry.current), self.cx.rank(*next));
            if from != to {
                return Err(node.unsupported(format!("carried value {k} of rank {from}, then {to}, is not supported")));
            }
            wider |= entry.widen(&mut self.cx, *next, &mut varying[k], &|i| entered.is_inner(i), &numbers);
        }
        Ok(wider)
    }

    /// Closes the body's block and adds the loop.
    fn leave(&mut self, module: &Module, node: &Node, entered: &Entered, results: &[TensorId]) -> Result<()> {
        self.cx.node.clone_from(&node.name);
        let is = self.cx.dtype(results[0]);
        if is != DType::Bool {
            return Err(node.invalid(format!("the body's condition has element type {is}, not bool")));
        }
        let go_on = match self.cx.ints(results[0]) {
            Some(known) => known.first().copied().filter(|c| c.as_const().is_none_or(|v| v == 0)),
            None if self.cx.numel(results[0]).as_const() == Some(1) => {
                Some(self.cx.read(results[0], 0, "cond", Some(0), Some(1)))
            }
            None => return Err(node.invalid("the body's condition must have one element")),
        };
        let early = go_on.is_some() || entered.start.is_some();
        let count = match (early, entered.most) {
            (false, Some(most)) => most,
            (_, most) => Int::symbol("trips", Some(0), most.and_then(|m| m.bounds().hi)),
        };
        let block = self.cx.end_block();
        let exact = entered.most.filter(|_| !early);
        let (before, mut body, inside) = hoist::hoist(&mut self.cx, block, entered.mark, entered.trip, exact);
        before.into_iter().for_each(|step| self.cx.push_control(step));

        // The rest of the body: copies of what is not a tensor of the body's own, scan outputs that grow.
        self.cx.begin_block();
        let mut l = Loop {
            trip: entered.trip,
            most: entered.most,
            start: entered.start,
            go_on,
            body: Block::default(),
            carried: vec![],
            scans: vec![],
            dims: vec![],
            count: count.as_var().filter(|v| *v > entered.mark && Some(count) != entered.most),
        };
        let mut made: Vec<Option<TensorId>> = vec![];
        let mut after = vec![];
        let mut taken = vec![];
        for (entry, next) in entered.carried.iter().zip(&results[1..]) {
            if !entry.is_carried_as_tensor() {
                after.push(None);
                made.push(None);
                continue;
            }
            let memory = self.base(*next);
            let own = inside.own.contains(&memory) && !taken.contains(&memory);
            let next = if own || !inside.varying.contains(&memory) { *next } else { self.copy(*next) };
            taken.push(self.base(next));
            made.push(Some(next));
            after.push(None);
        }
        let elements = &results[1 + entered.carried.len()..];
        let mut needed: BTreeSet<TensorId> = made.iter().flatten().map(|t| self.base(*t)).collect();
        needed.extend([results[0], self.base(results[0])]);
        needed.extend(made.iter().flatten());
        let is_inner = |v: VarId| v > entered.mark;
        let mut deferred = vec![];
        let mut scanned: Vec<TensorId> = vec![];
        for (k, element) in elements.iter().enumerate() {
            let others = elements.iter().enumerate().filter(|(j, _)| *j != k).map(|(_, e)| *e);
            let needed = needed.iter().copied().chain(others).collect();
            let found = hoist::defer(&self.cx, &body, &inside, &needed, *element, &is_inner, entered.trip);
            let own = std::slice::from_ref(element);
            let given = found.as_ref().map_or(own, |d| &d.sources);
            scanned.extend(given.iter().filter(|t| !scanned.contains(t)).copied().collect::<Vec<_>>());
            deferred.push(found);
        }
        let mut growing = vec![];
        let body_outputs = &node.require_region("body")?.outputs;
        for (k, element) in scanned.iter().enumerate() {
            let shape = self.cx.shape(*element);
            let varies = |d: &Int| entered.is_inner(*d);
            if shape.iter().any(varies) {
                let place = elements.iter().position(|e| e == element);
                let given = place.and_then(|k| body_outputs.get(1 + entered.carried.len() + k));
                let declared = given.map(|v| &module.value(*v).ty);
                growing.push(self.grow_as_the_first(node, (k, declared), *element, Int::var(entered.trip), &varies)?);
                continue;
            }
            let size = Int::product(&shape) * self.cx.dtype(*element).size();
            let room = match (early, entered.most) {
                (false, Some(most)) => Some(most),
                (true, Some(most)) => {
                    let few = |m: i64| size.bounds().hi.and_then(|s| s.checked_mul(m)).is_some_and(|n| n <= MOST_ROOM);
                    // As long as an input is: there is room for that much.
                    let by_inputs = || free_vars(most).iter().all(|v| self.cx.program.dim_vars.contains_key(v));
                    Some(most).filter(|m| m.bounds().hi.map_or_else(by_inputs, few))
                }
                (_, None) => None,
            };
            growing.push(match room {
                Some(room) => Growth::Parts(room * Int::product(&shape)),
                None => self.grow(*element, Int::var(entered.trip), &shape),
            });
        }
        let extra = self.cx.end_block();
        body.steps.extend(extra.steps);
        l.body = body;

        // What there is after the loop.
        let mut numbers = vec![];
        for (k, (entry, next)) in entered.carried.iter().zip(&results[1..]).enumerate() {
            let Some(made) = made[k] else {
                numbers.push((k, entry.numbers_after(&mut self.cx, *next, count, &mut l.dims)));
                continue;
            };
            let shape = entry.shape_after(&self.cx, made, count, &mut l.dims);
            let result = self.slot_like(made, shape);
            l.carried.push(Carried { current: entry.current, init: entry.init, next: made, result });
            after[k] = Some(result);
        }
        let mut all = BTreeMap::new();
        for (element, growth) in scanned.iter().zip(growing) {
            let mut shape = self.cx.shape(*element);
            shape.insert(0, count);
            let result = match growth {
                Growth::Parts(room) => {
                    let result = self.cx.define(self.cx.dtype(*element), shape, Def::Parts(room));
                    l.scans.push(Scan { element: *element, result });
                    self.like(result, *element)
                }
                Growth::Carried { init, current, next, dims } => {
                    for (axis, current, init, next) in dims {
                        shape[axis] = Int::symbol("first", Some(0), None);
                        if let Some(result) = shape[axis].as_var() {
                            l.dims.push(CarriedDim { current, init, next, result });
                        }
                    }
                    let result = self.slot_like(next, shape);
                    l.carried.push(Carried { current, init, next, result });
                    result
                }
            };
            all.insert(*element, result);
        }
        let trip = entered.trip;
        self.cx.push_control(Step::Loop(Box::new(l)));
        for (k, numbers) in numbers {
            after[k] = Some(entered.carried[k].tensor_of(&mut self.cx, numbers));
        }
        for (element, deferred) in elements.iter().zip(deferred) {
            after.push(Some(match deferred {
                None => all[element],
                Some(d) => {
                    let given = d.sources.iter().map(|t| (*t, all[t])).collect();
                    let t = hoist::compute_deferred(&mut self.cx, &d, *element, given, (entered.mark, trip), count);
                    self.like(t, *element)
                }
            }));
        }
        for (id, t) in node.outputs.iter().zip(after) {
            if let (Some(id), Some(t)) = (id, t) {
                self.values.insert(*id, t);
            }
        }
        Ok(())
    }

    /// A scan output of unknown length: carried, and one longer after each trip. `shape` is that of the elements so far.
    fn grow(&mut self, element: TensorId, trip: Int, shape: &[Int]) -> Growth {
        let dtype = self.cx.dtype(element);
        let with = |n: Int, shape: &[Int]| [&[n][..], shape].concat();
        let one = self.cx.shape(element);
        let nothing: Vec<Int> = one.iter().zip(shape).map(|(d, s)| if d == s { *d } else { Int::new(0) }).collect();
        let zero = expr::cast(dtype.compute(), expr::int(Int::new(0)));
        let init = self.cx.map(dtype, with(Int::new(0), &nothing), |_| zero);
        let current = self.slot_like(element, with(trip, shape));
        let next = self.cx.map(dtype, with(trip + 1, &one), |i| {
            let old = expr::cmp(crate::kernel::ir::Cmp::Lt, expr::int(i[0]), expr::int(trip));
            let within = |(i, (s, d)): (&Int, (&Int, &Int))| if s == d { *i } else { i.min((*s - 1).max(0)) };
            let place: Vec<Int> = i[1..].iter().zip(shape.iter().zip(&one)).map(within).collect();
            let at = [&[i[0].min((trip - 1).max(0))][..], &place].concat();
            expr::select(old, expr::load(current, dtype, at), expr::load(element, dtype, i[1..].to_vec()))
        });
        Growth::Carried { init, current, next: self.like(next, element), dims: vec![] }
    }

    /// [`Self::grow`] where dimensions for which `varies` are known only once the first element is there; without
    /// any they are what `declared` says.
    fn grow_as_the_first(
        &mut self,
        node: &Node,
        (k, declared): (usize, Option<&ValueType>),
        element: TensorId,
        trip: Int,
        varies: &dyn Fn(&Int) -> bool,
    ) -> Result<Growth> {
        let (mut shape, mut symbols) = (vec![], vec![]);
        for d in self.cx.shape(element) {
            if !varies(&d) {
                shape.push(d);
                continue;
            }
            let symbol = Int::symbol("first", Some(0), None);
            let size = match declared {
                Some(ValueType::Tensor { shape: Some(dims), .. }) => match dims.get(shape.len()) {
                    Some(DimDecl::Fixed(n)) => i64::try_from(*n).unwrap_or(0),
                    _ => 0,
                },
                _ => 0,
            };
            symbols.extend(symbol.as_var().map(|v| (shape.len() + 1, v, Int::new(size), d)));
            shape.push(symbol);
            let expected = trip.if_eq(0, d, symbol);
            let what = format!("parts of scan output {k} have different shapes");
            self.cx.require_equal(expected, d, &what).map_err(|e| at_node(node, e))?;
        }
        let mut growth = self.grow(element, trip, &shape);
        if let Growth::Carried { dims, .. } = &mut growth {
            *dims = symbols;
        }
        Ok(growth)
    }

    fn slot_like(&mut self, t: TensorId, shape: Vec<Int>) -> TensorId {
        let slot = self.cx.define(self.cx.dtype(t), shape, Def::Slot);
        self.like(slot, t)
    }

    /// `t` holds elements of the type that `of` holds.
    fn like(&mut self, t: TensorId, of: TensorId) -> TensorId {
        if let Some(elem) = self.cx.narrow.get(&of).copied() {
            self.cx.narrow.insert(t, elem);
        }
        t
    }

    fn copy(&mut self, t: TensorId) -> TensorId {
        let (dtype, shape) = (self.cx.dtype(t), self.cx.shape(t));
        let copy = self.cx.map(dtype, shape, |i| expr::load(t, dtype, i.to_vec()));
        self.like(copy, t)
    }

    fn base(&self, t: TensorId) -> TensorId {
        match self.cx.program.tensor(t).def {
            Def::View(base) => self.base(base),
            _ => t,
        }
    }
}

/// Where a scan output's elements go.
enum Growth {
    /// Into memory with room for so many of their elements.
    Parts(Int),
    /// Into a tensor that is carried.
    Carried {
        init: TensorId,
        current: TensorId,
        next: TensorId,
        /// Axes of the result whose size the first element gives: symbol while the loop runs, size if there is none,
        /// size of an element.
        dims: Vec<(usize, VarId, Int, Int)>,
    },
}
