//! The checkpoint tree: one ordered key space in immutable, checksummed, copy-on-write pages.
//!
//! * `page`: bytes of a page and what makes them believable;
//! * `cache`: verified pages in memory, read from the medium on demand;
//! * `apply`: a sorted batch of changes becomes a new tree beside the old one;
//! * this file: lookup, ordered scan, and the walk that fsck takes.

mod apply;
mod cache;
pub mod page;
#[cfg(test)]
mod tests;

pub use cache::{PageStats, Pages};
pub use page::{Page, PageType};

use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, TREE_HEIGHT_MAX};
use std::sync::Arc;
use weldfs_journal::{BlockNo, Lsn};

/// Where a page is, which of all pages ever written there is meant, and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRef {
    /// First block.
    pub addr: BlockNo,
    /// LSN of the checkpoint cut that built it.
    pub birth: Lsn,
    /// CRC32C of its 16 KiB.
    pub crc: u32,
}

impl PageRef {
    /// Bytes of a reference on the medium.
    pub const BYTES: usize = 20;
    /// No page: block 0 holds the superblock.
    pub const NONE: PageRef = PageRef { addr: BlockNo(0), birth: Lsn(0), crc: 0 };

    /// Whether it names no page.
    pub fn is_none(&self) -> bool {
        self.addr.0 == 0
    }

    /// On the medium: address, birth, checksum, little-endian.
    pub fn bytes(&self) -> [u8; PageRef::BYTES] {
        let mut out = [0; PageRef::BYTES];
        out[..8].copy_from_slice(&self.addr.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.birth.0.to_le_bytes());
        out[16..].copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    /// From [`PageRef::BYTES`] bytes of the medium.
    pub fn read(bytes: &[u8]) -> PageRef {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        PageRef {
            addr: BlockNo(word(0)),
            birth: Lsn(word(8)),
            crc: u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")),
        }
    }
}

/// Kinds of keys; the number is the first byte on the page.
pub mod kind {
    /// `(ino, 0)`: the inode record.
    pub const INODE: u8 = 1;
    /// `(directory, cookie)`: a directory entry.
    pub const DIRENT: u8 = 2;
    /// `(ino, window)`: extents of 1 MiB of a file.
    pub const WINDOW: u8 = 3;
    /// `(ino, slot)`: an extended attribute.
    pub(crate) const XATTR: u8 = 4;
    /// `(group, 0)`: the free-space bitmap of a group.
    pub const FREE_GROUP: u8 = 5;
    /// `(ino, LSN)`: a range or an inode to be freed step by step.
    pub const RECLAIM: u8 = 6;
    /// `(what, 0)`: everything of which there are few.
    pub(crate) const META: u8 = 7;
    /// `(transaction, chunk)`: a transaction open at the cut.
    pub const TXN: u8 = 8;
    /// `(number, 0)`: a client that ran detectable commands; `(0, uid)`: the bound of a user's that were forgotten.
    pub const CLIENT: u8 = 9;
    /// `(client number, queue and page)`: outcomes of detectable commands.
    pub(crate) const OUTCOMES: u8 = 10;
}

/// A key: ordered by kind, then `a`, then `b`; 17 big-endian bytes on the page, so that byte order is key order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// One of [`kind`].
    pub kind: u8,
    /// Usually the inode number.
    pub a: u64,
    /// Position within `a`.
    pub b: u64,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.kind {
            kind::INODE => "inode",
            kind::DIRENT => "dirent",
            kind::WINDOW => "window",
            kind::XATTR => "xattr",
            kind::FREE_GROUP => "group",
            kind::RECLAIM => "reclaim",
            kind::META => "meta",
            kind::TXN => "transaction",
            kind::CLIENT => "client",
            kind::OUTCOMES => "outcomes",
            k => return write!(f, "kind{k}({},{})", self.a, self.b),
        };
        write!(f, "{name}({},{})", self.a, self.b)
    }
}

impl Key {
    /// Bytes of a key on the page.
    pub const BYTES: usize = 17;
    /// The least key.
    pub const MIN: Key = Key { kind: 0, a: 0, b: 0 };
    /// The greatest key.
    pub const MAX: Key = Key { kind: u8::MAX, a: u64::MAX, b: u64::MAX };

    /// A key of any kind.
    pub const fn new(kind: u8, a: u64, b: u64) -> Key {
        Key { kind, a, b }
    }

    /// The inode it belongs to, if it belongs to one.
    pub fn inode(self) -> Option<u64> {
        let of_inode = [kind::INODE, kind::DIRENT, kind::WINDOW, kind::XATTR, kind::RECLAIM];
        of_inode.contains(&self.kind).then_some(self.a)
    }

    /// On the page.
    pub fn bytes(self) -> [u8; Key::BYTES] {
        let mut out = [0; Key::BYTES];
        out[0] = self.kind;
        out[1..9].copy_from_slice(&self.a.to_be_bytes());
        out[9..].copy_from_slice(&self.b.to_be_bytes());
        out
    }

