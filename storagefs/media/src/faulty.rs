//! A medium whose n-th access fails: for fault sweeps.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use weldfs_journal::{IoWrite, Medium, MediumError, MediumInfo};
use weldfs_locks::Mutex;

/// Which accesses count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOn {
    /// Reads.
    Read,
    /// Writes and stores (each write of a batch counts).
    Write,
    /// Barriers.
    Flush,
    /// All of them.
    Any,
}

/// What the failing access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// EIO, nothing done.
    Eio,
    /// ENOSPC, nothing done.
    Enospc,
    /// The first half is done, then EIO.
    Short,
}

/// The plan: the `nth` counted access fails, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Which accesses count.
    pub on: FaultOn,
    /// Which of them fails.
    pub nth: u64,
    /// How.
    pub kind: FaultKind,
    /// Whether every later one fails too.
    pub sticky: bool,
}

/// A medium that fails as planned; transparent otherwise.
pub struct FaultyMedium {
    inner: Arc<dyn Medium>,
    plan: Mutex<Option<FaultPlan>>,
    seen: AtomicU64,
    fired: AtomicBool,
    /// Flushes begun by each thread since a planned failure, the failing one included.
    since: Mutex<HashMap<ThreadId, u64>>,
}

impl FaultyMedium {
    /// Over `inner`, without a plan.
    pub fn new(inner: Arc<dyn Medium>) -> FaultyMedium {
        let (seen, fired) = (AtomicU64::new(0), AtomicBool::new(false));
        FaultyMedium { inner, plan: Mutex::new(None), seen, fired, since: Mutex::default() }
    }

    /// Sets the plan (or none) and starts counting anew.
    pub fn plan(&self, plan: Option<FaultPlan>) {
        *self.plan.lock() = plan;
        self.seen.store(0, Ordering::SeqCst);
        self.fired.store(false, Ordering::SeqCst);
        self.since.lock().clear();
    }

    /// Ends the plan; what happened stays known.
    pub fn end(&self) {
        *self.plan.lock() = None;
    }

    /// Accesses counted since the plan was set.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Whether the planned fault happened: a sweep ends at the first run in which it did not.
    pub fn fired(&self) -> bool {
        self.fired.load(Ordering::SeqCst)
    }

    /// The most flushes that one thread has begun from the planned failure on, the failing one included. More than one:
    /// it tried again. (A flush of another thread may have been under way when the first failed.)
    pub fn flushes_of_a_thread_since(&self) -> u64 {
        self.since.lock().values().copied().max().unwrap_or(0)
    }

    fn fault(&self, on: FaultOn) -> Option<FaultKind> {
        let plan = (*self.plan.lock())?;
        if plan.on != on && plan.on != FaultOn::Any {
            return None;
        }
        let n = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        let hit = n == plan.nth || (plan.sticky && n > plan.nth);
        hit.then(|| {
            self.fired.store(true, Ordering::SeqCst);
            plan.kind
        })
    }

    fn count_since(&self) {
        *self.since.lock().entry(std::thread::current().id()).or_default() += 1;
    }
}

fn failure(kind: FaultKind, what: &'static str, off: u64, len: usize) -> MediumError {
    let os = if kind == FaultKind::Enospc { libc::ENOSPC } else { libc::EIO };
    MediumError::Io { what, off, len: len as u64, os }
}

impl Medium for FaultyMedium {
    fn info(&self) -> MediumInfo {
        self.inner.info()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        match self.fault(FaultOn::Read) {
            Some(kind) => {
                if kind == FaultKind::Short {
                    let half = buf.len() / 2;
                    self.inner.read(off, &mut buf[..half])?;
                }
                Err(failure(kind, "read", off, buf.len()))
            }
            None => self.inner.read(off, buf),
        }
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        match self.fault(FaultOn::Write) {
            Some(kind) => {
                if kind == FaultKind::Short {
                    let half = (buf.len() / 2) / 512 * 512;
                    self.inner.write(off, &buf[..half])?;
                }
                Err(failure(kind, "write", off, buf.len()))
            }
            None => self.inner.write(off, buf),
        }
    }

    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        writes.iter().try_for_each(|w| self.write(w.off, w.buf))
    }

    fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        match self.fault(FaultOn::Write) {
            Some(kind) => {
                if kind == FaultKind::Short {
                    self.inner.store(off, &buf[..buf.len() / 2])?;
                }
                Err(failure(kind, "write", off, buf.len()))
            }
            None => self.inner.store(off, buf),
        }
    }

    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        self.inner.persist(off, len)
    }

    fn barrier(&self) -> Result<(), MediumError> {
        match self.fault(FaultOn::Flush) {
            Some(kind) => {
                self.count_since();
                self.inner.poison();
                Err(failure(kind, "flush", 0, 0))
            }
            None => {
                if self.fired() {
                    self.count_since();
                }
                self.inner.barrier()
            }
        }
    }

    fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn poison(&self) {
        self.inner.poison();
    }
}
