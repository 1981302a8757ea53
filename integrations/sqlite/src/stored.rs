//! A file in a device: database, write-ahead log, super-journal. Rollback journals are `rollback`'s.
//!
//! Writes are volatile commands, in the order in which SQLite makes them; the device's log keeps that order, so that a
//! crash leaves the state after some prefix of them. A sync makes all of the prefix so far durable.
//! docs/engines/SQLITE.md says which syncs are folded into a later one on that ground, and why nothing is lost by it.

use crate::atomic::Gathered;
use crate::code;
use crate::device::{Device, Way};
use crate::fault::{Done, Fault};
use crate::frame::{Frames, Log};
use crate::locks::{self, Level};
use crate::name::{Name, database_of};
use crate::open::{Control, Io};
use crate::pages::Pages;
use crate::shared::Shared;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;
use weldfs::{Durability, Errno, File, Handle};

/// What SQLite keeps in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A database.
    Database,
    /// The names of the journals of a commit of several databases.
    SuperJournal,
    /// The write-ahead log of a database.
    Log,
    /// Anything else.
    Other,
}

/// See the module.
pub struct Stored {
    // Before the device: it is closed through it.
    file: Option<Arc<File>>,
    /// Of a database: what waits with its journal.
    pages: Option<Arc<Pages>>,
    /// Of a write-ahead log.
    frames: Option<Frames>,
    /// Of a database, and its log.
    shared: Option<Joined>,
    device: Arc<Device>,
    name: Name,
    ino: u64,
    kind: Kind,
    level: Level,
    /// It has been the one that may write since it last had no more than a lock to read.
    writes: bool,
    /// The writes of a commit that is one command.
    gathered: Option<Gathered>,
    /// Nothing was written through this since all of it was made durable by itself.
    settled: bool,
    /// SQLite has said that the next sync is that of a commit of this database alone.
    alone: bool,
    chunk: u64,
    persist_wal: c_int,
    powersafe: c_int,
    errno: i32,
}

/// The shared memory of a database's log, and the log.
struct Joined {
    shared: Shared,
    log: Arc<Log>,
    /// The write lock is held.
    writes: bool,
}

impl Joined {
    fn writes(&mut self, writes: bool) {
        self.writes = writes;
        self.log.written(writes);
    }
}

impl Drop for Joined {
    /// The lock goes with what it was taken by.
    fn drop(&mut self) {
        // In a forked child another thread of the parent may have held what this takes.
        if self.writes && self.shared.is_ours() {
            self.writes(false);
        }
    }
}

impl Stored {
    /// Over an open file.
    pub fn new(device: Arc<Device>, name: Name, kind: Kind, mut file: File) -> Done<Stored> {
        // The names of the journals must be there before any of the databases is: those on other devices, too.
        let each = if kind == Kind::SuperJournal { Durability::Durable } else { Durability::Volatile };
        file.set_durability(each);
        let ino = file.metadata().map_err(|e| Fault::of(code::CANTOPEN, e, || name.to_string()))?.ino();
        let file = Arc::new(file);
        let pages = (kind == Kind::Database).then(|| Arc::new(Pages::new(file.clone())));
        let log = database_of(&name.path).filter(|_| kind == Kind::Log).map(|db| {
            let found = device.client()?.raw().statat(Handle::ROOT, db, false);
            Ok::<_, Fault>(device.logs.of(db, found.map_or(0, |stat| stat.ino)))
        });
        let log = log.transpose()?;
        Ok(Stored {
            file: Some(file),
            pages,
            frames: log.map(Frames::new),
            shared: None,
            device,
            name,
            ino,
            kind,
            level: Level::None,
            writes: false,
            gathered: None,
            settled: false,
            alone: false,
            chunk: 0,
            persist_wal: 0,
            powersafe: 1,
            errno: 0,
        })
    }

    fn file(&self) -> Done<&File> {
        self.device.client()?;
        self.file.as_deref().ok_or_else(|| Fault::quiet(code::IOERR))
    }

    fn failed(&self, code: c_int, e: impl Into<std::io::Error>, doing: &str) -> Fault {
        Fault::of(code, e, || format!("{doing} {}", self.name))
    }

