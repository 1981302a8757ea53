//! Words to the user: one line on the original standard error, by a bare write(2), without allocation or locks.

use crate::{config, counts, sys};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The descriptor that messages go to.
const STDERR: i32 = 2;
/// Kinds of refusals that are remembered; more than there are in this library.
const KINDS: usize = 64;

fn line(parts: &[&str]) {
    let mut buffer = [0u8; 512];
    let mut used = 0;
    for part in ["weldfs: "].iter().chain(parts).chain(&["\n"]) {
        let n = part.len().min(buffer.len() - used);
        buffer[used..used + n].copy_from_slice(&part.as_bytes()[..n]);
        used += n;
    }
    sys::write(STDERR, &buffer[..used]);
}

/// Whether this process says something of a kind for the first time.
fn first(what: &'static str) -> bool {
    static SAID: [AtomicPtr<u8>; KINDS] = [const { AtomicPtr::new(null_mut()) }; KINDS];
    let me = what.as_ptr().cast_mut();
    for slot in &SAID {
        match slot.compare_exchange(null_mut(), me, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(known) if known == me => return false,
            Err(_) => {}
        }
    }
    false
}

/// Something a program asked for and did not get, and need not have been ready for: one line, once for each kind in a
/// process (WELDFS_DEBUG=1: each time). Returns the errno, for `Err(refuse(..))`.
pub fn refuse(code: i32, what: &'static str) -> i32 {
    refused(what, ["", ""]);
    code
}

/// As `refuse`, for what a mount at the prefix would have done: the line also says why there is none.
pub fn refuse_unmounted(code: i32, what: &'static str) -> i32 {
    let why = config::get().and_then(|c| c.unmounted.as_deref()?.utf8_chunks().next()).map(|chunk| chunk.valid());
    refused(what, why.map_or(["", ""], |why| ["; nothing is mounted there: ", why]));
    code
}

fn refused(what: &'static str, more: [&str; 2]) {
    counts::refused();
    if config::get().is_some_and(|c| c.debug) || first(what) {
        line(&["not supported under the prefix: ", what, more[0], more[1]]);
    }
}

/// As `refuse`, where programs know the errno from other file systems and go another way: a line only if
/// WELDFS_DEBUG=1.
pub fn decline(code: i32, what: &'static str) -> i32 {
    counts::refused();
    if config::get().is_some_and(|c| c.debug) {
        line(&["not supported under the prefix: ", what]);
    }
    code
}

/// Counts the hook that runs as promoted: the kernel's own file of a mount serves it from here on.
pub fn promoted() {
    counts::promoted();
}

/// A warning that is always worth a line.
pub fn warn(parts: &[&str]) {
    line(parts);
}

/// Says why and aborts.
pub fn fatal(parts: &[&str]) -> ! {
    line(parts);
    std::process::abort()
}
