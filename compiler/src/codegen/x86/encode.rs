//! Instructions with registers to bytes.

use super::alloc::{Allocation, FIRST_SAVED, GPRS};
use super::inst::{Base, Body, Class, Inst, Line, Mem, Opcode, Opnd, Size, V};
use super::isa::Isa;
use iced_x86::{
    Code, Encoder, EncodingKind, Instruction, MemoryOperand, Mnemonic, OpCodeOperandKind, OpKind, Register,
};
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Machine code with its constants.
pub(super) struct Encoded {
    pub(super) code: Vec<u8>,
    /// Bytes of stack that it uses.
    pub(super) stack_bytes: u32,
    /// Where the constants begin.
    pub(super) end: usize,
}

/// Alignment of the code, which is that of its constants.
pub(super) const ALIGN: usize = 64;

/// Heads of innermost loops start at multiples of this.
const LOOP_ALIGN: usize = 32;

struct Writer<'a> {
    regs: &'a Allocation,
    isa: Isa,
    out: Vec<u8>,
    /// Where each label is.
    labels: Vec<Option<usize>>,
    /// 32-bit fields relative to their end, by label.
    jumps: Vec<(usize, u32)>,
    /// Such fields by offset among the constants; then the end of their instruction.
    constants: Vec<(usize, u32, usize)>,
    saved: Vec<Register>,
    frame: i32,
}

/// Encodes a kernel.
pub(super) fn encode(body: &Body, regs: &Allocation, isa: Isa) -> Result<Encoded, String> {
    let mut used = [false; GPRS.len()];
    let mut vectors = false;
    for line in &body.lines {
        let Line::Inst(inst) = line else { continue };
        for op in &inst.ops {
            match op {
                Opnd::Reg(v, _) if body.classes[v.0 as usize] == Class::Gpr => {
                    used[regs.regs[v.0 as usize] as usize] = true;
                }
                Opnd::Reg(..) => vectors = true,
                Opnd::Mem(mem) => mem.registers().for_each(|v| used[regs.regs[v.0 as usize] as usize] = true),
                _ => {}
            }
        }
    }
    let mut w = Writer {
        regs,
        isa,
        out: vec![],
        labels: vec![None; body.labels as usize],
        jumps: vec![],
        constants: vec![],
        saved: (FIRST_SAVED..GPRS.len()).filter(|n| used[*n]).map(|n| GPRS[n]).collect(),
        frame: i32::try_from(regs.slots * 64).map_err(|_| "the stack frame is too large")?,
    };
    for reg in w.saved.clone() {
        w.whole(&build(Instruction::with1(Code::Push_r64, reg))?)?;
    }
    if w.frame > 0 {
        w.whole(&build(Instruction::with2(Code::Sub_rm64_imm32, Register::RSP, w.frame))?)?;
    }
    for line in &body.lines {
        match line {
            Line::Inst(inst) => w.inst(inst)?,
            Line::Label(label, head) => {
                if *head {
                    w.align(LOOP_ALIGN)?;
                }
                w.labels[label.0 as usize] = Some(w.out.len());
            }
            Line::Jump(label) => w.jump(Code::Jmp_rel32_64, label.0)?,
            Line::JumpIf(code, label) => w.jump(*code, label.0)?,
            Line::Hold(_) | Line::Release => {}
            Line::Return(status) => w.leave(*status, vectors)?,
        }
    }
    for (at, label) in &w.jumps {
        let to = w.labels[*label as usize].ok_or("a jump to nowhere")?;
        put(&mut w.out, *at, to as i64 - (*at as i64 + 4))?;
    }
    let end = w.out.len();
    if !body.pool.is_empty() {
        w.out.resize(end.next_multiple_of(ALIGN), 0xcc);
        let pool = w.out.len();
        for (at, offset, after) in &w.constants {
            put(&mut w.out, *at, (pool + *offset as usize) as i64 - *after as i64)?;
        }
        w.out.extend(&body.pool);
    }
    let stack_bytes = w.frame as u32 + 8 * w.saved.len() as u32;
    Ok(Encoded { code: w.out, stack_bytes, end })
}

