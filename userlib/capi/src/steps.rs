//! Steps of a program that work on files, bytes and numbers.

use crate::boundary::{Fault, array, call, count, given, misuse, path, text};
use crate::fields::{WELDFS_AND, WELDFS_OR, int};
use crate::file::weldfs_file;
use crate::fused::{WELDFS_COMPARE_SWAP, WELDFS_PATCH, WELDFS_XOR};
use crate::program::{WELDFS_NONE, weldfs_place, weldfs_program, weldfs_value};
use crate::sums::{order, sum_kind};
use crate::transforms::{codec, log_record, weldfs_key, weldfs_log_format};
use libc::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use weldfs::{Errno, Handle, OpenFlags};
use weldfs_ciscops::Access;
use weldfs_ciscops::program::{
    Arith, Bytes, Change, Cond, Else, Fold, Micro, Place, Pool, Reg, Relation, Str, To, Transform, Value,
};

const NUMBER: u32 = 0;
const HELD: u32 = 1;
const END: u32 = 2;
const AFTER: u32 = 3;

const NOWHERE: u32 = 0;
const BUFFER: u32 = 1;
const RANGE: u32 = 2;
pub(crate) const LITERAL: u32 = 3;
const REGISTER: u32 = 4;

/// A constant.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_number(number: u64) -> weldfs_value {
    weldfs_value { number, kind: NUMBER, reserved: 0 }
}

/// What a register holds when the step runs: an offset or length that an earlier step found out.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_held(register: c_int) -> weldfs_value {
    weldfs_value { number: register as u64, kind: HELD, reserved: 0 }
}

/// Where to write: at the end of the file.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_at_end() -> weldfs_value {
    weldfs_value { number: 0, kind: END, reserved: 0 }
}

/// Where to write: right behind the last write of the program to that file.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_after_last() -> weldfs_value {
    weldfs_value { number: 0, kind: AFTER, reserved: 0 }
}

fn at(kind: u32, index: c_int) -> weldfs_place {
    weldfs_place { kind, index, width: 0, order: 0 }
}

/// What a buffer holds, or the buffer as a place to read into.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_in_buffer(buffer: c_int) -> weldfs_place {
    at(BUFFER, buffer)
}

/// A range of the caller's memory.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_in_range(range: c_int) -> weldfs_place {
    at(RANGE, range)
}

/// A register as `width` bytes (1, 2, 4 or 8); `order` is 0 or WELDFS_BIG_ENDIAN.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_in_register(register: c_int, width: u32, order: u32) -> weldfs_place {
    weldfs_place { kind: REGISTER, index: register, width, order }
}

/// For weldfs_program_read: the bytes are wanted for their number or checksum only.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_nowhere() -> weldfs_place {
    at(NOWHERE, 0)
}

impl weldfs_program {
    pub(crate) fn value(&self, value: weldfs_value) -> Result<Value, Fault> {
        match value.kind {
            NUMBER => Ok(Value::Imm(value.number)),
            HELD => Ok(Value::Reg(self.register(value.number as c_int)?)),
            _ => Err(misuse("a number or a register is wanted here")),
        }
    }

    fn place(&self, value: weldfs_value) -> Result<Place, Fault> {
        match value.kind {
            END => Ok(Place::End),
            AFTER => Ok(Place::After),
            _ => self.value(value).map(Place::At),
        }
    }

    fn bytes(&self, place: weldfs_place) -> Result<Bytes, Fault> {
        match place.kind {
            BUFFER => self.buffer(place.index).map(Bytes::Buffer),
            RANGE => self.range(place.index).map(Bytes::Pool),
            LITERAL => Ok(Bytes::Literal(Str(u8::try_from(place.index).map_err(|_| misuse("no such literal"))?))),
            REGISTER => {
                let form = int(place.width, order(place.order)?)?;
                Ok(Bytes::Int(self.register(place.index)?, form))
            }
            _ => Err(misuse("bytes are wanted here, and not nowhere")),
        }
    }

