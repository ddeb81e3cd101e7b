//! Kernels that are interpreted (feature `interp`): of files that are packed for no processor in particular.
//!
//! Such a file holds kernel IR where others hold machine code. It is read, checked against all rules of the IR and made ready once,
//! when the file is opened; that takes memory from the allocator, a run takes none. Nothing in the file is ever executed:
//! each access of a kernel is checked against the buffer that the plan gives it, which lies in the arena, in the weights or in an
//! input, so that a file that was made to do harm can only give wrong results or end a run with an error.

use alloc::vec::Vec;

use graphmend_cache_format::file::{File, SectionKind};
use graphmend_cache_format::plan::{Kernels, Plan, Step};
use graphmend_kernel::bytes;
use graphmend_kernel::interp::{Buffers, Program, Trap};

use crate::Error;
use crate::select::{Host, select};

/// Most slots that the kernels of a file take together: values that exist at a time, eight bytes each.
const MAX_SLOTS: usize = 1 << 22;

/// The kernels of a file, ready to be interpreted. See [`ModelRef::interpreted`](crate::ModelRef::interpreted).
#[derive(Clone, Debug)]
pub struct Programs {
    pub(crate) list: Vec<Program>,
    pub(crate) variant: u16,
}

impl Programs {
    /// Reads the kernels of a file that lies in memory.
    ///
    /// # Errors
    /// A file that is damaged, or has no kernels to interpret.
    pub fn from_bytes(bytes: &[u8]) -> Result<Programs, Error> {
        let file = File::parse(bytes)?;
        // No processor: only what is interpreted fits.
        let variant = select(file.index(), Host { arch: None, features: graphmend_targets::Features::NONE })?;
        let kernels = Kernels::parse(file.verified(SectionKind::Kernels, variant)?)?;
        let code = match kernels.count() {
            0 => &[],
            _ => file.verified(SectionKind::Code, variant)?,
        };
        Ok(Programs { list: programs(&kernels, code)?, variant })
    }
}

/// Makes kernels ready, whose IR lies in `code`.
pub(crate) fn programs(kernels: &Kernels<'_>, code: &[u8]) -> Result<Vec<Program>, Error> {
    let mut list = Vec::new();
    let mut left = MAX_SLOTS;
    for kernel in 0..kernels.count() {
        let bad = Error::BadKernel { kernel };
        let record = kernels.get(kernel).ok_or(bad)?;
        let from = usize::try_from(record.code_offset).map_err(|_| bad)?;
        let end = from.checked_add(record.code_bytes as usize).ok_or(bad)?;
        let ir = bytes::read(code.get(from..end).ok_or(bad)?).map_err(|_| bad)?;
        let program = Program::within(&ir, left).map_err(|_| bad)?;
        if program.written().len() != record.bufs as usize || program.scalars() != record.scalars {
            return Err(bad);
        }
        left = left.saturating_sub(program.slots());
        list.push(program);
    }
    Ok(list)
}

/// Checks that kernels write to no buffer that the plan only has them read. `programs` have as many buffers as their records
/// say.
pub(crate) fn check(programs: &[Program], plan: &Plan<'_>) -> Result<(), Error> {
    for index in 0..plan.instrs {
        let Some(Step::Dispatch { kernel, first_binding, .. }) = plan.step(index) else { continue };
        let program = programs.get(kernel as usize).ok_or(Error::NoCode { kernel })?;
        for (binding, written) in (first_binding..).zip(program.written()) {
            if written && !plan.binding(binding).is_some_and(|b| b.written) {
                return Err(Error::BadKernel { kernel });
            }
        }
    }
    Ok(())
}

/// The buffers of a call, as the machine has stored them.
pub(crate) struct Lent {
    /// Pointers, and the bytes behind each; `count` of both.
    pub(crate) pointers: *const *mut u8,
    pub(crate) lens: *const i64,
    pub(crate) count: usize,
}

impl Lent {
    fn at(&self, buf: usize) -> Option<(*mut u8, usize)> {
        if buf >= self.count {
            return None;
        }
        // SAFETY: there are `count` of both.
        let (pointer, len) = unsafe { (self.pointers.add(buf).read(), self.lens.add(buf).read()) };
        usize::try_from(len).ok().filter(|len| *len > 0).map(|len| (pointer, len))
    }
}

impl Buffers for Lent {
    fn read(&self, buf: usize) -> &[u8] {
        // SAFETY: the machine has checked that so many bytes lie there in memory that is lent for the run, and nothing writes
        // to it while the result is borrowed: a kernel writes through `write` alone, which borrows all buffers.
        self.at(buf).map_or(&[], |(pointer, len)| unsafe { core::slice::from_raw_parts(pointer, len) })
    }

    fn write(&mut self, buf: usize) -> Option<&mut [u8]> {
        // SAFETY: as above. The interpreter asks for buffers alone that the kernel declares as written; `check` and the
        // machine see to it that these lie in the arena and overlap no other.
        Some(self.at(buf).map_or(&mut [], |(pointer, len)| unsafe { core::slice::from_raw_parts_mut(pointer, len) }))
    }
}

/// Interprets a call. Gives the kernel's status.
pub(crate) fn run(
    program: &Program,
    lanes: &mut [i64],
    mut lent: Lent,
    scalars: &[i64],
    units: i64,
    (step_limit, step, kernel): (u64, u32, u32),
) -> Result<u32, Error> {
    // SAFETY: the same memory as numbers without sign, of the same size.
    let slots = unsafe { core::slice::from_raw_parts_mut(lanes.as_mut_ptr().cast::<u64>(), lanes.len()) };
    program.run_in(slots, &mut lent, scalars, 0..units, step_limit).map_err(|trap| match trap {
        Trap::Steps => Error::StepLimit,
        Trap::OutOfBounds { .. } => Error::Bounds { step, kernel },
        _ => Error::Changed,
    })
}
