//! Names of a directory of which one command changes several: what the store knows, with what is staged laid over. A
//! command of one step goes by the store alone.

use super::txn::Txn;
use smallvec::SmallVec;
use weldfs_ciscops::InodeNo;
use weldfs_store::effect::Effect;
use weldfs_store::error::FsResult;
use weldfs_store::record::Dirent;
use weldfs_store::{removal_in, slot_in};

impl Txn<'_> {
    /// As `Store::dirent_slot`.
    pub(super) fn slot_for(&self, dir: InodeNo, name: &[u8]) -> FsResult<u64> {
        if !self.many {
            // The walk has just been there, and the directory is held alone.
            let known = self.known_slot(dir).filter(|cookie| self.store.in_bucket_of(*cookie, name));
            return known.map_or_else(|| self.store.dirent_slot(dir, name), Ok);
        }
        let first = self.store.name_hash().bucket(name);
        slot_in(first, &self.bucket(dir, first)?)
    }

    /// As `Store::dirent_removal`.
    pub(super) fn removal_of(&self, entry: &Dirent) -> FsResult<SmallVec<[Effect; 2]>> {
        if !self.many {
            return self.store.dirent_removal(entry);
        }
        Ok(removal_in(entry, &self.bucket(entry.dir, self.store.name_hash().bucket(&entry.name))?))
    }

    /// As `Store::dir_is_empty`.
    pub(super) fn is_empty_dir(&self, dir: InodeNo) -> FsResult<bool> {
        if !self.many {
            return self.store.dir_is_empty(dir);
        }
        if self.latest(dir).any(|(_, entry)| entry.is_some()) {
            return Ok(false);
        }
        let mut empty = true;
        self.store.dirents(dir, 0, &mut |d| {
            empty = self.latest(dir).any(|(name, _)| *name == *d.name);
            empty
        })?;
        Ok(empty)
    }

    /// The names of a directory that this command changed, as it would leave them.
    fn latest(&self, dir: InodeNo) -> impl Iterator<Item = (&[u8], Option<&Dirent>)> {
        let changed = self.names.iter().enumerate().filter(move |(_, s)| s.dir == dir);
        let last = changed.filter(|(i, s)| !self.names[i + 1..].iter().any(|l| l.dir == s.dir && l.name == s.name));
        last.map(|(_, s)| (&s.name[..], s.entry.as_ref()))
    }

    /// The entries of a bucket.
    fn bucket(&self, dir: InodeNo, first: u64) -> FsResult<Vec<Dirent>> {
        let mut entries = self.store.dirent_bucket(dir, first)?;
        entries.retain(|d| !self.latest(dir).any(|(name, _)| *name == *d.name));
        let staged = self.latest(dir).filter(|(name, _)| self.store.name_hash().bucket(name) == first);
        entries.extend(staged.filter_map(|(_, entry)| entry.cloned()));
        Ok(entries)
    }
}
