//! The kernel IR: structured loops over buffers, with scalars and vectors of any lane count.
//!
//! A kernel is a list of buffer parameters, a number of `i64` scalar parameters and a tree of statements. Registers
//! ([`Reg`]) are assigned once, where they are defined, and visible to the end of the block that defines them and in the
//! blocks nested in it. Mutable state lives in variables ([`Var`]), which back ends turn into SSA.
//!
//! Every operation has one meaning, given by the interpreter (`interp`), for scalars and lane by lane for vectors.

use crate::dtype::DType;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A value type: an element type and a number of lanes (1 is a scalar). `Bool` lanes are masks.
///
/// `F16` and `BF16` never appear as register types: loads and stores of such buffers convert from and to `F32`
/// (round to nearest even).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Type {
    /// Element type.
    pub elem: DType,
    /// Lane count, at least 1.
    pub lanes: u16,
}

/// A register: assigned once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Reg(pub u32);

/// A mutable variable of a fixed type (an accumulator, a running maximum, a search position).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Var(pub u32);

/// Index of a buffer parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Buf(pub u32);

/// How a kernel uses a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Access {
    /// Only loaded from. May alias other read buffers.
    Read,
    /// Stored to, and perhaps loaded from. Aliases nothing else.
    Write,
}

/// A buffer parameter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct BufParam {
    /// Element type in memory.
    pub dtype: DType,
    /// Read or written.
    pub access: Access,
}

/// One-operand operations. Floats unless said otherwise; integer `Neg` wraps, `Abs` of the minimum wraps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum UnOp {
    /// Negation (ints wrap).
    Neg,
    /// Absolute value.
    Abs,
    /// Bitwise not for ints, logical not for `Bool`.
    Not,
    /// Square root.
    Sqrt,
    /// Round down.
    Floor,
    /// Round up.
    Ceil,
    /// Round toward zero.
    Trunc,
    /// Round to nearest, ties to even.
    Round,
    /// Number of one bits (ints).
    Popcnt,
}

/// Two-operand operations on operands of one type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum BinOp {
    /// Sum; ints wrap.
    Add,
    /// Difference; ints wrap.
    Sub,
    /// Product; ints wrap.
    Mul,
    /// Quotient; ints truncate toward zero. Division by zero gives 0 and MIN / -1 wraps: no kernel traps.
    Div,
    /// Remainder with the sign of the dividend (C). By zero: 0. Floats: `fmod`, scalars only.
    Rem,
    /// Smaller; for floats NaN if either is NaN. Of zeros of both signs the interpreter takes -0; a target may take either.
    Min,
    /// Larger; for floats NaN if either is NaN. Of zeros of both signs the interpreter takes +0; a target may take either.
    Max,
    /// Bitwise (ints) or logical (`Bool`) and.
    And,
    /// Or.
    Or,
    /// Exclusive or.
    Xor,
    /// Left shift; a count outside 0..bits (taken as unsigned) gives 0.
    Shl,
    /// Right shift, arithmetic for signed and logical for unsigned types; a count outside 0..bits gives 0
    /// (signed: the sign).
    Shr,
}

/// Comparisons; floats are ordered except `Ne`, which is true when either side is NaN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// Horizontal reductions of a vector to a scalar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Horizontal {
    /// Sum, pairwise: lane i with lane i + n/2, and so on. Where a count is odd, the last lane waits until the others are
    /// one, and is added then: of three lanes `(a + b) + c`, of seven `(((a + d) + (b + e)) + (c + f)) + g`.
    Add,
    /// Product, in the same order.
    Mul,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
}

/// What the lanes of the factors of an [`Op::Dot`] hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Dot {
    /// Four unsigned bytes of the first factor, four signed bytes of the second.
    Bytes,
    /// Two signed 16-bit integers of each factor.
    Words,
}

/// A constant, held as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Imm {
    /// Type of the scalar.
    pub elem: DType,
    /// Its little-endian bits, zero-extended (floats: IEEE bits).
    pub bits: u64,
}

