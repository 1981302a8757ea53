//! Words to the user: one line on the original standard error, by a bare write(2), without allocation or locks.

use crate::sys;

/// The descriptor that messages go to.
const STDERR: i32 = 2;

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

/// Something a program asked for and did not get: one line if WELDFS_DEBUG=1. Returns the errno, for `Err(refuse(..))`.
pub fn refuse(code: i32, what: &str) -> i32 {
    if crate::config::get().is_some_and(|c| c.debug) {
        line(&["not supported under the prefix: ", what]);
    }
    code
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
