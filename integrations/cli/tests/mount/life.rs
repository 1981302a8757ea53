//! How a mount begins and ends, in order and otherwise.

use crate::rig::{NOBODY, Place, Served, fails, ok, shell_as, until, usable, weldfs};
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::process::Command;

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.expect_err("fails").raw_os_error().expect("an errno")
}

#[test]
fn a_mount_in_the_background_shows_the_files_and_leaves_a_clean_image() {
    if !usable("a_mount_in_the_background_shows_the_files_and_leaves_a_clean_image") {
        return;
    }
    let place = Place::new("64M");
    ok(weldfs(["mount"]).arg(place.image()).arg(place.root()));
    fs::write(place.at("a"), "text").expect("write");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(mounts.contains(" - fuse.weldfs "), "{mounts}");
    ok(weldfs(["umount"]).arg(place.root()));
    // It is closed on return: no wait, no lock.
    place.is_clean();
    assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/a"))), "text");
    let (code, why) = fails(weldfs(["umount"]).arg(place.root()));
    assert!(code == Some(1) && why.contains("nothing is mounted"), "{why}");
}

#[test]
fn what_cannot_be_mounted_is_said() {
    if !usable("what_cannot_be_mounted_is_said") {
        return;
    }
    let place = Place::new("64M");
    let (_, why) = fails(weldfs(["mount"]).arg(place.path("none")).arg(place.root()));
    assert!(why.contains("No such file"), "{why}");
    let (_, why) = fails(weldfs(["mount"]).arg(place.image()).arg(place.path("none")));
    assert!(why.contains("No such file"), "{why}");
    let (_, why) = fails(weldfs(["mount"]).arg(place.image()).arg(place.image()));
    assert!(why.contains("no directory"), "{why}");
    fs::write(place.path("junk"), vec![7; 1 << 20]).expect("write");
    let (_, why) = fails(weldfs(["mount"]).arg(place.path("junk")).arg(place.root()));
    assert!(why.contains("junk"), "{why}");
    let (code, why) = fails(weldfs(["mount", "-o", "rw,nonsense"]).arg(place.image()).arg(place.root()));
    assert!(code == Some(2) && why.contains("nonsense"), "{why}");
    let served = Served::start(&place);
    let (_, why) = fails(weldfs(["mount", "--exclusive"]).arg(place.image()).arg(place.root()));
    assert!(why.contains("not exclusive"), "{why}");
    served.stop();
    assert!(!place.is_mounted());
}

#[test]
fn a_mount_in_use_is_busy_and_a_lazy_end_waits_for_its_users() {
    if !usable("a_mount_in_use_is_busy_and_a_lazy_end_waits_for_its_users") {
        return;
    }
    let place = Place::new("64M");
    let mut mounted = place.mount(&[]);
    let mut open = fs::File::create(place.at("open")).expect("create");
    let (code, why) = fails(weldfs(["umount"]).arg(place.root()));
    assert!(code == Some(1) && why.contains("processes use it"), "{why}");
    open.write_all(b"one").expect("goes on");
    ok(weldfs(["umount", "--lazy"]).arg(place.root()));
    assert!(!place.is_mounted());
    open.write_all(b" two").expect("its users have it still");
    drop(open);
    assert_eq!(mounted.ends(), Some(0));
    place.is_clean();
    assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/open"))), "one two");
}

#[test]
fn an_image_that_is_not_closed_in_time_is_told() {
    if !usable("an_image_that_is_not_closed_in_time_is_told") {
        return;
    }
    let place = Place::new("64M");
    let mut mounted = place.mount(&[]);
    fs::write(place.at("a"), "kept").expect("write");
    // It is given no processor, as on a machine that is overloaded.
    mounted.signal(Signal::STOP);
    let (code, why) = fails(weldfs(["umount"]).env("WELDFS_WAIT", "1").arg(place.root()));
    assert!(code == Some(1) && why.contains("in use still after 1 s"), "{why}");
    assert!(!place.is_mounted(), "the directory is free");
    mounted.signal(Signal::CONT);
    assert_eq!(mounted.ends(), Some(0));
    place.is_clean();
    assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/a"))), "kept");
}

#[test]
fn a_signal_ends_it_in_order_and_whoever_uses_it_is_told() {
    if !usable("a_signal_ends_it_in_order_and_whoever_uses_it_is_told") {
        return;
    }
    let place = Place::new("64M");
    for in_use in [false, true] {
        let mut mounted = place.mount(&[]);
        let mut open = fs::File::create(place.at("open")).expect("create");
        open.write_all(b"kept").expect("write");
        let open = in_use.then_some(open);
        mounted.signal(Signal::TERM);
        assert_eq!(mounted.ends(), Some(0));
        assert!(!place.is_mounted());
        if let Some(mut open) = open {
            assert_eq!(errno(open.write_all(b"lost")), libc::ENOTCONN);
        }
        place.is_clean();
        assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/open"))), "kept");
    }
}

#[test]
fn what_was_synced_survives_the_kill_of_its_process() {
    if !usable("what_was_synced_survives_the_kill_of_its_process") {
        return;
    }
    let place = Place::new("64M");
    let mut mounted = place.mount(&[]);
    let synced = fs::File::create(place.at("synced")).expect("create");
    for i in 0..200u32 {
        synced.write_all_at(&i.to_le_bytes(), u64::from(i) * 4).expect("write");
    }
    synced.sync_all().expect("fsync");
    mounted.signal(Signal::KILL);
    mounted.ends();
    assert_eq!(errno(fs::metadata(place.at("synced"))), libc::ENOTCONN);
    assert_eq!(errno(synced.metadata()), libc::ENOTCONN);
    drop(synced);
    ok(weldfs(["umount"]).arg(place.root()));
    let mounted = place.mount(&[]);
    let read = fs::read(place.at("synced")).expect("read");
    assert!(read.chunks(4).enumerate().all(|(i, four)| four == (i as u32).to_le_bytes()) && read.len() == 800);
    mounted.unmount();
    place.is_clean();
}

