//! The mount that `weldfs run` makes for its program: for what the preload library cannot do by itself.
//!
//! As root it lies at the prefix, in a mount namespace of this process's own: only the program and what it starts see
//! it, and it goes with the last of them, however this process ends. Another user's lies at the prefix if that is an
//! empty directory of his, else in a private folder, where only the preload library looks for it.

use crate::failure::{Doing, Failure, reason};
use crate::find;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weldfs_kernel_shim::separate_mounts;
use weldfs_mount::{Config, How, Mount, MountFlagSet, SocketDoor, unmount};

/// Threads that take requests.
const THREADS: usize = 8;
/// What private folders are named like.
const FOLDER: &str = "weldfs-run-";
/// The mode of a directory that a run has made at the prefix: one that no directory has by chance.
const GROUND_MODE: Mode = Mode::from_bits_retain(0o1555);
/// How often that is tried while other runs take it away.
const GROUND_TRIES: usize = 100;

/// Whether a program gets a mount.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// If this user can mount here
    Auto,
    /// Without one the program is not run
    Always,
    /// The preload library does what it can
    Never,
}

/// Where mounts of this process are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// By this process and what it starts.
    Own,
    /// By every process.
    Shared,
}

/// Gives this process a mount namespace of its own, if it may have one. To be called before other threads are started:
/// each would stay in the old one.
pub fn separate(wanted: Wanted) -> Namespace {
    let own = wanted != Wanted::Never && rustix::process::geteuid().is_root() && separate_mounts().is_ok();
    if own { Namespace::Own } else { Namespace::Shared }
}

/// The directory at the prefix, under the mount. It is made for the first run, and taken away by the last one: each
/// has a shared lock on it.
struct Ground {
    path: PathBuf,
    dir: OwnedFd,
    made: bool,
}

impl Ground {
    /// None where there is no such directory and none can be made.
    fn take(path: &Path) -> Option<Ground> {
        for _ in 0..GROUND_TRIES {
            match rustix::fs::mkdir(path, GROUND_MODE) {
                // What umask has taken away is put back: the mode is what tells it from a directory of the user's.
                Ok(()) => rustix::fs::chmod(path, GROUND_MODE).ok()?,
                Err(rustix::io::Errno::EXIST) => {}
                Err(_) => return None,
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
            rustix::fs::flock(&dir, FlockOperation::NonBlockingLockShared).ok()?;
            let (held, found) = (rustix::fs::fstat(&dir).ok()?, rustix::fs::stat(path));
            // The last run took it away between the two.
            if found.is_ok_and(|found| (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)) {
                let made = held.st_uid == 0 && held.st_mode & 0o7777 == GROUND_MODE.bits();
                return Some(Ground { path: path.to_owned(), dir, made });
            }
        }
        None
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let last = self.made && rustix::fs::flock(&self.dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        if last {
            // It stays if files were put into it meanwhile.
            let _ = rustix::fs::rmdir(&self.path);
        }
    }
}

/// A private folder under the mount. It goes only when it is empty, so never with a mount on it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Under the mount.
enum Under {
    Ground(#[expect(dead_code, reason = "dropped when the mount is")] Ground),
    Prefix,
    Folder(Folder),
}

/// A mount of this process.
pub struct Mounted {
    mount: Mount,
    dir: PathBuf,
    _under: Under,
}

/// Mounts the device behind `socket`. None where that is not wanted, or cannot be and need not.
pub fn start(wanted: Wanted, namespace: Namespace, prefix: &Path, socket: &Path) -> Result<Option<Mounted>, Failure> {
    if wanted == Wanted::Never {
        return Ok(None);
    }
    match attempt(namespace, prefix, socket) {
        Ok(mounted) => Ok(Some(mounted)),
        Err(e) if wanted == Wanted::Auto => {
            tracing::debug!("no mount: {e}");
            Ok(None)
        }
        Err(e) => Err(Failure::new(format!("cannot mount: {}", reason(&e)))),
    }
}

fn attempt(namespace: Namespace, prefix: &Path, socket: &Path) -> io::Result<Mounted> {
    // What cannot be done is found out before a folder is made for it.
    drop(std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse")?);
    if namespace == Namespace::Shared {
        sweep();
    }
    let under = match namespace {
        Namespace::Own => Ground::take(prefix).map(Under::Ground),
        Namespace::Shared => is_own_and_empty(prefix).then_some(Under::Prefix),
    };
    let under = match under {
        Some(under) => under,
        None => Under::Folder(Folder(tempfile::Builder::new().prefix(FOLDER).tempdir()?.keep())),
    };
    let dir = if let Under::Folder(folder) = &under { &folder.0 } else { prefix }.to_owned();
    let config = Config {
        flags: MountFlagSet {
            read_only: false,
            suid: false,
            no_exec: false,
            // In a namespace of its own it is for what runs there, under whatever user: the device decides.
            allow_other: namespace == Namespace::Own,
            default_permissions: false,
            source: socket.display().to_string(),
        },
        keep: Duration::ZERO,
        threads: THREADS,
    };
    let door = Arc::new(SocketDoor::new(Arc::new(find::connector(socket, socket))));
    Ok(Mounted { mount: Mount::start(door, &dir, &config)?, dir, _under: under })
}

fn is_own_and_empty(dir: &Path) -> bool {
    let own = std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw());
    own && dir.read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

/// Takes away what runs of this user that were killed have left: folders whose mount answers nothing any more.
fn sweep() {
    let Ok(entries) = std::env::temp_dir().read_dir() else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(FOLDER)) {
        let dead = std::fs::metadata(entry.path()).is_err_and(|e| e.raw_os_error() == Some(libc::ENOTCONN));
        if dead && unmount(&entry.path(), How::Lazy).is_ok() {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

impl Mounted {
    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends it, when the program has ended: what mappings wrote reaches the device. Processes that the program has
    /// left behind are told ENOTCONN.
    pub fn end(self) -> Result<(), Failure> {
        if let Ok(dir) = std::fs::File::open(&self.dir) {
            let _ = rustix::fs::syncfs(&dir);
        }
        if unmount(&self.dir, How::Idle).is_ok() {
            self.mount.join();
            return Ok(());
        }
        // Its threads end with this process, which is about to: whatever uses it cannot keep them.
        unmount(&self.dir, How::Lazy).doing("unmount", &self.dir)
    }
}
