//! Fused steps to a plan: registers for sizes, buffers in the arena, instructions.

mod arena;
mod ints;
mod liveness;
mod looped;
mod work;

use crate::dtype::DType;
use crate::fuse::{Fused, Step, Unit};
use crate::kernel::ir::{Access, Kernel};
use crate::lower::{Binding, LoweredKernel};
use crate::sym::{Int, VarId};
use crate::te::{Check, Def, Program, TensorId};
use graphmend_cache_format as format;
use graphmend_cache_format::meta::Work;
use graphmend_cache_format::spec::{self, BufferSpec, Instr, OutputSpec, PlanSpec, Space, Val};
use ints::Ints;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Arena buffers and weights start at multiples of this many bytes.
pub const ALIGN: u64 = 64;

/// A plan with what it refers to.
pub struct Planned {
    /// The plan.
    pub plan: PlanSpec,
    /// Kernels, by number; equal kernels are one.
    pub kernels: Vec<Kernel>,
    /// The constant data.
    pub weights: Vec<u8>,
    /// Where instructions come from: number and text.
    pub notes: Vec<(u32, String)>,
    /// What the kernel calls do.
    pub work: Vec<Work>,
    /// Arena bytes that no arrangement could go below, for buffers of known size.
    pub arena_floor: u64,
}

/// The cache file's number of an element type.
pub fn stored(t: DType) -> format::DType {
    match t {
        DType::Bool => format::DType::Bool,
        DType::I8 => format::DType::I8,
        DType::I16 => format::DType::I16,
        DType::I32 => format::DType::I32,
        DType::I64 => format::DType::I64,
        DType::U8 => format::DType::U8,
        DType::U16 => format::DType::U16,
        DType::U32 => format::DType::U32,
        DType::U64 => format::DType::U64,
        DType::F16 => format::DType::F16,
        DType::BF16 => format::DType::BF16,
        DType::F32 => format::DType::F32,
        DType::F64 => format::DType::F64,
    }
}

/// Lowers every unit with `lower` and plans the whole.
pub fn plan(fused: &Fused, lower: &mut dyn FnMut(&Program, &Unit) -> LoweredKernel) -> Planned {
    let p = &fused.program;
    let mut lowered = vec![];
    lower_all(p, &fused.steps, lower, &mut lowered);
    let ranges = liveness::find(p, &fused.steps, &lowered);
    let late = late_vars(p, &fused.steps);
    let mut b = Planner {
        p,
        ints: Ints::default(),
        plan: PlanSpec {
            regs: 0,
            slots: 0,
            arena_bytes: 0,
            buffers: vec![],
            instrs: vec![],
            outputs: vec![],
            messages: vec![],
        },
        kernels: vec![],
        kernel_ids: HashMap::new(),
        weights: vec![],
        weight_ids: HashMap::new(),
        buffers: BTreeMap::new(),
        scratch: BTreeMap::new(),
        twins: BTreeMap::new(),
        late_top: None,
        notes: vec![],
        work: vec![],
        reads: BTreeMap::new(),
        at: 0,
    };
    for (v, (t, index)) in &p.data_vars {
        b.reads.entry(base(p, *t)).or_default().push((*v, *index));
    }
    for (v, (input, axis)) in &p.dim_vars {
        let dst = b.ints.fresh(&mut b.plan);
        b.plan.instrs.push(Instr::InputDim { dst, input: *input as u32, axis: *axis as u32 });
        b.ints.bind(*v, Val::Reg(dst));
    }
    let arena_floor = b.place(&ranges, &late);
    b.inputs_and_constants();
    let mut next = lowered.iter();
    b.steps(&fused.steps, &mut next);
    b.outputs();
    b.plan.instrs.push(Instr::Return);
    Planned { plan: b.plan, kernels: b.kernels, weights: b.weights, notes: b.notes, work: b.work, arena_floor }
}

