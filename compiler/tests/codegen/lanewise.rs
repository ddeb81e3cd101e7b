//! Every lane-wise operation for every type and several lane counts: it compiles for all targets, and where this machine can
//! run the code, gives what one lane of the interpreter gives.

use crate::host::{Call, load, runnable, targets};
use crate::values::{REGISTER_TYPES, Rng, any, edges, flushed, from_bytes, same, show, to_bytes};
use graphmend_compiler::codegen::Isa;
use graphmend_compiler::dtype::DType;
use graphmend_compiler::kernel::ir::*;
use graphmend_compiler::kernel::scalar;

const LANES: &[u16] = &[1, 2, 3, 4, 5, 8, 16, 24];

type MakeOp = dyn Fn(&[Reg]) -> Op;
type Expect = dyn Fn(&[u64]) -> Vec<u64>;

/// An operation on lanes.
struct Case {
    name: String,
    ins: Vec<DType>,
    out: DType,
    scalars_only: bool,
    op: Box<MakeOp>,
    /// Results that one lane may have.
    expect: Box<Expect>,
}

/// A kernel that applies an operation to arrays: `out[i] = op(a[i], b[i], ..)` for `i` below scalar 0. Half types stand for
/// buffers of that type.
fn kernel(case: &Case, lanes: u16, constant: Option<u64>) -> Kernel {
    let index = Type { elem: DType::I64, lanes: 1 };
    let mut regs = vec![index, index, index];
    let (zero, bound, i) = (Reg(0), Reg(1), Reg(2));
    let mut body = Vec::new();
    let mut operands = Vec::new();
    let mut bufs = Vec::new();
    for (number, elem) in case.ins.iter().enumerate() {
        let reg = Reg(regs.len() as u32);
        regs.push(Type { elem: elem.compute(), lanes });
        bufs.push(BufParam { dtype: *elem, access: Access::Read });
        let op = match constant {
            Some(bits) if number == 1 => Op::Const(Imm { elem: *elem, bits }, lanes),
            _ => Op::Load { buf: Buf(number as u32), index: i, disp: 0, lanes },
        };
        body.push(Stmt::Let(reg, op));
        operands.push(reg);
    }
    let out = Reg(regs.len() as u32);
    regs.push(Type { elem: case.out.compute(), lanes });
    body.push(Stmt::Let(out, (case.op)(&operands)));
    let buf = Buf(bufs.len() as u32);
    bufs.push(BufParam { dtype: case.out, access: Access::Write });
    body.push(Stmt::Store { buf, index: i, disp: 0, value: out });
    Kernel {
        name: case.name.clone(),
        bufs,
        scalars: 1,
        tiled: false,
        regs,
        vars: Vec::new(),
        body: vec![
            Stmt::Let(zero, Op::Const(Imm { elem: DType::I64, bits: 0 }, 1)),
            Stmt::Let(bound, Op::Scalar(0)),
            Stmt::For { ivar: i, lo: zero, hi: bound, step: lanes as i64, body },
        ],
    }
}

fn operands(case: &Case, count: usize, constant: Option<u64>, rng: &mut Rng) -> Vec<Vec<u64>> {
    let mut lists: Vec<Vec<u64>> = case.ins.iter().map(|elem| (0..count).map(|_| any(*elem, rng)).collect()).collect();
    // All pairs of edges of the first two operands, as far as they go.
    let first = edges(case.ins[0]);
    let second = case.ins.get(1).map_or(vec![0], |elem| edges(*elem));
    for (at, (x, y)) in first.iter().flat_map(|x| second.iter().map(move |y| (*x, *y))).take(count).enumerate() {
        lists[0][at] = x;
        if let Some(list) = lists.get_mut(1) {
            list[at] = y;
        }
    }
    if let (Some(bits), Some(list)) = (constant, lists.get_mut(1)) {
        list.fill(bits);
    }
    lists
}

/// Values to apply an operation to: as many in each list, a multiple of all lane counts.
fn inputs(case: &Case, constant: Option<u64>) -> Vec<Vec<u64>> {
    let count = if case.ins.len() == 1 { 480 } else { 2640 };
    operands(case, count, constant, &mut Rng(7))
}

