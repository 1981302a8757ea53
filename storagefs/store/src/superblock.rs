//! The superblock: three copies of 4 KiB that say what the image is and where its root is.
//!
//! Two types split the trust: [`RawSuperblock`] is the bytes as found, [`Superblock`] is what passed `validate` and may
//! be acted upon. The highest valid sequence wins; a damaged root never makes an older superblock win.

use crate::error::{CopyFault, ImageError};
use crate::geometry::{Geometry, superblock_places};
use crate::limits::{
    BLOCK, COUNTER_MAX, COUNTER_WORN, DEVICES_MAX, LABEL_MAX, PAGE, SEGMENTS_MAX, SUPERBLOCK_COPY1, TREE_HEIGHT_MAX,
};
use crate::tree::{PageRef, TreeRoot};
use weldfs_journal::{BlockNo, IoWrite, LogArea, Lsn, Medium, MediumError, Segment, SegmentTable, crashpoint};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First eight bytes of every copy.
pub const MAGIC: [u8; 8] = *b"WeldFS\x1a\n";
/// Format this program writes.
pub(crate) const FORMAT: (u16, u16) = (1, 0);
/// Incompatible features understood: an image with another one is refused.
pub(crate) const INCOMPAT_KNOWN: u64 = 0;
/// Read-only compatible features understood: an image with another one is mounted read-only.
pub(crate) const RO_COMPAT_KNOWN: u64 = 0;
/// Names of feature bits of the incompatible word that have been given away.
pub(crate) const INCOMPAT_NAMES: [(u32, &str); 4] =
    [(0, "several-devices"), (1, "compression"), (2, "encryption"), (3, "kept-roots")];
/// Blocks at the end of a medium in which a last copy is looked for: 1 GiB.
const SEARCHED_BLOCKS: u64 = 1 << 18;
/// `checksum_type`: CRC32C.
pub(crate) const CHECKSUM_CRC32C: u16 = 1;
/// `hash_type`: SipHash-1-3, keyed, of directory entry names.
pub(crate) const HASH_SIPHASH13: u16 = 1;
/// Flag: unmounted cleanly, the log holds nothing above the cut.
pub(crate) const FLAG_CLEAN: u32 = 1;

/// A device of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDevice {
    /// Number in block addresses.
    pub index: U16,
    /// 1: block, 2: pmem, 3: ram; what it was when formatted.
    pub kind: U16,
    /// Zero.
    pub reserved: U32,
    /// Blocks.
    pub blocks: U64,
    /// The device's own UUID.
    pub uuid: [u8; 16],
}

/// A segment of the log; unused entries are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSegment {
    /// LSN of its first record.
    pub first: U64,
    /// Byte offset of that record in the log area.
    pub offset: U64,
    /// Salt of its records.
    pub salt: U64,
}

