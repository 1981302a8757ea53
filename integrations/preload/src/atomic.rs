//! `WELDFS_ATOMIC=DIR`: what a process renames below DIR between two of its syncs is one transaction of the device. A
//! program that saves several files, each written beside its name and renamed, has saved all of them or none, whether
//! it, the device or the power ends meanwhile (docs/AUTOMERGE.md, "Saves that are one").
//!
//! Renames are kept here until they are made, each of them one that the device would make now. A call that needs one of
//! the names, or a directory on the way to one, has all of them made first, so the process finds what it renamed; so
//! does one that destroys anything, or gives a lock away. What is not plain (a directory, a link, a file with several
//! names, a sticky directory, flags) is not kept.

use crate::abi::Res;
use crate::{config, device, path, patterns, report, table};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weldfs::{RenameFlags, StatBody, TxnMode};
use weldfs_ciscops::Handle;
use weldfs_ciscops::flags::AccessMask;
use weldfs_ciscops::limits::{INODE_SET_MAX, MICRO_OPS_MAX, PROGRAM_BODY_MAX};
use weldfs_ciscops::program::{Builder, Micro};
use weldfs_locks::Mutex;

const STICKY: u32 = 0o1000;
/// Bytes of names in a transaction, at most: its program holds them and its micro-ops.
const NAMES_BYTES: usize = PROGRAM_BODY_MAX as usize / 2;
/// How long the oldest one is kept when the process names other files.
const AGE_MAX: Duration = Duration::from_secs(1);

/// Whether any rename is kept, or being made.
static ANY: AtomicBool = AtomicBool::new(false);
/// Whether none is kept any more: the process ends, its files are the kernel's, or the device has no such transactions.
static OVER: AtomicBool = AtomicBool::new(false);
/// Held by whoever is at them.
static TURN: Mutex<()> = Mutex::new(());
thread_local! {
    static HOLDS_TURN: Cell<bool> = const { Cell::new(false) };
}
static KEPT: Mutex<Kept> =
    Mutex::new(Kept { renames: Vec::new(), inodes: Vec::new(), since: None, failed: 0, locked: Vec::new() });

/// Held over a fork.
pub type Held = Option<table::Once>;

/// What `call` makes of them, one thread after the other; `None` for a signal's handler in the middle of it.
fn with<T>(call: impl FnOnce(&mut Kept) -> T) -> Option<T> {
    let _turn = table::Once::enter(&TURN, &HOLDS_TURN)?;
    Some(call(&mut KEPT.lock()))
}

/// What is to be made.
struct Kept {
    renames: Vec<Rename>,
    /// The inodes that they are about: a transaction has so many at most.
    inodes: Vec<u64>,
    /// When the first of them was kept.
    since: Option<Instant>,
    /// Of the first that could not be made after all, until a sync has said so.
    failed: i32,
    /// Inodes of files that this process has asked for locks of.
    locked: Vec<u64>,
}

/// Absolute names in the device, in normal form, and the directories that they are in.
struct Rename {
    from: Vec<u8>,
    to: Vec<u8>,
    dirs: [u64; 2],
}

impl Rename {
    fn names(&self) -> [(&[u8], u64); 2] {
        [(&self.from, self.dirs[0]), (&self.to, self.dirs[1])]
    }

    /// By itself.
    fn make(&self) -> Res<()> {
        device::on(|d| d.renameat(Handle::ROOT, &self.from, Handle::ROOT, &self.to, RenameFlags::empty()))
    }
}

impl Kept {
    /// Makes all of them: as one transaction, without those that cannot be made any more; where the device cannot, one
    /// after the other.
    fn make(&mut self) {
        let (mut renames, mut odd) = (std::mem::take(&mut self.renames), Vec::new());
        (self.inodes, self.since) = (Vec::new(), None);
        patterns::note_renames(renames.len());
        while renames.len() > 1 {
            match together(&renames) {
                Ok(()) => {
                    patterns::note_transaction();
                    renames.clear();
                }
                Err(libc::EOPNOTSUPP) => {
                    OVER.store(true, Ordering::Relaxed);
                    report::warn(&["WELDFS_ATOMIC: this device has no transactions of several names"]);
                    break;
                }
                Err(_) => {
                    // Another process has changed what was found when they were kept?
                    let before = renames.len();
                    odd.extend(renames.extract_if(.., |rename| plain(&rename.from, &rename.to).is_none()));
                    if renames.len() == before {
                        report::warn(&["WELDFS_ATOMIC: renames cannot be made together, and are made one by one"]);
                        break;
                    }
                }
            }
        }
        if let [rename] = &renames[..] {
            patterns::note_transaction();
            self.alone(rename);
        } else {
            renames.iter().for_each(|rename| self.alone(rename));
        }
        odd.iter().for_each(|rename| self.alone(rename));
        // Others have waited for it.
        ANY.store(false, Ordering::Release);
    }

