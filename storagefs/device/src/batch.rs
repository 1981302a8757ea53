//! Sequences: one entry of a ring that stands for several commands, run one after the other.
//!
//! `batch` runs up to 256 entries that lie in the pool, `read_dir_plus` a stat for each entry of a directory. Nothing
//! is atomic about them as a whole: each element is copied, checked and run as if it had come by itself, with its own
//! inode set, room, transaction and result; between two elements others may have the core. What they share is the
//! crossing, the slot, the place in the ring, and one wait for durability at the end.

use smallvec::SmallVec;
use weldfs_ciscops::dirent::{Dirent, DirentPlusHead, DirentWriter, Dirents, dirent_plus_len, put_entry_plus};
use weldfs_ciscops::interp::WATCHED;
use weldfs_ciscops::{
    Command, Cqe, Durability, Errno, Handle, InodeNo, Op, Outcome, Paths, PoolRange, RawCommand, SharedRegion, Sqe,
    StatBody, Target, TxnMode, validate,
};
use weldfs_journal::Lsn;
use weldfs_scheduler::Mode;
use zerocopy::IntoBytes;

use super::departed;
use super::done::Done;
use super::grants;
use super::near::near;
use super::opcx::{OpCx, Place, durable, failed};
use super::rtc;
use super::virt::perform;
pub use weldfs_fs::{Hold, InodeSet, ROOT, Txn};

/// Bytes of names that `read_dir_plus` reads from the directory at a time.
const NAMES_BYTES: usize = 4096;

/// Elements whose completion waits for the watermark.
#[derive(Default)]
struct Pending {
    /// Their numbers and sequences, and whether they went well so far.
    of: Vec<(u32, u64, bool)>,
    end: Option<Lsn>,
}

impl OpCx<'_> {
    /// Copies an element's entry out of the pool, once, and believes it or not; its strings go to `paths`. What it
    /// leaves to the default is as the batch says.
    fn entry(&self, items: PoolRange, i: u32, paths: &mut Paths) -> (RawCommand, Result<Command, Errno>) {
        let mut sqe = Sqe::default();
        let range = PoolRange::new(items.off + i * Sqe::SIZE as u32, Sqe::SIZE as u32);
        if let Ok(bytes) = self.queue.pool.slice(range) {
            bytes.copy_to(sqe.as_mut_bytes());
        }
        let raw = RawCommand(sqe);
        let believed = validate(&raw, &self.queue.limits).and_then(|mut cmd| {
            if matches!(cmd.op, Op::Batch { .. }) || cmd.posted {
                return Err(Errno::INVAL);
            }
            if cmd.durability == Durability::Default {
                cmd.durability = self.cmd.durability;
            }
            if cmd.mode == TxnMode::Default {
                cmd.mode = self.cmd.mode;
            }
            cmd.after_durable |= self.cmd.after_durable;
            // One turn at the cores is that of all.
            cmd.hints = cmd.hints.within(self.cmd.hints);
            near(&cmd.op, &self.queue.pool);
            paths.refill(&cmd, &self.queue.pool)?;
            Ok(cmd)
        });
        (raw, believed)
    }

    fn put_result(&self, results: PoolRange, i: u32, cqe: &Cqe) {
        let range = PoolRange::new(results.off + i * Cqe::SIZE as u32, Cqe::SIZE as u32);
        if let Ok(bytes) = self.queue.pool.slice(range) {
            bytes.copy_from(cqe.as_bytes());
        }
    }
}

