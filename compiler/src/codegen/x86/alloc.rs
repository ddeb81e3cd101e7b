//! Register allocation: live ranges with holes, given registers in the order in which they start; where none is free, what is
//! used least often for its length goes to the stack (or is made again where it is needed), and all is tried anew.

use super::inst::{Body, Class, Inst, Line, Mem, Opnd, Role, Size, V};
use super::isa::Isa;
use super::live::{self, Segment};
use iced_x86::{Code, Mnemonic, Register};

/// General registers by number; `rsp` is not among them.
pub(super) const GPRS: [Register; 15] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The first of [`GPRS`] that a callee must leave as it finds them.
pub(super) const FIRST_SAVED: usize = 9;

/// Registers given to a kernel's values.
pub(super) struct Allocation {
    /// Number within its class, by virtual register.
    pub(super) regs: Vec<u8>,
    /// Slots of 64 bytes on the stack.
    pub(super) slots: u32,
}

/// Gives every virtual register a real one, rewriting `body` where values must go to the stack.
pub(super) fn allocate(body: &mut Body, isa: Isa) -> Result<Allocation, String> {
    let mut slots = 0;
    let first_temporary = body.classes.len();
    // Each round that fails takes values out; what takes their place lives for one line.
    for _ in 0..100 {
        match attempt(body, isa.registers, first_temporary)? {
            Ok(regs) => return Ok(Allocation { regs, slots }),
            Err(spilled) => {
                for v in spilled {
                    // What was made before one loop is made again for each use in it.
                    if body.again.contains_key(&v) && (v.0 as usize) < first_temporary {
                        make_for_loops(body, v);
                    }
                    spill(body, isa, v, &mut slots);
                }
            }
        }
    }
    Err("register allocation did not end".to_string())
}

/// Registers for all, or what has to make room.
fn attempt(body: &Body, vectors: usize, first_temporary: usize) -> Result<Result<Vec<u8>, Vec<V>>, String> {
    let ranges = live::ranges(body);
    let mut weights = vec![0f64; body.classes.len()];
    let mut hints: Vec<Vec<V>> = vec![vec![]; body.classes.len()];
    for (line, depth) in body.lines.iter().zip(&body.depths) {
        let Line::Inst(inst) = line else { continue };
        let times = 10f64.powi(i32::from(*depth).min(12));
        inst.uses(|v| weights[v.0 as usize] += times);
        if let Some(v) = inst.def() {
            weights[v.0 as usize] += times;
        }
        if let Some((to, from)) = inst.copy() {
            hints[to.0 as usize].push(from);
            hints[from.0 as usize].push(to);
        }
        // A register that is updated holds what was copied into it.
    }
    for (v, weight) in weights.iter_mut().enumerate() {
        let length: u64 = ranges[v].iter().map(|s| u64::from(s.end - s.start) + 1).sum();
        let again = if body.again.contains_key(&V(v as u32)) { 0.5 } else { 1.0 };
        let single = v >= first_temporary && again == 1.0;
        *weight = if single { f64::INFINITY } else { *weight * again / length as f64 };
    }
    let mut files = [File::new(GPRS.len()), File::new(vectors), File::new(8)];
    // k0 means "no mask" in most instructions.
    files[Class::Mask as usize].taken[0].push(Taken { seg: Segment { start: 0, end: u32::MAX }, by: None });
    for (seg, regs) in live::held(body) {
        for reg in regs {
            let Some(n) = GPRS.iter().position(|r| r == reg) else { return Err(format!("{reg:?} cannot be held")) };
            files[Class::Gpr as usize].taken[n].push(Taken { seg, by: None });
        }
    }
    for file in &mut files {
        file.taken.iter_mut().for_each(|list| list.sort_by_key(|t| t.seg.start));
    }
    let mut order: Vec<usize> = (0..ranges.len()).filter(|v| !ranges[*v].is_empty()).collect();
    order.sort_by_key(|v| (ranges[*v][0].start, *v));
    let mut given: Vec<Option<u8>> = vec![None; ranges.len()];
    let mut spilled = vec![];
    for v in order {
        let file = &mut files[body.classes[v] as usize];
        let range = &ranges[v];
        let free = |n: usize, file: &File| file.conflicts(n, range).next().is_none();
        let hinted = hints[v].iter().filter_map(|h| given[h.0 as usize]).map(usize::from).find(|n| free(*n, file));
        let found = hinted.or_else(|| (0..file.taken.len()).find(|n| free(*n, file)));
        if let Some(n) = found {
            file.give(n, V(v as u32), range);
            given[v] = Some(n as u8);
            continue;
        }
        // The register whose present owners weigh least, if that is less than this one.
        let weigh = |n: usize| {
            file.conflicts(n, range).map(|t| t.by.map_or(f64::INFINITY, |o| weights[o.0 as usize])).fold(0.0, f64::max)
        };
        let best = (0..file.taken.len()).map(|n| (weigh(n), n)).min_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some((weight, n)) if weight < weights[v] => {
                let mut owners: Vec<V> = file.conflicts(n, range).filter_map(|t| t.by).collect();
                owners.sort();
                owners.dedup();
                for owner in owners {
                    file.take(n, owner);
                    given[owner.0 as usize] = None;
                    spilled.push(owner);
                }
                file.give(n, V(v as u32), range);
                given[v] = Some(n as u8);
            }
            _ if weights[v] == f64::INFINITY => return Err("no register for a value of one line".to_string()),
            _ => spilled.push(V(v as u32)),
        }
    }
    Ok(if spilled.is_empty() { Ok(given.into_iter().map(|n| n.unwrap_or(0)).collect()) } else { Err(spilled) })
}

