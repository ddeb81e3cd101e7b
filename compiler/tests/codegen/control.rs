//! Loops, branches, variables, returns and parameters: machine code against the interpreter.

use crate::host::{Call, load, runnable};
use crate::values::{Rng, any, from_bytes, same, show, to_bytes};
use graphmend_compiler::dtype::DType;
use graphmend_compiler::kernel::interp::{Memory, run};
use graphmend_compiler::kernel::ir::*;
use graphmend_compiler::kernel::text::parse;
use std::cell::RefCell;

impl Call {
    pub(crate) fn random(kernel: &Kernel, elements: usize, rng: &mut Rng) -> Call {
        let buf = |param: &BufParam, rng: &mut Rng| {
            let values: Vec<u64> = (0..elements).map(|_| any(param.dtype, rng)).collect();
            to_bytes(param.dtype, &values)
        };
        let bufs = kernel.bufs.iter().map(|param| buf(param, rng)).collect();
        Call { bufs, scalars: vec![0; kernel.scalars as usize], tile: (0, 0) }
    }
}

/// What the interpreter makes of a call.
pub(crate) fn interpret(kernel: &Kernel, call: &Call) -> (u32, Vec<Vec<u8>>) {
    let mut bufs = call.bufs.clone();
    let mut memory: Vec<Memory> = bufs.iter_mut().map(|buf| Memory::Write(buf)).collect();
    let outcome = run(kernel, &mut memory, &call.scalars, call.tile.0..call.tile.1, 1_000_000);
    (outcome.unwrap_or_else(|error| panic!("{error}\n{kernel}")), bufs)
}

/// Compares status and buffers.
pub(crate) fn compare(target: &str, kernel: &Kernel, got: &(u32, Vec<Vec<u8>>), want: &(u32, Vec<Vec<u8>>)) {
    assert_eq!(got.0, want.0, "{target}\n{kernel}");
    for (number, (param, (got, want))) in kernel.bufs.iter().zip(got.1.iter().zip(&want.1)).enumerate() {
        let (got, want) = (from_bytes(param.dtype, got), from_bytes(param.dtype, want));
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!(
                same(param.dtype, *got, *want),
                "{target}: b{number}[{at}] is {}, not {}\n{kernel}",
                show(param.dtype, *got),
                show(param.dtype, *want)
            );
        }
    }
}

thread_local! {
    /// Calls of `agree` are kept here while somebody asks for them.
    static CALLS: RefCell<Option<Vec<(Kernel, Call)>>> = const { RefCell::new(None) };
}

/// All calls that the tests of this file make, for other back ends.
pub(crate) fn calls() -> Vec<(Kernel, Call)> {
    CALLS.set(Some(vec![]));
    a_loop_with_bounds_at_run_time_runs_its_count();
    loops_with_constant_bounds_run_never_once_and_often();
    nested_loops_and_branches_see_outer_registers_and_variables();
    a_while_loop_keeps_the_registers_of_its_head();
    returning_from_inside_gives_the_status_and_stops();
    code_after_a_return_on_every_path_is_dropped();
    a_tile_writes_its_own_units_only();
    masks_live_in_variables_and_memory();
    addresses_reach_far_and_backwards();
    a_value_that_was_read_stays_when_its_memory_changes();
    CALLS.take().unwrap_or_default()
}

/// Runs a kernel in the interpreter and on every target of this machine; gives the status and what the interpreter left in
/// memory.
pub(crate) fn agree(kernel: &Kernel, call: &Call) -> (u32, Vec<Vec<u8>>) {
    CALLS.with_borrow_mut(|calls| calls.as_mut().map(|list| list.push((kernel.clone(), call.clone()))));
    let expected = interpret(kernel, call);
    for (name, target) in runnable() {
        let mut bufs = call.bufs.clone();
        let status = load(kernel, target).call(&mut bufs, &call.scalars, call.tile);
        compare(name, kernel, &(status, bufs), &expected);
    }
    expected
}

fn kernel(text: &str) -> Kernel {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    from_bytes(DType::I64, bytes).into_iter().map(|v| v as i64).collect()
}

