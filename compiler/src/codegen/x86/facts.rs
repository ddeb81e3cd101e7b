//! What selection needs to know of a kernel before it starts: how often and where registers are used, which loads of
//! variables need no copy, which results may be written into a variable at once, and which addresses are worth a register.

use crate::dtype::DType;
use crate::kernel::ir::{BinOp, Buf, Kernel, Op, Reg, Stmt, Var};
use crate::kernel::types::operands;
use std::collections::{HashMap, HashSet};

/// A block of statements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Number of the block; 0 is the kernel's body.
    pub(super) block: u32,
    /// Loops around it.
    pub(super) depth: u8,
}

/// Uses of a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uses {
    pub(super) count: u32,
    /// Block of the last one.
    pub(super) block: u32,
    /// All are in that block.
    pub(super) together: bool,
    /// All uses are as the operand of a splat.
    pub(super) splats: bool,
}

/// The facts.
pub(super) struct Facts<'k> {
    pub(super) defs: Vec<Option<&'k Op>>,
    pub(super) places: Vec<Place>,
    pub(super) uses: Vec<Uses>,
    pub(super) bufs: Vec<bool>,
    pub(super) scalars: Vec<bool>,
    pub(super) tile: [bool; 2],
    /// `Get`s whose value is read before the variable changes.
    pub(super) alias: Vec<bool>,
    /// The variable that a register's value goes into, where nothing reads the variable's old value after that.
    pub(super) into: Vec<Option<Var>>,
    /// Comparisons that the branch directly after them makes.
    pub(super) fused: Vec<bool>,
    /// Buffers to which a register is added once, where it is defined, for loads in loops deeper inside.
    pub(super) pointers: HashMap<Reg, Vec<Buf>>,
    /// Blocks with the buffers that are written in them or in blocks inside of them.
    pub(super) written: HashSet<(u32, Buf)>,
}

