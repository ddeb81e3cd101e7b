//! Sessions that own their memory.

use alloc::alloc::{alloc_zeroed, dealloc};
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr::NonNull;

use graphmend_cache_format::ARENA_ALIGN;

use crate::session::output;
use crate::{Error, ModelRef, Observe, Session, TensorRef, TensorView};

/// The arena of a session.
#[derive(Debug)]
enum Arena<'m> {
    Owned(Block),
    Lent(&'m mut [u8]),
}

impl Arena<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Arena::Owned(block) => block.bytes(),
            Arena::Lent(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Arena::Owned(block) => block.bytes_mut(),
            Arena::Lent(bytes) => bytes,
        }
    }
}

/// Zeroed, aligned bytes. Large ones come as untouched pages from the operating system.
#[derive(Debug)]
struct Block {
    /// What was allocated.
    block: NonNull<u8>,
    layout: Layout,
    /// The first aligned byte in it.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Block` owns its bytes like a `Vec<u8>`.
unsafe impl Send for Block {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Result<Block, Error> {
        let fail = Error::OutOfMemory { bytes };
        // Allocators get zeroed pages for nothing only at their own alignment; at a greater one they write the zeros,
        // and so touch every page. The arena is therefore aligned here, within a block that is a little larger.
        let align = alignment(bytes);
        let size = bytes.checked_add(align).ok_or(fail)?;
        let layout = Layout::from_size_align(size, align_of::<usize>()).map_err(|_| fail)?;
        // SAFETY: the size is not 0.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(fail)?;
        let skip = block.as_ptr().addr().next_multiple_of(align) - block.as_ptr().addr();
        // SAFETY: less than `align`, so within the block with `bytes` behind it.
        let start = unsafe { block.add(skip) };
        let block = Block { block, layout, start, len: bytes };
        #[cfg(all(feature = "std", target_os = "linux"))]
        block.ask_for_large_pages();
        Ok(block)
    }

    /// Has the first run touch a few large pages instead of hundreds of small ones, each of which the system must provide.
    /// Only whole ones, so that no more memory is taken. A system that has none goes on with small ones.
    #[cfg(all(feature = "std", target_os = "linux"))]
    fn ask_for_large_pages(&self) {
        let whole = self.len - self.len % LARGE_PAGE;
        if whole > 0 {
            // SAFETY: the range lies in the block, which this owns; the advice changes how it is provided, not what it holds.
            unsafe { libc::madvise(self.start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialized bytes from `start` lie in the block, which this owns.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// What an arena of so many bytes is aligned to: large pages where it has whole ones.
fn alignment(bytes: usize) -> usize {
    if bytes >= LARGE_PAGE { LARGE_PAGE } else { ARENA_ALIGN }
}

/// Bytes of a large page, where the operating system may give some.
const LARGE_PAGE: usize = if cfg!(all(feature = "std", target_os = "linux")) { 1 << 21 } else { usize::MAX };

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.block.as_ptr(), self.layout) };
    }
}

/// What a session runs.
#[allow(clippy::large_enum_variant, reason = "one per session, never moved about")]
#[derive(Clone, Debug)]
enum Held<'m> {
    Borrowed(ModelRef<'m>),
    #[cfg(feature = "std")]
    Shared(alloc::sync::Arc<crate::Model>),
}

impl Held<'_> {
    fn get(&self) -> ModelRef<'_> {
        match self {
            Held::Borrowed(model) => *model,
            #[cfg(feature = "std")]
            Held::Shared(model) => model.view(),
        }
    }
}

/// A model with its own memory. The arena grows if a run needs more than [`ModelRef::arena_bytes`] (models with sizes
/// that are only known at run time), unless it is lent; runs that need no more allocate nothing.
#[derive(Debug)]
pub struct OwnedSession<'m> {
    model: Held<'m>,
    arena: Arena<'m>,
    state: Vec<i64>,
    step_limit: u64,
    #[cfg(feature = "std")]
    pool: Option<alloc::sync::Arc<crate::Pool>>,
    #[cfg(feature = "std")]
    trial: crate::trial::Trial,
}

impl<'m> OwnedSession<'m> {
    /// Allocates memory for a model.
    pub fn new(model: ModelRef<'m>) -> Result<OwnedSession<'m>, Error> {
        OwnedSession::with(Held::Borrowed(model), None)
    }

    /// As [`OwnedSession::new`], with an arena that the caller lends: see [`Session::new`]. It does not grow: a run that needs
    /// more ends with [`Error::ArenaTooSmall`].
    pub fn new_in(model: ModelRef<'m>, arena: &'m mut [u8]) -> Result<OwnedSession<'m>, Error> {
        OwnedSession::with(Held::Borrowed(model), Some(arena))
    }

