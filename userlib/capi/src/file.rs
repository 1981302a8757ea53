//! Open files.

use crate::boundary::{
    How, bytes, call, count, durability, give, given, hand_out, hinted, misuse, on, pair, path, put, room, text,
};
use crate::client::weldfs_client;
use crate::types::*;
use libc::{c_char, c_int, c_void};
use weldfs::{At, Errno, FallocMode, File, LockKind, OpenOptions, SetAttrBody, SetAttrMask, Whence, WireTime};

/// An open file (or directory). Any number of threads may use it at the same time. Reads and writes without an offset
/// share the open file description's, which moves atomically.
pub struct weldfs_file {
    pub(crate) file: File,
}

/// The place that an offset names.
pub(crate) fn place(offset: u64) -> At {
    if offset == WELDFS_END { At::End } else { At::Offset(offset) }
}

/// open(2). `flags` are O_ bits of <fcntl.h>; `mode` is what a new file gets, less the umask. `path` is resolved from
/// the device's root. On success *file is to be given back with weldfs_close.
///
/// Errors: open(2)'s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_open(
    client: Option<&weldfs_client>,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut weldfs_file,
) -> c_int {
    call(on("weldfs_open", name), || {
        hand_out(file, || {
            let options = OpenOptions::from_linux(flags, mode);
            Ok(weldfs_file { file: options.open(&given(client)?.client, path(name)?)? })
        })
    })
}

/// close(2). The object is gone whatever the result says; NULL does nothing. No other call may use it at the same time
/// or later. Nothing becomes persistent by it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_close(file: Option<Box<weldfs_file>>) -> c_int {
    call("weldfs_close", || match file {
        Some(file) => Ok(file.file.close()?),
        None => Ok(()),
    })
}

/// read(2) at the file's offset. Returns the bytes read; fewer than asked for only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read(file: Option<&weldfs_file>, into: *mut c_void, len: usize) -> i64 {
    count("weldfs_read", || {
        let file = &given(file)?.file;
        Ok(file.raw().read(file.handle(), At::Current, room(into, len)?)? as i64)
    })
}

/// pread(2). Returns the bytes read; fewer than asked for only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_pread(file: Option<&weldfs_file>, into: *mut c_void, len: usize, offset: u64) -> i64 {
    count("weldfs_pread", || Ok(given(file)?.file.read_at(room(into, len)?, offset)? as i64))
}

/// weldfs_pread with a `how` of its own; hints of it count in the place of the file's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_pread_how(
    file: Option<&weldfs_file>,
    into: *mut c_void,
    len: usize,
    offset: u64,
    how: u32,
) -> i64 {
    count("weldfs_pread_how", || {
        let file = &given(file)?.file;
        let raw = How::new(how)?.of(file.raw());
        Ok(raw.read(file.handle(), At::Offset(offset), room(into, len)?)? as i64)
    })
}

/// write(2) at the file's offset, or its end with O_APPEND. Atomic up to weldfs_info.payload_max bytes, longer data in
/// such pieces. Returns the bytes written; fewer than given only when a later piece failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_write(
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    durable: u32,
) -> i64 {
    count("weldfs_write", || write(given(file)?, from, len, At::Current, durable, std::ptr::null_mut()))
}

/// pwrite(2); at WELDFS_END, an append. As weldfs_write otherwise. *where, unless NULL: where the first byte went.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_pwrite(
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
    durable: u32,
    r#where: *mut u64,
) -> i64 {
    count("weldfs_pwrite", || write(given(file)?, from, len, place(offset), durable, r#where))
}

fn write(
    file: &weldfs_file,
    from: *const c_void,
    len: usize,
    at: At,
    durable: u32,
    offset: *mut u64,
) -> Result<i64, crate::boundary::Fault> {
    let file = &file.file;
    let raw = match durability(durable)? {
        weldfs::Durability::Default => file.raw(),
        chosen => file.raw().durability(chosen),
    };
    let written = raw.write(file.handle(), at, bytes(from, len)?)?;
    put(offset, written.offset);
    Ok(written.len as i64)
}

/// lseek(2), with SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE. Returns the new offset, bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_lseek(file: Option<&weldfs_file>, offset: i64, whence: c_int) -> i64 {
    count("weldfs_lseek", || {
        let whence = u64::try_from(whence).ok().and_then(Whence::from_wire).ok_or(misuse("no such whence"))?;
        let to = given(file)?.file.seek_to(whence, offset)?;
        Ok(i64::try_from(to).map_err(|_| Errno::OVERFLOW)?)
    })
}

/// Chooses the hints of later calls through `file`, on any thread, and of commands submitted for it: a
/// WELDFS_PRIORITY_, a WELDFS_LIFE_, both added, or 0, as at first. They belong to this object and not to the file, and
/// change no result: the first says how urgent commands are among those of the same tenant, which gets as much in all
/// as it would without; the second is as fcntl(2)'s F_SET_RW_HINT. -EINVAL: other bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_set_hints(file: Option<&weldfs_file>, hints: u32) -> c_int {
    call("weldfs_set_hints", || {
        given(file)?.file.set_hints(hinted(hints)?);
        Ok(())
    })
}

/// ftruncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_ftruncate(file: Option<&weldfs_file>, bytes: u64) -> c_int {
    call("weldfs_ftruncate", || Ok(given(file)?.file.set_len(bytes)?))
}