#[test]
fn the_death_of_a_device_is_enotconn_until_it_is_served_again() {
    if !usable("the_death_of_a_device_is_enotconn_until_it_is_served_again") {
        return;
    }
    let place = Place::new("64M");
    let served = Served::start(&place);
    let mounted = place.mount(&[]);
    fs::write(place.at("before"), "x").expect("write");
    ok(weldfs(["sync"]).arg(place.image()));
    let mut open = fs::File::options().append(true).open(place.at("before")).expect("open");
    served.kill();
    until("ENOTCONN", || fs::metadata(place.at("before")).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN)));
    assert_eq!(errno(fs::write(place.at("new"), "y")), libc::ENOTCONN);
    assert_eq!(errno(fs::read_dir(place.root())), libc::ENOTCONN);
    assert_eq!(errno(open.write_all(b"y")), libc::ENOTCONN);
    let served = Served::start(&place);
    until("a new session", || fs::read(place.at("before")).is_ok_and(|bytes| bytes == b"x"));
    // The old one's files are gone with it.
    assert_eq!(errno(open.write_all(b"y")), libc::ENOTCONN);
    drop(open);
    mounted.unmount();
    served.stop();
    place.is_clean();
}

#[test]
fn a_read_only_mount_changes_nothing_and_others_may_look_too() {
    if !usable("a_read_only_mount_changes_nothing_and_others_may_look_too") {
        return;
    }
    let place = Place::new("64M");
    let mounted = place.mount(&[]);
    fs::write(place.at("a"), "text").expect("write");
    mounted.unmount();
    fs::set_permissions(place.image(), PermissionsExt::from_mode(0o444)).expect("chmod");
    let before = fs::read(place.image()).expect("read");
    let mounted = place.mount(&["--read-only", "--allow-other"]);
    assert_eq!(fs::read(place.at("a")).expect("read"), b"text");
    assert_eq!(ok(&mut shell_as(NOBODY, "", &format!("cat {}", place.at("a").display()))), "text");
    assert_eq!(errno(fs::write(place.at("a"), "y")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(place.at("d"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(place.at("a"))), libc::EROFS);
    assert_eq!(ok(weldfs(["cat"]).arg(place.inside("/a"))), "text");
    mounted.unmount();
    assert!(fs::read(place.image()).expect("read") == before, "the image was written to");
}

#[test]
fn a_full_image_is_enospc_and_loses_nothing() {
    if !usable("a_full_image_is_enospc_and_loses_nothing") {
        return;
    }
    let place = Place::new("32M");
    let mounted = place.mount(&[]);
    fs::write(place.at("kept"), "kept").expect("write");
    let mut file = fs::File::create(place.at("full")).expect("create");
    let block = vec![1; 1 << 20];
    let mut written = 0;
    let e = loop {
        match file.write_all(&block) {
            Ok(()) => written += block.len(),
            Err(e) => break e,
        }
    };
    assert_eq!((e.kind(), written > 4 << 20), (ErrorKind::StorageFull, true));
    file.sync_all().expect("what was written is there");
    drop(file);
    assert_eq!(fs::read(place.at("kept")).expect("read"), b"kept");
    let len = fs::metadata(place.at("full")).expect("stat").len();
    assert!(len >= written as u64, "{len} of {written}");
    fs::remove_file(place.at("full")).expect("unlink");
    until("room", || fs::write(place.at("again"), &block).is_ok());
    mounted.unmount();
    place.is_clean();
}

#[test]
fn the_names_of_mount_8_work() {
    if !usable("the_names_of_mount_8_work") {
        return;
    }
    let place = Place::new("64M");
    for name in ["mount.weldfs", "mount.fuse.weldfs", "fsck.weldfs", "mkfs.weldfs"] {
        symlink(crate::rig::BINARY, place.path(name)).expect("symlink");
    }
    ok(Command::new(place.path("fsck.weldfs")).args(["-a", "-C0"]).arg(place.image()));
    ok(Command::new(place.path("mount.weldfs")).arg(place.image()).arg(place.root()).args(["-o", "rw,nofail"]));
    fs::set_permissions(place.root(), PermissionsExt::from_mode(0o777)).expect("chmod");
    // As root mounts it there, it is for all users.
    ok(&mut shell_as(NOBODY, "", &format!("echo hello > {}", place.at("theirs").display())));
    let remount = |options: &str| {
        let mut command = Command::new(place.path("mount.fuse.weldfs"));
        ok(command.arg(place.image()).arg(place.root()).args(["-o", options]));
    };
    remount("ro,nosuid,nodev,relatime,remount,user_id=0,group_id=0,allow_other");
    assert_eq!(errno(fs::write(place.at("theirs"), "x")), libc::EROFS);
    remount("remount,rw");
    fs::write(place.at("theirs"), "x").expect("write");
    ok(Command::new("umount").arg(place.root()));
    until("the end of its process", || {
        weldfs(["fsck"]).arg(place.image()).output().is_ok_and(|out| out.status.success())
    });
    ok(Command::new(place.path("mkfs.weldfs")).args(["--size", "32M", "--force"]).arg(place.image()));
}
