//! Recurrent weights that are bytes: in each step the hidden states of the whole batch become bytes with one scale and zero
//! point, as `DynamicQuantizeLinear` makes them, and are multiplied with the weights as integers.
//!
//! With `q` and `z` for bytes and zero point of the state, `w` and `v` for those of a column of weights (moved so that `w` is
//! signed), the sum of `(q - z) * (w - v)` is that of `q * w`, less `v` times the sum of `q`, less `z` times the sum of `w - v`.
//! The first one is taken four bytes at a time.

use super::kernels::fill;
use super::recurrent_kernel::{Block, Frame, Place};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Dot, Horizontal, Reg, Type, UnOp};
use crate::sym::Int;
use crate::te::KernelCx;

/// Which kernel inputs are what; each is `[direction, gate * hidden]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantised {
    /// Sums of the weights less their zero points, `I32`.
    pub(super) sums: usize,
    /// Zero points of the weights as signed bytes, `I32`.
    pub(super) zeros: usize,
    /// Scales of the weights.
    pub(super) scales: usize,
}

/// [`Quantised`] as buffers, and work space for the state.
pub(super) struct Bytes {
    sums: Buf,
    zeros: Buf,
    scales: Buf,
    /// Bytes of the hidden states, each batch entry padded with zeros to [`Bytes::width`].
    codes: Buf,
    /// Sum of the bytes of each batch entry.
    totals: Buf,
    width: Reg,
}

impl Bytes {
    /// Work space after that of every recurrence: types and sizes.
    pub(super) fn scratch(batch: Int, hidden: Int) -> [(DType, Int); 2] {
        [(DType::U8, batch * Bytes::width(hidden)), (DType::I32, batch)]
    }

    /// Bytes of a row, a multiple of four.
    pub(super) fn width(hidden: Int) -> Int {
        hidden.ceil_div(4) * 4
    }

    pub(super) fn of(k: &mut KernelCx<'_>, q: Quantised, hidden: Int) -> Bytes {
        let own = k.scratch.len() - 2;
        Bytes {
            sums: k.inputs[q.sums],
            zeros: k.inputs[q.zeros],
            scales: k.inputs[q.scales],
            codes: k.scratch[own],
            totals: k.scratch[own + 1],
            width: k.int(Bytes::width(hidden)),
        }
    }
}

