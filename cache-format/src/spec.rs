//! What a cache file holds, as plain data: the compiler fills a [`FileSpec`], [`write`](crate::write::write()) lays it out,
//! [`read`](crate::read::read()) gives it back.
//!
//! # The plan machine
//!
//! A plan is one list of instructions over a file of `i64` registers; a run starts at instruction 0 and ends at a
//! `Return`. Registers start as 0. An operand is a register or a constant ([`Val`]).
//!
//! Memory is named by *buffers*: views `space + offset .. + bytes`. Offsets and sizes are operands, so a buffer whose
//! size is only known at run time is an ordinary buffer whose operands are registers; it is looked up anew at each use.
//! A *slot* is a variable that holds a view: `SetSlot` makes it what some buffer is at that moment. Loops swap carried
//! tensors with slots, and the two arms of a branch leave their results in one.
//!
//! Rules that the runtime checks (when the file is opened for what is constant, else at each use):
//! a range lies inside its space; its start is aligned to its element type; nothing is written to inputs or weights;
//! a buffer that a dispatch writes overlaps no other buffer of that dispatch; outputs lie in the arena or the weights.

use alloc::string::String;
use alloc::vec::Vec;

use crate::meta::{Debug, Meta};
pub use crate::{BinOp, DType, Digest};

/// A whole cache file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileSpec {
    /// Names the model: a digest of everything that was packed. Chosen by the compiler.
    pub model_id: Digest,
    /// Names the build: a digest of options, target and compiler version. Chosen by the compiler.
    pub build_id: Digest,
    /// Alignment in bytes of CODE and WEIGHTS in the file, a power of two from 64 to 2^30. [`PAGE`](crate::PAGE) for
    /// files that are mapped; less for files that lie in flash.
    pub page: u32,
    /// Inputs, in order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in order.
    pub outputs: Vec<TensorSpec>,
    /// Code and plan per CPU, at least one.
    pub variants: Vec<VariantSpec>,
    /// Constant data of all variants, addressed by [`Space::Weights`] buffers.
    pub weights: Vec<u8>,
    /// Cold description.
    pub meta: Meta,
}

/// Declaration of an input or an output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorSpec {
    /// Its name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first. Rank at most [`MAX_RANK`](crate::MAX_RANK).
    pub dims: Vec<DimSpec>,
}

/// A dimension of an input or an output. The runtime checks given inputs against it: fixed sizes, bounds, and that
/// one symbol has one size in all inputs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DimSpec {
    /// Always this size.
    Fixed(u64),
    /// A named size. One name has the same bounds everywhere.
    Symbol {
        /// The symbol.
        name: String,
        /// Least size.
        min: u64,
        /// Greatest size, at most `i64::MAX`.
        max: u64,
    },
    /// Any size (for outputs: known only after a run).
    Any,
}

/// Plan and kernels for one kind of CPU.
#[derive(Clone, PartialEq, Debug)]
pub struct VariantSpec {
    /// Instruction set: `graphmend_targets`' number.
    pub arch: u16,
    /// Calling convention: one of [`abi::id`](crate::abi::id).
    pub abi: u16,
    /// Which of several fitting variants is taken: the highest rank.
    pub rank: u32,
    /// CPU features that the code needs: `graphmend_targets`' bits of that instruction set.
    pub features: u64,
    /// What to run.
    pub plan: PlanSpec,
    /// Kernels, by number.
    pub kernels: Vec<KernelSpec>,
    /// Names for people.
    pub debug: Debug,
}

/// A kernel: machine code behind the ABI of [`KernelArgs`](crate::abi::KernelArgs).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KernelSpec {
    /// Position-independent code with the entry at byte 0, its constants behind it. Laid out at a multiple of
    /// [`CODE_ALIGN`](crate::CODE_ALIGN); equal code is stored once. Empty: the function is linked into the program.
    pub code: Vec<u8>,
    /// Number of buffers.
    pub bufs: u32,
    /// Number of `i64` scalars.
    pub scalars: u32,
    /// Bytes of scratch memory that one call needs; a dispatch must then name a scratch buffer at least that large.
    pub scratch: u64,
    /// Whether it can be called for a range of its work units. If not, it is called once with the range `0..1`.
    pub tiled: bool,
    /// Operations of a work unit, about; less than 2³¹. Whether threads pay is decided by it. 0 if it is not tiled.
    pub work: u32,
}

/// An operand: a register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Val {
    /// Value of a register.
    Reg(u32),
    /// A constant.
    Imm(i64),
}

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Space {
    /// In the arena that the caller lends.
    Arena,
    /// In the WEIGHTS section.
    Weights,
    /// In the data of input `k`.
    Input(u32),
    /// In the view that slot `k` holds.
    Slot(u32),
}

