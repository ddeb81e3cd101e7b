//! From when to when each buffer is needed.

use super::{base, bytes};
use crate::dtype::DType;
use crate::fuse::Step;
use crate::kernel::ir::Access;
use crate::lower::{Binding, LoweredKernel};
use crate::sym::Int;
use crate::te::{Def, Program, TensorId};
use std::collections::BTreeMap;

/// What a buffer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A tensor.
    Tensor(TensorId),
    /// Work space: number of the run and of its parameter; `usize::MAX` and a tensor's number for an output's copy.
    Scratch(usize, usize),
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
    /// Results of branches: the tensors that a slot may hold.
    held: BTreeMap<TensorId, Vec<TensorId>>,
    step: usize,
    run: usize,
}

/// Ranges of all arena buffers, tensors by number, then work space.
pub(super) fn find(p: &Program, steps: &[Step], lowered: &[LoweredKernel]) -> Vec<Range> {
    let mut w = Walk { p, ranges: BTreeMap::new(), scratch: vec![], held: BTreeMap::new(), step: 0, run: 0 };
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
    let tensors = w.ranges.iter().map(|(t, (first, last))| Range {
        owner: Owner::Tensor(*t),
        dtype: p.tensor(*t).dtype,
        bytes: bytes(p, *t),
        first: *first,
        last: *last,
    });
    tensors.chain(w.scratch).collect()
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
            }
        }
    }
}
