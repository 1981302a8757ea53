//! The set of inodes that a command holds, each in its mode, and how it is put together before it runs: `lockset` says
//! of which.
//!
//! The first entry is the primary inode (who is charged). A rename of a directory between directories also holds
//! `RENAME_LOCK`, a number no inode has: the lock that keeps two renames from closing a loop of directories is one
//! more queue of tickets.
//! When the walk fails, the set is the last directory it reached: the command queues behind whatever is changing that
//! directory and finds out under the set.

use super::perm::{self, W};
use super::resolve::{self, Found, Last, Trail, View, Walker};
use super::strides::{Strides, WalkKey, key_of};
use super::{Cred, SessionView};
use smallvec::SmallVec;
use std::borrow::Borrow;
use std::cell::Cell;
use weldfs_ciscops::limits::INODE_SET_MAX;
use weldfs_ciscops::{Access, Errno, Handle, InodeNo, OpenFlags};
use weldfs_store::Store;
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::{Dirent, InodeRec};

/// The pseudo inode whose exclusive ticket is the rename lock.
pub(crate) const RENAME_LOCK: InodeNo = InodeNo(0);

/// How an inode is held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hold {
    /// Compatible with other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// What a command has found that it may change, though it did not seem so.
pub type Insisted = SmallVec<[InodeNo; 2]>;

/// The inodes a command holds, each once, at most 16.
#[derive(Clone, Debug, Default)]
pub struct InodeSet {
    entries: SmallVec<[(InodeNo, Hold); 4]>,
    file: Option<InodeNo>,
    /// What a change would hold alone, were the caller allowed to make it: the command finds out that it is not with a
    /// shared hold. One that would change something of it after all starts over, and insists on that.
    withheld: SmallVec<[InodeNo; 2]>,
    insisted: Insisted,
    walked: Option<Walked>,
}

/// The walk that put a set together: the command need not walk again under the set if nothing has changed meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Walked {
    /// What has been applied to the store before the walk began (see [`Store::generation`]).
    generation: u64,
    key: WalkKey,
    /// Where it led.
    pub found: Box<Found>,
    /// How many components it looked up.
    pub components: u32,
    /// The directory in which a name was looked for and not found, and the cookie under which it can be added.
    pub slot: (InodeNo, u64),
}

impl InodeSet {
    /// Holds nothing.
    pub fn new() -> InodeSet {
        InodeSet::default()
    }

    /// Adds an inode, or raises its mode.
    pub fn add(&mut self, ino: InodeNo, hold: Hold) {
        match self.entries.iter_mut().find(|(i, _)| *i == ino) {
            Some((_, h)) => *h = (*h).max(hold),
            None => self.entries.push((ino, hold)),
        }
    }

    /// Adds an inode that is held alone for a change, if the caller is `allowed` to make it.
    fn add_alone(&mut self, ino: InodeNo, allowed: bool) {
        if allowed || self.insisted.contains(&ino) {
            return self.add(ino, Hold::Exclusive);
        }
        self.add(ino, Hold::Shared);
        if !self.withheld.contains(&ino) {
            self.withheld.push(ino);
        }
    }

    /// Whether the set holds `ino` at least as `hold`, or as much of it as it takes to refuse what the command asks.
    #[inline]
    pub fn covers(&self, ino: InodeNo, hold: Hold) -> bool {
        self.entries.iter().any(|(i, h)| *i == ino && *h >= hold) || self.withheld.contains(&ino)
    }

    /// Whether something is not held as a change would take.
    pub(crate) fn withholds(&self) -> bool {
        !self.withheld.is_empty()
    }

    /// Whether this inode may be changed under the set.
    pub(super) fn may_change(&self, ino: InodeNo) -> bool {
        self.withheld.is_empty() || !self.withheld.contains(&ino) || self.entries.contains(&(ino, Hold::Exclusive))
    }

    /// What was held alone without looking at permissions.
    pub fn insisted(&self) -> &[InodeNo] {
        &self.insisted
    }

