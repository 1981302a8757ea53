//! Several commands in a row that change one file, as one record: writes that go on where one before ended, writes to
//! other blocks of the file, and changes of its attributes. What the file comes to is what it would come to with a
//! record for each (`storagefs/device/tests/device/merging.rs` holds the one to the other), and each command has its
//! own answer.
//!
//! A write over blocks that one before has written is where a record ends: it would have to read what is not there yet.

use super::*;
use crate::attr::Change;
use crate::txn::delta;
use weldfs_ciscops::{PoolRange, SetAttrMask};
use weldfs_journal::canary::{Canary, planted};
use weldfs_store::record::InodeRec;

/// Commands that become one record, at most.
pub(crate) const MERGED_MAX: usize = 64;
/// Places of a file that one record writes to, at most: each is looked at for each write.
const STRETCHES_MAX: usize = 8;

/// What commands come to that are one record.
pub struct Merged<'a> {
    /// What changes; its outcome is the first command's.
    pub changed: Changed<'a>,
    /// The others, and their outcomes.
    pub others: SmallVec<[(Command, Outcome); 4]>,
    /// How they came to be in it.
    pub joined: Joined,
}

/// Commands that became part of the record of one before them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Joined {
    /// Writes that go on where one before ended.
    pub writes: u64,
    /// Writes to other places.
    pub places: u64,
    /// Changes of attributes.
    pub attributes: u64,
}

/// Whether a command may be in one record with others at all.
#[inline]
pub fn may_join(op: &Op) -> bool {
    matches!(op, Op::Write { .. } | Op::SetAttr { .. })
}

/// Plans what `first`, and as many of those behind it as can be in one record with it, change of the file that their
/// handle stands for, which they hold alone, at time `now`. `next` is asked for one when the one before it is among
/// them.
pub fn plan_merged<'a>(
    store: &'a Store,
    session: &dyn SessionView,
    pool: &SharedRegion,
    (first, next): (&Command, &mut dyn FnMut() -> Option<Command>),
    file: OpenFile,
    now: (i64, u32),
) -> Option<Merged<'a>> {
    let rec = store.look_at(file.ino, InodeRec::clone).ok()?;
    if rec.mode & perm::IFMT != perm::IFREG || rec.is_virtual() || file.flags.contains(OpenFlags::PATH) {
        return None;
    }
    let (size, mode, now) = (rec.size, rec.mode, Time { sec: now.0, nsec: now.1 });
    let mut row = Row::new((session, pool), file, rec, now, store);
    let life = first.hints.life;
    let first = row.add(first)?;
    let mut others = SmallVec::new();
    while row.count < MERGED_MAX
        && let Some(cmd) = next()
        && let Some(outcome) = row.add(&cmd)
    {
        others.push((cmd, outcome));
    }
    let (ordinary, inline) = (session.cred().uid != 0, row.bytes <= store.inline_max());
    let (counters, fresh) = (OpCounters::default(), false);
    let mut line = Line { store, file, size, mode, now, life, ordinary, inline, fresh, counters };
    let mut plan = store.begin(&row.need(&line)?).ok()?.with_life(life);
    let mut gathered = Gathered::default();
    row.pieces.iter().try_for_each(|(off, src)| line.gather(&mut plan, &mut gathered, *off, *src, false)).ok()?;
    line.content(&mut plan, gathered).ok()?;
    plan.push(Effect::SetAttr(delta(&row.rec, row.mask)));
    let changed = Changed { plan, outcome: first, counters: line.counters, cursor: row.cursor };
    Some(Merged { changed, others, joined: row.joined })
}

