//! What the plan machine computes, and what it refuses, with kernels that are functions of this program.

mod common;

use common::*;
use graphmend_cache_format::LEAF;
use graphmend_cache_format::abi::status;
use graphmend_runtime::{
    Error, FormatError, Host, KernelArgs, KernelFn, ModelRef, OwnedSession, TensorRef, Trust, WeightCheck,
};
use graphmend_targets::{Arch, Features};

/// Runs a file with functions as kernels and gives its outputs as i64.
fn run_with(spec: &FileSpec, functions: &[KernelFn], inputs: &[TensorRef<'_>]) -> Result<Vec<Vec<i64>>, Error> {
    let bytes = bytes(spec);
    // SAFETY: the bytes stay as they are, and the functions fit the kernels.
    let model = unsafe { ModelRef::from_bytes(&bytes, Trust::Unsigned, host(), WeightCheck::OnUse, Some(functions)) }?;
    // SAFETY: as above; the file was just written.
    let trusted = unsafe { ModelRef::from_trusted_bytes(&bytes, host(), Some(functions)) }?;
    let run = |model: ModelRef<'_>| {
        let mut session = OwnedSession::new(model)?;
        session.set_step_limit(1000);
        session.run(inputs)?;
        let outputs = model.outputs().count();
        (0..outputs).map(|i| Ok(session.output(i)?.as_i64()?.to_vec())).collect()
    };
    let result = run(model);
    assert_eq!(run(trusted), result, "a file that is trusted runs as one that was verified");
    result
}

/// A plan without inputs whose outputs are the registers `0..outs`, each stored as a scalar.
fn arithmetic(regs: u32, outs: u32, mut instrs: Vec<Instr>) -> FileSpec {
    for r in 0..outs {
        instrs.push(Instr::StoreInt { buf: r, index: imm(0), value: reg(r) });
    }
    instrs.push(Instr::Return);
    let plan = PlanSpec {
        regs,
        slots: 0,
        arena_bytes: 4096,
        buffers: (0..outs).map(|r| arena(DType::I64, i64::from(r) * 8, 8)).collect(),
        instrs,
        outputs: (0..outs).map(|buf| OutputSpec { buf, dims: vec![] }).collect(),
        messages: vec!["told you".into()],
    };
    file(vec![], (0..outs).map(|r| tensor(&format!("r{r}"), DType::I64, vec![])).collect(), plan, vec![])
}

fn registers(regs: u32, outs: u32, instrs: Vec<Instr>) -> Result<Vec<i64>, Error> {
    Ok(run_with(&arithmetic(regs, outs, instrs), &[], &[])?.concat())
}

#[test]
fn a_loop_sums_numbers() {
    // r0 = 1 + 2 + … + 10
    let sum = vec![
        Instr::Set { dst: 1, value: imm(1) },
        bin(BinOp::Le, 2, reg(1), imm(10)),
        Instr::JumpIfZero { cond: reg(2), target: 6 },
        bin(BinOp::Add, 0, reg(0), reg(1)),
        bin(BinOp::Add, 1, reg(1), imm(1)),
        Instr::Jump { target: 1 },
    ];
    assert_eq!(registers(3, 2, sum).unwrap(), [55, 11]);
}

#[test]
fn selects_take_the_value_that_the_condition_says() {
    let instrs = vec![
        Instr::Select { dst: 0, cond: imm(-1), a: imm(7), b: imm(8) },
        Instr::Select { dst: 1, cond: reg(2), a: imm(7), b: imm(8) },
    ];
    assert_eq!(registers(3, 2, instrs).unwrap(), [7, 8]);
}

#[test]
fn an_overflow_ends_the_run() {
    let instrs = vec![bin(BinOp::Mul, 0, imm(1 << 40), imm(1 << 40))];
    assert_eq!(registers(1, 1, instrs), Err(Error::Overflow { step: 0 }));
    let instrs = vec![bin(BinOp::FloorDiv, 0, imm(i64::MIN), imm(-1))];
    assert_eq!(registers(1, 1, instrs), Err(Error::Overflow { step: 0 }));
}

