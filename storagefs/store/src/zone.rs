//! The metadata zone: where tree pages and its own map live.
//!
//! Pages are handed out from *chunks*, runs of blocks taken from the data allocator, each with a bitmap word. The map
//! of all chunks is written anew by every checkpoint into pages of the zone and named by the superblock. Within a
//! checkpoint only pages that the last durable state does not use are handed out; pages it stops using come free when
//! the checkpoint is finished, after the superblock's second flush.

use crate::error::{FsError, FsResult, Place};
use crate::geometry::Geometry;
use crate::limits::{BLOCK, CHUNK_PAGES_MAX, PAGE, PAGE_BLOCKS};
use crate::tree::page::{CAPACITY, HEADER, Page, PageType, blank};
use crate::tree::{PageRef, Pages};
use std::sync::Arc;
use weldfs_ciscops::Errno;
use weldfs_journal::{BlockNo, Lsn};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the entries of a map page begin: behind the header and the reference to the next map page.
const ENTRIES_AT: usize = HEADER + 24;
/// Bytes of an entry.
const ENTRY: usize = size_of::<RawChunk>();
/// Entries in a map page.
pub(crate) const CHUNKS_PER_PAGE: usize = (PAGE - ENTRIES_AT) / ENTRY;

/// A chunk on the medium.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChunk {
    start: U64,
    used: U64,
    pages: U16,
    reserved: [u8; 6],
}

const _: () = assert!(ENTRY == 24 && CHUNKS_PER_PAGE >= 512);

/// A run of blocks holding metadata pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// First block.
    pub start: BlockNo,
    /// Pages, at most 64.
    pub pages: u32,
    /// Bit per page that may not be handed out.
    used: u64,
    /// Handed out by the checkpoint being built.
    fresh: u64,
    /// Given back by the checkpoint being built.
    freed: u64,
}

impl Chunk {
    fn mask(&self) -> u64 {
        if self.pages >= 64 { u64::MAX } else { (1 << self.pages) - 1 }
    }

    fn end(&self) -> u64 {
        self.start.0 + u64::from(self.pages) * PAGE_BLOCKS
    }

    /// Blocks of the chunk.
    pub fn blocks(&self) -> u64 {
        u64::from(self.pages) * PAGE_BLOCKS
    }

    /// Bit per page used by the state that the next superblock will describe.
    pub fn live(&self) -> u64 {
        self.used & !self.freed
    }
}

/// The allocator of metadata pages. One owner: the checkpoint (the others read sizes under its lock).
#[derive(Debug, Clone)]
pub struct Zone {
    chunk_pages: u32,
    chunks: Vec<Chunk>,
    /// Pages of the durable map.
    map: Vec<PageRef>,
    /// Pages of the map written by the checkpoint being built.
    next_map: Option<Vec<PageRef>>,
    hint: usize,
}

impl Zone {
    /// An empty zone; [`Zone::grow`] before use. `chunk_pages`: most pages in a chunk, 1..=64.
    pub fn new(chunk_pages: u32) -> Zone {
        let chunk_pages = chunk_pages.clamp(1, CHUNK_PAGES_MAX);
        Zone { chunk_pages, chunks: Vec::new(), map: Vec::new(), next_map: None, hint: 0 }
    }

    /// The zone a superblock names. Checks every entry against `geometry`.
    pub fn load(pages: &Pages, first: &PageRef, geometry: &Geometry) -> FsResult<Zone> {
        let mut zone = Zone::new(geometry.chunk_pages);
        let mut next = *first;
        while !next.is_none() {
            let page = pages.read_any(&next)?;
            zone.map.push(next);
            next = zone.load_page(&page, geometry)?;
        }
        for at in &zone.map {
            let used = zone.chunk_of(at.addr).is_some_and(|(c, bit)| zone.chunks[c].used & bit != 0);
            if !used {
                return Err(bad(at, "zone map (its own page is not marked used)"));
            }
        }
        Ok(zone)
    }

