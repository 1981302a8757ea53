//! The sessions of a device that are there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weldfs_ciscops::Errno;
use weldfs_locks::{Condvar, Mutex};

use super::session::SessionState;
use crate::limits::SESSIONS_MAX;

/// By number. Thread-safe.
pub(super) struct Sessions {
    table: Mutex<Table>,
    none: Condvar,
    next: AtomicU64,
}

#[derive(Default)]
struct Table {
    live: HashMap<u64, Arc<SessionState>>,
    refuse: bool,
}

impl Sessions {
    /// None yet.
    pub fn new() -> Sessions {
        Sessions { table: Mutex::default(), none: Condvar::new(), next: AtomicU64::new(1) }
    }

    /// Takes in what `make` makes, while none can come or go. EMFILE at the device's limit, ENODEV once newcomers are
    /// refused.
    pub fn enter(&self, make: impl FnOnce() -> Result<Arc<SessionState>, Errno>) -> Result<Arc<SessionState>, Errno> {
        let mut table = self.table.lock();
        if table.refuse {
            return Err(Errno::NODEV);
        }
        if table.live.len() >= SESSIONS_MAX {
            return Err(Errno::MFILE);
        }
        let state = make()?;
        table.live.insert(state.id, state.clone());
        Ok(state)
    }

    /// The number of the next one.
    pub fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// One is gone; `settle` is called while none can come or go, and no look finds it meanwhile.
    pub fn leave(&self, id: u64, settle: impl FnOnce()) {
        let mut table = self.table.lock();
        settle();
        table.live.remove(&id);
        if table.live.is_empty() {
            self.none.notify_all();
        }
    }

    /// From now on none comes.
    pub fn refuse(&self) {
        self.table.lock().refuse = true;
    }

    /// From now on none comes; those that are there.
    pub fn refuse_more(&self) -> Vec<Arc<SessionState>> {
        let mut table = self.table.lock();
        table.refuse = true;
        table.live.values().cloned().collect()
    }

    /// Waits until none is left.
    pub fn wait_for_none(&self) {
        let mut table = self.table.lock();
        while !table.live.is_empty() {
            self.none.wait(&mut table);
        }
    }

    /// Lets go of all.
    pub fn clear(&self) {
        self.table.lock().live.clear();
        self.none.notify_all();
    }

    /// Looks at them while none can come or go.
    pub fn with_all(&self, look: impl FnOnce(&mut dyn Iterator<Item = &Arc<SessionState>>)) {
        look(&mut self.table.lock().live.values());
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<SessionState>> {
        self.table.lock().live.values().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Arc<SessionState>> {
        self.table.lock().live.get(&id).cloned()
    }

    /// Whether it is there.
    pub fn has(&self, id: u64) -> bool {
        self.table.lock().live.contains_key(&id)
    }

    /// Those of a user that are ending.
    pub fn departing(&self, uid: u32) -> Vec<u64> {
        let table = self.table.lock();
        table.live.values().filter(|s| s.uid() == uid && s.closing()).map(|s| s.id).collect()
    }
}
