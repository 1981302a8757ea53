//! What bytes persist on: the one seam between the file system and hardware, and the one that every crash test hangs on.

use weldfs_ciscops::SharedBytes;

/// Kind of medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediumKind {
    /// File or block device; a flush is the persist point.
    Block,
    /// Byte-addressable mapping; write-back plus fence is the persist point.
    Pmem,
    /// Memory of this process; nothing survives it.
    Ram,
}

/// What a medium is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MediumInfo {
    /// Size in bytes.
    pub len: u64,
    /// Kind.
    pub kind: MediumKind,
    /// Bytes that persist atomically: 512 (block) or 8 (pmem, ram).
    pub unit: u32,
    /// Records start at multiples of this: 64 (byte-addressable), 512 or 4096 (block).
    pub log_align: u32,
    /// Whether a completed barrier survives a power cut.
    pub power_safe: bool,
    /// Whether stores take effect at once, without a submission.
    pub byte_addressable: bool,
}

/// Why a medium refused. `Poisoned` is final until the image is opened again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MediumError {
    /// The operating system refused an access.
    #[error("{what} at byte {off}: {error}")]
    Io {
        /// "read", "write" or "flush".
        what: &'static str,
        /// Byte offset.
        off: u64,
        /// The system's word.
        error: std::sync::Arc<std::io::Error>,
    },
    /// An access past the end.
    #[error("bytes {off}..+{len} lie past the medium's end")]
    OutOfRange {
        /// Byte offset.
        off: u64,
        /// Bytes.
        len: u64,
    },
    /// An earlier failure was final.
    #[error("the medium is poisoned by an earlier failure")]
    Poisoned,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct IoWrite<'a> {
    /// Byte offset.
    pub off: u64,
    /// The bytes.
    pub buf: &'a [u8],
}

/// Bytes that persist. Thread-safe; callers keep concurrent accesses disjoint.
pub trait Medium: Send + Sync {
    /// What it is.
    fn info(&self) -> MediumInfo;
    /// Copies bytes out.
    fn read(&self, off: u64, buf: &mut [u8]) -> Result<(), MediumError>;
    /// Byte-addressable: a store, not fenced yet. Block: a completed write, not flushed yet.
    fn write(&self, off: u64, buf: &[u8]) -> Result<(), MediumError>;
    /// Submits all together and returns when all are completed.
    fn write_batch(&self, writes: &[IoWrite<'_>]) -> Result<(), MediumError> {
        writes.iter().try_for_each(|w| self.write(w.off, w.buf))
    }
    /// Byte-addressable: starts write-back of a stored range. Others: nothing.
    fn persist(&self, off: u64, len: u64) -> Result<(), MediumError>;
    /// Everything written (and, byte-addressable, handed to `persist`) before is durable after. Failure poisons.
    fn barrier(&self) -> Result<(), MediumError>;
    /// Copies untrusted memory to the medium in one pass; `sums[i]` becomes the CRC32C of the i-th 4 KiB as stored.
    /// `src` is a whole number of blocks.
    fn ingest(&self, off: u64, src: SharedBytes<'_>, sums: &mut [u32]) -> Result<(), MediumError> {
        let mut block = [0u8; crate::BLOCK];
        for (i, sum) in sums.iter_mut().enumerate() {
            src.sub(i * crate::BLOCK, crate::BLOCK).copy_to(&mut block);
            *sum = weldfs_functions::crc32c(&block);
            self.write(off + (i * crate::BLOCK) as u64, &block)?;
        }
        Ok(())
    }
    /// Copies one whole block from the medium to untrusted memory and returns the CRC32C of what was copied.
    fn emit(&self, off: u64, dst: SharedBytes<'_>) -> Result<u32, MediumError> {
        let mut block = [0u8; crate::BLOCK];
        self.read(off, &mut block)?;
        dst.copy_from(&block);
        Ok(weldfs_functions::crc32c(&block))
    }
    /// Whether an earlier failure was final.
    fn is_poisoned(&self) -> bool;
    /// Makes every later access fail.
    fn poison(&self);
}