fn call(case: &Case, lists: &[Vec<u64>]) -> Call {
    let count = lists[0].len();
    let mut bufs: Vec<Vec<u8>> = case.ins.iter().zip(lists).map(|(elem, list)| to_bytes(*elem, list)).collect();
    bufs.push(vec![0xee; count * case.out.size()]);
    Call { bufs, scalars: vec![count as i64], tile: (0, 0) }
}

/// What an operation may give where subnormal operands and results may be taken as zeros.
fn flushing(case: &Case, lane: &[u64]) -> Vec<u64> {
    let operands: Vec<u64> = lane.iter().zip(&case.ins).map(|(v, elem)| flushed(*elem, *v)).collect();
    let exact = (case.expect)(lane).into_iter().chain((case.expect)(&operands));
    let mut all: Vec<u64> = exact.flat_map(|v| [v, flushed(case.out, v)]).collect();
    // Where zero comes out, one of the operands that count as such may be passed on.
    let sign = 1 << (8 * case.out.size() - 1);
    if case.ins[0] == case.out && all.iter().any(|v| v & !sign == 0) {
        all.extend(lane.iter().filter(|v| flushed(case.out, **v) & !sign == 0));
    }
    all
}

fn compare(target: &str, case: &Case, kernel: &Kernel, lists: &[Vec<u64>], flushes: bool, out: &[u8]) {
    for (at, value) in from_bytes(case.out, out).iter().enumerate() {
        let lane: Vec<u64> = lists.iter().map(|list| list[at]).collect();
        let expected = if flushes { flushing(case, &lane) } else { (case.expect)(&lane) };
        assert!(
            expected.iter().any(|e| same(case.out, *e, *value)),
            "{target}: {} of {:?}: got {}, expected {:?}\n{kernel}",
            case.name,
            lane.iter().zip(&case.ins).map(|(v, elem)| show(*elem, *v)).collect::<Vec<_>>(),
            show(case.out, *value),
            expected.iter().map(|v| show(case.out, *v)).collect::<Vec<_>>(),
        );
    }
}

fn check(case: &Case, all_lanes: &[u16], constant: Option<u64>) {
    if cfg!(target_arch = "x86_64") {
        assert!(!runnable().is_empty());
    }
    let lists = inputs(case, constant);
    for &lanes in all_lanes {
        if case.scalars_only && lanes > 1 {
            continue;
        }
        let kernel = kernel(case, lanes, constant);
        for (target, cpu) in runnable() {
            let loaded = load(&kernel, cpu);
            let mut call = call(case, &lists);
            assert_eq!(loaded.call(&mut call.bufs, &call.scalars, call.tile), 0);
            compare(target, case, &kernel, &lists, false, call.bufs.last().unwrap());
        }
    }
}

/// Runs kernels somewhere; gives each one's status and buffers.
type RunJobs<'a> = &'a dyn Fn(&[(Kernel, Call)]) -> Vec<(u32, Vec<Vec<u8>>)>;

/// Every operation for lane counts that use all kinds of pieces, somewhere else; `flushes`: where subnormal numbers may be taken
/// as zeros.
pub(crate) fn check_all(name: &str, all_lanes: &[u16], flushes: bool, run: RunJobs<'_>) {
    let cases: Vec<Case> = [un_cases(), bin_cases(), cmp_cases(), other_cases(), cast_cases(), half_cases()]
        .into_iter()
        .flatten()
        .collect();
    let mut tried = Vec::new();
    for case in &cases {
        let lists = inputs(case, None);
        for &lanes in all_lanes {
            if !case.scalars_only || lanes == 1 {
                tried.push((case, lists.clone(), kernel(case, lanes, None)));
            }
        }
    }
    run_and_compare(name, tried, flushes, run);
}

/// Operations on integers with constants on the right, somewhere else.
pub(crate) fn check_constants(name: &str, run: RunJobs<'_>) {
    let cases = bin_cases();
    let mut tried = Vec::new();
    for case in cases.iter().filter(|case| case.ins[1].is_int()) {
        for bits in edges(case.ins[1]).into_iter().step_by(5) {
            tried.push((case, inputs(case, Some(bits)), kernel(case, 1, Some(bits))));
        }
    }
    run_and_compare(name, tried, false, run);
}

