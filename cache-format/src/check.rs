//! What makes a plan valid, checked before anything runs.
//!
//! A verified digest says that the bytes are what was written, not that the writer was right or well-meaning. Checked
//! here is everything that does not depend on a run: numbers of records, jump targets, kinds of buffers, ranges with
//! constant bounds. What depends on registers is checked by the runtime at each use.

use crate::file::SectionKind;
use crate::plan::{Buffer, Kernel, Kernels, Plan, Source, Space, Step, Val};
use crate::tensors::Tensors;
use crate::{ARENA_ALIGN, CODE_ALIGN, FormatError};

/// Greatest number of registers.
pub const MAX_REGS: u32 = 1 << 20;
/// Greatest number of slots.
pub const MAX_SLOTS: u32 = 1 << 16;
/// Greatest number of buffers of a kernel.
pub const MAX_KERNEL_BUFS: u32 = 1024;
/// Greatest number of scalars of a kernel.
pub const MAX_KERNEL_SCALARS: u32 = 1024;

type Check = Result<(), &'static str>;

/// Checks a plan against everything that it refers to.
///
/// `weights_bytes` is the length of WEIGHTS; `code_bytes` the length of CODE (0 if there is none).
pub fn check_plan(
    plan: &Plan<'_>,
    tensors: &Tensors<'_>,
    kernels: &Kernels<'_>,
    weights_bytes: u64,
    code_bytes: u64,
) -> Result<(), FormatError> {
    let in_plan = |table, index, what| FormatError::Record { section: SectionKind::Plan, table, index, what };
    let c = Checker { plan, tensors, kernels, weights_bytes };
    c.counts().map_err(|what| in_plan("header", 0, what))?;
    for i in 0..kernels.count() {
        let section = SectionKind::Kernels;
        check_kernel(kernels.get(i), code_bytes).map_err(|what| FormatError::Record {
            section,
            table: "kernel",
            index: i,
            what,
        })?;
    }
    for i in 0..plan.buffers {
        c.buffer_record(i).map_err(|what| in_plan("buffer", i, what))?;
    }
    for i in 0..plan.messages {
        plan.message(i).ok_or(in_plan("message", i, "not text"))?;
    }
    for i in 0..plan.instrs {
        c.step(i).map_err(|what| in_plan("instruction", i, what))?;
    }
    for i in 0..plan.outputs {
        c.output(i).map_err(|what| in_plan("output", i, what))?;
    }
    Ok(())
}

fn check_kernel(kernel: Option<Kernel>, code_bytes: u64) -> Check {
    let k = kernel.ok_or("malformed")?;
    if k.bufs > MAX_KERNEL_BUFS || k.scalars > MAX_KERNEL_SCALARS {
        return Err("too many buffers or scalars");
    }
    if !k.tiled && k.work != 0 {
        return Err("work units of a kernel that has none");
    }
    if !k.code_offset.is_multiple_of(CODE_ALIGN as u64) {
        return Err("the code is not aligned");
    }
    if k.code_offset.checked_add(u64::from(k.code_bytes)).is_none_or(|end| end > code_bytes) {
        return Err("the code is not inside CODE");
    }
    Ok(())
}

struct Checker<'a> {
    plan: &'a Plan<'a>,
    tensors: &'a Tensors<'a>,
    kernels: &'a Kernels<'a>,
    weights_bytes: u64,
}

/// The bytes `from..to` of a space.
#[derive(Clone, Copy)]
struct Range {
    space: Space,
    from: u64,
    to: u64,
}

