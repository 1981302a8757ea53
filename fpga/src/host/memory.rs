//! The memory that a card and a kernel's process share: a memfd whose size is sealed, so that neither can have the
//! other touch a page that is not there.
//!
//! The other side may write at any time. So the card never makes a reference to a byte of it: it copies, from and to
//! raw pointers, and looks at its copy only.
//!
//! Also the memory of the card that a kernel asks for, which its process alone has.

use super::wire::SHARED_BYTES;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

/// A mapping of all of it.
pub struct Shared {
    at: NonNull<u8>,
}

// SAFETY: the mapping belongs to the value, is unmapped only when it is dropped, and is not tied to a thread.
unsafe impl Send for Shared {}

/// Makes the memory: its descriptor, which goes to the other process, and a mapping.
pub fn create() -> io::Result<(OwnedFd, Shared)> {
    let file = rustix::fs::memfd_create("weldfs-kernel", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, SHARED_BYTES as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let shared = Shared::map(&file)?;
    Ok((file, shared))
}

impl Shared {
    /// Maps the memory that another process made, if it is what it must be.
    pub fn map(file: &impl AsFd) -> io::Result<Shared> {
        let sealed = rustix::fs::fcntl_get_seals(file)?;
        let size = rustix::fs::fstat(file)?.st_size;
        if !sealed.contains(SealFlags::SHRINK) || size != SHARED_BYTES as i64 {
            return Err(io::Error::other("not the memory of a card"));
        }
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses: it overlaps nothing. The file cannot shrink, so
        // that every page of it stays.
        let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), SHARED_BYTES, prot, flags, file, 0)? };
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Shared { at })
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// Where they would not fit.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at <= SHARED_BYTES && bytes.len() <= SHARED_BYTES - at, "outside of the shared memory");
        // SAFETY: the range was checked, the mapping is writable, and no reference to it exists anywhere in this
        // process while this runs: it is only reached through `put`, `get` and, in the other process, its own
        // mapping. That process may read or write it at the same time, which changes what is copied, not whether it
        // may be.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(at), bytes.len()) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// Where they are not all there.
    pub fn get(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= SHARED_BYTES && bytes.len() <= SHARED_BYTES - at, "outside of the shared memory");
        // SAFETY: as `put`; any bytes are valid `u8`s, whatever the other process makes of them meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// For the kernel's own process, which gives this to foreign code: the address of a byte.
    ///
    /// # Panics
    /// Where fewer than `len` bytes follow.
    pub fn address(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= SHARED_BYTES && len <= SHARED_BYTES - at, "outside of the shared memory");
        // SAFETY: inside of the mapping, as was checked.
        unsafe { self.at.as_ptr().add(at) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nothing refers to it any longer: `address` is
        // used only for calls that have returned.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), SHARED_BYTES) };
    }
}

/// Memory of the card that a kernel asked for: pages of its process that no other has, zero at first.
pub struct Dram {
    at: NonNull<u8>,
    bytes: usize,
}

impl Dram {
    /// At least a byte of it. Pages that are not touched take no memory.
    pub fn map(bytes: usize) -> io::Result<Dram> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping of no file at an address that the kernel chooses: it overlaps nothing.
        let at = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags)? };
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("no address"))?;
        Ok(Dram { at, bytes })
    }

    /// Where it begins, and how long it is: for foreign code, which may use it until this is dropped.
    pub fn range(&self) -> (*mut u8, usize) {
        (self.at.as_ptr(), self.bytes)
    }

    /// Makes it zero again.
    pub fn clear(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping's. Private pages of no file read as zero afterwards (madvise(2)); no
        // reference to them exists in this process's Rust code, and foreign code does not run meanwhile.
        unsafe { rustix::mm::madvise(self.at.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) }.map_err(Into::into)
    }
}

impl Drop for Dram {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length; foreign code that was given it has returned.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_card_is_zero_at_first_and_when_cleared() {
        let dram = Dram::map(3 * 4096 + 1).unwrap();
        let (at, bytes) = dram.range();
        // SAFETY: the mapping is that long, writable, and used by this function only.
        let all = || unsafe { std::slice::from_raw_parts_mut(at, bytes) };
        assert!(all().iter().all(|b| *b == 0));
        all().fill(7);
        dram.clear().unwrap();
        assert!(all().iter().all(|b| *b == 0));
        assert!(Dram::map(usize::MAX).is_err());
    }

    #[test]
    fn both_mappings_show_the_same_and_a_file_that_may_shrink_is_refused() {
        let (file, one) = create().unwrap();
        let two = Shared::map(&file).unwrap();
        one.put(SHARED_BYTES - 3, b"abc");
        let mut got = [0; 3];
        two.get(SHARED_BYTES - 3, &mut got);
        assert_eq!(&got, b"abc");
        assert!(rustix::fs::ftruncate(&file, 1).is_err(), "it cannot shrink");
        let open = rustix::fs::memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, SHARED_BYTES as u64).unwrap();
        assert!(Shared::map(&open).is_err());
        assert!(std::panic::catch_unwind(|| one.put(SHARED_BYTES - 2, b"abc")).is_err(), "outside");
    }
}
