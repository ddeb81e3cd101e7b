//! Kernel calls shared by threads.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use graphmend_runtime::{
    Error, Job, KernelArgs, KernelFn, ModelRef, OwnedSession, Pool, Session, Spread, TensorRef, Trust, WeightCheck,
};

/// `y[i] += x[i]` for the units of the call, by way of work space that other calls must leave alone. Fails at a unit
/// where `x` is negative, with that as its status.
unsafe extern "C" fn add(args: *const KernelArgs) -> u32 {
    // SAFETY: called with two i64 buffers and work space of at least 64 bytes.
    unsafe {
        let args = &*args;
        let buf = |k: usize| (*args.bufs.add(k)).cast::<i64>();
        for i in args.tile_lo..args.tile_hi {
            let x = *buf(0).add(i as usize);
            if x < 0 {
                return x.unsigned_abs() as u32;
            }
            for k in 0..8 {
                buf(2).add(k).write_volatile(x + k as i64);
            }
            for k in 0..8 {
                if buf(2).add(k).read_volatile() != x + k as i64 {
                    return 1000;
                }
            }
            *buf(1).add(i as usize) += x;
        }
    }
    0
}

/// `y[i] = sum of x[i]` over `calls` calls of a kernel with `n` units of `work` operations each. The size of the work
/// space is known only in the run.
fn adding(n: usize, calls: i64, work: u32) -> FileSpec {
    let plan = PlanSpec {
        regs: 3,
        slots: 0,
        arena_bytes: (n * 8).next_multiple_of(64) as u64 + 64,
        buffers: vec![
            input(0, DType::I64),
            arena(DType::I64, 64, n as i64 * 8),
            BufferSpec { space: Space::Arena, dtype: DType::I64, offset: imm(0), bytes: Some(reg(0)) },
        ],
        instrs: vec![
            Instr::Set { dst: 0, value: imm(64) },
            Instr::Fill { buf: 1, bits: 0 },
            Instr::Dispatch {
                kernel: 0,
                bufs: vec![read(0), written(1), Binding { buf: 2, access: Access::Work }],
                scalars: vec![],
                tiles: Some(imm(n as i64)),
                scratch: None,
            },
            bin(BinOp::Add, 1, reg(1), imm(1)),
            bin(BinOp::Lt, 2, reg(1), imm(calls)),
            Instr::JumpIfZero { cond: reg(2), target: 7 },
            Instr::Jump { target: 2 },
            Instr::Return,
        ],
        outputs: vec![OutputSpec { buf: 1, dims: vec![imm(n as i64)] }],
        messages: vec![],
    };
    let kernels = vec![KernelSpec { code: vec![], bufs: 3, scalars: 0, scratch: 0, tiled: true, work }];
    let dims = || vec![DimSpec::Fixed(n as u64)];
    file(vec![tensor("x", DType::I64, dims())], vec![tensor("y", DType::I64, dims())], plan, kernels)
}

fn model<'a>(bytes: &'a Aligned, kernels: &'a [KernelFn]) -> ModelRef<'a> {
    // SAFETY: the bytes live as long as the model, and the functions are its kernels.
    unsafe { ModelRef::from_bytes(bytes.bytes(), Trust::Unsigned, host(), WeightCheck::OnUse, Some(kernels)) }.unwrap()
}

fn run_and_check(session: &mut OwnedSession<'_>, n: usize, calls: i64) {
    let x: Vec<i64> = (0..n as i64).collect();
    session.run(&[TensorRef::new(&x, &[n])]).unwrap();
    let output = session.output(0).unwrap();
    let y = output.as_slice::<i64>().unwrap();
    assert!(y.iter().zip(&x).all(|(y, x)| *y == x * calls), "{y:?}");
}

/// Operations for which the pool wakes its threads, however few units there are.
const MUCH: u32 = 1 << 20;

#[test]
fn every_unit_is_computed_once() {
    for threads in [0, 1, 2, 3, 9] {
        for n in [1, 2, 3, 64, 1000, 4097] {
            let bytes = Aligned::new(&bytes(&adding(n, 50, MUCH)));
            let mut session = OwnedSession::new(model(&bytes, &[add])).unwrap().threads(threads).unwrap();
            for _ in 0..3 {
                run_and_check(&mut session, n, 50);
            }
        }
    }
}

#[test]
fn many_small_calls_follow_one_another() {
    for work in [0, 1, 300, 1 << 12] {
        let bytes = Aligned::new(&bytes(&adding(40, 5000, work)));
        let mut session = OwnedSession::new(model(&bytes, &[add])).unwrap().threads(3).unwrap();
        run_and_check(&mut session, 40, 5000);
    }
}

