//! What SQLite asks by name: open, delete, look for, make absolute.

use crate::code;
use crate::device::{Device, For, attached};
use crate::fault::{Done, Fault};
use crate::making;
use crate::name::{Name, TARGET_VARIABLE};
use crate::open::Io;
use crate::rollback;
use crate::stored::{Kind, Stored};
use crate::temp::Temp;
use std::ffi::c_int;
use std::sync::Arc;
use weldfs::{AccessMask, Durability, Errno, Handle};

/// Symbolic links that a name may lead over.
const LINKS_MAX: usize = 40;
/// Type and permission bits, as st_mode.
const TYPE_BITS: u32 = 0o170_000;
const SYMLINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;

/// What SQLite names: what [`full_name`] gave, or a name in a journal, which was such a one.
fn named(text: &[u8], code: c_int) -> Done<Name> {
    let bad = |why| Fault::said(code, format!("{}: {why}", String::from_utf8_lossy(text)));
    let name = match Name::parse(text, None) {
        Ok(name) => name,
        Err(_) => Name::parse(text, std::env::var_os(TARGET_VARIABLE).as_deref()).map_err(bad)?,
    };
    Ok(if name.target.is_absolute() { name } else { name.absolute() })
}

/// Opens what SQLite names, or a temporary file; the flags that it was opened with come back.
pub fn open(text: Option<&[u8]>, flags: c_int) -> Done<(Box<dyn Io>, c_int)> {
    let Some(text) = text else { return Ok((Box::new(Temp::new()?), flags)) };
    let name = named(text, code::CANTOPEN)?;
    if flags & code::OPEN_MAIN_DB != 0 {
        return stored(attached(&name.target, For::Database)?, name, flags);
    }
    // A journal, say, in the middle of a commit.
    let device = attached(&name.target, For::Rest).map_err(Fault::of_an_open_database)?;
    let fails = |fault: &Fault| [Errno::NODEV.0, Errno::IO.0].contains(&fault.errno);
    stored(device, name, flags).map_err(|fault| if fails(&fault) { fault.of_an_open_database() } else { fault })
}

fn stored(device: Arc<Device>, name: Name, flags: c_int) -> Done<(Box<dyn Io>, c_int)> {
    if flags & code::OPEN_MAIN_JOURNAL != 0 {
        let (journal, flags) = rollback::open(device, name, flags)?;
        return Ok((Box::new(journal), flags));
    }
    let (file, flags) = making::open(device.client()?, &name, flags)?;
    let kind = match flags {
        f if f & code::OPEN_MAIN_DB != 0 => Kind::Database,
        f if f & code::OPEN_SUPER_JOURNAL != 0 => Kind::SuperJournal,
        f if f & code::OPEN_WAL != 0 => Kind::Log,
        _ => Kind::Other,
    };
    Ok((Box::new(Stored::new(device, name, kind, file)?), flags))
}

/// Removes a file. Durable when SQLite says so, and when it ends a commit whose sync was put off to here.
pub fn delete(text: &[u8], durable: bool) -> Done {
    let name = named(text, code::IOERR_DELETE)?;
    let device = attached(&name.target, For::Rest).map_err(Fault::of_an_open_database)?;
    let client = device.client()?;
    let database = name.path.strip_suffix(b"-journal");
    if let Some(database) = database {
        device.commits.finish(client, database)?;
        if device.commits.take_closed(database).is_some_and(|journal| journal.is_unmade()) {
            return Ok(());
        }
    }
    let ends = database.filter(|db| device.commits.owed(db));
    let durability = if durable || ends.is_some() { Durability::Durable } else { Durability::Volatile };
    match client.raw().durability(durability).unlinkat(Handle::ROOT, &name.path) {
        Ok(()) => {
            ends.inspect(|db| device.commits.settled(db));
            Ok(())
        }
        Err(Errno::NOENT) => Err(Fault::quiet(code::IOERR_DELETE_NOENT)),
        Err(e) => Err(Fault::of(code::IOERR_DELETE, e, || format!("delete {name}"))),
    }
}

/// Whether a file is there (an empty one is not, as SQLite looks at journals), or may be used.
pub fn access(text: &[u8], what: c_int) -> Done<bool> {
    let name = named(text, code::IOERR_ACCESS)?;
    let device = attached(&name.target, For::Rest).map_err(Fault::of_an_open_database)?;
    let raw = device.client()?.raw();
    let found = match what {
        code::ACCESS_EXISTS => {
            raw.statat(Handle::ROOT, &name.path, false).map(|stat| stat.mode & TYPE_BITS != REGULAR || stat.size > 0)
        }
        code::ACCESS_READWRITE => {
            raw.accessat(Handle::ROOT, &name.path, AccessMask::READ | AccessMask::WRITE, false).map(|()| true)
        }
        _ => raw.accessat(Handle::ROOT, &name.path, AccessMask::READ, false).map(|()| true),
    };
    match found {
        Ok(found) => Ok(found),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCES | Errno::ROFS | Errno::LOOP) => Ok(false),
        Err(e) => Err(Fault::of(code::IOERR_ACCESS, e, || format!("look for {name}"))),
    }
}

/// The one name of a file, and whether symbolic links led to it: its journal must be found by whatever name it is
/// opened next.
pub fn full_name(text: &[u8]) -> Done<(Vec<u8>, bool)> {
    let mut name = named(text, code::CANTOPEN_FULLPATH)?.absolute();
    let device = attached(&name.target, For::Name)?;
    let raw = device.client()?.raw();
    let mut left: Vec<Vec<u8>> = parts(&name.path);
    let (mut path, mut links) = (Vec::new(), 0);
    while let Some(part) = left.pop() {
        if part == b".." {
            path.truncate(path.iter().rposition(|b| *b == b'/').unwrap_or(0));
            continue;
        }
        let longer = [&path[..], b"/", &part].concat();
        let stat = raw.statat(Handle::ROOT, &longer, true);
        if !stat.is_ok_and(|stat| stat.mode & TYPE_BITS == SYMLINK) {
            // What is not there, or may not be looked at, is told by the open.
            path = longer;
            continue;
        }
        links += 1;
        let bad = |e| Fault::of(code::CANTOPEN_SYMLINK, e, || name.to_string());
        if links > LINKS_MAX {
            return Err(bad(Errno::LOOP));
        }
        let mut target = vec![0; weldfs_ciscops::limits::SYMLINK_MAX];
        let n = raw.readlinkat(Handle::ROOT, &longer, &mut target).map_err(bad)?;
        target.truncate(n);
        if target.first() == Some(&b'/') {
            path.clear();
        }
        left.extend(parts(&target));
    }
    name.path = if path.is_empty() { b"/".to_vec() } else { path };
    Ok((name.bytes(), links > 0))
}

/// The components of a path, the last one first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let named = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && part != b".");
    named.rev().map(<[u8]>::to_vec).collect()
}