    /// Before a read, a sync or a cut of a log: what was written to it is in the device, as far as it matters for that.
    fn frames_first(&mut self, send: impl FnOnce(&mut Frames, &File) -> io::Result<()>) -> Done {
        if let Some(frames) = &mut self.frames {
            self.device.client()?;
            let file = self.file.as_deref().ok_or_else(|| Fault::quiet(code::IOERR_WRITE))?;
            let sent = send(frames, file);
            sent.map_err(|e| self.failed(code::IOERR_WRITE, e, "write"))?;
        }
        Ok(())
    }

    /// Before the database changes or is synced: its journal is in the device, and pages that waited with that.
    fn journal_first(&self) -> Done {
        match self.kind {
            Kind::Database => self.device.commits.send_or_undo(self.device.client()?, &self.name.path),
            _ => Ok(()),
        }
    }

    /// Before it lets others write. What still waits is of a transaction that failed; the device has nothing of it.
    fn end_writing(&mut self) {
        if let Some(pages) = self.pages.as_ref().filter(|_| self.writes) {
            self.device.commits.over(&self.name.path, pages);
        }
        self.writes = false;
    }

    /// Forgets what waits where no journal is open that could undo it: of a transaction that failed, in a connection
    /// that does not let others write.
    fn forget_failed(&self) -> Done {
        self.device.client()?;
        if let Some(pages) = self.pages.as_ref().filter(|_| self.waits())
            && !self.device.commits.has_journal(&self.name.path)
        {
            drop((pages.take(), self.device.commits.take_closed(&self.name.path)));
        }
        Ok(())
    }

    /// Pages of it wait with its journal.
    fn waits(&self) -> bool {
        self.pages.as_ref().is_some_and(|pages| !pages.is_empty())
    }

    /// Whether a write waits with the journal, which it does while that is kept, and all of them fit one command.
    fn waited(&mut self, data: &[u8], at: u64) -> Done<bool> {
        let Some(pages) = self.pages.as_ref().filter(|_| self.level == Level::Exclusive && self.shared.is_none())
        else {
            return Ok(false);
        };
        self.device.client()?;
        Ok(self.device.commits.holds(&self.name.path, pages) && pages.push(at, data))
    }

    /// Whether it is enough to cut what waits: the file ends there, or before.
    fn cut_waiting(&self, size: u64) -> Done<bool> {
        let Some(pages) = self.pages.as_ref().filter(|_| self.waits()) else { return Ok(false) };
        let there = self.file()?.metadata().map_err(|e| self.failed(code::IOERR_FSTAT, e, "the size of"))?.len();
        Ok(there <= size && pages.cut(size, there))
    }

    /// The sync of a commit of this database alone, whose journal is kept: whether all became one command. Nothing
    /// of it needs that journal any more.
    fn commit_waiting(&mut self) -> Done<bool> {
        let Some(pages) = self.pages.as_ref().filter(|_| self.waits()) else { return Ok(false) };
        if !self.device.commits.keeps(&self.name.path) {
            return Ok(false);
        }
        let done = pages.commit(Durability::Durable);
        let done = done.map_err(|e| self.failed(code::IOERR_FSYNC, e, "commit"))?;
        if done {
            self.settled = true;
            self.device.commits.settled(&self.name.path);
            self.grow_in_chunks();
        }
        Ok(done)
    }

    /// What is behind the pages that SQLite counts has no meaning (its file format, "In-header database size"), as long
    /// as there is a page. That there is no room for it is no failure of what asks for it.
    fn grow_in_chunks(&self) {
        if self.chunk > 0
            && let Some(file) = &self.file
            && let Ok(len) = file.metadata().map(|meta| meta.len())
            && len.next_multiple_of(self.chunk) > len
        {
            let _ = file.set_len(len.next_multiple_of(self.chunk));
        }
    }

    /// Makes good for a sync that was put off.
    fn pay(&mut self) -> Done {
        if self.writes && self.device.commits.owed(&self.name.path) {
            self.file()?.sync_data().map_err(|e| self.failed(code::IOERR_FSYNC, e, "sync"))?;
            self.device.commits.settled(&self.name.path);
        }
        Ok(())
    }

