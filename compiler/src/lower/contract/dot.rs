//! Tiles of dot products: both operands are contiguous along the innermost reduced axis and neither along an axis of the
//! output (`Q` times `K` transposed), so vectors run along the terms and are summed up at the end.

use super::form::extent;
use super::operand::Stream;
use super::schedule::Group;
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
    /// Sums of the terms that fill no vector.
    narrow: Vec<Vec<Var>>,
}

/// Vectors along the terms that one pass of the loop adds.
const PASS: i64 = 2;

impl Gen<'_> {
    pub(super) fn dot_tile(&mut self, rows: Vec<Vec<(VarId, Reg)>>, n0: Reg, columns: &[Group]) {
        let target = self.target;
        let mut zeros = |lanes: u16| -> Vec<Vec<Var>> {
            let ty = Type::vector(self.elem(), lanes);
            let zero = self.e.b.float(ty, 0.0);
            rows.iter().map(|_| columns.iter().map(|_| self.e.b.var_init(zero)).collect()).collect()
        };
        let (wide, narrow) = (zeros(target.lanes), zeros(1));
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
        for (times, lanes) in [(PASS, lanes), (1, lanes), (1, 1)] {
            let step = times * lanes;
            let to = self.e.int(all.div(step) * step);
            let i = self.e.b.begin_for(from, if step == 1 { end } else { to }, step);
            self.pass_of_dots(dots, k, i, times, lanes as u16);
            self.e.b.end();
            from = to;
        }
    }

    fn pass_of_dots(&mut self, dots: &Dots<'_>, k: VarId, i: Reg, times: i64, lanes: u16) {
        let vars = if lanes > 1 { &dots.wide } else { &dots.narrow };
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
        let lanes = self.target.lanes;
        let together = self.s.n.is_some_and(|n| super::form::coef(self.form.out, n) == Some(crate::sym::Int::new(1)));
        for r in 0..dots.rows.len() {
            let mut sums = vec![];
            for g in 0..dots.columns.len() {
                let (wide, narrow) = (self.e.b.get(dots.wide[r][g]), self.e.b.get(dots.narrow[r][g]));
                let sum = self.e.b.horizontal(Horizontal::Add, wide);
                sums.push(self.e.b.add(sum, narrow));
            }
            self.at_row(&dots.rows[r]);
            let mut g = 0;
            while g < sums.len() {
                let n = if together && sums.len() - g >= lanes as usize { lanes } else { 1 };
                self.at_group(dots.n0, dots.columns[g]);
                let mut v = self.e.b.splat(sums[g], n);
                for l in 1..n {
                    v = self.e.b.insert(v, l, sums[g + l as usize]);
                }
                self.store(v, Group { at: 0, lanes: n, first: 0 });
                g += n as usize;
            }
        }
    }
}

fn direct(stream: &Stream) -> Buf {
    match stream {
        Stream::Direct(buf) => *buf,
        Stream::Packed { .. } => unreachable!("operands of dot products lie as they are"),
    }
}
