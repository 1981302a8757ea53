//! `sqlite3_io_methods`: pointers in, safe calls, codes out.
//!
//! What SQLite promises for every call here: the file is one that our `open` filled in and `close` has not taken, no
//! other thread is in a call on it, and operands are as `sqlite3.h` says.

use crate::abi::{File, IoMethods};
use crate::api;
use crate::code;
use crate::fault::{Done, Fault};
use crate::open::{Control, Open};
use crate::told::{NAME, told};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The pragma that asks for the device's counters.
const STATS: &[u8] = b"weldfs_stats";
/// Bytes of a sector: the device's block.
const SECTOR: c_int = 4096;

/// The methods of every file.
pub static METHODS: IoMethods = IoMethods {
    version: 3,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved,
    control,
    sector_size,
    characteristics,
    shm_map,
    shm_lock,
    shm_barrier,
    shm_unmap,
    fetch,
    unfetch,
};

/// Runs a call on the open file.
///
/// # Safety
/// `file` is as the module says.
unsafe fn on(file: *mut File, call: impl FnOnce(&mut Open) -> Done) -> c_int {
    // SAFETY: `open` put a leaked box there, which only `close` takes; calls on one file do not overlap.
    let Some(open) = (unsafe { (*file).open.as_mut() }) else { return code::IOERR };
    let (code, errno) = told(|| call(open));
    if errno != 0 {
        open.errno = errno;
    }
    code
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: as in `on`; taken here, once, and the methods are cleared so that nothing is called any more.
    let open = unsafe {
        (*file).methods = std::ptr::null();
        let open = std::mem::replace(&mut (*file).open, std::ptr::null_mut());
        if open.is_null() {
            return code::OK;
        }
        Box::from_raw(open)
    };
    told(|| open.io.close()).0
}

unsafe extern "C" fn read(file: *mut File, room: *mut c_void, len: c_int, at: i64) -> c_int {
    let (len, at) = (usize::try_from(len).unwrap_or(0), u64::try_from(at).unwrap_or(0));
    // SAFETY: SQLite's buffer of `len` bytes, which nothing else uses during the call; it need not be initialised, so
    // it is made so before it becomes a slice.
    let room = unsafe {
        room.write_bytes(0, len);
        std::slice::from_raw_parts_mut(room.cast::<u8>(), len)
    };
    let read = |open: &mut Open| {
        let n = open.io.read(room, at)?;
        if n == len {
            return Ok(());
        }
        room[n..].fill(0);
        Err(Fault::quiet(code::IOERR_SHORT_READ))
    };
    // SAFETY: as the module says.
    unsafe { on(file, read) }
}

unsafe extern "C" fn write(file: *mut File, data: *const c_void, len: c_int, at: i64) -> c_int {
    let (len, at) = (usize::try_from(len).unwrap_or(0), u64::try_from(at).unwrap_or(0));
    // SAFETY: SQLite's bytes, `len` of them, that stay as they are during the call.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.write(data, at)) }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.truncate(u64::try_from(size).unwrap_or(0))) }
}

unsafe extern "C" fn sync(file: *mut File, _flags: c_int) -> c_int {
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.sync()) }
}

unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> c_int {
    // SAFETY: as the module says; `size` is SQLite's to be filled.
    unsafe { on(file, |open| open.io.size().map(|n| *size = i64::try_from(n).unwrap_or(i64::MAX))) }
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.lock(level)) }
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> c_int {
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.unlock(level)) }
}

unsafe extern "C" fn check_reserved(file: *mut File, out: *mut c_int) -> c_int {
    // SAFETY: as the module says; `out` is SQLite's to be filled.
    unsafe { on(file, |open| open.io.is_reserved().map(|found| *out = found.into())) }
}

/// A control with the operand that its number says `arg` points to.
///
/// # Safety
/// `arg` is what `sqlite3.h` says for `op`.
unsafe fn decoded(op: c_int, arg: *mut c_void) -> Option<Control> {
    // SAFETY: an int where the number is of a control that takes one, as the caller says; read only there.
    let int = || unsafe { *arg.cast::<c_int>() };
    Some(match op {
        code::FCNTL_LOCKSTATE => Control::LockState,
        code::FCNTL_LAST_ERRNO => Control::LastErrno,
        // SAFETY: of this control, a 64-bit integer.
        code::FCNTL_SIZE_HINT => Control::SizeHint(unsafe { *arg.cast::<i64>() }),
        code::FCNTL_CHUNK_SIZE => Control::ChunkSize(int()),
        code::FCNTL_PERSIST_WAL => Control::PersistWal(int()),
        code::FCNTL_POWERSAFE_OVERWRITE => Control::PowersafeOverwrite(int()),
        code::FCNTL_HAS_MOVED => Control::HasMoved,
        code::FCNTL_SYNC => Control::Sync(!arg.is_null()),
        code::FCNTL_BEGIN_ATOMIC_WRITE => Control::BeginAtomic,
        code::FCNTL_COMMIT_ATOMIC_WRITE => Control::CommitAtomic,
        code::FCNTL_ROLLBACK_ATOMIC_WRITE => Control::RollbackAtomic,
        _ => return None,
    })
}

