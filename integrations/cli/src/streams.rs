//! What keeps a virtual file from being opened, read or written, in words that name what is behind it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weldfs::{AccessMask, Client, Direction, Errno, VirtRange, VirtSpec};
use weldfs_ciscops::virt::TO_END;

/// Why a call failed that was about the virtual file at `path`. None: it is no virtual file, or may not be looked at,
/// or the errno says it well enough.
pub fn why(client: &Client, path: &Path, error: &io::Error) -> Option<String> {
    let errno = Errno(error.raw_os_error()?);
    let spec = client.virt_spec(path).ok()?;
    let reads = spec.direction == Direction::Read;
    let kernel = &spec.kernel;
    // The real file that the error is about.
    let real = |wrong: &dyn Fn(&Path, &VirtRange) -> bool, what: &dyn Fn(&VirtRange) -> String| {
        let named = |r: &VirtRange| Path::new(OsStr::from_bytes(&r.path)).to_owned();
        let one = spec.ranges.iter().find(|r| wrong(&named(r), r))?;
        Some(format!("{}, which it streams, {}", named(one).display(), what(one)))
    };
    match errno {
        Errno::NODEV => Some(format!(
            "its kernel {kernel} is not active (weldfs kernel activate), or needs a card that is not there \
             (weldfs kernel ls)"
        )),
        Errno::NOENT => real(&|p, _| client.metadata(p).is_err(), &|_| "is not there".into())
            .or_else(|| Some(format!("the device has no kernel {kernel} (weldfs kernel ls)"))),
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
            real(&|p, _| neither(p), &|_| "is no file".into()).or_else(|| Some(refused(client, &spec)))
        }
        Errno::BADMSG if reads => Some(format!("its kernel {kernel} does not take what it is given")),
        Errno::BADMSG => Some(format!("its kernel {kernel} does not take what it is given; what it has made stays")),
        Errno::IO => {
            Some(format!("its kernel {kernel} was lost, or what it streams is damaged (the device's log says)"))
        }
        Errno::NOSPC if reads => Some(format!("its kernel {kernel} is too large for every slot")),
        Errno::FBIG => Some(format!("its kernel {kernel} makes more than its range has room for; what fits stays")),
        Errno::STALE => Some("what it streams has changed since the first part of it was read".into()),
        _ => None,
    }
}

fn is(client: &Client, path: &Path, what: fn(&weldfs::Metadata) -> bool) -> bool {
    client.metadata(path).is_ok_and(|m| what(&m))
}

/// Bytes that the file of a range must have.
fn needed(range: &VirtRange) -> u64 {
    range.offset + if range.length == TO_END { 0 } else { range.length }
}

/// What a kernel has against its parameters.
fn refused(client: &Client, spec: &VirtSpec) -> String {
    let (kernel, given) = (&spec.kernel, spec.params.len());
    let takes = || {
        let all: serde_json::Value = serde_json::from_str(&client.kernels_json().ok()?).ok()?;
        let name = kernel.split(':').next()?;
        let takes = &all["kernels"].as_array()?.iter().find(|k| k["name"] == name)?["parameters"];
        let (min, max) = (takes["min"].as_u64()?, takes["max"].as_u64()?);
        let range = if min == max { min.to_string() } else { format!("{min} to {max}") };
        let about = takes["about"].as_str().filter(|a| !a.is_empty()).map(|a| format!(" ({a})")).unwrap_or_default();
        Some(match (min..=max).contains(&(given as u64)) {
            true => format!("its kernel {kernel} refuses the values of its parameters{about}"),
            false => format!("its kernel {kernel} takes {range} parameters{about}, not {given}"),
        })
    };
    takes().unwrap_or_else(|| format!("its kernel {kernel} refuses its parameters, of which there are {given}"))
}
