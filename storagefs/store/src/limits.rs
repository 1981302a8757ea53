//! Sizes and bounds of the file system, each with its unit; relations between them are checked at compile time.

/// Bytes in a block: the unit of space on the medium.
pub const BLOCK: usize = 4096;
/// Bytes in a metadata page (tree page, zone map page).
pub const PAGE: usize = 16 * 1024;
/// Blocks in a metadata page.
pub const PAGE_BLOCKS: u64 = (PAGE / BLOCK) as u64;
/// Blocks of a file described by one window key (1 MiB of file).
pub const WINDOW_BLOCKS: u64 = 256;
/// Blocks in a data group unless mkfs says otherwise (128 MiB).
pub(crate) const GROUP_BLOCKS_DEFAULT: u32 = 32_768;
/// Fewest blocks in a group (a bitmap of whole words).
pub(crate) const GROUP_BLOCKS_MIN: u32 = 64;
/// Longest value stored under one key, bytes: two of them always fit one page.
pub(crate) const VALUE_MAX: usize = 7680;
/// Most levels of the tree; fan-out 441 makes eight levels more than any medium holds.
pub(crate) const TREE_HEIGHT_MAX: u8 = 8;
/// Pages in a metadata chunk unless the image is tiny (1 MiB).
pub(crate) const CHUNK_PAGES_DEFAULT: u32 = 64;
/// Most pages in a metadata chunk: one bitmap word.
pub(crate) const CHUNK_PAGES_MAX: u32 = 64;
/// Shortest log area, bytes.
pub const LOG_LEN_MIN: u64 = 256 * 1024;
/// Log length mkfs chooses at most by itself, bytes.
pub(crate) const LOG_LEN_DEFAULT_MAX: u64 = 64 * 1024 * 1024;
/// Longest log area, bytes.
pub const LOG_LEN_MAX: u64 = 16 * 1024 * 1024 * 1024;
/// Smallest medium mkfs accepts, bytes.
pub(crate) const MEDIUM_LEN_MIN: u64 = 3 * 1024 * 1024;
/// Largest medium, bytes: block numbers have 48 bits.
pub(crate) const MEDIUM_LEN_MAX: u64 = (1 << 48) * BLOCK as u64;
/// Blocks between the first superblock copy and the log area; the second copy lies inside.
pub(crate) const HEAD_BLOCKS: u64 = 16;
/// Block of the second superblock copy.
pub(crate) const SUPERBLOCK_COPY1: u64 = 8;
/// Entries in the superblock's table of log segments.
pub const SEGMENTS_MAX: usize = 16;
/// Entries in the superblock's table of devices.
pub(crate) const DEVICES_MAX: usize = 4;
/// Bound on everything that counts upwards (sequence, LSN, numbers of inodes and transactions): far from overflow in
/// any sum.
pub(crate) const COUNTER_MAX: u64 = 1 << 62;
/// Counters from here on are those of forged images: one more mount for writing could bring them to [`COUNTER_MAX`],
/// and write a superblock that no mount takes.
pub(crate) const COUNTER_WORN: u64 = COUNTER_MAX / 2;
/// Bytes of the volume label.
pub(crate) const LABEL_MAX: usize = 64;
/// Least memory of the page cache, bytes; smaller budgets are raised to it.
pub const PAGE_CACHE_MIN: usize = 256 * PAGE;

const _: () = assert!(SEGMENTS_MAX == weldfs_journal::SEGMENTS_MAX);
const _: () = assert!(PAGE.is_multiple_of(BLOCK));
const _: () = assert!(HEAD_BLOCKS > SUPERBLOCK_COPY1);
const _: () = assert!(CHUNK_PAGES_DEFAULT <= CHUNK_PAGES_MAX && CHUNK_PAGES_MAX <= u64::BITS);
const _: () = assert!(MEDIUM_LEN_MIN > LOG_LEN_MIN + HEAD_BLOCKS * BLOCK as u64);
const _: () = assert!(GROUP_BLOCKS_DEFAULT as usize / 8 <= VALUE_MAX, "a group's bitmap is one value");
