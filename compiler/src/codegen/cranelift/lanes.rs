//! Moving lanes: taking one, building vectors from scalars, shuffles, reductions.

use super::fx::{Fx, Res, Val, chunks, clif_vector};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Horizontal, Type};
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

/// Where a lane of a shuffle comes from.
#[derive(Clone, Copy)]
enum Source {
    /// A lane of a vector piece.
    Lane(Value, u8),
    /// A scalar piece.
    Scalar(Value),
}

impl Fx<'_, '_> {
    fn source(&self, val: &Val, lane: u16) -> Res<Source> {
        for (chunk, piece) in self.chunks_of(val).into_iter().zip(&val.pieces) {
            if (chunk.first..chunk.first + chunk.lanes).contains(&lane) {
                return Ok(match chunk.vector {
                    true => Source::Lane(*piece, (lane - chunk.first) as u8),
                    false => Source::Scalar(*piece),
                });
            }
        }
        Err(format!("lane {lane} of {} lanes", val.ty.lanes))
    }

    /// One lane as scalar; `Bool` as 0 or 1.
    pub(super) fn lane(&mut self, val: &Val, lane: u16) -> Res<Value> {
        match self.source(val, lane)? {
            Source::Scalar(value) => Ok(value),
            Source::Lane(piece, lane) => {
                let scalar = self.b.ins().extractlane(piece, lane);
                if val.ty.elem != DType::Bool {
                    return Ok(scalar);
                }
                let zero = self.iconst(val.width, 0);
                Ok(self.b.ins().icmp(IntCC::NotEqual, scalar, zero))
            }
        }
    }

    /// A value from its lanes as scalars.
    pub(super) fn build(&mut self, ty: Type, width: u8, lanes: &[Value]) -> Res<Val> {
        let mut val = Val { ty, width, pieces: Vec::new(), imm: None };
        let mut last: Option<(&[Value], Value)> = None;
        for chunk in chunks(self.caps, ty.lanes, width) {
            let range = chunk.first as usize..(chunk.first + chunk.lanes) as usize;
            let part = lanes.get(range).ok_or("too few lanes")?;
            let piece = match last {
                Some((same, piece)) if same == part => piece,
                _ => self.build_chunk(ty.elem, width, part),
            };
            last = Some((part, piece));
            val.pieces.push(piece);
        }
        Ok(val)
    }

    /// One piece from its lanes as scalars; one lane alone stays a scalar.
    pub(super) fn build_chunk(&mut self, elem: DType, width: u8, lanes: &[Value]) -> Value {
        if let [only] = lanes {
            return *only;
        }
        let clif = clif_vector(elem, width);
        let first = self.vector_lane(lanes[0], elem, width);
        let mut out = self.b.ins().splat(clif, first);
        for (i, lane) in lanes.iter().enumerate().skip(1) {
            if *lane != lanes[0] {
                let lane = self.vector_lane(*lane, elem, width);
                out = self.b.ins().insertlane(out, lane, i as u8);
            }
        }
        out
    }

    pub(super) fn byte_shuffle(&mut self, a: Value, b: Value, mask: &[u8; 16]) -> Value {
        let mask = self.b.func.dfg.immediates.push(mask.to_vec().into());
        self.b.ins().shuffle(a, b, mask)
    }

    /// Lanes picked from `a` followed by `b`, which have one type and width.
    pub(super) fn gather(&mut self, a: &Val, b: &Val, picks: &[u16]) -> Res<Val> {
        let lanes = a.ty.lanes;
        let mut sources = Vec::with_capacity(picks.len());
        for pick in picks {
            sources.push(match pick.checked_sub(lanes) {
                None => self.source(a, *pick)?,
                Some(pick) => self.source(b, pick)?,
            });
        }
        let ty = a.ty.with_lanes(picks.len() as u16);
        let mut out = Val { ty, width: a.width, pieces: Vec::new(), imm: None };
        for chunk in chunks(self.caps, ty.lanes, a.width) {
            let part = &sources[chunk.first as usize..(chunk.first + chunk.lanes) as usize];
            let moved = if chunk.vector { self.shuffle_pieces(a.ty.elem, a.width, part) } else { None };
            let piece = match moved {
                Some(piece) => piece,
                None => {
                    let mut scalars = Vec::with_capacity(part.len());
                    for source in part {
                        scalars.push(self.scalar_of(a.ty.elem, a.width, *source));
                    }
                    self.build_chunk(a.ty.elem, a.width, &scalars)
                }
            };
            out.pieces.push(piece);
        }
        Ok(out)
    }