#[test]
fn a_loop_with_bounds_at_run_time_runs_its_count() {
    let k = kernel(
        "kernel \"sum\" { b0: write i64 scalars 2 v0: i64 %0: i64 = scalar 0 %1: i64 = scalar 1 %2: i64 = const 0
         for %3 in %0..%1 step 3 { %4: i64 = get v0 %5: i64 = add %4, %3 v0 = %5 }
         %6: i64 = get v0 store b0[%2] = %6 }",
    );
    for (lo, hi) in [(0, 0), (0, 1), (0, 3), (0, 4), (5, 5), (7, 2), (-9, 9), (-1, 100)] {
        let call = Call { bufs: vec![vec![0; 8]], scalars: vec![lo, hi], tile: (0, 0) };
        let (_, bufs) = agree(&k, &call);
        assert_eq!(i64s(&bufs[0]), [(lo..hi).step_by(3).sum::<i64>()]);
    }
}

#[test]
fn loops_with_constant_bounds_run_never_once_and_often() {
    for (lo, hi, step) in [(0, 0, 1), (3, 1, 1), (0, 1, 1), (2, 5, 4), (0, 7, 3), (-4, 4, 1)] {
        let k = kernel(&format!(
            "kernel \"sum\" {{ b0: write i64 v0: i64 %0: i64 = const {lo} %1: i64 = const {hi} %2: i64 = const 0
             for %3 in %0..%1 step {step} {{ %4: i64 = get v0 %5: i64 = add %4, %3 %6: i64 = const 100
             %7: i64 = add %5, %6 v0 = %7 }} %8: i64 = get v0 store b0[%2] = %8 }}"
        ));
        let call = Call { bufs: vec![vec![0; 8]], scalars: vec![], tile: (0, 0) };
        let expected: i64 = (lo..hi).step_by(step).map(|i| i + 100).sum();
        assert_eq!(i64s(&agree(&k, &call).1[0]), [expected]);
    }
}

#[test]
fn nested_loops_and_branches_see_outer_registers_and_variables() {
    let k = kernel(
        "kernel \"nest\" { b0: read i32 b1: write i32 scalars 2 v0: i32 v1: i32x4
         %0: i64 = scalar 0 %1: i64 = scalar 1 %2: i64 = const 0
         for %3 in %2..%0 step 1 {
           %4: i64 = mul %3, %1
           for %5 in %2..%1 step 1 {
             %6: i64 = add %4, %5
             %7: i32 = load b0[%6]
             %8: i32 = get v0
             %9: bool = lt %7, %8
             if %9 { %10: i32 = add %8, %7 v0 = %10 } else { %11: i32 = xor %8, %7 v0 = %11
               %12: i32x4 = splat %7 %13: i32x4 = get v1 %14: i32x4 = max %12, %13 v1 = %14 }
             %15: i32 = get v0
             store b1[%6] = %15
           }
         }
         %16: i32x4 = get v1 store b1[%2] = %16 }",
    );
    let mut rng = Rng(3);
    for (rows, cols) in [(0, 5), (5, 0), (1, 1), (7, 9), (3, 13)] {
        let mut call = Call::random(&k, 100, &mut rng);
        call.scalars = vec![rows, cols];
        agree(&k, &call);
    }
}

#[test]
fn a_while_loop_keeps_the_registers_of_its_head() {
    // Bisection: the first position whose element is not below the key.
    let k = kernel(
        "kernel \"search\" { b0: read i64 b1: write i64 scalars 2 v0: i64 v1: i64
         %0: i64 = scalar 0 %1: i64 = scalar 1 %2: i64 = const 0 v1 = %0
         while { %3: i64 = get v0 %4: i64 = get v1 %5: bool = lt %3, %4 %6: i64 = add %3, %4 } %5 {
           %7: i64 = const 1 %8: i64 = shr %6, %7 %9: i64 = load b0[%8] %10: bool = lt %9, %1
           if %10 { %11: i64 = add %8, %7 v0 = %11 } else { v1 = %8 }
         }
         %12: i64 = get v0 store b1[%2] = %12 }",
    );
    let sorted: Vec<i64> = (0..37).map(|i| i * i).collect();
    let bytes: Vec<u8> = sorted.iter().flat_map(|v| v.to_le_bytes()).collect();
    for key in [-1, 0, 1, 2, 100, 1000, 1296, 1297] {
        let call = Call { bufs: vec![bytes.clone(), vec![0; 8]], scalars: vec![37, key], tile: (0, 0) };
        let expected = sorted.partition_point(|v| *v < key) as i64;
        assert_eq!(i64s(&agree(&k, &call).1[1]), [expected]);
    }
}

