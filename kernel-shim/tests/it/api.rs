//! The client library against a real (embedded, in-memory) device: every call does what POSIX says of it and fails
//! with the errno POSIX names; a fused call is one command, one completion, one payload copy.

use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weldfs::{
    AccessMask, At, Change, Client, Errno, FallocMode, Handle, LockKind, LockSpace, OpenFlags, OpenOptions,
    RenameFlags, SetAttrBody, SetAttrMask, Whence, WireTime, XattrFlags,
};
use weldfs_device::{DeviceConfig, Totals};
use weldfs_kernel_shim::{Embedded, Source};

fn device() -> (Embedded, Client) {
    let config = DeviceConfig { cores: 2, ..DeviceConfig::default() };
    let embedded = Embedded::open(&Source::Ram(64 << 20), config).expect("device");
    let client = Client::with(Arc::new(embedded.clone())).expect("attach");
    (embedded, client)
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    Errno(result.expect_err("must fail").raw_os_error().expect("an errno"))
}

fn rw() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn offsets_sizes_and_holes_are_posix() {
    let (_device, client) = device();
    let mut file = client.open("/f", &rw()).expect("open");
    assert!(file.was_created());
    file.write_all(b"hello world").expect("write");
    assert_eq!(file.seek(SeekFrom::Start(6)).expect("seek"), 6);
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "world");
    assert_eq!(file.seek(SeekFrom::End(-1)).expect("seek"), 10);
    assert_eq!(errno(file.seek(SeekFrom::Current(-20))), Errno::INVAL);
    assert_eq!(file.write_at(b"X", 1 << 30).expect("sparse"), 1);
    assert_eq!(file.metadata().expect("stat").len(), (1 << 30) + 1);
    assert!(file.metadata().expect("stat").body().blocks512 < 64, "holes are free");
    let hole = file.seek_to(Whence::Hole, 0).expect("hole");
    assert!((11..=4096).contains(&hole), "{hole}");
    assert_eq!(file.seek_to(Whence::Data, 8192).expect("data"), 1 << 30);
    assert_eq!(errno(file.seek_to(Whence::Data, (1 << 30) + 1)), Errno::NXIO);
    file.set_len(5).expect("truncate");
    assert_eq!(client.read("/f").expect("read"), b"hello");
    file.set_len(8).expect("grow");
    assert_eq!(client.read("/f").expect("read"), b"hello\0\0\0");
    file.allocate(FallocMode::KeepSize, 0, 1 << 20).expect("reserve");
    assert_eq!(file.metadata().expect("stat").len(), 8);
    file.allocate(FallocMode::Zero, 2, 2).expect("zero");
    assert_eq!(client.read("/f").expect("read"), b"he\0\0o\0\0\0");
    file.sync_all().and_then(|()| file.sync_data()).and_then(|()| client.sync()).expect("sync");
    file.close().expect("close");
}

#[test]
fn long_reads_and_writes_are_pieces_in_order() {
    let (_device, client) = device();
    let data: Vec<u8> = (0..5_000_001u32).map(|i| (i % 253) as u8).collect();
    client.write("/big", &data).expect("write");
    assert!(client.read("/big").expect("read") == data);
    let mut file = client.open("/big", &OpenOptions::new().append(true).read(true)).expect("open");
    file.write_all(&data[..3_000_000]).expect("append");
    assert_eq!(file.append(&b"tail"[..]).expect("append").offset, 8_000_001);
    let mut back = vec![0; 3_000_004];
    file.read_exact_at(&mut back, 5_000_001).expect("read");
    assert!(back[..3_000_000] == data[..3_000_000] && &back[3_000_000..] == b"tail");
}

