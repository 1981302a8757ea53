//! Images, devices, shells and connections for the tests.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

pub use crate::served::{PATIENCE, Served, fsck, last_number, other_version, weldfs};

use crate::served::built;
use rusqlite::{Connection, OpenFlags, ffi};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;

/// The loadable extension, as SQLite names it.
pub fn extension() -> PathBuf {
    built().join("libweldfs_sqlite")
}

/// A folder with an image `d.img` in it.
pub fn image(size: &str) -> tempfile::TempDir {
    crate::served::image(size, "pmem")
}

/// Whether the system's `sqlite3` is there; a skip is written down.
pub fn shell_is_there(test: &str) -> bool {
    let there = Command::new("sqlite3").arg("--version").output().is_ok();
    if !there {
        super::skips::skip(&format!("sqlite: {test}"), "sqlite3 is not installed");
    }
    there
}

/// The system's shell in a folder, with the extension, about to read a script.
pub fn shell(dir: &Path) -> Command {
    let mut shell = Command::new("sqlite3");
    shell.current_dir(dir).args(["-batch", "-init", "/dev/null", "-cmd", ".log stderr", "-cmd"]);
    shell.arg(format!(".load {}", extension().display()));
    shell
}

/// Starts a shell on a script.
pub fn start(dir: &Path, script: &str) -> Child {
    feed(shell(dir), script)
}

/// The same of a shell that was made different.
pub fn feed(mut shell: Command, script: &str) -> Child {
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that could not be loaded does not read it; what it says then is seen.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child
}

/// What a script says, and its complaints.
pub fn said(out: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', " ");
    (text(&out.stdout), text(&out.stderr))
}

/// Runs a script that must go well; what it prints, in one line.
pub fn run(dir: &Path, script: &str) -> String {
    let out = start(dir, &format!(".bail on\n{script}")).wait_with_output().unwrap();
    let (printed, complaints) = said(&out);
    assert!(out.status.success(), "{script}\n{printed}\n{complaints}");
    printed
}

/// Makes the VFS known to the SQLite in this process.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions of the one SQLite that this program is linked with; their types differ only in whose
        // name for the same C structures they use.
        let api = unsafe {
            weldfs_sqlite::Api::new(
                std::mem::transmute::<*const (), weldfs_sqlite::VfsFind>(ffi::sqlite3_vfs_find as *const ()),
                std::mem::transmute::<*const (), weldfs_sqlite::VfsRegister>(ffi::sqlite3_vfs_register as *const ()),
                ffi::sqlite3_malloc64,
                ffi::sqlite3_log,
            )
        };
        weldfs_sqlite::register(api, false).unwrap();
    });
}

/// A connection of this process.
pub fn connect(name: &str) -> rusqlite::Result<Connection> {
    register();
    let db = Connection::open_with_flags_and_vfs(name, OpenFlags::default(), c"weldfs")?;
    db.busy_timeout(PATIENCE)?;
    Ok(db)
}

/// One value.
pub fn one<T: rusqlite::types::FromSql>(db: &Connection, sql: &str) -> T {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// The methods of a file of a database; null if it is not open.
fn methods(db: &Connection, control: i32) -> *const ffi::sqlite3_io_methods {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: an open connection, its main database, and the place for a pointer that these controls take. The file, if
    // there is one, is the connection's, which nothing else uses meanwhile; its methods are null before it is opened.
    unsafe {
        let code = ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), control, (&raw mut file).cast());
        assert_eq!(code, ffi::SQLITE_OK);
        file.as_ref().map_or(std::ptr::null(), |file| file.pMethods)
    }
}

/// Whether the journal of the transaction that is open just now is a file of the VFS. With batches it is none: SQLite
/// keeps it in memory and never asks for one.
pub fn has_a_journal(db: &Connection) -> bool {
    let journal = methods(db, ffi::SQLITE_FCNTL_JOURNAL_POINTER);
    assert!(!journal.is_null(), "no transaction has begun to write");
    std::ptr::eq(journal, methods(db, ffi::SQLITE_FCNTL_FILE_POINTER))
}

/// Sets the size in whose multiples a database's file grows.
pub fn chunk_size(db: &Connection, bytes: i32) {
    let mut bytes = bytes;
    // SAFETY: an open connection, its main database, and the int that this control takes.
    let code = unsafe {
        let arg = (&raw mut bytes).cast();
        ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), ffi::SQLITE_FCNTL_CHUNK_SIZE, arg)
    };
    assert_eq!(code, ffi::SQLITE_OK);
}
