//! `WELDFS_ATOMIC=DIR`: what a process renames below DIR between two of its syncs is one transaction of the device. A
//! program that saves several files, each written beside its name and renamed, has saved all of them or none, whether
//! it, the device or the power ends meanwhile (docs/AUTOMERGE.md, "Saves that are one").
//!
//! Renames are kept here until they are made, each checked as the device will check it. A call that needs one of the
//! names, or a directory on the way to one, has all of them made first, so the process finds what it renamed. What is
//! not plain (a directory, a link, a file with several names, a sticky directory, flags) is not kept.

use crate::abi::Res;
use crate::{config, device, path, patterns, report, table};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs::{RenameFlags, StatBody, TxnMode};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::AccessMask;
use weldfs_ciscops::limits::{INODE_SET_MAX, MICRO_OPS_MAX, PROGRAM_BODY_MAX};
use weldfs_ciscops::program::{Builder, Micro};
use weldfs_locks::Mutex;

const STICKY: u32 = 0o1000;
/// Bytes of names in a transaction, at most: its program holds them and its micro-ops.
const NAMES_BYTES: usize = PROGRAM_BODY_MAX as usize / 2;

/// Whether any rename is kept.
static ANY: AtomicBool = AtomicBool::new(false);
/// Whether the process is past its end: none would be made that is kept now.
static OVER: AtomicBool = AtomicBool::new(false);
/// Held by whoever is at them.
static TURN: Mutex<()> = Mutex::new(());
thread_local! {
    static HOLDS_TURN: Cell<bool> = const { Cell::new(false) };
}
static KEPT: Mutex<Kept> = Mutex::new(Kept { renames: Vec::new(), inodes: Vec::new(), failed: 0 });

/// Held over a fork.
pub type Held = Option<table::Once>;

/// What `call` makes of them, one thread after the other; `None` for a signal's handler in the middle of it.
fn with<T>(call: impl FnOnce(&mut Kept) -> T) -> Option<T> {
    let _turn = table::Once::enter(&TURN, &HOLDS_TURN)?;
    Some(call(&mut KEPT.lock()))
}

/// What is to be made.
pub struct Kept {
    renames: Vec<Rename>,
    /// The inodes that they are about: a transaction has so many at most.
    inodes: Vec<u64>,
    /// Of the first that could not be made after all, until a sync has said so.
    failed: i32,
}

/// Absolute names in the device, in normal form.
struct Rename {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Rename {
    fn names(&self) -> [&[u8]; 2] {
        [&self.from, &self.to]
    }

    fn make(&self) -> Res<()> {
        device::on(|d| d.renameat(Handle::ROOT, &self.from, Handle::ROOT, &self.to, RenameFlags::empty()))
    }
}

impl Kept {
    /// Makes all of them: as one transaction, and where the device cannot, one after the other.
    fn make(&mut self) {
        let renames = std::mem::take(&mut self.renames);
        self.inodes.clear();
        ANY.store(false, Ordering::Relaxed);
        if renames.is_empty() {
            return;
        }
        patterns::note_renames(renames.len());
        match together(&renames) {
            Ok(()) => return patterns::note_transaction(),
            Err(libc::EOPNOTSUPP) => report::warn(&["WELDFS_ATOMIC: this device has no transactions of several names"]),
            // Another process has changed what was found when they were kept.
            Err(_) => report::warn(&["WELDFS_ATOMIC: renames could not be made together, and are made one by one"]),
        }
        for rename in &renames {
            if let Err(code) = rename.make()
                && self.failed == 0
            {
                self.failed = code;
            }
        }
    }

    /// Whether a name is, or is on the way to, one of theirs, or might be by its last part.
    fn concerns(&self, name: &[u8]) -> bool {
        let last = path::split_last(name).1;
        let on_the_way = |other: &[u8]| other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        let like = |other: &[u8]| path::split_last(other).1 == last || on_the_way(other);
        name == b"/" || self.renames.iter().any(|rename| rename.names().into_iter().any(like))
    }

