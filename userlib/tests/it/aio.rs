//! Properties of asynchronous queues, over a device of a few lines: a completion reaches who wants it, in whichever
//! way it is waited for; memory that a command may use is its own until it completes; a full queue says so; a
//! dead device and a fork are noticed by all.

#[allow(dead_code)] // each test uses what it needs of the device
use crate::mock::Mock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use weldfs::aio::{Completed, OnDone};
use weldfs::{AsyncQueue, At, Client, Durability, Errno, Handle, OpenFlags};

const FILE: Handle = Handle { index: 5, generation: 0 };
const SECOND: Duration = Duration::from_secs(1);

fn rig() -> (Arc<Mock>, Client) {
    let mock = Mock::new();
    let client = Client::with(mock.clone()).expect("attach");
    (mock, client)
}

fn queue() -> (Arc<Mock>, AsyncQueue) {
    let (mock, client) = rig();
    let queue = client.async_queue(32, 256 << 10).expect("queue");
    (mock, queue)
}

/// Wakes a parked thread.
struct Unpark(std::thread::Thread, AtomicU64);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Relaxed);
        self.0.unpark();
    }
}

/// The smallest executor there is: it knows nothing of queues.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current(), AtomicU64::new(0))));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_future_needs_nothing_of_its_executor() {
    let (mock, queue) = queue();
    mock.behaviour.delay_ns.store(300_000, Relaxed);
    let back = block_on(async {
        let written = queue.write(FILE, At::Offset(0), b"from a future")?.await?;
        assert_eq!((written.len, written.offset), (13, 0));
        queue.read(FILE, At::Offset(5), 100)?.await
    });
    assert_eq!(back.expect("read").bytes(), b"a future");
    // Thirty-two of one task, and none is forgotten.
    let all: Vec<_> = (0..32).map(|i| queue.write(FILE, At::Offset(i), b"x").expect("room")).collect();
    block_on(async {
        for pending in all {
            pending.await.expect("write");
        }
    });
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn waiting_on_the_spot_and_polling() {
    let (mock, queue) = queue();
    queue.nop().expect("room").wait().expect("nop");
    let mut pending = queue.nop().expect("room");
    let start = Instant::now();
    while pending.try_take().is_none() {
        assert!(start.elapsed() < SECOND);
    }
    assert_eq!(pending.try_take(), Some(Err(Errno::INVAL)), "one answer each");
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let mut pending = queue.nop().expect("room");
    assert_eq!(pending.wait_timeout(Duration::from_millis(30)), Err(Errno::TIMEDOUT));
    mock.behaviour.paused.store(false, Relaxed);
    assert_eq!(pending.wait_timeout(SECOND), Ok(()));
    assert_eq!(queue.remove_file("/missing").expect("room").wait(), Err(Errno::NOENT));
}

#[test]
fn one_slow_command_does_not_hold_up_the_ring() {
    let (_mock, queue) = queue();
    let kept = queue.nop().expect("room");
    for _ in 0..500 {
        queue.nop().expect("the slot of an unanswered command is passed over").wait().expect("nop");
    }
    kept.wait().expect("nop");
}

#[test]
fn a_full_ring_says_so_and_can_be_waited_for() {
    let (mock, queue) = queue();
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let mut held: Vec<_> = (0..32).map(|_| queue.nop().expect("room")).collect();
    assert_eq!(queue.nop().err(), Some(Errno::AGAIN));
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| queue.persist(|q| q.nop()).expect("room").wait());
        let future = scope.spawn(|| block_on(queue.patient(|q| q.nop())).expect("room").wait());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!blocked.is_finished() && !future.is_finished());
        mock.behaviour.paused.store(false, Relaxed);
        // Room is made when answers are taken, or forgotten.
        held.pop().expect("one").wait().expect("nop");
        held.clear();
        blocked.join().expect("thread").expect("nop");
        future.join().expect("thread").expect("nop");
    });
}