/// Runs a batch. It goes well whatever becomes of its elements: results are how many ran, and how many failed.
pub(super) async fn run(cx: &OpCx<'_>) -> Done {
    let Op::Batch { items, results } = cx.cmd.op else { return failed(Errno::INVAL) };
    let count = items.len / Sqe::SIZE as u32;
    let mut total = Done::from(Outcome::ok(count.into(), 0));
    let (mut pending, mut opcodes) = (Pending::default(), SmallVec::<[u16; 32]>::new());
    let mut paths = Paths::default();
    for i in 0..count {
        let (raw, believed) = cx.entry(items, i, &mut paths);
        let done = match believed {
            Ok(cmd) if !departed::element_begins(cx.core, cx.session(), &cx.cmd.op, &cmd.op) => failed(Errno::INTR),
            Ok(cmd) => {
                opcodes.push(cmd.op.opcode() as u16);
                match rtc::look(cx.core, &cx.queue, &cmd, &paths) {
                    Some(done) => done,
                    None => one(&cx.element(cmd, std::mem::take(&mut paths), i + 1 == count)).await,
                }
            }
            Err(errno) => failed(errno),
        };
        if let Some(end) = done.pending {
            pending.of.push((i, raw.0.sequence, done.outcome.is_ok()));
            pending.end = pending.end.max(Some(end));
        }
        total.add(&done);
        total.outcome.result2 += u64::from(!done.outcome.is_ok());
        cx.put_result(results, i, &done.outcome.to_cqe(raw.0.sequence));
        cx.boundary().await;
    }
    // The last element may have been none that takes tickets.
    cx.admitted_nowhere();
    if let Some(end) = pending.end
        && let Err(errno) = durable(cx, end).await
    {
        // What went well is not known to last: that is no success.
        for (i, sequence, went_well) in pending.of {
            total.outcome.result2 += u64::from(went_well);
            cx.put_result(results, i, &Outcome::failed(errno).to_cqe(sequence));
        }
    }
    total.moved(u64::from(count) * Sqe::SIZE as u64, u64::from(count) * Cqe::SIZE as u64);
    cx.queue.counters.elements.add(count.into());
    let _ends = cx.queue.pair.ends();
    opcodes.iter().for_each(|op| cx.queue.counters.opcode(*op));
    total
}

/// Runs one element.
async fn one(cx: &OpCx<'_>) -> Done {
    match cx.cmd.op {
        Op::ReadDirPlus { .. } => Box::pin(read_dir_plus(cx)).await,
        _ => perform(cx).await,
    }
}

/// Lists a directory with what stat says of each entry: bytes put, and the cookie to go on with. Each entry is a
/// command of its own, `stat_path` of its name from the handle; what that fails with stands beside the name.
pub(super) async fn read_dir_plus(cx: &OpCx<'_>) -> Done {
    let mut listing = Listing { total: Done::from(Outcome::ok(0, 0)), used: 0, next: 0 };
    let ended = listing.fill(cx).await;
    let mut total = listing.total;
    total.outcome = match ended {
        Err(errno) if listing.used == 0 => return failed(errno),
        // The next call gets the error: what was put so far is good, but there may be more.
        Err(_) => Outcome::ok(listing.used as u64, listing.next),
        Ok(()) => Outcome::ok(listing.used as u64 | watched_still(cx), listing.next),
    };
    if let Some(end) = total.pending.filter(|_| cx.place == Place::Alone)
        && let Err(errno) = durable(cx, end).await
    {
        return failed(errno);
    }
    total
}

/// The bit of the result that says that what was listed is watched.
fn watched_still(cx: &OpCx<'_>) -> u64 {
    let Op::ReadDirPlus { watch, .. } = cx.cmd.op else { return 0 };
    if watch != 0 && cx.core.watches.stands(&cx.queue, watch - 1) { WATCHED } else { 0 }
}

struct Listing {
    total: Done,
    /// Bytes put.
    used: usize,
    /// Cookie of the last entry put.
    next: u64,
}

