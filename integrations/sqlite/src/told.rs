//! What comes of a call, as SQLite gets it: its code, a line in its log, the errno for `xGetLastError`.

use crate::fault::{Done, Fault};
use crate::{api, code};
use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the VFS is called.
pub const NAME: &CStr = c"weldfs";

thread_local!(static ERRNO: Cell<i32> = const { Cell::new(0) });

/// The errno of this thread's last failure.
pub fn last_errno() -> i32 {
    ERRNO.try_with(Cell::get).unwrap_or(0)
}

/// The code of what came of a call; a failure is logged, and a panic is one.
pub fn told(call: impl FnOnce() -> Done) -> (c_int, i32) {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return (code::OK, 0),
        Ok(Err(fault)) => fault,
        Err(_) => Fault::said(code::IOERR, "a call failed unexpectedly"),
    };
    if let Some(what) = &fault.what {
        api::log(fault.code, what);
    }
    if fault.errno != 0 {
        let _ = ERRNO.try_with(|last| last.set(fault.errno));
    }
    (fault.code, fault.errno)
}
