//! Fused operations: several steps, one command, atomic as a whole. No operand is longer than weldfs_info.payload_max.

use crate::boundary::{Fault, bytes, call, count, durability, given, misuse, on, path, put, room};
use crate::client::weldfs_client;
use crate::file::{place, weldfs_file};
use crate::types::*;
use libc::{c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;
use weldfs::{Change, ChecksumKind, Durability, Errno, OpenFlags, Raw};
use weldfs_ciscops::limits::{ATOMIC_WRITE_MAX, MODIFY_MAX};

/// Opens or creates a file, writes at `offset` (or WELDFS_END), closes, as one command. `flags` are O_ bits with
/// O_WRONLY or O_RDWR; `mode` is what a new file gets, less the umask. Returns the bytes written: all of them.
/// *written, unless NULL: where, and whether the file is new.
///
/// Errors: those of open and write; -E2BIG above the payload limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_open_write_close(
    client: Option<&weldfs_client>,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    from: *const c_void,
    len: usize,
    offset: u64,
    durable: u32,
    written: *mut weldfs_written,
) -> i64 {
    count(on("weldfs_open_write_close", name), || {
        let (client, flags) = (&given(client)?.client, OpenFlags::from_linux(flags));
        let client = match durability(durable)? {
            Durability::Default => client.clone(),
            chosen => client.durability(chosen),
        };
        let data = payload(from, len)?;
        let done = client.open_write_close(path(name)?, flags, mode, place(offset), data)?;
        put(written, weldfs_written { offset: done.offset, created: done.created.into(), reserved: [0; 7] });
        Ok(done.len as i64)
    })
}

/// Opens a file, reads from `offset`, closes, as one command. `flags` are O_ bits with O_RDONLY or O_RDWR, none that
/// creates or truncates. Returns the bytes read; fewer than asked for only at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_open_read_close(
    client: Option<&weldfs_client>,
    name: *const c_char,
    flags: c_int,
    into: *mut c_void,
    len: usize,
    offset: u64,
) -> i64 {
    count(on("weldfs_open_read_close", name), || {
        let (client, flags) = (&given(client)?.client, OpenFlags::from_linux(flags));
        Ok(client.open_read_close(path(name)?, flags, offset, space(into, len)?)? as i64)
    })
}

/// Opens or creates a file, reads `old_len` bytes of its old content from `old_offset`, writes at `offset` (or
/// WELDFS_END), closes, as one command: no other client gets in between. `flags` with O_RDWR. Returns the bytes read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_open_read_write_close(
    client: Option<&weldfs_client>,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    old: *mut c_void,
    old_len: usize,
    old_offset: u64,
    from: *const c_void,
    len: usize,
    offset: u64,
    durable: u32,
    written: *mut weldfs_written,
) -> i64 {
    count(on("weldfs_open_read_write_close", name), || {
        let (client, flags) = (&given(client)?.client, OpenFlags::from_linux(flags));
        let client = match durability(durable)? {
            Durability::Default => client.clone(),
            chosen => client.durability(chosen),
        };
        let (old, data) = (space(old, old_len)?, payload(from, len)?);
        let done = client.open_read_write_close(path(name)?, flags, mode, old_offset, old, place(offset), data)?;
        put(written, weldfs_written { offset: done.offset, created: done.created.into(), reserved: [0; 7] });
        Ok(done.read as i64)
    })
}

/// Appends `len` bytes and, right behind them, their CRC-32C (4 bytes, little-endian), as one command. *offset and
/// *checksum, unless NULL: where the first byte went, and the checksum.
///
/// Errors: -EBADF when the file was not opened for writing, -E2BIG above the payload limit less 4, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_append_checksum_write(
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    durable: u32,
    offset: *mut u64,
    checksum: *mut u32,
) -> c_int {
    call("weldfs_append_checksum_write", || {
        let file = given(file)?;
        let sealed = raw(file, durable)?.append_checksum_write(file.file.handle(), payload(from, len)?)?;
        put(offset, sealed.offset);
        put(checksum, sealed.checksum);
        Ok(())
    })
}

/// weldfs_pwrite (WELDFS_END: an append) of at most weldfs_info.payload_max bytes, if their CRC-32C is `checksum`: the
/// device sums up the bytes that it stores, and else nothing has happened. Returns the bytes written. *where, unless
/// NULL: where the first byte went.
///
/// Errors: -EBADMSG when the checksum is another one, -EBADF when the file was not opened for writing, -E2BIG, -ENOSPC,
/// -EOPNOTSUPP on a virtual file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_pwrite_verified(
    file: Option<&weldfs_file>,
    from: *const c_void,
    len: usize,
    offset: u64,
    checksum: u32,
    durable: u32,
    r#where: *mut u64,
) -> i64 {
    count("weldfs_pwrite_verified", || {
        let file = given(file)?;
        let (at, data) = (place(offset), payload(from, len)?);
        let written = raw(file, durable)?.write_verified(file.file.handle(), at, data, checksum)?;
        put(r#where, written.offset);
        Ok(written.len as i64)
    })
}

/// Reads `len` bytes at `offset` and the CRC-32C behind them, and compares, as one command. With `into` NULL only the
/// verdict crosses the link. *checksum, unless NULL: that of the bytes that are there.
///
/// Errors: -EBADMSG when they do not match (`into` holds them all the same), -ENODATA when the file ends too early.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_checksum_verify(
    file: Option<&weldfs_file>,
    into: *mut c_void,
    len: u32,
    offset: u64,
    checksum: *mut u32,
) -> c_int {
    call("weldfs_read_checksum_verify", || {
        let file = &given(file)?.file;
        let wanted = if into.is_null() { None } else { Some(space(into, len as usize)?.into()) };
        put(checksum, file.raw().read_checksum_verify(file.handle(), offset, len, wanted)?);
        Ok(())
    })
}

