//! The seam to storage: write / persist / barrier, one vocabulary for block and byte-addressable media.

use weldfs_ciscops::Errno;
use weldfs_ciscops::pool::SharedBytes;

/// What the bytes persist on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// A file or block device behind O_DIRECT.
    Block,
    /// A memory mapping with write-back and fence.
    Pmem,
    /// Heap memory; gone with the process.
    Ram,
}

impl MediumKind {
    /// As reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            MediumKind::Block => "block",
            MediumKind::Pmem => "pmem",
            MediumKind::Ram => "ram",
        }
    }
}

/// How a barrier is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushMode {
    /// fdatasync or its equal.
    Sync,
    /// Cache-line write-back and store fence.
    Instructions,
    /// Nothing: bytes survive at most the process.
    None,
}

/// What a medium is. Constant over its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediumInfo {
    /// Bytes; a multiple of 4096.
    pub len: u64,
    /// Kind.
    pub kind: MediumKind,
    /// Atomic unit in bytes: 512 on block, 8 on byte-addressable media.
    pub unit: u32,
    /// Log records start at multiples of this: 64 on byte-addressable media, a logical sector on block.
    pub log_align: u32,
    /// Whether flushed bytes survive the loss of power.
    pub power_safe: bool,
    /// How a barrier is made.
    pub flush: FlushMode,
    /// Loads and stores reach it directly; reads never wait.
    pub byte_addressable: bool,
    /// Opened without the right to write.
    pub read_only: bool,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct IoWrite<'a> {
    /// Byte offset on the medium.
    pub off: u64,
    /// Bytes; best page-aligned on block media.
    pub buf: &'a [u8],
}

/// Why a medium refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediumError {
    /// An earlier flush failed or the mapping faulted; nothing is tried again.
    #[error("the medium is poisoned by an earlier failure")]
    Poisoned,
    /// The operating system's error.
    #[error("medium {what} at byte {off}, {len} bytes: os error {os}")]
    Io {
        /// read, write or flush.
        what: &'static str,
        /// Byte offset.
        off: u64,
        /// Bytes asked for.
        len: u64,
        /// Error number; 0 for a short transfer.
        os: i32,
    },
    /// Not inside the medium, or not aligned as the call demands.
    #[error("range of {len} bytes at byte {off} is outside the medium or misaligned")]
    OutOfRange {
        /// Byte offset.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// Opened read-only.
    #[error("the medium is open for reading only")]
    ReadOnly,
}

impl From<&MediumError> for Errno {
    fn from(e: &MediumError) -> Errno {
        match e {
            MediumError::ReadOnly => Errno::ROFS,
            _ => Errno::IO,
        }
    }
}

impl From<MediumError> for Errno {
    fn from(e: MediumError) -> Errno {
        Errno::from(&e)
    }
}

/// Storage of a fixed length. Thread-safe: calls on disjoint ranges may run at once; the caller keeps overlapping ones
/// apart (the journal by its lock, the store by never writing a block that anything refers to).
///
/// Durability: what `write`, `write_batch` and `ingest` stored is durable after any later `barrier`, by any thread.
/// What `store` stored is durable after a later `persist` of its range followed by a `barrier` *of the same thread*.
/// Until then any subset may survive a crash, torn at `info().unit`.
pub trait Medium: Send + Sync {
    /// What it is.
    fn info(&self) -> MediumInfo;

    /// Fills `buf` from byte `off`.
    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError>;

    /// Stores `buf` at byte `off`. Byte-addressable: non-temporal stores. Block: returns when the write completed,
    /// not flushed; a range that is not sector-aligned costs a read-modify-write and is meant for format and repair.
    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError>;

    /// Writes submitted together; returns when all completed. On an error some may have been done.
    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        for w in writes {
            self.write(w.off, w.buf)?;
        }
        Ok(())
    }

    /// Stores whole 4 KiB pages where they survive this process, at the least cost: on block media in the memory of the
    /// host's kernel. Durable, as what `write` stored, after a later `barrier`; until then no `write` may touch them.
    fn hand_over(&self, off: u64, pages: &[u8]) -> Result<(), MediumError> {
        self.write(off, pages)
    }

    /// Stores with regular stores on byte-addressable media (needs `persist`); the same as `write` elsewhere.
    fn store(&self, off: u64, buf: &[u8]) -> Result<(), MediumError> {
        self.write(off, buf)
    }

    /// Starts the write-back of a range that `store` stored. Nothing on block media.
    fn persist(&self, _off: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }

    /// Store fence or flush. A failure poisons the medium.
    fn barrier(&self) -> Result<(), MediumError>;

    /// One pass: copies `src` (untrusted, may change meanwhile) to byte `off` and gives the CRC-32C of the bytes
    /// stored, one per 4 KiB block. `off` and `src.len()` are multiples of 4096; `sums` has one place per block.
    fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        check_blocks(off, src.len(), sums.len())?;
        let mut block = [0; crate::BLOCK];
        for (i, sum) in sums.iter_mut().enumerate() {
            src.sub(i * crate::BLOCK, crate::BLOCK).copy_to(&mut block);
            *sum = weldfs_functions::crc32c(&block);
            self.write(off + (i * crate::BLOCK) as u64, &block)?;
        }
        Ok(())
    }

    /// One pass: copies the 4 KiB block at `off` into shared memory (`dst` is one block long) and gives the CRC-32C of
    /// what was copied, which the caller judges.
    fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        check_blocks(off, dst.len(), 1)?;
        let mut block = [0; crate::BLOCK];
        self.read(off, &mut block)?;
        dst.copy_from(&block);
        Ok(weldfs_functions::crc32c(&block))
    }

    /// Whether an earlier failure was final.
    fn is_poisoned(&self) -> bool;

    /// Makes every later write and barrier fail.
    fn poison(&self);

    /// The end: nothing is written through this any more (it is poisoned), and a lock on what is below is released,
    /// though a thread's queue pair or a forked child may keep the medium itself for a while.
    fn let_go(&self) {
        self.poison();
    }
}

/// Checks the block arithmetic of `ingest` and `emit`: whole blocks, one checksum each.
pub fn check_blocks(off: u64, len: usize, sums: usize) -> Result<(), MediumError> {
    let block = crate::BLOCK;
    if !off.is_multiple_of(block as u64) || !len.is_multiple_of(block) || sums != len / block {
        return Err(MediumError::OutOfRange { off, len: len as u64 });
    }
    Ok(())
}
