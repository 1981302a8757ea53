//! Opening a file in a device.

use crate::code;
use crate::fault::{Done, Fault};
use crate::name::{Name, database_of, shown};
use std::ffi::c_int;
use weldfs::{Client, Errno, File, Handle, OpenOptions, SetAttrBody, SetAttrMask};

/// Opens or makes a file as SQLite's flags say; the flags that it was opened with come back.
pub fn open(client: &Client, name: &Name, flags: c_int) -> Done<(File, c_int)> {
    let has = |flag| flags & flag != 0;
    let path = shown(&name.path);
    let like = if has(code::OPEN_CREATE) { mode_of(client, name, flags)? } else { None };
    let options = OpenOptions::new().read(true).mode(like.map_or(0o644, |(mode, ..)| mode));
    let (create, exclusive) = (has(code::OPEN_CREATE), has(code::OPEN_EXCLUSIVE));
    let writing = options.clone().write(true).create(create).exclusive(create && exclusive);
    let opened = if has(code::OPEN_READWRITE) { writing.open(client, &path) } else { options.open(client, &path) };
    let denied = [Errno::ACCES, Errno::PERM, Errno::ROFS].map(|e| Some(e.0));
    let (opened, flags) = match opened {
        // As SQLite's own VFS: what may only be read is opened for that.
        Err(e) if has(code::OPEN_READWRITE) && denied.contains(&e.raw_os_error()) => {
            if has(code::OPEN_MAIN_JOURNAL | code::OPEN_WAL) && client.exists(&path).is_ok_and(|there| !there) {
                return Err(Fault::of(code::READONLY_DIRECTORY, e, || name.to_string()));
            }
            let narrow = flags & !(code::OPEN_READWRITE | code::OPEN_CREATE) | code::OPEN_READONLY;
            (options.open(client, &path).map_err(|_| e), narrow)
        }
        opened => (opened, flags),
    };
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(n) if n == Errno::ISDIR.0 => Fault::of(code::CANTOPEN_ISDIR, e, || name.to_string()),
        _ => Fault::of(code::CANTOPEN, e, || name.to_string()),
    })?;
    let (me, mine) = (rustix::process::geteuid(), rustix::process::getegid());
    let others = |(_, uid, gid): &(u32, u32, u32)| (*uid, *gid) != (me.as_raw(), mine.as_raw());
    if let Some((_, uid, gid)) = like.filter(|like| file.was_created() && me.is_root() && others(like)) {
        let mask = (SetAttrMask::UID | SetAttrMask::GID).bits();
        // A journal that the database's owner could not roll back would lock them out of it.
        let set = SetAttrBody { mask, uid, gid, ..SetAttrBody::default() };
        file.set_attributes(&set).map_err(|e| Fault::of(code::CANTOPEN, e, || format!("the owner of {name}")))?;
    }
    if has(code::OPEN_DELETEONCLOSE) {
        client.remove_file(&path).map_err(|e| Fault::of(code::CANTOPEN, e, || name.to_string()))?;
    }
    Ok((file, flags))
}

/// Permission bits and owner of the database that a journal or log is for: it has the same.
fn mode_of(client: &Client, name: &Name, flags: c_int) -> Done<Option<(u32, u32, u32)>> {
    let for_one = flags & (code::OPEN_MAIN_JOURNAL | code::OPEN_WAL) != 0;
    let Some(database) = database_of(&name.path).filter(|_| for_one) else { return Ok(None) };
    match client.raw().statat(Handle::ROOT, database, false) {
        Ok(stat) => Ok(Some((stat.mode & 0o777, stat.uid, stat.gid))),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(Fault::of(code::IOERR_FSTAT, e, || name.to_string())),
    }
}
