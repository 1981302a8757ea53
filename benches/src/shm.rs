//! Memory shared between two processes, for the bare-ring floor. The only `unsafe` of this crate.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A shared, zeroed memory region addressed in 64-bit words; payload is copied, never referenced.
pub struct Shared {
    base: *mut u8,
    len: usize,
    file: File,
}

// SAFETY: all access goes through atomics or byte copies between private memory and the mapping; the mapping lives as
// long as the value, and nothing hands out references into it except to atomics, which are safe to share.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a region of `len` bytes that another process may open by path.
    pub fn create(len: usize) -> io::Result<Shared> {
        // SAFETY: the name is a NUL-terminated literal; the result is checked before it is used.
        let fd = unsafe { libc::memfd_create(c"weldfs-floor".as_ptr(), 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` is a fresh descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(len as u64)?;
        Shared::map(file, len)
    }

    /// Opens a region that another process created, by the path `path()` gave there.
    pub fn open(path: &str, len: usize) -> io::Result<Shared> {
        Shared::map(File::options().read(true).write(true).open(path)?, len)
    }

    fn map(file: File, len: usize) -> io::Result<Shared> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a fresh mapping of an open file at an address of the kernel's choice; the result is checked.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared { base: base.cast(), len, file })
    }

    /// A path under which another process of the same user opens this region while this one lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index * 8 + 8 <= self.len, "word inside the region");
        // SAFETY: in bounds by the assertion, aligned because mmap returns page-aligned memory, valid for `self`'s
        // life.
        unsafe { &*self.base.add(index * 8).cast::<AtomicU64>() }
    }

    /// Loads word `index` with acquire order.
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    /// Stores word `index` with release order.
    pub fn store(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    /// Copies private bytes into the region at byte `at`.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "range inside the region");
        // SAFETY: in bounds by the assertion; source is private memory; the protocol gives this range to one side at
        // a time.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(at), bytes.len()) }
    }

    /// Copies bytes of the region at byte `at` into private memory.
    pub fn get(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.len), "range inside the region");
        // SAFETY: as in `put`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(at), bytes.as_mut_ptr(), bytes.len()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are what mmap returned; no reference into the mapping outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
