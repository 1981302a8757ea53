//! An image as an end of a copy: small files in one fused command each.

use super::{End, Kind, Look};
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Cursor, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weldfs::{At, Client, Handle, OpenFlags, OpenOptions, SetAttrBody, SetAttrMask, WireTime};

/// Bytes that cross in one command.
const PIECE: usize = 1 << 20;

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
        Ok(Look { id: (0, meta.ino()), kind, mode: meta.permissions(), size: meta.len(), times })
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.client.open_dir(dir)?.entries().map(|entry| Ok(entry?.name)).collect()
    }

    fn reader(&self, path: &Path, size: u64) -> io::Result<Box<dyn Read + '_>> {
        if size < PIECE as u64 {
            let mut bytes = vec![0; size as usize + 1];
            let n = self.client.open_read_close(path, OpenFlags::READ, 0, &mut bytes)?;
            // A file that grew meanwhile is read the long way.
            if n < bytes.len() {
                bytes.truncate(n);
                return Ok(Box::new(Cursor::new(bytes)));
            }
        }
        Ok(Box::new(OpenOptions::new().read(true).open(self.client, path)?))
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.client.read_link(path)
    }

    fn write(&self, path: &Path, mode: u32, from: &mut dyn Read) -> io::Result<u64> {
        let mut piece = self.piece.borrow_mut();
        let n = fill(from, &mut piece)?;
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
        let name = path.as_os_str().as_bytes();
        self.client.raw().open_write_close(Handle::ROOT, name, flags, mode, At::Offset(0), &piece[..n])?;
        if n < piece.len() {
            return Ok(n as u64);
        }
        let mut file = OpenOptions::new().append(true).open(self.client, path)?;
        let mut total = n as u64;
        loop {
            let n = fill(from, &mut piece)?;
            file.write_all(&piece[..n])?;
            total += n as u64;
            if n < piece.len() {
                file.close()?;
                return Ok(total);
            }
        }
    }

    fn mkdir(&self, path: &Path, mode: u32) -> io::Result<()> {
        match self.client.raw().mkdirat(Handle::ROOT, path.as_os_str().as_bytes(), mode | 0o700) {
            Err(weldfs::Errno::EXIST) if self.client.metadata(path)?.is_dir() => Ok(()),
            done => Ok(done?),
        }
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
