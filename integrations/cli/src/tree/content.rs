//! What a file holds, on its way from one end of a copy to the other: pieces of data, and the holes between them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use weldfs::Whence;

/// Bytes that cross at once.
pub const PIECE: usize = 1 << 20;

/// What comes next of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes, at least one, that are in the buffer now.
    Data(usize),
    /// So many bytes, at least one, that were never written.
    Hole(u64),
    /// Nothing.
    End,
}

/// Content that is read once, from its beginning to its end.
pub trait Content {
    /// The next piece.
    fn next(&mut self, buf: &mut [u8]) -> io::Result<Piece>;
}

/// Reads until the buffer is full or there is no more.
fn fill(from: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match from.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(got) => n += got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

/// Content without holes.
pub struct Plain<R>(pub R);

impl<R: Read> Content for Plain<R> {
    fn next(&mut self, buf: &mut [u8]) -> io::Result<Piece> {
        Ok(match fill(&mut self.0, buf)? {
            0 => Piece::End,
            n => Piece::Data(n),
        })
    }
}

/// A file that says where its holes are.
pub trait Mapped: Read {
    /// Where data begins, or a hole, at or after an offset: ENXIO where none does. Reading goes on somewhere.
    fn find(&mut self, data: bool, from: u64) -> io::Result<u64>;
    /// Reading goes on here.
    fn go_to(&mut self, at: u64) -> io::Result<()>;
    /// Bytes in all.
    fn size(&mut self) -> io::Result<u64>;
}

impl Mapped for File {
    fn find(&mut self, data: bool, from: u64) -> io::Result<u64> {
        let to = if data { rustix::fs::SeekFrom::Data(from) } else { rustix::fs::SeekFrom::Hole(from) };
        Ok(rustix::fs::seek(&*self, to)?)
    }

    fn go_to(&mut self, at: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(at)).map(drop)
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Mapped for weldfs::File {
    fn find(&mut self, data: bool, from: u64) -> io::Result<u64> {
        let from = i64::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.seek_to(if data { Whence::Data } else { Whence::Hole }, from)
    }

    fn go_to(&mut self, at: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(at)).map(drop)
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// The content of a file with its holes.
pub struct Sparse<F> {
    file: F,
    /// Where the next piece begins.
    at: u64,
    /// Up to here there is data.
    data_end: u64,
}

impl<F: Mapped> Sparse<F> {
    /// From the beginning.
    pub fn new(file: F) -> Sparse<F> {
        Sparse { file, at: 0, data_end: 0 }
    }

    /// Where data begins at or after the place at hand; `None` where only a hole follows, or nothing.
    fn data(&mut self) -> io::Result<Option<u64>> {
        match self.file.find(true, self.at) {
            Ok(data) => {
                self.data_end = self.file.find(false, data)?;
                self.file.go_to(data)?;
                Ok(Some(data))
            }
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            // A file system that knows of no holes.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY | libc::ESPIPE | libc::ENOTSUP)) => {
                self.data_end = u64::MAX;
                Ok(Some(self.at))
            }
            Err(e) => Err(e),
        }
    }
}

impl<F: Mapped> Content for Sparse<F> {
    fn next(&mut self, buf: &mut [u8]) -> io::Result<Piece> {
        if self.at >= self.data_end {
            let next = match self.data()? {
                Some(data) => data,
                None => self.file.size()?,
            };
            if next > self.at {
                let hole = next - self.at;
                self.at = next;
                return Ok(Piece::Hole(hole));
            }
        }
        let want = usize::try_from(self.data_end.saturating_sub(self.at)).map_or(buf.len(), |left| left.min(buf.len()));
        let n = fill(&mut self.file, &mut buf[..want])?;
        self.at += n as u64;
        Ok(if n == 0 { Piece::End } else { Piece::Data(n) })
    }
}
