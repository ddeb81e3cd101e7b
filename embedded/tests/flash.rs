//! Models in a simulated flash chip: commands, errors, runs.

#[allow(unreachable_pub, reason = "a module of this program alone")]
mod chip;

use chip::{Chip, Fault};
use embedded_hal_mock::eh1::digital::{Mock as PinMock, State, Transaction as PinTransaction};
use embedded_hal_mock::eh1::spi::{Mock as SpiMock, Transaction as SpiTransaction};
use graphmend_cache_format::file::{ALL_VARIANTS, SectionKind};
use graphmend_cache_format::meta::{Debug, Meta};
use graphmend_cache_format::spec::*;
use graphmend_cache_format::write::write;
use graphmend_cache_format::{DType, FormatError, LEAF, abi};
use graphmend_embedded_hal::{Error, FlashFile, FlashWeights, NorFlash, PinError, ReadCommand, RunPin};
use graphmend_runtime::{Code, Error as RunError, Host, KernelArgs, KernelFn, ModelRef, Session, TensorRef, Trust};
use graphmend_targets::{Arch, Features};

/// Elements of x and of each of the layers' weights.
const N: usize = 10_000;
const LAYERS: usize = 5;

/// `out[i] = a[i] + w[i]`, wrapping.
unsafe extern "C" fn add(args: *const KernelArgs) -> u32 {
    // SAFETY: called with two buffers of `N` elements that are read and one that is written, as the plan says.
    unsafe {
        let bufs = std::slice::from_raw_parts((*args).bufs, 3);
        for i in 0..N {
            let (a, w) = (bufs[0].cast::<i32>().add(i).read(), bufs[1].cast::<i32>().add(i).read());
            bufs[2].cast::<i32>().add(i).write(a.wrapping_add(w));
        }
    }
    0
}

const KERNELS: &[KernelFn] = &[add];

fn weight(k: usize) -> i32 {
    (k as i32).wrapping_mul(0x9e37_79b9_u32 as i32) ^ 0x5555
}

/// y = x + w0 + w1 + …: each layer a step.
fn file() -> Vec<u8> {
    let imm = |n: usize| Val::Imm(n as i64);
    let buffer = |space, offset| BufferSpec {
        space,
        dtype: DType::I32,
        offset: imm(offset),
        bytes: if matches!(space, Space::Input(_)) { None } else { Some(imm(N * 4)) },
    };
    let arena = |k: usize| buffer(Space::Arena, k * (N * 4).next_multiple_of(64));
    let mut buffers = vec![buffer(Space::Input(0), 0), arena(0), arena(1)];
    let mut instrs = vec![];
    for layer in 0..LAYERS {
        buffers.push(buffer(Space::Weights, layer * N * 4));
        let from = if layer == 0 { 0 } else { 1 + (layer as u32 + 1) % 2 };
        let bind = |buf, access| Binding { buf, access };
        instrs.push(Instr::Dispatch {
            kernel: 0,
            bufs: vec![
                bind(from, Access::Read),
                bind(3 + layer as u32, Access::Read),
                bind(1 + layer as u32 % 2, Access::Write),
            ],
            scalars: vec![],
            tiles: None,
            scratch: None,
        });
    }
    // An element of the weights is looked at by the plan itself.
    instrs.push(Instr::LoadInt { dst: 0, buf: 3, index: imm(7) });
    instrs.push(Instr::StoreInt { buf: 1, index: imm(0), value: Val::Reg(0) });
    instrs.push(Instr::Return);
    let plan = PlanSpec {
        regs: 1,
        slots: 0,
        arena_bytes: 2 * (N as u64 * 4).next_multiple_of(64),
        buffers,
        instrs,
        outputs: vec![OutputSpec { buf: 1, dims: vec![imm(N)] }],
        messages: vec![],
    };
    let tensor = |name: &str| TensorSpec { name: name.into(), dtype: DType::I32, dims: vec![DimSpec::Fixed(N as u64)] };
    let variant = VariantSpec {
        arch: Arch::of_this_program().unwrap().id(),
        abi: abi::id::OF_THIS_PROGRAM,
        rank: 0,
        features: 0,
        plan,
        kernels: vec![KernelSpec { code: vec![], bufs: 3, scalars: 0, scratch: 0, tiled: false, work: 0 }],
        debug: Debug::default(),
    };
    let spec = FileSpec {
        model_id: [1; 32],
        build_id: [2; 32],
        page: 4096,
        inputs: vec![tensor("x")],
        outputs: vec![tensor("y")],
        variants: vec![variant],
        weights: (0..LAYERS * N).flat_map(|k| weight(k).to_le_bytes()).collect(),
        meta: Meta { target: "test".into(), ..Meta::default() },
    };
    write(&spec).unwrap()
}

