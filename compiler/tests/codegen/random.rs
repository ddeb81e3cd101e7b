//! Random kernels: machine code against the interpreter, and compiled for all targets.

use crate::control::agree;
use crate::host::{Call, targets};
use crate::values::{REGISTER_TYPES, Rng, any};
use graphmend_compiler::codegen::Isa;
use graphmend_compiler::dtype::DType;
use graphmend_compiler::kernel::ir::*;
use graphmend_compiler::kernel::scalar;

const INDEX: Type = Type { elem: DType::I64, lanes: 1 };
/// Elements of every buffer; indices stay below half of it.
const ELEMENTS: usize = 128;

/// A generator of well-formed kernels.
///
/// Left out is what may differ from target to target: fused multiply-adds, the sign of a zero from a float minimum, bits of
/// NaN.
struct Maker {
    rng: Rng,
    kernel: Kernel,
    /// Registers in scope.
    scope: Vec<Reg>,
    /// Index registers in scope, from 0 to 63.
    indices: Vec<Reg>,
}

impl Maker {
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len() as u64) as usize]
    }

    fn ty(&self, reg: Reg) -> Type {
        self.kernel.regs[reg.0 as usize]
    }

    fn reg(&mut self, ty: Type) -> Reg {
        self.kernel.regs.push(ty);
        Reg(self.kernel.regs.len() as u32 - 1)
    }

    fn define(&mut self, out: &mut Vec<Stmt>, ty: Type, op: Op) -> Reg {
        let reg = self.reg(ty);
        out.push(Stmt::Let(reg, op));
        self.scope.push(reg);
        reg
    }

    fn any_type(&mut self) -> Type {
        Type { elem: self.pick(&REGISTER_TYPES), lanes: self.pick(&[1, 1, 2, 3, 4, 4, 7, 8, 16, 16, 19, 32]) }
    }

    /// A register of a type: one in scope, or a new constant or load.
    fn operand(&mut self, out: &mut Vec<Stmt>, ty: Type) -> Reg {
        let known: Vec<Reg> = self.scope.iter().copied().filter(|reg| self.ty(*reg) == ty).collect();
        if !known.is_empty() && self.rng.below(8) > 0 {
            return self.pick(&known);
        }
        let buf = (0..self.kernel.bufs.len()).find(|b| self.kernel.bufs[*b].dtype == ty.elem);
        match buf {
            Some(buf) if self.rng.below(3) > 0 => {
                let index = self.pick(&self.indices.clone());
                let disp = self.rng.below(32) as i64;
                self.define(out, ty, Op::Load { buf: Buf(buf as u32), index, disp, lanes: ty.lanes })
            }
            _ => {
                let bits = any(ty.elem, &mut self.rng);
                self.define(out, ty, Op::Const(Imm { elem: ty.elem, bits }, ty.lanes))
            }
        }
    }

    fn operation(&mut self, out: &mut Vec<Stmt>) {
        let ty = self.any_type();
        let Type { elem, lanes } = ty;
        let a = self.operand(out, ty);
        let (to, op) = match self.rng.below(12) {
            0..=3 => {
                let op = self.pick(&[
                    BinOp::Add,
                    BinOp::Sub,
                    BinOp::Mul,
                    BinOp::Div,
                    BinOp::Rem,
                    BinOp::Min,
                    BinOp::Max,
                    BinOp::And,
                    BinOp::Or,
                    BinOp::Xor,
                    BinOp::Shl,
                    BinOp::Shr,
                ]);
                let unclear = elem.is_float() && matches!(op, BinOp::Min | BinOp::Max | BinOp::Rem);
                if unclear || scalar::bin(op, elem, 0, 0).is_none() {
                    return;
                }
                let b = self.operand(out, ty);
                (ty, Op::Bin(op, a, b))
            }
            4 => {
                let op = self.pick(&[
                    UnOp::Neg,
                    UnOp::Abs,
                    UnOp::Not,
                    UnOp::Sqrt,
                    UnOp::Floor,
                    UnOp::Ceil,
                    UnOp::Trunc,
                    UnOp::Round,
                    UnOp::Popcnt,
                ]);
                if scalar::un(op, elem, 0).is_none() {
                    return;
                }
                (ty, Op::Un(op, a))
            }
            5 => {
                let op = if elem == DType::Bool {
                    Cmp::Ne
                } else {
                    self.pick(&[Cmp::Eq, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge])
                };
                let b = self.operand(out, ty);
                (Type { elem: DType::Bool, lanes }, Op::Cmp(op, a, b))
            }
            6 => {
                let mask = self.operand(out, Type { elem: DType::Bool, lanes });
                let b = self.operand(out, ty);
                (ty, Op::Select(mask, a, b))
            }
            7 => {
                let to = self.pick(&DType::ALL);
                if to != to.compute() && !elem.is_float() {
                    return;
                }
                (Type { elem: to.compute(), lanes }, Op::Cast(to, a))
            }
            8 => {
                let b = self.operand(out, ty);
                let picks: Vec<u16> =
                    (0..self.pick(&[1, 2, 4, 8])).map(|_| self.rng.below(2 * lanes as u64) as u16).collect();
                (Type { elem, lanes: picks.len() as u16 }, Op::Shuffle(a, b, picks))
            }
            9 => (Type { elem, lanes: 1 }, Op::Extract(a, self.rng.below(lanes as u64) as u16)),
            10 => {
                let v = self.operand(out, Type { elem, lanes: 1 });
                (ty, Op::Insert(a, self.rng.below(lanes as u64) as u16, v))
            }
            _ if lanes == 1 => {
                let lanes = self.pick(&[2, 4, 8]);
                (Type { elem, lanes }, Op::Splat(a, lanes))
            }
            _ if elem == DType::Bool => return,
            _ => (Type { elem, lanes: 1 }, Op::Horizontal(self.pick(&[Horizontal::Add, Horizontal::Mul]), a)),
        };
        self.define(out, to, op);
    }

    /// Stores a register somewhere if there is a buffer for it.
    fn keep(&mut self, out: &mut Vec<Stmt>, value: Reg) {
        let elem = self.ty(value).elem;
        let fits = |param: &BufParam| param.access == Access::Write && param.dtype.compute() == elem;
        let places: Vec<usize> = (0..self.kernel.bufs.len()).filter(|b| fits(&self.kernel.bufs[*b])).collect();
        if !places.is_empty() {
            let buf = Buf(self.pick(&places) as u32);
            let index = self.pick(&self.indices.clone());
            out.push(Stmt::Store { buf, index, disp: self.rng.below(32) as i64, value });
        }
    }

    fn block(&mut self, depth: u32) -> Vec<Stmt> {
        let (scope, indices) = (self.scope.len(), self.indices.len());
        let mut out = Vec::new();
        for _ in 0..3 + self.rng.below(10) {
            match self.rng.below(14) {
                0 if depth < 3 => self.for_loop(&mut out, depth),
                1 if depth < 3 => {
                    let cond = self.operand(&mut out, Type { elem: DType::Bool, lanes: 1 });
                    let then = self.block(depth + 1);
                    let other = if self.rng.below(2) == 0 { Vec::new() } else { self.block(depth + 1) };
                    out.push(Stmt::If { cond, then, other });
                }
                2 | 3 => {
                    let var = Var(self.rng.below(self.kernel.vars.len() as u64) as u32);
                    let ty = self.kernel.vars[var.0 as usize];
                    if self.rng.below(2) == 0 {
                        self.define(&mut out, ty, Op::Get(var));
                    } else {
                        let value = self.operand(&mut out, ty);
                        out.push(Stmt::Set(var, value));
                    }
                }
                4 => {
                    let value = self.pick(&self.scope.clone());
                    self.keep(&mut out, value);
                }
                5 if depth > 1 && self.rng.below(6) == 0 => {
                    out.push(Stmt::Return(2));
                    break;
                }
                _ => self.operation(&mut out),
            }
        }
        for _ in 0..4 {
            let value = self.pick(&self.scope.clone());
            self.keep(&mut out, value);
        }
        self.scope.truncate(scope);
        self.indices.truncate(indices);
        out
    }

    fn for_loop(&mut self, out: &mut Vec<Stmt>, depth: u32) {
        let bits = self.rng.below(5);
        let lo = self.define(out, INDEX, Op::Const(Imm { elem: DType::I64, bits }, 1));
        let hi = match self.rng.below(2) {
            0 => Op::Scalar(0),
            _ => Op::Const(Imm { elem: DType::I64, bits: self.rng.below(9) }, 1),
        };
        let hi = self.define(out, INDEX, hi);
        let ivar = self.reg(INDEX);
        self.scope.push(ivar);
        self.indices.push(ivar);
        let step = 1 + self.rng.below(3) as i64;
        let body = self.block(depth + 1);
        self.scope.pop();
        self.indices.pop();
        out.push(Stmt::For { ivar, lo, hi, step, body });
    }
}

