//! Looks: what an open brought along is what the file is, for whoever is told of a change, or tells of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weldfs::{
    At, Brought, Client, Command, Direction, Errno, Handle, Listed, Listing, LockKind, LockSpace, Look, Op, OpenFlags,
    PoolRange, Raw, RenameFlags, SetAttrBody, SetAttrMask, VirtRange, VirtSpec, Wishes,
};
use weldfs_ciscops::limits::{LOOK_MAX, WATCH_NS, WATCHES};
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);
const READ: OpenFlags = OpenFlags::READ;
const BOTH: Wishes = Wishes { lease: true, look: true };
const ONLY_LOOK: Wishes = Wishes { lease: false, look: true };

fn device(at_once: bool) -> Embedded {
    let config = DeviceConfig { inline: Some(false), at_once, ..DeviceConfig::default() };
    Embedded::open(&Source::Ram(128 << 20), config).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

fn open(raw: Raw<'_>, name: &[u8], flags: OpenFlags, wishes: Wishes) -> Brought {
    raw.open_with(Handle::ROOT, name, (flags, 0o644), wishes).unwrap()
}

/// Opens until a look comes along: it may be that the file is being changed.
fn look(raw: Raw<'_>, name: &[u8], flags: OpenFlags) -> (Handle, Arc<Look>) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let brought = open(raw, name, flags, ONLY_LOOK);
        if let Some(look) = brought.look {
            return (brought.opened.handle, look);
        }
        raw.close(brought.opened.handle).unwrap();
        assert!(Instant::now() < until, "no look came along");
    }
}

/// The same, current when it was asked: a look counts for a while only, in which this thread may not have run.
fn current(raw: Raw<'_>, name: &[u8], flags: OpenFlags) -> (Handle, Arc<Look>) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let (handle, look) = look(raw, name, flags);
        if look.is_current() {
            return (handle, look);
        }
        raw.close(handle).unwrap();
        assert!(Instant::now() < until, "no look is current");
    }
}

/// A kind of change: how the n-th one is made, and what of a look tells how many there were.
struct Kind {
    name: &'static str,
    make: fn(&mut Changer<'_>, u64),
    seen: fn(&Look) -> u64,
}

struct Changer<'c> {
    raw: Raw<'c>,
    h: Handle,
}

fn number(look: &Look) -> u64 {
    look.content().and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "write",
        make: |c, n| assert_eq!(c.raw.write(c.h, At::Offset(0), &n.to_le_bytes()[..]).unwrap().len, 8),
        seen: number,
    },
    Kind {
        name: "post_write",
        // Under a lease of its own each: before it is granted, others may have looks.
        make: |c, n| {
            let brought = open(c.raw, b"f", CREATE, BOTH);
            let (h, lease) = (brought.opened.handle, brought.lease.expect("a lease"));
            assert_eq!(c.raw.post_write(&lease, h, At::Offset(0), &n.to_le_bytes()[..]), Ok(true));
            assert_eq!(c.raw.post_close(&lease, h), Ok(true));
        },
        seen: number,
    },
    Kind {
        name: "open_write_close",
        make: |c, n| {
            let flags = OpenFlags::WRITE | OpenFlags::TRUNC;
            c.raw.open_write_close(Handle::ROOT, b"f", flags, 0, At::Offset(0), &n.to_le_bytes()[..]).unwrap();
        },
        seen: number,
    },
    Kind {
        name: "read_modify_write",
        make: |c, _| c.raw.read_modify_write(c.h, 0, weldfs::Change::Add { by: 1, width: 8 }, None).unwrap(),
        seen: number,
    },
    Kind { name: "truncate", make: |c, n| c.raw.truncate(c.h, n).unwrap(), seen: |look| look.attributes().size },
    Kind {
        name: "chown by name",
        make: |c, n| {
            let set = SetAttrBody { mask: SetAttrMask::UID.bits(), uid: n as u32, ..SetAttrBody::default() };
            c.raw.set_attr_at(Handle::ROOT, b"f", false, &set).unwrap();
        },
        seen: |look| look.attributes().uid.into(),
    },
    Kind {
        name: "link",
        make: |c, n| c.raw.linkat(Handle::ROOT, b"f", Handle::ROOT, format!("l{n}").as_bytes(), false).unwrap(),
        seen: |look| u64::from(look.attributes().nlink) - 1,
    },
];