impl<'k> Facts<'k> {
    pub(super) fn of(kernel: &'k Kernel) -> Facts<'k> {
        let regs = kernel.regs.len();
        let mut facts = Facts {
            defs: vec![None; regs],
            places: vec![Place { block: 0, depth: 0 }; regs],
            uses: vec![Uses { count: 0, block: 0, together: true, splats: true }; regs],
            bufs: vec![false; kernel.bufs.len()],
            scalars: vec![false; kernel.scalars as usize],
            tile: [false; 2],
            alias: vec![false; regs],
            into: vec![None; regs],
            fused: vec![false; regs],
            pointers: HashMap::new(),
            written: HashSet::new(),
        };
        let mut blocks = 0;
        facts.block(&kernel.body, Place { block: 0, depth: 0 }, &mut blocks, None);
        facts.variables(kernel, &kernel.body.iter().collect::<Vec<_>>());
        facts.accesses(&kernel.body);
        facts
    }

    fn use_of(&mut self, reg: Reg, block: u32, splat: bool) {
        let uses = &mut self.uses[reg.0 as usize];
        let together = uses.together && (uses.count == 0 || uses.block == block);
        *uses = Uses { count: uses.count + 1, block, together, splats: uses.splats && splat };
    }

    fn block(&mut self, stmts: &'k [Stmt], place: Place, blocks: &mut u32, cond: Option<Reg>) {
        let inner = |blocks: &mut u32, deeper: u8| {
            *blocks += 1;
            Place { block: *blocks, depth: place.depth.saturating_add(deeper) }
        };
        for (i, stmt) in stmts.iter().enumerate() {
            match stmt {
                Stmt::Let(reg, op) => {
                    self.defs[reg.0 as usize] = Some(op);
                    self.places[reg.0 as usize] = place;
                    operands(op, |r| self.use_of(r, place.block, matches!(op, Op::Splat(..))));
                    match op {
                        Op::Load { buf, .. } | Op::Words { buf, .. } => self.bufs[buf.0 as usize] = true,
                        Op::Scalar(i) => self.scalars[*i as usize] = true,
                        Op::TileLo => self.tile[0] = true,
                        Op::TileHi => self.tile[1] = true,
                        _ => {}
                    }
                    // The branch after this statement, or the loop whose condition this block ends with.
                    let next = match stmts.get(i + 1) {
                        Some(Stmt::If { cond, .. }) => Some(*cond),
                        None => cond,
                        _ => None,
                    };
                    self.fused[reg.0 as usize] = next == Some(*reg) && matches!(op, Op::Cmp(..));
                }
                Stmt::Set(_, reg) => self.use_of(*reg, place.block, false),
                Stmt::Store { buf, index, value, .. } => {
                    self.bufs[buf.0 as usize] = true;
                    self.written.insert((place.block, *buf));
                    self.use_of(*index, place.block, false);
                    self.use_of(*value, place.block, false);
                }
                Stmt::Prefetch { buf, index, .. } => {
                    self.bufs[buf.0 as usize] = true;
                    self.use_of(*index, place.block, false);
                }
                Stmt::For { ivar, lo, hi, body, .. } => {
                    let inside = inner(blocks, 1);
                    self.use_of(*lo, place.block, false);
                    self.use_of(*hi, inside.block, false);
                    self.places[ivar.0 as usize] = inside;
                    self.block(body, inside, blocks, None);
                    self.written_inside(place, inside);
                }
                Stmt::If { cond, then, other } => {
                    self.use_of(*cond, place.block, false);
                    let first = inner(blocks, 0);
                    self.block(then, first, blocks, None);
                    self.written_inside(place, first);
                    let second = inner(blocks, 0);
                    self.block(other, second, blocks, None);
                    self.written_inside(place, second);
                }
                Stmt::While { head, cond, body } => {
                    let first = inner(blocks, 1);
                    self.block(head, first, blocks, Some(*cond));
                    self.written_inside(place, first);
                    self.use_of(*cond, first.block, false);
                    let second = inner(blocks, 0);
                    self.block(body, Place { depth: first.depth, ..second }, blocks, None);
                    self.written_inside(place, second);
                }
                Stmt::Return(_) => {}
            }
        }
    }

    /// What is written in `inner` is written in the block around it.
    fn written_inside(&mut self, around: Place, inner: Place) {
        for buf in (0..self.bufs.len() as u32).map(Buf) {
            if self.written.contains(&(inner.block, buf)) {
                self.written.insert((around.block, buf));
            }
        }
    }

    /// Finds aliases and results that go straight into variables, in statements that follow one another.
    fn variables(&mut self, kernel: &'k Kernel, stmts: &[&'k Stmt]) {
        // Where each register of this block is used last, and where each variable is touched.
        let mut last: HashMap<Reg, usize> = HashMap::new();
        let mut defined: HashMap<Reg, usize> = HashMap::new();
        let mut gets: HashMap<Var, Vec<(usize, Option<Reg>)>> = HashMap::new();
        let mut sets: HashMap<Var, Vec<(usize, Option<Reg>)>> = HashMap::new();
        for (i, stmt) in stmts.iter().enumerate() {
            each(stmt, &mut |s, top| {
                reads(s, &mut |r| {
                    last.insert(r, i);
                });
                match s {
                    Stmt::Let(r, Op::Get(v)) => gets.entry(*v).or_default().push((i, top.then_some(*r))),
                    Stmt::Let(r, _) if top => {
                        defined.insert(*r, i);
                    }
                    Stmt::Set(v, r) => sets.entry(*v).or_default().push((i, top.then_some(*r))),
                    _ => {}
                }
            });
        }
        for (var, list) in &gets {
            for (at, reg) in list {
                let Some(reg) = reg else { continue };
                let end = last.get(reg).copied().unwrap_or(*at);
                let changed = sets.get(var).into_iter().flatten().any(|(set, top)| {
                    // A value that is put where it comes from is still the same.
                    *set > *at && (*set < end || (*set == end && top.is_none()))
                });
                self.alias[reg.0 as usize] = !changed;
            }
        }
        for (var, list) in &sets {
            for (at, reg) in list {
                let Some(reg) = reg else { continue };
                let Some(from) = defined.get(reg).copied() else { continue };
                let Some(op) = self.defs[reg.0 as usize] else { continue };
                let simple = match op {
                    Op::Fma(..) | Op::Dot(..) => true,
                    Op::Bin(bin, ..) => {
                        let elem = kernel.regs[reg.0 as usize].elem;
                        match bin {
                            BinOp::Add | BinOp::Sub => elem.size() >= 4,
                            BinOp::Mul => elem.is_float(),
                            _ => false,
                        }
                    }
                    _ => false,
                };
                let used_once = self.uses[reg.0 as usize].count == 1;
                let touched = sets[var].iter().any(|(s, _)| from < *s && s < at)
                    || gets.get(var).into_iter().flatten().any(|(g, r)| {
                        let end = r.map_or(*g, |r| last.get(&r).copied().unwrap_or(*g));
                        (from < *g && g < at) || (*g < from && end > from)
                    });
                if simple && used_once && !touched {
                    self.into[reg.0 as usize] = Some(*var);
                }
            }
        }
        for stmt in stmts {
            match stmt {
                Stmt::For { body, .. } => self.variables(kernel, &body.iter().collect::<Vec<_>>()),
                Stmt::If { then, other, .. } => {
                    self.variables(kernel, &then.iter().collect::<Vec<_>>());
                    self.variables(kernel, &other.iter().collect::<Vec<_>>());
                }
                // The body sees what the head defines.
                Stmt::While { head, body, .. } => {
                    self.variables(kernel, &head.iter().chain(body).collect::<Vec<_>>());
                }
                _ => {}
            }
        }
    }