pub(crate) fn make(seed: u64) -> Kernel {
    let read = [DType::F32, DType::U8, DType::I64, DType::Bool, DType::I32, DType::I8];
    let write =
        [DType::F32, DType::F16, DType::F64, DType::I8, DType::U16, DType::I32, DType::I64, DType::Bool, DType::BF16];
    let params = read.iter().map(|d| (*d, Access::Read)).chain(write.iter().map(|d| (*d, Access::Write)));
    let mut maker = Maker {
        rng: Rng(seed),
        kernel: Kernel {
            name: format!("random {seed}"),
            bufs: params.map(|(dtype, access)| BufParam { dtype, access }).collect(),
            scalars: 1,
            tiled: false,
            regs: Vec::new(),
            vars: Vec::new(),
            body: Vec::new(),
        },
        scope: Vec::new(),
        indices: Vec::new(),
    };
    for _ in 0..4 {
        let ty = maker.any_type();
        maker.kernel.vars.push(ty);
    }
    let mut body = Vec::new();
    let zero = maker.define(&mut body, INDEX, Op::Const(Imm { elem: DType::I64, bits: 0 }, 1));
    let scalar = maker.define(&mut body, INDEX, Op::Scalar(0));
    maker.indices.extend([zero, scalar]);
    for _ in 0..3 {
        body.extend(maker.block(0));
    }
    maker.kernel.body = body;
    maker.kernel
}

pub(crate) fn call(kernel: &Kernel, seed: u64) -> Call {
    let call = Call::random(kernel, ELEMENTS, &mut Rng(seed ^ 0x5555));
    Call { scalars: vec![seed as i64 % 7], ..call }
}

#[test]
fn random_kernels_agree_with_the_interpreter() {
    for seed in 0..250 {
        let kernel = make(seed);
        let call = call(&kernel, seed);
        agree(&kernel, &call);
    }
}

#[test]
fn random_kernels_compile_for_every_target() {
    for (name, target) in targets() {
        let isa = Isa::cached(target).unwrap();
        for seed in 0..60 {
            let kernel = make(seed);
            isa.compile(&kernel).unwrap_or_else(|error| panic!("{name}: {error}\n{kernel}"));
        }
    }
}
