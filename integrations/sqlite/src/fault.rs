//! What went wrong, in SQLite's terms, with the words for its log.

use crate::code;
use std::ffi::c_int;
use weldfs::Errno;

/// A call that fails: the code SQLite gets, the errno for `xGetLastError`, and what is logged.
#[derive(Debug)]
pub struct Fault {
    /// SQLite's code.
    pub code: c_int,
    /// The errno behind it; 0 where there is none.
    pub errno: i32,
    /// For the log; none where SQLite expects the code in passing (a lock that is taken, a short read).
    pub what: Option<String>,
}

/// What every call gives.
pub type Done<T = ()> = Result<T, Fault>;

impl Fault {
    /// A code that is an answer rather than a failure.
    pub fn quiet(code: c_int) -> Fault {
        Fault { code, errno: 0, what: None }
    }

    /// A failure in words.
    pub fn said(code: c_int, what: impl Into<String>) -> Fault {
        Fault { code, errno: 0, what: Some(what.into()) }
    }

    /// The failure of a step on something: SQLite's code for it unless the errno has a better one.
    pub fn of(code: c_int, e: impl Into<std::io::Error>, what: impl FnOnce() -> String) -> Fault {
        let e = e.into();
        let errno = e.raw_os_error().unwrap_or(0);
        let code = match Errno(errno) {
            Errno::NOSPC | Errno::DQUOT if code == code::IOERR_WRITE || code == code::IOERR_TRUNCATE => code::FULL,
            Errno::NOMEM => code::IOERR_NOMEM,
            _ => code,
        };
        Fault { code, errno, what: Some(format!("{}: {e}{}", what(), hint(Errno(errno)))) }
    }
}

impl Fault {
    /// Of a device on which a database is open: that it cannot be reached, or fails, is not its name's fault.
    pub fn of_an_open_database(self) -> Fault {
        let code = if self.code == code::CANTOPEN { code::IOERR } else { self.code };
        Fault { code, ..self }
    }
}

/// What the system's words do not say.
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::NODEV => " (the device is gone; close the database and open it again)",
        Errno::IO => " (the device or its medium failed; what became of this call is not known)",
        Errno::BADF => " (the session in which it was opened is over)",
        Errno::PROTO => " (the other side speaks another version of the protocol, or is no device)",
        _ => "",
    }
}