fn put(out: &mut [u8], at: usize, value: i64) -> Result<(), String> {
    let value = i32::try_from(value).map_err(|_| "the kernel is too large")?;
    out[at..at + 4].copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn build(instruction: Result<Instruction, iced_x86::IcedError>) -> Result<Instruction, String> {
    instruction.map_err(|e| e.to_string())
}

impl Writer<'_> {
    /// Appends an instruction; gives the offset of its displacement field, if it has one.
    fn whole(&mut self, instruction: &Instruction) -> Result<Option<usize>, String> {
        let mut encoder = Encoder::new(64);
        let at = self.out.len();
        encoder.encode(instruction, at as u64).map_err(|e| format!("{:?}: {e}", instruction.code()))?;
        let offsets = encoder.get_constant_offsets();
        self.out.extend(encoder.take_buffer());
        Ok(offsets.has_displacement().then(|| at + offsets.displacement_offset()))
    }

    fn align(&mut self, to: usize) -> Result<(), String> {
        let mut missing = self.out.len().next_multiple_of(to) - self.out.len();
        while missing > 0 {
            let n = missing.min(9);
            let code = [
                Code::Nopd,
                Code::Nopw,
                Code::Nop_rm32,
                Code::Nop_rm32,
                Code::Nop_rm32,
                Code::Nop_rm16,
                Code::Nop_rm32,
                Code::Nop_rm32,
                Code::Nop_rm16,
            ][n - 1];
            let base = Register::RAX;
            let instruction = match n {
                1 | 2 => Instruction::with(code),
                3 => build(Instruction::with1(code, MemoryOperand::with_base(base)))?,
                4 => build(Instruction::with1(code, MemoryOperand::with_base_displ_size(base, 0, 1)))?,
                7 => build(Instruction::with1(code, MemoryOperand::with_base_displ_size(base, 0, 8)))?,
                _ => {
                    let size = if n >= 8 { 8 } else { 1 };
                    let mem = MemoryOperand::with_base_index_scale_displ_size(base, base, 1, 0, size);
                    build(Instruction::with1(code, mem))?
                }
            };
            self.whole(&instruction)?;
            missing -= n;
        }
        Ok(())
    }

    fn jump(&mut self, code: Code, label: u32) -> Result<(), String> {
        let instruction = build(Instruction::with_branch(code, self.out.len() as u64 + 64))?;
        self.whole(&instruction)?;
        self.jumps.push((self.out.len() - 4, label));
        Ok(())
    }

    fn leave(&mut self, status: u32, vectors: bool) -> Result<(), String> {
        let status = build(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, status))?;
        self.whole(&status)?;
        if vectors {
            // What is left in upper halves slows down code that uses the old encoding.
            self.whole(&Instruction::with(Code::VEX_Vzeroupper))?;
        }
        if self.frame > 0 {
            self.whole(&build(Instruction::with2(Code::Add_rm64_imm32, Register::RSP, self.frame))?)?;
        }
        for reg in self.saved.clone().into_iter().rev() {
            self.whole(&build(Instruction::with1(Code::Pop_r64, reg))?)?;
        }
        self.whole(&Instruction::with(Code::Retnq))?;
        Ok(())
    }

    fn register(&self, v: V, size: Size) -> Register {
        let n = u32::from(self.regs.regs[v.0 as usize]);
        let gpr = GPRS.get(n as usize).copied().unwrap_or(Register::None);
        match size {
            Size::B => gpr_part(gpr, 1),
            Size::W => gpr_part(gpr, 2),
            Size::D => gpr_part(gpr, 4),
            Size::Q => gpr,
            Size::X => Register::XMM0 + n,
            Size::Y => Register::YMM0 + n,
            Size::Z => Register::ZMM0 + n,
            Size::K => Register::K0 + n,
        }
    }

    fn memory(&self, mem: &Mem) -> MemoryOperand {
        let (base, disp) = match mem.base {
            Base::Reg(v) => (self.register(v, Size::Q), mem.disp),
            Base::Pool(_) => (Register::RIP, 0),
            Base::Frame(slot) => (Register::RSP, mem.disp + 64 * slot as i32),
        };
        let (index, scale) = match mem.index {
            Some((v, scale)) => (self.register(v, Size::Q), u32::from(scale)),
            None => (Register::None, 1),
        };
        // A field of any size: the encoder takes the shortest.
        let size = if disp == 0 { 0 } else { 1 };
        MemoryOperand::new(base, index, scale, i64::from(disp), size, mem.broadcast, Register::None)
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), String> {
        if let Some((to, from)) = inst.copy()
            && self.regs.regs[to.0 as usize] == self.regs.regs[from.0 as usize]
        {
            return Ok(());
        }
        let mut parts = vec![];
        let mut pool = None;
        for op in &inst.ops {
            parts.push(match op {
                Opnd::Reg(v, size) => Part::Reg(self.register(*v, *size)),
                Opnd::Fixed(reg) => Part::Reg(*reg),
                Opnd::Imm(value) => Part::Imm(*value),
                Opnd::Mem(mem) => {
                    if let Base::Pool(at) = mem.base {
                        pool = Some(at + mem.disp as u32);
                    }
                    Part::Mem(self.memory(mem))
                }
            });
        }
        let mask = inst.mask.map(|(v, zeroing)| (self.register(v, Size::K), zeroing));
        let instruction = assemble(inst.opcode, &parts, mask, self.isa.evex)?;
        let displacement = self.whole(&instruction)?;
        if let Some(offset) = pool {
            let at = displacement.ok_or("a constant without a displacement")?;
            self.constants.push((at, offset, self.out.len()));
        }
        Ok(())
    }
}