#[test]
fn returning_from_inside_gives_the_status_and_stops() {
    let k = kernel(
        "kernel \"check\" { b0: read i64 b1: write i64 scalars 1
         %0: i64 = scalar 0 %1: i64 = const 0 %2: i64 = const 10
         for %3 in %1..%0 step 1 {
           %4: i64 = load b0[%3] %5: bool = ge %4, %2 if %5 { return 1 } else { } store b1[%3] = %4
         } }",
    );
    let values = |list: &[i64]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let call = |list: &[i64]| Call { bufs: vec![values(list), vec![0; 32]], scalars: vec![4], tile: (0, 0) };
    assert_eq!(agree(&k, &call(&[1, 2, 3, 4])).0, 0);
    let (status, bufs) = agree(&k, &call(&[1, 2, 30, 4]));
    assert_eq!((status, i64s(&bufs[1])), (1, vec![1, 2, 0, 0]));
}

#[test]
fn code_after_a_return_on_every_path_is_dropped() {
    let k = kernel(
        "kernel \"ends\" { b0: write i64 scalars 1 %0: i64 = scalar 0 %1: i64 = const 0 %2: bool = lt %0, %1
         for %3 in %1..%0 step 1 { return 3 }
         if %2 { return 4 } else { return 5 } store b0[%1] = %0 }",
    );
    for (scalar, status) in [(1, 3), (0, 5), (-1, 4)] {
        let call = Call { bufs: vec![vec![9; 8]], scalars: vec![scalar], tile: (0, 0) };
        assert_eq!(agree(&k, &call).0, status);
    }
    let head = kernel("kernel \"head\" { while { %0: bool = const true return 7 } %0 { } }");
    assert_eq!(agree(&head, &Call { bufs: vec![], scalars: vec![], tile: (0, 0) }).0, 7);
}

#[test]
fn a_tile_writes_its_own_units_only() {
    let k = kernel(
        "kernel \"tile\" tiled { b0: read f32 b1: write f32 %0: i64 = tile.lo %1: i64 = tile.hi %6: i64 = const 4
         for %2 in %0..%1 step 1 { %3: i64 = mul %2, %6 %4: f32x4 = load b0[%3] %5: f32x4 = add %4, %4
         store b1[%3] = %5 } }",
    );
    let mut rng = Rng(11);
    for tile in [(0, 6), (2, 3), (5, 5), (3, 6)] {
        let mut call = Call::random(&k, 24, &mut rng);
        call.tile = tile;
        let before = call.bufs[1].clone();
        let (_, bufs) = agree(&k, &call);
        let written = 16 * tile.0 as usize..16 * tile.1 as usize;
        for (at, (old, new)) in before.iter().zip(&bufs[1]).enumerate() {
            assert!(written.contains(&at) || old == new);
        }
    }
}

#[test]
fn masks_live_in_variables_and_memory() {
    for lanes in [2, 3, 4, 7, 8, 16, 20] {
        let k = kernel(&format!(
            "kernel \"mask\" {{ b0: read f32 b1: read i8 b2: write bool b3: write i8 b4: read bool scalars 1
             v0: boolx{lanes} %0: i64 = scalar 0 %1: i64 = const 0
             for %2 in %1..%0 step {lanes} {{
               %3: f32x{lanes} = load b0[%2] %4: f32x{lanes} = const 0.5 %5: boolx{lanes} = lt %3, %4
               %6: boolx{lanes} = get v0 %7: boolx{lanes} = or %5, %6
               %8: i8x{lanes} = load b1[%2] %9: i8x{lanes} = const 3 %10: boolx{lanes} = gt %8, %9
               %11: boolx{lanes} = and %10, %7 %12: boolx{lanes} = load b4[%2] %13: boolx{lanes} = xor %11, %12
               v0 = %13
               store b2[%2] = %13 %14: boolx{lanes} = not %13 %15: i8x{lanes} = select %14, %8, %9 store b3[%2] = %15
             }} }}"
        ));
        let mut call = Call::random(&k, 5 * lanes, &mut Rng(lanes as u64));
        call.scalars = vec![5 * lanes as i64];
        agree(&k, &call);
    }
}