#[test]
fn names_behave_as_posix_says() {
    let (_device, client) = device();
    client.create_dir_all("/a/b/c").expect("mkdir");
    client.create_dir_all("/a/b/c").expect("again");
    assert_eq!(errno(client.create_dir("/a/b")), Errno::EXIST);
    assert_eq!(errno(client.create_dir("/x/y")), Errno::NOENT);
    client.write("/a/f", b"1").expect("write");
    assert_eq!(errno(client.create_dir("/a/f/x")), Errno::NOTDIR);
    assert_eq!(errno(client.remove_dir("/a/b")), Errno::NOTEMPTY);
    assert_eq!(errno(client.remove_dir("/a/f")), Errno::NOTDIR);
    assert_eq!(errno(client.remove_file("/a/b")), Errno::ISDIR);
    assert_eq!(errno(client.remove_file("/a/none")), Errno::NOENT);
    assert_eq!(errno(client.create_dir("/".to_string() + &"n".repeat(256))), Errno::NAMETOOLONG);
    assert_eq!(errno(client.open("/a", &rw())), Errno::ISDIR);
    assert_eq!(errno(client.open("/a/f", &rw().create_new(true))), Errno::EXIST);
    assert_eq!(errno(client.open("/none", &OpenOptions::new().read(true))), Errno::NOENT);
    client.hard_link("/a/f", "/a/g").expect("link");
    assert_eq!(client.metadata("/a/g").expect("stat").nlink(), 2);
    client.rename("/a/g", "/a/b/h").expect("rename");
    assert!(!client.exists("/a/g").expect("look") && client.exists("/a/b/h").expect("look"));
    assert_eq!(errno(client.rename_with("/a/f", "/a/b/h", RenameFlags::NOREPLACE)), Errno::EXIST);
    client.write("/a/i", b"other").expect("write");
    client.rename_with("/a/f", "/a/i", RenameFlags::EXCHANGE).expect("exchange");
    assert_eq!(client.read("/a/f").expect("read"), b"other");
    assert_eq!(errno(client.rename("/a", "/a/b/inside")), Errno::INVAL);
    client.symlink("a/i", "/link").expect("symlink");
    assert_eq!(client.read_link("/link").expect("readlink").to_str(), Some("a/i"));
    assert!(client.symlink_metadata("/link").expect("lstat").is_symlink());
    assert!(client.metadata("/link").expect("stat").is_file());
    assert_eq!(errno(client.open("/link", &OpenOptions::new().read(true).no_follow(true))), Errno::LOOP);
    client.symlink("self", "/self").expect("symlink");
    assert_eq!(errno(client.metadata("/self")), Errno::LOOP);
    client.access("/a/f", AccessMask::READ).expect("access");
    client.remove_all("/a").expect("rm -r");
    let left: BTreeSet<_> = client.open_dir("/").expect("open").entries().map(|e| e.expect("entry").name).collect();
    assert_eq!(left, BTreeSet::from(["link".into(), "self".into()]));
}

#[test]
fn listings_of_large_directories_are_complete_and_stable() {
    let (_device, client) = device();
    client.create_dir("/d").expect("mkdir");
    let dir = client.open_dir("/d").expect("open");
    for i in 0..2_000 {
        dir.open_file(format!("name-{i}"), &rw()).expect("create");
    }
    let mut seen = BTreeSet::new();
    for entry in dir.entries() {
        let entry = entry.expect("entry");
        assert!(entry.is_file() && seen.insert(entry.name.clone()), "twice: {:?}", entry.name);
        if seen.len() % 3 == 0 {
            dir.remove_file(&entry.name).expect("remove while listing");
        }
    }
    assert_eq!(seen.len(), 2_000);
    assert_eq!(dir.entries().count(), 2_000 - 2_000 / 3);
    let fresh = client.raw();
    let mut small = [0; 16];
    assert_eq!(fresh.read_dir(dir.as_file().handle(), 0, &mut small).err(), Some(Errno::INVAL));
}

