//! Policies allocate nothing in steady state, counted by the allocator itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weldfs_scheduler::{Cost, Entry, Policy, PolicyKind, TenantId, Token};

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
        // SAFETY: `ptr` came from `alloc` or `realloc` below, which take it from the system's allocator.
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

const SLOTS: u32 = 256;

/// Every token on a file not used before, slices of all lengths, some withdrawn, some boosted.
fn churn(policy: &mut dyn Policy, round: u64) {
    for token in 0..SLOTS {
        let (tenant, inode) = (TenantId(token % 8), round * 1000 + u64::from(token));
        policy.enqueue(Entry { tenant, inode, token: Token(token), request_ns: 50_000 });
    }
    (0..SLOTS).step_by(7).for_each(|t| {
        policy.boost(Token(t), TenantId((t + 3) % 8));
    });
    (0..SLOTS).step_by(16).for_each(|t| {
        policy.remove(Token(t));
    });
    policy.set_pressure(TenantId(round as u32 % 8), round as u32 % 3 * 500);
    while let Some(e) = policy.pick() {
        policy.account(e.tenant, e.inode, Cost { time_ns: u64::from(e.token.0) * 1000, ..Cost::default() });
        if e.inode / 1000 == round && e.token.0 % 5 == 0 {
            // Once more, under another file.
            policy.enqueue(Entry { inode: e.inode + 500_000_000, ..e });
        }
    }
}

#[test]
fn nothing_is_allocated_in_steady_state() {
    for kind in PolicyKind::ALL {
        let mut policy = kind.build(SLOTS as usize);
        (0..8).for_each(|t| policy.set_weight(TenantId(t), 1024));
        // The first rounds fill the tables that remember queues.
        (0..4).for_each(|round| churn(&mut *policy, round));
        let before = CALLS.with(Cell::get);
        (4..400).for_each(|round| churn(&mut *policy, round));
        assert_eq!(CALLS.with(Cell::get) - before, 0, "{kind}");
    }
}
