//! A mapped file as byte-addressable persistent memory. On a file in the page cache this is *emulated*: what is fenced
//! survives the process, not the power.

use super::region::Region;
use memmap2::MmapOptions;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use weldfs_ciscops::SharedBytes;
use weldfs_ciscops::pool::Breath;
use weldfs_journal::{FlushMode, IoWrite, Medium, MediumError, MediumInfo, MediumKind};

/// Bytes touched in one step. The kernel holds the lock of the whole process's memory (mmap_lock) meanwhile: where a
/// thread that takes pages 16 MiB at a time lost the processor in the middle, one that mapped or unmapped anything
/// waited until it had it again, and behind that one all that touched a page for the first time: 120 ms, again and
/// again for as long as a large image was touched.
const TOUCH: usize = 16 << 10;
/// Bytes touched before the medium is used: superblock and log.
const TOUCH_FIRST: usize = 96 << 20;

/// Touches the pages of a mapping beside those who use it, so that an image of any size can be used at once and its
/// pages are there all the same before most of them are asked for.
struct Toucher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Toucher {
    fn start(region: &Arc<Region>, write: bool) -> Toucher {
        let stop = Arc::new(AtomicBool::new(false));
        region.prefault_part(write, 0, region.len().min(TOUCH_FIRST));
        let (end, region) = (stop.clone(), region.clone());
        let body = move || {
            // It loses the processor between two steps, and hardly ever inside of one.
            weldfs_waiting::give_way();
            let mut breath = Breath::new();
            for off in (TOUCH_FIRST..region.len()).step_by(TOUCH) {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                region.prefault_part(write, off, TOUCH.min(region.len() - off));
                breath.take();
            }
        };
        // Without the thread pages are touched at their first use.
        let thread = std::thread::Builder::new().name("weld-touch".into()).spawn(body).ok();
        Toucher { stop, thread }
    }
}

impl Drop for Toucher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The mapping and its file, whose lock it keeps. Thread-safe for disjoint accesses.
pub struct PmemMedium {
    /// Before the region: it ends first.
    _toucher: Toucher,
    region: Arc<Region>,
    read_only: bool,
    flush: FlushMode,
    poisoned: AtomicBool,
    /// Keeps the lock.
    locked: File,
}

impl PmemMedium {
    /// Maps the whole file; its pages are touched in the background. `flush`: with write-back instructions, or none.
    pub fn map(file: File, read_only: bool, flush: bool) -> io::Result<PmemMedium> {
        let options = MmapOptions::new();
        let map = if read_only { options.map_raw_read_only(&file)? } else { options.map_raw(&file)? };
        let through = flush && !read_only;
        let region = Arc::new(Region::map(map, through)?);
        let _toucher = Toucher::start(&region, !read_only);
        let flush = if flush { FlushMode::Instructions } else { FlushMode::None };
        Ok(PmemMedium { _toucher, region, read_only, flush, poisoned: AtomicBool::new(false), locked: file })
    }

    fn alive(&self) -> Result<(), MediumError> {
        if self.is_poisoned() { Err(MediumError::Poisoned) } else { Ok(()) }
    }

    fn writable(&self) -> Result<(), MediumError> {
        if self.read_only { Err(MediumError::ReadOnly) } else { self.alive() }
    }
}

impl Medium for PmemMedium {
    fn info(&self) -> MediumInfo {
        MediumInfo {
            len: self.region.len() as u64,
            kind: MediumKind::Pmem,
            unit: 8,
            log_align: 64,
            power_safe: false,
            flush: self.flush,
            byte_addressable: true,
            read_only: self.read_only,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.alive()?;
        self.region.read(off, buf)
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.write_batch(&[IoWrite { off, buf }])
    }

    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        self.writable()?;
        self.region.write(writes)
    }

    fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.writable()?;
        self.region.store(off, buf)
    }

    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        self.region.persist(off, len)
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.alive()?;
        self.region.barrier()
    }

    fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        self.writable()?;
        self.region.ingest(off, src, sums)
    }

    fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        self.alive()?;
        self.region.emit(off, dst)
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire) || self.region.faulted()
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    fn let_go(&self) {
        self.poison();
        super::unlock(&self.locked);
    }
}
