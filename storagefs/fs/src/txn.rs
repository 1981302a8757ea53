//! One command's transaction: what it has staged, and how that becomes a plan.
//!
//! The synchronous cores (in `namespace`, `attr`, `xattr`, `data`, `falloc`) read first and stage afterwards, so that a
//! core which meets a cold page has staged nothing and can simply be called again once the page is there.

use super::inode_set::{Hold, InodeSet, Insisted, RENAME_LOCK, Walked};
use super::perm;
use super::resolve::{self, Last, ROOT, Reached, Trail, View, Walker};
use super::stage::{Filling, StagedFile};
use super::steps::Steps;
use super::strides::Strides;
use super::{OpenFile, SessionView, Slicer};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::{Errno, Handle, InodeNo, Kept, OpenFlags, Outcome, Quiet, Taken};
use weldfs_journal::Medium;
use weldfs_store::alloc::Run;
use weldfs_store::effect::{AttrDelta, Effect, Effects, attr};
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::micro::Begin;
use weldfs_store::record::{Dirent, InodeRec, Time};
use weldfs_store::{MicroTxn, Plan, Store};

/// What one command cost; the device sums them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounters {
    /// Times a run of payload bytes was copied by the processor, pool to medium and medium to pool included.
    pub payload_copies: u32,
    /// Times names, attributes or entry streams were copied to or from the pool.
    pub meta_copies: u32,
    /// Payload bytes taken from the client.
    pub bytes_in: u64,
    /// Payload bytes given to the client.
    pub bytes_out: u64,
    /// Data blocks written to the medium.
    pub blocks_written: u32,
    /// Data blocks read from the medium.
    pub blocks_read: u32,
    /// Byte ranges inline in the record.
    pub patches: u32,
}

impl std::ops::AddAssign for OpCounters {
    fn add_assign(&mut self, o: OpCounters) {
        self.payload_copies += o.payload_copies;
        self.meta_copies += o.meta_copies;
        self.bytes_in += o.bytes_in;
        self.bytes_out += o.bytes_out;
        self.blocks_written += o.blocks_written;
        self.blocks_read += o.blocks_read;
        self.patches += o.patches;
    }
}

/// A file that this command opened and that gets a handle: the device makes the description valid after the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedInfo {
    /// The handle set aside by [`super::HandleTable::reserve_handle`].
    pub handle: Handle,
    /// The inode. The device takes `Store::open_ref` on it before it gives the inode set back.
    pub ino: InodeNo,
    /// Grant and status flags.
    pub flags: OpenFlags,
    /// Placeholder descriptor to bind, 0 for none.
    pub placeholder: u32,
    /// It is a virtual file: there is more to open.
    pub is_virtual: bool,
}

/// A transaction that is over.
pub struct Finished<'a> {
    /// The record to commit; `None` when nothing changes.
    pub plan: Option<Plan<'a>>,
    /// A description to make.
    pub opened: Option<OpenedInfo>,
    /// The transaction of several records that the plan carries the reservations for.
    pub micro: Option<Box<MicroTxn>>,
    /// A description's new offset.
    pub cursor: Option<(Handle, u64)>,
    /// What it cost.
    pub counters: OpCounters,
}

/// An inode as this command would leave it.
pub(super) struct StagedInode {
    pub rec: InodeRec,
    /// Fields changed (see [`attr`]).
    pub mask: u16,
    pub created: bool,
    /// It is created in an earlier group of effects: what changes from here on are attributes.
    pub emitted: bool,
}

impl StagedInode {
    /// Content changed `now`: times, and the privilege bits when an `ordinary` user did it.
    pub fn modified(&mut self, now: Time, ordinary: bool) {
        (self.rec.mtime, self.rec.ctime) = (now, now);
        self.mask |= attr::MTIME | attr::CTIME;
        if ordinary && self.rec.mode & (perm::ISUID | perm::ISGID) != 0 {
            self.rec.mode = perm::without_privileges(self.rec.mode);
            self.mask |= attr::MODE;
        }
    }
}

/// A name as this command would leave it.
pub(super) struct StagedName {
    pub dir: InodeNo,
    pub name: Arc<[u8]>,
    pub entry: Option<Dirent>,
}