    /// Adds what a program turned out to need beside its set: alone only if the caller may change something of it. The
    /// command may have been led there by names of its own, and what is held for it is held while it computes.
    pub fn learn(&mut self, (ino, hold): (InodeNo, Hold), store: &Store, cred: &Cred) {
        match hold {
            Hold::Shared => self.add(ino, hold),
            // Where its record is not at hand, the command finds out what it may do, as where it may not.
            Hold::Exclusive => {
                let allowed = matches!(store.inode(ino), Ok(Some(rec)) if may_change(&rec, cred));
                self.add_alone(ino, allowed);
            }
        }
    }

    /// How much is known of what must be held: grows with each inode, and with each that is to be held alone.
    pub fn weight(&self) -> usize {
        let alone = self.entries.iter().filter(|(_, hold)| *hold == Hold::Exclusive).count();
        self.entries.len() + alone + self.withheld.len()
    }

    /// The entries; the first is the primary inode.
    pub fn entries(&self) -> &[(InodeNo, Hold)] {
        &self.entries
    }

    /// The existing inode that the command is about, if the walk found one.
    pub fn file(&self) -> Option<InodeNo> {
        self.file
    }

    /// Holds all that `other` does as well; what that withholds it does not hold alone, either, unless it insists.
    pub fn join(&mut self, other: &InodeSet) {
        other.entries.iter().for_each(|(ino, hold)| self.add(*ino, *hold));
        other.withheld.iter().for_each(|ino| self.add_alone(*ino, false));
    }

    /// E2BIG when it is larger than a set may be.
    pub fn bounded(&self) -> FsResult<()> {
        let inodes = self.entries.iter().filter(|(ino, _)| *ino != RENAME_LOCK).count();
        if inodes > INODE_SET_MAX { Err(Errno::TOOBIG.into()) } else { Ok(()) }
    }

    /// Whether nothing need be held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The walk that was made to put the set together, if it was this one and would end where it did. Under the set:
    /// who changed an inode of it before has been heard of.
    pub(super) fn walked(&self, store: &Store, start: InodeNo, path: &[u8], last: Last) -> Option<&Walked> {
        let same = |w: &&Walked| w.key == key_of(start, path, last);
        self.walked.as_ref().filter(same).filter(|w| w.generation == store.generation())
    }
}

/// The store as a walk before the set sees it, which notes what a later step will want to know.
struct Ahead<'a> {
    store: &'a Store,
    slot: Cell<(InodeNo, u64)>,
}

impl View for Ahead<'_> {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        self.store.inode(ino)
    }

    fn inode_into(&self, ino: InodeNo, rec: &mut InodeRec) -> FsResult<bool> {
        self.store.inode_into(ino, rec)
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        Ok(match self.store.dirent_or_slot(dir, name)? {
            Ok(entry) => Some(entry),
            Err(slot) => {
                self.slot.set((dir, slot));
                None
            }
        })
    }
}

impl View for Store {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        Store::inode(self, ino)
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        Store::dirent(self, dir, name)
    }
}

/// Puts a set together.
pub(super) struct Resolver<'a> {
    store: &'a Store,
    session: &'a dyn SessionView,
    pub(super) set: InodeSet,
    strides: &'a mut Strides,
}

impl<'a> Resolver<'a> {
    /// Of an empty set that insists on these.
    pub(super) fn new(
        store: &'a Store,
        session: &'a dyn SessionView,
        insist: &[InodeNo],
        strides: &'a mut Strides,
    ) -> Resolver<'a> {
        Resolver { store, session, set: InodeSet { insisted: insist.into(), ..InodeSet::new() }, strides }
    }
}

