//! Loads and stores of less than a register where no instruction takes a mask: in pieces of 16, 8, 4, 2 and 1 bytes.

use super::inst::{Mem, Opnd, Size, V};
use super::select::Sel;
use iced_x86::Mnemonic;

/// Offsets and sizes of the pieces of `total` bytes, each at a multiple of its size.
fn pieces(total: usize) -> Vec<(usize, usize)> {
    let mut at = 0;
    let mut out = vec![];
    for size in [16, 8, 4, 2, 1] {
        if total - at >= size {
            out.push((at, size));
            at += size;
        }
    }
    out
}

impl Sel<'_> {
    /// `total` bytes in lanes of `bytes` bytes, less than a register; what lies beyond becomes zero.
    pub(super) fn load_tail(&mut self, bytes: usize, total: usize, mem: Mem) -> V {
        let size = if total > 16 { Size::Y } else { Size::X };
        if bytes >= 4 {
            let mask: Vec<u8> = (0..self.isa.bytes.into()).map(|i| if i < total { 0xff } else { 0 }).collect();
            let mask = self.vector_constant(&mask);
            return self.vec(Mnemonic::Vmaskmovps, size, &[Opnd::Reg(mask, size), Opnd::Mem(mem)]);
        }
        // The pieces that lie in the upper half are put together in a register of their own.
        let mut halves: [Option<V>; 2] = [None; 2];
        for (at, length) in pieces(total) {
            let half = &mut halves[at / 16];
            let from = Opnd::Mem(mem.offset(at as i32));
            let lane = Opnd::Imm((at % 16 / length) as i64);
            let x = Size::X;
            *half = Some(match (*half, length) {
                (_, 16) => self.vec(Mnemonic::Vmovups, x, &[from]),
                (None, 8) => self.vec(Mnemonic::Vmovq, x, &[from]),
                (None, 4) => self.vec(Mnemonic::Vmovd, x, &[from]),
                (before, _) => {
                    let before = before.unwrap_or_else(|| self.splat_constant(0, 8));
                    let mnemonic = match length {
                        8 => Mnemonic::Vpinsrq,
                        4 => Mnemonic::Vpinsrd,
                        2 => Mnemonic::Vpinsrw,
                        _ => Mnemonic::Vpinsrb,
                    };
                    self.vec(mnemonic, x, &[Opnd::Reg(before, x), from, lane])
                }
            });
        }
        match halves {
            [Some(low), Some(high)] => self.halves_together(low, high),
            [low, _] => low.unwrap_or_else(|| self.splat_constant(0, 8)),
        }
    }

    /// The first `total` bytes of a register, less than all of it.
    pub(super) fn store_tail(&mut self, total: usize, mem: Mem, v: V) {
        for (at, length) in pieces(total) {
            let to = Opnd::Mem(mem.offset(at as i32));
            let low = Opnd::Reg(self.quarter(v, at as u16 / 16), Size::X);
            let lane = at % 16 / length;
            let mnemonic = match (length, lane) {
                (16, _) => Mnemonic::Vmovups,
                (8, 0) => Mnemonic::Vmovq,
                (4, 0) => Mnemonic::Vmovd,
                (8, _) => Mnemonic::Vpextrq,
                (4, _) => Mnemonic::Vpextrd,
                (2, _) => Mnemonic::Vpextrw,
                _ => Mnemonic::Vpextrb,
            };
            match (length, lane) {
                (16, _) | (8 | 4, 0) => self.effect(mnemonic, &[to, low]),
                _ => self.effect(mnemonic, &[to, low, Opnd::Imm(lane as i64)]),
            }
        }
    }
}
