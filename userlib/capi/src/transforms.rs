//! The catalogue: compression and encryption on the way to the file and back, keys, the recovery of logs.

use crate::boundary::{Fault, array_mut, bytes, call, count, give, given, hand_out, misuse, put};
use crate::client::weldfs_client;
use crate::fields::int;
use crate::file::{place, weldfs_file};
use crate::fused::{payload, space};
use crate::sums::{WELDFS_BIG_ENDIAN, meet, order, raw, sum_kind};
use libc::{c_int, c_void};
use weldfs::Errno;
use weldfs::catalogue::{Codec, Encryption, Frame, Key, KeyKind, LogRecord};

/// Codec: LZ4 frames, as the lz4 tool reads them.
pub const WELDFS_LZ4: u32 = 0;
/// Codec: Zstandard frames.
pub const WELDFS_ZSTD: u32 = 1;
/// Codec: the snappy framing format.
pub const WELDFS_SNAPPY: u32 = 2;

pub(crate) fn codec(number: u32) -> Result<Codec, Fault> {
    match number {
        WELDFS_LZ4 => Ok(Codec::Lz4),
        WELDFS_ZSTD => Ok(Codec::Zstd),
        WELDFS_SNAPPY => Ok(Codec::Snappy),
        _ => Err(misuse("no such codec")),
    }
}

/// A compressed payload in a file.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct weldfs_frame {
    /// Where it begins.
    pub offset: u64,
    /// Its bytes, which it does not say itself.
    pub len: u32,
    /// Zero.
    pub reserved: u32,
}

/// Compresses `len` bytes into one frame of `codec` and writes that at `offset` (or WELDFS_END), as one command.
/// *frame: where it lies.
///
/// Errors: -E2BIG from some 1,040,000 bytes on, -EBADF, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_compress_write(
    file: Option<&weldfs_file>,
    offset: u64,
    codec: u32,
    from: *const c_void,
    len: usize,
    how: u32,
    frame: *mut weldfs_frame,
) -> c_int {
    call("weldfs_compress_write", || {
        give(frame, || {
            let file = given(file)?;
            let (codec, data) = (self::codec(codec)?, payload(from, len)?);
            let frame = raw(file, how)?.compress_write(file.file.handle(), place(offset), codec, data)?;
            Ok(weldfs_frame { offset: frame.offset, len: frame.len, reserved: 0 })
        })
    })
}

/// Reads a frame of `codec` that has `frame_len` bytes from `offset` on, and decompresses it. Returns the bytes of
/// content put into `into`, of `size` bytes.
///
/// Errors: -E2BIG when there are more, -EBADMSG when the frame is damaged or of another format, -ENODATA when the file
/// ends within it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_decompress(
    file: Option<&weldfs_file>,
    offset: u64,
    frame_len: u32,
    codec: u32,
    into: *mut c_void,
    size: usize,
    how: u32,
) -> i64 {
    count("weldfs_read_decompress", || {
        let file = given(file)?;
        let (codec, room) = (self::codec(codec)?, space(into, size)?);
        Ok(raw(file, how)?.read_decompress(file.file.handle(), Frame { offset, len: frame_len }, codec, room)? as i64)
    })
}

/// Key: AES-128 in XTS mode, 32 bytes: the key of the data, then that of the tweak.
pub const WELDFS_XTS128: u32 = 0;
/// Key: AES-256 in XTS mode, 64 bytes: the key of the data, then that of the tweak.
pub const WELDFS_XTS256: u32 = 1;
/// Key: AES-128 in GCM mode, 16 bytes.
pub const WELDFS_GCM128: u32 = 2;
/// Key: AES-256 in GCM mode, 32 bytes.
pub const WELDFS_GCM256: u32 = 3;

/// A key that the device keeps for one session. Any number of threads may use it at the same time.
pub struct weldfs_key {
    key: Key,
}

impl weldfs_key {
    pub(crate) fn name(&self) -> u64 {
        self.key.name()
    }

    pub(crate) fn session(&self) -> u64 {
        self.key.session()
    }
}