fn gpr_part(reg: Register, bytes: u32) -> Register {
    let n = reg as u32 - Register::RAX as u32;
    match bytes {
        // Without legacy high-byte registers: spl to dil follow bl.
        1 if n < 4 => Register::AL + n,
        1 => Register::SPL + (n - 4),
        2 => Register::AX + n,
        _ => Register::EAX + n,
    }
}

/// An operand with its register.
#[derive(Clone, Copy)]
enum Part {
    Reg(Register),
    Mem(MemoryOperand),
    Imm(i64),
}

/// What decides which form of a mnemonic fits: the operands up to the numbers of registers.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Signature {
    mnemonic: Mnemonic,
    parts: Vec<(u8, u8)>,
    masked: bool,
    evex: bool,
}

/// The form and the kind of its immediate.
type Form = (Code, OpKind);

const IMMEDIATES: [OpKind; 7] = [
    OpKind::Immediate8,
    OpKind::Immediate8to32,
    OpKind::Immediate8to64,
    OpKind::Immediate32,
    OpKind::Immediate32to64,
    OpKind::Immediate8_2nd,
    OpKind::Immediate64,
];

/// An instruction; `evex` tells whether it may be one of AVX-512.
fn assemble(opcode: Opcode, parts: &[Part], mask: Option<(Register, bool)>, evex: bool) -> Result<Instruction, String> {
    let allowed = |code: Code| evex || serves_without_evex(code);
    let signature = |mnemonic| {
        let part = |p: &Part| match p {
            Part::Reg(r) => {
                // Registers from 8 on, and from 16 on, need more bits.
                let high = if r.is_vector_register() { r.number() as u8 >> 3 } else { 0 };
                let class = if r.is_zmm() {
                    1
                } else if r.is_ymm() {
                    2
                } else if r.is_xmm() {
                    3
                } else if r.is_k() {
                    4
                } else {
                    8 + r.size() as u8
                };
                (class, high)
            }
            Part::Mem(m) => {
                // What decides how long each form is: displacements of one byte count in units of up to 64 bytes.
                let short = |k: u32| {
                    let unit = 1i64 << k;
                    m.displacement % unit == 0 && i8::try_from(m.displacement / unit).is_ok()
                };
                let units = (0..7).filter(|k| short(*k)).fold(0, |units, k| units | 1 << k);
                let high = |r: Register| u8::from(r.is_gpr() && r.number() > 7);
                let kind = 64 | high(m.base) | high(m.index) << 1 | u8::from(m.displ_size == 0) << 2;
                (kind, u8::from(m.is_broadcast) << 7 | units)
            }
            Part::Imm(v) => (
                33,
                if i8::try_from(*v).is_ok() {
                    0
                } else if i32::try_from(*v).is_ok() {
                    1
                } else {
                    2
                },
            ),
        };
        Signature { mnemonic, parts: parts.iter().map(part).collect(), masked: mask.is_some(), evex }
    };
    let fail = |what: &dyn std::fmt::Debug| {
        let kinds: Vec<String> = parts
            .iter()
            .map(|p| match p {
                Part::Reg(r) => format!("{r:?}"),
                Part::Mem(m) => format!("memory{}", if m.is_broadcast { " to all" } else { "" }),
                Part::Imm(v) => v.to_string(),
            })
            .collect();
        format!("no form of {what:?} takes {}{}", kinds.join(", "), if mask.is_some() { ", masked" } else { "" })
    };
    match opcode {
        Opcode::Exact(code) if !allowed(code) => Err(fail(&code)),
        Opcode::Exact(code) => {
            let kinds = IMMEDIATES.into_iter().filter(|kind| fits(*kind, parts));
            let mut forms = kinds.map(|kind| with_parts(code, kind, parts, mask));
            let fit = forms.find(|i| length(i, parts.len()).is_some());
            fit.ok_or_else(|| fail(&code))
        }
        Opcode::Any(mnemonic) => {
            static FORMS: OnceLock<Mutex<HashMap<Signature, Form>>> = OnceLock::new();
            let key = signature(mnemonic);
            let mut known = FORMS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((code, kind)) = known.get(&key)
                && fits(*kind, parts)
            {
                return Ok(with_parts(*code, *kind, parts, mask));
            }
            let mut best: Option<(usize, Form, Instruction)> = None;
            for code in codes_of(mnemonic) {
                if !allowed(*code) || mask.is_some() && !code.op_code().can_use_op_mask_register() {
                    continue;
                }
                for kind in IMMEDIATES.into_iter().filter(|kind| fits(*kind, parts)) {
                    let instruction = with_parts(*code, kind, parts, mask);
                    if let Some(length) = length(&instruction, parts.len())
                        && best.as_ref().is_none_or(|(least, ..)| length < *least)
                    {
                        best = Some((length, (*code, kind), instruction));
                    }
                }
            }
            if let Some((_, form, instruction)) = best {
                known.insert(key, form);
                return Ok(instruction);
            }
            Err(fail(&mnemonic))
        }
    }
}

