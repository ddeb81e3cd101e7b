//! Threads that share the work units of kernel calls.
//!
//! A pool of `n` threads has `n - 1` workers; the thread that runs a plan is the other one. It *posts* a call, takes
//! chunks of its units like everybody, *closes* the call when none are left, and waits for the workers that are still
//! inside. A worker that is late (asleep, or not scheduled) finds the call closed and is not waited for.
//! Workers look out for the next call for [`SPIN`], for kernels follow one another quickly, and then sleep.
//!
//! Each thread begins with a share of the units that is its own, the same part of each call, for neighbouring units mostly
//! write neighbouring memory and the next kernel reads it in that order: it finds much of it in its own cache. Then it
//! takes what is left of the others' shares, so that threads end together even if some are slower or came late.
//!
//! The pool is the program's own, not one that the caller lends (rayon's, say): what is shared here takes microseconds, so
//! that the way from one call to the next must be a few loads and stores, and a general pool has queues, boxed closures
//! and other work in between.
//!
//! **No oversubscription.** Sessions that run at one time count as threads of the pool they share: a pool of 4 with 3
//! running sessions has one worker to give, which helps the one call that is posted. Calls that find the pool taken, and
//! calls that are too small, run on their own thread at once; nobody ever waits for a pool.
//!
//! # Orderings
//!
//! All is in `state`: `OPEN` and an epoch say which call may be joined, the low bits count workers inside.
//! - *Post*: the call's fields are written while nobody is inside and nobody can join, then `state` is stored (release).
//!   A worker joins by a compare-exchange of exactly that value (acquire), so it sees the fields, and all that the plan
//!   computed before. Other workers' joins in between are read-modify-writes and continue the release sequence.
//! - *Leave*: a subtraction (release); the closing thread reads the count as 0 (acquire), so it sees what they computed.
//! - *Sleep*: a worker counts itself in `sleepers`, then looks at `state` once more; posting stores `state`, then looks at
//!   `sleepers`. Both are sequentially consistent, so one of them sees the other. The worker does this holding `door`,
//!   which it gives up only in `wait`, and who saw a sleeper takes `door` before `notify`: no wake-up is lost.
//! - The counters of units are relaxed: they only divide them. What they compute is ordered by joining and leaving.

use core::cell::UnsafeCell;
use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicUsize};
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;
use std::vec::Vec;

use graphmend_cache_format::ARENA_ALIGN;

use crate::spread::{Job, Lane, Spread};
use crate::{Error, ModelRef};

/// How long a worker looks out for the next call before it sleeps. Waking a sleeper takes about as long.
const SPIN: Duration = Duration::from_micros(50);
/// How long the posting thread looks for workers to leave before it sleeps: chunks at the end are small, so it is
/// mostly a few microseconds, unless the worker's core was taken away.
const PATIENCE: Duration = Duration::from_micros(100);
/// Operations of a call (2 to 10 in a nanosecond) from which on it is posted to workers that look out for it.
const WORTH_SHARING: u64 = 1 << 15;
/// Operations of a call for which sleepers are woken.
const WORTH_WAKING: u64 = 1 << 18;
/// Operations of the smallest chunk: at the end threads wait for each other no longer than these take.
const LEAST_CHUNK: i64 = 1 << 13;
/// Chunks of more units than this have a multiple of it, so that vectors along units stay whole.
const ROUND: i64 = 64;
/// Most threads.
const MOST: usize = 256;

/// Workers inside: the low bits of `state`.
const COUNT: usize = 0xfff;
/// The posting thread sleeps until the count is 0.
const WAITING: usize = 1 << 12;
/// The call may be joined.
const OPEN: usize = 1 << 13;
/// The pool ends.
const STOP: usize = 1 << 14;
/// The number of the call, in the high bits. It may wrap around: it only keeps a worker from joining a call twice.
const EPOCH: usize = 1 << 15;

