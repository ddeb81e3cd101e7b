//! Kernels as bytes, as they lie in cache files for no processor in particular.
//!
//! The tree of statements is written as a list in postcard, in which blocks are opened and closed: what is read is not nested, so that
//! no file makes the reader go deeper than [`MAX_DEPTH`]. The name is left out. What is read is verified.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ir::{Buf, BufParam, Kernel, Op, Reg, Stmt, Type, Var};
use crate::verify::{Invalid, MAX_DEPTH, verify};

/// What precedes the statements.
#[derive(Serialize, Deserialize)]
struct Head {
    bufs: Vec<BufParam>,
    scalars: u32,
    tiled: bool,
    regs: Vec<Type>,
    vars: Vec<Type>,
}

/// A statement, or the border of a block.
#[derive(Serialize, Deserialize)]
enum Item {
    Let(Reg, Op),
    Set(Var, Reg),
    Store { buf: Buf, index: Reg, disp: i64, value: Reg },
    Prefetch { buf: Buf, index: Reg, disp: i64 },
    Return(u32),
    For { ivar: Reg, lo: Reg, hi: Reg, step: i64 },
    If(Reg),
    Else,
    While,
    Do(Reg),
    End,
}

/// Writes a kernel.
pub fn write(kernel: &Kernel) -> Vec<u8> {
    let Kernel { bufs, scalars, tiled, regs, vars, .. } = kernel.clone();
    let mut items = Vec::new();
    list(&kernel.body, &mut items);
    // Into a vector of numbers and lists, which cannot fail.
    postcard::to_allocvec(&(Head { bufs, scalars, tiled, regs, vars }, items)).unwrap_or_default()
}

fn list(stmts: &[Stmt], out: &mut Vec<Item>) {
    for stmt in stmts {
        match stmt {
            Stmt::Let(reg, op) => out.push(Item::Let(*reg, op.clone())),
            Stmt::Set(var, value) => out.push(Item::Set(*var, *value)),
            Stmt::Store { buf, index, disp, value } => {
                out.push(Item::Store { buf: *buf, index: *index, disp: *disp, value: *value });
            }
            Stmt::Prefetch { buf, index, disp } => {
                out.push(Item::Prefetch { buf: *buf, index: *index, disp: *disp });
            }
            Stmt::Return(status) => out.push(Item::Return(*status)),
            Stmt::For { ivar, lo, hi, step, body } => {
                out.push(Item::For { ivar: *ivar, lo: *lo, hi: *hi, step: *step });
                list(body, out);
                out.push(Item::End);
            }
            Stmt::If { cond, then, other } => {
                out.push(Item::If(*cond));
                list(then, out);
                out.push(Item::Else);
                list(other, out);
                out.push(Item::End);
            }
            Stmt::While { head, cond, body } => {
                out.push(Item::While);
                list(head, out);
                out.push(Item::Do(*cond));
                list(body, out);
                out.push(Item::End);
            }
        }
    }
}

/// A block that is open.
enum Open {
    For { ivar: Reg, lo: Reg, hi: Reg, step: i64 },
    Then(Reg),
    Else(Reg, Vec<Stmt>),
    Head,
    While(Reg, Vec<Stmt>),
}

