//! A directory of the host served in place of a device.

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weldfs::{
    At, AttachOptions, Change, Client, Connector, Errno, Handle, OpenFlags, Queue, SocketConnector, Transport, TxnMode,
    XattrFlags,
};
use weldfs_ciscops::dirent::DirentsPlus;
use weldfs_ciscops::{
    ChecksumKind, Command as WireCommand, LockKind, LockSpace, Op, PoolRange, QueueMemory, SqProducer, Sqe,
};
use weldfs_device::Usage;
use weldfs_fs::Cred;
use weldfs_hostdir::HostDirConfig;
use weldfs_kernel_shim::{EmbeddedDir, HostDirServer, SocketAt};
use zerocopy::IntoBytes;

fn served(dir: &Path) -> (EmbeddedDir, Client) {
    let embedded = EmbeddedDir::open(dir).unwrap();
    let client = Client::with(Arc::new(embedded.clone())).unwrap();
    (embedded, client)
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    Errno(result.expect_err("must fail").raw_os_error().expect("an errno"))
}

#[test]
fn files_of_the_host_are_the_clients_files() {
    let dir = tempfile::tempdir().unwrap();
    let (served, client) = served(dir.path());
    client.create_dir("/d").unwrap();
    client.write("/d/f", b"from the client").unwrap();
    assert_eq!(std::fs::read(dir.path().join("d/f")).unwrap(), b"from the client");
    std::fs::write(dir.path().join("g"), b"from the host").unwrap();
    std::fs::set_permissions(dir.path().join("g"), PermissionsExt::from_mode(0o640)).unwrap();
    assert_eq!(client.read("/g").unwrap(), b"from the host");
    assert_eq!(client.metadata("/g").unwrap().mode() & 0o7777, 0o640);
    symlink("g", dir.path().join("l")).unwrap();
    assert_eq!(client.read("/l").unwrap(), b"from the host");
    let mut names: Vec<_> = client.open_dir("/").unwrap().entries().map(|e| e.unwrap().name).collect();
    names.sort();
    assert_eq!(names, ["d", "g", "l"]);
    drop(client);
    let usage = served.dir().usage();
    assert_eq!((usage.inode_queues, usage.locks), (0, 0));
}