/// What computes a register.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Op {
    /// A constant, the same in every lane.
    Const(Imm, u16),
    /// The i64 scalar parameter with this index.
    Scalar(u32),
    /// First unit of this call's share of the work (`i64`); see [`Kernel::tiled`].
    TileLo,
    /// One past the last unit of this call's share of the work (`i64`).
    TileHi,
    /// One-operand operation.
    Un(UnOp, Reg),
    /// Two-operand operation.
    Bin(BinOp, Reg, Reg),
    /// `a * b + c` with one rounding where the target has it (interpreter: one rounding); floats.
    Fma(Reg, Reg, Reg),
    /// Sums of products of small integers, exact but for the 32 bits in which they wrap: lane by lane the third operand
    /// (`I32`) plus the products of what the lanes of the first two (`U32`) hold, the lowest bits with the lowest.
    Dot(Dot, Reg, Reg, Reg),
    /// Comparison, giving `Bool` lanes.
    Cmp(Cmp, Reg, Reg),
    /// Lane-wise choice: mask, value where true, value where false.
    Select(Reg, Reg, Reg),
    /// Conversion of each lane. Float to int truncates and saturates (NaN gives 0); int to narrower int wraps; to
    /// `Bool` is "not equal zero"; `F16` and `BF16` as target: round the `F32`/`F64` value to that precision and give it
    /// back as `F32` (the register type is then `F32`).
    Cast(DType, Reg),
    /// The same bits as another element type of the same size (register types only).
    Bitcast(DType, Reg),
    /// A scalar copied to every lane.
    Splat(Reg, u16),
    /// One lane as scalar.
    Extract(Reg, u16),
    /// The vector with one lane replaced by a scalar.
    Insert(Reg, u16, Reg),
    /// Lanes picked from the concatenation of two vectors of one type.
    Shuffle(Reg, Reg, Vec<u16>),
    /// `0, 1, 2, …` as i64 or i32 lanes.
    Iota(DType, u16),
    /// Reduction over lanes.
    Horizontal(Horizontal, Reg),
    /// Load `lanes` consecutive elements at element index `index + disp`.
    Load {
        /// From which buffer.
        buf: Buf,
        /// Element index (`i64`).
        index: Reg,
        /// Constant added to the index.
        disp: i64,
        /// Number of consecutive elements.
        lanes: u16,
    },
    /// Load `lanes` groups of four consecutive bytes, from element `index + disp` of a buffer of `I8` or `U8` on, as `U32`
    /// lanes whose lowest bits are the first byte.
    Words {
        /// From which buffer.
        buf: Buf,
        /// Element index (`i64`) of the first byte.
        index: Reg,
        /// Constant added to the index.
        disp: i64,
        /// Number of groups.
        lanes: u16,
    },
    /// Current value of a variable.
    Get(Var),
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// Define a register.
    Let(Reg, Op),
    /// Assign a variable.
    Set(Var, Reg),
    /// Store all lanes of `value` to consecutive elements at `index + disp`.
    Store {
        /// Into which buffer.
        buf: Buf,
        /// Element index (`i64`).
        index: Reg,
        /// Constant added to the index.
        disp: i64,
        /// Value; its element type is the buffer's (`F32` for half buffers, `Bool` for bool buffers).
        value: Reg,
    },
    /// A hint that what lies at `index + disp` is read soon, which need not be inside of the buffer: it changes nothing but the
    /// time that takes. Targets without such a hint leave it out.
    Prefetch {
        /// Of which buffer.
        buf: Buf,
        /// Element index (`i64`).
        index: Reg,
        /// Constant added to the index.
        disp: i64,
    },
    /// `for ivar in (lo..hi).step_by(step)`; bounds are `i64`, evaluated once; `step` ≥ 1.
    For {
        /// Loop variable (`i64`), defined inside the body.
        ivar: Reg,
        /// First value.
        lo: Reg,
        /// Bound, not reached.
        hi: Reg,
        /// Increment.
        step: i64,
        /// Body.
        body: Vec<Stmt>,
    },
    /// Two-way branch on a scalar `Bool`.
    If {
        /// Condition.
        cond: Reg,
        /// When true.
        then: Vec<Stmt>,
        /// When false.
        other: Vec<Stmt>,
    },
    /// Runs `head`, leaves when `cond` is false, else runs `body` and repeats. Registers that `head` defines are visible in
    /// `body` too, as if it were nested in it; `cond` is defined in `head` or outside the loop.
    While {
        /// Computes the condition.
        head: Vec<Stmt>,
        /// Scalar `Bool`.
        cond: Reg,
        /// Body.
        body: Vec<Stmt>,
    },
    /// Ends the kernel with a status; 0 is success. 1: an index was out of range.
    Return(u32),
}

/// A kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Name for people: source operators and shape class.
    pub name: String,
    /// Buffer parameters.
    pub bufs: Vec<BufParam>,
    /// Number of i64 scalar parameters.
    pub scalars: u32,
    /// The kernel may be called for parts of its work: it computes units `TileLo..TileHi`, and calls with disjoint ranges
    /// write disjoint bytes. Otherwise one call does everything.
    pub tiled: bool,
    /// Types of registers, by number.
    pub regs: Vec<Type>,
    /// Types of variables, by number. Variables start as zero.
    pub vars: Vec<Type>,
    /// Statements.
    pub body: Vec<Stmt>,
}