    /// Takes over the entries of one map page; returns the next. Chunks ascend over all pages, so a chain ends.
    fn load_page(&mut self, page: &Page, geometry: &Geometry) -> FsResult<PageRef> {
        let (this, bytes) = (page.this(), page.bytes());
        let end = ENTRIES_AT + page.count() * ENTRY;
        if bytes[HEADER + PageRef::BYTES..ENTRIES_AT].iter().any(|b| *b != 0) {
            return Err(bad(&this, "zone map (reserved bytes)"));
        }
        if page.kind() != PageType::ZoneMap || page.count() == 0 || page.count() > CHUNKS_PER_PAGE {
            return Err(bad(&this, "zone map (type or size)"));
        }
        for raw in bytes[ENTRIES_AT..end].chunks_exact(ENTRY) {
            let raw = RawChunk::read_from_bytes(raw).expect("the chunk has the entry's length");
            let (start, pages) = (raw.start.get(), u32::from(raw.pages.get()));
            let chunk = Chunk { start: BlockNo(start), pages, used: raw.used.get(), fresh: 0, freed: 0 };
            let shape_ok =
                pages > 0 && pages <= CHUNK_PAGES_MAX && chunk.used & !chunk.mask() == 0 && raw.reserved == [0; 6];
            let data = geometry.data_blocks();
            let inside = start >= data.start && start < data.end && data.end - start >= chunk.blocks();
            if !shape_ok || !inside || self.chunks.last().is_some_and(|last| last.end() > start) {
                return Err(bad(&this, "zone map (impossible chunk)"));
            }
            self.chunks.push(chunk);
        }
        Ok(PageRef::read(&bytes[HEADER..HEADER + PageRef::BYTES]))
    }

    /// Adds a run of blocks the data allocator gave (and marked allocated). A remainder that holds no page is unused.
    ///
    /// # Errors
    /// Damage, when the allocator gave what is in a chunk already: the bitmaps of a forged image do not have it.
    pub fn grow(&mut self, start: BlockNo, blocks: u64) -> FsResult<()> {
        let mut at = start.0;
        let mut pages = blocks / PAGE_BLOCKS;
        while pages > 0 {
            let n = pages.min(u64::from(self.chunk_pages));
            let chunk = Chunk { start: BlockNo(at), pages: n as u32, used: 0, fresh: 0, freed: 0 };
            let i = self.chunks.partition_point(|c| c.start.0 < at);
            let apart = self.chunks.get(i).is_none_or(|c| chunk.end() <= c.start.0);
            if !apart || (i > 0 && self.chunks[i - 1].end() > at) {
                let place = Place::Medium(at * BLOCK as u64);
                return Err(FsError::corrupt("zone map (a chunk in free space)", place, 0, at));
            }
            self.chunks.insert(i, chunk);
            self.hint = i;
            at = chunk.end();
            pages -= n;
        }
        Ok(())
    }

    /// Most pages in a chunk: the granularity in which to grow.
    pub fn chunk_pages(&self) -> u32 {
        self.chunk_pages
    }

    /// All chunks, ascending.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Pages of the durable map.
    pub(crate) fn map_pages(&self) -> &[PageRef] {
        &self.map
    }

