//! A directory with what stat says of each of its entries, for as long as the device vouches for it (docs/COMMANDS.md,
//! "Looks"): names that begin with the directory's are looked up here, without a command for each.

use crate::asked::Asked;
use crate::look::{Look, Watch};
use crate::posting::Wishes;
use crate::queue::Queue;
use crate::raw::Raw;
use std::sync::Arc;
use weldfs_ciscops::dirent::{DIRENT_PLUS_MAX, DirentsPlus};
use weldfs_ciscops::interp::WATCHED;
use weldfs_ciscops::{Command, Errno, Handle, Op, OpenFlags, StatBody};

/// Bytes of entries asked for by one command.
const ROOM: u32 = 64 << 10;
/// Entries of the longest directory that is listed.
const ENTRIES_MAX: usize = 512;

/// The entries of one directory by name. Thread-safe.
pub struct Listing {
    /// By name: its attributes, or what a stat of it fails with.
    entries: Entries,
    dir: Arc<Look>,
    watch: Watch,
    /// The directory, open as long as this is of use.
    pub handle: Handle,
}

/// What a listing says of a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Listed<'l> {
    /// It is there, with these attributes.
    There(&'l StatBody),
    /// It is not there.
    Absent,
}

impl std::fmt::Debug for Listing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listing({} entries)", self.entries.len())
    }
}

impl Listing {
    /// Whether names lead to what is listed, and that is as it was: what is told of them after this was true at this
    /// moment.
    pub fn is_current(&self) -> bool {
        self.watch.stands() && self.dir.is_current()
    }

    /// What lstat(2) says of a name of one component, neither `.` nor `..`; `None`: it is not told here.
    pub fn find(&self, name: &[u8]) -> Option<Listed<'_>> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.len() > 255 {
            return None;
        }
        match self.entries.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(at) => self.entries.get(at)?.1.as_ref().ok().map(Listed::There),
            Err(_) => Some(Listed::Absent),
        }
    }
}

impl Raw<'_> {
    /// Lists a directory with the attributes of its entries, watched: as long as [`Listing::is_current`] says so, its
    /// name leads there, and each of its entries is as it was. `None` where the device does not vouch for it, or it is
    /// long. The handle in it is to be closed.
    pub fn listing(&self, base: Handle, path: &[u8]) -> Result<Option<Listing>, Errno> {
        let (client, session, _) = self.parts();
        let flags = OpenFlags::READ | OpenFlags::DIRECTORY;
        let brought = self.open_with(base, path, (flags, 0), Wishes { lease: false, look: true })?;
        let handle = brought.opened.handle;
        let found = match brought.look {
            Some(dir) => client
                .with_queue(session, 0, |queue| entries(queue, handle))
                .and_then(|found| found)
                .map(|found| found.map(|(entries, watch)| Listing { entries, dir, watch, handle })),
            None => Ok(None),
        };
        if !matches!(found, Ok(Some(_))) {
            self.close(handle)?;
        }
        found
    }
}

type Entries = Vec<(Box<[u8]>, Result<StatBody, Errno>)>;

fn entries(queue: &mut Queue, h: Handle) -> Result<Option<(Entries, Watch)>, Errno> {
    let asked = Asked::bytes(queue, ROOM);
    if asked.watch == 0 {
        return Ok(None);
    }
    let mut all = Vec::new();
    let watched = fetch(queue, h, &asked, &mut all);
    let watch = if watched == Ok(true) { asked.watch(queue) } else { None };
    queue.free(asked.room);
    watched?;
    all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(watch.map(|watch| (all, watch)))
}

/// All entries; false where they are many, or not watched.
fn fetch(queue: &mut Queue, h: Handle, asked: &Asked, all: &mut Entries) -> Result<bool, Errno> {
    let mut cookie = 0;
    loop {
        let op = Op::ReadDirPlus { h, cookie, out: asked.room, watch: asked.watch };
        let cqe = queue.execute(&Command::new(0, op))?;
        let (said, next) = cqe.ok()?;
        let (bytes, watched) = ((said & !WATCHED) as usize, said & WATCHED != 0);
        if !watched || all.len() > ENTRIES_MAX {
            return Ok(false);
        }
        let mut found = vec![0; bytes];
        queue.pool().slice(asked.room)?.sub(0, bytes).copy_to(&mut found);
        for entry in DirentsPlus(&found) {
            all.push((entry.entry.name.into(), entry.stat));
        }
        // Where one more of any length would have found room, there is none.
        if bytes + DIRENT_PLUS_MAX <= ROOM as usize {
            // Who may not search the directory is told so of each name in it, and of those that are not there.
            return Ok(all.iter().any(|(name, stat)| **name == *b"." && stat.is_ok()));
        }
        cookie = next;
    }
}
