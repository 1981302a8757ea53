//! What crosses the border to C: errors, panics, strings, buffers, structures with a size.
//!
//! The helpers here trust their callers, the `extern "C"` functions of this crate, to pass on a C caller's own
//! arguments; that those are what the header says is the C caller's promise.

use crate::types::{
    WELDFS_AFTER_DURABLE, WELDFS_ALL_OR_NOTHING, WELDFS_ON_DEVICE, WELDFS_ON_HOST, WELDFS_STEP_BY_STEP,
};
use libc::{c_char, c_int, c_void};
use std::cell::Cell;
use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use weldfs::{Durability, Errno, Placement, Raw, TxnMode};
use weldfs_ciscops::limits::PATH_MAX;

const PLACEMENT: u32 = WELDFS_ON_DEVICE | WELDFS_ON_HOST;
const MODE: u32 = WELDFS_ALL_OR_NOTHING | WELDFS_STEP_BY_STEP;

impl Fault {
    /// What the verifier says of a program.
    pub(crate) fn of_program(fault: weldfs_ciscops::program::Fault) -> Fault {
        Fault { errno: fault.errno, why: fault.why }
    }
}

/// Why a call failed, with a detail where the errno alone would leave one guessing.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    errno: Errno,
    why: &'static str,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault { errno, why: "" }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Errno(error.raw_os_error().unwrap_or(Errno::IO.0)).into()
    }
}

/// A misuse of the interface.
pub(crate) fn misuse(why: &'static str) -> Fault {
    Fault { errno: Errno::INVAL, why }
}

#[derive(Clone, Copy)]
struct Failure {
    function: &'static str,
    fault: Fault,
}

thread_local! {
    /// The last failure of a call by this thread.
    static LAST: Cell<Option<Failure>> = const { Cell::new(None) };
    /// Its sentence, NUL-terminated, as last asked for.
    static SENTENCE: Cell<[u8; 256]> = const { Cell::new([0; 256]) };
}

/// Runs a call whose result is a number.
pub(crate) fn count(function: &'static str, body: impl FnOnce() -> Result<i64, Fault>) -> i64 {
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(n)) => return n,
        Ok(Err(fault)) => fault,
        Err(_) => Fault { errno: Errno(libc::ENOTRECOVERABLE), why: "a bug in the library, reported on stderr" },
    };
    // Late in a thread's life there is nowhere to keep it.
    let _ = LAST.try_with(|last| last.set(Some(Failure { function, fault })));
    -i64::from(fault.errno.0.max(1))
}

/// Runs a call that succeeds with 0.
pub(crate) fn call(function: &'static str, body: impl FnOnce() -> Result<(), Fault>) -> c_int {
    count(function, || body().map(|()| 0)) as c_int
}

/// The sentence about the last failure.
pub(crate) fn last_error() -> *const c_char {
    let text = match LAST.try_with(Cell::get).ok().flatten() {
        None => "no error".to_owned(),
        Some(Failure { function, fault }) => {
            let mut text = format!("{function}: {}", fault.errno);
            if !fault.why.is_empty() {
                let _ = write!(text, ": {}", fault.why);
            }
            text
        }
    };
    let kept = SENTENCE.try_with(|sentence| {
        let mut bytes = [0; 256];
        let n = text.len().min(bytes.len() - 1);
        bytes[..n].copy_from_slice(&text.as_bytes()[..n]);
        sentence.set(bytes);
        sentence.as_ptr().cast_const().cast()
    });
    kept.unwrap_or(c"no error".as_ptr())
}

/// A reference that must not be NULL.
pub(crate) fn given<T>(value: Option<T>) -> Result<T, Fault> {
    value.ok_or(misuse("an argument is NULL that must not be"))
}

/// A string that must not be NULL.
pub(crate) fn text<'a>(from: *const c_char) -> Result<&'a CStr, Fault> {
    if from.is_null() {
        return Err(misuse("a string is NULL"));
    }
    // SAFETY: not NULL, so by the header a string that ends in NUL and stays as it is during the call.
    Ok(unsafe { CStr::from_ptr(from) })
}

/// A path.
pub(crate) fn path<'a>(from: *const c_char) -> Result<&'a Path, Fault> {
    let bytes = text(from)?.to_bytes();
    if bytes.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Bytes to read. NULL is allowed for none.
pub(crate) fn bytes<'a>(from: *const c_void, len: usize) -> Result<&'a [u8], Fault> {
    if len == 0 {
        return Ok(&[]);
    }
    check(from, len)?;
    // SAFETY: not NULL and of a possible length, so by the header readable bytes that stay as they are during the call.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), len) })
}

/// Room to fill. NULL is allowed for none. It may hold anything; it is only written to.
pub(crate) fn room<'a>(into: *mut c_void, len: usize) -> Result<&'a mut [u8], Fault> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(into, len)?;
    // SAFETY: not NULL and of a possible length, so by the header writable bytes that nobody else uses during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(into.cast(), len) })
}

fn check(at: *const c_void, len: usize) -> Result<(), Fault> {
    if at.is_null() {
        return Err(misuse("a buffer is NULL and its length is not 0"));
    }
    if len > isize::MAX as usize {
        return Err(misuse("a length no buffer can have"));
    }
    Ok(())
}

