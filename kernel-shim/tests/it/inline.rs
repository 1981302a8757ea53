//! An embedded device whose commands run on the threads that call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use weldfs::{
    At, AttachOptions, ChecksumKind, Client, Command, Connector, Durability, Errno, LockKind, Op, OpenOptions,
    PoolRange, Queue, Transport,
};
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::ring::word::SQ_TAIL;
use weldfs_ciscops::{Handle, SharedRegion, Sqe};
use weldfs_device::{Device, DeviceConfig, Seated};
use weldfs_journal::{SeededRandom, SystemClock};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::{ImageKind, create};
use weldfs_store::mount::{MkfsOptions, format};

const FLAGS: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);

fn ram() -> Embedded {
    Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).expect("opens")
}

fn attach(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).expect("attaches")
}

fn sleeps(device: &Embedded) -> u64 {
    device.device().stats().cores.iter().map(|c| c.totals.sleeps).sum()
}

#[test]
fn commands_of_one_thread_do_not_wake_the_device_s_own() {
    let device = ram();
    let client = attach(&device);
    let file = client.open("/f", &OpenOptions::new().read(true).write(true).create(true)).expect("opens");
    // Its first sleep, and those of the attachment.
    std::thread::sleep(Duration::from_millis(50));
    let before = sleeps(&device);
    for n in 0..2000u64 {
        let block = [n as u8; 512];
        file.write_all_at(&block, n % 64 * 512).expect("writes");
        let mut back = [0; 512];
        file.read_exact_at(&mut back, n % 64 * 512).expect("reads");
        assert_eq!(back, block);
    }
    // A checkpoint of its own accord, or a look at what is at rest, may be among them.
    let woken = sleeps(&device) - before;
    assert!(woken < 20, "the device's own thread was woken {woken} times for 4,000 commands");
    device.close().expect("ends");
}

#[test]
fn many_threads_share_the_core_and_each_gets_what_it_wrote() {
    let device = ram();
    std::thread::scope(|s| {
        for t in 0..8u64 {
            let device = &device;
            s.spawn(move || {
                let client = attach(device);
                let path = format!("/t{t}");
                let file = client.open(&path, &OpenOptions::new().read(true).write(true).create(true)).expect("opens");
                for n in 0..1500u64 {
                    let block = [(t * 31 + n) as u8; 700];
                    let durability = if n % 16 == 0 { Durability::Durable } else { Durability::Volatile };
                    file.append_with(&block[..], durability).expect("appends");
                    let mut back = [0; 700];
                    file.read_exact_at(&mut back, n * 700).expect("reads");
                    assert_eq!(back, block, "thread {t}, record {n}");
                    if n % 8 == 0 {
                        // One inode for all of them, held alone by each.
                        client.write("/shared", &block).expect("replaces");
                        let shared = client.read("/shared").expect("reads");
                        assert!(shared.iter().all(|b| *b == shared[0]), "half of one and half of another");
                    }
                }
                assert_eq!(file.metadata().expect("stat").len(), 1500 * 700);
            });
        }
    });
    device.close().expect("ends");
}

#[test]
fn commands_that_wait_for_a_disk_end_while_no_thread_is_on_the_seat() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    let medium = create(&image, ImageKind::Block, 64 << 20, false).expect("creates");
    format(&medium, &MkfsOptions::default(), &SystemClock, &SeededRandom::new(1)).expect("formats");
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    drop(medium);
    let source = Source::Image(image);
    let open =
        || Embedded::open(&source, DeviceConfig { memory_bytes: 16 << 20, ..DeviceConfig::default() }).expect("opens");
    let device = open();
    let client = attach(&device);
    for n in 0..40u8 {
        client.write(format!("/f{n}"), &vec![n; 300_000]).expect("writes");
    }
    client.sync().expect("durable");
    drop(client);
    device.close().expect("ends");
    drop(device);
    // Everything is cold now, and more than the caches take: reads wait for the disk, appends for its flush.
    let device = open();
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let device = &device;
            s.spawn(move || {
                let client = attach(device);
                for n in 0..40u8 {
                    let at = (n + t * 10) % 40;
                    assert_eq!(client.read(format!("/f{at}")).expect("reads"), vec![at; 300_000]);
                    let log =
                        client.open(format!("/log{t}"), &OpenOptions::new().append(true).create(true)).expect("log");
                    log.append_with(&[n][..], Durability::Durable).expect("appends");
                }
            });
        }
    });
    device.close().expect("ends");
}

