//! What an open brings along: attributes and content as they are, where they are at hand; and the way that led there.

use super::SessionView;
use super::attr::{fsid, stat_body};
use super::committed::Reader;
use super::perm::{IFMT, IFREG};
use super::resolve::{self, Last, View, Walker};
use super::txn::OpCounters;
use smallvec::SmallVec;
use std::cell::RefCell;
use weldfs_ciscops::{Handle, InodeNo, OpenFlags, Sink, StatBody};
use weldfs_store::Store;
use weldfs_store::error::FsResult;
use weldfs_store::record::{Dirent, InodeRec};

/// Components of the longest way that is looked at.
const WAY_MAX: u32 = 64;

/// What stat says of an inode; `None` where its page is cold.
pub fn attributes(store: &Store, ino: InodeNo) -> Option<StatBody> {
    let dev = fsid(store.uuid());
    store.look_at(ino, |rec| stat_body(rec, dev)).ok()
}

/// Reads all of a regular file; false where it is another kind, or not all of it is in memory and sound.
pub fn content(store: &Store, file: &StatBody, sink: &mut Sink<'_>, counters: &mut OpCounters) -> bool {
    if file.mode & IFMT != IFREG {
        return false;
    }
    let mut reader = Reader::new(store);
    let read = reader.read((InodeNo(file.ino), file.size), 0, (file.size, file.size), sink, &mut None);
    *counters += reader.counters;
    read.is_ok_and(|n| n == file.size)
}

/// Inodes on a way.
pub type Way = SmallVec<[InodeNo; 8]>;

/// The store, and what a walk looks at in it.
struct Seen<'s> {
    store: &'s Store,
    way: RefCell<Way>,
}

impl View for Seen<'_> {
    fn inode(&self, ino: InodeNo) -> FsResult<Option<InodeRec>> {
        self.way.borrow_mut().push(ino);
        self.store.inode(ino)
    }

    fn entry(&self, dir: InodeNo, name: &[u8]) -> FsResult<Option<Dirent>> {
        self.store.dirent(dir, name)
    }
}

/// The inodes on the way that a name leads to what an open of it finds: as long as none of them changes, it leads
/// there.
/// `None` where it is long or not at hand.
pub fn way(store: &Store, session: &dyn SessionView, (base, path): (Handle, &[u8]), flags: OpenFlags) -> Option<Way> {
    let start = resolve::start_inode(session, base, path).ok()?;
    let seen = Seen { store, way: RefCell::new(Way::from_slice(&[start])) };
    let last = if flags.contains(OpenFlags::NOFOLLOW) { Last::NoFollow } else { Last::Follow };
    let walker = Walker::of(session);
    let mut walking = walker.begin(&seen, start, path).ok()?;
    walker.stride(&seen, path, last, WAY_MAX, &mut walking).ok()?.then(|| seen.way.into_inner())
}
