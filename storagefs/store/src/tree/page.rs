//! The metadata page: its header, its two tree layouts, and the checks that every page read from the medium passes.
//!
//! A page never changes after it is built. The checksum of the whole page stands in whoever names it (parent page,
//! superblock), so an older valid page at the same address is caught by the name, not by the page.

use super::{Key, PageRef};
use crate::error::{FsError, FsResult, Place};
use crate::limits::{BLOCK, PAGE, TREE_HEIGHT_MAX, VALUE_MAX};
use std::sync::{Arc, OnceLock};
use weldfs_journal::canary::{Canary, planted};
use weldfs_journal::{BlockNo, Lsn};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First four bytes of every metadata page.
pub const PAGE_MAGIC: [u8; 4] = *b"WFpg";
/// Bytes of the header.
pub const HEADER: usize = 64;
/// Bytes of a leaf slot: key, value offset, value length.
pub const SLOT: usize = Key::BYTES + 4;
/// Bytes of an interior entry: key, address, birth, checksum.
pub(crate) const BRANCH: usize = Key::BYTES + PageRef::BYTES;
/// Bytes a page offers to its entries.
pub const CAPACITY: usize = PAGE - HEADER;

const _: () = assert!(2 * (SLOT + VALUE_MAX) <= CAPACITY);
const _: () = assert!(CAPACITY / BRANCH >= 256);

/// What a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageType {
    /// Keys and values.
    Leaf = 1,
    /// Keys and child pages.
    Interior = 2,
    /// Part of the map of metadata chunks.
    ZoneMap = 3,
}

/// The header as it stands on the medium.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct PageHeader {
    /// [`PAGE_MAGIC`].
    pub magic: [u8; 4],
    /// [`PageType`].
    pub kind: u8,
    /// 0 for leaves and zone maps, children are one lower.
    pub level: u8,
    /// Entries.
    pub count: U16,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// The page's own first block.
    pub addr: U64,
    /// LSN of the checkpoint cut that built it.
    pub birth: U64,
    /// Leaf: offset of the lowest value byte. Others: offset behind the last entry.
    pub bound: U32,
    /// Zero.
    pub reserved: [u8; 20],
}

const _: () = assert!(size_of::<PageHeader>() == HEADER);

/// The bytes of one page.
pub type PageBytes = Box<[u8; PAGE]>;

/// A zeroed page.
pub fn blank() -> PageBytes {
    vec![0u8; PAGE].into_boxed_slice().try_into().expect("the length is PAGE")
}

/// The checksum that a [`PageRef`] carries.
pub fn page_crc(bytes: &[u8; PAGE]) -> u32 {
    weldfs_functions::crc32c(&bytes[..])
}

/// A verified page in memory.
pub struct Page {
    bytes: PageBytes,
    this: PageRef,
    count: usize,
    level: u8,
    kind: PageType,
    /// Leaf: hash table from key to entry number plus one, 0 for empty; a power of two, at most two thirds full. A
    /// binary search in a cold page waits for memory at each step, this only once.
    table: Box<[u16]>,
    /// Interior children of an interior page, filled as they are first read; they live as long as the parent.
    children: Box<[OnceLock<Arc<Page>>]>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({:?} level {} count {} at {})", self.kind, self.level, self.count, self.this.addr.0)
    }
}

