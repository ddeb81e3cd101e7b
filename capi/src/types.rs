//! The plain structures of the header.

use std::ffi::{c_char, c_void};

use graphmend_runtime::DType;

/// Element types. Values never change.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementType {
    /// One byte, 0 or 1.
    Bool = 1,
    /// Signed, 8 bits.
    I8 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Signed, 64 bits.
    I64 = 5,
    /// Unsigned, 8 bits.
    U8 = 6,
    /// Unsigned, 16 bits.
    U16 = 7,
    /// Unsigned, 32 bits.
    U32 = 8,
    /// Unsigned, 64 bits.
    U64 = 9,
    /// IEEE binary16.
    F16 = 10,
    /// bfloat16.
    Bf16 = 11,
    /// IEEE binary32: float.
    F32 = 12,
    /// IEEE binary64: double.
    F64 = 13,
}

impl From<DType> for ElementType {
    fn from(dtype: DType) -> ElementType {
        match dtype {
            DType::Bool => ElementType::Bool,
            DType::I8 => ElementType::I8,
            DType::I16 => ElementType::I16,
            DType::I32 => ElementType::I32,
            DType::I64 => ElementType::I64,
            DType::U8 => ElementType::U8,
            DType::U16 => ElementType::U16,
            DType::U32 => ElementType::U32,
            DType::U64 => ElementType::U64,
            DType::F16 => ElementType::F16,
            DType::BF16 => ElementType::Bf16,
            DType::F32 => ElementType::F32,
            DType::F64 => ElementType::F64,
        }
    }
}

/// When weights are compared with their digests.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weights {
    /// Each block of 64 KiB before its first use: the default.
    OnUse = 0,
    /// All when the model is opened.
    Eager = 1,
    /// Never: the storage is trusted.
    Skip = 2,
}

/// Where a file's weights are while it is open.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the mapped file: the default. Only pages that are used are read. Replace such a file by renaming: one that is
    /// shortened while open ends the program (SIGBUS).
    Map = 0,
    /// In private memory: the file is read as a whole.
    Read = 1,
}

/// How a model is opened. All zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// The root digest that the file must have, 32 bytes (graphmend-run inspect prints it), or null for any file.
    pub root: *const u8,
    /// A gm_weights.
    pub weights: u32,
    /// A gm_storage. Only for gm_model_open.
    pub storage: u32,
}

/// What a session uses. All zeros are the defaults but for one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Memory for the arena, at a multiple of GM_ARENA_ALIGN, or null for memory of the session's own, which grows when a run
    /// needs more. Lent memory belongs to the session until it is freed.
    pub arena: *mut c_void,
    /// Bytes of lent memory, at least gm_model_arena_bytes.
    pub arena_bytes: usize,
    /// Threads that share the work of each run, the calling one included; 0 for as many as this process has processors for.
    /// Results are the same to the bit.
    pub threads: u32,
}

/// A dimension as the model declares it. It is open if min and max differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dimension {
    /// Least size.
    pub min: i64,
    /// Greatest size; INT64_MAX if there is none.
    pub max: i64,
    /// Its name in the model, or null. Dimensions of inputs with one name have one size.
    pub symbol: *const c_char,
}

/// An input or output as the model declares it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo {
    /// Its name.
    pub name: *const c_char,
    /// Element type.
    pub dtype: ElementType,
    /// Number of dimensions.
    pub rank: usize,
    /// The dimensions, outermost first.
    pub dims: *const Dimension,
}

/// An output of a run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OutputTensor {
    /// Element type.
    pub dtype: ElementType,
    /// Number of dimensions.
    pub rank: usize,
    /// Sizes, outermost first.
    pub shape: *const i64,
    /// Elements, row-major. Aligned to their type.
    pub data: *const c_void,
    /// Bytes of all elements.
    pub bytes: usize,
}