    /// A checksum taken on the way, if one is wanted.
    fn fold(&self, sum: u32, register: c_int) -> Result<Option<Fold>, Fault> {
        match self.register_or_none(register)? {
            Some(to) => Ok(Some(Fold { kind: sum_kind(sum)?, to })),
            None if sum == 0 => Ok(None),
            None => Err(misuse("a checksum without a register to put it in")),
        }
    }

    pub(crate) fn string(&mut self, from: *const c_char) -> Result<Str, Fault> {
        Ok(self.building()?.string(path(from)?.as_os_str().as_bytes()))
    }
}

/// Step: opens, perhaps creates, `name` for the rest of the program. `flags` are O_ bits; `mode` is what a new file
/// gets, with no umask applied. `created`, unless WELDFS_NONE, gets 1 if this step made the file, else 0. Returns the
/// file's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_open(
    program: Option<&mut weldfs_program>,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    created: c_int,
) -> c_int {
    count("weldfs_program_open", || {
        let program = given(program)?;
        let (created, flags) = (program.register_or_none(created)?, OpenFlags::from_linux(flags));
        let (path, file) = (program.string(name)?, program.new_file()?);
        let mode = (mode & 0o7777) as u16;
        program.push(Micro::Open { file, base: Handle::ROOT, path, flags, mode, created })?;
        Ok(file.0.into())
    }) as c_int
}

/// Step: takes an open file; `access` is O_RDONLY, O_WRONLY or O_RDWR, which it must have been opened for. Returns its
/// number in the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_use(
    program: Option<&mut weldfs_program>,
    file: Option<&weldfs_file>,
    access: c_int,
) -> c_int {
    count("weldfs_program_use", || {
        let (program, opened) = (given(program)?, &given(file)?.file);
        let need = match access {
            libc::O_RDONLY => Access::READ,
            libc::O_WRONLY => Access::WRITE,
            libc::O_RDWR => Access::READ | Access::WRITE,
            _ => return Err(misuse("access is O_RDONLY, O_WRONLY or O_RDWR")),
        };
        program.of_session(opened.session())?;
        let file = program.new_file()?;
        program.push(Micro::Use { file, h: opened.handle(), need })?;
        Ok(file.0.into())
    }) as c_int
}

/// weldfs_program_read: fewer bytes than asked for are an error, -ENODATA.
pub const WELDFS_WHOLE: u32 = 1;
/// weldfs_program_read: a buffer gets all the bytes asked for, zeros past the end of the file.
pub const WELDFS_PAD: u32 = 2;

/// Step: reads `len` bytes from `offset` into a buffer, a range or nowhere; fewer at the end of the file. `flags` is
/// WELDFS_WHOLE, WELDFS_PAD or 0. `sum_to`, unless WELDFS_NONE, gets the checksum `sum` (WELDFS_CRC32C and kin) of the
/// bytes read; `count_to`, unless WELDFS_NONE, their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_read(
    program: Option<&mut weldfs_program>,
    file: c_int,
    offset: weldfs_value,
    len: weldfs_value,
    into: weldfs_place,
    flags: u32,
    sum: u32,
    sum_to: c_int,
    count_to: c_int,
) -> c_int {
    call("weldfs_program_read", || {
        let program = given(program)?;
        if flags & !(WELDFS_WHOLE | WELDFS_PAD) != 0 {
            return Err(misuse("no such flag"));
        }
        let count = program.register_or_none(count_to)?;
        let to = match program.bytes(into) {
            _ if into.kind == NOWHERE => To::Nowhere,
            Ok(Bytes::Buffer(buffer)) => To::Buffer(buffer),
            Ok(Bytes::Pool(range)) => {
                program.counts(range, count);
                To::Pool(range)
            }
            Ok(_) => return Err(misuse("a step reads into a buffer, a range or nowhere")),
            Err(e) => return Err(e),
        };
        let (file, fold) = (program.file(file)?, program.fold(sum, sum_to)?);
        let (off, len) = (program.value(offset)?, program.value(len)?);
        let (whole, pad) = (flags & WELDFS_WHOLE != 0, flags & WELDFS_PAD != 0);
        program.push(Micro::Read { file, off, len, to, whole, pad, fold, count })
    })
}

