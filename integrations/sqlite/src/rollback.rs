//! A rollback journal, as SQLite has it open.

use crate::code;
use crate::device::{Device, Way};
use crate::fault::{Done, Fault};
use crate::journal::Journal;
use crate::making;
use crate::name::{Name, database_of};
use crate::open::{Control, Io};
use std::ffi::c_int;
use std::sync::Arc;
use weldfs::{AccessMask, Client, Errno, Handle};

/// What a journal begins with, and what ends the name of a super-journal in one (SQLite's file format, "The Rollback
/// Journal"). Only the latter is a write by itself.
const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// See the module.
pub struct Rollback {
    journal: Arc<Journal>,
    device: Arc<Device>,
    name: Name,
    /// Everything in it and before it was made durable, and nothing was written since.
    settled: bool,
}

/// Opens one, or makes it: as a file only where it is none of a database that may be kept (see `journal`).
pub fn open(device: Arc<Device>, name: Name, flags: c_int) -> Done<(Rollback, c_int)> {
    let client = device.client()?;
    let keep = device.way != Way::Written && database_of(&name.path).is_some();
    let plain = flags & (code::OPEN_EXCLUSIVE | code::OPEN_DELETEONCLOSE) == 0;
    let makes = plain && flags & code::OPEN_CREATE != 0 && flags & code::OPEN_READWRITE != 0;
    let (journal, flags) = if keep && makes && could_be_made(client, &name) {
        (Journal::unmade(name.clone(), flags), flags)
    } else {
        let (file, flags) = making::open(client, &name, flags)?;
        let size = match file.was_created() {
            true => 0,
            false => file.metadata().map_err(|e| Fault::of(code::CANTOPEN, e, || name.to_string()))?.len(),
        };
        let keep = keep && plain && flags & code::OPEN_READWRITE != 0;
        (Journal::of(name.clone(), flags, file, size, keep), flags)
    };
    let journal = Arc::new(journal);
    if let Some(db) = database_of(&name.path) {
        device.commits.journal_opened(db, journal.clone());
    }
    Ok((Rollback { journal, device, name, settled: false }, flags))
}

/// Whether there is none, and one may be made. Where that is not certain, making it says more.
fn could_be_made(client: &Client, name: &Name) -> bool {
    let parent = &name.path[..name.path.iter().rposition(|b| *b == b'/').unwrap_or(0)];
    let parent = if parent.is_empty() { b"/" } else { parent };
    let raw = client.raw();
    let may = || raw.accessat(Handle::ROOT, parent, AccessMask::WRITE | AccessMask::EXEC, false).is_ok();
    raw.statat(Handle::ROOT, &name.path, false).is_err_and(|e| e == Errno::NOENT)
        && (rustix::process::geteuid().is_root() || may())
}

impl Rollback {
    fn database(&self) -> &[u8] {
        database_of(&self.name.path).unwrap_or_default()
    }

    /// All that its database owes is durable with it.
    fn is_durable(&mut self) {
        self.settled = true;
        self.device.commits.settled(self.database());
    }
}

impl Io for Rollback {
    fn read(&mut self, room: &mut [u8], at: u64) -> Done<usize> {
        self.device.client()?;
        self.journal.read(room, at).map_err(|e| Fault::of(code::IOERR_READ, e, || format!("read {}", self.name)))
    }

    fn write(&mut self, data: &[u8], at: u64) -> Done {
        let client = self.device.client()?;
        self.settled = false;
        if at > 0 && data == MAGIC {
            // It names a super-journal now, which is looked up by that name, and by other connections: it is a file
            // from here on, with all that is before. Without this last piece it is the journal of this database alone.
            self.device.commits.send(client, self.database())?;
            return self.journal.write_now(client, data, at);
        }
        if at == 0 {
            // A head over one that was there ends a transaction, whose pages may wait where none of them is synced.
            self.device.commits.finish(client, self.database())?;
        }
        if !self.journal.takes(at.saturating_add(data.len() as u64)) {
            // The pages wait on, for what the database is asked for next: after an error here SQLite may undo one
            // statement and go on with the transaction that they are of.
            self.journal.send(client)?;
        }
        if self.database().is_empty() {
            // Under another name (a SQLite with names of 8 and 3 letters): no database is known that it must precede.
            return self.journal.write_now(client, data, at);
        }
        self.journal.write(client, data, at)
    }

