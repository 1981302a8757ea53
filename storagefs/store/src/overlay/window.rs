//! One window (256 file blocks) of one inode: in a layer of the overlay as deltas, in the tree as a packed value.

use super::patch::Patches;
use crate::codec::DecodeError;
use crate::effect::BlockState;
use crate::limits::WINDOW_BLOCKS;
use std::sync::Arc;

/// A file block's place on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Block on the medium.
    pub addr: u64,
    /// Stamp of the effect that put it there.
    pub birth: u64,
    /// CRC32C of its 4 KiB (Written only).
    pub crc: u32,
    /// What it holds.
    pub state: BlockState,
}

/// What a layer says about the content below its patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// Nothing: the layer below decides.
    Below,
    /// A hole.
    Hole,
    /// A block.
    Block(Mapping),
}

/// What a layer says about one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Under the patches.
    pub under: Under,
    /// Bytes laid over it.
    pub patches: Option<Arc<Patches>>,
}

/// A set of the 256 blocks of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits(pub [u64; 4]);

impl Bits {
    /// Whether block `i` is in.
    pub fn get(&self, i: u8) -> bool {
        self.0[usize::from(i >> 6)] >> (i & 63) & 1 == 1
    }

    /// Puts block `i` in or out.
    pub fn set(&mut self, i: u8, on: bool) {
        let word = &mut self.0[usize::from(i >> 6)];
        *word = *word & !(1 << (i & 63)) | u64::from(on) << (i & 63);
    }

    /// Whether one above `i` is in.
    #[inline]
    fn has_above(&self, i: u8) -> bool {
        let [a, b, c, d] = self.0;
        match i >> 6 {
            0 => a >> (i & 63) > 1 || (b | c | d) != 0,
            1 => b >> (i & 63) > 1 || (c | d) != 0,
            2 => c >> (i & 63) > 1 || d != 0,
            _ => d >> (i & 63) > 1,
        }
    }

    /// How many blocks below `i` are in.
    fn rank(&self, i: u8) -> usize {
        let w = usize::from(i >> 6);
        let below = self.0[..w].iter().map(|x| x.count_ones()).sum::<u32>();
        (below + (self.0[w] & ((1u64 << (i & 63)) - 1)).count_ones()) as usize
    }

    /// How many are in.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }

    /// The blocks that are in, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=255u8).filter(|i| self.get(*i))
    }
}

/// A layer's deltas of one window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Win {
    /// Blocks the layer says something about.
    touched: Bits,
    /// Blocks held (a place on the medium, or reserved for patches) in the layers below. A checkpoint of those never
    /// changes it, so it stays true when a lower layer drops.
    pub below: Bits,
    /// One slot per touched block, ascending.
    slots: Vec<Slot>,
}

impl Win {
    /// Untouched, over a lower state that holds `below`.
    pub fn over(below: Bits) -> Win {
        Win { touched: Bits::default(), below, slots: Vec::new() }
    }

    /// What the layer says about block `i`.
    #[inline]
    pub fn slot(&self, i: u8) -> Option<&Slot> {
        if self.touched.get(i) { Some(&self.slots[self.place(i)]) } else { None }
    }

    /// Where among the slots that of block `i` is, or belongs.
    #[inline]
    fn place(&self, i: u8) -> usize {
        // Files mostly grow at their end.
        match self.touched.has_above(i) {
            false => self.slots.len() - usize::from(self.touched.get(i)),
            true => self.touched.rank(i),
        }
    }

    /// The slot of block `i`, touched from now on.
    pub(crate) fn slot_mut(&mut self, i: u8) -> &mut Slot {
        let at = self.place(i);
        if !self.touched.get(i) {
            self.touched.set(i, true);
            self.slots.insert(at, Slot { under: Under::Below, patches: None });
        }
        &mut self.slots[at]
    }

    /// Whether block `i` can be told without the layers below.
    pub(crate) fn says(&self, i: u8) -> bool {
        !self.below.get(i) || self.slot(i).is_some_and(|s| s.patches.is_some() || s.under != Under::Below)
    }

    /// Whether block `i` is held in the composed state.
    pub fn held(&self, i: u8) -> bool {
        match self.slot(i) {
            None => self.below.get(i),
            Some(Slot { patches: Some(_), .. } | Slot { under: Under::Block(_), .. }) => true,
            Some(Slot { under: Under::Hole, .. }) => false,
            Some(Slot { under: Under::Below, .. }) => self.below.get(i),
        }
    }