/// A buffer: a view of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BufferSpec {
    /// Where.
    pub space: Space,
    /// Element type; the start is aligned to its size.
    pub dtype: DType,
    /// First byte, relative to the space (to the view, for a slot).
    pub offset: Val,
    /// Length in bytes, or nothing for all that is left from `offset` (inputs and slots only).
    pub bytes: Option<Val>,
}

/// How a dispatch uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Only read.
    Read,
    /// Written, and perhaps read.
    Write,
    /// Work space: written, and what it holds means nothing before and after the call. Where calls for ranges of work
    /// units run side by side, each has memory of its own in the buffer's place.
    Work,
}

/// A buffer given to a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Binding {
    /// Number of the buffer.
    pub buf: u32,
    /// How it is used.
    pub access: Access,
}

/// One instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Instr {
    /// `dst = value`.
    Set {
        /// Register.
        dst: u32,
        /// Value.
        value: Val,
    },
    /// `dst` = size of an input along an axis.
    InputDim {
        /// Register.
        dst: u32,
        /// Number of the input.
        input: u32,
        /// Axis, less than the rank.
        axis: u32,
    },
    /// `dst = op(a, b)`.
    Bin {
        /// What to compute.
        op: BinOp,
        /// Register.
        dst: u32,
        /// Left operand.
        a: Val,
        /// Right operand.
        b: Val,
    },
    /// `dst = if cond != 0 { a } else { b }`.
    Select {
        /// Register.
        dst: u32,
        /// Condition.
        cond: Val,
        /// When not 0.
        a: Val,
        /// When 0.
        b: Val,
    },
    /// `dst` = element `index` of an integer or Bool buffer (an error if out of range, or a u64 above `i64::MAX`).
    LoadInt {
        /// Register.
        dst: u32,
        /// Buffer.
        buf: u32,
        /// Element index.
        index: Val,
    },
    /// Element `index` of an integer or Bool buffer = `value`, wrapped to the element type (Bool: not 0).
    StoreInt {
        /// Buffer.
        buf: u32,
        /// Element index.
        index: Val,
        /// Value.
        value: Val,
    },
    /// Calls a kernel.
    Dispatch {
        /// Number of the kernel.
        kernel: u32,
        /// Its buffers; as many as the kernel says.
        bufs: Vec<Binding>,
        /// Its scalars; as many as the kernel says.
        scalars: Vec<Val>,
        /// Work units of a tiled kernel (0: it is not called). Nothing for one that is not tiled.
        tiles: Option<Val>,
        /// Memory for its scratch; disjoint from `bufs`.
        scratch: Option<u32>,
    },
    /// Copies bytes; the ranges may overlap.
    Copy {
        /// Buffer that is written.
        dst: u32,
        /// First byte within `dst`.
        dst_offset: Val,
        /// Buffer that is read.
        src: u32,
        /// First byte within `src`.
        src_offset: Val,
        /// How many bytes, or nothing for all of `src` from `src_offset`.
        bytes: Option<Val>,
    },
    /// Fills a buffer with one element repeated.
    Fill {
        /// Buffer; all of it is written.
        buf: u32,
        /// The element's bits, in the low bytes.
        bits: u64,
    },
    /// A slot becomes the view that a buffer is now. What the slot's view was does not matter any more.
    SetSlot {
        /// Number of the slot.
        slot: u32,
        /// Buffer.
        buf: u32,
    },
    /// Continues at an instruction.
    Jump {
        /// Number of the instruction.
        target: u32,
    },
    /// Continues at an instruction if the condition is 0.
    JumpIfZero {
        /// Condition.
        cond: Val,
        /// Number of the instruction.
        target: u32,
    },
    /// Ends the run with an error if the condition is 0.
    Check {
        /// Condition.
        cond: Val,
        /// Number of the message in [`PlanSpec::messages`].
        message: u32,
    },
    /// Ends the run with "arena too small" if the arena has fewer bytes. Comes before the first use of memory beyond
    /// [`PlanSpec::arena_bytes`]; the caller then lends a larger arena and runs again from the start.
    Reserve {
        /// Bytes.
        bytes: Val,
    },
    /// Ends the run; the outputs are then as [`PlanSpec::outputs`] says.
    Return,
}

/// What a run leaves for an output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OutputSpec {
    /// Its data: at least product of `dims` times element size bytes, in the arena or the weights, of the declared
    /// element type.
    pub buf: u32,
    /// Its shape, of the declared rank.
    pub dims: Vec<Val>,
}

/// A plan.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PlanSpec {
    /// Number of registers.
    pub regs: u32,
    /// Number of slots.
    pub slots: u32,
    /// Arena bytes that every run needs. Buffers with constant offset and size lie below it.
    pub arena_bytes: u64,
    /// Buffers, by number.
    pub buffers: Vec<BufferSpec>,
    /// Instructions; the last one never falls through.
    pub instrs: Vec<Instr>,
    /// One per declared output.
    pub outputs: Vec<OutputSpec>,
    /// Texts of failed checks.
    pub messages: Vec<String>,
}