#[test]
fn an_endless_loop_is_stopped_by_the_limit() {
    assert_eq!(registers(1, 1, vec![Instr::Jump { target: 0 }]), Err(Error::StepLimit));
}

#[test]
fn a_failed_check_ends_the_run() {
    let instrs = vec![Instr::Check { cond: imm(3), message: 0 }, Instr::Check { cond: reg(0), message: 0 }];
    let spec = arithmetic(1, 1, instrs);
    assert_eq!(run_with(&spec, &[], &[]), Err(Error::Check { step: 1, message: 0 }));
    let bytes = bytes(&spec);
    // SAFETY: nothing is called.
    let model = unsafe { ModelRef::from_bytes(&bytes, Trust::Unsigned, host(), WeightCheck::Skip, Some(&[])) }.unwrap();
    assert_eq!(model.message(0), Some("told you"));
}

#[test]
fn what_is_to_be_interpreted_is_not_called() {
    let mut spec = arithmetic(1, 1, vec![]);
    spec.variants[0].arch = Arch::Portable.id();
    let bytes = bytes(&spec);
    // SAFETY: nothing is called.
    let model = unsafe { ModelRef::from_bytes(&bytes, Trust::Unsigned, host(), WeightCheck::Skip, None) };
    assert_eq!(model.err(), Some(Error::NoInterpreter));
}

#[test]
fn integers_are_loaded_and_stored_in_each_type() {
    let cases: [(DType, i64, i64); 12] = [
        (DType::I8, -1, -1),
        (DType::U8, -1, 255),
        (DType::I16, -2, -2),
        (DType::U16, -2, 65534),
        (DType::I32, i64::from(i32::MIN), i64::from(i32::MIN)),
        (DType::U32, -1, 4294967295),
        (DType::I64, i64::MIN, i64::MIN),
        (DType::U64, i64::MAX, i64::MAX),
        (DType::Bool, 256, 1),
        (DType::Bool, 0, 0),
        (DType::I8, 200, -56),
        (DType::I16, 1 << 20, 0),
    ];
    for (dtype, stored, loaded) in cases {
        let mut spec = arithmetic(
            1,
            1,
            vec![
                Instr::Fill { buf: 1, bits: 0x5555_5555_5555_5555 },
                Instr::StoreInt { buf: 1, index: imm(2), value: imm(stored) },
                Instr::LoadInt { dst: 0, buf: 1, index: imm(2) },
            ],
        );
        spec.variants[0].plan.buffers.push(arena(dtype, 64, 24));
        assert_eq!(run_with(&spec, &[], &[]).unwrap(), [[loaded]], "{dtype}");
    }
}

#[test]
fn an_unsigned_integer_that_does_not_fit_is_refused() {
    let instrs = vec![Instr::Fill { buf: 1, bits: u64::MAX }, Instr::LoadInt { dst: 0, buf: 1, index: imm(0) }];
    let mut spec = arithmetic(1, 1, instrs);
    spec.variants[0].plan.buffers.push(arena(DType::U64, 64, 8));
    assert_eq!(run_with(&spec, &[], &[]), Err(Error::Overflow { step: 1 }));
}

#[test]
fn element_indices_are_checked() {
    for index in [-1, 3, i64::MAX, i64::MIN] {
        for step in [
            Instr::LoadInt { dst: 0, buf: 1, index: imm(index) },
            Instr::StoreInt { buf: 1, index: imm(index), value: imm(0) },
        ] {
            let mut spec = arithmetic(1, 1, vec![step]);
            spec.variants[0].plan.buffers.push(arena(DType::I32, 64, 15));
            assert_eq!(run_with(&spec, &[], &[]), Err(Error::Index { step: 0 }), "{index}");
        }
    }
}

