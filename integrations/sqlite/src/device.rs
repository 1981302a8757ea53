//! The devices that this process is attached to: one attachment for all connections to a target.
//!
//! A target is the socket of a device, or an image. An image that a device serves is reached through that device; one
//! that none serves is opened in this process, with its exclusive lock, for as long as a database in it is open.

use crate::code;
use crate::commits::Commits;
use crate::fault::{Done, Fault};
use crate::frame::Logs;
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
    /// How commits get there.
    pub way: Way,
}

/// How commits of databases get to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// As one command: SQLite's batch where it is built for that, else as [`Way::Kept`].
    #[default]
    Batch,
    /// With a rollback journal that stays in this process, and pages that are one command in the end, where that is
    /// possible; else as [`Way::Written`].
    Kept,
    /// With a journal that is a file in the device, and each page a command.
    Written,
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
    pub fn over(client: Client, way: Way) -> io::Result<Device> {
        let info = client.info()?;
        if info.medium == medium::HOSTDIR {
            let why = "a directory of the host promises no order and no atomicity; use SQLite's own VFS there";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let (process, commits, logs) = (Process::current(), Commits::default(), Logs::default());
        // In order, and durable when something says so; whatever the device does by default.
        let client = client.durability(Durability::Volatile);
        Ok(Device { client, uuid: info.uuid, process, commits, logs, way })
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
    let device = Arc::new(reach(target).and_then(|client| Device::over(client, Way::default()).map_err(said))?);
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