    /// Allocates memory for a shared model, which lives as long as its sessions.
    #[cfg(feature = "std")]
    pub fn shared(model: alloc::sync::Arc<crate::Model>) -> Result<OwnedSession<'static>, Error> {
        OwnedSession::with(Held::Shared(model), None)
    }

    /// As [`OwnedSession::shared`], with an arena that the caller lends.
    #[cfg(feature = "std")]
    pub fn shared_in(model: alloc::sync::Arc<crate::Model>, arena: &'m mut [u8]) -> Result<OwnedSession<'m>, Error> {
        OwnedSession::with(Held::Shared(model), Some(arena))
    }

    fn with(model: Held<'m>, lent: Option<&'m mut [u8]>) -> Result<OwnedSession<'m>, Error> {
        let words = model.get().state_words();
        let mut state = Vec::new();
        state.try_reserve_exact(words).map_err(|_| Error::OutOfMemory { bytes: words.saturating_mul(8) })?;
        state.resize(words, 0);
        let mut arena = match lent {
            Some(bytes) => Arena::Lent(bytes),
            None => Arena::Owned(Block::new(model.get().arena_bytes())?),
        };
        Session::new(model.get(), arena.bytes_mut(), &mut state)?;
        Ok(OwnedSession {
            model,
            arena,
            state,
            step_limit: u64::MAX,
            #[cfg(feature = "std")]
            pool: None,
            #[cfg(feature = "std")]
            trial: crate::trial::Trial::NEW,
        })
    }

    /// Shares the work of each run among this many threads, the calling one included (0: as many as this process has
    /// processors for). A session has one unless told otherwise. Results are the same to the bit. Of short runs, some of the first
    /// ones find out whether threads make them faster; if not, the session goes on without.
    ///
    /// # Errors
    /// [`Error::Threads`] if there cannot be that many, [`Error::OutOfMemory`] if there is no work space for them.
    #[cfg(feature = "std")]
    pub fn threads(self, threads: usize) -> Result<OwnedSession<'m>, Error> {
        if threads == 1 { Ok(OwnedSession { pool: None, ..self }) } else { self.pool(crate::Pool::new(threads)?) }
    }

    /// Shares the work of each run among the threads of a pool, which other sessions may use too.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no work space for the pool's threads.
    #[cfg(feature = "std")]
    pub fn pool(self, pool: alloc::sync::Arc<crate::Pool>) -> Result<OwnedSession<'m>, Error> {
        pool.reserve(&self.model.get())?;
        Ok(OwnedSession { pool: Some(pool), ..self })
    }

    /// The model.
    pub fn model(&self) -> ModelRef<'_> {
        self.model.get()
    }

    /// Bytes of arena that the session has now.
    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes().len()
    }

    /// Where the arena lies until the next run. Inputs of a run must not lie there, which only matters to who has them
    /// as pointers.
    pub fn arena_range(&self) -> core::ops::Range<*const u8> {
        self.arena.bytes().as_ptr_range()
    }

    /// Ends runs that take more backward jumps than this with [`Error::StepLimit`].
    pub fn set_step_limit(&mut self, limit: u64) {
        self.step_limit = limit;
    }

    /// Runs the model. On success the outputs can be asked for until the next run.
    pub fn run(&mut self, inputs: &[TensorRef<'_>]) -> Result<(), Error> {
        self.run_observed(inputs, &mut ())
    }

    /// Runs the model and tells `observer` of each kernel call (of calls before the arena grew, too).
    pub fn run_observed(&mut self, inputs: &[TensorRef<'_>], observer: &mut impl Observe) -> Result<(), Error> {
        #[cfg(feature = "std")]
        if let Some(pool) = self.pool.clone() {
            let threads = self.trial.threads(inputs);
            let start = std::time::Instant::now();
            let running = threads.then(|| pool.enter());
            let spread = running.is_some().then_some(&*pool as &dyn crate::Spread);
            let result = self.run_with(spread, inputs, observer);
            drop(running);
            self.trial.took(threads, start.elapsed());
            return result;
        }
        self.run_with(None, inputs, observer)
    }

    /// Runs the model, its kernel calls spread as told.
    fn run_with(
        &mut self,
        spread: Option<&dyn crate::Spread>,
        inputs: &[TensorRef<'_>],
        observer: &mut impl Observe,
    ) -> Result<(), Error> {
        let mut grown = false;
        loop {
            let mut session = Session::resume(self.model.get(), self.arena.bytes_mut(), &mut self.state)?;
            session.set_step_limit(self.step_limit);
            if let Some(spread) = spread {
                session.set_spread(spread);
            }
            match session.run_observed(inputs, observer) {
                Err(Error::ArenaTooSmall { needed }) if self.has_less(needed) => {
                    // Mostly one size is asked for at the start. A loop that asks for more in each trip starts anew
                    // only a few times.
                    let more = if grown { needed.max(self.arena_bytes().saturating_mul(2)) } else { needed };
                    self.arena = Arena::Owned(Block::new(more).or_else(|_| Block::new(needed))?);
                    grown = true;
                }
                result => return result,
            }
        }
    }

    /// Whether its own arena has fewer bytes.
    fn has_less(&self, needed: usize) -> bool {
        matches!(&self.arena, Arena::Owned(block) if block.len < needed)
    }

    /// An output of the last run.
    pub fn output(&self, index: usize) -> Result<TensorView<'_>, Error> {
        output(self.model.get(), self.arena.bytes(), &self.state, index)
    }
}
