//! Single operations against their definition, and built kernels against single operations.

use super::*;
use crate::kernel::ir::Kernel;

/// Bit patterns at the edges of a type.
fn edges(elem: DType) -> Vec<u64> {
    let mut out: Vec<u64> = match elem {
        DType::Bool => vec![0, 1],
        DType::F32 | DType::F64 => {
            let values = [
                0.0,
                -0.0,
                1.0,
                -1.5,
                2.5,
                3.5,
                1e30,
                -1e-30,
                0.5,
                -0.5,
                300.7,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
            ];
            values.iter().map(|v| scalar::from_f64(elem, *v)).collect()
        }
        _ => [0, 1, 2, 3, 5, 7, 8, 31, 64, 100, -1, -2, -7, -128].iter().map(|v| scalar::from_i64(elem, *v)).collect(),
    };
    if elem.is_int() {
        let bits = 8 * elem.size() as u32;
        out.extend([1u64 << (bits - 1), (1u64 << (bits - 1)) - 1, u64::MAX >> (64 - bits)]);
    }
    out
}

/// The raw kernel that applies `op` to buffers of the operand types, with `lanes` lanes, without folding.
fn op_kernel(elems: &[Type], out: Type, op: impl Fn(&[Reg]) -> Op) -> Kernel {
    use crate::kernel::ir::Stmt;
    let mut bufs: Vec<BufParam> = elems.iter().map(|ty| param(ty.elem, Access::Read)).collect();
    bufs.push(param(out.elem, Access::Write));
    let mut regs = vec![Type::scalar(DType::I64)];
    let mut body = vec![Stmt::Let(Reg(0), Op::Const(crate::kernel::ir::Imm { elem: DType::I64, bits: 0 }, 1))];
    for (i, ty) in elems.iter().enumerate() {
        regs.push(*ty);
        let load = Op::Load { buf: Buf(i as u32), index: Reg(0), disp: 0, lanes: ty.lanes };
        body.push(Stmt::Let(Reg(i as u32 + 1), load));
    }
    let operands: Vec<Reg> = (1..=elems.len() as u32).map(Reg).collect();
    let result = Reg(regs.len() as u32);
    regs.push(out);
    body.push(Stmt::Let(result, op(&operands)));
    body.push(Stmt::Store { buf: Buf(elems.len() as u32), index: Reg(0), disp: 0, value: result });
    Kernel { name: "op".into(), bufs, scalars: 0, tiled: false, regs, vars: Vec::new(), body }
}

fn run_op(elems: &[Type], out: Type, inputs: &[Vec<u64>], op: impl Fn(&[Reg]) -> Op) -> Vec<u64> {
    let kernel = op_kernel(elems, out, op);
    let pack = |ty: Type, lanes: &[u64]| -> Vec<u8> {
        lanes.iter().flat_map(|x| x.to_le_bytes()[..ty.elem.size()].to_vec()).collect()
    };
    let inputs: Vec<Vec<u8>> = elems.iter().zip(inputs).map(|(ty, lanes)| pack(*ty, lanes)).collect();
    let mut output = vec![0; out.lanes as usize * out.elem.size()];
    let mut bufs: Vec<Memory<'_>> = inputs.iter().map(|bytes| Memory::Read(bytes)).collect();
    bufs.push(Memory::Write(&mut output));
    run(&kernel, &mut bufs, &[], 0..0, STEPS).unwrap();
    let unpack = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    output.chunks(out.elem.size()).map(unpack).collect()
}

fn same(elem: DType, x: u64, y: u64) -> bool {
    let nan = |bits: u64| match elem {
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    };
    x == y || (nan(x) && nan(y))
}

const REGISTER_TYPES: [DType; 11] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F32,
    DType::F64,
];