/// Step: writes bytes at `offset` (a number or register, weldfs_at_end, weldfs_after_last). `sum_to`, unless
/// WELDFS_NONE, gets the checksum `sum` of the bytes stored; `where_to`, unless WELDFS_NONE, where the first of them
/// went.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_write(
    program: Option<&mut weldfs_program>,
    file: c_int,
    offset: weldfs_value,
    from: weldfs_place,
    sum: u32,
    sum_to: c_int,
    where_to: c_int,
) -> c_int {
    call("weldfs_program_write", || {
        let program = given(program)?;
        let (file, place, from) = (program.file(file)?, program.place(offset)?, program.bytes(from)?);
        let (fold, at) = (program.fold(sum, sum_to)?, program.register_or_none(where_to)?);
        program.push(Micro::Write { file, place, from, fold, at })
    })
}

/// Step: puts the size of a file, bytes, in a register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_size(
    program: Option<&mut weldfs_program>,
    file: c_int,
    register: c_int,
) -> c_int {
    call("weldfs_program_size", || {
        let program = given(program)?;
        let (file, to) = (program.file(file)?, program.register(register)?);
        program.push(Micro::Size { file, to })
    })
}

/// Step: sets the size of a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_truncate(
    program: Option<&mut weldfs_program>,
    file: c_int,
    bytes: weldfs_value,
) -> c_int {
    call("weldfs_program_truncate", || {
        let program = given(program)?;
        let (file, size) = (program.file(file)?, program.value(bytes)?);
        program.push(Micro::Truncate { file, size })
    })
}

/// Step: gives a file up; its number means nothing afterwards. The end of the program does that, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_close(program: Option<&mut weldfs_program>, file: c_int) -> c_int {
    call("weldfs_program_close", || {
        let program = given(program)?;
        let file = program.file(file)?;
        program.push(Micro::Close { file })
    })
}

/// Step: makes the whole command durable, whatever the run says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_sync(program: Option<&mut weldfs_program>) -> c_int {
    call("weldfs_program_sync", || given(program)?.push(Micro::Sync))
}

/// Step: copies `len` bytes from `offset` of one file to another; fewer where the source ends. `to_offset` as for
/// weldfs_program_write. `max`: 0 when `len` is a number; else at most so many bytes, a multiple of 64 KiB, and -E2BIG
/// when the register holds more. `count_to`, unless WELDFS_NONE, gets the bytes copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_copy(
    program: Option<&mut weldfs_program>,
    from: c_int,
    offset: weldfs_value,
    len: weldfs_value,
    max: u32,
    to: c_int,
    to_offset: weldfs_value,
    count_to: c_int,
) -> c_int {
    call("weldfs_program_copy", || {
        let program = given(program)?;
        let (from, to, place) = (program.file(from)?, program.file(to)?, program.place(to_offset)?);
        let (off, len) = (program.value(offset)?, program.value(len)?);
        let count = program.register_or_none(count_to)?;
        program.push(Micro::CopyRange { from, off, len, max, to, place, count })
    })
}

