//! How often an operation asks the allocator for memory, counted by the allocator itself: transaction, commit and all.
//! What is left is memory that stays: entries of the overlay, names, the lists of effects that move into it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use weldfs_ciscops::TxnMode;

mod drill;

/// The system's allocator, counting the calls of each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: every call goes to the system's allocator with the caller's arguments, so its promises hold; counting
// touches a constant-initialised thread-local without a destructor, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `alloc` or `realloc`, which take it from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`, and the caller keeps the promises of `realloc`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls per operation at most, in hundredths.
const BOUNDS: [(&str, u64); 5] = [
    ("append", 330),
    ("append_checksum_write", 1_850),
    ("open_write_close", 2_200),
    ("read_modify_write", 680),
    ("read", 5),
];

#[test]
fn operations_allocate_little() {
    const WARM: u64 = 300;
    const COUNTED: u64 = 600;
    assert_eq!(BOUNDS.map(|(kind, _)| kind), drill::KINDS);
    for (kind, most) in BOUNDS {
        let mut drill = drill::Drill::new();
        drill.work(kind, 0..WARM, TxnMode::Default);
        let before = CALLS.with(Cell::get);
        drill.work(kind, WARM..WARM + COUNTED, TxnMode::Default);
        let each = (CALLS.with(Cell::get) - before) * 100 / COUNTED;
        println!("{kind}: {}.{:02} allocations per operation", each / 100, each % 100);
        assert!(each <= most, "{kind}: {each} hundredths, at most {most}");
    }
}