    fn scalar_of(&mut self, elem: DType, width: u8, source: Source) -> Value {
        match source {
            Source::Scalar(value) => value,
            Source::Lane(piece, lane) => {
                let scalar = self.b.ins().extractlane(piece, lane);
                if elem != DType::Bool {
                    return scalar;
                }
                let zero = self.iconst(width, 0);
                self.b.ins().icmp(IntCC::NotEqual, scalar, zero)
            }
        }
    }

    /// One vector piece by shuffles of whole pieces, if its lanes come from vectors and the target can.
    fn shuffle_pieces(&mut self, elem: DType, width: u8, part: &[Source]) -> Option<Value> {
        let per_piece = 16 / width as usize;
        let mut picks = Vec::with_capacity(per_piece);
        for source in part {
            match source {
                Source::Lane(piece, lane) => picks.push((*piece, *lane)),
                Source::Scalar(_) => return None,
            }
        }
        let mut pieces: Vec<Value> = Vec::new();
        for (piece, _) in &picks {
            if !pieces.contains(piece) {
                pieces.push(*piece);
            }
        }
        if pieces.len() == 1 && picks.iter().enumerate().all(|(i, (_, lane))| *lane as usize == i) {
            return Some(pieces[0]);
        }
        // Lanes that nobody looks at repeat the others, which keeps halves and copies recognisable.
        let full: Vec<(Value, u8)> = (0..per_piece).map(|i| picks[i % picks.len()]).collect();
        let clif = clif_vector(elem, width);
        let mut masks = Vec::new();
        let (first, rest) = pieces.split_first()?;
        for (step, other) in rest.iter().enumerate().map(|(i, p)| (i, *p)).chain(rest.is_empty().then_some((0, *first)))
        {
            let mask = core::array::from_fn(|byte| {
                let (i, part) = (byte / width as usize, (byte % width as usize) as u8);
                let (piece, lane) = full[i];
                let lane_byte = lane * width + part;
                if piece == other && other != *first {
                    16 + lane_byte
                } else if step == 0 && piece == *first {
                    lane_byte
                } else {
                    // In place already, or to be placed by a later step.
                    byte as u8
                }
            });
            if !self.caps.shuffle(&mask) {
                return None;
            }
            masks.push((other, mask));
        }
        let mut acc = self.as_type(*first, types::I8X16);
        for (other, mask) in masks {
            let other = if other == *first { acc } else { self.as_type(other, types::I8X16) };
            acc = self.byte_shuffle(acc, other, &mask);
        }
        Some(self.as_type(acc, clif))
    }

    /// A reduction, pairwise: the halves onto each other, an odd last lane at the end.
    pub(super) fn horizontal(&mut self, op: Horizontal, a: &Val) -> Res<Val> {
        let op = match op {
            Horizontal::Add => BinOp::Add,
            Horizontal::Mul => BinOp::Mul,
            Horizontal::Min => BinOp::Min,
            Horizontal::Max => BinOp::Max,
        };
        let mut val = a.clone();
        let mut late = Vec::new();
        while val.ty.lanes > 1 {
            let lanes = val.ty.lanes;
            if lanes % 2 == 1 {
                late.push(self.lane(&val, lanes - 1)?);
            }
            let half = lanes / 2;
            let low: Vec<u16> = (0..half).collect();
            let high: Vec<u16> = (half..2 * half).collect();
            let (low, high) = (self.gather(&val, &val, &low)?, self.gather(&val, &val, &high)?);
            val = self.combine(op, &low, &high)?;
        }
        let mut out = self.lane(&val, 0)?;
        while let Some(lane) = late.pop() {
            let (x, y) = (self.one(a.ty.elem, out), self.one(a.ty.elem, lane));
            out = self.combine(op, &x, &y)?.pieces[0];
        }
        Ok(self.one(a.ty.elem, out))
    }

    fn combine(&mut self, op: BinOp, a: &Val, b: &Val) -> Res<Val> {
        let elem = a.ty.elem;
        if elem.is_float() {
            return self.float_values(op, a, b, false);
        }
        if op == BinOp::Mul && !self.caps.int_mul(a.width) {
            return self.each_lane(elem, &[a, b], |fx, v| Ok(fx.b.ins().imul(v[0], v[1])));
        }
        self.map(elem, &[a, b], |fx, v, _| fx.plain(op, elem, v[0], v[1]))
    }
}
