//! Control flow, memory and traps.

mod operations;

use crate::dtype::DType;
use crate::kernel::builder::Builder;
use crate::kernel::interp::*;
use crate::kernel::ir::{Access, BinOp, Buf, BufParam, Cmp, Horizontal, Op, Reg, Type, UnOp};
use crate::kernel::scalar;
use crate::kernel::text::parse;

const STEPS: u64 = 1 << 32;

fn param(dtype: DType, access: Access) -> BufParam {
    BufParam { dtype, access }
}

fn bytes<const N: usize>(values: &[impl Copy], f: impl Fn(usize) -> [u8; N]) -> Vec<u8> {
    (0..values.len()).flat_map(f).collect()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    bytes(values, |i| values[i].to_le_bytes())
}

fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
}

/// Runs text that has `b0: read f32` and `b1: write f32`.
fn run_text(body: &str, input: &[f32], outputs: usize, scalars: &[i64]) -> Result<(u32, Vec<f32>), Trap> {
    let text =
        format!("kernel \"k\" {{ b0: read f32 b1: write f32 scalars {} v0: f32 v1: i64 {body} }}", scalars.len());
    let kernel = parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let (input, mut output) = (f32s(input), vec![0; 4 * outputs]);
    let status = run(&kernel, &mut [Memory::Read(&input), Memory::Write(&mut output)], scalars, 2..5, STEPS)?;
    Ok((status, to_f32s(&output)))
}

#[test]
fn loops_variables_and_memory() {
    let body = "%0: i64 = const 0 %1: i64 = scalar 0
        for %2 in %0..%1 step 2 { %3: f32 = load b0[%2 + 1] %4: f32 = get v0 %5: f32 = add %4, %3 v0 = %5 store b1[%2] = %5 }
        %6: f32 = get v0 store b1[%0 + 3] = %6 return 7";
    let (status, out) = run_text(body, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 5, &[5]).unwrap();
    assert_eq!((status, out), (7, vec![2.0, 0.0, 6.0, 12.0, 12.0]));
}

#[test]
fn loops_that_do_not_run_and_bounds_near_overflow() {
    let body = "%0: i64 = const 0 %1: i64 = scalar 0 %2: i64 = scalar 1 %3: f32 = const 1.0
        for %4 in %1..%2 step 9223372036854775807 { %5: i64 = get v1 store b1[%5] = %3 %6: i64 = const 1 %7: i64 = add %5, %6 v1 = %7 }";
    assert_eq!(run_text(body, &[], 3, &[3, 3]).unwrap().1, [0.0, 0.0, 0.0]);
    assert_eq!(run_text(body, &[], 3, &[5, i64::MIN]).unwrap().1, [0.0, 0.0, 0.0]);
    assert_eq!(run_text(body, &[], 3, &[5, i64::MAX]).unwrap().1, [1.0, 0.0, 0.0]);
    assert_eq!(run_text(body, &[], 3, &[i64::MIN, i64::MAX]).unwrap().1, [1.0, 1.0, 1.0]);
}

#[test]
fn branches_and_while_loops() {
    // Collatz steps of the scalar, counted; odd and even told apart by a branch.
    let text = "kernel \"collatz\" { b0: write i64 scalars 1 v0: i64 v1: i64
        %0: i64 = scalar 0 %1: i64 = const 1 %2: i64 = const 2 %3: i64 = const 3 %4: i64 = const 0
        v0 = %0
        while { %5: i64 = get v0 %6: bool = ne %5, %1 } %6 {
          %7: i64 = rem %5, %2 %8: bool = eq %7, %4
          if %8 { %9: i64 = div %5, %2 v0 = %9 } else { %10: i64 = mul %5, %3 %11: i64 = add %10, %1 v0 = %11 }
          %12: i64 = get v1 %13: i64 = add %12, %1 v1 = %13
        }
        %14: i64 = get v1 store b0[%4] = %14 }";
    let kernel = parse(text).unwrap();
    let mut out = vec![0; 8];
    assert_eq!(run(&kernel, &mut [Memory::Write(&mut out)], &[27], 0..0, STEPS), Ok(0));
    assert_eq!(out[..], 111_i64.to_le_bytes());
}

