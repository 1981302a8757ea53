//! Commands that only look, without tickets: optimistic reads in the sense of Kung and Robinson (1981), with the
//! store's generation as their sequence lock.
//!
//! What such a command reads is of one moment if no record began to be applied between its begin and its end. What it
//! answers is then what it would have answered under its tickets, if nothing that came before it and is to be seen by
//! it is still under way: so every inode on its way must be free, that is, no command holds it or waits for it. Where
//! anything else than a plain success turns up (a cold page, a damaged block, a refusal, a change by others meanwhile),
//! there is no answer here, and nothing has happened: the command takes the way with tickets, from its beginning.
//!
//! They are for devices of one core. There the core that looks is the one that would change what it looks at: what the
//! map said of a block stands until it is read, and a handle cannot be closed meanwhile.
//!
//! What a directory was found to name may be looked at as of that moment, too, though others had the core since.
//!
//! Nothing goes to the client's pool before it is known that the client may see it: bytes of a file that was found by a
//! name follow after a look at the generation, as through a descriptor opened at that moment.

use super::attr::{fsid, stat_body};
use super::committed::Reader;
use super::namespace::may_open;
use super::perm::{self, IFLNK, IFMT, IFREG};
use super::resolve::{self, Last, View, Walker};
use super::stage::SLICE_BYTES;
use super::{OpCounters, OpenFile, SessionView};
use weldfs_ciscops::limits::{FILE_OFFSET_MAX, NAME_MAX};
use weldfs_ciscops::{
    Access, AccessMask, At, ChecksumKind, ChecksumState, Errno, Handle, InodeNo, Op, OpenFlags, Outcome, PoolRange,
    SharedRegion, Sink,
};
use weldfs_store::Store;
use weldfs_store::error::{FsError, FsResult};
use weldfs_store::record::{Dirent, InodeRec};
use zerocopy::IntoBytes;

/// What a command that only looks came to.
pub struct Looked {
    /// What its completion says.
    pub outcome: Outcome,
    /// What it did.
    pub counters: OpCounters,
    /// An open file description's offset moves there.
    pub cursor: Option<(Handle, u64)>,
}

/// The store as of one generation.
pub struct Optimistic<'a, F> {
    store: &'a Store,
    session: &'a dyn SessionView,
    pool: &'a SharedRegion,
    /// Whether no command holds an inode or waits for it.
    is_free: F,
    generation: u64,
}

impl<F: Fn(InodeNo) -> bool> View for Optimistic<'_, F> {
    #[inline]
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        if (self.is_free)(ino) { self.store.inode(ino) } else { Err(FsError::SetChanged) }
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        self.store.dirent(dir, name)
    }
}

/// Whether a command may be one of those: by its kind and size.
#[inline]
pub fn only_looks(op: &Op) -> bool {
    match *op {
        Op::Stat { .. } | Op::StatPath { .. } | Op::Access { .. } => true,
        Op::Read { out, .. } | Op::OpenReadClose { out, .. } => u64::from(out.len) <= SLICE_BYTES,
        Op::ReadChecksumVerify { len, .. } => u64::from(len) <= SLICE_BYTES,
        _ => false,
    }
}

