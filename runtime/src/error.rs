//! What can go wrong, as small values.

use core::fmt;

use graphmend_cache_format::{DType, FormatError};
use graphmend_targets::{Arch, Features};

/// Why a model cannot be used or a run failed. `step` is the number of the instruction in the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file is damaged or invalid.
    Format(FormatError),
    /// The root digest is not the pinned one.
    NotPinned,
    /// No variant is for this instruction set.
    WrongArch {
        /// The first variant's, if this version knows it.
        built_for: Option<Arch>,
        /// This program's.
        here: Option<Arch>,
    },
    /// The variants for this instruction set use another calling convention.
    WrongAbi,
    /// Every variant for this instruction set needs features that the CPU lacks.
    MissingFeatures {
        /// The instruction set.
        arch: Arch,
        /// What the least demanding variant needs and the CPU lacks.
        missing: Features,
    },
    /// The kernels of the file are interpreted, and this program is made without the interpreter, or did not ask for it.
    NoInterpreter,
    /// A kernel that would be interpreted breaks a rule of the kernel IR, takes too much memory, or does not fit its record.
    BadKernel {
        /// Number of the kernel.
        kernel: u32,
    },
    /// There is no such variant.
    NoSuchVariant,
    /// A kernel has neither code in the file nor a linked function.
    NoCode {
        /// Number of the kernel.
        kernel: u32,
    },
    /// The file's code does not lie at an address that it can run at.
    CodeMisaligned,
    /// A file in lent memory does not start at a multiple of 8.
    FileMisaligned,
    /// The weights are not in memory: such a model runs by [`Session::run_streamed`](crate::Session::run_streamed).
    WeightsAbsent,
    /// The storage that weights are read from reports an error.
    WeightsUnreadable,
    /// The window for weights has fewer bytes than one step reads.
    WindowTooSmall {
        /// Bytes needed.
        needed: usize,
    },
    /// Sizes in the file exceed this machine's address space.
    TooLarge,
    /// There is not enough memory.
    OutOfMemory {
        /// Bytes wanted.
        bytes: usize,
    },
    /// As many threads cannot be had.
    Threads {
        /// Threads wanted.
        wanted: usize,
    },
    /// The arena has fewer bytes than the run needs.
    ArenaTooSmall {
        /// Bytes needed.
        needed: usize,
    },
    /// The arena does not start at a multiple of `ARENA_ALIGN`.
    ArenaMisaligned,
    /// The state has fewer words than the model needs.
    StateTooSmall {
        /// Words needed.
        needed: usize,
    },
    /// Not as many inputs as declared.
    InputCount {
        /// Declared.
        expected: u32,
        /// Given.
        got: usize,
    },
    /// An input has another element type than declared.
    InputType {
        /// Number of the input.
        input: u32,
        /// Declared.
        expected: DType,
        /// Given.
        got: DType,
    },
    /// An input has another rank than declared.
    InputRank {
        /// Number of the input.
        input: u32,
        /// Declared.
        expected: usize,
        /// Given.
        got: usize,
    },
    /// A dimension of an input is outside its declared bounds.
    InputDim {
        /// Number of the input.
        input: u32,
        /// Axis.
        axis: u32,
        /// Least size.
        lo: i64,
        /// Greatest size.
        hi: i64,
        /// Given.
        got: usize,
    },
    /// A dimension of an input differs from another of the same symbol.
    InputSymbol {
        /// Number of the input.
        input: u32,
        /// Axis.
        axis: u32,
        /// Number of the input where the symbol stands first.
        first_input: u32,
        /// Axis there.
        first_axis: u32,
        /// Size there.
        expected: usize,
        /// Given.
        got: usize,
    },
    /// An input's data is not as long as its shape says.
    InputBytes {
        /// Number of the input.
        input: u32,
        /// Bytes that shape and element type make.
        expected: usize,
        /// Given.
        got: usize,
    },
    /// An input's data is not aligned to its element type.
    InputMisaligned {
        /// Number of the input.
        input: u32,
    },
    /// A size computed by the plan does not fit.
    Overflow {
        /// The instruction.
        step: u32,
    },
    /// A buffer reaches out of its space, is misaligned or has a negative size.
    Buffer {
        /// The instruction.
        step: u32,
        /// Number of the buffer.
        buffer: u32,
    },
    /// A slot is used before it is set.
    SlotUnset {
        /// The instruction.
        step: u32,
    },
    /// A buffer of a dispatch is written, but may not be or overlaps another.
    Write {
        /// The instruction.
        step: u32,
        /// Number of the buffer.
        buffer: u32,
    },
    /// An element index or byte range computed by the plan is out of range.
    Index {
        /// The instruction.
        step: u32,
    },
    /// An index in the data is out of range for the operator that uses it.
    DataIndex {
        /// The instruction.
        step: u32,
        /// Number of the kernel that found it.
        kernel: u32,
    },
    /// A kernel returned an unknown status.
    Kernel {
        /// The instruction.
        step: u32,
        /// Number of the kernel.
        kernel: u32,
        /// The status.
        status: u32,
    },
    /// An interpreted kernel would have read or written outside of its buffers: the file is not what a compiler made.
    Bounds {
        /// The instruction.
        step: u32,
        /// Number of the kernel.
        kernel: u32,
    },
    /// A condition that the model demands does not hold. `ModelRef::message` has the text.
    Check {
        /// The instruction.
        step: u32,
        /// Number of the message.
        message: u32,
    },
    /// The shape of an output has a negative size or more elements than its buffer.
    Output {
        /// Number of the output.
        output: u32,
    },
    /// The run took more backward jumps than the session allows.
    StepLimit,
    /// There is no output: no such number, or no run has succeeded since the last change.
    NoOutput,
    /// A tensor is asked for as another element type than it has.
    ElementType {
        /// The tensor's.
        is: DType,
        /// The asked.
        asked: DType,
    },
    /// A record that was checked when the model was opened cannot be read now: the memory was changed.
    Changed,
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Error {
        Error::Format(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Format(error) => error.fmt(f),
            Error::NotPinned => f.write_str("refused: the file is not the pinned one (its root digest differs)"),
            Error::WrongArch { built_for, here } => {
                let name = |a: Option<Arch>| a.map_or("an unknown instruction set", Arch::name);
                write!(f, "built for {}, this program runs on {}", name(built_for), name(here))
            }
            Error::WrongAbi => f.write_str("built for another operating system's calling convention"),
            Error::MissingFeatures { arch, missing } => {
                let them = if missing.0.count_ones() == 1 { "it" } else { "them" };
                write!(f, "built for {}, this CPU lacks {them}", missing.display(arch))
            }
            Error::NoInterpreter => {
                f.write_str("built for the interpreter of kernels, which this program does without")
            }
            Error::BadKernel { kernel } => write!(f, "kernel {kernel} cannot be interpreted"),
            Error::NoSuchVariant => f.write_str("there is no such variant"),
            Error::NoCode { kernel } => {
                write!(f, "kernel {kernel} is not in the file and no function is linked in for it")
            }
            Error::CodeMisaligned => f.write_str("the code in the file is not aligned in memory"),
            Error::FileMisaligned => f.write_str("the file does not start at a multiple of 8 in memory"),
            Error::WeightsAbsent => f.write_str("the weights are not in memory"),
            Error::WeightsUnreadable => f.write_str("the weights cannot be read from their storage"),
            Error::WindowTooSmall { needed } => {
                write!(f, "the window for weights is too small: {needed} bytes are needed")
            }
            Error::TooLarge => f.write_str("the model is too large for this machine's address space"),
            Error::Threads { wanted } => write!(f, "cannot have {wanted} threads"),
            Error::OutOfMemory { bytes } => write!(f, "not enough memory for {bytes} bytes"),
            Error::ArenaTooSmall { needed } => {
                write!(f, "the arena is too small: {needed} bytes are needed")
            }
            Error::ArenaMisaligned => {
                write!(f, "the arena does not start at a multiple of {}", graphmend_cache_format::ARENA_ALIGN)
            }
            Error::StateTooSmall { needed } => {
                write!(f, "the state is too small: {needed} words are needed")
            }
            Error::InputCount { expected, got } => {
                write!(f, "{got} inputs given, the model has {expected}")
            }
            Error::InputType { input, expected, got } => write!(f, "input {input}: {got} given, {expected} expected"),
            Error::InputRank { input, expected, got } => {
                write!(f, "input {input}: rank {got} given, {expected} expected")
            }
            Error::InputDim { input, axis, lo, hi, got } if lo == hi => {
                write!(f, "input {input}, axis {axis}: size {got} given, {lo} expected")
            }
            Error::InputDim { input, axis, lo, hi: i64::MAX, got } => {
                write!(f, "input {input}, axis {axis}: size {got} given, at least {lo} expected")
            }
            Error::InputDim { input, axis, lo, hi, got } => {
                write!(f, "input {input}, axis {axis}: size {got} given, {lo} to {hi} expected")
            }
            Error::InputSymbol { input, axis, first_input, first_axis, expected, got } => write!(
                f,
                "input {input}, axis {axis}: size {got} given, {expected} expected as in input {first_input}, axis {first_axis}"
            ),
            Error::InputBytes { input, expected, got } => {
                write!(f, "input {input}: {got} bytes given, its shape makes {expected}")
            }
            Error::InputMisaligned { input } => write!(f, "input {input}: the data is not aligned to its element type"),
            Error::Overflow { step } => write!(f, "step {step}: a size is too large"),
            Error::Buffer { step, buffer } => {
                write!(f, "step {step}: buffer {buffer} is not inside its memory")
            }
            Error::SlotUnset { step } => write!(f, "step {step}: a slot is used before it is set"),
            Error::Write { step, buffer } => {
                write!(f, "step {step}: buffer {buffer} must not be written")
            }
            Error::Index { step } => write!(f, "step {step}: an index is out of range"),
            Error::DataIndex { step, kernel } => {
                write!(f, "step {step}, kernel {kernel}: an index in the data is out of range")
            }
            Error::Kernel { step, kernel, status } => {
                write!(f, "step {step}, kernel {kernel}: failed with status {status}")
            }
            Error::Bounds { step, kernel } => {
                write!(f, "step {step}, kernel {kernel}: an access outside of a buffer")
            }
            Error::Check { step, message } => {
                write!(f, "step {step}: a condition of the model does not hold (message {message})")
            }
            Error::Output { output } => {
                write!(f, "output {output}: its shape does not fit its data")
            }
            Error::StepLimit => f.write_str("the run was stopped: too many loop iterations"),
            Error::NoOutput => f.write_str("there is no such output, or no run has succeeded"),
            Error::ElementType { is, asked } => write!(f, "the tensor is {is}, not {asked}"),
            Error::Changed => f.write_str("the model's memory was changed while in use"),
        }
    }
}

impl core::error::Error for Error {}
