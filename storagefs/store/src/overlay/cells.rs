//! Cells: inodes and directory entries as they were last found, decoded, so that who looks again decodes nothing and
//! searches nothing. Clean, bounded in bytes, evicted by CLOCK; losing one costs a look at the layers.
//!
//! An *inode cell* is what the tree says of an inode. It lies in the shard of the inode, below its layers, so a change
//! touches none: the layers are asked first. One that a layer has changed goes when the layer drops into the tree
//! (`Overlay::switch`), under the lock of the shard; and who decoded a record keeps it only if the tree is still the
//! one that it came from.
//!
//! A *name cell* is what a directory's bucket of equal hashes holds, over all layers: one of its entries, or that it
//! has none, where a name was missed twice. It is filled under the directory's shard, shared, and changed by what
//! applies effects under the same shard, alone; so the two have an order, and a layer that drops changes nothing of
//! what all layers say together.

use super::{InoHasher, InoMap, Node, RecState};
use crate::record::{COLLISION_BITS, Dirent, InodeRec, cookie_parts};
use hashbrown::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weldfs_ciscops::InodeNo;
use weldfs_locks::Mutex;

/// Parts that name cells are locked by; a power of two.
const PARTS: usize = 64;
/// Names that are remembered as missing, by their hash alone; a power of two.
const MISSED: usize = 4096;
/// Memory of a name beside its bytes: the allocation and its counters.
const NAME_BYTES: usize = 32;

struct Slot<K, V> {
    key: K,
    value: V,
    /// What the value holds elsewhere, and what it takes here.
    bytes: usize,
    used: AtomicBool,
}

/// A table of at most so many bytes.
pub(crate) struct Cells<K, V> {
    index: HashMap<K, u32, BuildHasherDefault<InoHasher>>,
    slots: Vec<Slot<K, V>>,
    hand: usize,
    bytes: usize,
    limit: usize,
}

impl<K, V> Default for Cells<K, V> {
    fn default() -> Self {
        Cells { index: HashMap::default(), slots: Vec::new(), hand: 0, bytes: 0, limit: 0 }
    }
}

impl<K, V> std::fmt::Debug for Cells<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cells({} in {} of {} bytes)", self.slots.len(), self.bytes, self.limit)
    }
}

impl<K: Copy + Eq + Hash, V> Cells<K, V> {
    /// Bytes of a cell beside what its value holds elsewhere: vector and table have up to twice the room they need.
    pub(super) const EACH: usize = 2 * (size_of::<Slot<K, V>>() + size_of::<(K, u32)>() + 1);

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let slot = &self.slots[*self.index.get(key)? as usize];
        slot.used.store(true, Relaxed);
        Some(&slot.value)
    }

    /// Keeps a value that holds `elsewhere` bytes beside itself.
    pub(super) fn put(&mut self, key: K, value: V, elsewhere: usize) {
        let bytes = Self::EACH + elsewhere;
        if bytes > self.limit {
            self.remove(&key);
            return;
        }
        if let Some(at) = self.index.get(&key) {
            let slot = &mut self.slots[*at as usize];
            self.bytes = self.bytes - slot.bytes + bytes;
            (slot.value, slot.bytes) = (value, bytes);
            self.evict_to(self.limit);
            return;
        }
        self.evict_to(self.limit - bytes);
        self.index.insert(key, self.slots.len() as u32);
        self.slots.push(Slot { key, value, bytes, used: AtomicBool::new(false) });
        self.bytes += bytes;
    }

    pub(super) fn remove(&mut self, key: &K) {
        let Some(at) = self.index.remove(key) else { return };
        let gone = self.slots.swap_remove(at as usize);
        self.bytes -= gone.bytes;
        if let Some(moved) = self.slots.get(at as usize) {
            self.index.insert(moved.key, at);
        }
    }

    /// Drops those that were not used since the hand last passed, until what is left takes no more than that.
    fn evict_to(&mut self, most: usize) {
        while self.bytes > most {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(slot.used.get_mut()) {
                let key = slot.key;
                self.remove(&key);
            }
        }
    }

    /// Drops those of which `stays` says no.
    fn retain(&mut self, mut stays: impl FnMut(&K) -> bool) {
        let gone: Vec<K> = self.slots.iter().map(|s| s.key).filter(|key| !stays(key)).collect();
        for key in &gone {
            self.remove(key);
        }
    }

    /// Changes how many bytes there may be; what is over goes at once, and gives its memory back.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.bytes > limit {
            self.evict_to(limit);
            self.index.shrink_to_fit();
            self.slots.shrink_to_fit();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What the tree says of inodes.
pub(crate) type InodeCells = Cells<u64, InodeRec>;

