//! Data that lie across the lanes: turned in registers, block by block, or element by element into work space.

use super::{Gen, Group, constant, spans};
use crate::dtype::DType;
use crate::fuse::attention::Attention;
use crate::kernel::ir::{Buf, Reg};
use crate::lower::emit::Emit;
use crate::sym::{Int, linear_in};
use crate::te::{TensorId, expr};

/// A tensor that scores are made with, a mask mostly, whose rows lie apart: `[key, query]` of the block in work space.
#[derive(Clone)]
pub(super) struct Laid {
    tensor: TensorId,
    flat: Int,
    from: Buf,
    pub(super) buf: Buf,
}

/// Largest epilogue that is written out for each row of a turned block.
const LIGHT: usize = 8;

impl Laid {
    /// Those of an attention. Each has room for `count` elements.
    pub(super) fn of(e: &mut Emit<'_>, a: &Attention, count: i64) -> Vec<Laid> {
        let loads = expr::loads(a.score);
        let mut out = vec![];
        for (t, index) in &loads {
            let &[flat] = index.as_slice() else { continue };
            let slope = |v| linear_in(flat, v).map(|(c, _)| c);
            let (Some(down), Some(along)) = (slope(a.row), slope(a.key)) else { continue };
            let apart = !matches!(down.as_const(), Some(0 | 1)) && along == Int::new(1);
            if apart && *t != a.product && loads.iter().filter(|(x, _)| x == t).count() == 1 {
                let from = e.tensor_buf(*t, crate::kernel::ir::Access::Read);
                let buf = e.scratch_buf(e.program.tensor(*t).dtype, Int::new(count));
                out.push(Laid { tensor: *t, flat, from, buf });
            }
        }
        out
    }
}