impl Page {
    /// Checks `bytes`, read from where `want` points, and believes them.
    pub fn verify(bytes: PageBytes, want: &PageRef, uuid: &[u8; 16]) -> FsResult<Page> {
        let bad = |what, expected, actual| {
            let place = Place::Medium(want.addr.0.wrapping_mul(BLOCK as u64));
            Err(FsError::corrupt(what, place, expected, actual))
        };
        let crc = page_crc(&bytes);
        let stale = planted(Canary::OlderPageAccepted);
        if crc != want.crc && !stale {
            return bad("metadata page (checksum)", want.crc.into(), crc.into());
        }
        let (head, _) = PageHeader::read_from_prefix(&bytes[..]).expect("a page is longer than its header");
        if head.magic != PAGE_MAGIC {
            return bad("metadata page (magic)", 0, 0);
        }
        if head.uuid != *uuid {
            return bad("metadata page (of another file system)", 0, 0);
        }
        if head.addr.get() != want.addr.0 {
            return bad("metadata page (address)", want.addr.0, head.addr.get());
        }
        if head.birth.get() != want.birth.0 && !stale {
            return bad("metadata page (birth LSN)", want.birth.0, head.birth.get());
        }
        let (kind, stride) = match head.kind {
            1 => (PageType::Leaf, SLOT),
            2 => (PageType::Interior, BRANCH),
            3 => (PageType::ZoneMap, 0),
            k => return bad("metadata page (type)", 1, k.into()),
        };
        let (count, bound) = (usize::from(head.count.get()), head.bound.get() as usize);
        if HEADER + count * stride > bound || bound > PAGE || head.reserved != [0; 20] {
            return bad("metadata page (bounds)", PAGE as u64, bound as u64);
        }
        let level_ok = match kind {
            PageType::Interior => head.level > 0 && head.level < TREE_HEIGHT_MAX && count > 0,
            PageType::Leaf => head.level == 0 && count > 0,
            PageType::ZoneMap => head.level == 0,
        };
        if !level_ok {
            return bad("metadata page (level)", 0, head.level.into());
        }
        let mut page = Page::assemble(bytes, *want, kind, head.level, count);
        page.check_entries(bound)?;
        page.fill_table();
        Ok(page)
    }

    /// Order and bounds of every entry.
    fn check_entries(&self, bound: usize) -> FsResult<()> {
        if self.kind == PageType::ZoneMap {
            return Ok(());
        }
        let bad = |what, i: usize| {
            let place = Place::Medium(self.this.addr.0 * BLOCK as u64);
            Err(FsError::corrupt(what, place, 0, i as u64))
        };
        for i in 0..self.count {
            if i > 0 && self.key(i - 1) >= self.key(i) {
                return bad("metadata page (key order)", i);
            }
            if self.kind == PageType::Leaf {
                let (off, len) = self.span(i);
                if off < bound || len > VALUE_MAX || off + len > PAGE {
                    return bad("metadata page (value bounds)", i);
                }
            }
        }
        Ok(())
    }

    fn assemble(bytes: PageBytes, this: PageRef, kind: PageType, level: u8, count: usize) -> Page {
        let cells = if level >= 2 { count } else { 0 };
        let children = (0..cells).map(|_| OnceLock::new()).collect();
        Page { bytes, this, count, level, kind, table: Box::default(), children }
    }

    fn fill_table(&mut self) {
        if self.kind != PageType::Leaf {
            return;
        }
        let mut table = vec![0u16; (self.count * 3 / 2 + 1).next_power_of_two()];
        let mask = table.len() - 1;
        for i in 0..self.count {
            let mut at = self.key(i).hash() as usize & mask;
            while table[at] != 0 {
                at = (at + 1) & mask;
            }
            table[at] = i as u16 + 1;
        }
        self.table = table.into_boxed_slice();
    }

    /// Seals a page that was built in `bytes`: writes the header, computes the checksum.
    pub fn seal(mut bytes: PageBytes, new: NewPage, count: usize, bound: usize) -> Page {
        let head = PageHeader {
            magic: PAGE_MAGIC,
            kind: new.kind as u8,
            level: new.level,
            count: U16::new(u16::try_from(count).expect("entries are at least 20 bytes")),
            uuid: new.uuid,
            addr: U64::new(new.addr.0),
            birth: U64::new(new.birth.0),
            bound: U32::new(bound as u32),
            reserved: [0; 20],
        };
        bytes[..HEADER].copy_from_slice(head.as_bytes());
        let this = PageRef { addr: new.addr, birth: new.birth, crc: page_crc(&bytes) };
        let mut page = Page::assemble(bytes, this, new.kind, new.level, count);
        page.fill_table();
        debug_assert!(page.check_entries(bound).is_ok(), "a page that would not be believed: {page:?}");
        page
    }

    /// How others name this page.
    pub fn this(&self) -> PageRef {
        self.this
    }

    /// Type.
    pub fn kind(&self) -> PageType {
        self.kind
    }

    /// Level: 0 for leaves.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All bytes, header included.
    pub fn bytes(&self) -> &[u8; PAGE] {
        &self.bytes
    }

