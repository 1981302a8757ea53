//! Sessions come and go: what they share (open file descriptions, locks, the order of commands), and that they leave
//! nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{
    At, AttachOptions, ChecksumKind, Client, Command, Connector, Errno, Handle, LockKind, LockSpace, Op, OpenFlags,
    OpenOptions, PoolRange, Queue, Transport, TxnMode,
};
use weldfs_ciscops::limits;
use weldfs_ciscops::program::text::parse;
use weldfs_device::{DeviceConfig, Profile, Usage};
use weldfs_journal::{SystemClock, SystemRandom};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::ImageKind;
use weldfs_store::mount::{MkfsOptions, format};
use zerocopy::IntoBytes;

fn device(cores: usize) -> Embedded {
    Embedded::open(&Source::Ram(128 << 20), DeviceConfig { cores, ..DeviceConfig::default() }).unwrap()
}

fn attach(embedded: &Embedded) -> Arc<dyn Transport> {
    Arc::from(embedded.attach(&AttachOptions::default()).unwrap())
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

/// An open that a placeholder is to stand for.
fn bound(path: PoolRange, placeholder: u32) -> Op {
    Op::Open { base: Handle::ROOT, path, flags: RW, mode: 0o644, placeholder, look: PoolRange::EMPTY, watch: 0 }
}

#[test]
fn a_claimed_description_shares_its_offset_and_outlives_the_first_handle() {
    let embedded = device(1);
    let (a, b) = (attach(&embedded), attach(&embedded));
    let mut qa = Queue::new(a.new_queue(8, 1 << 16).unwrap(), a.clone()).unwrap();
    let mut qb = Queue::new(b.new_queue(8, 1 << 16).unwrap(), b.clone()).unwrap();
    let placeholder = a.placeholders(1).unwrap().remove(0);
    let path = qa.stage(b"/shared").unwrap();
    let open = bound(path, placeholder.id);
    let ha = Handle::from_wire(qa.execute(&Command::new(0, open)).unwrap().ok().unwrap().0);
    let src = qa.stage(b"first;").unwrap();
    qa.execute(&Command::new(0, Op::Write { h: ha, at: At::Current, src })).unwrap().ok().unwrap();

    let mut byte = [0; 1];
    assert!(rustix::io::read(&placeholder.fd, &mut byte).is_err(), "an un-hooked read fails loudly");
    assert!(rustix::io::write(&placeholder.fd, b"x").is_err(), "an un-hooked write fails loudly");

    let claimed = b.claim(std::os::fd::AsFd::as_fd(&placeholder.fd), false).unwrap();
    assert_eq!(claimed.mode & 0o777, 0o644);
    let src = qb.stage(b"second").unwrap();
    qb.execute(&Command::new(0, Op::Write { h: claimed.handle, at: At::Current, src })).unwrap().ok().unwrap();
    // One of its own: the same file, another offset.
    let own = b.claim(std::os::fd::AsFd::as_fd(&placeholder.fd), true).unwrap();
    assert_eq!((own.mode, own.flags & RW), (claimed.mode, claimed.flags & RW));
    let out = qb.alloc(64).unwrap();
    let read = Command::new(0, Op::Read { h: own.handle, at: At::Current, out, watch: 0 });
    let n = qb.execute(&read).unwrap().ok().unwrap().0;
    assert_eq!(qb.pool().slice(out).unwrap().to_vec()[..n as usize], *b"first;second");
    qb.execute(&Command::new(0, Op::Close { h: own.handle })).unwrap().ok().unwrap();
    qa.execute(&Command::new(0, Op::Close { h: ha })).unwrap().ok().unwrap();
    let out = qb.alloc(64).unwrap();
    let n = qb
        .execute(&Command::new(0, Op::Read { h: claimed.handle, at: At::Offset(0), out, watch: 0 }))
        .unwrap()
        .ok()
        .unwrap()
        .0;
    assert_eq!(qb.pool().slice(out).unwrap().to_vec()[..n as usize], *b"first;second");

    // Both sessions end; only the descriptor holds the description now, and a third session can take it over.
    drop((qa, qb));
    a.detach();
    b.detach();
    wait_for("both sessions end", || embedded.device().usage().sessions == 0);
    assert_eq!(embedded.device().usage().open_files, 1);
    let c = attach(&embedded);
    c.claim(std::os::fd::AsFd::as_fd(&placeholder.fd), false).unwrap();
    c.detach();
    drop(placeholder);
    wait_for("the description goes with its last copy", || embedded.device().usage() == Usage::default());
}

#[test]
fn a_descriptor_that_is_no_placeholder_cannot_be_claimed() {
    let embedded = device(1);
    let t = attach(&embedded);
    let file = tempfile::tempfile().unwrap();
    assert_eq!(t.claim(std::os::fd::AsFd::as_fd(&file), false).unwrap_err(), Errno::BADF);
    let unused = t.placeholders(1).unwrap().remove(0);
    assert_eq!(t.claim(std::os::fd::AsFd::as_fd(&unused.fd), true).unwrap_err(), Errno::BADF, "nothing is open on it");
}

#[test]
fn handles_of_one_session_mean_nothing_in_another_and_stale_ones_nothing_at_all() {
    let embedded = device(1);
    let (a, b) = (Client::with(Arc::new(embedded.clone())).unwrap(), Client::with(Arc::new(embedded.clone())).unwrap());
    let file = a.create("/f").unwrap();
    let h = file.handle();
    assert_eq!(b.raw().stat(h).unwrap_err(), Errno::BADF);
    drop(file);
    assert_eq!(a.raw().stat(h).unwrap_err(), Errno::BADF);
    let again = a.create("/f").unwrap();
    assert_eq!(again.handle().index, h.index, "the slot is used again");
    assert_eq!(a.raw().stat(h).unwrap_err(), Errno::BADF, "under another generation");
}

#[test]
fn a_session_that_ends_gives_back_its_locks() {
    let embedded = device(1);
    let a = Client::with(Arc::new(embedded.clone())).unwrap();
    let b = Client::with(Arc::new(embedded.clone())).unwrap();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let (fa, fb) = (a.open("/f", &options).unwrap(), b.open("/f", &options).unwrap());
    for space in [LockSpace::Process, LockSpace::Flock] {
        a.raw().lock_set(fa.handle(), space, LockKind::Write, 0, 0, 1).unwrap();
        assert_eq!(b.raw().lock_set(fb.handle(), space, LockKind::Read, 0, 0, 1).unwrap_err(), Errno::AGAIN);
    }
    drop((fa, a));
    wait_for("the locks go", || embedded.device().usage().locks == 0);
    for space in [LockSpace::Process, LockSpace::Flock] {
        b.raw().lock_set(fb.handle(), space, LockKind::Write, 0, 0, 1).unwrap();
    }
}

#[test]
fn closing_any_handle_gives_back_the_process_locks_of_the_file() {
    let embedded = device(1);
    let a = Client::with(Arc::new(embedded.clone())).unwrap();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let (one, two) = (a.open("/f", &options).unwrap(), a.open("/f", &options).unwrap());
    a.raw().lock_set(one.handle(), LockSpace::Process, LockKind::Write, 10, 5, 7).unwrap();
    two.close().unwrap();
    assert_eq!(embedded.device().usage().locks, 0);
}

#[test]
fn commands_published_before_a_session_ended_are_executed() {
    let embedded = device(2);
    for round in 0..50 {
        let t = attach(&embedded);
        let mut q = Queue::new(t.new_queue(64, 1 << 16).unwrap(), t.clone()).unwrap();
        let path = q.stage(format!("/log{round}").as_bytes()).unwrap();
        let src = q.stage(b"12345678").unwrap();
        for _ in 0..40 {
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at: At::End, src };
            q.submit(&Command::new(0, op)).unwrap();
        }
        q.flush();
        // Gone without having looked at one completion.
        t.detach();
        drop(q);
    }
    wait_for("all sessions end", || embedded.device().usage() == Usage::default());
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    for round in 0..50 {
        assert_eq!(client.metadata(format!("/log{round}")).unwrap().len(), 320);
    }
}