#[test]
fn no_path_leads_out_of_the_directory() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    let dir = tempfile::tempdir_in(outside.path()).unwrap();
    let (_served, client) = served(dir.path());
    client.create_dir("/d").unwrap();
    symlink(outside.path(), dir.path().join("abs")).unwrap();
    symlink("..", dir.path().join("up")).unwrap();
    symlink("../../..", dir.path().join("d/up")).unwrap();
    symlink("/", dir.path().join("root")).unwrap();
    symlink("/proc/self/root", dir.path().join("magic")).unwrap();
    for path in ["/../secret", "/abs/secret", "/up/secret", "/d/up/secret", "/d/../../secret", "/root/../secret"] {
        assert_eq!(errno(client.read(path)), Errno::NOENT, "{path}");
        assert_eq!(errno(client.metadata(path)), Errno::NOENT, "{path}");
    }
    let etc = errno(client.read("/magic/etc/passwd"));
    assert!(etc == Errno::NOENT || etc == Errno::LOOP, "{etc}");
    // What would lie above is the directory itself.
    let ino = client.metadata("/").unwrap().ino();
    for path in ["/..", "/up", "/d/up", "/root", "/d/../.."] {
        assert_eq!(client.metadata(path).unwrap().ino(), ino, "{path}");
    }
    client.write("/../made", b"inside").unwrap();
    assert_eq!(std::fs::read(dir.path().join("made")).unwrap(), b"inside");
    client.create_dir("/up/made2").unwrap();
    assert!(dir.path().join("made2").is_dir());
    client.rename("/made", "/../../renamed").unwrap();
    assert!(dir.path().join("renamed").exists());
    // From a handle, too.
    let raw = client.raw();
    let d = raw.openat(Handle::ROOT, b"/d", OpenFlags::READ | OpenFlags::DIRECTORY, 0, 0).unwrap().handle;
    assert_eq!(raw.statat(d, b"..", false).unwrap().ino, ino);
    assert_eq!(raw.statat(d, b"../..", false).unwrap().ino, ino);
    assert_eq!(raw.statat(d, b"../../secret", false), Err(Errno::NOENT));
    assert_eq!(raw.openat(d, b"up/secret", OpenFlags::READ, 0, 0).map(|o| o.handle), Err(Errno::NOENT));
    assert_eq!(raw.linkat(d, b"../../secret", d, b"stolen", false), Err(Errno::NOENT));
    assert_eq!(raw.renameat(d, b"up/../secret", d, b"x", weldfs::RenameFlags::empty()), Err(Errno::NOENT));
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[test]
fn the_six_fused_commands_are_one_crossing_each() {
    let dir = tempfile::tempdir().unwrap();
    let (served, client) = served(dir.path());
    let raw = client.raw();
    let new = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let before = served.dir().stats().total;
    let done = raw.open_write_close(Handle::ROOT, b"/f", new, 0o644, At::Offset(0), &b"hello"[..]).unwrap();
    assert_eq!((done.len, done.offset, done.created), (5, 0, true));
    let done = raw.open_write_close(Handle::ROOT, b"/f", new, 0o644, At::End, &b" world"[..]).unwrap();
    assert_eq!((done.len, done.offset, done.created), (6, 5, false));
    let mut room = [0; 64];
    let n = raw.open_read_close(Handle::ROOT, b"/f", OpenFlags::READ, 6, &mut room[..]).unwrap();
    assert_eq!(&room[..n], b"world");
    let swapped =
        raw.open_read_write_close(Handle::ROOT, b"/f", new, 0o644, 0, &mut room[..], At::Offset(0), &b"HELLO"[..]);
    let swapped = swapped.unwrap();
    assert_eq!((swapped.read, swapped.offset, swapped.created), (11, 0, false));
    assert_eq!(&room[..11], b"hello world");
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"HELLO world");
    let h = raw.openat(Handle::ROOT, b"/log", new, 0o600, 0).unwrap().handle;
    let sealed = raw.append_checksum_write(h, &[7u8; 200_000][..]).unwrap();
    assert_eq!(sealed.offset, 0);
    assert_eq!(raw.read_checksum_verify(h, 0, 200_000, None), Ok(sealed.checksum));
    raw.write(h, At::Offset(100_000), &b"x"[..]).unwrap();
    assert_eq!(raw.read_checksum_verify(h, 0, 200_000, None), Err(Errno::BADMSG));
    let mut old = [0; 8];
    raw.write(h, At::Offset(0), &41u64.to_le_bytes()[..]).unwrap();
    raw.read_modify_write(h, 0, Change::Add { by: 1, width: 8 }, Some(&mut old)).unwrap();
    assert_eq!(u64::from_le_bytes(old), 41);
    let swap = Change::CompareSwap { expect: &41u64.to_le_bytes(), new: &1u64.to_le_bytes() };
    assert_eq!(raw.read_modify_write(h, 0, swap, Some(&mut old)), Err(Errno::CANCELED));
    assert_eq!(u64::from_le_bytes(old), 42);
    let total = served.dir().stats().total;
    assert_eq!((total.fused - before.fused, total.commands - before.commands), (9, 12));
    assert_eq!(served.dir().facts().medium, "hostdir");
}

