//! Directory streams: entries of a directory in the device, batch by batch.

use crate::abi::Res;
use crate::device;
use weldfs_ciscops::Handle;
use weldfs_ciscops::dirent::Dirents;

/// Bytes of entries fetched per command.
const BATCH: usize = 32 << 10;

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Inode number.
    pub ino: u64,
    /// Cookie to go on after this entry.
    pub next: u64,
    /// `DT_*`.
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// A cursor over a directory.
pub struct Stream {
    batch: Vec<u8>,
    used: usize,
    pos: usize,
    /// Cookie of the next entry to hand out.
    cookie: u64,
    /// Cookie behind the batch.
    end: u64,
}

impl Stream {
    /// From `cookie` on (0 = start).
    pub fn new(cookie: u64) -> Stream {
        Stream { batch: Vec::new(), used: 0, pos: 0, cookie, end: cookie }
    }

    /// Where the next entry stands, as telldir tells it.
    pub fn tell(&self) -> u64 {
        self.cookie
    }

    /// Goes to a place that `tell` told; what was read ahead is dropped.
    pub fn seek(&mut self, cookie: u64) {
        (self.used, self.pos, self.cookie, self.end) = (0, 0, cookie, cookie);
    }

    /// The next entry; `None` at the end.
    pub fn next(&mut self, h: Handle) -> Res<Option<Entry>> {
        if self.pos == self.used {
            self.batch.resize(BATCH, 0);
            self.used = device::on(|d| d.read_dir(h, self.end, &mut self.batch[..]))?;
            self.pos = 0;
        }
        let mut rest = Dirents(&self.batch[self.pos..self.used]);
        let Some(entry) = rest.next() else { return Ok(None) };
        let found = Entry { ino: entry.ino, next: entry.next_cookie, kind: entry.dtype, name: entry.name.to_vec() };
        self.pos = self.used - rest.0.len();
        (self.cookie, self.end) = (found.next, found.next);
        Ok(Some(found))
    }
}

/// The name under which `dir` holds inode `ino`.
pub fn name_of(dir: Handle, ino: u64) -> Res<Vec<u8>> {
    let mut stream = Stream::new(0);
    while let Some(entry) = stream.next(dir)? {
        if entry.ino == ino && entry.name != b"." && entry.name != b".." {
            return Ok(entry.name);
        }
    }
    Err(libc::ENOENT)
}
