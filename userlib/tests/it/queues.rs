//! Properties of the client's side of a queue pair: completions reach who waits for them, however late and in
//! whatever order; a dead device is noticed within a second; a forked child never touches its parent's queues.

#[allow(dead_code)] // each test uses what it needs of the device
use crate::mock::Mock;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weldfs::{At, Client, ClientOptions, Command, Errno, Handle, Op, OpenOptions, Payload};

fn client() -> (Arc<Mock>, Client) {
    let mock = Mock::new();
    let client = Client::with(mock.clone()).expect("attach");
    (mock, client)
}

const FILE: Handle = Handle { index: 5, generation: 0 };

#[test]
fn every_thread_gets_its_completions_and_its_own_queue() {
    let (mock, client) = client();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|_| client.raw().nop().expect("nop")));
        }
    });
    assert_eq!(mock.behaviour.answered.load(Relaxed), 2000);
    let made = mock.behaviour.queues.load(Relaxed);
    assert!((1..=4).contains(&made), "{made} queue pairs for 4 threads");
    for _ in 0..8 {
        std::thread::scope(|scope| scope.spawn(|| client.raw().nop()).join().expect("thread").expect("nop"));
    }
    assert!(mock.behaviour.queues.load(Relaxed) <= 4, "queue pairs of finished threads are used again");
}

#[test]
fn more_threads_than_queue_pairs_share_the_last_one() {
    let mock = Mock::new();
    mock.behaviour.queues_max.store(3, Relaxed);
    let client = Client::with(mock.clone()).expect("attach");
    let gate = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                client.raw().nop().expect("nop");
                gate.wait();
                (0..50).for_each(|_| client.raw().nop().expect("nop"));
                let mut buf = client.buffer(4096).expect("buffer");
                buf.bytes_mut().fill(9);
            });
        }
    });
    assert_eq!(mock.behaviour.queues.load(Relaxed), 3);
}

#[test]
fn payload_arrives_intact_whether_copied_gathered_or_in_place() {
    let (_mock, client) = client();
    let raw = client.raw();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let written = raw.write(FILE, At::Offset(0), &data).expect("three pieces");
    assert_eq!((written.len, written.offset), (data.len(), 0));
    let mut back = vec![0; data.len() + 10];
    assert_eq!(raw.read(FILE, At::Offset(0), &mut back).expect("read"), data.len());
    assert_eq!(back[..data.len()], data);

    let parts = [std::io::IoSlice::new(b"abc"), std::io::IoSlice::new(b""), std::io::IoSlice::new(b"defg")];
    raw.write(FILE, At::Offset(10), Payload::Gather(&parts)).expect("gather");
    let (mut one, mut two) = ([0u8; 2], [0u8; 20]);
    let mut room = [std::io::IoSliceMut::new(&mut one), std::io::IoSliceMut::new(&mut two)];
    assert_eq!(raw.read(FILE, At::Offset(10), &mut room[..]).expect("scatter"), 22);
    assert_eq!((&one, &two[..5]), (b"ab", &b"cdefg"[..]));

    let mut buf = client.buffer(64 << 10).expect("buffer");
    buf.bytes_mut().fill(0x5a);
    assert_eq!(raw.write(FILE, At::Offset(4096), buf.slice(100..300)).expect("write").len, 200);
    assert_eq!(raw.read(FILE, At::Offset(4096), &mut buf).expect("read"), 64 << 10);
    assert_eq!(buf.bytes()[..200], [0x5a; 200]);
    assert_eq!(buf.bytes()[200..400], data[4296..4496]);
    assert_eq!(raw.write(FILE, At::Offset(0), buf.slice(0..70_000)).err(), Some(Errno::INVAL));
}