impl Frame<'_> {
    /// Clears the padding of the bytes.
    pub(super) fn clear_codes(&self, b: &mut Builder) {
        let Some(bytes) = &self.bytes else { return };
        let n = b.mul(self.batch, bytes.width);
        let zero = b.int(Type::scalar(DType::U8), 0);
        fill(b, bytes.codes, n, zero);
    }

    /// Makes bytes of the hidden states before a step; gives their scale (`F32`) and zero point (`I32`).
    pub(super) fn quantise(&self, b: &mut Builder, p: &Place) -> Option<(Reg, Reg)> {
        let bytes = self.bytes.as_ref()?;
        let (zero, none) = (b.i64(0), b.f32(0.0));
        let (low, high) = (b.var_init(none), b.var_init(none));
        b.for_(zero, self.batch, 1, |b, entry| {
            let counts = self.counts(b, p, entry);
            b.begin_if(counts);
            let row = b.mul(entry, self.hidden);
            let row = b.add(row, p.before);
            self.blocks(b, |b, unit, lanes, _| {
                let at = b.add(row, unit);
                let h = b.load(self.state, at, 0, lanes);
                let (least, most) = (horizontal(b, Horizontal::Min, h), horizontal(b, Horizontal::Max, h));
                let before = b.get(low);
                let least = b.min(before, least);
                b.set(low, least);
                let before = b.get(high);
                let most = b.max(before, most);
                b.set(high, most);
            });
            b.end();
        });
        let (low, high) = (b.get(low), b.get(high));
        let (one, top) = (b.f32(1.0), b.f32(255.0));
        let range = b.sub(high, low);
        let flat = b.cmp(Cmp::Eq, range, none);
        let scale = b.div(range, top);
        let scale = b.select(flat, one, scale);
        let shift = b.div(low, scale);
        let shift = b.sub(none, shift);
        let shift = b.max(shift, none);
        let shift = b.min(shift, top);
        let shift = b.un(UnOp::Round, shift);
        let point = b.cast(DType::I32, shift);
        let (least, most) = (b.sub(none, shift), b.sub(top, shift));

        let nothing = b.int(Type::scalar(DType::I32), 0);
        b.for_(zero, self.batch, 1, |b, entry| {
            let total = b.var_init(nothing);
            let row = b.mul(entry, self.hidden);
            let row = b.add(row, p.before);
            let start = b.mul(entry, bytes.width);
            self.blocks(b, |b, unit, lanes, _| {
                let at = b.add(row, unit);
                let h = b.load(self.state, at, 0, lanes);
                let by = b.splat(scale, lanes);
                let q = b.div(h, by);
                let (least, most) = (b.splat(least, lanes), b.splat(most, lanes));
                let q = b.max(q, least);
                let q = b.min(q, most);
                let q = b.un(UnOp::Round, q);
                let q = b.cast(DType::I32, q);
                let point = b.splat(point, lanes);
                let q = b.add(q, point);
                let sum = horizontal(b, Horizontal::Add, q);
                let before = b.get(total);
                let sum = b.add(before, sum);
                b.set(total, sum);
                let q = b.cast(DType::U8, q);
                let at = b.add(start, unit);
                b.store(bytes.codes, at, 0, q);
            });
            let total = b.get(total);
            b.store(bytes.totals, entry, 0, total);
        });
        Some((scale, point))
    }

    /// Does the state of a batch entry count for the range of all? onnxruntime keeps the states in its output: where the whole
    /// sequence is one, those of sequences that have ended are zeros there, else they stay; but for sequences without steps.
    fn counts(&self, b: &mut Builder, p: &Place, entry: Reg) -> Reg {
        let Some(lengths) = self.lengths else { return b.bool(true) };
        let length = b.load(lengths, entry, 0, 1);
        let length = b.cast(DType::I64, length);
        if self.sequence.is_some() {
            return b.cmp(Cmp::Le, p.step, length);
        }
        let zero = b.i64(0);
        let (first, some) = (b.cmp(Cmp::Eq, p.step, zero), b.cmp(Cmp::Gt, length, zero));
        b.or(first, some)
    }

    /// For each gate: `x` plus the product of the state with the gate's weights, by integers.
    pub(super) fn sums_of_bytes(
        &self,
        b: &mut Builder,
        p: &Place,
        block: &Block,
        x: &[Reg],
        bytes: &Bytes,
        (scale, point): (Reg, Reg),
    ) -> Vec<Reg> {
        let gates = x.len() as i64;
        let lanes = block.lanes;
        let total = b.load(bytes.totals, block.entry, 0, 1);
        let (total, point) = (b.splat(total, lanes), b.splat(point, lanes));
        let mut columns = vec![];
        let mut sums = vec![];
        for gate in 0..gates {
            let column = b.i64(p.direction as i64 * gates + gate);
            let column = b.mul(self.hidden, column);
            let column = b.add(column, block.unit);
            let of_weights = b.load(bytes.sums, column, 0, lanes);
            let of_weights = b.mul(of_weights, point);
            let zero = b.load(bytes.zeros, column, 0, lanes);
            let of_state = b.mul(zero, total);
            let both = b.add(of_weights, of_state);
            let start = b.neg(both);
            sums.push(b.var_init(start));
            columns.push(column);
        }
        // A packed block holds `width * gates * lanes` weights.
        let (zero, four) = (b.i64(0), b.i64(4));
        let row = b.mul(block.entry, bytes.width);
        let lane = b.i64(block.lane);
        let first = b.sub(block.unit, lane);
        let all = b.i64(gates);
        let height = b.mul(bytes.width, all);
        let start = b.mul(first, height);
        let start = b.add(start, p.weights);
        let own = i64::from(self.lanes);
        let stride = b.i64(gates * own);
        let quarters = b.div(bytes.width, four);
        b.for_(zero, quarters, 1, |b, k| {
            let k = b.mul(k, four);
            let at = b.add(row, k);
            let state = b.words(bytes.codes, at, 0, 1);
            let state = b.splat(state, lanes);
            let at = b.mul(k, stride);
            let at = b.add(start, at);
            for (gate, sum) in (0..).zip(&sums) {
                let w = b.words(self.weights, at, 4 * (gate * own + block.lane), lanes);
                let before = b.get(*sum);
                let after = b.dot(Dot::Bytes, state, w, before);
                b.set(*sum, after);
            }
        });
        let scale = b.splat(scale, lanes);
        let mut made = vec![];
        for ((sum, column), x) in sums.into_iter().zip(columns).zip(x) {
            let sum = b.get(sum);
            let sum = b.cast(DType::F32, sum);
            let own = b.load(bytes.scales, column, 0, lanes);
            let own = b.mul(scale, own);
            let sum = b.mul(sum, own);
            made.push(b.add(sum, *x));
        }
        made
    }
}

fn horizontal(b: &mut Builder, op: Horizontal, x: Reg) -> Reg {
    if b.ty(x).lanes == 1 { x } else { b.horizontal(op, x) }
}
