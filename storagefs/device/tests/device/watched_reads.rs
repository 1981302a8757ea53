//! Reads under a watch: what they brought is what the file is, for whoever is told of a change; and a read that goes on
//! with a watch says nothing of bytes that have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weldfs::{
    At, Change, Client, Command, Errno, FallocMode, Handle, Kept, Op, OpenFlags, PoolRange, Raw, Watched, Wishes,
};
use weldfs_ciscops::interp::{ANEW, WATCHED};
use weldfs_ciscops::limits::WATCHES;
use weldfs_device::DeviceConfig;
use weldfs_kernel_shim::{Embedded, Source};

const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);

fn device(at_once: bool) -> Embedded {
    let config = DeviceConfig { inline: Some(false), at_once, ..DeviceConfig::default() };
    Embedded::open(&Source::Ram(128 << 20), config).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

fn open(raw: Raw<'_>, flags: OpenFlags) -> Handle {
    raw.openat(Handle::ROOT, b"f", flags, 0o644, 0).unwrap().handle
}

/// Reads eight bytes; what they are, and what was said of them.
fn read(raw: Raw<'_>, h: Handle, at: u64, watched: &mut Option<Watched>) -> (Vec<u8>, Kept) {
    raw.read_watched((h, at, 8), watched, |bytes, kept| (bytes.to_vec(), kept)).unwrap().expect("room")
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// How the number at the file's beginning becomes `n`.
type Make = fn(Raw<'_>, Handle, u64);

const KINDS: [(&str, Make); 6] = [
    ("write", |raw, h, n| assert_eq!(raw.write(h, At::Offset(0), &n.to_le_bytes()[..]).unwrap().len, 8)),
    ("post_write", |raw, _, n| {
        let brought = raw.open_with(Handle::ROOT, b"f", (CREATE, 0), Wishes { lease: true, look: false }).unwrap();
        let (h, lease) = (brought.opened.handle, brought.lease.expect("a lease"));
        assert_eq!(raw.post_write(&lease, h, At::Offset(0), &n.to_le_bytes()[..]), Ok(true));
        assert_eq!(raw.post_close(&lease, h), Ok(true));
    }),
    ("open_write_close", |raw, _, n| {
        let flags = OpenFlags::WRITE | OpenFlags::TRUNC;
        raw.open_write_close(Handle::ROOT, b"f", flags, 0, At::Offset(0), &n.to_le_bytes()[..]).unwrap();
    }),
    ("read_modify_write", |raw, h, _| raw.read_modify_write(h, 0, Change::Add { by: 1, width: 8 }, None).unwrap()),
    ("truncate and write", |raw, h, n| {
        raw.truncate(h, 0).unwrap();
        raw.write(h, At::Offset(0), &n.to_le_bytes()[..]).unwrap();
    }),
    ("punch and write", |raw, h, n| {
        raw.fallocate(h, FallocMode::Punch, 4096, 4096).unwrap();
        raw.write(h, At::Offset(0), &n.to_le_bytes()[..]).unwrap();
    }),
];

/// One changes the file and tells how often; another relies on what it read: how many times it did, and how many reads
/// of another place left that as it was.
fn change_and_read(device: &Embedded, (name, make): (&str, Make), changes: u64) -> (u64, u64) {
    let changer = client(device);
    let h = open(changer.raw(), CREATE);
    changer.raw().write(h, At::Offset(0), &[0u8; 20_000][..]).unwrap();
    let (told, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let client = client(device);
            let (h, mut watched) = (open(client.raw(), OpenFlags::READ), None);
            let (mut relied, mut went_on) = (0, 0);
            while !over.load(Ordering::Acquire) {
                let known = told.load(Ordering::Acquire);
                let (bytes, _) = read(client.raw(), h, 0, &mut watched);
                // Emptied for a moment by some of the changes: which one is not known.
                if bytes.is_empty() {
                    continue;
                }
                let seen = number(&bytes);
                assert!(seen >= known, "{name}: told of {known}, and a read says {seen}");
                for round in 0..200 {
                    let known = told.load(Ordering::Acquire);
                    let current = match round % 10 {
                        // Where something is, where nothing is, and behind the end.
                        9 => {
                            let at = [8, 16_384, 1 << 30][round / 10 % 3];
                            let goes_on = read(client.raw(), h, at, &mut watched).1 == Kept::GoesOn;
                            went_on += u64::from(goes_on);
                            goes_on
                        }
                        _ => watched.as_ref().is_some_and(Watched::is_current),
                    };
                    if !current {
                        break;
                    }
                    assert!(seen >= known, "{name}: told of {known}, and what was read says {seen}");
                    relied += 1;
                }
            }
            (relied, went_on)
        });
        for n in 1..=changes {
            make(changer.raw(), h, n);
            told.store(n, Ordering::Release);
            if n % 64 == 0 {
                // Between changes there is something to rely on, on one processor, too.
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        over.store(true, Ordering::Release);
        observer.join().unwrap()
    })
}

#[test]
fn what_was_read_is_not_current_when_another_is_told_of_a_change() {
    for at_once in [true, false] {
        for kind in KINDS {
            let device = device(at_once);
            let (relied, went_on) = change_and_read(&device, kind, 2_000);
            assert!(relied > 0 && went_on > 0, "{}: relied on {relied} times, {went_on} reads went on", kind.0);
            device.close().unwrap();
        }
    }
}

/// Reads until a watch begins: the store may be changing just now.
fn begin(raw: Raw<'_>, h: Handle) -> Watched {
    let mut watched = None;
    for _ in 0..1_000 {
        if read(raw, h, 0, &mut watched).1 == Kept::Anew {
            return watched.expect("a watch");
        }
        watched = None;
    }
    panic!("no read is watched");
}

#[test]
fn a_watch_of_reads_goes_on_though_it_was_not_relied_on_for_long_and_begins_anew_after_a_change() {
    let device = device(true);
    let (one, other) = (client(&device), client(&device));
    let h = open(one.raw(), CREATE);
    one.raw().write(h, At::Offset(0), b"12345678").unwrap();
    let mut watched = Some(begin(one.raw(), h));
    std::thread::sleep(Duration::from_millis(60));
    assert!(!watched.as_ref().unwrap().is_current(), "relied on without asking for too long");
    assert_eq!(read(one.raw(), h, 0, &mut watched), (b"12345678".to_vec(), Kept::GoesOn));
    let writer = open(other.raw(), OpenFlags::WRITE);
    other.raw().write(writer, At::Offset(0), b"abcdefgh").unwrap();
    assert!(!watched.as_ref().unwrap().is_current());
    let (bytes, kept) = read(one.raw(), h, 0, &mut watched);
    assert_eq!(bytes, b"abcdefgh");
    assert_ne!(kept, Kept::GoesOn);
    // Another handle of the same file has a watch of its own.
    let mut watched = Some(begin(one.raw(), h));
    let second = open(one.raw(), OpenFlags::READ);
    assert_eq!(read(one.raw(), second, 0, &mut watched).1, Kept::Anew);
    device.close().unwrap();
}

#[test]
fn what_another_may_post_to_is_not_watched_and_neither_is_what_cannot_be_read() {
    let device = device(true);
    let client = client(&device);
    let raw = client.raw();
    let h = open(raw, CREATE);
    raw.write(h, At::Offset(0), b"12345678").unwrap();
    let mut watched = Some(begin(raw, h));
    let brought = raw.open_with(Handle::ROOT, b"f", (CREATE, 0), Wishes { lease: true, look: false }).unwrap();
    let lease = brought.lease.expect("a lease");
    assert!(!watched.as_ref().unwrap().is_current(), "the lease ends it");
    assert_eq!(read(raw, h, 0, &mut watched).1, Kept::No);
    assert_eq!(read(raw, brought.opened.handle, 0, &mut watched).1, Kept::No, "the lease's own handle");
    assert_eq!(raw.post_close(&lease, brought.opened.handle), Ok(true));
    let mut watched = Some(begin(raw, h));
    let only_writes = open(raw, OpenFlags::WRITE);
    for (h, errno) in [(only_writes, Errno::BADF), (Handle { index: 99, generation: 1 }, Errno::BADF)] {
        let refused = raw.read_watched((h, 0, 8), &mut watched, |_, _| ());
        assert_eq!((refused, watched.is_some()), (Err(errno), false));
    }
    device.close().unwrap();
}

/// One number is one watch: what the device says of it to a client that uses it for whatever it likes.
#[test]
fn a_number_that_is_used_for_another_file_begins_anew() {
    let device = device(true);
    let client = client(&device);
    let raw = client.raw();
    let h = open(raw, CREATE);
    raw.write(h, At::Offset(0), b"12345678").unwrap();
    let g = raw.openat(Handle::ROOT, b"g", CREATE, 0o644, 0).unwrap().handle;
    drop(begin(raw, h));
    let mut queue = client.queue(64, 1 << 16).unwrap();
    let out = queue.alloc(64).unwrap();
    let mut said = |h, watch| {
        let op = Op::Read { h, at: At::Offset(0), out: PoolRange::new(out.off, 8), watch };
        let (n, second) = queue.execute(&Command::new(0, op)).unwrap().ok().unwrap();
        (n, second & (WATCHED | ANEW))
    };
    let (anew, goes_on) = (WATCHED | ANEW, WATCHED);
    for (h, watch, n, expected) in [
        (h, 7, 8, anew),
        (h, 7, 8, goes_on),
        (g, 7, 0, anew),
        (g, 7, 0, goes_on),
        (h, 7, 8, anew),
        (h, WATCHES, 8, anew),
        (h, 7, 8, goes_on),
        (h, 0, 8, 0),
        (h, 7, 8, goes_on),
    ] {
        assert_eq!(said(h, watch), (n, expected), "{h:?} {watch}");
    }
    device.close().unwrap();
}
