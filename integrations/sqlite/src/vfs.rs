//! `sqlite3_vfs`: pointers in, safe calls, codes out.

use crate::abi::{File, Vfs};
use crate::api::Api;
use crate::code;
use crate::fault::Fault;
use crate::io::METHODS;
use crate::open::Open;
use crate::told::{NAME, last_errno, told};
use crate::{api, files};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest name: a target and a path in it. SQLite reads the name of a super-journal, which a journal has in it,
/// into room for a page, whose size may be 512 bytes: a VFS that lets names be longer lets a forged journal write over
/// what lies behind it.
const PATH_MAX: c_int = 512;
/// The Julian day of 1970, in milliseconds.
const EPOCH_MS: i64 = 210_866_760_000_000;
const DAY_MS: f64 = 86_400_000.0;

/// Makes the VFS known to a SQLite; its code. A second time it changes nothing but which VFS is the default one. One
/// SQLite in a process has it: MISUSE for another one.
pub fn register(api: Api, default: bool) -> c_int {
    if !api.settle().is(api) {
        return code::MISUSE;
    }
    let known = api.find(Some(NAME));
    // SAFETY: what SQLite has under this name is never freed; whose it is, is not looked at.
    if let Some(known) = unsafe { known.as_mut() } {
        return if default { api.register(known, true) } else { code::OK };
    }
    let vfs = Vfs {
        version: 3,
        file_bytes: std::mem::size_of::<File>() as c_int,
        path_max: PATH_MAX,
        next: null_mut(),
        name: NAME.as_ptr(),
        data: null_mut(),
        open,
        delete,
        access,
        full_pathname,
        dl_open,
        dl_error,
        dl_sym,
        dl_close,
        randomness,
        sleep,
        current_time,
        last_error,
        current_time_int64,
        set_system_call,
        get_system_call,
        next_system_call,
    };
    api.register(Box::leak(Box::new(vfs)), default)
}

/// The bytes of a name; none of null.
///
/// # Safety
/// `name` is null or a string that outlives the use.
unsafe fn bytes<'n>(name: *const c_char) -> Option<&'n [u8]> {
    // SAFETY: as the caller says.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
}

unsafe extern "C" fn open(_: *mut Vfs, name: *const c_char, file: *mut File, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: `szOsFile` bytes of SQLite's; without methods it does not close what could not be opened.
    unsafe { file.write(File { methods: std::ptr::null(), open: null_mut() }) };
    let call = || {
        // SAFETY: SQLite's string, or null for a temporary file.
        let (io, flags) = files::open(unsafe { bytes(name) }, flags)?;
        let open = Box::into_raw(Box::new(Open { io, errno: 0 }));
        // SAFETY: as above; `out` is null or SQLite's to be filled.
        unsafe {
            file.write(File { methods: &raw const METHODS, open });
            if let Some(out) = out.as_mut() {
                *out = flags;
            }
        }
        Ok(())
    };
    told(call).0
}

unsafe extern "C" fn delete(_: *mut Vfs, name: *const c_char, durable: c_int) -> c_int {
    // SAFETY: SQLite's string.
    let name = unsafe { bytes(name) }.unwrap_or_default();
    told(|| files::delete(name, durable != 0)).0
}

unsafe extern "C" fn access(_: *mut Vfs, name: *const c_char, what: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite's string, and an int to be filled.
    let (name, out) = unsafe { (bytes(name).unwrap_or_default(), &mut *out) };
    *out = 0;
    told(|| files::access(name, what).map(|found| *out = found.into())).0
}

