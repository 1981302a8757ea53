//! Listing the virtual files of a tree: directories with the attributes of what is in them, many in one crossing, and a
//! question about each file that could be one.

use crate::client::Client;
use crate::dir::Dir;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use weldfs_ciscops::dirent::{DirentsPlus, cookie, dtype};
use weldfs_ciscops::limits::VIRT_SPEC_MAX;
use weldfs_ciscops::virt::VirtSpec;
use weldfs_ciscops::{Errno, StatBody};

/// Bytes of entries fetched per command.
const LISTING_BYTES: usize = 32 << 10;

/// What a listing says of one name.
#[derive(Debug)]
pub struct VirtFound {
    /// Below the top that was named, or the top itself.
    pub path: PathBuf,
    /// Its spec; or why that, or what is in this directory, cannot be told (EACCES, EIO).
    pub spec: io::Result<VirtSpec>,
}

/// The virtual files of a tree; made by [`Client::virt_list`]. Holds the directories open that it is in.
#[derive(Debug)]
pub struct VirtList {
    client: Client,
    /// The top, until it has been looked at.
    top: Option<PathBuf>,
    /// Directories, each in the one before it.
    above: Vec<Level>,
    found: VecDeque<VirtFound>,
}

/// A directory that is being listed.
#[derive(Debug)]
struct Level {
    dir: Dir,
    path: PathBuf,
    /// Where its listing goes on; none: it is over.
    cookie: Option<u64>,
    /// Directories in it that are still to be gone into.
    inside: Vec<OsString>,
}

impl VirtList {
    pub(super) fn new(client: &Client, top: &Path) -> VirtList {
        VirtList { client: client.clone(), top: Some(top.to_owned()), above: Vec::new(), found: VecDeque::new() }
    }

    /// Looks at the top.
    fn begin(&mut self, top: PathBuf) -> io::Result<()> {
        let meta = self.client.metadata(&top)?;
        if meta.is_dir() {
            let dir = self.client.open_dir(&top)?;
            self.enter(dir, top);
        } else if could_be(meta.body()) {
            match self.client.virt_spec(&top).map_err(|e| (e.raw_os_error().map(Errno), e)) {
                Err((Some(Errno::INVAL | Errno::OPNOTSUPP), _)) => {}
                Err((_, e)) => return Err(e),
                Ok(spec) => self.found.push_back(VirtFound { path: top, spec: Ok(spec) }),
            }
        }
        Ok(())
    }

    fn enter(&mut self, dir: Dir, path: PathBuf) {
        self.above.push(Level { dir, path, cookie: Some(cookie::START), inside: Vec::new() });
    }

    /// Does the next piece of work; false: there is none.
    fn step(&mut self) -> bool {
        let failed = |path: PathBuf, e: io::Error| VirtFound { path, spec: Err(e) };
        if let Some(top) = self.top.take() {
            if let Err(e) = self.begin(top.clone()) {
                self.found.push_back(failed(top, e));
            }
            return true;
        }
        let Some(level) = self.above.last_mut() else { return false };
        if let Some(from) = level.cookie {
            level.cookie = level.fetch(from, &mut self.found).unwrap_or_else(|e| {
                self.found.push_back(failed(level.path.clone(), e));
                None
            });
            return true;
        }
        let Some(name) = level.inside.pop() else {
            self.above.pop();
            return true;
        };
        let path = level.path.join(&name);
        match level.dir.open_dir_itself(&name) {
            Ok(dir) => self.enter(dir, path),
            // It has gone, or something else is there now.
            Err(e) if matches!(e.raw_os_error().map(Errno), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
            Err(e) => self.found.push_back(failed(path, e)),
        }
        true
    }
}

impl Level {
    /// Some entries: what is virtual goes to `found`. Where the listing goes on then.
    fn fetch(&mut self, from: u64, found: &mut VecDeque<VirtFound>) -> io::Result<Option<u64>> {
        let mut batch = vec![0; LISTING_BYTES];
        let file = self.dir.as_file();
        let (n, _) = file.raw().read_dir_plus(file.handle(), from, &mut batch)?;
        let mut next = None;
        for one in DirentsPlus(&batch[..n]) {
            next = Some(one.entry.next_cookie);
            let name = one.entry.name;
            if matches!(name, b"." | b"..") {
                continue;
            }
            match one.stat {
                _ if one.entry.dtype == dtype::DIR => self.inside.push(OsString::from_vec(name.to_vec())),
                Ok(stat) if could_be(&stat) => found.extend(self.look(name)),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(e) => {
                    found.push_back(VirtFound { path: self.path.join(OsStr::from_bytes(name)), spec: Err(e.into()) })
                }
            }
        }
        Ok(next)
    }

    /// Whether a file is a virtual one; nothing if not, or if it has gone.
    fn look(&self, name: &[u8]) -> Option<VirtFound> {
        let file = self.dir.as_file();
        let mut room = vec![0; VIRT_SPEC_MAX];
        let spec = match file.raw().virt_spec(file.handle(), name, true, &mut room) {
            Ok(n) => VirtSpec::decode(&room[..n]),
            // So says a directory of the host, too: it has none.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOENT) => return None,
            Err(e) => Err(e),
        };
        Some(VirtFound { path: self.path.join(OsStr::from_bytes(name)), spec: spec.map_err(io::Error::from) })
    }
}

/// A virtual file is a regular one without bytes.
fn could_be(stat: &StatBody) -> bool {
    stat.mode & libc::S_IFMT == libc::S_IFREG && stat.size == 0
}

impl Iterator for VirtList {
    type Item = VirtFound;

    fn next(&mut self) -> Option<VirtFound> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(found);
            }
            if !self.step() {
                return None;
            }
        }
    }
}