    /// From 17 bytes of a page.
    pub fn read(bytes: &[u8]) -> Key {
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Key { kind: bytes[0], a: word(1), b: word(9) }
    }

    /// The key as two integers that compare as the key does: what a search compares.
    #[inline]
    fn split(self) -> (u128, u8) {
        Key::read_split(&self.bytes())
    }

    /// For the hash table of a leaf in memory; never stored.
    #[inline]
    fn hash(self) -> u64 {
        let x = (self.a ^ self.b.rotate_left(29) ^ u64::from(self.kind) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^ x >> 32
    }

    #[inline]
    fn read_split(bytes: &[u8]) -> (u128, u8) {
        (u128::from_be_bytes(bytes[..16].try_into().expect("sixteen bytes")), bytes[16])
    }
}

/// What the superblock says of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRoot {
    /// The root page, or none for an empty tree.
    pub page: PageRef,
    /// Levels: 0 for an empty tree, 1 when the root is a leaf.
    pub height: u8,
}

impl TreeRoot {
    /// The empty tree.
    pub const EMPTY: TreeRoot = TreeRoot { page: PageRef::NONE, height: 0 };
}

/// A value in its page: cheap to hold, keeps the page in memory.
#[derive(Clone)]
pub struct Value {
    page: Arc<Page>,
    index: usize,
}

impl std::ops::Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.page.value(self.index)
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}

/// One state of the key space; immutable. Clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: Option<Arc<Page>>,
}