/// Reads and verifies a kernel.
///
/// # Errors
/// Bytes that are no kernel; a kernel that breaks a rule.
pub fn read(bytes: &[u8]) -> Result<Kernel, Invalid> {
    let wrong = |reason: &str| Invalid { kernel: String::new(), path: "bytes".to_string(), reason: reason.to_string() };
    let ((head, items), rest): ((Head, Vec<Item>), _) =
        postcard::take_from_bytes(bytes).map_err(|_| wrong("no kernel"))?;
    if !rest.is_empty() {
        return Err(wrong("more than a kernel"));
    }
    let mut open: Vec<(Open, Vec<Stmt>)> = Vec::new();
    let mut body: Vec<Stmt> = Vec::new();
    let unmatched = || wrong("blocks do not match");
    for item in items {
        let start = match item {
            Item::Let(reg, op) => {
                body.push(Stmt::Let(reg, op));
                continue;
            }
            Item::Set(var, value) => {
                body.push(Stmt::Set(var, value));
                continue;
            }
            Item::Store { buf, index, disp, value } => {
                body.push(Stmt::Store { buf, index, disp, value });
                continue;
            }
            Item::Prefetch { buf, index, disp } => {
                body.push(Stmt::Prefetch { buf, index, disp });
                continue;
            }
            Item::Return(status) => {
                body.push(Stmt::Return(status));
                continue;
            }
            Item::End => {
                let (block, outer) = open.pop().ok_or_else(unmatched)?;
                let inner = core::mem::replace(&mut body, outer);
                body.push(match block {
                    Open::For { ivar, lo, hi, step } => Stmt::For { ivar, lo, hi, step, body: inner },
                    Open::Else(cond, then) => Stmt::If { cond, then, other: inner },
                    Open::While(cond, head) => Stmt::While { head, cond, body: inner },
                    Open::Then(_) | Open::Head => return Err(unmatched()),
                });
                continue;
            }
            Item::Else | Item::Do(_) => {
                let (block, outer) = open.pop().ok_or_else(unmatched)?;
                let inner = core::mem::replace(&mut body, outer);
                match (block, item) {
                    (Open::Then(cond), Item::Else) => Open::Else(cond, inner),
                    (Open::Head, Item::Do(cond)) => Open::While(cond, inner),
                    _ => return Err(unmatched()),
                }
            }
            Item::For { ivar, lo, hi, step } => Open::For { ivar, lo, hi, step },
            Item::If(cond) => Open::Then(cond),
            Item::While => Open::Head,
        };
        if open.len() >= MAX_DEPTH {
            return Err(wrong("blocks are nested too deeply"));
        }
        open.push((start, core::mem::take(&mut body)));
    }
    if !open.is_empty() {
        return Err(unmatched());
    }
    let Head { bufs, scalars, tiled, regs, vars } = head;
    let kernel = Kernel { name: String::new(), bufs, scalars, tiled, regs, vars, body };
    verify(&kernel)?;
    Ok(kernel)
}

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::*;
    use crate::text::parse;
    use alloc::vec;

    fn sample() -> Kernel {
        let text = "kernel \"\" tiled { b0: read f32 b1: write f16 scalars 1 v0: i64
            %0: i64 = tile.lo %1: i64 = tile.hi %2: bool = lt %0, %1 %3: f32x4 = const 0.5
            for %4 in %0..%1 step 4 { prefetch b0[%4 + 64]
                if %2 { %5: f32x4 = load b0[%4 + 16] store b1[%4] = %5 } else { return 1 }
                while { %6: i64 = get v0 %7: bool = lt %6, %1 } %7 { v0 = %1 }
                %8: f32x4 = shuffle %3, %3 [0, 7, 1, 2] store b1[%4 + 4] = %8
            } }";
        parse(text).unwrap()
    }

    #[test]
    fn a_kernel_comes_back_from_its_bytes() {
        let kernel = sample();
        assert_eq!(read(&write(&kernel)), Ok(kernel));
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_refused_or_another_kernel_that_keeps_the_rules() {
        let bytes = write(&sample());
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= change;
                if let Ok(kernel) = read(&other) {
                    assert_eq!(verify(&kernel), Ok(()));
                }
            }
        }
    }

    #[test]
    fn blocks_are_not_nested_without_end() {
        let head = || Head { bufs: vec![], scalars: 0, tiled: false, regs: vec![], vars: vec![] };
        let bytes = |items: Vec<Item>| postcard::to_allocvec(&(head(), items)).unwrap();
        let deep: Vec<Item> = (0..100_000).map(|_| Item::While).collect();
        assert!(read(&bytes(deep)).unwrap_err().reason.contains("too deeply"));
        for items in [vec![Item::End], vec![Item::While, Item::End], vec![Item::If(Reg(0)), Item::Do(Reg(0))]] {
            assert!(read(&bytes(items)).unwrap_err().reason.contains("do not match"));
        }
    }
}
