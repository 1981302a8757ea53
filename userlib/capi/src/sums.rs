//! The catalogue: fused operations that travel as programs. Each function is one command, atomic as a whole, unless its
//! `how` says otherwise.

use crate::boundary::{Fault, How, call, given, misuse, put};
use crate::file::weldfs_file;
use crate::fused::{payload, space};
use libc::{c_int, c_void};
use weldfs::catalogue::{Order, SumKind, SumPlace, Summing};
use weldfs::{Errno, Raw};

/// Checksum, in a `form`: CRC-32C (Castagnoli). A `form` is one of these three, with WELDFS_BIG_ENDIAN and
/// WELDFS_HEADER added as wanted; 0 is what weldfs_append_checksum_write does.
pub const WELDFS_CRC32C: u32 = 0;
/// Checksum, in a `form`: CRC-32 (IEEE 802.3), as zip and Ethernet have it.
pub const WELDFS_CRC32: u32 = 1;
/// Checksum, in a `form`: CRC-32C rotated right by 15 bits plus 0xa282ead8, as LevelDB and RocksDB store it.
pub const WELDFS_CRC32C_MASKED: u32 = 2;
/// Byte order of a number in a file, in a `form` or an `order`: the highest byte first. Without it the lowest.
pub const WELDFS_BIG_ENDIAN: u32 = 0x10;
/// Place of a checksum, in a `form`: right before the payload. Without it, right behind.
pub const WELDFS_HEADER: u32 = 0x20;

pub(crate) fn order(bits: u32) -> Result<Order, Fault> {
    match bits {
        0 => Ok(Order::Little),
        WELDFS_BIG_ENDIAN => Ok(Order::Big),
        _ => Err(misuse("a byte order is 0 or WELDFS_BIG_ENDIAN")),
    }
}

pub(crate) fn sum_kind(number: u32) -> Result<SumKind, Fault> {
    match number {
        WELDFS_CRC32C => Ok(SumKind::Crc32c),
        WELDFS_CRC32 => Ok(SumKind::Crc32),
        WELDFS_CRC32C_MASKED => Ok(SumKind::Crc32cMasked),
        _ => Err(misuse("no such checksum")),
    }
}

fn form(bits: u32) -> Result<Summing, Fault> {
    let place = if bits & WELDFS_HEADER == 0 { SumPlace::Trailer } else { SumPlace::Header };
    let order = order(bits & WELDFS_BIG_ENDIAN)?;
    Ok(Summing { kind: sum_kind(bits & !(WELDFS_HEADER | WELDFS_BIG_ENDIAN))?, order, place })
}

/// The raw layer of a file, as `how` says.
pub(crate) fn raw(file: &weldfs_file, how: u32) -> Result<Raw<'_>, Fault> {
    Ok(How::new(how)?.of(file.file.raw()))
}

/// Two files of one command.
pub(crate) fn meet(file: &weldfs_file, other: &weldfs_file) -> Result<(), Fault> {
    if file.file.session() == other.file.session() { Ok(()) } else { Err(Errno::BADF.into()) }
}

/// Appends `len` bytes and their checksum, as `form` says, as one command. *where and *checksum, unless NULL: where the
/// record begins (at its checksum if that is the header), and the checksum. For `form` 0 weldfs_append_checksum_write
/// is faster.
///
/// Errors: -EBADF when the file was not opened for writing, -E2BIG above the payload limit, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_append_checksum(
    file: Option<&weldfs_file>,
    form: u32,
    from: *const c_void,
    len: usize,
    how: u32,
    r#where: *mut u64,
    checksum: *mut u32,
) -> c_int {
    call("weldfs_append_checksum", || {
        let file = given(file)?;
        let form = self::form(form)?;
        let record = raw(file, how)?.append_checksum(file.file.handle(), form, payload(from, len)?)?;
        put(r#where, record.offset);
        put(checksum, record.checksum);
        Ok(())
    })
}

/// Writes `len` bytes and their checksum, as `form` says, as one command: the record begins at `offset`, or at the end
/// of a file that was opened with O_APPEND. *where and *checksum, and errors, as weldfs_append_checksum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_write_checksum(
    file: Option<&weldfs_file>,
    offset: u64,
    form: u32,
    from: *const c_void,
    len: usize,
    how: u32,
    r#where: *mut u64,
    checksum: *mut u32,
) -> c_int {
    call("weldfs_write_checksum", || {
        let file = given(file)?;
        let form = self::form(form)?;
        let record = raw(file, how)?.write_checksum(file.file.handle(), offset, form, payload(from, len)?)?;
        put(r#where, record.offset);
        put(checksum, record.checksum);
        Ok(())
    })
}

/// Reads the record of `len` payload bytes that begins at `offset`, and compares its checksum, as `form` says. With
/// `into` NULL only the verdict crosses the link. *checksum, unless NULL: that of the bytes that are there.
/// weldfs_read_checksum_verify is the same for `form` 0, and faster.
///
/// Errors: -EBADMSG when they do not match (`into` holds the bytes all the same), -ENODATA when the file ends within
/// the record, -EBADF when it was not opened for reading.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_verify_checksum(
    file: Option<&weldfs_file>,
    offset: u64,
    form: u32,
    into: *mut c_void,
    len: u32,
    how: u32,
    checksum: *mut u32,
) -> c_int {
    call("weldfs_verify_checksum", || {
        let file = given(file)?;
        let form = self::form(form)?;
        let wanted = if into.is_null() { None } else { Some(space(into, len as usize)?.into()) };
        put(checksum, raw(file, how)?.verify_checksum(file.file.handle(), offset, len, form, wanted)?);
        Ok(())
    })
}