#[test]
fn sessions_on_several_threads_share_a_pool() {
    let bytes = Aligned::new(&bytes(&adding(100, 300, MUCH)));
    let pool = Pool::new(4).unwrap();
    assert_eq!(pool.threads(), 4);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let session = OwnedSession::new(model(&bytes, &[add])).unwrap();
                let mut session = session.pool(Arc::clone(&pool)).unwrap();
                for _ in 0..20 {
                    run_and_check(&mut session, 100, 300);
                }
            });
        }
    });
    let mut session = OwnedSession::new(model(&bytes, &[add])).unwrap().pool(pool).unwrap();
    run_and_check(&mut session, 100, 300);
}

#[test]
fn a_failed_unit_ends_the_run_and_not_the_pool() {
    let n = 500;
    let bytes = Aligned::new(&bytes(&adding(n, 3, MUCH)));
    let mut session = OwnedSession::new(model(&bytes, &[add])).unwrap().threads(3).unwrap();
    for at in [0, 250, 499] {
        for (status, error) in
            [(1, Error::DataIndex { step: 2, kernel: 0 }), (7, Error::Kernel { step: 2, kernel: 0, status: 7 })]
        {
            let mut x = vec![5i64; n];
            x[at] = -status;
            assert_eq!(session.run(&[TensorRef::new(&x, &[n])]), Err(error));
            assert!(session.output(0).is_err());
            run_and_check(&mut session, n, 3);
        }
    }
}

/// Calls that were inside of [`meet`] at one time.
static MET: AtomicUsize = AtomicUsize::new(0);

/// Waits until another thread has come, or for very long.
unsafe extern "C" fn meet(_: *const KernelArgs) -> u32 {
    MET.fetch_add(1, Ordering::SeqCst);
    let begin = Instant::now();
    while MET.load(Ordering::SeqCst) < 2 && begin.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    0
}

#[test]
fn a_large_call_wakes_a_second_thread() {
    let bytes = Aligned::new(&bytes(&adding(2, 1, MUCH)));
    let mut session = OwnedSession::new(model(&bytes, &[meet])).unwrap().threads(2).unwrap();
    // The worker sleeps by now, mostly; it must come either way.
    std::thread::sleep(Duration::from_millis(2));
    session.run(&[TensorRef::new(&[1i64, 2], &[2])]).unwrap();
    assert_eq!(MET.load(Ordering::SeqCst), 2, "each of the two units waited for the other");
}

#[test]
fn pools_end_asleep_and_awake() {
    let bytes = Aligned::new(&bytes(&adding(64, 1, MUCH)));
    for pause in [0, 5] {
        for _ in 0..20 {
            drop(Pool::new(4).unwrap());
            let mut session = OwnedSession::new(model(&bytes, &[add])).unwrap().threads(4).unwrap();
            run_and_check(&mut session, 64, 1);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }
}

#[test]
fn more_threads_than_can_be_had_are_refused() {
    assert_eq!(Pool::new(257).unwrap_err(), Error::Threads { wanted: 257 });
    assert!(Pool::new(0).unwrap().threads() >= 1);
}

/// Two threads, each with a fixed half.
#[derive(Debug)]
struct Halves;

// SAFETY: the halves are all units, and `scope` waits for both.
unsafe impl Spread for Halves {
    fn spread(&self, job: &Job<'_>) -> u32 {
        let half = job.units() / 2;
        std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                let mut memory = Aligned::new(&vec![0; job.lane_bytes()]);
                let mut lane = job.lane(memory.bytes_mut()).unwrap();
                assert!(job.lane(&mut []).is_none(), "no work space without memory");
                // SAFETY: the upper half, within `spread`.
                unsafe { lane.call(half, job.units()) }
            });
            // SAFETY: the only such lane; the lower half, within `spread`.
            let own = unsafe { job.own_lane().call(0, half) };
            own.max(other.join().unwrap())
        })
    }
}

#[test]
fn lent_sessions_take_a_spread_of_the_callers_own() {
    let bytes = Aligned::new(&bytes(&adding(30, 4, 1)));
    let model = model(&bytes, &[add]);
    let mut arena = Aligned::new(&vec![0; model.arena_bytes()]);
    let mut state = vec![0; model.state_words()];
    let mut session = Session::new(model, arena.bytes_mut(), &mut state).unwrap();
    session.set_spread(&Halves);
    let x: Vec<i64> = (0..30).collect();
    session.run(&[TensorRef::new(&x, &[30])]).unwrap();
    let output = session.output(0).unwrap();
    assert!(output.as_slice::<i64>().unwrap().iter().zip(&x).all(|(y, x)| *y == x * 4));
}
