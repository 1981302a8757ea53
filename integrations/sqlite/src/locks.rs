//! SQLite's five locking levels over byte ranges of the device, at the offsets of SQLite's own VFS: a program that
//! comes to the same file through `weldfs run` keeps to the same locks.
//!
//! The locks belong to the open file description, so that connections of one process exclude each other as those of
//! several do, and none loses its locks because another one closes.

use crate::code;
use crate::fault::{Done, Fault};
use std::ffi::c_int;
use weldfs::{Errno, File, LockKind, LockSpace};

/// Taken by a writer that waits for readers to leave: no new reader comes in.
const PENDING_BYTE: u64 = 0x4000_0000;
const RESERVED_BYTE: u64 = PENDING_BYTE + 1;
const SHARED_FIRST: u64 = PENDING_BYTE + 2;
const SHARED_LEN: u64 = 510;

/// How much of a database a connection has to itself. The numbers are SQLite's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    /// Nothing.
    None = 0,
    /// May read.
    Shared = 1,
    /// Means to write; others read on.
    Reserved = 2,
    /// Waits for readers to leave.
    Pending = 3,
    /// Alone.
    Exclusive = 4,
}

impl Level {
    /// What a number of SQLite's stands for.
    pub fn of(level: c_int) -> Level {
        match level {
            ..=0 => Level::None,
            1 => Level::Shared,
            2 => Level::Reserved,
            3 => Level::Pending,
            4.. => Level::Exclusive,
        }
    }
}

/// Sets or clears one range; whether it could be had.
pub fn set(file: &File, kind: LockKind, start: u64, len: u64) -> Result<bool, Errno> {
    match file.raw().lock_set(file.handle(), LockSpace::OpenFile, kind, start, len, 0) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The first lock of others in the way of a write lock on a range: where it starts, and its length.
pub fn in_the_way(file: &File, start: u64, len: u64) -> Result<Option<(u64, u64)>, Errno> {
    let found = file.raw().lock_get(file.handle(), LockSpace::OpenFile, LockKind::Write, start, len, 0)?;
    Ok(found.map(|lock| (lock.start, lock.len)))
}

/// Goes up from `now` to `want`. BUSY leaves what was had; a writer that waits for readers stays at `Pending`.
pub fn raise(file: &File, now: &mut Level, want: Level) -> Done {
    let busy = || Fault::quiet(code::BUSY);
    let take = |kind, start, len| match set(file, kind, start, len) {
        Ok(true) => Ok(()),
        Ok(false) => Err(busy()),
        Err(e) => Err(Fault::of(code::IOERR_LOCK, e, || "lock".into())),
    };
    if *now == Level::None && want >= Level::Shared {
        take(LockKind::Read, PENDING_BYTE, 1)?;
        let shared = take(LockKind::Read, SHARED_FIRST, SHARED_LEN);
        let back = take(LockKind::Unlock, PENDING_BYTE, 1);
        shared.and(back)?;
        *now = Level::Shared;
    }
    if want == Level::Reserved && *now < want {
        take(LockKind::Write, RESERVED_BYTE, 1)?;
        *now = want;
    }
    if want == Level::Exclusive && *now < Level::Pending {
        // All of it at once, if no reader is there.
        if let Ok(true) = set(file, LockKind::Write, PENDING_BYTE, 2 + SHARED_LEN) {
            *now = want;
            return Ok(());
        }
    }
    if want >= Level::Pending && *now < Level::Pending {
        take(LockKind::Write, PENDING_BYTE, 1)?;
        *now = Level::Pending;
    }
    if want == Level::Exclusive && *now < want {
        take(LockKind::Write, SHARED_FIRST, SHARED_LEN)?;
        *now = want;
    }
    Ok(())
}

/// Goes down to `want`, which is `Shared` or `None`.
pub fn lower(file: &File, now: &mut Level, want: Level) -> Done {
    let lost = |code| move |e| Fault::of(code, e, || "unlock".into());
    if *now <= want {
        return Ok(());
    }
    if want == Level::Shared {
        if *now == Level::Exclusive {
            // Shared before the bytes of writers are free: at no moment is there no lock at all.
            set(file, LockKind::Read, SHARED_FIRST, SHARED_LEN).map_err(lost(code::IOERR_RDLOCK))?;
        }
        set(file, LockKind::Unlock, PENDING_BYTE, 2).map_err(lost(code::IOERR_UNLOCK))?;
    } else {
        set(file, LockKind::Unlock, PENDING_BYTE, 2 + SHARED_LEN).map_err(lost(code::IOERR_UNLOCK))?;
    }
    *now = want;
    Ok(())
}

/// Whether any connection, this one included, has it reserved or more.
pub fn is_reserved(file: &File, now: Level) -> Done<bool> {
    if now >= Level::Reserved {
        return Ok(true);
    }
    match in_the_way(file, RESERVED_BYTE, 1) {
        Ok(found) => Ok(found.is_some()),
        Err(e) => Err(Fault::of(code::IOERR_CHECKRESERVEDLOCK, e, || "look for a lock".into())),
    }
}
