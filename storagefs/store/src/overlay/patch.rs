//! Byte ranges changed inside one block: small payload that lives in the log and the overlay until a checkpoint merges
//! it into the block.

use crate::limits::BLOCK;

/// Disjoint, non-adjacent pieces in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patches {
    /// Stamp of the latest change.
    pub birth: u64,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    off: u32,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u32 {
        self.off + self.bytes.len() as u32
    }
}

impl Patches {
    /// Puts `bytes` at byte `off` of the block (the range must lie inside it), over whatever was there.
    pub fn put(&mut self, stamp: u64, off: u32, bytes: &[u8]) {
        debug_assert!(off as usize + bytes.len() <= BLOCK);
        self.birth = self.birth.max(stamp);
        let end = off + bytes.len() as u32;
        // The log-like case: continues the last piece.
        if let Some(last) = self.pieces.last_mut().filter(|p| p.end() == off) {
            last.bytes.extend_from_slice(bytes);
            return;
        }
        // Pieces that touch or overlap off..end are joined into one.
        let first = self.pieces.partition_point(|p| p.end() < off);
        let last = self.pieces.partition_point(|p| p.off <= end);
        if first == last {
            self.pieces.insert(first, Piece { off, bytes: bytes.to_vec() });
            return;
        }
        if last == first + 1 && self.pieces[first].off <= off && self.pieces[first].end() >= end {
            let p = &mut self.pieces[first];
            let at = (off - p.off) as usize;
            p.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            return;
        }
        let from = off.min(self.pieces[first].off);
        let to = end.max(self.pieces[last - 1].end());
        let mut joined = vec![0u8; (to - from) as usize];
        for p in &self.pieces[first..last] {
            let at = (p.off - from) as usize;
            joined[at..at + p.bytes.len()].copy_from_slice(&p.bytes);
        }
        let at = (off - from) as usize;
        joined[at..at + bytes.len()].copy_from_slice(bytes);
        self.pieces.splice(first..last, [Piece { off: from, bytes: joined }]);
    }

    /// Puts the pieces over `block`.
    pub(crate) fn lay_over(&self, block: &mut [u8; BLOCK]) {
        for p in &self.pieces {
            block[p.off as usize..p.end() as usize].copy_from_slice(&p.bytes);
        }
    }

    /// The same between two places of the block only.
    pub(crate) fn lay_over_part(&self, block: &mut [u8; BLOCK], from: usize, to: usize) {
        for p in &self.pieces {
            let (start, end) = (from.max(p.off as usize), to.min(p.end() as usize));
            if start < end {
                let at = start - p.off as usize;
                block[start..end].copy_from_slice(&p.bytes[at..at + end - start]);
            }
        }
    }

    /// Whether all of them lie between two places of the block.
    pub(crate) fn lies_in(&self, from: usize, to: usize) -> bool {
        let first = self.pieces.first().is_none_or(|p| p.off as usize >= from);
        first && self.pieces.last().is_none_or(|p| p.end() as usize <= to)
    }

    /// Whether no byte of the range shows through.
    pub fn covers(&self, from: usize, to: usize) -> bool {
        self.pieces.iter().any(|p| p.off as usize <= from && to <= p.end() as usize)
    }

    /// Whether no byte of the block shows through.
    pub(crate) fn covers_block(&self) -> bool {
        matches!(&self.pieces[..], [p] if p.off == 0 && p.bytes.len() == BLOCK)
    }

    /// Memory held, bytes (an estimate for the budget).
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|p| p.bytes.capacity() + 40).sum::<usize>() + 56
    }

    /// Whether the pieces are disjoint, apart and inside the block.
    #[cfg(test)]
    fn is_valid(&self) -> bool {
        self.pieces.iter().all(|p| p.end() as usize <= BLOCK && !p.bytes.is_empty())
            && self.pieces.windows(2).all(|w| w[0].end() < w[1].off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn patches_equal_plain_stores(ops in proptest::collection::vec((0u32..4096, 1usize..300, any::<u8>()), 1..60)) {
            let mut patches = Patches::default();
            let (mut plain, mut covered) = (Box::new([0u8; BLOCK]), [false; BLOCK]);
            for (i, (off, len, byte)) in ops.into_iter().enumerate() {
                let len = len.min(BLOCK - off as usize);
                let bytes = vec![byte; len];
                patches.put(i as u64, off, &bytes);
                plain[off as usize..off as usize + len].copy_from_slice(&bytes);
                covered[off as usize..off as usize + len].fill(true);
                prop_assert!(patches.is_valid());
            }
            let mut out = Box::new([0u8; BLOCK]);
            patches.lay_over(&mut out);
            prop_assert_eq!(&out[..], &plain[..]);
            let mut parts = Box::new([0u8; BLOCK]);
            for (from, to) in [(0, 100), (100, 101), (101, 3000), (3000, BLOCK)] {
                patches.lay_over_part(&mut parts, from, to);
            }
            prop_assert_eq!(&parts[..], &plain[..]);
            let (first, last) = (covered.iter().position(|c| *c), covered.iter().rposition(|c| *c));
            let (first, end) = (first.unwrap_or(0), last.unwrap_or(0) + 1);
            prop_assert!(patches.lies_in(first, end));
            prop_assert!(!patches.lies_in(first + 1, end) && !patches.lies_in(0, end - 1));
            prop_assert_eq!(patches.covers(90, 150), covered[90..150].iter().all(|c| *c));
            prop_assert_eq!(patches.covers_block(), covered.iter().all(|c| *c));
        }
    }
}
