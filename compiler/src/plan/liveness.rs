//! From when to when each buffer is needed.

use super::looped::{Carries, InnerVars};
use super::{base, bytes};
use crate::dtype::DType;
use crate::fuse::Step;
use crate::kernel::ir::Access;
use crate::lower::{Binding, LoweredKernel};
use crate::sym::Int;
use crate::te::{Def, Loop, Program, TensorId};
use std::collections::{BTreeMap, BTreeSet};

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A tensor.
    Tensor(TensorId),
    /// Work space: number of the run and of its parameter; `usize::MAX` and a tensor's number for an output's copy.
    Scratch(usize, usize),
    /// The other buffer of a tensor that a loop carries and its body makes anew.
    Twin(TensorId),
}

/// A buffer of the arena.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) owner: Owner,
    pub(super) dtype: DType,
    pub(super) bytes: Int,
    /// First and last step that need it, in order of the plan (`usize::MAX`: after the run).
    pub(super) first: usize,
    pub(super) last: usize,
}

struct Walk<'a> {
    p: &'a Program,
    ranges: BTreeMap<TensorId, (usize, usize)>,
    scratch: Vec<Range>,
    /// Results of branches and what loops carry: the tensors that a slot may hold.
    held: BTreeMap<TensorId, Vec<TensorId>>,
    /// Tensors with a second buffer.
    twins: Vec<TensorId>,
    /// Tensors touched within each of the loops that are open.
    touched: Vec<BTreeSet<TensorId>>,
    step: usize,
    run: usize,
}

/// Ranges of all arena buffers, tensors by number, then work space.
pub(super) fn find(p: &Program, steps: &[Step], lowered: &[LoweredKernel]) -> Vec<Range> {
    let mut w = Walk {
        p,
        ranges: BTreeMap::new(),
        scratch: vec![],
        held: BTreeMap::new(),
        twins: vec![],
        touched: vec![],
        step: 0,
        run: 0,
    };
    w.steps(steps, lowered);
    for t in &p.outputs {
        let b = base(p, *t);
        if matches!(p.tensor(b).def, Def::Input(_) | Def::Slot) {
            let owner = Owner::Scratch(usize::MAX, b.0 as usize);
            let dtype = p.tensor(b).dtype;
            if !w.scratch.iter().any(|r| r.owner == owner) {
                w.scratch.push(Range { owner, dtype, bytes: bytes(p, b), first: w.step, last: usize::MAX });
            }
        }
        w.touch(*t, w.step);
        w.touch(*t, usize::MAX);
    }
    let range = |owner: Owner, t: TensorId| {
        let (first, last) = w.ranges[&t];
        Range { owner, dtype: p.tensor(t).dtype, bytes: bytes(p, t), first, last }
    };
    let tensors = w.ranges.keys().map(|t| range(Owner::Tensor(*t), *t));
    let twins = w.twins.iter().map(|t| range(Owner::Twin(*t), *t));
    tensors.chain(twins).chain(w.scratch.iter().cloned()).collect()
}

impl Walk<'_> {
    /// `t` is needed at `step`: its memory, or all memory that its slot may name.
    fn touch(&mut self, t: TensorId, step: usize) {
        let t = base(self.p, t);
        match self.p.tensor(t).def {
            Def::Input(_) | Def::Const(_) => {}
            Def::Slot => {
                for h in self.held.get(&t).cloned().unwrap_or_default() {
                    self.touch(h, step);
                }
            }
            _ => {
                self.touched.iter_mut().for_each(|set| {
                    set.insert(t);
                });
                let r = self.ranges.entry(t).or_insert((step, step));
                r.0 = r.0.min(step);
                r.1 = r.1.max(step);
            }
        }
    }

    fn steps(&mut self, steps: &[Step], lowered: &[LoweredKernel]) {
        for s in steps {
            self.step += 1;
            match s {
                Step::Run(_) => {
                    let k = &lowered[self.run];
                    for (n, b) in k.bindings.iter().enumerate() {
                        match b {
                            Binding::Tensor(t) => self.touch(*t, self.step),
                            Binding::Packed(..) => {}
                            Binding::Scratch(dtype, count) => {
                                debug_assert_eq!(k.kernel.bufs[n].access, Access::Write, "work space is written");
                                self.scratch.push(Range {
                                    owner: Owner::Scratch(self.run, n),
                                    dtype: *dtype,
                                    bytes: *count * dtype.size(),
                                    first: self.step,
                                    last: self.step,
                                });
                            }
                        }
                    }
                    self.run += 1;
                }
                Step::Check(_) => {}
                Step::If { then, then_results, other, other_results, results, .. } => {
                    self.steps(then, lowered);
                    self.step += 1;
                    then_results.iter().for_each(|t| self.touch(*t, self.step));
                    self.steps(other, lowered);
                    self.step += 1;
                    other_results.iter().for_each(|t| self.touch(*t, self.step));
                    for (k, t) in results.iter().enumerate() {
                        self.held.insert(*t, vec![then_results[k], other_results[k]]);
                    }
                }
                Step::Loop(l, body) => self.looped(l, body, lowered),
            }
        }
    }

    /// What a loop needs from before it is needed until its end; what it carries keeps its memory from trip to trip.
    fn looped(&mut self, l: &Loop, body: &[Step], lowered: &[LoweredKernel]) {
        let start = self.step;
        let inner = InnerVars::of(self.p, l, body);
        for c in &l.carried {
            self.touch(c.init, start);
            let mut held = vec![c.init];
            if inner.carries(self.p, c) == Carries::Swapped {
                let next = base(self.p, c.next);
                self.touch(next, start);
                self.twins.push(next);
                held.push(next);
            } else if !inner.tensors.contains(&base(self.p, c.next)) {
                held.push(c.next);
            }
            self.held.insert(c.current, held.clone());
            self.held.insert(c.result, held);
        }
        l.scans.iter().for_each(|s| self.touch(s.result, start));
        self.touched.push(BTreeSet::new());
        self.steps(body, lowered);
        self.step += 1;
        let end = self.step;
        for t in l.carried.iter().map(|c| c.next).chain(l.scans.iter().flat_map(|s| [s.element, s.result])) {
            self.touch(t, end);
        }
        for t in self.touched.pop().unwrap_or_default() {
            if let Some(r) = self.ranges.get_mut(&t)
                && r.0 <= start
            {
                r.1 = r.1.max(end);
            }
        }
    }
}
