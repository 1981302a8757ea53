//! Names of a directory and attributes of an inode, composed over overlay and tree. Both are keyed by a keyed hash of
//! the name and a collision index.

use super::Store;
use crate::effect::Effect;
use crate::error::{FsError, FsResult, Place};
use crate::overlay::{Layer, RecState, Shard};
use crate::record::{BUCKET_MAX, COLLISION_BITS, Dirent, Xattr, cookie_parts};
use crate::tree::{Key, kind};
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::Hasher;
use weldfs_ciscops::{Errno, InodeNo};

/// Entries collected under one hold of a shard's lock.
const BATCH: usize = 128;
/// Attributes collected so: each of them has up to 4 KiB.
const XATTR_BATCH: usize = 32;

/// The keyed hash of names: 51 bits of SipHash-1-3.
#[derive(Debug, Clone, Copy)]
pub struct NameHash {
    key: [u8; 16],
    bits: u32,
}

impl NameHash {
    /// The hash of a file system; `bits` below 51 weakens it (tests of collisions).
    pub fn new(key: [u8; 16], bits: u32) -> NameHash {
        NameHash { key, bits: bits.clamp(1, 51) }
    }

    /// First cookie of the bucket of `name`. Never below bucket 1: cookies 0 to 2 mean start, `.` and `..`.
    pub fn bucket(&self, name: &[u8]) -> u64 {
        let mut h = SipHasher13::new_with_key(&self.key);
        h.write(name);
        (h.finish() >> (64 - self.bits)).max(1) << COLLISION_BITS
    }
}

/// The least index in its bucket that may be given out while this entry is there.
fn index_after(d: &Dirent) -> u64 {
    (cookie_parts(d.cookie).1 + 1).max(u64::from(d.mark))
}

/// The cookie for a new name in a bucket that holds these entries and begins with the cookie `first`.
///
/// # Errors
/// ENOSPC when the bucket has used up its numbers.
pub fn slot_in(first: u64, bucket: &[Dirent]) -> FsResult<u64> {
    let next = bucket.iter().map(index_after).max().unwrap_or(0);
    if next >= BUCKET_MAX { Err(FsError::Errno(Errno::NOSPC)) } else { Ok(first + next) }
}

/// The effects that remove `entry`, whose bucket holds these entries.
pub fn removal_in(entry: &Dirent, bucket: &[Dirent]) -> SmallVec<[Effect; 2]> {
    let mut mark = u64::from(entry.mark).max(cookie_parts(entry.cookie).1 + 1);
    let mut keeper = None;
    for d in bucket.iter().filter(|d| d.cookie != entry.cookie) {
        mark = mark.max(u64::from(d.mark)).max(cookie_parts(d.cookie).1 + 1);
        keeper = Some(d);
    }
    let mut out = SmallVec::new();
    out.push(Effect::DelDirent { dir: entry.dir, cookie: entry.cookie });
    if let Some(k) = keeper {
        let (mark, name) = (mark as u16, k.name.clone());
        out.push(Effect::PutDirent { dir: k.dir, cookie: k.cookie, ino: k.ino, ftype: k.ftype, mark, name });
    }
    out
}

/// What two layers hold together, in cookie order: what both hold is as the newer one says.
fn overlaid<T>(newer: Vec<(u64, T)>, older: Vec<(u64, T)>) -> Vec<(u64, T)> {
    if newer.is_empty() || older.is_empty() {
        return if newer.is_empty() { older } else { newer };
    }
    let mut both = Vec::with_capacity(newer.len() + older.len());
    let (mut newer, mut older) = (newer.into_iter().peekable(), older.into_iter().peekable());
    while let Some((cookie, _)) = older.peek() {
        match newer.next_if(|(at, _)| at <= cookie) {
            Some(entry) => {
                older.next_if(|(at, _)| *at == entry.0);
                both.push(entry);
            }
            None => both.extend(older.next()),
        }
    }
    both.extend(newer);
    both
}

/// Cookies met in the layers so far, newest first; each layer delivers its own in ascending order.
#[derive(Default)]
struct Seen {
    done: SmallVec<[u64; 8]>,
    sorted: usize,
}

impl Seen {
    /// Notes a cookie; whether no newer layer had it.
    fn first(&mut self, cookie: u64) -> bool {
        let new = self.done[..self.sorted].binary_search(&cookie).is_err();
        if new {
            self.done.push(cookie);
        }
        new
    }

