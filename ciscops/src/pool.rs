//! Shared memory of a queue pair. This file holds the raw pointers: no reference ever points into memory that the
//! other side can write; bytes are copied in or out, index words are accessed as atomics.

use crate::Errno;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::alloc::Layout;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Part of a buffer pool: bytes `off..off + len` from the pool's start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PoolRange {
    /// First byte.
    pub off: u32,
    /// Bytes.
    pub len: u32,
}

impl PoolRange {
    /// Nothing.
    pub const EMPTY: PoolRange = PoolRange { off: 0, len: 0 };

    /// From its two parts.
    pub const fn new(off: u32, len: u32) -> PoolRange {
        PoolRange { off, len }
    }

    /// Whether it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// An empty memfd that may be sealed, for its owner only and never a program. Kernels before 6.3 cannot seal it against
/// being made one; there its mode says the same.
pub fn private_memfd(name: &str) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{MemfdFlags, Mode};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        made => made?,
    };
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    Ok(fd)
}

enum Backing {
    Heap,
    Map,
}

struct Mapping {
    base: NonNull<u8>,
    len: usize,
    backing: Backing,
    /// Given back by a thread that lets others run between two pieces.
    breathes: bool,
}

// SAFETY: the mapping is plain memory, valid until drop; every access goes through copies or atomics on raw pointers.
unsafe impl Send for Mapping {}
// SAFETY: as above; concurrent access is by design (the peer may write at any time) and never through references.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: allocated by `SharedRegion::heap` with this very layout; no `SharedBytes` outlives the Arc.
            Backing::Heap => unsafe { std::alloc::dealloc(self.base.as_ptr(), heap_layout(self.len)) },
            Backing::Map => {
                let mut breath = self.breathes.then(Breath::new);
                for (at, len) in pieces(self.len) {
                    // SAFETY: a part of what `SharedRegion::map` mapped with this length, page-aligned; nothing refers
                    // to it any more, and each part goes once.
                    let unmapped = unsafe { rustix::mm::munmap(self.base.add(at).as_ptr().cast(), len) };
                    debug_assert!(unmapped.is_ok());
                    if let Some(breath) = &mut breath {
                        breath.take();
                    }
                }
            }
        }
    }
}

/// Bytes of a mapping that are populated or unmapped at a time: the kernel takes 12 us for it, or 0.1 ms where the host
/// of a virtual machine must find each page first. It holds the lock of the whole process's memory meanwhile
/// (mmap_lock), and every other thread that maps anything, or touches a page for the first time, waits.
const MAP_PIECE: usize = 16 << 10;

/// Offset and length of each piece.
fn pieces(len: usize) -> impl Iterator<Item = (usize, usize)> {
    let piece = MAP_PIECE.max(rustix::param::page_size());
    (0..len).step_by(piece).map(move |at| (at, piece.min(len - at)))
}

/// How long a thread sleeps that is to be taken off its processor at all: a timer that is over before the kernel has
/// got that far ends no turn. Of 2,000 sleeps of 1 ns to 4 us without slack (prctl(2), PR_SET_TIMERSLACK) none did on a
/// virtual machine, and each took 20 us; of 8 us a fifth did, of 16 us 1,990.
pub const BREATH: Duration = Duration::from_micros(16);

/// Lets threads run that were woken meanwhile, between pieces of long work. The host's scheduler has one that has run
/// much of late wait for the next tick, though the one that runs in its place is nicer, and looks again when that one
/// sleeps, however short. (To yield, as of sched_yield(2), gives away a whole time slice and more.) Where others keep
/// the processor then for long, that was this work's due: it goes on for as long without.
pub struct Breath {
    since: Instant,
    slept: Duration,
}

impl Default for Breath {
    fn default() -> Breath {
        Breath::new()
    }
}

impl Breath {
    /// Before the first piece.
    pub fn new() -> Breath {
        Breath { since: Instant::now(), slept: Duration::ZERO }
    }

    /// After a piece.
    pub fn take(&mut self) {
        let begin = Instant::now();
        if begin.duration_since(self.since) < self.slept {
            return;
        }
        std::thread::sleep(BREATH);
        self.since = Instant::now();
        self.slept = self.since.duration_since(begin);
    }
}

fn heap_layout(len: usize) -> Layout {
    Layout::from_size_align(len.max(1), 4096).expect("a region is at most some MiB")
}

