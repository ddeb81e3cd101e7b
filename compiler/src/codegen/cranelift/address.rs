//! Addresses: which parts of indices are shared between accesses, and which are constant.

use super::fx::{Fx, Res, chunks};
use super::legal::Caps;
use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Buf, Kernel, Op, Reg, Stmt};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Value, types};
use std::collections::HashMap;

/// What a kernel uses, found before translation.
#[derive(Default)]
pub(super) struct Uses<'a> {
    pub(super) defs: Vec<Option<&'a Op>>,
    pub(super) bufs: Vec<bool>,
    pub(super) scalars: Vec<bool>,
    pub(super) tile: [bool; 2],
    pub(super) pointers: HashMap<u32, Vec<(u32, u32)>>,
}

impl<'a> Uses<'a> {
    pub(super) fn of(kernel: &'a Kernel, caps: &Caps) -> Uses<'a> {
        let mut uses = Uses {
            defs: vec![None; kernel.regs.len()],
            bufs: vec![false; kernel.bufs.len()],
            scalars: vec![false; kernel.scalars as usize],
            ..Uses::default()
        };
        uses.block(kernel, caps, &kernel.body);
        uses
    }

    fn block(&mut self, kernel: &'a Kernel, caps: &Caps, stmts: &'a [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(reg, op) => {
                    self.defs[reg.0 as usize] = Some(op);
                    match op {
                        Op::Load { buf, index, lanes, .. } => self.access(kernel, caps, *buf, *index, *lanes),
                        Op::Words { buf, index, lanes, .. } => self.access_of(caps, *buf, *index, *lanes, 4),
                        Op::Scalar(i) => self.scalars[*i as usize] = true,
                        Op::TileLo => self.tile[0] = true,
                        Op::TileHi => self.tile[1] = true,
                        _ => {}
                    }
                }
                Stmt::Store { buf, index, value, .. } => {
                    self.access(kernel, caps, *buf, *index, kernel.regs[value.0 as usize].lanes);
                }
                Stmt::For { body, .. } => self.block(kernel, caps, body),
                Stmt::If { then, other, .. } => {
                    self.block(kernel, caps, then);
                    self.block(kernel, caps, other);
                }
                Stmt::While { head, body, .. } => {
                    self.block(kernel, caps, head);
                    self.block(kernel, caps, body);
                }
                Stmt::Set(..) | Stmt::Prefetch { .. } | Stmt::Return(_) => {}
            }
        }
    }

    fn access(&mut self, kernel: &Kernel, caps: &Caps, buf: Buf, index: Reg, lanes: u16) {
        let width = kernel.bufs[buf.0 as usize].dtype.size() as u8;
        self.access_of(caps, buf, index, lanes, width);
    }

    /// An access to lanes of `width` bytes.
    fn access_of(&mut self, caps: &Caps, buf: Buf, index: Reg, lanes: u16, width: u8) {
        self.bufs[buf.0 as usize] = true;
        if let (Some(root), _) = split(&self.defs, index) {
            let count = chunks(caps, lanes, width).len() as u32;
            let list = self.pointers.entry(root.0).or_default();
            match list.iter_mut().find(|entry| entry.0 == buf.0) {
                Some(entry) => entry.1 += count,
                None => list.push((buf.0, count)),
            }
        }
    }
}

/// An index as a register (none if all of it is constant) and a constant. Arithmetic wraps, as addresses do.
pub(super) fn split(defs: &[Option<&Op>], mut index: Reg) -> (Option<Reg>, i64) {
    let constant = |reg: Reg| match defs.get(reg.0 as usize) {
        Some(Some(Op::Const(imm, 1))) if imm.elem == DType::I64 => Some(imm.bits as i64),
        _ => None,
    };
    let mut sum = 0i64;
    loop {
        if let Some(value) = constant(index) {
            return (None, sum.wrapping_add(value));
        }
        match defs.get(index.0 as usize) {
            Some(Some(Op::Bin(BinOp::Add, a, b))) => match (constant(*a), constant(*b)) {
                (_, Some(value)) => (index, sum) = (*a, sum.wrapping_add(value)),
                (Some(value), None) => (index, sum) = (*b, sum.wrapping_add(value)),
                (None, None) => return (Some(index), sum),
            },
            Some(Some(Op::Bin(BinOp::Sub, a, b))) => match constant(*b) {
                Some(value) => (index, sum) = (*a, sum.wrapping_sub(value)),
                None => return (Some(index), sum),
            },
            _ => return (Some(index), sum),
        }
    }
}

