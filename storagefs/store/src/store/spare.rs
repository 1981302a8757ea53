//! Room that is kept for changes of one file which its client has announced only by a lease: blocks promised ahead,
//! where there are plenty.

use super::ledger::Promise;
use super::{Need, Store};
use crate::error::FsResult;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// All that is kept so is at most this part of what is free.
const SHARE: i64 = 16;
/// Keys that the metadata of such changes may take.
const KEYS: u32 = 64;

/// Blocks kept. Given back when it is dropped.
pub struct Spare {
    store: Arc<Store>,
    promise: Promise,
}

impl Store {
    /// Keeps so many blocks; `None` where that would be much of what is free.
    pub fn spare(self: &Arc<Store>, blocks: u32) -> Option<Spare> {
        let ledger = &self.ledger;
        let kept = ledger.spared.load(Relaxed) + i64::from(blocks);
        if kept > (ledger.logical_free() + ledger.spared.load(Relaxed)) / SHARE || ledger.tight() {
            return None;
        }
        let need = Need { new_blocks: blocks, meta_keys: KEYS, may_fail: true, ..Need::default() };
        let promise = ledger.promise(&need, ledger.growth_for(&need)).ok()?;
        ledger.spared.fetch_add(promise.growing, Relaxed);
        Some(Spare { store: self.clone(), promise })
    }
}

impl Spare {
    /// Tries something that asks for room while what is kept counts as free. Where that goes well, so many blocks less
    /// are kept from then on. No other command may run meanwhile.
    pub fn lend<T>(&mut self, cost: u32, ask: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let ledger = &self.store.ledger;
        ledger.spared.fetch_sub(self.promise.growing, Relaxed);
        ledger.settle(self.promise, 0);
        let asked = ask();
        if asked.is_ok() {
            let cost = i64::from(cost).min(self.promise.growing);
            self.promise.growing -= cost;
            self.promise.blocks -= cost;
        }
        ledger.keep(self.promise);
        ledger.spared.fetch_add(self.promise.growing, Relaxed);
        asked
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.store.ledger.spared.fetch_sub(self.promise.growing, Relaxed);
        self.store.ledger.settle(self.promise, 0);
    }
}
