//! What a loop is assumed to carry, until its body is seen to give it back.
//!
//! A tensor is a slot; its dimensions are those that it has before the first trip, or change by the same amount in each
//! trip, or are symbols. A few integers (counters, positions) are no tensor at all but numbers of the plan, in the same three
//! ways: what counts up with the trips is a formula of the trip's number.

use crate::dtype::DType;
use crate::sym::{Atom, Int, VarId, free_vars};
use crate::te::program::{CarriedDim, Def};
use crate::te::{Cx, TensorId};
use std::collections::BTreeSet;

/// Most integers that are carried as numbers.
const FEW: i64 = 8;
/// A number that is not added or multiplied where counters and positions change.
const LARGE: i64 = 1 << 40;

/// How a number changes from trip to trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It does not.
    Fixed,
    /// It grows by this in each trip.
    By(Int),
    /// It is a symbol, and may turn out to change in a simpler way.
    Open,
    /// It is a symbol.
    Any,
}

/// How a value is carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CarriedAs {
    /// As a tensor; how its dimensions change.
    Tensor(Vec<Change>),
    /// As integers of the plan; how they change.
    Numbers(Vec<Change>),
}

impl CarriedAs {
    /// The first assumption.
    pub(super) fn first(cx: &mut Cx, init: TensorId) -> CarriedAs {
        let few = cx.dtype(init) == DType::I64 && cx.numel(init).as_const().is_some_and(|n| n <= FEW);
        match if few { cx.ints_or_read(init).ok() } else { None } {
            Some(numbers) => CarriedAs::Numbers(vec![Change::Open; numbers.len()]),
            None => CarriedAs::Tensor(vec![Change::Fixed; cx.rank(init)]),
        }
    }
}

/// A carried value while the body is expanded.
pub(super) struct Entry {
    /// What it is before the first trip.
    pub(super) init: TensorId,
    /// What the body sees; `init` itself if the body passes it on.
    pub(super) current: TensorId,
    how: CarriedAs,
    /// For each dimension or integer: what it is before the first trip.
    before: Vec<Int>,
    /// What the body sees.
    seen: Vec<Int>,
}

impl Entry {
    /// A value that the body passes on.
    pub(super) fn passed(init: TensorId) -> Entry {
        Entry { init, current: init, how: CarriedAs::Tensor(vec![]), before: vec![], seen: vec![] }
    }

    /// Defines what the body sees.
    pub(super) fn new(cx: &mut Cx, init: TensorId, how: &CarriedAs, trip: Int) -> Entry {
        let (least, changes, before) = match how {
            CarriedAs::Tensor(changes) => (Some(0), changes, cx.shape(init)),
            // Read anew: what an attempt that was given up has read is forgotten.
            CarriedAs::Numbers(changes) => (None, changes, cx.ints_or_read(init).unwrap_or_default()),
        };
        let see = |(before, change): (&Int, &Change)| match change {
            Change::Fixed => *before,
            Change::By(step) => *before + *step * trip,
            Change::Open | Change::Any => Int::symbol("carried", least, None),
        };
        let seen: Vec<Int> = before.iter().zip(changes).map(see).collect();
        let current = match how {
            CarriedAs::Tensor(_) => cx.define(cx.dtype(init), seen.clone(), Def::Slot),
            CarriedAs::Numbers(_) => {
                let sizes = sizes(cx, init);
                cx.from_ints(DType::I64, &sizes, &seen)
            }
        };
        if let Some(elem) = cx.narrow.get(&init).copied() {
            cx.narrow.insert(current, elem);
        }
        Entry { init, current, how: how.clone(), before, seen }
    }

    /// The symbols of what is carried as numbers.
    pub(super) fn numbers(&self) -> Vec<VarId> {
        match &self.how {
            CarriedAs::Numbers(_) => self.seen.iter().filter_map(|i| i.as_var()).collect(),
            CarriedAs::Tensor(_) => vec![],
        }
    }

    /// Is there a tensor to carry?
    pub(super) fn is_carried_as_tensor(&self) -> bool {
        self.current != self.init && matches!(self.how, CarriedAs::Tensor(_))
    }