#[test]
fn buffers_with_run_time_bounds_are_checked() {
    let with = |offset: i64, bytes: i64| {
        let mut spec = arithmetic(
            3,
            1,
            vec![
                Instr::Set { dst: 1, value: imm(offset) },
                Instr::Set { dst: 2, value: imm(bytes) },
                Instr::Fill { buf: 1, bits: 0 },
            ],
        );
        let buffer = BufferSpec { space: Space::Arena, dtype: DType::I32, offset: reg(1), bytes: Some(reg(2)) };
        spec.variants[0].plan.buffers.push(buffer);
        run_with(&spec, &[], &[])
    };
    let wrong = Err(Error::Buffer { step: 2, buffer: 1 });
    assert!(with(64, 128).is_ok());
    assert!(with(4096, 0).is_ok());
    for (offset, bytes) in
        [(4096, 1), (0, 4097), (-4, 4), (4, -4), (2, 4), (i64::MAX, i64::MAX), (i64::MIN, i64::MIN), (4097, 0)]
    {
        assert_eq!(with(offset, bytes), wrong, "{offset} {bytes}");
    }
}

#[test]
fn copies_move_bytes_even_onto_themselves() {
    let dims = || vec![DimSpec::Fixed(4)];
    let copy = |dst: i64, src: i64, bytes: Option<i64>| {
        let plan = PlanSpec {
            regs: 0,
            slots: 0,
            arena_bytes: 64,
            buffers: vec![input(0, DType::I64), arena(DType::I64, 0, 32)],
            instrs: vec![
                Instr::Copy { dst: 1, dst_offset: imm(0), src: 0, src_offset: imm(0), bytes: None },
                Instr::Copy { dst: 1, dst_offset: imm(dst), src: 1, src_offset: imm(src), bytes: bytes.map(imm) },
                Instr::Return,
            ],
            outputs: vec![OutputSpec { buf: 1, dims: vec![imm(4)] }],
            messages: vec![],
        };
        let spec = file(vec![tensor("x", DType::I64, dims())], vec![tensor("y", DType::I64, dims())], plan, vec![]);
        run_with(&spec, &[], &[TensorRef::new(&[1i64, 2, 3, 4], &[4])])
    };
    assert_eq!(copy(8, 0, Some(24)).unwrap(), [[1, 1, 2, 3]]);
    assert_eq!(copy(0, 8, None).unwrap(), [[2, 3, 4, 4]]);
    let wrong = Err(Error::Index { step: 1 });
    for (dst, src, bytes) in
        [(8, 0, None), (0, 8, Some(25)), (-1, 0, Some(1)), (0, -1, Some(1)), (0, 0, Some(-1)), (33, 0, Some(0))]
    {
        assert_eq!(copy(dst, src, bytes), wrong, "{dst} {src} {bytes:?}");
    }
}

#[test]
fn fills_repeat_the_element() {
    let mut spec = arithmetic(
        1,
        1,
        vec![Instr::Fill { buf: 1, bits: 0xdead_0102 }, Instr::LoadInt { dst: 0, buf: 2, index: imm(0) }],
    );
    spec.variants[0].plan.buffers.extend([arena(DType::U16, 64, 9), arena(DType::I64, 64, 8)]);
    assert_eq!(run_with(&spec, &[], &[]).unwrap(), [[0x0102_0102_0102_0102]]);
}

