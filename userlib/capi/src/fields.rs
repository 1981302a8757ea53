//! The catalogue: fields changed in place, records that grow, new versions appended to logs.

use crate::boundary::{Fault, bytes, call, count, given, misuse, put, room};
use crate::file::weldfs_file;
use crate::fused::{WELDFS_ADD, WELDFS_COMPARE_SWAP, WELDFS_PATCH, WELDFS_XOR, payload, space};
use crate::sums::{meet, order, raw};
use crate::types::*;
use libc::{c_int, c_void};
use weldfs::Errno;
use weldfs::catalogue::{FieldEdit, Order, ReadFrom};
use weldfs_ciscops::limits::ATOMIC_WRITE_MAX;
use weldfs_ciscops::program::{Int, Width};

/// weldfs_modify_field and kin: the field and `operand`, bit by bit.
pub const WELDFS_AND: c_int = 4;
/// weldfs_modify_field and kin: the field or `operand`, bit by bit.
pub const WELDFS_OR: c_int = 5;

/// A number of so many bytes.
pub(crate) fn int(width: u32, order: Order) -> Result<Int, Fault> {
    let width = match width {
        1 => Width::W1,
        2 => Width::W2,
        4 => Width::W4,
        8 => Width::W8,
        _ => return Err(misuse("a number has 1, 2, 4 or 8 bytes")),
    };
    Ok(Int { width, order })
}

/// `operand` and `expect` have `len` bytes.
fn edit<'a>(
    change: c_int,
    order: u32,
    operand: *const c_void,
    expect: *const c_void,
    len: usize,
) -> Result<FieldEdit<'a>, Fault> {
    if len > ATOMIC_WRITE_MAX as usize {
        return Err(Errno::TOOBIG.into());
    }
    let (operand, order) = (bytes(operand, len)?, self::order(order)?);
    if (change == WELDFS_COMPARE_SWAP) == expect.is_null() {
        return Err(misuse("expect is for WELDFS_COMPARE_SWAP, and for it alone"));
    }
    Ok(match change {
        WELDFS_PATCH => FieldEdit::Patch(operand),
        WELDFS_AND => FieldEdit::And(operand),
        WELDFS_OR => FieldEdit::Or(operand),
        WELDFS_XOR => FieldEdit::Xor(operand),
        WELDFS_COMPARE_SWAP => FieldEdit::CompareSwap { expect: bytes(expect, len)?, new: operand },
        WELDFS_ADD => {
            let width = len as u32;
            FieldEdit::Add { by: int(width, order)?.get(operand), width, order }
        }
        _ => return Err(misuse("no such change")),
    })
}

/// Reads `len` bytes at `offset`, changes them, writes them back, as one command: as weldfs_read_modify_write, with
/// WELDFS_AND and WELDFS_OR besides, numbers of either byte order (`order` is WELDFS_BIG_ENDIAN or 0 and counts for
/// WELDFS_ADD, of field and `operand`), and fields of up to 1 MiB. Returns how many of the bytes were there; those past
/// the end of the file count as zeros. `old`, unless NULL, has `len` bytes and gets what was there, also with
/// -ECANCELED.
///
/// Errors: -ECANCELED when WELDFS_COMPARE_SWAP finds something else, -EBADF when the file was not opened for both,
/// -E2BIG, -EINVAL (a number of another width). With WELDFS_ON_HOST others may come in between.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_modify_field(
    file: Option<&weldfs_file>,
    offset: u64,
    change: c_int,
    order: u32,
    operand: *const c_void,
    expect: *const c_void,
    len: usize,
    old: *mut c_void,
    how: u32,
) -> i64 {
    count("weldfs_modify_field", || {
        let file = given(file)?;
        let edit = edit(change, order, operand, expect, len)?;
        let old = if old.is_null() { None } else { Some(room(old, len)?) };
        Ok(raw(file, how)?.modify_field(file.file.handle(), offset, edit, old)? as i64)
    })
}