impl Resolver<'_> {
    /// Adds the inode behind a handle.
    pub(super) fn handle(&mut self, h: Handle, hold: Hold) -> FsResult<()> {
        let ino = resolve::base_inode(self.session, h)?;
        self.set.add(ino, hold);
        self.set.file = Some(ino);
        Ok(())
    }

    /// The same for a change of its content: alone, if the grant of the handle allows one.
    pub(super) fn written(&mut self, h: Handle) -> FsResult<()> {
        let ino = resolve::base_inode(self.session, h)?;
        let granted = self.session.handle(h).is_ok_and(|open| open.flags.access().contains(Access::WRITE));
        self.set.add_alone(ino, granted);
        self.set.file = Some(ino);
        Ok(())
    }

    /// Adds what a path names as `hold`, and its directory as `dir`; after a failed walk, where it ended.
    pub(super) fn path(
        &mut self,
        base: Handle,
        path: &[u8],
        last: Last,
        dir: Hold,
        hold: Hold,
    ) -> FsResult<Option<&Found>> {
        let start = resolve::start_inode(self.session, base, path)?;
        let (generation, mut trail) = (self.strides.generation(self.store), Trail::default());
        let view = Ahead { store: self.store, slot: Cell::new((InodeNo(0), 0)) };
        match self.strides.walk(Walker::of(self.session), &view, (start, path, last), &mut trail) {
            Ok(found) => {
                let cred = self.session.cred();
                match dir {
                    Hold::Exclusive => self.set.add_alone(found.dir.ino, may_rename(&found, cred)),
                    Hold::Shared => self.set.add(found.dir.ino, dir),
                }
                match (&found.rec, hold, dir) {
                    (None, ..) => {}
                    (Some(rec), Hold::Shared, _) => self.set.add(rec.ino, hold),
                    (Some(rec), _, Hold::Exclusive) => self.set.add_alone(rec.ino, may_rename(&found, cred)),
                    (Some(rec), ..) => self.set.add_alone(rec.ino, may_change(rec, cred)),
                }
                self.set.file = found.rec.as_ref().map(|r| r.ino);
                let (key, components, slot) = (key_of(start, path, last), self.strides.last_walk(), view.slot.get());
                let walked = Walked { generation, key, found, components, slot };
                Ok(Some(&self.set.walked.insert(walked).found))
            }
            Err(FsError::Errno(_)) => {
                if let Some(dir) = trail.dir {
                    self.set.add(dir, Hold::Shared);
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// An object named by a handle alone or by a path from it.
    pub(super) fn object(&mut self, base: Handle, path: &[u8], nofollow: bool, hold: Hold) -> FsResult<()> {
        if path.is_empty() {
            if hold == Hold::Exclusive {
                let ino = resolve::base_inode(self.session, base)?;
                let cred = self.session.cred();
                self.set.add_alone(ino, self.store.inode(ino)?.is_some_and(|rec| may_change(&rec, cred)));
                self.set.file = Some(ino);
                return Ok(());
            }
            return self.handle(base, hold);
        }
        let last = if nofollow { Last::NoFollow } else { Last::Follow };
        self.path(base, path, last, Hold::Shared, hold).map(drop)
    }

    pub(super) fn open(&mut self, base: Handle, path: &[u8], flags: OpenFlags, file: Hold) -> FsResult<()> {
        let excl = flags.contains(OpenFlags::CREATE | OpenFlags::EXCL);
        let last = if excl || flags.contains(OpenFlags::NOFOLLOW) { Last::NoFollow } else { Last::Follow };
        let file = if flags.contains(OpenFlags::TRUNC) { Hold::Exclusive } else { file };
        let cred = self.session.cred();
        let missing = self.path(base, path, last, Hold::Shared, file)?.filter(|f| f.rec.is_none());
        if let Some((dir, allowed)) = missing.map(|f| (f.dir.ino, perm::may_create(&f.dir, cred).is_ok()))
            && flags.contains(OpenFlags::CREATE)
            && !flags.contains(OpenFlags::TMPFILE)
        {
            self.set.add_alone(dir, allowed);
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (Handle, &[u8]), to: (Handle, &[u8])) -> FsResult<()> {
        let mut found: SmallVec<[Found; 2]> = SmallVec::new();
        for (base, path) in [from, to] {
            found.extend(self.path(base, path, Last::Name, Hold::Exclusive, Hold::Exclusive)?.cloned());
        }
        if needs_rename_lock(&found) {
            let withheld = |f: &Found| {
                self.set.withheld.contains(&f.dir.ino)
                    || f.rec.as_ref().is_some_and(|r| self.set.withheld.contains(&r.ino))
            };
            let allowed = !found.iter().any(withheld);
            self.set.add_alone(RENAME_LOCK, allowed);
        }
        Ok(())
    }
}

/// Whether the name may come, go or be given to another file.
fn may_rename(found: &Found, cred: &Cred) -> bool {
    match &found.rec {
        Some(rec) => perm::may_delete(&found.dir, rec, cred, rec.is_dir()).is_ok(),
        None => perm::may_create(&found.dir, cred).is_ok(),
    }
}

/// Whether there may be a change of the inode that the caller may make.
fn may_change(rec: &InodeRec, cred: &Cred) -> bool {
    perm::is_owner(rec, cred) || perm::allowed(rec, cred, W)
}

/// Whether a rename between these places moves a directory to another directory.
pub(super) fn needs_rename_lock(places: &[impl Borrow<Found>]) -> bool {
    let moves_dir = places.iter().any(|f| f.borrow().rec.as_ref().is_some_and(InodeRec::is_dir));
    moves_dir && places.windows(2).any(|w| w[0].borrow().dir.ino != w[1].borrow().dir.ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cred;
    use crate::Txn;
    use crate::driver::Direct;
    use crate::resolve_set;
    use std::sync::Arc;
    use weldfs_ciscops::{At, Command, Op, Paths};
    use weldfs_ciscops::{PoolRange, RenameFlags};
    use weldfs_journal::{Clock, Medium, SeededRandom, SystemClock};
    use weldfs_media::RamMedium;
    use weldfs_store::MountOptions;
    use weldfs_store::mount::{MkfsOptions, format};

    fn direct() -> Direct {
        let medium: Arc<dyn Medium> = Arc::new(RamMedium::new(16 << 20));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        format(&medium, &MkfsOptions::default(), &*clock, &SeededRandom::new(1)).expect("memory takes a file system");
        let options = MountOptions::new(clock, Arc::new(SeededRandom::new(2)));
        let (store, _) = crate::mount(medium, options).expect("what was just formatted mounts");
        Direct::new(store, 1 << 16)
    }

    #[test]
    fn what_the_caller_may_not_change_is_not_held_alone() {
        let mut device = direct();
        let base = Handle::ROOT;
        let names = [&b"file"[..], b"dir", b"dir/made", b"dir/other"];
        let [file, dir, made, other] = [0, 1, 2, 3].map(|i| device.put(64 * i as u32, names[i]));
        let create = |path| {
            let flags = OpenFlags::WRITE | OpenFlags::CREATE;
            Op::open(base, path, flags, 0o644)
        };
        for op in [create(file), Op::Mkdir { base, path: dir, mode: 0o755 }, create(made)] {
            assert_eq!(device.run(op).status, 0);
        }
        let store = device.store().clone();
        let data = device.put(512, b"bytes");
        let changes = [
            create(other),
            Op::Mkdir { base, path: other, mode: 0o700 },
            Op::Unlink { base, path: made },
            Op::Rename { from_base: base, from: made, to_base: base, to: other, flags: RenameFlags::empty() },
            Op::OpenWriteClose { base, path: file, flags: OpenFlags::WRITE, mode: 0, at: At::Offset(0), src: data },
        ];
        let holds = |device: &Direct, op: &Op, insist: &[InodeNo]| {
            let cmd = Command::new(1, *op);
            let paths = Paths::fetch(&cmd, device.pool()).expect("paths");
            resolve_set(&store, &cmd, &paths, device.view(), insist, &mut Strides::default()).expect("a set")
        };
        let alone = |set: &InodeSet| set.entries().iter().any(|(_, hold)| *hold == Hold::Exclusive);
        for op in &changes {
            device.set_cred(Cred::root());
            assert!(alone(&holds(&device, op, &[])), "{op:?}");
            device.set_cred(Cred::new(7, 7));
            let set = holds(&device, op, &[]);
            assert!(!alone(&set) && set.withholds(), "{op:?}: {set:?}");
            let others: Vec<InodeNo> = (1000..1010).map(InodeNo).collect();
            assert!(!alone(&holds(&device, op, &others)), "{op:?}: it insists on something else");
            assert!(alone(&holds(&device, op, &set.withheld)), "{op:?}");
            assert_eq!(device.run(*op).status, Errno::ACCES.0, "{op:?}");
        }
    }

    /// A program's own names may lead to what is none of its caller's.
    #[test]
    fn what_a_program_learns_is_held_alone_only_if_its_caller_may_change_it() {
        let mut device = direct();
        let base = Handle::ROOT;
        let dir = device.put(0, b"dir");
        assert_eq!(device.run(Op::Mkdir { base, path: dir, mode: 0o755 }).status, 0);
        let store = device.store().clone();
        let ino = store.dirent(InodeNo::ROOT, b"dir").expect("whole").expect("there").ino;
        let held = |set: &InodeSet| set.entries().iter().find(|(i, _)| *i == ino).map(|(_, hold)| *hold);
        let learned = |cred: &Cred, insist: &[InodeNo]| {
            let mut learned = InodeSet::new();
            learned.learn((ino, Hold::Exclusive), &store, cred);
            let mut set = InodeSet { insisted: insist.into(), ..InodeSet::new() };
            set.join(&learned);
            assert!(set.covers(ino, Hold::Exclusive), "the command comes to the place where it is refused");
            (held(&set), set.may_change(ino))
        };
        assert_eq!(learned(&Cred::root(), &[]), (Some(Hold::Exclusive), true));
        assert_eq!(learned(&Cred::new(7, 7), &[]), (Some(Hold::Shared), false));
        assert_eq!(learned(&Cred::new(7, 7), &[InodeNo(99)]), (Some(Hold::Shared), false));
        assert_eq!(learned(&Cred::new(7, 7), &[ino]), (Some(Hold::Exclusive), true), "it found out that it may");
    }

    #[test]
    fn a_walk_before_the_set_counts_until_a_record_is_applied() {
        let mut device = direct();
        let (base, out) = (Handle::ROOT, PoolRange::new(4096, 100));
        let (name, other) = (device.put(0, b"name"), device.put(64, b"other"));
        let make = |path| Op::open(base, path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644);
        assert_eq!(device.run(make(name)).status, 0);
        let store = device.store().clone();
        let command = |path| Command::new(1, Op::OpenReadClose { base, path, flags: OpenFlags::READ, offset: 0, out });
        let paths = |path| Paths::fetch(&command(path), device.pool()).expect("a path");
        let (here, missing) = (paths(name), paths(other));
        let resolve = |path, paths| {
            resolve_set(&store, &command(path), paths, device.view(), &[], &mut Strides::default()).expect("a set")
        };
        let (set, none) = (resolve(name, &here), resolve(other, &missing));
        let walked = |set: &InodeSet, path: &[u8], last| set.walked(&store, resolve::ROOT, path, last).is_some();
        assert!(walked(&set, &here.a, Last::Follow) && walked(&none, &missing.a, Last::Follow));
        assert!(!walked(&set, &here.a, Last::Name), "another kind of walk");
        assert!(!walked(&set, &here.a.clone(), Last::Follow), "another path");
        assert!(set.walked(&store, InodeNo(2), &here.a, Last::Follow).is_none(), "from elsewhere");
        // What was there goes, and what was not there comes, while the command waits for its place.
        assert_eq!(device.run(Op::Unlink { base, path: name }).status, 0);
        assert_eq!(device.run(make(other)).status, 0);
        assert!(!walked(&set, &here.a, Last::Follow) && !walked(&none, &missing.a, Last::Follow));
        let found = |set, paths: &Paths| {
            let mut txn = Txn::new(&store, device.view(), set, None, 0, (0, 0));
            txn.walk(base, &paths.a, Last::Follow).expect("a directory").rec.is_some()
        };
        assert_eq!((found(&set, &here), found(&none, &missing)), (false, true));
    }
}
