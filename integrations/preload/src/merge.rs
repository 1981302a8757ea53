//! Calls that do not wait: `WELDFS_AUTOMERGE`. A change of a file that this thread opened, and the close of one that no
//! other process knows, are published, and the call returns (docs/AUTOMERGE.md says why no program can tell).

use crate::abi::Res;
use crate::patterns::{self, ATTRIBUTES, CLOSE, WRITE};
use crate::{atomic, config, counts, device, promote, registry, sys, table};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::{Lease, POSTED_MAX};
use weldfs_ciscops::Handle;
use weldfs_ciscops::bodies::SetAttrBody;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::OpenFlags;

/// Furthest byte of a write that is posted, bytes: far below the largest size of a file.
const FAR: u64 = 1 << 42;

/// Whether this process has asked for locks: closing a file gives them back, and whoever is told that it is closed may
/// ask for them.
static LOCKED: AtomicBool = AtomicBool::new(false);
/// Whether a pattern is switched on.
#[inline]
pub fn is_on(pattern: u8) -> bool {
    config::get().is_some_and(|config| config.merge & pattern != 0)
}

/// Notes that this process asks for a lock.
pub fn note_lock() {
    LOCKED.store(true, Ordering::Relaxed);
}

/// One more call did not wait.
pub fn count(pattern: u8) {
    if counts::counting() {
        patterns::note(pattern);
    }
}

fn length(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// Writes without waiting; `None` where that cannot be, and nothing has happened. `before`: the registry's stamp as of
/// which the file is not mapped.
#[inline]
pub fn write(fd: i32, before: u64, (h, at): (Handle, At), parts: &[IoSlice<'_>]) -> Res<Option<usize>> {
    let len = length(parts);
    let short = (1..=POSTED_MAX).contains(&len);
    let near = !matches!(at, At::Offset(off) if off > FAR) && at != At::End;
    if !short || !near || !is_on(WRITE) {
        return Ok(None);
    }
    let Some((open, lease)) = table::entry(fd).and_then(|open| Some((open, open.lease()?))) else { return Ok(None) };
    // Each of its writes is durable when it returns.
    if open.status().intersects(OpenFlags::SYNC | OpenFlags::DSYNC) {
        return Ok(None);
    }
    // Before the write is there: from then on it is not what came with the open.
    open.end_look();
    if !device::on(|d| d.post_write(&lease, h, at, parts))? {
        return Ok(None);
    }
    count(WRITE);
    if registry::stamp() != before {
        wrote_beside((fd, h), before, parts, &lease)?;
    }
    Ok(Some(len))
}

/// The file may have been mapped while it was written: what the kernel has of it must have that, too.
#[cold]
fn wrote_beside(file: (i32, Handle), before: u64, parts: &[IoSlice<'_>], lease: &Lease) -> Res<()> {
    lease.end();
    device::settle()?;
    lease.take_error().map_err(|e| e.0)?;
    let start = lease.last_place();
    promote::once_more(file, before, |file| {
        let mut at = start;
        parts.iter().try_for_each(|part| {
            write_all(file, at, part)?;
            at += part.len() as u64;
            Ok(())
        })
    });
    Ok(())
}

/// Changes attributes without waiting; false where that cannot be.
pub fn set_attr(fd: i32, h: Handle, set: &SetAttrBody) -> Res<bool> {
    if !is_on(ATTRIBUTES) || registry::any() {
        return Ok(false);
    }
    let Some((open, lease)) = table::entry(fd).and_then(|open| Some((open, open.lease()?))) else { return Ok(false) };
    open.end_look();
    let posted = device::on(|d| d.post_attr(&lease, h, set))?;
    if posted {
        count(ATTRIBUTES);
    }
    Ok(posted)
}

/// Closes, without waiting if it may. The errno of what was posted before, where it is known.
pub fn close(last: &table::Last) -> Res<()> {
    // Its locks are given back.
    if LOCKED.load(Ordering::Relaxed) {
        atomic::before_close(last.handle);
    }
    match last.lease.as_ref().filter(|_| is_on(CLOSE) && !LOCKED.load(Ordering::Relaxed)) {
        Some(lease) => {
            let failed = lease.take_error().map_err(|e| e.0);
            let posted = device::on(|d| d.post_close(lease, last.handle));
            if posted == Ok(true) {
                count(CLOSE);
            }
            failed.and(posted.map(drop))
        }
        None if last.posts && is_on(CLOSE) && !LOCKED.load(Ordering::Relaxed) => {
            device::on(|d| d.post_plain_close(last.handle))?;
            count(CLOSE);
            Ok(())
        }
        None => device::on(|d| d.close(last.handle)),
    }
}

/// A file's end, or a position in it, has been put far away: what is posted might reach the largest offset there is.
pub fn note_place(fd: i32, place: u64) {
    if place > FAR
        && let Some(lease) = table::entry(fd).and_then(|open| open.lease())
    {
        lease.end();
    }
}

/// All of it, by the kernel's own file.
pub fn write_all(file: i32, mut at: u64, mut bytes: &[u8]) -> Res<()> {
    while !bytes.is_empty() {
        let args = [file as usize, bytes.as_ptr() as usize, bytes.len(), at as usize, 0, 0];
        let n = sys::checked(libc::SYS_pwrite64, args)?;
        (at, bytes) = (at + n as u64, bytes.get(n.max(1)..).ok_or(libc::EIO)?);
    }
    Ok(())
}