unsafe extern "C" fn full_pathname(_: *mut Vfs, name: *const c_char, room: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite's string.
    let name = unsafe { bytes(name) }.unwrap_or_default();
    let mut symlink = false;
    let call = || {
        let (full, by_link) = files::full_name(name)?;
        symlink = by_link;
        let full = CString::new(full).unwrap_or_default();
        let bytes = full.as_bytes_with_nul();
        if bytes.len() > usize::try_from(room).unwrap_or(0) {
            return Err(Fault::said(code::CANTOPEN_FULLPATH, "the name is too long"));
        }
        // SAFETY: SQLite's buffer of `room` bytes, and no more than that is copied.
        unsafe { out.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    };
    match told(call).0 {
        code::OK if symlink => code::OK_SYMLINK,
        code => code,
    }
}

/// SQLite's own VFS, which loads libraries.
fn base() -> Option<&'static Vfs> {
    let host = api::get()?.find(Some(c"unix"));
    // SAFETY: a VFS that SQLite has registered is never freed.
    unsafe { host.as_ref() }
}

unsafe extern "C" fn dl_open(_: *mut Vfs, name: *const c_char) -> *mut c_void {
    // SAFETY: SQLite's operands, handed on with the VFS that they are for.
    base().map_or(null_mut(), |base| unsafe { (base.dl_open)(std::ptr::from_ref(base).cast_mut(), name) })
}

unsafe extern "C" fn dl_error(_: *mut Vfs, room: c_int, out: *mut c_char) {
    if let Some(base) = base() {
        // SAFETY: as above.
        unsafe { (base.dl_error)(std::ptr::from_ref(base).cast_mut(), room, out) }
    }
}

unsafe extern "C" fn dl_sym(_: *mut Vfs, library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: as above.
    base().map_or(null_mut(), |base| unsafe { (base.dl_sym)(std::ptr::from_ref(base).cast_mut(), library, name) })
}

unsafe extern "C" fn dl_close(_: *mut Vfs, library: *mut c_void) {
    if let Some(base) = base() {
        // SAFETY: as above.
        unsafe { (base.dl_close)(std::ptr::from_ref(base).cast_mut(), library) }
    }
}

unsafe extern "C" fn randomness(_: *mut Vfs, room: c_int, out: *mut c_char) -> c_int {
    let len = usize::try_from(room).unwrap_or(0);
    // SAFETY: SQLite's buffer of `room` bytes, initialised before it becomes a slice.
    let bytes = unsafe {
        out.write_bytes(0, len);
        std::slice::from_raw_parts_mut(out.cast::<u8>(), len)
    };
    if getrandom::fill(bytes).is_ok() { room } else { 0 }
}

unsafe extern "C" fn sleep(_: *mut Vfs, micros: c_int) -> c_int {
    std::thread::sleep(Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
    micros
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    EPOCH_MS + i64::try_from(since.as_millis()).unwrap_or(0)
}

unsafe extern "C" fn current_time(_: *mut Vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite's to be filled.
    unsafe { *out = now_ms() as f64 / DAY_MS };
    code::OK
}

unsafe extern "C" fn current_time_int64(_: *mut Vfs, out: *mut i64) -> c_int {
    // SAFETY: SQLite's to be filled.
    unsafe { *out = now_ms() };
    code::OK
}

unsafe extern "C" fn last_error(_: *mut Vfs, room: c_int, out: *mut c_char) -> c_int {
    let errno = last_errno();
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let len = text.len().min(usize::try_from(room).unwrap_or(0).saturating_sub(1));
    if room > 0 && !out.is_null() {
        // SAFETY: SQLite's buffer of `room` bytes, of which at most so many are written, the NUL included.
        unsafe {
            out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), len);
            out.add(len).write(0);
        }
    }
    errno
}

unsafe extern "C" fn set_system_call(_: *mut Vfs, _name: *const c_char, _call: *mut c_void) -> c_int {
    code::NOTFOUND
}

unsafe extern "C" fn get_system_call(_: *mut Vfs, _name: *const c_char) -> *mut c_void {
    null_mut()
}

unsafe extern "C" fn next_system_call(_: *mut Vfs, _name: *const c_char) -> *const c_char {
    std::ptr::null()
}
