//! What crosses the border to C: errors, panics, strings, buffers, structures with a size.
//!
//! The helpers here trust their callers, the `extern "C"` functions of this crate, to pass on a C caller's own
//! arguments; that those are what the header says is the C caller's promise.

use crate::types::{
    WELDFS_AFTER_DURABLE, WELDFS_ALL_OR_NOTHING, WELDFS_IN_SLOT, WELDFS_ON_DEVICE, WELDFS_ON_HOST, WELDFS_OR_CORE,
    WELDFS_STEP_BY_STEP,
};
use libc::{c_char, c_int, c_void};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use weldfs::{Durability, Errno, Hints, Placement, Raw, TxnMode};
use weldfs_ciscops::limits::PATH_MAX;

const PLACEMENT: u32 = WELDFS_IN_SLOT | WELDFS_OR_CORE;
const SLOT_OR_CORE: u32 = WELDFS_IN_SLOT | WELDFS_OR_CORE;
const MODE: u32 = WELDFS_ALL_OR_NOTHING | WELDFS_STEP_BY_STEP;
/// Where hints lie in a `how`: as in an SQE's flags.
const HINTS_SHIFT: u32 = 10;
/// Bits of hints.
pub(crate) const HINTS: u32 = 0x1f << HINTS_SHIFT;

/// Why a call failed, with a detail where the errno alone would leave one guessing.
#[derive(Clone)]
pub(crate) struct Fault {
    errno: Errno,
    why: Cow<'static, str>,
}

impl Fault {
    /// An errno with a detail.
    pub(crate) fn new(errno: Errno, why: impl Into<Cow<'static, str>>) -> Fault {
        Fault { errno, why: why.into() }
    }

    /// What the verifier says of a program.
    pub(crate) fn of_program(fault: weldfs_ciscops::program::Fault) -> Fault {
        match fault.micro {
            Some(micro) => Fault::new(fault.errno, format!("step {}: {}", micro + 1, fault.why)),
            None => Fault::new(fault.errno, fault.why),
        }
    }

    /// The same fault, told to be that of one of several: "item 3".
    pub(crate) fn of_one(self, what: &str, index: usize) -> Fault {
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        Fault::new(self.errno, format!("{what} {index}{why}"))
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault { errno, why: Cow::Borrowed("") }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Errno(error.raw_os_error().unwrap_or(Errno::IO.0)).into()
    }
}

/// A misuse of the interface.
pub(crate) fn misuse(why: impl Into<Cow<'static, str>>) -> Fault {
    Fault::new(Errno::INVAL, why)
}

/// What is being done: a function of the interface, and the names that it was given, which a failure tells of.
#[derive(Clone, Copy)]
pub(crate) struct Doing {
    function: &'static str,
    names: [*const c_char; 2],
}

impl From<&'static str> for Doing {
    fn from(function: &'static str) -> Doing {
        Doing { function, names: [std::ptr::null(); 2] }
    }
}

/// A function that was given a name.
pub(crate) fn on(function: &'static str, name: *const c_char) -> Doing {
    Doing { function, names: [name, std::ptr::null()] }
}

/// A function that was given two names.
pub(crate) fn on_both(function: &'static str, first: *const c_char, second: *const c_char) -> Doing {
    Doing { function, names: [first, second] }
}

/// Bytes of a name that are kept for a failure's sentence.
const NAME_KEPT: usize = 200;
/// Bytes of the sentence, with its NUL.
const SENTENCE_MAX: usize = 1024;

/// The beginning of a name, kept without allocating: calls fail often and for good reasons, such as ENOENT.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME_KEPT],
    /// Of all of it.
    len: usize,
}

impl Name {
    fn of(from: *const c_char) -> Option<Name> {
        let whole = text(from).ok()?.to_bytes();
        let mut bytes = [0; NAME_KEPT];
        let n = whole.len().min(NAME_KEPT);
        bytes[..n].copy_from_slice(&whole[..n]);
        Some(Name { bytes, len: whole.len() })
    }

    /// In quotes, with what is not printable escaped.
    fn said(&self) -> String {
        let kept = String::from_utf8_lossy(&self.bytes[..self.len.min(NAME_KEPT)]);
        let rest = if self.len > NAME_KEPT { "..." } else { "" };
        format!("{kept:?}{rest}")
    }
}

