//! What an open brings along: attributes and content as they are, where they are at hand.

use super::attr::{fsid, stat_body};
use super::committed::Reader;
use super::perm::{IFMT, IFREG};
use super::txn::OpCounters;
use crate::store::Store;
use weldfs_ciscops::{InodeNo, Sink, StatBody};

/// What stat says of an inode; `None` where its page is cold.
pub(crate) fn attributes(store: &Store, ino: InodeNo) -> Option<StatBody> {
    let dev = fsid(&store.uuid);
    store.look_at(ino, |rec| stat_body(rec, dev)).ok()
}

/// Reads all of a regular file; false where it is another kind, or not all of it is in memory and sound.
pub(crate) fn content(store: &Store, file: &StatBody, sink: &mut Sink<'_>, counters: &mut OpCounters) -> bool {
    if file.mode & IFMT != IFREG {
        return false;
    }
    let mut reader = Reader::new(store);
    let read = reader.read((InodeNo(file.ino), file.size), 0, (file.size, file.size), sink, &mut None);
    *counters += reader.counters;
    read.is_ok_and(|n| n == file.size)
}
