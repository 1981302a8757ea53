//! The devices that this process is attached to: one attachment for all connections to a target.
//!
//! A target is the socket of a device, or an image. An image that a device serves is reached through that device; one
//! that none serves is opened in this process, with its exclusive lock, for as long as a database in it is open.

use crate::code;
use crate::fault::{Done, Fault};
use crate::frame::Logs;
use crate::tail::Tail;
use std::collections::HashMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use weldfs::{AttachOptions, Client, ClientOptions, Durability, Process};
use weldfs_ciscops::attach::medium;
use weldfs_kernel_shim::target::{self, TargetError};
use weldfs_locks::Mutex;

/// A target that this process is attached to.
pub struct Device {
    client: Client,
    /// Identity of its file system.
    pub uuid: [u8; 16],
    /// Which process attached: another one, forked from it, has no device behind this.
    process: Process,
    /// What is going on with databases in it, by their paths.
    pub commits: Commits,
    /// Their write-ahead logs.
    pub logs: Logs,
    /// Whether a SQLite that can do a commit as one write shall.
    pub batch: bool,
}

impl Device {
    /// The client, if this is the process that attached.
    pub fn client(&self) -> Done<&Client> {
        match self.process.is_current() {
            true => Ok(&self.client),
            false => Err(Fault::said(code::IOERR, "a database that was opened before a fork is used in the child")),
        }
    }

    /// Whether it belongs to the calling process.
    pub fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// Over a client, which is of a device and not of a directory of the host.
    pub fn over(client: Client, batch: bool) -> io::Result<Device> {
        let info = client.info()?;
        if info.medium == medium::HOSTDIR {
            let why = "a directory of the host promises no order and no atomicity; use SQLite's own VFS there";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let (process, commits, logs) = (Process::current(), Commits::default(), Logs::default());
        // In order, and durable when something says so; whatever the device does by default.
        let client = client.durability(Durability::Volatile);
        Ok(Device { client, uuid: info.uuid, process, commits, logs, batch })
    }
}

/// Commits of databases whose durability is still owed: see `Stored::sync`.
#[derive(Default)]
pub struct Commits(Mutex<HashMap<Vec<u8>, Commit>>);

#[derive(Default)]
struct Commit {
    /// Rollback journals of it that are open: of the one connection that writes.
    journals: Vec<Arc<Tail>>,
    /// Whether a sync of it was put off to what ends its journal.
    owed: bool,
}

impl Commits {
    fn change<T>(&self, database: &[u8], f: impl FnOnce(&mut Commit) -> T) -> T {
        let mut all = self.0.lock();
        let mut commit = all.remove(database).unwrap_or_default();
        let out = f(&mut commit);
        if !commit.journals.is_empty() || commit.owed {
            all.insert(database.to_vec(), commit);
        }
        out
    }

    /// A rollback journal of it was opened.
    pub fn journal_opened(&self, database: &[u8], tail: Arc<Tail>) {
        self.change(database, |commit| commit.journals.push(tail));
    }

    /// A rollback journal of it was closed.
    pub fn journal_closed(&self, database: &[u8], tail: &Arc<Tail>) {
        self.change(database, |commit| commit.journals.retain(|known| !Arc::ptr_eq(known, tail)));
    }

    /// Before anything is written to it: what is in its journal is in the device first.
    pub fn send_journals(&self, database: &[u8]) -> io::Result<()> {
        let all = self.0.lock();
        let Some(commit) = all.get(database) else { return Ok(()) };
        let journals = commit.journals.clone();
        drop(all);
        journals.iter().try_for_each(|tail| tail.send())
    }

    /// Puts a sync off, if there is a journal whose end will make up for it. That one is owed from before, of a journal
    /// whose end failed, is no reason to.
    pub fn put_off(&self, database: &[u8]) -> bool {
        self.change(database, |commit| {
            let put_off = !commit.journals.is_empty();
            commit.owed |= put_off;
            put_off
        })
    }

    /// Whether a sync is owed.
    pub fn owed(&self, database: &[u8]) -> bool {
        self.0.lock().get(database).is_some_and(|commit| commit.owed)
    }

    /// Everything of it that was completed is durable.
    pub fn settled(&self, database: &[u8]) {
        self.change(database, |commit| commit.owed = false);
    }
}

/// An attachment as the list keeps it.
struct Kept {
    target: (u64, u64),
    /// The last name that it was found by, if nothing else was found by that since.
    name: PathBuf,
    device: Weak<Device>,
    /// Held from the look at a name to the open that follows it: an image would be mounted twice otherwise.
    warm: Option<Arc<Device>>,
}

static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// What a device is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// A look at the name of a database, which is opened next: it stays attached until then.
    Name,
    /// A database.
    Database,
    /// What belongs to a database.
    Rest,
}

