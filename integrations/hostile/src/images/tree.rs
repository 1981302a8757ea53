//! The tree of an image, by this file's own reading of docs/MEDIA-FORMAT.md: keys and values of every page that is what
//! the page above says of it, and which keys are lost because a page is not. (That a page has the checksum that is said
//! of it is left to others: a draft puts all of them right, and a listing that meets a wrong one has no success.)

use super::pristine::{BLOCK, PAGE};
use std::collections::{BTreeMap, BTreeSet};
use weldfs_fuzz_targets::media::number;
use weldfs_media::CowImage;

/// Bytes of a page's header, of a key, of a page reference, of a leaf's slot and of an interior page's entry.
const HEADER: usize = 64;
const KEY: usize = 17;
const REFERENCE: usize = 20;
const SLOT: usize = KEY + 4;
const BRANCH: usize = KEY + REFERENCE;
/// The longest value.
const VALUE_MAX: usize = 7680;
/// Kinds of keys.
const INODE: u8 = 1;
const DIRENT: u8 = 2;
const RECLAIM: u8 = 6;
const TRANSACTION: u8 = 8;
/// Where the superblock has the UUID, flags, root and its height.
const UUID: usize = 16;
const FLAGS: usize = 160;
const ROOT: usize = 712;
const HEIGHT: usize = 732;
/// Pages looked at.
const PAGES_MAX: usize = 256;
/// Cookies below it are no entry's: the start of a listing, `.` and `..`.
const COOKIES_FROM: u64 = 3;

/// A key as it stands in a page.
pub type Key = [u8; KEY];

/// Above all keys.
const END: Key = [0xff; KEY];

/// See the module.
pub struct Tree {
    /// The first superblock copy.
    pub sb: [u8; BLOCK as usize],
    /// Keys and values.
    pub entries: BTreeMap<Key, Vec<u8>>,
    /// From where and below where there may be keys that cannot be had.
    lost: Vec<(Key, Key)>,
    pages: usize,
}

/// An entry of a directory, if its value is one.
pub struct Named {
    pub key: Key,
    pub cookie: u64,
    /// The name, and the number of the inode that it names.
    pub what: Option<(Vec<u8>, u64)>,
}

/// A key of numbers.
pub fn key(kind: u8, a: u64, b: u64) -> Key {
    let mut key = [kind; KEY];
    key[1..9].copy_from_slice(&a.to_be_bytes());
    key[9..].copy_from_slice(&b.to_be_bytes());
    key
}

/// The `a` and the `b` of a key.
fn numbers(key: &Key) -> (u64, u64) {
    let word = |at: usize| key[at..at + 8].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    (word(1), word(9))
}

impl Tree {
    /// Reads it; `None` if there is more than a small image has.
    pub fn read(image: &CowImage) -> Option<Tree> {
        let mut sb = [0; BLOCK as usize];
        image.read(0, &mut sb);
        let mut tree = Tree { sb, entries: BTreeMap::new(), lost: Vec::new(), pages: 0 };
        if sb[HEIGHT] > 0 {
            let root: [u8; REFERENCE] = sb[ROOT..ROOT + REFERENCE].try_into().ok()?;
            tree.page(image, &root, sb[HEIGHT] - 1, None, END)?;
        }
        Some(tree)
    }

    /// Whether the superblock says that the log holds nothing.
    pub fn log_is_empty(&self) -> bool {
        number(&self.sb, FLAGS, 4) & 1 == 1
    }

    /// Takes in what the page holds that is referred to, and what is below it. Its keys begin with `first` and are
    /// below `end`.
    fn page(
        &mut self,
        image: &CowImage,
        reference: &[u8; REFERENCE],
        level: u8,
        first: Option<Key>,
        end: Key,
    ) -> Option<()> {
        self.pages += 1;
        if self.pages > PAGES_MAX {
            return None;
        }
        let Some((page, keys)) = self.sound(image, reference, level, first, end) else {
            self.lost.push((first.unwrap_or([0; KEY]), end));
            return Some(());
        };
        for (i, key) in keys.iter().enumerate() {
            if level == 0 {
                let (at, len) = span(&page, i);
                self.entries.insert(*key, page[at..at + len].to_vec());
            } else {
                let at = HEADER + i * BRANCH + KEY;
                let child: [u8; REFERENCE] = page[at..at + REFERENCE].try_into().ok()?;
                self.page(image, &child, level - 1, Some(*key), keys.get(i + 1).copied().unwrap_or(end))?;
            }
        }
        Some(())
    }

