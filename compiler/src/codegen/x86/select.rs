//! Kernel IR to instructions: state and values.

use super::facts::Facts;
use super::inst::{Body, Class, Inst, Label, Line, Mem, Opcode, Opnd, Role, Size, V};
use super::isa::Isa;
use crate::dtype::DType;
use crate::kernel::ir::{Kernel, Reg, Type};
use graphmend_targets::features::Features;
use iced_x86::{Code, Mnemonic, Register};
use std::collections::HashMap;

/// Why a kernel cannot be selected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// An operation that this back end leaves to the other one.
    Lacks(String),
    /// A mistake.
    Internal(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        Stop::Internal(message)
    }
}

pub(super) type Res<T = ()> = Result<T, Stop>;

/// A register's value in parts.
///
/// Lanes lie in parts of `per` lanes; the last part has what is left, and lanes beyond hold anything. A part is the smallest
/// vector register that holds its lanes; for `Bool` lanes a mask register, or without such registers a vector of lanes
/// that are all ones or all zeros, of as many bytes as [`Sel::mask_bytes`] says. A scalar is a general register (integers
/// extended to 32 or 64 bits as their type says, `Bool` 0 or 1), or the first lane of a vector register.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub(super) ty: Type,
    /// Lanes of a part.
    pub(super) per: u16,
    /// Empty for a constant that no register holds yet, and for what is read from memory where it is used.
    pub(super) parts: Vec<V>,
    /// The bits of a constant, the same in every lane.
    pub(super) imm: Option<u64>,
    /// Where its one part can be read by those who need it.
    pub(super) mem: Option<Mem>,
}

/// State of the translation of one kernel.
pub(super) struct Sel<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) isa: Isa,
    pub(super) features: Features,
    pub(super) facts: Facts<'k>,
    pub(super) body: Body,
    /// Constants in registers, made before everything else.
    head: Vec<Inst>,
    pub(super) depth: u8,
    pub(super) regs: Vec<Option<Val>>,
    pub(super) vars: Vec<Val>,
    pub(super) bufs: Vec<Option<V>>,
    pub(super) scalars: Vec<Option<V>>,
    pub(super) tile: [Option<V>; 2],
    /// Addresses by buffer and index register.
    pub(super) pointers: HashMap<(u32, Reg), V>,
    constants: HashMap<Vec<u8>, V>,
    masks: HashMap<u64, V>,
    /// Registers that hold values which are read from memory by several users, and the lines at which they were loaded or
    /// used last.
    recent: HashMap<Reg, (V, usize)>,
    /// Bytes of the widest element among vectors of this kernel, but 4 where 8 are not those of all.
    widest: u16,
    /// The kernel has vectors as long as a register. The shorter ones beside them are multiplied in whole registers, too:
    /// next to 512-bit instructions, the second multiplier takes no others.
    whole: bool,
}

/// Lines within which a value that was loaded is kept for its next user.
const NEAR: usize = 24;