#[test]
fn a_full_pool_says_so_and_what_never_fits_is_no_memory() {
    let (mock, queue) = queue();
    assert_eq!(queue.buffer(1 << 20).err(), Some(Errno::NOMEM));
    let all = queue.buffer(256 << 10).expect("all of it");
    assert_eq!(queue.write(FILE, At::End, &[1; 200]).err(), Some(Errno::AGAIN));
    assert_eq!(queue.persist(|q| q.buffer(1)).err(), Some(Errno::AGAIN), "nothing is in flight that could make room");
    drop(all);
    mock.behaviour.delay_ns.store(100_000, Relaxed);
    for i in 0..100u64 {
        let pending = queue.persist(|q| q.write(FILE, At::Offset(i), &[i as u8; 60 << 10])).expect("room");
        drop(pending);
    }
    queue.drain().expect("all done");
    assert_eq!(mock.behaviour.answered.load(Relaxed), 100, "a dropped future's command runs all the same");
}

#[test]
fn memory_stays_the_commands_until_it_completes_whatever_is_dropped() {
    let (mock, queue) = queue();
    let mut buf = queue.buffer(4096).expect("buffer");
    buf.bytes_mut().expect("free").fill(7);
    let place = buf.bytes().as_ptr() as usize;
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let write = queue.write(FILE, At::Offset(0), &buf).expect("room");
    assert_eq!(buf.bytes_mut().err(), Some(Errno::BUSY));
    assert_eq!(queue.read_into(FILE, At::Offset(0), queue.buffer(10).expect("room")).err().map(|r| r.errno), None);
    let refused = queue.read_into(FILE, At::Offset(0), buf).expect_err("a command in flight reads from it");
    assert_eq!(refused.errno, Errno::BUSY);
    // The buffer and the future go; the bytes must not be handed out again.
    drop(refused);
    drop(write);
    let read = queue.read(FILE, At::Offset(0), 4096).expect("room");
    drop(read);
    let mut others = Vec::new();
    while let Ok(other) = queue.buffer(4096) {
        assert_ne!(other.bytes().as_ptr() as usize, place);
        others.push(other);
    }
    // 64 such buffers in the pool, less those of the write, the read, and the page of the small read.
    assert_eq!(others.len(), 61);
    others.clear();
    mock.behaviour.paused.store(false, Relaxed);
    queue.drain().expect("done");
    assert_eq!(queue.buffer(256 << 10).expect("everything came back").len(), 256 << 10);
    let back = queue.read(FILE, At::Offset(0), 4096).expect("room").wait().expect("read");
    assert_eq!(back.bytes(), [7; 4096]);
}

#[test]
fn buffers_go_into_a_read_and_come_back() {
    let (_mock, queue) = queue();
    queue.write(FILE, At::Offset(0), b"0123456789").expect("room").wait().expect("write");
    let buf = queue.buffer(8).expect("buffer");
    let place = buf.bytes().as_ptr();
    let mut buf = queue.read_into(FILE, At::Offset(4), buf).expect("room").wait().expect("read");
    assert_eq!((buf.bytes(), buf.bytes().as_ptr(), buf.capacity()), (&b"456789"[..], place, 8));
    assert_eq!(buf.resize(9), Err(Errno::INVAL));
    buf.resize(8).expect("all of it");
    assert_eq!(queue.write(FILE, At::End, buf.slice(3..9)).err(), Some(Errno::INVAL));
    let other = queue.client().async_queue(8, 4096).expect("queue");
    assert_eq!(other.write(FILE, At::End, &buf).err(), Some(Errno::INVAL), "another queue's pool");
    assert_eq!(other.read_into(FILE, At::End, buf).err().map(|r| r.errno), Some(Errno::INVAL));
}

struct Count(AtomicU64, Mutex<Vec<std::thread::ThreadId>>);

impl OnDone for Count {
    fn done(&self, user: u64, result: Result<Completed, Errno>) {
        assert_eq!(result.expect("alive").cqe.status, 0);
        self.1.lock().expect("not poisoned").push(std::thread::current().id());
        self.0.fetch_add(user, SeqCst);
    }
}