/// A page reference; unused: zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawPageRef {
    /// Address, birth, checksum as in an interior page.
    pub page: [u8; PageRef::BYTES],
    /// Root: height of the tree. Else zero.
    pub height: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// A superblock copy as it stands on the medium.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Format version: a newer one is refused.
    pub major: U16,
    /// Format version: a newer one only uses what was reserved.
    pub minor: U16,
    /// 4096.
    pub size: U32,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Volume label, padded with zeros.
    pub label: [u8; LABEL_MAX],
    /// Features that older programs may ignore.
    pub compat: U64,
    /// Features that older programs may ignore when they only read.
    pub ro_compat: U64,
    /// Features that older programs must not ignore.
    pub incompat: U64,
    /// `CHECKSUM_CRC32C`.
    pub checksum_type: U16,
    /// `HASH_SIPHASH13`.
    pub hash_type: U16,
    /// 4096.
    pub block_size: U32,
    /// 16384.
    pub page_size: U32,
    /// Blocks in a group.
    pub group_blocks: U32,
    /// Blocks of the file system.
    pub blocks: U64,
    /// Number of this state; each store adds one.
    pub sequence: U64,
    /// The block this copy was written to.
    pub own_block: U64,
    /// `FLAG_CLEAN`.
    pub flags: U32,
    /// Devices in the table.
    pub device_count: U16,
    /// The device this copy is on.
    pub device_index: U16,
    /// Devices.
    pub devices: [RawDevice; DEVICES_MAX],
    /// First byte of the log area.
    pub log_start: U64,
    /// Bytes of the log area.
    pub log_len: U64,
    /// Alignment of records, bytes.
    pub log_align: U32,
    /// Used entries of `segments`.
    pub segment_count: U32,
    /// All segments since the checkpoint, ascending.
    pub segments: [RawSegment; SEGMENTS_MAX],
    /// The checkpoint holds every record below this LSN.
    pub cut: U64,
    /// Root of the tree.
    pub root: RawPageRef,
    /// First page of the zone map.
    pub zone: RawPageRef,
    /// Most pages in a metadata chunk.
    pub chunk_pages: U32,
    /// Longest payload kept in a record, bytes.
    pub inline_max: U32,
    /// Free blocks at the cut.
    pub free_blocks: U64,
    /// Inodes at the cut.
    pub inodes: U64,
    /// No inode number at or above was ever used at the cut.
    pub next_ino: U64,
    /// No transaction id at or above was ever used at the cut.
    pub next_txn: U64,
    /// Key of the hash of directory entry names.
    pub dirent_key: [u8; 16],
    /// When mkfs ran: seconds since 1970.
    pub made_sec: I64,
    /// When mkfs ran: nanoseconds.
    pub made_nsec: U32,
    /// Mounts for writing so far.
    pub mounts: U32,
    /// Program that wrote this copy, padded with zeros.
    pub writer: [u8; 64],
    /// Zero.
    pub reserved: [u8; 3196],
    /// CRC32C of all bytes before it.
    pub crc: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == BLOCK);
const _: () = assert!(align_of::<RawSuperblock>() == 1);

/// A superblock that may be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Volume label, padded with zeros.
    pub label: [u8; LABEL_MAX],
    /// Format version found.
    pub format: (u16, u16),
    /// Compatible features.
    pub compat: u64,
    /// Read-only compatible features.
    pub ro_compat: u64,
    /// Incompatible features.
    pub incompat: u64,
    /// Layout.
    pub geometry: Geometry,
    /// Kind of the medium when formatted (1 block, 2 pmem, 3 ram).
    pub medium_kind: u16,
    /// Number of this state.
    pub sequence: u64,
    /// Whether the log holds nothing above the cut.
    pub clean: bool,
    /// Segments of the log since the checkpoint.
    pub segments: SegmentTable,
    /// The tree holds every record below this LSN.
    pub cut: Lsn,
    /// Root of the tree.
    pub root: TreeRoot,
    /// First page of the zone map.
    pub zone: PageRef,
    /// Longest payload kept in a record, bytes.
    pub inline_max: u32,
    /// Free blocks at the cut.
    pub free_blocks: u64,
    /// Inodes at the cut.
    pub inodes: u64,
    /// Next inode number at the cut.
    pub next_ino: u64,
    /// Next transaction id at the cut.
    pub next_txn: u64,
    /// Key of the hash of directory entry names.
    pub dirent_key: [u8; 16],
    /// When mkfs ran: seconds and nanoseconds since 1970.
    pub made: (i64, u32),
    /// Mounts for writing so far.
    pub mounts: u32,
    /// Program that wrote it, padded with zeros.
    pub writer: [u8; 64],
}

/// Something a mount should tell: a copy that is damaged or old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWarning {
    /// Block of the copy.
    pub block: u64,
    /// What is wrong with it.
    pub what: String,
}

/// What is wrong with a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In words.
    pub detail: String,
    /// Checksum or sequence that was promised; 0 where there is none.
    pub expected: u64,
    /// What was found.
    pub actual: u64,
    /// Whether a power cut may have left it: a copy half written, or not yet.
    pub by_power_cut: bool,
}

impl std::fmt::Display for CopyWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "superblock copy in block {}: {}", self.block, self.what)
    }
}

/// Text in a fixed field, cut at its end, padded with zeros.
pub fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let mut n = text.len().min(N);
    while !text.is_char_boundary(n) {
        n -= 1;
    }
    out[..n].copy_from_slice(&text.as_bytes()[..n]);
    out
}

