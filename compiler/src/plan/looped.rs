//! Loops of the plan: jumps, registers and slots for what is carried, and the memory of a trip.
//!
//! A carried tensor of a size that is known before the loop has two buffers: a trip reads the one and writes the other,
//! then they change places. One whose size changes from trip to trip is moved, after each trip, to where the memory of
//! that trip began; whatever else the trip placed there is gone. Parts of scan outputs are written where they stay.

use super::{ALIGN, Planner, base, bytes};
use crate::fuse::{Stage, Step, Unit};
use crate::lower::LoweredKernel;
use crate::sym::{Int, VarId, free_vars};
use crate::te::{Carried, Loop, Program, TensorId};
use graphmend_cache_format::BinOp;
use graphmend_cache_format::spec::{Instr, Space, Val};
use std::collections::BTreeSet;

/// What is different in each trip of a loop.
#[derive(Default)]
pub(super) struct InnerVars {
    /// Symbols.
    vars: BTreeSet<VarId>,
    /// Tensors that have memory.
    pub(super) tensors: BTreeSet<TensorId>,
    /// Those of them that a kernel of the body itself writes, in every trip.
    written: BTreeSet<TensorId>,
}

/// How a carried tensor comes from one trip to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carries {
    /// Two buffers change places.
    Swapped,
    /// Its bytes are moved.
    Moved,
    /// It is a tensor from outside of the loop.
    Outside,
}

impl InnerVars {
    pub(super) fn of(p: &Program, l: &Loop, body: &[Step]) -> InnerVars {
        let mut inner = InnerVars::default();
        inner.note_loop(l);
        inner.note(p, body, true);
        for (v, (t, _)) in &p.data_vars {
            if inner.tensors.contains(&base(p, *t)) {
                inner.vars.insert(*v);
            }
        }
        inner
    }

    fn note_loop(&mut self, l: &Loop) {
        self.vars.insert(l.trip);
        self.vars.extend(l.dims.iter().map(|d| d.current));
        self.tensors.extend(l.carried.iter().map(|c| c.current));
    }

    fn note(&mut self, p: &Program, steps: &[Step], top: bool) {
        for s in steps {
            match s {
                Step::Run(u) => {
                    let written = written_by(p, u);
                    self.tensors.extend(&written);
                    if top {
                        self.written.extend(&written);
                    }
                }
                Step::Check(_) => {}
                Step::If { then, other, results, dims, .. } => {
                    self.note(p, then, false);
                    self.note(p, other, false);
                    self.tensors.extend(results);
                    self.vars.extend(dims.iter().map(|d| d.0));
                }
                Step::Loop(l, body) => {
                    self.note_loop(l);
                    self.note(p, body, false);
                    self.vars.extend(l.dims.iter().map(|d| d.result).chain(l.count));
                    self.tensors.extend(l.carried.iter().map(|c| c.result).chain(l.scans.iter().map(|s| s.result)));
                }
            }
        }
    }

    /// Is it the same in all trips?
    pub(super) fn is_fixed(&self, i: Int) -> bool {
        free_vars(i).is_disjoint(&self.vars)
    }

    pub(super) fn carries(&self, p: &Program, c: &Carried) -> Carries {
        let next = base(p, c.next);
        if !self.tensors.contains(&next) {
            Carries::Outside
        } else if self.written.contains(&next) && self.is_fixed(bytes(p, next)) {
            Carries::Swapped
        } else {
            Carries::Moved
        }
    }
}

/// The tensors whose memory a unit writes.
pub(super) fn written_by(p: &Program, u: &Unit) -> Vec<TensorId> {
    match u {
        Unit::Nest(n) => n.stages.iter().filter_map(Stage::stored).map(|t| p.memory(t)).collect(),
        Unit::Contract(c) => vec![p.memory(c.out)],
        Unit::Chain(c) => vec![p.memory(c.second.out)],
        Unit::Attention(a) => vec![p.memory(a.out)],
        Unit::Pieces(t, _) => vec![p.memory(*t)],
        Unit::Custom(_, outs) => outs.clone(),
    }
}

/// A slot, and the buffer that is what it holds.
struct Slot {
    slot: u32,
    buf: u32,
}

/// Slots of a carried tensor that has two buffers.
struct Pair {
    /// The one that a trip writes.
    written: Slot,
    /// The one that the next trip writes.
    resting: Slot,
}