#[test]
fn callbacks_run_where_the_program_reaps_or_on_the_librarys_thread() {
    let (mock, queue) = queue();
    let count = Arc::new(Count(AtomicU64::new(0), Mutex::default()));
    for i in 1..=10 {
        queue.nop().expect("room").on_done(count.clone(), i);
    }
    queue.flush().expect("ours");
    let start = Instant::now();
    while mock.behaviour.answered.load(Relaxed) < 10 {
        assert!(start.elapsed() < SECOND);
    }
    assert_eq!(count.0.load(SeqCst), 0, "nobody reaped");
    let mut done = 0;
    while done < 10 {
        done += queue.reap(3, Some(SECOND), |_| panic!("none is listed")).expect("alive");
    }
    assert_eq!((done, count.0.load(SeqCst)), (10, 55));
    assert!(count.1.lock().expect("fine").iter().all(|id| *id == std::thread::current().id()));

    queue.start_reaper().expect("thread");
    for i in 1..=10 {
        queue.nop().expect("room").on_done(count.clone(), i * 100);
    }
    queue.flush().expect("ours");
    let start = Instant::now();
    while count.0.load(SeqCst) < 5_555 {
        assert!(start.elapsed() < SECOND, "{}", count.0.load(SeqCst));
        std::thread::yield_now();
    }
    assert!(count.1.lock().expect("fine")[10..].iter().all(|id| *id != std::thread::current().id()));
}

#[test]
fn a_callback_may_submit_and_may_drop_the_last_handle() {
    struct Chain(Mutex<Option<AsyncQueue>>, AtomicU64);
    impl OnDone for Chain {
        fn done(&self, left: u64, result: Result<Completed, Errno>) {
            drop(result);
            self.1.fetch_add(1, SeqCst);
            let mut queue = self.0.lock().expect("not poisoned");
            if left == 0 {
                queue.take();
            }
        }
    }
    let (_mock, queue) = queue();
    queue.start_reaper().expect("thread");
    let chain = Arc::new(Chain(Mutex::new(Some(queue.clone())), AtomicU64::new(0)));
    for i in (0..20).rev() {
        queue.nop().expect("room").on_done(chain.clone(), i);
    }
    queue.flush().expect("ours");
    drop(queue);
    let start = Instant::now();
    while chain.1.load(SeqCst) < 20 {
        assert!(start.elapsed() < SECOND);
        std::thread::yield_now();
    }
}

#[test]
fn listed_completions_come_with_their_marks() {
    let (_mock, queue) = queue();
    for i in 0..20u64 {
        queue.write(FILE, At::Offset(i), &[i as u8]).expect("room").listed(i);
    }
    queue.remove_file("/missing").expect("room").listed(99);
    let mut seen = Vec::new();
    while seen.len() < 21 {
        let step = queue.reap(4, Some(SECOND), |one| {
            seen.push((one.user, one.result.expect("alive").cqe.status));
        });
        assert!((1..=4).contains(&step.expect("alive")));
    }
    seen.sort_unstable();
    assert!(seen[..20].iter().enumerate().all(|(i, one)| *one == (i as u64, 0)));
    assert_eq!(seen[20], (99, Errno::NOENT.0));
    assert_eq!(queue.reap(4, Some(SECOND), |_| ()).expect("alive"), 0, "nothing in flight: not waited for");
}

fn readable(fd: impl std::os::fd::AsFd, millis: i64) -> bool {
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 };
    poll(&mut fds, Some(&timeout)).expect("poll") == 1
}

#[test]
fn an_eventfd_is_readable_while_completions_wait() {
    let (mock, queue) = queue();
    let event = queue.eventfd().expect("eventfd");
    assert!(!readable(event, 20), "nothing in flight");
    assert_eq!(queue.start_reaper(), Err(Errno::BUSY));
    for round in 0..50 {
        mock.behaviour.paused.store(round % 2 == 0, Relaxed);
        mock.heard();
        for i in 0..5 {
            queue.nop().expect("room").listed(i);
        }
        queue.flush().expect("ours");
        if round % 2 == 0 {
            assert!(!readable(event, 5), "round {round}: the device has answered nothing");
            mock.behaviour.paused.store(false, Relaxed);
        }
        let (mut seen, start) = (0, Instant::now());
        while seen < 5 {
            assert!(readable(event, 900), "round {round}: {seen} seen, and the rest is never heard of");
            while queue.reap(2, None, |_| seen += 1).expect("alive") > 0 {}
            assert!(start.elapsed() < SECOND);
        }
        assert!(!readable(event, 0), "round {round}: reaped until nothing was left");
    }
    // Futures of a program that has an eventfd are woken by its own reaping.
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let waker = Arc::new(Unpark(std::thread::current(), AtomicU64::new(0)));
    let mut future = pin!(queue.nop().expect("room"));
    let task = Waker::from(waker.clone());
    assert!(future.as_mut().poll(&mut Context::from_waker(&task)).is_pending());
    mock.behaviour.paused.store(false, Relaxed);
    assert!(readable(event, 900));
    assert_eq!(waker.1.load(Relaxed), 0);
    queue.reap(1, None, |_| ()).expect("alive");
    assert_eq!(waker.1.load(Relaxed), 1);
    assert!(future.as_mut().poll(&mut Context::from_waker(&task)).is_ready());
}