impl Superblock {
    /// The superblock of a new, empty file system: no tree, no zone, no segments.
    pub fn new(geometry: Geometry, uuid: [u8; 16], dirent_key: [u8; 16]) -> Superblock {
        let data = geometry.data_blocks();
        Superblock {
            uuid,
            label: [0; LABEL_MAX],
            format: FORMAT,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            geometry,
            medium_kind: 1,
            sequence: 0,
            clean: true,
            segments: SegmentTable::default(),
            cut: Lsn(geometry.log.len),
            root: TreeRoot::EMPTY,
            zone: PageRef::NONE,
            inline_max: 512,
            free_blocks: data.end - data.start,
            inodes: 0,
            next_ino: 2,
            next_txn: 1,
            dirent_key,
            made: (0, 0),
            mounts: 0,
            writer: padded(concat!("weldfs ", env!("CARGO_PKG_VERSION"))),
        }
    }

    /// The counter, if any, that is so high that no mount for writing may go on from it.
    pub(crate) fn worn(&self) -> Option<(&'static str, u64)> {
        let counters = [
            ("sequence", self.sequence),
            ("checkpoint cut", self.cut.0),
            ("inodes", self.inodes),
            ("next inode number", self.next_ino),
            ("next transaction id", self.next_txn),
        ];
        counters.into_iter().find(|(_, value)| *value >= COUNTER_WORN)
    }

    /// Whether it holds features under which this program may only read.
    pub fn read_only(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN != 0
    }

    /// The bytes of the copy in block `own`.
    pub fn encode(&self, own: BlockNo) -> RawSuperblock {
        let mut raw = RawSuperblock::read_from_bytes(&[0; BLOCK]).expect("the struct has a block's size");
        raw.magic = MAGIC;
        (raw.major, raw.minor) = (U16::new(self.format.0), U16::new(self.format.1));
        raw.size = U32::new(BLOCK as u32);
        (raw.uuid, raw.label) = (self.uuid, self.label);
        raw.compat = U64::new(self.compat);
        raw.ro_compat = U64::new(self.ro_compat);
        raw.incompat = U64::new(self.incompat);
        raw.checksum_type = U16::new(CHECKSUM_CRC32C);
        raw.hash_type = U16::new(HASH_SIPHASH13);
        raw.block_size = U32::new(BLOCK as u32);
        raw.page_size = U32::new(PAGE as u32);
        raw.group_blocks = U32::new(self.geometry.group_blocks);
        raw.blocks = U64::new(self.geometry.blocks);
        raw.sequence = U64::new(self.sequence);
        raw.own_block = U64::new(own.0);
        raw.flags = U32::new(if self.clean { FLAG_CLEAN } else { 0 });
        raw.device_count = U16::new(1);
        raw.devices[0].kind = U16::new(self.medium_kind);
        raw.devices[0].blocks = U64::new(self.geometry.blocks);
        raw.devices[0].uuid = self.uuid;
        raw.log_start = U64::new(self.geometry.log.start);
        raw.log_len = U64::new(self.geometry.log.len);
        raw.log_align = U32::new(self.geometry.log.align);
        encode_segments(&self.segments, &mut raw);
        raw.cut = U64::new(self.cut.0);
        raw.root.page = self.root.page.bytes();
        raw.root.height = self.root.height;
        raw.zone.page = self.zone.bytes();
        raw.chunk_pages = U32::new(self.geometry.chunk_pages);
        raw.inline_max = U32::new(self.inline_max);
        raw.free_blocks = U64::new(self.free_blocks);
        raw.inodes = U64::new(self.inodes);
        raw.next_ino = U64::new(self.next_ino);
        raw.next_txn = U64::new(self.next_txn);
        raw.dirent_key = self.dirent_key;
        raw.made_sec = I64::new(self.made.0);
        raw.made_nsec = U32::new(self.made.1);
        raw.mounts = U32::new(self.mounts);
        raw.writer = self.writer;
        raw.crc = U32::new(raw.checksum());
        raw
    }