/// Step: walks over the records of a log as weldfs_log_recover does. `offsets`, unless WELDFS_NONE, is a range for
/// where the good ones begin, 8 bytes each, little-endian. The registers, unless WELDFS_NONE, get the number of good
/// records, where the last ends, and why the walk ended: 0 at the end, 1 a record that is cut, 2 a wrong checksum, 3 no
/// more room for offsets, 4 a head of zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_scan(
    program: Option<&mut weldfs_program>,
    file: c_int,
    offset: weldfs_value,
    len: weldfs_value,
    format: Option<&weldfs_log_format>,
    offsets: c_int,
    count_to: c_int,
    end_to: c_int,
    why_to: c_int,
) -> c_int {
    call("weldfs_program_scan", || {
        let program = given(program)?;
        let (file, record) = (program.file(file)?, log_record(given(format)?)?);
        let (off, len) = (program.value(offset)?, program.value(len)?);
        let offsets = if offsets == WELDFS_NONE { None } else { Some(program.range(offsets)?) };
        let count = program.register_or_none(count_to)?;
        let (end, why) = (program.register_or_none(end_to)?, program.register_or_none(why_to)?);
        program.push(Micro::Scan { file, off, len, record, offsets, count, end, why })
    })
}

/// Step: puts the checksum `sum` (WELDFS_CRC32C and kin) of bytes in a register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_checksum(
    program: Option<&mut weldfs_program>,
    sum: u32,
    of: weldfs_place,
    register: c_int,
) -> c_int {
    call("weldfs_program_checksum", || {
        let program = given(program)?;
        let (kind, of, to) = (sum_kind(sum)?, program.bytes(of)?, program.register(register)?);
        program.push(Micro::Checksum { kind, of, to })
    })
}

/// Step: changes what a buffer holds from `offset` on: WELDFS_PATCH, WELDFS_AND, WELDFS_OR, WELDFS_XOR with `operand`,
/// or WELDFS_COMPARE_SWAP: `operand` in place of `expect`, else -ECANCELED (`expect` is weldfs_nowhere() for the
/// others). -ERANGE when the buffer ends before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_change(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    offset: weldfs_value,
    change: c_int,
    operand: weldfs_place,
    expect: weldfs_place,
) -> c_int {
    call("weldfs_program_change", || {
        let program = given(program)?;
        let (buf, off, bytes) = (program.buffer(buffer)?, program.value(offset)?, program.bytes(operand)?);
        if (change == WELDFS_COMPARE_SWAP) == (expect.kind == NOWHERE) {
            return Err(misuse("expect is for WELDFS_COMPARE_SWAP, and for it alone"));
        }
        let change = match change {
            WELDFS_PATCH => Change::Patch(bytes),
            WELDFS_AND => Change::And(bytes),
            WELDFS_OR => Change::Or(bytes),
            WELDFS_XOR => Change::Xor(bytes),
            WELDFS_COMPARE_SWAP => Change::CompareSwap { expect: program.bytes(expect)?, new: bytes },
            _ => return Err(misuse("no such change")),
        };
        program.push(Micro::Change { buf, off, change })
    })
}

/// Step: adds, wrapping, to the number of `width` bytes (1, 2, 4 or 8) that lies in a buffer at `offset`; `order` is 0
/// or WELDFS_BIG_ENDIAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_add(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    offset: weldfs_value,
    width: u32,
    order: u32,
    by: weldfs_value,
) -> c_int {
    call("weldfs_program_add", || {
        let program = given(program)?;
        let form = int(width, self::order(order)?)?;
        let (buf, off, by) = (program.buffer(buffer)?, program.value(offset)?, program.value(by)?);
        program.push(Micro::Change { buf, off, change: Change::Add(form, by) })
    })
}

/// Step: puts the number of `width` bytes that lies in a buffer at `offset` in a register. `order` as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_load(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    offset: weldfs_value,
    width: u32,
    order: u32,
    register: c_int,
) -> c_int {
    call("weldfs_program_load", || {
        let program = given(program)?;
        let int = int(width, self::order(order)?)?;
        let (buf, off, to) = (program.buffer(buffer)?, program.value(offset)?, program.register(register)?);
        program.push(Micro::Load { to, buf, off, int })
    })
}

