//! Names that mean an open descriptor: `/dev/stdin`, `/dev/fd/N`, `/proc/self/fd/N` and their like.
//!
//! The kernel would open the placeholder behind such a number, which is an empty file; what is meant is the file in
//! the device that the number stands for.

use crate::abi::Res;
use crate::{report, sys, table};
use libc::c_int;

/// What `/proc/self/fd/N` of a placeholder points to.
pub const PLACEHOLDER: &[u8] = b"/memfd:weldfs-file (deleted)";

/// A descriptor of ours that this absolute name means when it is followed.
#[inline]
pub fn of(name: &[u8]) -> Option<c_int> {
    let fd = match name.strip_prefix(b"/dev/") {
        Some(b"stdin") => Some(0),
        Some(b"stdout") => Some(1),
        Some(b"stderr") => Some(2),
        _ => number(name),
    };
    fd.filter(|fd| table::ours(*fd))
}

/// As `of`, but only names that are themselves the link to the open file (`/dev/stdin` is a link to such a link).
pub fn link(name: &[u8]) -> Option<c_int> {
    number(name).filter(|fd| table::ours(*fd))
}

/// Refuses a name that means another process's descriptor of a file in the device: this process cannot know which.
pub fn refuse_foreign(name: &[u8]) -> Res<()> {
    let Some((_, digits)) = name.strip_prefix(b"/proc/").and_then(|rest| split_fd(rest)) else { return Ok(()) };
    if digits.is_empty() || number(name).is_some() {
        return Ok(());
    }
    let mut room = [0u8; 64];
    let target = std::ffi::CString::new(name).map_err(|_| libc::EINVAL)?;
    match sys::readlink(&target, &mut room) {
        Ok(n) if &room[..n] == PLACEHOLDER => {
            Err(report::refuse(libc::EACCES, "another process's descriptor by its name"))
        }
        _ => Ok(()),
    }
}

fn number(name: &[u8]) -> Option<c_int> {
    if let Some(rest) = name.strip_prefix(b"/dev/fd/") {
        return decimal(rest);
    }
    let (who, rest) = split_fd(name.strip_prefix(b"/proc/")?)?;
    let mine = match who {
        b"self" | b"thread-self" => true,
        pid => decimal(pid)? as isize == sys::call(libc::SYS_getpid, [0; 6]),
    };
    if mine { decimal(rest) } else { None }
}

/// `WHO/fd/REST` as (WHO, REST).
fn split_fd(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let (who, rest) = name.split_at(name.iter().position(|b| *b == b'/')?);
    Some((who, rest.strip_prefix(b"/fd/")?))
}

/// A number as the kernel spells it: digits only, no zero in front.
fn decimal(digits: &[u8]) -> Option<c_int> {
    let plain = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || digits.first() != Some(&b'0'));
    if plain { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_own_descriptors_are_known_by_their_spelling() {
        let own = format!("/proc/{}/fd/7", std::process::id());
        for name in ["/dev/fd/7", "/proc/self/fd/7", "/proc/thread-self/fd/7", &own] {
            assert_eq!(number(name.as_bytes()), Some(7), "{name}");
        }
        assert_eq!(number(b"/dev/fd/0"), Some(0));
        for other in [
            "/dev/fd/",
            "/dev/fd",
            "/dev/fd/07",
            "/dev/fd/7/",
            "/dev/fd/-1",
            "/dev/fd/+1",
            "/dev/fd/99999999999",
            "/dev/fd/7/x",
            "/proc/1/fd/7",
            "/proc/self/fd",
            "/proc/self/fdinfo/7",
            "/proc/self",
            "dev/fd/7",
            "",
        ] {
            assert_eq!(number(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn only_numbers_of_device_files_count_and_dev_stdin_is_no_link_to_the_file() {
        assert_eq!(of(b"/dev/fd/40021"), None);
        table::insert(40_021, None, b"").unwrap();
        assert_eq!((of(b"/dev/fd/40021"), link(b"/proc/self/fd/40021")), (Some(40_021), Some(40_021)));
        table::remove(40_021);
        assert_eq!(link(b"/dev/stdin"), None);
    }
}