/// Gives the device a key of `len` bytes; `kind` is a WELDFS_ constant above. Overwrite the bytes afterwards: the
/// device and the library keep copies in memory only (never in a log, a trace or on the medium), and overwrite them
/// when the key is forgotten. On success *key is to be given back with weldfs_forget_key. It works in the session it
/// was given in: after a reconnect or in a forked child calls with it give -ENOKEY.
///
/// Errors: -EINVAL for another number of bytes than the kind has, or when the halves of an XTS key are the same;
/// -EMFILE when the session has 64 of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_set_key(
    client: Option<&weldfs_client>,
    kind: u32,
    from: *const c_void,
    len: usize,
    key: *mut *mut weldfs_key,
) -> c_int {
    call("weldfs_set_key", || {
        hand_out(key, || {
            let kind = match kind {
                WELDFS_XTS128 => KeyKind::Xts128,
                WELDFS_XTS256 => KeyKind::Xts256,
                WELDFS_GCM128 => KeyKind::Gcm128,
                WELDFS_GCM256 => KeyKind::Gcm256,
                _ => return Err(misuse("no such kind of key")),
            };
            Ok(weldfs_key { key: given(client)?.client.key(kind, bytes(from, len)?)? })
        })
    })
}

/// Gives a key back, and has the device forget it; NULL does nothing. Commands in flight end with it. No other call may
/// use it at the same time or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_forget_key(key: Option<Box<weldfs_key>>) {
    call("weldfs_forget_key", || {
        drop(key);
        Ok(())
    });
}

/// How to encrypt: `unit` 0 is a record, else data units.
fn encryption(key: &weldfs_key, unit: u32) -> Encryption<'_> {
    match unit {
        0 => Encryption::Record { key: &key.key },
        unit => Encryption::Units { key: &key.key, unit },
    }
}

/// Encrypts `len` bytes and writes the ciphertext at `offset` (or WELDFS_END), as one command; plaintext and key are
/// never on the medium. *where, unless NULL: where it went.
///
/// `unit` 0: a record of its own, with a GCM key; 28 bytes longer than its plaintext, and refused when it was changed.
/// A key seals 2^32 of them, then -EKEYEXPIRED. `unit` 512, 1024, 2048 or 4096: data units of so many bytes, with an
/// XTS key; as long as the plaintext, at an offset that is a multiple of the unit, and not in a file opened with
/// O_APPEND; the last unit has 16 bytes at least. XTS hides content; it does not tell whether it was changed.
///
/// Errors: -ENOKEY (a key of another session), -EINVAL (a key for the other cipher, an offset or length as above),
/// -E2BIG, -EBADF, -ENOSPC.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_encrypt_write(
    file: Option<&weldfs_file>,
    offset: u64,
    key: Option<&weldfs_key>,
    unit: u32,
    from: *const c_void,
    len: usize,
    how: u32,
    r#where: *mut u64,
) -> c_int {
    call("weldfs_encrypt_write", || {
        let (file, key) = (given(file)?, given(key)?);
        let (cipher, data) = (encryption(key, unit), payload(from, len)?);
        let written = raw(file, how)?.encrypt_write(file.file.handle(), place(offset), cipher, data)?;
        put(r#where, written.offset);
        Ok(())
    })
}

/// Reads what weldfs_encrypt_write wrote, with the same `key` and `unit`; returns the bytes of plaintext put into
/// `into`. A record (`unit` 0): from where it begins, `len` is the plaintext's length. Data units: any bytes from any
/// offset, fewer than asked for only where the file ends.
///
/// Errors: -EBADMSG when the record was changed or the key is another, -ENODATA when the file ends within it, -ENOKEY,
/// -EINVAL, -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_decrypt(
    file: Option<&weldfs_file>,
    offset: u64,
    key: Option<&weldfs_key>,
    unit: u32,
    into: *mut c_void,
    len: usize,
    how: u32,
) -> i64 {
    count("weldfs_read_decrypt", || {
        let (file, key) = (given(file)?, given(key)?);
        let (cipher, room) = (encryption(key, unit), space(into, len)?);
        Ok(raw(file, how)?.read_decrypt(file.file.handle(), offset, cipher, room)? as i64)
    })
}