    /// Whether one more is among them, if it is as plain as it must be.
    fn take(&mut self, from: &[u8], to: &[u8]) -> bool {
        if self.concerns(from) || self.concerns(to) {
            self.make();
        }
        let Some(inodes) = plain(from, to) else { return false };
        let added = |kept: &Kept| inodes.iter().flatten().filter(|ino| !kept.inodes.contains(ino)).count();
        let bytes: usize = self.renames.iter().flat_map(Rename::names).map(<[u8]>::len).sum();
        let full = self.inodes.len() + added(self) > INODE_SET_MAX || self.renames.len() >= MICRO_OPS_MAX;
        if full || bytes + from.len() + to.len() > NAMES_BYTES {
            self.make();
        }
        for ino in inodes.into_iter().flatten() {
            if !self.inodes.contains(&ino) {
                self.inodes.push(ino);
            }
        }
        self.renames.push(Rename { from: from.to_vec(), to: to.to_vec() });
        ANY.store(true, Ordering::Relaxed);
        true
    }
}

fn together(renames: &[Rename]) -> Res<()> {
    let mut program = Builder::new();
    for rename in renames {
        let (from, to) = (program.string(&rename.from), program.string(&rename.to));
        let (from_base, to_base, flags) = (Handle::ROOT, Handle::ROOT, RenameFlags::empty());
        program.push(Micro::Rename { from_base, from, to_base, to, flags });
    }
    let body = program.finish().map_err(|_| libc::E2BIG)?;
    let run = |d: weldfs::Raw<'static>| d.mode(TxnMode::Macro).program(&body, &mut [], |_, _| 0)?.ok().map(drop);
    device::on(run)
}

/// The inodes that a rename is about, where nothing is odd about it and the device would do it: both directories, the
/// file, and the one that it replaces.
fn plain(from: &[u8], to: &[u8]) -> Option<[Option<u64>; 4]> {
    let look = |name: &[u8]| device::on(|d| d.statat(Handle::ROOT, name, true));
    let file = |st: &StatBody| st.mode & libc::S_IFMT == libc::S_IFREG && st.nlink == 1;
    let above = |name: &[u8]| {
        let dir = path::split_last(name).0;
        let dir = if dir.is_empty() { b"/" } else { dir };
        let st = look(dir).ok().filter(|st| st.mode & libc::S_IFMT == libc::S_IFDIR && st.mode & STICKY == 0)?;
        let may = AccessMask::WRITE | AccessMask::EXEC;
        device::on(|d| d.accessat(Handle::ROOT, dir, may, false)).ok().map(|()| st.ino)
    };
    let old = look(from).ok().filter(file)?;
    let replaced = match look(to) {
        Ok(st) if file(&st) && st.ino != old.ino => Some(st.ino),
        Err(libc::ENOENT) => None,
        _ => return None,
    };
    Some([Some(above(from)?), Some(above(to)?), Some(old.ino), replaced])
}

/// Whether any rename is kept.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Whether renames are kept at all.
pub fn is_on() -> bool {
    config::get().is_some_and(|config| config.atomic.is_some())
}

/// Keeps a rename, if it is one of those that are kept; false: it is to be made now, and those before it are. Names:
/// absolute in the device, where they are known.
pub fn keeps(from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
    let Some(dir) = config::get().and_then(|config| config.atomic.as_deref()) else { return false };
    let below = |name: Option<&[u8]>| {
        let name = normal(name?)?;
        let rest = if dir == b"/" { Some(&name[..]) } else { name.strip_prefix(dir) };
        rest.is_some_and(|rest| rest.len() > 1 && rest[0] == b'/').then_some(name)
    };
    let names = below(from).zip(below(to)).filter(|_| !OVER.load(Ordering::Relaxed));
    with(|kept| match names {
        Some((from, to)) if kept.take(&from, &to) => true,
        _ => {
            kept.make();
            false
        }
    })
    .unwrap_or(false)
}

/// Before a call about a name (absolute in the device, where it is known; empty: about `base` itself): those that are
/// kept are made, if it may find out that they are not.
pub fn before(name: Option<&[u8]>, base: Handle) {
    let itself = name.is_some_and(<[u8]>::is_empty);
    let name = name.and_then(normal);
    // A link leads to whatever it says.
    let link = |name: &[u8]| {
        let found = device::on(|d| d.statat(Handle::ROOT, name, true));
        found.is_ok_and(|st| st.mode & libc::S_IFMT == libc::S_IFLNK)
    };
    with(|kept| match name {
        Some(name) if !kept.concerns(&name) && !link(&name) => {}
        None if itself && !is_directory(base) => {}
        _ => kept.make(),
    });
}

fn is_directory(base: Handle) -> bool {
    device::on(|d| d.stat(base)).is_ok_and(|st| st.mode & libc::S_IFMT == libc::S_IFDIR)
}

/// Makes those that are kept, before other processes are born or find this one's files, or a directory is listed.
pub fn make() {
    if any() {
        with(Kept::make);
    }
}

/// Makes those that are kept, before a sync; what could not be made is its errno.
pub fn sync() -> Res<()> {
    if !is_on() {
        return Ok(());
    }
    let made = with(|kept| {
        kept.make();
        std::mem::take(&mut kept.failed)
    });
    match made {
        None | Some(0) => Ok(()),
        Some(code) => Err(code),
    }
}

/// As the process ends: later ones are made at once.
pub fn end() {
    OVER.store(true, Ordering::Relaxed);
    make();
}

/// Before a fork: none is kept on either side.
pub fn before_fork() -> Held {
    make();
    table::Once::enter(&TURN, &HOLDS_TURN)
}

/// An absolute name without empty parts; `None` where it has dots that lead elsewhere, or a slash at its end.
fn normal(name: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::with_capacity(name.len());
    for part in name.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
        if part == b"." || part == b".." {
            return None;
        }
        all.push(b'/');
        all.extend_from_slice(part);
    }
    (name.first() == Some(&b'/') && !all.is_empty() && !name.ends_with(b"/")).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(renames: &[(&str, &str)]) -> Kept {
        let one = |(from, to): &(&str, &str)| Rename { from: from.as_bytes().into(), to: to.as_bytes().into() };
        Kept { renames: renames.iter().map(one).collect(), inodes: Vec::new(), failed: 0 }
    }

    #[test]
    fn names_that_may_be_theirs_concern_them() {
        let kept = kept(&[("/d/e/a.tmp", "/d/e/a")]);
        for name in ["/d/e/a", "/d/e/a.tmp", "/x/a", "/d", "/d/e", "/"] {
            assert!(kept.concerns(name.as_bytes()), "{name}");
        }
        for name in ["/d/e/b", "/d/e/b.tmp", "/d/e/a.tm", "/d/ee", "/c"] {
            assert!(!kept.concerns(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_come_to_a_normal_form_or_to_none() {
        let seen = |name: &[u8]| normal(name);
        assert_eq!(seen(b"//a///b"), Some(b"/a/b".to_vec()));
        for odd in [&b"a"[..], b"/", b"", b"/a/", b"/a/../b", b"/a/./b", b"/a/.."] {
            assert_eq!(seen(odd), None, "{odd:?}");
        }
    }
}
