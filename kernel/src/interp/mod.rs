//! The interpreter: the meaning of the kernel IR, the compiler's folder of constants, and the oracle of its back ends.
//!
//! A kernel is flattened once into instructions on 64-bit slots, one per lane; constants are in place before the first
//! instruction, and extracted lanes and bitcasts cost nothing. Nothing is allocated while it runs in lent slots. Every access
//! is checked; no kernel, whatever its contents, makes the interpreter panic or run longer than its budget.

mod compile;
mod lanes;
mod memory;

pub use compile::Program;
use memory::Width;
pub use memory::{Buffers, Memory};

use alloc::vec;

use super::ir::Kernel;
use super::verify::Invalid;
use compile::Ins;
use core::fmt;
use core::ops::Range;

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trap {
    /// The kernel breaks a rule of the IR.
    Invalid(Invalid),
    /// Wrong number of buffers.
    BufferCount {
        /// Buffers given.
        given: usize,
        /// Buffer parameters.
        needed: usize,
    },
    /// Wrong number of scalars.
    ScalarCount {
        /// Scalars given.
        given: usize,
        /// Scalar parameters.
        needed: usize,
    },
    /// A parameter that is written was given memory that cannot be.
    ReadOnly {
        /// The buffer parameter.
        buf: usize,
    },
    /// Too few slots were lent.
    Slots {
        /// Slots that the kernel takes.
        needed: usize,
    },
    /// A load or store outside its buffer.
    OutOfBounds {
        /// The buffer parameter.
        buf: usize,
        /// Index of the first element.
        index: i64,
        /// Number of elements.
        lanes: usize,
        /// Elements in the buffer.
        len: usize,
    },
    /// The budget of steps is used up.
    Steps,
}

impl From<Invalid> for Trap {
    fn from(invalid: Invalid) -> Trap {
        Trap::Invalid(invalid)
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trap::Invalid(invalid) => invalid.fmt(f),
            Trap::BufferCount { given, needed } => write!(f, "{given} buffers given to a kernel with {needed}"),
            Trap::ScalarCount { given, needed } => write!(f, "{given} scalars given to a kernel with {needed}"),
            Trap::ReadOnly { buf } => write!(f, "b{buf} is written, but its memory is read-only"),
            Trap::Slots { needed } => write!(f, "the kernel takes {needed} slots"),
            Trap::OutOfBounds { buf, index, lanes, len } => {
                write!(f, "{lanes} elements at index {index} of b{buf}, which has {len}")
            }
            Trap::Steps => f.write_str("more steps than allowed"),
        }
    }
}

impl core::error::Error for Trap {}

