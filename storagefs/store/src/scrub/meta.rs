//! Scrub of what describes the files: superblock copies, zone map, tree, log.

use super::{Ended, Finding, Scrub, Walked, What};
use crate::alloc::Bitmap;
use crate::codec::DecodeError;
use crate::error::{FsError, Place};
use crate::limits::{BLOCK, PAGE};
use crate::overlay::window;
use crate::record::{Dirent, InodeRec, ReclaimRec, Xattr};
use crate::superblock::Superblock;
use crate::tree::{Key, Tree, WalkEvent, kind};
use crate::zone::Zone;
use weldfs_ciscops::InodeNo;
use weldfs_journal::{ScanError, Verdict};

/// Times the walk begins anew because a checkpoint replaced the tree meanwhile.
const RESTARTS_MAX: u32 = 64;
/// Windows whose data is read between two looks at the tree.
const WINDOWS_AHEAD: usize = 256;

impl Scrub<'_> {
    /// The three copies. On an image that was not closed cleanly a torn or older one is what a crash leaves.
    pub(super) fn superblocks(&mut self) -> Walked {
        let store = self.store;
        let (faults, unclean) = {
            // No checkpoint writes them while they are read.
            let writer = store.writer.lock();
            let faults = Superblock::faults(&*store.medium, &writer.sb);
            (faults, store.is_read_only() && !writer.sb.clean)
        };
        self.report.superblocks += 3;
        for (block, fault) in faults {
            if unclean && fault.by_power_cut {
                self.report.warnings.push(format!("superblock copy in block {}: {}", block.0, fault.detail));
                continue;
            }
            self.finding(Finding {
                what: What::Superblock,
                detail: format!("superblock copy in block {}: {}", block.0, fault.detail),
                path: None,
                inode: None,
                offset: block.0 * BLOCK as u64,
                block: Some(block.0),
                expected: fault.expected,
                actual: fault.actual,
            });
        }
        self.read_so_far(3 * BLOCK as u64)
    }

    pub(super) fn zone_map(&mut self) -> Walked {
        let store = self.store;
        let (loaded, pages) = {
            let writer = store.writer.lock();
            let base = store.overlay.base(0);
            let loaded = Zone::load(&base.slow, &writer.sb.zone, &store.geometry);
            (loaded, writer.zone.map_pages().len() as u64)
        };
        self.report.zone_pages += pages;
        if let Err(e) = loaded {
            self.failed(What::ZoneMap, e, None, 0)?;
        }
        self.read_so_far(pages * PAGE as u64)
    }

    /// What the log holds above the checkpoint. Of an image that is not used the mount has just read all of it.
    pub(super) fn log(&mut self) -> Walked {
        let store = self.store;
        if store.is_read_only() || store.journal().used() == 0 {
            return Ok(());
        }
        let journal = store.journal();
        for _ in 0..RESTARTS_MAX {
            // A checkpoint may let go of what is being read: then it is read again from where the log begins now.
            let (from, durable, before) = (journal.oldest(), journal.watermark(), self.report.log_records);
            let mut records = 0;
            let scanned = weldfs_journal::scan(
                &*store.medium,
                &store.geometry.log,
                &journal.segments_at(from),
                from,
                &mut |_| {
                    records += 1;
                    Verdict::Ok
                },
            );
            if journal.oldest() != from {
                continue;
            }
            self.report.log_records = before + records;
            // Above what was durable when the reading began, the log was just being written.
            if let Err(ScanError::Corrupt { from: at, why, .. }) = scanned
                && at < durable
            {
                self.finding(Finding::of_log(at, format!("the log is damaged at LSN {at}: {why}")));
            }
            return self.read_so_far(durable.0.saturating_sub(from.0));
        }
        Ok(())
    }

    /// Every page and every key, and the data of every window the tree knows.
    pub(super) fn tree(&mut self) -> Walked {
        let mut from = Key::MIN;
        for _ in 0..RESTARTS_MAX {
            match self.tree_from(&mut from)? {
                true => return Ok(()),
                false => continue,
            }
        }
        let warning = format!("the tree changed {RESTARTS_MAX} times while it was read; keys from {from} on were not");
        self.report.warnings.push(warning);
        Err(Ended::Stopped)
    }

    /// Walks the tree of now from `from` on; false when it was replaced and something of the old one is gone.
    fn tree_from(&mut self, from: &mut Key) -> Result<bool, Ended> {
        let store = self.store;
        let base = store.overlay.base(0);
        let (mut windows, mut ended, mut stale) = (Vec::new(), Ok(()), false);
        let start = *from;
        Tree::walk_from(&base.tree.root(), &base.slow, start, &mut |event| {
            match event {
                WalkEvent::Page(_) => {
                    self.report.tree_pages += 1;
                    ended = self.read_so_far(PAGE as u64);
                }
                WalkEvent::Entry(key, _) if key < start => {}
                WalkEvent::Entry(key, value) => {
                    self.report.keys += 1;
                    *from = key;
                    match self.decode(key, value) {
                        Err(e) => self.bad_key(key, e),
                        Ok(()) if key.kind == kind::WINDOW => windows.push((key.a, key.b)),
                        Ok(()) => {}
                    }
                }
                WalkEvent::Bad(_, _) if store.overlay.base(0).cut != base.cut => stale = true,
                WalkEvent::Bad(at, e) => ended = self.failed(What::TreePage, e, None, at.addr.0 * BLOCK as u64),
            }
            if windows.len() >= WINDOWS_AHEAD && ended.is_ok() {
                ended = windows.drain(..).try_for_each(|(ino, win)| self.window(ino, win));
            }
            ended.is_ok() && !stale
        });
        ended?;
        windows.drain(..).try_for_each(|(ino, win)| self.window(ino, win))?;
        Ok(!stale)
    }

    fn decode(&self, key: Key, value: &[u8]) -> Result<(), DecodeError> {
        match key.kind {
            kind::INODE => InodeRec::from_value(InodeNo(key.a), value).map(drop),
            kind::DIRENT => Dirent::from_value(InodeNo(key.a), key.b, value).map(drop),
            kind::XATTR => Xattr::from_value(InodeNo(key.a), key.b, value).map(drop),
            kind::RECLAIM => ReclaimRec::from_value(value).map(drop),
            kind::WINDOW => window::held(value).map(drop),
            kind::FREE_GROUP => Bitmap::from_value(value, &self.store.geometry, key.a).map(drop),
            // Read and decoded by every mount.
            _ => Ok(()),
        }
    }

    fn bad_key(&mut self, key: Key, e: DecodeError) {
        let FsError::Corrupt(c) = FsError::corrupt(e.0, Place::Key(key), 0, 0) else { return };
        self.corrupt(What::Key, &c);
    }
}