    /// Pages in all chunks.
    pub fn pages_total(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.pages)).sum()
    }

    /// Pages that can be handed out now.
    pub(crate) fn pages_free(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.pages - c.used.count_ones())).sum()
    }

    /// Pages the next superblock's state uses (tree and map).
    pub fn pages_live(&self) -> u64 {
        self.chunks.iter().map(|c| u64::from(c.live().count_ones())).sum()
    }

    /// Whether `addr` is a page of the zone that the next superblock's state uses.
    pub(crate) fn is_live(&self, addr: BlockNo) -> bool {
        self.chunk_of(addr).is_some_and(|(c, bit)| self.chunks[c].live() & bit != 0)
    }

    /// Free pages to have before applying a batch of at most `keys` changes whose new values have `bytes` bytes, the
    /// map included. Generous, but an estimate: neighbours that are merged and values of awkward sizes can need more,
    /// so a caller that meets ENOSPC aborts, grows by as much again and repeats.
    pub(crate) fn pages_needed(&self, keys: u64, bytes: u64) -> u64 {
        let rewritten = keys.min(self.pages_live());
        let added = (bytes + keys * crate::tree::page::SLOT as u64).div_ceil(CAPACITY as u64 * 4 / 5);
        let leaves = rewritten + rewritten / 4 + added + 2;
        let interior = leaves / 64 + 2 * u64::from(crate::limits::TREE_HEIGHT_MAX);
        let map = (self.chunks.len() as u64 + (leaves + interior) / u64::from(self.chunk_pages))
            .div_ceil(CHUNKS_PER_PAGE as u64)
            + 1;
        leaves + interior + map
    }

    /// Blocks to ask the data allocator for, so that `needed` pages are free: whole chunks; 0 when there are enough.
    pub(crate) fn blocks_to_grow(&self, needed: u64) -> u64 {
        let missing = needed.saturating_sub(self.pages_free());
        missing.next_multiple_of(u64::from(self.chunk_pages)) * PAGE_BLOCKS
    }

    /// Starts a checkpoint.
    pub fn begin_checkpoint(&mut self) {
        debug_assert!(self.chunks.iter().all(|c| c.fresh == 0 && c.freed == 0), "the last checkpoint was not ended");
        self.next_map = None;
    }

    /// A page that the last durable state does not use. ENOSPC when there is none.
    pub(crate) fn alloc_page(&mut self) -> FsResult<BlockNo> {
        let n = self.chunks.len();
        for i in (0..n).map(|k| (self.hint + k) % n) {
            let chunk = &mut self.chunks[i];
            let free = !chunk.used & chunk.mask();
            if free != 0 {
                let at = free.trailing_zeros();
                chunk.used |= 1 << at;
                chunk.fresh |= 1 << at;
                self.hint = i;
                return Ok(BlockNo(chunk.start.0 + u64::from(at) * PAGE_BLOCKS));
            }
        }
        Err(FsError::Errno(Errno::NOSPC))
    }

    /// Gives a page back: at once if this checkpoint had taken it, else when the checkpoint is finished.
    pub(crate) fn free_page(&mut self, addr: BlockNo) -> FsResult<()> {
        let found = self.chunk_of(addr);
        let Some((i, bit)) = found.filter(|&(i, bit)| self.chunks[i].live() & bit != 0) else {
            let at = PageRef { addr, birth: Lsn(0), crc: 0 };
            return Err(bad(&at, "metadata page (in use but free in the zone map)"));
        };
        let chunk = &mut self.chunks[i];
        if chunk.fresh & bit != 0 {
            chunk.fresh &= !bit;
            chunk.used &= !bit;
        } else {
            chunk.freed |= bit;
        }
        Ok(())
    }

    fn chunk_of(&self, addr: BlockNo) -> Option<(usize, u64)> {
        let i = self.chunks.partition_point(|c| c.start.0 <= addr.0).checked_sub(1)?;
        let off = addr.0 - self.chunks[i].start.0;
        let inside = off < self.chunks[i].blocks() && off.is_multiple_of(PAGE_BLOCKS);
        inside.then(|| (i, 1 << (off / PAGE_BLOCKS)))
    }

    /// Writes the map of the state being built (no barrier); returns what the superblock has to name. The last thing
    /// a checkpoint allocates.
    pub fn write_map(&mut self, pages: &Pages, birth: Lsn) -> FsResult<PageRef> {
        debug_assert!(self.next_map.is_none(), "the map is written once in a checkpoint");
        for old in self.map.clone() {
            self.free_page(old.addr)?;
        }
        let parts = self.chunks.len().div_ceil(CHUNKS_PER_PAGE);
        let addrs = (0..parts).map(|_| self.alloc_page()).collect::<FsResult<Vec<_>>>()?;
        let mut next = PageRef::NONE;
        let mut built = Vec::with_capacity(parts);
        for (part, addr) in self.chunks.chunks(CHUNKS_PER_PAGE).zip(&addrs).rev() {
            let mut bytes = blank();
            bytes[HEADER..HEADER + PageRef::BYTES].copy_from_slice(&next.bytes());
            for (i, c) in part.iter().enumerate() {
                let pages = U16::new(c.pages as u16);
                let raw = RawChunk { start: U64::new(c.start.0), used: U64::new(c.live()), pages, reserved: [0; 6] };
                bytes[ENTRIES_AT + i * ENTRY..ENTRIES_AT + (i + 1) * ENTRY].copy_from_slice(raw.as_bytes());
            }
            let new = pages.new_page(PageType::ZoneMap, 0, *addr, birth);
            let page = Page::seal(bytes, new, part.len(), ENTRIES_AT + part.len() * ENTRY);
            next = page.this();
            built.push(Arc::new(page));
        }
        pages.write(&built, false)?;
        self.next_map = Some(built.iter().rev().map(|p| p.this()).collect());
        Ok(next)
    }

    /// The checkpoint is durable (after the superblock's second flush): pages it gave back can be handed out.
    pub fn finish(&mut self) {
        for c in &mut self.chunks {
            c.used = c.live();
            (c.fresh, c.freed) = (0, 0);
        }
        if let Some(map) = self.next_map.take() {
            self.map = map;
        }
    }

    /// The checkpoint failed before its superblock was written: as if it had not begun. Chunks added by
    /// [`Zone::grow`] stay.
    pub fn abort(&mut self) {
        for c in &mut self.chunks {
            c.used &= !c.fresh;
            (c.fresh, c.freed) = (0, 0);
        }
        self.next_map = None;
    }
}

#[cold]
fn bad(at: &PageRef, what: &'static str) -> FsError {
    FsError::corrupt(what, Place::Medium(at.addr.0.wrapping_mul(BLOCK as u64)), 0, 0)
}

#[cfg(test)]
mod tests;