/// One changes the file and tells how often; another relies on looks. How many times it did.
fn change_and_look(device: &Embedded, kind: &Kind, changes: u64) -> u64 {
    let changer = client(device);
    let h = open(changer.raw(), b"f", CREATE, Wishes::default()).opened.handle;
    changer.raw().write(h, At::Offset(0), &0u64.to_le_bytes()[..]).unwrap();
    let (told, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let relied = std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let client = client(device);
            let mut relied = 0u64;
            while !over.load(Ordering::Acquire) {
                let brought = open(client.raw(), b"f", READ, ONLY_LOOK);
                // As long as it is current, and often enough in a row to be there when that ends.
                while let Some(look) = brought.look.as_ref() {
                    let known = told.load(Ordering::Acquire);
                    if !look.is_current() {
                        break;
                    }
                    let seen = (kind.seen)(look);
                    assert!(seen >= known, "{}: told of {known}, and a look says {seen}", kind.name);
                    relied += 1;
                }
                client.raw().close(brought.opened.handle).unwrap();
            }
            relied
        });
        let mut c = Changer { raw: changer.raw(), h };
        for n in 1..=changes {
            (kind.make)(&mut c, n);
            told.store(n, Ordering::Release);
            if n % 64 == 0 {
                // Between changes there is something to rely on, on one processor, too.
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        over.store(true, Ordering::Release);
        observer.join().unwrap()
    });
    changer.settle().unwrap();
    changer.raw().unlinkat(Handle::ROOT, b"f").unwrap();
    relied
}

/// A way to see that something below a directory changed: how it is changed for the n-th time, and what a listing
/// tells.
struct Below {
    name: &'static str,
    make: fn(Raw<'_>, u64),
    seen: fn(&Listing) -> u64,
}

fn attributes<'l>(listing: &'l Listing, name: &[u8]) -> Option<&'l weldfs::StatBody> {
    match listing.find(name) {
        Some(Listed::There(body)) => Some(body),
        _ => None,
    }
}

fn owner(raw: Raw<'_>, path: &[u8], n: u64) {
    let set = SetAttrBody { mask: SetAttrMask::UID.bits(), uid: n as u32, ..SetAttrBody::default() };
    raw.set_attr_at(Handle::ROOT, path, true, &set).unwrap();
}

/// The highest number of a name in it.
fn last_name(listing: &Listing) -> u64 {
    (0..4_000).rev().find(|n| attributes(listing, format!("n{n}").as_bytes()).is_some()).unwrap_or(0)
}

const BELOW: [Below; 5] = [
    Below {
        name: "chown of an entry",
        make: |raw, n| owner(raw, b"way/d/f", n),
        seen: |listing| attributes(listing, b"f").unwrap().uid.into(),
    },
    Below {
        name: "a name comes and another goes",
        make: |raw, n| {
            raw.openat(Handle::ROOT, format!("way/d/n{n}").as_bytes(), CREATE, 0o600, 0).unwrap();
            let _ = raw.unlinkat(Handle::ROOT, format!("way/d/n{}", n - 1).as_bytes());
        },
        seen: last_name,
    },
    Below {
        name: "another directory is put in its place",
        make: |raw, n| {
            let next = format!("next{n}");
            raw.mkdirat(Handle::ROOT, next.as_bytes(), 0o755).unwrap();
            raw.openat(Handle::ROOT, format!("{next}/n{n}").as_bytes(), CREATE, 0o600, 0).unwrap();
            raw.renameat(Handle::ROOT, next.as_bytes(), Handle::ROOT, b"way/d", RenameFlags::EXCHANGE).unwrap();
        },
        seen: last_name,
    },
    Below {
        name: "the directory above it is replaced",
        make: |raw, n| {
            let next = format!("next{n}");
            raw.mkdirat(Handle::ROOT, next.as_bytes(), 0o755).unwrap();
            raw.mkdirat(Handle::ROOT, format!("{next}/d").as_bytes(), 0o755).unwrap();
            raw.openat(Handle::ROOT, format!("{next}/d/n{n}").as_bytes(), CREATE, 0o600, 0).unwrap();
            raw.renameat(Handle::ROOT, next.as_bytes(), Handle::ROOT, b"way", RenameFlags::EXCHANGE).unwrap();
        },
        seen: last_name,
    },
    Below {
        name: "a posted write",
        make: |raw, n| {
            let brought = open(raw, b"way/d/f", CREATE, BOTH);
            let (h, lease) = (brought.opened.handle, brought.lease.expect("a lease"));
            assert_eq!(raw.post_write(&lease, h, At::Offset(n - 1), b"x"), Ok(true));
            assert_eq!(raw.post_close(&lease, h), Ok(true));
        },
        seen: |listing| attributes(listing, b"f").unwrap().size,
    },
];