/// Reads up to `len` bytes of plaintext from `offset` of `from`, encrypts them, and writes the ciphertext at `at` (or
/// WELDFS_END) of `to`, or with data units in the same place, as one command. Returns the bytes of plaintext. *where,
/// unless NULL: where the ciphertext went. `key`, `unit` and errors as weldfs_encrypt_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_read_encrypt_write(
    from: Option<&weldfs_file>,
    offset: u64,
    len: u32,
    to: Option<&weldfs_file>,
    at: u64,
    key: Option<&weldfs_key>,
    unit: u32,
    how: u32,
    r#where: *mut u64,
) -> i64 {
    count("weldfs_read_encrypt_write", || {
        let (from, to, key) = (given(from)?, given(to)?, given(key)?);
        meet(from, to)?;
        let target = (to.file.handle(), place(at));
        let cipher = encryption(key, unit);
        let (n, went) = raw(from, how)?.read_encrypt_write(from.file.handle(), offset, len, target, cipher)?;
        put(r#where, went);
        Ok(n.into())
    })
}

/// weldfs_log_format.sum_at: the checksum lies right behind the payload.
pub const WELDFS_BEHIND: u32 = 0xffff_ffff;

/// How the records of a log lie in a file: a head of fixed length that says how long the payload behind it is, and a
/// checksum of four bytes in the head or behind the payload. A head of zeros is no record. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct weldfs_log_format {
    /// Bytes of the head, 1 to 64.
    pub head: u32,
    /// Where in the head the length of the payload is.
    pub length_at: u32,
    /// Bytes of that length: 1, 2, 4 or 8.
    pub length_width: u32,
    /// Its byte order: 0 or WELDFS_BIG_ENDIAN.
    pub length_order: u32,
    /// WELDFS_CRC32C, WELDFS_CRC32 or WELDFS_CRC32C_MASKED; with WELDFS_BIG_ENDIAN if it is stored so.
    pub sum: u32,
    /// Where in the head the checksum is, or WELDFS_BEHIND.
    pub sum_at: u32,
    /// The checksum covers the head from this byte on, and the payload; the value of `head`: the payload alone.
    pub sum_from: u32,
    /// Zero.
    pub reserved: u32,
}

pub(crate) fn log_record(format: &weldfs_log_format) -> Result<LogRecord, Fault> {
    if format.reserved != 0 {
        return Err(misuse("weldfs_log_format: a reserved field is set"));
    }
    let byte = |n: u32| u8::try_from(n).map_err(|_| misuse("weldfs_log_format: a place outside the head"));
    Ok(LogRecord {
        head: byte(format.head)?,
        len_at: byte(format.length_at)?,
        len: int(format.length_width, order(format.length_order)?)?,
        sum_at: if format.sum_at == WELDFS_BEHIND { None } else { Some(byte(format.sum_at)?) },
        sum_order: order(format.sum & WELDFS_BIG_ENDIAN)?,
        sum: sum_kind(format.sum & !WELDFS_BIG_ENDIAN)?,
        covers: byte(format.sum_from)?,
    })
}

/// Walks over the records of a log from `offset` on, over `len` bytes (at most 8 MiB, else -E2BIG) and 65,536 records,
/// and stops at the first that is cut, empty or does not match its checksum. Returns the number of good records. *end,
/// unless NULL: where the last of them ends. `offsets`, of `max` elements, gets where they begin; when it is full the
/// walk ends; NULL with `max` 0: nowhere.
///
/// With `copy` the good records are then written, one behind the other, to that file at `at` (or WELDFS_END), in the
/// same command. Errors: -EINVAL when `format` describes no record, -EBADF, -ENOSPC; -EOPNOTSUPP with WELDFS_ON_HOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_log_recover(
    file: Option<&weldfs_file>,
    offset: u64,
    len: u64,
    format: Option<&weldfs_log_format>,
    offsets: *mut u64,
    max: usize,
    copy: Option<&weldfs_file>,
    at: u64,
    how: u32,
    end: *mut u64,
) -> i64 {
    count("weldfs_log_recover", || {
        let (file, record) = (given(file)?, log_record(given(format)?)?);
        if let Some(copy) = copy {
            meet(file, copy)?;
        }
        if max > u32::MAX as usize {
            return Err(Errno::TOOBIG.into());
        }
        let copy = copy.map(|to| (to.file.handle(), place(at)));
        let offsets = array_mut(offsets, max)?;
        let found = raw(file, how)?.log_recover(file.file.handle(), (offset, len), record, offsets, copy)?;
        put(end, found.end);
        Ok(found.records as i64)
    })
}
