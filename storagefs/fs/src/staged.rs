//! Transactions of several commands: writes to several files that a session collects in private memory, and that become
//! one transaction, all of it or nothing, when it commits. Nothing is held meanwhile: no inode, no room, no log.

use super::target::FileRef;
use super::txn::Txn;
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;
use weldfs_ciscops::limits::{TXN_BYTES_MAX, TXN_WRITES_MAX, TXNS_MAX};
use weldfs_ciscops::{At, Errno, Handle, InodeNo, Source, Target};
use weldfs_store::error::FsResult;
use weldfs_store::{Need, Store};

/// One write that waits for the commit.
pub struct StagedWrite {
    /// The file, with the grant that its handle had.
    pub file: FileRef,
    /// Where.
    pub at: At,
    /// What.
    pub bytes: Box<[u8]>,
    /// Keeps the file alive until then.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// The writes of one transaction, in order: where they meet, the later one counts.
#[derive(Default)]
pub struct Staged {
    /// In order.
    pub writes: Vec<StagedWrite>,
    /// Bytes of them.
    pub bytes: u64,
    /// Whether a description asks for durable writes.
    pub sync: bool,
}

impl Staged {
    /// The files, each once.
    pub fn files(&self) -> SmallVec<[InodeNo; 16]> {
        let mut all: SmallVec<[InodeNo; 16]> = self.writes.iter().map(|w| w.file.ino).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

enum State {
    Open(Staged),
    Committing(Arc<Staged>),
}

#[derive(Default)]
struct Slot {
    generation: u32,
    state: Option<State>,
    /// Bytes charged for it.
    charged: u64,
}

/// The transactions of one session.
#[derive(Default)]
pub struct StagedTable {
    slots: Vec<Slot>,
}

impl StagedTable {
    /// A new transaction. EMFILE when the session has as many as it may.
    pub fn begin(&mut self) -> Result<Handle, Errno> {
        let free = self.slots.iter().position(|s| s.state.is_none());
        let index = free.unwrap_or(self.slots.len());
        if index >= TXNS_MAX {
            return Err(Errno::MFILE);
        }
        if index == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let slot = &mut self.slots[index];
        slot.generation = slot.generation.wrapping_add(1).max(1);
        (slot.state, slot.charged) = (Some(State::Open(Staged::default())), 0);
        Ok(Handle { index: index as u32, generation: slot.generation })
    }

    fn slot(&mut self, h: Handle) -> Result<&mut Slot, Errno> {
        let slot = self.slots.get_mut(h.index as usize).filter(|s| s.generation == h.generation && s.state.is_some());
        slot.ok_or(Errno::BADF)
    }

    /// Adds a write, for which `charge` bytes were charged; gives the number of writes. E2BIG when the transaction has
    /// as much as it may, EBUSY while it commits.
    pub fn write(&mut self, h: Handle, write: StagedWrite, sync: bool, charge: u64) -> Result<u64, Errno> {
        let slot = self.slot(h)?;
        let Some(State::Open(staged)) = &mut slot.state else { return Err(Errno::BUSY) };
        let bytes = staged.bytes + write.bytes.len() as u64;
        if bytes > TXN_BYTES_MAX || staged.writes.len() >= TXN_WRITES_MAX {
            return Err(Errno::TOOBIG);
        }
        staged.bytes = bytes;
        staged.sync |= sync;
        staged.writes.push(write);
        slot.charged += charge;
        Ok(staged.writes.len() as u64)
    }

    /// From here on it is as it is. EBUSY when another command commits it already.
    pub fn close(&mut self, h: Handle) -> Result<(), Errno> {
        let slot = self.slot(h)?;
        match slot.state.take() {
            Some(State::Open(staged)) => {
                slot.state = Some(State::Committing(Arc::new(staged)));
                Ok(())
            }
            other => {
                slot.state = other;
                Err(Errno::BUSY)
            }
        }
    }

    /// What is being committed.
    pub fn committing(&self, h: Handle) -> Result<Arc<Staged>, Errno> {
        let slot = self.slots.get(h.index as usize).filter(|s| s.generation == h.generation);
        match slot.and_then(|s| s.state.as_ref()) {
            Some(State::Committing(staged)) => Ok(staged.clone()),
            _ => Err(Errno::BADF),
        }
    }

    /// It is over; the bytes that were charged for it.
    pub fn end(&mut self, h: Handle) -> Result<u64, Errno> {
        let slot = self.slot(h)?;
        slot.state = None;
        Ok(std::mem::take(&mut slot.charged))
    }

    /// The same, unless a command commits it: EBUSY.
    pub fn abort(&mut self, h: Handle) -> Result<u64, Errno> {
        match self.slot(h)?.state {
            Some(State::Committing(_)) => Err(Errno::BUSY),
            _ => self.end(h),
        }
    }

    /// All of them are over; the bytes that were charged for them.
    pub fn clear(&mut self) -> u64 {
        self.slots.drain(..).map(|s| s.charged).sum()
    }
}

impl Txn<'_> {
    /// Writes all that a transaction has collected; gives the bytes.
    pub(super) async fn write_staged(&mut self, h: Handle) -> Result<u64, Errno> {
        let staged = self.session.staged(h)?;
        self.many = true;
        self.payload_max = TXN_BYTES_MAX;
        self.inline = staged.bytes <= self.store.inline_max() as u64;
        for w in &staged.writes {
            self.write(w.file, w.at, Source::Private(&w.bytes), None).await?;
        }
        Ok(staged.bytes)
    }
}

/// What the commit of a transaction must reserve.
pub(super) fn need(store: &Store, staged: &Staged) -> FsResult<Option<Need>> {
    let at = |w: &StagedWrite| if let At::Offset(off) = w.at { Some(off) } else { None };
    let mut writes = staged.writes.iter().map(|w| (w.bytes.len() as u64, w.file.ino, at(w)));
    if staged.bytes == 0 {
        return Ok(None);
    }
    super::program::writes_need(store, staged.bytes, &mut writes).map(Some)
}
