//! The directory at the prefix, under the mount of a run as root.

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, mkdir, open, rmdir, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The mode of a directory that a run has made: one that no directory has by chance. Root alone can open it, and so
/// hold a lock on it.
const MODE: Mode = Mode::from_bits_retain(0o1511);
/// What mkdir(2) adds in a directory that hands its group on.
const SETGID: u32 = 0o2000;
/// How often it is tried while other runs take it away.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The directory, made for the first run if there is none, and then taken away by the last one. Each has a shared lock
/// on it, for rmdir(2) ends the mounts that others have there. One that no run has made is never taken away, so another
/// user's lock on that one does no harm.
pub struct Ground {
    path: PathBuf,
    dir: OwnedFd,
}

fn is_made_by_a_run(found: &Stat) -> bool {
    found.st_uid == 0 && found.st_mode & 0o7777 == MODE.bits()
}

impl Ground {
    /// Fails where it cannot be made, and where something else than a directory of this user's is.
    pub fn take(path: &Path) -> io::Result<Ground> {
        for _ in 0..TRIES {
            let is_new = match mkdir(path, MODE) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(e) => return Err(told("no directory can be made at the prefix", e)),
            };
            if let Some(ground) = Ground::found(path, is_new)? {
                return Ok(ground);
            }
            std::thread::sleep(PAUSE);
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "other runs take the directory at the prefix away all the time"))
    }

    /// None where another run takes it away.
    fn found(path: &Path, is_new: bool) -> io::Result<Option<Ground>> {
        // Whoever may write to the directory above can put a link in its place meanwhile.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match open(path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(told("the prefix cannot be opened as a directory", e)),
        };
        let held = fstat(&dir)?;
        if held.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the prefix is another user's directory"));
        }
        // What umask has taken away is put back, as long as it can be the directory just made.
        if is_new && held.st_mode & 0o7777 & !(MODE.bits() | SETGID) == 0 {
            fchmod(&dir, MODE)?;
        }
        let locked = flock(&dir, FlockOperation::NonBlockingLockShared).is_ok();
        let held = fstat(&dir)?;
        let there = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|there| (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino));
        // A run that leaves holds the lock of all for a moment; then the directory is gone.
        let usable = there && (locked || !is_made_by_a_run(&held));
        Ok(usable.then(|| Ground { path: path.to_owned(), dir }))
    }
}

fn told(what: &str, e: Errno) -> io::Error {
    io::Error::new(e.kind(), format!("{what}: {}", io::Error::from(e)))
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Looked at again: the run that made it may not have set its mode when this one came.
        let made = fstat(&self.dir).is_ok_and(|held| is_made_by_a_run(&held));
        if made && flock(&self.dir, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // It stays if files were put into it meanwhile.
            let _ = rmdir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_just_made_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (aim, link) = (folder.path().join("aim"), folder.path().join("link"));
        std::fs::create_dir(&aim).unwrap();
        std::fs::set_permissions(&aim, PermissionsExt::from_mode(0o700)).unwrap();
        symlink(&aim, &link).unwrap();
        assert!(Ground::found(&link, true).is_err());
        assert_eq!(mode(&aim), 0o700);
        // Nor is the mode changed of a directory that is not as mkdir left it.
        assert!(Ground::found(&aim, true).unwrap().is_some());
        assert_eq!(mode(&aim), 0o700);
    }

    #[test]
    fn a_directory_that_a_run_makes_is_opened_by_nobody_else_and_goes_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made");
        let first = Ground::take(&path).unwrap();
        assert_eq!(mode(&path), MODE.bits());
        drop(Ground::take(&path).unwrap());
        let is_root = rustix::process::geteuid().is_root();
        assert!(path.exists());
        drop(first);
        assert_eq!(path.exists(), !is_root, "only root's runs make such directories");
    }
}