    /// Reads the copies of a medium and believes the one with the highest sequence. Warnings tell of the others when
    /// they are damaged or old. Reads at most four blocks; writes nothing.
    pub fn load(medium: &dyn Medium) -> Result<(Superblock, Vec<CopyWarning>), ImageError> {
        let len = medium.info().len;
        let mut places = superblock_places(len / BLOCK as u64);
        let mut found = places.map(|at| read_copy(medium, at));
        let uuid = found.iter().find_map(|c| c.as_ref().ok()).map(|c| c.uuid);
        let blocks = found[..2].iter().find_map(|c| c.as_ref().ok()).map(|c| c.blocks.get());
        if let Some(blocks) = blocks.filter(|&b| b != len / BLOCK as u64 && b > SUPERBLOCK_COPY1) {
            places = superblock_places(blocks); // the medium was made longer or shorter since mkfs
            found[2] = read_copy(medium, places[2]);
        }
        for copy in &mut found {
            if copy.as_ref().is_ok_and(|c| Some(c.uuid) != uuid) {
                *copy = Err(CopyFault::Misplaced);
            }
        }
        if found.iter().all(Result::is_err)
            && let Some(blocks) = blocks_of_last_copy(medium)
        {
            places = superblock_places(blocks);
            found = places.map(|at| read_copy(medium, at));
        }
        let best = (0..3).filter(|&i| found[i].is_ok()).max_by_key(|&i| {
            let sequence = found[i].as_ref().map_or(0, |c| c.sequence.get());
            (sequence, std::cmp::Reverse(i))
        });
        let Some(best) = best else { return Err(no_copy(&found, len)) };
        let raw = found[best].as_ref().map_err(|_| no_copy(&found, len))?;
        let sb = raw.validate(len)?;
        let mut warnings = Vec::new();
        for (i, copy) in found.iter().enumerate() {
            let what = match copy {
                Ok(c) if c.sequence.get() == sb.sequence => continue,
                Ok(c) => format!("older, sequence {} instead of {}", c.sequence.get(), sb.sequence),
                Err(fault) => fault.to_string(),
            };
            warnings.push(CopyWarning { block: places[i].0, what });
        }
        Ok((sb, warnings))
    }

    /// Writes the next state: copy 0, barrier, copies 1 and 2, barrier. Everything it refers to must be persistent
    /// before; when it returns, so is it. After an error the state on the medium is either, and the
    /// medium is poisoned so that neither is written to.
    pub fn store(&mut self, medium: &dyn Medium) -> Result<(), MediumError> {
        self.sequence += 1;
        let places = self.geometry.superblocks();
        let copies = places.map(|at| self.encode(at));
        if copies[0].validate(self.geometry.medium_len()).is_err() {
            // What is on the medium is better than what no mount would take.
            medium.poison();
            return Err(MediumError::Poisoned);
        }
        let write = |i: usize| IoWrite { off: places[i].0 * BLOCK as u64, buf: copies[i].as_bytes() };
        let written = (|| {
            medium.write_batch(&[write(0)])?;
            medium.barrier()?;
            crashpoint("between-superblock-copies");
            medium.write_batch(&[write(1), write(2)])?;
            medium.barrier()
        })();
        if written.is_err() {
            medium.poison(); // a copy may name the new root: nothing that it or the old one uses may be written again
        }
        written
    }

    /// Makes the copies that `load` warned of equal to this one, which it loaded. For the mount, before the next
    /// `store`: that one overwrites copy 0 first, which must not be the only good one. What was loaded must be
    /// durable before.
    pub fn repair(&self, medium: &dyn Medium, warnings: &[CopyWarning]) -> Result<(), MediumError> {
        if warnings.is_empty() {
            return Ok(());
        }
        let stale = |at: &BlockNo| warnings.iter().any(|w| w.block == at.0);
        let places = self.geometry.superblocks();
        for at in places.into_iter().filter(stale) {
            medium.write(at.0 * BLOCK as u64, self.encode(at).as_bytes())?;
        }
        medium.barrier()
    }

