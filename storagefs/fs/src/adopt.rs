//! A command that a crash interrupted, run again by recovery: its client is gone, and what the client supplied lies on
//! the medium, named by the begin record.

use super::inode_set::Hold;
use super::stage::{BLOCK, BLOCK_BYTES};
use super::txn::Txn;
use weldfs_ciscops::{Access, ChecksumState, Errno, InodeNo, OpenFlags, Written};
use weldfs_functions::crc32c;
use weldfs_journal::canary::{Canary, planted};
use weldfs_store::effect::{BlockState, Effect, attr};
use weldfs_store::error::{FsError, FsResult, Place};
use weldfs_store::micro::{Begin, Input};
use weldfs_store::record::InodeRec;

/// Stands for an input that the begin record does not have.
pub(super) const NO_INPUT: u16 = u16::MAX;

impl<'a> Txn<'a> {
    /// The same transaction, run again from its begin record.
    pub(crate) fn again(mut self, begin: &'a Begin) -> Txn<'a> {
        self.again = Some(begin);
        self
    }

    /// The input that holds the client's bytes of a micro-op.
    pub(super) fn input_of(&self, index: u16) -> Option<u16> {
        let begin = self.again?;
        let found = begin.inputs.iter().position(|i| i.micro == index);
        Some(found.map_or(NO_INPUT, |i| i as u16))
    }

    /// Number and generation of a new inode: in recovery those that the first run chose.
    pub(super) fn fresh_number(&self) -> (InodeNo, u32) {
        if let Some(begin) = self.again {
            return (begin.file, begin.generation);
        }
        self.store.fresh_number(self.now)
    }

    /// Stages a write whose bytes are an input: the input's effects stand for it as they are.
    pub(super) fn write_adopted(
        &mut self,
        rec: &InodeRec,
        off: u64,
        input: u16,
        sum: Option<&mut ChecksumState>,
    ) -> FsResult<Written> {
        self.held(rec.ino, Hold::Exclusive)?;
        let inputs = self.again.map_or(&[][..], |b| &b.inputs);
        let Some(found) = inputs.get(usize::from(input)) else {
            return Err(damaged(rec.ino, off, "input of a transaction (missing)"));
        };
        if found.off != off && !planted(Canary::DoubleFinish) && !planted(Canary::SecondBegin) {
            return Err(damaged(rec.ino, off, "input of a transaction (for another place)"));
        }
        if let Some(sum) = sum {
            self.sum_input(rec.ino, found, sum)?;
        }
        self.data_effects.push(Effect::Input { ino: rec.ino, input });
        let (len, end) = (found.len, off.saturating_add(found.len));
        if end > rec.size {
            self.change(rec, attr::SIZE, |r| r.size = end);
        }
        self.modified(rec);
        Ok(Written { off, len })
    }

    /// Folds the bytes of an input into a checksum. Whole blocks count with the checksum that stands beside them.
    fn sum_input(&mut self, ino: InodeNo, input: &Input, sum: &mut ChecksumState) -> FsResult<()> {
        let end = input.off.saturating_add(input.len);
        let mut pos = input.off;
        while pos < end {
            let next = self.sum_piece(ino, input, pos, end, sum)?;
            if next <= pos {
                return Err(damaged(ino, pos, "input of a transaction (with gaps)"));
            }
            pos = next;
        }
        Ok(())
    }

    /// Folds in the piece that one effect of the input holds from `pos` on; says where it ends.
    fn sum_piece(&mut self, ino: InodeNo, input: &Input, pos: u64, end: u64, sum: &mut ChecksumState) -> FsResult<u64> {
        let (blk, within) = (pos / BLOCK_BYTES, (pos % BLOCK_BYTES) as usize);
        for e in &input.effects {
            match e {
                Effect::Patch { off, bytes, .. } if *off <= pos && pos < off + bytes.len() as u64 => {
                    let to = end.min(off + bytes.len() as u64);
                    sum.update(&bytes[(pos - off) as usize..(to - off) as usize]);
                    return Ok(to);
                }
                Effect::Map { blk: first, addr, count, state: BlockState::Written, crcs, .. }
                    if (*first..first + u64::from(*count)).contains(&blk) =>
                {
                    let at = blk - first;
                    let crc = crcs[at as usize];
                    let to = end.min((blk + 1) * BLOCK_BYTES);
                    if within == 0 && to - pos == BLOCK_BYTES {
                        sum.update_crc(crc, BLOCK);
                        return Ok(to);
                    }
                    let mut block = [0; BLOCK];
                    self.counters.blocks_read += 1;
                    self.medium().read((addr.0 + at) * BLOCK_BYTES, &mut block)?;
                    let actual = crc32c(&block);
                    if actual != crc {
                        let place = Place::File { ino: ino.0, off: pos };
                        return Err(FsError::corrupt("data checksum", place, crc.into(), actual.into()));
                    }
                    sum.update(&block[within..within + (to - pos) as usize]);
                    return Ok(to);
                }
                _ => {}
            }
        }
        Ok(pos)
    }

    /// The file of an interrupted command, with the grant that the first run had.
    pub(super) fn rejoined(&self, number: u64, access: Access) -> Result<super::FileRef, Errno> {
        let begin = self.again.ok_or(Errno::BADF)?;
        if begin.file.0 != number || !begin.flags.access().contains(access) || begin.flags.contains(OpenFlags::PATH) {
            return Err(Errno::BADF);
        }
        Ok(super::FileRef { ino: begin.file, access })
    }
}

fn damaged(ino: InodeNo, off: u64, what: &'static str) -> FsError {
    FsError::corrupt(what, Place::File { ino: ino.0, off }, 0, 1)
}