/// weldfs_program_compute: a + b. All of these are on 64 bits without sign, wrapping.
pub const WELDFS_PLUS: c_int = 0;
/// weldfs_program_compute: a - b.
pub const WELDFS_MINUS: c_int = 1;
/// weldfs_program_compute: a * b.
pub const WELDFS_TIMES: c_int = 2;
/// weldfs_program_compute: a and b, bit by bit.
pub const WELDFS_BIT_AND: c_int = 3;
/// weldfs_program_compute: a or b, bit by bit.
pub const WELDFS_BIT_OR: c_int = 4;
/// weldfs_program_compute: a exclusive or b, bit by bit.
pub const WELDFS_BIT_XOR: c_int = 5;
/// weldfs_program_compute: a shifted left by b bits.
pub const WELDFS_SHIFT_LEFT: c_int = 6;
/// weldfs_program_compute: a shifted right by b bits.
pub const WELDFS_SHIFT_RIGHT: c_int = 7;
/// weldfs_program_compute: the smaller.
pub const WELDFS_MIN: c_int = 8;
/// weldfs_program_compute: the larger.
pub const WELDFS_MAX: c_int = 9;

/// Step: puts a number computed of two others in a register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_compute(
    program: Option<&mut weldfs_program>,
    register: c_int,
    a: weldfs_value,
    operation: c_int,
    b: weldfs_value,
) -> c_int {
    const ALL: [(c_int, Arith); 10] = [
        (WELDFS_PLUS, Arith::Add),
        (WELDFS_MINUS, Arith::Sub),
        (WELDFS_TIMES, Arith::Mul),
        (WELDFS_BIT_AND, Arith::And),
        (WELDFS_BIT_OR, Arith::Or),
        (WELDFS_BIT_XOR, Arith::Xor),
        (WELDFS_SHIFT_LEFT, Arith::Shl),
        (WELDFS_SHIFT_RIGHT, Arith::Shr),
        (WELDFS_MIN, Arith::Min),
        (WELDFS_MAX, Arith::Max),
    ];
    call("weldfs_program_compute", || {
        let program = given(program)?;
        let (_, op) = *ALL.iter().find(|(known, _)| *known == operation).ok_or(misuse("no such operation"))?;
        let (to, a, b) = (program.register(register)?, program.value(a)?, program.value(b)?);
        program.push(Micro::Arith { to, a, op, b })
    })
}

/// Step: puts bytes in a buffer; with `append` other than 0 behind what it holds, else in its place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_fill(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    from: weldfs_place,
    append: c_int,
) -> c_int {
    call("weldfs_program_fill", || {
        let program = given(program)?;
        let (buf, from) = (program.buffer(buffer)?, program.bytes(from)?);
        program.push(Micro::Fill { buf, from, append: append != 0 })
    })
}

/// Step: puts `len` bytes from `offset` of what `from` holds in `buffer` (perhaps the same). -ERANGE when there are
/// fewer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_slice(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    from: c_int,
    offset: weldfs_value,
    len: weldfs_value,
) -> c_int {
    call("weldfs_program_slice", || {
        let program = given(program)?;
        let (buf, from) = (program.buffer(buffer)?, program.buffer(from)?);
        let (off, len) = (program.value(offset)?, program.value(len)?);
        program.push(Micro::Slice { buf, from, off, len })
    })
}

/// Step: hands what a buffer holds to the caller, in a range. -ERANGE when that is too short. `count_to`, unless
/// WELDFS_NONE, gets the number of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_give(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    range: c_int,
    count_to: c_int,
) -> c_int {
    call("weldfs_program_give", || {
        let program = given(program)?;
        let (buf, to): (_, Pool) = (program.buffer(buffer)?, program.range(range)?);
        let count: Option<Reg> = program.register_or_none(count_to)?;
        program.counts(to, count);
        program.push(Micro::Give { buf, to, count })
    })
}