    /// The next layer follows.
    fn next_layer(&mut self) {
        if self.sorted > 0 {
            self.done.sort_unstable();
        }
        self.sorted = self.done.len();
    }
}

impl Shard {
    fn layers(&self) -> impl Iterator<Item = &Layer> {
        [Some(&self.active), self.lower.frozen.as_deref()].into_iter().flatten()
    }

    /// Whether the tree cannot know anything of `ino`: it was created after the tree's cut.
    fn is_young(&self, ino: u64) -> bool {
        self.layers().find_map(|l| match l.nodes.get(&ino).map(|n| &n.rec) {
            Some(RecState::Live(rec)) => Some(rec.birth.0 >= self.lower.base.cut),
            _ => None,
        }) == Some(true)
    }

    /// Visits the live entries of a bucket until `visit` returns true.
    fn bucket(&self, dir: u64, first: u64, visit: &mut dyn FnMut(&Dirent) -> bool) -> FsResult<()> {
        let last = first + BUCKET_MAX - 1;
        let mut seen = Seen::default();
        for layer in self.layers() {
            for ((_, cookie), entry) in layer.dirents.range((dir, first)..=(dir, last)) {
                if seen.first(*cookie) && entry.as_ref().is_some_and(&mut *visit) {
                    return Ok(());
                }
            }
            seen.next_layer();
        }
        if self.is_young(dir) {
            return Ok(());
        }
        let base = &self.lower.base;
        let (from, to) = (Key::new(kind::DIRENT, dir, first), Key::new(kind::DIRENT, dir, last));
        let mut bad = None;
        base.tree.scan(&base.pages, from, to, &mut |key, value| {
            if !seen.first(key.b) {
                return true;
            }
            match Dirent::from_value(InodeNo(dir), key.b, value) {
                Ok(d) => !visit(&d),
                Err(e) => {
                    bad = Some(FsError::corrupt(e.0, Place::Key(key), 0, 0));
                    false
                }
            }
        })?;
        bad.map_or(Ok(()), Err)
    }

    /// Up to [`BATCH`] live entries after `after`, and where to go on, if anywhere.
    fn batch(&self, dir: u64, after: u64) -> FsResult<(Vec<Dirent>, Option<u64>)> {
        // In cookie order; of what was replaced, the newest.
        let mut merged: Vec<(u64, Option<Dirent>)> = Vec::new();
        // Everything up to here is complete: no source was cut short below it.
        let mut complete = u64::MAX;
        let Some(from) = after.checked_add(1) else { return Ok((Vec::new(), None)) };
        for layer in self.layers() {
            let range = layer.dirents.range((dir, from)..=(dir, u64::MAX)).take(BATCH);
            let older: Vec<_> = range.map(|((_, cookie), entry)| (*cookie, entry.clone())).collect();
            if let Some((last, _)) = older.get(BATCH - 1) {
                complete = complete.min(*last);
            }
            merged = overlaid(merged, older);
        }
        if !self.is_young(dir) {
            let base = &self.lower.base;
            let (lo, hi) = (Key::new(kind::DIRENT, dir, from), Key::new(kind::DIRENT, dir, complete));
            let (mut n, mut bad, mut older) = (0, None, Vec::new());
            base.tree.scan(&base.pages, lo, hi, &mut |key, value| {
                // What a layer has replaced says nothing, not even that it is damaged.
                if merged.binary_search_by_key(&key.b, |(cookie, _)| *cookie).is_err() {
                    match Dirent::from_value(InodeNo(dir), key.b, value) {
                        Ok(d) => older.push((key.b, Some(d))),
                        Err(e) => {
                            bad = Some(FsError::corrupt(e.0, Place::Key(key), 0, 0));
                            return false;
                        }
                    }
                }
                n += 1;
                if n == BATCH {
                    complete = complete.min(key.b);
                }
                n < BATCH
            })?;
            bad.map_or(Ok(()), Err)?;
            merged = overlaid(merged, older);
        }
        let out = merged.into_iter().take_while(|(c, _)| *c <= complete).filter_map(|(_, d)| d).collect();
        Ok((out, Some(complete).filter(|c| *c != u64::MAX)))
    }

