//! The function under construction, and how register values are laid out in pieces.

use super::isa::Isa;
use super::legal::Caps;
use crate::dtype::DType;
use crate::kernel::ir::{Kernel, Op, Reg, Type};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type as Clif, Value, types};
use cranelift_frontend::{FunctionBuilder, Variable};
use std::collections::HashMap;

/// Result inside the back end; the text becomes an internal error.
pub(super) type Res<T = ()> = Result<T, String>;

/// A register's value in pieces.
///
/// Which lanes a piece holds follows from the number of lanes and `width` alone: see [`chunks`]. Lanes of integers and
/// floats are as wide as their type. `Bool` lanes in vector pieces are masks, all zeros or all ones, as wide as the lanes
/// of what they were made from; single `Bool` lanes are 0 or 1 in one byte whatever `width` says.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub(super) ty: Type,
    /// Bytes of a lane in vector pieces.
    pub(super) width: u8,
    /// Empty for a scalar integer or `Bool` constant that has not been asked for.
    pub(super) pieces: Vec<Value>,
    /// The bits of a constant, the same in every lane.
    pub(super) imm: Option<u64>,
}

/// Lanes held by one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Chunk {
    /// First lane.
    pub(super) first: u16,
    /// Number of lanes.
    pub(super) lanes: u16,
    /// Held in a 128-bit vector, whose lanes past `lanes` hold anything; else a scalar.
    pub(super) vector: bool,
}

/// Lane width of masks where nothing else decides.
pub(super) const MASK_WIDTH: u8 = 4;

/// How `lanes` lanes of `width` bytes are cut into pieces: 16 bytes as long as they last, then 8, then 4 (each a vector, if
/// it has more than one lane), then single lanes.
pub(super) fn chunks(caps: &Caps, lanes: u16, width: u8) -> Vec<Chunk> {
    let mut out = Vec::new();
    let mut first = 0;
    while first < lanes {
        let left = lanes - first;
        let fit = [16u8, 8, 4].into_iter().map(|bytes| (bytes / width) as u16).find(|n| *n > 1 && *n <= left);
        let chunk = match fit {
            Some(n) if caps.vectors && lanes > 1 => Chunk { first, lanes: n, vector: true },
            _ => Chunk { first, lanes: 1, vector: false },
        };
        out.push(chunk);
        first += chunk.lanes;
    }
    out
}

/// The integer element type of a width in bytes.
pub(super) fn int_of(width: u8, signed: bool) -> DType {
    match (width, signed) {
        (1, true) => DType::I8,
        (2, true) => DType::I16,
        (4, true) => DType::I32,
        (_, true) => DType::I64,
        (1, false) => DType::U8,
        (2, false) => DType::U16,
        (4, false) => DType::U32,
        (_, false) => DType::U64,
    }
}