    fn accesses(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Let(_, Op::Load { buf, index, .. } | Op::Words { buf, index, .. })
                | Stmt::Store { buf, index, .. }
                | Stmt::Prefetch { buf, index, .. } => {
                    if let (Some(root), _) = self.split(*index)
                        && let Some((outer, _)) = self.sum(root)
                    {
                        let list = self.pointers.entry(outer).or_default();
                        if !list.contains(buf) {
                            list.push(*buf);
                        }
                    }
                }
                Stmt::For { body, .. } => self.accesses(body),
                Stmt::If { then, other, .. } => {
                    self.accesses(then);
                    self.accesses(other);
                }
                Stmt::While { head, body, .. } => {
                    self.accesses(head);
                    self.accesses(body);
                }
                _ => {}
            }
        }
    }

    fn constant(&self, reg: Reg) -> Option<i64> {
        match self.defs.get(reg.0 as usize) {
            Some(Some(Op::Const(imm, 1))) if imm.elem == DType::I64 => Some(imm.bits as i64),
            _ => None,
        }
    }

    /// An index as a register (none if all of it is constant) and a constant. Arithmetic wraps, as addresses do.
    pub(super) fn split(&self, mut index: Reg) -> (Option<Reg>, i64) {
        let mut sum = 0i64;
        loop {
            if let Some(value) = self.constant(index) {
                return (None, sum.wrapping_add(value));
            }
            match self.defs.get(index.0 as usize) {
                Some(Some(Op::Bin(BinOp::Add, a, b))) => match (self.constant(*a), self.constant(*b)) {
                    (_, Some(value)) => (index, sum) = (*a, sum.wrapping_add(value)),
                    (Some(value), None) => (index, sum) = (*b, sum.wrapping_add(value)),
                    (None, None) => return (Some(index), sum),
                },
                Some(Some(Op::Bin(BinOp::Sub, a, b))) => match self.constant(*b) {
                    Some(value) => (index, sum) = (*a, sum.wrapping_sub(value)),
                    None => return (Some(index), sum),
                },
                _ => return (Some(index), sum),
            }
        }
    }

    /// The two terms of an index that is a sum of one from a loop outside and one from further inside; constants in them
    /// are not split off.
    pub(super) fn sum(&self, root: Reg) -> Option<(Reg, Reg)> {
        let Some(Some(Op::Bin(BinOp::Add, a, b))) = self.defs.get(root.0 as usize) else { return None };
        let (da, db) = (self.places[a.0 as usize].depth, self.places[b.0 as usize].depth);
        match da.cmp(&db) {
            std::cmp::Ordering::Less => Some((*a, *b)),
            std::cmp::Ordering::Greater => Some((*b, *a)),
            std::cmp::Ordering::Equal => None,
        }
    }
}

/// Calls `f` with a statement and all nested in it, and whether it is the statement itself.
fn each<'k>(stmt: &'k Stmt, f: &mut dyn FnMut(&'k Stmt, bool)) {
    fn go<'k>(stmts: &'k [Stmt], f: &mut dyn FnMut(&'k Stmt, bool)) {
        for s in stmts {
            f(s, false);
            nested(s, f);
        }
    }
    fn nested<'k>(stmt: &'k Stmt, f: &mut dyn FnMut(&'k Stmt, bool)) {
        match stmt {
            Stmt::For { body, .. } => go(body, f),
            Stmt::If { then, other, .. } => {
                go(then, f);
                go(other, f);
            }
            Stmt::While { head, body, .. } => {
                go(head, f);
                go(body, f);
            }
            _ => {}
        }
    }
    f(stmt, true);
    nested(stmt, f);
}

/// Calls `f` with each register that a statement itself reads.
fn reads(stmt: &Stmt, f: &mut dyn FnMut(Reg)) {
    match stmt {
        Stmt::Let(_, op) => operands(op, f),
        Stmt::Set(_, r) => f(*r),
        Stmt::Store { index, value, .. } => {
            f(*index);
            f(*value);
        }
        Stmt::Prefetch { index, .. } => f(*index),
        Stmt::For { lo, hi, .. } => {
            f(*lo);
            f(*hi);
        }
        Stmt::If { cond, .. } | Stmt::While { cond, .. } => f(*cond),
        Stmt::Return(_) => {}
    }
}