    /// Blocks held in the composed state.
    pub(crate) fn held_bits(&self) -> Bits {
        let mut bits = self.below;
        for i in self.touched.iter() {
            bits.set(i, self.held(i));
        }
        bits
    }

    /// Touched blocks and their slots, ascending.
    pub fn slots(&self) -> impl Iterator<Item = (u8, &Slot)> {
        self.touched.iter().zip(&self.slots)
    }

    /// Memory held apart from patches, bytes (an estimate for the budget).
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + size_of::<Win>()
    }
}

/// Bytes of a run's head in a window value: first block, blocks - 1, state, flags, address (8), birth (8).
const RUN_HEAD: usize = 20;
/// Version byte of a window value.
const VERSION: u8 = 1;

/// Packs mappings (ascending blocks) into the value of key `Window(ino, win)`. Neighbours on consecutive medium blocks
/// join into runs if equal in birth, or if both births lie above `join_above`: then the run takes the later birth.
/// Pass `u64::MAX` where births must stay exact (an entry of the inode still waits for reclaim).
pub fn pack(blocks: &[(u8, Mapping)], join_above: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    let mut i = 0;
    while i < blocks.len() {
        let (first, m) = blocks[i];
        let mut birth = m.birth;
        let mut n = 1;
        while let Some((b, next)) = blocks.get(i + n) {
            let step = n as u64;
            let joined = next.birth == birth || (next.birth > join_above && birth > join_above);
            let follows = u64::from(*b) == u64::from(first) + step && next.addr == m.addr + step;
            if !follows || !joined || next.state != m.state {
                break;
            }
            birth = birth.max(next.birth);
            n += 1;
        }
        out.extend_from_slice(&[first, (n - 1) as u8, m.state as u8, 0]);
        out.extend_from_slice(&m.addr.to_le_bytes());
        out.extend_from_slice(&birth.to_le_bytes());
        if m.state != BlockState::Unwritten {
            for (_, b) in &blocks[i..i + n] {
                out.extend_from_slice(&b.crc.to_le_bytes());
            }
        }
        i += n;
    }
    out
}

/// A run of a window value.
struct Run<'a> {
    first: u8,
    count: u16,
    state: BlockState,
    addr: u64,
    birth: u64,
    crcs: &'a [u8],
}

impl Run<'_> {
    fn mapping(&self, i: u16) -> Mapping {
        let at = usize::from(i) * 4;
        let crc = match self.crcs.get(at..at + 4) {
            Some(c) => u32::from_le_bytes([c[0], c[1], c[2], c[3]]),
            None => 0,
        };
        Mapping { addr: self.addr + u64::from(i), birth: self.birth, crc, state: self.state }
    }
}

/// Takes the next run off `rest`; `from` is the lowest block it may begin with.
fn next_run<'a>(rest: &mut &'a [u8], from: u16) -> Result<Run<'a>, DecodeError> {
    let (head, tail) = rest.split_at_checked(RUN_HEAD).ok_or(DecodeError("window: short"))?;
    let word = |at: usize| {
        let mut w = [0u8; 8];
        w.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(w)
    };
    let (first, count) = (head[0], u16::from(head[1]) + 1);
    let state = match head[2] {
        1 => BlockState::Written,
        2 => BlockState::Unwritten,
        3 => BlockState::Bad,
        _ => return Err(DecodeError("window: state")),
    };
    let (addr, birth) = (word(4), word(12));
    if u16::from(first) < from || u16::from(first) + count > WINDOW_BLOCKS as u16 {
        return Err(DecodeError("window: order of runs"));
    }
    if head[3] != 0 || addr == 0 || addr >= (1 << 48) - WINDOW_BLOCKS {
        return Err(DecodeError("window: run"));
    }
    let n = if state == BlockState::Unwritten { 0 } else { usize::from(count) * 4 };
    let (crcs, tail) = tail.split_at_checked(n).ok_or(DecodeError("window: short"))?;
    *rest = tail;
    Ok(Run { first, count, state, addr, birth, crcs })
}

fn body(v: &[u8]) -> Result<&[u8], DecodeError> {
    match v.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        _ => Err(DecodeError("window of an unknown version")),
    }
}

