//! The shared memory of a database with a write-ahead log: SQLite's index of the log, and its locks.
//!
//! It lies in a file of the host's memory file system that all processes map. Which file is agreed on through the
//! device: who shares holds a read lock of the database whose length is the file's number, drawn at random by the
//! first. So it is not found again after the device was restarted (its log may have lost frames that the old index
//! counts), after its last user was killed, or by a process that sees another memory file system: that one is refused.
//!
//! Locks are those of the host, and go with the process that holds them, at the moment it dies. Its last commands may
//! run in the device after that; so who writes, checkpoints or recovers holds a lock in the device as well, which goes
//! after them.

use crate::code;
use crate::device::Device;
use crate::fault::{Done, Fault};
use crate::locks;
use crate::name::Name;
use crate::ofd::{self, Lock};
use memmap2::{MmapOptions, MmapRaw};
use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weldfs::{Errno, LockKind, Metadata};

/// The environment variable with the directory to use in place of `/dev/shm`: all processes must say the same.
pub const DIRECTORY_VARIABLE: &str = "WELDFS_SQLITE_SHM";
const DIRECTORY: &str = "/dev/shm";
/// Locks in the device, behind SQLite's own: held by who joins or leaves...
const DOOR: u64 = 1 << 41;
/// ...by who writes, checkpoints or recovers (a byte for each)...
const WORK: u64 = DOOR + 16;
/// ...and by all who share: from here, as long as the number of the shared file.
const MEMBERS: u64 = 1 << 42;
/// Numbers of shared files: what a lock's length can say.
const NUMBERS: u64 = 1 << 61;
/// SQLite's locks below this one are for work on files of the device: write, checkpoint, recover.
const WORKING: u32 = 3;
/// Behind SQLite's locks in the shared file: held by all who use it.
const IN_USE: i64 = 64;
/// How long others may be at the door. Joining takes some ten commands.
const DOOR_WAIT: Duration = Duration::from_secs(5);

/// One connection's part.
pub struct Shared {
    /// A description of the database of its own, for the locks in the device.
    guard: weldfs::File,
    device: Arc<Device>,
    file: File,
    path: PathBuf,
    regions: Vec<MmapRaw>,
}

/// Where shared files of a database are, and how their names begin.
fn place(device: &Device, ino: u64) -> (PathBuf, String) {
    let dir =
        std::env::var_os(DIRECTORY_VARIABLE).filter(|dir| !dir.is_empty()).map_or(DIRECTORY.into(), PathBuf::from);
    let uuid: String = device.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    (dir, format!("weldfs-sqlite-{uuid}-{ino}-"))
}

fn failed(e: impl Into<io::Error>, what: &str, name: &Name) -> Fault {
    Fault::of(code::IOERR_SHMOPEN, e, || format!("{what} of {name}"))
}

impl Shared {
    /// Joins those who share the database's memory, or is the first.
    pub fn join(device: &Arc<Device>, name: &Name, ino: u64) -> Done<Shared> {
        let options = weldfs::OpenOptions::new().read(true).write(true);
        let guard = device.client()?.open(crate::name::shown(&name.path), &options);
        let guard = guard.map_err(|e| match e.raw_os_error().map(Errno) {
            Some(Errno::ACCES | Errno::PERM | Errno::ROFS) => {
                Fault::of(code::CANTOPEN, e, || format!("the log of {name}, which readers must be able to write, too"))
            }
            _ => failed(e, "the locks", name),
        })?;
        let meta = guard.metadata().map_err(|e| failed(e, "the locks", name))?;
        if meta.ino() != ino {
            return Err(Fault::said(code::IOERR_SHMOPEN, format!("{name}: another file by now")));
        }
        enter(&guard, name)?;
        let joined = inside(device, &guard, name, &meta);
        leave(&guard);
        let (file, path) = joined?;
        Ok(Shared { guard, device: device.clone(), file, path, regions: Vec::new() })
    }

