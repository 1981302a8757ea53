//! The entry points of the library: what SQLite calls when it loads it, and what a C program calls by itself.

use crate::abi::{Log, Malloc64, VfsFind, VfsRegister};
use crate::api::Api;
use crate::{code, vfs};
use std::ffi::{c_char, c_int, c_void};

/// What SQLite calls when it loads the library; the name is the one that it makes of the file's.
///
/// # Safety
/// SQLite's to call: `routines` is its `sqlite3_api_routines`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_weldfssqlite_init(
    _db: *mut c_void,
    _error: *mut *mut c_char,
    routines: *const *const c_void,
) -> c_int {
    // SAFETY: as the caller says.
    let Some(api) = (unsafe { Api::of_routines(routines) }) else { return code::IOERR };
    match vfs::register(api, false) {
        // The VFS stays when the connection that loaded it closes.
        code::OK => code::OK_LOAD_PERMANENTLY,
        bad => bad,
    }
}

/// `int weldfs_sqlite_register(int make_default)`: makes the VFS known to the SQLite that the program is linked with.
/// SQLite's code; SQLITE_NOTFOUND where no SQLite is to be found in the program by the names of its functions,
/// SQLITE_MISUSE where another SQLite in this process has the VFS.
#[unsafe(no_mangle)]
pub extern "C" fn weldfs_sqlite_register(default: c_int) -> c_int {
    Api::of_program().map_or(code::NOTFOUND, |api| vfs::register(api, default != 0))
}

/// `int weldfs_sqlite_register_with(find, vfs_register, malloc64, log, int make_default)`, as `weldfs_sqlite.h` has it:
/// the same of the SQLite whose functions these are. SQLITE_MISUSE also if one is missing.
///
/// # Safety
/// They are null or those of one SQLite, of version 3.8.7 or later, by these names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weldfs_sqlite_register_with(
    find: Option<VfsFind>,
    vfs_register: Option<VfsRegister>,
    malloc64: Option<Malloc64>,
    log: Option<Log>,
    default: c_int,
) -> c_int {
    let (Some(find), Some(vfs_register), Some(malloc64), Some(log)) = (find, vfs_register, malloc64, log) else {
        return code::MISUSE;
    };
    // SAFETY: as the caller says.
    let api = unsafe { Api::new(find, vfs_register, malloc64, log) };
    vfs::register(api, default != 0)
}
