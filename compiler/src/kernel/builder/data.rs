//! The builder's methods for operations, variables and memory.

use super::Builder;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Buf, Cmp, Dot, Horizontal, Imm, Op, Reg, Stmt, Type, UnOp, Var};
use crate::kernel::scalar;

impl Builder {
    /// An `i64` constant.
    pub fn i64(&mut self, v: i64) -> Reg {
        self.imm(DType::I64, v as u64)
    }

    /// An `f32` constant.
    pub fn f32(&mut self, v: f32) -> Reg {
        self.imm(DType::F32, v.to_bits() as u64)
    }

    /// An `f64` constant.
    pub fn f64(&mut self, v: f64) -> Reg {
        self.imm(DType::F64, v.to_bits())
    }

    /// A `bool` constant.
    pub fn bool(&mut self, v: bool) -> Reg {
        self.imm(DType::Bool, v as u64)
    }

    /// A scalar constant from its bits (zero-extended).
    pub fn imm(&mut self, elem: DType, bits: u64) -> Reg {
        self.const_of(Imm { elem, bits }, 1)
    }

    /// A constant, the same in each of `lanes` lanes.
    pub fn const_of(&mut self, imm: Imm, lanes: u16) -> Reg {
        self.pure(Op::Const(imm, lanes))
    }

    /// The integer `v` in every lane of type `ty`: ints wrap, floats round, `Bool` is "not zero".
    pub fn int(&mut self, ty: Type, v: i64) -> Reg {
        self.const_of(Imm { elem: ty.elem, bits: scalar::from_i64(ty.elem, v) }, ty.lanes)
    }

    /// The number `v`, rounded to the element type, in every lane of type `ty`.
    pub fn float(&mut self, ty: Type, v: f64) -> Reg {
        self.const_of(Imm { elem: ty.elem, bits: scalar::from_f64(ty.elem, v) }, ty.lanes)
    }

    /// The `i64` scalar parameter `i`.
    pub fn scalar(&mut self, i: u32) -> Reg {
        self.pure(Op::Scalar(i))
    }

    /// First unit of this call's share.
    pub fn tile_lo(&mut self) -> Reg {
        self.pure(Op::TileLo)
    }

    /// One past the last unit of this call's share.
    pub fn tile_hi(&mut self) -> Reg {
        self.pure(Op::TileHi)
    }

    /// One-operand operation.
    pub fn un(&mut self, op: UnOp, a: Reg) -> Reg {
        self.check(&Op::Un(op, a));
        self.simplify_un(op, a).unwrap_or_else(|| self.pure(Op::Un(op, a)))
    }

    /// Two-operand operation.
    pub fn bin(&mut self, op: BinOp, a: Reg, b: Reg) -> Reg {
        self.check(&Op::Bin(op, a, b));
        let (a, b) = self.ordered(op, a, b);
        self.simplify_bin(op, a, b).unwrap_or_else(|| self.pure(Op::Bin(op, a, b)))
    }