/// Cranelift's integer type of a width in bytes.
pub(super) fn clif_int(width: u8) -> Clif {
    match width {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

/// Cranelift's scalar type of an element type. Half types are bits.
pub(super) fn clif_scalar(elem: DType) -> Clif {
    match elem {
        DType::F32 => types::F32,
        DType::F64 => types::F64,
        other => clif_int(other.size() as u8),
    }
}

/// Cranelift's 128-bit vector of integers of a width in bytes.
pub(super) fn clif_int_vector(width: u8) -> Clif {
    match width {
        1 => types::I8X16,
        2 => types::I16X8,
        4 => types::I32X4,
        _ => types::I64X2,
    }
}

/// Cranelift's 128-bit vector of an element type; `Bool` as a mask of `width` bytes a lane.
pub(super) fn clif_vector(elem: DType, width: u8) -> Clif {
    match elem {
        DType::F32 => types::F32X4,
        DType::F64 => types::F64X2,
        _ => clif_int_vector(width),
    }
}

/// Flags of every access: nothing traps; nothing is known about alignment.
pub(super) fn access_flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_endianness(Endianness::Little)
}

/// State of the translation of one kernel.
pub(super) struct Fx<'a, 'f> {
    pub(super) kernel: &'a Kernel,
    pub(super) caps: &'a Caps,
    pub(super) isa: &'a Isa,
    pub(super) b: FunctionBuilder<'f>,
    /// Values of registers, by number.
    pub(super) regs: Vec<Option<Val>>,
    /// What defines each register; `None` for loop variables.
    pub(super) defs: Vec<Option<&'a Op>>,
    /// Variables of Cranelift, one for each piece.
    pub(super) vars: Vec<Vec<Variable>>,
    /// Addresses of the buffers.
    pub(super) bufs: Vec<Option<Value>>,
    pub(super) scalars: Vec<Option<Value>>,
    pub(super) tile_lo: Option<Value>,
    pub(super) tile_hi: Option<Value>,
    /// For each register that indices are made from: the buffers it goes into and the number of accesses.
    pub(super) pointer_plan: HashMap<u32, Vec<(u32, u32)>>,
    /// Addresses made from them, by buffer and register.
    pub(super) pointers: HashMap<(u32, u32), Value>,
    /// Vector constants of the statement at hand, so that the pieces of one operation share them.
    pub(super) constants: HashMap<(Clif, u64), Value>,
    /// Scalar quotients by constants that are in scope, by dividend and divisor: a remainder needs the same.
    pub(super) quotients: HashMap<(u32, u64), Value>,
}

impl Fx<'_, '_> {
    pub(super) fn chunks_of(&self, val: &Val) -> Vec<Chunk> {
        chunks(self.caps, val.ty.lanes, val.width)
    }

    /// An integer constant of `width` bytes, made where it is used.
    pub(super) fn iconst(&mut self, width: u8, bits: u64) -> Value {
        let mask = if width >= 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        self.b.ins().iconst(clif_int(width), (bits & mask) as i64)
    }

    /// A scalar constant.
    pub(super) fn scalar_const(&mut self, elem: DType, bits: u64) -> Value {
        match elem {
            DType::F32 => self.b.ins().f32const(f32::from_bits(bits as u32)),
            DType::F64 => self.b.ins().f64const(f64::from_bits(bits)),
            other => self.iconst(other.size() as u8, bits),
        }
    }

    /// A vector with `bits` in every lane of `width` bytes, of type `ty`.
    pub(super) fn splat_const(&mut self, ty: Clif, width: u8, bits: u64) -> Value {
        if let Some(value) = self.constants.get(&(ty, bits)) {
            return *value;
        }
        let value = self.new_splat_const(ty, width, bits);
        self.constants.insert((ty, bits), value);
        value
    }

    fn new_splat_const(&mut self, ty: Clif, width: u8, bits: u64) -> Value {
        if self.caps.splat_constants() {
            let lane = if ty.lane_type() == types::F32 {
                self.scalar_const(DType::F32, bits)
            } else if ty.lane_type() == types::F64 {
                self.scalar_const(DType::F64, bits)
            } else {
                self.iconst(width, bits)
            };
            return self.b.ins().splat(ty, lane);
        }
        let lane = bits.to_le_bytes();
        let bytes: Vec<u8> = (0..16).map(|i| lane[i % width as usize]).collect();
        self.vconst(ty, bytes)
    }

    /// A vector constant from its sixteen bytes.
    pub(super) fn vconst(&mut self, ty: Clif, bytes: Vec<u8>) -> Value {
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(ty, constant)
    }

    /// Bits of one vector as another type.
    pub(super) fn as_type(&mut self, value: Value, ty: Clif) -> Value {
        if self.b.func.dfg.value_type(value) == ty {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.b.ins().bitcast(ty, flags, value)
    }

    /// The operand of a float comparison, in a register. The old encoding of the comparison reads vectors from memory only
    /// where they are aligned, which the code generator does not ask for when it merges a load into it.
    pub(super) fn loaded(&mut self, value: Value, vector: bool) -> Value {
        if !vector || !self.caps.x86() {
            return value;
        }
        let ty = self.b.func.dfg.value_type(value);
        let bits = self.as_type(value, types::I8X16);
        self.as_type(bits, ty)
    }

    /// A constant in all lanes.
    pub(super) fn constant(&mut self, ty: Type, bits: u64) -> Val {
        let width = if ty.elem == DType::Bool { MASK_WIDTH } else { ty.elem.size() as u8 };
        self.constant_of_width(ty, bits, width)
    }

    pub(super) fn constant_of_width(&mut self, ty: Type, bits: u64, width: u8) -> Val {
        let mut val = Val { ty, width, pieces: Vec::new(), imm: Some(bits) };
        if ty.lanes == 1 && !ty.elem.is_float() {
            return val;
        }
        let lane_bits = if ty.elem == DType::Bool && bits != 0 { u64::MAX } else { bits };
        let mut scalar = None;
        for chunk in self.chunks_of(&val) {
            let piece = match (chunk.vector, scalar) {
                (true, _) => self.splat_const(clif_vector(ty.elem, width), width, lane_bits),
                (false, Some(piece)) => piece,
                (false, None) => self.scalar_const(ty.elem, bits),
            };
            if !chunk.vector {
                scalar = Some(piece);
            }
            val.pieces.push(piece);
        }
        val
    }

    /// The value of a register, with all its pieces.
    pub(super) fn val(&mut self, reg: Reg) -> Res<Val> {
        let found = self.regs.get(reg.0 as usize).and_then(Option::as_ref).cloned();
        let mut val = found.ok_or_else(|| format!("%{} has no value", reg.0))?;
        self.complete(&mut val);
        Ok(val)
    }

    /// Gives a scalar constant its piece.
    fn complete(&mut self, val: &mut Val) {
        if let (true, Some(bits)) = (val.pieces.is_empty(), val.imm) {
            let piece = self.scalar_const(val.ty.elem, bits);
            val.pieces.push(piece);
        }
    }

    /// The bits of a register that is known to be constant (in all lanes).
    pub(super) fn imm(&self, reg: Reg) -> Option<u64> {
        self.regs.get(reg.0 as usize)?.as_ref()?.imm
    }

    /// The value of a scalar register.
    pub(super) fn scalar(&mut self, reg: Reg) -> Res<Value> {
        let val = self.val(reg)?;
        match val.pieces[..] {
            [piece] if val.ty.lanes == 1 => Ok(piece),
            _ => Err(format!("%{} is not a scalar", reg.0)),
        }
    }

    /// A scalar value from one piece.
    pub(super) fn one(&self, elem: DType, piece: Value) -> Val {
        let width = if elem == DType::Bool { MASK_WIDTH } else { elem.size() as u8 };
        Val { ty: Type { elem, lanes: 1 }, width, pieces: vec![piece], imm: None }
    }

    /// Applies `f` to each piece; the result has the same lanes, of the same width.
    pub(super) fn map(
        &mut self,
        elem: DType,
        args: &[&Val],
        mut f: impl FnMut(&mut Self, &[Value], Chunk) -> Res<Value>,
    ) -> Res<Val> {
        let first = args.first().ok_or("an operation without operands")?;
        let chunks = self.chunks_of(first);
        let mut pieces = Vec::with_capacity(chunks.len());
        for (i, chunk) in chunks.into_iter().enumerate() {
            let mut values = Vec::with_capacity(args.len());
            for arg in args {
                values.push(*arg.pieces.get(i).ok_or("operands are cut differently")?);
            }
            pieces.push(f(self, &values, chunk)?);
        }
        Ok(Val { ty: first.ty.with_elem(elem), width: first.width, pieces, imm: None })
    }

    /// Applies `f` lane by lane; lanes of the result have type `elem`.
    pub(super) fn each_lane(
        &mut self,
        elem: DType,
        args: &[&Val],
        mut f: impl FnMut(&mut Self, &[Value]) -> Res<Value>,
    ) -> Res<Val> {
        let lanes = args.first().ok_or("an operation without operands")?.ty.lanes;
        let mut out = Vec::with_capacity(lanes as usize);
        for lane in 0..lanes {
            let mut values = Vec::with_capacity(args.len());
            for arg in args {
                values.push(self.lane(arg, lane)?);
            }
            out.push(f(self, &values)?);
        }
        let width = match (elem, args) {
            (DType::Bool, [arg, ..]) => arg.width,
            _ => elem.size() as u8,
        };
        self.build(Type { elem, lanes }, width, &out)
    }

    /// Lane-wise choice between two vectors by a mask of whole lanes.
    pub(super) fn blend(&mut self, mask: Value, yes: Value, no: Value) -> Value {
        let ty = self.b.func.dfg.value_type(yes);
        if self.caps.blend() {
            let (mask, yes, no) =
                (self.as_type(mask, types::I8X16), self.as_type(yes, types::I8X16), self.as_type(no, types::I8X16));
            let out = self.b.ins().blendv(mask, yes, no);
            return self.as_type(out, ty);
        }
        let mask = self.as_type(mask, ty);
        self.b.ins().bitselect(mask, yes, no)
    }
}