    fn stride(&self) -> usize {
        if self.level == 0 { SLOT } else { BRANCH }
    }

    /// Key of entry `i`.
    pub fn key(&self, i: usize) -> Key {
        let at = HEADER + i * self.stride();
        Key::read(&self.bytes[at..at + Key::BYTES])
    }

    /// Offset and length of a leaf's value `i`.
    fn span(&self, i: usize) -> (usize, usize) {
        let at = HEADER + i * SLOT + Key::BYTES;
        let s = &self.bytes[at..at + 4];
        (u16::from_le_bytes([s[0], s[1]]).into(), u16::from_le_bytes([s[2], s[3]]).into())
    }

    /// Value `i` of a leaf.
    pub fn value(&self, i: usize) -> &[u8] {
        let (off, len) = self.span(i);
        &self.bytes[off..off + len]
    }

    /// Reference `i` of an interior page.
    pub fn child(&self, i: usize) -> PageRef {
        let at = HEADER + i * BRANCH + Key::BYTES;
        PageRef::read(&self.bytes[at..at + PageRef::BYTES])
    }

    /// The cell that keeps interior child `i` in memory (pages of level 2 and more).
    pub(super) fn cell(&self, i: usize) -> &OnceLock<Arc<Page>> {
        &self.children[i]
    }

    /// The interior child `i` if it is in memory.
    pub(super) fn resident(&self, i: usize) -> Option<&Arc<Page>> {
        self.children.get(i).and_then(OnceLock::get)
    }

    /// Index of the last entry whose key is at most `key`.
    pub fn floor(&self, key: Key) -> Option<usize> {
        let want = key.split();
        let stride = self.stride();
        let entries = &self.bytes[HEADER..HEADER + self.count * stride];
        let (mut base, mut n) = (0, self.count);
        while n > 1 {
            let half = n / 2;
            let at = (base + half) * stride;
            base = if Key::read_split(&entries[at..at + Key::BYTES]) <= want { base + half } else { base };
            n -= half;
        }
        let first = entries.get(base * stride..base * stride + Key::BYTES)?;
        (Key::read_split(first) <= want).then_some(base)
    }

    /// Index of `key` in a leaf.
    pub fn find(&self, key: Key) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let mut at = key.hash() as usize & mask;
        loop {
            let i = usize::from(self.table[at]).checked_sub(1)?;
            if self.key(i) == key {
                return Some(i);
            }
            at = (at + 1) & mask;
        }
    }

    /// Index of the first entry whose key is at least `key`.
    pub fn ceiling(&self, key: Key) -> usize {
        match self.floor(key) {
            None => 0,
            Some(i) if self.key(i) == key => i,
            Some(i) => i + 1,
        }
    }
}

/// What a page about to be built is.
#[derive(Debug, Clone, Copy)]
pub struct NewPage {
    /// Type.
    pub kind: PageType,
    /// Level.
    pub level: u8,
    /// File system.
    pub uuid: [u8; 16],
    /// First block.
    pub addr: BlockNo,
    /// Checkpoint cut.
    pub birth: Lsn,
}

/// Writes leaf slot `i` and its value, which ends at `top`; returns the value's offset.
pub(crate) fn put_value(bytes: &mut [u8; PAGE], i: usize, key: Key, value: &[u8], top: usize) -> usize {
    let off = top - value.len();
    bytes[off..top].copy_from_slice(value);
    let slot = &mut bytes[HEADER + i * SLOT..HEADER + (i + 1) * SLOT];
    slot[..Key::BYTES].copy_from_slice(&key.bytes());
    slot[Key::BYTES..Key::BYTES + 2].copy_from_slice(&(off as u16).to_le_bytes());
    slot[Key::BYTES + 2..].copy_from_slice(&(value.len() as u16).to_le_bytes());
    off
}

/// Writes interior entry `i`.
pub(crate) fn put_child(bytes: &mut [u8; PAGE], i: usize, key: Key, child: &PageRef) {
    let entry = &mut bytes[HEADER + i * BRANCH..HEADER + (i + 1) * BRANCH];
    entry[..Key::BYTES].copy_from_slice(&key.bytes());
    entry[Key::BYTES..].copy_from_slice(&child.bytes());
}