fn host() -> Host {
    Host::with_features(Features::NONE)
}

#[repr(align(64))]
struct Aligned<const BYTES: usize>([u8; BYTES]);

/// Loads and runs; x, and what the window may hold.
fn run<const WINDOW: usize>(file: &mut FlashFile<Chip>, x: &[i32]) -> Result<Vec<i32>, Error<Fault>> {
    let mut tables = [0; 4096];
    let loaded = file.load(&mut tables, Trust::Unsigned, host())?;
    // SAFETY: the kernels fit the plan.
    let model = unsafe { ModelRef::from_sections(loaded.sections, Code::Functions(KERNELS)) }?;
    let mut arena = Box::new(Aligned([0; 81_920]));
    let mut state = vec![0; model.state_words()];
    let mut window = Box::new(Aligned([0; WINDOW]));
    let mut marks = vec![0; FlashWeights::<Chip>::mark_bytes(&loaded)];
    let mut weights = FlashWeights::new(file, &loaded, &mut marks)?;
    let mut session = Session::new(model, &mut arena.0, &mut state)?;
    let input = [TensorRef::new(x, &[N])];
    for _ in 0..2 {
        if let Err(error) = session.run_streamed(&input, &mut weights, &mut window.0) {
            return Err(weights.failure().unwrap_or(Error::Model(error)));
        }
    }
    Ok(session.output(0)?.as_slice::<i32>()?.to_vec())
}

fn expected(x: &[i32]) -> Vec<i32> {
    let mut y: Vec<i32> = x.to_vec();
    for (k, i) in (0..LAYERS * N).zip((0..N).cycle()) {
        y[i] = y[i].wrapping_add(weight(k));
    }
    y[0] = weight(7);
    y
}

fn x() -> Vec<i32> {
    (0..N as i32).collect()
}

fn in_chip(size: u8, address: u32, file: &[u8]) -> FlashFile<Chip> {
    FlashFile::new(NorFlash::new(Chip::with([0xef, 0x40, size], address, file)).unwrap(), address)
}

#[test]
fn a_model_runs_with_the_weights_of_one_step_in_memory() {
    let bytes = file();
    assert!(bytes.len() > LAYERS * N * 4);
    // Three address bytes and four, at the end of the chip and elsewhere.
    for (size, address) in [(0x16, 0x1000), (0x16, (1 << 22) - bytes.len() as u32), (0x19, 0x1ff_0000 - 0x10_0000)] {
        for command in [ReadCommand::Plain, ReadCommand::Fast] {
            let mut flash = in_chip(size, address, &bytes).release();
            flash.set_command(command);
            let mut file = FlashFile::new(flash, address);
            // The weights of a step are 40000 bytes, those of all 200000.
            assert_eq!(run::<40_000>(&mut file, &x()).unwrap(), expected(&x()), "{size:#x} {address:#x} {command:?}");
        }
    }
}

#[test]
fn a_window_that_is_too_small_is_refused_with_what_is_needed() {
    let bytes = file();
    let mut file = in_chip(0x16, 0, &bytes);
    assert_eq!(run::<39_936>(&mut file, &x()), Err(Error::Model(RunError::WindowTooSmall { needed: 40_000 })));
    let mut tables = [0; 4096];
    let loaded = file.load(&mut tables, Trust::Unsigned, host()).unwrap();
    // SAFETY: the kernels fit the plan.
    let model = unsafe { ModelRef::from_sections(loaded.sections, Code::Functions(KERNELS)) }.unwrap();
    assert_eq!(model.window_bytes(), 40_000);
    // Without a source there are no weights.
    let (mut arena, mut state) = (Box::new(Aligned([0; 81_920])), vec![0; model.state_words()]);
    let mut session = Session::new(model, &mut arena.0, &mut state).unwrap();
    assert_eq!(session.run(&[TensorRef::new(&x(), &[N])]), Err(RunError::WeightsAbsent));
}

#[test]
fn lent_memory_that_is_too_small_is_refused() {
    let bytes = file();
    let mut file = in_chip(0x16, 0, &bytes);
    let mut whole = [0; 4096];
    let loaded = file.load(&mut whole, Trust::Unsigned, host()).unwrap();
    let Error::MemoryTooSmall { needed } =
        FlashWeights::new(&mut in_chip(0x16, 0, &bytes), &loaded, &mut []).unwrap_err()
    else {
        panic!("another error");
    };
    assert_eq!(needed, 1);
    let mut least = None;
    for len in 0..2048 {
        match file.load(&mut vec![0; len], Trust::Unsigned, host()) {
            Ok(_) => {
                least = Some(len);
                break;
            }
            Err(Error::MemoryTooSmall { .. }) => {}
            Err(other) => panic!("{len} bytes: {other}"),
        }
    }
    assert!(least.is_some_and(|n| n > 1000));
}