/// Step: puts the number of bytes that a buffer holds in a register.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_length(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    register: c_int,
) -> c_int {
    call("weldfs_program_length", || {
        let program = given(program)?;
        let (buf, to) = (program.buffer(buffer)?, program.register(register)?);
        program.push(Micro::Length { buf, to })
    })
}

/// What weldfs_program_transform does: compress, with `codec`.
pub const WELDFS_COMPRESS: c_int = 0;
/// What weldfs_program_transform does: decompress, with `codec`; -EBADMSG when the bytes are not of the format.
pub const WELDFS_DECOMPRESS: c_int = 1;

/// Step: puts in `buffer` what a codec makes of what `from` holds; -E2BIG when it has no room for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_transform(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    from: c_int,
    what: c_int,
    codec: u32,
) -> c_int {
    call("weldfs_program_transform", || {
        let program = given(program)?;
        let (buf, from, codec) = (program.buffer(buffer)?, program.buffer(from)?, self::codec(codec)?);
        let how = match what {
            WELDFS_COMPRESS => Transform::Compress(codec),
            WELDFS_DECOMPRESS => Transform::Decompress(codec),
            _ => return Err(misuse("compress or decompress")),
        };
        program.push(Micro::Transform { buf, from, how })
    })
}

/// Step: puts in `buffer` what the kernel `name` makes of what `from` holds, in an FPGA slot. `params`, of `count`
/// elements, are its parameters: numbers of 32 bits, or registers, of which the low 32 bits are meant (among the first
/// 64). The buffer's size says how long the output may be.
///
/// Errors of the step when it runs: -ENOENT (no kernel is called so), -EINVAL (its parameters), -EBADMSG (the bytes are
/// not what it takes), -E2BIG (more output than there is room for), -EIO (the slot was lost), -EOPNOTSUPP (no slots).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_kernel(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    from: c_int,
    name: *const c_char,
    params: *const weldfs_value,
    count: usize,
) -> c_int {
    call("weldfs_program_kernel", || {
        let program = given(program)?;
        let (buf, from) = (program.buffer(buffer)?, program.buffer(from)?);
        let name = text(name)?.to_str().map_err(|_| misuse("the name of a kernel is not UTF-8"))?;
        let params = array(params, count)?.iter().map(|v| program.value(*v)).collect::<Result<Vec<_>, _>>()?;
        program.kernel(name, &params, from, buf)
    })
}

/// What weldfs_program_cipher does: encrypt.
pub const WELDFS_ENCRYPT: c_int = 0;
/// What weldfs_program_cipher does: decrypt; of records -EBADMSG when they were changed.
pub const WELDFS_DECRYPT: c_int = 1;

/// Step: puts in `buffer` the ciphertext (or plaintext) of what `from` holds, which may not be the same buffer. `unit`
/// 0: a record, with a GCM key; `bound` are bytes that its tag covers besides (no range; weldfs_nowhere(): none), and
/// `first` is weldfs_number(0). Else data units of `unit` bytes, with an XTS key; `first` is the number of the first of
/// them: its offset divided by `unit`. The key must not be given back before the last run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_cipher(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    from: c_int,
    what: c_int,
    key: Option<&weldfs_key>,
    unit: u32,
    first: weldfs_value,
    bound: weldfs_place,
) -> c_int {
    call("weldfs_program_cipher", || {
        let (program, key) = (given(program)?, given(key)?);
        let (buf, from) = (program.buffer(buffer)?, program.buffer(from)?);
        program.of_session(key.session())?;
        let first = program.value(first)?;
        let bound = if bound.kind == NOWHERE { None } else { Some(program.bytes(bound)?) };
        if unit != 0 && (!unit.is_power_of_two() || bound.is_some()) || unit == 0 && first != Value::Imm(0) {
            return Err(misuse("data units have a power of two of bytes and nothing bound, a record has no number"));
        }
        let (key, unit_log) = (key.name(), unit.checked_ilog2().unwrap_or(0) as u8);
        let how = match (what, unit) {
            (WELDFS_ENCRYPT, 0) => Transform::Seal { key, bound },
            (WELDFS_DECRYPT, 0) => Transform::Open { key, bound },
            (WELDFS_ENCRYPT, _) => Transform::EncryptUnits { key, unit_log, first },
            (WELDFS_DECRYPT, _) => Transform::DecryptUnits { key, unit_log, first },
            _ => return Err(misuse("encrypt or decrypt")),
        };
        program.push(Micro::Transform { buf, from, how })
    })
}

