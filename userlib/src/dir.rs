//! An open directory: listing it, and working relative to it.

use crate::client::Client;
use crate::file::File;
use crate::meta::Metadata;
use crate::options::OpenOptions;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use weldfs_ciscops::Handle;
use weldfs_ciscops::dirent::{Dirents, cookie, dtype};

/// Bytes of entries fetched per command.
const LISTING_BYTES: usize = 32 << 10;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode number.
    pub ino: u64,
    /// The name.
    pub name: OsString,
    /// Type, with the values of DT_*.
    pub kind: u8,
    /// Where a later listing may go on after this entry.
    pub next_cookie: u64,
}

impl DirEntry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == dtype::DIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == dtype::REG
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == dtype::LNK
    }
}

/// An open directory. Names given to its methods are resolved from it, whatever happens to its own name meanwhile.
/// `Send` and `Sync`.
#[derive(Debug)]
pub struct Dir {
    file: File,
}

impl Dir {
    pub(crate) fn open(client: &Client, epoch: u64, base: Handle, path: &Path) -> io::Result<Dir> {
        let options = OpenOptions::new().read(true).directory(true);
        Ok(Dir { file: options.open_at(client, epoch, base, path)? })
    }

    /// The directory as an open file: for stat, sync, attributes, locks.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// The entries, `.` and `..` left out. Entries that exist throughout the listing are seen exactly once, however
    /// many others come and go.
    pub fn entries(&self) -> Entries<'_> {
        self.entries_after(cookie::START)
    }

    /// The entries after a cookie of an earlier listing.
    pub fn entries_after(&self, cookie: u64) -> Entries<'_> {
        Entries { dir: self, cookie, batch: Vec::new(), at: 0, over: false }
    }

    /// Opens a file in it.
    pub fn open_file(&self, name: impl AsRef<Path>, options: &OpenOptions) -> io::Result<File> {
        Ok(options.open_at(self.file.client(), self.file.epoch(), self.file.handle(), name.as_ref())?)
    }

    /// Opens a directory in it.
    pub fn open_dir(&self, name: impl AsRef<Path>) -> io::Result<Dir> {
        Dir::open(self.file.client(), self.file.epoch(), self.file.handle(), name.as_ref())
    }

    /// The same, but a symbolic link is ELOOP or ENOTDIR.
    pub(crate) fn open_dir_itself(&self, name: &OsStr) -> io::Result<Dir> {
        let options = OpenOptions::new().read(true).directory(true).no_follow(true);
        Ok(Dir { file: self.open_file(Path::new(name), &options)? })
    }

    /// Attributes of a name in it; of a symbolic link itself.
    pub fn metadata(&self, name: impl AsRef<OsStr>) -> io::Result<Metadata> {
        Ok(self.file.raw().statat(self.file.handle(), name.as_ref().as_bytes(), true)?.into())
    }

    /// Makes a directory in it, with 0777 less the umask.
    pub fn create_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let mode = 0o777 & !self.file.client().umask();
        Ok(self.file.raw().mkdirat(self.file.handle(), name.as_ref().as_bytes(), mode)?)
    }

    /// Removes a name that is not a directory.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(self.file.raw().unlinkat(self.file.handle(), name.as_ref().as_bytes())?)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(self.file.raw().rmdirat(self.file.handle(), name.as_ref().as_bytes())?)
    }
}

/// Iterates over a directory, fetching entries in batches.
#[derive(Debug)]
pub struct Entries<'d> {
    dir: &'d Dir,
    cookie: u64,
    batch: Vec<u8>,
    at: usize,
    over: bool,
}

impl Entries<'_> {
    fn fetch(&mut self) -> io::Result<bool> {
        self.batch.resize(LISTING_BYTES, 0);
        let file = &self.dir.file;
        let n = file.raw().read_dir(file.handle(), self.cookie, &mut self.batch)?;
        self.batch.truncate(n);
        self.at = 0;
        Ok(n > 0)
    }
}

impl Iterator for Entries<'_> {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        while !self.over {
            let mut rest = Dirents(&self.batch[self.at..]);
            if let Some(entry) = rest.next() {
                self.at = self.batch.len() - rest.0.len();
                self.cookie = entry.next_cookie;
                if matches!(entry.name, b"." | b"..") {
                    continue;
                }
                let name = OsString::from_vec(entry.name.to_vec());
                let (ino, kind, next_cookie) = (entry.ino, entry.dtype, entry.next_cookie);
                return Some(Ok(DirEntry { ino, name, kind, next_cookie }));
            }
            match self.fetch() {
                Ok(true) => {}
                Ok(false) => self.over = true,
                Err(e) => {
                    self.over = true;
                    return Some(Err(e));
                }
            }
        }
        None
    }
}