    /// Changes the assumption if `next` is not what was assumed; says whether it did. `is_inner` tells what may itself
    /// change from trip to trip, `numbers` are all that the loop carries.
    pub(super) fn widen(
        &self,
        cx: &mut Cx,
        next: TensorId,
        assumed: &mut CarriedAs,
        is_inner: &dyn Fn(Int) -> bool,
        numbers: &BTreeSet<VarId>,
    ) -> bool {
        if self.current == self.init {
            return false;
        }
        let (after, changes) = match &self.how {
            CarriedAs::Tensor(changes) => (cx.shape(next), changes),
            CarriedAs::Numbers(changes) => {
                let same = cx.shape(next) == cx.shape(self.init);
                match if same { cx.ints(next) } else { None } {
                    Some(after) if !after.iter().any(|i| grows_fast(*i, numbers)) => (after, changes),
                    _ => {
                        *assumed = CarriedAs::Tensor(vec![Change::Fixed; cx.rank(self.init)]);
                        return true;
                    }
                }
            }
        };
        // What is known in every attempt: sizes of inputs.
        let known = |v: &VarId| cx.program.dim_vars.contains_key(v);
        let lasts = |step: Int| !is_inner(step) && free_vars(step).iter().all(known);
        let mut different = false;
        let mut found = changes.clone();
        for ((seen, after), change) in self.seen.iter().zip(after).zip(&mut found) {
            let step = after - *seen;
            *change = match *change {
                Change::Fixed if seen.eq_proof(after) == Some(true) => continue,
                Change::By(by) if step.eq_proof(by) == Some(true) => continue,
                Change::Any => continue,
                Change::Fixed | Change::Open if lasts(step) => Change::By(step),
                // A symbol that must stay one is right already.
                Change::Open => continue,
                Change::Fixed | Change::By(_) => Change::Any,
            };
            different = true;
        }
        match assumed {
            CarriedAs::Tensor(changes) | CarriedAs::Numbers(changes) => *changes = found,
        }
        different
    }

    /// The dimensions of the tensor after the loop; those that are symbols are noted in `dims`. `next` is what the body
    /// gives back, `count` the number of trips.
    pub(super) fn shape_after(&self, cx: &Cx, next: TensorId, count: Int, dims: &mut Vec<CarriedDim>) -> Vec<Int> {
        self.after(&cx.shape(next), count, Some(0), dims)
    }

    /// The integers after the loop. Nothing for a value that the body passes on.
    pub(super) fn numbers_after(
        &self,
        cx: &mut Cx,
        next: TensorId,
        count: Int,
        dims: &mut Vec<CarriedDim>,
    ) -> Option<Vec<Int>> {
        let after = match &self.how {
            CarriedAs::Numbers(_) => cx.ints(next)?,
            CarriedAs::Tensor(_) => return None,
        };
        Some(self.after(&after, count, None, dims))
    }

    /// A tensor of the integers after the loop; without any, of what was there before.
    pub(super) fn tensor_of(&self, cx: &mut Cx, numbers: Option<Vec<Int>>) -> TensorId {
        let sizes = sizes(cx, self.init);
        numbers.map_or(self.init, |numbers| cx.from_ints(DType::I64, &sizes, &numbers))
    }

    fn after(&self, after: &[Int], count: Int, least: Option<i64>, dims: &mut Vec<CarriedDim>) -> Vec<Int> {
        let (CarriedAs::Tensor(changes) | CarriedAs::Numbers(changes)) = &self.how;
        let mut out = vec![];
        for (k, change) in changes.iter().enumerate() {
            out.push(match change {
                Change::Fixed => self.before[k],
                Change::By(step) => self.before[k] + *step * count,
                Change::Open | Change::Any => {
                    let result = Int::symbol("carried", least, None);
                    if let (Some(current), Some(result)) = (self.seen[k].as_var(), result.as_var()) {
                        dims.push(CarriedDim { current, init: self.before[k], next: after[k], result });
                    }
                    result
                }
            });
        }
        out
    }
}

/// May what a trip makes of `numbers` leave the range of integers after a few trips? The plan's numbers end the run then, as
/// sizes must; a tensor's elements wrap around.
fn grows_fast(i: Int, numbers: &BTreeSet<VarId>) -> bool {
    let mut carried = 0i64;
    for (factor, atoms) in i.terms() {
        if factor.checked_abs().is_none_or(|f| f > LARGE) {
            return true;
        }
        let own = |a: &Atom| match a {
            Atom::Var(v) => numbers.contains(v),
            _ => false,
        };
        if atoms.iter().any(own) {
            carried = carried.saturating_add(if atoms.len() > 1 { 2 } else { factor.abs() });
        }
        let within = |a: &Atom| match *a {
            Atom::Var(_) | Atom::Data(_) => false,
            Atom::Div(x, y) | Atom::Rem(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                [x, y].into_iter().any(|i| grows_fast(i, numbers))
            }
            Atom::IfLt(a, b, x, y) | Atom::IfEq(a, b, x, y) => [a, b, x, y].into_iter().any(|i| grows_fast(i, numbers)),
        };
        if atoms.iter().any(within) {
            return true;
        }
    }
    carried > 1
}

/// The dimensions of a tensor of few elements.
fn sizes(cx: &Cx, t: TensorId) -> Vec<usize> {
    cx.shape(t).iter().filter_map(|d| usize::try_from(d.as_const()?).ok()).collect()
}
