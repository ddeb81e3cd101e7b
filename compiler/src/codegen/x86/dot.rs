//! Sums of products of small integers.

use super::inst::{Opnd, Size, V};
use super::mask::Logic;
use super::select::{Res, Sel, Val};
use crate::dtype::DType;
use crate::kernel::ir::{Dot, Reg};
use iced_x86::Mnemonic;

impl Sel<'_> {
    pub(super) fn dot(&mut self, reg: Reg, dot: Dot, a: Reg, b: Reg, c: Reg) -> Res<Val> {
        let ty = self.kernel.regs[reg.0 as usize];
        if ty.lanes == 1 {
            return self.dot_of_scalars(dot, a, b, c);
        }
        let (mut a, mut b, c) = (self.used(a)?, self.used(b)?, self.val(c)?);
        self.complete(&mut a);
        let mut parts = vec![];
        for p in 0..c.parts.len() {
            let size = Self::part_size(&c, p);
            let (x, z) = (a.parts[p], c.parts[p]);
            let to = match self.target(Some(reg), p) {
                to if to != z && (to == x || b.parts.contains(&to)) => self.fresh(super::inst::Class::Vec),
                to => to,
            };
            if self.has(self.isa.dot_feature()) {
                let y = self.source(&mut b, p, size);
                let mnemonic = match dot {
                    Dot::Bytes => Mnemonic::Vpdpbusd,
                    Dot::Words => Mnemonic::Vpdpwssd,
                };
                self.copy_to(to, z);
                self.update(mnemonic, to, size, &[Opnd::Reg(x, size), y]);
            } else {
                let sum = match dot {
                    Dot::Words => {
                        let y = self.source(&mut b, p, size);
                        self.vec(Mnemonic::Vpmaddwd, size, &[Opnd::Reg(x, size), y])
                    }
                    Dot::Bytes => {
                        self.complete(&mut b);
                        self.products_of_bytes(size, x, b.parts[p])
                    }
                };
                self.def(Mnemonic::Vpaddd, to, size, &[Opnd::Reg(z, size), Opnd::Reg(sum, size)]);
            }
            parts.push(to);
        }
        Ok(self.value(ty, parts))
    }

    /// Sums of four products in each lane: bytes with even and with odd numbers as words.
    fn products_of_bytes(&mut self, size: Size, a: V, b: V) -> V {
        let low = self.splat_constant(0x00ff, 2);
        let even = self.logic(Logic::And, size, a, low);
        let odd = self.vec(Mnemonic::Vpsrlw, size, &[Opnd::Reg(a, size), Opnd::Imm(8)]);
        let left = self.vec(Mnemonic::Vpsllw, size, &[Opnd::Reg(b, size), Opnd::Imm(8)]);
        let even_b = self.vec(Mnemonic::Vpsraw, size, &[Opnd::Reg(left, size), Opnd::Imm(8)]);
        let odd_b = self.vec(Mnemonic::Vpsraw, size, &[Opnd::Reg(b, size), Opnd::Imm(8)]);
        let even = self.vec(Mnemonic::Vpmaddwd, size, &[Opnd::Reg(even, size), Opnd::Reg(even_b, size)]);
        let odd = self.vec(Mnemonic::Vpmaddwd, size, &[Opnd::Reg(odd, size), Opnd::Reg(odd_b, size)]);
        self.vec(Mnemonic::Vpaddd, size, &[Opnd::Reg(even, size), Opnd::Reg(odd, size)])
    }

    /// Scalars by way of vectors.
    fn dot_of_scalars(&mut self, dot: Dot, a: Reg, b: Reg, c: Reg) -> Res<Val> {
        let mut lanes = vec![];
        for r in [a, b, c] {
            let part = self.int(r)?;
            lanes.push(self.vec(Mnemonic::Vmovd, Size::X, &[Opnd::Reg(part, Size::D)]));
        }
        let [x, y, z] = lanes[..] else { return self.lacks("a dot product of scalars") };
        let products = match dot {
            Dot::Bytes => self.products_of_bytes(Size::X, x, y),
            Dot::Words => self.vec(Mnemonic::Vpmaddwd, Size::X, &[Opnd::Reg(x, Size::X), Opnd::Reg(y, Size::X)]),
        };
        let sum = self.vec(Mnemonic::Vpaddd, Size::X, &[Opnd::Reg(z, Size::X), Opnd::Reg(products, Size::X)]);
        let out = self.gpr(Mnemonic::Vmovd, Size::D, &[Opnd::Reg(sum, Size::X)]);
        Ok(self.scalar_value(DType::I32, out))
    }
}