/// Verifies and runs a kernel on the units `tile` of its work, and gives its status. `steps` bounds the work: a step is an
/// instruction on one lane, counted per iteration of a loop.
pub fn run(
    kernel: &Kernel,
    bufs: &mut [Memory<'_>],
    scalars: &[i64],
    tile: Range<i64>,
    steps: u64,
) -> Result<u32, Trap> {
    Program::new(kernel)?.run(bufs, scalars, tile, steps)
}

impl Program {
    /// Runs the kernel; see [`run`].
    pub fn run(&self, bufs: &mut [Memory<'_>], scalars: &[i64], tile: Range<i64>, steps: u64) -> Result<u32, Trap> {
        if bufs.len() != self.bufs.len() {
            return Err(Trap::BufferCount { given: bufs.len(), needed: self.bufs.len() });
        }
        let written = |(memory, (_, write)): (&Memory<'_>, &(_, bool))| *write && matches!(memory, Memory::Read(_));
        if let Some(buf) = bufs.iter().zip(&self.bufs).position(written) {
            return Err(Trap::ReadOnly { buf });
        }
        self.run_in(&mut vec![0; self.slots()], bufs, scalars, tile, steps)
    }

    /// Slots that a run takes.
    pub fn slots(&self) -> usize {
        self.image.len()
    }

    /// Whether each buffer parameter is written, in their order.
    pub fn written(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.bufs.iter().map(|(_, written)| *written)
    }

    /// Number of scalar parameters.
    pub fn scalars(&self) -> u32 {
        self.scalars
    }

    /// Runs the kernel in slots that are lent, of which [`slots`](Program::slots) are needed; what they hold does not matter.
    pub fn run_in(
        &self,
        slots: &mut [u64],
        bufs: &mut (impl Buffers + ?Sized),
        scalars: &[i64],
        tile: Range<i64>,
        mut steps: u64,
    ) -> Result<u32, Trap> {
        if scalars.len() != self.scalars as usize {
            return Err(Trap::ScalarCount { given: scalars.len(), needed: self.scalars as usize });
        }
        let slots = slots.get_mut(..self.image.len()).ok_or(Trap::Slots { needed: self.image.len() })?;
        slots.copy_from_slice(&self.image);
        for (scalar, slot) in &self.scalar_slots {
            slots[*slot as usize] = scalars[*scalar as usize] as u64;
        }
        self.tile_lo.iter().for_each(|slot| slots[*slot as usize] = tile.start as u64);
        self.tile_hi.iter().for_each(|slot| slots[*slot as usize] = tile.end as u64);

        let s = &mut slots[..];
        let mut pc = 0;
        loop {
            let ins = &self.code[pc];
            pc += 1;
            match ins {
                Ins::AddI64 { d, a, b } => s[*d as usize] = s[*a as usize].wrapping_add(s[*b as usize]),
                Ins::MulI64 { d, a, b } => s[*d as usize] = s[*a as usize].wrapping_mul(s[*b as usize]),
                Ins::AddF32 { d, a, b } => s[*d as usize] = (f(s[*a as usize]) + f(s[*b as usize])).to_bits() as u64,
                Ins::MulF32 { d, a, b } => s[*d as usize] = (f(s[*a as usize]) * f(s[*b as usize])).to_bits() as u64,
                Ins::Exec(exec, args) => exec(s, args),
                Ins::Copy1 { d, a } => s[*d as usize] = s[*a as usize],
                Ins::Copy { d, a, n } => {
                    let a = *a as usize;
                    s.copy_within(a..a + *n as usize, *d as usize);
                }
                Ins::Splat { d, a, n } => {
                    let value = s[*a as usize];
                    s[*d as usize..][..*n as usize].fill(value);
                }
                Ins::Gather { d, list, n } => {
                    let sources = &self.picks[*list as usize..][..*n as usize];
                    for (d, source) in (*d as usize..).zip(sources) {
                        s[d] = s[*source as usize];
                    }
                }
                Ins::Load { width, buf, index, disp, d, n } => {
                    let index = (s[*index as usize] as i64).wrapping_add(*disp);
                    let n = *n as usize;
                    let bytes = bufs.read(*buf as usize);
                    match within(bytes.len(), width.size(), index, n) {
                        Some(at) => width.load(&bytes[at], &mut s[*d as usize..][..n]),
                        None => return Err(outside(*buf, bytes.len() / width.size(), index, n)),
                    }
                }
                Ins::Words { buf, index, disp, d, n } => {
                    let index = (s[*index as usize] as i64).wrapping_add(*disp);
                    let n = *n as usize;
                    let bytes = bufs.read(*buf as usize);
                    match within(bytes.len(), 1, index, 4 * n) {
                        Some(at) => Width::B4.load(&bytes[at], &mut s[*d as usize..][..n]),
                        None => return Err(outside(*buf, bytes.len(), index, 4 * n)),
                    }
                }
                Ins::Store { width, buf, index, disp, a, n } => {
                    let index = (s[*index as usize] as i64).wrapping_add(*disp);
                    let n = *n as usize;
                    let bytes = bufs.write(*buf as usize).ok_or(Trap::ReadOnly { buf: *buf as usize })?;
                    match within(bytes.len(), width.size(), index, n) {
                        Some(at) => width.store(&mut bytes[at], &s[*a as usize..][..n]),
                        None => return Err(outside(*buf, bytes.len() / width.size(), index, n)),
                    }
                }
                Ins::For { i, lo, hi, exit } => {
                    let first = s[*lo as usize];
                    if (first as i64) < s[*hi as usize] as i64 {
                        s[*i as usize] = first;
                    } else {
                        pc = *exit as usize;
                    }
                }
                Ins::Next { i, hi, step, body, cost } => {
                    steps = steps.checked_sub(*cost as u64).ok_or(Trap::Steps)?;
                    if let Some(next) = (s[*i as usize] as i64).checked_add(*step)
                        && next < s[*hi as usize] as i64
                    {
                        s[*i as usize] = next as u64;
                        pc = *body as usize;
                    }
                }
                Ins::Unless { cond, to } => {
                    if s[*cond as usize] == 0 {
                        pc = *to as usize;
                    }
                }
                Ins::Jump { to, cost } => {
                    steps = steps.checked_sub(*cost as u64).ok_or(Trap::Steps)?;
                    pc = *to as usize;
                }
                Ins::Return(code) => return Ok(*code),
            }
        }
    }
}

#[inline(always)]
fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The bytes of `n` elements from `index` on, if they are all within `len` bytes.
#[inline(always)]
fn within(len: usize, size: usize, index: i64, n: usize) -> Option<Range<usize>> {
    let start = usize::try_from(index).ok()?.checked_mul(size)?;
    let end = start.checked_add(n * size)?;
    (end <= len).then_some(start..end)
}

#[cold]
fn outside(buf: u32, len: usize, index: i64, lanes: usize) -> Trap {
    Trap::OutOfBounds { buf: buf as usize, index, lanes, len }
}
