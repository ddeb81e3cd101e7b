//! The typing rules of operations, shared by builder, verifier and text parser.

use super::ir::{BinOp, BufParam, Cmp, Op, Reg, Type, UnOp, Var};
use crate::dtype::DType;
use alloc::format;
use alloc::string::{String, ToString};

impl Type {
    /// A scalar type.
    pub fn scalar(elem: DType) -> Type {
        Type { elem, lanes: 1 }
    }

    /// A vector type (or scalar, with one lane).
    pub fn vector(elem: DType, lanes: u16) -> Type {
        Type { elem, lanes }
    }

    /// The same lanes with another element type.
    pub fn with_elem(self, elem: DType) -> Type {
        Type { elem, ..self }
    }

    /// The same element type with another lane count.
    pub fn with_lanes(self, lanes: u16) -> Type {
        Type { lanes, ..self }
    }

    /// Whether registers and variables may have this type.
    pub fn is_register_type(self) -> bool {
        self.lanes >= 1 && self.elem == self.elem.compute()
    }
}

impl core::fmt::Display for Type {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.lanes == 1 { write!(f, "{}", self.elem) } else { write!(f, "{}x{}", self.elem, self.lanes) }
    }
}

/// Calls `f` with each register that the operation reads.
pub fn operands(op: &Op, mut f: impl FnMut(Reg)) {
    match op {
        Op::Const(..) | Op::Scalar(_) | Op::TileLo | Op::TileHi | Op::Iota(..) | Op::Get(_) => {}
        Op::Un(_, a)
        | Op::Cast(_, a)
        | Op::Bitcast(_, a)
        | Op::Splat(a, _)
        | Op::Extract(a, _)
        | Op::Horizontal(_, a)
        | Op::Load { index: a, .. }
        | Op::Words { index: a, .. } => f(*a),
        Op::Bin(_, a, b) | Op::Cmp(_, a, b) | Op::Insert(a, _, b) | Op::Shuffle(a, b, _) => {
            f(*a);
            f(*b);
        }
        Op::Fma(a, b, c) | Op::Dot(_, a, b, c) | Op::Select(a, b, c) => {
            f(*a);
            f(*b);
            f(*c);
        }
    }
}

/// Replaces each register that the operation reads by `f` of it.
pub fn map_operands(op: &mut Op, mut f: impl FnMut(Reg) -> Reg) {
    match op {
        Op::Const(..) | Op::Scalar(_) | Op::TileLo | Op::TileHi | Op::Iota(..) | Op::Get(_) => {}
        Op::Un(_, a)
        | Op::Cast(_, a)
        | Op::Bitcast(_, a)
        | Op::Splat(a, _)
        | Op::Extract(a, _)
        | Op::Horizontal(_, a)
        | Op::Load { index: a, .. }
        | Op::Words { index: a, .. } => *a = f(*a),
        Op::Bin(_, a, b) | Op::Cmp(_, a, b) | Op::Insert(a, _, b) | Op::Shuffle(a, b, _) => {
            *a = f(*a);
            *b = f(*b);
        }
        Op::Fma(a, b, c) | Op::Dot(_, a, b, c) | Op::Select(a, b, c) => {
            *a = f(*a);
            *b = f(*b);
            *c = f(*c);
        }
    }
}

/// What the typing rules need to know of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// Buffer parameters.
    pub bufs: &'a [BufParam],
    /// Number of scalar parameters.
    pub scalars: u32,
    /// Types of variables.
    pub vars: &'a [Type],
}

