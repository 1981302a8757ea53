//! The mount that `weldfs run` makes for its program: for what the preload library cannot do by itself.
//!
//! It lies at the prefix, so that what is not hooked finds the same files by the same names. As root it does so in a
//! mount namespace of this process's own: only the program and what it starts see it, and it goes with the last of
//! them, however this process ends. Another user's lies there if that is an empty directory of his.

use crate::failure::{Failure, reason};
use crate::find;
use crate::output::say;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weldfs_kernel_shim::separate_mounts;
use weldfs_mount::{Config, How, Mount, MountFlagSet, SocketDoor, mounted_at, unmount};

/// Threads that take requests.
const THREADS: usize = 8;
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

/// A mount of this process.
pub struct Mounted {
    mount: Mount,
    dir: PathBuf,
    namespace: Namespace,
    _ground: Option<Ground>,
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
    let dir = whole(prefix)?;
    let ground = match namespace {
        Namespace::Own => Some(Ground::take(&dir).ok_or_else(|| refused("no directory can be made there"))?),
        Namespace::Shared if is_own(&dir) => None,
        Namespace::Shared => return Err(refused("it is no directory of this user's")),
    };
    may_be_covered(&dir, socket)?;
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
    Ok(Mounted { mount: Mount::start(door, &dir, &config)?, dir, namespace, _ground: ground })
}

/// The prefix without links in it: what is mounted is found by that name. Its last part need not be there.
fn whole(prefix: &Path) -> io::Result<PathBuf> {
    match (prefix.canonicalize(), prefix.parent(), prefix.file_name()) {
        (Ok(dir), ..) => Ok(dir),
        (Err(e), Some(parent), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
            Ok(parent.canonicalize()?.join(name))
        }
        (Err(e), ..) => Err(e),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("nothing is mounted at the prefix: {why}"))
}

fn is_own(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw())
}

/// Refuses to cover what programs need: files of the host, this run's socket among them. A run within a run covers the
/// outer one's mount.
fn may_be_covered(dir: &Path, socket: &Path) -> io::Result<()> {
    if socket.starts_with(dir) {
        return Err(refused("the device's socket lies below it"));
    }
    let of_run = mounted_at(dir)?.is_some_and(|(_, kind)| kind == "fuse.weldfs");
    if !of_run && dir.read_dir()?.next().is_some() {
        return Err(refused("the directory is not empty"));
    }
    Ok(())
}

impl Mounted {
    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends it, when the program has ended: what mappings wrote reaches the device. Where processes that it has left
    /// behind use it, it stays in their way until they end, and answers ENOTCONN as soon as this process is gone: taken
    /// out of the tree of names, it would have them write to the host.
    pub fn end(self) {
        if let Ok(dir) = std::fs::File::open(&self.dir) {
            let _ = rustix::fs::syncfs(&dir);
        }
        if unmount_quietly(&self.dir, self.namespace) {
            self.mount.join();
        } else if self.namespace == Namespace::Shared {
            let dir = self.dir.display();
            say!("weldfs: processes use {dir}; `weldfs umount --lazy {dir}` when they have ended");
        }
    }
}

/// Whether it is unmounted.
fn unmount_quietly(dir: &Path, namespace: Namespace) -> bool {
    match namespace {
        Namespace::Own => rustix::mount::unmount(dir, rustix::mount::UnmountFlags::NOFOLLOW).is_ok(),
        Namespace::Shared => unmount(dir, How::Idle).is_ok(),
    }
}
