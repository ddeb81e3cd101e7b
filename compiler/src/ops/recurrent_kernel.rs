//! The kernel of recurrent operators: everything that depends on the step before.
//!
//! Loops: direction, step, block of hidden units, batch; the innermost one runs over the hidden state and multiplies one
//! state value with the weights of a block of units for all gates at once. Those weights are one contiguous stream.

use super::recurrent_activation::Activation;
use super::recurrent_bytes::{Bytes, Quantised};
use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::ir::{Buf, Cmp, Reg, Type};
use crate::sym::Int;
use crate::te::KernelCx;

/// Which recurrent cell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cell {
    /// Gates i, o, f, c.
    Lstm {
        /// The forget gate is one minus the input gate.
        input_forget: bool,
        /// Which kernel input holds the peephole weights.
        peepholes: Option<usize>,
    },
    /// Gates z, r, h.
    Gru {
        /// The reset gate is applied to the product with the state, not to the state.
        linear_before_reset: bool,
    },
    /// One gate.
    Rnn,
}

impl Cell {
    /// Number of gates.
    pub(super) fn gates(self) -> i64 {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    /// Name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Cell::Lstm { .. } => "lstm",
            Cell::Gru { .. } => "gru",
            Cell::Rnn => "rnn",
        }
    }
}

/// Which kernel inputs are what; 0 holds the projected inputs and 1 the packed recurrent weights.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Inputs {
    /// Lengths of the sequences.
    pub(super) lengths: Option<usize>,
    /// Hidden state at the start.
    pub(super) initial_h: Option<usize>,
    /// Cell state at the start.
    pub(super) initial_c: Option<usize>,
    /// Biases `[direction, 6 * hidden]` of which the last sixth is added to the product with the state.
    pub(super) late_bias: Option<usize>,
    /// What recurrent weights that are bytes need besides.
    pub(super) quantised: Option<Quantised>,
}

/// A recurrence.
#[derive(Clone, Debug)]
pub(super) struct Recurrence {
    pub(super) cell: Cell,
    /// For each direction: does it run from the end to the start?
    pub(super) reverse: Vec<bool>,
    /// For each direction.
    pub(super) activations: Vec<Vec<Activation>>,
    /// Bound of what activation functions are given.
    pub(super) clip: Option<f64>,
    /// Type computed in.
    pub(super) dtype: DType,
    pub(super) steps: Int,
    pub(super) batch: Int,
    pub(super) hidden: Int,
    /// States and sequences have the batch as their first axis.
    pub(super) batch_first: bool,
    /// Which of sequence, last hidden state and last cell state are written.
    pub(super) wants: [bool; 3],
    pub(super) inputs: Inputs,
}

impl Recurrence {
    /// Hidden units in a block: all gates' sums of a block fit into the registers of every target.
    pub(super) fn lanes(&self) -> u16 {
        let most = if self.cell.gates() == 1 { 16 } else { 8 };
        let most = if self.dtype == DType::F64 { most / 2 } else { most };
        block_lanes(self.hidden, most)
    }
}

/// Values and buffers that hold during the whole kernel.
pub(super) struct Frame<'a> {
    pub(super) spec: &'a Recurrence,
    projected: Buf,
    pub(super) weights: Buf,
    pub(super) bytes: Option<Bytes>,
    pub(super) lengths: Option<Buf>,
    late_bias: Option<Buf>,
    peepholes: Option<Buf>,
    pub(super) sequence: Option<Buf>,
    /// Hidden states, two halves that swap roles with each step.
    pub(super) state: Buf,
    /// Cell states (LSTM), update gates (GRU).
    cell: Buf,
    /// Reset hidden states (GRU).
    reset: Buf,
    pub(super) steps: Reg,
    pub(super) batch: Reg,
    pub(super) hidden: Reg,
    /// `batch * hidden`.
    cells: Reg,
    /// Elements of a row of projected inputs.
    row: Reg,
    pub(super) lanes: u16,
    directions: i64,
}

/// Where a step works: all offsets are in elements.
pub(super) struct Place {
    pub(super) direction: usize,
    /// Hidden states before the step.
    pub(super) before: Reg,
    /// Hidden states after the step.
    after: Reg,
    /// Offset of the direction's weights.
    pub(super) weights: Reg,
    /// Number of the step.
    pub(super) step: Reg,
    /// Scale and zero point of the hidden states before the step, where the weights are bytes.
    pub(super) code: Option<(Reg, Reg)>,
}

