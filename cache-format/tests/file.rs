//! The file as a whole: what is written is read back, and no change of it goes unseen.

use graphmend_cache_format::file::{File, HEADER, Index, SECTION};
use graphmend_cache_format::meta::{Debug, Formula, Meta, Term, Work};
use graphmend_cache_format::read::read;
use graphmend_cache_format::spec::*;
use graphmend_cache_format::text::plan_text;
use graphmend_cache_format::write::{WriteError, write};
use graphmend_cache_format::{FormatError, LEAF};

fn buffer(space: Space, dtype: DType, offset: Val, bytes: Option<Val>) -> BufferSpec {
    BufferSpec { space, dtype, offset, bytes }
}

fn imm(x: i64) -> Val {
    Val::Imm(x)
}

/// Every instruction, every kind of buffer, two variants that share the weights.
fn sample(page: u32, weights: usize) -> FileSpec {
    let symbol = |name: &str| DimSpec::Symbol { name: name.into(), min: 1, max: 512 };
    let write = |buf| Binding { buf, access: Access::Write };
    let read = |buf| Binding { buf, access: Access::Read };
    let work = |buf| Binding { buf, access: Access::Work };
    let plan = PlanSpec {
        regs: 4,
        slots: 1,
        arena_bytes: 1024,
        buffers: vec![
            buffer(Space::Input(0), DType::F32, imm(0), None),
            buffer(Space::Weights, DType::F32, imm(0), Some(imm(16))),
            buffer(Space::Arena, DType::F32, imm(0), Some(imm(64))),
            buffer(Space::Arena, DType::I64, Val::Reg(1), Some(Val::Reg(0))),
            buffer(Space::Slot(0), DType::F32, imm(4), None),
            buffer(Space::Arena, DType::U8, imm(512), Some(imm(256))),
            buffer(Space::Arena, DType::I64, imm(256), Some(imm(8))),
        ],
        instrs: vec![
            Instr::InputDim { dst: 0, input: 0, axis: 1 },
            Instr::Bin { op: BinOp::CeilDiv, dst: 1, a: Val::Reg(0), b: imm(-3) },
            Instr::Set { dst: 2, value: imm(i64::MIN) },
            Instr::Select { dst: 3, cond: Val::Reg(2), a: imm(1), b: Val::Reg(0) },
            Instr::StoreInt { buf: 6, index: imm(0), value: Val::Reg(3) },
            Instr::LoadInt { dst: 3, buf: 6, index: imm(0) },
            Instr::Reserve { bytes: Val::Reg(3) },
            Instr::Check { cond: Val::Reg(3), message: 1 },
            Instr::SetSlot { slot: 0, buf: 2 },
            Instr::JumpIfZero { cond: Val::Reg(3), target: 11 },
            Instr::Dispatch {
                kernel: 0,
                bufs: vec![read(0), read(1), write(2)],
                scalars: vec![Val::Reg(0), imm(7)],
                tiles: Some(imm(3)),
                scratch: Some(5),
            },
            Instr::Dispatch { kernel: 1, bufs: vec![work(4)], scalars: vec![], tiles: None, scratch: None },
            Instr::Copy { dst: 2, dst_offset: imm(4), src: 0, src_offset: Val::Reg(3), bytes: Some(imm(8)) },
            Instr::Fill { buf: 2, bits: 0x0123_4567_89ab_cdef },
            Instr::Jump { target: 15 },
            Instr::Return,
        ],
        outputs: vec![OutputSpec { buf: 2, dims: vec![imm(1), Val::Reg(0)] }],
        messages: vec!["first".into(), "größer als erlaubt".into()],
    };
    let kernels = vec![
        KernelSpec { code: vec![0x31, 0xc0, 0xc3], bufs: 3, scalars: 2, scratch: 100, tiled: true, work: 70000 },
        KernelSpec { code: vec![0x90, 0x31, 0xc0, 0xc3], bufs: 1, scalars: 0, scratch: 0, tiled: false, work: 0 },
        KernelSpec { code: vec![0x31, 0xc0, 0xc3], bufs: 0, scalars: 0, scratch: 0, tiled: false, work: 0 },
    ];
    let work = Work {
        step: 10,
        class: "matrix product".into(),
        nodes: vec!["Gemm_0".into(), "Relu_1".into()],
        ops: Some(Formula(vec![Term::Dim(0, 1), Term::Const(64), Term::Bin(BinOp::Mul as u16)])),
        read: Some(Formula(vec![Term::Const(1 << 20)])),
        written: None,
        units: Some(Formula(vec![Term::Dim(0, 0)])),
    };
    let debug = Debug {
        kernels: vec!["matmul".into()],
        buffers: vec!["x".into()],
        steps: vec![(10, "Gemm_0".into())],
        work: vec![work],
    };
    let variant = VariantSpec { arch: 1, abi: 2, rank: 3, features: 5, plan, kernels, debug };
    let mut second = variant.clone();
    second.features = 1 << 63;
    second.plan.arena_bytes = 2048;
    second.kernels[1].code = vec![0xc3];
    FileSpec {
        model_id: [7; 32],
        build_id: [8; 32],
        page,
        inputs: vec![
            TensorSpec {
                name: "x".into(),
                dtype: DType::F32,
                dims: vec![symbol("batch"), symbol("seq"), DimSpec::Fixed(3)],
            },
            TensorSpec {
                name: "mask".into(),
                dtype: DType::Bool,
                dims: vec![symbol("seq"), DimSpec::Any, symbol("batch")],
            },
            TensorSpec { name: "sr".into(), dtype: DType::I64, dims: vec![] },
        ],
        outputs: vec![TensorSpec { name: "y".into(), dtype: DType::F32, dims: vec![DimSpec::Fixed(1), symbol("seq")] }],
        variants: vec![variant, second],
        weights: (0..weights).map(|i| (i * 7 + i / 251) as u8).collect(),
        meta: Meta {
            producer: "test".into(),
            target: "rpi4".into(),
            options: vec![("dim".into(), "batch=1".into())],
            report_json: "{}".into(),
            ..Meta::default()
        },
    }
}

