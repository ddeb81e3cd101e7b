//! Operations: which instructions compute a register.

use super::fx::{Fx, MASK_WIDTH, Res, Val, clif_vector};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Cmp, Op, Reg, Type, UnOp};
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value, types};

impl Fx<'_, '_> {
    /// Computes the operation that defines `reg`.
    pub(super) fn op(&mut self, reg: Reg, op: &Op) -> Res<Val> {
        let ty = self.kernel.regs[reg.0 as usize];
        match op {
            Op::Const(imm, _) => Ok(self.constant(ty, imm.bits)),
            Op::Scalar(i) => self.argument(self.scalars[*i as usize]),
            Op::TileLo => self.argument(self.tile_lo),
            Op::TileHi => self.argument(self.tile_hi),
            Op::Un(op, a) => {
                let a = self.val(*a)?;
                self.un(*op, &a)
            }
            Op::Bin(op, a, b) => self.bin(*op, *a, *b),
            Op::Fma(a, b, c) => {
                let (a, b, c) = (self.val(*a)?, self.val(*b)?, self.val(*c)?);
                let native = self.caps.native_fma();
                self.map(ty.elem, &[&a, &b, &c], |fx, v, _| {
                    if native {
                        return Ok(fx.b.ins().fma(v[0], v[1], v[2]));
                    }
                    let product = fx.b.ins().fmul(v[0], v[1]);
                    Ok(fx.b.ins().fadd(product, v[2]))
                })
            }
            Op::Dot(dot, a, b, c) => self.dot(*dot, *a, *b, *c),
            Op::Cmp(op, a, b) => self.cmp(*op, *a, *b),
            Op::Select(mask, yes, no) => self.select(*mask, *yes, *no),
            Op::Cast(to, a) => {
                let a = self.val(*a)?;
                self.cast(*to, &a)
            }
            Op::Bitcast(to, a) => {
                let a = self.val(*a)?;
                let width = a.width;
                self.map(*to, &[&a], |fx, v, chunk| {
                    let clif = if chunk.vector { clif_vector(*to, width) } else { super::fx::clif_scalar(*to) };
                    Ok(fx.as_type(v[0], clif))
                })
            }
            Op::Splat(a, lanes) => self.splat(*a, *lanes),
            Op::Extract(a, lane) => {
                let a = self.val(*a)?;
                let piece = self.lane(&a, *lane)?;
                Ok(self.one(ty.elem, piece))
            }
            Op::Insert(a, lane, v) => self.insert(*a, *lane, *v),
            Op::Shuffle(a, b, picks) => {
                let (a, b) = (self.val(*a)?, self.val(*b)?);
                let b = if ty.elem == DType::Bool { self.mask_to(&b, a.width)? } else { b };
                self.gather(&a, &b, picks)
            }
            Op::Iota(elem, lanes) => self.iota(Type { elem: *elem, lanes: *lanes }),
            Op::Horizontal(op, a) => {
                let a = self.val(*a)?;
                self.horizontal(*op, &a)
            }
            Op::Load { buf, index, disp, lanes } => self.load(*buf, *index, *disp, *lanes),
            Op::Words { buf, index, disp, lanes } => self.words(*buf, *index, *disp, *lanes),
            Op::Get(var) => Ok(self.get(*var)),
        }
    }

    fn argument(&self, value: Option<Value>) -> Res<Val> {
        value.map(|value| self.one(DType::I64, value)).ok_or_else(|| "an argument was not loaded".to_string())
    }

    fn un(&mut self, op: UnOp, a: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        if op == UnOp::Popcnt && !self.caps.popcnt(a.width) {
            return self.each_lane(elem, &[a], |fx, v| Ok(fx.b.ins().popcnt(v[0])));
        }
        self.map(elem, &[a], |fx, v, chunk| {
            let x = v[0];
            Ok(match op {
                UnOp::Neg if elem.is_float() => fx.b.ins().fneg(x),
                UnOp::Neg => fx.b.ins().ineg(x),
                UnOp::Abs if elem.is_float() => fx.b.ins().fabs(x),
                UnOp::Abs if elem.is_signed() => fx.b.ins().iabs(x),
                UnOp::Abs => x,
                UnOp::Not if elem == DType::Bool && !chunk.vector => {
                    let one = fx.iconst(1, 1);
                    fx.b.ins().bxor(x, one)
                }
                UnOp::Not => fx.b.ins().bnot(x),
                UnOp::Sqrt => fx.b.ins().sqrt(x),
                UnOp::Floor | UnOp::Ceil | UnOp::Trunc | UnOp::Round => fx.round(op, elem, x, chunk.vector),
                UnOp::Popcnt => fx.b.ins().popcnt(x),
            })
        })
    }

    fn bin(&mut self, op: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        if elem == DType::Bool {
            return self.logic(op, a, b);
        }
        if elem.is_float() {
            return self.float_bin(op, a, b);
        }
        self.int_bin(op, a, b)
    }

    /// Logic on `Bool` lanes.
    fn logic(&mut self, op: BinOp, a: Reg, b: Reg) -> Res<Val> {
        let (a, b) = (self.val(a)?, self.val(b)?);
        let b = self.mask_to(&b, a.width)?;
        self.map(DType::Bool, &[&a, &b], |fx, v, _| match op {
            BinOp::And => Ok(fx.b.ins().band(v[0], v[1])),
            BinOp::Or => Ok(fx.b.ins().bor(v[0], v[1])),
            BinOp::Xor => Ok(fx.b.ins().bxor(v[0], v[1])),
            other => Err(format!("no {other:?} of bool")),
        })
    }