#[test]
fn tile_bounds_reach_the_kernel() {
    let body = "%0: i64 = tile.lo %1: i64 = tile.hi %2: f32 = const 1.0 for %3 in %0..%1 step 1 { store b1[%3] = %2 }";
    assert_eq!(run_text(body, &[], 6, &[]).unwrap().1, [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
}

#[test]
fn accesses_outside_a_buffer_trap() {
    let load = "%0: i64 = scalar 0 %1: f32x4 = load b0[%0 + 1] store b1[%0] = %1";
    assert_eq!(run_text(load, &[0.0; 6], 9, &[1]).unwrap().0, 0);
    let trap = |index, len, buf| Trap::OutOfBounds { buf, index, lanes: 4, len };
    assert_eq!(run_text(load, &[0.0; 6], 9, &[2]), Err(trap(3, 6, 0)));
    assert_eq!(run_text(load, &[0.0; 6], 9, &[-2]), Err(trap(-1, 6, 0)));
    assert_eq!(run_text(load, &[0.0; 6], 4, &[1]), Err(trap(1, 4, 1)));
    assert_eq!(run_text(load, &[0.0; 6], 4, &[i64::MAX]), Err(trap(i64::MIN, 6, 0)));
    assert_eq!(run_text(load, &[0.0; 6], 4, &[i64::MAX - 1]), Err(trap(i64::MAX, 6, 0)));
    assert_eq!(run_text(load, &[0.0; 6], 4, &[i64::MAX / 4]), Err(trap(i64::MAX / 4 + 1, 6, 0)));
}

#[test]
fn wrong_arguments_and_endless_loops_trap() {
    let text = "kernel \"k\" { b0: write f32 scalars 1 %0: bool = const true while { } %0 { } }";
    let kernel = parse(text).unwrap();
    let mut out = [0; 4];
    assert_eq!(run(&kernel, &mut [Memory::Write(&mut out)], &[0], 0..0, 1_000_000), Err(Trap::Steps));
    assert_eq!(run(&kernel, &mut [], &[0], 0..0, 9), Err(Trap::BufferCount { given: 0, needed: 1 }));
    assert_eq!(run(&kernel, &mut [Memory::Read(&out)], &[0], 0..0, 9), Err(Trap::ReadOnly { buf: 0 }));
    let mut bufs = [Memory::Write(&mut out)];
    assert_eq!(run(&kernel, &mut bufs, &[], 0..0, 9), Err(Trap::ScalarCount { given: 0, needed: 1 }));
    let invalid = parse("kernel \"k\" { %0: i64 = const 0 %1: f32 = add %0, %0 }").unwrap();
    assert!(matches!(run(&invalid, &mut [], &[], 0..0, 9), Err(Trap::Invalid(_))));
}

#[test]
fn elements_of_every_type_pass_through_memory() {
    for dtype in DType::ALL {
        let mut b = Builder::new("copy", vec![param(dtype, Access::Read), param(dtype, Access::Write)], 0, false);
        let zero = b.i64(0);
        let x = b.load(Buf(0), zero, 1, 3);
        b.store(Buf(1), zero, 0, x);
        let kernel = b.finish();
        // Bytes that are valid elements of every type and no NaN of a half type, which need not keep its bits.
        let input: Vec<u8> = match dtype {
            DType::Bool => vec![0, 1, 0, 1],
            _ => (0..4 * dtype.size()).map(|i| (17 * i + 3) as u8 & 0x3f).collect(),
        };
        let mut output = vec![0xee; 4 * dtype.size()];
        run(&kernel, &mut [Memory::Read(&input), Memory::Write(&mut output)], &[], 0..0, STEPS).unwrap();
        assert_eq!(output[..3 * dtype.size()], input[dtype.size()..], "{dtype}");
        assert!(output[3 * dtype.size()..].iter().all(|b| *b == 0xee));
    }
}

#[test]
fn half_stores_round_to_nearest_even_and_loads_widen() {
    for (dtype, cases) in [
        (
            DType::F16,
            [(1.0f32, 1.0f32), (2049.0, 2048.0), (2051.0, 2052.0), (65520.0, f32::INFINITY), (6e-8, 5.9604645e-8)],
        ),
        (DType::BF16, [(1.0, 1.0), (257.0, 256.0), (259.0, 260.0), (3.4e38, f32::INFINITY), (1e-40, 9.1835e-41)]),
    ] {
        let mut b = Builder::new(
            "round",
            vec![param(DType::F32, Access::Read), param(dtype, Access::Write), param(DType::F32, Access::Write)],
            0,
            false,
        );
        let zero = b.i64(0);
        let x = b.load(Buf(0), zero, 0, 5);
        let rounded = b.cast(dtype, x);
        b.store(Buf(1), zero, 0, x);
        let back = b.load(Buf(1), zero, 0, 5);
        b.store(Buf(2), zero, 0, back);
        b.store(Buf(2), zero, 5, rounded);
        let kernel = b.finish();
        let input = f32s(&cases.map(|c| c.0));
        let (mut halves, mut out) = (vec![0; 10], vec![0; 40]);
        let mut bufs = [Memory::Read(&input), Memory::Write(&mut halves), Memory::Write(&mut out)];
        run(&kernel, &mut bufs, &[], 0..0, STEPS).unwrap();
        let out = to_f32s(&out);
        assert_eq!(out[..5], cases.map(|c| c.1), "{dtype}");
        assert_eq!(out[5..], out[..5], "{dtype}");
    }
}

/// Kernel text with numbers and words exchanged at random either fails to parse, or breaks a rule, or runs to an end.
#[test]
fn mangled_kernels_never_panic() {
    const TEXT: &str = "kernel \"k\" { b0: read f32 b1: write f32 b2: write i8 scalars 2 v0: f32x4 v1: i64
        %0: i64 = tile.lo %1: i64 = scalar 1 %2: i64 = const 3 %3: f32x4 = const 0.5
        for %4 in %0..%1 step 2 { %5: f32x4 = load b0[%4 + 1] %6: f32x4 = fma %5, %3, %3 %7: boolx4 = lt %6, %5
          %8: f32x4 = select %7, %6, %3 v0 = %8 %9: f32 = extract %8[1] %10: f32 = hadd %8 %11: f32 = rem %9, %10
          store b1[%4 - 1] = %11 %12: i64 = div %4, %2 %13: i64 = shl %12, %2 v1 = %13 }
        while { %14: i64 = get v1 %15: bool = gt %14, %2 } %15 { %16: i64 = sub %14, %2 v1 = %16 }
        %17: i8 = cast %2 %19: bool = ne %2, %1 if %19 { store b2[%2] = %17 return 1 } else { %18: f32x4 = get v0 store b1[%0] = %18 } }";
    let words: Vec<String> = TEXT.split(' ').map(str::to_string).collect();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 16) as usize % below
    };
    let (mut ran, mut trapped, mut invalid) = (0, 0, 0);
    for _ in 0..4_000 {
        let mut words = words.clone();
        let mut changes = 1 + random(2);
        while changes > 0 {
            let (to, from) = (random(words.len()), random(words.len()));
            if words[to].starts_with(|c: char| c.is_ascii_digit()) {
                let closing = words[to].ends_with(']');
                let number = ["0", "1", "9", "-2", "300", "9223372036854775807"][random(6)];
                words[to] = if closing { format!("{number}]") } else { number.to_string() };
            } else if words[to].chars().next() == words[from].chars().next() {
                words[to] = words[from].clone();
            } else {
                continue;
            }
            changes -= 1;
        }
        let Ok(kernel) = parse(&words.join(" ")) else {
            continue;
        };
        let input = [0x3f; 40];
        let (mut floats, mut bytes) = ([0; 40], [0; 7]);
        let mut bufs = [Memory::Read(&input), Memory::Write(&mut floats), Memory::Write(&mut bytes)];
        let scalars = vec![5; kernel.scalars.min(4) as usize];
        match run(&kernel, &mut bufs[..kernel.bufs.len().min(3)], &scalars, 1..4, 10_000) {
            Ok(_) => ran += 1,
            Err(Trap::Invalid(_)) => invalid += 1,
            Err(_) => trapped += 1,
        }
    }
    assert!(ran > 100 && trapped > 100 && invalid > 100, "{ran} {trapped} {invalid}");
}
