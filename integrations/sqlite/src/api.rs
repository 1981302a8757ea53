//! The SQLite that this VFS serves: the few of its functions that are used here.
//!
//! A loadable extension gets them from who loads it, a program says them, and a C program's are found by their names.
//! So nothing here is linked with any SQLite.

use crate::abi::{Log, Malloc64, Vfs, VfsFind, VfsRegister};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;

/// SQLite's own functions.
#[derive(Clone, Copy)]
pub struct Api {
    find: VfsFind,
    register: VfsRegister,
    malloc: Malloc64,
    log: Log,
}

/// Where they stand in `sqlite3_api_routines`, whose order is frozen.
const FIND: usize = 141;
const REGISTER: usize = 142;
const LOG: usize = 167;
const MALLOC: usize = 197;

static API: OnceLock<Api> = OnceLock::new();

impl Api {
    /// From the functions themselves.
    ///
    /// # Safety
    /// They are those of one SQLite, of version 3.8.7 or later, by their names: `sqlite3_vfs_find`,
    /// `sqlite3_vfs_register`, `sqlite3_malloc64`, `sqlite3_log`.
    pub unsafe fn new(find: VfsFind, register: VfsRegister, malloc: Malloc64, log: Log) -> Api {
        Api { find, register, malloc, log }
    }

    /// From what a loadable extension is given.
    ///
    /// # Safety
    /// `routines` is a `sqlite3_api_routines` of a SQLite of version 3.8.7 or later.
    pub(crate) unsafe fn of_routines(routines: *const *const c_void) -> Option<Api> {
        // SAFETY: the table has these functions at these places (so the caller, and SQLite's promise not to move them);
        // an entry that this SQLite was built without is null, which `Option` of a function pointer may be.
        unsafe {
            Some(Api {
                find: std::mem::transmute::<*const c_void, Option<VfsFind>>(*routines.add(FIND))?,
                register: std::mem::transmute::<*const c_void, Option<VfsRegister>>(*routines.add(REGISTER))?,
                malloc: std::mem::transmute::<*const c_void, Option<Malloc64>>(*routines.add(MALLOC))?,
                log: std::mem::transmute::<*const c_void, Option<Log>>(*routines.add(LOG))?,
            })
        }
    }

    /// From the SQLite that the program is linked with, by the functions' names.
    pub(crate) fn of_program() -> Option<Api> {
        let named = |name: &CStr| {
            // SAFETY: a string that ends, looked up in what the program has loaded.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found.cast_const())
        };
        // SAFETY: the functions of these names, with the types that SQLite has given them for ever.
        unsafe {
            Some(Api {
                find: std::mem::transmute::<*const c_void, VfsFind>(named(c"sqlite3_vfs_find")?),
                register: std::mem::transmute::<*const c_void, VfsRegister>(named(c"sqlite3_vfs_register")?),
                malloc: std::mem::transmute::<*const c_void, Malloc64>(named(c"sqlite3_malloc64")?),
                log: std::mem::transmute::<*const c_void, Log>(named(c"sqlite3_log")?),
            })
        }
    }

    /// These are the ones from now on, unless others are already; whichever they are.
    pub(crate) fn settle(self) -> Api {
        *API.get_or_init(|| self)
    }

    /// Whether they are the same SQLite's.
    pub(crate) fn is(self, other: Api) -> bool {
        std::ptr::fn_addr_eq(self.register, other.register)
    }

    /// A VFS by its name; the default one without.
    pub(crate) fn find(self, name: Option<&CStr>) -> *mut Vfs {
        // SAFETY: a string that ends, or null.
        unsafe { (self.find)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    }

    /// Makes a VFS known, for ever.
    pub(crate) fn register(self, vfs: &'static mut Vfs, default: bool) -> c_int {
        // SAFETY: a whole VFS that is never moved or freed; SQLite links it into its list.
        unsafe { (self.register)(vfs, default.into()) }
    }
}

/// Those that were settled on.
pub(crate) fn get() -> Option<Api> {
    API.get().copied()
}

/// Memory of SQLite's with a string in it, for SQLite to free; null without memory.
pub(crate) fn string(text: &CStr) -> *mut c_char {
    let bytes = text.to_bytes_with_nul();
    let Some(api) = get() else { return std::ptr::null_mut() };
    // SAFETY: SQLite's allocator, asked for as many bytes as are copied where it gave them.
    unsafe {
        let room = (api.malloc)(bytes.len() as u64).cast::<u8>();
        if !room.is_null() {
            room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        room.cast()
    }
}

/// The environment variable that, when it says anything, has SQLite's log of this VFS on standard error, too: for
/// programs that show no log.
pub const LOG_VARIABLE: &str = "WELDFS_SQLITE_LOG";

/// A line in SQLite's log.
pub(crate) fn log(code: c_int, what: &str) {
    if std::env::var_os(LOG_VARIABLE).is_some_and(|said| !said.is_empty()) {
        // A program without a standard error has its log.
        let _ = writeln!(std::io::stderr(), "weldfs: {what} (code {code})");
    }
    let (Some(api), Ok(text)) = (get(), CString::new(format!("weldfs: {}", what.replace('\0', "?")))) else { return };
    // SAFETY: a format that takes one string, and a string.
    unsafe { (api.log)(code, c"%s".as_ptr(), text.as_ptr()) }
}