fn lower_all(
    p: &Program,
    steps: &[Step],
    lower: &mut dyn FnMut(&Program, &Unit) -> LoweredKernel,
    out: &mut Vec<LoweredKernel>,
) {
    for s in steps {
        match s {
            Step::Run(u) => out.push(lower(p, u)),
            Step::Check(_) => {}
            Step::If { then, other, .. } => {
                lower_all(p, then, lower, out);
                lower_all(p, other, lower, out);
            }
            Step::Loop(_, body) => lower_all(p, body, lower, out),
        }
    }
}

/// The tensor whose memory holds `t`: views and homes are seen through.
pub fn base(p: &Program, t: TensorId) -> TensorId {
    match p.tensor(t).def {
        Def::View(b) => base(p, b),
        _ => p.memory(t),
    }
}

/// Bytes of a tensor's memory.
fn bytes(p: &Program, t: TensorId) -> Int {
    let t = p.tensor(t);
    let elements = match t.def {
        Def::Parts(room) => room,
        _ => Int::product(&t.shape),
    };
    elements * t.dtype.size()
}

/// Symbols that are not known when a run starts.
fn late_vars(p: &Program, steps: &[Step]) -> Vec<VarId> {
    fn results(steps: &[Step], out: &mut Vec<VarId>) {
        for s in steps {
            match s {
                Step::If { then, other, dims, .. } => {
                    out.extend(dims.iter().map(|(v, ..)| *v));
                    results(then, out);
                    results(other, out);
                }
                Step::Loop(l, body) => {
                    out.push(l.trip);
                    out.extend(l.dims.iter().flat_map(|d| [d.current, d.result]).chain(l.count));
                    results(body, out);
                }
                Step::Run(_) | Step::Check(_) => {}
            }
        }
    }
    let mut out: Vec<VarId> = p.data_vars.keys().copied().collect();
    results(steps, &mut out);
    out
}

struct Planner<'a> {
    p: &'a Program,
    ints: Ints,
    plan: PlanSpec,
    kernels: Vec<Kernel>,
    kernel_ids: HashMap<String, u32>,
    weights: Vec<u8>,
    weight_ids: HashMap<Arc<Vec<u8>>, u64>,
    /// Buffer of each stored tensor.
    buffers: BTreeMap<TensorId, u32>,
    /// Buffers of work space: run number and parameter number.
    scratch: BTreeMap<(usize, usize), u32>,
    /// Second buffer of tensors that loops carry.
    twins: BTreeMap<TensorId, u32>,
    /// First free arena byte for tensors whose size is known late.
    late_top: Option<u32>,
    notes: Vec<(u32, String)>,
    work: Vec<Work>,
    /// Symbols to be read once a tensor is there.
    reads: BTreeMap<TensorId, Vec<(VarId, i64)>>,
    /// Number of the next run.
    at: usize,
}

