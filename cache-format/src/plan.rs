//! The sections PLAN and KERNELS: the records of the plan machine, read in place.
//!
//! ```text
//! PLAN
//! header     64 bytes   regs u32, slots u32, arena bytes u64, instrs u32, buffers u32, bindings u32, vals u32,
//!                       consts u32, outputs u32, messages u32, text bytes u32, max bufs u32, max scalars u32, 0 u64
//! consts      8 each    i64
//! instrs     24 each    op u16, 0 u16, a b c d e u32
//! buffers    16 each    space u8, dtype u8, 0 u16, index u32, offset val u32, bytes val u32
//! outputs     8 each    buffer u32, first val of its shape u32
//! messages    8 each    text offset u32, text bytes u32
//! bindings    4 each    buffer u32, top bit: written, the bit below: work space
//! vals        4 each    scalars of dispatches and shapes of outputs
//! text                  UTF-8
//!
//! KERNELS
//! header      8 bytes   kernels u32, 0 u32
//! kernels    32 each    code offset u64, scratch bytes u64, code bytes u32, bufs u32, scalars u32, units u32 (bit 0:
//!                       tiled; above: operations of a work unit, about)
//! ```
//!
//! A *val* is an operand: a register number, or with the top bit set the number of a constant; all ones is none.
//! What the instructions mean is said at `spec::Instr`, what is valid at [`check_plan`](crate::check::check_plan).

use crate::bytes::{Cutter, array, record, text, u16_at, u32_at, u64_at};
use crate::file::SectionKind;
use crate::tensors::NONE;
use crate::{BinOp, DType, FormatError};

pub(crate) const HEAD: usize = 64;
pub(crate) const INSTR: usize = 24;
pub(crate) const BUFFER: usize = 16;
pub(crate) const KERNELS_HEAD: usize = 8;
pub(crate) const KERNEL: usize = 32;
/// Top bit of a val (constant) or a binding (written).
pub(crate) const TOP: u32 = 1 << 31;
/// The bit below it: a binding that is work space.
pub(crate) const WORK: u32 = 1 << 30;

/// Numbers of instructions in the file; register arithmetic has [`BinOp`]'s numbers, which are smaller.
pub(crate) mod code {
    pub(crate) const SET: u16 = 32;
    pub(crate) const INPUT_DIM: u16 = 33;
    pub(crate) const SELECT: u16 = 34;
    pub(crate) const LOAD_INT: u16 = 35;
    pub(crate) const STORE_INT: u16 = 36;
    pub(crate) const DISPATCH: u16 = 37;
    pub(crate) const COPY: u16 = 38;
    pub(crate) const FILL: u16 = 39;
    pub(crate) const SET_SLOT: u16 = 40;
    pub(crate) const JUMP: u16 = 41;
    pub(crate) const JUMP_IF_ZERO: u16 = 42;
    pub(crate) const CHECK: u16 = 43;
    pub(crate) const RESERVE: u16 = 44;
    pub(crate) const RETURN: u16 = 45;
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Val(pub(crate) u32);

/// What an operand refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// A register.
    Reg(u32),
    /// A constant, by number.
    Const(u32),
}

impl Val {
    /// What it refers to.
    pub fn source(self) -> Source {
        if self.0 & TOP == 0 { Source::Reg(self.0) } else { Source::Const(self.0 & !TOP) }
    }

    fn opt(raw: u32) -> Option<Val> {
        (raw != NONE).then_some(Val(raw))
    }
}

/// Where a buffer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// In the arena.
    Arena,
    /// In WEIGHTS.
    Weights,
    /// In an input's data.
    Input(u32),
    /// In a slot's view.
    Slot(u32),
}

/// A buffer record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Where.
    pub space: Space,
    /// Element type.
    pub dtype: DType,
    /// First byte in the space.
    pub offset: Val,
    /// Length, or all that is left.
    pub bytes: Option<Val>,
}

/// A buffer given to a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Number of the buffer.
    pub buf: u32,
    /// Whether the kernel writes to it.
    pub written: bool,
    /// Whether what it holds means nothing before and after a call, so that each of several calls at one time can have
    /// memory of its own.
    pub work: bool,
}

/// An instruction record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are documented at spec::Instr")]
pub enum Step {
    Bin { op: BinOp, dst: u32, a: Val, b: Val },
    Set { dst: u32, value: Val },
    InputDim { dst: u32, input: u32, axis: u32 },
    Select { dst: u32, cond: Val, a: Val, b: Val },
    LoadInt { dst: u32, buf: u32, index: Val },
    StoreInt { buf: u32, index: Val, value: Val },
    Dispatch { kernel: u32, first_binding: u32, first_scalar: u32, tiles: Option<Val>, scratch: Option<u32> },
    Copy { dst: u32, dst_offset: Val, src: u32, src_offset: Val, bytes: Option<Val> },
    Fill { buf: u32, bits: u64 },
    SetSlot { slot: u32, buf: u32 },
    Jump { target: u32 },
    JumpIfZero { cond: Val, target: u32 },
    Check { cond: Val, message: u32 },
    Reserve { bytes: Val },
    Return,
}