/// One changes what is below a directory and tells how often; another relies on listings. How many times it did.
fn change_and_list(device: &Embedded, kind: &Below, changes: u64) -> u64 {
    let changer = client(device);
    let raw = changer.raw();
    raw.mkdirat(Handle::ROOT, b"way", 0o755).unwrap();
    raw.mkdirat(Handle::ROOT, b"way/d", 0o755).unwrap();
    raw.close(open(raw, b"way/d/f", CREATE, Wishes::default()).opened.handle).unwrap();
    let (told, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let client = client(device);
            let mut relied = 0u64;
            while !over.load(Ordering::Acquire) {
                let Some(listing) = client.raw().listing(Handle::ROOT, b"way/d/").unwrap() else { continue };
                loop {
                    let known = told.load(Ordering::Acquire);
                    if !listing.is_current() {
                        break;
                    }
                    let seen = (kind.seen)(&listing);
                    assert!(seen >= known, "{}: told of {known}, and a listing says {seen}", kind.name);
                    relied += 1;
                }
                client.raw().post_plain_close(listing.handle).unwrap();
            }
            relied
        });
        for n in 1..=changes {
            (kind.make)(raw, n);
            told.store(n, Ordering::Release);
            if n % 16 == 0 {
                std::thread::sleep(Duration::from_micros(600));
            }
        }
        over.store(true, Ordering::Release);
        observer.join().unwrap()
    })
}

#[test]
fn a_listing_is_not_current_when_another_is_told_of_a_change_below_or_above_it() {
    for at_once in [true, false] {
        for kind in &BELOW {
            let device = device(at_once);
            assert!(change_and_list(&device, kind, 800) > 0, "{}: no listing was ever relied on", kind.name);
            device.close().unwrap();
        }
    }
}

#[test]
fn a_listing_says_what_stat_says_and_what_is_not_there() {
    let device = device(true);
    let client = client(&device);
    let raw = client.raw();
    raw.mkdirat(Handle::ROOT, b"d", 0o755).unwrap();
    assert!(raw.listing(Handle::ROOT, b"nothing").is_err());
    for n in 0..300 {
        raw.close(open(raw, format!("d/f{n}").as_bytes(), CREATE, Wishes::default()).opened.handle).unwrap();
    }
    raw.symlinkat(b"f1", Handle::ROOT, b"d/link").unwrap();
    raw.mkdirat(Handle::ROOT, b"d/sub", 0o700).unwrap();
    // It is current for a while only, in which this thread may not have run.
    let until = Instant::now() + Duration::from_secs(10);
    let listing = loop {
        let listing = raw.listing(Handle::ROOT, b"d").unwrap().expect("a listing");
        for name in ["f0", "f299", "link", "sub"] {
            let stat = raw.statat(Handle::ROOT, format!("d/{name}").as_bytes(), true).unwrap();
            assert_eq!(listing.find(name.as_bytes()), Some(Listed::There(&stat)), "{name}");
        }
        assert_eq!(listing.find(b"f300"), Some(Listed::Absent));
        for untold in [&b""[..], b".", b"..", b"sub/", b"sub/x", &[b'x'; 256]] {
            assert_eq!(listing.find(untold), None);
        }
        if listing.is_current() {
            break listing;
        }
        raw.close(listing.handle).unwrap();
        assert!(Instant::now() < until, "no listing is current");
    };
    raw.close(listing.handle).unwrap();
    assert!(!listing.is_current(), "it ends with its handle");
    // A file in it that others post changes of, and more entries than are watched.
    let brought = open(raw, b"d/f7", CREATE, BOTH);
    assert!(brought.lease.is_some() && raw.listing(Handle::ROOT, b"d").unwrap().is_none(), "one of them has a lease");
    raw.close(brought.opened.handle).unwrap();
    for n in 300..700 {
        raw.close(open(raw, format!("d/f{n}").as_bytes(), CREATE, Wishes::default()).opened.handle).unwrap();
    }
    assert!(raw.listing(Handle::ROOT, b"d").unwrap().is_none(), "too many");
    device.close().unwrap();
}