#[test]
fn a_read_whose_later_piece_fails_fails_and_is_not_taken_for_a_short_file() {
    let (mock, client) = client();
    let raw = client.raw();
    let piece = 1 << 20;
    raw.write(FILE, At::Offset(0), &vec![7; 3 * piece]).expect("three pieces");
    let mut room = vec![0; 3 * piece];
    for bad in [1, piece as u64 + 10, 2 * piece as u64] {
        mock.behaviour.unreadable_from.store(bad, Relaxed);
        assert_eq!(raw.read(FILE, At::Offset(0), &mut room).err(), Some(Errno::IO), "unreadable from {bad}");
        let (one, two) = room.split_at_mut(piece / 2);
        let mut parts = [std::io::IoSliceMut::new(one), std::io::IoSliceMut::new(two)];
        assert_eq!(raw.read(FILE, At::Offset(0), &mut parts[..]).err(), Some(Errno::IO), "scattered, {bad}");
        assert_eq!(raw.read(FILE, At::Current, &mut room).err(), Some(Errno::IO), "at the offset, {bad}");
    }
    mock.behaviour.unreadable_from.store(0, Relaxed);
    let mut rest = vec![0; 4 * piece];
    assert_eq!(raw.read(FILE, At::Current, &mut rest).expect("all of it"), 3 * piece, "the offset is where it was");
    assert_eq!(raw.read(FILE, At::Current, &mut rest).expect("the end"), 0);
}

#[test]
fn pool_memory_comes_back_and_two_pools_in_one_call_are_refused() {
    let (_mock, client) = client();
    for _ in 0..1_000 {
        let buf = client.buffer(100 << 10).expect("one of many");
        client.raw().write(FILE, At::Offset(0), &buf).expect("write");
    }
    let other = client.durability(weldfs::Durability::Volatile);
    let small = other.buffer(16).expect("same client, same pool");
    let mut large = client.buffer(3 << 20).expect("moves the thread to a larger pool");
    let flags = weldfs::OpenFlags::READ | weldfs::OpenFlags::WRITE;
    let mixed = client.open_read_write_close("x", flags, 0o600, 0, &mut large, At::End, &small);
    assert_eq!(mixed.err(), Some(Errno::INVAL));
    assert!(client.buffer(65 << 20).is_err(), "more than a pool can be");
}

#[test]
fn pipelined_commands_complete_whatever_order_they_are_redeemed_in() {
    let (_mock, client) = client();
    let mut queue = client.queue(8, 64 << 10).expect("queue");
    for round in 0..50 {
        let mut tickets: Vec<_> = (0..8).map(|_| queue.submit(&Command::new(0, Op::Nop)).expect("room")).collect();
        assert_eq!(queue.submit(&Command::new(0, Op::Nop)).err(), Some(Errno::AGAIN));
        if round % 2 == 0 {
            tickets.reverse();
        }
        for ticket in tickets {
            let cqe = queue.wait(ticket).expect("completion");
            assert_eq!((cqe.sequence, cqe.status), (ticket.sequence(), 0));
            assert_eq!(queue.wait(ticket).err(), Some(Errno::INVAL), "redeemed once");
        }
    }
    let tickets: Vec<_> = (0..5).map(|_| queue.submit(&Command::new(0, Op::Nop)).expect("room")).collect();
    queue.flush();
    let mut reaped = 0;
    while reaped < tickets.len() {
        queue.await_any().expect("alive");
        reaped += usize::from(queue.reap().expect("alive").is_some());
    }
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_slow_device_is_waited_for_asleep() {
    let (mock, client) = client();
    mock.behaviour.delay_ns.store(30_000_000, Relaxed);
    client.raw().nop().expect("attach and first queue");
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let before = cpu();
    (0..5).for_each(|_| client.raw().nop().expect("slow nop"));
    let after = cpu();
    let used_ns = (after.tv_sec - before.tv_sec) * 1_000_000_000 + (after.tv_nsec - before.tv_nsec);
    assert!(used_ns < 20_000_000, "150 ms of waiting took {used_ns} ns of CPU");
}

#[test]
fn a_sleeping_device_is_rung_awake() {
    let (mock, client) = client();
    client.raw().nop().expect("first");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        std::thread::sleep(Duration::from_millis(60));
        let (before, start) = (mock.behaviour.rings.load(Relaxed), Instant::now());
        client.raw().nop().expect("the bell was heard");
        assert!(start.elapsed() < Duration::from_millis(500));
        if mock.behaviour.rings.load(Relaxed) > before {
            break;
        }
        assert!(start < until, "it sleeps at some time, and is rung for");
    }
}