#[test]
fn slots_swap_carried_state() {
    // Fibonacci: (a, b) = (b, a + b), the two values in two places that change roles.
    unsafe extern "C" fn next(args: *const KernelArgs) -> u32 {
        // SAFETY: called with two i64 buffers, the second of which is written.
        unsafe {
            let bufs = (*args).bufs;
            let (a, b) = ((*bufs).cast::<i64>(), (*bufs.add(1)).cast::<i64>());
            *b += *a;
        }
        status::OK
    }
    let plan = PlanSpec {
        regs: 2,
        slots: 3,
        arena_bytes: 128,
        buffers: vec![
            arena(DType::I64, 0, 8),
            arena(DType::I64, 64, 8),
            slot(0, DType::I64),
            slot(1, DType::I64),
            slot(2, DType::I64),
        ],
        instrs: vec![
            Instr::StoreInt { buf: 0, index: imm(0), value: imm(1) },
            Instr::StoreInt { buf: 1, index: imm(0), value: imm(0) },
            Instr::SetSlot { slot: 0, buf: 0 },
            Instr::SetSlot { slot: 1, buf: 1 },
            bin(BinOp::Lt, 1, reg(0), imm(10)),
            Instr::JumpIfZero { cond: reg(1), target: 12 },
            Instr::Dispatch { kernel: 0, bufs: vec![read(2), written(3)], scalars: vec![], tiles: None, scratch: None },
            Instr::SetSlot { slot: 2, buf: 2 },
            Instr::SetSlot { slot: 0, buf: 3 },
            Instr::SetSlot { slot: 1, buf: 4 },
            bin(BinOp::Add, 0, reg(0), imm(1)),
            Instr::Jump { target: 4 },
            Instr::Return,
        ],
        outputs: vec![OutputSpec { buf: 2, dims: vec![] }],
        messages: vec![],
    };
    let kernels = vec![KernelSpec { code: vec![], bufs: 2, scalars: 0, scratch: 0, tiled: false, work: 0 }];
    let mut spec = file(vec![], vec![tensor("y", DType::I64, vec![])], plan, kernels);
    // Ten steps from (1, 0): 1 2 3 5 8 13 21 34 55 89.
    assert_eq!(run_with(&spec, &[next], &[]).unwrap(), [[89]]);

    // Both slots the same memory: a written buffer overlaps another.
    spec.variants[0].plan.instrs[3] = Instr::SetSlot { slot: 1, buf: 0 };
    assert_eq!(run_with(&spec, &[next], &[]), Err(Error::Write { step: 6, buffer: 3 }));
    spec.variants[0].plan.instrs[3] = Instr::Set { dst: 0, value: imm(0) };
    assert_eq!(run_with(&spec, &[next], &[]), Err(Error::SlotUnset { step: 6 }));
}

#[test]
fn a_slot_that_holds_an_input_is_not_written() {
    let plan = PlanSpec {
        regs: 0,
        slots: 1,
        arena_bytes: 64,
        buffers: vec![input(0, DType::I64), slot(0, DType::I64)],
        instrs: vec![Instr::SetSlot { slot: 0, buf: 0 }, Instr::Fill { buf: 1, bits: 0 }, Instr::Return],
        outputs: vec![OutputSpec { buf: 1, dims: vec![] }],
        messages: vec![],
    };
    let scalar = |name| tensor(name, DType::I64, vec![]);
    let mut spec = file(vec![scalar("x")], vec![scalar("y")], plan, vec![]);
    let x = [TensorRef::new(&[5i64], &[])];
    assert_eq!(run_with(&spec, &[], &x), Err(Error::Write { step: 1, buffer: 1 }));
    spec.variants[0].plan.instrs.remove(1);
    assert_eq!(run_with(&spec, &[], &x), Err(Error::Output { output: 0 }));
}

/// Adds scalar 0 to `tile_lo..tile_hi` of buffer 0, using scratch.
unsafe extern "C" fn add_scalar(args: *const KernelArgs) -> u32 {
    // SAFETY: called with two i64 buffers, one scalar and scratch of 64 bytes.
    unsafe {
        let args = &*args;
        let (from, to) = ((*args.bufs).cast::<i64>(), (*args.bufs.add(1)).cast::<i64>());
        args.scratch.cast::<i64>().write(*args.scalars);
        if *args.scalars == 99 {
            return status::INDEX;
        }
        if *args.scalars == 98 {
            return 7;
        }
        for i in args.tile_lo..args.tile_hi {
            *to.add(i as usize) = *from.add(i as usize) + args.scratch.cast::<i64>().read();
        }
    }
    status::OK
}