#[test]
fn what_is_written_is_read_back() {
    for weights in [16, LEAF, 2 * LEAF + 100] {
        for page in [64, 65536] {
            let spec = sample(page, weights);
            let bytes = write(&spec).unwrap();
            assert_eq!(bytes, write(&spec).unwrap());
            assert_eq!(read(&bytes).unwrap(), spec);
            let file = File::parse(&bytes).unwrap();
            assert_eq!(file.index().header().arena_bytes, 2048);
            assert_eq!(file.index().variants().count(), 2);
        }
    }
}

#[test]
fn a_file_without_weights_and_code_is_complete() {
    let mut spec = sample(65536, 0);
    spec.variants.truncate(1);
    let v = &mut spec.variants[0];
    v.kernels.iter_mut().for_each(|k| k.code.clear());
    v.plan.buffers[1].bytes = Some(imm(0));
    let bytes = write(&spec).unwrap();
    assert_eq!(read(&bytes).unwrap(), spec);
    assert!(bytes.len() < 4096, "nothing needs the page alignment: {}", bytes.len());
}

fn changes_are_seen(bytes: &[u8], positions: impl Iterator<Item = usize>) {
    let mut copy = bytes.to_vec();
    for i in positions {
        for bit in [0x01, 0x80, 0xff] {
            copy[i] ^= bit;
            assert!(File::parse(&copy).and_then(|f| f.verify()).is_err(), "byte {i} of {}", bytes.len());
            copy[i] ^= bit;
        }
    }
    assert!(File::parse(&copy).and_then(|f| f.verify()).is_ok());
}

#[test]
fn every_changed_byte_is_seen() {
    let bytes = write(&sample(256, 100)).unwrap();
    changes_are_seen(&bytes, 0..bytes.len());
}

