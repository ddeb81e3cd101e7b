//! Lanes that move: extraction, insertion, shuffles, horizontal reductions.

use super::inst::{Class, Opnd, Size, V};
use super::mask::Logic;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Horizontal, Reg, Type};
use graphmend_targets::features::x86;
use iced_x86::Mnemonic;

impl Sel<'_> {
    /// The vector register whose lowest lane is lane `lane` of a value.
    pub(super) fn lowered(&mut self, a: &Val, lane: u16) -> V {
        let (p, lane) = ((lane / a.per) as usize, (lane % a.per) as usize);
        let v = a.parts[p];
        let bytes = a.ty.elem.size();
        let at = lane * bytes;
        if at == 0 {
            return v;
        }
        let low = self.quarter(v, at as u16 / 16);
        if at.is_multiple_of(16) {
            return low;
        }
        self.vec(Mnemonic::Vpsrldq, Size::X, &[Opnd::Reg(low, Size::X), Opnd::Imm(at as i64 % 16)])
    }

    /// The 16 bytes from byte `16 * n` on.
    pub(super) fn quarter(&mut self, v: V, n: u16) -> V {
        let (mnemonic, full) = match self.isa.evex {
            true => (Mnemonic::Vextracti32x4, Size::Z),
            false => (Mnemonic::Vextracti128, Size::Y),
        };
        match n {
            0 => v,
            _ => self.vec(mnemonic, Size::X, &[Opnd::Reg(v, full), Opnd::Imm(n.into())]),
        }
    }

    pub(super) fn extract(&mut self, a: &Val, lane: u16) -> Res<Val> {
        let elem = a.ty.elem;
        if a.ty.lanes == 1 {
            return Ok(a.clone());
        }
        let part = match (elem, elem.is_float()) {
            (DType::Bool, _) => self.mask_lane(a, lane),
            (_, true) => self.lowered(a, lane),
            _ => {
                let low = self.lowered(a, lane);
                self.lane_to_int(elem, low)
            }
        };
        Ok(self.scalar_value(elem, part))
    }

    pub(super) fn insert(&mut self, a: Reg, lane: u16, v: Reg) -> Res<Val> {
        let (a, v) = (self.val(a)?, self.val(v)?);
        if a.ty.lanes == 1 {
            return Ok(v);
        }
        let elem = a.ty.elem;
        if elem == DType::Bool {
            return Ok(self.mask_insert(&a, lane, v.parts[0]));
        }
        let (p, at) = ((lane / a.per) as usize, lane % a.per);
        let size = Self::part_size(&a, p);
        if !self.isa.evex {
            let all = self.copied_to_lanes(elem, size, v.parts[0]);
            let mut out = Val { imm: None, ..a };
            out.parts[p] = self.blend_lane(elem.size(), size, at, out.parts[p], all);
            return Ok(out);
        }
        let mask = self.mask_constant(1 << at);
        let (mnemonic, source) = match (elem, elem.size()) {
            (DType::F32, _) => (Mnemonic::Vbroadcastss, Size::X),
            (DType::F64, _) => (Mnemonic::Vpbroadcastq, Size::X),
            (_, 1) => (Mnemonic::Vpbroadcastb, Size::D),
            (_, 2) => (Mnemonic::Vpbroadcastw, Size::D),
            (_, 4) => (Mnemonic::Vpbroadcastd, Size::D),
            _ => (Mnemonic::Vpbroadcastq, Size::Q),
        };
        let part = self.vec_merged(mnemonic, size, a.parts[p], mask, &[Opnd::Reg(v.parts[0], source)]);
        let mut out = Val { imm: None, ..a };
        out.parts[p] = part;
        Ok(out)
    }

    pub(super) fn iota(&mut self, elem: DType, lanes: u16) -> Val {
        let ty = Type::vector(elem, lanes);
        if lanes == 1 {
            return self.constant(ty, 0);
        }
        let per = self.per(elem);
        let mut parts = vec![];
        for p in 0..lanes.div_ceil(per) {
            let bytes = (0..per).flat_map(|l| {
                let value = u64::from(p * per + l).to_le_bytes();
                value[..elem.size()].to_vec()
            });
            let bytes: Vec<u8> = bytes.collect();
            parts.push(self.vector_constant(&bytes));
        }
        self.value(ty, parts)
    }

    /// Lanes picked from `a` followed by `b`, which have one type.
    pub(super) fn shuffle(&mut self, a: &Val, b: &Val, picks: &[u16]) -> Res<Val> {
        let elem = a.ty.elem;
        let ty = a.ty.with_lanes(picks.len() as u16);
        match Self::class(a.ty) {
            // Single integers and Bools: vectors first.
            Class::Gpr => {
                let (a, b) = (self.widened_scalar(a), self.widened_scalar(b));
                let picks: Vec<u16> = picks.iter().map(|p| p * 2).collect();
                return self.shuffle(&a, &b, &picks);
            }
            Class::Mask => {
                let (a, b) = (self.mask_to_lanes(a), self.mask_to_lanes(b));
                let out = self.shuffle(&a, &b, picks)?;
                if ty.lanes == 1 {
                    let part = out.parts[0];
                    self.update(Mnemonic::And, part, Size::D, &[Opnd::Imm(1)]);
                    return Ok(self.scalar_value(DType::Bool, part));
                }
                return Ok(self.lanes_to_mask(&out));
            }
            Class::Vec => {}
        }
        if ty.lanes == 1 {
            let (from, lane) = if picks[0] < a.ty.lanes { (a, picks[0]) } else { (b, picks[0] - a.ty.lanes) };
            return self.extract(from, lane);
        }
        let mut parts = vec![];
        for part in picks.chunks(self.per(elem) as usize) {
            parts.push(self.shuffle_part(a, b, part)?);
        }
        Ok(self.value(ty, parts))
    }

    /// A scalar in the first of two lanes.
    fn widened_scalar(&mut self, a: &Val) -> Val {
        let ty = a.ty.with_lanes(2);
        match a.ty.elem {
            DType::Bool => {
                let part = self.mask_of_bool(a.parts[0]);
                Val { ty, per: self.per(DType::Bool), parts: vec![part], imm: None, mem: None }
            }
            elem => {
                let part = self.int_to_lane(elem, a.parts[0]);
                self.value(ty, vec![part])
            }
        }
    }

    fn shuffle_part(&mut self, a: &Val, b: &Val, picks: &[u16]) -> Res<V> {
        let elem = a.ty.elem;
        let bytes = elem.size();
        let per = a.per;
        let place = |pick: u16| match pick < a.ty.lanes {
            true => (a.parts[(pick / per) as usize], pick % per),
            false => (b.parts[((pick - a.ty.lanes) / per) as usize], (pick - a.ty.lanes) % per),
        };
        let places: Vec<(V, u16)> = picks.iter().map(|p| place(*p)).collect();
        let mut sources: Vec<V> = vec![];
        for (v, _) in &places {
            if !sources.contains(v) {
                sources.push(*v);
            }
        }
        let first = places[0];
        if sources.len() == 1 {
            if places.iter().enumerate().all(|(i, (_, lane))| *lane as usize == i) {
                return Ok(first.0);
            }
            if places.iter().all(|p| *p == first) {
                return Ok(self.splat_lane(elem, a, first, picks.len() as u16));
            }
            let ascending = places.iter().enumerate().all(|(i, (_, lane))| *lane == first.1 + i as u16);
            let (from, length) = (first.1 as usize * bytes, picks.len() * bytes);
            if ascending && from % 16 == 0 && length <= 16 {
                return Ok(self.quarter(first.0, from as u16 / 16));
            }
            if ascending && from % 16 + length <= 16 {
                let low = self.quarter(first.0, from as u16 / 16);
                let by = Opnd::Imm(from as i64 % 16);
                return Ok(self.vec(Mnemonic::Vpsrldq, Size::X, &[Opnd::Reg(low, Size::X), by]));
            }
            if ascending && from == 32 && self.isa.evex {
                return Ok(self.half_of_register(first.0, 1));
            }
        }
        if bytes == 1 && !self.has(x86::AVX512VBMI) || bytes == 2 && !self.isa.evex {
            return Ok(self.shuffle_bytes(bytes, &places));
        }
        if !self.isa.evex {
            return Ok(self.shuffle_dwords(bytes, &places, &sources));
        }
        // In full registers: the unused lanes pick lane 0.
        let whole = 64 / bytes;
        let index = |source: V, second: Option<V>| -> Vec<u8> {
            (0..whole)
                .flat_map(|i| {
                    let value = match places.get(i) {
                        Some((v, lane)) if *v == source => u64::from(*lane),
                        Some((v, lane)) if Some(*v) == second => u64::from(*lane) + whole as u64,
                        _ => 0,
                    };
                    value.to_le_bytes()[..bytes].to_vec()
                })
                .collect()
        };
        let two = match bytes {
            1 => Mnemonic::Vpermt2b,
            2 => Mnemonic::Vpermt2w,
            4 => Mnemonic::Vpermt2d,
            _ => Mnemonic::Vpermt2q,
        };
        let one = match bytes {
            1 => Mnemonic::Vpermb,
            2 => Mnemonic::Vpermw,
            4 => Mnemonic::Vpermd,
            _ => Mnemonic::Vpermq,
        };
        let mut out: Option<V> = None;
        for pair in sources.chunks(2) {
            let lanes = index(pair[0], pair.get(1).copied());
            let lanes = self.vector_constant(&lanes);
            let lanes = Opnd::Reg(lanes, Size::Z);
            let moved = match pair {
                [x, y] => {
                    let to = self.copy(*x);
                    self.update(two, to, Size::Z, &[lanes, Opnd::Reg(*y, Size::Z)]);
                    to
                }
                _ => self.vec(one, Size::Z, &[lanes, Opnd::Reg(pair[0], Size::Z)]),
            };
            out = Some(match out {
                None => moved,
                Some(before) => {
                    let bits = places.iter().enumerate().filter(|(_, (v, _))| pair.contains(v));
                    let bits = bits.fold(0u64, |bits, (i, _)| bits | 1 << i);
                    let mask = self.mask_constant(bits);
                    let mnemonic = match bytes {
                        1 => Mnemonic::Vmovdqu8,
                        2 => Mnemonic::Vmovdqu16,
                        4 => Mnemonic::Vmovdqa32,
                        _ => Mnemonic::Vmovdqa64,
                    };
                    self.vec_merged(mnemonic, Size::Z, before, mask, &[Opnd::Reg(moved, Size::Z)])
                }
            });
        }
        out.ok_or_else(|| "a shuffle of nothing".to_string().into())
    }

    /// Lanes of one or two bytes: from each 16 bytes that any comes from, those are brought to their places, and all is laid
    /// over each other.
    fn shuffle_bytes(&mut self, bytes: usize, places: &[(V, u16)]) -> V {
        let size = Self::size(places.len() as u16, bytes);
        let quarter_of = |(v, lane): (V, u16)| (v, lane * bytes as u16 / 16);
        let mut quarters: Vec<(V, u16)> = vec![];
        for place in places {
            if !quarters.contains(&quarter_of(*place)) {
                quarters.push(quarter_of(*place));
            }
        }
        let mut whole = None;
        for quarter in quarters {
            let order = (0..self.isa.bytes as usize).map(|i| match places.get(i / bytes) {
                Some(place) if quarter_of(*place) == quarter => (place.1 as usize * bytes % 16 + i % bytes) as u8,
                // Zero.
                _ => 0x80,
            });
            let order: Vec<u8> = order.collect();
            let order = self.vector_constant(&order);
            let (v, n) = quarter;
            let source = match (size, n) {
                (Size::X, _) => self.quarter(v, n),
                (_, n) => {
                    let (full, by) = (Opnd::Reg(v, self.isa.full()), i64::from(n));
                    match self.isa.evex {
                        true => self.vec(Mnemonic::Vshufi32x4, Size::Z, &[full, full, Opnd::Imm(by * 0x55)]),
                        false => {
                            self.vec(Mnemonic::Vpermq, Size::Y, &[full, Opnd::Imm(if by == 0 { 0x44 } else { 0xee })])
                        }
                    }
                }
            };
            let moved = self.vec(Mnemonic::Vpshufb, size, &[Opnd::Reg(source, size), Opnd::Reg(order, size)]);
            whole = Some(match whole {
                None => moved,
                Some(before) => self.logic(Logic::Or, size, before, moved),
            });
        }
        whole.unwrap_or_else(|| self.splat_constant(0, 8))
    }

    /// Lanes of four or eight bytes of 256-bit vectors: each source permuted where its lanes are not in their places, and
    /// blended.
    fn shuffle_dwords(&mut self, bytes: usize, places: &[(V, u16)], sources: &[V]) -> V {
        let each = bytes / 4;
        let dword = |i: usize| places.get(i / each).map(|(v, lane)| (*v, *lane as usize * each + i % each));
        let dwords: Vec<Option<(V, usize)>> = (0..8).map(dword).collect();
        if let Some(out) = self.shuffle_halves(&dwords) {
            return out;
        }
        let mut whole = None;
        for source in sources {
            let own = |d: &Option<(V, usize)>| d.filter(|(v, _)| v == source).map(|(_, at)| at);
            let in_place = dwords.iter().enumerate().all(|(i, d)| own(d).is_none_or(|at| at == i));
            let moved = match in_place {
                true => *source,
                false => {
                    let order = dwords.iter().flat_map(|d| (own(d).unwrap_or(0) as u32).to_le_bytes());
                    let order: Vec<u8> = order.collect();
                    let order = self.vector_constant(&order);
                    let (order, source) = (Opnd::Reg(order, Size::Y), Opnd::Reg(*source, Size::Y));
                    self.vec(Mnemonic::Vpermd, Size::Y, &[order, source])
                }
            };
            whole = Some(match whole {
                None => moved,
                Some(before) => {
                    let bits = dwords.iter().enumerate().filter(|(_, d)| own(d).is_some());
                    let bits = bits.fold(0, |bits, (i, _)| bits | 1 << i);
                    let sources = [Opnd::Reg(before, Size::Y), Opnd::Reg(moved, Size::Y), Opnd::Imm(bits)];
                    self.vec(Mnemonic::Vpblendd, Size::Y, &sources)
                }
            });
        }
        whole.unwrap_or_else(|| self.splat_constant(0, 8))
    }

    /// A shuffle that moves halves of registers as they are.
    fn shuffle_halves(&mut self, dwords: &[Option<(V, usize)>]) -> Option<V> {
        let half = |four: &[Option<(V, usize)>]| {
            let (v, at) = four[0]?;
            let together = four.iter().enumerate().all(|(i, d)| *d == Some((v, at + i)));
            (at % 4 == 0 && together).then_some((v, at as i64 / 4))
        };
        let ((low, from_low), (high, from_high)) = (half(&dwords[..4])?, half(&dwords[4..])?);
        let how = Opnd::Imm(from_low | (2 + from_high) << 4);
        Some(self.vec(Mnemonic::Vperm2i128, Size::Y, &[Opnd::Reg(low, Size::Y), Opnd::Reg(high, Size::Y), how]))
    }

    fn splat_lane(&mut self, elem: DType, a: &Val, (v, lane): (V, u16), lanes: u16) -> V {
        let one = Val { ty: a.ty.with_lanes(a.per), per: a.per, parts: vec![v], imm: None, mem: None };
        let low = self.lowered(&one, lane);
        let mnemonic = match elem.size() {
            1 => Mnemonic::Vpbroadcastb,
            2 => Mnemonic::Vpbroadcastw,
            4 => Mnemonic::Vbroadcastss,
            _ => Mnemonic::Vpbroadcastq,
        };
        self.vec(mnemonic, Self::size(lanes, elem.size()), &[Opnd::Reg(low, Size::X)])
    }

    /// A reduction, pairwise: the halves onto each other, an odd last lane at the end.
    pub(super) fn horizontal(&mut self, how: Horizontal, a: &Val) -> Res<Val> {
        let bin = match how {
            Horizontal::Add => BinOp::Add,
            Horizontal::Mul => BinOp::Mul,
            Horizontal::Min => BinOp::Min,
            Horizontal::Max => BinOp::Max,
        };
        if a.ty.lanes == 1 {
            return Ok(a.clone());
        }
        let elem = a.ty.elem;
        let mut val = a.clone();
        val.imm = None;
        let mut late = vec![];
        while val.ty.lanes > 1 {
            let lanes = val.ty.lanes;
            let half = lanes / 2;
            if lanes % 2 == 1 {
                late.push(self.lane_vector(&val, lanes - 1));
            }
            let low: Vec<u16> = (0..half).collect();
            let high: Vec<u16> = (half..2 * half).collect();
            let (low, high) = (self.low_lanes(&val, &low)?, self.low_lanes(&val, &high)?);
            val = self.combine(bin, low, high)?;
        }
        while let Some(lane) = late.pop() {
            val = self.combine(bin, val, lane)?;
        }
        if elem.is_float() {
            return Ok(val);
        }
        let part = self.lane_to_int(elem, val.parts[0]);
        Ok(self.scalar_value(elem, part))
    }

    /// The named lanes as a vector, also where it is a single one.
    fn low_lanes(&mut self, val: &Val, picks: &[u16]) -> Res<Val> {
        match picks {
            [lane] => Ok(self.lane_vector(val, *lane)),
            _ => self.shuffle(val, val, picks),
        }
    }

    /// One lane in a vector register.
    fn lane_vector(&mut self, val: &Val, lane: u16) -> Val {
        let part = self.lowered(val, lane);
        self.value(val.ty.with_lanes(1), vec![part])
    }

    /// Integer lanes stay in vector registers here even where there is a single one.
    fn combine(&mut self, bin: BinOp, a: Val, b: Val) -> Res<Val> {
        let ty = a.ty;
        if ty.elem.is_float() {
            return self.float_values(None, bin, a, b);
        }
        self.lanes_values(None, bin, &a, &b)
    }
}