/// Threads that several sessions may share.
///
/// Each session that runs counts as one of the threads. Results do not depend on the number of threads.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Work space of the workers. Whoever holds it may post.
    lanes: Mutex<Lanes>,
    /// Sessions that are running.
    running: AtomicUsize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Pool {
    /// Makes a pool of `threads`, the calling one included: `threads - 1` are started. 0 stands for as many as this
    /// process has processors for.
    ///
    /// # Errors
    /// [`Error::Threads`] if the system does not give that many, or more than 256 are asked for.
    pub fn new(threads: usize) -> Result<Arc<Pool>, Error> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST),
            n => n,
        };
        let fail = Error::Threads { wanted: threads };
        if threads > MOST {
            return Err(fail);
        }
        let shared = Arc::new(Shared::new(threads));
        let mut pool =
            Pool { shared, workers: Vec::new(), lanes: Mutex::new(Lanes::default()), running: AtomicUsize::new(0) };
        for number in 0..threads - 1 {
            let shared = Arc::clone(&pool.shared);
            let worker = Builder::new().name("graphmend".into()).spawn(move || shared.work(number));
            // Those that were started end when `pool` is dropped.
            pool.workers.push(worker.map_err(|_| fail)?);
        }
        Ok(Arc::new(pool))
    }

    /// Number of threads, with the one that calls.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Allocates the work space that the workers need for a model's calls, as far as it is known before a run.
    pub(crate) fn reserve(&self, model: &ModelRef<'_>) -> Result<(), Error> {
        let bytes = model.lane_bytes();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if lanes.grow(self.workers.len(), bytes) { Ok(()) } else { Err(Error::OutOfMemory { bytes }) }
    }

    /// Counts a run until the result is dropped.
    pub(crate) fn enter(&self) -> Running<'_> {
        self.running.fetch_add(1, Relaxed);
        Running(self)
    }
}

/// A run that goes on.
pub(crate) struct Running<'p>(&'p Pool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nobody posts now: posting borrows the pool. A call cannot be open.
        self.shared.state.fetch_or(STOP, SeqCst);
        self.shared.wake(usize::MAX);
        for worker in self.workers.drain(..) {
            // It does not panic: it calls nothing that does.
            let _ = worker.join();
        }
    }
}

// SAFETY: `spread` returns after `close`, which returns when no worker is inside of the call. Units are given out by
// one counter, each once; all have been unless a status other than 0 has ended it. Leaving and closing order what was
// computed before what follows.
unsafe impl Spread for Pool {
    fn spread(&self, job: &Job<'_>) -> u32 {
        let units = job.units();
        let work = u64::try_from(units).unwrap_or(0).saturating_mul(job.unit_work().max(1).into());
        // Sessions beside this one use a thread each.
        let others = self.running.load(Relaxed).saturating_sub(1);
        let idle = self.workers.len().saturating_sub(others);
        let helpers = idle.min(usize::try_from(units - 1).unwrap_or(usize::MAX));
        let asleep = self.shared.sleepers.load(Relaxed) >= self.workers.len();
        let least = if asleep { WORTH_WAKING } else { WORTH_SHARING };
        if helpers > 0
            && work >= least
            && let Some(mut lanes) = self.free()
        {
            let need = job.lane_bytes();
            // Grows only for sizes that just this run knows.
            if lanes.grow(self.workers.len(), need) {
                return self.share(job, &mut lanes, helpers, work >= WORTH_WAKING);
            }
        }
        // SAFETY: the one lane, and one call for all units.
        unsafe { job.own_lane().call(0, units) }
    }
}

