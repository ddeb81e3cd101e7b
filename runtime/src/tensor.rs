//! Tensors that are lent to a run, and views of what it leaves.

use core::mem::{align_of, size_of, size_of_val};

use graphmend_cache_format::DType;

use crate::Error;

mod sealed {
    pub trait Sealed {}
}

/// Rust types that are element types. `Bool` tensors are given and taken as bytes; half types as their 16 bits with
/// [`TensorRef::from_bytes`] and [`TensorView::bytes`].
pub trait Element: sealed::Sealed + Copy + 'static {
    /// The element type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),+) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
        }
    )+};
}

elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64);

/// The bytes of a slice of elements.
fn bytes_of<T: Element>(data: &[T]) -> &[u8] {
    // SAFETY: `Element` is sealed; its types are integers and floats, without padding; the length is the slice's own.
    unsafe { core::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

/// An input: row-major data and a shape, both borrowed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TensorRef<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; empty for a scalar.
    pub shape: &'a [usize],
    /// Elements, as little-endian bytes without gaps.
    pub bytes: &'a [u8],
}

impl<'a> TensorRef<'a> {
    /// From elements. Whether there are as many as the shape says is checked by the run.
    ///
    /// ```
    /// use graphmend_runtime::TensorRef;
    /// let x = TensorRef::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    /// let rate = TensorRef::new(&[16000i64], &[]);
    /// # let _ = (x, rate);
    /// ```
    pub fn new<T: Element>(data: &'a [T], shape: &'a [usize]) -> TensorRef<'a> {
        TensorRef { dtype: T::DTYPE, shape, bytes: bytes_of(data) }
    }

    /// From bytes, which must be aligned to the element type. For `Bool`, each must be 0 or 1.
    pub fn from_bytes(dtype: DType, shape: &'a [usize], bytes: &'a [u8]) -> TensorRef<'a> {
        TensorRef { dtype, shape, bytes }
    }

    /// From truth values.
    pub fn from_bools(data: &'a [bool], shape: &'a [usize]) -> TensorRef<'a> {
        // SAFETY: a bool is one byte, 0 or 1.
        let bytes = unsafe { core::slice::from_raw_parts(data.as_ptr().cast(), data.len()) };
        TensorRef { dtype: DType::Bool, shape, bytes }
    }
}

/// An output, in the session's memory until the next run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TensorView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first; empty for a scalar. None is negative.
    pub shape: &'a [i64],
    /// Elements, row-major, as little-endian bytes.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// The elements.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], Error> {
        let fits = T::DTYPE == self.dtype && self.bytes.as_ptr().cast::<T>().is_aligned();
        if self.bytes.is_empty() && T::DTYPE == self.dtype {
            return Ok(&[]);
        }
        if !fits {
            return Err(Error::ElementType { is: self.dtype, asked: T::DTYPE });
        }
        // SAFETY: aligned as just checked, all bit patterns are elements (`Element` is sealed), and the length is
        // rounded down to whole elements.
        Ok(unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len() / size_of::<T>()) })
    }

    /// The elements of an `f32` tensor.
    pub fn as_f32(&self) -> Result<&'a [f32], Error> {
        self.as_slice()
    }

    /// The elements of an `i64` tensor.
    pub fn as_i64(&self) -> Result<&'a [i64], Error> {
        self.as_slice()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Whether data of an element type may lie at an address.
pub(crate) fn aligned(dtype: DType, address: usize) -> bool {
    // What a kernel's loads may assume: an element's size, but no more than Rust's own alignment of it.
    let align = match dtype.size() {
        1 => 1,
        2 => align_of::<u16>(),
        4 => align_of::<u32>(),
        _ => align_of::<u64>(),
    };
    address.is_multiple_of(align)
}