#[test]
fn a_device_that_dies_is_noticed_within_a_second_also_asleep() {
    let (mock, client) = client();
    client.raw().nop().expect("alive");
    mock.behaviour.mute.store(true, Relaxed);
    let killer = std::thread::spawn({
        let behaviour = mock.behaviour.clone();
        move || {
            std::thread::sleep(Duration::from_millis(200));
            behaviour.hung_up.store(true, Relaxed);
            Instant::now()
        }
    });
    let error = client.raw().nop().expect_err("no answer ever comes");
    let died = killer.join().expect("killer");
    assert_eq!(error, Errno::IO, "the outcome of the command in flight is unknown");
    assert!(died.elapsed() < Duration::from_secs(1), "noticed after {:?}", died.elapsed());
    assert_eq!(client.raw().nop().err(), Some(Errno::NODEV), "later ones say that nobody is there");
    mock.behaviour.mute.store(false, Relaxed);
    mock.behaviour.hung_up.store(false, Relaxed);
    client.reconnect().expect("a new device");
    client.raw().nop().expect("works again");
}

#[test]
fn a_completion_nobody_asked_for_is_an_error_not_a_result() {
    let (mock, client) = client();
    client.raw().nop().expect("honest");
    mock.behaviour.lie.store(true, Relaxed);
    assert_eq!(client.raw().nop().err(), Some(Errno::IO));
    assert_eq!(client.raw().nop().err(), Some(Errno::NODEV), "a queue that lied is not trusted again");
}

#[test]
fn a_failed_command_gives_the_devices_errno() {
    let (_mock, client) = client();
    let error = client.remove_file("nowhere").expect_err("unlink fails in the mock");
    assert_eq!(error.raw_os_error(), Some(Errno::NOENT.0));
    assert_eq!(client.statfs().expect_err("unknown").raw_os_error(), Some(Errno::NOSYS.0));
}

#[test]
fn a_forked_child_attaches_anew_and_keeps_off_its_parents_files() {
    let (mock, client) = client();
    let file = OpenOptions::new().read(true).open(&client, "seven77").expect("open");
    let buf = client.buffer(4096).expect("buffer");
    // SAFETY: the child runs only the client and leaves with _exit; the mock's locks are not held by this thread,
    // and its device thread takes only locks that the child makes anew by attaching.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = (|| {
            if file.read_at(&mut [0u8; 4], 0).err()?.raw_os_error() != Some(Errno::BADF.0) {
                return None;
            }
            (buf.bytes().is_empty() && buf.get(0, &mut [0; 1]) == Err(Errno::BADF)).then_some(())?;
            client.raw().nop().ok()?;
            (0..100).try_for_each(|_| client.raw().nop()).ok()?;
            drop(buf);
            Some(0)
        })();
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(code.unwrap_or(1)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the child's checks");
    client.raw().nop().expect("the parent goes on");
    assert_eq!(file.read_at(&mut [0u8; 4], 0).expect("and so do its files"), 0);
    assert!(mock.behaviour.answered.load(Relaxed) < 100, "the parent's device heard nothing of the child");
}

#[test]
fn small_pools_are_outgrown_once() {
    let mock = Mock::new();
    let options = ClientOptions { pool_bytes: 8192, ..ClientOptions::default() };
    let client = Client::with_options(mock.clone(), options).expect("attach");
    client.raw().write(FILE, At::Offset(0), &[1; 4096]).expect("fits");
    assert_eq!(mock.behaviour.queues.load(Relaxed), 1);
    for _ in 0..10 {
        client.raw().write(FILE, At::Offset(0), &vec![2; 1 << 20]).expect("a larger pool");
    }
    assert_eq!(mock.behaviour.queues.load(Relaxed), 2);
}
