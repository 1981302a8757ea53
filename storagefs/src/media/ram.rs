//! Memory of this process as a medium: for tests, comparisons and `--ram`. Nothing survives the process.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_journal::{Medium, MediumError, MediumInfo, MediumKind};

/// A heap region, zeroed at the start. Thread-safe for disjoint accesses, which is what the allocator above guarantees.
pub struct RamMedium {
    bytes: Box<[UnsafeCell<u8>]>,
    poisoned: AtomicBool,
}

// SAFETY: accesses go through raw copies of ranges that callers keep disjoint (the Medium contract); the flag is atomic.
unsafe impl Sync for RamMedium {}

impl RamMedium {
    /// A zeroed medium of `len` bytes.
    pub fn new(len: u64) -> RamMedium {
        RamMedium::from_bytes(vec![0; len as usize])
    }

    /// A medium with this content.
    pub fn from_bytes(bytes: Vec<u8>) -> RamMedium {
        let raw = Box::into_raw(bytes.into_boxed_slice()) as *mut [UnsafeCell<u8>];
        // SAFETY: UnsafeCell<u8> has the layout of u8, and the box was just released by `into_raw`.
        RamMedium { bytes: unsafe { Box::from_raw(raw) }, poisoned: AtomicBool::new(false) }
    }

    /// A copy of the whole content. Callers see to it that nobody writes meanwhile.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.bytes.len()];
        self.copy_out(0, &mut all);
        all
    }

    fn check(&self, off: u64, len: usize) -> Result<(), MediumError> {
        if self.is_poisoned() {
            return Err(MediumError::Poisoned);
        }
        match off.checked_add(len as u64) {
            Some(end) if end <= self.bytes.len() as u64 => Ok(()),
            _ => Err(MediumError::OutOfRange { off, len: len as u64 }),
        }
    }

    fn copy_out(&self, off: u64, buf: &mut [u8]) {
        // SAFETY: `check` (or the constructor's length) bounds the range; `buf` is private memory, so they do not overlap.
        unsafe {
            let from = self.bytes.as_ptr().cast::<u8>().add(off as usize);
            std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len());
        }
    }
}

impl Medium for RamMedium {
    fn info(&self) -> MediumInfo {
        MediumInfo {
            len: self.bytes.len() as u64,
            kind: MediumKind::Ram,
            unit: 8,
            log_align: 64,
            power_safe: false,
            flush: weldfs_journal::FlushMode::None,
            read_only: false,
            byte_addressable: true,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        self.check(off, buf.len())?;
        self.copy_out(off, buf);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.check(off, buf.len())?;
        // SAFETY: bounded by `check`; the cells allow writing through a shared reference, and callers keep ranges disjoint.
        unsafe {
            let to = self.bytes.as_ptr().cast::<u8>().cast_mut().add(off as usize);
            std::ptr::copy_nonoverlapping(buf.as_ptr(), to, buf.len());
        }
        Ok(())
    }

    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        self.check(off, len as usize)
    }

    fn barrier(&self) -> Result<(), MediumError> {
        self.check(0, 0)
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }
}
