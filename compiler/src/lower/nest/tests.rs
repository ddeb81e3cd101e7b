//! Loop nests, run by the interpreter.

use super::*;
use crate::fuse::group::reduction_nest;
use crate::kernel::interp::{self, Memory};
use crate::te::Cx;

/// Calls for other ranges of work units than all at once give the same bytes.
#[test]
fn few_rows_are_cut_into_parts_that_may_be_computed_apart() {
    for (rows, columns, terms) in [(3, 700, 20), (1, 65, 300), (2, 9, 1200), (70, 40, 9)] {
        let sizes = [rows, terms, columns].map(Int::new);
        let mut cx = Cx::new();
        let x = cx.input("x", DType::F32, sizes.to_vec());
        let outer = [sizes[0], sizes[2]];
        let y = cx.reduce(ReduceKind::Sum, DType::F32, outer.to_vec(), &sizes[1..2], |i, r| {
            expr::load(x, DType::F32, vec![i[0], r[0], i[1]])
        });
        let nest = reduction_nest(&cx.program, y).expect("a nest");
        let cpu = graphmend_targets::lookup("x86-64").expect("a preset");
        let lowered = lower(&cx.program, &cpu, "sum", &nest);
        let units = lowered.tiles.and_then(|t| t.as_const()).expect("a number of units");
        // Vectors along the units are never divided.
        assert!(units >= columns.min(32) / 4, "{rows} x {columns}: {units} units");
        let bytes: Vec<u8> = (0..rows * terms * columns).flat_map(|k| ((k % 71) as f32 * 0.3).to_le_bytes()).collect();
        let run = |step: i64| {
            let mut out = vec![0; (rows * columns * 4) as usize];
            for from in (0..units).step_by(step as usize).collect::<Vec<_>>().into_iter().rev() {
                let mut written = Some(&mut out);
                let memory = lowered.bindings.iter().map(|binding| match binding {
                    crate::lower::Binding::Tensor(t) if *t == y => Memory::Write(written.take().expect("once")),
                    _ => Memory::Read(&bytes),
                });
                let units = from..(from + step).min(units);
                interp::run(&lowered.kernel, &mut memory.collect::<Vec<_>>(), &[], units, 1 << 30).expect("runs");
            }
            out
        };
        let whole = run(units);
        assert!(whole.chunks(4).all(|v| v != [0; 4]), "{rows} x {columns}: elements are missing");
        for step in [1, 3, 16] {
            assert!(run(step) == whole, "{rows} x {columns} by {step}");
        }
    }
}

/// A single-precision accumulator would be off by 1e-3 here.
#[test]
fn long_sums_stay_accurate_on_every_processor() {
    for name in ["riscv64", "rv64gcv", "aarch64", "x86-64", "x86-64-v3"] {
        let cpu = graphmend_targets::lookup(name).expect("a preset");
        for over in [&[1 << 18][..], &[512, 512], &[1 << 12, 1 << 6]] {
            let over: Vec<Int> = over.iter().map(|n| Int::new(*n)).collect();
            let mut cx = Cx::new();
            let x = cx.input("x", DType::F32, over.clone());
            let y = cx.reduce(ReduceKind::Sum, DType::F32, vec![], &over, |_, r| expr::load(x, DType::F32, r.to_vec()));
            let nest = reduction_nest(&cx.program, y).expect("a nest");
            let lowered = lower(&cx.program, &cpu, "sum", &nest);
            let values: Vec<f32> = (0..1 << 18).map(|k| 0.1 + (k % 7) as f32 * 0.01).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let mut out = vec![0; 4];
            let mut memory: Vec<Memory<'_>> = vec![];
            let mut written = Some(&mut out);
            for binding in &lowered.bindings {
                memory.push(match binding {
                    crate::lower::Binding::Tensor(t) if *t == y => Memory::Write(written.take().expect("once")),
                    _ => Memory::Read(&bytes),
                });
            }
            interp::run(&lowered.kernel, &mut memory, &[], 0..1, 1 << 30).expect("runs");
            let want: f64 = values.iter().map(|v| f64::from(*v)).sum();
            let got = f64::from(f32::from_le_bytes(out.try_into().expect("four bytes")));
            assert!((got - want).abs() < 1e-5 * want, "{name} over {over:?}: {got}, expected {want}");
        }
    }
}