    fn grow(&mut self, hint: i64) -> Done<c_int> {
        let hint = u64::try_from(hint).unwrap_or(0);
        // With a journal that is kept the file grows behind its commit: nothing could cut it off again. And no page
        // that waits is sent for what SQLite takes no error of.
        let plain = !self.waits() && !self.device.commits.keeps(&self.name.path);
        if self.chunk > 0 && plain && hint > self.size()? {
            self.settled = false;
            self.truncate(hint)?;
        }
        Ok(0)
    }

    fn has_moved(&self) -> Done<c_int> {
        let found = self.device.client()?.raw().statat(Handle::ROOT, &self.name.path, false);
        match found {
            Ok(stat) => Ok((stat.ino != self.ino).into()),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(1),
            Err(e) => Err(self.failed(code::IOERR_FSTAT, e, "look for")),
        }
    }

    fn commit_atomic(&mut self) -> Done<c_int> {
        let gathered = self.gathered.take().ok_or_else(|| Fault::quiet(code::IOERR_COMMIT_ATOMIC))?;
        self.journal_first()?;
        let sent = gathered.commit(self.file()?, Durability::Durable);
        sent.map_err(|e| match e {
            // SQLite takes a journal.
            Errno::TOOBIG => Fault::quiet(code::IOERR_COMMIT_ATOMIC),
            Errno::NOSPC | Errno::DQUOT => self.failed(code::FULL, e, "commit"),
            e => self.failed(code::IOERR_COMMIT_ATOMIC, e, "commit"),
        })?;
        // Durable with everything before it; SQLite's sync after it has nothing left to do.
        self.settled = true;
        self.device.commits.settled(&self.name.path);
        Ok(0)
    }
}

/// Keeps an answer of yes or no, or gives it.
fn kept(now: &mut c_int, new: c_int) -> c_int {
    if new >= 0 {
        *now = (new != 0).into();
    }
    *now
}

impl Io for Stored {
    fn read(&mut self, room: &mut [u8], at: u64) -> Done<usize> {
        let len = room.len();
        self.forget_failed()?;
        self.frames_first(|frames, file| frames.send_for(file, at, len))?;
        let n = self.file()?.read_at(&mut *room, at).map_err(|e| self.failed(code::IOERR_READ, e, "read"))?;
        Ok(match (&self.gathered, &self.pages) {
            (Some(gathered), _) => gathered.lay_over(room, at, n),
            (None, Some(pages)) => pages.lay_over(room, at, n),
            (None, None) => n,
        })
    }

    fn write(&mut self, data: &[u8], at: u64) -> Done {
        if let Some(gathered) = &mut self.gathered {
            gathered.push(at, data);
            return Ok(());
        }
        self.settled = false;
        self.forget_failed()?;
        if self.waited(data, at)? {
            return Ok(());
        }
        self.journal_first()?;
        self.device.client()?;
        let Some(file) = self.file.as_deref() else { return Err(Fault::quiet(code::IOERR_WRITE)) };
        let written = match &mut self.frames {
            Some(frames) => frames.write(file, data, at),
            None => file.write_all_at(data, at),
        };
        written.map_err(|e| self.failed(code::IOERR_WRITE, e, "write"))
    }

    fn truncate(&mut self, size: u64) -> Done {
        self.settled = false;
        self.forget_failed()?;
        self.frames_first(Frames::cut)?;
        if self.cut_waiting(size)? {
            return Ok(());
        }
        let size = if self.chunk > 0 { size.next_multiple_of(self.chunk) } else { size };
        self.journal_first()?;
        self.file()?.set_len(size).map_err(|e| self.failed(code::IOERR_TRUNCATE, e, "truncate"))
    }

    fn size(&mut self) -> Done<u64> {
        self.forget_failed()?;
        self.frames_first(Frames::send)?;
        let meta = self.file()?.metadata().map_err(|e| self.failed(code::IOERR_FSTAT, e, "the size of"))?;
        Ok(match (&self.gathered, &self.pages) {
            (Some(gathered), _) => gathered.end(meta.len()),
            (None, Some(pages)) => pages.end(meta.len()),
            (None, None) => meta.len(),
        })
    }