/// The CRC-32C of `len` bytes from `offset` (UINT64_MAX: to the end of the file), summed up by the device: not a byte
/// crosses the link. Returns how many bytes there were. Ranges above 8 MiB are those of several moments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_checksum_range(
    file: Option<&weldfs_file>,
    offset: u64,
    len: u64,
    checksum: *mut u32,
) -> i64 {
    count("weldfs_checksum_range", || {
        let file = &given(file)?.file;
        let len = len.min((i64::MAX as u64).saturating_sub(offset));
        let summed = file.raw().checksum_range(file.handle(), offset, len, ChecksumKind::Crc32c)?;
        put(checksum, summed.checksum as u32);
        Ok(summed.len as i64)
    })
}

/// weldfs_read_modify_write: replaces the field by `operand`.
pub const WELDFS_PATCH: c_int = 0;
/// weldfs_read_modify_write: adds `operand`, a little-endian number of 1, 2, 4 or 8 bytes, wrapping.
pub const WELDFS_ADD: c_int = 1;
/// weldfs_read_modify_write: xors the field with `operand`.
pub const WELDFS_XOR: c_int = 2;
/// weldfs_read_modify_write: replaces the field by `operand` if it holds `expect`, else -ECANCELED.
pub const WELDFS_COMPARE_SWAP: c_int = 3;

/// Reads `len` bytes at `offset`, changes them, writes them back, as one command. `change` is a WELDFS_ constant above;
/// `operand` (and for WELDFS_COMPARE_SWAP `expect`, else NULL) has `len` bytes. With `old`, of `len` bytes, what was
/// there comes back, also with -ECANCELED. Bytes past the end of the file count as zero. At most 64 KiB, else -E2BIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_modify_write(
    file: Option<&weldfs_file>,
    offset: u64,
    change: c_int,
    operand: *const c_void,
    expect: *const c_void,
    len: usize,
    old: *mut c_void,
    durable: u32,
) -> c_int {
    call("weldfs_read_modify_write", || {
        let file = given(file)?;
        let change = self::change(change, operand, expect, len)?;
        let old = if old.is_null() { None } else { Some(room(old, len)?) };
        Ok(raw(file, durable)?.read_modify_write(file.file.handle(), offset, change, old)?)
    })
}

pub(crate) fn change<'a>(
    change: c_int,
    operand: *const c_void,
    expect: *const c_void,
    len: usize,
) -> Result<Change<'a>, Fault> {
    if len > MODIFY_MAX as usize {
        return Err(Errno::TOOBIG.into());
    }
    let operand = bytes(operand, len)?;
    if (change == WELDFS_COMPARE_SWAP) == expect.is_null() {
        return Err(misuse("expect is for WELDFS_COMPARE_SWAP, and for it alone"));
    }
    match change {
        WELDFS_PATCH => Ok(Change::Patch(operand)),
        WELDFS_XOR => Ok(Change::Xor(operand)),
        WELDFS_COMPARE_SWAP => Ok(Change::CompareSwap { expect: bytes(expect, len)?, new: operand }),
        WELDFS_ADD if matches!(len, 1 | 2 | 4 | 8) => {
            let mut by = [0; 8];
            by[..len].copy_from_slice(operand);
            Ok(Change::Add { by: u64::from_le_bytes(by), width: len as u32 })
        }
        WELDFS_ADD => Err(misuse("a number has 1, 2, 4 or 8 bytes")),
        _ => Err(misuse("no such change")),
    }
}

fn raw(file: &weldfs_file, durable: u32) -> Result<Raw<'_>, Fault> {
    Ok(match durability(durable)? {
        Durability::Default => file.file.raw(),
        chosen => file.file.raw().durability(chosen),
    })
}

/// A payload of one command.
pub(crate) fn payload<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Fault> {
    if len > ATOMIC_WRITE_MAX as usize {
        return Err(Errno::TOOBIG.into());
    }
    bytes(from, len)
}

/// Room for a payload of one command.
pub(crate) fn space<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Fault> {
    if len > ATOMIC_WRITE_MAX as usize {
        return Err(Errno::TOOBIG.into());
    }
    room(into, len)
}

/// A static sentence per errno.
pub(crate) fn sentence(errno: i32) -> *const c_char {
    const ERRNO_MAX: usize = 134;
    static SENTENCES: OnceLock<Vec<CString>> = OnceLock::new();
    let sentences = SENTENCES.get_or_init(|| {
        let text = |errno| match errno {
            0 => "success".to_owned(),
            libc::ENOTRECOVERABLE => "a bug in the library (ENOTRECOVERABLE)".to_owned(),
            errno => Errno(errno).to_string(),
        };
        (0..ERRNO_MAX as i32).map(|errno| CString::new(text(errno)).unwrap_or_default()).collect()
    });
    sentences.get(errno as usize).map_or(c"unknown error".as_ptr(), |sentence| sentence.as_ptr())
}