#[test]
fn attributes_and_xattrs_change_and_persist() {
    let (_device, client) = device();
    let file = client.open("/f", &rw().mode(0o640)).expect("open");
    assert_eq!(file.metadata().expect("stat").permissions(), 0o640);
    client.set_permissions("/f", 0o4711).expect("chmod");
    let time = WireTime::new(-5, 999_999_999);
    let mask = (SetAttrMask::ATIME | SetAttrMask::MTIME).bits();
    let set = SetAttrBody { mask, atime: time, mtime: WireTime::new(1 << 35, 1), ..SetAttrBody::default() };
    file.set_attributes(&set).expect("utimens");
    let meta = client.metadata("/f").expect("stat");
    assert_eq!((meta.permissions(), meta.body().atime, meta.body().mtime.sec), (0o4711, time, 1 << 35));
    file.set_xattr("user.k", b"value").expect("setxattr");
    assert_eq!(file.xattr("user.k").expect("getxattr"), b"value");
    assert_eq!(errno(file.xattr("user.none")), Errno::NODATA);
    let raw = client.raw();
    let set = |flags| raw.set_xattr(Handle::ROOT, b"f", false, b"user.k", b"2", flags);
    assert_eq!(set(XattrFlags::CREATE).err(), Some(Errno::EXIST));
    set(XattrFlags::REPLACE).expect("replace");
    let mut small = [0; 2];
    assert_eq!(raw.list_xattr(Handle::ROOT, b"f", false, &mut []), Ok(7));
    assert_eq!(raw.list_xattr(Handle::ROOT, b"f", false, &mut small).err(), Some(Errno::RANGE));
    raw.remove_xattr(Handle::ROOT, b"f", false, b"user.k").expect("removexattr");
    assert_eq!(raw.list_xattr(Handle::ROOT, b"f", false, &mut []), Ok(0));
    let fs = client.statfs().expect("statfs");
    assert!(fs.bsize == 4096 && fs.bfree > 0 && fs.bavail <= fs.bfree && fs.bfree < fs.blocks && fs.name_max == 255);
}

#[test]
fn an_unlinked_open_file_lives_on_and_a_nameless_one_can_get_a_name() {
    let (_device, client) = device();
    let file = client.open("/f", &rw()).expect("open");
    client.remove_file("/f").expect("unlink");
    file.write_at(b"still here", 0).expect("write");
    let mut back = [0; 10];
    assert_eq!(file.read_at(&mut back, 0).expect("read"), 10);
    assert_eq!((&back, file.metadata().expect("stat").nlink()), (b"still here", 0));
    let nameless = OpenOptions::new().read(true).write(true).tmpfile(true).open(&client, "/").expect("tmpfile");
    nameless.write_at(b"made whole", 0).expect("write");
    client.raw().linkat(nameless.handle(), b"", Handle::ROOT, b"whole", true).expect("linkat");
    assert_eq!(client.read("/whole").expect("read"), b"made whole");
}

#[test]
fn a_handle_does_what_it_was_opened_for_and_nothing_after_close() {
    let (_device, client) = device();
    client.write("/f", b"abc").expect("write");
    let reader = client.open("/f", &OpenOptions::new().read(true)).expect("open");
    assert_eq!(errno(reader.write_at(b"x", 0)), Errno::BADF);
    let writer = client.open("/f", &OpenOptions::new().write(true)).expect("open");
    assert_eq!(errno(writer.read_at(&mut [0; 1], 0)), Errno::BADF);
    let handle = writer.into_handle();
    client.raw().close(handle).expect("close");
    assert_eq!(client.raw().close(handle).err(), Some(Errno::BADF));
    assert_eq!(client.raw().fsync(handle).err(), Some(Errno::BADF));
    assert_eq!(
        client.raw().write(Handle::ROOT, At::Offset(0), b"x").err().map(|e| e == Errno::ISDIR || e == Errno::BADF),
        Some(true)
    );
    client.reconnect().expect("reconnect");
    assert_eq!(errno(reader.read_at(&mut [0; 1], 0)), Errno::BADF, "a file of the session before");
}

#[test]
fn locks_of_descriptions_and_owners_exclude_each_other() {
    let (_device, client) = device();
    let (a, b) = (client.open("/f", &rw()).expect("open"), client.open("/f", &rw()).expect("open"));
    a.try_lock(LockKind::Write).expect("lock");
    assert_eq!(errno(b.try_lock(LockKind::Read)), Errno::AGAIN);
    a.try_lock(LockKind::Unlock).expect("unlock");
    b.lock(LockKind::Read).expect("lock");
    a.try_lock(LockKind::Read).expect("shared");
    let raw = client.raw();
    let space = LockSpace::Process;
    raw.lock_set(a.handle(), space, LockKind::Write, 10, 10, 1).expect("owner 1");
    let in_the_way = raw.lock_get(b.handle(), space, LockKind::Read, 0, 0, 2).expect("test").expect("a conflict");
    assert_eq!((in_the_way.start, in_the_way.len, in_the_way.owner), (10, 10, 1));
    assert_eq!(raw.lock_set(b.handle(), space, LockKind::Read, 15, 1, 2).err(), Some(Errno::AGAIN));
    assert_eq!(raw.lock_get(b.handle(), space, LockKind::Write, 20, 5, 2), Ok(None));
}

