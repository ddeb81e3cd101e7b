//! Sums of products for a tile: elements of one operand for all lanes, vectors of the other from work space.

use super::{Gen, Group};
use crate::dtype::DType;
use crate::kernel::ir::{Buf, Reg, Type, Var};
use crate::sym::{Int, VarId, linear_in};

/// A number of terms.
#[derive(Clone, Copy)]
pub(super) enum Many {
    /// Constant.
    Known(i64),
    /// Known when the kernel runs.
    Open(Reg),
}

/// How far elements lie apart.
#[derive(Clone, Copy)]
enum Step {
    Known(i64),
    Open(Reg),
}

/// The operand whose elements are for all lanes.
pub(super) struct Side {
    buf: Buf,
    /// Position of the first element of each row, and a constant to be added.
    rows: Vec<(Reg, i64)>,
    /// From one row to the next, if that is known.
    row: Option<i64>,
    /// From one term to the next.
    term: Step,
}

/// Terms of one pass of the loop.
const PASS: i64 = 4;

impl Side {
    /// The operand at `flat`, which lies linear in both: so many rows along an index from where it is set, and terms along
    /// another one.
    pub(super) fn of(g: &mut Gen<'_>, buf: Buf, flat: Int, (row, count): (VarId, i64), term: VarId) -> Side {
        let slope = |v: VarId| linear_in(flat, v).map_or(Int::new(0), |(c, _)| c);
        let base = g.e.int(flat);
        let (along, term) = (slope(row), slope(term));
        let rows = match along.as_const() {
            Some(n) => (0..count).map(|k| (base, n * k)).collect(),
            None => {
                let step = g.e.int(along);
                let at = |k: i64| {
                    let k = g.e.b.i64(k);
                    let down = g.e.b.mul(step, k);
                    (g.e.b.add(base, down), 0)
                };
                (0..count).map(at).collect()
            }
        };
        let term = match term.as_const() {
            Some(n) => Step::Known(n),
            None => Step::Open(g.e.int(term)),
        };
        Side { buf, rows, row: along.as_const(), term }
    }

    /// Position of the first row's element at a term.
    pub(super) fn start(&self, g: &mut Gen<'_>, term: Reg) -> Reg {
        let step = match self.term {
            Step::Known(n) => g.e.b.i64(n),
            Step::Open(r) => r,
        };
        let along = g.e.b.mul(term, step);
        g.e.b.add(self.rows[0].0, along)
    }
}