    /// `a + b`.
    pub fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Add, a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Sub, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Mul, a, b)
    }

    /// `a / b`.
    pub fn div(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Div, a, b)
    }

    /// Remainder with the sign of `a`; floats: scalars only (`math::fmod` does vectors).
    pub fn rem(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Rem, a, b)
    }

    /// Smaller of the two.
    pub fn min(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Min, a, b)
    }

    /// Larger of the two.
    pub fn max(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Max, a, b)
    }

    /// Bitwise or logical and.
    pub fn and(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::And, a, b)
    }

    /// Bitwise or logical or.
    pub fn or(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Or, a, b)
    }

    /// Bitwise or logical exclusive or.
    pub fn xor(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Xor, a, b)
    }

    /// Left shift.
    pub fn shl(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Shl, a, b)
    }

    /// Right shift.
    pub fn shr(&mut self, a: Reg, b: Reg) -> Reg {
        self.bin(BinOp::Shr, a, b)
    }

    /// Negation.
    pub fn neg(&mut self, a: Reg) -> Reg {
        self.un(UnOp::Neg, a)
    }

    /// Absolute value.
    pub fn abs(&mut self, a: Reg) -> Reg {
        self.un(UnOp::Abs, a)
    }

    /// Bitwise or logical not.
    pub fn not(&mut self, a: Reg) -> Reg {
        self.un(UnOp::Not, a)
    }

    /// Square root.
    pub fn sqrt(&mut self, a: Reg) -> Reg {
        self.un(UnOp::Sqrt, a)
    }

    /// `a * b + c`.
    pub fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        self.check(&Op::Fma(a, b, c));
        self.simplify_fma(a, b, c).unwrap_or_else(|| self.pure(Op::Fma(a, b, c)))
    }

    /// `c` plus the products of what the lanes of `a` and `b` hold; see [`Op::Dot`].
    pub fn dot(&mut self, dot: Dot, a: Reg, b: Reg, c: Reg) -> Reg {
        self.check(&Op::Dot(dot, a, b, c));
        self.pure(Op::Dot(dot, a, b, c))
    }

    /// Comparison, giving a mask.
    pub fn cmp(&mut self, op: Cmp, a: Reg, b: Reg) -> Reg {
        self.check(&Op::Cmp(op, a, b));
        let (op, a, b) = self.ordered_cmp(op, a, b);
        self.simplify_cmp(op, a, b).unwrap_or_else(|| self.pure(Op::Cmp(op, a, b)))
    }

    /// `a` where `mask`, else `b`.
    pub fn select(&mut self, mask: Reg, a: Reg, b: Reg) -> Reg {
        self.check(&Op::Select(mask, a, b));
        self.simplify_select(mask, a, b).unwrap_or_else(|| self.pure(Op::Select(mask, a, b)))
    }

    /// Conversion of each lane; see [`Op::Cast`].
    pub fn cast(&mut self, to: DType, a: Reg) -> Reg {
        self.check(&Op::Cast(to, a));
        self.simplify_cast(to, a).unwrap_or_else(|| self.pure(Op::Cast(to, a)))
    }

    /// The same bits as another element type of the same size.
    pub fn bitcast(&mut self, to: DType, a: Reg) -> Reg {
        self.check(&Op::Bitcast(to, a));
        self.simplify_bitcast(to, a).unwrap_or_else(|| self.pure(Op::Bitcast(to, a)))
    }

    /// A scalar copied to `lanes` lanes; with one lane, the scalar itself.
    pub fn splat(&mut self, a: Reg, lanes: u16) -> Reg {
        self.check(&Op::Splat(a, lanes));
        if lanes == 1 {
            return a;
        }
        match self.const_of_reg(a) {
            Some(imm) => self.const_of(imm, lanes),
            None => self.pure(Op::Splat(a, lanes)),
        }
    }

    /// One lane as scalar.
    pub fn extract(&mut self, a: Reg, lane: u16) -> Reg {
        self.check(&Op::Extract(a, lane));
        self.simplify_extract(a, lane).unwrap_or_else(|| self.pure(Op::Extract(a, lane)))
    }

    /// `a` with one lane replaced by the scalar `v`.
    pub fn insert(&mut self, a: Reg, lane: u16, v: Reg) -> Reg {
        self.check(&Op::Insert(a, lane, v));
        if self.ty(a).lanes == 1 {
            return v;
        }
        self.pure(Op::Insert(a, lane, v))
    }

    /// Lanes picked from the concatenation of `a` and `b`.
    pub fn shuffle(&mut self, a: Reg, b: Reg, picks: Vec<u16>) -> Reg {
        let op = Op::Shuffle(a, b, picks);
        self.check(&op);
        self.simplify_shuffle(&op).unwrap_or_else(|| self.pure(op))
    }

    /// `0, 1, 2, …` as `I32` or `I64` lanes.
    pub fn iota(&mut self, elem: DType, lanes: u16) -> Reg {
        self.check(&Op::Iota(elem, lanes));
        if lanes == 1 {
            return self.imm(elem, 0);
        }
        self.pure(Op::Iota(elem, lanes))
    }

    /// Reduction over the lanes of a vector; a scalar is its own reduction.
    pub fn horizontal(&mut self, op: Horizontal, a: Reg) -> Reg {
        self.check(&Op::Horizontal(op, a));
        if self.ty(a).lanes == 1 {
            return a;
        }
        self.pure(Op::Horizontal(op, a))
    }

    /// Loads `lanes` elements from element `index + disp` on. Constants in `index` move into `disp`.
    pub fn load(&mut self, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Reg {
        self.check(&Op::Load { buf, index, disp, lanes });
        let (index, disp) = self.split_index(index, disp);
        self.loaded(buf, Op::Load { buf, index, disp, lanes })
    }

    /// Loads `lanes` groups of four bytes from element `index + disp` of a buffer of bytes on.
    pub fn words(&mut self, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Reg {
        self.check(&Op::Words { buf, index, disp, lanes });
        let (index, disp) = self.split_index(index, disp);
        self.loaded(buf, Op::Words { buf, index, disp, lanes })
    }

    /// A load, shared with an equal one before it if nothing was written to the buffer between them.
    fn loaded(&mut self, buf: Buf, op: Op) -> Reg {
        if self.is_read_only(buf) {
            return self.here(op, true);
        }
        if let Some(reg) = self.scopes.last().and_then(|scope| scope.loaded.get(&op)) {
            return *reg;
        }
        let reg = self.here(op.clone(), false);
        self.scopes.last_mut().map(|scope| scope.loaded.insert(op, reg));
        reg
    }

    /// Stores all lanes of `value` from element `index + disp` on. Constants in `index` move into `disp`.
    pub fn store(&mut self, buf: Buf, index: Reg, disp: i64, value: Reg) {
        let (param, ty) = (self.buf_param(buf).clone(), self.ty(value));
        if self.is_read_only(buf) || param.dtype.compute() != ty.elem {
            panic!("kernel {}: store of {ty} into b{} ({:?} {})", self.name, buf.0, param.access, param.dtype);
        }
        if self.ty(index) != Type::scalar(DType::I64) {
            panic!("kernel {}: store at an index of type {}", self.name, self.ty(index));
        }
        let (index, disp) = self.split_index(index, disp);
        let other = |op: &Op| !matches!(op, Op::Load { buf: from, .. } | Op::Words { buf: from, .. } if *from == buf);
        self.scopes.iter_mut().for_each(|scope| scope.loaded.retain(|op, _| other(op)));
        self.push(Stmt::Store { buf, index, disp, value });
    }

    /// A hint that what lies at element `index + disp` is read soon.
    pub fn prefetch(&mut self, buf: Buf, index: Reg, disp: i64) {
        if self.ty(index) != Type::scalar(DType::I64) {
            panic!("kernel {}: a hint at an index of type {}", self.name, self.ty(index));
        }
        let (index, disp) = self.split_index(index, disp);
        self.push(Stmt::Prefetch { buf, index, disp });
    }

    /// The current value of a variable.
    pub fn get(&mut self, var: Var) -> Reg {
        self.here(Op::Get(var), false)
    }

    /// Assigns a variable.
    pub fn set(&mut self, var: Var, value: Reg) {
        let (to, from) = (self.var_ty(var), self.ty(value));
        if to != from {
            panic!("kernel {}: v{} of type {to} set to %{} of type {from}", self.name, var.0, value.0);
        }
        self.push(Stmt::Set(var, value));
    }

    /// Ends the kernel with a status; what follows in the same block is dropped.
    pub fn ret(&mut self, code: u32) {
        self.push(Stmt::Return(code));
    }

    /// Moves constants of an index into the displacement.
    fn split_index(&mut self, index: Reg, disp: i64) -> (Reg, i64) {
        if let Some(c) = self.const_i64(index) {
            return match disp.checked_add(c) {
                Some(sum) => (self.i64(0), sum),
                None => (index, disp),
            };
        }
        if let Some(&Op::Bin(BinOp::Add, base, c)) = self.op_of(index)
            && let Some(c) = self.const_i64(c)
            && let Some(sum) = disp.checked_add(c)
        {
            return (base, sum);
        }
        (index, disp)
    }
}