#[test]
fn commands_of_one_queue_on_one_file_run_in_order() {
    let embedded = device(4);
    let clients: Vec<_> = (0..4u32)
        .map(|n| {
            let t = attach(&embedded);
            std::thread::spawn(move || {
                let mut q = Queue::new(t.new_queue(64, 1 << 16).unwrap(), t.clone()).unwrap();
                let path = q.stage(format!("/order{n}").as_bytes()).unwrap();
                let open = Op::open(Handle::ROOT, path, RW, 0o600);
                let h = Handle::from_wire(q.execute(&Command::new(0, open)).unwrap().ok().unwrap().0);
                let mut flying = std::collections::VecDeque::new();
                for i in 0..4000u32 {
                    if flying.len() == 64 {
                        let (ticket, src) = flying.pop_front().unwrap();
                        q.wait(ticket).unwrap().ok().unwrap();
                        q.free(src);
                    }
                    let src = q.stage(&i.to_le_bytes()).unwrap();
                    let ticket = q.submit(&Command::new(0, Op::Write { h, at: At::Current, src })).unwrap();
                    flying.push_back((ticket, src));
                    if i % 7 == 0 {
                        q.flush();
                    }
                }
                for (ticket, _) in flying {
                    q.wait(ticket).unwrap().ok().unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    for n in 0..4 {
        let bytes = client.read(format!("/order{n}")).unwrap();
        let got: Vec<u32> = bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        assert!(got == (0..4000).collect::<Vec<_>>(), "file {n} holds the writes in submission order");
    }
}

#[test]
fn a_fused_step_on_one_file_is_atomic_between_clients_on_several_threads() {
    let embedded = device(4);
    Client::with(Arc::new(embedded.clone())).unwrap().write("/counter", &0u64.to_le_bytes()).unwrap();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let connector = Arc::new(embedded.clone());
            std::thread::spawn(move || {
                let client = Client::with(connector).unwrap();
                let file = client.open("/counter", &OpenOptions::new().read(true).write(true)).unwrap();
                for _ in 0..1000 {
                    file.read_modify_write(0, weldfs::Change::Add { by: 1, width: 8 }, None).unwrap();
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    assert_eq!(client.read("/counter").unwrap(), 4000u64.to_le_bytes());
}

#[test]
fn nobody_sees_the_middle_of_a_fused_command_that_commits_in_steps() {
    const N: usize = 400;
    const RECORD: u64 = 5000;
    let embedded = device(3);
    let connect = || Client::with(Arc::new(embedded.clone())).unwrap();
    let rw = OpenOptions::new().read(true).write(true).create(true).to_owned();
    connect().open("/log", &rw).unwrap();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (client, done, rw) = (connect(), done.clone(), rw.clone());
            std::thread::spawn(move || {
                let (log, mut seen) = (client.open("/log", &rw).unwrap(), 0);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let size = log.metadata().unwrap().len();
                    assert_eq!(size % RECORD, 0, "a payload never stands without its checksum");
                    match client.read(format!("/new{seen}")) {
                        Ok(bytes) => {
                            assert_eq!(bytes, b"content", "a new file never stands without its content");
                            seen += 1;
                        }
                        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::NotFound),
                    }
                }
            })
        })
        .collect();
    let client = connect();
    let log = client.open("/log", &rw).unwrap();
    for n in 0..N {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        client.open_write_close(format!("/new{n}"), flags, 0o600, At::Offset(0), b"content").unwrap();
        log.append_checksum_write(&vec![n as u8; RECORD as usize - 4][..]).unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    readers.into_iter().for_each(|r| r.join().unwrap());
}

#[test]
fn a_completion_says_which_steps_stand_in_both_modes() {
    let embedded = device(1);
    let a = attach(&embedded);
    let mut q = Queue::new(a.new_queue(8, 1 << 16).unwrap(), a.clone()).unwrap();
    let (path, src) = (q.stage(b"/new").unwrap(), q.stage(b"x").unwrap());
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let at = At::Offset(weldfs_fs::FILE_BYTES_MAX);
    let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at, src };
    let look = Op::StatPath { base: Handle::ROOT, path, nofollow: true, out: q.alloc(256).unwrap() };
    for (mode, stands, exists) in [(TxnMode::Macro, 0, Errno::NOENT.0), (TxnMode::Micro, 1, 0)] {
        let cqe = q.execute(&Command::new(0, op).with_mode(mode)).unwrap();
        assert_eq!((cqe.status, cqe.micro_done, cqe.micro_failed), (Errno::FBIG.0, stands, 2), "{mode:?}");
        assert_eq!(q.execute(&Command::new(0, look)).unwrap().status, exists, "{mode:?}");
    }
}

#[test]
fn renames_and_creations_in_the_same_folders_from_many_clients_neither_deadlock_nor_lose_names() {
    let embedded = device(3);
    let setup = Client::with(Arc::new(embedded.clone())).unwrap();
    for d in 0..3 {
        setup.create_dir(format!("/d{d}")).unwrap();
    }
    let clients: Vec<_> = (0..4usize)
        .map(|n| {
            let connector = Arc::new(embedded.clone());
            std::thread::spawn(move || {
                let client = Client::with(connector).unwrap();
                client.create_dir(format!("/d0/own{n}")).unwrap();
                for i in 0..300usize {
                    let (from, to) = (i % 3, (i + 1) % 3);
                    client.rename(format!("/d{from}/own{n}"), format!("/d{to}/own{n}")).unwrap();
                    // All also fight over the same names; losing is an answer, too.
                    let _ = client.write(format!("/d{from}/common"), b"y");
                    let _ = client.rename(format!("/d{from}/common"), format!("/d{to}/common"));
                    let _ = client.remove_file(format!("/d{to}/common"));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    assert!(!embedded.device().is_poisoned());
    drop(setup);
    wait_for("all sessions end", || embedded.device().usage() == Usage::default());
}

#[test]
fn a_profile_holds_completions_back_and_says_so() {
    let profile = Profile::parse("name = \"slow\"\n[link]\nlatency_ns = 300000").unwrap();
    let config = DeviceConfig { profile, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let start = Instant::now();
    for _ in 0..10 {
        client.raw().nop().unwrap();
    }
    assert!(start.elapsed() >= Duration::from_micros(6000), "ten round trips of two latencies each");
    let stats: serde_json::Value = serde_json::from_str(&client.stats_json().unwrap()).unwrap();
    assert_eq!(stats["device"]["profile"]["name"], "slow");
    assert!(stats["total"]["modelled_ns"].as_u64().unwrap() >= 5_000_000);
}

#[test]
fn one_fused_write_is_one_command_one_payload_copy() {
    let embedded = device(1);
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    client.raw().nop().unwrap();
    let before = embedded.device().stats().total;
    client
        .open_write_close("/f", OpenFlags::WRITE | OpenFlags::CREATE, 0o644, At::Offset(0), &[7u8; 4096][..])
        .unwrap();
    let after = embedded.device().stats().total;
    assert_eq!(after.commands - before.commands, 1);
    assert_eq!(after.fused - before.fused, 1);
    assert_eq!(after.payload_copies - before.payload_copies, 1);
    assert_eq!(after.payload_bytes_in - before.payload_bytes_in, 4096);
}

#[test]
fn files_opened_and_closed_one_after_the_other_never_meet_the_limit_of_open_ones() {
    let tenants = weldfs_device::TenantsConfig::parse("[default.limits]\nhandles = 64\n").unwrap();
    let config = DeviceConfig { tenants, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).unwrap();
    let session = attach(&embedded);
    let mut queue = Queue::new(session.new_queue(8, 1 << 16).unwrap(), session.clone()).unwrap();
    let path = queue.stage(b"/f").unwrap();
    // Faster than a look once a second.
    for round in 0..100 {
        for placeholder in session.placeholders(16).unwrap_or_else(|e| panic!("round {round}: {e:?}")) {
            let open = bound(path, placeholder.id);
            let h = Handle::from_wire(queue.execute(&Command::new(0, open)).unwrap().ok().unwrap().0);
            queue.execute(&Command::new(0, Op::Close { h })).unwrap().ok().unwrap();
        }
    }
    // Those that are held count: who asks for more is refused, and gets no look of its own each time.
    let held: Vec<_> = std::iter::from_fn(|| session.placeholders(16).ok()).take(5).flatten().collect();
    assert_eq!(held.len(), 64);
    assert_eq!(session.placeholders(1).err(), Some(Errno::MFILE));
    drop(held);
}

#[test]
fn queue_pairs_that_a_program_drops_are_there_for_the_next_one() {
    let embedded = device(1);
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    let mut made = std::collections::HashSet::new();
    for round in 0..200 {
        let (depth, pool) = if round % 2 == 0 { (8, 1 << 20) } else { (16, 2 << 20) };
        let mut queue = client.queue(depth, pool).unwrap_or_else(|e| panic!("round {round}: {e}"));
        made.insert(queue.index());
        assert_eq!((queue.depth(), queue.in_flight(), queue.pool().len()), (depth, 0, pool as usize));
        let whole = queue.alloc(pool).expect("nothing of the last user's is left in the pool");
        assert_eq!(queue.execute(&Command::new(0, Op::Nop)).unwrap().status, 0);
        if round % 3 == 0 {
            // Dropped with commands under way, and with completions that were not asked for.
            (0..depth).for_each(|_| assert!(queue.submit(&Command::new(0, Op::Nop)).is_ok()));
            queue.flush();
            if round % 2 == 0 {
                queue.await_any().unwrap();
            }
        } else {
            queue.free(whole);
        }
    }
    // A new one was made only where the last one's commands were still under way: on a slow machine a few times.
    assert!(made.len() <= 30, "{} for 200 users", made.len());
    // Not one of the sixty-four is lost, and two users at a time never have the same one.
    let new = 62 - made.len();
    let all: Vec<Queue> = (0..new).map(|_| client.queue(8, 1 << 16).unwrap()).collect();
    let different: std::collections::HashSet<u32> = all.iter().map(Queue::index).collect();
    assert_eq!(different.len(), all.len());
    // Where the device grants no more, a larger one that was dropped will do.
    let rest: Vec<Queue> = std::iter::from_fn(|| client.queue(8, 1 << 16).ok()).collect();
    assert!(rest.len() <= 2 + made.len() && client.queue(32, 1 << 16).is_err(), "the device's limit still holds");
    // The smallest of those that will do, whichever was dropped first.
    rest.into_iter().rev().for_each(drop);
    drop(all);
    assert_eq!(client.queue(8, 4096).unwrap().pool().len(), 1 << 16);
}

/// Bytes of a file that is one hole: the checksum of all of it takes minutes.
const HOLE: u64 = 1 << 40;

/// Long work on `hole`, 32 pieces: checksums of all of it; batches of them; programs that compress for long.
fn pile(q: &mut Queue, hole: Handle) {
    let sum = |h| Command::new(0, Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 0, len: HOLE });
    let items: Vec<u8> = (0..64).flat_map(|_| sum(hole).encode().as_bytes().to_vec()).collect();
    let items = q.stage(&items).unwrap();
    let results = q.alloc(64 * 32).unwrap();
    let text =
        "open /hole r; read 0 512k -> a; compress zstd a -> b; compress zstd a -> b; compress zstd a -> b; close";
    let body = parse(text, &[]).unwrap().body.bind(&[]).unwrap();
    let body = q.stage(&body).unwrap();
    for n in 0..32 {
        let command = match n % 4 {
            0 => sum(hole),
            1 => Command::new(0, Op::Batch { items, results }),
            _ => Command::new(0, Op::Program { body }),
        };
        q.submit(&command).unwrap();
    }
}

/// A device with a hole of a file, and a queue pair with its handle.
fn hole(embedded: &Embedded) -> (Arc<dyn Transport>, Queue, Handle) {
    let t = attach(embedded);
    let mut q = Queue::new(t.new_queue(64, 1 << 20).unwrap(), t.clone()).unwrap();
    let path = q.stage(b"/hole").unwrap();
    let open = Op::open(Handle::ROOT, path, RW, 0o644);
    let h = Handle::from_wire(q.execute(&Command::new(0, open)).unwrap().ok().unwrap().0);
    q.execute(&Command::new(0, Op::Truncate { h, size: HOLE })).unwrap().ok().unwrap();
    (t, q, h)
}

#[test]
fn what_a_dead_client_had_asked_is_dropped_and_what_it_had_changed_is_done() {
    for cores in [1, 2] {
        let embedded = device(cores);
        let mut gone = Vec::new();
        for round in 0..8 {
            let (t, mut q, h) = hole(&embedded);
            pile(&mut q, h);
            let path = q.stage(format!("/kept{round}").as_bytes()).unwrap();
            let src = q.stage(b"12345678").unwrap();
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at: At::End, src };
            q.submit(&Command::new(0, op)).unwrap();
            q.flush();
            gone.push((t, q));
        }
        std::thread::sleep(Duration::from_millis(50));
        gone.drain(..).for_each(|(t, q)| {
            t.detach();
            drop(q);
        });
        // Minutes of work for each.
        wait_for("all sessions end", || embedded.device().usage() == Usage::default());
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        for round in 0..8 {
            assert_eq!(client.metadata(format!("/kept{round}")).unwrap().len(), 8);
        }
    }
}

/// Clients of a device that died may answer from what it said for as long as that.
#[test]
fn an_image_that_was_not_closed_cleanly_is_served_when_no_client_relies_on_its_last_device() {
    let dir = tempfile::tempdir().unwrap();
    let (image, left) = (dir.path().join("image"), dir.path().join("left"));
    let medium = weldfs_media::create(&image, ImageKind::Pmem, 64 << 20, false).unwrap();
    format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    drop(medium);
    let embedded = Embedded::open(&Source::Image(image.clone()), DeviceConfig::default()).unwrap();
    // What a device leaves that dies now.
    std::fs::copy(&image, &left).unwrap();
    embedded.close().unwrap();
    let start = Instant::now();
    let opened = weldfs_kernel_shim::Opened::open(&Source::Image(left), 64 << 20).unwrap();
    assert!(!opened.recovery.clean);
    assert!(start.elapsed() >= Duration::from_nanos(limits::WATCH_NS), "{:?}", start.elapsed());
    opened.close().unwrap();
}

#[test]
fn a_device_ends_within_seconds_whatever_its_clients_have_asked() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let medium = weldfs_media::create(&image, ImageKind::Pmem, 64 << 20, false).unwrap();
    format(&medium, &MkfsOptions::default(), &SystemClock, &SystemRandom).unwrap();
    // Children of other tests have the image's lock, too, until their exec.
    medium.let_go();
    drop(medium);
    let source = Source::Image(image);
    for cores in [1, 2] {
        let embedded = Embedded::open(&source, DeviceConfig { cores, ..DeviceConfig::default() }).unwrap();
        let mut there: Vec<_> = (0..8).map(|_| hole(&embedded)).collect();
        for (_, q, h) in &mut there {
            pile(q, *h);
            q.flush();
        }
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        embedded.close().unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?}");
    }
    // It was a clean end: nothing is to be recovered.
    let again = weldfs_kernel_shim::Opened::open(&source, 64 << 20).unwrap();
    assert!(again.recovery.clean);
    again.close().unwrap();
}

#[test]
fn a_transaction_that_a_dead_client_had_published_is_committed_whole_or_not_at_all() {
    let embedded = device(1);
    for round in 0..40 {
        let (t, mut q, hole) = hole(&embedded);
        let open = |q: &mut Queue, name: String| {
            let path = q.stage(name.as_bytes()).unwrap();
            let op = Op::open(Handle::ROOT, path, RW, 0o644);
            Handle::from_wire(q.execute(&Command::new(0, op)).unwrap().ok().unwrap().0)
        };
        let (a, b) = (open(&mut q, format!("/a{round}")), open(&mut q, format!("/b{round}")));
        let txn = Handle::from_wire(q.execute(&Command::new(0, Op::TxnBegin)).unwrap().ok().unwrap().0);
        // What keeps the device busy until the client is gone.
        pile(&mut q, hole);
        let src = q.stage(b"12345678").unwrap();
        for h in [a, b] {
            q.submit(&Command::new(0, Op::TxnWrite { txn, h, at: At::Offset(0), src })).unwrap();
        }
        q.submit(&Command::new(0, Op::TxnCommit { txn })).unwrap();
        q.flush();
        t.detach();
        drop(q);
        wait_for("the session ends", || embedded.device().usage().sessions == 0);
        let client = Client::with(Arc::new(embedded.clone())).unwrap();
        let len = |name: &str| client.metadata(format!("/{name}{round}")).unwrap().len();
        assert_eq!(len("a"), len("b"), "round {round}");
    }
}
