//! Instructions of x86-64 over virtual registers.

use iced_x86::{Code, Mnemonic, Register};

/// Which registers a virtual register may be given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Class {
    /// General purpose.
    Gpr,
    /// `xmm`, `ymm`, `zmm`.
    Vec,
    /// `k1` to `k7`.
    Mask,
}

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct V(pub(super) u32);

/// How much of a register an operand names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Size {
    /// 8 bits of a general register.
    B,
    /// 16 bits.
    W,
    /// 32 bits; writing them clears the upper half.
    D,
    /// All 64 bits.
    Q,
    /// 128 bits of a vector register.
    X,
    /// 256 bits.
    Y,
    /// 512 bits.
    Z,
    /// A mask register.
    K,
}

/// What an address starts from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Base {
    /// A register.
    Reg(V),
    /// A place in the constants behind the code.
    Pool(u32),
    /// A slot of the stack frame.
    Frame(u32),
}

/// `base + index * scale + disp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Mem {
    pub(super) base: Base,
    /// Register and scale (1, 2, 4 or 8).
    pub(super) index: Option<(V, u8)>,
    pub(super) disp: i32,
    /// One element, copied to all lanes.
    pub(super) broadcast: bool,
}

impl Mem {
    pub(super) fn pool(at: u32) -> Mem {
        Mem { base: Base::Pool(at), index: None, disp: 0, broadcast: false }
    }

    pub(super) fn frame(slot: u32) -> Mem {
        Mem { base: Base::Frame(slot), index: None, disp: 0, broadcast: false }
    }

    pub(super) fn broadcast(self) -> Mem {
        Mem { broadcast: true, ..self }
    }

    pub(super) fn offset(self, bytes: i32) -> Mem {
        Mem { disp: self.disp + bytes, ..self }
    }

    pub(super) fn registers(&self) -> impl Iterator<Item = V> + use<> {
        let base = if let Base::Reg(v) = self.base { Some(v) } else { None };
        base.into_iter().chain(self.index.map(|(v, _)| v))
    }
}

/// An operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Opnd {
    Reg(V, Size),
    Fixed(Register),
    Mem(Mem),
    Imm(i64),
}

/// What an instruction does with its first operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Writes all of it.
    Def,
    /// Reads and writes it.
    Update,
    /// Only reads it, as comparisons and stores do.
    Use,
}

/// Which instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Opcode {
    /// The shortest form of the mnemonic that the operands fit.
    Any(Mnemonic),
    /// Exactly this form, where operands leave a choice.
    Exact(Code),
}

impl From<Mnemonic> for Opcode {
    fn from(mnemonic: Mnemonic) -> Opcode {
        Opcode::Any(mnemonic)
    }
}

impl From<Code> for Opcode {
    fn from(code: Code) -> Opcode {
        Opcode::Exact(code)
    }
}

/// An instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Inst {
    pub(super) opcode: Opcode,
    pub(super) ops: Vec<Opnd>,
    pub(super) role: Role,
    /// Lanes that are written; the others become zero if the flag says so, else they stay.
    pub(super) mask: Option<(V, bool)>,
}

impl Inst {
    pub(super) fn new(opcode: impl Into<Opcode>, role: Role, ops: &[Opnd]) -> Inst {
        Inst { opcode: opcode.into(), ops: ops.to_vec(), role, mask: None }
    }

    pub(super) fn masked(self, mask: V, zeroing: bool) -> Inst {
        // What is merged into is read.
        let role = if self.role == Role::Def && !zeroing { Role::Update } else { self.role };
        Inst { mask: Some((mask, zeroing)), role, ..self }
    }

    /// The register that is written.
    pub(super) fn def(&self) -> Option<V> {
        match (self.role, self.ops.first()) {
            (Role::Def | Role::Update, Some(Opnd::Reg(v, _))) => Some(*v),
            _ => None,
        }
    }

    /// Calls `f` with each register that is read.
    pub(super) fn uses(&self, mut f: impl FnMut(V)) {
        for (i, op) in self.ops.iter().enumerate() {
            match op {
                Opnd::Reg(v, _) if i > 0 || self.role != Role::Def => f(*v),
                Opnd::Mem(mem) => mem.registers().for_each(&mut f),
                _ => {}
            }
        }
        if let Some((mask, _)) = self.mask {
            f(mask);
        }
    }