    /// The bytes of a page and its keys, if it is one and the one that is meant.
    fn sound(
        &self,
        image: &CowImage,
        reference: &[u8; REFERENCE],
        level: u8,
        first: Option<Key>,
        end: Key,
    ) -> Option<(Vec<u8>, Vec<Key>)> {
        let (addr, birth) = (number(reference, 0, 8), number(reference, 8, 8));
        let at = addr.checked_mul(BLOCK).filter(|at| at.checked_add(PAGE).is_some_and(|end| end <= image.len()))?;
        let mut page = vec![0; PAGE as usize];
        image.read(at, &mut page);
        let (kind, stride) = if level == 0 { (1, SLOT) } else { (2, BRANCH) };
        let (count, bound) = (number(&page, 6, 2) as usize, number(&page, 40, 4) as usize);
        let own = number(&page, 24, 8) == addr && number(&page, 32, 8) == birth;
        let head = &page[..4] == b"WFpg" && page[8..24] == self.sb[UUID..UUID + 16] && page[44..HEADER] == [0; 20];
        let fits = count > 0 && HEADER + count * stride <= bound && bound <= page.len();
        if page[4] != kind || page[5] != level || !own || !head || !fits {
            return None;
        }
        let key = |i: usize| -> Key {
            let at = HEADER + i * stride;
            page[at..at + KEY].try_into().expect("as long as a key")
        };
        let keys: Vec<Key> = (0..count).map(key).collect();
        let spans = (0..count).map(|i| if level == 0 { span(&page, i) } else { (bound, 0) });
        let inside = |(at, len): (usize, usize)| at >= bound && len <= VALUE_MAX && at + len <= page.len();
        let right = keys.is_sorted_by(|a, b| a < b)
            && first.is_none_or(|first| first == keys[0])
            && keys[count - 1] < end
            && { spans }.all(inside);
        right.then_some((page, keys))
    }

    /// The entries of a directory, in the order of a listing. (None has a cookie that is no entry's: a listing begins
    /// behind these.)
    pub fn dirents(&self, dir: u64) -> impl Iterator<Item = Named> + '_ {
        let all = self.entries.range(key(DIRENT, dir, COOKIES_FROM)..=key(DIRENT, dir, u64::MAX));
        all.map(|(key, value)| Named { key: *key, cookie: numbers(key).1, what: dirent(value) })
    }

    /// The directories that have entries.
    pub fn directories(&self) -> BTreeSet<u64> {
        let all = self.entries.range(key(DIRENT, 0, 0)..=key(DIRENT, u64::MAX, u64::MAX));
        all.map(|(key, _)| numbers(key).0).collect()
    }

    /// Whether every page is there that may hold entries of a directory.
    pub fn has_all_of(&self, dir: u64) -> bool {
        let (from, to) = (key(DIRENT, dir, COOKIES_FROM), key(DIRENT, dir, u64::MAX));
        self.lost.iter().all(|(first, end)| *end <= from || *first > to)
    }

    /// The record of an inode.
    pub fn inode(&self, ino: u64) -> Option<&Vec<u8>> {
        self.entries.get(&key(INODE, ino, 0))
    }

    /// The type and permissions in the record of an inode.
    pub fn mode(&self, ino: u64) -> Option<u64> {
        let mut rest = self.inode(ino)?.strip_prefix(&[1])?;
        var(&mut rest)?;
        var(&mut rest)
    }

    /// Whether something of an inode, or all of it, is to be freed.
    pub fn goes(&self, ino: u64) -> bool {
        self.entries.range(key(RECLAIM, ino, 0)..=key(RECLAIM, ino, u64::MAX)).next().is_some()
    }

    /// What the tree keeps of transactions that were open when it was written.
    pub fn transactions(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.entries.range(key(TRANSACTION, 0, 0)..=key(TRANSACTION, u64::MAX, u64::MAX)).map(|(_, value)| value)
    }
}

/// Where value `i` of a leaf begins, and its bytes.
fn span(page: &[u8], i: usize) -> (usize, usize) {
    let at = HEADER + i * SLOT + KEY;
    (number(page, at, 2) as usize, number(page, at + 2, 2) as usize)
}

/// Takes a number of variable length, in its shortest form.
fn var(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..70).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        if shift == 63 && *byte > 1 {
            return None;
        }
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return (*byte != 0 || shift == 0).then_some(n);
        }
    }
    None
}

/// The name and the inode number of a directory entry.
fn dirent(value: &[u8]) -> Option<(Vec<u8>, u64)> {
    let mut rest = value.strip_prefix(&[1])?;
    let ino = var(&mut rest)?;
    rest = rest.split_first()?.1;
    let (mark, len) = (var(&mut rest)?, var(&mut rest)?);
    let right = mark <= u64::from(u16::MAX) && (1..256).contains(&len) && len == rest.len() as u64;
    (right && !rest.contains(&0)).then(|| (rest.to_vec(), ino))
}