/// A region shared with another party (a mapped memfd, or heap memory in embedded mode), or a part of one.
/// Cloning shares; the memory lives as long as any clone. Thread-safe: all access is by copy or atomic.
#[derive(Clone)]
pub struct SharedRegion {
    mapping: Arc<Mapping>,
    off: usize,
    len: usize,
}

impl SharedRegion {
    /// Zeroed, page-aligned memory of this process.
    pub fn heap(len: usize) -> SharedRegion {
        // SAFETY: the layout has a size of at least one byte.
        let base = unsafe { std::alloc::alloc_zeroed(heap_layout(len)) };
        let base = NonNull::new(base).unwrap_or_else(|| std::alloc::handle_alloc_error(heap_layout(len)));
        SharedRegion { mapping: Arc::new(Mapping { base, len, backing: Backing::Heap, breathes: false }), off: 0, len }
    }

    /// Maps `len` bytes of a memfd, populated, and not inherited over fork. Takes long for a large one, in pieces
    /// between which other threads may change the process's memory.
    ///
    /// # Errors
    /// As mmap(2) and madvise(2) with MADV_POPULATE_WRITE; ENOMEM where the memory is not to be had.
    pub fn map(fd: impl AsFd, len: usize) -> std::io::Result<SharedRegion> {
        SharedRegion::map_in_pieces(fd, len, None)
    }

    fn map_in_pieces(fd: impl AsFd, len: usize, mut breath: Option<Breath>) -> std::io::Result<SharedRegion> {
        use rustix::mm::{Advice, MapFlags, ProtFlags};
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; it aliases nothing of ours.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(std::io::ErrorKind::AddrNotAvailable)?;
        let region = SharedRegion {
            mapping: Arc::new(Mapping { base, len, backing: Backing::Map, breathes: false }),
            off: 0,
            len,
        };
        // SAFETY: the whole of our own mapping, page-aligned; the advice changes only what a child inherits.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork)? };
        for (at, len) in pieces(len) {
            // SAFETY: a part of our own mapping, page-aligned; populating changes no byte.
            match unsafe { rustix::mm::madvise(base.add(at).as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
                Ok(()) => breath.iter_mut().for_each(Breath::take),
                // A kernel before 5.14: pages come as they are used.
                Err(rustix::io::Errno::INVAL) => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(region)
    }

    /// Whether it is memory that is mapped, and may be shared with another process.
    pub fn is_mapped(&self) -> bool {
        matches!(self.mapping.backing, Backing::Map)
    }

    /// Whether nothing else in this process refers to this memory: it goes with this region.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.mapping) == 1
    }

    /// Gives the memory back, if this is the last that refers to it, in pieces between which other threads run.
    pub fn give_back(self) {
        if let Ok(mut mapping) = Arc::try_unwrap(self.mapping) {
            mapping.breathes = true;
        }
    }

    /// A new memfd of `len` bytes: created, populated, mapped, and sealed against resizing and further seals. For a
    /// device: others of its threads run between two pieces.
    pub(crate) fn create_sealed(name: &str, len: usize) -> std::io::Result<(OwnedFd, SharedRegion)> {
        use rustix::fs::SealFlags;
        let fd = private_memfd(name)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        let region = SharedRegion::map_in_pieces(&fd, len, Some(Breath::new()))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((fd, region))
    }

    /// A part of this region as a region; EFAULT when it is not inside.
    pub fn sub(&self, off: usize, len: usize) -> Result<SharedRegion, Errno> {
        if off.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::FAULT);
        }
        Ok(SharedRegion { mapping: self.mapping.clone(), off: self.off + off, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of a range; EFAULT when it is not inside.
    #[inline]
    pub fn slice(&self, range: PoolRange) -> Result<SharedBytes<'_>, Errno> {
        self.bytes(range.off as usize, range.len as usize)
    }

    /// The bytes `off..off + len`; EFAULT when not inside.
    #[inline]
    pub fn bytes(&self, off: usize, len: usize) -> Result<SharedBytes<'_>, Errno> {
        if off.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::FAULT);
        }
        // SAFETY: off + len <= self.len, and self.off + self.len <= mapping.len (checked in `sub`).
        let base = unsafe { self.mapping.base.add(self.off + off) };
        Ok(SharedBytes { base, len, life: PhantomData })
    }

    /// Address of the region's first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: self.off <= mapping.len.
        unsafe { self.mapping.base.add(self.off) }
    }
}

impl core::fmt::Debug for SharedRegion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedRegion({} bytes)", self.len)
    }
}