impl Pool {
    /// The right to post, if nobody else has it.
    fn free(&self) -> Option<MutexGuard<'_, Lanes>> {
        match self.lanes.try_lock() {
            Ok(lanes) => Some(lanes),
            Err(TryLockError::Poisoned(lanes)) => Some(lanes.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn share(&self, job: &Job<'_>, lanes: &mut Lanes, helpers: usize, wake: bool) -> u32 {
        let shared = &*self.shared;
        let units = job.units();
        let (start, stride) = lanes.memory();
        let grain = (LEAST_CHUNK / i64::from(job.unit_work().max(1))).max(1);
        let threads = helpers + 1;
        let call = Call { job: core::ptr::from_ref(job).cast(), start, stride, units, grain, threads };
        // SAFETY: the last call was closed, so nobody is inside, and none can join until `state` is stored. `lanes` is
        // held, so nobody else posts.
        unsafe { *shared.call.get() = call };
        for (share, next) in shared.next.iter().take(threads).enumerate() {
            next.0.store(call.first_of(share) as usize, Relaxed);
        }
        shared.status.store(0, Relaxed);
        shared.limit.store(helpers, Relaxed);
        let epoch = (shared.state.load(Relaxed) / EPOCH).wrapping_add(1).wrapping_mul(EPOCH);
        shared.state.store(epoch | OPEN, SeqCst);
        if wake {
            shared.wake(helpers);
        }
        // SAFETY: the one lane of this thread. `lanes` keeps every other session of the pool out; one session runs one
        // plan at a time.
        shared.take(&call, 0, &mut unsafe { job.own_lane() });
        shared.close();
        shared.status.load(Relaxed)
    }
}

/// What the threads look at.
struct Shared {
    state: AtomicUsize,
    call: UnsafeCell<Call>,
    /// Most workers inside of the call.
    limit: AtomicUsize,
    status: AtomicU32,
    /// First unit of each share that nobody has taken.
    next: Vec<Apart>,
    sleepers: AtomicUsize,
    door: Mutex<()>,
    /// For workers: a call is posted, or the pool ends.
    posted: Condvar,
    /// For the posting thread: the last worker has left.
    left: Condvar,
}

/// A counter on a cache line of its own: it changes while others look at `state`.
#[repr(align(128))]
struct Apart(AtomicUsize);

/// A posted call.
#[derive(Clone, Copy)]
struct Call {
    /// Stays until the call is closed.
    job: *const Job<'static>,
    /// Work space of worker 0, and its distance to the next one's.
    start: *mut u8,
    stride: usize,
    units: i64,
    /// Least units of a chunk.
    grain: i64,
    /// Number of shares.
    threads: usize,
}

impl Call {
    /// First unit of a share, a multiple of [`ROUND`] where shares are large.
    fn first_of(&self, share: usize) -> i64 {
        if share >= self.threads {
            return self.units;
        }
        // Sizes of memory and of pools are such that this fits.
        let first = (self.units as i128 * share as i128 / self.threads as i128) as i64;
        if self.units / self.threads as i64 > ROUND { first - first % ROUND } else { first }
    }
}

// SAFETY: `call` is written only by who holds `lanes`, while nobody is inside, and read only by those inside. The
// memory behind its pointers is used as `Spread` and `Lanes` say.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new(threads: usize) -> Shared {
        let none: *mut u8 = core::ptr::null_mut();
        let call = Call { job: none.cast(), start: none, stride: 0, units: 0, grain: 1, threads: 1 };
        Shared {
            state: AtomicUsize::new(0),
            call: UnsafeCell::new(call),
            limit: AtomicUsize::new(0),
            status: AtomicU32::new(0),
            next: (0..threads).map(|_| Apart(AtomicUsize::new(0))).collect(),
            sleepers: AtomicUsize::new(0),
            door: Mutex::new(()),
            posted: Condvar::new(),
            left: Condvar::new(),
        }
    }
}

impl Shared {
    /// Takes and computes chunks until none are left, or one fails: first of share `own`, then of the following ones.
    fn take(&self, call: &Call, own: usize, lane: &mut Lane<'_>) {
        for share in (own..call.threads).chain(0..own) {
            let Some(Apart(next)) = self.next.get(share) else { return };
            let end = call.first_of(share + 1);
            let mut at = next.load(Relaxed);
            loop {
                let left = end - at as i64;
                if left <= 0 {
                    break;
                }
                // Few calls: threads end together even so, for the last chunks are small.
                let mut count = (left / 2).max(call.grain);
                if count > ROUND {
                    count -= count % ROUND;
                }
                let to = at as i64 + count.min(left);
                match next.compare_exchange_weak(at, to as usize, Relaxed, Relaxed) {
                    Err(now) => at = now,
                    Ok(from) => {
                        // SAFETY: inside of the call's units, and taken by this thread alone. The call is open, or it
                        // waits until this thread leaves.
                        let status = unsafe { lane.call(from as i64, to) };
                        if status != 0 {
                            return self.fail(call, status);
                        }
                        at = next.load(Relaxed);
                    }
                }
            }
        }
    }

    /// Notes a failure; units that nobody has taken are left out.
    fn fail(&self, call: &Call, status: u32) {
        self.status.store(status, Relaxed);
        for next in self.next.iter().take(call.threads) {
            next.0.store(call.units as usize, Relaxed);
        }
    }

