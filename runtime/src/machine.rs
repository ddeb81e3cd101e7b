//! The plan machine: one run over lent memory.
//!
//! Everything that a plan computes is checked where it is used: the checks of the opened file cover constants only.
//! Pointers are made by `wrapping_add` from a space's base and only followed inside a range that was checked against
//! the space's length.

use graphmend_cache_format::abi::{KernelArgs, status};
use graphmend_cache_format::plan::{Buffer, Source, Space, Step, Val};
use graphmend_cache_format::{ARENA_ALIGN, DType};

use crate::spread::{Job, Spread};
use crate::state::{Place, Words};
use crate::tensor::aligned;
use crate::window::Bring;
use crate::{Error, ModelRef, Observe, TensorRef};

/// Memory that a buffer is right now.
#[derive(Clone, Copy)]
struct View {
    place: Place,
    /// First byte, relative to the place.
    offset: usize,
    len: usize,
    ptr: *mut u8,
    /// Its bounds are constants: what could be checked has been when the file was opened.
    fixed: bool,
}

/// Whether two ranges of memory, each an address and a length, have bytes in common.
fn overlap(a: (usize, usize), b: (usize, usize)) -> bool {
    a.1 > 0 && b.1 > 0 && a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

/// Why a run ends. Two registers hold it, where an [`Error`] would be written to memory by each of the many places that find one:
/// 650 bytes of code on a Cortex-M4. The step is the machine's `at`.
#[derive(Clone, Copy)]
enum Fault {
    Changed,
    Overflow,
    Index,
    SlotUnset,
    StepLimit,
    WeightsAbsent,
    Buffer(u32),
    Write(u32),
    Output(u32),
    Check(u32),
    /// What the kernel of this number returned is in `status`.
    Kernel(u32),
    Arena(usize),
    /// In `failure`.
    Failure,
}

/// One run.
pub(crate) struct Machine<'r, 'w> {
    pub(crate) model: ModelRef<'r>,
    pub(crate) arena: *mut u8,
    pub(crate) arena_len: usize,
    pub(crate) words: Words<'r>,
    pub(crate) inputs: &'r [TensorRef<'r>],
    pub(crate) step_limit: u64,
    /// Who shares calls with several work units; nobody: each is one call.
    pub(crate) spread: Option<&'r dyn Spread>,
    /// Where absent weights are brought.
    pub(crate) window: Option<&'w mut dyn Bring>,
    /// The instruction that is carried out.
    pub(crate) at: u32,
    /// An operand was not there: the file is no longer what was checked.
    pub(crate) changed: bool,
    /// What a kernel returned, if it ends the run.
    pub(crate) status: u32,
    /// What others than the machine report.
    pub(crate) failure: Option<Error>,
}

impl Machine<'_, '_> {
    /// The value of an operand. Of one that is not there it is 0, and the run ends with this step: in place of a [`Result`], which
    /// each of many callers would take from memory and look into.
    fn val(&mut self, val: Val) -> i64 {
        let value = match val.source() {
            Source::Reg(r) => self.words.regs.get(r as usize).copied(),
            Source::Const(i) => self.model.plan.constant(i),
        };
        self.changed |= value.is_none();
        value.unwrap_or(0)
    }

    /// An operand that is an offset or a size. What is none is larger than any memory.
    fn size(&mut self, val: Val) -> usize {
        usize::try_from(self.val(val)).unwrap_or(usize::MAX)
    }

    fn set_reg(&mut self, reg: u32, value: i64) -> Result<(), Fault> {
        *self.words.regs.get_mut(reg as usize).ok_or(Fault::Changed)? = value;
        Ok(())
    }

    /// Runs the plan and leaves the outputs in the state.
    pub(crate) fn run(&mut self, observer: &mut impl Observe) -> Result<(), Error> {
        let ended = self.follow(observer).and_then(|()| self.unchanged());
        ended.map_err(|fault| self.error(fault))?;
        *self.words.done = 1;
        Ok(())
    }

    /// Whether all operands were there so far.
    fn unchanged(&self) -> Result<(), Fault> {
        if self.changed { Err(Fault::Changed) } else { Ok(()) }
    }

