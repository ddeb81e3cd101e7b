//! Loads and stores.

use super::inst::{Class, Inst, Mem, Opnd, Role, Size, V};
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{Buf, Reg, Type};
use iced_x86::{Code, Mnemonic};

/// The move of vectors with lanes of some bytes that may have a mask.
fn masked_move(bytes: usize) -> Mnemonic {
    match bytes {
        1 => Mnemonic::Vmovdqu8,
        2 => Mnemonic::Vmovdqu16,
        4 => Mnemonic::Vmovups,
        _ => Mnemonic::Vmovupd,
    }
}

impl Sel<'_> {
    /// A load, or where it can be read by the one instruction that needs it.
    pub(super) fn load(&mut self, reg: Reg, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Res<Val> {
        let dtype = self.kernel.bufs[buf.0 as usize].dtype;
        let ty = Type::vector(dtype.compute(), lanes);
        let mem = self.address(buf, index, disp, i64::from(lanes) * dtype.size() as i64)?;
        let plain = dtype == ty.elem && (dtype.is_float() || matches!(dtype, DType::I32 | DType::U32));
        if plain && self.steady(reg, buf) && self.movable(&mem) && self.reads_later(reg, ty) {
            return Ok(Val { mem: Some(mem), ..self.value(ty, vec![]) });
        }
        if lanes == 1 {
            return self.load_scalar(dtype, mem);
        }
        let per = self.per(ty.elem);
        let mut parts = vec![];
        for (p, count) in Self::lanes_of(lanes, per).enumerate() {
            let at = mem.offset(p as i32 * i32::from(per) * dtype.size() as i32);
            parts.push(match dtype {
                DType::F16 => {
                    let bits = self.load_lanes(2, count, at);
                    let to = Self::size(count, 4);
                    self.vec(Mnemonic::Vcvtph2ps, to, &[Opnd::Reg(bits, half_size(to))])
                }
                DType::BF16 => {
                    let bits = self.load_lanes(2, count, at);
                    self.widen_bf16(bits, Self::size(count, 4))
                }
                DType::Bool => {
                    let bytes = self.load_lanes(1, count, at);
                    self.mask_of_bytes(bytes, count)
                }
                _ => self.load_lanes(dtype.size(), count, at),
            });
        }
        Ok(self.value(ty, parts))
    }

    /// A load of groups of four bytes.
    pub(super) fn words(&mut self, reg: Reg, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Res<Val> {
        let ty = Type::vector(DType::U32, lanes);
        let mem = self.address(buf, index, disp, 4 * i64::from(lanes))?;
        if self.steady(reg, buf) && self.movable(&mem) && self.reads_later(reg, ty) {
            return Ok(Val { mem: Some(mem), ..self.value(ty, vec![]) });
        }
        if lanes == 1 {
            return self.load_scalar(DType::U32, mem);
        }
        let per = self.per(DType::U32);
        let counts = Self::lanes_of(lanes, per).enumerate();
        let parts =
            counts.map(|(p, count)| self.load_lanes(4, count, mem.offset(4 * p as i32 * i32::from(per)))).collect();
        Ok(self.value(ty, parts))
    }

    /// Is it enough to read the value where it is used?
    fn reads_later(&self, reg: Reg, ty: Type) -> bool {
        let uses = self.facts.uses[reg.0 as usize];
        let here = uses.together && uses.block == self.facts.places[reg.0 as usize].block;
        if ty.lanes == 1 {
            return uses.splats && here;
        }
        // Whole registers only: a tail must not read beyond its end.
        here && ty.lanes == self.per(ty.elem)
    }

    fn load_scalar(&mut self, dtype: DType, mem: Mem) -> Res<Val> {
        let mem = Opnd::Mem(mem);
        let part = match dtype {
            DType::F32 => self.vec(Mnemonic::Vmovss, Size::X, &[mem]),
            DType::F64 => self.vec(Mnemonic::Vmovsd, Size::X, &[mem]),
            DType::F16 | DType::BF16 => {
                let bits = self.gpr(Code::Movzx_r32_rm16, Size::D, &[mem]);
                let bits = self.vec(Mnemonic::Vmovd, Size::X, &[Opnd::Reg(bits, Size::D)]);
                match dtype {
                    DType::F16 => self.vec(Mnemonic::Vcvtph2ps, Size::X, &[Opnd::Reg(bits, Size::X)]),
                    _ => self.widen_bf16(bits, Size::X),
                }
            }
            DType::I8 => self.gpr(Code::Movsx_r32_rm8, Size::D, &[mem]),
            DType::U8 | DType::Bool => self.gpr(Code::Movzx_r32_rm8, Size::D, &[mem]),
            DType::I16 => self.gpr(Code::Movsx_r32_rm16, Size::D, &[mem]),
            DType::U16 => self.gpr(Code::Movzx_r32_rm16, Size::D, &[mem]),
            DType::I32 | DType::U32 => self.gpr(Code::Mov_r32_rm32, Size::D, &[mem]),
            DType::I64 | DType::U64 => self.gpr(Code::Mov_r64_rm64, Size::Q, &[mem]),
        };
        Ok(self.scalar_value(dtype.compute(), part))
    }

    /// Exactly `count` lanes of `bytes` bytes; further lanes become zero.
    fn load_lanes(&mut self, bytes: usize, count: u16, at: Mem) -> V {
        let size = Self::size(count, bytes);
        let mem = Opnd::Mem(at);
        match count as usize * bytes {
            16 | 32 | 64 => self.vec(Mnemonic::Vmovups, size, &[mem]),
            8 => self.vec(Mnemonic::Vmovq, Size::X, &[mem]),
            4 => self.vec(Mnemonic::Vmovd, Size::X, &[mem]),
            total if !self.isa.evex => self.load_tail(bytes, total, at),
            _ => {
                let mask = self.first_lanes(count);
                self.vec_zeroed(masked_move(bytes), size, mask, &[mem])
            }
        }
    }

    pub(super) fn store(&mut self, buf: Buf, index: Reg, disp: i64, val: &Val) -> Res {
        let dtype = self.kernel.bufs[buf.0 as usize].dtype;
        let lanes = val.ty.lanes;
        let mem = self.address(buf, index, disp, i64::from(lanes) * dtype.size() as i64)?;
        if lanes == 1 {
            return self.store_scalar(dtype, mem, val.parts[0]);
        }
        let per = if Self::class(val.ty) == Class::Mask { val.per } else { self.per(val.ty.elem) };
        for (p, count) in Self::lanes_of(lanes, per).enumerate() {
            let at = mem.offset(p as i32 * i32::from(per) * dtype.size() as i32);
            let part = val.parts[p];
            match dtype {
                DType::F16 => {
                    let from = Self::size(count, 4);
                    let bits = self.f16_lanes(part, from);
                    self.store_lanes(2, count, at, bits);
                }
                DType::BF16 => {
                    let bits = self.bf16_lanes(part, Self::size(count, 4));
                    self.store_lanes(2, count, at, bits);
                }
                DType::Bool => {
                    let bytes = self.bytes_of_mask(part, count);
                    self.store_lanes(1, count, at, bytes);
                }
                _ => self.store_lanes(dtype.size(), count, at, part),
            }
        }
        Ok(())
    }

    fn store_lanes(&mut self, bytes: usize, count: u16, at: Mem, v: V) {
        let size = Self::size(count, bytes);
        let (mem, part) = (Opnd::Mem(at), Opnd::Reg(v, size));
        match count as usize * bytes {
            16 | 32 | 64 => self.effect(Mnemonic::Vmovups, &[mem, part]),
            8 => self.effect(Mnemonic::Vmovq, &[mem, part]),
            4 => self.effect(Mnemonic::Vmovd, &[mem, part]),
            total if !self.isa.evex => self.store_tail(total, at, v),
            _ => {
                let mask = self.first_lanes(count);
                self.push(Inst::new(masked_move(bytes), Role::Use, &[mem, part]).masked(mask, false));
            }
        }
    }

    fn store_scalar(&mut self, dtype: DType, mem: Mem, part: V) -> Res {
        let mem = Opnd::Mem(mem);
        match dtype {
            DType::F32 => self.effect(Mnemonic::Vmovss, &[mem, Opnd::Reg(part, Size::X)]),
            DType::F64 => self.effect(Mnemonic::Vmovsd, &[mem, Opnd::Reg(part, Size::X)]),
            DType::F16 | DType::BF16 => {
                let bits = match dtype {
                    DType::F16 => self.f16_lanes(part, Size::X),
                    _ => self.bf16_lanes(part, Size::X),
                };
                let bits = self.gpr(Mnemonic::Vmovd, Size::D, &[Opnd::Reg(bits, Size::X)]);
                self.effect(Code::Mov_rm16_r16, &[mem, Opnd::Reg(bits, Size::W)]);
            }
            DType::I8 | DType::U8 | DType::Bool => self.effect(Code::Mov_rm8_r8, &[mem, Opnd::Reg(part, Size::B)]),
            DType::I16 | DType::U16 => self.effect(Code::Mov_rm16_r16, &[mem, Opnd::Reg(part, Size::W)]),
            DType::I32 | DType::U32 => self.effect(Code::Mov_rm32_r32, &[mem, Opnd::Reg(part, Size::D)]),
            DType::I64 | DType::U64 => self.effect(Code::Mov_rm64_r64, &[mem, Opnd::Reg(part, Size::Q)]),
        }
        Ok(())
    }

    /// The value of a splat: of what is in a register, or of what its user reads.
    pub(super) fn splat(&mut self, reg: Reg, a: Reg, lanes: u16) -> Res<Val> {
        let held = self.held(a)?;
        let elem = held.ty.elem;
        let ty = Type::vector(elem, lanes);
        if let Some(bits) = held.imm {
            return Ok(self.constant(ty, bits));
        }
        if lanes == 1 {
            let val = self.val(a)?;
            return Ok(self.value(ty, val.parts));
        }
        let per = self.per(elem);
        if let Some(mem) = held.mem {
            let broadcast = if elem == DType::F64 { Mnemonic::Vpbroadcastq } else { Mnemonic::Vbroadcastss };
            if self.facts.uses[a.0 as usize].count > 1 {
                // Splats of several lengths: all are parts of one.
                let part = match self.recently(a) {
                    Some(part) => part,
                    None => self.vec(broadcast, self.isa.full(), &[Opnd::Mem(mem)]),
                };
                self.used_now(a, part);
                return Ok(self.value(ty, vec![part; lanes.div_ceil(per) as usize]));
            }
            let uses = self.facts.uses[reg.0 as usize];
            let here = uses.together && uses.block == self.facts.places[reg.0 as usize].block;
            if here && lanes <= per && Self::size(lanes, elem.size()) == Size::Z {
                return Ok(Val { mem: Some(mem.broadcast()), ..self.value(ty, vec![]) });
            }
            let size = Self::size(lanes.min(per), elem.size());
            let part = self.vec(broadcast, size, &[Opnd::Mem(mem)]);
            return Ok(self.value(ty, vec![part; lanes.div_ceil(per) as usize]));
        }
        let val = self.val(a)?;
        let part = val.parts[0];
        let size = Self::size(lanes.min(per), elem.size());
        let part = match elem {
            DType::Bool => self.mask_of_bool(part),
            _ => self.copied_to_lanes(elem, size, part),
        };
        Ok(self.value(ty, vec![part; lanes.div_ceil(per) as usize]))
    }

    /// A scalar that is no `Bool` in all lanes.
    pub(super) fn copied_to_lanes(&mut self, elem: DType, size: Size, part: V) -> V {
        match elem {
            DType::F32 => self.vec(Mnemonic::Vbroadcastss, size, &[Opnd::Reg(part, Size::X)]),
            DType::F64 => self.vec(Mnemonic::Vpbroadcastq, size, &[Opnd::Reg(part, Size::X)]),
            _ => {
                let (mnemonic, from) = match elem.size() {
                    1 => (Mnemonic::Vpbroadcastb, Size::D),
                    2 => (Mnemonic::Vpbroadcastw, Size::D),
                    4 => (Mnemonic::Vpbroadcastd, Size::D),
                    _ => (Mnemonic::Vpbroadcastq, Size::Q),
                };
                if !self.isa.evex {
                    let low = self.int_to_lane(elem, part);
                    return self.vec(mnemonic, size, &[Opnd::Reg(low, Size::X)]);
                }
                self.vec(mnemonic, size, &[Opnd::Reg(part, from)])
            }
        }
    }
}

pub(super) fn half_size(size: Size) -> Size {
    match size {
        Size::Z => Size::Y,
        _ => Size::X,
    }
}