/// A block of units of one batch entry.
pub(super) struct Block {
    /// First unit.
    pub(super) unit: Reg,
    pub(super) lanes: u16,
    /// Lane of the packed block at which it starts.
    pub(super) lane: i64,
    /// Number of the batch entry.
    pub(super) entry: Reg,
}

/// Writes the kernel.
pub(super) fn generate(k: &mut KernelCx<'_>, spec: &Recurrence) {
    let gates = spec.cell.gates();
    let directions = spec.reverse.len() as i64;
    let mut outputs = k.outputs.iter().copied();
    let mut output = |wanted: bool| if wanted { outputs.next() } else { None };
    let (sequence, last_h, last_c) = (output(spec.wants[0]), output(spec.wants[1]), output(spec.wants[2]));
    let input = |at: Option<usize>| at.and_then(|at| k.inputs.get(at).copied());
    let peepholes = match spec.cell {
        Cell::Lstm { peepholes, .. } => input(peepholes),
        _ => None,
    };
    let (lengths, late_bias) = (input(spec.inputs.lengths), input(spec.inputs.late_bias));
    let (initial_h, initial_c) = (input(spec.inputs.initial_h), input(spec.inputs.initial_c));
    let frame = Frame {
        spec,
        projected: k.inputs[0],
        weights: k.inputs[1],
        bytes: spec.inputs.quantised.map(|q| Bytes::of(k, q, spec.hidden)),
        lengths,
        late_bias,
        peepholes,
        sequence,
        state: k.scratch[0],
        cell: k.scratch[1],
        reset: k.scratch[2],
        steps: k.int(spec.steps),
        batch: k.int(spec.batch),
        hidden: k.int(spec.hidden),
        cells: k.int(spec.batch * spec.hidden),
        row: k.int(spec.hidden * (gates * directions)),
        lanes: spec.lanes(),
        directions,
    };
    let lanes = Int::new(frame.lanes.into());
    let height = if frame.bytes.is_some() { Bytes::width(spec.hidden) } else { spec.hidden };
    let packed = spec.hidden.ceil_div(lanes) * height * lanes * gates;
    for d in 0..spec.reverse.len() {
        let weights = k.int(packed * d);
        let b = &mut *k.b;
        let zero = b.i64(0);
        frame.clear_codes(b);
        frame.copy_state(b, d, initial_h, None, frame.state, zero);
        if matches!(spec.cell, Cell::Lstm { .. }) {
            frame.copy_state(b, d, initial_c, None, frame.cell, zero);
        }
        b.for_(zero, frame.steps, 1, |b, step| {
            let one = b.i64(1);
            let odd = b.and(step, one);
            let before = b.mul(odd, frame.cells);
            let after = b.sub(frame.cells, before);
            let mut place = Place { direction: d, before, after, weights, step, code: None };
            place.code = frame.quantise(b, &place);
            frame.step(b, &place);
        });
        let one = b.i64(1);
        let odd = b.and(frame.steps, one);
        let at = b.mul(odd, frame.cells);
        if let Some(out) = last_h {
            frame.copy_state(b, d, Some(frame.state), Some(at), out, zero);
        }
        if let Some(out) = last_c {
            frame.copy_state(b, d, Some(frame.cell), Some(zero), out, zero);
        }
    }
}

/// Runs `body` for blocks of `0..count`: `(first, lanes, first lane within a whole block)`. A constant count is covered by
/// whole blocks and then by ever smaller ones; with any other count `lanes` must be 1.
pub(super) fn blocks(b: &mut Builder, count: Reg, lanes: u16, body: impl Fn(&mut Builder, Reg, u16, i64)) {
    let zero = b.i64(0);
    let step = i64::from(lanes);
    let Some(n) = b.const_i64(count) else {
        b.for_(zero, count, 1, |b, first| body(b, first, 1, 0));
        return;
    };
    let whole = b.i64(n / step * step);
    b.for_(zero, whole, step, |b, first| body(b, first, lanes, 0));
    let (mut at, mut lanes) = (n / step * step, lanes);
    while lanes > 1 {
        lanes /= 2;
        if n - at >= i64::from(lanes) {
            let first = b.i64(at);
            body(b, first, lanes, at % step);
            at += i64::from(lanes);
        }
    }
}

/// Lanes for blocks of `count` elements of which up to `most` fit the registers.
pub(super) fn block_lanes(count: Int, most: i64) -> u16 {
    match count.as_const() {
        Some(n) if n >= most => most as u16,
        Some(n) if n >= 1 => 1 << n.ilog2(),
        _ => 1,
    }
}