/// What is short is over when `flush` returns; what takes long goes on by itself.
#[test]
fn a_flush_does_what_is_short_and_does_not_wait_for_what_takes_long() {
    let device = ram();
    let client = attach(&device);
    let file = client.open("/f", &OpenOptions::new().read(true).write(true).create(true)).expect("opens");
    let mut queue = client.queue(16, 1 << 20).expect("a queue pair");
    let h = file.handle();
    // The device's own thread may have the core just then, and is preempted there where machines are busy: what it
    // has taken over is waited for, and tried again.
    let over_at_once = |n: u64| {
        let sent = queue.submit(&Command::new(0, Op::Truncate { h, size: (1 << 40) + n })).expect("submits");
        queue.flush();
        let over = queue.poll(sent).expect("answers").is_some();
        if !over {
            queue.wait(sent).expect("answers");
        }
        over
    };
    assert!((0..200).any(over_at_once), "a truncation is short");
    let long = Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 0, len: 1 << 40 };
    let sent: Vec<_> = (0..8).map(|_| queue.submit(&Command::new(0, long)).expect("submits")).collect();
    let start = Instant::now();
    queue.flush();
    assert!(start.elapsed() < Duration::from_secs(5), "a flush waited for a checksum of a TiB");
    assert!(queue.poll(sent[7]).expect("answers").is_none());
}

#[test]
fn commands_in_flight_are_run_whether_or_not_they_are_waited_for() {
    let device = ram();
    let client = attach(&device);
    let file = client.open("/f", &OpenOptions::new().read(true).write(true).create(true)).expect("opens");
    let mut queue = client.queue(64, 1 << 20).expect("a queue pair");
    let src = queue.stage(&[7; 4096]).expect("room");
    for round in 0..200u64 {
        for n in 0..48 {
            let op = Op::Write { h: file.handle(), at: At::Offset(n * 4096), src };
            queue.submit(&Command::new(0, op)).expect("submits");
        }
        queue.flush();
        if round % 2 == 0 {
            // Not waited for: the device's own thread runs them.
            let start = Instant::now();
            let mut landed = 0;
            while landed < 48 {
                assert!(start.elapsed() < Duration::from_secs(20), "{landed} of 48");
                landed += usize::from(queue.reap().expect("answers").is_some());
            }
        } else {
            for _ in 0..48 {
                queue.await_any().expect("answers");
                while let Some(cqe) = queue.reap().expect("answers") {
                    assert_eq!(cqe.status, 0);
                }
                if queue.in_flight() == 0 {
                    break;
                }
            }
        }
        assert_eq!(queue.in_flight(), 0);
    }
    drop(queue);
    device.close().expect("ends");
}

#[test]
fn a_lock_that_is_waited_for_comes_when_its_holder_gives_it_back() {
    let device = ram();
    let (one, two) = (attach(&device), attach(&device));
    let options = OpenOptions::new().read(true).write(true).create(true);
    let (mine, other) = (one.open("/f", &options).expect("opens"), two.open("/f", &options).expect("opens"));
    mine.try_lock(LockKind::Write).expect("locks");
    std::thread::scope(|s| {
        let waits = s.spawn(|| other.lock(LockKind::Write));
        std::thread::sleep(Duration::from_millis(30));
        mine.try_lock(LockKind::Unlock).expect("unlocks");
        waits.join().expect("no panic").expect("locks");
    });
}

#[test]
fn a_call_of_a_thread_that_is_running_the_device_is_refused() {
    let device = ram();
    let client = attach(&device);
    client.write("/f", b"x").expect("writes");
    let mut queue = client.queue(8, 4096).expect("a queue pair");
    let mut asked = false;
    let start = Instant::now();
    // The core's own thread may be faster; then there is nothing to run here.
    while !asked {
        assert!(start.elapsed() < Duration::from_secs(20), "it never runs here");
        queue.submit(&Command::new(0, Op::Nop)).expect("submits");
        queue.flush();
        let ran = device.device().run_here(&mut || {
            // As in a signal handler that interrupts it.
            assert!(Device::is_inside());
            let refused = client.read("/f").expect_err("it would wait for itself");
            assert_eq!(refused.raw_os_error(), Some(Errno::BUSY.0));
            asked = true;
            true
        });
        assert_ne!(ran, Seated::None);
        while queue.reap().expect("answers").is_none() {}
    }
    assert!(!Device::is_inside());
    assert_eq!(client.read("/f").expect("reads"), b"x");
}

#[test]
fn a_forked_child_has_no_part_in_the_device_of_its_parent() {
    // In a process of its own: a child has a copy of every descriptor, those of images of other tests among them.
    let mut parent = std::process::Command::new(std::env::current_exe().expect("this program"));
    parent.args(["--exact", "inline::a_parent_that_forks", "--nocapture", "--ignored"]);
    let out = parent.output().expect("starts");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
#[ignore = "not a test: a process that the test above starts"]
fn a_parent_that_forks() {
    let device = ram();
    let client = attach(&device);
    client.write("/f", b"parent").expect("writes");
    // SAFETY: the child uses memory of its own, takes no lock that another thread of the parent may hold (the seat is
    // free, this thread is the only client), and leaves with _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Whatever it tries, it must not run a copy of the device over its parent's image, and must not wait.
        let refused = client.write("/f", b"child").is_err_and(|e| e.raw_os_error() == Some(Errno::NODEV.0));
        let also = Client::with(Arc::new(device.clone())).is_err();
        drop((client, device));
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(!(refused && also))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above, into a local.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "the child got at its parent's device");
    assert_eq!(client.read("/f").expect("the parent goes on"), b"parent");
}