/// One command's transaction over the store. Not thread-safe; made, run and finished under its inode set.
pub struct Txn<'a> {
    pub(super) store: &'a Store,
    pub(super) session: &'a dyn SessionView,
    pub(super) set: &'a InodeSet,
    pub(super) now: Time,
    pub(super) plan: Option<Plan<'a>>,
    pub(super) inodes: SmallVec<[StagedInode; 2]>,
    pub(super) names: SmallVec<[StagedName; 2]>,
    pub(super) files: SmallVec<[StagedFile; 1]>,
    /// Effects on names, attributes and orphans, in order.
    pub(super) name_effects: Effects,
    /// Effects on content that are final when staged (cuts, zeros, reservations).
    pub(super) data_effects: Effects,
    /// Blocks allocated for a reservation, not mapped yet.
    pub(super) spare: SmallVec<[Run; 2]>,
    /// Blocks allocated for content that is composed next.
    pub(super) composed: Option<Run>,
    pub(super) payload: u64,
    /// Bytes that the command may write at most.
    pub(super) payload_max: u64,
    /// The command has many steps, and may cut what it wrote: content that is settled stays to be read, and what is
    /// written over it later is settled again, in other blocks.
    pub(super) many: bool,
    /// The inode that was not held when it should have been: its number and mode, plus one; 0 for none.
    lacking: AtomicU64,
    /// Where the name that was looked for last and not found can be added: the directory, and the cookie.
    slot_dir: AtomicU64,
    slot: AtomicU64,
    /// What of long work is done.
    pub(super) strides: Strides,
    /// A run of blocks that is being filled piece by piece.
    pub(super) filling: Option<Filling>,
    pub(super) slicer: Option<&'a dyn Slicer>,
    /// Why the command needs nothing of what it holds just now, and whether it has lent that.
    pub(super) quiet: Option<Quiet>,
    pub(super) lent: bool,
    /// The state of the program before it was started over, or is about to be; and whether that was of no use.
    pub(super) kept: Option<Kept>,
    pub(super) stale: bool,
    /// The payload, where a slot has summed it up before the command began.
    pub(super) taken: Option<Taken>,
    pub(super) inline: bool,
    /// Payload bytes of the command.
    pub(super) asked: u64,
    /// A command that may commit in steps, tried as one record.
    pub(super) one_record: bool,
    pub(super) counters: OpCounters,
    /// In a MicroTx: what its micro-ops have done so far.
    pub(super) steps: Option<Box<Steps>>,
    opened: Option<OpenedInfo>,
    /// The file opened last is a virtual one.
    pub(super) opens_virtual: bool,
    cursor: Option<(Handle, u64)>,
    abort: Option<FsError>,
    /// In recovery: what is run again.
    pub(super) again: Option<&'a Begin>,
    trouble: Option<FsError>,
    /// The first path of the command as the client wrote it; empty for commands on handles.
    path: &'a [u8],
}