    /// Attributes in the slots `from..=to`: those of the first `most` slots that are known of, and the slot up to which
    /// that is all, if there are more.
    fn xattr_batch(&self, ino: u64, from: u64, to: u64, most: usize) -> FsResult<(Vec<Xattr>, Option<u64>)> {
        let mut merged: BTreeMap<u64, Option<Xattr>> = BTreeMap::new();
        // Everything up to here is complete: no source was cut short below it.
        let mut complete = to;
        for layer in self.layers() {
            let Some(node) = layer.nodes.get(&ino) else { continue };
            for (n, (slot, x)) in node.xattrs.range(from..=to).enumerate() {
                if n == most {
                    complete = complete.min(slot - 1);
                    break;
                }
                merged.entry(*slot).or_insert_with(|| x.clone());
            }
        }
        if !self.is_young(ino) {
            let base = &self.lower.base;
            let (lo, hi) = (Key::new(kind::XATTR, ino, from), Key::new(kind::XATTR, ino, complete));
            let (mut n, mut bad) = (0, None);
            base.tree.scan(&base.pages, lo, hi, &mut |key, value| {
                if n == most {
                    complete = key.b - 1;
                    return false;
                }
                n += 1;
                if let Entry::Vacant(place) = merged.entry(key.b) {
                    match Xattr::from_value(InodeNo(ino), key.b, value) {
                        Ok(x) => place.insert(Some(x)),
                        Err(e) => {
                            bad = Some(FsError::corrupt(e.0, Place::Key(key), 0, 0));
                            return false;
                        }
                    };
                }
                true
            })?;
            bad.map_or(Ok(()), Err)?;
        }
        let out = merged.into_iter().filter(|(slot, _)| *slot <= complete).filter_map(|(_, x)| x).collect();
        Ok((out, Some(complete).filter(|c| *c != to)))
    }
}