/// Controls whose operand is an int that the answer goes to.
const ANSWERED: [c_int; 5] = [
    code::FCNTL_LOCKSTATE,
    code::FCNTL_LAST_ERRNO,
    code::FCNTL_PERSIST_WAL,
    code::FCNTL_POWERSAFE_OVERWRITE,
    code::FCNTL_HAS_MOVED,
];

/// `pragma weldfs_stats`: what the device counts, the pragma's one row. Other pragmas are SQLite's.
///
/// # Safety
/// `file` is as the module says; `arg` points to where the answer goes, the pragma's name, and its argument or null.
unsafe fn pragma(file: *mut File, arg: *mut *mut c_char) -> c_int {
    // SAFETY: as the caller says; a string that SQLite keeps during the call.
    let name = unsafe { CStr::from_ptr(*arg.add(1)) };
    if !name.to_bytes().eq_ignore_ascii_case(STATS) {
        return code::NOTFOUND;
    }
    let answer = |open: &mut Open| {
        let Some(stats) = open.io.stats()? else { return Err(Fault::quiet(code::NOTFOUND)) };
        let text = CString::new(stats).unwrap_or_default();
        // SAFETY: as the caller says; SQLite frees it.
        unsafe { *arg = api::string(&text) };
        Ok(())
    };
    // SAFETY: as the module says.
    unsafe { on(file, answer) }
}

unsafe extern "C" fn control(file: *mut File, op: c_int, arg: *mut c_void) -> c_int {
    if op == code::FCNTL_VFSNAME {
        // SAFETY: of this control, a pointer to a string that SQLite will free.
        unsafe { *arg.cast::<*mut c_char>() = api::string(NAME) };
        return code::OK;
    }
    if op == code::FCNTL_PRAGMA {
        // SAFETY: of this control, three pointers to strings.
        return unsafe { pragma(file, arg.cast()) };
    }
    // SAFETY: SQLite's operand for this number.
    let Some(control) = (unsafe { decoded(op, arg) }) else { return code::NOTFOUND };
    let answer = |open: &mut Open| {
        let known = open.errno;
        let answer = open.io.control(control)?;
        if ANSWERED.contains(&op) {
            let answer = if op == code::FCNTL_LAST_ERRNO { known } else { answer };
            // SAFETY: of these controls, an int.
            unsafe { *arg.cast::<c_int>() = answer };
        }
        Ok(())
    };
    // SAFETY: as the module says.
    unsafe { on(file, answer) }
}

unsafe extern "C" fn sector_size(_file: *mut File) -> c_int {
    SECTOR
}

unsafe extern "C" fn characteristics(file: *mut File) -> c_int {
    // SAFETY: as in `on`.
    unsafe { (*file).open.as_ref() }.map_or(0, |open| open.io.characteristics())
}

unsafe extern "C" fn shm_map(file: *mut File, region: c_int, len: c_int, make: c_int, out: *mut *mut c_void) -> c_int {
    let (region, len) = (u32::try_from(region).unwrap_or(0), u32::try_from(len).unwrap_or(0));
    // SAFETY: as the module says; `out` is SQLite's to be filled, with null where there is nothing.
    unsafe {
        *out = std::ptr::null_mut();
        on(file, |open| open.io.shm_map(region, len, make != 0).map(|at| *out = at))
    }
}

unsafe extern "C" fn shm_lock(file: *mut File, first: c_int, n: c_int, flags: c_int) -> c_int {
    let (first, n) = (u32::try_from(first).unwrap_or(0), u32::try_from(n).unwrap_or(0));
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.shm_lock(first, n, flags)) }
}

unsafe extern "C" fn shm_barrier(_file: *mut File) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut File, _delete: c_int) -> c_int {
    // SAFETY: as the module says.
    unsafe { on(file, |open| open.io.shm_unmap()) }
}

/// There is nothing to map: SQLite reads then.
unsafe extern "C" fn fetch(_file: *mut File, _at: i64, _len: c_int, out: *mut *mut c_void) -> c_int {
    // SAFETY: SQLite's to be filled.
    unsafe { *out = std::ptr::null_mut() };
    code::OK
}

unsafe extern "C" fn unfetch(_file: *mut File, _at: i64, _page: *mut c_void) -> c_int {
    code::OK
}