impl InodeCells {
    /// Keeps a record of the tree.
    pub(super) fn keep(&mut self, rec: InodeRec) {
        let target = rec.target.as_ref().map_or(0, |t| t.len() + NAME_BYTES);
        self.put(rec.ino.0, rec, target);
    }

    /// A layer drops into the tree: what it changed is no longer as it was.
    pub(super) fn drop_changed(&mut self, nodes: &InoMap<Node>) {
        let changes = |node: &Node| !matches!(node.rec, RecState::Below);
        if self.slots.len() <= nodes.len() {
            self.retain(|ino| !nodes.get(ino).is_some_and(changes));
        } else {
            for (ino, _) in nodes.iter().filter(|(_, node)| changes(node)) {
                self.remove(ino);
            }
        }
    }
}

/// A directory, and the first cookie of a bucket of it.
type Bucket = (u64, u64);

/// Name cells under one lock.
type NamesPart = Cells<Bucket, Option<Dirent>>;

/// What buckets of directories hold.
#[derive(Debug)]
pub(crate) struct NameCells {
    parts: Box<[Mutex<NamesPart>]>,
    /// Hashes of buckets in which a name was missing. Nothing but whether it is worth a cell is read from them.
    missed: Box<[AtomicU64]>,
}

impl Default for NameCells {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::default()).collect();
        NameCells { parts, missed: (0..MISSED).map(|_| AtomicU64::new(0)).collect() }
    }
}

fn hash_of(bucket: &Bucket) -> u64 {
    BuildHasherDefault::<InoHasher>::default().hash_one(bucket)
}

impl NameCells {
    #[inline]
    fn part(&self, bucket: &Bucket) -> &Mutex<Cells<Bucket, Option<Dirent>>> {
        // Other bits than those that the table goes by.
        &self.parts[(hash_of(bucket) >> 40) as usize % PARTS]
    }

    /// A name is missing; whether it was not long ago, too. Most that are looked for once are then made.
    pub(crate) fn missed_again(&self, dir: InodeNo, first: u64) -> bool {
        let hash = hash_of(&(dir.0, first));
        let missed = &self.missed[(hash >> 20) as usize % MISSED];
        let again = missed.load(Relaxed) == hash;
        if !again {
            missed.store(hash, Relaxed);
        }
        again
    }

    /// The entry `name` if it is known; `Some(Err(()))` if it is known that its bucket holds none.
    #[inline]
    pub(crate) fn get(&self, dir: InodeNo, first: u64, name: &[u8]) -> Option<Result<Dirent, ()>> {
        let bucket = (dir.0, first);
        match self.part(&bucket).lock().get(&bucket)? {
            // Another name of the same hash says nothing of this one.
            Some(d) => (*d.name == *name).then(|| Ok(d.clone())),
            None => Some(Err(())),
        }
    }

    /// The inode that the entry `name` names, in the same way.
    #[inline]
    pub(crate) fn ino(&self, dir: InodeNo, first: u64, name: &[u8]) -> Option<Option<InodeNo>> {
        let bucket = (dir.0, first);
        match self.part(&bucket).lock().get(&bucket)? {
            Some(d) => (*d.name == *name).then_some(Some(d.ino)),
            None => Some(None),
        }
    }

    /// Keeps what was found in a bucket: one of its entries, or that it has none. Under the directory's shard.
    pub(crate) fn keep(&self, dir: InodeNo, first: u64, found: Option<&Dirent>) {
        let bucket = (dir.0, first);
        let elsewhere = found.map_or(0, |d| d.name.len() + NAME_BYTES);
        self.part(&bucket).lock().put(bucket, found.cloned(), elsewhere);
    }

    /// There is an entry, new or in place of one with its cookie. Under the directory's shard, alone.
    pub(super) fn changed(&self, entry: &Dirent) {
        let bucket = (entry.dir.0, cookie_parts(entry.cookie).0 << COLLISION_BITS);
        let mut part = self.part(&bucket).lock();
        // Only what was looked for.
        if part.index.contains_key(&bucket) {
            part.put(bucket, Some(entry.clone()), entry.name.len() + NAME_BYTES);
        }
    }

    /// There is an entry fewer. Under the directory's shard, alone.
    pub(super) fn removed(&self, dir: InodeNo, cookie: u64) {
        let bucket = (dir.0, cookie_parts(cookie).0 << COLLISION_BITS);
        self.part(&bucket).lock().remove(&bucket);
    }

    /// Changes how many bytes there may be.
    pub(super) fn set_limit(&self, limit: usize) {
        self.parts.iter().for_each(|part| part.lock().set_limit(limit / PARTS));
    }

    /// Bytes that there are.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().bytes()).sum()
    }
}

#[cfg(test)]
mod tests;