#[test]
fn kernels_get_buffers_scalars_scratch_and_units() {
    let with = |scalar: i64, units: i64| {
        let plan = PlanSpec {
            regs: 1,
            slots: 0,
            arena_bytes: 256,
            buffers: vec![input(0, DType::I64), arena(DType::I64, 0, 24), arena(DType::U8, 64, 64)],
            instrs: vec![
                Instr::Fill { buf: 1, bits: 0 },
                Instr::Set { dst: 0, value: imm(units) },
                Instr::Dispatch {
                    kernel: 0,
                    bufs: vec![read(0), written(1)],
                    scalars: vec![imm(scalar)],
                    tiles: Some(reg(0)),
                    scratch: Some(2),
                },
                Instr::Return,
            ],
            outputs: vec![OutputSpec { buf: 1, dims: vec![imm(3)] }],
            messages: vec![],
        };
        let kernels = vec![KernelSpec { code: vec![], bufs: 2, scalars: 1, scratch: 64, tiled: true, work: 1 }];
        let dims = || vec![DimSpec::Fixed(3)];
        let spec = file(vec![tensor("x", DType::I64, dims())], vec![tensor("y", DType::I64, dims())], plan, kernels);
        run_with(&spec, &[add_scalar], &[TensorRef::new(&[1i64, 2, 3], &[3])])
    };
    assert_eq!(with(10, 3).unwrap(), [[11, 12, 13]]);
    assert_eq!(with(10, 2).unwrap(), [[11, 12, 0]]);
    assert_eq!(with(10, 0).unwrap(), [[0, 0, 0]]);
    assert_eq!(with(99, 3), Err(Error::DataIndex { step: 2, kernel: 0 }));
    assert_eq!(with(98, 3), Err(Error::Kernel { step: 2, kernel: 0, status: 7 }));
}

#[test]
fn the_arena_grows_to_what_the_run_reserves() {
    let mut spec = arithmetic(
        2,
        1,
        vec![
            Instr::LoadInt { dst: 1, buf: 1, index: imm(0) },
            Instr::Reserve { bytes: reg(1) },
            Instr::Fill { buf: 2, bits: 0x1717_1717_1717_1717 },
            Instr::LoadInt { dst: 0, buf: 2, index: imm(1) },
        ],
    );
    spec.inputs = vec![tensor("bytes", DType::I64, vec![])];
    let whole = BufferSpec { space: Space::Arena, dtype: DType::I64, offset: imm(0), bytes: Some(reg(1)) };
    spec.variants[0].plan.buffers.extend([input(0, DType::I64), whole]);
    let bytes = bytes(&spec);
    // SAFETY: nothing is called.
    let model =
        unsafe { ModelRef::from_bytes(&bytes, Trust::Unsigned, host(), WeightCheck::OnUse, Some(&[])) }.unwrap();
    let mut session = OwnedSession::new(model).unwrap();
    let run = |session: &mut OwnedSession<'_>, n: i64| {
        session.run(&[TensorRef::new(&[n], &[])])?;
        Ok::<i64, Error>(session.output(0)?.as_i64()?[0])
    };
    assert_eq!(run(&mut session, 100).unwrap(), 0x1717_1717_1717_1717);
    assert_eq!(session.arena_bytes(), 4096);
    assert_eq!(run(&mut session, 100_000).unwrap(), 0x1717_1717_1717_1717);
    assert_eq!(session.arena_bytes(), 100_000);
    assert_eq!(run(&mut session, -1), Err(Error::Overflow { step: 1 }));
    assert_eq!(run(&mut session, i64::MAX), Err(Error::OutOfMemory { bytes: i64::MAX as usize }));
    assert_eq!(session.output(0), Err(Error::NoOutput));
    assert_eq!(run(&mut session, 64).unwrap(), 0x1717_1717_1717_1717);
}

