//! A directory of the host served in place of a device.
#![allow(clippy::unwrap_used)]

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use weldfs::{At, Change, Client, Errno, Handle, OpenFlags};
use weldfs_kernel_shim::EmbeddedDir;

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