struct Failure {
    function: &'static str,
    names: [Option<Name>; 2],
    fault: Fault,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names.iter().flatten().map(Name::said).collect();
        let names = if names.is_empty() { String::new() } else { format!("({})", names.join(", ")) };
        write!(f, "{}{names}: {}", self.function, self.fault.errno)?;
        if !self.fault.why.is_empty() {
            write!(f, ": {}", self.fault.why)?;
        }
        Ok(())
    }
}

thread_local! {
    /// The last failure of a call by this thread.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    /// Its sentence, NUL-terminated, as last asked for.
    static SENTENCE: Cell<[u8; SENTENCE_MAX]> = const { Cell::new([0; SENTENCE_MAX]) };
}

/// Runs a call whose result is a number.
pub(crate) fn count(doing: impl Into<Doing>, body: impl FnOnce() -> Result<i64, Fault>) -> i64 {
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(n)) => return n,
        Ok(Err(fault)) => fault,
        Err(_) => Fault::new(Errno(libc::ENOTRECOVERABLE), "a bug in the library, reported on stderr"),
    };
    let errno = fault.errno;
    let Doing { function, names } = doing.into();
    // Late in a thread's life there is nowhere to keep it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some(Failure { function, names: names.map(Name::of), fault }));
    -i64::from(errno.0.max(1))
}

/// Runs a call that succeeds with 0.
pub(crate) fn call(doing: impl Into<Doing>, body: impl FnOnce() -> Result<(), Fault>) -> c_int {
    count(doing, || body().map(|()| 0)) as c_int
}

/// The sentence about the last failure.
pub(crate) fn last_error() -> *const c_char {
    let said = LAST.try_with(|last| last.borrow().as_ref().map(Failure::to_string));
    let text = said.ok().flatten().unwrap_or_else(|| "no error".to_owned());
    let kept = SENTENCE.try_with(|sentence| {
        let mut bytes = [0; SENTENCE_MAX];
        let mut n = text.len().min(bytes.len() - 1);
        while !text.is_char_boundary(n) {
            n -= 1;
        }
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
    // SAFETY: not NULL and of a possible length, so by the header writable bytes without another user during the call.
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
        // SAFETY: not NULL, so by the header room for one `T`, aligned, that nothing else uses during the call.
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
        return Err(Fault::new(Errno::TOOBIG, "a structure asks for what this library does not know"));
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

/// Hints, and nothing else.
pub(crate) fn hinted(bits: u32) -> Result<Hints, Fault> {
    let known = u16::try_from(bits >> HINTS_SHIFT).ok().and_then(Hints::from_wire);
    known.filter(|_| bits & !HINTS == 0).ok_or_else(|| misuse("no such hints"))
}

/// How a call of the catalogue, a batch, a transaction or a program runs: durability, placement, transaction mode.
#[derive(Clone, Copy)]
pub(crate) struct How {
    durability: Durability,
    placement: Placement,
    mode: TxnMode,
    after_durable: bool,
    hints: Hints,
}

impl How {
    pub(crate) fn new(bits: u32) -> Result<How, Fault> {
        let placement = match bits & PLACEMENT {
            0 => Placement::Auto,
            WELDFS_ON_DEVICE => Placement::Device,
            WELDFS_ON_HOST => Placement::Host,
            WELDFS_IN_SLOT => Placement::Slot,
            SLOT_OR_CORE => Placement::SlotOrCore,
            _ => return Err(misuse("only what runs in a slot may run on a core instead")),
        };
        let mode = match bits & MODE {
            0 => TxnMode::Default,
            WELDFS_ALL_OR_NOTHING => TxnMode::Macro,
            WELDFS_STEP_BY_STEP => TxnMode::Micro,
            _ => return Err(misuse("all or nothing, or step by step")),
        };
        let durability = durability(bits & !(PLACEMENT | MODE | WELDFS_AFTER_DURABLE | HINTS))?;
        let hints = hinted(bits & HINTS)?;
        Ok(How { durability, placement, mode, after_durable: bits & WELDFS_AFTER_DURABLE != 0, hints })
    }

    pub(crate) fn of<'c>(self, raw: Raw<'c>) -> Raw<'c> {
        let raw = raw.placement(self.placement).mode(self.mode);
        let raw = if self.hints.is_none() { raw } else { raw.hints(self.hints) };
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
    // SAFETY: as in `array`, and nothing else uses them during the call.
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