impl Gen<'_> {
    /// Lays out what belongs to a block of keys.
    pub(super) fn lay(&mut self, first: Reg, at: Reg, keys: Reg, count: i64) {
        for laid in self.laid.clone() {
            let (zero, end) = (self.e.b.i64(0), self.e.b.i64(count));
            let r = self.e.b.begin_for(zero, end, 1);
            let row = self.e.b.add(first, r);
            self.e.vars.insert(self.a.row, row);
            self.e.vars.insert(self.a.key, at);
            let base = self.e.int(laid.flat);
            self.e.vars.remove(&self.a.row);
            self.e.vars.remove(&self.a.key);
            let mut from = zero;
            for step in [8, 1] {
                let to = self.whole(from, keys, step);
                let i = self.e.b.begin_for(from, to, step);
                let (source, width) = (self.e.b.add(base, i), self.e.b.i64(count));
                let into = self.e.b.mul(i, width);
                let into = self.e.b.add(into, r);
                for u in 0..step {
                    let x = self.e.b.load(laid.from, source, u, 1);
                    self.e.b.store(laid.buf, into, u * count, x);
                }
                self.e.b.end();
                from = to;
            }
            self.e.b.end();
        }
    }

    /// Makes the elements for the key at `from` and the queries of `group` values.
    pub(super) fn bind_laid(&mut self, from: Reg, group: Group) {
        for laid in self.laid.clone() {
            let x = self.e.b.load(laid.buf, from, group.at, group.lanes);
            self.e.locals.insert(laid.tensor, x);
        }
    }

    /// No longer.
    pub(super) fn free_laid(&mut self) {
        for laid in &self.laid {
            self.e.locals.remove(&laid.tensor);
        }
    }

    /// Lays out the queries along the lanes.
    pub(super) fn turn(&mut self, first: Reg, count: i64) {
        let a = self.a;
        let (depth, l) = (constant(a.depth), i64::from(self.s.lanes));
        let next_to = linear_in(a.query.1, a.depth).is_some_and(|(c, _)| c == Int::new(1));
        let (rows, blocks) = if next_to && l > 1 { (count / l * l, depth / l * l) } else { (0, 0) };
        for at in (0..rows).step_by(l as usize) {
            let (from, to) = (self.e.b.i64(0), self.e.b.i64(blocks));
            let d = self.e.b.begin_for(from, to, l);
            self.e.vars.insert(a.depth, d);
            let mut block = vec![];
            for r in 0..l {
                let r = self.e.b.i64(at + r);
                let row = self.e.b.add(first, r);
                self.e.vars.insert(a.row, row);
                let at = self.e.int(a.query.1);
                let x = self.e.b.load(self.query, at, 0, l as u16);
                block.push(self.e.b.cast(DType::F32, x));
            }
            let width = self.e.b.i64(count);
            let into = self.e.b.mul(d, width);
            for (k, x) in self.turned_block(block).into_iter().enumerate() {
                self.e.b.store(self.turned, into, k as i64 * count + at, x);
            }
            self.e.vars.remove(&a.row);
            self.e.vars.remove(&a.depth);
            self.e.b.end();
        }
        // What is left of the features, and of the queries.
        self.turn_each(first, count, (0, rows), (blocks, depth));
        self.turn_each(first, count, (rows, count), (0, depth));
    }

    /// The same for some queries and features, one by one.
    fn turn_each(&mut self, first: Reg, count: i64, rows: (i64, i64), depth: (i64, i64)) {
        let a = self.a;
        if rows.0 == rows.1 || depth.0 == depth.1 {
            return;
        }
        let (from, to) = (self.e.b.i64(rows.0), self.e.b.i64(rows.1));
        let r = self.e.b.begin_for(from, to, 1);
        let row = self.e.b.add(first, r);
        self.e.vars.insert(a.row, row);
        for (from, to, step) in spans(depth.1 - depth.0, 8) {
            let (from, to) = (self.e.b.i64(depth.0 + from), self.e.b.i64(depth.0 + to));
            let d = self.e.b.begin_for(from, to, step);
            let width = self.e.b.i64(count);
            let into = self.e.b.mul(d, width);
            let into = self.e.b.add(into, r);
            for u in 0..step {
                let more = self.e.b.i64(u);
                let at = self.e.b.add(d, more);
                self.e.vars.insert(a.depth, at);
                let x = self.e.load_flat(self.query, a.query.1);
                let x = self.e.b.cast(DType::F32, x);
                self.e.b.store(self.turned, into, u * count, x);
            }
            self.e.b.end();
        }
        self.e.vars.remove(&a.depth);
        self.e.vars.remove(&a.row);
        self.e.b.end();
    }

    /// Element `k` of vector `i` becomes element `i` of vector `k`; there are as many vectors as lanes, a power of two.
    fn turned_block(&mut self, mut block: Vec<Reg>) -> Vec<Reg> {
        let n = block.len();
        let mut half = 1;
        while half < n {
            // Blocks of this size change places across the diagonal.
            let low: Vec<u16> = (0..n).map(|j| if j & half == 0 { j } else { n + j - half } as u16).collect();
            let high: Vec<u16> = (0..n).map(|j| if j & half == 0 { j + half } else { n + j } as u16).collect();
            for i in (0..n).filter(|i| i & half == 0) {
                let (x, y) = (block[i], block[i + half]);
                block[i] = self.e.b.shuffle(x, y, low.clone());
                block[i + half] = self.e.b.shuffle(x, y, high.clone());
            }
            half *= 2;
        }
        block
    }

    /// Stores the means of a group of queries with vectors along the features, if these lie side by side; gives the number
    /// of features that it has stored.
    pub(super) fn put_turned(&mut self, first: Reg, count: i64, group: Group, divisor: Reg) -> i64 {
        let a = self.a;
        let l = i64::from(self.s.lanes);
        let side_by_side = linear_in(a.position, a.feature).is_some_and(|(c, _)| c == Int::new(1));
        let blocks = constant(a.feature) / l * l;
        if group.lanes != self.s.lanes || l == 1 || !side_by_side || expr::nodes(a.epilogue).len() > LIGHT {
            return 0;
        }
        let (from, to, width) = (self.e.b.i64(0), self.e.b.i64(blocks), self.e.b.i64(count));
        let feature = self.e.b.begin_for(from, to, l);
        let from = self.e.b.mul(feature, width);
        let mut block = vec![];
        for k in 0..l {
            let sum = self.e.b.load(self.sums, from, k * count + group.at, group.lanes);
            block.push(self.mean(sum, divisor));
        }
        let block = self.turned_block(block);
        self.e.vars.insert(a.feature, feature);
        for (r, mean) in block.into_iter().enumerate() {
            let r = self.e.b.i64(group.at + r as i64);
            let row = self.e.b.add(first, r);
            self.e.vars.insert(a.row, row);
            self.e.lane = Some((a.feature, group.lanes));
            self.put(mean);
            self.e.lane = None;
        }
        self.e.vars.remove(&a.row);
        self.e.vars.remove(&a.feature);
        self.e.b.end();
        blocks
    }
}
