//! A medium that remembers every write, write-back and barrier, so that the state after a power cut at any point can be
//! built (`super::crash`).
//!
//! Events stand in one order, decided by a lock: with several threads an event is logged when it took effect in memory.
//! A barrier covers the events before it; what an application was told to be durable at `position()` p must be found in
//! every crash state at or after p.

use super::{CowImage, CowMedium};
use std::sync::atomic::{AtomicU64, Ordering};
use weldfs_journal::{IoWrite, Medium, MediumError, MediumInfo};
use weldfs_locks::Mutex;

/// Which promises the medium makes (docs/MEDIA-FORMAT.md, "Assumptions about media").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashModel {
    /// 512-byte sectors are atomic; a flush makes every completed write durable.
    Block,
    /// 8-byte words are atomic; written-back lines and non-temporal stores are durable after a fence.
    Pmem,
}

/// What happened, in order. Bytes lie in the recording's arena at `at`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Block write, or non-temporal stores: durable after any later barrier.
    Write { off: u64, len: u32, at: usize },
    /// Regular stores: durable after a write-back and a later barrier of the thread that wrote back.
    Store { off: u64, len: u32, at: usize },
    /// Write-back by a thread.
    Persist { off: u64, len: u64, thread: u8 },
    /// Flush, or a thread's fence.
    Barrier { thread: u8 },
}

/// All that a medium went through.
#[derive(Clone)]
pub struct Recording {
    pub(super) model: CrashModel,
    /// Content before the first event.
    pub(super) base: CowImage,
    pub(super) events: Vec<Event>,
    pub(super) arena: Vec<u8>,
}

impl Recording {
    /// Number of events; positions run from 0 to this.
    pub fn len(&self) -> u64 {
        self.events.len() as u64
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Positions just after each barrier: where durable state changes.
    pub fn barriers(&self) -> Vec<u64> {
        let is_barrier = |(_, e): &(usize, &Event)| matches!(e, Event::Barrier { .. });
        self.events.iter().enumerate().filter(is_barrier).map(|(i, _)| i as u64 + 1).collect()
    }
}

/// See the module. Thread-safe.
pub struct RecordingMedium {
    inner: CowMedium,
    model: CrashModel,
    log: Mutex<Recording>,
}

/// A small number for the calling thread (up to 64 threads are told apart).
fn thread_number() -> u8 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static NUMBER: u8 = (NEXT.fetch_add(1, Ordering::Relaxed) % 64) as u8);
    NUMBER.with(|n| *n)
}

impl RecordingMedium {
    /// A zeroed medium of `len` bytes.
    pub fn new(len: u64, model: CrashModel) -> RecordingMedium {
        RecordingMedium::from_bytes(vec![0; (len as usize).next_multiple_of(weldfs_journal::BLOCK)], model)
    }

    /// A medium with this content, which counts as durable: for instance a crash state, to crash its recovery.
    pub fn from_bytes(bytes: Vec<u8>, model: CrashModel) -> RecordingMedium {
        RecordingMedium::over(CowImage::new(bytes), model)
    }

    /// As `from_bytes`, without a copy.
    pub fn over(image: CowImage, model: CrashModel) -> RecordingMedium {
        let inner = CowMedium::new(image.clone(), model);
        let log = Recording { model, base: image, events: Vec::new(), arena: Vec::new() };
        RecordingMedium { inner, model, log: Mutex::new(log) }
    }

    /// Events so far. Taken after a durable acknowledgement it marks what every later crash must keep.
    pub fn position(&self) -> u64 {
        self.log.lock().len()
    }

    /// The recording so far, as a copy.
    pub fn recording(&self) -> Recording {
        self.log.lock().clone()
    }

    /// The recording so far, moved out; the medium goes on recording from its present content.
    pub fn take_recording(&self) -> Recording {
        let mut log = self.log.lock();
        let fresh = Recording { model: self.model, base: self.inner.image(), events: Vec::new(), arena: Vec::new() };
        std::mem::replace(&mut log, fresh)
    }

    /// The present content: what a killed process (not a cut power) leaves.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.image().to_bytes()
    }

    /// As `to_bytes`, without a copy.
    pub fn image(&self) -> CowImage {
        let _quiet = self.log.lock();
        self.inner.image()
    }

    fn record(&self, off: u64, buf: &[u8], regular: bool) -> Result<(), MediumError> {
        let mut log = self.log.lock();
        self.inner.write(off, buf)?;
        let (at, len) = (log.arena.len(), buf.len() as u32);
        log.arena.extend_from_slice(buf);
        let event = if regular { Event::Store { off, len, at } } else { Event::Write { off, len, at } };
        log.events.push(event);
        Ok(())
    }
}

impl Medium for RecordingMedium {
    fn info(&self) -> MediumInfo {
        self.inner.info()
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(off, buf)
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.record(off, buf, false)
    }

    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        writes.iter().try_for_each(|w| self.write(w.off, w.buf))
    }

    fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.record(off, buf, self.model == CrashModel::Pmem)
    }

    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        if self.model == CrashModel::Pmem {
            self.log.lock().events.push(Event::Persist { off, len, thread: thread_number() });
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.inner.barrier()?;
        self.log.lock().events.push(Event::Barrier { thread: thread_number() });
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    fn poison(&self) {
        self.inner.poison();
    }
}