/// The flat functions, scalar and vector, agree with the definition in `scalar` at the edges of all types.
#[test]
fn operations_agree_with_their_definition_for_every_type() {
    let mut checked = 0;
    for elem in REGISTER_TYPES {
        let values = edges(elem);
        let pairs: Vec<(u64, u64)> = values.iter().flat_map(|x| values.iter().map(|y| (*x, *y))).collect();
        let (xs, ys): (Vec<u64>, Vec<u64>) = pairs.iter().copied().unzip();
        for lanes in [1, pairs.len()] {
            let ty = Type::vector(elem, lanes as u16);
            for (op, _) in crate::kernel::text::un_ops() {
                if scalar::un(op, elem, 0).is_none() {
                    continue;
                }
                let got = run_op(&[ty], ty, std::slice::from_ref(&xs), |r| Op::Un(op, r[0]));
                for (x, got) in xs.iter().zip(got) {
                    assert!(same(elem, scalar::un(op, elem, *x).unwrap(), got), "{op:?} {elem} {x:#x}: {got:#x}");
                    checked += 1;
                }
            }
            for (op, _) in crate::kernel::text::bin_ops() {
                let vector_rem = op == BinOp::Rem && elem.is_float() && lanes > 1;
                if scalar::bin(op, elem, 0, 0).is_none() || vector_rem {
                    continue;
                }
                let got = run_op(&[ty, ty], ty, &[xs.clone(), ys.clone()], |r| Op::Bin(op, r[0], r[1]));
                for ((x, y), got) in pairs.iter().zip(got) {
                    let want = scalar::bin(op, elem, *x, *y).unwrap();
                    assert!(same(elem, want, got), "{op:?} {elem} {x:#x} {y:#x}: {got:#x}, not {want:#x}");
                    checked += 1;
                }
            }
            for cmp in [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge] {
                if elem == DType::Bool && !matches!(cmp, Cmp::Eq | Cmp::Ne) {
                    continue;
                }
                let mask = ty.with_elem(DType::Bool);
                let got = run_op(&[ty, ty], mask, &[xs.clone(), ys.clone()], |r| Op::Cmp(cmp, r[0], r[1]));
                for ((x, y), got) in pairs.iter().zip(got) {
                    assert_eq!(scalar::cmp(cmp, elem, *x, *y), Some(got != 0), "{cmp:?} {elem} {x:#x} {y:#x}");
                    checked += 1;
                }
            }
            for to in DType::ALL {
                if to != to.compute() && !elem.is_float() {
                    continue;
                }
                let result = ty.with_elem(to.compute());
                let got = run_op(&[ty], result, std::slice::from_ref(&xs), |r| Op::Cast(to, r[0]));
                for (x, got) in xs.iter().zip(got) {
                    let want = scalar::cast(to, elem, *x);
                    assert!(same(to.compute(), want, got), "{elem} {x:#x} to {to}: {got:#x}, not {want:#x}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 50_000, "{checked}");
}

#[test]
fn division_shifts_and_conversions_are_total() {
    let i64s = |x: i64, y: i64, op| scalar::bin(op, DType::I64, x as u64, y as u64).unwrap() as i64;
    assert_eq!(i64s(7, 0, BinOp::Div), 0);
    assert_eq!(i64s(7, 0, BinOp::Rem), 0);
    assert_eq!(i64s(i64::MIN, -1, BinOp::Div), i64::MIN);
    assert_eq!(i64s(i64::MIN, -1, BinOp::Rem), 0);
    assert_eq!(i64s(-7, 2, BinOp::Div), -3);
    assert_eq!(i64s(-7, 2, BinOp::Rem), -1);
    assert_eq!(i64s(-7, 64, BinOp::Shr), -1);
    assert_eq!(i64s(7, -1, BinOp::Shr), 0);
    assert_eq!(i64s(7, 64, BinOp::Shl), 0);
    let f32_to = |x: f32, to| scalar::cast(to, DType::F32, x.to_bits() as u64);
    assert_eq!(f32_to(f32::NAN, DType::I32), 0);
    assert_eq!(f32_to(1e20, DType::I32), i32::MAX as u64);
    assert_eq!(f32_to(-300.0, DType::U8), 0);
    assert_eq!(f32_to(-2.9, DType::I8), (-2i8) as u8 as u64);
    assert_eq!(f32_to(f32::NAN, DType::Bool), 1);
    assert_eq!(scalar::cast(DType::I8, DType::I64, 0x1ff), 0xff);
    let min = |x: f32, y: f32| {
        f32::from_bits(scalar::bin(BinOp::Min, DType::F32, x.to_bits() as u64, y.to_bits() as u64).unwrap() as u32)
    };
    assert!(min(f32::NAN, 1.0).is_nan() && min(1.0, f32::NAN).is_nan());
    assert!(min(0.0, -0.0).is_sign_negative() && min(-0.0, 0.0).is_sign_negative());
    assert_eq!(scalar::un(UnOp::Round, DType::F32, 2.5f32.to_bits() as u64), Some(2f32.to_bits() as u64));
}

#[test]
fn horizontal_sums_pair_lanes_at_half_distance() {
    let sum = |lanes: &[f32]| {
        let ty = Type::vector(DType::F32, lanes.len() as u16);
        let input = lanes.iter().map(|x| x.to_bits() as u64).collect();
        let got = run_op(&[ty], ty.with_lanes(1), &[input], |r| Op::Horizontal(Horizontal::Add, r[0]));
        f32::from_bits(got[0] as u32)
    };
    // 1e8 and 1 do not add in f32: the order shows.
    assert_eq!(sum(&[1e8, 1.0, -1e8, 1.0]), 2.0);
    assert_eq!(sum(&[1e8, -1e8, 1.0, 1.0]), 0.0);
    assert_eq!(sum(&[1e8, -1e8, 1.0]), 1.0);
    assert_eq!(sum(&[1.0, 1e8, -1e8]), 0.0);
    assert_eq!(sum(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), 28.0);
    let ints = Type::vector(DType::I32, 5);
    let input: Vec<u64> = [3, -9, 4, 11, 2].iter().map(|v| scalar::from_i64(DType::I32, *v)).collect();
    for (op, want) in [(Horizontal::Min, -9), (Horizontal::Max, 11), (Horizontal::Mul, -2376), (Horizontal::Add, 11)] {
        let got = run_op(&[ints], ints.with_lanes(1), std::slice::from_ref(&input), |r| Op::Horizontal(op, r[0]));
        assert_eq!(scalar::to_i64(DType::I32, got[0]), want, "{op:?}");
    }
}

#[test]
fn lanes_move_where_they_are_sent() {
    let ty = Type::vector(DType::I32, 4);
    let x = vec![10, 11, 12, 13];
    let y = vec![20, 21, 22, 23];
    let two = [ty, ty];
    let got = run_op(&two, ty.with_lanes(5), &[x.clone(), y.clone()], |r| Op::Shuffle(r[0], r[1], vec![7, 0, 4, 0, 3]));
    assert_eq!(got, [23, 10, 20, 10, 13]);
    let got = run_op(&[ty, ty.with_lanes(1)], ty, &[x.clone(), vec![99]], |r| Op::Insert(r[0], 2, r[1]));
    assert_eq!(got, [10, 11, 99, 13]);
    assert_eq!(run_op(&[ty], ty.with_lanes(1), std::slice::from_ref(&x), |r| { Op::Extract(r[0], 3) }), [13]);
    assert_eq!(run_op(&[ty.with_lanes(1)], ty, &[vec![5]], |r| Op::Splat(r[0], 4)), [5; 4]);
    assert_eq!(run_op(&[], ty, &[], |_| Op::Iota(DType::I32, 4)), [0, 1, 2, 3]);
    let one = 1f32.to_bits() as u64;
    assert_eq!(
        run_op(&[ty], ty.with_elem(DType::F32), &[vec![one; 4]], |r| { Op::Bitcast(DType::F32, r[0]) }),
        [one; 4]
    );
    let mask = ty.with_elem(DType::Bool);
    let got = run_op(&[mask, ty, ty], ty, &[vec![1, 0, 0, 1], x, y], |r| Op::Select(r[0], r[1], r[2]));
    assert_eq!(got, [10, 21, 22, 13]);
}

#[test]
fn fma_rounds_once_unless_told_otherwise() {
    let ty = Type::scalar(DType::F32);
    let kernel = op_kernel(&[ty, ty, ty], ty, |r| Op::Fma(r[0], r[1], r[2]));
    let x = 1.0f32 + f32::EPSILON;
    let (a, c) = (f32s(&[x]), f32s(&[-(x * x)]));
    let out = |program: Program| {
        let mut out = vec![0; 4];
        let mut bufs = [Memory::Read(&a), Memory::Read(&a), Memory::Read(&c), Memory::Write(&mut out)];
        program.run(&mut bufs, &[], 0..0, STEPS).unwrap();
        to_f32s(&out)[0]
    };
    assert_eq!(out(Program::new(&kernel).unwrap()), x.mul_add(x, -(x * x)));
    assert_ne!(x.mul_add(x, -(x * x)), 0.0);
    assert_eq!(out(Program::without_fused_fma(&kernel).unwrap()), 0.0);
}

/// What the builder makes of a kernel computes what the kernel says: random expressions, built with folding and
/// hoisting, against the same expressions on the definition.
#[test]
fn built_kernels_compute_what_was_asked_for() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) % below
    };
    let ops = [
        BinOp::Add,
        BinOp::Add,
        BinOp::Add,
        BinOp::Sub,
        BinOp::Sub,
        BinOp::Mul,
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
    for _ in 0..300 {
        let elem = [DType::I64, DType::I64, DType::I8, DType::U32, DType::F32][random(5) as usize];
        let ops = if elem == DType::F32 { &ops[..9] } else { &ops[..] };
        let mut b = Builder::new("random", vec![param(elem, Access::Read), param(elem, Access::Write)], 0, false);
        let ty = Type::scalar(elem);
        let (zero, three) = (b.i64(0), b.i64(3));
        let memory: Vec<u64> = (0..4).map(|_| edges(elem)[random(edges(elem).len() as u64) as usize]).collect();
        let outer_value = b.load(Buf(0), zero, 3, 1);
        // Values by name: the registers, and what they are in each of the three iterations.
        let mut known: Vec<(Reg, [u64; 3])> = vec![(outer_value, [memory[3]; 3])];
        for v in [0, 1, -1, 3] {
            let bits = scalar::from_i64(elem, v);
            known.push((b.int(ty, v), [bits; 3]));
        }
        let i = b.begin_for(zero, three, 1);
        known.push((b.load(Buf(0), i, 0, 1), [memory[0], memory[1], memory[2]]));
        for _ in 0..20 {
            let op = ops[random(ops.len() as u64) as usize];
            let (x, xs) = known[random(known.len() as u64) as usize];
            let (y, ys) = known[random(known.len() as u64) as usize];
            let value = core::array::from_fn(|k| scalar::bin(op, elem, xs[k], ys[k]).unwrap());
            known.push((b.bin(op, x, y), value));
        }
        let results = known.len() as i64;
        let stride = b.i64(results);
        let at = b.mul(i, stride);
        for (k, (reg, _)) in known.iter().enumerate() {
            b.store(Buf(1), at, k as i64, *reg);
        }
        b.end();
        let kernel = b.finish();
        let size = elem.size();
        let input: Vec<u8> = memory.iter().flat_map(|x| x.to_le_bytes()[..size].to_vec()).collect();
        let mut output = vec![0; 3 * known.len() * size];
        run(&kernel, &mut [Memory::Read(&input), Memory::Write(&mut output)], &[], 0..0, STEPS).unwrap();
        for iteration in 0..3 {
            for (k, (_, want)) in known.iter().enumerate() {
                let at = (iteration * known.len() + k) * size;
                let mut word = [0; 8];
                word[..size].copy_from_slice(&output[at..at + size]);
                let (got, want) = (u64::from_le_bytes(word), want[iteration]);
                assert!(same(elem, got, want), "value {k} in iteration {iteration}: {got:#x}, not {want:#x}\n{kernel}");
            }
        }
    }
}