    fn truncate(&mut self, size: u64) -> Done {
        let client = self.device.client()?;
        self.settled = false;
        if size == 0 {
            self.device.commits.finish(client, self.database())?;
        }
        self.journal.truncate(client, size)?;
        // One that is cut ends a commit as one that is removed does.
        if self.device.commits.owed(self.database()) && !self.journal.is_kept() {
            self.journal.sync()?;
            self.is_durable();
            self.journal.keep();
        }
        Ok(())
    }

    fn size(&mut self) -> Done<u64> {
        self.device.client()?;
        Ok(self.journal.size())
    }

    /// Of one that is kept there is nothing to be made durable: the device has no page that it would have to undo.
    fn sync(&mut self) -> Done {
        let client = self.device.client()?;
        if self.settled || self.journal.is_kept() {
            return Ok(());
        }
        self.device.commits.send(client, self.database())?;
        self.journal.sync()?;
        self.journal.keep();
        self.is_durable();
        Ok(())
    }

    fn close(self: Box<Self>) -> Done {
        if !self.device.is_ours() {
            // The parent's: its handles are not this process's to close, and its threads are not here to answer.
            std::mem::forget(self);
            return Ok(());
        }
        // What it held back is for pages that were never written.
        self.device.commits.journal_closed(self.database(), &self.journal);
        let closed = self.journal.take_file().map_or(Ok(()), weldfs::File::close);
        match closed {
            // A device that is gone has closed it.
            Err(e) if e.raw_os_error() != Some(Errno::NODEV.0) => {
                Err(Fault::of(code::IOERR_CLOSE, e, || format!("close {}", self.name)))
            }
            _ => Ok(()),
        }
    }

    fn control(&mut self, control: Control) -> Done<c_int> {
        match control {
            // Answered for any file.
            Control::LastErrno | Control::LockState | Control::SizeHint(_) => Ok(0),
            _ => Err(Fault::quiet(code::NOTFOUND)),
        }
    }

    fn characteristics(&self) -> c_int {
        let order = code::IOCAP_SAFE_APPEND | code::IOCAP_SEQUENTIAL;
        code::IOCAP_ATOMIC_512_TO_64K | order | code::IOCAP_POWERSAFE_OVERWRITE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weldfs_device::DeviceConfig;
    use weldfs_kernel_shim::{Embedded, Source};

    fn opened(path: &str) -> (Client, Rollback) {
        let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded)).unwrap();
        let device = Arc::new(Device::over(client.clone(), Way::Kept).unwrap());
        let name = Name { target: "d.img".into(), path: path.as_bytes().to_vec() };
        let flags = code::OPEN_READWRITE | code::OPEN_CREATE | code::OPEN_MAIN_JOURNAL;
        (client, open(device, name, flags).unwrap().0)
    }

    #[test]
    fn a_journal_of_no_known_database_is_in_the_device_at_once() {
        for (path, there) in [("/a.nal", true), ("/a.db-journal", false)] {
            let (client, mut journal) = opened(path);
            journal.write(&[MAGIC[0]; 512], 0).unwrap();
            journal.write(&[1; 4], 512).unwrap();
            let size = client.metadata(path).map_or(0, |meta| meta.len());
            assert_eq!(size, if there { 516 } else { 0 }, "{path}");
            assert_eq!(journal.size().unwrap(), 516, "{path}");
        }
    }

    #[test]
    fn the_name_of_a_super_journal_makes_a_file_of_it() {
        let (client, mut journal) = opened("/a.db-journal");
        journal.write(&[MAGIC[0]; 512], 0).unwrap();
        journal.write(b"/a.db-mj01234567", 516).unwrap();
        assert!(client.metadata("/a.db-journal").is_err());
        journal.write(&MAGIC, 540).unwrap();
        assert_eq!(client.read("/a.db-journal").unwrap()[540..], MAGIC);
    }
}
