//! fsck of the tree alone. The composed state does not show all of it: what the log has replaced is gone from there,
//! and readers ask the tree nothing about an inode that, as its record has it, is younger than the tree.

use super::FsckReport;
use crate::alloc::Bitmap;
use crate::codec::DecodeError;
use crate::overlay::{Base, window};
use crate::record::{Dirent, InodeRec, ReclaimRec, Xattr};
use crate::store::Store;
use crate::tree::{Key, Tree, WalkEvent, kind};
use hashbrown::HashSet;
use weldfs_ciscops::InodeNo;

/// What the keys of a tree are compared with. Keys come in order: all inodes first.
struct Below {
    cut: u64,
    inodes: HashSet<u64>,
}

impl Below {
    /// What is wrong with an entry, whatever the log says. (What it holds is looked at in the composed state.)
    fn entry(&mut self, key: Key, value: &[u8]) -> Option<String> {
        match key.kind {
            kind::INODE => {
                self.inodes.insert(key.a);
                let birth = InodeRec::from_value(InodeNo(key.a), value).map_or(0, |rec| rec.birth.0);
                let cut = self.cut;
                // (The first root is born at 0, which may be the cut of the first tree.)
                (birth >= cut.max(1)).then(|| format!("{key}: born at LSN {birth}, the tree ends at {cut}"))
            }
            kind::DIRENT | kind::XATTR | kind::WINDOW | kind::RECLAIM if !self.inodes.contains(&key.a) => {
                Some(format!("{key}: its inode is not in the tree"))
            }
            _ => None,
        }
    }
}

/// Reads every page of the tree again.
pub(super) fn walk(store: &Store, base: &Base, report: &mut FsckReport) {
    let writer = store.writer.lock();
    let mut pages = writer.zone.map_pages().len() as u64;
    let mut below = Below { cut: base.cut, inodes: HashSet::new() };
    Tree::walk(&base.tree.root(), &base.slow, &mut |event| match event {
        WalkEvent::Page(page) => {
            pages += 1;
            let at = page.this().addr;
            if !writer.zone.is_live(at) {
                report.problem(format!("page at block {at} is in use but free in the zone map"));
            }
        }
        WalkEvent::Entry(key, value) => below.entry(key, value).into_iter().for_each(|p| report.problem(p)),
        WalkEvent::Bad(at, e) => report.problem(format!("page at block {}: {e}", at.addr)),
    });
    if writer.zone.pages_live() != pages {
        report.problem(format!("the zone map counts {} pages, the tree has {pages}", writer.zone.pages_live()));
    }
    report.pages = pages;
}

/// A value of the tree that the log has replaced or removed: it counts for nothing any more, but no writer wrote it.
pub(super) fn replaced(store: &Store, key: Key, value: &[u8], report: &mut FsckReport) {
    let decoded: Result<(), DecodeError> = match key.kind {
        kind::INODE => InodeRec::from_value(InodeNo(key.a), value).map(drop),
        kind::DIRENT => Dirent::from_value(InodeNo(key.a), key.b, value).map(drop),
        kind::XATTR => Xattr::from_value(InodeNo(key.a), key.b, value).map(drop),
        kind::RECLAIM => ReclaimRec::from_value(value).map(drop),
        kind::WINDOW => window::held(value).map(drop),
        kind::FREE_GROUP => Bitmap::from_value(value, &store.geometry, key.a).map(drop),
        // Each was decoded at mount.
        _ => Ok(()),
    };
    if let Err(e) = decoded {
        report.problem(format!("{key}: {e}"));
    }
}