/// Rows of what may be empty, then one of constants, column by column in vectors.
#[test]
fn a_condition_that_lanes_share_guards_loads_from_an_empty_tensor() {
    let n = Int::symbol("n", Some(0), None);
    let mut cx = Cx::new();
    let a = cx.input("a", DType::F32, vec![n, Int::new(8)]);
    let b = cx.input("b", DType::F32, vec![Int::new(8)]);
    let y = cx.map(DType::F32, vec![n + 1, Int::new(8)], |i| {
        let held = expr::cmp(crate::kernel::ir::Cmp::Lt, expr::int(i[0]), expr::int(n));
        expr::select(held, expr::load(a, DType::F32, i.to_vec()), expr::load(b, DType::F32, vec![i[1]]))
    });
    let tensor = cx.program.tensor(y);
    let crate::te::Def::Map { vars, body } = &tensor.def else { panic!("a map") };
    let position = crate::te::cx::flatten(&tensor.shape, &crate::te::cx::index_of(vars));
    let stage = Stage::Store { id: y, inner: vec![], body: *body, position };
    let cpu = graphmend_targets::lookup("x86-64-v3").expect("a preset");
    let lowered = lower(&cx.program, &cpu, "rows", &Nest { vars: vars.clone(), stages: vec![stage] });
    let at_zero = |i: Int| crate::sym::subst(i, &|_| Some(Int::new(0))).as_const().expect("known");
    let scalars: Vec<i64> = lowered.scalars.iter().map(|s| at_zero(*s)).collect();
    let row: Vec<u8> = (0..8).flat_map(|k| (k as f32).to_le_bytes()).collect();
    let mut out = vec![0; 32];
    let mut written = Some(&mut out);
    let memory = lowered.bindings.iter().map(|binding| match binding {
        crate::lower::Binding::Tensor(t) if *t == y => Memory::Write(written.take().expect("once")),
        crate::lower::Binding::Tensor(t) if *t == a => Memory::Read(&[]),
        _ => Memory::Read(&row),
    });
    let units = lowered.tiles.map_or(1, at_zero);
    let end = interp::run(&lowered.kernel, &mut memory.collect::<Vec<_>>(), &scalars, 0..units, 1 << 20);
    assert_eq!(end, Ok(0));
    assert_eq!(out, row);
}

/// A choice by data of which one side is an element of nothing: both sides are computed where lanes differ.
#[test]
fn nothing_is_loaded_from_a_tensor_that_is_empty() {
    let mut cx = Cx::new();
    let a = cx.input("a", DType::F32, vec![Int::new(0), Int::new(8)]);
    let b = cx.input("b", DType::F32, vec![Int::new(8)]);
    let y = cx.map(DType::F32, vec![Int::new(8)], |i| {
        let b = expr::load(b, DType::F32, i.to_vec());
        let held = expr::cmp(crate::kernel::ir::Cmp::Lt, b, expr::constant_f64(DType::F32, 5.0));
        expr::select(held, b, expr::load(a, DType::F32, vec![Int::new(0), i[0]]))
    });
    let tensor = cx.program.tensor(y);
    let crate::te::Def::Map { vars, body } = &tensor.def else { panic!("a map") };
    let position = crate::te::cx::flatten(&tensor.shape, &crate::te::cx::index_of(vars));
    for cpu in ["x86-64", "x86-64-v3", "x86-64-v4", "riscv64"] {
        let stage = Stage::Store { id: y, inner: vec![], body: *body, position };
        let cpu = graphmend_targets::lookup(cpu).expect("a preset");
        let lowered = lower(&cx.program, &cpu, "choice", &Nest { vars: vars.clone(), stages: vec![stage] });
        let row: Vec<u8> = (0..8).flat_map(|k| (k as f32).to_le_bytes()).collect();
        let mut out = vec![1; 32];
        let mut written = Some(&mut out);
        let memory = lowered.bindings.iter().map(|binding| match binding {
            crate::lower::Binding::Tensor(t) if *t == y => Memory::Write(written.take().expect("once")),
            crate::lower::Binding::Tensor(t) if *t == a => Memory::Read(&[]),
            _ => Memory::Read(&row),
        });
        let units = lowered.tiles.map_or(1, |n| n.as_const().expect("known"));
        let end = interp::run(&lowered.kernel, &mut memory.collect::<Vec<_>>(), &[], 0..units, 1 << 20);
        assert_eq!(end, Ok(0));
        let expected: Vec<u8> = (0..8).flat_map(|k| (if k < 5 { k as f32 } else { 0.0 }).to_le_bytes()).collect();
        assert_eq!(out, expected);
    }
}