impl<'k> Sel<'k> {
    pub(super) fn new(kernel: &'k Kernel, isa: Isa, features: Features) -> Sel<'k> {
        let vectors = kernel.regs.iter().chain(&kernel.vars).filter(|ty| ty.lanes > 1 && ty.elem != DType::Bool);
        let sizes: Vec<u16> = vectors.map(|ty| ty.elem.size() as u16).collect();
        let widest = match (sizes.iter().max(), sizes.iter().min()) {
            (Some(8), Some(8)) => 8,
            (Some(widest), _) => (*widest).min(4),
            _ if isa.evex => 4,
            _ => 1,
        };
        let full = |ty: &Type| ty.lanes as usize * ty.elem.size() >= isa.bytes.into();
        let whole = isa.evex && kernel.vars.iter().any(full);
        Sel {
            kernel,
            isa,
            whole,
            features,
            facts: Facts::of(kernel),
            body: Body::default(),
            head: vec![],
            depth: 0,
            regs: vec![None; kernel.regs.len()],
            vars: vec![],
            bufs: vec![None; kernel.bufs.len()],
            scalars: vec![None; kernel.scalars as usize],
            tile: [None; 2],
            pointers: HashMap::new(),
            constants: HashMap::new(),
            masks: HashMap::new(),
            recent: HashMap::new(),
            widest,
        }
    }

    /// The finished code.
    pub(super) fn finish(mut self) -> Body {
        let heads = self.head.len();
        self.body.lines.splice(0..0, self.head.into_iter().map(Line::Inst));
        self.body.depths.splice(0..0, std::iter::repeat_n(0, heads));
        self.body
    }

    pub(super) fn lacks<T>(&self, what: impl Into<String>) -> Res<T> {
        Err(Stop::Lacks(what.into()))
    }

    // Lines.

    pub(super) fn push(&mut self, inst: Inst) {
        let depth = self.depth;
        self.body.push(Line::Inst(inst), depth);
    }

    pub(super) fn line(&mut self, line: Line) {
        let depth = self.depth;
        self.body.push(line, depth);
    }

    pub(super) fn label(&mut self) -> Label {
        self.body.labels += 1;
        Label(self.body.labels - 1)
    }

    pub(super) fn fresh(&mut self, class: Class) -> V {
        match class {
            Class::Mask if !self.isa.evex => self.body.fresh(Class::Vec),
            _ => self.body.fresh(class),
        }
    }

    /// `to = opcode(sources)`.
    pub(super) fn def(&mut self, opcode: impl Into<Opcode>, to: V, size: Size, sources: &[Opnd]) {
        let ops = [&[Opnd::Reg(to, size)], sources].concat();
        self.push(Inst::new(opcode, Role::Def, &ops));
    }

    /// `to = opcode(to, sources)` for an instruction that names its first source as destination.
    pub(super) fn update(&mut self, opcode: impl Into<Opcode>, to: V, size: Size, sources: &[Opnd]) {
        let ops = [&[Opnd::Reg(to, size)], sources].concat();
        self.push(Inst::new(opcode, Role::Update, &ops));
    }

    /// An instruction that writes no register.
    pub(super) fn effect(&mut self, opcode: impl Into<Opcode>, ops: &[Opnd]) {
        self.push(Inst::new(opcode, Role::Use, ops));
    }

    /// A new vector register.
    pub(super) fn vec(&mut self, opcode: impl Into<Opcode>, size: Size, sources: &[Opnd]) -> V {
        let to = self.fresh(Class::Vec);
        self.def(opcode, to, size, sources);
        to
    }

    /// A new vector register whose lanes outside of `mask` are zero.
    pub(super) fn vec_zeroed(&mut self, opcode: impl Into<Opcode>, size: Size, mask: V, sources: &[Opnd]) -> V {
        let to = self.fresh(Class::Vec);
        let ops = [&[Opnd::Reg(to, size)], sources].concat();
        self.push(Inst::new(opcode, Role::Def, &ops).masked(mask, true));
        to
    }

    /// `base` with the lanes of `mask` replaced.
    pub(super) fn vec_merged(
        &mut self,
        opcode: impl Into<Opcode>,
        size: Size,
        base: V,
        mask: V,
        sources: &[Opnd],
    ) -> V {
        let to = self.copy(base);
        let ops = [&[Opnd::Reg(to, size)], sources].concat();
        self.push(Inst::new(opcode, Role::Def, &ops).masked(mask, false));
        to
    }

    /// A new mask register.
    pub(super) fn mask(&mut self, opcode: impl Into<Opcode>, sources: &[Opnd]) -> V {
        let to = self.fresh(Class::Mask);
        self.def(opcode, to, Size::K, sources);
        to
    }

    /// A new general register.
    pub(super) fn gpr(&mut self, opcode: impl Into<Opcode>, size: Size, sources: &[Opnd]) -> V {
        let to = self.fresh(Class::Gpr);
        self.def(opcode, to, size, sources);
        to
    }

    /// A copy in a register of its own.
    pub(super) fn copy(&mut self, v: V) -> V {
        let class = self.body.classes[v.0 as usize];
        let to = self.fresh(class);
        self.copy_to(to, v);
        to
    }

    pub(super) fn copy_to(&mut self, to: V, from: V) {
        if to == from {
            return;
        }
        match self.body.classes[to.0 as usize] {
            Class::Gpr => self.def(Code::Mov_r64_rm64, to, Size::Q, &[Opnd::Reg(from, Size::Q)]),
            Class::Vec => {
                let full = self.isa.full();
                self.def(Mnemonic::Vmovaps, to, full, &[Opnd::Reg(from, full)]);
            }
            Class::Mask => self.def(Mnemonic::Kmovq, to, Size::K, &[Opnd::Reg(from, Size::K)]),
        }
    }

    // Shapes.

    /// Lanes of a part of vectors of `elem`.
    pub(super) fn per(&self, elem: DType) -> u16 {
        self.isa.bytes / (elem.size() as u16).max(self.widest)
    }

    /// Bytes of a lane of masks that are vectors.
    pub(super) fn mask_bytes(&self) -> usize {
        self.widest.into()
    }

    /// Lanes of each part.
    pub(super) fn lanes_of(lanes: u16, per: u16) -> impl Iterator<Item = u16> {
        (0..lanes.div_ceil(per)).map(move |p| (lanes - p * per).min(per))
    }

    /// The smallest vector register that holds `lanes` lanes of `bytes` bytes.
    pub(super) fn size(lanes: u16, bytes: usize) -> Size {
        match lanes as usize * bytes {
            0..=16 => Size::X,
            17..=32 => Size::Y,
            _ => Size::Z,
        }
    }

    /// The register size of part `p` of a value.
    pub(super) fn part_size(val: &Val, p: usize) -> Size {
        let lanes = (val.ty.lanes - p as u16 * val.per).min(val.per);
        Self::size(lanes, val.ty.elem.size())
    }

    /// The register size in which products of part `p` of a value are computed.
    pub(super) fn product_size(&self, val: &Val, p: usize) -> Size {
        if self.whole && val.ty.lanes > 1 { self.isa.full() } else { Self::part_size(val, p) }
    }

    pub(super) fn class(ty: Type) -> Class {
        match (ty.lanes, ty.elem) {
            (1, elem) if !elem.is_float() => Class::Gpr,
            (_, DType::Bool) => Class::Mask,
            _ => Class::Vec,
        }
    }

    // Constants.

    /// A constant register that holds `bytes` again and again.
    pub(super) fn vector_constant(&mut self, bytes: &[u8]) -> V {
        if let Some(v) = self.constants.get(bytes) {
            return *v;
        }
        let to = self.fresh(Class::Vec);
        let z = Opnd::Reg(to, self.isa.full());
        let inst = if bytes.iter().all(|b| *b == 0) {
            let x = Opnd::Reg(to, Size::X);
            // The instruction reads what it writes, but not its value.
            let zero = Opnd::Fixed(Register::XMM0);
            Inst::new(Mnemonic::Vxorps, Role::Def, &[x, zero, zero])
        } else {
            let at = self.body.constant(bytes);
            let mem = Opnd::Mem(Mem::pool(at));
            match bytes.len() {
                1 => Inst::new(Mnemonic::Vpbroadcastb, Role::Def, &[z, mem]),
                2 => Inst::new(Mnemonic::Vpbroadcastw, Role::Def, &[z, mem]),
                4 => Inst::new(Mnemonic::Vbroadcastss, Role::Def, &[z, mem]),
                8 => Inst::new(Mnemonic::Vbroadcastsd, Role::Def, &[z, mem]),
                _ => Inst::new(Mnemonic::Vmovups, Role::Def, &[z, mem]),
            }
        };
        self.body.again.insert(to, inst.clone());
        self.head.push(inst);
        self.constants.insert(bytes.to_vec(), to);
        to
    }

    /// `bits` in all lanes of `bytes` bytes.
    pub(super) fn splat_constant(&mut self, bits: u64, bytes: usize) -> V {
        self.vector_constant(&bits.to_le_bytes()[..bytes])
    }

    pub(super) fn i32_constant(&mut self, value: i32) -> V {
        self.splat_constant(u64::from(value as u32), 4)
    }

    /// A mask register with these bits.
    pub(super) fn mask_constant(&mut self, bits: u64) -> V {
        if let Some(v) = self.masks.get(&bits) {
            return *v;
        }
        let to = self.fresh(Class::Mask);
        let at = self.body.constant(&bits.to_le_bytes());
        let inst = Inst::new(Mnemonic::Kmovq, Role::Def, &[Opnd::Reg(to, Size::K), Opnd::Mem(Mem::pool(at))]);
        self.body.again.insert(to, inst.clone());
        self.head.push(inst);
        self.masks.insert(bits, to);
        to
    }

    /// The mask of the first `lanes` lanes.
    pub(super) fn first_lanes(&mut self, lanes: u16) -> V {
        self.mask_constant(if lanes >= 64 { u64::MAX } else { (1 << lanes) - 1 })
    }

    /// A general register with a constant.
    pub(super) fn gpr_constant(&mut self, value: u64) -> V {
        match u32::try_from(value) {
            Ok(low) => self.gpr(Code::Mov_r32_imm32, Size::D, &[Opnd::Imm(i64::from(low))]),
            Err(_) if i32::try_from(value as i64).is_ok() => {
                self.gpr(Code::Mov_rm64_imm32, Size::Q, &[Opnd::Imm(value as i64)])
            }
            Err(_) => self.gpr(Code::Mov_r64_imm64, Size::Q, &[Opnd::Imm(value as i64)]),
        }
    }

    // Values.

    pub(super) fn constant(&self, ty: Type, bits: u64) -> Val {
        Val { ty, per: self.per(ty.elem), parts: vec![], imm: Some(bits), mem: None }
    }

    /// A value from its parts, cut as values of its element type are.
    pub(super) fn value(&self, ty: Type, parts: Vec<V>) -> Val {
        Val { ty, per: self.per(ty.elem), parts, imm: None, mem: None }
    }

    pub(super) fn scalar_value(&self, elem: DType, part: V) -> Val {
        self.value(Type::scalar(elem), vec![part])
    }

    /// The value of a register as it is best used: what lies in memory is loaded for several users that follow each other,
    /// and anew for those that come later, rather than to keep a register for all of that time.
    pub(super) fn used(&mut self, reg: Reg) -> Res<Val> {
        let mut val = self.held(reg)?;
        if val.mem.is_none() || self.facts.uses[reg.0 as usize].count == 1 {
            return Ok(val);
        }
        match self.recently(reg) {
            Some(v) => val = Val { parts: vec![v], mem: None, ..val },
            None => self.complete(&mut val),
        }
        self.used_now(reg, val.parts[0]);
        Ok(val)
    }

    /// The register into which a value was loaded that lies in memory, if that is not long ago.
    pub(super) fn recently(&self, reg: Reg) -> Option<V> {
        let now = self.body.lines.len();
        self.recent.get(&reg).filter(|(_, at)| now - at <= NEAR).map(|(v, _)| *v)
    }

    pub(super) fn used_now(&mut self, reg: Reg, v: V) {
        self.recent.insert(reg, (v, self.body.lines.len()));
    }

    /// The value of a register, with all its parts in registers.
    pub(super) fn val(&mut self, reg: Reg) -> Res<Val> {
        let mut val = self.used(reg)?;
        self.complete(&mut val);
        Ok(val)
    }

    /// The value of a register as it is held.
    pub(super) fn held(&self, reg: Reg) -> Res<Val> {
        let found = self.regs.get(reg.0 as usize).and_then(Option::as_ref).cloned();
        found.ok_or_else(|| Stop::Internal(format!("%{} has no value", reg.0)))
    }

    /// Brings constants and what lies in memory into registers.
    pub(super) fn complete(&mut self, val: &mut Val) {
        if !val.parts.is_empty() {
            return;
        }
        if let Some(mem) = val.mem.take() {
            val.parts.push(self.load_part(val.ty, mem));
            return;
        }
        let Some(bits) = val.imm else { return };
        let count = val.ty.lanes.div_ceil(val.per) as usize;
        let part = match Self::class(val.ty) {
            Class::Gpr => {
                let bits = self.extended(val.ty.elem, bits);
                self.gpr_constant(bits)
            }
            Class::Mask => self.mask_of_all(bits != 0),
            Class::Vec => self.splat_constant(bits, val.ty.elem.size()),
        };
        val.parts = vec![part; count];
    }

    /// One part that lies in memory.
    fn load_part(&mut self, ty: Type, mem: Mem) -> V {
        let bytes = ty.elem.size();
        if Self::class(ty) == Class::Gpr {
            return self.gpr(Code::Mov_r32_rm32, Size::D, &[Opnd::Mem(mem)]);
        }
        let size = if ty.lanes == 1 { Size::X } else { Self::size(ty.lanes, bytes) };
        let mnemonic = match (ty.lanes == 1, mem.broadcast, bytes) {
            (true, _, 8) => Mnemonic::Vmovsd,
            (true, ..) => Mnemonic::Vmovss,
            (_, true, 8) => Mnemonic::Vpbroadcastq,
            (_, true, _) => Mnemonic::Vbroadcastss,
            _ => Mnemonic::Vmovups,
        };
        self.vec(mnemonic, size, &[Opnd::Mem(Mem { broadcast: false, ..mem })])
    }

    /// Part `p` as the last source of an instruction that may read memory.
    pub(super) fn source(&mut self, val: &mut Val, p: usize, size: Size) -> Opnd {
        match val.mem {
            Some(mem) if val.parts.is_empty() => Opnd::Mem(mem),
            _ => {
                self.complete(val);
                Opnd::Reg(val.parts[p], size)
            }
        }
    }

    /// The general register of a scalar.
    pub(super) fn int(&mut self, reg: Reg) -> Res<V> {
        let val = self.val(reg)?;
        match val.parts[..] {
            [part] if Self::class(val.ty) == Class::Gpr => Ok(part),
            _ => Err(Stop::Internal(format!("%{} is not a scalar integer", reg.0))),
        }
    }

    pub(super) fn imm(&self, reg: Reg) -> Option<u64> {
        self.regs.get(reg.0 as usize)?.as_ref()?.imm
    }

    /// The bits of a scalar integer as its register holds them.
    pub(super) fn extended(&self, elem: DType, bits: u64) -> u64 {
        match elem {
            DType::I8 => u64::from(bits as u8 as i8 as i32 as u32),
            DType::I16 => u64::from(bits as u16 as i16 as i32 as u32),
            _ => bits,
        }
    }

    /// The register size in which scalars of `elem` are computed.
    pub(super) fn gpr_size(elem: DType) -> Size {
        if elem.size() == 8 { Size::Q } else { Size::D }
    }

    pub(super) fn has(&self, feature: Features) -> bool {
        self.features.contains(feature)
    }
}
