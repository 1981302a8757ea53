//! Thirty-two commands in flight from one thread, and not one allocation per command: counted by the allocator itself,
//! for every way of hearing of a completion.

#[allow(dead_code)] // each test uses what it needs of the device
#[path = "it/mock/mod.rs"]
mod mock;

use mock::Mock;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use weldfs::aio::{Completed, OnDone};
use weldfs::{AsyncQueue, At, Client, Errno, Handle, Pending, QueueBuf};

/// The system's allocator, counting the calls of each thread.
struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

fn calls() -> u64 {
    CALLS.with(Cell::get)
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

const FILE: Handle = Handle { index: 5, generation: 0 };
const DEPTH: usize = 32;
const ROUNDS: u64 = 200;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn rig() -> AsyncQueue {
    let client = Client::with(Mock::new()).expect("attach");
    let queue = client.async_queue(DEPTH as u32, 1 << 20).expect("queue");
    // The file's content, the mock's and the allocator's own lists are there.
    round_of_reads(&queue, &mut [const { None }; DEPTH], &Waker::noop().clone());
    queue
}

/// Keeps 32 reads in flight, polled as futures.
fn round_of_reads(queue: &AsyncQueue, flying: &mut [Option<Pending<QueueBuf>>; DEPTH], waker: &Waker) {
    let data = [7; 256];
    let write = queue.write(FILE, At::Offset(0), &data).expect("room");
    write.wait().expect("write");
    for place in flying.iter_mut() {
        *place = Some(queue.read(FILE, At::Offset(0), 256).expect("room"));
    }
    for place in flying.iter_mut() {
        let mut pending = place.take().expect("submitted");
        let read = loop {
            match Pin::new(&mut pending).poll(&mut Context::from_waker(waker)) {
                Poll::Ready(read) => break read.expect("read"),
                Poll::Pending => std::thread::park_timeout(Duration::from_millis(20)),
            }
        };
        assert_eq!(read.bytes(), data);
    }
}

#[test]
fn futures_allocate_nothing() {
    let queue = rig();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut flying = [const { None }; DEPTH];
    round_of_reads(&queue, &mut flying, &waker);
    let before = calls();
    (0..ROUNDS).for_each(|_| round_of_reads(&queue, &mut flying, &waker));
    assert_eq!(calls() - before, 0);
}

#[test]
fn listed_completions_and_blocking_waits_allocate_nothing() {
    let queue = rig();
    let round = || {
        (0..DEPTH as u64).for_each(|i| queue.read(FILE, At::Offset(0), 100).expect("room").listed(i));
        let (mut sum, mut seen) = (0, 0);
        while seen < DEPTH {
            let each = |one: weldfs::aio::Reaped| sum += one.user + one.result.expect("alive").room.bytes()[0] as u64;
            seen += queue.reap(DEPTH, Some(Duration::from_secs(1)), each).expect("alive");
        }
        assert_eq!(sum, 31 * 16 + 32 * 7);
        queue.persist(|q| q.nop()).expect("room").wait().expect("nop");
    };
    round();
    let before = calls();
    (0..ROUNDS).for_each(|_| round());
    assert_eq!(calls() - before, 0);
}

/// Counts completions, and what the thread that runs it has allocated since the first.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    first: AtomicU64,
    since: AtomicU64,
}

impl OnDone for Tally {
    fn done(&self, _: u64, result: Result<Completed, Errno>) {
        assert_eq!(result.expect("alive").cqe.status, 0);
        if self.done.load(SeqCst) == DEPTH as u64 {
            self.first.store(calls(), SeqCst);
        }
        self.since.store(calls() - self.first.load(SeqCst), SeqCst);
        self.done.fetch_add(1, SeqCst);
    }
}

#[test]
fn callbacks_on_the_librarys_thread_allocate_nothing() {
    let queue = rig();
    queue.start_reaper().expect("thread");
    let tally = Arc::new(Tally::default());
    let round = |n: u64| {
        for i in 0..DEPTH as u64 {
            queue.persist(|q| q.nop()).expect("room").on_done(tally.clone(), i);
        }
        queue.flush().expect("ours");
        while tally.done.load(SeqCst) < n * DEPTH as u64 {
            std::thread::yield_now();
        }
    };
    round(1);
    let before = calls();
    (2..ROUNDS).for_each(round);
    assert_eq!(calls() - before, 0, "the submitting thread");
    assert_eq!(tally.since.load(SeqCst), 0, "the library's thread");
}
