//! What can go wrong in the file system, and the one table that turns it into an errno.

use crate::tree::PageRef;
use weldfs_ciscops::Errno;
use weldfs_journal::{BlockNo, JournalError, Lsn, MediumError, ScanError};

/// Result of everything in this crate that can fail.
pub type FsResult<T> = Result<T, FsError>;

/// Something cold on a `block` medium: fetch it, then ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// A metadata page.
    Page(PageRef),
    /// Data blocks.
    Blocks {
        /// First block.
        addr: BlockNo,
        /// How many.
        count: u32,
    },
}

/// What an operation must await before it can be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A durable checkpoint: it frees log, blocks or overlay memory.
    Checkpoint,
    /// The next bounded reclaim step, and the checkpoint that makes what it freed usable.
    Reclaim,
    /// Reclaim alone: an inode has as many cuts pending as it may have.
    Drain,
    /// The end of other plans: what they were promised and have not taken is free then. Nothing has to be done.
    Plans,
}

/// Where damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Byte offset on the medium.
    Medium(u64),
    /// Byte offset in a file.
    File {
        /// Inode number.
        ino: u64,
        /// Byte offset.
        off: u64,
    },
    /// A key of the tree.
    Key(crate::tree::Key),
    /// Position in the log.
    Log(Lsn),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Medium(off) => write!(f, "byte {off} of the medium"),
            Place::File { ino, off } => write!(f, "byte {off} of inode {ino}"),
            Place::Key(k) => write!(f, "key {k}"),
            Place::Log(lsn) => write!(f, "log position {}", lsn.0),
        }
    }
}

/// Bytes that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("damaged {what} at {place}: expected {expected:#010x}, found {actual:#010x}")]
pub struct Corrupt {
    /// What was being read, and which of its properties is wrong.
    pub what: &'static str,
    /// Where.
    pub place: Place,
    /// The value (checksum, count, address) that was promised.
    pub expected: u64,
    /// The value that was found.
    pub actual: u64,
}

/// Any failure inside the file system.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// An answer POSIX names.
    #[error("{0}")]
    Errno(Errno),
    /// Cold metadata or data: not a failure, a request to fetch.
    #[error("not in memory: {0:?}")]
    Miss(Miss),
    /// A stride of long work is done: not a failure. Others may have their turn; then it is asked again, and goes on.
    #[error("one stride further")]
    Turn,
    /// Under the inode set the names resolve to other inodes than before it.
    #[error("the inode set changed")]
    SetChanged,
    /// Resources come free only after something else.
    #[error("must wait for a {0:?}")]
    Wait(Wait),
    /// The medium failed; it is poisoned.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// The log refused.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A checksum or a structural promise is broken.
    #[error(transparent)]
    Corrupt(Box<Corrupt>),
}

impl FsError {
    /// Damage: `what` at `place`.
    #[cold]
    pub fn corrupt(what: &'static str, place: Place, expected: u64, actual: u64) -> FsError {
        FsError::Corrupt(Box::new(Corrupt { what, place, expected, actual }))
    }
}

impl From<Errno> for FsError {
    fn from(e: Errno) -> FsError {
        FsError::Errno(e)
    }
}

impl From<Miss> for FsError {
    fn from(m: Miss) -> FsError {
        FsError::Miss(m)
    }
}

/// The one table from a failure to the errno a caller sees. A miss, a changed set and a wait are handled inside the
/// device; if one escapes, EAGAIN says truthfully that nothing was done.
impl From<&FsError> for Errno {
    fn from(e: &FsError) -> Errno {
        match e {
            FsError::Errno(e) => *e,
            FsError::Miss(_) | FsError::Turn | FsError::SetChanged | FsError::Wait(_) => Errno::AGAIN,
            FsError::Medium(m) => Errno::from(m),
            FsError::Journal(j) => Errno::from(j),
            FsError::Corrupt(_) => Errno::IO,
        }
    }
}

impl From<FsError> for Errno {
    fn from(e: FsError) -> Errno {
        Errno::from(&e)
    }
}

/// Why one copy of the superblock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CopyFault {
    /// No WeldFS magic.
    #[error("no WeldFS magic")]
    Magic,
    /// The checksum differs.
    #[error("checksum is {actual:#010x}, expected {expected:#010x}")]
    Crc {
        /// Stored in the copy.
        expected: u32,
        /// Of the bytes found.
        actual: u32,
    },
    /// A valid superblock, but of another block or another file system.
    #[error("it belongs to another place or another file system")]
    Misplaced,
    /// Outside the medium or unreadable.
    #[error("unreadable")]
    Unreadable,
}

/// Why an image cannot be opened: one sentence each, naming what and where.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// Nothing of WeldFS in it.
    #[error("not a WeldFS image: no superblock in block 0, block 8 or the last GiB of {len} bytes")]
    NotWeldFs {
        /// Length of the medium, bytes.
        len: u64,
    },
    /// Shorter than its superblock says.
    #[error("truncated image: the file system has {expected} bytes, the medium only {actual}")]
    Truncated {
        /// Bytes the geometry needs.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// Made by a newer WeldFS.
    #[error("image of a newer version: format {major}.{minor}, unknown incompatible features: {features}")]
    Newer {
        /// Major format version of the image.
        major: u16,
        /// Minor format version of the image.
        minor: u16,
        /// Names or bit numbers of what is not understood.
        features: String,
    },
    /// Superblock copies are there, but none can be believed.
    #[error("damaged image: superblock copies: block 0: {0}; block 8: {1}; last block: {2}",
        faults[0], faults[1], faults[2])]
    Damaged {
        /// The fault of each copy.
        faults: [CopyFault; 3],
    },
    /// The checksum is right but a field cannot be.
    #[error("invalid superblock in block {block}: {field} is {value}")]
    Invalid {
        /// Block of the copy.
        block: u64,
        /// Field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A counter is close to its end, which no image reaches by being used.
    #[error("forged image: {field} is {value}; it can be read, and not written")]
    Worn {
        /// Field of the superblock, or what the log brings it to.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// mkfs was asked for a layout that cannot be.
    #[error("no such layout: {0}")]
    Layout(&'static str),
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

/// Why a mount failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The log is damaged below a recorded watermark.
    #[error(transparent)]
    Log(#[from] ScanError),
    /// The log cannot be opened for appending.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Metadata needed at mount.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// The medium.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

impl MountError {
    /// Whether the image is one, and damage in it is what keeps it from being mounted.
    pub fn is_damage(&self) -> bool {
        matches!(self, MountError::Log(ScanError::Corrupt { .. }) | MountError::Fs(FsError::Corrupt(_)))
    }
}

impl From<&MountError> for Errno {
    fn from(e: &MountError) -> Errno {
        match e {
            MountError::Fs(e) => Errno::from(e),
            MountError::Image(ImageError::NotWeldFs { .. } | ImageError::Newer { .. } | ImageError::Layout(_)) => {
                Errno::INVAL
            }
            MountError::Medium(m) => Errno::from(m),
            MountError::Journal(e) => Errno::from(e),
            MountError::Image(_) | MountError::Log(_) => Errno::IO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_printed_in_full_width() {
        let text = FsError::corrupt("data checksum", Place::Log(Lsn(7)), 0x1f, 0xab_cdef).to_string();
        assert_eq!(text, "damaged data checksum at log position 7: expected 0x0000001f, found 0x00abcdef");
    }
}
