//! Scrub of data: the blocks that windows of files map, read in long runs, and what the log lays over them.

use super::{Finding, Scrub, Walked, What};
use crate::effect::Effect;
use crate::error::{FsError, Place};
use crate::limits::{BLOCK, WINDOW_BLOCKS};
use crate::overlay::{WINDOWS_MAX, no_window};
use crate::store::{BlockKind, BlockView};
use weldfs_ciscops::InodeNo;
use weldfs_journal::AlignedBuf;

/// Looks at a block that seems damaged while the file system is in use.
const LOOKS: u32 = 3;

/// A block to read: number in the file, place, checksum.
type Spot = (u64, u64, u32);

/// Where a block is, when its bytes can be verified where they lie.
fn plain(view: &BlockView) -> Option<(u64, u32)> {
    let whole = view.kind == BlockKind::Data && !view.patched;
    view.addr.filter(|_| whole).map(|a| (a.0, view.crc))
}

impl Scrub<'_> {
    /// Verifies the blocks of one window of a file.
    pub(super) fn window(&mut self, ino: u64, win: u64) -> Walked {
        if win >= WINDOWS_MAX {
            return self.failed(What::Key, no_window(ino, win), Some(ino), 0);
        }
        let store = self.store;
        let (mut spots, mut composed): (Vec<Spot>, Vec<u64>) = (Vec::new(), Vec::new());
        let mapped = store.blocking(|| {
            spots.clear();
            composed.clear();
            store.block_map(InodeNo(ino), win * WINDOW_BLOCKS, WINDOW_BLOCKS, &mut |b, view| {
                match plain(&view) {
                    Some((addr, crc)) => spots.push((b, addr, crc)),
                    None if view.kind == BlockKind::Data => composed.push(b),
                    None => {}
                }
                true
            })
        });
        self.report.windows += 1;
        if let Err(e) = mapped {
            return self.failed(What::Key, e, Some(ino), win * WINDOW_BLOCKS * BLOCK as u64);
        }
        let mut rest = &spots[..];
        while let Some(first) = rest.first() {
            let run = rest.iter().enumerate().take_while(|(i, s)| s.1 == first.1 + *i as u64).count();
            let (head, tail) = rest.split_at(run);
            self.run(ino, head)?;
            rest = tail;
        }
        for blk in composed {
            self.composed(ino, blk)?;
        }
        Ok(())
    }

    /// Blocks that lie one behind the other on the medium.
    fn run(&mut self, ino: u64, spots: &[Spot]) -> Walked {
        let store = self.store;
        let data = store.geometry.data_blocks();
        let (first, end) = (spots[0].1, spots[0].1 + spots.len() as u64);
        if first < data.start || end > data.end {
            let place = Place::File { ino, off: spots[0].0 * BLOCK as u64 };
            let e = FsError::corrupt("block address (outside the data area)", place, data.end, first);
            return self.failed(What::Data, e, Some(ino), 0);
        }
        let mut buf = AlignedBuf::zeroed(spots.len() * BLOCK);
        let read = store.medium.read(first * BLOCK as u64, &mut buf);
        for (spot, bytes) in spots.iter().zip(buf.chunks_exact(BLOCK)) {
            self.report.data_blocks += 1;
            if read.is_err() || weldfs_functions::crc32c(bytes) != spot.2 {
                self.look_again(ino, *spot)?;
            }
        }
        self.read_so_far((spots.len() * BLOCK) as u64)
    }

    /// A block whose bytes did not match. In a file system in use it may have moved since, or lie in memory still.
    fn look_again(&mut self, ino: u64, spot: Spot) -> Walked {
        let store = self.store;
        let (blk, mut addr, mut expected) = spot;
        let mut buf = [0; BLOCK];
        for _ in 0..LOOKS {
            if !store.info.byte_addressable && !store.is_read_only() {
                let tail = store.journal().tail();
                store.journal().commit_through(tail).map_err(FsError::from)?;
                store.journal().wait(tail).map_err(FsError::from)?;
            }
            let mut now = None;
            let seen = store.blocking(|| {
                store.block_map(InodeNo(ino), blk, 1, &mut |_, view| {
                    now = Some(view);
                    true
                })
            });
            match (seen, now.as_ref().and_then(plain)) {
                (Err(e), _) => return self.failed(What::Key, e, Some(ino), blk * BLOCK as u64),
                (Ok(()), None) if now.is_some_and(|v| v.kind == BlockKind::Data) => return self.composed(ino, blk),
                (Ok(()), None) => return Ok(()),
                (Ok(()), Some(found)) => (addr, expected) = found,
            }
            match store.medium.read(addr * BLOCK as u64, &mut buf) {
                Ok(()) if weldfs_functions::crc32c(&buf) == expected => return Ok(()),
                Ok(()) => {}
                Err(e) => return self.failed(What::Data, e.into(), Some(ino), blk * BLOCK as u64),
            }
        }
        let actual = weldfs_functions::crc32c(&buf);
        let offset = blk * BLOCK as u64;
        self.finding(Finding {
            what: What::Data,
            detail: format!(
                "data at byte {offset} of inode {ino}, in block {addr}: checksum {actual:#010x}, \
                 expected {expected:#010x}"
            ),
            path: None,
            inode: Some(ino),
            offset,
            block: Some(addr),
            expected: expected.into(),
            actual: actual.into(),
        });
        Ok(())
    }

    /// A block under bytes of the log, or one that is marked bad.
    fn composed(&mut self, ino: u64, blk: u64) -> Walked {
        let store = self.store;
        let mut buf = [0; BLOCK];
        self.report.data_blocks += 1;
        match store.blocking(|| store.read_block(InodeNo(ino), blk, &mut buf)) {
            Ok(_) => {}
            Err(e) => {
                let lost = matches!(&e, FsError::Corrupt(c) if c.expected == 0 && c.actual == 0);
                self.report.lost_blocks += u64::from(lost);
                self.failed(What::Data, e, Some(ino), blk * BLOCK as u64)?;
            }
        }
        self.read_so_far(BLOCK as u64)
    }

    /// Windows that only the overlay knows: what the log holds and no checkpoint has written yet.
    pub(super) fn layers(&mut self) -> Walked {
        for shard in self.store.overlay.shards() {
            let windows: Vec<(u64, u64)> = {
                let shard = shard.read();
                let layers = [Some(&shard.active), shard.lower.frozen.as_deref()].into_iter().flatten();
                let nodes = layers.flat_map(|l| &l.nodes);
                nodes.flat_map(|(ino, node)| node.wins.keys().map(|w| (*ino, *w))).collect()
            };
            for (ino, win) in windows {
                self.window(ino, win)?;
            }
        }
        Ok(())
    }

    /// Blocks that belong to open transactions of an image that is not in use.
    pub(super) fn inputs(&mut self) -> Walked {
        let store = self.store;
        if !store.is_read_only() {
            return Ok(()); // they come and go by the microsecond
        }
        for txn in store.txns.list() {
            let loose = txn.begin.inputs.iter().enumerate().filter(|(i, _)| !txn.has_adopted(*i));
            for effect in loose.flat_map(|(_, input)| &input.effects) {
                let Effect::Map { ino, blk, addr, crcs, .. } = effect else { continue };
                for (i, crc) in (0..).zip(crcs) {
                    let mut buf = [0; BLOCK];
                    let read = store.medium.read((addr.0 + i) * BLOCK as u64, &mut buf).map_err(FsError::from);
                    self.report.data_blocks += 1;
                    if let Err(e) = read.and_then(|()| store.verify(*crc, *ino, blk + i, &buf)) {
                        self.failed(What::Input, e, Some(ino.0), (blk + i) * BLOCK as u64)?;
                    }
                }
            }
        }
        Ok(())
    }
}
