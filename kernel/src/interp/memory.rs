//! Buffers of an interpreted kernel.

use crate::dtype::DType;
use half::{bf16, f16};

/// The memory of one buffer parameter; little-endian elements without padding. Bytes after the last whole element are
/// not touched.
#[derive(Debug)]
pub enum Memory<'a> {
    /// For parameters that are only read.
    Read(&'a [u8]),
    /// For parameters that are written, or read.
    Write(&'a mut [u8]),
}

/// The buffers of a call, by number of the parameter.
pub trait Buffers {
    /// What a buffer holds; nothing if there is no such buffer.
    fn read(&self, buf: usize) -> &[u8];

    /// A buffer that may be written.
    fn write(&mut self, buf: usize) -> Option<&mut [u8]>;
}

impl Buffers for [Memory<'_>] {
    fn read(&self, buf: usize) -> &[u8] {
        match self.get(buf) {
            Some(Memory::Read(bytes)) => bytes,
            Some(Memory::Write(bytes)) => bytes,
            None => &[],
        }
    }

    fn write(&mut self, buf: usize) -> Option<&mut [u8]> {
        match self.get_mut(buf) {
            Some(Memory::Write(bytes)) => Some(bytes),
            _ => None,
        }
    }
}

/// How elements lie in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Width {
    Bool,
    B1,
    B2,
    B4,
    B8,
    F16,
    BF16,
}

impl Width {
    pub(super) fn of(dtype: DType) -> Width {
        match dtype {
            DType::Bool => Width::Bool,
            DType::F16 => Width::F16,
            DType::BF16 => Width::BF16,
            _ => match dtype.size() {
                1 => Width::B1,
                2 => Width::B2,
                4 => Width::B4,
                _ => Width::B8,
            },
        }
    }

    #[inline(always)]
    pub(super) fn size(self) -> usize {
        match self {
            Width::Bool | Width::B1 => 1,
            Width::B2 | Width::F16 | Width::BF16 => 2,
            Width::B4 => 4,
            Width::B8 => 8,
        }
    }

    /// Reads as many elements as there are slots from the start of `bytes`, which holds at least that many.
    #[inline(always)]
    pub(super) fn load(self, bytes: &[u8], slots: &mut [u64]) {
        match self {
            Width::Bool => each(bytes, slots, |[x]: [u8; 1]| (x != 0) as u64),
            Width::B1 => each(bytes, slots, |[x]: [u8; 1]| x as u64),
            Width::B2 => each(bytes, slots, |x| u16::from_le_bytes(x) as u64),
            Width::B4 => each(bytes, slots, |x| u32::from_le_bytes(x) as u64),
            Width::B8 => each(bytes, slots, u64::from_le_bytes),
            Width::F16 => each(bytes, slots, |x| f16::from_le_bytes(x).to_f32().to_bits() as u64),
            Width::BF16 => each(bytes, slots, |x| bf16::from_le_bytes(x).to_f32().to_bits() as u64),
        }
    }

    /// Writes all slots to the start of `bytes`, which has room for them.
    #[inline(always)]
    pub(super) fn store(self, bytes: &mut [u8], slots: &[u64]) {
        match self {
            Width::Bool | Width::B1 => put(bytes, slots, |x| [x as u8]),
            Width::B2 => put(bytes, slots, |x| (x as u16).to_le_bytes()),
            Width::B4 => put(bytes, slots, |x| (x as u32).to_le_bytes()),
            Width::B8 => put(bytes, slots, u64::to_le_bytes),
            Width::F16 => put(bytes, slots, |x| f16::from_f32(f32::from_bits(x as u32)).to_le_bytes()),
            Width::BF16 => put(bytes, slots, |x| bf16::from_f32(f32::from_bits(x as u32)).to_le_bytes()),
        }
    }
}

#[inline(always)]
fn each<const N: usize>(bytes: &[u8], slots: &mut [u64], f: impl Fn([u8; N]) -> u64) {
    let (elements, _) = bytes.as_chunks::<N>();
    for (slot, element) in slots.iter_mut().zip(elements) {
        *slot = f(*element);
    }
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], slots: &[u64], f: impl Fn(u64) -> [u8; N]) {
    let (elements, _) = bytes.as_chunks_mut::<N>();
    for (slot, element) in slots.iter().zip(elements) {
        *element = f(*slot);
    }
}
