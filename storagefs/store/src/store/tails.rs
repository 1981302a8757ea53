//! The last blocks of files that grow by parts of blocks: what the next append would have to read back from the medium
//! and verify is kept in memory from the one before. On byte-addressable media only.
//!
//! An entry says what lies in one block of the medium. It is used only while that block is mapped where it was when the
//! entry was made and no checkpoint has ended since: blocks are never changed in place, and a block that came free is
//! given out again only after a checkpoint has ended. Clients never read from here: what they read is read from the
//! medium and verified.

use crate::scratch::BlockBuf;
use weldfs_locks::Mutex;

/// Files whose last block is kept, at most; a power of two. Each takes 4 KiB.
const FILES: usize = 64;

/// What a command wrote to the last block of a file, on its way to the table.
#[derive(Debug)]
pub struct Tail {
    /// The file.
    pub ino: u64,
    /// The file's block.
    pub blk: u64,
    /// The medium's block.
    pub addr: u64,
    /// Its bytes.
    pub bytes: BlockBuf,
    /// How many of them, from the front, are not just zeros that fill the block.
    pub len: usize,
    /// CRC32C of those.
    pub crc: u32,
}

#[derive(Debug)]
struct Entry {
    tail: Tail,
    /// The cut of the tree when the block had been mapped.
    cut: u64,
}

/// The table. Thread-safe.
#[derive(Debug)]
pub(crate) struct Tails {
    entries: Box<[Mutex<Option<Entry>>]>,
}

impl Default for Tails {
    fn default() -> Tails {
        Tails { entries: (0..FILES).map(|_| Mutex::default()).collect() }
    }
}

impl Tails {
    fn entry(&self, ino: u64) -> &Mutex<Option<Entry>> {
        &self.entries[ino as usize % FILES]
    }

    /// Keeps a block that is mapped now, over a tree with this cut. Its file is held by whoever mapped it.
    pub(crate) fn put(&self, tail: Tail, cut: u64) {
        let mut entry = self.entry(tail.ino).lock();
        *entry = Some(Entry { tail, cut });
    }

    /// The bytes of block `blk` of a file, if they are here: it is mapped to `addr` now, over a tree with this cut.
    pub(crate) fn get(&self, ino: u64, blk: u64, addr: u64, cut: u64, with: impl FnOnce(&Tail)) -> bool {
        let entry = self.entry(ino).lock();
        let same = |e: &&Entry| (e.tail.ino, e.tail.blk, e.tail.addr, e.cut) == (ino, blk, addr, cut);
        match entry.as_ref().filter(same) {
            None => false,
            Some(e) => {
                with(&e.tail);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_that_was_kept_is_found() {
        let tails = Tails::default();
        let mut bytes = BlockBuf::take();
        bytes.fill(9);
        tails.put(Tail { ino: 5, blk: 2, addr: 700, bytes, len: 4, crc: 1 }, 40);
        let found = |ino, blk, addr, cut| tails.get(ino, blk, addr, cut, |t| assert!(t.bytes.iter().all(|x| *x == 9)));
        assert!(found(5, 2, 700, 40));
        let others = [(5 + FILES as u64, 2, 700, 40), (5, 3, 700, 40), (5, 2, 701, 40), (5, 2, 700, 41)];
        assert!(others.iter().all(|(ino, blk, addr, cut)| !found(*ino, *blk, *addr, *cut)));
        let other = Tail { ino: 5 + FILES as u64, blk: 0, addr: 1, bytes: BlockBuf::take(), len: 0, crc: 0 };
        tails.put(other, 40);
        assert!(!found(5, 2, 700, 40), "one place, one file");
    }
}
