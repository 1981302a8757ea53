//! The mount that `weldfs run` makes for its program: for what the preload library cannot do by itself.
//!
//! It lies at the prefix, so that what is not hooked finds the same files by the same names. As root it does so in a
//! mount namespace of this process's own: only the program and what it starts see it, and it goes with the last of
//! them, however this process ends. Another user's lies there if that is an empty directory of his.

use super::Spot;
use super::folder::Folder;
use super::ground::Ground;
use crate::failure::{Failure, reason};
use crate::output::say;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weldfs::SocketConnector;
use weldfs_kernel_shim::separate_mounts;
use weldfs_mount::{Config, How, Mount, MountFlagSet, Registry, SocketDoor, mounted_at, unmount};

/// Threads that take requests.
const THREADS: usize = 8;

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

/// A mount of this process.
pub struct Mounted {
    mount: Mount,
    dir: PathBuf,
    namespace: Namespace,
    registry: PathBuf,
    _folder: Folder,
    _ground: Option<Ground>,
}

/// Mounts a device. Where that is not wanted, or cannot be and need not, it says why.
pub fn start(
    wanted: Wanted,
    namespace: Namespace,
    prefix: &Path,
    device: &Spot,
) -> Result<Result<Mounted, String>, Failure> {
    if wanted == Wanted::Never {
        return Ok(Err("--mount never".to_owned()));
    }
    match attempt(namespace, prefix, device) {
        Ok(mounted) => Ok(Ok(mounted)),
        Err(e) if wanted == Wanted::Auto => {
            tracing::debug!("no mount: {e}");
            Ok(Err(reason(&e)))
        }
        Err(e) => Err(Failure::new(format!("cannot mount: {}", reason(&e)))),
    }
}

fn attempt(namespace: Namespace, prefix: &Path, device: &Spot) -> io::Result<Mounted> {
    let socket = &*device.socket;
    // What cannot be done is found out before a folder is made for it.
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    drop(fuse.map_err(|e| io::Error::new(e.kind(), format!("/dev/fuse: {e}")))?);
    let dir = whole(prefix)?;
    let of_run = mounted_at(&dir)?.is_some_and(|(_, kind)| kind == "fuse.weldfs");
    let ground = match namespace {
        // The outer run has the directory.
        Namespace::Own if of_run => None,
        Namespace::Own => Some(Ground::take(&dir)?),
        Namespace::Shared if is_own(&dir) => None,
        Namespace::Shared => return Err(refused("the prefix is no directory of this user's")),
    };
    may_be_covered(&dir, of_run, socket)?;
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
    let door = Arc::new(SocketDoor::new(Arc::new(SocketConnector::new(socket).run_by(Some(device.user)))));
    let (folder, registry, written) = registry(namespace == Namespace::Own)?;
    let mount = Mount::start(door, &dir, &config, Some(written))?;
    Ok(Mounted { mount, dir, namespace, registry, _folder: folder, _ground: ground })
}

/// The file in which the mount says what is mapped. Programs only look at it, those of other users too where they may
/// use the mount: there is nothing in it but inode numbers.
fn registry(for_all: bool) -> io::Result<(Folder, PathBuf, Registry)> {
    let folder = Folder::make(for_all).map_err(|e| io::Error::other(e.to_string()))?;
    let path = folder.registry();
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    let registry = Registry::create(&file)?;
    if for_all {
        file.set_permissions(Permissions::from_mode(0o644))?;
    }
    Ok((folder, path, registry))
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
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn is_own(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw())
}

/// Refuses to cover what programs need: files of the host, this run's socket among them. A run within a run covers the
/// outer one's mount.
fn may_be_covered(dir: &Path, of_run: bool, socket: &Path) -> io::Result<()> {
    if socket.starts_with(dir) {
        return Err(refused("the device's socket lies below the prefix"));
    }
    if !of_run && dir.read_dir()?.next().is_some() {
        return Err(refused("the prefix is not empty"));
    }
    Ok(())
}

impl Mounted {
    /// Where it says what is mapped.
    pub fn registry(&self) -> &Path {
        &self.registry
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
