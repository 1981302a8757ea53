//! Byte-addressable storage as raw memory: the one place where media of that kind touch it. Concurrent accesses to
//! disjoint ranges need no lock; callers keep overlapping ones apart (the contract of `Medium`).

use super::kernels;
use super::sigbus::{self, Guard};
use memmap2::MmapRaw;
use std::alloc::Layout;
use std::ptr::NonNull;
use weldfs_ciscops::SharedBytes;
use weldfs_journal::{BLOCK, IoWrite, MediumError, check_blocks};

enum Backing {
    Heap(Layout),
    /// Keeps the mapping; declared before it so that the guard goes first.
    Map {
        _guard: Guard,
        _map: MmapRaw,
    },
}

/// A fixed range of memory, heap or mapped.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Use non-temporal stores and write-back instructions.
    through: bool,
    backing: Backing,
}

// SAFETY: plain memory, valid until drop; all access is by copies of ranges that callers keep disjoint.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed, page-aligned heap memory, stored to with regular stores.
    pub(super) fn heap(len: usize) -> Region {
        let layout = Layout::from_size_align(len.max(1), BLOCK).expect("a medium is smaller than the address space");
        Region::try_heap(len).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// As `heap`; `None` when the system does not give that much.
    pub(super) fn try_heap(len: usize) -> Option<Region> {
        let layout = Layout::from_size_align(len.max(1), BLOCK).ok()?;
        // SAFETY: the layout has a size of at least one byte.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Region { base, len, through: false, backing: Backing::Heap(layout) })
    }

    /// A mapping of a file; `through`: with flush instructions.
    pub(super) fn map(map: MmapRaw, through: bool) -> Result<Region, std::io::Error> {
        let len = map.len();
        let base = NonNull::new(map.as_mut_ptr()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let guard = sigbus::register(base.as_ptr() as usize, len)?;
        Ok(Region { base, len, through, backing: Backing::Map { _guard: guard, _map: map } })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether a page of the mapping could not be had (its file was cut short, or the device failed).
    pub(super) fn faulted(&self) -> bool {
        match &self.backing {
            Backing::Heap(_) => false,
            Backing::Map { _guard: guard, .. } => guard.faulted(),
        }
    }

    /// Touches every page now instead of at its first use; `write` makes them writable too.
    pub(super) fn prefault(&self, write: bool) {
        self.prefault_part(write, 0, self.len);
    }

    /// The same of a part; `off` is a multiple of the page size.
    pub(super) fn prefault_part(&self, write: bool, off: usize, len: usize) {
        if !off.is_multiple_of(BLOCK) || off.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        let (madv_read, madv_write) = (libc::MADV_POPULATE_READ, libc::MADV_POPULATE_WRITE);
        let advice = if write { madv_write } else { madv_read };
        // SAFETY: the range is ours (checked) and page-aligned; populating changes no byte. Failure only means "later".
        let done = unsafe { libc::madvise(self.base.as_ptr().add(off).cast(), len, advice) };
        if done != 0 {
            tracing::debug!("pages are faulted in at first use: {}", std::io::Error::last_os_error());
        }
    }

    fn check(&self, off: u64, len: usize) -> Result<*mut u8, MediumError> {
        match off.checked_add(len as u64) {
            // SAFETY: off + len <= self.len.
            Some(end) if end <= self.len as u64 => Ok(unsafe { self.base.as_ptr().add(off as usize) }),
            _ => Err(MediumError::OutOfRange { off, len: len as u64 }),
        }
    }

    fn verdict(&self) -> Result<(), MediumError> {
        if self.faulted() { Err(MediumError::Poisoned) } else { Ok(()) }
    }

    pub(super) fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError> {
        let from = self.check(off, buf.len())?;
        // SAFETY: checked; `buf` is private memory, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len()) };
        self.verdict()
    }

    /// Regular stores.
    pub(super) fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        let to = self.check(off, buf.len())?;
        // SAFETY: checked; `buf` is private memory, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(buf.as_ptr(), to, buf.len()) };
        self.verdict()
    }

    /// Past the caches, and fenced: store buffers of this thread cannot hold it back from a barrier of another.
    pub(super) fn write(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        for w in writes {
            if !self.through {
                self.store(w.off, w.buf)?;
                continue;
            }
            let to = self.check(w.off, w.buf.len())?;
            // SAFETY: checked; `buf` is private memory, so they do not overlap.
            unsafe { kernels::copy_through(to, w.buf.as_ptr(), w.buf.len()) };
        }
        if self.through {
            kernels::fence();
        }
        self.verdict()
    }

    pub(super) fn persist(&self, off: u64, len: u64) -> Result<(), MediumError> {
        let at = self.check(off, len as usize)?;
        if self.through {
            // SAFETY: checked.
            unsafe { kernels::write_back(at, len as usize) };
        }
        Ok(())
    }

    pub(super) fn barrier(&self) -> Result<(), MediumError> {
        if self.through {
            kernels::fence();
        }
        self.verdict()
    }

    pub(super) fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        check_blocks(off, src.len(), sums.len())?;
        let to = self.check(off, src.len())?;
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: block i lies in both ranges (checked); the pool is never part of a medium, so they do not
            // overlap.
            *sum = unsafe {
                let (to, from) = (to.add(i * BLOCK), src.as_ptr().add(i * BLOCK));
                if self.through {
                    kernels::copy_block_summed::<true>(to, from)
                } else {
                    kernels::copy_block_summed::<false>(to, from)
                }
            };
        }
        if self.through {
            kernels::fence();
        }
        self.verdict()
    }

    pub(super) fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        check_blocks(off, dst.len(), 1)?;
        let from = self.check(off, BLOCK)?;
        // SAFETY: both are a block long (checked); the pool is never part of a medium, so they do not overlap.
        let sum = unsafe { kernels::copy_block_summed::<false>(dst.as_mut_ptr(), from) };
        self.verdict()?;
        Ok(sum)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Backing::Heap(layout) = self.backing {
            // SAFETY: allocated by `heap` with this layout; nothing refers to it any more.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
        }
    }
}
