//! Sequences: one entry of a ring that stands for several commands, run one after the other, each as if it had come by
//! itself.

use weldfs_ciscops::dirent::{Dirent, DirentPlusHead, DirentWriter, Dirents, dirent_plus_len, put_entry_plus};
use weldfs_ciscops::{
    Command, Cqe, Durability, Errno, Handle, Op, Outcome, Paths, PoolRange, RawCommand, SharedRegion, Sqe, StatBody,
    TxnMode, validate,
};
use weldfs_scheduler::Mode;
use zerocopy::IntoBytes;

use super::command;
use super::core::Core;
use super::long::SLICE_NS;
use super::scratch::Scratch;
use super::txn::HostTxn;
use super::work::{Done, Progress, Sequence, Work, answer};
use weldfs_session::clock::now_ns;

/// Bytes of names that are read from a directory at a time.
const NAMES_BYTES: usize = 4096;

/// Copies an element's entry out of the pool, once, and believes it or not. What it leaves to the default is as the
/// batch says.
fn entry(work: &Work, items: PoolRange, i: u32) -> (RawCommand, Result<(Command, Paths), Errno>) {
    let (mut sqe, pool) = (Sqe::default(), &work.queue.pool);
    let range = PoolRange::new(items.off + i * Sqe::SIZE as u32, Sqe::SIZE as u32);
    if let Ok(bytes) = pool.slice(range) {
        bytes.copy_to(sqe.as_mut_bytes());
    }
    let raw = RawCommand(sqe);
    let believed = validate(&raw, &work.queue.limits).and_then(|mut cmd| {
        if matches!(cmd.op, Op::Batch { .. }) {
            return Err(Errno::INVAL);
        }
        if cmd.durability == Durability::Default {
            cmd.durability = work.cmd.durability;
        }
        if cmd.mode == TxnMode::Default {
            cmd.mode = work.cmd.mode;
        }
        cmd.after_durable |= work.cmd.after_durable;
        Ok((cmd, Paths::fetch(&cmd, pool)?))
    });
    (raw, believed)
}

fn put_result(work: &Work, results: PoolRange, i: u32, cqe: &Cqe) {
    let range = PoolRange::new(results.off + i * Cqe::SIZE as u32, Cqe::SIZE as u32);
    if let Ok(bytes) = work.queue.pool.slice(range) {
        bytes.copy_from(cqe.as_bytes());
    }
}

/// Runs a batch, or a slice of it: results are how many ran, and how many failed.
pub(super) async fn batch(
    core: &Core,
    work: &Work,
    (items, results): (PoolRange, PoolRange),
    scratch: &mut Scratch,
) -> Option<Done> {
    let count = items.len / Sqe::SIZE as u32;
    let fresh = || {
        let (opcodes, total) = (Vec::with_capacity(count as usize), Done::from(Outcome::ok(count.into(), 0)));
        Box::new(Sequence { next: 0, element: None, opcodes, total })
    };
    let mut s = match std::mem::take(&mut *work.progress.lock()) {
        Progress::Sequence(s) => s,
        _ => fresh(),
    };
    let begun = now_ns();
    while s.next < count {
        if work.away {
            scratch.breathe(core);
            scratch.begin_turn(core, work);
        }
        let cut = s.element.is_none() && s.next > 0 && now_ns().saturating_sub(begun) > SLICE_NS;
        if cut || !s.element(core, work, (items, results), scratch).await {
            *work.progress.lock() = Progress::Sequence(s);
            return None;
        }
    }
    s.total.bytes_in += u64::from(items.len);
    s.total.bytes_out += u64::from(results.len);
    let counters = &work.queue.counters;
    counters.elements.add(count.into());
    let _ends = work.queue.pair.ends();
    s.opcodes.iter().for_each(|op| counters.opcode(*op));
    Some(s.total)
}