#[test]
fn changes_in_every_block_of_weights_are_seen() {
    let bytes = write(&sample(256, LEAF + 40)).unwrap();
    let weights = bytes.len() - LEAF - 40;
    changes_are_seen(&bytes, [weights, weights + LEAF - 1, weights + LEAF, bytes.len() - 1].into_iter());
}

#[test]
fn every_other_length_is_seen() {
    let bytes = write(&sample(64, 100)).unwrap();
    for n in 0..bytes.len() {
        assert!(File::parse(&bytes[..n]).is_err(), "length {n}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(File::parse(&longer), Err(FormatError::Trailing { .. })));
    assert!(matches!(File::parse(&bytes[..200]), Err(FormatError::Truncated { have: 200, .. })));
}

#[test]
fn other_files_are_named_as_such() {
    assert_eq!(File::parse(b"").unwrap_err(), FormatError::NotACache);
    assert_eq!(File::parse(b"\x08\x07\x12\x07pytorch").unwrap_err(), FormatError::NotACache);
    let mut bytes = write(&sample(64, 100)).unwrap();
    bytes[8] = 3;
    let error = File::parse(&bytes).unwrap_err();
    assert_eq!(error, FormatError::Version { major: 3, minor: 0 });
    assert_eq!(error.to_string(), "file has format version 3.0, this program reads 2.x");
    bytes[8] = 2;
    bytes[16] = 4;
    assert_eq!(File::parse(&bytes).unwrap_err(), FormatError::RequiredFeatures(4));
}

/// Changes a byte of the tables and makes the root digest right again.
fn forged(bytes: &[u8], at: usize, to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes[96..128].fill(0);
    let needed = Index::bytes_needed(&bytes).unwrap_or(HEADER);
    let root = blake3::hash(&bytes[..needed]);
    bytes[96..128].copy_from_slice(root.as_bytes());
    bytes
}

#[test]
fn a_section_table_that_lies_is_refused_although_its_digest_fits() {
    let bytes = write(&sample(64, 100)).unwrap();
    assert!(File::parse(&forged(&bytes, 32, &[7])).is_ok());
    let entry = |i: usize, field: usize| HEADER + i * SECTION + field;
    let cases: [(usize, &[u8], &str); 9] = [
        (entry(0, 0), &[99], "unknown kind"),
        (entry(0, 2), &[9, 0], "there is no such variant"),
        (entry(1, 2), &[0xff, 0xff], "wrong variant for this kind of section"),
        (entry(0, 4), &[3], "the alignment is not a power of two up to 2^30"),
        (entry(0, 8), &[1], "the offset is not aligned"),
        (entry(0, 8), &[8, 0, 0, 0, 0, 0, 0, 0], "overlaps what is before it"),
        (entry(0, 16), &[0xff; 8], "too large"),
        (entry(0, 16), &[0, 0, 0, 0, 1], "ends behind the end of the file"),
        (entry(0, 24), &[1], "a reserved field is not zero"),
    ];
    for (at, to, expected) in cases {
        match File::parse(&forged(&bytes, at, to)) {
            Err(FormatError::Section { what, .. }) => assert_eq!(what, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    let forged = forged(&bytes, 128, &[0xff; 4]);
    assert!(matches!(File::parse(&forged), Err(FormatError::Header(_))));
}

fn refused(change: impl Fn(&mut FileSpec)) -> String {
    let mut spec = sample(64, 100);
    change(&mut spec);
    match write(&spec) {
        Err(WriteError::Invalid { error: FormatError::Record { table, index, what, .. }, .. }) => {
            format!("{table} {index}: {what}")
        }
        Err(e) => e.to_string(),
        Ok(_) => panic!("must be refused"),
    }
}

fn refused_instr(at: usize, instr: Instr) -> String {
    refused(|s| s.variants[0].plan.instrs[at] = instr.clone())
}

#[test]
fn invalid_plans_are_refused() {
    assert_eq!(refused_instr(14, Instr::Jump { target: 16 }), "instruction 14: jumps out of the plan");
    assert_eq!(
        refused_instr(0, Instr::JumpIfZero { cond: imm(0), target: 999 }),
        "instruction 0: jumps out of the plan"
    );
    assert_eq!(refused_instr(0, Instr::Set { dst: 4, value: imm(0) }), "instruction 0: no such register");
    assert_eq!(refused_instr(0, Instr::Set { dst: 0, value: Val::Reg(4) }), "instruction 0: no such operand");
    assert_eq!(refused_instr(0, Instr::InputDim { dst: 0, input: 3, axis: 0 }), "instruction 0: no such input");
    assert_eq!(refused_instr(0, Instr::InputDim { dst: 0, input: 0, axis: 3 }), "instruction 0: no such axis");
    assert_eq!(
        refused_instr(0, Instr::LoadInt { dst: 0, buf: 2, index: imm(0) }),
        "instruction 0: not an integer buffer"
    );
    assert_eq!(refused_instr(0, Instr::Fill { buf: 1, bits: 0 }), "instruction 0: writes to weights or an input");
    assert_eq!(refused_instr(0, Instr::Fill { buf: 99, bits: 0 }), "instruction 0: no such buffer");
    assert_eq!(refused_instr(0, Instr::SetSlot { slot: 1, buf: 0 }), "instruction 0: no such slot");
    assert_eq!(refused_instr(0, Instr::Check { cond: imm(0), message: 2 }), "instruction 0: no such message");
    assert_eq!(refused_instr(15, Instr::Reserve { bytes: imm(0) }), "header 0: the last instruction is not an end");
    assert_eq!(refused(|s| s.variants[0].plan.instrs.clear()), "header 0: the last instruction is not an end");
    assert_eq!(refused(|s| s.variants[0].plan.regs = u32::MAX), "header 0: too many registers or slots");
    assert_eq!(refused(|s| s.variants[0].plan.arena_bytes = u64::MAX), "header 0: the arena is too large");
}

#[test]
fn invalid_buffers_are_refused() {
    let with = |b: BufferSpec| refused(|s| s.variants[0].plan.buffers[2] = b);
    let arena = |offset, bytes| buffer(Space::Arena, DType::F32, offset, bytes);
    assert_eq!(with(arena(imm(1020), Some(imm(8)))), "buffer 2: not inside its space");
    assert_eq!(with(arena(imm(i64::MAX - 3), Some(imm(i64::MAX)))), "buffer 2: not inside its space");
    assert_eq!(with(arena(imm(-4), Some(imm(4)))), "buffer 2: negative offset");
    assert_eq!(with(arena(imm(0), Some(imm(-1)))), "buffer 2: negative size");
    assert_eq!(with(arena(imm(2), Some(imm(4)))), "buffer 2: not aligned to its element type");
    assert_eq!(with(arena(imm(0), None)), "buffer 2: a size is missing");
    assert_eq!(with(arena(Val::Reg(77), Some(imm(4)))), "buffer 2: no such operand");
    assert_eq!(with(buffer(Space::Input(3), DType::F32, imm(0), None)), "buffer 2: no such input");
    assert_eq!(with(buffer(Space::Slot(1), DType::F32, imm(0), None)), "buffer 2: no such slot");
    assert_eq!(with(buffer(Space::Weights, DType::F32, imm(88), Some(imm(16)))), "buffer 2: not inside its space");
}

/// Changes the parts of a dispatch: kernel, buffers, work units, scratch.
type Change<'a> = &'a dyn Fn(&mut u32, &mut Vec<Binding>, &mut Option<Val>, &mut Option<u32>);

#[test]
fn invalid_dispatches_are_refused() {
    let with = |change: Change<'_>| {
        refused(|s| {
            let Instr::Dispatch { kernel, bufs, tiles, scratch, .. } = &mut s.variants[0].plan.instrs[10] else {
                panic!()
            };
            change(kernel, bufs, tiles, scratch);
        })
    };
    assert_eq!(with(&|k, _, _, _| *k = 3), "there is no kernel 3");
    assert_eq!(with(&|k, _, _, _| *k = 1), "kernel 1 takes 1 buffers and 0 scalars, but gets 3 and 2");
    assert_eq!(with(&|_, b, _, _| b[0].buf = 2), "instruction 10: a written buffer overlaps another");
    assert_eq!(with(&|_, b, _, _| b[1].access = Access::Write), "instruction 10: writes to weights or an input");
    assert_eq!(with(&|_, b, _, _| b[2].buf = 5), "instruction 10: scratch overlaps a buffer");
    assert_eq!(
        with(&|_, _, t, _| *t = None),
        "instruction 10: work units for a kernel that has none, or none for one that has"
    );
    assert_eq!(with(&|_, _, _, s| *s = None), "instruction 10: scratch is missing");
    assert_eq!(with(&|_, _, _, s| *s = Some(6)), "instruction 10: scratch is too small");
    assert_eq!(with(&|_, _, _, s| *s = Some(1)), "instruction 10: scratch is not in the arena");
    let many = |s: &mut FileSpec| s.variants[0].kernels[2].bufs = u32::MAX;
    assert_eq!(refused(many), "kernel 2: too many buffers or scalars");
    let untiled = |s: &mut FileSpec| s.variants[0].kernels[1].work = 1;
    assert_eq!(refused(untiled), "kernel 1: work units of a kernel that has none");
    assert!(refused(|s| s.variants[0].kernels[0].work = 1 << 31).contains("2³¹"));
    assert_eq!(with(&|_, b, _, _| b[0].buf = 1 << 30), "there is no buffer 1073741824");
}

#[test]
fn invalid_interfaces_are_refused() {
    let out = |change: &dyn Fn(&mut OutputSpec)| refused(|s| change(&mut s.variants[0].plan.outputs[0]));
    assert_eq!(out(&|o| o.buf = 3), "output 0: not of the declared element type");
    assert_eq!(out(&|o| o.buf = 0), "output 0: lies in an input");
    assert_eq!(out(&|o| o.dims.clear()), "output 0 has 0 dimensions, but is declared with 2");
    assert_eq!(
        refused(|s| s.variants[0].plan.outputs.clear()),
        "header 0: the number of outputs is not that of the declaration"
    );
    let bounds = DimSpec::Symbol { name: "seq".into(), min: 2, max: 512 };
    let change = |s: &mut FileSpec| s.inputs[1].dims[0] = bounds.clone();
    assert_eq!(refused(change), "symbol seq has different bounds in different places");
    assert!(refused(|s| s.inputs[0].dims = vec![DimSpec::Fixed(1); 33]).contains("rank 33"));
    assert!(refused(|s| s.variants.clear()).contains("variants"));
    assert!(refused(|s| s.page = 100).contains("page"));
}

#[test]
fn the_text_form_shows_all() {
    let spec = sample(64, 100);
    let v = &spec.variants[0];
    let expected = "\
plan regs 4 slots 1 arena 1024
  b0: f32 input0[0..]                              ; x
  b1: f32 weights[0..+16]
  b2: f32 arena[0..+64]
  b3: i64 arena[r1..+r0]
  b4: f32 slot0[4..]
  b5: u8 arena[512..+256]
  b6: i64 arena[256..+8]
  0    r0 = dim input0 axis 1
  1    r1 = ceildiv r0 -3
  2    r2 = -9223372036854775808
  3    r3 = select r2 1 r0
  4    b6[0] = r3
  5    r3 = b6[0]
  6    reserve r3
  7    check r3 else m1
  8    slot0 = b2
  9    unless r3 jump 11
  10   k0(b0, b1, b2*; r0, 7) tiles 3 scratch b5   ; matmul · Gemm_0
  11   k1(b4~)
  12   copy b2[4..] = b0[r3..+8]
  13   fill b2 = 0x123456789abcdef
  14   jump 15
  15   return
  out0: b2 [1, r0]
  m0: \"first\"
  m1: \"größer als erlaubt\"
";
    assert_eq!(plan_text(&v.plan, &v.debug), expected);
}
