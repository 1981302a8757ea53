//! What SQLite and a VFS say to each other: the structures of `sqlite3.h`, which are frozen, and the codes used here.
//!
//! Written out rather than taken from a binding: a loadable extension must not be linked with any SQLite, it lives in
//! the one that loaded it.

use std::ffi::{c_char, c_int, c_void};

/// `sqlite3_io_methods`, version 3.
#[repr(C)]
#[allow(missing_docs)] // SQLite's documentation names them
pub struct IoMethods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> c_int,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> c_int,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> c_int,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub check_reserved: unsafe extern "C" fn(*mut File, *mut c_int) -> c_int,
    pub control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub characteristics: unsafe extern "C" fn(*mut File) -> c_int,
    pub shm_map: unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int,
    pub shm_lock: unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int,
    pub shm_barrier: unsafe extern "C" fn(*mut File),
    pub shm_unmap: unsafe extern "C" fn(*mut File, c_int) -> c_int,
    pub fetch: unsafe extern "C" fn(*mut File, i64, c_int, *mut *mut c_void) -> c_int,
    pub unfetch: unsafe extern "C" fn(*mut File, i64, *mut c_void) -> c_int,
}

/// `sqlite3_file` with what is ours behind it: SQLite allocates `szOsFile` bytes of it.
#[repr(C)]
pub struct File {
    /// Null while nothing is open.
    pub methods: *const IoMethods,
    /// A leaked box; null while nothing is open.
    pub open: *mut crate::open::Open,
}

/// `sqlite3_vfs`, version 3.
#[repr(C)]
#[allow(missing_docs)] // SQLite's documentation names them
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub path_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub open: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    pub delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int,
    pub access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int,
    pub full_pathname: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int,
    pub dl_open: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void,
    pub dl_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char),
    pub dl_sym: unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> *mut c_void,
    pub dl_close: unsafe extern "C" fn(*mut Vfs, *mut c_void),
    pub randomness: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub sleep: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub current_time: unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int,
    pub last_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub current_time_int64: unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int,
    pub set_system_call: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut c_void) -> c_int,
    pub get_system_call: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void,
    pub next_system_call: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char,
}

/// `int sqlite3_vfs_register(sqlite3_vfs*, int)`.
pub type VfsRegister = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
/// `sqlite3_vfs *sqlite3_vfs_find(const char*)`.
pub type VfsFind = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
/// `void *sqlite3_malloc64(sqlite3_uint64)`.
pub type Malloc64 = unsafe extern "C" fn(u64) -> *mut c_void;
/// `void sqlite3_log(int, const char*, ...)`.
pub type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