    fn alone(&mut self, rename: &Rename) {
        if let Err(code) = rename.make() {
            let name = |name| String::from_utf8_lossy(name).into_owned();
            report::warn(&["WELDFS_ATOMIC: not renamed: ", &name(&rename.from), " to ", &name(&rename.to)]);
            if self.failed == 0 {
                self.failed = code;
            }
        }
    }

    /// Whether a name is, or is on the way to, one of theirs: by what it says, and by its last part and directory.
    fn concerns(&self, name: &[u8]) -> bool {
        let (dir, last, _) = path::split_last(name);
        let dir = std::cell::LazyCell::new(|| directory(dir).map(|st| st.ino));
        let like = |(other, of): (&[u8], u64)| {
            let rest = other.strip_prefix(name);
            let on_the_way = rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            let below = name.strip_prefix(other).is_some_and(|rest| rest.first() == Some(&b'/'));
            on_the_way || below || path::split_last(other).1 == last && dir.is_none_or(|ino| ino == of)
        };
        name == b"/" || self.renames.iter().any(|rename| rename.names().into_iter().any(like))
    }

    /// Whether one more is among them, if it is as plain as it must be.
    fn take(&mut self, from: &[u8], to: &[u8]) -> bool {
        if self.concerns(from) || self.concerns(to) || self.is_old() {
            self.make();
        }
        let Some(Found { dirs, files }) = plain(from, to) else { return false };
        let inodes: Vec<u64> = dirs.into_iter().chain(files.into_iter().flatten()).collect();
        let mut all = self.inodes.clone();
        all.extend(&inodes);
        all.sort_unstable();
        all.dedup();
        let bytes: usize = self.renames.iter().flat_map(Rename::names).map(|(name, _)| name.len()).sum();
        let full = all.len() > INODE_SET_MAX || self.renames.len() >= MICRO_OPS_MAX;
        if full || bytes + from.len() + to.len() > NAMES_BYTES {
            self.make();
            all = inodes;
        }
        self.inodes = all;
        self.since.get_or_insert_with(Instant::now);
        self.renames.push(Rename { from: from.to_vec(), to: to.to_vec(), dirs });
        ANY.store(true, Ordering::Release);
        true
    }

    fn is_old(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > AGE_MAX)
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

fn is(st: &StatBody, kind: u32) -> bool {
    st.mode & libc::S_IFMT == kind
}

fn directory(dir: &[u8]) -> Option<StatBody> {
    let dir = if dir.is_empty() { b"/" } else { dir };
    device::on(|d| d.statat(Handle::ROOT, dir, false)).ok().filter(|st| is(st, libc::S_IFDIR))
}

/// What a rename is about: both directories, the file, and the one that it replaces.
struct Found {
    dirs: [u64; 2],
    files: [Option<u64>; 2],
}

/// The same, where nothing is odd about it and names and rights are as they must be.
fn plain(from: &[u8], to: &[u8]) -> Option<Found> {
    let look = |name: &[u8]| device::on(|d| d.statat(Handle::ROOT, name, true));
    let file = |st: &StatBody| is(st, libc::S_IFREG) && st.nlink == 1;
    let above = |name: &[u8]| {
        let dir = path::split_last(name).0;
        let st = directory(dir).filter(|st| st.mode & STICKY == 0)?;
        let (dir, may) = (if dir.is_empty() { b"/" } else { dir }, AccessMask::WRITE | AccessMask::EXEC);
        device::on(|d| d.accessat(Handle::ROOT, dir, may, false)).ok().map(|()| st.ino)
    };
    let old = look(from).ok().filter(file)?;
    let replaced = match look(to) {
        Ok(st) if file(&st) && st.ino != old.ino => Some(st.ino),
        Err(libc::ENOENT) => None,
        _ => return None,
    };
    Some(Found { dirs: [above(from)?, above(to)?], files: [Some(old.ino), replaced] })
}

/// Whether any rename is kept, or being made.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// The directory below which renames are kept, as it was said: absolute in the device.
pub fn said() -> Option<&'static [u8]> {
    config::get()?.atomic.as_deref()
}