#[test]
fn addresses_reach_far_and_backwards() {
    // Displacements beyond 32 bits of bytes cancel against the index.
    let far = 1i64 << 33;
    let k = kernel(&format!(
        "kernel \"far\" {{ b0: read f64 b1: write f64 scalars 1 %0: i64 = scalar 0 %1: i64 = const {far}
         %2: i64 = sub %0, %1 %3: f64x3 = load b0[%2 + {far}] %4: i64 = const -{far} store b1[%4 + {far}] = %3
         %5: f64 = load b0[%0 - 2] store b1[%0 - 1] = %5 }}"
    ));
    let mut call = Call::random(&k, 16, &mut Rng(5));
    call.scalars = vec![9];
    agree(&k, &call);
}

/// Kernels that multiply bytes in 32 bits, with calls.
pub(crate) fn byte_products() -> Vec<(Kernel, Call)> {
    let mut out = Vec::new();
    for (a, b) in [("u8", "u8"), ("u8", "i8"), ("i8", "u8"), ("i8", "i8")] {
        for lanes in [4, 5, 8, 16, 24] {
            let k = kernel(&format!(
                "kernel \"bytes\" {{ b0: read {a} b1: read {b} b2: write i32 b3: write u32 scalars 1 v0: i32x{lanes}
                 %0: i64 = scalar 0 %1: i64 = const 0
                 for %2 in %1..%0 step {lanes} {{
                   %3: {a}x{lanes} = load b0[%2] %4: {b}x{lanes} = load b1[%2] %5: i32x{lanes} = cast %3
                   %6: i32x{lanes} = cast %4 %7: i32x{lanes} = mul %5, %6 %8: i32x{lanes} = get v0
                   %9: i32x{lanes} = add %8, %7 v0 = %9 store b2[%2] = %9
                   %10: {a} = load b0[%2] %11: u32 = cast %10 %12: u32x{lanes} = splat %11 %13: u32x{lanes} = cast %4
                   %14: u32x{lanes} = mul %12, %13 store b3[%2] = %14
                 }} }}"
            ));
            let mut call = Call::random(&k, 20 * lanes, &mut Rng(lanes as u64));
            call.bufs[0][..4].copy_from_slice(&[255, 255, 128, 128]);
            call.bufs[1][..4].copy_from_slice(&[255, 128, 128, 127]);
            call.scalars = vec![20 * lanes as i64];
            out.push((k, call));
        }
    }
    out
}

#[test]
fn products_of_bytes_have_all_their_bits() {
    for (kernel, call) in byte_products() {
        agree(&kernel, &call);
    }
}

#[test]
fn a_value_that_was_read_stays_when_its_memory_changes() {
    for lanes in [1, 4, 8, 16] {
        // Read before a store, used after it: in the same block, in a loop, and around a loop that stores.
        let ty = if lanes == 1 { "f32".into() } else { format!("f32x{lanes}") };
        for (stores, result) in [("store b0[%0] = %4", "%5"), ("for %5 in %0..%1 step 1 { store b0[%0] = %4 }", "%6")] {
            let k = kernel(&format!(
                "kernel \"old\" {{ b0: write f32 b1: write f32 b2: read f32 scalars 1 %0: i64 = const 0 %1: i64 = scalar 0
                 for %2 in %0..%1 step 1 {{ %3: {ty} = load b0[%0] %4: {ty} = load b2[%0]
                   {stores} {result}: {ty} = mul %3, %4 store b1[%0] = {result} }} }}"
            ));
            let mut call = Call::random(&k, 16, &mut Rng(17));
            call.bufs[0] = to_bytes(DType::F32, &(0..16).map(|k| u64::from((k as f32).to_bits())).collect::<Vec<_>>());
            call.bufs[2] = to_bytes(DType::F32, &[u64::from(3f32.to_bits()); 16]);
            call.scalars = vec![1];
            let (_, bufs) = agree(&k, &call);
            let product = from_bytes(DType::F32, &bufs[1]);
            assert_eq!(f32::from_bits(product[lanes - 1] as u32), (lanes - 1) as f32 * 3.0);
        }
    }
}