#[test]
fn appends_of_many_clients_never_overlap() {
    let (device, _client) = device();
    std::thread::scope(|scope| {
        for who in 0..4u8 {
            let device = device.clone();
            scope.spawn(move || {
                let client = Client::with(Arc::new(device)).expect("attach");
                let log = client.open("/log", &OpenOptions::new().append(true).create(true)).expect("open");
                for i in 0..200u32 {
                    let mut line = [who; 100];
                    line[..4].copy_from_slice(&i.to_le_bytes());
                    assert_eq!(log.append(&line).expect("append").offset % 100, 0);
                }
            });
        }
    });
    let client = Client::with(Arc::new(device)).expect("attach");
    let log = client.read("/log").expect("read");
    assert_eq!(log.len(), 4 * 200 * 100);
    let mut next = [0u32; 4];
    for line in log.chunks(100) {
        let who = line[99] as usize;
        assert!(line[4..].iter().all(|b| *b as usize == who), "a line of two writers");
        assert_eq!(u32::from_le_bytes([line[0], line[1], line[2], line[3]]), next[who]);
        next[who] += 1;
    }
}

/// The counters a call adds.
fn cost(device: &Embedded, call: impl FnOnce()) -> Totals {
    let before = device.device().stats().total;
    call();
    let mut after = device.device().stats().total;
    after.commands -= before.commands;
    after.fused -= before.fused;
    after.payload_copies -= before.payload_copies;
    after.payload_bytes_in -= before.payload_bytes_in;
    after.payload_bytes_out -= before.payload_bytes_out;
    after
}

fn assert_fused(device: &Embedded, name: &str, bytes: (u64, u64), copies: u64, call: impl FnOnce()) {
    let cost = cost(device, call);
    let seen = (cost.commands, cost.fused, cost.payload_copies, cost.payload_bytes_in, cost.payload_bytes_out);
    assert_eq!(seen, (1, 1, copies, bytes.0, bytes.1), "{name}: commands, fused, payload copies, bytes in, bytes out");
}

#[test]
fn a_fused_call_is_one_command_and_one_payload_copy() {
    let (device, client) = device();
    let (data, flags) = ([7u8; 4096], OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE);
    client.raw().nop().expect("queue pair made");
    assert_fused(&device, "open_write_close", (4096, 0), 1, || {
        let done = client.open_write_close("/f", flags, 0o600, At::Offset(0), &data).expect("call");
        assert!(done.created && done.len == 4096 && done.offset == 0);
    });
    let mut room = [0; 4096];
    assert_fused(&device, "open_read_close", (0, 4096), 1, || {
        assert_eq!(client.open_read_close("/f", OpenFlags::READ, 0, &mut room).expect("call"), 4096);
    });
    assert_eq!(room, data);
    assert_fused(&device, "open_read_write_close, a copy each way", (2, 4096), 2, || {
        let call = client.open_read_write_close("/f", flags, 0o600, 0, &mut room, At::End, b"ab");
        let done = call.expect("call");
        assert_eq!((done.read, done.offset, done.created), (4096, 4096, false));
    });
    let file = client.open("/log", &rw()).expect("open");
    let mut sealed = None;
    assert_fused(&device, "append_checksum_write", (4096, 0), 1, || {
        sealed = Some(file.append_checksum_write(&data).expect("call"));
    });
    let sealed = sealed.expect("set above");
    assert_fused(&device, "read_checksum_verify", (0, 4096), 1, || {
        assert_eq!(file.read_checksum_verify(sealed.offset, &mut room).expect("call"), sealed.checksum);
    });
    assert_fused(&device, "checksum_verify", (0, 0), 0, || {
        assert_eq!(file.checksum_verify(sealed.offset, 4096).expect("call"), sealed.checksum);
    });
    assert_fused(&device, "read_modify_write", (0, 0), 0, || {
        file.read_modify_write(8, Change::Add { by: 1, width: 8 }, None).expect("call");
    });
    assert_fused(&device, "read_modify_write of bytes", (100, 0), 1, || {
        file.read_modify_write(8, Change::Patch(&[1; 100]), None).expect("call");
    });
    let mut pool = client.buffer(4096).expect("buffer");
    pool.bytes_mut().fill(3);
    assert_fused(&device, "open_write_close from a pool buffer", (4096, 0), 1, || {
        client.open_write_close("/g", flags, 0o600, At::Offset(0), &pool).expect("call");
    });
    assert_eq!(client.read("/g").expect("read"), [3; 4096]);
}

