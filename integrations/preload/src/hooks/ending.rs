//! The end of a process, or of the program in it: the counts of its calls are told (`WELDFS_REPORT=1`).

use crate::abi::hook;
use crate::{config, counts, sys, table};
use libc::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

const STDERR: c_int = 2;
/// Whether descriptor 2 is what the program was given, or moved there, for its messages: a file that it opened after
/// closing 2 is none.
static FOR_MESSAGES: AtomicBool = AtomicBool::new(true);

/// Runs when the library is unloaded, as the process exits.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn end() {
    if counts::counting() {
        // What streams still hold is written now, so that it is counted; libc would do it after this.
        crate::stdio::flush_all();
        tell();
    }
}

/// Descriptor 2 was closed.
pub fn stderr_closed(fd: c_int) {
    if fd == STDERR {
        FOR_MESSAGES.store(false, Ordering::Relaxed);
    }
}

/// Something was moved to descriptor `fd`.
pub fn stderr_given(fd: c_int) {
    if fd == STDERR {
        FOR_MESSAGES.store(true, Ordering::Relaxed);
    }
}

/// Prints the counts and starts again from zero. Called before the process ends or executes another program.
pub fn tell() {
    if !counts::counting() {
        return;
    }
    let saved = crate::abi::errno();
    let mut room = [0u8; 32];
    let program = config::program(&mut room);
    let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
    counts::table(program, pid, |page| {
        if !FOR_MESSAGES.load(Ordering::Relaxed) {
            return;
        }
        if table::ours(STDERR) {
            super::rw::write(STDERR, page.as_ptr().cast(), page.len());
        } else {
            sys::write(STDERR, page);
        }
    });
    crate::abi::set_errno(saved);
}

hook! { real;
    fn _exit(status: c_int) -> ! {
        tell();
        real(status)
    }
    fn _Exit(status: c_int) -> ! {
        tell();
        real(status)
    }
    fn quick_exit(status: c_int) -> ! {
        tell();
        real(status)
    }
}
