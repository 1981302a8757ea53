//! Where everything is: superblock copies, log area, data groups. Pure arithmetic over the medium's length.
//!
//! ```text
//! block 0    8      16                         log end                                 last
//! +----+---+----+--+---------------------------+---------------------------------------+----+
//! | sb0|   | sb1|  | log area                  | data and metadata chunks              | sb2|
//! +----+---+----+--+---------------------------+---------------------------------------+----+
//! ```
//! Groups divide the whole medium from block 0; what is not data counts as allocated in their bitmaps.

use crate::error::ImageError;
use crate::limits::{
    BLOCK, CHUNK_PAGES_DEFAULT, CHUNK_PAGES_MAX, GROUP_BLOCKS_DEFAULT, GROUP_BLOCKS_MIN, HEAD_BLOCKS,
    LOG_LEN_DEFAULT_MAX, LOG_LEN_MAX, LOG_LEN_MIN, MEDIUM_LEN_MAX, MEDIUM_LEN_MIN, PAGE_BLOCKS, SUPERBLOCK_COPY1,
};
use std::ops::Range;
use weldfs_journal::{BlockNo, LogArea};

/// Largest group: its bitmap is one value of the tree.
const GROUP_BLOCKS_MAX: u32 = GROUP_BLOCKS_DEFAULT;
/// Images below this get small metadata chunks, bytes.
const TINY: u64 = 256 * 1024 * 1024;

/// What mkfs may choose; `None` and 0 mean the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct GeometryOptions {
    /// Length of the log area, bytes: a multiple of 4096, at least 256 KiB.
    pub log_len: Option<u64>,
    /// Alignment of log records, bytes (64, 512 or 4096); from the medium.
    pub log_align: u32,
    /// Blocks in a group: a multiple of 64, at most 32768.
    pub group_blocks: Option<u32>,
    /// Pages in a metadata chunk, 1..=64.
    pub chunk_pages: Option<u32>,
}

/// The layout of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the file system, superblock copies included.
    pub blocks: u64,
    /// The log area.
    pub log: LogArea,
    /// Blocks in a group (the last group may be shorter).
    pub group_blocks: u32,
    /// Most pages in a metadata chunk.
    pub chunk_pages: u32,
}

impl Geometry {
    /// The layout of a new image on a medium of `len` bytes.
    pub fn plan(len: u64, options: &GeometryOptions) -> Result<Geometry, ImageError> {
        if len < MEDIUM_LEN_MIN {
            return Err(ImageError::Layout("the medium is shorter than 3 MiB"));
        }
        let block = BLOCK as u64;
        let blocks = len / block;
        let default_log = (len / 8).clamp(LOG_LEN_MIN, LOG_LEN_DEFAULT_MAX) / block * block;
        let chunk_default = match len {
            l if l < TINY / 16 => 4,
            l if l < TINY => 16,
            _ => CHUNK_PAGES_DEFAULT,
        };
        let geometry = Geometry {
            blocks,
            log: LogArea {
                start: HEAD_BLOCKS * block,
                len: options.log_len.unwrap_or(default_log),
                align: if options.log_align == 0 { 4096 } else { options.log_align },
            },
            group_blocks: options.group_blocks.unwrap_or(GROUP_BLOCKS_DEFAULT),
            chunk_pages: options.chunk_pages.unwrap_or(chunk_default),
        };
        match geometry.check() {
            Ok(()) => Ok(geometry),
            Err((what, _)) => Err(ImageError::Layout(what)),
        }
    }

    /// Whether every part has a possible size and place; else the field that has not, and its value. Total: any
    /// numbers may stand in `self`.
    pub fn check(&self) -> Result<(), (&'static str, u64)> {
        let block = BLOCK as u64;
        if self.blocks < MEDIUM_LEN_MIN / block || self.blocks > MEDIUM_LEN_MAX / block {
            return Err(("number of blocks", self.blocks));
        }
        if ![64, 512, 4096].contains(&self.log.align) {
            return Err(("log alignment", self.log.align.into()));
        }
        if self.log.len < LOG_LEN_MIN || self.log.len > LOG_LEN_MAX || !self.log.len.is_multiple_of(block) {
            return Err(("log length", self.log.len));
        }
        if self.log.start != HEAD_BLOCKS * block {
            return Err(("log start", self.log.start));
        }
        let log_end = HEAD_BLOCKS + self.log.len / block;
        if log_end + 16 * PAGE_BLOCKS >= self.blocks {
            return Err(("log length (no room is left for data)", self.log.len));
        }
        if self.group_blocks < GROUP_BLOCKS_MIN
            || self.group_blocks > GROUP_BLOCKS_MAX
            || !self.group_blocks.is_multiple_of(64)
        {
            return Err(("blocks per group", self.group_blocks.into()));
        }
        if self.chunk_pages == 0 || self.chunk_pages > CHUNK_PAGES_MAX {
            return Err(("pages per chunk", self.chunk_pages.into()));
        }
        Ok(())
    }

    /// Bytes the medium must have.
    pub fn medium_len(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    /// The three superblock copies, in the order they are written.
    pub fn superblocks(&self) -> [BlockNo; 3] {
        superblock_places(self.blocks)
    }

    /// Blocks that data and metadata chunks may use.
    pub fn data_blocks(&self) -> Range<u64> {
        HEAD_BLOCKS + self.log.len / BLOCK as u64..self.blocks - 1
    }

    /// Groups.
    pub fn groups(&self) -> u64 {
        self.blocks.div_ceil(self.group_blocks.into())
    }

    /// The group a block lies in.
    pub(crate) fn group_of(&self, block: BlockNo) -> u64 {
        block.0 / u64::from(self.group_blocks)
    }

    /// The blocks of a group; shorter for the last.
    pub fn group_range(&self, group: u64) -> Range<u64> {
        let start = group * u64::from(self.group_blocks);
        start..(start + u64::from(self.group_blocks)).min(self.blocks)
    }

    /// The blocks of a group that data may use: the others count as allocated for ever.
    pub(crate) fn group_data(&self, group: u64) -> Range<u64> {
        let (group, data) = (self.group_range(group), self.data_blocks());
        let start = group.start.max(data.start);
        start..group.end.min(data.end).max(start)
    }
}

/// Where the superblock copies of an image of `blocks` blocks are.
pub(crate) fn superblock_places(blocks: u64) -> [BlockNo; 3] {
    [BlockNo(0), BlockNo(SUPERBLOCK_COPY1), BlockNo(blocks.saturating_sub(1))]
}

#[cfg(test)]
mod tests;
