//! A mapped file as byte-addressable persistent memory. On a file in the page cache this is *emulated*: what is fenced
//! survives the process, not the power.

use super::region::Region;
use memmap2::MmapOptions;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_ciscops::SharedBytes;
use weldfs_journal::{FlushMode, Medium, MediumError, MediumInfo, MediumKind};

/// The mapping and its file, whose lock it keeps. Thread-safe for disjoint accesses.
pub struct PmemMedium {
    region: Region,
    read_only: bool,
    flush: FlushMode,
    poisoned: AtomicBool,
    _file: File,
}

impl PmemMedium {
    /// Maps the whole file and touches its pages. `flush`: with write-back instructions, or none.
    pub fn map(file: File, read_only: bool, flush: bool) -> io::Result<PmemMedium> {
        let options = MmapOptions::new();
        let map = if read_only { options.map_raw_read_only(&file)? } else { options.map_raw(&file)? };
        let through = flush && !read_only;
        let region = Region::map(map, through)?;
        region.prefault(!read_only);
        let flush = if flush { FlushMode::Instructions } else { FlushMode::None };
        Ok(PmemMedium { region, read_only, flush, poisoned: AtomicBool::new(false), _file: file })
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
        self.writable()?;
        self.region.write(off, buf)
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
}