/// The device of an open database, by the name of its target, without a look at what has that name now. `None` where
/// none was found by it, or the one that was has been found by another since.
fn known(target: &Path) -> Option<Arc<Device>> {
    let kept = KEPT.lock();
    let device = kept.iter().find(|k| k.name == target)?.device.upgrade();
    device.filter(|device| device.is_ours())
}

/// What is found by a name is known by that, and no other one is.
fn name_it(kept: &mut [Kept], at: usize, target: &Path) {
    kept.iter_mut().filter(|k| k.name == target).for_each(|k| k.name.clear());
    kept[at].name = target.to_owned();
}

/// The device of a target, attached to where this process is not yet.
pub fn attached(target: &Path, purpose: For) -> Done<Arc<Device>> {
    if purpose == For::Rest
        && let Some(device) = known(target)
    {
        return Ok(device);
    }
    let keep_warm = purpose == For::Name;
    let said = |e: io::Error| Fault::of(code::CANTOPEN, e, || target.display().to_string());
    let mut kept = KEPT.lock();
    let meta = std::fs::metadata(target).map_err(said)?;
    let key = (meta.dev(), meta.ino());
    kept.retain(|k| k.warm.is_some() || k.device.strong_count() > 0);
    if let Some(at) = kept.iter().position(|k| k.target == key) {
        // One that died, or was this process's parent's, is not answered by; those who have it find out.
        let answers = |device: &Device| purpose == For::Rest || device.client.raw().nop().is_ok();
        let usable = |device: &Arc<Device>| device.is_ours() && answers(device);
        let found = kept[at].device.upgrade().filter(usable);
        match found {
            Some(device) => {
                name_it(&mut kept, at, target);
                if purpose != For::Rest {
                    kept[at].warm = keep_warm.then(|| device.clone());
                }
                return Ok(device);
            }
            None => {
                let gone = kept.swap_remove(at).warm;
                if let Some(parents) = gone.filter(|device| !device.is_ours()) {
                    // Its threads are not here to end it.
                    std::mem::forget(parents);
                }
            }
        }
    }
    let device = Arc::new(reach(target).and_then(|client| Device::over(client, true).map_err(said))?);
    let (name, warm) = (PathBuf::new(), keep_warm.then(|| device.clone()));
    kept.push(Kept { target: key, name, device: Arc::downgrade(&device), warm });
    let at = kept.len() - 1;
    name_it(&mut kept, at, target);
    Ok(device)
}

/// Keeps an attachment of the caller's own under a target's name: every database named by it is found there.
pub fn keep(target: &Path, device: &Arc<Device>) -> io::Result<()> {
    let mut kept = KEPT.lock();
    let meta = std::fs::metadata(target)?;
    let key = (meta.dev(), meta.ino());
    kept.retain(|k| k.target != key);
    kept.push(Kept { target: key, name: PathBuf::new(), device: Arc::downgrade(device), warm: None });
    let at = kept.len() - 1;
    name_it(&mut kept, at, target);
    Ok(())
}

/// A client of the device of a target.
fn reach(target: &Path) -> Done<Client> {
    let options = AttachOptions::from_env().map(|attach| ClientOptions { attach, ..ClientOptions::default() });
    let options = options.map_err(|e| Fault::of(code::CANTOPEN, e, || target.display().to_string()))?;
    match target::reach(target, options, target::MEMORY_BYTES) {
        Ok(reached) => Ok(reached.client),
        Err(TargetError::System { path, source }) => {
            Err(Fault::of(code::CANTOPEN, source, || path.display().to_string()))
        }
        Err(e) => Err(Fault::said(code::CANTOPEN, e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_kernel_shim::{Embedded, Source};
    use weldfs_storagefs::device::DeviceConfig;

    #[test]
    fn a_sync_that_is_owed_from_before_puts_no_other_one_off() {
        let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded)).unwrap();
        let journal = Arc::new(Tail::new(Arc::new(client.create("/a.db-journal").unwrap()), 0));
        let commits = Commits::default();
        assert!(!commits.put_off(b"/a.db"), "there is no journal");
        commits.journal_opened(b"/a.db", journal.clone());
        assert!(commits.put_off(b"/a.db"));
        // It is closed, and could not be removed: nothing paid for the sync.
        commits.journal_closed(b"/a.db", &journal);
        assert!(commits.owed(b"/a.db"));
        assert!(!commits.put_off(b"/a.db"), "no journal's end will make up for it");
        commits.settled(b"/a.db");
        assert!(!commits.owed(b"/a.db"));
    }
}
