//! Posted commands: a bell that is not rung is not missed, and a lease is not taken back behind its client's back. The
//! ends are the shipped ones; without the fences each must fail.
//!
//! RUSTFLAGS="--cfg loom" cargo test -p weldfs-ciscops --release --test loom leases::
#![allow(clippy::unwrap_used)] // a test may panic

use crate::wakeup::{Shared, model, must_deadlock};
use loom::sync::atomic::Ordering;
use loom::thread;
use weldfs_ciscops::ring::{RingMemory, Word, recall_leases};
use weldfs_ciscops::*;

/// The client posts one command, and rings if it must. The device naps, looks, and sleeps then, until it has it.
fn post_to_one_that_naps(fences: bool) {
    model(move || {
        let memory = Shared::new(fences);
        let device = {
            let memory = memory.clone();
            thread::spawn(move || {
                let mut sq = SqConsumer::new(memory.clone());
                let taken = |sq: &mut SqConsumer<Shared>| sq.poll().unwrap() > 0 && sq.take().is_some();
                sq.prepare_nap();
                let waits = sq.recheck().unwrap();
                // A nap: its time is over, or something waits.
                sq.awake();
                if waits || taken(&mut sq) {
                    return;
                }
                loop {
                    sq.prepare_sleep();
                    if !sq.recheck().unwrap() {
                        memory.wait_doorbell();
                    }
                    sq.awake();
                    if taken(&mut sq) {
                        return;
                    }
                }
            })
        };
        let mut sq = SqProducer::new(memory.clone());
        sq.push(&Sqe::default()).unwrap();
        sq.publish();
        if sq.posts_need_doorbell() {
            memory.ring_doorbell();
        }
        device.join().unwrap();
    });
}

/// The device takes the leases back and looks how far the ring is published; the client publishes and looks whether
/// they were taken back.
fn recall_beside_a_post(fences: bool) {
    model(move || {
        let memory = Shared::new(fences);
        let device = {
            let memory = memory.clone();
            thread::spawn(move || {
                recall_leases(&memory);
                memory.load(Word::SqTail, Ordering::Acquire)
            })
        };
        let mut sq = SqProducer::new(memory);
        sq.push(&Sqe::default()).unwrap();
        sq.publish();
        sq.posts_need_doorbell();
        let recalls = sq.recalls();
        let published = device.join().unwrap();
        assert!(recalls == 1 || published == 1, "the device gives away what this command was promised");
    });
}

#[test]
fn a_post_without_a_bell_is_found_when_the_nap_is_over() {
    post_to_one_that_naps(true);
}

#[test]
fn without_the_fence_a_post_is_not_found() {
    must_deadlock("leases::without_the_fence_a_post_is_not_found", || post_to_one_that_naps(false));
}

#[test]
fn a_lease_is_taken_back_before_a_command_or_finds_it() {
    recall_beside_a_post(true);
}

#[test]
fn without_the_fence_a_lease_is_taken_back_unseen() {
    let failed = std::panic::catch_unwind(|| recall_beside_a_post(false)).is_err();
    assert!(failed, "the model cannot fail");
}