/// Whether pieces of 16 bytes from `offset` on have immediate offsets on aarch64: multiples of 16 up to 65520, or anything
/// from -256 to 255.
fn in_a64_range(offset: i64, bytes: i64) -> bool {
    let last = offset + bytes - 16;
    (offset % 16 == 0 && offset >= 0 && last <= 65520) || (offset >= -256 && last <= 255)
}

impl Fx<'_, '_> {
    /// Makes the addresses that use `reg` as index, right after its definition: loads in inner loops then share them.
    pub(super) fn make_pointers(&mut self, reg: Reg) -> Res {
        let Some(list) = self.pointer_plan.get(&reg.0).cloned() else { return Ok(()) };
        let mut offsets: Vec<(Reg, u32, Value)> = Vec::new();
        for (buf, accesses) in list {
            let base = self.buffer(Buf(buf))?;
            let mut shift = self.kernel.bufs[buf as usize].dtype.size().trailing_zeros();
            let mut from = reg;
            if let (false, Some((x, more))) = (self.caps.x86(), self.scaled(reg)) {
                // One shift for both; x86 rather keeps the scale that its addresses have.
                (from, shift) = (x, shift + more);
            }
            let known = offsets.iter().find(|(reg, by, _)| (*reg, *by) == (from, shift)).map(|entry| entry.2);
            let offset = match known {
                Some(offset) => offset,
                None => {
                    let index = self.scalar(from)?;
                    let offset = if shift == 0 {
                        index
                    } else {
                        let count = self.iconst(8, shift as u64);
                        self.b.ins().ishl(index, count)
                    };
                    offsets.push((from, shift, offset));
                    offset
                }
            };
            let mut pointer = self.b.ins().iadd(base, offset);
            if self.caps.aarch64() && accesses > 1 {
                // Hides the sum from the loads, which would otherwise add again each time. x86 adds for free, and RISC-V
                // never looks inside.
                pointer = self.hidden(pointer);
            }
            self.pointers.insert((buf, reg.0), pointer);
        }
        Ok(())
    }

    /// The same value, but not seen through when addresses are formed.
    fn hidden(&mut self, value: Value) -> Value {
        self.b.ins().bitcast(types::I64, MemFlagsData::new().with_endianness(Endianness::Little), value)
    }

    /// The register and the shift, if `reg` is a register times a power of two.
    fn scaled(&self, reg: Reg) -> Option<(Reg, u32)> {
        let Some(Op::Bin(op, x, by)) = self.defs[reg.0 as usize] else { return None };
        let bits = self.imm(*by)?;
        match op {
            BinOp::Mul if bits.is_power_of_two() => Some((*x, bits.trailing_zeros())),
            BinOp::Shl if bits < 32 => Some((*x, bits as u32)),
            _ => None,
        }
    }

    pub(super) fn buffer(&self, buf: Buf) -> Res<Value> {
        let found = self.bufs.get(buf.0 as usize).copied().flatten();
        found.ok_or_else(|| format!("b{} was not loaded", buf.0))
    }

    /// The address of `index + disp` in a buffer: a base, and a byte offset such that `bytes` from there on can be
    /// addressed with 32-bit offsets.
    pub(super) fn address(&mut self, buf: Buf, index: Reg, disp: i64, bytes: i64) -> Res<(Value, i32)> {
        let (root, constant) = split(&self.defs, index);
        let base = match root {
            None => self.buffer(buf)?,
            Some(root) => {
                let pointer = self.pointers.get(&(buf.0, root.0)).copied();
                pointer.ok_or_else(|| format!("no address for b{} at %{}", buf.0, root.0))?
            }
        };
        let size = self.kernel.bufs[buf.0 as usize].dtype.size() as i64;
        let offset = disp.wrapping_add(constant).wrapping_mul(size);
        match (i32::try_from(offset), i32::try_from(offset.saturating_add(bytes))) {
            (Ok(near), Ok(_)) if self.caps.aarch64() && bytes > 16 && !in_a64_range(offset, bytes) => {
                // One addition instead of one for every piece.
                let offset = self.iconst(8, near as u64);
                let sum = self.b.ins().iadd(base, offset);
                Ok((self.hidden(sum), 0))
            }
            (Ok(offset), Ok(_)) => Ok((base, offset)),
            _ => {
                let offset = self.iconst(8, offset as u64);
                Ok((self.b.ins().iadd(base, offset), 0))
            }
        }
    }
}
