//! Tiles of dot products: both operands are contiguous along the innermost reduced axis and neither along an axis of the
//! output (`Q` times `K` transposed), so vectors run along the terms and are summed up at the end.

use super::form::{Form, extent};
use super::operand::Stream;
use super::schedule::Group;
use super::target::Target;
use super::tile::Gen;
use crate::kernel::ir::{Buf, Horizontal, Reg, Type, Var};
use crate::sym::VarId;

/// A tile of dot products under construction.
struct Dots<'t> {
    rows: Vec<Vec<(VarId, Reg)>>,
    n0: Reg,
    columns: &'t [Group],
    /// Vectors of partial sums, by row and column.
    wide: Vec<Vec<Var>>,
    /// Sums of the terms that fill no vector; empty if there are none.
    narrow: Vec<Vec<Var>>,
}

/// Lanes of the vectors that take what is left of the terms after whole vectors of them; nothing if none are.
pub(super) fn tail(form: &Form, target: &Target) -> Option<u16> {
    let all = form.ks.last().and_then(|k| extent(*k).as_const());
    match all.map(|n| (n % i64::from(target.lanes)) as u16) {
        Some(0) => None,
        Some(rest) if target.wide => Some(rest),
        _ => Some(1),
    }
}

/// Vectors along the terms that one pass of the loop adds.
const PASS: i64 = 2;

impl Gen<'_> {
    pub(super) fn dot_tile(&mut self, rows: Vec<Vec<(VarId, Reg)>>, n0: Reg, columns: &[Group]) {
        let target = self.target;
        let tail = tail(self.form, &target);
        let mut zeros = |lanes: u16| -> Vec<Vec<Var>> {
            let ty = Type::vector(self.elem(), lanes);
            let zero = self.e.b.float(ty, 0.0);
            rows.iter().map(|_| columns.iter().map(|_| self.e.b.var_init(zero)).collect()).collect()
        };
        let wide = zeros(target.lanes);
        let narrow = tail.map(zeros).unwrap_or_default();
        let dots = Dots { rows, n0, columns, wide, narrow };
        let Some((last, outer)) = self.form.ks.split_last() else { return };
        for k in outer {
            let (lo, hi) = (self.e.b.i64(0), self.e.int(extent(*k)));
            let i = self.e.b.begin_for(lo, hi, 1);
            self.e.vars.insert(*k, i);
        }
        self.along(&dots, *last);
        for k in outer.iter().rev() {
            self.e.vars.remove(k);
            self.e.b.end();
        }
        self.finish_dots(&dots);
    }

    fn along(&mut self, dots: &Dots<'_>, k: VarId) {
        let all = extent(k);
        let lanes = i64::from(self.target.lanes);
        let mut from = self.e.b.i64(0);
        let end = self.e.int(all);
        for (times, vars) in [(PASS, &dots.wide), (1, &dots.wide)] {
            let step = times * lanes;
            let to = self.e.int(all.div(step) * step);
            let i = self.e.b.begin_for(from, to, step);
            self.pass_of_dots(dots, k, i, times, (vars, lanes as u16));
            self.e.b.end();
            from = to;
        }
        if let Some(lanes) = tail(self.form, &self.target) {
            let i = self.e.b.begin_for(from, end, lanes.into());
            self.pass_of_dots(dots, k, i, 1, (&dots.narrow, lanes));
            self.e.b.end();
        }
    }

    /// Adds `times` vectors of so many lanes from term `i` on to the sums `vars`.
    fn pass_of_dots(&mut self, dots: &Dots<'_>, k: VarId, i: Reg, times: i64, (vars, lanes): (&[Vec<Var>], u16)) {
        let mut sums: Vec<Vec<Reg>> = vars.iter().map(|row| row.iter().map(|v| self.e.b.get(*v)).collect()).collect();
        for u in 0..times {
            let u = self.e.b.i64(u * i64::from(lanes));
            let at = self.e.b.add(i, u);
            self.e.vars.insert(k, at);
            let columns: Vec<Reg> = (0..dots.columns.len()).map(|g| self.column(dots, g, lanes)).collect();
            for (r, row) in sums.iter_mut().enumerate() {
                let b = self.row(dots, r, lanes);
                for (g, sum) in row.iter_mut().enumerate() {
                    // The factor named first may be overwritten: the row's, once it is not needed.
                    let (x, y) = if g + 1 == columns.len() && r + 1 < dots.rows.len() {
                        (b, columns[g])
                    } else {
                        (columns[g], b)
                    };
                    *sum = self.e.b.fma(x, y, *sum);
                }
            }
        }
        self.e.vars.remove(&k);
        for (vars, sums) in vars.iter().zip(&sums) {
            vars.iter().zip(sums).for_each(|(v, s)| self.e.b.set(*v, *s));
        }
    }

    fn column(&mut self, dots: &Dots<'_>, g: usize, lanes: u16) -> Reg {
        self.at_group(dots.n0, dots.columns[g]);
        let index = self.e.int(self.form.ops[self.s.vec].flat);
        let buf = direct(&self.v);
        let v = self.e.b.load(buf, index, 0, lanes);
        self.widened(v)
    }

    fn row(&mut self, dots: &Dots<'_>, r: usize, lanes: u16) -> Reg {
        self.at_row(&dots.rows[r]);
        if let Some(first) = dots.columns.first() {
            self.at_group(dots.n0, *first);
        }
        let index = self.e.int(self.form.ops[1 - self.s.vec].flat);
        let buf = direct(&self.b);
        let b = self.e.b.load(buf, index, 0, lanes);
        self.widened(b)
    }

    fn finish_dots(&mut self, dots: &Dots<'_>) {
        let lanes = usize::from(self.target.lanes);
        let together = self.s.n.is_some_and(|n| super::form::coef(self.form.out, n) == Some(crate::sym::Int::new(1)));
        for r in 0..dots.rows.len() {
            let mut sums = vec![];
            for g in 0..dots.columns.len() {
                let wide = self.e.b.get(dots.wide[r][g]);
                let mut sum = self.e.b.horizontal(Horizontal::Add, wide);
                if let Some(row) = dots.narrow.get(r) {
                    let narrow = self.e.b.get(row[g]);
                    let narrow = self.e.b.horizontal(Horizontal::Add, narrow);
                    sum = self.e.b.add(sum, narrow);
                }
                sums.push(sum);
            }
            self.at_row(&dots.rows[r]);
            let mut g = 0;
            while g < sums.len() {
                // Wide vectors may have any number of lanes; four are worth being put together.
                let n = match sums.len() - g {
                    left if together && (left >= lanes || (self.target.wide && left >= 4)) => left.min(lanes),
                    _ => 1,
                };
                self.at_group(dots.n0, dots.columns[g]);
                let mut v = self.e.b.splat(sums[g], n as u16);
                for l in 1..n {
                    v = self.e.b.insert(v, l as u16, sums[g + l]);
                }
                self.store(v, Group { at: 0, lanes: n as u16, first: 0 });
                g += n;
            }
        }
    }
}

fn direct(stream: &Stream) -> Buf {
    match stream {
        Stream::Direct(buf) => *buf,
        Stream::Packed { .. } | Stream::Coded(..) => unreachable!("operands of dot products lie as they are"),
    }
}