impl Store {
    /// The entry `name` of directory `dir`.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    pub fn dirent(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        Ok(self.dirent_or_slot(dir, name)?.ok())
    }

    /// The entry `name` of directory `dir`, or else the cookie under which it can be added; 0 if there is none.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    pub fn dirent_or_slot(&self, dir: InodeNo, name: &[u8]) -> FsResult<Result<Dirent, u64>> {
        let first = self.hash.bucket(name);
        match self.overlay.names.get(dir, first, name) {
            Some(known) => Ok(known.map_err(|()| first)),
            None => self.look_for(dir, first, name),
        }
    }

    /// The inode that the entry `name` of directory `dir` names, if there is one.
    ///
    /// # Errors
    /// `Miss` on a cold page, damage.
    pub fn entry_ino(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<InodeNo>> {
        let first = self.hash.bucket(name);
        match self.overlay.names.ino(dir, first, name) {
            Some(known) => Ok(known),
            None => Ok(self.look_for(dir, first, name)?.ok().map(|d| d.ino)),
        }
    }

    /// [`Store::dirent_or_slot`] where no cell knows it; keeps what it finds in one.
    #[inline(never)]
    fn look_for(&self, dir: InodeNo, first: u64, name: &[u8]) -> FsResult<Result<Dirent, u64>> {
        let (mut found, mut next) = (None, 0);
        let shard = self.overlay.shard(dir.0).read();
        shard.bucket(dir.0, first, &mut |d| {
            let hit = *d.name == *name;
            if hit {
                found = Some(d.clone());
            }
            next = next.max(index_after(d));
            hit
        })?;
        // In a bucket of others a missing name has no cell: it would take theirs.
        if found.is_some() || next == 0 && self.overlay.names.missed_again(dir, first) {
            self.overlay.names.keep(dir, first, found.as_ref());
        }
        Ok(found.ok_or(if next < BUCKET_MAX { first + next } else { 0 }))
    }

    /// Whether a cookie is in the bucket of a name.
    pub fn in_bucket_of(&self, cookie: u64, name: &[u8]) -> bool {
        cookie_parts(cookie).0 << COLLISION_BITS == self.hash.bucket(name)
    }

    /// The cookie and mark under which `name`, which `dir` does not hold, can be added.
    ///
    /// # Errors
    /// ENOSPC when the bucket of its hash has used up its numbers; `Miss`, damage.
    pub fn dirent_slot(&self, dir: InodeNo, name: &[u8]) -> FsResult<u64> {
        let first = self.hash.bucket(name);
        slot_in(first, &self.dirent_bucket(dir, first)?)
    }

    /// The entries of `dir` in the bucket of which `first` is the first cookie.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn dirent_bucket(&self, dir: InodeNo, first: u64) -> FsResult<Vec<Dirent>> {
        let mut entries = Vec::new();
        self.overlay.shard(dir.0).read().bucket(dir.0, first, &mut |d| {
            entries.push(d.clone());
            false
        })?;
        Ok(entries)
    }

    /// The effects that remove `entry` from its directory. In a bucket that stays in use, a neighbour keeps the mark
    /// below which no index is given out again.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn dirent_removal(&self, entry: &Dirent) -> FsResult<SmallVec<[Effect; 2]>> {
        let (bucket, _) = cookie_parts(entry.cookie);
        let mut others = Vec::new();
        self.overlay.shard(entry.dir.0).read().bucket(entry.dir.0, bucket << COLLISION_BITS, &mut |d| {
            if d.cookie != entry.cookie {
                others.push(d.clone());
            }
            false
        })?;
        Ok(removal_in(entry, &others))
    }

    /// Visits the entries of `dir` with a cookie above `after`, in cookie order, until `visit` returns false. Entries
    /// that come or go meanwhile may be seen or not; the others are seen once. After `Err(Miss)` go on from the last
    /// cookie seen. No lock is held while `visit` runs.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn dirents(&self, dir: InodeNo, after: u64, visit: &mut dyn FnMut(&Dirent) -> bool) -> FsResult<()> {
        let mut at = after;
        loop {
            let (batch, next) = self.overlay.shard(dir.0).read().batch(dir.0, at)?;
            for d in &batch {
                if !visit(d) {
                    return Ok(());
                }
            }
            match next {
                Some(n) => at = n,
                None => return Ok(()),
            }
        }
    }

    /// Whether `dir` holds no entry.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn dir_is_empty(&self, dir: InodeNo) -> FsResult<bool> {
        let mut empty = true;
        self.dirents(dir, 0, &mut |_| {
            empty = false;
            false
        })?;
        Ok(empty)
    }

    /// All extended attributes of an inode, in slot order.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn xattrs(&self, ino: InodeNo) -> FsResult<Vec<Xattr>> {
        self.overlay.shard(ino.0).read().xattr_batch(ino.0, 0, u64::MAX, usize::MAX).map(|(all, _)| all)
    }

    /// Attributes of an inode in the slots from `from` on, some at a time, and where to go on, if anywhere.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn xattrs_from(&self, ino: InodeNo, from: u64) -> FsResult<(Vec<Xattr>, Option<u64>)> {
        let (some, complete) = self.overlay.shard(ino.0).read().xattr_batch(ino.0, from, u64::MAX, XATTR_BATCH)?;
        Ok((some, complete.map(|slot| slot + 1)))
    }

    /// Those in the bucket of which `first` is the first slot.
    pub fn xattr_bucket(&self, ino: InodeNo, first: u64) -> FsResult<Vec<Xattr>> {
        let shard = self.overlay.shard(ino.0).read();
        shard.xattr_batch(ino.0, first, first + (BUCKET_MAX - 1), usize::MAX).map(|(all, _)| all)
    }

    /// One extended attribute.
    ///
    /// # Errors
    /// `Miss`, damage.
    pub fn xattr(&self, ino: InodeNo, name: &[u8]) -> FsResult<Option<Xattr>> {
        Ok(self.xattr_bucket(ino, self.hash.bucket(name))?.into_iter().find(|x| *x.name == *name))
    }

    /// The slot in which attribute `name` is or can be put.
    ///
    /// # Errors
    /// ENOSPC when the bucket of its hash is full; `Miss`, damage.
    pub fn xattr_slot(&self, ino: InodeNo, name: &[u8]) -> FsResult<u64> {
        let first = self.hash.bucket(name);
        let bucket = self.xattr_bucket(ino, first)?;
        if let Some(x) = bucket.iter().find(|x| *x.name == *name) {
            return Ok(x.slot);
        }
        let free = (first..first + BUCKET_MAX).find(|s| bucket.iter().all(|x| x.slot != *s));
        free.ok_or(FsError::Errno(Errno::NOSPC))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layers() -> impl Strategy<Value = Vec<BTreeMap<u64, Option<u8>>>> {
        prop::collection::vec(prop::collection::btree_map(0..12u64, prop::option::of(any::<u8>()), 0..9), 0..4)
    }

    proptest! {
        #[test]
        fn layers_laid_over_each_other_are_a_map_that_the_newest_wrote_last(layers in layers()) {
            let below = |newer, layer: &BTreeMap<_, _>| overlaid(newer, layer.clone().into_iter().collect());
            let merged = layers.iter().fold(Vec::new(), below);
            let mut map = BTreeMap::new();
            layers.iter().rev().for_each(|layer| map.extend(layer.clone()));
            prop_assert_eq!(merged, map.into_iter().collect::<Vec<_>>());
        }
    }
}