#[test]
fn every_flipped_bit_is_found() {
    let good = file();
    let leaves = {
        let file = graphmend_cache_format::file::File::parse(&good).unwrap();
        file.index().section(SectionKind::Leaves, ALL_VARIANTS).unwrap()
    };
    let mut buffer = [0; 1000];
    // Every byte of what is read first, then some of the weights and the bytes between sections.
    let tail = (2200..good.len()).step_by(4099);
    for at in (0..2200).chain(tail) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let mut file = in_chip(0x16, 0x2000, &bad);
        let mut memory = [0; 1024];
        let verified = match file.index(&mut memory) {
            Ok((index, _)) => file.verify(&index, &mut buffer),
            Err(error) => Err(error),
        };
        assert!(verified.is_err(), "byte {at}");
    }
    // The block of weights is named, by the run, too.
    let weights_at = good.len() - LAYERS * N * 4;
    let mut bad = good.clone();
    bad[weights_at + 2 * LEAF + 5] ^= 0x80;
    let mut file = in_chip(0x16, 0, &bad);
    let damaged = Err(FormatError::Leaf(2).into());
    assert_eq!(run::<40_000>(&mut file, &x()), damaged.map(|()| vec![]));
    let mut memory = [0; 1024];
    let (index, _) = file.index(&mut memory).unwrap();
    assert_eq!(file.verify(&index, &mut buffer), damaged);
    // Digests of the weights themselves.
    let mut bad = good.clone();
    bad[leaves.offset as usize + 1] ^= 1;
    let wrong = Err(FormatError::Digest(SectionKind::Leaves).into());
    assert_eq!(run::<40_000>(&mut in_chip(0x16, 0, &bad), &x()), wrong);
}

#[test]
fn a_file_is_verified_and_copied_through_a_small_buffer() {
    let bytes = file();
    for buffer in [1, 100, 4096, 300_000] {
        let mut file = in_chip(0x16, 0x12345, &bytes);
        let mut memory = [0; 1024];
        let (index, _) = file.index(&mut memory).unwrap();
        let mut buffer = vec![0; if buffer == 1 { 7 } else { buffer }];
        file.verify(&index, &mut buffer).unwrap();
        let mut copy = vec![0xaa; bytes.len() + 3];
        file.copy(&index, &mut copy, &mut buffer).unwrap();
        assert!(copy[..bytes.len()] == bytes, "the copy is the file");
        assert_eq!(copy[bytes.len()..], [0xaa; 3]);
        let small = file.copy(&index, &mut copy[..bytes.len() - 1], &mut buffer);
        assert_eq!(small, Err(Error::MemoryTooSmall { needed: bytes.len() }));
        assert_eq!(file.verify(&index, &mut []), Err(Error::MemoryTooSmall { needed: 1 }));
    }
}

#[test]
fn files_of_others_are_refused() {
    let bytes = file();
    let mut memory = [0; 4096];
    let mut file = in_chip(0x16, 0, &bytes);
    let pinned = Trust::Pinned([7; 32]);
    assert_eq!(file.load(&mut memory, pinned, host()).unwrap_err(), Error::Model(RunError::NotPinned));
    let other = Host { arch: Some(Arch::Riscv32), features: Features::NONE };
    let error = file.load(&mut memory, Trust::Unsigned, other).unwrap_err();
    assert!(matches!(error, Error::Model(RunError::WrongArch { .. })), "{error}");
    // Nothing was written there.
    let mut empty = in_chip(0x16, 0, &[]);
    let error = empty.load(&mut memory, Trust::Unsigned, host()).unwrap_err();
    assert_eq!(error, FormatError::NotACache.into());
    assert_eq!(error.to_string(), "not a GraphMend cache file");
}

#[test]
fn what_lies_behind_the_end_of_the_chip_is_not_its_beginning() {
    let bytes = file();
    // The simulated chip begins anew, as real ones do: the file's end would be read from its start.
    let address = (1 << 22) - bytes.len() as u32 + 1;
    let mut file = in_chip(0x16, address, &bytes);
    let error = file.load(&mut [0; 4096], Trust::Unsigned, host()).unwrap_err();
    assert_eq!(error, Error::OutOfRange { address, bytes: bytes.len() as u64, capacity: 1 << 22 });
    let mut flash = file.release();
    let mut byte = [0; 2];
    assert_eq!(
        flash.read((1 << 22) - 1, &mut byte),
        Err(Error::OutOfRange { address: (1 << 22) - 1, bytes: 2, capacity: 1 << 22 })
    );
    assert!(flash.read(u32::MAX, &mut byte).is_err());
    assert_eq!(flash.read(1 << 22, &mut []), Ok(()));
}