impl Planner<'_> {
    fn slot(&mut self, of: TensorId) -> Slot {
        let slot = self.plan.slots;
        self.plan.slots += 1;
        let dtype = self.p.tensor(of).dtype;
        Slot { slot, buf: self.add_buffer(Space::Slot(slot), dtype, Val::Imm(0), None) }
    }

    fn set(&mut self, dst: u32, value: Val) {
        self.plan.instrs.push(Instr::Set { dst, value });
    }

    fn set_slot(&mut self, slot: u32, buf: u32) {
        self.plan.instrs.push(Instr::SetSlot { slot, buf });
    }

    /// Emits a loop.
    pub(super) fn looped(&mut self, l: &Loop, body: &[Step], next: &mut std::slice::Iter<'_, LoweredKernel>) {
        let inner = InnerVars::of(self.p, l, body);
        let ways: Vec<Carries> = l.carried.iter().map(|c| inner.carries(self.p, c)).collect();

        // What each trip changes: registers for numbers, slots for tensors.
        let trip = self.ints.fresh(&mut self.plan);
        self.set(trip, Val::Imm(0));
        let mut dims = vec![];
        for d in &l.dims {
            let init = self.val(d.init);
            let reg = self.ints.fresh(&mut self.plan);
            self.set(reg, init);
            dims.push(reg);
        }
        let go = self.ints.fresh(&mut self.plan);
        let start = l.start.map_or(Val::Imm(1), |s| self.val(s));
        self.set(go, start);
        let most = l.most.map(|m| self.val(m));
        let mut current = vec![];
        let mut pairs = vec![];
        for (c, way) in l.carried.iter().zip(&ways) {
            let slot = self.slot(c.current);
            let init = self.tensor(c.init);
            self.set_slot(slot.slot, init);
            pairs.push((*way == Carries::Swapped).then(|| self.pair(base(self.p, c.next))));
            current.push(slot);
        }
        let parts: Vec<Option<u32>> = l.scans.iter().map(|s| self.part(l, &inner, s.element, s.result)).collect();
        let mark = self.late_top.map(|top| {
            let mark = self.ints.fresh(&mut self.plan);
            self.set(mark, Val::Reg(top));
            mark
        });

        // Numbers that are computed within the loop are not there after it.
        let outside = self.ints.clone();
        self.ints.bind(l.trip, Val::Reg(trip));
        for (d, reg) in l.dims.iter().zip(&dims) {
            self.ints.bind(d.current, Val::Reg(*reg));
        }
        let head = self.plan.instrs.len() as u32;
        let mut exits = vec![];
        if l.start.is_some() || l.go_on.is_some() {
            exits.push((self.hole(), Val::Reg(go)));
        }
        if let Some(most) = most {
            let more = self.ints.fresh(&mut self.plan);
            self.plan.instrs.push(Instr::Bin { op: BinOp::Lt, dst: more, a: Val::Reg(trip), b: most });
            exits.push((self.hole(), Val::Reg(more)));
        }
        for (c, slot) in l.carried.iter().zip(&current) {
            self.buffers.insert(c.current, slot.buf);
            self.read_symbols(c.current);
        }
        for (s, part) in l.scans.iter().zip(&parts) {
            if let Some(offset) = part {
                let start = self.scan_start(s.result);
                let size = self.val(bytes(self.p, s.element));
                let skipped = self.bin(BinOp::Mul, Val::Reg(trip), size);
                self.plan.instrs.push(Instr::Bin { op: BinOp::Add, dst: *offset, a: start, b: skipped });
            }
        }
        self.steps(body, next);
        if let Some(g) = l.go_on {
            let value = self.val(g);
            self.set(go, value);
        } else if l.start.is_some() {
            self.set(go, Val::Imm(1));
        }

        // The end of a trip.
        for (s, part) in l.scans.iter().zip(&parts) {
            if part.is_none() {
                self.store_part(trip, s.element, s.result);
            }
        }
        let nexts: Vec<Val> = l.dims.iter().map(|d| self.val(d.next)).collect();
        let moved: Vec<usize> = (0..ways.len()).filter(|k| ways[*k] == Carries::Moved).collect();
        self.move_down(l, &moved, mark, &current);
        // All at once: one may be another's old value.
        let mut copies = vec![];
        for value in nexts {
            let copy = self.ints.fresh(&mut self.plan);
            self.set(copy, value);
            copies.push(copy);
        }
        for (reg, copy) in dims.iter().zip(copies) {
            self.set(*reg, Val::Reg(copy));
        }
        for ((c, slot), pair) in l.carried.iter().zip(&current).zip(&pairs) {
            match pair {
                Some(pair) => self.swap(slot, pair),
                None if !inner.tensors.contains(&base(self.p, c.next)) => {
                    let buf = self.tensor(c.next);
                    self.set_slot(slot.slot, buf);
                }
                None => {}
            }
        }
        self.plan.instrs.push(Instr::Bin { op: BinOp::Add, dst: trip, a: Val::Reg(trip), b: Val::Imm(1) });
        self.plan.instrs.push(Instr::Jump { target: head });
        let target = self.plan.instrs.len() as u32;
        for (at, cond) in exits {
            self.plan.instrs[at] = Instr::JumpIfZero { cond, target };
        }

        let used = self.ints.next();
        self.ints = outside;
        self.ints.skip_to(used);
        for (d, reg) in l.dims.iter().zip(dims) {
            self.ints.bind(d.result, Val::Reg(reg));
        }
        if let Some(count) = l.count {
            self.ints.bind(count, Val::Reg(trip));
        }
        for (c, slot) in l.carried.iter().zip(current) {
            self.buffers.insert(c.result, slot.buf);
            self.read_symbols(c.result);
        }
        for s in &l.scans {
            self.read_symbols(s.result);
        }
    }

    fn bin(&mut self, op: BinOp, a: Val, b: Val) -> Val {
        let dst = self.ints.fresh(&mut self.plan);
        self.plan.instrs.push(Instr::Bin { op, dst, a, b });
        Val::Reg(dst)
    }

    /// Two buffers for `next`, which is written to whichever of them the slot names.
    fn pair(&mut self, next: TensorId) -> Pair {
        let first = self.tensor(next);
        let dtype = self.p.tensor(next).dtype;
        let second = match self.twins.get(&next) {
            Some(buf) => *buf,
            None => self.place_late(dtype, bytes(self.p, next)),
        };
        let (written, resting) = (self.slot(next), self.slot(next));
        self.set_slot(written.slot, first);
        self.set_slot(resting.slot, second);
        self.buffers.insert(next, written.buf);
        Pair { written, resting }
    }

    /// What was written is carried; the other buffer is written next.
    fn swap(&mut self, current: &Slot, pair: &Pair) {
        self.set_slot(current.slot, pair.written.buf);
        self.set_slot(pair.written.slot, pair.resting.buf);
        self.set_slot(pair.resting.slot, current.buf);
    }

    /// Lets the element of a scan output be written in its place: gives the register of its offset in the arena. Nothing
    /// if the element is no tensor of its own, or also something else.
    fn part(&mut self, l: &Loop, inner: &InnerVars, element: TensorId, result: TensorId) -> Option<u32> {
        self.tensor(result);
        let memory = base(self.p, element);
        let alone = l.carried.iter().all(|c| base(self.p, c.next) != memory)
            && l.scans.iter().filter(|s| base(self.p, s.element) == memory).count() == 1;
        if !alone || !inner.written.contains(&memory) || !inner.is_fixed(bytes(self.p, memory)) {
            return None;
        }
        let offset = self.ints.fresh(&mut self.plan);
        let size = self.val(bytes(self.p, memory));
        let buf = self.add_buffer(Space::Arena, self.p.tensor(element).dtype, Val::Reg(offset), Some(size));
        self.buffers.insert(memory, buf);
        Some(offset)
    }

    /// Where a scan output begins in the arena.
    fn scan_start(&mut self, result: TensorId) -> Val {
        let buf = self.tensor(result);
        self.plan.buffers[buf as usize].offset
    }

    /// Copies an element of a scan output into its place.
    fn store_part(&mut self, trip: u32, element: TensorId, result: TensorId) {
        let (dst, src) = (self.tensor(result), self.tensor(element));
        let size = self.val(bytes(self.p, element));
        let dst_offset = self.bin(BinOp::Mul, Val::Reg(trip), size);
        self.plan.instrs.push(Instr::Copy { dst, dst_offset, src, src_offset: Val::Imm(0), bytes: Some(size) });
    }

    /// Moves carried tensors of changing size to the start of the trip's memory, and gives up the rest of it.
    fn move_down(&mut self, l: &Loop, moved: &[usize], mark: Option<u32>, current: &[Slot]) {
        let (Some(mark), Some(top)) = (mark, self.late_top) else {
            debug_assert!(moved.is_empty(), "what changes its size is placed late");
            return;
        };
        // First to the end, so that no move meets what is still to be moved.
        let mut copied = vec![];
        for k in moved {
            let t = l.carried[*k].next;
            let (dtype, size) = (self.p.tensor(t).dtype, bytes(self.p, t));
            let src = self.tensor(t);
            let dst = self.place_late(dtype, size);
            let n = self.val(size);
            let zero = Val::Imm(0);
            self.plan.instrs.push(Instr::Copy { dst, dst_offset: zero, src, src_offset: zero, bytes: Some(n) });
            copied.push((*k, dtype, size, dst, n));
        }
        self.set(top, Val::Reg(mark));
        for (k, dtype, size, src, n) in copied {
            let offset = self.ints.fresh(&mut self.plan);
            self.set(offset, Val::Reg(top));
            let dst = self.add_buffer(Space::Arena, dtype, Val::Reg(offset), Some(n));
            let zero = Val::Imm(0);
            self.plan.instrs.push(Instr::Copy { dst, dst_offset: zero, src, src_offset: zero, bytes: Some(n) });
            self.set_slot(current[k].slot, dst);
            let rounded = self.val((size + (ALIGN as i64 - 1)).div(ALIGN as i64) * ALIGN as i64);
            self.plan.instrs.push(Instr::Bin { op: BinOp::Add, dst: top, a: Val::Reg(top), b: rounded });
        }
    }
}
