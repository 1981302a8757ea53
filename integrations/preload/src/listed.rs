//! Names that are looked at one after the other in one directory: the directory is listed with all attributes, and what
//! follows is answered here as long as the device vouches for that: `names` of `WELDFS_AUTOMERGE`.
//!
//! A listing costs some commands. It is asked for when so many names of a directory were looked at in a row; where one
//! is not used enough (its directory changes), the next one takes a longer row.

use crate::abi::Res;
use crate::merge::{count, is_on};
use crate::patterns::NAMES;
use crate::{counts, device, registry};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weldfs::{Listed, Listing, Process, StatBody};
use weldfs_ciscops::Handle;
use weldfs_ciscops::limits::PATH_MAX;
use weldfs_locks::Mutex;

/// Names in a row before the first listing.
const ROW_MIN: u32 = 4;
/// And where listings do not pay.
const ROW_MAX: u32 = 256;
/// A listing that answered so often has paid.
const PAID: u32 = 4;
/// After so many refusals in a row no more is asked for: the device gives none.
const REFUSED_MAX: u32 = 8;

/// What was looked at last.
struct Last {
    /// Where names begin: a handle, as it is on the wire, and what of the path is before the name.
    base: u64,
    directory: Vec<u8>,
    /// Names in a row, and how many it takes.
    row: u32,
    needed: u32,
    listing: Option<Listing>,
    answered: u32,
    /// Whose it is: a child's handles are others.
    process: Option<Process>,
    /// Listings in a row that were refused.
    refused: u32,
}

/// Never waited for: a handler of a signal may have interrupted who holds it.
static LAST: Mutex<Last> = Mutex::new(Last {
    base: 0,
    directory: Vec::new(),
    row: 0,
    needed: ROW_MIN,
    listing: None,
    answered: 0,
    process: None,
    refused: 0,
});

/// What stands for the directory of the last name, so that a program that goes from one to another pays some
/// nanoseconds for each and no lock. Two that are alike here cost as much as a row, and are told apart there.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// Whether another directory was looked at since the row that `LAST` has.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a listing, which ends where another directory is looked at.
static LISTED: AtomicBool = AtomicBool::new(false);

/// What stat(2) says of a name, or lstat(2).
pub fn stat(base: Handle, path: &[u8], nofollow: bool) -> Res<StatBody> {
    if is_on(NAMES)
        && !registry::any()
        && let Some(answer) = known(base, path, nofollow)
    {
        counts::served();
        count(NAMES);
        return answer;
    }
    device::on(|d| d.statat(base, path, nofollow))
}

/// A name that is worth listing its directory for: what is before it, and the name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(at);
    (!name.is_empty() && name != b"." && name != b"..").then_some((directory, name))
}

/// As FNV-1a does, with eight bytes at a time.
fn stands_for(base: Handle, directory: &[u8]) -> u64 {
    let mix = |sum: u64, part: u64| (sum ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    directory.chunks(8).fold(mix(directory.len() as u64, base.to_wire()), |sum, chunk| {
        let mut part = [0; 8];
        part[..chunk.len()].copy_from_slice(chunk);
        mix(sum, u64::from_le_bytes(part))
    })
}

fn known(base: Handle, path: &[u8], nofollow: bool) -> Option<Res<StatBody>> {
    let (directory, name) = split(path).filter(|_| path.len() < PATH_MAX)?;
    let seen = stands_for(base, directory);
    let again = SEEN.load(Relaxed) == seen;
    if !again {
        SEEN.store(seen, Relaxed);
        BROKEN.store(true, Relaxed);
        if !LISTED.load(Relaxed) {
            return None;
        }
    }
    let mut last = LAST.try_lock()?;
    let broken = BROKEN.swap(false, Relaxed);
    if last.base != base.to_wire() || last.directory != directory {
        // The name before was in it, too, and not told.
        last.go_to(base, directory, 1 + u32::from(again));
        return None;
    }
    if last.listing.as_ref().is_some_and(|listing| !listing.is_current()) {
        last.close();
    }
    if last.listing.is_none() {
        if broken {
            // The name before was the first.
            last.row = u32::from(again);
        }
        last.row += 1;
        if last.row < last.needed || last.refused >= REFUSED_MAX {
            return None;
        }
        last.list(base);
    }
    let listing = last.listing.as_ref()?;
    let found = match listing.find(name)? {
        Listed::There(body) if nofollow || body.mode & libc::S_IFMT != libc::S_IFLNK => Ok(*body),
        Listed::There(_) => return None,
        Listed::Absent => Err(libc::ENOENT),
    };
    // It was listed a moment ago at the earliest.
    if !listing.is_current() {
        return None;
    }
    last.answered += 1;
    Some(found)
}

impl Last {
    fn go_to(&mut self, base: Handle, directory: &[u8], row: u32) {
        self.close();
        self.base = base.to_wire();
        self.directory.clear();
        self.directory.extend_from_slice(directory);
        self.row = row;
    }

    fn list(&mut self, base: Handle) {
        let directory: &[u8] = if self.directory.is_empty() { b"." } else { &self.directory };
        self.listing = device::on(|d| d.listing(base, directory)).ok().flatten();
        LISTED.store(self.listing.is_some(), Relaxed);
        self.process = Some(Process::current());
        if self.listing.is_none() {
            self.refused += 1;
            self.pays(false);
        } else {
            self.refused = 0;
        }
    }

    /// What was listed is of no use any more.
    fn close(&mut self) {
        LISTED.store(false, Relaxed);
        if self.process.is_some_and(|process| !process.is_current()) {
            std::mem::forget(self.listing.take());
        }
        if let Some(listing) = self.listing.take() {
            let _ = device::on(|d| d.post_plain_close(listing.handle));
            self.pays(self.answered >= PAID);
        }
    }

    fn pays(&mut self, paid: bool) {
        self.needed = if paid { ROW_MIN } else { (self.needed * 2).min(ROW_MAX) };
        (self.row, self.answered) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_from_its_directory() {
        assert_eq!(split(b"a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split(b"/a/b"), Some((&b"/a/"[..], &b"b"[..])));
        let alike = |a: &[u8], b: &[u8]| stands_for(Handle::ROOT, a) == stands_for(Handle::ROOT, b);
        assert!(alike(b"some/folder/", b"some/folder/") && !alike(b"a/", b"b/") && !alike(b"", b"\0"));
        assert!(!alike(b"eightone/one/", b"eighttwo/one/") && !alike(b"eightone/one/", b"eightone/two/"));
        for none in [&b""[..], b"/", b"a/", b".", b"a/..", b"a/."] {
            assert_eq!(split(none), None);
        }
    }
}