#[test]
fn a_dead_device_ends_every_kind_of_waiting_within_a_second() {
    let (mock, queue) = queue();
    let other = queue.client().async_queue(8, 4096).expect("queue");
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let failed = Arc::new(AtomicBool::new(false));
    let hears = failed.clone();
    let heard: Arc<dyn OnDone> = Arc::new(move |_: u64, result: Result<Completed, Errno>| {
        assert_eq!(result.err(), Some(Errno::IO));
        hears.store(true, SeqCst);
    });
    other.eventfd().expect("eventfd");
    other.nop().expect("room").listed(3);
    other.flush().expect("ours");
    let start = Instant::now();
    std::thread::scope(|scope| {
        let future = scope.spawn(|| block_on(queue.nop().expect("room")));
        let blocked: Vec<_> = (0..3).map(|_| scope.spawn(|| queue.nop().expect("room").wait())).collect();
        queue.nop().expect("room").on_done(heard, 1);
        std::thread::sleep(Duration::from_millis(50));
        assert!(!future.is_finished() && blocked.iter().all(|b| !b.is_finished()));
        mock.behaviour.hung_up.store(true, Relaxed);
        assert_eq!(future.join().expect("thread"), Err(Errno::IO));
        blocked.into_iter().for_each(|b| assert_eq!(b.join().expect("thread"), Err(Errno::IO)));
        assert!(readable(other.eventfd().expect("there"), 900));
    });
    let mut ends = Vec::new();
    other.reap(9, None, |one| ends.push((one.user, one.result.err()))).expect("delivers");
    assert_eq!(ends, [(3, Some(Errno::IO))]);
    while !failed.load(SeqCst) {
        queue.reap(1, None, |_| ()).expect("delivers");
        assert!(start.elapsed() < Duration::from_millis(1_100));
    }
    assert_eq!(queue.nop().err(), Some(Errno::NODEV));
    assert_eq!(queue.persist(|q| q.nop()).err(), Some(Errno::NODEV));
    assert!(start.elapsed() < Duration::from_millis(1_100), "{:?}", start.elapsed());
}

#[test]
fn a_forked_child_keeps_off_its_parents_queue() {
    let (mock, queue) = queue();
    queue.eventfd().expect("eventfd");
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let mut buf = queue.buffer(100).expect("buffer");
    buf.bytes_mut().expect("free").fill(1);
    let mut pending = queue.write(FILE, At::Offset(0), &buf).expect("room");
    // SAFETY: the child only looks at what it inherited, takes no lock of the parent's, and leaves with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = (|| {
            (queue.nop().err()? == Errno::BADF).then_some(())?;
            (queue.eventfd().err()?.raw_os_error()? == Errno::BADF.0).then_some(())?;
            (pending.try_take()?.err()? == Errno::BADF).then_some(())?;
            (buf.bytes().is_empty() && buf.bytes_mut().err()? == Errno::BADF).then_some(())?;
            drop(buf);
            drop(pending);
            drop(queue);
            Some(0)
        })();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code.unwrap_or(1)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the child's checks");
    mock.behaviour.paused.store(false, Relaxed);
    assert_eq!(pending.wait_timeout(SECOND).expect("the parent goes on").len, 100);
}