/// The result type of an operation, or why the operation is wrong. `reg` gives the type of an operand.
pub fn result_type(env: &Env<'_>, op: &Op, reg: &dyn Fn(Reg) -> Result<Type, String>) -> Result<Type, String> {
    match op {
        Op::Const(imm, lanes) => {
            let ty = check(Type::vector(imm.elem, *lanes))?;
            let bits = 8 * imm.elem.size() as u32;
            if bits < 64 && imm.bits >> bits != 0 {
                return Err(format!("constant {:#x} has more bits than {}", imm.bits, imm.elem));
            }
            if imm.elem == DType::Bool && imm.bits > 1 {
                return Err(format!("bool constant {:#x} is neither 0 nor 1", imm.bits));
            }
            Ok(ty)
        }
        Op::Scalar(i) if *i < env.scalars => Ok(Type::scalar(DType::I64)),
        Op::Scalar(i) => Err(format!("scalar parameter {i} of {}", env.scalars)),
        Op::TileLo | Op::TileHi => Ok(Type::scalar(DType::I64)),
        Op::Un(un, a) => {
            let ty = reg(*a)?;
            let ok = match un {
                UnOp::Neg | UnOp::Abs => ty.elem != DType::Bool,
                UnOp::Not => !ty.elem.is_float(),
                UnOp::Sqrt | UnOp::Floor | UnOp::Ceil | UnOp::Trunc | UnOp::Round => ty.elem.is_float(),
                UnOp::Popcnt => ty.elem.is_int(),
            };
            if ok { Ok(ty) } else { Err(format!("no {un:?} of {ty}")) }
        }
        Op::Bin(bin, a, b) => {
            let ty = same(reg(*a)?, reg(*b)?)?;
            let ok = match bin {
                BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Min | BinOp::Max => ty.elem != DType::Bool,
                BinOp::Rem => ty.elem.is_int() || (ty.elem.is_float() && ty.lanes == 1),
                BinOp::And | BinOp::Or | BinOp::Xor => !ty.elem.is_float(),
                BinOp::Shl | BinOp::Shr => ty.elem.is_int(),
            };
            if ok { Ok(ty) } else { Err(format!("no {bin:?} of {ty}")) }
        }
        Op::Fma(a, b, c) => {
            let ty = same(same(reg(*a)?, reg(*b)?)?, reg(*c)?)?;
            if ty.elem.is_float() { Ok(ty) } else { Err(format!("no fma of {ty}")) }
        }
        Op::Dot(_, a, b, c) => {
            let (ty, sum) = (same(reg(*a)?, reg(*b)?)?, reg(*c)?);
            let fits = ty.elem == DType::U32 && sum == ty.with_elem(DType::I32);
            if fits { Ok(sum) } else { Err(format!("no dot product of {ty} added to {sum}")) }
        }
        Op::Cmp(cmp, a, b) => {
            let ty = same(reg(*a)?, reg(*b)?)?;
            if ty.elem == DType::Bool && !matches!(cmp, Cmp::Eq | Cmp::Ne) {
                return Err(format!("no {cmp:?} of {ty}"));
            }
            Ok(ty.with_elem(DType::Bool))
        }
        Op::Select(mask, a, b) => {
            let (mask, ty) = (reg(*mask)?, same(reg(*a)?, reg(*b)?)?);
            if mask != ty.with_elem(DType::Bool) {
                return Err(format!("select of {ty} by {mask}"));
            }
            Ok(ty)
        }
        Op::Cast(to, a) => {
            let ty = reg(*a)?;
            if *to != to.compute() && !ty.elem.is_float() {
                return Err(format!("cast of {ty} to {to}: only floats round to half types"));
            }
            Ok(ty.with_elem(to.compute()))
        }
        Op::Bitcast(to, a) => {
            let ty = reg(*a)?;
            let plain = *to == to.compute() && *to != DType::Bool && ty.elem != DType::Bool;
            if !plain || to.size() != ty.elem.size() {
                return Err(format!("bitcast of {ty} to {to}"));
            }
            Ok(ty.with_elem(*to))
        }
        Op::Splat(a, lanes) => check(scalar(reg(*a)?)?.with_lanes(*lanes)),
        Op::Extract(a, lane) => lane_of(reg(*a)?, *lane),
        Op::Insert(a, lane, v) => {
            let ty = reg(*a)?;
            same(lane_of(ty, *lane)?, reg(*v)?)?;
            Ok(ty)
        }
        Op::Shuffle(a, b, picks) => {
            let ty = same(reg(*a)?, reg(*b)?)?;
            if let Some(pick) = picks.iter().find(|p| **p as u32 >= 2 * ty.lanes as u32) {
                return Err(format!("shuffle picks lane {pick} of two {ty}"));
            }
            let lanes = u16::try_from(picks.len()).map_err(|_| "shuffle of more than 65535 lanes".to_string())?;
            check(ty.with_lanes(lanes))
        }
        Op::Iota(elem @ (DType::I32 | DType::I64), lanes) => check(Type::vector(*elem, *lanes)),
        Op::Iota(elem, _) => Err(format!("no iota of {elem}")),
        Op::Horizontal(_, a) => {
            let ty = reg(*a)?;
            if ty.elem == DType::Bool { Err(format!("no horizontal operation on {ty}")) } else { Ok(ty.with_lanes(1)) }
        }
        Op::Load { buf, index, lanes, .. } => {
            let param = env.bufs.get(buf.0 as usize).ok_or_else(|| format!("no buffer b{}", buf.0))?;
            index_type(reg(*index)?)?;
            check(Type::vector(param.dtype.compute(), *lanes))
        }
        Op::Words { buf, index, lanes, .. } => {
            let param = env.bufs.get(buf.0 as usize).ok_or_else(|| format!("no buffer b{}", buf.0))?;
            index_type(reg(*index)?)?;
            match param.dtype {
                DType::I8 | DType::U8 => check(Type::vector(DType::U32, *lanes)),
                other => Err(format!("no words of a buffer of {other}")),
            }
        }
        Op::Get(var) => var_type(env, *var),
    }
}

/// The type of a variable.
pub fn var_type(env: &Env<'_>, var: Var) -> Result<Type, String> {
    env.vars.get(var.0 as usize).copied().ok_or_else(|| format!("no variable v{}", var.0))
}

/// Whether a register of this type can be an index or a bound.
pub fn index_type(ty: Type) -> Result<(), String> {
    if ty == Type::scalar(DType::I64) { Ok(()) } else { Err(format!("an index or a bound must be i64, not {ty}")) }
}

/// Whether a register of this type can be a condition.
pub fn cond_type(ty: Type) -> Result<(), String> {
    if ty == Type::scalar(DType::Bool) { Ok(()) } else { Err(format!("a condition must be bool, not {ty}")) }
}

fn check(ty: Type) -> Result<Type, String> {
    if ty.is_register_type() { Ok(ty) } else { Err(format!("no register has type {ty}")) }
}

fn same(a: Type, b: Type) -> Result<Type, String> {
    if a == b { Ok(a) } else { Err(format!("operands of types {a} and {b}")) }
}

fn scalar(ty: Type) -> Result<Type, String> {
    if ty.lanes == 1 { Ok(ty) } else { Err(format!("{ty} where a scalar is needed")) }
}

fn lane_of(ty: Type, lane: u16) -> Result<Type, String> {
    if lane < ty.lanes { Ok(ty.with_lanes(1)) } else { Err(format!("lane {lane} of {ty}")) }
}