impl Listing {
    async fn fill(&mut self, cx: &OpCx<'_>) -> Result<(), Errno> {
        let Op::ReadDirPlus { h, cookie, out, watch } = cx.cmd.op else { return Err(Errno::INVAL) };
        let core = cx.core;
        let waits = &cx.queue.counters.memory_waits;
        let _held = core.memory.reserve(&cx.queue.tenant, cx.at, 2 * NAMES_BYTES as u64, waits).await?;
        let names = SharedRegion::heap(NAMES_BYTES);
        self.next = cookie;
        let dir = if h == Handle::ROOT { ROOT } else { cx.description(h)?.ino };
        // The directory first, and each inode before it is looked at.
        let mut watched = watch != 0 && grants::list(core, &cx.queue, (h, dir), watch - 1, cookie == 0);
        loop {
            let (list, mut generation) = self.names(cx, (h, dir), &names).await?;
            if list.is_empty() {
                return Ok(());
            }
            for entry in Dirents(&list) {
                let len = dirent_plus_len(entry.name.len());
                if self.used + len > out.len as usize {
                    return if self.used == 0 { Err(Errno::INVAL) } else { Ok(()) };
                }
                let range = PoolRange::new(out.off + self.used as u32, len as u32);
                // What these two name is not said by this directory.
                let named = entry.name != b"." && entry.name != b"..";
                watched = watched
                    && (!named
                        || core.watches.add((&core.store, &core.leases), &cx.queue, watch - 1, InodeNo(entry.ino)));
                let is_of_then = self.entry(cx, (h, dir, generation.filter(|_| named)), &entry, range).await?;
                // The store may have changed: what follows is looked up by name.
                generation = generation.filter(|_| is_of_then || !named);
                self.used += len;
                self.next = entry.next_cookie;
                cx.boundary().await;
            }
        }
    }

    /// The next few names, under a ticket of their own, and the generation of the store that they are of, if there is
    /// one.
    async fn names(
        &mut self,
        cx: &OpCx<'_>,
        (h, ino): (Handle, InodeNo),
        region: &SharedRegion,
    ) -> Result<(Vec<u8>, Option<u64>), Errno> {
        let held = cx.hold(ino, Mode::Shared).await;
        let mut set = InodeSet::new();
        set.add(ino, Hold::Shared);
        let core = cx.core;
        let generation = core.store.quiescent();
        let mut txn = Txn::new(&core.store, &*cx.queue.session, &set, None, 0, core.clock.wall());
        let mut writer = DirentWriter::new(region.bytes(0, NAMES_BYTES)?);
        txn.read_dir(h, self.next, &mut writer).await?;
        drop(held);
        Ok((region.bytes(0, writer.used())?.to_vec(), generation))
    }

    /// Puts an entry; whether it was found as of the generation at which it was listed.
    async fn entry(
        &mut self,
        cx: &OpCx<'_>,
        (h, dir, generation): (Handle, InodeNo, Option<u64>),
        entry: &Dirent<'_>,
        range: PoolRange,
    ) -> Result<bool, Errno> {
        const HEAD: u32 = size_of::<DirentPlusHead>() as u32;
        let out = PoolRange::new(range.off + HEAD, size_of::<StatBody>() as u32);
        let look = |generation| {
            let entry = (InodeNo(entry.ino), entry.name);
            rtc::look_at_listed(cx.core, &cx.queue, (h, dir, generation), entry, out)
        };
        let listed = generation.filter(|_| !cx.cmd.after_durable).and_then(look);
        let is_of_then = listed.is_some();
        let done = match listed {
            Some(done) => done,
            None => {
                let stat = Op::StatPath { base: h, path: PoolRange::EMPTY, nofollow: true, out };
                let cmd = Command { after_durable: cx.cmd.after_durable, ..Command::new(cx.cmd.seq, stat) };
                let paths = Paths::new(entry.name, b"")?;
                match rtc::look(cx.core, &cx.queue, &cmd, &paths) {
                    Some(done) => done,
                    None => perform(&cx.element(cmd, paths, false)).await,
                }
            }
        };
        self.total.add(&done);
        let room = cx.queue.pool.slice(range)?;
        if !done.outcome.is_ok() {
            room.sub(HEAD as usize, out.len as usize).zero();
        }
        put_entry_plus(&room, entry, done.outcome.status);
        self.total.moved(0, u64::from(range.len - out.len));
        Ok(is_of_then)
    }
}
