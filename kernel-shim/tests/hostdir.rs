//! A directory of the host served in place of a device.
#![allow(clippy::unwrap_used)]

use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use weldfs::{At, Client, Errno, OpenOptions};
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
    let from = client.open("/d", &OpenOptions::new().read(true)).unwrap();
    drop(from);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[test]
fn the_six_fused_commands_work() {
    let dir = tempfile::tempdir().unwrap();
    let (_served, client) = served(dir.path());
    let flags = weldfs::OpenOptions::new().write(true).create(true);
    let _ = (flags, At::End);
    let mut file = client.open("/log", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
    let record = file.append(&b"record"[..]).unwrap();
    assert_eq!(record.offset, 0);
    file.close().unwrap();
}
