//! Memory of this process as a medium: for tests, comparisons and `--ram`. Nothing survives the process.

use super::region::Region;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_ciscops::SharedBytes;
use weldfs_journal::{BLOCK, FlushMode, Medium, MediumError, MediumInfo, MediumKind};

/// A heap region, zeroed at the start. Thread-safe for disjoint accesses.
pub struct RamMedium {
    region: Region,
    poisoned: AtomicBool,
}

impl RamMedium {
    /// A zeroed medium of `len` bytes (rounded up to whole blocks); its pages come at first use.
    pub fn new(len: u64) -> RamMedium {
        let len = (len as usize).next_multiple_of(BLOCK);
        RamMedium { region: Region::heap(len), poisoned: AtomicBool::new(false) }
    }

    /// As `new`; `None` when the system does not give that much.
    pub fn try_new(len: u64) -> Option<RamMedium> {
        let len = usize::try_from(len).ok()?.checked_next_multiple_of(BLOCK)?;
        Some(RamMedium { region: Region::try_heap(len)?, poisoned: AtomicBool::new(false) })
    }

    /// As `new`, with all its pages present.
    pub fn prefaulted(len: u64) -> RamMedium {
        let medium = RamMedium::new(len);
        medium.region.prefault(true);
        medium
    }

    /// A medium with this content, zero-padded to whole blocks.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> RamMedium {
        let bytes = bytes.as_ref();
        let medium = RamMedium::new(bytes.len() as u64);
        medium.region.store(0, bytes).expect("the medium is as long as the bytes");
        medium
    }

    /// A copy of the whole content. Callers see to it that nothing writes meanwhile.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.region.len()];
        self.region.read(0, &mut all).expect("the buffer is as long as the medium");
        all
    }

    fn alive(&self) -> Result<(), MediumError> {
        if self.is_poisoned() { Err(MediumError::Poisoned) } else { Ok(()) }
    }
}

impl Medium for RamMedium {
    fn info(&self) -> MediumInfo {
        MediumInfo {
            len: self.region.len() as u64,
            kind: MediumKind::Ram,
            unit: 8,
            log_align: 64,
            power_safe: false,
            flush: FlushMode::None,
            byte_addressable: true,
            read_only: false,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.alive()?;
        self.region.read(off, buf)
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.alive()?;
        self.region.store(off, buf)
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.alive()
    }

    fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        self.alive()?;
        self.region.ingest(off, src, sums)
    }

    fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        self.alive()?;
        self.region.emit(off, dst)
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }
}
