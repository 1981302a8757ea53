//! The rings between two real threads over a real shared mapping, and against a peer that lies.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};
use weldfs_ciscops::ring::Word;
use weldfs_ciscops::*;

use core::sync::atomic::Ordering::{Relaxed, Release};

fn queue(depth: u32) -> (QueueMemory, QueueMemory, QueueLayout) {
    let layout = QueueLayout::new(depth, 8192).unwrap();
    let (fd, device) = QueueMemory::create(&layout).unwrap();
    let client = SharedRegion::map(fd.as_fd(), layout.total_bytes as usize).unwrap();
    (device, QueueMemory::new(client, &layout).unwrap(), layout)
}

#[test]
fn entries_cross_in_order_whole_and_once() {
    let (device, client, _) = queue(8);
    const N: u64 = 50_000;
    let t = thread::spawn(move || {
        let (mut sq, mut cq) = (SqConsumer::new(device.clone()), CqProducer::new(device));
        let mut next = 0;
        while next < N {
            while sq.poll().unwrap() > 0 && cq.reserve().unwrap() {
                let sqe = sq.take().unwrap().0;
                assert_eq!((sqe.sequence, sqe.offset, sqe.imm), (next, next * 3, (next as u128).to_le_bytes()));
                cq.post(&Cqe { sequence: next, result: next * 7, ..Cqe::default() });
                next += 1;
            }
            sq.release();
            if cq.publish() {
                cq.wake();
            }
            thread::yield_now();
        }
    });
    let (mut sq, mut cq) = (SqProducer::new(client.clone()), CqConsumer::new(client));
    let (mut sent, mut got) = (0, 0);
    while got < N {
        let imm = |n: u64| (n as u128).to_le_bytes();
        while sent < N && sq.push(&Sqe { sequence: sent, offset: sent * 3, imm: imm(sent), ..Sqe::default() }).is_ok() {
            sent += 1;
        }
        sq.publish();
        match cq.pop() {
            Some(cqe) => {
                assert_eq!((cqe.sequence, cqe.result), (got, got * 7));
                got += 1;
                cq.release();
            }
            None => cq.wait(Duration::from_millis(500)),
        }
    }
    t.join().unwrap();
}

#[test]
fn a_command_is_refused_while_no_completion_slot_is_free() {
    let (device, client, _) = queue(2);
    let (mut cq, mut reader) = (CqProducer::new(device), CqConsumer::new(client));
    assert!(cq.reserve().unwrap() && cq.reserve().unwrap());
    assert!(!cq.reserve().unwrap());
    cq.post(&Cqe::default());
    assert!(!cq.reserve().unwrap(), "posted is not yet taken");
    let _ = cq.publish();
    assert!(reader.pop().is_some());
    assert!(!cq.reserve().unwrap(), "taken is not yet released");
    reader.release();
    assert!(cq.reserve().unwrap());
}

#[test]
fn an_index_out_of_range_is_a_fault_and_not_a_read() {
    let (device, client, _) = queue(4);
    for lie in [5, 1000, u32::MAX, 1 << 31] {
        let mut sq = SqConsumer::new(device.clone());
        client.store(Word::SqTail, lie, Release);
        assert_eq!(sq.poll(), Err(QueueFault { word: Word::SqTail, value: lie }));
        assert_eq!(sq.take(), None);
        assert_eq!(sq.recheck(), Err(QueueFault { word: Word::SqTail, value: lie }));
        let mut cq = CqProducer::new(device.clone());
        client.store(Word::CqHead, lie, Release);
        for _ in 0..4 {
            assert!(cq.reserve().unwrap(), "a lie is looked at only when room is needed");
        }
        assert_eq!(cq.reserve(), Err(QueueFault { word: Word::CqHead, value: lie }));
    }
}

#[test]
fn indices_pass_the_end_of_u32() {
    // Free-running indices: nothing special at 2^32. Reached by moving the private copies is not possible from here,
    // so the arithmetic is what is tested: distance over the wrap.
    assert_eq!(2u32.wrapping_sub(u32::MAX - 1), 4);
    let (device, client, _) = queue(4);
    let (mut tx, mut rx) = (SqProducer::new(client), SqConsumer::new(device));
    for n in 0..1000 {
        tx.push(&Sqe { sequence: n, ..Sqe::default() }).unwrap();
        tx.publish();
        assert_eq!(rx.poll(), Ok(1));
        assert_eq!(rx.take().unwrap().0.sequence, n);
        rx.release();
    }
}

