//! Where bytes of files are kept that this process has read (`pages` says for how long): chunks of `CHUNK` bytes in one
//! stretch of anonymous memory, each at a place that its number determines, so that keeping one takes no memory of the
//! program's heap and no lock that is waited for. A chunk that is kept where another was takes its place.

use crate::config::{self, CACHE_DEFAULT, CACHE_MAX};
use crate::sys;
use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Bytes of a chunk.
pub const CHUNK: usize = 16 << 10;

/// How many times the memory for chunks the addresses of a process must be at least.
const ADDRESSES: usize = 16;

/// One chunk's place.
struct Slot {
    /// Held for a copy, and never waited for.
    busy: AtomicBool,
    /// Bytes that are kept; fewer than `CHUNK` only at the end of a file.
    len: AtomicU32,
    /// Of which file as it was when: 0, of none.
    epoch: AtomicU64,
    /// Which of its chunks.
    chunk: AtomicU64,
}

static SLOTS: [Slot; CACHE_MAX / CHUNK] = [const {
    Slot { busy: AtomicBool::new(false), len: AtomicU32::new(0), epoch: AtomicU64::new(0), chunk: AtomicU64::new(0) }
}; CACHE_MAX / CHUNK];
/// The memory, `slots() * CHUNK` bytes of it; null until it is needed.
static BASE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// There is none.
static NONE: AtomicBool = AtomicBool::new(false);
static LAST: AtomicU64 = AtomicU64::new(0);

/// Bytes of that memory; 0 until it is there. Stored before `BASE`, and never again.
static ROOM: AtomicUsize = AtomicUsize::new(0);

/// Bytes that may be kept.
pub fn room() -> usize {
    match ROOM.load(Ordering::Relaxed) {
        0 => config::get().map_or(0, |config| config.cache),
        len => len,
    }
}

/// How many places there are.
fn slots() -> usize {
    room() / CHUNK
}

/// Whether anything is kept: it may be that there is to be no memory for it, or that there is none.
pub fn are_kept() -> bool {
    memory().is_some()
}

/// A name for a file as it is from now on, which none had before in this process or one that it was forked from.
pub fn new_epoch() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn place(epoch: u64, chunk: u64, slots: usize) -> usize {
    // Chunks of one file lie at places of their own as long as there are any; files begin anywhere.
    (epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).wrapping_add(chunk) as usize % slots
}

/// A place that this thread has for itself.
struct Held {
    slot: &'static Slot,
    bytes: *mut u8,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.slot.busy.store(false, Ordering::Release);
    }
}

fn hold(epoch: u64, chunk: u64, base: *mut u8) -> Option<Held> {
    if base.is_null() {
        return None;
    }
    let slots = slots();
    if slots == 0 {
        return None;
    }
    let at = place(epoch, chunk, slots);
    let slot = SLOTS.get(at)?;
    if slot.busy.swap(true, Ordering::Acquire) {
        return None;
    }
    // SAFETY: `at` is below `slots`, asked for when `base` was known. The length was stored before `base` was, once: so
    // `slots` is as many chunks as `base` has.
    Some(Held { slot, bytes: unsafe { base.add(at * CHUNK) } })
}

/// Bytes of a chunk that is kept just now: fewer than `CHUNK` of the last one of a file, and of what is behind it.
pub fn kept(epoch: u64, chunk: u64) -> Option<usize> {
    let held = hold(epoch, chunk, BASE.load(Ordering::Acquire))?;
    is(held.slot, epoch, chunk).then(|| (held.slot.len.load(Ordering::Relaxed) as usize).min(CHUNK))
}

fn is(slot: &Slot, epoch: u64, chunk: u64) -> bool {
    slot.epoch.load(Ordering::Relaxed) == epoch && slot.chunk.load(Ordering::Relaxed) == chunk
}