/// A use of a register.
struct Taken {
    seg: Segment,
    /// By which value; none where the register is held.
    by: Option<V>,
}

/// The registers of a class.
struct File {
    /// What each register is taken by, in order.
    taken: Vec<Vec<Taken>>,
}

impl File {
    fn new(count: usize) -> File {
        File { taken: (0..count).map(|_| vec![]).collect() }
    }

    fn conflicts<'a>(&'a self, n: usize, range: &'a [Segment]) -> impl Iterator<Item = &'a Taken> {
        let list = &self.taken[n];
        range.iter().flat_map(move |seg| {
            // Entries do not overlap each other, so that their ends ascend, too.
            let first = list.partition_point(|t| t.seg.end < seg.start);
            list[first..].iter().take_while(|t| t.seg.start <= seg.end)
        })
    }

    fn give(&mut self, n: usize, v: V, range: &[Segment]) {
        for seg in range {
            let at = self.taken[n].partition_point(|t| t.seg.start < seg.start);
            self.taken[n].insert(at, Taken { seg: *seg, by: Some(v) });
        }
    }

    fn take(&mut self, n: usize, v: V) {
        self.taken[n].retain(|t| t.by != Some(v));
    }
}

/// A copy between a register and a stack slot.
fn slot_move(isa: Isa, class: Class, v: V, slot: u32, store: bool) -> Inst {
    let mem = Opnd::Mem(Mem::frame(slot));
    let (reg, load_op, store_op) = match class {
        Class::Gpr => (Opnd::Reg(v, Size::Q), Code::Mov_r64_rm64.into(), Code::Mov_rm64_r64.into()),
        Class::Vec => (Opnd::Reg(v, isa.full()), Mnemonic::Vmovups.into(), Mnemonic::Vmovups.into()),
        Class::Mask => (Opnd::Reg(v, Size::K), Mnemonic::Kmovq.into(), Mnemonic::Kmovq.into()),
    };
    let (opcode, role, ops): (super::inst::Opcode, _, _) =
        if store { (store_op, Role::Use, [mem, reg]) } else { (load_op, Role::Def, [reg, mem]) };
    Inst::new(opcode, role, &ops)
}

/// Innermost loops, as the lines of their heads and of the jumps back to them.
fn innermost(body: &Body) -> Vec<(usize, usize)> {
    let (mut found, mut open) = (vec![], None);
    for (i, line) in body.lines.iter().enumerate() {
        match line {
            Line::Label(label, true) => open = Some((i, *label)),
            Line::Jump(to) | Line::JumpIf(_, to) => {
                if let Some((head, label)) = open
                    && label == *to
                {
                    found.push((head, i));
                    open = None;
                }
            }
            _ => {}
        }
    }
    found
}

/// Makes `v`, which can be made anywhere, before each innermost loop that uses it, if it is not made in it: a register that is free
/// in one loop need not be free in all of the kernel.
fn make_for_loops(body: &mut Body, v: V) {
    let Some(make) = body.again.get(&v).cloned() else { return };
    let class = body.classes[v.0 as usize];
    // From the last loop to the first, so that lines before do not move.
    for (head, end) in innermost(body).into_iter().rev() {
        let (mut read, mut written) = (false, false);
        for line in &body.lines[head..end] {
            if let Line::Inst(inst) = line {
                inst.uses(|u| read |= u == v);
                written |= inst.def() == Some(v);
            }
        }
        if !read || written {
            continue;
        }
        let own = body.fresh(class);
        for line in &mut body.lines[head..end] {
            if let Line::Inst(inst) = line {
                inst.replace(v, own);
            }
        }
        let mut make = make.clone();
        make.replace(v, own);
        let depth = body.depths[head.saturating_sub(1)];
        body.lines.insert(head, Line::Inst(make.clone()));
        body.depths.insert(head, depth);
        body.again.insert(own, make);
    }
}

/// Keeps `v` on the stack, or makes it again wherever it is used.
fn spill(body: &mut Body, isa: Isa, v: V, slots: &mut u32) {
    let class = body.classes[v.0 as usize];
    let again = body.again.get(&v).cloned();
    let slot = *slots;
    if again.is_none() {
        *slots += 1;
    }
    let lines = std::mem::take(&mut body.lines);
    let depths = std::mem::take(&mut body.depths);
    for (line, depth) in lines.into_iter().zip(depths) {
        let Line::Inst(mut inst) = line else {
            body.push(line, depth);
            continue;
        };
        let mut read = false;
        inst.uses(|u| read |= u == v);
        let written = inst.def() == Some(v);
        if written && again.is_some() {
            continue;
        }
        if !read && !written {
            body.push(Line::Inst(inst), depth);
            continue;
        }
        let temporary = body.fresh(class);
        if read {
            let load = match &again {
                Some(make) => {
                    let mut make = make.clone();
                    make.replace(v, temporary);
                    make
                }
                None => slot_move(isa, class, temporary, slot, false),
            };
            body.push(Line::Inst(load), depth);
        }
        inst.replace(v, temporary);
        body.push(Line::Inst(inst), depth);
        if written {
            body.push(Line::Inst(slot_move(isa, class, temporary, slot, true)), depth);
        }
    }
}
