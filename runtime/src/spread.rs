//! One kernel call, shared by several threads.
//!
//! The machine knows no threads: it hands a call whose work units may run side by side to a [`Spread`], which is a
//! `Pool` of threads with the feature `std`, or whatever a firmware has (a second core that waits for work).

use core::fmt;
use core::mem::{align_of, size_of};

use graphmend_cache_format::ARENA_ALIGN;
use graphmend_cache_format::abi::{KernelArgs, KernelFn};
use graphmend_cache_format::plan::Plan;

/// Several threads, or cores, that share the work units of one kernel call.
///
/// # Safety
///
/// When `spread` returns, no call of the job is under way. When it returns 0, every unit of the job has been computed.
/// The results of other threads are visible to the thread that called it.
pub unsafe trait Spread: fmt::Debug + Sync {
    /// Has all work units computed, each by one [`Lane`]. Gives 0, or what a call that failed returned; units may be left
    /// out then.
    fn spread(&self, job: &Job<'_>) -> u32;
}

/// A kernel call with more than one work unit, its buffers bound.
#[derive(Clone, Copy)]
pub struct Job<'j> {
    pub(crate) entry: KernelFn,
    pub(crate) plan: Plan<'j>,
    pub(crate) first_binding: u32,
    pub(crate) bufs: u32,
    /// Pointers of the buffers, and the bytes behind each; `bufs` of both.
    pub(crate) pointers: *const *mut u8,
    pub(crate) lens: *const i64,
    pub(crate) scalars: *const i64,
    pub(crate) units: i64,
    /// Operations of a work unit, about.
    pub(crate) unit_work: u32,
}

// SAFETY: the pointers are only read, and what they point to stays while the job exists. Who writes what behind them
// is the contract of `Lane::call`.
unsafe impl Sync for Job<'_> {}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("units", &self.units).field("unit_work", &self.unit_work).finish_non_exhaustive()
    }
}

impl Job<'_> {
    /// Number of work units, at least 2.
    pub fn units(&self) -> i64 {
        self.units
    }

    /// Operations of one work unit, about: instructions of a processor that computes 16 bytes with each.
    pub fn unit_work(&self) -> u32 {
        self.unit_work
    }

    /// Bytes that [`Job::lane`] takes.
    pub fn lane_bytes(&self) -> usize {
        lane_bytes(self.bufs, (0..self.bufs).filter_map(|i| self.work_space(i)))
    }

    /// A thread's way to call the kernel, with work space in `memory`, which starts at a multiple of [`ARENA_ALIGN`].
    /// Nothing if it has less than [`Job::lane_bytes`] or is not aligned.
    pub fn lane<'l>(&'l self, memory: &'l mut [u8]) -> Option<Lane<'l>> {
        let need = self.lane_bytes();
        if need == 0 {
            return Some(Lane { job: self, pointers: self.pointers });
        }
        let start = memory.as_mut_ptr();
        if memory.len() < need || !start.addr().is_multiple_of(ARENA_ALIGN) {
            return None;
        }
        const { assert!(align_of::<*mut u8>() <= ARENA_ALIGN) };
        let pointers = start.cast::<*mut u8>();
        let mut next = up(self.bufs as usize * size_of::<*mut u8>());
        for i in 0..self.bufs {
            // SAFETY: there are `bufs` pointers behind `pointers` of the job, and room for as many at the start of the
            // memory, which is aligned for them. The work spaces lie behind one another after that: `lane_bytes` is
            // their sum.
            unsafe {
                let mut pointer = self.pointers.add(i as usize).read();
                if let Some(bytes) = self.work_space(i) {
                    pointer = start.add(next);
                    next += up(bytes);
                }
                pointers.add(i as usize).write(pointer);
            }
        }
        Some(Lane { job: self, pointers })
    }

    /// The lane of the thread that runs the plan, with the session's own work space.
    ///
    /// # Safety
    ///
    /// There is at most one such lane in use at a time.
    pub unsafe fn own_lane(&self) -> Lane<'_> {
        Lane { job: self, pointers: self.pointers }
    }

    /// Bytes of buffer `i` if it is work space.
    fn work_space(&self, i: u32) -> Option<usize> {
        self.plan.binding(self.first_binding + i).filter(|b| b.work)?;
        // SAFETY: there are `bufs` lengths.
        usize::try_from(unsafe { self.lens.add(i as usize).read() }).ok()
    }
}

/// What one thread calls a kernel with.
#[derive(Debug)]
pub struct Lane<'l> {
    job: &'l Job<'l>,
    pointers: *const *mut u8,
}

impl Lane<'_> {
    /// Computes work units `lo..hi` and gives the kernel's status, 0 for success.
    ///
    /// # Safety
    ///
    /// `lo..hi` lies in `0..units`; no other call of the job has any of these units; [`Spread::spread`] has been called
    /// with the job and has not returned.
    pub unsafe fn call(&mut self, lo: i64, hi: i64) -> u32 {
        let args = KernelArgs {
            bufs: self.pointers,
            scalars: self.job.scalars,
            scratch: core::ptr::null_mut(),
            tile_lo: lo,
            tile_hi: hi,
        };
        // SAFETY: as in the machine's own call. Calls for other units write other bytes (the kernel ABI), but for work
        // space, which is this lane's own.
        unsafe { (self.job.entry)(&args) }
    }
}

/// Bytes for the pointers of a call and for work space of these sizes. Without work space all threads use the same
/// pointers.
pub(crate) fn lane_bytes(bufs: u32, works: impl Iterator<Item = usize>) -> usize {
    let works = works.fold(None, |sum: Option<usize>, bytes| Some(sum.unwrap_or(0).saturating_add(up(bytes))));
    works.map_or(0, |works| works.saturating_add(up(bufs as usize * size_of::<*mut u8>())))
}

/// Rounded up to the alignment of work space.
fn up(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(ARENA_ALIGN).unwrap_or(usize::MAX)
}