#[test]
fn a_look_is_not_current_when_another_is_told_of_a_change() {
    for at_once in [true, false] {
        for kind in &KINDS {
            let device = device(at_once);
            assert!(change_and_look(&device, kind, 2_000) > 0, "{}: no look was ever relied on", kind.name);
            device.close().unwrap();
        }
    }
}

/// Under a lease nothing that others have is current: what is posted is a change before the device has it.
#[test]
fn a_file_has_looks_or_a_lease() {
    let device = device(true);
    let (one, other) = (client(&device), client(&device));
    let first = open(one.raw(), b"f", CREATE, Wishes::default());
    let (_, before) = current(other.raw(), b"f", READ);
    let until = Instant::now() + Duration::from_secs(10);
    let (brought, lease, own) = loop {
        let mut brought = open(one.raw(), b"f", CREATE, BOTH);
        let (lease, own) =
            (brought.lease.take().expect("a lease"), brought.look.take().expect("what its handle brought"));
        assert!(!before.is_current(), "there is a lease now");
        // Its client knows what it posts.
        if own.is_current() {
            break (brought, lease, own);
        }
        one.raw().close(brought.opened.handle).unwrap();
        assert!(Instant::now() < until, "none of its own is current");
    };
    assert!(open(other.raw(), b"f", READ, ONLY_LOOK).look.is_none(), "another ring's lease");
    assert!(open(one.raw(), b"f", READ, ONLY_LOOK).look.is_none(), "another handle's lease");
    assert_eq!(one.raw().post_write(&lease, brought.opened.handle, At::Offset(0), b"x"), Ok(true));
    one.settle().unwrap();
    assert!(!own.is_current());
    assert_eq!(one.raw().post_close(&lease, brought.opened.handle), Ok(true));
    let (_, after) = look(other.raw(), b"f", READ);
    assert_eq!((after.attributes().size, after.content()), (1, Some(&b"x"[..])));
    one.raw().close(first.opened.handle).unwrap();
    device.close().unwrap();
}