impl Frame<'_> {
    /// Copies a state of one direction: from an operand in the model's layout to work space (`from_at` is `None`), or
    /// from work space at an offset to an output in the model's layout. No source means zeros, and so does, as in onnxruntime,
    /// a sequence without steps for an output.
    fn copy_state(&self, b: &mut Builder, d: usize, from: Option<Buf>, from_at: Option<Reg>, to: Buf, to_at: Reg) {
        let zero = b.i64(0);
        let d = b.i64(d as i64);
        b.for_(zero, self.batch, 1, |b, entry| {
            let row = if self.spec.batch_first {
                let directions = b.i64(self.directions);
                let row = b.mul(entry, directions);
                b.add(row, d)
            } else {
                let row = b.mul(d, self.batch);
                b.add(row, entry)
            };
            let outer = b.mul(row, self.hidden);
            let inner = b.mul(entry, self.hidden);
            let (source, target) = match from_at {
                None => (outer, b.add(inner, to_at)),
                Some(at) => (b.add(inner, at), outer),
            };
            let empty = match (self.lengths, from_at) {
                (Some(lengths), Some(_)) => {
                    let length = b.load(lengths, entry, 0, 1);
                    let none = b.int(b.ty(length), 0);
                    Some(b.cmp(Cmp::Le, length, none))
                }
                _ => None,
            };
            self.blocks(b, |b, unit, lanes, _| {
                let nothing = b.float(Type::vector(self.spec.dtype, lanes), 0.0);
                let v = match from {
                    Some(from) => {
                        let at = b.add(source, unit);
                        let v = b.load(from, at, 0, lanes);
                        match empty {
                            Some(empty) => {
                                let empty = b.splat(empty, lanes);
                                b.select(empty, nothing, v)
                            }
                            None => v,
                        }
                    }
                    None => nothing,
                };
                let at = b.add(target, unit);
                b.store(to, at, 0, v);
            });
        });
    }

    /// See [`blocks`].
    pub(super) fn blocks(&self, b: &mut Builder, body: impl Fn(&mut Builder, Reg, u16, i64)) {
        blocks(b, self.hidden, self.lanes, body);
    }

    /// One step of one direction.
    fn step(&self, b: &mut Builder, p: &Place) {
        match self.spec.cell {
            Cell::Gru { linear_before_reset: false } => {
                self.units(b, p, false, |b, block, time| self.gru_gates(b, p, block, time));
                self.units(b, p, true, |b, block, time| self.gru_state(b, p, block, time));
            }
            Cell::Gru { linear_before_reset: true } => {
                self.units(b, p, true, |b, block, time| self.gru_linear(b, p, block, time));
            }
            Cell::Lstm { .. } => self.units(b, p, true, |b, block, time| self.lstm(b, p, block, time)),
            Cell::Rnn => self.units(b, p, true, |b, block, time| {
                let x = self.projection(b, p, block, time, 0);
                let sum = self.sums(b, p, block, &[0], &[x], self.state, p.before)[0];
                let h = self.activate(b, p, 0, sum);
                self.finish(b, p, block, time, h);
            }),
        }
    }

    /// Runs `body` for every block of units of every batch entry whose sequence has this step, with the position in the
    /// sequence; for others keeps the state and writes zeros, if this pass is the one that `writes`.
    fn units(&self, b: &mut Builder, p: &Place, writes: bool, body: impl Fn(&mut Builder, &Block, Reg)) {
        let reverse = self.spec.reverse[p.direction];
        let zero = b.i64(0);
        self.blocks(b, |b, unit, lanes, lane| {
            b.for_(zero, self.batch, 1, |b, entry| {
                let block = Block { unit, lanes, lane, entry };
                let length = match self.lengths {
                    None => self.steps,
                    Some(lengths) => {
                        let n = b.load(lengths, entry, 0, 1);
                        let n = b.cast(DType::I64, n);
                        let n = b.max(n, zero);
                        b.min(n, self.steps)
                    }
                };
                let one = b.i64(1);
                let time = if reverse {
                    let back = b.sub(length, one);
                    b.sub(back, p.step)
                } else {
                    p.step
                };
                if self.lengths.is_none() {
                    body(b, &block, time);
                    return;
                }
                let runs = b.cmp(Cmp::Lt, p.step, length);
                b.begin_if(runs);
                body(b, &block, time);
                b.begin_else();
                if writes {
                    let at = self.state_index(b, &block, p.before);
                    let h = b.load(self.state, at, 0, lanes);
                    let at = self.state_index(b, &block, p.after);
                    b.store(self.state, at, 0, h);
                    let nothing = b.float(Type::vector(self.spec.dtype, lanes), 0.0);
                    self.emit(b, p, &block, p.step, nothing);
                }
                b.end();
            });
        });
    }

    /// Index of a block in work space that starts at `base`.
    fn state_index(&self, b: &mut Builder, block: &Block, base: Reg) -> Reg {
        let row = b.mul(block.entry, self.hidden);
        let row = b.add(row, base);
        b.add(row, block.unit)
    }

    /// Writes a hidden state to the output sequence.
    fn emit(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg, h: Reg) {
        let Some(out) = self.sequence else { return };
        let d = b.i64(p.direction as i64);
        let directions = b.i64(self.directions);
        let row = if self.spec.batch_first {
            let row = b.mul(block.entry, self.steps);
            let row = b.add(row, time);
            let row = b.mul(row, directions);
            b.add(row, d)
        } else {
            let row = b.mul(time, directions);
            let row = b.add(row, d);
            let row = b.mul(row, self.batch);
            b.add(row, block.entry)
        };
        let row = b.mul(row, self.hidden);
        let at = b.add(row, block.unit);
        b.store(out, at, 0, h);
    }

    /// The new hidden state of a block.
    fn finish(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg, h: Reg) {
        let at = self.state_index(b, block, p.after);
        b.store(self.state, at, 0, h);
        self.emit(b, p, block, time, h);
    }

    /// The projected input of a gate.
    fn projection(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg, gate: i64) -> Reg {
        let row = b.mul(time, self.batch);
        let row = b.add(row, block.entry);
        let row = b.mul(row, self.row);
        let at = b.add(row, block.unit);
        let column = b.i64(p.direction as i64 * self.spec.cell.gates() + gate);
        let column = b.mul(self.hidden, column);
        let at = b.add(at, column);
        b.load(self.projected, at, 0, block.lanes)
    }

    /// For each of `gates`: its start value plus the product of its weights with the state at `base` of `state`.
    #[allow(clippy::too_many_arguments, reason = "one inner loop with all that it reads")]
    fn sums(
        &self,
        b: &mut Builder,
        p: &Place,
        block: &Block,
        gates: &[i64],
        start: &[Reg],
        state: Buf,
        base: Reg,
    ) -> Vec<Reg> {
        let all = self.spec.cell.gates();
        let sums: Vec<_> = start.iter().map(|s| b.var_init(*s)).collect();
        let zero = b.i64(0);
        let row = b.mul(block.entry, self.hidden);
        let row = b.add(row, base);
        // A packed block holds `hidden * all * lanes` weights, so unit u of lane 0 starts at u * hidden * all.
        let lane = b.i64(block.lane);
        let first = b.sub(block.unit, lane);
        let all_gates = b.i64(all);
        let width = b.mul(self.hidden, all_gates);
        let start = b.mul(first, width);
        let start = b.add(start, p.weights);
        let stride = b.i64(all * i64::from(self.lanes));
        b.for_(zero, self.hidden, 1, |b, k| {
            let at = b.add(row, k);
            let h = b.load(state, at, 0, 1);
            let h = b.splat(h, block.lanes);
            let at = b.mul(k, stride);
            let at = b.add(start, at);
            for (gate, sum) in gates.iter().zip(&sums) {
                let w = b.load(self.weights, at, gate * i64::from(self.lanes) + block.lane, block.lanes);
                let before = b.get(*sum);
                let after = b.fma(w, h, before);
                b.set(*sum, after);
            }
        });
        sums.into_iter().map(|s| b.get(s)).collect()
    }

    /// Activation function number `f` of a gate's sum.
    fn activate(&self, b: &mut Builder, p: &Place, f: usize, x: Reg) -> Reg {
        let ty = b.ty(x);
        let x = match self.spec.clip {
            Some(clip) => {
                let (low, high) = (b.float(ty, -clip), b.float(ty, clip));
                let x = b.max(x, low);
                b.min(x, high)
            }
            None => x,
        };
        self.spec.activations[p.direction][f].emit(b, x)
    }

    fn lstm(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg) {
        let Cell::Lstm { input_forget, .. } = self.spec.cell else { return };
        let x: Vec<Reg> = (0..4).map(|g| self.projection(b, p, block, time, g)).collect();
        let sums = match (&self.bytes, p.code) {
            (Some(bytes), Some(code)) => self.sums_of_bytes(b, p, block, &x, bytes, code),
            _ => self.sums(b, p, block, &[0, 1, 2, 3], &x, self.state, p.before),
        };
        let zero = b.i64(0);
        let at = self.state_index(b, block, zero);
        let old = b.load(self.cell, at, 0, block.lanes);
        let input = self.peephole(b, p, block, 0, old, sums[0]);
        let input = self.activate(b, p, 0, input);
        let forget = if input_forget {
            let one = b.float(b.ty(input), 1.0);
            b.sub(one, input)
        } else {
            let forget = self.peephole(b, p, block, 2, old, sums[2]);
            self.activate(b, p, 0, forget)
        };
        let fresh = self.activate(b, p, 1, sums[3]);
        let kept = b.mul(forget, old);
        let new = b.fma(input, fresh, kept);
        b.store(self.cell, at, 0, new);
        let output = self.peephole(b, p, block, 1, new, sums[1]);
        let output = self.activate(b, p, 0, output);
        let shown = self.spec.activations[p.direction][2].emit(b, new);
        let h = b.mul(output, shown);
        self.finish(b, p, block, time, h);
    }

    /// `sum + weight * cell`; the peephole weights are those of the gates i, o, f.
    fn peephole(&self, b: &mut Builder, p: &Place, block: &Block, gate: i64, cell: Reg, sum: Reg) -> Reg {
        let Some(weights) = self.peepholes else { return sum };
        let row = b.i64(p.direction as i64 * 3 + gate);
        let row = b.mul(self.hidden, row);
        let at = b.add(row, block.unit);
        let w = b.load(weights, at, 0, block.lanes);
        b.fma(w, cell, sum)
    }

    /// Update and reset gates; leaves the update gates and the reset states in work space.
    fn gru_gates(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg) {
        let x: Vec<Reg> = (0..2).map(|g| self.projection(b, p, block, time, g)).collect();
        let sums = self.sums(b, p, block, &[0, 1], &x, self.state, p.before);
        let update = self.activate(b, p, 0, sums[0]);
        let reset = self.activate(b, p, 0, sums[1]);
        let at = self.state_index(b, block, p.before);
        let h = b.load(self.state, at, 0, block.lanes);
        let kept = b.mul(reset, h);
        let zero = b.i64(0);
        let at = self.state_index(b, block, zero);
        b.store(self.cell, at, 0, update);
        b.store(self.reset, at, 0, kept);
    }

    /// The new state from what `gru_gates` left.
    fn gru_state(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg) {
        let x = self.projection(b, p, block, time, 2);
        let zero = b.i64(0);
        let sum = self.sums(b, p, block, &[2], &[x], self.reset, zero)[0];
        let fresh = self.activate(b, p, 1, sum);
        let at = self.state_index(b, block, zero);
        let update = b.load(self.cell, at, 0, block.lanes);
        self.mix(b, p, block, time, update, fresh);
    }

    /// The whole step where the reset gate acts on the product.
    fn gru_linear(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg) {
        let x: Vec<Reg> = (0..3).map(|g| self.projection(b, p, block, time, g)).collect();
        let late = match self.late_bias {
            Some(bias) => {
                let row = b.i64(p.direction as i64 * 6 + 5);
                let row = b.mul(self.hidden, row);
                let at = b.add(row, block.unit);
                b.load(bias, at, 0, block.lanes)
            }
            None => b.float(Type::vector(self.spec.dtype, block.lanes), 0.0),
        };
        let sums = self.sums(b, p, block, &[0, 1, 2], &[x[0], x[1], late], self.state, p.before);
        let update = self.activate(b, p, 0, sums[0]);
        let reset = self.activate(b, p, 0, sums[1]);
        let sum = b.fma(reset, sums[2], x[2]);
        let fresh = self.activate(b, p, 1, sum);
        self.mix(b, p, block, time, update, fresh);
    }

    /// `(1 - update) * fresh + update * before`.
    fn mix(&self, b: &mut Builder, p: &Place, block: &Block, time: Reg, update: Reg, fresh: Reg) {
        let at = self.state_index(b, block, p.before);
        let before = b.load(self.state, at, 0, block.lanes);
        let one = b.float(b.ty(update), 1.0);
        let rest = b.sub(one, update);
        let kept = b.mul(update, before);
        let h = b.fma(rest, fresh, kept);
        self.finish(b, p, block, time, h);
    }
}