/// What the walk meets.
#[derive(Debug)]
pub enum WalkEvent<'a> {
    /// A page that passed every check; its entries or children follow.
    Page(&'a Page),
    /// An entry of a leaf.
    Entry(Key, &'a [u8]),
    /// A page that could not be believed; nothing below it is visited.
    Bad(PageRef, FsError),
}

fn out_of_order(page: &Page, what: &'static str) -> FsError {
    FsError::corrupt(what, Place::Medium(page.this().addr.0 * BLOCK as u64), 0, 0)
}

/// Checks a child against what its parent says of it: level, first key, and that it ends before the next child.
fn check_child(parent: &Page, i: usize, child: &Page, hi: Option<Key>) -> FsResult<()> {
    if child.level() + 1 != parent.level() {
        return Err(out_of_order(child, "metadata page (level below its parent)"));
    }
    if child.key(0) != parent.key(i) {
        return Err(out_of_order(child, "metadata page (first key differs from its parent's)"));
    }
    if hi.is_some_and(|hi| child.key(child.count() - 1) >= hi) {
        return Err(out_of_order(child, "metadata page (keys beyond its parent's)"));
    }
    Ok(())
}

/// The bound of child `i`: the next child's first key, or the parent's own bound.
fn bound_of(parent: &Page, i: usize, hi: Option<Key>) -> Option<Key> {
    if i + 1 < parent.count() { Some(parent.key(i + 1)) } else { hi }
}

impl Tree {
    /// The tree without keys.
    pub fn empty() -> Tree {
        Tree::default()
    }

    /// The tree a superblock names; reads the root page.
    pub fn open(pages: &Pages, root: &TreeRoot) -> FsResult<Tree> {
        if root.page.is_none() {
            return Ok(Tree::empty());
        }
        let page = pages.get(&root.page)?;
        if page.kind() == PageType::ZoneMap || root.height > TREE_HEIGHT_MAX || page.level() + 1 != root.height {
            return Err(out_of_order(&page, "root page (height differs from the superblock's)"));
        }
        Ok(Tree { root: Some(page) })
    }

    /// What to write into the superblock.
    pub fn root(&self) -> TreeRoot {
        match &self.root {
            None => TreeRoot::EMPTY,
            Some(page) => TreeRoot { page: page.this(), height: page.level() + 1 },
        }
    }

    /// Levels.
    pub fn height(&self) -> u8 {
        self.root().height
    }

    /// The value of `key`. On a `block` medium `Err(Miss)` names the cold page to fetch before asking again.
    pub fn get(&self, pages: &Pages, key: Key) -> FsResult<Option<Value>> {
        let Some(root) = &self.root else { return Ok(None) };
        let mut page = root;
        while page.level() > 1 {
            let Some(i) = page.floor(key) else { return Ok(None) };
            page = resident_child(pages, page, i)?;
        }
        if page.level() == 0 {
            return Ok(page.find(key).map(|index| Value { page: page.clone(), index }));
        }
        let Some(i) = page.floor(key) else { return Ok(None) };
        let leaf = pages.get(&page.child(i))?;
        if leaf.kind() != PageType::Leaf {
            return Err(out_of_order(&leaf, "metadata page (level below its parent)"));
        }
        Ok(leaf.find(key).map(|index| Value { page: leaf, index }))
    }

    /// The greatest key that is not above `key`, if there is one.
    pub(crate) fn last_up_to(&self, pages: &Pages, key: Key) -> FsResult<Option<Key>> {
        let Some(root) = &self.root else { return Ok(None) };
        let mut page = root.clone();
        while page.level() > 0 {
            let Some(i) = page.floor(key) else { return Ok(None) };
            let child = pages.get(&page.child(i))?;
            check_child(&page, i, &child, bound_of(&page, i, None))?;
            page = child;
        }
        Ok(page.floor(key).map(|i| page.key(i)))
    }

    /// Calls `visit` with each key from `from` to `to` (both included) in order until it returns false. After
    /// `Err(Miss)` what was visited stays visited: fetch, then go on behind the last key seen, as `Tree::scan_on`
    /// does.
    pub fn scan(&self, pages: &Pages, from: Key, to: Key, visit: &mut dyn FnMut(Key, &[u8]) -> bool) -> FsResult<()> {
        self.scan_on(pages, &mut { from }, to, visit)
    }

    /// Like [`Tree::scan`]; an error leaves in `from` where to go on. That needs only the page that missed, never one
    /// already passed, so a scan gets on however small the cache is.
    pub(crate) fn scan_on(
        &self,
        pages: &Pages,
        from: &mut Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> bool,
    ) -> FsResult<()> {
        match &self.root {
            Some(root) if *from <= to => scan_page(pages, root, None, (from, to), visit).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// Visits every page and entry in key order, reading each page from the medium again; damage is reported and
    /// passed over, so the walk always comes to an end.
    pub fn walk(root: &TreeRoot, pages: &Pages, visit: &mut dyn FnMut(WalkEvent<'_>)) {
        Tree::walk_from(root, pages, Key::MIN, &mut |event| {
            visit(event);
            true
        });
    }

    /// Like [`Tree::walk`], but leaves out pages that hold only keys below `from`, and ends when `visit` returns false.
    pub(crate) fn walk_from(root: &TreeRoot, pages: &Pages, from: Key, visit: &mut dyn FnMut(WalkEvent<'_>) -> bool) {
        if root.page.is_none() {
            return;
        }
        let page = match pages.read_uncached(&root.page) {
            Ok(page) => page,
            Err(e) => {
                visit(WalkEvent::Bad(root.page, e));
                return;
            }
        };
        if page.kind() == PageType::ZoneMap || page.level() + 1 != root.height {
            let e = out_of_order(&page, "root page (height differs from the superblock's)");
            visit(WalkEvent::Bad(root.page, e));
            return;
        }
        walk_page(pages, &page, None, from, visit);
    }
}

/// Child `i` of a page of level 2 or more, kept by its parent from the first read on.
fn resident_child<'p>(pages: &Pages, page: &'p Page, i: usize) -> FsResult<&'p Arc<Page>> {
    if let Some(child) = page.resident(i) {
        return Ok(child);
    }
    let child = pages.get(&page.child(i))?;
    check_child(page, i, &child, bound_of(page, i, None))?;
    Ok(page.cell(i).get_or_init(|| child))
}

/// Returns false when the visitor has seen enough.
fn scan_page(
    pages: &Pages,
    page: &Page,
    hi: Option<Key>,
    (from, to): (&mut Key, Key),
    visit: &mut dyn FnMut(Key, &[u8]) -> bool,
) -> FsResult<bool> {
    if page.level() == 0 {
        for i in page.ceiling(*from)..page.count() {
            let key = page.key(i);
            if key > to || !visit(key, page.value(i)) {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    for i in page.floor(*from).unwrap_or(0)..page.count() {
        if page.key(i) > to {
            return Ok(false);
        }
        *from = page.key(i).max(*from);
        let hi = bound_of(page, i, hi);
        let go_on = if page.level() > 1 {
            scan_page(pages, resident_child(pages, page, i)?, hi, (from, to), visit)?
        } else {
            let leaf = pages.get(&page.child(i))?;
            check_child(page, i, &leaf, hi)?;
            scan_page(pages, &leaf, hi, (from, to), visit)?
        };
        if !go_on {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns false when the visitor has seen enough.
fn walk_page(
    pages: &Pages,
    page: &Page,
    hi: Option<Key>,
    from: Key,
    visit: &mut dyn FnMut(WalkEvent<'_>) -> bool,
) -> bool {
    if !visit(WalkEvent::Page(page)) {
        return false;
    }
    if page.level() == 0 {
        return (0..page.count()).all(|i| visit(WalkEvent::Entry(page.key(i), page.value(i))));
    }
    (0..page.count()).all(|i| {
        let hi = bound_of(page, i, hi);
        if hi.is_some_and(|hi| hi <= from) {
            return true;
        }
        let child = pages.read_uncached(&page.child(i)).and_then(|c| check_child(page, i, &c, hi).map(|()| c));
        match child {
            Ok(child) => walk_page(pages, &child, hi, from, visit),
            Err(e) => visit(WalkEvent::Bad(page.child(i), e)),
        }
    })
}
