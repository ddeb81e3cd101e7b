//! Memory for kernels that are interpreted: taken when the file is opened, never given back.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

const BYTES: usize = 1 << 20;

#[repr(C, align(64))]
struct Heap([u8; BYTES]);

static mut HEAP: Heap = Heap([0; BYTES]);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Gives out one part of the heap behind the other.
struct Once;

#[global_allocator]
static ALLOCATOR: Once = Once;

// SAFETY: no byte is given out twice; an alignment beyond that of the heap is refused.
unsafe impl GlobalAlloc for Once {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let from = USED.fetch_add(layout.size() + layout.align(), Ordering::Relaxed).next_multiple_of(layout.align());
        if layout.align() > align_of::<Heap>() || from + layout.size() > BYTES {
            return null_mut();
        }
        (&raw mut HEAP).cast::<u8>().wrapping_add(from)
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Bytes that were given out.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}