/// Bytes that [`SharedBytes::come_near`] asks for, at most: later ones are foreseen by the processor itself.
pub(crate) const NEAR_MAX: usize = 4096;

/// Borrowed bytes that another party may change at any moment, or private ones that go where such bytes go. Only copies
/// go in or out; reading twice may give two answers, so copy once, then validate and use the copy.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    base: NonNull<u8>,
    len: usize,
    life: PhantomData<&'a SharedRegion>,
}

// SAFETY: a bounded pointer into a `Mapping`, which is Send + Sync, or into bytes that are borrowed alone for as long
// as this lives (`of_private`), so that nothing refers to them; accesses are copies. Threads that copy at the same time
// to one place spoil bytes, of which nothing but bytes is ever made.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes<'_> {}

impl<'a> SharedBytes<'a> {
    /// Private memory as what copies go into that may go to a pool, too.
    #[inline]
    pub fn of_private(bytes: &'a mut [u8]) -> SharedBytes<'a> {
        let len = bytes.len();
        SharedBytes { base: NonNull::from(bytes).cast(), len, life: PhantomData }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies out `dst.len()` bytes from the start. Panics when `dst` is longer.
    #[inline]
    pub fn copy_to(&self, dst: &mut [u8]) {
        assert!(dst.len() <= self.len, "copy within the range");
        // SAFETY: in bounds by the assertion; `dst` is private, so they do not overlap. The peer may write meanwhile:
        // the bytes copied are then any mixture, which the caller treats as untrusted input anyway.
        unsafe { core::ptr::copy_nonoverlapping(self.base.as_ptr(), dst.as_mut_ptr(), dst.len()) };
    }

    /// Copies `src` in at the start. Panics when `src` is longer.
    #[inline]
    pub fn copy_from(&self, src: &[u8]) {
        assert!(src.len() <= self.len, "copy within the range");
        // SAFETY: in bounds by the assertion; `src` is private memory. Racing peer writes only spoil the peer's bytes.
        unsafe { core::ptr::copy_nonoverlapping(src.as_ptr(), self.base.as_ptr(), src.len()) };
    }

    /// All bytes, copied out.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = Vec::with_capacity(self.len);
        self.append_to(&mut v);
        v
    }

    /// All bytes, copied behind those of `v`.
    pub fn append_to(&self, v: &mut Vec<u8>) {
        v.reserve(self.len);
        let before = v.len();
        // SAFETY: in bounds; `v` is private memory with room for so many bytes behind its `before`, and has all of them
        // afterwards. As in `copy_to`, the peer may write meanwhile.
        unsafe {
            core::ptr::copy_nonoverlapping(self.base.as_ptr(), v.as_mut_ptr().add(before), self.len);
            v.set_len(before + self.len);
        }
    }

    /// Fills with zeros.
    #[inline]
    pub fn zero(&self) {
        // SAFETY: in bounds; nothing of ours refers to these bytes.
        unsafe { core::ptr::write_bytes(self.base.as_ptr(), 0, self.len) };
    }

    /// Asks the processor to bring the first bytes near, at most `NEAR_MAX` of them, while something else is done:
    /// what another processor has just written takes as long to come as a short command takes. `write`: they are going
    /// to be written. Changes nothing, and does nothing where it is not known how.
    #[inline]
    pub fn come_near(&self, write: bool) {
        #[cfg(target_arch = "x86_64")]
        {
            use core::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            for at in (0..self.len.min(NEAR_MAX)).step_by(64) {
                // SAFETY: at < self.len; a prefetch reads and writes nothing, whatever the address, and processors
                // that do not know the hint take it for no operation.
                unsafe {
                    let line = self.base.as_ptr().add(at).cast::<i8>();
                    if write { _mm_prefetch::<_MM_HINT_ET0>(line) } else { _mm_prefetch::<_MM_HINT_T0>(line) }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = write;
    }

    /// The part `off..off + len`. Panics when not inside.
    #[inline]
    pub fn sub(&self, off: usize, len: usize) -> SharedBytes<'a> {
        assert!(off.checked_add(len).is_some_and(|end| end <= self.len), "part within the range");
        // SAFETY: off <= self.len.
        SharedBytes { base: unsafe { self.base.add(off) }, len, life: PhantomData }
    }

    /// First byte, for copy kernels; valid for reads of `len` bytes, which the peer may be changing.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// First byte, for copy kernels; valid for writes of `len` bytes.
    #[inline]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl core::fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.len)
    }
}