/// An output record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// Number of the buffer.
    pub buf: u32,
    /// First val of its shape; there are as many as the rank.
    pub first_dim: u32,
}

/// A plan.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Number of registers.
    pub regs: u32,
    /// Number of slots.
    pub slots: u32,
    /// Arena bytes that every run needs.
    pub arena_bytes: u64,
    /// Number of instructions.
    pub instrs: u32,
    /// Number of buffers.
    pub buffers: u32,
    /// Number of bindings.
    pub bindings: u32,
    /// Number of vals.
    pub vals: u32,
    /// Number of constants.
    pub consts: u32,
    /// Number of outputs.
    pub outputs: u32,
    /// Number of messages.
    pub messages: u32,
    /// Greatest number of buffers of any dispatched kernel.
    pub max_bufs: u32,
    /// Greatest number of scalars of any dispatched kernel.
    pub max_scalars: u32,
    t: Tables<'a>,
}

#[derive(Clone, Copy, Debug)]
struct Tables<'a> {
    consts: &'a [u8],
    instrs: &'a [u8],
    buffers: &'a [u8],
    outputs: &'a [u8],
    messages: &'a [u8],
    bindings: &'a [u8],
    vals: &'a [u8],
    text: &'a [u8],
}

impl<'a> Plan<'a> {
    /// Finds the tables in a verified section. The records are checked by [`check_plan`](crate::check::check_plan).
    pub fn parse(bytes: &'a [u8]) -> Result<Plan<'a>, FormatError> {
        let wrong = |what| FormatError::Record { section: SectionKind::Plan, table: "header", index: 0, what };
        let short = wrong("the section's length does not fit its counts");
        let head: [u8; HEAD] = array(bytes, 0).ok_or(short)?;
        let at = |i| u32_at(&head, i).ok_or(short);
        let (instrs, buffers, bindings, vals) = (at(16)?, at(20)?, at(24)?, at(28)?);
        let (consts, outputs, messages, text_bytes) = (at(32)?, at(36)?, at(40)?, at(44)?);
        if u64_at(&head, 56) != Some(0) {
            return Err(wrong("a reserved field is not zero"));
        }
        let mut cutter = Cutter::new(bytes.get(HEAD..).ok_or(short)?);
        let t = Tables {
            consts: cutter.table(consts, 8).ok_or(short)?,
            instrs: cutter.table(instrs, INSTR).ok_or(short)?,
            buffers: cutter.table(buffers, BUFFER).ok_or(short)?,
            outputs: cutter.table(outputs, 8).ok_or(short)?,
            messages: cutter.table(messages, 8).ok_or(short)?,
            bindings: cutter.table(bindings, 4).ok_or(short)?,
            vals: cutter.table(vals, 4).ok_or(short)?,
            text: cutter.table(text_bytes, 1).ok_or(short)?,
        };
        if !cutter.done() {
            return Err(short);
        }
        Ok(Plan {
            regs: at(0)?,
            slots: at(4)?,
            arena_bytes: u64_at(&head, 8).ok_or(short)?,
            instrs,
            buffers,
            bindings,
            vals,
            consts,
            outputs,
            messages,
            max_bufs: at(48)?,
            max_scalars: at(52)?,
            t,
        })
    }

    /// A constant.
    #[inline]
    pub fn constant(&self, index: u32) -> Option<i64> {
        record(self.t.consts, index).map(i64::from_le_bytes)
    }

    /// The value of an operand that is a constant.
    pub fn const_val(&self, val: Val) -> Option<i64> {
        match val.source() {
            Source::Reg(_) => None,
            Source::Const(i) => self.constant(i),
        }
    }

    /// A val of a dispatch's scalars or an output's shape.
    #[inline]
    pub fn val(&self, index: u32) -> Option<Val> {
        record(self.t.vals, index).map(u32::from_le_bytes).map(Val)
    }

    /// A binding of a dispatch.
    #[inline]
    pub fn binding(&self, index: u32) -> Option<Binding> {
        let raw = record(self.t.bindings, index).map(u32::from_le_bytes)?;
        Some(Binding { buf: raw & !(TOP | WORK), written: raw & TOP != 0, work: raw & WORK != 0 })
    }

    /// A buffer; nothing if out of range or malformed.
    #[inline]
    pub fn buffer(&self, index: u32) -> Option<Buffer> {
        let raw: [u8; BUFFER] = record(self.t.buffers, index)?;
        let [space, dtype, 0, 0, ..] = raw else {
            return None;
        };
        let k = u32_at(&raw, 4)?;
        let space = match space {
            0 if k == 0 => Space::Arena,
            1 if k == 0 => Space::Weights,
            2 => Space::Input(k),
            3 => Space::Slot(k),
            _ => return None,
        };
        let dtype = DType::from_code(dtype)?;
        Some(Buffer { space, dtype, offset: Val(u32_at(&raw, 8)?), bytes: Val::opt(u32_at(&raw, 12)?) })
    }

    /// An output.
    pub fn output(&self, index: u32) -> Option<Output> {
        let raw: [u8; 8] = record(self.t.outputs, index)?;
        Some(Output { buf: u32_at(&raw, 0)?, first_dim: u32_at(&raw, 4)? })
    }

    /// The text of a failed check.
    pub fn message(&self, index: u32) -> Option<&'a str> {
        let raw: [u8; 8] = record(self.t.messages, index)?;
        text(self.t.text, u32_at(&raw, 0)?, u32_at(&raw, 4)?)
    }

