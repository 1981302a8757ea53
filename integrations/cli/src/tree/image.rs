//! An image as an end of a copy: small files in one fused command each.

use super::content::{PIECE, Sparse};
use super::{Content, End, FILL, Kind, Look, Piece, Plain};
use crate::streams;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Cursor};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::{At, Client, Errno, Handle, OpenFlags, OpenOptions, SetAttrBody, SetAttrMask, WireTime};

/// The inside of an image.
pub struct Image<'c> {
    client: &'c Client,
    name: String,
    piece: RefCell<Vec<u8>>,
}

impl<'c> Image<'c> {
    /// Through a client; `name` is what messages call the image.
    pub fn new(client: &'c Client, name: &Path) -> Image<'c> {
        Image { client, name: name.display().to_string(), piece: RefCell::new(vec![0; PIECE]) }
    }
}

impl Image<'_> {
    /// Writes what is in `buf`, and what follows it, to a virtual file: through its kernel into a real one. Holes are
    /// zeros there.
    fn stream(&self, path: &Path, first: Piece, buf: &mut [u8], from: &mut dyn Content) -> io::Result<u64> {
        let file = self.client.vopen(path, OpenFlags::WRITE)?;
        let (mut next, mut all) = (first, 0);
        loop {
            match next {
                Piece::Data(n) => all += file.vwrite(&buf[..n])? as u64,
                Piece::Hole(bytes) => {
                    buf.fill(0);
                    let mut left = bytes;
                    while left > 0 {
                        left -= file.vwrite(&buf[..left.min(buf.len() as u64) as usize])? as u64;
                    }
                    all += bytes;
                }
                Piece::End => break,
            }
            next = from.next(buf)?;
        }
        file.vclose()?;
        Ok(all)
    }
}

impl End for Image<'_> {
    fn label(&self, path: &Path) -> String {
        format!("{}:{}", self.name, path.display())
    }

    fn look(&self, path: &Path, follow: bool) -> io::Result<Look> {
        let meta = if follow { self.client.metadata(path)? } else { self.client.symlink_metadata(path)? };
        let kind = match (meta.is_dir(), meta.is_file(), meta.is_symlink()) {
            (true, ..) => Kind::Dir,
            (_, true, _) => Kind::File,
            (.., true) => Kind::Link,
            _ => Kind::Other,
        };
        let times = [meta.body().atime, meta.body().mtime].map(|t| (t.sec, t.nsec));
        let (size, sparse) = (meta.len(), meta.body().blocks512 * 512 < meta.len());
        Ok(Look { id: (0, meta.ino()), kind, mode: meta.permissions(), size, sparse, times })
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.client.open_dir(dir)?.entries().map(|entry| Ok(entry?.name)).collect()
    }

    fn reader(&self, path: &Path, look: &Look) -> io::Result<Box<dyn Content + '_>> {
        if look.size < PIECE as u64 && !look.sparse {
            let mut bytes = vec![0; look.size as usize + 1];
            let n = match self.client.open_read_close(path, OpenFlags::READ, 0, &mut bytes) {
                // A virtual file is a stream, and its size says nothing.
                Err(Errno::OPNOTSUPP) => {
                    return Ok(Box::new(Plain(OpenOptions::new().read(true).open(self.client, path)?)));
                }
                read => read?,
            };
            // A file that grew meanwhile is read the long way.
            if n < bytes.len() {
                bytes.truncate(n);
                return Ok(Box::new(Plain(Cursor::new(bytes))));
            }
        }
        Ok(Box::new(Sparse::new(OpenOptions::new().read(true).open(self.client, path)?)))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.client.read_link(path)
    }

    fn write(&self, path: &Path, mode: u32, from: &mut dyn Content, begun: &mut bool) -> io::Result<u64> {
        let mut buf = self.piece.borrow_mut();
        let first = from.next(&mut buf)?;
        let n = if let Piece::Data(n) = first { n } else { 0 };
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let name = path.as_os_str().as_bytes();
        match self.client.raw().open_write_close(Handle::ROOT, name, flags, mode, At::Offset(0), &buf[..n]) {
            Err(Errno::OPNOTSUPP) => return self.stream(path, first, &mut buf, from),
            done => drop(done?),
        }
        *begun = true;
        let mut at = if let Piece::Hole(hole) = first { hole } else { n as u64 };
        let mut ends_in_hole = matches!(first, Piece::Hole(_));
        let mut next = if first == Piece::End { Piece::End } else { from.next(&mut buf)? };
        if next == Piece::End && !ends_in_hole {
            return Ok(at);
        }
        let file = OpenOptions::new().write(true).open(self.client, path)?;
        while next != Piece::End {
            match next {
                Piece::Data(n) => {
                    file.write_all_at(&buf[..n], at)?;
                    at += n as u64;
                }
                Piece::Hole(n) => at += n,
                Piece::End => {}
            }
            ends_in_hole = matches!(next, Piece::Hole(_));
            next = from.next(&mut buf)?;
        }
        if ends_in_hole {
            file.set_len(at)?;
        }
        file.close()?;
        Ok(at)
    }

    fn because(&self, path: &Path, error: &io::Error) -> Option<String> {
        streams::why(self.client, path, error)
    }

    fn masked(&self, mode: u32) -> u32 {
        self.client.masked(mode)
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        match self.client.raw().mkdirat(Handle::ROOT, path.as_os_str().as_bytes(), mode | FILL) {
            Err(weldfs::Errno::EXIST) if self.client.metadata(path)?.is_dir() => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }

    fn withdraw(&self, dir: &Path, bits: u32) -> io::Result<()> {
        let mode = self.client.symlink_metadata(dir)?.permissions();
        self.client.set_permissions(dir, mode & !bits)
    }

    fn symlink(&self, target: &Path, path: &Path) -> io::Result<()> {
        match self.client.symlink(target, path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && self.client.symlink_metadata(path)?.is_symlink() => {
                self.client.remove_file(path)?;
                self.client.symlink(target, path)
            }
            done => done,
        }
    }

    fn set_times(&self, path: &Path, times: [(i64, u32); 2]) -> io::Result<()> {
        let [atime, mtime] = times.map(|(sec, nsec)| WireTime::new(sec, nsec));
        let mask = (SetAttrMask::ATIME | SetAttrMask::MTIME).bits();
        self.client.set_attributes(path, true, &SetAttrBody { mask, atime, mtime, ..SetAttrBody::default() })
    }
}