/// Relation of a guard: a == b, without sign like all of them.
pub const WELDFS_EQUAL: c_int = 0;
/// Relation of a guard: a != b.
pub const WELDFS_NOT_EQUAL: c_int = 1;
/// Relation of a guard: a < b.
pub const WELDFS_LESS: c_int = 2;
/// Relation of a guard: a <= b.
pub const WELDFS_AT_MOST: c_int = 3;
/// Relation of a guard: a > b.
pub const WELDFS_GREATER: c_int = 4;
/// Relation of a guard: a >= b.
pub const WELDFS_AT_LEAST: c_int = 5;

/// When a guard does not hold: the program fails with the errno given, 1 to 4095.
pub const WELDFS_ELSE_FAIL: c_int = 0;
/// When a guard does not hold: the program is over, and went well.
pub const WELDFS_ELSE_END: c_int = 1;
/// When a guard does not hold: so many of the following steps are passed by.
pub const WELDFS_ELSE_SKIP: c_int = 2;

fn otherwise(what: c_int, number: c_int) -> Result<Else, Fault> {
    match (what, number) {
        (WELDFS_ELSE_FAIL, 1..=4095) => Ok(Else::Fail(Errno(number))),
        (WELDFS_ELSE_END, 0) => Ok(Else::End),
        (WELDFS_ELSE_SKIP, 1..=15) => Ok(Else::Skip(number as u8)),
        _ => Err(misuse("a guard fails with an errno, ends (0), or skips 1 to 15 steps")),
    }
}

/// Step, a guard: goes on if `a` stands in `relation` to `b`: a checksum, a number of bytes read, whether a file was
/// created. Else what `otherwise` says, with its errno or number of steps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_guard(
    program: Option<&mut weldfs_program>,
    a: weldfs_value,
    relation: c_int,
    b: weldfs_value,
    otherwise: c_int,
    number: c_int,
) -> c_int {
    const ALL: [(c_int, Relation); 6] = [
        (WELDFS_EQUAL, Relation::Eq),
        (WELDFS_NOT_EQUAL, Relation::Ne),
        (WELDFS_LESS, Relation::Lt),
        (WELDFS_AT_MOST, Relation::Le),
        (WELDFS_GREATER, Relation::Gt),
        (WELDFS_AT_LEAST, Relation::Ge),
    ];
    call("weldfs_program_guard", || {
        let program = given(program)?;
        let (_, relation) = *ALL.iter().find(|(known, _)| *known == relation).ok_or(misuse("no such relation"))?;
        let cond = Cond::Compare(program.value(a)?, relation, program.value(b)?);
        let otherwise = self::otherwise(otherwise, number)?;
        program.push(Micro::Guard { cond, otherwise })
    })
}

/// Step, a guard: goes on if a buffer holds these bytes at `offset`. Else as weldfs_program_guard.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_program_guard_holds(
    program: Option<&mut weldfs_program>,
    buffer: c_int,
    offset: weldfs_value,
    bytes: weldfs_place,
    otherwise: c_int,
    number: c_int,
) -> c_int {
    call("weldfs_program_guard_holds", || {
        let program = given(program)?;
        let (buf, off, bytes) = (program.buffer(buffer)?, program.value(offset)?, program.bytes(bytes)?);
        let otherwise = self::otherwise(otherwise, number)?;
        program.push(Micro::Guard { cond: Cond::Holds { buf, off, bytes }, otherwise })
    })
}
