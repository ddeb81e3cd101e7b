//! Integer arithmetic. Nothing traps, whatever the operands.

use super::fx::{Fx, Res, Val, clif_int_vector, int_of};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Op, Reg, Type};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};

impl Fx<'_, '_> {
    pub(super) fn int_bin(&mut self, op: BinOp, ra: Reg, rb: Reg) -> Res<Val> {
        match op {
            BinOp::Shl | BinOp::Shr => return self.shift(op, ra, rb),
            BinOp::Div | BinOp::Rem => return self.divide(op, ra, rb),
            _ => {}
        }
        let (imm_a, imm_b) = (self.imm(ra), self.imm(rb));
        let (a, b) = (self.val(ra)?, self.val(rb)?);
        let elem = a.ty.elem;
        if a.ty.lanes == 1 && op == BinOp::Mul {
            let power = |imm: Option<u64>| imm.filter(|bits| bits.is_power_of_two()).map(u64::trailing_zeros);
            if let Some((x, shift)) = power(imm_b).map(|s| (&a, s)).or(power(imm_a).map(|s| (&b, s))) {
                // A shift also folds into addresses.
                let shift = self.iconst(8, shift as u64);
                let piece = self.b.ins().ishl(x.pieces[0], shift);
                return Ok(self.one(elem, piece));
            }
        }
        if let (BinOp::Mul, Some(product)) = (op, self.narrow_product(ra, rb)?) {
            return Ok(product);
        }
        if op == BinOp::Mul && !self.caps.int_mul(a.width) {
            return self.each_lane(elem, &[&a, &b], |fx, v| Ok(fx.b.ins().imul(v[0], v[1])));
        }
        self.map(elem, &[&a, &b], |fx, v, _| fx.plain(op, elem, v[0], v[1]))
    }

    /// The product of 32-bit vectors whose lanes come from bytes, multiplied in 16 bits, which always suffice: half as many
    /// multiplications, shorter ones on x86, and the widening ones on aarch64 and RISC-V.
    fn narrow_product(&mut self, ra: Reg, rb: Reg) -> Res<Option<Val>> {
        let ty = self.kernel.regs[ra.0 as usize];
        if ty.elem.size() != 4 || ty.lanes < 4 || !self.caps.vectors {
            return Ok(None);
        }
        let (Some(a), Some(b)) = (self.byte_source(ra), self.byte_source(rb)) else { return Ok(None) };
        let (x, y) = (self.bytes_as_words(a, ty.lanes)?, self.bytes_as_words(b, ty.lanes)?);
        // Two unsigned bytes need the sixteenth bit; with one signed, the product fits a signed number.
        let signed = x.1 || y.1;
        let product = self.map(int_of(2, signed), &[&x.0, &y.0], |fx, v, _| Ok(fx.b.ins().imul(v[0], v[1])))?;
        let wide = self.widen(&product, signed)?;
        Ok(Some(Val { ty, ..wide }))
    }

    /// The byte lanes, or the single byte, that a 32-bit register was widened from.
    fn byte_source(&self, reg: Reg) -> Option<Reg> {
        let of_cast = |reg: Reg| match self.defs[reg.0 as usize] {
            Some(Op::Cast(_, from)) => {
                let elem = self.kernel.regs[from.0 as usize].elem;
                matches!(elem, DType::I8 | DType::U8).then_some(*from)
            }
            _ => None,
        };
        match self.defs[reg.0 as usize] {
            Some(Op::Splat(scalar, _)) => of_cast(*scalar),
            _ => of_cast(reg),
        }
    }

    /// Bytes as 16-bit lanes, copied to all if it is one, and whether they are signed.
    fn bytes_as_words(&mut self, reg: Reg, lanes: u16) -> Res<(Val, bool)> {
        let bytes = self.val(reg)?;
        let signed = bytes.ty.elem.is_signed();
        let elem = int_of(2, signed);
        if bytes.ty.lanes == lanes {
            return Ok((self.widen(&bytes, signed)?, signed));
        }
        let scalar = self.cast_scalar(bytes.ty.elem, elem, bytes.pieces[0])?;
        Ok((self.build(Type { elem, lanes }, 2, &vec![scalar; lanes as usize])?, signed))
    }