#[test]
fn what_comes_along_is_what_the_handle_can_read_and_the_room_holds() {
    let device = device(true);
    let client = client(&device);
    let raw = client.raw();
    let most = LOOK_MAX as usize - size_of::<weldfs::StatBody>();
    for (name, len) in [(&b"empty"[..], 0), (b"short", 100), (b"fits", most), (b"long", most + 1)] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let h = open(raw, name, CREATE, Wishes::default()).opened.handle;
        raw.write(h, At::Offset(0), &bytes[..]).unwrap();
        let (_, found) = look(raw, name, READ);
        assert_eq!(*found.attributes(), raw.stat(h).unwrap());
        assert_eq!(found.content(), (len <= most).then_some(&bytes[..]), "{len}");
        let (_, unread) = look(raw, name, OpenFlags::WRITE);
        assert_eq!((unread.attributes().size, unread.content()), (len as u64, None));
    }
    // Holes are zeros, and what lies in the log is there as well.
    let h = open(raw, b"hole", CREATE, Wishes::default()).opened.handle;
    raw.write(h, At::Offset(9_000), b"end").unwrap();
    let (_, found) = look(raw, b"hole", READ);
    let bytes = found.content().unwrap();
    assert_eq!((bytes.len(), &bytes[9_000..]), (9_003, &b"end"[..]));
    assert!(bytes[..9_000].iter().all(|b| *b == 0));
    raw.mkdirat(Handle::ROOT, b"d", 0o755).unwrap();
    let (d, found) = look(raw, b"d", READ | OpenFlags::DIRECTORY);
    assert_eq!((*found.attributes(), found.content()), (raw.stat(d).unwrap(), None));
    raw.mkdirat(Handle::ROOT, b"d/e", 0o755).unwrap();
    assert!(!found.is_current(), "a name in it");
    assert!(open(raw, b"d", OpenFlags::PATH, ONLY_LOOK).look.is_none());
    device.close().unwrap();
}

/// Each ends by itself: with its time, its handle, its session, the device; and a number is used again.
#[test]
fn looks_end() {
    let device = device(true);
    let (one, other) = (client(&device), client(&device));
    let raw = one.raw();
    for n in 0..WATCHES + 8 {
        open(raw, format!("f{n}").as_bytes(), CREATE, Wishes::default());
    }
    let (_, first) = look(raw, b"f0", READ);
    let began = Instant::now();
    while first.is_current() {
        assert!(began.elapsed() < Duration::from_secs(5), "it lasts longer than its time");
    }
    assert!(began.elapsed() <= Duration::from_nanos(WATCH_NS) + Duration::from_secs(1));
    // More than there are watches: the rest comes without, until one is given back.
    let all: Vec<_> = (0..WATCHES + 8).map(|n| open(raw, format!("f{n}").as_bytes(), READ, ONLY_LOOK)).collect();
    let had = all.iter().filter(|brought| brought.look.is_some()).count();
    // A machine that stands still for twenty milliseconds gives more of them.
    assert!(had >= WATCHES as usize, "{had}");
    all.iter().for_each(|brought| brought.look.iter().for_each(|look| look.end()));
    assert!(all.iter().all(|brought| brought.look.as_ref().is_none_or(|look| !look.is_current())));
    // A number that is free again.
    let (_, again) = look(raw, b"f1", READ);
    let (_, at_end) = look(other.raw(), b"f2", READ);
    drop((again, one, other));
    device.close().unwrap();
    assert!(!at_end.is_current(), "the device is gone");
}

/// Closes that are not waited for: what comes after them in their ring, and what others find, is as if they were.
#[test]
fn a_close_is_posted_of_what_came_with_a_look() {
    let device = device(true);
    let (one, other) = (client(&device), client(&device));
    for n in 0..200 {
        let name = format!("f{n}");
        let h = open(other.raw(), name.as_bytes(), CREATE, Wishes::default()).opened.handle;
        other.raw().write(h, At::Offset(0), &[7; 5000][..]).unwrap();
        other.raw().close(h).unwrap();
        let (h, look) = look(one.raw(), name.as_bytes(), READ);
        assert_eq!(look.content().map(<[u8]>::len), Some(5000));
        one.raw().post_plain_close(h).unwrap();
        assert_eq!(one.raw().stat(h), Err(Errno::BADF), "closed before the next command");
        other.raw().unlinkat(Handle::ROOT, name.as_bytes()).unwrap();
    }
    assert!(device.device().stats().total.posted >= 200);
    assert!(device.device().stats().total.watches >= 200);
    drop((one, other));
    device.close().unwrap();
}