/// Adds `by`, wrapping, to the number of `width` bytes (1, 2, 4 or 8) at `offset`; `order` is 0 or WELDFS_BIG_ENDIAN.
/// *before, unless NULL: what it was. Errors as weldfs_modify_field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_fetch_add(
    file: Option<&weldfs_file>,
    offset: u64,
    by: u64,
    width: u32,
    order: u32,
    how: u32,
    before: *mut u64,
) -> c_int {
    call("weldfs_fetch_add", || {
        let file = given(file)?;
        let order = self::order(order)?;
        put(before, raw(file, how)?.fetch_add(file.file.handle(), offset, by, width, order)?);
        Ok(())
    })
}

/// Appends `len` bytes to a record in place: the length of its content is the number of `width` bytes at `offset`
/// (`order` is 0 or WELDFS_BIG_ENDIAN), the content lies right behind it, and there is room for `room` bytes of that.
/// *before, unless NULL: the length that the content had.
///
/// Errors: -EFBIG when it does not fit (nothing is written), -EINVAL when `width` cannot say `room`, -EBADF, -E2BIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_append_to_record(
    file: Option<&weldfs_file>,
    offset: u64,
    width: u32,
    order: u32,
    room: u64,
    from: *const c_void,
    len: usize,
    how: u32,
    before: *mut u64,
) -> c_int {
    call("weldfs_append_to_record", || {
        let file = given(file)?;
        let form = (width, self::order(order)?);
        let data = payload(from, len)?;
        put(before, raw(file, how)?.append_to_record(file.file.handle(), offset, form, room, data)?);
        Ok(())
    })
}

/// Reads the record of `len` bytes at `offset` of `file`, changes `field_len` bytes of the copy from its byte `field`
/// on, and appends the copy to `to` (perhaps the same file); the old record stays. `change`, `order`, `operand` and
/// `expect` as weldfs_modify_field. *where, unless NULL: where the new record begins.
///
/// Errors: -ENODATA when the file ends within the record, -ERANGE when the field is not inside it, -ECANCELED, -EBADF,
/// -E2BIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_modify_append(
    file: Option<&weldfs_file>,
    offset: u64,
    len: u32,
    field: u32,
    change: c_int,
    order: u32,
    operand: *const c_void,
    expect: *const c_void,
    field_len: usize,
    to: Option<&weldfs_file>,
    how: u32,
    r#where: *mut u64,
) -> c_int {
    call("weldfs_read_modify_append", || {
        let (file, to) = (given(file)?, given(to)?);
        meet(file, to)?;
        let edit = edit(change, order, operand, expect, field_len)?;
        let (from, to) = (file.file.handle(), to.file.handle());
        put(r#where, raw(file, how)?.modify_append(from, (offset, len), field, edit, to)?);
        Ok(())
    })
}

/// Reads `into_len` bytes of the file as it is, from `offset` (WELDFS_END: its last ones), then appends `len` bytes, as
/// one command. Returns the bytes read; fewer than asked for only where the file ends. *where, unless NULL: where the
/// payload went. There is nothing to compute: with WELDFS_ON_HOST it is a read and a write, others in between.
///
/// Errors: -EBADF when the file was not opened for both, -E2BIG, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_append(
    file: Option<&weldfs_file>,
    offset: u64,
    into: *mut c_void,
    into_len: usize,
    from: *const c_void,
    len: usize,
    how: u32,
    r#where: *mut u64,
) -> i64 {
    count("weldfs_read_append", || {
        let file = given(file)?;
        let place = if offset == WELDFS_END { ReadFrom::Tail } else { ReadFrom::Offset(offset) };
        let (room, data) = (space(into, into_len)?, payload(from, len)?);
        let (n, written) = raw(file, how)?.read_append(file.file.handle(), place, room, data)?;
        put(r#where, written.offset);
        Ok(n as i64)
    })
}