/// Copies what there is of a chunk from its byte `from` on; how much that is. `None`: it is not kept.
pub fn find(epoch: u64, chunk: u64, from: usize, out: &mut [u8]) -> Option<usize> {
    let held = hold(epoch, chunk, BASE.load(Ordering::Acquire))?;
    let slot = held.slot;
    if !is(slot, epoch, chunk) {
        return None;
    }
    let len = (slot.len.load(Ordering::Relaxed) as usize).min(CHUNK);
    let n = len.saturating_sub(from).min(out.len());
    if n > 0 {
        // SAFETY: `from + n` is at most `CHUNK`, and the place is this thread's as long as it holds it; `out` is the
        // caller's own memory, never a part of this stretch, of which no other address is given away.
        unsafe { copy_nonoverlapping(held.bytes.add(from), out.as_mut_ptr(), n) };
    }
    Some(n)
}

/// Keeps a chunk of `len` bytes that `fill` writes. Nothing is kept where its place is in use just now, or there is no
/// memory.
pub fn keep(epoch: u64, chunk: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
    let Some(held) = memory().and_then(|base| hold(epoch, chunk, base)) else { return };
    let (slot, len) = (held.slot, len.min(CHUNK));
    // Until it is whole it is no file's.
    slot.epoch.store(0, Ordering::Relaxed);
    // SAFETY: `len` is at most `CHUNK`; the place is this thread's as long as it holds it, and its memory, which the
    // kernel zeroes, is initialised (in a child, which has zeros for what its parent kept, too).
    fill(unsafe { std::slice::from_raw_parts_mut(held.bytes, len) });
    slot.len.store(len as u32, Ordering::Relaxed);
    slot.chunk.store(chunk, Ordering::Relaxed);
    slot.epoch.store(epoch, Ordering::Relaxed);
}

fn memory() -> Option<*mut u8> {
    let base = BASE.load(Ordering::Acquire);
    if !base.is_null() {
        return Some(base);
    }
    if NONE.load(Ordering::Relaxed) { None } else { map() }
}

#[cold]
fn map() -> Option<*mut u8> {
    let most = address_space() / ADDRESSES;
    // Where much is allowed and there is little, it is as much as where nothing is said.
    let lengths = [slots() * CHUNK, CACHE_DEFAULT.min(slots() * CHUNK)];
    let Some((made, len)) = lengths.into_iter().filter(|len| (1..=most).contains(len)).find_map(anonymous) else {
        // It is not tried for each read.
        NONE.store(true, Ordering::Relaxed);
        return None;
    };
    // A child has no use for it, a dump neither; and it is taken as it is used. Without these it is as good.
    for advice in [libc::MADV_WIPEONFORK, libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
        let _ = sys::checked(libc::SYS_madvise, [made, len, advice as usize, 0, 0, 0]);
    }
    if ROOM.compare_exchange(0, len, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        BASE.store(made as *mut u8, Ordering::Release);
        return Some(made as *mut u8);
    }
    // Another thread was here first, and what it made is there for both; before it has said so, nothing is kept.
    let _ = sys::checked(libc::SYS_munmap, [made, len, 0, 0, 0, 0]);
    let first = BASE.load(Ordering::Acquire);
    (!first.is_null()).then_some(first)
}

/// Memory of so many bytes, and how many that are.
fn anonymous(len: usize) -> Option<(usize, usize)> {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    let made = sys::checked(libc::SYS_mmap, [0, len, prot, flags, usize::MAX, 0]).ok()?;
    Some((made, len))
}

/// Bytes that this process may map at all, or of its own: of few, none are taken.
fn address_space() -> usize {
    let limit = |resource: libc::__rlimit_resource_t| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        sys::call(libc::SYS_prlimit64, [0, resource as usize, 0, &raw mut limit as usize, 0, 0]);
        usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
    };
    limit(libc::RLIMIT_AS).min(limit(libc::RLIMIT_DATA))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_one_file_lie_at_places_of_their_own() {
        for epoch in 1..50 {
            let mut places: Vec<usize> = (0..512).map(|chunk| place(epoch, chunk, 512)).collect();
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..512), "{epoch}");
        }
    }
}
