//! Flattens a kernel into instructions on slots.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use super::lanes::{self, Args, Exec};
use super::memory::Width;
use crate::dtype::DType;
use crate::ir::{Imm, Kernel, Op, Reg, Stmt, Var};
use crate::verify::{Invalid, verify};

/// An instruction. `u32` fields name slots, or instructions where said so.
#[derive(Clone, Debug)]
pub(super) enum Ins {
    /// Sums, products and comparisons of `i64` scalars are most of what a kernel does besides its data: no call.
    AddI64 {
        d: u32,
        a: u32,
        b: u32,
    },
    MulI64 {
        d: u32,
        a: u32,
        b: u32,
    },
    AddF32 {
        d: u32,
        a: u32,
        b: u32,
    },
    MulF32 {
        d: u32,
        a: u32,
        b: u32,
    },
    /// Anything on lanes.
    Exec(Exec, Args),
    Copy {
        d: u32,
        a: u32,
        n: u32,
    },
    Copy1 {
        d: u32,
        a: u32,
    },
    Splat {
        d: u32,
        a: u32,
        n: u32,
    },
    /// Lanes from the slots listed at `list` in [`Program::picks`].
    Gather {
        d: u32,
        list: u32,
        n: u32,
    },
    Load {
        width: Width,
        buf: u32,
        index: u32,
        disp: i64,
        d: u32,
        n: u32,
    },
    /// Groups of four bytes.
    Words {
        buf: u32,
        index: u32,
        disp: i64,
        d: u32,
        n: u32,
    },
    Store {
        width: Width,
        buf: u32,
        index: u32,
        disp: i64,
        a: u32,
        n: u32,
    },
    /// Starts a loop, or skips to the instruction `exit`.
    For {
        i: u32,
        lo: u32,
        hi: u32,
        exit: u32,
    },
    /// Next iteration from the instruction `body` on.
    Next {
        i: u32,
        hi: u32,
        step: i64,
        body: u32,
        cost: u32,
    },
    /// Goes to the instruction `to` unless the condition holds.
    Unless {
        cond: u32,
        to: u32,
    },
    /// Goes to the instruction `to`; backward jumps cost steps.
    Jump {
        to: u32,
        cost: u32,
    },
    Return(u32),
}

/// A kernel made ready to be interpreted.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) code: Vec<Ins>,
    /// Initial slots: constants in place, everything else zero.
    pub(super) image: Vec<u64>,
    pub(super) picks: Vec<u32>,
    /// Slots that take scalar parameters.
    pub(super) scalar_slots: Vec<(u32, u32)>,
    pub(super) tile_lo: Vec<u32>,
    pub(super) tile_hi: Vec<u32>,
    pub(super) bufs: Vec<(DType, bool)>,
    pub(super) scalars: u32,
}

impl Program {
    /// Verifies and flattens a kernel.
    pub fn new(kernel: &Kernel) -> Result<Program, Invalid> {
        Program::compile(kernel, true, MAX_SLOTS)
    }

    /// As [`Program::new`], but `fma` rounds the product, as on targets without the instruction.
    pub fn without_fused_fma(kernel: &Kernel) -> Result<Program, Invalid> {
        Program::compile(kernel, false, MAX_SLOTS)
    }

    /// As [`Program::without_fused_fma`], for a kernel that nobody vouches for: one that takes more than `slots` slots is
    /// refused. Without the instruction everywhere, results are the same on all processors, and it is not slow on those that
    /// lack it.
    pub fn within(kernel: &Kernel, slots: usize) -> Result<Program, Invalid> {
        Program::compile(kernel, false, slots.min(MAX_SLOTS))
    }

    fn compile(kernel: &Kernel, fused: bool, most: usize) -> Result<Program, Invalid> {
        verify(kernel)?;
        let mut flat = Flatten {
            kernel,
            fused,
            most,
            slots: vec![u32::MAX; kernel.regs.len()],
            var_slots: Vec::with_capacity(kernel.vars.len()),
            scratch: 0,
            out: Program {
                code: Vec::new(),
                image: Vec::new(),
                picks: Vec::new(),
                scalar_slots: Vec::new(),
                tile_lo: Vec::new(),
                tile_hi: Vec::new(),
                bufs: kernel.bufs.iter().map(|buf| (buf.dtype, buf.access == crate::ir::Access::Write)).collect(),
                scalars: kernel.scalars,
            },
        };
        let flattened = flat.kernel();
        let Flatten { out, .. } = flat;
        flattened.map(|()| out).map_err(|reason| Invalid {
            kernel: kernel.name.clone(),
            path: "declarations".to_string(),
            reason,
        })
    }
}

struct Flatten<'a> {
    kernel: &'a Kernel,
    fused: bool,
    /// Most slots.
    most: usize,
    /// First slot of each register, `u32::MAX` where not defined yet.
    slots: Vec<u32>,
    var_slots: Vec<u32>,
    /// Slots for horizontal operations.
    scratch: u32,
    out: Program,
}

