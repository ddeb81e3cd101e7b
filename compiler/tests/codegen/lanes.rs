//! Operations that move lanes: machine code against the interpreter, and for all targets that it compiles.

use crate::control::agree;
use crate::host::{Call, targets};
use crate::values::{REGISTER_TYPES, Rng};
use graphmend_compiler::codegen::Isa;
use graphmend_compiler::dtype::DType;
use graphmend_compiler::kernel::ir::*;

const LANES: [u16; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 16, 21];

fn i64_const(bits: u64) -> Op {
    Op::Const(Imm { elem: DType::I64, bits }, 1)
}

/// A kernel that loads values of the types `ins` from the starts of buffers, applies `op` and stores the result.
fn kernel(name: String, ins: &[Type], out: Type, op: impl FnOnce(&[Reg]) -> Op) -> Kernel {
    let mut regs = vec![Type { elem: DType::I64, lanes: 1 }];
    let mut body = vec![Stmt::Let(Reg(0), i64_const(0))];
    let mut bufs = Vec::new();
    let mut operands = Vec::new();
    for (number, ty) in ins.iter().enumerate() {
        let reg = Reg(regs.len() as u32);
        regs.push(*ty);
        bufs.push(BufParam { dtype: ty.elem, access: Access::Read });
        body.push(Stmt::Let(reg, Op::Load { buf: Buf(number as u32), index: Reg(0), disp: 1, lanes: ty.lanes }));
        operands.push(reg);
    }
    let result = Reg(regs.len() as u32);
    regs.push(out);
    body.push(Stmt::Let(result, op(&operands)));
    let buf = Buf(bufs.len() as u32);
    bufs.push(BufParam { dtype: out.elem, access: Access::Write });
    body.push(Stmt::Store { buf, index: Reg(0), disp: 2, value: result });
    Kernel { name, bufs, scalars: 0, tiled: false, regs, vars: Vec::new(), body }
}

/// A kernel that adds the products of groups of four bytes at odd places with themselves to a sum, the groups copied `copies`
/// times.
fn words(elem: DType, lanes: u16, copies: u16) -> Kernel {
    let ty = |elem, lanes| Type { elem, lanes };
    let all = lanes * copies;
    let regs = vec![
        ty(DType::I64, 1),
        ty(DType::U32, lanes),
        ty(DType::U32, all),
        ty(DType::U32, all),
        ty(DType::I32, all),
        ty(DType::I32, all),
    ];
    let load = |buf, disp| Op::Load { buf: Buf(buf), index: Reg(0), disp, lanes: all };
    let spread = if copies > 1 { Op::Splat(Reg(1), copies) } else { Op::Bitcast(DType::U32, Reg(1)) };
    let body = vec![
        Stmt::Let(Reg(0), i64_const(0)),
        Stmt::Let(Reg(1), Op::Words { buf: Buf(0), index: Reg(0), disp: 3, lanes }),
        Stmt::Let(Reg(2), spread),
        Stmt::Let(Reg(3), load(1, 1)),
        Stmt::Let(Reg(4), load(2, 2)),
        Stmt::Let(Reg(5), Op::Dot(Dot::Bytes, Reg(2), Reg(3), Reg(4))),
        Stmt::Store { buf: Buf(3), index: Reg(0), disp: 1, value: Reg(5) },
    ];
    let buf = |dtype, access| BufParam { dtype, access };
    let bufs = vec![
        buf(elem, Access::Read),
        buf(DType::U32, Access::Read),
        buf(DType::I32, Access::Read),
        buf(DType::I32, Access::Write),
    ];
    let name = format!("words of {elem} {lanes} {copies}");
    Kernel { name, bufs, scalars: 0, tiled: false, regs, vars: Vec::new(), body }
}

fn check(kernel: &Kernel, rng: &mut Rng) {
    for _ in 0..3 {
        agree(kernel, &Call::random(kernel, 128, rng));
    }
}

/// All kernels of this file.
pub(crate) fn kernels() -> Vec<Kernel> {
    let mut out = Vec::new();
    let mut rng = Rng(21);
    for elem in REGISTER_TYPES {
        let scalar = Type { elem, lanes: 1 };
        for lanes in LANES {
            let ty = Type { elem, lanes };
            out.push(kernel(format!("splat {elem} {lanes}"), &[scalar], ty, |r| Op::Splat(r[0], lanes)));
            for lane in [0, lanes / 2, lanes - 1] {
                out.push(kernel(format!("extract {lane}"), &[ty], scalar, |r| Op::Extract(r[0], lane)));
                out.push(kernel(format!("insert {lane}"), &[ty, scalar], ty, |r| Op::Insert(r[0], lane, r[1])));
            }
            let mut picks: Vec<Vec<u16>> = vec![
                (0..lanes).rev().collect(),
                (0..lanes).map(|i| i / 2 + i % 2 * lanes).collect(),
                (0..lanes).map(|i| 2 * i).collect(),
                (0..2 * lanes).collect(),
                vec![lanes - 1; 4],
                (lanes / 2..lanes / 2 + lanes).collect(),
            ];
            for count in [1, lanes, 6] {
                picks.push((0..count).map(|_| rng.below(2 * lanes as u64) as u16).collect());
            }
            for picks in picks {
                let to = Type { elem, lanes: picks.len() as u16 };
                out.push(kernel(format!("shuffle {elem} {lanes}"), &[ty, ty], to, |r| Op::Shuffle(r[0], r[1], picks)));
            }
            if elem == DType::Bool {
                continue;
            }
            for op in [Horizontal::Add, Horizontal::Mul, Horizontal::Min, Horizontal::Max] {
                out.push(kernel(format!("{op:?} {elem} {lanes}"), &[ty], scalar, |r| Op::Horizontal(op, r[0])));
            }
        }
    }
    for elem in [DType::I8, DType::U8] {
        for lanes in LANES {
            out.push(words(elem, lanes, 1));
            out.push(words(elem, 1, lanes));
        }
    }
    for elem in [DType::I32, DType::I64] {
        for lanes in LANES {
            out.push(kernel(format!("iota {lanes}"), &[], Type { elem, lanes }, |_| Op::Iota(elem, lanes)));
        }
    }
    out
}

#[test]
fn lanes_move_as_in_the_interpreter() {
    let mut rng = Rng(17);
    kernels().iter().for_each(|kernel| check(kernel, &mut rng));
}

#[test]
fn lane_moves_compile_for_every_target() {
    let kernels = kernels();
    for (name, target) in targets() {
        let isa = Isa::cached(target).unwrap();
        for kernel in &kernels {
            isa.compile(kernel).unwrap_or_else(|error| panic!("{name}: {error}\n{kernel}"));
        }
    }
}
