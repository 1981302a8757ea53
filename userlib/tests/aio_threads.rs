//! A process that can make no more threads, in a process of its own: the limit is the whole process's.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

#[allow(dead_code)] // this test uses little of the device
#[path = "it/mock/mod.rs"]
mod mock;

use mock::Mock;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use weldfs::{Client, Errno};

/// Bytes of address space of this process.
fn address_space() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("proc");
    pages.split(' ').next().and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
fn a_thread_that_could_not_start_is_started_by_the_next_call() {
    let mock = Mock::new();
    let client = Client::with(mock.clone()).expect("attach");
    let queue = client.async_queue(8, 4096).expect("queue");
    queue.nop().expect("room").wait().expect("nop");
    let before = getrlimit(Resource::As);
    // Less than a stack.
    let tight = Rlimit { current: Some(address_space() + (64 << 10)), maximum: before.maximum };
    setrlimit(Resource::As, tight).expect("a lower limit");
    let refused = queue.start_reaper();
    setrlimit(Resource::As, before).expect("the limit as it was");
    assert_eq!(refused, Err(Errno::AGAIN));
    queue.start_reaper().expect("thread");
    let called = Arc::new(AtomicBool::new(false));
    let heard = called.clone();
    queue.nop().expect("room").on_done(Arc::new(move |_, _| heard.store(true, SeqCst)), 0);
    queue.flush().expect("ours");
    let start = Instant::now();
    while !called.load(SeqCst) {
        assert!(start.elapsed() < Duration::from_secs(5), "nobody runs the callback");
        std::thread::sleep(Duration::from_millis(1));
    }
}