/// More slots than this are refused: half a gigabyte of them.
const MAX_SLOTS: usize = 1 << 26;

type Flat<T = ()> = Result<T, String>;

impl Flatten<'_> {
    fn kernel(&mut self) -> Flat {
        let widest = self.kernel.regs.iter().map(|ty| ty.lanes).max().unwrap_or(1);
        self.scratch = self.fresh(widest)?;
        for ty in &self.kernel.vars {
            let slot = self.fresh(ty.lanes)?;
            self.var_slots.push(slot);
        }
        self.block(&self.kernel.body)?;
        self.out.code.push(Ins::Return(0));
        Ok(())
    }

    fn fresh(&mut self, lanes: u16) -> Flat<u32> {
        let slot = self.out.image.len();
        let end = slot + lanes as usize;
        if end > self.most {
            return Err(format!("registers have more than {} lanes in all", self.most));
        }
        self.out.image.resize(end, 0);
        Ok(slot as u32)
    }

    fn slot(&self, reg: Reg) -> u32 {
        self.slots[reg.0 as usize]
    }

    fn lanes(&self, reg: Reg) -> u16 {
        self.kernel.regs[reg.0 as usize].lanes
    }

    fn elem(&self, reg: Reg) -> DType {
        self.kernel.regs[reg.0 as usize].elem
    }

    fn here(&self) -> u32 {
        self.out.code.len() as u32
    }

    fn var(&self, var: Var) -> (u32, u32) {
        (self.var_slots[var.0 as usize], self.kernel.vars[var.0 as usize].lanes as u32)
    }

    fn block(&mut self, stmts: &[Stmt]) -> Flat {
        for stmt in stmts {
            self.stmt(stmt)?;
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &Stmt) -> Flat {
        match stmt {
            Stmt::Let(reg, op) => self.define(*reg, op)?,
            Stmt::Set(var, value) => {
                let (d, n) = self.var(*var);
                self.copy(d, self.slot(*value), n);
            }
            Stmt::Store { buf, index, disp, value } => {
                let width = Width::of(self.kernel.bufs[buf.0 as usize].dtype);
                let (index, a, n) = (self.slot(*index), self.slot(*value), self.lanes(*value) as u32);
                self.out.code.push(Ins::Store { width, buf: buf.0, index, disp: *disp, a, n });
            }
            Stmt::Prefetch { .. } => {}
            Stmt::For { ivar, lo, hi, step, body } => {
                let i = self.fresh(1)?;
                self.slots[ivar.0 as usize] = i;
                let (lo, hi) = (self.slot(*lo), self.slot(*hi));
                let start = self.here();
                self.out.code.push(Ins::For { i, lo, hi, exit: 0 });
                let first = self.here();
                self.block(body)?;
                let cost = self.cost(first);
                self.out.code.push(Ins::Next { i, hi, step: *step, body: first, cost });
                self.patch(start);
            }
            Stmt::If { cond, then, other } => {
                let start = self.here();
                self.out.code.push(Ins::Unless { cond: self.slot(*cond), to: 0 });
                self.block(then)?;
                if other.is_empty() {
                    self.patch(start);
                } else {
                    let skip = self.here();
                    self.out.code.push(Ins::Jump { to: 0, cost: 0 });
                    self.patch(start);
                    self.block(other)?;
                    self.patch(skip);
                }
            }
            Stmt::While { head, cond, body } => {
                let first = self.here();
                self.block(head)?;
                let leave = self.here();
                self.out.code.push(Ins::Unless { cond: self.slot(*cond), to: 0 });
                self.block(body)?;
                let cost = self.cost(first);
                self.out.code.push(Ins::Jump { to: first, cost });
                self.patch(leave);
            }
            Stmt::Return(code) => self.out.code.push(Ins::Return(*code)),
        }
        Ok(())
    }

    /// Lets the jump at `at` lead to the next instruction.
    fn patch(&mut self, at: u32) {
        let here = self.here();
        if let Ins::For { exit: to, .. } | Ins::Unless { to, .. } | Ins::Jump { to, .. } =
            &mut self.out.code[at as usize]
        {
            *to = here;
        }
    }

    /// Steps of one run through the instructions from `first` on: a step is an instruction on one lane. What inner loops
    /// repeat, they count themselves.
    fn cost(&self, first: u32) -> u32 {
        let lanes = |ins: &Ins| match ins {
            Ins::Exec(_, args) => args.n,
            Ins::Copy { n, .. } | Ins::Splat { n, .. } | Ins::Gather { n, .. } => *n,
            Ins::Load { n, .. } | Ins::Words { n, .. } | Ins::Store { n, .. } => *n,
            _ => 1,
        };
        self.out.code[first as usize..].iter().map(lanes).fold(1, u32::saturating_add)
    }

    fn copy(&mut self, d: u32, a: u32, n: u32) {
        self.out.code.push(if n == 1 { Ins::Copy1 { d, a } } else { Ins::Copy { d, a, n } });
    }

    fn exec(&mut self, f: Option<Exec>, args: Args) -> Flat {
        match f {
            Some(f) => self.out.code.push(Ins::Exec(f, args)),
            None => return Err("an operation has no meaning for its type".to_string()),
        }
        Ok(())
    }

    fn gather(&mut self, d: u32, sources: impl Iterator<Item = u32>) {
        let list = self.out.picks.len() as u32;
        self.out.picks.extend(sources);
        let n = self.out.picks.len() as u32 - list;
        self.out.code.push(Ins::Gather { d, list, n });
    }

    fn define(&mut self, reg: Reg, op: &Op) -> Flat {
        // Lanes and other readings of a register that never changes again need no slot of their own.
        match op {
            Op::Extract(a, lane) => {
                self.slots[reg.0 as usize] = self.slot(*a) + *lane as u32;
                return Ok(());
            }
            Op::Bitcast(_, a) => {
                self.slots[reg.0 as usize] = self.slot(*a);
                return Ok(());
            }
            _ => {}
        }
        let lanes = self.lanes(reg);
        let (d, n) = (self.fresh(lanes)?, lanes as u32);
        self.slots[reg.0 as usize] = d;
        let args = |a: u32, b: u32, c: u32| Args { d, a, b, c, n };
        match op {
            Op::Const(Imm { bits, .. }, _) => {
                self.out.image[d as usize..][..lanes as usize].fill(*bits);
            }
            Op::Iota(..) => {
                let image = &mut self.out.image[d as usize..][..lanes as usize];
                image.iter_mut().zip(0..).for_each(|(slot, lane)| *slot = lane);
            }
            Op::Scalar(i) => self.out.scalar_slots.push((*i, d)),
            Op::TileLo => self.out.tile_lo.push(d),
            Op::TileHi => self.out.tile_hi.push(d),
            Op::Un(un, a) => self.exec(lanes::un(*un, self.elem(*a)), args(self.slot(*a), 0, 0))?,
            Op::Bin(bin, x, y) => {
                use crate::ir::BinOp::{Add, Mul};
                let (elem, a, b) = (self.elem(*x), self.slot(*x), self.slot(*y));
                match (bin, elem, n) {
                    (Add, DType::I64, 1) => self.out.code.push(Ins::AddI64 { d, a, b }),
                    (Mul, DType::I64, 1) => self.out.code.push(Ins::MulI64 { d, a, b }),
                    (Add, DType::F32, 1) => self.out.code.push(Ins::AddF32 { d, a, b }),
                    (Mul, DType::F32, 1) => self.out.code.push(Ins::MulF32 { d, a, b }),
                    _ => self.exec(lanes::bin(*bin, elem), args(a, b, 0))?,
                }
            }
            Op::Fma(x, y, z) => {
                let f = lanes::fma(self.elem(*x), self.fused);
                self.exec(f, args(self.slot(*x), self.slot(*y), self.slot(*z)))?;
            }
            Op::Dot(dot, x, y, z) => {
                self.exec(Some(lanes::dot(*dot)), args(self.slot(*x), self.slot(*y), self.slot(*z)))?;
            }
            Op::Cmp(cmp, x, y) => {
                self.exec(lanes::cmp(*cmp, self.elem(*x)), args(self.slot(*x), self.slot(*y), 0))?;
            }
            Op::Select(mask, x, y) => {
                self.exec(Some(lanes::select), args(self.slot(*mask), self.slot(*x), self.slot(*y)))?;
            }
            Op::Cast(to, x) => self.exec(lanes::cast(*to, self.elem(*x)), args(self.slot(*x), 0, 0))?,
            Op::Splat(x, _) => self.out.code.push(Ins::Splat { d, a: self.slot(*x), n }),
            Op::Insert(x, lane, v) => {
                self.copy(d, self.slot(*x), n);
                self.copy(d + *lane as u32, self.slot(*v), 1);
            }
            Op::Shuffle(x, y, picks) => {
                let (a, b, lanes) = (self.slot(*x), self.slot(*y), self.lanes(*x));
                self.gather(
                    d,
                    picks.iter().map(|&pick| if pick < lanes { a + pick as u32 } else { b + (pick - lanes) as u32 }),
                );
            }
            Op::Horizontal(kind, x) => {
                let args = Args { n: self.lanes(*x) as u32, ..args(self.slot(*x), self.scratch, 0) };
                self.exec(lanes::horizontal(*kind, self.elem(*x)), args)?;
            }
            Op::Load { buf, index, disp, .. } => {
                let width = Width::of(self.kernel.bufs[buf.0 as usize].dtype);
                self.out.code.push(Ins::Load { width, buf: buf.0, index: self.slot(*index), disp: *disp, d, n });
            }
            Op::Words { buf, index, disp, .. } => {
                self.out.code.push(Ins::Words { buf: buf.0, index: self.slot(*index), disp: *disp, d, n });
            }
            Op::Get(var) => {
                let (a, n) = self.var(*var);
                self.copy(d, a, n);
            }
            Op::Extract(..) | Op::Bitcast(..) => {}
        }
        Ok(())
    }
}