/// All mappings of a window value, ascending.
///
/// # Errors
/// Bytes that `pack` does not produce.
pub fn unpack(v: &[u8]) -> Result<Vec<(u8, Mapping)>, DecodeError> {
    let mut rest = body(v)?;
    let (mut out, mut from) = (Vec::new(), 0u16);
    while !rest.is_empty() {
        let run = next_run(&mut rest, from)?;
        from = u16::from(run.first) + run.count;
        out.extend((0..run.count).map(|i| (run.first + i as u8, run.mapping(i))));
    }
    Ok(out)
}

/// The mapping of one block in a window value.
///
/// # Errors
/// Bytes that `pack` does not produce.
pub fn find(v: &[u8], blk: u8) -> Result<Option<Mapping>, DecodeError> {
    let mut rest = body(v)?;
    let mut from = 0u16;
    while !rest.is_empty() {
        let run = next_run(&mut rest, from)?;
        if blk < run.first {
            return Ok(None);
        }
        from = u16::from(run.first) + run.count;
        if u16::from(blk) < from {
            return Ok(Some(run.mapping(u16::from(blk - run.first))));
        }
    }
    Ok(None)
}

/// Blocks with a place on the medium in a window value.
///
/// # Errors
/// Bytes that `pack` does not produce.
pub fn held(v: &[u8]) -> Result<Bits, DecodeError> {
    let mut rest = body(v)?;
    let (mut bits, mut from) = (Bits::default(), 0u16);
    while !rest.is_empty() {
        let run = next_run(&mut rest, from)?;
        from = u16::from(run.first) + run.count;
        (0..run.count).for_each(|i| bits.set(run.first + i as u8, true));
    }
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m(addr: u64, birth: u64) -> Mapping {
        Mapping { addr, birth, crc: addr as u32 ^ 0x5555, state: BlockState::Written }
    }

    #[test]
    fn a_packed_window_reads_back() {
        let mut blocks: Vec<(u8, Mapping)> = (0..=255).map(|i| (i, m(1000 + 3 * u64::from(i), 9))).collect();
        blocks[7].1.state = BlockState::Unwritten;
        blocks[7].1.crc = 0;
        let v = pack(&blocks, u64::MAX);
        assert!(v.len() <= crate::limits::VALUE_MAX);
        assert_eq!(unpack(&v).unwrap(), blocks);
        assert!((0..=255).all(|i| find(&v, i).unwrap() == Some(blocks[usize::from(i)].1)));
        assert_eq!(held(&v).unwrap().count(), 256);
    }

    #[test]
    fn runs_join_only_where_births_allow() {
        let blocks: Vec<(u8, Mapping)> = (0..10).map(|i| (i, m(50 + u64::from(i), 100 + u64::from(i)))).collect();
        assert_eq!(pack(&blocks, u64::MAX).len(), 1 + 10 * (RUN_HEAD + 4));
        let joined = pack(&blocks, 99);
        assert_eq!(joined.len(), 1 + RUN_HEAD + 40);
        assert!(unpack(&joined).unwrap().iter().all(|(_, m)| m.birth == 109));
    }

    #[test]
    fn hostile_window_values_are_errors() {
        let v = pack(&[(5, m(50, 1)), (9, m(70, 1))], 0);
        for n in 0..v.len() {
            let _ = (unpack(&v[..n]), find(&v[..n], 200), held(&v[..n]));
        }
        let mut w = v.clone();
        w[1 + RUN_HEAD + 4] = 3;
        assert!(unpack(&w).is_err(), "runs out of order");
        assert!(unpack(&[2]).is_err() && unpack(&[]).is_err());
    }

    #[test]
    fn a_block_has_one_above_it_if_one_above_it_is_in() {
        for one in 0..=255u8 {
            let mut bits = Bits::default();
            bits.set(one, true);
            assert!((0..=255).all(|i| bits.has_above(i) == (i < one)), "{one}");
        }
        assert!((0..=255).all(|i| !Bits::default().has_above(i)));
    }

    #[test]
    fn slots_are_found_by_rank() {
        let mut w = Win::over(Bits::default());
        for i in [200u8, 3, 64, 63, 255, 0] {
            w.slot_mut(i).under = Under::Block(m(u64::from(i) + 1, 1));
        }
        for i in 0..=255u8 {
            let want = [200u8, 3, 64, 63, 255, 0].contains(&i);
            assert_eq!(w.slot(i).is_some(), want);
            assert_eq!(w.held(i), want);
        }
        assert_eq!(w.held_bits().count(), 6);
    }
}