#[test]
fn checksums_catch_what_changed_and_modifications_do_what_they_say() {
    let (_device, client) = device();
    let file = client.open("/log", &rw()).expect("open");
    let first = file.append_checksum_write(b"one").expect("append");
    let second = file.append_checksum_write(b"three").expect("append");
    assert_eq!((first.offset, second.offset, file.metadata().expect("stat").len()), (0, 7, 16));
    file.write_at(b"X", 8).expect("damage");
    let mut room = [0; 5];
    assert_eq!(file.read_checksum_verify(7, &mut room).err(), Some(Errno::BADMSG));
    assert_eq!(&room, b"tXree", "the bytes come all the same");
    assert_eq!(file.checksum_verify(0, 3), Ok(first.checksum));
    assert_eq!(file.checksum_verify(0, 100).err(), Some(Errno::NODATA));

    let field = client.open("/field", &rw()).expect("open");
    let mut old = [9; 8];
    field.read_modify_write(0, Change::Add { by: 5, width: 8 }, Some(&mut old)).expect("past the end counts as zero");
    assert_eq!(old, [0; 8]);
    field.read_modify_write(0, Change::Add { by: 250, width: 1 }, None).expect("add");
    field.read_modify_write(0, Change::Add { by: 2, width: 1 }, Some(&mut old[..1])).expect("wraps");
    assert_eq!((old[0], client.read("/field").expect("read")[0]), (255, 1));
    field.read_modify_write(1, Change::Patch(b"abcdef"), None).expect("patch");
    field.read_modify_write(1, Change::Xor(&[0x20; 6]), None).expect("short xor");
    assert_eq!(&client.read("/field").expect("read")[1..7], b"ABCDEF");
    field.read_modify_write(0, Change::Xor(&[1; 40]), None).expect("long xor");
    let swap = |expect: &[u8], new: &[u8], old: &mut [u8]| {
        field.read_modify_write(1, Change::CompareSwap { expect, new }, Some(old))
    };
    let mut shown = [0; 2];
    assert_eq!(swap(b"zz", b"yy", &mut shown), Err(Errno::CANCELED));
    assert_eq!(&shown, b"@C");
    swap(b"@C", b"ok", &mut shown).expect("swap");
    assert_eq!(&client.read("/field").expect("read")[1..3], b"ok");
    let wide = vec![0; (64 << 10) + 1];
    assert_eq!(field.read_modify_write(0, Change::Patch(&wide), None).err(), Some(Errno::TOOBIG));
}

#[test]
fn a_fused_call_that_fails_leaves_nothing() {
    let (_device, client) = device();
    let flags = OpenFlags::WRITE | OpenFlags::CREATE;
    let owc = |path: &str, flags, at| client.open_write_close(path, flags, 0o600, at, b"x").err();
    assert_eq!(owc("/none/f", flags, At::Offset(0)), Some(Errno::NOENT));
    assert_eq!(owc("/f", OpenFlags::READ, At::Offset(0)), Some(Errno::INVAL));
    assert_eq!(owc("/f", flags, At::Offset(i64::MAX as u64)), Some(Errno::FBIG));
    assert!(!client.exists("/f").expect("look"), "the create went with the write that failed");
    client.write("/f", b"x").expect("write");
    assert_eq!(owc("/f", flags | OpenFlags::EXCL, At::End), Some(Errno::EXIST));
    assert_eq!(client.open_read_close("/g", OpenFlags::READ, 0, &mut [0; 1]).err(), Some(Errno::NOENT));
    let long = vec![0; (1 << 20) + 1];
    assert_eq!(client.open_write_close("/h", flags, 0o600, At::End, &long).err(), Some(Errno::TOOBIG));
}