    /// Puts `to` in the place of `from` wherever it is named.
    pub(super) fn replace(&mut self, from: V, to: V) {
        let put = |v: &mut V| {
            if *v == from {
                *v = to;
            }
        };
        for op in &mut self.ops {
            match op {
                Opnd::Reg(v, _) => put(v),
                Opnd::Mem(mem) => {
                    if let Base::Reg(v) = &mut mem.base {
                        put(v);
                    }
                    if let Some((v, _)) = &mut mem.index {
                        put(v);
                    }
                }
                Opnd::Fixed(_) | Opnd::Imm(_) => {}
            }
        }
        if let Some((v, _)) = &mut self.mask {
            put(v);
        }
    }

    /// The registers of a plain copy between registers of one class: destination and source.
    pub(super) fn copy(&self) -> Option<(V, V)> {
        let plain =
            matches!(self.opcode, Opcode::Exact(Code::Mov_r64_rm64) | Opcode::Any(Mnemonic::Vmovaps | Mnemonic::Kmovq));
        match (self.ops.as_slice(), self.role, self.mask) {
            // A mask and a general register are not of one class, though one instruction copies between them.
            ([Opnd::Reg(to, size), Opnd::Reg(from, same)], Role::Def, None) if plain && size == same => {
                Some((*to, *from))
            }
            _ => None,
        }
    }
}

/// A place that jumps go to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Label(pub(super) u32);

/// A line of code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Inst(Inst),
    /// Jumps come here. `true`: the head of an innermost loop.
    Label(Label, bool),
    Jump(Label),
    /// Conditional jump (`Jl_rel32_64`, …).
    JumpIf(Code, Label),
    /// From here to the matching release, these registers hold operands that are not virtual.
    Hold(&'static [Register]),
    Release,
    /// Returns with this status.
    Return(u32),
}

/// A whole kernel.
#[derive(Default)]
pub(super) struct Body {
    pub(super) lines: Vec<Line>,
    /// Depth of loops around each line.
    pub(super) depths: Vec<u8>,
    /// Classes of the virtual registers.
    pub(super) classes: Vec<Class>,
    /// Definitions that can be made again anywhere, of registers that are defined once.
    pub(super) again: std::collections::HashMap<V, Inst>,
    /// Constants behind the code.
    pub(super) pool: Vec<u8>,
    pub(super) labels: u32,
}

impl Body {
    pub(super) fn fresh(&mut self, class: Class) -> V {
        self.classes.push(class);
        V(self.classes.len() as u32 - 1)
    }

    pub(super) fn push(&mut self, line: Line, depth: u8) {
        self.lines.push(line);
        self.depths.push(depth);
    }

    /// Removes what computes values that nobody reads.
    pub(super) fn drop_unused(&mut self) {
        let mut uses = vec![0u32; self.classes.len()];
        for line in &self.lines {
            if let Line::Inst(inst) = line {
                inst.uses(|v| uses[v.0 as usize] += 1);
            }
        }
        let mut keep = vec![true; self.lines.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for (line, keep) in self.lines.iter().zip(&mut keep).rev() {
                let Line::Inst(inst) = line else { continue };
                let Some(v) = inst.def() else { continue };
                // A value that is only read to make itself anew is not read either.
                let own = u32::from(inst.role == Role::Update);
                if *keep && uses[v.0 as usize] == own {
                    *keep = false;
                    changed = true;
                    inst.uses(|v| uses[v.0 as usize] -= 1);
                }
            }
        }
        let mut kept = keep.iter();
        self.lines.retain(|_| kept.next() == Some(&true));
        let mut kept = keep.iter();
        self.depths.retain(|_| kept.next() == Some(&true));
    }

    /// The offset of bytes among the constants, aligned to their size; the same bytes are kept once.
    pub(super) fn constant(&mut self, bytes: &[u8]) -> u32 {
        let step = bytes.len().next_power_of_two().min(64);
        let known = (0..self.pool.len()).step_by(step).find(|at| self.pool.get(*at..at + bytes.len()) == Some(bytes));
        if let Some(at) = known {
            return at as u32;
        }
        let at = self.pool.len().next_multiple_of(step);
        self.pool.resize(at, 0);
        self.pool.extend(bytes);
        at as u32
    }
}
