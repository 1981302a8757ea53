//! The end of a process, or of the program in it: the counts of its calls are told (`WELDFS_REPORT=1`).

use crate::abi::hook;
use crate::{atomic, config, counts, sys, table};
use libc::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const STDERR: c_int = 2;
/// Where the second descriptor of standard error lies, out of a program's way, where the limit allows.
const HIGH: c_int = weldfs::FD_HIGH;
/// The descriptor that counts are told to, and the file behind it (device and inode): programs close their standard
/// error before they end (coreutils do), and may give the number to a file of theirs.
static TOLD_TO: AtomicI32 = AtomicI32::new(-1);
static FILE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn file_behind(fd: c_int) -> Option<[u64; 2]> {
    let mut st: libc::stat = crate::abi::zeroed();
    sys::checked(libc::SYS_fstat, [fd as usize, &raw mut st as usize, 0, 0, 0, 0]).ok().map(|_| [st.st_dev, st.st_ino])
}

/// Counts from here on; they will be told to what standard error is now.
pub fn begin() {
    if let Some(file) = file_behind(STDERR) {
        let apart = super::open::dup_from(STDERR, HIGH, true);
        FILE.iter().zip(file).for_each(|(place, part)| place.store(part, Ordering::Relaxed));
        weldfs::kept::keep(apart);
        TOLD_TO.store(if apart < 0 { STDERR } else { apart }, Ordering::Relaxed);
    }
    counts::start();
}

/// Runs when the library is unloaded, as the process exits.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg_attr(test, allow(dead_code))]
extern "C" fn end() {
    atomic::end();
    if counts::counting() {
        // What streams still hold is written now, so that it is counted; libc would do it after this.
        crate::stdio::flush_all();
        tell();
    }
}

/// The same before the process ends.
pub fn leave() {
    atomic::end();
    tell();
}

/// Prints the counts and starts again from zero. Called before the process ends or executes another program.
pub fn tell() {
    atomic::make();
    if !counts::counting() {
        return;
    }
    let saved = crate::abi::errno();
    let mut room = [0u8; 32];
    let program = config::program(&mut room);
    let pid = sys::call(libc::SYS_getpid, [0; 6]) as u64;
    counts::table(program, pid, |page| {
        let fd = TOLD_TO.load(Ordering::Relaxed);
        let file = [FILE[0].load(Ordering::Relaxed), FILE[1].load(Ordering::Relaxed)];
        if file_behind(fd) != Some(file) {
            return;
        }
        if table::ours(fd) {
            super::rw::write(fd, page.as_ptr().cast(), page.len());
        } else {
            sys::write(fd, page);
        }
    });
    crate::abi::set_errno(saved);
}

hook! { real;
    fn _exit(status: c_int) -> ! {
        leave();
        real(status)
    }
    fn _Exit(status: c_int) -> ! {
        leave();
        real(status)
    }
    fn quick_exit(status: c_int) -> ! {
        leave();
        real(status)
    }
}