    fn error(&self, fault: Fault) -> Error {
        let step = self.at;
        match fault {
            Fault::Changed => Error::Changed,
            Fault::Overflow => Error::Overflow { step },
            Fault::Index => Error::Index { step },
            Fault::SlotUnset => Error::SlotUnset { step },
            Fault::StepLimit => Error::StepLimit,
            Fault::WeightsAbsent => Error::WeightsAbsent,
            Fault::Buffer(buffer) => Error::Buffer { step, buffer },
            Fault::Write(buffer) => Error::Write { step, buffer },
            Fault::Output(output) => Error::Output { output },
            Fault::Check(message) => Error::Check { step, message },
            Fault::Kernel(kernel) => match self.status {
                status::INDEX => Error::DataIndex { step, kernel },
                status => Error::Kernel { step, kernel, status },
            },
            Fault::Arena(needed) => Error::ArenaTooSmall { needed },
            Fault::Failure => self.failure.unwrap_or(Error::Changed),
        }
    }

    /// Keeps what others report.
    fn failed(&mut self, error: Error) -> Fault {
        self.failure = Some(error);
        Fault::Failure
    }

    fn follow(&mut self, observer: &mut impl Observe) -> Result<(), Fault> {
        *self.words.done = 0;
        self.words.regs.fill(0);
        self.words.slots.fill(0);
        let mut pc = 0;
        let mut left = self.step_limit;
        loop {
            self.unchanged()?;
            let at = pc;
            self.at = at;
            pc += 1;
            let mut jump = |target: u32| {
                if target <= at {
                    left = left.checked_sub(1).ok_or(Fault::StepLimit)?;
                }
                Ok::<u32, Fault>(target)
            };
            match self.model.plan.step(at).ok_or(Fault::Changed)? {
                Step::Dispatch { kernel, first_binding, first_scalar, tiles, scratch } => {
                    observer.before(at, kernel);
                    self.dispatch(kernel, first_binding, first_scalar, tiles, scratch)?;
                    observer.after(at, kernel);
                }
                Step::Bin { op, dst, a, b } => {
                    let value = op.apply(self.val(a), self.val(b)).ok_or(Fault::Overflow)?;
                    self.set_reg(dst, value)?;
                }
                Step::Set { dst, value } => {
                    let value = self.val(value);
                    self.set_reg(dst, value)?;
                }
                Step::InputDim { dst, input, axis } => {
                    let tensor = self.inputs.get(input as usize).ok_or(Fault::Changed)?;
                    let size = *tensor.shape.get(axis as usize).ok_or(Fault::Changed)?;
                    self.set_reg(dst, i64::try_from(size).map_err(|_| Fault::Overflow)?)?;
                }
                Step::Select { dst, cond, a, b } => {
                    let value = if self.val(cond) != 0 { self.val(a) } else { self.val(b) };
                    self.set_reg(dst, value)?;
                }
                Step::LoadInt { dst, buf, index } => {
                    let value = self.load_int(buf, index)?;
                    self.set_reg(dst, value)?;
                }
                Step::StoreInt { buf, index, value } => self.store_int(buf, index, value)?,
                Step::Copy { dst, dst_offset, src, src_offset, bytes } => {
                    self.copy((dst, dst_offset), (src, src_offset), bytes)?;
                }
                Step::Fill { buf, bits } => self.fill(buf, bits)?,
                Step::SetSlot { slot, buf } => self.set_slot(slot, buf)?,
                Step::Jump { target } => pc = jump(target)?,
                Step::JumpIfZero { cond, target } => {
                    if self.val(cond) == 0 {
                        pc = jump(target)?;
                    }
                }
                Step::Check { cond, message } => {
                    if self.val(cond) == 0 {
                        return Err(Fault::Check(message));
                    }
                }
                Step::Reserve { bytes } => {
                    let needed = usize::try_from(self.val(bytes)).map_err(|_| Fault::Overflow)?;
                    if needed > self.arena_len {
                        return Err(Fault::Arena(needed));
                    }
                }
                Step::Return => return self.finish(),
            }
        }
    }

