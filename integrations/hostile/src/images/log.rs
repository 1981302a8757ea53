//! What the log of an image says of names, so that a name which it takes away, or adds, is not taken for one that was
//! lost, or made up. Records are found by this file's own reading of docs/MEDIA-FORMAT.md; what is in them is decoded
//! by the file system, for whatever it makes of them only ever excuses.

use super::pristine::BLOCK;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use weldfs_fuzz_targets::media::{Layout, number};
use weldfs_media::CowImage;
use weldfs_store::effect::{Effect, decode};
use weldfs_store::micro::Commit;

/// Bytes of a record's header.
const HEADER: u64 = 64;
/// Kinds of records that say something of names.
const OPERATION: u8 = 3;
const BEGIN: u8 = 4;
const COMMIT: u8 = 5;
/// The bit of an effect's mask that says it has a mode.
const MODE: u16 = 1 << 1;

/// See the module.
#[derive(Default)]
pub struct Log {
    /// Entries that are set or gone: directory and cookie.
    pub entries: BTreeSet<(u64, u64)>,
    /// Names that are set in a directory, and the inodes that they name.
    pub names: BTreeMap<(u64, Vec<u8>), BTreeSet<u64>>,
    /// Inodes that are made or gone, lose or get their last name, or become of another type.
    pub inodes: BTreeSet<u64>,
    /// Inodes with any attribute set.
    pub touched: BTreeSet<u64>,
    /// What open transactions are to do: recovery finishes them.
    plans: Vec<Vec<u8>>,
}

impl Log {
    /// Reads it; `None` where it cannot be known what it says.
    pub fn read(image: &CowImage, tree: &Tree) -> Option<Log> {
        let mut log = Log { plans: tree.transactions().cloned().collect(), ..Log::default() };
        if tree.log_is_empty() {
            return Some(log);
        }
        let layout = Layout::of(&tree.sb);
        let area = layout.log_start.checked_add(layout.log_len)?;
        if layout.log_len < BLOCK || area > image.len() || layout.align == 0 {
            return None;
        }
        let mut lsn = layout.cut;
        // As far as positions are right: a reader that goes by checksums, too, comes no further.
        loop {
            let place = layout.log_start + lsn % layout.log_len;
            let mut header = [0; HEADER as usize];
            if place + HEADER > area {
                return Some(log);
            }
            image.read(place, &mut header);
            let len = number(&header, 12, 4);
            if number(&header, 16, 8) != lsn || place + HEADER + len > area || lsn > layout.cut + layout.log_len {
                return Some(log);
            }
            let mut payload = vec![0; len as usize];
            image.read(place + HEADER, &mut payload);
            log.record(header[24], payload)?;
            lsn = lsn.checked_add((HEADER + len).next_multiple_of(layout.align))?;
        }
    }

    fn record(&mut self, kind: u8, payload: Vec<u8>) -> Option<()> {
        match kind {
            OPERATION => decode(&payload).ok()?.iter().for_each(|e| self.effect(e)),
            COMMIT => Commit::decode(&payload).ok()?.effects.iter().for_each(|e| self.effect(e)),
            BEGIN => self.plans.push(payload),
            _ => {}
        }
        Some(())
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::PutDirent { dir, cookie, ino, name, .. } => {
                self.entries.insert((dir.0, *cookie));
                self.names.entry((dir.0, name.to_vec())).or_default().insert(ino.0);
            }
            Effect::DelDirent { dir, cookie } => {
                self.entries.insert((dir.0, *cookie));
            }
            Effect::PutInode(rec) => {
                self.inodes.insert(rec.ino.0);
            }
            Effect::DropInode(ino)
            | Effect::Orphan { ino }
            | Effect::Adopt { ino }
            | Effect::ReclaimDone { ino, .. } => {
                self.inodes.insert(ino.0);
            }
            Effect::SetAttr(delta) => {
                self.touched.insert(delta.ino.0);
                if delta.mask & MODE != 0 {
                    self.inodes.insert(delta.ino.0);
                }
            }
            _ => {}
        }
    }

    /// Whether an open transaction may be about a name.
    pub fn plans_with(&self, name: &[u8]) -> bool {
        self.plans.iter().any(|plan| plan.windows(name.len()).any(|w| w == name))
    }
}