#[test]
fn inputs_are_compared_with_their_declarations() {
    let spec = {
        let inputs = vec![
            tensor("x", DType::F32, vec![symbol("batch", 1, 8), DimSpec::Fixed(3)]),
            tensor("y", DType::I64, vec![DimSpec::Any, symbol("batch", 1, 8)]),
        ];
        let plan = PlanSpec {
            regs: 0,
            slots: 0,
            arena_bytes: 0,
            buffers: vec![],
            instrs: vec![Instr::Return],
            outputs: vec![],
            messages: vec![],
        };
        file(inputs, vec![], plan, vec![])
    };
    let (x, y) = ([0.0f32; 6], [0i64; 4]);
    let good = [TensorRef::new(&x, &[2, 3]), TensorRef::new(&y, &[2, 2])];
    let run = |inputs: &[TensorRef<'_>]| run_with(&spec, &[], inputs).map(|_| ()).unwrap_err();
    assert_eq!(run_with(&spec, &[], &good), Ok(vec![]));
    assert_eq!(run_with(&spec, &[], &[good[0], TensorRef::new::<i64>(&[], &[0, 2])]), Ok(vec![]));
    assert_eq!(run(&good[..1]), Error::InputCount { expected: 2, got: 1 });
    assert_eq!(run(&[good[1], good[1]]), Error::InputType { input: 0, expected: DType::F32, got: DType::I64 });
    assert_eq!(run(&[TensorRef::new(&x, &[6]), good[1]]), Error::InputRank { input: 0, expected: 2, got: 1 });
    let wrong = run(&[TensorRef::new(&x, &[3, 2]), good[1]]);
    assert_eq!(wrong, Error::InputDim { input: 0, axis: 1, lo: 3, hi: 3, got: 2 });
    assert_eq!(wrong.to_string(), "input 0, axis 1: size 2 given, 3 expected");
    assert_eq!(
        run(&[TensorRef::new(&x, &[0, 3]), good[1]]).to_string(),
        "input 0, axis 0: size 0 given, 1 to 8 expected"
    );
    assert_eq!(
        run(&[TensorRef::new(&x, &[usize::MAX, 3]), good[1]]),
        Error::InputDim { input: 0, axis: 0, lo: 1, hi: 8, got: usize::MAX }
    );
    let wrong = run(&[good[0], TensorRef::new(&y, &[4, 1])]);
    assert_eq!(wrong.to_string(), "input 1, axis 1: size 1 given, 2 expected as in input 0, axis 0");
    assert_eq!(
        run(&[TensorRef::new(&x[..5], &[2, 3]), good[1]]),
        Error::InputBytes { input: 0, expected: 24, got: 20 }
    );
    let raw = [0u64; 4];
    // SAFETY: bytes of integers.
    let raw = unsafe { core::slice::from_raw_parts(raw.as_ptr().cast::<u8>().add(1), 24) };
    assert_eq!(run(&[TensorRef::from_bytes(DType::F32, &[2, 3], raw), good[1]]), Error::InputMisaligned { input: 0 });
    assert_eq!(
        run(&[good[0], TensorRef::new(&y, &[1 << 60, 2])]),
        Error::InputBytes { input: 1, expected: usize::MAX, got: 32 }
    );
}

#[test]
fn shapes_of_outputs_are_checked() {
    let with = |dims: [i64; 2]| {
        let mut spec = arithmetic(
            2,
            1,
            vec![Instr::Set { dst: 0, value: imm(dims[0]) }, Instr::Set { dst: 1, value: imm(dims[1]) }],
        );
        spec.outputs[0].dims = vec![DimSpec::Any, DimSpec::Any];
        spec.variants[0].plan.outputs[0].dims = vec![reg(0), reg(1)];
        run_with(&spec, &[], &[]).map(|o| o[0].len())
    };
    assert_eq!(with([1, 1]), Ok(1));
    assert_eq!(with([1, 0]), Ok(0));
    assert_eq!(with([0, i64::MAX]), Ok(0));
    let wrong = Err(Error::Output { output: 0 });
    for dims in [[1, 2], [-1, 1], [i64::MAX, i64::MAX], [0, -1]] {
        assert_eq!(with(dims), wrong, "{dims:?}");
    }
}

/// `y` = element `at` of the weights.
fn weight_reader() -> (FileSpec, Vec<i64>) {
    let count = 3 * LEAF / 8 + 5;
    let values: Vec<i64> = (0..count as i64).map(|i| i * 3).collect();
    let plan = PlanSpec {
        regs: 2,
        slots: 0,
        arena_bytes: 64,
        buffers: vec![
            input(0, DType::I64),
            BufferSpec { space: Space::Weights, dtype: DType::I64, offset: reg(1), bytes: Some(imm(8)) },
            arena(DType::I64, 0, 8),
            weights(DType::I64, (count as i64 - 1) * 8, 8),
        ],
        instrs: vec![
            Instr::LoadInt { dst: 0, buf: 0, index: imm(0) },
            bin(BinOp::Mul, 1, reg(0), imm(8)),
            Instr::LoadInt { dst: 0, buf: 1, index: imm(0) },
            Instr::StoreInt { buf: 2, index: imm(0), value: reg(0) },
            Instr::Return,
        ],
        outputs: vec![OutputSpec { buf: 2, dims: vec![] }, OutputSpec { buf: 3, dims: vec![] }],
        messages: vec![],
    };
    let scalar = |name| tensor(name, DType::I64, vec![]);
    let mut spec = file(vec![scalar("at")], vec![scalar("y"), scalar("last")], plan, vec![]);
    spec.weights = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    (spec, values)
}

#[test]
fn weights_are_verified_when_they_are_used() {
    let (spec, values) = weight_reader();
    let mut file = Aligned::new(&bytes(&spec)).bytes().to_vec();
    let start = file.len() - spec.weights.len();
    // Damage in the second block of four.
    file[start + LEAF + 100] ^= 4;
    let file = Aligned::new(&file);
    let open = |check| {
        // SAFETY: nothing is called.
        unsafe { ModelRef::from_bytes(file.bytes(), Trust::Unsigned, host(), check, Some(&[])) }
    };
    let model = open(WeightCheck::OnUse).unwrap();
    let mut session = OwnedSession::new(model).unwrap();
    let mut get = |at: i64| {
        session.run(&[TensorRef::new(&[at], &[])])?;
        Ok((session.output(0)?.as_i64()?[0], session.output(1)?.as_i64()?[0]))
    };
    let last = values.len() as i64 - 1;
    for at in [0, 5, LEAF as i64 / 8 - 1, LEAF as i64 / 4, last, 0] {
        assert_eq!(get(at), Ok((at * 3, last * 3)));
    }
    let damaged = Err(Error::Format(FormatError::Leaf(1)));
    assert_eq!(get(LEAF as i64 / 8), damaged);
    assert_eq!(get(LEAF as i64 / 8 + 1000), damaged);
    assert_eq!(get(last + 1), Err(Error::Buffer { step: 2, buffer: 1 }));

    assert_eq!(open(WeightCheck::Eager).unwrap_err(), Error::Format(FormatError::Leaf(1)));
    let mut session = OwnedSession::new(open(WeightCheck::Skip).unwrap()).unwrap();
    session.run(&[TensorRef::new(&[LEAF as i64 / 8], &[])]).unwrap();
}

#[test]
fn only_the_pinned_file_is_taken() {
    let bytes = bytes(&arithmetic(1, 1, vec![]));
    let root: [u8; 32] = bytes[96..128].try_into().unwrap();
    // SAFETY: nothing is called.
    let open = |trust| unsafe { ModelRef::from_bytes(&bytes, trust, host(), WeightCheck::OnUse, Some(&[])) };
    assert!(open(Trust::Pinned(root)).is_ok());
    assert_eq!(open(Trust::Pinned([0; 32])).unwrap_err(), Error::NotPinned);
}

#[test]
fn the_best_variant_that_the_cpu_can_run_is_taken() {
    let mut spec = arithmetic(1, 1, vec![]);
    let base = spec.variants[0].clone();
    let variant = |features, rank| VariantSpec { features, rank, ..base.clone() };
    spec.variants = vec![variant(0b011, 2), variant(0, 0), variant(0b111, 3), variant(0b001, 1)];
    let file = bytes(&spec);
    let open = |file: &[u8], host: Host| {
        // SAFETY: nothing is called.
        unsafe { ModelRef::from_bytes(file, Trust::Unsigned, host, WeightCheck::OnUse, Some(&[])) }.map(|m| m.variant())
    };
    let with = |features| Host::with_features(Features(features));
    assert_eq!(open(&file, with(0)), Ok(1));
    assert_eq!(open(&file, with(0b001)), Ok(3));
    assert_eq!(open(&file, with(0b010)), Ok(1));
    assert_eq!(open(&file, with(0b1011)), Ok(0));
    assert_eq!(open(&file, with(u64::MAX)), Ok(2));

    spec.variants.remove(1);
    let file = bytes(&spec);
    let arch = Arch::of_this_program().unwrap();
    let missing = Error::MissingFeatures { arch, missing: Features(1) };
    assert_eq!(open(&file, with(0b010)), Err(missing));
    let name = Features(1).display(arch).to_string();
    assert_eq!(missing.to_string(), format!("built for {name}, this CPU lacks it"));

    let other = if arch == Arch::Aarch64 { Arch::Riscv64 } else { Arch::Aarch64 };
    spec.variants.iter_mut().for_each(|v| v.arch = other.id());
    let file = bytes(&spec);
    let wrong = open(&file, with(u64::MAX)).unwrap_err();
    assert_eq!(wrong.to_string(), format!("built for {other}, this program runs on {arch}"));
    spec.variants.iter_mut().for_each(|v| (v.arch, v.abi) = (arch.id(), 77));
    assert_eq!(open(&bytes(&spec), with(u64::MAX)), Err(Error::WrongAbi));
}

#[test]
fn lent_memory_that_does_not_fit_is_refused() {
    use graphmend_runtime::Session;
    #[repr(align(64))]
    struct Memory([u8; 8192]);
    let bytes = bytes(&arithmetic(3, 1, vec![]));
    // SAFETY: nothing is called.
    let model =
        unsafe { ModelRef::from_bytes(&bytes, Trust::Unsigned, host(), WeightCheck::OnUse, Some(&[])) }.unwrap();
    let mut memory = Memory([0xff; 8192]);
    let mut state = [-1i64; 100];
    let words = model.state_words();
    assert!(Session::new(model, &mut memory.0[..4096], &mut state[..words]).is_ok());
    let error = |arena: &mut [u8], state: &mut [i64]| Session::new(model, arena, state).map(|_| ()).unwrap_err();
    assert_eq!(error(&mut memory.0[..4095], &mut state), Error::ArenaTooSmall { needed: 4096 });
    assert_eq!(error(&mut memory.0[8..], &mut state), Error::ArenaMisaligned);
    assert_eq!(error(&mut memory.0, &mut state[..words - 1]), Error::StateTooSmall { needed: words });
    let mut session = Session::new(model, &mut memory.0, &mut state).unwrap();
    assert_eq!(session.output(0), Err(Error::NoOutput));
    session.run(&[]).unwrap();
    assert_eq!(session.output(0).unwrap().as_i64().unwrap(), [0]);
    assert_eq!(session.output(1), Err(Error::NoOutput));
    assert!(session.output(0).unwrap().as_f32().is_err());
    assert!(session.run(&[TensorRef::new(&[0i64], &[])]).is_err());
    assert_eq!(session.output(0), Err(Error::NoOutput));
}

#[test]
fn a_kernel_without_code_or_function_is_refused() {
    let mut spec = doubling_model();
    spec.variants[0].kernels[0].code.clear();
    let bytes = Aligned::new(&bytes(&spec));
    // SAFETY: nothing is called.
    let open = |f| unsafe { ModelRef::from_bytes(bytes.bytes(), Trust::Unsigned, host(), WeightCheck::OnUse, f) };
    assert_eq!(open(None).unwrap_err(), Error::NoCode { kernel: 0 });
    assert_eq!(open(Some(&[])).unwrap_err(), Error::NoCode { kernel: 0 });
}
