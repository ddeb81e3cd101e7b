//! Changing the width of integer lanes and masks.

use super::fx::{Chunk, Fx, Res, Val, chunks, clif_int, clif_int_vector, int_of};
use crate::dtype::DType;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// How lanes become half as wide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Halve {
    /// The low bits.
    Wrap,
    /// The nearest signed value.
    Signed,
    /// The nearest unsigned value to a signed one.
    Unsigned,
}

impl Fx<'_, '_> {
    /// A mask with lanes of `width` bytes.
    pub(super) fn mask_to(&mut self, mask: &Val, width: u8) -> Res<Val> {
        if mask.ty.lanes == 1 || mask.width == width {
            return Ok(Val { width, ..mask.clone() });
        }
        if let Some(bits) = mask.imm {
            return Ok(self.constant_of_width(mask.ty, bits, width));
        }
        let mut mask = mask.clone();
        while mask.width < width {
            mask = self.widen(&mask, true)?;
        }
        while mask.width > width {
            mask = self.halve(&mask, Halve::Signed)?;
        }
        Ok(mask)
    }

    /// Integer lanes of `from` as integers of `width` bytes: extended by their own sign, or cut.
    pub(super) fn resize(&mut self, from: &Val, width: u8) -> Res<Val> {
        let signed = from.ty.elem.is_signed();
        let mut val = from.clone();
        while val.width < width {
            val = self.widen(&val, signed)?;
        }
        while val.width > width {
            val = self.halve(&val, Halve::Wrap)?;
        }
        Ok(val)
    }

    fn resized_type(&self, val: &Val, width: u8, signed: bool) -> Val {
        let elem = if val.ty.elem == DType::Bool { DType::Bool } else { int_of(width, signed) };
        Val { ty: val.ty.with_elem(elem), width, pieces: Vec::new(), imm: None }
    }

    /// Lanes twice as wide.
    pub(super) fn widen(&mut self, val: &Val, signed: bool) -> Res<Val> {
        let width = 2 * val.width;
        let mut out = self.resized_type(val, width, signed);
        let from = self.chunks_of(val);
        for chunk in chunks(self.caps, val.ty.lanes, width) {
            let source = from.iter().position(|c| c.vector && within(&chunk, c));
            let piece = match source {
                Some(at) if chunk.vector => {
                    let (piece, offset) = (val.pieces[at], chunk.first - from[at].first);
                    // A chunk of the wide lanes is half a chunk of the narrow ones.
                    match (offset == 0, signed) {
                        (true, true) => self.b.ins().swiden_low(piece),
                        (true, false) => self.b.ins().uwiden_low(piece),
                        (false, true) => self.b.ins().swiden_high(piece),
                        (false, false) => self.b.ins().uwiden_high(piece),
                    }
                }
                _ => {
                    let mut lanes = Vec::new();
                    for lane in chunk.first..chunk.first + chunk.lanes {
                        let scalar = self.lane(val, lane)?;
                        lanes.push(match (val.ty.elem, signed) {
                            (DType::Bool, _) => scalar,
                            (_, true) => self.b.ins().sextend(clif_int(width), scalar),
                            (_, false) => self.b.ins().uextend(clif_int(width), scalar),
                        });
                    }
                    self.build_chunk(out.ty.elem, width, &lanes)
                }
            };
            out.pieces.push(piece);
        }
        Ok(out)
    }

    /// Lanes half as wide. Masks survive `Signed`.
    pub(super) fn halve(&mut self, val: &Val, how: Halve) -> Res<Val> {
        let width = val.width / 2;
        let signed = if how == Halve::Wrap { val.ty.elem.is_signed() } else { how == Halve::Signed };
        let mut out = self.resized_type(val, width, signed);
        let from = self.chunks_of(val);
        for chunk in chunks(self.caps, val.ty.lanes, width) {
            let inside: Vec<usize> = (0..from.len()).filter(|at| within(&from[*at], &chunk)).collect();
            let low = inside.first().copied();
            let piece = match low {
                Some(low) if chunk.vector && inside.iter().all(|at| from[*at].vector) => {
                    let high = *inside.last().unwrap_or(&low);
                    self.halve_pieces(val.width, val.pieces[low], val.pieces[high], how)
                }
                _ => {
                    let mut lanes = Vec::new();
                    for lane in chunk.first..chunk.first + chunk.lanes {
                        let scalar = self.lane(val, lane)?;
                        lanes.push(if val.ty.elem == DType::Bool {
                            scalar
                        } else {
                            self.halve_scalar(val.width, scalar, how)
                        });
                    }
                    self.build_chunk(out.ty.elem, width, &lanes)
                }
            };
            out.pieces.push(piece);
        }
        Ok(out)
    }

    /// Lanes of `low`, then those of `high`, from `width` bytes to half.
    fn halve_pieces(&mut self, width: u8, low: Value, high: Value, how: Halve) -> Value {
        let half = width / 2;
        match how {
            Halve::Signed if width < 8 || self.caps.wide_to_int() => self.b.ins().snarrow(low, high),
            Halve::Unsigned => self.b.ins().unarrow(low, high),
            _ => {
                // The low half of every lane. Where the bytes cannot be picked, the saturating form does it once the lanes
                // are in range.
                let mut mask = [0u8; 16];
                for (i, byte) in mask.iter_mut().enumerate() {
                    let (lane, part) = (i as u8 / half, i as u8 % half);
                    *byte = lane * width + part;
                }
                let same = low == high;
                if same {
                    mask.iter_mut().for_each(|byte| *byte %= 16);
                }
                if self.caps.shuffle(&mask) {
                    let (low, high) = (self.as_type(low, types::I8X16), self.as_type(high, types::I8X16));
                    let out = self.byte_shuffle(low, high, &mask);
                    return self.as_type(out, clif_int_vector(half));
                }
                let count = 8 * half as u64;
                let in_range = |fx: &mut Self, value: Value| {
                    let count = fx.iconst(4, count);
                    let up = fx.b.ins().ishl(value, count);
                    fx.b.ins().sshr(up, count)
                };
                let first = in_range(self, low);
                let second = if same { first } else { in_range(self, high) };
                self.b.ins().snarrow(first, second)
            }
        }
    }

    /// A signed scalar of `width` bytes to half.
    fn halve_scalar(&mut self, width: u8, value: Value, how: Halve) -> Value {
        let bits = 4 * width as u32;
        let (least, most) = match how {
            Halve::Wrap => return self.b.ins().ireduce(clif_int(width / 2), value),
            Halve::Signed => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            Halve::Unsigned => (0, (1i64 << bits) - 1),
        };
        let (least, most) = (self.iconst(width, least as u64), self.iconst(width, most as u64));
        let value = self.b.ins().smax(value, least);
        let value = self.b.ins().smin(value, most);
        self.b.ins().ireduce(clif_int(width / 2), value)
    }
}

/// Whether all lanes of `inner` are lanes of `outer`.
fn within(inner: &Chunk, outer: &Chunk) -> bool {
    inner.first >= outer.first && inner.first + inner.lanes <= outer.first + outer.lanes
}
