//! The folder of a run, in the directory for temporary files: its socket, and the registry of its mount.
//!
//! A run that is killed leaves it behind, so the next one of the same user takes away those whose runs are dead. Each
//! run holds a lock on its own folder, which ends with its process; no other user can open the folder, and so lock it.

use crate::failure::{Doing, Failure};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, open, statat, unlinkat};
use rustix::io::Errno;
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// How names of such folders begin.
const FRONT: &str = "weldfs-run-";
/// All that a run puts there.
const SOCKET: &str = "weldfs.sock";
const REGISTRY: &str = "mapped";
/// How often one is made: other runs may take a new one for a dead one's before it has its lock.
const TRIES: usize = 100;

/// The folder of this run.
pub struct Folder {
    dir: TempDir,
    _lock: OwnedFd,
}

impl Folder {
    /// Makes one, for this user alone, or (`share`) for all who are told where the socket is: its name is not listed to
    /// them. Takes away those of runs that are dead.
    pub fn make(share: bool) -> Result<Folder, Failure> {
        let parent = std::env::temp_dir();
        take_away_dead(&parent);
        for _ in 0..TRIES {
            let mut wanted = tempfile::Builder::new();
            // Without the right to read for others from the first moment on: who can open it can lock it.
            let dir = wanted.prefix(FRONT).permissions(Permissions::from_mode(0o700)).tempdir_in(&parent);
            let dir = dir.doing("make a folder in", &parent)?;
            if let Some(lock) = lock(dir.path()).doing("lock", dir.path())? {
                let mode = Mode::from_raw_mode(if share { 0o711 } else { 0o700 });
                rustix::fs::fchmod(&lock, mode).doing("set the mode of", dir.path())?;
                return Ok(Folder { dir, _lock: lock });
            }
        }
        Err(Failure::new(format!("cannot make a folder in {}: other runs take it away", parent.display())))
    }

    /// Where the socket is to be.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join(SOCKET)
    }

    /// Where its mount says which files are mapped.
    pub fn registry(&self) -> PathBuf {
        self.dir.path().join(REGISTRY)
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// None where another run takes the folder away. A file system without locks has none held: there no folder is ever
/// found to be a dead run's.
fn lock(path: &Path) -> io::Result<Option<OwnedFd>> {
    let dir = match open_folder(path) {
        Err(Errno::NOENT) => return Ok(None),
        dir => dir?,
    };
    if flock(&dir, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Ok(None);
    }
    let held = fstat(&dir)?;
    let there = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    let there = there.is_ok_and(|there| (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino));
    Ok(there.then_some(dir))
}

fn take_away_dead(parent: &Path) {
    let Ok(entries) = parent.read_dir() else { return };
    let mine = entries.flatten().filter(|entry| entry.file_name().as_bytes().starts_with(FRONT.as_bytes()));
    for path in mine.map(|entry| entry.path()) {
        if let Err(e) = take_away_if_dead(&path) {
            tracing::debug!("{} stays: {e}", path.display());
        }
    }
}

/// WOULDBLOCK: its run lives. PERM: it is another user's.
fn take_away_if_dead(path: &Path) -> rustix::io::Result<()> {
    let dir = open_folder(path)?;
    if fstat(&dir)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    // What a run puts there and nothing else, found by the descriptor: whatever has the folder's name by now, no file
    // in it is lost.
    for name in [SOCKET, REGISTRY] {
        match unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
    }
    rustix::fs::rmdir(path)
}
