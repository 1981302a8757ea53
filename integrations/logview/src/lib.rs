//! A second reader of the log, written from docs/MEDIA-FORMAT.md alone.
//!
//! What lives here: `fields` (integers, strings and times out of bytes), `superblock` (which copy counts, and what it
//! says of the log), `record` (one header), `effects` and `transaction` (payloads), `view` (the walk from cut to tail
//! and what lies above it), `text` (what a person reads).
//! What may be touched: the bytes of an image, by reading. It shares no code with the journal or the store, so that
//! agreement between the two says something about the written format; tests compare them record by record.
//! What flows through: an image in, items out, one at a time; memory and time are bounded whatever the bytes say.
#![forbid(unsafe_code)]

mod effects;
mod fields;
mod record;
mod superblock;
mod text;
mod transaction;
mod view;

pub use effects::{Attributes, Block, Effect, Entry, Inode, Outcome, Time};
pub use fields::{Bad, Data, Name};
pub use record::{Header, Kind};
pub use superblock::{Segment, Superblock, Unreadable};
pub use text::print;
pub use transaction::{Begin, Commit, End, Identity, Input, Registers, Sqe};
pub use view::{Above, Content, DataState, Ending, Item, Record, Tail, Verdict, walk};

use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any offset.
pub trait Image {
    /// How many there are.
    fn len(&self) -> u64;

    /// Fills `buf` from byte `off`.
    ///
    /// # Errors
    /// Those of the operating system; the end of the image.
    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An image file or block device.
#[derive(Debug)]
pub struct ImageFile {
    file: std::fs::File,
    len: u64,
}

impl ImageFile {
    /// Opens for reading; takes no lock.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: &std::path::Path) -> io::Result<ImageFile> {
        use std::io::Seek;
        use std::os::unix::fs::FileTypeExt;
        // Its opening would wait for a writer.
        if std::fs::metadata(path)?.file_type().is_fifo() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a block device"));
        }
        let mut file = std::fs::File::open(path)?;
        // A block device has no length but its end.
        let len = file.seek(io::SeekFrom::End(0))?;
        Ok(ImageFile { file, len })
    }
}

impl Image for ImageFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, off)
    }
}

impl Image for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(off).ok().and_then(|off| self.get(off..)).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