    /// Lets nobody join any more and waits until all have left.
    fn close(&self) {
        let inside = |state: usize| state & COUNT > 0;
        if !inside(self.state.fetch_and(!OPEN, AcqRel)) {
            return;
        }
        if spin(PATIENCE, || !inside(self.state.load(Acquire))) {
            return;
        }
        let mut door = self.door();
        if !inside(self.state.fetch_or(WAITING, AcqRel)) {
            return;
        }
        while inside(self.state.load(Acquire)) {
            door = self.left.wait(door).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes up to `count` sleepers.
    fn wake(&self, count: usize) {
        let sleepers = self.sleepers.load(SeqCst);
        if sleepers == 0 {
            return;
        }
        drop(self.door());
        if count >= sleepers {
            self.posted.notify_all();
        } else {
            (0..count).for_each(|_| self.posted.notify_one());
        }
    }

    /// A worker's life.
    fn work(&self, number: usize) {
        let mut last = 0;
        loop {
            let state = self.next_call(last);
            if state & STOP != 0 {
                return;
            }
            if state & COUNT >= self.limit.load(Relaxed) {
                last = state / EPOCH;
                continue;
            }
            if self.state.compare_exchange(state, state + 1, Acquire, Relaxed).is_err() {
                // Another has joined or left, or the call is over: look again.
                continue;
            }
            last = state / EPOCH;
            self.inside(number);
            // The posting thread sleeps if it says so; it is woken by the last one.
            let before = self.state.fetch_sub(1, AcqRel);
            if before & WAITING != 0 && before & COUNT == 1 {
                drop(self.door());
                self.left.notify_one();
            }
        }
    }

    /// Helps with the call that was joined.
    fn inside(&self, number: usize) {
        // SAFETY: joined: the fields were written before and stay until this worker has left.
        let call = unsafe { *self.call.get() };
        // SAFETY: as above; the posting thread waits in `close` before what it borrows ends.
        let job: &Job<'_> = unsafe { &*call.job };
        let memory: &mut [u8] = match call.start.is_null() {
            true => &mut [],
            // SAFETY: each worker has a part of its own of the lanes, which the posting thread has borrowed exclusively
            // until it has closed the call.
            false => unsafe {
                core::slice::from_raw_parts_mut(call.start.wrapping_add(number * call.stride), call.stride)
            },
        };
        if let Some(mut lane) = job.lane(memory) {
            // The same share in each call, if all threads take part.
            self.take(&call, (number + 1) % call.threads, &mut lane);
        }
    }

    /// The state when there is another call than `last`, or the end.
    fn next_call(&self, last: usize) -> usize {
        let ready = |state: usize| state & STOP != 0 || (state & OPEN != 0 && state / EPOCH != last);
        let mut state = 0;
        let mut look = |order| {
            state = self.state.load(order);
            ready(state)
        };
        if !spin(SPIN, || look(Acquire)) {
            let mut door = self.door();
            self.sleepers.fetch_add(1, SeqCst);
            while !look(SeqCst) {
                door = self.posted.wait(door).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, Release);
        }
        state
    }
}

/// Asks `done` again and again for a while; whether it said yes.
fn spin(time: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        // Asking the clock takes about as long as these.
        for _ in 0..16 {
            if done() {
                return true;
            }
            core::hint::spin_loop();
        }
        if begin.elapsed() >= time {
            return false;
        }
    }
}

/// Work space of all workers, in equal parts.
#[derive(Default)]
struct Lanes {
    lines: Vec<Line>,
    /// Lines of each part.
    each: usize,
}

/// As much as work space is aligned to.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; ARENA_ALIGN],
}

const _: () = assert!(align_of::<Line>() == ARENA_ALIGN);

impl Lanes {
    /// Makes parts at least this large; whether there is memory for them.
    fn grow(&mut self, parts: usize, bytes: usize) -> bool {
        let each = bytes.div_ceil(ARENA_ALIGN);
        if each <= self.each {
            return true;
        }
        let Some(lines) = parts.checked_mul(each) else { return false };
        let mut fresh = Vec::new();
        if fresh.try_reserve_exact(lines).is_err() {
            return false;
        }
        fresh.resize(lines, Line { _bytes: [0; ARENA_ALIGN] });
        (self.lines, self.each) = (fresh, each);
        true
    }

    /// The first part, nothing if they are empty, and the bytes from one to the next.
    fn memory(&mut self) -> (*mut u8, usize) {
        let start = if self.lines.is_empty() { core::ptr::null_mut() } else { self.lines.as_mut_ptr().cast() };
        (start, self.each * ARENA_ALIGN)
    }
}
