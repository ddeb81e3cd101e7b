//! Addresses: what is added once outside of a loop, and what an operand adds for free.

use super::inst::{Base, Mem, Opnd, Size, V};
use super::select::{Res, Sel, Stop};
use crate::kernel::ir::{Access, Buf, Reg};
use iced_x86::{Code, Mnemonic};

impl Sel<'_> {
    fn buffer(&self, buf: Buf) -> Res<V> {
        let found = self.bufs.get(buf.0 as usize).copied().flatten();
        found.ok_or_else(|| Stop::Internal(format!("b{} was not loaded", buf.0)))
    }

    fn scale(&self, buf: Buf) -> u8 {
        self.kernel.bufs[buf.0 as usize].dtype.size() as u8
    }

    /// Adds `reg` to the buffers that are read at sums of it and a register from further inside.
    pub(super) fn make_pointers(&mut self, reg: Reg) -> Res {
        let Some(list) = self.facts.pointers.get(&reg).cloned() else { return Ok(()) };
        for buf in list {
            // Constant parts stay in the operands.
            let (root, _) = self.facts.split(reg);
            let Some(root) = root else { continue };
            let pointer = match self.pointers.get(&(buf.0, root)) {
                Some(pointer) => *pointer,
                None => {
                    let base = self.buffer(buf)?;
                    let index = self.int(root)?;
                    let mem =
                        Mem { base: Base::Reg(base), index: Some((index, self.scale(buf))), disp: 0, broadcast: false };
                    self.gpr(Code::Lea_r64_m, Size::Q, &[Opnd::Mem(mem)])
                }
            };
            self.pointers.insert((buf.0, reg), pointer);
        }
        Ok(())
    }

    /// The memory at `index + disp` in a buffer; `bytes` more than that can be added to its displacement.
    pub(super) fn address(&mut self, buf: Buf, index: Reg, disp: i64, bytes: i64) -> Res<Mem> {
        let scale = self.scale(buf);
        let (root, constant) = self.facts.split(index);
        let mut elements = disp.wrapping_add(constant);
        let mut base = self.buffer(buf)?;
        let mut inner = root;
        if let Some(root) = root
            && let Some((outer, rest)) = self.facts.sum(root)
            && let Some(pointer) = self.pointers.get(&(buf.0, outer)).copied()
        {
            elements = elements.wrapping_add(self.facts.split(outer).1);
            base = pointer;
            let (rest, more) = self.facts.split(rest);
            elements = elements.wrapping_add(more);
            inner = rest;
        }
        let mut index = match inner {
            Some(reg) => Some((self.int(reg)?, scale)),
            None => None,
        };
        let offset = elements.wrapping_mul(i64::from(scale));
        let near = i32::try_from(offset).ok().filter(|near| i32::try_from(i64::from(*near) + bytes + 64).is_ok());
        let disp = match near {
            Some(near) => near,
            None => {
                // Beyond what an operand can say.
                let far = self.gpr_constant(offset as u64);
                self.update(Code::Add_r64_rm64, far, Size::Q, &[Opnd::Reg(base, Size::Q)]);
                base = far;
                0
            }
        };
        if let Some((v, by)) = index
            && !matches!(by, 1 | 2 | 4 | 8)
        {
            let scaled = self.fresh(super::inst::Class::Gpr);
            self.def(Mnemonic::Imul, scaled, Size::Q, &[Opnd::Reg(v, Size::Q), Opnd::Imm(i64::from(by))]);
            index = Some((scaled, 1));
        }
        Ok(Mem { base: Base::Reg(base), index, disp, broadcast: false })
    }

    /// May what a load of `reg` reads from this buffer be read later in the same block?
    pub(super) fn steady(&self, reg: Reg, buf: Buf) -> bool {
        let block = self.facts.places[reg.0 as usize].block;
        self.kernel.bufs[buf.0 as usize].access == Access::Read || !self.facts.written.contains(&(block, buf))
    }

    /// Is the register of this index one that changes (that of a variable)?
    pub(super) fn movable(&self, mem: &Mem) -> bool {
        mem.registers().all(|v| !self.vars.iter().any(|var| var.parts.contains(&v)))
    }
}
