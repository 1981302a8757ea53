//! What keeps a virtual file from being opened, read or written, in words that name what is behind it.

use crate::kernels::{self, Use};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs::{AccessMask, Client, Direction, Errno, VirtRange};
use weldfs_ciscops::virt::TO_END;

/// Why a call failed that was about the file at `path`, where a virtual one is concerned. None: it is not, or may not
/// be looked at, or the errno says it well enough.
pub fn why(client: &Client, path: &Path, error: &io::Error) -> Option<String> {
    let errno = Errno(error.raw_os_error()?);
    if errno == Errno::TXTBSY {
        return Some(kernels::PINNED.into());
    }
    if let Some(why) = kernels::device_ends(client, errno) {
        return Some(why);
    }
    let spec = client.virt_spec(path).ok()?;
    let reads = spec.direction == Direction::Read;
    let used = Use { called: "its kernel", kernel: &spec.kernel, params: spec.params.len() };
    let kernel = || kernels::why(client, &used, errno);
    // The real file that the error is about.
    let real = |wrong: &dyn Fn(&Path, &VirtRange) -> bool, what: &dyn Fn(&VirtRange) -> String| {
        let named = |r: &VirtRange| Path::new(OsStr::from_bytes(&r.path)).to_owned();
        let one = spec.ranges.iter().find(|r| wrong(&named(r), r))?;
        Some(format!("{}, which it streams, {}", named(one).display(), what(one)))
    };
    // What a writer's file has after an error.
    let stays = |why: String| if reads { why } else { format!("{why}; what it made before is in the file") };
    match errno {
        Errno::NOENT => real(&|p, _| client.metadata(p).is_err(), &|_| "is not there".into()).or_else(kernel),
        Errno::LOOP => real(&|p, _| client.virt_spec(p).is_ok(), &|_| "is a virtual file itself".into()),
        Errno::ISDIR => real(&|p, _| is(client, p, weldfs::Metadata::is_dir), &|_| "is a directory".into()),
        Errno::NODATA => real(&|p, r| client.metadata(p).is_ok_and(|m| m.len() < needed(r)), &|r| {
            format!("ends before byte {}", needed(r))
        }),
        Errno::ACCES => {
            let mask = if reads { AccessMask::READ } else { AccessMask::WRITE };
            let denied = |p: &Path| client.access(p, mask).is_err_and(|e| e.raw_os_error() == Some(Errno::ACCES.0));
            let may = if reads { "may not be read" } else { "may not be written" };
            real(&|p, _| denied(p), &|_| may.into())
        }
        Errno::PERM if reads => Some("it is a virtual file that can only be read".into()),
        Errno::PERM => Some("it is a virtual file that can only be written".into()),
        Errno::OPNOTSUPP => Some("it is a virtual file, which has no bytes of its own".into()),
        Errno::INVAL => {
            let neither = |p: &Path| client.metadata(p).is_ok_and(|m| !m.is_file());
            real(&|p, _| neither(p), &|_| "is no file".into()).or_else(kernel)
        }
        Errno::BADMSG => kernel().map(stays),
        Errno::IO => {
            let either = || format!("its kernel {} was lost, or a file is damaged: the device's log says", spec.kernel);
            Some(stays(kernel().unwrap_or_else(either)))
        }
        Errno::FBIG => {
            Some(format!("its kernel {} makes more than its range has room for; what fits stays", spec.kernel))
        }
        Errno::STALE => Some("what it streams has changed since the first part of it was read".into()),
        Errno::TIMEDOUT => Some("it was not written to for 2 s, and others waited for its slot".into()),
        // Of a full image otherwise.
        Errno::NOSPC if !reads => None,
        _ => kernel(),
    }
}

fn is(client: &Client, path: &Path, what: fn(&weldfs::Metadata) -> bool) -> bool {
    client.metadata(path).is_ok_and(|m| what(&m))
}

/// Bytes that the file of a range must have.
fn needed(range: &VirtRange) -> u64 {
    range.offset + if range.length == TO_END { 0 } else { range.length }
}