#[test]
fn a_device_that_ends_beside_its_callers_leaves_none_waiting() {
    for round in 0..10 {
        let device = ram();
        let (stop, clients) = (AtomicBool::new(false), (0..3).map(|_| attach(&device)).collect::<Vec<_>>());
        std::thread::scope(|s| {
            for (t, client) in clients.iter().enumerate() {
                let stop = &stop;
                s.spawn(move || {
                    let mut written = 0u32;
                    while client.write(format!("/t{t}"), &written.to_le_bytes()).is_ok() {
                        assert!(!stop.load(SeqCst) || written < u32::MAX);
                        written += 1;
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(5 + round));
            device.close().expect("ends");
            stop.store(true, SeqCst);
        });
    }
}

#[test]
fn a_device_of_two_cores_or_that_is_told_so_runs_on_threads_of_its_own() {
    let two = DeviceConfig { cores: 2, ..DeviceConfig::default() };
    let told = DeviceConfig { inline: Some(false), ..DeviceConfig::default() };
    for config in [two, told] {
        let device = Embedded::open(&Source::Ram(32 << 20), config).expect("opens");
        assert!(!device.device().is_inline());
        let client = attach(&device);
        client.write("/f", b"x").expect("writes");
        assert_eq!(device.device().run_here(&mut || true), Seated::None);
        device.close().expect("ends");
    }
}

/// A queue pair, its number and that of its session, and its memory.
fn pair(device: &Embedded) -> (Queue, (u64, u32), SharedRegion) {
    let transport: Arc<dyn Transport> = Arc::from(device.attach(&AttachOptions::default()).expect("attaches"));
    let parts = transport.new_queue(8, 1 << 16).expect("a queue pair");
    let (number, region) = ((transport.info().session, parts.index), parts.region.clone());
    (Queue::new(parts, transport).expect("its end"), number, region)
}

/// Entries that were put into its ring.
fn entries(region: &SharedRegion) -> u32 {
    let mut tail = [0; 4];
    region.bytes(SQ_TAIL, 4).expect("its header").copy_to(&mut tail);
    u32::from_le_bytes(tail)
}

fn commands(device: &Embedded) -> u64 {
    device.device().stats().total.commands
}

#[test]
fn a_call_that_waits_for_nothing_goes_past_the_ring_and_is_counted() {
    let device = ram();
    let (mut queue, _, region) = pair(&device);
    let (out, path, src) = (queue.alloc(256).unwrap(), queue.stage(b"f").unwrap(), queue.stage(&[5; 300]).unwrap());
    let open = Op::open(Handle::ROOT, path, FLAGS, 0o600);
    let h = Handle::from_wire(queue.execute(&Command::new(0, open)).expect("opens").result);
    let (before, mut calls, mut past, start) = (commands(&device), 0, 0, Instant::now());
    // The device's own thread may have the core just then, or be about to take what it was told.
    while past < 300 {
        assert!(start.elapsed() < Duration::from_secs(20), "{past} of {calls} calls went past the ring");
        for op in [Op::Nop, Op::Write { h, at: At::End, src }, Op::Stat { h, out }] {
            let tail = entries(&region);
            let cqe = queue.execute(&Command::new(0, op)).expect("an answer");
            assert_eq!((cqe.status, cqe.sequence + 1), (0, queue.next_sequence()));
            calls += 1;
            past += u64::from(entries(&region) == tail);
        }
    }
    assert_eq!(commands(&device) - before, calls);
    let size = queue.execute(&Command::new(0, Op::Write { h, at: At::End, src })).expect("an answer").result2;
    assert_eq!(size, calls / 3 * 300, "each write was done once");
    // Behind one that is in flight, and one that is refused, go through the ring.
    let tail = entries(&region);
    let first = queue.submit(&Command::new(0, Op::Write { h, at: At::End, src })).expect("submits");
    let second = queue.execute(&Command::new(0, Op::Write { h, at: At::End, src })).expect("an answer");
    assert_eq!(second.result2, queue.wait(first).expect("an answer").result2 + 300);
    let refused = queue.execute(&Command::new(0, Op::Truncate { h, size: u64::MAX })).expect("an answer");
    assert_eq!((refused.status, entries(&region) - tail), (Errno::INVAL.0, 3));
}

#[test]
fn what_is_called_past_the_ring_is_believed_no_more_than_what_comes_through_it() {
    let device = ram();
    let (mut queue, (session, index), _) = pair(&device);
    let nop = queue.execute(&Command::new(0, Op::Nop)).expect("an answer");
    let good = Command::new(7, Op::Nop).encode();
    let start = Instant::now();
    let called = loop {
        assert!(start.elapsed() < Duration::from_secs(20), "the core is never free");
        if let Some(cqe) = device.device().call_here((session, index), &good) {
            break cqe;
        }
    };
    assert_eq!((called.status, called.sequence, nop.status), (0, 7, 0));
    let out = PoolRange { off: (1 << 16) - 8, len: 256 };
    let beyond = Command::new(7, Op::Stat { h: Handle::ROOT, out }).encode();
    let wrong = [Sqe { opcode: 0x7fff, ..good }, Sqe { flags: u16::MAX, ..good }, Sqe { offset: 1, ..good }, beyond];
    for _ in 0..1000 {
        assert!(wrong.iter().all(|entry| device.device().call_here((session, index), entry).is_none()));
        assert!(device.device().call_here((session + 1, index), &good).is_none());
        assert!(device.device().call_here((session, index + 1), &good).is_none());
    }
}

/// Says so when it is dropped, in a panic, too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_session_that_ends_amid_its_calls_leaves_none_waiting_and_the_others_theirs() {
    const ROUNDS: u64 = 100;
    let device = ram();
    let (stayed, ended) = (std::sync::atomic::AtomicU64::new(0), AtomicBool::new(false));
    let mut answered = 0;
    std::thread::scope(|s| {
        let over = Over(&ended);
        // One that stays, and appends at most 10 MB.
        s.spawn(|| {
            let (mut queue, _, region) = pair(&device);
            let (out, src) = (queue.alloc(256).unwrap(), queue.stage(&[7; 100]).unwrap());
            let path = queue.stage(b"s").unwrap();
            let open = Op::open(Handle::ROOT, path, FLAGS, 0o600);
            let h = Handle::from_wire(queue.execute(&Command::new(0, open)).expect("opens").result);
            let (mut written, mut past, start) = (0, 0, Instant::now());
            while !ended.load(SeqCst) || past == 0 {
                assert!(past > 0 || start.elapsed() < Duration::from_secs(60), "no call went past the ring");
                let tail = entries(&region);
                assert_eq!(queue.execute(&Command::new(0, Op::Stat { h, out })).expect("an answer").status, 0);
                if written < 10_000_000 {
                    let put = queue.execute(&Command::new(0, Op::Write { h, at: At::End, src })).expect("an answer");
                    assert_eq!((put.status, put.result, put.result2), (0, 100, written), "each is done once");
                    written += 100;
                }
                past += u64::from(entries(&region) == tail);
            }
            stayed.store(written, SeqCst);
        });
        for round in 0..ROUNDS {
            let transport: Arc<dyn Transport> = Arc::from(device.attach(&AttachOptions::default()).expect("attaches"));
            let parts = transport.new_queue(8, 1 << 16).expect("a queue pair");
            let mut queue = Queue::new(parts, transport.clone()).expect("its end");
            let begun = Arc::new(AtomicBool::new(false));
            let (say, path, src) = (begun.clone(), queue.stage(b"t").unwrap(), queue.stage(&[9; 100]).unwrap());
            let caller = std::thread::spawn(move || {
                let _say = Over(&say);
                let (base, mode, at) = (Handle::ROOT, 0o600, At::End);
                let op = Op::OpenWriteClose { base, path, flags: FLAGS, mode, at, src };
                // Until its session is over.
                for done in 0.. {
                    match queue.execute(&Command::new(0, op)) {
                        Ok(cqe) if cqe.status == 0 => say.store(true, SeqCst),
                        Ok(cqe) => return (done, Errno(cqe.status)),
                        Err(e) => return (done, e),
                    }
                }
                unreachable!("the calls end with their session")
            });
            while !begun.load(SeqCst) {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_micros(50 * (round % 7)));
            transport.detach();
            let (done, why) = caller.join().expect("its calls end");
            let gone = [Errno::IO, Errno::NODEV].contains(&why);
            assert!(done > 0 && gone, "round {round}: {done} calls, then {why:?}");
            answered += done;
        }
        drop(over);
    });
    assert_eq!(attach(&device).metadata("/s").expect("is there").len(), stayed.load(SeqCst));
    // What was under way when the session ended was done or was not, once.
    let done = attach(&device).metadata("/t").expect("is there").len();
    assert!(done.is_multiple_of(100) && (answered..=answered + ROUNDS).contains(&(done / 100)), "{done}, {answered}");
    device.close().expect("ends");
}