    fn cmp(&mut self, op: Cmp, a: Reg, b: Reg) -> Res<Val> {
        let elem = self.kernel.regs[a.0 as usize].elem;
        let (a, b) = (self.val(a)?, self.val(b)?);
        if elem == DType::Bool {
            let b = self.mask_to(&b, a.width)?;
            return self.map(elem, &[&a, &b], |fx, v, chunk| {
                let differ = fx.b.ins().bxor(v[0], v[1]);
                Ok(match op {
                    Cmp::Ne => differ,
                    _ if chunk.vector => fx.b.ins().bnot(differ),
                    _ => {
                        let one = fx.iconst(1, 1);
                        fx.b.ins().bxor(differ, one)
                    }
                })
            });
        }
        self.map(DType::Bool, &[&a, &b], |fx, v, chunk| {
            Ok(if elem.is_float() {
                let (x, y) = (fx.loaded(v[0], chunk.vector), fx.loaded(v[1], chunk.vector));
                fx.b.ins().fcmp(float_cc(op), x, y)
            } else {
                fx.b.ins().icmp(int_cc(op, elem.is_signed()), v[0], v[1])
            })
        })
    }

    fn select(&mut self, mask: Reg, yes: Reg, no: Reg) -> Res<Val> {
        let (mask, yes, no) = (self.val(mask)?, self.val(yes)?, self.val(no)?);
        let elem = yes.ty.elem;
        let no = if elem == DType::Bool { self.mask_to(&no, yes.width)? } else { no };
        let mask = self.mask_to(&mask, yes.width)?;
        self.map(elem, &[&yes, &no, &mask], |fx, v, chunk| {
            Ok(if chunk.vector { fx.blend(v[2], v[0], v[1]) } else { fx.b.ins().select(v[2], v[0], v[1]) })
        })
    }

    fn splat(&mut self, reg: Reg, lanes: u16) -> Res<Val> {
        let elem = self.kernel.regs[reg.0 as usize].elem;
        let ty = Type { elem, lanes };
        if let Some(bits) = self.imm(reg) {
            return Ok(self.constant(ty, bits));
        }
        if let (true, Some(Op::Extract(from, lane))) = (self.caps.splat_by_shuffle(), self.defs[reg.0 as usize]) {
            // On aarch64 this is also the form that multiplies by one lane of a register.
            let from = self.val(*from)?;
            return self.gather(&from, &from, &vec![*lane; lanes as usize]);
        }
        let scalar = self.scalar(reg)?;
        let width = if elem == DType::Bool { MASK_WIDTH } else { elem.size() as u8 };
        self.build(ty, width, &vec![scalar; lanes as usize])
    }

    fn insert(&mut self, into: Reg, lane: u16, value: Reg) -> Res<Val> {
        let mut into = self.val(into)?;
        let value = self.scalar(value)?;
        let chunks = self.chunks_of(&into);
        let at = chunks.iter().position(|c| (c.first..c.first + c.lanes).contains(&lane)).ok_or("a lane too high")?;
        let piece = into.pieces[at];
        into.pieces[at] = if chunks[at].vector {
            let value = self.vector_lane(value, into.ty.elem, into.width);
            self.b.ins().insertlane(piece, value, (lane - chunks[at].first) as u8)
        } else {
            value
        };
        into.imm = None;
        Ok(into)
    }

    fn iota(&mut self, ty: Type) -> Res<Val> {
        let width = ty.elem.size() as u8;
        let mut val = Val { ty, width, pieces: Vec::new(), imm: None };
        for chunk in self.chunks_of(&val) {
            let piece = if chunk.vector {
                let lanes = 16 / width as u16;
                let numbers = (0..lanes).map(|i| (chunk.first + i) as u64);
                let bytes = numbers.flat_map(|n| n.to_le_bytes().into_iter().take(width as usize)).collect();
                let clif = if width == 4 { types::I32X4 } else { types::I64X2 };
                self.vconst(clif, bytes)
            } else {
                self.iconst(width, chunk.first as u64)
            };
            val.pieces.push(piece);
        }
        Ok(val)
    }
}

pub(super) fn float_cc(op: Cmp) -> FloatCC {
    match op {
        Cmp::Eq => FloatCC::Equal,
        Cmp::Ne => FloatCC::NotEqual,
        Cmp::Lt => FloatCC::LessThan,
        Cmp::Le => FloatCC::LessThanOrEqual,
        Cmp::Gt => FloatCC::GreaterThan,
        Cmp::Ge => FloatCC::GreaterThanOrEqual,
    }
}

fn int_cc(op: Cmp, signed: bool) -> IntCC {
    match (op, signed) {
        (Cmp::Eq, _) => IntCC::Equal,
        (Cmp::Ne, _) => IntCC::NotEqual,
        (Cmp::Lt, true) => IntCC::SignedLessThan,
        (Cmp::Le, true) => IntCC::SignedLessThanOrEqual,
        (Cmp::Gt, true) => IntCC::SignedGreaterThan,
        (Cmp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (Cmp::Lt, false) => IntCC::UnsignedLessThan,
        (Cmp::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Cmp::Gt, false) => IntCC::UnsignedGreaterThan,
        (Cmp::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}