impl<'a, F: Fn(InodeNo) -> bool> Optimistic<'a, F> {
    /// Begins; `None` while a record is being applied.
    #[inline]
    pub fn begin(
        store: &'a Store,
        session: &'a dyn SessionView,
        pool: &'a SharedRegion,
        is_free: F,
    ) -> Option<Optimistic<'a, F>> {
        let generation = store.quiescent()?;
        Some(Optimistic { store, session, pool, is_free, generation })
    }

    /// Goes on as of a generation, at which something was read already.
    pub fn as_of(
        generation: u64,
        store: &'a Store,
        session: &'a dyn SessionView,
        pool: &'a SharedRegion,
        is_free: F,
    ) -> Optimistic<'a, F> {
        Optimistic { store, session, pool, is_free, generation }
    }

    /// Runs a command; `None` where it must take the way with tickets.
    pub fn run(&self, op: &Op, path: &[u8]) -> Option<Looked> {
        match *op {
            Op::Read { h, at, out, .. } => self.read(h, at, out),
            Op::Stat { h, out } => self.stat(h, b"", false, out),
            Op::StatPath { base, nofollow, out, .. } => self.stat(base, path, nofollow, out),
            Op::OpenReadClose { base, flags, offset, out, .. } => {
                self.open_read_close((base, path), flags, offset, out)
            }
            Op::Access { base, mask, nofollow, .. } => self.access(base, path, mask, nofollow),
            Op::ReadChecksumVerify { h, kind: ChecksumKind::Crc32c, offset, len, out } => {
                self.read_checksum_verify(h, offset, len, out)
            }
            _ => None,
        }
    }

    /// What was read until now is of one moment.
    #[inline]
    fn still(&self) -> Option<()> {
        self.store.is_still(self.generation).then_some(())
    }

    fn looked(&self, (result, result2): (u64, u64), counters: OpCounters) -> Looked {
        Looked { outcome: Outcome::ok(result, result2), counters, cursor: None }
    }

    fn absent(&self) -> Option<Looked> {
        self.still()?;
        Some(Looked { outcome: Outcome::failed(Errno::NOENT), counters: OpCounters::default(), cursor: None })
    }

    /// A regular file with bytes of its own, and their number.
    fn regular(&self, ino: InodeNo) -> Option<(InodeNo, u64)> {
        let size = |rec: &InodeRec| (rec.mode & IFMT == IFREG && !rec.is_virtual()).then_some(rec.size);
        let size = if (self.is_free)(ino) { self.store.look_at(ino, size).ok()?? } else { return None };
        Some((ino, size))
    }

    /// What is open for reading.
    fn readable(&self, h: Handle) -> Option<OpenFile> {
        let open = self.session.handle(h).ok()?;
        (!open.flags.contains(OpenFlags::PATH) && open.flags.access().contains(Access::READ)).then_some(open)
    }

    fn read(&self, h: Handle, at: At, out: PoolRange) -> Option<Looked> {
        let open = self.readable(h)?;
        let off = match at {
            At::Offset(off) => off,
            At::Current => open.offset,
            At::End => return None,
        };
        let file = self.regular(open.ino)?;
        let len = u64::from(out.len).min(FILE_OFFSET_MAX.saturating_sub(off));
        let (n, counters) = self.bytes(file, off, len, out)?;
        let mut looked = self.looked((n, off), counters);
        looked.cursor = (at == At::Current && n > 0).then_some((h, off + n));
        Some(looked)
    }

    fn bytes(&self, file: (InodeNo, u64), off: u64, len: u64, out: PoolRange) -> Option<(u64, OpCounters)> {
        let mut reader = Reader::new(self.store);
        let mut sink = Sink::Shared(self.pool.slice(out).ok()?);
        let n = reader.read(file, off, (len, len), &mut sink, &mut None).ok()?;
        self.still()?;
        Some((n, reader.counters))
    }

    fn read_checksum_verify(&self, h: Handle, off: u64, len: u32, out: PoolRange) -> Option<Looked> {
        /// Micro-ops of the command: the file, the payload, the checksum behind it, the comparison.
        const MICROS: u16 = 4;
        let file = self.regular(self.readable(h)?.ino)?;
        let (len, mut stored) = (u64::from(len), [0; 4]);
        let mut reader = Reader::new(self.store);
        let mut sink = if out.is_empty() { Sink::Discard } else { Sink::Shared(self.pool.slice(out).ok()?) };
        let mut sum = Some(ChecksumState::default());
        let n = reader.read(file, off, (len, len + 4), &mut sink, &mut sum).ok()?;
        let rest = reader.read(file, off + len, (4, 4), &mut Sink::Private(&mut stored), &mut None).ok()?;
        let sum = sum?.value();
        self.still()?;
        if n < len || rest < 4 || sum.to_le_bytes() != stored {
            return None;
        }
        let mut looked = self.looked((n, sum.into()), reader.counters);
        looked.outcome.micro_done = MICROS;
        Some(looked)
    }

    fn put(&self, out: PoolRange, body: &[u8], counters: OpCounters) -> Option<Looked> {
        let room = self.pool.slice(out).ok()?;
        self.still()?;
        room.copy_from(body);
        Some(self.looked((body.len() as u64, 0), counters))
    }

    /// Looks at what a handle, or one plain name from it, stands for, where its record lies: no record is copied.
    /// `Some(None)` when there is no such name; `None` where it is not as plain as that.
    fn plain<T>(&self, base: Handle, path: &[u8], look: impl FnOnce(&InodeRec) -> Option<T>) -> Option<Option<T>> {
        let start = resolve::start_inode(self.session, base, path).ok()?;
        if !(self.is_free)(start) || path.len() > NAME_MAX || path.contains(&b'/') || path == b"." || path == b".." {
            return None;
        }
        let ino = match path.is_empty() {
            true => start,
            false => {
                let cred = self.session.cred();
                let leads = |dir: &InodeRec| dir.is_dir() && perm::allowed(dir, cred, perm::X);
                if !self.store.look_at(start, leads).ok()? {
                    return None;
                }
                match self.store.entry_ino(start, path).ok()? {
                    None => return Some(None),
                    Some(ino) if (self.is_free)(ino) => ino,
                    Some(_) => return None,
                }
            }
        };
        let link = |rec: &InodeRec| rec.mode & IFMT == IFLNK && !path.is_empty();
        self.store.look_at(ino, |rec| if link(rec) { None } else { look(rec) }).ok()?.map(Some)
    }

    /// What a handle or a path names: `Some(None)` when there is no such name.
    fn object(&self, base: Handle, path: &[u8], nofollow: bool) -> Option<Option<InodeRec>> {
        let start = resolve::start_inode(self.session, base, path).ok()?;
        if path.is_empty() {
            return self.inode(start).ok()?.map(Some);
        }
        let last = if nofollow { Last::NoFollow } else { Last::Follow };
        match Walker::of(self.session).glance(self, start, path, last) {
            Ok(Some(found)) if found.rec.is_none() => Some(None),
            Ok(Some(found)) if resolve::named(&found).is_ok() => Some(found.rec),
            Err(FsError::Errno(Errno::NOENT)) => Some(None),
            _ => None,
        }
    }

    fn stat(&self, base: Handle, path: &[u8], nofollow: bool, out: PoolRange) -> Option<Looked> {
        let body = |rec: &InodeRec| stat_body(rec, fsid(self.store.uuid()));
        let found = match self.plain(base, path, |rec| Some(body(rec))) {
            Some(found) => found,
            None => self.object(base, path, nofollow)?.as_ref().map(body),
        };
        let Some(body) = found else { return self.absent() };
        self.put(out, body.as_bytes(), OpCounters { meta_copies: 1, ..OpCounters::default() })
    }

    /// What stat says of an inode that the directory open as `h`, `dir`, named at this generation. The name need not be
    /// looked up again: no record has changed anything since, or there is no answer. (In a damaged image, where an
    /// entry does not lie where its name belongs, this says what its inode is, though no path leads there.)
    pub fn stat_listed(&self, h: Handle, (dir, ino): (InodeNo, InodeNo), out: PoolRange) -> Option<Looked> {
        self.still()?;
        if resolve::start_inode(self.session, h, b"").ok()? != dir || !(self.is_free)(dir) || !(self.is_free)(ino) {
            return None;
        }
        let cred = self.session.cred();
        let leads = |dir: &InodeRec| dir.is_dir() && perm::allowed(dir, cred, perm::X);
        if !self.store.look_at(dir, leads).ok()? {
            return None;
        }
        let body = self.store.look_at(ino, |rec| Some(stat_body(rec, fsid(self.store.uuid())))).ok()??;
        self.put(out, body.as_bytes(), OpCounters { meta_copies: 1, ..OpCounters::default() })
    }

    fn access(&self, base: Handle, path: &[u8], mask: AccessMask, nofollow: bool) -> Option<Looked> {
        let allows = |rec: &InodeRec| perm::check(rec, self.session.cred(), mask.bits().into()).ok();
        match self.plain(base, path, allows) {
            Some(Some(())) => {}
            Some(None) => return self.absent(),
            None => match self.object(base, path, nofollow)? {
                Some(rec) => allows(&rec)?,
                None => return self.absent(),
            },
        }
        self.still()?;
        Some(self.looked((0, 0), OpCounters::default()))
    }

    fn open_read_close(&self, at: (Handle, &[u8]), flags: OpenFlags, off: u64, out: PoolRange) -> Option<Looked> {
        /// Micro-ops of the command: open, read, close.
        const MICROS: u16 = 3;
        let readable = |rec: &InodeRec, slash| {
            may_open(rec, slash, flags, false, self.session.cred()).ok()?;
            (rec.mode & IFMT == IFREG && !rec.is_virtual()).then_some((rec.ino, rec.size))
        };
        let plain = if at.1.is_empty() { None } else { self.plain(at.0, at.1, |rec| readable(rec, false)) };
        let file = match plain {
            Some(None) => return self.absent(),
            Some(Some(file)) => file,
            None => {
                let start = resolve::start_inode(self.session, at.0, at.1).ok()?;
                let last = if flags.contains(OpenFlags::NOFOLLOW) { Last::NoFollow } else { Last::Follow };
                let found = match Walker::of(self.session).glance(self, start, at.1, last) {
                    Ok(found) => found?,
                    Err(FsError::Errno(Errno::NOENT)) => return self.absent(),
                    Err(_) => return None,
                };
                let Some(rec) = found.rec.as_ref() else { return self.absent() };
                readable(rec, found.slash)?
            }
        };
        self.still()?;
        let (n, counters) = self.bytes(file, off, out.len.into(), out)?;
        let mut looked = self.looked((n, 0), counters);
        looked.outcome.micro_done = MICROS;
        Some(looked)
    }
}
