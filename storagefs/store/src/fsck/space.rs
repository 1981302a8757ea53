//! fsck of space: every block has one owner; what is free and what is not agrees everywhere it is written down.

use super::{FsckReport, names::Names};
use crate::alloc::Bitmap;
use crate::checkpoint::{Built, Kept, by_group};
use crate::effect::{BlockState, Effect};
use crate::error::FsResult;
use crate::limits::{BLOCK, WINDOW_BLOCKS};
use crate::micro::open::OpenTxn;
use crate::overlay::window::{self, Mapping};
use crate::overlay::{Base, WINDOWS_MAX};
use crate::store::Store;
use crate::tree::Key;
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weldfs_ciscops::InodeNo;

/// Addresses from here on are merged blocks that have no place yet, one each in the order of merging: as many as were
/// merged and no more, each used once.
pub(super) const PRETENDED: u64 = 1 << 47;

pub(super) struct Space<'s> {
    store: &'s Store,
    /// Bit per block of the medium that something refers to.
    used: Vec<u64>,
    /// The same of the merged blocks.
    merged: Vec<bool>,
    /// What a merge reads below the bytes from the log.
    sources: &'s [Kept],
    verify: bool,
}

impl<'s> Space<'s> {
    pub(super) fn new(store: &'s Store, verify: bool, merged: u64, sources: &'s [Kept]) -> Space<'s> {
        let used = vec![0; store.geometry.blocks.div_ceil(64) as usize];
        Space { store, used, merged: vec![false; merged as usize], sources, verify }
    }

    /// Books a merged block; false for an address that no merge gave away, or gave to another.
    fn book_merged(&mut self, addr: u64) -> bool {
        match self.merged.get_mut((addr - PRETENDED) as usize) {
            Some(taken) => !std::mem::replace(taken, true),
            None => false,
        }
    }

    /// Books a block; false if it is taken already.
    fn book(&mut self, block: u64) -> bool {
        let (word, bit) = (&mut self.used[(block / 64) as usize], 1u64 << (block % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn is_used(&self, block: u64) -> bool {
        self.used[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    pub(super) fn window(&mut self, key: Key, value: &[u8], names: &mut Names, report: &mut FsckReport) {
        let blocks = match window::unpack(value) {
            Ok(b) => b,
            Err(e) => return report.problem(format!("{key}: {e}")),
        };
        if key.b >= WINDOWS_MAX {
            return report.problem(format!("{key}: beyond the largest file"));
        }
        if !names.hold(key.a, blocks.len() as u64) {
            report.problem(format!("{key}: its inode does not exist"));
        }
        report.blocks += blocks.len() as u64;
        let data = self.store.geometry.data_blocks();
        for (i, m) in blocks {
            let blk = key.b * WINDOW_BLOCKS + u64::from(i);
            if m.addr >= PRETENDED && self.book_merged(m.addr) {
                continue;
            }
            if !data.contains(&m.addr) {
                report.problem(format!("inode {}: block {blk} lies outside the data area ({})", key.a, m.addr));
                continue;
            }
            if !self.book(m.addr) {
                report.problem(format!("inode {}: block {blk} is also used elsewhere ({})", key.a, m.addr));
            }
            self.content(key.a, blk, &m, report);
        }
    }

    /// (The bitmap itself is compared at the end.)
    pub(super) fn group(&self, key: Key, report: &mut FsckReport) {
        if key.a >= self.store.geometry.groups() || key.b != 0 {
            report.problem(format!("{key}: a bitmap of a group that is not there"));
        }
    }

    /// What a read of the block would find.
    fn content(&self, ino: u64, blk: u64, m: &Mapping, report: &mut FsckReport) {
        let mut buf = [0u8; BLOCK];
        let checked = match m.state {
            BlockState::Unwritten => return,
            BlockState::Written if !self.verify => return,
            BlockState::Written => {
                report.verified_blocks += 1;
                let read = self.store.medium.read(m.addr * BLOCK as u64, &mut buf).map_err(Into::into);
                read.and_then(|()| self.store.verify(m.crc, InodeNo(ino), blk, &buf))
            }
            // Known without a look.
            BlockState::Bad => self.store.read_base(m, InodeNo(ino), blk, &mut buf),
        };
        if let Err(e) = checked {
            report.problem(e.to_string());
        }
    }

    /// What lies below bytes from the log, which cover only a part of it.
    pub(super) fn sources(&self, report: &mut FsckReport) {
        let data = self.store.geometry.data_blocks();
        for Kept { ino, blk, mapping } in self.sources {
            match data.contains(&mapping.addr) {
                true => self.content(*ino, *blk, mapping, report),
                false => {
                    report.problem(format!("inode {ino}: block {blk} lay outside the data area ({})", mapping.addr));
                }
            }
        }
    }

    /// The blocks that belong to an open transaction and to no file.
    pub(super) fn transaction(&mut self, txn: &OpenTxn, report: &mut FsckReport) {
        let mut buf = [0u8; BLOCK];
        for (input, effects) in txn.begin.inputs.iter().enumerate().map(|(i, input)| (i, &input.effects)) {
            if txn.has_adopted(input) {
                continue;
            }
            for e in effects {
                let Effect::Map { addr, count, crcs, .. } = e else { continue };
                for (i, b) in (addr.0..addr.0 + u64::from(*count)).enumerate() {
                    if !self.book(b) {
                        report.problem(format!("transaction {}: block {b} is also used elsewhere", txn.id));
                    }
                    let Some(crc) = crcs.get(i).filter(|_| self.verify) else { continue };
                    report.verified_blocks += 1;
                    match self.store.medium.read(b * BLOCK as u64, &mut buf) {
                        Ok(()) if weldfs_functions::crc32c(&buf) == *crc => {}
                        Ok(()) => report.problem(format!("transaction {}: block {b} of an input is damaged", txn.id)),
                        Err(e) => report.problem(format!("transaction {}: block {b}: {e}", txn.id)),
                    }
                }
            }
        }
    }

    pub(super) fn finish(&mut self, base: &Arc<Base>, built: &Built, report: &mut FsckReport) -> FsResult<()> {
        let store = self.store;
        let writer = store.writer.lock();
        for chunk in writer.zone.chunks() {
            for b in chunk.start.0..chunk.start.0 + chunk.blocks() {
                if !self.book(b) {
                    report.problem(format!("block {b} is used by a file and by the metadata zone"));
                }
            }
        }
        let size = u64::from(store.geometry.group_blocks);
        let mut free_in_tree = 0;
        let mut moves: HashMap<u64, Vec<(u64, u64, bool)>> = HashMap::new();
        for (runs, used) in [(&built.freed, false), (&built.taken, true)] {
            let data = store.geometry.data_blocks();
            let (real, outside): (Vec<_>, Vec<_>) =
                runs.iter().copied().partition(|r| r.0 >= data.start && r.0 + r.1 <= data.end);
            for (first, n) in outside.into_iter().filter(|r| !used || r.0 < PRETENDED) {
                report.problem(format!("blocks {first} to {} lie outside the data area", first + n - 1));
            }
            for (g, first, n) in by_group(&real, size) {
                moves.entry(g).or_default().push((first, n, used));
            }
        }
        for group in 0..store.geometry.groups() {
            let mut map = Bitmap::load(base, &base.slow, &store.geometry, group)?;
            free_in_tree += map.free();
            for (first, n, used) in moves.remove(&group).unwrap_or_default() {
                if map.set_range((first - group * size) as usize, n as usize, used) != n {
                    let how = if used { "taken while in use" } else { "freed while free" };
                    report.problem(format!("blocks {first} to {} are {how}", first + n - 1));
                }
            }
            self.compare(group, &map, report);
        }
        if free_in_tree != writer.sb.free_blocks {
            let counted = writer.sb.free_blocks;
            report.problem(format!("the superblock counts {counted} free blocks, the bitmaps {free_in_tree}"));
        }
        let held = store.ledger.held.load(Relaxed);
        if held != report.blocks as i64 {
            report.problem(format!("{held} blocks are counted as held by files, {} are", report.blocks));
        }
        Ok(())
    }

    fn compare(&self, group: u64, map: &Bitmap, report: &mut FsckReport) {
        let start = self.store.geometry.group_range(group).start;
        for b in self.store.geometry.group_data(group) {
            let (marked, used) = (map.get((b - start) as usize), self.is_used(b));
            report.free_blocks += u64::from(!marked);
            if marked && !used {
                report.problem(format!("block {b} is leaked: marked used, nothing refers to it"));
            } else if used && !marked {
                report.problem(format!("block {b} is in use but marked free"));
            }
        }
    }
}