fn run_and_compare(name: &str, tried: Vec<(&Case, Vec<Vec<u64>>, Kernel)>, flushes: bool, run: RunJobs<'_>) {
    let jobs: Vec<_> = tried.iter().map(|(case, lists, kernel)| (kernel.clone(), call(case, lists))).collect();
    for ((case, lists, kernel), (status, bufs)) in tried.iter().zip(run(&jobs)) {
        assert_eq!(status, 0);
        compare(name, case, kernel, lists, flushes, bufs.last().unwrap());
    }
}

fn un_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for elem in REGISTER_TYPES {
        for op in [
            UnOp::Neg,
            UnOp::Abs,
            UnOp::Not,
            UnOp::Sqrt,
            UnOp::Floor,
            UnOp::Ceil,
            UnOp::Trunc,
            UnOp::Round,
            UnOp::Popcnt,
        ] {
            if scalar::un(op, elem, 0).is_some() {
                out.push(Case {
                    name: format!("{op:?} {elem}"),
                    ins: vec![elem],
                    out: elem,
                    scalars_only: false,
                    op: Box::new(move |r| Op::Un(op, r[0])),
                    expect: Box::new(move |v| scalar::un(op, elem, v[0]).into_iter().collect()),
                });
            }
        }
    }
    out
}

const BIN_OPS: [BinOp; 12] = [
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
];

fn bin_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for elem in REGISTER_TYPES {
        for op in BIN_OPS {
            if scalar::bin(op, elem, 0, 0).is_none() {
                continue;
            }
            let extreme = elem.is_float() && matches!(op, BinOp::Min | BinOp::Max);
            out.push(Case {
                name: format!("{op:?} {elem}"),
                ins: vec![elem, elem],
                out: elem,
                scalars_only: elem.is_float() && op == BinOp::Rem,
                op: Box::new(move |r| Op::Bin(op, r[0], r[1])),
                expect: Box::new(move |v| {
                    let exact = scalar::bin(op, elem, v[0], v[1]).unwrap();
                    let sign = 1u64 << (8 * elem.size() - 1);
                    // Of two zeros either may come out.
                    if extreme && exact & !sign == 0 { vec![0, sign] } else { vec![exact] }
                }),
            });
        }
    }
    out
}

fn cmp_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for elem in REGISTER_TYPES {
        for op in [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge] {
            if elem == DType::Bool && !matches!(op, Cmp::Eq | Cmp::Ne) {
                continue;
            }
            out.push(Case {
                name: format!("{op:?} {elem}"),
                ins: vec![elem, elem],
                out: DType::Bool,
                scalars_only: false,
                op: Box::new(move |r| Op::Cmp(op, r[0], r[1])),
                expect: Box::new(move |v| vec![scalar::cmp(op, elem, v[0], v[1]).unwrap() as u64]),
            });
        }
    }
    out
}

fn other_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dot in [Dot::Bytes, Dot::Words] {
        out.push(Case {
            name: format!("dot product of {dot:?}"),
            ins: vec![DType::U32, DType::U32, DType::I32],
            out: DType::I32,
            scalars_only: false,
            op: Box::new(move |r| Op::Dot(dot, r[0], r[1], r[2])),
            expect: Box::new(move |v| vec![scalar::dot(dot, v[0], v[1], v[2])]),
        });
    }
    for elem in REGISTER_TYPES {
        out.push(Case {
            name: format!("select {elem}"),
            ins: vec![DType::Bool, elem, elem],
            out: elem,
            scalars_only: false,
            op: Box::new(|r| Op::Select(r[0], r[1], r[2])),
            expect: Box::new(|v| vec![if v[0] != 0 { v[1] } else { v[2] }]),
        });
        for to in REGISTER_TYPES {
            let plain = elem != DType::Bool && to != DType::Bool;
            if plain && elem.size() == to.size() {
                out.push(Case {
                    name: format!("bitcast {elem} {to}"),
                    ins: vec![elem],
                    out: to,
                    scalars_only: false,
                    op: Box::new(move |r| Op::Bitcast(to, r[0])),
                    expect: Box::new(|v| vec![v[0]]),
                });
            }
        }
        if elem.is_float() {
            out.push(Case {
                name: format!("fma {elem}"),
                ins: vec![elem, elem, elem],
                out: elem,
                scalars_only: false,
                op: Box::new(|r| Op::Fma(r[0], r[1], r[2])),
                expect: Box::new(move |v| {
                    let fused = scalar::fma(elem, v[0], v[1], v[2]).unwrap();
                    let product = scalar::bin(BinOp::Mul, elem, v[0], v[1]).unwrap();
                    vec![fused, scalar::bin(BinOp::Add, elem, product, v[2]).unwrap()]
                }),
            });
        }
    }
    out
}