    /// Reads the copies again and says what is wrong with each that is not this one.
    pub fn faults(medium: &dyn Medium, sb: &Superblock) -> Vec<(BlockNo, Fault)> {
        let places = sb.geometry.superblocks();
        let fault = |at: BlockNo| {
            let copy = read_copy(medium, at);
            let by_power_cut = match &copy {
                Ok(raw) => raw.uuid == sb.uuid,
                Err(fault) => matches!(fault, CopyFault::Crc { .. }),
            };
            let (detail, expected, actual) = match copy {
                Ok(raw) if raw.uuid != sb.uuid => (CopyFault::Misplaced.to_string(), 0, 0),
                Ok(raw) if raw.sequence.get() == sb.sequence => return None,
                Ok(raw) => {
                    let found = raw.sequence.get();
                    (format!("sequence {found} instead of {}", sb.sequence), sb.sequence, found)
                }
                Err(fault @ CopyFault::Crc { expected, actual }) => (fault.to_string(), expected.into(), actual.into()),
                Err(fault) => (fault.to_string(), 0, 0),
            };
            Some((at, Fault { detail, expected, actual, by_power_cut }))
        };
        let mut faults: Vec<_> = places.into_iter().filter_map(fault).collect();
        // The first copy is durable before another one is begun.
        if faults.len() > 1 && faults[0].0 == places[0] {
            faults.iter_mut().for_each(|(_, fault)| fault.by_power_cut = false);
        }
        faults
    }

    /// Makes a medium carry no file system: what mkfs does first, so that no copy of an older one survives it.
    pub(crate) fn wipe(medium: &dyn Medium) -> Result<(), MediumError> {
        let blocks = medium.info().len / BLOCK as u64;
        let zeros = [0; BLOCK];
        let writes = superblock_places(blocks).map(|at| IoWrite { off: at.0 * BLOCK as u64, buf: &zeros });
        medium.write_batch(&writes)?;
        medium.barrier()
    }
}

fn encode_segments(table: &SegmentTable, raw: &mut RawSuperblock) {
    let len = raw.log_len.get().max(1);
    let entries = table.entries();
    raw.segment_count = U32::new(entries.len() as u32);
    for (to, from) in raw.segments.iter_mut().zip(entries) {
        let (first, salt) = (from.first.0, from.salt);
        *to = RawSegment { first: U64::new(first), offset: U64::new(first % len), salt: U64::new(salt) };
    }
}

fn read_copy(medium: &dyn Medium, at: BlockNo) -> Result<Box<RawSuperblock>, CopyFault> {
    let mut bytes = [0; BLOCK];
    let len = medium.info().len;
    let off = at.0.checked_mul(BLOCK as u64).filter(|off| off.checked_add(BLOCK as u64).is_some_and(|end| end <= len));
    let off = off.ok_or(CopyFault::Unreadable)?;
    medium.read(off, &mut bytes).map_err(|_| CopyFault::Unreadable)?;
    let raw = RawSuperblock::read_from_bytes(&bytes).map_err(|_| CopyFault::Unreadable)?;
    if raw.magic != MAGIC {
        return Err(CopyFault::Magic);
    }
    let (expected, actual) = (raw.crc.get(), raw.checksum());
    if expected != actual {
        return Err(CopyFault::Crc { expected, actual });
    }
    if raw.own_block.get() != at.0 {
        return Err(CopyFault::Misplaced);
    }
    Ok(Box::new(raw))
}

/// The blocks of a file system of which only the last copy is left, on a medium that is longer: the copy may be
/// anywhere, and is looked for from the medium's end.
fn blocks_of_last_copy(medium: &dyn Medium) -> Option<u64> {
    let end = medium.info().len / BLOCK as u64;
    let least = end.saturating_sub(SEARCHED_BLOCKS).max(SUPERBLOCK_COPY1 + 1);
    let mut window = weldfs_journal::AlignedBuf::zeroed(256 * BLOCK);
    let mut at = end;
    while at > least {
        let from = at.saturating_sub(256).max(least);
        let bytes = &mut window[..(at - from) as usize * BLOCK];
        medium.read(from * BLOCK as u64, bytes).ok()?;
        let magic = |block: &u64| bytes[(block - from) as usize * BLOCK..].starts_with(&MAGIC);
        let is_last = |block: u64| read_copy(medium, BlockNo(block)).is_ok_and(|raw| raw.blocks.get() == block + 1);
        if let Some(last) = (from..at).rev().filter(magic).find(|block| is_last(*block)) {
            return Some(last + 1);
        }
        at = from;
    }
    None
}

