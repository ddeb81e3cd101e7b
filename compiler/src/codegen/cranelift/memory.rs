//! Loads and stores.

use super::fx::{Chunk, Fx, Res, Val, access_flags, chunks, clif_scalar, clif_vector};
use crate::dtype::DType;
use crate::kernel::ir::{Buf, Reg, Type};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    pub(super) fn load(&mut self, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Res<Val> {
        let dtype = self.kernel.bufs[buf.0 as usize].dtype;
        match dtype {
            DType::F16 | DType::BF16 => {
                let bits = self.load_lanes(buf, index, disp, Type { elem: DType::U16, lanes })?;
                self.half_to_f32(dtype, &bits)
            }
            DType::Bool => {
                let bytes = self.load_lanes(buf, index, disp, Type { elem: DType::U8, lanes })?;
                self.map(DType::Bool, &[&bytes], |fx, v, chunk| {
                    let zero = if chunk.vector { fx.splat_const(types::I8X16, 1, 0) } else { fx.iconst(1, 0) };
                    Ok(fx.b.ins().icmp(IntCC::NotEqual, v[0], zero))
                })
            }
            elem => self.load_lanes(buf, index, disp, Type { elem, lanes }),
        }
    }

    /// Loads groups of four bytes.
    pub(super) fn words(&mut self, buf: Buf, index: Reg, disp: i64, lanes: u16) -> Res<Val> {
        self.load_lanes(buf, index, disp, Type { elem: DType::U32, lanes })
    }

    /// Loads lanes whose type in memory is `ty`.
    fn load_lanes(&mut self, buf: Buf, index: Reg, disp: i64, ty: Type) -> Res<Val> {
        let width = ty.elem.size() as u8;
        let (base, offset) = self.address(buf, index, disp, ty.lanes as i64 * width as i64)?;
        let mut pieces = Vec::new();
        for chunk in chunks(self.caps, ty.lanes, width) {
            let at = offset + chunk.first as i32 * width as i32;
            pieces.push(self.load_chunk(ty.elem, chunk, base, at));
        }
        Ok(Val { ty, width, pieces, imm: None })
    }

    fn load_chunk(&mut self, elem: DType, chunk: Chunk, base: Value, at: i32) -> Value {
        let width = elem.size() as u8;
        if !chunk.vector {
            return self.b.ins().load(clif_scalar(elem), access_flags(), base, at);
        }
        let ty = clif_vector(elem, width);
        // The lanes past the chunk hold copies: nobody looks at them, and a broadcast is shorter than clearing them.
        let part = match chunk.lanes * width as u16 {
            16 => return self.b.ins().load(ty, access_flags(), base, at),
            8 => {
                let scalar = self.b.ins().load(types::F64, access_flags(), base, at);
                self.b.ins().splat(types::F64X2, scalar)
            }
            _ => {
                let scalar = self.b.ins().load(types::F32, access_flags(), base, at);
                self.b.ins().splat(types::F32X4, scalar)
            }
        };
        self.as_type(part, ty)
    }

    pub(super) fn store(&mut self, buf: Buf, index: Reg, disp: i64, value: &Val) -> Res {
        let dtype = self.kernel.bufs[buf.0 as usize].dtype;
        let value = match dtype {
            DType::F16 | DType::BF16 => self.f32_to_half(dtype, value)?,
            DType::Bool if value.ty.lanes > 1 => self.mask_bytes(value)?,
            _ => value.clone(),
        };
        let width = value.width;
        // A single `Bool` is a byte whatever its mask width.
        let width = if value.ty.lanes == 1 { dtype.size() as u8 } else { width };
        let (base, offset) = self.address(buf, index, disp, value.ty.lanes as i64 * width as i64)?;
        let chunks = chunks(self.caps, value.ty.lanes, width);
        for (chunk, piece) in chunks.into_iter().zip(&value.pieces) {
            let at = offset + chunk.first as i32 * width as i32;
            let piece = match (chunk.vector, chunk.lanes * width as u16) {
                (true, 8) => {
                    let wide = self.as_type(*piece, types::F64X2);
                    self.b.ins().extractlane(wide, 0)
                }
                (true, 4) => {
                    let wide = self.as_type(*piece, types::F32X4);
                    self.b.ins().extractlane(wide, 0)
                }
                _ => *piece,
            };
            self.b.ins().store(access_flags(), piece, base, at);
        }
        Ok(())
    }

    /// A mask as bytes of 0 and 1.
    fn mask_bytes(&mut self, mask: &Val) -> Res<Val> {
        let mask = self.mask_to(mask, 1)?;
        self.map(DType::U8, &[&mask], |fx, v, chunk| {
            if !chunk.vector {
                return Ok(v[0]);
            }
            let one = fx.splat_const(types::I8X16, 1, 1);
            Ok(fx.b.ins().band(v[0], one))
        })
    }
}
