//! A run allocates nothing.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::*;
use graphmend_cache_format::LEAF;
use graphmend_runtime::{Model, TensorRef, Trust};

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = CALLS.try_with(|c| c.set(c.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        let _ = CALLS.try_with(|c| c.set(c.get() + 1));
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn calls() -> usize {
    CALLS.with(Cell::get)
}

#[test]
fn a_run_allocates_nothing() {
    let mut spec = doubling_model();
    spec.weights = vec![1; 3 * LEAF];
    // Beside the kernel: a copy, a fill, a slot, and weights that are verified.
    let plan = &mut spec.variants[0].plan;
    plan.slots = 1;
    plan.buffers.extend([weights(DType::U8, 100, 2 * LEAF as i64), arena(DType::U8, 0, 64), slot(0, DType::U8)]);
    let more = [
        Instr::Fill { buf: 3, bits: 9 },
        Instr::SetSlot { slot: 0, buf: 3 },
        Instr::Copy { dst: 4, dst_offset: imm(1), src: 2, src_offset: imm(LEAF as i64), bytes: Some(imm(8)) },
        Instr::LoadInt { dst: 0, buf: 4, index: imm(8) },
    ];
    plan.instrs.splice(0..0, more);
    let model = Model::from_bytes(&bytes(&spec), Trust::Unsigned).unwrap();
    let mut session = model.session().unwrap();
    let (x, long) = ([3i32; 500], [3i32; 1001]);
    let inputs = [TensorRef::new(&x, &[500])];

    let before = calls();
    assert!(before > 0, "the counter counts");
    for _ in 0..3 {
        session.run(&inputs).unwrap();
        assert!(session.output(0).unwrap().as_slice::<i32>().unwrap().iter().all(|&y| y == 6));
    }
    assert!(session.run(&[TensorRef::new(&long, &[1001])]).is_err());
    assert_eq!(calls(), before);
}