/// Waits until nothing of any client is left.
fn all_gone(served: &EmbeddedDir) {
    let end = Instant::now() + Duration::from_secs(20);
    while served.dir().usage() != Usage::default() {
        assert!(Instant::now() < end, "{:?} is left", served.dir().usage());
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn clients_at_one_file_exclude_each_other() {
    const ROUNDS: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let (served, first) = served(dir.path());
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    std::thread::scope(|scope| {
        for me in 0..4u8 {
            let connector = Arc::new(served.clone());
            scope.spawn(move || {
                let client = Client::with(connector).unwrap();
                let raw = client.raw();
                let counter = raw.openat(Handle::ROOT, b"/counter", flags, 0o600, 0).unwrap().handle;
                let log = raw.openat(Handle::ROOT, b"/log", flags, 0o600, 0).unwrap().handle;
                for round in 0..ROUNDS {
                    raw.read_modify_write(counter, 0, Change::Add { by: 1, width: 8 }, None).unwrap();
                    let sealed = raw.append_checksum_write(log, &[me; 100][..]).unwrap();
                    assert_eq!(sealed.offset % 104, 0);
                    assert_eq!(raw.read_checksum_verify(log, sealed.offset, 100, None), Ok(sealed.checksum));
                    // Created and written as one: it is never found empty.
                    let name = format!("/n{}", round % 7);
                    let new =
                        raw.open_write_close(Handle::ROOT, name.as_bytes(), flags, 0o600, At::Offset(0), &[me; 64]);
                    assert_eq!(new.unwrap().len, 64);
                    let mut room = [0; 65];
                    match raw.open_read_close(Handle::ROOT, name.as_bytes(), OpenFlags::READ, 0, &mut room[..]) {
                        Ok(n) => assert!(n == 64 && room[1..64].iter().all(|b| *b == room[0]), "{n}"),
                        Err(e) => assert_eq!(e, Errno::NOENT),
                    }
                    match raw.unlinkat(Handle::ROOT, name.as_bytes()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(e) => panic!("{e}"),
                    }
                }
            });
        }
    });
    let counted = first.read("/counter").unwrap();
    assert_eq!(u64::from_le_bytes(counted.try_into().unwrap()), 4 * ROUNDS);
    assert_eq!(first.metadata("/log").unwrap().len(), 4 * ROUNDS * 104);
    drop(first);
    all_gone(&served);
}

#[test]
fn directories_moved_out_during_a_walk_do_not_leak() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), b"secret").unwrap();
    let dir = tempfile::tempdir_in(outside.path()).unwrap();
    std::fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
    let (_served, client) = served(dir.path());
    let stop = AtomicBool::new(false);
    let path = "/a/b/c/../../../../secret";
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::fs::rename(dir.path().join("a/b"), outside.path().join("b")).unwrap();
                std::fs::rename(outside.path().join("b"), dir.path().join("a/b")).unwrap();
            }
        });
        let raw = client.raw();
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        for _ in 0..2000 {
            let read = client.read(path);
            assert!(read.is_err(), "{path} was read");
            if let Ok(c) = raw.openat(Handle::ROOT, b"/a/b/c", flags, 0, 0) {
                for up in [&b"../../secret"[..], b"../../../secret", b"../../../../secret"] {
                    let mut room = [0; 16];
                    let got = raw.open_read_close(c.handle, up, OpenFlags::READ, 0, &mut room[..]);
                    assert!(got.is_err(), "read from the handle");
                }
                raw.close(c.handle).unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn each_session_acts_with_its_own_rights() {
    if !rustix::process::geteuid().is_root() {
        crate::skips::skip("hostdir: each_session_acts_with_its_own_rights", "needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let (served, root) = served(dir.path());
    let nobody = Cred { uid: 65_534, gid: 65_534, groups: [4242].as_slice().into() };
    let client = Client::with(Arc::new(served.acting_as(nobody))).unwrap();
    root.write("/secret", b"root's").unwrap();
    root.set_permissions("/secret", 0o600).unwrap();
    assert_eq!(errno(client.read("/secret")), Errno::ACCES);
    assert_eq!(errno(client.set_permissions("/secret", 0o666)), Errno::PERM);
    client.write("/mine", b"mine").unwrap();
    let mine = client.metadata("/mine").unwrap();
    assert_eq!((mine.uid(), mine.gid()), (65_534, 65_534));
    assert_eq!(errno(client.set_owner("/mine", 0, 0)), Errno::PERM);
    root.set_owner("/secret", 0, 4242).unwrap();
    root.set_permissions("/secret", 0o040).unwrap();
    assert_eq!(client.read("/secret").unwrap(), b"root's", "by one of its groups");
    root.create_dir("/closed").unwrap();
    root.set_permissions("/closed", 0o700).unwrap();
    assert_eq!(errno(client.metadata("/closed/x")), Errno::ACCES);
    assert_eq!(errno(client.write("/closed/x", b"")), Errno::ACCES);
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let raw = client.raw();
    assert_eq!(raw.read_dir(Handle::ROOT, 0, &mut [0; 512][..]), Err(Errno::ACCES), "the root's own handle, too");
    // The thread that served it is root's again for root, and trusted attributes stay root's.
    let set = |c: &Client| c.raw().set_xattr(Handle::ROOT, b"/mine", false, b"trusted.x", b"1", XattrFlags::empty());
    assert_eq!(set(&client), Err(Errno::PERM));
    assert!(matches!(set(&root), Ok(()) | Err(Errno::OPNOTSUPP)));
}

#[test]
fn a_full_file_system_is_an_error_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|s| s.success()) {
        crate::skips::skip(
            "hostdir: a_full_file_system_is_an_error_and_nothing_else",
            "needs the right to mount a tmpfs",
        );
        return;
    }
    let (served, client) = served(dir.path());
    let raw = client.raw();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let h = raw.openat(Handle::ROOT, b"/f", flags, 0o600, 0).unwrap().handle;
    let mut appended = 0;
    let end = loop {
        match raw.append_checksum_write(h, &[1; 100_000][..]) {
            Ok(_) => appended += 100_004,
            Err(e) => break e,
        }
    };
    assert_eq!(end, Errno::NOSPC);
    assert_eq!(raw.stat(h).unwrap().size, appended, "an append is cut back");
    assert!(!served.dir().facts().power_safe);
    raw.truncate(h, 0).unwrap();
    raw.append_checksum_write(h, &[2; 100_000][..]).unwrap();
    raw.close(h).unwrap();
    drop(client);
    all_gone(&served);
    drop(served);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
}

#[test]
fn batches_and_listings_with_attributes_work() {
    let dir = tempfile::tempdir().unwrap();
    let (served, client) = served(dir.path());
    let raw = client.raw();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let names: Vec<Vec<u8>> = (0..20).map(|i| format!("/f{i}").into_bytes()).collect();
    let mut batch = raw.batch();
    for name in &names {
        batch.open_write_close(Handle::ROOT, name, flags, 0o600, At::Offset(0), &b"content"[..]);
    }
    assert!(batch.run().unwrap().iter().all(|cqe| cqe.status == 0));
    let mut room = vec![0; 16_384];
    let (n, _) = raw.read_dir_plus(Handle::ROOT, 0, &mut room[..]).unwrap();
    let sizes: Vec<u64> =
        DirentsPlus(&room[..n]).filter(|e| !e.entry.name.starts_with(b".")).map(|e| e.stat.unwrap().size).collect();
    assert_eq!(sizes, [7; 20]);
    assert_eq!(served.dir().stats().total.elements, 20);
}

#[test]
fn programs_run_and_durable_is_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let (served, client) = served(dir.path());
    let raw = client.raw();
    raw.atomic_replace(Handle::ROOT, b"/f", b"/.f.new", 0o644, &b"first"[..]).unwrap();
    raw.atomic_replace(Handle::ROOT, b"/f", b"/.f.new", 0o644, &b"second"[..]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"second");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let flushed = served.dir().stats().log.flushes;
    assert!(flushed >= 4, "content and directory, twice: {flushed}");
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let h = raw.openat(Handle::ROOT, b"/f", flags, 0, 0).unwrap().handle;
    let g = raw.openat(Handle::ROOT, b"/g", flags, 0o600, 0).unwrap().handle;
    assert_eq!(raw.append_and_sync(h, &b" third"[..]).unwrap().offset, 6);
    assert_eq!(raw.copy_range(h, 0, 100, g, At::Offset(0)), Ok(12));
    assert_eq!(client.read("/g").unwrap(), b"second third");
    let before = served.dir().stats().log.flushes;
    raw.write(g, At::End, &b"!"[..]).unwrap();
    assert_eq!(served.dir().stats().log.flushes, before, "volatile by default");
    raw.durability(weldfs::Durability::Durable).write(g, At::End, &b"!"[..]).unwrap();
    assert_eq!(served.dir().stats().log.flushes, before + 1);
}

#[test]
fn killed_clients_and_hostile_ones_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let files = dir.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let server = HostDirServer::bind(HostDirConfig::new(&files), &SocketAt::open_to_all(&socket), false).unwrap();
    let (served, stop) = (server.dir().clone(), server.stopper());
    let thread = std::thread::spawn(move || server.run().unwrap());
    let client = Client::connect(&socket).unwrap();
    assert_eq!(client.info().unwrap().medium, weldfs_ciscops::attach::medium::HOSTDIR);
    // A client that hangs up in the middle: commands in its ring, files open, a lock held.
    let transport = SocketConnector::new(&socket).attach(&AttachOptions::default()).unwrap();
    let parts = transport.new_queue(64, 1 << 20).unwrap();
    let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
    let pool = memory.pool(&parts.layout).unwrap();
    let mut ring = SqProducer::new(memory);
    pool.bytes(0, 2).unwrap().copy_from(b"/x");
    for seq in 0..40 {
        let (path, flags) = (PoolRange::new(0, 2), OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
        let op = Op::open(Handle::ROOT, path, flags, 0o600);
        ring.push(&WireCommand::new(seq, op).encode()).unwrap();
    }
    ring.publish();
    if ring.needs_doorbell() {
        rustix::io::write(&*parts.doorbell, &1u64.to_ne_bytes()).unwrap();
    }
    transport.detach();
    // One that lies about its index.
    let liar = SocketConnector::new(&socket).attach(&AttachOptions::default()).unwrap();
    let parts = liar.new_queue(64, 1 << 20).unwrap();
    parts.region.bytes(weldfs_ciscops::ring::word::SQ_TAIL, 4).unwrap().copy_from(&9_999u32.to_le_bytes());
    rustix::io::write(&*parts.doorbell, &1u64.to_ne_bytes()).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while served.usage().sessions > 1 || served.usage().open_files > 0 {
        assert!(Instant::now() < end, "{:?} is left", served.usage());
        std::thread::sleep(Duration::from_millis(2));
    }
    // What was published had been executed, and others are served.
    assert!(files.join("x").exists());
    client.write("/y", b"still here").unwrap();
    drop(client);
    stop.stop();
    thread.join().unwrap();
    assert!(!socket.exists());
    // The thread that ran the last of a session may still be letting go of its rings.
    while served.usage() != Usage::default() {
        assert!(Instant::now() < end, "{:?} is left", served.usage());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Puts commands into a ring of their own, and waits for none of them.
fn publish(transport: &dyn Transport, fill: impl FnOnce(&weldfs_ciscops::SharedRegion) -> Vec<WireCommand>) {
    let parts = transport.new_queue(64, 1 << 20).unwrap();
    let memory = QueueMemory::new(parts.region.clone(), &parts.layout).unwrap();
    let pool = memory.pool(&parts.layout).unwrap();
    let mut ring = SqProducer::new(memory);
    fill(&pool).iter().for_each(|cmd| ring.push(&cmd.encode()).unwrap());
    ring.publish();
    rustix::io::write(&*parts.doorbell, &1u64.to_ne_bytes()).unwrap();
}

#[test]
fn one_client_with_endless_commands_in_all_its_rings_does_not_keep_others_waiting() {
    const ENDLESS: u64 = 1 << 43;
    for threads in [1, 2, 4] {
        let dir = tempfile::tempdir().unwrap();
        let sparse = std::fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(ENDLESS).unwrap();
        let served = EmbeddedDir::with(HostDirConfig { threads, ..HostDirConfig::new(dir.path()) }).unwrap();
        let greedy = served.attach(&AttachOptions::default()).unwrap();
        // Handles are a session's: the first open of a fresh one has this.
        let h = Handle { index: 1, generation: 1 };
        publish(&*greedy, |pool| {
            pool.bytes(0, 7).unwrap().copy_from(b"/sparse");
            let (path, flags) = (PoolRange::new(0, 7), OpenFlags::READ);
            vec![WireCommand::new(0, Op::open(Handle::ROOT, path, flags, 0))]
        });
        let end = Instant::now() + Duration::from_secs(20);
        while served.dir().usage().handles == 0 {
            assert!(Instant::now() < end, "the file is not opened");
            std::thread::yield_now();
        }
        let sum = Op::ChecksumRange { h, kind: ChecksumKind::Crc32c, offset: 0, len: ENDLESS };
        for ring in 0..8 {
            publish(&*greedy, |pool| {
                if ring % 2 == 0 {
                    return (0..8).map(|seq| WireCommand::new(seq, sum)).collect();
                }
                let entry = WireCommand::new(0, sum).encode();
                (0..64).for_each(|i| pool.bytes(i * 64, 64).unwrap().copy_from(zerocopy::IntoBytes::as_bytes(&entry)));
                let (items, results) = (PoolRange::new(0, 64 * Sqe::SIZE as u32), PoolRange::new(8192, 64 * 32));
                vec![WireCommand::new(0, Op::Batch { items, results })]
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        let client = Client::with(Arc::new(served.clone())).unwrap();
        client.write("/small", &[7; 100]).unwrap();
        assert_eq!(client.read("/small").unwrap(), [7; 100]);
        // What takes long itself gets a thread, too.
        client.write("/large", &vec![7; 1 << 20]).unwrap();
        let raw = client.raw();
        let large = raw.openat(Handle::ROOT, b"/large", OpenFlags::READ, 0, 0).unwrap().handle;
        raw.fsync(large).unwrap();
        assert_eq!(raw.checksum_range(large, 0, 1 << 20, ChecksumKind::Crc32c).unwrap().len, 1 << 20);
        assert!(start.elapsed() < Duration::from_secs(20), "{threads} threads: {:?}", start.elapsed());
        // And when it goes, its commands do.
        greedy.detach();
        drop((greedy, client));
        all_gone(&served);
    }
}

#[test]
fn what_cannot_be_all_or_nothing_here_is_refused_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_served, client) = served(dir.path());
    client.write("/f", b"as it was").unwrap();
    let raw = client.raw();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let whole = raw.mode(TxnMode::Macro);
    let refused = whole.open_write_close(Handle::ROOT, b"/g", flags, 0o600, At::Offset(0), &b"x"[..]);
    assert_eq!(refused.map(|d| d.len), Err(Errno::OPNOTSUPP));
    let h = raw.openat(Handle::ROOT, b"/f", OpenFlags::READ | OpenFlags::WRITE, 0, 0).unwrap().handle;
    assert_eq!(whole.append_checksum_write(h, &b"x"[..]).map(|s| s.offset), Err(Errno::OPNOTSUPP));
    let replaced = whole.atomic_replace(Handle::ROOT, b"/f", b"/.f.new", 0o644, &b"second"[..]);
    assert_eq!(replaced.map(drop), Err(Errno::OPNOTSUPP));
    let mut batch = whole.batch();
    batch.open_write_close(Handle::ROOT, b"/g", flags, 0o600, At::Offset(0), &b"content"[..]);
    assert_eq!(batch.run().unwrap()[0].status, Errno::OPNOTSUPP.0, "an element is as its batch");
    // One step is one step, and what changes nothing is all or nothing.
    assert_eq!(whole.write(h, At::Offset(0), &b"A"[..]).unwrap().len, 1);
    let mut room = [0; 16];
    assert_eq!(whole.open_read_close(Handle::ROOT, b"/f", OpenFlags::READ, 0, &mut room[..]), Ok(9));
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!((names, std::fs::read(dir.path().join("f")).unwrap()), (1, b"As it was".to_vec()));
}

#[test]
fn transactions_of_several_commands_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (served, client) = served(dir.path());
    client.write("/f", b"as it was").unwrap();
    let h = client.raw().openat(Handle::ROOT, b"/f", OpenFlags::WRITE, 0, 0).unwrap().handle;
    let mut queue = client.queue(16, 1 << 16).unwrap();
    let src = queue.stage(b"changed").unwrap();
    for txn in [Handle::ROOT, h, Handle { index: 9, generation: 9 }] {
        let write = Op::TxnWrite { txn, h, at: At::Offset(0), src };
        for op in [Op::TxnBegin, write, Op::TxnCommit { txn }, Op::TxnAbort { txn }] {
            let ticket = queue.submit(&WireCommand::new(0, op)).unwrap();
            queue.flush();
            assert_eq!(queue.wait(ticket).unwrap().status, Errno::OPNOTSUPP.0, "{op:?}");
        }
    }
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"as it was");
    drop((queue, client));
    all_gone(&served);
}

#[test]
fn a_lock_that_the_host_refuses_to_make_exclusive_is_still_held_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (_served, client) = served(dir.path());
    client.write("/f", b"x").unwrap();
    let raw = client.raw();
    let h = raw.openat(Handle::ROOT, b"/f", OpenFlags::READ | OpenFlags::WRITE, 0, 0).unwrap().handle;
    let lock = |kind| raw.lock_set(h, LockSpace::Flock, kind, 0, 0, 0);
    lock(LockKind::Read).unwrap();
    let other = std::fs::File::open(dir.path().join("f")).unwrap();
    let take = |how| rustix::fs::flock(&other, how);
    take(rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(lock(LockKind::Write), Err(Errno::AGAIN));
    take(rustix::fs::FlockOperation::Unlock).unwrap();
    let exclusive = take(rustix::fs::FlockOperation::NonBlockingLockExclusive);
    assert_eq!(exclusive, Err(rustix::io::Errno::AGAIN), "the client holds it still");
    lock(LockKind::Write).unwrap();
    lock(LockKind::Unlock).unwrap();
    take(rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// Bytes of a file that is one hole: the checksum of all of it takes minutes.
const HOLE: u64 = 1 << 40;

#[test]
fn what_a_dead_client_had_asked_of_a_directory_is_dropped_and_what_it_had_changed_is_done() {
    for threads in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::File::create(dir.path().join("hole")).unwrap().set_len(HOLE).unwrap();
        let served = EmbeddedDir::with(HostDirConfig { threads, ..HostDirConfig::new(dir.path()) }).unwrap();
        let mut gone = Vec::new();
        for round in 0..8 {
            let t: Arc<dyn Transport> = served.attach(&AttachOptions::default()).unwrap().into();
            let mut q = Queue::new(t.new_queue(64, 1 << 20).unwrap(), t.clone()).unwrap();
            let path = q.stage(b"/hole").unwrap();
            let open = Op::open(Handle::ROOT, path, OpenFlags::READ, 0);
            let hole = Handle::from_wire(q.execute(&WireCommand::new(0, open)).unwrap().ok().unwrap().0);
            let sum = Op::ChecksumRange { h: hole, kind: ChecksumKind::Crc32c, offset: 0, len: HOLE };
            let items: Vec<u8> = (0..64).flat_map(|_| WireCommand::new(0, sum).encode().as_bytes().to_vec()).collect();
            let items = q.stage(&items).unwrap();
            let results = q.alloc(64 * 32).unwrap();
            for _ in 0..4 {
                q.submit(&WireCommand::new(0, sum)).unwrap();
                q.submit(&WireCommand::new(0, Op::Batch { items, results })).unwrap();
            }
            let path = q.stage(format!("/kept{round}").as_bytes()).unwrap();
            let src = q.stage(b"12345678").unwrap();
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            let op = Op::OpenWriteClose { base: Handle::ROOT, path, flags, mode: 0o600, at: At::End, src };
            q.submit(&WireCommand::new(0, op)).unwrap();
            q.flush();
            gone.push((t, q));
        }
        std::thread::sleep(Duration::from_millis(50));
        gone.drain(..).for_each(|(t, q)| {
            t.detach();
            drop(q);
        });
        // Hours of work for each; others would find no session free meanwhile.
        let start = Instant::now();
        while served.dir().usage() != Usage::default() {
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", served.dir().usage());
            std::thread::sleep(Duration::from_millis(5));
        }
        for round in 0..8 {
            assert_eq!(std::fs::read(dir.path().join(format!("kept{round}"))).unwrap(), b"12345678");
        }
    }
}