#[test]
fn chips_are_identified() {
    let id = |id| NorFlash::new(Chip::with(id, 0, &[]));
    for (answer, capacity) in [
        ([0xef, 0x40, 0x14], 1 << 20),
        ([0xc2, 0x20, 0x1a], 64 << 20),
        ([0x20, 0xba, 0x20], 64 << 20),
        ([0xef, 0x40, 0x21], 128 << 20),
    ] {
        assert_eq!(id(answer).unwrap().capacity(), capacity, "{answer:02x?}");
    }
    assert_eq!(id([0; 3]).unwrap_err(), Error::NoChip);
    assert_eq!(id([0xff; 3]).unwrap_err(), Error::NoChip);
    let unknown = id([0xbf, 0x26, 0x43]).unwrap_err();
    assert_eq!(unknown.to_string(), "the flash chip bf 26 43 does not say how large it is");
    let mut flash = NorFlash::with_capacity(Chip::with([0xbf, 0x26, 0x43], 0, b"x"), 8 << 20).unwrap();
    let mut byte = [0];
    flash.read(0, &mut byte).unwrap();
    assert_eq!((flash.capacity(), byte), (8 << 20, *b"x"));
}

#[test]
fn errors_of_the_bus_are_told() {
    let bytes = file();
    let mut file = in_chip(0x16, 0, &bytes);
    let mut chip = file.release().release();
    chip.fail_after = Some(10);
    file = FlashFile::new(NorFlash::new(chip).unwrap(), 0);
    assert_eq!(run::<40_000>(&mut file, &x()), Err(Error::Bus(Fault)));
}

/// What goes over the wires, to the byte.
#[test]
fn commands_are_those_of_the_data_sheets() {
    let command = |write: Vec<u8>, read: Vec<u8>| {
        [
            SpiTransaction::transaction_start(),
            SpiTransaction::write_vec(write),
            SpiTransaction::read_vec(read),
            SpiTransaction::transaction_end(),
        ]
    };
    for (size, plain, fast) in [
        (0x17, vec![0x03, 0x12, 0x34, 0x56], vec![0x0b, 0x12, 0x34, 0x56, 0]),
        (0x19, vec![0x13, 0, 0x12, 0x34, 0x56], vec![0x0c, 0, 0x12, 0x34, 0x56, 0]),
    ] {
        let expected: Vec<_> =
            [command(vec![0x9f], vec![0xef, 0x40, size]), command(fast, vec![1, 2]), command(plain, vec![3])].concat();
        let mut spi = SpiMock::new(&expected);
        let mut flash = NorFlash::new(spi.clone()).unwrap();
        let mut two = [0; 2];
        flash.read(0x12_3456, &mut two).unwrap();
        assert_eq!(two, [1, 2]);
        flash.set_command(ReadCommand::Plain);
        let mut one = [0];
        flash.read(0x12_3456, &mut one).unwrap();
        assert_eq!(one, [3]);
        spi.done();
    }
}

#[test]
fn the_pin_is_high_in_runs_alone() {
    let bytes = file();
    let mut tables = [0; 4096];
    let mut file = in_chip(0x16, 0, &bytes);
    let loaded = file.load(&mut tables, Trust::Unsigned, host()).unwrap();
    // SAFETY: the kernels fit the plan.
    let model = unsafe { ModelRef::from_sections(loaded.sections, Code::Functions(KERNELS)) }.unwrap();
    let (mut arena, mut state) = (Box::new(Aligned([0; 81_920])), vec![0; model.state_words()]);
    let mut session = Session::new(model, &mut arena.0, &mut state).unwrap();
    let states = [State::Low, State::High, State::Low, State::High, State::Low];
    let mut pin = PinMock::new(&states.map(PinTransaction::set));
    let mut run_pin = RunPin::new(pin.clone()).unwrap();
    let (mut window, mut marks) = (Box::new(Aligned([0; 40_000])), [0; 8]);
    let mut weights = FlashWeights::new(&mut file, &loaded, &mut marks).unwrap();
    let x = x();
    run_pin.run_streamed(&mut session, &[TensorRef::new(&x, &[N])], &mut weights, &mut window.0).unwrap();
    let failed = run_pin.run(&mut session, &[]);
    assert_eq!(failed, Err(PinError::Run(RunError::InputCount { expected: 1, got: 0 })));
    pin.done();
}