#[test]
fn a_child_leaves_the_wakers_of_its_parents_queue_alone() {
    let (mock, queue) = queue();
    queue.eventfd().expect("eventfd");
    mock.behaviour.paused.store(true, Relaxed);
    mock.heard();
    let task = Arc::new(Unpark(std::thread::current(), AtomicU64::new(0)));
    let mut pending = queue.nop().expect("room");
    let waker = Waker::from(task.clone());
    assert!(pin!(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    // SAFETY: the child takes no lock of the parent's, and leaves with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(pending);
        drop(queue);
        // An executor's wakers may need locks that a thread of the parent held.
        let code = i32::from(Arc::strong_count(&task) != 2);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the child dropped a waker");
    mock.behaviour.paused.store(false, Relaxed);
    pending.wait_timeout(SECOND).expect("the parent goes on");
}

#[test]
fn a_queue_dropped_while_its_thread_goes_to_sleep_ends() {
    let (mock, client) = rig();
    mock.behaviour.delay_ns.store(60_000, Relaxed);
    for round in 0..1_500u32 {
        let queue = client.async_queue(8, 4096).expect("queue");
        queue.start_reaper().expect("thread");
        queue.nop().expect("room").on_done(Arc::new(|_, _| ()), 0);
        queue.flush().expect("ours");
        let start = Instant::now();
        while start.elapsed() < Duration::from_nanos(u64::from(round % 150) * 1_000) {}
        drop(queue);
    }
    drop(client);
    // Each queue held its client, and so the connector.
    let start = Instant::now();
    while Arc::strong_count(&mock) > 1 {
        assert!(start.elapsed() < 5 * SECOND, "a thread waits for itself");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_eventfd_stays_one_whatever_is_asked_for_at_the_same_moment() {
    let (_mock, client) = rig();
    for _ in 0..600 {
        let queue = client.async_queue(8, 4096).expect("queue");
        let gate = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.wait();
                let started = queue.start_reaper();
                assert!(matches!(started, Ok(()) | Err(Errno::BUSY)), "{started:?}");
            });
            gate.wait();
            queue.eventfd().expect("eventfd");
        });
        assert_eq!(queue.start_reaper(), Err(Errno::BUSY), "completions are signalled by the eventfd");
    }
}

#[test]
fn queue_pairs_come_back_when_the_last_handle_is_gone() {
    let (mock, client) = rig();
    mock.behaviour.queues_max.store(3, Relaxed);
    for round in 0..200 {
        // The library's thread may hold the last reference for a moment, a longer one where every processor is busy.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let queue = loop {
            match client.async_queue(16, 8192) {
                Ok(queue) => break queue,
                Err(e) => assert!(std::time::Instant::now() < until, "the same one again: {e}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        match round % 5 {
            0 => drop(queue.nop().expect("room")),
            1 => drop(queue.eventfd().map(drop)),
            2 => queue.nop().expect("room").listed(1),
            // What it opens is closed, though nothing reaps.
            3 => queue.open("/f", OpenFlags::READ, 0).expect("room").listed(1),
            _ => drop(queue.start_reaper()),
        }
        queue.nop().expect("room").wait().expect("nop");
        drop(queue);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(mock.behaviour.queues.load(Relaxed) <= 3);
    drop(client.async_queue(16, 8192).expect("queue").nop());
    client.raw().nop().expect("and other users find it sound");
}

#[test]
fn many_threads_wait_on_one_queue_and_each_gets_its_own() {
    let (_mock, queue) = queue();
    for threads_of_the_library in [false, true] {
        if threads_of_the_library {
            queue.start_reaper().expect("thread");
        }
        std::thread::scope(|scope| {
            for t in 0..6u64 {
                let queue = queue.durability(Durability::Volatile);
                scope.spawn(move || {
                    for i in 0..400u64 {
                        let mark = (t << 32 | i).to_le_bytes();
                        let at = At::Offset(t * 8);
                        queue.persist(|q| q.write(FILE, at, &mark)).expect("room").wait().expect("write");
                        let read = queue.persist(|q| q.read(FILE, at, 8)).expect("room");
                        let back = if i % 3 == 0 { block_on(read) } else { read.wait() };
                        assert_eq!(back.expect("read").bytes(), mark);
                    }
                });
            }
        });
        assert_eq!(queue.in_flight(), 0);
    }
}
