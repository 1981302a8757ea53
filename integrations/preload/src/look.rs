//! Calls that are answered by what their open brought along, as long as the device vouches for it: `look` of
//! `WELDFS_AUTOMERGE`. What is not certain here is asked of the device, as ever.

use crate::merge::{count, is_on};
use crate::patterns::LOOK;
use crate::place::{Found, PLACE_MAX};
use crate::{abi, atomic, counts, memory, pages, registry, table};
use libc::{c_int, c_void, off_t};
use std::sync::Arc;
use weldfs::{Look, StatBody};
use weldfs_ciscops::flags::OpenFlags;

/// What is known of a file, and where it is read.
struct Known {
    open: &'static table::Open,
    look: Arc<Look>,
    place: Found,
}

/// Of a file that is not mapped. In this order: if both hold, what is told was true when the registry was asked.
#[inline]
fn known(fd: c_int) -> Option<Known> {
    let open = table::entry(fd)?;
    if !open.has_look() || registry::any() || !is_on(LOOK) {
        return None;
    }
    let place = open.place.find();
    let look = open.look()?;
    // Renames that are kept change directories, when they are made: before this process looks at one.
    if atomic::any() && look.attributes().mode & libc::S_IFMT == libc::S_IFDIR {
        return None;
    }
    // Closed meanwhile, and its entry used again, for another number or for this one: then it is asked of the device
    // what this number means.
    let same = table::entry(fd).is_some_and(|now| std::ptr::eq(now, open)) && open.place.is_of(place);
    same.then_some(Known { open, look, place })
}

fn answered<T>(answer: T) -> Option<T> {
    counts::served();
    count(LOOK);
    Some(answer)
}

/// What fstat says.
#[inline]
pub fn attributes(fd: c_int) -> Option<StatBody> {
    let known = known(fd)?;
    answered(*known.look.attributes())
}

/// Copies what there is from an offset on; how much that is. `None` where the buffer is not all there.
fn copy(content: &[u8], at: u64, buf: *mut c_void, n: usize) -> Option<usize> {
    let rest = content.get(at.min(content.len() as u64) as usize..)?;
    let part = &rest[..rest.len().min(n)];
    if !memory::is_range(buf, n) {
        return None;
    }
    let room = abi::room(buf, part.len()).ok().filter(|room| room.len() == part.len())?;
    room.copy_from_slice(part);
    Some(part.len())
}

/// read(2).
#[inline]
pub fn read(fd: c_int, buf: *mut c_void, n: usize) -> Option<isize> {
    table::entry(fd)?;
    read_whole(fd, buf, n).or_else(|| pages::read(fd, buf, n))
}

#[inline]
fn read_whole(fd: c_int, buf: *mut c_void, n: usize) -> Option<isize> {
    loop {
        let Known { open, look, place } = known(fd)?;
        let at = place.offset()?;
        // Copied before the offset moves: what is not there moves nothing.
        let got = copy(look.content()?, at, buf, n)?;
        if open.place.advance(place, at + got as u64) {
            return answered(got as isize);
        }
    }
}

/// pread(2).
#[inline]
pub fn read_at(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> Option<isize> {
    table::entry(fd)?;
    read_whole_at(fd, buf, n, off).or_else(|| pages::read_at(fd, buf, n, off))
}

#[inline]
fn read_whole_at(fd: c_int, buf: *mut c_void, n: usize, off: off_t) -> Option<isize> {
    let Known { open, look, .. } = known(fd)?;
    // What reaches beyond the largest offset is refused, by the device.
    off.checked_add(off_t::try_from(n).ok()?)?;
    if !open.status().contains(OpenFlags::READ) {
        return None;
    }
    let got = copy(look.content()?, u64::try_from(off).ok()?, buf, n)?;
    answered(got as isize)
}

/// lseek(2), but for holes and data.
#[inline]
pub fn seek(fd: c_int, off: off_t, whence: c_int) -> Option<off_t> {
    table::entry(fd)?;
    seek_whole(fd, off, whence).or_else(|| pages::seek(fd, off, whence))
}

#[inline]
fn seek_whole(fd: c_int, off: off_t, whence: c_int) -> Option<off_t> {
    loop {
        let Known { open, look, place } = known(fd)?;
        let at = place.offset()?;
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => at,
            libc::SEEK_END => look.attributes().size,
            _ => return None,
        };
        let to = from.checked_add_signed(off).filter(|to| *to <= PLACE_MAX)?;
        if open.place.advance(place, to) {
            return answered(to as off_t);
        }
    }
}