/// fallocate(2): `mode` is 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, or
/// the last with FALLOC_FL_KEEP_SIZE; else -EOPNOTSUPP. Atomic up to 128 MiB, in such pieces above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fallocate(file: Option<&weldfs_file>, mode: c_int, offset: u64, len: u64) -> c_int {
    const PUNCH: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: c_int = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    call("weldfs_fallocate", || {
        let mode = match mode {
            0 => FallocMode::Reserve,
            libc::FALLOC_FL_KEEP_SIZE => FallocMode::KeepSize,
            PUNCH => FallocMode::Punch,
            libc::FALLOC_FL_ZERO_RANGE => FallocMode::Zero,
            ZERO_KEEP => FallocMode::ZeroKeepSize,
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        Ok(given(file)?.file.allocate(mode, offset, len)?)
    })
}

/// fsync(2): content and attributes are persistent on return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fsync(file: Option<&weldfs_file>) -> c_int {
    call("weldfs_fsync", || Ok(given(file)?.file.sync_all()?))
}

/// fdatasync(2): content and size are persistent on return.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fdatasync(file: Option<&weldfs_file>) -> c_int {
    call("weldfs_fdatasync", || Ok(given(file)?.file.sync_data()?))
}

/// fstat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fstat(file: Option<&weldfs_file>, stat: *mut weldfs_stat) -> c_int {
    call("weldfs_fstat", || give(stat, || Ok(given(file)?.file.metadata()?.into())))
}

/// fchmod(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fchmod(file: Option<&weldfs_file>, mode: u32) -> c_int {
    call("weldfs_fchmod", || Ok(given(file)?.file.set_permissions(mode)?))
}

/// fchown(2); UINT32_MAX leaves owner or group as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fchown(file: Option<&weldfs_file>, uid: u32, gid: u32) -> c_int {
    call("weldfs_fchown", || Ok(given(file)?.file.set_attributes(&owner(uid, gid))?))
}

pub(crate) fn owner(uid: u32, gid: u32) -> SetAttrBody {
    let mut mask = SetAttrMask::empty();
    mask.set(SetAttrMask::UID, uid != u32::MAX);
    mask.set(SetAttrMask::GID, gid != u32::MAX);
    SetAttrBody { mask: mask.bits(), uid, gid, ..SetAttrBody::default() }
}

/// futimens(2): `times` points to two: last access, and last change of the content. NULL: now, both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_futimens(file: Option<&weldfs_file>, times: *const weldfs_time) -> c_int {
    call("weldfs_futimens", || Ok(given(file)?.file.set_attributes(&stamps(times)?)?))
}

pub(crate) fn stamps(times: *const weldfs_time) -> Result<SetAttrBody, crate::boundary::Fault> {
    let (mut set, mut mask) = (SetAttrBody::default(), SetAttrMask::empty());
    let now = weldfs_time { sec: 0, nsec: libc::UTIME_NOW as u32, reserved: 0 };
    let [access, change] = pair(times).unwrap_or([now, now]);
    let both = [
        (access, &mut set.atime, SetAttrMask::ATIME, SetAttrMask::ATIME_NOW),
        (change, &mut set.mtime, SetAttrMask::MTIME, SetAttrMask::MTIME_NOW),
    ];
    for (time, field, given, now) in both {
        match time.nsec {
            n if i64::from(n) == libc::UTIME_OMIT => {}
            n if i64::from(n) == libc::UTIME_NOW => mask |= now,
            n if n < 1_000_000_000 => {
                *field = WireTime::new(time.sec, n);
                mask |= given;
            }
            _ => return Err(misuse("nanoseconds out of range")),
        }
    }
    set.mask = mask.bits();
    Ok(set)
}

/// flock(2) without waiting: `kind` is LOCK_SH, LOCK_EX or LOCK_UN. -EAGAIN when another open file holds it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_flock(file: Option<&weldfs_file>, kind: c_int) -> c_int {
    call("weldfs_flock", || {
        let kind = match kind & !libc::LOCK_NB {
            libc::LOCK_SH => LockKind::Read,
            libc::LOCK_EX => LockKind::Write,
            libc::LOCK_UN => LockKind::Unlock,
            _ => return Err(misuse("no such kind of lock")),
        };
        Ok(given(file)?.file.try_lock(kind)?)
    })
}

/// fgetxattr(2): returns the value's length, bytes; `size` 0 asks for that alone. -ERANGE when it does not fit,
/// -ENODATA when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fgetxattr(
    file: Option<&weldfs_file>,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    count("weldfs_fgetxattr", || {
        let (file, name) = (&given(file)?.file, text(name)?.to_bytes());
        Ok(file.raw().get_xattr(file.handle(), b"", false, name, room(value, size)?)? as i64)
    })
}

/// fsetxattr(2); `flags` 0, XATTR_CREATE or XATTR_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fsetxattr(
    file: Option<&weldfs_file>,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    call("weldfs_fsetxattr", || {
        let (file, name) = (&given(file)?.file, text(name)?.to_bytes());
        let flags = u8::try_from(flags).ok().and_then(weldfs::XattrFlags::from_bits);
        let flags = flags.ok_or(misuse("no such flags"))?;
        Ok(file.raw().set_xattr(file.handle(), b"", false, name, bytes(value, size)?, flags)?)
    })
}

/// flistxattr(2): names, each ended by NUL. Returns their length in all, bytes; `size` 0 asks for that alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_flistxattr(file: Option<&weldfs_file>, names: *mut c_void, size: usize) -> i64 {
    count("weldfs_flistxattr", || {
        let file = &given(file)?.file;
        Ok(file.raw().list_xattr(file.handle(), b"", false, room(names, size)?)? as i64)
    })
}

/// fremovexattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fremovexattr(file: Option<&weldfs_file>, name: *const c_char) -> c_int {
    call("weldfs_fremovexattr", || {
        let (file, name) = (&given(file)?.file, text(name)?.to_bytes());
        Ok(file.raw().remove_xattr(file.handle(), b"", false, name)?)
    })
}