    /// The sync of a commit in which no other database takes part is the commit itself, where pages wait with a journal
    /// that is kept. Where there is a journal on this device, it is put off to what ends that: the database's pages are
    /// in the log before that end, whatever is durable when.
    fn sync(&mut self) -> Done {
        let alone = std::mem::take(&mut self.alone);
        self.device.client()?;
        self.forget_failed()?;
        let settled = self.frames.as_mut().map_or(self.settled, Frames::sync);
        if settled {
            return Ok(());
        }
        self.frames_first(Frames::send)?;
        if alone && self.commit_waiting()? {
            return Ok(());
        }
        // A journal that is kept undoes what waits, and nothing else.
        if self.waits() || !self.device.commits.keeps(&self.name.path) {
            self.journal_first()?;
        }
        let rollback = self.kind == Kind::Database && self.level == Level::Exclusive && self.shared.is_none();
        if alone && rollback && self.device.commits.put_off(&self.name.path) {
            return Ok(());
        }
        self.file()?.sync_data().map_err(|e| self.failed(code::IOERR_FSYNC, e, "sync"))?;
        if self.kind == Kind::Database {
            self.device.commits.settled(&self.name.path);
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Done {
        if !self.device.is_ours() {
            // The parent's: its handles are not this process's to close, and its threads are not here to answer.
            std::mem::forget(self);
            return Ok(());
        }
        let paid = self.pay();
        self.end_writing();
        self.pages = None;
        self.shared = None;
        // A device that is gone has closed it; there is nothing that SQLite could do about any failure.
        let closed = self.file.take().and_then(Arc::into_inner).map_or(Ok(()), File::close);
        if let Err(e) = closed
            && e.raw_os_error() != Some(Errno::NODEV.0)
        {
            return paid.and(Err(self.failed(code::IOERR_CLOSE, e, "close")));
        }
        paid
    }

    fn lock(&mut self, level: c_int) -> Done {
        self.settled = false;
        let (mut now, want) = (self.level, Level::of(level));
        let done = locks::raise(self.file()?, &mut now, want);
        self.level = now;
        // At Pending alone another one may be about to write: this one waits in vain to roll a journal back.
        self.writes |= matches!(now, Level::Reserved | Level::Exclusive);
        done
    }

    fn unlock(&mut self, level: c_int) -> Done {
        self.device.client()?;
        // Before another connection can build on it.
        let paid = self.pay();
        self.settled = false;
        self.end_writing();
        let mut now = self.level;
        let done = locks::lower(self.file()?, &mut now, Level::of(level));
        self.level = now;
        paid.and(done)
    }

    fn is_reserved(&mut self) -> Done<bool> {
        locks::is_reserved(self.file()?, self.level)
    }

    fn stats(&mut self) -> Done<Option<String>> {
        let stats = self.device.client()?.stats_json();
        stats.map(Some).map_err(|e| self.failed(code::IOERR, e, "counters of the device of"))
    }

    fn control(&mut self, control: Control) -> Done<c_int> {
        match control {
            Control::LockState => Ok(self.level as c_int),
            Control::LastErrno => Ok(self.errno),
            Control::SizeHint(bytes) => self.grow(bytes),
            Control::ChunkSize(bytes) => {
                self.chunk = u64::try_from(bytes).unwrap_or(0);
                Ok(0)
            }
            Control::PersistWal(new) => Ok(kept(&mut self.persist_wal, new)),
            Control::PowersafeOverwrite(new) => Ok(kept(&mut self.powersafe, new)),
            Control::HasMoved => self.has_moved(),
            Control::Sync(others) => {
                self.alone = !others;
                // Not an answer: SQLite goes on to the sync itself.
                Err(Fault::quiet(code::NOTFOUND))
            }
            Control::BeginAtomic if self.kind == Kind::Database => {
                self.gathered = Some(Gathered::default());
                Ok(0)
            }
            Control::BeginAtomic => Err(Fault::quiet(code::IOERR_BEGIN_ATOMIC)),
            Control::CommitAtomic => self.commit_atomic(),
            Control::RollbackAtomic => {
                self.gathered = None;
                Ok(0)
            }
        }
    }

    fn characteristics(&self) -> c_int {
        let powersafe = if self.powersafe != 0 { code::IOCAP_POWERSAFE_OVERWRITE } else { 0 };
        let batch =
            if self.kind == Kind::Database && self.device.way == Way::Batch { code::IOCAP_BATCH_ATOMIC } else { 0 };
        code::IOCAP_ATOMIC_512_TO_64K | code::IOCAP_SAFE_APPEND | code::IOCAP_SEQUENTIAL | powersafe | batch
    }

    fn shm_map(&mut self, region: u32, bytes: u32, make: bool) -> Done<*mut c_void> {
        if self.shared.is_none() {
            let shared = Shared::join(&self.device, &self.name, self.ino)?;
            self.shared = Some(Joined { shared, log: self.device.logs.of(&self.name.path, self.ino), writes: false });
        }
        let joined = self.shared.as_mut().ok_or_else(|| Fault::quiet(code::IOERR_SHMMAP))?;
        joined.shared.map(region, bytes, make)
    }

    fn shm_lock(&mut self, first: u32, n: u32, flags: c_int) -> Done {
        self.device.client()?;
        let joined = self.shared.as_mut().ok_or_else(|| Fault::quiet(code::IOERR_SHMLOCK))?;
        let (writer, unlocks) = (first == 0 && flags & code::SHM_EXCLUSIVE != 0, flags & code::SHM_UNLOCK != 0);
        if writer && unlocks && joined.writes {
            joined.writes(false);
        }
        joined.shared.lock(first, n, flags)?;
        if writer && !unlocks {
            joined.writes(true);
        }
        Ok(())
    }

    fn shm_unmap(&mut self) -> Done {
        self.shared = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollback;
    use weldfs::{Client, OpenOptions};
    use weldfs_device::DeviceConfig;
    use weldfs_kernel_shim::{Embedded, Source};

    fn connection(device: &Arc<Device>) -> Box<Stored> {
        let name = Name { target: "d.img".into(), path: b"/a.db".to_vec() };
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = device.client().unwrap().open("/a.db", &options).unwrap();
        Box::new(Stored::new(device.clone(), name, Kind::Database, file).unwrap())
    }

    /// Whose removal of a journal would not be durable then, though its commit is acknowledged with that.
    #[test]
    fn a_sync_that_is_owed_is_not_paid_by_a_connection_that_does_not_write() {
        let embedded = Embedded::open(&Source::Ram(64 << 20), DeviceConfig::default()).unwrap();
        let client = Client::with(Arc::new(embedded)).unwrap();
        let device = Arc::new(Device::over(client, Way::Written).unwrap());
        let (mut writer, mut reader) = (connection(&device), connection(&device));
        for level in [Level::Shared, Level::Reserved] {
            writer.lock(level as c_int).unwrap();
        }
        let flags = code::OPEN_READWRITE | code::OPEN_CREATE | code::OPEN_MAIN_JOURNAL;
        let name = Name { target: "d.img".into(), path: b"/a.db-journal".to_vec() };
        let (mut journal, _) = rollback::open(device.clone(), name, flags).unwrap();
        journal.write(&[0xd9; 512], 0).unwrap();
        writer.lock(Level::Exclusive as c_int).unwrap();
        writer.write(&[1; 4096], 0).unwrap();
        assert!(writer.control(Control::Sync(false)).is_err(), "it is no answer");
        writer.sync().unwrap();
        assert!(device.commits.owed(b"/a.db"));
        // It comes too late to read, lets go of what it did not get, and closes.
        assert!(reader.lock(Level::Shared as c_int).is_err());
        reader.unlock(Level::None as c_int).unwrap();
        reader.close().unwrap();
        assert!(device.commits.owed(b"/a.db"), "the end of the journal has to be durable still");
        writer.unlock(Level::None as c_int).unwrap();
        assert!(!device.commits.owed(b"/a.db"), "the one that writes pays");
    }
}
