//! Parts of a store, for the crates above.

use std::sync::atomic::AtomicU64;

use weldfs_ciscops::InodeNo;
use weldfs_locks::MutexGuard;

use super::pins::Pins;
use super::{Ledger, LogEnd, NameHash, Store};
use crate::alloc::Alloc;
use crate::checkpoint::Writer;
use crate::integrity::Damage;
use crate::micro::open::OpenTxns;
use crate::overlay::Overlay;
use crate::reclaim::Pending;

impl Store {
    /// Damage that was found since the mount.
    #[inline]
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Transactions with a begin record and no end record.
    pub fn txns(&self) -> &OpenTxns {
        &self.txns
    }

    /// What places names in their directories.
    #[inline]
    pub fn name_hash(&self) -> &NameHash {
        &self.hash
    }

    /// Ranges of files that virtual files which are open stream from or to.
    #[inline]
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// How the log ended when it was mounted.
    pub fn log_end(&self) -> Option<LogEnd> {
        self.mounted.get().copied()
    }
}

/// For tests of the crates above: what they look at, and turn to have a case that is rare.
impl Store {
    /// What changed since the last checkpoint, and the tree below.
    #[doc(hidden)]
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// Which blocks are taken.
    #[doc(hidden)]
    pub fn alloc(&self) -> &Alloc {
        &self.alloc
    }

    /// What is promised to commands that run.
    #[doc(hidden)]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Files without a name whose space is to be given back.
    #[doc(hidden)]
    pub fn reclaim(&self) -> &Pending {
        &self.reclaim
    }

    /// Records that began to be applied.
    #[doc(hidden)]
    pub fn applying(&self) -> &AtomicU64 {
        &self.applying
    }

    /// Records that were applied.
    #[doc(hidden)]
    pub fn applied(&self) -> &AtomicU64 {
        &self.applied
    }

    /// Whether the inode is open.
    #[doc(hidden)]
    pub fn is_open(&self, ino: InodeNo) -> bool {
        self.opens.lock().contains_key(&ino.0)
    }

    /// Bytes that the page cache may use now.
    #[doc(hidden)]
    pub fn page_cache_limit(&self) -> u64 {
        self.overlay.base(0).pages.stats().limit * crate::limits::PAGE as u64
    }

    /// Begins a checkpoint and goes no further than its cut: layers are frozen, and what changes from here on lies
    /// above them. The next call of [`Store::checkpoint`] ends it. Does nothing where one is begun already.
    #[doc(hidden)]
    pub fn freeze_layers(&self) {
        let mut writer = self.writer.lock();
        if writer.pending.is_none() {
            writer.pending = Some(self.cut());
        }
    }

    /// The state of checkpoints.
    #[doc(hidden)]
    pub fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }
}