/// Does a form need nothing that processors with AVX2 lack?
fn serves_without_evex(code: Code) -> bool {
    let info = code.op_code();
    let uses_masks = |kind: &OpCodeOperandKind| {
        use OpCodeOperandKind as Kind;
        matches!(kind, Kind::k_reg | Kind::k_rm | Kind::k_vvvv | Kind::k_or_mem)
    };
    matches!(info.encoding(), EncodingKind::Legacy | EncodingKind::VEX) && !info.op_kinds().iter().any(uses_masks)
}

/// Can immediates of this kind hold the values?
fn fits(kind: OpKind, parts: &[Part]) -> bool {
    parts.iter().all(|part| match (part, kind) {
        (Part::Imm(v), OpKind::Immediate8 | OpKind::Immediate8_2nd) => (-128..256).contains(v),
        (Part::Imm(v), OpKind::Immediate8to32 | OpKind::Immediate8to64) => i8::try_from(*v).is_ok(),
        (Part::Imm(v), OpKind::Immediate32to64) => i32::try_from(*v).is_ok(),
        (Part::Imm(v), OpKind::Immediate32) => i32::try_from(*v).is_ok() || u32::try_from(*v).is_ok(),
        _ => true,
    })
}

/// Bytes of an instruction, if it has a form for all of its operands.
fn length(instruction: &Instruction, operands: usize) -> Option<usize> {
    if instruction.op_count() as usize != operands {
        return None;
    }
    Encoder::new(64).encode(instruction, 0).ok()
}

