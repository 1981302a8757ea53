//! What an open file does for SQLite: the methods of `sqlite3_io_methods`, in safe terms.

use crate::code;
use crate::fault::{Done, Fault};
use std::ffi::{c_int, c_void};

/// A file control with its operand.
#[derive(Debug, Clone, Copy)]
pub enum Control {
    /// The size that the file is going to have, bytes.
    SizeHint(i64),
    /// Grow in multiples of so many bytes.
    ChunkSize(c_int),
    /// Keep the write-ahead log at the last close: negative asks, else 0 or 1.
    PersistWal(c_int),
    /// A write changes nothing beside its range when the power fails: the same.
    PowersafeOverwrite(c_int),
    /// Which lock is held?
    LockState,
    /// The errno of the last failure.
    LastErrno,
    /// Does the name lead to another file by now?
    HasMoved,
    /// A sync follows, that of a commit; whether it has a super-journal.
    Sync(bool),
    /// The writes that follow are one.
    BeginAtomic,
    /// Does them.
    CommitAtomic,
    /// Forgets them.
    RollbackAtomic,
}

/// An open file. What is not said is that of a file which no other connection sees.
pub trait Io: Send {
    /// Fills `room` from `at`; how many bytes there were.
    fn read(&mut self, room: &mut [u8], at: u64) -> Done<usize>;
    /// Writes all of it.
    fn write(&mut self, data: &[u8], at: u64) -> Done;
    /// Sets the size.
    fn truncate(&mut self, size: u64) -> Done;
    /// The size.
    fn size(&mut self) -> Done<u64>;
    /// What was written is durable.
    fn sync(&mut self) -> Done;
    /// Gives it up.
    fn close(self: Box<Self>) -> Done;

    /// Raises the lock to a level of SQLite's.
    fn lock(&mut self, _level: c_int) -> Done {
        Ok(())
    }
    /// Lowers it.
    fn unlock(&mut self, _level: c_int) -> Done {
        Ok(())
    }
    /// The counters of its device, a JSON object; none where it has no device.
    fn stats(&mut self) -> Done<Option<String>> {
        Ok(None)
    }
    /// Whether any connection has it reserved.
    fn is_reserved(&mut self) -> Done<bool> {
        Ok(false)
    }
    /// The answer, where the control has one; NOTFOUND for what it does not know.
    fn control(&mut self, _control: Control) -> Done<c_int> {
        Err(Fault::quiet(code::NOTFOUND))
    }
    /// What it promises.
    fn characteristics(&self) -> c_int {
        code::IOCAP_POWERSAFE_OVERWRITE
    }
    /// A region of the shared memory; null when it is not there yet and shall not be made.
    fn shm_map(&mut self, _region: u32, _bytes: u32, _make: bool) -> Done<*mut c_void> {
        Err(Fault::quiet(code::IOERR_SHMMAP))
    }
    /// Locks of the shared memory.
    fn shm_lock(&mut self, _first: u32, _n: u32, _flags: c_int) -> Done {
        Err(Fault::quiet(code::IOERR_SHMLOCK))
    }
    /// Gives the shared memory up.
    fn shm_unmap(&mut self) -> Done {
        Ok(())
    }
}

/// What a `sqlite3_file` of ours holds.
pub struct Open {
    /// The file.
    pub io: Box<dyn Io>,
    /// The errno of its last failure.
    pub errno: i32,
}