    /// Base and length of a place.
    fn place(&self, place: Place) -> Result<(*mut u8, usize), Fault> {
        Ok(match place {
            Place::ARENA => (self.arena, self.arena_len),
            Place::WEIGHTS => self.model.weights(),
            _ => {
                let input = place.as_input().and_then(|k| self.inputs.get(k as usize)).ok_or(Fault::Changed)?;
                (input.bytes.as_ptr().cast_mut(), input.bytes.len())
            }
        })
    }

    /// What a buffer is right now. Weights in it have been verified afterwards.
    #[inline]
    fn view(&mut self, buffer: u32) -> Result<View, Fault> {
        let at = buffer as usize * 2;
        match self.words.known.get(at..at + 2) {
            Some(&[tag, len]) if tag > 0 => {
                let (place, base) =
                    if tag & 1 == 1 { (Place::ARENA, self.arena) } else { (Place::WEIGHTS, self.model.weights().0) };
                let (offset, len) = (((tag - 1) >> 1) as usize, len as usize);
                Ok(View { place, offset, len, ptr: base.wrapping_add(offset), fixed: true })
            }
            _ => self.look_up(buffer),
        }
    }

    /// The same for a buffer with bounds that change, or for the first time.
    #[inline(never)]
    fn look_up(&mut self, buffer: u32) -> Result<View, Fault> {
        let Buffer { space, dtype, offset, bytes } = self.model.plan.buffer(buffer).ok_or(Fault::Changed)?;
        let wrong = Fault::Buffer(buffer);
        let is_const = |v: Val| matches!(v.source(), Source::Const(_));
        // The part of a place that the buffer is relative to.
        let (place, part) = match space {
            Space::Arena => (Place::ARENA, None),
            Space::Weights => (Place::WEIGHTS, None),
            Space::Input(k) => (Place::input(k), None),
            Space::Slot(k) => self.slot(k)?,
        };
        let fixed = is_const(offset) && bytes.is_some_and(is_const) && part.is_none() && place.as_input().is_none();
        let (base, all) = self.place(place)?;
        let (from, room) = match part {
            Some(part) => part,
            // What is the same in every run ends where every arena has bytes.
            None if fixed && place == Place::ARENA => (0, self.model.arena_bytes()),
            None => (0, all),
        };
        let offset = self.size(offset);
        let left = room.checked_sub(offset).ok_or(wrong)?;
        let len = bytes.map_or(left, |bytes| self.size(bytes));
        if len > left {
            return Err(wrong);
        }
        let offset = from + offset;
        let ptr = base.wrapping_add(offset);
        if len > 0 && !aligned(dtype, ptr.addr()) {
            return Err(wrong);
        }
        let view = View { place, offset, len, ptr, fixed };
        if place == Place::WEIGHTS
            && let Some((leaves, verify)) = self.model.leaves
        {
            let marks = &mut *self.words.leaves;
            verify(self.model.weights, leaves, marks, (offset, len)).map_err(|e| self.failed(e.into()))?;
        }
        if fixed {
            let at = buffer as usize * 2;
            let known = self.words.known.get_mut(at..at + 2).ok_or(Fault::Changed)?;
            let tag = offset as i64 * 2 + if place == Place::ARENA { 1 } else { 2 };
            known.copy_from_slice(&[tag, len as i64]);
        }
        Ok(view)
    }

    /// Place, first byte and length of a slot's view, which lies inside its place.
    fn slot(&self, slot: u32) -> Result<(Place, Option<(usize, usize)>), Fault> {
        let at = slot as usize * 3;
        let Some(&[word, offset, len]) = self.words.slots.get(at..at + 3) else {
            return Err(Fault::Changed);
        };
        if word == 0 {
            return Err(Fault::SlotUnset);
        }
        let place = Place::from_word(word);
        let (offset, len) = (offset as usize, len as usize);
        // Written by `set_slot` from a checked view of the same run.
        debug_assert!(self.place(place).is_ok_and(|(_, room)| offset + len <= room));
        Ok((place, Some((offset, len))))
    }