impl Sequence {
    /// Runs the next element; false when there is more of it. What was believed of an element that was cut is not read
    /// again.
    async fn element(
        &mut self,
        core: &Core,
        work: &Work,
        (items, results): (PoolRange, PoolRange),
        scratch: &mut Scratch,
    ) -> bool {
        let count = items.len / Sqe::SIZE as u32;
        let (believed, sequence) = match self.element.take() {
            Some((mut element, sequence)) => {
                element.away |= work.away;
                (Ok(element), sequence)
            }
            None => {
                let (raw, believed) = entry(work, items, self.next);
                let element = believed.map(|(cmd, paths)| {
                    self.opcodes.push(cmd.op.opcode() as u16);
                    work.element(cmd, paths, self.next + 1 == count)
                });
                (element, raw.0.sequence)
            }
        };
        let done = match believed {
            Ok(element) => match Box::pin(command::run(core, &element, scratch)).await {
                Some(done) => done,
                None => {
                    self.element = Some((element, sequence));
                    return false;
                }
            },
            Err(errno) => answer(Err(errno)),
        };
        self.total.add(&done);
        self.total.outcome.result2 += u64::from(!done.outcome.is_ok());
        put_result(work, results, self.next, &done.outcome.to_cqe(sequence));
        self.next += 1;
        true
    }
}

/// Lists a directory with what stat says of each entry: bytes put, and the cookie to go on with.
pub(super) async fn read_dir_plus(
    core: &Core,
    work: &Work,
    (h, cookie, out): (Handle, u64, PoolRange),
    scratch: &mut Scratch,
) -> Option<Done> {
    let (used, next) = match std::mem::take(&mut *work.progress.lock()) {
        Progress::Listing(used, next) => (used, next),
        _ => (0, cookie),
    };
    let mut listing = Listing { core, work: work.element(work.cmd, Paths::default(), false), used, next };
    match listing.fill(h, out, scratch).await {
        Ok(false) => {
            *work.progress.lock() = Progress::Listing(listing.used, listing.next);
            None
        }
        // The next call gets the error: what was put so far is good.
        Err(errno) if listing.used == 0 => Some(answer(Err(errno))),
        _ => Some(Done { bytes_out: listing.used as u64, ..answer(Ok((listing.used as u64, listing.next))) }),
    }
}

struct Listing<'c> {
    core: &'c Core,
    work: Work,
    /// Bytes put.
    used: usize,
    /// Cookie of the last entry put.
    next: u64,
}

impl Listing<'_> {
    /// Puts entries as long as there are any, and room; false when there may be more than a slice has time for.
    async fn fill(&mut self, h: Handle, out: PoolRange, scratch: &mut Scratch) -> Result<bool, Errno> {
        let names = SharedRegion::heap(NAMES_BYTES);
        let begun = now_ns();
        loop {
            let list = self.names(h, &names, scratch).await?;
            if list.is_empty() {
                return Ok(true);
            }
            for entry in Dirents(&list) {
                let len = dirent_plus_len(entry.name.len());
                if self.used + len > out.len as usize {
                    return if self.used == 0 { Err(Errno::INVAL) } else { Ok(true) };
                }
                let stat = HostTxn::new(self.core, &self.work, scratch, false).stat_core(h, entry.name, true).await;
                self.put(&entry, stat, PoolRange::new(out.off + self.used as u32, len as u32))?;
                self.used += len;
                self.next = entry.next_cookie;
            }
            if self.work.away {
                scratch.breathe(self.core);
            }
            if now_ns().saturating_sub(begun) > SLICE_NS {
                return Ok(false);
            }
        }
    }

    /// The next few names, under a ticket of their own.
    async fn names(&self, h: Handle, region: &SharedRegion, scratch: &mut Scratch) -> Result<Vec<u8>, Errno> {
        let mut writer = DirentWriter::new(region.bytes(0, NAMES_BYTES)?);
        let mut txn = HostTxn::new(self.core, &self.work, scratch, false);
        txn.hold_one(txn.key_of(h)?, Mode::Shared).await;
        txn.read_dir_core(h, self.next, &mut writer)?;
        drop(txn);
        Ok(region.bytes(0, writer.used())?.to_vec())
    }

    fn put(&self, entry: &Dirent<'_>, stat: Result<StatBody, Errno>, range: PoolRange) -> Result<(), Errno> {
        let room = self.work.queue.pool.slice(range)?;
        put_entry_plus(&room, entry, stat.err().map_or(0, |e| e.0));
        room.sub(size_of::<DirentPlusHead>(), size_of::<StatBody>()).copy_from(stat.unwrap_or_default().as_bytes());
        Ok(())
    }
}