impl<'a> Txn<'a> {
    /// A transaction of `session` that holds `set`, at time `now`. `plan` carries the reservations made for the command
    /// with `super::plan_need` (before the tickets: none waits for room under them); a command that changes nothing
    /// has none.
    /// `payload_bytes` is `payload_bytes` of the command: it decides what is inline in the record.
    pub fn new(
        store: &'a Store,
        session: &'a dyn SessionView,
        set: &'a InodeSet,
        plan: Option<Plan<'a>>,
        payload_bytes: u64,
        now: (i64, u32),
    ) -> Txn<'a> {
        Txn {
            store,
            session,
            set,
            now: Time { sec: now.0, nsec: now.1 },
            plan,
            inodes: SmallVec::new(),
            names: SmallVec::new(),
            files: SmallVec::new(),
            name_effects: Effects::new(),
            data_effects: Effects::new(),
            spare: SmallVec::new(),
            composed: None,
            payload: 0,
            payload_max: ATOMIC_WRITE_MAX.into(),
            many: false,
            lacking: AtomicU64::new(0),
            slot_dir: AtomicU64::new(0),
            slot: AtomicU64::new(0),
            strides: Strides::default(),
            filling: None,
            slicer: None,
            quiet: None,
            lent: false,
            kept: None,
            stale: false,
            taken: None,
            inline: payload_bytes <= store.inline_max() as u64,
            asked: payload_bytes,
            one_record: false,
            counters: OpCounters::default(),
            steps: None,
            opened: None,
            opens_virtual: false,
            cursor: None,
            abort: None,
            again: None,
            trouble: None,
            path: b"",
        }
    }

    /// Makes way for others where the slicer says so.
    pub fn in_slices(&mut self, slicer: &'a dyn Slicer) {
        self.slicer = Some(slicer);
    }

    /// The payload, which a slot has summed up.
    pub fn with_taken(&mut self, taken: Option<&Taken>) {
        self.taken = taken.cloned();
    }

    /// The state of the program before it was started over.
    pub fn with_kept(&mut self, kept: Option<Kept>) {
        self.kept = kept;
    }

    /// The state that it kept did not stand: it is to be started over without.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Its state, when it is to be started over.
    pub fn take_kept(&mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// Holds again what was lent, before anything of it is looked at.
    #[cold]
    pub(super) async fn take_back(&mut self) -> Result<(), Errno> {
        (self.lent, self.quiet) = (false, None);
        let Some(slicer) = self.slicer else { return Ok(()) };
        slicer.take_back().await.map_err(|e| self.fail(e))
    }

    /// What the client called the file, for the log.
    pub fn about(&mut self, path: &'a [u8]) {
        self.path = path;
    }

    /// Under which cookie the name that was looked for last in this directory can be added, if it was not there.
    pub(super) fn known_slot(&self, dir: InodeNo) -> Option<u64> {
        let slot = self.slot.load(Relaxed);
        (slot != 0 && self.slot_dir.load(Relaxed) == dir.0).then_some(slot)
    }

    pub(super) fn medium(&self) -> &'a dyn Medium {
        &**self.store.medium()
    }

    /// Turns a failure into the caller's errno, and remembers those that mean "again".
    pub(super) fn fail(&mut self, e: FsError) -> Errno {
        let errno = Errno::from(&e);
        match e {
            FsError::Errno(_) => {}
            FsError::SetChanged | FsError::Wait(_) => self.abort = Some(e),
            FsError::Miss(_) | FsError::Turn => {}
            other if self.again.is_some() => self.trouble = Some(other),
            other if self.store.damage().note_error(&other, "command", Some(self.path)) => {}
            other if self.store.damage().may_log() => tracing::error!(error = %other, "a command fails"),
            _ => {}
        }
        errno
    }

    /// Whether it is to be started over, for a reason that is no answer of the command's.
    pub(super) fn aborted(&self) -> bool {
        self.abort.is_some()
    }

    /// In recovery: a failure that is no answer of the command's, but keeps it from being run.
    pub(crate) fn trouble(&mut self) -> Option<FsError> {
        self.trouble.take()
    }

    /// Insists that the set holds an inode; a new inode needs no set.
    pub(super) fn held(&self, ino: InodeNo, hold: Hold) -> FsResult<()> {
        let own = || self.inodes.iter().any(|s| s.created && s.rec.ino == ino);
        if self.set.covers(ino, hold) || own() {
            return Ok(());
        }
        self.lacking.store((ino.0 << 1 | u64::from(hold == Hold::Exclusive)) + 1, Relaxed);
        Err(FsError::SetChanged)
    }

    /// What the set lacked, after `SetChanged`: a program starts over with it.
    pub fn lacked(&self) -> Option<(InodeNo, Hold)> {
        let bits = self.lacking.load(Relaxed).checked_sub(1)?;
        Some((InodeNo(bits >> 1), if bits & 1 == 1 { Hold::Exclusive } else { Hold::Shared }))
    }

    pub(super) fn walker(&self) -> Walker<'a> {
        Walker::of(self.session)
    }

    pub(super) fn walk(&mut self, base: Handle, path: &[u8], last: Last) -> FsResult<Reached<'a>> {
        let start = resolve::start_inode(self.session, base, path)?;
        if let Some(walked) = self.walked(start, path, last) {
            self.strides.count(walked.components)?;
            return Ok(Reached::Before(&walked.found));
        }
        let mut strides = std::mem::take(&mut self.strides);
        let found = strides.walk(self.walker(), &*self, (start, path, last), &mut Trail::default());
        self.strides = strides;
        Ok(Reached::Now(found?))
    }

    /// The walk before the set, if this one would end where it did: nothing has changed, and nothing is staged.
    fn walked(&self, start: InodeNo, path: &[u8], last: Last) -> Option<&'a Walked> {
        let untouched = self.inodes.is_empty() && self.names.is_empty() && self.files.is_empty();
        let walked = self.set.walked(self.store, start, path, last).filter(|_| untouched)?;
        self.note_slot(walked.slot.0, walked.slot.1);
        Some(walked)
    }

    fn note_slot(&self, dir: InodeNo, slot: u64) {
        self.slot_dir.store(dir.0, Relaxed);
        self.slot.store(slot, Relaxed);
    }

    /// The object a handle (empty path) or a path names, held as wanted.
    pub(super) fn object(&mut self, base: Handle, path: &[u8], nofollow: bool, hold: Hold) -> FsResult<InodeRec> {
        let ino = resolve::start_inode(self.session, base, path)?;
        let rec = if path.is_empty() {
            resolve::live(self, ino)?
        } else {
            let last = if nofollow { Last::NoFollow } else { Last::Follow };
            let found = self.walk(base, path, last)?;
            let rec = resolve::named(&found)?.clone();
            self.held(found.dir.ino, Hold::Shared)?;
            rec
        };
        self.held(rec.ino, hold)?;
        Ok(rec)
    }

    pub(super) fn open_file(&self, h: Handle) -> FsResult<OpenFile> {
        if h == Handle::ROOT {
            let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
            return Ok(OpenFile { ino: ROOT, flags, offset: 0 });
        }
        let mut file = self.session.handle(h)?;
        if let Some((moved, offset)) = self.cursor
            && moved == h
        {
            file.offset = offset;
        }
        Ok(file)
    }

    pub(super) fn set_offset(&mut self, h: Handle, offset: u64) {
        self.cursor = Some((h, offset));
    }

    pub(super) fn set_opened(&mut self, info: OpenedInfo) {
        self.opened = Some(info);
    }

    /// Looks at an inode's record where it lies, as this command would leave it.
    pub(super) fn look<T>(&self, ino: InodeNo, look: impl FnOnce(&InodeRec) -> T) -> FsResult<T> {
        if let Some(s) = self.inodes.iter().find(|s| s.rec.ino == ino) {
            return Ok(look(&s.rec));
        }
        self.store.look_at(ino, look)
    }

    /// The staged copy of an inode, for changing, from the store on the first change.
    pub(super) fn staged_inode(&mut self, ino: InodeNo) -> FsResult<&mut StagedInode> {
        let at = match self.inodes.iter().position(|s| s.rec.ino == ino) {
            Some(at) => at,
            None => {
                let rec = self.store.inode(ino)?.ok_or(Errno::NOENT)?;
                self.inodes.push(StagedInode { rec, mask: 0, created: false, emitted: false });
                self.inodes.len() - 1
            }
        };
        Ok(&mut self.inodes[at])
    }

    /// The staged copy of an inode, for changing; `rec` is what the command read.
    pub(super) fn edit(&mut self, rec: &InodeRec) -> &mut StagedInode {
        let at = self.inodes.iter().position(|s| s.rec.ino == rec.ino).unwrap_or_else(|| {
            self.inodes.push(StagedInode { rec: rec.clone(), mask: 0, created: false, emitted: false });
            self.inodes.len() - 1
        });
        &mut self.inodes[at]
    }

    /// Changes fields of an inode; `mask` names them.
    pub(super) fn change(&mut self, rec: &InodeRec, mask: u16, f: impl FnOnce(&mut InodeRec)) {
        let s = self.edit(rec);
        s.mask |= mask;
        f(&mut s.rec);
    }

    /// Content or entries of an inode changed now.
    pub(super) fn touch(&mut self, rec: &InodeRec) {
        let now = self.now;
        self.change(rec, attr::MTIME | attr::CTIME, |r| (r.mtime, r.ctime) = (now, now));
    }

    /// Attributes of an inode changed now.
    pub(super) fn touch_attrs(&mut self, rec: &InodeRec) {
        let now = self.now;
        self.change(rec, attr::CTIME, |r| r.ctime = now);
    }

    /// The plan; a command that stages anything must have one.
    pub(super) fn plan_mut(&mut self) -> FsResult<&mut Plan<'a>> {
        self.plan.as_mut().ok_or(FsError::SetChanged)
    }

    /// Ends the transaction after `interp::run`, which ended with `outcome`. If the command failed, everything staged
    /// goes; in a MicroTx, what the failed micro-op staged.
    ///
    /// # Errors
    /// `SetChanged`, `Wait`: nothing was done, the device starts the command over. Others are final. A command that was
    /// given no plan because its reservation failed, and that turns out to need one, is `SetChanged` too: then the
    /// errno of the reservation is the answer.
    pub async fn finish(&mut self, outcome: &Outcome) -> FsResult<Finished<'a>> {
        // What a program did before it failed may stay.
        if self.lent && self.steps.is_some() && self.take_back().await.is_err() && !self.aborted() {
            return Err(Errno::IO.into());
        }
        if let Some(e) = self.abort.take() {
            return Err(e);
        }
        if self.exceeds_set() && self.steps.is_some() {
            return Err(FsError::SetChanged);
        }
        if let Some(steps) = self.steps.take() {
            let (plan, micro) = self.conclude_steps(*steps, outcome)?;
            return Ok(Finished { plan, opened: None, micro, cursor: None, counters: self.counters });
        }
        if !outcome.is_ok() {
            return Ok(Finished { plan: None, opened: None, micro: None, cursor: None, counters: self.counters });
        }
        while let Err(e) = self.settle(false) {
            match e {
                FsError::Miss(m) => self.session.fetch(m).await?,
                e => return Err(e),
            }
        }
        if self.plan.is_none() && self.stages() || self.exceeds_set() {
            return Err(FsError::SetChanged);
        }
        let plan = self.take_plan();
        let opened = self.opened.take();
        Ok(Finished { plan, opened, micro: None, cursor: self.cursor, counters: self.counters })
    }

    /// Whether it would change what it holds as one that is refused does.
    fn exceeds_set(&self) -> bool {
        !self.exceeded().is_empty()
    }

    /// What it would change, and may, though the set holds it as one that is refused does.
    pub fn exceeded(&self) -> Insisted {
        if !self.set.withholds() || self.inodes.is_empty() {
            return Insisted::new();
        }
        let changed = self.inodes.iter().map(|s| s.rec.ino).chain([RENAME_LOCK]);
        changed.filter(|ino| !self.set.may_change(*ino)).collect()
    }

    /// Whether the command would change something.
    fn stages(&self) -> bool {
        let inodes = self.inodes.iter().any(|s| s.created || s.mask != 0);
        inodes || !self.name_effects.is_empty() || !self.data_effects.is_empty()
    }

    fn take_plan(&mut self) -> Option<Plan<'a>> {
        let mut plan = self.plan.take()?;
        let mut effects = std::mem::take(&mut self.name_effects);
        let names = effects.len();
        for s in self.inodes.iter_mut().filter(|s| s.created) {
            let rec = std::mem::replace(&mut s.rec, InodeRec::empty(InodeNo(0)));
            effects.push(Effect::PutInode(Box::new(rec)));
        }
        // What is new comes before its names.
        effects.rotate_left(names);
        plan.append(effects);
        plan.append(std::mem::take(&mut self.data_effects));
        for s in self.inodes.iter().filter(|s| !s.created && s.mask != 0) {
            plan.push(Effect::SetAttr(delta(&s.rec, s.mask)));
        }
        if plan.effects().is_empty() { None } else { Some(plan) }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if let Some(o) = self.opened.take() {
            self.session.release_handle(o.handle);
        }
    }
}

impl View for Txn<'_> {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        match self.inodes.iter().find(|s| s.rec.ino == ino) {
            Some(s) => Ok(Some(s.rec.clone())),
            None => self.store.inode(ino),
        }
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        match self.names.iter().rev().find(|s| s.dir == dir && *s.name == *name) {
            Some(s) => Ok(s.entry.clone()),
            None => Ok(match self.store.dirent_or_slot(dir, name)? {
                Ok(entry) => Some(entry),
                Err(slot) => {
                    self.note_slot(dir, slot);
                    None
                }
            }),
        }
    }
}

pub(super) fn delta(rec: &InodeRec, mask: u16) -> AttrDelta {
    AttrDelta {
        ino: rec.ino,
        mask,
        size: rec.size,
        mode: rec.mode,
        uid: rec.uid,
        gid: rec.gid,
        nlink: rec.nlink,
        flags: rec.flags,
        parent: rec.parent,
        atime: rec.atime,
        mtime: rec.mtime,
        ctime: rec.ctime,
    }
}
