//! What follows the sums as a pass of its own over the elements of a work unit, where it takes many instructions (SiLU, GELU).
//!
//! Written out for each sum of a tile it would be longer than the tile, and each vector of it waits for itself. So the sums are
//! stored where the results will be, and while they are in the cache all rows of the unit are gone through once more, several
//! vectors at a time.

use super::form::{Form, coef, extent};
use super::schedule::Group;
use super::tile::Gen;
use crate::kernel::ir::Reg;
use crate::sym::Int;
use crate::te::{Program, TensorId};

/// What tiles do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// All of it.
    Whole,
    /// They store their sums.
    Sums,
    /// They compute what follows from stored sums.
    After,
}

/// The passes over a work unit.
pub(super) fn passes(program: &Program, form: &Form, sum: TensorId, out: TensorId) -> &'static [Pass] {
    let [from, to] = [sum, out].map(|t| program.tensor(t).dtype);
    // Sums stay what they are in memory.
    let kept = from == to && from == from.compute();
    if kept && crate::lower::is_heavy(form.epilogue) { &[Pass::Sums, Pass::After] } else { &[Pass::Whole] }
}

impl Gen<'_> {
    /// What follows the stored sums of `rows` rows from `m0` on.
    pub(super) fn after(&mut self, m0: Reg, rows: usize, n0: Reg, groups: &[Group]) {
        let (zero, end) = (self.e.b.i64(0), self.e.b.i64(rows as i64));
        let r = self.e.b.begin_for(zero, end, 1);
        let row = self.e.b.add(m0, r);
        let m = self.s.m.clone();
        let mut left = row;
        for (k, v) in m.iter().enumerate().rev() {
            let n = self.e.int(extent(*v));
            let at = if k == 0 { left } else { self.e.b.rem(left, n) };
            left = if k == 0 { left } else { self.e.b.div(left, n) };
            self.e.vars.insert(*v, at);
        }
        for group in self.merged(groups) {
            self.at_group(n0, group);
            self.e.lane = self.s.n.filter(|_| group.lanes > 1).map(|n| (n, group.lanes));
            let sum = self.e.load_flat(self.out, self.form.out);
            self.store(sum, group);
        }
        self.e.b.end();
        m.iter().for_each(|v| {
            self.e.vars.remove(v);
        });
    }

    /// Groups that lie together as one.
    fn merged(&self, groups: &[Group]) -> Vec<Group> {
        let contiguous = self.s.n.is_some_and(|n| coef(self.form.out, n) == Some(Int::new(1)));
        let mut out: Vec<Group> = vec![];
        for group in groups {
            match out.last_mut() {
                Some(last)
                    if contiguous
                        && last.first == 0
                        && group.first == 0
                        && last.at + i64::from(last.lanes) == group.at =>
                {
                    last.lanes += group.lanes;
                }
                _ => out.push(*group),
            }
        }
        out
    }
}