/// The commands so far.
struct Row<'p> {
    session: &'p dyn SessionView,
    pool: &'p SharedRegion,
    file: OpenFile,
    now: Time,
    /// Bytes that they may write, and up to which these go into the record.
    most: usize,
    inline: usize,
    /// The file as it is behind them, and which of its attributes they have changed.
    rec: InodeRec,
    mask: u16,
    /// The description's offset, if one has moved it.
    cursor: Option<(Handle, u64)>,
    bytes: usize,
    pieces: SmallVec<[(u64, SharedBytes<'p>); 8]>,
    /// Where they write, from and to: in blocks of their own each.
    stretches: SmallVec<[(u64, u64); 4]>,
    joined: Joined,
    count: usize,
}

impl<'p> Row<'p> {
    fn new(
        (session, pool): (&'p dyn SessionView, &'p SharedRegion),
        file: OpenFile,
        rec: InodeRec,
        now: Time,
        store: &Store,
    ) -> Row<'p> {
        let inline = store.inline_max().min(SLICE_BYTES as usize);
        Row {
            session,
            pool,
            file,
            now,
            most: if store.writes_directly() { SLICE_BYTES as usize } else { inline },
            inline,
            rec,
            mask: 0,
            cursor: None,
            bytes: 0,
            pieces: SmallVec::new(),
            stretches: SmallVec::new(),
            joined: Joined::default(),
            count: 0,
        }
    }

    /// One more command; `None`, and nothing has changed, where it cannot be among them.
    fn add(&mut self, cmd: &Command) -> Option<Outcome> {
        if in_steps(cmd) {
            return None;
        }
        let outcome = match cmd.op {
            Op::Write { h, at, src } => self.write(h, at, src)?,
            Op::SetAttr { set, .. } => self.attributes(set)?,
            _ => return None,
        };
        self.count += 1;
        Some(outcome)
    }

    fn write(&mut self, h: Handle, at: At, src: PoolRange) -> Option<Outcome> {
        let (len, flags) = (src.len as usize, self.file.flags);
        let off = match at {
            _ if flags.contains(OpenFlags::APPEND) && !planted(Canary::MergedOverAppend) => self.rec.size,
            At::Offset(off) => off,
            At::Current => self.cursor.map_or(self.file.offset, |(_, offset)| offset),
            At::End => self.rec.size,
        };
        let end = off.checked_add(len as u64).filter(|end| *end <= FILE_BYTES_MAX)?;
        if len == 0 || self.bytes + len > self.most || !flags.access().contains(Access::WRITE) {
            return None;
        }
        let src = self.pool.slice(src).ok()?;
        let goes_on = self.place(off, end)?;
        self.pieces.push((off, src));
        self.bytes += len;
        if self.count > 0 {
            *(if goes_on { &mut self.joined.writes } else { &mut self.joined.places }) += 1;
        }
        if at == At::Current {
            self.cursor = Some((h, end));
        }
        (self.rec.mtime, self.rec.ctime) = (self.now, self.now);
        self.mask |= attr::MTIME | attr::CTIME;
        if end > self.rec.size {
            (self.rec.size, self.mask) = (end, self.mask | attr::SIZE);
        }
        if self.session.cred().uid != 0 && self.rec.mode & (perm::ISUID | perm::ISGID) != 0 {
            (self.rec.mode, self.mask) = (perm::without_privileges(self.rec.mode), self.mask | attr::MODE);
        }
        Some(Outcome::ok(len as u64, off))
    }

    /// A place for a write: whether it goes on where one before it ended. `None` where it would touch blocks that
    /// another has written.
    fn place(&mut self, off: u64, end: u64) -> Option<bool> {
        let behind = self.stretches.iter().position(|(_, to)| *to == off);
        // A few bytes go into the record, of several places as of one: together they are not to make blocks of each.
        let few = |from: u64, to: u64| (to - from) as usize <= self.inline;
        let more = self.bytes + (end - off) as usize > self.inline;
        if behind.is_none() && more && few(off, end) && self.stretches.iter().any(|(from, to)| few(*from, *to)) {
            return None;
        }
        let blocks = |from: u64, to: u64| from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES);
        let mine = blocks(off, end);
        for (i, (from, to)) in self.stretches.iter().enumerate() {
            let theirs = blocks(*from, *to);
            if Some(i) != behind && mine.start < theirs.end && theirs.start < mine.end {
                return None;
            }
        }
        match behind {
            Some(i) => self.stretches[i].1 = end,
            None if self.stretches.len() >= STRETCHES_MAX => return None,
            None => self.stretches.push((off, end)),
        }
        Some(behind.is_some())
    }

    fn attributes(&mut self, set: PoolRange) -> Option<Outcome> {
        let (set, cred) = (weldfs_ciscops::interp::take_set_attr(self.pool, set).ok()?, self.session.cred());
        let change = Change::of(&self.rec, cred, &set).ok()?;
        if change.mask.is_empty() || change.mask.contains(SetAttrMask::SIZE) {
            return None;
        }
        self.mask |= change.fields();
        change.make(&mut self.rec, cred, self.now);
        self.joined.attributes += u64::from(self.count > 0);
        Some(Outcome::ok(0, 0))
    }

    /// What all of them take at most.
    fn need(&self, line: &Line<'_>) -> Option<Need> {
        // As of one change of attributes: near full, the inode's page must have room to be rewritten.
        let overwrite_blocks = u32::from(self.stretches.is_empty());
        let start = Need { log_bytes: LOG_BASE, meta_keys: 8, overwrite_blocks, ..Need::default() };
        self.stretches.iter().try_fold(start, |all, (from, to)| {
            let one = line.need(*from, (to - from) as usize)?;
            Some(Need {
                log_bytes: all.log_bytes + one.log_bytes - LOG_BASE,
                new_blocks: all.new_blocks + one.new_blocks,
                overwrite_blocks: all.overwrite_blocks + one.overwrite_blocks,
                meta_keys: all.meta_keys + one.meta_keys,
                may_fail: all.may_fail || one.may_fail,
                ..Need::default()
            })
        })
    }
}