impl Gen<'_> {
    /// Sums for a tile, all 0.
    pub(super) fn zeros(&mut self, rows: i64, groups: &[Group]) -> Vec<Vec<Var>> {
        let mut row = || {
            let vars = groups.iter().map(|g| {
                let zero = self.e.b.float(Type::vector(DType::F32, g.lanes), 0.0);
                self.e.b.var_init(zero)
            });
            vars.collect()
        };
        (0..rows).map(|_| row()).collect()
    }

    /// Adds to the sums, by row and group, the products of the rows of `side` with vectors of `by`, which holds `width`
    /// elements for each term.
    pub(super) fn add_up(&mut self, side: &Side, by: Buf, width: i64, groups: &[Group], n: Many, accs: &[Vec<Var>]) {
        let zero = self.e.b.i64(0);
        match n {
            Many::Known(n) => {
                for (from, to, step) in super::spans(n, PASS) {
                    let (from, to) = (self.e.b.i64(from), self.e.b.i64(to));
                    let t = self.e.b.begin_for(from, to, step);
                    self.pass(side, by, width, groups, (t, step), accs);
                    self.e.b.end();
                }
            }
            Many::Open(n) => {
                let whole = self.whole(zero, n, PASS);
                let t = self.e.b.begin_for(zero, whole, PASS);
                self.pass(side, by, width, groups, (t, PASS), accs);
                self.e.b.end();
                let t = self.e.b.begin_for(whole, n, 1);
                self.pass(side, by, width, groups, (t, 1), accs);
                self.e.b.end();
            }
        }
    }

    /// So many terms from the one on at which the loop is.
    fn pass(
        &mut self,
        side: &Side,
        by: Buf,
        width: i64,
        groups: &[Group],
        (first, count): (Reg, i64),
        accs: &[Vec<Var>],
    ) {
        let mut sums: Vec<Vec<Reg>> = accs.iter().map(|row| row.iter().map(|v| self.e.b.get(*v)).collect()).collect();
        let width_reg = self.e.b.i64(width);
        let from = self.e.b.mul(first, width_reg);
        // The first term of the pass in each row.
        let mut starts: Vec<(Reg, i64)> = vec![];
        for (base, disp) in &side.rows {
            let step = match side.term {
                Step::Known(n) => self.e.b.i64(n),
                Step::Open(r) => r,
            };
            let along = self.e.b.mul(first, step);
            starts.push((self.e.b.add(*base, along), *disp));
        }
        for u in 0..count {
            let vectors: Vec<Reg> = groups.iter().map(|g| self.e.b.load(by, from, u * width + g.at, g.lanes)).collect();
            for r in 0..sums.len() {
                let mut known: Vec<(u16, Reg)> = vec![];
                for (g, group) in groups.iter().enumerate() {
                    let x = match known.iter().find(|(lanes, _)| *lanes == group.lanes) {
                        Some((_, x)) => *x,
                        None => self.element(side, &starts, (r, sums.len()), (u, count), group.lanes),
                    };
                    known.push((group.lanes, x));
                    // The factor named first may be overwritten: one that is not used again.
                    let (x, y) = if r + 1 < sums.len() { (x, vectors[g]) } else { (vectors[g], x) };
                    sums[r][g] = self.e.b.fma(x, y, sums[r][g]);
                }
            }
        }
        for (vars, regs) in accs.iter().zip(&sums) {
            vars.iter().zip(regs).for_each(|(v, r)| self.e.b.set(*v, *r));
        }
    }

    /// The element of row `r` of so many, at term `u` of so many, for `lanes` lanes.
    fn element(
        &mut self,
        side: &Side,
        starts: &[(Reg, i64)],
        (r, rows): (usize, usize),
        (u, terms): (i64, i64),
        lanes: u16,
    ) -> Reg {
        let full = i64::from(self.s.lanes);
        let along = |g: &mut Self, (index, disp): (Reg, i64), u: i64| match side.term {
            Step::Known(n) => (index, disp + u * n),
            Step::Open(step) => {
                let u = g.e.b.i64(u);
                let more = g.e.b.mul(step, u);
                (g.e.b.add(index, more), disp)
            }
        };
        if self.s.by_element && i64::from(lanes) == full {
            // One load fetches several elements, of consecutive terms or rows.
            let (down, k) = ((r as i64) / full * full, (r as i64) % full);
            if side.row == Some(1) && down + full <= rows as i64 {
                let (index, disp) = along(self, starts[down as usize], u);
                return self.pick(side.buf, index, disp, k as u16);
            }
            let (first, k) = (u / full * full, u % full);
            if matches!(side.term, Step::Known(1)) && first + full <= terms {
                let (index, disp) = along(self, starts[r], first);
                return self.pick(side.buf, index, disp, k as u16);
            }
        }
        let (index, disp) = along(self, starts[r], u);
        let x = self.e.b.load(side.buf, index, disp, 1);
        let x = self.e.b.cast(DType::F32, x);
        self.e.b.splat(x, lanes)
    }

    /// Element `k` of a vector in memory, in all lanes.
    fn pick(&mut self, buf: Buf, index: Reg, disp: i64, k: u16) -> Reg {
        let all = self.e.b.load(buf, index, disp, self.s.lanes);
        let all = self.e.b.cast(DType::F32, all);
        self.e.b.shuffle(all, all, vec![k; self.s.lanes as usize])
    }
}