fn cast_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for from in REGISTER_TYPES {
        for to in DType::ALL {
            if to != to.compute() && !from.is_float() {
                continue;
            }
            out.push(Case {
                name: format!("cast {from} {to}"),
                ins: vec![from],
                out: to.compute(),
                scalars_only: false,
                op: Box::new(move |r| Op::Cast(to, r[0])),
                expect: Box::new(move |v| vec![scalar::cast(to, from, v[0])]),
            });
        }
    }
    out
}

#[test]
fn one_operand_operations_give_the_interpreters_lanes() {
    un_cases().iter().for_each(|case| check(case, LANES, None));
}

#[test]
fn two_operand_operations_give_the_interpreters_lanes() {
    bin_cases().iter().for_each(|case| check(case, LANES, None));
}

#[test]
fn operations_with_a_constant_give_the_interpreters_lanes() {
    for case in bin_cases() {
        let constants = edges(case.ins[1]);
        // All divisors of the widest and the narrowest types and all counts of shifts; else a few.
        let all = match case.ins[1] {
            DType::I64 | DType::U64 | DType::I8 | DType::U8 => {
                case.name.starts_with("Div") || case.name.starts_with("Sh")
            }
            _ => false,
        };
        for bits in constants.into_iter().step_by(if all { 1 } else { 7 }) {
            check(&case, if all { &[1] } else { &[1, 5] }, Some(bits));
        }
    }
}

#[test]
fn comparisons_give_the_interpreters_lanes() {
    cmp_cases().iter().for_each(|case| check(case, LANES, None));
}

#[test]
fn selections_bit_casts_multiply_adds_and_dot_products_give_the_interpreters_lanes() {
    other_cases().iter().for_each(|case| check(case, LANES, None));
}

#[test]
fn conversions_give_the_interpreters_lanes() {
    cast_cases().iter().for_each(|case| check(case, LANES, None));
}

fn half_cases() -> Vec<Case> {
    let mut out = Vec::new();
    for half in [DType::F16, DType::BF16] {
        out.push(Case {
            name: format!("load {half}"),
            ins: vec![half],
            out: DType::F32,
            scalars_only: false,
            op: Box::new(|r| Op::Bitcast(DType::F32, r[0])),
            expect: Box::new(move |v| vec![scalar::cast(DType::F32, half, v[0])]),
        });
        out.push(Case {
            name: format!("store {half}"),
            ins: vec![DType::F32],
            out: half,
            scalars_only: false,
            op: Box::new(|r| Op::Bitcast(DType::F32, r[0])),
            expect: Box::new(move |v| {
                let x = f32::from_bits(v[0] as u32);
                vec![match half {
                    DType::F16 => half::f16::from_f32(x).to_bits() as u64,
                    _ => half::bf16::from_f32(x).to_bits() as u64,
                }]
            }),
        });
    }
    out
}

#[test]
fn half_buffers_convert_on_load_and_round_on_store() {
    half_cases().iter().for_each(|case| check(case, LANES, None));
}

#[test]
fn everything_compiles_for_every_target_without_relocations() {
    let cases = [un_cases(), bin_cases(), cmp_cases(), other_cases(), cast_cases()];
    for (name, target) in targets() {
        let isa = Isa::cached(target).unwrap_or_else(|error| panic!("{name}: {error}"));
        for case in cases.iter().flatten() {
            for lanes in [1, 2, 3, 4, 5, 8] {
                if case.scalars_only && lanes > 1 {
                    continue;
                }
                let kernel = kernel(case, lanes, None);
                let compiled = isa.compile(&kernel).unwrap_or_else(|error| panic!("{name}: {error}\n{kernel}"));
                assert!(!compiled.code.is_empty());
            }
        }
    }
}
