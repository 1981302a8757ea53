//! A heap medium for the unit tests of this crate: fast or slow to look at, failing when told.

use std::sync::atomic::{AtomicBool, Ordering};
use weldfs_journal::{FlushMode, IoWrite, Medium, MediumError, MediumInfo, MediumKind};
use weldfs_locks::Mutex;

/// See the module.
pub(crate) struct TestMedium {
    bytes: Mutex<Vec<u8>>,
    fail_after: Mutex<Option<u64>>,
    poisoned: AtomicBool,
    byte_addressable: bool,
}

impl TestMedium {
    pub(crate) fn new(len: usize, byte_addressable: bool) -> TestMedium {
        let (fail_after, poisoned) = Default::default();
        TestMedium { bytes: Mutex::new(vec![0; len]), fail_after, poisoned, byte_addressable }
    }

    /// Lets `n` more writes pass, then fails each; `None`: never fails.
    pub(crate) fn fail_writes_after(&self, n: Option<u64>) {
        *self.fail_after.lock() = n;
    }

    pub(crate) fn flip(&self, off: u64, bits: u8) {
        self.bytes.lock()[off as usize] ^= bits;
    }

    pub(crate) fn copy(&self, off: u64, len: usize) -> Vec<u8> {
        self.bytes.lock()[off as usize..off as usize + len].to_vec()
    }

    pub(crate) fn paste(&self, off: u64, from: &[u8]) {
        self.bytes.lock()[off as usize..off as usize + from.len()].copy_from_slice(from);
    }

    pub(crate) fn truncate(&self, len: usize) {
        self.bytes.lock().truncate(len);
    }
}

impl Medium for TestMedium {
    fn info(&self) -> MediumInfo {
        MediumInfo {
            len: self.bytes.lock().len() as u64,
            kind: if self.byte_addressable { MediumKind::Ram } else { MediumKind::Block },
            unit: 8,
            log_align: 64,
            power_safe: false,
            flush: FlushMode::None,
            byte_addressable: self.byte_addressable,
            read_only: false,
        }
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        buf.copy_from_slice(&self.bytes.lock()[off as usize..off as usize + buf.len()]);
        Ok(())
    }

    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        if let Some(left) = &mut *self.fail_after.lock() {
            *left = left.checked_sub(1).ok_or(MediumError::Poisoned)?;
        }
        self.paste(off, buf);
        Ok(())
    }

    fn write_batch(&self, w: &[IoWrite<'_>]) -> Result<(), MediumError> {
        w.iter().try_for_each(|w| self.write(w.off, w.buf))
    }

    fn barrier(&self) -> Result<(), MediumError> {
        Ok(())
    }

    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    fn poison(&self) {
        self.poisoned.store(true, Ordering::Relaxed);
    }
}
