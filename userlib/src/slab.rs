//! Offsets inside one queue's buffer pool: who uses which bytes. Pure bookkeeping; it never sees the memory.
//!
//! Power-of-two size classes with a last-in-first-out list each (the hottest buffer is handed out again), split on
//! demand as buddies. Freeing never merges, so alloc and free are a few instructions; buddies are merged only when
//! an allocation finds nothing, which a steady workload never reaches.

/// Bytes of the smallest buffer.
const CLASS_MIN_SHIFT: u32 = 7;
/// Bytes of the largest class: above it there is nothing to hand out.
const CLASS_MAX_SHIFT: u32 = 26;
const CLASSES: usize = (CLASS_MAX_SHIFT - CLASS_MIN_SHIFT + 1) as usize;

/// The allocator of one pool.
#[derive(Debug)]
pub(crate) struct Slab {
    free: [Vec<u32>; CLASSES],
    used: u32,
}

/// The class whose buffers hold `len` bytes.
fn class_of(len: u32) -> Option<usize> {
    let shift = len.max(1).checked_next_power_of_two()?.trailing_zeros().max(CLASS_MIN_SHIFT);
    (shift <= CLASS_MAX_SHIFT).then_some((shift - CLASS_MIN_SHIFT) as usize)
}

const fn class_bytes(class: usize) -> u32 {
    1 << (class as u32 + CLASS_MIN_SHIFT)
}

impl Slab {
    /// All of `bytes` free. A tail smaller than the smallest class is unused.
    pub(crate) fn new(bytes: u32) -> Slab {
        let mut slab = Slab { free: std::array::from_fn(|_| Vec::with_capacity(16)), used: 0 };
        let (mut off, mut left) = (0, bytes);
        while left >= class_bytes(0) {
            let class = ((31 - left.leading_zeros()).min(CLASS_MAX_SHIFT) - CLASS_MIN_SHIFT) as usize;
            slab.free[class].push(off);
            off += class_bytes(class);
            left -= class_bytes(class);
        }
        slab
    }

    /// Bytes handed out, in whole buffers.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// The offset of a buffer of at least `len` bytes, aligned to its size; `None` when nothing fits.
    pub(crate) fn alloc(&mut self, len: u32) -> Option<u32> {
        let class = class_of(len)?;
        let off = match self.take(class) {
            Some(off) => off,
            None => {
                self.merge();
                self.take(class)?
            }
        };
        self.used += class_bytes(class);
        Some(off)
    }

    /// Gives back the buffer at `off` that was allocated for `len` bytes.
    pub(crate) fn free(&mut self, off: u32, len: u32) {
        let Some(class) = class_of(len) else { return };
        debug_assert!(off.is_multiple_of(class_bytes(class)) && self.used >= class_bytes(class));
        self.free[class].push(off);
        self.used -= class_bytes(class);
    }

    fn take(&mut self, class: usize) -> Option<u32> {
        if let Some(off) = self.free[class].pop() {
            return Some(off);
        }
        let from = (class + 1..CLASSES).find(|&c| !self.free[c].is_empty())?;
        let off = self.free[from].pop()?;
        for c in class..from {
            self.free[c].push(off + class_bytes(c));
        }
        Some(off)
    }

    #[cold]
    fn merge(&mut self) {
        for class in 0..CLASSES - 1 {
            let mut list = std::mem::take(&mut self.free[class]);
            list.sort_unstable();
            let (mut kept, mut i) = (0, 0);
            while i < list.len() {
                let buddy = list[i] ^ class_bytes(class);
                let pairs = list[i].is_multiple_of(class_bytes(class + 1)) && list.get(i + 1) == Some(&buddy);
                if pairs {
                    self.free[class + 1].push(list[i]);
                    i += 2;
                } else {
                    list[kept] = list[i];
                    kept += 1;
                    i += 1;
                }
            }
            list.truncate(kept);
            self.free[class] = list;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_never_overlap_and_everything_comes_back() {
        let mut slab = Slab::new(1 << 20);
        let mut seed = 0x9e37_79b9_u64;
        let mut held: Vec<(u32, u32)> = Vec::new();
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let roll = (seed >> 33) as u32;
            if roll.is_multiple_of(2) || held.is_empty() {
                let len = 1 + roll % 40_000;
                if let Some(off) = slab.alloc(len) {
                    assert!(off + len <= 1 << 20);
                    assert!(held.iter().all(|&(o, l)| off + len <= o || o + l <= off), "overlap");
                    held.push((off, len));
                }
            } else {
                let (off, len) = held.swap_remove(roll as usize % held.len());
                slab.free(off, len);
            }
        }
        for (off, len) in held.drain(..) {
            slab.free(off, len);
        }
        assert_eq!(slab.used(), 0);
        assert_eq!(slab.alloc(1 << 20), Some(0), "merging restores the whole pool");
    }

    #[test]
    fn large_buffers_are_page_aligned_and_impossible_ones_are_refused() {
        let mut slab = Slab::new((1 << 20) + 4096 + 100);
        assert!(slab.alloc(128).is_some());
        assert!(slab.alloc(5000).is_some_and(|o| o % 4096 == 0));
        assert_eq!(slab.alloc((1 << 20) + 1), None);
        assert_eq!(slab.alloc(u32::MAX), None);
    }
}
