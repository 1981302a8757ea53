//! Calls that do not wait: `WELDFS_AUTOMERGE`. A change of a file that this thread opened, and the close of one that no
//! other process knows, are published, and the call returns (docs/AUTOMERGE.md says why no program can tell).

use crate::abi::Res;
use crate::hooks::flags_of;
use crate::{config, counts, device, promote, registry, table};
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weldfs::{Lease, POSTED_MAX};
use weldfs_ciscops::Handle;
use weldfs_ciscops::bodies::SetAttrBody;
use weldfs_ciscops::command::At;
use weldfs_ciscops::flags::OpenFlags;

/// What may go without waiting, by the name that switches it on, and its bit.
const PATTERNS: [(&[u8], u8); 3] = [(b"write", WRITE), (b"attributes", ATTRIBUTES), (b"close", CLOSE)];
/// Writes.
pub const WRITE: u8 = 1;
/// Changes of mode, owner and times.
pub const ATTRIBUTES: u8 = 2;
/// Closes.
pub const CLOSE: u8 = 4;
/// Furthest byte of a write that is posted, bytes: far below the largest size of a file.
const FAR: u64 = 1 << 42;

/// Whether this process has asked for locks: closing a file gives them back, and whoever is told that it is closed may
/// ask for them.
static LOCKED: AtomicBool = AtomicBool::new(false);
/// Calls that did not wait, in the order of `PATTERNS`.
static POSTED: [AtomicU64; PATTERNS.len()] = [const { AtomicU64::new(0) }; PATTERNS.len()];

/// What the variable says: `on`, `off`, or names of patterns. `None`: neither.
pub fn parse(value: &[u8]) -> Option<u8> {
    match value {
        b"on" => Some(PATTERNS.iter().fold(0, |all, (_, bit)| all | bit)),
        b"off" => Some(0),
        names => names.split(|b| *b == b',').try_fold(0, |all, name| {
            let pattern = PATTERNS.iter().find(|(known, _)| *known == name)?;
            Some(all | pattern.1)
        }),
    }
}

/// Whether a pattern is switched on.
#[inline]
pub fn is_on(pattern: u8) -> bool {
    config::get().is_some_and(|config| config.merge & pattern != 0)
}

/// Whether opens ask for leases.
pub fn asks() -> bool {
    is_on(WRITE | ATTRIBUTES)
}

/// Notes that this process asks for a lock.
pub fn note_lock() {
    LOCKED.store(true, Ordering::Relaxed);
}

fn count(pattern: u8) {
    if counts::counting() {
        POSTED[pattern.trailing_zeros() as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls that did not wait, by pattern; they are counted from zero again.
pub fn take_counts() -> [(&'static [u8], u64); PATTERNS.len()] {
    let mut at = 0;
    PATTERNS.map(|(name, _)| {
        at += 1;
        (name, POSTED[at - 1].swap(0, Ordering::Relaxed))
    })
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
    let Some(lease) = table::entry(fd).and_then(|open| open.lease()) else { return Ok(None) };
    // Others may have set them, by fcntl(2), since.
    if flags_of(fd).intersects(OpenFlags::SYNC | OpenFlags::DSYNC) {
        return Ok(None);
    }
    if !device::on(|d| d.post_write(&lease, h, at, parts))? {
        return Ok(None);
    }
    count(WRITE);
    if registry::stamp() != before {
        wrote_beside(fd, before, parts, &lease)?;
    }
    Ok(Some(len))
}

/// The file may have been mapped while it was written: what the kernel has of it must have that, too.
#[cold]
fn wrote_beside(fd: i32, before: u64, parts: &[IoSlice<'_>], lease: &Lease) -> Res<()> {
    lease.end();
    device::settle()?;
    lease.take_error().map_err(|e| e.0)?;
    let start = lease.last_place();
    promote::once_more(fd, before, |file| {
        let mut at = start;
        parts.iter().try_for_each(|part| {
            crate::hooks::write_all(file, at, part)?;
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
    let Some(lease) = table::entry(fd).and_then(|open| open.lease()) else { return Ok(false) };
    let posted = device::on(|d| d.post_attr(&lease, h, set))?;
    if posted {
        count(ATTRIBUTES);
    }
    Ok(posted)
}

/// Closes, without waiting if it may. The errno of what was posted before, where it is known.
pub fn close(last: &table::Last) -> Res<()> {
    match last.lease.as_ref().filter(|_| is_on(CLOSE) && !LOCKED.load(Ordering::Relaxed)) {
        Some(lease) => {
            let failed = lease.take_error().map_err(|e| e.0);
            count(CLOSE);
            failed.and(device::on(|d| d.post_close(lease, last.handle)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_patterns_or_all_or_none_of_them() {
        assert_eq!(parse(b"on"), Some(WRITE | ATTRIBUTES | CLOSE));
        assert_eq!(parse(b"off"), Some(0));
        assert_eq!(parse(b"close,write"), Some(WRITE | CLOSE));
        for odd in [&b""[..], b"yes", b"write,", b"write,,close", b"Write"] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
    }
}