impl Checker<'_> {
    fn counts(&self) -> Check {
        let p = self.plan;
        if p.regs > MAX_REGS || p.slots > MAX_SLOTS {
            return Err("too many registers or slots");
        }
        if p.max_bufs > MAX_KERNEL_BUFS || p.max_scalars > MAX_KERNEL_SCALARS {
            return Err("too many buffers or scalars");
        }
        if p.arena_bytes > i64::MAX as u64 {
            return Err("the arena is too large");
        }
        if p.outputs != self.tensors.outputs() {
            return Err("the number of outputs is not that of the declaration");
        }
        match p.instrs.checked_sub(1).and_then(|last| p.step(last)) {
            Some(Step::Return | Step::Jump { .. }) => Ok(()),
            _ => Err("the last instruction is not an end"),
        }
    }

    fn val(&self, val: Val) -> Check {
        let known = match val.source() {
            Source::Reg(r) => r < self.plan.regs,
            Source::Const(i) => i < self.plan.consts,
        };
        if known { Ok(()) } else { Err("no such operand") }
    }

    fn dst(&self, reg: u32) -> Check {
        if reg < self.plan.regs { Ok(()) } else { Err("no such register") }
    }

    fn buffer(&self, index: u32) -> Result<Buffer, &'static str> {
        self.plan.buffer(index).ok_or("no such buffer")
    }

    /// A buffer that may be written.
    fn writable(&self, index: u32) -> Check {
        match self.buffer(index)?.space {
            Space::Arena | Space::Slot(_) => Ok(()),
            Space::Weights | Space::Input(_) => Err("writes to weights or an input"),
        }
    }

    fn buffer_record(&self, index: u32) -> Check {
        let b = self.plan.buffer(index).ok_or("malformed")?;
        self.val(b.offset)?;
        if let Some(bytes) = b.bytes {
            self.val(bytes)?;
            if self.plan.const_val(bytes).is_some_and(|n| n < 0) {
                return Err("negative size");
            }
        }
        if let Some(offset) = self.plan.const_val(b.offset) {
            let offset = u64::try_from(offset).map_err(|_| "negative offset")?;
            if !offset.is_multiple_of(b.dtype.size() as u64) {
                return Err("not aligned to its element type");
            }
        }
        let room = match b.space {
            Space::Input(k) if k >= self.tensors.inputs() => return Err("no such input"),
            Space::Slot(k) if k >= self.plan.slots => return Err("no such slot"),
            Space::Input(_) | Space::Slot(_) => return Ok(()),
            Space::Arena => self.plan.arena_bytes,
            Space::Weights => self.weights_bytes,
        };
        if b.bytes.is_none() {
            return Err("a size is missing");
        }
        match self.range(&b) {
            Some(r) if r.to > room => Err("not inside its space"),
            _ => Ok(()),
        }
    }

    /// The range of a buffer with constant bounds.
    fn range(&self, b: &Buffer) -> Option<Range> {
        let from = u64::try_from(self.plan.const_val(b.offset)?).ok()?;
        let bytes = u64::try_from(self.plan.const_val(b.bytes?)?).ok()?;
        // A sum of two non-negative i64 fits.
        Some(Range { space: b.space, from, to: from + bytes })
    }

    fn step(&self, index: u32) -> Check {
        let p = self.plan;
        if !p.step_is_canonical(index) {
            return Err("an unused field is not zero");
        }
        match p.step(index).ok_or("malformed")? {
            Step::Bin { op: _, dst, a, b } => {
                self.val(a)?;
                self.val(b)?;
                self.dst(dst)
            }
            Step::Set { dst, value } => {
                self.val(value)?;
                self.dst(dst)
            }
            Step::InputDim { dst, input, axis } => {
                let tensor = self.tensors.input(input).ok_or("no such input")?;
                tensor.dim(axis as usize).ok_or("no such axis")?;
                self.dst(dst)
            }
            Step::Select { dst, cond, a, b } => {
                self.val(cond)?;
                self.val(a)?;
                self.val(b)?;
                self.dst(dst)
            }
            Step::LoadInt { dst, buf, index } => {
                self.integral(buf)?;
                self.val(index)?;
                self.dst(dst)
            }
            Step::StoreInt { buf, index, value } => {
                self.integral(buf)?;
                self.writable(buf)?;
                self.val(index)?;
                self.val(value)
            }
            Step::Dispatch { kernel, first_binding, first_scalar, tiles, scratch } => {
                self.dispatch(kernel, first_binding, first_scalar, tiles, scratch)
            }
            Step::Copy { dst, dst_offset, src, src_offset, bytes } => {
                self.writable(dst)?;
                self.buffer(src)?;
                self.val(dst_offset)?;
                self.val(src_offset)?;
                bytes.map_or(Ok(()), |b| self.val(b))
            }
            Step::Fill { buf, bits: _ } => self.writable(buf),
            Step::SetSlot { slot, buf } => {
                self.buffer(buf)?;
                if slot < p.slots { Ok(()) } else { Err("no such slot") }
            }
            Step::Jump { target } => self.target(target),
            Step::JumpIfZero { cond, target } => {
                self.val(cond)?;
                self.target(target)
            }
            Step::Check { cond, message } => {
                self.val(cond)?;
                if message < p.messages { Ok(()) } else { Err("no such message") }
            }
            Step::Reserve { bytes } => self.val(bytes),
            Step::Return => Ok(()),
        }
    }

    fn target(&self, target: u32) -> Check {
        if target < self.plan.instrs { Ok(()) } else { Err("jumps out of the plan") }
    }

    fn integral(&self, buf: u32) -> Check {
        if self.buffer(buf)?.dtype.is_integral() { Ok(()) } else { Err("not an integer buffer") }
    }

    fn dispatch(
        &self,
        kernel: u32,
        first_binding: u32,
        first_scalar: u32,
        tiles: Option<Val>,
        scratch: Option<u32>,
    ) -> Check {
        let p = self.plan;
        let k = self.kernels.get(kernel).ok_or("no such kernel")?;
        if k.bufs > p.max_bufs || k.scalars > p.max_scalars {
            return Err("the kernel takes more than the header says");
        }
        if first_scalar.checked_add(k.scalars).is_none_or(|end| end > p.vals) {
            return Err("no such scalars");
        }
        for i in 0..k.scalars {
            self.val(p.val(first_scalar + i).ok_or("no such scalars")?)?;
        }
        if tiles.is_some() != k.tiled {
            return Err("work units for a kernel that has none, or none for one that has");
        }
        tiles.map_or(Ok(()), |t| self.val(t))?;
        if first_binding.checked_add(k.bufs).is_none_or(|end| end > p.bindings) {
            return Err("no such bindings");
        }
        let scratch_range = self.scratch(scratch, k.scratch)?;
        for i in 0..k.bufs {
            let binding = p.binding(first_binding + i).ok_or("no such bindings")?;
            let range = self.range(&self.buffer(binding.buf)?);
            if let (Some(a), Some(b)) = (range, scratch_range)
                && overlap(a, b)
            {
                return Err("scratch overlaps a buffer");
            }
            if !binding.written {
                if binding.work {
                    return Err("work space that is not written");
                }
                continue;
            }
            self.writable(binding.buf)?;
            for other in 0..k.bufs {
                let other_binding = p.binding(first_binding + other).ok_or("no such bindings")?;
                if other == i {
                    continue;
                }
                if let (Some(a), Some(b)) = (range, self.range(&self.buffer(other_binding.buf)?))
                    && overlap(a, b)
                {
                    return Err("a written buffer overlaps another");
                }
            }
        }
        Ok(())
    }

    fn scratch(&self, scratch: Option<u32>, need: u64) -> Result<Option<Range>, &'static str> {
        let Some(index) = scratch else {
            return if need == 0 { Ok(None) } else { Err("scratch is missing") };
        };
        let buffer = self.buffer(index)?;
        if buffer.space != Space::Arena {
            return Err("scratch is not in the arena");
        }
        let Some(range) = self.range(&buffer) else {
            return Ok(None);
        };
        if range.to - range.from < need {
            return Err("scratch is too small");
        }
        if !range.from.is_multiple_of(ARENA_ALIGN as u64) {
            return Err("scratch is not aligned");
        }
        Ok(Some(range))
    }

    fn output(&self, index: u32) -> Check {
        let out = self.plan.output(index).ok_or("malformed")?;
        let tensor = self.tensors.output(index).ok_or("not declared")?;
        let buffer = self.buffer(out.buf)?;
        if buffer.dtype != tensor.dtype {
            return Err("not of the declared element type");
        }
        if matches!(buffer.space, Space::Input(_)) {
            return Err("lies in an input");
        }
        let rank = tensor.rank as u32;
        if out.first_dim.checked_add(rank).is_none_or(|end| end > self.plan.vals) {
            return Err("no such shape");
        }
        for axis in 0..rank {
            self.val(self.plan.val(out.first_dim + axis).ok_or("no such shape")?)?;
        }
        Ok(())
    }
}

fn overlap(a: Range, b: Range) -> bool {
    let empty = a.from == a.to || b.from == b.to;
    a.space == b.space && !matches!(a.space, Space::Slot(_)) && !empty && a.from < b.to && b.from < a.to
}
