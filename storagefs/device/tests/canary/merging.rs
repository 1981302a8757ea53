//! Calls that do not wait, and calls that are answered by what their open brought along: a device that forgets one of
//! the rules (the planted bugs) is found out.

use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{At, Brought, Client, Errno, Handle, Kept, OpenFlags, Wishes};
use weldfs_ciscops::{Durability, Op};
use weldfs_device::DeviceConfig;
use weldfs_fs::Cred;
use weldfs_journal::canary::{self, Canary};
use weldfs_kernel_shim::{Embedded, Source};
use weldfs_media::{CrashModel, RamMedium};

use crate::posting::{MEDIUM, cut_rows, on};

const CREATE: OpenFlags = OpenFlags::WRITE.union(OpenFlags::READ).union(OpenFlags::CREATE);
/// How long a planted bug may go unnoticed where it takes two that meet.
const PATIENCE: Duration = Duration::from_secs(60);

fn device() -> Embedded {
    let config = DeviceConfig { inline: Some(false), ..DeviceConfig::default() };
    Embedded::open(&Source::Ram(64 << 20), config).unwrap()
}

fn client(device: &Embedded) -> Client {
    Client::with(Arc::new(device.clone())).unwrap()
}

fn open(client: &Client, flags: OpenFlags) -> Brought {
    client.raw().open_with(Handle::ROOT, b"f", (flags, 0o600), Wishes { lease: true, look: true }).unwrap()
}

/// With a bug planted, and without.
fn finds(canary: Canary, sound: impl Fn() -> bool) {
    let _turn = crate::TURN.lock();
    assert!(sound());
    canary::plant(Some(canary));
    let found = !sound();
    canary::plant(None);
    assert!(found, "{canary:?}, and nobody noticed");
}

#[test]
fn what_came_with_an_open_is_not_told_after_a_truncate() {
    finds(Canary::WatchKept, || {
        let device = device();
        let (one, other) = (client(&device), client(&device));
        let h = one.raw().openat(Handle::ROOT, b"f", CREATE, 0o600, 0).unwrap().handle;
        one.raw().write(h, At::Offset(0), b"abc").unwrap();
        let look = open(&other, OpenFlags::READ).look.unwrap();
        assert_eq!(look.content(), Some(&b"abc"[..]));
        one.raw().truncate(h, 1).unwrap();
        let told = look.is_current();
        device.close().unwrap();
        !told
    });
}

#[test]
fn a_read_that_is_still_relied_on_when_the_file_has_changed_is_found() {
    finds(Canary::WatchKept, || {
        let device = device();
        let (one, other) = (client(&device), client(&device));
        let h = one.raw().openat(Handle::ROOT, b"f", CREATE, 0o600, 0).unwrap().handle;
        one.raw().write(h, At::Offset(0), b"abc").unwrap();
        let reads = other.raw().openat(Handle::ROOT, b"f", OpenFlags::READ, 0, 0).unwrap().handle;
        let mut watched = None;
        let read = |watched: &mut _| other.raw().read_watched((reads, 0, 8), watched, |_, kept| kept).unwrap().unwrap();
        while read(&mut watched) == Kept::No {}
        one.raw().truncate(h, 1).unwrap();
        let goes_on = read(&mut watched) == Kept::GoesOn;
        device.close().unwrap();
        !goes_on
    });
}

/// One posts appends, and has another thread of its own session append at once: theirs come after them.
fn appends_keep_their_order(until: Duration) -> bool {
    let device = device();
    let client = client(&device);
    let brought = open(&client, CREATE | OpenFlags::APPEND);
    let (h, lease) = (brought.opened.handle, brought.lease.unwrap());
    let (tell, told) = std::sync::mpsc::channel::<u32>();
    let (say, said) = std::sync::mpsc::channel::<bool>();
    let ordered = std::thread::scope(|scope| {
        let client = &client;
        scope.spawn(move || {
            let mine = client.raw().openat(Handle::ROOT, b"f", CREATE | OpenFlags::APPEND, 0, 0).unwrap().handle;
            for n in told {
                let size = client.raw().stat(mine).unwrap().size;
                let place = client.raw().write(mine, At::Current, &[2; 8][..]).unwrap().offset;
                let expected = u64::from(n) * (64 * 1024 + 8) + 64 * 1024;
                if say.send(size == expected && place == expected).is_err() {
                    return;
                }
            }
        });
        let (begun, mut n) = (Instant::now(), 0);
        let ordered = loop {
            // Long enough for the other one to come in between.
            for _ in 0..16 {
                assert_eq!(client.raw().post_write(&lease, h, At::Current, &[1; 4096][..]), Ok(true));
            }
            tell.send(n).unwrap();
            let sound = said.recv().unwrap();
            n += 1;
            if !sound || n == 400 && !canary::planted(Canary::LeaseUnbroken) || begun.elapsed() > until {
                break sound;
            }
        };
        drop(tell);
        ordered
    });
    client.settle().unwrap();
    device.close().unwrap();
    ordered
}

#[test]
fn what_was_posted_comes_before_what_others_of_the_same_session_do() {
    finds(Canary::LeaseUnbroken, || appends_keep_their_order(PATIENCE));
}

#[test]
fn an_error_of_a_posted_write_is_told_by_the_next_fsync() {
    finds(Canary::PostedErrorSwallowed, || {
        let device = device();
        let client = client(&device);
        let brought = open(&client, CREATE);
        let (h, lease) = (brought.opened.handle, brought.lease.unwrap());
        // Beyond what a file can be.
        assert_eq!(client.raw().post_write(&lease, h, At::Offset(i64::MAX as u64 - 10), &[1; 64][..]), Ok(true));
        let told = client.raw().fsync(h);
        device.close().unwrap();
        told == Err(Errno::FBIG)
    });
}

#[test]
fn what_was_posted_before_a_sync_is_not_merged_with_what_comes_behind_it() {
    finds(Canary::MergedAcrossSync, || cut_rows(CrashModel::Pmem, 100) == 0);
}

#[test]
fn a_row_of_appends_goes_on_behind_what_others_appended() {
    finds(Canary::MergedOverAppend, || {
        let medium = Arc::new(RamMedium::new(MEDIUM));
        let flags = OpenFlags::WRITE | OpenFlags::APPEND;
        let ((bytes, _), total) = on((medium, Durability::Default), Cred::root(), flags, |hand, _| {
            let mine = hand.h;
            let row = [hand.next(At::Current, 10, 1), hand.next(At::Current, 10, 1)];
            assert!(hand.all(&row, true).iter().all(|c| c.status == 0));
            let path = hand.put(b"d/f");
            let other = hand.all(&[(Op::open(Handle::ROOT, path, flags, 0), false)], true)[0].result;
            hand.h = Handle::from_wire(other);
            let theirs = [(hand.next(At::Current, 10, 2).0, false)];
            assert!(hand.all(&theirs, true).iter().all(|c| c.status == 0));
            hand.h = mine;
            let row = [hand.next(At::Current, 10, 3), hand.next(At::Current, 10, 3)];
            assert!(hand.all(&row, true).iter().all(|c| c.status == 0));
            hand.file()
        });
        assert_eq!(total.merged_writes, 2);
        bytes == [[1; 10], [1; 10], [2; 10], [3; 10], [3; 10]].concat()
    });
}