/// Keeps a rename, if it is one of those that are kept; false: it is to be made now, and those before it are. Names:
/// absolute in the device, where they are known. `dirs`: the directory, as it was said and as it is called.
pub fn keeps(from: Option<&[u8]>, to: Option<&[u8]>, dirs: [&[u8]; 2]) -> bool {
    let below = |name: Option<&[u8]>| {
        let name = normal(name?)?;
        let is_below = |dir: &[u8]| {
            let rest = if dir == b"/" { Some(&name[..]) } else { name.strip_prefix(dir) };
            rest.is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
        };
        dirs.into_iter().any(is_below).then_some(name)
    };
    if !device::is_own_process() {
        return false;
    }
    let names = below(from).zip(below(to));
    with(|kept| match names {
        Some((from, to)) if !OVER.load(Ordering::Relaxed) && kept.take(&from, &to) => true,
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
    // A child that has its parent's memory: the parent makes them.
    if !device::is_own_process() {
        return;
    }
    let itself = name.is_some_and(<[u8]>::is_empty);
    let name = name.and_then(normal);
    let found = name.as_deref().and_then(|name| device::on(|d| d.statat(Handle::ROOT, name, true)).ok());
    let apart = match &name {
        // A link leads to whatever it says.
        Some(_) => !found.as_ref().is_some_and(|st| is(st, libc::S_IFLNK)),
        None => itself && !device::on(|d| d.stat(base)).is_ok_and(|st| is(&st, libc::S_IFDIR)),
    };
    with(|kept| {
        let theirs = |st: StatBody| kept.inodes.contains(&st.ino);
        if !apart || kept.is_old() || found.is_some_and(theirs) || name.is_some_and(|name| kept.concerns(&name)) {
            kept.make();
        }
    });
}

/// Makes those that are kept: before other processes are born or find this one's files, a directory is listed or
/// changed by a descriptor, something is destroyed, or a lock is asked for or given back.
pub fn make() {
    if any() && device::is_own_process() {
        with(Kept::make);
    }
}

/// Before a lock of a file is asked for or given back: others go by it.
pub fn before_lock(h: Handle) {
    if said().is_none() || !device::is_own_process() {
        return;
    }
    let of = device::on(|d| d.stat(h));
    with(|kept| {
        if let Ok(st) = of
            && !kept.locked.contains(&st.ino)
        {
            kept.locked.push(st.ino);
        }
        kept.make();
    });
}

/// Before a descriptor is closed: its file may have locks.
pub fn before_close(h: Handle) {
    if any() && device::is_own_process() {
        let of = device::on(|d| d.stat(h));
        with(|kept| {
            if of.map_or(true, |st| kept.locked.contains(&st.ino)) {
                kept.make();
            }
        });
    }
}

/// The same as part of a sync; what could not be made is its errno. EINTR in a signal's handler that came in the middle
/// of one.
pub fn sync() -> Res<()> {
    if said().is_none() || !device::is_own_process() {
        return Ok(());
    }
    let made = with(|kept| {
        kept.make();
        std::mem::take(&mut kept.failed)
    });
    match made {
        Some(0) => Ok(()),
        code => Err(code.unwrap_or(libc::EINTR)),
    }
}

/// As the process ends, or its files become the kernel's: from here on renames are made at once. (A child of vfork(2)
/// that ends has its parent's memory.)
pub fn end() {
    if device::is_own_process() {
        OVER.store(true, Ordering::Relaxed);
    }
    // Also where one is just being kept.
    if said().is_some() && device::is_own_process() {
        with(Kept::make);
    }
}

/// Before a fork: none is kept on either side, and what failed is told by the parent's next sync.
pub fn before_fork() -> Held {
    let turn = table::Once::enter(&TURN, &HOLDS_TURN);
    if turn.is_some() && any() {
        KEPT.lock().make();
    }
    turn
}

/// After it, in the child.
pub fn born(held: &Held) {
    if held.is_some() {
        KEPT.lock().failed = 0;
    }
}

/// An absolute name without empty parts and single dots; `None` where it has double ones, or ends in a slash or a dot.
fn normal(name: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::with_capacity(name.len());
    for part in name.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
        if part == b".." {
            return None;
        }
        all.push(b'/');
        all.extend_from_slice(part);
    }
    let ends = name.ends_with(b"/") || name.ends_with(b"/.");
    (name.first() == Some(&b'/') && !all.is_empty() && !ends).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_to_a_normal_form_or_to_none() {
        let seen = |name: &[u8]| normal(name);
        assert_eq!(seen(b"//a/.//b"), Some(b"/a/b".to_vec()));
        for odd in [&b"a"[..], b"/", b"", b"/a/", b"/a/../b", b"/a/.", b"/a/.."] {
            assert_eq!(seen(odd), None, "{odd:?}");
        }
    }
}
