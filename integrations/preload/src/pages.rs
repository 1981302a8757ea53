//! Reads that are answered by what earlier reads brought, as long as the device vouches for it: `read` of
//! `WELDFS_AUTOMERGE`. A program that reads a file from its beginning to its end gets some of what follows brought
//! along; of a file that fits, what was read is kept. What is not certain here is asked of the device, as ever.

use crate::chunks::{self, CHUNK};
use crate::merge::{count, is_on};
use crate::patterns::READ;
use crate::place::PLACE_MAX;
use crate::reader::Reader;
use crate::{abi, counts, device, memory, registry, table};
use libc::{c_int, c_void, off_t};
use weldfs::Kept;
use weldfs_ciscops::flags::OpenFlags;
use weldfs_ciscops::{At, Handle, SharedBytes};

/// Bytes of the longest read that is answered so: what is longer is asked for at once already.
const READ_MAX: usize = 16 << 10;
/// Bytes of the longest read whose offset is moved here: as many as one command brings.
const MOVED_MAX: usize = 1 << 20;

/// Asks the device; what it brings is kept.
fn fetch(reader: &mut Reader, h: Handle, at: u64, room: &mut [u8]) -> Option<usize> {
    let (start, len) = reader.span(at, room.len())?;
    let mut watched = reader.watched.take();
    let brought = device::on(|raw| {
        raw.read_watched((h, start, len), &mut watched, |bytes, kept| {
            if let Some(epoch) = reader.note(kept) {
                keep(epoch, start / CHUNK as u64, bytes, len as usize);
            }
            let from = (at - start) as usize;
            let n = bytes.len().saturating_sub(from).min(room.len());
            bytes.sub(from.min(bytes.len()), n).copy_to(&mut room[..n]);
            // Where the file ends is known if what was brought is current.
            (n == room.len() || kept != Kept::No).then_some(n)
        })
    });
    reader.watched = watched;
    if brought.is_err() {
        reader.failed();
    }
    brought.ok().flatten().flatten()
}

/// Keeps what a read of `asked` bytes brought, from the beginning of a chunk on.
fn keep(epoch: u64, first: u64, bytes: SharedBytes<'_>, asked: usize) {
    for (at, chunk) in (0..asked).step_by(CHUNK).zip(first..) {
        // The end of the file is one of the things that are known of it.
        let n = bytes.len().saturating_sub(at).min(CHUNK);
        chunks::keep(epoch, chunk, n, |room| bytes.sub(at.min(bytes.len()), n).copy_to(room));
    }
}

/// A file that may be read so, by a descriptor that can read it.
#[inline]
fn readable(fd: c_int) -> Option<(&'static table::Open, Handle)> {
    let open = table::entry(fd)?;
    let flags = open.status();
    let plain = flags.contains(OpenFlags::READ) && !flags.intersects(OpenFlags::DIRECT | OpenFlags::DIRECTORY);
    if !plain || registry::any() || !is_on(READ) {
        return None;
    }
    Some((open, open.claimed()?))
}

/// Reads at an offset; `None`: it is the device's to answer.
fn read_from(fd: c_int, (open, h): (&'static table::Open, Handle), at: u64, room: &mut [u8]) -> Option<usize> {
    let mut reader = open.reader()?;
    // In this order: it is the file of this handle whose place was found. What is brought is kept as that file's, and
    // of no use to another one that has the entry by then. How long a file is, is known of ordinary files.
    let (file, size) = (open.place.find(), open.size()?);
    if open.claimed() != Some(h) {
        return None;
    }
    if !reader.is_of(file) {
        *reader = Reader::of(file, size);
    }
    reader.begin(at);
    let got = match reader.find(at, room) {
        Some(got) => {
            counts::served();
            count(READ);
            Some(got)
        }
        None if reader.goes_without() => None,
        None => fetch(&mut reader, h, at, room),
    };
    reader.end(at + got.unwrap_or(room.len()) as u64);
    got.filter(|_| is_still(fd, (open, h)))
}

/// Whether a descriptor stands for the same open file as before: it may have been closed meanwhile, and its entry used
/// again, for another number or for this one. What was found of the entry before this is that file's.
fn is_still(fd: c_int, (open, h): (&'static table::Open, Handle)) -> bool {
    table::entry(fd).is_some_and(|now| std::ptr::eq(now, open)) && open.claimed() == Some(h)
}

/// The caller's buffer, if all of it is there.
fn room<'a>(buf: *mut c_void, n: usize) -> Option<&'a mut [u8]> {
    if !memory::is_range(buf, n) {
        return None;
    }
    abi::room(buf, n).ok().filter(|room| room.len() == n)
}

/// pread(2).
pub fn read_at(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> Option<isize> {
    let file = readable(fd)?;
    let at = u64::try_from(off).ok()?;
    if n == 0 || n > READ_MAX || at > PLACE_MAX {
        return None;
    }
    read_from(fd, file, at, room(buf, n)?).map(|got| got as isize)
}

/// read(2) of a file whose offset is here. It stays here, also where the device is asked.
pub fn read(fd: c_int, buf: *mut c_void, n: usize) -> Option<isize> {
    let (open, h) = readable(fd)?;
    if n == 0 || n > MOVED_MAX {
        return None;
    }
    loop {
        let place = open.place.find();
        let at = place.offset().filter(|at| *at <= PLACE_MAX - MOVED_MAX as u64 && is_still(fd, (open, h)))?;
        let room = room(buf, n)?;
        let kept = if n <= READ_MAX { read_from(fd, (open, h), at, room) } else { None };
        let got = match kept {
            Some(got) => got,
            None => device::on(|raw| raw.read(h, At::Offset(at), room)).ok()?,
        };
        if open.place.advance(place, at + got as u64) {
            return Some(got as isize);
        }
        // Another thread reads as well: the device knows how to have them take turns, once it has the offset.
        kept?;
    }
}

/// lseek(2) to an offset that needs nothing of the file, where that is here.
pub fn seek(fd: c_int, off: off_t, whence: c_int) -> Option<off_t> {
    let (open, h) = readable(fd)?;
    loop {
        let place = open.place.find();
        let at = place.offset().filter(|_| is_still(fd, (open, h)))?;
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => at,
            _ => return None,
        };
        let to = from.checked_add_signed(off).filter(|to| *to <= PLACE_MAX)?;
        if open.place.advance(place, to) {
            counts::served();
            count(READ);
            return Some(to as off_t);
        }
    }
}