#[test]
fn the_device_never_reads_its_own_words_back() {
    let (device, client, _) = queue(4);
    let (mut tx, mut rx) = (SqProducer::new(client.clone()), SqConsumer::new(device.clone()));
    let mut cq = CqProducer::new(device);
    for w in [Word::SqHead, Word::CqTail, Word::DeviceSleeping, Word::DeviceClosed] {
        client.store(w, 0xdead_beef, Relaxed);
    }
    let _ = tx.push(&Sqe { sequence: 1, ..Sqe::default() });
    tx.publish();
    assert_eq!(rx.poll(), Ok(1));
    assert_eq!(rx.take().unwrap().0.sequence, 1);
    assert!(cq.reserve().unwrap());
    cq.post(&Cqe::default());
    let _ = cq.publish();
    assert_eq!(client.load(Word::CqTail, Relaxed), 1, "published from the private copy");
}

#[test]
fn a_sleeping_client_wakes_at_once_on_a_completion_and_on_close() {
    let (device, client, _) = queue(4);
    let mut cq = CqProducer::new(device);
    let t = thread::spawn(move || {
        let mut cq = CqConsumer::new(client);
        let start = Instant::now();
        while cq.available() == 0 {
            cq.wait(Duration::from_secs(5));
        }
        assert!(cq.pop().is_some());
        while cq.closed().is_none() {
            cq.wait(Duration::from_secs(5));
        }
        (start.elapsed(), cq.closed())
    });
    thread::sleep(Duration::from_millis(50));
    assert!(cq.reserve().unwrap());
    cq.post(&Cqe::default());
    if cq.publish() {
        cq.wake();
    }
    thread::sleep(Duration::from_millis(50));
    cq.close(Errno::NODEV);
    cq.wake();
    let (elapsed, closed) = t.join().unwrap();
    assert_eq!(closed, Some(Errno::NODEV));
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
}

#[test]
fn one_doorbell_per_sleep() {
    let (device, client, _) = queue(8);
    let (mut tx, mut rx) = (SqProducer::new(client), SqConsumer::new(device));
    let post = |tx: &mut SqProducer| {
        tx.push(&Sqe::default()).unwrap();
        tx.publish();
        tx.needs_doorbell()
    };
    assert!(!post(&mut tx), "awake");
    rx.prepare_sleep();
    assert!(rx.recheck().unwrap(), "work came first: no sleep");
    rx.awake();
    assert!(!post(&mut tx));
    while rx.poll().unwrap() > 0 {
        rx.take().unwrap();
    }
    rx.release();
    rx.prepare_sleep();
    assert!(!rx.recheck().unwrap());
    assert!(post(&mut tx) && !post(&mut tx), "first post rings, the second need not");
    rx.awake();
    rx.prepare_sleep();
    assert!(post(&mut tx), "a new sleep needs a new doorbell");
}

#[test]
fn the_region_of_a_queue_is_sealed_and_dumpable() {
    let layout = QueueLayout::new(4, 4096).unwrap();
    let (fd, memory) = QueueMemory::create(&layout).unwrap();
    let seals = rustix::fs::fcntl_get_seals(&fd).unwrap();
    use rustix::fs::SealFlags as S;
    assert!(seals.contains(S::SHRINK | S::GROW | S::SEAL));
    assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    assert_eq!(memory.region().bytes(0, 8).unwrap().to_vec(), b"WELDQP\0\x01");
    let pool = memory.pool(&layout).unwrap();
    assert_eq!(pool.len(), 4096);
    assert!(pool.slice(PoolRange::new(4095, 1)).is_ok());
    assert_eq!(pool.slice(PoolRange::new(4095, 2)).unwrap_err(), Errno::FAULT);
    assert_eq!(pool.slice(PoolRange::new(u32::MAX, u32::MAX)).unwrap_err(), Errno::FAULT);
}