    /// Whether it belongs to the calling process.
    pub fn is_ours(&self) -> bool {
        self.device.is_ours()
    }

    /// A region, mapped; null where it is not there and shall not be made.
    pub fn map(&mut self, region: u32, bytes: u32, make: bool) -> Done<*mut c_void> {
        let at = region as usize;
        while self.regions.len() <= at {
            let end = (self.regions.len() as u64 + 1) * u64::from(bytes);
            let bad = |code| {
                let path = &self.path;
                move |e: io::Error| Fault::of(code, e, || path.display().to_string())
            };
            if self.file.metadata().map_err(bad(code::IOERR_SHMSIZE))?.len() < end {
                if !make {
                    return Ok(std::ptr::null_mut());
                }
                // Taken now: a write to memory that is not there would be a signal.
                let (flags, from) = (rustix::fs::FallocateFlags::empty(), end - u64::from(bytes));
                rustix::fs::fallocate(&self.file, flags, from, bytes.into())
                    .map_err(|e| bad(code::IOERR_SHMSIZE)(e.into()))?;
            }
            let mut options = MmapOptions::new();
            options.offset(end - u64::from(bytes)).len(bytes as usize);
            self.regions.push(options.map_raw(&self.file).map_err(bad(code::IOERR_SHMMAP))?);
        }
        Ok(self.regions[at].as_mut_ptr().cast())
    }

    /// SQLite's locks `first..first + n`, set or given back.
    pub fn lock(&mut self, first: u32, n: u32, flags: c_int) -> Done {
        let (start, len) = (i64::from(first), i64::from(n));
        let host = |lock| {
            let bad = |e| Fault::of(code::IOERR_SHMLOCK, e, || self.path.display().to_string());
            ofd::set(&self.file, lock, start, len).map_err(bad)
        };
        let work = first..(first + n).min(WORKING);
        let work = |kind| {
            let (start, len) = (WORK + u64::from(work.start), u64::from(work.end.saturating_sub(work.start)));
            let bad = |e| Fault::of(code::IOERR_SHMLOCK, e, || "lock the log".into());
            if len == 0 { Ok(true) } else { locks::set(&self.guard, kind, start, len).map_err(bad) }
        };
        let exclusive = flags & code::SHM_EXCLUSIVE != 0;
        // A reader could do with pages that it has, of a device that is gone and of commits that went with it.
        if flags & (code::SHM_UNLOCK | code::SHM_EXCLUSIVE) == 0 {
            let bad = |e| Fault::of(code::IOERR_SHMLOCK, e, || "read the log".into());
            self.device.client()?.raw().nop().map_err(bad)?;
        }
        if flags & code::SHM_UNLOCK != 0 {
            let worked = if exclusive { work(LockKind::Unlock) } else { Ok(true) };
            host(Lock::Free)?;
            return worked.map(drop);
        }
        if !host(if exclusive { Lock::Exclusive } else { Lock::Shared })? {
            return Err(Fault::quiet(code::BUSY));
        }
        let worked = if exclusive { work(LockKind::Write) } else { Ok(true) };
        match worked {
            Ok(true) => Ok(()),
            refused => {
                host(Lock::Free)?;
                refused.and(Err(Fault::quiet(code::BUSY)))
            }
        }
    }
}

impl Drop for Shared {
    /// The last one removes the file.
    fn drop(&mut self) {
        if !self.device.is_ours() {
            return;
        }
        self.regions.clear();
        let until = Instant::now() + DOOR_WAIT;
        loop {
            match locks::set(&self.guard, LockKind::Write, DOOR, 1) {
                Ok(true) => break,
                Ok(false) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                // What is left behind then is removed by the next one who is the first.
                Ok(false) => return,
                // The device is gone, so no other will join: the last one of those left removes it.
                Err(_) => {
                    let _ = ofd::set(&self.file, Lock::Free, IN_USE, 1);
                    return remove_unused(&self.path);
                }
            }
        }
        let _ = locks::set(&self.guard, LockKind::Unlock, MEMBERS, 0);
        if let Ok(None) = locks::in_the_way(&self.guard, MEMBERS, 1) {
            let _ = std::fs::remove_file(&self.path);
        }
        leave(&self.guard);
    }
}