/// All forms of a mnemonic that take any register and any number.
fn codes_of(mnemonic: Mnemonic) -> &'static [Code] {
    static CODES: OnceLock<HashMap<Mnemonic, Vec<Code>>> = OnceLock::new();
    let all = CODES.get_or_init(|| {
        let mut map: HashMap<Mnemonic, Vec<Code>> = HashMap::new();
        let special = |kind: &OpCodeOperandKind| {
            use OpCodeOperandKind as Kind;
            matches!(kind, Kind::al | Kind::ax | Kind::eax | Kind::rax | Kind::cl | Kind::dx | Kind::imm8_const_1)
        };
        let general = |code: &Code| !code.op_code().op_kinds().iter().any(special);
        Code::values().filter(general).for_each(|code| map.entry(code.mnemonic()).or_default().push(code));
        map
    });
    all.get(&mnemonic).map_or(&[], Vec::as_slice)
}

fn with_parts(code: Code, immediate: OpKind, parts: &[Part], mask: Option<(Register, bool)>) -> Instruction {
    let mut out = Instruction::default();
    out.set_code(code);
    for (i, part) in parts.iter().enumerate() {
        let i = i as u32;
        match part {
            Part::Reg(reg) => {
                out.set_op_kind(i, OpKind::Register);
                out.set_op_register(i, *reg);
            }
            Part::Mem(mem) => {
                out.set_op_kind(i, OpKind::Memory);
                out.set_memory_base(mem.base);
                out.set_memory_index(mem.index);
                out.set_memory_index_scale(mem.scale);
                out.set_memory_displ_size(match mem.base {
                    // Relative to the instruction: the field always has four bytes.
                    Register::RIP => 8,
                    _ if mem.displ_size == 0 => 0,
                    _ => 1,
                });
                out.set_memory_displacement64(mem.displacement as u64);
                out.set_is_broadcast(mem.is_broadcast);
            }
            Part::Imm(value) => {
                out.set_op_kind(i, immediate);
                out.set_immediate_i64(i, *value);
            }
        }
    }
    if let Some((reg, zeroing)) = mask {
        out.set_op_mask(reg);
        out.set_zeroing_masking(zeroing);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form_is_taken_whatever_was_asked_for_before() {
        let places = [0, 4, 60, 64, 100, 128, 4096, 4100, 8128, -64, -132, -8192];
        let registers = [Register::XMM3, Register::XMM11, Register::XMM17, Register::YMM9, Register::ZMM3];
        let check = |parts: [Part; 2]| {
            let mnemonic = Mnemonic::Vmovups;
            let taken = assemble(Opcode::Any(mnemonic), &parts, None, true).expect("a form");
            let all = codes_of(mnemonic).iter().map(|code| with_parts(*code, OpKind::Immediate8, &parts, None));
            assert_eq!(length(&taken, 2), all.filter_map(|i| length(&i, 2)).min(), "{taken}");
        };
        for place in places.into_iter().chain(places.into_iter().rev()) {
            for base in [Register::RSI, Register::R11, Register::R13] {
                for reg in registers {
                    let mem = MemoryOperand::with_base_displ(base, place);
                    check([Part::Reg(reg), Part::Mem(mem)]);
                    check([Part::Mem(mem), Part::Reg(reg)]);
                }
            }
        }
        for (a, b) in [(3, 11), (11, 3), (17, 3), (3, 17), (11, 12)] {
            check([Part::Reg(Register::XMM0 + a), Part::Reg(Register::XMM0 + b)]);
        }
    }
}
