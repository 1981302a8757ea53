//! Listings with attributes: a directory's entries, and what stat says of each.

use weldfs_ciscops::dirent::{Dirent, DirentPlusHead, DirentWriter, Dirents, dirent_plus_len, put_entry_plus};
use weldfs_ciscops::{Errno, Handle, Paths, PoolRange, SharedRegion, StatBody};
use weldfs_scheduler::Mode;
use zerocopy::IntoBytes;

use super::core::Core;
use super::long::SLICE_NS;
use super::scratch::Scratch;
use super::txn::HostTxn;
use super::work::{Done, Progress, Work, answer};
use weldfs_session::clock::now_ns;

/// Bytes of names that are read from a directory at a time.
const NAMES_BYTES: usize = 4096;

/// Lists a directory with what stat says of each entry: bytes put, and the cookie to go on with.
pub(super) async fn run(
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