/// A lock that another thread takes after a close was posted is not given back by that close.
#[test]
fn a_posted_close_gives_back_no_lock() {
    let device = device(true);
    let (one, other) = (client(&device), client(&device));
    let lock = |client: &Client, h| client.raw().lock_set(h, LockSpace::Process, LockKind::Write, 0, 0, 1);
    let mine = open(one.raw(), b"f", CREATE, Wishes::default()).opened.handle;
    let theirs = open(other.raw(), b"f", CREATE, Wishes::default()).opened.handle;
    let (h, _) = look(one.raw(), b"f", READ);
    lock(&one, mine).unwrap();
    one.raw().post_plain_close(h).unwrap();
    assert_eq!(one.raw().stat(h), Err(Errno::BADF), "it is closed");
    assert_eq!(lock(&other, theirs), Err(Errno::AGAIN));
    // One that is waited for does, as on any system.
    one.raw().close(open(one.raw(), b"f", READ, Wishes::default()).opened.handle).unwrap();
    lock(&other, theirs).unwrap();
    device.close().unwrap();
}

/// A virtual file brings nothing along, and its close, for which a kernel may have to run, is not posted whatever its
/// client says.
#[test]
fn the_close_of_a_virtual_file_is_waited_for() {
    let device = device(true);
    let client = client(&device);
    let h = open(client.raw(), b"f", CREATE, Wishes::default()).opened.handle;
    client.raw().write(h, At::Offset(0), b"bytes").unwrap();
    let range = VirtRange { path: b"/f".to_vec(), offset: 0, length: weldfs_ciscops::virt::TO_END };
    let spec =
        VirtSpec { kernel: "pass-through".into(), params: vec![], direction: Direction::Read, ranges: vec![range] };
    client.virt_register("/v", 0o644, &spec).unwrap();
    let brought = open(client.raw(), b"v", READ, BOTH);
    assert!(brought.look.is_none() && brought.lease.is_none());
    client.raw().post_plain_close(brought.opened.handle).unwrap();
    client.settle().unwrap();
    assert_eq!(client.raw().stat(brought.opened.handle), Err(Errno::BADF));
    assert_eq!(device.device().stats().total.posted, 0, "it was run as any other");
    device.close().unwrap();
}

/// A client that names one watch for all its opens, posts closes behind commands that it waits for, takes no answer for
/// long and goes away in the middle: it keeps no other waiting, and nothing is left of it.
#[test]
fn a_client_that_keeps_no_rules_harms_no_other() {
    let device = device(true);
    let other = client(&device);
    for n in 0..40 {
        other
            .raw()
            .close(open(other.raw(), format!("f{n}").as_bytes(), CREATE, Wishes::default()).opened.handle)
            .unwrap();
    }
    for round in 0..20 {
        let hostile = client(&device);
        let mut queue = hostile.queue(64, 1 << 16).unwrap();
        let room = queue.alloc(4096).unwrap();
        let opened: Vec<_> = (0..40)
            .map(|n| {
                let path = queue.stage(format!("f{n}").as_bytes()).unwrap();
                let (base, look, watch) = (Handle::ROOT, room, 7);
                let op = Op::Open { base, path, flags: READ, mode: 0, placeholder: 0, look, watch };
                let cqe = queue.execute(&Command::new(0, op)).unwrap();
                queue.free(path);
                Handle::from_wire(cqe.ok().unwrap().0)
            })
            .collect();
        for h in opened.iter().take(30) {
            queue.submit(&Command::new(0, Op::Stat { h: *h, out: PoolRange::new(room.off, 256) })).unwrap();
            queue.submit(&Command::new(0, Op::Close { h: *h }).posted()).unwrap();
        }
        queue.flush();
        if round % 2 == 0 {
            drop(queue);
        }
        // Each of these changes or asks about what it watches.
        for n in 0..40 {
            let name = format!("f{n}");
            other.raw().set_attr_at(Handle::ROOT, name.as_bytes(), false, &mode(0o600 + round)).unwrap();
            assert_eq!(other.raw().statat(Handle::ROOT, name.as_bytes(), false).unwrap().mode & 0o777, 0o600 + round);
        }
        other.raw().syncfs().unwrap();
    }
    current(other.raw(), b"f1", READ);
    device.close().unwrap();
}

fn mode(mode: u32) -> SetAttrBody {
    SetAttrBody { mask: SetAttrMask::MODE.bits(), mode, ..SetAttrBody::default() }
}