    fn set_slot(&mut self, slot: u32, buf: u32) -> Result<(), Fault> {
        let view = self.view(buf)?;
        let at = slot as usize * 3;
        let words = self.words.slots.get_mut(at..at + 3).ok_or(Fault::Changed)?;
        words.copy_from_slice(&[view.place.word(), view.offset as i64, view.len as i64]);
        Ok(())
    }

    /// A view to be read. Weights that are not in memory are brought.
    fn readable(&mut self, buffer: u32) -> Result<View, Fault> {
        let view = self.view(buffer)?;
        if self.model.absent == 0 || view.place != Place::WEIGHTS || view.len == 0 {
            return Ok(view);
        }
        let window = self.window.as_mut().ok_or(Fault::WeightsAbsent)?;
        match window.bring(view.offset, view.len) {
            Ok(ptr) => Ok(View { ptr, ..view }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Makes room in the window for what a step reads.
    fn clear_window(&mut self) {
        if let Some(window) = &mut self.window {
            window.clear();
        }
    }

    /// A buffer that may be written.
    fn writable(&mut self, buffer: u32) -> Result<View, Fault> {
        let view = self.view(buffer)?;
        if view.place == Place::ARENA { Ok(view) } else { Err(Fault::Write(buffer)) }
    }

    fn dispatch(
        &mut self,
        kernel: u32,
        first_binding: u32,
        first_scalar: u32,
        tiles: Option<Val>,
        scratch: Option<u32>,
    ) -> Result<(), Fault> {
        let k = self.model.kernels.get(kernel).ok_or(Fault::Changed)?;
        let units = tiles.map_or(1, |t| self.val(t));
        if units <= 0 {
            return Ok(());
        }
        self.clear_window();
        let mut fixed = true;
        for i in 0..k.bufs {
            let binding = self.model.plan.binding(first_binding + i).ok_or(Fault::Changed)?;
            let view = if binding.written { self.writable(binding.buf)? } else { self.readable(binding.buf)? };
            fixed &= view.fixed;
            self.set_binding(i, &view)?;
        }
        let scratch = match scratch {
            None => None,
            Some(buffer) => {
                let view = self.writable(buffer)?;
                let room = usize::try_from(k.scratch).is_ok_and(|need| need <= view.len);
                if !room || !view.ptr.addr().is_multiple_of(ARENA_ALIGN) {
                    return Err(Fault::Buffer(buffer));
                }
                fixed &= view.fixed;
                Some(view)
            }
        };
        // With constant bounds alone, the opened file has been checked for this.
        if !fixed {
            self.check_overlaps(k.bufs, first_binding, scratch.as_ref())?;
        }
        for i in 0..k.scalars {
            let value = self.val(self.model.plan.val(first_scalar + i).ok_or(Fault::Changed)?);
            let word = self.words.scalars.get_mut(i as usize);
            *word.ok_or(Fault::Changed)? = value;
        }
        self.unchanged()?;
        #[cfg(feature = "interp")]
        if let crate::Code::Interpreted(programs) = self.model.code {
            let lent = crate::interp::Lent {
                pointers: self.words.bufs.as_ptr().cast(),
                lens: self.words.lens.as_ptr(),
                count: k.bufs as usize,
            };
            let program = programs.get(kernel as usize).ok_or(Fault::Changed)?;
            let scalars = self.words.scalars.get(..k.scalars as usize).ok_or(Fault::Changed)?;
            let at = (self.step_limit, self.at, kernel);
            return match crate::interp::run(program, self.words.lanes, lent, scalars, units, at) {
                Ok(status) => self.ended(status, kernel),
                Err(error) => {
                    self.failure = Some(error);
                    Err(Fault::Failure)
                }
            };
        }
        let entry = self.model.entry(kernel, &k).ok_or(Fault::Changed)?;
        // Scratch is one for the whole call.
        if let Some(spread) = self.spread
            && units > 1
            && scratch.is_none()
        {
            let job = Job {
                entry,
                plan: self.model.plan,
                first_binding,
                bufs: k.bufs,
                pointers: self.words.bufs.as_ptr().cast(),
                lens: self.words.lens.as_ptr(),
                scalars: self.words.scalars.as_ptr(),
                units,
                unit_work: k.work,
            };
            let status = spread.spread(&job);
            return self.ended(status, kernel);
        }
        let args = KernelArgs {
            bufs: self.words.bufs.as_ptr().cast(),
            scalars: self.words.scalars.as_ptr(),
            scratch: scratch.map_or(core::ptr::null_mut(), |view| view.ptr),
            tile_lo: 0,
            tile_hi: units,
        };
        // SAFETY: `entry` is a kernel of this model (see `ModelRef::kernel`), called with as many buffers and scalars as
        // its record says. Every buffer lies inside memory that is lent for this run; those that are written lie in the
        // arena, which nobody else refers to, and overlap no other. That the kernel keeps to its buffers is the
        // compiler's promise, which the trusted digest of its code stands for.
        let status = unsafe { entry(&args) };
        self.ended(status, kernel)
    }

    /// Stores the pointer for a kernel, and the length for `check_overlaps`.
    #[inline]
    fn set_binding(&mut self, index: u32, view: &View) -> Result<(), Fault> {
        let index = index as usize;
        *self.words.lens.get_mut(index).ok_or(Fault::Changed)? = view.len as i64;
        if index >= self.words.bufs.len() {
            return Err(Fault::Changed);
        }
        // SAFETY: `index` is less than the number of words, each of which has room and alignment for a pointer; the
        // pointers lie densely, so they end no later than the words.
        unsafe {
            let pointers = self.words.bufs.as_mut_ptr().cast::<*mut u8>();
            pointers.add(index).write(view.ptr);
        }
        Ok(())
    }

    /// Address and length of what `set_binding` has bound.
    fn bound(&self, index: u32) -> (usize, usize) {
        let index = index as usize;
        match self.words.lens.get(index) {
            Some(len) if index < self.words.bufs.len() => {
                // SAFETY: inside the words as in `set_binding`, which has stored it.
                let ptr = unsafe { self.words.bufs.as_ptr().cast::<*mut u8>().add(index).read() };
                (ptr.addr(), *len as usize)
            }
            _ => (0, 0),
        }
    }

    fn check_overlaps(&self, bufs: u32, first_binding: u32, scratch: Option<&View>) -> Result<(), Fault> {
        let scratch = scratch.map_or((0, 0), |view| (view.ptr.addr(), view.len));
        for i in 0..bufs {
            let a = self.bound(i);
            let binding = self.model.plan.binding(first_binding + i).ok_or(Fault::Changed)?;
            let mut wrong = overlap(a, scratch);
            for j in 0..bufs {
                wrong |= binding.written && i != j && overlap(a, self.bound(j));
            }
            if wrong {
                return Err(Fault::Write(binding.buf));
            }
        }
        Ok(())
    }

    /// An element of a view, as a range that lies inside it.
    fn element(&mut self, view: &View, dtype: DType, index: Val) -> Result<*mut u8, Fault> {
        let index = self.size(index);
        if index >= view.len / dtype.size() {
            return Err(Fault::Index);
        }
        Ok(view.ptr.wrapping_add(index * dtype.size()))
    }

    fn dtype(&self, buffer: u32) -> Result<DType, Fault> {
        self.model.plan.buffer(buffer).map(|b| b.dtype).ok_or(Fault::Changed)
    }

    fn load_int(&mut self, buf: u32, index: Val) -> Result<i64, Fault> {
        let dtype = self.dtype(buf)?;
        self.clear_window();
        let view = self.readable(buf)?;
        let at = self.element(&view, dtype, index)?;
        let mut raw = [0u8; 8];
        // SAFETY: `element` has checked that `size` bytes at `at` lie inside the view; they are at most 8.
        unsafe { core::ptr::copy_nonoverlapping(at, raw.as_mut_ptr(), dtype.size()) };
        let bits = u64::from_le_bytes(raw);
        Ok(match dtype {
            DType::I8 => i64::from(bits as i8),
            DType::I16 => i64::from(bits as i16),
            DType::I32 => i64::from(bits as i32),
            DType::U64 => i64::try_from(bits).map_err(|_| Fault::Overflow)?,
            _ => bits as i64,
        })
    }

    fn store_int(&mut self, buf: u32, index: Val, value: Val) -> Result<(), Fault> {
        let view = self.writable(buf)?;
        let dtype = self.dtype(buf)?;
        let at = self.element(&view, dtype, index)?;
        let value = self.val(value);
        let bits = if dtype == DType::Bool { i64::from(value != 0) } else { value };
        // SAFETY: `element` has checked that `size` bytes at `at` lie inside the view, which is in the arena.
        unsafe { core::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at, dtype.size()) };
        Ok(())
    }

    fn copy(&mut self, dst: (u32, Val), src: (u32, Val), bytes: Option<Val>) -> Result<(), Fault> {
        let wrong = Fault::Index;
        let to = self.writable(dst.0)?;
        self.clear_window();
        let from = self.readable(src.0)?;
        let (dst_offset, src_offset) = (self.size(dst.1), self.size(src.1));
        let left = from.len.checked_sub(src_offset).ok_or(wrong)?;
        let len = bytes.map_or(left, |bytes| self.size(bytes));
        if len > left || to.len.checked_sub(dst_offset).is_none_or(|room| len > room) {
            return Err(wrong);
        }
        // SAFETY: both ranges lie inside their views, as just checked; the destination is in the arena. `copy` allows
        // them to overlap.
        unsafe { core::ptr::copy(from.ptr.wrapping_add(src_offset), to.ptr.wrapping_add(dst_offset), len) };
        Ok(())
    }

    fn fill(&mut self, buf: u32, bits: u64) -> Result<(), Fault> {
        let view = self.writable(buf)?;
        let size = self.dtype(buf)?.size();
        let raw = bits.to_le_bytes();
        let element = raw.get(..size).ok_or(Fault::Changed)?;
        let same = raw.first().copied().filter(|first| element.iter().all(|b| b == first));
        let count = view.len / size;
        if let Some(byte) = same {
            // SAFETY: the view lies in the arena.
            unsafe { view.ptr.write_bytes(byte, count * size) };
            return Ok(());
        }
        for i in 0..count {
            // SAFETY: element `i` lies inside the view, which lies in the arena.
            unsafe { core::ptr::copy_nonoverlapping(raw.as_ptr(), view.ptr.wrapping_add(i * size), size) };
        }
        Ok(())
    }

    /// Stores where the outputs are, and their shapes.
    #[inline(never)]
    fn finish(&mut self) -> Result<(), Fault> {
        let mut dims = 0;
        for output in 0..self.model.plan.outputs {
            let wrong = Fault::Output(output);
            let record = self.model.plan.output(output).ok_or(Fault::Changed)?;
            let tensor = self.model.tensors.declared_output(output).ok_or(Fault::Changed)?;
            let view = self.view(record.buf)?;
            if view.place.as_input().is_some() {
                return Err(wrong);
            }
            let mut bytes = tensor.dtype.size();
            for axis in 0..tensor.rank as u32 {
                let size = self.val(self.model.plan.val(record.first_dim + axis).ok_or(Fault::Changed)?);
                // Sizes beside a 0 are not limited by memory: the product is 0 however large it was before.
                bytes = bytes.saturating_mul(usize::try_from(size).map_err(|_| wrong)?);
                *self.words.dims.get_mut(dims).ok_or(Fault::Changed)? = size;
                dims += 1;
            }
            if bytes > view.len {
                return Err(wrong);
            }
            let at = output as usize * 3;
            let words = self.words.outputs.get_mut(at..at + 3);
            let words = words.ok_or(Fault::Changed)?;
            words.copy_from_slice(&[view.place.word(), view.offset as i64, bytes as i64]);
        }
        Ok(())
    }

    /// What a kernel's status means.
    fn ended(&mut self, status: u32, kernel: u32) -> Result<(), Fault> {
        if status == status::OK {
            return Ok(());
        }
        self.status = status;
        Err(Fault::Kernel(kernel))
    }
}