/// Puts a result where the caller wants it; NULL: it does not.
pub(crate) fn put<T>(into: *mut T, value: T) {
    if !into.is_null() {
        // SAFETY: not NULL, so by the header room for one `T`, aligned, that nobody else uses during the call.
        unsafe { into.write(value) };
    }
}

/// Puts a result where the caller wants it, and must.
pub(crate) fn give<T>(into: *mut T, value: impl FnOnce() -> Result<T, Fault>) -> Result<(), Fault> {
    if into.is_null() {
        return Err(misuse("where to put the result is NULL"));
    }
    put(into, value()?);
    Ok(())
}

/// A structure whose first field is its size in bytes, as its maker knew it. NULL: the default. An older program's is
/// shorter: what it lacks is zero. A newer program's is longer: what this library does not know must be zero (E2BIG).
pub(crate) fn sized<T: zerocopy::FromZeros>(from: *const T, smallest: usize) -> Result<T, Fault> {
    let mut known = T::new_zeroed();
    if from.is_null() {
        return Ok(known);
    }
    // SAFETY: not NULL, so by the header a structure that begins with its size and has so many bytes.
    let given = unsafe {
        let size = from.cast::<usize>().read();
        if size < smallest || size > 4096 {
            return Err(misuse("the size of a structure is not one"));
        }
        std::slice::from_raw_parts(from.cast::<u8>(), size)
    };
    let n = given.len().min(size_of::<T>());
    if given[n..].iter().any(|byte| *byte != 0) {
        return Err(Fault { errno: Errno::TOOBIG, why: "a structure asks for what this library does not know" });
    }
    // SAFETY: `n` bytes fit both; every bit pattern is a valid `T`, for its pointers are not followed unchecked.
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut known).cast::<u8>(), n) };
    Ok(known)
}

/// Two of something behind a pointer; NULL: none.
pub(crate) fn pair<T: Copy>(from: *const T) -> Option<[T; 2]> {
    // SAFETY: not NULL, so by the header two of them, aligned, that stay as they are during the call.
    (!from.is_null()).then(|| unsafe { from.cast::<[T; 2]>().read() })
}

/// A durability by its number.
pub(crate) fn durability(number: u32) -> Result<Durability, Fault> {
    match number {
        0 => Ok(Durability::Default),
        1 => Ok(Durability::Volatile),
        2 => Ok(Durability::Durable),
        _ => Err(misuse("no such durability")),
    }
}

/// How a call of the catalogue, a batch, a transaction or a program runs: durability, placement, transaction mode.
#[derive(Clone, Copy)]
pub(crate) struct How {
    durability: Durability,
    placement: Placement,
    mode: TxnMode,
    after_durable: bool,
}

impl How {
    pub(crate) fn new(bits: u32) -> Result<How, Fault> {
        let placement = match bits & PLACEMENT {
            0 => Placement::Auto,
            WELDFS_ON_DEVICE => Placement::Device,
            WELDFS_ON_HOST => Placement::Host,
            _ => return Err(misuse("a call runs on the device or on the host")),
        };
        let mode = match bits & MODE {
            0 => TxnMode::Default,
            WELDFS_ALL_OR_NOTHING => TxnMode::Macro,
            WELDFS_STEP_BY_STEP => TxnMode::Micro,
            _ => return Err(misuse("all or nothing, or step by step")),
        };
        let durability = durability(bits & !(PLACEMENT | MODE | WELDFS_AFTER_DURABLE))?;
        Ok(How { durability, placement, mode, after_durable: bits & WELDFS_AFTER_DURABLE != 0 })
    }

    pub(crate) fn of<'c>(self, raw: Raw<'c>) -> Raw<'c> {
        let raw = raw.placement(self.placement).mode(self.mode);
        let raw = if self.after_durable { raw.after_durable() } else { raw };
        match self.durability {
            Durability::Default => raw,
            chosen => raw.durability(chosen),
        }
    }
}

/// `count` of something that a C program has in an array; NULL is allowed for none.
pub(crate) fn array<'a, T>(from: *const T, count: usize) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    check(from.cast(), count.saturating_mul(size_of::<T>()))?;
    // SAFETY: not NULL and of a possible length, so by the header so many of them, aligned, that stay as they are
    // during the call.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// The same to be filled in.
pub(crate) fn array_mut<'a, T>(into: *mut T, count: usize) -> Result<&'a mut [T], Fault> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(into.cast(), count.saturating_mul(size_of::<T>()))?;
    // SAFETY: as in `array`, and nobody else uses them during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(into, count) })
}

/// An object handed to the caller, who gives it back to `take`.
pub(crate) fn hand_out<T>(into: *mut *mut T, make: impl FnOnce() -> Result<T, Fault>) -> Result<(), Fault> {
    if into.is_null() {
        return Err(misuse("where to put the result is NULL"));
    }
    put(into, std::ptr::null_mut());
    put(into, Box::into_raw(Box::new(make()?)));
    Ok(())
}

/// A function's room for text: as much as fits with its NUL, and the length of all of it.
pub(crate) fn copy_text(from: &[u8], into: *mut c_char, size: usize) -> Result<i64, Fault> {
    let room = room(into.cast(), size)?;
    if let Some(last) = room.len().checked_sub(1) {
        let n = from.len().min(last);
        room[..n].copy_from_slice(&from[..n]);
        room[n] = 0;
    }
    Ok(from.len() as i64)
}
