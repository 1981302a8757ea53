//! Listings.

use crate::channel::Request;
use crate::fs::{Fs, Out, Said};
use crate::wire::{self, DIRENT_ALIGN};
use weldfs_ciscops::Errno;
use weldfs_ciscops::dirent::{DIRENT_MAX, DIRENT_PLUS_MAX, Dirent, Dirents, DirentsPlus};
use zerocopy::IntoBytes;

/// Bytes of a record in the kernel's listing.
fn record(head: usize, name: &[u8]) -> usize {
    (head + name.len()).next_multiple_of(DIRENT_ALIGN)
}

/// Puts one record; false where it does not fit.
fn push(room: &mut [u8], used: &mut usize, front: &[u8], entry: &Dirent<'_>) -> bool {
    let head = wire::Dirent {
        ino: entry.ino,
        off: entry.next_cookie,
        namelen: entry.name.len() as u32,
        kind: entry.dtype.into(),
    };
    let len = record(front.len() + size_of::<wire::Dirent>(), entry.name);
    let Some(place) = room.get_mut(*used..*used + len) else { return false };
    place.fill(0);
    let (first, rest) = place.split_at_mut(front.len());
    first.copy_from_slice(front);
    let (second, rest) = rest.split_at_mut(size_of::<wire::Dirent>());
    second.copy_from_slice(head.as_bytes());
    rest[..entry.name.len()].copy_from_slice(entry.name);
    *used += len;
    true
}

impl Fs {
    pub(crate) fn readdir(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let read: wire::Read = request.fixed()?;
        let file = self.files.get(read.fh)?;
        // The device's records are shorter than the kernel's, so it may have more than fits: the rest is read again.
        let mut listing = vec![0; (read.size as usize).max(DIRENT_MAX)];
        let len = file.session.raw().read_dir(file.handle, read.offset, &mut listing[..])?;
        out.fill(read.size as usize, |room| {
            let mut used = 0;
            for entry in Dirents(&listing[..len]) {
                if !push(room, &mut used, &[], &entry) {
                    break;
                }
            }
            if used == 0 && len > 0 { Err(Errno::INVAL) } else { Ok(used) }
        })
    }

    pub(crate) fn readdirplus(&self, request: &Request<'_>, out: &mut Out) -> Result<Said, Errno> {
        let read: wire::Read = request.fixed()?;
        let file = self.files.get(read.fh)?;
        let mut listing = vec![0; (read.size as usize).max(DIRENT_PLUS_MAX)];
        let (len, _) = file.session.raw().read_dir_plus(file.handle, read.offset, &mut listing[..])?;
        out.fill(read.size as usize, |room| {
            let mut used = 0;
            for plus in DirentsPlus(&listing[..len]) {
                let name = plus.entry.name;
                let Ok(stat) = plus.stat else {
                    // Gone meanwhile, or not to be seen: its name alone.
                    let nothing = wire::EntryOut::default();
                    if push(room, &mut used, nothing.as_bytes(), &plus.entry) { continue } else { break }
                };
                let head = size_of::<wire::EntryOut>() + size_of::<wire::Dirent>();
                if used + record(head, name) > room.len() {
                    break;
                }
                let entry = match name {
                    b"." | b".." => wire::EntryOut::default(),
                    _ => {
                        let node = self.nodes.lock().found(request.head.nodeid, name, &stat);
                        self.entry(node, &stat)
                    }
                };
                push(room, &mut used, entry.as_bytes(), &plus.entry);
            }
            if used == 0 && len > 0 { Err(Errno::INVAL) } else { Ok(used) }
        })
    }
}