    /// Whether the fields that an instruction does not use are zero, so that one plan has one form.
    pub fn step_is_canonical(&self, index: u32) -> bool {
        let Some(raw) = record::<INSTR>(self.t.instrs, index) else {
            return false;
        };
        let used = match u16_at(&raw, 0) {
            Some(code::RETURN) => 0,
            Some(code::JUMP | code::RESERVE) => 1,
            Some(code::SET | code::SET_SLOT | code::JUMP_IF_ZERO | code::CHECK) => 2,
            Some(code::SELECT) => 4,
            Some(code::DISPATCH | code::COPY) => 5,
            _ => 3,
        };
        let (flags, fields) = (&raw[2..4], &raw[4 + 4 * used..]);
        flags.iter().chain(fields).all(|&b| b == 0)
    }

    /// An instruction; nothing if out of range or malformed.
    #[inline]
    pub fn step(&self, index: u32) -> Option<Step> {
        let raw: [u8; INSTR] = record(self.t.instrs, index)?;
        let op = u16_at(&raw, 0)?;
        let f = |i: usize| u32_at(&raw, 4 + 4 * i);
        let (a, b, c, d, e) = (f(0)?, f(1)?, f(2)?, f(3)?, f(4)?);
        Some(match op {
            code::SET => Step::Set { dst: a, value: Val(b) },
            code::INPUT_DIM => Step::InputDim { dst: a, input: b, axis: c },
            code::SELECT => Step::Select { dst: a, cond: Val(b), a: Val(c), b: Val(d) },
            code::LOAD_INT => Step::LoadInt { dst: a, buf: b, index: Val(c) },
            code::STORE_INT => Step::StoreInt { buf: a, index: Val(b), value: Val(c) },
            code::DISPATCH => Step::Dispatch {
                kernel: a,
                first_binding: b,
                first_scalar: c,
                tiles: Val::opt(d),
                scratch: (e != NONE).then_some(e),
            },
            code::COPY => Step::Copy { dst: a, dst_offset: Val(b), src: c, src_offset: Val(d), bytes: Val::opt(e) },
            code::FILL => Step::Fill { buf: a, bits: u64::from(b) | u64::from(c) << 32 },
            code::SET_SLOT => Step::SetSlot { slot: a, buf: b },
            code::JUMP => Step::Jump { target: a },
            code::JUMP_IF_ZERO => Step::JumpIfZero { cond: Val(a), target: b },
            code::CHECK => Step::Check { cond: Val(a), message: b },
            code::RESERVE => Step::Reserve { bytes: Val(a) },
            code::RETURN => Step::Return,
            op => Step::Bin { op: BinOp::from_code(op)?, dst: a, a: Val(b), b: Val(c) },
        })
    }
}

/// A kernel record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// First byte of its code in CODE.
    pub code_offset: u64,
    /// Bytes of code; 0 if it is linked in.
    pub code_bytes: u32,
    /// Number of buffers.
    pub bufs: u32,
    /// Number of scalars.
    pub scalars: u32,
    /// Bytes of scratch that a call needs.
    pub scratch: u64,
    /// Whether it takes ranges of work units.
    pub tiled: bool,
    /// Operations of a work unit, about.
    pub work: u32,
}

/// The section KERNELS.
#[derive(Clone, Copy, Debug)]
pub struct Kernels<'a> {
    count: u32,
    records: &'a [u8],
}

impl<'a> Kernels<'a> {
    /// Finds the table in a verified section.
    pub fn parse(bytes: &'a [u8]) -> Result<Kernels<'a>, FormatError> {
        let what = "the section's length does not fit its counts";
        let short = FormatError::Record { section: SectionKind::Kernels, table: "header", index: 0, what };
        let head: [u8; KERNELS_HEAD] = array(bytes, 0).ok_or(short)?;
        let count = u32_at(&head, 0).ok_or(short)?;
        let mut cutter = Cutter::new(bytes.get(KERNELS_HEAD..).ok_or(short)?);
        let records = cutter.table(count, KERNEL).ok_or(short)?;
        if !cutter.done() || u32_at(&head, 4) != Some(0) {
            return Err(short);
        }
        Ok(Kernels { count, records })
    }

    /// Number of kernels.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A kernel; nothing if out of range or malformed.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Kernel> {
        let raw: [u8; KERNEL] = record(self.records, index)?;
        let units = u32_at(&raw, 28)?;
        Some(Kernel {
            code_offset: u64_at(&raw, 0)?,
            scratch: u64_at(&raw, 8)?,
            code_bytes: u32_at(&raw, 16)?,
            bufs: u32_at(&raw, 20)?,
            scalars: u32_at(&raw, 24)?,
            tiled: units & 1 == 1,
            work: units >> 1,
        })
    }
}