impl Planner<'_> {
    fn val(&mut self, i: Int) -> Val {
        self.ints.val(&mut self.plan, i)
    }

    fn add_buffer(&mut self, space: Space, dtype: DType, offset: Val, bytes: Option<Val>) -> u32 {
        self.plan.buffers.push(BufferSpec { space, dtype: stored(dtype), offset, bytes });
        self.plan.buffers.len() as u32 - 1
    }

    /// Places everything that lies in the arena. Sizes that depend on input shapes alone are computed here, at the start
    /// of the plan. Gives the lower bound of the static part.
    fn place(&mut self, ranges: &[liveness::Range], late: &[VarId]) -> u64 {
        let mut fixed = vec![];
        let mut early = vec![];
        for r in ranges {
            match r.bytes.as_const() {
                Some(n) => fixed.push(arena::Block { first: r.first, last: r.last, bytes: round_up(n.max(0) as u64) }),
                None if crate::sym::free_vars(r.bytes).iter().any(|v| late.contains(v)) => {}
                None => early.push(r),
            }
        }
        let (offsets, total) = arena::pack(&fixed);
        let floor = arena::floor(&fixed);
        self.plan.arena_bytes = total;
        let fixed_ranges = ranges.iter().filter(|r| r.bytes.as_const().is_some());
        for (r, offset) in fixed_ranges.zip(offsets) {
            let n = r.bytes.as_const().unwrap_or(0).max(0);
            let buf = self.add_buffer(Space::Arena, r.dtype, Val::Imm(offset as i64), Some(Val::Imm(n)));
            self.note_buffer(r.owner, buf);
        }
        // Early symbolic ones share bins: the size of a bin is the largest of those that take turns in it.
        let bins = arena::bins(&early.iter().map(|r| (r.first, r.last, r.bytes)).collect::<Vec<_>>());
        let mut top = Int::new(total as i64);
        for members in bins {
            let start = self.val(top);
            let mut size = Int::new(0);
            for k in members {
                let r = early[k];
                size = size.max((r.bytes + (ALIGN as i64 - 1)).div(ALIGN as i64) * ALIGN as i64);
                let n = self.val(r.bytes);
                let buf = self.add_buffer(Space::Arena, r.dtype, start, Some(n));
                self.note_buffer(r.owner, buf);
            }
            top = top + size;
        }
        let any_late = ranges
            .iter()
            .any(|r| r.bytes.as_const().is_none() && crate::sym::free_vars(r.bytes).iter().any(|v| late.contains(v)));
        if !early.is_empty() {
            let bytes = self.val(top);
            self.plan.instrs.push(Instr::Reserve { bytes });
        }
        if any_late {
            let value = self.val(top);
            let dst = self.ints.fresh(&mut self.plan);
            self.plan.instrs.push(Instr::Set { dst, value });
            self.late_top = Some(dst);
        }
        floor
    }

    fn note_buffer(&mut self, owner: liveness::Owner, buf: u32) {
        match owner {
            liveness::Owner::Tensor(t) => self.buffers.insert(t, buf),
            liveness::Owner::Scratch(run, param) => self.scratch.insert((run, param), buf),
            liveness::Owner::Twin(t) => self.twins.insert(t, buf),
        };
    }

    /// Takes arena memory for `size` bytes at the end of what is used, now that the size is known. Such memory is not
    /// shared: how long it is needed is only known to later steps.
    fn place_late(&mut self, dtype: DType, size: Int) -> u32 {
        let n = self.val(size);
        let top = self.late_top.unwrap_or(0);
        let offset = self.ints.fresh(&mut self.plan);
        self.plan.instrs.push(Instr::Set { dst: offset, value: Val::Reg(top) });
        let rounded = self.val((size + (ALIGN as i64 - 1)).div(ALIGN as i64) * ALIGN as i64);
        self.plan.instrs.push(Instr::Bin { op: format::BinOp::Add, dst: top, a: Val::Reg(top), b: rounded });
        self.plan.instrs.push(Instr::Reserve { bytes: Val::Reg(top) });
        self.add_buffer(Space::Arena, dtype, Val::Reg(offset), Some(n))
    }

    fn inputs_and_constants(&mut self) {
        for t in self.p.inputs.clone() {
            let Def::Input(k) = self.p.tensor(t).def else { continue };
            let buf = self.add_buffer(Space::Input(k as u32), self.p.tensor(t).dtype, Val::Imm(0), None);
            self.buffers.insert(t, buf);
            self.read_symbols(t);
        }
        let constants: Vec<TensorId> = self.reads.keys().copied().collect();
        for t in constants {
            if matches!(self.p.tensor(t).def, Def::Const(_)) {
                self.tensor(t);
                self.read_symbols(t);
            }
        }
    }

    /// Reads the symbols that are elements of `t`, which has just been computed.
    fn read_symbols(&mut self, t: TensorId) {
        for (v, index) in self.reads.get(&t).cloned().unwrap_or_default() {
            let buf = self.tensor(t);
            let dst = self.ints.fresh(&mut self.plan);
            self.plan.instrs.push(Instr::LoadInt { dst, buf, index: Val::Imm(index) });
            self.ints.bind(v, Val::Reg(dst));
        }
    }

    /// The buffer that holds `t`.
    fn tensor(&mut self, t: TensorId) -> u32 {
        let t = base(self.p, t);
        if let Some(b) = self.buffers.get(&t) {
            return *b;
        }
        let tensor = self.p.tensor(t);
        let dtype = tensor.dtype;
        let buf = match &tensor.def {
            Def::Const(data) => self.weight(dtype, &data.clone()),
            // A tensor of a size that is known only now.
            _ => self.place_late(dtype, bytes(self.p, t)),
        };
        self.buffers.insert(t, buf);
        buf
    }

    fn weight(&mut self, dtype: DType, data: &Arc<Vec<u8>>) -> u32 {
        let offset = match self.weight_ids.get(data) {
            Some(o) => *o,
            None => {
                let start = round_up(self.weights.len() as u64);
                self.weights.resize(start as usize, 0);
                self.weights.extend_from_slice(data);
                self.weight_ids.insert(data.clone(), start);
                start
            }
        };
        let (space, offset, len) = (Space::Weights, Val::Imm(offset as i64), Some(Val::Imm(data.len() as i64)));
        let same = BufferSpec { space, dtype: stored(dtype), offset, bytes: len };
        match self.plan.buffers.iter().position(|b| *b == same) {
            Some(k) => k as u32,
            None => self.add_buffer(space, dtype, offset, len),
        }
    }

    fn steps(&mut self, steps: &[Step], next: &mut std::slice::Iter<'_, LoweredKernel>) {
        for s in steps {
            match s {
                Step::Run(u) => {
                    if let Some(k) = next.next() {
                        self.run(u, k);
                    }
                }
                Step::Check(c) => self.check(c),
                Step::If { cond, then, then_results, other, other_results, results, dims } => {
                    // Registers for the symbols of the results, assigned at the end of either block.
                    let regs: Vec<u32> = dims.iter().map(|_| self.ints.fresh(&mut self.plan)).collect();
                    let slots: Vec<u32> = results
                        .iter()
                        .map(|_| {
                            self.plan.slots += 1;
                            self.plan.slots - 1
                        })
                        .collect();
                    let cond = self.val(*cond);
                    let branch = self.hole();
                    self.arm(then, then_results, &slots, dims.iter().map(|d| d.1).zip(&regs), next);
                    let skip = self.hole();
                    let target = self.plan.instrs.len() as u32;
                    self.plan.instrs[branch] = Instr::JumpIfZero { cond, target };
                    self.arm(other, other_results, &slots, dims.iter().map(|d| d.2).zip(&regs), next);
                    let target = self.plan.instrs.len() as u32;
                    self.plan.instrs[skip] = Instr::Jump { target };
                    for ((v, ..), reg) in dims.iter().zip(regs) {
                        self.ints.bind(*v, Val::Reg(reg));
                    }
                    for (t, slot) in results.iter().zip(slots) {
                        let dtype = self.p.tensor(*t).dtype;
                        let buf = self.add_buffer(Space::Slot(slot), dtype, Val::Imm(0), None);
                        self.buffers.insert(*t, buf);
                        self.read_symbols(*t);
                    }
                }
                Step::Loop(l, body) => self.looped(l, body, next),
            }
        }
    }

    /// A place for a jump whose target is not known yet.
    fn hole(&mut self) -> usize {
        self.plan.instrs.push(Instr::Jump { target: 0 });
        self.plan.instrs.len() - 1
    }

    fn arm<'d>(
        &mut self,
        steps: &[Step],
        results: &[TensorId],
        slots: &[u32],
        dims: impl Iterator<Item = (Int, &'d u32)>,
        next: &mut std::slice::Iter<'_, LoweredKernel>,
    ) {
        // Numbers computed within an arm are not there after it.
        let outside = self.ints.clone();
        let fresh = self.ints.next();
        self.steps(steps, next);
        for (i, reg) in dims {
            let value = self.val(i);
            self.plan.instrs.push(Instr::Set { dst: *reg, value });
        }
        for (t, slot) in results.iter().zip(slots) {
            let buf = self.tensor(*t);
            self.plan.instrs.push(Instr::SetSlot { slot: *slot, buf });
        }
        let used = self.ints.next().max(fresh);
        self.ints = outside;
        self.ints.skip_to(used);
    }

    fn run(&mut self, u: &Unit, k: &LoweredKernel) {
        let run = self.at;
        self.at += 1;
        let mut bufs = vec![];
        for (n, b) in k.bindings.iter().enumerate() {
            let buf = match b {
                Binding::Tensor(t) => self.tensor(*t),
                Binding::Packed(dtype, data) => self.weight(*dtype, data),
                Binding::Scratch(dtype, count) => match self.scratch.get(&(run, n)) {
                    Some(b) => *b,
                    None => self.place_late(*dtype, *count * dtype.size()),
                },
            };
            let access = match (b, k.kernel.bufs[n].access) {
                (Binding::Scratch(..), _) => spec::Access::Work,
                (_, Access::Read) => spec::Access::Read,
                (_, Access::Write) => spec::Access::Write,
            };
            bufs.push(spec::Binding { buf, access });
        }
        let scalars: Vec<Val> = k.scalars.iter().map(|i| self.val(*i)).collect();
        let tiles = k.tiles.map(|t| self.val(t));
        let kernel = self.kernel(&k.kernel);
        let step = self.plan.instrs.len() as u32;
        self.notes.push((step, k.kernel.name.clone()));
        self.work.push(work::of(self.p, u, k, step));
        self.plan.instrs.push(Instr::Dispatch { kernel, bufs, scalars, tiles, scratch: None });
        for t in looped::written_by(self.p, u) {
            self.read_symbols(t);
        }
    }

    /// The number of a kernel; one that differs in its name alone is the same.
    fn kernel(&mut self, k: &Kernel) -> u32 {
        let mut nameless = k.clone();
        nameless.name = String::new();
        let text = nameless.to_string();
        if let Some(id) = self.kernel_ids.get(&text) {
            return *id;
        }
        let id = self.kernels.len() as u32;
        self.kernels.push(k.clone());
        self.kernel_ids.insert(text, id);
        id
    }

    fn check(&mut self, c: &Check) {
        let (op, a, b, message) = match c {
            Check::Equal(a, b, m) => (format::BinOp::Eq, *a, *b, m),
            Check::AtMost(a, b, m) => (format::BinOp::Le, *a, *b, m),
        };
        let (a, b) = (self.val(a), self.val(b));
        let dst = self.ints.fresh(&mut self.plan);
        self.plan.instrs.push(Instr::Bin { op, dst, a, b });
        let n = match self.plan.messages.iter().position(|m| m == message) {
            Some(n) => n,
            None => {
                self.plan.messages.push(message.clone());
                self.plan.messages.len() - 1
            }
        };
        self.plan.instrs.push(Instr::Check { cond: Val::Reg(dst), message: n as u32 });
    }

    /// Outputs lie in the arena or the weights: one that is an input, or may be one, is copied.
    fn outputs(&mut self) {
        for t in &self.p.outputs {
            let b = base(self.p, *t);
            let mut buf = self.tensor(*t);
            if matches!(self.p.tensor(b).def, Def::Input(_) | Def::Slot) {
                let size = bytes(self.p, b);
                let dst = match self.scratch.get(&(usize::MAX, b.0 as usize)) {
                    Some(d) => *d,
                    None => self.place_late(self.p.tensor(b).dtype, size),
                };
                let n = self.val(size);
                self.plan.instrs.push(Instr::Copy {
                    dst,
                    dst_offset: Val::Imm(0),
                    src: buf,
                    src_offset: Val::Imm(0),
                    bytes: Some(n),
                });
                buf = dst;
            }
            let dims = self.p.tensor(*t).shape.clone().iter().map(|d| self.val(*d)).collect();
            self.plan.outputs.push(OutputSpec { buf, dims });
        }
    }
}

fn round_up(n: u64) -> u64 {
    n.div_ceil(ALIGN) * ALIGN
}