fn no_copy(found: &[Result<Box<RawSuperblock>, CopyFault>; 3], len: u64) -> ImageError {
    let fault = |i: usize| found[i].as_ref().err().copied().unwrap_or(CopyFault::Misplaced);
    let faults = [fault(0), fault(1), fault(2)];
    let foreign = |f: &CopyFault| matches!(f, CopyFault::Magic | CopyFault::Unreadable);
    if faults.iter().all(foreign) { ImageError::NotWeldFs { len } } else { ImageError::Damaged { faults } }
}

fn feature_names(bits: u64) -> String {
    let name = |bit: u32| match INCOMPAT_NAMES.iter().find(|(b, _)| *b == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("bit {bit}"),
    };
    let names: Vec<String> = (0..64).filter(|bit| bits >> bit & 1 == 1).map(name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl RawSuperblock {
    /// CRC32C of everything before the checksum field.
    pub fn checksum(&self) -> u32 {
        weldfs_functions::crc32c(&self.as_bytes()[..BLOCK - 4])
    }

    /// Believes a copy whose checksum was right, on a medium of `len` bytes. Total: any bytes may come.
    pub fn validate(&self, len: u64) -> Result<Superblock, ImageError> {
        let (major, minor) = (self.major.get(), self.minor.get());
        let unknown = self.incompat.get() & !INCOMPAT_KNOWN;
        if major > FORMAT.0 || unknown != 0 {
            return Err(ImageError::Newer { major, minor, features: feature_names(unknown) });
        }
        let geometry = self.geometry()?;
        if geometry.medium_len() > len {
            return Err(ImageError::Truncated { expected: geometry.medium_len(), actual: len });
        }
        self.check_state(&geometry)?;
        let root = TreeRoot { page: PageRef::read(&self.root.page), height: self.root.height };
        Ok(Superblock {
            uuid: self.uuid,
            label: self.label,
            format: (major, minor),
            compat: self.compat.get(),
            ro_compat: self.ro_compat.get(),
            incompat: self.incompat.get(),
            geometry,
            medium_kind: self.devices[0].kind.get(),
            sequence: self.sequence.get(),
            clean: self.flags.get() & FLAG_CLEAN != 0,
            segments: self.segment_table(&geometry)?,
            cut: Lsn(self.cut.get()),
            root,
            zone: PageRef::read(&self.zone.page),
            inline_max: self.inline_max.get(),
            free_blocks: self.free_blocks.get(),
            inodes: self.inodes.get(),
            next_ino: self.next_ino.get(),
            next_txn: self.next_txn.get(),
            dirent_key: self.dirent_key,
            made: (self.made_sec.get(), self.made_nsec.get()),
            mounts: self.mounts.get(),
            writer: self.writer,
        })
    }

    fn invalid<T>(&self, field: &'static str, value: u64) -> Result<T, ImageError> {
        Err(ImageError::Invalid { block: self.own_block.get(), field, value })
    }

    /// Fields that must have one value in this format, then the layout.
    fn geometry(&self) -> Result<Geometry, ImageError> {
        let fixed: [(&'static str, u64, u64); 8] = [
            ("format major version", self.major.get().into(), FORMAT.0.into()),
            ("superblock size", self.size.get().into(), BLOCK as u64),
            ("block size", self.block_size.get().into(), BLOCK as u64),
            ("page size", self.page_size.get().into(), PAGE as u64),
            ("checksum type", self.checksum_type.get().into(), CHECKSUM_CRC32C.into()),
            ("hash type", self.hash_type.get().into(), HASH_SIPHASH13.into()),
            ("number of devices", self.device_count.get().into(), 1),
            ("blocks of device 0", self.devices[0].blocks.get(), self.blocks.get()),
        ];
        if let Some((field, value, _)) = fixed.into_iter().find(|(_, value, only)| value != only) {
            return self.invalid(field, value);
        }
        let log = LogArea { start: self.log_start.get(), len: self.log_len.get(), align: self.log_align.get() };
        let geometry = Geometry {
            blocks: self.blocks.get(),
            log,
            group_blocks: self.group_blocks.get(),
            chunk_pages: self.chunk_pages.get(),
        };
        geometry.check().or_else(|(field, value)| self.invalid(field, value))?;
        Ok(geometry)
    }

    /// Counters and references: each in a range in which no later sum can overflow.
    fn check_state(&self, geometry: &Geometry) -> Result<(), ImageError> {
        let data = geometry.data_blocks();
        let page_ok = |page: &PageRef| page.is_none() || (data.contains(&page.addr.0) && page.birth.0 < COUNTER_MAX);
        let (root, zone) = (PageRef::read(&self.root.page), PageRef::read(&self.zone.page));
        let height_ok = self.root.height <= TREE_HEIGHT_MAX && root.is_none() == (self.root.height == 0);
        let checks: [(&'static str, u64, bool); 10] = [
            ("sequence", self.sequence.get(), (1..COUNTER_MAX).contains(&self.sequence.get())),
            ("checkpoint cut", self.cut.get(), (geometry.log.len..COUNTER_MAX).contains(&self.cut.get())),
            ("root address", root.addr.0, page_ok(&root)),
            ("tree height", self.root.height.into(), height_ok),
            ("zone map address", zone.addr.0, page_ok(&zone) && (root.is_none() || !zone.is_none())),
            ("free blocks", self.free_blocks.get(), self.free_blocks.get() <= geometry.blocks),
            ("inodes", self.inodes.get(), self.inodes.get() < COUNTER_MAX),
            ("next inode number", self.next_ino.get(), (2..COUNTER_MAX).contains(&self.next_ino.get())),
            ("next transaction id", self.next_txn.get(), self.next_txn.get() < COUNTER_MAX),
            ("inline_max", self.inline_max.get().into(), self.inline_max.get() <= 1 << 20),
        ];
        if let Some((field, value, _)) = checks.into_iter().find(|(_, _, ok)| !ok) {
            return self.invalid(field, value);
        }
        let minor_is_newer = self.minor.get() > FORMAT.1;
        if !minor_is_newer && (!self.unused_is_zero() || self.flags.get() & !FLAG_CLEAN != 0) {
            return self.invalid("reserved field", 1);
        }
        Ok(())
    }

    /// Whether all that this version does not use is zero, entries of tables beyond their counts among it.
    fn unused_is_zero(&self) -> bool {
        let segments = self.segments.get(self.segment_count.get() as usize..).unwrap_or_default();
        let device = &self.devices[0];
        let words = [device.index.get().into(), device.reserved.get(), self.device_index.get().into()];
        let parts = [
            &self.reserved[..],
            self.devices[1..].as_bytes(),
            segments.as_bytes(),
            &self.root.reserved,
            &self.zone.reserved,
            &[self.zone.height],
        ];
        words == [0; 3] && parts.iter().all(|part| part.iter().all(|b| *b == 0))
    }

    fn segment_table(&self, geometry: &Geometry) -> Result<SegmentTable, ImageError> {
        let count = self.segment_count.get() as usize;
        if count > SEGMENTS_MAX {
            return self.invalid("number of log segments", count as u64);
        }
        let mut entries = Vec::with_capacity(count);
        let mut floor = geometry.log.len;
        for raw in &self.segments[..count] {
            let first = raw.first.get();
            let aligned = first % u64::from(geometry.log.align) == 0;
            if first < floor || first >= COUNTER_MAX || !aligned || raw.offset.get() != first % geometry.log.len {
                return self.invalid("first LSN of a log segment", first);
            }
            floor = first + 1;
            entries.push(Segment { first: Lsn(first), salt: raw.salt.get() });
        }
        match SegmentTable::from_entries(&entries) {
            Some(table) => Ok(table),
            None => self.invalid("number of log segments", count as u64),
        }
    }
}

#[cfg(test)]
mod tests;