    /// The operations that are one instruction for scalars and vectors alike.
    pub(super) fn plain(&mut self, op: BinOp, elem: DType, a: Value, b: Value) -> Res<Value> {
        let signed = elem.is_signed();
        Ok(match op {
            BinOp::Add => self.b.ins().iadd(a, b),
            BinOp::Sub => self.b.ins().isub(a, b),
            BinOp::Mul => self.b.ins().imul(a, b),
            BinOp::Min if signed => self.b.ins().smin(a, b),
            BinOp::Min => self.b.ins().umin(a, b),
            BinOp::Max if signed => self.b.ins().smax(a, b),
            BinOp::Max => self.b.ins().umax(a, b),
            BinOp::And => self.b.ins().band(a, b),
            BinOp::Or => self.b.ins().bor(a, b),
            BinOp::Xor => self.b.ins().bxor(a, b),
            BinOp::Shl | BinOp::Shr | BinOp::Div | BinOp::Rem => return Err(format!("{op:?} is not plain")),
        })
    }

    fn shift_by(&mut self, op: BinOp, signed: bool, x: Value, count: Value) -> Value {
        match op {
            BinOp::Shl => self.b.ins().ishl(x, count),
            _ if signed => self.b.ins().sshr(x, count),
            _ => self.b.ins().ushr(x, count),
        }
    }

    fn shift(&mut self, op: BinOp, ra: Reg, rb: Reg) -> Res<Val> {
        let a = self.val(ra)?;
        let (elem, width) = (a.ty.elem, a.width);
        let bits = 8 * width as u64;
        // Past the width a signed right shift leaves the sign; all others leave nothing.
        let keeps_sign = op == BinOp::Shr && elem.is_signed();
        if let Some(count) = self.imm(rb) {
            if count >= bits && !keeps_sign {
                return Ok(self.constant(a.ty, 0));
            }
            let count = count.min(bits - 1);
            return self.map(elem, &[&a], |fx, v, _| {
                let count = fx.iconst(4, count);
                Ok(fx.shift_by(op, elem.is_signed(), v[0], count))
            });
        }
        let uniform = match self.defs[rb.0 as usize] {
            _ if a.ty.lanes == 1 => Some(rb),
            Some(Op::Splat(count, _)) => Some(*count),
            _ => None,
        };
        let Some(count) = uniform else {
            let b = self.val(rb)?;
            return self.each_lane(elem, &[&a, &b], |fx, v| {
                let (count, fits) = fx.shift_count(v[1], width, keeps_sign);
                let shifted = fx.shift_by(op, elem.is_signed(), v[0], count);
                let zero = fx.iconst(width, 0);
                Ok(fits.map_or(shifted, |fits| fx.b.ins().select(fits, shifted, zero)))
            });
        };
        let count = self.scalar(count)?;
        let (count, fits) = self.shift_count(count, width, keeps_sign);
        self.map(elem, &[&a], |fx, v, chunk| {
            let shifted = fx.shift_by(op, elem.is_signed(), v[0], count);
            let Some(fits) = fits else { return Ok(shifted) };
            let zero = match chunk.vector {
                true => fx.splat_const(clif_int_vector(width), width, 0),
                false => fx.iconst(width, 0),
            };
            Ok(fx.b.ins().select(fits, shifted, zero))
        })
    }

    /// A count that the hardware shifts by, and whether the result stands, if that is a question.
    fn shift_count(&mut self, count: Value, width: u8, keeps_sign: bool) -> (Value, Option<Value>) {
        let bits = 8 * width as u64;
        if keeps_sign {
            let last = self.iconst(width, bits - 1);
            return (self.b.ins().umin(count, last), None);
        }
        let bits = self.iconst(width, bits);
        let fits = self.b.ins().icmp(IntCC::UnsignedLessThan, count, bits);
        (count, Some(fits))
    }
}