/// Keeps others from joining and leaving.
fn enter(guard: &weldfs::File, name: &Name) -> Done {
    let until = Instant::now() + DOOR_WAIT;
    loop {
        match locks::set(guard, LockKind::Write, DOOR, 1) {
            Ok(true) => return Ok(()),
            Ok(false) if Instant::now() > until => return Err(Fault::quiet(code::BUSY)),
            Ok(false) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(failed(e, "the locks", name)),
        }
    }
}

fn leave(guard: &weldfs::File) {
    // A device that is gone has no locks; anything else would be met by the next command.
    let _ = locks::set(guard, LockKind::Unlock, DOOR, 1);
}

/// The shared file, with others kept out of joining and leaving.
fn inside(device: &Device, guard: &weldfs::File, name: &Name, meta: &Metadata) -> Done<(File, PathBuf)> {
    let (dir, prefix) = place(device, meta.ino());
    let others = locks::in_the_way(guard, MEMBERS, 1).map_err(|e| failed(e, "the members", name))?;
    let (number, path, file) = match others {
        Some((_, number)) => {
            let path = dir.join(format!("{prefix}{number:016x}"));
            (number, path.clone(), known(&path, meta, name)?)
        }
        None => {
            first(&dir, &prefix, meta).map_err(|e| failed(e, &format!("a shared file in {}", dir.display()), name))?
        }
    };
    match locks::set(guard, LockKind::Read, MEMBERS, number) {
        Ok(true) => Ok((file, path)),
        Ok(false) => Err(Fault::quiet(code::BUSY)),
        Err(e) => Err(failed(e, "the members", name)),
    }
}

/// The file that others use already.
fn known(path: &Path, meta: &Metadata, name: &Name) -> Done<File> {
    let missing = |e: io::Error| {
        let what = "other processes share the index of its log in a file that is not there for this one \
                    (another /dev/shm, or another WELDFS_SQLITE_SHM)";
        failed(e, &format!("{}: {what}", path.display()), name)
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(missing)?;
    ofd::set(&file, Lock::Shared, IN_USE, 1).map_err(missing)?;
    let found = file.metadata().map_err(missing)?;
    let trusted = [0, rustix::process::geteuid().as_raw(), meta.uid()];
    if !found.is_file() || !trusted.contains(&found.uid()) {
        return Err(Fault::said(code::IOERR_SHMOPEN, format!("{}: not made by a user of {name}", path.display())));
    }
    Ok(file)
}

/// A fresh file, for those who may use the database. What earlier ones left is removed.
fn first(dir: &Path, prefix: &str, meta: &Metadata) -> io::Result<(u64, PathBuf, File)> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            remove_unused(&entry.path());
        }
    }
    loop {
        let mut bytes = [0; 8];
        let failed = |e: getrandom::Error| io::Error::from_raw_os_error(e.raw_os_error().unwrap_or(Errno::IO.0));
        getrandom::fill(&mut bytes).map_err(failed)?;
        let number = u64::from_le_bytes(bytes) % (NUMBERS - 1) + 1;
        let path = dir.join(format!("{prefix}{number:016x}"));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        ofd::set(&file, Lock::Shared, IN_USE, 1)?;
        // Removed before the lock was there, by the first user of a copy of this image.
        if file.metadata()?.nlink() == 0 {
            continue;
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(meta.permissions() & 0o666))?;
        return Ok((number, path, file));
    }
}

/// Removes a file that no process has: copies of an image have the same UUID, and may be in use at the same time.
fn remove_unused(path: &Path) {
    let mut options = OpenOptions::new();
    let Ok(file) = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path) else { return };
    if let Ok(true) = ofd::set(&file, Lock::Exclusive, IN_USE, 1) {
        let _ = std::fs::remove_file(path);
    }
}