#[test]
fn a_placeholder_shares_its_open_file_with_who_holds_it() {
    use std::os::fd::AsFd;
    let (device, client) = device();
    let raw = client.raw();
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let opened = raw.openat(Handle::ROOT, b"shared", flags, 0o600, 0).expect("open");
    let second = raw.openat(Handle::ROOT, b"second", flags, 0o600, 0).expect("open");
    let [stand_in, other_one] = &raw.share(&[opened.handle, second.handle]).expect("share")[..] else { panic!("two") };
    assert_ne!(stand_in.id, other_one.id);
    assert_eq!(raw.share(&[opened.handle]).err(), Some(Errno::EXIST), "it has one");
    assert_eq!(raw.share(&[Handle { index: 4000, generation: 7 }]).err(), Some(Errno::BADF));
    assert_eq!(raw.share(&[]).err(), Some(Errno::INVAL));
    let other = Client::with(Arc::new(device)).expect("another session");
    let claimed = other.raw().claim(stand_in.fd.as_fd()).expect("possession is the authority");
    assert_eq!((claimed.placeholder, claimed.mode & 0o777), (stand_in.id, 0o600));
    raw.write(opened.handle, At::Current, b"ab").expect("write");
    other.raw().write(claimed.handle, At::Current, b"cd").expect("write at the shared offset");
    raw.close(opened.handle).expect("close");
    other.raw().write(claimed.handle, At::Current, b"ef").expect("still open there");
    assert_eq!(client.read("/shared").expect("read"), b"abcdef");
    let plain = std::fs::File::open("/dev/null").expect("open");
    assert_eq!(raw.claim(plain.as_fd()).err(), Some(Errno::BADF));
}

#[test]
fn a_device_that_ends_gives_errors_within_a_second() {
    let (device, client) = device();
    let file = client.open("/f", &rw()).expect("open");
    device.close().expect("clean end");
    let start = Instant::now();
    assert!(matches!(errno(file.write_at(b"x", 0)), Errno::IO | Errno::NODEV));
    assert!(matches!(errno(client.sync()), Errno::IO | Errno::NODEV));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(errno(client.reconnect()), Errno::NODEV);
}

#[test]
fn a_verified_write_is_one_command_through_every_door() {
    let (device, client) = device();
    let file = client.open("/f", &rw()).expect("open");
    let (small, large) = (vec![7; 300], vec![8; 9000]);
    let other = client.open("/sums", &rw()).expect("open");
    let [first, second] = [&small, &large].map(|data| other.append_checksum_write(&data[..]).expect("room").checksum);
    let commands = || device.device().stats().total.commands;
    let before = commands();
    assert_eq!(file.write_verified(At::End, &small[..], first).expect("right").offset, 0);
    assert_eq!(file.write_verified(At::Offset(100), &large[..], second).expect("right").len, 9000);
    assert_eq!(file.write_verified(At::Offset(0), &small[..], second).err(), Some(Errno::BADMSG));
    assert_eq!(file.write_verified(At::End, &large[..], second ^ 1).err(), Some(Errno::BADMSG));
    assert_eq!(commands() - before, 4, "one each");
    let whole = [&small[..100], &large[..]].concat();
    assert_eq!(client.read("/f").expect("read"), whole);
    let mut batch = client.batch();
    batch.write_verified(file.handle(), At::Offset(0), &large[..], second);
    batch.write_verified(file.handle(), At::Offset(0), &small[..], 1);
    let results: Vec<_> = batch.run().expect("it runs").into_iter().map(|r| r.ok().map(|(n, _)| n)).collect();
    assert_eq!(results, [Ok(9000), Err(Errno::BADMSG)]);
    let only = client.open("/f", &OpenOptions::new().read(true)).expect("open");
    assert_eq!(only.write_verified(At::Offset(0), &small[..], 1).err(), Some(Errno::BADF), "before it is summed up");
}
